"""Saved values of nodes: saving them in the forward pass, and unpacking them in the backward pass.

Inputs are saved as snapshots (storage, sizes and strides, history, version), not as Python objects,
so a graph holds no objects that the collector tracks. Leaves that require grad, and tensors that a
snapshot cannot represent, are saved as objects. An output is saved without a count on its own node,
so that there is no cycle.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint32_t, uint64_t

from pullback._c.base.dtype cimport dtype_differentiable, dtype_object
from pullback._c.graph.op cimport Op, SOURCE_ARG, all_ops, missing, op_named
from pullback._c.base.layout cimport layout_retain, layout_same_shape, layout_shape_tuple
from pullback._c.graph.levels cimport WrapperState, link, wrapper_state
from pullback._c.graph.node cimport node_extra, node_name, node_retain
from pullback._c.base.state cimport pb_state, thread_state
from pullback._c.device.storage cimport storage_retain
from pullback._c.graph.tensor cimport (
    TENSOR_IS_NUMBER, TENSOR_IS_WRAPPED, TENSOR_LAZY, TENSOR_REQUIRES_GRAD, Tensor, device_of,
    tensor_alias,
    tensor_extra, tensor_is_exact, tensor_set_node, tensor_wrap)
from pullback._c.base.types cimport (
    NODE_FREED, NODE_FREED_BY_GRAD, NODE_INNER, NODE_OP, SAVED_INPUT, SAVED_NONE, SAVED_OBJECT,
    SAVED_OUTPUT, SAVED_PACKED, SAVED_SHAPE, SAVED_TENSOR, SAVED_TUPLE, STORAGE_INFERENCE,
    node_saved, pb_node, pb_saved)
from pullback._c.base.state import is_anomaly_enabled


cdef int check_savable(Tensor tensor) except -1:
    """Raise for an inference tensor outside of transforms, which may save them while they run."""
    if tensor.storage.flags & STORAGE_INFERENCE and not thread_state().transforms:
        raise RuntimeError("Inference tensors cannot be saved for backward. To work around you can "
                           "make a clone to get a normal tensor and use it in autograd.")
    return 0


cdef int save_tensor(pb_node *node, int index, Tensor tensor, bint is_output) except -1:
    """Save a tensor at an index of a new node."""
    cdef pb_saved *saved = node_saved(node) + index
    check_savable(tensor)
    if thread_state().saved_hooks != NULL and save_packed(node, index, tensor, is_output):
        return 0
    saved.version = tensor.storage.version
    saved.dtype = tensor.dtype
    if is_output:
        saved.kind = SAVED_OUTPUT
        saved.output_nr = tensor.output_nr
    elif (tensor.flags & (TENSOR_REQUIRES_GRAD | TENSOR_IS_WRAPPED | TENSOR_IS_NUMBER)
            or not tensor_is_exact(tensor)):
        saved.kind = SAVED_TENSOR
        Py_INCREF(tensor)
        saved.object = <PyObject *>tensor
        if tensor.node != NULL:         # an in-place op may change the history of the object
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
    saved.flags = tensor.flags & TENSOR_LAZY
    return 0


cdef int save_shape(pb_node *node, int index, Tensor tensor) except -1:
    """Save only the sizes and strides, dtype and device of a tensor."""
    cdef pb_saved *saved = node_saved(node) + index
    saved.kind = SAVED_SHAPE
    saved.dtype = tensor.dtype
    saved.layout = layout_retain(tensor.layout)
    saved.version = tensor.storage.device_type
    saved.output_nr = tensor.storage.device_index
    return 0


cdef int save_object(pb_node *node, int index, object value) except -1:
    """Save a parameter."""
    cdef pb_saved *saved = node_saved(node) + index
    saved.kind = SAVED_OBJECT
    Py_INCREF(value)
    saved.object = <PyObject *>value
    return 0


cdef class KeptTuple:
    """A saved tuple: tensors with their versions, results of pack hooks, other values."""


cdef enum:
    PACKED_VERSION = -1         # in place of the version of a tensor that a hook packed


cdef int save_tuple(pb_node *node, int index, tuple values) except -1:
    """Save a parameter that may hold tensors, which are checked and packed as saved tensors are."""
    cdef pb_saved *saved = node_saved(node) + index
    cdef KeptTuple kept
    if not any([isinstance(value, Tensor) for value in values]):
        return save_object(node, index, values)
    kept = KeptTuple.__new__(KeptTuple)
    kept.values = list(values)
    kept.versions = [None] * len(values)
    hooks = thread_state().saved_hooks
    if hooks != NULL:
        pack, kept.unpack, _ = <tuple>hooks
        unpack_hooks(node)              # formulas share the results of unpack
    for i, value in enumerate(values):
        if isinstance(value, Tensor):
            check_savable(<Tensor>value)
            kept.versions[i] = (<Tensor>value).storage.version
            if kept.unpack is not None:
                packed = packed_by(pack, <Tensor>value, node)
                if packed is not declined:
                    kept.values[i] = packed
                    kept.versions[i] = PACKED_VERSION
    saved.kind = SAVED_TUPLE
    Py_INCREF(kept)
    saved.object = <PyObject *>kept
    return 0


cdef object declined = object()         # what a pack hook that declined gave


@cython.auto_pickle(False)
cdef class SelectivePack:
    """A pack hook that receives the names of the op and node that save, and may decline.

    It calls ``function(tensor, op, node)`` with the names of the op and of its node; those of a
    custom Function are the same. Where that returns NotImplemented, the tensor is saved as without
    hooks.
    """
    cdef readonly object function

    def __init__(self, function):
        self.function = function


cdef int save_packed(pb_node *node, int index, Tensor tensor, bint is_output) except -1:
    """Call the innermost pack hook with the tensor and save the result; 0 if it declined."""
    cdef object pack, unpack
    pack, unpack, _ = <tuple>thread_state().saved_hooks
    return pack_into(node, index, tensor, is_output, pack, unpack)


cdef int pack_into(pb_node *node, int index, Tensor tensor, bint is_output, object pack,
                   object unpack) except -1:
    """Save what a pack hook makes of a tensor; returns 0, and saves nothing, if it declined."""
    cdef pb_saved *saved = node_saved(node) + index
    cdef uint32_t version = tensor.storage.version
    lent = tensor_alias(tensor) if is_output else tensor    # no cycle over the node itself
    packed = packed_by(pack, <Tensor>lent, node)
    if packed is declined:
        return 0
    saved.kind = SAVED_PACKED
    saved.flags = PACKED_OUTPUT if is_output else PACKED_ROOT if tensor.node == NULL else 0
    saved.dtype = tensor.dtype
    saved.version = version
    saved.layout = layout_retain(tensor.layout)
    saved.output_nr = tensor.output_nr
    if not is_output:
        saved.node = edge_for_packed(tensor)
    Py_INCREF(packed)
    saved.object = <PyObject *>packed
    wrapper = None
    if tensor.flags & TENSOR_IS_WRAPPED:
        wrapper = copy_wrapper_state(tensor)
    unpack_hooks(node)[index] = (unpack, wrapper)
    return 1


cdef object copy_wrapper_state(Tensor tensor):
    """Return copies of a tensor's wrapper states, with cloned tangents.

    A packed tensor has no version that shows writes to its tangents. The clones have tangents at
    all levels that were enabled before the running op.
    """
    cdef pb_state *state = thread_state()
    cdef uint64_t disabled = state.disabled_levels
    cdef WrapperState wrapper = wrapper_state(tensor), made = None
    cdef list found = []
    while wrapper is not None:
        if wrapper.value is not None:
            found.append(wrapper)
        wrapper = wrapper.outer
    state.disabled_levels &= ~state.op_levels
    try:
        for wrapper in reversed(found):
            made = link(<Tensor>op_named("clone")(wrapper.value), wrapper.level, made)
    finally:
        state.disabled_levels = disabled
    return made


cdef dict unpack_hooks(pb_node *node):
    """Return the node's dict of index -> (unpack hook, wrapper state), made on first use."""
    if node_extra(node).saved_hooks == NULL:
        table = {}
        Py_INCREF(table)
        node.extra.saved_hooks = <PyObject *>table
    return <dict>node.extra.saved_hooks


