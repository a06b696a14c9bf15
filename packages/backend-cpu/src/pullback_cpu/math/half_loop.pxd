# Elementwise loops over float16 and bfloat16: a loop over float32, between conversions. Those of
# bfloat16 are so short that loops of one operation have them inside instead.
from libc.stdint cimport int64_t, uint16_t

from pullback_cpu.kernels.common.elementwise_driver cimport MAX_OPERANDS, inner_loop
from pullback_cpu.kernels.common.kernel cimport PB_OK
from pullback_cpu.math.half cimport *

ctypedef void (*half_load)(
    float *buffer, const uint16_t *a, int64_t step, int64_t n) noexcept nogil
ctypedef void (*half_store)(
    uint16_t *o, int64_t step, const float *buffer, int64_t n) noexcept nogil


cdef inline int run_in_float(
        inner_loop loop, half_load load, half_store store, char **data, const int64_t *strides,
        int64_t n, int inputs) noexcept nogil:
    """Run a loop of float32 over blocks of elements of 16 bits.

    ``store`` is NULL where the result has elements of one byte, such as a comparison's.
    """
    cdef half_block buffers[MAX_OPERANDS]
    cdef char *parts[MAX_OPERANDS]
    cdef int64_t steps[MAX_OPERANDS]
    cdef int64_t m, step, start = 0
    cdef int k
    for k in range(inputs + 1):
        parts[k] = <char *>&buffers[k]
        steps[k] = 1
    while start < n:
        m = min(n - start, <int64_t>HALF_BLOCK)
        for k in range(1, inputs + 1):
            step = strides[k]
            if step != 0:
                load(buffers[k].numbers, <const uint16_t *>data[k] + start * step, step, m)
            elif start == 0:
                load(buffers[k].numbers, <const uint16_t *>data[k], 1, 1)
                steps[k] = 0
        if store == NULL:
            parts[0] = data[0] + start * strides[0]
            steps[0] = strides[0]
        loop(parts, steps, m)
        if store != NULL:
            step = strides[0]
            store(<uint16_t *>data[0] + start * step, step, buffers[0].numbers, m)
        start += m
    return PB_OK
