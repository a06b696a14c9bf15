"""Decompositions of matrices: factors, derivatives of every order, singular matrices, errors."""

import itertools
import math

import numpy as np
import pytest

import pullback as pb

L = pb.linalg
INF, NAN = math.inf, math.nan
DTYPES = [pb.float32, pb.float64, pb.complex64, pb.complex128]


def matrix(*shape, dtype=pb.float64, seed=5):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if dtype.is_complex:
        values = values + 1j * rng.standard_normal(shape)
    return pb.tensor(values, dtype=dtype)


def positive(a):
    return a @ a.mH + pb.eye(a.shape[-1], dtype=a.dtype)


def hermitian(a):
    return a + a.mH


def near(found, expected, dtype):
    tolerance = 2e-3 if dtype in (pb.float32, pb.complex64) else 1e-10
    return pb.allclose(found, expected.expand_as(found), rtol=0, atol=tolerance)


def one(n, dtype):
    return pb.eye(n, dtype=dtype)


# -- factors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 3, 16, 17, 40])
def test_factors_of_square_matrices_multiply_to_them(n, dtype):
    a = matrix(2, n, n, dtype=dtype)
    p, h = positive(a), hermitian(a)
    lower, upper = L.cholesky(p), L.cholesky(p, upper=True)
    assert near(lower @ lower.mH, p, dtype) and near(upper.mH @ upper, p, dtype)
    assert (lower.triu(1) == 0).all() and (upper.tril(-1) == 0).all()
    assert near(p @ pb.cholesky_inverse(lower), one(n, dtype), dtype)
    values, vectors = L.eigh(h)
    assert near(vectors * values.unsqueeze(-2), h @ vectors, dtype)
    assert near(vectors.mH @ vectors, one(n, dtype), dtype) and (values.diff(dim=-1) >= 0).all()
    assert near(L.eigvalsh(h, "U"), values, dtype)
    values, vectors = L.eig(a)
    assert near(vectors * values.unsqueeze(-2), a.to(vectors.dtype) @ vectors, dtype)
    assert near(vectors.norm(dim=-2), pb.ones(n, dtype=dtype.to_real()), dtype)
    assert near(L.eigvals(a).sum(-1), values.sum(-1), dtype)
    for is_hermitian in (False, True):
        h = hermitian(a) if is_hermitian else a + a.mT
        x = L.ldl_solve(*L.ldl_factor(h, hermitian=is_hermitian), a, hermitian=is_hermitian)
        assert near(h @ x, a, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 20, 30), (2, 30, 20), (7, 2), (2, 7), (3, 0)])
def test_factors_of_any_matrices_multiply_to_them(shape, dtype):
    a = matrix(*shape, dtype=dtype)
    rows, columns = shape[-2:]
    small = min(rows, columns)
    for mode, count in (("reduced", small), ("complete", rows)):
        q, r = L.qr(a, mode)
        assert q.shape[-2:] == (rows, count) and r.shape[-2:] == (count, columns)
        assert near(q @ r, a, dtype) and near(q.mH @ q, one(count, dtype), dtype)
        assert (r.tril(-1) == 0).all()
    assert L.qr(a, "r").Q.shape == (0,) and near(L.qr(a, "r").R, L.qr(a).R, dtype)
    packed, tau = pb.geqrf(a)
    assert near(pb.ormqr(packed, tau, packed.triu()), a, dtype)
    permutation, lower, upper = L.lu(a)
    assert near(permutation @ lower @ upper, a, dtype)
    factor = L.lu_factor_ex(a)
    assert (factor.info == 0).all() and factor.pivots.dtype == pb.int32
    for found, expected in zip(pb.lu_unpack(*factor[:2]), (permutation, lower, upper)):
        assert found.tolist() == expected.tolist()
    inverse = L.pinv(a)
    assert near(a @ inverse @ a, a, dtype) and near(inverse @ a @ inverse, inverse, dtype)
    assert L.matrix_rank(a).tolist() == pb.full(shape[:-2], small).tolist()


