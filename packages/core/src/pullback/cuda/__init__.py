"""torch.cuda's names, for the device type ``cuda``; the package pullback-cuda implements them.

``is_available`` and ``device_count`` work on every machine. Without a device, other names raise an
error with the reason.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pullback._c.base.errors import OutOfMemoryError
from pullback._c.device.device import current_device as _current_device
from pullback._c.device.device import device as _device
from pullback._c.device.device import set_current_device as _set_current_device
from pullback._help import explain_names as _explain_names
from pullback._legacy_types import class_named

if TYPE_CHECKING:  # names are looked up at their first use

    def __getattr__(name: str) -> Any: ...


_HOMES = {
    "streams": (
        "Event",
        "Stream",
        "StreamContext",
        "current_stream",
        "default_stream",
        "set_stream",
        "stream",
    ),
    "device_properties": (
        "can_device_access_peer",
        "get_arch_list",
        "get_device_capability",
        "get_device_name",
        "get_device_properties",
        "mem_get_info",
    ),
    "memory": (
        "empty_cache",
        "max_memory_allocated",
        "max_memory_reserved",
        "memory_allocated",
        "memory_reserved",
        "memory_stats",
        "memory_summary",
        "reset_peak_memory_stats",
        "set_per_process_memory_fraction",
    ),
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "OutOfMemoryError",
    "clock_rate",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "get_gencode_flags",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "list_gpu_processes",
    "manual_seed",
    "manual_seed_all",
    "max_memory_cached",
    "memory_cached",
    "memory_stats_as_nested_dict",
    "memory_usage",
    "power_draw",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "synchronize",
    "temperature",
    "utilization",
]
__all__.extend((*_NAMES, "amp", "CUDAGraph", "graph"))  # found when they are asked for
__all__.extend(
    f"{name}Tensor"
    for name in (
        *("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"),
    )
)


class CUDAGraph:
    """Refuse to be made: graphs of kernels are not captured.

    Raises: NotImplementedError.

    >>> import pullback
    >>> pullback.cuda.CUDAGraph()
    Traceback (most recent call last):
    NotImplementedError: pullback.cuda.CUDAGraph: graphs of kernels are not captured
    """

    def __init__(self, keep_graph=False):
        raise NotImplementedError("pullback.cuda.CUDAGraph: graphs of kernels are not captured")


class graph(CUDAGraph):
    """Refuse to be made, as ``CUDAGraph`` is.

    >>> import pullback
    >>> pullback.cuda.graph(None)
    Traceback (most recent call last):
    NotImplementedError: pullback.cuda.CUDAGraph: graphs of kernels are not captured
    """

    def __init__(self, cuda_graph, pool=None, stream=None, capture_error_mode="global"):
        super().__init__()


def _find(name):
    if name.endswith("Tensor") and (found := class_named(f"pullback.cuda.{name}")) is not None:
        return found
    if name == "amp":
        return import_module("pullback.cuda.amp")
    if name == "_initialized":
        return is_initialized()
    if name not in _NAMES:
        return None
    _require(name)
    return getattr(import_module(f"pullback_cuda.runtime.{_NAMES[name]}"), name)


_explain_names(globals(), _find)


def __dir__():
    return __all__


def _require(name: str) -> None:
    if find_spec("pullback_cuda") is None:
        raise ImportError(
            f"pullback.cuda.{name} needs the package pullback-cuda: install it with "
            f"'pip install pullback-cuda' (or pullback[cuda])"
        )


def is_available() -> bool:
    """Return whether a CUDA device can be used; never raises.

    >>> import pullback
    >>> isinstance(pullback.cuda.is_available(), bool)
    True
    """
    return find_spec("pullback_cuda") is not None and import_module("pullback_cuda").is_available()


def device_count() -> int:
    """Return how many CUDA devices there are; 0 where anything is missing.

    >>> import pullback
    >>> pullback.cuda.is_available() == (pullback.cuda.device_count() > 0)
    True
    """
    if find_spec("pullback_cuda") is None:
        return 0
    return import_module("pullback_cuda").device_count()


def init() -> None:
    """Start CUDA now, not when it is used for the first time.

    Raises: RuntimeError that says what is missing.
    """
    from pullback.backend import device_count as count

    count("cuda")


def is_initialized() -> bool:
    """Return whether CUDA has been used in this process.

    >>> import pullback
    >>> isinstance(pullback.cuda.is_initialized(), bool)
    True
    """
    import sys

    return "pullback_cuda.runtime.backend" in sys.modules


def current_device() -> int:
    """Return the number of the device that ``cuda`` means on this thread.

    >>> import pullback
    >>> pullback.cuda.current_device()
    0
    """
    return _current_device("cuda")


def _number(where, function: str) -> int:
    if isinstance(where, int) and not isinstance(where, bool):
        return where
    found = _device(where)
    if found.type != "cuda":
        raise ValueError(f"{function}(): expected a cuda device, but got: {found}")
    return current_device() if found.index is None else found.index


def set_device(device) -> None:
    """Let ``cuda`` mean this device on this thread; a negative number changes nothing.

    Raises: ValueError for devices of another type; RuntimeError where there is no such device.
    """
    number = _number(device, "set_device")
    if number >= 0:
        _set_current_device("cuda", number)


class device:
    """A block in which ``cuda`` means a device, by number or name; None or -1 changes nothing.

    Raises: ValueError for devices of another type; RuntimeError where there is no such device.

    >>> import pullback
    >>> with pullback.cuda.device(-1):
    ...     pullback.cuda.current_device()
    0
    """

    def __init__(self, device):
        self.idx = -1 if device is None else _number(device, "device")
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = current_device()
        set_device(self.idx)
        return self

    def __exit__(self, kind, value, trace):
        if self.idx >= 0:
            set_device(self.prev_idx)
        return False


class device_of(device):
    """A block in which ``cuda`` means the device of a tensor; others change nothing.

    >>> import pullback
    >>> with pullback.cuda.device_of(pullback.ones(2, device="ref")):
    ...     pullback.cuda.current_device()
    0
    """

    def __init__(self, obj):
        super().__init__(obj.get_device() if obj.is_cuda else -1)


def synchronize(device=None) -> None:
    """Wait until a device, the current one by default, has done all work given to it.

    Raises: RuntimeError where there is no such device; what earlier work ran into, such as an
    IndexError.
    """
    from pullback._c.device.device import synchronize as wait

    wait("cuda" if device is None else f"cuda:{_number(device, 'synchronize')}")


def manual_seed(seed: int) -> None:
    """Seed the random numbers: all devices draw from one generator.

    >>> import pullback
    >>> pullback.cuda.manual_seed(3)
    """
    from pullback.random import manual_seed as seed_all

    seed_all(seed)


manual_seed_all = manual_seed


# ---- random numbers: all devices draw from one generator -----------------------------------------


def initial_seed() -> int:
    """Return the seed that the generator began with."""
    from pullback.random import initial_seed as found

    return found()


def seed() -> None:
    """Seed the generator with a number that differs each time."""
    from pullback.random import seed as draw

    draw()


seed_all = seed


def get_rng_state(device="cuda"):
    """Return the state of the generator, a tensor of bytes."""
    from pullback.random import get_rng_state as found

    _number(device, "get_rng_state")
    return found()


def get_rng_state_all():
    """Return the state of the generator for each device."""
    return [get_rng_state(number) for number in range(device_count())]


def set_rng_state(new_state, device="cuda") -> None:
    """Set the state of the generator, for all devices."""
    from pullback.random import set_rng_state as put

    _number(device, "set_rng_state")
    put(new_state)


def set_rng_state_all(new_states) -> None:
    """Set the state of the generator, to the last one of a list."""
    for state in new_states:
        set_rng_state(state)


# ---- what a device can do ------------------------------------------------------------------------


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether kernels take bfloat16; ``including_emulation=False``: in hardware."""
    return is_available() and (including_emulation or _find("get_device_capability")()[0] >= 8)


