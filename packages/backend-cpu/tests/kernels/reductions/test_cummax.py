"""Cumulative extremes and their indices, along any dim of any layout."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import DTYPES, Prepared
from layouts import LAYOUTS, empty_like


def expected(x: np.ndarray, dim: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    better = np.greater_equal if name == "cummax" else np.less_equal
    values, indices = np.moveaxis(x.copy(), dim, 0), np.zeros(x.shape, np.int64)
    rows = np.moveaxis(indices, dim, 0)
    for i in range(1, len(values)):
        taken = better(values[i], values[i - 1]) | (values[i] != values[i])
        values[i] = np.where(taken, values[i], values[i - 1])
        rows[i] = np.where(taken, i, rows[i - 1])
    return np.moveaxis(values, 0, dim), indices


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", ["bool", "u8", "i8", "i64", "f16", "f32", "f64"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_along_each_dim(name, dtype, layout, dim):
    rng = np.random.default_rng(dim)
    x = empty_like(np.empty((3, 5, 300)), DTYPES[dtype], layout)
    x[...] = rng.integers(0, 7, x.shape)
    if dtype in ("f16", "f32", "f64"):
        x[rng.random(x.shape) < 0.02] = np.nan
    values = empty_like(x, x.dtype, layout)
    indices = empty_like(x, np.dtype(np.int64), layout)
    Prepared(name, [values, indices], [x], (dim,)).run()
    for found, wanted in zip((values, indices), expected(np.array(x), dim, name)):
        np.testing.assert_array_equal(found, wanted)


def test_of_no_elements_and_of_one():
    x, indices = np.ones((2, 0)), np.ones((2, 0), np.int64)
    Prepared("cummax", [np.ones((2, 0)), indices], [x], (1,)).run()
    one, index = np.empty(()), np.empty((), np.int64)
    Prepared("cummin", [one, index], [np.array(4.0)], (0,)).run()
    assert one == 4 and index == 0
