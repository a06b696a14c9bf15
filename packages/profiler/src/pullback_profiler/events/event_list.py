"""Lists of events: the tree, sums by key, the table, and files for other tools."""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import Any

from pullback_profiler.events import event_pickle, event_tree, simple_trace, stacks, table
from pullback_profiler.events.average import FunctionEventAvg
from pullback_profiler.events.util import open_text


class EventList(list):
    """Events of a profile, or averages of them; otherwise an ordinary list.

    ``use_device`` names the kind of device that was profiled beside the CPU. With
    ``profile_memory`` the table shows memory, and ``with_flops`` floating-point operations.
    ``str()`` of a list is its table.

    >>> from pullback_profiler import EventList, FunctionEvent
    >>> events = EventList([
    ...     FunctionEvent(0, "step", 1, 0.0, 10.0), FunctionEvent(1, "mul", 1, 2.0, 5.0)
    ... ])
    >>> events.build_tree()
    >>> events.key_averages()[0]
    <FunctionEventAvg key='step' count=1 self_cpu_time=7.000us cpu_time=10.000us>
    """

    def __init__(
        self,
        *args: Any,
        use_device: str | None = None,
        profile_memory: bool = False,
        with_flops: bool = False,
    ) -> None:
        super().__init__(*args)
        self._use_device = use_device
        self._profile_memory = profile_memory
        self._with_flops = with_flops
        self._tree_built = False

    def build_tree(self) -> None:
        """Set the parent of each event, merge repeats, and give backward events their stacks.

        Within one thread, the innermost event that covers another becomes its parent. An only child
        of the same name as its parent is merged into it and leaves the list. Backward events get
        the stack of the forward operation. Call it again after adding events.

        >>> from pullback_profiler import EventList, FunctionEvent
        >>> events = EventList([
        ...     FunctionEvent(0, "step", 1, 0.0, 10.0), FunctionEvent(1, "mul", 1, 2.0, 5.0)
        ... ])
        >>> events.build_tree()
        >>> events[1].cpu_parent.name
        'step'
        """
        parents_first = event_tree.link_by_time(self)
        merged = event_tree.merge_repeated(parents_first)
        if merged:
            self[:] = [event for event in self if id(event) not in merged]
            parents_first = [event for event in parents_first if id(event) not in merged]
        event_tree.inherit_stacks(self, parents_first)
        self._tree_built = True

    _build_tree = build_tree  # torch's name

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds on the CPU: the sum of what each event spent outside its children."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """Return the sums over events of one name, in the order in which names appear.

        Events of one name are grouped further by node, kind of device, and whether they are the
        user's blocks; on demand by the shapes of their inputs, the ``group_by_stack_n`` innermost
        entries of their stacks, and the names of overloads.
        Raises: AssertionError before ``build_tree``, and for a list of averages.

        >>> from pullback_profiler import EventList, FunctionEvent
        >>> events = EventList(FunctionEvent(i, "mul", 1, 10 * i, 10 * i + 4) for i in range(3))
        >>> events.build_tree()
        >>> events.key_averages()
        [<FunctionEventAvg key='mul' count=3 self_cpu_time=12.000us cpu_time=4.000us>]
        """
        if not self._tree_built:
            raise AssertionError(
                "key_averages(): expected a list of events whose tree is built; "
                "call build_tree() first"
            )
        groups: dict[Hashable, FunctionEventAvg] = {}
        for event in self:
            key: tuple[Hashable, ...] = (
                event.key,
                event.node_id,
                event.device_type,
                event.is_legacy,
                event.is_user_annotation,
                event.overload_name if group_by_overload_name else None,
                str(event.input_shapes) if group_by_input_shapes else None,
                *(event.stack or ())[:group_by_stack_n],
            )
            average = groups.get(key)
            if average is None:
                average = groups[key] = FunctionEventAvg()
            average.add(event)
        for average in groups.values():
            average.stack = (average.stack or [])[:group_by_stack_n]
            if not group_by_input_shapes:
                average.input_shapes = ""
            if not group_by_overload_name:
                average.overload_name = ""
        return EventList(groups.values(), **self._options())

    def total_average(self) -> FunctionEventAvg:
        """Return the sums over all events, with the key ``Total``.

        Times of nested events count at each level, except those that begin with ``self_``.

        >>> from pullback_profiler import EventList, FunctionEvent
        >>> EventList([FunctionEvent(0, "mul", 1, 0.0, 4.0)]).total_average()
        <FunctionEventAvg key='Total' count=1 self_cpu_time=4.000us cpu_time=4.000us>
        """
        total = FunctionEventAvg()
        total.key = "Total"
        total.use_device = self._use_device
        for event in self:
            total.accumulate(event)
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int | None = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """Return the events as a table, one row each; '' for an empty list.

        ``sort_by`` names a number that events have, and the largest comes first: ``cpu_time``,
        ``cpu_time_total``, ``self_cpu_time_total``, ``cpu_memory_usage``,
        ``self_cpu_memory_usage``, the same with ``cuda``, ``xpu``, ``privateuse1`` or ``device``
        for ``cpu``, ``count``, and others. Without it rows have the list's order.
        ``row_limit`` is how many rows are shown, -1 or None for all. Widths are in characters, None
        for as wide as needed. ``header`` is a line above the table. ``top_level_events_only``
        leaves out events inside others. ``time_unit`` ("s", "ms" or "us") is used for all times;
        without it each has the largest that fits. Percentages are of all events, shown or not.
        Raises: ValueError (an AttributeError too) for a ``sort_by`` that is not a number of the
        events; ValueError for another ``time_unit`` and for a width below 0; RuntimeError if events
        have times of a device and none says which.

        >>> from pullback_profiler import EventList, FunctionEvent
        >>> events = EventList([FunctionEvent(0, "mul", 1, 0.0, 4.0)])
        >>> print(events.table(time_unit="ms").splitlines()[-1])
        Self CPU time total: 0.004ms
        """
        return table.build_table(
            self,
            sort_by=sort_by,
            row_limit=row_limit,
            max_src_column_width=max_src_column_width,
            max_name_column_width=max_name_column_width,
            max_shapes_column_width=max_shapes_column_width,
            header=header,
            top_level_events_only=top_level_events_only,
            time_unit=time_unit,
            **self._options(),
        )

    def __str__(self) -> str:
        return self.table()

    def html(self, sort_by: str | None = None, row_limit: int | None = 100) -> str:
        """Return the events as an HTML table, which is what notebooks show.

        ``sort_by`` and ``row_limit`` are those of ``table``. Raises: ValueError (an AttributeError
        too) for a ``sort_by`` that is not a number of the events.

        >>> from pullback_profiler import EventList, FunctionEvent
        >>> EventList([FunctionEvent(0, "a<b", 1, 0, 1500)]).html()[-70:]
        '</tr></tbody></table><small>Self CPU time total: 1.500ms</small></div>'
        """
        return table.build_html(self, sort_by=sort_by, row_limit=row_limit, **self._options())

    def _repr_html_(self) -> str:
        return self.html()

    def supported_export_stacks_metrics(self) -> list[str]:
        """Return the metrics of ``export_stacks``.

        >>> from pullback_profiler import EventList
        >>> EventList().supported_export_stacks_metrics()[0]
        'self_cpu_time_total'
        """
        return list(stacks.METRICS)

    def export_stacks(self, path: str | os.PathLike[str], metric: str) -> None:
        """Write a line for each event with a stack, as programs that draw flame graphs read them.

        A line is the frames, outermost first and separated by ``;``, and the metric in whole
        microseconds; events where it is 0 are left out. A name that ends in ``.gz`` compresses.
        Raises: ValueError for a metric that is not in ``supported_export_stacks_metrics()``.

        >>> import os
        >>> from pullback_profiler import EventList, FunctionEvent
        >>> events = EventList([FunctionEvent(0, "mul", 1, 0.0, 4.0, stack=["a.py(1): f"])])
        >>> events.export_stacks(os.devnull, "self_cpu_time_total")
        """
        stacks.check_metric(metric)
        lines = [f"{line}\n" for line in stacks.stack_lines(self, metric)]
        with open_text(path) as file:
            file.writelines(lines)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the events as a JSON array that chrome://tracing and Perfetto show.

        Times are in microseconds since the profile started. A name that ends in ``.gz`` compresses.
        Raises: TypeError for averages, which have no start time; OSError.

        >>> import os
        >>> from pullback_profiler import EventList, FunctionEvent
        >>> EventList([FunctionEvent(0, "mul", 1, 0.0, 4.0)]).export_chrome_trace(os.devnull)
        """
        if any(isinstance(event, FunctionEventAvg) for event in self):
            raise TypeError("export_chrome_trace(): expected events, got averages of events")
        with open_text(path) as file:
            file.writelines(simple_trace.trace_text(self, self._use_device or "cuda"))

    def _options(self) -> dict[str, Any]:
        """Return the arguments, beside the events, that make a list like this one."""
        return {
            "use_device": self._use_device,
            "profile_memory": self._profile_memory,
            "with_flops": self._with_flops,
        }

    def __copy__(self) -> EventList:
        copied = type(self)(self)
        vars(copied).update(vars(self))
        return copied

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _restored, (type(self), len(self), event_pickle.rows_of(self)), vars(self)


def _restored(kind: type[EventList], length: int, rows: list[event_pickle.Row]) -> EventList:
    """Return a pickled list: its events come first, then others that they are linked to."""
    return kind(event_pickle.events_of(rows)[:length])
