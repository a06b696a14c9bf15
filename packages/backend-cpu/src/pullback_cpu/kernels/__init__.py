"""Kernels for host memory: one for every slot, as a capsule with the dtypes it is good for."""

from __future__ import annotations

from importlib import import_module

from pullback_cpu.kernels.levels import load_kernels

KERNELS: dict[str, tuple[int, object]] = {}
# Compiled once for each level (see levels.py).
for _name in (
    "activations",
    "argreduce",
    "binary",
    "binary_more",
    "compare",
    "convolution",
    "convolution_weight",
    "copy",
    "functions",
    "gather",
    "index",
    "moments",
    "normalize",
    "power",
    "random",
    "rearrange",
    "reduce",
    "resample",
    "scan",
    "searchsorted",
    "softmax",
    "sort",
    "ternary",
    "unary",
    "where",
    "windows",
):
    KERNELS.update(load_kernels(_name).KERNELS)
# Compiled once: what BLAS and LAPACK do, and what has nothing for vectors.
for _name in ("create", "cumextreme", "matmul", "nll", "nonzero", "solve", "svd"):
    KERNELS.update(import_module(f"{__name__}.{_name}").KERNELS)
#: Slots whose kernels take conjugates as they are stored.
TAKES_CONJ = import_module(f"{__name__}.matmul").TAKES_CONJ
