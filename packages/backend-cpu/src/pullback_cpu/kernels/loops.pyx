# Elementwise calls whose operands need more than one loop.
#
# Dimensions are put in the order of the output's strides and merged where every operand allows
# it. If an input runs across the output's rows (it is transposed), rows are cut into tiles: the
# cache lines of that input then serve several rows before they leave the cache.
from pullback_cpu.kernels.common cimport item_shift
from pullback_cpu.kernels.loops cimport *
from pullback_cpu.kernels.nest cimport *

cdef enum:
    CACHE_LINE = 64  # bytes
    TILE = 128  # elements of a row


# One call: where the operands begin and the bits by which a step in elements becomes bytes.
ctypedef struct operand_list:
    char *data[NEST_OPERANDS]
    int shift[NEST_OPERANDS]


cdef int run_nested(pb_call *call, inner_loop loop, int nin) noexcept nogil:
    cdef nested_loop nest
    cdef operand_list operands
    cdef int64_t n, start = 0
    cdef int error
    if not fill_nest(&nest, &operands, call, nin):
        return PB_OK
    sort_dimensions(&nest, 0)
    merge_dimensions(&nest)
    if not find_transposed(&nest):
        return walk_nest(&nest, &operands, loop, 0, nest.shape[0])
    while start < nest.shape[0]:
        n = min(<int64_t>TILE, nest.shape[0] - start)
        error = walk_nest(&nest, &operands, loop, start, n)
        if error:
            return error
        start += n
    return PB_OK


cdef bint fill_nest(
        nested_loop *nest, operand_list *operands, pb_call *call, int nin) noexcept nogil:
    """Describe the call's loops; false if there is no element."""
    cdef pb_array *array = call.out[0]
    cdef pb_array *arrays[NEST_OPERANDS]
    cdef int64_t steps[NEST_OPERANDS]
    cdef int d, k
    start_nest(nest, nin + 1)
    for k in range(nin + 1):
        arrays[k] = call.in_[k - 1] if k else array
        operands.data[k] = <char *>arrays[k].data
        operands.shift[k] = item_shift[arrays[k].dtype]
    for d in range(array.ndim - 1, -1, -1):
        if array.shape[d] == 0:
            return False
        for k in range(NEST_OPERANDS):
            steps[k] = step_of(arrays[k], d) if k <= nin else 0
        add_dimension(nest, array.shape[d], steps[0], steps[1], steps[2], steps[3])
    if nest.ndim == 0:
        nest.ndim = 1
        nest.shape[0] = 1
        for k in range(nin + 1):
            nest.steps[0][k] = <int64_t>1 << operands.shift[k]
    return True


cdef bint find_transposed(nested_loop *nest) noexcept nogil:
    """Say whether tiles pay off, and put the transposed input's fast dimension next."""
    cdef int d, k, best
    if nest.ndim < 2 or nest.shape[0] <= TILE:
        return False
    for k in range(1, nest.operands):
        if magnitude(nest.steps[0][k]) < CACHE_LINE:
            continue
        best = 0
        for d in range(1, nest.ndim):
            if nest.steps[d][k] and magnitude(nest.steps[d][k]) < magnitude(nest.steps[best][k]):
                best = d
        if best and magnitude(nest.steps[best][k]) < CACHE_LINE:
            swap_dimensions(nest, 1, best)
            return True
    return False


cdef int walk_nest(
        nested_loop *nest, operand_list *operands, inner_loop loop, int64_t start,
        int64_t n) noexcept nogil:
    """Run the inner loop over elements ``start`` to ``start + n`` of every row."""
    cdef int64_t position[PB_MAX_NDIM]
    cdef int64_t strides[NEST_OPERANDS]
    cdef char *data[NEST_OPERANDS]
    cdef int k, error
    for k in range(nest.operands):
        data[k] = operands.data[k] + start * nest.steps[0][k]
        strides[k] = nest.steps[0][k] >> operands.shift[k]
    start_position(nest, position)
    while True:
        error = loop(data, strides, n)
        if error or not advance(nest, 1, position, data):
            return error
