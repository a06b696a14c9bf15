# build: small
"""In-place metadata ops, which change shape, strides or memory: ``transpose_``, ``resize_``."""

import math

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from pullback.abi cimport PB_MAX_NDIM, PB_U8
from pullback._c.dispatch.call cimport op_apply, op_record, run_forward, set_metadata_run
from pullback._c.device.device cimport DEVICE_META
from pullback._c.base.dtype cimport dtype_itemsize
from pullback._c.graph.op cimport Op, op_named
from pullback._c.dispatch.launch cimport copy_into
from pullback._c.base.layout cimport (
    layout_contiguous, layout_new, layout_parse, layout_release, layout_retain, layout_same_shape)
from pullback._c.graph.levels cimport attach, batch_level, tangent_level, wrapper_state
from pullback._c.graph.node cimport node_retain, node_set_meta
from pullback._c.graph.record cimport (
    bump_version, check_inplace, check_not_inference, move_retained, tensor_needs_grad)
from pullback._c.base.state cimport HISTORY_CHANGED, captured_change, pb_state, thread_state
from pullback._c.device.storage cimport storage_new, storage_release, storage_retain
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, TENSOR_IS_VIEW, TENSOR_IS_WRAPPED, TENSOR_LAZY, TENSOR_REQUIRES_GRAD, Tensor,
    tensor_set_node, tensor_wrap)
from pullback._c.base.types cimport pb_layout, pb_storage

__all__ = ["resize"]


cdef object run_metadata(Op op, PyObject **args):
    """Run the in-place form of a view op: the first argument becomes the view."""
    cdef pb_state *state = thread_state()
    cdef Tensor target = <Tensor>args[0]
    cdef Tensor view
    check_not_inference(target)
    check_inplace(target, tensor_needs_grad(target))
    if state.levels and (batch_level(target) is not None
                         or tangent_level(target, state.disabled_levels)):
        if op.functional is None:
            raise NotImplementedError(f"Trying to use forward AD or vmap with {op.name} that does "
                                      f"not support it because it has not been implemented yet.")
        view = op_apply(op.functional, args)
    else:
        view = op_record(op, args, run_forward(op, args, NULL))
    become(op, target, view)
    return target


cdef int become(Op op, Tensor target, Tensor view) except -1:
    """Give a tensor the sizes, strides, memory, history and wrapper state of another."""
    bump_version(target, op.id)
    set_memory(target, storage_retain(view.storage), layout_retain(view.layout), view.offset)
    target.flags = target.flags & ~TENSOR_LAZY | view.flags & TENSOR_LAZY
    if view.flags & TENSOR_IS_WRAPPED or target.flags & TENSOR_IS_WRAPPED:
        attach(target, wrapper_state(view))
    if view.node == NULL:
        return 0
    move_retained(target, view.node, view.output_nr)
    tensor_set_node(target, node_retain(view.node), view.output_nr)
    target.flags &= ~TENSOR_REQUIRES_GRAD
    if target.flags & TENSOR_IS_VIEW:
        target.extra.view_version = target.storage.version
    return 0


cdef int set_memory(Tensor target, pb_storage *storage, pb_layout *layout,
                    int64_t offset) except -1:
    """Replace a tensor's storage and layout; steals both counts."""
    captured_change(<PyObject *>target, HISTORY_CHANGED)
    storage_release(target.storage)
    layout_release(target.layout)
    target.storage = storage
    target.layout = layout
    target.offset = offset
    if target.extra != NULL and target.extra.accumulator != NULL:
        node_set_meta(target.extra.accumulator, 0, layout, target.dtype, storage)
    return 0


def resize(Tensor self not None, size, strides=None):
    """Change the shape in place, in larger memory where necessary; returns the tensor.

    Without strides the result is row-major, and the same shape changes nothing. Tensors that share
    the memory keep the old one when this tensor gets larger memory.
    """
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t steps[PB_MAX_NDIM]
    cdef pb_layout *layout
    cdef pb_storage *storage
    cdef int64_t nbytes
    cdef int ndim = layout_parse(size, shape, "resize_", "size"), d
    cdef Op op = op_named("resize_")
    if tensor_needs_grad(self) and not thread_state().inference:
        raise RuntimeError("cannot resize variables that require grad")
    if self.flags & TENSOR_IS_BATCHED:
        become(op, self, <Tensor?>resized_batch(self, size))
        return self
    if wrapper_state(self) is not None:
        raise RuntimeError("cannot resize variables that has a forward grad")
    for d in range(ndim):
        if shape[d] < 0:
            raise RuntimeError(f"resize_(): negative dimension {shape[d]} in {list(size)}")
    if strides is None:
        layout = layout_contiguous(ndim, shape)
    else:
        layout_parse(strides, steps, "resize_", "strides")
        layout = layout_new(ndim, shape, steps)
    storage = self.storage
    try:
        if strides is None and layout_same_shape(layout, self.layout):
            return self
        check_not_inference(self)
        nbytes = (self.offset + layout.numel) * dtype_itemsize[self.dtype]
        if layout.numel > 0 and nbytes > storage.nbytes:
            storage = grown(storage, nbytes)
        else:
            storage_retain(storage)
        set_memory(self, storage, layout_retain(layout), self.offset)
    finally:
        layout_release(layout)
    bump_version(self, op.id)
    return self


cdef object resized_batch(Tensor self, size):
    """Return a batched tensor resized, with more elements where necessary."""
    flat = op_named("reshape")(self, (-1,))
    count = math.prod(size) if isinstance(size, tuple) else size
    if count > flat.shape[0]:
        rest = op_named("new_empty")(self, (count - flat.shape[0],))
        flat = op_named("cat")([flat, rest], 0)
    return op_named("reshape")(op_named("narrow")(flat, 0, 0, count), size)


cdef pb_storage *grown(pb_storage *before, int64_t nbytes) except NULL:
    """Return a larger storage that begins with the bytes of another; owned."""
    cdef pb_storage *storage
    cdef Tensor source, target
    if before.owner != NULL or (before.memory != NULL and before.memory.owner != NULL):
        raise RuntimeError("Trying to resize storage that is not resizable")
    storage = storage_new(before.device_type, before.device_index, nbytes)
    storage.version = before.version
    storage.flags = before.flags
    if before.nbytes > 0 and before.device_type != DEVICE_META:
        source = tensor_wrap(storage_retain(before), layout_contiguous(1, &before.nbytes), 0, PB_U8)
        target = tensor_wrap(storage_retain(storage), layout_contiguous(1, &before.nbytes), 0,
                             PB_U8)
        copy_into(target, source)
    return storage


set_metadata_run(run_metadata)
