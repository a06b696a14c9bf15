"""Accumulation of gradients: into input buffers of a backward pass, and into a leaf's ``.grad``."""

import threading

from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport uint16_t, uint32_t

from pullback.abi cimport PB_F32, PB_F64, PB_NUM_DTYPES
from pullback._c.dispatch.call cimport op_call2
from pullback._c.device.device cimport device_types, pb_device_type
from pullback._c.device.streams cimport stream_default, stream_now, stream_use, stream_wait
from pullback._c.base.dtype cimport (
    CATEGORY_FLOATING, dtype_category, dtype_object, dtype_of_scalar, scalar_write)
from pullback._c.dispatch.operands cimport cast_tensor, memory_overlaps
from pullback._c.graph.op cimport op_named
from pullback._c.dispatch.launch cimport add_into, copy_into, launch_locked, operand, primitive_id
from pullback._c.base.layout cimport (
    layout_contiguous, layout_may_self_overlap, layout_retain, layout_same_shape,
    layout_same_strides)
from pullback._c.graph.record cimport bump_version
from pullback._c.base.state cimport GRAD_ADDED, captured_change, thread_state
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, TENSOR_IS_VIEW, TENSOR_IS_WRAPPED, TENSOR_LAZY, TENSOR_OVERRIDES,
    TENSOR_REQUIRES_GRAD, Tensor, is_tensor, pb_tensor_extra, same_device, tensor_extra,
    tensor_new, tensor_requires_grad)
from pullback._c.base.types cimport (
    LAYOUT_CONTIGUOUS, LAYOUT_DENSE, NODE_ACCUMULATE, NODE_HOOKED, STORAGE_INFERENCE,
    STORAGE_READONLY, STORAGE_SHARED, layout_shape, node_meta, pb_edge, pb_layout, pb_meta)

# Reentrant: a dispatch mode that receives the addition may run a backward pass.
cdef object accumulation_lock = threading.RLock()
cdef int ADDCMUL = primitive_id("addcmul")

cdef extern from "Python.h":
    PyTypeObject *Py_TYPE(PyObject *value)


cdef bint is_sole_owner(PyObject *value) noexcept:
    """True if nothing else refers to the memory, and no other stream may still read it."""
    return is_only_way(value) and (<Tensor>value).storage.flags & STORAGE_SHARED == 0


cdef inline bint is_only_way(PyObject *value) noexcept:
    """True if the caller's count is the only reference to the tensor, and to its memory."""
    if value.ob_refcnt != 1 or Py_TYPE(value) != <PyTypeObject *>Tensor:
        return False
    return ((<Tensor>value).storage.refcount == 1 and (<Tensor>value).node == NULL
            and (<Tensor>value).storage.owner == NULL and (<Tensor>value).storage.memory == NULL
            and (<Tensor>value).flags & (TENSOR_IS_VIEW | TENSOR_IS_WRAPPED | TENSOR_LAZY) == 0
            and (<Tensor>value).layout.flags & LAYOUT_DENSE != 0)


# ---- sparse gradients ----------------------------------------------------------------------------

# The rules of `pullback.sparse`, once it is imported: until then no gradient is sparse.
cdef object sparse_rules = None
cdef object sparse_kind = None


def set_sparse_rules(rules not None):
    """Install the class of sparse gradients and what is computed with them."""
    global sparse_rules, sparse_kind
    sparse_rules = rules
    sparse_kind = rules.kind


cdef bint is_sparse(PyObject *value) noexcept:
    """True for a sparse gradient, which compiled code must not read: its memory is elsewhere."""
    return (<Tensor>value).flags & TENSOR_OVERRIDES != 0 and (
        sparse_kind is not None and isinstance(<object>value, sparse_kind))


cdef object sparse_clone(object grad):
    """Return a copy of a sparse gradient."""
    return sparse_rules.clone(grad)


cdef object sparse_cast(Tensor grad, int dtype):
    """Return a sparse gradient in a dtype."""
    return grad if grad.dtype == dtype else sparse_rules.cast(grad, dtype_object(dtype))


