"""Arguments and values, with many digits, of the functions of ``pullback.special``.

Next to zeros that are no numbers of the dtype a relative error has no bound. There an error is
counted in last places of an envelope: the amplitude of a Bessel function, the larger of two
polynomials that follow each other, the largest of the terms that cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import mpmath
import numpy as np
from mpmath import mp, mpf
from ulp import NUMPY, reference

Ranges = tuple[tuple[float, float], ...]


class Special(NamedTuple):
    """A value, the ranges of its arguments, what errors are measured by, numbers in a call."""

    value: Callable
    ranges: tuple[Ranges, ...]
    envelope: Callable | None = None
    before: tuple = ()
    after: tuple = ()
    whole: bool = False  # the last argument


def _root(function: Callable, slope: Callable, start: float) -> mpf:
    """Return the root near a start by Newton's method."""
    x = mpf(start)
    for _ in range(4):
        x -= function(x) / slope(x)
    return x


def _density(x: mpf) -> mpf:
    return mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)


def _ndtr(x: mpf) -> mpf:
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def _log_ndtr(x: mpf) -> mpf:
    return mpmath.log1p(-_ndtr(-x)) if x > 0 else mpmath.log(_ndtr(x))


def _quantile(p: mpf, rest: mpf) -> mpf:
    """Return the normal quantile of p = 1 - rest, for p <= 1/2."""
    from scipy.special import ndtri

    start = float(ndtri(float(p)))
    if p > 0.25:
        half = (p - rest) / 2
        return _root(lambda x: mpmath.erf(x / mpmath.sqrt(2)) / 2 - half, _density, start)
    return _root(
        lambda x: mpmath.log(_ndtr(x)) - mpmath.log(p), lambda x: _density(x) / _ndtr(x), start
    )


def _ndtri(p: mpf) -> mpf:
    return _quantile(p, 1 - p) if p <= 0.5 else -_quantile(1 - p, p)


def _erfinv(x: mpf) -> mpf:
    found = _quantile((1 - abs(x)) / 2, (1 + abs(x)) / 2) / mpmath.sqrt(2)
    return -found if x > 0 else found


def _bessel(order: int) -> Callable:
    """Return the amplitude of the Bessel functions, where they swing."""

    def envelope(x: mpf) -> mpf:
        x = max(abs(x), mpf(order + 1))
        return mpmath.hypot(mpmath.besselj(order, x), mpmath.bessely(order, x))

    return envelope


def _airy(x: mpf) -> mpf:
    return mpmath.hypot(mpmath.airyai(x), mpmath.airybi(x)) if x < 0 else mpf(0)


def _polynomial(kind: str) -> Callable:
    """Return the polynomial by its recurrence, DLMF 18.9.1."""

    def value(x: mpf, n: mpf) -> mpf:
        first = {"u": 2 * x, "v": 2 * x - 1, "w": 2 * x + 1, "h": 2 * x, "l": 1 - x}
        before, now = mpf(1), first.get(kind, x)
        for k in range(1, int(n)):
            of_now, of_before, divisor = {
                "h": (2 * x, 2 * k, 1),
                "he": (x, k, 1),
                "l": (2 * k + 1 - x, k, k + 1),
                "p": ((2 * k + 1) * x, k, k + 1),
            }.get(kind, (2 * x, 1, 1))
            before, now = now, (of_now * now - of_before * before) / divisor
        return now if n > 0 else before

    return value


def _previous(value: Callable) -> Callable:
    return lambda x, n: abs(value(x, max(n - 1, 0)))


def _shifted(value: Callable) -> Callable:
    return lambda x, n: value(2 * x - 1, n)


def _gamma_part(upper: bool) -> Callable:
    def value(a: mpf, x: mpf) -> mpf:
        low, high = (x, mpmath.inf) if upper else (0, x)
        return mpmath.gammainc(a, low, high, regularized=True)

    return value


def _lgamma(x: mpf) -> mpf:
    return mpmath.re(mpmath.loggamma(x))


