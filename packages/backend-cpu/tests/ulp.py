"""Arguments at which functions are hard, many digits of the values, errors in last places."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import mpmath
import numpy as np
from mpmath import mp, mpf

DIGITS = {"f32": 100, "f64": 160}  # bits of the references
NUMPY = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


class Function(NamedTuple):
    """A reference, an interval that is sampled densely, and the largest size of an argument."""

    reference: Callable
    dense: tuple[float, float]
    dense_f64: tuple[float, float]
    top: float
    top_f64: float
    positive: bool = False
    count: int = 10_000


def _sigmoid(x):
    return 1 / (1 + mpmath.exp(-x))


def _softplus(x):
    return mpmath.log1p(mpmath.exp(x)) if x <= 20 else x


def _lgamma(x):
    if x <= 0 and x == mpmath.floor(x):
        return mpf("inf")
    return mpmath.log(abs(mpmath.gamma(x))) if abs(x) < 40 else mpmath.re(mpmath.loggamma(x))


FUNCTIONS = {
    "acos": Function(mpmath.acos, (-1, 1), (-1, 1), 1, 1),
    "acosh": Function(mpmath.acosh, (1, 4), (1, 4), 3e38, 1e308, positive=True),
    "asin": Function(mpmath.asin, (-1, 1), (-1, 1), 1, 1),
    "asinh": Function(mpmath.asinh, (-4, 4), (-4, 4), 3e38, 1e308),
    "atan": Function(mpmath.atan, (-4, 4), (-4, 4), 3e38, 1e308),
    "atanh": Function(mpmath.atanh, (-0.999, 0.999), (-0.999, 0.999), 0.999, 0.999),
    "cos": Function(mpmath.cos, (-20, 20), (-20, 20), 1e6, 1e6),
    "cosh": Function(mpmath.cosh, (-4, 4), (-4, 4), 89, 710),
    "digamma": Function(
        lambda x: mpmath.psi(0, x), (1, 2), (1, 2), 1e6, 1e15, positive=True, count=1000
    ),
    "erf": Function(mpmath.erf, (-4, 4), (-6, 6), 10, 10, count=2000),
    "erfc": Function(mpmath.erfc, (-4, 10), (-4, 26), 9, 26, count=2000),
    "exp": Function(mpmath.exp, (-104, 89), (-745, 709), 88, 700),
    "exp2": Function(lambda x: mpf(2) ** x, (-150, 128), (-1075, 1024), 127, 1023),
    "expm1": Function(mpmath.expm1, (-4, 4), (-4, 4), 88, 709),
    "lgamma": Function(_lgamma, (-6, 6), (-6, 6), 1e30, 1e300, count=4000),
    "log": Function(mpmath.log, (0.4, 3), (0.4, 3), 3e38, 1e308, positive=True),
    "log10": Function(mpmath.log10, (0.4, 3), (0.4, 3), 3e38, 1e308, positive=True),
    "log1p": Function(mpmath.log1p, (-0.999, 3), (-0.999, 3), 0.999, 0.999),
    "log2": Function(lambda x: mpmath.log(x, 2), (0.4, 3), (0.4, 3), 3e38, 1e308, positive=True),
    "rsqrt": Function(lambda x: 1 / mpmath.sqrt(x), (0.2, 4), (0.2, 4), 3e38, 1e308, positive=True),
    "sigmoid": Function(_sigmoid, (-20, 20), (-40, 40), 103, 740),
    "sin": Function(mpmath.sin, (-20, 20), (-20, 20), 1e6, 1e6),
    "sinh": Function(mpmath.sinh, (-4, 4), (-4, 4), 89, 710),
    "softplus": Function(_softplus, (-20, 21), (-40, 21), 80, 700),
    "tan": Function(mpmath.tan, (-20, 20), (-20, 20), 1e6, 1e6),
    "tanh": Function(mpmath.tanh, (-3, 3), (-3, 3), 20, 40),
}
PAIRS = {"atan2": mpmath.atan2, "hypot": mpmath.hypot, "pow": mpmath.power}


def _log_uniform(rng, count: int, dtype: np.dtype, top: float) -> np.ndarray:
    lowest = np.log(float(np.finfo(dtype).smallest_subnormal))
    return np.exp(rng.uniform(lowest, np.log(top), count))


def points(primitive: str, dtype: str) -> np.ndarray:
    """Return arguments of a function: half of them dense, the others of every size."""
    function = FUNCTIONS[primitive]
    wide = dtype == "f64"
    rng = np.random.default_rng(7)
    half = function.count // 2
    dense = rng.uniform(*(function.dense_f64 if wide else function.dense), half)
    spread = _log_uniform(rng, half, NUMPY[dtype], function.top_f64 if wide else function.top)
    if primitive == "acosh":
        spread = np.maximum(spread, 1)
    if not function.positive:
        spread *= rng.choice([-1, 1], half)
    return np.concatenate([dense, spread]).astype(NUMPY[dtype])


def pairs(primitive: str, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return arguments of a function of two."""
    numbers = NUMPY[dtype]
    rng = np.random.default_rng(8)
    count, top = 5000, 1e37 if dtype == "f32" else 1e306
    x = np.concatenate([rng.uniform(0.5, 2, count), _log_uniform(rng, count, numbers, top)])
    if primitive == "pow":
        x = np.maximum(x.astype(numbers), np.finfo(numbers).smallest_subnormal)
        reach = 87 if dtype == "f32" else 708
        size = np.maximum(np.abs(np.log(x.astype(np.float64))), 1e-7)
        return x, (rng.uniform(-reach, reach, 2 * count) / size).astype(numbers)
    y = x[rng.permutation(2 * count)] * rng.choice([-1, 1], 2 * count)
    return x.astype(numbers), y.astype(numbers)


def reference(function: Callable, dtype: str, *arguments: np.ndarray) -> np.ndarray:
    """Return the values as sums of two doubles, in two rows."""
    result = np.empty((2, arguments[0].size))
    with mp.workprec(DIGITS[dtype]):
        for k, numbers in enumerate(zip(*(a.tolist() for a in arguments), strict=True)):
            value = function(*map(mpf, numbers))
            result[0, k] = float(value)
            result[1, k] = float(value - mpf(result[0, k])) if np.isfinite(result[0, k]) else 0
    return result


def errors(got: np.ndarray, exact: np.ndarray, scale: np.ndarray | None = None) -> np.ndarray:
    """Return the errors in units of the last place; none where the exact value overflows.

    The units are those of ``scale``, where it is given: it is larger next to zeros.
    """
    info = np.finfo(got.dtype)
    _, exponent = np.frexp(exact[0] if scale is None else scale)
    unit = np.ldexp(1.0, np.maximum(exponent, info.minexp + 1) - (info.nmant + 1))
    inside = np.abs(exact[0]) < float(info.max) * (1 - 2.0**-20)
    with np.errstate(all="ignore"):
        error = np.abs((got.astype(np.float64) - exact[0]) - exact[1]) / unit
    return np.where(inside, error, 0)
