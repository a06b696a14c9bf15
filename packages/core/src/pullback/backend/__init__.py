"""The interface of backend plugins: hooks, dtype masks, streams, observers, ``explain``.

See ``docs/reference/abi.md``; the compiled contract is ``abi.h`` in ``get_include()``.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

from pullback._c.base.errors import OutOfMemoryError
from pullback._c.base.interrupts import INTERRUPTED
from pullback._c.base.state import thread_number
from pullback._c.device.device import (
    current_device,
    device_count,
    memory_stats,
    set_current_device,
    synchronize,
    times_kernels,
)
from pullback._c.device.device import known_device_types as device_types
from pullback._c.device.streams import current_stream, set_stream, wait_stream
from pullback._c.dispatch.fallback import fallback_counts as _fallback_counts
from pullback._c.dispatch.observer import attach_observer, begin_range, detach_observer, end_range
from pullback.backend import masks
from pullback.backend.memory import Memory
from pullback.backend.registry import installed, plugin_manager
from pullback.ops.table.primitives import PRIMITIVE_IDS, PRIMITIVES

__all__ = [
    "INTERRUPTED",
    "PRIMITIVE_IDS",
    "FallbackCount",
    "Memory",
    "OutOfMemoryError",
    "attach_observer",
    "begin_range",
    "current_device",
    "current_stream",
    "define_primitive",
    "define_storage_dtype",
    "detach_observer",
    "device_count",
    "device_types",
    "end_range",
    "explain",
    "fallbacks",
    "get_float32_matmul_precision",
    "hookimpl",
    "installed",
    "masks",
    "memory_stats",
    "observe_module_calls",
    "plugin_manager",
    "reset_fallbacks",
    "set_current_device",
    "set_stream",
    "synchronize",
    "thread_number",
    "times_kernels",
    "wait_stream",
]


def __getattr__(name):
    if name in ("hookimpl", "hookspec"):  # pluggy is imported only for plugins
        from pullback.backend import hookspecs

        return getattr(hookspecs, name)
    if name == "define_primitive":  # few plugins define one
        return importlib.import_module("pullback.backend.own_primitives").define_primitive
    if name == "define_storage_dtype":
        return importlib.import_module("pullback.library.storage_dtypes").define_storage_dtype
    if name == "observe_module_calls":  # the first module loads what it needs
        from pullback._c.python.module_base import observe_module_calls

        return observe_module_calls
    if name == "get_float32_matmul_precision":
        from pullback import _context

        return _context.get_float32_matmul_precision
    if name == "SLOT_IDS":
        raise AttributeError(
            "pullback.backend.SLOT_IDS was renamed in ABI version 2: use "
            "PRIMITIVE_IDS, and pb_call.primitive in place of pb_call.slot"
        )
    raise AttributeError(f"module 'pullback.backend' has no attribute {name!r}")


def explain(op: str, device: str | None = None) -> str:
    """Return how an op runs on a device: by which kind of kernel, for which dtypes.

    Of a composition: the required primitives that it ends in, and how these run for float32. The
    name of one that ``define_primitive`` or ``pullback.library`` made has its namespace.

    Raises: AttributeError for unknown ops; RuntimeError for devices that cannot be used.

    >>> import pullback
    >>> print(pullback.backend.explain("matmul", "ref"))
    matmul on ref: composition of other ops, which end in 'bmm' (python)
    """
    import pullback
    from pullback._c.device.device import explain_entry
    from pullback._c.graph.op import op_by_name
    from pullback.ops import ENTRIES

    where = pullback.device(device or pullback.get_default_device())
    kind = where.type
    if "::" in op:
        text = importlib.import_module("pullback.backend.own_primitives").explain_operator(op, kind)
        if text is not None:
            return text
    found = op_by_name(op)
    primitive = found.entry.kernel
    if primitive is None:
        from pullback.backend.doctor.primitives import primitives_of

        ends = [
            f"{name!r} ({explain_entry(kind, name, pullback.float32)})"
            for name in sorted(primitives_of(op) if op in ENTRIES else ())
        ]
        how = "composition of other ops, which end in"
        if found.entry.composite is None:
            how = "written in core (no primitive of its own), which runs"
        return f"{op} on {kind}: {how} {', '.join(ends)}" if ends else f"{op} on {kind}: {how} none"
    served: dict[str, list[str]] = {}
    other_way = PRIMITIVES[primitive].decomposed
    for dtype in pullback._dtypes():
        if found.entry.dtypes >> dtype.code & 1:
            how = explain_entry(kind, primitive, dtype, other_way)
            served.setdefault(how, []).append(dtype.name)
    lines = [f"{how} for {', '.join(names)}" for how, names in served.items()]
    return f"{op} on {kind}: primitive {primitive!r}: " + "; ".join(lines)


class FallbackCount(NamedTuple):
    """How often an op ran on the host for want of a kernel, and the bytes that were copied for it.

    ``bytes`` counts both directions; it is 0 for devices with host memory.

    >>> from pullback.backend import FallbackCount
    >>> FallbackCount(2, 48).bytes
    48
    """

    calls: int
    bytes: int


def fallbacks() -> dict[tuple[str, str], FallbackCount]:
    """Return what ran on the host instead of a device without the kernel, by op and device type.

    Counts since the process began or ``reset_fallbacks``, in all threads. The op is the one that
    the program called, where the missing kernel is a part of it.

    >>> import pullback
    >>> pullback.backend.reset_fallbacks()
    >>> y = pullback.ones(2, device="ref") + 1
    >>> pullback.backend.fallbacks()
    {}
    """
    return {key: FallbackCount(*count) for key, count in _fallback_counts(False).items()}


def reset_fallbacks() -> None:
    """Begin to count fallbacks to the host anew.

    >>> import pullback
    >>> pullback.backend.reset_fallbacks()
    >>> pullback.backend.fallbacks()
    {}
    """
    _fallback_counts(True)
