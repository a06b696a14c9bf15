"""Parameters and buffers that are functions of others: each function is a module.

A parametrized module gets a class of its own, with a property in the place of the tensor, and the
functions and their arguments in ``module.parametrizations``.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence

import pullback
from pullback import Tensor
from pullback.nn.modules.container import ModuleDict, ModuleList
from pullback.nn.parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

_cache_enabled = 0
_cache: dict[tuple[int, str], Tensor | None] = {}


@contextlib.contextmanager
def cached():
    """Compute each parametrized tensor once within the ``with`` block, when it is read first.

    >>> import pullback
    >>> from pullback import nn
    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
    >>> with nn.utils.parametrize.cached():
    ...     layer.weight is layer.weight
    True
    """
    global _cache, _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache = {}


def _put(module, name, tensor):
    """Register a tensor as what it is: a parameter or a buffer."""
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _replace(tensor, value):
    """Let a parameter or buffer have other memory; it stays the same object."""
    with pullback.no_grad():
        tensor.data = value.detach()


# ---- the functions of one tensor -----------------------------------------------------------------


class ParametrizationList(ModuleList):
    """The functions of one tensor, and their arguments: ``original``, or ``original0`` and so on.

    There are several arguments if the last ``right_inverse`` returns a sequence. Made by
    ``register_parametrization``.

    Raises: ValueError for no functions, and for ones that change dtype or shape, unless ``unsafe``.

    >>> import pullback
    >>> from pullback import nn
    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
    >>> layer.parametrizations.weight
    ParametrizationList(
      (0): _WeightNorm()
    )
    >>> layer.parametrizations.weight.original0.shape
    pullback.Size([1, 1])
    """

    original: Tensor
    unsafe: bool

    def __init__(self, modules, original, unsafe=False):
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with pullback.no_grad():
            new = original
            for module in reversed(self):
                if hasattr(module, "right_inverse"):
                    with contextlib.suppress(NotImplementedError):
                        new = module.right_inverse(new)
        if not isinstance(new, (Tensor, Sequence)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            self._take_one(original, new)
        else:
            self._take_several(original, new)
        if not unsafe:
            self._check_result(shape, dtype)

    def _take_one(self, original, new):
        if original.dtype != new.dtype:
            raise ValueError(
                "When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                f"original.dtype: {original.dtype}\n"
                f"right_inverse(original).dtype: {new.dtype}"
            )
        if original.device != new.device:
            raise ValueError(
                "When `right_inverse` outputs one tensor, it may not change the device.\n"
                f"original.device: {original.device}\n"
                f"right_inverse(original).device: {new.device}"
            )
        _replace(original, new)
        _put(self, "original", original)

    def _take_several(self, original, new):
        for number, tensor in enumerate(new):
            if not isinstance(tensor, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, "
                    f"tuple...). Got element {number} of the sequence with type "
                    f"{type(tensor).__name__}."
                )
            if isinstance(original, Parameter):
                tensor = Parameter(tensor, original.requires_grad)
            _put(self, f"original{number}", tensor)

    def _check_result(self, shape, dtype):
        found = self()
        if not isinstance(found, Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(found).__name__}.")
        for what, before, after in (
            ("dtype", dtype, found.dtype),
            ("shape", shape, found.shape),
        ):
            if before != after:
                raise ValueError(
                    f"Registering a parametrization may not change the {what} of the tensor, "
                    "unless `unsafe` flag is enabled.\n"
                    f"unparametrized {what}: {before}\n"
                    f"parametrized {what}: {after}"
                )

    def _originals(self):
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{number}") for number in range(self.ntensors)]

    def right_inverse(self, value):
        """Set the originals so that the functions give ``value``; called when it is assigned."""
        with pullback.no_grad():
            for module in reversed(self):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(
                        f"parametrization {type(module).__name__} does not implement right_inverse."
                    )
                value = module.right_inverse(value)
            if self.is_tensor:
                if not isinstance(value, Tensor):
                    raise ValueError(
                        f"`right_inverse` should return a tensor. Got {type(value).__name__}"
                    )
                if value.dtype != self.original.dtype:
                    raise ValueError(
                        f"The tensor returned by `right_inverse` has dtype {value.dtype} while "
                        f"`original` has dtype {self.original.dtype}"
                    )
                _replace(self.original, value)
            else:
                self._set_several(value)

    def _set_several(self, values):
        if not isinstance(values, Sequence):
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors. Got {type(values).__name__}."
            )
        if len(values) != self.ntensors:
            raise ValueError(
                "'right_inverse' must return a sequence of tensors of length "
                f"{self.ntensors}. Got a sequence of length {len(values)}."
            )
        for number, (tensor, original) in enumerate(zip(values, self._originals(), strict=True)):
            if not isinstance(tensor, Tensor):
                raise ValueError(
                    "`right_inverse` must return a sequence of tensors. Got element "
                    f"{number} of type {type(tensor).__name__}"
                )
            if original.dtype != tensor.dtype:
                raise ValueError(
                    f"Tensor {number} returned by `right_inverse` has dtype {tensor.dtype} while "
                    f"`original{number}` has dtype {original.dtype}"
                )
            _replace(original, tensor)

    def forward(self):
        first, *rest = self
        value = first(*self._originals())
        for module in rest:
            value = module(value)
        return value


# ---- classes of parametrized modules -------------------------------------------------------------


def _without_pickle(self):
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict()."
    )


def _deep_copy(self, memo):
    made = memo.get(id(self))
    if made is None:
        made = memo[id(self)] = type(self).__new__(type(self))
        vars(made).update(copy.deepcopy(vars(self), memo))
    return made


def _inject_class(module):
    """Give a module a class of its own."""
    kind = type(module)
    members = {"__getstate__": _without_pickle, "__module__": __name__}
    if not hasattr(kind, "__deepcopy__"):
        members["__deepcopy__"] = _deep_copy
    module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), members)


def _inject_property(module, name):
    """Make a tensor of a module a property of its class."""

    def get(self):
        functions = self.parametrizations[name]
        if not _cache_enabled:
            return functions()
        key = (id(self), name)
        value = _cache.get(key)
        if value is None:
            value = _cache[key] = functions()
        return value

    def put(self, value):
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(get, put))


def register_parametrization(module, tensor_name, parametrization, *, unsafe=False):
    """Make a parameter or buffer ``parametrization(itself)``; return the module.

    ``parametrization`` is a module. Registered ones follow each other, the last one outermost. If
    it has a method ``right_inverse``, this computes its argument from the tensor, now and when the
    tensor is assigned; it may return several arguments. Shape and dtype may change if ``unsafe``.

    Raises: ValueError if there is no such tensor, or it would change shape or dtype.

    >>> import pullback
    >>> from pullback import nn
    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).T
    >>> layer = nn.Linear(3, 3)
    >>> _ = nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.T).all())
    True
    >>> list(layer.state_dict())
    ['bias', 'parametrizations.weight.original']
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_further(module, tensor_name, parametrization)
        functions = module.parametrizations[tensor_name]
        functions.append(parametrization)
        functions.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        functions = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = functions
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    return module


