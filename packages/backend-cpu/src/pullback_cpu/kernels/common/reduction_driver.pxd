# The driver of reductions: the steps that an operation gives, and the call that runs them.
from libc.stdint cimport int64_t

from pullback_cpu.kernels.common.kernel cimport pb_call

cdef enum:
    ACCUMULATORS = 1024  # in use together
    WORDS = 3  # doubles in the largest accumulator

# Strides count elements; ``apart`` is how many bytes a second output is from the first.
ctypedef void (*start_step)(char *accumulators, int64_t n) noexcept nogil
ctypedef void (*fold_step)(
    const char *data, int64_t n, int64_t stride, char *accumulator) noexcept nogil
ctypedef void (*fold_rows_step)(
    const char *data, int64_t n, int64_t stride, int64_t rows, int64_t row_stride,
    char *accumulators) noexcept nogil
ctypedef void (*merge_step)(char *accumulators, const char *others, int64_t n) noexcept nogil
ctypedef void (*finish_step)(
    const char *accumulators, int64_t n, char *out, int64_t stride, int64_t apart) noexcept nogil


# The steps of one operation on one dtype.
ctypedef struct reducer:
    int64_t size              # bytes of an accumulator
    start_step start          # give n accumulators the value of an empty range
    fold_step fold            # n elements into one accumulator
    fold_rows_step fold_rows  # rows of n elements into n accumulators
    merge_step merge          # n accumulators into n others
    finish_step finish        # accumulators into elements of the outputs


cdef int run_reduction(pb_call *call, const reducer *steps) noexcept nogil
