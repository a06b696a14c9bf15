# Matrices as cuBLAS reads them, and the kernels that copy others into such a layout.
from libc.stdint cimport int32_t, int64_t

from pullback.abi cimport pb_array, pb_call


cdef extern from "kernels/linalg/matmul.h":
    ctypedef struct product_arguments "struct product_arguments":
        void *out
        const void *left
        const void *right
        int64_t batch, rows, inner, columns
        int64_t out_strides[3]
        int64_t left_strides[3]
        int64_t right_strides[3]

    ctypedef struct pack_arguments "struct pack_arguments":
        void *to
        const void *from_ "from"
        const int32_t *info
        int64_t shape[3]
        int64_t to_strides[3]
        int64_t from_strides[3]
        float fill
        int32_t lower

    ctypedef struct addresses_arguments "struct addresses_arguments":
        void **to
        char *first
        int64_t step
        int64_t count


# One operand of a product, row-major or column-major.
ctypedef struct matrix_view:
    void *data
    void *workspace               # NULL, or memory to give back
    size_t nbytes
    int64_t leading             # stride between rows, or columns if transposed
    int64_t batch_stride
    bint transposed             # column-major


# A call of a library, with the device's context current.
ctypedef int (*library_work)(pb_call *call, void *data) except -1


cdef unsigned int LIBRARY_DTYPES            # those of linear algebra, as a mask
cdef str library_dtype(int dtype)
cdef int run_in_context(pb_call *call, library_work work, void *data) noexcept
cdef bint view_matrix(const pb_array *array, matrix_view *view) noexcept nogil
cdef int pack(pb_call *call, int dtype, void *to, const int64_t *to_strides, const void *source,
              const int64_t *from_strides, const int64_t *shape, const int32_t *info,
              bint lower=*) noexcept nogil
cdef int fill_matrices(pb_call *call, int dtype, void *to, const int64_t *to_strides,
                       const int64_t *shape, float number) noexcept nogil
cdef int list_addresses(pb_call *call, void **to, void *first, int64_t step,
                        int64_t count) noexcept nogil


cdef inline size_t rounded(size_t nbytes) noexcept nogil:
    """Return where the next part of a call's memory begins."""
    return (nbytes + 255) & ~<size_t>255
