"""Writes at index arrays, along one dim or the first few.

First every position gets a key, which identifies its target. Keys that cannot repeat need no more.
Else the last position of each key writes: the largest one, or the last one after a stable sort.
Reductions sort positions by their keys too, so that values are added in the order of positions;
sums of integers need no order.
"""

from libc.stdint cimport int64_t, uint64_t

from pullback.abi cimport (
    PB_BF16, PB_C64, PB_C128, PB_E_DTYPE, PB_F16, PB_I16, PB_I32, PB_I64, PB_MASK_ALL,
    PB_NUM_DTYPES, PB_OK, PB_U8, pb_array, pb_call)
from pullback_cuda.kernels.common.arrays cimport count_elements
from pullback_cuda.kernels.indexing.indexed cimport (
    REDUCE_LAST, RUN_CHUNK, REDUCE_SUM, FAR, FIRST_INDEX, INDEX_ARRAYS, NEAR, POSITIONS,
    clear_arguments, far_length, far_step, fold_indices, keys_arguments, put_arguments,
    select_dim, select_first, selection, unfold, write_arrays)
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, new_kernel, pb_cuda_kernel, workspace_alloc, workspace_free)
from pullback_cuda.kernels.strides.indexer cimport (
    NARROW, INDEXER_DIMS, THREADS, blocks_for, make_divider, merge_dims, volume, walk, write_dims,
    write_steps)
from pullback_cuda.kernels.sorting.sort cimport key_sort, sort_numbers
from pullback_cuda.runtime.failures cimport fail, failure_check

from pullback_cuda.kernels.common.names import DTYPES

cdef enum:
    COPY = -1           # values replace elements; else one of enum reduce_mode
    MOST_32 = 0xFFFFFFFE
    ROOM = 8            # keys for each position up to which an array by key is faster than a sort
    CROWD = 64          # positions for a key, above which sums of integers are sorted, too

cdef pb_cuda_kernel *key_makers[2]
key_makers[0] = kernel_named("index", "keys_4")
key_makers[1] = kernel_named("index", "keys_8")
cdef pb_cuda_kernel *clear = kernel_named("index", "clear")
cdef pb_cuda_kernel *putters[5]
for _shift in range(5):
    putters[_shift] = kernel_named("index", f"put_{1 << _shift}")
cdef pb_cuda_kernel *adders[2]
adders[0] = kernel_named("index", "add_4")
adders[1] = kernel_named("index", "add_8")
cdef pb_cuda_kernel *reducers[PB_NUM_DTYPES]
for _dtype, _name in enumerate(DTYPES):
    reducers[_dtype] = kernel_named("scatter_reduce", f"scatter_reduce_{_name}")
# By the logarithm of the size: which of them only moves elements.
cdef int *movers = [PB_U8, PB_I16, PB_I32, PB_I64, PB_C128]


# A call, and what its keys mean.
ctypedef struct writing:
    selection chosen
    int mode
    int dtype
    bint unique         # no key repeats
    bint wide           # keys have 64 bits
    int64_t length      # keys are below it
    int64_t scale       # the far offset of a key is key * scale + base
    int64_t base

# Part of a call: the host iterates over dims beyond INDEXER_DIMS.
ctypedef struct part:
    char *near
    char *far
    const int64_t *index[INDEX_ARRAYS]
    int position        # the first dim of positions and of rows that is left
    int row


# ---- keys ----------------------------------------------------------------------------------------

cdef int64_t common_divisor(int64_t a, int64_t b) noexcept nogil:
    cdef int64_t rest
    a = -a if a < 0 else a
    b = -b if b < 0 else b
    while b:
        rest = a % b
        a = b
        b = rest
    return a


