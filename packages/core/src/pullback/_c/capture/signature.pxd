from libc.stdint cimport uint8_t, uint16_t, uint32_t

from pullback._c.base.types cimport pb_layout

cdef enum spec_kind:
    SPEC_VALUE                  # equal, and of the same type
    SPEC_OBJECT                 # the same object
    SPEC_TENSOR
    SPEC_TUPLE
    SPEC_LIST
    SPEC_DICT
    SPEC_NUMBER                 # a float, which programs take as a 0-d tensor


# What one argument, or an item of one, must be.
cdef class Spec:
    cdef int kind
    cdef object type
    cdef object value                   # SPEC_VALUE, SPEC_OBJECT
    cdef tuple keys                     # SPEC_DICT
    cdef list items
    cdef pb_layout *layout              # owned; SPEC_TENSOR
    cdef uint32_t device
    cdef uint8_t dtype
    cdef uint16_t flags
    cdef bint requires_grad, inference
    cdef int device_type, device_index  # SPEC_NUMBER: of its tensor
    cdef readonly str where             # how messages name it


cdef class Signature:
    cdef Spec args, kwargs
    cdef list guards
    cdef list watched_dicts, others     # the same: those of dicts, and the rest
    cdef list aliases                   # of each tensor: the first with the same memory
    cdef list distances                 # of each tensor: bytes from the begin of that one
    cdef bint apart                     # nor may tensors share memory with outer ones
    cdef list outer                     # the tensors that the function refers to
    cdef list shared                    # which tensors share memory with those: see relations_of
    cdef uint8_t grad_enabled, inference, layout_policy
    cdef int dtype
    cdef uint32_t autocast
    cdef uint8_t autocast_dtypes[32]
    cdef readonly tuple tensors

    cpdef bint holds(self) except -1
    cpdef list match(self, tuple args, dict kwargs)


cdef bint must_run_eagerly() noexcept
cdef bint same_value(object value, object expected)
