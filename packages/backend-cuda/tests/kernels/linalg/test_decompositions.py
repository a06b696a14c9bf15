"""Kernels of decompositions, small ones in one call of the library, large ones one by one."""

import ctypes

import numpy as np
import pytest
from primitive_calls import LAYOUTS, STORED, begin, blank, kernel_of, run_primitive

import pullback as pb
from pullback.testing.kernel_calls import KernelError, call_kernel

KINDS = ("f32", "f64", "c64", "c128")
INT32 = np.dtype(np.int32)


memory = []


@pytest.fixture(autouse=True)
def device(request):
    begin(request)
    yield
    memory.clear()


def on_device(array):
    """Return an equal array with the same strides in memory that the fake libraries accept."""
    first, last = np.lib.array_utils.byte_bounds(array)
    memory.append(pb.empty(last - first + 1, dtype=pb.uint8, device="cuda"))
    place = (ctypes.c_char * (last - first)).from_address(memory[-1].data_ptr())
    start = array.__array_interface__["data"][0] - first
    made = np.ndarray(array.shape, array.dtype, place, start, array.strides)
    made[...] = array
    return made


def drawn(dtype, *shape, positive=False, layout="plain"):
    rng = np.random.default_rng(sum(shape))
    values = rng.standard_normal(shape)
    if dtype in ("c64", "c128"):
        values = values + 1j * rng.standard_normal(shape)
    if positive:
        values = values @ adjoint(values) / shape[1] + np.eye(shape[1])
    return LAYOUTS[layout](values.astype(STORED[dtype]))


def adjoint(matrices):
    return matrices.conj().swapaxes(1, 2)


def run(name, inputs, *outs, params=(), layout="plain"):
    made = [on_device(blank(shape, np.dtype(kind), layout)) for shape, kind in outs]
    run_primitive(name, made if len(made) > 1 else made[0], inputs, *params)
    return made


