"""What a node keeps of the forward pass, and how it is given back.

Inputs are kept as snapshots (storage, geometry, history, version), not as Python objects: a graph
holds no collector objects. Leaves that require grad, and tensors with anything unusual, are kept
as they are. An output is kept without a count on its own node, so that no cycle arises.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint32_t

from pullback._c.dtype cimport dtype_differentiable, dtype_object
from pullback._c.entry cimport Op, SOURCE_ARG, all_ops, missing
from pullback._c.layout cimport layout_retain, layout_same_shape, layout_shape_tuple
from pullback._c.node cimport node_extra, node_name, node_retain
from pullback._c.state cimport thread_state
from pullback._c.storage cimport storage_retain
from pullback._c.tensor cimport (
    TENSOR_IS_LIFTED, TENSOR_REQUIRES_GRAD, Tensor, device_of, tensor_alias, tensor_extra,
    tensor_is_exact, tensor_set_node, tensor_wrap)
from pullback._c.types cimport (
    NODE_FREED, NODE_OP, SAVED_INPUT, SAVED_NONE, SAVED_OBJECT, SAVED_OUTPUT, SAVED_PACKED,
    SAVED_SHAPE, SAVED_TENSOR, STORAGE_INFERENCE, node_saved, pb_node, pb_saved)
from pullback._c.state import is_anomaly_enabled

cdef int save_tensor(pb_node *node, int slot, Tensor tensor, bint is_output) except -1:
    """Keep a tensor in a slot of a node under construction."""
    cdef pb_saved *saved = node_saved(node) + slot
    if tensor.storage.flags & STORAGE_INFERENCE:
        raise RuntimeError("Inference tensors cannot be saved for backward. To work around you can "
                           "make a clone to get a normal tensor and use it in autograd.")
    if thread_state().saved_hooks != NULL:
        return save_packed(node, slot, tensor, is_output)
    saved.version = tensor.storage.version
    saved.dtype = tensor.dtype
    if is_output:
        saved.kind = SAVED_OUTPUT
        saved.output_nr = tensor.output_nr
    elif (tensor.flags & (TENSOR_REQUIRES_GRAD | TENSOR_IS_LIFTED)
            or not tensor_is_exact(tensor)):
        saved.kind = SAVED_TENSOR
        Py_INCREF(tensor)
        saved.object = <PyObject *>tensor
        if tensor.node != NULL:         # an in-place op may give the object another history
            saved.node = node_retain(tensor.node)
            saved.output_nr = tensor.output_nr
        return 0
    else:
        saved.kind = SAVED_INPUT
        if tensor.node != NULL:
            saved.node = node_retain(tensor.node)
            saved.output_nr = tensor.output_nr
    saved.storage = storage_retain(tensor.storage)
    saved.layout = layout_retain(tensor.layout)
    saved.offset = tensor.offset
    return 0


cdef int save_shape(pb_node *node, int slot, Tensor tensor) except -1:
    """Keep only the geometry, dtype and device of a tensor."""
    cdef pb_saved *saved = node_saved(node) + slot
    saved.kind = SAVED_SHAPE
    saved.dtype = tensor.dtype
    saved.layout = layout_retain(tensor.layout)
    saved.version = tensor.storage.device_type
    saved.output_nr = tensor.storage.device_index
    return 0


cdef int save_object(pb_node *node, int slot, object value) except -1:
    """Keep a parameter."""
    cdef pb_saved *saved = node_saved(node) + slot
    saved.kind = SAVED_OBJECT
    Py_INCREF(value)
    saved.object = <PyObject *>value
    return 0


cdef int save_packed(pb_node *node, int slot, Tensor tensor, bint is_output) except -1:
    """Pass the tensor through the innermost pack hook and keep what it returns."""
    cdef object pack, unpack
    cdef list pairs = <list>thread_state().saved_hooks
    pack, unpack = pairs[len(pairs) - 1]
    pack_into(node, slot, tensor, is_output, pack, unpack)
    return 0


cdef int pack_into(pb_node *node, int slot, Tensor tensor, bint is_output, object pack,
                   object unpack) except -1:
    cdef pb_saved *saved = node_saved(node) + slot
    cdef Tensor lent
    cdef uint32_t version = tensor.storage.version
    from pullback._c.state import swap_grad_enabled
    lent = tensor_alias(tensor) if is_output else tensor    # no cycle over the node itself
    before = swap_grad_enabled(False)
    try:
        packed = pack(lent)
    finally:
        swap_grad_enabled(before)
    if tensor.storage.version != version:
        raise RuntimeError("A saved tensor pack hook is modifying its input in place. "
                           "Tensors provided as input to pack hook can not be modified by "
                           "in-place operations as this can lead to unexpected side-effects. "
                           "Please open an issue if you need to perform in-place operations on "
                           "the input to a pack hook.")
    saved.kind = SAVED_PACKED
    saved.flags = 1 if is_output else 2 if tensor.node == NULL else 0
    saved.dtype = tensor.dtype
    saved.version = version
    saved.layout = layout_retain(tensor.layout)
    saved.output_nr = tensor.output_nr
    if not is_output:
        saved.node = edge_for_packed(tensor)
    Py_INCREF(packed)
    saved.object = <PyObject *>packed
    if node_extra(node).saved_hooks == NULL:
        table = {}
        Py_INCREF(table)
        node.extra.saved_hooks = <PyObject *>table
    (<dict>node.extra.saved_hooks)[slot] = unpack
    return 0


# Set by record.pyx: the node that a tensor's gradient goes to, owned.
cdef pb_node *(*tensor_gradient_node)(Tensor tensor) except? NULL


cdef void set_gradient_node(pb_node *(*function)(Tensor tensor) except? NULL) noexcept:
    global tensor_gradient_node
    tensor_gradient_node = function


cdef pb_node *edge_for_packed(Tensor tensor) except? NULL:
    return tensor_gradient_node(tensor)


# ---- giving back ---------------------------------------------------------------------------------

cdef class Like:
    """Shape, dtype and device of a tensor that was not kept itself."""

    @property
    def ndim(self):
        """The number of dims."""
        return len(self.shape)

    def dim(self):
        """Return the number of dims."""
        return len(self.shape)

    def numel(self):
        """Return the number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count


