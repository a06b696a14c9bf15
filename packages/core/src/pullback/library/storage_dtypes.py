"""Dtypes that plugins define: tensors are stored in them, computed with in one of the core's."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pullback
from pullback import Tensor
from pullback.autograd import Function
from pullback.overrides import DisableTorchFunctionSubclass
from pullback.serialization.names import allow_in_files
from pullback.utils.pytree import tree_map_only

__all__ = ["StorageDtype", "StoredTensor", "define_storage_dtype"]

_defined: dict[str, StorageDtype] = {}


def define_storage_dtype(
    name: str,
    encode: Callable[[Tensor], Tensor | tuple[Tensor, ...]],
    decode: Callable[..., Tensor],
) -> StorageDtype:
    """Define a dtype that tensors are stored in, and return it.

    ``name`` is ``"namespace::name"``. ``encode`` takes a tensor and returns one or several, of any
    dtypes and shapes: its codes, scales, or what the device wants. ``decode`` takes these and
    returns the tensor's values, in its shape. Both compute with pullback's functions, among them
    those of `define_primitive`, for which the device may have kernels; both give the same numbers
    for the same input.

    Raises: ValueError for a name without a namespace; TypeError for functions that cannot be
    called; RuntimeError for a name that is defined already.

    >>> import pullback
    >>> from pullback.backend import define_storage_dtype
    >>> def encode(x):
    ...     scale = x.abs().amax(-1, True) / 127
    ...     return (x / scale).round().to(pullback.int8), scale
    >>> int8_rows = define_storage_dtype("docs::int8_rows", encode, lambda q, scale: q * scale)
    >>> weight = int8_rows.store(pullback.tensor([[1.0, 127.0], [2.54, 0.2]]))
    >>> weight
    StoredTensor([[  1.0000, 127.0000],
                  [  2.5400,   0.2000]], storage_dtype=docs::int8_rows)
    >>> weight @ pullback.ones(2), weight.stored_bytes
    (tensor([128.0000,   2.7400]), 12)
    """
    if not isinstance(name, str) or name.count("::") != 1:
        raise ValueError(
            f"define_storage_dtype(): expected a name such as 'mine::float6', got {name!r}"
        )
    for which, function in (("encode", encode), ("decode", decode)):
        if not callable(function):
            raise TypeError(
                f"define_storage_dtype(): argument '{which}' must be callable, not "
                f"{type(function).__name__}"
            )
    if name in _defined:
        raise RuntimeError(f"define_storage_dtype(): {name!r} is defined already")
    made = _defined[name] = StorageDtype(name, encode, decode)
    return made


class StorageDtype:
    """A dtype that tensors are stored in: what `define_storage_dtype` returns."""

    def __init__(self, name: str, encode: Callable[..., Any], decode: Callable[..., Any]) -> None:
        self.name = name
        self._encode = encode
        self._decode = decode

    def __repr__(self) -> str:
        return f"<storage dtype {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return storage_dtype_named, (self.name,)

    def store(self, tensor: Tensor) -> StoredTensor:
        """Return a tensor with the values of another, stored in this dtype.

        Shape, dtype and device are those of ``tensor``; gradients pass unchanged, as through a
        cast. ``nn.Parameter`` makes a leaf of the result.

        Raises: TypeError for anything but a tensor; RuntimeError for results of ``encode`` that are
        no plain tensors on its device.
        """
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{self.name}: argument 'tensor' must be Tensor, not {type(tensor).__name__}"
            )
        if isinstance(tensor, StoredTensor):
            tensor = self.load(tensor)
        return _Store.apply(tensor, self)

    def load(self, stored: StoredTensor) -> Tensor:
        """Return the values of a stored tensor as a plain one, with its history.

        Raises: RuntimeError for a result of ``decode`` of another shape.
        """
        return _Load.apply(stored)

    def parts_of(self, tensor: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors that ``encode`` makes of one."""
        given = tensor.detach()
        with pullback.no_grad():
            found = self._encode(given)
        parts = found if isinstance(found, tuple) else (found,)
        for part in parts:
            plain = isinstance(part, Tensor) and not isinstance(part, StoredTensor)
            if not plain or part.device != tensor.device:
                raise RuntimeError(
                    f"{self.name}: encode() must return plain tensors on {tensor.device}, got "
                    f"{f'one on {part.device}' if plain else type(part).__name__}"
                )
        return tuple(part.clone() if _share_memory(part, given) else part for part in parts)

    def wrap(self, parts: tuple[Tensor, ...], like: Tensor) -> StoredTensor:
        """Return a leaf with some parts, and the shape, dtype and device of a tensor."""
        # One element, NaN, stands for all: what reads it past `__torch_function__` shows.
        nan = math.nan if like.is_floating_point() or like.is_complex() else 0
        one = pullback.full((), nan, dtype=like.dtype, device=like.device)
        made = one.expand(like.shape).as_subclass(StoredTensor)
        made.parts = parts
        made.storage_dtype = self
        return made

    def values(self, parts: tuple[Tensor, ...], like: Tensor) -> Tensor:
        """Return the values of some parts, in the dtype of a tensor."""
        with pullback.no_grad():
            found = self._decode(*parts)
        if not isinstance(found, Tensor) or found.shape != like.shape:
            raise RuntimeError(
                f"{self.name}: decode() must return a tensor of shape {list(like.shape)}, got "
                f"{list(found.shape) if isinstance(found, Tensor) else type(found).__name__}"
            )
        found = found.to(like.dtype)
        is_part = any(_share_memory(found, part) for part in parts)
        return found.clone() if is_part else found  # the caller may write it


