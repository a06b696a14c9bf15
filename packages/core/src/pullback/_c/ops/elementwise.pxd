from cpython.object cimport PyObject

from pullback._c.graph.op cimport Op
from pullback._c.graph.tensor cimport Tensor


cdef PyObject *ONE               # the int 1, as defaults hold it
cdef object forward_elementwise(Op op, PyObject **args, PyObject *target)
cdef object run_general(Op op, int primitive, PyObject **values, int count, PyObject *target)