@pytest.mark.filterwarnings("ignore:.*is deprecated:UserWarning")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 16, 33])
def test_solutions_solve(n, dtype):
    a = matrix(2, n, n, dtype=dtype) + 2 * n * one(n, dtype)
    b = matrix(2, n, 3, dtype=dtype, seed=6)
    for upper, unit, left in itertools.product((False, True), repeat=3):
        triangle = a.triu() if upper else a.tril()
        if unit:
            triangle = triangle / (4 * n)
            triangle = triangle - triangle.diagonal(0, -2, -1).diag_embed() + one(n, dtype)
        right = b if left else b.mT
        x = L.solve_triangular(triangle, right, upper=upper, left=left, unitriangular=unit)
        assert near(triangle @ x if left else x @ triangle, right, dtype)
    factor = L.lu_factor(a)
    for left, turned in itertools.product((False, True), repeat=2):
        right, whole = b if left else b.mT, a.mH if turned else a
        x = L.lu_solve(*factor, right, left=left, adjoint=turned)
        assert near(whole @ x if left else x @ whole, right, dtype)
    assert near(a @ pb.lu_solve(b, *factor), b, dtype)
    p = positive(a / n)
    assert near(p @ pb.cholesky_solve(b, L.cholesky(p)), b, dtype)


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_least_squares_by_every_driver(driver):
    a, b = matrix(2, 5, 3), matrix(2, 5, 2, seed=6)
    found = L.lstsq(a, b, driver=driver)
    assert near(a.mT @ (a @ found.solution - b), pb.zeros(3, 2, dtype=pb.float64), pb.float64)
    assert found.rank.tolist() == ([] if driver == "gels" else [3, 3])
    left = ((a @ found.solution - b) ** 2).sum(-2)
    assert (
        near(found.residuals, left, pb.float64)
        if driver != "gelsy"
        else (found.residuals.numel() == 0)
    )
    assert found.singular_values.shape == ((2, 3) if driver in ("gelsd", "gelss") else (0,))
    wide = L.lstsq(a.mT, b[:, :3], driver=driver).solution
    assert near(wide, L.pinv(a.mT) @ b[:, :3], pb.float64)


def test_least_squares_without_full_rank():
    a = pb.tensor([[1.0, 2.0], [2.0, 4.0], [0.0, 0.0]], dtype=pb.float64)
    found = L.lstsq(a, pb.ones(3, 1, dtype=pb.float64))
    assert found.rank.item() == 1 and near(found.solution, L.pinv(a).sum(-1, True), pb.float64)


def test_exponentials():
    skew = pb.tensor([[0.0, -math.pi], [math.pi, 0.0]], dtype=pb.float64)
    assert near(L.matrix_exp(skew), -one(2, pb.float64), pb.float64)
    diagonals = pb.tensor([[0.0, 1e-3], [1.0, 10.0], [-30.0, 3.0]], dtype=pb.float64)
    found = L.matrix_exp(diagonals.diag_embed()).diagonal(0, -2, -1)
    assert pb.allclose(found, diagonals.exp(), rtol=1e-12, atol=0)
    assert L.matrix_exp(pb.tensor([[[NAN]], [[0.0]]])).flatten().tolist()[1] == 1
    assert L.matrix_exp(pb.zeros(2, 2, dtype=pb.float16)).tolist() == [[1, 0], [0, 1]]


def test_low_rank():
    pb.manual_seed(0)
    a = matrix(2, 30, 4) @ matrix(2, 4, 20)
    for x in (a, a.mT):
        u, s, v = pb.svd_lowrank(x, q=5)
        assert near(u * s.unsqueeze(-2) @ v.mT, x, pb.float64)
    u, s, v = pb.pca_lowrank(a, q=5)
    assert near(u * s.unsqueeze(-2) @ v.mT, a - a.mean(-2, True), pb.float64)
    numbers = pb.arange(1.0, 31, dtype=pb.float64)
    q = L.qr(matrix(30, 30)).Q
    h = q * numbers @ q.mT
    for largest, expected in ((True, [30, 29]), (False, [1, 2])):
        values, vectors = pb.lobpcg(h, k=2, largest=largest, tol=1e-12)
        assert values.tolist() == pytest.approx(expected)
        assert near(h @ vectors, vectors * values, pb.float64)
    values, _ = pb.lobpcg(h.expand(2, 30, 30), k=2, B=2 * one(30, pb.float64).expand(2, 30, 30))
    assert values.tolist() == [pytest.approx([15, 14.5], rel=1e-6)] * 2
    with pytest.raises(ValueError, match="smaller than 3 x the number of requested eigenpairs"):
        pb.lobpcg(h, k=11)


