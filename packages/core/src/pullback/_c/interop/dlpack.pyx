# build: small
"""DLPack: capsules with a struct by which array libraries share memory.

The consumer of a capsule renames it to "used_..." and calls the struct's deleter when it no longer
needs the memory; the capsule's destructor calls the deleter if there was no consumer. Every field
of a foreign struct is checked.

Source: dlpack.h of dmlc/dlpack 1.0, and the array API standard's page on data interchange.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from pullback.abi cimport (
    PB_BF16, PB_BOOL, PB_C64, PB_C128, PB_F16, PB_F32, PB_F64, PB_I8, PB_I16, PB_I32, PB_I64,
    PB_C32, PB_MAX_NDIM, PB_NUM_DTYPES, PB_U8, PB_U16, PB_U32, PB_U64)
from pullback._c.device.device cimport (
    DEVICE_CUDA, device, device_index, device_make, device_parse, device_type, device_types,
    pb_device_type)
from pullback._c.base.dtype cimport dtype_itemsize
from pullback._c.interop.arrays cimport check_not_lazy, foreign_layout, foreign_tensor
from pullback._c.graph.record cimport tensor_needs_grad
from pullback._c.device.storage cimport (
    storage_end_export, storage_export, storage_extra, storage_original)
from pullback._c.graph.tensor cimport Tensor, tensor_data, tensor_device
from pullback._c.base.types cimport (
    STORAGE_READONLY, layout_shape, layout_strides, pb_layout, pb_storage)

from pullback._c.interop.arrays import host_device


# ---- the structs of dlpack.h ---------------------------------------------------------------------

cdef enum:
    DL_CPU = 1
    DL_CUDA = 2
    DL_CUDA_HOST = 3            # pinned host memory

    DL_READ_ONLY = 1            # flags of the versioned struct
    DL_IS_COPIED = 2

    DL_MAJOR = 1
    DL_MINOR = 0


ctypedef struct dl_device:
    int32_t kind
    int32_t index


ctypedef struct dl_dtype:
    uint8_t code
    uint8_t bits
    uint16_t lanes


ctypedef struct dl_tensor:
    void *data
    dl_device device
    int32_t ndim
    dl_dtype dtype
    int64_t *shape
    int64_t *strides            # in elements; NULL: row-major
    uint64_t byte_offset


cdef struct dl_managed:
    dl_tensor tensor
    void *context
    void (*deleter)(dl_managed *self) noexcept


cdef struct dl_versioned:
    uint32_t major
    uint32_t minor
    void *context
    void (*deleter)(dl_versioned *self) noexcept
    uint64_t flags
    dl_tensor tensor


cdef extern from "Python.h":
    # Declared for plain pointers: a destructor must not make a new reference to its capsule.
    object PyCapsule_New(void *pointer, const char *name, void (*destructor)(PyObject *) noexcept)
    bint PyCapsule_IsValid(PyObject *capsule, const char *name)
    void *PyCapsule_GetPointer(PyObject *capsule, const char *name) except NULL
    int PyCapsule_SetName(PyObject *capsule, const char *name) except -1
    bint Py_IsInitialized() nogil

cdef const char *MANAGED = b"dltensor"
cdef const char *VERSIONED = b"dltensor_versioned"
cdef const char *MANAGED_USED = b"used_dltensor"
cdef const char *VERSIONED_USED = b"used_dltensor_versioned"

cdef dl_dtype dtypes[PB_NUM_DTYPES]


cdef int fill_dtypes() except -1:
    """Fill the table of dtypes; kinds: 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool."""
    cdef int code, kind
    for code, kind in ((PB_BOOL, 6), (PB_U8, 1), (PB_I8, 0), (PB_I16, 0), (PB_I32, 0), (PB_I64, 0),
                       (PB_F16, 2), (PB_BF16, 4), (PB_F32, 2), (PB_F64, 2), (PB_C64, 5),
                       (PB_C128, 5), (PB_U16, 1), (PB_U32, 1), (PB_U64, 1), (PB_C32, 5)):
        dtypes[code].code = kind
        dtypes[code].bits = 8 * dtype_itemsize[code]
        dtypes[code].lanes = 1
    return 0


fill_dtypes()


# ---- devices -------------------------------------------------------------------------------------

def device_pair(Tensor self not None):
    """Return DLPack's (device type, index) of a tensor's device.

    Raises: ValueError for devices that DLPack does not have.
    """
    if device_types()[self.storage.device_type].host:
        return DL_CPU, 0
    if self.storage.device_type == DEVICE_CUDA:
        return DL_CUDA, self.storage.device_index
    raise ValueError(f"Unknown device type {tensor_device(self).type} for Dlpack")


def device_of_pair(kind, index):
    """Return the device of DLPack's (device type, index).

    Raises: BufferError for kinds that no backend serves.
    """
    if kind in (DL_CPU, DL_CUDA_HOST):
        return host_device()
    if kind != DL_CUDA or index < 0 or index > 32767:
        raise BufferError(f"Unsupported device_type: {kind} (index {index})")
    return device_make(DEVICE_CUDA, index)


def is_host_device(where):
    """Return True if the device's memory is the host's."""
    cdef device found = device_parse(where)
    return bool(device_type(found.type_id).host)


def stream_of(where):
    """Return the current stream of a device for DLPack: an address; 1 is the default stream."""
    cdef device found = device_parse(where)
    cdef int ordinal = device_index(found)
    cdef pb_device_type *kind = device_type(found.type_id)
    cdef void *stream = NULL
    if kind.backend != NULL and kind.backend.current_stream != NULL:
        stream = kind.backend.current_stream(kind.backend.self, ordinal)
    return 1 if stream == NULL else <size_t>stream


# ---- export --------------------------------------------------------------------------------------

cdef void managed_delete(dl_managed *self) noexcept nogil:
    if Py_IsInitialized():              # a consumer may call it after the interpreter has ended
        with gil:
            storage_end_export(<pb_storage *>self.context)
    free(self)


cdef void versioned_delete(dl_versioned *self) noexcept nogil:
    if Py_IsInitialized():
        with gil:
            storage_end_export(<pb_storage *>self.context)
    free(self)


cdef void capsule_delete(PyObject *capsule) noexcept:
    """Destructor of a capsule: call the struct's deleter if there was no consumer."""
    cdef dl_managed *managed
    cdef dl_versioned *versioned
    if PyCapsule_IsValid(capsule, MANAGED):
        managed = <dl_managed *>PyCapsule_GetPointer(capsule, MANAGED)
        managed.deleter(managed)
    elif PyCapsule_IsValid(capsule, VERSIONED):
        versioned = <dl_versioned *>PyCapsule_GetPointer(capsule, VERSIONED)
        versioned.deleter(versioned)


