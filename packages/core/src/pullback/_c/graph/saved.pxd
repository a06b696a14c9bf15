from cpython.object cimport PyObject

from pullback._c.graph.tensor cimport Tensor
from pullback._c.base.types cimport pb_node, pb_saved

cdef enum:                      # flags of a saved value that a pack hook returned
    PACKED_OUTPUT = 1
    PACKED_ROOT = 2             # of a tensor without a node

cdef int check_savable(Tensor tensor) except -1
cdef int save_tensor(pb_node *node, int index, Tensor tensor, bint is_output) except -1
cdef int save_shape(pb_node *node, int index, Tensor tensor) except -1
cdef int save_object(pb_node *node, int index, object value) except -1
cdef int save_tuple(pb_node *node, int index, tuple values) except -1
cdef object saved_unpack(pb_node *node, int index, str name)
cdef void set_gradient_node(pb_node *(*function)(Tensor tensor) except? NULL) noexcept
cdef void set_inner_history(int (*function)(pb_node *inner, Tensor output) except -1) noexcept
cdef int pack_into(pb_node *node, int index, Tensor tensor, bint is_output, object pack,
                   object unpack) except -1
cdef object copy_wrapper_state(Tensor tensor)
cdef int give_packed_wrapper_state(pb_node *node, int index, object wrapper) except -1
cdef int node_check_alive(pb_node *node) except -1


cdef class KeptTuple:
    cdef list values
    cdef list versions
    cdef object unpack


cdef class Like:
    cdef readonly tuple shape
    cdef readonly object dtype
    cdef readonly object device
