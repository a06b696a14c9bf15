"""Names of torch.profiler, which the package pullback-profiler implements.

``python -m pullback.profiler script.py`` runs a program under the profiler.
"""

from __future__ import annotations

from pullback._profiler_names import look_up

_NAMES = (
    "KinetoStepTracker",
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
)


def __getattr__(name):
    if name not in _NAMES:
        raise AttributeError(f"module 'pullback.profiler' has no attribute {name!r}")
    home = "pullback_profiler.torch_profiler" if name == "profile" else "pullback_profiler"
    return look_up("pullback.profiler", home, name)


def __dir__():
    return [*globals(), *_NAMES]
