"""Forward passes of elementwise ops: promotion, broadcasting, and the kernel call."""

import warnings

from cpython.complex cimport PyComplex_Check
from cpython.float cimport PyFloat_Check
from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from pullback.abi cimport PB_BOOL, PB_F32, PB_F64, PB_NUM_DTYPES, PB_U8
from pullback._c.base.dtype cimport (
    CATEGORY_COMPLEX, CATEGORY_FLOATING, CATEGORY_INTEGRAL, dtype_category, dtype_default,
    dtype_object, dtype_of_scalar, dtype_real, scalar_check_all, scalar_write)
from pullback._c.dispatch.operands cimport (
    cast_tensor, check_partial_overlap, common_dtype, contiguous_copy, leading_tensor,
    memory_overlaps, on_one_device, same_elements, scalar_fits, unsupported)
from pullback._c.graph.op cimport (
    OP_ALPHA, PROMOTE_BOOL_OUT, PROMOTE_DEFAULT, PROMOTE_FLOAT, PROMOTE_REAL_OUT, PROMOTE_WHERE, Op,
    forward_register, op_named)
from pullback._c.dispatch.launch cimport (
    MAX_ELEMENTWISE, copy_into, elementwise_layout, fill_with, launch_elementwise, operand,
    primitive_id)
from pullback._c.base.layout cimport (
    check_broadcast, layout_contiguous, layout_release, layout_retain, layout_same_shape,
    layout_shape_tuple)
from pullback._c.device.device cimport device_types, pb_device_type
from pullback._c.dispatch.lazy cimport resolved, scalar_of
from pullback._c.graph.tensor cimport (
    TENSOR_LAZY, Tensor, is_tensor, same_device, tensor_data, tensor_new)
from pullback._c.base.state cimport capturing
from pullback._c.base.types cimport LAYOUT_CONTIGUOUS, LAYOUT_DENSE, layout_shape, pb_layout

cdef int MUL = primitive_id("mul")
cdef int ADD = primitive_id("add")
cdef int ADDCMUL = primitive_id("addcmul")


# ---- operands ------------------------------------------------------------------------------------

cdef object fill_operand(operand *primitive, object value, int dtype, Tensor leader):
    """Fill one operand, cast to the compute dtype; returns the owner of its memory."""
    cdef Tensor tensor, on_device
    if not is_tensor(value):
        primitive.tensor = NULL
        scalar_write(value, dtype, &primitive.scalar[0])
        return None
    tensor = <Tensor>value
    if tensor.storage.device_type != leader.storage.device_type:
        if capturing():
            tensor = cast_tensor(resolved(tensor), dtype)
            primitive.tensor = <PyObject *>tensor
            return tensor
        if dtype == PB_BOOL:                # numbers have the dtype of the others
            on_device = tensor_new(layout_retain(tensor.layout), dtype, leader.storage.device_type,
                                   leader.storage.device_index)
            fill_with(on_device, bool(scalar_of(tensor, tensor_data(tensor))))
            primitive.tensor = <PyObject *>on_device
            return on_device
        primitive.tensor = NULL
        scalar_write(scalar_of(tensor, tensor_data(tensor)), dtype, &primitive.scalar[0])
        return None
    if tensor.dtype != dtype:
        tensor = cast_tensor(tensor, dtype)
        primitive.tensor = <PyObject *>tensor
        return tensor
    primitive.tensor = <PyObject *>tensor
    return None


# ---- the forward pass ----------------------------------------------------------------------------