def near(found, expected, dtype, n=1):
    tolerance = (3e-5 if dtype in ("f32", "c64") else 1e-12) * max(n, 4)
    expected = np.broadcast_to(expected, found.shape)
    scale = np.abs(expected).max(initial=1.0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


def real_of(dtype):
    return STORED[dtype].type(0).real.dtype


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("batch", "n"), [(1, 5), (3, 1), (3, 17), (2, 200)])
def test_cholesky_factors_and_triangular_systems(batch, n, layout, dtype):
    if n == 200 and (layout, dtype) not in (("plain", "f64"), ("strided", "c64")):
        return
    a, kind = drawn(dtype, batch, n, n, positive=True, layout=layout), STORED[dtype]
    lower, info = run("cholesky_factor", [a], (a.shape, kind), ((batch,), INT32), layout=layout)
    assert not info.any() and not np.triu(lower, 1).any()
    near(lower @ adjoint(lower), a, dtype, n)
    b = drawn(dtype, batch, n, 3, layout=layout)
    for upper, unit in ((0, 0), (1, 0), (0, 1), (1, 1)):
        expected = adjoint(lower) if upper else lower
        if unit:
            expected = expected * (1 - np.eye(n, dtype=kind)) + np.eye(n, dtype=kind)
        unread = (np.tril if upper else np.triu)(np.full((n, n), 9), 0 if unit else 1 - 2 * upper)
        given = LAYOUTS[layout](np.where(unread, 9, expected).astype(kind))
        (x,) = run("triangular", [given, b], (b.shape, kind), params=(upper, unit), layout=layout)
        near(expected @ x, b, dtype, 4 * n * max(1, np.abs(x).max()))


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("batch", "rows", "columns"), [(1, 4, 4), (3, 5, 5), (2, 6, 3), (3, 1, 4), (2, 200, 7)]
)
def test_factors_multiply_to_the_matrix(batch, rows, columns, layout, dtype):
    small, kind = min(rows, columns), STORED[dtype]
    a = drawn(dtype, batch, rows, columns, layout=layout)
    packed, pivots, info = run(
        *("lu_factor", [a], (a.shape, kind), ((batch, small), INT32), ((batch,), INT32)),
        layout=layout,
    )
    (order,) = run("permutation_of_swaps", [pivots], ((batch, rows), "i8"), layout=layout)
    lower = np.tril(packed[:, :, :small], -1) + np.eye(rows, small)
    assert not info.any() and np.abs(lower).max() <= 1.5
    rearranged = np.take_along_axis(a, order[:, :, None], 1)
    near(lower @ np.triu(packed[:, :small]), rearranged, dtype, rows)
    packed, tau = run("qr_factor", [a], (a.shape, kind), ((batch, small), kind), layout=layout)
    assert not np.diagonal(packed, 0, 1, 2).imag.any()
    for count in {small, min(rows, 9)}:
        vectors = LAYOUTS[layout](packed[:, :, :small])
        (q,) = run("reflections", [vectors, tau], ((batch, rows, count), kind), layout=layout)
        near(adjoint(q) @ q, np.eye(count), dtype, rows)
        near(q[:, :, :small] @ np.triu(packed[:, :small]), a, dtype, rows)
    (q,) = run(
        "reflections", [vectors[:, :, :0], tau[:, :0]], ((batch, rows, small), kind), layout=layout
    )
    assert (q == np.eye(rows, small)).all()


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("batch", "n"), [(1, 6), (3, 1), (3, 9)])
def test_eigenvalues(batch, n, layout, dtype):
    a, kind, real = drawn(dtype, batch, n, n), STORED[dtype], real_of(dtype)
    wide = np.result_type(kind, np.complex64)
    hermitian = a + adjoint(a)
    lower = np.tril(hermitian) + np.triu(np.full((n, n), 9), 1).astype(kind)  # not read
    for name, given, matrix, value_kind, vector_kind in (
        ("eigh", lower, hermitian, real, kind),
        ("eig", a, a, wide, wide),
    ):
        given = LAYOUTS[layout](given)
        shapes = ((batch, n), value_kind), ((batch, n, n), vector_kind), ((batch,), INT32)
        values, vectors, info = run(name, [given], *shapes, layout=layout)
        assert not info.any()
        near(vectors * values[:, None], matrix @ vectors, dtype, 10 * n)
        near(np.linalg.norm(vectors, axis=1), np.ones((batch, n)), dtype, n)
        nothing = shapes[0], ((batch, 0, 0), vector_kind), shapes[2]
        alone, _, info = run(name, [given], *nothing, layout=layout)
        near(alone, values, dtype, 10 * n)
    if kind.kind == "f":
        pairs = values[values.imag != 0].reshape(-1, 2)
        assert (pairs[:, 0] == pairs[:, 1].conj()).all() and (pairs[:, 0].imag > 0).all()


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("shape", [(3, 4, 4), (2, 5, 3), (1, 3, 5)])
def test_singular_values_without_vectors(shape, dtype):
    a, small = drawn(dtype, *shape, layout="strided"), min(shape[1:])
    outs = ((shape[0], small), real_of(dtype)), (shape[:1], INT32)
    values, info = run("svdvals", [a], *outs, layout="strided")
    assert not info.any()
    near(values, np.linalg.svd(a, compute_uv=False), dtype, 5)


@pytest.mark.parametrize("n", [4, 200])
def test_matrices_without_a_factor_say_where(n):
    a = drawn("f64", 3, n, n, positive=True)
    a[0, 2, 2], a[1, 3, 3] = -1, np.nan
    _, info = run("cholesky_factor", [a], (a.shape, "f8"), ((3,), INT32))
    assert info.tolist() == [3, 4, 0]
    a[2, :, 1] = 0
    shapes = (a.shape, "f8"), ((3, n), INT32), ((3,), INT32)
    packed, pivots, info = run("lu_factor", [a], *shapes)
    assert info.tolist() == [0, 0, 2] and np.isfinite(packed[2]).all()
    assert (pivots >= 1).all() and (pivots <= n).all()


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_elements_that_are_not_finite(bad, dtype):
    n, kind, real = 4, STORED[dtype], real_of(dtype)
    wide = np.result_type(kind, np.complex64)
    a = drawn(dtype, 3, n, n, positive=True)
    a[1, 2, 2] = bad
    kept = a.copy()
    info_of_nan = int(np.isnan(bad))
    matrix, vector, codes = ((3, n, n), kind), ((3, n), real), ((3,), INT32)
    for name, outs, code in (
        ("eigh", (vector, matrix, codes), 0),
        ("eig", (((3, n), wide), ((3, n, n), wide), codes), -1),
        ("svd", (matrix, vector, matrix, codes), info_of_nan),
        ("svdvals", (vector, codes), info_of_nan),
    ):
        *found, info = run(name, [a], *outs)
        assert info.tolist() == [0, code, 0]
        for result in found:
            assert np.isfinite(result[[0, 2]]).all() and np.isnan(result[1]).all()
    np.testing.assert_array_equal(a, kept)


