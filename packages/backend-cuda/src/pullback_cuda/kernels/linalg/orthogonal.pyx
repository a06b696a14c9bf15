"""QR decompositions, singular values and eigenvalues, by cuBLAS and cuSOLVER."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from pullback.abi cimport (
    PB_C64, PB_C128, PB_E_RUNTIME, PB_F32, PB_F64, PB_OK, pb_array, pb_call)
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, new_kernel, pb_cuda_kernel, sm_count)
from pullback_cuda.kernels.linalg.batches cimport (
    add_part, part, routine_named, run_task, start, task)
from pullback_cuda.kernels.linalg.matrices cimport LIBRARY_DTYPES, fill_matrices
from pullback_cuda.runtime.failures cimport fail

from pullback_cuda.kernels.common.names import DTYPES

cdef extern from "kernels/linalg/decompose.h":
    ctypedef struct reflections_arguments "struct reflections_arguments":
        void *out
        const void *vectors
        const void *tau
        int64_t batch, rows, columns, count
        int64_t out_strides[3]
        int64_t vector_strides[3]
        int64_t tau_strides[2]

    ctypedef struct pairs_arguments "struct pairs_arguments":
        void *out
        const void *values
        const void *vectors
        int64_t batch, n

cdef PyObject *qr = routine_named("factor_qr")
cdef PyObject *reflections = routine_named("reflections")
cdef PyObject *svd = routine_named("svd")
cdef PyObject *eigh = routine_named("eigh")
cdef PyObject *eig = routine_named("eig")
cdef pb_cuda_kernel *reflectors[4]
cdef pb_cuda_kernel *pairers[2]


def _find():
    for code, name in enumerate(DTYPES[<int>PB_F32:<int>PB_C128 + 1]):
        reflectors[code] = kernel_named("decompose", f"reflect_{name}")
        if code < 2:
            pairers[code] = kernel_named("decompose", f"pairs_{name}")


_find()


# ---- QR ------------------------------------------------------------------------------------------

cdef int kernel_qr(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    if not start(&of, call, qr):
        return PB_OK
    # Nothing says that cuBLAS makes the diagonals of complex R real.
    of.at_once = of.at_once and a.dtype < PB_C64
    add_part(&of, a, call.out[0], a.dtype, a.shape[1], a.shape[2])
    add_part(&of, NULL, call.out[1], a.dtype, min(a.shape[1], a.shape[2]), 1)
    return run_task(&of)


cdef int reflect(pb_call *call) noexcept nogil:
    """Make the columns by a kernel of our own: cuSOLVER has no call for many small matrices."""
    cdef reflections_arguments args
    cdef pb_array *vectors = call.in_[0]
    cdef pb_array *tau = call.in_[1]
    cdef pb_array *out = call.out[0]
    cdef int d
    args.out, args.vectors, args.tau = out.data, vectors.data, tau.data
    args.batch, args.rows, args.columns = out.shape[0], out.shape[1], out.shape[2]
    args.count = tau.shape[1]
    for d in range(3):
        args.out_strides[d], args.vector_strides[d] = out.strides[d], vectors.strides[d]
    args.tau_strides[0], args.tau_strides[1] = tau.strides[0], tau.strides[1]
    return launch(call, reflectors[out.dtype - <int>PB_F32], &args, sizeof(args),
                  min((args.batch * args.columns + 7) // 8, 64 * sm_count(call)), 256, 0)


cdef int kernel_reflections(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *vectors = call.in_[0]
    cdef pb_array *tau = call.in_[1]
    cdef pb_array *out = call.out[0]
    if out.shape[0] == 0 or out.shape[1] == 0 or out.shape[2] == 0:
        return PB_OK
    if out.shape[1] < out.shape[2] or tau.shape[1] > min(vectors.shape[2], out.shape[2]):
        return fail(call, PB_E_RUNTIME, b"reflections: shapes do not fit")
    if not start(&of, call, reflections) or of.at_once or vectors.shape[2] > out.shape[2]:
        return reflect(call)
    add_part(&of, vectors, out, out.dtype, out.shape[1], out.shape[2])
    add_part(&of, tau, NULL, out.dtype, tau.shape[1], 1)
    return run_task(&of)


# ---- singular values -----------------------------------------------------------------------------

cdef int real_dtype(int dtype) noexcept nogil:
    return PB_F32 if dtype == PB_F32 or dtype == PB_C64 else PB_F64


cdef int write_identity(task *of) noexcept nogil:
    """Of a matrix without elements all vectors of the longer side may be any: unit vectors."""
    cdef part *lefts = &of.parts[2]
    cdef int64_t *every = [1, 1, of.batch * lefts.rows * lefts.columns]
    cdef int64_t *diagonal = [of.batch, 1, min(lefts.rows, lefts.columns)]
    cdef int64_t *steps = [lefts.rows * lefts.columns, 0, lefts.rows + 1]
    cdef int64_t *dense = [0, 0, 1]
    cdef int64_t *codes = [1, 1, of.batch]
    cdef int code = fill_matrices(of.call, lefts.dtype, lefts.data, dense, every, 0)
    if code == PB_OK:   # four bytes that are 0 are the float 0 too
        code = fill_matrices(of.call, PB_F32, of.codes, dense, codes, 0)
    if code == PB_OK:
        code = fill_matrices(of.call, lefts.dtype, lefts.data, steps, diagonal, 1)
    return code


cdef void begin_svd(task *of, pb_call *call, bint wide) noexcept nogil:
    """Add the matrix and the values.

    cuSOLVER wants at least as many rows as columns. Of a wider matrix the transpose is decomposed,
    whose factors are the transposes of those that are wanted, in the other order.
    """
    cdef pb_array *a = call.in_[0]
    cdef pb_array *values = call.out[1 if call.nout == 4 else 0]
    cdef int64_t rows = max(a.shape[1], a.shape[2]), columns = min(a.shape[1], a.shape[2])
    add_part(of, a, NULL, a.dtype, rows, columns).turned = wide
    add_part(of, NULL, values, real_dtype(a.dtype), columns, 1)
    of.info, of.marked, of.screened, of.of_nan = call.out[call.nout - 1], True, columns > 0, 1


cdef int kernel_svd(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef bint wide = a.shape[1] < a.shape[2]
    cdef pb_array *lefts = call.out[2 if wide else 0]       # or their transposes
    cdef pb_array *rights = call.out[0 if wide else 2]
    cdef int64_t left = lefts.shape[1 if wide else 2], right = rights.shape[2 if wide else 1]
    if not start(&of, call, svd):
        if of.batch == 0:
            return PB_OK
        of.routine, of.after = NULL, write_identity
    begin_svd(&of, call, wide)
    of.options[0], of.options[1] = True, left > of.parts[0].columns
    add_part(&of, NULL, lefts, a.dtype, of.parts[0].rows, left).turned = wide
    add_part(&of, NULL, rights, a.dtype, right, of.parts[0].columns).turned = wide
    return run_task(&of)


cdef int kernel_svdvals(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    if not start(&of, call, svd):
        return PB_OK
    begin_svd(&of, call, a.shape[1] < a.shape[2])
    return run_task(&of)


# ---- eigenvalues ---------------------------------------------------------------------------------

cdef int kernel_eigh(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef pb_array *vectors = call.out[1]
    if not start(&of, call, eigh):
        return PB_OK
    of.options[0] = vectors.shape[1] != 0
    add_part(&of, a, vectors if of.options[0] else NULL, a.dtype, a.shape[1], a.shape[1])
    add_part(&of, NULL, call.out[0], real_dtype(a.dtype), a.shape[1], 1)
    of.info, of.marked, of.screened = call.out[2], True, True
    return run_task(&of)


cdef int widen_pairs(task *of) noexcept nogil:
    """Turn real vectors of real matrices into complex ones."""
    cdef pairs_arguments args
    cdef int64_t n = of.parts[0].rows, blocks = (of.batch * n * n + 255) // 256
    args.out, args.values, args.vectors = of.parts[3].data, of.parts[1].data, of.parts[2].data
    args.batch, args.n = of.batch, n
    return launch(of.call, pairers[of.parts[0].dtype - <int>PB_F32], &args, sizeof(args),
                  min(blocks, 64 * sm_count(of.call)), 256, 0)


cdef int kernel_eig(pb_call *call) noexcept nogil:
    cdef task of
    cdef pb_array *a = call.in_[0]
    cdef pb_array *values = call.out[0]
    cdef pb_array *vectors = call.out[1]
    cdef int64_t n = a.shape[1]
    if not start(&of, call, eig):
        return PB_OK
    of.options[0] = vectors.shape[1] != 0
    add_part(&of, a, NULL, a.dtype, n, n)
    add_part(&of, NULL, values, values.dtype, n, 1)
    if of.options[0] and a.dtype < PB_C64:
        add_part(&of, NULL, NULL, a.dtype, n, n)
        of.after = widen_pairs
    if of.options[0]:
        add_part(&of, NULL, vectors, values.dtype, n, n)
    of.info, of.marked, of.screened = call.out[2], True, True
    of.of_nan = of.of_infinity = -1
    return run_task(&of)


KERNELS = {
    "qr_factor": new_kernel(LIBRARY_DTYPES, kernel_qr),
    "reflections": new_kernel(LIBRARY_DTYPES, kernel_reflections),
    "svd": new_kernel(LIBRARY_DTYPES, kernel_svd),
    "svdvals": new_kernel(LIBRARY_DTYPES, kernel_svdvals),
    "eigh": new_kernel(LIBRARY_DTYPES, kernel_eigh),
    "eig": new_kernel(LIBRARY_DTYPES, kernel_eig),
}
