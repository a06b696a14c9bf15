"""Recording: which inputs need a gradient, the node of an op, histories of in-place writes.

`dispatch/call.pyx` decides when an op is recorded; `saved.pyx` keeps its values.
"""

from re import sub

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int32_t, uint32_t, uint64_t

from pullback._c.graph.anomaly cimport note_write
from pullback._c.base.dtype cimport dtype_differentiable, dtype_object
from pullback._c.graph.op cimport (
    ARG_TENSORS, OP_INPLACE, OP_VIEW, Op, SOURCE_ARG, SOURCE_EXTRA, SOURCE_OUT, op_named)
from pullback._c.base.layout cimport (
    layout_may_self_overlap, layout_shape_tuple, layout_strides_tuple)
from pullback._c.graph.node cimport (
    node_name, node_new, node_object, node_release, node_retain, node_set_meta,
    on_accumulator_death)
from pullback._c.graph.saved cimport (
    save_object, save_shape, save_tensor, save_tuple, set_gradient_node)
from pullback._c.base.state cimport (
    HISTORY_CHANGED, captured_change, globals_, pb_globals, pb_state, thread_state)
from pullback._c.graph.tensor cimport (
    TENSOR_CONJ, TENSOR_IS_VIEW, TENSOR_LAZY, TENSOR_NEG, TENSOR_REQUIRES_GRAD,
    TENSOR_RETAINS_GRAD, Tensor, VIEW_DEFAULT, VIEW_IN_FUNCTION, VIEW_INFERENCE, VIEW_MULTI_OUTPUT,
    VIEW_NO_GRAD, is_tensor, pb_tensor_extra, tensor_extra, tensor_requires_grad, tensor_set_node)
from pullback._c.base.types cimport (
    NODE_ACCUMULATE, NODE_COPY_SLICES, NODE_INNER, NODE_OP, STORAGE_INFERENCE,
    STORAGE_READONLY, node_edges, node_meta, pb_edge, pb_node)

cdef pb_globals *process = globals_()


# ---- tensors that need a gradient ----------------------------------------------------------------

cdef bint tensor_needs_grad(Tensor tensor) except -1:
    """True if the tensor requires grad, after updating a view's history to its base's."""
    if tensor.flags & TENSOR_IS_VIEW and tensor.extra.view_version != tensor.storage.version:
        view_refresh(tensor)
    return tensor_requires_grad(tensor)


cdef bint says_requires_grad(Tensor tensor) except -1:
    """As tensor_needs_grad, but does not raise for a view whose history is ambiguous."""
    if tensor.flags & TENSOR_IS_VIEW and tensor.extra.view_kind != VIEW_DEFAULT:
        return tensor_requires_grad(tensor)
    return tensor_needs_grad(tensor)


cdef uint64_t needs_grad(Op op, PyObject **args) except? 0xFFFFFFFFFFFFFFFF:
    """Return a mask: bit i is set if tensor argument i needs a gradient."""
    cdef uint64_t mask = 0
    cdef int i
    cdef object value
    for i in range(op.ntensors):
        value = <object>args[op.tensor_args[i]]
        if is_tensor(value):
            if tensor_needs_grad(<Tensor>value):
                mask |= <uint64_t>1 << i
        elif op.arg_kinds[op.tensor_args[i]] == ARG_TENSORS:
            for item in value:
                if tensor_needs_grad(<Tensor?>item):
                    mask |= <uint64_t>1 << i
    return mask


cdef pb_node *accumulator_of(Tensor leaf) except NULL:
    """Return the node that adds into the leaf's .grad, one per leaf; owned."""
    cdef pb_node *node = tensor_extra(leaf).accumulator
    if node != NULL and node.refcount > 0:
        return node_retain(node)
    if node == NULL or node.op != NULL:         # there is no dead one to use again
        node = leaf.extra.accumulator = node_new(NODE_ACCUMULATE, 0, 1, 0)
    node.refcount = 1
    if node_meta(node).layout != leaf.layout or node_meta(node).dtype != leaf.dtype or (
            process.streams_used):
        node_set_meta(node, 0, leaf.layout, leaf.dtype, leaf.storage)
    Py_INCREF(leaf)
    node.op = <PyObject *>leaf
    return node


