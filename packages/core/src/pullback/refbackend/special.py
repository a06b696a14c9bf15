"""Reference kernels of special functions: SciPy's, computed in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import masks
from .arrays import Array, Kernel, store

_LARGEST_DEGREE = 1 << 24


def _airy(which: int) -> Callable[[Any, Array], Array]:
    """Return Ai (0) or its derivative (1); both are 0 where SciPy gives up beyond 110."""

    def function(special: Any, x: Array) -> Array:
        return np.where((x > 110) & (x < np.inf), 0.0, special.airy(np.minimum(x, 111))[which])

    return lambda special, x: np.where(np.isinf(x), np.nan, function(special, x))


def _bessel(name: str, second: bool, order: int) -> Callable[[Any, Array], Array]:
    """Return SciPy's function; from 25 on DLMF 10.17.3 and 10.17.4, as SciPy loses the phase."""

    def function(special: Any, x: Array) -> Array:
        far = (x if second else np.abs(x)) >= 25
        size = np.where(far, np.abs(x), 25)
        even, odd, term = np.ones_like(size), np.zeros_like(size), np.ones_like(size)
        for k in range(1, 24):
            term = term * ((4 * order - (2 * k - 1) ** 2) / (8 * k)) / size
            signed = -term if k & 2 else term
            even, odd = (even, odd + signed) if k & 1 else (even + signed, odd)
        c, s = np.cos(size), np.sin(size)
        c, s = (s - c, -(c + s)) if order else (c + s, s - c)
        found = even * s + odd * c if second else even * c - odd * s
        found = found / np.sqrt(np.pi * size)
        found = np.where((x < 0) & (order == 1), -found, found)
        return np.where(far, found, getattr(special, name)(x))

    return function


def _polynomial(evaluate: Callable[[Any, Array, Array], Array]) -> Callable[..., Array]:
    def function(special: Any, x: Array, degree: Array) -> Array:
        known = (degree > -1) & (degree <= _LARGEST_DEGREE)
        n = np.where(known, degree, 0).astype(np.int64)
        found = np.where(n == 0, 1.0, evaluate(special, n, x))
        return np.where(known, found, np.where(degree > 0, np.nan, 0.0))

    return function


def _second_kind(special: Any, n: Array, x: Array) -> Array:
    return np.where(n < 0, 0.0, special.eval_chebyu(np.maximum(n, 0), x))


_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "airy_ai": _airy(0),
    "airy_ai_prime": _airy(1),
    "bessel_j0": _bessel("j0", False, 0),
    "bessel_j1": _bessel("j1", False, 1),
    "bessel_y0": _bessel("y0", True, 0),
    "bessel_y1": _bessel("y1", True, 1),
    "erfcx": lambda special, x: special.erfcx(x),
    "i0e": lambda special, x: special.i0e(x),
    "i1e": lambda special, x: special.i1e(x),
    "log_ndtr": lambda special, x: special.log_ndtr(x),
    "modified_bessel_k0": lambda special, x: special.k0(x),
    "modified_bessel_k1": lambda special, x: special.k1(x),
    "ndtri": lambda special, x: special.ndtri(x),
    "scaled_modified_bessel_k0": lambda special, x: special.k0e(x),
    "scaled_modified_bessel_k1": lambda special, x: special.k1e(x),
    # Before SciPy 1.16 they are numbers for NaN and 0.
    "igamma": lambda special, x, y: np.where(np.isnan(x), x, special.gammainc(x, y)),
    "igammac": lambda special, x, y: np.where(np.isnan(x), x, special.gammaincc(x, y)),
    "chebyshev_polynomial_t": _polynomial(lambda special, n, x: special.eval_chebyt(n, x)),
    "chebyshev_polynomial_u": _polynomial(_second_kind),
    "chebyshev_polynomial_v": _polynomial(
        lambda special, n, x: _second_kind(special, n, x) - _second_kind(special, n - 1, x)
    ),
    "chebyshev_polynomial_w": _polynomial(
        lambda special, n, x: _second_kind(special, n, x) + _second_kind(special, n - 1, x)
    ),
    "hermite_polynomial_h": _polynomial(lambda special, n, x: special.eval_hermite(n, x)),
    "hermite_polynomial_he": _polynomial(lambda special, n, x: special.eval_hermitenorm(n, x)),
    "laguerre_polynomial_l": _polynomial(lambda special, n, x: special.eval_laguerre(n, x)),
    "legendre_polynomial_p": _polynomial(lambda special, n, x: special.eval_legendre(n, x)),
}


def _kernel(name: str, function: Callable[..., Array]) -> Kernel:
    def kernel(out: Array, *inputs: Array) -> None:
        from scipy import special

        with np.errstate(all="ignore"):
            store(out, function(special, *(np.asarray(x, dtype=np.float64) for x in inputs)))

    kernel.__name__ = kernel.__qualname__ = name
    kernel.__doc__ = f"Fill ``out`` with {name} of each element."
    return kernel


KERNELS = {name: (masks.FLOATING, _kernel(name, f)) for name, f in _FUNCTIONS.items()}
