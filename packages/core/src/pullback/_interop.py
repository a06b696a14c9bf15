"""NumPy arrays, buffers and pickles. Nothing here writes through read-only memory."""

from __future__ import annotations

from pullback._c import create, dtype as _dtype, interop
from pullback._c.tensor import Tensor

_BY_NAME = {d.name: d for d in _dtype.ALL}


def dtype_of_array(array):
    """Return the dtype of a NumPy array's elements.

    Raises: TypeError for NumPy dtypes that tensors do not have.
    """
    found = _BY_NAME.get(array.dtype.name)
    if found is None:
        raise TypeError(f"can't convert np.ndarray of type {array.dtype}. The only supported types "
                        f"are: {', '.join(_BY_NAME)}.")
    return found


def _host_device():
    """Return the default device if it is the host's, else the reference backend."""
    from pullback._c.device import get_default_device

    default = get_default_device()
    return default if default.type in ("cpu", "ref") else "ref"


def _wrap(array, readonly):
    """Return a tensor over an array's memory, which must be native and aligned."""
    size = array.dtype.itemsize
    if any(stride < 0 for stride in array.strides):
        raise ValueError("At least one stride in the given numpy array is negative, and tensors "
                         "with negative strides are not currently supported. (You can probably "
                         "work around this by making a copy of your array with array.copy().)")
    if any(stride % size for stride in array.strides) or not array.flags.aligned:
        raise ValueError("given numpy array strides not a multiple of the element byte size. Copy "
                         "the numpy array to reallocate the memory.")
    if not array.dtype.isnative:
        raise ValueError("given numpy array has byte order different from the native byte order. "
                         "Conversion between byte orders is currently not supported.")
    return interop.wrap_memory(array.__array_interface__["data"][0], array.shape,
                               [stride // size for stride in array.strides],
                               dtype_of_array(array), _host_device(), array, readonly)


def share_array(array):
    """Return a tensor over the memory of a NumPy array."""
    import numpy

    if not isinstance(array, numpy.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    return _wrap(array, not array.flags.writeable)


def copy_array(array, dtype, device):
    """Return a new tensor with a copy of a NumPy array."""
    import numpy

    name = array.dtype.name
    if name not in _BY_NAME:
        wider = {"uint16": "int32", "uint32": "int64", "longdouble": "float64",
                 "float128": "float64", "clongdouble": "complex128"}.get(name)
        if wider is None:
            dtype_of_array(array)
        array = array.astype(wider)
    array = numpy.ascontiguousarray(array).reshape(array.shape)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    source = _wrap(array, True)
    out = create.empty_tensor(array.shape, source.dtype if dtype is None else dtype, device)
    return create.copy_raw(out, source)


def share_buffer(buffer, dtype, count, offset):
    """Return a 1-d tensor over an object with the buffer protocol."""
    if not isinstance(dtype, _dtype.dtype):
        raise TypeError(f"frombuffer(): argument 'dtype' must be pullback.dtype, not "
                        f"{type(dtype).__name__}")
    try:
        view = memoryview(buffer).cast("B")
    except TypeError as error:
        raise ValueError(f"object does not implement Python buffer protocol: {error}") from None
    length, size = view.nbytes, dtype.itemsize
    if length == 0 or count == 0:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer "
                         f"length ({length} bytes) minus 1")
    if count < 0:
        if (length - offset) % size:
            raise ValueError(f"buffer length ({length - offset} bytes) after offset ({offset} "
                             f"bytes) must be a multiple of element size ({size})")
        count = (length - offset) // size
    if offset + count * size > length:
        raise ValueError(f"requested buffer length ({count} * {size} bytes) after offset ({offset} "
                         f"bytes) must not be greater than actual buffer length ({length} bytes)")
    import numpy

    array = numpy.frombuffer(view, numpy.uint8, count * size, offset)
    return interop.wrap_memory(array.__array_interface__["data"][0], (count,), (1,), dtype,
                               _host_device(), array, view.readonly)


# ---- to NumPy ----------------------------------------------------------------------------------------

class _Lent:
    """Keeps a tensor alive under the array that shows its memory."""

    def __init__(self, tensor, interface):
        self.tensor = tensor
        self.__array_interface__ = interface


def as_array(tensor):
    """Return a NumPy array over a host tensor's memory."""
    import numpy

    if not interop.is_host(tensor):
        raise TypeError(f"can't convert {tensor.device} device type tensor to numpy. Use "
                        f"Tensor.cpu() to copy the tensor to host memory first.")
    name = tensor.dtype.name
    if name == "bfloat16":
        import ml_dtypes
        kind, plain = numpy.dtype(ml_dtypes.bfloat16), "<u2"
    else:
        kind = numpy.dtype(name)
        plain = kind.str
    if not tensor.numel():
        return numpy.empty(tuple(tensor.shape), kind)
    lent = _Lent(tensor, {
        "version": 3, "shape": tuple(tensor.shape), "typestr": plain,
        "data": (tensor.data_ptr(), interop.is_readonly(tensor)),
        "strides": tuple(stride * kind.itemsize for stride in tensor.stride())})
    array = numpy.asarray(lent)
    return array if plain == kind.str else array.view(kind)


def numpy_method(self, *, force=False):
    """Return a NumPy array over the same memory; ``force=True`` copies where that is impossible.

    Raises: RuntimeError when the tensor requires grad; TypeError when it is not on the host.
    """
    if force:
        detached = self.detach()
        return as_array(detached if interop.is_host(self) else detached.to(_host_device()))
    if self.requires_grad:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use "
                           "tensor.detach().numpy() instead.")
    return as_array(self)


