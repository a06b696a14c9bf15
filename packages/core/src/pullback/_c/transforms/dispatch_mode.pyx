# build: small
"""Telling watchers of ops: what is left to run when batches and tangents have had their turn.

The innermost watcher is told first, and while it looks at an op its level is out of sight: what it
runs itself, and what the op is made of below autograd, only those further out see.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from pullback._c.dispatch.call cimport op_record, op_run_inplace, run_forward
from pullback._c.graph.op cimport MAX_ARGS, OP_INPLACE, Op
from pullback._c.graph.levels cimport Level, disable_level, innermost_level
from pullback._c.base.state cimport thread_state


cdef class Call:
    """A call of an op that a watcher was told of: calling it runs the op."""
    cdef Op op
    cdef tuple args

    def __call__(self):
        cdef PyObject *args[MAX_ARGS]
        cdef int i
        for i in range(self.op.nargs):
            args[i] = <PyObject *>self.args[i]
        return forward(self.op, args)


cdef object forward(Op op, PyObject **args):
    """Run an op for the watchers in sight; one that is not in-place is not recorded."""
    cdef Level level = innermost_level(True)
    cdef Call call
    cdef uint64_t disabled
    cdef int i
    if level is None:
        return op_run_inplace(op, args) if op.flags & OP_INPLACE else run_forward(op, args, NULL)
    disabled = disable_level(level.number)
    try:
        if level.on_call is None:
            return forward(op, args)
        call = Call.__new__(Call)
        call.op = op
        call.args = tuple([<object>args[i] for i in range(op.nargs)])
        return level.on_call(op, call.args, call)
    finally:
        thread_state().disabled_levels = disabled


cdef object run_in_dispatch_mode(Op op, PyObject **args):
    """Run an op in the sight of watchers, if there are any, and record it."""
    return op_record(op, args, forward(op, args))


cdef object run_inplace_in_dispatch_mode(Op op, PyObject **args):
    """As ``run_in_dispatch_mode`` for an in-place op, whose write is announced first."""
    notify_write(op, (<object>args[0],))
    return forward(op, args)


cdef int notify_write(Op op, object targets) except -1:
    """Tell all watchers in sight that an op is about to write to tensors."""
    cdef uint64_t disabled = thread_state().disabled_levels
    cdef Level level = innermost_level(True)
    try:
        while level is not None:
            disable_level(level.number)
            if level.on_write is not None:
                level.on_write(op, targets)
            level = innermost_level(True)
    finally:
        thread_state().disabled_levels = disabled
    return 0
