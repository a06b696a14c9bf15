"""arange, linspace and the random numbers."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import COMPLEX, DTYPES, FLOATING, dtypes_of, run_kernel
from layouts import LAYOUTS, SHAPES, empty_like

from pullback.testing.kernel_calls import E_VALUE, KernelError

# -- the definition of the random numbers, in NumPy -----------------------------------------------


def philox(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Return Philox4x32-10 of an (n, 4) array of counters."""
    c = [counter[:, i].astype(np.uint64) for i in range(4)]
    k0, k1 = key
    mask = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            (p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k0),
            p1 & mask,
            (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k1),
            p0 & mask,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, 1)


def words(seed: int, offset: int, blocks: int) -> np.ndarray:
    """Return the (blocks, 4) words from a position of the stream on."""
    numbers = np.arange(blocks, dtype=np.uint64) + np.uint64(offset % 2**64)
    counter = np.zeros((blocks, 4), np.uint64)
    counter[:, 0], counter[:, 1] = numbers & np.uint64(0xFFFFFFFF), numbers >> np.uint64(32)
    return philox(counter, (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF))


def pairs(block: np.ndarray) -> np.ndarray:
    """Return the two 64-bit words of each block."""
    return block[:, 0::2] | block[:, 1::2] << np.uint64(32)


