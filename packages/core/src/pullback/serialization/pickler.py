"""The pickler of files: torch's names, and storages by number instead of their bytes."""

from __future__ import annotations

import collections
import copyreg
import io
import pickle
from typing import TYPE_CHECKING, Any, ClassVar

from pullback._c.base.dtype import ALL
from pullback._c.base.dtype import dtype as _dtype
from pullback._c.device.device import device as _device
from pullback._c.graph.tensor import Size, Tensor
from pullback.nn.parameter import Parameter
from pullback.serialization.locations import location_tag
from pullback.serialization.names import WRITTEN, TorchName, lazy_bits, torch_name
from pullback.storage.typed import TypedStorage, legacy_class
from pullback.storage.untyped import UntypedStorage
from pullback.utils.hooks import warn_if_has_hooks

_TENSOR = TorchName("torch._utils", "_rebuild_tensor_v2")
_TENSOR_OF_DTYPE = TorchName("torch._utils", "_rebuild_tensor_v3")
_META = TorchName("torch._utils", "_rebuild_meta_tensor_no_storage")
_PARAMETER = TorchName("torch._utils", "_rebuild_parameter")
_PARAMETER_WITH_STATE = TorchName("torch._utils", "_rebuild_parameter_with_state")
_OF_TYPE = TorchName("torch._tensor", "_rebuild_from_type_v2")
_SPARSE = TorchName("torch._utils", "_rebuild_sparse_tensor")
_LAYOUT = TorchName("torch.serialization", "_get_layout")


_BYTES = next(dtype for dtype in ALL if dtype.name == "uint8")


class StorageOfTensor:
    """The storage of a tensor with the tensor's dtype, for the pickler."""

    __slots__ = ("dtype", "storage")

    def __init__(self, tensor):
        self.storage, self.dtype = tensor.untyped_storage(), tensor.dtype


class SavedStorages:
    """The storages that a pickle names, by number."""

    def __init__(self, legacy=False):
        self.legacy = legacy
        self.numbers: dict[int, str] = {}
        self.storages: list[UntypedStorage] = []
        self.dtypes: dict[int, _dtype] = {}

    def describe(self, storage, dtype):
        """Return what the pickle has of a storage.

        Raises: RuntimeError for a second dtype of the same memory, which torch cannot load.
        """
        elements = dtype or _BYTES
        if legacy_class(elements) is None:
            raise KeyError(f"dtype {elements} is not recognized")
        if storage.nbytes() and self.dtypes.setdefault(storage._cdata, elements) != elements:
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different "
                "types"
            )
        if storage._cdata not in self.numbers:
            self.numbers[storage._cdata] = str(len(self.storages))
            self.storages.append(storage)
        if dtype is None and not self.legacy:
            kind, count = TorchName("torch.storage", "UntypedStorage"), storage.nbytes()
        else:
            kind = TorchName("torch", legacy_class(elements).__name__)
            count = storage.nbytes() // elements.itemsize
        found = ("storage", kind, self.numbers[storage._cdata], location_tag(storage), count)
        return (*found, None) if self.legacy else found


def reduce_tensor(tensor):
    """Return how a tensor is made again."""
    attributes = dict(vars(tensor))
    if type(tensor) is Parameter:
        data = tensor.detach()
        shared: tuple = data, tensor.requires_grad, collections.OrderedDict()
        if attributes:
            return _PARAMETER_WITH_STATE, (*shared, attributes)
        return _PARAMETER, shared
    function, args = _reduce_plain(tensor)
    if type(tensor) is not Tensor or attributes:
        return _OF_TYPE, (function, type(tensor), args, attributes or None)
    return function, args


def reduce_sparse(tensor):
    """Return how a tensor in coordinate format is made again."""
    return _SPARSE, (_SparseLayout(), tensor.__reduce_ex__(2)[1][1])


class _SparseLayout:
    def __reduce__(self):
        return _LAYOUT, ("torch.sparse_coo",)


