from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from pullback.abi cimport pb_event
from pullback._c.graph.op cimport Op
from pullback._c.base.types cimport pb_node

cdef const char *lasting(str name) except NULL
cdef int begin_op(pb_event *event, Op op, PyObject **args) except -1
cdef int begin_node(pb_event *event, pb_node *node, PyObject **grads, int kind) except -1
cdef void begin_event(pb_event *event, int kind, const char *name) noexcept
cdef void end_op(pb_event *event) noexcept
cdef void end_event(pb_event *event) noexcept
cdef uint64_t begin_function(str name, tuple args, bint recorded) except 0
cdef int end_numbered(uint64_t number, int kind, int64_t sequence) except -1
