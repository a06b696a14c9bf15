# build: small
"""Backward of CopySlices, the in-place write to a view, and of views made again by as_strided.

Outside the written part, the gradient of the base propagates unchanged; inside, through the op that
wrote. Gradients get the strides of the tensors, so that views of both correspond.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from pullback.abi cimport PB_MAX_NDIM
from pullback._c.engine.accumulate cimport is_sole_owner
from pullback._c.dispatch.call cimport forward_python
from pullback._c.graph.op cimport Op, forward_register, op_named
from pullback._c.engine.formula cimport op_backward
from pullback._c.engine.custom_function cimport apply_python
from pullback._c.dispatch.launch cimport copy_into, fill_with
from pullback._c.base.layout cimport (
    layout_contiguous, layout_may_self_overlap, layout_new, layout_parse, layout_release,
    layout_retain, layout_same_shape, layout_same_strides)
from pullback._c.graph.node cimport node_release_saved, node_retain
from pullback._c.graph.record cimport SliceWrite, as_strided_args, complex_part, replay, toggled
from pullback._c.graph.saved cimport node_check_alive, set_inner_history
from pullback._c.base.state cimport globals_, pb_globals, thread_state
from pullback._c.device.storage cimport storage_retain
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, TENSOR_IS_VIEW, TENSOR_LAZY, Tensor, VIEW_DEFAULT, tensor_device,
    tensor_is_exact, tensor_new, tensor_set_node, tensor_wrap)
from pullback._c.base.types cimport (
    NODE_HOOKED, NODE_PYTHON, layout_shape, layout_strides, node_edges, node_meta, pb_layout,
    pb_meta, pb_node)
from pullback._c.ops.create import empty_tensor

cdef pb_globals *process = globals_()


cdef int apply_copy_slices(pb_node *node, PyObject **grads, PyObject **results,
                           bint create_graph, uint64_t skipped) except -1:
    """Run backward of a write to a view, in the base's gradient, or in a copy if it is shared.

    So a backward pass through many writes to parts of one base copies its gradient once.
    """
    cdef SliceWrite write = <SliceWrite>node.op
    cdef bint sole
    cdef Tensor part
    cdef object whole
    if grads[0] == NULL:
        return 0
    node_check_alive(node)
    if write.view == write.base:
        return apply_to_whole(node, grads, results, skipped)
    if create_graph or thread_state().levels or not is_within(write):
        return apply_recorded(node, grads, results, skipped)
    sole = (is_sole_owner(grads[0]) and not node.flags & NODE_HOOKED and not process.anomaly
            and layout_same_strides((<Tensor>grads[0]).layout, node_meta(node).layout))
    whole = <object>grads[0] if sole else in_layout(<Tensor>grads[0], node_meta(node).layout)
    part = part_of(<Tensor>whole, write)
    apply_inner(node, part, results, skipped)
    if node_edges(node)[0].node != NULL:
        Py_INCREF(whole)
        results[0] = <PyObject *>whole
    return 0


cdef int apply_inner(pb_node *node, Tensor part, PyObject **results, uint64_t skipped) except -1:
    """Run backward of the op that wrote, on the gradient of the written part."""
    cdef pb_node *inner = (<SliceWrite>node.op).inner
    cdef PyObject **found = <PyObject **>calloc(inner.nedges, sizeof(PyObject *))
    cdef PyObject *inner_grad
    cdef object seed
    cdef uint32_t i
    if found == NULL:
        raise MemoryError()
    try:
        seed = op_named("clone")(part)
        inner_grad = <PyObject *>seed
        if inner.kind == NODE_PYTHON:
            apply_python(inner, &inner_grad, found)
        else:
            op_backward(inner, &inner_grad, found, skipped & ~<uint64_t>1, NULL)
        if found[0] == NULL:
            op_named("zero_")(part)
        elif found[0] != inner_grad:
            op_named("copy_")(part, <object>found[0])
        for i in range(1, node.nedges):
            results[i] = found[i]
            found[i] = NULL
    finally:
        for i in range(inner.nedges):
            Py_XDECREF(found[i])
        free(found)
    return 0


cdef bint is_within(SliceWrite write) except -1:
    """True if the written view has its base's dtype and is within the base's extent."""
    return (write.view[3] is write.base[3] and write.base[2] <= write.view[2]
            and extent(write.view)[1] <= extent(write.base)[1])


cdef tuple extent(tuple args):
    """Return the extent [low, high] of as_strided arguments, in elements."""
    shape, strides, offset = args[:3]
    high = offset
    for size, stride in zip(shape, strides):
        if size == 0:
            return offset, offset
        high += (size - 1) * stride
    return offset, high


cdef Tensor in_layout(Tensor grad, pb_layout *layout):
    """Return a copy of a gradient with the strides of a layout, and zeros in its gaps."""
    cdef Tensor found = memory_for(grad, layout_reach(layout), layout.numel)
    found = tensor_wrap(storage_retain(found.storage), layout_retain(layout), 0, grad.dtype)
    copy_into(found, grad)
    return found


cdef Tensor part_of(Tensor whole, SliceWrite write):
    """Return the view of the base's gradient that corresponds to the written view."""
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int64_t start = write.view[2] - write.base[2]
    cdef int ndim = layout_parse(write.view[0], shape, "copy_slices", "size")
    cdef int flags = write.view[4] ^ write.base[4]      # lazy bits in which base and view differ
    cdef Tensor part
    layout_parse(write.view[1], strides, "copy_slices", "stride")
    part = tensor_wrap(storage_retain(whole.storage), layout_new(ndim, shape, strides),
                       whole.offset + start, whole.dtype)
    part.flags = (whole.flags & TENSOR_LAZY) ^ flags
    return part


