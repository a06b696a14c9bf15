"""Schedules: the steps of a loop in which the profiler records."""

from __future__ import annotations

import enum
from collections.abc import Callable


class ProfilerAction(enum.Enum):
    """What the profiler does during one step; schedules return it.

    >>> from pullback_profiler import ProfilerAction, schedule
    >>> schedule(wait=1, warmup=1, active=1)(0) is ProfilerAction.NONE
    True
    """

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """Return a function that maps a step's number to what the profiler does in that step.

    After ``skip_first`` steps come cycles of ``wait`` idle, ``warmup`` warming and ``active``
    recorded steps, ``repeat`` of them, or without end when it is 0. The last recorded step of a
    cycle is ``RECORD_AND_SAVE``. With ``skip_first_wait`` the first cycle has no idle steps.
    Raises: ValueError for a negative count or no active step; TypeError for a count that is not an
    integer.

    >>> plan = schedule(wait=1, warmup=1, active=2, repeat=1)
    >>> [plan(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    counts = {
        "wait": wait,
        "warmup": warmup,
        "repeat": repeat,
        "skip_first": skip_first,
        "skip_first_wait": skip_first_wait,
    }
    for name, value in {**counts, "active": active}.items():
        if not isinstance(value, int):
            raise TypeError(f"schedule(): {name} must be an integer, got {type(value).__name__}")
    for name, value in counts.items():
        if value < 0:
            raise ValueError(f"schedule(): expected {name} >= 0, got {value}")
    if active <= 0:
        raise ValueError(f"schedule(): expected active > 0, got {active}")
    first_wait = 0 if skip_first_wait else wait

    def action_of(step: int) -> ProfilerAction:
        if step < 0:
            raise ValueError(f"schedule(): expected step >= 0, got {step}")
        if step < skip_first:
            return ProfilerAction.NONE
        step += wait - first_wait - skip_first
        cycle, position = divmod(step, wait + warmup + active)
        if (repeat and cycle >= repeat) or position < wait:
            return ProfilerAction.NONE
        if position < wait + warmup:
            return ProfilerAction.WARMUP
        is_last = position == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if is_last else ProfilerAction.RECORD

    return action_of
