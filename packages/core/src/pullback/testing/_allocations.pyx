# build: small
"""Python's memory allocators, made to fail on purpose: a test runs out of memory where it wants.

Not ``_testcapi.set_nomemory``: not every interpreter has that, and it fails ``realloc`` too, after
which ``list.append`` of CPython 3.11 and comprehensions of Cython 3.3.0 and 3.3.1 release the item
twice. Nor does the memory for frame objects fail: CPython 3.11 to 3.13 then loses the exception.
"""

import sys

cdef extern from "Python.h":
    ctypedef enum PyMemAllocatorDomain:
        PYMEM_DOMAIN_MEM
        PYMEM_DOMAIN_OBJ

    ctypedef struct PyMemAllocatorEx:
        void *ctx
        void *(*malloc)(void *ctx, size_t size) noexcept nogil
        void *(*calloc)(void *ctx, size_t count, size_t size) noexcept nogil
        void *(*realloc)(void *ctx, void *memory, size_t size) noexcept nogil
        void (*free)(void *ctx, void *memory) noexcept nogil

    void PyMem_GetAllocator(PyMemAllocatorDomain domain, PyMemAllocatorEx *allocator)
    void PyMem_SetAllocator(PyMemAllocatorDomain domain, PyMemAllocatorEx *allocator)

__all__ = ["Spared", "begin_failing", "end_failing"]

cdef PyMemAllocatorEx usual[2]
cdef bint installed = False
cdef bint growth
cdef long seen, first, last
cdef int spared

# Sizes that frame objects have, with what the collector puts in front of them.
cdef size_t SMALLEST_FRAME = type(sys._getframe()).__basicsize__ + 16
cdef size_t LARGEST_FRAME = SMALLEST_FRAME + 512 if sys.version_info >= (3, 11) else 0


cdef inline bint fails(size_t size) noexcept nogil:
    global seen
    if spared or SMALLEST_FRAME <= size <= LARGEST_FRAME:
        return False
    seen += 1
    return first <= seen <= last


cdef void *failing_malloc(void *ctx, size_t size) noexcept nogil:
    cdef PyMemAllocatorEx *under = <PyMemAllocatorEx *>ctx
    return NULL if fails(size) else under.malloc(under.ctx, size)


cdef void *failing_calloc(void *ctx, size_t count, size_t size) noexcept nogil:
    cdef PyMemAllocatorEx *under = <PyMemAllocatorEx *>ctx
    return NULL if fails(size) else under.calloc(under.ctx, count, size)


cdef void *failing_realloc(void *ctx, void *memory, size_t size) noexcept nogil:
    cdef PyMemAllocatorEx *under = <PyMemAllocatorEx *>ctx
    return NULL if growth and fails(size) else under.realloc(under.ctx, memory, size)


cdef void plain_free(void *ctx, void *memory) noexcept nogil:
    cdef PyMemAllocatorEx *under = <PyMemAllocatorEx *>ctx
    under.free(under.ctx, memory)


def begin_failing(long start, long stop, bint realloc=False):
    """Let the allocations from number ``start`` to ``stop`` fail, counted from 1, from now on.

    Those that only grow a block count if ``realloc`` is true.

    Raises: RuntimeError when allocations are failing already.
    """
    global installed, growth, seen, first, last
    cdef PyMemAllocatorEx ours
    cdef int i
    if installed:
        raise RuntimeError("begin_failing(): end_failing() was not called")
    installed, growth, seen, first, last = True, realloc, 0, start, stop
    for i in range(2):
        PyMem_GetAllocator(<PyMemAllocatorDomain>(PYMEM_DOMAIN_MEM + i), &usual[i])
        ours.ctx = &usual[i]
        ours.malloc = failing_malloc
        ours.calloc = failing_calloc
        ours.realloc = failing_realloc
        ours.free = plain_free
        PyMem_SetAllocator(<PyMemAllocatorDomain>(PYMEM_DOMAIN_MEM + i), &ours)


def end_failing():
    """Let all allocations succeed again; returns how many there were."""
    global installed
    cdef int i
    if installed:
        installed = False
        for i in range(2):
            PyMem_SetAllocator(<PyMemAllocatorDomain>(PYMEM_DOMAIN_MEM + i), &usual[i])
    return seen


cdef class Spared:
    """A function during which no allocation fails, nor counts.

    NumPy needs it: where a ufunc finds no memory, NumPy 2.4 returns NULL without an exception,
    keeps its lock, or reads memory that is not there.
    """

    cdef object function

    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **keywords):
        global spared
        spared += 1
        try:
            return self.function(*args, **keywords)
        finally:
            spared -= 1
