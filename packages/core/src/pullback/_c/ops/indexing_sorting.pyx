# build: small
"""Forward passes with index tensors, and along a dim: index, gather, cumulative ops, sorts.

They handle common calls; others go to the Python forward pass of the entry.
"""

from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject
from libc.stdint cimport int64_t
from libc.string cimport memcmp

from pullback.abi cimport PB_BOOL, PB_I64, PB_MAX_NDIM, PB_MAX_OPERANDS, pb_param
from pullback._c.dispatch.call cimport forward_python, op_call1, op_call2
from pullback._c.base.dtype cimport CATEGORY_COMPLEX, CATEGORY_FLOATING, dtype_category
from pullback._c.dispatch.operands cimport memory_overlaps
from pullback._c.graph.op cimport MAX_ARGS, Op, forward_register, op_named
from pullback._c.dispatch.launch cimport (
    copy_into, fill_with, launch, launch_operands, launch_with_int, param_int, primitive_id)
from pullback._c.base.layout cimport (
    check_broadcast, layout_contiguous, layout_new, layout_parse, layout_same_shape, small_int)
from pullback._c.device.storage cimport storage_retain
from pullback._c.graph.tensor cimport (
    Tensor, is_tensor, same_device, tensor_new, tensor_over, tensor_wrap)
from pullback._c.base.types cimport LAYOUT_CONTIGUOUS, layout_shape, layout_strides
from pullback._c.ops.views cimport dim_of, fetch
from pullback._c.ops.create import element_of

cdef int GATHER = primitive_id("gather")
cdef int SORT = primitive_id("sort")
cdef int INDEX = primitive_id("index")
cdef int INDEX_PUT = primitive_id("index_put")


# ---- tensors below autograd ----------------------------------------------------------------------

cdef inline Tensor new_like(Tensor self, int ndim, const int64_t *shape, int dtype):
    """Return a new row-major tensor on the device of another."""
    return tensor_new(layout_contiguous(ndim, shape), dtype, self.storage.device_type,
                      self.storage.device_index)


cdef inline Tensor over(Tensor self, int ndim, const int64_t *shape, const int64_t *strides):
    """Return a tensor over the same memory with other sizes and strides."""
    return tensor_over(self, storage_retain(self.storage), layout_new(ndim, shape, strides),
                       self.offset)


cdef inline bint is_index(Tensor self, Tensor index) noexcept nogil:
    """True for an index tensor that kernels take without conversion."""
    return index.dtype == PB_I64 and same_device(self, index)


# ---- at index tensors ----------------------------------------------------------------------------

cdef list whole_indices(Tensor self, object given):
    """Return indices of the first dims, all int64 and of one shape; None for other indices.

    A mask becomes the coordinates of its true elements.
    """
    cdef Tensor index, first = None
    cdef int64_t shape[1]
    cdef int64_t strides[1]
    cdef int d
    cdef list found = []
    if not isinstance(given, (tuple, list)):
        return None
    for item in given:
        if not is_tensor(item):
            return None
        index = <Tensor>item
        if index.dtype == PB_BOOL and index.layout.ndim > 0:
            item = op_call1(op_named("_nonzero"), item)
            shape[0] = layout_shape((<Tensor>item).layout)[0]
            strides[0] = index.layout.ndim
            for d in range(index.layout.ndim):
                found.append(tensor_wrap(storage_retain((<Tensor>item).storage),
                                         layout_new(1, shape, strides), d, PB_I64))
        elif is_index(self, index):
            found.append(item)
        else:
            return None
    if not found or len(found) > min(<int>self.layout.ndim, PB_MAX_OPERANDS - 2):
        return None
    first = <Tensor>found[0]
    for item in found:
        if not layout_same_shape(first.layout, (<Tensor>item).layout):
            return None
    return found


