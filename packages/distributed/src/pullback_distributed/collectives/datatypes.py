"""What MPI calls the dtypes of tensors and the ways to combine values."""

from __future__ import annotations

import functools
from typing import Any

import pullback
from pullback.distributed import ReduceOp
from pullback_distributed import mpi as MPI

# Halves travel as integers of their size: MPI moves them, and combines them with our kernels.
_NAMES = {
    pullback.bool: "UINT8_T",
    pullback.uint8: "UINT8_T",
    pullback.int8: "INT8_T",
    pullback.int16: "INT16_T",
    pullback.int32: "INT32_T",
    pullback.int64: "INT64_T",
    pullback.uint16: "UINT16_T",
    pullback.uint32: "UINT32_T",
    pullback.uint64: "UINT64_T",
    pullback.float16: "UINT16_T",
    pullback.bfloat16: "UINT16_T",
    pullback.complex32: "UINT32_T",
    pullback.float32: "FLOAT",
    pullback.float64: "DOUBLE",
    pullback.complex64: "C_FLOAT_COMPLEX",
    pullback.complex128: "C_DOUBLE_COMPLEX",
}
HALVES = (pullback.float16, pullback.bfloat16, pullback.complex32)
_OF_NUMBERS = {
    ReduceOp.SUM: "SUM",
    ReduceOp.AVG: "SUM",  # divided afterwards
    ReduceOp.PRODUCT: "PROD",
    ReduceOp.MIN: "MIN",
    ReduceOp.MAX: "MAX",
    ReduceOp.BAND: "BAND",
    ReduceOp.BOR: "BOR",
    ReduceOp.BXOR: "BXOR",
}
_OF_BOOLS = {  # stored as 0 and 1: a sum is "any", a product "all"
    **dict.fromkeys((ReduceOp.SUM, ReduceOp.MAX, ReduceOp.BOR), "BOR"),
    **dict.fromkeys((ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.BAND), "BAND"),
    ReduceOp.BXOR: "BXOR",
}
_COMBINING = {
    ReduceOp.SUM: "add",
    ReduceOp.PRODUCT: "mul",
    ReduceOp.MIN: "minimum",
    ReduceOp.MAX: "maximum",
}


@functools.cache
def datatype(dtype: Any) -> MPI.Datatype:
    """Return MPI's datatype for a dtype."""
    return getattr(MPI, _NAMES[dtype])


@functools.cache
def datatype_of_many(dtype: Any, count: int, row: int) -> MPI.Datatype:
    """Return a datatype for ``count`` elements, made of rows of as many as MPI counts."""
    rows, rest = divmod(count, row)
    element = datatype(dtype)
    parts = [element.Create_contiguous(row).Create_contiguous(rows)]
    parts.append(element.Create_contiguous(rest))
    places = [0, rows * row * dtype.itemsize]
    return MPI.Datatype.Create_struct([1, 1], places, parts).Commit()


@functools.cache
def reduction(dtype: Any, op: ReduceOp) -> MPI.Op:
    """Return MPI's op for a dtype.

    Raises: RuntimeError where the values of the dtype cannot be combined so; TypeError if ``op`` is
    no ReduceOp.
    """
    if not isinstance(op, ReduceOp):
        raise TypeError(f"expected a ReduceOp, such as ReduceOp.SUM, but got {op!r}")
    whole = not dtype.is_floating_point and not dtype.is_complex
    refused = (
        op is ReduceOp.PREMUL_SUM
        or (dtype.is_complex and op in (ReduceOp.MIN, ReduceOp.MAX))
        or (whole and op is ReduceOp.AVG)
        or (not whole and op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR))
    )
    if refused:
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with {dtype}")
    if dtype is pullback.bool:
        return getattr(MPI, _OF_BOOLS[op])
    if dtype in HALVES:
        return _op_of_halves(dtype, ReduceOp.SUM if op is ReduceOp.AVG else op)
    return getattr(MPI, _OF_NUMBERS[op])


@functools.cache
def _op_of_halves(dtype: Any, op: ReduceOp) -> MPI.Op:
    """Return an op of our own for a dtype that MPI does not know."""
    combine = getattr(pullback, _COMBINING[op])

    def run(received: Any, kept: Any, datatype: Any) -> None:
        if not len(kept):
            return
        with pullback.no_grad():
            of_kept = pullback.frombuffer(kept, dtype=dtype)
            combine(of_kept, pullback.frombuffer(received, dtype=dtype), out=of_kept)

    return MPI.Op.Create(run, commute=True)
