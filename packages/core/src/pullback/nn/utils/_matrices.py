"""Orthogonal matrices of other matrices; all but factorizations are differentiable."""

from __future__ import annotations

import math

import pullback

# Degree of the Taylor polynomial, and the norm up to which it is exact to rounding.
_TERMS, _RADIUS = 18, 1.0


def _identity_like(A):
    return pullback.eye(A.shape[-1], dtype=A.dtype, device=A.device)


def matrix_exp(A):
    """Return exp(A) of square matrices: a Taylor polynomial of A / 2 ** s, squared s times.

    N. J. Higham, "Functions of Matrices", 2008, section 10.3.
    """
    norm = float(A.detach().abs().sum(-2).max()) if A.numel() else 0.0
    squarings = max(0, math.ceil(math.log2(norm / _RADIUS))) if norm > 0 else 0
    scaled = A / 2.0**squarings
    one = _identity_like(A)
    made = one + scaled / _TERMS
    for term in range(_TERMS - 1, 0, -1):
        made = one + pullback.matmul(scaled, made) / term
    for _ in range(squarings):
        made = pullback.matmul(made, made)
    return made


def cayley(A):
    """Return (1 - A / 2) ** -1 (1 + A / 2), which is orthogonal if A is skew-symmetric."""
    one = _identity_like(A)
    return pullback.linalg.solve(one - 0.5 * A, one + 0.5 * A)


def householder_product(vectors, factors):
    """Return the first columns of the product of reflections 1 - factor v v.H.

    ``vectors`` (..., m, n) has below its diagonal the elements of v behind a 1; ``factors`` is
    (..., n). The columns of LAPACK's orgqr.
    """
    rows, columns = vectors.shape[-2:]
    unit = pullback.eye(rows, columns, dtype=vectors.dtype, device=vectors.device)
    full = vectors.tril(-1) + unit
    made = unit.expand(vectors.shape)
    for column in range(columns - 1, -1, -1):
        v = full[..., column : column + 1]
        along = pullback.matmul(v.transpose(-2, -1).conj(), made)
        made = made - factors[..., column, None, None] * pullback.matmul(v, along)
    return made


def householder_qr(A):
    """Return the vectors of the reflections of A = Q R, and the signs of R's diagonal.

    The vectors are as ``householder_product`` takes them. Source: G. Golub and C. Van Loan,
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
        # ``householder_product`` reflects this column where nothing was to be done.
        diagonal = pullback.sgn(rest[..., column, column])
        signs[..., column] = pullback.where(flat, -diagonal, diagonal)
    return vectors, signs


def orthogonal_factor(A):
    """Return Q of A = Q R with a positive diagonal of R, for square A."""
    vectors, _ = householder_qr(A)
    Q = householder_product(vectors, 2.0 / (1.0 + (vectors * vectors.conj()).sum(-2)))
    diagonal = (Q.conj() * A).sum(-2, keepdim=True)
    return Q * pullback.where(diagonal == 0, 1.0, pullback.sgn(diagonal))


def is_orthogonal(Q):
    """Return whether columns are orthonormal, up to rounding."""
    if Q.shape[-2] != Q.shape[-1]:
        return False
    product = pullback.matmul(Q.transpose(-2, -1).conj(), Q)
    eps = 10.0 * Q.shape[-1] * pullback.finfo(Q.dtype).eps
    return bool((product - _identity_like(Q)).abs().max() <= eps)
