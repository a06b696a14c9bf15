"""Whether what a mode computed is the derivative that values show.

The truths are derivatives computed from values alone, which share no formula with what they check:
``central`` and ``one_sided`` extrapolate differences of values as Richardson and Ridders do. Of all
extrapolations in a table of shrinking steps they take, for each number, the one whose neighbours
agree best; how well these agree estimates the error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

import pullback as pb
from pullback.testing.certify.derivatives import Part, Problem, flat
from pullback.testing.compare import to_array

__all__ = ["END", "Judge", "Verdict", "one_sided"]

Values = Callable[[Sequence[float]], np.ndarray]  # numbers, by the steps along some directions
STEPS = {1: (0.25, 12), 2: (0.35, 9), 3: (0.5, 8)}  # first step and their number, by order
ENOUGH = {1: 1e-11, 2: 1e-9, 3: 1e-6}  # beside the largest number: then no smaller steps are taken
RATIO = 0.55  # not a half: a jump then cannot look like the same derivative at two steps
EPSILON = float(np.finfo(np.float64).eps)


class Estimate(NamedTuple):
    """Numbers, and for each how far the true one may be away."""

    value: np.ndarray
    error: np.ndarray


def central(values: Values, order: int, scale: float = 1.0, argument: float = 0.0) -> Estimate:
    """Return the mixed derivative along ``order`` directions, by central differences.

    ``scale`` is that of the steps, ``argument`` the largest number that they are added to, whose
    rounding is an error of the values too.
    """
    patterns = list(itertools.product((1, -1), repeat=order))
    weights = [float(np.prod(pattern)) for pattern in patterns]
    return extrapolated(values, patterns, weights, order, scale, argument, power=2, width=2.0)


def one_sided(
    values: Values, sides: Sequence[int], scale: float = 1.0, argument: float = 0.0
) -> Estimate:
    """Return the mixed derivative along directions from one side of each: +1 or -1."""
    order = len(sides)
    corners = list(itertools.product((0, 1), repeat=order))
    patterns = [tuple(on * side for on, side in zip(corner, sides)) for corner in corners]
    weights = [float((-1) ** (order - sum(corner)) * np.prod(sides)) for corner in corners]
    return extrapolated(values, patterns, weights, order, scale, argument, power=1, width=1.0)


def extrapolated(
    values: Values,
    patterns: Sequence[Sequence[int]],
    weights: Sequence[float],
    order: int,
    scale: float,
    argument: float,
    power: int,
    width: float,
) -> Estimate:
    """Return the best extrapolation to step 0 of sums of values at multiples of steps.

    Errors of the sums are series in the step to the given power. Rounding of the values, taken as
    that of the largest, is part of the error.
    """
    start, count = STEPS[order]
    value = error = np.zeros(0)
    before: list[np.ndarray] = []
    largest = 0.0
    with np.errstate(all="ignore"):
        for k in range(count):
            step = np.float64(start * scale * RATIO**k)  # a power may be 0: nothing converges
            found = [values([step * sign for sign in pattern]) for pattern in patterns]
            finite = [abs(row[np.isfinite(row)]).max(initial=0.0) for row in found]
            largest = max(largest, *finite)
            steep = max(abs(found[0] - row).max(initial=0.0) for row in found[1:]) / step
            steep = steep if np.isfinite(steep) else 0.0
            rounding = 4 * EPSILON * (largest + steep * argument) / (width * step) ** order
            line = [sum(w * row for w, row in zip(weights, found)) / (width * step) ** order]
            if k == 0:
                value, error = np.full(line[0].shape, np.nan), np.full(line[0].shape, np.inf)
            for j in range(1, k + 1):
                line.append(line[-1] + (line[-1] - before[j - 1]) / (RATIO ** (-power * j) - 1))
                if k < 2:
                    continue  # two rows that agree by chance prove nothing
                doubt = np.maximum(abs(line[j] - line[j - 1]), abs(line[j] - before[j - 1]))
                better = doubt + rounding < error
                value = np.where(better, line[j], value)
                error = np.where(better, doubt + rounding, error)
            before = line
            if (error <= ENOUGH[order] * np.abs(value).max(initial=0.0)).all():
                break
    return Estimate(value, error)


# -- judgement -------------------------------------------------------------------------------------

PRECISION = {1: 1e-7, 2: 1e-5, 3: 1e-3}  # relative, by order, besides the truth's own error
SCALES = (1.0, 0.1, 1e-2, 1e-4)
CONVERGED = 1e-3
END = 1e150  # squares of larger numbers, and of their inverses, leave the range of float64


class Verdict(NamedTuple):
    """``right``, ``wrong``, or why it is undecided: ``kink``, ``unconverged``, ``range``."""

    kind: str
    expected: np.ndarray


class Sum(NamedTuple):
    """A truth, its error, the size of what was summed, and that of the function's values."""

    value: np.ndarray
    error: np.ndarray
    size: np.ndarray
    values: float

    def holds(self, found: np.ndarray, order: int) -> np.ndarray:
        """Tell of each number whether the error is small and the found number within it."""
        largest = np.max(self.size, initial=0.0, where=np.isfinite(self.size))
        allowed = 30 * self.error + PRECISION[order] * (self.size + 1e-3 * largest + 1e-12)
        return self.converged() & (np.abs(found - self.value) <= allowed)

    def converged(self) -> np.ndarray:
        largest = np.max(self.size, initial=0.0, where=np.isfinite(self.size))
        return self.error <= CONVERGED * (self.size + 0.1 * largest + 1e-3 * self.values + 1e-6)


