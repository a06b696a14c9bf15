"""Forward passes of matrix products, all on the slot ``bmm``."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from pullback.abi cimport PB_ARRAY_WRITE, pb_array, pb_call
from pullback._c.dtype cimport dtype_object
from pullback._c.entry cimport Op, forward_register
from pullback._c.kernel cimport array_fill, kernel_call, slot_id
from pullback._c.layout cimport layout_contiguous
from pullback._c.tensor cimport Tensor, tensor_device, tensor_new
from pullback._c.types cimport layout_shape, layout_strides

cdef int BMM = slot_id("bmm")


cdef int same_kind(Op op, Tensor a, Tensor b) except -1:
    """Both factors need one dtype and one device."""
    if a.dtype != b.dtype:
        raise RuntimeError(f"{op.name}(): expected m1 and m2 to have the same dtype, but got: "
                           f"{dtype_object(a.dtype).name} != {dtype_object(b.dtype).name}")
    if (a.storage.device_type != b.storage.device_type
            or a.storage.device_index != b.storage.device_index):
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two "
                           f"devices, {tensor_device(a)} and {tensor_device(b)}! (in {op.name}())")
    return 0


cdef Tensor product(Tensor a, Tensor b, int64_t batch, int64_t m, int64_t k, int64_t n, bint flat):
    """Multiply 3-d operands; with `flat`, 2-d ones that get a batch of 1."""
    cdef int64_t shapes[3][3]
    cdef int64_t strides[3][3]
    cdef pb_array arrays[3]
    cdef pb_array *pointers[3]
    cdef pb_call call
    cdef Tensor out
    cdef const int64_t *sa = layout_strides(a.layout)
    cdef const int64_t *sb = layout_strides(b.layout)
    cdef int skip = 1 if flat else 0
    shapes[0][0], shapes[0][1], shapes[0][2] = batch, m, n
    shapes[1][0], shapes[1][1], shapes[1][2] = batch, m, k
    shapes[2][0], shapes[2][1], shapes[2][2] = batch, k, n
    out = tensor_new(layout_contiguous(3 - skip, &shapes[0][skip]), a.dtype,
                     a.storage.device_type, a.storage.device_index)
    if out.layout.numel == 0:
        return out
    strides[0][0], strides[0][1], strides[0][2] = m * n, n, 1
    strides[1][0], strides[1][1], strides[1][2] = 0 if flat else sa[0], sa[1 - skip], sa[2 - skip]
    strides[2][0], strides[2][1], strides[2][2] = 0 if flat else sb[0], sb[1 - skip], sb[2 - skip]
    array_fill(&arrays[0], out)
    array_fill(&arrays[1], a)
    array_fill(&arrays[2], b)
    arrays[0].flags = PB_ARRAY_WRITE
    for i in range(3):
        arrays[i].ndim = 3
        arrays[i].shape = shapes[i]
        arrays[i].strides = strides[i]
        pointers[i] = &arrays[i]
    call.size = sizeof(pb_call)
    call.slot = BMM
    call.nout = 1
    call.nin = 2
    call.nparam = 0
    call.device = out.storage.device_index
    call.out = &pointers[0]
    call.in_ = &pointers[1]
    call.param = NULL
    kernel_call(out.storage.device_type, &call, a.dtype, batch * m * n * k)
    return out


cdef object forward_mm(Op op, PyObject **args, PyObject *target):
    cdef Tensor a = <Tensor>args[0]
    cdef Tensor b = <Tensor>args[1]
    cdef const int64_t *x = layout_shape(a.layout)
    cdef const int64_t *y = layout_shape(b.layout)
    if a.layout.ndim != 2:
        raise RuntimeError("mm(): self must be a matrix")
    if b.layout.ndim != 2:
        raise RuntimeError("mm(): mat2 must be a matrix")
    same_kind(op, a, b)
    if x[1] != y[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({x[0]}x{x[1]} and "
                           f"{y[0]}x{y[1]})")
    return product(a, b, 1, x[0], x[1], y[1], True)


cdef object forward_bmm(Op op, PyObject **args, PyObject *target):
    cdef Tensor a = <Tensor>args[0]
    cdef Tensor b = <Tensor>args[1]
    cdef const int64_t *x = layout_shape(a.layout)
    cdef const int64_t *y = layout_shape(b.layout)
    if a.layout.ndim != 3 or b.layout.ndim != 3:
        raise RuntimeError(f"bmm(): batch1 and batch2 must be 3D tensors, got {a.layout.ndim}D and "
                           f"{b.layout.ndim}D")
    same_kind(op, a, b)
    if x[0] != y[0] or x[2] != y[1]:
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: "
                           f"[{x[0]}, {x[2]}] but got: [{y[0]}, {y[1]}].")
    return product(a, b, x[0], x[1], x[2], y[2], False)


forward_register("mm", forward_mm)
forward_register("bmm", forward_bmm)
