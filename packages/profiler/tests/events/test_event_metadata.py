"""Facts about device work, read from a trace's entries."""

import pytest

from pullback_profiler.events.event_metadata import EventMetadata, metadata_from_trace


@pytest.mark.parametrize(
    ("key", "text", "name", "value"),
    [
        ("registers per thread", "32", "registers_per_thread", 32),
        ("grid", "[4, 1, 1]", "grid", [4, 1, 1]),
        ("blocks per SM", "0.5", "blocks_per_sm", 0.5),
        ("warps per SM", "2", "warps_per_sm", 2.0),
        ("occupancy", '{"limit": 8}', "occupancy", {"limit": 8}),
        ("est. achieved occupancy %", "40", "est_occupancy_pct", 40.0),
        ("memory bandwidth (GB/s)", "812.5", "bandwidth_gb_s", 812.5),
        ("Collective name", '"allreduce"', "collective_name", "allreduce"),
        ("Process Group Description", '"default"', "process_group_desc", "default"),
        ("Process Group Ranks", "[0, 1]", "group_ranks", "[0, 1]"),
        ("Is asynchronized op", "true", "is_async", True),
        ("Is asynchronized op", "0", "is_async", False),
        ("stream", 7, "stream", 7),
    ],
)
def test_entry_of_a_trace_becomes_a_field(key, text, name, value):
    made = metadata_from_trace({key: text})
    assert made == EventMetadata(**{name: value})
    assert type(getattr(made, name)) is type(value)


def test_entries_without_a_field_make_no_metadata():
    assert metadata_from_trace({"color": "red"}) is None


def test_text_of_another_type_is_refused():
    with pytest.raises(ValueError, match="many"):
        metadata_from_trace({"stream": "many"})
