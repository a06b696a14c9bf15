from cpython.object cimport PyObject

from pullback._c.graph.tensor cimport Tensor
from pullback._c.base.types cimport pb_edge, pb_layout, pb_node

cdef object fit_gradient(pb_node *source, int position, pb_edge *edge, object value)
cdef object implicit_seed(pb_edge *edge)
cdef int check_implicit_seed(pb_layout *layout, int dtype) except -1
cdef bint is_logged() except -1
cdef int log_node(pb_node *node, PyObject **grads) except -1
cdef int edge_of_input(object item, pb_edge *edge) except -1
cdef int edge_of_item(object item, pb_edge *edge, str refusal) except -1
cdef int check_not_in_transform() except -1
cdef str why_no_grad(Py_ssize_t position, Tensor root)
cdef int check_not_batched(Tensor tensor) except -1
