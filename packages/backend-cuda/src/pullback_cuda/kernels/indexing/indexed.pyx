"""Elements that index arrays select.

A position of the index arrays selects a row of elements of the "far" array, which is indexed; the
"near" array has an element for each. Along one dim every element has an index of its own, and a row
is one element. More index arrays than a kernel takes are folded first: into one array of offsets.
"""

from libc.stdint cimport INT64_MIN, int64_t

from pullback.abi cimport PB_E_VALUE, PB_OK, pb_array, pb_call
from pullback_cuda.kernels.common.arrays cimport count_elements, item_sizes
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, pb_cuda_kernel, workspace_alloc, workspace_free)
from pullback_cuda.kernels.strides.indexer cimport (
    INDEXER_DIMS, THREADS, add_dim, blocks_for, merge_dims, start_walk, step_of, volume, walk,
    write_dims, write_steps)
from pullback_cuda.runtime.failures cimport fail, failure_record

cdef pb_cuda_kernel *keys_8 = kernel_named("index", "keys_8")


# ---- calls ---------------------------------------------------------------------------------------

cdef int select_dim(pb_call *call, selection *chosen, pb_array *index, pb_array *near,
                    pb_array *far, int dim) noexcept nogil:
    """Describe a call with an index for every near element, in one dim."""
    cdef int64_t steps[3]
    cdef int d
    chosen.count = 1
    chosen.negative = False
    chosen.indices = NULL
    chosen.dim = dim
    chosen.near = near
    chosen.far = far
    chosen.size = item_sizes[near.dtype]
    chosen.folded = NULL
    start_walk(&chosen.positions, 3)
    start_walk(&chosen.row, 2)
    # An array without dims stands for one with a single element in its dim.
    if (max(index.ndim, 1) != max(far.ndim, 1) or max(index.ndim, 1) != max(near.ndim, 1)
            or not 0 <= dim < max(far.ndim, 1)):
        return fail(call, PB_E_VALUE, b"the index does not fit the array")
    for d in range(index.ndim):
        steps[NEAR] = step_of(near, d) if d < near.ndim else 0
        steps[FAR] = 0 if d == dim else step_of(far, d)
        steps[FIRST_INDEX] = step_of(index, d)
        add_dim(&chosen.positions, index.shape[d], steps)
    return PB_OK


cdef int select_first(pb_call *call, selection *chosen, pb_array **indices, int count,
                      pb_array *near, pb_array *far) noexcept nogil:
    """Describe a call with index arrays for the first dims."""
    cdef int64_t steps[6]
    cdef int d, k, leading
    chosen.count = count
    chosen.negative = True
    chosen.indices = indices
    chosen.dim = 0
    chosen.near = near
    chosen.far = far
    chosen.size = item_sizes[near.dtype]
    chosen.folded = NULL
    if count < 1 or count > far.ndim:
        return fail(call, PB_E_VALUE, b"the number of index arrays does not fit the array")
    leading = indices[0].ndim
    start_walk(&chosen.positions, FIRST_INDEX + min(count, <int>INDEX_ARRAYS))
    start_walk(&chosen.row, 2)
    for d in range(near.ndim):
        steps[NEAR] = step_of(near, d)
        steps[FAR] = 0
        if d >= leading:
            steps[FAR] = step_of(far, d - leading + count)
            add_dim(&chosen.row, near.shape[d], steps)
            continue
        for k in range(min(count, <int>INDEX_ARRAYS)):
            steps[FIRST_INDEX + k] = step_of(indices[k], d)
        add_dim(&chosen.positions, near.shape[d], steps)
    return PB_OK


cdef int64_t far_length(const selection *chosen, int k) noexcept nogil:
    """Return the length of the far dim that an index array selects along."""
    return chosen.far.shape[chosen.dim + k] if chosen.far.ndim else 1


cdef int64_t far_step(const selection *chosen, int k) noexcept nogil:
    """Return how many elements apart neighbours along that dim are."""
    return step_of(chosen.far, chosen.dim + k) if chosen.far.ndim else 0


# ---- many index arrays ---------------------------------------------------------------------------

