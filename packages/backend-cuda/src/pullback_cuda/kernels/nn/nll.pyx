"""The negative log likelihood of classes, forward and backward."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from pullback.abi cimport (
    PB_E_DTYPE, PB_E_VALUE, PB_F32, PB_F64, PB_NUM_DTYPES, PB_OK, pb_array, pb_call)
from pullback_cuda.kernels.common.arrays cimport count_elements
from pullback_cuda.kernels.strides.coalesced_dims cimport is_aligned, pb_dim, describe_dim
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, new_kernel, pb_cuda_kernel, sm_count, workspace_alloc, workspace_free)
from pullback_cuda.runtime.failures cimport fail, failure_check, failure_record


cdef extern from "kernels/nn/nll.h":
    enum:
        NLL_EACH
        NLL_MEAN
        NLL_SUM
    ctypedef struct pb_nll:
        const void *source
        const void *targets
        const void *weights
        void *out
        void *partial
        void *total
        void *failure
        int64_t count
        int64_t blocks
        int64_t ignored
        pb_dim inner
        pb_dim classes
        int32_t reduction
        int32_t vectorized

cdef enum:
    THREADS = 256
    PAIR = 16       # bytes of two sums
    BLOCKS = 8      # for each multiprocessor

cdef pb_cuda_kernel *picks[PB_NUM_DTYPES]
cdef pb_cuda_kernel *adds[PB_NUM_DTYPES]
cdef pb_cuda_kernel *spreads[PB_NUM_DTYPES]


def _find():
    for code, name in ((PB_F32, "f32"), (PB_F64, "f64")):
        picks[code] = kernel_named("nll", f"nll_pick_{name}")
        adds[code] = kernel_named("nll", f"nll_add_{name}")
        spreads[code] = kernel_named("nll", f"nll_spread_{name}")


_find()


cdef int describe(pb_call *call, const pb_array *elements, pb_nll *args) noexcept nogil:
    cdef int64_t outer = elements.shape[0] if elements.ndim > 1 else 1, inner = 1
    cdef int64_t classes = elements.shape[1 if elements.ndim > 1 else 0]
    cdef int d
    memset(args, 0, sizeof(pb_nll))
    if picks[call.in_[0].dtype] == NULL:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    for d in range(2, elements.ndim):
        inner *= elements.shape[d]
    if (count_elements(call.in_[1]) != outer * inner
            or (call.nin > 2 and count_elements(call.in_[2]) < classes)):
        return fail(call, PB_E_VALUE, b"targets and weights do not fit the elements")
    args.source = call.in_[0].data
    args.targets = call.in_[1].data
    args.weights = call.in_[2].data if call.nin > 2 else NULL
    args.out = call.out[0].data
    args.failure = failure_record(call)
    args.count = outer * inner
    args.ignored = call.param[0].i
    args.reduction = <int32_t>call.param[1].i
    describe_dim(&args.inner, inner)
    describe_dim(&args.classes, classes)
    return PB_OK


cdef int64_t blocks_for(pb_call *call, int64_t threads) noexcept nogil:
    return max(min((threads + THREADS - 1) // THREADS, <int64_t>BLOCKS * sm_count(call)),
               <int64_t>1)


cdef int add_losses(pb_call *call, pb_nll *args) noexcept nogil:
    """Add up the losses and weights of all targets, in two launches."""
    cdef int dtype = call.in_[0].dtype, code
    cdef size_t nbytes
    args.blocks = blocks_for(call, args.count)
    nbytes = args.blocks * PAIR
    code = workspace_alloc(call, nbytes, <void **>&args.partial)
    if code != PB_OK:
        return code
    code = launch(call, picks[dtype], args, sizeof(pb_nll), args.blocks, THREADS, THREADS * PAIR)
    if code == PB_OK:
        code = launch(call, adds[dtype], args, sizeof(pb_nll), 1, THREADS, THREADS * PAIR)
    workspace_free(call, args.partial, nbytes)
    return code


cdef int kernel_nll_loss(pb_call *call) noexcept nogil:
    cdef pb_nll args
    cdef int code = describe(call, call.in_[0], &args)
    if code != PB_OK:
        return code
    if args.reduction != NLL_EACH:
        code = add_losses(call, &args)
    elif args.count:
        code = launch(call, picks[call.in_[0].dtype], &args, sizeof(args),
                      blocks_for(call, args.count), THREADS, THREADS * PAIR)
    return failure_check(call) if code == PB_OK else code


cdef int kernel_nll_loss_backward(pb_call *call) noexcept nogil:
    cdef pb_nll args
    cdef const void *grad
    cdef int64_t count = count_elements(call.out[0])
    cdef int64_t vector_size = 4 if call.in_[0].dtype == PB_F32 else 2
    cdef int code = describe(call, call.out[0], &args)
    if code != PB_OK:
        return code
    # The weights of all targets; without elements the targets are still checked.
    if args.reduction == NLL_MEAN or (count == 0 and args.count):
        grad = args.source
        args.source = NULL
        args.reduction = NLL_MEAN
        code = workspace_alloc(call, PAIR, <void **>&args.total)
        if code != PB_OK:
            return code
        code = add_losses(call, &args)
        args.source = grad
        args.reduction = <int32_t>call.param[1].i
    if code == PB_OK and count:
        args.count = count
        args.vectorized = count % vector_size == 0 and is_aligned(args.out)
        code = launch(call, spreads[call.in_[0].dtype], &args, sizeof(args),
                      blocks_for(call, count // (vector_size if args.vectorized else 1)),
                      THREADS, 0)
    if args.total != NULL:
        workspace_free(call, args.total, PAIR)
    return failure_check(call) if code == PB_OK else code


KERNELS = {
    "nll_loss": new_kernel(1 << PB_F32 | 1 << PB_F64, kernel_nll_loss),
    "nll_loss_backward": new_kernel(1 << PB_F32 | 1 << PB_F64, kernel_nll_loss_backward),
}
