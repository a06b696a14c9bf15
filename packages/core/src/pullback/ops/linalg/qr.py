"""QR decompositions, and products of the reflections that they are made of."""

from pullback.ops.linalg.matrices import (
    SOLVED,
    adjoint,
    check_matrices,
    check_word,
    diagonal_of,
    new_by_columns,
    run_on_batch,
    warn_deprecated,
)
from pullback.ops.linalg.triangular import solve_left, solve_right
from pullback.ops.rules.dtypes import check_inexact, require, type_name
from pullback.ops.table.kinks import kink
from pullback.ops.table.primitives_api import new_filled
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import COMPLEX, FLOATING, op, ops, result_type

references = references_of("linalg")

_SQUARE = fixed((4, 1, 0, 1, -3, 1, 2, 0, 5), shape=(3, 3))
_TALL = fixed((1, 2, 4, 1, -2, 3), shape=(3, 2))
_WIDE = fixed((1, 2, 4, 3, -2, 1), shape=(2, 3))
_SAME = {
    "expanded": "a matrix with equal rows has no derivative",
    "masked": "the rows of a matrix of ones are linearly dependent but for rounding",
}
# Of complex numbers LAPACK reflects the last column of a square matrix unless it is real.
_SAMPLES = [
    case(
        _SQUARE,
        skip={
            **_SAME,
            **dict.fromkeys(
                ("grad", "gradgrad"), "R is singular but for rounding where rows are equal"
            ),
        },
        only=FLOATING,
    ),
    case(_TALL, skip=_SAME),
    case(_WIDE, skip=_SAME, only=FLOATING),
    case(T(2, 2, 2), skip=_SAME),
    case(T(2, 3), skip=_SAME, only=COMPLEX),
    case(T(0, 2, 2)),
    case(T(2, 3, 0)),
    case(T(0, 3)),
]


# -- reflections -----------------------------------------------------------------------------------


def _reflectors(vectors):
    """Return the vectors of reflections, with their ones, as columns."""
    rows, columns = vectors.shape[-2:]
    below = ops.tril(vectors, -1)
    return below + ops.eye(rows, columns, dtype=below.dtype, device=below.device)


def _reflect(vectors, tau, other, turned=False):
    """Return the product of the reflections 1 - tau v v^H and other matrices.

    It is 1 - V T V^H, with an upper triangular T that one triangular system gives. The same of the
    conjugate transpose, where it is ``turned``. Source: C. Puglisi, "Modification of the
    Householder method based on the compact WY representation", 1992.
    """
    V = _reflectors(vectors)
    inner = ops.triu(ops.matmul(adjoint(V), V), 1) * tau.unsqueeze(-2)
    along = ops.matmul(adjoint(V), other)
    if turned:
        along = solve_left(adjoint(inner), ops.conj(tau).unsqueeze(-1) * along, False, True)
    else:
        along = tau.unsqueeze(-1) * solve_left(inner, along, True, True)
    return other - ops.matmul(V, along)


def _columns_of_product(vectors, tau, columns):
    """Return the first columns of the product of reflections."""
    *batch, rows, count = vectors.shape
    out = new_by_columns(vectors, (*batch, rows, columns))
    if not count or not vectors.numel():
        return ops.copy_(out, ops.eye(rows, columns, dtype=out.dtype, device=out.device))
    run_on_batch("reflections", [(out, 2)], [(vectors, 2), (tau, 1)])
    return out


def _product_vjp(g, self, tau, columns):
    """Derive E - V T V^H E, E the first unit vectors: see _reflect.

    T = D K^-1 with the diagonal matrix D of tau, K = 1 + N D and the strictly upper N of V^H V.
    """
    count = tau.shape[-1]
    V, D = _reflectors(self), tau.unsqueeze(-2)
    N = ops.triu(ops.matmul(adjoint(V), V), 1)
    K = N * D
    one = ops.eye(count, dtype=V.dtype, device=V.device)
    T = tau.unsqueeze(-1) * solve_left(K, one, True, True)
    W = adjoint(V.narrow(-2, 0, columns))
    gT = -ops.matmul(adjoint(V), ops.matmul(g, adjoint(W)))
    gW = -ops.matmul(adjoint(T), ops.matmul(adjoint(V), g))
    gV = -ops.matmul(ops.matmul(g, adjoint(W)), adjoint(T))
    gV = gV + ops.constant_pad_nd(adjoint(gW), (0, 0, 0, V.shape[-2] - columns))
    right = solve_right(adjoint(K), gT, False, True)
    gK = -ops.matmul(adjoint(T), right)
    gtau = diagonal_of(right) + ops.sum(ops.conj(N) * gK, -2)
    gN = ops.triu(gK * ops.conj(D), 1)
    gV = gV + ops.matmul(V, gN + adjoint(gN))
    return ops.tril(gV, -1), gtau


