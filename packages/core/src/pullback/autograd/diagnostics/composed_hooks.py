"""Saved-tensor hooks that select what they pack, and pass what they packed to enclosing hooks."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

from pullback._c.base import state
from pullback._c.graph.op import Op
from pullback._c.graph.saved import SelectivePack
from pullback._c.graph.tensor import Tensor
from pullback.ops import ops as table


class Moved(NamedTuple):
    """A packed tensor and the device it came from: enclosing hooks may pack the tensor again."""

    device: Any
    tensor: Any


class Packed:
    """What a chain of hooks made of a tensor, and the hooks that undo it, the last first."""

    __slots__ = ("steps", "value")

    def __init__(self, value, steps):
        self.value = value
        self.steps = steps


class Selection:
    """Which saved tensors a pair of hooks takes: the arguments of ``saved_tensors_hooks``."""

    def __init__(self, ops, min_bytes, predicate):
        if isinstance(min_bytes, bool) or not isinstance(min_bytes, int):
            raise TypeError(
                f"saved_tensors_hooks(): argument 'min_bytes' must be int, not "
                f"{type(min_bytes).__name__}"
            )
        if min_bytes < 0:
            raise ValueError(
                f"saved_tensors_hooks(): argument 'min_bytes' must be at least 0, got {min_bytes}"
            )
        if predicate is not None and not callable(predicate):
            raise TypeError(
                f"saved_tensors_hooks(): predicate must be callable, not {type(predicate).__name__}"
            )
        if isinstance(ops, str) or not isinstance(ops, Iterable):
            ops = None if ops is None else [ops]
        self.names = None if ops is None else frozenset(map(_checked, ops))
        self.min_bytes = min_bytes
        self.predicate = predicate

    def takes(self, tensor, op, node):
        """Return True if the hooks take a tensor that this op, or a node of this name, saves."""
        if self.names is not None and self.names.isdisjoint((_plain(op), _plain(node))):
            return False
        if tensor.numel() * tensor.element_size() < self.min_bytes:
            return False
        return self.predicate is None or bool(self.predicate(tensor))


def _checked(name):
    """Return the plain name of an op that saves tensors, or of a node."""
    if not isinstance(name, str):
        raise TypeError(
            f"saved_tensors_hooks(): argument 'ops' must be names of ops or nodes, not "
            f"{type(name).__name__}"
        )
    if "Backward" in name:
        return _plain(name)
    op = getattr(table, _plain(name), None)
    if not isinstance(op, Op):
        raise ValueError(
            f"saved_tensors_hooks(): argument 'ops': no op has the name {name!r}; "
            f"graph.memory(tensor).by_op lists the ops that saved something"
        )
    if op.is_composite:
        raise ValueError(
            f"saved_tensors_hooks(): argument 'ops': {name!r} is composed of other ops, which save "
            f"its tensors; graph.memory(tensor).by_op lists them"
        )
    return _plain(op.name)


def _plain(name):
    """Return a name without the number of an overload, or the mark of an in-place form."""
    return name.rstrip("0123456789") if "Backward" in name else name.rstrip("_")


def composed(pack_hook, unpack_hook, compose, selection):
    """Return the pair that runs these hooks on what they take, then the thread's innermost ones."""
    around = state.saved_tensor_hooks()

    def pack(tensor, op, node):
        if selection is not None and not selection.takes(tensor, op, node):
            return _pack_around(around, tensor, op, node)
        packed = pack_hook(tensor)
        moved = isinstance(packed, Moved)
        goes_on = packed.tensor if moved else packed
        outer = NotImplemented
        if compose and isinstance(goes_on, Tensor):
            outer = _pack_around(around, goes_on, op, node)
        if outer is NotImplemented:
            return Packed(packed, (unpack_hook,))
        step = (
            functools.partial(_unpack_moved, unpack_hook, packed.device) if moved else unpack_hook
        )
        return Packed(outer.value, (*outer.steps, step))

    return SelectivePack(pack), unpack


def _unpack_moved(unpack_hook, device, tensor):
    return unpack_hook(Moved(device, tensor))


def _pack_around(around, tensor, op, node):
    """Pack a tensor by the enclosing pair; NotImplemented where none takes it."""
    if around is None:
        return NotImplemented
    pack_hook, unpack_hook, _ = around
    if isinstance(pack_hook, SelectivePack):
        return pack_hook.function(tensor, op, node)
    return Packed(pack_hook(tensor), (unpack_hook,))


def unpack(packed):
    """Undo the hooks of a chain, the outermost first."""
    value = packed.value
    for position, step in enumerate(packed.steps):
        if position and not isinstance(value, Tensor):
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of "
                f"type {type(value)}"
            )
        value = step(value)
    return value
