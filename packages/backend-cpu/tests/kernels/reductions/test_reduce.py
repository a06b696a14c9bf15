"""Reductions, argmax and argmin, cumsum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from kernel_calls import COMPLEX, DTYPES, FLOATING, dtypes_of, run_kernel, takes
from layouts import LAYOUTS, assert_close, empty_like, round_to, sample, widen

from pullback.testing.kernel_calls import E_DTYPE, E_VALUE, KernelError

REDUCTIONS = {
    "sum": np.sum,
    "prod": np.prod,
    "amax": np.max,
    "amin": np.min,
    "any": np.any,
    "all": np.all,
}
CASES = [(primitive, dtype) for primitive in REDUCTIONS for dtype in dtypes_of(primitive)]
DIMS_OF_3 = [dims for n in range(4) for dims in itertools.combinations(range(3), n)]


def reduced_shape(shape, dims):
    return tuple(1 if d in dims else n for d, n in enumerate(shape))


def expected_of(primitive: str, values: np.ndarray, dims) -> np.ndarray:
    """Return the reference, rounded to the result's dtype."""
    wide = widen(values)
    if primitive == "sum" and wide.dtype == np.float64:
        wide = wide.astype(np.longdouble)
    result = REDUCTIONS[primitive](wide, axis=tuple(dims), keepdims=True)
    return (
        np.asarray(result, bool) if primitive in ("any", "all") else round_to(result, values.dtype)
    )


def run_reduce(primitive: str, values: np.ndarray, dims) -> np.ndarray:
    dtype = np.dtype(bool) if primitive in ("any", "all") else values.dtype
    out = empty_like(np.empty(reduced_shape(values.shape, dims)), dtype)
    run_kernel(primitive, out, [values])
    return out