op(
    "reflections_batch(self: Tensor, tau: Tensor, columns: int) -> Tensor",
    forward=_columns_of_product,
    kernel="reflections",
    vjp={("self", "tau"): _product_vjp},
    batch="matrices",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgHouseholderProductBackward0",
    doc="Return the first columns of the product of the reflections 1 - tau v v^H.",
    samples=lambda: [
        case(T(3, 3), T(3), 3),
        case(T(3, 2), T(2), 3),
        case(T(2, 3, 1), T(2, 1), 2),
        case(T(3, 0), T(0), 2),
    ],
    ref=references.columns_of_reflections,
)


def _checked_vectors(name, input, tau, pair):
    """Check what both ops of reflections check, in torch's words."""
    if input.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if pair is None:
        if input.shape[-2] < input.shape[-1]:
            raise RuntimeError(
                f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]"
            )
        if input.shape[-1] < tau.shape[-1]:
            raise RuntimeError(
                f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]"
            )
    if input.ndim - tau.ndim != 1:
        raise RuntimeError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal "
            f"to {tau.ndim} and input.ndim is equal to {input.ndim}"
        )
    if tuple(tau.shape[:-1]) != tuple(input.shape[:-2]):
        raise RuntimeError(
            f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got "
            f"{list(tau.shape[:-1])}"
        )


def _householder_product(input, tau):
    name = "torch.linalg.householder_product"
    if input.ndim >= 2 and not tau.ndim:
        tau = tau.unsqueeze(0) if input.ndim == 2 else tau
    _checked_vectors(name, input, tau, None)
    require("orgqr_cpu", SOLVED, input)
    if tau.dtype != input.dtype:
        raise RuntimeError(
            f"{name}: tau dtype {type_name(tau.dtype)} does not match input dtype "
            f"{type_name(input.dtype)}"
        )
    count = tau.shape[-1]
    return ops.reflections_batch(input.narrow(-1, 0, count), tau, input.shape[-1])


_REFLECTIONS = [
    case(T(3, 3), T(3)),
    case(T(3, 2), T(2)),
    case(T(2, 3, 2), T(2, 1)),
    case(T(3, 0), T(0)),
]
_ABOUT_PRODUCT = (
    "Return the first columns of the product of reflections 1 - tau v v^H.\n\nThe i-th vector v is "
    "0 above element i, 1 there, and below it column i of the matrix, as linalg.qr's LAPACK "
    "routine geqrf gives them.\n\nShape: (..., m, n), m >= n, and (..., k), k <= n, give "
    "(..., m, n).\n\nRaises: RuntimeError for shapes or dtypes that do not fit."
)
op(
    "linalg_householder_product(input: Tensor, tau: Tensor) -> Tensor",
    autocast=("float32", None),
    composite=_householder_product,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="householder_product",
    dtypes=SOLVED,
    samples=_REFLECTIONS,
    ref=references.householder_product,
    doc=_ABOUT_PRODUCT,
)
op(
    "orgqr(self: Tensor, input2: Tensor) -> Tensor",
    autocast=("float32", None),
    composite=_householder_product,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    dtypes=SOLVED,
    samples=_REFLECTIONS[:2],
    ref=references.householder_product,
    doc=_ABOUT_PRODUCT,
)


def _ormqr(self, input2, input3, left, transpose):
    name = "torch.ormqr"
    if self.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.")
    if input3.ndim < 2:
        raise RuntimeError(f"{name}: other must have at least 2 dimensions.")
    side = -2 if left else -1
    if input3.shape[side] != self.shape[-2]:
        raise RuntimeError(f"{name}: other.shape[{side}] must be equal to input.shape[-2]")
    if input2.ndim and input2.shape[-1] != min(input3.shape[side], self.shape[-1]):
        raise RuntimeError(
            f"{name}: tau.shape[-1] must be equal to min(other.shape[{side}], input.shape[-1])"
        )
    _checked_vectors(name, self, input2, input3)
    if self.ndim != input3.ndim:
        raise RuntimeError(
            f"{name}: Expected other to have the same number of dimensions as input, but got "
            f"other.ndim equal to {input3.ndim} and input.ndim is equal to {self.ndim}"
        )
    if self.shape[:-2] != input3.shape[:-2]:
        raise RuntimeError(
            f"{name}: Expected batch dimensions of other to be equal to input.shape[:-2], but got "
            f"{list(input3.shape[:-2])}"
        )
    for what, tensor in (("tau", input2), ("other", input3)):
        if tensor.dtype != self.dtype:
            raise RuntimeError(
                f"{name}: Expected input and {what} to have the same dtype, but input has dtype"
                f"{type_name(self.dtype)} and {what} has dtype {type_name(tensor.dtype)}"
            )
    require("ormqr_cpu", SOLVED, self)
    vectors = self.narrow(-1, 0, input2.shape[-1])
    if left:
        return _reflect(vectors, input2, input3, transpose)
    return adjoint(_reflect(vectors, input2, adjoint(input3), not transpose))


