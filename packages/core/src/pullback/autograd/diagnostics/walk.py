"""Walks over a graph, without recursion, and what a node says of itself."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from pullback._c.graph.node import Node
from pullback._c.graph.overrides import DisableTorchFunction
from pullback._c.graph.tensor import Tensor
from pullback._c.python import node_methods, tensor_methods
from pullback.autograd.diagnostics.composed_hooks import Packed
from pullback.autograd.diagnostics.records import KEY

Diagnostic = TypeVar("Diagnostic", bound=Callable)


def unobserved(function: Diagnostic) -> Diagnostic:
    """Return a function whose calls no ``__torch_function__`` of a class or mode receives."""

    @functools.wraps(function)
    def run(*args, **kwargs):
        with DisableTorchFunction():
            return function(*args, **kwargs)

    return run  # type: ignore[return-value]


def edges_of(function, items):
    """Return the gradient edges (node, output number) of a tensor, an edge, or several of them.

    Raises: TypeError for anything else; RuntimeError for a tensor that does not require grad.
    """
    several = isinstance(items, Sequence) and not (isinstance(items, str) or is_edge(items))
    found = []
    for item in items if several else [items]:
        if is_edge(item):
            found.append((item[0], item[1]))
        elif isinstance(item, Tensor):
            edge = tensor_methods.gradient_edge(item)
            if edge is None:
                raise RuntimeError(f"{function}(): a tensor does not require grad: it has no graph")
            found.append((edge[0], edge[1]))
        else:
            raise TypeError(
                f"{function}(): expected a Tensor, a GradientEdge or a sequence of them, not "
                f"{type(item).__name__}"
            )
    return found


def is_edge(item):
    return isinstance(item, tuple) and len(item) > 1 and isinstance(item[0], Node)


def nodes_from(roots, stop=()):
    """Yield the nodes that are reachable from these, each once, and none behind those in ``stop``.

    Nodes in ``stop`` are not yielded.
    """
    seen = set(stop)
    waiting = list(reversed(roots))
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        waiting.extend([below for below, _ in reversed(node.next_functions) if below is not None])


def op_name(node: Node) -> str:
    """Return the name of the op that made a node; of other nodes the node's name."""
    op = node_methods.node_inside(node)
    return op.name if op is not None and not isinstance(op, Node) else node.name()


_FRAME = re.compile(r'\s*File "(.*)", line (\d+), in (.*)')


def source_line(node: Node) -> str | None:
    """Return the line that made a node, if it was noted: ``file:line, in function``."""
    notes = node_methods.known_metadata(node)
    if notes is None:
        return None
    if KEY in notes:
        return str(notes[KEY])
    frame = _FRAME.match(notes["traceback_"][-1]) if notes.get("traceback_") else None
    return None if frame is None else "{}:{}, in {}".format(*frame.groups())


def node_title(node: Node) -> str:
    """Return a node's name and sequence number, such as ``MulBackward0 #12``."""
    leaf = node.name().endswith("AccumulateGrad")
    return node.name() if leaf else f"{node.name()} #{node._sequence_nr()}"


def tensors_in(value, depth=2):
    """Yield the tensors that a value is, or that are in a tuple, list or dict of them."""
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item, depth - 1)
    elif depth and isinstance(value, dict):
        yield from tensors_in(list(value.values()), depth)
    elif isinstance(value, Packed):
        yield from tensors_in(value.value, depth)


def is_recomputed(packed):
    """True for what a checkpoint packs a saved tensor into.

    It belongs to a region, which runs again, and whose ``saved_args`` is a node with the arguments.
    """
    return hasattr(packed, "checkpoint_region")


def recomputed_values(node: Node):
    """Yield what a checkpoint recomputes for a node: its region, and name, shape and dtype."""
    inner = node_methods.node_inside(node)
    for name, kind, value in node_methods.saved_entries(inner if isinstance(inner, Node) else node):
        if kind == "packed" and is_recomputed(value[0]):
            yield (value[0].checkpoint_region, name, *value[1:])


def saved_tensors(node: Node):
    """Yield (name, kind, tensor or None) of what a node has saved, without hooks and checks.

    Beside the kinds of ``node_methods.saved_entries`` there is "attribute", of a custom Function's
    ctx. For a packed value without a tensor the last is None; what a checkpoint recomputes is left
    out.
    """
    inner = node_methods.node_inside(node)
    for name, kind, value in node_methods.saved_entries(inner if isinstance(inner, Node) else node):
        if kind != "packed":
            yield name, kind, value
            continue
        if is_recomputed(value[0]):
            continue
        found = list(tensors_in(value[0]))
        for tensor in found or [None]:
            yield name, kind, tensor
    if inner is None:
        for name, value in vars(node).items():
            for tensor in tensors_in(value):
                yield name, "attribute", tensor
