"""Eigenvalues and singular values of several small matrices at once, by rotations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb

DTYPES = [pb.float32, pb.float64]
EXTREMES = {pb.float32: (1e-40, 1e-36, 1e37), pb.float64: (1e-310, 1e-300, 1e307)}
KINDS = ("normal", "repeated", "clustered", "zeros", "ones", "identity", "diagonal", "graded")
KINDS += ("graded rows", "low rank", "sparse", "integers", "subnormal", "tiny", "huge")


def matrices(kind, count, rows, columns, dtype, seed=0):
    """Return matrices of a kind as a NumPy array."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((count, rows, columns))
    small, precision = min(rows, columns), pb.finfo(dtype).eps
    eye = np.eye(rows, columns) * np.ones((count, 1, 1))
    grades = np.logspace(-10, 10, max(rows, columns))[rng.permutation(max(rows, columns))]
    found = {
        "normal": lambda: a,
        "repeated": lambda: np.linalg.qr(rng.standard_normal((count, rows, rows)))[0] @ eye,
        "clustered": lambda: eye + precision**0.5 * a,
        "zeros": lambda: 0 * a,
        "ones": lambda: 0 * a + 1,
        "identity": lambda: eye,
        "diagonal": lambda: a * np.eye(rows, columns),
        "graded": lambda: a * np.sqrt(grades[:rows, None] * grades[:columns]),
        "graded rows": lambda: a * grades[:rows, None],
        "low rank": lambda: a[:, :, : small // 2 + 1] @ a[:, : small // 2 + 1],
        "sparse": lambda: a * (rng.random(a.shape) < 0.3),
        "integers": lambda: np.round(a),
        "subnormal": lambda: a * EXTREMES[dtype][0],
        "tiny": lambda: a * EXTREMES[dtype][1],
        "huge": lambda: a * EXTREMES[dtype][2] / 10,
    }[kind]()
    return found.astype(np.float32 if dtype is pb.float32 else np.float64)


def symmetric(a):
    return np.tril(a) + np.tril(a, -1).swapaxes(-1, -2)


def scaled(a):
    """Return matrices with a largest element of 1, in extended precision, and what it was."""
    a = a.astype(np.longdouble)
    size = np.abs(a).max((1, 2), keepdims=True)
    size[size == 0] = 1
    return a / size, size


def check_eigenvectors(a, values, vectors, precision):
    """Check residuals and orthogonality as LAPACK's tests do; relative to the largest element."""
    n = a.shape[-1]
    whole, size = scaled(a)
    values, vectors = values / size[:, 0], vectors.astype(np.longdouble)
    assert (np.diff(values) >= 0).all()
    assert np.abs(whole @ vectors - vectors * values[:, None]).max() < 5 * n * precision
    assert np.abs(vectors.swapaxes(-1, -2) @ vectors - np.eye(n)).max() < 5 * n * precision


def precision_of(dtype, a):
    """Return the precision of a dtype, relative to matrices whose own may be that of subnormals."""
    size = np.abs(a).max(initial=0)
    info = np.finfo(a.dtype)
    return max(pb.finfo(dtype).eps, float(info.smallest_subnormal / size) if size else 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 13, 16])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_eigenvalues_of_symmetric_matrices(dtype, n, kind):
    a = symmetric(matrices(kind, 33, n, n, dtype))
    precision = precision_of(dtype, a)
    values, vectors = (found.numpy() for found in pb.linalg.eigh(pb.tensor(a)))
    check_eigenvectors(a, values, vectors, precision)
    alone, size = pb.linalg.eigvalsh(pb.tensor(a)).numpy(), scaled(a)[1][:, 0]
    assert np.abs(alone / size - values / size).max() < 5 * n * precision


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    count=st.integers(1, 40),
    rows=st.integers(1, 17),
    columns=st.integers(1, 17),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
)
def test_singular_values(kind, count, rows, columns, dtype, seed):
    if kind == "low rank":
        columns = rows
    a = matrices(kind, count, rows, columns, dtype, seed)
    found, size = pb.linalg.svdvals(pb.tensor(a)).numpy(), scaled(a)[1][:, 0]
    expected = np.linalg.svd(scaled(a)[0].astype(np.float64), compute_uv=False)
    assert (np.diff(found) <= 0).all() and (found >= 0).all()
    bound = 10 * max(rows, columns) * precision_of(dtype, a)
    assert np.abs(found / size - expected).max() < bound


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    count=st.integers(1, 40),
    n=st.integers(1, 17),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
)
def test_eigenvectors_of_any_number_of_matrices(kind, count, n, dtype, seed):
    a = symmetric(matrices(kind, count, n, n, dtype, seed))
    values, vectors = (found.numpy() for found in pb.linalg.eigh(pb.tensor(a)))
    check_eigenvectors(a, values, vectors, precision_of(dtype, a))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [3, 8])
