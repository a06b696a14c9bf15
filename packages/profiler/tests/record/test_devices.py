"""Waiting for devices: which ones, and what happens when one has failed."""

import pytest

import pullback as pb
from pullback_profiler.record import devices
from pullback_profiler.record.devices import synchronize_devices


@pytest.fixture
def two_of_each(monkeypatch):
    """Make it look as if two types were loaded, with two devices each; note who is waited for."""
    waited = []

    class Manager:
        def list_name_plugin(self):
            return [("first", None), ("second", None)]

    monkeypatch.setattr(devices, "plugin_manager", Manager)
    monkeypatch.setattr(devices, "device_count", lambda kind: 2)
    monkeypatch.setattr(devices, "synchronize", waited.append)
    return waited


def test_every_device_of_each_loaded_type_is_waited_for(two_of_each):
    synchronize_devices()
    assert two_of_each == ["first:0", "first:1", "second:0", "second:1"]


def test_devices_of_one_kind_are_waited_for(two_of_each):
    synchronize_devices("second")
    assert two_of_each == ["second:0", "second:1"]


def test_devices_in_use_are_waited_for_and_no_others(monkeypatch):
    pb.zeros(2, device="ref")
    pb.device("cuda")  # named, but not used
    waited = []
    synchronize = pb.synchronize

    def noted(where):
        waited.append(where)
        synchronize(where)

    monkeypatch.setattr(devices, "synchronize", noted)
    synchronize_devices()
    assert "ref:0" in waited and "ref:1" not in waited
    assert not [name for name in waited if name.startswith("cuda")]


def test_failure_of_a_device_is_raised(monkeypatch):
    def fail(where):
        raise RuntimeError("synchronize(): a kernel failed")

    pb.zeros(2, device="ref")
    monkeypatch.setattr(devices, "synchronize", fail)
    with pytest.raises(RuntimeError, match="a kernel failed"):
        synchronize_devices()
