from libc.stdint cimport uint64_t

cdef object on_fresh_stack(object (*run)(object), object argument, uint64_t level)