cdef object sparse_values(object grad):
    """Return the values of a sparse gradient."""
    return grad._values()


cdef int accumulate_sparse(Tensor leaf, PyObject *incoming, int wanted,
                           bint create_graph) except -1:
    """Accumulate into .grad where it, or the gradient, is sparse."""
    cdef pb_tensor_extra *extra = tensor_extra(leaf)
    cdef bint before = thread_state().grad_enabled
    cdef object grad = <object>incoming, current = None
    cdef object kept
    if is_sparse(incoming):
        grad = grad if wanted < 0 else sparse_cast(grad, wanted)
    elif wanted >= 0 and (<Tensor>grad).dtype != wanted:
        grad = op_named("to")(grad, dtype_object(wanted))
    thread_state().grad_enabled = create_graph
    accumulation_lock.acquire()
    try:
        if extra.grad == NULL:
            # 2: the caller's count and that of `grad`
            kept = grad if incoming.ob_refcnt <= 2 and sparse_rules.is_owned(grad) else (
                sparse_rules.clone(grad))
        else:
            current = <object>extra.grad
            if create_graph:
                kept = sparse_rules.total(current, grad)
            else:
                kept = sparse_rules.accumulate(current, grad)
        if kept is not current:
            Py_INCREF(kept)
            extra.grad = <PyObject *>kept
            if current is not None:
                Py_DECREF(current)
    finally:
        accumulation_lock.release()
        thread_state().grad_enabled = before
    return 0


# ---- dense gradients -----------------------------------------------------------------------------

cdef object sum_grads(PyObject *first, Tensor second, bint create_graph):
    """Return first + second; in place when the caller alone owns `first` (borrowed)."""
    if ((<Tensor>first).flags | second.flags) & TENSOR_OVERRIDES and (
            is_sparse(first) or is_sparse(<PyObject *>second)):
        return sparse_rules.total(<object>first, second)
    cdef bint sole = not create_graph and is_sole_owner(first)
    cdef Tensor a = <Tensor>first
    if (sole and not second.flags & TENSOR_IS_WRAPPED and a.dtype == second.dtype
            and layout_same_shape(a.layout, second.layout)
            and a.storage.device_type == second.storage.device_type):
        add_into(a, second)
        return a
    return op_call2(op_named("add"), a, second)


cdef Tensor in_layout_of(Tensor leaf, Tensor grad, bint recorded):
    """Return a copy of `grad` with the leaf's strides, or row-major if those overlap."""
    cdef pb_layout *layout
    cdef Tensor out
    if recorded and (grad.flags & TENSOR_IS_WRAPPED or obeys_layout(leaf, grad)):
        return op_named("clone")(grad)
    if leaf.layout.flags & LAYOUT_DENSE:
        layout = layout_retain(leaf.layout)
    else:
        layout = layout_contiguous(leaf.layout.ndim, layout_shape(leaf.layout))
    out = tensor_new(layout, grad.dtype, grad.storage.device_type, grad.storage.device_index)
    if recorded:
        op_named("copy_")(out, grad)
    else:
        copy_into(out, grad)
    return out


cdef bint obeys_layout(Tensor leaf, Tensor grad) noexcept:
    if not thread_state().layout_policy:
        return True
    if leaf.layout.flags & LAYOUT_DENSE:
        return layout_same_strides(leaf.layout, grad.layout)
    return grad.layout.flags & LAYOUT_CONTIGUOUS != 0


cdef inline bint must_be_op(Tensor grad, bint create_graph) noexcept:
    """True if an operation on a gradient must be recorded or run by a transform."""
    return grad.flags & TENSOR_IS_WRAPPED != 0 or (create_graph and tensor_requires_grad(grad))


cdef int accumulate_grad(Tensor leaf, PyObject *incoming, bint create_graph) except -1:
    """Accumulate a gradient (borrowed; the caller has one count) into .grad by layout rules."""
    if device_types()[leaf.storage.device_type].streams:
        return accumulate_in_order(leaf, incoming, create_graph)
    return accumulate_now(leaf, incoming, create_graph)


