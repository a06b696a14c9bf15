"""Launch elementwise kernels in the emulation, on NumPy arrays, as the host side would."""

import ctypes
import math

import numpy as np
import on_fake

NAMES = "b u8 i8 i16 i32 i64 f16 bf16 f32 f64 c64 c128".split()
CODES = {name: code for code, name in enumerate(NAMES)}
STORED = dict(zip(NAMES, map(np.dtype, "? u1 i1 i2 i4 i8 f2 u2 f4 f8 c8 c16".split())))
CLASSES = dict(zip(NAMES, ["int"] * 5 + "long float float float double complex complex".split()))
COMPUTED = {"int": "i4", "long": "i8", "float": "f4", "double": "f8", "complex": "c16"}
VECTOR_SIZES = {"int": 4, "long": 2, "float": 4, "double": 2, "complex": 1}
INTEGRAL = NAMES[1:6]
FLOATING = NAMES[6:10]
COMPLEX = NAMES[10:]
REAL = INTEGRAL + FLOATING
THREADS = 256


class Arguments(ctypes.Structure):
    """``elementwise_arguments`` of elementwise_driver.h."""

    _fields_ = [
        ("data", ctypes.c_void_p * 5),
        ("scalar", ctypes.c_byte * 16 * 4),
        ("failure", ctypes.c_void_p),
        ("in_type", ctypes.c_int32),
        ("out_type", ctypes.c_int32),
        ("option", ctypes.c_int32),
        ("scalars", ctypes.c_uint32),
        ("same", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("vectors", ctypes.c_uint32),
        ("vector_blocks", ctypes.c_uint32),
        ("ndim", ctypes.c_int32),
        ("size", ctypes.c_uint32 * 12),
        ("multiplier", ctypes.c_uint32 * 12),
        ("shift", ctypes.c_uint32 * 12),
        ("stride", ctypes.c_int32 * 5 * 12),
    ]


class Failure(ctypes.Structure):
    """``failure_record`` of failure.h."""

    _fields_ = [
        ("code", ctypes.c_int32),
        ("claimed", ctypes.c_int32),
        ("index", ctypes.c_int64),
        ("size", ctypes.c_int64),
    ]


class Families:
    """The kernels of all families, built when they are asked for."""

    def __init__(self):
        self.build = on_fake.emulation()
        self.found = {}

    def __call__(self, family):
        if family not in self.found:
            (path,) = self.build.KERNELS.rglob(f"{family}.cu")
            self.found[family] = self.build.Kernels(self.build.image(path))
        return self.found[family]


# ---- bfloat16, and arrays where they are wanted --------------------------------------------------


def narrow(values, name):
    """Return an array of a stored type; that of bfloat16 holds bits."""
    if name != "bf16":
        with np.errstate(all="ignore"):
            return np.asarray(values).astype(STORED[name])
    with np.errstate(all="ignore"):
        values = np.asarray(values, np.float32)
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def widen(array, name):
    """Return an array of numbers that NumPy can compute with."""
    if name == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32).reshape(array.shape)
    return array


def placed(array, misaligned=0):
    """Return a copy that begins some elements after a multiple of 64 bytes."""
    memory = np.zeros(array.nbytes + 64 + 64 * 16, np.uint8)
    start = -memory.ctypes.data % 64 + misaligned * array.itemsize
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def random_values(rng, name, shape):
    """Return numbers of all sizes."""
    if name == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if name in INTEGRAL:
        limits = np.iinfo(STORED[name])
        wide = rng.integers(limits.min, limits.max, shape, STORED[name], endpoint=True)
        small = rng.integers(max(limits.min, -9), 10, shape)
        return np.where(rng.random(shape) < 0.5, wide, small).astype(STORED[name])
    values = rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 2, shape)
    if name in COMPLEX:
        values = values + 1j * rng.permutation(values.ravel()).reshape(shape)
    return narrow(values, name)


# ---- launches ------------------------------------------------------------------------------------


class Scalar:
    """A number that the host gives."""

    def __init__(self, value, name, compute=None):
        compute = compute or COMPUTED[CLASSES[name]]
        self.number = np.array(value, compute)


def divide(args, dim, size):
    """Prepare divisions by the size of a dim."""
    shift = (size - 1).bit_length()
    args.size[dim], args.shift[dim] = size, shift
    args.multiplier[dim] = ((1 << 32) * ((1 << shift) - size)) // size + 1


