"""Reference kernels of slots that fuse several operations."""

from __future__ import annotations

import numpy as np

from . import masks
from .arrays import Array, Kernel, at_least_1d, store, widen


def softmax(out: Array, x: Array, *, dim: int) -> None:
    """Divide exponentials by their sum along ``dim``."""
    if out.size == 0:
        return
    wide = at_least_1d(widen(x))
    with np.errstate(all="ignore"):
        powers = np.exp(wide - np.max(wide, axis=dim, keepdims=True))
        store(out, (powers / powers.sum(axis=dim, keepdims=True)).reshape(out.shape))


def log_softmax(out: Array, x: Array, *, dim: int) -> None:
    """Subtract the logarithm of the sum of exponentials along ``dim``."""
    if out.size == 0:
        return
    wide = at_least_1d(widen(x))
    with np.errstate(all="ignore"):
        shifted = wide - np.max(wide, axis=dim, keepdims=True)
        total = np.log(np.exp(shifted).sum(axis=dim, keepdims=True))
        store(out, (shifted - total).reshape(out.shape))


def softmax_backward(out: Array, grad: Array, result: Array, *, dim: int) -> None:
    """Compute the gradient of softmax from its result."""
    g, y = at_least_1d(widen(grad)), at_least_1d(widen(result))
    with np.errstate(all="ignore"):
        store(out, (y * (g - (g * y).sum(axis=dim, keepdims=True))).reshape(out.shape))


def log_softmax_backward(out: Array, grad: Array, result: Array, *, dim: int) -> None:
    """Compute the gradient of log_softmax from its result."""
    g, y = at_least_1d(widen(grad)), at_least_1d(widen(result))
    with np.errstate(all="ignore"):
        store(out, (g - np.exp(y) * g.sum(axis=dim, keepdims=True)).reshape(out.shape))


KERNELS: dict[str, tuple[int, Kernel]] = {
    "log_softmax": (masks.FLOATING, log_softmax),
    "log_softmax_backward": (masks.FLOATING, log_softmax_backward),
    "softmax": (masks.FLOATING, softmax),
    "softmax_backward": (masks.FLOATING, softmax_backward),
}
