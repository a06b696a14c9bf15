"""torch.jit's names for programs that run without TorchScript; nothing is compiled.

Annotations and questions answer as torch does outside a compiled program. ``script`` and ``trace``
return what they are given, which runs eagerly with the same results, as torch's own do where the
environment variable ``PYTORCH_JIT`` is 0. Where it is not, the first such call warns.
"""

import os
import warnings
from collections import namedtuple
from collections.abc import Callable
from typing import Any, Final

import pullback.jit.annotations as annotations
from pullback.nn import Module

__all__ = [
    "Attribute",
    "Error",
    "Final",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "ScriptWarning",
    "TopLevelTracedModule",
    "TracedModule",
    "TracerWarning",
    "TracingCheckError",
    "annotate",
    "annotations",
    "export",
    "fork",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "script",
    "script_if_tracing",
    "script_method",
    "trace",
    "trace_module",
    "unused",
    "wait",
]

Attribute = namedtuple("Attribute", ["value", "type"])
Attribute.__doc__ = "A value and its type, for an attribute of a ScriptModule."


class Error(RuntimeError):
    """What a compiled program would raise."""


class TracingCheckError(Exception):
    """What a trace that does not agree with its function would raise."""


class ScriptWarning(Warning):
    """A warning about code that is compiled."""


class TracerWarning(Warning):
    """A warning about code that is traced.

    >>> import pullback
    >>> pullback.jit.TracerWarning.ignore_lib_warnings()
    """

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Do nothing: there is no tracer that warns."""


class ScriptModule(Module):
    """A module that is not compiled; with ``PYTORCH_JIT=0`` torch's is one, too."""

    def __init__(self, arg: Any = None):
        super().__init__()


class RecursiveScriptModule(ScriptModule):
    """The class of what ``script`` makes of a module in torch; nothing here is one."""


class TracedModule(ScriptModule):
    """The class of what ``trace`` makes of a module in torch; nothing here is one."""


class TopLevelTracedModule(TracedModule):
    """The class of what ``trace`` makes of a whole module in torch; nothing here is one."""


class ScriptFunction:
    """The class of what ``script`` makes of a function in torch; nothing here is one."""

    def __init__(self) -> None:
        raise NotImplementedError("pullback.jit.ScriptFunction: TorchScript is left out")


_has_warned = False


def _unchanged(name: str, given: Any) -> Any:
    """Return what is given; the first call of the process warns that it is not compiled."""
    global _has_warned
    if not _has_warned and os.environ.get("PYTORCH_JIT") != "0":
        _has_warned = True
        warnings.warn(
            f"pullback.jit.{name}: TorchScript is left out; functions and modules run eagerly. "
            "This warning is given once; PYTORCH_JIT=0 turns it off.",
            ScriptWarning,
            stacklevel=3,
        )
    return given


def is_scripting() -> bool:
    """Return False: no code is compiled.

    >>> import pullback
    >>> pullback.jit.is_scripting()
    False
    """
    return False


def is_tracing() -> bool:
    """Return False: no code is traced.

    >>> import pullback
    >>> pullback.jit.is_tracing()
    False
    """
    return False


def script(
    obj: Any,
    optimize: None = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> Any:
    """Return a function, class or module as it is: it runs eagerly.

    Warns once, unless the environment variable ``PYTORCH_JIT`` is 0.

    >>> import pullback, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     double = pullback.jit.script(lambda x: x * 2)
    >>> double(pullback.ones(2))
    tensor([2., 2.])
    """
    return _unchanged("script", obj)


def script_method(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a ScriptModule as it is.

    Warns once, as ``script`` does.

    >>> import pullback, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pullback.jit.script_method(len) is len
    True
    """
    return _unchanged("script_method", fn)


def trace(func: Callable[..., Any], example_inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Return a function or module as it is; it is not run.

    Warns once, as ``script`` does.

    >>> import pullback, warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pullback.jit.trace(abs, pullback.ones(2)) is abs
    True
    """
    return _unchanged("trace", func)


def trace_module(mod: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a module as it is; its methods are not run.

    Warns once, as ``script`` does.

    >>> import pullback, warnings
    >>> model = pullback.nn.ReLU()
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     pullback.jit.trace_module(model, {}) is model
    True
    """
    return _unchanged("trace_module", mod)


def script_if_tracing(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as it is: it would be compiled when it is traced.

    >>> import pullback
    >>> pullback.jit.script_if_tracing(abs) is abs
    True
    """
    return fn


def export(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method as it is: a compiler would take it as an entry point.

    >>> import pullback
    >>> pullback.jit.export(abs) is abs
    True
    """
    return fn


def unused(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method as it is: a compiler would leave it out.

    >>> import pullback
    >>> pullback.jit.unused(abs) is abs
    True
    """
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Return a method as it is, with or without arguments of the decorator.

    Raises: RuntimeError for ``drop`` that is neither a bool nor callable.

    >>> import pullback
    >>> pullback.jit.ignore(abs) is abs and pullback.jit.ignore(drop=True)(abs) is abs
    True
    """
    if callable(drop):
        return drop
    if not isinstance(drop, bool):
        raise RuntimeError(
            f"Argument to @pullback.jit.ignore must be a bool or a function but got {drop}"
        )
    return lambda fn: fn


def interface(obj: type) -> type:
    """Return a class of methods without bodies as it is.

    Raises: RuntimeError for anything but a class that inherits from ``object`` alone.

    >>> import pullback
    >>> @pullback.jit.interface
    ... class Layer:
    ...     def forward(self, x): ...
    """
    if not isinstance(obj, type):
        raise RuntimeError("interface must be applied to a class")
    if len(obj.mro()) != 2:
        raise RuntimeError("TorchScript interfaces must inherit from 'object'")
    return obj


def annotate(the_type: Any, the_value: Any) -> Any:
    """Return a value; its type is for a compiler.

    >>> import pullback
    >>> pullback.jit.annotate(list[int], [])
    []
    """
    return the_value


class _Future:
    def __init__(self, value: Any):
        self.value = value

    def wait(self) -> Any:
        return self.value


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> _Future:
    """Call a function at once, as torch does outside TorchScript; ``wait`` returns its result.

    >>> import pullback
    >>> pullback.jit.wait(pullback.jit.fork(max, 2, 3))
    3
    """
    return _Future(func(*args, **kwargs))


def wait(future: Any) -> Any:
    """Return the result of a function that ``fork`` called.

    >>> import pullback
    >>> pullback.jit.wait(pullback.jit.fork(min, 2, 3))
    2
    """
    return future.wait()


def _overload(func: Callable[..., Any]) -> Callable[..., Any]:
    return func  # one of several signatures, for a compiler


_script_if_tracing = script_if_tracing
_overload_method = _overload
