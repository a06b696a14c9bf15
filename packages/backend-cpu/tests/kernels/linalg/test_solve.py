"""Systems of linear equations."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from kernel_calls import DTYPES, Prepared
from layouts import LAYOUTS, empty_like

SOLVED = ("f32", "f64", "c64", "c128")


def lay_out(array: np.ndarray, layout: str) -> np.ndarray:
    made = empty_like(array, array.dtype, layout)
    made[...] = array
    return made


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = rng.normal(size=shape)
    if dtype in ("c64", "c128"):
        values = values + 1j * rng.normal(size=shape)
    return values.astype(DTYPES[dtype])


def solve(a: np.ndarray, b: np.ndarray, layout: str = "contiguous") -> tuple:
    out = empty_like(b, b.dtype, layout)
    info = np.full(len(a), -1, np.int32)
    Prepared("solve", [out, info], [a, b]).run()
    return out, info


@pytest.mark.parametrize("dtype", SOLVED)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("n", "columns"), [(1, 1), (3, 2), (20, 5), (70, 33), (16, 40)])
def test_solutions_solve(dtype, layout, n, columns):
    rng = np.random.default_rng(n)
    a = draw(rng, (3, n, n), dtype) + (5 + n) * np.eye(n, dtype=DTYPES[dtype])
    b = draw(rng, (3, n, columns), dtype)
    out, info = solve(lay_out(a, layout), lay_out(b, layout), layout)
    assert not info.any()
    np.testing.assert_allclose(a @ out, b, atol=1e-4 if dtype in ("f32", "c64") else 1e-12)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("n", [15, 17, 64, 100])
def test_rows_are_swapped(dtype, n):
    """Without the largest pivots, elimination would divide by zero or by very little."""
    rng = np.random.default_rng(n)
    order = rng.permutation(n)
    a = draw(rng, (1, n, n), dtype) + 3 * n * np.eye(n, dtype=DTYPES[dtype])[order]
    a[0, 0, 0] = 0
    b = draw(rng, (1, n, 3), dtype)
    out, info = solve(a.transpose(0, 2, 1).copy().transpose(0, 2, 1), b)
    assert not info.any()
    np.testing.assert_allclose(a @ out, b, atol=1e-4 if dtype == "f32" else 1e-12)


@pytest.mark.parametrize("n", [16, 40])
def test_number_of_a_late_pivot(n):
    a = np.eye(n)[None].copy()
    a[0, n - 2, n - 2] = 0
    out, info = solve(a, np.ones((1, n, 2)))
    assert info.tolist() == [n - 1] and np.isnan(out).all()


@pytest.mark.parametrize("dtype", SOLVED)
def test_a_pivot_of_zero_is_numbered_and_its_solution_is_nan(dtype):
    a = np.array([np.eye(2), np.ones((2, 2)), np.zeros((2, 2))], DTYPES[dtype])
    out, info = solve(a, np.ones((3, 2, 1), DTYPES[dtype]))
    assert info.tolist() == [0, 2, 1]
    assert out[0].tolist() == [[1], [1]] and np.isnan(out[1:]).all()


@pytest.mark.parametrize("dtype", SOLVED)
@pytest.mark.parametrize("n", [2, 3, 30])
def test_a_pivot_of_nan_gives_no_numbers(dtype, n):
    """OpenBLAS passes over such a pivot."""
    a = draw(np.random.default_rng(n), (n + 1, n, n), dtype)
    for k in range(n):
        a[k, k, k] = np.nan
    out, info = solve(a, np.ones((n + 1, n, 2), DTYPES[dtype]))
    assert not info.any()
    assert np.isnan(out[:n]).all() and np.isfinite(out[n]).all()


@pytest.mark.parametrize("dtype", SOLVED)
def test_an_infinite_pivot_is_eliminated(dtype):
    a = np.array([[[1, 2, 3], [np.inf, 1, 1], [2, 1, 0]]], DTYPES[dtype])
    out, info = solve(a, np.array([[[8.0], [1], [3]]], DTYPES[dtype]))
    assert info.tolist() == [0]
    np.testing.assert_allclose(out.real.ravel(), [0, 3, 2 / 3], rtol=1e-6)


@pytest.mark.parametrize("shape", [(0, 2, 1), (2, 0, 1), (2, 2, 0)])
def test_nothing_to_solve(shape):
    batches, n, _ = shape
    _, info = solve(np.ones((batches, n, n)) + np.eye(n), np.ones(shape))
    assert not info.any()


def test_loading_lapack_does_not_import_scipy_linalg():
    code = """
import sys
import numpy as np
from kernel_calls import Prepared
out, info = np.empty((1, 2, 1)), np.empty(1, np.int32)
Prepared("solve", [out, info], [np.eye(2)[None], np.ones((1, 2, 1))]).run()
assert out.ravel().tolist() == [1, 1]
print([n for n in sys.modules if n.startswith("scipy.linalg")])
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.stdout.strip() == "[]", done.stderr
