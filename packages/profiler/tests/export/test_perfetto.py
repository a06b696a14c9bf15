"""Exported traces in Perfetto: its trace processor finds the bars, their nesting and the arrows."""

from collections import Counter

import pytest
from perfetto_processor import ask
from trace_checks import arrows, entries, export, nanoseconds, tree
from trace_programs import (
    blocks_that_cross,
    in_place_on_views,
    step_on_device,
    threads,
    training_step,
)

from pullback_profiler import profile

BARS = """
    select slice.id, slice.parent_id, slice.depth, slice.name, slice.category, slice.ts, slice.dur,
        thread.tid, process.pid, extract_arg(slice.arg_set_id, 'args.External id') as number,
        extract_arg(slice.arg_set_id, 'args.correlation') as kernel
    from slice
    left join thread_track on slice.track_id = thread_track.id
    left join thread using (utid)
    left join process using (upid)
"""
ARROWS = "select slice_out, slice_in from flow"
PROBLEMS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
THREADS = "select tid, name from thread where name like 'thread %'"
MEMORY = """
    select ts, extract_arg(arg_set_id, 'args.Bytes') as bytes
    from slice where category = 'cpu_instant_event' order by ts
"""


def looked_at(profiled, path):
    """Return the exported trace, and Perfetto's bars by number, arrows and threads of it."""
    trace = export(profiled, path)
    bars, flows, problems, lanes = ask(path, BARS, ARROWS, PROBLEMS, THREADS)
    assert problems == []
    return trace, {bar["id"]: bar for bar in bars}, flows, lanes


@pytest.mark.parametrize("program", [training_step, in_place_on_views, threads, blocks_that_cross])
def test_bars_and_arrows_are_those_of_the_profile(tmp_path, program):
    with profile(all_threads=True, record_shapes=True, with_stack=True) as profiled:
        program()
    trace, bars, flows, lanes = looked_at(profiled, tmp_path / "trace.json")

    exported = [*entries(trace, "X"), *entries(trace, "b")]
    found = Counter(bar["category"] for bar in bars.values() if bar["category"] is not None)
    assert found == Counter(entry["cat"] for entry in exported)

    events = tree(profiled.function_events)
    own = {n: bar for n, bar in bars.items() if bar["category"] in ("cpu_op", "user_annotation")}
    assert sorted(bar["number"] for bar in own.values()) == sorted(events)
    apart = {entry["args"]["External id"] for entry in entries(trace, "b")}
    tids = {e["args"]["External id"]: e["tid"] for e in exported if e["cat"] != "Trace"}
    for bar in own.values():
        name, parent, start, end = events[bar["number"]]
        assert bar["name"] == name
        assert (bar["ts"], bar["ts"] + bar["dur"]) == (nanoseconds(start), nanoseconds(end))
        if bar["number"] not in apart:  # the others are on no thread
            assert bar["tid"] == tids[bar["number"]]
            above = None if bar["parent_id"] is None else bars[bar["parent_id"]]["number"]
            assert above == (None if parent in apart else parent)
            assert bar["depth"] == (0 if above is None else bars[bar["parent_id"]]["depth"] + 1)

    ends = {(bars[flow["slice_out"]]["number"], bars[flow["slice_in"]]["number"]) for flow in flows}
    assert len(ends) == len(flows)
    assert ends == set(arrows(trace, "fwdbwd"))
    assert {lane["tid"] for lane in lanes} == set(tids.values())


def test_changes_of_memory_are_marks(tmp_path):
    path = tmp_path / "trace.json.gz"
    with profile(profile_memory=True) as profiled:
        training_step()
    trace = export(profiled, path)
    marks, problems = ask(path, MEMORY, PROBLEMS)
    assert problems == []
    expected = [
        {"ts": nanoseconds(change["ts"]), "bytes": change["args"]["Bytes"]}
        for change in entries(trace, "i", "cpu_instant_event")
    ]
    assert len(expected) > 10 and marks == expected


def test_kernels_are_linked_to_what_launched_them(tmp_path, timed_device):
    with profile(use_device=timed_device) as profiled:
        step_on_device(timed_device)
    trace, bars, flows, _ = looked_at(profiled, tmp_path / "trace.json")
    kernels = {bar["kernel"]: bar for bar in bars.values() if bar["category"] == "kernel"}
    recorded = [event for event in profiled.function_events if event.device_type != "cpu"]
    assert sorted(kernels) == sorted(event.id for event in recorded) != []
    blocks = [bar for bar in bars.values() if bar["category"] == "gpu_user_annotation"]
    assert Counter(bar["name"] for bar in blocks) == Counter(
        bar["name"] for bar in entries(trace, "X", "gpu_user_annotation")
    )
    launched = {
        (bars[flow["slice_out"]]["number"], bars[flow["slice_in"]]["kernel"])
        for flow in flows
        if bars[flow["slice_in"]]["category"] == "kernel"
    }
    assert launched == {(event.linked_correlation_id, event.id) for event in recorded}