def _polygamma(order: int) -> Callable:
    return lambda x: mpmath.psi(order, x)


def _zeta(s: mpf, a: mpf) -> mpf:
    """Return Hurwitz's zeta function; mpmath's has digits after the point, however small it is."""
    with mp.workprec(mp.prec + int(max(s * mpmath.log(a, 2), 0))):
        return mpmath.zeta(s, a)


def _scaled(function: Callable) -> Callable:
    return lambda x: function(x) * mpmath.exp(x)


def _i(order: int) -> Callable:
    return lambda x: mpmath.besseli(order, x)


def _k(order: int) -> Callable:
    return lambda x: mpmath.besselk(order, x)


_SWINGING = (((-30, 30), (-1000, 1000), (-0.01, 0.01)),)
_POSITIVE = (((0, 30), (0, 1000), (0, 0.01)),)
_ALL = (((-20, 20), (-80, 80), (-0.01, 0.01)),)
_FALLING = (((0, 2), (0, 20), (0, 80)),)
_TWO = (((0.01, 20), (0.01, 200)), ((0.01, 20), (0.01, 200)))
FUNCTIONS = {
    "airy_ai": Special(mpmath.airyai, (((-8, 9), (-100, 30)),), _airy),
    "bessel_j0": Special(lambda x: mpmath.besselj(0, x), _SWINGING, _bessel(0)),
    "bessel_j1": Special(
        lambda x: mpmath.besselj(1, x),
        _SWINGING,
        lambda x: _bessel(1)(x) if abs(x) > 2 else mpf(0),
    ),
    "bessel_y0": Special(lambda x: mpmath.bessely(0, x), _POSITIVE, _bessel(0)),
    "bessel_y1": Special(lambda x: mpmath.bessely(1, x), _POSITIVE, _bessel(1)),
    "digamma": Special(
        lambda x: mpmath.psi(0, x),
        (((0, 2), (0, 100), (-10, 0)),),
        lambda x: mpmath.psi(0, 1 - x) if x < 0 else mpf(0),
    ),
    "entr": Special(lambda x: -x * mpmath.log(x), (((0, 3), (0, 1e5)),)),
    "erf": Special(mpmath.erf, (((-6, 6), (-0.01, 0.01)),)),
    "erfc": Special(mpmath.erfc, (((-6, 9), (-6, 26)),)),
    "erfcx": Special(
        lambda x: mpmath.exp(x * x) * mpmath.erfc(x), (((-9, 9), (-26, 1), (0, 1000)),)
    ),
    "erfinv": Special(_erfinv, (((-1, 1), (-0.001, 0.001), (0.99, 1)),)),
    "exp2": Special(lambda x: mpf(2) ** x, (((-120, 120),),)),
    "expit": Special(lambda x: 1 / (1 + mpmath.exp(-x)), (((-20, 20), (-80, 80)),)),
    "expm1": Special(mpmath.expm1, (((-80, 80), (-1, 1)),)),
    "gammainc": Special(_gamma_part(False), _TWO),
    "gammaincc": Special(_gamma_part(True), _TWO),
    "gammaln": Special(_lgamma, (((0, 5), (0, 1000)),)),
    "i0": Special(_i(0), _ALL),
    "i0e": Special(lambda x: _i(0)(x) * mpmath.exp(-abs(x)), (*_ALL,)),
    "i1": Special(_i(1), _ALL),
    "i1e": Special(lambda x: _i(1)(x) * mpmath.exp(-abs(x)), (*_ALL,)),
    "log1p": Special(mpmath.log1p, (((-1, 5), (-0.01, 0.01)),)),
    "log_ndtr": Special(_log_ndtr, (((-20, 8), (-1000, 12)),)),
    "logit": Special(lambda x: mpmath.log(x / (1 - x)), (((0, 1), (0.49, 0.51)),)),
    "modified_bessel_i0": Special(_i(0), _ALL),
    "modified_bessel_i1": Special(_i(1), _ALL),
    "modified_bessel_k0": Special(_k(0), _FALLING),
    "modified_bessel_k1": Special(_k(1), _FALLING),
    "multigammaln": Special(
        lambda x: _lgamma(x) + _lgamma(x - 0.5) + mpmath.log(mpmath.pi) / 2,
        (((1, 5), (1, 1000)),),
        lambda x: abs(_lgamma(x)) + abs(_lgamma(x - 0.5)) + mpmath.log(mpmath.pi) / 2,
        after=(2,),
    ),
    "ndtr": Special(_ndtr, (((-5, 5), (-12, 5)),)),
    "ndtri": Special(_ndtri, (((0, 1), (0, 1e-6), (0.45, 0.55)),)),
    "polygamma 1": Special(_polygamma(1), (((0, 3), (0, 100)),), before=(1,)),
    "polygamma 2": Special(_polygamma(2), (((0, 3), (0, 100)),), before=(2,)),
    "polygamma 5": Special(_polygamma(5), (((0, 3), (0, 100)),), before=(5,)),
    "scaled_modified_bessel_k0": Special(_scaled(_k(0)), _FALLING),
    "scaled_modified_bessel_k1": Special(_scaled(_k(1)), _FALLING),
    "sinc": Special(
        mpmath.sincpi, (((-20, 20), (-0.01, 0.01)),), lambda x: 1 / max(abs(x * mpmath.pi), mpf(1))
    ),
    "spherical_bessel_j0": Special(
        mpmath.sinc, (((-60, 60), (-0.01, 0.01)),), lambda x: 1 / max(abs(x), mpf(1))
    ),
    "xlog1py": Special(lambda x, y: x * mpmath.log1p(y), (((-5, 5),), ((-1, 5),))),
    "xlogy": Special(lambda x, y: x * mpmath.log(y), (((-5, 5),), ((0, 5),))),
    "zeta": Special(_zeta, (((1.01, 3), (1.01, 30)), ((0, 10), (0, 60)))),
}
for _name, _kind, _reach in (
    ("chebyshev_polynomial_t", "t", 1),
    ("chebyshev_polynomial_u", "u", 1),
    ("chebyshev_polynomial_v", "v", 1),
    ("chebyshev_polynomial_w", "w", 1),
    ("hermite_polynomial_h", "h", 4),
    ("hermite_polynomial_he", "he", 4),
    ("laguerre_polynomial_l", "l", 8),
    ("legendre_polynomial_p", "p", 1),
):
    _value, _degrees = _polynomial(_kind), ((0, 12),)
    _x = ((0 if _kind == "l" else -_reach, _reach),)
    FUNCTIONS[_name] = Special(_value, (_x, _degrees), _previous(_value), whole=True)
    if _name.startswith("chebyshev"):
        _value = _shifted(_value)
        FUNCTIONS[f"shifted_{_name}"] = Special(
            _value, (((0, 1),), _degrees), _previous(_value), whole=True
        )


def arguments(name: str, dtype: str, count: int) -> tuple[np.ndarray, ...]:
    """Return numbers in each range of each argument."""
    function, rng = FUNCTIONS[name], np.random.default_rng(9)
    found = [
        np.concatenate([rng.uniform(low, high, count) for low, high in ranges])
        for ranges in function.ranges
    ]
    if function.whole:
        found[-1] = np.floor(found[-1])
    return tuple(x.astype(NUMPY[dtype]) for x in found)


def truth(name: str, dtype: str, numbers: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the values as sums of two doubles, and what their errors are measured by."""
    function = FUNCTIONS[name]
    exact = reference(function.value, dtype, *numbers)
    scale = np.abs(exact[0])
    if function.envelope:
        with mp.workprec(53):
            for k, x in enumerate(zip(*(a.tolist() for a in numbers), strict=True)):
                scale[k] = max(scale[k], float(function.envelope(*map(mpf, x))))
    return exact, scale
