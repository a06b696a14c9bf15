# build: small
"""Memory shared with other libraries: arrays, the buffer protocol; bytes for pickles and copies.

Foreign sizes, strides and addresses are checked here before a tensor is made of them. An exported
buffer owns the storage, not the tensor, whose memory may be replaced later.
"""

from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS, PyBUF_C_CONTIGUOUS, PyBUF_F_CONTIGUOUS, PyBUF_FORMAT, PyBUF_ND,
    PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_GetBuffer)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int64_t

from pullback.abi cimport (
    PB_BF16, PB_I16, PB_I64, PB_MAX_NDIM, PB_NUM_DTYPES, PB_U8, PB_U64)
from pullback._c.device.device cimport (
    DEVICE_CPU, DEVICE_REF, device, device_default_type, device_index, device_make, device_parse,
    device_type, device_types)
from pullback._c.base.dtype cimport dtype_code, dtype_itemsize, dtype_real
from pullback._c.base.dtype import ALL
from pullback._c.base.interrupts cimport copy_polled
from pullback._c.base.layout cimport (
    layout_contiguous, layout_extent, layout_new, layout_parse, layout_release, layout_retain)
from pullback._c.graph.overrides cimport is_overriding
from pullback._c.graph.record cimport tensor_needs_grad
from pullback._c.device.storage cimport (
    storage_end_export, storage_export, storage_extra, storage_foreign, storage_original,
    storage_retain)
from pullback._c.graph.tensor cimport (
    TENSOR_CONJ, TENSOR_LAZY, Tensor, tensor_data, tensor_device, tensor_over, tensor_wrap)
from pullback._c.base.state cimport captured_read, captured_write
from pullback._c.base.types cimport (
    LAYOUT_DENSE, STORAGE_READONLY, layout_shape, layout_strides, pb_layout, pb_storage)

cdef extern from *:
    """
    #include <Python.h>
    static PyBufferProcs pb_buffer_procs;
    #if PY_VERSION_HEX >= 0x030C0000
    /* Subclasses take the two from names in the class's dict, which Python has made already. */
    static int pb_name_buffer_proc(PyTypeObject *type, const char *name, void *function) {
        PyObject *like = PyObject_GetAttrString((PyObject *)&PyByteArray_Type, name);
        PyObject *made = NULL;
        int failed = -1;
        if (like == NULL) return -1;
        if (Py_IS_TYPE(like, &PyWrapperDescr_Type))
            made = PyDescr_NewWrapper(type, ((PyWrapperDescrObject *)like)->d_base, function);
        else
            PyErr_Format(PyExc_SystemError, "bytearray.%s is no slot wrapper", name);
        if (made != NULL) failed = PyDict_SetItemString(type->tp_dict, name, made);
        Py_XDECREF(made);
        Py_DECREF(like);
        return failed;
    }
    #else
    #define pb_name_buffer_proc(type, name, function) 0
    #endif
    static int pb_set_buffer_procs(PyTypeObject *type, void *get, void *release) {
        pb_buffer_procs.bf_getbuffer = (getbufferproc)get;
        pb_buffer_procs.bf_releasebuffer = (releasebufferproc)release;
        type->tp_as_buffer = &pb_buffer_procs;
        if (pb_name_buffer_proc(type, "__buffer__", get) < 0) return -1;
        if (pb_name_buffer_proc(type, "__release_buffer__", release) < 0) return -1;
        PyType_Modified(type);
        return 0;
    }
    static void pb_set_exporter(Py_buffer *view, PyObject *exporter) {
        Py_XINCREF(exporter);
        view->obj = exporter;
    }
    """
    void pb_set_exporter(Py_buffer *view, PyObject *exporter)
    int pb_set_buffer_procs(PyTypeObject *type, void *get, void *release) except -1

cdef int64_t MAX_REACH = <int64_t>1 << 58       # in elements; no product with it overflows

# The struct module's letters; NumPy writes complex numbers so. bfloat16 and complex32 have none.
cdef const char *formats[PB_NUM_DTYPES]
formats[:] = [b"?", b"B", b"b", b"h", b"i", b"q", b"e", NULL, b"f", b"d", b"Zf", b"Zd",
              b"H", b"I", b"Q", NULL]
