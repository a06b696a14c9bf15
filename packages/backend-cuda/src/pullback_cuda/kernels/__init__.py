"""Kernels for CUDA devices: a capsule for each primitive, with the dtypes that it is good for.

Modules stand in folders by family. A .pyx is the host side: it looks at a call, chooses a kernel
and its arguments, and launches it. The kernels are in the .cu files, compiled ahead; arguments
are declared in the .h files.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

#: The kernel of each primitive, and the dtypes it is good for.
KERNELS: dict[str, tuple[int, object]] = {}
for _module in walk_packages(__path__, f"{__name__}."):
    KERNELS.update(getattr(import_module(_module.name), "KERNELS", {}))
