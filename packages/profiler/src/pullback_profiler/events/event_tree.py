"""The tree of events: parents and children by time, thread by thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pullback_profiler.events.function_event import BACKWARD_FUNCTION, CPU, FunctionEvent


def link_by_time(events: Iterable[FunctionEvent]) -> list[FunctionEvent]:
    """Set the parents and children of events, and return those that take part, parents first.

    Within one thread of one node, the parent of an event is the innermost other that covers it.
    One that ends where the event starts does not cover it, and events that overlap in part are not
    related.
    Work on devices and asynchronous events take no part.

    >>> outer, inner = FunctionEvent(0, "outer", 1, 0, 9), FunctionEvent(1, "inner", 1, 2, 5)
    >>> [event.name for event in link_by_time([inner, outer])], inner.cpu_parent is outer
    (['outer', 'inner'], True)
    """
    threads: dict[tuple[int, int], list[FunctionEvent]] = {}
    for event in events:
        if not event.is_async and event.device_type == CPU:
            event.cpu_parent = event._cpu_children = None
            threads.setdefault((event.thread, event.node_id), []).append(event)
    for group in threads.values():
        group.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
        around: list[FunctionEvent] = []  # events that may cover later ones, innermost last
        for event in group:
            span = event.time_range
            while around and not (span.start < around[-1].time_range.end >= span.end):
                around.pop()
            if around:
                event.cpu_parent = around[-1]
                around[-1].cpu_children.append(event)
            around.append(event)
    return [event for group in threads.values() for event in group]


def merge_repeated(parents_first: Iterable[FunctionEvent]) -> set[int]:
    """Merge an only child into a parent of the same name; return the ``id()`` of those merged.

    The parent takes over the children and, after its own, the kernels.

    >>> outer, inner = FunctionEvent(0, "mm", 1, 0, 9), FunctionEvent(1, "mm", 1, 2, 5)
    >>> merge_repeated(link_by_time([outer, inner])) == {id(inner)}
    True
    """
    merged = set()
    for event in parents_first:
        parent = event.cpu_parent
        if parent is None or parent.name != event.name or len(parent.cpu_children) > 1:
            continue
        parent._cpu_children = event._cpu_children
        for child in event._cpu_children or ():
            child.cpu_parent = parent
        if event._kernels and not parent.is_legacy:  # a legacy parent has them already
            parent.kernels = parent.kernels + event._kernels
        merged.add(id(event))
    return merged


def inherit_stacks(events: Sequence[FunctionEvent], parents_first: Iterable[FunctionEvent]) -> None:
    """Give backward events, and events inside them, the stack of the forward operation.

    It is found by sequence number and thread; without a match the stack becomes empty.

    >>> forward = FunctionEvent(0, "mul", 1, 0, 1, stack=["a.py(1): f"], sequence_nr=4)
    >>> backward = FunctionEvent(
    ...     1, "MulBackward0", 2, 5, 6, scope=1, sequence_nr=4, fwd_thread=1
    ... )
    >>> inherit_stacks([forward, backward], [forward, backward])
    >>> backward.stack
    ['a.py(1): f']
    """
    origins = {id(event): event for event in events if event.scope == BACKWARD_FUNCTION}
    for event in parents_first:
        origin = origins.get(id(event.cpu_parent))
        if origin is not None:
            origins.setdefault(id(event), origin)
    stacks: dict[tuple[int, int | None], list[str]] = {}
    for event in events:
        if event.stack and event.sequence_nr >= 0 and id(event) not in origins:
            stacks.setdefault((event.sequence_nr, event.thread), event.stack)
    for event in events:
        origin = origins.get(id(event))
        if origin is not None:
            event.stack = stacks.get((origin.sequence_nr, origin.fwd_thread), [])
