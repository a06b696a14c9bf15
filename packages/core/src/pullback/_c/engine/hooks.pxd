from cpython.object cimport PyObject

from pullback._c.base.types cimport pb_node

cdef int run_tensor_hooks(pb_node *node, PyObject **grads) except -1
cdef int run_leaf_hooks(pb_node *node, PyObject **grads) except -1
cdef int run_pre_hooks(pb_node *node, PyObject **grads) except -1
cdef int run_post_hooks(pb_node *node, PyObject **grads, PyObject **results) except -1
cdef int run_post_accumulate(pb_node *node) except -1
