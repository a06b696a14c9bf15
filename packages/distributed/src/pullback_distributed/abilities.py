"""What the MPI library can do, found out when it is first of use."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

from pullback_distributed import mpi as MPI

LEVELS = ("MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED")
CUDA_AWARE = "PULLBACK_DISTRIBUTED_CUDA_AWARE"


def cuda_aware_by_environment() -> bool | None:
    """Return what the environment says of CUDA-awareness; None if it says nothing.

    Raises: ValueError for a value that is neither 0 nor 1.

    >>> from pullback_distributed.abilities import cuda_aware_by_environment
    >>> cuda_aware_by_environment() is None
    True
    """
    value = os.environ.get(CUDA_AWARE, "").strip()
    if value not in ("", "0", "1"):
        raise ValueError(f"{CUDA_AWARE}: expected 0 or 1, but it is {value!r}")
    return None if value == "" else value == "1"


@functools.cache
def is_cuda_aware() -> bool:
    """Return whether MPI reads and writes the memory of CUDA devices.

    The library is asked, by a function that Open MPI and MPICH have; one without it cannot.
    Raises: ValueError as ``cuda_aware_by_environment``.

    >>> from pullback_distributed.abilities import is_cuda_aware
    >>> is_cuda_aware() in (False, True)
    True
    """
    told = cuda_aware_by_environment()
    if told is not None:
        return told
    MPI.Get_version()  # which loads and starts it
    library = ctypes.CDLL(sys.modules["mpi4py.MPI"].__file__)
    try:
        ask = library.MPIX_Query_cuda_support
    except AttributeError:
        return False
    ask.restype = ctypes.c_int
    return bool(ask())


@functools.cache
def missing_threads() -> str | None:
    """Return the level of thread support that MPI gives if only one thread may use it, else None.

    >>> from pullback_distributed.abilities import missing_threads
    >>> missing_threads() in (None, "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED")
    True
    """
    given = MPI.Query_thread()
    order = (MPI.THREAD_SINGLE, MPI.THREAD_FUNNELED, MPI.THREAD_SERIALIZED)
    return LEVELS[order.index(given)] if given in order else None


@functools.cache
def largest_count() -> int:
    """Return how many elements one call of MPI takes: before its version 4 a count is an int.

    >>> from pullback_distributed.abilities import largest_count
    >>> largest_count() >= 2**31 - 1
    True
    """
    return sys.maxsize if MPI.Get_version() >= (4, 0) else 2**31 - 1
