"""Sizes and strides: immutable blocks (`pb_layout`) that tensors share, and computations on them.

No tensors and no memory here: what depends on a storage is in `device/storage.pyx` and above.
"""

from cpython.long cimport PyLong_AsLongLong, PyLong_Check
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.number cimport PyIndex_Check, PyNumber_Index
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memcpy

from pullback.abi cimport PB_MAX_NDIM
from pullback._c.base.types cimport (
    LAYOUT_CONTIGUOUS, LAYOUT_DENSE, LAYOUT_OVERLAPPING, layout_shape, layout_strides, pb_layout)

cdef enum:
    FREELIST_NDIM = 5
    FREELIST_LENGTH = 64
    MEMORY_LENGTH = 256         # a power of 2

cdef pb_layout *free_blocks[FREELIST_NDIM][FREELIST_LENGTH]
cdef int free_count[FREELIST_NDIM]
cdef pb_layout *scalar_layout = NULL
cdef pb_layout *memory[MEMORY_LENGTH]

cdef int64_t MAX_NUMEL = <int64_t>1 << 58
cdef int64_t LARGEST = ~(<int64_t>1 << 63)


cdef pb_layout *block_new(int32_t ndim) except NULL:
    cdef pb_layout *layout
    if ndim < FREELIST_NDIM and free_count[ndim] > 0:
        free_count[ndim] -= 1
        layout = free_blocks[ndim][free_count[ndim]]
    else:
        layout = <pb_layout *>PyMem_Malloc(sizeof(pb_layout) + 2 * ndim * sizeof(int64_t))
        if layout == NULL:
            raise MemoryError()
    layout.refcount = 1
    layout.ndim = ndim
    return layout


cdef void layout_free(pb_layout *layout) noexcept:
    cdef int32_t ndim = layout.ndim
    if ndim < FREELIST_NDIM and free_count[ndim] < FREELIST_LENGTH:
        free_blocks[ndim][free_count[ndim]] = layout
        free_count[ndim] += 1
    else:
        PyMem_Free(layout)


cdef int count_elements(pb_layout *layout, const int64_t *shape) except -1:
    cdef int32_t d
    cdef int64_t numel = 1
    cdef bint empty = False
    for d in range(layout.ndim):
        if shape[d] < 0:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {shape[d]}: "
                f"{[shape[k] for k in range(layout.ndim)]}")
        if shape[d] == 0:
            empty = True
    if not empty:
        for d in range(layout.ndim):
            if (numel | shape[d]) >> 29 and numel > MAX_NUMEL // shape[d]:
                raise RuntimeError(
                    f"Storage size calculation overflowed with sizes="
                    f"{[shape[k] for k in range(layout.ndim)]}")
            numel *= shape[d]
    layout.numel = 0 if empty else numel
    return 0


cdef int32_t classify(const pb_layout *layout) noexcept nogil:
    """Return the LAYOUT_ flags of a filled block."""
    cdef const int64_t *shape = layout_shape(layout)
    cdef const int64_t *strides = layout_strides(layout)
    cdef int64_t expected = 1
    cdef int32_t d, found, flags = 0
    cdef bint contiguous = True
    cdef uint64_t used = 0
    for d in range(layout.ndim - 1, -1, -1):
        if shape[d] != 1:
            if strides[d] != expected:
                contiguous = False
            expected *= shape[d]
            if strides[d] == 0:
                flags |= LAYOUT_OVERLAPPING
    if contiguous or layout.numel == 0:
        return (LAYOUT_CONTIGUOUS | LAYOUT_DENSE) if contiguous or layout.numel == 0 else flags
    if flags & LAYOUT_OVERLAPPING:
        return flags
    # Dense: the strides, sorted, are the cumulative products of the sizes.
    expected = 1
    while True:
        found = -1
        for d in range(layout.ndim):
            if not (used >> d) & 1 and shape[d] != 1 and strides[d] == expected:
                found = d
                break
        if found < 0:
            break
        used |= <uint64_t>1 << found
        expected *= shape[found]
    if expected == layout.numel:
        flags |= LAYOUT_DENSE
    return flags


cdef bint is_row_major(int32_t ndim, const int64_t *shape, const int64_t *strides) noexcept nogil:
    """True for row-major strides of a shape without zeros."""
    cdef int64_t stride = 1
    cdef int32_t d
    for d in range(ndim - 1, -1, -1):
        if strides[d] != stride or shape[d] <= 0:
            return False
        stride *= shape[d]
    return True


cdef pb_layout *layout_new(int32_t ndim, const int64_t *shape,
                           const int64_t *strides) except NULL:
    """Return a new block with these sizes and strides; owned."""
    if ndim > PB_MAX_NDIM:
        raise RuntimeError(f"a tensor can have at most {PB_MAX_NDIM} dimensions, got {ndim}")
    if is_row_major(ndim, shape, strides):
        return layout_contiguous(ndim, shape)
    cdef pb_layout *layout = block_new(ndim)
    try:
        count_elements(layout, shape)
    except BaseException:
        layout_free(layout)
        raise
    memcpy(layout_shape(layout), shape, ndim * sizeof(int64_t))
    memcpy(layout_strides(layout), strides, ndim * sizeof(int64_t))
    layout.flags = classify(layout)
    return layout