def launch(
    kernels, kernel, out, inputs, types, vector_size, vectorized=None, option=0, failure=None
):
    """Run a kernel as the host would; dims are taken as they are, the last one is the fastest.

    ``vectorized``: whether the launch must be vectorized; None: either way.
    """
    args = Arguments(in_type=CODES[types[0]], out_type=CODES[types[1]], option=option)
    if failure is not None:
        args.failure = ctypes.addressof(failure)
    shape = out.shape or (1,)
    args.count, args.ndim = math.prod(shape), len(shape)
    can = shape[-1] >= vector_size and (len(shape) == 1 or shape[-1] % vector_size == 0)
    for k, array in enumerate([out, *inputs]):
        if isinstance(array, Scalar):
            args.scalars |= 1 << k - 1
            args.same |= 1 << k - 1
            ctypes.memmove(args.scalar[k - 1], array.number.ctypes.data, array.number.itemsize)
            continue
        args.data[k] = array.ctypes.data
        strides = array.strides or (array.itemsize,)
        for d, stride in enumerate(reversed(strides)):
            args.stride[d][k] = stride
        align = min(16, vector_size * array.itemsize)
        if k and strides[-1] == 0:
            args.same |= 1 << k - 1
            continue
        can = can and strides[-1] == array.itemsize
        can = can and not any(number % align for number in (array.ctypes.data, *strides[:-1]))
    assert vectorized is None or vectorized == can
    for d, size in enumerate(reversed(shape)):
        divide(args, d, size // vector_size if can and d == 0 else size)
    if can:
        args.vectors = args.count // vector_size
        for k in range(len(inputs) + 1):
            args.stride[0][k] *= vector_size
    else:
        args.same = args.scalars
    args.vector_blocks = -(-args.vectors // (2 * THREADS))
    left = args.count - args.vectors * vector_size
    blocks = args.vector_blocks + -(-left // (THREADS * vector_size))
    kernels.launch(kernel, blocks, THREADS, 0, args)


def run(kernels_of, family, primitive, name, inputs, shape=None, to=None, **options):
    """Run a primitive's kernel for a type on arrays, and return what it wrote as numbers."""
    to = to or name
    shape = np.broadcast_shapes(*(x.shape for x in inputs if not isinstance(x, Scalar)))
    arrays = [x if isinstance(x, Scalar) else np.broadcast_to(x, shape) for x in inputs]
    out = placed(np.zeros(shape, STORED[to]))
    launch(
        kernels_of(family),
        f"{primitive}_{CLASSES[name]}",
        out,
        arrays,
        (name, to),
        options.pop("vector_size", VECTOR_SIZES[CLASSES[name]]),
        **options,
    )
    return widen(out, to)


def assert_close(found, wanted, name, ulps=3, floor=0):
    """Compare, in units of the last place of the wanted numbers, or of ``floor``; NaN is NaN."""
    wanted = widen(narrow(wanted, name), name)
    if name in COMPLEX:
        part = {"c64": "f32", "c128": "f64"}[name]
        size = np.abs(np.where(np.isfinite(wanted), wanted, 0)) * 0.5
        for a, b in ((found.real, wanted.real), (found.imag, wanted.imag)):
            size = np.maximum(np.maximum(size, floor), np.abs(np.nan_to_num(b)))
            assert_near(a, b, size, part, ulps)
        return
    if name not in FLOATING:
        np.testing.assert_array_equal(found, wanted)
        return
    size = np.maximum(np.abs(np.nan_to_num(wanted.astype(float))), floor)
    assert_near(found, wanted, size, name, ulps)


def assert_near(found, wanted, size, name, ulps):
    """Compare, in units of the last place of numbers of this size."""
    digits = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[name]
    tiny = {"f16": 2.0**-24, "bf16": 1e-40, "f32": 2.0**-149, "f64": 5e-324}[name]
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(np.where(finite, 0, found), np.where(finite, 0, wanted))
    with np.errstate(all="ignore"):
        error = np.abs(found.astype(float) - wanted.astype(float))
        allowed = np.maximum(size.astype(float) * ulps * 2.0**-digits, tiny)
        worst = np.argmax(np.where(finite, error / allowed, 0))
    assert not np.any((error > allowed) & finite), (
        f"{found.flat[worst]!r} instead of {wanted.flat[worst]!r}"
    )
