"""Values of elementwise reference kernels against known answers."""

import cmath
import math

import numpy as np
import pytest

from pullback.refbackend.plugin import KERNELS

inf, nan = math.inf, math.nan


def call(name, *operands, dtype=np.float64, out=None):
    operands = [np.asarray(operand, dtype=dtype) for operand in operands]
    result = np.empty(operands[0].shape, dtype if out is None else out)
    KERNELS[name][1](result, *operands)
    return result


REAL_FUNCTIONS = {
    "atan": math.atan,
    "cos": math.cos,
    "erf": math.erf,
    "exp": math.exp,
    "log": math.log,
    "sin": math.sin,
    "sqrt": math.sqrt,
}


@pytest.mark.parametrize("name", REAL_FUNCTIONS)
def test_real_functions_in_every_precision(name, bfloat16):
    points = [0.0625, 0.25, 0.5, 0.875]
    expected = [REAL_FUNCTIONS[name](x) for x in points]
    # One rounding: half a unit in the last place of each type.
    for dtype, error in ((np.float64, 1e-15), (np.float32, 2**-24), (np.float16, 2**-11)):
        np.testing.assert_allclose(call(name, points, dtype=dtype), expected, rtol=1.01 * error)
    result = call(name, points, dtype=bfloat16).astype(float)
    np.testing.assert_allclose(result, expected, rtol=1.01 * 2**-8)


COMPLEX_FUNCTIONS = {
    "atan": cmath.atan,
    "cos": cmath.cos,
    "exp": cmath.exp,
    "log": cmath.log,
    "sin": cmath.sin,
    "sqrt": cmath.sqrt,
}


@pytest.mark.parametrize("name", COMPLEX_FUNCTIONS)
def test_complex_functions(name):
    points = [0.5 + 0.25j, -1.5 + 2j, 0.75 - 0.5j]
    expected = [COMPLEX_FUNCTIONS[name](z) for z in points]
    np.testing.assert_allclose(call(name, points, dtype=np.complex128), expected, rtol=1e-13)
    np.testing.assert_allclose(call(name, points, dtype=np.complex64), expected, rtol=2e-7)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("floor", [-1.5, 2.5, nan], [-2, 2, nan]),
        ("round", [0.5, 1.5, -2.5], [0, 2, -2]),
        ("log", [0.0, -1.0, inf], [-inf, nan, inf]),
        ("sqrt", [-1.0, 0.0, inf], [nan, 0, inf]),
        ("erf", [-inf, 0.0, nan], [-1, 0, nan]),
    ],
)
def test_corner_values(name, given, expected):
    np.testing.assert_array_equal(call(name, given), expected)


@pytest.mark.parametrize("name", ["floor", "round"])
def test_rounding_leaves_large_integers_exact(name):
    assert call(name, [2**62 + 1], dtype=np.int64)[0] == 2**62 + 1


def test_integers_wrap_around():
    assert call("add", [200], [100], dtype=np.uint8)[0] == 44
    assert call("mul", [2**62], [4], dtype=np.int64)[0] == 0


def test_bool_arithmetic_is_logical():
    x, y = [False, False, True, True], [False, True, False, True]
    assert call("add", x, y, dtype=np.bool_).tolist() == [False, True, True, True]
    assert call("mul", x, y, dtype=np.bool_).tolist() == [False, False, False, True]
    assert call("bitwise_xor", x, y, dtype=np.bool_).tolist() == [False, True, True, False]
    assert call("bitwise_not", x, dtype=np.bool_).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("name", "x", "y", "expected"),
    [
        ("floor_divide", [7, -7, 7, -7], [2, 2, -2, -2], [3, -4, -4, 3]),
        ("fmod", [7, -7, 7, -7], [2, 2, -2, -2], [1, -1, 1, -1]),
        ("remainder", [7, -7, 7, -7], [2, 2, -2, -2], [1, 1, -1, -1]),
        ("pow", [2, -2, 3, 0], [10, 3, 0, 0], [1024, -8, 1, 1]),
        ("pow", [0, 1, -1, -1, 2], [-1, -5, -2, -3, -1], [0, 1, 1, -1, 0]),
        ("lshift", [1, -1, 5, 5], [63, 1, 64, -1], [-(2**63), -2, 0, 0]),
        ("rshift", [8, -8, 5, -5, 5], [2, 1, 64, 64, -1], [2, -4, 0, -1, 0]),
        ("bitwise_and", [6, -1], [3, 5], [2, 5]),
        ("bitwise_or", [6, 8], [3, 1], [7, 9]),
    ],
)
def test_integer_arithmetic(name, x, y, expected):
    assert call(name, x, y, dtype=np.int64).tolist() == expected


def test_integer_powers_are_exact():
    assert call("pow", [3], [39], dtype=np.int64)[0] == 3**39


def test_unsigned_shifts():
    assert call("rshift", [255, 255], [7, 8], dtype=np.uint8).tolist() == [1, 0]
    assert call("lshift", [255, 255], [7, 8], dtype=np.uint8).tolist() == [128, 0]


