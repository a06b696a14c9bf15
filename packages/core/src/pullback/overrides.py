"""What calls go to ``__torch_function__``: tests, lists of functions, and modes; torch.overrides.

A class with the method ``__torch_function__`` receives the calls of operations, methods, attributes
and functions with one of its instances among the arguments, also inside a list or tuple.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any

from pullback import Tensor
from pullback._c.graph import overrides as _overrides
from pullback._c.graph.overrides import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    _disabled_torch_function_impl,
)
from pullback._c.python.overridable import Overridable as _Overridable
from pullback._help import explain_names as _explain_names

__all__ = [
    "BaseTorchFunctionMode",
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "TorchFunctionMode",
    "_disabled_torch_function_impl",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "resolve_name",
    "wrap_torch_function",
]


# ---- in functions that can be overridden ---------------------------------------------------------


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Return True if one of some arguments overrides calls, or a mode receives them.

    >>> import pullback
    >>> pullback.overrides.has_torch_function([pullback.ones(2), 3])
    False
    """
    return _overrides.is_overridden_call(*relevant_args)


def has_torch_function_unary(tensor: Any) -> bool:
    """Return True if an argument overrides calls, or a mode receives them.

    >>> import pullback
    >>> pullback.overrides.has_torch_function_unary(pullback.ones(2))
    False
    """
    return _overrides.is_overridden_call(tensor)