def is_tf32_supported() -> bool:
    """Return whether the device multiplies TensorFloat-32 numbers."""
    return is_available() and _find("get_device_capability")()[0] >= 8


def is_current_stream_capturing() -> bool:
    """Return False: there are no CUDA graphs here."""
    return False


def get_gencode_flags() -> str:
    """Return the options of nvcc for the architectures of ``get_arch_list``."""
    kinds = [arch.partition("_")[::2] for arch in _find("get_arch_list")()]
    return " ".join(f"-gencode compute=compute_{n},code={kind}_{n}" for kind, n in kinds)


def ipc_collect() -> None:
    """Do nothing: memory is not shared with other processes."""


# ---- memory, by older names ----------------------------------------------------------------------


def _renamed(old: str, new: str):
    def function(device=None):
        import warnings

        warnings.warn(
            f"`pullback.cuda.{old}` has been renamed to `pullback.cuda.{new}`",
            FutureWarning,
            stacklevel=2,
        )
        return _find(new)(device)

    function.__name__ = function.__qualname__ = old
    function.__doc__ = f"Return ``{new}``; deprecated."
    return function


memory_cached = _renamed("memory_cached", "memory_reserved")
max_memory_cached = _renamed("max_memory_cached", "max_memory_reserved")
reset_max_memory_allocated = _renamed("reset_max_memory_allocated", "reset_peak_memory_stats")
reset_max_memory_cached = _renamed("reset_max_memory_cached", "reset_peak_memory_stats")


