"""``python -m pullback.profiler script.py``: run a program under the profiler."""

from pullback.profiler._names import look_up

look_up("pullback.profiler", "pullback_profiler.command", "main")()
