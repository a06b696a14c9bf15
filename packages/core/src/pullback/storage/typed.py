"""Storages of one dtype, deprecated, and the older classes that make and recognise them."""

from __future__ import annotations

import builtins
import copy
import warnings
from typing import Any

from pullback._c.base.dtype import ALL, get_default_dtype
from pullback._c.device.device import device as _device
from pullback._c.interop.arrays import host_device
from pullback._c.interop.storages import storage_of
from pullback.ops.rules.dtypes import type_name
from pullback.storage.common import StorageMethods, is_storage
from pullback.storage.untyped import UntypedStorage

_BY_NAME = {found.name: found for found in ALL}
_LEGACY = {
    "BoolStorage": "bool",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
_LEGACY_OF = {dtype: name for name, dtype in _LEGACY.items()}
_CONVERSIONS = {
    "bool": "bool",
    "byte": "uint8",
    "char": "int8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "double": "float64",
    "complex_float": "complex64",
    "complex_double": "complex128",
}

__all__ = ["TypedStorage"]
__all__ += list(_LEGACY)

_warned = False


def _warn(stacklevel=3):
    """Warn of the class, once in a process."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will "
            "be the only storage class. This should only matter to you if you are using storages "
            "directly.  To access UntypedStorage directly, use tensor.untyped_storage() instead of "
            "tensor.storage()",
            UserWarning,
            stacklevel=stacklevel,
        )


def _typed(storage, dtype):
    """Return a typed storage, without the warning."""
    made: Any = object.__new__(TypedStorage)
    made._untyped_storage, made.dtype = storage, dtype
    return made


def typed_storage(tensor):
    """Return the storage of a tensor with its dtype: ``Tensor.storage``."""
    _warn(stacklevel=4)
    return _typed(storage_of(tensor, UntypedStorage), tensor.dtype)


class TypedStorage(StorageMethods):
    """A block of memory as elements of one dtype; deprecated, as in torch.

    ``TypedStorage(size or sequence, dtype=None, device=None)``, or ``wrap_storage=`` for an untyped
    one. ``FloatStorage`` and the other classes of one dtype make objects of this class.

    Raises: RuntimeError for other arguments.

    >>> import pullback, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pullback.FloatStorage([1, 2]).tolist()
    [1.0, 2.0]
    """

    __slots__ = ("__weakref__", "_untyped_storage", "dtype")

    def __new__(cls, *args, wrap_storage=None, dtype=None, device=None):
        legacy = cls is not TypedStorage
        problem = None
        if len(args) > 1:
            problem = "Too many positional arguments"
        elif legacy and dtype is not None:
            problem = "Keyword argument 'dtype' cannot be specified"
        elif legacy and device is not None:
            problem = "Keyword argument 'device' cannot be specified"
        elif wrap_storage is not None and args:
            problem = "No positional arguments should be given when using 'wrap_storage'"
        elif wrap_storage is not None and not isinstance(wrap_storage, UntypedStorage):
            problem = "Argument 'wrap_storage' must be UntypedStorage"
        elif wrap_storage is not None and not legacy and dtype is None:
            problem = "Argument 'dtype' must be specified"
        if problem:
            extra = "" if legacy else ", *, dtype=None, device=None"
            raise RuntimeError(
                f"{cls}.__new__ received an invalid combination of arguments. Expected one of:\n "
                f"* no arguments{extra and ' (*, dtype=None, device=None)'}\n * (int size{extra})\n"
                f" * (Sequence data{extra})\n * (*, UntypedStorage wrap_storage"
                f"{'' if legacy else ', dtype'})\n{problem}"
            )
        _warn()
        dtype = _BY_NAME[_LEGACY[cls.__name__]] if legacy else dtype or get_default_dtype()
        if wrap_storage is not None:
            return _typed(wrap_storage, dtype)
        where = host_device() if device is None else _device(device)
        content = args[0] if args else 0
        if isinstance(content, builtins.int):
            return _typed(UntypedStorage(content * dtype.itemsize, device=where), dtype)
        if isinstance(content, (str, builtins.bytes)) or not hasattr(content, "__len__"):
            raise TypeError(f"new(): invalid data type '{type(content).__name__}'")
        from pullback._construct import tensor

        content = content.tolist() if is_storage(content) else content
        made = tensor(content, dtype=dtype, device=where)
        return _typed(made.untyped_storage(), dtype)

    def _title(self):
        return f"pullback.storage.TypedStorage(dtype={self.dtype}, "

    def _untyped(self):
        return self._untyped_storage

    def _elements(self):
        return self._untyped_storage._tensor(self.dtype, 0, (self.size(),), (1,))

    @property
    def _cdata(self):
        return self._untyped_storage._cdata

    @property
    def device(self):
        """Where the memory is."""
        return self._untyped_storage.device

    @property
    def filename(self):
        """The name of the file that is mapped, or None."""
        return self._untyped_storage.filename

    __hash__ = object.__hash__

    def __eq__(self, other):
        return isinstance(other, TypedStorage) and self._cdata == other._cdata

    def size(self):
        """Return the number of elements."""
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    def nbytes(self):
        """Return the number of bytes."""
        return self._untyped_storage.nbytes()

    def element_size(self):
        """Return the bytes of an element."""
        return self.dtype.itemsize

    def data_ptr(self):
        """Return the address of the first element; 0 where there is no memory."""
        return self._untyped_storage.data_ptr()

    def untyped(self):
        """Return the memory as bytes."""
        return self._untyped_storage

    def pickle_storage_type(self):
        """Return the name of the class of one dtype, which files have.

        Raises: KeyError for uint16, uint32, uint64 and complex32, which have no such class.
        """
        if self.dtype.name not in _LEGACY_OF:
            raise KeyError(f"dtype {self.dtype} is not recognized")
        return _LEGACY_OF[self.dtype.name]

    _pickle_storage_type = pickle_storage_type

    def new(self):
        """Return an empty storage of the dtype on the same device."""
        return _typed(self._untyped_storage.new(), self.dtype)

    def __getitem__(self, key):
        if isinstance(key, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(key, builtins.int):
            raise RuntimeError(f"can't index a {type(self)} with {type(key)}")
        return self._elements()[self._index(key)].item()

    def __setitem__(self, key, value):
        if not isinstance(key, (builtins.int, slice)):
            raise RuntimeError(f"can't index a {type(self)} with {type(key)}")
        self._elements()[key if isinstance(key, slice) else self._index(key)] = value

    def fill_(self, value):
        """Set all elements to a number; returns the storage."""
        self._elements().fill_(value)
        return self

    def copy_(self, source, non_blocking=None):
        """Copy all bytes of a storage of the same size; returns the storage."""
        self._untyped_storage.copy_(source, non_blocking)
        return self

    def resize_(self, size):
        """Change the number of elements, for all tensors that share the memory."""
        self._untyped_storage.resize_(size * self.dtype.itemsize)

    def clone(self):
        """Return a copy on the same device."""
        return _typed(self._untyped_storage.clone(), self.dtype)

    def to(self, *, device, non_blocking=False):
        """Return the storage itself if it is on the device, else a copy there."""
        moved = self._untyped_storage.to(device=device, non_blocking=non_blocking)
        return self if moved is self._untyped_storage else _typed(moved, self.dtype)

    def type(self, dtype=None, non_blocking=False):
        """Return the name of the class of the dtype, or a copy in that of another class."""
        if dtype is None:
            legacy = _LEGACY_OF.get(self.dtype.name, "storage.TypedStorage")
            return f"pullback.{legacy}"
        name = dtype.__name__ if isinstance(dtype, builtins.type) else str(dtype).rsplit(".", 1)[-1]
        wanted = _BY_NAME[_LEGACY[name]] if name in _LEGACY else _BY_NAME[name]
        if wanted is self.dtype:
            return self
        return _typed(self._elements().to(wanted).untyped_storage(), wanted)

    def pin_memory(self, device=None):
        """Return the storage itself if it is in pinned memory, else a copy there."""
        pinned = self._untyped_storage.pin_memory(device)
        return self if pinned is self._untyped_storage else _typed(pinned, self.dtype)

    def resizable(self):
        """Return True if ``resize_`` can change the size."""
        return self._untyped_storage.resizable()

    def is_shared(self):
        """Return True if other processes can map the memory."""
        return self._untyped_storage.is_shared()

    def share_memory_(self):
        """Move the elements to shared memory, for all tensors of the storage."""
        self._untyped_storage.share_memory_()
        return self

    def __deepcopy__(self, memo):
        return _typed(copy.deepcopy(self._untyped_storage, memo), self.dtype)

    def __reduce__(self):
        return _typed, (self._untyped_storage, self.dtype)

    @classmethod
    def _dtype_of_class(cls, dtype):
        if cls is not TypedStorage:
            return _BY_NAME[_LEGACY[cls.__name__]]
        return get_default_dtype() if dtype is None else dtype

    @classmethod
    def from_buffer(cls, buffer, byte_order=None, count=-1, offset=0, *, dtype=None, device=None):
        """Return a storage with a copy of elements of an object with the buffer protocol."""
        _warn()
        dtype = cls._dtype_of_class(dtype)
        made = UntypedStorage.from_buffer(buffer, byte_order, count, offset, dtype=dtype)
        return _typed(made if device is None else made.to(device=device), dtype)

    @classmethod
    def from_file(cls, filename, shared, size):
        """Return a storage over a mapped file of ``size`` elements."""
        _warn()
        dtype = cls._dtype_of_class(None)
        made = UntypedStorage.from_file(filename, shared, size * dtype.itemsize)
        return _typed(made, dtype)


class _OfOneDtype(type):
    """The classes of one dtype recognise typed storages of theirs."""

    def __instancecheck__(cls, instance):
        return (
            isinstance(instance, TypedStorage)
            and cls.__name__ in _LEGACY
            and instance.dtype.name == _LEGACY[cls.__name__]
        )

    @property
    def dtype(cls):
        return _BY_NAME[_LEGACY[cls.__name__]]


def _legacy_class(name):
    doc = f"""Typed storages of {_LEGACY[name]}: makes and recognises ``TypedStorage`` objects.

    >>> import pullback
    >>> pullback.{name}.dtype
    pullback.{_LEGACY[name]}
    """
    return _OfOneDtype(name, (TypedStorage,), {"__slots__": (), "__doc__": doc})


for _name in _LEGACY:
    globals()[_name] = _legacy_class(_name)


def legacy_class(dtype):
    """Return the class of typed storages of one dtype, or None if it has none."""
    return globals()[_LEGACY_OF[dtype.name]] if dtype.name in _LEGACY_OF else None


def _conversion(name, dtype):
    def convert(self):
        made = self._elements().to(_BY_NAME[dtype], copy=True)
        return _typed(made.untyped_storage(), _BY_NAME[dtype])

    convert.__name__ = name
    convert.__doc__ = f"Return a copy of the elements as {dtype}."
    return convert


for _method, _name in _CONVERSIONS.items():
    setattr(StorageMethods, _method, _conversion(_method, _name))


def set_to_storage(tensor, source, storage_offset=0, size=None, stride=None):
    """Make a tensor show part of a storage: ``Tensor.set_`` with a storage; returns the tensor."""
    untyped = source._untyped()
    if isinstance(source, TypedStorage) and source.dtype != tensor.dtype:
        wanted, given = type_name(tensor.dtype), type_name(source.dtype)
        raise RuntimeError(
            f"Expected a Storage of type {wanted} or an UntypedStorage, but got type {given} for "
            "argument 1 'storage'"
        )
    if size is None:
        size, stride = (untyped.nbytes() // tensor.element_size(),), (1,)
    size = (size,) if isinstance(size, builtins.int) else tuple(size)
    if stride is None:
        stride, step = [], 1
        for length in reversed(size):
            stride.insert(0, step)
            step *= max(length, 1)
    return tensor.set_(untyped._tensor(tensor.dtype, storage_offset, size, stride))
