"""Singular values and vectors, and the norms of matrices: shapes, derivatives, special values."""

import math

import numpy as np
import pytest

import pullback as pb

L = pb.linalg
INF, NAN = math.inf, math.nan
SHAPES = [(3, 3), (4, 2), (2, 4), (1, 3), (2, 3, 2)]


def matrix(*shape, dtype=pb.float64):
    """Return a matrix whose singular values are far apart."""
    rng = np.random.default_rng(5)
    values = rng.standard_normal(shape)
    if dtype.is_complex:
        values = values + 1j * rng.standard_normal(shape)
    return pb.tensor(values, dtype=dtype)


@pytest.mark.parametrize("dtype", [pb.float32, pb.float64, pb.complex64, pb.complex128])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("full", [False, True])
def test_factors_multiply_to_the_matrix(shape, dtype, full):
    a = matrix(*shape, dtype=dtype)
    u, values, vh = L.svd(a, full_matrices=full)
    rows, columns = shape[-2:]
    count = min(rows, columns)
    assert u.shape[-2:] == (rows, rows if full else count)
    assert vh.shape[-2:] == (columns if full else count, columns)
    assert values.dtype == dtype.to_real() and values.shape == (*shape[:-2], count)
    assert (values.diff(dim=-1) <= 0).all() and (values >= 0).all()
    found = u[..., :count] * values.unsqueeze(-2) @ vh[..., :count, :]
    tolerance = {
        "rtol": 0,
        "atol": 1e-5 if dtype.itemsize in (4, 8) and dtype != pb.float64 else 1e-12,
    }
    assert pb.allclose(found, a, **tolerance)
    for columns_of in (u, vh.mH):
        one = columns_of.mH @ columns_of
        assert pb.allclose(one, pb.eye(one.shape[-1], dtype=dtype).expand_as(one), **tolerance)


def test_names_and_older_forms():
    a = matrix(2, 3)
    found = L.svd(a)
    assert found.U.shape == (2, 2) and found.S.shape == (2,) and found.Vh.shape == (3, 3)
    old = pb.svd(a)
    assert old.V.shape == (3, 2) and a.svd(False).V.shape == (3, 3)
    assert pb.allclose(old.U * old.S @ old.V.mH, a)
    none = pb.svd(a, compute_uv=False)
    assert none.S.tolist() == L.svdvals(a).tolist()
    assert none.U.tolist() == [[0, 0]] * 2 and none.V.tolist() == [[0] * 3] * 3


def test_empty_matrices():
    u, values, vh = L.svd(pb.zeros(0, 3))
    assert u.shape == (0, 0) and values.shape == (0,) and vh.tolist() == pb.eye(3).tolist()
    assert [tuple(part.shape) for part in L.svd(pb.zeros(0, 3, 2))] == [
        (0, 3, 3),
        (0, 2),
        (0, 2, 2),
    ]
    assert L.svdvals(pb.zeros(2, 0)).shape == (0,)


@pytest.mark.parametrize("shape", SHAPES)
def test_derivatives_of_real_factors(shape):
    def factors(a):
        return L.svd(a, full_matrices=False)

    a = matrix(*shape).requires_grad_()
    pb.autograd.gradcheck(lambda a: tuple(factors(a)), (a,))
    pb.autograd.gradgradcheck(lambda a: tuple(factors(a)), (a,))
    pb.autograd.gradcheck(lambda a: factors(a).U, (a,))
    pb.autograd.gradcheck(lambda a: factors(a).Vh, (a,))


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
def test_derivatives_of_what_complex_factors_determine(shape):
    def projected(a):
        u, values, vh = L.svd(a, full_matrices=False)
        return u[..., :1] @ vh[..., :1, :], values, u.abs(), (vh * vh.conj()).real

    a = matrix(*shape, dtype=pb.complex128).requires_grad_()
    pb.autograd.gradcheck(projected, (a,))
    pb.autograd.gradgradcheck(lambda a: projected(a)[:2], (a,))


def test_phases_of_complex_vectors_have_no_derivative():
    a = matrix(3, 2, dtype=pb.complex128).requires_grad_()
    for part in (0, 2):
        with pytest.raises(RuntimeError, match="depends on this phase term"):
            L.svd(a, full_matrices=False)[part].real.sum().backward()


def test_full_factors_derive_like_thin_ones():
    a = matrix(3, 2).requires_grad_()
    (full,) = pb.autograd.grad(L.svd(a).U[:, :2].sin().sum(), a)
    (thin,) = pb.autograd.grad(L.svd(a, full_matrices=False).U.sin().sum(), a)
    assert pb.allclose(full, thin)
    assert L.svd(a).S.grad_fn.name() == "LinalgSvdBackward0"


def test_under_vmap_and_forward_mode():
    a = matrix(2, 3, 2)
    assert pb.func.vmap(L.svdvals)(a).tolist() == L.svdvals(a).tolist()
    tangents = pb.func.jvp(L.svdvals, (a[0],), (a[1],))[1]
    assert pb.allclose(tangents, (pb.func.jacrev(L.svdvals)(a[0]) * a[1]).sum((1, 2)))


# norms


def test_nuclear_norm():
    a = matrix(2, 3, 4)
    expected = L.svdvals(a).sum(-1)
    assert pb.allclose(a.norm("nuc", (1, 2)), expected)
    assert pb.allclose(pb.norm(a, p="nuc", dim=(2, 1)), expected)
    assert a.norm("nuc", (0, 2), keepdim=True).shape == (1, 3, 1)
    assert a[0].norm("nuc").item() == pytest.approx(expected[0].item())
    assert a[0].norm("nuc", keepdim=True).shape == (1, 1)
    single = a[0].float().norm("nuc", dtype=pb.float64)
    assert single.dtype == pb.float64
    assert pb.zeros(0, 2).norm("nuc").item() == 0
    assert (pb.ones(2, 2) * 1j).norm("nuc").dtype == pb.float32


