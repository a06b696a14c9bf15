"""Reference kernels of linear algebra."""

from __future__ import annotations

import numpy as np

from . import ldl, masks
from .arrays import Array, Kernel, store, widen


def bmm(out: Array, x: Array, y: Array) -> None:
    """Multiply two batches of matrices."""
    with np.errstate(all="ignore"):
        store(out, np.matmul(widen(x), widen(y)))


def solve(outs: tuple[Array, Array], matrices: Array, right: Array) -> None:
    """Solve each system by elimination, in the operands' own precision, as backends do."""
    out, info = outs
    for number in range(len(matrices)):
        rows = np.array(matrices[number])
        found = _eliminate(rows, values := np.array(right[number]))
        info[number] = found
        out[number] = np.nan if found else values


def _eliminate(rows: Array, values: Array) -> int:
    """Turn ``values`` into the solution; returns which pivot is 0, counted from 1, or 0."""
    with np.errstate(all="ignore"):
        for step in range(len(rows)):
            chosen = step + int(np.argmax(np.abs(rows[step:, step])))
            if rows[chosen, step] == 0:
                return step + 1
            for part in (rows, values):
                part[[step, chosen]] = part[[chosen, step]]
            factors = rows[step + 1 :, step] / rows[step, step]
            rows[step + 1 :] -= factors[:, None] * rows[step]
            values[step + 1 :] -= factors[:, None] * values[step]
        for step in reversed(range(len(rows))):
            values[step] -= rows[step, step + 1 :] @ values[step + 1 :]
            values[step] /= rows[step, step]
    return 0


def svd(outs: tuple[Array, ...], matrices: Array) -> None:
    """Decompose each matrix: NaN is refused, infinity gives NaN, as in torch."""
    u, s, vh, info = outs
    full = u.shape[2] != s.shape[1] or vh.shape[1] != s.shape[1]
    for number, matrix in enumerate(matrices):
        u[number] = s[number] = vh[number] = np.nan
        info[number] = np.isnan(matrix).any()
        if np.isfinite(matrix).all():  # LAPACK may not end where an element is infinite
            try:
                u[number], s[number], vh[number] = np.linalg.svd(matrix, full_matrices=full)
            except np.linalg.LinAlgError:
                info[number] = 1


def cholesky_factor(outs: tuple[Array, Array], matrices: Array) -> None:
    """Decompose column by column, in the operands' own precision."""
    out, info = outs
    with np.errstate(all="ignore"):
        for number, matrix in enumerate(matrices):
            lower = np.tril(matrix)
            info[number] = 0
            for step in range(len(lower)):
                row = lower[step, :step]
                pivot = (lower[step, step] - row @ row.conj()).real
                if not pivot > 0:
                    info[number] = step + 1
                    break
                lower[step, step] = np.sqrt(pivot)
                rest = lower[step + 1 :]
                rest[:, step] = (rest[:, step] - rest[:, :step] @ row.conj()) / lower[step, step]
            out[number] = lower


def triangular(out: Array, matrices: Array, right: Array, *, upper: int, unit: int) -> None:
    """Substitute row by row."""
    with np.errstate(all="ignore"):
        found = np.array(right)
        count = matrices.shape[-1]
        for step in reversed(range(count)) if upper else range(count):
            known = slice(step + 1, None) if upper else slice(step)
            row = matrices[:, step, None, known] @ found[:, known]
            found[:, step] -= row[:, 0]
            if not unit:
                found[:, step] /= matrices[:, step, step, None]
        out[...] = found


def lu_factor(outs: tuple[Array, Array, Array], matrices: Array) -> None:
    """Eliminate with partial pivoting."""
    out, pivots, info = outs
    with np.errstate(all="ignore"):
        for number, matrix in enumerate(matrices):
            rows = np.array(matrix)
            info[number] = 0
            for step in range(min(rows.shape)):
                chosen = step + int(np.argmax(np.abs(rows[step:, step])))
                pivots[number, step] = chosen + 1
                rows[[step, chosen]] = rows[[chosen, step]]
                if rows[step, step] == 0:
                    info[number] = info[number] or step + 1
                    continue
                rows[step + 1 :, step] /= rows[step, step]
                rows[step + 1 :, step + 1 :] -= np.outer(
                    rows[step + 1 :, step], rows[step, step + 1 :]
                )
            out[number] = rows


