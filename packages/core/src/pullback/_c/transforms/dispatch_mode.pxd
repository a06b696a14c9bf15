from cpython.object cimport PyObject

from pullback._c.graph.op cimport Op

cdef object run_in_dispatch_mode(Op op, PyObject **args)
cdef object run_inplace_in_dispatch_mode(Op op, PyObject **args)
cdef int notify_write(Op op, object targets) except -1
