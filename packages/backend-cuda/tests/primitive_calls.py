"""Call the host side of kernels on NumPy arrays, as core calls it, on the fake driver.

There device memory is host memory, so that arrays can have any layout.
"""

import importlib

import ml_dtypes
import numpy as np
import pytest

from pullback.ops.table.primitives import PRIMITIVES
from pullback.testing.kernel_calls import call_kernel

NAMES = "b u8 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128".split()
STORED = dict(zip(NAMES, map(np.dtype, "? u1 i1 i2 i4 i8 f2 u2 f4 f8 c8 c16".split())))
STORED["bf16"] = np.dtype(ml_dtypes.bfloat16)
REAL = NAMES[1:10]
FLOATING = NAMES[6:10]


def begin(request):
    """Make the fake device ready: it has memory for failures then."""
    from on_fake import ON_DEVICE

    if ON_DEVICE:
        pytest.skip("kernels get memory of the host")
    request.getfixturevalue("fake_cuda")
    import pullback

    pullback.ones(1, device="cuda")


def kernel_of(package, primitive):
    """Return the kernel that a backend has for a primitive."""
    return importlib.import_module(f"{package}.kernels").KERNELS[primitive][1]


def run_primitive(primitive, outs, ins, *params):
    """Run a primitive; one output needs no tuple around it. Raises KernelError."""
    call_kernel(kernel_of("pullback_cuda", primitive), outs, ins, *params)


def reference(primitive, outs, ins, **params):
    """Fill outputs with what the kernel of the CPU backend computes, with 53 bits."""
    outs = outs if isinstance(outs, tuple | list) else (outs,)
    wide = [widened(array) for array in outs]
    names = [name.partition(":")[0] for name in PRIMITIVES[primitive].params]
    ordered = [params.pop(name) for name in names]
    assert not params, params
    call_kernel(kernel_of("pullback_cpu", primitive), wide, [widened(x) for x in ins], *ordered)
    for array, result in zip(outs, wide, strict=True):
        if result is not array:
            array[...] = result


def widened(array):
    """Return floating-point and complex numbers with 53 bits, and other arrays as they are."""
    if array is None or array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64, copy=False)


# ---- arrays --------------------------------------------------------------------------------------


def sample(name, shape, seed=0, low=-4, high=4):
    """Return random elements of a dtype; unsigned ones start at 0."""
    dtype = STORED[name]
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.kind in "iu":
        return np.asarray(rng.integers(0 if dtype.kind == "u" else low, high + 1, shape), dtype)
    values = rng.uniform(low, high, shape)
    if dtype.kind == "c":
        values = values + 1j * rng.uniform(low, high, shape)
    return np.asarray(values).astype(dtype)


def strided(values):
    """Return equal values with a step of 2 in each dim."""
    room = np.zeros(tuple(2 * n + 1 for n in values.shape), values.dtype)
    view = room[(..., *(slice(1, 2 * n + 1, 2) for n in values.shape))]
    view[...] = values
    return view


def reversed_all(values):
    """Return equal values with negative strides."""
    turn = (..., *(slice(None, None, -1),) * values.ndim)
    return values[turn].copy()[turn]


def transposed(values):
    """Return equal values in column-major order."""
    return np.array(values, order="F")


def plain(values):
    """Return equal values in row-major order."""
    return np.array(values, order="C")


LAYOUTS = {
    "plain": plain,
    "strided": strided,
    "reversed": reversed_all,
    "transposed": transposed,
}


def blank(shape, dtype, layout="plain"):
    """Return an output that is filled so that a forgotten element shows."""
    filled = np.ones(shape, dtype) if dtype.kind == "b" else np.full(shape, 77, dtype)
    return LAYOUTS[layout](filled)


def assert_close(actual, expected, tolerance, size=1e-30):
    """Compare floating-point numbers relative to the largest one, or to the terms' ``size``."""
    wide = np.complex128 if actual.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore"):
        actual, expected = actual.astype(wide), np.asarray(expected).astype(wide)
    finite = np.abs(expected[np.isfinite(expected)])
    scale = finite.max(initial=size)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale)
