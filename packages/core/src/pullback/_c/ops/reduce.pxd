from pullback._c.graph.tensor cimport Tensor
from pullback._c.base.types cimport pb_layout

cdef Tensor sum_to_layout(Tensor self, pb_layout *layout)
