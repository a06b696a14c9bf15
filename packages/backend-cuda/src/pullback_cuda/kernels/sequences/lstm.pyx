"""The steps of a layer of long short-term memory, and their derivatives."""

from libc.stdint cimport int64_t
from libc.string cimport memset

from pullback.abi cimport (
    PB_E_DTYPE, PB_E_VALUE, PB_F32, PB_F64, PB_NUM_DTYPES, PB_OK, pb_array, pb_call)
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


cdef bint lstm_fits(const pb_array *parts, const pb_array *weight, const pb_array *state,
                    const pb_array *cell, int64_t width) noexcept nogil:
    """Return whether steps of a width, a weight and two rows of units fit."""
    cdef int64_t units
    if parts.ndim != 3 or weight.ndim != 2 or state.ndim != 2 or cell.ndim != 2:
        return False
    units = weight.shape[1]
    return (weight.shape[0] == 4 * units and parts.shape[2] == width * units
            and state.shape[0] == parts.shape[1] and state.shape[1] == units
            and cell.shape[0] == parts.shape[1] and cell.shape[1] == units)


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
    if not (lstm_fits(call.in_[0], call.in_[1], call.in_[2], call.in_[3], 4)
            and lstm_fits(call.out[0], call.in_[1], call.out[1], call.in_[3], 1)
            and lstm_fits(call.out[2], call.in_[1], call.in_[2], call.in_[3], 5)
            and call.out[0].shape[0] == call.in_[0].shape[0]
            and call.out[2].shape[0] == call.in_[0].shape[0]):
        return fail(call, PB_E_VALUE, b"the operands' sizes do not fit")
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
    if not (lstm_fits(call.in_[0], call.in_[2], call.in_[1], call.in_[3], 1)
            and lstm_fits(call.in_[4], call.in_[2], call.out[1], call.out[2], 5)
            and lstm_fits(call.out[0], call.in_[2], call.in_[1], call.in_[3], 4)
            and call.in_[4].shape[0] == call.in_[0].shape[0]
            and call.out[0].shape[0] == call.in_[0].shape[0]):
        return fail(call, PB_E_VALUE, b"the operands' sizes do not fit")
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
