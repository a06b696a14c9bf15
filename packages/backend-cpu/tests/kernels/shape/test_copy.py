"""The copy kernel: every pair of dtypes, every layout."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import BFLOAT16, COMPLEX, DTYPES, FLOATING, run_kernel
from layouts import LAYOUTS, SHAPES, empty_like, sample

from pullback.testing.kernel_calls import Scalar


def cast(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return what C's casts make of the values, by NumPy."""
    if values.dtype.kind == "c" and dtype.kind != "c":
        values = (values != 0) if dtype.kind == "b" else values.real
    if BFLOAT16 in (values.dtype, dtype) and dtype.kind != "b":
        values = values.astype(np.complex64 if dtype.kind == "c" else np.float32)
    return values.astype(dtype)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_copy_casts(source, target):
    values = sample(source, (3, 4, 5), low=0 if DTYPES[target].kind == "u" else -4)
    expected = cast(values, DTYPES[target])
    for lay_out in LAYOUTS.values():
        for layout in LAYOUTS:
            out = empty_like(values, DTYPES[target], layout)
            run_kernel("copy", out, [lay_out(values)])
            np.testing.assert_array_equal(out, expected)
    out = empty_like(values, DTYPES[target])
    run_kernel("copy", out, [Scalar(values[1, 2, 3])])
    np.testing.assert_array_equal(out, np.broadcast_to(expected[1, 2, 3], out.shape))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_copy_shapes(shape, dtype):
    values = sample(dtype, shape)
    for layout in LAYOUTS:
        out = empty_like(values, layout=layout)
        run_kernel("copy", out, [values])
        np.testing.assert_array_equal(out, values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(333, 257), (3, 200, 150), (150, 3, 200)])
def test_copy_transposes(dtype, shape):
    values = sample(dtype, shape).transpose()
    out = empty_like(values)
    run_kernel("copy", out, [values])
    np.testing.assert_array_equal(out, values)


@pytest.mark.parametrize("dtype", ["i16", "f32", "c64"])
@pytest.mark.parametrize("offset", [0, 1])
def test_copy_transposes_what_no_cache_holds(dtype, offset):
    # 8 MB and more; from an odd address, lines of the cache are not written as a whole.
    values = sample(dtype, (1613, 2 * 1408)).transpose()
    room = np.zeros(values.size + 64, DTYPES[dtype])
    start = (-room.ctypes.data // room.itemsize) % (64 // room.itemsize) + offset
    out = room[start : start + values.size].reshape(values.shape)
    run_kernel("copy", out, [values])
    np.testing.assert_array_equal(out, values)
    assert (room[:start] == 0).all()
    assert (room[start + values.size :] == 0).all()
    side = np.zeros((2 * 1408, 1616), DTYPES[dtype])[:, :1613]
    run_kernel("copy", side, [values])
    np.testing.assert_array_equal(side, values)
    assert (side.base[:, 1613:] == 0).all()


def test_copy_makes_bools_of_bytes():
    values = np.array([0, 1, 2, 255], np.uint8).view(bool)
    out = np.zeros(4, np.uint8)
    run_kernel("copy", out.view(bool), [values])
    assert out.tolist() == [0, 1, 1, 1]


def test_copy_of_numbers_that_do_not_fit():
    # What torch 2.13 returns on x86-64 where C leaves the result open.
    values = np.array([-1, 300, -129, 2.9, -2.9], np.float32)
    out = np.zeros(5, np.uint8)
    run_kernel("copy", out, [values])
    assert out.tolist() == [255, 44, 127, 2, 254]
    signed = np.zeros(5, np.int8)
    run_kernel("copy", signed, [values])
    assert signed.tolist() == [-1, 44, 127, 2, -2]
    narrow = np.zeros(2, np.int16)
    run_kernel("copy", narrow, [np.array([2**16 + 5, -1], np.int64)])
    assert narrow.tolist() == [5, -1]


def test_copy_nan_is_true():
    out = np.zeros(3, bool)
    run_kernel("copy", out, [np.array([np.nan, 0, -0.0])])
    assert out.tolist() == [True, False, False]


@pytest.mark.parametrize("source", COMPLEX)
@pytest.mark.parametrize("target", COMPLEX)
def test_copy_keeps_complex_infinities(source, target):
    values = np.array(
        [complex(1, np.inf), complex(np.inf, 1), complex(np.nan, 2), complex(3, np.nan)]
    )
    out = np.zeros(4, DTYPES[target])
    run_kernel("copy", out, [values.astype(DTYPES[source])])
    np.testing.assert_array_equal(out.real, [1, np.inf, np.nan, 3])
    np.testing.assert_array_equal(out.imag, [np.inf, 1, 2, np.nan])


def test_copy_every_half():
    """All bit patterns of float16 and bfloat16, to float32 and back."""
    for dtype in FLOATING[:2]:
        halves = np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype])
        wide = np.zeros(2**16, np.float32)
        run_kernel("copy", wide, [halves])
        np.testing.assert_array_equal(wide, halves.astype(np.float32))
        back = np.zeros_like(halves)
        run_kernel("copy", back, [wide])
        numbers = ~np.isnan(wide)
        assert np.isnan(back[~numbers].astype(np.float32)).all()
        np.testing.assert_array_equal(
            back[numbers].view(np.uint16), halves[numbers].view(np.uint16)
        )


def test_copy_rounds_halves_to_even():
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**32, 200_000, np.uint32)
    ties = (bits & np.uint32(0xFFFFE000)) | np.uint32(0x1000)
    values = np.concatenate([bits, ties, (bits & np.uint32(0xFFFF0000)) | np.uint32(0x8000)])
    values = values.view(np.float32)
    values = values[~np.isnan(values)]
    with np.errstate(over="ignore"):
        for dtype in FLOATING[:2]:
            out = np.zeros(values.shape, DTYPES[dtype])
            run_kernel("copy", out, [values])
            np.testing.assert_array_equal(
                out.view(np.uint16), values.astype(DTYPES[dtype]).view(np.uint16)
            )
