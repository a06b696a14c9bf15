# The threads that share the work of one kernel call; threads.h has the code.
from cpython.pycapsule cimport PyCapsule_GetPointer

from pullback.abi cimport PB_INTERRUPTED_CAPSULE, pb_interrupted
from pullback_cpu.runtime.threads cimport *

from pullback.backend import INTERRUPTED

cdef extern from "runtime/threads.h":
    ctypedef void (*pb_body)(void *context, int64_t first, int64_t last) noexcept nogil
    int pb_threads_start()
    pb_interrupted pb_ask
    int pb_stopping() noexcept nogil
    int pb_parallel_for(int64_t n, int64_t grain, pb_body body, void *context) noexcept nogil
    void pb_hold_threads(int change) noexcept nogil
    int pullback_cpu_get_num_threads() noexcept nogil
    void pullback_cpu_set_num_threads(int count) noexcept nogil


cdef bint parallel_for(int64_t n, int64_t grain, parallel_body body, void *context) noexcept nogil:
    """Run ``body`` over the numbers below ``n``, in chunks, on as many threads as are free.

    Each chunk begins at a multiple of ``grain``. True if the call shall end: a part was left out,
    and nothing may rely on what ``body`` would have done.
    """
    return pb_parallel_for(n, grain, body, context)


cdef bint stopping() noexcept nogil:
    """Return whether the call shall end. Loops that take longer than some milliseconds poll this.

    ``parallel_for`` polls between parts of its chunks, so a body polls only within one grain.
    """
    return pb_stopping()


cdef void hold_threads() noexcept nogil:
    """Keep threads awake between the jobs of a call, which must call ``release_threads``."""
    pb_hold_threads(1)


cdef void release_threads() noexcept nogil:
    """Let threads sleep that have nothing to do."""
    pb_hold_threads(-1)


cdef int thread_count() noexcept nogil:
    """Return how many threads one call may use."""
    return pullback_cpu_get_num_threads()


def get_num_threads():
    """Return how many threads one kernel call may use."""
    return pullback_cpu_get_num_threads()


def set_num_threads(int count):
    """Let one kernel call use at most so many threads, and at least one."""
    pullback_cpu_set_num_threads(count)


pb_ask = <pb_interrupted>PyCapsule_GetPointer(INTERRUPTED, PB_INTERRUPTED_CAPSULE)
if pb_threads_start() != 0:
    raise MemoryError("no memory to prepare for processes that fork")
