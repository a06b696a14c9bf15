"""Programs for sizes between those of recorded calls: ``compile(dynamic=True)``.

Two calls that differ in one size are recorded. If they launch the same kernels, and all that
differs is linear in that size, or goes with its square, a program for a size between the two is
made without a call of the function: every number is interpolated. A third call, between the two, is
recorded and compared before any of that is trusted.

Why that is right. Sizes are computed from sizes by code of this package and by the function's own.
What this package computes is linear, linear with a strided step (as the size of a pooled image), or
a choice between ways at a threshold. A choice that is the same at both ends is the same between
them. A step, floor((size + a) / b) or a multiple of it, which is on one line at three sizes, is on
it wherever the distance from the least is a multiple of what the three distances have in common:
its remainder is on a line there, too. Sizes elsewhere are recorded first, which narrows that step.
Code of the function gets its sizes as `SizeArgument`, which notes all but sums, differences and
products with ints; for a new size, each of these is computed again, and must give what lies on the
line. Of whatever asks for the value in another way, nothing is known: that rules programs out.
"""

from __future__ import annotations

import builtins
import math
import operator
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy

from pullback._c.capture.compiled import Entry
from pullback._c.capture.line import Line, layout_between, line_between, same_but_sizes
from pullback._c.capture.recording import between, decisions, difference, reaches
from pullback._c.dispatch.call import swap_tracer
from pullback._c.graph.tensor import Tensor
from pullback.compiler.trees import leaves, tree_map
from pullback.ops import ops

__all__ = [
    "FUNCTIONS",
    "Family",
    "Sample",
    "SizeArgument",
    "SizeLog",
    "is_own",
    "settle",
    "without_sizes",
]

_TRIES = 3  # recorded calls none of which is like another, until no more are compared


