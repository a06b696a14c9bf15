"""Recording the core's events, as records of a fixed size in a buffer for each thread.

An event costs two readings of the clock and one record in a block of its thread. Names, shapes and
stacks become Python objects when recording has stopped. Everything here runs with the interpreter
lock held.
"""

import os
import threading

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_XDECREF, Py_XINCREF
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from pullback.abi cimport (
    PB_EVENT_FUNCTION, PB_EVENT_KERNEL, PB_EVENT_OP, PB_EVENT_RANGE, PB_MESSAGE_SIZE,
    PB_OBSERVER_CAPSULE, pb_backend, pb_event, pb_observer)
from pullback_profiler.record.event_buffer cimport (
    BLOCK_RECORDS, block_t, base_t, buffer_t, mark_t, read_details, record_t, write_details)

from pullback.backend import attach_observer, detach_observer, thread_number

__all__ = ["Recorder"]

cdef extern from "clock.h":
    int64_t clock_now() noexcept nogil

cdef extern from "this_thread.h":
    uint64_t native_id() noexcept
    PyObject *thread_object(object threads) noexcept

cdef extern from *:
    """
    static PER_THREAD void *current_buffer = 0;
    static PER_THREAD uint64_t current_number = 0;
    """
    void *current_buffer
    uint64_t current_number

cdef enum:
    OPEN = -1                   # end of an event that has not ended
    MEMORY_CHANGE = 100         # kind of a record of memory, not of an event
    MAX_BASES = 64              # devices that kernels are timed on

cdef uint64_t recordings = 0
cdef Recorder active = None     # core has a pointer to it, so it has to live
# Threads by ident, of the module threading. Asking it for the current thread would register threads
# that it did not start.
cdef object threads_by_ident = threading._active


def stop_in_child():
    """Record no more in a process that was forked while a profiler recorded."""
    if active is not None:
        active.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=stop_in_child)


cdef class Recorder:
    """Records events from ``start`` to ``stop``, in one thread or in all."""
    cdef pb_observer observer
    cdef object capsule
    cdef buffer_t *buffers
    cdef uint64_t number                # of this recording; threads know it by that
    cdef uint64_t thread                # the only one recorded; 0: all
    cdef bint all_threads
    cdef bint shapes
    cdef bint stacks
    cdef bint kernels
    cdef public bint paused
    cdef base_t bases[MAX_BASES]
    cdef int nbases
    cdef readonly int64_t started       # nanoseconds
    cdef readonly int64_t stopped
    cdef readonly int64_t lost          # events for which there was no memory

    def __cinit__(self, *, bint shapes=False, bint stacks=False, bint memory=False,
                  bint all_threads=False, bint kernels=False):
        self.shapes = shapes
        self.stacks = stacks
        self.kernels = kernels
        self.all_threads = all_threads
        self.observer.size = sizeof(pb_observer)
        self.observer.self = <void *>self
        self.observer.begin = on_begin
        self.observer.end = on_end
        self.observer.memory = on_memory if memory else on_ignored_memory
        self.capsule = PyCapsule_New(&self.observer, PB_OBSERVER_CAPSULE, NULL)

    def __dealloc__(self):
        clear(self)

    def start(self):
        """Record from now on; once.

        Raises: RuntimeError while another one records, and for a second time.
        """
        global recordings, active
        if active is not None:
            raise RuntimeError("a profiler is recording already: end it before another begins")
        if self.number != 0:
            raise RuntimeError("this recorder has been used already")
        recordings += 1
        self.number = recordings
        self.thread = 0 if self.all_threads else thread_number()
        buffer_new(self, thread_number())
        self.started = clock_now()
        attach_observer(self.capsule)
        active = self

    def stop(self):
        """Record no more; events that still run end now."""
        cdef buffer_t *buffer = self.buffers
        cdef int i
        global active
        if active is not self:
            return
        self.stopped = clock_now()
        active = None
        detach_observer(self.capsule)
        while buffer != NULL:
            for i in range(buffer.depth):
                buffer.running[i].end = self.stopped
            buffer.depth = 0
            buffer = buffer.next

    def threads(self):
        """Return what each thread recorded: (number, name, number in the system, Records)."""
        cdef list found = []
        cdef buffer_t *buffer = self.buffers
        cdef Records records
        cdef uint64_t highest = 0
        while buffer != NULL:
            highest = max(highest, buffer.thread)
            buffer = buffer.next
        buffer = self.buffers
        while buffer != NULL:
            if buffer.thread == 0:         # it only freed memory
                highest += 1
                buffer.thread = highest
            name = None if buffer.owner == NULL else (<object>buffer.owner).name
            native = buffer.native
            records = Records.__new__(Records)
            records.recorder = self
            records.buffer = buffer
            records.texts = {}
            found.append((buffer.thread, name, native, records))
            buffer = buffer.next
        found.reverse()
        return found