@pytest.mark.parametrize("name", ["floor_divide", "fmod", "remainder"])
@pytest.mark.parametrize("error", [RuntimeError, ZeroDivisionError])
def test_integer_division_by_zero_raises(name, error):
    with pytest.raises(error, match="ZeroDivisionError"):
        call(name, [1, 2], [1, 0], dtype=np.int32)


@pytest.mark.parametrize(
    ("name", "x", "y", "expected"),
    [
        ("div", [1.0, -1.0, 0.0], [0.0, 0.0, 0.0], [inf, -inf, nan]),
        ("floor_divide", [-1.0, 1.0, inf], [inf, 0.0, 1.0], [-1, inf, nan]),
        ("fmod", [-5.5, 5.5, 1.0], [2.0, inf, 0.0], [-1.5, 5.5, nan]),
        ("remainder", [-5.5, -1.0, 1.0], [2.0, inf, 0.0], [0.5, inf, nan]),
        ("pow", [0.0, -8.0, nan, 2.0], [0.0, 1 / 3, 0.0, -1.0], [1, nan, 1, 0.5]),
        ("atan2", [1.0, 0.0, -0.0], [0.0, -1.0, -1.0], [math.pi / 2, math.pi, -math.pi]),
    ],
)
def test_float_corners(name, x, y, expected):
    np.testing.assert_array_equal(call(name, x, y), expected)


def test_remainder_zero_keeps_the_sign_of_the_first_operand():
    result = call("remainder", [-4.0, 4.0], [2.0, -2.0])
    assert np.signbit(result).tolist() == [True, False]


def test_comparisons():
    x, y = [1.0, 2.0, nan], [2.0, 2.0, nan]
    expected = {
        "eq": [False, True, False],
        "lt": [True, False, False],
    }
    for name, values in expected.items():
        assert call(name, x, y, out=np.bool_).tolist() == values, name


def test_a_scalar_operand_is_broadcast():
    out = np.empty(3, np.float32)
    KERNELS["mul"][1](out, np.arange(3, dtype=np.float32), np.array(2, np.float32))
    assert out.tolist() == [0, 2, 4]


def test_half_precision_rounds_once():
    # 2048 + 1 is halfway between two float16 numbers; the tie goes to the even one.
    assert call("add", [2048.0], [1.0], dtype=np.float16)[0] == 2048
    assert call("mul", [60000.0], [2.0], dtype=np.float16)[0] == inf


def test_where_selects_without_arithmetic(bfloat16):
    for dtype in (np.float32, bfloat16):
        out = np.empty(3, dtype)
        x, y = np.array([1, nan, 3], dtype), np.array([nan, 5, 6], dtype)
        KERNELS["where"][1](out, np.array([True, False, True]), x, y)
        assert out.astype(float).tolist() == [1, 5, 3]


class TestCopy:
    def cast(self, values, source, target):
        out = np.empty(len(values), target)
        KERNELS["copy"][1](out, np.array(values, source))
        return out

    def test_float_to_integer_truncates(self):
        assert self.cast([-1.9, 1.9, 300.7], np.float64, np.int32).tolist() == [-1, 1, 300]

    def test_float_to_narrow_integer_wraps_as_c_does(self):
        assert self.cast([-1.0, 300.0], np.float32, np.uint8).tolist() == [255, 44]
        assert self.cast([200.0], np.float32, np.int8).tolist() == [-56]

    def test_anything_to_bool_compares_with_zero(self):
        assert self.cast([0.0, 0.1, nan], np.float32, np.bool_).tolist() == [False, True, True]
        assert self.cast([0j, 1j], np.complex64, np.bool_).tolist() == [False, True]

    def test_complex_to_real_drops_the_imaginary_part(self):
        assert self.cast([1.5 + 2j], np.complex128, np.float32).tolist() == [1.5]
        assert self.cast([1.5 + 2j], np.complex128, np.int64).tolist() == [1]

    def test_overflow_becomes_infinite(self):
        assert self.cast([65520.0, 65519.0], np.float32, np.float16).tolist() == [inf, 65504]

    def test_bfloat16_both_ways(self, bfloat16):
        result = self.cast([1.0, 1 + 2**-8, 1 + 3 * 2**-8], np.float32, bfloat16)
        assert result.astype(float).tolist() == [1, 1, 1 + 2**-6]
        assert self.cast([2.5, -1.0], bfloat16, np.uint8).tolist() == [2, 255]
        assert self.cast([0.0, nan], bfloat16, np.bool_).tolist() == [False, True]

    def test_scalar_fills(self):
        out = np.empty((2, 2), np.int16)
        KERNELS["copy"][1](out, np.array(7.9))
        assert out.tolist() == [[7, 7], [7, 7]]

    def test_large_integers_stay_exact(self):
        assert self.cast([2**63 - 1], np.int64, np.int64)[0] == 2**63 - 1
