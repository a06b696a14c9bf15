from libc.stdint cimport int64_t

from pullback._c.graph.op cimport Op
from pullback._c.graph.tensor cimport Tensor
from pullback._c.base.types cimport pb_layout

cdef Tensor make_view(Tensor source, pb_layout *layout, int64_t offset, int dtype)
cdef int fetch(Tensor self, int64_t *shape, int64_t *strides) noexcept
cdef int64_t dim_of(object dim, int64_t ndim) except -1
cdef int64_t integer(object value, str op, str argument) except? -1
cdef Tensor view_strided(Tensor source, int ndim, const int64_t *shape, const int64_t *strides,
                         int64_t offset)
cdef int infer_shape(Op op, Tensor self, object size, int64_t *shape) except -1
cdef bint strides_for(Tensor self, int count, const int64_t *shape, int64_t *strides) noexcept
