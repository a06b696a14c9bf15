"""Names of torch.profiler, which the package pullback-profiler implements; also ``expect`` and
``diff_traces``.

``python -m pullback.profiler script.py`` runs a program under the profiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pullback._help import explain_names as _explain_names
from pullback.profiler._names import look_up

if TYPE_CHECKING:  # names are looked up at their first use

    def __getattr__(name: str) -> Any: ...


_NAMES = (
    "KinetoStepTracker",
    "ProfilerAction",
    "ProfilerActivity",
    "diff_traces",
    "expect",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
)


def _find(name):
    if name not in _NAMES:
        return None
    home = "pullback_profiler.torch_profiler" if name == "profile" else "pullback_profiler"
    return look_up("pullback.profiler", home, name)


_explain_names(globals(), _find)


def __dir__():
    return [*globals(), *_NAMES]
