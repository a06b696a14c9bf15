"""Singular value decompositions."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import DTYPES, Prepared
from layouts import LAYOUTS, empty_like

DECOMPOSED = ("f32", "f64", "c64", "c128")


def decompose(a: np.ndarray, full: bool = False, layout: str = "contiguous") -> tuple:
    batches, rows, columns = a.shape
    count = min(rows, columns)
    left, right = (rows, columns) if full else (count, count)
    shapes = (batches, rows, left), (batches, count), (batches, right, columns)
    dtypes = a.dtype, a.real.dtype, a.dtype
    outs = [empty_like(np.empty(shape), dtype, layout) for shape, dtype in zip(shapes, dtypes)]
    info = np.full(batches, -1, np.int32)
    Prepared("svd", [*outs, info], [a]).run()
    return *outs, info


@pytest.mark.parametrize("dtype", DECOMPOSED)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 1, 1), (3, 4, 2), (2, 2, 5), (1, 40, 30), (2, 7, 60)])
@pytest.mark.parametrize("full", [False, True])
def test_factors_multiply_to_the_matrix(dtype, layout, shape, full):
    rng = np.random.default_rng(1)
    values = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype[0] == "c" else 0)
    a = empty_like(np.empty(shape), DTYPES[dtype], layout)
    a[...] = values
    u, s, vh, info = decompose(a, full, layout)
    count = s.shape[1]
    atol = 1e-4 if dtype in ("f32", "c64") else 1e-12
    assert not info.any()
    np.testing.assert_allclose(u[:, :, :count] * s[:, None] @ vh[:, :count], a, atol=atol)
    for part in (u, np.conj(np.swapaxes(vh, 1, 2))):
        one = np.conj(np.swapaxes(part, 1, 2)) @ part
        np.testing.assert_allclose(one, np.broadcast_to(np.eye(one.shape[1]), one.shape), atol=atol)
    np.testing.assert_allclose(s, np.linalg.svd(np.array(a), compute_uv=False), atol=atol)


@pytest.mark.parametrize("dtype", DECOMPOSED)
def test_a_matrix_with_nan_has_no_factors(dtype):
    a = np.array([np.eye(2), np.full((2, 2), np.nan)], DTYPES[dtype])
    u, s, vh, info = decompose(a)
    assert info[0] == 0 and info[1] != 0
    assert s[0].tolist() == [1, 1] and all(np.isnan(part[1]).all() for part in (u, s, vh))


@pytest.mark.parametrize("dtype", DECOMPOSED)
def test_a_matrix_with_infinity_has_factors_of_nan(dtype):
    a = np.array([np.diag([2.0, 1, 1]), np.arange(9.0).reshape(3, 3)], DTYPES[dtype])
    a[1, 0, 0] = np.inf
    u, s, vh, info = decompose(a, full=True)
    assert info.tolist() == [0, 0] and s[0].tolist() == [2, 1, 1]
    assert all(np.isnan(part[1]).all() for part in (u, s, vh))
