"""NumPy arrays, buffers, pickles and copies. Nothing here writes to read-only memory."""

from __future__ import annotations

import copy as _copy
import math
from typing import Any

from pullback._c.base import dtype as _dtype
from pullback._c.base.errors import require_bool
from pullback._c.base.state import is_grad_enabled
from pullback._c.graph.overrides import as_instance
from pullback._c.graph.tensor import Tensor, bind_attribute
from pullback._c.interop import arrays, sequences
from pullback._c.ops import create
from pullback._interop import cuda_arrays
from pullback.utils import dlpack

# ---- from NumPy and buffers ----------------------------------------------------------------------

_dtypes: dict[object, _dtype.dtype] = {}  # cache: native NumPy dtype -> ours


def share_array(array):
    """Return a tensor over the memory of a NumPy array."""
    import numpy

    if not isinstance(array, numpy.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    dtype = _dtypes.get(array.dtype)
    if dtype is None:
        dtype = arrays.dtype_of_array(array)
        if not array.dtype.isnative:
            raise ValueError(
                "given numpy array has byte order different from the native byte "
                "order. Conversion between byte orders is currently not supported."
            )
        _dtypes[array.dtype] = dtype
    if dtype.name == "bfloat16":  # the buffer protocol has no such type
        return arrays.share_array(array.view("int16"), dtype)
    return arrays.share_array(array, dtype)


def copy_array(array, dtype, device):
    """Return a new tensor with a copy of a NumPy array, of any layout and byte order."""
    try:
        source = share_array(array)
    except (TypeError, ValueError):
        source = share_array(_regular(array))
    out = create.empty_tensor(source.shape, source.dtype if dtype is None else dtype, device)
    return create.copy_raw(out, source)


def _regular(array):
    """Copy an array to native, aligned, row-major memory; missing dtypes become others."""
    wider = {"longdouble": "float64", "clongdouble": "complex128"}.get(array.dtype.name)
    return array.astype(wider or array.dtype.newbyteorder("="), order="C")


def share_buffer(buffer, dtype, count, offset):
    """Return a 1-d tensor over an object with the buffer protocol."""
    if not isinstance(dtype, _dtype.dtype):
        raise TypeError(
            f"frombuffer(): argument 'dtype' must be pullback.dtype, not {type(dtype).__name__}"
        )
    for name, value in (("count", count), ("offset", offset)):
        if not isinstance(value, int):
            raise TypeError(
                f"frombuffer(): argument '{name}' must be int, not {type(value).__name__}"
            )
    memory = _bytes_of(buffer)
    length, size = memory.nbytes, dtype.itemsize
    if length == 0 or count == 0:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer "
            f"length ({length} bytes) minus 1"
        )
    if count < 0:
        if (length - offset) % size:
            raise ValueError(
                f"buffer length ({length - offset} bytes) after offset ({offset} "
                f"bytes) must be a multiple of element size ({size})"
            )
        count = (length - offset) // size
    if offset + count * size > length:
        raise ValueError(
            f"requested buffer length ({count} * {size} bytes) after offset ({offset} "
            f"bytes) must not be greater than actual buffer length ({length} bytes)"
        )
    return arrays.share_bytes(memory[offset : offset + count * size], dtype, count)


def _bytes_of(buffer):
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ValueError("object does not implement Python buffer protocol.") from None
    if not view.c_contiguous:
        raise ValueError("could not retrieve buffer from object: it is not contiguous")
    if 0 in (view.shape or ()):
        return memoryview(b"")
    return view.cast("B")


# ---- to NumPy ------------------------------------------------------------------------------------


def as_array(tensor):
    """Return a NumPy array over the memory of a host tensor that does not require grad."""
    import numpy

    if not arrays.is_host(tensor):
        if tensor.device.type in ("cpu", "ref"):
            raise RuntimeError(
                "Cannot access data pointer of Tensor that doesn't have storage: it stands for a "
                "batch, and vmap runs its function once for all elements"
            )
        raise TypeError(
            f"can't convert {tensor.device} device type tensor to numpy. Use "
            f"Tensor.cpu() to copy the tensor to host memory first."
        )
    if tensor.dtype.name == "complex32":
        raise TypeError("Got unsupported ScalarType ComplexHalf")
    if tensor.dtype.name == "bfloat16":
        from ml_dtypes import bfloat16

        return numpy.asarray(arrays.halves_as_integers(tensor)).view(bfloat16)
    return numpy.asarray(memoryview(tensor))


