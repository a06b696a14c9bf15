"""Forward passes of views: new sizes and strides over the same storage."""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.number cimport PyIndex_Check, PyNumber_Index
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

from pullback.abi cimport PB_MAX_NDIM
from pullback._c.base.dtype cimport dtype_itemsize
from pullback._c.graph.op cimport Op, forward_register
from pullback._c.base.interrupts cimport poll_signals
from pullback._c.base.layout cimport (
    layout_contiguous, layout_new, layout_parse, layout_retain, layout_shape_tuple, layout_swapped,
    small_int)
from pullback._c.base.state cimport pb_state, thread_state
from pullback._c.device.storage cimport storage_retain
from pullback._c.graph.tensor cimport (
    TENSOR_IS_VIEW, TENSOR_LAZY, Tensor, VIEW_DEFAULT, VIEW_INFERENCE, VIEW_MULTI_OUTPUT,
    VIEW_NO_GRAD, pb_tensor_extra, tensor_alias, tensor_extra, tensor_wrap)
from pullback._c.base.types cimport (
    LAYOUT_CONTIGUOUS, STORAGE_INFERENCE, layout_shape, layout_strides, pb_layout)


cdef int64_t LARGEST_INDEX = <int64_t>1 << 62
cdef int64_t MANY_VIEWS = 1 << 16     # from here on room_for_views checks the memory first
cdef int64_t VIEW_BYTES = <int64_t>Tensor.__basicsize__ + <int64_t>sizeof(pb_tensor_extra)


cdef Tensor make_view(Tensor source, pb_layout *layout, int64_t offset, int dtype):
    """Return a view of `source` with a layout; steals its count."""
    cdef Tensor view = tensor_wrap(storage_retain(source.storage), layout, offset, dtype)
    cdef pb_tensor_extra *extra
    cdef pb_state *state = thread_state()
    cdef Tensor base = source
    view.flags = source.flags & TENSOR_LAZY
    if source.storage.flags & STORAGE_INFERENCE:
        return view                     # inference tensors have no history, so no base is kept
    extra = tensor_extra(view)
    extra.view_kind = (VIEW_INFERENCE if state.inference else
                       VIEW_DEFAULT if state.grad_enabled else VIEW_NO_GRAD)
    if source.flags & TENSOR_IS_VIEW:
        base = <Tensor>source.extra.base
        if extra.view_kind == VIEW_DEFAULT:
            extra.view_kind = source.extra.view_kind
    Py_INCREF(base)
    extra.base = <PyObject *>base
    extra.view_version = view.storage.version
    view.flags |= TENSOR_IS_VIEW
    return view


cdef Tensor view_strided(Tensor source, int ndim, const int64_t *shape, const int64_t *strides,
                         int64_t offset):
    return make_view(source, layout_new(ndim, shape, strides), offset, source.dtype)


# ---- arguments -----------------------------------------------------------------------------------

cdef int64_t integer(object value, str op, str argument) except? -1:
    """Read an integer argument."""
    cdef int64_t found
    if small_int(value, &found):
        return found
    if isinstance(value, bool) or not PyIndex_Check(value):
        raise TypeError(f"{op}(): argument '{argument}' must be int, not {type(value).__name__}")
    try:
        return PyNumber_Index(value)
    except OverflowError:
        raise OverflowError(
            f"{op}(): argument '{argument}' does not fit in 64 bits: {value}") from None


cdef int64_t dim_of(object dim, int64_t ndim) except -1:
    """Return a dim counted from 0; a 0-d tensor is treated as 1-d."""
    cdef int64_t d
    cdef int64_t count = ndim if ndim > 0 else 1
    if not small_int(dim, &d):
        if isinstance(dim, bool) or not PyIndex_Check(dim):
            raise TypeError(f"dim must be int, not {type(dim).__name__}")
        d = PyNumber_Index(dim)
    if d < -count or d >= count:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-count}, "
                         f"{count - 1}], but got {d})")
    return d + count if d < 0 else d


cdef int fetch(Tensor self, int64_t *shape, int64_t *strides) noexcept:
    memcpy(shape, layout_shape(self.layout), self.layout.ndim * sizeof(int64_t))
    memcpy(strides, layout_strides(self.layout), self.layout.ndim * sizeof(int64_t))
    return self.layout.ndim


