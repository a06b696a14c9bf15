"""Rows standardized by their own mean and variance."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import run_kernel
from layouts import sample

from pullback.testing.kernel_calls import KernelError


def standardized(source, weight, bias, groups, channels, inner, eps):
    """Return the result, the means and the variances in float64."""
    rows = source.astype(float).reshape(-1, groups, channels, inner)
    mean, variance = rows.mean((2, 3)), rows.var((2, 3))
    made = (rows - mean[..., None, None]) / np.sqrt(variance[..., None, None] + eps)
    if weight is not None:
        made = made * weight.astype(float).reshape(groups, channels, 1)
    if bias is not None:
        made = made + bias.astype(float).reshape(groups, channels, 1)
    return made, mean, variance


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    ("samples", "groups", "channels", "inner"),
    [(5, 1, 1, 1), (4, 1, 10, 1), (3, 1, 200, 1), (2, 4, 3, 50), (3, 2, 1, 7), (40, 2, 5, 300)],
)
@pytest.mark.parametrize("given", [0, 1, 2, 3])
def test_rows(dtype, samples, groups, channels, inner, given):
    source = sample(dtype, (samples, groups * channels, inner), seed=1)
    weight = sample(dtype, (groups * channels,), seed=2) if given & 1 else None
    bias = sample(dtype, (groups * channels,), seed=3) if given & 2 else None
    out = np.full(source.shape, np.nan, source.dtype)
    mean, variance = (np.full((samples, groups), np.nan, source.dtype) for _ in range(2))
    ins = [source, *(part for part in (weight, bias) if part is not None)]
    run_kernel("standardize", [out, mean, variance], ins, groups, channels, inner, 1e-3, given)
    expected = standardized(source, weight, bias, groups, channels, inner, 1e-3)
    room = 1e-5 if dtype == "f32" else 1e-13
    for found, wanted in zip((out, mean, variance), expected):
        np.testing.assert_allclose(found.ravel(), wanted.ravel(), rtol=room, atol=10 * room)


def test_far_from_zero():
    source = (sample("f32", (3, 1000), seed=4) + np.float32(1e4)).astype(np.float32)
    out = np.empty_like(source)
    mean, variance = np.empty((3,), np.float32), np.empty((3,), np.float32)
    run_kernel("standardize", [out, mean, variance], [source], 1, 1000, 1, 1e-5, 0)
    rows = source.astype(float)
    np.testing.assert_allclose(variance, rows.var(1), rtol=1e-5)
    np.testing.assert_array_equal(mean, rows.mean(1).astype(np.float32))


def test_equal_and_special_elements():
    source = np.array([[3.0] * 70, [np.nan] + [0.0] * 69, [np.inf] + [1.0] * 69], np.float32)
    out = np.zeros_like(source)
    mean, variance = np.empty((3,), np.float32), np.empty((3,), np.float32)
    run_kernel("standardize", [out, mean, variance], [source], 1, 70, 1, 1e-5, 0)
    assert (out[0] == 0).all() and mean[0] == 3 and variance[0] == 0
    assert np.isnan(out[1:]).all()


@pytest.mark.parametrize(("groups", "channels"), [(1, 0), (1, 7), (0, 10), (1, 5)])
def test_rows_that_do_not_fit(groups, channels):
    outs = [np.zeros((3, 10)), np.zeros((3,)), np.zeros((3,))]
    with pytest.raises(KernelError):
        run_kernel("standardize", outs, [np.ones((3, 10))], groups, channels, 1, 1e-5, 0)
