"""The same elements in another order, or cut to a triangle."""

from libc.stdint cimport int32_t, int64_t, uint64_t

from pullback.abi cimport PB_E_VALUE, PB_MASK_ALL, PB_OK, pb_array, pb_call
from pullback_cuda.kernels.common.arrays cimport count_elements, item_sizes
from pullback_cuda.kernels.common.launch cimport kernel_named, launch, new_kernel, pb_cuda_kernel
from pullback_cuda.kernels.strides.indexer cimport (
    INDEXER_DIMS, THREADS, NARROW, add_dim, blocks_for, make_divider, merge_dims, indexer_dims,
    int_divider, start_walk, step_of, walk, write_dims, write_steps)
from pullback_cuda.runtime.failures cimport fail


cdef extern from "kernels/shape/rearrange.h":
    ctypedef struct flip_arguments:
        void *out
        const void *input
        indexer_dims where
        int64_t out_steps[INDEXER_DIMS]
        int64_t input_steps[INDEXER_DIMS]
    ctypedef struct triangle_arguments:
        void *out
        const void *input
        int64_t total
        int64_t diagonal
        int32_t upper
        int32_t vector
        int32_t narrow
        int_divider columns
        int_divider rows
        int64_t out_step
        int64_t input_step
        indexer_dims where
        int64_t out_steps[INDEXER_DIMS]
        int64_t input_steps[INDEXER_DIMS]

cdef enum:
    AT_ONCE = 4     # elements of a thread

cdef pb_cuda_kernel *flips[5]
cdef pb_cuda_kernel *triangles[5]
for _shift in range(5):
    flips[_shift] = kernel_named("rearrange", f"flip_{1 << _shift}")
    triangles[_shift] = kernel_named("rearrange", f"triangle_{1 << _shift}")


cdef int shift_of(int64_t size) noexcept nogil:
    cdef int shift = 0
    while size > 1:
        size >>= 1
        shift += 1
    return shift


# ---- flip ----------------------------------------------------------------------------------------

cdef int64_t widen_elements(walk *dims, const void *first, const void *second,
                            int64_t size) noexcept nogil:
    """Merge elements that are contiguous in both operands into larger ones; return their size."""
    cdef int64_t factor = 16 // size
    cdef int d, k, last = dims.ndim - 1
    cdef bint fits
    if last < 0 or dims.steps[0][last] != 1 or dims.steps[1][last] != 1:
        return size
    while factor > 1:
        fits = (dims.shape[last] % factor == 0
                and (<uint64_t>first | <uint64_t>second) % <uint64_t>(factor * size) == 0)
        for d in range(last):
            for k in range(2):
                fits = fits and dims.steps[k][d] % factor == 0
        if fits:
            break
        factor //= 2
    dims.shape[last] //= factor
    for d in range(last):
        for k in range(2):
            dims.steps[k][d] //= factor
    return size * factor


cdef int copy_walk(pb_call *call, const walk *dims, int first, char *out, const char *source,
                   int64_t size) noexcept nogil:
    """Copy along the dims from ``first`` on; the host iterates over excess dims."""
    cdef flip_arguments args
    cdef int64_t i
    cdef int code
    if dims.ndim - first > INDEXER_DIMS:
        for i in range(dims.shape[first]):
            code = copy_walk(call, dims, first + 1, out + i * dims.steps[0][first] * size,
                             source + i * dims.steps[1][first] * size, size)
            if code != PB_OK:
                return code
        return PB_OK
    args.out = out
    args.input = source
    write_dims(dims, first, dims.ndim, &args.where)
    write_steps(dims, first, dims.ndim, 0, args.out_steps)
    write_steps(dims, first, dims.ndim, 1, args.input_steps)
    return launch(call, flips[shift_of(size)], &args, sizeof(args),
                  blocks_for(call, args.where.total, THREADS * AT_ONCE), THREADS, 0)


