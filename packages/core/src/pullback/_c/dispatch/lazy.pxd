from libc.stdint cimport int64_t

from pullback.abi cimport pb_array
from pullback._c.graph.tensor cimport Tensor

cdef Tensor resolved(Tensor self)
cdef object scalar_of(Tensor self, const void *data)
cdef Tensor array_copy(int type_id, pb_array *made, pb_array *source, int dtype)
cdef Tensor array_like(int type_id, pb_array *made, pb_array *source, int dtype)
cdef int copy_array(int type_id, const pb_array *target, const pb_array *source) except -1
cdef int run_into(int type_id, int primitive, pb_array *target, pb_array *first, pb_array *second,
                  int64_t work) except -1
