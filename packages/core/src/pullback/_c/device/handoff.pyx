# build: small
"""Handoff: deeply nested backward passes go on in a worker thread, which has a fresh stack.

The calling thread waits. The worker has copies of its state: modes, open levels, thread number,
streams, context variables. An exception is raised again in the calling thread. Signal handlers run
in the main thread, which may be the waiting one: what a handler raises is raised in the worker, and
finally by the waiting call.
"""

import _thread
import contextvars

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from pullback._c.base.state cimport globals_, pb_globals, pb_state, state_reset, thread_state
from pullback._c.device.streams cimport stream_set, streams_here

cdef extern from "Python.h":
    int PyThreadState_SetAsyncExc(unsigned long thread, PyObject *error)
    int PyErr_CheckSignals() except -1
    int Py_GetRecursionLimit()

cdef enum:
    LEVELS_PER_FRAME = 20       # nested backward passes for each frame of the recursion limit

cdef pb_globals *process = globals_()
cdef object get_ident = _thread.get_ident
cdef list carried = []


def carry(local):
    """Copy the contents of a ``threading.local`` to workers and back from now on; return it."""
    carried.append(local)
    return local


cdef class Handoff:
    """A call that a worker thread makes for a waiting thread."""
    cdef object (*run)(object)
    cdef object argument, result, error
    cdef object done                # a lock, released when the worker is done
    cdef pb_state state             # thread state, copied to the worker and back
    cdef list locals                # contents of each of ``carried``, copied likewise
    cdef list streams
    cdef unsigned long worker       # the worker's thread id; 0: not started, or ended
    cdef pb_state *working          # the worker's thread state
    cdef void *outer                # borrowed: the Handoff of the calling thread, or NULL
    cdef Handoff inner              # the one that the worker waits for in turn, or None
    cdef object interrupt           # exception of a signal handler, raised while this call waited

    def __call__(self):
        """Run in the worker thread."""
        self.working = thread_state()
        self.worker = get_ident()
        memcpy(self.working, &self.state, sizeof(pb_state))
        try:
            if self.interrupt_of_all() is not None:
                raise type(self.interrupt_of_all())
            for local, held in zip(carried, self.locals):
                local.__dict__.update(held)
            for number in self.streams:
                stream_set(number)
            self.result = self.run(self.argument)
        except BaseException as error:
            self.error = error
        finally:
            self.locals = locals_now()
            memcpy(&self.state, thread_state(), sizeof(pb_state))
            state_reset(thread_state())
            self.worker = 0
            self.done.release()

    cdef object wait(self):
        """Wait until the worker is done; forward what signal handlers raise meanwhile."""
        while True:
            try:
                if self.done.acquire(True, 0.1 if self.outer == NULL else -1):
                    return
                PyErr_CheckSignals()
            except BaseException as error:
                self.interrupt = error
                self.interrupt_innermost(type(error))

    cdef int interrupt_innermost(self, object kind) except -1:
        cdef Handoff last = self
        while last.inner is not None:
            last = last.inner
        if last.worker and last.working.in_kernel:      # interrupts.pyx raises it
            last.working.interrupt = <PyObject *>kind   # a type that `self.interrupt` keeps
        elif last.worker:
            PyThreadState_SetAsyncExc(last.worker, <PyObject *>kind)
        return 0

    cdef object interrupt_of_all(self):
        """Return the exception of a signal handler in the outermost waiting call, or None."""
        cdef Handoff first = self
        while first.outer != NULL:
            first = <Handoff>first.outer
        return first.interrupt


cdef list locals_now():
    return [dict(local.__dict__) for local in carried]


cdef object on_fresh_stack(object (*run)(object), object argument, uint64_t level):
    """Return ``run(argument)``, run in a worker thread; `level` is the number of nested calls."""
    cdef pb_state *state = thread_state()
    cdef Handoff task = Handoff.__new__(Handoff)
    cdef Handoff outer = None if state.handoff == NULL else <Handoff>state.handoff
    if level > LEVELS_PER_FRAME * <uint64_t>Py_GetRecursionLimit():
        raise RecursionError(f"maximum recursion depth exceeded: {level} backward passes run "
                             f"inside of each other")
    context = contextvars.copy_context()
    task.run = run
    task.argument = argument
    task.outer = state.handoff
    task.locals = locals_now()
    task.streams = streams_here() if process.streams_used else []
    task.done = _thread.allocate_lock()
    task.done.acquire()
    memcpy(&task.state, state, sizeof(pb_state))
    task.state.handoff = <void *>task
    try:
        _thread.start_new_thread(context.run, (task,))
    except RuntimeError:                # no thread can be started: run on this stack
        return run(argument)
    state_reset(state)                  # signal handlers may run on this thread meanwhile
    if outer is not None:
        outer.inner = task
    task.wait()
    if outer is not None:
        outer.inner = None
    memcpy(state, &task.state, sizeof(pb_state))
    state.handoff = task.outer
    for local, held in zip(carried, task.locals):
        local.__dict__.clear()
        local.__dict__.update(held)
    return finish(task)


cdef object finish(Handoff task):
    """Return the result, or raise the worker's exception or that of the signal handler."""
    error, interrupt = task.error, task.interrupt_of_all()
    task.error = None
    if interrupt is not None and task.outer == NULL:
        raise interrupt from error
    if error is not None:
        raise error
    if interrupt is not None:
        raise type(interrupt)
    return task.result
