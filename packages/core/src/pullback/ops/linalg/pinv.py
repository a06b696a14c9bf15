"""Pseudoinverses, ranks, condition numbers and least squares."""

import math

from pullback.ops.linalg.matrices import (
    SOLVED,
    adjoint,
    check_matrices,
    check_square,
    epsilon,
    fail_first,
    new_by_columns,
)
from pullback.ops.linalg.triangular import solve_left
from pullback.ops.rules.dtypes import dtype_named, type_name
from pullback.ops.rules.operands import all_hold
from pullback.ops.rules.shapes import broadcast_shape
from pullback.ops.table.kinks import kink
from pullback.ops.table.primitives_api import put
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import op, ops, result_type

references = references_of("linalg")

_TALL = fixed((1, 2, 4, 1, -2, 3), shape=(3, 2))
_SQUARE = fixed((4, 1, 0, 1, -3, 1.5, 2, 0, 5), shape=(3, 3))
_SYMMETRIC = fixed((4, 1, 0, 1, -3, 1, 0, 1, 5), shape=(3, 3))
_SAME = {"expanded": "equal rows are a change of the rank"}


# -- tolerances ------------------------------------------------------------------------------------


def _tolerances(name, A, atol, rtol):
    """Return atol and rtol: numbers, or tensors with a dim for the values.

    Without rtol, it is eps * max(m, n), but 0 where there is an atol above 0.
    """
    eps = epsilon(A.dtype) * max(A.shape[-2:])
    for what, given in (("atol", atol), ("rtol", rtol)):
        if _is_tensor(given) and given.is_complex():
            raise RuntimeError(
                f"torch.{name}: {what} tensor of complex type is not supported. Got "
                f"{type_name(given.dtype)}"
            )
        if given is not None and not _is_tensor(given) and not _is_real(given):
            raise TypeError(
                f"{name.replace('.', '_')}(): argument '{what}' must be float or Tensor, not "
                f"{type(given).__name__}"
            )
    if rtol is None:
        if _is_tensor(atol):
            rtol = ops.where(atol > 0, 0.0, eps)
        else:
            rtol = 0.0 if atol else eps
    return _with_dim(0.0 if atol is None else atol), _with_dim(rtol)


def _with_dim(given):
    return given.unsqueeze(-1) if _is_tensor(given) else float(given)


def _is_tensor(value):
    return hasattr(value, "data_ptr")