# ---- memory of records ---------------------------------------------------------------------------

cdef void clear(Recorder self) noexcept:
    cdef buffer_t *buffer
    cdef block_t *block
    cdef int64_t k
    cdef int i
    while self.buffers != NULL:
        buffer = self.buffers
        self.buffers = buffer.next
        while buffer.first != NULL:
            block = buffer.first
            buffer.first = block.next
            free(block)
        for i in range(buffer.nmarks):
            release_mark(buffer.marks[i].backend, buffer.marks[i].device, buffer.marks[i].first)
            release_mark(buffer.marks[i].backend, buffer.marks[i].device, buffer.marks[i].last)
        free(buffer.marks)
        free(buffer.running)
        free(buffer.words)
        for k in range(buffer.nheld):
            Py_DECREF(<object>buffer.held[k])
        free(buffer.held)
        Py_XDECREF(buffer.owner)
        free(buffer)
    for i in range(self.nbases):
        release_mark(self.bases[i].backend, self.bases[i].device, self.bases[i].mark)
    self.nbases = 0
    self.lost = 0


cdef void release_mark(const pb_backend *backend, int device, void *mark) noexcept:
    if mark != NULL:
        backend.release_mark(backend.self, device, mark)


cdef buffer_t *buffer_new(Recorder self, uint64_t thread) noexcept:
    """Return a buffer of the current thread; NULL if there is no memory."""
    global current_buffer, current_number
    cdef buffer_t *buffer = <buffer_t *>calloc(1, sizeof(buffer_t))
    cdef PyObject *owner
    if buffer == NULL:
        return NULL
    buffer.thread = thread
    buffer.native = native_id()
    owner = thread_object(threads_by_ident)
    Py_XINCREF(owner)
    buffer.owner = owner
    buffer.next = self.buffers
    self.buffers = buffer
    current_buffer = buffer
    current_number = self.number
    return buffer


cdef record_t *record_new(Recorder self, buffer_t *buffer) noexcept:
    cdef block_t *block = buffer.last
    cdef record_t *record
    if block == NULL or block.used == BLOCK_RECORDS:
        block = <block_t *>malloc(sizeof(block_t))
        if block == NULL:
            self.lost += 1
            return NULL
        block.next = NULL
        block.used = 0
        if buffer.last == NULL:
            buffer.first = block
        else:
            buffer.last.next = block
        buffer.last = block
    record = &block.records[block.used]
    block.used += 1
    return record


# ---- events of the core --------------------------------------------------------------------------

cdef void on_begin(void *self_, const pb_event *event) noexcept:
    cdef Recorder self = <Recorder>self_
    cdef buffer_t *buffer
    cdef record_t *record
    cdef record_t **grown
    if self.paused:
        return
    if self.thread != 0 and event.thread != self.thread and (
            event.kind != PB_EVENT_RANGE or event.forward_thread != self.thread):
        return
    if event.kind == PB_EVENT_KERNEL and not self.kernels:
        return
    buffer = <buffer_t *>current_buffer
    if current_number != self.number:
        buffer = buffer_new(self, event.thread)
        if buffer == NULL:
            self.lost += 1
            return
    if buffer.depth == buffer.capacity:
        grown = <record_t **>realloc(
            buffer.running, (buffer.capacity * 2 + 32) * sizeof(record_t *))
        if grown == NULL:
            self.lost += 1
            return
        buffer.running = grown
        buffer.capacity = buffer.capacity * 2 + 32
    record = record_new(self, buffer)
    if record == NULL:
        return
    record.id = event.id
    record.end = OPEN
    record.name = event.name
    record.sequence = event.sequence
    record.forward_thread = <int32_t>event.forward_thread
    record.ending_thread = 0
    record.details = -1
    record.kind = <int16_t>event.kind
    record.device = 0
    record.start = clock_now()
    buffer.running[buffer.depth] = record
    buffer.depth += 1
    if buffer.thread == 0:
        buffer.thread = event.thread
    if self.shapes or self.stacks or event.kind == PB_EVENT_RANGE or event.kind == PB_EVENT_KERNEL:
        write_more(self, buffer, record, event)