def test_nuclear_norm_of_a_singular_matrix_has_a_subgradient():
    for a in (pb.zeros(2, 2, dtype=pb.float64), pb.ones(2, 2, dtype=pb.float64)):
        a.requires_grad_()
        (grad,) = pb.autograd.grad(a.norm("nuc"), a)
        assert L.svdvals(grad).max().item() <= 1 + 1e-12
        assert (grad * a).sum().item() == pytest.approx(a.norm("nuc").item())


@pytest.mark.parametrize("order", ["fro", "nuc", 1, -1, 2, -2, INF, -INF])
def test_norms_of_matrices(order):
    a = matrix(3, 4)
    expected = np.linalg.norm(a.numpy(), order)
    assert L.matrix_norm(a, order).item() == pytest.approx(expected)
    assert L.norm(a, order).item() == pytest.approx(expected)
    batch = matrix(2, 3, 4)
    found = L.matrix_norm(batch, order, dim=(0, 2), keepdim=True)
    assert found.shape == (1, 3, 1)
    assert found.flatten().tolist() == pytest.approx(
        np.linalg.norm(batch.numpy(), order, (0, 2)).tolist()
    )
    pb.autograd.gradcheck(lambda a: L.matrix_norm(a, order), (a.requires_grad_(),))


def test_norm_of_vectors_and_of_everything():
    a = matrix(2, 3, 4)
    assert L.norm(a).item() == pytest.approx(np.linalg.norm(a.numpy().ravel()))
    assert L.norm(a, keepdim=True).shape == (1, 1, 1)
    assert L.norm(a, 3, 1).shape == (2, 4) and L.norm(a[0, 0], 0).item() == 4
    assert L.norm(a[0, 0], INF).item() == a[0, 0].abs().max().item()
    assert L.norm(pb.ones(2, 2, dtype=pb.float16), dtype=pb.float32).dtype == pb.float32


def test_norms_of_no_elements():
    wide, tall = pb.zeros(0, 2), pb.zeros(2, 0)
    for order in ("fro", "nuc", 1, 2, INF):
        assert L.matrix_norm(wide, order).item() == L.matrix_norm(tall, order).item() == 0
    assert L.matrix_norm(wide, -1).item() == 0
    with pytest.raises(IndexError, match="non-zero size"):
        L.matrix_norm(wide, -2)
    assert L.matrix_norm(pb.zeros(0, 2, 2), -2).shape == (0,)


ONES = pb.ones(2, 2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: L.svd(pb.ones(2)), RuntimeError, "must have at least 2 dimensions"),
        (lambda: L.svd(ONES.long()), RuntimeError, "floating point or complex tensor.*Got Long"),
        (lambda: L.svd(ONES.half()), NotImplementedError, "not implemented for 'Half'"),
        (lambda: L.svd(ONES * NAN), L.LinAlgError, "contained non-finite values"),
        (lambda: L.svdvals(pb.stack([ONES, ONES * NAN])), L.LinAlgError, r"\(Batch element 1\)"),
        (lambda: L.svdvals(ONES, driver="gesvd"), RuntimeError, "only supported on CUDA"),
        (lambda: L.matrix_norm(ONES, 3), RuntimeError, "Order 3 not supported"),
        (lambda: L.matrix_norm(ONES, "sum"), RuntimeError, "Order sum not supported"),
        (lambda: L.matrix_norm(ONES, None), TypeError, "ord"),
        (lambda: L.matrix_norm(pb.ones(2)), RuntimeError, "must have at least 2 dimensions"),
        (lambda: L.matrix_norm(ONES.long()), RuntimeError, "Got Long"),
        (lambda: L.matrix_norm(ONES.half(), "nuc"), RuntimeError, "Low precision dtypes"),
        (lambda: L.matrix_norm(ONES, dim=(1, 1)), RuntimeError, "dims must be different"),
        (lambda: L.matrix_norm(ONES, dim=(0, 5)), IndexError, r"\[-2, 1\], but got 5"),
        (lambda: ONES.norm("nuc", 1), RuntimeError, "dim must be a 2-tuple. Got 1"),
        (lambda: pb.ones(2, 2, 2).norm("nuc"), RuntimeError, "dim must be a 2-tuple. Got 0 1 2"),
        (lambda: ONES.norm("trace"), RuntimeError, "Order trace not supported"),
        (lambda: L.norm(pb.ones(2, 2, 2), 1), RuntimeError, "must be 1D or 2D. Got 3D"),
        (lambda: L.norm(pb.ones(2, 2, 2), 1, (0, 1, 2)), RuntimeError, "of length 1 or 2"),
    ],
)
def test_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_infinite_elements_give_nan():
    """LAPACK does not end for the second one."""
    assert L.svdvals(ONES * INF).isnan().all()
    a = pb.tensor([[INF, 1, 2], [3, 4, 5], [6, 7, 8]])
    assert all(part.isnan().all() for part in (*L.svd(a), L.matrix_norm(a, "nuc")))


def test_extreme_numbers_end_everywhere(run_script):
    """NaN, infinities, huge and subnormal numbers in all of linear algebra."""
    run_script("extreme_matrices")
