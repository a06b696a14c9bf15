"""Expected values of orthogonal polynomials: their coefficients, by numpy.polynomial."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.polynomial import Polynomial, chebyshev, hermite, hermite_e, laguerre, legendre

NAMES = (
    *(f"chebyshev_polynomial_{kind}" for kind in "tuvw"),
    *("hermite_polynomial_h", "hermite_polynomial_he"),
    *("laguerre_polynomial_l", "legendre_polynomial_p"),
)


def _second_kind(n: int) -> Polynomial:
    """U(n) is the derivative of T(n + 1) over n + 1."""
    if n < 0:
        return Polynomial([0.0])
    return Polynomial(chebyshev.cheb2poly([0.0] * (n + 1) + [1.0])).deriv() / (n + 1)


def _polynomial(name: str, n: int) -> Polynomial:
    if n < 0:
        return Polynomial([0.0])
    unit = [0.0] * n + [1.0]
    letter = name.rpartition("_")[2]
    converted = {
        "t": lambda: chebyshev.cheb2poly(unit),
        "h": lambda: hermite.herm2poly(unit),
        "he": lambda: hermite_e.herme2poly(unit),
        "l": lambda: laguerre.lag2poly(unit),
        "p": lambda: legendre.leg2poly(unit),
    }
    if letter in converted:
        return Polynomial(converted[letter]())
    below = {"u": 0, "v": -1, "w": 1}[letter]
    return _second_kind(n) + below * _second_kind(n - 1)


def _evaluate(name: str, x: Any, n: Any, order: int) -> Any:
    points, degrees = np.broadcast_arrays(x, np.trunc(n).astype(np.int64))
    found = np.empty(points.shape)
    for at in np.ndindex(points.shape):
        found[at] = _polynomial(name, int(degrees[at])).deriv(order)(points[at])
    return found


def value(name: str, shifted: bool = False) -> Any:
    """Return the function that evaluates a polynomial, at 2 x - 1 if it is shifted."""
    return lambda np, x, n: _evaluate(name, 2 * x - 1 if shifted else x, n, 0)


def slope(np: Any, x: Any, n: Any, kind: int, order: int) -> Any:
    """Return a derivative of a polynomial."""
    return _evaluate(NAMES[kind], x, n, order)