cdef void choose_keys(writing *work) noexcept nogil:
    """Number the far offsets that positions can select: from the least one on, by their divisor."""
    cdef selection *chosen = &work.chosen
    cdef int64_t least = 0, most = 0, scale = 0, step, length, count
    cdef int d, dims = chosen.positions.ndim
    for d in range(dims + chosen.count):
        if d < dims:
            step = chosen.positions.steps[FAR][d]
            length = chosen.positions.shape[d]
        else:
            step = far_step(chosen, d - dims)
            length = far_length(chosen, d - dims)
        if step != 0 and length > 1:
            scale = common_divisor(scale, step)
            least += min(<int64_t>0, step * (length - 1))
            most += max(<int64_t>0, step * (length - 1))
    work.scale = max(scale, <int64_t>1)
    work.base = least
    work.length = (most - least) // work.scale + 1
    count = volume(&chosen.positions, 0, dims)
    work.wide = work.length > <int64_t>MOST_32 or count > <int64_t>MOST_32


cdef int make_keys(pb_call *call, const writing *work, const part *some, void *keys,
                   void *winner) noexcept nogil:
    """Give each position its key, and each key its last position if there is room for it."""
    cdef keys_arguments args
    cdef const walk *dims = &work.chosen.positions
    cdef int k
    write_dims(dims, some.position, dims.ndim, &args.where)
    write_steps(dims, some.position, dims.ndim, FAR, args.far_steps)
    for k in range(args.where.ndim):
        args.far_steps[k] //= work.scale
    write_arrays(call, &work.chosen, dims, some.position, work.scale, &args.by)
    for k in range(work.chosen.count):
        args.by.index[k] = some.index[k]
    args.base = -work.base // work.scale
    args.nowhere = work.length
    args.keys = keys
    args.winner = winner
    args.adds = False
    return launch(call, key_makers[work.wide], &args, sizeof(args), blocks_for(
        call, args.where.total, POSITIONS), THREADS, 0)


# ---- rows ----------------------------------------------------------------------------------------

cdef int64_t widen_rows(const writing *work, const part *some, walk *row,
                        walk *positions) noexcept nogil:
    """Merge contiguous elements of rows that are copied; return how many become one."""
    cdef int64_t factor = 16 // work.chosen.size
    cdef int d, k, last = row.ndim - 1
    cdef bint fits
    if last < some.row or row.steps[NEAR][last] != 1 or row.steps[FAR][last] != 1:
        return 1
    while factor > 1:
        fits = (row.shape[last] % factor == 0 and work.scale % factor == 0
                and work.base % factor == 0 and (<uint64_t>some.near | <uint64_t>some.far)
                % <uint64_t>(factor * work.chosen.size) == 0)
        for d in range(some.row, last):
            for k in range(2):
                fits = fits and row.steps[k][d] % factor == 0
        for d in range(some.position, positions.ndim):
            fits = fits and positions.steps[NEAR][d] % factor == 0
        if fits:
            break
        factor //= 2
    row.shape[last] //= factor
    for d in range(some.row, last):
        for k in range(2):
            row.steps[k][d] //= factor
    for d in range(some.position, positions.ndim):
        positions.steps[NEAR][d] //= factor
    return factor


cdef void describe_rows(const writing *work, const part *some, put_arguments *args,
                        int64_t *factor) noexcept nogil:
    """Describe positions and rows to a kernel; a factor of 0 merges no elements."""
    cdef walk positions = work.chosen.positions
    cdef walk row = work.chosen.row
    factor[0] = widen_rows(work, some, &row, &positions) if factor[0] else 1
    write_dims(&positions, some.position, positions.ndim, &args.where)
    write_steps(&positions, some.position, positions.ndim, NEAR, args.near_steps)
    write_dims(&row, some.row, row.ndim, &args.row)
    write_steps(&row, some.row, row.ndim, NEAR, args.row_near)
    write_steps(&row, some.row, row.ndim, FAR, args.row_far)
    make_divider(&args.row_total, args.row.total)
    args.count = args.where.total
    args.narrow = args.count * args.row.total < <int64_t>NARROW
    args.nowhere = work.length
    args.scale = work.scale // factor[0]
    args.base = work.base // factor[0]
    args.near_data = some.near
    args.far_data = some.far
    args.wide = work.wide
    args.order = NULL
    args.winner = NULL
    args.partial = NULL
    args.mode = work.mode if work.mode != COPY else REDUCE_LAST
    args.stage = 1


cdef int log_size(int64_t size) noexcept nogil:
    cdef int shift = 0
    while size > 1:
        size >>= 1
        shift += 1
    return shift


