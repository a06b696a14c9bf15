# build: small
"""Structured forward passes, which allocate the outputs that one primitive fills; convolutions and
attention.

Their output spec is the argument after the tensors: a tuple of the outputs' shapes, their dtypes,
the primitive's parameters, and values that derivatives and decompositions need. A dtype is a code
of abi.h, or one of the codes below. A spec depends on shapes alone, so Python can cache it.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libc.string cimport memcmp, memcpy

from pullback.abi cimport PB_BF16, PB_BOOL, PB_F16, PB_F32, PB_F64, PB_MAX_NDIM
from pullback._c.device.device cimport (
    CHANNELS_LAST, DEVICE_META, ROWS_FIRST, preferred_layout)
from pullback._c.dispatch.operands cimport (
    cast_tensor, contiguous_copy, raise_argument_device, unsupported)
from pullback._c.graph.op cimport Op, forward_register
from pullback._c.dispatch.launch cimport copy_into, launch, primitive_id
from pullback._c.base.layout cimport (
    layout_contiguous, layout_new, layout_parse, layout_release, layout_same_strides)
from pullback._c.graph.tensor cimport Tensor, same_device, tensor_new
from pullback._c.base.types cimport LAYOUT_CONTIGUOUS, layout_shape, layout_strides, pb_layout
from pullback._c.dispatch.fallback import KernelMissing
from pullback.ops.table.primitives import PRIMITIVES

cdef enum:
    OWN_DTYPE = -1              # the dtype of the first tensor

cdef list keys = [primitive.key for primitive in PRIMITIVES.values()]


cdef pb_layout *layout_in_order(int order, int ndim, const int64_t *dims) except NULL:
    """Return a dense layout whose dims are in memory as a backend prefers; owned."""
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int64_t stride = dims[1] if ndim > 2 else 0
    cdef int d
    if order != CHANNELS_LAST or ndim < 3:
        return layout_contiguous(ndim, dims)
    strides[1] = 1
    for d in range(ndim - 1, -1, -1):
        if d != 1:
            strides[d] = stride
            stride *= dims[d]
    return layout_new(ndim, dims, strides)


cdef Tensor as_operand(Tensor tensor, int order):
    """Return a dense tensor in an order of dims, with 16-bit floats cast to float32."""
    cdef pb_layout *layout
    cdef Tensor out
    if tensor.dtype == PB_F16 or tensor.dtype == PB_BF16:
        tensor = cast_tensor(tensor, PB_F32)
    if order == ROWS_FIRST:
        return tensor if tensor.layout.flags & LAYOUT_CONTIGUOUS else contiguous_copy(tensor)
    layout = layout_in_order(order, tensor.layout.ndim, layout_shape(tensor.layout))
    if layout_same_strides(tensor.layout, layout):
        layout_release(layout)
        return tensor
    out = tensor_new(layout, tensor.dtype, tensor.storage.device_type, tensor.storage.device_index)
    copy_into(out, tensor)
    return out


cdef tuple operands_of(Op op, PyObject **args):
    """Return an op's tensors by `as_operand`; raises unless they are on one device."""
    cdef Tensor first = <Tensor>args[0]
    cdef Tensor one
    cdef list found = []
    cdef int i, order = preferred_layout(first.storage.device_type, op.primitive)
    if not op.dtypes >> first.dtype & 1:
        unsupported(op, first.dtype)
    for i in range(op.ntensors):
        if <object>args[i] is None:
            continue
        one = <Tensor>args[i]
        if not same_device(one, first):
            raise_argument_device(op, first, one, i)
        found.append(as_operand(one, order))
    return tuple(found)


cdef object run(Op op, int own, tuple ins, tuple shapes, tuple dtypes, tuple params):
    """Allocate outputs, run the op's primitive, and cast outputs to the operands' dtype."""
    cdef int64_t dims[PB_MAX_NDIM]
    cdef Tensor first = <Tensor>ins[0]
    cdef list made = []
    cdef int i, ndim, code, order = preferred_layout(first.storage.device_type, op.primitive)
    cdef int64_t elements = 0
    for i in range(len(shapes)):
        ndim = layout_parse(shapes[i], dims, op.name_bytes, "size")
        code = dtypes[i]
        made.append(tensor_new(layout_in_order(order, ndim, dims),
                               first.dtype if code == OWN_DTYPE else code,
                               first.storage.device_type, first.storage.device_index))
        elements += (<Tensor>made[i]).layout.numel
    outs = tuple(made)
    if elements:
        launch(op.primitive, (<Tensor>ins[keys[op.primitive]]).dtype, outs, ins, params)
    if first.dtype != own:
        outs = tuple([cast_tensor(<Tensor>part, own) if code == OWN_DTYPE else part
                      for part, code in zip(made, dtypes)])
    return outs if len(outs) > 1 else outs[0]