cdef object forward_elementwise(Op op, PyObject **args, PyObject *target):
    """Run the op's primitive over its operands, into `target` if that is not NULL."""
    cdef PyObject *values[MAX_ELEMENTWISE]
    cdef operand inputs[MAX_ELEMENTWISE]
    cdef int i, out_dtype, count = op.ntensors
    cdef Tensor a, b, out
    cdef object scaled = None
    for i in range(count):
        values[i] = args[op.tensor_args[i]]
    if op.flags & OP_ALPHA and args[count] != ONE:
        check_factor(op, values, <object>args[count])
        if has_scaled_sum(op, values, args[count]):
            return scaled_sum(op, values, <object>args[count], target)
        scaled = scale_operand(op, values, <object>args[count])
        values[1] = <PyObject *>scaled
    if target == NULL and count <= 2 and is_tensor(<object>values[0]):
        a = <Tensor>values[0]
        out_dtype = unconverted(op, a)
        if out_dtype >= 0:
            inputs[0].tensor = <PyObject *>a
            if count == 2 and is_tensor(<object>values[1]):
                b = <Tensor>values[1]
                if not same_dtype_and_device(a, b):
                    return forward_general(op, values, count, target)
                inputs[1].tensor = <PyObject *>b
                if not same_layout(a.layout, b.layout):
                    if a.layout.numel == 0 or b.layout.numel == 0:
                        return forward_general(op, values, count, target)
                    out = tensor_new(elementwise_layout(inputs, 2), out_dtype,
                                     a.storage.device_type, a.storage.device_index)
                    launch_elementwise(op.primitive, a.dtype, out, inputs, 2)
                    return out
            elif count == 2:
                if not scalar_fits(<object>values[1], a.dtype):
                    return forward_general(op, values, count, target)
                inputs[1].tensor = NULL
                scalar_write(<object>values[1], a.dtype, &inputs[1].scalar[0])
            out = tensor_new(layout_retain(a.layout), out_dtype, a.storage.device_type,
                             a.storage.device_index)
            launch_elementwise(op.primitive, a.dtype, out, inputs, count)
            return out
    return forward_general(op, values, count, target)


cdef inline int unconverted(Op op, Tensor a) noexcept:
    """Return the result's dtype for operands that all have the dtype of `a`, a dense tensor.

    -1 where operands must be cast, or further checks are needed.
    """
    if not op.dtypes & (<uint32_t>1 << a.dtype) or not a.layout.flags & LAYOUT_DENSE:
        return -1
    if op.promote == PROMOTE_BOOL_OUT:
        return PB_BOOL
    if op.promote == PROMOTE_DEFAULT or (
            op.promote == PROMOTE_FLOAT and dtype_category[a.dtype] >= CATEGORY_FLOATING) or (
            op.promote == PROMOTE_REAL_OUT and dtype_category[a.dtype] < CATEGORY_COMPLEX):
        return a.dtype
    return -1


cdef inline bint same_dtype_and_device(Tensor a, Tensor b) noexcept nogil:
    """True if both have one dtype and device."""
    return (a.dtype == b.dtype and same_device(a, b))


cdef inline bint same_layout(pb_layout *a, pb_layout *b) noexcept nogil:
    """True if both have the same shape, and the same order of elements in memory."""
    return a == b or (a.flags & b.flags & LAYOUT_CONTIGUOUS != 0 and layout_same_shape(a, b))


cdef object one = 1                     # the interned int, identical to defaults of entries
cdef PyObject *ONE = <PyObject *>one


cdef int check_factor(Op op, PyObject **values, object alpha) except -1:
    """Raise unless alpha is a number that the operands' dtype can represent."""
    cdef int compute = common_dtype(values, 2)
    cdef int kind = dtype_of_scalar(alpha)
    if kind < 0:
        raise TypeError(f"{op.name}(): argument 'alpha' must be Number, not {type(alpha).__name__}")
    if kind == PB_BOOL and compute != PB_BOOL:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if dtype_category[kind] >= CATEGORY_FLOATING and dtype_category[compute] <= CATEGORY_INTEGRAL:
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating "
                           "point number.")
    if compute != PB_BOOL:
        scalar_check_all(alpha, compute)
    return 0


