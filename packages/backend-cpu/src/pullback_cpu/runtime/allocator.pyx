# Host memory, with caches in front of the system's allocator.
#
# Blocks of up to SMALL_LIMIT bytes come from a pool of slabs (see pool.h). Larger ones come from
# the system in size classes, four to each power of two, and wait in a list of their class for the
# next request. So memory that was touched once is not handed back to the kernel of the operating
# system and faulted in again. The cache never lets the memory held from the system grow beyond the
# largest need so far, except for a fixed slack.
#
# All functions run with the interpreter lock held; there is no other lock.
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t
from libc.string cimport memset

from pullback.pool cimport pb_pool, pb_pool_allocate, pb_pool_release, pb_pool_trim
from pullback_cpu.runtime.threads cimport parallel_body, parallel_for
from pullback.abi cimport (
    PB_ABI_VERSION, PB_BACKEND_CAPSULE, PB_BACKEND_HOST, pb_backend)

cdef extern from *:
    """
    #include <stdlib.h>
    #if defined(_WIN32)
    #include <malloc.h>
    #define pb_system_allocate(n) _aligned_malloc((n), 64)
    #define pb_system_release(p) _aligned_free(p)
    #else
    static void *pb_system_allocate(size_t n) {
        void *data = NULL;
        return posix_memalign(&data, 64, n) == 0 ? data : NULL;
    }
    #define pb_system_release(p) free(p)
    #endif
    #if defined(__GNUC__)
    #define pb_top_bit(n) (63 - __builtin_clzll(n))
    #else
    static int pb_top_bit(unsigned long long n) {
        int bit = -1;
        for (; n; n >>= 1) ++bit;
        return bit;
    }
    #endif
    """
    void *system_allocate "pb_system_allocate"(size_t nbytes) noexcept
    void system_release "pb_system_release"(void *data) noexcept
    int top_bit "pb_top_bit"(unsigned long long value) noexcept

cdef extern from "runtime/huge_pages.h":
    void advise_huge "pb_advise_huge"(void *data, size_t nbytes) noexcept

cdef enum:
    ALIGNMENT = 64
    SMALL_LIMIT = 4096
    LARGE_CLASSES = 4 * 64
    SLACK = 67108864
cdef size_t LARGEST = <size_t>1 << 62


# A free block holds the address of the next one.
ctypedef struct free_block:
    free_block *next


ctypedef struct allocator:
    pb_pool small
    free_block *large[LARGE_CLASSES]
    int64_t in_use
    int64_t peak
    int64_t held
    int64_t count
    int64_t peak_rounded
    int64_t in_use_rounded
    int64_t cached  # bytes in the lists of large blocks
    int64_t limit   # of the bytes in use

cdef allocator memory
memset(&memory, 0, sizeof(memory))
memory.limit = LARGEST


cdef inline int class_of(size_t nbytes) noexcept:
    """Return the class of a large block: a power of two and a quarter of it."""
    cdef int bit = top_bit(nbytes - 1)
    return 4 * bit + <int>(((nbytes - 1) >> (bit - 2)) & 3)