cdef object called(object pack, Tensor lent, pb_node *node):
    if type(pack) is not SelectivePack:
        return pack(lent)
    name = (<Op>node.op).name if node.kind == NODE_OP else node_name(node)
    found = (<SelectivePack>pack).function(
        lent, name, (<Op>node.op).node_name if node.kind == NODE_OP else name)
    return declined if found is NotImplemented else found


cdef object packed_by(object pack, Tensor lent, pb_node *node):
    """Call a pack hook with a tensor that a node saves; raises if the hook writes to it."""
    cdef uint32_t version = lent.storage.version
    from pullback._c.base.state import swap_grad_enabled
    before = swap_grad_enabled(False)
    try:
        packed = called(pack, lent, node)
    finally:
        swap_grad_enabled(before)
    if lent.storage.version != version:
        raise RuntimeError("A saved tensor pack hook is modifying its input in place. "
                           "Tensors provided as input to pack hook can not be modified by "
                           "in-place operations as this can lead to unexpected side-effects. "
                           "Please open an issue if you need to perform in-place operations on "
                           "the input to a pack hook.")
    return packed


# Set by record.pyx: returns the node that a tensor's gradient flows to, owned.
cdef pb_node *(*tensor_gradient_node)(Tensor tensor) except? NULL


cdef void set_gradient_node(pb_node *(*function)(Tensor tensor) except? NULL) noexcept:
    global tensor_gradient_node
    tensor_gradient_node = function


