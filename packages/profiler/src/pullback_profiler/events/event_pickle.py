"""Pickling many linked events: as rows and numbers, because links would be followed recursively."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from pullback_profiler.events.average import FunctionEventAvg
from pullback_profiler.events.function_event import FunctionEvent

# Per event: its class, its attributes without links (of a FunctionEvent their values in the order
# of _PLAIN_SLOTS), the number of its parent (or None), and the numbers of its children (or None).
Row = tuple["type[Any]", Any, "int | None", "list[int] | None"]

_LINKS = {"cpu_parent", "cpu_children", "_cpu_children"}
_PLAIN_SLOTS = [name for name in FunctionEvent.__slots__ if name not in _LINKS]
_plain_values = operator.attrgetter(*_PLAIN_SLOTS)


def rows_of(events: Iterable[Any]) -> list[Row]:
    """Return a row for each event, then for each other one that they are linked to.

    >>> from pullback_profiler import FunctionEvent
    >>> event = FunctionEvent(0, "mul", 1, 0.0, 4.0)
    >>> [(row[0].__name__, row[2:]) for row in rows_of([event])]
    [('FunctionEvent', (None, None))]
    """
    found = list(events)
    numbers = {id(event): number for number, event in enumerate(found)}
    rows = []
    for event in found:  # which grows on the way
        children = _children(event)
        for other in (event.cpu_parent, *(children or ())):
            if other is not None and id(other) not in numbers:
                numbers[id(other)] = len(found)
                found.append(other)
        parent = None if event.cpu_parent is None else numbers[id(event.cpu_parent)]
        inner = None if children is None else [numbers[id(child)] for child in children]
        rows.append((type(event), _attributes(event), parent, inner))
    return rows


def events_of(rows: Iterable[Row]) -> list[Any]:
    """Return the events that ``rows_of`` made rows of, linked as they were.

    >>> from pullback_profiler import FunctionEvent
    >>> events_of(rows_of([FunctionEvent(0, "mul", 1, 0.0, 4.0)]))
    [<FunctionEvent id=0 name='mul' thread=1 start_us=0.0 end_us=4.0 cpu_time=4.000us>]
    """
    rows = list(rows)
    events = []
    for kind, attributes, _, _ in rows:
        event = object.__new__(kind)
        named = zip(_PLAIN_SLOTS, attributes) if type(attributes) is tuple else attributes.items()
        for name, value in named:
            setattr(event, name, value)
        events.append(event)
    for event, (_, _, parent, children) in zip(events, rows, strict=True):
        event.cpu_parent = None if parent is None else events[parent]
        event.cpu_children = None if children is None else [events[child] for child in children]
    return events


def _children(event: Any) -> list[FunctionEvent] | None:
    return event.cpu_children if isinstance(event, FunctionEventAvg) else event._cpu_children


def _attributes(event: Any) -> Any:
    if isinstance(event, FunctionEventAvg):
        return {name: value for name, value in vars(event).items() if name not in _LINKS}
    return _plain_values(event)
