"""Orthogonal matrices of other matrices; all but factorizations are differentiable."""

from __future__ import annotations

import pullback
from pullback.ops.rules.operands import all_hold


def _identity_like(A):
    return pullback.eye(A.shape[-1], dtype=A.dtype, device=A.device)


def cayley(A):
    """Return (1 - A / 2) ** -1 (1 + A / 2), which is orthogonal if A is skew-symmetric."""
    one = _identity_like(A)
    return pullback.linalg.solve(one - 0.5 * A, one + 0.5 * A)


def householder_qr(A):
    """Return the vectors of the reflections of A = Q R, and the signs of R's diagonal.

    The vectors are as ``linalg.householder_product`` takes them. Source: G. Golub and C. Van Loan,
    "Matrix Computations", 2013, algorithm 5.2.1.
    """
    rest = A.clone()
    vectors = pullback.zeros_like(A)
    signs = pullback.ones_like(A[..., 0, :])
    for column in range(A.shape[-1]):
        x = rest[..., column:, column]
        flat = pullback.linalg.vector_norm(x[..., 1:], dim=-1) == 0
        first = x[..., 0]
        phase = pullback.where(first == 0, 1.0, pullback.sgn(first))
        pivot = -phase * pullback.linalg.vector_norm(x, dim=-1)
        v = x / pullback.where(flat, 1.0, first - pivot).unsqueeze(-1)
        v[..., 0] = 1.0
        factor = pullback.where(flat, 0.0, 2.0 / (v * v.conj()).sum(-1))
        v = v.unsqueeze(-1)
        part = rest[..., column:, column:]
        along = (v.conj() * part).sum(-2, keepdim=True)
        rest[..., column:, column:] = part - factor[..., None, None] * v * along
        vectors[..., column + 1 :, column] = v[..., 1:, 0]
        # ``linalg.householder_product`` reflects this column where nothing was to be done.
        diagonal = pullback.sgn(rest[..., column, column])
        signs[..., column] = pullback.where(flat, -diagonal, diagonal)
    return vectors, signs


def orthogonal_factor(A):
    """Return Q of A = Q R with a positive diagonal of R, for square A."""
    vectors, _ = householder_qr(A)
    Q = pullback.linalg.householder_product(
        vectors, 2.0 / (1.0 + (vectors * vectors.conj()).sum(-2))
    )
    diagonal = (Q.conj() * A).sum(-2, keepdim=True)
    return Q * pullback.where(diagonal == 0, 1.0, pullback.sgn(diagonal))


def is_orthogonal(Q):
    """Return whether columns are orthonormal, up to rounding."""
    if Q.shape[-2] != Q.shape[-1]:
        return False
    product = pullback.matmul(Q.transpose(-2, -1).conj(), Q)
    eps = 10.0 * Q.shape[-1] * pullback.finfo(Q.dtype).eps
    return all_hold((product - _identity_like(Q)).abs() <= eps)