cdef Like like_saved(pb_saved *saved):
    cdef Like result = Like.__new__(Like)
    result.shape = layout_shape_tuple(saved.layout)
    result.dtype = dtype_object(saved.dtype)
    result.device = device_of(<int>saved.version, <int>saved.output_nr)
    return result


cdef int node_check_alive(pb_node *node) except -1:
    """Raise if the node's saved values were freed."""
    if node.flags & NODE_FREED:
        raise RuntimeError(
            f"Trying to backward through the graph a second time (or directly access saved "
            f"tensors after they have already been freed): the saved values of "
            f"{node_name(node)} were freed. Saved intermediate values of the graph are freed when "
            f"you call .backward() or autograd.grad(). Specify retain_graph=True if you need to "
            f"backward through the graph a second time or if you need to access saved tensors "
            f"after calling backward.")
    return 0


cdef int raise_modified(pb_node *node, pb_saved *saved, Tensor tensor) except -1:
    shape = list(layout_shape_tuple(tensor.layout))
    what = f"[pullback.{dtype_object(saved.dtype).name} {shape}]"
    made = ""
    if saved.kind == SAVED_OUTPUT:
        made = f", which is output {saved.output_nr} of {node_name(node)},"
    elif saved.node != NULL:
        made = f", which is output {saved.output_nr} of {node_name(saved.node)},"
    writer = ""
    if 0 <= tensor.storage.last_writer < len(all_ops):
        writer = (f"; the last in-place operation on it was "
                  f"{all_ops[tensor.storage.last_writer].name}")
    if is_anomaly_enabled():
        hint = ("Hint: the backtrace further above shows the operation that failed to compute its "
                "gradient. The variable in question was changed in there or anywhere later. Good "
                "luck!")
    else:
        hint = ("Hint: enable anomaly detection to find the operation that failed to compute its "
                "gradient, with pullback.autograd.set_detect_anomaly(True).")
    raise RuntimeError(
        f"one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: {what}{made} is at version {tensor.storage.version}; expected version "
        f"{saved.version} instead. It was saved by {node_name(node)}{writer}. {hint}")