@pytest.mark.parametrize(("primitive", "dtype"), CASES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_reduce_any_dims(primitive, dtype, layout):
    low, high = (0.5, 1.5) if primitive == "prod" and dtype in FLOATING else (-3, 3)
    values = sample(dtype, (3, 4, 5), low=low, high=high)
    for dims in DIMS_OF_3:
        actual = run_reduce(primitive, LAYOUTS[layout](values), dims)
        assert_close(
            actual, expected_of(primitive, values, dims), scale=16 if primitive == "prod" else 4
        )


@pytest.mark.parametrize(("primitive", "dtype"), CASES)
@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((700,), (0,)),
        ((4100,), (0,)),
        ((1,), (0,)),
        ((), ()),
        ((5, 300), (0,)),
        ((300, 5), (0,)),
        ((300, 5), (1,)),
        ((5, 300), (1,)),
        ((40, 3), (1,)),
        ((4, 300, 3), (1,)),
        ((2, 300, 4), (0, 2)),
        ((1, 7, 1), (1,)),
    ],
    ids=str,
)
def test_reduce_shapes(primitive, dtype, shape, dims):
    low, high = (0.97, 1.03) if primitive == "prod" and dtype != "i64" else (-3, 3)
    values = sample(dtype, shape, seed=4, low=low, high=high)
    if dtype in COMPLEX and primitive == "prod":
        values /= abs(values)
    actual = run_reduce(primitive, values, dims)
    expected = expected_of(primitive, values, dims)
    if primitive == "sum" and dtype in (*FLOATING, *COMPLEX):
        # Terms cancel: the error counts relative to the sum of their sizes.
        size = np.sum(np.abs(widen(values)), axis=tuple(dims), keepdims=True)
        room = {"f16": 2e-3, "bf16": 1e-2, "f32": 3e-7, "c64": 3e-7}.get(dtype, 1e-15)
        assert (np.abs(widen(actual) - widen(expected)) <= room * size).all()
    else:
        assert_close(actual, expected, scale=400 if primitive == "prod" else 1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("primitive", ["sum", "nansum", "amax", "amin", "any", "all"])
def test_reductions_of_16_bits_are_those_of_float32(primitive, dtype, layout):
    for shape in [(9, 700), (700, 9), (3, 300, 5), (1, 1030), (1030, 1)]:
        values = LAYOUTS[layout](sample(dtype, shape, 1, -1, 1))
        values[0, 0] = np.nan if primitive == "nansum" else 0
        wide = np.ascontiguousarray(values).astype(np.float32)
        for dims in ((0,), (1,), (0, 1)):
            actual = run_reduce(primitive, values, dims)
            expected = round_to(run_reduce(primitive, wide, dims), actual.dtype)
            assert_close(actual, expected, scale=values.size if primitive == "sum" else 1)


@pytest.mark.parametrize(
    ("primitive", "identity"), [("sum", 0), ("prod", 1), ("any", False), ("all", True)]
)
def test_reduce_of_nothing_is_the_identity(primitive, identity):
    for dtype in dtypes_of(primitive):
        out = run_reduce(primitive, np.zeros((3, 0, 2), DTYPES[dtype]), (1,))
        assert (widen(out) == identity).all()
        out = run_reduce(primitive, np.zeros((0,), DTYPES[dtype]), (0,))
        assert (widen(out) == identity).all()
        assert run_reduce(primitive, np.zeros((0, 3), DTYPES[dtype]), (1,)).shape == (0, 1)


def test_extremes_of_nothing():
    for dtype in FLOATING:
        for primitive, expected in (("amax", -np.inf), ("amin", np.inf)):
            assert (
                widen(run_reduce(primitive, np.zeros((2, 0), DTYPES[dtype]), (1,)))[0, 0]
                == expected
            )


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("position", [0, 5, 299])
def test_extremes_propagate_nan(dtype, position):
    values = sample(dtype, (300, 20))
    values[position, 7] = np.nan
    for primitive in ("amax", "amin"):
        for dims in ((0,), (1,), (0, 1)):
            assert np.isnan(widen(run_reduce(primitive, values, dims))).sum() == 1


def test_sum_of_many_float32_is_accurate():
    values = sample("f32", (1_000_000,), low=0, high=1)
    exact = np.sum(values, dtype=np.longdouble)
    assert run_reduce("sum", values, (0,))[0] == np.float32(exact)
    columns = np.ascontiguousarray(np.broadcast_to(values[:, None], (1_000_000, 9)))
    assert (run_reduce("sum", columns, (0,)) == np.float32(exact)).all()


def test_sum_of_many_float64_is_as_good_as_numpy():
    values = sample("f64", (1_000_003,), low=0, high=1)
    exact = np.sum(values, dtype=np.longdouble)
    error = abs(run_reduce("sum", values, (0,))[0] - exact)
    assert error <= max(abs(np.sum(values) - exact), np.spacing(float(exact)))


def test_sum_of_halves_does_not_stop_growing():
    for dtype in FLOATING[:2]:
        ones = np.ones(60_000, DTYPES[dtype])
        assert run_reduce("sum", ones, (0,))[0] == DTYPES[dtype].type(60_000)


def test_sum_of_integers_wraps_around():
    assert run_reduce("sum", np.array([2**63 - 1, 1]), (0,))[0] == -(2**63)


def test_reduce_broadcast_input():
    values = np.broadcast_to(sample("f64", (1, 6)), (5, 6))
    assert_close(run_reduce("sum", values, (0,)), values.sum(0, keepdims=True))


def test_reduce_into_strided_output():
    values = sample("f64", (6, 7))
    for layout in LAYOUTS:
        out = empty_like(np.zeros((6, 1)), layout=layout)
        run_kernel("sum", out, [values])
        assert_close(out, values.sum(1, keepdims=True), scale=4)


# -- argmax and argmin ----------------------------------------------------------------------------


@pytest.mark.parametrize("primitive", ["argmax", "argmin"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_argreduce(primitive, layout):
    function = getattr(np, primitive)
    for dtype in dtypes_of(primitive):
        values = sample(dtype, (3, 4, 5), seed=9, low=-2, high=2)
        placed = LAYOUTS[layout](values)
        for d in range(3):
            out = empty_like(np.zeros(reduced_shape(values.shape, (d,))), np.int64)
            run_kernel(primitive, out, [placed])
            np.testing.assert_array_equal(out, function(widen(values), axis=d, keepdims=True))
        out = np.zeros((1, 1, 1), np.int64)
        run_kernel(primitive, out, [placed])
        assert out[0, 0, 0] == function(widen(values))


@pytest.mark.parametrize("primitive", ["argmax", "argmin"])
def test_argreduce_first_nan_wins(primitive):
    values = np.array([1, 9, np.nan, -9, np.nan], np.float32)
    out = np.zeros(1, np.int64)
    for rolled in range(5):
        turned = np.roll(values, rolled)
        run_kernel(primitive, out, [turned])
        assert out[0] == np.flatnonzero(np.isnan(turned))[0]


def test_argreduce_of_a_scalar_and_of_nothing():
    out = np.full((), 5)
    run_kernel("argmax", out, [np.array(2.0)])
    assert out == 0
    with pytest.raises(KernelError) as info:
        run_kernel("argmax", np.zeros((2, 1), np.int64), [np.zeros((2, 0))])
    assert info.value.code == E_VALUE
    run_kernel("argmax", np.zeros((0, 1), np.int64), [np.zeros((0, 3))])


# -- cumsum ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 5, 7, 8, 20, 99])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_cumsum_of_a_line_with_special_values(position, value):
    values = np.random.default_rng(position).standard_normal(100).astype(np.float32)
    values[position] = value
    values[-1 - position // 2] = 3e38
    for source in (values, np.repeat(values, 2)[::2]):
        out = np.empty_like(values)
        run_kernel("cumsum", out, [source], 0)
        with np.errstate(all="ignore"):
            expected = np.cumsum(values, dtype=np.float64).astype(np.float32)
        np.testing.assert_allclose(out, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", dtypes_of("cumsum"))
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "shape", [(3, 4, 5), (2, 300, 3), (300, 2, 300), (7,), (1, 1), (2, 0, 3)], ids=str
)
def test_cumsum(dtype, layout, shape):
    values = sample(dtype, shape, low=0.5, high=1.5)
    for dim in range(len(shape)):
        out = empty_like(values)
        run_kernel("cumsum", out, [LAYOUTS[layout](values)], dim)
        kind = values.dtype if values.dtype.kind in "iu" else None
        expected = np.cumsum(widen(values), axis=dim, dtype=kind)
        assert_close(out, round_to(expected, values.dtype), scale=8)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("position", range(17))
def test_cumsum_overflows_only_where_a_running_sum_does(dtype, position):
    values = np.zeros(30, dtype)
    values[position : position + 3] = -1.5e308, 1e308, 1e308
    values[20:] = 1e290
    out = np.zeros_like(values)
    run_kernel("cumsum", out, [values], 0)
    np.testing.assert_allclose(out, np.cumsum(values), rtol=1e-14)


def test_cumsum_of_infinities_and_nan():
    values = np.arange(40.0)
    values[11] = np.inf
    values[29] = -np.inf
    out = np.zeros_like(values)
    run_kernel("cumsum", out, [values], 0)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out, np.cumsum(values))


def test_cumsum_of_a_scalar():
    out = np.zeros((), np.float32)
    run_kernel("cumsum", out, [np.array(3, np.float32)], 0)
    assert out == 3


@pytest.mark.parametrize("primitive", [*REDUCTIONS, "argmax", "argmin", "cumsum"])
def test_reductions_refuse_other_dtypes(primitive):
    for dtype in DTYPES:
        if not takes(primitive, dtype):
            for shape in ((2,), (2, 3)):
                values = sample(dtype, shape)
                out = np.zeros(
                    values.shape if primitive == "cumsum" else (1,) * values.ndim, np.int64
                )
                with pytest.raises(KernelError) as info:
                    run_kernel(primitive, out, [values], 0)
                assert info.value.code == E_DTYPE
