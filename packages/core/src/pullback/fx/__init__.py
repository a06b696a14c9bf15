"""torch.fx's names for programs that run eagerly; symbolic tracing is left out.

Libraries import the classes to inherit from them and for annotations. Making an object of one, and
tracing, raises NotImplementedError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.fx import graph, graph_module, node, proxy
from pullback.fx._refused import LeftOut
from pullback.fx.graph import CodeGen, Graph
from pullback.fx.graph_module import GraphModule
from pullback.fx.node import Node
from pullback.fx.proxy import Proxy

__all__ = [
    "CodeGen",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "Tracer",
    "Transformer",
    "graph",
    "graph_module",
    "node",
    "proxy",
    "symbolic_trace",
    "wrap",
]


class Tracer(LeftOut):
    """What records a graph of a module in torch; cannot be made."""


class Interpreter(LeftOut):
    """What runs a graph node by node in torch; cannot be made."""


class Transformer(Interpreter):
    """What runs a graph into another one in torch; cannot be made."""


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """Refuse: there is no symbolic tracing.

    Raises: NotImplementedError.

    >>> import pullback
    >>> pullback.fx.symbolic_trace(pullback.nn.ReLU())
    Traceback (most recent call last):
    NotImplementedError: pullback.fx.symbolic_trace: symbolic tracing is left out
    """
    raise NotImplementedError("pullback.fx.symbolic_trace: symbolic tracing is left out")


def wrap(fn_or_name: str | Callable[..., Any]) -> str | Callable[..., Any]:
    """Return a function or its name as it is: a tracer would record its calls.

    Raises: RuntimeError for anything else.

    >>> import pullback
    >>> pullback.fx.wrap(len) is len
    True
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    return fn_or_name