cdef int accumulate_in_order(Tensor leaf, PyObject *incoming, bint create_graph) except -1:
    """Accumulate a gradient on the current stream, after additions on other streams.

    One thread at a time: each must wait for all work that the one before it queued.
    """
    cdef int device_type = leaf.storage.device_type, device_index = leaf.storage.device_index
    cdef pb_tensor_extra *extra = tensor_extra(leaf)
    cdef uint16_t own = stream_now(device_type, device_index), last
    accumulation_lock.acquire()
    try:
        last = extra.grad_stream or stream_default(device_type, device_index)
        if extra.grad != NULL and last != own:
            stream_wait(own, last)
            stream_use((<Tensor>extra.grad).storage, own)
        accumulate_now(leaf, incoming, create_graph)
        extra.grad_stream = own
    finally:
        accumulation_lock.release()
    return 0


cdef int accumulate_now(Tensor leaf, PyObject *incoming, bint create_graph) except -1:
    cdef bint sole = is_only_way(incoming)
    cdef Tensor grad = <Tensor>incoming
    cdef pb_tensor_extra *extra = tensor_extra(leaf)
    cdef Tensor current, kept
    cdef int wanted = extra.grad_dtype
    cdef uint32_t version
    if leaf.node != NULL:
        raise RuntimeError("leaf variable has been moved into the graph interior: it was detached "
                           "and then written in place by a recorded operation")
    if not leaf.flags & TENSOR_REQUIRES_GRAD:
        return 0                        # requires_grad was set to False since
    captured_change(<PyObject *>leaf, GRAD_ADDED)
    if grad.flags & TENSOR_IS_BATCHED:
        raise RuntimeError("vmap: backward() would add a batch of gradients to a tensor's .grad; "
                           "use pullback.func.grad or pullback.autograd.grad")
    if wanted == -1:
        wanted = leaf.dtype
    if (grad.flags & TENSOR_OVERRIDES and is_sparse(incoming)
            or extra.grad != NULL and is_sparse(extra.grad)):
        return accumulate_sparse(leaf, incoming, wanted, create_graph)
    if wanted >= 0 and grad.dtype != wanted:
        if must_be_op(grad, create_graph):
            grad = op_named("to")(grad, dtype_object(wanted))
        else:
            grad = cast_tensor(grad, wanted)
        sole = True
    while True:         # again if another thread changed .grad while this one released the lock
        if extra.grad == NULL:
            if must_be_op(grad, create_graph):
                kept = in_layout_of(leaf, grad, True)
            elif sole and obeys_layout(leaf, grad):
                kept = grad
            else:
                kept = in_layout_of(leaf, grad, False)
            if leaf.extra.grad == NULL:
                Py_INCREF(kept)
                leaf.extra.grad = <PyObject *>kept
                return 0
        current = <Tensor>extra.grad
        if not is_replaced(current, grad, create_graph):
            if thread_state().levels:   # a dispatch mode may be notified of the write
                op_call2(op_named("add_"), current, grad)
                return 0
            add_into(current, grad)
            bump_version(current, op_named("add_").id)
            return 0
        version = current.storage.version
        kept = op_call2(op_named("add"), current, grad)
        if leaf.extra.grad == <PyObject *>current and current.storage.version == version:
            Py_INCREF(kept)
            extra.grad = <PyObject *>kept
            Py_DECREF(current)
            return 0


cdef bint is_replaced(Tensor current, Tensor grad, bint create_graph) noexcept:
    """True if a new .grad replaces the current one, which is not written to."""
    return (create_graph or (current.flags | grad.flags) & TENSOR_IS_WRAPPED
            or current.dtype != grad.dtype
            or current.storage.flags & (STORAGE_READONLY | STORAGE_INFERENCE)
            or not current.layout.flags & LAYOUT_DENSE and layout_may_self_overlap(current.layout)
            or not layout_same_shape(current.layout, grad.layout))


# ---- products that are computed and accumulated by one kernel ------------------------------------