cdef pb_layout *layout_swapped(const pb_layout *layout, int a, int b) except NULL:
    """Return a layout with two dims exchanged, dense if the given one is; owned."""
    cdef int32_t d, ndim = layout.ndim
    cdef int64_t expected = 1
    cdef pb_layout *made = block_new(ndim)
    cdef int64_t *shape = layout_shape(made)
    cdef int64_t *strides = layout_strides(made)
    memcpy(shape, layout_shape(layout), 2 * ndim * sizeof(int64_t))
    shape[a], shape[b] = shape[b], shape[a]
    strides[a], strides[b] = strides[b], strides[a]
    made.numel = layout.numel
    made.flags = layout.flags
    if layout.numel != 0 and layout.flags & LAYOUT_DENSE:
        made.flags |= LAYOUT_CONTIGUOUS
        for d in range(ndim - 1, -1, -1):
            if shape[d] != 1:
                if strides[d] != expected:
                    made.flags &= ~LAYOUT_CONTIGUOUS
                    break
                expected *= shape[d]
    return made


cdef pb_layout **remembered(int32_t ndim, const int64_t *shape) noexcept nogil:
    """Return the cache entry for row-major blocks of this shape."""
    cdef uint64_t hashed = <uint64_t>ndim
    cdef int32_t d
    for d in range(ndim):
        hashed = (hashed ^ <uint64_t>shape[d]) * <uint64_t>0x9E3779B97F4A7C15
    return &memory[(hashed >> 32) & (MEMORY_LENGTH - 1)]


cdef pb_layout *layout_contiguous(int32_t ndim, const int64_t *shape) except NULL:
    """Return a row-major block; owned. A cache shares recent ones, so that equal shapes are often
    the same block and need no comparison."""
    cdef pb_layout **known
    cdef pb_layout *layout
    if 0 < ndim <= 4:
        known = remembered(ndim, shape)
        layout = known[0]
        if layout != NULL and layout.ndim == ndim and memcmp(
                layout_shape(layout), shape, ndim * sizeof(int64_t)) == 0:
            layout.refcount += 1
            return layout
        layout = contiguous_new(ndim, shape)
        if known[0] != NULL:
            known[0].refcount -= 1
            if known[0].refcount == 0:
                layout_free(known[0])
        known[0] = layout
        layout.refcount += 1
        return layout
    return contiguous_new(ndim, shape)


cdef pb_layout *contiguous_new(int32_t ndim, const int64_t *shape) except NULL:
    """Return a new row-major block; owned."""
    cdef int32_t d
    cdef int64_t stride = 1
    cdef int64_t *strides
    if ndim > PB_MAX_NDIM:
        raise RuntimeError(f"a tensor can have at most {PB_MAX_NDIM} dimensions, got {ndim}")
    cdef pb_layout *layout = block_new(ndim)
    try:
        count_elements(layout, shape)
    except BaseException:
        layout_free(layout)
        raise
    memcpy(layout_shape(layout), shape, ndim * sizeof(int64_t))
    strides = layout_strides(layout)
    for d in range(ndim - 1, -1, -1):
        strides[d] = stride
        if d > 0 and shape[d] > 1:
            if stride > LARGEST // shape[d]:            # only an empty tensor gets here
                layout_free(layout)
                raise RuntimeError("Stride calculation overflowed")
            stride *= shape[d]
    layout.flags = LAYOUT_CONTIGUOUS | LAYOUT_DENSE
    return layout


cdef pb_layout *layout_scalar() noexcept:
    """Return the 0-d layout; owned."""
    scalar_layout.refcount += 1
    return scalar_layout


cdef bint layout_same_shape(const pb_layout *a, const pb_layout *b) noexcept nogil:
    if a == b:
        return True
    if a.ndim != b.ndim or a.numel != b.numel:
        return False
    return memcmp(layout_shape(a), layout_shape(b), a.ndim * sizeof(int64_t)) == 0


cdef bint layout_same_strides(const pb_layout *a, const pb_layout *b) noexcept nogil:
    """True if equal strides on every dim of more than one element."""
    cdef int d
    if a == b:
        return True
    if not layout_same_shape(a, b):
        return False
    for d in range(a.ndim):
        if layout_shape(a)[d] > 1 and layout_strides(a)[d] != layout_strides(b)[d]:
            return False
    return True


cdef tuple dims_tuple(const int64_t *dims, int32_t ndim):
    cdef tuple result = PyTuple_New(ndim)
    cdef int32_t d
    cdef object item                    # an object: SET_ITEM below takes the count of INCREF
    for d in range(ndim):
        item = dims[d]
        Py_INCREF(item)
        PyTuple_SET_ITEM(result, d, item)
    return result


