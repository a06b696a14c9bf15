"""Forward passes of reductions, of softmax and its like, and of the backward of reductions."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t

from pullback.abi cimport (
    PB_ARRAY_WRITE, PB_BOOL, PB_C32, PB_C64, PB_F32, PB_I64, PB_MAX_NDIM, PB_U8, pb_array, pb_call)
from pullback._c.base.dtype cimport (
    CATEGORY_BOOL, CATEGORY_COMPLEX, CATEGORY_FLOATING, dtype_category,
    dtype_code, dtype_itemsize, dtype_object, dtype_real, scalar_write)
from pullback._c.dispatch.call cimport op_apply, op_apply_inplace
from pullback._c.dispatch.operands cimport cast_tensor, unsupported
from pullback._c.graph.op cimport Op, forward_register, op_named
from pullback._c.dispatch.launch cimport (
    array_fill, kernel_call, launch_elementwise, launch_with_int, operand, primitive_id)
from pullback._c.base.layout cimport (
    layout_contiguous, layout_new, layout_parse, layout_same_shape, layout_shape_tuple)
from pullback._c.device.storage cimport storage_retain
from pullback._c.graph.tensor cimport Tensor, tensor_new, tensor_over, tensor_wrap
from pullback._c.base.types cimport layout_shape, layout_strides, pb_layout
from pullback._c.ops.views cimport dim_of, make_view
from pullback.ops.table.primitives import PRIMITIVES

cdef int DIV = primitive_id("div")
cdef int SUM = primitive_id("sum")


cdef unsigned long long dims_mask(Op op, int ndim, object dim) except? 0xFFFFFFFFFFFFFFFF:
    """Return the set of reduced dims as bits; None and () mean all."""
    cdef int64_t dims[PB_MAX_NDIM]
    cdef unsigned long long mask = 0, bit
    cdef int i, count
    if dim is None:
        return ((<unsigned long long>1 << ndim) - 1) if ndim < 64 else <unsigned long long>-2
    if type(dim) is bool:
        raise TypeError(f"{op.name}(): argument 'dim' must be tuple of ints, not bool")
    count = layout_parse(dim, dims, op.name_bytes, "dim")
    if type(dim) is int:
        return <unsigned long long>1 << dim_of(dim, ndim)
    if count == 0:
        return dims_mask(op, ndim, None)
    for i in range(count):
        bit = <unsigned long long>1 << dim_of(dims[i], ndim)
        if mask & bit:
            raise RuntimeError(f"dim {dims[i]} appears multiple times in the list of dims")
        mask |= bit
    return mask


cdef Tensor reduce_into(int primitive, int key, Tensor self, unsigned long long mask, bint keepdim,
                        int out_dtype):
    """Run a reduction primitive; the kernel sees the result with its reduced dims kept."""
    cdef int64_t kept[PB_MAX_NDIM]
    cdef int d, n = 0
    for d in range(self.layout.ndim):
        if not (mask >> d) & 1:
            kept[n] = layout_shape(self.layout)[d]
            n += 1
        elif keepdim:
            kept[n] = 1
            n += 1
    return reduce_to(primitive, key, self, mask, layout_contiguous(n, kept), out_dtype)


cdef Tensor reduce_to(int primitive, int key, Tensor self, unsigned long long mask,
                      pb_layout *layout, int out_dtype):
    """As reduce_into, with the result's contiguous layout, whose count it steals."""
    cdef int64_t full[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int d, ndim = self.layout.ndim
    cdef int64_t stride = 1
    cdef pb_array arrays[2]
    cdef pb_array *pointers[2]
    cdef pb_call call
    cdef Tensor out = tensor_new(layout, out_dtype, self.storage.device_type,
                                 self.storage.device_index)
    if out.layout.numel == 0:
        return out
    for d in range(ndim - 1, -1, -1):
        full[d] = 1 if (mask >> d) & 1 else layout_shape(self.layout)[d]
        strides[d] = stride
        stride *= full[d]
    array_fill(&arrays[0], out)
    array_fill(&arrays[1], self)
    arrays[0].flags |= PB_ARRAY_WRITE
    arrays[0].ndim = ndim
    arrays[0].shape = full
    arrays[0].strides = strides
    pointers[0] = &arrays[0]
    pointers[1] = &arrays[1]
    call.size = sizeof(pb_call)
    call.primitive = primitive
    call.nout = 1
    call.nin = 1
    call.nparam = 0
    call.device = out.storage.device_index
    call.out = &pointers[0]
    call.in_ = &pointers[1]
    call.param = NULL
    kernel_call(out.storage.device_type, &call, key, self.layout.numel)
    return out


cdef int requested_dtype(Op op, PyObject *value) except -2:
    if <object>value is None:
        return -1
    return dtype_code(<object>value, op.name_bytes)


cdef object forward_sum(Op op, PyObject **args, PyObject *target):
    """sum and prod over (self, dim, keepdim, dtype): integers widen to int64."""
    cdef Tensor self = <Tensor>args[0]
    cdef unsigned long long mask = dims_mask(op, self.layout.ndim, <object>args[1])
    cdef bint keepdim = <object>args[2]
    cdef int code = requested_dtype(op, args[3])
    if code < 0:
        code = PB_I64 if dtype_category[self.dtype] < CATEGORY_FLOATING else self.dtype
    if self.dtype != code:
        self = cast_tensor(self, code)
    if dtype_category[code] < CATEGORY_FLOATING and code != PB_I64:
        return cast_tensor(reduce_into(op.primitive, PB_I64, cast_tensor(self, PB_I64), mask,
                                       keepdim, PB_I64), code)
    return reduce_into(op.primitive, code, self, mask, keepdim, code)


cdef object forward_mean(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef Tensor out
    cdef unsigned long long mask = dims_mask(op, self.layout.ndim, <object>args[1])
    cdef bint keepdim = <object>args[2]
    cdef int code = requested_dtype(op, args[3]), d, work
    cdef int64_t count = 1
    cdef operand inputs[2]
    if code < 0:
        code = self.dtype
    if dtype_category[code] < CATEGORY_FLOATING:
        raise RuntimeError(f"mean(): could not infer output dtype. Input dtype must be either a "
                           f"floating point or complex dtype. Got: {dtype_object(code).name}")
    work = code if dtype_itemsize[dtype_real(code)] > 2 else (  # 16-bit sums overflow before that
        PB_C64 if code == PB_C32 else PB_F32)
    if self.dtype != work:
        self = cast_tensor(self, work)
    out = reduce_into(op.primitive, work, self, mask, keepdim, work)
    for d in range(self.layout.ndim):
        if (mask >> d) & 1:
            count *= layout_shape(self.layout)[d]
    inputs[0].tensor = <PyObject *>out
    inputs[1].tensor = NULL
    scalar_write(count, work, &inputs[1].scalar[0])
    if out.layout.numel != 0:
        launch_elementwise(DIV, work, out, inputs, 2)
    return out if work == code else cast_tensor(out, code)


cdef unsigned long long broadcast_mask(const pb_layout *layout, const int64_t *shape,
                                       int ndim) except? 0xFFFFFFFFFFFFFFFF:
    """Return, as bits, the dims of a layout that are broadcast from `shape`."""
    cdef int d, lead = layout.ndim - ndim
    cdef unsigned long long mask = 0
    cdef bint fits = lead >= 0
    if fits:
        mask = (<unsigned long long>1 << lead) - 1 if lead < 64 else <unsigned long long>-1
        for d in range(ndim):
            if shape[d] != layout_shape(layout)[d + lead]:
                fits = fits and shape[d] == 1
                mask |= <unsigned long long>1 << (d + lead)
    if not fits:
        raise RuntimeError(f"size {[shape[d] for d in range(ndim)]} is not expandable to size "
                           f"{list(layout_shape_tuple(layout))}.")
    return mask


cdef Tensor sum_to_layout(Tensor self, pb_layout *layout):
    """Sum over the dims that were broadcast from a layout's shape; not recorded."""
    cdef unsigned long long mask = broadcast_mask(self.layout, layout_shape(layout), layout.ndim)
    return reduce_to(SUM, self.dtype, self, mask,
                     layout_contiguous(layout.ndim, layout_shape(layout)), self.dtype)


cdef object composite_sum_to_size(Op op, PyObject **args, PyObject *target):
    """(self, size): the sum over dims that were broadcast from size; self if there are none."""
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int d, ndim = layout_parse(<object>args[1], shape, op.name_bytes, "size")
    cdef unsigned long long mask = broadcast_mask(self.layout, shape, ndim)
    if mask == 0:
        return self
    dims = tuple([d for d in range(self.layout.ndim) if (mask >> d) & 1])
    out = op_named("sum")(self, dims, True)
    if self.layout.ndim == ndim:
        return out
    return op_named("view")(out, tuple([shape[d] for d in range(ndim)]))


cdef int check_not_empty(Op op, Tensor self, unsigned long long mask) except -1:
    """Raise if a reduced dim has no elements."""
    cdef int d
    for d in range(self.layout.ndim):
        if (mask >> d) & 1 and layout_shape(self.layout)[d] == 0:
            raise IndexError(f"{op.name}(): Expected reduction dim {d} to have non-zero size.")
    return 0


cdef object forward_extreme(Op op, PyObject **args, PyObject *target):
    """amax and amin over (self, dim, keepdim)."""
    cdef Tensor self = <Tensor>args[0]
    cdef unsigned long long mask = dims_mask(op, self.layout.ndim, <object>args[1])
    if dtype_category[self.dtype] == CATEGORY_COMPLEX:
        unsupported(op, self.dtype)
    if self.layout.numel == 0 and (<object>args[1] is None or <object>args[1] == ()):
        raise RuntimeError(f"{op.name}(): Expected reduction dim to be specified for "
                           f"input.numel() == 0. Specify the reduction dim with the 'dim' "
                           f"argument.")
    check_not_empty(op, self, mask)
    return reduce_into(op.primitive, self.dtype, self, mask, <object>args[2], self.dtype)


cdef object forward_arg_extreme(Op op, PyObject **args, PyObject *target):
    """argmax and argmin over (self, dim, keepdim): one dim, or all."""
    cdef Tensor self = <Tensor>args[0]
    cdef unsigned long long mask
    if dtype_category[self.dtype] == CATEGORY_BOOL:
        raise RuntimeError(f"{op.name}(): does not support bool input")
    if dtype_category[self.dtype] == CATEGORY_COMPLEX:
        raise RuntimeError(f"{op.name}(): does not support complex input")
    if <object>args[1] is None:
        if self.layout.numel == 0:
            raise IndexError(f"{op.name}(): Expected reduction dim to be specified for "
                             f"input.numel() == 0.")
        mask = dims_mask(op, self.layout.ndim, None)
    else:
        mask = <unsigned long long>1 << dim_of(<object>args[1], self.layout.ndim)
        check_not_empty(op, self, mask)
    return reduce_into(op.primitive, self.dtype, self, mask, <object>args[2], PB_I64)


cdef object forward_any(Op op, PyObject **args, PyObject *target):
    """any and all over (self, dim, keepdim); uint8 stays uint8."""
    cdef Tensor self = <Tensor>args[0]
    cdef unsigned long long mask = dims_mask(op, self.layout.ndim, <object>args[1])
    cdef Tensor out
    if isinstance(<object>args[1], (tuple, list)) and len(<object>args[1]) == 0:
        mask = 0                        # as torch: dim=() reduces no dims here
    out = reduce_into(op.primitive, self.dtype, self, mask, <object>args[2], PB_BOOL)
    return cast_tensor(out, PB_U8) if self.dtype == PB_U8 else out


# ---- softmax and its like ------------------------------------------------------------------------

cdef Tensor with_dims(Tensor self):
    """Return a 0-d tensor as a vector of one element, others as they are; outside the graph."""
    cdef int64_t single = 1
    if self.layout.ndim > 0:
        return self
    return tensor_over(self, storage_retain(self.storage), layout_contiguous(1, &single),
                       self.offset)


cdef object forward_along_dim(Op op, PyObject **args, PyObject *target):
    """Run a primitive along a dim, on one tensor or two of one shape."""
    cdef Tensor self = <Tensor>args[0]
    cdef Tensor other
    cdef int64_t dim = dim_of(<object>args[op.ntensors], self.layout.ndim)
    cdef PyObject *operands[3]
    cdef Tensor a = with_dims(self), b = None, c
    cdef Tensor out = tensor_new(
        layout_contiguous(self.layout.ndim, layout_shape(self.layout)), self.dtype,
        self.storage.device_type, self.storage.device_index)
    if not op.dtypes & (<uint32_t>1 << self.dtype):
        unsupported(op, self.dtype)
    if op.ntensors == 2:
        other = <Tensor>args[1]
        if not layout_same_shape(self.layout, other.layout) or self.dtype != other.dtype:
            raise RuntimeError(f"{op.name}(): expected both tensors to have one shape and dtype")
        b = with_dims(other)
    if out.layout.numel != 0:
        c = with_dims(out)
        operands[0] = <PyObject *>c
        operands[1] = <PyObject *>a
        operands[2] = <PyObject *>b
        launch_with_int(op.primitive, self.dtype, operands, 1, op.ntensors, dim)
    return out


# The op of the primitive that `softmax` and its like call, by the number of the primitive.
cdef list primitive_ops = [None] * len(PRIMITIVES)


cdef Op primitive_op(Op op):
    if primitive_ops[op.primitive] is None:
        primitive_ops[op.primitive] = op_named("_" + op.entry.kernel)
    return <Op>primitive_ops[op.primitive]


cdef object composite_softmax(Op op, PyObject **args, PyObject *target):
    """(self, dim, .., dtype): cast, then the op of the primitive."""
    cdef object self = <object>args[0]
    cdef object dim = <object>args[1]
    cdef PyObject *step[2]
    if dim is None:
        from pullback.ops.rules.dims import implicit_dim
        dim = implicit_dim(op.entry.kernel, self, <object>args[2] - 1)  # a compiled op has no frame
    if <object>args[op.nargs - 1] is not None:
        self = op_named("to")(self, <object>args[op.nargs - 1])
    step[0] = <PyObject *>self
    step[1] = <PyObject *>dim
    return op_apply(primitive_op(op), step)


cdef Op RELU = None


cdef object composite_relu(Op op, PyObject **args, PyObject *target):
    """(self, inplace): the op of the primitive; with ``inplace`` its in-place form."""
    global RELU
    if RELU is None:
        RELU = op_named("relu")
    if <object>args[1]:
        return op_apply_inplace(op_named("relu_"), args)
    return op_apply(RELU, args)


# ---- backward of sums and means ------------------------------------------------------------------

cdef pb_layout *restored_layout(Op op, Tensor self, PyObject **args, int64_t *count) except NULL:
    """Return the layout that expands (self, shape, dim, keepdim) over the reduced dims; owned.

    Sets `count` to the number of elements that were reduced to one.
    """
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int d, k = 0, ndim = layout_parse(<object>args[1], shape, op.name_bytes, "shape")
    cdef unsigned long long mask = dims_mask(op, ndim, <object>args[2])
    cdef bint keepdim = <object>args[3], fits = True
    count[0] = 1
    for d in range(ndim):
        if (mask >> d) & 1:
            strides[d] = 0
            count[0] *= shape[d]
            k += keepdim
        else:
            fits = fits and k < self.layout.ndim and layout_shape(self.layout)[k] == shape[d]
            strides[d] = layout_strides(self.layout)[k] if fits else 0
            k += 1
    if not fits or k != self.layout.ndim:
        raise RuntimeError(f"{op.name}(): {list(self.shape)} is no reduction of "
                           f"{[shape[d] for d in range(ndim)]} over {<object>args[2]}")
    return layout_new(ndim, shape, strides)


cdef object forward_sum_backward(Op op, PyObject **args, PyObject *target):
    """The gradient expanded over the reduced dims, as a view: backward of a sum."""
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t count
    cdef pb_layout *layout = restored_layout(op, self, args, &count)
    return make_view(self, layout, self.offset, self.dtype)


cdef object forward_mean_backward(Op op, PyObject **args, PyObject *target):
    """As sum_backward, divided by how many elements share one: the derivative of a mean."""
    cdef Tensor self = <Tensor>args[0]
    cdef Tensor share = tensor_new(
        layout_contiguous(self.layout.ndim, layout_shape(self.layout)), self.dtype,
        self.storage.device_type, self.storage.device_index)
    cdef operand inputs[2]
    cdef int64_t count
    cdef pb_layout *layout = restored_layout(op, share, args, &count)
    cdef Tensor out = tensor_wrap(storage_retain(share.storage), layout, share.offset, share.dtype)
    inputs[0].tensor = <PyObject *>self
    inputs[1].tensor = NULL
    scalar_write(count, self.dtype, &inputs[1].scalar[0])
    if share.layout.numel != 0:
        launch_elementwise(DIV, self.dtype, share, inputs, 2)
    return out


forward_register("along_dim", forward_along_dim)
forward_register("sum_backward", forward_sum_backward)
forward_register("mean_backward", forward_mean_backward)
forward_register("relu", composite_relu)
forward_register("softmax", composite_softmax)
forward_register("sum_to_size", composite_sum_to_size)
forward_register("sum", forward_sum)
forward_register("mean", forward_mean)
forward_register("extreme", forward_extreme)
forward_register("arg_extreme", forward_arg_extreme)
forward_register("any", forward_any)
