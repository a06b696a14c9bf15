"""Approximations of a low rank, and a few eigenvalues, of large matrices."""

import math

from pullback.ops.linalg.matrices import adjoint, epsilon
from pullback.ops.rules.dtypes import dtype_named
from pullback.ops.table.schema import FLOATING, HALF, op, ops

_RANDOM = "they start from random numbers; their own tests cover them"
_REAL = FLOATING & ~HALF


def _basis(A, q, niter, M):
    """Return orthonormal columns that nearly span those of A - M.

    Source: N. Halko, P. Martinsson, J. Tropp, "Finding structure with randomness", 2009, algorithm
    4.4.
    """

    def applied(X, turned):
        found = ops.matmul(adjoint(A) if turned else A, X)
        if M is None:
            return found
        return found - ops.matmul(adjoint(M) if turned else M, X)

    X = ops.randn((A.shape[-1], q), dtype=A.dtype, device=A.device)
    Q = ops.linalg_qr(applied(X, False))[0]
    for _ in range(niter):
        Q = ops.linalg_qr(applied(Q, True))[0]
        Q = ops.linalg_qr(applied(Q, False))[0]
    return Q


def _svd_lowrank(A, q, niter, M):
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    rows, columns = A.shape[-2:]
    if M is not None:
        M = M.broadcast_to(A.shape)
    is_wide = rows < columns
    if is_wide:
        A, M = adjoint(A), None if M is None else adjoint(M)
    Q = _basis(A, q, niter, M)
    B = ops.matmul(adjoint(Q), A if M is None else A - M)
    U, S, Vh = ops.linalg_svd(B, False)
    U, V = ops.matmul(Q, U), adjoint(Vh)
    return (V, S, U) if is_wide else (U, S, V)


op(
    "svd_lowrank(A: Tensor, q: int? = 6, niter: int? = 2, M: Tensor? = None) -> Tensor[]",
    composite=_svd_lowrank,
    method=False,
    samples=_RANDOM,
    doc="Return U, S and V of A ~ U diag(S) V^H with q singular values, by random projections.\n\n"
    "`niter` subspace iterations improve it. Of A - M, if M is given.\n\nShape: (..., m, n) gives "
    "(..., m, q), (..., q) and (..., n, q).",
)


def _pca_lowrank(A, q, center, niter):
    rows, columns = A.shape[-2:]
    if q is None:
        q = min(6, rows, columns)
    elif not 0 <= q <= min(rows, columns):
        raise ValueError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)="
            f"{min(rows, columns)}"
        )
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return _svd_lowrank(A - ops.mean(A, -2, True) if center else A, q, niter, None)


op(
    "pca_lowrank(A: Tensor, q: int? = None, center: bool = True, niter: int = 2) -> Tensor[]",
    composite=_pca_lowrank,
    method=False,
    samples=_RANDOM,
    doc="Return U, S and V of the principal components of samples in rows: of svd_lowrank, after "
    "the mean of each column was subtracted if `center`.\n\n"
    "Raises: ValueError for q beyond min(m, n) and for a negative niter.",
)


# -- eigenvalues -----------------------------------------------------------------------------------


def _orthonormal(S, B):
    """Return columns that span those of S, orthonormal by B; nearly dependent ones are left out."""
    for _ in range(2):
        gram = ops.matmul(adjoint(S), S if B is None else ops.matmul(B, S))
        values, vectors = ops.linalg_eigh((gram + adjoint(gram)) * 0.5)
        small = 10 * epsilon(values.dtype) * values.max()
        count = int(ops.sum(values > small).item())
        kept = slice(values.shape[-1] - count, None)
        S = ops.matmul(S, vectors[:, kept] * ops.rsqrt(values[kept]))
    return S


def _scaled(S):
    """Return the columns with length 1; columns of zeros stay."""
    size = ops.linalg_vector_norm(S, 2, 0)
    return S / ops.where(size == 0, 1.0, size)


def _ritz(A, S):
    """Return Ritz values in ascending order, and vectors, of an orthonormal basis."""
    inner = ops.matmul(adjoint(S), ops.matmul(A, S))
    values, vectors = ops.linalg_eigh((inner + adjoint(inner)) * 0.5)
    return values, ops.matmul(S, vectors)


def _iterate(A, B, X, iK, k, niter, tol, largest, tracker):
    """Return the eigenpairs of one problem.

    Source: A. Knyazev, "Toward the optimal preconditioned eigensolver: locally optimal block
    preconditioned conjugate gradient method", 2001.
    """
    count = X.shape[-1]
    size_A = ops.linalg_matrix_norm(A)
    size_B = 1.0 if B is None else ops.linalg_matrix_norm(B)

    def chosen(S):
        values, vectors = _ritz(A, _orthonormal(S, B))
        if largest:
            values, vectors = ops.flip(values, (0,)), ops.flip(vectors, (1,))
        return values[:count], vectors[:, :count]

    values, X = chosen(X)
    direction = None
    for step in range(niter + 1):
        BX = X if B is None else ops.matmul(B, X)
        residual = ops.matmul(A, X) - BX * values
        error = ops.linalg_vector_norm(residual, 2, 0) / (
            ops.linalg_vector_norm(X, 2, 0) * (size_A + ops.abs(values) * size_B)
        )
        if tracker is not None:
            tracker({"istep": step, "E": values, "X": X, "R": residual, "rerr": error})
        if step == niter or bool(ops.all(error[:k] < tol).item()):
            break
        if iK is not None:
            residual = ops.matmul(iK, residual)
        parts = [residual] if direction is None else [residual, direction]
        found, made = chosen(ops.cat([X, *map(_scaled, parts)], -1))
        direction = made - ops.matmul(X, ops.matmul(adjoint(BX), made))
        values, X = found, made
    return values[:k], X[:, :k]


