"""Positions at which elements keep sorted rows sorted."""

from libc.stdint cimport int32_t, int64_t

from pullback.abi cimport (
    PB_BOOL, PB_C64, PB_E_DTYPE, PB_E_VALUE, PB_OK, pb_array, pb_call)
from pullback_cuda.kernels.common.arrays cimport count_elements
from pullback_cuda.kernels.common.launch cimport kernel_named, launch, new_kernel, pb_cuda_kernel
from pullback_cuda.kernels.strides.indexer cimport (
    NARROW, THREADS, blocks_for, make_divider, int_divider, step_of)
from pullback_cuda.kernels.sorting.sort cimport describe_keys, sort_keys
from pullback_cuda.runtime.failures cimport fail


cdef extern from "kernels/sorting/searchsorted.h":
    ctypedef struct searchsorted_arguments:
        const void *bounds
        const void *values
        int64_t *out
        int64_t length
        int64_t bounds_steps[2]
        int64_t values_steps[2]
        int64_t out_steps[2]
        int64_t total
        int_divider width
        sort_keys how
        int32_t narrow
        int32_t right
        int32_t nan_last

# By whether elements have 8 bytes.
cdef pb_cuda_kernel *finders[2]
finders[0] = kernel_named("searchsorted", "searchsorted_4")
finders[1] = kernel_named("searchsorted", "searchsorted_8")


cdef int kernel_searchsorted(pb_call *call) noexcept nogil:
    cdef pb_array *bounds = call.in_[0]
    cdef pb_array *values = call.in_[1]
    cdef pb_array *out = call.out[0]
    cdef searchsorted_arguments args
    cdef int d
    if values.dtype == PB_BOOL or values.dtype >= PB_C64:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    if (bounds.ndim != 2 or values.ndim != 2 or out.ndim != 2 or bounds.dtype != values.dtype
            or bounds.shape[0] != values.shape[0]):
        return fail(call, PB_E_VALUE, b"searchsorted needs rows of one dtype")
    args.total = count_elements(values)
    if args.total == 0:
        return PB_OK
    args.bounds = bounds.data
    args.values = values.data
    args.out = <int64_t *>out.data
    args.length = bounds.shape[1]
    for d in range(2):
        args.bounds_steps[d] = step_of(bounds, d)
        args.values_steps[d] = step_of(values, d)
        args.out_steps[d] = step_of(out, d)
    make_divider(&args.width, values.shape[1])
    describe_keys(values.dtype, False, &args.how)
    args.narrow = args.total < <int64_t>NARROW
    args.right = call.param[0].i != 0
    args.nan_last = call.param[1].i != 0
    return launch(call, finders[args.how.bytes == 8], &args, sizeof(args), blocks_for(
        call, args.total, THREADS), THREADS, 0)


KERNELS = {"searchsorted": new_kernel(0x3FE, kernel_searchsorted)}