cdef object forward_structured(Op op, PyObject **args, PyObject *target):
    cdef tuple spec = <tuple?><object>args[op.ntensors]
    return run(op, (<Tensor>args[0]).dtype, operands_of(op, args), spec[0], spec[1], spec[2])


def launch_numbered(int primitive, int key, tuple outs, tuple ins, tuple params):
    """Run a primitive that a program defines, by its number: it has a kernel for the key."""
    launch(primitive, key, outs, ins, params)


# ---- convolutions --------------------------------------------------------------------------------

cdef int CONV = primitive_id("conv")
cdef int CONV_BACKWARD_WEIGHT = primitive_id("conv_backward_weight")


cdef object forward_convolution(Op op, PyObject **args, PyObject *target):
    """A convolution, or its backward, with the parameters after the tensors."""
    cdef tuple ins = operands_of(op, args)
    cdef tuple sizes, stride, padding, dilation
    cdef Tensor first = <Tensor>ins[0]
    cdef Tensor second = <Tensor>ins[1]
    cdef const int64_t *one = layout_shape(first.layout)
    cdef const int64_t *other = layout_shape(second.layout)
    cdef int at = op.ntensors
    cdef int64_t groups = <object>args[at + 4], lead, channels
    sizes, stride, padding, dilation = [tuple(<object>args[at + i]) for i in range(4)]
    if groups < 1 or not len(sizes) + 2 == first.layout.ndim == second.layout.ndim:
        raise ValueError(f"{op.name}(): the sizes {list(sizes)} and {groups} groups fit no input "
                         f"of size {list(first.shape)}")
    if first.storage.device_type != DEVICE_META and (
            len(sizes) > 3 or first.layout.numel == 0 or second.layout.numel == 0):
        raise KernelMissing(op.name)        # the decomposition takes any number of dims
    if op.primitive == CONV_BACKWARD_WEIGHT:
        lead, channels = other[1], one[1] // groups
    else:
        lead, channels = one[0], other[0] if op.primitive == CONV else other[1] * groups
    return run(op, (<Tensor>args[0]).dtype, ins, ((lead, channels, *sizes),), (OWN_DTYPE,),
               ((*stride, *padding, *dilation, groups),))


# ---- attention -----------------------------------------------------------------------------------

cdef Tensor new_rows(Tensor like, int64_t width):
    """Return a tensor of rows of a width, with the order of an operand's dims in memory."""
    cdef int64_t dims[PB_MAX_NDIM]
    cdef int64_t steps[PB_MAX_NDIM]
    cdef const int64_t *strides = layout_strides(like.layout)
    cdef int ndim = like.layout.ndim
    cdef pb_layout *layout
    memcpy(dims, layout_shape(like.layout), ndim * sizeof(int64_t))
    dims[ndim - 1] = width
    if ndim == 4 and strides[1] < strides[2]:       # (batch, rows, heads, width) in memory
        steps[3], steps[1] = 1, width
        steps[2] = width * dims[1]
        steps[0] = steps[2] * dims[2]
        layout = layout_new(ndim, dims, steps)
    else:
        layout = layout_contiguous(ndim, dims)
    return tensor_new(layout, like.dtype, like.storage.device_type, like.storage.device_index)


cdef bint same_sizes(Tensor one, int one_dims, Tensor other, int other_dims) noexcept:
    """Return whether so many leading sizes of two tensors are the same."""
    return one_dims == other_dims and memcmp(
        layout_shape(one.layout), layout_shape(other.layout), one_dims * sizeof(int64_t)) == 0


cdef bint attention_fits(Tensor query, Tensor key, Tensor value) noexcept:
    """Return whether operands of attention have sizes that fit, and one dtype."""
    cdef int ndim = query.layout.ndim
    cdef const int64_t *size = layout_shape(query.layout)
    cdef const int64_t *key_size = layout_shape(key.layout)
    if ndim < 2 or key.layout.ndim != ndim or value.layout.ndim != ndim:
        return False
    if query.dtype != key.dtype or query.dtype != value.dtype:
        return False
    if size[ndim - 1] != key_size[ndim - 1]:
        return False
    if not same_sizes(key, ndim - 1, value, ndim - 1) or (
            ndim > 3 and not same_sizes(query, ndim - 3, key, ndim - 3)):
        return False
    return ndim == 2 or (size[ndim - 3] % key_size[ndim - 3] == 0 if key_size[ndim - 3]
                         else size[ndim - 3] == 0)


