from cpython.object cimport PyObject

from pullback._c.types cimport pb_node

cdef int op_backward(pb_node *node, PyObject **grads, PyObject **results) except -1
cdef object zeros_for(pb_node *node, int number)
