"""Tensors from Python data, NumPy arrays and other libraries' memory."""

from __future__ import annotations

from pullback._c import create, dtype as _dtype
from pullback._c.surface import require_grad_of_new
from pullback._c.tensor import Tensor

__all__ = ["as_tensor", "asarray", "from_numpy", "frombuffer", "scalar_tensor", "tensor"]


def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """Return a new tensor with a copy of ``data``: a number, nested sequences or an array.

    Dtype: Python floats give the default dtype, ints int64, bools bool; arrays keep theirs.
    Raises: ValueError for ragged sequences; TypeError for data that holds no numbers.

    >>> import pullback
    >>> pullback.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    """
    if isinstance(data, (bool, int, float, complex)) and not hasattr(data, "dtype"):
        made = create.number_tensor(data, dtype, device)
    elif isinstance(data, Tensor):
        import warnings

        warnings.warn("To copy construct from a tensor, it is recommended to use "
                      "sourceTensor.detach().clone() or "
                      "sourceTensor.detach().clone().requires_grad_(True), rather than "
                      "pullback.tensor(sourceTensor).", UserWarning, stacklevel=2)
        made = data.detach().clone().to(data.device if device is None else device,
                                        data.dtype if dtype is None else dtype)
    else:
        made = _from_array(_as_array(data, dtype), dtype, device)
    return require_grad_of_new(made) if requires_grad else made


def _as_array(data, dtype):
    """Return a NumPy array of Python data, typed as torch types it."""
    import numpy

    if isinstance(data, (numpy.ndarray, numpy.generic)):
        return numpy.asarray(data)
    if not isinstance(data, (list, tuple, range)) and not hasattr(data, "__array__") and (
            not hasattr(data, "__array_interface__")) and not hasattr(data, "__len__"):
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")
    if isinstance(data, (str, bytes, dict, set)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    try:
        array = numpy.array(_plain(data))
    except ValueError as error:
        raise ValueError(f"expected sequences of equal length at every level: {error}") from None
    except OverflowError as error:
        raise RuntimeError(f"Overflow when unpacking long: {error}") from None
    if array.dtype == object:
        if any(isinstance(item, int) for item in array.reshape(-1)):
            raise RuntimeError("Overflow when unpacking long long")
        odd = next((item for item in array.reshape(-1)), None)
        raise TypeError(f"tensor(): expected numbers in the sequence, got "
                        f"'{type(odd).__name__}'")
    if array.dtype.kind in "USOMmV":
        raise TypeError(f"new(): invalid data type '{array.dtype.type.__name__}'")
    if array.dtype.kind == "u" and array.dtype.itemsize == 8:
        raise RuntimeError("Overflow when unpacking long long")
    if not array.size and not _holds_arrays(data):
        return array.astype(_default_array_dtype())
    if array.dtype.kind in "fc" and not _holds_arrays(data):
        default = _dtype.get_default_dtype()
        name = (default if array.dtype.kind == "f" else default.to_complex()).name
        if dtype is None and name not in ("bfloat16",):
            return array.astype(name)
    return array


def _default_array_dtype():
    name = _dtype.get_default_dtype().name
    return "float32" if name == "bfloat16" else name


def _plain(data):
    """Replace tensors inside sequences by Python numbers."""
    if isinstance(data, Tensor):
        return data.tolist()
    if isinstance(data, (list, tuple)) and any(
            isinstance(item, (Tensor, list, tuple)) for item in data):
        return [_plain(item) for item in data]
    return data


def _holds_arrays(data):
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return hasattr(data, "dtype") and not isinstance(data, Tensor)


def _from_array(array, dtype, device):
    from pullback._interop import copy_array

    return copy_array(array, dtype, device)


def as_tensor(data, dtype=None, device=None):
    """Return ``data`` as a tensor; memory is shared where dtype and device allow it.

    >>> import numpy, pullback
    >>> array = numpy.zeros(2)
    >>> pullback.as_tensor(array)[0] = 1
    >>> float(array[0])
    1.0
    """
    import numpy

    if isinstance(data, Tensor):
        return data.to(data.device if device is None else device,
                       data.dtype if dtype is None else dtype)
    if isinstance(data, numpy.ndarray) and data.flags.writeable and all(
            stride >= 0 for stride in data.strides):
        made = from_numpy(data)
        return made.to(made.device if device is None else device,
                       made.dtype if dtype is None else dtype)
    return tensor(data, dtype=dtype, device=device)


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False):
    """Return an object as a tensor, sharing memory where possible; ``copy=True`` forces a copy.

    Raises: ValueError when ``copy=False`` and a copy is needed.
    """
    made = as_tensor(obj, dtype, device) if copy is not True else (
        tensor(obj, dtype=dtype, device=device) if not isinstance(obj, Tensor)
        else as_tensor(obj, dtype, device).clone())
    if copy is False and made is not obj and not _shares(made, obj):
        raise ValueError("asarray(): cannot avoid a copy of the object")
    return require_grad_of_new(made) if requires_grad else made


def _shares(made, obj):
    interface = getattr(obj, "__array_interface__", None)
    return interface is not None and interface["data"][0] == made.data_ptr()


def scalar_tensor(s, *, dtype=None, device=None, requires_grad=False):
    """Return a 0-d tensor of a number, in the default dtype unless another is given."""
    made = create.number_tensor(s, _dtype.get_default_dtype() if dtype is None else dtype, device)
    return require_grad_of_new(made) if requires_grad else made


def from_numpy(ndarray):
    """Return a tensor over the memory of a NumPy array.

    A read-only array gives a tensor that refuses to be written.
    Raises: TypeError for anything else, and for dtypes that tensors do not have; ValueError for
    negative strides.

    >>> import numpy, pullback
    >>> pullback.from_numpy(numpy.arange(3))
    tensor([0, 1, 2])
    """
    from pullback._interop import share_array

    return share_array(ndarray)


def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """Return a 1-d tensor over an object with the buffer protocol.

    Raises: ValueError when offset or count leave the buffer.
    """
    from pullback._interop import share_buffer

    made = share_buffer(buffer, dtype, count, offset)
    return require_grad_of_new(made) if requires_grad else made