def _reduce_plain(tensor):
    warn_if_has_hooks(tensor)
    size, stride = tuple(tensor.shape), tensor.stride()
    if tensor.device.type == "meta":
        return _META, (tensor.dtype, size, stride, tensor.requires_grad)
    legacy = legacy_class(tensor.dtype) is not None
    storage = StorageOfTensor(tensor) if legacy else tensor.untyped_storage()
    args: tuple = (
        *(storage, tensor.storage_offset(), size, stride),
        *(tensor.requires_grad, collections.OrderedDict()),
        *(() if legacy else (tensor.dtype,)),
    )
    lazy = lazy_bits(tensor)
    return _TENSOR if legacy else _TENSOR_OF_DTYPE, ((*args, lazy) if lazy else args)


class _Reducers(dict):
    """The dispatch table for classes that the pickler does not know: subclasses of Tensor."""

    def get(self, kind, default=None):
        if issubclass(kind, Tensor) and kind.__reduce_ex__ is Tensor.__reduce_ex__:
            return reduce_tensor
        if kind.__module__ == "pullback.sparse.coo":
            return reduce_sparse
        return super().get(kind, default)


class FileMethods:
    """What a file's pickler does otherwise than Python's."""

    if TYPE_CHECKING:  # methods of the class that it is mixed into

        def __getattr__(self, name) -> Any: ...

    def __init__(self, file, protocol, saved):
        super().__init__(file, protocol=protocol)  # type: ignore[call-arg]
        self.saved = saved
        self.dispatch_table = _Reducers(copyreg.dispatch_table)

    def persistent_id(self, value):
        """Return the description of a storage, None for everything else."""
        kind = type(value)
        if kind is StorageOfTensor:
            return self.saved.describe(value.storage, value.dtype)
        if kind is TypedStorage:
            return self.saved.describe(value.untyped(), value.dtype)
        if kind is UntypedStorage:
            return self.saved.describe(value, None)
        return None

    def write_name(self, value, module, name):
        """Write a global under any name."""
        if self.proto >= 4:
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(value)

    def save_global(self, value, name=None):
        """Write a class or function, those of ours under torch's names."""
        known = WRITTEN.get(value)
        if known is None and name is None and isinstance(value, type):
            found = torch_name(value.__module__, value.__qualname__)
            known = found if found[0] != value.__module__ else None
        if known is None:
            super().save_global(value, name)  # type: ignore[misc]
        else:
            self.write_name(value, *known)

    def save_torch_name(self, value):
        if (known := self.memo.get(id(value))) is not None:
            self.write(self.get(known[0]))
        else:
            self.write_name(value, value.module, value.name)

    def save_dtype(self, value):
        self.write_name(value, "torch", value.name)

    def save_size(self, value):
        self.save_reduce(Size, (tuple(value),), obj=value)

    def save_device(self, value):
        index = () if value.index is None else (value.index,)
        self.save_reduce(_device, (value.type, *index), obj=value)

    def save_type(self, value):
        if value in (type(None), type(NotImplemented), type(...)):
            super().save_type(value)  # type: ignore[misc]
        else:
            self.save_global(value)


_DISPATCH = {
    TorchName: FileMethods.save_torch_name,
    _dtype: FileMethods.save_dtype,
    Size: FileMethods.save_size,
    _device: FileMethods.save_device,
    type: FileMethods.save_type,
}


class FilePickler(FileMethods, pickle._Pickler):  # type: ignore[misc]
    """The pickler of files, in Python: C's writes a global under its own name only."""

    dispatch: ClassVar[dict] = {**pickle._Pickler.dispatch, **_DISPATCH}


def _pickler_class(module):
    """Return the pickler over that of a module such as dill."""
    if module is pickle:
        return FilePickler
    base = module.Pickler
    extra = {"dispatch": {**base.dispatch, **_DISPATCH}} if hasattr(base, "dispatch") else {}
    return type("FilePickler", (FileMethods, base), extra)


def pickled(value, module, protocol, legacy=False):
    """Return the pickle of an object, and the storages that it names.

    Raises: what pickling raises.
    """
    saved = SavedStorages(legacy)
    buffer = io.BytesIO()
    _pickler_class(module)(buffer, protocol, saved).dump(value)
    return buffer.getvalue(), saved


def bytes_of(storage, skip):
    """Return the bytes of a storage for a file."""
    if skip:
        return bytes(storage.nbytes())
    return memoryview(storage.cpu()._bytes()) if storage.nbytes() else b""
