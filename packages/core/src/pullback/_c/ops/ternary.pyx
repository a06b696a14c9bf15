"""Compiled forward passes of addcmul and addcdiv."""

from cpython.object cimport PyObject

from pullback.abi cimport PB_F32, PB_F64
from pullback._c.dispatch.call cimport forward_python
from pullback._c.base.dtype cimport scalar_check_all
from pullback._c.dispatch.operands cimport scalar_fits
from pullback._c.ops.elementwise cimport run_general
from pullback._c.graph.op cimport Op, forward_register
from pullback._c.graph.tensor cimport Tensor, is_tensor


cdef object forward_scaled_term(Op op, PyObject **args, PyObject *target):
    """addcmul, addcdiv of (self, tensor1, tensor2, value): one kernel call for one dtype."""
    cdef Tensor first = <Tensor>args[0]
    cdef int i
    cdef bint fits = first.dtype == PB_F32 or first.dtype == PB_F64
    for i in range(1, 3):
        fits = fits and is_tensor(<object>args[i]) and (<Tensor>args[i]).dtype == first.dtype
    if fits and scalar_fits(<object>args[3], first.dtype):
        scalar_check_all(<object>args[3], first.dtype)
        return run_general(op, op.primitive, args, 4, target)
    return forward_python(op, args, target)


forward_register("scaled_term", forward_scaled_term)
