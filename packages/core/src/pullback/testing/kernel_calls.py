"""Call one compiled kernel on NumPy arrays, with the structs of ``abi.h`` as core builds them.

For tests of a backend whose kernels read the memory of the host: the conformance suite looks at
ops, these calls at one kernel, with operands of any strides.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "FUNCTION",
    "Array",
    "Call",
    "KernelCall",
    "KernelError",
    "Param",
    "Scalar",
    "call_kernel",
    "dtype_code",
    "pointer_of",
]

HOST, WRITE = 1, 2  # flags of an array: a scalar in host memory; an output
OK, E_RUNTIME, E_MEMORY, E_INDEX, E_VALUE, E_DTYPE, E_PYTHON = range(7)
MESSAGE_SIZE = 256
_DTYPES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "uint16",
    "uint32",
    "uint64",
    "complex32",
)
_INTS = ctypes.POINTER(ctypes.c_int64)


class Array(ctypes.Structure):
    """``pb_array``; strides count elements."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("dtype", ctypes.c_int16),
        ("flags", ctypes.c_int16),
        ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("data", ctypes.c_void_p),
        ("base", ctypes.c_void_p),
        ("offset", ctypes.c_int64),
        ("shape", _INTS),
        ("strides", _INTS),
    ]


class Param(ctypes.Structure):
    """``pb_param``: an int (kind 0), a float (1) or several ints (2)."""

    _fields_ = [
        ("kind", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("i", ctypes.c_int64),
        ("d", ctypes.c_double),
        ("ints", _INTS),
    ]


class Call(ctypes.Structure):
    """``pb_call``."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("primitive", ctypes.c_int32),
        ("nout", ctypes.c_int32),
        ("nin", ctypes.c_int32),
        ("nparam", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("out", ctypes.POINTER(ctypes.POINTER(Array))),
        ("in_", ctypes.POINTER(ctypes.POINTER(Array))),
        ("param", ctypes.POINTER(Param)),
        ("stream", ctypes.c_void_p),
        ("backend", ctypes.c_void_p),
        ("message", ctypes.POINTER(ctypes.c_char)),
    ]


FUNCTION = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Call))
FUNCTION.__doc__ = "A kernel, ``int (pb_call *)``; it is called with the interpreter lock held."


class Scalar(NamedTuple):
    """An input that is one number in host memory, as Python's numbers arrive."""

    value: np.generic | np.ndarray


class KernelError(Exception):
    """What a kernel returned when it did not return 0: its ``code`` and ``message``."""

    def __init__(self, code: int, message: str):
        super().__init__(code, message)
        self.code = code
        self.message = message


def dtype_code(dtype: np.dtype) -> int:
    """Return the number of a dtype in ``abi.h``; ``bfloat16`` is that of ml_dtypes.

    Raises: ValueError for dtypes that no tensor has, and for numbers with swapped bytes.

    >>> import numpy
    >>> from pullback.testing.kernel_calls import dtype_code
    >>> dtype_code(numpy.dtype("float32"))
    8
    """
    dtype = np.dtype(dtype)
    if dtype.name not in _DTYPES or not dtype.isnative:
        raise ValueError(f"no tensor has the dtype {dtype}")
    return _DTYPES.index(dtype.name)


def pointer_of(capsule: object, name: bytes) -> int:
    """Return the address that a capsule of this name has.

    Raises: ValueError for a capsule of another name, TypeError for anything but a capsule.
    """
    if type(capsule).__name__ != "PyCapsule":
        raise TypeError(f"expected a PyCapsule, got {type(capsule).__name__}")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, name)


