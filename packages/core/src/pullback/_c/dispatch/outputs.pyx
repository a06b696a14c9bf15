# build: small
"""Outputs: tensors given as out= or written in place, their checks, and results that are views."""

import warnings

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport uint32_t

from pullback._c.base.dtype cimport CATEGORY_FLOATING, dtype_category, dtype_itemsize, dtype_object
from pullback._c.dispatch.operands cimport (
    check_partial_overlap, memory_overlaps, same_elements, scalar_fits)
from pullback._c.graph.op cimport (
    OP_DIRECT, OP_EXACT, OP_SHARES, PROMOTE_DEFAULT, PROMOTE_FLOAT, Op)
from pullback._c.dispatch.launch cimport copy_into
from pullback._c.base.interrupts cimport interrupts_left_writes
from pullback._c.base.layout cimport layout_contiguous, layout_release, layout_same_shape
from pullback._c.base.state cimport thread_state
from pullback._c.graph.record cimport (
    bump_version, check_inplace, check_writable, needs_grad, tensor_needs_grad)
from pullback._c.device.storage cimport storage_new, storage_release
from pullback._c.graph.tensor cimport (
    TENSOR_IS_VIEW, Tensor, VIEW_DEFAULT, is_tensor, same_device)
from pullback._c.base.types cimport layout_shape, pb_layout, pb_storage
from pullback.ops.rules.out_rules import complaint


cdef bint writes_directly(Op op, PyObject **args, Tensor target) except -1:
    """True if an op's forward pass can write its result directly into the tensor given as out=.

    So for elementwise ops whose operands have its shape, dtype and device, and either the same
    elements of memory or no overlap with it.
    """
    cdef int i
    cdef bint found = False
    cdef Tensor operand
    if not op.flags & OP_DIRECT:
        return False
    if not op.dtypes & (<uint32_t>1 << target.dtype) or target.layout.numel == 0:
        return False
    if op.promote != PROMOTE_DEFAULT and (
            op.promote != PROMOTE_FLOAT or dtype_category[target.dtype] < CATEGORY_FLOATING):
        return False
    for i in range(op.ntensors):
        if not is_tensor(<object>args[op.tensor_args[i]]):
            if not scalar_fits(<object>args[op.tensor_args[i]], target.dtype):
                return False
            continue
        operand = <Tensor>args[op.tensor_args[i]]
        if operand.dtype != target.dtype or not layout_same_shape(operand.layout, target.layout):
            return False
        if not same_device(operand, target):
            return False
        if memory_overlaps(operand, target) and not same_elements(operand, target):
            return False
        found = True
    return found


cdef int check_overlap(Tensor target, object value) except -1:
    """Raise if an operand, or one of a list, overlaps the target only partly."""
    if is_tensor(value):
        return check_partial_overlap(target, <Tensor>value)
    if isinstance(value, (tuple, list)):
        for item in value:
            if is_tensor(item):
                check_partial_overlap(target, <Tensor>item)
    return 0


def check_overlaps(Tensor target not None, *values):
    """Raise RuntimeError if an operand overlaps the target only partly."""
    for value in values:
        check_overlap(target, value)


cdef int check_outputs(Op op, PyObject **args, object targets, tuple results) except -1:
    """Raise unless the tensors given as out= may take the results."""
    cdef int i
    cdef Tensor target
    for number, item in enumerate(targets):
        target = <Tensor>item
        if op.flags & OP_EXACT and target.dtype != (<Tensor?>results[number]).dtype:
            wrong = complaint(op.entry, <object>args[0], results, number, item)
            if wrong is not None:
                raise RuntimeError(wrong)
        if not op.flags & OP_SHARES:
            for i in range(op.nargs):
                check_overlap(target, <object>args[i])
    return 0


cdef int check_fits(Tensor target, Tensor result) except -1:
    """Raise unless the result of an in-place op has the target's shape, and casts to its dtype."""
    if not layout_same_shape(target.layout, result.layout):
        raise RuntimeError(f"output with shape {list(target.shape)} doesn't match the broadcast "
                           f"shape {list(result.shape)}")
    return check_casts(target, result)


