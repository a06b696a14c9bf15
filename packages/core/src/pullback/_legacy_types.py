"""The older names of dtype and device in one: ``FloatTensor`` and its like, ``Tensor.type``."""

from __future__ import annotations

from pullback._c.base.dtype import ALL, dtype, get_default_dtype, set_default_dtype
from pullback._c.base.errors import require_bool
from pullback._c.device.device import device as _device
from pullback._c.device.device import get_default_device, set_default_device
from pullback._c.graph.size import Size, strided
from pullback._c.graph.tensor import Tensor
from pullback._c.interop.arrays import host_device, is_host
from pullback._c.ops import create
from pullback.ops import ops
from pullback.ops.rules.dtypes import type_name

_DTYPES = {
    f"{type_name(found)}Tensor": found
    for found in ALL
    if not found.is_complex and found.name not in ("uint16", "uint32", "uint64")
}
# Modules that have these classes, each with the type of its device; "" is the host.
_MODULES = {"pullback": "", "pullback.cuda": "cuda"}

__all__ = [
    "class_named",
    "legacy_tensor",
    "new",
    "set_default_tensor_type",
    "shown_type",
    "tensor_type",
    "tensortype",
]


# ---- classes -------------------------------------------------------------------------------------


class tensortype(type):
    """The class of ``FloatTensor`` and its like: a dtype and a device, not a class of tensors.

    >>> import pullback
    >>> isinstance(pullback.ones(2), pullback.FloatTensor), pullback.FloatTensor.dtype
    (True, pullback.float32)
    """

    layout = strided
    is_sparse = False
    _device: str

    def __instancecheck__(cls, instance):
        return (
            isinstance(instance, Tensor)
            and instance.dtype == cls.dtype
            and (instance.device.type == cls._device if cls._device else is_host(instance))
        )

    @property
    def dtype(cls):
        """The dtype of the tensors that the class makes and recognises."""
        return _DTYPES[cls.__name__]

    @property
    def is_cuda(cls):
        """True for the classes of ``pullback.cuda``."""
        return cls._device == "cuda"


def _refuse_subclass(cls, **options):
    raise TypeError(f"type '{cls.__mro__[1].__name__}' is not an acceptable base type")


def _make(module, name):
    kind = _DTYPES[name].name
    doc = f"""Make tensors of {kind}, and recognise them with ``isinstance``.

    Takes sizes, a sequence, a storage or a tensor of the same dtype: a legacy form of ``tensor``
    and ``empty``.

    Raises: TypeError for other arguments, and where the device is missing.

    >>> import pullback
    >>> issubclass(pullback.{name}, pullback.Tensor), pullback.{name}.dtype
    (False, pullback.{kind})
    """

    def make(cls, *args, size=None, device=None):
        return legacy_tensor(args, size, cls.dtype, _device_of(cls), device)

    make.__qualname__ = "new"
    return tensortype(
        name,
        (),
        {
            "__module__": module,
            "__doc__": doc,
            "__new__": make,
            "__init_subclass__": classmethod(_refuse_subclass),
            "_device": _MODULES[module],
        },
    )


_made: dict[str, tensortype] = {}


def class_named(name):
    """Return the class of a name such as ``"pullback.cuda.FloatTensor"``, or None."""
    module, _, short = name.rpartition(".")
    if module not in _MODULES or short not in _DTYPES:
        return None
    if name not in _made:
        _made[name] = _make(module, short)
    return _made[name]


def _device_of(kind):
    """Return the device of a class; of plain ones that of host memory."""
    if kind._device:
        import pullback

        if not pullback.get_device_module(kind._device).is_available():
            raise TypeError(
                f"type {shown_class(kind)} not available: no {kind._device} device can be used"
            )
        return _device(kind._device)
    return _device(host_device())


def shown_class(kind):
    """Return the name of a class with its module."""
    return f"{kind.__module__}.{kind.__name__}"


# ---- Tensor.type ---------------------------------------------------------------------------------


def shown_type(tensor):
    """Return the name of a tensor's type, such as ``"pullback.FloatTensor"``."""
    place = "" if is_host(tensor) else f"{tensor.device.type}."
    return f"pullback.{place}{type_name(tensor.dtype)}Tensor"


def tensor_type(self, dtype=None, non_blocking=False):
    """Return the name of the type, or the tensor in another type.

    ``dtype``: a dtype, a class such as ``pullback.DoubleTensor``, or the name of one, which gives
    the device too.

    Raises: ValueError for names of no type; TypeError for other arguments.

    >>> import pullback
    >>> pullback.ones(2).type(), pullback.ones(2).type("pullback.LongTensor")
    ('pullback.FloatTensor', tensor([1, 1]))
    """
    if dtype is None:
        return shown_type(self)
    require_bool("type", "non_blocking", non_blocking)
    if isinstance(dtype, _dtype_class):
        return self.to(dtype, non_blocking=non_blocking)
    kind = _wanted_type(dtype)
    if kind is Tensor:
        where, to = "", get_default_dtype()
    else:
        where, to = kind._device, kind.dtype
    if where == self.device.type or (not where and is_host(self)):
        return self.to(to, non_blocking=non_blocking)
    target = _device(host_device()) if kind is Tensor else _device_of(kind)
    return self.to(target, to, non_blocking=non_blocking)


