"""Names of torch.autograd.profiler_util, which the package pullback-profiler implements."""

from __future__ import annotations

from pullback._help import explain_names as _explain_names
from pullback.profiler._names import look_up

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


def _find(name):
    if name not in _NAMES:
        return None
    return look_up("pullback.autograd.profiler_util", "pullback_profiler", name)


_explain_names(globals(), _find)


def __dir__():
    return [*globals(), *_NAMES]
