# build: small
"""Forward passes of views that interpret the same memory in another way.

As real and imaginary parts, as another dtype, or as lazy conjugates and negatives.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from pullback.abi cimport PB_BOOL, PB_F16, PB_F32, PB_F64, PB_MAX_NDIM
from pullback._c.dispatch.call cimport op_apply, op_call1
from pullback._c.base.dtype cimport (
    CATEGORY_COMPLEX, dtype_category, dtype_complex, dtype_itemsize, dtype_object, dtype_real)
from pullback._c.dispatch.operands cimport unsupported
from pullback._c.graph.op cimport Op, forward_register, op_named
from pullback._c.base.layout cimport layout_new, layout_retain
from pullback._c.device.storage cimport storage_retain
from pullback._c.graph.tensor cimport (
    TENSOR_CONJ, TENSOR_LAZY, TENSOR_NEG, Tensor, is_tensor, tensor_wrap)
from pullback._c.base.types cimport pb_layout
from pullback._c.ops.views cimport fetch, make_view


cdef object forward_view_as_real(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM + 1]
    cdef int64_t strides[PB_MAX_NDIM + 1]
    cdef int ndim = fetch(self, shape, strides), d
    if dtype_category[self.dtype] != CATEGORY_COMPLEX:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    if self.flags & TENSOR_CONJ:
        raise RuntimeError("view_as_real doesn't work on unresolved conjugated tensors.  To "
                           "resolve the conjugate tensor so you can view it as real, use "
                           "self.resolve_conj(); however, be warned that the resulting tensor "
                           "will NOT alias the original.")
    for d in range(ndim):
        strides[d] *= 2
    shape[ndim] = 2
    strides[ndim] = 1
    return make_view(self, layout_new(ndim + 1, shape, strides), self.offset * 2,
                     dtype_real(self.dtype))


cdef object forward_view_as_complex(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int ndim = fetch(self, shape, strides), d
    if self.dtype not in (PB_F16, PB_F32, PB_F64):
        raise RuntimeError("view_as_complex is only supported for half, float and double tensors, "
                           f"but got a tensor of scalar type: {type_name(self.dtype)}")
    if ndim == 0 or shape[ndim - 1] != 2 or strides[ndim - 1] != 1 or self.offset % 2:
        raise RuntimeError("Tensor must have a last dimension of size 2 with stride 1")
    for d in range(ndim - 1):
        if strides[d] % 2 and shape[d] != 1:
            raise RuntimeError("Tensor must have a stride divisible by 2 for all but last "
                               "dimension")
        strides[d] //= 2
    return make_view(self, layout_new(ndim - 1, shape, strides), self.offset // 2,
                     dtype_complex(self.dtype))


cdef object forward_conj_view(Op op, PyObject **args, PyObject *target):
    """The lazy conjugate of a complex tensor."""
    cdef Tensor self = <Tensor>args[0]
    cdef Tensor view
    if dtype_category[self.dtype] < CATEGORY_COMPLEX:
        unsupported(op, self.dtype)
    view = make_view(self, layout_retain(self.layout), self.offset, self.dtype)
    view.flags ^= TENSOR_CONJ
    return view


cdef object forward_neg_view(Op op, PyObject **args, PyObject *target):
    """The lazy negative."""
    cdef Tensor self = <Tensor>args[0]
    cdef Tensor view
    if self.dtype == PB_BOOL:
        raise NotImplementedError("_neg_view(): bools have no negatives")
    view = make_view(self, layout_retain(self.layout), self.offset, self.dtype)
    view.flags ^= TENSOR_NEG
    return view


cdef object composite_conj(Op op, PyObject **args, PyObject *target):
    """conj; returns a real tensor itself. The argument may be a number, in formulas."""
    if not is_tensor(<object>args[0]):
        return (<object>args[0]).conjugate()
    if dtype_category[(<Tensor>args[0]).dtype] < CATEGORY_COMPLEX:
        return <object>args[0]
    return op_apply(CONJ_VIEW, args)


cdef object composite_resolve_conj(Op op, PyObject **args, PyObject *target):
    """The tensor itself, or a copy of a lazy conjugate."""
    return copy_of(op, args, TENSOR_CONJ)


cdef object composite_resolve_neg(Op op, PyObject **args, PyObject *target):
    """The tensor itself, or a copy of a lazy negative."""
    return copy_of(op, args, TENSOR_NEG)


cdef object copy_of(Op op, PyObject **args, int bits):
    if not (<Tensor>args[0]).flags & bits:
        return <object>args[0]
    return op_call1(op_named("clone"), <object>args[0])


cdef Op CONJ_VIEW


def install():
    """Look up the op that conj calls."""
    global CONJ_VIEW
    CONJ_VIEW = op_named("_conj")


cdef object forward_bitcast(Op op, PyObject **args, PyObject *target):
    """(self, dtype): the same bytes as another dtype; the last dim is scaled by the itemsizes."""
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int dtype = (<object>args[1]).code
    cdef int before = dtype_itemsize[self.dtype], after = dtype_itemsize[dtype]
    cdef int ndim = fetch(self, shape, strides), last = ndim - 1, d
    cdef int64_t factor, offset = self.offset
    if self.flags & TENSOR_LAZY:
        kind = ("conjugate view tensors" if self.flags & TENSOR_CONJ else
                "tensors with negative bit set")
        raise RuntimeError(f"pullback.Tensor.view is not supported for {kind} when converting to a "
                           f"different dtype.")
    if before == after:
        return reread(self, layout_retain(self.layout), self.offset, dtype)
    what = (f"to view {type_name(self.dtype)} as {type_name(dtype)} (different element sizes)")
    if ndim == 0:
        raise RuntimeError(f"self.dim() cannot be 0 {what}")
    if before > after:
        if strides[last] != 1:
            raise RuntimeError(f"self.stride(-1) must be 1 {what}, but got {strides[last]}")
        factor = before // after
        shape[last] *= factor
        for d in range(last):
            strides[d] *= factor
        return reread(self, layout_new(ndim, shape, strides), offset * factor, dtype)
    factor = after // before
    if shape[last] % factor:
        raise RuntimeError(f"self.size(-1) must be divisible by {factor} {what}, but got "
                           f"{shape[last]}")
    if offset % factor:
        raise RuntimeError(f"self.storage_offset() must be divisible by {factor} {what}, but got "
                           f"{offset}")
    if strides[last] != 1:
        raise RuntimeError(f"self.stride(-1) must be 1 {what}, but got {strides[last]}")
    for d in range(last):
        if strides[d] % factor:
            raise RuntimeError(f"self.stride({d}) must be divisible by {factor} {what}, but got "
                               f"{strides[d]}")
        strides[d] //= factor
    shape[last] //= factor
    return reread(self, layout_new(ndim, shape, strides), offset // factor, dtype)


cdef Tensor reread(Tensor self, pb_layout *layout, int64_t offset, int dtype):
    """Return a tensor of another dtype over the same memory: no view, since it has no history."""
    return tensor_wrap(storage_retain(self.storage), layout, offset, dtype)


cdef str type_name(int dtype):
    from pullback.ops.rules.dtypes import type_name as found
    return found(dtype_object(dtype))


forward_register("conj", composite_conj)
forward_register("conj_view", forward_conj_view)
forward_register("neg_view", forward_neg_view)
forward_register("resolve_conj", composite_resolve_conj)
forward_register("resolve_neg", composite_resolve_neg)
forward_register("view_as_real", forward_view_as_real)
forward_register("view_as_complex", forward_view_as_complex)
forward_register("bitcast", forward_bitcast)
