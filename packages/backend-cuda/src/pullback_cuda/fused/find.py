"""Which calls of a compiled program run as one kernel: elementwise ones over the same elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_OPERANDS = 16  # that one kernel loads or stores
MOST_SCALARS = 64  # numbers of the host
MOST_CALLS = 48
MOST_DIMS = 6
FURTHEST = 0x7FFFFFFF  # bytes between elements of an operand
SIZES = (1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16)  # of an element, by pb_dtype


class Operand(NamedTuple):
    """One operand of a call: as in ``pb_array`` and ``pb_part`` of abi.h."""

    number: int  # among all operands of the part
    dtype: int
    host: bool  # one number in host memory
    block: int
    offset: int  # in bytes from the begin of the block
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements
    inner: bool = False

    def reach(self) -> tuple[int, int]:
        """Return the first byte and the one after the last, from the begin of the block."""
        size = SIZES[self.dtype]
        steps = [step * (n - 1) * size for step, n in zip(self.strides, self.shape, strict=True)]
        low = self.offset + sum(min(step, 0) for step in steps)
        return low, low + sum(map(abs, steps)) + size

    def overlaps(self, other: Operand) -> bool:
        """Tell whether two operands may share memory."""
        if self.host or other.host or self.block != other.block:
            return False
        (first, last), (other_first, other_last) = self.reach(), other.reach()
        return first < other_last and other_first < last

    def is_same(self, other: Operand) -> bool:
        """Tell whether two operands over the same dims have the same elements."""
        return not self.host and not other.host and self[3:7] + self[1:2] == other[3:7] + other[1:2]


class Operation(NamedTuple):
    """What a call computes: a struct of the kernels' text, or none where elements are moved."""

    family: str  # the .cu file; "" for a copy, "where" for a choice
    name: str
    exchanged: bool = False  # the inputs


class Call(NamedTuple):
    """A call that may be part of a generated kernel: its output, then its inputs."""

    number: int
    operation: Operation
    operands: tuple[Operand, ...]

    @property
    def out(self) -> Operand:
        """The output."""
        return self.operands[0]


@dataclass
class Run:
    """Calls that run as one kernel, over the dims ``shape``."""

    first: int
    shape: tuple[int, ...]
    calls: list[Call] = field(default_factory=list)
    loaded: list[Operand] = field(default_factory=list)
    scalars: list[Operand] = field(default_factory=list)
    stored: list[Operand] = field(default_factory=list)

    def expanded(self, call: Call) -> Call | None:
        """Return a call over this run's dims; None if it runs over others."""
        if call.out.shape == self.shape:
            return call
        operands = []
        for one in call.operands:
            found = _expand(one, call.out.shape, self.shape)
            if found is None or _count(call.out.shape) != _count(self.shape):
                return None
            operands.append(found)
        return call._replace(operands=tuple(operands))

    def takes(self, call: Call) -> bool:
        """Tell whether a call may join: each element needs and changes no others of the run."""
        if len(self.calls) == MOST_CALLS:
            return False
        needed = sum(not one.out.inner for one in [*self.calls, call])
        for position, one in enumerate([*self.calls, call]):
            before = [earlier.out for earlier in self.calls[:position]]
            needed += sum(
                not operand.host and not any(operand.is_same(out) for out in before)
                for operand in one.operands[1:]
            )
        if needed >= MOST_OPERANDS:  # what is inner may be stored for a later call
            return False
        for earlier in self.calls:
            for read in call.operands[1:]:
                if read.overlaps(earlier.out) and not read.is_same(earlier.out):
                    return False
            for used in earlier.operands:
                if call.out.overlaps(used) and not call.out.is_same(used):
                    return False
        return True

    def finish(self, later: Sequence[Sequence[Operand]]) -> bool:
        """Find what is loaded and stored; False if the run is no gain.

        ``later`` are the operands of the part's calls after the run: of each, the outputs first.
        """
        for position, call in enumerate(self.calls):
            at_hand = [*self.loaded, *(before.out for before in self.calls[:position])]
            for one in call.operands[1:]:
                if one.host:
                    self.scalars.append(one)
                elif not any(one.is_same(known) for known in at_hand):
                    self.loaded.append(one)
                    at_hand.append(one)
            written_again = any(call.out.is_same(next_.out) for next_ in self.calls[position + 1 :])
            if not written_again and _is_read(call.out, later):
                self.stored.append(call.out)
        used = len(self.loaded) + len(self.stored)
        return (
            len(self.calls) > 1
            and len(self.stored) > 0
            and used <= MOST_OPERANDS
            and len(self.scalars) <= MOST_SCALARS
        )


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _expand(one: Operand, before: tuple[int, ...], shape: tuple[int, ...]) -> Operand | None:
    """Return an operand over one dim, contiguous or the same for all, over several dims."""
    if one.host:
        return one._replace(shape=shape, strides=(0,) * len(shape))
    if len(before) > 1 or one.strides not in ((), (0,), (1,)):
        return None
    strides, step = [], 0 if one.strides == (0,) else 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return one._replace(shape=shape, strides=tuple(reversed(strides)))


def _is_contiguous(one: Operand) -> bool:
    step = 1
    for n, stride in zip(reversed(one.shape), reversed(one.strides), strict=True):
        if n != 1 and stride != step:
            return False
        step *= n
    return True


def _is_read(out: Operand, later: Sequence[Sequence[Operand]]) -> bool:
    """Tell whether an output's memory is of use after the run."""
    if not out.inner:
        return True
    for operands in later:
        if any(one.overlaps(out) for one in operands[1:]):
            return True
        if operands[0].is_same(out):  # written again, as a whole
            return False
    return False


def _fits(call: Call) -> bool:
    """Tell whether offsets of a call's elements are small enough, and its dims few."""
    return (
        0 < _count(call.out.shape) < 1 << 30
        and len(call.out.shape) <= MOST_DIMS
        and all(one.host or one.reach()[1] - one.reach()[0] < FURTHEST for one in call.operands)
    )


def find_runs(calls: Sequence[Call | None], operands: Sequence[Sequence[Operand]]) -> list[Run]:
    """Return the runs of a part, in order.

    ``calls`` has None for a call that is no candidate, ``operands`` those of all calls.
    """
    runs: list[Run] = []
    run: Run | None = None

    def close(end: int) -> None:
        if run is not None and run.finish(operands[end:]):
            runs.append(run)

    for number, call in enumerate(calls):
        if call is None or not _fits(call):
            close(number)
            run = None
            continue
        joined = None if run is None else _join(run, call)
        if joined is None:
            close(number)
            run = Run(number, call.out.shape, [call])
        else:
            run = joined
    close(len(calls))
    return runs


def _join(run: Run, call: Call) -> Run | None:
    """Return a run with one more call; None where it cannot have it."""
    fitted = run.expanded(call)
    if fitted is None:  # perhaps the run is over one dim, and the call over several
        wider = Run(run.first, call.out.shape)
        calls = [wider.expanded(one) for one in run.calls]
        if None in calls or not _is_contiguous(call.out):
            return None
        wider.calls = [one for one in calls if one is not None]
        run, fitted = wider, call
    elif fitted is not call and not _is_contiguous(run.calls[0].out):
        return None
    if not run.takes(fitted):
        return None
    run.calls.append(fitted)
    return run