op(
    "ormqr(self: Tensor, input2: Tensor, input3: Tensor, left: bool = True, "
    "transpose: bool = False) -> Tensor",
    autocast=("float32", None),
    composite=_ormqr,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    dtypes=SOLVED,
    samples=lambda: [
        case(T(3, 2), T(2), T(3, 2)),
        case(T(3, 3), T(3), T(2, 3), False),
        case(T(2, 3, 2), T(2, 2), T(2, 3, 1), True, True),
        case(T(3, 2), T(2), T(1, 3), False, True),
    ],
    ref=references.ormqr,
    doc="Return the product of Q and `input3`, where Q is the square matrix of the reflections "
    "that `self` and `input2` hold: see linalg.householder_product.\n\nOf Q^H with `transpose`, "
    "and of `input3` and Q with left=False.\n\nRaises: RuntimeError for shapes or dtypes that do "
    "not fit.",
)


# -- decompositions --------------------------------------------------------------------------------


def _factor(self):
    """Return R with the vectors of the reflections below it, and their factors."""
    *batch, rows, columns = self.shape
    out = new_by_columns(self, self.shape)
    tau = new_filled(self, (*batch, min(rows, columns)))
    run_on_batch("qr_factor", [(out, 2), (tau, 1)], [(self, 2)])
    return out, tau


def _no_derivative(*_):
    raise NotImplementedError("the derivative for 'geqrf' is not implemented.")


_Geqrf = result_type("geqrf", "a", "tau")


def _geqrf(self):
    if self.ndim < 2:
        raise RuntimeError("torch.geqrf: input must have at least 2 dimensions.")
    return _Geqrf(*ops.geqrf_batch(require("geqrf_cpu", SOLVED, self)))


_NO_GRAD = dict.fromkeys(
    (
        *("grad", "gradgrad", "in_graph", "batch_grad", "forward", "lazy_grad"),
        *("masked", "kept", "compiled"),
    ),
    "it has no derivative, as in torch",
)
_FACTORED = [made._replace(skip={**made.skip, **_NO_GRAD}) for made in _SAMPLES]
op(
    "geqrf_batch(self: Tensor) -> Tensor[]",
    forward=_factor,
    kernel="qr_factor",
    vjp={"self": lambda gs, self_shape: _no_derivative(gs)},
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="GeqrfBackward0",
    doc="Return R with the vectors of reflections below it, and their factors.",
    samples=_FACTORED,
    ref=references.geqrf,
)
op(
    "geqrf(self: Tensor) -> Tensor[]",
    autocast=("float32", None),
    composite=_geqrf,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    dtypes=SOLVED,
    samples=_FACTORED[:3],
    ref=references.geqrf,
    doc="Return the reflections whose product is Q of A = Q R, as LAPACK's geqrf.\n\nThe first "
    "result has R in its upper triangle and the vectors below it, the second the factors: see "
    "linalg.householder_product.\n\nDerivative: none; linalg.qr has one.",
)


def _qr_forward(self, mode):
    rows, columns = self.shape[-2:]
    small = min(rows, columns)
    packed, tau = _factor(self)
    kept = rows if mode == "complete" else small
    right = ops.triu(packed.narrow(-2, 0, kept))
    if mode == "r":
        return new_filled(self, (*self.shape[:-2], 0)), right
    return _columns_of_product(packed.narrow(-1, 0, small), tau, kept), right


def _free_part(W):
    """Return the adjoint of W -> tril(W, -1) - tril(W, -1)^H + i Im(diag(W))."""
    skew = W - adjoint(W)
    return ops.tril(skew, -1) + ops.diag_embed(diagonal_of(skew)) * 0.5


def _square_vjp(gq, gr, q, r):
    if gr is None:
        W = ops.matmul(adjoint(q), gq)
    else:
        W = -ops.matmul(gr, adjoint(r))
        W = W if gq is None else W + ops.matmul(adjoint(q), gq)
    inner = ops.matmul(q, _free_part(W) - W)
    return solve_right(adjoint(r), inner if gq is None else gq + inner, False)


