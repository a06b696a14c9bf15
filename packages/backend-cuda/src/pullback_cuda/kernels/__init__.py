"""Kernels for CUDA devices: a capsule for each slot, with the dtypes that it is good for.

A module here is the host side: it looks at a call, chooses a kernel and its arguments, and launches
it. The kernels are in the .cu files, compiled ahead; arguments are declared in the .h files.
"""

from __future__ import annotations

from importlib import import_module

MODULES = (
    "convolution",
    "copy",
    "create",
    "gather",
    "index",
    "matmul",
    "move",
    "nll",
    "nonzero",
    "normalize",
    "operations",
    "random",
    "reduce",
    "resample",
    "scan",
    "searchsorted",
    "softmax",
    "solve",
    "sort",
    "svd",
    "windows",
)

KERNELS: dict[str, tuple[int, object]] = {}
for _name in MODULES:
    KERNELS.update(import_module(f"{__name__}.{_name}").KERNELS)
