from pullback._c.base.types cimport pb_storage
from pullback._c.device.device cimport pb_device_type


cdef class PinnedBlock:
    cdef pb_device_type *kind
    cdef void *data
    cdef size_t nbytes


cdef PinnedBlock allocate_pinned(pb_device_type *kind, size_t nbytes)
cdef bint can_pin(pb_device_type *kind) noexcept
cdef bint is_pinned_for(pb_storage *storage, pb_device_type *kind) noexcept
