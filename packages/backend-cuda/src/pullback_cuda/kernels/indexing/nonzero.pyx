"""Coordinates of the elements that are not zero, in row-major order."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from pullback.abi cimport (
    PB_C64, PB_C128, PB_E_RUNTIME, PB_F16, PB_MASK_ALL, PB_OK, pb_array, pb_call)
from pullback_cuda.kernels.common.arrays cimport count_elements, item_sizes
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, new_kernel, pb_cuda_kernel, sm_count, workspace_alloc, workspace_free)
from pullback_cuda.kernels.strides.indexer cimport (
    NARROW, THREADS, make_divider, int_divider, step_of)
from pullback_cuda.runtime.failures cimport fail, failure_check, failure_record


cdef extern from "kernels/indexing/nonzero.h":
    enum:
        NONZERO_DIMS
        NONZERO_TILE
    ctypedef struct nonzero_arguments:
        const void *input
        int64_t *out
        int64_t *counts
        void *failure
        int64_t rows
        int64_t out_steps[2]
        int64_t total
        int64_t chunk
        uint64_t matters[2]
        int32_t narrow
        int32_t contiguous
        int32_t bytes
        int32_t ndim
        int_divider dims[NONZERO_DIMS]
        int64_t input_steps[NONZERO_DIMS]

cdef enum:
    BLOCKS = 8      # for each multiprocessor, at most

cdef pb_cuda_kernel *counter = kernel_named("nonzero", "nonzero_count")
cdef pb_cuda_kernel *writer = kernel_named("nonzero", "nonzero_write")


cdef int fail_changed(pb_call *call) noexcept nogil:
    return fail(call, PB_E_RUNTIME, b"nonzero: the elements changed while they were counted")


cdef void describe(nonzero_arguments *args, pb_array *source, pb_array *out) noexcept nogil:
    """Describe the elements and where coordinates go."""
    cdef int64_t inner = 1
    cdef int d
    args.input = source.data
    args.out = <int64_t *>out.data
    args.rows = out.shape[0]
    args.out_steps[0] = out.strides[0]
    args.out_steps[1] = out.strides[1]
    args.narrow = args.total < <int64_t>NARROW
    args.bytes = item_sizes[source.dtype]
    args.ndim = source.ndim
    args.contiguous = True
    for d in range(source.ndim - 1, -1, -1):
        make_divider(&args.dims[d], source.shape[d])
        args.input_steps[d] = step_of(source, d)
        if source.shape[d] > 1 and source.strides[d] != inner:
            args.contiguous = False
        inner *= source.shape[d]
    # Both zeros of floating-point numbers are zero, whatever their sign.
    args.matters[0] = args.matters[1] = ~<uint64_t>0
    if source.dtype == PB_C64:
        args.matters[0] = 0x7FFFFFFF7FFFFFFFu
    elif source.dtype >= PB_F16:
        args.matters[0] = (~<uint64_t>0) >> (
            1 if source.dtype == PB_C128 else 65 - 8 * args.bytes)
        args.matters[1] = args.matters[0]


cdef int kernel_nonzero(pb_call *call) noexcept nogil:
    cdef pb_array *source = call.in_[0]
    cdef pb_array *out = call.out[0]
    cdef nonzero_arguments args
    cdef int64_t tiles, blocks
    cdef int code
    args.total = count_elements(source)
    if args.total == 0:
        return PB_OK if out.shape[0] == 0 else fail_changed(call)
    describe(&args, source, out)
    tiles = (args.total + NONZERO_TILE - 1) // NONZERO_TILE
    blocks = min(tiles, <int64_t>BLOCKS * sm_count(call))
    args.chunk = (tiles + blocks - 1) // blocks * NONZERO_TILE
    blocks = (args.total + args.chunk - 1) // args.chunk
    args.failure = failure_record(call)
    code = workspace_alloc(call, blocks * sizeof(int64_t), <void **>&args.counts)
    if code != PB_OK:
        return code
    code = launch(call, counter, &args, sizeof(args), blocks, THREADS, 0)
    if code == PB_OK:
        code = launch(call, writer, &args, sizeof(args), blocks, THREADS, 0)
    workspace_free(call, args.counts, blocks * sizeof(int64_t))
    if code == PB_OK:
        code = failure_check(call)
        if code == PB_E_RUNTIME:
            return fail_changed(call)
    return code


KERNELS = {"nonzero": new_kernel(PB_MASK_ALL, kernel_nonzero)}
