"""Decompositions of special functions, in float64 and float32.

Loops have a fixed number of steps, so nothing looks at values.
"""

from __future__ import annotations

import math

from pullback.ops.decompositions import complex as complex_functions
from pullback.ops.rules.elementwise_util import within_a_turn
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.schema import ops
from pullback.ops.table.special_primitives import SHIFTED

# Lanczos' approximation of gamma with g = 7: Press et al., Numerical Recipes, 6.1; coefficients of
# P. Godfrey.
_LANCZOS = (
    0.99999999999980993,
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)
# B(2k) / (2k) of the Bernoulli numbers, DLMF 24.2 and 5.11.2.
_PSI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
# (2k)! / B(2k) as in the Euler-Maclaurin formula, DLMF 25.11.28.
_EULER = (
    12.0,
    -720.0,
    30240.0,
    -1209600.0,
    47900160.0,
    -1892437580.3183791606,
    7.47242496e10,
    -2.950130727918164224e12,
)


@decomposition("acosh")
def acosh(self):
    if self.is_complex():
        return complex_functions.acosh(self)
    less = self - 1
    found = ops.log1p(less + ops.sqrt(less) * ops.sqrt(self + 1))  # DLMF 4.37.21
    return ops.where(self > 1e18, ops.log(self) + math.log(2), found)


@decomposition("asinh")
def asinh(self):
    """DLMF 4.37.16, by the size, so that nothing cancels."""
    if self.is_complex():
        return complex_functions.asinh(self)
    size = ops.abs(self)
    found = ops.log1p(size + size * size / (1 + ops.sqrt(size * size + 1)))
    found = ops.where(size > 1e8, ops.log(size) + math.log(2), found)
    return ops.where(self < 0, -found, ops.where(self == 0, self, found))


@decomposition("atanh")
def atanh(self):
    if self.is_complex():
        return complex_functions.atanh(self)
    return (ops.log1p(self) - ops.log1p(-self)) * 0.5  # DLMF 4.37.24


@decomposition("hypot")
def hypot(self, other):
    x, y = ops.abs(self), ops.abs(other)
    large, small = ops.maximum(x, y), ops.minimum(x, y)
    ratio = ops.where((large == 0) | (large == math.inf), 0, small / large)
    found = large * ops.sqrt(ratio * ratio + 1)
    return ops.where((x == math.inf) | (y == math.inf), math.inf, found)


@decomposition("gcd")
def gcd(self, other):
    """Euclid's algorithm; consecutive Fibonacci numbers take the most steps."""
    a, b = ops.abs(self), ops.abs(other)
    for _ in range(int(1.45 * 8 * a.dtype.itemsize) + 2):
        rest = ops.remainder(a, ops.where(b == 0, 1, b))
        a, b = ops.where(b == 0, a, b), ops.where(b == 0, 0, rest)
    return ops.abs(a)


# -- the error function ----------------------------------------------------------------------------


@decomposition("erfc")
def erfc(self):
    """1 - erf where that keeps its digits, else the continued fraction DLMF 7.9.2."""
    x = ops.where(self > 2, self, 2)
    tail = x
    for k in range(60, 0, -1):
        tail = x + k / 2 / tail
    found = ops.exp(-(x * x)) / (tail * math.sqrt(math.pi))
    return ops.where(self > 2, found, 1 - ops.erf(self))


@decomposition("erfinv")
def erfinv(self):
    """Newton's method on erf, begun at the approximation of S. Winitzki (2008)."""
    a = 0.147
    inner = ops.log1p(-(self * self))
    half = inner / 2 + 2 / (math.pi * a)
    guess = ops.sqrt(ops.sqrt(half * half - inner / a) - half)
    size = ops.abs(self)
    for _ in range(4):
        # 1 - erf of large values is erfc; size - erf would have no digits left
        error = ops.where(size > 0.5, (1 - size) - ops.erfc(guess), ops.erf(guess) - size)
        guess = guess - error * ops.exp(guess * guess) * (math.sqrt(math.pi) / 2)
    guess = ops.where(size == 1, math.inf, guess)
    return ops.where(self < 0, -guess, ops.where(self == 0, self, guess))


@decomposition("ndtr")
def ndtr(self):
    return ops.erfc(self * -math.sqrt(0.5)) * 0.5  # DLMF 7.18(iv)


# -- logarithms and sines --------------------------------------------------------------------------


@decomposition("entr")
def entr(self):
    beyond = ops.where(self == 0, 0, ops.where(self != self, self, -math.inf))
    return ops.where(self > 0, -self * ops.log(self), beyond)


@decomposition("logit")
def logit(self):
    """log(x / (1 - x)); next to 1/2, where that cancels, 2 atanh(2 x - 1)."""
    near = ops.abs(self - 0.5) < 0.25
    inner = ops.where(near, self * 2 - 1, 0)
    return ops.where(near, ops.log1p(inner) - ops.log1p(-inner), ops.log(self / (1 - self)))


