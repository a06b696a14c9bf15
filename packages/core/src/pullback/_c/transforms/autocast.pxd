cdef int policy_code(object policy) except -1
