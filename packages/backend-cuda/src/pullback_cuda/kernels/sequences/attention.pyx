"""Attention and its derivatives by query, key and value."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from pullback.abi cimport (
    PB_BF16, PB_BOOL, PB_E_DTYPE, PB_E_VALUE, PB_F16, PB_F32, PB_F64, PB_MASK_FLOATING,
    PB_NUM_DTYPES, PB_OK, pb_array, pb_call)
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, new_kernel, pb_cuda_kernel, sm_count)
from pullback_cuda.runtime.failures cimport fail


cdef extern from "kernels/sequences/attention.h":
    enum:
        ATTENTION_TILE
        ATTENTION_CHUNK
        ATTENTION_LEAD
        NO_MASK
        BOOL_MASK
        ADDED_MASK
    ctypedef struct pb_heads:
        void *data
        int64_t lead[ATTENTION_LEAD]
        int64_t row
        int64_t step
    ctypedef struct pb_attention:
        pb_heads query, key, value, mask, grad, out, sums, query_grad, key_grad, value_grad
        int64_t lead[ATTENTION_LEAD]
        int64_t heads
        int64_t group
        int64_t queries, keys
        int64_t size, out_size
        double scale
        int32_t is_causal
        int32_t masks

cdef enum:
    THREADS = ATTENTION_TILE * ATTENTION_TILE
    BLOCKS = 64      # for each multiprocessor, at most

cdef pb_cuda_kernel *forward[PB_NUM_DTYPES]
cdef pb_cuda_kernel *of_queries[PB_NUM_DTYPES]
cdef pb_cuda_kernel *of_keys[PB_NUM_DTYPES]


def _find():
    for code, name in ((PB_F16, "f16"), (PB_BF16, "bf16"), (PB_F32, "f32"), (PB_F64, "f64")):
        forward[code] = kernel_named("attention", f"attention_{name}")
        of_queries[code] = kernel_named("attention", f"attention_queries_{name}")
        of_keys[code] = kernel_named("attention", f"attention_keys_{name}")


_find()


cdef pb_heads heads_of(const pb_array *array, int trailing) noexcept nogil:
    """Describe an operand with one or two dims behind the leading ones."""
    cdef pb_heads heads
    cdef int lead = array.ndim - trailing, d
    memset(&heads, 0, sizeof(pb_heads))
    heads.data = array.data
    for d in range(lead):
        heads.lead[ATTENTION_LEAD - lead + d] = array.strides[d]
    heads.row = array.strides[lead]
    heads.step = array.strides[lead + 1] if trailing > 1 else 0
    return heads


cdef int describe(pb_call *call, int first, pb_attention *args) noexcept nogil:
    cdef pb_array *query = call.in_[first]
    cdef pb_array *key = call.in_[first + 1]
    cdef pb_array *mask = NULL
    cdef int lead = query.ndim - 2, d
    memset(args, 0, sizeof(pb_attention))
    if forward[query.dtype] == NULL:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    if lead > ATTENTION_LEAD:
        return fail(call, PB_E_VALUE, b"more than six dims")
    args.heads = args.group = 1
    for d in range(ATTENTION_LEAD):
        args.lead[d] = 1
    for d in range(lead):
        args.lead[ATTENTION_LEAD - lead + d] = query.shape[d]
        args.heads *= query.shape[d]
    if lead and key.shape[lead - 1] and query.shape[lead - 1]:
        args.group = query.shape[lead - 1] // key.shape[lead - 1]
    args.query = heads_of(query, 2)
    args.key = heads_of(key, 2)
    args.value = heads_of(call.in_[first + 2], 2)
    args.queries = query.shape[lead]
    args.keys = key.shape[lead]
    args.size = query.shape[lead + 1]
    args.out_size = call.in_[first + 2].shape[lead + 1]
    args.is_causal = <int32_t>call.param[0].i
    args.scale = call.param[1].d
    if call.nin > (3 if first == 0 else 6):
        mask = call.in_[call.nin - 1]
        args.mask = heads_of(mask, 2)
        args.masks = BOOL_MASK if mask.dtype == <int>PB_BOOL else ADDED_MASK
    return PB_OK


cdef int start(
        pb_call *call, pb_cuda_kernel *kernel, pb_attention *args, int64_t heads, int64_t rows,
        int64_t columns) noexcept nogil:
    cdef int64_t blocks = (heads * ((rows + ATTENTION_TILE - 1) // ATTENTION_TILE)
                           * ((columns + ATTENTION_CHUNK - 1) // ATTENTION_CHUNK))
    if blocks == 0:
        return PB_OK
    return launch(call, kernel, args, sizeof(pb_attention),
                  min(blocks, <int64_t>BLOCKS * sm_count(call)), THREADS, 0)


cdef int kernel_attention(pb_call *call) noexcept nogil:
    cdef pb_attention args
    cdef int code = describe(call, 0, &args)
    if code != PB_OK:
        return code
    args.out = heads_of(call.out[0], 2)
    args.sums = heads_of(call.out[1], 1)
    return start(call, forward[call.in_[0].dtype], &args, args.heads, args.queries,
                 max(args.out_size, <int64_t>1))


cdef int kernel_attention_backward(pb_call *call) noexcept nogil:
    cdef pb_attention args
    cdef pb_array *key = call.in_[2]
    cdef int64_t heads = 1
    cdef int code = describe(call, 1, &args), d
    if code != PB_OK:
        return code
    args.grad = heads_of(call.in_[0], 2)
    args.out = heads_of(call.in_[4], 2)
    args.sums = heads_of(call.in_[5], 1)
    args.query_grad = heads_of(call.out[0], 2)
    args.key_grad = heads_of(call.out[1], 2)
    args.value_grad = heads_of(call.out[2], 2)
    for d in range(key.ndim - 2):
        heads *= key.shape[d]
    code = start(call, of_queries[key.dtype], &args, args.heads, args.queries, args.size)
    if code == PB_OK:
        code = start(call, of_keys[key.dtype], &args, heads, args.keys,
                     max(args.size, args.out_size))
    return code


KERNELS = {
    "attention": new_kernel(PB_MASK_FLOATING, kernel_attention),
    "attention_backward": new_kernel(PB_MASK_FLOATING, kernel_attention_backward),
}
