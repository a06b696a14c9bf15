"""Elementwise kernels of one input."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import DTYPES, dtypes_of, run_kernel, takes
from layouts import (
    LAYOUTS,
    SHAPES,
    assert_close,
    empty_like,
    is_complex,
    round_to,
    sample,
    widen,
)
from scipy import special

from pullback.testing.kernel_calls import E_DTYPE, KernelError, Scalar


def _sigmoid(x):
    return special.expit(x) if x.dtype.kind == "f" else 1 / (1 + np.exp(-x))


def _sign(x):
    return np.where(np.isnan(x), 0, (x > 0).astype(int) - (x < 0))


# Reference and range of the inputs.
UNARY = {
    "abs": (np.abs, -4, 4),
    "acos": (np.arccos, -1, 1),
    "acosh": (np.arccosh, 1, 4),
    "asin": (np.arcsin, -1, 1),
    "asinh": (np.arcsinh, -4, 4),
    "atan": (np.arctan, -4, 4),
    "atanh": (np.arctanh, -1, 1),
    "bitwise_not": (np.invert, -4, 4),
    "ceil": (np.ceil, -4, 4),
    "conj": (np.conj, -4, 4),
    "cos": (np.cos, -4, 4),
    "cosh": (np.cosh, -4, 4),
    "digamma": (special.psi, 2, 8),
    "erf": (special.erf, -4, 4),
    "erfc": (special.erfc, -4, 4),
    "erfinv": (lambda x: np.where(x == 0, x, special.erfinv(x)), -1, 1),  # the sign of 0 stays
    "exp": (np.exp, -4, 4),
    "exp2": (np.exp2, -4, 4),
    "expm1": (np.expm1, -4, 4),
    "floor": (np.floor, -4, 4),
    "i0": (special.i0, -4, 4),
    "i1": (special.i1, -4, 4),
    "isfinite": (np.isfinite, -4, 4),
    "isnan": (np.isnan, -4, 4),
    "lgamma": (lambda x: np.where(x == -np.inf, np.inf, special.gammaln(x)), 2.5, 8),  # as in C
    "log": (np.log, 0.1, 4),
    "log10": (np.log10, 0.1, 4),
    "log1p": (np.log1p, -0.9, 4),
    "log2": (np.log2, 0.1, 4),
    "logical_not": (np.logical_not, -1, 1),
    "neg": (np.negative, -4, 4),
    "reciprocal": (np.reciprocal, 0.1, 4),
    "relu": (lambda x: np.maximum(x, 0), -4, 4),
    "round": (np.rint, -4, 4),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 4),
    "sigmoid": (_sigmoid, -4, 4),
    "sign": (_sign, -4, 4),
    "sin": (np.sin, -4, 4),
    "sinh": (np.sinh, -4, 4),
    "sqrt": (np.sqrt, 0, 4),
    "square": (np.square, -4, 4),
    "tan": (np.tan, -1.5, 1.5),
    "tanh": (np.tanh, -4, 4),
    "trunc": (np.trunc, -4, 4),
}
CASES = [(primitive, dtype) for primitive in UNARY for dtype in dtypes_of(primitive)]


def expected_of(primitive: str, values: np.ndarray) -> np.ndarray:
    """Return the reference, rounded to the result's dtype."""
    result = UNARY[primitive][0](widen(values))
    if primitive in ("isnan", "isfinite", "logical_not"):
        return np.asarray(result, bool)
    dtype = values.real.dtype if primitive == "abs" and is_complex(values.dtype) else values.dtype
    return round_to(result, dtype)


def values_for(primitive: str, dtype: str, shape) -> np.ndarray:
    _, low, high = UNARY[primitive]
    return sample(dtype, shape, low=low, high=high)


@pytest.mark.parametrize(("primitive", "dtype"), CASES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_unary_layouts(primitive, dtype, layout):
    values = values_for(primitive, dtype, (3, 4, 5))
    expected = expected_of(primitive, values)
    out = empty_like(values, expected.dtype)
    run_kernel(primitive, out, [LAYOUTS[layout](values)])
    assert_close(out, expected)


@pytest.mark.parametrize("primitive", UNARY)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unary_shapes(primitive, shape):
    dtype = "f32" if takes(primitive, "f32") else "i32"
    values = values_for(primitive, dtype, shape)
    expected = expected_of(primitive, values)
    for layout in LAYOUTS:
        out = empty_like(values, expected.dtype, layout)
        run_kernel(primitive, out, [values])
        assert_close(out, expected)


@pytest.mark.parametrize("primitive", [primitive for primitive in UNARY if takes(primitive, "f32")])
def test_unary_special_values_float32(primitive):
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e38], np.float32)
    out = empty_like(values, expected_of_special(primitive, values).dtype)
    run_kernel(primitive, out, [values])
    expected = expected_of_special(primitive, values)
    assert_close(out, expected)
    zeros = (expected == 0) & (primitive not in ("sign", "isnan", "isfinite", "logical_not"))
    np.testing.assert_array_equal(np.signbit(out[zeros]), np.signbit(expected[zeros]))


def expected_of_special(primitive: str, values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        if primitive == "relu":  # as torch: the sign of a negative zero stays
            return np.where(values < 0, np.float32(0), values)
        return expected_of(primitive, values)


def test_sign_of_nan_is_zero():
    out = np.full(1, 5, np.float32)
    run_kernel("sign", out, [np.array([np.nan], np.float32)])
    assert out[0] == 0


def test_unary_works_in_place():
    values = sample("f32", (50,))
    expected = -values
    run_kernel("neg", values, [values])
    np.testing.assert_array_equal(values, expected)


def test_unary_broadcast_input():
    values = np.broadcast_to(sample("f32", (1, 5)), (4, 5))
    out = empty_like(values)
    run_kernel("exp", out, [values])
    assert_close(out, expected_of("exp", values))


def test_unary_host_scalar():
    out = np.zeros((2, 3), np.float64)
    run_kernel("sqrt", out, [Scalar(np.array(4.0))])
    np.testing.assert_array_equal(out, np.full((2, 3), 2.0))


def test_unary_sixty_four_dims():
    values = sample("f32", (2, 3) + (1,) * 61 + (2,))
    out = empty_like(values)
    run_kernel("neg", out, [values])
    np.testing.assert_array_equal(out, -values)


@pytest.mark.parametrize("primitive", UNARY)
def test_unary_refuses_other_dtypes(primitive):
    for dtype in set(DTYPES) - set(dtypes_of(primitive)):
        values = sample(dtype, (2,))
        with pytest.raises(KernelError) as info:
            run_kernel(primitive, values.copy(), [values])
        assert info.value.code == E_DTYPE


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64"])
def test_integers_wrap_around(dtype):
    smallest = np.array([np.iinfo(DTYPES[dtype]).min], DTYPES[dtype])
    for primitive in ("neg", "abs"):
        out = np.zeros_like(smallest)
        run_kernel(primitive, out, [smallest])
        assert out[0] == smallest[0]


@pytest.mark.parametrize("dtype", [name for name in dtypes_of("exp") if name != "f64"])
def test_functions_round_well(dtype):
    """A dense sweep, within two units in the last place."""
    values = sample(dtype, (20_000,), seed=3, low=-9, high=9)
    for primitive in ("exp", "tanh", "sigmoid", "sin", "cos", "atan", "expm1"):
        out = empty_like(values)
        run_kernel(primitive, out, [values])
        assert_close(out, expected_of(primitive, values))
