"""Steps of optimizers over lists of tensors, several tensors in one launch."""

from libc.math cimport pow, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_BF16, PB_E_VALUE, PB_F16, PB_F32, PB_F64, PB_OK, pb_array, pb_call)
from pullback_cuda.kernels.common.arrays cimport count_elements
from pullback_cuda.kernels.common.launch cimport kernel_named, launch, new_kernel, pb_cuda_kernel
from pullback_cuda.runtime.failures cimport fail


cdef extern from "kernels/optim/optimizer_steps.h":
    enum:
        OPTIM_TENSORS
        OPTIM_CHUNK
        OPTIM_MAXIMIZE
        OPTIM_DECAYS
        OPTIM_STARTS
        OPTIM_NESTEROV
        OPTIM_BUFFERED
        OPTIM_CENTERED
        OPTIM_AMSGRAD
        OPTIM_RATES
    ctypedef struct pb_optim:
        void *data[68]
        int64_t sizes[34]
        int64_t first_blocks[34]
        const void *steps[34]
        double rates[34]
        double roots[34]
        const float *found_inf
        double lr
        double decay
        double keep
        double first
        double second
        double rest
        double eps
        double momentum
        double beta1
        double lr_decay
        int32_t count
        int32_t written
        int32_t type
        int32_t step_type
        int32_t flags

cdef enum:
    THREADS = 256
    RATES = 16      # bytes of a rate and a root

# Kernels for float and double.
cdef pb_cuda_kernel *sgd[2]
cdef pb_cuda_kernel *adam[2]
cdef pb_cuda_kernel *rmsprop[2]
cdef pb_cuda_kernel *adagrad[2]


def _find():
    for number, compute in enumerate(("float", "double")):
        sgd[number] = kernel_named("optimizer_steps", f"optim_sgd_{compute}")
        adam[number] = kernel_named("optimizer_steps", f"optim_adam_{compute}")
        rmsprop[number] = kernel_named("optimizer_steps", f"optim_rmsprop_{compute}")
        adagrad[number] = kernel_named("optimizer_steps", f"optim_adagrad_{compute}")


_find()


cdef int describe(pb_call *call, pb_optim *args, int written, bint steps) noexcept nogil:
    """Fill the operands of a launch; not PB_OK if they do not fit."""
    cdef int64_t count = call.param[0].i
    cdef int64_t blocks = 0
    cdef int i
    memset(args, 0, sizeof(pb_optim))
    if not 0 < count <= OPTIM_TENSORS or call.nout != written * count or (
            call.nin - (1 + steps) * count not in (0, 1)):
        return fail(call, PB_E_VALUE, b"the lists of tensors have different lengths")
    args.count = <int32_t>count
    args.written = written
    args.type = call.in_[0].dtype
    args.keep = 1
    for i in range(call.nout):
        args.data[i] = call.out[i].data
    for i in range(<int>count):
        args.data[call.nout + i] = call.in_[i].data
        args.sizes[i] = count_elements(call.out[i])
        args.first_blocks[i] = blocks
        blocks += (args.sizes[i] + OPTIM_CHUNK - 1) // OPTIM_CHUNK
    if call.nin > (1 + steps) * count:
        args.found_inf = <const float *>call.in_[(1 + steps) * count].data
    return PB_OK


