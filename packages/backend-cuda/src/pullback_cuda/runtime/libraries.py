"""cuBLAS, cuSOLVER and cuFFT, through nvmath.bindings: looked up when they are first needed.

A handle belongs to a device and one of its streams: work on two streams must not share a workspace.
"""

from __future__ import annotations

import importlib

from pullback_cuda.runtime import contexts

MISSING = (
    "{what} on the cuda device needs {library}, which cannot be loaded ({reason}): run "
    "`pip install pullback-cuda[driver,blas]`, or put the CUDA toolkit's libraries on "
    "LD_LIBRARY_PATH"
)

_handles: dict[tuple[str, int, int], int] = {}


def load(name: str, library: str, what: str):
    """Return a module of nvmath.bindings.

    Raises: RuntimeError that says what to install.
    """
    try:
        return importlib.import_module(f"nvmath.bindings.{name}")
    except ImportError as error:
        raise RuntimeError(MISSING.format(what=what, library=library, reason=error)) from error


def handle(name: str, library: str, what: str, device: int, stream: int) -> int:
    """Return the handle of a library for a device's stream, whose context is current.

    Raises: RuntimeError that says what to install, or what the library reports.
    """
    key = (name, device, stream)
    found = _handles.get(key)
    if found is None:
        bindings = load(name, library, what)
        try:
            found = bindings.create()
        except Exception as error:  # nvmath's own classes, and those of its loader
            if type(error).__name__.endswith(f"{library}Error"):
                text = f"cuda:{device}: {library} cannot start: {error}"
            else:
                text = MISSING.format(what=what, library=library, reason=error)
            raise RuntimeError(text) from error
        try:
            bindings.set_stream(found, contexts.stream_at(device, stream).handle)
        except Exception as error:
            bindings.destroy(found)
            raise RuntimeError(f"cuda:{device}: {library} cannot start: {error}") from error
        _handles[key] = found
    return found


def blas_handle(device: int, stream: int) -> int:
    """Return cuBLAS's handle for a device's stream."""
    return handle("cublas", "cuBLAS", "a matrix product", device, stream)


def solver_handle(device: int, stream: int) -> int:
    """Return cuSOLVER's handle for a device's stream."""
    return handle("cusolverDn", "cuSOLVER", "linear algebra", device, stream)


def product_function() -> object:
    """Return a capsule with the address of cuBLAS's product of batches of matrices."""
    load("cublas", "cuBLAS", "a matrix product")
    module = importlib.import_module("nvmath.bindings.cycublas")
    return module.__pyx_capi__["cublasGemmStridedBatchedEx_64"]
