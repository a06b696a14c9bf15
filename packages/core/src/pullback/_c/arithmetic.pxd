from cpython.object cimport PyObject

from pullback._c.entry cimport Op


cdef object forward_sub(Op op, PyObject **args, PyObject *target)
