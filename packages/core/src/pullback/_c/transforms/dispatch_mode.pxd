from cpython.object cimport PyObject

from pullback._c.graph.op cimport Op

cdef object run_watched(Op op, PyObject **args)
cdef object run_inplace_watched(Op op, PyObject **args)
cdef int announce_write(Op op, object targets) except -1
