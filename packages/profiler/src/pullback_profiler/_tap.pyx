"""Observers written in Python: what core tells becomes calls of two functions."""

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t, uint64_t

from pullback.abi cimport (
    PB_EVENT_KERNEL, PB_OBSERVER_CAPSULE, pb_array, pb_event, pb_observer)

from pullback.backend import attach_observer, detach_observer, thread_number

__all__ = ["attach", "detach"]

cdef set attached = set()       # are told by core, so they have to live


cdef class Tap:
    cdef pb_observer observer
    cdef object capsule
    cdef object on_begin
    cdef object on_end
    cdef bint shapes
    cdef uint64_t thread      # the only one that is told; 0: all
    cdef dict running                   # thread -> numbers of what has begun
    cdef bint leaving                   # nothing more begins

    def __cinit__(self, on_begin, on_end, bint shapes, bint all_threads):
        self.on_begin = on_begin
        self.on_end = on_end
        self.shapes = shapes
        self.thread = 0 if all_threads else thread_number()
        self.running = {}
        self.observer.size = sizeof(pb_observer)
        self.observer.self = <void *>self
        self.observer.begin = tell_begin
        self.observer.end = tell_end
        self.observer.memory = ignore_memory
        self.capsule = PyCapsule_New(&self.observer, PB_OBSERVER_CAPSULE, NULL)


def attach(begin, end, bint record_shapes=False, threads="all"):
    """Call ``begin`` and ``end`` around every op, node, range and evaluation; return a token.

    ``begin(kind, name, sequence, forward_thread, sizes)`` gets a ``pb_event_kind``, and the sizes
    of the inputs as a list if ``record_shapes``, else None; ``end()`` nothing. Both run on the
    thread of the event, properly nested there, whatever it raises; what they raise goes to
    ``sys.unraisablehook``. ``threads`` is "all" or "current".
    """
    cdef Tap tap = Tap(begin, end, record_shapes, threads == "all")
    attach_observer(tap.capsule)
    attached.add(tap)
    return tap


def detach(Tap token not None):
    """Call the functions no more; what is running on this thread ends now.

    What runs on other threads ends there, in its time. Raises: RuntimeError for what is not
    attached.
    """
    cdef list running = token.running.pop(thread_number(), [])
    if token not in attached or token.leaving:
        raise RuntimeError("detach(): these functions are not attached")
    token.leaving = True
    for _ in running:
        token.on_end()
    leave_when_done(token)


cdef int leave_when_done(Tap tap) except -1:
    if tap.leaving and not any(tap.running.values()):
        detach_observer(tap.capsule)
        attached.discard(tap)
    return 0


cdef void tell_begin(void *self_, const pb_event *event) noexcept:
    cdef Tap self = <Tap>self_
    cdef object sizes = None
    if self.leaving or event.kind == PB_EVENT_KERNEL or (
            self.thread != 0 and event.thread != self.thread):
        return
    if self.shapes:
        sizes = [sizes_of(event, <PyObject *>event.inputs[i]) for i in range(event.ninput)]
    self.running.setdefault(event.thread, []).append(event.id)
    self.on_begin(event.kind, event.name.decode(), event.sequence, event.forward_thread, sizes)


cdef list sizes_of(const pb_event *event, PyObject *value):
    """Return the shape of a tensor, those in a sequence of them; [] for anything else."""
    cdef pb_array array
    if value == NULL:
        return []
    if event.describe(value, &array):
        return [array.shape[d] for d in range(array.ndim)]
    if isinstance(<object>value, (list, tuple)):
        found = [sizes_of(event, <PyObject *>item) for item in <object>value
                 if event.describe(<PyObject *>item, &array)]
        return found if len(found) == len(<object>value) else []
    return []


cdef void tell_end(void *self_, const pb_event *event) noexcept:
    """End an event and, before it, what began inside and has not ended."""
    cdef Tap self = <Tap>self_
    cdef list running = self.running.get(event.thread)
    if running is None or event.id not in running:
        return
    while running:
        number = running.pop()
        self.on_end()
        if number == event.id:
            break
    leave_when_done(self)


cdef void ignore_memory(void *self_, int backend, int device, void *data,
                        int64_t delta) noexcept:
    pass
