"""Derivatives of scalar functions in every mode, compared with their definitions in 50 digits.

A formula is a function of the module ``mpmath`` and a number of its type. Its derivatives are
differences of values with many more digits than there are to lose.
"""

from __future__ import annotations

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

__all__ = ["FORMULAS", "comparisons", "load"]

DIGITS = 50

# Numbers at which one-argument functions are looked at: zeros, subnormals, the neighbours of 1 and
# of the ends of the range, and ordinary ones.
POINTS = (
    0.0, 5e-324, 1e-310, 1e-160, 1e-20, 1e-8, 1e-4, 0.1, 0.3, 0.5, 0.75, 1 - 2**-40, 1.0,
    1 + 2**-40, 1.5, 2.0, 3.1, 7.5, 19.0, 40.0, 120.0, 700.0, 1e5, 1e10, 1e100, 1e154, 1e308,
)  # fmt: skip

# Those that take mpmath seconds at the ends of the range, where they behave like logarithms.
SLOW = ("digamma", "lgamma")


def load() -> ModuleType | None:
    """Return mpmath, or None where it is not installed."""
    try:
        return importlib.import_module("mpmath")
    except ImportError:
        return None


def points_of(name: str) -> list[float]:
    """Return the numbers at which a function is looked at, of both signs."""
    chosen = [x for x in POINTS if name not in SLOW or not x or 1e-20 <= x <= 1e10]
    return [x for size in chosen for x in ((size, -size) if size else (size,))]


def _ndtr(mp: Any, x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _sigmoid(mp: Any, x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _softplus(mp: Any, x: Any) -> Any:
    return mp.log1p(mp.exp(x)) if x < 0 else x + mp.log1p(mp.exp(-x))


def _gelu_tanh(mp: Any, x: Any) -> Any:
    return x / 2 * (1 + mp.tanh(mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3)))


FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "acos": lambda mp, x: mp.acos(x),
    "acosh": lambda mp, x: mp.acosh(x),
    "asin": lambda mp, x: mp.asin(x),
    "asinh": lambda mp, x: mp.asinh(x),
    "atan": lambda mp, x: mp.atan(x),
    "atanh": lambda mp, x: mp.atanh(x),
    "cos": lambda mp, x: mp.cos(x),
    "cosh": lambda mp, x: mp.cosh(x),
    "deg2rad": lambda mp, x: x * mp.mpf(math.pi / 180),
    "digamma": lambda mp, x: mp.digamma(x),
    "erf": lambda mp, x: mp.erf(x),
    "erfc": lambda mp, x: mp.erfc(x),
    "erfinv": lambda mp, x: mp.erfinv(x),
    "exp": lambda mp, x: mp.exp(x),
    "exp2": lambda mp, x: mp.mpf(2) ** x,
    "expm1": lambda mp, x: mp.expm1(x),
    "gelu": lambda mp, x: x * _ndtr(mp, x),
    "gelu_tanh": _gelu_tanh,
    "i0": lambda mp, x: mp.besseli(0, x),
    "i1": lambda mp, x: mp.besseli(1, x),
    "lgamma": lambda mp, x: mp.log(abs(mp.gamma(x))) if x < 100 else mp.loggamma(x),
    "log": lambda mp, x: mp.log(x),
    "log10": lambda mp, x: mp.log10(x),
    "log1p": lambda mp, x: mp.log1p(x),
    "log2": lambda mp, x: mp.log(x, 2),
    "logit": lambda mp, x: mp.log(x / (1 - x)),
    "logsigmoid": lambda mp, x: -_softplus(mp, -x),
    "mish": lambda mp, x: x * mp.tanh(_softplus(mp, x)),
    "ndtr": _ndtr,
    "reciprocal": lambda mp, x: 1 / x,
    "rsqrt": lambda mp, x: 1 / mp.sqrt(x),
    "sigmoid": _sigmoid,
    "silu": lambda mp, x: x * _sigmoid(mp, x),
    "sin": lambda mp, x: mp.sin(x),
    "sinc": lambda mp, x: mp.sincpi(x),
    "sinh": lambda mp, x: mp.sinh(x),
    "softplus": lambda mp, x: _softplus(mp, x),
    "sqrt": lambda mp, x: mp.sqrt(x),
    "square": lambda mp, x: x**2,
    "tan": lambda mp, x: mp.tan(x),
    "tanh": lambda mp, x: mp.tanh(x),
    "tanhshrink": lambda mp, x: x - mp.tanh(x),
    "entr": lambda mp, x: -x * mp.log(x),
}


def derivatives(mp: Any, name: str, x: float) -> list[float] | None:
    """Return value and derivatives of orders 1 to 3 at a point, rounded to float64.

    None where the function is not defined, or not smooth.
    """
    formula = FORMULAS[name]
    size = abs(round(math.log10(abs(x)))) if x else 0
    with mp.workdps(8 * DIGITS + 4 * size):
        at = mp.mpf(x)
        step = mp.mpf(10) ** -DIGITS * (min(abs(at), 1) if x else 1)
        try:
            a, b, c, d, e = values = [formula(mp, at + k * step) for k in (-2, -1, 0, 1, 2)]
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


def slope(function: Any) -> Any:
    """Return the derivative of an elementwise function, in forward mode."""

    def result(x: pb.Tensor) -> pb.Tensor:
        return pb.func.jvp(function, (x,), ones(x))[1]

    return result


def pulled(function: Any) -> Any:
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
    "fwd": (1, slope),
    "rev-rev": (2, lambda f: again(f, 2)),
    "fwd-rev": (2, lambda f: slope(pulled(f))),
    "rev-fwd": (2, lambda f: pulled(slope(f))),
    "fwd-fwd": (2, lambda f: slope(slope(f))),
    "rev-rev-rev": (3, lambda f: again(f, 3)),
}


def comparisons(entry: Any, mp: ModuleType) -> Iterator[tuple[str, str, str, str]]:
    """Yield (mode, kind, place, text) for each point and mode; nothing for ops without formula."""
    if entry.name not in FORMULAS:
        return
    truths = [(x, derivatives(mp, entry.name, x)) for x in points_of(entry.name)]
    known = [(x, numbers) for x, numbers in truths if numbers is not None]
    at = pb.tensor([x for x, _ in known], dtype=pb.float64)
    truth = np.array([numbers for _, numbers in known])
    op = op_of(entry)
    value = flat((op(at),))  # infinite or NaN where numbers on the way leave the range
    for mode, (order, derive) in MODES.items():
        found, wanted = flat((derive(lambda x: op(x))(at),)), truth[:, order]
        # What lies near the ends of the range comes from squares and inverses that leave it.
        told = (np.abs(wanted) < END) & (np.abs(truth[:, 0]) < END) & np.isfinite(value)
        if order > 1:
            told &= np.abs(flat((at,))) < END
        right = np.abs(found - wanted) <= ALLOWED * np.abs(wanted) + FLOOR
        for i, (x, _) in enumerate(known):
            kind = "range" if not told[i] else "right" if right[i] else "wrong"
            text = f"got {found[i]:.10g}, expected {wanted[i]:.10g}"
            yield mode, kind, f"in 50 digits at {x!r}", text