cdef bint accumulator_died(PyObject *variable, pb_node *node) noexcept:
    """True if the accumulator's leaf is alive and keeps it for its next use."""
    cdef pb_tensor_extra *extra = (<Tensor>variable).extra
    if extra == NULL or extra.accumulator != node:
        return False
    if variable.ob_refcnt > 1:
        return True
    extra.accumulator = NULL
    return False


cdef int tensor_edge(Tensor tensor, pb_edge *edge) except -1:
    """Fill the edge that a tensor's gradient flows to; its node is NULL if it needs none."""
    if tensor.flags & TENSOR_IS_VIEW and tensor.extra.view_version != tensor.storage.version:
        view_refresh(tensor)
    return edge_as_it_is(tensor, edge)


cdef int edge_as_it_is(Tensor tensor, pb_edge *edge) except -1:
    """As tensor_edge; of a view whose memory was written since, what its elements came from."""
    if tensor.node != NULL:
        edge.node = node_retain(tensor.node)
        edge.nr = tensor.output_nr
    elif tensor.flags & TENSOR_REQUIRES_GRAD:
        edge.node = accumulator_of(tensor)
        edge.nr = 0
    else:
        edge.node = NULL
        edge.nr = 0
    return 0


cdef pb_node *gradient_node(Tensor tensor) except? NULL:
    cdef pb_edge edge
    tensor_edge(tensor, &edge)
    return edge.node


on_accumulator_death(accumulator_died)
set_gradient_node(gradient_node)


# ---- the node of an op ---------------------------------------------------------------------------

cdef inline bint is_default(Op op, PyObject **args, int index) noexcept:
    """True for an argument with its default value, which is not saved."""
    cdef int number = op.saved[index].number
    return (op.saved[index].source == SOURCE_ARG
            and args[number] == PyTuple_GET_ITEM(op.defaults, number))


cdef pb_node *node_begin(Op op, PyObject **args, uint64_t mask, uint32_t noutputs) except NULL:
    """Return a node with its edges, and the inputs its formulas need; owned."""
    cdef uint32_t nedges = op.ntensors
    cdef pb_node *node
    cdef pb_edge *edges
    cdef int i, nsaved = 0
    cdef uint64_t kept = 0              # bit i: saved value i is an argument to save
    cdef bint done = False
    cdef object value
    if op.list_arg >= 0:
        nedges += <uint32_t>len(<object>args[op.list_arg]) - 1
    for i in range(op.nsaved):
        if op.saved[i].needed_by & mask and not is_default(op, args, i):
            nsaved = i + 1
            if op.saved[i].source == SOURCE_ARG:
                kept |= <uint64_t>1 << i
    node = node_new(NODE_OP, nedges, noutputs, nsaved)
    node.op = <PyObject *>op
    edges = node_edges(node)
    try:
        for i in range(op.ntensors):
            value = <object>args[op.tensor_args[i]]
            if is_tensor(value):
                tensor_edge(<Tensor>value, edges)
            elif op.tensor_args[i] == op.list_arg:
                for item in value:
                    tensor_edge(<Tensor?>item, edges)
                    edges += 1
                continue
            edges += 1
        for i in range(nsaved if kept else 0):
            if kept >> i & 1:
                save_argument(op, node, i, <object>args[op.saved[i].number])
        done = True
    finally:                            # cheaper than an except clause
        if not done:
            node_release(node)
    return node


cdef int save_argument(Op op, pb_node *node, int index, object value) except -1:
    if is_tensor(value):
        if op.saved[index].shape_only:
            return save_shape(node, index, <Tensor>value)
        if op.flags & OP_INPLACE and op.saved[index].number == 0:
            value = overwritten(value)
        return save_tensor(node, index, <Tensor>value, False)
    if isinstance(value, (tuple, list)):
        return save_tuple(node, index, tuple(value))
    return save_object(node, index, value)


cdef object overwritten(object value):
    """Return a copy of a tensor that an in-place op is about to overwrite, with its tangents."""
    cdef pb_state *state = thread_state()
    cdef uint64_t disabled = state.disabled_levels
    state.disabled_levels &= ~state.op_levels
    try:
        return op_named("clone")(value)
    finally:
        state.disabled_levels = disabled


