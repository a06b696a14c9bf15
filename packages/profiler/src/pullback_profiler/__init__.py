"""The profiler of Pullback: events with their times and memory.

``profile`` records a block of the program and gives its events, sums by name, a table, traces and
a report; ``record_function`` names parts of it; ``emit_nvtx`` shows ops in NVIDIA's tools.
``pullback.autograd.profiler`` and ``pullback.profiler`` have these names too. Importing this
package imports neither the core nor NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pullback_profiler.events.util import Interval, format_memory, format_time
from pullback_profiler.scheduling import ProfilerAction, schedule

if TYPE_CHECKING:
    from pullback_profiler.activities import ProfilerActivity, supported_activities
    from pullback_profiler.annotation import record_function
    from pullback_profiler.autograd_profiler import profile
    from pullback_profiler.events.average import FunctionEventAvg
    from pullback_profiler.events.event_list import EventList
    from pullback_profiler.events.event_metadata import EventMetadata
    from pullback_profiler.events.formatted_times import FormattedTimesMixin
    from pullback_profiler.events.function_event import FunctionEvent, Kernel
    from pullback_profiler.events.memory_records import MemRecordsAcc
    from pullback_profiler.events.string_table import StringTable
    from pullback_profiler.expectation import expect
    from pullback_profiler.export.emit import emit_itt, emit_nvtx
    from pullback_profiler.export.trace_diff import diff_traces
    from pullback_profiler.importers.nsys import load_nsys
    from pullback_profiler.importers.nvprof import EnforceUnique, load_nvprof, parse_nvprof_trace
    from pullback_profiler.record.recording import MEMORY_EVENT_NAME, OUT_OF_MEMORY_EVENT_NAME
    from pullback_profiler.step_tracker import KinetoStepTracker
    from pullback_profiler.torch_profiler import tensorboard_trace_handler

__version__ = "0.1.0"

_MODULES = {
    "activities": ("ProfilerActivity", "supported_activities"),
    "events.average": ("FunctionEventAvg",),
    "record.recording": ("MEMORY_EVENT_NAME", "OUT_OF_MEMORY_EVENT_NAME"),
    "export.emit": ("emit_itt", "emit_nvtx"),
    "events.event_list": ("EventList",),
    "events.event_metadata": ("EventMetadata",),
    "events.formatted_times": ("FormattedTimesMixin",),
    "events.function_event": ("FunctionEvent", "Kernel"),
    "events.memory_records": ("MemRecordsAcc",),
    "importers.nsys": ("load_nsys",),
    "importers.nvprof": ("EnforceUnique", "load_nvprof", "parse_nvprof_trace"),
    "autograd_profiler": ("profile",),
    "annotation": ("record_function",),
    "step_tracker": ("KinetoStepTracker",),
    "torch_profiler": ("tensorboard_trace_handler",),
    "events.string_table": ("StringTable",),
    "expectation": ("expect",),
    "export.trace_diff": ("diff_traces",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "MEMORY_EVENT_NAME",
    "OUT_OF_MEMORY_EVENT_NAME",
    "EnforceUnique",
    "EventList",
    "EventMetadata",
    "FormattedTimesMixin",
    "FunctionEvent",
    "FunctionEventAvg",
    "Interval",
    "Kernel",
    "KinetoStepTracker",
    "MemRecordsAcc",
    "ProfilerAction",
    "ProfilerActivity",
    "StringTable",
    "diff_traces",
    "emit_itt",
    "emit_nvtx",
    "expect",
    "format_memory",
    "format_time",
    "load_nsys",
    "load_nvprof",
    "parse_nvprof_trace",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


def __getattr__(name: str) -> Any:
    """Import a name's module when the name is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
