"""Reference kernels of the negative log likelihood of classes."""

from __future__ import annotations

import numpy as np

from . import masks
from .arrays import Array, Kernel, store, widen

MEAN = 1  # the reduction to a weighted mean


def _picked(x: Array, target: Array, weight: Array | None, ignored: int) -> tuple[Array, Array]:
    """Return the classes along the dim of ``x`` that has them, and the weights of the targets."""
    dim = min(1, x.ndim - 1)
    kept = target != ignored
    wrong = target[kept & ((target < 0) | (target >= x.shape[dim]))]
    if wrong.size:
        raise IndexError(f"Target {wrong[0]} is out of bounds.")
    classes = np.where(kept, target, 0)
    weights = np.ones(()) if weight is None else widen(weight)[classes]
    return np.expand_dims(classes, dim), np.where(kept, weights, 0.0)


def nll_loss(
    out: Array,
    x: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignored: int,
    reduction: int,
) -> None:
    """Pick the elements of the target classes."""
    dim = min(1, x.ndim - 1)
    with np.errstate(all="ignore"):
        loss, weights = np.zeros(target.shape), np.zeros(target.shape)
        if target.size:
            classes, weights = _picked(x, target, weight, ignored)
            picked = np.take_along_axis(widen(x), classes, dim).squeeze(dim)
            loss = np.where(target != ignored, -picked * weights, 0.0)
        if reduction:
            loss = loss.sum() / (weights.sum() if reduction == MEAN else 1)
        store(out, loss)


def nll_loss_backward(
    out: Array,
    grad: Array,
    target: Array,
    weight: Array | None = None,
    *,
    ignored: int,
    reduction: int,
) -> None:
    """Write gradients to the elements of the target classes."""
    total = np.zeros(out.shape)
    with np.errstate(all="ignore"):
        if target.size:
            classes, weights = _picked(out, target, weight, ignored)
            share = -widen(grad) * weights / (weights.sum() if reduction == MEAN else 1)
            share = np.where(target != ignored, share, 0.0)
            dim = min(1, out.ndim - 1)
            np.put_along_axis(total, classes, np.expand_dims(share, dim), dim)
    store(out, total)


KERNELS: dict[str, tuple[int, Kernel]] = {
    "nll_loss": (masks.FLOATING, nll_loss),
    "nll_loss_backward": (masks.FLOATING, nll_loss_backward),
}