cdef int write_unsorted(pb_call *call, const writing *work, const part *some) noexcept nogil:
    """Write each position as it comes: keys do not repeat, or the last one of each is known."""
    cdef put_arguments args
    cdef clear_arguments zeros
    cdef int64_t factor = work.mode == COPY, word = 8 if work.wide else 4, nbytes, keys_bytes
    cdef bint repeats = work.mode == COPY and not work.unique
    cdef pb_cuda_kernel *kernel
    cdef char *memory
    cdef int code = PB_OK
    describe_rows(work, some, &args, &factor)
    keys_bytes = (args.count * word + 255) & -256
    nbytes = keys_bytes + (work.length * word if repeats else 0)
    code = workspace_alloc(call, nbytes, <void **>&memory)
    if code != PB_OK:
        return code
    args.keys = memory
    if repeats:
        args.winner = memory + keys_bytes
        zeros.data = memory + keys_bytes
        zeros.count = work.length * word // 4
        code = launch(call, clear, &zeros, sizeof(zeros), blocks_for(
            call, zeros.count, POSITIONS), THREADS, 0)
    if code == PB_OK:
        code = make_keys(call, work, some, memory, <void *>args.winner)
    if work.mode == COPY:
        kernel = putters[log_size(work.chosen.size * factor)]
    elif is_plain_sum(work):
        kernel = adders[work.dtype == PB_I64]
    else:
        kernel = reducers[work.dtype]
    if code == PB_OK:
        code = launch(call, kernel, &args, sizeof(args), blocks_for(
            call, args.count * args.row.total, POSITIONS), THREADS, 0)
    workspace_free(call, memory, nbytes)
    return code


cdef int write_sorted(pb_call *call, const writing *work, const part *some) noexcept nogil:
    """Sort positions by their keys, then reduce those that share one."""
    cdef put_arguments args
    cdef key_sort task
    cdef int64_t factor = 0, word = 8 if work.wide else 4, each, nbytes, chunks, size
    cdef pb_cuda_kernel *kernel = reducers[work.dtype]
    cdef char *memory
    cdef int code, k
    describe_rows(work, some, &args, &factor)
    if work.mode == COPY:
        kernel = reducers[movers[log_size(work.chosen.size)]]
    size = 4 if PB_F16 <= work.dtype <= PB_BF16 else work.chosen.size   # of what is computed in
    chunks = (args.count + RUN_CHUNK - 1) // RUN_CHUNK
    each = (args.count * word + 255) & -256
    nbytes = 4 * each + chunks * args.row.total * size
    code = workspace_alloc(call, nbytes, <void **>&memory)
    if code != PB_OK:
        return code
    for k in range(2):
        task.keys[k] = memory + k * each
        task.order[k] = memory + (2 + k) * each
    args.partial = memory + 4 * each
    task.wide = work.wide
    task.count = args.count
    task.most = work.length
    code = make_keys(call, work, some, task.keys[0], NULL)
    if code == PB_OK:
        code = sort_numbers(call, &task)
    args.keys = task.keys[task.result]
    args.order = task.order[task.result]
    if code == PB_OK:
        code = launch(call, kernel, &args, sizeof(args), blocks_for(
            call, args.count * args.row.total, THREADS), THREADS, 0)
    if code == PB_OK and work.mode != COPY and chunks > 2:
        args.stage = 2
        args.narrow = chunks * args.row.total < <int64_t>NARROW
        code = launch(call, kernel, &args, sizeof(args), blocks_for(
            call, chunks * args.row.total, THREADS), THREADS, 0)
    workspace_free(call, memory, nbytes)
    return code


# ---- calls ---------------------------------------------------------------------------------------

cdef inline bint is_plain_sum(const writing *work) noexcept nogil:
    """Return whether the order does not matter, and the device can add in memory."""
    return work.mode == REDUCE_SUM and (work.dtype == PB_I32 or work.dtype == PB_I64)