cdef void find_add_target(add_target *target, const pb_edge *edge, PyObject *waiting,
                          bint last) noexcept:
    """Find the tensor that the gradient of an edge can be added to in place, if there is one.

    It is the gradient in the input buffer (`waiting`, borrowed, or NULL), or else a leaf's .grad if
    this is the ``last`` gradient of the pass for it.
    """
    cdef pb_meta *meta = node_meta(edge.node) + edge.nr
    if waiting != NULL:
        if (is_sole_owner(waiting) and (<Tensor>waiting).dtype == meta.dtype
                and layout_same_shape((<Tensor>waiting).layout, meta.layout)):
            target.total = waiting
    elif (last and edge.node.kind == NODE_ACCUMULATE and not edge.node.flags & NODE_HOOKED
            and may_add_to_leaf(<Tensor>edge.node.op)):
        captured_change(edge.node.op, GRAD_ADDED)
        target.leaf = <PyObject *>edge.node.op
        target.total = (<Tensor>edge.node.op).extra.grad
    if target.total != NULL:
        Py_INCREF(<object>target.total)


cdef void release_add_targets(add_target *targets, uint32_t count) noexcept:
    """Release the targets that find_add_target found; no error if it found none."""
    cdef uint32_t i
    cdef PyObject *held
    if targets == NULL:
        return
    for i in range(count):
        held = targets[i].total
        targets[i].total = NULL
        Py_XDECREF(held)


cdef bint may_add_to_leaf(Tensor leaf) noexcept:
    """True if a leaf's only gradient of this pass can be added in place to its .grad."""
    cdef Tensor current
    if leaf.extra.grad == NULL or leaf.node != NULL or not leaf.flags & TENSOR_REQUIRES_GRAD:
        return False
    if leaf.extra.hooks != NULL or leaf.extra.post_hooks != NULL:
        return False
    current = <Tensor>leaf.extra.grad
    return current.dtype == leaf.dtype and current.flags & TENSOR_OVERRIDES == 0 and (
        layout_same_shape(current.layout, leaf.layout)
        and (leaf.extra.grad_dtype == -1 or leaf.extra.grad_dtype == leaf.dtype)
        and not is_replaced(current, current, False))


cdef bint add_product(add_target *into, PyObject *first, PyObject *second) except -1:
    """Compute total += first * second by one kernel; false, and nothing is done, where it cannot.

    ``second`` may be a number.
    """
    cdef Tensor total = <Tensor>into.total
    cdef operand inputs[4]
    cdef pb_device_type *device = device_types() + total.storage.device_type
    if total.dtype != PB_F32 and total.dtype != PB_F64:
        return False
    if not device.loaded or device.table[ADDCMUL * PB_NUM_DTYPES + total.dtype].kernel == NULL:
        return False
    if not is_term(total, first):
        return False
    if is_tensor(<object>second):
        if not is_term(total, second):
            return False
        if not (<Tensor>first).layout.flags & LAYOUT_DENSE:     # an expanded factor comes last
            first, second = second, first
        inputs[2].tensor = second
    elif dtype_category[dtype_of_scalar(<object>second)] <= CATEGORY_FLOATING:
        inputs[2].tensor = NULL
        scalar_write(<object>second, total.dtype, &inputs[2].scalar[0])
    else:
        return False
    if into.leaf != NULL and (<Tensor>into.leaf).extra.grad != into.total:
        return False                    # another thread changed .grad
    inputs[0].tensor = into.total
    inputs[1].tensor = first
    inputs[3].tensor = NULL
    scalar_write(1, total.dtype, &inputs[3].scalar[0])
    launch_locked(ADDCMUL, total, inputs, 4)
    if into.leaf != NULL:
        bump_version(total, op_named("add_").id)
    return True


cdef bint is_term(Tensor total, PyObject *value) noexcept:
    """True for a tensor of the total's shape, dtype and device that does not overlap it."""
    cdef Tensor tensor
    if not is_tensor(<object>value):
        return False
    tensor = <Tensor>value
    return (tensor.dtype == total.dtype and layout_same_shape(tensor.layout, total.layout)
            and same_device(tensor, total)
            and tensor.flags & TENSOR_IS_WRAPPED == 0 and not memory_overlaps(tensor, total))