# -- derivatives -----------------------------------------------------------------------------------


def of_absolute(factors):
    """Leave out the phases of vectors, which are free where they are complex."""
    return factors[0], factors[1].abs()


HERMITIAN = {
    "cholesky": lambda a: L.cholesky(positive(a)),
    "cholesky upper": lambda a: L.cholesky_ex(positive(a), upper=True).L,
    "eigh": lambda a: of_absolute(L.eigh(hermitian(a))),
    "eigh U": lambda a: of_absolute(L.eigh(hermitian(a), "U")),
    "eigvalsh": lambda a: L.eigvalsh(hermitian(a)),
    "eig": lambda a: of_absolute(L.eig(a)),
    "eigvals": L.eigvals,
    "qr": lambda a: tuple(L.qr(a)),
    "lu": lambda a: tuple(L.lu(a)[1:]),
    "pinv hermitian": lambda a: L.pinv(hermitian(a), hermitian=True),
    "cond": lambda a: L.cond(a, 2),
    "svdvals": L.svdvals,
}


@pytest.mark.parametrize("dtype", [pb.float64, pb.complex128])
@pytest.mark.parametrize("name", HERMITIAN)
def test_derivatives(name, dtype):
    a = matrix(3, 3, dtype=dtype).requires_grad_()
    pb.autograd.gradcheck(HERMITIAN[name], (a,), check_forward_ad=True, check_batched_grad=True)
    pb.autograd.gradgradcheck(HERMITIAN[name], (a,))


@pytest.mark.parametrize("dtype", [pb.float64, pb.complex128])
def test_derivatives_of_pseudoinverses_without_full_rank(dtype):
    a = matrix(4, 2, dtype=dtype).requires_grad_()
    pb.autograd.gradcheck(lambda a: L.pinv(a @ a.mH), (a,))
    b = matrix(4, 1, dtype=dtype).requires_grad_()
    pb.autograd.gradgradcheck(lambda a, b: L.lstsq(a @ a.mH, b).solution, (a, b))


def by_permutations(a):
    """The determinant by its definition, which is differentiable everywhere."""
    rows = range(a.shape[0])
    total = 0
    for order in itertools.permutations(rows):
        swaps = sum(order[i] > order[j] for i in rows for j in rows if i < j)
        total = total + (-1) ** swaps * math.prod(a[i, j] for i, j in enumerate(order))
    return total


@pytest.mark.parametrize("dtype", [pb.float64, pb.complex128])
@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4])
def test_determinants_have_every_derivative_also_where_they_are_zero(rank, dtype):
    a = matrix(4, rank, dtype=dtype) @ matrix(rank, 4, dtype=dtype, seed=6)
    along = matrix(4, 4, dtype=dtype, seed=7)
    x = a.requires_grad_()
    found, expected = L.det(x), by_permutations(x)
    for _ in range(3):
        assert near(found, expected.detach(), pb.float64)
        found, expected = (
            (pb.autograd.grad(value.real, x, create_graph=True)[0] * along).sum()
            for value in (found, expected)
        )

    def moved(t):
        return L.det(a.detach() + t * along).real

    def derivative(function):
        one = pb.ones((), dtype=pb.float64)
        return lambda t: pb.func.jvp(function, (t,), (one,))[1]

    zero = pb.zeros((), dtype=pb.float64, requires_grad=True)
    expected = by_permutations(a.detach() + zero * along).real
    function = moved
    for _ in range(3):
        assert near(function(zero.detach()), expected.detach(), pb.float64)
        function = derivative(function)
        expected = pb.autograd.grad(expected, zero, create_graph=True)[0]


