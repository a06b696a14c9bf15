"""The NVTX backend over a fake library: what threads that push at the same time give it."""

import sys
import threading
import types

import pytest

from pullback_profiler.export.range_backends import NvtxBackend


class Event:
    """A description of a range; setting the message ``slow`` waits for the other thread."""

    def __init__(self, domain):
        self.domain = domain
        self.text = None

    @property
    def message(self):
        return self.text

    @message.setter
    def message(self, text):
        self.text = text
        if text == "slow":
            self.domain.slow_has_begun.set()
            assert self.domain.other_is_done.wait(60)


class Domain:
    def __init__(self):
        self.pushed = {}
        self.slow_has_begun = threading.Event()
        self.other_is_done = threading.Event()

    def get_registered_string(self, text):
        return text

    def get_event_attributes(self):
        return Event(self)

    def push_range(self, event):
        self.pushed[threading.current_thread().name] = event.message


@pytest.fixture
def domain(monkeypatch):
    made = Domain()
    monkeypatch.setitem(sys.modules, "nvtx", types.SimpleNamespace(get_domain=lambda name: made))
    return made


def test_threads_do_not_share_the_description_of_a_range(domain):
    backend = NvtxBackend()

    def push_quickly():
        assert domain.slow_has_begun.wait(60)
        backend.push("quick")
        domain.other_is_done.set()

    slow = threading.Thread(target=backend.push, args=["slow"], name="slow")
    quick = threading.Thread(target=push_quickly, name="quick")
    slow.start()
    quick.start()
    slow.join()
    quick.join()
    assert domain.pushed == {"slow": "slow", "quick": "quick"}


@pytest.mark.parametrize("old", [{}, {"get_domain": lambda name: object()}])
def test_old_nvtx_is_refused(monkeypatch, old):
    monkeypatch.setitem(sys.modules, "nvtx", types.SimpleNamespace(**old))
    with pytest.raises(RuntimeError, match=r"needs nvtx 0\.2\.13 or newer.*pip install -U nvtx"):
        NvtxBackend()


def test_strings_are_registered_without_a_cache_too(domain):
    """An nvtx that caches nothing has nothing to bypass."""
    backend = NvtxBackend()
    backend.push("range")
    assert backend.listening and list(domain.pushed.values()) == ["range"]
