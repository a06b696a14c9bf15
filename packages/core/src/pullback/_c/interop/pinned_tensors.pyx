# build: small
"""Tensors in pinned host memory."""

from libc.stdint cimport int64_t

from pullback._c.device.device cimport (
    DEVICE_CUDA, DEVICE_META, device as device_class, device_default_type, device_parse,
    device_type, device_types, pb_device_type)
from pullback._c.base.dtype cimport dtype_itemsize
from pullback._c.base.interrupts cimport copy_polled
from pullback._c.dispatch.launch cimport copy_into
from pullback._c.base.layout cimport layout_contiguous, layout_extent, layout_retain
from pullback._c.device.pinned cimport PinnedBlock, allocate_pinned, can_pin, is_pinned_for
from pullback._c.device.storage cimport storage_foreign
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, Tensor, tensor_data, tensor_device, tensor_wrap)
from pullback._c.base.types cimport (
    LAYOUT_DENSE, STORAGE_PINNED, layout_shape, pb_layout, pb_storage)
from pullback._c.device.device import known_device_types


cdef pb_device_type *accelerator(
        object where,
        str missing="Cannot access accelerator device when none is available.") except NULL:
    """Return the device type to pin memory for: of a device argument, or the only one that can."""
    cdef pb_device_type *kind
    cdef int number
    if where is not None:
        kind = device_type(device_parse(where).type_id)
        if not can_pin(kind):
            raise RuntimeError(f"the device {where} has no pinned memory")
        return kind
    for number in (device_default_type(), *range(len(known_device_types()))):
        if can_pin(device_types() + number):
            return device_types() + number
    error = None
    try:
        kind = device_type(DEVICE_CUDA)
        if can_pin(kind):
            return kind
    except Exception as reason:
        error = reason
    raise RuntimeError(missing) from error


def is_pinned(Tensor self not None, device=None):
    """Return True if the tensor is in pinned memory, of the given device type if there is one."""
    if device is None:
        return self.storage.flags & STORAGE_PINNED != 0
    return bool(is_pinned_for(self.storage, device_types() + device_parse(device).type_id))


cdef Tensor new_pinned(pb_device_type *kind, int host_type, Tensor like, bint strided):
    """Return a pinned tensor of a tensor's shape; `strided`: with its strides, dense or not."""
    cdef int64_t low, count = like.layout.numel
    cdef size_t nbytes
    cdef PinnedBlock block
    cdef pb_layout *layout
    cdef pb_storage *storage
    if strided and count:
        count = layout_extent(like.layout, &low) + 1
    nbytes = count * dtype_itemsize[like.dtype]
    block = allocate_pinned(kind, nbytes)
    if like.layout.flags & LAYOUT_DENSE or strided:
        layout = layout_retain(like.layout)
    else:
        layout = layout_contiguous(like.layout.ndim, layout_shape(like.layout))
    storage = storage_foreign(block.data, nbytes, host_type, 0, block, False)
    storage.flags |= STORAGE_PINNED
    return tensor_wrap(storage, layout, 0, like.dtype)


def pinned_like(Tensor tensor not None):
    """Return a new pinned tensor for a copy of a device tensor; None if the device cannot pin."""
    cdef pb_device_type *kind = device_types() + tensor.storage.device_type
    from pullback._c.interop.arrays import host_device
    cdef device_class host = host_device()
    return new_pinned(kind, host.type_id, tensor, False) if can_pin(kind) else None


def pinned_copy(Tensor source not None, where):
    """Return a copy of a host tensor in pinned memory, outside the graph.

    Raises: RuntimeError where no device can pin memory, and for device tensors.
    """
    cdef Tensor out
    require_host(source)
    out = new_pinned(accelerator(where), source.storage.device_type, source, False)
    copy_into(out, source)
    return out


cdef int require_host(Tensor source) except -1:
    if not device_types()[source.storage.device_type].host:
        raise RuntimeError(f"cannot pin a tensor on {tensor_device(source)}: only dense CPU "
                           f"tensors can be pinned")
    return 0


def pinned_new(Tensor made not None):
    """Return a copy of a factory's result in pinned memory, with the same strides.

    Raises: RuntimeError where no device can pin memory, and for device tensors.
    """
    cdef Tensor out
    if made.storage.device_type == DEVICE_META:
        return made
    if made.flags & TENSOR_IS_BATCHED:          # random numbers under vmap
        return made.pin_memory()
    require_host(made)
    out = new_pinned(
        accelerator(None, "pin_memory=True requires a CUDA or other accelerator backend; no "
                    "pinned memory allocator is available on this system."),
        made.storage.device_type, made, True)
    if out.layout.numel:
        copy_polled(<char *>tensor_data(out), <char *>tensor_data(made), out.storage.nbytes)
    return out
