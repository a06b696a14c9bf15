"""Reference kernels that have no input: sequences and random numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import masks
from .arrays import Array, Kernel, is_bfloat16, store
from .philox import random_uint64, random_words


def arange(out: Array, *, start: float, step: float) -> None:
    """Count up from ``start`` by ``step``."""
    accumulate: Any = np.int64 if out.dtype.kind in "iu" else np.float64
    with np.errstate(all="ignore"):
        store(out, accumulate(start) + np.arange(out.size).astype(accumulate) * accumulate(step))


def linspace(out: Array, *, start: float, end: float, step: float) -> None:
    """Count from both ends, so that the last number is exact and the sequence symmetric."""
    position = np.arange(out.size, dtype=np.float64)
    store(
        out,
        np.where(
            position < out.size // 2,
            start + position * step,
            end - (out.size - 1 - position) * step,
        ),
    )


def _store_reals(out: Array, reals: Array) -> None:
    """Write numbers in row-major order; a complex element takes two."""
    if out.dtype.kind == "c":
        reals = reals[0::2] + 1j * reals[1::2]
    store(out, reals.reshape(out.shape))


def _count_reals(out: Array) -> int:
    return 2 * out.size if out.dtype.kind == "c" else out.size


def _is_double(dtype: np.dtype[Any]) -> bool:
    return dtype in (np.float64, np.complex128)


def _random_bits(dtype: np.dtype[Any]) -> int:
    """Return how many random bits a number in [0, 1) has: as many as its significand."""
    if is_bfloat16(dtype):
        return 8
    return 11 if dtype == np.float16 else 24


def uniform(out: Array, *, seed: int, offset: int) -> None:
    """Draw from [0, 1)."""
    count = _count_reals(out)
    if _is_double(out.dtype):
        reals = (random_uint64(seed, offset, count) >> np.uint64(11)) * 2.0**-53
    else:
        bits = _random_bits(out.dtype)
        reals = (random_words(seed, offset, count) >> np.uint64(32 - bits)) * 2.0**-bits
    _store_reals(out, reals)


def normal(out: Array, *, seed: int, offset: int) -> None:
    """Draw from the standard normal distribution by Box and Muller's method."""
    count = _count_reals(out)
    even = count + count % 2
    if _is_double(out.dtype):
        numbers, bits = random_uint64(seed, offset, even) >> np.uint64(11), 53
    else:
        numbers, bits = random_words(seed, offset, even) >> np.uint64(8), 24
    # The first number of a pair is moved into (0, 1], where the logarithm is finite.
    radius = np.sqrt(-2 * np.log((numbers[0::2] + np.uint64(1)) * 2.0**-bits))
    angle = 2 * np.pi * (numbers[1::2] * 2.0**-bits)
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    scale = math.sqrt(0.5) if out.dtype.kind == "c" else 1.0
    _store_reals(out, pairs.ravel()[:count] * scale)


def randint(out: Array, *, seed: int, offset: int, low: int, high: int) -> None:
    """Draw integers from [low, high)."""
    if not low < high:
        raise ValueError(f"randint(): expected low < high, got low={low} and high={high}")
    numbers = random_uint64(seed, offset, out.size) % np.uint64(high - low)
    # Wraps around as two's complement does, so every int64 low works.
    values = (numbers + np.uint64(low & 0xFFFFFFFFFFFFFFFF)).view(np.int64)
    store(out, values.reshape(out.shape))


def permutation(out: Array, *, seed: int, offset: int) -> None:
    """Shuffle 0 .. n - 1.

    Source: Durstenfeld, "Algorithm 235: random permutation", Communications of the ACM 7(7), 1964.
    """
    numbers = list(range(out.size))
    for position, word in enumerate(random_uint64(seed, offset, out.size).tolist()):
        other = position + (word * (out.size - position) >> 64)
        numbers[position], numbers[other] = numbers[other], numbers[position]
    out[:] = numbers


KERNELS: dict[str, tuple[int, Kernel]] = {
    "arange": (masks.REAL_NUMBERS, arange),
    "linspace": (masks.FLOATING, linspace),
    "normal": (masks.INEXACT, normal),
    "permutation": (masks.INT64, permutation),
    "randint": (masks.REAL, randint),
    "uniform": (masks.INEXACT, uniform),
}
