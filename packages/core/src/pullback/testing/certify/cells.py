"""Cells of the table op x dtype x mode, and what was found at the points of each."""

from __future__ import annotations

import collections
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pullback as pb
from pullback.ops.table.samples import KINKS as KINKED
from pullback.testing.certify.derivatives import MODES, Part, Problem, Tensors, flat
from pullback.testing.certify.digits import comparisons, load
from pullback.testing.certify.judge import EPSILON, Judge, Verdict
from pullback.testing.certify.points import Point, edges, ordinary, problem_of, scalars, widened
from pullback.testing.certify.stated import FIRST, KINKS, SECOND, problems_of, states_kinks
from pullback.testing.compare import to_array
from pullback.testing.samples import accepts, op_of

__all__ = ["DTYPES", "Cell", "Found", "certify"]

DTYPES = (pb.float64, pb.complex128, pb.float32, pb.complex64, pb.float16, pb.bfloat16)
EXACT = (pb.float64, pb.complex128)  # those that differences of values can judge
POLE = 1e12  # larger values beside the arguments are those of a pole
ANALYTIC = 1e-10  # relative to the largest number
BAD = ("wrong", "raised", "unstated")
UNDECIDED = ("kink", "unconverged")  # by differences: then modes are compared with one another


@dataclasses.dataclass
class Cell:
    """One op, one dtype, one mode: how many points there were of each kind."""

    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def kind(self) -> str:
        """Return what the cell is: the worst of its points, or that none could be judged."""
        for kind in (*BAD, "right", "kink"):
            if self.counts[kind]:
                return kind
        return "unjudged"


@dataclasses.dataclass
class Found:
    """What was found for some ops."""

    cells: dict[tuple[str, str, str], Cell] = dataclasses.field(default_factory=dict)
    lines: list[str] = dataclasses.field(default_factory=list)
    skipped: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    steps: int = 0  # points at which complex steps confirmed it

    def merge(self, other: Found) -> None:
        """Add what was found for other ops."""
        self.cells.update(other.cells)
        self.lines += other.lines
        self.skipped += other.skipped
        self.steps += other.steps

    def add(self, point: Point, mode: str, kind: str, text: str = "") -> None:
        """Count a point of a sample call."""
        self.count(point.name(), point.sample.dtype.name, mode, kind, str(point), text)

    def count(self, name: str, dtype: str, mode: str, kind: str, where: str, text: str) -> None:
        """Count a point; describe it if it is bad."""
        self.cells.setdefault((name, dtype, mode), Cell()).counts[kind] += 1
        if kind in BAD:
            self.lines.append(f"{kind}: {name}, {dtype}, {mode}, {where}, {text}")


def certify(entry: Any, dtypes: tuple[Any, ...] = DTYPES, device: Any = None) -> Found:
    """Look at every derivative of an op at all its points."""
    found = Found()
    if not op_of(entry).differentiable:
        return found
    for dtype in dtypes:
        if not accepts(entry, dtype):
            continue
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for point in points_of(entry, dtype, device, found):
                look(point, found)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        look_at_kinks(entry, found)
        look_in_many_digits(entry, found)
    return found


def look_at_kinks(entry: Any, found: Found) -> None:
    """Compare what is stated for kinks with every mode; an op with kinks must state something."""
    for number, kink in enumerate(KINKS):
        if kink.op != entry.name:
            continue
        bad = dict(problems_of(kink))
        modes = [*FIRST, *(SECOND if kink.second is not None else ()), "bounds"]
        for mode in modes:
            kind = "wrong" if mode in bad else "right"
            found.count(entry.name, "float64", mode, kind, f"stated #{number}", bad.get(mode, ""))
    if states_kinks(entry):
        return
    for (name, dtype, mode), cell in list(found.cells.items()):
        if cell.counts["kink"] and dtype == "float64":  # complex functions have branch cuts besides
            found.count(name, dtype, mode, "unstated", "kinks", "no convention is stated")


def look_in_many_digits(entry: Any, found: Found) -> None:
    """Compare a scalar function's derivatives with those of its formula in 50 digits."""
    mp = load()
    if mp is None:
        found.skipped["mpmath is not installed"] += entry.mpmath is not None
        return
    for mode, kind, where, text in comparisons(entry, mp):
        found.count(entry.name, "float64", mode, kind, where, text)


