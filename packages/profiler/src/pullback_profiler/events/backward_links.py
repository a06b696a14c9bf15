"""Links from forward operations to the backward events that run their nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pullback_profiler.events.function_event import BACKWARD_FUNCTION, FunctionEvent

# An op in place on a view makes a node of its own and then this one around it.
WRAPPER = "CopySlices"


def backward_links(
    events: Sequence[FunctionEvent],
) -> Iterator[tuple[FunctionEvent, FunctionEvent]]:
    """Yield the innermost op that made a node with each run of the node, for events by start.

    >>> forward = FunctionEvent(0, "mul", 1, 0, 1, sequence_nr=4)
    >>> backward = FunctionEvent(
    ...     1, "MulBackward0", 2, 5, 6, scope=1, sequence_nr=4, fwd_thread=1
    ... )
    >>> [(maker.name, run.name) for maker, run in backward_links([forward, backward])]
    [('mul', 'MulBackward0')]
    """
    makers: dict[tuple[int, int], FunctionEvent] = {}
    for event in events:  # by start: inner events come later
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
            yield maker, event
