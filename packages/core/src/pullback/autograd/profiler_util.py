"""Names of torch.autograd.profiler_util, which the package pullback-profiler implements."""

from __future__ import annotations

from pullback._profiler_names import look_up

_NAMES = (
    "EventList",
    "EventMetadata",
    "FormattedTimesMixin",
    "FunctionEvent",
    "FunctionEventAvg",
    "Interval",
    "Kernel",
    "MemRecordsAcc",
    "MEMORY_EVENT_NAME",
    "OUT_OF_MEMORY_EVENT_NAME",
    "StringTable",
)


def __getattr__(name):
    if name not in _NAMES:
        raise AttributeError(f"module 'pullback.autograd.profiler_util' has no attribute {name!r}")
    return look_up("pullback.autograd.profiler_util", "pullback_profiler", name)


def __dir__():
    return [*globals(), *_NAMES]
