"""Memory statistics and limits of devices."""

from __future__ import annotations

import pullback
from pullback_cuda.runtime import allocator, devices
from pullback_cuda.runtime.devices import device_number


def _counts(device) -> dict[str, int]:
    number = device_number(device)
    devices.started(number)
    return allocator.memory_counts(number)


def memory_allocated(device=None) -> int:
    """Return the bytes that tensors of a device use, of the current one by default."""
    return _counts(device)["allocated"]


def max_memory_allocated(device=None) -> int:
    """Return the most bytes that tensors have used since the last reset."""
    return _counts(device)["allocated_peak"]


def memory_reserved(device=None) -> int:
    """Return the bytes that are held from the driver, in use or kept for the next request."""
    return _counts(device)["reserved"]


def max_memory_reserved(device=None) -> int:
    """Return the most bytes that were held from the driver since the last reset."""
    return _counts(device)["reserved_peak"]


def memory_stats(device=None) -> dict[str, int]:
    """Return the counters of a device's memory, under torch's names."""
    counts = _counts(device)
    return {
        "allocated_bytes.all.current": counts["allocated"],
        "allocated_bytes.all.peak": counts["allocated_peak"],
        "reserved_bytes.all.current": counts["reserved"],
        "reserved_bytes.all.peak": counts["reserved_peak"],
        "allocation.all.allocated": counts["allocations"],
        "allocation.all.freed": counts["frees"],
        "allocation.all.current": counts["allocations"] - counts["frees"],
        "num_alloc_retries": counts["retries"],
        "num_ooms": counts["out_of_memory"],
    }


def memory_summary(device=None, abbreviated: bool = False) -> str:
    """Return the counters as a table to print; ``abbreviated`` leaves out the allocations."""
    return pullback.memory_summary(f"cuda:{device_number(device)}", abbreviated)


def reset_peak_memory_stats(device=None) -> None:
    """Let the peaks start again at what is in use now."""
    number = device_number(device)
    devices.started(number)
    allocator.reset_peaks(number)


def empty_cache() -> None:
    """Give all memory that no tensor uses back to the driver, on every device in use."""
    for number in devices.numbers():
        allocator.release_cached(number)


def set_per_process_memory_fraction(fraction: float, device=None) -> None:
    """Let a device hold at most this part of its memory.

    Raises: TypeError unless it is a number, ValueError unless it is from 0 to 1.
    """
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    number = device_number(device)
    with devices.pycuda_device(device) as found:
        total = found.total_memory()
    allocator.set_limit(number, max(1, int(total * fraction)))
