"""Plugin of the device ``ref``: registers the reference kernels.

There is no ``pullback_backend`` hook here because core itself gives ``ref`` its memory.
"""

from __future__ import annotations

from typing import Any

from ..backend import hookimpl
from . import (
    binary,
    convolution,
    creation,
    elementwise,
    fused,
    indexing,
    interpolation,
    linalg,
    losses,
    pooling,
    reductions,
)
from .arrays import Kernel

KERNELS: dict[str, tuple[int, Kernel]] = {
    **elementwise.KERNELS,
    **binary.KERNELS,
    **convolution.KERNELS,
    **creation.KERNELS,
    **reductions.KERNELS,
    **losses.KERNELS,
    **pooling.KERNELS,
    **interpolation.KERNELS,
    **linalg.KERNELS,
    **indexing.KERNELS,
    **fused.KERNELS,
}


@hookimpl
def pullback_register_kernels(table: Any, device: str) -> None:
    """Add a callable for every primitive."""
    if device != "ref":
        return
    for primitive, (mask, kernel) in KERNELS.items():
        table.add(primitive, mask, kernel)
