from libc.stdint cimport uint16_t, uint32_t

from pullback._c.engine.ready cimport node_task
from pullback._c.graph.tensor cimport Tensor
from pullback._c.base.types cimport pb_node


cdef class StreamOrder:
    cdef StreamOrder outer      # of the pass inside of which this one runs, or None
    cdef dict callers           # device -> the caller's current stream
    cdef set leaves             # streams on which gradients were left for the caller

    cdef uint16_t caller_on(self, int device_type, int device_index) except? 0
    cdef uint16_t source_of(self, pb_node *source, uint16_t own) except? 0
    cdef int enter(self, node_task *task) except -1
    cdef uint16_t arrive(self, pb_node *source, node_task *task, uint32_t nr, Tensor grad,
                         bint is_added) except? 0
    cdef bint is_shared(self, pb_node *source, node_task *task, uint32_t nr) except -1
    cdef int hand_over(self, pb_node *node, uint32_t nr, Tensor grad) except -1
    cdef int finish_leaf(self, pb_node *node) except -1
    cdef int leave(self, bint failed) except -1
    cdef int restore(self) except -1