cdef void write_more(Recorder self, buffer_t *buffer, record_t *record,
                     const pb_event *event) noexcept:
    """Write what does not fit a record, and let the record begin afterwards."""
    try:
        if event.kind == PB_EVENT_KERNEL:
            record.details = begin_mark(self, buffer, event)
        else:
            record.details = write_details(buffer, event, self.shapes, self.stacks)
    except MemoryError:
        self.lost += 1
    if record.end == OPEN:      # else it was ended by another thread that stopped recording
        record.start = clock_now()


cdef void on_end(void *self_, const pb_event *event) noexcept:
    cdef Recorder self = <Recorder>self_
    cdef int64_t time = clock_now()
    cdef buffer_t *buffer = <buffer_t *>current_buffer
    cdef record_t *record
    cdef int i
    if current_number == self.number:
        for i in range(buffer.depth - 1, -1, -1):      # nearly always the last
            record = buffer.running[i]
            if record.id == event.id:
                end_record(buffer, i, time)
                if record.kind == PB_EVENT_KERNEL and record.details >= 0:
                    end_mark(&buffer.marks[record.details])
                elif record.kind == PB_EVENT_FUNCTION or record.kind == PB_EVENT_OP:
                    record.sequence = event.sequence
                return
    if event.kind == PB_EVENT_RANGE:
        end_elsewhere(self, event, time)


cdef void end_record(buffer_t *buffer, int position, int64_t time) noexcept:
    """End a running event. Events inside end too, except ranges, which end by themselves."""
    cdef int kept = position, i
    cdef bint is_range = buffer.running[position].kind == PB_EVENT_RANGE
    buffer.running[position].end = time
    for i in range(position + 1, buffer.depth):
        if is_range or buffer.running[i].kind == PB_EVENT_RANGE:
            buffer.running[kept] = buffer.running[i]
            kept += 1
        else:
            buffer.running[i].end = time
    buffer.depth = kept


cdef void end_elsewhere(Recorder self, const pb_event *event, int64_t time) noexcept:
    """End a range that began on another thread."""
    cdef buffer_t *buffer = self.buffers
    cdef int i
    while buffer != NULL:
        for i in range(buffer.depth - 1, -1, -1):
            if buffer.running[i].id == event.id:
                buffer.running[i].ending_thread = <int32_t>event.thread
                end_record(buffer, i, time)
                return
        buffer = buffer.next


cdef void on_memory(void *self_, int backend, int device, void *data, int64_t delta) noexcept:
    """Runs while tensors die, perhaps with an exception set: no Python code may run here."""
    cdef Recorder self = <Recorder>self_
    cdef buffer_t *buffer = <buffer_t *>current_buffer
    cdef record_t *record
    if self.paused:
        return
    if current_number != self.number:
        if self.thread != 0:
            return
        buffer = buffer_new(self, 0)
        if buffer == NULL:
            self.lost += 1
            return
    record = record_new(self, buffer)
    if record == NULL:
        return
    memset(record, 0, sizeof(record_t))
    record.start = record.end = clock_now()
    record.name = <const char *>data
    record.sequence = delta
    record.details = -1
    record.kind = MEMORY_CHANGE
    record.device = <int16_t>(backend * 256 + device)


cdef void on_ignored_memory(void *self_, int backend, int device, void *data,
                            int64_t delta) noexcept:
    pass


# ---- times of devices ----------------------------------------------------------------------------