cdef bint has_scaled_sum(Op op, PyObject **values, PyObject *alpha) noexcept:
    """True if the device has a kernel of addcmul for both operands' dtype."""
    cdef Tensor a, b
    cdef pb_device_type *device
    if not (is_tensor(<object>values[0]) and is_tensor(<object>values[1])):
        return False
    a = <Tensor>values[0]
    b = <Tensor>values[1]
    if a.dtype != b.dtype or (a.dtype != PB_F32 and a.dtype != PB_F64):
        return False
    if dtype_category[dtype_of_scalar(<object>alpha)] > CATEGORY_FLOATING:
        return False
    device = device_types() + a.storage.device_type
    return device.loaded and device.table[ADDCMUL * PB_NUM_DTYPES + a.dtype].kernel != NULL


cdef object scaled_sum(Op op, PyObject **values, object alpha, PyObject *target):
    """Return self + alpha * other of floats, or self - alpha * other, by one kernel."""
    cdef PyObject *four[MAX_ELEMENTWISE]
    cdef bint whole = dtype_category[dtype_of_scalar(alpha)] <= CATEGORY_INTEGRAL
    cdef object factor = int(alpha) if whole else float(alpha)
    if op.primitive != ADD:
        factor = -factor
    four[0] = values[0]
    four[1] = values[1]
    four[2] = <PyObject *>factor
    four[3] = ONE
    return run_general(op, ADDCMUL, four, 4, target)


cdef object scale_operand(Op op, PyObject **values, object alpha):
    """Return alpha * other, in the op's common dtype."""
    cdef int compute = common_dtype(values, 2)
    cdef operand inputs[2]
    cdef Tensor other, out
    if not is_tensor(<object>values[1]):
        return (<object>values[1]) * alpha
    other = <Tensor>values[1]
    if other.dtype != compute:
        other = cast_tensor(other, compute)
    inputs[0].tensor = <PyObject *>other
    inputs[1].tensor = NULL
    scalar_write(alpha, compute, &inputs[1].scalar[0])
    out = tensor_new(elementwise_layout(inputs, 1), compute, other.storage.device_type,
                     other.storage.device_index)
    launch_elementwise(MUL, compute, out, inputs, 2)
    return out


cdef int result_dtypes(Op op, PyObject **values, int count, int *out_dtype) except -1:
    """Return the compute dtype; sets `out_dtype` to the result's."""
    cdef int compute, skip = 1 if op.promote == PROMOTE_WHERE else 0
    compute = common_dtype(values + skip, count - skip)
    if op.promote == PROMOTE_FLOAT and dtype_category[compute] < CATEGORY_FLOATING:
        compute = dtype_default()
    if not op.dtypes & (<uint32_t>1 << compute):
        unsupported(op, compute)
    out_dtype[0] = compute
    if op.promote == PROMOTE_BOOL_OUT:
        out_dtype[0] = PB_BOOL
    elif op.promote == PROMOTE_REAL_OUT:
        out_dtype[0] = dtype_real(compute)
    return compute


cdef object forward_general(Op op, PyObject **values, int count, PyObject *target):
    return run_general(op, op.primitive, values, count, target)


cdef object run_general(Op op, int primitive, PyObject **values, int count, PyObject *target):
    """Run a primitive over operands of any dtype and layout."""
    cdef operand inputs[MAX_ELEMENTWISE]
    cdef int i, out_dtype = 0, compute
    cdef Tensor leader = leading_tensor(values, count)
    cdef Tensor out
    cdef pb_layout *layout
    if leader is None:
        raise TypeError(f"{op.name}(): expected at least one Tensor")
    if target != NULL:
        for i in range(count):
            if is_tensor(<object>values[i]):
                check_partial_overlap(<Tensor>target, <Tensor>values[i])
    compute = result_dtypes(op, values, count, &out_dtype)
    on_one_device(op, values, count, leader)
    _kept = [fill_operand(&inputs[i], <object>values[i],
                          PB_BOOL if i == 0 and op.promote == PROMOTE_WHERE else compute, leader)
             for i in range(count)]
    if target != NULL:
        return into_target(primitive, <Tensor>target, inputs, count, compute, out_dtype)
    layout = elementwise_layout(inputs, count)
    out = tensor_new(layout, out_dtype, leader.storage.device_type, leader.storage.device_index)
    if out.layout.numel != 0:
        launch_elementwise(primitive, compute, out, inputs, count)
    return out