def points_of(entry: Any, dtype: Any, device: Any, found: Found) -> Iterator[Point]:
    """Yield the points that an op is looked at in one dtype."""
    moved = 0
    for point in ordinary(entry, dtype, device):
        sample = point.sample
        plain = sample.layout == "contiguous"
        if sample.layout in sample.case.skip or (not plain and sample.number % 3):
            continue
        if sample.layout == "expanded" and entry.overwrites:
            found.skipped["several elements are written at one index: see the conventions"] += 1
            continue
        reason = sample.case.skip.get("grad")
        if reason is not None and (reason != KINKED["grad"] or dtype not in EXACT):
            if plain and dtype == EXACT[0]:
                found.skipped[f"the entry says: {reason}"] += 1
            continue
        if dtype not in EXACT:
            if plain and sample.number < 3:
                yield point
            continue
        if reason is not None:
            if plain:
                yield from scalars(point) or [point]
            continue
        yield point
        if plain and moved < 2 and sum(t.numel() for t in point.inputs()) > 1:
            moved += 1
            yield from edges(point)
        if plain and entry.inplace is True and sample.number < 3:
            yield point._replace(written=True, label="in place")


def look(point: Point, found: Found) -> None:
    """Judge all modes at one point."""
    try:
        problem = problem_of(point)
    except Exception:  # the moved arguments are outside of what the op takes
        found.skipped["the op refuses the point"] += 1
        return
    if problem is None:
        return
    value = flat(problem.function(*problem.point))
    if not np.isfinite(value).all():
        found.skipped["the value is not finite"] += 1
    elif np.abs(value).max(initial=0.0) > POLE * (1 + np.abs(flat(problem.point)).max(initial=0.0)):
        found.skipped["the point is a pole but for rounding, such as a singular matrix"] += 1
    elif point.sample.dtype in EXACT:
        look_by_differences(point, problem, found)
    else:
        look_beside_wide(point, problem, found)


def modes_at(point: Point, found: Found) -> Iterator[tuple[str, Any]]:
    """Yield the modes that concern a point."""
    reason = point.sample.case.skip.get("gradgrad")
    first_only = reason is not None and reason != KINKED["gradgrad"]
    if first_only and point.label == "contiguous":
        found.skipped[f"the entry says of second derivatives: {reason}"] += 1
    thorough = point.sample.dtype in EXACT and point.sample.layout == "contiguous"
    for mode, compute in MODES.items():
        order = 1 if mode.startswith("vmap") else mode.count("-") + 1
        if order <= (1 if first_only else 3 if thorough else 2):
            yield mode, compute


def look_by_differences(point: Point, problem: Problem, found: Found) -> None:
    """Compare every mode with derivatives that are computed from values."""
    judge = Judge(problem)
    if not judge.is_defined_around():
        found.skipped["the op is not defined around the point"] += 1
        return
    differs = point.sample.entry.nonderivative_at
    is_other = differs is not None and differs(*map(to_array, problem.point))
    reference: dict[str, np.ndarray] = {}
    for mode, compute in modes_at(point, found):
        try:
            parts = compute(problem)
            verdicts = [judge.judge(part) for part in parts]
            if is_other:
                verdicts = [v._replace(kind="kink") if v.kind == "wrong" else v for v in verdicts]
            if any(verdict.kind in UNDECIDED for verdict in verdicts):
                verdicts = settle(judge, parts, verdicts, reference)
            if mode == "fwd":
                further = sharpened(judge, parts[0], found)
                if is_other:
                    further = [v._replace(kind="kink") if v.kind == "wrong" else v for v in further]
                verdicts += further
        except Exception as error:
            if mode == "rev-rev-rev" and judge.way("v") == "kink":
                found.add(point, mode, "kink")  # where not even the first derivative exists
            elif mode.startswith("vmap") and "inplace arithmetic" in str(error):
                found.skipped["vmap writes no batch into an operand without one"] += 1
            else:
                found.add(point, mode, "raised", described(error))
            continue
        if any(verdict.kind == "wrong" for verdict in verdicts) and last_bits_move(
            problem, compute, parts, verdicts
        ):
            found.skipped["the last bits of the arguments move the derivative as far"] += 1
            continue
        count_worst(point, mode, parts, verdicts, found)


def last_bits_move(
    problem: Problem,
    compute: Callable[[Problem], list[Part]],
    parts: list[Part],
    verdicts: list[Verdict],
) -> bool:
    """Tell whether rounding of the arguments moves what is wrong about as far as it is off.

    Then the order in which a mode sums decides: a softmax of scores of 1e10 is an example.
    """
    rng = np.random.default_rng(0)

    def moved(tensors: Tensors) -> Tensors:
        """Return tensors of which each element is off by a few units of the last place."""
        made = []
        for x in tensors:
            factors = 1 + rng.choice([-4, 4], tuple(x.shape)) * EPSILON
            near = x.detach() * pb.tensor(factors, dtype=x.dtype, device=x.device)
            made.append(near.requires_grad_(x.requires_grad))
        return tuple(made)

    others = compute(problem._replace(point=moved(problem.point), other=moved(problem.other)))
    for verdict, part, other in zip(verdicts, parts, others):
        if verdict.kind == "wrong":
            off = np.abs(part.found - verdict.expected).max(initial=0.0)
            moves = np.abs(part.found - other.found).max(initial=0.0)
            if part.beside is not None:
                moves = max(moves, np.abs(part.beside - other.beside).max(initial=0.0))
            if not moves >= off / 8:
                return False
    return all(verdict.kind != "wrong" for verdict in verdicts[len(parts) :])


