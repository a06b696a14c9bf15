from cpython.object cimport PyObject

from pullback._c.types cimport pb_node

cdef int node_apply(pb_node *node, PyObject **grads, PyObject **results,
                    bint create_graph) except -1