cdef tuple layout_shape_tuple(const pb_layout *layout):
    return dims_tuple(layout_shape(layout), layout.ndim)


cdef tuple layout_strides_tuple(const pb_layout *layout):
    return dims_tuple(layout_strides(layout), layout.ndim)


cdef int fail_large(const char *op, const char *argument, object value) except -1:
    raise RuntimeError(f"{op.decode()}(): argument '{argument.decode()}' holds {value}, which does "
                       f"not fit in 64 bits") from None


cdef int layout_parse(object dims, int64_t *out, const char *op, const char *argument) except -1:
    """Read a sequence of integers into ``out`` (room for PB_MAX_NDIM); return how many."""
    cdef Py_ssize_t count = 0
    if small_int(dims, out):
        return 1
    if PyLong_Check(dims) or (not isinstance(dims, (tuple, list)) and PyIndex_Check(dims)):
        dims = PyNumber_Index(dims)
        try:
            out[0] = PyLong_AsLongLong(dims)
        except OverflowError:
            fail_large(op, argument, dims)
        return 1
    if not isinstance(dims, (tuple, list)):
        raise TypeError(f"{op.decode()}(): argument '{argument.decode()}' must be tuple of ints, "
                        f"not {type(dims).__name__}")
    for item in dims:
        if count >= PB_MAX_NDIM:
            raise RuntimeError(
                f"{op.decode()}(): argument '{argument.decode()}' has more than "
                f"{PB_MAX_NDIM} entries")
        if small_int(item, out + count):
            count += 1
            continue
        if isinstance(item, bool) or not PyIndex_Check(item):
            raise TypeError(
                f"{op.decode()}(): argument '{argument.decode()}' must be tuple of ints, but "
                f"found element of type {type(item).__name__} at pos {count}")
        try:
            out[count] = PyLong_AsLongLong(PyNumber_Index(item))
        except OverflowError:
            fail_large(op, argument, item)
        count += 1
    return <int>count


cdef int64_t layout_extent(const pb_layout *layout, int64_t *low) noexcept nogil:
    """Return the highest element offset of a layout; ``low`` gets the lowest (<= 0)."""
    cdef const int64_t *shape = layout_shape(layout)
    cdef const int64_t *strides = layout_strides(layout)
    cdef int64_t high = 0
    cdef int32_t d
    low[0] = 0
    for d in range(layout.ndim):
        if strides[d] > 0:
            high += (shape[d] - 1) * strides[d]
        else:
            low[0] += (shape[d] - 1) * strides[d]
    return high


cdef bint layout_may_self_overlap(const pb_layout *layout) noexcept nogil:
    """True when two indices may refer to one element. Exact for strides that are nested."""
    cdef const int64_t *shape = layout_shape(layout)
    cdef const int64_t *strides = layout_strides(layout)
    cdef int64_t reach = 0, best
    cdef int32_t d, pick
    cdef uint64_t used = 0
    if layout.flags & LAYOUT_DENSE or layout.numel <= 1:
        return False
    if layout.flags & LAYOUT_OVERLAPPING:
        return True
    while True:
        pick = -1
        best = 0
        for d in range(layout.ndim):
            if (used >> d) & 1 or shape[d] == 1:
                continue
            if pick < 0 or (strides[d] if strides[d] > 0 else -strides[d]) < best:
                pick = d
                best = strides[d] if strides[d] > 0 else -strides[d]
        if pick < 0:
            return False
        if best <= reach:
            return True
        reach += best * (shape[pick] - 1)
        used |= <uint64_t>1 << pick


cdef int broadcast_pair(const pb_layout *a, const pb_layout *b, int64_t *shape) except -1:
    """Broadcast two shapes as NumPy does; return the number of dims."""
    cdef int ndim = a.ndim if a.ndim > b.ndim else b.ndim
    cdef int d, da, db
    cdef int64_t x, y
    for d in range(ndim):
        da = d - (ndim - a.ndim)
        db = d - (ndim - b.ndim)
        x = layout_shape(a)[da] if da >= 0 else 1
        y = layout_shape(b)[db] if db >= 0 else 1
        if x == y or y == 1:
            shape[d] = x
        elif x == 1:
            shape[d] = y
        else:
            raise RuntimeError(f"The size of tensor a ({x}) must match the size of tensor b ({y}) "
                               f"at non-singleton dimension {d}")
    return ndim


cdef int check_broadcast(const pb_layout *target, const pb_layout *source) except -1:
    """Raise unless `source` can be repeated to the shape of `target`."""
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int d, ndim
    cdef bint fits
    if layout_same_shape(target, source):
        return 0
    ndim = broadcast_pair(target, source, shape)
    fits = ndim == target.ndim
    for d in range(ndim if fits else 0):
        fits = fits and shape[d] == layout_shape(target)[d]
    if not fits:
        raise RuntimeError(f"output with shape {list(layout_shape_tuple(target))} doesn't match "
                           f"the broadcast shape {[shape[d] for d in range(ndim)]}")
    return 0


scalar_layout = layout_contiguous(0, NULL)
