"""Special functions of float64 arrays, which NumPy does not have."""

from __future__ import annotations

import math

import numpy as np

from .arrays import Array

# B_2j / (2j)!, the factors of Euler and Maclaurin's formula.
_EULER_MACLAURIN = (
    1 / 12,
    -1 / 720,
    1 / 30240,
    -1 / 1209600,
    1 / 47900160,
    -691 / 1307674368000,
    1 / 74724249600,
    -3617 / 10670622842880000,
)
# B_2j / 2j, the factors in the expansion of digamma.
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)

# Numerators and denominators of Wichura's algorithm, highest power first.
_CENTRE = (
    (
        2509.0809287301226727,
        33430.575583588128105,
        67265.770927008700853,
        45921.953931549871457,
        13731.693765509461125,
        1971.5909503065514427,
        133.14166789178437745,
        3.3871328727963666080,
    ),
    (
        5226.4952788528545610,
        28729.085735721942674,
        39307.895800092710610,
        21213.794301586595867,
        5394.1960214247511077,
        687.18700749205790830,
        42.313330701600911252,
        1.0,
    ),
)
_TAIL = (
    (
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258,
        3.64784832476320460504,
        5.76949722146069140550,
        4.63033784615654529590,
        1.42343711074968357734,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940,
        2.05319162663775882187,
        1.0,
    ),
)
_FAR_TAIL = (
    (
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.24266094738807843860e-3,
        2.65321895265761230930e-2,
        2.96560571828504891230e-1,
        1.78482653991729133580,
        5.46378491116411436990,
        6.65790464350110377720,
    ),
    (
        2.04426310338993978564e-15,
        1.42151175831644588870e-7,
        1.84631831751005468180e-5,
        7.86869131145613259100e-4,
        1.48753612908506148525e-2,
        1.36929880922735805310e-1,
        5.99832206555887937690e-1,
        1.0,
    ),
)


def _lgamma(x: float) -> float:
    if x <= 0 and (math.isinf(x) or x == math.floor(x)):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


erfc = np.vectorize(math.erfc, otypes=[np.float64])
lgamma = np.vectorize(_lgamma, otypes=[np.float64])


def digamma(x: Array) -> Array:
    """Return the derivative of log gamma.

    Source: DLMF 5.5.4 (reflection to x > 0), 5.5.2 (up to 10), 5.11.2 (the expansion there).
    """
    below = x < 0
    rest = x - np.round(x)  # exact, also next to a pole
    poles = np.where(rest == 0, np.nan, np.pi / np.tan(np.pi * rest))
    total = np.where(below, -poles, 0.0)
    a = np.where(below, 1 - x, x)
    for _ in range(10):
        low = a < 10
        total, a = total - np.where(low, 1 / a, 0.0), np.where(low, a + 1, a)
    series = sum(factor * a ** (-2.0 * j) for j, factor in enumerate(_DIGAMMA, 1))
    found = total + np.log(a) - 0.5 / a - series
    return np.where(x == 0, -1 / x, found)


def _zeta_above_zero(s: Array, a: Array) -> Array:
    """Return the Hurwitz zeta function by Euler and Maclaurin's formula, DLMF 25.11.7."""
    start = 12 + np.minimum(s, 200)
    total = np.zeros_like(a)
    while np.any(low := a < start):
        total, a = total + np.where(low, a**-s, 0.0), np.where(low, a + 1, a)
    power = a**-s
    total = total + power * (a / (s - 1) + 0.5)
    rising = s * power / a
    for j, factor in enumerate(_EULER_MACLAURIN):
        total = total + factor * rising
        rising = rising * (s + 2 * j + 1) * (s + 2 * j + 2) / (a * a)
    return total


def zeta(s: Array, a: Array) -> Array:
    """Return the Hurwitz zeta function; below zero the terms on each side of it are summed."""
    s, a = np.broadcast_arrays(np.asarray(s, np.float64), np.asarray(a, np.float64))
    known = (s > 1) & np.isfinite(a) & (a != np.floor(a)) | (s > 1) & (a > 0) & np.isfinite(a)
    order, point = np.where(known, s, 2.0), np.where(known, a, 1.5)
    rest = np.where(point < 0, point - np.floor(point), point)
    found = _zeta_above_zero(order, rest)
    below = point < 0
    if np.any(below):
        away = np.where(below, np.ceil(point) - point, 1.0)
        far = np.where(below, 1 - point, 1.0)
        mirrored = _zeta_above_zero(order, away) - _zeta_above_zero(order, far)
        mirrored = np.where(order % 2 == 0, mirrored, -mirrored)
        mirrored = np.where(order == np.floor(order), mirrored, np.nan)
        found = np.where(below, found + mirrored, found)
    poles = (a <= 0) & (a == np.floor(a))
    found = np.where(known, found, np.where(poles, np.inf, np.where(a == np.inf, 0.0, np.nan)))
    return np.where(s == 1, np.inf, np.where((s > 1) & ~np.isnan(a), found, np.nan))


def _bessel(order: int, x: Array) -> Array:
    """Return a modified Bessel function of x >= 0.

    Source: the series DLMF 10.25.2 for small x; from 20 on the expansion 10.40.1.
    """
    near = np.where(x < 20, x, 0.0)
    quarter = near * near / 4
    series = term = near / 2 if order else np.ones_like(near)
    for k in range(1, 70):
        term = term * quarter / (k * (k + order))
        series = series + term
    far = np.where(x < 20, 20.0, x)
    expansion = term = np.ones_like(far)
    for k in range(1, 40):
        term = term * ((2 * k - 1) ** 2 - 4 * order) / (8 * far * k)
        expansion = expansion + term
    expansion = np.exp(far) / np.sqrt(2 * np.pi * far) * expansion
    return np.where(x < 20, series, np.where(np.isnan(x), x, expansion))


def i0(x: Array) -> Array:
    """Return the modified Bessel function of order 0."""
    return _bessel(0, np.abs(x))


def i1(x: Array) -> Array:
    """Return the modified Bessel function of order 1."""
    return np.where(x < 0, -1.0, 1.0) * _bessel(1, np.abs(x))


def erfinv(x: Array) -> Array:
    """Return the inverse of erf, from the quantile of the normal distribution.

    Source: Wichura, algorithm AS 241, Applied Statistics 37(3), 1988.
    """

    def ratio(polynomials: tuple[tuple[float, ...], tuple[float, ...]], r: Array) -> Array:
        return np.polyval(polynomials[0], r) / np.polyval(polynomials[1], r)

    q, size = x / 2, np.abs(x)
    inside = np.where(size < 1, size, 0.0)
    r = np.sqrt(-np.log((1 - inside) / 2))
    tail = np.where(r <= 5, ratio(_TAIL, r - 1.6), ratio(_FAR_TAIL, r - 5))
    found = np.where(
        size <= 0.85, q * ratio(_CENTRE, 0.180625 - q * q), np.copysign(tail, x)
    ) / np.sqrt(2)
    outside = np.where(size == 1, x * np.inf, np.nan)
    return np.where(size < 1, found, outside)
