from cpython.object cimport PyObject

from pullback._c.graph.op cimport Op

cdef object run_with_tangents(Op op, PyObject **args, int level)
cdef object run_inplace_with_tangents(Op op, PyObject **args, int level)
