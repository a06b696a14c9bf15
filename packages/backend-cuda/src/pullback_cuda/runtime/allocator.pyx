"""Device memory, with caches in front of the driver.

A block belongs to the stream that was current when it was taken. Released, it is reused by
later requests on that stream: their work runs after all earlier work on the block.
Work of another stream is noted (``use_memory``); then events of these streams are recorded when the
block is released, and it waits until they have passed.

Small blocks are cut from slabs, eight sizes to each power of two. Large ones are allocated one by
one, in steps that waste at most an eighth. When memory runs out, all
unused blocks go back to the driver, and the request is tried again.

All functions run with the interpreter lock held; they may lose it where the driver is called.
"""

from cpython.exc cimport PyErr_Fetch, PyErr_Restore, PyErr_SetInterrupt
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from pullback_cuda.runtime.contexts cimport (
    MAX_DEVICES, MAX_STREAMS, current_number, device_ready, device_table, is_closed,
    stream_number)

from threading import RLock

from pullback.backend import OutOfMemoryError

cdef extern from *:
    """
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
    int top_bit "pb_top_bit"(unsigned long long value) noexcept

cdef enum:
    SMALLEST = 512
    SMALL_LIMIT = 1 << 19       # larger blocks are allocated one by one
    SLAB = 1 << 21
    CLASSES = 8 * 64
cdef size_t LARGEST = <size_t>1 << 46
cdef uint64_t FOREIGN = <uint64_t>1 << 63   # the last stream's bit: no stream is dealt out for it


# Memory that the driver gave: one large block, or a slab that is cut into small ones.
ctypedef struct chunk:
    PyObject *allocation        # owned: pycuda's DeviceAllocation
    size_t nbytes
    int64_t used                # blocks that a tensor has
    int64_t cut                 # blocks that it is cut into
    chunk *next
    chunk *previous


ctypedef struct block:
    void *data
    size_t nbytes               # of its size class
    size_t wanted               # requested
    chunk *source
    block *next                 # in a list of free blocks, or of those that wait for events
    block *chain                # in the table of all blocks
    uint64_t used_on            # bits: other streams with work on it
    PyObject *events            # owned list: what a block that waits waits for; NULL: everything
    int stream
    int size_class


ctypedef struct memory_state:
    block *unused[MAX_STREAMS][CLASSES]
    block *waiting
    block **buckets             # all blocks, by address
    size_t nbuckets
    size_t nblocks
    chunk *chunks
    int64_t in_use
    int64_t peak
    int64_t held
    int64_t count
    int64_t peak_held
    int64_t freed
    int64_t retries
    int64_t out_of_memory
    int64_t limit               # bytes that may be held; 0: as many as there are

cdef memory_state states[MAX_DEVICES]
memset(&states[0], 0, sizeof(states))


# ---- size classes --------------------------------------------------------------------------------

cdef inline int class_of(size_t nbytes) noexcept:
    """Return the class of a size: a power of two and an eighth of it."""
    cdef int bit
    if nbytes <= SMALLEST:
        return 0
    bit = top_bit(nbytes - 1)
    return 8 * bit + <int>(((nbytes - 1) >> (bit - 3)) & 7)


cdef inline size_t class_size(int number) noexcept:
    if number == 0:
        return SMALLEST
    return (<size_t>1 << (number // 8)) + (<size_t>(number % 8 + 1) << (number // 8 - 3))


# ---- the table of blocks -------------------------------------------------------------------------

cdef inline size_t bucket_of(memory_state *state, void *data) noexcept:
    return ((<uintptr_t>data >> 9) * <uintptr_t>0x9E3779B97F4A7C15 >> 20) & (state.nbuckets - 1)


cdef int grow_table(memory_state *state) except -1:
    """Make the table large enough for one more block."""
    cdef block **before = state.buckets
    cdef size_t count = state.nbuckets, i, bucket
    cdef block *item
    cdef block *following
    if state.nblocks < count:
        return 0
    state.buckets = <block **>calloc(max(2 * count, 1024), sizeof(block *))
    if state.buckets == NULL:
        state.buckets = before
        raise MemoryError()
    state.nbuckets = max(2 * count, 1024)
    for i in range(count):
        item = before[i]
        while item != NULL:
            following = item.chain
            bucket = bucket_of(state, item.data)
            item.chain = state.buckets[bucket]
            state.buckets[bucket] = item
            item = following
    free(before)
    return 0


cdef block *find_block(memory_state *state, void *data) noexcept:
    cdef block *item
    if state.nbuckets == 0:
        return NULL
    item = state.buckets[bucket_of(state, data)]
    while item != NULL and item.data != data:
        item = item.chain
    return item


cdef void forget_block(memory_state *state, block *item) noexcept:
    cdef block **link = &state.buckets[bucket_of(state, item.data)]
    while link[0] != item:
        link = &link[0].chain
    link[0] = item.chain
    state.nblocks -= 1
    free(item)


cdef block *new_block(memory_state *state, chunk *source, void *data, int size_class,
                      int stream) except NULL:
    cdef block *item
    cdef size_t bucket
    grow_table(state)
    item = <block *>calloc(1, sizeof(block))
    if item == NULL:
        raise MemoryError()
    item.data = data
    item.nbytes = class_size(size_class)
    item.source = source
    item.stream = stream
    item.size_class = size_class
    bucket = bucket_of(state, data)
    item.chain = state.buckets[bucket]
    state.buckets[bucket] = item
    state.nblocks += 1
    return item


# ---- chunks --------------------------------------------------------------------------------------

cdef chunk *new_chunk(int number, size_t nbytes) except? NULL:
    """Return memory of the driver; NULL if there is none."""
    cdef memory_state *state = &states[number]
    cdef chunk *made
    device = <object>device_ready(number).object
    if state.limit and state.held + <int64_t>nbytes > state.limit:
        return NULL
    made = <chunk *>calloc(1, sizeof(chunk))
    if made == NULL:
        raise MemoryError()
    allocation = None
    state.held += <int64_t>nbytes       # before the call: other threads run during it
    try:
        allocation = device.allocate(nbytes)
    finally:
        if allocation is None:
            state.held -= <int64_t>nbytes
            free(made)
    if allocation is None:
        return NULL
    Py_INCREF(allocation)
    made.allocation = <PyObject *>allocation
    made.nbytes = nbytes
    made.next = state.chunks
    if made.next != NULL:
        made.next.previous = made
    state.chunks = made
    state.peak_held = max(state.peak_held, state.held)
    return made


cdef object drop_chunk(memory_state *state, chunk *source):
    """Forget a chunk, of which no block is known any more; return its memory."""
    allocation = <object>source.allocation
    if source.previous != NULL:
        source.previous.next = source.next
    else:
        state.chunks = source.next
    if source.next != NULL:
        source.next.previous = source.previous
    state.held -= <int64_t>source.nbytes
    Py_DECREF(allocation)
    free(source)
    return allocation


cdef block *take_unused(memory_state *state, int stream, int size_class) noexcept:
    cdef block *item = state.unused[stream][size_class]
    if item != NULL:
        state.unused[stream][size_class] = item.next
        item.next = NULL
    return item


cdef block *cut_slab(int number, int stream, int size_class) except? NULL:
    """Cut a slab into blocks of a size; return one of them, NULL if there is no memory."""
    cdef memory_state *state = &states[number]
    cdef size_t nbytes = class_size(size_class), offset = 0
    cdef size_t whole = min(<size_t>SLAB, max(<size_t>SLAB >> 5, 32 * nbytes))
    cdef chunk *source = new_chunk(number, whole)
    cdef char *start
    cdef block *item
    if source == NULL:
        return NULL
    start = <char *><size_t>int(<object>source.allocation)
    # From the last to the first, so that the first is the next to be used.
    offset = (whole // nbytes) * nbytes
    while offset > 0:
        offset -= nbytes
        item = new_block(state, source, start + offset, size_class, stream)
        source.cut += 1
        item.next = state.unused[stream][size_class]
        state.unused[stream][size_class] = item
    return take_unused(state, stream, size_class)


cdef block *obtain(int number, int stream, int size_class) except? NULL:
    """Return an unused block, from the cache or new; NULL if there is no memory."""
    cdef memory_state *state = &states[number]
    cdef block *item = take_unused(state, stream, size_class)
    if item != NULL:
        return item
    release_lock.acquire()
    try:
        if state.waiting != NULL:
            settle(number, False)
        item = take_unused(state, stream, size_class)
        return item if item != NULL else obtain_new(number, stream, size_class)
    finally:
        release_lock.release()


cdef block *obtain_new(int number, int stream, int size_class) except? NULL:
    cdef memory_state *state = &states[number]
    cdef chunk *source
    if class_size(size_class) <= SMALL_LIMIT:
        return cut_slab(number, stream, size_class)
    source = new_chunk(number, class_size(size_class))
    if source == NULL:
        return NULL
    source.cut = 1
    return new_block(state, source, <void *><size_t>int(<object>source.allocation), size_class,
                     stream)


# ---- giving memory back to the driver ------------------------------------------------------------

# Held while a thread requests memory from the driver or searches unused blocks: other threads wait
# before they report that there is no memory.
release_lock = RLock()


cdef int settle(int number, bint wait) except -1:
    """Let blocks be used again whose other streams are done with them; or wait until they are."""
    cdef memory_state *state = &states[number]
    cdef block *left = state.waiting    # the whole list: other threads add to a new one meanwhile
    cdef block *item
    cdef bint passed
    device = <object>device_table()[number].object
    state.waiting = NULL
    try:
        if wait:
            device.wait_for_all()
        while left != NULL:
            item = left
            passed = wait if item.events == NULL else device.passed(<object>item.events, wait)
            left = item.next
            if not passed:
                keep_waiting(state, item)
                continue
            if item.events != NULL:
                Py_DECREF(<object>item.events)
                item.events = NULL
            item.next = state.unused[item.stream][item.size_class]
            state.unused[item.stream][item.size_class] = item
    finally:
        while left != NULL:
            item = left
            left = item.next
            keep_waiting(state, item)
    return 0


cdef inline void keep_waiting(memory_state *state, block *item) noexcept:
    item.next = state.waiting
    state.waiting = item


cdef list release_unused(memory_state *state):
    """Forget chunks of which no tensor has a block; return their memory."""
    cdef list found = []
    cdef int stream, size_class
    cdef block **link
    cdef block *item
    cdef chunk *source
    cdef chunk *following
    for stream in range(MAX_STREAMS):
        for size_class in range(CLASSES):
            link = &state.unused[stream][size_class]
            while link[0] != NULL:
                item = link[0]
                if item.source.used == 0:
                    link[0] = item.next
                    item.source.cut -= 1
                    forget_block(state, item)
                else:
                    link = &item.next
    source = state.chunks
    while source != NULL:
        following = source.next
        if source.cut == 0:
            found.append(drop_chunk(state, source))
        source = following
    return found


def release_cached(int number):
    """Give unused memory of a device back to the driver; return whether there was any."""
    if not device_table()[number].ready or is_closed():
        return False
    device = <object>device_table()[number].object
    release_lock.acquire()
    try:
        settle(number, True)
        found = release_unused(&states[number])
        some = bool(found)
        device.free(found)
    finally:
        release_lock.release()
    return some


# ---- taking and releasing ------------------------------------------------------------------------

cdef void *block_take(int number, size_t nbytes) except NULL:
    """Return memory for the thread's current stream.

    Raises: OutOfMemoryError.
    """
    cdef memory_state *state = &states[number]
    cdef int stream = current_number(number)
    cdef int size_class
    cdef block *item = NULL
    device_ready(number)
    if nbytes == 0:
        nbytes = 1
    if nbytes <= LARGEST:
        size_class = class_of(nbytes)
        item = obtain(number, stream, size_class)
        if item == NULL:
            release_lock.acquire()
            try:
                state.retries += 1
                freed = True
                while item == NULL and freed:   # meanwhile other threads may release some more
                    freed = release_cached(number)
                    item = obtain(number, stream, size_class)
            finally:
                release_lock.release()
    if item == NULL:
        state.out_of_memory += 1
        raise out_of_memory(number, nbytes)
    item.wanted = nbytes
    item.source.used += 1
    state.count += 1
    state.in_use += <int64_t>nbytes
    state.peak = max(state.peak, state.in_use)
    return item.data


cdef object out_of_memory(int number, size_t nbytes):
    """Return the error for a request that cannot be met."""
    cdef memory_state *state = &states[number]
    unused, total = (<object>device_table()[number].object).memory_info()
    limit = f" of {readable(state.limit)} that it may hold" if state.limit else ""
    return OutOfMemoryError(
        f"CUDA out of memory: cuda:{number} cannot allocate {readable(nbytes)}. Tensors use "
        f"{readable(state.in_use)}, pullback holds {readable(state.held)}{limit}; the driver has "
        f"{readable(unused)} free of {readable(total)}")


cdef str readable(object nbytes):
    value = float(nbytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{nbytes} bytes" if unit == "bytes" else f"{value:.2f} {unit}"
        value /= 1024


cdef void block_release(int number, void *data) noexcept:
    """Let memory be used again by the stream that it was taken for."""
    cdef memory_state *state = &states[number]
    cdef block *item = find_block(state, data)
    cdef PyObject *kind
    cdef PyObject *value
    cdef PyObject *trace
    if item == NULL or is_closed():
        return
    state.in_use -= <int64_t>item.wanted
    state.freed += 1
    item.source.used -= 1
    if item.used_on:
        PyErr_Fetch(&kind, &value, &trace)
        wait_for_others(number, item)
        PyErr_Restore(kind, value, trace)
        return
    item.next = state.unused[item.stream][item.size_class]
    state.unused[item.stream][item.size_class] = item


cdef void wait_for_others(int number, block *item) noexcept:
    """Keep a block back until the streams that used it have passed this point."""
    cdef memory_state *state = &states[number]
    cdef uint64_t used_on = item.used_on
    item.used_on = 0
    item.events = NULL
    if not used_on & FOREIGN:
        try:
            events = (<object>device_table()[number].object).record_on(
                [i for i in range(MAX_STREAMS) if used_on >> i & 1])
            Py_INCREF(events)
            item.events = <PyObject *>events
        except KeyboardInterrupt:
            PyErr_SetInterrupt()
        except Exception:
            pass                        # without events it waits until all work is done
    keep_waiting(state, item)


cdef int note_use(int number, void *data, void *stream) except -1:
    """Note that a stream has work on a block."""
    cdef memory_state *state = &states[number]
    cdef block *item = find_block(state, data)
    cdef int index = 0 if stream == NULL else stream_number(device_ready(number), stream)
    if item != NULL and index < 0:      # another library's, or another device's
        item.used_on |= FOREIGN
    elif item != NULL and index != item.stream:
        item.used_on |= <uint64_t>1 << index
    return 0


# ---- for the interface of core and of users ------------------------------------------------------

def memory_counts(int number):
    """Return the counters of a device's memory, in bytes and calls."""
    cdef memory_state *state = &states[number]
    return {"allocated": state.in_use, "allocated_peak": state.peak, "reserved": state.held,
            "reserved_peak": state.peak_held, "allocations": state.count, "frees": state.freed,
            "retries": state.retries, "out_of_memory": state.out_of_memory}


def reset_peaks(int number):
    """Let the peaks start again at what is in use now."""
    states[number].peak = states[number].in_use
    states[number].peak_held = states[number].held


def set_limit(int number, int64_t nbytes):
    """Let a device hold at most so many bytes; 0: as many as there are."""
    states[number].limit = nbytes
