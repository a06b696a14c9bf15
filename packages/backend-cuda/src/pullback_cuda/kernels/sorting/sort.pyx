"""Stable sorts along the last dim.

Short rows are sorted by threads or blocks on their own; long ones digit by digit, by all blocks. If
only the first few elements of long rows are wanted, they are found first.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from pullback.abi cimport (
    PB_BF16, PB_C64, PB_E_DTYPE, PB_F16, PB_F32, PB_I8, PB_I64, PB_OK, pb_array, pb_call)
from pullback_cuda.kernels.common.arrays cimport count_elements, item_sizes
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, new_kernel, pb_cuda_kernel, sm_count, workspace_alloc, workspace_free)
from pullback_cuda.kernels.strides.indexer cimport (
    NARROW, INDEXER_DIMS, THREADS, add_dim, blocks_for, make_divider, merge_dims, indexer_dims,
    int_divider, start_walk, step_of, volume, walk, write_dims, write_steps)
from pullback_cuda.kernels.sorting.radix_sort cimport radix_arguments, sort_pairs
from pullback_cuda.runtime.failures cimport fail


cdef extern from "kernels/sorting/sort.h":
    enum:
        SORT_SMALL
        SORT_MEDIUM
        SORT_LARGE
    ctypedef struct sort_rows_arguments:
        const void *input
        void *values
        void *indices
        int64_t n
        int64_t count
        int64_t input_step
        int64_t values_step
        int64_t indices_step
        int32_t index_bytes
        int32_t group
        sort_keys how
        indexer_dims rows
        int64_t input_rows[INDEXER_DIMS]
        int64_t values_rows[INDEXER_DIMS]
        int64_t indices_rows[INDEXER_DIMS]
    ctypedef struct sort_long_arguments:
        const void *input
        void *values
        void *indices
        void *keys[2]
        void *order[2]
        const int64_t *positions
        uint32_t *differ
        int64_t n
        int64_t length
        int64_t count
        int64_t total
        int64_t first
        int32_t wide
        int32_t narrow
        int64_t input_step
        int_divider row
        sort_keys how
        indexer_dims where
        int64_t input_steps[INDEXER_DIMS]
        int64_t values_steps[INDEXER_DIMS]
        int64_t indices_steps[INDEXER_DIMS]

cdef extern from "kernels/sorting/topk.h":
    enum:
        SELECT_DIGITS
        SELECT_TILE
    ctypedef struct select_arguments:
        const void *input
        int64_t input_step
        int64_t n
        int64_t count
        int64_t chunk
        int64_t blocks
        int64_t first_row
        uint64_t *limits
        int64_t *left
        uint64_t *histogram
        int64_t *tallies
        void *keys
        int64_t *positions
        int32_t digit
        sort_keys how
        indexer_dims rows
        int64_t input_rows[INDEXER_DIMS]

cdef extern from "kernels/indexing/indexed.h":
    ctypedef struct clear_arguments:
        void *data
        int64_t count

cdef enum:
    SELECTED = 4        # times as many elements as wanted: they are selected first
    ROWS = 1 << 14      # of which the first ones are found together
    BLOCKS = 6          # for each multiprocessor, at most, of all rows
    INPUT = 0           # operands of rows
    VALUES = 1
    INDICES = 2
    HEAD = 256          # bytes before the keys, for the bits in which they differ
    AT_ONCE = 1 << 27   # elements of rows that are sorted together, unless one has more

# By whether keys have 8 bytes.
cdef pb_cuda_kernel *small[2]
cdef pb_cuda_kernel *medium[2]
cdef pb_cuda_kernel *large[2]
cdef pb_cuda_kernel *begin[2]
cdef pb_cuda_kernel *finish[2]
cdef pb_cuda_kernel *counters[2]
cdef pb_cuda_kernel *talliers[2]
cdef pb_cuda_kernel *collectors[2]
for _wide in range(2):
    small[_wide] = kernel_named("sort", f"sort_small_{4 << _wide}")
    medium[_wide] = kernel_named("sort", f"sort_medium_{4 << _wide}")
    large[_wide] = kernel_named("sort", f"sort_large_{4 << _wide}")
    begin[_wide] = kernel_named("sort", f"sort_begin_{4 << _wide}")
    finish[_wide] = kernel_named("sort", f"sort_finish_{4 << _wide}")
    counters[_wide] = kernel_named("topk", f"select_count_{4 << _wide}")
    talliers[_wide] = kernel_named("topk", f"select_tally_{4 << _wide}")
    collectors[_wide] = kernel_named("topk", f"select_collect_{4 << _wide}")
cdef pb_cuda_kernel *digit_finder = kernel_named("topk", "select_digit")
cdef pb_cuda_kernel *clear = kernel_named("index", "clear")

# A call. Operands are the input, the values and the indices.
ctypedef struct sorting:
    char *data[3]       # there may be no values
    int64_t steps[3]    # along a row
    int64_t n           # elements of a row
    int64_t count       # of the first ones that are wanted
    int64_t size        # bytes of an element
    sort_keys how
    walk rows


cdef void describe_keys(int dtype, bint descending, sort_keys *how) noexcept nogil:
    """Say how elements of a dtype become keys."""
    how.bytes = item_sizes[dtype]
    how.kind = SORT_UNSIGNED
    how.infinity = 0
    if PB_I8 <= dtype <= PB_I64:
        how.kind = SORT_SIGNED
    elif dtype >= PB_F16:
        how.kind = SORT_FLOATING
        if dtype == PB_F16:
            how.infinity = 0x7C00
        elif dtype == PB_BF16:
            how.infinity = 0x7F80
        elif dtype == PB_F32:
            how.infinity = 0x7F800000
        else:
            how.infinity = <uint64_t>0x7FF << 52
    how.flip = (~<uint64_t>0) >> (64 - 8 * how.bytes) if descending else 0


# ---- rows that fit into a block ------------------------------------------------------------------

cdef int launch_rows(pb_call *call, sort_rows_arguments *args) noexcept nogil:
    cdef bint wide = args.how.bytes == 8
    cdef int64_t rows = args.rows.total
    cdef pb_cuda_kernel *kernel = large[wide]
    args.group = 1
    if args.n <= SORT_SMALL:
        kernel = small[wide]
        while args.group < args.n:
            args.group *= 2
        rows = (rows + THREADS // args.group - 1) // (THREADS // args.group)
    elif args.n <= SORT_MEDIUM:
        kernel = medium[wide]
    return launch(call, kernel, args, sizeof(args[0]), blocks_for(call, rows, 1), THREADS, 0)


cdef int sort_numbers(pb_call *call, key_sort *task) noexcept nogil:
    """Sort keys and positions."""
    cdef sort_rows_arguments args
    cdef radix_arguments passes
    cdef walk one
    cdef int bits = 0, size = 8 if task.wide else 4
    if task.count <= SORT_LARGE:
        start_walk(&one, 1)
        write_dims(&one, 0, 0, &args.rows)
        args.input_rows[0] = args.values_rows[0] = args.indices_rows[0] = 0
        args.input = task.keys[0]
        args.values = task.keys[1]
        args.indices = task.order[1]
        args.n = args.count = task.count
        args.input_step = args.values_step = args.indices_step = 1
        args.index_bytes = size
        args.how.bytes = size
        args.how.kind = SORT_UNSIGNED
        args.how.infinity = args.how.flip = 0
        task.result = 1
        return launch_rows(call, &args)
    while bits < 64 and (<uint64_t>task.most >> bits) != 0:
        bits += 1
    passes.keys[0], passes.keys[1] = task.keys[0], task.keys[1]
    passes.order[0], passes.order[1] = task.order[0], task.order[1]
    passes.differ = NULL
    passes.n = task.count
    passes.rows = 1
    bits = max((bits + 7) // 8, 1)
    task.result = bits % 2
    return sort_pairs(call, &passes, size, size, bits)


cdef int sort_short(pb_call *call, const sorting *task, const walk *rows, int first,
                    char **data) noexcept nogil:
    """Sort rows along the dims from ``first`` on."""
    cdef sort_rows_arguments args
    args.input = data[INPUT]
    args.values = data[VALUES]
    args.indices = data[INDICES]
    args.n = task.n
    args.count = task.count
    args.input_step = task.steps[INPUT]
    args.values_step = task.steps[VALUES]
    args.indices_step = task.steps[INDICES]
    args.index_bytes = 8
    args.how = task.how
    write_dims(rows, first, rows.ndim, &args.rows)
    write_steps(rows, first, rows.ndim, INPUT, args.input_rows)
    write_steps(rows, first, rows.ndim, VALUES, args.values_rows)
    write_steps(rows, first, rows.ndim, INDICES, args.indices_rows)
    return launch_rows(call, &args)


# ---- long rows -----------------------------------------------------------------------------------

cdef void write_walk(const sorting *task, const walk *rows, int first, bint sorted,
                     sort_long_arguments *args) noexcept nogil:
    """Describe the elements of all rows, before the sort or after it."""
    cdef int64_t steps[3]
    cdef walk dims
    cdef int d, k
    start_walk(&dims, 3)
    for d in range(first, rows.ndim):
        for k in range(3):
            steps[k] = rows.steps[k][d]
        add_dim(&dims, rows.shape[d], steps)
    for k in range(3):
        steps[k] = task.steps[k]
    if sorted:      # the position along a row is looked up
        steps[INPUT] = 0
    else:
        dims.operands = 1
    add_dim(&dims, task.count if sorted else task.n, steps)
    merge_dims(&dims, 0)
    write_dims(&dims, 0, dims.ndim, &args.where)
    write_steps(&dims, 0, dims.ndim, INPUT, args.input_steps)
    if sorted:
        write_steps(&dims, 0, dims.ndim, VALUES, args.values_steps)
        write_steps(&dims, 0, dims.ndim, INDICES, args.indices_steps)


cdef int sort_long(pb_call *call, const sorting *task, const walk *rows, int first, char **data,
                   int64_t row, int64_t some, char *memory, int64_t pairs) noexcept nogil:
    """Sort some rows, from number ``row`` on, in memory for so many pairs."""
    cdef sort_long_arguments args
    cdef radix_arguments passes
    cdef clear_arguments zeros
    cdef bint wide = is_wide(task)
    cdef int order_bytes = 8 if task.n >> 32 else 4, key_bytes = 8 if wide else 4, k, code
    args.input = data[INPUT]
    args.values = data[VALUES]
    args.indices = data[INDICES]
    args.input_step = task.steps[INPUT]
    args.how = task.how
    args.positions = NULL
    args.n = args.length = task.n
    args.count = task.count
    args.wide = order_bytes == 8
    args.differ = <uint32_t *>memory
    for k in range(2):
        args.keys[k] = memory + HEAD + pairs * key_bytes * k
        args.order[k] = memory + HEAD + pairs * (2 * key_bytes + order_bytes * k)
        passes.keys[k] = args.keys[k]
        passes.order[k] = args.order[k]
    passes.differ = args.differ
    passes.n = task.n
    passes.rows = some
    zeros.data = memory
    zeros.count = 2
    code = launch(call, clear, &zeros, sizeof(zeros), 1, 32, 0)
    if code != PB_OK:
        return code
    args.first = row * task.n
    args.total = some * task.n
    write_walk(task, rows, first, False, &args)
    code = launch(call, begin[wide], &args, sizeof(args), blocks_for(
        call, args.total, THREADS * 4), THREADS, 0)
    if code != PB_OK:
        return code
    code = sort_pairs(call, &passes, key_bytes, order_bytes, task.how.bytes)
    if code != PB_OK:
        return code
    args.first = row * task.count
    args.total = some * task.count
    args.narrow = args.total < <int64_t>NARROW
    make_divider(&args.row, task.count)
    write_walk(task, rows, first, True, &args)
    return launch(call, finish[wide], &args, sizeof(args), blocks_for(
        call, args.total, THREADS), THREADS, 0)


cdef inline bint is_wide(const sorting *task) noexcept nogil:
    """Return whether keys have 8 bytes: at least as many as positions have."""
    return task.size == 8 or task.n >> 32 != 0


cdef int sort_all_long(pb_call *call, const sorting *task, const walk *rows, int first,
                       char **data) noexcept nogil:
    """Sort long rows, as many together as AT_ONCE allows."""
    cdef int64_t total = volume(rows, first, rows.ndim), row = 0, pairs, nbytes
    cdef int64_t most = min(total, max(<int64_t>1, <int64_t>AT_ONCE // task.n))
    cdef char *memory
    cdef int code = PB_OK
    pairs = (most * task.n + 63) & -64
    nbytes = HEAD + pairs * 2 * ((8 if is_wide(task) else 4) + (8 if task.n >> 32 else 4))
    code = workspace_alloc(call, nbytes, <void **>&memory)
    if code != PB_OK:
        return code
    while row < total and code == PB_OK:
        code = sort_long(call, task, rows, first, data, row, min(most, total - row), memory, pairs)
        row += most
    workspace_free(call, memory, nbytes)
    return code


# ---- the first few of long rows ------------------------------------------------------------------

cdef int find_first(pb_call *call, select_arguments *args, int64_t rows) noexcept nogil:
    """Find the first elements of some rows, in the order of their positions."""
    cdef clear_arguments zeros
    cdef bint wide = args.how.bytes == 8
    cdef int digit, code
    zeros.data = args.histogram
    zeros.count = rows * SELECT_DIGITS * 2
    code = launch(call, clear, &zeros, sizeof(zeros), blocks_for(
        call, zeros.count, THREADS * 4), THREADS, 0)
    for digit in range(args.how.bytes - 1, -1, -1):
        args.digit = digit
        if code == PB_OK:
            code = launch(call, counters[wide], args, sizeof(args[0]), rows * args.blocks,
                          THREADS, 0)
        if code == PB_OK:
            code = launch(call, digit_finder, args, sizeof(args[0]), rows, SELECT_DIGITS, 0)
    if code == PB_OK:
        code = launch(call, talliers[wide], args, sizeof(args[0]), rows * args.blocks, THREADS, 0)
    if code == PB_OK:
        code = launch(call, collectors[wide], args, sizeof(args[0]), rows * args.blocks,
                      THREADS, 0)
    return code


cdef int sort_first(pb_call *call, const sorting *task, const walk *rows, int first, char **data,
                    select_arguments *args, int64_t some, char *pairs,
                    int64_t spare) noexcept nogil:
    """Find the first elements of some rows, and sort them.

    ``pairs`` is memory for the sorted keys, and ``spare`` bytes further for their order.
    """
    cdef sort_rows_arguments found
    cdef sort_long_arguments end
    cdef int64_t steps[3]
    cdef int key_bytes = 8 if args.how.bytes == 8 else 4, code
    cdef walk lines
    code = find_first(call, args, some)
    if code != PB_OK:
        return code
    start_walk(&lines, 1)
    steps[0] = task.count
    add_dim(&lines, some, steps)
    write_dims(&lines, 0, lines.ndim, &found.rows)
    write_steps(&lines, 0, lines.ndim, 0, found.input_rows)
    write_steps(&lines, 0, lines.ndim, 0, found.values_rows)
    write_steps(&lines, 0, lines.ndim, 0, found.indices_rows)
    found.input = args.keys
    found.values = pairs
    found.indices = pairs + spare
    found.n = found.count = task.count
    found.input_step = found.values_step = found.indices_step = 1
    found.index_bytes = 4
    found.how.bytes = key_bytes
    found.how.kind = SORT_UNSIGNED
    found.how.infinity = found.how.flip = 0
    code = launch_rows(call, &found)
    if code != PB_OK:
        return code
    end.input = data[INPUT]
    end.values = data[VALUES]
    end.indices = data[INDICES]
    end.keys[0] = end.keys[1] = pairs
    end.order[0] = end.order[1] = pairs + spare
    end.positions = args.positions
    end.differ = NULL
    end.n = end.count = task.count
    end.length = task.n
    end.first = args.first_row * task.count
    end.total = some * task.count
    end.wide = False
    end.narrow = end.total < <int64_t>NARROW
    end.input_step = task.steps[INPUT]
    end.how = task.how
    make_divider(&end.row, task.count)
    write_walk(task, rows, first, True, &end)
    return launch(call, finish[key_bytes == 8], &end, sizeof(end), blocks_for(
        call, end.total, THREADS), THREADS, 0)


cdef int sort_all_first(pb_call *call, const sorting *task, const walk *rows, int first,
                        char **data) noexcept nogil:
    """Sort the first elements of long rows."""
    cdef select_arguments args
    cdef int64_t total = volume(rows, first, rows.ndim), most = min(total, <int64_t>ROWS), row = 0
    cdef int64_t tiles = (task.n + SELECT_TILE - 1) // SELECT_TILE, each, cells, nbytes
    cdef int64_t blocks = min(tiles, max(<int64_t>1, <int64_t>BLOCKS * sm_count(call) // most))
    cdef char *memory
    cdef int code = PB_OK
    args.input = data[INPUT]
    args.input_step = task.steps[INPUT]
    args.n = task.n
    args.count = task.count
    args.chunk = (tiles + blocks - 1) // blocks * SELECT_TILE
    args.blocks = (task.n + args.chunk - 1) // args.chunk
    args.how = task.how
    write_dims(rows, first, rows.ndim, &args.rows)
    write_steps(rows, first, rows.ndim, INPUT, args.input_rows)
    # For each row a limit, what is left of it, a histogram, tallies, and four arrays of pairs.
    cells = most * (2 + SELECT_DIGITS + 2 * args.blocks)
    each = most * task.count * 8
    nbytes = cells * 8 + 4 * each
    code = workspace_alloc(call, nbytes, <void **>&memory)
    if code != PB_OK:
        return code
    args.limits = <uint64_t *>memory
    args.left = <int64_t *>memory + most
    args.histogram = args.limits + 2 * most
    args.tallies = <int64_t *>(args.histogram + most * SELECT_DIGITS)
    args.keys = memory + cells * 8
    args.positions = <int64_t *>(memory + cells * 8 + each)
    while row < total and code == PB_OK:
        args.first_row = row
        code = sort_first(call, task, rows, first, data, &args, min(most, total - row),
                          memory + cells * 8 + 2 * each, each)
        row += most
    workspace_free(call, memory, nbytes)
    return code


# ---- calls ---------------------------------------------------------------------------------------

cdef int sort_walk(pb_call *call, const sorting *task, const walk *rows, int first,
                   char **data) noexcept nogil:
    """Sort rows along the dims from ``first`` on; the host iterates over excess dims."""
    cdef char *moved[3]
    cdef int64_t i
    cdef int code
    if rows.ndim - first < INDEXER_DIMS:      # one more dim is along a row
        if task.n <= SORT_LARGE:
            return sort_short(call, task, rows, first, data)
        if task.count <= SORT_LARGE and task.count <= task.n // SELECTED:
            return sort_all_first(call, task, rows, first, data)
        return sort_all_long(call, task, rows, first, data)
    for i in range(rows.shape[first]):
        moved[INPUT] = data[INPUT] + i * rows.steps[INPUT][first] * task.size
        moved[VALUES] = data[VALUES]
        if moved[VALUES] != NULL:
            moved[VALUES] += i * rows.steps[VALUES][first] * task.size
        moved[INDICES] = data[INDICES] + i * rows.steps[INDICES][first] * 8
        code = sort_walk(call, task, rows, first + 1, moved)
        if code != PB_OK:
            return code
    return PB_OK


cdef int sort_lines(pb_call *call, pb_array *values, pb_array *indices) noexcept nogil:
    """Sort along the last dim; ``values`` may be NULL."""
    cdef pb_array *source = call.in_[0]
    cdef sorting task
    cdef int64_t steps[3]
    cdef int d, last = source.ndim - 1
    if source.dtype >= PB_C64:
        return fail(call, PB_E_DTYPE, b"this dtype has no CUDA kernel")
    if count_elements(indices) == 0:
        return PB_OK
    task.data[INPUT] = <char *>source.data
    task.data[VALUES] = NULL if values == NULL else <char *>values.data
    task.data[INDICES] = <char *>indices.data
    task.n = task.count = 1
    task.size = item_sizes[source.dtype]
    describe_keys(source.dtype, call.param[0].i != 0, &task.how)
    for d in range(3):
        task.steps[d] = 1
    start_walk(&task.rows, 3)
    for d in range(source.ndim):
        steps[INPUT] = step_of(source, d)
        steps[VALUES] = 0 if values == NULL else step_of(values, d)
        steps[INDICES] = step_of(indices, d)
        if d < last:
            add_dim(&task.rows, source.shape[d], steps)
            continue
        task.n = source.shape[d]
        task.count = indices.shape[d]
        task.steps[INPUT] = steps[INPUT]
        task.steps[VALUES] = steps[VALUES]
        task.steps[INDICES] = steps[INDICES]
    merge_dims(&task.rows, 0)
    return sort_walk(call, &task, &task.rows, 0, task.data)


cdef int kernel_sort(pb_call *call) noexcept nogil:
    return sort_lines(call, call.out[0], call.out[1])


cdef int kernel_argsort(pb_call *call) noexcept nogil:
    return sort_lines(call, NULL, call.out[0])


KERNELS = {
    "argsort": new_kernel(0x3FF, kernel_argsort),
    "sort": new_kernel(0x3FF, kernel_sort),
}
