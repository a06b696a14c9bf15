"""LDL decompositions, by kernels of our own: cuSOLVER has none of Hermitian matrices."""

from libc.stdint cimport int32_t, int64_t

from pullback.abi cimport PB_C128, PB_F32, PB_OK, pb_array, pb_call
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, new_kernel, pb_cuda_kernel, sm_count)
from pullback_cuda.kernels.linalg.matrices cimport LIBRARY_DTYPES, pack
from pullback_cuda.runtime.failures cimport failure_check, failure_record

from pullback_cuda.kernels.common.names import DTYPES

cdef extern from "kernels/linalg/ldl.h":
    ctypedef struct ldl_factor_arguments "struct ldl_factor_arguments":
        void *matrices
        int32_t *pivots
        int32_t *info
        int64_t batch, n
        int64_t strides[3]
        int64_t pivot_strides[2]
        int64_t info_stride
        int32_t hermitian

    ctypedef struct ldl_solve_arguments "struct ldl_solve_arguments":
        const void *matrices
        const int32_t *pivots
        void *x
        void *failure
        int64_t batch, n, columns
        int64_t strides[3]
        int64_t pivot_strides[2]
        int64_t x_strides[3]
        int32_t hermitian

cdef pb_cuda_kernel *factors[4]
cdef pb_cuda_kernel *solvers[4]


def _find():
    for code, name in enumerate(DTYPES[<int>PB_F32:<int>PB_C128 + 1]):
        factors[code] = kernel_named("ldl", f"ldl_factor_{name}")
        solvers[code] = kernel_named("ldl", f"ldl_solve_{name}")


_find()


cdef int kernel_factor(pb_call *call) noexcept nogil:
    cdef ldl_factor_arguments args
    cdef pb_array *a = call.in_[0]
    cdef pb_array *out = call.out[0]
    cdef pb_array *pivots = call.out[1]
    cdef pb_array *info = call.out[2]
    cdef int code, d
    if a.shape[0] == 0 or a.shape[1] == 0:
        return PB_OK
    code = pack(call, a.dtype, out.data, out.strides, a.data, a.strides, a.shape, NULL, True)
    if code != PB_OK:
        return code
    args.matrices, args.pivots, args.info = (
        out.data, <int32_t *>pivots.data, <int32_t *>info.data)
    args.batch, args.n, args.info_stride = a.shape[0], a.shape[1], info.strides[0]
    for d in range(3):
        args.strides[d] = out.strides[d]
    args.pivot_strides[0], args.pivot_strides[1] = pivots.strides[0], pivots.strides[1]
    args.hermitian = call.param[0].i != 0
    return launch(call, factors[a.dtype - <int>PB_F32], &args, sizeof(args),
                  min(args.batch, 64 * sm_count(call)), 256, 0)


cdef int kernel_solve(pb_call *call) noexcept nogil:
    cdef ldl_solve_arguments args
    cdef pb_array *a = call.in_[0]
    cdef pb_array *pivots = call.in_[1]
    cdef pb_array *b = call.in_[2]
    cdef pb_array *out = call.out[0]
    cdef int code, d
    if b.shape[0] == 0 or b.shape[1] == 0 or b.shape[2] == 0:
        return PB_OK
    code = pack(call, b.dtype, out.data, out.strides, b.data, b.strides, b.shape, NULL)
    if code != PB_OK:
        return code
    args.matrices, args.pivots, args.x, args.failure = (
        a.data, <const int32_t *>pivots.data, out.data, failure_record(call))
    args.batch, args.n, args.columns = b.shape[0], b.shape[1], b.shape[2]
    for d in range(3):
        args.strides[d], args.x_strides[d] = a.strides[d], out.strides[d]
    args.pivot_strides[0], args.pivot_strides[1] = pivots.strides[0], pivots.strides[1]
    args.hermitian = call.param[0].i != 0
    code = launch(call, solvers[a.dtype - <int>PB_F32], &args, sizeof(args),
                  min(args.batch * args.columns, 256 * sm_count(call)), 32, 0)
    return failure_check(call) if code == PB_OK else code


KERNELS = {
    "ldl_factor": new_kernel(LIBRARY_DTYPES, kernel_factor),
    "ldl_solve": new_kernel(LIBRARY_DTYPES, kernel_solve),
}