cdef int start(pb_call *call, pb_optim *args, pb_cuda_kernel **kernels) noexcept nogil:
    """Launch a step, a block for each chunk of a tensor."""
    cdef int last = args.count - 1
    cdef int64_t blocks = args.first_blocks[last] + (
        (args.sizes[last] + OPTIM_CHUNK - 1) // OPTIM_CHUNK)
    if blocks == 0:
        return PB_OK
    return launch(call, kernels[args.type == PB_F64], args, sizeof(pb_optim), blocks, THREADS,
                  RATES)


cdef inline double number_of(const pb_array *array) noexcept nogil:
    if array.dtype == PB_F32:
        return (<const float *>array.data)[0]
    return (<const double *>array.data)[0]


cdef bint read_steps(pb_call *call, pb_optim *args, double *steps) noexcept nogil:
    """Read the step numbers, if they are on the host's side; else let the device read them."""
    cdef const pb_array *array = call.in_[args.count]
    cdef int i
    cdef bint here = array.flags & PB_ARRAY_HOST != 0
    args.step_type = array.dtype
    for i in range(args.count):
        array = call.in_[args.count + i]
        if here:
            steps[i] = number_of(array)
        args.steps[i] = array.data
    if not here:
        args.flags |= OPTIM_RATES
    return here


cdef int kernel_sgd(pb_call *call) noexcept nogil:
    cdef pb_optim args
    cdef bint buffered = call.param[2].d != 0
    cdef int code = describe(call, &args, 1 + buffered, False), i
    if code != PB_OK:
        return code
    args.decay = call.param[1].d
    args.momentum = call.param[2].d
    args.lr = call.param[3].d
    args.rest = 1 - call.param[4].d
    args.flags = ((OPTIM_DECAYS if args.decay != 0 else 0) | (OPTIM_BUFFERED if buffered else 0)
                  | (OPTIM_NESTEROV if call.param[5].i else 0)
                  | (OPTIM_MAXIMIZE if call.param[6].i else 0)
                  | (OPTIM_STARTS if call.param[7].i else 0))
    for i in range(args.count):
        args.rates[i] = args.lr
    return start(call, &args, sgd)


cdef int run_adam(pb_call *call, bint decoupled) noexcept nogil:
    cdef pb_optim args
    cdef double steps[OPTIM_TENSORS]
    cdef bint amsgrad = call.param[6].i != 0
    cdef int code = describe(call, &args, 3 + amsgrad, True), i
    if code != PB_OK:
        return code
    args.lr = call.param[1].d
    args.beta1 = call.param[2].d
    args.first = 1 - args.beta1
    args.second = call.param[3].d
    args.rest = 1 - args.second
    args.decay = call.param[4].d
    args.eps = call.param[5].d
    args.flags = ((OPTIM_AMSGRAD if amsgrad else 0) | (OPTIM_MAXIMIZE if call.param[7].i else 0)
                  | (OPTIM_DECAYS if args.decay != 0 and not decoupled else 0))
    if decoupled:
        args.keep = 1 - args.lr * args.decay
    if read_steps(call, &args, steps):
        for i in range(args.count):
            args.rates[i] = args.lr / (1 - pow(args.beta1, steps[i]))
            args.roots[i] = 1 / sqrt(1 - pow(args.second, steps[i]))
    return start(call, &args, adam)


cdef int kernel_adam(pb_call *call) noexcept nogil:
    return run_adam(call, False)


cdef int kernel_adamw(pb_call *call) noexcept nogil:
    return run_adam(call, True)


cdef int kernel_rmsprop(pb_call *call) noexcept nogil:
    cdef pb_optim args
    cdef bint buffered = call.param[5].d != 0, centered = call.param[6].i != 0
    cdef int code = describe(call, &args, 2 + buffered + centered, False), i
    if code != PB_OK:
        return code
    args.lr = call.param[1].d
    args.second = call.param[2].d
    args.first = args.rest = 1 - args.second
    args.eps = call.param[3].d
    args.decay = call.param[4].d
    args.momentum = call.param[5].d
    args.flags = ((OPTIM_DECAYS if args.decay != 0 else 0) | (OPTIM_BUFFERED if buffered else 0)
                  | (OPTIM_CENTERED if centered else 0)
                  | (OPTIM_MAXIMIZE if call.param[7].i else 0))
    for i in range(args.count):
        args.rates[i] = args.lr
    return start(call, &args, rmsprop)


cdef int kernel_adagrad(pb_call *call) noexcept nogil:
    cdef pb_optim args
    cdef double steps[OPTIM_TENSORS]
    cdef int code = describe(call, &args, 2, True), i
    if code != PB_OK:
        return code
    args.lr = call.param[1].d
    args.lr_decay = call.param[2].d
    args.decay = call.param[3].d
    args.eps = call.param[4].d
    args.flags = ((OPTIM_DECAYS if args.decay != 0 else 0)
                  | (OPTIM_MAXIMIZE if call.param[5].i else 0))
    if read_steps(call, &args, steps):
        for i in range(args.count):
            args.rates[i] = args.lr / (1 + (steps[i] - 1) * args.lr_decay)
    return start(call, &args, adagrad)


cdef enum:
    MASK = 1 << PB_F16 | 1 << PB_BF16 | 1 << PB_F32 | 1 << PB_F64

KERNELS = {
    "sgd_step": new_kernel(MASK, kernel_sgd),
    "adam_step": new_kernel(MASK, kernel_adam),
    "adamw_step": new_kernel(MASK, kernel_adamw),
    "rmsprop_step": new_kernel(MASK, kernel_rmsprop),
    "adagrad_step": new_kernel(MASK, kernel_adagrad),
}
