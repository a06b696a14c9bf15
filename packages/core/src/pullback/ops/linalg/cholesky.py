"""Cholesky decompositions of positive-definite matrices, and what is solved by them."""

from pullback.ops.linalg.matrices import (
    SOLVED,
    adjoint,
    check_square,
    diagonal_of,
    fail_first,
    hermitian_part,
    identity_like,
    new_by_columns,
    new_info,
    run_on_batch,
    warn_deprecated,
)
from pullback.ops.linalg.triangular import (
    TRIANGLE,
    TRIANGLES,
    check_pair,
    solve_left,
    solve_right,
)
from pullback.ops.rules.dtypes import check_inexact, dtype_named, require
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import op, ops, result_type

references = references_of("linalg")

HERMITIAN = dict.fromkeys(
    ("grad", "gradgrad"),
    "the derivative is that among Hermitian matrices; it has its own tests",
)
_SKIP = {**HERMITIAN, "expanded": "a matrix with equal rows is not positive-definite"}
_POSITIVE = case(fixed((4, 1, 0, 1, 3, 1, 0, 1, 5), shape=(3, 3)), skip=_SKIP)
_TWO = case(fixed((2, 1, 1, 3, 1, 0.5, 0.5, 4), shape=(2, 2, 2)), skip=_SKIP)
_EMPTY = [case(T(0, 2, 2)), case(T(0, 0))]
_SAMPLES = [_POSITIVE, _TWO, *_EMPTY]


def _forward(self):
    out = new_by_columns(self, self.shape)
    info = new_info(self, self.shape[:-2])
    run_on_batch("cholesky_factor", [(out, 2), (info, 0)], [(self, 2)])
    return out, info


def _vjp(gs, out0):
    """The gradient among Hermitian matrices.

    Source: I. Murray, "Differentiation of the Cholesky decomposition", 2016.
    """
    if gs[0] is None:
        return None
    inner = ops.matmul(adjoint(out0), gs[0])
    lower = ops.tril(inner, -1)
    middle = lower + adjoint(lower) + ops.diag_embed(_real(diagonal_of(inner)))
    half = ops.triangular_batch(adjoint(out0), middle, True, False)
    return hermitian_part(solve_right(out0, half, False)) * 0.5


def _real(values):
    return (
        ops.complex(ops.real(values), ops.zeros_like(ops.real(values)))
        if (values.is_complex())
        else values
    )


op(
    "cholesky_batch(self: Tensor) -> Tensor[]",
    forward=_forward,
    kernel="cholesky_factor",
    vjp={"self": _vjp},
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgCholeskyExBackward0",
    doc="Return lower triangular L with self = L L^H, and per matrix the order of its first "
    "leading minor that is not positive, or 0; the lower triangle of self is read.",
    samples=_SAMPLES,
    ref=lambda np, self: (np.linalg.cholesky(self), np.zeros(self.shape[:-2])),
)


def _factor(self, upper):
    found, info = ops.cholesky_batch(adjoint(self) if upper else self)
    return (adjoint(found) if upper else found), info


_INDEFINITE = (
    "{prefix}The factorization could not be completed because the input is not "
    "positive-definite (the leading minor of order {number} is not positive-definite)."
)
_CholeskyEx = result_type("linalg_cholesky_ex", "L", "info")


def _cholesky_ex(A, upper, check_errors):
    check_square("linalg.cholesky", A)
    check_inexact("linalg.cholesky", A)
    found, info = _factor(require("cholesky_cpu", SOLVED, A), upper)
    if check_errors:
        fail_first("linalg.cholesky: " + _INDEFINITE, info)
    return _CholeskyEx(found, info)


def _cholesky(self, upper):
    warn_deprecated(
        "cholesky",
        "pullback.linalg.cholesky",
        "L = pullback.cholesky(A)\nshould be replaced with\nL = pullback.linalg.cholesky(A)\nand\n"
        "U = pullback.cholesky(A, upper=True)\nshould be replaced with\n"
        "U = pullback.linalg.cholesky(A, upper=True)",
    )
    if self.numel() or self.ndim < 2:
        check_square("cholesky", self)
    found, info = _factor(require("cholesky_cpu", SOLVED, self), upper)
    fail_first("cholesky: " + _INDEFINITE, info)
    return found


