"""Names of torch's compiler that programs ask although the module is private."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pullback._dynamo import _trace_wrapped_higher_order_op, eval_frame, utils
from pullback.compiler import allow_in_graph, assume_constant_result, disable, is_compiling, reset
from pullback.compiler.modules import OptimizedModule

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "disable",
    "eval_frame",
    "graph_break",
    "is_compiling",
    "is_dynamo_supported",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "reset",
    "utils",
]

config = SimpleNamespace()  # which programs set, and nothing reads


def graph_break(msg: str = "") -> None:
    """Do nothing: there is no graph to break.

    >>> import pullback._dynamo
    >>> pullback._dynamo.graph_break()
    """


def _marks(name: str) -> Any:
    def mark(t: Any, *args: Any, **kwargs: Any) -> None:
        return None

    mark.__name__ = mark.__qualname__ = name
    mark.__doc__ = f"""Do nothing: torch's compiler takes a tensor's sizes or address as marked.

    >>> import pullback._dynamo
    >>> pullback._dynamo.{name}(pullback.ones(2))
    """
    return mark


mark_dynamic = _marks("mark_dynamic")
mark_static = _marks("mark_static")
mark_static_address = _marks("mark_static_address")


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """Return an empty list: ``compile`` has no backends to choose from.

    >>> import pullback._dynamo
    >>> pullback._dynamo.list_backends()
    []
    """
    return []


def is_dynamo_supported() -> bool:
    """Return False: ``compile`` records kernels, and does not trace Python's bytecode.

    >>> import pullback._dynamo
    >>> pullback._dynamo.is_dynamo_supported()
    False
    """
    return False
