"""DLPack: memory shared with other array libraries, export and import."""

from __future__ import annotations

import enum

from pullback._c.device.device import device_count
from pullback._c.interop import dlpack

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]

LEGACY_STREAM = 1  # CUDA's default stream, as DLPack and CUDA write it


class DLDeviceType(enum.IntEnum):
    """DLPack's device types.

    >>> from pullback.utils.dlpack import DLDeviceType
    >>> DLDeviceType.kDLCPU == 1
    True
    """

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLROCMHost = 11
    kDLExtDev = 12
    kDLCUDAManaged = 13
    kDLOneAPI = 14
    kDLWebGPU = 15
    kDLHexagon = 16
    kDLMAIA = 17


# ---- export --------------------------------------------------------------------------------------


def lend(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """Return a capsule that shares the tensor's memory; ``Tensor.__dlpack__``.

    ``max_version`` from (1, 0) on asks for DLPack's versioned form, ``dl_device`` for a copy on
    another device, ``copy=True`` for a copy in any case.
    Raises: BufferError when the tensor requires grad or has no data; ValueError when
    a copy would be necessary despite ``copy=False``.
    """
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if self.device.type == "meta":
        raise BufferError("Cannot pack tensors on meta")
    if stream is not None and type(stream) is not int:
        raise TypeError("stream must be ``int`` or ``none``")
    own = dlpack.device_pair(self)
    wanted = own if dl_device is None else _pair(dl_device)
    if wanted != own and copy is False:
        raise ValueError(
            f"cannot move (i.e. copy=False) tensor from {self.device} to DLPack "
            f"device {wanted} without copying."
        )
    lent = self
    if wanted != own:
        where = dlpack.device_of_pair(*wanted)
        try:
            device_count(where.type)
        except RuntimeError as error:  # the device cannot be used here
            raise BufferError(str(error)) from error
        lent = self.to(where)
    elif copy:
        lent = self.clone()
    _wait(lent, wanted, stream)
    versioned = max_version is not None and max_version[0] >= 1
    return dlpack.export_capsule(lent, versioned, lent is not self)


def _pair(dl_device):
    kind, index = dl_device
    return int(kind), int(index)


def _wait(tensor, pair, stream):
    """Let the consumer's stream wait for the tensor's; None: the default one."""
    from pullback.backend import current_stream, wait_stream

    where = tensor.device
    if pair[0] == DLDeviceType.kDLCPU:
        if stream not in (None, -1):
            raise AssertionError("stream should be None on cpu.")
    elif stream == 0 or (stream is not None and stream < -1):
        raise BufferError(f"unsupported stream on {where.type}: {stream}")
    elif stream != -1 and current_stream(where):
        wait_stream(where, LEGACY_STREAM if stream is None else stream, current_stream(where))


def wait_for(tensor, stream):
    """Let a stream, by DLPack's number, wait for the work that a tensor is the result of.

    Raises: AssertionError for a stream on the host; BufferError for a number that is none.
    """
    if type(stream) is not int:
        raise TypeError("stream must be ``int`` or ``none``")
    _wait(tensor, dlpack.device_pair(tensor), stream)


def lent_device(self):
    """Return DLPack's (device type, index) of the tensor; ``Tensor.__dlpack_device__``."""
    kind, index = dlpack.device_pair(self)
    return DLDeviceType(kind), index


def to_dlpack(tensor):
    """Return a capsule of DLPack's first form that shares the tensor's memory.

    Raises: BufferError when the tensor requires grad or has no memory.

    >>> import pullback
    >>> capsule = pullback.utils.dlpack.to_dlpack(pullback.ones(2))
    >>> pullback.from_dlpack(capsule)
    tensor([1., 1.])
    """
    return lend(tensor)


# ---- import --------------------------------------------------------------------------------------


def from_dlpack(ext_tensor, *, device=None, copy=None):
    """Return a tensor over the memory of another library's array, or of a DLPack capsule.

    Read-only memory gives a read-only tensor.
    Raises: RuntimeError for an object that is not an unused DLPack capsule; BufferError and
    ValueError for memory that no tensor can represent, and where a copy would be necessary despite
    ``copy=False``.

    >>> import numpy, pullback
    >>> pullback.from_dlpack(numpy.arange(3))
    tensor([0, 1, 2])
    """
    from pullback import device as make_device

    where = None if device is None else make_device(device)
    if not hasattr(ext_tensor, "__dlpack__"):
        return _placed(dlpack.import_capsule(ext_tensor, _host_only(where)), where, copy)
    kind, index = _pair(ext_tensor.__dlpack_device__())
    options = {"max_version": (1, 0)}
    if copy is not None:
        options["copy"] = copy
    if kind == DLDeviceType.kDLCUDA:
        options["stream"] = dlpack.stream_of(dlpack.device_of_pair(kind, index))
    try:
        capsule, copied = ext_tensor.__dlpack__(**options), copy
    except TypeError:  # a producer of DLPack's first protocol
        stream = {"stream": options["stream"]} if "stream" in options else {}
        capsule, copied = ext_tensor.__dlpack__(**stream), False
    made = dlpack.import_capsule(capsule, _host_only(where))
    return _placed(made, where, None if copied else copy)


def _host_only(where):
    """Return a device if it is a host device."""
    return where if where is not None and dlpack.is_host_device(where) else None


def _is_on(tensor, where):
    found = tensor.device
    return found == where or (where.index is None and found.type == where.type)


def _placed(made, where, copy):
    """Return an imported tensor on the wanted device, copied if that is asked for."""
    if where is not None and not _is_on(made, where):
        if copy is False:
            raise ValueError(
                f"cannot move DLPack tensor from device {made.device} to {where} "
                f"without copying. Set copy=None or copy=True."
            )
        return made.to(where)
    return made.clone() if copy else made
