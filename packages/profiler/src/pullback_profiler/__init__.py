"""The profiler of Pullback.

``schedule`` says in which steps of a training loop to record; ``util`` holds what reports are made
of: intervals and the formats of times and memory. Importing this package imports neither the core
nor NumPy.
"""

from pullback_profiler.scheduling import ProfilerAction, schedule
from pullback_profiler.util import Interval, format_memory, format_time

__version__ = "0.1.0"
__all__ = ["Interval", "ProfilerAction", "format_memory", "format_time", "schedule"]
