# Matrix products without BLAS: small ones, and those of integers.
from libc.stdint cimport int64_t


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


# One a dtype. Returns PB_OK, or PB_E_MEMORY.
ctypedef int (*multiply_loop)(const product *task) noexcept nogil