# Set by copy_slices.pyx: sets the history of the unpacked output of an op that wrote to a view.
cdef int (*give_inner_history)(pb_node *inner, Tensor output) except -1


cdef void set_inner_history(int (*function)(pb_node *inner, Tensor output) except -1) noexcept:
    global give_inner_history
    give_inner_history = function


cdef pb_node *edge_for_packed(Tensor tensor) except? NULL:
    return tensor_gradient_node(tensor)


# ---- unpacking -----------------------------------------------------------------------------------

cdef class Like:
    """Shape, dtype and device of a tensor that was saved by shape."""

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
            f"{node_name(node)} were freed by {what_freed(node)}. Saved intermediate values of the "
            f"graph are freed when you call .backward() or autograd.grad(). Specify "
            f"retain_graph=True if you need to backward through the graph a second time or if you "
            f"need to access saved tensors after calling backward.")
    return 0


cdef str what_freed(pb_node *node):
    """Return the call that freed the saved values; in anomaly mode with its source line."""
    call = "autograd.grad()" if node.flags & NODE_FREED_BY_GRAD else "backward()"
    if node.extra != NULL and node.extra.metadata != NULL:
        line = (<dict>node.extra.metadata).get("freed_at")
        return f"{call} at {line}" if line else call
    return call


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
        if tensor.storage.extra != NULL and tensor.storage.extra.written_at != NULL:
            writer += f", at {<object>tensor.storage.extra.written_at}"
    if node.extra != NULL and node.extra.metadata != NULL:
        stack = (<dict>node.extra.metadata).get("traceback_")
        if stack:                       # anomaly mode was on
            writer = f" at {stack[len(stack) - 1].strip().split(chr(10))[0]}{writer}"
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


cdef object default_of(pb_node *node, int index):
    """Return the default of a parameter, which an empty saved value represents."""
    cdef Op op = <Op>node.op
    if op.saved[index].source == SOURCE_ARG:
        value = op.defaults[op.saved[index].number]
        if value is not missing:
            return value
    node_check_alive(node)
    return None


