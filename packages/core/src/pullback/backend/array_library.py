"""A device whose memory and kernels are those of an array library with the array API standard.

An allocation is one of its arrays of bytes. Operands of kernels are views of that memory, with any
strides and dtype, which the library makes of the structs of dlpack.h, dmlc/dlpack 1.0.
"""

from __future__ import annotations

import ctypes
import inspect
import math
from importlib import import_module
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from pullback._c.base.dtype import ALL as ALL_DTYPES
from pullback.backend import masks
from pullback.backend.results import misfit
from pullback.ops.table.primitives import PRIMITIVES

__all__ = ["ArrayLibrary"]

CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}  # DLPack's, by NumPy's letters
HALVES = ("float16", "bfloat16")  # which the standard does not have: seen as uint16
FLOATS = masks.F32 | masks.F64
INEXACT = FLOATS | masks.COMPLEX
NUMBERS = INEXACT | masks.INTEGRAL
REAL = FLOATS | masks.INTEGRAL
# Primitives that are functions of the standard, with its name where that is another.
_DIRECT = {
    FLOATS: "acos acosh asin asinh atan2 atanh ceil cosh expm1 floor log10 log1p log2 maximum "
    "minimum pow reciprocal round sinh tan tanh trunc",
    INEXACT: "atan cos div=divide exp log sin sqrt",
    NUMBERS: "add bmm=matmul mul=multiply sub=subtract",
    REAL: "ge=greater_equal gt=greater le=less_equal lt=less",
    masks.BOOL | masks.INTEGRAL: "bitwise_and bitwise_not=bitwise_invert bitwise_or bitwise_xor",
    masks.BOOL: "add=logical_or mul=logical_and",
    masks.ALL: "eq=equal ne=not_equal where",
}
DIRECT = [(mask, pair) for mask, pairs in _DIRECT.items() for pair in pairs.split()]
quietly = np.errstate(all="ignore")  # which libraries made of NumPy warn of
VERSIONED = (b"dltensor_versioned", b"dltensor")


class Tensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = [
        *(("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32)),
        *(("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)),
        *(("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)),
    ]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    """DLPack's first struct, DLManagedTensor."""

    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]


class Versioned(ctypes.Structure):
    """DLPack's second struct, DLManagedTensorVersioned."""

    _fields_ = [
        *(("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", Deleter)),
        *(("flags", ctypes.c_uint64), ("tensor", Tensor)),
    ]


def _call(name: str, result: Any, *arguments: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _call("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer = _call("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_is_named = _call("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_lent: dict[int, tuple] = {}  # structs that a library holds, by address, with what they point to


@Deleter
def _release(address):
    _lent.pop(address, None)


class Memory(NamedTuple):
    """Part of an allocation, which libraries import as an array: for one kernel call."""

    pair: tuple
    address: int
    shape: tuple
    strides: tuple
    dtype: Any

    def __dlpack_device__(self):
        return self.pair

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        sizes = (ctypes.c_int64 * len(self.shape))(*self.shape)
        strides = (ctypes.c_int64 * len(self.strides))(*self.strides)
        kind, bits = CODES[self.dtype.kind], 8 * self.dtype.itemsize
        tensor = Tensor(
            *(self.address, self.pair, len(self.shape), kind, bits, 1),
            *(ctypes.addressof(sizes), ctypes.addressof(strides), 0),
        )
        old = max_version is None or max_version[0] < 1
        made = (tensor, None, _release) if old else ((1, 0), None, _release, 0, tensor)
        struct: Any = (Managed if old else Versioned)(*made)
        _lent[ctypes.addressof(struct)] = struct, sizes, strides
        return _new(ctypes.addressof(struct), VERSIONED[old], None)


def address_of(array: Any) -> int:
    """Return the address of a library's array, from a DLPack capsule of it."""
    capsule = array.__dlpack__()
    kind: Any = Versioned if _is_named(capsule, VERSIONED[0]) else Managed
    tensor = kind.from_address(_pointer(capsule, VERSIONED[kind is Managed])).tensor
    return tensor.data + tensor.offset


class ArrayLibrary:
    """Memory and kernels of an array library: what a plugin gives the core.

    ``name``: the library's module, or one of array_api_compat; its arrays can be written, and
    import DLPack structs. ``pullback_backend`` returns the object, ``pullback_register_kernels``
    calls ``register``. Other primitives are composed of these, or run on the host.

    >>> from pullback.backend.array_library import ArrayLibrary
    >>> library = ArrayLibrary("numpy")
    >>> handle = library.allocate(0, 8)
    >>> library.write(0, handle, 0, memoryview(b"abcdefgh"))
    >>> target = bytearray(4)
    >>> library.read(0, handle, 2, memoryview(target)); target
    bytearray(b'cdef')
    """

    def __init__(self, name: str):
        self.xp: Any = import_module(name)
        self.blocks: dict[int, Any] = {}
        self.pair = tuple(map(int, self.xp.empty(1, dtype=self.xp.uint8).__dlpack_device__()))
        offered = [d for d in ALL_DTYPES if hasattr(self.xp, d.name) and d.name not in HALVES]
        self.dtypes = sum(1 << dtype.code for dtype in offered)

    def allocate(self, device: int, nbytes: int) -> int:
        """Return the address of a new array of bytes."""
        block = self.xp.empty((max(nbytes, 1),), dtype=self.xp.uint8)
        address = address_of(block)
        self.blocks[address] = block
        return address

    def release(self, device: int, handle: int, nbytes: int) -> None:
        """Forget an array."""
        del self.blocks[handle]

    def part(self, address: int, shape, strides, dtype: str) -> Any:
        """Return a view of memory as the library's array."""
        if 0 in shape:
            return self.xp.empty(shape, dtype=getattr(self.xp, dtype))
        return self.xp.from_dlpack(Memory(self.pair, address, shape, strides, np.dtype(dtype)))

    def write(self, device: int, handle: int, offset: int, source: memoryview) -> None:
        """Copy host bytes into memory."""
        given = self.xp.asarray(np.frombuffer(bytes(source), np.uint8))
        self.row(handle + offset, source.nbytes)[...] = given

    def read(self, device: int, handle: int, offset: int, target: memoryview) -> None:
        """Copy memory into host bytes."""
        target.cast("B")[:] = self.to_host(self.row(handle + offset, target.nbytes)).tobytes()

    def copy(self, device, to, to_offset, source, source_offset, nbytes) -> None:
        """Copy bytes between allocations."""
        taken = self.xp.asarray(self.row(source + source_offset, nbytes), copy=True)
        self.row(to + to_offset, nbytes)[...] = taken

    def row(self, address: int, nbytes: int) -> Any:
        """Return bytes of memory as the library's array."""
        return self.part(address, (nbytes,), (1,), "uint8")

    def to_host(self, array: Any) -> np.ndarray:
        """Return a NumPy array of a library's."""
        if self.pair[0] != 1 and hasattr(array, "get"):  # cupy
            return array.get()
        return np.from_dlpack(array, device=None if self.pair[0] == 1 else "cpu")

    def view(self, operand: Any) -> Any:
        """Return an operand of a kernel as the library's array; a number as a 0-d one."""
        if operand.host:
            return self.xp.asarray(operand.value, dtype=getattr(self.xp, operand.dtype))
        dtype = "uint16" if operand.dtype in HALVES else operand.dtype
        address = operand.base + operand.offset * np.dtype(dtype).itemsize
        return self.part(address, operand.shape, operand.strides, dtype)

    def register(self, table: Any) -> None:
        """Register a kernel for each primitive that the standard has a function for."""
        for name, mask, function in functions_of(self.xp):
            if mask & self.dtypes and name in PRIMITIVES:
                table.add(name, mask & self.dtypes, self.kernel(function))
        table.add("copy", self.dtypes, self.cast)

    def kernel(self, function: Any) -> Any:
        """Return a kernel that stores a function's result; ``shape`` is that of the output.

        The result has that shape, and a dtype of the output's kind: what else it is raises.
        """
        if not callable(function):
            raise TypeError(f"kernel() takes a function of arrays, got {type(function).__name__}")
        try:
            shaped = "shape" in inspect.signature(function).parameters
        except (TypeError, ValueError):  # of functions in C, which say nothing of themselves
            shaped = False

        @quietly
        def run(out, *inputs, **params):
            if shaped:
                params["shape"] = out.shape
            self.store(out, function(*map(self.view, inputs), **params))

        return run

    def store(self, out: Any, value: Any) -> None:
        """Write a kernel's result into an operand of its shape, with a dtype of its kind.

        Raises: TypeError for something else: a number, another shape, floats for integers.
        """
        target = self.view(out)
        wrong = misfit(value, target.shape, target.dtype)
        if wrong is not None:
            raise TypeError(wrong)
        self.put(target, value)

    def put(self, target: Any, value: Any) -> None:
        """Write values into an array, cast to its dtype."""
        if value.dtype != target.dtype:
            value = self.xp.astype(self.xp.asarray(value), target.dtype, copy=False)
        target[...] = value

    @quietly
    def cast(self, out: Any, operand: Any) -> None:
        """Copy an operand into another one, cast as C casts; halves by way of the host."""
        xp, value = self.xp, self.view(operand)
        source = np.dtype(operand.dtype).kind
        wanted = "f" if out.dtype in HALVES else np.dtype(out.dtype).kind
        if source == "c" and wanted not in "cb":
            value = xp.real(value)
        if wanted == "b":
            value = value if source == "b" else value != 0
        elif wanted in "iu" and source in "fc":
            value = xp.astype(value, xp.int64)  # -1.0 is 255 as uint8
        if out.dtype in HALVES:
            half = np.float16 if out.dtype == "float16" else ml_dtypes.bfloat16
            value = xp.asarray(self.to_host(value).astype(half).view(np.uint16))
        self.put(self.view(out), value)


def functions_of(xp: Any) -> list[tuple[str, int, Any]]:
    """Return primitives, the dtypes that each serves, and the function of the library's arrays."""

    def axes(x, shape):
        return tuple(d for d in range(x.ndim) if x.shape[d] != shape[d])

    def over(function):
        return lambda x, shape: function(x, axis=axes(x, shape), keepdims=True)

    def extreme(function, infinity, limit):
        def found(x, shape):
            if math.prod(x.shape):
                return over(function)(x, shape)
            whole = xp.isdtype(x.dtype, "integral")
            end = getattr(xp.iinfo(x.dtype), limit) if whole else infinity
            return xp.full(shape, end, dtype=x.dtype)

        return found

    def position(function):
        def found(x, shape):
            over = axes(x, shape)
            if not over:
                return xp.zeros(shape, dtype=xp.int64)
            return function(x, axis=over[0] if len(over) == 1 else None, keepdims=True)

        return found

    def check(index, low, size):
        if math.prod(index.shape) and bool(xp.any((index < low) | (index >= size))):
            raise IndexError(f"index is out of bounds for dimension with size {size}")

    def gather(x, index, dim):
        check(index, 0, x.shape[dim] if x.ndim else 1)
        return xp.take_along_axis(x, index, axis=dim) if x.ndim else x

    def index(x, *indices):
        where: Any = 0
        for size, one in zip(x.shape, indices):
            check(one, -size, size)
            where = where * size + xp.where(one < 0, one + size, one)
        kept = x.shape[len(indices) :]
        rows = xp.reshape(x, (math.prod(x.shape[: len(indices)]), math.prod(kept)))
        taken = xp.take(rows, xp.reshape(where, (-1,)), axis=0)
        return xp.reshape(taken, (*where.shape, *kept))

    def call(pair):
        function = getattr(xp, pair.rpartition("=")[2])
        return lambda *inputs: function(*inputs)

    return [
        *((pair.partition("=")[0], mask, call(pair)) for mask, pair in DIRECT),
        *((name, masks.INTEGRAL, lambda x: x) for name in ("floor", "round")),
        ("lt", masks.BOOL, lambda x, y: ~x & y),
        *((name, masks.I64 | INEXACT, over(getattr(xp, name))) for name in ("prod", "sum")),
        ("amax", REAL, extreme(xp.max, -math.inf, "min")),
        ("amin", REAL, extreme(xp.min, math.inf, "max")),
        *((name, REAL, position(getattr(xp, name))) for name in ("argmax", "argmin")),
        ("cumsum", NUMBERS, lambda x, dim: xp.cumulative_sum(x, axis=dim, dtype=x.dtype)),
        ("gather", masks.ALL, gather),
        ("index", masks.ALL, index),
        ("nonzero", masks.ALL, lambda x: xp.stack(xp.nonzero(x), axis=-1)),
    ]
