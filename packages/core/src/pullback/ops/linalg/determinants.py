"""Determinants and their logarithms."""

import math

from pullback.ops.linalg.matrices import (
    SOLVED,
    adjoint,
    check_solvable,
    check_square,
    diagonal_of,
    identity_like,
    new_by_columns,
    new_info,
    run_on_batch,
)
from pullback.ops.rules.dtypes import check_inexact, dtype_named, require
from pullback.ops.rules.operands import all_hold
from pullback.ops.table.primitives_api import new_empty, whole_batch
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import op, ops, result_type

references = references_of("linalg")

_REGULAR = fixed((4, 1, 0, 1, -3, 1, 2, 0, 5), shape=(3, 3))
_TWO = fixed((2, 1, 1, 3, -1, 2, 3, 4), shape=(2, 2, 2))
_EMPTY = [case(T(0, 2, 2)), case(T(0, 0)), case(T(2, 0, 0))]


def _eliminate(self):
    """Return the diagonal of U, and the sign of the permutation, 1 or -1."""
    packed = new_by_columns(self, self.shape)
    pivots = new_empty(self, self.shape[:-1], dtype_named("int32"))
    info = new_info(self, self.shape[:-2])
    run_on_batch("lu_factor", [(packed, 2), (pivots, 1), (info, 0)], [(self, 2)])
    own = ops.arange(1, self.shape[-1] + 1, dtype=dtype_named("int32"), device=self.device)
    odd = ops.remainder(ops.sum(pivots != own, -1), 2)
    return diagonal_of(packed), 1 - 2 * odd


# What is this small beside the largest loses digits when it is divided by.
_SMALL = {4: 1e-4, 8: 1e-5}


# -- det -------------------------------------------------------------------------------------------


def _det_forward(self):
    diagonal, sign = _eliminate(self)
    return ops.prod(diagonal, -1) * ops.cast(sign, self.dtype), diagonal.clone()


def _count_small(values, dtype):
    """Return how many of the descending values are small beside the first, at most in a batch."""
    small = values <= _SMALL[dtype.to_real().itemsize] * values.narrow(-1, 0, 1)
    return max(1, int(ops.amax(ops.sum(small, -1)).item())) if small.numel() else 0


def _adjugate_of_small(matrices):
    """Return determinants and adjugates, without a division by elements.

    Source: D. Faddeev and I. Sominskii; the Faddeev-LeVerrier algorithm.
    """
    size = matrices.shape[-1]
    one = identity_like(matrices)
    adjugate = coefficient = one
    for step in range(1, size + 1):
        product = ops.matmul(matrices, adjugate)
        coefficient = ops.sum(diagonal_of(product), -1) * (-1.0 / step)
        if step < size:
            adjugate = product + coefficient[..., None, None] * one
    sign = -1.0 if size % 2 else 1.0
    return coefficient * sign, adjugate * -sign


def _adjugate(matrices):
    """Return the adjugates of matrices, which are the derivatives of determinants, transposed.

    They are polynomials of the elements, so they and their derivatives exist where the matrix is
    singular. The matrix is turned by its singular vectors at this point, which are constants. Of
    what is left the part of the large singular values has an inverse, and the adjugate of its
    Schur complement, which is small, needs none.
    """
    scale = _power_of_two(matrices.detach())
    matrices = matrices / scale
    fixed_at = whole_batch(matrices.detach())
    values = ops.svd_batch(fixed_at, True)[1]
    size, small = matrices.shape[-1], _count_small(values, matrices.dtype)
    large = size - small
    left, _, right = ops.svd_batch(matrices.detach(), True)[:3]
    turned = ops.matmul(ops.matmul(adjoint(left), matrices), adjoint(right))
    phase = ops.linalg_det(left) * ops.linalg_det(right)
    corner = turned.narrow(-2, large, small).narrow(-1, large, small)
    if not large:
        inner = _adjugate_of_small(corner)[1]
    else:
        first = turned.narrow(-2, 0, large).narrow(-1, 0, large)
        beside = turned.narrow(-2, 0, large).narrow(-1, large, small)
        below = turned.narrow(-2, large, small).narrow(-1, 0, large)
        inverse = ops.inverse_batch(first)[0]
        product = ops.matmul(inverse, beside)
        determinant, middle = _adjugate_of_small(corner - ops.matmul(below, product))
        column = ops.cat((product, -identity_like(corner)), -2)
        row = ops.cat((ops.matmul(below, inverse), -identity_like(corner)), -1)
        inner = ops.matmul(ops.matmul(column, middle), row)
        whole = ops.constant_pad_nd(inverse, (0, small, 0, small))
        inner = inner + determinant[..., None, None] * whole
        inner = inner * ops.linalg_det(first)[..., None, None]
    inner = phase[..., None, None] * inner
    found = ops.matmul(ops.matmul(adjoint(right), inner), adjoint(left))
    return found * scale ** (size - 1)


def _power_of_two(matrices):
    """Return the size of matrices, rounded down to a power of two; 1 for zeros and infinities."""
    size = ops.amax(ops.abs(matrices), (-2, -1), True)
    power = ops.exp2(ops.floor(ops.log2(size)))
    return ops.where((power > 0) & (power < math.inf), power, ops.ones_like(power))


