"""Elementwise kernels of two inputs, and where."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import COMPLEX, DTYPES, FLOATING, INTEGRAL, dtypes_of, run_kernel, takes
from layouts import LAYOUTS, SHAPES, assert_close, empty_like, round_to, sample, widen
from scipy import special

from pullback.testing.kernel_calls import E_DTYPE, E_RUNTIME, KernelError, Scalar

BINARY = {
    "add": np.add,
    "atan2": np.arctan2,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "div": np.divide,
    "eq": np.equal,
    "floor_divide": np.floor_divide,
    "fmod": np.fmod,
    "gcd": np.gcd,
    "ge": np.greater_equal,
    "gt": np.greater,
    "hypot": np.hypot,
    "le": np.less_equal,
    "lshift": np.left_shift,
    "lt": np.less,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "pow": np.power,
    "remainder": np.remainder,
    "rshift": np.right_shift,
    "sub": np.subtract,
    "zeta": special.zeta,
}
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
DIVISIONS = ("floor_divide", "fmod", "remainder")
CASES = [(primitive, dtype) for primitive in BINARY for dtype in dtypes_of(primitive)]


def operands(primitive: str, dtype: str, shape) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs that are in the primitive's domain."""
    x = sample(dtype, shape, seed=1)
    y = sample(dtype, shape, seed=2)
    if primitive == "pow":
        y = np.abs(y).astype(y.dtype)
        x = np.abs(x).astype(x.dtype) if dtype in FLOATING else x
    if primitive == "zeta":
        x, y = (np.abs(x) + 2).astype(x.dtype), (np.abs(y) + 1).astype(y.dtype)
    if primitive in ("lshift", "rshift"):
        y = np.abs(y)
    if primitive in DIVISIONS:
        y = np.where(y == 0, np.ones((), y.dtype), y)
    return np.asarray(x), np.asarray(y)


