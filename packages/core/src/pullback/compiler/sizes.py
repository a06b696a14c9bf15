"""Programs for sizes between those of recorded calls: ``compile(dynamic=True)``.

Two calls that differ in one size are recorded. If they launch the same kernels, and all that
differs is linear in that size, or goes with its square, a program for a size between the two is
made without a call of the function: every number is interpolated. A third call, between the two, is
recorded and compared before any of that is trusted.

Why that is right. Sizes are computed from sizes by code of this package and by the function's own.
What this package computes, as the size of a pooled image, is linear, linear with a strided step, or
a choice between ways at a threshold. A choice that is the same at both ends is the same between
them. A step is floor((size + a) / b) or the like; on the line through two of its points, a whole
number is that step. Whatever is none of these has two ends that do not fit, numbers that are not
whole, or another value in the third call. Code of the function gets its sizes as `SizeArgument`,
which notes all but sums, differences and products; for a new size, each of these is computed again,
and must give what lies on the line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pullback._c.capture.between import (
    Line,
    between,
    decisions,
    difference,
    layout_between,
    line_between,
    same_but_sizes,
)
from pullback._c.capture.compiled import Entry
from pullback.func._tree import leaves, tree_map

__all__ = ["Family", "Sample", "SizeArgument", "SizeLog", "without_sizes"]

_TRIES = 3  # recorded calls none of which is like another, until no more are compared


class SizeLog:
    """What the Python code of one call does with sizes: (operation, operands, outcome), in order.

    The outcome None is one of which nothing is known: a size as a text, a key, a float.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[str, tuple[Any, ...], Any]] = []
        self.is_open = True

    def sized(self, size: Any) -> Any:
        """Return a size, or a tuple of sizes, whose uses are noted if they are the function's."""
        if _is_own(2):
            return size
        return tuple([self.of(one) for one in size]) if isinstance(size, tuple) else self.of(size)

    def of(self, size: int) -> SizeArgument:
        """Return a size whose uses are noted."""
        made = SizeArgument(size)
        made.log = self
        return made

    def fixed(self, size: int) -> int:
        """Note that a size is used in an unknown way; return it as an int."""
        if not _is_own(2):
            self.note("__len__", (size,), None)
        return size

    def note(self, name: str, operands: tuple[Any, ...], outcome: Any) -> None:
        """Note an operation, unless the call is over."""
        if self.is_open:
            self.rows.append((name, operands, outcome))


def _is_own(depth: int) -> bool:
    """Return True if the code that many calls further out is that of this package."""
    name = sys._getframe(depth).f_globals.get("__name__", "")
    return isinstance(name, str) and name.startswith(("pullback.", "pullback_"))


class SizeArgument(int):
    """A size that notes what is done with it, while a call is recorded."""

    log: SizeLog

    def __index__(self) -> int:
        return self

    def __reduce__(self) -> Any:
        return int, (int.__add__(self, 0),)


def without_sizes(value: Any) -> Any:
    """Return a function's result with ints for sizes that note their uses."""
    if any(type(one) is SizeArgument for one in leaves(value)):
        return tree_map(_plain, value)
    return value


def _plain(value: Any) -> Any:
    return int.__add__(value, 0) if type(value) is SizeArgument else value


def _linear(name: str) -> Callable[..., Any]:
    """Return a method for a sum, a difference or a product, of which nothing is noted."""
    method = getattr(int, name)

    def compute(self: SizeArgument, *others: Any) -> Any:
        found = method(self, *others)
        return self.log.of(found) if type(found) is int and self.log.is_open else found

    compute.__name__ = name
    return compute


def _noted(name: str) -> Callable[..., Any]:
    """Return a method that notes its operands and its outcome."""
    method = getattr(int, name)

    def compute(self: SizeArgument, *others: Any) -> Any:
        found = method(self, *others)
        if found is NotImplemented or not self.log.is_open or _is_own(2):
            return found
        operands = (_plain(self), *(_plain(one) for one in others))
        if type(found) in (int, bool) and all(type(one) in (int, bool) for one in operands):
            self.log.note(name, operands, found)
            return self.log.of(found) if type(found) is int else found
        self.log.note(name, operands[:1], None)
        return found

    compute.__name__ = name
    return compute


def _unknown(name: str) -> Callable[..., Any]:
    """Return a method whose outcome may be used in any way."""
    method = getattr(int, name)

    def compute(self: SizeArgument, *others: Any) -> Any:
        if not _is_own(2):
            self.log.note(name, (_plain(self),), None)
        return method(self, *others)

    compute.__name__ = name
    return compute