if sizeof(long) == 8:
    formats[PB_I64] = b"l"                      # what NumPy calls int64
    formats[PB_U64] = b"L"


# ---- import --------------------------------------------------------------------------------------

cdef dict dtypes_by_name = {found.name: found for found in ALL}


def dtype_of_array(array):
    """Return the dtype of the elements of a NumPy array or scalar.

    Raises: TypeError for NumPy dtypes that tensors do not have.
    """
    found = dtypes_by_name.get(array.dtype.name)
    if found is None:
        raise TypeError(f"can't convert np.ndarray of type {array.dtype}. The only supported types "
                        f"are: {', '.join(dtypes_by_name)}.")
    return found


cdef pb_layout *foreign_layout(int ndim, const int64_t *shape, const int64_t *strides) except NULL:
    """Check sizes and strides and return their layout; owned."""
    cdef pb_layout *layout = layout_contiguous(ndim, shape)
    cdef int64_t reach = 0, steps
    cdef int d
    if strides == NULL or layout.numel == 0:        # row-major
        return layout
    layout_release(layout)
    for d in range(ndim):
        if strides[d] < 0:
            raise ValueError("At least one stride is negative, and tensors with negative strides "
                             "are not currently supported. Copy the array first.")
        steps = shape[d] - 1 if shape[d] > 1 else 1
        if strides[d] > (MAX_REACH - reach) // steps:
            raise ValueError(f"stride {strides[d]} of dim {d} leads out of any memory")
        reach += strides[d] * steps
    return layout_new(ndim, shape, strides)


cdef Tensor foreign_tensor(void *data, pb_layout *layout, int dtype, device where, object owner,
                           bint readonly):
    """Return a tensor over memory that `owner` keeps alive; steals the layout's count."""
    cdef int64_t low, nbytes = 0
    cdef int ordinal
    cdef pb_storage *storage
    try:
        if layout.numel:
            nbytes = (layout_extent(layout, &low) + 1) * dtype_itemsize[dtype]
            if data == NULL:
                raise ValueError("the data pointer is NULL, but there are elements")
            if <size_t>data + <size_t>nbytes < <size_t>data:
                raise ValueError("the elements reach beyond the end of the address space")
            if <size_t>data % dtype_itemsize[dtype_real(dtype)]:
                raise ValueError("the memory is not aligned to the size of an element. Copy it "
                                 "first.")
        ordinal = device_index(where)
        storage = storage_foreign(data, nbytes, where.type_id, ordinal, owner, readonly)
    except BaseException:
        layout_release(layout)
        raise
    return tensor_wrap(storage, layout, 0, dtype)


def host_device():
    """Return the device of host memory: the default device if it is a host device."""
    cdef int found = device_default_type()
    if not device_types()[found].host:
        found = DEVICE_CPU
        try:
            device_type(DEVICE_CPU)
        except Exception:               # not installed
            found = DEVICE_REF
    return device_make(found, -1)


def share_array(array, dtype):
    """Return a tensor over the memory of an object with the buffer protocol, in its shape."""
    cdef Py_buffer view
    cdef int64_t dims[PB_MAX_NDIM]
    cdef int64_t steps[PB_MAX_NDIM]
    cdef int code = dtype_code(dtype, "share_array")
    cdef int d
    cdef device where = host_device()
    PyObject_GetBuffer(array, &view, PyBUF_STRIDES)
    try:
        if view.ndim > PB_MAX_NDIM:
            raise ValueError(f"the array has {view.ndim} dims, more than {PB_MAX_NDIM}")
        if view.itemsize != dtype_itemsize[code]:
            raise ValueError(f"the elements have {view.itemsize} bytes, not those of {dtype}")
        for d in range(view.ndim):
            if view.strides[d] % view.itemsize and view.len:
                raise ValueError("given numpy array strides not a multiple of the element byte "
                                 "size. Copy the numpy array to reallocate the memory.")
            dims[d] = view.shape[d]
            steps[d] = view.strides[d] // view.itemsize
        return foreign_tensor(view.buf, foreign_layout(view.ndim, dims, steps), code, where, array,
                              view.readonly)
    finally:
        PyBuffer_Release(&view)