def test_determinants_of_a_batch_with_singular_matrices():
    a = pb.stack([one(3, pb.float64), pb.zeros(3, 3, dtype=pb.float64), matrix(3, 3)])
    a = a.requires_grad_()
    pb.autograd.gradcheck(L.det, (a,), check_batched_grad=True, check_forward_ad=True)
    pb.autograd.gradgradcheck(L.det, (a,))
    each = [pb.func.hessian(L.det)(matrix) for matrix in a.detach()]
    assert near(pb.func.vmap(pb.func.hessian(L.det))(a.detach()), pb.stack(each), pb.float64)


def test_eigenvalues_that_are_repeated_have_a_first_derivative():
    a = pb.eye(3, dtype=pb.float64, requires_grad=True)
    for function in (L.eigvalsh, lambda a: L.eigvals(a).real, L.svdvals):
        (g,) = pb.autograd.grad(function(a).sum(), a)
        assert g.tolist() == one(3, pb.float64).tolist()
    (g,) = pb.autograd.grad(L.eigh(a)[1].sum(), a)
    assert g.isnan().all()


def test_what_has_no_derivative_raises():
    a = matrix(4, 3).requires_grad_()
    square = matrix(3, 3, dtype=pb.complex128).requires_grad_()
    factor = L.ldl_factor(positive(matrix(3, 3)))
    cases = [
        (lambda: pb.geqrf(a)[0], NotImplementedError, "derivative for 'geqrf' is not implemented"),
        (lambda: L.qr(a, "complete").Q, RuntimeError, "when mode='complete' and nrows > ncols"),
        (lambda: L.qr(a, "r").R, RuntimeError, "depends on Q, which is not computed"),
        (lambda: L.ldl_factor(a[:3])[0], RuntimeError, "linalg_ldl_factor_ex is not implemented"),
        (
            lambda: L.ldl_solve(factor[0].requires_grad_(), factor[1], a[:3]),
            RuntimeError,
            "linalg_ldl_solve is not implemented",
        ),
        (lambda: L.eigh(hermitian(square))[1].imag, RuntimeError, "linalg_eigh_backward: The eige"),
        (lambda: L.eig(square)[1].imag, RuntimeError, "linalg_eig_backward: The eigenvectors"),
    ]
    for call, error, text in cases:
        with pytest.raises(error, match=text):
            call().sum().backward()


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*is deprecated:UserWarning")
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: L.cholesky(x), r"linalg.cholesky: \(Batch element 1\): The factorization .* of"),
        (lambda x: pb.cholesky(x[1]), r"cholesky: The factorization could not .* order 2 is not"),
        (lambda x: pb.cholesky_inverse(x - x), r"cholesky_inverse: \(Batch element 0\): The diag"),
        (lambda x: L.ldl_factor(x - x), "The diagonal block 1 of D is zero"),
    ],
)
def test_matrices_without_a_factor(call, text):
    x = pb.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]]])
    with pytest.raises(L.LinAlgError, match=text):
        call(x)
    assert L.cholesky_ex(x).info.tolist() == [0, 2]
    assert L.cholesky_ex(pb.full((2, 2), NAN)).info.item() == 1


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: L.eigh(x, "X"), "Expected UPLO argument to be 'L' or 'U', but got X"),
        (lambda x: L.eig(x * NAN), "torch.linalg.eig: input tensor should not contain infs or NaN"),
        (lambda x: L.lu_factor(x - x), r"torch.linalg.lu_factor: U\[1,1\] is zero"),
        (lambda x: L.lu(x, pivot=False), "LU without pivoting is not implemented on the"),
        (lambda x: L.qr(x, "x"), "qr received unrecognized mode 'x'"),
        (lambda x: L.lstsq(x, x, driver="x"), "should be one of .gels, gelsy, gelsd, gelss."),
        (lambda x: L.cond(x, 3), "linalg.cond got an invalid norm type: 3"),
        (lambda x: L.vander(x, N=1), "N must be greater than 1."),
        (lambda x: L.tensorinv(x, 0), "Expected a strictly positive integer for 'ind', but got 0"),
        (lambda x: L.det(x[:1]), "linalg.det: A must be batches of square matrices, but they are"),
        (lambda x: L.solve_triangular(x, x[:1], upper=True), "for the equation AX = B .2x2 and 1x"),
    ],
)
def test_errors(call, text):
    with pytest.raises(RuntimeError, match=text):
        call(pb.eye(2))
