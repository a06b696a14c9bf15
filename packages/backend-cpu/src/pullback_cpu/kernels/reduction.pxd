# How the elements of a reduction reach their accumulators, whatever is reduced.
from libc.stdint cimport int64_t

from pullback_cpu.kernels.common cimport pb_call

cdef enum:
    ACCUMULATORS = 256  # that are in use at once
    WORDS = 2  # doubles in the largest accumulator

# Strides count elements.
ctypedef void (*start_step)(char *accumulators, int64_t n) noexcept nogil
ctypedef void (*fold_step)(
    const char *data, int64_t n, int64_t stride, char *accumulators) noexcept nogil
ctypedef void (*finish_step)(
    const char *accumulators, int64_t n, char *out, int64_t stride) noexcept nogil


# The steps of one operation on one dtype.
ctypedef struct reducer:
    start_step start    # give n accumulators the value of an empty range
    fold_step fold      # n elements into one accumulator
    fold_step fold_row  # n elements into n accumulators
    finish_step finish  # accumulators into elements of the output


cdef int run_reduction(pb_call *call, const reducer *steps) noexcept nogil