def _numbers(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def _array(operand: np.ndarray | Scalar, flags: int = 0) -> Array:
    """Return the struct for an operand. It borrows the array's memory."""
    if isinstance(operand, Scalar):
        return _array(np.asarray(operand.value), HOST)
    if not isinstance(operand, np.ndarray):
        raise TypeError(f"operands must be arrays or Scalars, not {type(operand).__name__}")
    if any(step % operand.itemsize for step in operand.strides):
        raise ValueError(
            f"strides must be whole elements, not {operand.strides} bytes of elements "
            f"of {operand.itemsize}"
        )
    if flags & WRITE and not operand.flags.writeable:
        raise ValueError("an output is read-only")
    shape = _numbers(operand.shape)
    strides = _numbers([step // operand.itemsize for step in operand.strides])
    array = Array(
        size=ctypes.sizeof(Array),
        dtype=dtype_code(operand.dtype),
        flags=flags,
        ndim=operand.ndim,
        data=operand.ctypes.data,
        base=operand.ctypes.data,
        shape=ctypes.cast(shape, _INTS),
        strides=ctypes.cast(strides, _INTS),
    )
    array.alive = (operand, shape, strides)
    return array


def _bits(value: Any) -> int:
    """Return an integer of 64 bits; those from 2**63 on have the bits of an unsigned one."""
    number = operator.index(value)
    if not -(2**63) <= number < 2**64:
        raise OverflowError(f"an int parameter must fit into 64 bits, got {number}")
    return ctypes.c_int64(number).value


def _param(value: float | Sequence[int]) -> Param:
    if isinstance(value, (tuple, list)):
        numbers = _numbers(list(map(_bits, value)))
        param = Param(kind=2, count=len(value), ints=ctypes.cast(numbers, _INTS))
        param.alive = numbers
        return param
    if isinstance(value, (float, np.floating)):
        return Param(kind=1, d=value)
    if not hasattr(value, "__index__"):
        raise TypeError(
            f"a parameter must be an int, a float or several ints, not {type(value).__name__}"
        )
    return Param(kind=0, i=_bits(value), d=float(value))


def _pointers(arrays: list[Array]) -> Any:
    return (ctypes.POINTER(Array) * max(1, len(arrays)))(*map(ctypes.pointer, arrays))


class KernelCall:
    """A call that can be made many times; it keeps everything that it points to.

    ``kernel``: the capsule that a plugin registers for a primitive, or a ``FUNCTION``.
    ``outs``, ``ins``: arrays of any strides; inputs may be ``Scalar``.
    ``params``: ints, floats and tuples of ints, in the order of the primitive's declaration.

    Raises: TypeError and ValueError for what no kernel can be given, OverflowError for large ints.
    """

    def __init__(
        self,
        kernel: object,
        outs: Sequence[np.ndarray],
        ins: Sequence[np.ndarray | Scalar],
        params: Sequence[float | tuple[int, ...]] = (),
    ):
        self.function = (
            kernel
            if isinstance(kernel, FUNCTION)
            else FUNCTION(pointer_of(kernel, b"int (pb_call *)"))
        )
        self.outs = [_array(operand, WRITE) for operand in outs]
        self.ins = [_array(operand) for operand in ins]
        self._described = list(map(_param, params))
        self.message = ctypes.create_string_buffer(MESSAGE_SIZE)
        self.call = Call(
            size=ctypes.sizeof(Call),
            nout=len(self.outs),
            nin=len(self.ins),
            nparam=len(params),
            out=_pointers(self.outs),
            in_=_pointers(self.ins),
            param=(Param * max(1, len(params)))(*self._described),
            message=ctypes.cast(self.message, ctypes.POINTER(ctypes.c_char)),
        )
        self.reference = ctypes.byref(self.call)

    def run(self) -> None:
        """Make the call.

        Raises: KernelError if the kernel returns anything but 0.
        """
        self.message.value = b""
        code = self.function(self.reference)
        if code != OK:
            raise KernelError(code, self.message.value.decode(errors="replace"))


def call_kernel(
    kernel: object,
    outs: np.ndarray | Sequence[np.ndarray],
    ins: Sequence[np.ndarray | Scalar],
    *params: float | tuple[int, ...],
) -> None:
    """Call a kernel on arrays; one output needs no list around it.

    Raises: KernelError if it fails.

    >>> import ctypes, numpy
    >>> from pullback.testing.kernel_calls import FUNCTION, call_kernel
    >>> @FUNCTION
    ... def fill(call):
    ...     out, param = call.contents.out[0].contents, call.contents.param[0]
    ...     numbers = ctypes.cast(out.data, ctypes.POINTER(ctypes.c_double))
    ...     for i in range(out.shape[0]):
    ...         numbers[i * out.strides[0]] = param.d
    ...     return 0
    >>> array = numpy.zeros(4)
    >>> call_kernel(fill, array[::2], [], 7.0)
    >>> array
    array([7., 0., 7., 0.])
    """
    KernelCall(kernel, [outs] if isinstance(outs, np.ndarray) else outs, ins, params).run()