cdef int fold_walk(pb_call *call, const selection *chosen, keys_arguments *args, const walk *dims,
                   int start, int first, int64_t *out, const int64_t *offsets) noexcept nogil:
    """Add up what index arrays from number ``start`` on select, along dims from ``first`` on."""
    cdef int64_t moved[INDEX_ARRAYS]
    cdef int64_t i, inner
    cdef int k, code
    if dims.ndim - first > INDEXER_DIMS:
        inner = volume(dims, first + 1, dims.ndim)
        for i in range(dims.shape[first]):
            for k in range(dims.operands):
                moved[k] = offsets[k] + i * dims.steps[k][first]
            code = fold_walk(call, chosen, args, dims, start, first + 1, out + i * inner, moved)
            if code != PB_OK:
                return code
        return PB_OK
    write_dims(dims, first, dims.ndim, &args.where)
    for k in range(INDEXER_DIMS):
        args.far_steps[k] = 0
    for k in range(dims.operands):
        args.by.index[k] = <const int64_t *>chosen.indices[start + k].data + offsets[k]
        write_steps(dims, first, dims.ndim, k, args.by.index_steps[k])
    args.keys = out
    return launch(call, keys_8, args, sizeof(args[0]), blocks_for(
        call, args.where.total, POSITIONS), THREADS, 0)


cdef int fold_indices(pb_call *call, selection *chosen, int64_t scale) noexcept nogil:
    """Replace more index arrays than a kernel takes by one of the offsets that they add up to.

    Offsets are multiples of ``scale``, in which they are counted.
    """
    cdef keys_arguments args
    cdef int64_t steps[INDEX_ARRAYS]
    cdef int64_t inner = 1
    cdef walk dims
    cdef int d, k, start, code
    cdef int ndim = chosen.indices[0].ndim if chosen.indices != NULL else 0
    if chosen.count <= INDEX_ARRAYS:
        return PB_OK
    chosen.folded_bytes = count_elements(chosen.indices[0]) * 8
    code = workspace_alloc(call, chosen.folded_bytes, <void **>&chosen.folded)
    if code != PB_OK:
        return code
    args.winner = NULL
    args.base = 0
    args.nowhere = INT64_MIN
    args.adds = False
    args.by.negative = chosen.negative
    args.by.folded = False
    args.by.failure = failure_record(call)
    start = 0
    while start < chosen.count:
        args.by.count = min(<int>INDEX_ARRAYS, chosen.count - start)
        start_walk(&dims, args.by.count)
        for d in range(ndim):
            for k in range(args.by.count):
                steps[k] = step_of(chosen.indices[start + k], d)
            add_dim(&dims, chosen.indices[0].shape[d], steps)
        merge_dims(&dims, 0)
        for k in range(args.by.count):
            args.by.dim[k] = chosen.dim + start + k
            args.by.length[k] = far_length(chosen, start + k)
            args.by.step[k] = far_step(chosen, start + k) // scale
            steps[k] = 0
        code = fold_walk(call, chosen, &args, &dims, start, 0, <int64_t *>chosen.folded, steps)
        if code != PB_OK:
            unfold(call, chosen)
            return code
        args.adds = True
        start += args.by.count
    # From now on there is one index array: the offsets, which are in the order of positions.
    chosen.count = 1
    chosen.positions.operands = FIRST_INDEX + 1
    for d in range(chosen.positions.ndim - 1, -1, -1):
        chosen.positions.steps[FIRST_INDEX][d] = inner
        inner *= chosen.positions.shape[d]
    return PB_OK


cdef void unfold(pb_call *call, selection *chosen) noexcept nogil:
    """Give back the memory of offsets."""
    if chosen.folded != NULL:
        workspace_free(call, chosen.folded, chosen.folded_bytes)


# ---- for kernels ---------------------------------------------------------------------------------

cdef void write_arrays(pb_call *call, const selection *chosen, const walk *dims, int first,
                       int64_t scale, index_arrays *by) noexcept nogil:
    """Describe the index arrays to a kernel, all but their data, along dims from ``first`` on.

    What indices add to offsets are multiples of ``scale``, in which they are counted.
    """
    cdef int k
    by.count = chosen.count
    by.negative = chosen.negative
    by.folded = chosen.folded != NULL
    by.failure = failure_record(call)
    for k in range(chosen.count):
        by.dim[k] = chosen.dim + k
        by.length[k] = far_length(chosen, k)
        by.step[k] = far_step(chosen, k) // scale
        write_steps(dims, first, dims.ndim, FIRST_INDEX + k, by.index_steps[k])