cdef int node_finish(Op op, pb_node *node, PyObject **args, object result,
                     uint64_t mask) except -1:
    """Attach the node to the results and save the outputs that formulas need. Borrows `node`."""
    cdef int i, count
    cdef Tensor output
    if is_tensor(result):
        output = <Tensor>result
        node_set_meta(node, 0, output.layout, output.dtype, output.storage)
        if dtype_differentiable(output.dtype):
            attach(op, output, node, 0)
    else:
        if not isinstance(result, tuple):       # or a named tuple
            raise TypeError(f"{op.name}(): expected a tuple, got {type(result).__name__}")
        count = <int>len(result)
        if count != node.noutputs:
            raise SystemError(f"{op.name}(): expected {node.noutputs} results, got {count}")
        for i in range(count):
            output = <Tensor?>(<tuple>result)[i]
            node_set_meta(node, i, output.layout, output.dtype, output.storage)
            if dtype_differentiable(output.dtype):
                attach(op, output, node, i)
    return node_save_outputs(op, node, args, result, mask)


cdef int node_save_outputs(Op op, pb_node *node, PyObject **args, object result,
                           uint64_t mask) except -1:
    """Save the results that formulas need, and the extra values that the entry computes."""
    cdef int i
    cdef Tensor output
    for i in range(node.nsaved):
        if op.saved[i].needed_by & mask == 0:
            continue
        if op.saved[i].source == SOURCE_OUT:
            if is_tensor(result):
                output = <Tensor>result
            else:
                output = <Tensor>(<tuple>result)[op.saved[i].number]
            if op.saved[i].shape_only:
                save_shape(node, i, output)
            elif op.reads_out is None or op.reads_out(*[<object>args[k] for k in range(op.nargs)]):
                save_tensor(node, i, output, True)
        elif op.saved[i].source == SOURCE_EXTRA:
            values = [<object>args[k] for k in range(op.nargs)]
            save_object(node, i, op.save[op.saved_names[i]](*values))
    return 0


cdef int attach(Op op, Tensor output, pb_node *node, int number) except -1:
    if output.flags & TENSOR_REQUIRES_GRAD:
        output.flags &= ~TENSOR_REQUIRES_GRAD
    tensor_set_node(output, node_retain(node), number)
    if op.flags & OP_VIEW and output.flags & TENSOR_IS_VIEW:
        output.extra.view_version = output.storage.version
    return 0


# ---- in-place writes -----------------------------------------------------------------------------

cdef int check_writable(Tensor target, bint overlap) except -1:
    """Raise for read-only memory and, without `overlap`, for elements that share memory."""
    if target.storage.flags & STORAGE_READONLY:
        raise RuntimeError("the tensor shares the memory of a read-only array and cannot be "
                           "written; clone() it first")
    if not overlap and layout_may_self_overlap(target.layout):
        raise RuntimeError("unsupported operation: more than one element of the written-to tensor "
                           "refers to a single memory location. Please clone() the tensor before "
                           "performing the operation.")
    return check_not_inference(target)


cdef int check_not_inference(Tensor target) except -1:
    """Raise for a write to an inference tensor outside inference mode."""
    if target.storage.flags & STORAGE_INFERENCE and not thread_state().inference:
        raise RuntimeError("Inplace update to inference tensor outside InferenceMode is not "
                           "allowed. You can make a clone to get a normal tensor before doing "
                           "inplace update.")
    return 0


cdef int check_inplace(Tensor target, bint recorded) except -1:
    """Raise for an in-place write that torch forbids; `recorded`: some operand requires grad."""
    cdef Tensor base
    if not recorded and target.flags & TENSOR_IS_VIEW:
        recorded = tensor_requires_grad(<Tensor>target.extra.base)
    if not recorded or not thread_state().grad_enabled:
        return 0
    if thread_state().tracing != 0:
        check_not_captured(target)
    if target.flags & TENSOR_IS_VIEW:
        base = <Tensor>target.extra.base
        if target.extra.view_kind != VIEW_DEFAULT:
            raise_view_written(target, False)
        # The base may not require grad: x = base.view(2).requires_grad_() is a leaf, too.
        if (base.node == NULL and tensor_requires_grad(target)) or views_leaf(target):
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an "
                               "in-place operation.")
    if target.node == NULL and target.flags & TENSOR_REQUIRES_GRAD:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place "
                           "operation.")
    return 0


cdef int check_not_captured(Tensor target) except -1:
    """Raise for a tensor older than the running transform, whose history it would keep."""
    cdef Tensor root = (<Tensor>target.extra.base) if target.flags & TENSOR_IS_VIEW else target
    if <int32_t>(root.transform - thread_state().tracing) < 0:
        raise RuntimeError(
            "pullback.func: a function that is transformed (grad, vjp, jacrev, ...) wrote values "
            "that are differentiated into a tensor that it captured. Pass that tensor to the "
            "function as an argument, or write to a clone of it.")
    return 0


