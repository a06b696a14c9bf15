"""Forward passes of views across dtypes: the same bytes, read as other numbers."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from pullback.abi cimport PB_C64, PB_C128, PB_F32, PB_F64, PB_MAX_NDIM
from pullback._c.dtype cimport dtype_itemsize, dtype_object
from pullback._c.entry cimport Op, forward_register
from pullback._c.layout cimport layout_new, layout_retain
from pullback._c.storage cimport storage_retain
from pullback._c.tensor cimport Tensor, tensor_wrap
from pullback._c.types cimport pb_layout
from pullback._c.views cimport fetch, make_view


cdef object forward_view_as_real(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM + 1]
    cdef int64_t strides[PB_MAX_NDIM + 1]
    cdef int ndim = fetch(self, shape, strides), d
    if self.dtype != PB_C64 and self.dtype != PB_C128:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    for d in range(ndim):
        strides[d] *= 2
    shape[ndim] = 2
    strides[ndim] = 1
    return make_view(self, layout_new(ndim + 1, shape, strides), self.offset * 2,
                     PB_F32 if self.dtype == PB_C64 else PB_F64)


cdef object forward_view_as_complex(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int ndim = fetch(self, shape, strides), d
    if self.dtype != PB_F32 and self.dtype != PB_F64:
        raise RuntimeError("view_as_complex is only supported for half, float and double tensors, "
                           "but got a tensor of another dtype")
    if ndim == 0 or shape[ndim - 1] != 2 or strides[ndim - 1] != 1 or self.offset % 2:
        raise RuntimeError("Tensor must have a last dimension of size 2 with stride 1")
    for d in range(ndim - 1):
        if strides[d] % 2 and shape[d] != 1:
            raise RuntimeError("Tensor must have a stride divisible by 2 for all but last "
                               "dimension")
        strides[d] //= 2
    return make_view(self, layout_new(ndim - 1, shape, strides), self.offset // 2,
                     PB_C64 if self.dtype == PB_F32 else PB_C128)


cdef object forward_bitcast(Op op, PyObject **args, PyObject *target):
    """(self, dtype): the same bytes read as another dtype; the last dim gets longer or shorter."""
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int dtype = (<object>args[1]).code
    cdef int before = dtype_itemsize[self.dtype], after = dtype_itemsize[dtype]
    cdef int ndim = fetch(self, shape, strides), last = ndim - 1, d
    cdef int64_t factor, offset = self.offset
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
    """Return the memory as numbers of another kind: no view, since no history leads to it."""
    return tensor_wrap(storage_retain(self.storage), layout, offset, dtype)


cdef str type_name(int dtype):
    from pullback.optable.axes import type_name as found
    return found(dtype_object(dtype))


forward_register("view_as_real", forward_view_as_real)
forward_register("view_as_complex", forward_view_as_complex)
forward_register("bitcast", forward_bitcast)
