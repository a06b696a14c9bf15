"""The plain Chrome trace: its text, and the tree rebuilt from it."""

import gzip
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pullback_profiler.events.event_list import EventList
from pullback_profiler.events.function_event import FunctionEvent
from pullback_profiler.events.simple_trace import trace_text


def test_text_of_a_trace(tmp_path):
    events = EventList(
        [
            FunctionEvent(0, "mul", 1, 0.5, 4.0, trace_name="mul#1"),
            FunctionEvent(1, 'a "quoted"\n', 2, 5.0, 6.25),
        ],
        use_device="xpu",
    )
    events[0].append_kernel("gemm", 0, 9.0)
    events[0].append_kernel("gemm", 0, 9.0)
    events.export_chrome_trace(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_text() == (
        '[{"name": "mul#1", "ph": "X", "ts": 0.5, "dur": 3.5, "tid": 1, "pid": "CPU functions", '
        '"args": {}}, '
        '{"name": "mul#1", "ph": "s", "ts": 0.5, "tid": 1, "pid": "CPU functions", "id": 0, '
        '"cat": "cpu_to_xpu", "args": {}}, '
        '{"name": "mul#1", "ph": "s", "ts": 0.5, "tid": 1, "pid": "CPU functions", "id": 1, '
        '"cat": "cpu_to_xpu", "args": {}}, '
        '{"name": "a \\"quoted\\"\\n", "ph": "X", "ts": 5.0, "dur": 1.25, "tid": 2, '
        '"pid": "CPU functions", "args": {}}]'
    )


def test_trace_of_nothing_is_an_empty_array(tmp_path):
    EventList().export_chrome_trace(str(tmp_path / "trace.json"))
    assert (tmp_path / "trace.json").read_text() == "[]"


def test_name_that_ends_in_gz_compresses(tmp_path):
    events = EventList([FunctionEvent(0, "größe", 1, 0.0, 4.0)])
    events.export_chrome_trace(tmp_path / "trace.json.gz")
    with gzip.open(tmp_path / "trace.json.gz", "rt", encoding="utf-8") as file:
        assert json.load(file)[0]["name"] == "größe"


def test_work_elsewhere_has_a_place_of_its_own():
    events = [
        FunctionEvent(0, "gemm", 1, 0, 9, device_type="cuda", device_resource_id=7),
        FunctionEvent(1, "mul", 1, 0, 9, is_remote=True, node_id=3),
    ]
    tracks = [(e["pid"], e["tid"]) for e in json.loads("".join(trace_text(events, "cuda")))]
    assert tracks == [("CUDA functions", 7), ("CPU functions", "node_id:3, thread_id:1")]


def test_averages_have_no_trace(tmp_path):
    events = EventList([FunctionEvent(0, "mul", 1, 0.0, 4.0)])
    events.build_tree()
    with pytest.raises(TypeError, match="expected events, got averages"):
        events.key_averages().export_chrome_trace(tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []


def tree(events):
    """Return the names on the way from the top to each event, in the list's order."""
    paths = []
    for event in events:
        path = [event.name]
        while event.cpu_parent is not None:
            event = event.cpu_parent
            path.append(event.name)
        paths.append(path)
    return paths


def rebuilt(file):
    """Return events of a trace, with times rounded to nanoseconds."""
    events = EventList()
    for number, entry in enumerate(json.load(file)):
        start = round(entry["ts"] * 1000)
        end = start + round(entry["dur"] * 1000)
        events.append(FunctionEvent(number, entry["name"], entry["tid"], start / 1000, end / 1000))
    return events


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(0, 10**10), st.integers(0, 10**10)), max_size=20
    )
)
def test_tree_can_be_had_back_from_a_trace(spans):
    events = EventList(
        FunctionEvent(i, f"op{i}", thread, start / 1000, (start + length) / 1000)
        for i, (thread, start, length) in enumerate(spans)
    )
    events.build_tree()
    again = rebuilt(io.StringIO("".join(trace_text(events, "cuda"))))
    again.build_tree()
    assert tree(again) == tree(events)