def look_beside_wide(point: Point, problem: Problem, found: Found) -> None:
    """Compare every mode in a narrow dtype with the same in float64 or complex128."""
    wide = widened(problem, point)
    if not same_values(problem, wide):
        found.skipped["it draws other random numbers in float64"] += 1
        return
    for mode, compute in modes_at(point, found):
        try:
            parts = compute(problem)
            pairs = zip(parts, compute(wide))
            verdicts = [near(*pair, point.sample.dtype) for pair in pairs]
        except Exception as error:
            found.add(point, mode, "raised", described(error))
            continue
        count_worst(point, mode, parts, verdicts, found)


def count_worst(
    point: Point, mode: str, parts: list[Part], verdicts: list[Verdict], found: Found
) -> None:
    """Count a point in a mode by the worst of its parts."""
    order = ("wrong", "kink", "unconverged", "range", "right")
    worst = min(range(len(verdicts)), key=lambda i: order.index(verdicts[i].kind))
    verdict, part = verdicts[worst], parts[min(worst, len(parts) - 1)]
    text = ""
    if verdict.kind in BAD:
        text = f"part {worst}, got {shown(part.found)}, expected {shown(verdict.expected)}"
    found.add(point, mode, verdict.kind, text)


def described(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"


def sharpened(judge: Judge, part: Part, found: Found) -> list[Verdict]:
    """Compare forward mode with complex steps as well, where the op is analytic."""
    truth = judge.complex_step()
    if truth is None or truth.shape != part.found.shape:
        return []
    found.steps += 1
    close = np.abs(part.found - truth) <= ANALYTIC * np.abs(truth).max(initial=0.0)
    return [Verdict("right" if close.all() else "wrong", truth)]


def same_values(problem: Problem, wide: Problem) -> bool:
    """Tell whether a function has about the same values in a wide dtype."""
    here, there = flat(problem.function(*problem.point)), flat(wide.function(*wide.point))
    if here.shape != there.shape:
        return False
    rounded = min(0.1, 256 * max(pb.finfo(x.dtype).eps for x in problem.point))
    return bool((np.abs(here - there) <= rounded * (1 + np.abs(there).max(initial=0.0))).all())


def shown(numbers: np.ndarray) -> str:
    text = np.array2string(np.asarray(numbers).reshape(-1)[:6], precision=6, separator=" ")
    return " ".join(text.split())


def settle(
    judge: Judge, parts: list[Part], verdicts: list[Verdict], reference: dict[str, np.ndarray]
) -> list[Verdict]:
    """Where the function is not smooth, every mode must give what forward mode gives."""
    settled = []
    for part, verdict in zip(parts, verdicts):
        if verdict.kind not in UNDECIDED or any(len(names) > 2 for names, _ in part.terms):
            settled.append(verdict)
            continue
        total = size = rounding = np.asarray(0.0)
        for names, weights in part.terms:
            if names not in reference:
                reference[names] = jacobian(judge.problem, names)
            term = reference[names]
            rounding = np.maximum(rounding, judge.rounding(len(names)))
            factors = None if weights is None else flat(weights)
            total = total + (term if factors is None else np.dot(factors, term))
            size = size + (abs(term) if factors is None else np.dot(abs(factors), abs(term)))
        close = np.abs(part.found - total) <= 1e-7 * (1 + size) + rounding
        close |= ~np.isfinite(total) & ~np.isfinite(part.found)
        settled.append(Verdict(verdict.kind if close.all() else "wrong", total))
    return settled


def jacobian(problem: Problem, names: str) -> np.ndarray:
    """Return the derivative along one direction, or two, in forward mode."""
    first, *others = (getattr(problem, name) for name in names)

    def derivative(*values: pb.Tensor) -> Any:
        return pb.func.jvp(problem.function, values, first)[1]

    if not others:
        return flat(derivative(*problem.point))
    return flat(pb.func.jvp(derivative, problem.point, others[0])[1])


def near(part: Part, wide: Part, dtype: Any) -> Verdict:
    """Compare a part in a narrow dtype with the same in float64 or complex128."""
    eps = pb.finfo(dtype).eps
    size = np.fmax(np.abs(wide.found), wide.size)
    allowed = 64 * eps * (size + 1)
    close = np.abs(part.found - wide.found) <= allowed
    known = np.isfinite(wide.found) & (np.abs(wide.found) < pb.finfo(dtype).max / 4)
    return Verdict("right" if (close | ~known).all() else "wrong", wide.found)
