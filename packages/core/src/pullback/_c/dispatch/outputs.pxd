from cpython.object cimport PyObject

from pullback._c.graph.op cimport Op
from pullback._c.graph.tensor cimport Tensor


cdef int check_overlap(Tensor target, object value) except -1
cdef int check_outputs(Op op, PyObject **args, object targets, tuple results) except -1
cdef int check_fits(Tensor target, Tensor result) except -1
cdef int copy_to_out(Op op, Tensor target, Tensor result) except -1
cdef bint writes_directly(Op op, PyObject **args, Tensor target) except -1
cdef object own_result(object result)
cdef object run_written_lists(Op op, PyObject **args)
cdef tuple written_tensors(Op op, PyObject **args)
