"""Running one node: dispatch by its kind, and observers."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from pullback.abi cimport PB_EVENT_NODE, pb_event
from pullback._c.engine.accumulate cimport accumulate_grad, add_target
from pullback._c.engine.formula cimport op_backward
from pullback._c.engine.custom_function cimport apply_error, apply_python
from pullback._c.dispatch.observer cimport begin_node, end_event
from pullback._c.engine.copy_slices cimport apply_copy_slices
from pullback._c.base.state cimport globals_, pb_globals
from pullback._c.graph.tensor cimport Tensor
from pullback._c.base.types cimport (
    NODE_ACCUMULATE, NODE_COPY_SLICES, NODE_OP, NODE_PYTHON, pb_node)

cdef pb_globals *process = globals_()


cdef int node_apply(pb_node *node, PyObject **grads, PyObject **results, bint create_graph,
                    uint64_t skipped, add_target *add_targets) except -1:
    """Run a node: `grads` are borrowed, `results` gets owned gradients or NULL, one per edge.

    Bit i of `skipped` is set if the gradient of edge i is not needed. ``add_targets``, if it is not
    NULL, has the tensor that the gradient of each edge can be added to; such a gradient is not in
    `results`.
    """
    if process.observer != NULL:
        return apply_observed(node, grads, results, create_graph, skipped, add_targets)
    return apply_by_kind(node, grads, results, create_graph, skipped, add_targets)


cdef inline int apply_by_kind(pb_node *node, PyObject **grads, PyObject **results,
                              bint create_graph, uint64_t skipped,
                              add_target *add_targets) except -1:
    if node.kind == NODE_OP:
        return op_backward(node, grads, results, skipped, add_targets)
    if node.kind == NODE_ACCUMULATE:
        if grads[0] != NULL:
            accumulate_grad(<Tensor>node.op, grads[0], create_graph)
        return 0
    if node.kind == NODE_PYTHON:
        return apply_python(node, grads, results)
    if node.kind == NODE_COPY_SLICES:
        return apply_copy_slices(node, grads, results, create_graph, skipped)
    return apply_error(node)


cdef int apply_observed(pb_node *node, PyObject **grads, PyObject **results, bint create_graph,
                        uint64_t skipped, add_target *add_targets) except -1:
    cdef pb_event event
    begin_node(&event, node, grads, PB_EVENT_NODE)
    try:
        return apply_by_kind(node, grads, results, create_graph, skipped, add_targets)
    finally:
        end_event(&event)
