"""Ctrl-C while a kernel runs.

Python's signal handlers run on the main thread, with the interpreter lock held. A kernel that the
main thread runs without the lock asks from time to time whether to go on (`PB_INTERRUPTED_CAPSULE`
in abi.h). At most every PATIENCE milliseconds the question takes the lock and lets the handlers
run. If one of them raises, the answer is no until the kernel returns, and the exception is raised.

A thread that works for one that waits (handoff.pyx) does not run handlers: the one that waits does,
and leaves word in the state of the thread that works.
"""

import os
import threading

from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int64_t

from pullback.abi cimport PB_INTERRUPTED_CAPSULE
from pullback._c.base.state cimport pb_state, thread_state

cdef extern from "Python.h":
    int check_signals "PyErr_CheckSignals"()        # leaves the exception set
    PyObject *PyErr_Occurred()
    void PyErr_SetNone(PyObject *kind)
    unsigned long PyThread_get_thread_ident() nogil

cdef extern from "pullback/clock.h" nogil:
    int64_t pb_milliseconds()

cdef enum:
    PATIENCE = 50       # with what a kernel does between two questions, well below 0.2 s

# The main thread alone writes these.
cdef unsigned long main_thread = threading.main_thread().ident
cdef bint listening = False     # a kernel runs that may be asked to stop
cdef bint stopped = False       # and was told
cdef bint left_writes = False   # what it wrote until then has not been counted as a write
cdef int64_t asked = 0


cdef bint interrupts_begin() noexcept:
    """Let the kernel that follows ask; return whether anybody did, for `interrupts_end`."""
    global listening, left_writes
    cdef bint before = listening
    if PyThread_get_thread_ident() == main_thread:
        listening = True
        left_writes = False
    elif thread_state().handoff != NULL:
        thread_state().in_kernel = 1
    return before


cdef bint interrupts_end(bint before) noexcept:
    """The kernel returned: true if a handler raised."""
    global listening, stopped, left_writes
    cdef bint raised
    if PyThread_get_thread_ident() != main_thread:
        return end_handed_on(thread_state())
    raised = left_writes = stopped
    stopped = False
    listening = before
    return raised


cdef bint end_handed_on(pb_state *state) noexcept:
    cdef bint raised = state.interrupt != NULL
    state.in_kernel = 0
    state.left_writes = raised
    if raised:
        if PyErr_Occurred() == NULL:
            PyErr_SetNone(state.interrupt)
        state.interrupt = NULL
    return raised


cdef bint interrupts_left_writes() noexcept:
    """True, once, if the last long kernel was ended: its target has some of what it would write."""
    global left_writes
    cdef bint found
    if PyThread_get_thread_ident() == main_thread:
        found = left_writes
        left_writes = False
    else:
        found = thread_state().left_writes
        thread_state().left_writes = 0
    return found


cdef int interrupted() noexcept nogil:
    """Answer a kernel: not 0 if it shall end."""
    global asked
    cdef int64_t now
    if PyThread_get_thread_ident() != main_thread:
        return thread_state().interrupt != NULL
    if not listening:
        return 0
    if stopped:
        return 1
    now = pb_milliseconds()
    if now - asked < PATIENCE:
        return 0
    asked = now
    return run_handlers()


cdef int run_handlers() noexcept with gil:
    global stopped
    if check_signals() != 0:
        stopped = True
    return stopped


def _after_fork():
    global main_thread
    main_thread = PyThread_get_thread_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

INTERRUPTED = PyCapsule_New(<void *>interrupted, PB_INTERRUPTED_CAPSULE, NULL)