def _share_memory(first: Tensor, second: Tensor) -> bool:
    return first.untyped_storage()._cdata == second.untyped_storage()._cdata


def storage_dtype_named(name: str) -> StorageDtype:
    """Return the storage dtype of a name; pickles call this."""
    if name not in _defined:
        raise RuntimeError(
            f"a tensor of {name!r} cannot be loaded: no define_storage_dtype() has run for it"
        )
    return _defined[name]


# Attributes that are tensors of the elements.
_OF_VALUES = frozenset(("H", "T", "imag", "mH", "mT", "real"))
# Methods that need no elements.
_OF_TENSORS = frozenset(
    (
        *("__hash__", "detach_", "dim", "element_size", "get_device", "is_complex"),
        *("is_floating_point", "is_inference", "is_same_size", "is_signed", "ndimension"),
        *("nelement", "numel", "register_hook", "register_post_accumulate_grad_hook"),
        *("requires_grad_", "retain_grad", "size", "__len__", "sparse_dim", "dense_dim"),
    )
)
_WITHOUT_MEMORY = frozenset(
    (
        *("__array_interface__", "__cuda_array_interface__", "const_data_ptr", "data_ptr"),
        *("is_set_to", "set_", "storage", "untyped_storage"),
    )
)
_PASSES = {"backward": (1,), "grad": (2,)}  # with the positions of gradients
_GRADIENTS = ("gradient", "grad_tensors", "grad_outputs")
_MOVES = frozenset(("clone", "contiguous", "cpu", "cuda", "to", "to_device"))