# ---- order of dims -------------------------------------------------------------------------------

cdef Tensor exchanged(Tensor self, int a, int b):
    """Return the view with two dims exchanged."""
    cdef pb_layout *layout = self.layout
    layout = layout_retain(layout) if a == b else layout_swapped(layout, a, b)
    return make_view(self, layout, self.offset, self.dtype)


cdef object forward_transpose(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int ndim = self.layout.ndim
    cdef int64_t a = dim_of(<object>args[1], ndim), b = dim_of(<object>args[2], ndim)
    return exchanged(self, <int>a, <int>b)


cdef object forward_t(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int ndim = self.layout.ndim
    if ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {ndim}D")
    return exchanged(self, 0, ndim - 1 if ndim > 0 else 0)


cdef object forward_permute(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t dims[PB_MAX_NDIM]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int ndim = self.layout.ndim, d
    cdef int64_t k
    cdef unsigned long long used = 0
    cdef int count = layout_parse(<object>args[1], dims, "permute", "dims")
    if count != ndim:
        raise RuntimeError(f"permute(sparse_coo): number of dimensions in the tensor input does "
                           f"not match the length of the desired ordering of dimensions i.e. "
                           f"input.dim() = {ndim} is not equal to len(dims) = {count}")
    for d in range(ndim):
        k = dim_of(dims[d], ndim)
        if (used >> k) & 1:
            raise RuntimeError("permute(): duplicate dims are not allowed.")
        used |= <unsigned long long>1 << k
        shape[d] = layout_shape(self.layout)[k]
        strides[d] = layout_strides(self.layout)[k]
    return view_strided(self, ndim, shape, strides, self.offset)


# ---- number of dims ------------------------------------------------------------------------------

cdef object forward_unsqueeze(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM + 1]
    cdef int64_t strides[PB_MAX_NDIM + 1]
    cdef int ndim = fetch(self, shape, strides), d
    cdef int64_t at = dim_of(<object>args[1], ndim + 1)
    for d in range(ndim, at, -1):
        shape[d] = shape[d - 1]
        strides[d] = strides[d - 1]
    strides[at] = shape[at + 1] * strides[at + 1] if at < ndim else 1
    shape[at] = 1
    return view_strided(self, ndim + 1, shape, strides, self.offset)


cdef object forward_squeeze(Op op, PyObject **args, PyObject *target):
    """Drop dims of one element: all, one, or several."""
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t dims[PB_MAX_NDIM]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int ndim = self.layout.ndim, d, count, kept = 0
    cdef unsigned long long drop = 0
    if <object>args[1] is None:
        drop = <unsigned long long>-1
    else:
        count = layout_parse(<object>args[1], dims, "squeeze", "dim")
        for d in range(count):
            drop |= <unsigned long long>1 << dim_of(dims[d], ndim)
    for d in range(ndim):
        if layout_shape(self.layout)[d] == 1 and (drop >> d) & 1:
            continue
        shape[kept] = layout_shape(self.layout)[d]
        strides[kept] = layout_strides(self.layout)[d]
        kept += 1
    return view_strided(self, kept, shape, strides, self.offset)


cdef object forward_expand(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int ndim = self.layout.ndim, d, k
    cdef int64_t size
    cdef int count = layout_parse(<object>args[1], shape, "expand", "size")
    if count < ndim:
        raise RuntimeError(f"expand({list(layout_shape_tuple(self.layout))}, size="
                           f"{[shape[d] for d in range(count)]}): the number of sizes provided "
                           f"({count}) must be greater or equal to the number of dimensions in "
                           f"the tensor ({ndim})")
    for d in range(count - 1, -1, -1):      # as torch, whose error names the last dim
        k = d - (count - ndim)
        size = layout_shape(self.layout)[k] if k >= 0 else 1
        if shape[d] == -1:
            if k < 0:
                raise RuntimeError(f"The expanded size of the tensor ({shape[d]}) isn't allowed in "
                                   f"a leading, non-existing dimension {d}")
            shape[d] = size
        if k >= 0 and size == shape[d]:
            strides[d] = layout_strides(self.layout)[k]
        elif size == 1 and shape[d] >= 0:
            strides[d] = 0
        else:
            raise RuntimeError(f"The expanded size of the tensor ({shape[d]}) must match the "
                               f"existing size ({size}) at non-singleton dimension {d}.  Target "
                               f"sizes: {[shape[k] for k in range(count)]}.  Tensor sizes: "
                               f"{list(layout_shape_tuple(self.layout))}")
    return view_strided(self, count, shape, strides, self.offset)


# ---- parts ---------------------------------------------------------------------------------------

cdef object forward_select(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int ndim = fetch(self, shape, strides), d
    cdef int64_t dim, index, offset
    if ndim == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = dim_of(<object>args[1], ndim)
    index = integer(<object>args[2], "select", "index")
    if index < -shape[dim] or index >= shape[dim]:
        raise IndexError(f"select(): index {index} out of range for tensor of size "
                         f"{list(layout_shape_tuple(self.layout))} at dimension {dim}")
    if index < 0:
        index += shape[dim]
    offset = self.offset + index * strides[dim]
    for d in range(dim, ndim - 1):
        shape[d] = shape[d + 1]
        strides[d] = strides[d + 1]
    return view_strided(self, ndim - 1, shape, strides, offset)


cdef object forward_narrow(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int ndim = fetch(self, shape, strides)
    cdef int64_t dim, start, length, size
    if ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    dim = dim_of(<object>args[1], ndim)
    start = integer(<object>args[2], "narrow", "start")
    length = integer(<object>args[3], "narrow", "length")
    size = shape[dim]
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if start < -size or start > size:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-size}, {size}], "
                         f"but got {start})")
    if start < 0:
        start += size
    if start > size - length:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    shape[dim] = length
    return view_strided(self, ndim, shape, strides, self.offset + start * strides[dim])


cdef object forward_slice(Op op, PyObject **args, PyObject *target):
    """self[start:end:step] along a dim; None stands for the end of the dim."""
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int ndim = fetch(self, shape, strides)
    cdef int64_t dim, start, end, step, size
    if ndim == 0:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    dim = dim_of(<object>args[1], ndim)
    size = shape[dim]
    step = clip_index(<object>args[4], "step")
    if step <= 0:
        raise ValueError("step must be greater than zero")
    start = 0 if <object>args[2] is None else clip_index(<object>args[2], "start")
    end = size if <object>args[3] is None else clip_index(<object>args[3], "end")
    start = min(max(start + size if start < 0 else start, 0), size)
    end = min(max(end + size if end < 0 else end, start), size)
    shape[dim] = (end - start) // step + ((end - start) % step != 0)
    offset = self.offset + (start * strides[dim] if shape[dim] > 0 else 0)
    if step <= LARGEST_INDEX // max(strides[dim], 1):
        strides[dim] *= step            # without overflow: a step too large leaves one element
    return view_strided(self, ndim, shape, strides, offset)


cdef int64_t clip_index(object value, str argument) except? -1:
    """Read a slice bound: any Python integer, clamped to 62 bits."""
    cdef int64_t found
    if small_int(value, &found):
        return min(max(found, -LARGEST_INDEX), LARGEST_INDEX)
    if not PyIndex_Check(value):
        raise TypeError(f"slice(): argument '{argument}' must be int, not {type(value).__name__}")
    value = PyNumber_Index(value)
    return min(max(value, -LARGEST_INDEX), LARGEST_INDEX)


cpdef int room_for_views(int64_t count, str name) except -1:
    """Raise MemoryError where memory cannot hold so many views, before the first is made."""
    cdef void *room = NULL
    if count <= MANY_VIEWS:
        return 0
    if count <= LARGEST_INDEX // VIEW_BYTES:
        # Not malloc: a compiler may remove the allocation of an unused block.
        room = PyMem_RawMalloc(count * VIEW_BYTES)
    if room == NULL:
        raise MemoryError(f"{name}(): {count} views do not fit in memory")
    PyMem_RawFree(room)
    return 0


cdef object forward_unbind(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int ndim = fetch(self, shape, strides), d
    cdef int64_t dim, i, count, step
    cdef uint32_t turns = 0
    cdef Tensor view
    if ndim == 0:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    dim = dim_of(<object>args[1], ndim)
    count = shape[dim]
    step = strides[dim]
    for d in range(dim, ndim - 1):
        shape[d] = shape[d + 1]
        strides[d] = strides[d + 1]
    room_for_views(count, "unbind")
    found = []
    for i in range(count):
        poll_signals(&turns)
        view = view_strided(self, ndim - 1, shape, strides, self.offset + i * step)
        mark_multi(view)
        found.append(view)
    return tuple(found)


cdef int mark_multi(Tensor view) except -1:
    cdef pb_state *state = thread_state()
    if view.flags & TENSOR_IS_VIEW and state.grad_enabled and not state.inference:
        view.extra.view_kind = VIEW_MULTI_OUTPUT
    return 0


cdef object split_sizes(object size, int64_t whole, int64_t dim):
    """Return the lengths of the parts: of equal length, or a list."""
    cdef int64_t length
    if not PyIndex_Check(size):
        sizes = [integer(part, "split_with_sizes", "split_sizes") for part in size]
        if sum(sizes) != whole or min(sizes, default=0) < 0:
            raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {whole} "
                               f"(input tensor's size at dimension {dim}), but got "
                               f"split_sizes={sizes}")
        return sizes
    length = integer(size, "split", "split_size")
    if length < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={length}")
    if length == 0 and whole != 0:
        raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension "
                           f"size of {whole}")
    if length >= whole:
        return [whole]
    room_for_views(whole // length, "split")
    sizes = [length] * (whole // length)
    return sizes + [whole % length] if whole % length else sizes


cdef object forward_split(Op op, PyObject **args, PyObject *target):
    """Split a dim into parts of one length (the last may be shorter) or of given lengths."""
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int ndim = fetch(self, shape, strides)
    cdef int64_t dim, start = 0
    cdef uint32_t turns = 0
    cdef Tensor view
    if ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    dim = dim_of(<object>args[2], ndim)
    found = []
    for size in split_sizes(<object>args[1], shape[dim], dim):
        poll_signals(&turns)
        shape[dim] = size
        view = view_strided(self, ndim, shape, strides, self.offset + start * strides[dim])
        mark_multi(view)
        found.append(view)
        start += shape[dim]
    return tuple(found)


cdef object forward_diagonal(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int ndim = fetch(self, shape, strides), d, kept = 0
    cdef int64_t shift = integer(<object>args[1], "diagonal", "offset")
    cdef int64_t a = dim_of(<object>args[2], ndim), b = dim_of(<object>args[3], ndim)
    cdef int64_t length, step, offset = self.offset
    if ndim < 2 or a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {<object>args[2]}, "
                           f"{<object>args[3]}")
    if shift >= 0:
        length = max(min(shape[a], shape[b] - shift), 0)
    else:
        length = max(min(shape[a] + shift, shape[b]), 0)
    if length > 0:
        offset += shift * strides[b] if shift >= 0 else -shift * strides[a]
    step = strides[a] + strides[b]
    for d in range(ndim):
        if d != a and d != b:
            shape[kept] = shape[d]
            strides[kept] = strides[d]
            kept += 1
    shape[kept] = length
    strides[kept] = step
    return view_strided(self, kept + 1, shape, strides, offset)


# ---- new shapes ----------------------------------------------------------------------------------

cdef int infer_shape(Op op, Tensor self, object size, int64_t *shape) except -1:
    """Read a shape with at most one -1, which is inferred; return its length."""
    cdef int count = layout_parse(size, shape, op.name_bytes, "size"), d, guess = -1
    cdef int64_t known = 1, numel = self.layout.numel
    cdef bint fits = True
    for d in range(count):
        if shape[d] == -1:
            if guess >= 0:
                raise RuntimeError("only one dimension can be inferred")
            guess = d
        elif shape[d] < 0:
            raise RuntimeError(f"invalid shape dimension {shape[d]}")
        elif (known | shape[d]) >> 31 and shape[d] != 0 and known > LARGEST_INDEX // shape[d]:
            fits = False                # the product overflows 64 bits
        else:
            known *= shape[d]
    if guess >= 0 and fits:
        if known == 0:
            raise RuntimeError(f"cannot reshape tensor of {numel} elements into shape "
                               f"{[shape[d] for d in range(count)]} because the unspecified "
                               f"dimension size -1 can be any value and is ambiguous")
        fits = numel % known == 0
        if fits:
            shape[guess] = numel // known
    if not fits or (guess < 0 and known != numel):
        raise RuntimeError(f"shape '{[shape[d] for d in range(count)]}' is invalid for input of "
                           f"size {numel}")
    return count


cdef bint strides_for(Tensor self, int count, const int64_t *shape, int64_t *strides) noexcept:
    """Find strides that give `shape` over the same memory; False when there are none."""
    cdef const int64_t *old = layout_shape(self.layout)
    cdef const int64_t *steps = layout_strides(self.layout)
    cdef int d = self.layout.ndim - 1, v = count - 1
    cdef int64_t chunk_base, chunk = 1, made = 1
    cdef int64_t stride = 1
    if self.layout.numel == 0 or self.layout.flags & LAYOUT_CONTIGUOUS:
        for v in range(count - 1, -1, -1):
            strides[v] = stride
            stride *= shape[v] if shape[v] > 1 else 1
        return True
    if self.layout.ndim == 0:
        for v in range(count):
            strides[v] = 1
        return True
    chunk_base = steps[d]
    while d >= 0:
        chunk *= old[d]
        if d == 0 or (old[d - 1] != 1 and steps[d - 1] != chunk * chunk_base):
            while v >= 0 and (made < chunk or shape[v] == 1):
                strides[v] = made * chunk_base
                made *= shape[v]
                v -= 1
            if made != chunk:
                return False
            if d > 0:
                chunk_base = steps[d - 1]
                chunk = 1
                made = 1
        d -= 1
    return v == -1


cdef object forward_view(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int count = infer_shape(op, self, <object>args[1], shape)
    if self.layout.flags & LAYOUT_CONTIGUOUS and self.layout.numel != 0:
        return make_view(self, layout_contiguous(count, shape), self.offset, self.dtype)
    if not strides_for(self, count, shape, strides):
        raise RuntimeError("view size is not compatible with input tensor's size and stride (at "
                           "least one dimension spans across two contiguous subspaces). Use "
                           ".reshape(...) instead.")
    return view_strided(self, count, shape, strides, self.offset)


cdef object forward_as_strided(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int ndim = layout_parse(<object>args[1], shape, "as_strided", "size"), d
    cdef int64_t offset = self.offset
    if layout_parse(<object>args[2], strides, "as_strided", "stride") != ndim:
        raise RuntimeError("mismatch in length of strides and shape")
    if <object>args[3] is not None:
        offset = integer(<object>args[3], "as_strided", "storage_offset")
    high = offset
    empty = False
    for d in range(ndim):
        if strides[d] < 0:
            raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got "
                               f"strides: {[strides[k] for k in range(ndim)]}")
        if shape[d] < 0:
            raise RuntimeError(f"as_strided: sizes must not be negative, got "
                               f"{[shape[k] for k in range(ndim)]}")
        if shape[d] == 0:
            empty = True
        else:
            high += (int(shape[d]) - 1) * int(strides[d])
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    need = (high + 1) * dtype_itemsize[self.dtype]
    if not empty and need > self.storage.nbytes:
        raise RuntimeError(f"setStorage: sizes {[shape[k] for k in range(ndim)]}, strides "
                           f"{[strides[k] for k in range(ndim)]}, storage offset {offset}, and "
                           f"itemsize {dtype_itemsize[self.dtype]} requiring a storage size of "
                           f"{need} are out of bounds for storage of size {self.storage.nbytes}")
    return view_strided(self, ndim, shape, strides, offset)


cdef object forward_alias(Op op, PyObject **args, PyObject *target):
    cdef Tensor self = <Tensor>args[0]
    return make_view(self, layout_retain(self.layout), self.offset, self.dtype)


cdef object forward_detach(Op op, PyObject **args, PyObject *target):
    return tensor_alias(<Tensor>args[0])


forward_register("transpose", forward_transpose)
forward_register("t", forward_t)
forward_register("permute", forward_permute)
forward_register("unsqueeze", forward_unsqueeze)
forward_register("squeeze", forward_squeeze)
forward_register("expand", forward_expand)
forward_register("select", forward_select)
forward_register("narrow", forward_narrow)
forward_register("slice", forward_slice)
forward_register("unbind", forward_unbind)
forward_register("split", forward_split)
forward_register("diagonal", forward_diagonal)
forward_register("view", forward_view)
forward_register("as_strided", forward_as_strided)
forward_register("alias", forward_alias)
forward_register("detach", forward_detach)
