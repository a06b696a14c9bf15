from cpython.object cimport PyObject

from pullback._c.graph.op cimport Op


cdef object run_written_lists(Op op, PyObject **args)
cdef tuple written_tensors(Op op, PyObject **args)
