"""Derivatives of scalar functions in every mode, compared with their definitions in 50 digits.

An entry's ``mpmath`` names a function of the module, or is a function of the module and a number of
its type. Its derivatives are differences of values with many more digits than there are to lose.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

import pullback as pb
from pullback.testing.certify.derivatives import backward, flat, leaves
from pullback.testing.certify.judge import END
from pullback.testing.samples import op_of

__all__ = ["comparisons", "derivatives", "formula_of", "load"]

Formula = Callable[[Any], Any]

DIGITS = 50

# Numbers at which one-argument functions are looked at: zeros, subnormals, the neighbours of 1 and
# of the ends of the range, and ordinary ones.
POINTS = (
    0.0, 5e-324, 1e-310, 1e-160, 1e-20, 1e-8, 1e-4, 0.1, 0.3, 0.5, 0.75, 1 - 2**-40, 1.0,
    1 + 2**-40, 1.5, 2.0, 3.1, 7.5, 19.0, 40.0, 120.0, 700.0, 1e5, 1e10, 1e100, 1e154, 1e308,
)  # fmt: skip


def load() -> ModuleType | None:
    """Return mpmath, or None where it is not installed."""
    try:
        return importlib.import_module("mpmath")
    except ImportError:
        return None


# At which functions are looked at, of both signs.
SIGNED = tuple(x for size in POINTS for x in ((size, -size) if size else (size,)))


def formula_of(entry: Any, mp: ModuleType) -> Formula | None:
    """Return an entry's formula as a function of a number of mpmath, or None."""
    if entry.mpmath is None:
        return None
    if isinstance(entry.mpmath, str):
        return getattr(mp, entry.mpmath)
    return functools.partial(entry.mpmath, mp)


def derivatives(mp: Any, formula: Formula, x: float) -> list[float] | None:
    """Return value and derivatives of orders 1 to 3 at a point, rounded to float64.

    None where the function is not defined, or not smooth.
    """
    size = abs(round(math.log10(abs(x)))) if x else 0
    with mp.workdps(8 * DIGITS + 4 * size):
        at = mp.mpf(x)
        step = mp.mpf(10) ** -DIGITS * (min(abs(at), 1) if x else 1)
        try:
            a, b, c, d, e = values = [formula(at + k * step) for k in (-2, -1, 0, 1, 2)]
        except (ValueError, ZeroDivisionError, OverflowError, mp.libmp.NoConvergence):
            return None
        found = [
            c,
            (8 * (d - b) - (e - a)) / (12 * step),
            (16 * (d + b) - (e + a) - 30 * c) / (12 * step**2),
            (e - 2 * d + 2 * b - a) / (2 * step**3),
        ]
        if any(mp.im(number) != 0 or not mp.isfinite(number) for number in (*values, *found)):
            return None
        return [_rounded(mp.re(number)) for number in found]


def _rounded(number: Any) -> float:
    """Return the nearest float64, infinities beyond its range."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


# -- in every mode ---------------------------------------------------------------------------------

ALLOWED = 1e-7  # half of the digits: formulas such as y * (1 - y) lose the others in the tails
FLOOR = 1e-13


def ones(tensor: pb.Tensor) -> tuple[pb.Tensor]:
    return (pb.ones_like(tensor),)


def forward_derivative(function: Any) -> Any:
    """Return the derivative of an elementwise function, in forward mode."""

    def result(x: pb.Tensor) -> pb.Tensor:
        return pb.func.jvp(function, (x,), ones(x))[1]

    return result


def reverse_derivative(function: Any) -> Any:
    """Return the derivative of an elementwise function, in reverse mode."""

    def result(x: pb.Tensor) -> pb.Tensor:
        y, pull = pb.func.vjp(function, x)
        return pull(*ones(y))[0]

    return result


def again(function: Any, order: int) -> Any:
    """Return a derivative of an elementwise function, by backward through backward."""

    def result(x: pb.Tensor) -> pb.Tensor:
        (leaf,) = leaves((x,))
        y = function(leaf)
        for left in range(order, 0, -1):
            (y,) = backward((y,), (leaf,), ones(y), create_graph=left > 1)
        return y

    return result


MODES = {
    "rev": (1, lambda f: again(f, 1)),
    "fwd": (1, forward_derivative),
    "rev-rev": (2, lambda f: again(f, 2)),
    "fwd-rev": (2, lambda f: forward_derivative(reverse_derivative(f))),
    "rev-fwd": (2, lambda f: reverse_derivative(forward_derivative(f))),
    "fwd-fwd": (2, lambda f: forward_derivative(forward_derivative(f))),
    "rev-rev-rev": (3, lambda f: again(f, 3)),
}


def comparisons(entry: Any, mp: ModuleType) -> Iterator[tuple[str, str, str, str]]:
    """Yield (mode, kind, where, text) for each point and mode; nothing for ops without formula."""
    formula = formula_of(entry, mp)
    if formula is None:
        return
    truths = [(x, derivatives(mp, formula, x)) for x in SIGNED]
    known = [(x, numbers) for x, numbers in truths if numbers is not None]
    at = pb.tensor([x for x, _ in known], dtype=pb.float64)
    truth = np.array([numbers for _, numbers in known])
    op = op_of(entry)
    value = flat((op(at),))  # infinite or NaN where numbers on the way leave the range
    for mode, (order, derive) in MODES.items():
        found, wanted = flat((derive(lambda x: op(x))(at),)), truth[:, order]
        # Near the ends of the range, squares and inverses on the way overflow or underflow.
        decided = (np.abs(wanted) < END) & (np.abs(truth[:, 0]) < END) & np.isfinite(value)
        if order > 1:
            decided &= np.abs(flat((at,))) < END
        right = np.abs(found - wanted) <= ALLOWED * np.abs(wanted) + FLOOR
        for i, (x, _) in enumerate(known):
            kind = "range" if not decided[i] else "right" if right[i] else "wrong"
            text = f"got {found[i]:.10g}, expected {wanted[i]:.10g}"
            yield mode, kind, f"in 50 digits at {x!r}", text
