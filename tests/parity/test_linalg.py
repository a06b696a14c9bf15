"""Linear algebra beside torch: values, gradients, dtypes, shapes and errors."""

import math

import numpy as np
import pytest

import pullback as pb

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

INF = math.inf
A = [[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 5.0]]
TALL = [[1.0, 2.0], [4.0, 1.0], [-2.0, 3.0]]
RNG = np.random.default_rng(0)
BATCH = RNG.standard_normal((2, 3, 3)).tolist()
PIVOTS = [2, 3, 3]


def made(m, values, dtype="float64"):
    return m.tensor(values, dtype=getattr(m, dtype))


# An expression of the library, of a matrix `a` that requires grad, and of a right side `b`.
VALUES = [
    *("L.cholesky(a @ a.mT)", "m.cholesky(a @ a.mT, True)", "L.cholesky_ex(a @ a.mT)"),
    *("m.cholesky_solve(b, a.tril())", "m.cholesky_inverse(a.tril())", "L.det(a)", "m.det(a)"),
    *("L.slogdet(a)", "m.logdet(a @ a.mT)", "L.eigvalsh(a + a.mT)", "L.eigvalsh(a, 'U')"),
    *("L.eigh(a + a.mT)[1].abs()", "L.eig(a)[1].abs()", "L.eigvals(a).abs().sum(-1)"),
    *("L.lu_factor(a)", "L.lu_factor_ex(a)", "L.lu(a)", "m.lu(a)", "m.lu(a, get_infos=True)"),
    *("m.lu_unpack(*L.lu_factor(a))", "L.lu_solve(*L.lu_factor(a), b)"),
    *("m.lu_solve(b, *L.lu_factor(a))", "L.qr(a)", "m.qr(a)", "L.qr(a[..., :2])"),
    *("L.qr(a[..., :2, :])", "m.ormqr(a, a[..., 0], b)", "L.householder_product(a, a[..., 0])"),
    *("m.orgqr(a, a[..., 0])", "L.matrix_exp(a)", "m.matrix_exp(5 * a)", "L.pinv(a)"),
    *("L.pinv(a[..., :2])", "L.pinv(a, rtol=0.5)", "m.pinverse(a)", "L.pinv(a + a.mT, 0.1, True)"),
    *("L.matrix_rank(a)", "L.matrix_rank(a, 2.0)", "L.matrix_rank(a, atol=1.0, hermitian=True)"),
    *("L.cond(a)", "L.cond(a, -2)", "L.solve_triangular(a, b, upper=True)"),
    *("L.solve_triangular(a, b.mT, upper=False, left=False)", "m.triangular_solve(b, a)"),
    *("m.triangular_solve(b, a, False, True, True)", "L.lstsq(a[..., :2], b).solution"),
    *("L.lstsq(a[..., :2], b, driver='gelsd')[:2]", "L.lstsq(a[..., :2], b, driver='gels')[1]"),
    *("L.lstsq(a[..., :2, :], b[..., :2, :]).solution", "L.vander(a)", "L.diagonal(a, offset=1)"),
    *("L.ldl_factor(a.detach())", "L.tensorinv(a.reshape(-1, 3, 3)[0], ind=1)"),
    *("L.tensorsolve(a.reshape(-1, 3, 3)[0], b.reshape(-1, 3, 2)[0, :, 0])", "m.nuclear_norm(a)"),
    *("m.norm_except_dim(a, 2, 1)", "L.svdvals(a)", "L.matrix_norm(a, 2)", "L.inv(a)"),
]


def observed(m, expression, values, right):
    """Return results, the gradient of the sum of their squares, and the dtypes and strides."""
    a = made(m, values).requires_grad_()
    b = made(m, right)
    results = eval(expression, {"m": m, "L": m.linalg}, {"a": a, "b": b})
    results = (results,) if hasattr(results, "shape") else tuple(results)
    total = sum((r * r).sum() for r in results if r.requires_grad)
    gradient = m.autograd.grad(total, a)[0] if hasattr(total, "backward") else a * 0
    kinds = [(str(r.dtype).split(".")[-1], tuple(r.shape)) for r in results]
    return kinds, [np.array(t.tolist()) for t in (*results, gradient)]


@pytest.mark.filterwarnings("ignore:.*is deprecated:UserWarning")
@pytest.mark.parametrize("expression", VALUES)
@pytest.mark.parametrize("values", [A, BATCH], ids=["matrix", "batch"])
def test_values_and_gradients(expression, values):
    right = RNG.standard_normal((*np.shape(values)[:-1], 2)).tolist()
    ours, theirs = (observed(m, expression, values, right) for m in (pb, torch))
    assert ours[0] == theirs[0]
    for one, other in zip(ours[1], theirs[1]):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


