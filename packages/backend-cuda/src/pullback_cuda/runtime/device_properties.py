"""Properties of a device: name, compute capability, limits and memory."""

from __future__ import annotations

from dataclasses import dataclass

from pullback_cuda.runtime import devices
from pullback_cuda.runtime.devices import device_number
from pullback_cuda.runtime.nvrtc import KERNELS


@dataclass(frozen=True)
class DeviceProperties:
    """Properties of a device from the driver; memory in bytes, clocks in kHz."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_multi_processor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    regs_per_multiprocessor: int
    L2_cache_size: int
    memory_clock_rate: int
    memory_bus_width: int
    pci_bus_id: str
    is_integrated: int


def get_device_properties(device=None) -> DeviceProperties:
    """Return the properties of a device, the current one by default.

    Raises: ValueError for devices of another type; RuntimeError where there is no such device.
    """
    with devices.pycuda_device(device) as found:
        return _properties(found)


def _properties(found) -> DeviceProperties:
    def number(name: str) -> int:
        try:
            return found.get_attribute(devices.attribute(name))
        except Exception:  # an attribute that this driver does not know
            return 0

    major, minor = found.compute_capability()
    return DeviceProperties(
        name=found.name(),
        major=major,
        minor=minor,
        total_memory=found.total_memory(),
        multi_processor_count=number("MULTIPROCESSOR_COUNT"),
        warp_size=number("WARP_SIZE"),
        max_threads_per_block=number("MAX_THREADS_PER_BLOCK"),
        max_threads_per_multi_processor=number("MAX_THREADS_PER_MULTIPROCESSOR"),
        shared_memory_per_block=number("MAX_SHARED_MEMORY_PER_BLOCK"),
        shared_memory_per_block_optin=number("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        regs_per_multiprocessor=number("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        L2_cache_size=number("L2_CACHE_SIZE"),
        memory_clock_rate=number("MEMORY_CLOCK_RATE"),
        memory_bus_width=number("GLOBAL_MEMORY_BUS_WIDTH"),
        pci_bus_id=found.pci_bus_id(),
        is_integrated=number("INTEGRATED"),
    )


def get_device_name(device=None) -> str:
    """Return the name of a device, the current one by default."""
    with devices.pycuda_device(device) as found:
        return found.name()


def get_device_capability(device=None) -> tuple[int, int]:
    """Return the compute capability of a device, the current one by default."""
    with devices.pycuda_device(device) as found:
        return found.compute_capability()


def can_device_access_peer(device, peer_device) -> bool:
    """Return whether a device can reach the memory of another one."""
    first, second = device_number(device), device_number(peer_device)
    with devices.pycuda_device(first) as one, devices.pycuda_device(second) as other:
        return first != second and bool(one.can_access_peer(other))


def mem_get_info(device=None) -> tuple[int, int]:
    """Return how many bytes the driver has free on a device, and how many there are."""
    return devices.started(device_number(device)).memory_info()


def get_arch_list() -> list[str]:
    """Return the architectures that the kernels in the wheel are compiled for; none without any."""
    listed = KERNELS / "architectures.txt"
    return listed.read_text().split() if listed.is_file() else []