@decomposition("sinc")
def sinc(self):
    away = ops.where(self == 0, 1, self)
    return ops.where(self == 0, 1, ops.sin(within_a_turn(away) * math.pi) / math.pi / away)


# -- gamma and its relatives -----------------------------------------------------------------------


@decomposition("lgamma")
def lgamma(self):
    """Lanczos' approximation; the reflection DLMF 5.5.3 below 1/2."""
    low = self < 0.5
    x = ops.where(low, 1 - self, self) - 1
    series = _LANCZOS[0]
    for k, factor in enumerate(_LANCZOS[1:], 1):
        series = series + factor / (x + k)
    shifted = x + 7.5
    found = (x + 0.5) * ops.log(shifted) - shifted + 0.5 * math.log(2 * math.pi) + ops.log(series)
    found = ops.where((self == 1) | (self == 2), 0, found)
    part = self - ops.round(self)
    mirrored = math.log(math.pi) - ops.log(ops.abs(ops.sin(part * math.pi))) - found
    found = ops.where(low, ops.where(part == 0, math.inf, mirrored), found)
    return ops.where(ops.abs(self) == math.inf, math.inf, found)


@decomposition("digamma")
def digamma(self):
    """The asymptotic series DLMF 5.11.2 from 10 on; recurrence and reflection lead there."""
    low = self <= 0
    x = ops.where(low, 1 - self, self)
    less = ops.zeros_like(x)
    for _ in range(10):
        small = x < 10
        less = ops.where(small, less + 1 / x, less)
        x = ops.where(small, x + 1, x)
    square = 1 / (x * x)
    series, power = 0, square
    for factor in _PSI:
        series = series + factor * power
        power = power * square
    found = ops.log(x) - 0.5 / x - series - less
    found = ops.where(x == math.inf, math.inf, found)
    part = self - ops.round(self)
    mirrored = found - math.pi / ops.tan(part * math.pi)
    mirrored = ops.where(part == 0, math.nan, mirrored)
    return ops.where(self == 0, -1 / self, ops.where(low, mirrored, found))


@decomposition("zeta")
def zeta(self, other):
    if not hasattr(self, "dtype"):
        self = ops.full_like(other, self)
    if not hasattr(other, "dtype"):
        other = ops.full_like(self, other)
    low = other <= 0
    whole = ops.floor(other)
    total = _zeta_above_zero(self, ops.where(low, other - whole, other))
    # The terms on the other side of zero are a zeta function too, without its own far end.
    below = _zeta_above_zero(self, ops.where(low, ops.ceil(other) - other, 1))
    below = below - _zeta_above_zero(self, ops.where(low, 1 - other, 1))
    total = ops.where(low, total + ops.where(ops.fmod(self, 2) == 0, below, -below), total)
    total = ops.where((other == math.inf) & (self > 1), 0, total)
    pole = low & (other == whole)
    total = ops.where(pole, math.inf, total)
    total = ops.where(low & ~pole & (self != ops.floor(self)), math.nan, total)
    return ops.where(self < 1, math.nan, ops.where(self == 1, math.inf, total))


def _zeta_above_zero(s, a):
    """The Euler-Maclaurin formula, DLMF 25.11.28."""
    total = a**-s
    for _ in range(12):
        a = a + 1
        total = total + a**-s
    power = a**-s
    total = total + power * a / (s - 1) - 0.5 * power
    factor = 1
    for k, number in zip(range(0, 2 * len(_EULER), 2), _EULER, strict=True):
        factor = factor * (s + k)
        power = power / a
        total = total + factor * power / number
        factor = factor * (s + k + 1)
        power = power / a
    return total


# -- Bessel functions ------------------------------------------------------------------------------


def _bessel(self, order):
    """The power series DLMF 10.25.2 up to 20, the asymptotic one 10.40.1 beyond."""
    size = ops.abs(self)
    x = ops.where(size < 20, size, 1)
    quarter = x * x / 4
    term = ops.ones_like(x) if order == 0 else x / 2
    found = term
    for k in range(1, 60):
        term = term * quarter / (k * (k + order))
        found = found + term
    x = ops.where(size < 20, 20, size)
    term = ops.ones_like(x)
    series = term
    for k in range(1, 30):
        term = term * ((2 * k - 1) ** 2 - 4 * order * order) / (8 * k * x)
        series = series + term
    half = ops.exp(x / 2)  # e**x alone would overflow before the result does
    far = half / ops.sqrt(2 * math.pi * x) * series * half
    found = ops.where(size < 20, found, far)
    return ops.where(size == math.inf, math.nan, found)


@decomposition("i0")
def i0(self):
    return _bessel(self, 0)


@decomposition("i1")
def i1(self):
    found = _bessel(self, 1)
    return ops.where(self < 0, -found, found)


# -- polynomials -----------------------------------------------------------------------------------


def _shifted(name):
    return lambda self, other: getattr(ops, name.removeprefix("shifted_"))(self * 2 - 1, other)


for _name in SHIFTED:
    decomposition(_name)(_shifted(_name))
