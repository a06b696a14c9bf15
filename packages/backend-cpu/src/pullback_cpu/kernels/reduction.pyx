# How the elements of a reduction reach their accumulators, whatever is reduced.
#
# Dimensions are those that stay and those that are reduced. Either one accumulator takes in a
# run of elements at a time, or, where the elements of different outputs lie closer together, a
# row of accumulators takes in a row of elements.
from pullback_cpu.kernels.common cimport *
from pullback_cpu.kernels.nest cimport *
from pullback_cpu.kernels.reduction cimport *

cdef enum:
    SHORT = 8


# Operands of both nests: 0 is the output, 1 the input.
ctypedef struct reduction:
    nested_loop kept
    nested_loop reduced
    int64_t in_size
    int64_t out_size
    bint is_empty
    char *data[NEST_OPERANDS]


cdef int run_reduction(pb_call *call, const reducer *steps) noexcept nogil:
    cdef pb_array *source = call.in_[0]
    cdef pb_array *out = call.out[0]
    cdef reduction work
    cdef double accumulator[WORDS]
    if unlikely(steps.fold == NULL):
        return fail_dtype(call)
    if source.ndim == 1 and out.shape[0] == 1:
        steps.start(<char *>accumulator, 1)
        if source.shape[0]:
            steps.fold(<const char *>source.data, source.shape[0], source.strides[0],
                       <char *>accumulator)
        steps.finish(<const char *>accumulator, 1, <char *>out.data, 1)
        return PB_OK
    if not split_dimensions(&work, source, out):
        return PB_OK
    if work.is_empty:
        fill_identity(&work, steps)
    elif prefers_rows(&work):
        reduce_rows(&work, steps)
    else:
        reduce_runs(&work, steps)
    return PB_OK


cdef bint split_dimensions(reduction *work, pb_array *source, pb_array *out) noexcept nogil:
    """Sort the dimensions into kept and reduced ones; false if the output has no element."""
    cdef int d
    start_nest(&work.kept, 2)
    start_nest(&work.reduced, 2)
    work.data[0] = <char *>out.data
    work.data[1] = <char *>source.data
    work.in_size = item_size(source.dtype)
    work.out_size = item_size(out.dtype)
    work.is_empty = False
    for d in range(source.ndim - 1, -1, -1):
        if out.shape[d] == 0:
            return False
        if source.shape[d] == 0:
            work.is_empty = True
        if out.shape[d] == 1:
            add_dimension(&work.reduced, source.shape[d], 0, step_of(source, d), 0, 0)
        else:
            add_dimension(&work.kept, out.shape[d], step_of(out, d), step_of(source, d), 0, 0)
    if work.reduced.ndim == 0:
        work.reduced.shape[0] = 1
        work.reduced.steps[0][0] = 0
        work.reduced.steps[0][1] = work.in_size
        work.reduced.ndim = 1
    sort_dimensions(&work.kept, 1)
    merge_dimensions(&work.kept)
    sort_dimensions(&work.reduced, 1)
    merge_dimensions(&work.reduced)
    return True


cdef bint prefers_rows(reduction *work) noexcept nogil:
    cdef nested_loop *kept = &work.kept
    cdef nested_loop *reduced = &work.reduced
    if kept.ndim == 0 or kept.shape[0] < SHORT:
        return False
    if reduced.ndim == 1 and reduced.shape[0] <= SHORT:
        return True
    return magnitude(kept.steps[0][1]) < magnitude(reduced.steps[0][1])


cdef void fill_identity(reduction *work, const reducer *steps) noexcept nogil:
    cdef double accumulator[WORDS]
    cdef int64_t position[PB_MAX_NDIM]
    steps.start(<char *>accumulator, 1)
    start_position(&work.kept, position)
    while True:
        steps.finish(<const char *>accumulator, 1, work.data[0], 1)
        if not advance(&work.kept, 0, position, work.data):
            return


cdef void reduce_runs(reduction *work, const reducer *steps) noexcept nogil:
    cdef double accumulator[WORDS]
    cdef int64_t outer[PB_MAX_NDIM]
    cdef int64_t inner[PB_MAX_NDIM]
    cdef int64_t n = work.reduced.shape[0]
    cdef int64_t stride = work.reduced.steps[0][1] // work.in_size
    start_position(&work.kept, outer)
    start_position(&work.reduced, inner)
    while True:
        steps.start(<char *>accumulator, 1)
        while True:
            steps.fold(work.data[1], n, stride, <char *>accumulator)
            if not advance(&work.reduced, 1, inner, work.data):
                break
        steps.finish(<const char *>accumulator, 1, work.data[0], 1)
        if not advance(&work.kept, 0, outer, work.data):
            return


cdef void reduce_rows(reduction *work, const reducer *steps) noexcept nogil:
    cdef double accumulators[ACCUMULATORS * WORDS]
    cdef int64_t outer[PB_MAX_NDIM]
    cdef int64_t inner[PB_MAX_NDIM]
    cdef int64_t step = work.kept.steps[0][1], out_step = work.kept.steps[0][0]
    cdef int64_t stride = step // work.in_size, n, start
    start_position(&work.kept, outer)
    start_position(&work.reduced, inner)
    while True:
        start = 0
        while start < work.kept.shape[0]:
            n = min(<int64_t>ACCUMULATORS, work.kept.shape[0] - start)
            steps.start(<char *>accumulators, n)
            while True:
                steps.fold_row(work.data[1] + start * step, n, stride, <char *>accumulators)
                if not advance(&work.reduced, 0, inner, work.data):
                    break
            steps.finish(<const char *>accumulators, n, work.data[0] + start * out_step,
                         out_step // work.out_size)
            start += n
        if not advance(&work.kept, 1, outer, work.data):
            return
