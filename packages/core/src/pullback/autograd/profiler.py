"""Names of torch.autograd.profiler, which the package pullback-profiler implements."""

from __future__ import annotations

from pullback._profiler_names import look_up

_NAMES = (
    "EnforceUnique",
    "EventList",
    "FunctionEvent",
    "KinetoStepTracker",
    "MemRecordsAcc",
    "MEMORY_EVENT_NAME",
    "OUT_OF_MEMORY_EVENT_NAME",
    "ProfilerActivity",
    "emit_itt",
    "emit_nvtx",
    "load_nsys",
    "load_nvprof",
    "parse_nvprof_trace",
    "profile",
    "record_function",
)


def __getattr__(name):
    if name not in _NAMES:
        raise AttributeError(f"module 'pullback.autograd.profiler' has no attribute {name!r}")
    return look_up("pullback.autograd.profiler", "pullback_profiler", name)


def __dir__():
    return [*globals(), *_NAMES]
