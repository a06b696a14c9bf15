"""Profiles of work on the device: kernels timed by events, ops by the host's clock."""

import pytest

import pullback as pb

pytest.importorskip("pullback_profiler")
pytestmark = pytest.mark.usefixtures("cuda")


def test_kernels_have_times_of_the_device():
    from pullback.autograd.profiler import profile

    x = pb.rand(64, 64, device="cuda", requires_grad=True)
    with profile(use_device="cuda") as found:
        (x @ x).tanh().sum().backward()
    rows = found.key_averages()
    for name in ("pullback::mm", "pullback::tanh", "pullback::sum"):
        assert sum(row.device_time_total for row in rows if row.key == name) > 0
        assert sum(row.cpu_time_total for row in rows if row.key == name) > 0
    assert "CUDA" in found.key_averages().table()


def test_memory_of_the_device_is_seen():
    from pullback.autograd.profiler import profile

    with profile(use_device="cuda", profile_memory=True) as found:
        x = pb.empty(1000, device="cuda")
        y = x + 1
    for name in ("pullback::empty", "pullback::add"):
        rows = [row for row in found.key_averages() if row.key == name]
        assert sum(row.device_memory_usage for row in rows) == 4000
    del y


def test_events_come_back():
    """Profiles take events of the device and give them back: they are not made anew each time."""
    from pullback.autograd.profiler import profile
    from pullback_cuda.runtime import devices

    x = pb.rand(10, device="cuda")

    def record():
        with profile(use_device="cuda") as found:
            for _ in range(50):
                x + 1
        found.key_averages()
        del found

    record()
    spare = len(devices.started(0).timing_events)
    record()
    assert len(devices.started(0).timing_events) == spare
    assert spare >= 2
