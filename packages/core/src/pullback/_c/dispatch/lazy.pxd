from pullback._c.graph.tensor cimport Tensor

cdef Tensor resolved(Tensor self)
cdef object scalar_of(Tensor self, const void *data)