cdef int apply_recorded(pb_node *node, PyObject **grads, PyObject **results,
                        uint64_t skipped) except -1:
    """Run backward with recorded ops, which transforms see too; the view may have any dtype.

    A copy of the gradient that backward of another write made is written again.
    """
    cdef SliceWrite write = <SliceWrite>node.op
    cdef bint private = (is_private_view(grads[0]) and not node.flags & NODE_HOOKED
                         and not thread_state().levels and not process.anomaly)
    cdef object grad = <object>grads[0], result = grad, part
    shape, strides, offset, _, flags = write.base
    low, high = extent(write.base)
    low -= low % 2                      # complex elements begin at even offsets
    if private and is_laid_out(<Tensor>grad, write, low, high):
        buffer = <object>(<Tensor>grad).extra.base
    else:
        buffer = empty_tensor((high - low + 1,), grad.dtype, grad.device)
        if grad.numel() <= high - low:
            op_named("zero_")(buffer)
        if (<Tensor>grad).flags & TENSOR_IS_BATCHED:
            buffer = op_named("clone_beside")(buffer, grad)
        result = toggled(op_named("as_strided")(buffer, shape, strides, offset - low), flags)
        op_named("copy_")(result, grad)
    part = written_part(buffer, result, write, low)
    apply_inner(node, part, results, skipped)
    if node_edges(node)[0].node != NULL:
        Py_INCREF(result)
        results[0] = <PyObject *>result
    return 0


cdef bint is_private_view(PyObject *grad) noexcept:
    """True if the caller's count is the only reference to a view, its base and its memory.

    Saved values of ops count as references to the memory.
    """
    cdef Tensor view
    if grad.ob_refcnt != 1 or not tensor_is_exact(<object>grad):
        return False
    view = <Tensor>grad
    return (view.flags & ~TENSOR_LAZY == TENSOR_IS_VIEW and view.extra.base.ob_refcnt == 1
            and (<Tensor>view.extra.base).flags == 0 and view.extra.view_kind == VIEW_DEFAULT
            and view.storage.refcount == 2 and view.storage.flags == 0
            and view.storage.memory == NULL and view.storage.owner == NULL)


cdef bint is_laid_out(Tensor grad, SliceWrite write, object low, object high) except -1:
    """True for a gradient that backward of another write to the same base has made."""
    shape, strides, offset, dtype, flags = write.base
    row = ((high - low + 1,), (1,), 0, dtype, 0)
    return (as_strided_args(grad) == (shape, strides, offset - low, dtype, flags)
            and as_strided_args(<Tensor>grad.extra.base) == row)


cdef object written_part(object buffer, object result, SliceWrite write, object low):
    """Return the view of the gradient that corresponds to the written view.

    `buffer` is the memory of the gradient, as the storage is of the base; `result` is the gradient.
    """
    shape, strides, offset, dtype, flags = write.view
    if dtype is write.base[3]:
        part = op_named("as_strided")(buffer, shape, strides, offset - low)
    elif dtype.is_complex:
        part = complex_part(buffer, shape, strides, 2 * offset - low)
    else:
        whole = op_named("view_as_real")(toggled(result, write.base[4]))
        part = op_named("as_strided")(whole, shape, strides, offset - low * 2)
    return toggled(part, flags)


