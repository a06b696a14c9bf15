"""Torch's names of what files contain, and the functions that they stand for here.

Files have torch's names, so that they load in torch too. The functions check what they are called
with: a file may contain anything.
"""

from __future__ import annotations

import codecs
import collections
import importlib

from pullback._c.base.dtype import ALL
from pullback._c.base.dtype import dtype as _dtype
from pullback._c.device.device import device as _device
from pullback._c.graph.tensor import Size, Tensor, adopt
from pullback._c.ops import create
from pullback.nn.parameter import Parameter
from pullback.storage import typed
from pullback.storage.common import is_storage
from pullback.storage.typed import TypedStorage
from pullback.storage.untyped import UntypedStorage


class TorchName:
    """A function or class under torch's name, for the pickler; only its name counts."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    def __call__(self, *args):
        raise TypeError(f"{self.module}.{self.name} is only a name")


# ---- functions that make tensors -----------------------------------------------------------------


def _need(condition, what):
    if not condition:
        raise ValueError(f"{what} is not what files contain")


def rebuild_tensor(storage, storage_offset, size, stride):
    """Return a tensor over a storage with a dtype."""
    _need(isinstance(storage, TypedStorage), "the storage of a tensor")
    return storage.untyped()._tensor(storage.dtype, storage_offset, tuple(size), tuple(stride))


def rebuild_tensor_v2(
    storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None
):
    """Return a tensor over a storage; ``metadata`` says whether it is a lazy conjugate."""
    made = rebuild_tensor(storage, storage_offset, size, stride)
    return _finished(made, requires_grad, backward_hooks, metadata)


def rebuild_tensor_v3(
    storage, storage_offset, size, stride, requires_grad, backward_hooks, dtype, metadata=None
):
    """Return a tensor of another dtype than the storage's."""
    _need(is_storage(storage) and isinstance(dtype, _dtype), "the storage of a tensor")
    made = storage.untyped()._tensor(dtype, storage_offset, tuple(size), tuple(stride))
    return _finished(made, requires_grad, backward_hooks, metadata)


def lazy_bits(tensor):
    """Return which lazy views a tensor is, as files say it."""
    bits = {"conj": tensor.is_conj(), "neg": tensor.is_neg()}
    return {name: True for name, is_set in bits.items() if is_set}


def with_lazy_bits(tensor, bits):
    """Return a tensor as the lazy views that ``lazy_bits`` names."""
    tensor = tensor.conj() if bits.get("conj") else tensor
    return tensor._neg_view() if bits.get("neg") else tensor


def _finished(made, requires_grad, hooks, metadata):
    _need(not hooks, "a table of hooks")
    made = with_lazy_bits(made, metadata or {})
    return made.requires_grad_(bool(requires_grad)) if requires_grad else made


def rebuild_parameter(data, requires_grad, backward_hooks):
    """Return a parameter."""
    _need(isinstance(data, Tensor) and not backward_hooks, "the tensor of a parameter")
    return Parameter(data, bool(requires_grad))


def rebuild_parameter_with_state(data, requires_grad, backward_hooks, state):
    """Return a parameter with attributes."""
    return _with_state(rebuild_parameter(data, requires_grad, backward_hooks), state)


def rebuild_meta(dtype, size, stride, requires_grad):
    """Return a tensor without memory."""
    _need(isinstance(dtype, _dtype), "the dtype of a tensor")
    made = create.empty_strided_tensor(tuple(size), tuple(stride), dtype, "meta")
    return made.requires_grad_(bool(requires_grad)) if requires_grad else made


def rebuild_sparse(layout, parts):
    """Return a tensor in coordinate format."""
    from pullback.sparse import sparse_coo_tensor

    _need(str(layout).endswith("sparse_coo") and len(parts) in (3, 4), "a sparse tensor")
    made = sparse_coo_tensor(*parts[:3])
    return made.coalesce() if len(parts) == 4 and parts[3] else made


def rebuild_from_type(function, kind, args, state):
    """Return a tensor with attributes, or of a subclass."""
    _need(function in REBUILDS and issubclass(kind, Tensor), "the class of a tensor")
    made = function(*args)
    if kind is not Tensor and type(made) is not kind:
        plain, made = made, Tensor.__new__(kind)
        adopt(made, plain.detach())
        if plain.requires_grad:
            made.requires_grad_()
    return made if state is None else _with_state(made, state)


def _with_state(made, state):
    attributes = state
    if isinstance(state, tuple):
        _need(len(state) == 2, "the state of a tensor")
        attributes = {**(state[0] or {}), **(state[1] or {})}
    _need(isinstance(attributes, dict), "the state of a tensor")
    for name, value in attributes.items():
        _need(isinstance(name, str) and not hasattr(type(made), name), "an attribute of a tensor")
        setattr(made, name, value)
    return made


