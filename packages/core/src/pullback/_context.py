"""Settings of the process, with torch's names: determinism, precision, threads, warnings."""

from __future__ import annotations

import builtins
import contextlib
import os
import warnings

from pullback._c.base import state
from pullback._c.base.errors import require_bool
from pullback._c.ops import create
from pullback.backend import registry
from pullback.backend.threads import default_threads

__all__ = [
    "are_deterministic_algorithms_enabled",
    "compiled_with_cxx11_abi",
    "get_deterministic_debug_mode",
    "get_device_module",
    "get_file_path",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "get_num_threads",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_num_interop_threads",
    "set_num_threads",
    "set_warn_always",
    "use_deterministic_algorithms",
]

_PRECISIONS = ("highest", "high", "medium")
_DEBUG_MODES = ("default", "warn", "error")


class _Settings:
    deterministic = False
    warn_only = False
    fill_uninitialized_memory = True
    precision = "highest"
    threads: int | None = None
    interop_threads: int | None = None
    warn_always = False


_settings = _Settings()


# ---- determinism ---------------------------------------------------------------------------------


def use_deterministic_algorithms(mode, *, warn_only=False):
    """Require algorithms that give the same bits every time.

    All kernels of ``cpu`` and ``ref`` are deterministic; a backend with others must check this.
    New tensors without given elements hold NaN, True or the largest integer then, unless
    ``utils.deterministic.fill_uninitialized_memory`` is False.

    Raises: TypeError for anything but bools.
    """
    deterministic = require_bool("use_deterministic_algorithms", "mode", mode)
    _settings.warn_only = require_bool("use_deterministic_algorithms", "warn_only", warn_only)
    _settings.deterministic = deterministic
    _apply_fill()


def _apply_fill():
    create.set_fills_new(_settings.deterministic and _settings.fill_uninitialized_memory)


@contextlib.contextmanager
def filled_memory():
    """Fill new tensors without given elements in this process, whatever is set."""
    create.set_fills_new(True)
    try:
        yield
    finally:
        _apply_fill()


def set_fill_uninitialized_memory(mode):
    """Set ``utils.deterministic.fill_uninitialized_memory``."""
    if not isinstance(mode, builtins.bool):
        raise RuntimeError(f"expected a bool, but got {type(mode)}")
    _settings.fill_uninitialized_memory = mode
    _apply_fill()


def fills_uninitialized_memory():
    """Return ``utils.deterministic.fill_uninitialized_memory``."""
    return _settings.fill_uninitialized_memory


def set_flush_denormal(mode):
    """Let this thread take denormal numbers for 0; returns whether the processor can.

    Other threads keep what they have: large ops, which several threads share, may still give
    denormal numbers.

    Raises: RuntimeError for anything but a bool.

    >>> import pullback
    >>> pullback.set_flush_denormal(False)
    True
    """
    if not isinstance(mode, builtins.bool):
        raise RuntimeError(f"flush_denormal expects a bool, but got {type(mode).__name__}")
    return state.set_flush_denormal(mode)


def are_deterministic_algorithms_enabled():
    """Return whether deterministic algorithms are required."""
    return _settings.deterministic


def is_deterministic_algorithms_warn_only_enabled():
    """Return whether an op without a deterministic algorithm shall only warn."""
    return _settings.warn_only


def set_deterministic_debug_mode(debug_mode):
    """Set determinism as 0 or "default" (off), 1 or "warn", 2 or "error".

    Raises: TypeError and RuntimeError for other types and values.
    """
    if not isinstance(debug_mode, (builtins.int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _DEBUG_MODES:
            raise RuntimeError(
                f"invalid value of debug_mode, expected one of `default`, `warn`, "
                f"`error`, but got {debug_mode}"
            )
        debug_mode = _DEBUG_MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(
            f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}"
        )
    use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)


def get_deterministic_debug_mode():
    """Return 0, 1 or 2: see ``set_deterministic_debug_mode``."""
    if not _settings.deterministic:
        return 0
    return 1 if _settings.warn_only else 2


# ---- precision -----------------------------------------------------------------------------------


def get_float32_matmul_precision():
    """Return how precise products of float32 matrices must be: "highest", "high" or "medium".

    >>> import pullback
    >>> pullback.get_float32_matmul_precision()
    'highest'
    """
    return _settings.precision


def set_float32_matmul_precision(precision):
    """Allow less precise products of float32 matrices; all kernels compute with "highest".

    Names other than "highest", "high" and "medium" give a warning and are ignored.

    Raises: RuntimeError for anything but a str.
    """
    if not isinstance(precision, str):
        raise RuntimeError(
            f"set_float32_matmul_precision expects a str, but got {type(precision).__name__}"
        )
    if precision not in _PRECISIONS:
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current "
            f"set_float32_matmul_precision call has no effect.",
            UserWarning,
            stacklevel=2,
        )
        return
    _settings.precision = precision


