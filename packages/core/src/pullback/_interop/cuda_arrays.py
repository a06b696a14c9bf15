"""``__cuda_array_interface__``: memory of CUDA devices, shared with other libraries.

Source: the interface's description, version 3, in the documentation of Numba.
"""

from __future__ import annotations

import re

from pullback._c.base import dtype as _dtype
from pullback._c.device.device import device as _device
from pullback._c.graph.tensor import bind_attribute
from pullback._c.interop import arrays

VERSION = 3
_KINDS = {
    "bool": "|b1",
    "uint8": "|u1",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "float16": "<f2",
    "bfloat16": "<V2",
    "float32": "<f4",
    "float64": "<f8",
    "complex64": "<c8",
    "complex128": "<c16",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
}
_DTYPES = {kind: found for found in _dtype.ALL if (kind := _KINDS.get(found.name))}


def describe(self):
    """Return the ``__cuda_array_interface__`` of a tensor.

    Raises: AttributeError for tensors on other devices, RuntimeError for those that require grad.
    """
    from pullback.backend import current_stream

    if not self.is_cuda:
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: a "
            f"{self.dtype} tensor on {self.device}. If CUDA data is required, use "
            f"tensor.cuda() to copy tensor to device memory."
        )
    if self.requires_grad:
        raise RuntimeError(
            "Can't get __cuda_array_interface__ on Variable that requires grad. If "
            "gradients aren't required, use var.detach() to get Variable that "
            "doesn't require grad."
        )
    if self.is_conj() or self.is_neg():
        raise RuntimeError(
            "Can't get __cuda_array_interface__ on a tensor with the conjugate or "
            "negative bit set. Use var.resolve_conj().resolve_neg() instead."
        )
    size = self.element_size()
    strides = None if self.is_contiguous() else tuple(step * size for step in self.stride())
    return {
        "typestr": _KINDS[self.dtype.name],
        "shape": tuple(self.shape),
        "strides": strides,
        "data": (self.data_ptr() if self.numel() else 0, False),
        "version": VERSION,
        "stream": current_stream(self.device) or 1,
    }


def adopt(source):
    """Return a tensor over the memory of an object with ``__cuda_array_interface__``.

    Work on this thread's current stream begins after the stream that the object names.
    Raises: TypeError and ValueError for memory that no tensor can represent.
    """
    interface = source.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise TypeError("as_tensor(): masked arrays are not supported")
    dtype = _DTYPES.get(re.sub("^[=<](?=[bui]1$)", "|", interface["typestr"]))
    if dtype is None:
        raise TypeError(
            f"as_tensor(): elements of the type {interface['typestr']!r} are not supported"
        )
    address, readonly = interface["data"]
    strides = interface.get("strides")
    if strides is not None:
        if any(step % dtype.itemsize for step in strides):
            raise ValueError("as_tensor(): strides must be multiples of the element's size")
        strides = tuple(step // dtype.itemsize for step in strides)
    where = _device("cuda", _home(source))
    made = arrays.share_address(
        address or 0, tuple(interface["shape"]), strides, dtype, where, source, readonly
    )
    _wait_for(where, interface.get("stream"))
    return made


def _home(source) -> int:
    """Return the index of an object's device, if it has one, else of the current device."""
    from pullback._c.device.device import current_device

    found = getattr(source, "device", None)
    number = found if isinstance(found, int) else getattr(found, "index", getattr(found, "id", 0))
    return number if isinstance(number, int) else current_device("cuda")


def _wait_for(where, stream) -> None:
    from pullback.backend import current_stream, wait_stream

    if stream is None:
        return
    if type(stream) is not int or stream < 0:
        raise TypeError(
            f"as_tensor(): __cuda_array_interface__ must give the stream as int, not {stream!r}"
        )
    if stream == 0:
        raise ValueError(
            "as_tensor(): __cuda_array_interface__ says stream 0, which is not "
            "allowed because it is ambiguous"
        )
    wait_stream(where, current_stream(where), stream)


def install():
    """Bind the property to the class."""
    bind_attribute("__cuda_array_interface__", property(describe))
