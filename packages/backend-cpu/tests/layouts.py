"""Sample values, and the memory layouts of arrays."""

from __future__ import annotations

import numpy as np
from kernel_calls import BFLOAT16, DTYPES


def is_complex(dtype: np.dtype) -> bool:
    """Say whether the elements are complex."""
    return dtype.kind == "c"


def is_floating(dtype: np.dtype) -> bool:
    """Say whether the elements are real floating-point numbers."""
    return dtype.kind == "f" or dtype == BFLOAT16


def sample(name: str, shape, seed: int = 0, low: float = -4, high: float = 4) -> np.ndarray:
    """Return random elements of a dtype; unsigned ones start at 0."""
    dtype = DTYPES[name]
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.kind in "iu":
        smallest = 0 if dtype.kind == "u" else int(low)
        return np.asarray(rng.integers(smallest, int(high) + 1, shape, dtype), dtype)
    values = rng.uniform(low, high, shape)
    if is_complex(dtype):
        values = values + 1j * rng.uniform(low, high, shape)
    return np.asarray(values).astype(dtype)


def strided(values: np.ndarray) -> np.ndarray:
    """Return equal values whose dimensions use every second element of memory."""
    room = np.zeros(tuple(2 * n + 1 for n in values.shape), values.dtype)
    view = room[(..., *(slice(1, 2 * n + 1, 2) for n in values.shape))]
    view[...] = values
    return view


def reversed_all(values: np.ndarray) -> np.ndarray:
    """Return equal values with negative strides."""
    flip = (..., *(slice(None, None, -1),) * values.ndim)
    return values[flip].copy()[flip]


def transposed(values: np.ndarray) -> np.ndarray:
    """Return equal values in column-major order."""
    return np.array(values, order="F")


def contiguous(values: np.ndarray) -> np.ndarray:
    """Return equal values in row-major order."""
    return np.ascontiguousarray(values).reshape(values.shape)


LAYOUTS = {
    "contiguous": contiguous,
    "strided": strided,
    "reversed": reversed_all,
    "transposed": transposed,
}
SHAPES = [(), (1,), (7,), (0,), (3, 0, 2), (1, 1), (3, 4, 5), (2, 1, 300)]


def empty_like(values: np.ndarray, dtype=None, layout: str = "contiguous") -> np.ndarray:
    """Return an output of the same shape, filled so that a forgotten element shows."""
    dtype = np.dtype(values.dtype if dtype is None else dtype)
    filler = np.ones(values.shape, dtype) if dtype.kind == "b" else np.full(values.shape, 77, dtype)
    return LAYOUTS[layout](filler)


def widen(values: np.ndarray) -> np.ndarray:
    """Return the values in a type in which references are computed."""
    values = np.asarray(values)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        if is_complex(values.dtype):
            return values.astype(np.complex128)
        if is_floating(values.dtype):
            return values.astype(np.float64)
    return values


def round_to(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return reference values as the nearest elements of a dtype."""
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype)


# Distance that a result may have from the rounded reference, relative to the larger of the two.
# Two units in the last place; complex results and float64 share the reference's own error.
TOLERANCE = {
    np.dtype(np.float16): 2**-10,
    BFLOAT16: 2**-7,
    np.dtype(np.float32): 2**-22,
    np.dtype(np.float64): 2**-49,
    np.dtype(np.complex64): 2**-20,
    np.dtype(np.complex128): 2**-46,
}


def assert_close(actual: np.ndarray, expected: np.ndarray, scale: float = 1) -> None:
    """Compare with the tolerance of the dtype, times ``scale``; integers must be equal."""
    expected = np.asarray(expected)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    tolerance = TOLERANCE.get(actual.dtype)
    if tolerance is None:
        np.testing.assert_array_equal(actual, expected)
        return
    smallest = 2.0**-24 if actual.dtype == np.float16 else 1e-38
    np.testing.assert_allclose(
        widen(actual), widen(expected), rtol=scale * tolerance, atol=2 * scale * smallest
    )


def error_of_sums(dtype: np.dtype, terms: int, sizes: np.ndarray) -> np.ndarray:
    """Return how far sums of so many products may be from references, added in any order.

    ``sizes``: the sums of the products' sizes, as terms may cancel. A product and an addition round
    once each; those of complex numbers twice as often. 16 bits are summed in float32 and rounded;
    the reference rounds too, and that of float64 is a sum of its own.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, section 3.1.
    """
    wide = dtype.itemsize // (2 if is_complex(dtype) else 1) == 8
    count = ((3 * terms if is_complex(dtype) else terms) + 1) * (2 if wide else 1)
    unit = 2.0**-53 if wide else 2.0**-24
    last = {np.dtype(np.float16): 2.0**-10, BFLOAT16: 2.0**-7}.get(dtype, unit)
    return (count * unit / (1 - count * unit) + last) * sizes
