from libc.stdint cimport int32_t, uint32_t, uint64_t

from pullback._c.base.types cimport pb_edge
from pullback._c.engine.ready cimport node_task, ready_queue
from pullback._c.engine.stream_order cimport StreamOrder

cdef enum:
    BLOCK_LENGTH = 256          # tasks of a block; four blocks fill a slab of the pool


ctypedef struct task_block:
    task_block *next
    uint32_t used
    node_task tasks[BLOCK_LENGTH]


# One backward pass.
cdef class GraphTask:
    cdef bint keep_graph, create_graph
    cdef bint restricted                # only some inputs are asked for
    cdef bint cut                       # their nodes neither run nor lead on
    cdef int freed                      # flags of nodes whose saved values this pass frees
    cdef task_block *blocks
    cdef dict table                     # node address -> task, where the node points to another
    cdef ready_queue ready
    cdef bint accumulate                # the inputs' nodes run too
    cdef pb_edge *roots                 # borrowed
    cdef Py_ssize_t nroots
    cdef list grads                     # one per root
    cdef pb_edge *inputs                # borrowed: the edges whose gradients are captured
    cdef Py_ssize_t ninputs
    cdef int32_t *next_capture          # owned: of each input, the next one at the same node, or -1
    cdef list captured, callbacks
    cdef uint64_t number
    cdef void *outer
    cdef uint64_t level                 # number of passes that this one is nested in
    cdef StreamOrder order              # None as long as only default streams are used


cdef object run_pass(pb_edge *edges, Py_ssize_t nroots, list grads, bint keep_graph,
                     bint create_graph, bint restricted, Py_ssize_t ninputs, bint accumulate,
                     bint cut=*)
