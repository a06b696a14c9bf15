"""Forward passes of products of matrices and vectors, all on the primitive ``bmm``."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy

from pullback.abi cimport PB_ARRAY_WRITE, pb_array, pb_call
from pullback._c.base.dtype cimport (
    CATEGORY_INTEGRAL, dtype_category, dtype_object, dtype_of_scalar, scalar_write)
from pullback._c.dispatch.operands cimport raise_argument_device, unsupported
from pullback._c.graph.op cimport Op, forward_register
from pullback._c.dispatch.launch cimport (
    array_fill, check_device, copy_into, kernel_call, launch_elementwise, operand, primitive_id)
from pullback._c.base.layout cimport (
    layout_contiguous, layout_release, layout_same_shape, layout_shape_tuple, layout_swapped)
from pullback._c.graph.tensor cimport Tensor, same_device, tensor_new
from pullback._c.base.types cimport layout_shape, layout_strides, pb_layout
from pullback._c.device.device cimport COLUMNS_FIRST, preferred_layout

cdef int BMM = primitive_id("bmm")
cdef int ADD = primitive_id("add")
cdef int MUL = primitive_id("mul")


cdef int same_kind(Op op, Tensor a, Tensor b) except -1:
    """Raise unless both factors have one device and one dtype that the op supports."""
    if a.dtype != b.dtype:
        raise RuntimeError(f"{op.name}(): expected m1 and m2 to have the same dtype, but got: "
                           f"{dtype_object(a.dtype).name} != {dtype_object(b.dtype).name}")
    if not op.dtypes & (<uint32_t>1 << a.dtype):
        unsupported(op, a.dtype)
    if not same_device(a, b):
        raise_argument_device(op, a, b, 1)
    return 0


# ---- the kernel call -----------------------------------------------------------------------------

# One operand of the kernel, which takes three dims.
cdef struct factor:
    int64_t shape[3]
    int64_t strides[3]


cdef factor make_factor(int64_t b, int64_t m, int64_t n, int64_t sb, int64_t sm,
                        int64_t sn) noexcept nogil:
    cdef factor made
    made.shape[0], made.shape[1], made.shape[2] = b, m, n
    made.strides[0], made.strides[1], made.strides[2] = sb, sm, sn
    return made


cdef factor matrix(Tensor tensor) noexcept nogil:
    """A matrix, as a batch of one."""
    cdef const int64_t *shape = layout_shape(tensor.layout)
    cdef const int64_t *strides = layout_strides(tensor.layout)
    return make_factor(1, shape[0], shape[1], 0, strides[0], strides[1])


cdef factor column(Tensor tensor) noexcept nogil:
    """A vector, as a matrix of one column."""
    return make_factor(1, layout_shape(tensor.layout)[0], 1, 0, layout_strides(tensor.layout)[0], 1)


cdef pb_layout *layout_of_columns(int ndim, const int64_t *shape) except NULL:
    """Return the layout of matrices whose columns are each in one piece; owned."""
    cdef int64_t dims[3]
    cdef pb_layout *rows
    memcpy(dims, shape, ndim * sizeof(int64_t))
    dims[ndim - 2], dims[ndim - 1] = shape[ndim - 1], shape[ndim - 2]
    rows = layout_contiguous(ndim, dims)
    try:
        return layout_swapped(rows, ndim - 2, ndim - 1)
    finally:
        layout_release(rows)


cdef Tensor product(Tensor a, Tensor b, factor left, factor right, int ndim, const int64_t *shape):
    """Multiply; the result has the given shape, which holds as many elements as the product."""
    cdef factor parts[3]
    cdef pb_array arrays[3]
    cdef pb_array *pointers[3]
    cdef pb_call call
    cdef int i
    cdef int64_t m = left.shape[1], n = right.shape[2]
    cdef bint columns = ndim >= 2 and preferred_layout(
        a.storage.device_type, BMM) == COLUMNS_FIRST
    cdef Tensor out = tensor_new(
        layout_of_columns(ndim, shape) if columns else layout_contiguous(ndim, shape), a.dtype,
        a.storage.device_type, a.storage.device_index)
    if out.layout.numel == 0:
        return out
    parts[0] = make_factor(left.shape[0], m, n, m * n, 1 if columns else n, m if columns else 1)
    parts[1] = left
    parts[2] = right
    check_device(BMM, out, b, 1)
    array_fill(&arrays[0], out)
    array_fill(&arrays[1], a)
    array_fill(&arrays[2], b)
    arrays[0].flags |= PB_ARRAY_WRITE
    for i in range(3):
        arrays[i].ndim = 3
        arrays[i].shape = parts[i].shape
        arrays[i].strides = parts[i].strides
        pointers[i] = &arrays[i]
    call.size = sizeof(pb_call)
    call.primitive = BMM
    call.nout = 1
    call.nin = 2
    call.nparam = 0
    call.device = out.storage.device_index
    call.out = &pointers[0]
    call.in_ = &pointers[1]
    call.param = NULL
    kernel_call(out.storage.device_type, &call, a.dtype, out.layout.numel * left.shape[2])
    return out


# ---- products ------------------------------------------------------------------------------------

cdef Tensor multiply_matrices(Op op, Tensor a, Tensor b):
    cdef int64_t shape[2]
    same_kind(op, a, b)
    shape[0] = layout_shape(a.layout)[0]
    shape[1] = layout_shape(b.layout)[1]
    if layout_shape(a.layout)[1] != layout_shape(b.layout)[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({shape[0]}x"
                           f"{layout_shape(a.layout)[1]} and {layout_shape(b.layout)[0]}x"
                           f"{shape[1]})")
    return product(a, b, matrix(a), matrix(b), 2, shape)


cdef object forward_mm(Op op, PyObject **args, PyObject *target):
    if (<Tensor>args[0]).layout.ndim != 2:
        raise RuntimeError("self must be a matrix")
    if (<Tensor>args[1]).layout.ndim != 2:
        raise RuntimeError("mat2 must be a matrix")
    return multiply_matrices(op, <Tensor>args[0], <Tensor>args[1])


cdef object forward_bmm(Op op, PyObject **args, PyObject *target):
    cdef Tensor a = <Tensor>args[0]
    cdef Tensor b = <Tensor>args[1]
    cdef const int64_t *x = layout_shape(a.layout)
    cdef const int64_t *y = layout_shape(b.layout)
    cdef const int64_t *p = layout_strides(a.layout)
    cdef const int64_t *q = layout_strides(b.layout)
    cdef int64_t shape[3]
    if a.layout.ndim != 3:
        raise RuntimeError("batch1 must be a 3D tensor")
    if b.layout.ndim != 3:
        raise RuntimeError("batch2 must be a 3D tensor")
    same_kind(op, a, b)
    if x[0] != y[0] or x[2] != y[1]:
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: "
                           f"[{x[0]}, {x[2]}] but got: [{y[0]}, {y[1]}].")
    shape[0], shape[1], shape[2] = x[0], x[1], y[2]
    return product(a, b, make_factor(x[0], x[1], x[2], p[0], p[1], p[2]),
                   make_factor(y[0], y[1], y[2], q[0], q[1], q[2]), 3, shape)


cdef object forward_mv(Op op, PyObject **args, PyObject *target):
    cdef Tensor a = <Tensor>args[0]
    cdef Tensor b = <Tensor>args[1]
    cdef const int64_t *x = layout_shape(a.layout)
    if a.layout.ndim != 2 or b.layout.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got 1, {a.layout.ndim}, "
                           f"{b.layout.ndim}")
    if x[1] != layout_shape(b.layout)[0]:
        raise RuntimeError(f"size mismatch, got input ({x[0]}), mat ({x[0]}x{x[1]}), vec "
                           f"({layout_shape(b.layout)[0]})")
    same_kind(op, a, b)
    return product(a, b, matrix(a), column(b), 1, x)


cdef object forward_dot(Op op, PyObject **args, PyObject *target):
    cdef Tensor a = <Tensor>args[0]
    cdef Tensor b = <Tensor>args[1]
    cdef int64_t n
    if a.layout.ndim != 1 or b.layout.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {a.layout.ndim}D and {b.layout.ndim}D "
                           f"tensors")
    if a.dtype != b.dtype:
        raise RuntimeError(f"dot : expected both vectors to have same dtype, but found "
                           f"{dtype_object(a.dtype).name} and {dtype_object(b.dtype).name}")
    same_kind(op, a, b)
    n = layout_shape(a.layout)[0]
    if n != layout_shape(b.layout)[0]:
        raise RuntimeError(f"inconsistent tensor size, expected tensor [{n}] and src "
                           f"[{layout_shape(b.layout)[0]}] to have the same number of elements, "
                           f"but got {n} and {layout_shape(b.layout)[0]} elements respectively")
    return product(a, b, make_factor(1, 1, n, 0, 0, layout_strides(a.layout)[0]), column(b), 0,
                   NULL)


# ---- beta * self + alpha * (mat1 @ mat2) ---------------------------------------------------------

cdef object as_factor(Op op, object value, str name, int dtype):
    """Read alpha or beta; truncates it to an integer for integer dtypes."""
    if dtype_of_scalar(value) < 0:
        raise TypeError(f"{op.name}(): argument '{name}' must be Number, not "
                        f"{type(value).__name__}")
    return int(value) if dtype_category[dtype] <= CATEGORY_INTEGRAL else value


cdef Tensor scaled_into(Tensor out, Tensor source, object factor):
    """Write factor * source into `out`, which may be `source`."""
    cdef operand inputs[2]
    inputs[0].tensor = <PyObject *>source
    inputs[1].tensor = NULL
    scalar_write(factor, out.dtype, &inputs[1].scalar[0])
    if out.layout.numel != 0:
        launch_elementwise(MUL, out.dtype, out, inputs, 2)
    return out


cdef int check_added(Op op, Tensor self, Tensor out) except -1:
    """Raise unless self has the product's dtype and device, and expands to its shape."""
    cdef int64_t wanted
    cdef int d
    if self.dtype != out.dtype:
        raise RuntimeError(f"self and mat2 must have the same dtype, but got "
                           f"{dtype_object(self.dtype).name} and {dtype_object(out.dtype).name}")
    same_kind(op, self, out)
    if self.layout.ndim > 2:
        raise RuntimeError(f"expand({list(layout_shape_tuple(self.layout))}, "
                           f"size={list(layout_shape_tuple(out.layout))}): the number of sizes "
                           f"provided (2) must be greater or equal to the number of dimensions in "
                           f"the tensor ({self.layout.ndim})")
    for d in range(self.layout.ndim - 1, -1, -1):
        wanted = layout_shape(out.layout)[d + 2 - self.layout.ndim]
        if layout_shape(self.layout)[d] != 1 and layout_shape(self.layout)[d] != wanted:
            raise RuntimeError(f"The expanded size of the tensor ({wanted}) must match the "
                               f"existing size ({layout_shape(self.layout)[d]}) at non-singleton "
                               f"dimension {d + 2 - self.layout.ndim}.  Target sizes: "
                               f"{list(layout_shape_tuple(out.layout))}.  Tensor sizes: "
                               f"{list(layout_shape_tuple(self.layout))}")
    return 0


