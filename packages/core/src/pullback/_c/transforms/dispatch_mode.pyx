# build: small
"""Dispatch modes: Python functions that receive the ops which remain after vmap and forward mode.

The innermost mode is first. While it handles an op its level is disabled: ops that it runs itself,
and ops of a decomposition, go to outer modes only.
"""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from pullback._c.dispatch.call cimport op_record, op_run_inplace, run_forward
from pullback._c.dispatch.outputs cimport written_tensors
from pullback._c.graph.op cimport MAX_ARGS, OP_INPLACE, OP_LISTS, Op
from pullback._c.graph.levels cimport Level, disable_level, innermost_level
from pullback._c.base.state cimport thread_state


cdef class Call:
    """The call of an op that a dispatch mode receives: calling it runs the op."""
    cdef Op op
    cdef tuple args

    def __call__(self):
        cdef PyObject *args[MAX_ARGS]
        cdef int i
        for i in range(self.op.nargs):
            args[i] = <PyObject *>self.args[i]
        return forward(self.op, args)


cdef object forward(Op op, PyObject **args):
    """Run an op through the enabled dispatch modes; not recorded unless it is in-place."""
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
    """Run an op through the enabled dispatch modes, if there are any, and record it."""
    return op_record(op, args, forward(op, args))


cdef object run_inplace_in_dispatch_mode(Op op, PyObject **args):
    """As ``run_in_dispatch_mode`` for an in-place op; notifies the modes of the write first."""
    notify_write(op, written_tensors(op, args) if op.flags & OP_LISTS else (<object>args[0],))
    return forward(op, args)


cdef int notify_write(Op op, object targets) except -1:
    """Notify all enabled dispatch modes that an op is about to write to tensors."""
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