cdef object default_of(pb_node *node, int slot):
    """Return what an empty slot stands for: the default of a parameter."""
    cdef Op op = <Op>node.op
    if op.saved[slot].source == SOURCE_ARG:
        value = op.defaults[op.saved[slot].number]
        if value is not missing:
            return value
    node_check_alive(node)
    return None


cdef object saved_unpack(pb_node *node, int slot, str name):
    """Return what a slot keeps: a tensor with its history, a parameter, or a Like."""
    cdef pb_saved *saved = node_saved(node) + slot
    cdef Tensor tensor
    if slot >= node.nsaved or (saved.kind == SAVED_NONE and node.kind == NODE_OP):
        return default_of(node, slot)
    if saved.kind == SAVED_OBJECT:
        return <object>saved.object
    if saved.kind == SAVED_INPUT or saved.kind == SAVED_OUTPUT:
        tensor = tensor_wrap(storage_retain(saved.storage), layout_retain(saved.layout),
                             saved.offset, saved.dtype)
        if saved.storage.version != saved.version:
            raise_modified(node, saved, tensor)
        if saved.object != NULL:
            Py_INCREF(<object>saved.object)
            tensor_extra(tensor).lifts = saved.object
            tensor.flags |= TENSOR_IS_LIFTED
        if saved.kind == SAVED_OUTPUT:
            if dtype_differentiable(saved.dtype):
                tensor_set_node(tensor, node_retain(node), saved.output_nr)
        elif saved.node != NULL:
            tensor_set_node(tensor, node_retain(saved.node), saved.output_nr)
        return tensor
    if saved.kind == SAVED_TENSOR:
        tensor = <Tensor>saved.object
        if tensor.storage.version != saved.version:
            raise_modified(node, saved, tensor)
        if tensor.node != saved.node:
            tensor = tensor_alias(tensor)
            if saved.node != NULL:
                tensor_set_node(tensor, node_retain(saved.node), saved.output_nr)
        return tensor
    if saved.kind == SAVED_SHAPE:
        return like_saved(saved)
    if saved.kind == SAVED_PACKED:
        return unpack_packed(node, slot)
    node_check_alive(node)
    return None


cdef object unpack_packed(pb_node *node, int slot):
    cdef pb_saved *saved = node_saved(node) + slot
    cdef Tensor tensor, result
    unpack = (<dict>node.extra.saved_hooks)[slot]
    packed = <object>saved.object
    found = unpack(packed)
    if not isinstance(found, Tensor):
        raise TypeError(f"Output of saved tensor unpack_hook expected to be a Tensor but got "
                        f"result of type {type(found)}")
    tensor = <Tensor>found
    if saved.kind == SAVED_NONE:
        node_check_alive(node)
    if not layout_same_shape(tensor.layout, saved.layout) or tensor.dtype != saved.dtype:
        raise RuntimeError(
            f"unpack hook of {node_name(node)} returned a tensor of shape "
            f"{list(layout_shape_tuple(tensor.layout))} and dtype "
            f"{dtype_object(tensor.dtype).name}, but the saved tensor had shape "
            f"{list(layout_shape_tuple(saved.layout))} and dtype {dtype_object(saved.dtype).name}")
    if saved.flags == 2 and saved.node == NULL:
        return tensor
    result = tensor_alias(tensor)
    if saved.flags == 1 and dtype_differentiable(saved.dtype):
        tensor_set_node(result, node_retain(node), saved.output_nr)
    elif saved.node != NULL:
        tensor_set_node(result, node_retain(saved.node), saved.output_nr)
    return result
