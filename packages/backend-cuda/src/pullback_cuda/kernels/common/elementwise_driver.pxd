# Launches of elementwise kernels: loops over operands, and kernels by class of element types.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from pullback.abi cimport pb_array, pb_call
from pullback_cuda.kernels.common.launch cimport pb_cuda_kernel


cdef extern from "kernels/common/elementwise_driver.h" nogil:
    enum:
        ELEMENTWISE_DIMS
        ELEMENTWISE_INPUTS
        ELEMENTWISE_OPERANDS
        ELEMENTWISE_THREADS
    ctypedef struct elementwise_arguments:
        void *data[5]
        uint64_t scalar[4][2]
        void *failure
        int32_t in_type
        int32_t out_type
        int32_t option
        uint32_t scalars
        uint32_t same
        uint32_t count
        uint32_t vectors
        uint32_t vector_blocks
        int32_t ndim
        uint32_t size[12]
        uint32_t multiplier[12]
        uint32_t shift[12]
        int32_t stride[12][5]


# A kernel of elementwise_driver.cuh.
ctypedef struct pb_operation:
    pb_cuda_kernel *kernel      # NULL: there is none
    int vector_size                    # elements that it loads together
    bint moves                  # it only moves elements, and takes scalars as they are


# The loops of one launch, the fastest dim first. Strides are in bytes.
ctypedef struct pb_loops:
    int ndim
    int operands
    char *data[5]
    int64_t shape[64]
    int64_t strides[64][5]


cdef object class_of(int dtype)
cdef int set_operation(pb_operation *operation, str family, str name, int vector_size,
                       bint moves=*) except -1
cdef int vector_size_of(str name) except -1
cdef void write_scalar(const pb_array *array, bint moves, uint64_t *target) noexcept nogil
cdef double scalar_number(const pb_array *array) noexcept nogil
cdef void set_divisor(elementwise_arguments *args, int d, int64_t size) noexcept nogil
cdef bint fill_loops(pb_loops *loops, pb_array **arrays, int operands) noexcept nogil
cdef void cut_loops(pb_loops *loops, pb_loops *rest) noexcept nogil
cdef bint loops_fit(const pb_loops *loops) noexcept nogil
cdef int launch_loops(pb_call *call, const pb_operation *operation, pb_loops *loops,
                      const int64_t *item, elementwise_arguments *args) noexcept nogil
cdef int run_elementwise(pb_call *call, const pb_operation *operation, pb_array **arrays,
                         int count, int option, bint fails) noexcept nogil