class StoredTensor(Tensor):
    """A tensor that is stored in a `StorageDtype`: what its ``store`` returns.

    Operations compute with its values, in ``dtype``, and return plain tensors; one that writes it
    in place stores what it has written. ``detach``, ``clone``, ``to`` another device, copies,
    pickles and ``nn.Parameter`` keep it stored. A view of it is one of its values: what is written
    there is not stored. ``parts`` are the tensors that ``encode`` made, ``stored_bytes``
    is their size.

    Raises: RuntimeError where it requires grad and would be written while gradients are recorded,
    and where its memory is asked for, as by ``data_ptr``.
    """

    parts: tuple[Tensor, ...]
    storage_dtype: StorageDtype
    _elements_elsewhere = True

    @property
    def stored_bytes(self) -> int:
        """The size in bytes of what is stored."""
        return sum(part.nbytes for part in self.parts)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = {} if kwargs is None else kwargs
        name = getattr(func, "__name__", "")
        attribute = name in ("__get__", "__set__", "__delete__")
        if attribute:
            name = func.__self__.__name__
        if name in _WITHOUT_MEMORY:
            kind = _first(args, kwargs).storage_dtype
            error = AttributeError if attribute else RuntimeError
            raise error(
                f"{name}: a tensor stored as {kind.name} has no memory of its dtype; "
                f"storage_dtype.load() returns a tensor that has"
            )
        if name in _PASSES and not attribute:
            # Gradients may be stored ones; what they are computed of stays as it is.
            plain = tuple(_loaded(one) if i in _PASSES[name] else one for i, one in enumerate(args))
            given = {k: _loaded(one) if k in _GRADIENTS else one for k, one in kwargs.items()}
            with DisableTorchFunctionSubclass():
                return func(*plain, **given)
        if name == "data" and attribute:
            return _detached(args[0]) if len(args) == 1 else _replace(func, *args)
        if name == "_base" and attribute:
            return None
        if (attribute and name not in _OF_VALUES) or name in _OF_TENSORS:
            with DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if name == "detach":
            return _detached(args[0])
        if name == "__copy__":
            return _with_attributes(_detached(args[0]), args[0])
        if name in ("is_shared", "share_memory_"):
            found = [getattr(part, name)() for part in args[0].parts]
            return args[0] if name == "share_memory_" else all(found)
        if name in _MOVES and args and isinstance(args[0], StoredTensor):
            return _moved(func, *args, **kwargs)
        return _computed(func, args, kwargs, name)

    def as_subclass(self, cls):
        """Return it, or its values, as an instance of a subclass of Tensor."""
        return (
            _detached(self)
            if cls is StoredTensor
            else self.storage_dtype.load(self).as_subclass(cls)
        )

    def __repr__(self) -> str:
        lines = (
            repr(self.storage_dtype.load(self).detach()).removeprefix("tensor(").removesuffix(")")
        )
        end = ", requires_grad=True" * self.requires_grad
        indented = lines.replace("\n", "\n" + " " * (len("StoredTensor(") - len("tensor(")))
        return f"StoredTensor({indented}, storage_dtype={self.storage_dtype.name}{end})"

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            if not self.is_leaf:
                raise RuntimeError(
                    "Only Tensors created explicitly by the user (graph leaves) support the "
                    "deepcopy protocol at the moment"
                )
            made = memo[id(self)] = _like(self, copy.deepcopy(self.parts, memo))
            _with_attributes(made, self, lambda own: copy.deepcopy(own, memo))
            made.grad = copy.deepcopy(self.grad, memo)
        return memo[id(self)]

    def __reduce_ex__(self, protocol):
        own = {k: v for k, v in vars(self).items() if k not in ("parts", "storage_dtype")}
        like = tuple(self.shape), self.dtype, self.requires_grad
        return _rebuild, (self.storage_dtype, self.parts, *like, own)


def _rebuild(storage_dtype, parts, shape, dtype, requires_grad, own):
    """Return a tensor of some parts; pickles, and files, which may contain anything, call this."""
    if not isinstance(storage_dtype, StorageDtype) or not all(type(p) is Tensor for p in parts):
        raise TypeError("a stored tensor is loaded of a StorageDtype and plain tensors")
    like = pullback.empty((), dtype=dtype, device=parts[0].device).expand(shape)
    made = storage_dtype.wrap(parts, like).requires_grad_(requires_grad)
    vars(made).update({k: v for k, v in own.items() if k not in vars(made)})
    return made


allow_in_files(_rebuild)
allow_in_files(storage_dtype_named)


