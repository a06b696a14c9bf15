from cpython.object cimport PyObject

from libc.stdint cimport uint64_t

from pullback._c.base.state cimport globals_
from pullback._c.base.types cimport pb_node, pb_storage


cdef inline bint is_sampled(uint64_t number) noexcept:
    """True if the node or op of that number is one of those that are looked at."""
    return number * <uint64_t>0x9e3779b97f4a7c15 >> 32 <= globals_().anomaly_rate


cdef inline bint wants_gradients(pb_node *node) noexcept:
    """True if the gradients of a node are among those that are checked."""
    return (globals_().anomaly and globals_().anomaly_checks and is_sampled(node.sequence))


cdef int note_node(pb_node *node) except -1
cdef int note_result(object result) except -1
cdef bint wants_result() noexcept
cdef list operands_before(int nargs, PyObject **args, object written)
cdef int note_forward(str name, int nargs, PyObject **args, list operands,
                      object result) except -1
cdef int note_gradients(pb_node *node, PyObject **grads, PyObject **results) except -1
cdef int note_write(pb_storage *storage) except -1
cdef int note_freed(pb_node *node) except -1
cdef int note_failure(pb_node *node) except -1