cdef object into_target(int primitive, Tensor target, operand *inputs, int count, int compute,
                        int out_dtype):
    """Run into an existing tensor; raises unless its shape and dtype take the result."""
    cdef pb_layout *layout = elementwise_layout(inputs, count)
    cdef Tensor out
    cdef int i
    cdef bint direct = target.dtype == out_dtype
    cdef list kept = []
    try:
        if not layout_same_shape(layout, target.layout):
            raise RuntimeError(f"output with shape {list(layout_shape_tuple(target.layout))} "
                               f"doesn't match the broadcast shape "
                               f"{list(layout_shape_tuple(layout))}")
    finally:
        layout_release(layout)
    if dtype_category[target.dtype] < dtype_category[out_dtype]:
        raise RuntimeError(f"result type {dtype_object(out_dtype).name} can't be cast to the "
                           f"desired output type {dtype_object(target.dtype).name}")
    if target.layout.numel == 0:
        return target
    for i in range(count):
        if inputs[i].tensor != NULL and not same_elements(<Tensor>inputs[i].tensor, target) and (
                memory_overlaps(<Tensor>inputs[i].tensor, target)):
            out = contiguous_copy(<Tensor>inputs[i].tensor)
            kept.append(out)
            inputs[i].tensor = <PyObject *>out
    if direct:
        launch_elementwise(primitive, compute, target, inputs, count)
        return target
    out = tensor_new(layout_contiguous(target.layout.ndim, layout_shape(target.layout)), out_dtype,
                     target.storage.device_type, target.storage.device_index)
    launch_elementwise(primitive, compute, out, inputs, count)
    copy_into(target, out)
    return target


forward_register("elementwise", forward_elementwise)


# ---- where, masked_fill, copy --------------------------------------------------------------------

cdef object choose(Op op, Tensor mask, PyObject *first, PyObject *second, Tensor like):
    """Run `where` on operands of the dtype of `like`, one of them; None for any other call.

    The other operand may be a number, or a tensor of the same dtype and shape.
    """
    cdef operand inputs[3]
    cdef PyObject *value
    cdef Tensor out
    cdef int i
    if not (mask.dtype == PB_BOOL and like.layout.flags & LAYOUT_DENSE
            and same_layout(mask.layout, like.layout)
            and same_device(mask, like)):
        return None
    inputs[0].tensor = <PyObject *>mask
    for i in range(1, 3):
        value = first if i == 1 else second
        if is_tensor(<object>value):
            if not same_dtype_and_device(<Tensor>value, like) or not same_layout(
                    (<Tensor>value).layout, like.layout):
                return None
            inputs[i].tensor = value
        elif scalar_fits(<object>value, like.dtype):
            inputs[i].tensor = NULL
            scalar_write(<object>value, like.dtype, &inputs[i].scalar[0])
        else:
            return None
    out = tensor_new(layout_retain(like.layout), like.dtype, like.storage.device_type,
                     like.storage.device_index)
    if out.layout.numel != 0:
        launch_elementwise(op.primitive, like.dtype, out, inputs, 3)
    return out


cdef object forward_where(Op op, PyObject **args, PyObject *target):
    """self or other by a condition; with the condition alone, the indices where it is true."""
    cdef int code = (<Tensor>args[0]).dtype
    if <object>args[1] is None and <object>args[2] is None:
        return op_named("nonzero")(<object>args[0], as_tuple=True)
    if <object>args[1] is None or <object>args[2] is None:
        raise TypeError(f"{op.name}(): expected a condition alone, or with both self and other")
    if code == PB_U8:
        warnings.warn("where received a uint8 condition tensor. This behavior is deprecated and "
                      "will be removed in a future version. Use a boolean condition instead.",
                      UserWarning, stacklevel=1)
    elif code != PB_BOOL:
        from pullback.ops.rules.dtypes import type_name
        raise RuntimeError(f"where expected condition to be a boolean tensor, but got a tensor "
                           f"with dtype {type_name(dtype_object(code))}")
    if target == NULL:
        like = <object>args[1] if is_tensor(<object>args[1]) else <object>args[2]
        if is_tensor(like):
            out = choose(op, <Tensor>args[0], args[1], args[2], <Tensor>like)
            if out is not None:
                return out
    return forward_elementwise(op, args, target)


