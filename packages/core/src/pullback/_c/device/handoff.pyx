# build: small
"""Going on in another thread when the stack of this one is used up, for passes in engine.pyx.

The thread that hands on waits, and the other one is that thread as far as this package goes: it has
its modes, its open levels, its number, its streams and copies of its context variables. An
exception comes back as it was raised. A signal's handler runs in the main thread, which may be the
one that waits: what the handler raises is raised in the thread that works, and in the end comes
from the call that waits.
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
    LEVELS_PER_FRAME = 20       # calls that wait, for each frame that Python allows on a stack

cdef pb_globals *process = globals_()
cdef object get_ident = _thread.get_ident
cdef list carried = []


def carry(local):
    """Let what a ``threading.local`` holds go along to the other thread, and back; return it."""
    carried.append(local)
    return local


cdef class Handoff:
    """What one thread does for another one that waits for it."""
    cdef object (*run)(object)
    cdef object argument, result, error
    cdef object done                # a lock, free when the thread is done
    cdef pb_state state             # on its way
    cdef list locals                # likewise: what each of ``carried`` holds
    cdef list streams
    cdef unsigned long worker       # the thread's number in the interpreter; 0: has none, or ended
    cdef pb_state *working          # that thread's own
    cdef void *outer                # borrowed: what the thread that made this one is doing
    cdef Handoff inner              # what that thread waits for in turn
    cdef object interrupt           # that came while the outermost one waited

    def __call__(self):
        """Run in the new thread."""
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
        """Wait until the thread is done; pass on what a signal's handler raises meanwhile."""
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
        """Return what a handler raised while the outermost of these waited, or None."""
        cdef Handoff first = self
        while first.outer != NULL:
            first = <Handoff>first.outer
        return first.interrupt


cdef list locals_now():
    return [dict(local.__dict__) for local in carried]


cdef object on_fresh_stack(object (*run)(object), object argument, uint64_t level):
    """Return ``run(argument)``, run in another thread; `level` others wait for this call."""
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
    except RuntimeError:                # no thread can be had: go on here as long as that goes well
        return run(argument)
    state_reset(state)                  # handlers of signals may run meanwhile
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
    """Return the result, or raise what the thread raised or was interrupted by."""
    error, interrupt = task.error, task.interrupt_of_all()
    task.error = None
    if interrupt is not None and task.outer == NULL:
        raise interrupt from error
    if error is not None:
        raise error
    if interrupt is not None:
        raise type(interrupt)
    return task.result
