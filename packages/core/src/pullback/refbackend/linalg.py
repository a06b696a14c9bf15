"""Reference kernels of linear algebra."""

from __future__ import annotations

import numpy as np

from . import masks
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


KERNELS: dict[str, tuple[int, Kernel]] = {
    "bmm": (masks.NUMBERS, bmm),
    "solve": (masks.INEXACT, solve),
    "svd": (masks.INEXACT & ~masks.HALF, svd),
}
