from pullback._c.tensor cimport Tensor
from pullback._c.types cimport pb_layout

cdef Tensor sum_to_layout(Tensor self, pb_layout *layout)
