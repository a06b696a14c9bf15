from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from pullback._c.base.types cimport pb_node

cdef int apply_copy_slices(pb_node *node, PyObject **grads, PyObject **results,
                           bint create_graph, uint64_t skipped) except -1
cdef void release_slices(pb_node *node, int flags) noexcept