def _lobpcg_vjp(gs, A, B, out0, out1):
    """Each vector moves within the other eigenvectors, which a whole decomposition gives."""
    gvalues, gvectors = gs
    if B is not None:
        raise ValueError("lobpcg.backward does not support backward with B != I yet.")
    found = None
    if gvalues is not None:
        found = ops.matmul(out1 * gvalues.unsqueeze(-2), adjoint(out1))
    if gvectors is not None:
        values, vectors = ops.eigh_batch(A)[:2]
        gaps = out0.unsqueeze(-2) - values.unsqueeze(-1)
        own = ops.argmin(ops.abs(gaps), -2, True)
        rows = ops.arange(values.shape[-1], device=A.device).unsqueeze(-1)
        inner = ops.matmul(adjoint(vectors), gvectors)
        inner = ops.where(rows == own, 0.0, inner / ops.where(rows == own, 1.0, gaps))
        moved = ops.matmul(ops.matmul(vectors, inner), adjoint(out1))
        moved = (moved + adjoint(moved)) * 0.5
        found = moved if found is None else found + moved
    return found


op(
    "_lobpcg_pairs(self: Tensor, B: any, X: any, iK: any, k: int, niter: int, tol: float, "
    "largest: bool, tracker: any) -> Tensor[]",
    forward=_iterate,
    vjp={"self": lambda gs, self, B, out0, out1: _lobpcg_vjp(gs, self, B, out0, out1)},
    method=False,
    function=False,
    dtypes=_REAL,
    node="LOBPCGAutogradFunctionBackward",
    doc="Return the first k eigenvalues and eigenvectors of A x = value B x.",
    samples=_RANDOM,
)


def _lobpcg(A, k, B, X, n, iK, niter, tol, largest, method, tracker, *_):
    if A.ndim < 2 or A.shape[-2] != A.shape[-1]:
        raise ValueError(f"A must be square, got shape {A.shape}")
    if B is not None and B.shape != A.shape:
        raise ValueError(f"A and B must have the same shape, got {A.shape} and {B.shape}")
    rows = A.shape[-1]
    k = (1 if X is None else X.shape[-1]) if k is None else k
    n = (k if X is None else X.shape[-1]) if n is None else n
    if rows < 3 * n:
        raise ValueError(
            f"LOBPCG algorithm is not applicable when the number of A rows (={rows}) is smaller "
            f"than 3 x the number of requested eigenpairs (={n})"
        )
    dtype = A.dtype if A.is_floating_point() else dtype_named("float32")
    if X is None:
        X = ops.randn((*A.shape[:-2], rows, n), dtype=dtype, device=A.device)
    settings = (
        k,
        1000 if niter is None or niter < 0 else niter,
        math.sqrt(epsilon(dtype)) if tol is None else tol,
        True if largest is None else largest,
        tracker,
    )
    shape = A.shape[:-2]
    if not shape:
        return tuple(ops._lobpcg_pairs(A, B, X.detach(), iK, *settings))
    pairs = [
        ops._lobpcg_pairs(
            one,
            None if B is None else B.reshape((-1, rows, rows))[i],
            X.detach().reshape((-1, rows, X.shape[-1]))[i],
            None if iK is None else iK.reshape((-1, rows, rows))[i],
            *settings,
        )
        for i, one in enumerate(A.reshape((-1, rows, rows)))
    ]
    values, vectors = (ops.stack(parts) for parts in zip(*pairs))
    return values.reshape((*shape, k)), vectors.reshape((*shape, rows, k))


op(
    "lobpcg(A: Tensor, k: int? = None, B: Tensor? = None, X: Tensor? = None, n: int? = None, "
    "iK: Tensor? = None, niter: int? = None, tol: float? = None, largest: any = None, "
    "method: any = None, tracker: any = None, ortho_iparams: any = None, "
    "ortho_fparams: any = None, ortho_bparams: any = None) -> Tensor[]",
    composite=_lobpcg,
    method=False,
    samples=_RANDOM,
    doc="Return the k largest eigenvalues and eigenvectors of a symmetric matrix A, or of "
    "A x = value B x, by LOBPCG.\n\nThe smallest with largest=False. X holds n first guesses, by "
    "default random ones; iK is a preconditioner. It ends after `niter` steps (1000), or when all "
    "residuals are below `tol` (by default the root of eps) beside the norms of A and B. "
    "`tracker` is called at each step with a dict. Both methods are the same here, and the "
    "`ortho_` parameters have no meaning.\n\nShape: A (..., m, m) with m >= 3 n gives (..., k) and "
    "(..., m, k).\n\nDerivative: by A, without B.\n\n"
    "Raises: ValueError for a matrix that is too small.",
)