def _is_regular(diagonal):
    """Return whether no pivot of a batch is small beside the others."""
    size = ops.abs(whole_batch(diagonal.detach()))
    if size.device.type == "meta" or not size.numel():
        return True
    bound, range_ = _SMALL[size.dtype.itemsize], {4: 1e15, 8: 1e150}[size.dtype.itemsize]
    largest = ops.amax(size, -1)
    is_regular = ops.amin(size, -1) > bound * largest
    return all_hold(is_regular & (largest < range_) & (largest > 1 / range_))


def _det_vjp(gs, self, out0, out1):
    if gs[0] is None:
        return None
    g = gs[0][..., None, None]
    if not _is_regular(out1):
        return g * adjoint(_adjugate(self))
    return g * ops.conj(out0)[..., None, None] * adjoint(ops.inverse_batch(self)[0])


op(
    "det_batch(self: Tensor) -> Tensor[]",
    forward=_det_forward,
    vjp={"self": lambda gs, self, out0, out1: _det_vjp(gs, self, out0, out1)},
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgDetBackward0",
    doc="Return determinants, and the pivots of which they are products.",
    samples="the pivots have no derivative; linalg.det has",
)


def _det(A):
    check_square("linalg.det", A)
    check_inexact("linalg.det", A)
    return ops.det_batch(require("lu_cpu", SOLVED, A))[0]


_DET = {
    "composite": _det,
    "dtypes": SOLVED,
    "samples": [
        case(_REGULAR),
        case(_TWO),
        case(T(3, 3)),
        *_EMPTY,
    ],
    "ref": references.det,
    "doc": "Return the determinants of square matrices; leading dims are batches.\n\n"
    "Shape: (..., n, n) gives (...). The determinant of a 0 x 0 matrix is 1.\n\n"
    "Derivative: the cofactors, of every order, also where the matrix is singular.",
}
op(
    "linalg_det(A: Tensor) -> Tensor",
    out=True,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="det",
    **_DET,
)
op("det(self: Tensor) -> Tensor", **{**_DET, "composite": lambda self: _det(self)})


# -- logarithms ------------------------------------------------------------------------------------


def _slogdet_forward(self):
    diagonal, sign = _eliminate(self)
    size = ops.abs(diagonal)
    return ops.prod(ops.sgn(diagonal), -1) * ops.cast(sign, self.dtype), ops.sum(ops.log(size), -1)


def _slogdet_vjp(gs, self, out0):
    gsign, glog = gs
    factor = glog
    if self.is_complex() and gsign is not None:
        turn = ops.imag(gsign * ops.conj(out0))
        factor = ops.complex(ops.zeros_like(turn) if glog is None else glog, turn)
    if factor is None:
        return None
    return factor[..., None, None] * adjoint(ops.inverse_batch(self)[0])


_NO_ROWS = {"expanded": "a matrix with equal rows is singular"}
_LOGS = [case(_REGULAR, skip=_NO_ROWS), case(_TWO, skip=_NO_ROWS), *_EMPTY]
op(
    "slogdet_batch(self: Tensor) -> Tensor[]",
    forward=_slogdet_forward,
    vjp={"self": lambda gs, self, out0: _slogdet_vjp(gs, self, out0)},
    reads_out=lambda self: self.is_complex(),
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgSlogdetBackward0",
    doc="Return the signs of determinants, and the logarithms of their absolute values.",
    samples=_LOGS,
    ref=references.slogdet,
)


def _checked_slogdet(name, A):
    check_square(name, A)
    check_solvable(name, A)
    return ops.slogdet_batch(A)


_LinalgSlogdet = result_type(*"linalg_slogdet sign logabsdet".split())
_Slogdet = result_type(*"slogdet sign logabsdet".split())
_ABOUT_LOGS = {
    "dtypes": SOLVED,
    "out": True,
    "out_overlap": True,
    "out_dtype": "exact",
    "samples": _LOGS,
    "ref": references.slogdet,
    "doc": "Return the signs of determinants, and the logarithms of their absolute values.\n\n"
    "Of complex numbers the sign has length 1. A singular matrix has 0 and -inf, and no "
    "derivative.",
}
op(
    "linalg_slogdet(A: Tensor) -> Tensor[]",
    composite=lambda A: _LinalgSlogdet(*_checked_slogdet("linalg.slogdet", A)),
    method=False,
    namespace="linalg",
    function="slogdet",
    **_ABOUT_LOGS,
)
op(
    "slogdet(self: Tensor) -> Tensor[]",
    composite=lambda self: _Slogdet(*_checked_slogdet("linalg.slogdet", self)),
    **_ABOUT_LOGS,
)


def _logdet(self):
    sign, size = _checked_slogdet("logdet", self)
    if self.is_complex():
        return ops.log(sign) + size
    return ops.where(sign == -1, math.nan, size)


op(
    "logdet(self: Tensor) -> Tensor",
    composite=_logdet,
    dtypes=SOLVED,
    samples=lambda: [
        case(fixed((4, 1, 0, 1, 3, 1, 2, 0, 5), shape=(3, 3)), skip=_NO_ROWS),
        case(fixed((2, 1, 1, 3, 4, 2, 3, 4), shape=(2, 2, 2)), skip=_NO_ROWS),
        *_EMPTY,
    ],
    ref=references.logdet,
    doc="Return the logarithms of determinants; of a negative one NaN, of 0 -inf.\n\n"
    "Shape: (..., n, n) gives (...).",
)
