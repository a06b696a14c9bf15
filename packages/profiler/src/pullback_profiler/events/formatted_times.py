"""The base class of events and averages: times per call, and times as text."""

from __future__ import annotations

import warnings
from typing import Any

from pullback_profiler.events.util import format_time


def _as_text(name: str) -> property:
    return property(
        lambda self: format_time(getattr(self, name)), doc=f"``{name}`` as text with its unit."
    )


def _deprecated(name: str) -> property:
    """Return a property with ``cuda`` for ``device`` in its name that warns and forwards."""

    def forward(self: FormattedTimesMixin) -> float:
        old = name.replace("device", "cuda")
        warnings.warn(f"`{old}` is deprecated, use `{name}` instead", FutureWarning, stacklevel=2)
        return getattr(self, name)

    return property(forward, doc=f"Deprecated: ``{name}``.")


class FormattedTimesMixin:
    """Times per call and times as text, of a class that has total times (in us) and ``count``.

    ``cpu_time`` and ``device_time`` are microseconds per call. Each time has a text with its unit:
    ``cpu_time_str``, ``cpu_time_total_str``, ``self_cpu_time_total_str``, and the same of
    ``device``. The names with ``cuda`` instead of ``device`` are deprecated (FutureWarning).

    >>> from pullback_profiler import FunctionEvent
    >>> FunctionEvent(0, "load", thread=1, start_us=0, end_us=2500).cpu_time_total_str
    '2.500ms'
    """

    __slots__ = ()

    cpu_time_str = _as_text("cpu_time")
    device_time_str = _as_text("device_time")
    cpu_time_total_str = _as_text("cpu_time_total")
    device_time_total_str = _as_text("device_time_total")
    self_cpu_time_total_str = _as_text("self_cpu_time_total")
    self_device_time_total_str = _as_text("self_device_time_total")

    cuda_time = _deprecated("device_time")
    cuda_time_total = _deprecated("device_time_total")
    self_cuda_time_total = _deprecated("self_device_time_total")
    cuda_memory_usage = _deprecated("device_memory_usage")
    self_cuda_memory_usage = _deprecated("self_device_memory_usage")

    @property
    def cpu_time(self: Any) -> float:
        """Microseconds on the CPU per call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self: Any) -> float:
        """Microseconds on the device per call."""
        return self.device_time_total / self.count if self.count else 0.0
