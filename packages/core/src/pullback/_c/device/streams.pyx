# build: small
"""Streams of devices: their numbers, the current one of a thread, waits between streams.

A backend identifies a stream by an address. Nodes of the graph keep a number of 16 bits instead, in
the padding of `pb_meta`. No stream has a number until one other than a default stream is current
for the first time in the process (``streams_used``): until then all work is on default streams, and
a node with the number 0 ran on one.
"""

from libc.stdint cimport uint16_t
from libc.stdlib cimport calloc

from pullback.abi cimport PB_MESSAGE_SIZE, pb_backend
from pullback._c.device.device cimport (
    device, device_index, device_make, device_parse, device_type, device_types, has_field,
    pb_device_type)
from pullback._c.base.errors cimport raise_failure
from pullback._c.base.state cimport globals_, pb_globals
from pullback._c.base.types cimport STORAGE_SHARED, pb_storage

__all__ = ["current_stream", "set_stream", "wait_stream"]

cdef enum:
    MOST = 65535                # numbers
    CACHE_LENGTH = 64           # entries of found_last, a power of two

cdef pb_globals *process = globals_()
cdef pb_stream *streams = NULL
cdef size_t stream_count = 1            # 0 stands for none
cdef dict numbers = {}                  # (device, address) -> number
cdef dict defaults = {}                 # device -> number of its default stream
cdef uint16_t found_last[CACHE_LENGTH]


cdef inline size_t device_key(int type_id, int index) noexcept:
    return <size_t>type_id << 16 | <size_t>index


cdef pb_stream *stream_of(uint16_t number) noexcept:
    """Return the stream with a number."""
    return &streams[number]


# ---- numbers -------------------------------------------------------------------------------------

cdef uint16_t stream_number(int type_id, int index, void *handle) except 0:
    """Return the number of a stream, which gets one if it has none."""
    global streams, stream_count
    key = (device_key(type_id, index), <size_t>handle)
    found = numbers.get(key)
    if found is not None:
        return found
    if stream_count > MOST:
        raise RuntimeError(f"more than {MOST} streams were used in this process: reuse them")
    if streams == NULL:                 # of full length: pages that are never written cost nothing
        streams = <pb_stream *>calloc(MOST + 1, sizeof(pb_stream))
        if streams == NULL:
            raise MemoryError()
    streams[stream_count].device_type = type_id
    streams[stream_count].device_index = index
    streams[stream_count].handle = handle
    numbers[key] = stream_count
    stream_count += 1
    return <uint16_t>(stream_count - 1)


cdef uint16_t stream_now(int type_id, int index) noexcept:
    """Return the number of this thread's current stream; 0: the device has none."""
    cdef pb_device_type *kind = device_types() + type_id
    cdef void *handle
    cdef uint16_t *cached
    cdef pb_stream *last
    if not kind.streams:
        return 0
    handle = kind.backend.current_stream(kind.backend.self, index)
    cached = &found_last[(<size_t>handle >> 4 ^ <size_t>handle ^ <size_t>index) % CACHE_LENGTH]
    if cached[0]:
        last = &streams[cached[0]]
        if last.handle == handle and last.device_type == type_id and last.device_index == index:
            return cached[0]
    try:
        cached[0] = stream_number(type_id, index, handle)
    except Exception:                   # no number is left; current_stream itself cannot raise
        return 0
    return cached[0]


cdef uint16_t stream_default(int type_id, int index) except? 0:
    """Return the number of a device's default stream; 0: the device has none."""
    cdef pb_backend *backend = device_types()[type_id].backend
    cdef void *previous = NULL
    cdef void *handle = NULL
    if not device_types()[type_id].streams:
        return 0
    found = defaults.get(device_key(type_id, index))
    if found is None:                   # current_stream may have an address for it
        check_set(backend.set_stream(backend.self, index, NULL, &previous), type_id, index)
        handle = backend.current_stream(backend.self, index)
        check_set(backend.set_stream(backend.self, index, previous, &previous), type_id, index)
        found = defaults[device_key(type_id, index)] = stream_number(type_id, index, handle)
    return found


# ---- current streams and waits -------------------------------------------------------------------

cdef int check_set(int code, int type_id, int index) except -1:
    if code:
        raise_failure(code, b"", "set_stream()", device_make(type_id, index))
    return 0


cdef uint16_t stream_set(uint16_t number) except? 0:
    """Make a stream the current one of its device; return the one before it."""
    cdef pb_stream *stream = &streams[number]
    cdef pb_backend *backend
    cdef uint16_t before
    cdef void *previous = NULL
    if number == 0:
        return 0
    backend = device_types()[stream.device_type].backend
    before = stream_now(stream.device_type, stream.device_index)
    if before != number:
        check_set(backend.set_stream(backend.self, stream.device_index, stream.handle, &previous),
                  stream.device_type, stream.device_index)
    return before


