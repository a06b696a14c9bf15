"""Tensor methods and functions other than ops: conversions, comparisons of whole tensors."""

from __future__ import annotations

import builtins
from typing import Any

from pullback._c.base import dtype as _dtype
from pullback._c.base.errors import require_bool
from pullback._c.device.device import get_default_device
from pullback._c.engine import stream_order
from pullback._c.graph.overrides import DisableTorchFunctionSubclass, as_instance, as_leaf
from pullback._c.graph.tensor import Size, Tensor, adopt, bind_attribute, bind_late
from pullback._c.interop import pinned_tensors
from pullback._c.ops import create
from pullback._c.ops import indexing as _index
from pullback._legacy_types import legacy_tensor, tensor_type
from pullback.ops import ops
from pullback.ops.indexing import index as _indexing

_BY_NAME = {d.name: d for d in _dtype.ALL}
_SHORT = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "bool": "bool",
    "byte": "uint8",
    "char": "int8",
    "bfloat16": "bfloat16",
    "chalf": "complex32",
    "cfloat": "complex64",
    "cdouble": "complex128",
}


# ---- functions -----------------------------------------------------------------------------------


def is_tensor(obj):
    """Return True for tensors.

    >>> import pullback
    >>> pullback.is_tensor(pullback.ones(1)), pullback.is_tensor(1)
    (True, False)
    """
    return isinstance(obj, Tensor)


def is_floating_point(input):
    """Return True if the tensor has a floating-point dtype."""
    return input.is_floating_point()


def is_complex(input):
    """Return True if the tensor has a complex dtype."""
    return input.is_complex()


def numel(input):
    """Return the number of elements of a tensor."""
    if not isinstance(input, Tensor):
        raise TypeError(
            f"numel(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}"
        )
    return input.numel()


def can_cast(from_, to):
    """Return True if promotion may turn the first dtype into the second.

    >>> import pullback
    >>> pullback.can_cast(pullback.float64, pullback.int64)
    False
    """
    return _rank(from_) <= _rank(to)


def _rank(dtype):
    return "biufc".index({"u": "i"}.get(dtype.kind, dtype.kind))


def result_type(tensor1, tensor2):
    """Return the dtype of an arithmetic result of two tensors or numbers.

    >>> import pullback
    >>> pullback.result_type(pullback.ones(1, dtype=pullback.int64), 1.0)
    pullback.float32
    """
    from pullback._c.ops.elementwise import result_dtype

    return result_dtype(tensor1, tensor2)


def _check_pair(name, input, other, **numbers):
    """Raise TypeError unless two operands are tensors, and the other arguments numbers."""
    given = {"input": input, "other": other, **numbers}
    for position, (argument, value) in enumerate(given.items(), 1):
        kinds = (Tensor,) if position < 3 else (builtins.float, builtins.int, Tensor)
        if not isinstance(value, kinds):
            raise TypeError(
                f"{name}(): argument '{argument}' (position {position}) must be "
                f"{kinds[0].__name__}, not {type(value).__name__}"
            )


def equal(input, other):
    """Return True if two tensors have one shape and equal elements.

    Raises: TypeError when an argument is no tensor.
    """
    _check_pair("equal", input, other)
    return input.shape == other.shape and builtins.bool(ops.all(input.detach() == other.detach()))


def broadcast_shapes(*shapes):
    """Return the shape that all shapes broadcast to; a number is a shape of one dim.

    Raises: RuntimeError where two sizes differ and none is 1.

    >>> import pullback
    >>> pullback.broadcast_shapes((2, 1), (3,), 1)
    pullback.Size([2, 3])
    """
    found: list = []
    for position, shape in enumerate(shapes):
        sizes = (shape,) if hasattr(shape, "__index__") else shape
        if not (isinstance(sizes, (tuple, list)) and all(hasattr(n, "__index__") for n in sizes)):
            raise RuntimeError(
                f"Input shapes should be of type ints, a tuple of ints, or a list "
                f"of ints, got {shape}"
            )
        if any(size < 0 for size in sizes):
            raise ValueError("Attempting to broadcast a dimension with negative length!")
        found = [1] * (len(sizes) - len(found)) + found
        for dim in range(-1, -1 - len(sizes), -1):
            if sizes[dim] in (1, found[dim]):
                continue
            if found[dim] != 1:
                raise RuntimeError(
                    f"Attempting to broadcast a dimension of length {sizes[dim]} "
                    f"at {dim}! Mismatching argument at index {position} had "
                    f"{tuple(sizes)}; but expected shape should be broadcastable to "
                    f"{found}"
                )
            found[dim] = sizes[dim]
    return Size(found)


def isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Return where ``|input - other| <= atol + rtol * |other|``, elementwise.

    >>> import pullback
    >>> pullback.isclose(pullback.tensor([1.]), pullback.tensor([1.0000001]))
    tensor([True])
    """
    return _isclose("isclose", input, other, rtol, atol, equal_nan)


def _isclose(name, input, other, rtol, atol, equal_nan):
    _check_pair(name, input, other, rtol=rtol, atol=atol)
    if input.dtype != other.dtype:
        raise RuntimeError(f"{input.dtype} did not match {other.dtype}")
    if rtol < 0 or atol < 0:
        raise RuntimeError(
            f"rtol and atol must be greater than or equal to zero, but got rtol={rtol}, atol={atol}"
        )
    require_bool(name, "equal_nan", equal_nan)
    input, other = input.detach(), other.detach()
    close = input == other
    if equal_nan:
        close = close | ((input != input) & (other != other))
    if input.dtype.kind in "bui" and rtol == 0 and atol == 0:
        return close
    if input.dtype.kind in "bui":
        input, other = input.to(_BY_NAME["float64"]), other.to(_BY_NAME["float64"])
    allowed = atol + ops.abs(rtol * other)
    error = ops.abs(input - other)
    return close | (ops.isfinite(error) & (error <= allowed))


def allclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Return True if all elements are close; see ``isclose``."""
    close = _isclose("allclose", input, other, rtol, atol, equal_nan)
    return builtins.bool(ops.all(close))


# ---- methods -------------------------------------------------------------------------------------


def cpu(self):
    """Return the tensor in host memory."""
    from pullback._c.interop.arrays import host_device

    return self.to(host_device())


def cuda(self, device=None, non_blocking=False):
    """Return the tensor in the memory of a CUDA device, the current one by default.

    ``non_blocking``: do not wait for a copy from pinned memory.
    Raises: RuntimeError for devices of another type, or where there is no CUDA device.
    """
    from pullback._c.device.device import device as device_of

    where = device_of("cuda" if device is None else device)
    if where.type != "cuda":
        raise RuntimeError(f"Invalid device, must be cuda device: cuda() got {where}")
    require_bool("cuda", "non_blocking", non_blocking)
    return self.to(where, non_blocking=non_blocking)


def is_pinned(self, device=None):
    """Return True if the tensor is in pinned memory, of the given device type if there is one.

    >>> import pullback
    >>> pullback.ones(2).is_pinned()
    False
    """
    return pinned_tensors.is_pinned(self, device)


def record_stream(self, stream):
    """Record that another stream than the one its memory was allocated for uses the tensor.

    After the memory is freed, it is not used again before the work queued on the stream until then
    is done. ``stream`` is an object with its address as ``cuda_stream`` or ``handle``, or that
    number.

    Raises: NotImplementedError for tensors of devices without streams.

    >>> import pullback
    >>> pullback.ones(2, device="meta").record_stream(0)
    Traceback (most recent call last):
    NotImplementedError: record_stream(): the device meta has no streams
    """
    stream_order.record_stream(self, stream)


def type_as(self, other):
    """Return the tensor in the dtype of another one."""
    return self.to(other.dtype)


def _transposed(self):
    return self.permute(tuple(range(self.ndim - 1, -1, -1)))


def _matrix_transposed(name):
    """Return the getter of mT, mH or H; a number stays as it is."""

    def transposed(self):
        if self.ndim == 1 or (name == "H" and self.ndim > 2):
            kinds = "matrices (2-D tensors)" if name == "H" else "matrices or batches of matrices"
            more = " For batches of matrices, consider using tensor.mH" if self.ndim > 1 else ""
            raise RuntimeError(
                f"tensor.{name} is only supported on {kinds}. Got {self.ndim}-D tensor.{more}"
            )
        turned = self.transpose(-2, -1) if self.ndim else self
        return turned if name == "mT" else turned.conj()

    return transposed


