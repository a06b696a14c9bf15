"""Memory that crosses to and from other libraries."""

from libc.stdint cimport int64_t

from pullback.abi cimport PB_MAX_NDIM
from pullback._c.device cimport device, device_index, device_parse, device_types
from pullback._c.dtype cimport dtype_code, dtype_itemsize
from pullback._c.layout cimport layout_extent, layout_new, layout_parse, layout_release
from pullback._c.storage cimport storage_foreign
from pullback._c.tensor cimport Tensor, tensor_wrap
from pullback._c.types cimport pb_layout, pb_storage


def wrap_memory(size_t address, shape, strides, dtype, where, owner, bint readonly):
    """Return a tensor over memory that ``owner`` keeps alive; strides count elements.

    The caller vouches for the memory; shape and strides are checked for overflow only.
    """
    cdef int64_t dims[PB_MAX_NDIM]
    cdef int64_t steps[PB_MAX_NDIM]
    cdef int64_t low, high
    cdef int code = dtype_code(dtype, "wrap_memory")
    cdef device d = device_parse(where)
    cdef int ordinal = device_index(d)
    cdef int ndim = layout_parse(shape, dims, "wrap_memory", "shape")
    cdef pb_layout *layout
    cdef pb_storage *storage
    if layout_parse(strides, steps, "wrap_memory", "strides") != ndim:
        raise ValueError("shape and strides differ in length")
    layout = layout_new(ndim, dims, steps)
    try:
        high = layout_extent(layout, &low)
        if layout.numel and low < 0:
            raise ValueError("negative strides are not supported: copy the array first")
        storage = storage_foreign(<void *>address,
                                  0 if layout.numel == 0 else (high + 1) * dtype_itemsize[code],
                                  d.type_id, ordinal, owner, readonly)
    except:
        layout_release(layout)
        raise
    return tensor_wrap(storage, layout, 0, code)


def is_host(Tensor self not None):
    """Return True if the memory can be read by the host."""
    return bool(device_types()[self.storage.device_type].host)


def is_readonly(Tensor self not None):
    """Return True if the memory belongs to a read-only object."""
    return self.storage.flags & 1 != 0


def storage_bytes(Tensor self not None):
    """Return (address, bytes) of the whole storage; for tests and pickling."""
    return <size_t>self.storage.data, self.storage.nbytes
