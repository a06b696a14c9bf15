"""LU and Cholesky decompositions of several small matrices at once."""

import numpy as np
import pytest

import pullback as pb

DTYPES = [pb.float32, pb.float64]
SIZES = [(1, 1), (2, 2), (3, 5), (5, 3), (8, 8), (11, 11), (16, 16), (1, 16), (16, 2)]


def tolerance(dtype):
    return 2e-5 if dtype is pb.float32 else 1e-13


def one_by_one(function, a):
    """Return the results of a function of each matrix, stacked."""
    return [pb.stack(parts) for parts in zip(*(function(one) for one in a))]


def multiplied(packed, pivots):
    """Return the matrix that was decomposed, from NumPy arrays."""
    rows, columns = packed.shape
    small = min(rows, columns)
    product = (np.tril(packed[:, :small], -1) + np.eye(rows, small)) @ np.triu(packed[:small])
    for i in range(small - 1, -1, -1):
        product[[i, pivots[i] - 1]] = product[[pivots[i] - 1, i]]
    return product


@pytest.mark.parametrize("count", [16, 33, 100])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lu(dtype, size, count):
    a = pb.randn(count, *size, dtype=dtype)
    packed, pivots, info = pb.linalg.lu_factor_ex(a)
    assert info.tolist() == [0] * count
    single = one_by_one(pb.linalg.lu_factor_ex, a)
    assert pivots.tolist() == single[1].tolist()
    assert (packed - single[0]).abs().max() < 100 * tolerance(dtype)
    for matrix, factors, swaps in zip(a.numpy(), packed.numpy(), pivots.numpy()):
        found = multiplied(factors.astype(float), swaps)
        assert np.abs(found - matrix).max() < tolerance(dtype)


@pytest.mark.parametrize("count", [16, 33, 100])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cholesky(dtype, n, count):
    root = pb.randn(count, n, n, dtype=dtype)
    a = root @ root.mT + n * pb.eye(n, dtype=dtype)
    a = (a + a.mT) / 2  # to the last bit
    factor = pb.linalg.cholesky(a)
    assert (factor.triu(1) == 0).all()
    assert (factor @ factor.mT - a).abs().max() < 100 * tolerance(dtype)
    assert pb.linalg.cholesky(a, upper=True).tolist() == factor.mT.tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["turned", "every other", "broadcast", "out"])
def test_layouts(dtype, layout):
    a = pb.randn(40, 6, 6, dtype=dtype) + 6 * pb.eye(6, dtype=dtype)
    given = {
        "turned": lambda: a.mT.contiguous().mT,
        "every other": lambda: pb.stack([a, a * 0], 3).flatten(2)[:, :, ::2],
        "broadcast": lambda: a[:1].expand(40, 6, 6),
        "out": lambda: a,
    }[layout]()
    if layout == "out":
        out = pb.empty(40, 6, 12, dtype=dtype)[:, :, ::2], pb.empty(40, 6, dtype=pb.int32)
        packed, pivots = pb.linalg.lu_factor(given, out=out)
    else:
        packed, pivots = pb.linalg.lu_factor(given)
    expected = pb.linalg.lu_factor(given.contiguous())
    assert packed.tolist() == expected[0].tolist() and pivots.tolist() == expected[1].tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_matrices_without_a_decomposition_leave_their_neighbours_alone(dtype):
    a = pb.randn(40, 4, 4, dtype=dtype)
    whole = pb.linalg.lu_factor_ex(a)
    bad = a.clone()
    bad[3] = 0
    bad[5, :, 1] = 0
    bad[7, 2] = bad[7, 1]
    bad[9, 0, 0] = float("nan")
    bad[11, 1, 2] = float("inf")
    bad[13, :, 0] = 0
    bad[13, 0, 3] = float("inf")  # where nothing is eliminated it stays as it is
    found = pb.linalg.lu_factor_ex(bad)
    single = one_by_one(pb.linalg.lu_factor_ex, bad)
    assert found.info.tolist() == single[2].tolist()
    assert found.pivots.tolist() == single[1].tolist()
    good = [i for i in range(40) if i not in (3, 5, 7, 9, 11, 13)]
    assert found.LU[good].tolist() == whole.LU[good].tolist()
    for number in (3, 5, 9, 11, 13):
        np.testing.assert_allclose(
            found.LU[number].numpy(), single[0][number].numpy(), 100 * tolerance(dtype), 1e-6
        )
    with pytest.raises(RuntimeError, match=r"Batch element 3\): U\[1,1\] is zero"):
        pb.linalg.lu_factor(bad)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cholesky_stops_at_the_first_minor_that_is_not_positive(dtype):
    a = pb.eye(4, dtype=dtype).expand(40, 4, 4).clone()
    a[2, 2, 2] = -1
    a[4, 0, 0] = 0
    a[6, 3, 3] = float("nan")
    a[:, 0, 3] = 7  # above the diagonal: not read
    factor, info = pb.linalg.cholesky_ex(a)
    single = one_by_one(pb.linalg.cholesky_ex, a)
    assert info.tolist() == single[1].tolist()
    assert [info[i].item() for i in (2, 4, 6, 8)] == [3, 1, 4, 0]
    np.testing.assert_array_equal(factor.numpy(), single[0].numpy())


@pytest.mark.parametrize("name", ["lu_factor", "eigh", "svdvals", "eigvals"])
def test_threads_do_not_change_the_bits(name):
    a = pb.randn(2001, 8, 8)
    before = pb.get_num_threads()
    found = []
    try:
        for count in (1, 2, 4):
            pb.set_num_threads(count)
            results = getattr(pb.linalg, name)(a)
            results = results if isinstance(results, tuple) else (results,)
            found.append(b"".join(result.numpy().tobytes() for result in results))
    finally:
        pb.set_num_threads(before)
    assert len(set(found)) == 1


def test_derivatives_of_determinants():
    a = (pb.randn(20, 3, 3, dtype=pb.float64) + 3 * pb.eye(3)).requires_grad_()
    assert pb.autograd.gradcheck(pb.linalg.det, (a,))
    spd = (a @ a.mT).detach().requires_grad_()
    assert pb.autograd.gradcheck(lambda x: pb.linalg.cholesky((x + x.mT) / 2), (spd,))