def test_a_matrix_gives_the_same_bits_beside_any_others(dtype, n):
    """Matrices that need many sweeps, few or LAPACK, in other orders."""
    kinds = ("normal", "graded", "identity", "integers", "huge", "subnormal", "clustered")
    a = np.concatenate([symmetric(matrices(kind, 9, n, n, dtype)) for kind in kinds])
    order = np.random.default_rng(1).permutation(len(a))
    for function in (pb.linalg.eigh, pb.linalg.eigvalsh, pb.linalg.svdvals):
        found, other = (function(pb.tensor(np.ascontiguousarray(x))) for x in (a, a[order]))
        pairs = zip(found, other) if isinstance(found, tuple) else [(found, other)]
        for one, turned in pairs:
            assert one.numpy()[order].tobytes() == turned.numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("UPLO", ["L", "U"])
def test_one_triangle_is_read(dtype, UPLO):
    a = pb.tensor(matrices("normal", 40, 7, 7, dtype))
    keep = pb.tril if UPLO == "L" else pb.triu
    kept = keep(a)
    whole = kept + keep(a, -1 if UPLO == "L" else 1).mT
    other = kept + 1e15 * (1 - keep(pb.ones(7, 7, dtype=dtype)))
    expected = pb.linalg.eigh(whole, UPLO)
    found = pb.linalg.eigh(other, UPLO)
    assert all(x.tolist() == y.tolist() for x, y in zip(found, expected))
    values = pb.linalg.eigvalsh(other, UPLO)
    assert values.tolist() == pb.linalg.eigvalsh(whole, UPLO).tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["turned", "every other", "broadcast", "out"])
def test_layouts(dtype, layout):
    a = pb.tensor(symmetric(matrices("normal", 40, 6, 6, dtype)))
    given = {
        "turned": lambda: a.mT.contiguous().mT,
        "every other": lambda: pb.stack([a, a * 0], 3).flatten(2)[:, :, ::2],
        "broadcast": lambda: a[:1].expand(40, 6, 6),
        "out": lambda: a,
    }[layout]()
    out = {}
    if layout == "out":
        wide = pb.empty(40, 12, dtype=dtype), pb.empty(40, 6, 12, dtype=dtype)
        out["out"] = wide[0][:, ::2], wide[1][:, :, ::2]
    found = pb.linalg.eigh(given, **out)
    expected = pb.linalg.eigh(given.contiguous())
    assert all(x.tolist() == y.tolist() for x, y in zip(found, expected))
    values = pb.linalg.svdvals(given)
    assert values.tolist() == pb.linalg.svdvals(given.contiguous()).tolist()
    assert pb.linalg.eigh(a[:0])[1].shape == (0, 6, 6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("function", ["eigh", "eigvalsh", "svdvals"])
def test_elements_that_are_not_finite(dtype, bad, function):
    """They give what a matrix alone gives, and leave other matrices as they are."""
    a = pb.tensor(symmetric(matrices("normal", 40, 5, 5, dtype)))
    changed = a.clone()
    changed[3, 2, 1] = changed[11, 4, 4] = changed[20, 0, 3] = bad
    function = getattr(pb.linalg, function)
    try:
        single = function(changed[3])
    except RuntimeError as error:
        with pytest.raises(type(error), match="Batch element 3") as raised:
            function(changed)
        assert str(error).partition(": ")[2] == str(raised.value).partition("3): ")[2]
        return
    found, whole = function(changed), function(a)
    if not isinstance(found, tuple):
        found, whole, single = (found,), (whole,), (single,)
    good = [i for i in range(40) if i not in (3, 11, 20)]
    for got, before, one in zip(found, whole, single):
        assert got[good].tolist() == before[good].tolist()
        for i in (3, 11, 20):
            np.testing.assert_array_equal(got[i].numpy(), one.numpy())


def test_derivatives():
    a = pb.randn(20, 3, 3, dtype=pb.float64).requires_grad_()

    def of_symmetric(x):
        values, vectors = pb.linalg.eigh(x + x.mT)
        return values, vectors * vectors

    assert pb.autograd.gradcheck(of_symmetric, (a,))
    assert pb.autograd.gradcheck(lambda x: pb.linalg.eigvalsh(x + x.mT), (a,))
    assert pb.autograd.gradcheck(pb.linalg.svdvals, (a,))
