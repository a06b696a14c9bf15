from pullback._c.graph.tensor cimport Tensor

cdef int device_argument(object where, int *type_id, int *ordinal) except -1
cdef Tensor scalar_tensor(object value, int dtype, Tensor like)
