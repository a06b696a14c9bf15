from pullback._c.tensor cimport Tensor

cdef int place(object where, int *type_id, int *ordinal) except -1
cdef Tensor empty_like_layout(Tensor like, int dtype)
cdef Tensor empty_dims(int ndim, const long long *shape, int dtype, Tensor like)
cdef Tensor scalar_tensor(object value, int dtype, Tensor like)
