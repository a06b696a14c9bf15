"""The plugin that pullback finds in this package: the device ``cuda`` and its kernels."""

from __future__ import annotations

from importlib import import_module

from pullback.backend import hookimpl
from pullback_cuda.runtime.driver import start_driver

DEVICE = "cuda"


@hookimpl
def pullback_backend(device: str) -> object | None:
    """Return the capsule with memory and devices, or None for a device of another plugin.

    Raises: ImportError or RuntimeError, with one sentence that says what is missing.
    """
    if device != DEVICE:
        return None
    start_driver()  # before anything compiled: what is missing is said in one sentence
    from pullback_cuda.runtime import backend, devices

    backend.bind(devices.connect())
    import_module("pullback_cuda.fused.executor").offer(backend.BACKEND)
    return backend.BACKEND


@hookimpl
def pullback_register_kernels(table, device: str) -> None:
    """Register the kernels."""
    if device != DEVICE:
        return
    from pullback_cuda.kernels import KERNELS

    for primitive, (mask, kernel) in KERNELS.items():
        table.add(primitive, mask, kernel)