cdef object forward_masked_fill(Op op, PyObject **args, PyObject *target):
    """(self, mask, value): value where the mask is true, in the dtype of self."""
    cdef Tensor self = <Tensor>args[0]
    cdef Tensor mask = <Tensor>args[1]
    cdef Tensor out
    cdef PyObject *values[3]
    cdef operand inputs[3]
    cdef int i
    if is_tensor(<object>args[2]) and (<Tensor>args[2]).layout.ndim > 0:
        raise RuntimeError(f"masked_fill_ only supports a 0-dimensional value tensor, but got "
                           f"tensor with {(<Tensor>args[2]).layout.ndim} dimension(s).")
    if mask.dtype != PB_BOOL:
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype "
                           f"{dtype_object(mask.dtype).name}")
    if not is_tensor(<object>args[2]):
        scalar_check_all(<object>args[2], self.dtype)
    if target == NULL:
        out = choose(op, mask, args[2], args[0], self)
        if out is not None:
            return out
    values[0] = args[1]
    values[1] = args[2]
    values[2] = args[0]
    if target != NULL:
        check_partial_overlap(<Tensor>target, mask)
    on_one_device(op, args, 3, self)
    _kept = [fill_operand(&inputs[i], <object>values[i], PB_BOOL if i == 0 else self.dtype, self)
             for i in range(3)]
    if target != NULL:
        return into_target(op.primitive, <Tensor>target, inputs, 3, self.dtype, self.dtype)
    out = tensor_new(elementwise_layout(inputs, 3), self.dtype, self.storage.device_type,
                     self.storage.device_index)
    if out.layout.numel != 0:
        launch_elementwise(op.primitive, self.dtype, out, inputs, 3)
    return out


cdef object fill_cast(Tensor self, object value):
    """Set every element to a number, cast like a 0-d tensor."""
    from pullback._c.ops.create import fill_tensor
    if PyComplex_Check(value) and dtype_category[self.dtype] != CATEGORY_COMPLEX:
        value = value != 0 if self.dtype == PB_BOOL else value.real
    elif PyFloat_Check(value) and dtype_category[self.dtype] == CATEGORY_INTEGRAL:
        value = int(value)
    return fill_tensor(self, value)


cdef object forward_copy(Op op, PyObject **args, PyObject *target):
    """Write src into self, cast and broadcast, also between devices."""
    cdef Tensor self = <Tensor>args[0]
    cdef Tensor source
    if not is_tensor(<object>args[1]):
        return fill_cast(self, <object>args[1])
    source = <Tensor>args[1]
    check_broadcast(self.layout, source.layout)
    if not same_device(self, source):
        from pullback._c.ops.create import copy_raw
        return copy_raw(self, source, <object>args[2])
    check_partial_overlap(self, source)
    if memory_overlaps(self, source):
        if same_elements(self, source) and not (self.flags ^ source.flags) & TENSOR_LAZY:
            return self
        source = contiguous_copy(source)
    copy_into(self, source)
    return self


forward_register("copy", forward_copy)
forward_register("masked_fill", forward_masked_fill)
forward_register("where", forward_where)


def result_dtype(first, second):
    """Return the dtype that two tensors or numbers promote to.

    Raises: TypeError for anything else.
    """
    cdef PyObject *values[2]
    for value in (first, second):
        if not is_tensor(value) and dtype_of_scalar(value) < 0:
            raise TypeError(f"result_type(): expected Tensor or number, not {type(value).__name__}")
    values[0] = <PyObject *>first
    values[1] = <PyObject *>second
    return dtype_object(common_dtype(values, 2))
