"""The program's step, which several requesters count; the numbers are torch's."""

import threading

import pytest

from pullback_profiler.step_tracker import KinetoStepTracker


@pytest.fixture
def tracker():
    class Fresh(KinetoStepTracker):
        _current = 0
        _counts = {}  # noqa: RUF012

    return Fresh


def test_step_is_the_largest_number_of_any_requester(tracker):
    assert tracker.current_step() == 0
    tracker.init_step_count("a")
    steps = [tracker.increment_step(name) for name in "abaabc"]
    assert steps == [1, 2, 2, 3, 3, 4]
    assert tracker.current_step() == 4


def test_two_that_step_once_an_iteration_count_it_once(tracker):
    tracker.init_step_count("profiler")
    tracker.init_step_count("optimizer")
    for iteration in range(1, 6):
        assert tracker.increment_step("profiler") == iteration
        assert tracker.increment_step("optimizer") == iteration


def test_erased_requester_does_not_take_the_step_back(tracker):
    tracker.increment_step("a")
    tracker.increment_step("a")
    assert tracker.erase_step_count("a") is True
    assert tracker.erase_step_count("a") is False
    assert tracker.current_step() == 2
    assert tracker.increment_step("a") == 3


def test_requester_that_starts_late_counts_on(tracker):
    for _ in range(3):
        tracker.increment_step("a")
    tracker.init_step_count("b")
    assert tracker.increment_step("b") == 4


def test_threads_lose_no_step(tracker):
    def count():
        for _ in range(2000):
            tracker.increment_step("shared")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tracker.current_step() == 8000
