"""Compiled forward passes of addcmul, addcdiv and lerp."""

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
    if of_one_dtype(args, 3) and scalar_fits(<object>args[3], first.dtype):
        scalar_check_all(<object>args[3], first.dtype)
        return run_general(op, op.primitive, args, 4, target)
    return forward_python(op, args, target)


cdef object forward_interpolation(Op op, PyObject **args, PyObject *target):
    """lerp of (self, end, weight): one kernel call for one dtype."""
    cdef Tensor first = <Tensor>args[0]
    if not is_tensor(<object>args[2]):
        if of_one_dtype(args, 2) and scalar_fits(<object>args[2], first.dtype):
            scalar_check_all(<object>args[2], first.dtype)
            return run_general(op, op.primitive, args, 3, target)
    elif of_one_dtype(args, 3):
        return run_general(op, op.primitive, args, 3, target)
    return forward_python(op, args, target)


cdef bint of_one_dtype(PyObject **args, int count):
    """True for tensors that are all float32, or all float64."""
    cdef int dtype = (<Tensor>args[0]).dtype
    cdef int i
    if dtype != PB_F32 and dtype != PB_F64:
        return False
    for i in range(1, count):
        if not is_tensor(<object>args[i]) or (<Tensor>args[i]).dtype != dtype:
            return False
    return True


forward_register("scaled_term", forward_scaled_term)
forward_register("interpolation", forward_interpolation)