def _like(stored, parts):
    """Return a leaf of other parts, as another tensor of this dtype."""
    with DisableTorchFunctionSubclass():
        like = pullback.empty((), dtype=stored.dtype, device=parts[0].device).expand(stored.shape)
    return stored.storage_dtype.wrap(parts, like)


def _detached(stored):
    return _like(stored, stored.parts)


def _with_attributes(made, stored, copied=lambda value: value):
    """Give a copy what a user, or ``nn.Parameter``, has set on a tensor."""
    own = {k: v for k, v in vars(stored).items() if k not in ("parts", "storage_dtype")}
    vars(made).update(copied(own))
    return made.requires_grad_(stored.requires_grad)


def _replace(func, stored, value):
    """Assign ``data``."""
    if not isinstance(value, StoredTensor):
        value = stored.storage_dtype.store(value.detach())
    with DisableTorchFunctionSubclass():
        func(stored, value)
    stored.parts, stored.storage_dtype = value.parts, value.storage_dtype


def _moved(func, stored, *args, **kwargs):
    """Run a copy to another device, or one that keeps it, on the parts; others on the values."""
    if stored.requires_grad and pullback.is_grad_enabled():
        return _computed(func, (stored, *args), kwargs, func.__name__)
    given = pullback.empty((0,) * stored.ndim, dtype=stored.dtype, device=stored.device)
    probe = func(given, *args, **kwargs)
    if probe is given:
        return stored
    if probe.dtype != stored.dtype:
        return _computed(func, (stored, *args), kwargs, func.__name__)
    return _like(stored, tuple(part.to(probe.device, copy=True) for part in stored.parts))


def _loaded(tree):
    return tree_map_only(StoredTensor, lambda stored: stored.storage_dtype.load(stored), tree)


def _computed(func, args, kwargs, name):
    """Run a function on values; store those that it has written."""
    read: dict[int, tuple[StoredTensor, Tensor, int, Any]] = {}

    def load(stored: StoredTensor) -> Tensor:
        if id(stored) not in read:
            with pullback.inference_mode(False):  # whose tensors count no writes
                values = stored.storage_dtype.load(stored)
            read[id(stored)] = stored, values, values._version, values.grad_fn
        return read[id(stored)][1]

    args, kwargs = tree_map_only(StoredTensor, load, (args, kwargs))
    result = func(*args, **kwargs)
    written = {}
    for stored, values, version, node in read.values():
        if values._version != version:
            _store_again(stored, values, values.grad_fn is not node, name)
            written[id(values)] = stored
    if not written:
        return result
    return tree_map_only(Tensor, lambda item: written.get(id(item), item), result)


def _store_again(stored, values, is_recorded, name):
    kind = stored.storage_dtype
    if values.shape != stored.shape:
        raise RuntimeError(f"{name}: a tensor stored as {kind.name} cannot get another shape")
    if is_recorded:
        raise RuntimeError(
            f"{name}: a tensor stored as {kind.name} cannot be written where gradients of it are "
            f"recorded; use no_grad(), or an operation that is not in place"
        )
    for part, new in zip(stored.parts, kind.parts_of(values), strict=True):
        part.data = new  # which other tensors with these parts see, too


def _first(args, kwargs):
    return next(one for one in (*args, *kwargs.values()) if isinstance(one, StoredTensor))


class _Store(Function):
    """Storing a tensor, whose derivative is that of a cast."""

    @staticmethod
    def forward(ctx, tensor, kind):
        return kind.wrap(kind.parts_of(tensor), tensor)

    @staticmethod
    def backward(ctx, grad):
        return grad, None

    @staticmethod
    def jvp(ctx, tangent, _):
        return tangent.clone()


class _Load(Function):
    """The values of a stored tensor."""

    @staticmethod
    def forward(ctx, stored):
        return stored.storage_dtype.values(stored.parts, stored)

    @staticmethod
    def backward(ctx, grad):
        return grad

    @staticmethod
    def jvp(ctx, tangent):
        return tangent.clone()
