"""Weighted sums along a dim, and their backward pass."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import run_kernel
from layouts import sample

from pullback.testing.kernel_calls import KernelError

SHAPES = [((7,), 0), ((3, 5), 1), ((3, 5, 4), 1), ((2, 6, 40), 0), ((2, 3, 9), 2)]


def weights_matrix(indices, weights, size: int) -> np.ndarray:
    """Return the matrix of the map, for one line."""
    made = np.zeros((indices.shape[1], size))
    for tap, row in enumerate(indices):
        for position, index in enumerate(row):
            made[position, index] += 1 if weights is None else weights[tap, position]
    return made


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("taps", [0, 1, 3])
def test_interpolate(dtype, shape, dim, taps):
    rng = np.random.default_rng(0)
    values = sample(dtype, shape, seed=1)
    indices = rng.integers(0, shape[dim], (max(taps, 1), 11))
    weights = rng.random(indices.shape).astype(values.dtype) if taps else None
    matrix = weights_matrix(indices, weights, shape[dim])
    given = [indices] if weights is None else [indices, weights]
    made_shape = (*shape[:dim], 11, *shape[dim + 1 :])
    out = np.full(made_shape, np.nan, values.dtype)
    run_kernel("interpolate", out, [values, *given], dim)
    expected = np.moveaxis(np.moveaxis(values.astype(float), dim, -1) @ matrix.T, -1, dim)
    room = 1e-5 if dtype == "f32" else 1e-13
    np.testing.assert_allclose(out, expected, atol=room, rtol=room)
    back = np.full(shape, np.nan, values.dtype)
    run_kernel("interpolate_backward", back, [out, *given], dim)
    expected = np.moveaxis(np.moveaxis(out.astype(float), dim, -1) @ matrix, -1, dim)
    np.testing.assert_allclose(back, expected, atol=8 * room, rtol=room)


@pytest.mark.parametrize("index", [-1, 4])
def test_index_out_of_range(index):
    values, out = np.ones((2, 4)), np.ones((2, 1))
    with pytest.raises(KernelError):
        run_kernel("interpolate", out, [values, np.array([[index]])], 1)
    with pytest.raises(KernelError):
        run_kernel("interpolate_backward", values, [out, np.array([[index]])], 1)


def test_nothing():
    out = np.full((0, 3), np.nan)
    run_kernel("interpolate", out, [np.ones((0, 2)), np.array([[0, 1, 1]])], 1)
    back = np.full((2, 3), np.nan)
    run_kernel("interpolate_backward", back, [np.ones((2, 0)), np.zeros((1, 0), np.int64)], 1)
    assert (back == 0).all()