cdef int check_casts(Tensor target, Tensor result) except -1:
    if dtype_category[target.dtype] < dtype_category[result.dtype]:
        raise RuntimeError(f"result type {dtype_object(result.dtype).name} can't be cast to the "
                           f"desired output type {dtype_object(target.dtype).name}")
    return 0


cdef int copy_to_out(Op op, Tensor target, Tensor result) except -1:
    check_casts(target, result)
    check_writable(target, False)
    if not same_device(target, result):
        raise RuntimeError(f"{op.name}(): expected out to be on the same device as the result")
    if not layout_same_shape(target.layout, result.layout):
        resize(target, result)
    copy_into(target, result)
    bump_version(target, op.id)
    return 0


cdef int resize(Tensor target, Tensor result) except -1:
    """Give `target` new memory in the shape of `result`; warns as torch unless it was empty."""
    cdef pb_layout *layout
    cdef pb_storage *storage
    if target.layout.numel != 0:
        warnings.warn(f"An output with one or more elements was resized since it had shape "
                      f"{list(target.shape)}, which does not match the required output shape "
                      f"{list(result.shape)}.", UserWarning, stacklevel=2)
    layout = layout_contiguous(result.layout.ndim, layout_shape(result.layout))
    storage = storage_new(target.storage.device_type, target.storage.device_index,
                          layout.numel * dtype_itemsize[target.dtype])
    storage.version = target.storage.version
    layout_release(target.layout)
    storage_release(target.storage)
    target.layout = layout
    target.storage = storage
    target.offset = 0
    return 0


# ---- results that are views ----------------------------------------------------------------------

cdef object own_result(object result):
    """Turn results that are views of an intermediate tensor of the op into bases; return them.

    There is no other reference to such a base, so no later write to it can concern the view.
    """
    if is_tensor(result):
        if (<Tensor>result).flags & TENSOR_IS_VIEW:
            own_view(<Tensor>result)
    elif isinstance(result, tuple):
        for item in <tuple>result:
            if is_tensor(item) and (<Tensor>item).flags & TENSOR_IS_VIEW:
                own_view(<Tensor>item)
    return result


cdef int own_view(Tensor view) except -1:
    cdef PyObject *base = view.extra.base
    if base.ob_refcnt != 1:
        return 0
    tensor_needs_grad(view)             # updates its history to the base's
    view.flags &= ~TENSOR_IS_VIEW
    view.extra.base = NULL
    view.extra.view_kind = VIEW_DEFAULT
    Py_DECREF(<object>base)
    return 0


# ---- in-place ops on lists -----------------------------------------------------------------------

cdef tuple written_tensors(Op op, PyObject **args):
    """Return the tensors that an in-place op on lists of tensors writes, list by list."""
    cdef int i
    cdef list found = []
    for i in range(op.nargs):
        if op.written >> i & 1:
            found.extend(<object>args[i])
    return tuple(found)


cdef int check_targets(Op op, PyObject **args) except -1:
    """Raise for a write that is not allowed, and for one whose history would be lost."""
    cdef int i
    cdef bint recording = thread_state().grad_enabled and not thread_state().inference
    for i in range(op.nargs):
        if op.written >> i & 1:
            for item in <object>args[i]:
                check_inplace(<Tensor>item, recording and tensor_needs_grad(<Tensor>item))
                check_writable(<Tensor>item, False)
    if recording and needs_grad(op, args):
        raise RuntimeError(f"{op.name}(): the derivative is not implemented; call it under "
                           f"no_grad(), or with tensors that do not require grad")
    return 0


cdef object run_written_lists(Op op, PyObject **args):
    """Run an in-place op on lists of tensors, which records no node; returns None, as torch's do.

    The forward pass checks its operands before it writes.
    """
    cdef bint done = False
    cdef int i
    check_targets(op, args)
    try:
        op.forward(op, args, NULL)
        done = True
    finally:
        if done or interrupts_left_writes():
            for i in range(op.nargs):
                if op.written >> i & 1:
                    for item in <object>args[i]:
                        bump_version(<Tensor>item, op.id)
    return None
