"""Functions that are compiled: ``compile``, and what programs say and ask about it.

Kernels are recorded at the first call of a kind and replayed later; no code is generated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any

from pullback._c.capture.compiled import is_capturing, refuse_now
from pullback.compiler import compiled as _compiled
from pullback.compiler.compiled import compile

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "reset",
    "set_stance",
]


def is_compiling() -> bool:
    """Return True in a function that ``compile`` runs to record its kernels.

    >>> import pullback
    >>> pullback.compiler.is_compiling()
    False
    """
    return bool(is_capturing())


def is_dynamo_compiling() -> bool:
    """Return what ``is_compiling`` returns.

    >>> import pullback
    >>> pullback.compiler.is_dynamo_compiling()
    False
    """
    return bool(is_capturing())


def is_exporting() -> bool:
    """Return False: no code is exported.

    >>> import pullback
    >>> pullback.compiler.is_exporting()
    False
    """
    return False


def disable(
    fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None
) -> Any:
    """Return a function that runs eagerly, and all that calls it too. Without one: a decorator.

    Raises: TypeError for what cannot be called.

    >>> import pullback
    >>> double = pullback.compiler.disable(lambda x: x * 2)
    >>> double(pullback.ones(2))
    tensor([2., 2.])
    """
    if fn is None:
        return lambda given: disable(given, recursive, reason=reason)
    if not callable(fn):
        raise TypeError(f"disable(): argument 'fn' must be callable, not {type(fn).__name__}")

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        refuse_now(f"a function that is disabled{'' if reason is None else ': ' + reason}")
        return fn(*args, **kwargs)

    return call


def _checked(name: str, fn: Any) -> Any:
    if isinstance(fn, (list, tuple)):
        return [_checked(name, one) for one in fn]
    if not callable(fn):
        raise AssertionError(f"{name} expects a callable")
    return fn


def allow_in_graph(fn: Any) -> Any:
    """Return a function, or a list of functions, as they are.

    Raises: AssertionError for what cannot be called.

    >>> import pullback
    >>> pullback.compiler.allow_in_graph(abs) is abs
    True
    """
    return _checked("allow_in_graph", fn)


def assume_constant_result(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as it is; its kernels are recorded as those of others are.

    >>> import pullback
    >>> pullback.compiler.assume_constant_result(abs) is abs
    True
    """
    return fn


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """Return an empty list: each device runs its own kernels.

    >>> import pullback
    >>> pullback.compiler.list_backends()
    []
    """
    return []


def reset() -> None:
    """Forget all that was recorded: the next call of each compiled function records again.

    >>> import pullback
    >>> double = pullback.compile(lambda x: x * 2)
    >>> _ = double(pullback.ones(2))
    >>> pullback.compiler.reset()
    >>> double.entries
    []
    """
    for one in list(_compiled.ALL):
        one.forget()


def cudagraph_mark_step_begin() -> None:
    """Do nothing: results of two calls never share memory.

    >>> import pullback
    >>> pullback.compiler.cudagraph_mark_step_begin()
    """


_STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")


class set_stance(ContextDecorator):
    """Set how compiled functions run, from now on or in a region; also a decorator.

    "default" records and replays; "force_eager" runs all functions eagerly; "eager_on_recompile"
    records nothing new, and "fail_on_recompile" raises RuntimeError where it would.

    Raises: RuntimeError for another name.

    >>> import pullback
    >>> double = pullback.compile(lambda x: x * 2)
    >>> with pullback.compiler.set_stance("force_eager"):
    ...     double(pullback.ones(2))
    tensor([2., 2.])
    >>> double.entries
    []
    """

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: Any = None,
    ):
        if stance not in _STANCES:
            raise RuntimeError(f"set_stance(): expected one of {_STANCES}, but got {stance!r}")
        self.stance = stance
        self._before = _compiled.stance
        _compiled.set_stance(stance)

    def __enter__(self) -> None:
        _compiled.set_stance(self.stance)

    def __exit__(self, *failure: Any) -> None:
        _compiled.set_stance(self._before)