def _qr_vjp(gs, self_shape, mode, out0, out1):
    """Source: D. Roberts and L. Roberts, "QR and LQ decomposition matrix backpropagation", 2020."""
    gq, gr = gs
    rows, columns = self_shape[-2:]
    if gq is None and gr is None:
        return None
    if mode == "r":
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please "
            "use linalg.qr(A, mode='reduced') if you are going to differentiate through linalg.qr."
        )
    if mode == "complete" and rows > columns:
        raise RuntimeError(
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols."
        )
    if rows >= columns:
        return _square_vjp(gq, gr, out0, out1)
    first, right = out1.narrow(-1, 0, rows), out1.narrow(-1, rows, columns - rows)
    if gr is None:
        found = _square_vjp(gq, None, out0, first)
        return ops.constant_pad_nd(found, (0, columns - rows))
    gright = gr.narrow(-1, rows, columns - rows)
    from_right = ops.matmul(ops.matmul(out0, right), adjoint(gright))
    gq = from_right if gq is None else gq + from_right
    found = _square_vjp(gq, gr.narrow(-1, 0, rows), out0, first)
    return ops.cat((found, ops.matmul(out0, gright)), -1)


op(
    "qr_batch(self: Tensor, mode: any) -> Tensor[]",
    forward=_qr_forward,
    kernel="qr_factor",
    vjp={
        "self": lambda gs, self_shape, mode, out0, out1: _qr_vjp(gs, self_shape, mode, out0, out1)
    },
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgQrBackward0",
    doc="Return Q and R of self = Q R by `mode`: see linalg.qr.",
    nonderivative_at=references.rank_is_not_full,
    samples=lambda: [made._replace(args=(*made.args, "reduced")) for made in _SAMPLES],
    ref=references.qr,
)


def _checked_qr(A, mode):
    check_matrices("linalg.qr", A)
    check_inexact("linalg.qr", A)
    check_word("linalg_qr", "mode", mode)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), "
            "'r', or 'complete'"
        )
    left, right = ops.qr_batch(require("geqrf_cpu", SOLVED, A), mode)
    return ops.new_empty(A, (0,)) if mode == "r" else left, right


_JUMP = "Q and R have other signs where the first element is negative"
_LinalgQR = result_type("linalg_qr", "Q", "R")
_QR = result_type("qr", "Q", "R")
op(
    "linalg_qr(A: Tensor, mode: str = 'reduced') -> Tensor[]",
    autocast=("float32", None),
    composite=lambda A, mode: _LinalgQR(*_checked_qr(A, mode)),
    out=True,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="qr",
    dtypes=SOLVED,
    kinks=[kink([[0.0], [1.0]], to=[[-1.0], [-1.0]], second=None, outside=_JUMP)],
    nonderivative_at=references.rank_is_not_full,
    samples=lambda: [
        *_SAMPLES,
        case(_WIDE, "complete", skip=_SAME, only=FLOATING),
        case(T(2, 3, 0), "complete", skip=_NO_GRAD),
        case(_SQUARE, "r", skip={**_SAME, **_NO_GRAD, "batch": "an empty Q has no batch dim"}),
    ],
    ref=references.qr,
    doc="Return Q with orthonormal columns and upper triangular R with A = Q R.\n\n"
    "Shape: (..., m, n) gives (..., m, k) and (..., k, n), where k = min(m, n), in the mode "
    "'reduced'; (..., m, m) and (..., m, n) in 'complete'; Q is empty in 'r'. R has a real "
    "diagonal.\n\nDerivative: where the first k columns of A are linearly independent; none of "
    "'complete' for m > n and of 'r'.\n\nRaises: RuntimeError for another mode.",
)


def _top_qr(self, some):
    warn_deprecated(
        "qr",
        "pullback.linalg.qr",
        "The boolean parameter 'some' has been replaced with a string parameter 'mode'.\n"
        "Q, R = pullback.qr(A, some)\nshould be replaced with\n"
        "Q, R = pullback.linalg.qr(A, 'reduced' if some else 'complete')",
    )
    return _QR(*_checked_qr(self, "reduced" if some else "complete"))


op(
    "qr(self: Tensor, some: bool = True) -> Tensor[]",
    autocast=("float32", None),
    composite=_top_qr,
    kinks=[kink([[0.0], [1.0]], to=[[-1.0], [-1.0]], second=None, outside=_JUMP)],
    nonderivative_at=references.rank_is_not_full,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    dtypes=SOLVED,
    samples=lambda: [*_SAMPLES[:4], case(_WIDE, False, skip=_SAME, only=FLOATING)],
    ref=lambda np, self, some=True: references.qr(np, self, "reduced" if some else "complete"),
    doc="Return Q and R of self = Q R: see linalg.qr, whose mode is 'complete' for some=False.",
)