REBUILDS = {
    rebuild_tensor,
    rebuild_tensor_v2,
    rebuild_tensor_v3,
    rebuild_parameter,
    rebuild_parameter_with_state,
    rebuild_meta,
    rebuild_sparse,
}


def layout(name):
    """Return the layout of a name: of dense tensors, or of sparse gradients."""
    import pullback

    _need(name in ("torch.strided", "torch.sparse_coo"), "a layout")
    return getattr(pullback, name.partition(".")[2])


def storage_dtype(kind):
    """Return the dtype of a class of storages; None for bytes without one.

    Raises: RuntimeError for anything but such a class.
    """
    if kind is UntypedStorage:
        return None
    if isinstance(kind, type) and issubclass(kind, TypedStorage) and kind is not TypedStorage:
        return getattr(kind, "dtype")  # noqa: B009  # a property of the metaclass
    raise RuntimeError(f"expected a class of storages, not {brief(kind)}")


def brief(value):
    """Return a short text for any value of a file, whose repr may be endless."""
    if isinstance(value, type) or callable(value):
        return f"{value.__module__}.{getattr(value, '__qualname__', type(value).__name__)}"
    return repr(value)[:100] if type(value) in (str, int, float, bool) else type(value).__name__


# ---- functions of Python that files may call -----------------------------------------------------


def encode(text, encoding="utf-8"):
    """Return text as bytes; other encodings than pickle's could take long or expand."""
    _need(isinstance(text, str) and encoding == "latin1", "an encoding")
    return codecs.encode(text, encoding)


def new_bytearray(*args):
    """Return a bytearray of bytes, or of text and an encoding; not of a length."""
    if len(args) == 2:
        return bytearray(encode(*args))
    _need(len(args) < 2 and all(isinstance(a, (bytes, bytearray)) for a in args), "a bytearray")
    return bytearray(*args)


# ---- tables --------------------------------------------------------------------------------------

_LEGACY_NAMES = [name for name in typed.__all__ if name != "TypedStorage"]

# What files may name without further permission: torch's name -> ours.
ALLOWED = {
    "torch._utils._rebuild_tensor": rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": rebuild_parameter_with_state,
    "torch._utils._rebuild_meta_tensor_no_storage": rebuild_meta,
    "torch._utils._rebuild_sparse_tensor": rebuild_sparse,
    "torch._tensor._rebuild_from_type_v2": rebuild_from_type,
    "torch.serialization._get_layout": layout,
    "torch.Size": Size,
    "torch.device": _device,
    "torch.Tensor": Tensor,
    "torch.nn.parameter.Parameter": Parameter,
    "torch.storage.UntypedStorage": UntypedStorage,
    "torch.storage.TypedStorage": TypedStorage,
    "collections.OrderedDict": collections.OrderedDict,
    "collections.Counter": collections.Counter,
    "builtins.set": set,
    "builtins.complex": complex,
    "builtins.bytearray": new_bytearray,
    "_codecs.encode": encode,
    **{f"torch.{dtype.name}": dtype for dtype in ALL},
    **{f"torch.{name}": getattr(typed, name) for name in _LEGACY_NAMES},
    **{f"torch.cuda.{name}": getattr(typed, name) for name in _LEGACY_NAMES},
}
# Those of them that files may call; the others are only arguments.
CALLED = {
    *(*REBUILDS, rebuild_from_type, layout, Size, _device, Parameter),
    *(collections.OrderedDict, collections.Counter, set, complex, new_bytearray, encode),
}

# Ours -> torch's name, of what an object of another class is written as.
WRITTEN = {
    Tensor: ("torch", "Tensor"),
    Size: ("torch", "Size"),
    _device: ("torch", "device"),
    _dtype: ("torch", "dtype"),
    Parameter: ("torch.nn.parameter", "Parameter"),
    UntypedStorage: ("torch.storage", "UntypedStorage"),
    TypedStorage: ("torch.storage", "TypedStorage"),
    **{getattr(typed, name): ("torch", name) for name in _LEGACY_NAMES},
}


def torch_name(module, name):
    """Return the module of torch under whose name a class of ours is written."""
    if module == "pullback" or (module.startswith("pullback.") and "._" not in module):
        return "torch" + module[len("pullback") :], name
    return module, name


def allow_in_files(function):
    """Let files call a function of the package, which must check its arguments."""
    ALLOWED[f"{function.__module__}.{function.__qualname__}"] = function
    CALLED.add(function)


def find(module, name):
    """Return what a name of torch stands for here, or None: for files that are trusted."""
    found = ALLOWED.get(f"{module}.{name}")
    if found is not None:
        return found
    if module == "torch" or module.startswith("torch."):
        try:
            found = importlib.import_module("pullback" + module[len("torch") :])
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            return None
    return found
