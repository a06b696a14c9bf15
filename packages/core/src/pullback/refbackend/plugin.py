"""Plugin of the device ``ref``: registers a kernel for each required primitive.

The others run as their decompositions, as on any device whose backend has no kernel for them; the
random generators and what makes tensors of numbers have kernels too.

There is no ``pullback_backend`` hook here because core itself gives ``ref`` its memory.
"""

from __future__ import annotations

from typing import Any

from ..backend import hookimpl
from . import (
    binary,
    creation,
    elementwise,
    fft,
    indexing,
    linalg,
    reductions,
    special,
)
from .arrays import Kernel

KERNELS: dict[str, tuple[int, Kernel]] = {
    **elementwise.KERNELS,
    **binary.KERNELS,
    **creation.KERNELS,
    **reductions.KERNELS,
    **linalg.KERNELS,
    **fft.KERNELS,
    **indexing.KERNELS,
    **special.KERNELS,
}


@hookimpl
def pullback_register_kernels(table: Any, device: str) -> None:
    """Add the callables of the required primitives, and of those without inputs."""
    if device != "ref":
        return
    for primitive, (mask, kernel) in KERNELS.items():
        table.add(primitive, mask, kernel)