cdef void fill_tensor(dl_tensor *out, Tensor self, int64_t *dims) noexcept:
    """Fill a dl_tensor; `dims` has room for shape and strides."""
    cdef int ndim = self.layout.ndim, d
    for d in range(ndim):
        dims[d] = layout_shape(self.layout)[d]
        dims[ndim + d] = layout_strides(self.layout)[d]
    out.data = tensor_data(self) if self.layout.numel else NULL
    out.ndim = ndim
    out.dtype = dtypes[self.dtype]
    out.shape = dims
    out.strides = dims + ndim
    out.byte_offset = 0


def export_capsule(Tensor self not None, bint versioned, bint copied):
    """Return a capsule that shares a tensor's memory, in DLPack's versioned or first form.

    Raises: BufferError when DLPack cannot describe the tensor.
    """
    cdef size_t dims = 2 * self.layout.ndim * sizeof(int64_t)
    cdef dl_managed *old
    cdef dl_versioned *new
    cdef bint readonly = self.storage.flags & STORAGE_READONLY != 0
    kind, index = device_pair(self)
    if tensor_needs_grad(self):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    check_not_lazy(self)
    storage_extra(storage_original(self.storage))   # so that the export below cannot fail
    if versioned:
        new = <dl_versioned *>malloc(sizeof(dl_versioned) + dims)
        if new == NULL:
            raise MemoryError()
        fill_tensor(&new.tensor, self, <int64_t *>(new + 1))
        new.tensor.device = dl_device(kind, index)
        new.major, new.minor = DL_MAJOR, DL_MINOR
        new.flags = (DL_READ_ONLY if readonly else 0) | (DL_IS_COPIED if copied else 0)
        new.deleter = versioned_delete
        storage_export(self.storage)
        new.context = self.storage
        return PyCapsule_New(new, VERSIONED, capsule_delete)
    if readonly:
        raise BufferError("Can't export read-only tensors in DLPack's first form, which cannot "
                          "say so: ask for max_version=(1, 0)")
    old = <dl_managed *>malloc(sizeof(dl_managed) + dims)
    if old == NULL:
        raise MemoryError()
    fill_tensor(&old.tensor, self, <int64_t *>(old + 1))
    old.tensor.device = dl_device(kind, index)
    old.deleter = managed_delete
    storage_export(self.storage)
    old.context = self.storage
    return PyCapsule_New(old, MANAGED, capsule_delete)


