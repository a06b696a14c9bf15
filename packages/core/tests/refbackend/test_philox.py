"""Philox against the known answers printed with Random123, and independent scalar code."""

import math

import numpy as np
import pytest

from pullback.refbackend.creation import normal, randint, uniform
from pullback.refbackend.philox import philox4x32, random_uint64, random_words

ONES = 0xFFFFFFFF
KNOWN_ANSWERS = [
    ([0, 0, 0, 0], (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([ONES] * 4, (ONES, ONES), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        (0xA4093822, 0x299F31D0),
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]
ZERO_BLOCK = KNOWN_ANSWERS[0][2]


def scalar_philox(counter, key):
    """Philox with plain Python integers, written apart from the kernel."""
    a, b, c, d = counter
    for i in range(10):
        k0, k1 = (key[0] + i * 0x9E3779B9) & ONES, (key[1] + i * 0xBB67AE85) & ONES
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (right >> 32) ^ b ^ k0, right & ONES, (left >> 32) ^ d ^ k1, left & ONES
    return [a, b, c, d]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_known_answers(counter, key, words):
    assert philox4x32(np.array([counter], dtype=np.uint64), key)[0].tolist() == words
    assert scalar_philox(counter, key) == words


def test_words_use_the_whole_seed_and_offset():
    seed, offset = 0x0123456789ABCDEF, 0xFFFFFFFF  # the second block carries into the high word
    expected = scalar_philox([ONES, 0, 0, 0], (0x89ABCDEF, 0x01234567))
    expected += scalar_philox([0, 1, 0, 0], (0x89ABCDEF, 0x01234567))
    assert random_words(seed, offset, 8).tolist() == expected
    assert random_words(seed, offset, 5).tolist() == expected[:5]


def test_negative_seed_is_its_bit_pattern():
    assert random_words(-1, 0, 4).tolist() == random_words(2**64 - 1, 0, 4).tolist()


def test_uint64_takes_the_low_half_first():
    w = ZERO_BLOCK
    assert random_uint64(0, 0, 2).tolist() == [w[0] | w[1] << 32, w[2] | w[3] << 32]


def test_uniform_of_each_width(bfloat16):
    w = ZERO_BLOCK
    for dtype, bits in ((np.float32, 24), (np.float16, 11), (bfloat16, 8)):
        out = np.empty(4, dtype)
        uniform(out, seed=0, offset=0)
        assert out.astype(float).tolist() == [(x >> (32 - bits)) / 2**bits for x in w]
    out = np.empty(2, np.float64)
    uniform(out, seed=0, offset=0)
    assert out.tolist() == [((w[i] | w[i + 1] << 32) >> 11) / 2**53 for i in (0, 2)]


def test_complex_numbers_are_pairs_of_reals():
    for sampler in (uniform, normal):
        reals, numbers = np.empty(6, np.float32), np.empty(3, np.complex64)
        sampler(reals, seed=5, offset=7)
        sampler(numbers, seed=5, offset=7)
        scale = 1.0 if sampler is uniform else math.sqrt(0.5)
        np.testing.assert_allclose(numbers.view(np.float32), reals * scale, rtol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_normal_float32_by_hand(count):
    expected = []
    for block in range(2):
        w = scalar_philox([3 + block, 0, 0, 0], (9, 0))
        for a, b in (w[:2], w[2:]):
            r = math.sqrt(-2 * math.log(((a >> 8) + 1) / 2**24))
            angle = 2 * math.pi * ((b >> 8) / 2**24)
            expected += [r * math.cos(angle), r * math.sin(angle)]
    out = np.empty(count, np.float32)
    normal(out, seed=9, offset=3)
    np.testing.assert_allclose(out, expected[:count], rtol=1e-6)


def test_normal_float64_by_hand():
    expected = []
    for block in range(2):
        w = scalar_philox([block, 0, 0, 0], (9, 0))
        first, second = (w[0] | w[1] << 32) >> 11, (w[2] | w[3] << 32) >> 11
        r = math.sqrt(-2 * math.log((first + 1) / 2**53))
        angle = 2 * math.pi * (second / 2**53)
        expected += [r * math.cos(angle), r * math.sin(angle)]
    out = np.empty(3, np.float64)
    normal(out, seed=9, offset=0)
    np.testing.assert_allclose(out, expected[:3], rtol=1e-14)


def test_normal_has_the_right_moments():
    out = np.empty(40000, np.float32)
    normal(out, seed=1, offset=0)
    wide = out.astype(float)
    # Five standard errors of the mean, the variance and the fourth moment.
    assert abs(wide.mean()) < 5 / 200
    assert abs(wide.var() - 1) < 5 * math.sqrt(2) / 200
    assert abs((wide**4).mean() - 3) < 5 * math.sqrt(96) / 200


@pytest.mark.parametrize(
    ("low", "high"), [(0, 10), (-5, 5), (-(2**63), 2**63 - 1), (2**62, 2**63 - 1)]
)
def test_randint_by_hand(low, high):
    out = np.empty(3, np.int64)
    randint(out, seed=0, offset=0, low=low, high=high)
    words = ZERO_BLOCK + scalar_philox([1, 0, 0, 0], (0, 0))
    pairs = [words[2 * i] | words[2 * i + 1] << 32 for i in range(3)]
    assert out.tolist() == [low + u % (high - low) for u in pairs]


def test_randint_refuses_an_empty_range():
    with pytest.raises(ValueError, match="expected low < high, got low=3 and high=3"):
        randint(np.empty(2, np.int64), seed=0, offset=0, low=3, high=3)


def test_order_is_logical_whatever_the_strides():
    plain, transposed = np.empty((3, 4), np.float32), np.empty((4, 3), np.float32).T
    for out in (plain, transposed):
        uniform(out, seed=2, offset=1)
    assert plain.tolist() == transposed.tolist()
