"""Linear algebra of the standard: the extension ``linalg``, and the functions that all have.

Functions whose op the package does not have are not there: ``hasattr(xp.linalg, "qr")`` tells.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from pullback import linalg
from pullback._methods import broadcast_shapes
from pullback.array_api._calls import axes_of, promoted, standard
from pullback.array_api._reductions import _sum_dtype
from pullback.ops import ops

_linalg: Any = linalg  # its functions come from the op table

EighResult = namedtuple("EighResult", ("eigenvalues", "eigenvectors"), module=__name__)
EigResult = namedtuple("EigResult", ("eigenvalues", "eigenvectors"), module=__name__)
QRResult = namedtuple("QRResult", ("Q", "R"), module=__name__)
SlogdetResult = namedtuple("SlogdetResult", ("sign", "logabsdet"), module=__name__)
SVDResult = namedtuple("SVDResult", ("U", "S", "Vh"), module=__name__)


# ---- products ------------------------------------------------------------------------------------


@standard(ops.matmul, 2)
def matmul(x1, x2, /):
    """Return the matrix product of (..., M, K) and (..., K, N); 1-d tensors are a row, a column.

    >>> import pullback.array_api as xp
    >>> xp.matmul(xp.ones((2, 3)), xp.ones(3))
    tensor([3., 3.])
    """
    return ops.matmul(*promoted(x1, x2))


def matrix_transpose(x, /):
    """Return a view of (..., M, N) as (..., N, M).

    Raises: ValueError for fewer than two dimensions.

    >>> import pullback.array_api as xp
    >>> xp.matrix_transpose(xp.ones((2, 3))).shape
    pullback.Size([3, 2])
    """
    if x.ndim < 2:
        raise ValueError(f"matrix_transpose(): a tensor of {x.ndim} dimensions has no matrices")
    return ops.transpose(x, -2, -1)


def tensordot(x1, x2, /, *, axes=2):
    """Return the sums of products over axes: so many last and first ones, or a pair of tuples.

    >>> import pullback.array_api as xp
    >>> xp.tensordot(xp.ones((2, 3)), xp.ones((3, 2)), axes=1)
    tensor([[3., 3.],
            [3., 3.]])
    """
    x1, x2 = promoted(x1, x2)
    if not isinstance(axes, int):
        axes = tuple(map(list, axes))
    return ops.tensordot(x1, x2, axes)


def vecdot(x1, x2, /, *, axis=-1):
    """Return the sums of conj(x1) * x2 along an axis.

    >>> import pullback.array_api as xp
    >>> xp.vecdot(xp.asarray([1, 2]), xp.asarray([3, 4]))
    tensor(11)
    """
    x1, x2 = promoted(x1, x2)
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(
            f"vecdot(): axis {axis} has {x1.shape[axis]} and {x2.shape[axis]} elements"
        )
    if x1.dtype.kind in "fc":
        return ops.linalg_vecdot(x1, x2, dim=axis)
    dtype = x1.dtype
    return ops.sum(ops.mul(x1, x2), axis, dtype=dtype)


def cross(x1, x2, /, *, axis=-1):
    """Return the cross products of vectors of three elements along an axis.

    >>> import pullback.array_api as xp
    >>> xp.linalg.cross(xp.asarray([1, 0, 0]), xp.asarray([0, 1, 0]))
    tensor([0, 0, 1])
    """
    x1, x2 = promoted(x1, x2)
    return ops.linalg_cross(x1, x2, dim=axis)


def outer(x1, x2, /):
    """Return the products of each element of one 1-d tensor with each of another; (M, N).

    >>> import pullback.array_api as xp
    >>> xp.linalg.outer(xp.asarray([1, 2]), xp.asarray([3, 4]))
    tensor([[3, 4],
            [6, 8]])
    """
    x1, x2 = promoted(x1, x2)
    return ops.outer(x1, x2)


# ---- parts of matrices ---------------------------------------------------------------------------


def diagonal(x, /, *, offset=0):
    """Return a view of the diagonals of the matrices of ``x``, above the main one for offset > 0.

    >>> import pullback.array_api as xp
    >>> xp.linalg.diagonal(xp.eye(2))
    tensor([1., 1.])
    """
    return ops.diagonal(x, offset, -2, -1)


def trace(x, /, *, offset=0, dtype=None):
    """Return the sums of the diagonals of the matrices of ``x``; small integers give 64 bits.

    >>> import pullback.array_api as xp
    >>> xp.linalg.trace(xp.ones((2, 3, 3)))
    tensor([3., 3.])
    """
    return ops.sum(diagonal(x, offset=offset), -1, dtype=_sum_dtype(x, dtype))


# ---- norms ---------------------------------------------------------------------------------------


def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """Return norms of the matrices of ``x``: "fro", "nuc", 1, 2, inf or the negatives.

    >>> import pullback.array_api as xp
    >>> xp.linalg.matrix_norm(xp.ones((2, 2)))
    tensor(2.)
    """
    return ops.linalg_matrix_norm(x, ord, (-2, -1), keepdims)


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """Return norms over axes, by default over all: the sum of powers, inf, -inf or 0.

    >>> import pullback.array_api as xp
    >>> xp.linalg.vector_norm(xp.asarray([3., 4.]))
    tensor(5.)
    """
    axes = axes_of(axis, x.ndim)
    if not axes:  # torch takes no axes for all
        return ops.linalg_vector_norm(ops.unsqueeze(x, -1), ord, (-1,))
    return ops.linalg_vector_norm(x, ord, axes, keepdims)


# ---- equations and decompositions ----------------------------------------------------------------


def _inv(x, /):
    """Return the inverse matrices of (..., M, M).

    >>> import pullback.array_api as xp
    >>> xp.linalg.inv(2 * xp.eye(2))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]])
    """
    return _linalg.inv(x)


def _solve(x1, x2, /):
    """Return the solution of x1 @ x = x2, where ``x2`` is one 1-d vector, or matrices.

    >>> import pullback.array_api as xp
    >>> xp.linalg.solve(2 * xp.eye(2), xp.ones(2))
    tensor([0.5000, 0.5000])
    """
    x1, x2 = promoted(x1, x2)
    if x2.ndim == 1:
        return _linalg.solve(x1, x2[:, None])[..., 0]
    shape = broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    return _linalg.solve(x1, ops.broadcast_to(x2, (*shape, *x2.shape[-2:])))


def _matrix_power(x, n, /):
    """Return the integer power ``n`` of the matrices of ``x``, of the inverses for n < 0.

    >>> import pullback.array_api as xp
    >>> xp.linalg.matrix_power(2 * xp.eye(1), 3)
    tensor([[8.]])
    """
    return _linalg.matrix_power(x, n)


def _svd(x, /, *, full_matrices=True):
    """Return the singular value decomposition ``U @ diag(S) @ Vh`` of the matrices of ``x``.

    >>> import pullback.array_api as xp
    >>> xp.linalg.svd(2 * xp.eye(1)).S
    tensor([2.])
    """
    return SVDResult(*_linalg.svd(x, full_matrices=full_matrices))


def _svdvals(x, /):
    """Return the singular values of the matrices of ``x``, the largest first.

    >>> import pullback.array_api as xp
    >>> xp.linalg.svdvals(2 * xp.eye(1))
    tensor([2.])
    """
    return _linalg.svdvals(x)


def _cholesky(x, /, *, upper=False):
    """Return the triangular factor L of ``x = L @ L.mH``, or with ``upper`` its adjoint.

    >>> import pullback.array_api as xp
    >>> xp.linalg.cholesky(4 * xp.eye(1))
    tensor([[2.]])
    """
    return _linalg.cholesky(x, upper=upper)


def _det(x, /):
    """Return the determinants of the matrices of ``x``.

    >>> import pullback.array_api as xp
    >>> xp.linalg.det(2 * xp.eye(2))
    tensor(4.)
    """
    return _linalg.det(x)


def _slogdet(x, /):
    """Return the sign of the determinant and the logarithm of its absolute value.

    >>> import pullback.array_api as xp
    >>> xp.linalg.slogdet(xp.eye(2)).sign
    tensor(1.)
    """
    return SlogdetResult(*_linalg.slogdet(x))


def _eig(x, /):
    """Return eigenvalues and eigenvectors of square matrices, complex.

    >>> import pullback.array_api as xp
    >>> xp.linalg.eig(2 * xp.eye(1)).eigenvalues
    tensor([2.+0.j])
    """
    return EigResult(*_linalg.eig(x))


def _eigvals(x, /):
    """Return the eigenvalues of square matrices, complex.

    >>> import pullback.array_api as xp
    >>> xp.linalg.eigvals(2 * xp.eye(1))
    tensor([2.+0.j])
    """
    return _linalg.eigvals(x)


def _eigh(x, /):
    """Return eigenvalues, ascending, and eigenvectors of symmetric or Hermitian matrices.

    >>> import pullback.array_api as xp
    >>> xp.linalg.eigh(2 * xp.eye(1)).eigenvalues
    tensor([2.])
    """
    return EighResult(*_linalg.eigh(x))


def _eigvalsh(x, /):
    """Return the eigenvalues, ascending, of symmetric or Hermitian matrices.

    >>> import pullback.array_api as xp
    >>> xp.linalg.eigvalsh(2 * xp.eye(1))
    tensor([2.])
    """
    return _linalg.eigvalsh(x)


def _qr(x, /, *, mode="reduced"):
    """Return an orthonormal Q and an upper triangular R with ``x = Q @ R``.

    ``mode``: "reduced" gives K = min(M, N) columns of Q, "complete" all M.

    >>> import pullback.array_api as xp
    >>> xp.linalg.qr(xp.ones((3, 2))).R.shape
    pullback.Size([2, 2])
    """
    return QRResult(*_linalg.qr(x, mode))


def _matrix_rank(x, /, *, rtol=None):
    """Return how many singular values of each matrix exceed ``rtol`` times the largest.

    >>> import pullback.array_api as xp
    >>> xp.linalg.matrix_rank(xp.ones((2, 2)))
    tensor(1)
    """
    return _linalg.matrix_rank(x, rtol=rtol)


def _pinv(x, /, *, rtol=None):
    """Return the pseudo-inverse matrices, without singular values below ``rtol`` of the largest.

    >>> import pullback.array_api as xp
    >>> xp.linalg.pinv(2 * xp.eye(1))
    tensor([[0.5000]])
    """
    return _linalg.pinv(x, rtol=rtol)


_DECOMPOSITIONS = (
    *(_cholesky, _det, _eig, _eigh, _eigvals, _eigvalsh, _inv, _matrix_power, _matrix_rank, _pinv),
    *(_qr, _slogdet, _solve, _svd, _svdvals),
)
_OFFERED = [function for function in _DECOMPOSITIONS if hasattr(_linalg, function.__name__[1:])]
for _function in _OFFERED:
    _function.__name__ = _function.__qualname__ = _function.__name__[1:]
    globals()[_function.__name__] = _function

__all__ = [
    "cross",
    "diagonal",
    "matmul",
    "matrix_norm",
    "matrix_transpose",
    "outer",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
__all__.extend(_function.__name__ for _function in _OFFERED)


def __dir__():
    return sorted(__all__)
