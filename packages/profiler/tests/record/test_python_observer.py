"""Python functions that the core's events call: what they raise, and when they are detached."""

import sys
import threading

import pytest

import pullback as pb
from pullback.autograd.profiler import profile
from pullback_profiler.record import python_observer


class Log:
    """Functions that write down their calls, and may do something more."""

    def __init__(self, begun=lambda: None, ended=lambda: None):
        self.calls = []
        self.begun = begun
        self.ended = ended

    def begin(self, kind, name, sequence, forward_thread, sizes):
        self.calls.append(name)
        self.begun()

    def end(self):
        self.calls.append("end")
        self.ended()


@pytest.fixture
def unraisable(monkeypatch):
    """The types of exceptions that ``sys.unraisablehook`` received."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: found.append(raised.exc_type))
    return found


def failing(error):
    def fail():
        raise error

    return fail


def test_begins_and_ends_with_sizes():
    log = Log()
    token = python_observer.attach(log.begin, log.end, True)
    pb.ones(2, 3).exp()
    python_observer.detach(token)
    pb.ones(1)
    assert log.calls == ["ones", "end", "exp", "end"]
    with pytest.raises(RuntimeError, match="not attached"):
        python_observer.detach(token)


def test_what_they_raise_is_reported_and_hurts_nobody(unraisable):
    log = Log(failing(ValueError()), failing(KeyError()))
    token = python_observer.attach(log.begin, log.end)
    assert pb.ones(2).sum() == 2
    python_observer.detach(token)
    assert unraisable[:2] == [ValueError, KeyError]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_program_is_raised_a_little_later(unraisable, error):
    log = Log(failing(error(3)))
    token = python_observer.attach(log.begin, log.end)
    with pytest.raises(error) as raised:
        pb.ones(1)
        for _ in range(1000):  # it is raised once Python code runs again
            pass
    assert raised.value.args == (3,)
    log.begun = lambda: None
    python_observer.detach(token)
    assert unraisable == []


def test_what_they_run_themselves_is_not_observed():
    log = Log(lambda: pb.zeros(1))
    token = python_observer.attach(log.begin, log.end)
    pb.ones(1)
    python_observer.detach(token)
    assert log.calls == ["ones", "end"]


def test_an_end_that_raises_while_leaving_does_not_keep_them(unraisable):
    log = Log(ended=failing(ValueError()))
    token = python_observer.attach(log.begin, log.end)
    number = pb.backend.begin_range("open")
    python_observer.detach(token)
    pb.backend.end_range(number)
    assert log.calls == ["open", "end"]
    assert unraisable == [ValueError]
    assert pb.backend.begin_range("nobody") == 0


def test_a_thread_that_died_with_something_open_keeps_them_not():
    log = Log()
    token = python_observer.attach(log.begin, log.end)
    thread = threading.Thread(target=pb.backend.begin_range, args=["left open"])
    thread.start()
    thread.join()
    python_observer.detach(token)
    assert pb.backend.begin_range("nobody") == 0


def test_what_is_open_on_another_thread_ends_there():
    log, begun, go_on = Log(), threading.Event(), threading.Event()

    def work():
        number = pb.backend.begin_range("elsewhere")
        begun.set()
        go_on.wait()
        pb.ones(1)
        pb.backend.end_range(number)

    token = python_observer.attach(log.begin, log.end)
    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    python_observer.detach(token)
    go_on.set()
    thread.join()
    assert log.calls == ["elsewhere", "end"]
    assert pb.backend.begin_range("nobody") == 0


def test_beside_a_profile():
    log = Log()
    token = python_observer.attach(log.begin, log.end)
    with profile() as p:
        pb.ones(1)
        python_observer.detach(token)
        pb.zeros(1)
    assert log.calls == ["ones", "end"]
    assert [event.name for event in p.function_events] == ["pullback::ones", "pullback::zeros"]