def test_swaps_out_of_range_are_reported():
    swaps = np.array([[2, 2], [3, 4]], np.int32)
    with pytest.raises(KernelError, match="index 3 is out of bounds"):
        run("permutation_of_swaps", [swaps], ((2, 3), "i8"))


def test_large_batches_of_eigenvalues_are_cut(fake_cuda):
    a = np.zeros((40000, 1, 1), np.float32)
    a[:, 0, 0] = np.arange(40000)
    before = fake_cuda.calls("cusolverDnXsyevBatched")
    values, _, info = run("eigh", [a], ((40000, 1), "f4"), ((40000, 0, 0), "f4"), ((40000,), INT32))
    assert (values == a[:, 0]).all() and not info.any()
    assert fake_cuda.calls("cusolverDnXsyevBatched") - before == 3


def test_failing_library_is_named(fake_cuda):
    a = drawn("f64", 1, 3, 3, positive=True)
    fake_cuda.fail("cusolverDnXpotrf", 6, times=1)
    with pytest.raises(KernelError, match="cuda:0: cuSOLVER failed: EXECUTION_FAILED"):
        run("cholesky_factor", [a], (a.shape, "f8"), ((1,), INT32))
    _, info = run("cholesky_factor", [a], (a.shape, "f8"), ((1,), INT32))
    assert info.tolist() == [0]


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("hermitian", [0, 1])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_indefinite_systems(n, hermitian, layout, dtype):
    a, kind = drawn(dtype, 3, n, n), STORED[dtype]
    a[:, range(n), range(n)] *= 0.1  # blocks of two rows
    a = a + (a.conj() if hermitian else a).swapaxes(1, 2)
    lower = LAYOUTS[layout]((np.tril(a) + np.triu(np.full((n, n), 9), 1)).astype(kind))
    packed, pivots, info = run(
        *("ldl_factor", [lower], (a.shape, kind), ((3, n), INT32), ((3,), INT32)),
        params=(hermitian,),
        layout=layout,
    )
    assert not info.any() and (n < 7 or (pivots < 0).any())
    assert not np.triu(packed, 1).any()
    b = drawn(dtype, 3, n, 2, layout=layout)
    outs = ((b.shape, kind),)
    (x,) = run("ldl_solve", [packed, pivots, b], *outs, params=(hermitian,), layout=layout)
    near(a @ x, b, dtype, 10 * n * max(1, np.abs(x).max()))
    # Pivots and factors are those of LAPACK.
    expected = [np.empty(shape, kind) for shape, kind in ((a.shape, kind), ((3, n), "i4"))]
    codes = np.empty(3, "i4")
    call_kernel(kernel_of("pullback_cpu", "ldl_factor"), [*expected, codes], [a], hermitian)
    np.testing.assert_array_equal(pivots, expected[1])
    near(packed, expected[0], dtype, 100 * n)
    pivots[1, n - 1] = n + 1
    with pytest.raises(KernelError, match=f"index {n} is out of bounds"):
        run("ldl_solve", [packed, pivots, b], *outs, params=(hermitian,), layout=layout)


def test_columns_of_zeros_are_no_pivots():
    a = np.zeros((2, 3, 3))
    a[1] = np.diag([2, 0, 4])
    packed, pivots, info = run(
        *("ldl_factor", [a], (a.shape, "f8"), ((2, 3), INT32), ((2,), INT32)), params=(0,)
    )
    assert info.tolist() == [1, 2] and pivots.tolist() == [[1, 2, 3]] * 2
    np.testing.assert_array_equal(packed, a)
