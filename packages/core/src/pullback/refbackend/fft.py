"""Reference kernels of discrete Fourier transforms."""

from __future__ import annotations

import numpy as np

from . import masks
from .arrays import Array, Kernel, store, widen

_NAMES = ("backward", "ortho", "forward")  # NumPy's, of what divides a forward transform


def _transform(x: Array, dim: tuple[int, ...], normalization: int, forward: int) -> Array:
    if forward:
        return np.fft.fftn(x, axes=dim, norm=_NAMES[normalization])  # type: ignore[arg-type]
    return np.fft.ifftn(x, axes=dim, norm=_NAMES[2 - normalization])  # type: ignore[arg-type]


def fft_c2c(out: Array, x: Array, dim: tuple[int, ...], normalization: int, forward: int) -> None:
    """Transform complex numbers."""
    store(out, _transform(widen(x), dim, normalization, forward))


def fft_r2c(out: Array, x: Array, dim: tuple[int, ...], normalization: int, forward: int) -> None:
    """Transform real numbers; keep as much of the last dim as the output has."""
    found = _transform(widen(x), dim, normalization, forward)
    store(out, found[tuple(slice(size) for size in out.shape)])


def fft_c2r(out: Array, x: Array, dim: tuple[int, ...], normalization: int, forward: int) -> None:
    """Transform half of the conjugate pairs to real numbers."""
    x = widen(x)
    if len(dim) > 1:
        x = _transform(x, dim[:-1], normalization, forward)
    if forward:
        x = np.conj(x)
    norm = _NAMES[2 - normalization]
    store(out, np.fft.irfft(x, out.shape[dim[-1]], dim[-1], norm))  # type: ignore[arg-type]


KERNELS: dict[str, tuple[int, Kernel]] = {
    "fft_c2c": (masks.COMPLEX, fft_c2c),
    "fft_r2c": (masks.FLOATING & ~masks.HALF, fft_r2c),
    "fft_c2r": (masks.COMPLEX, fft_c2r),
}
