"""The step schedule: phases, repetition, errors."""

import itertools

import pytest

from pullback_profiler import ProfilerAction, schedule

LETTERS = {
    ProfilerAction.NONE: ".",
    ProfilerAction.WARMUP: "w",
    ProfilerAction.RECORD: "R",
    ProfilerAction.RECORD_AND_SAVE: "S",
}


def letters(plan, steps):
    return "".join(LETTERS[plan(step)] for step in range(steps))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (dict(wait=2, warmup=1, active=3), "..wRRS..wRRS..w"),
        (dict(wait=2, warmup=1, active=3, repeat=1), "..wRRS........."),
        (dict(wait=1, warmup=1, active=1, repeat=2), ".wS.wS........."),
        (dict(wait=1, warmup=1, active=2, skip_first=3), "....wRS.wRS.wRS"[:15]),
        (dict(wait=3, warmup=1, active=1, skip_first=2, skip_first_wait=1), "..wS...wS...wS."),
        (dict(wait=3, warmup=1, active=1, repeat=1, skip_first_wait=1), "wS............."),
        (dict(wait=0, warmup=0, active=1), "SSSSSSSSSSSSSSS"),
        (dict(wait=0, warmup=0, active=3), "RRSRRSRRSRRSRRS"),
    ],
)
def test_schedule_of_fifteen_steps(arguments, expected):
    assert letters(schedule(**arguments), 15) == expected


def test_schedule_repeats_count_recorded_steps():
    for wait, warmup, active, repeat in itertools.product(
        range(3), range(3), range(1, 4), range(1, 4)
    ):
        plan = schedule(wait=wait, warmup=warmup, active=active, repeat=repeat)
        text = letters(plan, 60)
        assert text.count("S") == repeat
        assert text.count("R") + text.count("S") == active * repeat


@pytest.mark.parametrize(
    "name", ["wait", "warmup", "active", "repeat", "skip_first", "skip_first_wait"]
)
def test_schedule_refuses_a_negative_count(name):
    arguments = {"wait": 1, "warmup": 1, "active": 1, name: -1}
    with pytest.raises(ValueError, match=rf"expected {name} >=? 0, got -1"):
        schedule(**arguments)


def test_schedule_refuses_no_active_step():
    with pytest.raises(ValueError, match="expected active > 0, got 0"):
        schedule(wait=1, warmup=1, active=0)


def test_schedule_refuses_what_is_no_integer():
    with pytest.raises(TypeError, match="wait must be an integer, got str"):
        schedule(wait="1", warmup=1, active=1)


def test_schedule_refuses_a_negative_step():
    with pytest.raises(ValueError, match="expected step >= 0, got -1"):
        schedule(wait=1, warmup=1, active=1)(-1)
