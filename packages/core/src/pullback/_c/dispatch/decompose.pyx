# build: small
"""Decompositions: how ops run on devices without their kernel."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from pullback.abi cimport PB_BF16, PB_C32, PB_C64, PB_F16, PB_F32
from pullback._c.base.dtype cimport CATEGORY_FLOATING, dtype_category, dtype_default
from pullback._c.base.layout cimport layout_retain, layout_same_strides
from pullback._c.base.state cimport pb_state, thread_state
from pullback._c.device.device cimport DEVICE_META
from pullback._c.device.storage cimport storage_retain
from pullback._c.dispatch.launch cimport copy_into
from pullback._c.dispatch.operands cimport cast_tensor
from pullback._c.dispatch.outputs cimport check_fits
from pullback._c.graph.op cimport MAX_ARGS, PROMOTE_FLOAT, Op
from pullback._c.graph.tensor cimport Tensor, is_tensor, tensor_new, tensor_over
from pullback._c.dispatch.fallback import KernelMissing
from pullback.ops.table.primitives import WIDE_RESULTS


cdef object forward_or_decompose(Op op, PyObject **args, PyObject *target):
    """Run the forward pass; without a kernel for it, the decomposition."""
    cdef pb_state *state = thread_state()
    cdef int before = state.fallback_primitive
    state.fallback_primitive = op.primitive
    try:
        return op.forward(op, args, target)
    except KernelMissing:
        pass
    finally:
        state.fallback_primitive = before
    return decomposed(op, args, target)


cdef object decomposed(Op op, PyObject **args, PyObject *target):
    """Run an op's decomposition below autograd, on operands in the dtype that it computes in.

    Computes 16-bit floating-point numbers in float32, complex32 in complex64.
    """
    cdef pb_state *state = thread_state()
    cdef bint before = state.grad_enabled
    cdef uint32_t autocast = state.autocast
    cdef int i, narrow = -1
    cdef list values = []
    cdef object value, result
    cdef Tensor like
    for i in range(op.nargs):
        value = <object>args[i]
        if is_tensor(value):
            if op.promote == PROMOTE_FLOAT and dtype_category[
                    (<Tensor>value).dtype] < CATEGORY_FLOATING:
                value = cast_tensor(<Tensor>value, dtype_default())
            if (<Tensor>value).dtype in (PB_F16, PB_BF16, PB_C32):
                narrow = (<Tensor>value).dtype
                value = cast_tensor(<Tensor>value, PB_C64 if narrow == PB_C32 else PB_F32)
        values.append(value)
    state.grad_enabled = 0
    state.autocast = 0
    try:
        result = op.decompose(*values)
    finally:
        state.grad_enabled = before
        state.autocast = autocast
    if result is None:                  # it wrote into lists of tensors
        return None
    if isinstance(result, tuple):       # several results keep their strides
        wide = WIDE_RESULTS.get(op.entry.kernel, ()) if narrow >= 0 else ()
        real = PB_F16 if narrow == PB_C32 else narrow
        parts = [cast_tensor(<Tensor>part, real if (<Tensor>part).dtype == PB_F32 else narrow)
                 if narrow >= 0 and (<Tensor?>part).dtype in (PB_F32, PB_C64) and i not in wide
                 else part
                 for i, part in enumerate(result)]
        return tuple(parts) if op.entry.results is None else op.entry.results(*parts)
    like = kernel_metadata(op, args)    # which promotes all operands together
    if (<Tensor?>result).dtype != like.dtype:
        result = cast_tensor(<Tensor>result, like.dtype)
    if target != NULL:
        check_fits(<Tensor>target, <Tensor>result)
        copy_into(<Tensor>target, <Tensor>result)
        return <object>target
    return laid_out_as(like, args, op.nargs, <Tensor>result)


cdef Tensor kernel_metadata(Op op, PyObject **args):
    """Return a meta tensor with the shape, dtype and strides of the op's own forward pass."""
    cdef PyObject *shadows[MAX_ARGS]
    cdef list kept = []
    cdef int i
    cdef Tensor shadow
    for i in range(op.nargs):
        shadows[i] = args[i]
        if is_tensor(<object>args[i]):
            shadow = <Tensor>args[i]
            shadow = tensor_new(layout_retain(shadow.layout), shadow.dtype, DEVICE_META, 0)
            kept.append(shadow)
            shadows[i] = <PyObject *>shadow
    return <Tensor?>op.forward(op, shadows, NULL)


cdef Tensor laid_out_as(Tensor like, PyObject **args, int nargs, Tensor result):
    """Return a result with the strides of another tensor; never one of the arguments."""
    cdef bint fresh = True
    cdef int i
    cdef Tensor out
    for i in range(nargs):
        if is_tensor(<object>args[i]):
            fresh = fresh and (<Tensor>args[i]).storage != result.storage
    if fresh and layout_same_strides(like.layout, result.layout):
        # Dims of one element may have any stride: take the row-major one.
        return tensor_over(result, storage_retain(result.storage), layout_retain(like.layout),
                           result.offset)
    out = tensor_new(layout_retain(like.layout), result.dtype, result.storage.device_type,
                     result.storage.device_index)
    copy_into(out, result)
    return out


def op_decomposed(Op op not None, args, kwargs):
    """Run an op's decomposition even where there is a kernel; for tests."""
    cdef PyObject *placed[MAX_ARGS]
    cdef int i
    values = list(op.defaults)
    values[:len(args)] = args
    for name, value in kwargs.items():
        values[op.arg_names.index(name)] = value
    for i in range(op.nargs):
        placed[i] = <PyObject *>values[i]
    return decomposed(op, placed, NULL)
