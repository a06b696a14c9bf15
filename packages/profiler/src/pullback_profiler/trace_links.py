"""The arrows of a Chrome trace: from ops to nodes that they made and kernels they launched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from pullback_profiler.function_event import BACKWARD_FUNCTION, CPU, FunctionEvent

FORWARD_BACKWARD = "fwdbwd"
LAUNCH = "ac2g"
# An op in place on a view makes a node of its own and then this one around it.
WRAPPER = "CopySlices"


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
    pairs = [*_backward(events), *_launches(events)]
    for number, (category, first, last) in enumerate(pairs, 1):
        if {id(first), id(last)} & apart or last.time_range.start < first.time_range.start:
            continue
        links.setdefault(id(first), []).append(Link(category, number, begins=True))
        links.setdefault(id(last), []).append(Link(category, number, begins=False))
    return links


Pair = tuple[str, FunctionEvent, FunctionEvent]


def _backward(events: Sequence[FunctionEvent]) -> Iterator[Pair]:
    """Yield each run of a node with the innermost op that made the node."""
    makers: dict[tuple[int, int], FunctionEvent] = {}
    for event in events:  # by start: what lies inside comes later
        if event.scope == 0 and event.sequence_nr >= 0 and not event.fwd_thread:
            makers[event.thread, event.sequence_nr] = event
    for event in events:
        if event.scope != BACKWARD_FUNCTION or event.sequence_nr < 0:
            continue
        thread, number = event.fwd_thread or 0, event.sequence_nr
        maker = makers.get((thread, number))
        if maker is None and event.name == WRAPPER:
            maker = makers.get((thread, number - 1))
        if maker is not None:
            yield FORWARD_BACKWARD, maker, event


def _launches(events: Sequence[FunctionEvent]) -> Iterator[Pair]:
    """Yield each kernel with what launched it."""
    kernels = [event for event in events if event.device_type != CPU]
    if kernels:
        by_id = {event.id: event for event in events if event.device_type == CPU}
        for kernel in kernels:
            launcher = by_id.get(kernel.linked_correlation_id)
            if launcher is not None:
                yield LAUNCH, launcher, kernel
