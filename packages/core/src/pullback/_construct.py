"""Tensors from Python data, NumPy arrays and other libraries' memory."""

from __future__ import annotations

import sys
import warnings

from pullback._c.base import dtype as _dtype
from pullback._c.base.errors import require_bool
from pullback._c.graph.tensor import Tensor
from pullback._c.interop import pinned_tensors, sequences
from pullback._c.python.tensor_methods import require_grad_of_new
from pullback._interop import cuda_arrays

__all__ = ["as_tensor", "asarray", "from_numpy", "frombuffer", "scalar_tensor", "tensor"]

_PLAIN_TYPES = (list, tuple, float, int, bool, complex)


def tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """Return a new tensor with a copy of ``data``: a number, nested sequences or an array.

    Dtype: Python floats give the default dtype, ints int64, bools bool; arrays keep theirs.
    ``pin_memory``: in pinned host memory.
    Raises: ValueError for ragged sequences; TypeError and RuntimeError for data other than
    numbers, and for numbers that the dtype cannot represent.

    >>> import pullback
    >>> pullback.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    """
    if type(data) in _PLAIN_TYPES or (isinstance(data, (int, float)) and not _is_array(data)):
        made = sequences.tensor_from_sequence(data, dtype, device)
    elif isinstance(data, Tensor):
        warnings.warn(
            "To copy construct from a tensor, it is recommended to use "
            "sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than "
            "pullback.tensor(sourceTensor).",
            UserWarning,
            stacklevel=2,
        )
        made = _copied(data.detach(), dtype, device)
    else:
        made = _from_object(data, dtype, device)
    return _finished(made, "tensor", pin_memory, requires_grad)


def _finished(made, name, pin_memory, requires_grad):
    if require_bool(name, "pin_memory", pin_memory):
        made = pinned_tensors.pinned_new(made)
    needed = require_bool(name, "requires_grad", requires_grad)
    return require_grad_of_new(made) if needed else made


def _from_object(data, dtype, device):
    """Return a new tensor of an array, or of any other object with elements."""
    if hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        import numpy

        from pullback._interop.numpy_arrays import copy_array

        return copy_array(numpy.asarray(data), dtype, device)
    if hasattr(data, "__cuda_array_interface__"):
        return _copied(cuda_arrays.adopt(data), dtype, device)
    if hasattr(data, "__dlpack__"):
        from pullback.utils.dlpack import from_dlpack

        return _copied(from_dlpack(data), dtype, device)
    return sequences.tensor_from_sequence(data, dtype, device)


def _copied(source, dtype, device):
    return _placed(source.clone(), dtype, device)


def _placed(made, dtype, device):
    if dtype is None and device is None:
        return made
    return made.to(
        made.device if device is None else device, made.dtype if dtype is None else dtype
    )


def as_tensor(data, dtype=None, device=None):
    """Return ``data`` as a tensor; memory is shared where dtype, device and layout allow it.

    >>> import numpy, pullback
    >>> array = numpy.zeros(2)
    >>> pullback.as_tensor(array)[0] = 1
    >>> float(array[0])
    1.0
    """
    if isinstance(data, Tensor):
        return _placed(data, dtype, device)
    if type(data) not in _PLAIN_TYPES:
        shared = _shared_array(data)
        if shared is not None:
            return _placed(shared, dtype, device)
    return tensor(data, dtype=dtype, device=device)


def _shared_array(data):
    """Return a tensor over the memory of an array of NumPy or another library, or None."""
    if _is_array(data):
        try:
            return from_numpy(data)
        except (TypeError, ValueError):  # a layout or dtype that needs a copy
            return None
    if hasattr(data, "__cuda_array_interface__"):
        return cuda_arrays.adopt(data)
    if hasattr(data, "__dlpack__"):
        from pullback.utils.dlpack import from_dlpack

        return from_dlpack(data)
    return None


def _is_array(data):
    """Return True for NumPy's arrays, and for its numbers, whose buffer is no sequence."""
    numpy = sys.modules.get("numpy")  # there are no arrays before NumPy is imported
    return numpy is not None and isinstance(data, (numpy.ndarray, numpy.generic))


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False):
    """Return an object as a tensor, sharing memory where possible; ``copy=True`` forces a copy.

    Objects with the buffer protocol are read as elements of ``dtype``, or of the default dtype.
    Raises: ValueError when ``copy=False`` and a copy is needed.
    """
    if copy is not None:
        require_bool("asarray", "copy", copy)
    require_bool("asarray", "requires_grad", requires_grad)
    shared = _shared(obj, dtype)
    if shared is None:
        if copy is False:
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        made = tensor(obj, dtype=dtype, device=device)
    else:
        made = _placed(shared, dtype, device)
        if copy is False and made is not shared:
            raise ValueError(
                f"can't alias a {shared.dtype} tensor on {shared.device} into dtype "
                f"{made.dtype} on {made.device}."
            )
        if copy and made is shared:
            made = made.clone()
    return require_grad_of_new(made) if requires_grad else made


def _shared(obj, dtype):
    """Return a tensor over an object's memory, or None where it has none that can be shared."""
    if isinstance(obj, Tensor):
        return obj
    if type(obj) in _PLAIN_TYPES or isinstance(obj, str):
        return None
    shared = _shared_array(obj)
    if shared is not None or _is_array(obj):
        return shared
    try:
        memoryview(obj)
    except TypeError:
        return None
    return frombuffer(obj, dtype=_dtype.get_default_dtype() if dtype is None else dtype)


def scalar_tensor(s, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """Return a 0-d tensor of a number, in the default dtype unless another is given."""
    if hasattr(s, "item"):  # a tensor or a NumPy number
        s = s.item()
    if not isinstance(s, (bool, int, float, complex)):
        raise TypeError(
            f"scalar_tensor(): argument 's' (position 1) must be Number, not {type(s).__name__}"
        )
    made = sequences.tensor_from_sequence(
        s, _dtype.get_default_dtype() if dtype is None else dtype, device
    )
    return _finished(made, "scalar_tensor", pin_memory, requires_grad)


def from_numpy(ndarray):
    """Return a tensor over the memory of a NumPy array.

    A read-only array gives a read-only tensor.
    Raises: TypeError for anything else, and for dtypes that tensors do not have; ValueError for
    negative strides.

    >>> import numpy, pullback
    >>> pullback.from_numpy(numpy.arange(3))
    tensor([0, 1, 2])
    """
    from pullback._interop.numpy_arrays import share_array

    return share_array(ndarray)


def frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False):
    """Return a 1-d tensor over an object with the buffer protocol.

    Raises: ValueError when offset or count exceed the buffer.
    """
    from pullback._interop.numpy_arrays import share_buffer

    made = share_buffer(buffer, dtype, count, offset)
    return require_grad_of_new(made) if requires_grad else made
