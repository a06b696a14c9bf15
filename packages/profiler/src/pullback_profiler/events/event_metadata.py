"""Metadata of kernels and copies, as the tracer of a device records it."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class EventMetadata(NamedTuple):
    """Facts about a kernel, a copy or a collective operation; None where one is unknown.

    Times (``queued``) are in microseconds, ``shared_memory`` and ``bytes`` in bytes.

    >>> from pullback_profiler import EventMetadata
    >>> EventMetadata(stream=7).stream
    7
    """

    # kernels
    registers_per_thread: int | None = None
    shared_memory: int | None = None
    grid: list[int] | None = None
    block: list[int] | None = None
    priority: int | None = None
    blocks_per_sm: float | None = None
    warps_per_sm: float | None = None
    occupancy: dict[str, Any] | None = None
    est_occupancy_pct: float | None = None
    queued: int | None = None
    graph_id: int | None = None
    graph_node_id: int | None = None
    stream: int | None = None
    context: int | None = None
    channel: int | None = None
    channel_type: int | None = None
    # copies
    bytes: int | None = None
    bandwidth_gb_s: float | None = None
    # collective operations
    collective_name: str | None = None
    dtype: str | None = None
    in_msg_nelems: int | None = None
    out_msg_nelems: int | None = None
    in_split_size: str | None = None
    out_split_size: str | None = None
    global_rank_start: int | None = None
    global_rank_stride: int | None = None
    group_size: int | None = None
    process_group_name: str | None = None
    process_group_desc: str | None = None
    group_ranks: str | None = None
    rank: int | None = None
    src_rank: int | None = None
    dst_rank: int | None = None
    seq: int | None = None
    is_async: bool | None = None


# Traces write a field as its name with blanks; these differ.
NAMES_IN_TRACES = {
    "est. achieved occupancy %": "est_occupancy_pct",
    "memory bandwidth (gb/s)": "bandwidth_gb_s",
    "process group description": "process_group_desc",
    "process group ranks": "group_ranks",
    "is asynchronized op": "is_async",
}

# How the text of a trace becomes a field's value, by the type that the field is declared with.
READERS: dict[Any, Callable[[str], Any]] = {
    int | None: int,
    float | None: float,
    bool | None: lambda text: text in ("1", "true"),
    str | None: lambda text: text.strip('"'),
    list[int] | None: json.loads,
    dict[str, Any] | None: json.loads,
}


def metadata_from_trace(entries: Mapping[str, Any]) -> EventMetadata | None:
    """Return the metadata in the entries of a trace, or None if no entry has a field.

    Keys are fields' names or a trace's spelling of them; text is read as the field's type.
    Raises: ValueError for text that is not of that type.

    >>> metadata_from_trace({"registers per thread": "32", "color": "red"}).registers_per_thread
    32
    """
    fields = {}
    for key, value in entries.items():
        name = NAMES_IN_TRACES.get(key.lower(), key.lower().replace(" ", "_"))
        if name in EventMetadata._fields:
            read = READERS[EventMetadata.__annotations__[name]]
            fields[name] = read(value) if isinstance(value, str) else value
    return EventMetadata(**fields) if fields else None