cdef int kernel_flip(pb_call *call) noexcept nogil:
    """Copy from the other end, with the opposite steps."""
    cdef pb_array *out = call.out[0]
    cdef pb_array *source = call.in_[0]
    cdef int64_t size = item_sizes[out.dtype], start = 0
    cdef int64_t steps[2]
    cdef walk dims
    cdef int d, k
    cdef bint turned
    if count_elements(out) == 0:
        return PB_OK
    start_walk(&dims, 2)
    for d in range(out.ndim):
        turned = False
        for k in range(call.param[0].count):
            turned = turned or call.param[0].ints[k] == d
        steps[0] = step_of(out, d)
        steps[1] = step_of(source, d)
        if turned:
            start += steps[1] * (out.shape[d] - 1)
            steps[1] = -steps[1]
        add_dim(&dims, out.shape[d], steps)
    merge_dims(&dims, 0)
    start *= size
    size = widen_elements(&dims, out.data, <char *>source.data + start, size)
    return copy_walk(call, &dims, 0, <char *>out.data, <char *>source.data + start, size)


# ---- triangles -----------------------------------------------------------------------------------

cdef int cut_walk(pb_call *call, triangle_arguments *args, const walk *dims, int first, char *out,
                  const char *source, int64_t size) noexcept nogil:
    """Cut the matrices along the dims from ``first`` on; the last dim is that of the rows."""
    cdef int64_t i
    cdef int code
    if dims.ndim - first > INDEXER_DIMS:
        for i in range(dims.shape[first]):
            code = cut_walk(call, args, dims, first + 1, out + i * dims.steps[0][first] * size,
                            source + i * dims.steps[1][first] * size, size)
            if code != PB_OK:
                return code
        return PB_OK
    args.out = out
    args.input = source
    write_dims(dims, first, dims.ndim, &args.where)
    write_steps(dims, first, dims.ndim, 0, args.out_steps)
    write_steps(dims, first, dims.ndim, 1, args.input_steps)
    args.total = args.where.total * args.columns.size
    args.narrow = args.total < <int64_t>NARROW
    return launch(call, triangles[shift_of(size)], args, sizeof(args[0]),
                  blocks_for(call, args.total, THREADS), THREADS, 0)


cdef bint fits_vectors(const triangle_arguments *args, const walk *dims, pb_array *out,
                       pb_array *source, int64_t size, int64_t columns) noexcept nogil:
    """Return whether rows are made of whole vectors of 16 bytes."""
    cdef int64_t count = 16 // size
    cdef int d
    if (args.out_step != 1 or args.input_step != 1 or columns % count
            or (<uint64_t>out.data | <uint64_t>source.data) % 16):
        return False
    for d in range(dims.ndim):
        if dims.steps[0][d] % count or dims.steps[1][d] % count:
            return False
    return True


cdef int cut_triangle(pb_call *call, bint upper) noexcept nogil:
    cdef pb_array *out = call.out[0]
    cdef pb_array *source = call.in_[0]
    cdef triangle_arguments args
    cdef int64_t size = item_sizes[out.dtype], rows, columns
    cdef int64_t steps[2]
    cdef walk dims
    cdef int d
    if out.ndim < 2:
        return fail(call, PB_E_VALUE, b"a triangle needs two dimensions")
    if count_elements(out) == 0:
        return PB_OK
    rows = out.shape[out.ndim - 2]
    columns = out.shape[out.ndim - 1]
    start_walk(&dims, 2)
    for d in range(out.ndim - 1):
        steps[0] = step_of(out, d)
        steps[1] = step_of(source, d)
        add_dim(&dims, out.shape[d], steps)
    merge_dims(&dims, 0)
    args.upper = upper
    args.diagonal = max(-rows, min(call.param[0].i, columns))
    args.out_step = 1 if columns == 1 else out.strides[out.ndim - 1]
    args.input_step = 1 if columns == 1 else source.strides[out.ndim - 1]
    args.vector = 1
    if fits_vectors(&args, &dims, out, source, size, columns):
        args.vector = <int32_t>(16 // size)
    make_divider(&args.columns, columns // args.vector)
    make_divider(&args.rows, rows)
    return cut_walk(call, &args, &dims, 0, <char *>out.data, <char *>source.data, size)


cdef int kernel_tril(pb_call *call) noexcept nogil:
    return cut_triangle(call, False)


cdef int kernel_triu(pb_call *call) noexcept nogil:
    return cut_triangle(call, True)


KERNELS = {
    "flip": new_kernel(PB_MASK_ALL, kernel_flip),
    "tril": new_kernel(PB_MASK_ALL, kernel_tril),
    "triu": new_kernel(PB_MASK_ALL, kernel_triu),
}
