from pullback._c.graph.tensor cimport Tensor

cdef Tensor tangent_of(Tensor tensor, int level)
cdef Tensor tangent_again(Tensor view, int level)
cdef Tensor zeros_for_tangent(Tensor tensor)
cdef int set_tangent(Tensor tensor, int level, Tensor value) except -1
cdef Tensor in_layout(Tensor primal, Tensor tangent)
cdef Tensor view_like(Tensor view, Tensor base, Tensor value)