ERRORS = [
    *(
        f"{call}({argument})"
        for call in (
            *("L.cholesky", "L.eigh", "L.eig", "L.det", "L.slogdet", "L.lu_factor", "L.lu", "L.qr"),
            *("L.matrix_exp", "L.matrix_rank", "L.pinv", "L.cond", "L.ldl_factor_ex", "m.logdet"),
            *("m.cholesky", "m.cholesky_inverse", "m.geqrf", "m.nuclear_norm", "L.eigvals"),
        )
        for argument in ("z(3)", "z(3, 2)", "z(2, 2).half()", "z(2, 2).long()")
    ),
    "L.cholesky(z(2, 2))",
    "L.cholesky(m.stack([m.eye(2), -m.eye(2)]))",
    "m.cholesky_inverse(z(2, 3, 3))",
    "L.lu_factor(z(2, 2))",
    "L.lu(z(2, 2), pivot=False)",
    "L.eigh(a, 'X')",
    "L.eigh(a, UPLO=3)",
    "L.qr(a, 'x')",
    "L.solve_triangular(z(2, 3), z(2, 1), upper=True)",
    "L.solve_triangular(z(2, 2), z(3, 1), upper=True)",
    "L.solve_triangular(z(2, 2), z(2, 3), upper=True, left=False)",
    "L.solve_triangular(z(2, 2), z(2), upper=True)",
    *(
        f"L.lu_solve({arguments})"
        for arguments in (
            *("a, p, z(2, 2)", "a, p.long(), z(3, 2)", "a, p[:2], z(3, 2)", "a, p, z(3)"),
            *("a, p, z(3, 2).double()", "a[:2], p, z(3, 2)", "a, p, z(3, 2), left=False"),
            "a, p + 3, z(3, 2)",
        )
    ),
    "m.lu_unpack(a, p.long())",
    "m.lu_unpack(a, p + 3)",
    "m.lu_unpack(a[0], p)",
    "L.householder_product(a, z(4))",
    "L.householder_product(a[:2], z(2))",
    "L.householder_product(a, z(2, 3))",
    "L.householder_product(a, z(3).double())",
    "m.ormqr(a, z(3), z(2, 2))",
    "m.ormqr(a, z(4), z(3, 2))",
    "m.ormqr(a, z(3), z(3))",
    "m.ormqr(a, z(3), z(3, 2).double())",
    "L.lstsq(a, a, driver='x')",
    "L.lstsq(a, z(2, 2))",
    "L.lstsq(z(3), z(3))",
    "L.lstsq(a, z(3, 2).double())",
    "L.cond(a, 3)",
    "L.cond(m.ones(2, 3), 1)",
    "L.pinv(z(2, 3), hermitian=True)",
    "L.tensorinv(z(2, 3), ind=0)",
    "L.tensorinv(z(2, 3), ind=1)",
    "L.tensorsolve(z(2, 3), z(2))",
    "L.vander(m.tensor([True]))",
    "L.vander(z(3), N=1)",
    "L.diagonal(z(3))",
    "L.ldl_solve(a, p[:2], z(3, 2))",
    "L.ldl_solve(a, p, z(2, 2))",
    "L.ldl_solve(a, p.float(), z(3, 2))",
    "m.cholesky_solve(z(3), a)",
    "m.cholesky_solve(z(2, 2), a)",
    "m.triangular_solve(z(3), a)",
    "m.triangular_solve(z(3, 2).double(), a)",
    "m.pca_lowrank(z(7, 5), q=9)",
    "m.pca_lowrank(z(7, 5), niter=-1)",
    "m.lobpcg(m.eye(20), k=9)",
    "L.cholesky(a, out=z(3, 3).double())",
]


def outcome(m, expression):
    names = {
        "a": made(m, A, "float32"),
        "p": m.tensor(PIVOTS, dtype=m.int32),
        "z": m.zeros,
        "m": m,
        "L": m.linalg,
    }
    try:
        eval(expression, names)
    except Exception as error:
        text = str(error).split("\n")[0].replace("torch", "pullback")
        return type(error).__name__.lstrip("_"), text
    return None


@pytest.mark.filterwarnings("ignore:.*is deprecated:UserWarning")
@pytest.mark.parametrize("expression", ERRORS)
def test_errors(expression):
    assert outcome(pb, expression) == outcome(torch, expression)
