"""Activities that can be recorded: those of the host and of devices."""

from __future__ import annotations

import enum

from pullback.backend import device_count, installed


class ProfilerActivity(enum.Enum):
    """A kind of hardware whose work is recorded; the value is its kind of device.

    >>> from pullback_profiler import ProfilerActivity
    >>> ProfilerActivity.CPU.value
    'cpu'
    """

    CPU = "cpu"
    XPU = "xpu"
    MTIA = "mtia"
    CUDA = "cuda"
    HPU = "hpu"
    PrivateUse1 = "privateuseone"


def supported_activities() -> set[ProfilerActivity]:
    """Return the activities that can be recorded on this machine.

    >>> from pullback_profiler import ProfilerActivity, supported_activities
    >>> ProfilerActivity.CPU in supported_activities()
    True
    """
    usable, known = {ProfilerActivity.CPU}, installed()
    for activity in set(ProfilerActivity) - usable:
        try:
            if activity.value in known and device_count(activity.value) > 0:
                usable.add(activity)
        except (RuntimeError, ImportError):  # using the device raises the plugin's error
            continue
    return usable