def numpy_method(self, *, force=False):
    """Return a NumPy array over the same memory; ``force=True`` copies where that is impossible.

    Raises: RuntimeError when the tensor requires grad; TypeError when it is not on the host.
    """
    if require_bool("numpy", "force", force):
        detached = self.detach().resolve_conj().resolve_neg()
        return as_array(detached if arrays.is_host(self) else detached.cpu())
    if self.requires_grad and is_grad_enabled():
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    for is_set, bit, method in (
        (self.is_conj(), "conjugate", "resolve_conj"),
        (self.is_neg(), "negative", "resolve_neg"),
    ):
        if is_set:
            raise RuntimeError(
                f"Can't call numpy() on Tensor that has {bit} bit set. Use "
                f"tensor.{method}().numpy() instead."
            )
    return as_array(self.detach() if self.requires_grad else self)


def array_protocol(self, dtype=None, copy=None):
    """``__array__``: what numpy.asarray calls.

    Raises: ValueError when ``copy=False`` and another dtype is wanted; as ``numpy()`` otherwise.
    """
    array = numpy_method(self)
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise ValueError("Unable to avoid copy while creating an array as requested.")
        return array.astype(dtype)
    return array.copy() if copy else array


def array_wrap(self, array, context=None, return_scalar=False):
    """``__array_wrap__``: what NumPy's functions return when a tensor is among the arguments."""
    return share_array(array)


def array_interface(self):
    """``__array_interface__``: NumPy's description of the memory, for other libraries.

    Raises: AttributeError when it cannot describe the memory, as NumPy expects.
    """
    if (
        self.requires_grad
        or not arrays.is_host(self)
        or self.dtype.name in ("bfloat16", "complex32")
        or self.is_conj()
        or self.is_neg()
    ):
        raise AttributeError(
            f"'Tensor' object has no attribute '__array_interface__': a "
            f"{self.dtype} tensor on {self.device} (requires_grad="
            f"{self.requires_grad}) cannot be shared with NumPy"
        )
    return as_array(self).__array_interface__


def tolist(self):
    """Return nested lists of Python numbers; a number for 0-d tensors.

    >>> import pullback
    >>> pullback.tensor([[1, 2], [3, 4]]).tolist()
    [[1, 2], [3, 4]]
    """
    return sequences.nested_list(self)


# ---- the array API standard ----------------------------------------------------------------------

VERSIONS = (None, "2021.12", "2022.12", "2023.12", "2024.12")
_namespace: Any = None  # imported at the first call


def array_namespace(self, *, api_version=None):
    """Return the array API standard's functions on tensors: the module ``pullback.array_api``.

    Raises: ValueError for a version of the standard that it does not have.

    >>> import pullback
    >>> xp = pullback.ones(2).__array_namespace__()
    >>> xp.__array_api_version__
    '2024.12'
    """
    global _namespace
    if api_version not in VERSIONS:
        raise ValueError(
            f"pullback has the array API of the versions 2021.12 to 2024.12, not {api_version!r}"
        )
    if _namespace is None:
        import pullback

        _namespace = pullback.array_api
    return _namespace


def to_device(self, device, /, *, stream=None):
    """Return the tensor in the memory of a device; the tensor itself where it is there already.

    ``stream``: DLPack's number of the stream that waits for the copy.

    >>> import pullback
    >>> pullback.ones(1).to_device("meta").device
    device(type='meta')
    """
    moved = self.to(device)
    if stream is not None:
        dlpack.wait_for(moved, stream)
    return moved


# ---- copies --------------------------------------------------------------------------------------


