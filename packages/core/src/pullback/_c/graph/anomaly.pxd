from cpython.object cimport PyObject

from pullback._c.base.types cimport pb_node, pb_storage

cdef int note_node(pb_node *node) except -1
cdef int note_result(object result) except -1
cdef bint wants_result() noexcept
cdef int note_forward(str name, int nargs, PyObject **args, object result) except -1
cdef bint wants_gradients(pb_node *node) noexcept
cdef int note_gradients(pb_node *node, PyObject **grads, PyObject **results) except -1
cdef int note_write(pb_storage *storage) except -1
cdef int note_freed(pb_node *node) except -1
cdef int note_failure(pb_node *node) except -1