cdef bint is_result(Tensor result, Tensor query, Tensor value) noexcept:
    """Return whether a tensor has the sizes and the dtype of attention's result."""
    cdef int ndim = query.layout.ndim
    return (result.dtype == query.dtype and result.layout.ndim == ndim
            and same_sizes(result, ndim - 1, query, ndim - 1)
            and layout_shape(result.layout)[ndim - 1] == layout_shape(value.layout)[ndim - 1])


cdef bint mask_fits(Tensor mask, Tensor query, Tensor key) noexcept:
    cdef int ndim = query.layout.ndim
    return (mask.layout.ndim == ndim and same_sizes(mask, ndim - 1, query, ndim - 1)
            and layout_shape(mask.layout)[ndim - 1] == layout_shape(key.layout)[ndim - 2]
            and (mask.dtype == PB_BOOL or mask.dtype == sums_dtype(query)))


cdef inline int sums_dtype(Tensor query) noexcept:
    return PB_F64 if query.dtype == PB_F64 else PB_F32


cdef int check_attention(Op op, tuple ins, int first) except -1:
    """Raise ValueError unless the operands fit; the query is the operand ``first``."""
    cdef Tensor query = <Tensor>ins[first]
    cdef Tensor key = <Tensor>ins[first + 1]
    cdef Tensor value = <Tensor>ins[first + 2]
    cdef Tensor sums
    cdef int operands = 3 if first == 0 else 6
    cdef bint fits = attention_fits(query, key, value)
    if fits and first:
        sums = <Tensor>ins[5]
        fits = (is_result(<Tensor>ins[0], query, value) and is_result(<Tensor>ins[4], query, value)
                and same_sizes(sums, sums.layout.ndim, query, query.layout.ndim - 1)
                and sums.dtype == sums_dtype(query))
    if fits and len(ins) > operands:
        fits = mask_fits(<Tensor>ins[operands], query, key)
    if not fits:
        raise ValueError(f"{op.name}(): operands of the sizes "
                         f"{[list((<Tensor>one).shape) for one in ins]} do not fit")
    return 0


cdef tuple attention_operands(Op op, PyObject **args, int mask):
    """Return an op's tensors, the mask last; raises unless they are on one device."""
    cdef Tensor first = <Tensor>args[0]
    cdef int i
    cdef list found = []
    if not op.dtypes >> first.dtype & 1:
        unsupported(op, first.dtype)
    for i in range(op.ntensors):
        if <object>args[i] is None:
            continue
        if not same_device(<Tensor>args[i], first):
            raise_argument_device(op, first, <Tensor>args[i], i)
        if i != mask:       # the logarithms are the seventh argument
            found.append(with_wide_numbers(<Tensor>args[i]) if i == 6 else <object>args[i])
    if <object>args[mask] is not None:
        found.append(with_wide_numbers(<Tensor>args[mask]))
    return tuple(found)


cdef Tensor with_wide_numbers(Tensor tensor):
    if tensor.dtype == PB_F16 or tensor.dtype == PB_BF16:
        return cast_tensor(tensor, PB_F32)
    return tensor


cdef tuple checked_operands(Op op, PyObject **args, int first):
    cdef tuple ins = attention_operands(op, args, 3 if first == 0 else 4)
    check_attention(op, ins, first)
    return ins


cdef object forward_attention(Op op, PyObject **args, PyObject *target):
    cdef tuple ins = checked_operands(op, args, 0)
    cdef Tensor query = <Tensor>ins[0]
    cdef Tensor value = <Tensor>ins[2]
    cdef Tensor out = new_rows(query, layout_shape(value.layout)[value.layout.ndim - 1])
    cdef Tensor sums = tensor_new(
        layout_contiguous(query.layout.ndim - 1, layout_shape(query.layout)),
        sums_dtype(query),
        query.storage.device_type, query.storage.device_index)
    if sums.layout.numel:
        launch(op.primitive, query.dtype, (out, sums), ins,
               (int(<object>args[4]), <object>args[5]))
    return out, sums


cdef object forward_attention_backward(Op op, PyObject **args, PyObject *target):
    cdef tuple ins = checked_operands(op, args, 1)
    cdef list outs = []
    cdef Tensor part
    cdef int i
    for i in range(1, 4):
        part = <Tensor>ins[i]
        outs.append(new_rows(part, layout_shape(part.layout)[part.layout.ndim - 1]))
    launch(op.primitive, (<Tensor>ins[1]).dtype, tuple(outs), ins,
           (int(<object>args[7]), <object>args[8]))
    return op.entry.results(*outs)


forward_register("structured", forward_structured)
forward_register("attention", forward_attention)
forward_register("attention_backward", forward_attention_backward)
forward_register("convolution", forward_convolution)