_LINEAR = """
    add radd sub rsub mul rmul neg pos
""".split()
_NOTED = """
    floordiv rfloordiv mod rmod and rand or ror xor rxor lshift rlshift rshift rrshift pow rpow
    invert abs bool eq ne lt le gt ge
""".split()
_UNKNOWN = """
    truediv rtruediv divmod rdivmod float int trunc round floor ceil hash str repr format
""".split()
for _names, _method in ((_LINEAR, _linear), (_NOTED, _noted), (_UNKNOWN, _unknown)):
    for _name in _names:
        setattr(SizeArgument, f"__{_name}__", _method(f"__{_name}__"))


def _varying(low: SizeLog, high: SizeLog) -> list[Any] | str:
    """Return the operations that differ in two calls, as pairs; a str says why they cannot vary."""
    if len(low.rows) != len(high.rows):
        return "how often the function uses it"
    found = []
    for one, other in zip(low.rows, high.rows):
        if one == other:
            continue
        if one[2] is None or one[0] != other[0] or len(one[1]) != len(other[1]):
            return f"what the function does in {one[0]}"
        if type(one[2]) is bool and one[2] != other[2]:
            return f"a decision of the function, {one[0]},"
        found.append((one, other))
    return found


class Sample:
    """A recorded call: its entry, what was recorded of it, and what was done with sizes."""

    def __init__(self, capture: Any, reads_options: bool):
        self.entry = capture.entry
        self.signature = capture.entry.signature
        self.forward = capture.recording
        self.backward = getattr(capture.entry.backward, "recording", None)
        self.log = capture.sizes
        self.structure = capture.structure  # of the function's value
        self.reads_options = reads_options  # of optimizers, in code outside of this package

    def is_like(self, other: Sample) -> bool:
        """Return True if another call sets the same gradients, and returns the same things."""
        one, two = self.entry, other.entry
        return (
            self.structure == other.structure
            and _same_pairs(one.grads, two.grads)
            and _same_pairs(one.expected, two.expected)
            and (one.backward is None) == (two.backward is None)
            and (one.backward is None or one.backward.is_like(two.backward))
        )