# ---- threads -------------------------------------------------------------------------------------


def _thread_count(function, value):
    if isinstance(value, builtins.bool) or not hasattr(value, "__index__"):
        raise RuntimeError(f"{function} expects an int, but got {type(value).__name__}")
    value = value.__index__()
    if value < 1:
        raise RuntimeError(f"{function} expects a positive integer")
    if value >= 2**31:
        raise ValueError(f"{function}: Overflow when unpacking long: {value}")
    return value


def get_num_threads():
    """Return how many threads one op may use on the host."""
    return default_threads() if _settings.threads is None else _settings.threads


def set_num_threads(count):
    """Set the number of threads that one op may use on the host, in all backends.

    Raises: RuntimeError unless it is a positive integer.
    """
    _settings.threads = _thread_count("set_num_threads", count)
    registry.set_threads(_settings.threads)


def get_num_interop_threads():
    """Return how many ops may run at the same time within one call."""
    return default_threads() if _settings.interop_threads is None else _settings.interop_threads


def set_num_interop_threads(count):
    """Set how many ops may run at the same time within one call; once in a process.

    Ops run one after the other here, so this limit is always kept.

    Raises: RuntimeError unless it is a positive integer, and at the second call.
    """
    count = _thread_count("set_num_interop_threads", count)
    if _settings.interop_threads is not None:
        raise RuntimeError(
            "Error: cannot set number of interop threads after parallel work has "
            "started or set_num_interop_threads called"
        )
    _settings.interop_threads = count


# ---- warnings ------------------------------------------------------------------------------------


def is_warn_always_enabled():
    """Return whether warnings that are given once in a process are given every time."""
    return _settings.warn_always


def set_warn_always(b):
    """Turn on or off that warnings given once in a process are given every time.

    Raises: RuntimeError for anything but a bool.
    """
    if not isinstance(b, builtins.bool):
        raise RuntimeError(f"set_warn_always expects a bool, but got {type(b).__name__}")
    from pullback._c.dispatch import fallback

    _settings.warn_always = b
    fallback.set_warn_always(b)


# ---- memory --------------------------------------------------------------------------------------


def memory_summary(device=None, abbreviated=False):
    """Return the ``memory_stats`` of a device as a table to print.

    ``abbreviated`` leaves out the number of allocations.

    >>> import pullback
    >>> print(pullback.memory_summary().splitlines()[3])            # doctest: +ELLIPSIS
    | Allocated memory    | ...
    """
    from pullback._c.device.device import device as device_of
    from pullback._c.device.device import get_default_device, memory_stats

    where = get_default_device() if device is None else device_of(device)
    stats = memory_stats(where)
    rows = [
        (
            "Allocated memory",
            stats["allocated_bytes.all.current"],
            stats["allocated_bytes.all.peak"],
        ),
        ("Reserved memory", stats["reserved_bytes.all.current"], None),
    ]
    lines = [(name, _bytes(now), "" if peak is None else _bytes(peak)) for name, now, peak in rows]
    if not abbreviated:
        lines.append(("Allocations made", f"{stats['allocation.all.allocated']}  ", ""))
    rule = "|" + "-" * 21 + "|" + "-" * 14 + "|" + "-" * 14 + "|"
    table = [f"| {name:<19} | {now:>12} | {peak:>12} |" for name, now, peak in lines]
    return "\n".join(
        [
            f"Memory of {where}",
            f"| {'Metric':<19} | {'Cur Usage':>12} | {'Peak Usage':>12} |",
            rule,
            *table,
        ]
    )


def _bytes(number):
    """Return a number of bytes with a unit in which it has few digits."""
    for unit in ("B  ", "KiB", "MiB"):
        if abs(number) < 10240:
            return f"{number} {unit}"
        number //= 1024
    return f"{number} GiB"


# ---- the package ---------------------------------------------------------------------------------


def compiled_with_cxx11_abi():
    """Return True: nothing here was built with the C++ ABI that came before C++11."""
    return True


def get_file_path(*path_components):
    """Return a path below the folder that the package is installed in."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return os.path.join(root, *path_components)


def get_device_module(device=None):
    """Return the module ``pullback.<type>`` of a device; of the default one if none is given.

    Raises: RuntimeError when there is no such module, or no such device type.
    """
    import pullback

    if device is None:
        kind = pullback.get_default_device().type
    elif isinstance(device, (str, pullback.device)):
        kind = pullback.device(device).type
    else:
        raise RuntimeError(
            f"Invalid value of device '{device}', expect pullback.device, str, or None"
        )
    module = getattr(pullback, kind, None)
    if module is None:
        raise RuntimeError(
            f"Device '{kind}' does not have a corresponding module registered as 'pullback.{kind}'."
        )
    return module
