"""Kernels for host memory: one for every slot, as a capsule with the dtypes it is good for."""

from __future__ import annotations

from pullback_cpu.kernels import (
    argreduce,
    binary,
    binary_more,
    compare,
    copy,
    create,
    cumsum,
    functions,
    gather,
    index,
    matmul,
    nonzero,
    power,
    random,
    reduce,
    softmax,
    sort,
    unary,
    where,
)

KERNELS: dict[str, tuple[int, object]] = {}
for _module in (
    argreduce,
    binary,
    binary_more,
    compare,
    copy,
    create,
    cumsum,
    functions,
    gather,
    index,
    matmul,
    nonzero,
    power,
    random,
    reduce,
    softmax,
    sort,
    unary,
    where,
):
    KERNELS.update(_module.KERNELS)
