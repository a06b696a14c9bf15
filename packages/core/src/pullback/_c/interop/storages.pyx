# build: small
"""Storages as Python objects: the memory that a tensor shares with its views."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from pullback.abi cimport PB_MAX_NDIM, PB_U8
from pullback._c.base.dtype cimport dtype_code, dtype_itemsize, dtype_real
from pullback._c.base.interrupts cimport copy_polled
from pullback._c.base.layout cimport (
    layout_contiguous, layout_new, layout_parse)
from pullback._c.base.state cimport captured_read, captured_size
from pullback._c.base.types cimport (
    STORAGE_PINNED, STORAGE_READONLY, pb_layout, pb_storage, pb_storage_extra)
from pullback._c.device.device cimport (
    DEVICE_META, device, device_index, device_parse, device_types)
from pullback._c.device.storage cimport (
    storage_extra, storage_foreign, storage_new, storage_original, storage_release, storage_retain,
    storage_shrink, storage_swap)
from pullback._c.dispatch.launch cimport copy_into
from pullback._c.graph.tensor cimport TENSOR_IS_BATCHED, Tensor, device_of, tensor_wrap
from pullback._c.interop.arrays import host_device

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject *object)


cdef bint adopting = False              # an object is being made for a storage that there is


cdef class KeptMemory:
    """Owner of memory that a storage had before, while other libraries may use its address."""
    cdef pb_storage *storage            # owned

    def __dealloc__(self):
        if self.storage != NULL:
            storage_release(self.storage)


cdef class StorageBase:
    """A reference to the memory of tensors; the same object for all tensors that share it.

    ``__new__`` takes no arguments that matter, and makes an empty storage on the host.
    """
    cdef pb_storage *storage            # owned, an original
    cdef object __weakref__

    def __cinit__(self, *args, **kwargs):
        cdef device host
        if adopting:                    # `storage_of` sets the storage
            return
        host = host_device()
        self.storage = storage_new(host.type_id, device_index(host), 0)
        storage_extra(self.storage).object = <PyObject *>self

    def __dealloc__(self):
        let_go(self)

    def __init__(self, *args, **kwargs):
        pass

    def nbytes(self):
        """Return the number of bytes."""
        return captured_size(self.storage.nbytes)

    def data_ptr(self):
        """Return the address of the first byte; 0 where there is no memory."""
        captured_read(self.storage, b"data_ptr()")
        return <size_t>self.storage.data if self.storage.nbytes else 0

    @property
    def _cdata(self):
        """A number that only this storage has, while it lives."""
        return <size_t>self.storage

    @property
    def device(self):
        """Where the memory is."""
        return device_of(self.storage.device_type, self.storage.device_index)

    def resizable(self):
        """Return True if ``resize_`` can change the size: no other library owns or uses it."""
        return self.storage.owner == NULL and storage_extra(self.storage).exports == 0

    def _is_read_only(self):
        """Return True if the memory must not be written, as that of read-only arrays."""
        return self.storage.flags & STORAGE_READONLY != 0

    def _is_pinned(self):
        return self.storage.flags & STORAGE_PINNED != 0

    def _owner(self):
        """Return the object that owns the memory, or None where a backend allocated it."""
        return None if self.storage.owner == NULL else <object>self.storage.owner

    def _bytes(self):
        """Return a 1-d uint8 tensor over the whole memory."""
        return tensor_wrap(storage_retain(self.storage),
                           layout_contiguous(1, &self.storage.nbytes), 0, PB_U8)

    def _allocate(self, int64_t nbytes, where):
        """Give a newly made storage memory of a device, uninitialised."""
        cdef device place = device_parse(where)
        if nbytes < 0:
            raise RuntimeError(f"a storage cannot have {nbytes} bytes")
        adopt(self, storage_new(place.type_id, device_index(place), nbytes))

    def _over(self, size_t address, int64_t nbytes, owner, bint readonly=False):
        """Give a newly made storage memory on the host that ``owner`` keeps alive."""
        cdef device host = host_device()
        adopt(self, storage_foreign(<void *>address, nbytes, host.type_id, device_index(host),
                                    owner, readonly))

    def _resize(self, int64_t nbytes):
        """Change the size for all tensors of the storage; new bytes are uninitialised."""
        cdef pb_storage *storage = self.storage
        cdef pb_storage *larger
        cdef int64_t capacity = storage.nbytes
        if nbytes == storage.nbytes:
            return
        if nbytes < 0 or not self.resizable():
            raise RuntimeError("Trying to resize storage that is not resizable")
        if storage.extra.capacity:
            capacity = storage.extra.capacity
        if nbytes <= capacity or storage.device_type == DEVICE_META:
            storage_shrink(storage, nbytes)
            return
        larger = storage_new(storage.device_type, storage.device_index, nbytes)
        try:
            copy_start(larger, storage)
            storage_swap(storage, larger)
        finally:
            storage_release(larger)

    def _swap(self, StorageBase other not None):
        """Exchange the memory with another storage, for all tensors of both."""
        if self.storage != other.storage:
            storage_swap(self.storage, other.storage)

    def _move_to(self, size_t address, owner):
        """Move the bytes to other host memory, for all tensors of the storage.

        Returns the former memory, which the new owner must keep where other libraries may use it,
        else None.
        """
        cdef pb_storage *moved
        cdef KeptMemory kept = None
        cdef pb_storage *storage = self.storage
        if not device_types()[storage.device_type].host:
            raise RuntimeError(f"a storage on {self.device} cannot move within the host's memory")
        if storage.nbytes:
            copy_polled(<char *>address, <char *>storage.data, storage.nbytes)
        moved = storage_foreign(<void *>address, storage.nbytes, storage.device_type,
                                storage.device_index, owner, False)
        try:
            storage_swap(storage, moved)
            if storage.extra.exports:
                kept = KeptMemory.__new__(KeptMemory)
                kept.storage = storage_retain(moved)
        finally:
            storage_release(moved)
        return kept

    def _tensor(self, dtype, int64_t offset, size, stride):
        """Return a leaf over part of the memory; offset and strides are in elements.

        Raises: RuntimeError if the part is not within the memory or not aligned to its elements.
        """
        cdef int64_t shape[PB_MAX_NDIM]
        cdef int64_t steps[PB_MAX_NDIM]
        cdef int code = dtype_code(dtype, "set_")
        cdef int ndim = layout_parse(size, shape, "set_", "size"), d
        cdef pb_layout *layout
        count, last = 1, offset
        if layout_parse(stride, steps, "set_", "stride") != ndim:
            raise RuntimeError(f"unequal size length ({ndim}) and stride length ({len(stride)})")
        for d in range(ndim):
            if shape[d] < 0:
                raise RuntimeError(f"Trying to create tensor with negative dimension {shape[d]}: "
                                   f"{[shape[k] for k in range(ndim)]}")
            if steps[d] < 0:
                raise RuntimeError("as_strided: Negative strides are not supported at the moment, "
                                   f"got strides: {[steps[k] for k in range(ndim)]}")
            count *= int(shape[d])
            last += (int(shape[d]) - 1) * int(steps[d])
        if offset < 0:
            raise RuntimeError(f"Tensor: invalid storage offset {offset}")
        need = (last + 1) * dtype_itemsize[code] if count else 0
        if need > self.storage.nbytes:
            raise RuntimeError(f"setStorage: sizes {[shape[k] for k in range(ndim)]}, strides "
                               f"{[steps[k] for k in range(ndim)]}, storage offset {offset}, and "
                               f"itemsize {dtype_itemsize[code]} requiring a storage size of "
                               f"{need} are out of bounds for storage of size "
                               f"{self.storage.nbytes}")
        if count > 1 << 62 or not count and offset * dtype_itemsize[code] > 1 << 62:
            raise RuntimeError(f"a tensor cannot have {count} elements")
        if count and device_types()[self.storage.device_type].host and (
                <size_t>self.storage.data % dtype_itemsize[dtype_real(code)]):
            raise RuntimeError(f"the memory is not aligned to elements of {dtype}")
        layout = layout_new(ndim, shape, steps)
        return tensor_wrap(storage_retain(self.storage), layout, offset, code)


cdef int copy_start(pb_storage *target, pb_storage *source) except -1:
    """Copy all bytes of a storage to the start of another one on the same device."""
    if source.nbytes == 0:
        return 0
    copy_into(tensor_wrap(storage_retain(target), layout_contiguous(1, &source.nbytes), 0, PB_U8),
              tensor_wrap(storage_retain(source), layout_contiguous(1, &source.nbytes), 0, PB_U8))
    return 0


cdef void let_go(StorageBase self) noexcept:
    if self.storage == NULL:
        return
    if self.storage.extra != NULL and self.storage.extra.object == <PyObject *>self:
        self.storage.extra.object = NULL
    storage_release(self.storage)
    self.storage = NULL


cdef int adopt(StorageBase self, pb_storage *storage) except -1:
    """Make an object refer to a storage; steals its count."""
    cdef pb_storage_extra *extra
    try:
        extra = storage_extra(storage)
    except BaseException:
        storage_release(storage)
        raise
    let_go(self)
    self.storage = storage
    extra.object = <PyObject *>self
    return 0


def storage_of(Tensor self not None, kind):
    """Return the storage of a tensor as an object of a class: the same for its views and aliases.

    Raises: NotImplementedError for tensors that a transform has wrapped as a batch.
    """
    cdef pb_storage *storage = storage_original(self.storage)
    cdef pb_storage_extra *extra = storage_extra(storage)
    cdef StorageBase made
    global adopting
    if self.flags & TENSOR_IS_BATCHED:
        raise NotImplementedError("Cannot access storage of a batched tensor")
    # An object whose count is 0 is being freed: weak references to it run now.
    if extra.object != NULL and Py_REFCNT(extra.object) > 0:
        return <object>extra.object
    adopting = True
    try:
        made = kind.__new__(kind)
    finally:
        adopting = False
    adopt(made, storage_retain(storage))
    return made