def _same_pairs(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(
        a is b or (isinstance(a, int) and a == b) for x, y in zip(one, other) for a, b in zip(x, y)
    )


class Pair:
    """Two recorded calls that differ in sizes. ``why_not``: what rules out calls between them."""

    def __init__(self, low: Sample, high: Sample, sizes: tuple[int, int]):
        self.low, self.high = low, high
        self.sizes = sizes
        self.varying: list[Any] = []
        self.why_not: str | None = None
        varying = _varying(low.log, high.log)
        if isinstance(varying, str):
            self.why_not = varying
            return
        self.varying = varying
        if not low.is_like(high):
            self.why_not = "what the function returns or sets"
            return
        found = self.recordings(Line(*sizes, sizes[1]))
        if isinstance(found, str):
            self.why_not = found

    def allows(self, line: Line) -> bool:
        """Return True if what the function does with sizes gives what lies on the line."""
        for (name, low, outcome), (_, high, other) in self.varying:
            operands = [line.value(*pair) for pair in zip(low, high)]
            if any(one is None for one in operands):
                return False
            expected = outcome if type(outcome) is bool else line.value(outcome, other)
            if getattr(int, name)(*operands) != expected:
                return False
        return True

    def recordings(self, line: Line) -> tuple[Any, Any] | str:
        """Return what a call would record, forward and backward; a str says what does not fit."""
        if not self.allows(line):
            return "what the function computes of it"
        forward = between(self.low.forward, self.high.forward, line)
        if isinstance(forward, str) or self.high.backward is None:
            return forward if isinstance(forward, str) else (forward, None)
        backward = between(self.low.backward, self.high.backward, line)
        return backward if isinstance(backward, str) else (forward, backward)

    def compare(self, sample: Sample) -> bool | str:
        """Compare a recorded call between the two with what is interpolated for it.

        False if nothing can be interpolated; a str says what differs.
        """
        line = line_between(self.low.signature, self.high.signature, sample.signature)
        found = "" if line is None else self.recordings(line)
        if line is None or isinstance(found, str):
            return False
        if decisions(sample.forward) != decisions(self.high.forward):
            return False
        if not sample.is_like(self.high):
            return "what the function returns or sets"
        for one, other in zip(found, (sample.forward, sample.backward)):
            why = None if one is None else difference(one, other)
            if why is not None:
                return why
        return True

    def entry(self, signature: Any) -> Entry | None:
        """Return an entry for a call between the two; None if there is none."""
        line = line_between(self.low.signature, self.high.signature, signature)
        found = "" if line is None else self.recordings(line)
        if line is None or isinstance(found, str):
            return None
        forward, backward = found
        like = self.high.entry
        made = Entry(signature)
        made.program = forward.program()
        if isinstance(made.program, str):
            return None
        options = [] if self.high.reads_options else [one for _, _, one in made.program.options]
        if not signature.guard_as(self.high.signature, made.program.writes, options):
            return None
        made.program.name = like.program.name
        made.grads, made.expected, made.rebuild = like.grads, like.expected, like.rebuild
        if like.backward is not None:
            pairs = zip(self.low.entry.backward.layouts, like.backward.layouts)
            layouts = [layout_between(*pair, line) for pair in pairs]
            program = None if backward is None else backward.program()
            if isinstance(program, str) or any(one is None for one in layouts):
                return None
            like.backward.with_program(program, layouts).attach(made, like.program.name)
        return made


def _pair(low: Sample, high: Sample) -> Pair:
    return Pair(low, high, same_but_sizes(low.signature, high.signature) or (0, 0))


class Family:
    """Calls that differ in one size, and programs for the sizes between the least and the largest.

    ``pair`` are those two, once a third call was compared with what is interpolated for it.
    ``why_not`` says why there are no programs for other sizes so far; where the comparison has
    shown that the function depends on the size in a way that cannot be seen, it ``is_broken``.
    """

    def __init__(self, sample: Sample):
        self.samples = [sample]  # by size, at most three
        self.pair: Pair | None = None
        self.why_not: str | None = None
        self.is_broken = False
        self._failures = 0
        self._passed: set[int] = set()  # sizes outside that were seen once

    def entry(self, signature: Any) -> Entry | None:
        """Return an entry for a call with a size between; None if there is none."""
        return self.pair.entry(signature) if self.pair is not None and self._holds() else None

    def _holds(self) -> bool:
        """Return True if what the function refers to is as it was in all recorded calls."""
        return all(one.signature.holds() and not one.entry.program.stale() for one in self.samples)

    def outdated(self) -> bool:
        """Return True if the function refers to another object than when it was recorded."""
        return any(one.signature.outdated() for one in self.samples)

    def described(self) -> str:
        """Return which sizes need no recording, or why all do, as text."""
        first = self.samples[0].signature.described()
        if self.pair is not None:
            low, high = self.pair.sizes
            return f"sizes from {low} to {high} in {first}: made from the two recorded programs"
        if self.why_not is not None:
            return f"sizes in {first}: each is recorded, since {self.why_not} depends on it"
        return f"sizes in {first}: not compared yet, {len(self.samples)} recorded"

    def skips(self, signature: Any) -> bool:
        """Return True for a size a little outside that is new: it is not worth a recording."""
        if self.pair is None:
            return False
        low, high = self.pair.low.signature, self.pair.high.signature
        if (
            line_between(low, signature, high) is None
            and line_between(signature, high, low) is None
        ):
            return False
        sizes = same_but_sizes(low, signature)
        if sizes is None or sizes[1] in self._passed:
            return False
        if not 4 * self.pair.sizes[0] < 5 * sizes[1] < 6 * self.pair.sizes[1]:
            return False
        self._passed.add(sizes[1])
        return True

    def add(self, sample: Sample) -> bool:
        """Take a recorded call; False if it is of another kind."""
        usable = not self.is_broken and self._failures < _TRIES and self._holds()
        placed = self._with(sample) if usable else None
        if placed is None:
            return False
        if len(placed) == 2:
            self.samples = placed
            return True
        pair = _pair(placed[0], placed[2])
        compared = pair.why_not is None and pair.compare(placed[1])
        if isinstance(compared, str):
            self.pair, self.why_not, self.is_broken = None, compared, True
        elif compared:
            self.samples, self.pair = placed, pair
        elif self.pair is not None:
            return False
        else:
            self.samples = self._two_of(placed, pair)
        return sample in self.samples

    def _two_of(self, placed: list[Sample], outer: Pair) -> list[Sample]:
        """Return two of three calls, between which there may be programs."""
        for pair in (outer, _pair(*placed[1:]), _pair(*placed[:2])):
            if pair.why_not is None:
                self.why_not = None
                return [pair.low, pair.high]
        self._failures += 1
        self.why_not = outer.why_not
        return placed[1:]

    def _with(self, sample: Sample) -> list[Sample] | None:
        """Return the least call, another and the largest, one of them the new one; None if it is
        on no line with the others."""
        low, high = self.samples[0], self.samples[-1]
        if low is high:
            sizes = same_but_sizes(low.signature, sample.signature)
            return sizes and sorted((low, sample), key=lambda one: sizes[one is sample])
        for placed in ([low, sample, high], [low, high, sample], [sample, low, high]):
            first, middle, last = (one.signature for one in placed)
            if line_between(first, last, middle) is not None:
                return placed
        return None
