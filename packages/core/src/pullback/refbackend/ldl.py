"""Reference kernels of LDL decompositions."""

from __future__ import annotations

import numpy as np

from .arrays import Array

# From which ratio on a diagonal element is taken as the pivot.
_ALPHA = (1 + 17**0.5) / 8


def ldl_factor(outs: tuple[Array, Array, Array], matrices: Array, *, hermitian: int) -> None:
    """Decompose the lower triangle of each matrix.

    Source: J. Bunch and L. Kaufman, "Some stable methods for calculating inertia and solving
    symmetric linear systems", 1977; stored as by sytrf and hetrf of LAPACK.
    """
    out, pivots, info = outs
    with np.errstate(all="ignore"):
        for number, matrix in enumerate(matrices):
            lower = np.tril(matrix)
            if hermitian and lower.dtype.kind == "c":
                np.fill_diagonal(lower, lower.diagonal().real)
            info[number] = _factor(lower, pivots[number], bool(hermitian))
            out[number] = lower


def _turned(values: Array, hermitian: bool) -> Array:
    return values.conj() if hermitian else values


def _choose(lower: Array, step: int) -> tuple[int, int]:
    """Return the row to swap with, and the size of the block; row -1: the column is 0."""
    size = np.abs(lower.real) + np.abs(lower.imag)
    own = size[step, step]
    if step + 1 == len(lower):
        return (step, 1) if own else (-1, 1)
    largest = step + 1 + int(np.argmax(size[step + 1 :, step]))
    below = size[largest, step]
    if max(own, below) == 0:
        return -1, 1
    if own >= _ALPHA * below or np.isnan(own):
        return step, 1
    row = max(size[largest, step:largest].max(), size[largest + 1 :, largest].max(initial=0))
    if own >= _ALPHA * below * (below / row):
        return step, 1
    return (largest, 1) if size[largest, largest] >= _ALPHA * row else (largest, 2)


def _factor(lower: Array, pivots: Array, hermitian: bool) -> int:
    step, info = 0, 0
    while step < len(lower):
        chosen, count = _choose(lower, step)
        if chosen < 0:
            info = info or step + 1
            pivots[step] = step + 1
            step += 1
            continue
        last = step + count - 1
        if chosen != last:
            _swap(lower, last, chosen, hermitian)
            if count == 2:
                lower[[last, chosen], step] = lower[[chosen, last], step]
        block = lower[step : last + 1, step : last + 1].copy()
        if count == 2:
            block[0, 1] = _turned(block[1, 0], hermitian)
        columns = lower[last + 1 :, step : last + 1].copy()
        # columns @ inverse(block), which is solved from the left by the transposed block
        factors = np.linalg.solve(block.T, columns.T).T
        rest = lower[last + 1 :, last + 1 :]
        rest -= np.tril(factors @ _turned(columns, hermitian).T)
        if hermitian:  # what rounding leaves of imaginary parts would grow
            np.fill_diagonal(rest, rest.diagonal().real)
        lower[last + 1 :, step : last + 1] = factors
        pivots[step : last + 1] = chosen + 1 if count == 1 else -(chosen + 1)
        step += count
    return info


def _swap(lower: Array, first: int, second: int, hermitian: bool) -> None:
    """Swap two rows and the same columns from ``first`` on, in the lower triangle."""
    below = slice(second + 1, None)
    lower[below, [first, second]] = lower[below, [second, first]]
    between = slice(first + 1, second)
    kept = lower[between, first].copy()
    lower[between, first] = _turned(lower[second, between], hermitian)
    lower[second, between] = _turned(kept, hermitian)
    if hermitian:
        lower[second, first] = lower[second, first].conj()
    lower[first, first], lower[second, second] = lower[second, second], lower[first, first]


def ldl_solve(out: Array, matrices: Array, pivots: Array, right: Array, *, hermitian: int) -> None:
    """Substitute forwards, divide by the blocks, substitute backwards."""
    with np.errstate(all="ignore"):
        for number, lower in enumerate(matrices):
            found = np.array(right[number])
            _substitute(lower, pivots[number], found, bool(hermitian))
            out[number] = found


def _substitute(lower: Array, pivots: Array, found: Array, hermitian: bool) -> None:
    count, step, blocks = len(lower), 0, []
    if (np.abs(pivots) > count).any() or not pivots.all():
        raise IndexError("ldl_solve: a pivot is no row")
    while step < count:
        last = step if pivots[step] > 0 or step + 1 == count else step + 1
        chosen = abs(int(pivots[step])) - 1
        found[[last, chosen]] = found[[chosen, last]]
        here = slice(step, last + 1)
        found[last + 1 :] -= lower[last + 1 :, here] @ found[here]
        block = lower[here, here].copy()
        if last > step:
            block[0, 1] = _turned(block[1, 0], hermitian)
        elif hermitian:
            block = block.real.astype(block.dtype)
        found[here] = (
            np.linalg.solve(block, found[here])
            if block.all() or last > step
            else (found[here] / block)
        )
        blocks.append((here, last, chosen))
        step = last + 1
    for here, last, chosen in reversed(blocks):
        found[here] -= _turned(lower[last + 1 :, here], hermitian).T @ found[last + 1 :]
        found[[last, chosen]] = found[[chosen, last]]
