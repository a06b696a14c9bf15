"""Call the host side of kernels on NumPy arrays, as core calls it, on the fake driver.

There memory of the device is memory of the host, so that arrays can lie in any way.
"""

import ctypes
import importlib

import ml_dtypes
import numpy as np
import pytest

NAMES = "b u8 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128".split()
STORED = dict(zip(NAMES, map(np.dtype, "? u1 i1 i2 i4 i8 f2 u2 f4 f8 c8 c16".split())))
STORED["bf16"] = np.dtype(ml_dtypes.bfloat16)
CODES = {dtype: code for code, dtype in enumerate(STORED.values())}
REAL = NAMES[1:10]
FLOATING = NAMES[6:10]
WRITE = 2
E_RUNTIME, E_MEMORY, E_INDEX, E_VALUE, E_DTYPE = range(1, 6)


def begin(request):
    """Make the fake device ready: it has memory for failures then."""
    from on_fake import ON_DEVICE

    if ON_DEVICE:
        pytest.skip("kernels get memory of the host")
    request.getfixturevalue("fake_cuda")
    import pullback

    pullback.ones(1, device="cuda")


class Array(ctypes.Structure):
    """``pb_array`` of abi.h."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("dtype", ctypes.c_int16),
        ("flags", ctypes.c_int16),
        ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("data", ctypes.c_void_p),
        ("base", ctypes.c_void_p),
        ("offset", ctypes.c_int64),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]


class Param(ctypes.Structure):
    """``pb_param``."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("i", ctypes.c_int64),
        ("d", ctypes.c_double),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
    ]


class Call(ctypes.Structure):
    """``pb_call``."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("slot", ctypes.c_int32),
        ("nout", ctypes.c_int32),
        ("nin", ctypes.c_int32),
        ("nparam", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("out", ctypes.POINTER(ctypes.POINTER(Array))),
        ("in_", ctypes.POINTER(ctypes.POINTER(Array))),
        ("param", ctypes.POINTER(Param)),
        ("stream", ctypes.c_void_p),
        ("backend", ctypes.c_void_p),
        ("message", ctypes.c_char_p),
    ]


class KernelError(Exception):
    """What a slot returned when it did not return 0."""

    def __init__(self, code, message):
        super().__init__(code, message)
        self.code = code
        self.message = message


def numbers(values):
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def describe(operand, flags):
    """Return the struct for an array, and what must live as long."""
    shape = numbers(operand.shape)
    strides = numbers([step // operand.itemsize for step in operand.strides])
    pointer = ctypes.POINTER(ctypes.c_int64)
    array = Array(
        size=ctypes.sizeof(Array),
        dtype=CODES[operand.dtype],
        flags=flags,
        ndim=operand.ndim,
        data=operand.ctypes.data,
        base=operand.ctypes.data,
        shape=ctypes.cast(shape, pointer),
        strides=ctypes.cast(strides, pointer),
    )
    return array, (operand, shape, strides)


def describe_param(value):
    if isinstance(value, tuple):
        ints = numbers(value)
        pointer = ctypes.cast(ints, ctypes.POINTER(ctypes.c_int64))
        return Param(kind=2, count=len(value), ints=pointer), ints
    if isinstance(value, float):
        return Param(kind=1, d=value), None
    return Param(kind=0, i=value, d=float(value)), None


def pointers(arrays):
    return (ctypes.POINTER(Array) * max(1, len(arrays)))(*map(ctypes.pointer, arrays))


def function_of(slot):
    """Return what the capsule of a slot points to."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = importlib.import_module("pullback_cuda.kernels").KERNELS[slot][1]
    function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Call))
    return function(get(capsule, b"int (pb_call *)"))


def run_slot(slot, outs, ins, *params):
    """Run a slot; one output needs no tuple around it. Raises KernelError."""
    outs = outs if isinstance(outs, tuple) else (outs,)
    described = [describe(operand, WRITE) for operand in outs]
    described += [describe(operand, 0) for operand in ins]
    out_pointers = pointers([array for array, _ in described[: len(outs)]])
    in_pointers = pointers([array for array, _ in described[len(outs) :]])
    values = list(map(describe_param, params))
    message = ctypes.create_string_buffer(256)
    call = Call(
        size=ctypes.sizeof(Call),
        nout=len(outs),
        nin=len(ins),
        nparam=len(params),
        out=out_pointers,
        in_=in_pointers,
        param=(Param * max(1, len(params)))(*(value for value, _ in values)),
        message=ctypes.cast(message, ctypes.c_char_p),
    )
    code = function_of(slot)(ctypes.byref(call))
    if code != 0:
        raise KernelError(code, message.value.decode())


def reference(slot, outs, ins, **params):
    """Run a slot of NumPy's reference backend."""
    tables = ("indexing", "pooling", "resampling", "convolution", "creation", "elementwise")
    for name in tables:
        kernels = importlib.import_module(f"pullback.refbackend.{name}").KERNELS
        if slot in kernels:
            kernels[slot][1](outs, *ins, **params)
            return
    raise LookupError(slot)


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
    """Return equal values of which each dim takes every second place."""
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


def assert_close(actual, expected, tolerance):
    """Compare floating-point numbers relative to the largest one."""
    wide = np.complex128 if actual.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore"):
        actual, expected = actual.astype(wide), np.asarray(expected).astype(wide)
    finite = np.abs(expected[np.isfinite(expected)])
    scale = finite.max(initial=1e-30)
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale)
