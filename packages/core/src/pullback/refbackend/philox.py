"""Philox4x32-10, the counter-based random generator of all backends.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

from typing import Any

import numpy as np

Words = np.ndarray[Any, np.dtype[np.uint64]]

_ROUNDS = 10
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """Return four random 32-bit words for each counter.

    Shape: ``counter`` is (n, 4), and so is the result; each uint64 holds one 32-bit word.
    """
    c0, c1, c2, c3 = (counter[:, word].astype(np.uint64) for word in range(4))
    k0, k1 = key
    for _ in range(_ROUNDS):
        product_0, product_1 = c0 * _MULTIPLIER_0, c2 * _MULTIPLIER_1
        c0 = (product_1 >> _HALF) ^ c1 ^ np.uint64(k0)
        c2 = (product_0 >> _HALF) ^ c3 ^ np.uint64(k1)
        c1, c3 = product_1 & _LOW, product_0 & _LOW
        k0, k1 = (k0 + _WEYL_0) & 0xFFFFFFFF, (k1 + _WEYL_1) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1)


def random_words(seed: int, offset: int, count: int) -> Words:
    """Return ``count`` words of the stream of ``seed`` that begins at block ``offset``."""
    blocks = -(-count // 4)
    number = np.uint64(offset & 0xFFFFFFFFFFFFFFFF) + np.arange(blocks, dtype=np.uint64)
    counter = np.zeros((blocks, 4), dtype=np.uint64)
    counter[:, 0] = number & _LOW
    counter[:, 1] = number >> _HALF
    return philox4x32(counter, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)).ravel()[:count]


def random_uint64(seed: int, offset: int, count: int) -> Words:
    """Return ``count`` 64-bit numbers: two words each, the low half first."""
    words = random_words(seed, offset, 2 * count)
    return words[0::2] | (words[1::2] << _HALF)
