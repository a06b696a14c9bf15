"""Kernels for CUDA devices: a capsule for each primitive, with the dtypes that it supports.

A folder is a family. A .pyx file is the host side: it reads a call, chooses a kernel and its
arguments, and launches it. The .cu files have the kernels, compiled when the wheel is built; the
.h files declare their arguments.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

#: The kernel of each primitive, and the dtypes that it supports.
KERNELS: dict[str, tuple[int, object]] = {}
for _module in walk_packages(__path__, f"{__name__}."):
    KERNELS.update(getattr(import_module(_module.name), "KERNELS", {}))
