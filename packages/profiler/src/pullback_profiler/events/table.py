"""The table of events or averages, as text and for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

from pullback_profiler.events.function_event import CPU
from pullback_profiler.events.stacks import device_neutral
from pullback_profiler.events.util import US_PER_UNIT, format_memory, format_share, format_time

WIDTH = 12  # of columns that hold one number
GAP = "  "  # after each column, the last one too
FLOP_UNITS = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")
SORT_KEYS = (
    *("cpu_time", "cuda_time", "xpu_time"),
    *("cpu_time_total", "cuda_time_total", "xpu_time_total"),
    *("self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total"),
    *("cpu_memory_usage", "cuda_memory_usage", "xpu_memory_usage"),
    *("self_cpu_memory_usage", "self_cuda_memory_usage", "self_xpu_memory_usage"),
    "count",
)


class SortKeyError(AttributeError, ValueError):
    """A table cannot be sorted by this: the events have no such number."""


class Column(NamedTuple):
    """One column: its header, its width, and its text of an event."""

    header: str
    width: int
    cell: Callable[[Any], object]
    align: str = ">"

    def text(self, value: object) -> str:
        """Return a value as this column shows it, and the gap after it.

        >>> Column("Name", 6, str).text("mul")
        '   mul  '
        """
        return f"{value!s:{self.align}{self.width}}{GAP}"


class Layout(NamedTuple):
    """The layout of a table: columns, the events with a row each, and the lines below the rows."""

    columns: list[Column]
    rows: list[Any]
    totals: list[str]
    source_at: int  # the column of the stack's first line, -1 without one


def build_table(
    events: Sequence[Any],
    *,
    header: str | None = None,
    top_level_events_only: bool = False,
    **options: Any,
) -> str:
    """Return a table of events; see ``EventList.table``.

    >>> from pullback_profiler import FunctionEvent
    >>> text = build_table([FunctionEvent(0, "mul", 1, 0, 1500)])
    >>> print(text.splitlines()[-1])
    Self CPU time total: 1.500ms
    """
    made = layout(events, top_level_events_only=top_level_events_only, **options)
    if not events:
        return ""
    columns = made.columns
    separator = "".join("-" * column.width + GAP for column in columns)
    double_line = "=" * (len(separator) - len(GAP))
    lines = [] if header is None else [double_line, header]
    if top_level_events_only:
        lines += [double_line, "This report only display top-level ops statistics"]
    lines += [separator, "".join(column.text(column.header) for column in columns), separator]
    for event in made.rows:
        lines.append("".join(column.text(column.cell(event)) for column in columns))
        if made.source_at >= 0:
            lines += _lines_of_stack(event, columns, made.source_at)
    lines += [separator, *made.totals]
    return "".join(f"{line}\n" for line in lines)


def build_html(events: Sequence[Any], **options: Any) -> str:
    """Return a table of events as HTML; see ``EventList.html``, and ``layout`` for the options.

    >>> build_html([])
    '<div></div>'
    """
    if not events:
        return "<div></div>"
    made = layout(events, **options)
    head = "".join(f"<th>{escape(column.header)}</th>" for column in made.columns)
    rows = (
        "".join(f"<td>{escape(str(column.cell(event)))}</td>" for column in made.columns)
        for event in made.rows
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    totals = "<br>".join(map(escape, made.totals))
    return (
        f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<small>{totals}</small></div>"
    )


def layout(
    events: Sequence[Any],
    *,
    use_device: str | None = None,
    profile_memory: bool = False,
    with_flops: bool = False,
    sort_by: str | None = None,
    row_limit: int | None = 100,
    max_src_column_width: int | None = 75,
    max_name_column_width: int | None = 55,
    max_shapes_column_width: int | None = 80,
    top_level_events_only: bool = False,
    time_unit: str | None = None,
) -> Layout:
    """Return the layout of a table of events; the options are those of ``EventList.table``.

    >>> from pullback_profiler import FunctionEvent
    >>> [column.header for column in layout([FunctionEvent(0, "mul", 1, 0, 1500)]).columns][:3]
    ['Name', 'Self CPU %', 'Self CPU']
    """
    if time_unit is not None and time_unit not in US_PER_UNIT:
        raise ValueError(f"time_unit should be None, 's', 'ms' or 'us', got {time_unit!r}")
    for option, width in (
        ("max_src_column_width", max_src_column_width),
        ("max_name_column_width", max_name_column_width),
        ("max_shapes_column_width", max_shapes_column_width),
    ):
        if width is not None and width < 0:
            raise ValueError(f"{option} should be None or at least 0 characters, got {width}")
    use_device = use_device or next((e.use_device for e in events if e.use_device), None)
    self_cpu = sum(event.self_cpu_time_total for event in events)
    self_device = self_device_time(events)
    if self_device is not None and not use_device:
        raise RuntimeError("use_device is None, but there are times of a device")
    columns = [
        *_name_columns(events, max_name_column_width),
        *_cpu_columns(self_cpu, time_unit),
        *(_device_columns(use_device, self_device, time_unit) if self_device is not None else ()),
        *(_memory_columns(events, use_device) if profile_memory else ()),
        Column("# of Calls", WIDTH, lambda event: event.count),
        *_input_columns(events, max_shapes_column_width),
    ]
    source = _source_columns(events, max_src_column_width)
    source_at = len(columns) if source else -1
    columns += [*source, *(_flops_columns(events) if with_flops else ())]

    rows = list(events) if sort_by is None else _sorted(events, sort_by)
    if top_level_events_only:
        rows = [event for event in rows if event.cpu_parent is None]
    if row_limit is not None and row_limit >= 0:
        rows = rows[:row_limit]
    totals = [f"Self CPU time total: {format_time(self_cpu, time_unit)}"]
    if use_device and self_device is not None:
        total = format_time(self_device, time_unit)
        totals.append(f"Self {use_device.upper()} time total: {total}")
    return Layout(columns, rows, totals, source_at)


def self_device_time(events: Sequence[Any]) -> float | None:
    """Return the time spent on the device, or None if no event has any.

    Where the device's work has events of its own, the CPU events that launched it count it again;
    they are the source only if there are no others, or if they are of the legacy kind.
    """
    if not any(event.self_device_time_total > 0 for event in events):
        return None
    from_device = from_legacy = from_cpu = 0
    for event in events:
        time = event.self_device_time_total
        if event.device_type != CPU:
            from_device += 0 if event.is_user_annotation else time
        elif event.is_legacy:
            from_legacy += time
        else:
            from_cpu += time
    return from_device + from_legacy or from_cpu


def _widest(texts: Iterator[str], limit: int | None) -> int:
    width = max(map(len, texts), default=0) + 4
    return width if limit is None else min(width, limit)


def _name_columns(events: Sequence[Any], limit: int | None) -> Iterator[Column]:
    width = _widest((event.key for event in events), limit)

    def cut(name: str) -> str:
        if limit is None or len(name) < limit - 3:
            return name
        return name[: limit - 3] + "..."

    yield Column("Name", width, lambda event: cut(event.key))
    if any(event.overload_name for event in events):
        yield Column("Overload Name", width, lambda event: cut(event.overload_name or ""))


def _cpu_columns(whole: float, unit: str | None) -> Iterator[Column]:
    def share_of_total(event: Any) -> str:
        return "0" if event.is_async else format_share(event.cpu_time_total, whole)

    yield Column("Self CPU %", WIDTH, lambda e: format_share(e.self_cpu_time_total, whole))
    yield Column("Self CPU", WIDTH, lambda e: format_time(e.self_cpu_time_total, unit))
    yield Column("CPU total %", WIDTH, share_of_total)
    yield Column("CPU total", WIDTH, lambda e: format_time(e.cpu_time_total, unit))
    yield Column("CPU time avg", WIDTH, lambda e: format_time(e.cpu_time, unit))


def _device_columns(device: str | None, whole: float, unit: str | None) -> Iterator[Column]:
    label = (device or "").upper()
    yield Column(f"Self {label}", WIDTH, lambda e: format_time(e.self_device_time_total, unit))
    yield Column(f"Self {label} %", WIDTH, lambda e: format_share(e.self_device_time_total, whole))
    yield Column(f"{label} total", WIDTH, lambda e: format_time(e.device_time_total, unit))
    yield Column(f"{label} time avg", WIDTH, lambda e: format_time(e.device_time, unit))


def _memory_columns(events: Sequence[Any], device: str | None) -> Iterator[Column]:
    yield Column("CPU Mem", WIDTH, lambda e: format_memory(e.cpu_memory_usage))
    yield Column("Self CPU Mem", WIDTH, lambda e: format_memory(e.self_cpu_memory_usage))
    if device and any(event.self_device_memory_usage > 0 for event in events):
        label = device.upper()
        yield Column(f"{label} Mem", WIDTH, lambda e: format_memory(e.device_memory_usage))
        yield Column(
            f"Self {label} Mem", WIDTH, lambda e: format_memory(e.self_device_memory_usage)
        )


def _input_columns(events: Sequence[Any], limit: int | None) -> Iterator[Column]:
    if any(event.node_id != -1 for event in events):
        yield Column("Node ID", WIDTH, lambda event: event.node_id)
    if any(event.input_shapes for event in events):
        width = _widest((_shapes(event) for event in events), limit)
        yield Column("Input Shapes", width, lambda event: _shapes(event)[:width])


def _shapes(event: Any) -> str:
    return "" if event.input_shapes is None else str(event.input_shapes)


def _source_columns(events: Sequence[Any], limit: int | None) -> list[Column]:
    if not any(event.stack for event in events):
        return []
    width = _widest((entry for event in events for entry in event.stack or ()), limit)

    def cell(event: Any) -> str:
        return _cut_left(event.stack[0], width) if event.stack else ""

    return [Column("Source Location", width, cell, align="<")]


def _cut_left(path: str, width: int) -> str:
    if len(path) <= width:
        return path
    path = path[len(path) - width :]
    return "..." + path[3:] if len(path) > 3 else path


def _lines_of_stack(event: Any, columns: Sequence[Column], source_at: int) -> Iterator[str]:
    """Yield the lines below an event's row: the rest of its stack, then a blank one."""
    for entry in [*(event.stack or ())[1:], ""]:
        shown = _cut_left(entry, columns[source_at].width)
        yield "".join(
            column.text(shown if number == source_at else "")
            for number, column in enumerate(columns)
        )


def _flops_columns(events: Sequence[Any]) -> Iterator[Column]:
    positive = [event.flops for event in events if event.flops and event.flops > 0]
    if not positive:
        return
    smallest, power = min(positive), 0
    while power < len(FLOP_UNITS) - 1 and smallest >= 1000 ** (power + 1):
        power += 1

    def cell(event: Any) -> str:
        return f"{event.flops / 1000**power:8.3f}" if (event.flops or 0) > 0 else "--"

    yield Column(f"Total {FLOP_UNITS[power]}", WIDTH, cell)


def _sorted(events: Sequence[Any], sort_by: str) -> list[Any]:
    """Return events by an attribute, the largest first; those without it come last."""
    attribute = device_neutral(sort_by)
    values = [getattr(event, attribute, "") for event in events]
    if not all(value is None or isinstance(value, (int, float)) for value in values):
        raise SortKeyError(
            f"sort_by should be a number that events have, such as {', '.join(SORT_KEYS)}; "
            f"got {sort_by!r}"
        )
    order = sorted(
        range(len(events)),
        key=lambda at: float("-inf") if values[at] is None else values[at],
        reverse=True,
    )
    return [events[at] for at in order]