cdef inline size_t class_size(int number) noexcept:
    return (<size_t>1 << (number // 4)) + (<size_t>(number % 4 + 1) << (number // 4 - 2))


cdef void release_cache(allocator *state, int64_t keep) noexcept:
    """Give large blocks back to the system, the largest first, until ``keep`` bytes are left."""
    cdef free_block *block
    cdef int number = LARGE_CLASSES - 1
    cdef int64_t size
    while state.cached > keep and number >= 0:
        block = state.large[number]
        if block == NULL:
            number -= 1
            continue
        state.large[number] = block.next
        size = <int64_t>class_size(number)
        system_release(block)
        state.cached -= size
        state.held -= size


cdef void *allocate_large(allocator *state, size_t nbytes) noexcept:
    cdef int number
    cdef int64_t size
    cdef free_block *block
    number = class_of(nbytes)
    size = <int64_t>class_size(number)
    block = state.large[number]
    if block != NULL:
        state.large[number] = block.next
        state.cached -= size
    else:
        # Blocks of other classes make room, so that the peak does not grow by what is only kept.
        release_cache(state, max(<int64_t>0,
                                 min(state.limit, max(state.peak_rounded, <int64_t>SLACK))
                                 - state.in_use_rounded - size))
        block = <free_block *>system_allocate(size)
        if block == NULL:
            release_cache(state, 0)
            block = <free_block *>system_allocate(size)
            if block == NULL:
                return NULL
        advise_huge(block, size)
        state.held += size
    state.in_use_rounded += size
    state.peak_rounded = max(state.peak_rounded, state.in_use_rounded)
    return block


cdef inline size_t small_size(size_t nbytes) noexcept:
    """Round up: to a cache line, but tiny tensors share one."""
    if nbytes <= ALIGNMENT // 2:
        return ALIGNMENT // 2
    return (nbytes + ALIGNMENT - 1) & ~<size_t>(ALIGNMENT - 1)


cdef void *allocate(void *self, int device, size_t nbytes) noexcept:
    cdef allocator *state = <allocator *>self
    cdef void *data
    if nbytes > LARGEST or <int64_t>nbytes > state.limit - state.in_use:
        return NULL
    if nbytes <= SMALL_LIMIT:
        data = pb_pool_allocate(&state.small, small_size(nbytes))
        if data == NULL:
            release_cache(state, 0)
            data = pb_pool_allocate(&state.small, small_size(nbytes))
    else:
        data = allocate_large(state, nbytes)
    if data == NULL:
        return NULL
    state.count += 1
    state.in_use += nbytes
    if state.in_use > state.peak:
        state.peak = state.in_use
    return data


cdef void release(void *self, int device, void *data, size_t nbytes) noexcept:
    cdef allocator *state = <allocator *>self
    cdef free_block *block = <free_block *>data
    cdef size_t number
    if block == NULL:
        return
    state.in_use -= nbytes
    if nbytes <= SMALL_LIMIT:
        pb_pool_release(&state.small, block)
        return
    number = class_of(nbytes)
    block.next = state.large[number]
    state.large[number] = block
    state.cached += <int64_t>class_size(<int>number)
    state.in_use_rounded -= <int64_t>class_size(<int>number)


cdef int device_count(void *self) noexcept:
    return 1


cdef void memory_stats(void *self, int device, int64_t *stats) noexcept:
    cdef allocator *state = <allocator *>self
    stats[0] = state.in_use
    stats[1] = state.peak
    stats[2] = state.held + <int64_t>state.small.held
    stats[3] = state.count


cdef void reset_peak(void *self, int device) noexcept:
    (<allocator *>self).peak = (<allocator *>self).in_use


cdef void empty_cache(void *self, int device) noexcept:
    release_cache(<allocator *>self, 0)
    pb_pool_trim(&(<allocator *>self).small, 0)


def memory_limit():
    """Return how many bytes tensors may use at the same time, or None if there is no limit.

    >>> import pullback_cpu
    >>> pullback_cpu.memory_limit() is None
    True
    """
    return None if memory.limit == <int64_t>LARGEST else memory.limit


def set_memory_limit(nbytes):
    """Let tensors use at most ``nbytes`` bytes of memory at the same time, or any amount if None.

    An op that would need more raises MemoryError and leaves everything as it was. What is in use
    already stays. Memory that only waits to be used again does not count, and goes back to the
    system rather than that the process holds more than the limit.

    Raises: TypeError unless it is an integer or None, ValueError if it is negative.

    >>> import pullback as pb, pullback_cpu
    >>> pullback_cpu.set_memory_limit(2**20)
    >>> pb.zeros(1000, 1000, device="cpu")
    Traceback (most recent call last):
    MemoryError: ...
    >>> pullback_cpu.set_memory_limit(None)
    """
    if nbytes is None:
        memory.limit = LARGEST
        return
    if isinstance(nbytes, bool) or not hasattr(nbytes, "__index__"):
        raise TypeError(f"set_memory_limit(): argument 'nbytes' must be int or None, "
                        f"not {type(nbytes).__name__}")
    if nbytes < 0:
        raise ValueError(f"set_memory_limit(): argument 'nbytes' must not be negative: {nbytes}")
    memory.limit = min(<object>LARGEST, nbytes.__index__())
    release_cache(&memory, max(<int64_t>0, memory.limit - memory.in_use_rounded))


cdef int run_parallel(
        void *self, int64_t n, int64_t grain, parallel_body body, void *context) noexcept nogil:
    return parallel_for(n, grain, body, context)


cdef pb_backend backend
memset(&backend, 0, sizeof(backend))
backend.size = sizeof(pb_backend)
backend.abi_version = PB_ABI_VERSION
backend.flags = PB_BACKEND_HOST
backend.self = &memory
backend.device_count = device_count
backend.allocate = allocate
backend.release = release
backend.memory_stats = memory_stats
backend.empty_cache = empty_cache
backend.reset_peak = reset_peak
backend.run_parallel = run_parallel

BACKEND = PyCapsule_New(&backend, PB_BACKEND_CAPSULE, NULL)