def permutation_of_swaps(out: Array, swaps: Array) -> None:
    """Make the swaps one after another."""
    out[...] = np.arange(out.shape[1])
    batch = np.arange(len(out))
    for step in range(swaps.shape[1]):
        chosen = swaps[:, step].astype(np.int64) - 1
        out[:, step], out[batch, chosen] = out[batch, chosen], out[:, step].copy()


def qr_factor(outs: tuple[Array, Array], matrices: Array) -> None:
    """Reflect column by column.

    Source: G. Golub and C. Van Loan, "Matrix Computations", 2013, section 5.2; signs as in LAPACK.
    """
    out, taus = outs
    with np.errstate(all="ignore"):
        for number, matrix in enumerate(matrices):
            rest = np.array(matrix)
            taus[number] = 0
            for step in range(min(rest.shape)):
                column = rest[step:, step]
                first, below = column[0], np.linalg.norm(column[1:])
                if below == 0 and first.imag == 0:
                    continue
                pivot = -np.copysign(np.hypot(np.abs(first), below), first.real)
                tau = (pivot - first) / pivot
                vector = np.concatenate(([1], column[1:] / (first - pivot)))
                later = rest[step:, step + 1 :]
                later -= tau.conjugate() * np.outer(vector, vector.conj() @ later)
                column[0], column[1:] = pivot, vector[1:]
                taus[number, step] = tau
            out[number] = rest


def reflections(out: Array, vectors: Array, tau: Array) -> None:
    """Apply the reflections to unit vectors, the last one first."""
    rows, columns = out.shape[1:]
    with np.errstate(all="ignore"):
        found = np.broadcast_to(np.eye(rows, columns), out.shape).astype(out.dtype)
        for step in reversed(range(tau.shape[1])):
            v = vectors[:, :, step].copy()
            v[:, :step], v[:, step] = 0, 1
            along = (v.conj()[:, :, None] * found).sum(1, keepdims=True)
            found -= tau[:, step, None, None] * v[:, :, None] * along
        out[...] = found


def eigh(outs: tuple[Array, Array, Array], matrices: Array) -> None:
    """Decompose each matrix; where an element is not finite there is no result."""
    values, vectors, info = outs
    for number, matrix in enumerate(matrices):
        info[number] = 0
        if not np.isfinite(matrix).all():
            values[number], vectors[number] = np.nan, np.nan
        elif vectors.shape[1]:
            values[number], vectors[number] = np.linalg.eigh(matrix)
        else:
            values[number] = np.linalg.eigvalsh(matrix)


def eig(outs: tuple[Array, Array, Array], matrices: Array) -> None:
    """Decompose each matrix; where an element is not finite there is no result."""
    values, vectors, info = outs
    for number, matrix in enumerate(matrices):
        info[number] = 0 if np.isfinite(matrix).all() else -1
        if info[number]:
            values[number], vectors[number] = np.nan, np.nan
        elif vectors.shape[1]:
            values[number], vectors[number] = np.linalg.eig(matrix)
        else:
            values[number] = np.linalg.eigvals(matrix)


KERNELS: dict[str, tuple[int, Kernel]] = {
    "bmm": (masks.NUMBERS, bmm),
    "solve": (masks.INEXACT, solve),
    "svd": (masks.INEXACT & ~masks.HALF, svd),
    "cholesky_factor": (masks.INEXACT & ~masks.HALF, cholesky_factor),
    "triangular": (masks.INEXACT & ~masks.HALF, triangular),
    "lu_factor": (masks.INEXACT & ~masks.HALF, lu_factor),
    "permutation_of_swaps": (masks.INTEGRAL & ~masks.INT64, permutation_of_swaps),
    "qr_factor": (masks.INEXACT & ~masks.HALF, qr_factor),
    "reflections": (masks.INEXACT & ~masks.HALF, reflections),
    "eigh": (masks.INEXACT & ~masks.HALF, eigh),
    "eig": (masks.INEXACT & ~masks.HALF, eig),
    "ldl_factor": (masks.INEXACT & ~masks.HALF, ldl.ldl_factor),
    "ldl_solve": (masks.INEXACT & ~masks.HALF, ldl.ldl_solve),
}
