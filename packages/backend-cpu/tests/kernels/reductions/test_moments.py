"""Kernels that fuse a reduction with what is summed: moments, squares, counts, logsumexp."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import dtypes_of, run_kernel
from layouts import LAYOUTS, assert_close, round_to, sample, widen
from scipy import special

from pullback_cpu.runtime import threads

SHAPES = [
    ((700,), (0,)),
    ((5, 3000), (1,)),
    ((3000, 5), (0,)),
    ((3000, 5), (1,)),
    ((70, 130), (0,)),
    ((4, 300, 9), (1,)),
    ((4, 30, 9), (0, 2)),
    ((2, 3, 2), (0, 1, 2)),
    ((), ()),
    ((3, 0), (0,)),
]


def kept(values, dims):
    return tuple(1 if d in dims else n for d, n in enumerate(values.shape))


def run_moments(values, dims):
    outs = [np.full(kept(values, dims), 77, values.dtype) for _ in range(2)]
    run_kernel("moments", outs, [values])
    return outs


@pytest.mark.parametrize("dtype", dtypes_of("moments"))
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "dims"), SHAPES, ids=str)
def test_moments(dtype, layout, shape, dims):
    values = sample(dtype, shape, low=-1, high=5)
    wide = values.astype(np.longdouble)
    mean, squares = run_moments(LAYOUTS[layout](values), dims)
    expected = wide.mean(dims, keepdims=True)
    np.testing.assert_allclose(mean, expected, rtol=3e-7 if dtype == "f32" else 1e-14)
    off = ((wide - expected) ** 2).sum(dims, keepdims=True)
    np.testing.assert_allclose(squares, off, rtol=1e-6 if dtype == "f32" else 1e-13, atol=1e-30)


@pytest.mark.parametrize(("dtype", "room"), [("f32", 1e-5), ("f64", 1e-11)])
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
def test_a_large_mean_leaves_the_squares_alone(dtype, room, dims):
    values = sample(dtype, (900, 800), low=0, high=1) + np.float64(1e4)
    values = values.astype(values.dtype if dtype == "f64" else np.float32)
    wide = values.astype(np.longdouble)
    expected = ((wide - wide.mean(dims, keepdims=True)) ** 2).sum(dims, keepdims=True)
    np.testing.assert_allclose(run_moments(values, dims)[1], expected, rtol=room)


def test_moments_of_nothing_and_of_infinities():
    mean, squares = run_moments(np.zeros((2, 0), np.float32), (1,))
    assert np.isnan(mean).all()
    assert (squares == 0).all()
    values = np.ones((3, 2000), np.float32)
    values[0, 1500] = np.inf
    values[1, 3] = np.nan
    mean, squares = run_moments(values, (1,))
    np.testing.assert_array_equal(mean[:, 0], [np.inf, np.nan, 1])
    np.testing.assert_array_equal(squares[:, 0], [np.nan, np.nan, 0])


@pytest.mark.parametrize(
    ("primitive", "function"),
    [
        ("sum_squares", lambda x, dims: (x * x).sum(dims, keepdims=True)),
        ("nansum", lambda x, dims: np.nansum(x, dims, keepdims=True)),
        ("count_nonzero", lambda x, dims: np.count_nonzero(x, dims, keepdims=True)),
    ],
)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "dims"), SHAPES, ids=str)
def test_sums(primitive, function, layout, shape, dims):
    for dtype in dtypes_of(primitive):
        values = sample(dtype, shape, low=-1, high=2)
        if primitive == "nansum" and values.size > 5:
            values.reshape(-1)[::5] = np.nan
        if primitive == "count_nonzero" and values.dtype.kind != "b":
            values = np.where(sample("bool", shape, seed=3), values, 0).astype(values.dtype)
        out = np.zeros(
            kept(values, dims), np.int64 if primitive == "count_nonzero" else values.dtype
        )
        run_kernel(primitive, out, [LAYOUTS[layout](values)])
        expected = function(widen(values), tuple(dims))
        if primitive == "count_nonzero":
            np.testing.assert_array_equal(out, expected)
        else:
            size = np.nansum(np.abs(widen(values)), dims, keepdims=True) + 1
            room = {"f16": 2e-3, "bf16": 2e-2, "f32": 4e-7}.get(dtype, 1e-14)
            assert (np.abs(widen(out) - expected) <= room * size * 2).all()


@pytest.mark.parametrize("primitive", ["sum", "moments", "amax"])
@pytest.mark.parametrize(
    ("shape", "dims"),
    [((600_000,), (0,)), ((200_000, 5), (0,)), ((3, 100, 2000), (0, 2)), ((900, 800), (0,))],
)
def test_threads_do_not_change_a_result(primitive, shape, dims):
    values = sample("f32", shape)
    before = threads.get_num_threads()
    found = []
    try:
        for count in (1, 3):
            threads.set_num_threads(count)
            outs = [
                np.zeros(kept(values, dims), np.float32)
                for _ in range(1 + (primitive == "moments"))
            ]
            run_kernel(primitive, outs, [values])
            found.append(outs)
    finally:
        threads.set_num_threads(before)
    np.testing.assert_array_equal(found[0], found[1])
    if primitive == "sum":
        exact = values.astype(np.float64).sum(dims, keepdims=True)
        np.testing.assert_allclose(found[0][0], exact, atol=1e-6 * np.abs(values).sum())


@pytest.mark.parametrize("dtype", dtypes_of("logsumexp"))
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(7,), (3, 4, 5), (2, 300), (300, 2), (1, 1), (2, 0, 3)], ids=str)
def test_logsumexp(dtype, layout, shape):
    values = sample(dtype, shape)
    for dim in range(len(shape)):
        if shape[dim] == 0:
            continue
        out = np.full(kept(values, (dim,)), 77, values.dtype)
        run_kernel("logsumexp", out, [LAYOUTS[layout](values)], dim)
        expected = special.logsumexp(widen(values), axis=dim, keepdims=True)
        room = {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-6}.get(dtype, 1e-14)
        assert (np.abs(widen(out) - expected) <= room * (1 + np.abs(expected))).all()


def test_logsumexp_of_infinities():
    values = np.array([[-np.inf, -np.inf], [np.inf, 1], [np.nan, 1], [-np.inf, 2]], np.float32)
    for layout in LAYOUTS.values():
        out = np.zeros((4, 1), np.float32)
        run_kernel("logsumexp", out, [layout(values)], 1)
        np.testing.assert_array_equal(out[:, 0], [-np.inf, np.inf, np.nan, 2])


# -- normalize ------------------------------------------------------------------------------------

FOUR = [(2, 3, 4, 5), (3, 1, 70, 1), (4, 50, 1, 1), (5, 3, 1, 90), (1, 2, 3, 1), (40, 2, 2, 33)]


@pytest.mark.parametrize("dtype", dtypes_of("normalize"))
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("shape", FOUR, ids=str)
def test_normalize(dtype, shared, plain, shape):
    x, grad = sample(dtype, shape), sample(dtype, shape, seed=1)
    rows = 1 if shared else shape[0]
    dims = (0, 2, 3) if shared else (2, 3)
    wide = x.astype(np.float64)
    mean = wide.mean(dims).reshape(rows, shape[1])
    scale = 1 / np.sqrt(wide.var(dims).reshape(rows, shape[1]) + 0.1)
    weight = sample(dtype, shape[1:3], seed=2, low=0.5, high=2)
    bias = sample(dtype, shape[1:3], seed=3)
    if plain:
        weight, bias = (np.broadcast_to(one[:1, :1], shape[1:3]) for one in (weight, bias))
    given = [x, mean.astype(x.dtype), scale.astype(x.dtype), weight]
    out = np.zeros_like(x)
    run_kernel("normalize", out, [*given, bias])
    unit = (wide - mean[..., None, None]) * scale[..., None, None]
    room = 4e-6 if dtype == "f32" else 1e-13
    expected = unit * weight[..., None] + bias[..., None]
    np.testing.assert_allclose(out, expected, rtol=room, atol=room)

    outs = [np.full(one.shape, 77, x.dtype) for one in (x, weight, weight)]
    run_kernel("normalize_backward", outs, [grad, *given])
    inner = grad * weight[..., None].astype(np.float64)
    gradient = scale[..., None, None] * (
        inner - inner.mean(dims, keepdims=True) - unit * (inner * unit).mean(dims, keepdims=True)
    )
    room *= 20 * np.sqrt(x.size)
    for found, expected in zip(
        outs, (gradient, (grad * unit).sum((0, 3)), grad.astype(np.float64).sum((0, 3)))
    ):
        np.testing.assert_allclose(found, expected, rtol=room, atol=room)
    if not shared:
        run_kernel("normalize_backward_input", outs[0], [grad, *given])
        np.testing.assert_allclose(outs[0], gradient, rtol=room, atol=room)


def test_normalize_without_elements():
    for shape in ((0, 2, 3, 4), (2, 0, 1, 3), (2, 3, 1, 0)):
        x = np.zeros(shape, np.float32)
        mean, weight = np.zeros(shape[:2], np.float32), np.ones(shape[1:3], np.float32)
        run_kernel("normalize", np.zeros_like(x), [x, mean, mean, weight, weight])
        outs = [np.zeros_like(x), np.ones_like(weight), np.ones_like(weight)]
        run_kernel("normalize_backward", outs, [x, x, mean, mean, weight])
        assert not outs[1].any()
        assert not outs[2].any()
        run_kernel("normalize_backward_input", outs[0], [x, x, mean, mean, weight])


# -- cumulative products and logarithms -----------------------------------------------------------


@pytest.mark.parametrize("primitive", ["cumprod", "logcumsumexp"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "shape", [(3, 4, 5), (2, 90, 3), (90, 2, 90), (7,), (1, 1), (2, 0, 3)], ids=str
)
def test_scan(primitive, layout, shape):
    for dtype in dtypes_of(primitive):
        values = sample(dtype, shape, low=0.5, high=1.5)
        for dim in range(len(shape)):
            out = np.full(values.shape, 77, values.dtype)
            run_kernel(primitive, out, [LAYOUTS[layout](values)], dim)
            if primitive == "cumprod":
                kind = values.dtype if values.dtype.kind in "iu" else None
                expected = np.cumprod(widen(values), axis=dim, dtype=kind)
            else:
                expected = np.logaddexp.accumulate(widen(values), axis=dim)
            assert_close(out, round_to(expected, values.dtype), scale=8)


def test_logcumsumexp_of_special_values():
    values = np.array([-np.inf, -np.inf, -300, 1, np.inf, 5, np.inf, np.nan, 1], np.float32)
    for dtype in (np.float32, np.float64):
        out = np.zeros(9, dtype)
        run_kernel("logcumsumexp", out, [values.astype(dtype)], 0)
        expected = [-np.inf, -np.inf, -300, 1, np.inf, np.inf, np.inf, np.nan, np.nan]
        np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_a_product_of_zeros_stays_zero():
    values = np.array([0, *[1e300] * 9])
    out = np.ones(10)
    run_kernel("cumprod", out, [values], 0)
    assert (out == 0).all()


@pytest.mark.parametrize("dtype", dtypes_of("argmax"))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_arg_extremes_of_long_runs(dtype, layout):
    values = sample(dtype, (1500, 20), seed=6)
    for primitive, function in (("argmax", np.argmax), ("argmin", np.argmin)):
        for dim in (0, 1):
            for array in (values, np.ascontiguousarray(values.T)):
                out = np.full(kept(array, (dim,)), 77, np.int64)
                run_kernel(primitive, out, [LAYOUTS[layout](array)])
                expected = function(widen(array), axis=dim, keepdims=True)
                np.testing.assert_array_equal(out, expected)
