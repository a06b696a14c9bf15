"""Reference kernels of weighted sums along a dim."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from . import masks
from .arrays import Array, Kernel, store, widen


def interpolate(
    out: Array, x: Array, indices: Array, weights: Array | None = None, *, dim: int
) -> None:
    """Sum weighted elements, tap by tap."""
    moved = np.moveaxis(widen(x), dim, -1)
    with np.errstate(all="ignore"):
        parts = moved[..., indices]
        made = parts[..., 0, :] if weights is None else (parts * widen(weights)).sum(-2)
        store(out, np.moveaxis(made, -1, dim))


def interpolate_backward(
    out: Array, x: Array, indices: Array, weights: Array | None = None, *, dim: int
) -> None:
    """Add each element, weighted, to those that it would be made of."""
    given = np.moveaxis(widen(x), dim, -1)
    total = np.zeros((*given.shape[:-1], out.shape[dim]), given.dtype)
    with np.errstate(all="ignore"):
        for tap, positions in enumerate(indices):
            part = given if weights is None else given * widen(weights)[tap]
            np.add.at(total, cast(Any, (..., positions)), part)
        store(out, np.moveaxis(total, -1, dim))


KERNELS: dict[str, tuple[int, Kernel]] = {
    "interpolate": (masks.REAL, interpolate),
    "interpolate_backward": (masks.FLOATING, interpolate_backward),
}
