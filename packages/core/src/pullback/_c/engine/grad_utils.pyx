# build: small
"""Single gradients: seeds, fitting to forward inputs, the NaN check, logging, error messages."""

import sys

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t
from libc.string cimport memset

from pullback.abi cimport PB_EVENT_OP, pb_event
from pullback._c.base.dtype cimport (
    CATEGORY_COMPLEX, CATEGORY_FLOATING, dtype_category, dtype_object)
from pullback._c.dispatch.operands cimport cast_tensor
from pullback._c.engine.accumulate cimport is_sparse, sparse_cast, sparse_values
from pullback._c.graph.op cimport op_named
from pullback._c.dispatch.launch cimport fill_with
from pullback._c.base.layout cimport layout_retain, layout_same_shape, layout_shape_tuple
from pullback._c.graph.levels cimport whole
from pullback._c.graph.node cimport Node, node_name, node_of, node_release, node_retain
from pullback._c.dispatch.observer cimport begin_event, end_event
from pullback._c.graph.record cimport (
    accumulator_of, says_requires_grad, tensor_edge, tensor_needs_grad)
from pullback._c.ops.reduce cimport sum_to_layout
from pullback._c.base.state cimport globals_, pb_globals, thread_state
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, TENSOR_OVERRIDES, TENSOR_REQUIRES_GRAD, Tensor, device_of, is_tensor,
    tensor_device,
    tensor_device_index, tensor_device_type, tensor_extra, tensor_is_tracked, tensor_new)
from pullback._c.base.types cimport (
    NODE_ACCUMULATE, NODE_PYTHON, layout_shape, node_edges, node_meta, pb_edge, pb_layout, pb_meta,
    pb_node)

cdef pb_globals *process = globals_()
cdef object logger = None
cdef dict modules = sys.modules


cdef bint is_logged() except -1:
    """True if the logger of backward passes is enabled.

    It is not before something else has imported ``logging``, which is slow to import.
    """
    global logger
    if logger is None:
        logging = modules.get("logging")
        if logging is None:
            return False
        logger = logging.getLogger("pullback.autograd.graph")
    return logger.isEnabledFor(10)


cdef int log_node(pb_node *node, PyObject **grads) except -1:
    """Log the node that runs, with its gradients in the form f32[2, 3]."""
    cdef uint32_t i
    cdef Tensor grad
    parts = []
    for i in range(node.noutputs):
        if grads[i] == NULL:
            parts.append("None")
            continue
        grad = <Tensor>grads[i]
        dtype = dtype_object(grad.dtype)
        parts.append(f"{dtype.kind}{8 * dtype.itemsize}"
                     f"{list(layout_shape_tuple(grad.layout))}")
    logger.debug("Executing: %s with grad_outputs: [%s]", node_name(node), ", ".join(parts))
    return 0


cdef object implicit_seed(pb_edge *edge):
    """Return the gradient 1 of an output with one element."""
    cdef pb_meta *meta = node_meta(edge.node) + edge.nr
    cdef pb_event event
    check_implicit_seed(meta.layout, meta.dtype)
    if process.observer == NULL:
        return ones_of(meta)
    memset(&event, 0, sizeof(event))
    event.sequence = -1
    begin_event(&event, PB_EVENT_OP, "ones_like")
    try:
        return ones_of(meta)
    finally:
        end_event(&event)


cdef Tensor ones_of(pb_meta *meta):
    cdef Tensor out = tensor_new(layout_retain(meta.layout), meta.dtype, meta.device_type,
                                 meta.device_index)
    fill_with(out, 1)
    return out


cdef int check_implicit_seed(pb_layout *layout, int dtype) except -1:
    """Raise RuntimeError for an output without a default gradient: not one real element."""
    if layout.numel != 1:
        raise RuntimeError(f"grad can be implicitly created only for scalar outputs, but the "
                           f"output has shape {list(layout_shape_tuple(layout))}: reduce it, "
                           f"for example with .sum(), or pass gradient=")
    if dtype_category[dtype] != CATEGORY_FLOATING:
        raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got "
                           f"{dtype_object(dtype)}")
    return 0


cdef str why_no_grad(Py_ssize_t position, Tensor root):
    """Return the error message for a root without history."""
    tensor_needs_grad(root)             # updates a view's history to its base's
    if root.node != NULL or root.flags & TENSOR_REQUIRES_GRAD:
        return ""
    reason = "it is a leaf made without requires_grad=True, was made under no_grad, or was detached"
    if dtype_category[root.dtype] < CATEGORY_FLOATING:
        reason = f"its dtype {dtype_object(root.dtype)} has no derivatives"
    return (f"element {position} of tensors does not require grad and does not have a grad_fn "
            f"({reason})")


