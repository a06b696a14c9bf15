"""arange and linspace: numbers in equal steps."""

from libc.stdint cimport int32_t, int64_t

from pullback.abi cimport (
    PB_E_DTYPE, PB_F32, PB_F64, PB_NUM_DTYPES, PB_OK, PB_PARAM_INT, pb_array, pb_call)
from pullback_cuda.kernels.common.arrays cimport item_sizes
from pullback_cuda.kernels.common.elementwise_driver cimport class_of
from pullback_cuda.kernels.common.launch cimport kernel_named, launch, new_kernel, pb_cuda_kernel
from pullback_cuda.runtime.failures cimport fail


cdef extern from "kernels/creation/create.h" nogil:
    enum:
        CREATE_THREADS
        CREATE_EACH
    ctypedef struct create_arguments:
        void *data
        int64_t stride
        int64_t count
        int64_t half
        int64_t first
        int64_t step
        double start
        double end
        double width
        int32_t type

cdef pb_cuda_kernel *kernels[PB_NUM_DTYPES]
COUNTED = range(1, 10)      # the dtypes u8 to f64
NAMES = {"int": "count_int", "long": "count_long", "float": "line_float", "double": "line_double"}


cdef int find_kernels() except -1:
    cdef int dtype
    for dtype in COUNTED:
        kernels[dtype] = kernel_named("create", NAMES[class_of(dtype)])
    return 0


find_kernels()


cdef int create(pb_call *call, create_arguments *args) noexcept nogil:
    cdef pb_array *out = call.out[0]
    cdef int64_t each = CREATE_THREADS * CREATE_EACH
    args.data = out.data
    args.stride = (out.strides[0] if out.ndim else 1) * item_sizes[out.dtype]
    args.type = out.dtype
    if args.count == 0:
        return PB_OK
    return launch(call, kernels[out.dtype], args, sizeof(args[0]),
                  (args.count + each - 1) // each, CREATE_THREADS, 0)


cdef int kernel_arange(pb_call *call) noexcept nogil:
    cdef create_arguments args
    cdef pb_array *out = call.out[0]
    if kernels[out.dtype] == NULL:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    args.count = args.half = out.shape[0] if out.ndim else 1
    if call.param[0].kind == PB_PARAM_INT:
        args.first = call.param[0].i
        args.start = <double>args.first
    else:
        args.start = call.param[0].d
        args.first = <int64_t>args.start
    if call.param[1].kind == PB_PARAM_INT:
        args.step = call.param[1].i
        args.width = <double>args.step
    else:
        args.width = call.param[1].d
        args.step = <int64_t>args.width
    args.end = 0
    return create(call, &args)


cdef int kernel_linspace(pb_call *call) noexcept nogil:
    cdef create_arguments args
    cdef pb_array *out = call.out[0]
    if out.dtype != PB_F32 and out.dtype != PB_F64:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    args.count = out.shape[0] if out.ndim else 1
    args.half = args.count // 2
    args.first = args.step = 0
    args.start = call.param[0].d
    args.end = call.param[1].d
    args.width = call.param[2].d
    return create(call, &args)


KERNELS = {
    "arange": new_kernel(sum([1 << dtype for dtype in COUNTED]), kernel_arange),
    "linspace": new_kernel(1 << PB_F32 | 1 << PB_F64, kernel_linspace),
}