cdef object saved_unpack(pb_node *node, int index, str name):
    """Unpack a saved value: a tensor with its history, a parameter, or a Like."""
    cdef pb_saved *saved = node_saved(node) + index
    cdef Tensor tensor
    if index >= node.nsaved or (saved.kind == SAVED_NONE and node.kind == NODE_OP):
        return default_of(node, index)
    if saved.kind == SAVED_OBJECT:
        return <object>saved.object
    if saved.kind == SAVED_INPUT or saved.kind == SAVED_OUTPUT:
        tensor = tensor_wrap(storage_retain(saved.storage), layout_retain(saved.layout),
                             saved.offset, saved.dtype)
        tensor.flags = saved.flags
        if saved.storage.version != saved.version:
            raise_modified(node, saved, tensor)
        if saved.object != NULL:
            give_wrapper_state(tensor, saved.object)
        if saved.kind == SAVED_OUTPUT:
            if dtype_differentiable(saved.dtype):
                if node.flags & NODE_INNER:
                    give_inner_history(node, tensor)
                else:
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
        return unpack_packed(node, index)
    if saved.kind == SAVED_TUPLE:
        return unpack_tuple(node, <KeptTuple>saved.object)
    node_check_alive(node)
    return None


cdef tuple unpack_tuple(pb_node *node, KeptTuple kept):
    cdef pb_saved saved
    cdef Tensor tensor
    found = []
    for value, version in zip(kept.values, kept.versions):
        if version == PACKED_VERSION:
            value = unpacked_by(kept.unpack, value)
        elif version is not None:
            tensor = <Tensor>value
            if tensor.storage.version != version:
                saved.kind = SAVED_INPUT
                saved.dtype = tensor.dtype
                saved.version = version
                saved.node = NULL
                raise_modified(node, &saved, tensor)
        found.append(value)
    return tuple(found)


cdef Tensor unpacked_by(object unpack, object packed):
    """Call an unpack hook; raises TypeError unless it returns a tensor."""
    found = unpack(packed)
    if not isinstance(found, Tensor):
        raise TypeError(f"Output of saved tensor unpack_hook expected to be a Tensor but got "
                        f"result of type {type(found)}")
    return <Tensor>found


cdef int give_packed_wrapper_state(pb_node *node, int index, object wrapper) except -1:
    """Save the wrapper state of a packed tensor that got tangents after it was saved."""
    cdef dict hooks = <dict>node.extra.saved_hooks
    hooks[index] = (hooks[index][0], wrapper)
    return 0


cdef int give_wrapper_state(Tensor tensor, PyObject *wrapper) except -1:
    """Set the wrapper state of a new alias to the saved tensor's."""
    Py_INCREF(<object>wrapper)
    tensor_extra(tensor).wrapper_state = wrapper
    tensor.flags |= TENSOR_IS_WRAPPED
    return 0


cdef object unpack_packed(pb_node *node, int index):
    cdef pb_saved *saved = node_saved(node) + index
    cdef Tensor tensor, result
    unpack, wrapper = (<dict>node.extra.saved_hooks)[index]
    packed = <object>saved.object
    tensor = unpacked_by(unpack, packed)
    if saved.kind == SAVED_NONE:
        node_check_alive(node)
    if not layout_same_shape(tensor.layout, saved.layout) or tensor.dtype != saved.dtype:
        raise RuntimeError(
            f"unpack hook of {node_name(node)} returned a tensor of shape "
            f"{list(layout_shape_tuple(tensor.layout))} and dtype "
            f"{dtype_object(tensor.dtype).name}, but the saved tensor had shape "
            f"{list(layout_shape_tuple(saved.layout))} and dtype {dtype_object(saved.dtype).name}")
    if saved.flags == PACKED_ROOT and saved.node == NULL and wrapper is None:
        return tensor
    result = tensor_alias(tensor)
    if wrapper is not None:
        give_wrapper_state(result, <PyObject *>wrapper)
    if saved.flags == PACKED_OUTPUT and dtype_differentiable(saved.dtype):
        if node.flags & NODE_INNER:
            give_inner_history(node, result)
        else:
            tensor_set_node(result, node_retain(node), saved.output_nr)
    elif saved.node != NULL:
        tensor_set_node(result, node_retain(saved.node), saved.output_nr)
    return result