_ABOUT = (
    "Return the Cholesky factor of positive-definite matrices: lower triangular L with A = L L^H, "
    "or upper triangular U with A = U^H U.\n\n"
    "Only the triangle of A that is named is read. Shape: (..., n, n) gives (..., n, n).\n\n"
    "Derivative: that among Hermitian matrices."
)
op(
    "linalg_cholesky(A: Tensor, *, upper: bool = False) -> Tensor",
    autocast=("float32", None),
    composite=lambda A, upper: _cholesky_ex(A, upper, True)[0],
    out=True,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="cholesky",
    dtypes=SOLVED,
    samples=lambda: [*_SAMPLES, _TWO._replace(kwargs={"upper": True})],
    ref=references.cholesky,
    doc=f"{_ABOUT}\n\nRaises: LinAlgError for a matrix that is not positive-definite.",
)
op(
    "linalg_cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> Tensor[]",
    autocast=("float32", None),
    composite=_cholesky_ex,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="cholesky_ex",
    dtypes=SOLVED,
    samples=_SAMPLES,
    ref=lambda np, A: (np.linalg.cholesky(A), np.zeros(A.shape[:-2])),
    doc=f"{_ABOUT}\n\nBeside the factor comes, per matrix, 0 or the order of its first leading "
    "minor that is not positive.",
)
op(
    "cholesky(self: Tensor, upper: bool = False) -> Tensor",
    autocast=("float32", None),
    composite=_cholesky,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    dtypes=SOLVED,
    samples=lambda: [*_SAMPLES, _POSITIVE._replace(args=(*_POSITIVE.args, True))],
    ref=references.cholesky,
    doc=f"{_ABOUT}\n\nRaises: LinAlgError for a matrix that is not positive-definite.",
)


# -- by the factor ---------------------------------------------------------------------------------


def _solve_by(factor, other, upper):
    lower = adjoint(factor) if upper else factor
    half = solve_left(lower, other, False)
    return solve_left(adjoint(lower), half, True)


def _cholesky_solve(self, input2, upper):
    check_pair("cholesky_solve", self, input2, ("b", "u"))
    return _solve_by(require("cholesky_solve_cpu", SOLVED, input2), self, upper)


def _cholesky_inverse(self, upper):
    check_square("cholesky_inverse", self)
    require("cholesky_inverse_out_cpu", SOLVED, self)
    fail_first(
        "cholesky_inverse: {prefix}The diagonal element {number} is zero, the inversion could not "
        "be completed because the input matrix is singular.",
        _first_of(ops.cast(diagonal_of(self) == 0, dtype_named("int64"))),
    )
    return _solve_by(self, identity_like(self), upper)


def _first_of(flags):
    """Return the number of the first 1 along the last dim, counted from 1, or 0."""
    if not flags.shape[-1]:
        return ops.sum(flags, -1)
    return ops.amax(flags, -1) * (ops.argmax(flags, -1) + 1)


op(
    "cholesky_solve(self: Tensor, input2: Tensor, upper: bool = False) -> Tensor",
    autocast=("float32", None),
    composite=_cholesky_solve,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    dtypes=SOLVED,
    samples=lambda: [
        case(T(3, 2), TRIANGLE),
        case(T(2, 3), TRIANGLES),
        case(T(3, 2), TRIANGLE, True),
        case(T(0, 2), T(0, 0)),
    ],
    ref=references.cholesky_solve,
    doc="Return the solution X of A X = self, given the Cholesky factor `input2` of A: lower "
    "triangular, or upper triangular with `upper`.",
)
op(
    "cholesky_inverse(self: Tensor, upper: bool = False) -> Tensor",
    autocast=("float32", None),
    composite=_cholesky_inverse,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    dtypes=SOLVED,
    samples=lambda: [case(TRIANGLE), case(TRIANGLES, True), case(T(0, 0))],
    ref=references.cholesky_inverse,
    doc="Return the inverse of A, given its Cholesky factor: lower triangular, or upper "
    "triangular with `upper`.\n\nRaises: LinAlgError where a diagonal element is 0.",
)