cdef int begin_mark(Recorder self, buffer_t *buffer, const pb_event *event) noexcept:
    """Mark where a kernel begins; return the position of the mark, -1 if there is none."""
    cdef const pb_backend *backend = event.backend
    cdef mark_t *grown
    cdef mark_t *mark
    if base_of(self, backend, event.device) == NULL:
        return -1
    if buffer.nmarks == buffer.marks_capacity:
        grown = <mark_t *>realloc(buffer.marks, (buffer.marks_capacity * 2 + 64) * sizeof(mark_t))
        if grown == NULL:
            return -1
        buffer.marks = grown
        buffer.marks_capacity = buffer.marks_capacity * 2 + 64
    mark = &buffer.marks[buffer.nmarks]
    mark.backend = backend
    mark.device_type = event.device_type
    mark.device = event.device
    mark.last = NULL
    mark.first = backend.mark(backend.self, event.device)
    buffer.nmarks += 1
    return buffer.nmarks - 1


cdef void end_mark(mark_t *mark) noexcept:
    mark.last = mark.backend.mark(mark.backend.self, mark.device)


cdef base_t *base_of(Recorder self, const pb_backend *backend, int device) noexcept:
    """Return when the device passed a known point, made on first use; NULL if it cannot be made."""
    cdef char message[PB_MESSAGE_SIZE]
    cdef base_t *base
    cdef int i
    for i in range(self.nbases):
        if self.bases[i].backend == backend and self.bases[i].device == device:
            return &self.bases[i] if self.bases[i].mark != NULL else NULL
    if self.nbases == MAX_BASES:
        return NULL
    base = &self.bases[self.nbases]
    base.backend = backend
    base.device = device
    if backend.synchronize != NULL:         # else it would be passed much later than now
        backend.synchronize(backend.self, device, message)
    base.mark = backend.mark(backend.self, device)
    base.time = clock_now()
    self.nbases += 1
    return base if base.mark != NULL else NULL


cdef tuple times_of(Recorder self, mark_t *mark):
    """Return when the device began and ended a kernel, in nanoseconds; None if that is unknown."""
    cdef char message[PB_MESSAGE_SIZE]
    cdef double before = 0, during = 0
    cdef base_t *base = base_of(self, mark.backend, mark.device)
    if base == NULL or mark.first == NULL or mark.last == NULL:
        return None
    if mark.backend.elapsed(mark.backend.self, mark.device, base.mark, mark.first, &before,
                            message):
        return None
    if mark.backend.elapsed(mark.backend.self, mark.device, mark.first, mark.last, &during,
                            message):
        return None
    return base.time + <int64_t>(before * 1000), base.time + <int64_t>((before + during) * 1000)


# ---- afterwards ----------------------------------------------------------------------------------

cdef class Records:
    """What a thread recorded, by start: it stays in C until it is iterated over.

    A record is (kind, name, start, end, sequence, forward thread, ending thread or 0, device,
    details), with times in nanoseconds. Of a change of memory the name is its address, the
    sequence counts bytes; of a kernel the details are when its device began and ended it, else
    (inputs, stack) or None.
    """
    cdef Recorder recorder              # owns the buffer
    cdef buffer_t *buffer
    cdef dict texts

    def __len__(self):
        cdef block_t *block = self.buffer.first
        cdef Py_ssize_t count = 0
        while block != NULL:
            count += block.used
            block = block.next
        return count

    def __iter__(self):
        cdef block_t *block = self.buffer.first
        cdef int i
        while block != NULL:
            for i in range(block.used):
                record = as_tuple(self, &block.records[i])
                if record is not None:
                    yield record
            block = block.next


cdef tuple as_tuple(Records self, record_t *record):
    """Return a record; None for one that cannot be read."""
    cdef mark_t *mark
    cdef object details = None
    cdef int device = 0
    if record.kind == MEMORY_CHANGE:
        return (MEMORY_CHANGE, <size_t>record.name, record.start, record.end, record.sequence, 0,
                0, record.device, None)
    if record.kind == PB_EVENT_KERNEL:
        if record.details < 0:
            return None
        mark = &self.buffer.marks[record.details]
        details = times_of(self.recorder, mark)
        if details is None:
            return None
        device = mark.device_type * 256 + mark.device
    elif record.details >= 0:
        details = read_details(self.buffer, record.details)
    if record.kind == PB_EVENT_RANGE:
        if details is None:                 # there was no memory for its name
            return None
        name = details[0][0]
    else:
        name = self.texts.get(<size_t>record.name)
        if name is None:
            name = self.texts[<size_t>record.name] = record.name.decode()
    return (record.kind, name, record.start, record.end, record.sequence, record.forward_thread,
            record.ending_thread, device, details)
