"""torch.compiler's names for programs that run eagerly: nothing is compiled or exported."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any

from pullback.func._control_flow import compile

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
    """Return False: no code is compiled or exported.

    >>> import pullback
    >>> pullback.compiler.is_compiling()
    False
    """
    return False


def is_dynamo_compiling() -> bool:
    """Return False: no code is compiled.

    >>> import pullback
    >>> pullback.compiler.is_dynamo_compiling()
    False
    """
    return False


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
    """Return a function as it is: it is not compiled in any case. Without one it is a decorator.

    >>> import pullback
    >>> pullback.compiler.disable(abs) is abs and pullback.compiler.disable()(abs) is abs
    True
    """
    return (lambda given: given) if fn is None else fn


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
    """Return a function as it is; each call computes its result anew.

    >>> import pullback
    >>> pullback.compiler.assume_constant_result(abs) is abs
    True
    """
    return fn


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """Return an empty list: there is no compiler.

    >>> import pullback
    >>> pullback.compiler.list_backends()
    []
    """
    return []


def reset() -> None:
    """Do nothing: there is no compiled code to forget.

    >>> import pullback
    >>> pullback.compiler.reset()
    """


def cudagraph_mark_step_begin() -> None:
    """Do nothing: no graph of kernels is captured.

    >>> import pullback
    >>> pullback.compiler.cudagraph_mark_step_begin()
    """


class set_stance(ContextDecorator):
    """Accept how calls should be compiled; all of them run eagerly. Also a region and a decorator.

    >>> import pullback
    >>> with pullback.compiler.set_stance("force_eager"):
    ...     pullback.ones(2).sum()
    tensor(2.)
    """

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: Any = None,
    ):
        self.stance = stance

    def __enter__(self) -> None:
        return None

    def __exit__(self, *failure: Any) -> None:
        return None