def share_bytes(memory, dtype, int64_t count):
    """Return a 1-d tensor of `count` elements over a memoryview of bytes, which it keeps alive."""
    cdef Py_buffer view
    cdef int code = dtype_code(dtype, "share_bytes")
    cdef device where = host_device()
    PyObject_GetBuffer(memory, &view, 0)
    try:
        if not 0 <= count <= view.len // dtype_itemsize[code]:
            raise ValueError(f"{view.len} bytes do not hold {count} elements")
        return foreign_tensor(view.buf, layout_contiguous(1, &count), code, where, memory,
                              view.readonly)
    finally:
        PyBuffer_Release(&view)


def share_address(size_t address, tuple shape, strides, dtype, where, owner, bint readonly):
    """Return a tensor over memory of any device; strides are in elements, None is row-major."""
    cdef int64_t dims[PB_MAX_NDIM]
    cdef int64_t steps[PB_MAX_NDIM]
    cdef int code = dtype_code(dtype, "share_address")
    cdef int ndim = layout_parse(shape, dims, "share_address", "shape")
    cdef int d
    if strides is not None:
        if len(strides) != ndim:
            raise ValueError(f"the memory has {ndim} dims, but {len(strides)} strides")
        for d in range(ndim):
            steps[d] = strides[d]
    return foreign_tensor(<void *>address,
                          foreign_layout(ndim, dims, NULL if strides is None else steps), code,
                          device_parse(where), owner, readonly)


# ---- the buffer protocol -------------------------------------------------------------------------

# The memory of one export, owned until it is released.
ctypedef struct pb_export:
    pb_storage *storage         # owned
    # Py_ssize_t shape[ndim], strides[ndim] follow


cdef int get_buffer(object exporter, Py_buffer *view, int flags) except -1:
    cdef Tensor self = <Tensor>exporter
    cdef int ndim = self.layout.ndim, d
    cdef pb_export *held
    cdef Py_ssize_t *dims
    pb_set_exporter(view, NULL)
    if not device_types()[self.storage.device_type].host:
        raise BufferError(f"the memory of {tensor_device(self)} is not the host's: use "
                          f"Tensor.cpu() first")
    if is_overriding(exporter) and (<object>type(exporter).__torch_function__.__func__
                                    is not Tensor.__torch_function__.__func__):
        raise BufferError(f"{type(exporter).__name__} overrides calls: use Tensor.numpy()")
    if tensor_needs_grad(self):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    check_not_lazy(self)
    if flags & PyBUF_WRITABLE and self.storage.flags & STORAGE_READONLY:
        raise BufferError("the tensor shares the memory of a read-only array")
    if flags & PyBUF_FORMAT and formats[self.dtype] == NULL:
        raise BufferError("the buffer protocol has no bfloat16: convert the tensor first")
    storage_extra(storage_original(self.storage))   # so that the export below cannot fail
    held = <pb_export *>PyMem_Malloc(sizeof(pb_export) + 2 * ndim * sizeof(Py_ssize_t))
    if held == NULL:
        raise MemoryError()
    dims = <Py_ssize_t *>(held + 1)
    for d in range(ndim):
        dims[d] = layout_shape(self.layout)[d]
        dims[ndim + d] = layout_strides(self.layout)[d] * dtype_itemsize[self.dtype]
    view.buf = tensor_data(self) if self.layout.numel else held
    view.len = self.layout.numel * dtype_itemsize[self.dtype]
    view.itemsize = dtype_itemsize[self.dtype]
    view.readonly = self.storage.flags & STORAGE_READONLY != 0
    view.ndim = ndim
    view.format = <char *>formats[self.dtype]
    view.shape = dims
    view.strides = dims + ndim
    view.suboffsets = NULL
    view.internal = held
    if not order_fits(view, flags):
        PyMem_Free(held)
        raise BufferError("the tensor is not contiguous in the order that is asked for")
    if not flags & PyBUF_FORMAT:
        view.format = NULL
    if flags & PyBUF_ND != PyBUF_ND:
        view.shape = NULL
    if flags & PyBUF_STRIDES != PyBUF_STRIDES:
        view.strides = NULL
    storage_export(self.storage)
    held.storage = self.storage
    pb_set_exporter(view, <PyObject *>exporter)
    return 0


