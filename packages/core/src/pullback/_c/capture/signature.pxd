from libc.stdint cimport uint8_t, uint32_t

from pullback._c.capture.spec cimport Spec

cdef class Signature:
    cdef Spec args, kwargs
    cdef list guards
    cdef list watched_dicts, others     # the same: those of dicts, and the rest
    cdef list sames                     # of each tensor: the first that is the same object
    cdef list aliases                   # of each tensor: the first with the same memory
    cdef list distances                 # of each tensor: bytes from the begin of that one
    cdef bint apart                     # nor may tensors share memory with outer ones
    cdef list outer                     # the tensors that the function refers to
    cdef list known                     # tensors that arguments may be; None: nobody asks
    cdef list identities                # of each argument: which of the others, or of those, it is
    cdef list shared                    # which tensors share memory with those: see relations_of
    cdef uint8_t grad_enabled, inference, layout_policy
    cdef int dtype
    cdef int default_device, default_ordinal    # where tensors are made
    cdef uint32_t autocast
    cdef uint8_t autocast_dtypes[32]
    cdef readonly tuple tensors

    cpdef bint holds(self) except -1
    cpdef list match(self, tuple args, dict kwargs)


cdef bint must_run_eagerly() noexcept
