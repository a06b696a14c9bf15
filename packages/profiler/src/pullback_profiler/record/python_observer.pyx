"""Observers written in Python: an event of the core becomes a call of a Python function."""

import os
import sys
import threading

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t, uint64_t

from pullback.abi cimport (
    PB_EVENT_KERNEL, PB_OBSERVER_CAPSULE, pb_array, pb_event, pb_observer)

from pullback.backend import attach_observer, detach_observer, thread_number

__all__ = ["attach", "detach"]

cdef extern from "raise_later.h":
    int raise_later(object error) noexcept
    void write_unraisable(object error, object function) noexcept

cdef set attached = set()       # core has pointers to them, so they have to live


cdef class PythonObserver:
    cdef pb_observer observer
    cdef object capsule
    cdef object on_begin
    cdef object on_end
    cdef bint shapes
    cdef uint64_t thread      # the only one that is observed; 0: all
    cdef dict running                   # thread -> (its ident, numbers of what has begun)
    cdef set inside                     # threads that run one of the functions
    cdef bint leaving                   # nothing more begins

    def __cinit__(self, on_begin, on_end, bint shapes, bint all_threads):
        self.on_begin = on_begin
        self.on_end = on_end
        self.shapes = shapes
        self.thread = 0 if all_threads else thread_number()
        self.running = {}
        self.inside = set()
        self.observer.size = sizeof(pb_observer)
        self.observer.self = <void *>self
        self.observer.begin = notify_begin
        self.observer.end = notify_end
        self.observer.memory = ignore_memory
        self.capsule = PyCapsule_New(&self.observer, PB_OBSERVER_CAPSULE, NULL)


def attach(begin, end, bint record_shapes=False, threads="all"):
    """Call ``begin`` and ``end`` around every op, node, range and evaluation; return a token.

    ``begin(kind, name, sequence, forward_thread, sizes)`` gets a ``pb_event_kind``, and the sizes
    of the inputs as a list if ``record_shapes``, else None; ``end()`` nothing. Both run on the
    thread of the event, properly nested there, even if it raises. What they raise goes to
    ``sys.unraisablehook``, but KeyboardInterrupt and SystemExit are raised in the main thread as
    soon as it runs Python code again. What they do themselves is not observed. ``threads``
    is "all" or "current".
    """
    cdef PythonObserver observer = PythonObserver(begin, end, record_shapes, threads == "all")
    attach_observer(observer.capsule)
    attached.add(observer)
    return observer


def detach(PythonObserver token not None):
    """Call the functions no more; what is running on this thread ends now.

    What runs on other threads ends there, in its time.
    Raises: RuntimeError if the token is not attached.
    """
    if token not in attached or token.leaving:
        raise RuntimeError("detach(): these functions are not attached")
    token.leaving = True
    running = token.running.pop(thread_number(), (0, []))[1]
    try:
        for _ in running:
            call_end(token)
    finally:
        leave_when_done(token)


cdef int leave_when_done(PythonObserver observer) except -1:
    """Leave core once nothing is running that could end; threads that are gone end nothing."""
    if not observer.leaving or observer not in attached:
        return 0
    alive = sys._current_frames()
    for ident, running in observer.running.values():
        if running and ident in alive:
            return 0
    attached.discard(observer)
    detach_observer(observer.capsule)
    return 0


def leave_in_child():
    """Detach all observers in a process that was forked."""
    for observer in list(attached):
        attached.discard(observer)
        detach_observer((<PythonObserver>observer).capsule)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=leave_in_child)


# ---- events of the core --------------------------------------------------------------------------

cdef void notify_begin(void *self_, const pb_event *event) noexcept:
    cdef PythonObserver self = <PythonObserver>self_
    try:
        if self.leaving:
            leave_when_done(self)
        elif event.kind != PB_EVENT_KERNEL and (self.thread == 0 or event.thread == self.thread):
            begin(self, event)
    except BaseException as error:
        report_error(error, self.on_begin)


cdef int begin(PythonObserver self, const pb_event *event) except -1:
    cdef object sizes = None
    if event.thread in self.inside:         # what the functions do themselves
        return 0
    if self.shapes:
        sizes = [sizes_of(event, <PyObject *>event.inputs[i]) for i in range(event.ninput)]
    running = self.running.get(event.thread)
    if running is None:
        running = self.running[event.thread] = (threading.get_ident(), [])
    running[1].append(event.id)
    self.inside.add(event.thread)
    try:
        self.on_begin(event.kind, event.name.decode(), event.sequence, event.forward_thread, sizes)
    finally:
        self.inside.discard(event.thread)
    return 0


cdef int call_end(PythonObserver self) except -1:
    cdef object thread = thread_number()
    self.inside.add(thread)
    try:
        self.on_end()
    except BaseException as error:
        report_error(error, self.on_end)
    finally:
        self.inside.discard(thread)
    return 0


cdef void report_error(object error, object function) noexcept:
    """Report what a function raised; what is to end the program is raised again, a little later."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)) and raise_later(error) == 0:
        return
    write_unraisable(error, function)


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


cdef void notify_end(void *self_, const pb_event *event) noexcept:
    """End an event and, before it, what began inside and has not ended."""
    cdef PythonObserver self = <PythonObserver>self_
    cdef list running
    try:
        running = self.running.get(event.thread, (0, []))[1]
        if event.id not in running:
            return
        while running:
            number = running.pop()
            call_end(self)
            if number == event.id:
                break
        leave_when_done(self)
    except BaseException as error:
        report_error(error, self.on_end)


cdef void ignore_memory(void *self_, int backend, int device, void *data,
                        int64_t delta) noexcept:
    pass
