"""Fusion: which elementwise calls of a compiled program become one kernel.

A fusion group has consecutive calls over the same elements. A call may join unless an element of it
would read what another thread of the kernel writes, or the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

MOST_OPERANDS = 16  # that one kernel loads or stores
MOST_SCALARS = 64  # numbers of the host
MOST_CALLS = 48
MOST_DIMS = 6
MOST_ELEMENTS = 1 << 30
FURTHEST = 0x7FFFFFFF  # bytes between elements of an operand


class Operand(NamedTuple):
    """One operand of a call: as in ``pb_array`` and ``pb_part`` of abi.h."""

    number: int  # among all operands of the part
    dtype: int
    itemsize: int
    host: bool  # one number in host memory
    block: int
    offset: int  # in bytes from the begin of the block
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    inner: bool

    @property
    def key(self) -> tuple:
        """What operands over the same dims have in common if their elements are the same."""
        return self[1:2] + self[4:8]

    def extent(self) -> tuple[int, int]:
        """Return the first byte and the one after the last, from the begin of the block."""
        steps = [s * (n - 1) for s, n in zip(self.strides, self.shape, strict=True)]
        low = self.offset + self.itemsize * sum(min(step, 0) for step in steps)
        return low, low + self.itemsize * (1 + sum(map(abs, steps)))

    def overlaps(self, other: Operand) -> bool:
        """Tell whether two operands may share memory."""
        if self.host or other.host or self.block != other.block:
            return False
        (first, last), (other_first, other_last) = self.extent(), other.extent()
        return first < other_last and other_first < last

    def expanded(self, shape: tuple[int, ...]) -> Operand | None:
        """Return an operand of one dim over several; None if its elements are not contiguous."""
        if self.host or self.strides == (0,):
            return self._replace(shape=shape, strides=(0,) * len(shape))
        if self.strides not in ((), (1,)):
            return None
        strides = tuple(prod(shape[d + 1 :]) for d in range(len(shape)))
        return self._replace(shape=shape, strides=strides)


class Operation(NamedTuple):
    """What a call computes: a struct of a kernel family, or none where elements are moved."""

    family: str  # the .cu file; "" for a copy, "where" for a choice
    name: str
    exchanged: bool = False  # the inputs


class Call(NamedTuple):
    """A call that may be fused: its output, then its inputs."""

    operation: Operation
    operands: tuple[Operand, ...]

    @property
    def out(self) -> Operand:
        """The output."""
        return self.operands[0]

    def expanded(self, shape: tuple[int, ...]) -> Call | None:
        """Return the call over other dims with as many elements; None if there is no such call."""
        if self.out.shape == shape:
            return self
        if len(self.out.shape) > 1 or prod(self.out.shape) != prod(shape):
            return None
        operands = [one.expanded(shape) for one in self.operands]
        found = tuple(one for one in operands if one is not None)
        return self._replace(operands=found) if len(found) == len(operands) else None


class FusionGroup:
    """Calls that become one kernel, over the dims ``shape``; ``first`` numbers the first one."""

    def __init__(self, first: int, shape: tuple[int, ...]):
        self.first, self.shape = first, shape
        self.calls: list[Call] = []
        self.scalars: list[Operand] = []
        self.stored: list[Operand] = []
        self._loaded: dict[tuple, Operand] = {}  # by key
        self._written: dict[tuple, Operand] = {}  # by key: the last output
        self._blocks: dict[int, dict[tuple, Operand]] = {}  # what is read or written, by key

    @property
    def loaded(self) -> list[Operand]:
        """The operands that the kernel reads from memory."""
        return list(self._loaded.values())

    def _new_loads(self, call: Call) -> Iterator[Operand]:
        for one in call.operands[1:]:
            if not one.host and one.key not in self._written and one.key not in self._loaded:
                yield one

    def accepts(self, call: Call) -> bool:
        """Tell whether a call over the group's dims may join."""
        outputs = sum(not one.inner for one in {**self._written, call.out.key: call.out}.values())
        loads = len(self._loaded) + sum(1 for _ in self._new_loads(call))
        scalars = len(self.scalars) + sum(one.host for one in call.operands)
        if (
            len(self.calls) == MOST_CALLS
            or max(outputs, 1) + loads > MOST_OPERANDS
            or scalars > MOST_SCALARS
        ):
            return False
        for one in call.operands:
            for key, other in self._blocks.get(one.block, {}).items():
                written = key in self._written or one is call.out
                if written and key != one.key and one.overlaps(other):
                    return False
        return True

    def add(self, call: Call) -> None:
        """Add a call."""
        for one in self._new_loads(call):
            self._loaded[one.key] = one
        self._written[call.out.key] = call.out
        for one in call.operands:
            if one.host:
                self.scalars.append(one)
            else:
                self._blocks.setdefault(one.block, {})[one.key] = one
        self.calls.append(call)

    def finish(self, later: Sequence[Sequence[Operand]]) -> bool:
        """Find what the kernel stores; False if it would be no gain.

        ``later`` has the operands of the part's calls after the group, of each its output first.
        """
        self.stored = [one for one in self._written.values() if _is_read(one, later)]
        used = len(self._loaded) + len(self.stored)
        return len(self.calls) > 1 and len(self.stored) > 0 and used <= MOST_OPERANDS


def _is_read(out: Operand, later: Sequence[Sequence[Operand]]) -> bool:
    """Tell whether an output's memory is of use after the group."""
    if not out.inner:
        return True
    for operands in later:
        if any(one.overlaps(out) for one in operands[1:]):
            return True
        if operands[0].key == out.key:  # written again, as a whole
            return False
    return False


def _fits(call: Call) -> bool:
    """Tell whether the offsets of a call's elements are small enough, and its dims few."""
    if not (0 < prod(call.out.shape) < MOST_ELEMENTS and len(call.out.shape) <= MOST_DIMS):
        return False
    extents = [one.extent() for one in call.operands if not one.host]
    return all(last - first < FURTHEST for first, last in extents)


def find_groups(
    calls: Sequence[Call | None], operands: Sequence[Sequence[Operand]]
) -> list[FusionGroup]:
    """Return the fusion groups of a part, in order.

    ``calls`` has None for a call that cannot be fused, ``operands`` those of all calls.
    """
    groups: list[FusionGroup] = []
    group: FusionGroup | None = None
    for number, call in enumerate([*calls, None]):
        joined = None
        if call is not None and _fits(call):
            joined = _joined(group, call) if group is not None else None
        if joined is None and group is not None and group.finish(operands[number:]):
            groups.append(group)
        if joined is None and call is not None and _fits(call):
            joined = FusionGroup(number, call.out.shape)
            joined.add(call)
        group = joined
    return groups


def _joined(group: FusionGroup, call: Call) -> FusionGroup | None:
    """Return a group with one more call; None where it cannot have it."""
    fitted = call.expanded(group.shape)
    if fitted is None:  # perhaps the group is over one dim, and the call over several
        wider = FusionGroup(group.first, call.out.shape)
        for one in group.calls:
            expanded = one.expanded(wider.shape)
            if expanded is None:
                return None
            wider.add(expanded)
        group, fitted = wider, call
    if not group.accepts(fitted):
        return None
    group.add(fitted)
    return group
