from pullback._c.device cimport pb_device_type
from pullback._c.types cimport pb_storage

cdef bint is_pinned_for(pb_storage *storage, pb_device_type *kind) noexcept
