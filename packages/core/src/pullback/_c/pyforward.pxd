from cpython.object cimport PyObject

from pullback._c.entry cimport Op


cdef object forward_python(Op op, PyObject **args, PyObject *target)
cdef object forward_view_python(Op op, PyObject **args, PyObject *target)
