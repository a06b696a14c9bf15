# Matrix products without BLAS: small ones, and those of integers.
from libc.stdint cimport int64_t

from pullback_cpu.kernels.common.kernel cimport PB_NUM_DTYPES


# Strides count elements.
ctypedef struct matrix:
    char *data
    int64_t row
    int64_t column


# c = a @ b, where a has m rows and k columns, and b has n columns.
ctypedef struct product:
    int64_t m
    int64_t n
    int64_t k
    matrix a
    matrix b
    matrix c
    bint shares     # threads may share it
    bint streams    # c is a part of a result that is larger than a cache


cdef inline bint is_dot(const product *task) noexcept nogil:
    """True for a product of two vectors whose elements are contiguous."""
    return task.m == 1 and task.n == 1 and task.a.column == 1 and task.b.row == 1


# Returns PB_OK, or PB_E_MEMORY.
ctypedef int (*multiply_loop)(const product *task) noexcept nogil


# One of each a dtype.
ctypedef struct multiply_table:
    multiply_loop small[PB_NUM_DTYPES]  # any strides
    multiply_loop tiled[PB_NUM_DTYPES]  # rows of c contiguous; NULL where BLAS is faster
    multiply_loop bfloat16              # any strides; only where has_bfloat16()
    bint (*has_bfloat16)() noexcept nogil
    void (*widen[PB_NUM_DTYPES])(const matrix *source, int64_t rows, int64_t columns,
                                 float *target) noexcept nogil
    void (*narrow[PB_NUM_DTYPES])(const float *source, int64_t rows, int64_t columns,
                                  const matrix *target) noexcept nogil
