from libc.stdint cimport int64_t, uint8_t

from pullback.abi cimport PB_NUM_DTYPES


cdef enum category:
    CATEGORY_BOOL = 0
    CATEGORY_INTEGRAL = 1
    CATEGORY_FLOATING = 2
    CATEGORY_COMPLEX = 3


cdef class dtype:
    cdef readonly str name
    cdef readonly int code
    cdef readonly int itemsize
    cdef readonly bint is_floating_point
    cdef readonly bint is_complex
    cdef readonly bint is_signed


cdef int dtype_itemsize[PB_NUM_DTYPES]
cdef uint8_t dtype_category[PB_NUM_DTYPES]

cdef int dtype_promote(int a, int b) except -1
cdef int dtype_combine(int higher, int lower) noexcept nogil
cdef int dtype_real(int code) noexcept nogil
cdef int dtype_complex(int code) noexcept nogil
cdef int dtype_signed(int code) noexcept nogil
cdef dtype dtype_object(int code)
cdef int dtype_code(object value, const char *op) except -1
cdef int dtype_default() noexcept nogil
cdef int dtype_of_scalar(object value) except -2
cdef bint dtype_differentiable(int code) noexcept nogil
cdef int scalar_check(object value, int code) except -1
cdef int scalar_check_all(object value, int code) except -1
cdef int scalar_write(object value, int code, void *out) except -1
cdef object scalar_read(const void *data, int code)
