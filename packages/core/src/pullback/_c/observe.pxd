from cpython.object cimport PyObject

from pullback.abi cimport pb_event
from pullback._c.entry cimport Op
from pullback._c.types cimport pb_node

cdef int begin_op(pb_event *event, Op op, PyObject **args) except -1
cdef int begin_node(pb_event *event, pb_node *node, PyObject **grads, int kind) except -1
cdef void begin_event(pb_event *event, int kind, const char *name) noexcept
cdef void end_op(pb_event *event) noexcept
cdef void end_event(pb_event *event) noexcept
