# build: small
"""In-place ops on lists of tensors: they write several tensors of each list and record no node."""

from cpython.object cimport PyObject

from pullback._c.base.interrupts cimport interrupts_left_writes
from pullback._c.base.state cimport thread_state
from pullback._c.graph.op cimport Op
from pullback._c.graph.record cimport (
    bump_version, check_inplace, check_writable, needs_grad, tensor_needs_grad)
from pullback._c.graph.tensor cimport Tensor


cdef tuple written_tensors(Op op, PyObject **args):
    """Return the tensors that a call writes, list by list."""
    cdef int i
    cdef list found = []
    for i in range(op.nargs):
        if op.written >> i & 1:
            found.extend(<object>args[i])
    return tuple(found)


cdef int check_targets(Op op, PyObject **args) except -1:
    """Raise for a write that is not allowed, and for one whose history would be lost."""
    cdef int i
    cdef bint recording = thread_state().grad_enabled and not thread_state().inference
    for i in range(op.nargs):
        if op.written >> i & 1:
            for item in <object>args[i]:
                check_inplace(<Tensor>item, recording and tensor_needs_grad(<Tensor>item))
                check_writable(<Tensor>item, False)
    if recording and needs_grad(op, args):
        raise RuntimeError(f"{op.name}(): the derivative is not implemented; call it under "
                           f"no_grad(), or with tensors that do not require grad")
    return 0


cdef object run_written_lists(Op op, PyObject **args):
    """Run an in-place op on lists of tensors; returns None, as torch's do.

    The forward pass checks its operands before it writes.
    """
    cdef bint done = False
    cdef int i
    check_targets(op, args)
    try:
        op.forward(op, args, NULL)
        done = True
    finally:
        if done or interrupts_left_writes():
            for i in range(op.nargs):
                if op.written >> i & 1:
                    for item in <object>args[i]:
                        bump_version(<Tensor>item, op.id)
    return None