cdef int indexed_shape(Tensor index, int count, int ndim, const int64_t *sizes,
                       int64_t *shape) noexcept:
    """Compute the shape of the result of ``count`` indices of the first dims; return its length."""
    cdef int d, length = index.layout.ndim
    for d in range(length):
        shape[d] = layout_shape(index.layout)[d]
    for d in range(count, ndim):
        shape[length] = sizes[d]
        length += 1
    return length


cdef object forward_index(Op op, PyObject **args, PyObject *target):
    """(self, indices): for indices of the first dims."""
    cdef Tensor self = <Tensor>args[0], out
    cdef PyObject *operands[PB_MAX_OPERANDS]
    cdef int64_t shape[2 * PB_MAX_NDIM]
    cdef list indices = None
    cdef int i, count, ndim
    if target == NULL and self.layout.numel != 0:
        indices = whole_indices(self, <object>args[1])
    if indices is None:
        return forward_python(op, args, target)
    count = <int>len(indices)
    ndim = indexed_shape(<Tensor>indices[0], count, self.layout.ndim, layout_shape(self.layout),
                         shape)
    out = new_like(self, ndim, shape, self.dtype)
    operands[0] = <PyObject *>out
    operands[1] = <PyObject *>self
    for i in range(count):
        operands[2 + i] = <PyObject *>PyList_GET_ITEM(indices, i)
    if out.layout.numel != 0:
        launch_operands(INDEX, self.dtype, operands, 1, 1 + count, NULL, 0)
    return out


cdef object forward_index_backward(Op op, PyObject **args, PyObject *target):
    """(self, size, indices): zeros with self added at indices of the first dims."""
    cdef Tensor self = <Tensor>args[0], out
    cdef PyObject *operands[PB_MAX_OPERANDS]
    cdef int64_t sizes[PB_MAX_NDIM]
    cdef int64_t shape[2 * PB_MAX_NDIM]
    cdef pb_param accumulate
    cdef list indices
    cdef int i, count, ndim = layout_parse(<object>args[1], sizes, op.name_bytes, "size")
    out = new_like(self, ndim, sizes, self.dtype)
    indices = whole_indices(out, <object>args[2]) if target == NULL else None
    if indices is not None:
        count = <int>len(indices)
        ndim = indexed_shape(<Tensor>indices[0], count, ndim, sizes, shape)
        if ndim == self.layout.ndim and memcmp(
                shape, layout_shape(self.layout), ndim * sizeof(int64_t)) == 0:
            fill_with(out, 0)
            param_int(&accumulate, 1)
            operands[0] = <PyObject *>out
            operands[1] = <PyObject *>self
            for i in range(count):
                operands[2 + i] = <PyObject *>PyList_GET_ITEM(indices, i)
            if self.layout.numel != 0:
                launch_operands(INDEX_PUT, self.dtype, operands, 1, 1 + count, &accumulate, 1)
            return out
    return forward_python(op, args, target)


cdef Tensor narrowed(Tensor self, Tensor index, int64_t dim):
    """Return the part of a tensor with an index's shape, except along dim; None if it is smaller.

    With ``dim`` -1, of the index's shape in all dims.
    """
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int64_t size
    cdef int d, ndim = fetch(self, shape, strides)
    cdef bint same = True
    for d in range(ndim):
        size = layout_shape(index.layout)[d]
        if d != dim and size != shape[d]:
            if size > shape[d]:
                return None
            shape[d] = size
            same = False
    return self if same else over(self, ndim, shape, strides)


cdef int run_with_index(int primitive, int key, PyObject **operands, int64_t dim) except -1:
    """Run a kernel that checks its index; IndexError becomes RuntimeError, as in torch."""
    try:
        launch_with_int(primitive, key, operands, 1, 2, dim)
    except IndexError as error:
        raise RuntimeError(*error.args) from None
    return 0