def deepcopy(self, memo):
    """Copy data, requires_grad and .grad of a leaf; tensors that share memory share it again.

    Raises: RuntimeError for non-leaves.
    """
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the "
            "deepcopy protocol at the moment. Copy a result with "
            "tensor.detach().clone() instead."
        )
    address, memory = arrays.whole_memory(self)
    copies = memo.setdefault("pullback memory", {})
    if address not in copies:  # the original is kept: its address is not used again
        copies[address] = memory, memory.clone()
    made = _as_kind(type(self), arrays.view_of_whole_memory(copies[address][1], self))
    memo[id(self)] = made
    if self.requires_grad:
        made.requires_grad_()
    if self.is_leaf and self.grad is not None:
        made.grad = _copy.deepcopy(self.grad if self.grad.is_leaf else self.grad.detach(), memo)
    for name, value in vars(self).items():
        setattr(made, name, _copy.deepcopy(value, memo))
    return made


def shallow_copy(self):
    """``copy.copy``: a leaf over the same memory, with the same requires_grad and attributes."""
    made = _as_kind(type(self), create.alias_raw(self))
    if self.requires_grad:
        made.requires_grad_()
    vars(made).update(vars(self))
    return made


def _as_kind(kind, tensor):
    """Return a leaf as an instance of a subclass."""
    return as_instance(kind, tensor)  # without what the subclass makes of arguments


# ---- pickles -------------------------------------------------------------------------------------


def reduce(self, protocol):
    """Pickle data, sizes and strides, requires_grad and attributes; not history, hooks or .grad."""
    from pullback.utils.hooks import warn_if_has_hooks

    warn_if_has_hooks(self)
    device = None if arrays.is_host(self) else str(self.device)
    plain = self.detach().resolve_conj().resolve_neg()
    if not arrays.is_dense(plain):
        plain = plain.clone()
    data = b""
    if self.device.type != "meta":
        data = arrays.read_bytes(plain if device is None else plain.cpu())
    return rebuild, (
        type(self),
        data,
        self.dtype,
        tuple(plain.shape),
        plain.stride(),
        device,
        bool(self.requires_grad),
        dict(vars(self)),
    )


def rebuild(kind, data, dtype, shape, stride, device, requires_grad, attributes):
    """Make a tensor of pickled parts; pickles call this.

    Raises: ValueError when the parts do not fit together.
    """
    _check_parts(kind, data, dtype, shape, stride, device, attributes)
    where = arrays.host_device() if device is None else device
    if device == "meta":
        made = create.empty_strided_tensor(shape, stride, dtype, where)
    else:
        made = create.empty_strided_tensor(shape, stride, dtype, arrays.host_device())
        arrays.write_bytes(made, data)
        made = made.to(where)
    made = _as_kind(kind, made)
    if requires_grad:
        made.requires_grad_()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def _check_parts(kind, data, dtype, shape, stride, device, attributes):
    """Raise unless pickled parts have the right types and sizes; a pickle may contain anything."""
    if not (isinstance(kind, type) and issubclass(kind, Tensor)):
        raise ValueError(f"pickled tensor: {kind!r} is no tensor class")
    if not (
        isinstance(dtype, _dtype.dtype)
        and isinstance(data, bytes)
        and isinstance(device, (str, type(None)))
        and isinstance(attributes, dict)
    ):
        raise ValueError("pickled tensor: a part has a wrong type")
    for dims in (shape, stride):
        if not isinstance(dims, tuple) or not all(type(d) is int and d >= 0 for d in dims):
            raise ValueError(f"pickled tensor: {dims!r} is no tuple of sizes or strides")
    count = math.prod(shape)
    reach = sum((size - 1) * step for size, step in zip(shape, stride)) + 1 if count else 0
    if len(shape) != len(stride) or reach != count:
        raise ValueError(f"pickled tensor: strides {stride} do not fit shape {shape}")
    if device != "meta" and count * dtype.itemsize != len(data):
        raise ValueError(f"pickled tensor: {len(data)} bytes for {count} elements of {dtype}")


def install():
    """Bind the methods of this module to the class."""
    arrays.install()
    cuda_arrays.install()
    for name, value in {
        "numpy": numpy_method,
        "tolist": tolist,
        "__copy__": shallow_copy,
        "__array_interface__": property(array_interface),
        "__array_priority__": 1000,
        "__array_wrap__": array_wrap,
        "__array_namespace__": array_namespace,
        "to_device": to_device,
        "__dlpack__": dlpack.lend,
        "__dlpack_device__": dlpack.lent_device,
    }.items():
        bind_attribute(name, value)