def _part_of_numbers(name):
    """Return the property of real or imag, a view; setting it writes to that view."""
    part = getattr(ops, name)

    def write(self, value):
        if isinstance(value, Tensor):
            part(self).copy_(value)
        else:
            part(self).fill_(value)

    return property(part, write, doc=f"The {name} parts, a view; writing to it sets them.")


def _is_on(kind):
    """Return the getter of is_cpu and its like."""
    return lambda self: self.device.type == kind


def _converter(name, target):
    def convert(self, memory_format=None):
        return self.to(_BY_NAME[target], memory_format=memory_format)

    convert.__name__ = name
    convert.__doc__ = f"Return the tensor as {target}."
    return convert


def iterate(self):
    """Iterate over the first dim.

    Raises: TypeError for 0-d tensors.
    """
    if self.ndim == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


def contains(self, element):
    """Return True if a number or tensor occurs among the elements."""
    if not isinstance(element, (Tensor, bool, builtins.int, builtins.float, complex)):
        raise RuntimeError(
            f"Tensor.__contains__ only supports Tensor or scalar, but you passed in "
            f"a {type(element)}."
        )
    return builtins.bool(ops.any(self == element))


def format_value(self, spec):
    """Format a 0-d tensor as its number, others as their text."""
    if self.ndim == 0 and type(self) is Tensor:
        return self.item().__format__(spec)
    return object.__format__(self, spec)


def to_complex(self):
    """Return ``complex(self)`` of a tensor of one element."""
    if self.numel() != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    return complex(self.item())


def new_instance(self, args, kwargs):
    """The constructor ``Tensor(...)``: sizes, or data, in the default dtype."""
    unknown = set(kwargs) - {"device", "requires_grad", "size"}
    if unknown and type(self) is Tensor:
        raise TypeError(f"Tensor() got an unexpected keyword argument '{unknown.pop()}'")
    device, size = kwargs.get("device"), kwargs.get("size")
    dtype = _dtype.get_default_dtype()
    with DisableTorchFunctionSubclass():
        try:
            adopt(self, legacy_tensor(args, size, dtype, get_default_device(), device, True))
        except TypeError:
            if type(self) is Tensor:
                raise
            adopt(self, create.empty_tensor((0,), None, device))  # a subclass has other arguments


def as_subclass(self, cls):
    """Return the same memory and history as an instance of a subclass.

    Raises: TypeError when ``cls`` is no subclass of Tensor.
    """
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"as_subclass(): cls must be a subclass of Tensor, not {cls!r}")
    with DisableTorchFunctionSubclass():
        return as_instance(cls, ops.alias(self))


def make_subclass(cls, data, require_grad=False):
    """Return a leaf of a subclass over the memory of a tensor: ``Tensor._make_subclass``.

    Raises: TypeError when ``cls`` is no subclass of Tensor, or ``data`` no tensor.
    """
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"cls must be a type (got {cls!r})")
    if not isinstance(data, Tensor):
        raise TypeError(
            f"_make_subclass(): argument 'data' (position 2) must be Tensor, not "
            f"{type(data).__name__}"
        )
    with DisableTorchFunctionSubclass():
        return as_leaf(cls, data).requires_grad_(require_grad)


def make_wrapper_subclass(cls, *args, **kwargs):
    """Raise: tensors without memory of their own need ``__torch_dispatch__``, which is not here."""
    raise NotImplementedError(
        "_make_wrapper_subclass() makes tensors whose operations go to __torch_dispatch__, which "
        "pullback does not have. Use Tensor._make_subclass, or a class with __torch_function__."
    )


# ---- storages ------------------------------------------------------------------------------------

_storage_of: Any = None  # imported at the first call, with the class
_storage_class: Any = None


def untyped_storage(self):
    """Return the memory that the tensor shares with its views, as bytes: one object for all.

    >>> import pullback
    >>> x = pullback.ones(3)
    >>> x[1:].untyped_storage().nbytes()
    12
    """
    global _storage_of, _storage_class
    if _storage_class is None:  # it is set last: another thread may ask meanwhile
        from pullback._c.interop.storages import storage_of as _storage_of
        from pullback.storage.untyped import UntypedStorage as _storage_class

    return _storage_of(self, _storage_class)


