# build: small
# cython: auto_pickle=True
"""Context managers of grad modes, as C types: training loops enter one per step."""

from cpython.object cimport PyObject, PyTypeObject, newfunc

from pullback._c.base.state cimport globals_, pb_state, thread_state

__all__ = ["GradOff", "GradOn", "Inference", "Transformed"]

cdef enum:
    MOST = 0xFFFFFFFF

cdef newfunc plain_new


cdef class GradMode:
    """A context manager that may be entered again; keeps the outer grad mode of each entry."""
    cdef unsigned char outermost
    cdef int depth
    cdef list inner

    def __exit__(self, kind, value, traceback):
        if self.depth == 0:
            raise RuntimeError(f"{type(self).__name__}: left without having been entered")
        self.depth -= 1
        thread_state().grad_enabled = (
            self.outermost if self.depth == 0 else <bint>self.inner[self.depth - 1])


cdef class GradOff(GradMode):
    """Base of ``no_grad``."""

    def __enter__(self):
        enter(self, 0)


cdef class GradOn(GradMode):
    """Base of ``enable_grad``."""

    def __enter__(self):
        enter(self, 1)


cdef class Inference:
    """Base of ``inference_mode``."""
    cdef readonly bint mode
    cdef int depth
    cdef list before

    def __init__(self, bint mode=True):
        self.mode = mode
        self.before = []

    def __enter__(self):
        cdef pb_state *state = thread_state()
        keep(self.before, self.depth, 2 * state.inference + state.grad_enabled)
        self.depth += 1
        state.inference = self.mode
        globals_().inference += 1
        state.grad_enabled = not self.mode

    def __exit__(self, kind, value, traceback):
        cdef pb_state *state = thread_state()
        if self.depth == 0:
            raise RuntimeError(f"{type(self).__name__}: left without having been entered")
        self.depth -= 1
        found = self.before[self.depth]
        state.inference = found >> 1
        state.grad_enabled = found & 1
        globals_().inference -= 1


cdef class Transformed:
    """Entered while a transform runs its function: ``backward()`` raises there.

    A transform that differentiates leaves inference mode; one by reverse mode turns recording on.
    """
    cdef bint differentiates
    cdef bint records
    cdef unsigned char inference
    cdef unsigned char grad_enabled
    cdef unsigned int tracing

    def __init__(self, bint differentiates=False, bint records=False):
        self.differentiates = differentiates or records
        self.records = records

    def __enter__(self):
        cdef pb_state *state = thread_state()
        self.inference = state.inference
        self.grad_enabled = state.grad_enabled
        state.transforms += 1
        if self.differentiates:
            state.inference = 0
        self.tracing = state.tracing
        if self.records:
            state.grad_enabled = 1
            globals_().transform += 1 + (globals_().transform == MOST)
            state.tracing = globals_().transform

    def __exit__(self, kind, value, traceback):
        cdef pb_state *state = thread_state()
        state.transforms -= 1
        state.tracing = self.tracing
        state.inference = self.inference
        state.grad_enabled = self.grad_enabled


cdef int keep(list modes, Py_ssize_t depth, int mode) except -1:
    """Store the mode at a depth. The list never gets shorter: leaving must not allocate."""
    if len(modes) == depth:
        modes.append(mode)
    else:
        modes[depth] = mode
    return 0


cdef int enter(GradMode self, unsigned char mode) except -1:
    cdef pb_state *state = thread_state()
    if self.depth == 0:
        self.outermost = state.grad_enabled
    else:
        if self.inner is None:
            self.inner = []
        keep(self.inner, self.depth - 1, state.grad_enabled)
    self.depth += 1
    state.grad_enabled = mode
    return 0


cdef object decorating_new(type kind, PyObject *args, PyObject *kwargs):
    """Let ``mode(function)`` return the decorated function: ``@mode`` equals ``@mode()``."""
    given = <tuple>args
    if not given and kwargs == NULL:
        return plain_new(kind, args, NULL)
    if len(given) != 1 or kwargs != NULL:
        raise TypeError(f"{kind.__name__}() takes at most one argument, the function to decorate")
    return kind()(given[0])


plain_new = (<PyTypeObject *>GradMode).tp_new
(<PyTypeObject *>GradOff).tp_new = <newfunc>decorating_new
(<PyTypeObject *>GradOn).tp_new = <newfunc>decorating_new
