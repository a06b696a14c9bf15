# build: small
"""Rows: which kernels compute rows of their results from the same rows of their operands.

A row is what belongs to an index of the first dim, or to some that follow each other. Such a kernel
may run on some rows after the others: elementwise kernels, reductions and softmax of later dims,
the standardization of rows and its derivative, random numbers.
"""

from libc.stdint cimport int64_t

from pullback.abi cimport (
    PB_ARRAY_HOST, PB_BF16, PB_F16, PB_F32, PB_F64, PB_NUM_DTYPES, pb_array)
from pullback._c.base.dtype cimport CATEGORY_FLOATING, dtype_category, dtype_itemsize
from pullback._c.program.launches cimport Launch
from pullback._c.device.device cimport device_type, pb_device_type

from pullback.ops.table.primitives import PRIMITIVES

__all__ = []

cdef enum:
    ROWS_DEPEND = 0             # on one another, or nothing is known
    ROWS_EVERY = 1              # elementwise
    ROWS_REDUCED = 2            # of results that are as many as before
    ROWS_OF_DIM = 3             # of kernels along a dim, which is the parameter
    ROWS_STANDARDIZED = 4
    ROWS_RANDOM = 5
    ROWS_OF_SAMPLES = 6         # of a normalization, but for the weight
    SHORT = 64                  # elements of rows that are added up

cdef int kinds[1024]            # of each primitive


cdef int kind_of(object primitive):
    if primitive.family in ("unary", "binary", "ternary"):
        return ROWS_EVERY
    if primitive.family == "reduce":
        return ROWS_REDUCED
    if primitive.family in ("fused", "scan") and primitive.params == ("dim:int",):
        return ROWS_OF_DIM
    if primitive.name == "standardize":
        return ROWS_STANDARDIZED
    if primitive.name == "normalize_backward_input":
        return ROWS_OF_SAMPLES
    if primitive.family == "random" and primitive.params == ("seed:int", "offset:int"):
        return ROWS_RANDOM
    return ROWS_DEPEND


for number, primitive in enumerate(PRIMITIVES.values()):
    kinds[<int>number] = kind_of(primitive)


cdef bint is_elementwise(Launch launch) noexcept:
    return launch.expected is None and kinds[launch.call.primitive] == ROWS_EVERY


cdef int numbers_of_block(Launch launch) noexcept:
    """Return how many random numbers a block of the generator gives; 0 of other kernels."""
    if launch.expected is not None or kinds[launch.call.primitive] != ROWS_RANDOM:
        return 0
    return 2 if launch.arrays[0].dtype == PB_F64 else 4


cdef int whole_operands(Launch launch) except -2:
    """Return which operands each row of a launch reads whole, as bits; -1: it has no rows.

    That is a compiled kernel's launch on host memory, with few dims, whose rows are independent.
    """
    cdef int i, kind, count = launch.call.nout + launch.call.nin
    cdef pb_device_type *found = device_type(launch.type_id)
    if launch.expected is not None or not found.host or count > MAX_TILED or (
            launch.reads_host()):
        return -1
    if found.table[launch.call.primitive * PB_NUM_DTYPES + launch.key].kernel == NULL:
        return -1
    for i in range(count):
        if not 1 <= launch.arrays[i].ndim <= MAX_DIMS or (
                launch.buffers[i] < 0 and not launch.arrays[i].flags & PB_ARRAY_HOST):
            return -1
    kind = kinds[launch.call.primitive]
    if kind == ROWS_EVERY:
        return 0 if launch.call.nout == 1 else -1
    if kind == ROWS_REDUCED:
        for i in range(1, count):
            if launch.arrays[i].ndim != launch.arrays[0].ndim or (
                    launch.arrays[i].shape[0] != launch.arrays[0].shape[0]):
                return -1
        return 0 if dtype_category[launch.arrays[0].dtype] < CATEGORY_FLOATING or (
            reduces_long_rows(launch)) else -1
    if kind == ROWS_OF_DIM:
        return 0 if launch.call.param[0].i % launch.arrays[0].ndim else -1
    if kind == ROWS_STANDARDIZED and launch.call.param[0].i == 1:   # one group
        for i in range(launch.call.nout + 1):
            if launch.arrays[i].shape[0] != launch.arrays[0].shape[0]:
                return -1
        return (1 << count) - (1 << launch.call.nout + 1)
    if kind == ROWS_OF_SAMPLES:
        return 1 << 5                                               # the weight
    if kind == ROWS_RANDOM and launch.call.nparam == 2 and launch.arrays[0].dtype in (
            PB_F16, PB_BF16, PB_F32, PB_F64):
        return 0
    return -1


cdef bint reduces_long_rows(Launch launch) noexcept:
    """True if all of each row is reduced, in one piece of memory and more than a few elements.

    For others a kernel may add up in another order where there are fewer rows; of integers and
    bools no order matters.
    """
    cdef pb_array *source = &launch.arrays[launch.call.nout]
    cdef int64_t count = 1
    cdef int d
    for d in range(source.ndim - 1, 0, -1):
        if launch.arrays[0].shape[d] != 1 or source.strides[d] != count:
            return False
        count *= source.shape[d]
    return count > SHORT and source.strides[0] >= count


cdef int64_t elements(Launch launch) noexcept:
    """Return the elements of the result, or of what is reduced."""
    cdef int64_t count = 1
    cdef int d, which = 0
    if kinds[launch.call.primitive] in (ROWS_REDUCED, ROWS_OF_DIM):
        which = launch.call.nout
    for d in range(launch.arrays[which].ndim):
        count *= launch.arrays[which].shape[d]
    return count


cdef bint by_rows(Launch launch, int64_t rows, int which, int64_t *advance, int64_t *scale,
                  bint *disjoint) noexcept:
    """Find the stride of an operand's rows, and whether rows are disjoint in memory."""
    cdef pb_array *array = &launch.arrays[which]
    cdef int64_t reach = 0, size = dtype_itemsize[array.dtype]
    cdef int d
    if array.shape[0] % rows:
        return False
    scale[0] = array.shape[0] // rows
    advance[0] = scale[0] * array.strides[0] * size
    for d in range(array.ndim):
        if array.strides[d] < 0:
            return False
        reach += ((scale[0] if d == 0 else array.shape[d]) - 1) * array.strides[d] * size
    disjoint[0] = advance[0] > reach
    return True