def storage(self):
    """Return the memory as elements of the tensor's dtype; deprecated, see ``untyped_storage``."""
    from pullback.storage.typed import typed_storage

    return typed_storage(self)


def storage_type(self):
    """Return the class of typed storages of the tensor's dtype.

    >>> import pullback
    >>> pullback.ones(1).storage_type()
    <class 'pullback.storage.FloatStorage'>
    """
    from pullback.storage.typed import legacy_class

    return legacy_class(self.dtype)  # None for dtypes that have no such class


def is_shared(self):
    """Return True if other processes can map the memory; always for CUDA devices."""
    return self.untyped_storage().is_shared()


def share_memory_(self):
    """Move the memory to shared memory, for all tensors that share it; returns the tensor.

    Children of a fork then see writes, and queues of ``pullback.multiprocessing`` send the tensor
    without a copy. Nothing happens on CUDA devices.
    Raises: RuntimeError for memory that is not the host's.

    >>> import pullback
    >>> pullback.ones(2).share_memory_().is_shared()
    True
    """
    self.untyped_storage().share_memory_()
    return self


def set_(self, source=None, storage_offset=0, size=None, stride=None):
    """Give the tensor the memory of a tensor or storage, or none; returns it.

    With a size, it is the part of that memory which ``as_strided`` would show: ``storage_offset``
    and ``stride`` are in elements.

    Raises: RuntimeError for another dtype, and for a part that is not within the memory.

    >>> import pullback
    >>> pullback.empty(0).set_(pullback.ones(4).untyped_storage(), 1, (2,))
    tensor([1., 1.])
    """
    if source is None or isinstance(source, Tensor):
        return ops.set_(self, source, storage_offset, size, stride)
    from pullback.storage.common import is_storage
    from pullback.storage.typed import set_to_storage

    if not is_storage(source):
        raise TypeError(
            f"set_(): argument 'source' (position 1) must be Tensor or Storage, not "
            f"{type(source).__name__}"
        )
    return set_to_storage(self, source, storage_offset, size, stride)


def install():
    """Bind the methods of this module to the class."""
    from pullback import _attributes, _scalars
    from pullback._interop import notebook, numpy_arrays
    from pullback._printing import format_tensor
    from pullback.autograd import _entry, graph

    bind_late(
        repr=format_tensor,
        contains=contains,
        new=new_instance,
        array=numpy_arrays.array_protocol,
        reduce=numpy_arrays.reduce,
        deepcopy=numpy_arrays.deepcopy,
        iterate=iterate,
        format=format_value,
        backward=_entry.tensor_backward,
    )
    _index.bind(_indexing.normalize_key, _indexing.advanced_getitem, _indexing.advanced_setitem)
    for name, method in {
        "item": create.item,
        "cpu": cpu,
        "cuda": cuda,
        "type_as": type_as,
        "type": tensor_type,
        "equal": equal,
        "isclose": isclose,
        "allclose": allclose,
        "__complex__": to_complex,
        "as_subclass": as_subclass,
        "_make_subclass": staticmethod(make_subclass),
        "_make_wrapper_subclass": staticmethod(make_wrapper_subclass),
        "is_pinned": is_pinned,
        "record_stream": record_stream,
        "untyped_storage": untyped_storage,
        "storage": storage,
        "storage_type": storage_type,
        "is_shared": is_shared,
        "share_memory_": share_memory_,
        "set_": set_,
        "_repr_html_": notebook.tensor_html,
    }.items():
        bind_attribute(name, method)
    for name, target in _SHORT.items():
        bind_attribute(name, _converter(name, target))
    bind_attribute("is_same_size", _scalars.is_same_size)
    for name in ("cpu", "cuda", "meta"):
        bind_attribute(f"is_{name}", property(_is_on(name)))
    bind_attribute("T", property(_transposed))
    for name in ("mT", "mH", "H"):
        bind_attribute(name, property(_matrix_transposed(name)))
    for name in ("real", "imag"):
        bind_attribute(name, _part_of_numbers(name))
    _attributes.install()
    numpy_arrays.install()
    graph.install()
