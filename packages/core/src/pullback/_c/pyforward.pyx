"""Forward passes in Python, and compiled short cuts of some."""

from cpython.object cimport PyObject

from pullback.abi cimport PB_F32, PB_F64
from pullback._c.call cimport check_fits
from pullback._c.dtype cimport scalar_check_all
from pullback._c.elementwise cimport run_general, scalar_fits
from pullback._c.entry cimport OP_SHARES, Op, forward_register
from pullback._c.kernel cimport copy_into
from pullback._c.outputs cimport refuse_shared
from pullback._c.state cimport pb_state, thread_state
from pullback._c.tensor cimport Tensor, is_tensor
from pullback._c.views cimport own_result


cdef object forward_python(Op op, PyObject **args, PyObject *target):
    """Run an entry's Python forward pass with recording off."""
    cdef pb_state *state = thread_state()
    cdef bint before = state.grad_enabled
    cdef int i
    cdef object result
    if target != NULL and not op.flags & OP_SHARES:
        for i in range(1, op.nargs):
            refuse_shared(<Tensor>target, <object>args[i])
    state.grad_enabled = 0
    try:
        result = op.python(*[<object>args[i] for i in range(op.nargs)])
    finally:
        state.grad_enabled = before
    if target != NULL:
        if <PyObject *>result != target:
            check_fits(<Tensor>target, <Tensor?>result)
            copy_into(<Tensor>target, <Tensor>result)
        return <object>target
    return own_result(result)


cdef object forward_view_python(Op op, PyObject **args, PyObject *target):
    """Run a view's Python forward pass; grad mode stays, since views remember it."""
    cdef int i
    return op.python(*[<object>args[i] for i in range(op.nargs)])


cdef object forward_scaled_term(Op op, PyObject **args, PyObject *target):
    """addcmul, addcdiv of (self, tensor1, tensor2, value): a kernel call if all have one dtype."""
    cdef Tensor first = <Tensor>args[0]
    cdef int i
    cdef bint fits = first.dtype == PB_F32 or first.dtype == PB_F64
    for i in range(1, 3):
        fits = fits and is_tensor(<object>args[i]) and (<Tensor>args[i]).dtype == first.dtype
    if fits and scalar_fits(<object>args[3], first.dtype):
        scalar_check_all(<object>args[3], first.dtype)
        return run_general(op, op.slot, args, 4, target)
    return forward_python(op, args, target)


forward_register("scaled_term", forward_scaled_term)
