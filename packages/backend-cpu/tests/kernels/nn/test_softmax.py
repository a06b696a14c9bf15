"""softmax, log_softmax and their derivatives."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import DTYPES, FLOATING, run_kernel
from layouts import LAYOUTS, assert_close, empty_like, round_to, sample, widen
from scipy import special

SHAPES = [(7,), (3, 4, 5), (2, 300), (300, 2), (40, 17), (1, 1), (2, 0, 3), (3, 2, 0)]


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmax(dtype, layout, shape):
    values = sample(dtype, shape)
    for dim in range(len(shape)):
        if shape[dim] == 0:
            continue
        for primitive, function in (
            ("softmax", special.softmax),
            ("log_softmax", special.log_softmax),
        ):
            out = empty_like(values, layout=layout)
            run_kernel(primitive, out, [LAYOUTS[layout](values)], dim)
            expected = round_to(function(widen(values), axis=dim), values.dtype)
            assert_close(out, expected, scale=8)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmax_backward(dtype, layout, shape):
    grad = sample(dtype, shape, seed=1)
    logits = sample(dtype, shape, seed=2)
    for dim in range(len(shape)):
        if shape[dim] == 0:
            continue
        g = widen(grad)
        for primitive, function in (
            ("softmax", special.softmax),
            ("log_softmax", special.log_softmax),
        ):
            saved = round_to(function(widen(logits), axis=dim), grad.dtype)
            y = widen(saved)
            if primitive == "softmax":
                expected = y * (g - np.sum(g * y, axis=dim, keepdims=True))
            else:
                expected = g - np.exp(y) * np.sum(g, axis=dim, keepdims=True)
            out = empty_like(grad, layout=layout)
            operands = [LAYOUTS[layout](grad), LAYOUTS[layout](saved)]
            run_kernel(primitive + "_backward", out, operands, dim)
            unit = {"f16": 2e-3, "bf16": 2e-2, "f32": 5e-7}.get(dtype, 1e-14)
            room = unit * np.sum(np.abs(g), axis=dim, keepdims=True)
            assert (np.abs(widen(out) - expected) <= room).all()


@pytest.mark.parametrize("primitive", ["softmax", "log_softmax"])
def test_softmax_of_infinities(primitive):
    # What torch 2.13 returns.
    for values in ([-np.inf, -np.inf], [np.inf, 1], [np.nan, 1]):
        out = np.zeros(2, np.float32)
        run_kernel(primitive, out, [np.array(values, np.float32)], 0)
        assert np.isnan(out).all()
    run_kernel(primitive, out, [np.array([-np.inf, 1], np.float32)], 0)
    assert out.tolist() == ([0, 1] if primitive == "softmax" else [-np.inf, 0])


def test_softmax_of_a_scalar():
    out = np.zeros(())
    run_kernel("softmax", out, [np.array(5.0)], 0)
    assert out == 1


def test_softmax_of_large_logits_sums_to_one():
    values = sample("f32", (4, 1000), low=500, high=5000)
    out = np.zeros_like(values)
    run_kernel("softmax", out, [values], 1)
    np.testing.assert_allclose(out.sum(1, dtype=np.float64), 1, rtol=1e-6)


def of_columns(primitive, x):
    """What a primitive gives along the first dim, in float64."""
    with np.errstate(all="ignore"):
        largest = x.max(0)
        if primitive == "logsumexp":
            shift = np.where(np.isinf(largest), 0, largest)
            return shift + np.log(np.exp(x - shift).sum(0))
        below = x - largest
        total = np.exp(below).sum(0)
        return np.exp(below) / total if primitive == "softmax" else below - np.log(total)


UNITS = {"f16": 2**-11, "bf16": 2**-8, "f32": 2**-24, "f64": 2**-53}


def assert_within(found, expected, room):
    """Compare infinities and NaN, and the distance of all other elements."""
    same = (found == expected) | np.isnan(found) & np.isnan(expected)
    with np.errstate(invalid="ignore"):
        wrong = ~(same | (np.abs(found - expected) <= room))
    assert not wrong.any(), (found[wrong], expected[wrong])


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("primitive", ["softmax", "log_softmax", "logsumexp"])
@pytest.mark.parametrize("order", ["random", "rising", "falling"])
def test_columns_in_any_order_with_infinities(dtype, primitive, order):
    """Sums go on when a larger element comes, whatever the smaller ones were."""
    rng = np.random.default_rng(7)
    for length, n in ((1, 20), (16, 300), (17, 5), (65, 16), (130, 300), (200, 4)):
        x = rng.normal(size=(length, n)) * 10.0 ** rng.integers(-2, 5, n)
        if order != "random":
            x = np.sort(x, 0)[:: 1 if order == "rising" else -1]
        rare = rng.choice([np.inf, -np.inf, np.nan, -1e4, 1e4], x.shape)
        x = np.where(rng.random(x.shape) < rng.choice([0, 0, 0.01, 0.1, 1], n), rare, x)
        x[:, :2] = -np.inf
        a = round_to(x, DTYPES[dtype])
        out = np.zeros((1, n) if primitive == "logsumexp" else x.shape, a.dtype)
        run_kernel(primitive, [out], [a], 0)
        expected = round_to(of_columns(primitive, widen(a)).reshape(out.shape), a.dtype)
        unit = 8 * UNITS[dtype]  # of the difference from the largest element, too
        room = unit * np.abs(np.where(np.isfinite(widen(a)), widen(a), 1)).max(0)
        assert_within(widen(out), widen(expected), room + unit * np.log(length + 1) + unit)