def _is_real(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _bound(values, atol, rtol):
    """Return the size up to which values count as 0, from the largest of the last dim."""
    largest = ops.amax(values, -1, True) * rtol
    if not _is_tensor(atol) and not atol:
        return largest
    atol = atol if _is_tensor(atol) else ops.full_like(largest, atol)
    return ops.maximum(largest, atol.to(largest.dtype))


# -- pseudoinverses --------------------------------------------------------------------------------


def _pinv_forward(self, atol, rtol, hermitian):
    rows, columns = self.shape[-2:]
    if not self.numel():
        return ops.new_zeros(self, (*self.shape[:-2], columns, rows))
    if hermitian:
        values, right = ops.eigh_batch(self)[:2]
        size, left = ops.abs(values), adjoint(right)
    else:
        left, values, right, info = ops.svd_batch(self, False)
        fail_first(
            "linalg.svd: {prefix}The algorithm failed to converge because the input matrix "
            "contained non-finite values.",
            info,
        )
        size, left, right = values, adjoint(left), adjoint(right)
    kept = size > _bound(size, atol, rtol)
    inverse = ops.where(kept, ops.reciprocal(ops.where(kept, values, 1.0)), 0.0)
    return ops.matmul(right * inverse.unsqueeze(-2), left)


def _pinv_vjp(g, self, out):
    """Source: G. Golub and V. Pereyra, "The differentiation of pseudo-inverses", 1973."""
    turned = adjoint(out)
    found = -ops.matmul(ops.matmul(turned, g), turned)
    flipped = adjoint(g)
    rest = flipped - ops.matmul(self, ops.matmul(out, flipped))
    found = found + ops.matmul(ops.matmul(rest, out), turned)
    rest = flipped - ops.matmul(ops.matmul(flipped, out), self)
    return found + ops.matmul(turned, ops.matmul(out, rest))


op(
    "pinv_batch(self: Tensor, atol: any, rtol: any, hermitian: bool) -> Tensor",
    forward=_pinv_forward,
    vjp={"self": lambda g, self, out: _pinv_vjp(g, self, out)},
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgPinvBackward0",
    doc="Return pseudoinverses; singular values up to max(atol, rtol * the largest) count as 0.",
    samples=lambda: [
        case(_TALL, 0.0, 1e-6, False, skip=_SAME),
        case(_SQUARE, 0.0, 1e-6, False, skip=_SAME),
        case(T(2, 2, 3), 0.0, 1e-6, False, skip=_SAME),
        case(T(0, 3), 0.0, 1e-6, False),
    ],
    ref=lambda np, self, atol, rtol, hermitian: np.linalg.pinv(self),
)


def _check_pinv(A):
    if A.ndim < 2 or not SOLVED >> A.dtype.code & 1:
        raise RuntimeError(
            f"linalg.pinv({type_name(A.dtype)}{{{list(A.shape)}}}): expected a tensor with 2 or "
            "more dimensions of float, double, cfloat or cdouble types"
        )


def _pinv(A, rcond, hermitian, atol, rtol):
    _check_pinv(A)
    if hermitian:
        check_square("linalg.eigh", A)
    rtol = rcond if rtol is None else rtol
    atol, rtol = _tolerances("linalg.pinv", A, atol, rtol)
    shape = A.shape[:-2]
    for given in (atol, rtol):
        if _is_tensor(given):
            shape = broadcast_shape(shape, given.shape[:-1])
    A = A.expand((*shape, *A.shape[-2:])) if tuple(shape) != tuple(A.shape[:-2]) else A
    if _is_tensor(atol) or _is_tensor(rtol):
        return _pinv_of_kept(A, atol, rtol, hermitian)
    return ops.pinv_batch(A, atol, rtol, hermitian)


def _pinv_of_kept(A, atol, rtol, hermitian):
    """Return pseudoinverses where tolerances are tensors, that is, are part of a batch.

    Less the small singular values a matrix is of a rank that stays, and of that matrix it is the
    pseudoinverse by the usual tolerance.
    """
    if not A.numel():
        return ops.pinv_batch(A, 0.0, 0.0, hermitian)
    constant = A.detach()
    values = ops.svd_batch(constant, False)[1]
    small = values <= _bound(values, atol, rtol)
    left, values, right = ops.svd_batch(constant, False)[:3]
    noise = ops.matmul(left * ops.where(small, values, 0.0).unsqueeze(-2), right)
    _, eps = _tolerances("linalg.pinv", A, None, None)
    return ops.pinv_batch(A - noise, 0.0, eps, hermitian)


_SAME_RANK = "it is that among matrices of the same rank"
_ABOUT_TOLERANCE = (
    "Singular values up to max(atol, rtol * the largest) count as 0. Without rtol it is eps * "
    "max(m, n), or 0 if atol is above 0; both may be tensors, with a number for each matrix. With "
    "`hermitian` A is taken as Hermitian, which is faster."
)
op(
    "linalg_pinv(A: Tensor, rcond: any = None, hermitian: bool = False, *, atol: any = None, "
    "rtol: any = None) -> Tensor",
    composite=_pinv,
    out=True,
    out_overlap=True,
    method=False,
    namespace="linalg",
    function="pinv",
    kinks=[kink([[0.0, 0.0]], to=[[0.0, 0.0]], outside=_SAME_RANK)],
    nonderivative_at=references.rank_is_not_full,
    dtypes=SOLVED,
    samples=lambda: [
        case(_TALL, skip=_SAME),
        case(T(2, 2, 3), skip=_SAME),
        case(T(0, 3)),
        case(
            _SYMMETRIC,
            hermitian=True,
            skip={
                **_SAME,
                **dict.fromkeys(("grad", "gradgrad"), "the derivative is that among all matrices"),
            },
        ),
        case(_SQUARE, atol=0.1, rtol=0.1, skip=_SAME),
    ],
    ref=references.pinv,
    doc="Return the pseudoinverses of matrices (Moore-Penrose).\n\n"
    f"{_ABOUT_TOLERANCE}\n\nShape: (..., m, n) gives (..., n, m).\n\n"
    "Derivative: that among matrices of the same rank, of every order.",
)
op(
    "pinverse(self: Tensor, rcond: float = 1e-15) -> Tensor",
    autocast=("float32", None),
    composite=lambda self, rcond: _pinv(self, rcond, False, 0.0, rcond),
    kinks=[kink([[0.0, 0.0]], to=[[0.0, 0.0]], outside=_SAME_RANK)],
    nonderivative_at=references.rank_is_not_full,
    dtypes=SOLVED,
    samples=lambda: [case(_TALL, skip=_SAME), case(_SQUARE, 0.01, skip=_SAME)],
    ref=lambda np, self, rcond=1e-15: np.linalg.pinv(self, rcond=rcond),
    doc="Return the pseudoinverses of matrices: see linalg.pinv, where `rcond` is rtol.",
)


# -- ranks and condition numbers -------------------------------------------------------------------


def _matrix_rank(A, tol, hermitian, atol, rtol):
    check_matrices("torch.linalg.matrix_rank", A, "input")
    if not SOLVED >> A.dtype.code & 1:
        raise RuntimeError("This function doesn't handle types other than float and double")
    if tol is not None:
        atol, rtol = tol, 0.0
    atol, rtol = _tolerances("linalg.matrix_rank", A, atol, rtol)
    if hermitian:
        size = ops.abs(ops.linalg_eigvalsh(A.detach()))
    else:
        size = ops.linalg_svdvals(A.detach())
    if not size.shape[-1]:
        return ops.new_zeros(A, A.shape[:-2], dtype=dtype_named("int64"))
    return ops.sum(size > _bound(size, atol, rtol), -1)


op(
    "linalg_matrix_rank(A: Tensor, tol: any = None, hermitian: bool = False, *, atol: any = None, "
    "rtol: any = None) -> Tensor",
    autocast=("float32", None),
    composite=_matrix_rank,
    out=True,
    out_overlap=True,
    method=False,
    namespace="linalg",
    function="matrix_rank",
    constant=True,
    dtypes=SOLVED,
    samples=lambda: [
        case(_TALL),
        case(fixed((1, 2, 2, 4, 1, 0, 0, 1), shape=(2, 2, 2))),
        case(_SYMMETRIC, hermitian=True),
        case(_SQUARE, 4.0),
        case(T(2, 0, 3)),
    ],
    ref=references.matrix_rank,
    doc="Return the ranks of matrices: how many singular values are not small, int64.\n\n"
    f"{_ABOUT_TOLERANCE} `tol` is an atol with rtol 0.\n\nShape: (..., m, n) gives (...).",
)


def _cond(A, p):
    name = "linalg.cond"
    if A.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor must have at least 2 dimensions.")
    named = isinstance(p, str)
    if p is None or (not named and abs(p) == 2):
        values = ops.linalg_svdvals(A)
        if not values.shape[-1]:
            return ops.new_zeros(values, A.shape[:-2])
        first, last = values.narrow(-1, 0, 1), values.narrow(-1, values.shape[-1] - 1, 1)
        return (last / first if p == -2 else first / last).squeeze(-1)
    if named:
        check_square(f"{name}(ord={p})", A)
    if p not in ("fro", "nuc") if named else abs(p) not in (1, math.inf):
        raise RuntimeError(f"{name} got an invalid norm type: {p}")
    check_square(f"{name}(ord={p})", A)
    if not A.shape[-1]:
        return ops.new_zeros(ops.abs(A), A.shape[:-2])
    if p == "nuc":
        return ops.linalg_matrix_norm(A, p) * ops.linalg_matrix_norm(ops.linalg_pinv(A), p)
    inverse, info = ops.linalg_inv_ex(A)
    found = ops.linalg_matrix_norm(A, p) * ops.linalg_matrix_norm(inverse, p)
    return ops.where(info == 0, found, math.inf)


_SINGULAR = {
    "expanded": "a matrix with equal rows has an infinite condition number",
    "gradgrad": "it is checked by the norms",
    "kept": "u and vh are kept, and the result with them",
}
op(
    "linalg_cond(A: Tensor, p: any = None) -> Tensor",
    autocast=("float32", None),
    composite=_cond,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="cond",
    kinks=[kink([[1.0, 0.0], [0.0, 1.0]], to=[[1.0, 0.0], [0.0, -1.0]], second=None)],
    dtypes=SOLVED,
    samples=lambda: [
        *(case(_SQUARE, p, skip=_SINGULAR) for p in (None, -2, 1, -math.inf, "fro", "nuc")),
        case(_TALL, 2, skip=_SINGULAR),
        case(T(0, 2, 2), 1, skip=_SINGULAR),
    ],
    ref=references.cond,
    doc="Return the condition numbers of matrices by a norm: see linalg.matrix_norm.\n\n"
    "By default 2, the ratio of the largest and the smallest singular value; -2 its inverse. For "
    "others the matrices are square, and the norms of A and of its inverse are multiplied; "
    "singular matrices have infinity.\n\nShape: (..., m, n) gives (...).\n\n"
    "Raises: RuntimeError for another norm.",
)


# -- least squares ---------------------------------------------------------------------------------

_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


def _lstsq_forward(self, other, rcond, has_values):
    """Solve by QR where the rank is full, and by singular values otherwise."""
    rows, columns = self.shape[-2:]
    small, batch = min(rows, columns), self.shape[:-2]
    int64, real = dtype_named("int64"), self.dtype.to_real()
    out = new_by_columns(other, (*batch, columns, other.shape[-1]))
    values = ops.new_zeros(self, (*batch, small), dtype=real)
    rank = ops.new_zeros(self, batch, dtype=int64)
    if not self.numel() or self.device.type == "meta":
        return ops.zero_(out), rank, values
    if not has_values:
        q, r = ops.qr_batch(self if rows >= columns else adjoint(self), "reduced")
        diagonal = ops.abs(r.diagonal(0, -2, -1))
        bound = 4 * rcond
        if all_hold(diagonal > bound * ops.amax(diagonal, -1, True)):
            if rows >= columns:
                found = solve_left(r, ops.matmul(adjoint(q), other), True)
            else:
                found = ops.matmul(q, solve_left(adjoint(r), other, False))
            return put(out, found), ops.full_like(rank, small), values
    left, values, right = ops.svd_batch(self, False)[:3]
    kept = values > rcond * ops.amax(values, -1, True)
    inverse = ops.where(kept, ops.reciprocal(ops.where(kept, values, 1.0)), 0.0)
    half = inverse.unsqueeze(-1) * ops.matmul(adjoint(left), other)
    return put(out, ops.matmul(adjoint(right), half)), ops.sum(kept, -1), values


def _lstsq_vjp(gs, self, other, rcond):
    g = gs[0]
    if g is None:
        return None, None
    inverse = ops.pinv_batch(self, 0.0, rcond, False)
    return (
        _pinv_vjp(ops.matmul(g, adjoint(other)), self, inverse),
        ops.matmul(adjoint(inverse), g),
    )


op(
    "lstsq_batch(self: Tensor, other: Tensor, rcond: float, has_values: bool) -> Tensor[]",
    forward=_lstsq_forward,
    vjp={("self", "other"): _lstsq_vjp},
    batch="matrices",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgLstsqBackward0",
    doc="Return the solution of least squares and of least norm, the ranks, and the singular "
    "values or zeros.",
    samples="the singular values come only where they are asked for; linalg.lstsq has samples",
)

_Lstsq = result_type("linalg_lstsq", "solution", "residuals", "rank", "singular_values")


def _lstsq(self, b, rcond, driver):
    name = "torch.linalg.lstsq"
    if self.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if b.ndim < 1:
        raise RuntimeError(f"{name}: other must have at least 1 dimension.")
    if self.dtype != b.dtype:
        raise RuntimeError(
            f"{name}: Expected input and other to have the same dtype, but got input's dtype "
            f"{type_name(self.dtype)} and other's dtype {type_name(b.dtype)}"
        )
    if not 0 <= self.ndim - b.ndim <= 1:
        raise RuntimeError(
            f"{name}: input.dim() must be greater or equal to other.dim() and (input.dim() - "
            "other.dim()) <= 1"
        )
    vector = self.ndim != b.ndim
    other = b.unsqueeze(-1) if vector else b
    rows, columns = self.shape[-2:]
    if rows != other.shape[-2]:
        side = -1 if vector else -2
        raise RuntimeError(f"{name}: input.size(-2) should match other.size({side})")
    if driver is None:
        driver = "gelsy"
    if driver not in _DRIVERS:
        raise RuntimeError(
            f"{name}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"
        )
    if not SOLVED >> self.dtype.code & 1:
        raise RuntimeError("This function doesn't handle types other than float and double")
    if rcond is None:
        rcond = epsilon(self.dtype) * max(rows, columns)
    batch = broadcast_shape(self.shape[:-2], other.shape[:-2])
    A, B = (part.expand((*batch, *part.shape[-2:])) for part in (self, other))
    has_values = driver in ("gelsd", "gelss")
    found, rank, values = ops.lstsq_batch(A, B, rcond, has_values)
    none = ops.new_empty(values, (0,))
    residuals = none
    if rows > columns and driver != "gelsy" and (driver == "gels" or all_hold(rank == columns)):
        rest = B - ops.matmul(A, found)  # by no absolute values: those have a kink at 0
        residuals = ops.sum(ops.real(rest * ops.conj(rest)), -2)
    return _Lstsq(
        found.squeeze(-1) if vector else found,
        residuals.squeeze(-1) if vector and residuals.numel() else residuals,
        ops.new_empty(rank, (0,)) if driver == "gels" else rank,
        values.detach() if has_values else none,
    )


_FEW = dict.fromkeys(("in_graph",), "ranks and singular values have no derivative, as in torch")
_VALUES = dict.fromkeys(
    ("grad", "gradgrad", "in_graph"), "the singular values have no derivative, as in torch"
)
op(
    "linalg_lstsq(self: Tensor, b: Tensor, rcond: float? = None, *, driver: any = None) -> "
    "Tensor[]",
    autocast=("float32", None),
    composite=_lstsq,
    out=True,
    out_overlap=True,
    method=False,
    namespace="linalg",
    function="lstsq",
    kinks=[
        kink(
            [[0.0], [0.0]], [[1.0], [1.0]], to=([[0.0], [0.0]], [[0.0], [0.0]]), outside=_SAME_RANK
        )
    ],
    nonderivative_at=references.rank_is_not_full,
    dtypes=SOLVED,
    samples=lambda: [
        case(_TALL, T(3, 2), skip={**_SAME, **_FEW}),
        case(_TALL, T(3, 2), driver="gels", skip={**_SAME, **_FEW}),
        case(_TALL, T(3, 1), driver="gelsd", skip={**_SAME, **_VALUES}),
        case(T(2, 2, 3), T(2, 2), skip={**_SAME, **_FEW}),
    ],
    ref=references.lstsq,
    doc="Return the solution X for which A X is nearest to B, of those the smallest.\n\n"
    "By QR if A has full rank, else by singular values, of which those up to rcond * the largest "
    "count as 0 (by default eps * max(m, n)). Drivers 'gelsd' and 'gelss' return the singular "
    "values, all but 'gels' the rank, all but 'gelsy' the sums of the squared residuals if m > n "
    "and the rank is full.\n\nShape: A (..., m, n), B (..., m, k) or (..., m) give (..., n, k) or "
    "(..., n).\n\nDerivative: that among matrices of the same rank.\n\n"
    "Raises: RuntimeError for another driver or shapes that do not fit.",
)
