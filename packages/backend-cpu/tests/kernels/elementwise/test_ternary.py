"""Elementwise kernels of three inputs, and one number."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import DTYPES, dtypes_of, run_kernel
from layouts import LAYOUTS, SHAPES, assert_close, empty_like, is_floating, sample, widen

from pullback.testing.kernel_calls import Scalar


def lerp(x, end, weight):
    return np.where(abs(weight) < 0.5, x + weight * (end - x), end - (end - x) * (1 - weight))


TERNARY = {
    "addcdiv": lambda x, y, z, value: x + y / z * value,
    "addcmul": lambda x, y, z, value: x + y * z * value,
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "lerp": lerp,
}
CASES = [(primitive, dtype) for primitive in TERNARY for dtype in dtypes_of(primitive)]


def operands(primitive, dtype, shape):
    inputs = [sample(dtype, shape, seed=k) for k in range(3)]
    if primitive == "addcdiv":
        inputs[2] = sample(dtype, shape, seed=2, low=0.5)
    if primitive == "lerp":
        inputs[2] = sample(dtype, shape, seed=2, low=0, high=1)
    return inputs


def expect(primitive, inputs, *numbers):
    """Return what NumPy makes of the inputs, in their dtype."""
    found = TERNARY[primitive](*map(widen, (*inputs, *numbers)))
    return np.asarray(found).astype(inputs[0].dtype)


def assert_near(actual, expected, dtype):
    # Sums of numbers below 70: their parts may cancel.
    if is_floating(DTYPES[dtype]) or DTYPES[dtype].kind == "c":
        tolerance = {"f16": 0.2, "bf16": 1, "f32": 2e-5, "c64": 1e-4}.get(dtype, 1e-13)
        np.testing.assert_allclose(widen(actual), widen(expected), rtol=0, atol=tolerance)
    else:
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(("primitive", "dtype"), CASES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ternary(primitive, dtype, layout):
    for shape in SHAPES:
        inputs = operands(primitive, dtype, shape)
        number = [DTYPES[dtype].type(2)] if primitive.startswith("addc") else []
        out = empty_like(inputs[0], layout=layout)
        run_kernel(primitive, out, [*map(LAYOUTS[layout], inputs), *map(Scalar, number)])
        assert_near(out, expect(primitive, inputs, *number), dtype)


@pytest.mark.parametrize(("primitive", "dtype"), CASES)
@pytest.mark.parametrize("scalars", [(1,), (2,), (1, 2), (0,), (0, 1, 2)])
def test_ternary_with_numbers(primitive, dtype, scalars):
    inputs = operands(primitive, dtype, (40,))
    number = [DTYPES[dtype].type(3)] if primitive.startswith("addc") else []
    given = [Scalar(x[0]) if k in scalars else x for k, x in enumerate(inputs)]
    full = [np.full_like(x, x[0]) if k in scalars else x for k, x in enumerate(inputs)]
    out = empty_like(inputs[0])
    run_kernel(primitive, out, [*given, *map(Scalar, number)])
    assert_near(out, expect(primitive, full, *number), dtype)


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_addcdiv_by_a_complex_zero_is_infinite(dtype):
    kind = DTYPES[dtype]
    out = np.zeros(3, kind)
    run_kernel(
        "addcdiv",
        out,
        [np.ones(3, kind), np.full(3, 1 - 2j, kind), np.zeros(3, kind), Scalar(kind.type(2))],
    )
    np.testing.assert_array_equal(out.real, np.inf)
    np.testing.assert_array_equal(out.imag, -np.inf)


def test_clamp_lets_nan_win():
    x = np.array([np.nan, 1.0, 1.0, 5.0, -5.0])
    low = np.array([0.0, np.nan, 0.0, 0.0, 0.0])
    high = np.array([2.0, 2.0, np.nan, 2.0, -1.0])
    out = np.zeros(5)
    run_kernel("clamp", out, [x, low, high])
    np.testing.assert_array_equal(out, [np.nan, np.nan, np.nan, 2.0, -1.0])


@pytest.mark.parametrize("dtype", dtypes_of("lerp"))
def test_lerp_meets_both_ends(dtype):
    x, end = sample(dtype, (50,)), sample(dtype, (50,), seed=1)
    for weight, expected in ((0, x), (1, end)):
        out = empty_like(x)
        run_kernel("lerp", out, [x, end, Scalar(DTYPES[dtype].type(weight))])
        assert_close(out, expected, scale=0)