def array_protocol(self, dtype=None, copy=None):
    """``__array__``: what numpy.asarray calls."""
    array = numpy_method(self)
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype)
    return array.copy() if copy else array


def tolist(self):
    """Return nested lists of Python numbers; a number for 0-d tensors."""
    if self.dtype.name == "bfloat16":
        self = self.detach().to(_BY_NAME["float32"])
    detached = self.detach()
    if not interop.is_host(detached):
        detached = detached.to(_host_device())
    return as_array(detached).tolist()


# ---- copies and pickles ---------------------------------------------------------------------------------

def deepcopy(self, memo):
    """Copy data, requires_grad and .grad of a leaf.

    Raises: RuntimeError for non-leaves.
    """
    import copy

    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the "
                           "deepcopy protocol at the moment.  If you were attempting to deepcopy a "
                           "module, this may be because of a torch.nn.utils.weight_norm usage, see "
                           "https://github.com/pytorch/pytorch/pull/103001")
    made = self.detach().clone()
    if type(self) is not Tensor:
        from pullback._c.tensor import adopt

        source, made = made, type(self).__new__(type(self))
        adopt(made, source)
    memo[id(self)] = made
    if self.requires_grad:
        made.requires_grad_()
    grad = self.grad
    if grad is not None:
        made.grad = copy.deepcopy(grad.detach() if not grad.is_leaf else grad, memo)
    for name, value in vars(self).items():
        setattr(made, name, copy.deepcopy(value, memo))
    return made


def rebuild(kind, data, dtype, shape, requires_grad, attributes):
    """Make a tensor of pickled parts; what a pickle calls.

    Raises: ValueError when the parts do not fit together.
    """
    if not (isinstance(kind, type) and issubclass(kind, Tensor)):
        raise ValueError(f"pickled tensor: {kind!r} is no tensor class")
    if not isinstance(dtype, _dtype.dtype) or not isinstance(data, (bytes, bytearray)):
        raise ValueError("pickled tensor: wrong type of dtype or data")
    count = 1
    for size in shape:
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ValueError(f"pickled tensor: bad shape {shape!r}")
        count *= size
    if count * dtype.itemsize != len(data):
        raise ValueError(f"pickled tensor: {len(data)} bytes for {count} elements of {dtype}")
    made = create.empty_tensor(tuple(shape), dtype, _host_device())
    if data:
        create.copy_raw(made, share_buffer(bytes(data), dtype, -1, 0).reshape(tuple(shape)))
    if kind is not Tensor:
        from pullback._c.tensor import adopt

        source, made = made, kind.__new__(kind)
        adopt(made, source)
    if requires_grad:
        made.requires_grad_()
    for name, value in (attributes or {}).items():
        setattr(made, name, value)
    return made


def reduce(self, protocol):
    """Pickle data, dtype, shape, requires_grad and attributes; not history, hooks or .grad."""
    from pullback._c.surface import leaf_hooks

    if leaf_hooks(self):
        from pullback.utils.hooks import warn_if_has_hooks

        warn_if_has_hooks(self)
    plain = self.detach()
    if not interop.is_host(plain):
        plain = plain.to(_host_device())
    plain = plain.contiguous()
    data = as_array(plain).tobytes() if plain.numel() else b""
    return rebuild, (type(self), data, self.dtype, tuple(self.shape), bool(self.requires_grad),
                     dict(vars(self)))