def has_torch_function_variadic(*args: Any) -> bool:
    """Return True if one of the arguments overrides calls, or a mode receives them.

    >>> import pullback
    >>> pullback.overrides.has_torch_function_variadic(pullback.ones(2), 3)
    False
    """
    return _overrides.is_overridden_call(*args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Call the override of a function and return its result.

    The innermost mode is asked first, then each class of the ``relevant_args`` that overrides:
    subclasses before their superclasses, others from left to right, until one returns something
    other than NotImplemented.

    Raises: TypeError when all return NotImplemented.

    >>> import pullback
    >>> class Named:
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         return f"{func.__name__} of {len(args)}"
    >>> def double(x):
    ...     if pullback.overrides.has_torch_function_unary(x):
    ...         return pullback.overrides.handle_torch_function(double, (x,), x)
    ...     return 2 * x
    >>> double(Named())
    'double of 1'
    """
    found = _overrides.overriding_arguments(tuple(relevant_args))
    result = _overrides.ask_arguments(public_api, found, args, kwargs)
    if result is NotImplemented:
        name = f"{public_api.__module__}.{public_api.__name__}"
        text = (
            f"no implementation found for '{name}' on types that implement __torch_function__: "
            f"{[type(arg) for arg in found]}"
        )
        modes = _overrides.mode_stack()
        raise TypeError(f"{text} nor in mode {modes[-1]}" if modes else text)
    return result


def wrap_torch_function(
    dispatcher: Callable[..., Iterable[Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that makes a function overridable.

    ``dispatcher`` takes the function's arguments and returns those that may override it.

    >>> import pullback
    >>> @pullback.overrides.wrap_torch_function(lambda x: (x,))
    ... def double(x):
    ...     return 2 * x
    >>> double(pullback.ones(1))
    tensor([2.])
    """

    def decorate(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


# ---- modes ---------------------------------------------------------------------------------------


class TorchFunctionMode:
    """A context manager whose ``__torch_function__`` receives all overridable calls of its thread.

    A subclass defines ``__torch_function__(self, func, types, args=(), kwargs=None)``. While that
    method runs the mode is off, so that ``func(*args, **kwargs)`` runs the function, or goes to the
    next outer mode.

    >>> import pullback
    >>> class Log(pullback.overrides.TorchFunctionMode):
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return func(*args, **(kwargs or {}))
    >>> with Log():
    ...     x = pullback.ones(2) + 1
    ones
    add
    """

    inner: TorchFunctionMode

    def __init__(self) -> None:
        pass

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError

    def __enter__(self) -> TorchFunctionMode:
        _overrides.push_mode(self)
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        _overrides.pop_mode()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> TorchFunctionMode:
        """Return an instance; ``with Mode()`` is the plain form."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that runs each function.

    >>> import pullback
    >>> with pullback.overrides.BaseTorchFunctionMode():
    ...     pullback.ones(1) + 1
    tensor([2.])
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **({} if kwargs is None else kwargs))


# ---- what can be overridden ----------------------------------------------------------------------

_NOT_OVERRIDDEN = {
    *("__class__", "__delattr__", "__delitem__", "__dir__", "__getattribute__", "__hash__"),
    *("__init__", "__init_subclass__", "__new__", "__reduce__", "__setattr__", "__sizeof__"),
    *("__subclasshook__", "__torch_function__", "__copy__", "__iter__", "__str__", "__doc__"),
    *("__getstate__", "__buffer__", "__array_priority__", "__module__", "__dict__", "__weakref__"),
    *("_make_subclass", "_make_wrapper_subclass", "as_subclass", "__release_buffer__"),
}


def _namespaces():
    import pullback

    yield pullback, "pullback"
    for name in ("nn.functional", "linalg", "special", "fft"):
        module = sys.modules.get(f"pullback.{name}")
        if module is None and name != "fft":
            __import__(f"pullback.{name}")
            module = sys.modules[f"pullback.{name}"]
        if module is not None:
            yield module, f"pullback.{name}"


@functools.cache
def _functions() -> tuple[dict[Any, list[Any]], dict[Any, str]]:
    """Return the overridable functions by namespace, and the name of each."""
    overridable: dict[Any, list[Any]] = {}
    names: dict[Any, str] = {}
    kinds = (_op_class(), _Overridable)
    for module, where in _namespaces():
        for name, value in vars(module).items():
            if isinstance(value, kinds) and not name.startswith("_"):
                names.setdefault(value, f"{where}.{name}")
                overridable.setdefault(module, []).append(value)
    members: dict[str, Any] = dict(vars(Tensor))
    for name, value in members.items():
        if name in _NOT_OVERRIDDEN:
            continue
        if hasattr(type(value), "__set__"):
            names[value.__get__] = f"pullback.Tensor.{name}.__get__"
            overridable.setdefault(Tensor, []).append(value.__get__)
            if getattr(value, "fset", None) is not None:
                names[value.__set__] = f"pullback.Tensor.{name}.__set__"
                overridable[Tensor].append(value.__set__)
        elif callable(value):
            value = getattr(Tensor, name)
            names.setdefault(value, f"pullback.Tensor.{name}")
            overridable.setdefault(Tensor, []).append(value)
    return overridable, names


def _op_class() -> type:
    from pullback import add

    return type(add)


def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """Return the functions that ``__torch_function__`` receives, by module or class.

    >>> import pullback
    >>> found = pullback.overrides.get_overridable_functions()
    >>> pullback.add in found[pullback], pullback.Tensor.size in found[pullback.Tensor]
    (True, True)
    """
    return {owner: list(functions) for owner, functions in _functions()[0].items()}


@functools.cache
def get_ignored_functions() -> set[Callable[..., Any]]:
    """Return public functions that are not overridable.

    >>> import pullback
    >>> pullback.is_tensor in pullback.overrides.get_ignored_functions()
    True
    """
    import pullback

    names = _functions()[1]
    found = {
        value
        for module, _where in _namespaces()
        for name, value in vars(module).items()
        if callable(value) and not isinstance(value, type) and not name.startswith("_")
    }
    found |= {
        getattr(Tensor, name) for name in _NOT_OVERRIDDEN if callable(getattr(Tensor, name, 0))
    }
    return {value for value in found if value not in names} | {pullback.is_tensor}


@functools.cache
def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return for each overridable function one of the same arguments that returns -1.

    >>> import pullback
    >>> pullback.overrides.get_testing_overrides()[pullback.add](1, 2)
    -1
    """
    return {function: _returns_minus_one(function) for function in _functions()[1]}


def _returns_minus_one(function: Callable[..., Any]) -> Callable[..., Any]:
    def stand_in(*args, **kwargs):
        return -1

    try:
        stand_in.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        pass
    return stand_in


def resolve_name(f: Callable[..., Any]) -> str | None:
    """Return the public name of an overridable function; None for any other.

    >>> import pullback
    >>> pullback.overrides.resolve_name(pullback.Tensor.shape.__get__)
    'pullback.Tensor.shape.__get__'
    """
    return _functions()[1].get(f)


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    """Return True for a method of Tensor, or the ``__get__`` of one of its properties.

    An operation that is a method and a function is one object, and counts as a method.

    >>> import pullback
    >>> pullback.overrides.is_tensor_method_or_property(pullback.Tensor.size)
    True
    """
    return func.__name__ in ("__get__", "__set__") or func in _functions()[0][Tensor]


def is_tensor_like(inp: Any) -> bool:
    """Return True for a tensor, and for an object whose class has ``__torch_function__``.

    >>> import pullback
    >>> pullback.overrides.is_tensor_like(pullback.ones(2)), pullback.overrides.is_tensor_like(2)
    (True, False)
    """
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")


_explain_names(globals())