cdef bint order_fits(Py_buffer *view, int flags) noexcept:
    """Return True if a buffer has the order that a request asks for; row-major without strides."""
    if flags & PyBUF_F_CONTIGUOUS == PyBUF_F_CONTIGUOUS:
        return PyBuffer_IsContiguous(view, b"F")
    if flags & PyBUF_ANY_CONTIGUOUS == PyBUF_ANY_CONTIGUOUS:
        return PyBuffer_IsContiguous(view, b"A")
    if flags & PyBUF_C_CONTIGUOUS == PyBUF_C_CONTIGUOUS or flags & PyBUF_STRIDES != PyBUF_STRIDES:
        return PyBuffer_IsContiguous(view, b"C")
    return True


cdef void release_buffer(object exporter, Py_buffer *view) noexcept:
    cdef pb_export *held = <pb_export *>view.internal
    storage_end_export(held.storage)
    PyMem_Free(held)


def install():
    """Give the Tensor type the buffer protocol."""
    pb_set_buffer_procs(<PyTypeObject *>Tensor, <void *>get_buffer, <void *>release_buffer)


# ---- copies and pickles --------------------------------------------------------------------------

def is_host(Tensor self not None):
    """Return True if the memory can be read by the host."""
    return bool(device_types()[self.storage.device_type].host)


cdef int check_not_lazy(Tensor self) except -1:
    """Raise BufferError for a lazy conjugate or negative, whose memory has other values."""
    if self.flags & TENSOR_CONJ:
        raise BufferError("Can't export tensors with the conjugate bit set, use "
                          "tensor.resolve_conj()")
    if self.flags & TENSOR_LAZY:
        raise BufferError("Can't export tensors with the negative bit set, use "
                          "tensor.resolve_neg()")
    return 0


def is_dense(Tensor self not None):
    """Return True if some permutation of the dims is contiguous."""
    return self.layout.flags & LAYOUT_DENSE != 0


def halves_as_integers(Tensor self not None):
    """Return the bits of a bfloat16 tensor as int16, over the same memory."""
    if self.dtype != PB_BF16:
        raise TypeError("expected a bfloat16 tensor")
    check_not_lazy(self)
    return tensor_wrap(storage_retain(self.storage), layout_retain(self.layout), self.offset,
                       PB_I16)


def read_bytes(Tensor self not None):
    """Return the bytes of a dense host tensor, in the order of its memory."""
    cdef int64_t nbytes = self.layout.numel * dtype_itemsize[self.dtype]
    cdef bytes found
    if not self.layout.flags & LAYOUT_DENSE or not is_host(self):
        raise ValueError("read_bytes(): expected a dense tensor on the host")
    check_not_lazy(self)
    captured_read(self.storage, b"bytes of a tensor are read")
    found = PyBytes_FromStringAndSize(NULL, nbytes)
    if nbytes:
        copy_polled(PyBytes_AS_STRING(found), <char *>tensor_data(self), nbytes)
    return found


def write_bytes(Tensor self not None, bytes data not None):
    """Fill the memory of a dense host tensor; `data` must have as many bytes."""
    cdef int64_t nbytes = self.layout.numel * dtype_itemsize[self.dtype]
    if not self.layout.flags & LAYOUT_DENSE or not is_host(self) or nbytes != len(data):
        raise ValueError(f"write_bytes(): expected a dense tensor of {len(data)} bytes on the host")
    if nbytes:
        copy_polled(<char *>tensor_data(self), PyBytes_AS_STRING(data), nbytes)
        captured_write(self.storage)


def whole_memory(Tensor self not None):
    """Return the address of a tensor's storage, and all of its memory as a 1-d uint8 tensor."""
    cdef pb_storage *storage = storage_original(self.storage)
    cdef pb_layout *layout = layout_contiguous(1, &storage.nbytes)
    return <size_t>storage, tensor_wrap(storage_retain(storage), layout, 0, PB_U8)


def view_of_whole_memory(Tensor memory not None, Tensor like not None):
    """Return a leaf with the layout, offset and dtype of `like` over a copy of its storage."""
    if memory.storage.nbytes != like.storage.nbytes:
        raise ValueError("view_of_whole_memory(): the memory has another size")
    return tensor_over(like, storage_retain(memory.storage), layout_retain(like.layout),
                       like.offset)