class SizeLog:
    """What the Python code of one call does with sizes: (operation, operands, outcome), in order.

    The outcome None is one of which nothing is known: a size as a text, a key, a float.
    """

    def __init__(self) -> None:
        self.rows: list[tuple[str, tuple[Any, ...], Any]] = []
        self.is_open = True
        self._outer: Any = None  # the tracer of ops before
        self._thread = threading.get_ident()
        self._is_inside = False  # an op that was called with ints for sizes

    def __enter__(self) -> SizeLog:
        self._outer = swap_tracer(self.take)
        return self

    def __exit__(self, *error: object) -> None:
        swap_tracer(self._outer)

    def sized(self, size: Any) -> Any:
        """Return a size, or a tuple of sizes, whose uses are noted if they are the function's."""
        if is_own(2):
            return size
        if isinstance(size, tuple):
            return tuple([SizeArgument(one, self) for one in size])
        return SizeArgument(size, self)

    def fixed(self, size: int) -> int:
        """Note that a size is used in an unknown way; return it as an int."""
        if not is_own(2):
            self.note("__len__", (size,), None)
        return size

    def plain(self, value: Any) -> Any:
        """Return a key of a tensor with ints for sizes, which is no use that is noted."""
        return plain(value)

    def note(self, name: str, operands: tuple[Any, ...], outcome: Any) -> None:
        """Note an operation, unless the call is over."""
        if self.is_open:
            self.rows.append((name, operands, outcome))

    def take(self, op: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call an op with ints for sizes; NotImplemented if there are none among its arguments.

        That is no use of a size that is noted, unless the op takes a number modulo another.
        """
        if not self.is_open:  # a thread that traced a formula meanwhile has put it back
            swap_tracer(self._outer)
        if not self.is_open or self._is_inside or threading.get_ident() != self._thread:
            return NotImplemented
        pieces = op in _IN_PIECES and not is_own(2)
        if not pieces and not any(_has_size(one) for one in (*args, *kwargs.values())):
            return NotImplemented
        if op in _BY_VALUE and not is_own(2):
            for one in (*args, *kwargs.values()):
                if type(one) is SizeArgument:
                    self.note(op.__name__, (one.value,), None)
        self._is_inside = True
        try:
            found = op(*map(plain, args), **{key: plain(one) for key, one in kwargs.items()})
        finally:
            self._is_inside = False
        if pieces:
            self.note("__len__", (len(found),), None)
        return found


# Ops that take numbers modulo a size, or in which some numbers are a case of their own.
_BY_VALUE = {ops.roll, ops.rot90, ops.pow, ops.float_power, ops.linalg_matrix_power}
# Ops whose number of results may be that of a size.
_IN_PIECES = {ops.split, ops.chunk, ops.tensor_split, ops.unbind}


def is_own(depth: int) -> bool:
    """Return True if the code that many calls further out is that of this package."""
    name = sys._getframe(depth).f_globals.get("__name__", "")
    return isinstance(name, str) and name.partition(".")[0] in _PACKAGES


_PACKAGES = {"pullback", *(f"pullback_{one}" for one in ("cpu", "cuda", "profiler", "distributed"))}


def _has_size(value: Any) -> bool:
    if type(value) is SizeArgument:
        return True
    if isinstance(value, (tuple, list)):
        return any(_has_size(one) for one in value)
    return isinstance(value, slice) and any(
        type(one) is SizeArgument for one in (value.start, value.stop, value.step)
    )


def plain(value: Any) -> Any:
    """Return a value with ints for sizes that note their uses."""
    if not _has_size(value):
        return value
    if type(value) is SizeArgument:
        return value.value
    if isinstance(value, slice):
        return slice(plain(value.start), plain(value.stop), plain(value.step))
    found = [plain(one) for one in value]
    return type(value)(*found) if hasattr(value, "_fields") else type(value)(found)


def without_sizes(value: Any) -> Any:
    """Return a function's result with ints for sizes that note their uses."""
    if any(type(one) is SizeArgument for one in leaves(value)):
        return tree_map(plain, value)
    return value


def settle(guards: list[Any]) -> None:
    """Let what a function refers to have ints for sizes that it has kept there."""
    for holder in {id(one.holder): one.holder for one in guards}.values():
        if isinstance(holder, (dict, list)):
            for key, value in list(
                holder.items() if isinstance(holder, dict) else enumerate(holder)
            ):
                if _has_size(value):
                    holder[key] = plain(value)


class SizeArgument:
    """A size that notes what is done with it, while a call is recorded.

    It is no int, so that code in C asks for its value instead of reading it; ``isinstance`` says
    that it is one.
    """

    __slots__ = ("size_log", "value")

    __array_ufunc__ = None

    shape = ()  # as a NumPy number, which operators of tensors take for a Python number

    def __init__(self, value: int, log: SizeLog):
        self.value = value
        self.size_log = log

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    def item(self) -> int:
        """Return the value, for an operator of a tensor."""
        return self.value

    def read(self, name: str) -> int:
        """Return the value for a use of which nothing is known."""
        if not is_own(3):
            self.size_log.note(name, (self.value,), None)
        return self.value

    def __getattr__(self, name: str) -> Any:
        return getattr(self.read(name), name)

    def __reduce__(self) -> Any:
        return int, (self.read("__reduce__"),)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return numpy.asarray(self.read("__array__"), *args)


def _with_int(name: str, function: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    """Return a method for an operation of two operands."""

    def compute(self: SizeArgument, other: Any, *more: Any) -> Any:
        if isinstance(other, Tensor):
            return NotImplemented
        if type(other) not in (int, bool, SizeArgument) or more:
            value = self.read(name)
            return function(other, value) if reflected else function(value, other, *more)
        value, other = self.value, plain(other)
        found = function(other, value) if reflected else function(value, other)
        if not self.size_log.is_open:
            return found
        if type(found) not in (int, bool):  # of a division, or a power
            self.read(name)
            return found
        if name not in _LINEAR and not is_own(2):
            self.size_log.note(name, (other, value) if reflected else (value, other), found)
        return SizeArgument(found, self.size_log) if type(found) is int else found

    return compute


def _alone(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method for an operation of one operand."""

    def compute(self: SizeArgument) -> Any:
        found = function(self.value)
        if name not in _LINEAR and not is_own(2):
            self.size_log.note(name, (self.value,), found)
        return (
            SizeArgument(found, self.size_log)
            if type(found) is int and self.size_log.is_open
            else found
        )

    return compute


def _unknown(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method whose outcome may be used in any way."""

    def compute(self: SizeArgument, *others: Any) -> Any:
        return function(self.read(name), *map(plain, others))

    return compute


_LINEAR = {f"__{_name}__" for _name in "add sub mul neg pos".split()}
FUNCTIONS: dict[str, Callable[..., Any]] = {}  # what methods of numbers compute
_UNKNOWN = "float int index trunc round floor ceil hash str repr format"

for _name in "add sub mul truediv floordiv mod and or xor lshift rshift pow divmod".split():
    _full = f"__{_name}__"
    _function = FUNCTIONS[_full] = getattr(builtins, _name, None) or getattr(operator, _full)
    setattr(SizeArgument, _full, _with_int(_full, _function, False))
    setattr(SizeArgument, f"__r{_name}__", _with_int(_full, _function, True))
for _name in "eq ne lt le gt ge".split():
    _full = f"__{_name}__"
    _function = FUNCTIONS[_full] = getattr(operator, _full)
    setattr(SizeArgument, _full, _with_int(_full, _function, False))
for _name in "neg pos abs invert bool".split():
    _full = f"__{_name}__"
    _function = FUNCTIONS[_full] = getattr(builtins, _name, None) or getattr(operator, _full)
    setattr(SizeArgument, _full, _alone(_full, _function))
for _name in _UNKNOWN.split():
    _full = f"__{_name}__"
    setattr(SizeArgument, _full, _unknown(_full, getattr(int, _full)))


def _varying(low: SizeLog, high: SizeLog) -> list[Any] | str:
    """Return the operations that differ in two calls, as pairs; a str says why they cannot vary."""
    if len(low.rows) != len(high.rows):
        return "how often the function uses it"
    found = []
    for one, other in zip(low.rows, high.rows):
        if one == other:
            continue
        if one[2] is None or one[0] != other[0] or len(one[1]) != len(other[1]):
            return f"what the function does with it ({one[0].strip('_')})"
        if type(one[2]) is bool and one[2] != other[2]:
            return f"a decision of the function ({one[0].strip('_')})"
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
            if FUNCTIONS[name](*operands) != expected:
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

    def entry(self, signature: Any, step: int) -> Entry | None:
        """Return an entry for a call between the two, whole steps from the least; else None."""
        line = line_between(self.low.signature, self.high.signature, signature)
        if line is None or (line.at - line.low) % step:
            return None
        found = self.recordings(line)
        if isinstance(found, str) or not reaches(found[0], signature):
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
        made.grads, made.expected, made.hooked = like.grads, like.expected, like.hooked
        made.rebuild = like.rebuild
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
    ``why_not`` says why there are no programs for other sizes so far.
    """

    def __init__(self, sample: Sample):
        self.samples = [sample]  # by size, at most three
        self.pair: Pair | None = None
        self.step = 0  # sizes that are trusted are so far apart, counted from the least
        self.needless: list[Entry] = []  # of recorded calls that can be made again
        self.why_not: str | None = None
        self.mismatches = 0  # calls that were not what lies between two others
        self._failures = 0
        self._passed: set[int] = set()  # sizes outside that were seen once

    def entry(self, signature: Any) -> Entry | None:
        """Return an entry for a call with a size between; None if there is none."""
        if self.pair is None or not self._holds():
            return None
        return self.pair.entry(signature, self.step)

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
            steps = f", in steps of {self.step}," if self.step > 1 else ""
            return f"sizes from {low} to {high}{steps} in {first}: made from two recorded programs"
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
        usable = self._failures < _TRIES and self._holds()
        placed = self._with(sample) if usable else None
        if placed is None:
            return False
        if len(placed) == 2:
            self.samples = placed
            return True
        if self.pair is not None and placed[1] is sample:
            return self._refine(self.pair, sample)
        pair = _pair(placed[0], placed[2])
        compared = pair.why_not is None and pair.compare(placed[1])
        if compared is True:
            middle = same_but_sizes(placed[0].signature, placed[1].signature) or pair.sizes
            self.step = math.gcd(self.step, middle[1] - middle[0], pair.sizes[1] - pair.sizes[0])
            self.samples, self.pair, self.why_not = placed, pair, None
            self.needless = [placed[1].entry]
            return True
        if isinstance(compared, str):
            self._fail(compared)
        if self.pair is not None:
            return False
        fits = pair.why_not is None and compared is False  # only not whole in the middle
        self.samples = [placed[0], placed[2]] if fits else self._two_of(placed, pair)
        return sample in self.samples

    def _refine(self, pair: Pair, sample: Sample) -> bool:
        """Take a call between the two that was not trusted."""
        compared = pair.compare(sample)
        if compared is True:
            sizes = same_but_sizes(pair.low.signature, sample.signature) or pair.sizes
            self.step = math.gcd(self.step, sizes[1] - sizes[0])
            self.needless = [sample.entry]
        return compared is True

    def _fail(self, why: str) -> None:
        """Note a call that is not what lies between two others: how it depends is not known."""
        self.mismatches += 1
        self.why_not = why

    def _two_of(self, placed: list[Sample], outer: Pair) -> list[Sample]:
        """Return two of three calls, between which there may be programs."""
        for pair in (_pair(*placed[1:]), _pair(*placed[:2])):
            if pair.why_not is None:
                return [pair.low, pair.high]
        if outer.why_not is not None:
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
