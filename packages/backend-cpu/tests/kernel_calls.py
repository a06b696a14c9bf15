"""Call kernels as core calls them: through their capsules, with structs built by hand."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import ml_dtypes
import numpy as np

from pullback_cpu.kernels import KERNELS

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = {
    name: np.dtype(dtype)
    for name, dtype in {
        "bool": np.bool_,
        "u8": np.uint8,
        "i8": np.int8,
        "i16": np.int16,
        "i32": np.int32,
        "i64": np.int64,
        "f16": np.float16,
        "bf16": BFLOAT16,
        "f32": np.float32,
        "f64": np.float64,
        "c64": np.complex64,
        "c128": np.complex128,
    }.items()
}
IDS = {dtype: number for number, dtype in enumerate(DTYPES.values())}
REAL = tuple(DTYPES)[1:10]
INTEGRAL = REAL[:5]
FLOATING = REAL[5:]
COMPLEX = ("c64", "c128")

HOST = 1
WRITE = 2
MESSAGE_SIZE = 256
OK, E_RUNTIME, E_MEMORY, E_INDEX, E_VALUE, E_DTYPE, E_PYTHON = range(7)


class Array(ctypes.Structure):
    """pb_array"""

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
    """pb_param"""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("i", ctypes.c_int64),
        ("d", ctypes.c_double),
        ("ints", ctypes.POINTER(ctypes.c_int64)),
    ]


class Call(ctypes.Structure):
    """pb_call"""

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


class Scalar(NamedTuple):
    """An input that is one scalar in host memory."""

    value: np.generic | np.ndarray


class KernelError(Exception):
    """What a kernel returned when it did not return 0."""

    def __init__(self, code: int, message: str):
        super().__init__(code, message)
        self.code = code
        self.message = message


def pointer_of(capsule: object, name: bytes) -> int:
    """Return what a capsule of this name points to."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, name)


FUNCTIONS = {
    slot: ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Call))(
        pointer_of(capsule, b"int (pb_call *)")
    )
    for slot, (_, capsule) in KERNELS.items()
}


def takes(slot: str, dtype: str) -> bool:
    """Say whether a slot is registered for a dtype."""
    return bool(KERNELS[slot][0] >> IDS[DTYPES[dtype]] & 1)


def dtypes_of(slot: str) -> list[str]:
    """Return the names of the dtypes that a slot is registered for."""
    return [name for name in DTYPES if takes(slot, name)]


def describe(operand: np.ndarray | Scalar, flags: int = 0) -> Array:
    """Return the struct for an operand. It borrows the array's memory."""
    if isinstance(operand, Scalar):
        return describe(np.asarray(operand.value), HOST)
    shape = (ctypes.c_int64 * max(1, operand.ndim))(*operand.shape)
    counts = [step // operand.itemsize for step in operand.strides]
    strides = (ctypes.c_int64 * max(1, operand.ndim))(*counts)
    array = Array(
        size=ctypes.sizeof(Array),
        dtype=IDS[operand.dtype],
        flags=flags,
        ndim=operand.ndim,
        data=operand.ctypes.data,
        base=operand.ctypes.data,
        shape=ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
        strides=ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)),
    )
    array.alive = (operand, shape, strides)
    return array


def _describe_param(value: float | tuple[int, ...]) -> Param:
    if isinstance(value, tuple):
        return Param(kind=2, count=len(value), ints=(ctypes.c_int64 * len(value))(*value))
    if isinstance(value, float):
        return Param(kind=1, d=value)
    bits = ctypes.c_int64(value & (2**64 - 1)).value
    return Param(kind=0, i=bits, d=float(value))


class Prepared:
    """A call that can be made many times; it keeps everything that it points to."""

    def __init__(self, slot: str, outs, ins, params=()):
        self.function = FUNCTIONS[slot]
        self.outs = [describe(operand, WRITE) for operand in outs]
        self.ins = [describe(operand) for operand in ins]
        self.out_pointers = self._pointers(self.outs)
        self.in_pointers = self._pointers(self.ins)
        self.params = (Param * max(1, len(params)))(*map(_describe_param, params))
        self.message = ctypes.create_string_buffer(MESSAGE_SIZE)
        self.call = Call(
            size=ctypes.sizeof(Call),
            nout=len(self.outs),
            nin=len(self.ins),
            nparam=len(params),
            out=self.out_pointers,
            in_=self.in_pointers,
            param=self.params,
            message=ctypes.cast(self.message, ctypes.c_char_p),
        )
        self.reference = ctypes.byref(self.call)

    @staticmethod
    def _pointers(arrays: list[Array]):
        return (ctypes.POINTER(Array) * max(1, len(arrays)))(*map(ctypes.pointer, arrays))

    def run(self) -> None:
        """Make the call; raise KernelError if the kernel fails."""
        code = self.function(self.reference)
        if code != OK:
            raise KernelError(code, self.message.value.decode())


def run_kernel(slot: str, outs, ins, *params: float | tuple[int, ...]) -> None:
    """Call the kernel of a slot; one output needs no list around it."""
    Prepared(slot, [outs] if isinstance(outs, np.ndarray) else outs, ins, params).run()
