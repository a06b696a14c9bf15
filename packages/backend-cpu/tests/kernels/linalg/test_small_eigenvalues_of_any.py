"""Eigenvalues and eigenvectors of small real matrices that are not symmetric."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb

DTYPES = [pb.float32, pb.float64]
EXTREMES = {pb.float32: (1e-40, 1e-36, 1e37), pb.float64: (1e-310, 1e-300, 1e307)}
KINDS = ("normal", "symmetric", "skew", "orthogonal", "cyclic", "companion", "triangular", "lower")
KINDS += ("permuted", "repeated", "pairs", "jordan", "nilpotent", "zeros", "ones", "identity")
KINDS += ("low rank", "sparse", "integers", "frank", "similar", "subnormal", "tiny", "huge")


def matrices(kind, count, n, dtype, seed=0):
    """Return matrices of a kind as a NumPy array."""
    rng = np.random.default_rng(seed)
    a, ones, eye = rng.standard_normal((count, n, n)), np.ones((count, n, n)), np.eye(n)
    order, grades = rng.permutation(n), 2.0 ** rng.integers(-9, 9, n)
    rows, columns = np.indices((n, n))
    pairs = np.kron(np.eye(n // 2 + 1), [[1, 2], [-3, 1]])[:n, :n]
    found = {
        "normal": lambda: a,
        "symmetric": lambda: a + a.swapaxes(1, 2),
        "skew": lambda: a - a.swapaxes(1, 2),
        "orthogonal": lambda: np.linalg.qr(a)[0],
        "cyclic": lambda: ones * np.roll(eye, 1, 0),
        "companion": lambda: np.where(rows == 0, a, np.eye(n, k=-1)),
        "triangular": lambda: np.triu(a),
        "lower": lambda: np.tril(a),
        "permuted": lambda: np.triu(a)[:, order][:, :, order],
        "repeated": lambda: a @ (np.round(grades) % 3 * eye) @ np.linalg.inv(a),
        "pairs": lambda: ones * (pairs + np.triu(ones[0], 2) / 2),
        "jordan": lambda: ones * (2 * eye + np.eye(n, k=1)),
        "nilpotent": lambda: ones * np.eye(n, k=1),
        "zeros": lambda: 0 * a,
        "ones": lambda: ones,
        "identity": lambda: ones * eye,
        "low rank": lambda: a[:, :, : n // 2 + 1] @ a[:, : n // 2 + 1],
        "sparse": lambda: a * (rng.random(a.shape) < 0.5),
        "integers": lambda: np.round(a),
        "frank": lambda: ones * np.where(columns >= rows - 1, n - np.maximum(rows, columns), 0),
        "similar": lambda: a * grades[:, None] / grades,
        "subnormal": lambda: a * EXTREMES[dtype][0],
        "tiny": lambda: a * EXTREMES[dtype][1],
        "huge": lambda: a * EXTREMES[dtype][2] / 10,
    }[kind]()
    return np.ascontiguousarray(found, np.float32 if dtype is pb.float32 else np.float64)


def check(a, values, vectors):
    """Check residuals, lengths, phases and the order of conjugate pairs."""
    n, size = a.shape[-1], np.abs(a).max((1, 2), initial=0).astype(np.longdouble)
    size[size == 0] = 1
    info = np.finfo(a.dtype)
    precision = max(float(info.eps), float(info.smallest_subnormal / size.min()))
    whole = a / size[:, None, None]
    scaled = values.real / size[:, None] + 1j * (values.imag / size[:, None])
    products = whole @ vectors.astype(np.clongdouble)
    assert np.abs(products - vectors * scaled[:, None]).max() < 60 * n * precision
    lengths = (np.abs(vectors.astype(np.clongdouble)) ** 2).sum(1)
    assert np.abs(lengths - 1).max() < 20 * info.eps
    largest = np.abs(vectors).max(1)
    real = np.where(vectors.imag == 0, np.abs(vectors.real), 0).max(1)
    assert (real >= largest * (1 - 8 * info.eps)).all()
    for row, columns in zip(values, vectors):
        first = [i for i in range(n) if row[i].imag > 0]
        assert all(row[i + 1] == row[i].conj() for i in first)
        assert all((columns[:, i + 1] == columns[:, i].conj()).all() for i in first)
        assert len(first) == (row.imag < 0).sum()


@settings(deadline=None, max_examples=150)
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 16),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
)
def test_eigenvectors(kind, n, dtype, seed):
    a = matrices(kind, 5, n, dtype, seed)
    values, vectors = (found.numpy() for found in pb.linalg.eig(pb.tensor(a)))
    check(a, values, vectors)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_eigenvalues(dtype, n, kind):
    """They are those of a matrix close by: the norm of an inverse shows how close."""
    a = matrices(kind, 9, n, dtype)
    values = pb.linalg.eigvals(pb.tensor(a)).numpy()
    for matrix, found in zip(a.astype(np.float64), values.astype(np.complex128)):
        size = np.abs(matrix).max() or 1
        for value in found:
            value = value.real / size + 1j * (value.imag / size)
            shifted = matrix / size - value * np.eye(n)
            nearest = np.linalg.svd(shifted, compute_uv=False)[-1]
            precision = max(pb.finfo(dtype).eps, np.finfo(a.dtype).smallest_subnormal / size)
            assert nearest < 20 * n * precision


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_eigenvalues_of_triangular_matrices_are_exact(dtype):
    for kind in ("triangular", "lower", "permuted"):
        a = matrices(kind, 3, 7, dtype)
        found = pb.linalg.eigvals(pb.tensor(a)).numpy()
        diagonal = np.diagonal(a, 0, 1, 2)
        assert (found.imag == 0).all()
        np.testing.assert_array_equal(np.sort(found.real, -1), np.sort(diagonal, -1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_matrix_gives_the_same_bits_beside_any_others(dtype):
    a = np.concatenate([matrices(kind, 3, 8, dtype) for kind in KINDS])
    order = np.random.default_rng(1).permutation(len(a))
    found, other = (pb.linalg.eig(pb.tensor(np.ascontiguousarray(x))) for x in (a, a[order]))
    for one, turned in zip(found, other):
        assert one.numpy()[order].tobytes() == turned.numpy().tobytes()
    alone = pb.linalg.eig(pb.tensor(a[5]))
    assert alone[1].tolist() == found[1][5].tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_layouts(dtype):
    a = pb.tensor(matrices("normal", 20, 6, dtype))
    expected = pb.linalg.eig(a)
    wide = pb.stack([a, a * 0], 3).flatten(2)[:, :, ::2]
    for given_matrices in (a.mT.contiguous().mT, wide):
        found = pb.linalg.eig(given_matrices)
        assert all(x.tolist() == y.tolist() for x, y in zip(found, expected))
    assert pb.linalg.eig(a[:0])[1].shape == (0, 6, 6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_elements_that_are_not_finite(bad):
    a = pb.randn(5, 4, 4)
    a[3, 1, 2] = bad
    for function in (pb.linalg.eig, pb.linalg.eigvals):
        with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
            function(a)


def test_derivatives():
    rng = np.random.default_rng(0)
    a = pb.tensor(rng.standard_normal((6, 4, 4))).requires_grad_()
    assert pb.autograd.gradcheck(lambda x: pb.view_as_real(pb.linalg.eigvals(x)), (a,))
    assert pb.autograd.gradcheck(lambda x: pb.linalg.eig(x)[1].abs(), (a,))
