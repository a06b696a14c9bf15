"""The kernels of the CPU backend by primitive, and the names of the dtypes that they take."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from pullback.testing.kernel_calls import KernelCall, call_kernel
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
REAL = tuple(DTYPES)[1:10]
INTEGRAL = REAL[:5]
FLOATING = REAL[5:]
COMPLEX = ("c64", "c128")


def takes(primitive: str, dtype: str) -> bool:
    """Say whether a primitive is registered for a dtype."""
    return bool(KERNELS[primitive][0] >> list(DTYPES).index(dtype) & 1)


def dtypes_of(primitive: str) -> list[str]:
    """Return the names of the dtypes that a primitive is registered for."""
    return [name for name in DTYPES if takes(primitive, name)]


class Prepared(KernelCall):
    """A call of the kernel of a primitive."""

    def __init__(self, primitive: str, outs, ins, params=()):
        super().__init__(KERNELS[primitive][1], outs, ins, params)


def run_kernel(primitive: str, outs, ins, *params: float | tuple[int, ...]) -> None:
    """Call the kernel of a primitive; one output needs no list around it."""
    call_kernel(KERNELS[primitive][1], outs, ins, *params)
