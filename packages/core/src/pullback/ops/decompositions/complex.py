"""Elementary functions of complex numbers, by functions of real ones.

Sources: W. Kahan, Branch Cuts for Complex Elementary Functions or Much Ado About Nothing's Sign
Bit, 1987, for inverse functions and the hyperbolic tangent; DLMF 4.21, 4.35 for the others. Parts
are taken and put together as such, so that zeros keep their signs.
"""

from __future__ import annotations

import math

from pullback.ops.table.schema import ops

_FLAT = 22  # where the hyperbolic tangent differs from 1 by less than a float64 shows


def _parts(z):
    return ops.real(z), ops.imag(z)


def _imag_of_conj_product(a, b):
    """Return the imaginary part of conj(a) b."""
    (a_real, a_imag), (b_real, b_imag) = _parts(a), _parts(b)
    return a_real * b_imag - a_imag * b_real


def _roots(z):
    """Return the roots of 1 - z and 1 + z."""
    x, y = _parts(z)
    return ops.sqrt(ops.complex(1 - x, -y)), ops.sqrt(ops.complex(1 + x, y))


def acos(z):
    less, more = _roots(z)
    angle = 2 * ops.atan2(ops.real(less), ops.real(more))
    return ops.complex(angle, ops.asinh(_imag_of_conj_product(more, less)))


def asin(z):
    less, more = _roots(z)
    angle = ops.atan2(ops.real(z), ops.real(less * more))
    return ops.complex(angle, ops.asinh(_imag_of_conj_product(less, more)))


def acosh(z):
    x, y = _parts(z)
    less, more = ops.sqrt(ops.complex(x - 1, y)), ops.sqrt(ops.complex(x + 1, y))
    (a_real, a_imag), (b_real, b_imag) = _parts(less), _parts(more)
    return ops.complex(ops.asinh(a_real * b_real + a_imag * b_imag), 2 * ops.atan2(a_imag, b_real))


def asinh(z):
    """-i asin(i z)."""
    x, y = _parts(z)
    real, imag = _parts(asin(ops.complex(-y, x)))
    return ops.complex(imag, -real)


def atanh(z):
    x, y = _parts(z)
    size = ops.abs(x)
    far = ops.maximum(size, ops.abs(y)) > 1e6  # there it is 1 / z and a right angle
    far_real, far_imag = _parts(ops.reciprocal(z))
    near_x, near_y = ops.where(far, 0, size), ops.where(far, 1, y)
    less = 1 - near_x
    real = 0.25 * ops.log1p(4 * near_x / (less * less + near_y * near_y))
    real = ops.where(far, ops.abs(far_real), real)
    angle = 0.5 * ops.atan2(2 * y, ops.where(far, -1, less * (1 + near_x) - near_y * near_y))
    angle = ops.where(far, ops.atan2(y, ops.zeros_like(y)) + far_imag, angle)
    return ops.complex(ops.where(x < 0, -real, real), angle)


def expm1(z):
    """e^x cos y - 1 is expm1(x) cos y - 2 sin^2(y / 2)."""
    x, y = _parts(z)
    half = ops.sin(y * 0.5)
    real = ops.expm1(x) * ops.cos(y) - 2 * half * half
    near = ops.logical_and(x < 80, ops.abs(y) < math.inf)  # else e^z has all digits, or limits
    power_real, power_imag = _parts(ops.exp(z))
    return ops.complex(
        ops.where(near, real, power_real - 1),
        ops.where(near, ops.exp(x) * ops.sin(y), power_imag),
    )


def log1p(z):
    """|1 + z|^2 is 1 + x (2 + x) + y^2."""
    x, y = _parts(z)
    near = ops.maximum(ops.abs(x), ops.abs(y)) < 0.5
    found = ops.log(ops.complex(1 + x, y))
    near_x, near_y = ops.where(near, x, 0), ops.where(near, y, 0)
    real = 0.5 * ops.log1p(near_x * (2 + near_x) + near_y * near_y)
    return ops.complex(ops.where(near, real, ops.real(found)), ops.imag(found))


def sigmoid(z):
    """Of e^z or e^-z, by what does not overflow."""
    falls = ops.real(z) < 0
    power = ops.exp(ops.where(falls, z, -z))
    return ops.where(falls, power, 1) / (power + 1)


def sinh(z):
    x, y = _parts(z)
    return ops.complex(ops.sinh(x) * ops.cos(y), ops.cosh(x) * ops.sin(y))


def tan(z):
    """-i tanh(i z)."""
    x, y = _parts(z)
    real, imag = _parts(tanh(ops.complex(-y, x)))
    return ops.complex(imag, -real)


def tanh(z):
    x, y = _parts(z)
    size = ops.abs(x)
    flat = size > _FLAT
    near = ops.where(flat, 0, x)
    slope, low = ops.tan(y), ops.sinh(near)
    square = 1 + slope * slope
    divisor = 1 + square * low * low
    real = square * ops.sqrt(1 + low * low) * low / divisor
    tail = ops.exp(size * -2) * (4 * ops.sin(y) * ops.cos(y))
    real = ops.where(flat, ops.where(x < 0, -1, 1), real)
    return ops.complex(real, ops.where(flat, tail, slope / divisor))