# ---- import --------------------------------------------------------------------------------------

cdef class Loan:
    """Owner of an imported struct; calls its deleter when the last storage over it is freed."""
    cdef dl_managed *managed
    cdef dl_versioned *versioned

    def __dealloc__(self):
        if self.managed != NULL and self.managed.deleter != NULL:
            self.managed.deleter(self.managed)
        if self.versioned != NULL and self.versioned.deleter != NULL:
            self.versioned.deleter(self.versioned)


cdef dl_tensor *capsule_tensor(PyObject *capsule, bint *readonly) except NULL:
    """Return the tensor struct of an unused capsule; borrowed from the capsule."""
    cdef dl_versioned *versioned
    if PyCapsule_IsValid(capsule, VERSIONED):
        versioned = <dl_versioned *>PyCapsule_GetPointer(capsule, VERSIONED)
        if versioned.major != DL_MAJOR:
            raise BufferError(f"DLPack version {versioned.major}.{versioned.minor} is not "
                              f"supported: expected {DL_MAJOR}.x")
        readonly[0] = versioned.flags & DL_READ_ONLY != 0
        return &versioned.tensor
    if not PyCapsule_IsValid(capsule, MANAGED):
        raise RuntimeError("from_dlpack received an invalid capsule. Note that DLTensor capsules "
                           "can be consumed only once, so you might have already constructed a "
                           "tensor from it once.")
    readonly[0] = False
    return &(<dl_managed *>PyCapsule_GetPointer(capsule, MANAGED)).tensor


cdef int take(PyObject *capsule, Loan loan) except -1:
    """Consume a capsule: from now on `loan` owns its struct."""
    cdef void *pointer
    if PyCapsule_IsValid(capsule, VERSIONED):
        pointer = PyCapsule_GetPointer(capsule, VERSIONED)
        PyCapsule_SetName(capsule, VERSIONED_USED)
        loan.versioned = <dl_versioned *>pointer
    else:
        pointer = PyCapsule_GetPointer(capsule, MANAGED)
        PyCapsule_SetName(capsule, MANAGED_USED)
        loan.managed = <dl_managed *>pointer
    return 0


cdef int read_dtype(dl_dtype wanted) except -1:
    cdef int code
    for code in range(PB_NUM_DTYPES):
        if (dtypes[code].code == wanted.code and dtypes[code].bits == wanted.bits
                and wanted.lanes == 1):
            return code
    raise BufferError(f"Unsupported DLPack dtype: code {wanted.code}, {wanted.bits} bits, "
                      f"{wanted.lanes} lanes")


cdef pb_layout *read_layout(const dl_tensor *source) except NULL:
    if not 0 <= source.ndim <= PB_MAX_NDIM:
        raise ValueError(f"DLPack tensor with {source.ndim} dims: expected 0 to {PB_MAX_NDIM}")
    if source.ndim > 0 and source.shape == NULL:
        raise ValueError("DLPack tensor without a shape")
    return foreign_layout(source.ndim, source.shape, source.strides)


cdef void *read_address(const dl_tensor *source) except? NULL:
    cdef size_t first = <size_t>source.data + <size_t>source.byte_offset
    if source.data == NULL:             # valid if there are no elements
        return NULL
    if first < <size_t>source.data:
        raise ValueError(f"DLPack tensor with byte_offset {source.byte_offset}, beyond the end of "
                         f"the address space")
    return <void *>first


def import_capsule(capsule, where=None):
    """Return a tensor over the memory of a capsule, on the host device `where` if it is given.

    Raises: RuntimeError for an object that is not an unused DLPack capsule; BufferError and
    ValueError for memory that no tensor can represent.
    """
    cdef PyObject *source = <PyObject *>capsule
    cdef Loan loan = Loan()
    cdef bint readonly
    cdef dl_device kind = capsule_tensor(source, &readonly).device
    cdef device target = device_of_pair(kind.kind, kind.index)
    cdef dl_tensor *lent
    cdef pb_layout *layout
    cdef void *address
    cdef int dtype
    if where is not None and kind.kind != DL_CUDA:
        target = device_parse(where)
    device_index(target)                # may load a backend, which runs other code,
    lent = capsule_tensor(source, &readonly)    # so check the capsule again
    dtype = read_dtype(lent.dtype)
    address = read_address(lent)
    layout = read_layout(lent)
    take(source, loan)
    return foreign_tensor(address, layout, dtype, target, loan, readonly)
