from cpython.object cimport PyObject

from pullback._c.base.types cimport pb_node

cdef int apply_python(pb_node *node, PyObject **grads, PyObject **results) except -1
cdef int apply_error(pb_node *node) except -1
