"""Ctrl-C while a kernel runs.

Python's signal handlers run on the main thread, with the interpreter lock held. A kernel that the
main thread runs without the lock polls from time to time whether it shall stop
(`PB_INTERRUPTED_CAPSULE` in abi.h). At most every PATIENCE milliseconds a poll takes the lock and
runs the handlers. If one of them raises, every later poll answers 1 until the kernel has returned,
and then the exception is raised.

A worker thread of a handoff (handoff.pyx) does not run handlers: the waiting thread does, and sets
`interrupt` in the state of the worker.
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
    PATIENCE = 50       # together with a kernel's work between two polls, well below 0.2 s

# Only the main thread writes these.
cdef unsigned long main_thread = threading.main_thread().ident
cdef bint listening = False     # a kernel runs that may be stopped
cdef bint stopped = False       # it was stopped
cdef bint left_writes = False   # and its partial write is not counted as a write yet
cdef int64_t asked = 0


cdef bint interrupts_begin() noexcept:
    """Let the following kernel poll; return the state before, which `interrupts_end` restores."""
    global listening, left_writes
    cdef bint before = listening
    if PyThread_get_thread_ident() == main_thread:
        listening = True
        left_writes = False
    elif thread_state().handoff != NULL:
        thread_state().in_kernel = 1
    return before


cdef bint interrupts_end(bint before) noexcept:
    """Note that the kernel returned; true if a handler raised."""
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
    """True, once, if the last long kernel was interrupted: its outputs are partly written."""
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
    """Answer the poll of a kernel: not 0 if it shall return."""
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
