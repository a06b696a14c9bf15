# build: small
"""Notifications for anomaly detection: new nodes, results, in-place writes, the node that failed.

What they do is Python, in `autograd/anomaly_mode.py`.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t, uint64_t

from pullback._c.graph.node cimport node_object
from pullback._c.base.state cimport CHECK_FORWARD, globals_, pb_globals, thread_state
from pullback._c.graph.tensor cimport TENSOR_IS_VIEW, Tensor, is_tensor
from pullback._c.base.types cimport pb_node, pb_storage, pb_storage_extra
from pullback._c.device.storage cimport storage_extra

__all__ = ["set_listeners"]

cdef pb_globals *process = globals_()

# Called with (node, the running node or None), without arguments, with the node that failed, with
# (name of an op, operands, result), and with (node, gradients that it got, those that it returned).
cdef object on_node = None
cdef object running_line = None
cdef object on_failure = None
cdef object on_forward = None
cdef object on_gradients = None


def set_listeners(node, line, failure, forward, gradients):
    """Install the functions of anomaly detection; ``line`` returns the running source line."""
    global on_node, running_line, on_failure, on_forward, on_gradients
    on_node = node
    running_line = line
    on_failure = failure
    on_forward = forward
    on_gradients = gradients


cdef inline bint is_sampled(uint64_t number) noexcept:
    """True if the node or op of that number is one of those that are looked at."""
    return number * <uint64_t>0x9e3779b97f4a7c15 >> 32 <= process.anomaly_rate


cdef int note_node(pb_node *node) except -1:
    """Notify of a node that was just made."""
    cdef pb_node *running = <pb_node *>thread_state().running_node
    if on_node is not None and is_sampled(node.sequence):
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


cdef uint64_t results_seen = 0      # of ops, to choose some
cdef uint64_t writes_seen = 0

cdef bint wants_result() noexcept:
    """True if the result of the op that begins is one of those that are checked."""
    global results_seen
    if not process.anomaly or not process.anomaly_checks & CHECK_FORWARD:
        return False
    results_seen += 1
    return on_forward is not None and is_sampled(results_seen)


cdef int note_forward(str name, int nargs, PyObject **args, object result) except -1:
    """Notify of the result of an op."""
    on_forward(name, [<object>args[i] for i in range(nargs) if args[i] != NULL], result)
    return 0


cdef bint wants_gradients(pb_node *node) noexcept:
    """True if the gradients of a node are among those that are checked."""
    return (process.anomaly and process.anomaly_checks and on_gradients is not None
            and is_sampled(node.sequence))


cdef int note_gradients(pb_node *node, PyObject **grads, PyObject **results) except -1:
    """Notify of the gradients that a node got and returned; None where there is none."""
    cdef uint32_t i
    on_gradients(
        node_object(node),
        [None if grads[i] == NULL else <object>grads[i] for i in range(node.noutputs)],
        [None if results[i] == NULL else <object>results[i] for i in range(node.nedges)])
    return 0


cdef int note_write(pb_storage *storage) except -1:
    """Store the source line of a write in the storage."""
    cdef pb_storage_extra *extra
    cdef PyObject *before
    global writes_seen
    writes_seen += 1
    if running_line is None or not is_sampled(writes_seen) and storage.extra == NULL:
        return 0
    line = None
    if is_sampled(writes_seen):
        line = running_line()
        Py_INCREF(line)
    extra = storage_extra(storage)
    before = extra.written_at           # read after the call: another thread may have written
    extra.written_at = NULL if line is None else <PyObject *>line
    Py_XDECREF(before)
    return 0


cdef int note_freed(pb_node *node) except -1:
    """Store in a node's metadata the source line of the pass that freed its saved values."""
    if running_line is not None and is_sampled(node.sequence):
        node_object(node).metadata["freed_at"] = running_line()
    return 0


cdef int note_failure(pb_node *node) except -1:
    """Notify of the node that raised."""
    if on_failure is not None:
        on_failure(node_object(node))
    return 0