class Judge:
    """Truths about one problem, each computed when it is asked for."""

    def __init__(self, problem: Problem):
        self.problem = problem
        self.kept: dict[object, Estimate] = {}
        self.ways: dict[str, str] = {}
        self.start = [to_array(x) for x in problem.point]
        values = flat(problem.function(*problem.point))
        self.count = values.size
        self.largest = float(np.abs(values).max(initial=0.0))
        sizes = np.abs(flat(problem.point))
        self.argument = float(sizes.max(initial=0.0, where=np.isfinite(sizes)))
        nearest = sizes[sizes > 0].min(initial=1.0)
        # A point that is next to 0 is looked at in steps that do not reach 0, too.
        self.near = (0.2 * float(nearest),) if nearest < 1e-4 else ()
        self.nearest = min(1.0, float(nearest))

    # -- truths ------------------------------------------------------------------------------------

    def values(self, *directions: tuple[pb.Tensor, ...]) -> Callable[..., np.ndarray]:
        """Return the results as a function of steps along directions.

        NumPy moves the arguments: a device may take as long for a sum as for the op itself.
        """
        problem = self.problem
        lines = [[to_array(part) for part in direction] for direction in directions]

        def at(steps: Sequence[float]) -> np.ndarray:
            moved = self.start
            for step, line in zip(steps, lines):
                if step:
                    moved = [x + d * step for x, d in zip(moved, line)]
            try:
                with pb.no_grad():
                    return flat(problem.function(*self.on_device(moved)))
            except (RuntimeError, ValueError):  # it is not defined there
                return np.full(self.count, np.nan)

        return at

    def on_device(self, arrays: list[np.ndarray]) -> list[pb.Tensor]:
        """Return tensors with the numbers of arrays where those of the problem are."""
        places = self.problem.point
        return [pb.from_numpy(np.asarray(a)).to(x.device) for a, x in zip(arrays, places)]

    def directions(self, names: str) -> list[tuple[pb.Tensor, ...]]:
        return [getattr(self.problem, name) for name in names]

    def central(self, names: str, scale: float) -> Estimate:
        key = (names, scale)
        if key not in self.kept:
            values = self.values(*self.directions(names))
            self.kept[key] = central(values, len(names), scale, self.argument)
        return self.kept[key]

    def one_sided(self, names: str, sides: tuple[int, ...], scale: float) -> Estimate:
        key = (names, sides, scale)
        if key not in self.kept:
            values = self.values(*self.directions(names))
            self.kept[key] = one_sided(values, sides, scale, self.argument)
        return self.kept[key]

    def total(self, part: Part, scale: float) -> Sum:
        """Return the truth of a part."""
        value = error = size = np.asarray(0.0)
        for names, weights in part.terms:
            found = self.central(names, scale)
            if weights is None:
                value, error = value + found.value, error + found.error
                size = size + np.abs(found.value)
            else:
                factors = flat(weights)
                value = value + np.dot(factors, found.value)
                error = error + np.dot(np.abs(factors), found.error)
                size = size + np.dot(np.abs(factors), np.abs(found.value))
        return Sum(value, error, size, self.largest)

    def complex_step(self) -> np.ndarray | None:
        """Return Df[v] of an analytic function without any difference, exact but for rounding.

        f(x + i h v) has the imaginary part h Df[v] for a step h so small that no other term is
        left. None where the op does not take complex numbers, or is no analytic function of them.
        """
        problem = self.problem

        def at(step: float) -> np.ndarray:
            moved = tuple(pb.complex(x, d * step) for x, d in zip(problem.point, problem.v))
            with pb.no_grad():
                found = problem.function(*moved)
            if not all(tensor.is_complex() for tensor in found):
                raise TypeError("a result is real")
            return flat(found)[1::2] / step

        if self.near or any(tensor.is_complex() for tensor in problem.point):
            return None  # a step is no longer small beside a number next to 0
        try:
            rough, exact = at(1e-4), at(1e-30)
        except (RuntimeError, TypeError, ValueError, IndexError):
            return None
        known = self.central("v", SCALES[0])
        if exact.shape != known.value.shape:
            return None
        scale = np.abs(known.value).max(initial=0.0)
        allowed = 1e-7 * scale + 30 * known.error
        near = np.maximum(np.abs(rough - known.value), np.abs(exact - known.value)) <= allowed
        sure = np.isfinite(exact) & (known.error <= 1e-6 * scale)
        return exact if (near & sure).all() else None

    def is_defined_around(self) -> bool:
        """Tell whether there are values on either side of the point."""
        at = self.values(self.problem.v)
        step = min(1e-6, *self.near) if self.near else 1e-6
        return any(bool(np.isfinite(at([side * step])).all()) for side in (1, -1))

    def rounding(self, order: int) -> float:
        """Return the error of a derivative whose terms, of the size of f / x**order, cancel."""
        with np.errstate(all="ignore"):
            size = np.float64(self.nearest) ** order
            return 256 * EPSILON * self.largest / float(size) if size else 0.0

    # -- judgement ---------------------------------------------------------------------------------

    def judge(self, part: Part) -> Verdict:
        """Compare a part with the truth, computed at several scales until one agrees."""
        with np.errstate(all="ignore"):
            if part.beside is not None:
                close = np.isclose(part.found, part.beside, rtol=1e-9, atol=1e-9, equal_nan=True)
                return Verdict("right" if close.all() else "wrong", part.beside)
            order = max(len(names) for names, _ in part.terms)
            right = np.zeros(np.shape(part.found), dtype=bool)
            best: Sum | None = None
            for scale in (*SCALES, *self.near):
                truth = self.total(part, scale)
                right |= truth.holds(part.found, order)
                if right.all():
                    return Verdict("right", truth.value)
                if best is None or truth.error.sum() < best.error.sum():
                    best = truth
            assert best is not None
            return Verdict(self.diagnose(part, best, right), best.value)

    def diagnose(self, part: Part, best: Sum, right: np.ndarray) -> str:
        """Say why a number differs from its truth."""
        ways = {self.way(names) for names, _ in part.terms}
        for way in ("kink", "range", "unconverged"):
            if way in ways:
                return way
        if not (np.abs(best.value) < END).all():
            return "range"
        return "wrong" if (best.converged() & ~right).any() else "unconverged"

    def way(self, names: str) -> str:
        """Return how derivatives behave here, up to an order: smooth, or why they are not."""
        if names not in self.ways:
            parts = [
                "".join(part)
                for order in range(1, len(names) + 1)
                for part in itertools.combinations(names, order)
            ]
            scales = (0.2, 1e-3, *self.near)
            self.ways[names] = worst(
                self.ways[part] if part in self.ways else self.way_at(part, scale)
                for part in dict.fromkeys(parts)
                for scale in scales
            )
        return self.ways[names]

    def way_at(self, names: str, scale: float) -> str:
        """Tell whether the mixed derivative is the same from all sides, and linear."""
        if len(names) == 1 and self.jumps(names):
            return "kink"
        sides = itertools.product((1, -1), repeat=len(names))
        found = [self.one_sided(names, side, scale) for side in sides]
        if scale in self.near and not all(np.isfinite(f.error).all() for f in found):
            return "range"

        def ways() -> Iterator[str]:
            yield from (self.compared(found[0], other) for other in found[1:])
            whole = self.central(names, scale)
            first, *rest = self.directions(names)
            for seed in (7, 8):
                one, other = (
                    central(self.values(half, *rest), len(names), scale, self.argument)
                    for half in split(first, seed)
                )
                both = Estimate(one.value + other.value, one.error + other.error)
                yield self.compared(whole, both)

        return worst(ways())

    def jumps(self, name: str) -> bool:
        """Tell whether the values have no limit, or their derivatives none, in a direction."""
        at = self.values(*self.directions(name))
        here = at([0.0])
        for side in (1, -1):
            first = min(1e-6, *self.near) if self.near else 1e-6
            far, close = (np.abs(at([side * first * part]) - here) for part in (1, 1e-3))
            # It grows like a power of the step, or it is a jump: not shrinking with the step.
            held = ~np.isfinite(far + close) | (close > 0.01 * far)
            if (held & ~(close <= 1e-7 * (1e-3 + self.largest))).any():
                return True
        return False

    def compared(self, one: Estimate, other: Estimate) -> str:
        """Tell whether two estimates agree, exclude each other, or are too rough to tell."""
        size = np.abs(one.value) + np.abs(other.value)
        largest = np.max(size, initial=0.0, where=np.isfinite(size))
        doubt = one.error + other.error
        gap = np.abs(one.value - other.value)
        rough = ~np.isfinite(doubt) | (doubt > 1e-2 * largest + 1e-3 * self.largest + 1e-6)
        if (~rough & (gap > 100 * doubt + 1e-4 * largest)).any():
            return "kink"
        return "unconverged" if rough.any() else "smooth"


def worst(ways: Iterable[str]) -> str:
    """Return the worst of how derivatives behave; no more are looked at after a kink."""
    found = set()
    for way in ways:
        if way == "kink":
            return way
        found.add(way)
    return next((way for way in ("range", "unconverged") if way in found), "smooth")


def split(direction: tuple[pb.Tensor, ...], seed: int) -> list[tuple[pb.Tensor, ...]]:
    """Return two directions that add up to one."""
    rng = np.random.default_rng(seed)
    parts = [
        pb.tensor(rng.uniform(-1, 2, tuple(tensor.shape)), dtype=pb.float64).to(tensor.device)
        for tensor in direction
    ]
    return [
        tuple(d * s for d, s in zip(direction, parts)),
        tuple(d * (1 - s) for d, s in zip(direction, parts)),
    ]
