from libc.stdint cimport int64_t

from pullback._c.device.device cimport device
from pullback._c.graph.tensor cimport Tensor
from pullback._c.base.types cimport pb_layout

cdef pb_layout *foreign_layout(int ndim, const int64_t *shape, const int64_t *strides) except NULL
cdef int check_not_lazy(Tensor self) except -1
cdef Tensor foreign_tensor(void *data, pb_layout *layout, int dtype, device where, object owner,
                           bint readonly)