cdef bint views_leaf(Tensor target) noexcept:
    """True for a view of a leaf over the same memory that is itself a view."""
    cdef pb_node *node = target.node
    while node != NULL and node.kind == NODE_OP and (<Op>node.op).flags & OP_VIEW:
        node = node_edges(node)[0].node
    return (node != NULL and node.kind == NODE_ACCUMULATE
            and (<Tensor>node.op).storage == target.storage)


cdef int raise_view_written(Tensor view, bint indirect) except -1:
    """Raise for a view that was written, directly or through its base, and cannot be recorded."""
    cdef int kind = view.extra.view_kind
    cdef str written = "is being modified inplace"
    cdef str modes = ""
    if indirect:
        written = "its base or another view of its base has been modified inplace"
    cdef str what = "A view was"
    if view.node != NULL:
        name = sub('Backward0?([0-9]*)$', '\\1', node_name(view.node))
        what = f"Output {view.output_nr} of {name} is a view"
        if kind in (VIEW_INFERENCE, VIEW_NO_GRAD):
            what += " of a view which was"
    if kind == VIEW_INFERENCE:
        start = f"{what} created in inference mode and {written} in normal mode. "
        modes = "inference_mode"
    elif kind == VIEW_NO_GRAD or view.node == NULL:
        start = f"{what} created in no_grad mode and {written} with grad mode enabled. "
        modes = "no_grad"
    else:
        start = f"{what} and {written}. "
    if kind == VIEW_MULTI_OUTPUT:
        raise RuntimeError(
            start + "This view is the output of a function that returns multiple views. Such "
            "functions do not allow the output views to be modified inplace. You should replace "
            "the inplace operation by an out-of-place one.")
    if kind == VIEW_IN_FUNCTION:
        raise RuntimeError(
            start + "This view was created inside a custom Function (or because an input was "
            "returned as-is) and the autograd logic to handle view+inplace would override the "
            "custom backward associated with the custom Function, leading to incorrect gradients. "
            "This behavior is forbidden. You can fix this by cloning the output of the custom "
            "Function.")
    raise RuntimeError(
        start + f"Given that this use case is ambiguous and error-prone, it is forbidden. You can "
        f"clarify your code by moving both the view and the inplace either both inside the {modes} "
        f"block (if you don't want the inplace to be tracked) or both outside (if you want the "
        f"inplace to be tracked).")


cdef int bump_version(Tensor target, int writer) except -1:
    """Count one in-place write by the op `writer`."""
    if not target.storage.flags & STORAGE_INFERENCE:
        target.storage.version += 1
    target.storage.last_writer = writer
    if process.anomaly:
        note_write(target.storage)
    return 0


cdef tuple as_strided_args(Tensor tensor):
    return (layout_shape_tuple(tensor.layout), layout_strides_tuple(tensor.layout), tensor.offset,
            dtype_object(tensor.dtype), tensor.flags & TENSOR_LAZY)


cdef class SliceWrite:
    """The write of an op to a view, as part of the base's history."""

    def __dealloc__(self):
        if self.inner != NULL:
            self.inner.task = NULL
            self.inner.flags &= ~NODE_INNER
            node_release(self.inner)


