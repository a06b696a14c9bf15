# build: small
"""What anomaly detection hears of: nodes made, memory written, and the node that failed."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

from pullback._c.graph.node cimport node_object
from pullback._c.base.state cimport thread_state
from pullback._c.graph.tensor cimport TENSOR_IS_VIEW, Tensor, is_tensor
from pullback._c.base.types cimport pb_node, pb_storage

__all__ = ["set_listeners"]

# Called with (node, node that is running or None), with nothing, and with the node that failed.
cdef object on_node = None
cdef object running_line = None
cdef object on_failure = None


def set_listeners(node, line, failure):
    """Install what anomaly detection does; ``place`` returns the source line that is running."""
    global on_node, running_line, on_failure
    on_node = node
    running_line = line
    on_failure = failure


cdef int note_node(pb_node *node) except -1:
    """Tell of a node that was just made."""
    cdef pb_node *running = <pb_node *>thread_state().running_node
    if on_node is not None:
        on_node(node_object(node), None if running == NULL else node_object(running))
    return 0


cdef int note_result(object result) except -1:
    """Tell of the node that the results of an op share; of a written view, of its base's too."""
    cdef Tensor tensor
    for item in (result,) if is_tensor(result) else result:
        tensor = <Tensor>item
        if tensor.flags & TENSOR_IS_VIEW and (<Tensor>tensor.extra.base).node != NULL:
            note_node((<Tensor>tensor.extra.base).node)
        if tensor.node != NULL:
            return note_node(tensor.node)
    return 0


cdef int note_write(pb_storage *storage) except -1:
    """Remember which source line wrote the memory."""
    cdef PyObject *before
    if running_line is None:
        return 0
    line = running_line()
    Py_INCREF(line)
    before = storage.written_at         # only now: another thread may have written meanwhile
    storage.written_at = <PyObject *>line
    Py_XDECREF(before)
    return 0


cdef int note_freed(pb_node *node) except -1:
    """Remember in a node's metadata which source line ran the pass that freed its saved values."""
    if running_line is not None:
        node_object(node).metadata["freed_at"] = running_line()
    return 0


cdef int note_failure(pb_node *node) except -1:
    """Tell of the node that raised."""
    if on_failure is not None:
        on_failure(node_object(node))
    return 0