cdef list streams_here():
    """Return this thread's current stream on every device that used one other than the default."""
    cdef set known = {key for key, _ in numbers}
    return [stream_now(key >> 16, key & 0xffff) for key in known]


cdef int stream_wait(uint16_t waiter, uint16_t awaited) except -1:
    """Let later work of one stream begin after the work queued so far on another."""
    cdef pb_stream *later = &streams[waiter]
    cdef pb_stream *earlier = &streams[awaited]
    cdef pb_backend *backend = device_types()[later.device_type].backend
    cdef char message[PB_MESSAGE_SIZE]
    cdef int code
    message[0] = 0
    code = backend.wait_stream(backend.self, later.device_index, later.handle,
                               earlier.device_index, earlier.handle, message)
    if code:
        raise_failure(code, message, "wait_stream()",
                      device_make(later.device_type, later.device_index))
    return 0


cdef int stream_use(pb_storage *storage, uint16_t number) except -1:
    """Notify the backend that memory is used on a stream."""
    return memory_use(storage, streams[number].handle)


cdef int memory_use(pb_storage *storage, void *handle) except -1:
    cdef pb_backend *backend = device_types()[storage.device_type].backend
    cdef int code
    while storage.memory != NULL:
        storage = storage.memory
    storage.flags |= STORAGE_SHARED
    if storage.data == NULL or storage.owner != NULL:       # no memory, or foreign memory
        return 0
    if not has_field(backend, &backend.use_memory) or backend.use_memory == NULL:
        return 0
    code = backend.use_memory(backend.self, storage.device_index, storage.data, handle)
    if code:
        raise_failure(code, b"", "use_memory()",
                      device_make(storage.device_type, storage.device_index))
    return 0


# ---- for backends --------------------------------------------------------------------------------

cdef pb_device_type *with_streams(device d) except NULL:
    cdef pb_device_type *kind = device_type(d.type_id)
    if not kind.streams:
        raise RuntimeError(f"the device {d} has no streams")
    return kind


def current_stream(where):
    """Return the address of this thread's current stream of a device; 0 if it has no streams.

    >>> import pullback
    >>> pullback.backend.current_stream("ref")
    0
    """
    cdef device d = device_parse(where)
    cdef int index = device_index(d)
    cdef pb_device_type *kind = device_type(d.type_id)
    if kind.backend == NULL or kind.backend.current_stream == NULL:
        return 0
    return <size_t>kind.backend.current_stream(kind.backend.self, index)


def set_stream(where, stream):
    """Make a stream this thread's current one of a device; return the one before it.

    Streams are given by address; 0 is the default one. A backend's stream classes must call this
    function, which enables the ordering of streams in backward passes.

    Raises: RuntimeError for devices without streams.

    >>> import pullback
    >>> pullback.backend.set_stream("ref", 0)
    Traceback (most recent call last):
    RuntimeError: the device ref has no streams
    """
    cdef device d = device_parse(where)
    cdef int index = device_index(d)
    cdef pb_backend *backend = with_streams(d).backend
    cdef void *handle = <void *><size_t>stream
    cdef void *previous = NULL
    if handle != NULL:
        if stream_number(d.type_id, index, handle) != stream_default(d.type_id, index):
            process.streams_used = 1
    check_set(backend.set_stream(backend.self, index, handle, &previous), d.type_id, index)
    return <size_t>previous


def wait_stream(where, waiter, awaited, other=None):
    """Let work queued on a stream from now on begin after all work queued so far on another.

    Both are addresses, 0 the default one; ``awaited`` is a stream of the device ``other`` of the
    same backend, by default of the same device.

    Raises: RuntimeError for devices without streams or of another backend.

    >>> import pullback
    >>> pullback.backend.wait_stream("ref", 0, 0)
    Traceback (most recent call last):
    RuntimeError: the device ref has no streams
    """
    cdef device d = device_parse(where)
    cdef device second = d if other is None else device_parse(other)
    cdef int index = device_index(d), other_index = device_index(second)
    cdef pb_backend *backend = with_streams(d).backend
    cdef char message[PB_MESSAGE_SIZE]
    cdef int code
    if d.type_id != second.type_id:
        raise RuntimeError(f"wait_stream(): a stream of {d} cannot wait for one of {second}")
    message[0] = 0
    code = backend.wait_stream(backend.self, index, <void *><size_t>waiter, other_index,
                               <void *><size_t>awaited, message)
    if code:
        raise_failure(code, message, "wait_stream()", d)
