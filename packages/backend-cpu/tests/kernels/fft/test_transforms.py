"""Fourier transforms in every dtype and memory layout, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import DTYPES, Prepared
from layouts import LAYOUTS, empty_like

REAL_OF = {"c64": "f32", "c128": "f64"}
ATOL = {"c64": 1e-3, "c128": 1e-10}
SHAPE = (3, 10, 8)


def drawn(shape, dtype, layout):
    rng = np.random.default_rng(5)
    values = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if "c" in dtype else 0)
    array = empty_like(np.empty(shape), DTYPES[dtype], layout)
    array[...] = values
    return array


@pytest.mark.parametrize("dims", [(2,), (0, 1), (1, 2, 0)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", REAL_OF)
def test_transforms_match_numpy(dtype, layout, dims):
    last, real = dims[-1], REAL_OF[dtype]
    half = tuple(n // 2 + 1 if d == last else n for d, n in enumerate(SHAPE))

    def run(primitive, source, shape, out_dtype, normalization, forward):
        out = empty_like(np.empty(shape), DTYPES[out_dtype], layout)
        Prepared(primitive, [out], [source], [dims, normalization, forward]).run()
        return out

    z, x = drawn(SHAPE, dtype, layout), drawn(SHAPE, real, layout)
    halves = drawn(half, dtype, layout)
    for found, expected in (
        (run("fft_c2c", z, SHAPE, dtype, 0, 1), np.fft.fftn(z, axes=dims)),
        (run("fft_c2c", z, SHAPE, dtype, 1, 0), np.fft.ifftn(z, axes=dims, norm="ortho")),
        (run("fft_r2c", x, half, dtype, 2, 1), np.fft.rfftn(x, axes=dims, norm="forward")),
        (run("fft_r2c", x, SHAPE, dtype, 2, 0), np.fft.ifftn(x, axes=dims)),
        (
            run("fft_c2r", halves, SHAPE, real, 2, 0),
            np.fft.irfftn(halves, [SHAPE[d] for d in dims], dims),
        ),
    ):
        np.testing.assert_allclose(found, expected, atol=ATOL[dtype])


def test_threads_share_a_large_transform():
    z = drawn((2000, 64), "c128", "contiguous")
    out = np.empty_like(z)
    Prepared("fft_c2c", [out], [z], [(1,), 0, 1]).run()
    np.testing.assert_allclose(out, np.fft.fft(z), atol=1e-10)
