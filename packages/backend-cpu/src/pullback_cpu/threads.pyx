# The threads that share the work of one kernel call; how they do it is told in threads.h.
from pullback_cpu.threads cimport *

cdef extern from "threads.h":
    ctypedef void (*pb_body)(void *context, int64_t first, int64_t last) noexcept nogil
    int pb_threads_start()
    void pb_parallel_for(int64_t n, int64_t grain, pb_body body, void *context) noexcept nogil
    int pullback_cpu_get_num_threads() noexcept nogil
    void pullback_cpu_set_num_threads(int count) noexcept nogil


cdef void parallel_for(int64_t n, int64_t grain, parallel_body body, void *context) noexcept nogil:
    """Run ``body`` over the numbers below ``n``, in pieces, on as many threads as are free.

    Every piece but the last has the same length, a multiple of ``grain``. It follows from ``n``,
    ``grain`` and the limit of threads, whoever runs the pieces.
    """
    pb_parallel_for(n, grain, body, context)


cdef int thread_count() noexcept nogil:
    """Return how many threads one call may use."""
    return pullback_cpu_get_num_threads()


def get_num_threads():
    """Return how many threads one kernel call may use."""
    return pullback_cpu_get_num_threads()


def set_num_threads(int count):
    """Let one kernel call use at most so many threads, and at least one."""
    pullback_cpu_set_num_threads(count)


if pb_threads_start() != 0:
    raise MemoryError("no memory to prepare for processes that fork")