def uniform(dtype: str, n: int, seed: int, offset: int) -> np.ndarray:
    if dtype in COMPLEX:
        real = uniform({"c64": "f32", "c128": "f64"}[dtype], 2 * n, seed, offset)
        return real.view(DTYPES[dtype])
    if dtype == "f64":
        bits = pairs(words(seed, offset, (n + 1) // 2)).reshape(-1)
        return (bits[:n] >> np.uint64(11)) * 2.0**-53
    shift, scale = {"f32": (8, 24), "f16": (21, 11), "bf16": (24, 8)}[dtype]
    bits = words(seed, offset, (n + 3) // 4).reshape(-1)
    return ((bits[:n] >> np.uint64(shift)) * 2.0**-scale).astype(DTYPES[dtype])


def normal(dtype: str, n: int, seed: int, offset: int) -> np.ndarray:
    if dtype in COMPLEX:
        wide = normal("f64 parts" if dtype == "c64" else "f64", 2 * n, seed, offset) * np.sqrt(0.5)
        return wide.astype(DTYPES[dtype].type(0).real.dtype).view(DTYPES[dtype])
    if dtype == "f64":
        bits = pairs(words(seed, offset, (n + 1) // 2)) >> np.uint64(11)
        u1, u2 = (bits[:, 0] + np.uint64(1)) * 2.0**-53, bits[:, 1] * 2.0**-53
    else:
        bits = words(seed, offset, (n + 3) // 4).reshape(-1, 2) >> np.uint64(8)
        u1, u2 = (bits[:, 0] + np.uint64(1)) * 2.0**-24, bits[:, 1] * 2.0**-24
    radius = np.sqrt(-2 * np.log(u1))
    numbers = np.stack([radius * np.cos(2 * np.pi * u2), radius * np.sin(2 * np.pi * u2)], 1)
    return numbers.reshape(-1)[:n].astype(DTYPES.get(dtype, np.float64))


def test_philox_known_answers():
    # From the test vectors that come with Random123.
    zeros = philox(np.zeros((1, 4), np.uint64), (0, 0))[0]
    assert [f"{w:08x}" for w in zeros] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
    ones = philox(np.full((1, 4), 0xFFFFFFFF, np.uint64), (0xFFFFFFFF, 0xFFFFFFFF))[0]
    assert [f"{w:08x}" for w in ones] == ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"]


# -- the kernels ----------------------------------------------------------------------------------

STREAMS = [(0, 0), (1234, 7), (2**63 + 5, 2**32 - 3), (2**64 - 1, 2**64 - 2)]


@pytest.mark.parametrize("dtype", [*FLOATING, *COMPLEX])
@pytest.mark.parametrize(("seed", "offset"), STREAMS)
@pytest.mark.parametrize("n", [1, 2, 5, 1030])
def test_uniform(dtype, seed, offset, n):
    out = np.full(n, 9, DTYPES[dtype])
    run_kernel("uniform", out, [], seed, offset)
    np.testing.assert_array_equal(out, uniform(dtype, n, seed, offset))
    assert (out.real >= 0).all()
    assert (out.real < 1).all()


@pytest.mark.parametrize("dtype", [*FLOATING, *COMPLEX])
@pytest.mark.parametrize(("seed", "offset"), STREAMS)
@pytest.mark.parametrize("n", [1, 2, 5, 1030])
def test_normal(dtype, seed, offset, n):
    out = np.full(n, 9, DTYPES[dtype])
    run_kernel("normal", out, [], seed, offset)
    expected = normal(dtype, n, seed, offset)
    tolerance = {"f16": 2**-10, "bf16": 2**-7, "f32": 2**-23, "c64": 2**-23}.get(dtype, 1e-14)
    wide = np.complex128 if dtype in COMPLEX else np.float64
    np.testing.assert_allclose(out.astype(wide), expected.astype(wide), rtol=tolerance, atol=1e-14)


@pytest.mark.parametrize("dtype", dtypes_of("randint"))
@pytest.mark.parametrize(("low", "high"), [(0, 2), (-3, 100), (0, 1), (5, 6)])
def test_randint(dtype, low, high):
    if DTYPES[dtype].kind == "u" and low < 0:
        low = 0
    n = 1030
    out = np.zeros(n, DTYPES[dtype])
    run_kernel("randint", out, [], 42, 3, low, high)
    bits = pairs(words(42, 3, (n + 1) // 2)).reshape(-1)[:n] % np.uint64(high - low)
    np.testing.assert_array_equal(out, (bits.astype(np.int64) + low).astype(DTYPES[dtype]))


def test_randint_of_the_whole_range():
    out = np.zeros(1000, np.int64)
    run_kernel("randint", out, [], 1, 0, -(2**63), 2**63 - 1)
    bits = pairs(words(1, 0, 500)).reshape(-1) % np.uint64(2**64 - 1)
    np.testing.assert_array_equal(out, (bits + np.uint64(2**63)).view(np.int64))


@pytest.mark.parametrize("bounds", [(3, 3), (4, 3)])
def test_randint_of_nothing(bounds):
    with pytest.raises(KernelError) as info:
        run_kernel("randint", np.zeros(2, np.int64), [], 0, 0, *bounds)
    assert info.value.code == E_VALUE


@pytest.mark.parametrize("n", [1, 2, 7, 256, 257, 1030])
@pytest.mark.parametrize("stride", [1, -1, 3])
def test_permutation(n, stride):
    out = np.full(3 * n, -1, np.int64)[::stride][:n]
    run_kernel("permutation", out, [], 42, 3)
    bits = pairs(words(42, 3, (n + 1) // 2)).reshape(-1)
    expected = list(range(n))
    for i in range(n):
        other = i + (int(bits[i]) * (n - i) >> 64)
        expected[i], expected[other] = expected[other], expected[i]
    assert out.tolist() == expected


@pytest.mark.parametrize("primitive", ["uniform", "normal"])
@pytest.mark.parametrize("dtype", [*FLOATING, *COMPLEX])
def test_random_numbers_do_not_depend_on_the_layout(primitive, dtype):
    for shape in [*SHAPES, (40, 50)]:
        plain = np.zeros(shape, DTYPES[dtype])
        run_kernel(primitive, plain, [], 5, 11)
        for layout in LAYOUTS:
            out = empty_like(plain, layout=layout)
            run_kernel(primitive, out, [], 5, 11)
            np.testing.assert_array_equal(out, plain)


def test_normal_numbers_look_normal():
    out = np.zeros(100_000, np.float32)
    run_kernel("normal", out, [], 7, 0)
    assert abs(out.mean()) < 0.01
    assert abs(out.std() - 1) < 0.01


@pytest.mark.parametrize("dtype", dtypes_of("arange"))
def test_arange(dtype):
    kind = DTYPES[dtype]
    for n in (0, 1, 50):
        out = np.zeros(2 * n, kind)[::2]
        run_kernel("arange", out, [], 3, 2)
        np.testing.assert_array_equal(out, np.arange(3, 3 + 2 * n, 2)[:n].astype(kind))
    if dtype in FLOATING:
        out = np.zeros(10, kind)
        run_kernel("arange", out, [], 0.25, -0.3)
        np.testing.assert_array_equal(out, (0.25 + np.arange(10) * -0.3).astype(kind))


def test_arange_of_large_integers_is_exact():
    out = np.zeros(3, np.int64)
    run_kernel("arange", out, [], 2**62 + 1, 3)
    assert out.tolist() == [2**62 + 1, 2**62 + 4, 2**62 + 7]


@pytest.mark.parametrize("dtype", dtypes_of("arange"))
def test_arange_of_many_numbers(dtype):
    out = np.zeros(150_001, DTYPES[dtype])
    run_kernel("arange", out, [], 5, -3)
    with np.errstate(over="ignore"):
        expected = (5 - 3 * np.arange(150_001)).astype(DTYPES[dtype])
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", dtypes_of("linspace"))
@pytest.mark.parametrize("n", [0, 1, 2, 7, 5000, 200_001])
def test_linspace_counts_from_both_ends(dtype, n):
    start, end, step = -0.3, 1.1, 1.4 / max(n - 1, 1)
    position = np.arange(n)
    expected = np.where(position < n // 2, start + position * step, end - (n - 1 - position) * step)
    for out in (np.zeros(n, DTYPES[dtype]), np.zeros(2 * n, DTYPES[dtype])[::2]):
        run_kernel("linspace", out, [], start, end, step)
        np.testing.assert_array_equal(out, expected.astype(DTYPES[dtype]))