cdef int apply_to_whole(pb_node *node, PyObject **grads, PyObject **results,
                        uint64_t skipped) except -1:
    """Run backward of a write to a view that is all of its base: that of the op that wrote."""
    cdef pb_node *inner = (<SliceWrite>node.op).inner
    cdef object zeros
    if inner.kind == NODE_PYTHON:
        apply_python(inner, grads, results)
    else:
        op_backward(inner, grads, results, skipped, NULL)
    if results[0] == NULL and node_edges(node)[0].node != NULL and not skipped & 1:
        zeros = op_named("zeros_like")(<object>grads[0])
        Py_INCREF(zeros)
        results[0] = <PyObject *>zeros
    return 0


cdef void release_slices(pb_node *node, int flags) noexcept:
    """Free the saved values of the op that wrote, after which the node cannot run again."""
    node.flags |= <uint8_t>flags
    node_release_saved((<SliceWrite>node.op).inner, flags)


cdef int give_inner_history(pb_node *inner, Tensor output) except -1:
    """Set the history of an unpacked output of the op that wrote: the base's, as the view's."""
    cdef pb_node *slices = <pb_node *>inner.task
    cdef pb_meta *meta = node_meta(slices)
    cdef SliceWrite write = <SliceWrite>slices.op
    cdef Tensor base, again, memory = output
    if not thread_state().grad_enabled:
        return 0
    if as_strided_args(output) != write.view:  # made by a hook: only these arguments matter here
        memory = empty_tensor((extent(write.base)[1] + 1,), write.base[3], tensor_device(output))
    base = tensor_wrap(storage_retain(memory.storage), layout_retain(meta.layout), write.base[2],
                       meta.dtype)
    base.flags = write.base[4]
    tensor_set_node(base, node_retain(slices), 0)
    again = <Tensor?>replay(base, write.view)
    tensor_set_node(output, node_retain(again.node), again.output_nr)
    return 0


# ---- backward of as_strided ----------------------------------------------------------------------

cdef object forward_as_strided_backward(Op op, PyObject **args, PyObject *target):
    """Return zeros like the base of a view, with the view's gradient written to its part.

    The entry's Python function handles strides with elements that share memory.
    """
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef Tensor grad = <Tensor>args[0], found = None
    cdef pb_layout *whole = NULL
    cdef pb_layout *part = NULL
    cdef int ndim
    sizes, steps, start = <tuple>args[1]
    if (sizes == <object>args[2] and steps == <object>args[3] and start == <object>args[4]
            and target == NULL):
        return grad
    ndim = layout_parse(sizes, shape, "as_strided_backward", "layout")
    layout_parse(steps, strides, "as_strided_backward", "layout")
    whole = layout_new(ndim, shape, strides)
    try:
        ndim = layout_parse(<object>args[2], shape, "as_strided_backward", "size")
        layout_parse(<object>args[3], strides, "as_strided_backward", "stride")
        part = layout_new(ndim, shape, strides)
        if (target == NULL and layout_same_shape(part, grad.layout)
                and not layout_may_self_overlap(whole) and not layout_may_self_overlap(part)):
            found = placed(grad, part, <object>args[4], whole, start)
    finally:
        layout_release(whole)
        if part != NULL:
            layout_release(part)
    return forward_python(op, args, target) if found is None else found


cdef Tensor placed(Tensor grad, pb_layout *part, int64_t offset, pb_layout *whole, int64_t start):
    """Return zeros with a gradient written to the elements of a part."""
    cdef int64_t low = min(start, offset)
    cdef int64_t length = max(start + layout_reach(whole), offset + layout_reach(part)) - low
    cdef Tensor memory = memory_for(grad, length, part.numel)
    cdef Tensor found, written
    written = tensor_wrap(storage_retain(memory.storage), layout_retain(part), offset - low,
                          grad.dtype)
    copy_into(written, grad)
    found = tensor_wrap(storage_retain(memory.storage), layout_retain(whole), start - low,
                        grad.dtype)
    if whole.numel == length or whole.numel == 0:
        return found
    return <Tensor>op_named("clone")(found)     # without the rest of the row's memory


cdef Tensor memory_for(Tensor grad, int64_t length, int64_t written):
    """Return a new vector for a gradient; of zeros unless all elements are going to be written."""
    cdef Tensor memory = tensor_new(layout_contiguous(1, &length), grad.dtype,
                                    grad.storage.device_type, grad.storage.device_index)
    if written < length:
        fill_with(memory, 0)
    return memory


cdef int64_t layout_reach(pb_layout *layout) noexcept:
    """Return how many elements of memory a layout spans."""
    cdef int64_t length = 1
    cdef int d
    if layout.numel == 0:
        return 0
    for d in range(layout.ndim):
        length += (layout_shape(layout)[d] - 1) * layout_strides(layout)[d]
    return length


forward_register("as_strided_backward", forward_as_strided_backward)
set_inner_history(give_inner_history)
