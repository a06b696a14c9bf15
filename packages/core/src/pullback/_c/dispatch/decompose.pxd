from cpython.object cimport PyObject

from pullback._c.graph.op cimport Op

cdef object forward_or_decompose(Op op, PyObject **args, PyObject *target)
