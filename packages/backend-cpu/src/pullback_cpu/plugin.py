"""The plugin hooks of this package: the device ``cpu`` and its kernels."""

from __future__ import annotations

from pullback.backend import PRIMITIVE_IDS, hookimpl
from pullback.backend.threads import default_threads
from pullback_cpu import __version__
from pullback_cpu.kernels import KERNELS, OPTIONAL, TAKES_CONJ, offer_executors
from pullback_cpu.runtime import blas_loader, threadpools
from pullback_cpu.runtime.allocator import BACKEND
from pullback_cpu.runtime.threads import set_num_threads

DEVICE = "cpu"


@hookimpl
def pullback_backend(device: str) -> object | None:
    """Return the capsule with memory and devices, or None for a device of another plugin."""
    return BACKEND if device == DEVICE else None


@hookimpl
def pullback_register_kernels(table, device: str) -> None:
    """Register a kernel for every primitive."""
    if device == DEVICE:
        for primitive, (mask, kernel) in KERNELS.items():
            table.add(primitive, mask, kernel, conj=primitive in TAKES_CONJ)
        for primitive, (mask, kernel) in OPTIONAL.items():
            table.add(primitive, mask, kernel)


@hookimpl
def pullback_set_threads(count: int) -> None:
    """Limit the threads of the kernels and of BLAS."""
    set_num_threads(count)
    blas_loader.set_threads(count)


offer_executors(BACKEND, KERNELS, PRIMITIVE_IDS)
set_num_threads(default_threads())
threadpools.announce(__version__)