cdef object forward_gather(Op op, PyObject **args, PyObject *target):
    """(self, dim, index, sparse_grad): for an index that fits in self, except along dim."""
    cdef Tensor self = <Tensor>args[0], index = <Tensor>args[2], part, out
    cdef PyObject *operands[3]
    cdef int64_t dim
    cdef int ndim = self.layout.ndim
    if (target != NULL or ndim == 0 or index.layout.ndim != ndim or index.layout.numel == 0
            or not is_index(self, index)):
        return forward_python(op, args, target)
    dim = dim_of(<object>args[1], ndim)
    part = narrowed(self, index, dim)
    if part is None:
        return forward_python(op, args, target)
    out = new_like(self, ndim, layout_shape(index.layout), self.dtype)
    operands[0] = <PyObject *>out
    operands[1] = <PyObject *>part
    operands[2] = <PyObject *>index
    run_with_index(GATHER, self.dtype, operands, dim)
    return out


cdef object forward_scatter_add(Op op, PyObject **args, PyObject *target):
    """(self, dim, index, src): for an index that fits in src, and in self except along dim."""
    cdef Tensor self = <Tensor>args[0], index = <Tensor>args[2], source = <Tensor>args[3], part
    cdef PyObject *operands[3]
    cdef int64_t dim
    cdef int ndim = self.layout.ndim
    if (target != args[0] or ndim == 0 or index.layout.ndim != ndim or source.layout.ndim != ndim
            or index.layout.numel == 0 or source.dtype != self.dtype
            or not is_index(self, index) or not same_device(self, source)
            or memory_overlaps(self, source) or memory_overlaps(self, index)):
        return forward_python(op, args, target)
    dim = dim_of(<object>args[1], ndim)
    part = narrowed(self, index, dim)
    source = narrowed(source, index, -1)
    if part is None or source is None:
        return forward_python(op, args, target)
    operands[0] = <PyObject *>part
    operands[1] = <PyObject *>index
    operands[2] = <PyObject *>source
    run_with_index(op.primitive, self.dtype, operands, dim)
    return self


cdef object forward_index_select(Op op, PyObject **args, PyObject *target):
    """(self, dim, index): for an index vector."""
    cdef Tensor self = <Tensor>args[0], index = <Tensor>args[2], out
    cdef PyObject *operands[3]
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int64_t dim
    cdef int d, ndim = self.layout.ndim
    if (target != NULL or ndim == 0 or self.layout.numel == 0 or index.layout.ndim != 1
            or index.layout.numel == 0 or not is_index(self, index)):
        return forward_python(op, args, target)
    dim = dim_of(<object>args[1], ndim)
    for d in range(ndim):
        shape[d] = layout_shape(self.layout)[d]
        strides[d] = 0
    shape[dim] = index.layout.numel
    strides[dim] = layout_strides(index.layout)[0]
    out = new_like(self, ndim, shape, self.dtype)
    if ndim > 1:
        index = over(index, ndim, shape, strides)
    operands[0] = <PyObject *>out
    operands[1] = <PyObject *>self
    operands[2] = <PyObject *>index
    launch_with_int(GATHER, self.dtype, operands, 1, 2, dim)  # which takes no negative numbers
    return out


# ---- nonzero and flip ----------------------------------------------------------------------------

cdef object zero = 0
cdef object no = False
cdef Op SUM, NE


cdef object forward_nonzero(Op op, PyObject **args, PyObject *target):
    """nonzero: the coordinates of the elements other than 0."""
    cdef Tensor self = <Tensor>args[0], out
    cdef PyObject *operands[2]
    cdef int64_t shape[2]
    global SUM, NE
    if SUM is None:                     # ops do not exist yet when this module is imported
        SUM, NE = op_named("sum"), op_named("ne")
    shape[0] = element_of(op_call1(SUM, op_call2(NE, self, no if self.dtype == PB_BOOL else zero)),
                          b"nonzero(), whose result depends on values")
    shape[1] = self.layout.ndim
    out = new_like(self, 2, shape, PB_I64)
    operands[0] = <PyObject *>out
    operands[1] = <PyObject *>self
    if out.layout.numel != 0:
        launch_operands(op.primitive, self.dtype, operands, 1, 1, NULL, 0)
    return out


