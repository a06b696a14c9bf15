"""Lines of stacks with a metric, as programs that draw flame graphs read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pullback_profiler.events.util import without_halves

METRICS = (
    "self_cpu_time_total",
    "self_cuda_time_total",
    "self_xpu_time_total",
    "self_privateuse1_time_total",
)
_REPLACED = str.maketrans(" ;\t\n", "____")  # these separate frames, lines and numbers


def device_neutral(metric: str) -> str:
    """Return the name of an attribute with ``device`` for the name of a kind of device.

    >>> device_neutral("self_cuda_time_total")
    'self_device_time_total'
    """
    for kind in ("cuda", "xpu", "privateuse1"):
        metric = metric.replace(kind, "device")
    return metric


def check_metric(metric: str) -> None:
    """Check a metric before a file is made.

    Raises: ValueError if it is not one of ``METRICS``.

    >>> check_metric("self_cpu_time_total")
    """
    if metric not in METRICS:
        raise ValueError(f"metric should be one of: {', '.join(METRICS)}; got {metric!r}")


def stack_lines(events: Iterable[Any], metric: str) -> Iterator[str]:
    """Yield ``frame;frame;frame number`` for each event with a stack, outermost frame first.

    The number is the metric in whole microseconds; events where it is 0 are left out.

    >>> from pullback_profiler import FunctionEvent
    >>> event = FunctionEvent(0, "mul", 1, 0.0, 7.5, stack=["b.py(2): g", "a.py(1): f"])
    >>> list(stack_lines([event], "self_cpu_time_total"))
    ['a.py(1):_f;b.py(2):_g 7']
    """
    attribute = device_neutral(metric)
    for event in events:
        value = int(getattr(event, attribute)) if event.stack else 0
        if value > 0:
            frames = ";".join(frame.translate(_REPLACED) for frame in reversed(event.stack))
            yield f"{without_halves(frames)} {value}"