def expected_of(primitive: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the reference, rounded to the result's dtype."""
    if primitive in DIVISIONS and x.dtype.kind not in "iu":
        # The definition itself, in the operands' precision: it jumps where the quotient is whole.
        with np.errstate(all="ignore"):
            return np.asarray(BINARY[primitive](x, y), x.dtype)
    result = BINARY[primitive](widen(x), widen(y))
    return np.asarray(result, bool) if primitive in COMPARISONS else round_to(result, x.dtype)


@pytest.mark.parametrize(("primitive", "dtype"), CASES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_binary_layouts(primitive, dtype, layout):
    x, y = operands(primitive, dtype, (3, 4, 5))
    expected = expected_of(primitive, x, y)
    for first, second in ((layout, layout), (layout, "contiguous"), ("contiguous", layout)):
        out = empty_like(x, expected.dtype)
        run_kernel(primitive, out, [LAYOUTS[first](x), LAYOUTS[second](y)])
        assert_close(out, expected)


@pytest.mark.parametrize(("primitive", "dtype"), CASES)
def test_binary_scalars(primitive, dtype):
    x, y = operands(primitive, dtype, (33,))
    out = empty_like(x, expected_of(primitive, x, y).dtype)
    run_kernel(primitive, out, [x, Scalar(y[3])])
    expected = expected_of(primitive, x, np.broadcast_to(y[3], x.shape))
    if primitive == "pow" and dtype in FLOATING:
        assert_close(out, expected, scale=4)
    else:
        assert_close(out, expected)
    run_kernel(primitive, out, [np.broadcast_to(x[5], y.shape), y])
    assert_close(out, expected_of(primitive, np.broadcast_to(x[5], y.shape), y))


@pytest.mark.parametrize("primitive", BINARY)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_binary_shapes(primitive, shape):
    dtype = "f32" if takes(primitive, "f32") else "i32"
    x, y = operands(primitive, dtype, shape)
    expected = expected_of(primitive, x, y)
    for layout in LAYOUTS:
        out = empty_like(x, expected.dtype, layout)
        run_kernel(primitive, out, [x, y])
        assert_close(out, expected)


@pytest.mark.parametrize("primitive", BINARY)
def test_binary_refuses_other_dtypes(primitive):
    for dtype in set(DTYPES) - set(dtypes_of(primitive)):
        values = sample(dtype, (2,))
        with pytest.raises(KernelError) as info:
            run_kernel(primitive, values.copy(), [values, values])
        assert info.value.code == E_DTYPE


@pytest.mark.parametrize("primitive", DIVISIONS)
@pytest.mark.parametrize("dtype", INTEGRAL)
@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_integer_division_by_zero(primitive, dtype, shape):
    x = np.ones(shape, DTYPES[dtype])
    y = LAYOUTS["strided"](x)
    y[..., 1] = 0
    with pytest.raises(KernelError) as info:
        run_kernel(primitive, x.copy(), [x, y])
    assert info.value.code == E_RUNTIME
    assert info.value.message == "ZeroDivisionError"


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64"])
def test_smallest_integer_by_minus_one(dtype):
    smallest = np.array([np.iinfo(DTYPES[dtype]).min], DTYPES[dtype])
    minus_one = np.array([-1], DTYPES[dtype])
    for primitive, expected in (("floor_divide", smallest[0]), ("fmod", 0), ("remainder", 0)):
        out = np.ones_like(smallest)
        run_kernel(primitive, out, [smallest, minus_one])
        assert out[0] == expected


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1).filter(bool))
@settings(max_examples=300, deadline=None)
def test_integer_divisions_agree_with_python(x, y):
    def wrapped(value):
        return (value + 2**63) % 2**64 - 2**63

    pair = [np.array([x]), np.array([y])]
    out = np.zeros(1, np.int64)
    run_kernel("floor_divide", out, pair)
    assert out[0] == wrapped(x // y)
    run_kernel("remainder", out, pair)
    assert out[0] == x % y
    run_kernel("fmod", out, pair)
    assert out[0] == (abs(x) % abs(y) if x >= 0 else -(abs(x) % abs(y)))
    run_kernel("mul", out, pair)
    assert out[0] == wrapped(x * y)


@given(st.integers(-6, 6), st.integers(-5, 70))
@settings(deadline=None)
def test_integer_powers_agree_with_python(base, exponent):
    out = np.zeros(1, np.int64)
    run_kernel("pow", out, [np.array([base]), np.array([exponent])])
    if exponent >= 0:
        assert out[0] == (base**exponent + 2**63) % 2**64 - 2**63
    else:
        assert out[0] == {1: 1, -1: (-1) ** exponent}.get(base, 0)


@pytest.mark.parametrize(
    ("primitive", "dtype", "x", "count", "expected"),
    [
        # What torch 2.13 returns for counts outside the width.
        ("lshift", "i8", [1, 1, -1, -8], [7, 8, 9, -1], [-128, 0, 0, 0]),
        ("rshift", "i8", [1, 1, -1, -8], [7, 8, 9, -1], [0, 0, -1, -1]),
        ("rshift", "u8", [200, 1], [8, 9], [0, 0]),
        ("rshift", "i64", [-8, 8, -8, 8], [63, 64, 100, -1], [-1, 0, -1, 0]),
        ("lshift", "i64", [1, 1, 1, -8], [63, 64, 100, -1], [-(2**63), 0, 0, 0]),
    ],
)
def test_shifts_beyond_the_width(primitive, dtype, x, count, expected):
    out = np.zeros(len(x), DTYPES[dtype])
    run_kernel(primitive, out, [np.array(x, DTYPES[dtype]), np.array(count, DTYPES[dtype])])
    assert out.tolist() == expected


def test_maximum_and_minimum_propagate_nan():
    x = np.array([np.nan, 1, -0.0, 0.0], np.float32)
    y = np.array([1, np.nan, 0.0, -0.0], np.float32)
    for primitive in ("maximum", "minimum"):
        out = np.zeros(4, np.float32)
        run_kernel(primitive, out, [x, y])
        assert np.isnan(out[:2]).all()
        assert np.signbit(out[2:]).tolist() == [True, False]


def test_float_divisions_at_the_edges():
    # What torch 2.13 returns.
    inf, nan = math.inf, math.nan
    x = np.array([1, -1, 0, inf, 5, -5, 5, -0.0, -1e-20], np.float32)
    y = np.array([0, 0, 0, 2, inf, inf, -inf, 2, 1], np.float32)
    out = np.zeros(9, np.float32)
    run_kernel("remainder", out, [x, y])
    np.testing.assert_array_equal(out, [nan, nan, nan, nan, 5, inf, -inf, -0.0, 1])
    run_kernel("floor_divide", out, [x, y])
    np.testing.assert_array_equal(out, [inf, -inf, nan, nan, 0, -1, -1, -0.0, -1])


@pytest.mark.parametrize("exponent", [2, 3, 0.5, -0.5, -1, -2, 1, 0, 1.7])
@pytest.mark.parametrize("dtype", FLOATING)
def test_pow_scalar_exponents(exponent, dtype):
    x = sample(dtype, (50,), low=0.2, high=3)
    out = empty_like(x)
    scalar = np.array(exponent, DTYPES[dtype])
    run_kernel("pow", out, [x, Scalar(scalar)])
    assert_close(out, round_to(widen(x) ** float(scalar), x.dtype))


def test_complex_powers_of_zero():
    out = np.zeros(3, np.complex128)
    run_kernel("pow", out, [np.array([0, 2j, 3]), np.zeros(3, np.complex128)])
    assert out.tolist() == [1, 1, 1]
    run_kernel("pow", out, [np.array([0, 2j, 3]), np.full(3, 2 + 0j)])
    assert out.tolist() == [0, -4, 9]


@pytest.mark.parametrize("dtype", COMPLEX)
def test_complex_division_does_not_overflow(dtype):
    big = np.finfo(DTYPES[dtype]).max / 4
    x = np.array([big * (1 + 1j), 1, 1], DTYPES[dtype])
    y = np.array([big * (1 + 1j), 2j, 0], DTYPES[dtype])
    out = np.zeros(3, DTYPES[dtype])
    run_kernel("div", out, [x, y])
    assert_close(out[:2], np.array([1, -0.5j], DTYPES[dtype]))
    assert np.isinf(out[2].real)


def test_binary_works_in_place():
    x, y = operands("add", "f32", (100,))
    expected = x + y
    run_kernel("add", x, [x, y])
    np.testing.assert_array_equal(x, expected)
    x, y = operands("mul", "f64", (7, 9))
    expected = x * y
    run_kernel("mul", y, [x, y])
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("shape", [(300, 200), (5, 300, 17), (200, 2, 150)])
def test_transposed_operand_of_large_rows(shape):
    x = sample("f32", shape)
    y = sample("f32", shape[::-1]).transpose()
    out = empty_like(x)
    run_kernel("add", out, [x, y])
    np.testing.assert_array_equal(out, x + y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_where(dtype, layout):
    condition = sample("bool", (3, 4, 5), seed=5)
    x, y = sample(dtype, (3, 4, 5), seed=1), sample(dtype, (3, 4, 5), seed=2)
    lay_out = LAYOUTS[layout]
    out = empty_like(x)
    run_kernel("where", out, [lay_out(condition), lay_out(x), y])
    np.testing.assert_array_equal(out, np.where(condition, x, y))
    run_kernel("where", out, [condition, lay_out(x), Scalar(y[0, 0, 0])])
    np.testing.assert_array_equal(out, np.where(condition, x, y[0, 0, 0]))
    run_kernel("where", out, [condition, np.broadcast_to(x[1, 2, 3], y.shape), lay_out(y)])
    np.testing.assert_array_equal(out, np.where(condition, x[1, 2, 3], y))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_where_shapes(shape):
    condition = sample("bool", shape, seed=5)
    x, y = sample("f32", shape, seed=1), sample("f32", shape, seed=2)
    for layout in LAYOUTS:
        out = empty_like(x, layout=layout)
        run_kernel("where", out, [condition, x, y])
        np.testing.assert_array_equal(out, np.where(condition, x, y))


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
@pytest.mark.parametrize("primitive", ["mul", "div", "tanh_backward", "sigmoid_backward"])
def test_complex_bits_do_not_depend_on_where_memory_lies(primitive, kind):
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(2 * 21).view(np.complex128).astype(kind) for _ in range(2))
    one_by_one = np.empty_like(x)
    for i in range(x.size):
        run_kernel(primitive, one_by_one[i : i + 1], [x[i : i + 1], y[i : i + 1]])
    for start in range(9):
        arrays = [np.zeros(x.size + start, kind)[start:] for _ in range(3)]
        arrays[1][:], arrays[2][:] = x, y
        run_kernel(primitive, arrays[0], arrays[1:])
        assert arrays[0].tobytes() == one_by_one.tobytes()