cdef object forward_reverse(Op op, PyObject **args, PyObject *target):
    """flip of (self, dims), for a row-major tensor and dims from 0."""
    cdef Tensor self = <Tensor>args[0], out
    if target != NULL or not self.layout.flags & LAYOUT_CONTIGUOUS:
        return forward_python(op, args, target)
    out = new_like(self, self.layout.ndim, layout_shape(self.layout), self.dtype)
    if out.layout.numel != 0:
        launch(op.primitive, self.dtype, (out,), (self,), (<tuple?><object>args[1],))
    return out


# ---- backward of views ---------------------------------------------------------------------------

cdef object forward_embed(Op op, PyObject **args, PyObject *target):
    """(self, size, ..): zeros of a size, with self in the part that the view returns."""
    cdef Tensor self = <Tensor>args[0], out, part
    cdef PyObject *where[MAX_ARGS]
    cdef int64_t sizes[PB_MAX_NDIM]
    cdef int i, ndim = layout_parse(<object>args[1], sizes, op.name_bytes, "size")
    out = new_like(self, ndim, sizes, self.dtype)
    fill_with(out, 0)
    if op.view is None:
        op.view = op_named(op.name.removesuffix("_backward"))
    where[0] = <PyObject *>out
    for i in range(2, op.nargs):
        where[i - 1] = args[i]
    part = <Tensor?>op.view.forward(op.view, where, NULL)
    check_broadcast(part.layout, self.layout)
    copy_into(part, self)
    return out


# ---- triangles -----------------------------------------------------------------------------------

cdef object forward_triangle(Op op, PyObject **args, PyObject *target):
    """(self, diagonal): tril and triu."""
    cdef Tensor self = <Tensor>args[0], out
    cdef PyObject *operands[2]
    cdef int64_t diagonal
    cdef int ndim = self.layout.ndim
    if target != NULL or ndim < 2 or not small_int(<object>args[1], &diagonal):
        return forward_python(op, args, target)
    out = new_like(self, ndim, layout_shape(self.layout), self.dtype)
    operands[0] = <PyObject *>out
    operands[1] = <PyObject *>self
    if out.layout.numel != 0:           # larger diagonals give the same result
        diagonal = max(-layout_shape(self.layout)[ndim - 2],
                       min(diagonal, layout_shape(self.layout)[ndim - 1]))
        launch_with_int(op.primitive, self.dtype, operands, 1, 1, diagonal)
    return out


# ---- cumulative ops ------------------------------------------------------------------------------

cdef object forward_scan(Op op, PyObject **args, PyObject *target):
    """(self, dim, .., dtype): for floating-point numbers and int64, without a dtype argument."""
    cdef Tensor self = <Tensor>args[0], out
    cdef PyObject *operands[2]
    cdef int64_t dim
    if (target != NULL or self.layout.ndim == 0
            or not (dtype_category[self.dtype] == CATEGORY_FLOATING or self.dtype == PB_I64)
            or not op.dtypes >> self.dtype & 1
            or (op.nargs > 2 and <object>args[op.nargs - 1] is not None)):
        return forward_python(op, args, target)
    dim = dim_of(<object>args[1], self.layout.ndim)
    out = new_like(self, self.layout.ndim, layout_shape(self.layout), self.dtype)
    operands[0] = <PyObject *>out
    operands[1] = <PyObject *>self
    if out.layout.numel != 0:
        launch_with_int(op.primitive, self.dtype, operands, 1, 1, dim)
    return out


# ---- sorts ---------------------------------------------------------------------------------------

cdef Tensor with_last(Tensor self, int64_t dim):
    """Return the tensor with a dim exchanged with the last."""
    cdef int64_t shape[PB_MAX_NDIM]
    cdef int64_t strides[PB_MAX_NDIM]
    cdef int last = fetch(self, shape, strides) - 1
    if dim == last:
        return self
    shape[dim], shape[last] = shape[last], shape[dim]
    strides[dim], strides[last] = strides[last], strides[dim]
    return over(self, last + 1, shape, strides)