def memory_stats_as_nested_dict(device=None) -> dict:
    """Return ``memory_stats`` with a dict for each part of a name."""
    found: dict = {}
    for name, value in _find("memory_stats")(device).items():
        *outer, last = name.split(".")
        inner = found
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return found


# ---- the state of a device, through pynvml -------------------------------------------------------


def _nvml(device):
    try:
        import pynvml
    except ImportError as error:
        raise ModuleNotFoundError(
            "pynvml does not seem to be installed or it can't be imported."
        ) from error
    pynvml.nvmlInit()
    number = current_device() if device is None else _number(device, "pynvml")
    return pynvml, pynvml.nvmlDeviceGetHandleByIndex(number)


def utilization(device=None) -> int:
    """Return in how many of 100 moments a kernel ran, lately."""
    library, handle = _nvml(device)
    return library.nvmlDeviceGetUtilizationRates(handle).gpu


def memory_usage(device=None) -> int:
    """Return in how many of 100 moments memory was read or written, lately."""
    library, handle = _nvml(device)
    return library.nvmlDeviceGetUtilizationRates(handle).memory


def temperature(device=None) -> int:
    """Return the temperature in degrees Celsius."""
    library, handle = _nvml(device)
    return library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU)


def power_draw(device=None) -> int:
    """Return the power in milliwatts."""
    library, handle = _nvml(device)
    return library.nvmlDeviceGetPowerUsage(handle)


def clock_rate(device=None) -> int:
    """Return the clock of the multiprocessors in MHz."""
    library, handle = _nvml(device)
    return library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM)


def list_gpu_processes(device=None) -> str:
    """Return a line for each process that computes on the device, with its memory."""
    library, handle = _nvml(device)
    processes = library.nvmlDeviceGetComputeRunningProcesses(handle)
    number = current_device() if device is None else _number(device, "list_gpu_processes")
    lines = [f"GPU:{number}"]
    lines += [
        f"process {process.pid:>10d} uses {process.usedGpuMemory / 1048576:>12.3f} MB GPU memory"
        for process in processes
    ] or ["no processes are running"]
    return "\n".join(lines)
