# Shared by every kernel module: element sizes, error messages, capsules, complex numbers.
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memmove, memset

from pullback.abi cimport *

ctypedef float complex c64
ctypedef double complex c128


cdef extern from *:
    """
    static const int pb_item_shift[PB_NUM_DTYPES] = {
        0, 0, 0, 1, 2, 3, 1, 1, 2, 3, 3, 4, 1, 2, 3, 2};
    #if defined(__GNUC__)
    #define PB_LIKELY(x) __builtin_expect(!!(x), 1)
    #define PB_UNLIKELY(x) __builtin_expect(!!(x), 0)
    #else
    #define PB_LIKELY(x) (x)
    #define PB_UNLIKELY(x) (x)
    #endif
    """
    const int *item_shift "pb_item_shift"
    bint likely "PB_LIKELY"(bint condition) noexcept nogil
    bint unlikely "PB_UNLIKELY"(bint condition) noexcept nogil


cdef inline object new_kernel(int mask, pb_kernel kernel):
    """Return what a plugin registers for one primitive: dtype mask and capsule."""
    return mask, PyCapsule_New(<void *>kernel, PB_KERNEL_CAPSULE, NULL)


cdef inline int64_t item_size(int dtype) noexcept nogil:
    return <int64_t>1 << item_shift[dtype]


cdef inline int fail(pb_call *call, int error, const char *reason) noexcept nogil:
    if call.message != NULL:
        snprintf(call.message, PB_MESSAGE_SIZE, "%s", reason)
    return error


cdef inline int fail_dtype(pb_call *call) noexcept nogil:
    return fail(call, PB_E_DTYPE, b"this dtype has no CPU kernel")


cdef inline int fail_memory(pb_call *call) noexcept nogil:
    return fail(call, PB_E_MEMORY, b"not enough memory for a temporary buffer")


cdef inline int fail_index(pb_call *call, int64_t index, int dim, int64_t length) noexcept nogil:
    if call.message != NULL:
        snprintf(call.message, PB_MESSAGE_SIZE,
                 b"index %lld is out of bounds for dimension %d with size %lld",
                 <long long>index, dim, <long long>length)
    return PB_E_INDEX


cdef inline int64_t count_elements(const pb_array *array) noexcept nogil:
    cdef int64_t count = 1
    cdef int d
    for d in range(array.ndim):
        count *= array.shape[d]
    return count


cdef inline c128 make_c128(double re, double im) noexcept nogil:
    cdef c128 z
    z.real = re
    z.imag = im
    return z


cdef inline c64 make_c64(float re, float im) noexcept nogil:
    cdef c64 z
    z.real = re
    z.imag = im
    return z


# Cython's own conversions multiply by the imaginary unit, which turns infinities into NaN.
cdef inline c128 widen_c64(c64 z) noexcept nogil:
    return make_c128(z.real, z.imag)


cdef inline c64 narrow_c128(c128 z) noexcept nogil:
    return make_c64(<float>z.real, <float>z.imag)
