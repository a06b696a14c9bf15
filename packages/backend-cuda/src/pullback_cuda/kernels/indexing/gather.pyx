"""Gathers elements at index arrays, along one dim or the first few."""

from libc.stdint cimport int64_t, uint64_t

from pullback.abi cimport PB_MASK_ALL, PB_OK, pb_call
from pullback_cuda.kernels.common.arrays cimport count_elements
from pullback_cuda.kernels.indexing.indexed cimport (
    FAR, FIRST_INDEX, NEAR, POSITIONS, far_step, fold_indices, select_dim, select_first,
    selection, take_arguments, unfold, write_arrays)
from pullback_cuda.kernels.common.launch cimport kernel_named, launch, new_kernel, pb_cuda_kernel
from pullback_cuda.kernels.strides.indexer cimport (
    INDEXER_DIMS, THREADS, add_dim, blocks_for, merge_dims, walk, write_dims, write_steps)
from pullback_cuda.runtime.failures cimport failure_check

cdef pb_cuda_kernel *takers[5]
for _shift in range(5):
    takers[_shift] = kernel_named("gather", f"take_{1 << _shift}")


cdef int64_t widen_elements(const selection *chosen, walk *dims) noexcept nogil:
    """Merge contiguous elements as far as memory is aligned; return how many become one."""
    cdef int64_t factor = 16 // chosen.size
    cdef int d, k, last = dims.ndim - 1
    cdef bint fits
    if last < 0 or dims.steps[NEAR][last] != 1 or dims.steps[FAR][last] != 1:
        return 1
    for k in range(chosen.count):
        if dims.steps[FIRST_INDEX + k][last] != 0:
            return 1
    while factor > 1:
        fits = (dims.shape[last] % factor == 0 and (
            <uint64_t>chosen.near.data | <uint64_t>chosen.far.data) % <uint64_t>(
                factor * chosen.size) == 0)
        for d in range(last):
            fits = (fits and dims.steps[NEAR][d] % factor == 0
                    and dims.steps[FAR][d] % factor == 0)
        for k in range(chosen.count):
            fits = fits and chosen.folded == NULL and far_step(chosen, k) % factor == 0
        if fits:
            break
        factor //= 2
    dims.shape[last] //= factor
    for d in range(last):
        dims.steps[NEAR][d] //= factor
        dims.steps[FAR][d] //= factor
    return factor


cdef int take_walk(pb_call *call, const selection *chosen, take_arguments *args, const walk *dims,
                   int first, int64_t factor, const int64_t *offsets) noexcept nogil:
    """Gather the elements of the dims from ``first`` on, ``factor`` of them as one."""
    cdef int64_t moved[6]
    cdef int64_t i, size = chosen.size * factor
    cdef int k, code, shift = 0
    if dims.ndim - first > INDEXER_DIMS:
        for i in range(dims.shape[first]):
            for k in range(dims.operands):
                moved[k] = offsets[k] + i * dims.steps[k][first]
            code = take_walk(call, chosen, args, dims, first + 1, factor, moved)
            if code != PB_OK:
                return code
        return PB_OK
    write_dims(dims, first, dims.ndim, &args.where)
    write_steps(dims, first, dims.ndim, NEAR, args.near_steps)
    write_steps(dims, first, dims.ndim, FAR, args.far_steps)
    write_arrays(call, chosen, dims, first, factor, &args.by)
    for k in range(chosen.count):
        args.by.index[k] = <const int64_t *>(
            chosen.folded if chosen.folded != NULL else
            chosen.indices[k].data) + offsets[FIRST_INDEX + k]
    args.near_data = <char *>chosen.near.data + offsets[NEAR] * size
    args.far_data = <char *>chosen.far.data + offsets[FAR] * size
    while size > 1:
        size >>= 1
        shift += 1
    return launch(call, takers[shift], args, sizeof(args[0]), blocks_for(
        call, args.where.total, POSITIONS), THREADS, 0)


cdef int take(pb_call *call, selection *chosen) noexcept nogil:
    """Gather all elements; the dims of a row are positions with the same index."""
    cdef take_arguments args
    cdef int64_t offsets[6]
    cdef int64_t steps[6]
    cdef int64_t factor
    cdef walk dims
    cdef int d, k, code = fold_indices(call, chosen, 1)
    if code != PB_OK:
        return code
    dims = chosen.positions
    for k in range(6):
        steps[k] = offsets[k] = 0
    for d in range(chosen.row.ndim):
        steps[NEAR] = chosen.row.steps[NEAR][d]
        steps[FAR] = chosen.row.steps[FAR][d]
        add_dim(&dims, chosen.row.shape[d], steps)
    merge_dims(&dims, 0)
    factor = widen_elements(chosen, &dims)
    code = take_walk(call, chosen, &args, &dims, 0, factor, offsets)
    unfold(call, chosen)
    return failure_check(call) if code == PB_OK else code


cdef int kernel_gather(pb_call *call) noexcept nogil:
    cdef selection chosen
    cdef int code
    if count_elements(call.in_[1]) == 0:
        return PB_OK
    code = select_dim(call, &chosen, call.in_[1], call.out[0], call.in_[0],
                      <int>call.param[0].i)
    if code != PB_OK:
        return code
    chosen.indices = call.in_ + 1
    return take(call, &chosen)


cdef int kernel_index(pb_call *call) noexcept nogil:
    cdef selection chosen
    cdef int code = select_first(call, &chosen, call.in_ + 1, call.nin - 1, call.out[0],
                                 call.in_[0])
    if code != PB_OK or count_elements(call.out[0]) == 0:
        return code
    return take(call, &chosen)


KERNELS = {
    "gather": new_kernel(PB_MASK_ALL, kernel_gather),
    "index": new_kernel(PB_MASK_ALL, kernel_index),
}
