"""Cholesky and LU decompositions, and systems of equations, by cuBLAS and cuSOLVER."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from pullback.abi cimport PB_C128, PB_F32, PB_F64, PB_I32, PB_OK, pb_array, pb_call
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, new_kernel, pb_cuda_kernel, sm_count)
from pullback_cuda.kernels.linalg.batches cimport (
    add_part, part, routine_named, run_task, start, task)
from pullback_cuda.kernels.linalg.matrices cimport LIBRARY_DTYPES, fill_matrices
from pullback_cuda.runtime.failures cimport failure_check, failure_record

from pullback_cuda.kernels.common.names import DTYPES

cdef extern from "kernels/linalg/decompose.h":
    ctypedef struct diagonal_arguments "struct diagonal_arguments":
        const void *matrices
        int32_t *codes
        int64_t batch, n

    ctypedef struct swaps_arguments "struct swaps_arguments":
        int64_t *out
        const int32_t *swaps
        void *failure
        int64_t batch, rows, count
        int64_t out_strides[2]
        int64_t swap_strides[2]

cdef PyObject *cholesky = routine_named("factor_cholesky")
cdef PyObject *triangular = routine_named("triangular")
cdef PyObject *lu = routine_named("factor_lu")
cdef PyObject *solve = routine_named("solve")
cdef pb_cuda_kernel *swapper = kernel_named("decompose", "swaps")
cdef pb_cuda_kernel *diagonals[4]


def _find():
    for code, name in enumerate(DTYPES[<int>PB_F32:<int>PB_C128 + 1]):
        diagonals[code] = kernel_named("decompose", f"diagonal_{name}")


_find()


cdef int check_diagonal(task *of) noexcept nogil:
    """Find the first pivots that are NaN, which a library may pass over."""
    cdef diagonal_arguments args
    cdef part *a = &of.parts[0]
    args.matrices, args.codes, args.batch, args.n = a.data, of.codes, of.batch, a.rows
    return launch(of.call, diagonals[a.dtype - <int>PB_F32], &args, sizeof(args),
                  min(of.batch, 64 * sm_count(of.call)), 256, 0)


cdef int kernel_cholesky(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    if not start(&of, call, cholesky):
        return PB_OK
    add_part(&of, a, call.out[0], a.dtype, a.shape[1], a.shape[1]).lower = True
    of.after, of.info = check_diagonal, call.out[1]
    return run_task(&of)


cdef int kernel_triangular(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef pb_array *b = call.in_[1]
    if not start(&of, call, triangular) or b.shape[2] == 0:
        return PB_OK
    # Of few large matrices cuBLAS solves one after the other faster.
    of.at_once = of.batch > 1 and (of.batch > 8 or a.shape[1] < 64)
    of.options[0], of.options[1] = call.param[0].i != 0, call.param[1].i != 0
    add_part(&of, a, NULL, a.dtype, a.shape[1], a.shape[1])
    add_part(&of, b, call.out[0], a.dtype, b.shape[1], b.shape[2])
    return run_task(&of)


cdef int kernel_lu(pb_call *call) noexcept nogil:
    cdef task of
    cdef part *pivots
    cdef pb_array *a = call.in_[0]
    cdef int64_t small = min(a.shape[1], a.shape[2])
    if not start(&of, call, lu):
        return PB_OK
    of.at_once = of.at_once and a.shape[1] == a.shape[2]
    add_part(&of, a, call.out[0], a.dtype, a.shape[1], a.shape[2])
    # Bytes are bytes: int32 travels as float32 does. Of int64, the lower half is read.
    pivots = add_part(&of, NULL, call.out[1], PB_F32, small if of.at_once else 2 * small, 1)
    if not of.at_once:
        pivots.strides[1], pivots.apart = 2, True
    of.info = call.out[2]
    return run_task(&of)


cdef int kernel_solve(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef pb_array *b = call.in_[1]
    cdef pb_array *info = call.out[1]
    cdef int64_t *strides = [0, 0, info.strides[0]]
    cdef int64_t *shape = [1, 1, a.shape[0]]
    if not start(&of, call, solve):
        return fill_matrices(call, PB_F32, info.data, strides, shape, 0)
    add_part(&of, a, NULL, a.dtype, a.shape[1], a.shape[1])
    add_part(&of, b, call.out[0], a.dtype, b.shape[1], b.shape[2])
    add_part(&of, NULL, NULL, PB_F64, a.shape[1], 1)    # pivots of up to 8 bytes
    of.info, of.marked = info, True
    return run_task(&of)


cdef int kernel_swaps(pb_call *call) noexcept nogil:
    cdef swaps_arguments args
    cdef pb_array *swaps = call.in_[0]
    cdef pb_array *out = call.out[0]
    cdef int code, d
    if out.shape[0] == 0 or out.shape[1] == 0:
        return PB_OK
    args.out, args.swaps = <int64_t *>out.data, <const int32_t *>swaps.data
    args.failure = failure_record(call)
    args.batch, args.rows, args.count = out.shape[0], out.shape[1], swaps.shape[1]
    for d in range(2):
        args.out_strides[d], args.swap_strides[d] = out.strides[d], swaps.strides[d]
    code = launch(call, swapper, &args, sizeof(args), min((args.batch + 63) // 64, 4096), 64, 0)
    return failure_check(call) if code == PB_OK else code


KERNELS = {
    "cholesky_factor": new_kernel(LIBRARY_DTYPES, kernel_cholesky),
    "triangular": new_kernel(LIBRARY_DTYPES, kernel_triangular),
    "lu_factor": new_kernel(LIBRARY_DTYPES, kernel_lu),
    "permutation_of_swaps": new_kernel(1 << <int>PB_I32, kernel_swaps),
    "solve": new_kernel(LIBRARY_DTYPES, kernel_solve),
}
