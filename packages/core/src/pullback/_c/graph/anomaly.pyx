# build: small
"""Notifications for anomaly detection: new nodes, in-place writes, the node that failed.

What they do is Python, in `autograd/anomaly_mode.py`.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF

from pullback._c.graph.node cimport node_object
from pullback._c.base.state cimport thread_state
from pullback._c.graph.tensor cimport TENSOR_IS_VIEW, Tensor, is_tensor
from pullback._c.base.types cimport pb_node, pb_storage, pb_storage_extra
from pullback._c.device.storage cimport storage_extra

__all__ = ["set_listeners"]

# Called with (node, the running node or None), without arguments, and with the node that failed.
cdef object on_node = None
cdef object running_line = None
cdef object on_failure = None


def set_listeners(node, line, failure):
    """Install the functions of anomaly detection; ``line`` returns the running source line."""
    global on_node, running_line, on_failure
    on_node = node
    running_line = line
    on_failure = failure


cdef int note_node(pb_node *node) except -1:
    """Notify of a node that was just made."""
    cdef pb_node *running = <pb_node *>thread_state().running_node
    if on_node is not None:
        on_node(node_object(node), None if running == NULL else node_object(running))
    return 0


cdef int note_result(object result) except -1:
    """Notify of the node that the results of an op share; for a written view of its base's too."""
    cdef Tensor tensor
    for item in (result,) if is_tensor(result) else result:
        tensor = <Tensor>item
        if tensor.flags & TENSOR_IS_VIEW and (<Tensor>tensor.extra.base).node != NULL:
            note_node((<Tensor>tensor.extra.base).node)
        if tensor.node != NULL:
            return note_node(tensor.node)
    return 0


cdef int note_write(pb_storage *storage) except -1:
    """Store the source line of a write in the storage."""
    cdef pb_storage_extra *extra
    cdef PyObject *before
    if running_line is None:
        return 0
    line = running_line()
    Py_INCREF(line)
    extra = storage_extra(storage)
    before = extra.written_at           # read after the call: another thread may have written
    extra.written_at = <PyObject *>line
    Py_XDECREF(before)
    return 0


cdef int note_freed(pb_node *node) except -1:
    """Store in a node's metadata the source line of the pass that freed its saved values."""
    if running_line is not None:
        node_object(node).metadata["freed_at"] = running_line()
    return 0


cdef int note_failure(pb_node *node) except -1:
    """Notify of the node that raised."""
    if on_failure is not None:
        on_failure(node_object(node))
    return 0