def _check_further(module, name, parametrization):
    """Check that one more function keeps shape and dtype, and its right inverse too."""
    before = getattr(module, name)
    after = parametrization(before)
    if not isinstance(after, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    for what in ("dtype", "shape"):
        if getattr(before, what) != getattr(after, what):
            raise ValueError(
                f"Registering a parametrization may not change the {what} of the tensor, unless "
                "the `unsafe` flag is enabled.\n"
                f"module.{name}.{what}: {getattr(before, what)}\n"
                f"parametrization(module.{name}).{what}: {getattr(after, what)}"
            )
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(after)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ValueError(
            f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}"
        )
    for what in ("dtype", "shape"):
        if getattr(before, what) != getattr(back, what):
            raise ValueError(
                f"The tensor returned by parametrization.right_inverse must have the same {what} "
                f"as module.{name}, unless the `unsafe` flag is enabled.\n"
                f"module.{name}.{what}: {getattr(before, what)}\n"
                f"returned {what}: {getattr(back, what)}"
            )


def is_parametrized(module, tensor_name=None):
    """Return whether a tensor of a module is parametrized; without a name, whether any is.

    >>> import pullback
    >>> pullback.nn.utils.parametrize.is_parametrized(pullback.nn.Linear(2, 1), "weight")
    False
    """
    functions = getattr(module, "parametrizations", None)
    if not isinstance(functions, ModuleDict):
        return False
    return len(functions) > 0 if tensor_name is None else tensor_name in functions


def remove_parametrizations(module, tensor_name, leave_parametrized=True):
    """Make a tensor a parameter or buffer of the module again; return the module.

    It keeps the value that the functions gave, or, with ``leave_parametrized=False``, gets that of
    the original.

    Raises: ValueError if it is not parametrized, or for several originals without
    ``leave_parametrized``.

    >>> import pullback
    >>> from pullback import nn
    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
    >>> list(nn.utils.parametrize.remove_parametrizations(layer, "weight").state_dict())
    ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    functions = module.parametrizations[tensor_name]
    if functions.is_tensor:
        original = functions.original
        if leave_parametrized:
            _replace(original, getattr(module, tensor_name))
    elif leave_parametrized:
        original = getattr(module, tensor_name)
        if original.requires_grad:
            original = Parameter(original.detach())
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    del module.parametrizations[tensor_name]
    delattr(type(module), tensor_name)
    _put(module, tensor_name, original)
    if not len(module.parametrizations):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module):
    """Return the class that a module had before it was parametrized.

    >>> import pullback
    >>> from pullback import nn
    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
    >>> nn.utils.parametrize.type_before_parametrizations(layer).__name__
    'Linear'
    """
    kind = type(module)
    return kind.__bases__[0] if is_parametrized(module) else kind


def transfer_parametrizations_and_params(from_module, to_module, tensor_name=None):
    """Let a module share the parametrizations of another one; return it.

    ``tensor_name`` chooses one tensor, by default all that are parametrized.

    >>> import pullback
    >>> from pullback import nn
    >>> source = nn.utils.parametrizations.weight_norm(nn.Linear(2, 1))
    >>> target = nn.Linear(2, 1)
    >>> target = nn.utils.parametrize.transfer_parametrizations_and_params(source, target)
    >>> bool((target.weight == source.weight).all())
    True
    """
    if not is_parametrized(from_module):
        return to_module
    functions = from_module.parametrizations
    for name in list(functions) if tensor_name is None else [tensor_name]:
        given = functions[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        for function in given:
            register_parametrization(to_module, name, function)
        made = to_module.parametrizations[name]
        if given.is_tensor:
            made.original = given.original
        else:
            for number in range(given.ntensors):
                setattr(made, f"original{number}", getattr(given, f"original{number}"))
    return to_module
