"""Random numbers: Philox4x32-10 in counter mode, in the row-major order of the output.

``permutation`` has no kernel here: its exchanges are sequential, so the host computes it.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from pullback.abi cimport (
    PB_C64, PB_E_DTYPE, PB_E_VALUE, PB_F32, PB_F64, PB_MASK_ALL, PB_MASK_COMPLEX, PB_MASK_FLOATING,
    PB_NUM_DTYPES, PB_OK, pb_array, pb_call)
from pullback_cuda.kernels.common.arrays cimport item_sizes
from pullback_cuda.kernels.common.elementwise_driver cimport (
    ELEMENTWISE_THREADS, class_of, cut_loops, elementwise_arguments, loops_fit, pb_loops,
    set_divisor)
from pullback_cuda.kernels.common.launch cimport kernel_named, launch, new_kernel, pb_cuda_kernel
from pullback_cuda.runtime.failures cimport fail


cdef extern from "kernels/creation/random.h" nogil:
    ctypedef struct random_arguments:
        elementwise_arguments layout
        uint64_t seed
        uint64_t block
        uint32_t skip
        int64_t low
        uint64_t span
        uint64_t reciprocal
        double scale

cdef double SQRT_HALF = 0.7071067811865476

# By the dtype of the numbers: those of complex ones are their parts.
cdef pb_cuda_kernel *uniform_kernels[PB_NUM_DTYPES]
cdef pb_cuda_kernel *normal_kernels[PB_NUM_DTYPES]
cdef pb_cuda_kernel *integer_kernels[PB_NUM_DTYPES]


cdef int find_kernels() except -1:
    cdef int dtype
    for dtype in range(PB_C64):
        name = class_of(dtype)
        integer_kernels[dtype] = kernel_named("random", f"randint_{name}")
        if name in ("float", "double"):
            uniform_kernels[dtype] = kernel_named("random", f"uniform_{name}")
            normal_kernels[dtype] = kernel_named("random", f"normal_{name}")
    return 0


find_kernels()


cdef bint fill_loops(pb_loops *loops, const pb_array *out, int64_t item) noexcept nogil:
    """Describe the output's loops in logical order; false if there is no element."""
    cdef int64_t size, stride
    cdef int d, last = -1
    loops.operands = 1
    loops.data[0] = <char *>out.data
    if out.dtype >= PB_C64:
        last = 0
        loops.shape[0] = 2
        loops.strides[0][0] = item
    for d in range(out.ndim - 1, -1, -1):
        size = out.shape[d]
        stride = out.strides[d] * item_sizes[out.dtype]
        if size == 0:
            return False
        if size == 1:
            continue
        if last >= 0 and stride == loops.strides[last][0] * loops.shape[last]:
            loops.shape[last] *= size
            continue
        last += 1
        loops.shape[last] = size
        loops.strides[last][0] = stride
    if last < 0:
        last = 0
        loops.shape[0] = 1
        loops.strides[0][0] = item
    loops.ndim = last + 1
    return True


cdef int fill(pb_call *call, pb_cuda_kernel *kernel, pb_loops *loops, random_arguments *args,
              uint64_t first, uint64_t each, int64_t item) noexcept nogil:
    """Make the numbers from ``first`` on, ``each`` of a block."""
    cdef elementwise_arguments *layout = &args.layout
    cdef pb_loops rest
    cdef random_arguments own
    cdef int64_t count = 1, blocks
    cdef int d, code
    for d in range(loops.ndim):
        count *= loops.shape[d]
    if not loops_fit(loops):
        cut_loops(loops, &rest)
        for d in range(rest.ndim):
            blocks = rest.shape[d] if d == 0 else blocks * rest.shape[d]
        code = fill(call, kernel, loops, args, first, each, item)
        if code:
            return code
        return fill(call, kernel, &rest, args, first + <uint64_t>(count - blocks), each, item)
    own = args[0]
    layout = &own.layout
    own.block += first // each
    own.skip = <uint32_t>(first % each)
    layout.data[0] = loops.data[0]
    layout.ndim = loops.ndim
    layout.count = <uint32_t>count
    for d in range(loops.ndim):
        set_divisor(layout, d, loops.shape[d])
        layout.stride[d][0] = <int32_t>loops.strides[d][0]
    layout.vectors = (own.skip == 0 and loops.ndim == 1 and loops.strides[0][0] == item
                      and <uint64_t>loops.data[0] % <uint64_t>(each * item) == 0)
    blocks = (count + own.skip + each * ELEMENTWISE_THREADS - 1) // (each * ELEMENTWISE_THREADS)
    return launch(call, kernel, &own, sizeof(own), blocks, ELEMENTWISE_THREADS, 0)


cdef int run(pb_call *call, pb_cuda_kernel **kernels, random_arguments *args,
             bint wide) noexcept nogil:
    """Fill the output; ``wide``: numbers take two words whatever their type."""
    cdef pb_array *out = call.out[0]
    cdef pb_loops loops
    cdef int dtype = out.dtype
    cdef int64_t item
    if dtype >= PB_C64:
        dtype = PB_F32 if dtype == PB_C64 else PB_F64
    if kernels[dtype] == NULL:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    item = item_sizes[dtype]
    if not fill_loops(&loops, out, item):
        return PB_OK
    args.seed = <uint64_t>call.param[0].i
    args.block = <uint64_t>call.param[1].i
    args.layout.out_type = dtype
    return fill(call, kernels[dtype], &loops, args, 0, 2 if wide or dtype == PB_F64 else 4, item)


cdef int kernel_uniform(pb_call *call) noexcept nogil:
    cdef random_arguments args
    return run(call, uniform_kernels, &args, False)


cdef int kernel_normal(pb_call *call) noexcept nogil:
    cdef random_arguments args
    args.scale = SQRT_HALF if call.out[0].dtype >= PB_C64 else 1
    return run(call, normal_kernels, &args, False)


cdef int kernel_randint(pb_call *call) noexcept nogil:
    cdef random_arguments args
    args.low = call.param[2].i
    if args.low >= call.param[3].i:
        return fail(call, PB_E_VALUE, b"randint needs low < high")
    args.span = <uint64_t>call.param[3].i - <uint64_t>args.low
    args.reciprocal = (<uint64_t>-1) // args.span
    return run(call, integer_kernels, &args, True)


KERNELS = {
    "uniform": new_kernel(PB_MASK_FLOATING | PB_MASK_COMPLEX, kernel_uniform),
    "normal": new_kernel(PB_MASK_FLOATING | PB_MASK_COMPLEX, kernel_normal),
    "randint": new_kernel(PB_MASK_ALL & ~PB_MASK_COMPLEX, kernel_randint),
}
