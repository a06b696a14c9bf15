"""Reference kernels of primitives that fuse several operations."""

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


def addcmul(out: Array, x: Array, first: Array, second: Array, value: Array) -> None:
    """Add a multiple of a product."""
    with np.errstate(all="ignore"):
        store(out, widen(x) + widen(value) * widen(first) * widen(second))


def addcdiv(out: Array, x: Array, first: Array, second: Array, value: Array) -> None:
    """Add a multiple of a quotient."""
    with np.errstate(all="ignore"):
        store(out, widen(x) + widen(value) * widen(first) / widen(second))


def clamp(out: Array, x: Array, low: Array, high: Array) -> None:
    """Move each element between two bounds; NaN wins."""
    store(out, np.minimum(np.maximum(widen(x), widen(low)), widen(high)))


def lerp(out: Array, x: Array, end: Array, weight: Array) -> None:
    """Go a part of the way from one element to another, from the nearer end."""
    x, end, weight = widen(x), widen(end), widen(weight)
    with np.errstate(all="ignore"):
        way = end - x
        store(out, np.where(np.abs(weight) < 0.5, x + weight * way, end - way * (1 - weight)))


def flip(out: Array, x: Array, *, dims: tuple[int, ...]) -> None:
    """Reverse the order of some dimensions."""
    out[...] = np.flip(x, dims)


def _below(x: Array, diagonal: int) -> Array:
    return np.tri(x.shape[-2], x.shape[-1], diagonal, np.bool_)


def tril(out: Array, x: Array, *, diagonal: int) -> None:
    """Keep the elements up to a diagonal."""
    out[...] = np.where(_below(x, diagonal), x, np.zeros((), x.dtype))


def triu(out: Array, x: Array, *, diagonal: int) -> None:
    """Keep the elements from a diagonal on."""
    out[...] = np.where(_below(x, diagonal - 1), np.zeros((), x.dtype), x)


def logsumexp(out: Array, x: Array, *, dim: int) -> None:
    """Find the logarithm of the sum of exponentials along ``dim``."""
    wide = at_least_1d(widen(x))
    with np.errstate(all="ignore"):
        peak = np.max(wide, axis=dim, keepdims=True)
        peak = np.where(np.isinf(peak), 0, peak)
        total = np.log(np.exp(wide - peak).sum(axis=dim, keepdims=True)) + peak
        store(out, total.reshape(out.shape))


def _standardized(x: Array, mean: Array, scale: Array) -> Array:
    return (widen(x) - widen(mean)[..., None, None]) * widen(scale)[..., None, None]


def normalize(out: Array, x: Array, mean: Array, scale: Array, weight: Array, bias: Array) -> None:
    """Standardize by given numbers, scale and shift."""
    with np.errstate(all="ignore"):
        unit = _standardized(x, mean, scale)
        store(out, unit * widen(weight)[..., None] + widen(bias)[..., None])


def normalize_backward(
    outs: tuple[Array, Array, Array],
    grad: Array,
    x: Array,
    mean: Array,
    scale: Array,
    weight: Array,
) -> None:
    """Compute the gradients of the elements, the weight and the bias."""
    dims = (2, 3) if len(mean) == len(x) else (0, 2, 3)
    g = widen(grad)
    with np.errstate(all="ignore"):
        unit = _standardized(x, mean, scale)
        inner = g * widen(weight)[..., None]
        count = np.prod([x.shape[d] for d in dims])
        derivative = (
            inner
            - inner.sum(axis=dims, keepdims=True) / count
            - unit * ((inner * unit).sum(axis=dims, keepdims=True) / count)
        )
        store(outs[0], derivative * widen(scale)[..., None, None])
        store(outs[1], (g * unit).sum(axis=(0, 3)))
        store(outs[2], g.sum(axis=(0, 3)))


def standardize(
    outs: tuple[Array, Array, Array],
    x: Array,
    *parameters: Array,
    groups: int,
    channels: int,
    inner: int,
    eps: float,
    given: int,
) -> None:
    """Standardize every row by its own mean and variance, scale and shift."""
    rows = widen(x).reshape(-1, groups, channels, inner)
    with np.errstate(all="ignore"):
        mean = rows.mean((2, 3), keepdims=True)
        off = rows - mean
        variance = (off * off).mean((2, 3), keepdims=True)
        made = off / np.sqrt(variance + eps)
        if given & 1:
            made = made * widen(parameters[0]).reshape(groups, channels, 1)
        if given & 2:
            made = made + widen(parameters[-1]).reshape(groups, channels, 1)
        for out, found in zip(outs, (made, mean, variance), strict=True):
            store(out, found.reshape(out.shape))


KERNELS: dict[str, tuple[int, Kernel]] = {
    "addcdiv": (masks.INEXACT, addcdiv),
    "addcmul": (masks.NUMBERS, addcmul),
    "clamp": (masks.REAL_NUMBERS, clamp),
    "flip": (masks.ALL, flip),
    "lerp": (masks.INEXACT, lerp),
    "log_softmax": (masks.FLOATING, log_softmax),
    "log_softmax_backward": (masks.FLOATING, log_softmax_backward),
    "logsumexp": (masks.FLOATING, logsumexp),
    "normalize": (masks.FLOATING, normalize),
    "normalize_backward": (masks.FLOATING, normalize_backward),
    "softmax": (masks.FLOATING, softmax),
    "softmax_backward": (masks.FLOATING, softmax_backward),
    "standardize": (masks.FLOATING, standardize),
    "tril": (masks.ALL, tril),
    "triu": (masks.ALL, triu),
}
