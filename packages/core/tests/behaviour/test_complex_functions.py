"""Elementary functions of complex numbers, against 60 digits, from tiny to huge numbers."""

import itertools

import mpmath
import pytest

import pullback as pb

PARTS = (0, 1e-9, -1e-9, 1e-3, -0.3, 0.7, 1, -1, 1.5, 3, -8, 30, -700, 1e5, -1e8, 1e160)
RENAMED = {
    "exp2": lambda z: mpmath.exp(z * mpmath.log(2)),
    "expm1": mpmath.expm1,
    "log10": lambda z: mpmath.log(z) / mpmath.log(10),
    "log1p": lambda z: mpmath.log(1 + z),
    "log2": lambda z: mpmath.log(z) / mpmath.log(2),
    "reciprocal": lambda z: 1 / z,
    "rsqrt": lambda z: 1 / mpmath.sqrt(z),
    "sgn": lambda z: z / abs(z),
    "sigmoid": lambda z: 1 / (1 + mpmath.exp(-z)),
    "square": lambda z: z * z,
}
NAMES = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "log", "sin"),
    *("sinh", "sqrt", "tan", "tanh", *RENAMED),
)
CUT_BELOW = ("acosh", "log", "log10", "log1p", "log2", "rsqrt", "sqrt")  # the negative half axis
CUT_AROUND = ("acos", "asin", "atanh")  # the real axis from 1 and -1 on


def is_on_a_cut(name, z):
    """Return whether a zero's sign says which value is meant, which mpmath does not see."""
    if name in CUT_BELOW:
        return z.imag == 0 and z.real <= 1
    if name in CUT_AROUND:
        return z.imag == 0 and abs(z.real) >= 1
    return name in ("asinh", "atan") and z.real == 0 and abs(z.imag) >= 1


def points_of(name):
    """Return arguments and exact values, those that the dtype cannot hold left out."""
    points = []
    for z in itertools.starmap(complex, itertools.product(PARTS, PARTS)):
        turns = name == "exp2" and abs(z.imag) > 1e3  # z log(2) has too few digits for an angle
        if is_on_a_cut(name, z) or turns:
            continue
        with mpmath.workdps(60):
            try:
                value = (RENAMED.get(name) or getattr(mpmath, name))(mpmath.mpc(z))
            except ZeroDivisionError:
                continue
            if mpmath.isfinite(value) and 1e-290 < abs(value) < 1e307:
                points.append((z, complex(value)))
    return points


@pytest.mark.beyond_torch
@pytest.mark.parametrize("name", NAMES)
def test_functions_of_complex_numbers_keep_their_digits(name):
    points = points_of(name)
    assert len(points) > 60
    found = getattr(pb, name)(pb.tensor([z for z, _ in points], dtype=pb.complex128)).tolist()
    for (z, exact), value in zip(points, found, strict=True):
        assert abs(value - exact) < 1e-13 * abs(exact), (z, value, exact)


@pytest.mark.parametrize("dtype", [pb.complex64, pb.complex128])
def test_expm1_of_infinities_and_nan_is_exp_less_one(dtype):
    parts = (0.0, -0.0, 2.0, -3.0, 800.0, float("inf"), float("-inf"), float("nan"))
    z = pb.tensor([complex(x, y) for x in parts for y in parts], dtype=dtype)
    z = z[~(z.real.isfinite() & z.imag.isfinite()) | (z.real == 800)]
    found, power = pb.expm1(z), pb.exp(z)
    pb.testing.assert_close(found.real, power.real - 1, equal_nan=True)
    pb.testing.assert_close(found.imag, power.imag, equal_nan=True)


@pytest.mark.parametrize("dtype", [pb.complex64, pb.complex128])
def test_isinf_of_large_parts(dtype):
    largest = pb.finfo(dtype).max
    z = pb.tensor([complex(largest, largest), complex(float("inf"), 1)], dtype=dtype)
    assert z.isinf().tolist() == [False, True]