cdef object fit_gradient(pb_node *source, int position, pb_edge *edge, object value):
    """Return a gradient in the shape, dtype and device of its forward input."""
    cdef pb_meta *meta = node_meta(edge.node) + edge.nr
    cdef Tensor grad = <Tensor>value
    cdef object device
    if grad.flags & TENSOR_OVERRIDES and is_sparse(<PyObject *>value):
        device = grad.device
        if layout_same_shape(grad.layout, meta.layout) and (
                device == device_of(meta.device_type, meta.device_index)):
            return sparse_cast(grad, meta.dtype)
        raise RuntimeError(f"Function {node_name(source)} returned an invalid gradient at index "
                           f"{position} - got a sparse one of shape "
                           f"{list(layout_shape_tuple(grad.layout))} on {device} but expected "
                           f"{list(layout_shape_tuple(meta.layout))} on "
                           f"{device_of(meta.device_type, meta.device_index)}")
    if not layout_same_shape(grad.layout, meta.layout):
        grad = sum_to_shape(source, position, meta, grad)
    if grad.layout.ndim == 0 and (tensor_device_type(grad) != meta.device_type
                                  or tensor_device_index(grad) != meta.device_index):
        grad = op_named("to")(grad, device_of(meta.device_type, meta.device_index))
    if grad.dtype != meta.dtype:
        if (dtype_category[grad.dtype] == CATEGORY_COMPLEX
                and dtype_category[meta.dtype] != CATEGORY_COMPLEX):
            if source.kind == NODE_PYTHON:
                raise RuntimeError(
                    f"Function {node_name(source)} returned an invalid gradient at index "
                    f"{position} - expected type {dtype_object(meta.dtype).name} but got "
                    f"{dtype_object(grad.dtype).name}")
            grad = op_named("real")(grad)
        if grad.dtype != meta.dtype:
            if tensor_is_tracked(grad):
                grad = op_named("to")(grad, dtype_object(meta.dtype))
            else:
                grad = cast_tensor(grad, meta.dtype)
    if (tensor_device_type(grad) != meta.device_type
            or tensor_device_index(grad) != meta.device_index):
        raise RuntimeError(f"Function {node_name(source)} returned an invalid gradient at index "
                           f"{position} - expected a tensor on the device of the forward input, "
                           f"but got one on {tensor_device(grad)}")
    return grad


cdef Tensor sum_to_shape(pb_node *source, int position, pb_meta *meta, Tensor grad):
    cdef int d, lead = grad.layout.ndim - meta.layout.ndim
    expected = layout_shape_tuple(meta.layout)
    cdef bint fits = lead >= 0
    if fits:
        for d in range(meta.layout.ndim):
            if (layout_shape(meta.layout)[d] != layout_shape(grad.layout)[d + lead]
                    and layout_shape(meta.layout)[d] != 1):
                fits = False
    if not fits:
        raise RuntimeError(f"Function {node_name(source)} returned an invalid gradient at index "
                           f"{position} - got {list(layout_shape_tuple(grad.layout))} but expected "
                           f"shape compatible with {list(expected)}")
    if tensor_is_tracked(grad) or dtype_category[grad.dtype] < CATEGORY_FLOATING:
        return op_named("sum_to_size")(grad, expected)
    return sum_to_layout(grad, meta.layout)


def close_leaf(Tensor leaf not None):
    """Mark a tensor as the input of a transformed function that has returned."""
    tensor_extra(leaf).closed = True


cdef bint is_open(Tensor leaf) noexcept:
    return leaf.flags & TENSOR_REQUIRES_GRAD and (leaf.extra == NULL or not leaf.extra.closed)


def depends_on_open_leaf(Tensor output not None):
    """Return True if a tensor's history leads to a leaf that no finished transform made."""
    cdef pb_node *node
    cdef pb_edge *edges
    cdef uint32_t i
    seen = set()
    todo = []
    if output.node == NULL:
        return is_open(output)
    todo.append(<size_t>output.node)
    while todo:
        node = <pb_node *><size_t>todo.pop()
        if node.kind == NODE_ACCUMULATE and is_open(<Tensor>node.op):
            return True
        edges = node_edges(node)
        for i in range(node.nedges):
            if edges[i].node != NULL and <size_t>edges[i].node not in seen:
                seen.add(<size_t>edges[i].node)
                todo.append(<size_t>edges[i].node)
    return False


def elements_of(tensor):
    """Return the elements: the batch of a batched tensor, the values of a sparse one, or itself."""
    if is_sparse(<PyObject *>tensor):
        return sparse_values(tensor)
    if not (<Tensor>tensor).flags & TENSOR_IS_BATCHED:
        return tensor
    return whole(tensor)


cdef int check_not_batched(Tensor tensor) except -1:
    if tensor.flags & TENSOR_IS_BATCHED:
        raise RuntimeError("vmap: backward() would add gradients of single elements of a batch to "
                           "a tensor's .grad; use pullback.func.grad or pullback.autograd.grad")
    return 0


cdef int check_not_in_transform() except -1:
    """Raise while a transform runs its function."""
    if thread_state().transforms:
        raise RuntimeError(
            "backward() called inside a functorch transform (a function given to pullback.func). "
            "This is not supported: use pullback.func.grad or pullback.func.vjp instead, or call "
            "backward() outside of transforms.")
    return 0


cdef int edge_of_input(object item, pb_edge *edge) except -1:
    """Fill the edge of an input, a tensor or (Node, output number) pair, to differentiate by.

    A view of a tensor that requires grad, made without recording, gets an accumulator that no
    backward pass reaches.
    """
    if (is_tensor(item) and (<Tensor>item).node == NULL
            and not (<Tensor>item).flags & TENSOR_REQUIRES_GRAD and says_requires_grad(item)):
        edge.node = accumulator_of(<Tensor>item)
        edge.nr = 0
        return 0
    return edge_of_item(item, edge, "One of the differentiated Tensors does not require grad")


cdef int edge_of_item(object item, pb_edge *edge, str refusal) except -1:
    """Fill an edge (owned) from a tensor or a (Node, output number) pair."""
    if is_tensor(item):
        check_not_batched(<Tensor>item)
        tensor_edge(<Tensor>item, edge)
        if edge.node == NULL:
            raise RuntimeError(refusal)
        return 0
    edge.node = node_retain(node_of(<Node?>item[0]))
    edge.nr = item[1]
    if edge.nr >= edge.node.noutputs:
        node_release(edge.node)
        edge.node = NULL
        raise RuntimeError(f"{node_name((<Node>item[0]).node)} has no output number {item[1]}")
    return 0
