"""Decompositions through their capsules: small ones by our loops, large ones by LAPACK."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import DTYPES, Prepared
from layouts import LAYOUTS, empty_like

from pullback.testing.kernel_calls import KernelError

KINDS = ("f32", "f64", "c64", "c128")
REAL = {"f32": np.float32, "f64": np.float64, "c64": np.float32, "c128": np.float64}
SIZES = [(1, 1), (8, 8), (16, 17), (30, 50), (50, 30), (200, 200)]


def drawn(*shape, dtype, layout="contiguous", positive=False):
    rng = np.random.default_rng(sum(shape))
    values = rng.standard_normal(shape)
    if dtype in ("c64", "c128"):
        values = values + 1j * rng.standard_normal(shape)
    if positive:
        values = values @ values.conj().swapaxes(1, 2) / shape[1] + np.eye(shape[1])
    out = empty_like(values, DTYPES[dtype], layout)
    out[...] = values
    return out


def run(name, inputs, *shapes, params=(), layout="contiguous"):
    outs = [empty_like(np.zeros(shape), kind, layout) for shape, kind in shapes]
    for out in outs:
        out[...] = -7
    Prepared(name, outs, inputs, params).run()
    return outs


def near(found, expected, dtype, n):
    size = np.abs(expected).max(initial=1.0)
    tolerance = (2e-5 if dtype in ("f32", "c64") else 1e-13) * n
    expected = np.broadcast_to(expected, found.shape)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * size)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n", [1, 8, 17, 40])
def test_cholesky_and_triangular_systems(n, layout, dtype):
    a = drawn(3, n, n, dtype=dtype, layout=layout, positive=True)
    kind = DTYPES[dtype]
    lower, info = run("cholesky_factor", [a], (a.shape, kind), ((3,), np.int32), layout=layout)
    assert not info.any() and not np.triu(lower, 1).any()
    near(lower @ lower.conj().swapaxes(1, 2), a, dtype, n)
    b = drawn(3, n, 5, dtype=dtype, layout=layout)
    for upper in (0, 1):
        for unit in (0, 1):
            matrix = np.triu(a) if upper else np.tril(a)
            if unit:
                matrix = matrix * (1 - np.eye(n, dtype=REAL[dtype])) + np.eye(n, dtype=REAL[dtype])
            given = empty_like(a, kind, layout)
            given[...] = a
            (x,) = run(
                "triangular", [given, b], (b.shape, kind), params=(upper, unit), layout=layout
            )
            near(matrix @ x, b, dtype, 4 * n * max(1, np.abs(x).max()))


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("shape", SIZES)
def test_factors_multiply_to_the_matrix(shape, layout, dtype):
    rows, columns = shape
    small, kind = min(shape), DTYPES[dtype]
    a = drawn(2, rows, columns, dtype=dtype, layout=layout)
    packed, pivots, info = run(
        "lu_factor", [a], (a.shape, kind), ((2, small), np.int32), ((2,), np.int32), layout=layout
    )
    (order,) = run("permutation_of_swaps", [pivots], ((2, rows), np.int64))
    lower = np.tril(packed[:, :, :small], -1) + np.eye(rows, small)
    assert not info.any() and np.abs(lower).max() <= 1.5
    near(lower @ np.triu(packed[:, :small]), np.take_along_axis(a, order[:, :, None], 1), dtype, 50)
    packed, tau = run("qr_factor", [a], (a.shape, kind), ((2, small), kind), layout=layout)
    for count in {small, rows}:
        (q,) = run("reflections", [packed[:, :, :small], tau], ((2, rows, count), kind))
        near(q.conj().swapaxes(1, 2) @ q, np.eye(count), dtype, 50)
        near(q[:, :, :small] @ np.triu(packed[:, :small]), a, dtype, 50)
    values, info = run("svdvals", [a], ((2, small), REAL[dtype]), ((2,), np.int32))
    near(values, np.linalg.svd(a, compute_uv=False), dtype, 50)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("n", [1, 3, 8, 40, 130])
def test_eigenvalues(n, dtype):
    a, kind = drawn(2, n, n, dtype=dtype), DTYPES[dtype]
    h = a + a.conj().swapaxes(1, 2)
    wide = np.complex64 if REAL[dtype] is np.float32 else np.complex128
    for matrix, name, value_kind, vector_kind in (
        (h, "eigh", REAL[dtype], kind),
        (a, "eig", wide, wide),
    ):
        values, vectors, info = run(
            name, [matrix], ((2, n), value_kind), ((2, n, n), vector_kind), ((2,), np.int32)
        )
        assert not info.any()
        near(vectors * values[:, None], matrix @ vectors, dtype, 4 * n)
        near(np.linalg.norm(vectors, axis=1), np.ones((2, n)), dtype, 4 * n)
        alone, _, info = run(
            name, [matrix], ((2, n), value_kind), ((2, 0, 0), vector_kind), ((2,), np.int32)
        )
        near(np.sort_complex(alone).sum(1), values.sum(1), dtype, 4 * n)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("hermitian", [0, 1])
def test_indefinite_systems(hermitian, dtype):
    a, kind = drawn(2, 20, 20, dtype=dtype), DTYPES[dtype]
    h = a + (a.conj() if hermitian else a).swapaxes(1, 2)
    packed, pivots, info = run(
        *("ldl_factor", [h], (h.shape, kind), ((2, 20), np.int32), ((2,), np.int32)),
        params=(hermitian,),
    )
    assert not info.any() and (pivots < 0).any()
    (x,) = run("ldl_solve", [packed, pivots, a], (a.shape, kind), params=(hermitian,))
    near(h @ x, a, dtype, 1000)
    pivots[1, 3] = 21
    with pytest.raises(KernelError, match="index 20 is out of bounds"):
        run("ldl_solve", [packed, pivots, a], (a.shape, kind), params=(hermitian,))


@pytest.mark.parametrize("n", [4, 40])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite(n, bad):
    a = drawn(2, n, n, dtype="f64", positive=True)
    a[1, 2, 2] = bad
    shapes = ((2, n), np.float64), ((2, n, n), np.float64), ((2,), np.int32)
    values, vectors, info = run("eigh", [a], *shapes)
    assert np.isfinite(values[0]).all() and np.isnan(values[1]).all() and not info.any()
    wide = ((2, n), np.complex128), ((2, n, n), np.complex128), ((2,), np.int32)
    values, vectors, info = run("eig", [a], *wide)
    assert info.tolist() == [0, -1] and np.isnan(vectors[1]).all()
    _, info = run("cholesky_factor", [a], (a.shape, np.float64), ((2,), np.int32))
    assert info[0] == 0 and (info[1] == 3 or bad == np.inf)
    values, info = run("svdvals", [a], ((2, n), np.float64), ((2,), np.int32))
    assert info.tolist() == [0, int(np.isnan(bad))] and np.isnan(values[1]).all()