cdef int rebase(Tensor target, pb_node *node) except -1:
    """After an in-place op, make `node` (borrowed) the history of `target`, or of its base."""
    cdef Tensor base
    cdef pb_node *slices
    cdef pb_edge *inner
    cdef pb_edge *edges
    cdef SliceWrite write
    cdef uint32_t i
    captured_change(<PyObject *>target, HISTORY_CHANGED)
    if not target.flags & TENSOR_IS_VIEW:
        move_retained(target, node, 0)
        tensor_set_node(target, node_retain(node), 0)
        target.flags &= ~TENSOR_REQUIRES_GRAD
        return 0
    base = <Tensor>target.extra.base
    captured_change(<PyObject *>base, HISTORY_CHANGED)
    slices = node_new(NODE_COPY_SLICES, node.nedges, 1, 0)
    try:
        write = SliceWrite.__new__(SliceWrite)
        write.inner = node_retain(node)
        write.base = as_strided_args(base)
        write.view = as_strided_args(target)
        Py_INCREF(write)
        slices.op = <PyObject *>write
        node.task = slices
        node.flags |= NODE_INNER
        node_set_meta(slices, 0, base.layout, base.dtype, base.storage)
        edges = node_edges(slices)
        inner = node_edges(node)
        tensor_edge(base, &edges[0])
        for i in range(1, node.nedges):
            if inner[i].node != NULL:
                edges[i].node = node_retain(inner[i].node)
                edges[i].nr = inner[i].nr
        if inner[0].node != NULL:
            node_release(inner[0].node)
            inner[0].node = NULL
        if edges[0].node != NULL:
            inner[0].node = node_retain(edges[0].node)
            inner[0].nr = edges[0].nr
        move_retained(base, slices, 0)
        tensor_set_node(base, node_retain(slices), 0)
        base.flags &= ~TENSOR_REQUIRES_GRAD
    finally:
        node_release(slices)
    if base.flags & TENSOR_IS_VIEW:
        raise SystemError("the base of a view is a view")
    target.extra.view_version = target.storage.version - 1
    view_refresh(target)
    return 0


# Set by tensor_methods.pyx: moves retain_grad() from the tensor's old node to its new one.
cdef object move_retained_function = None


def set_move_retained(function):
    """Install the function that moves retain_grad() to a tensor's new node."""
    global move_retained_function
    move_retained_function = function


cdef int move_retained(Tensor tensor, pb_node *node, uint32_t number) except -1:
    if tensor.flags & TENSOR_RETAINS_GRAD:
        move_retained_function(tensor, node_object(node), number)
    return 0


cdef int view_refresh(Tensor view) except -1:
    """Update a view's history after writes to its base."""
    cdef Tensor base = <Tensor>view.extra.base
    cdef Tensor again
    cdef pb_state *state
    cdef uint32_t current = view.storage.version
    if view.storage != base.storage:    # set_data gave one of them other memory
        view.extra.view_version = current
        return 0
    if not tensor_requires_grad(base):
        if view.node == NULL:
            view.extra.view_version = current
        elif view.extra.view_kind != VIEW_DEFAULT:
            raise_view_written(view, True)
        elif not views_leaf(view):
            view.extra.view_version = current
            tensor_set_node(view, NULL, 0)      # the base was detached, then written
        return 0
    if view.extra.view_kind != VIEW_DEFAULT:
        raise_view_written(view, True)
    state = thread_state()
    enabled = state.grad_enabled
    inference = state.inference
    state.grad_enabled = 1
    state.inference = 0
    view.extra.view_version = current
    try:
        again = <Tensor?>replay(base, as_strided_args(view))
    finally:
        state.grad_enabled = enabled
        state.inference = inference
    if again.node == NULL:
        return 0
    if view.flags & TENSOR_RETAINS_GRAD:
        move_retained(view, again.node, again.output_nr)
    tensor_set_node(view, node_retain(again.node), again.output_nr)
    view.flags &= ~TENSOR_REQUIRES_GRAD
    return 0


cdef object replay(Tensor base, tuple view):
    """Make a view again from its as_strided arguments, also from complex to real and back."""
    shape, strides, offset, dtype, flags = view
    if dtype is dtype_object(base.dtype):
        return toggled(op_named("as_strided")(base, shape, strides, offset), base.flags ^ flags)
    memory = toggled(base, base.flags)
    if dtype.is_complex:
        return toggled(complex_part(memory, shape, strides, 2 * offset), flags)
    pairs = op_named("view_as_real")(memory)
    if (pairs.shape, pairs.stride(), pairs.storage_offset()) != (shape, strides, offset):
        pairs = op_named("as_strided")(pairs, shape, strides, offset)
    return toggled(pairs, flags)


cdef object toggled(object tensor, int flags):
    """Return a view with the lazy conjugate and negative bits of `flags` inverted."""
    if flags & TENSOR_CONJ:
        tensor = op_named("_conj")(tensor)
    if flags & TENSOR_NEG:
        tensor = op_named("_neg_view")(tensor)
    return tensor


cdef object complex_part(object whole, tuple shape, tuple strides, object start):
    """Return a view of real memory as complex numbers; `start` counts real ones."""
    pairs = op_named("as_strided")(whole, (*shape, 2), (*[2 * step for step in strides], 1), start)
    return op_named("view_as_complex")(pairs)
