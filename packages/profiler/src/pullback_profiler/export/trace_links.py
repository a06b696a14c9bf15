"""The arrows of a Chrome trace: from ops to nodes that they made and kernels they launched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from pullback_profiler.events.backward_links import backward_links
from pullback_profiler.events.function_event import CPU, FunctionEvent

FORWARD_BACKWARD = "fwdbwd"
LAUNCH = "ac2g"


class Link(NamedTuple):
    """One end of an arrow; the two ends have the same category and number."""

    category: str
    number: int
    begins: bool


def links_of(events: Sequence[FunctionEvent], apart: AbstractSet[int]) -> dict[int, list[Link]]:
    """Return the arrows at events, by the ``id()`` of the event.

    Arrows need a bar at both ends: events ``apart`` have none. No arrow goes back in time.

    >>> ops = [
    ...     FunctionEvent(1, "mul", 1, 0, 2, sequence_nr=4),
    ...     FunctionEvent(2, "MulBackward0", 1, 5, 6, scope=1, sequence_nr=4, fwd_thread=1),
    ... ]
    >>> links = links_of(ops, set())
    >>> links[id(ops[0])]
    [Link(category='fwdbwd', number=1, begins=True)]
    >>> links[id(ops[1])]
    [Link(category='fwdbwd', number=1, begins=False)]
    """
    links: dict[int, list[Link]] = {}
    made = [(FORWARD_BACKWARD, maker, run) for maker, run in backward_links(events)]
    pairs = [*made, *_launches(events)]
    for number, (category, first, last) in enumerate(pairs, 1):
        if {id(first), id(last)} & apart or last.time_range.start < first.time_range.start:
            continue
        links.setdefault(id(first), []).append(Link(category, number, begins=True))
        links.setdefault(id(last), []).append(Link(category, number, begins=False))
    return links


Pair = tuple[str, FunctionEvent, FunctionEvent]


def _launches(events: Sequence[FunctionEvent]) -> Iterator[Pair]:
    """Yield each kernel with what launched it."""
    kernels = [event for event in events if event.device_type != CPU]
    if kernels:
        by_id = {event.id: event for event in events if event.device_type == CPU}
        for kernel in kernels:
            launcher = by_id.get(kernel.linked_correlation_id)
            if launcher is not None:
                yield LAUNCH, launcher, kernel