def stable_sort(Tensor self not None, int64_t dim, count, bint descending):
    """Return values and indices of a stable sort along a dim; the first ``count``, if given."""
    return sorted_lines(self, dim, layout_shape(self.layout)[dim] if count is None else count,
                        descending)


cdef tuple sorted_lines(Tensor self, int64_t dim, int64_t count, bint descending):
    cdef int64_t shape[PB_MAX_NDIM]
    cdef Tensor values, indices, a, b, c
    cdef PyObject *operands[3]
    cdef int d
    for d in range(self.layout.ndim):
        shape[d] = count if d == dim else layout_shape(self.layout)[d]
    values = new_like(self, self.layout.ndim, shape, self.dtype)
    indices = new_like(self, self.layout.ndim, shape, PB_I64)
    if values.layout.numel != 0:
        a = with_last(values, dim)
        b = with_last(indices, dim)
        c = with_last(self, dim)
        operands[0] = <PyObject *>a
        operands[1] = <PyObject *>b
        operands[2] = <PyObject *>c
        launch_with_int(SORT, self.dtype, operands, 2, 1, descending)
    return values, indices


cdef inline bint is_plain_sort(PyObject **args, PyObject *target) noexcept:
    """True for common arguments (self, dim, descending, stable): self with dims, bools."""
    return (target == NULL and (<Tensor>args[0]).layout.ndim > 0
            and dtype_category[(<Tensor>args[0]).dtype] != CATEGORY_COMPLEX
            and isinstance(<object>args[2], bool))


cdef object forward_sort(Op op, PyObject **args, PyObject *target):
    """(self, dim, descending, stable)."""
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t dim
    if not is_plain_sort(args, target):
        return forward_python(op, args, target)
    dim = dim_of(<object>args[1], self.layout.ndim)
    return tuple.__new__(op.entry.results, sorted_lines(
        self, dim, layout_shape(self.layout)[dim], <object>args[2]))


cdef object forward_argsort(Op op, PyObject **args, PyObject *target):
    """(self, dim, descending, stable)."""
    cdef Tensor self = <Tensor>args[0], out, lines
    cdef PyObject *operands[2]
    cdef int64_t dim
    if not is_plain_sort(args, target):
        return forward_python(op, args, target)
    dim = dim_of(<object>args[1], self.layout.ndim)
    out = new_like(self, self.layout.ndim, layout_shape(self.layout), PB_I64)
    if out.layout.numel != 0:
        lines = with_last(out, dim)
        self = with_last(self, dim)
        operands[0] = <PyObject *>lines
        operands[1] = <PyObject *>self
        launch_with_int(op.primitive, self.dtype, operands, 1, 1, <bint><object>args[2])
    return out


cdef object forward_topk(Op op, PyObject **args, PyObject *target):
    """(self, k, dim, largest, sorted), for a k up to the size of the dim."""
    cdef Tensor self = <Tensor>args[0]
    cdef int64_t dim, count
    if (target != NULL or self.layout.ndim == 0 or dtype_category[self.dtype] == CATEGORY_COMPLEX
            or self.dtype == PB_BOOL or not isinstance(<object>args[3], bool)
            or not small_int(<object>args[1], &count)):
        return forward_python(op, args, target)
    dim = dim_of(<object>args[2], self.layout.ndim)
    if count < 0 or count > layout_shape(self.layout)[dim]:
        return forward_python(op, args, target)
    return tuple.__new__(op.entry.results, sorted_lines(self, dim, count, <object>args[3]))


forward_register("argsort", forward_argsort)
forward_register("embed", forward_embed)
forward_register("gather", forward_gather)
forward_register("index", forward_index)
forward_register("index_select", forward_index_select)
forward_register("index_backward", forward_index_backward)
forward_register("nonzero", forward_nonzero)
forward_register("reverse", forward_reverse)
forward_register("scan", forward_scan)
forward_register("scatter_add", forward_scatter_add)
forward_register("sort", forward_sort)
forward_register("topk", forward_topk)
forward_register("triangle", forward_triangle)