cdef object forward_addmm(Op op, PyObject **args, PyObject *target):
    """(self, mat1, mat2, beta, alpha); with beta = 0, self is not read."""
    cdef Tensor self = <Tensor>args[0]
    cdef Tensor a = <Tensor>args[1]
    cdef Tensor b = <Tensor>args[2]
    cdef Tensor out
    cdef operand inputs[2]
    cdef object beta = as_factor(op, <object>args[3], "beta", a.dtype)
    cdef object alpha = as_factor(op, <object>args[4], "alpha", a.dtype)
    if a.layout.ndim != 2:
        raise RuntimeError(f"mat1 must be a matrix, got {a.layout.ndim}-D tensor")
    if b.layout.ndim != 2:
        raise RuntimeError(f"mat2 must be a matrix, got {b.layout.ndim}-D tensor")
    out = multiply_matrices(op, a, b)
    check_added(op, self, out)
    if alpha != 1:
        scaled_into(out, out, alpha)
    if beta != 0 and out.layout.numel != 0:
        if beta != 1:
            self = scaled_into(
                tensor_new(layout_contiguous(self.layout.ndim, layout_shape(self.layout)),
                           self.dtype, self.storage.device_type, self.storage.device_index),
                self, beta)
        inputs[0].tensor = <PyObject *>out
        inputs[1].tensor = <PyObject *>self
        launch_elementwise(ADD, out.dtype, out, inputs, 2)
    if target == NULL:
        return out
    if not layout_same_shape((<Tensor>target).layout, out.layout):
        raise RuntimeError(f"Bad in-place call: input tensor size "
                           f"{list(layout_shape_tuple((<Tensor>target).layout))} and output tensor "
                           f"size {list(layout_shape_tuple(out.layout))} should match")
    copy_into(<Tensor>target, out)
    return <object>target


forward_register("addmm", forward_addmm)
forward_register("bmm", forward_bmm)
forward_register("dot", forward_dot)
forward_register("mm", forward_mm)
forward_register("mv", forward_mv)
