"""Kernels for host memory: one for every slot, as a capsule with the dtypes it is good for."""

from __future__ import annotations

from importlib import import_module

KERNELS: dict[str, tuple[int, object]] = {}
for _name in (
    "argreduce",
    "binary",
    "binary_more",
    "compare",
    "copy",
    "create",
    "cumextreme",
    "cumsum",
    "functions",
    "gather",
    "index",
    "matmul",
    "nonzero",
    "power",
    "random",
    "reduce",
    "softmax",
    "solve",
    "svd",
    "sort",
    "unary",
    "where",
):
    KERNELS.update(import_module(f"{__name__}.{_name}").KERNELS)