_dtype_class = dtype


def _wanted_type(given):
    if isinstance(given, tensortype) or given is Tensor:
        return given
    name = shown_class(given) if isinstance(given, type) else given
    if not isinstance(name, str):
        raise TypeError("dtype must be a type, str, or dtype object")
    if isinstance(given, type):
        name = name.removeprefix("builtins.")
    ours = "pullback." + name.removeprefix("torch.") if name.startswith("torch.") else name
    found = Tensor if ours == "pullback.Tensor" else class_named(ours)
    if found is None:
        raise ValueError(f"invalid type: '{name}'")
    return found


def set_default_tensor_type(t, /):
    """Set the default dtype, and device, by a class or a name such as ``"pullback.DoubleTensor"``.

    It is deprecated: use ``set_default_dtype`` and ``set_default_device``.

    Raises: TypeError for types that are not floating-point ones, or whose device is missing;
    ModuleNotFoundError and AttributeError for names of no type.

    >>> import pullback
    >>> pullback.set_default_tensor_type(pullback.FloatTensor)
    """
    if isinstance(t, str):
        t = _imported(t)
    elif not isinstance(t, tensortype):
        raise TypeError(
            "invalid type object: only floating-point types are supported as the default type"
        )
    if not t.dtype.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    if t._device:
        set_default_device(_device_of(t))
    elif (host := _device(host_device())) != get_default_device():
        set_default_device(host)
    set_default_dtype(t.dtype)


def _imported(name):
    module, _, short = name.rpartition(".")
    parts = module.split(".")
    if parts[0] not in ("torch", "pullback") or len(parts) > 2:
        raise ModuleNotFoundError(f"No module named {module or name!r}")
    if short in _DTYPES and len(parts) == 2 and parts[1] != "cuda":
        raise TypeError(f"type {name} not available")
    found = class_named(".".join(["pullback", *parts[1:], short]))
    if found is None:
        raise AttributeError(f"module {module!r} has no attribute {short!r}")
    return found


# ---- constructors --------------------------------------------------------------------------------


def legacy_tensor(args, size, dtype, default, device=None, any_dtype=False):
    """Return what ``Tensor(...)`` or ``tensor.new(...)`` makes: of sizes, a sequence or a tensor.

    A tensor must have the dtype, unless ``any_dtype``.

    Raises: TypeError for other arguments; RuntimeError for another type of device than that of
    the default; NotImplementedError for a sparse or stored tensor.
    """
    from pullback._construct import tensor

    if device is not None and _device(device).type != default.type:
        raise RuntimeError(
            f"legacy constructor expects device type: {default.type} but device type: "
            f"{_device(device).type} was passed"
        )
    where = default if device is None else device
    if size is not None:
        if args:
            raise TypeError("new() takes sizes either as arguments or as size=, not both")
        args = (Size(size),)
    first = args[0] if args else None
    if len(args) == 1 and isinstance(first, Size):
        args = tuple(first)
    elif len(args) == 1 and isinstance(first, Tensor):
        if first.dtype != (first.dtype if any_dtype else dtype):
            raise TypeError(
                f"new(): expected pullback.{type_name(dtype)}Tensor (got {shown_type(first)})"
            )
        if hasattr(first, "_elements_elsewhere"):
            raise NotImplementedError(
                f"Tensor(): cannot access the storage of a {type(first).__name__}; use "
                f"pullback.tensor() or clone()"
            )
        return ops.alias(first)
    elif len(args) == 1 and (isinstance(first, bool) or not _is_size(first)):
        if isinstance(first, str):
            raise TypeError("new(): invalid data type 'str'")
        if hasattr(first, "untyped") and hasattr(first, "nbytes"):
            from pullback.storage.common import is_storage

            if is_storage(first):
                return create.empty_tensor((0,), dtype, where).set_(first)
        if not (hasattr(first, "__len__") and hasattr(first, "__getitem__")) or (
            isinstance(first, dict)
        ):
            raise TypeError(f"new(): data must be a sequence (got {type(first).__name__})")
        return tensor(first, dtype=dtype, device=where)
    for position, number in enumerate(args, 1):
        if not _is_size(number):
            raise TypeError(
                f"new(): argument 'size' failed to unpack the object at pos {position} with error "
                f'"type must be tuple of ints,but got {type(number).__name__}"'
            )
    return create.empty_tensor(Size(args) if args else (0,), dtype, where)


def _is_size(value):
    return hasattr(value, "__index__") and getattr(value, "shape", ()) == ()


def new(self, *args, size=None, device=None):
    """Return a tensor of the same dtype and device: uninitialised of a size, or of a sequence.

    A legacy form of ``new_empty`` and ``new_tensor``. A tensor or storage as argument gives a
    tensor over its memory.

    Raises: TypeError for a tensor of another dtype, and for data that is no sequence.

    >>> import pullback
    >>> pullback.ones(2).new([1, 2]), pullback.ones(2).new(2, 3).shape
    (tensor([1., 2.]), pullback.Size([2, 3]))
    """
    return legacy_tensor(args, size, self.dtype, self.device, device)
