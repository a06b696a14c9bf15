from cpython.object cimport PyObject, visitproc
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint16_t, uint32_t

from pullback._c.base.types cimport (
    NODE_PYTHON, pb_edge, pb_layout, pb_meta, pb_node, pb_node_extra, pb_saved, pb_storage)

cdef pb_node *node_new(int kind, uint32_t nedges, uint32_t noutputs, uint16_t nsaved) except NULL
cdef void node_dead(pb_node *node) noexcept
cdef pb_node_extra *node_extra(pb_node *node) except NULL
cdef dict node_notes(pb_node *node)
cdef void node_release_saved(pb_node *node, int flags) noexcept
cdef void saved_clear(pb_saved *saved) noexcept
cdef int node_traverse(pb_node *node, visitproc visit, void *arg) noexcept
cdef void gc_begin(uint32_t *mark, visitproc visit) noexcept
cdef void on_accumulator_death(bint (*hook)(PyObject *, pb_node *) noexcept) noexcept
cdef void release_later(PyObject *object) noexcept
cdef pb_node *node_of(Node self) except NULL
cdef Node node_object(pb_node *node)
cdef void hide_from_collector(Node ctx, Py_ssize_t held) noexcept
cdef void show_to_collector(Node wrapper) noexcept
cdef str node_name(pb_node *node)
cdef uint32_t node_gradient_count(pb_node *node) noexcept
cdef void node_set_meta(pb_node *node, int number, pb_layout *layout, int dtype,
                        pb_storage *storage) noexcept


cdef class Node:
    cdef pb_node *node
    cdef uint32_t gc_mark
    cdef dict __dict__
    cdef object __weakref__


cdef inline pb_node *node_retain(pb_node *node) noexcept:
    if node.kind == NODE_PYTHON:
        Py_INCREF(<object>node.wrapper)
    else:
        node.refcount += 1
    return node


cdef void node_release_python(pb_node *node) noexcept


cdef inline void node_release(pb_node *node) noexcept:
    if node.kind == NODE_PYTHON:
        node_release_python(node)
    else:
        node.refcount -= 1
        if node.refcount == 0:
            node_dead(node)