cdef int write_part(pb_call *call, const writing *work, const part *some) noexcept nogil:
    """Write what the dims that are left select; the host iterates over excess dims."""
    cdef const walk *positions = &work.chosen.positions
    cdef const walk *row = &work.chosen.row
    cdef part inner = some[0]
    cdef int64_t i, size = work.chosen.size, count
    cdef int k, code = PB_OK
    cdef int of_positions = positions.ndim - some.position, of_rows = row.ndim - some.row
    if of_positions > INDEXER_DIMS:
        inner.position += 1
        for i in range(positions.shape[some.position]):
            inner.near = some.near + i * positions.steps[NEAR][some.position] * size
            inner.far = some.far + i * positions.steps[FAR][some.position] * size
            for k in range(work.chosen.count):
                inner.index[k] = (some.index[k]
                                  + i * positions.steps[FIRST_INDEX + k][some.position])
            code = write_part(call, work, &inner)
            if code != PB_OK:
                return code
        return PB_OK
    if of_rows > INDEXER_DIMS:
        inner.row += 1
        for i in range(row.shape[some.row]):
            inner.near = some.near + i * row.steps[NEAR][some.row] * size
            inner.far = some.far + i * row.steps[FAR][some.row] * size
            code = write_part(call, work, &inner)
            if code != PB_OK:
                return code
        return PB_OK
    count = volume(positions, some.position, positions.ndim)
    if (work.unique or (work.mode == COPY and work.length // ROOM <= count)
            or (is_plain_sum(work) and count // CROWD <= work.length)):
        return write_unsorted(call, work, some)
    return write_sorted(call, work, some)


cdef int write_all(pb_call *call, writing *work) noexcept nogil:
    cdef selection *chosen = &work.chosen
    cdef part whole
    cdef int k, code
    merge_dims(&chosen.positions, 0)
    merge_dims(&chosen.row, 0)
    choose_keys(work)
    code = fold_indices(call, chosen, work.scale)
    if code != PB_OK:
        return code
    whole.near = <char *>chosen.near.data
    whole.far = <char *>chosen.far.data
    whole.position = whole.row = 0
    for k in range(chosen.count):
        whole.index[k] = <const int64_t *>(
            chosen.folded if chosen.folded != NULL else chosen.indices[k].data)
    code = write_part(call, work, &whole)
    unfold(call, chosen)
    return failure_check(call) if code == PB_OK else code


cdef int write_dim(pb_call *call, int mode) noexcept nogil:
    """Write with an index for every element, in one dim."""
    cdef pb_array *index = call.in_[0]
    cdef writing work
    cdef int dim = <int>call.param[0].i, code
    if count_elements(index) == 0:
        return PB_OK
    code = select_dim(call, &work.chosen, index, call.in_[1], call.out[0], dim)
    if code != PB_OK:
        return code
    work.chosen.indices = call.in_
    work.mode = mode
    work.dtype = call.out[0].dtype
    work.unique = index.ndim == 0 or index.shape[dim] == 1
    return write_all(call, &work)


cdef int kernel_scatter(pb_call *call) noexcept nogil:
    return write_dim(call, COPY)


cdef int kernel_scatter_add(pb_call *call) noexcept nogil:
    return write_dim(call, REDUCE_SUM)


cdef int kernel_scatter_reduce(pb_call *call) noexcept nogil:
    cdef int64_t mode = call.param[1].i
    if not 0 <= mode <= 2 or (mode > 0 and call.out[0].dtype >= PB_C64):
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    return write_dim(call, <int>mode)


cdef int kernel_index_put(pb_call *call) noexcept nogil:
    cdef writing work
    cdef int code = select_first(call, &work.chosen, call.in_ + 1, call.nin - 1, call.in_[0],
                                 call.out[0])
    if code != PB_OK or count_elements(call.in_[0]) == 0:
        return code
    work.mode = REDUCE_SUM if call.param[0].i else COPY
    work.dtype = call.out[0].dtype
    work.unique = count_elements(call.in_[1]) == 1
    return write_all(call, &work)


KERNELS = {
    "index_put": new_kernel(PB_MASK_ALL, kernel_index_put),
    "scatter": new_kernel(PB_MASK_ALL, kernel_scatter),
    "scatter_add": new_kernel(PB_MASK_ALL, kernel_scatter_add),
    "scatter_reduce": new_kernel(PB_MASK_ALL, kernel_scatter_reduce),
}
