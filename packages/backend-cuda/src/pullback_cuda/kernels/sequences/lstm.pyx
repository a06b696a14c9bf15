"""The steps of a layer of long short-term memory, and their derivatives."""

from libc.stdint cimport int64_t
from libc.string cimport memset

from pullback.abi cimport PB_E_DTYPE, PB_F32, PB_F64, PB_NUM_DTYPES, PB_OK, pb_array, pb_call
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, new_kernel, pb_cuda_kernel, sm_count)
from pullback_cuda.runtime.failures cimport fail


cdef extern from "kernels/sequences/lstm.h":
    ctypedef struct pb_lstm:
        const void *given
        const void *weight
        const void *hidden
        const void *cell
        const void *grad
        const void *cell_grad
        void *out
        void *last_cell
        void *gates
        void *given_grad
        void *hidden_grad
        void *first_grad
        int64_t steps, rows, size
        int64_t reverse

cdef enum:
    THREADS = 256
    BLOCKS = 32     # for each multiprocessor, at most

cdef pb_cuda_kernel *forward[PB_NUM_DTYPES]
cdef pb_cuda_kernel *backward[PB_NUM_DTYPES]


def _find():
    for code, name in ((PB_F32, "f32"), (PB_F64, "f64")):
        forward[code] = kernel_named("lstm", f"lstm_steps_{name}")
        backward[code] = kernel_named("lstm", f"lstm_steps_backward_{name}")


_find()


cdef int start(pb_call *call, pb_cuda_kernel *kernel, pb_lstm *args, int64_t size) noexcept nogil:
    cdef pb_array *first = call.in_[0]
    if kernel == NULL:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    args.steps, args.rows, args.size = first.shape[0], first.shape[1], size
    args.reverse = call.param[0].i
    if args.rows == 0:
        return PB_OK
    return launch(call, kernel, args, sizeof(pb_lstm),
                  min(args.rows, <int64_t>BLOCKS * sm_count(call)), THREADS, 0)


cdef int kernel_lstm_steps(pb_call *call) noexcept nogil:
    cdef pb_lstm args
    memset(&args, 0, sizeof(pb_lstm))
    args.given = call.in_[0].data
    args.weight = call.in_[1].data
    args.hidden = call.in_[2].data
    args.cell = call.in_[3].data
    args.out = call.out[0].data
    args.last_cell = call.out[1].data
    args.gates = call.out[2].data
    return start(call, forward[call.in_[0].dtype], &args, call.in_[1].shape[1])


cdef int kernel_lstm_steps_backward(pb_call *call) noexcept nogil:
    cdef pb_lstm args
    memset(&args, 0, sizeof(pb_lstm))
    args.grad = call.in_[0].data
    args.cell_grad = call.in_[1].data
    args.weight = call.in_[2].data
    args.cell = call.in_[3].data
    args.gates = call.in_[4].data
    args.given_grad = call.out[0].data
    args.hidden_grad = call.out[1].data
    args.first_grad = call.out[2].data
    return start(call, backward[call.in_[0].dtype], &args, call.in_[2].shape[1])


KERNELS = {
    "lstm_steps": new_kernel(1 << PB_F32 | 1 << PB_F64, kernel_lstm_steps),
    "lstm_steps_backward": new_kernel(1 << PB_F32 | 1 << PB_F64, kernel_lstm_steps_backward),
}
