"""Load SciPy's BLAS and LAPACK when the first product or system of a size for them comes."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import threading
from typing import Any

_WRAPPERS = ("scipy.linalg.cython_blas", "scipy.linalg.cython_lapack")
_loading = threading.Lock()
_threads: int | None = None  # how many were asked for, perhaps before BLAS was loaded


def load_routines() -> object:
    """Return the capsule with the addresses of the routines of BLAS and LAPACK."""
    blas = _import_whole()
    if _threads is not None:
        blas.set_thread_count(_threads)
    return blas.ROUTINES


def set_threads(count: int) -> None:
    """Let BLAS use at most so many threads; one that is not loaded yet is limited when it is."""
    global _threads
    _threads = count
    blas = sys.modules.get("pullback_cpu.gemm.blas")
    if blas is not None:
        blas.set_thread_count(count)


def _import_whole() -> Any:
    """Import our module in another thread, where no signal handler can end the import half-way.

    NumPy, which comes with it, cannot be imported again after that. An exception of a handler
    leaves here while the other thread goes on.
    """
    found: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with _loading:
                found.append(_import_blas())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    try:
        thread.start()
    except RuntimeError:  # no thread can be had
        work()
    else:
        thread.join()
    if failed:
        raise failed[0]
    return found[0]


def _import_blas() -> Any:
    """Import our module that is linked to SciPy's modules of wrappers.

    The package ``scipy.linalg`` takes a quarter of a second to import, its modules of wrappers
    a tenth of that. So they are loaded alone, and taken out of ``sys.modules`` again: a later
    import of one goes through its package as usual.
    """
    borrowed = [name for name in _WRAPPERS if name not in sys.modules and load_alone(name)]
    try:
        return importlib.import_module("pullback_cpu.gemm.blas")
    finally:
        for name in borrowed:
            sys.modules.pop(name, None)


def load_alone(name: str) -> bool:
    """Put a compiled module of SciPy into ``sys.modules``, without the packages that it is in.

    Returns whether that worked; if not, an ordinary import reports what is wrong.
    """
    scipy = importlib.util.find_spec("scipy")
    folders = scipy.submodule_search_locations if scipy is not None else None
    for folder in folders or ():
        place = os.path.join(folder, *name.split(".")[1:-1])
        spec = importlib.machinery.PathFinder.find_spec(name, [place])
        if spec is None or spec.loader is None:
            continue
        try:
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            spec.loader.exec_module(module)
        except Exception:
            sys.modules.pop(name, None)
            return False
        return True
    return False
