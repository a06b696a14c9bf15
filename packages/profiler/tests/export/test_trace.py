"""The Chrome trace of a profile: what it holds, read by a strict parser, and its tree rebuilt."""

import os
import re
import threading
import time

import pytest
from trace_checks import arrows, entries, expected_arrows, export, nanoseconds, read, rebuilt, tree
from trace_programs import PROGRAMS, blocks_that_cross, leaf, threads, training_step

import pullback as pb
from pullback.profiler import profile as torch_profile
from pullback.profiler import schedule
from pullback_profiler import profile, record_function


def traced(program, path, **options):
    with profile(**options) as profiled:
        program()
    return profiled, export(profiled, path)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.json"


# ---- the file ------------------------------------------------------------------------------------


def test_top_level(path):
    before = time.time_ns()
    profiled, trace = traced(training_step, path)
    head = {key: value for key, value in trace.items() if key != "traceEvents"}
    assert before <= head.pop("baseTimeNanoseconds") <= time.time_ns()
    assert re.fullmatch("[0-9A-F]{32}", head["trace_id"]) and head.pop("host_name")
    assert head == {
        "schemaVersion": 1,
        "deviceProperties": [],
        "trace_id": profiled.trace_id,
        "displayTimeUnit": "ms",
        "traceName": "Pullback Profiler",
    }


def test_disabled_profile_has_an_empty_trace(path):
    _, trace = traced(training_step, path, enabled=False)
    assert [bar["name"] for bar in entries(trace, "X")] == ["Pullback Profiler (0)"]


def test_name_that_ends_in_gz_compresses(tmp_path):
    profiled, trace = traced(training_step, tmp_path / "trace.json.gz")
    assert trace == export(profiled, tmp_path / "trace.json")


def test_names_may_hold_anything(path):
    names = ['a "quoted" \\ name', "line\nbreak \x00\x1f\x7f", "größe \u2028 \U0001f600", ""]

    def program():
        for name in names:
            with record_function(name, f"args of {name}"):
                pass

    _, trace = traced(program, path)
    blocks = entries(trace, "X", "user_annotation")
    assert [block["name"] for block in blocks] == names
    assert [block["args"]["args"] for block in blocks] == [f"args of {name}" for name in names]


def test_halves_of_characters_are_replaced(path):
    with profile() as profiled, record_function("block", "half \ud83d, both \ud83d\ude00"):
        pass
    trace = export(profiled, path, metadata={"key\udc00": ["\\ud800"]})
    assert (
        entries(trace, "X", "user_annotation")[0]["args"]["args"] == "half \ufffd, both \U0001f600"
    )
    assert trace["key\ufffd"] == ["\\ud800"]


def test_metadata_of_the_user(path):
    with profile() as profiled:
        pass
    profiled.metadata["rank"] = 3
    trace = export(profiled, path, metadata={"note": 'a "b"', "nested": {"lr": [0.1, None, True]}})
    assert trace["rank"] == 3
    assert trace["note"] == 'a "b"'
    assert trace["nested"] == {"lr": [0.1, None, True]}


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        ({"loss": float("nan")}, ValueError, "metadata is not JSON: Out of range float"),
        ({"loss": [float("inf")]}, ValueError, "metadata is not JSON: Out of range float"),
        ({"model": object()}, TypeError, "metadata is not JSON: Object of type object"),
        ({"map": {(1, 2): 3}}, TypeError, "metadata is not JSON: keys must be str"),
        ({1: 2}, TypeError, "expected keys of metadata to be str, got 1"),
        ({"traceEvents": []}, ValueError, "metadata cannot have the key 'traceEvents'"),
        ({"traceName": "x"}, ValueError, "metadata cannot have the key 'traceName'"),
        ({"schemaVersion": 2}, ValueError, "metadata cannot have the key 'schemaVersion'"),
    ],
)
def test_metadata_that_does_not_fit_is_refused(tmp_path, metadata, error, message):
    with profile() as profiled:
        pass
    with pytest.raises(error, match=message):
        profiled.export_chrome_trace(tmp_path / "trace.json", metadata=metadata)
    assert list(tmp_path.iterdir()) == []


def test_each_cycle_of_a_schedule_has_its_trace(tmp_path):
    def save(profiler):
        profiler.export_chrome_trace(tmp_path / f"{profiler.step_num}.json.gz")

    steps = schedule(wait=1, warmup=1, active=2, repeat=2)
    with torch_profile(schedule=steps, on_trace_ready=save) as profiler:
        profiler.add_metadata_json("config", '{"depth": 2}')
        for _ in range(10):
            training_step()
            profiler.step()
    found = [read(file) for file in sorted(tmp_path.iterdir())]
    names = [
        [b["name"] for b in entries(trace, "X", "user_annotation") if "#" in b["name"]]
        for trace in found
    ]
    assert names == [["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"]]
    assert [trace["config"] for trace in found] == [{"depth": 2}] * 2
    assert found[0]["trace_id"] != found[1]["trace_id"]


# ---- lanes ---------------------------------------------------------------------------------------


def test_processes_and_threads_are_named(path):
    profiled, trace = traced(training_step, path)
    pid, tid = os.getpid(), threading.get_native_id()
    name = threading.current_thread().name
    order = profiled.function_events[0].thread
    assert {(e["name"], e["pid"], e["tid"]): e["args"] for e in entries(trace, "M")} == {
        ("process_name", pid, 0): {"name": "python"},
        ("process_labels", pid, 0): {"labels": "CPU"},
        ("process_sort_index", pid, 0): {"sort_index": pid},
        ("thread_name", pid, tid): {"name": f"thread {tid} ({name})"},
        ("thread_sort_index", pid, tid): {"sort_index": order},
        ("process_name", "Spans", 0): {"name": "Spans"},
        ("process_sort_index", "Spans", 0): {"sort_index": 10_000_000},
    }


def test_threads_have_lanes_of_their_own(path):
    _, trace = traced(threads, path, all_threads=True)
    blocks = entries(trace, "X", "user_annotation")
    assert sorted(block["name"] for block in blocks) == [f"thread {i}" for i in range(4)]
    assert len({block["tid"] for block in blocks}) == 4


def test_blocks_that_cross_are_no_bars(path):
    profiled, trace = traced(blocks_that_cross, path, all_threads=True)
    begun = {e["name"]: e["args"]["Async"] for e in entries(trace, "b", "user_annotation")}
    assert begun == {"ends inside the next": False, "ends on another thread": True}
    assert [bar["name"] for bar in entries(trace, "X", "user_annotation")] == ["next"]
    assert tree(rebuilt(trace)) == tree(profiled.function_events)


def test_the_whole_span_closes_the_trace(path):
    _, trace = traced(training_step, path)
    span, start, end = trace["traceEvents"][-3:]
    assert (span["cat"], span["name"], span["pid"]) == ("Trace", "Pullback Profiler (0)", "Spans")
    assert (start["ph"], start["s"], start["name"]) == (
        "i",
        "g",
        "Iteration Start: Pullback Profiler",
    )
    assert (end["ph"], end["s"], end["name"]) == ("i", "g", "Record Window End")
    assert span["ts"] == start["ts"] == 0.0
    last = max(bar["ts"] + bar["dur"] for bar in entries(trace, "X", "cpu_op"))
    assert last <= span["dur"] == end["ts"]


# ---- events --------------------------------------------------------------------------------------


def test_what_is_told_of_an_op(path):
    def program():
        (leaf(2, 3) @ pb.ones(3, 4)).add(2.0, alpha=3).sum().backward()

    profiled, trace = traced(program, path, record_shapes=True)
    events = profiled.function_events
    bars = {bar["args"]["Ev Idx"]: bar for bar in entries(trace, "X", "cpu_op")}
    assert sorted(bars) == list(range(len(events)))
    for index, bar in bars.items():
        event = events[index]
        assert bar["name"] == event.name
        assert nanoseconds(bar["ts"]) / 1000 == event.time_range.start
        assert (nanoseconds(bar["ts"]) + nanoseconds(bar["dur"])) / 1000 == event.time_range.end
        args = bar["args"]
        assert args["External id"] == event.id
        assert args["Record function id"] == 0
        assert args.get("Sequence number", -1) == event.sequence_nr
        assert args.get("Fwd thread id", 0) == event.fwd_thread
        assert ("Sequence number" in args) == ("Fwd thread id" in args)
    mm = next(bar["args"] for bar in bars.values() if bar["name"] == "pullback::mm")
    assert mm["Input Dims"] == [[2, 3], [3, 4]]
    assert mm["Input Strides"] == [[3, 1], [4, 1]]
    assert mm["Input type"] == ["float32", "float32"]
    assert mm["Concrete Inputs"] == ["", ""]
    add = next(bar["args"] for bar in bars.values() if bar["name"] == "pullback::add")
    assert add["Input Dims"] == [[2, 4], [], []]
    assert add["Concrete Inputs"] == ["", "2.0", "3"]


def test_shapes_and_stacks_are_there_on_demand(path):
    _, trace = traced(training_step, path)
    assert not {"Input Dims", "Call stack"} & {k for e in entries(trace, "X") for k in e["args"]}
    _, trace = traced(training_step, path, with_stack=True)
    mm = next(bar for bar in entries(trace, "X") if bar["name"] == "pullback::mm")
    assert re.search(r"trace_programs\.py\(\d+\): training_step;", mm["args"]["Call stack"])


def test_changes_of_memory(path):
    def program():
        kept.append(pb.ones(10))
        kept.append(kept[0] * 2)
        del kept[0]

    kept = []
    _, trace = traced(program, path, profile_memory=True)
    changes = entries(trace, "i", "cpu_instant_event")
    assert [change["args"]["Bytes"] for change in changes] == [40, 40, -40]
    assert [change["args"]["Total Allocated"] for change in changes] == [40, 80, 40]
    taken, _, freed = (change["args"]["Addr"] for change in changes)
    assert taken == freed != 0
    for change in changes:
        assert (change["name"], change["s"], change["args"]["Total Reserved"]) == (
            "[memory]",
            "t",
            0,
        )
        assert (change["args"]["Device Id"], change["args"]["Device Type"]) == (-1, 0)
        assert (change["pid"], change["tid"]) == (os.getpid(), threading.get_native_id())
    assert not [bar for bar in entries(trace, "X") if bar["name"] == "[memory]"]


def test_block_named_like_a_change_of_memory_is_shown(path):
    def program():
        with record_function("[memory]"):
            pass

    _, trace = traced(program, path, profile_memory=True)
    assert [bar["name"] for bar in entries(trace, "X", "user_annotation")] == ["[memory]"]


def test_memory_freed_on_a_thread_that_does_nothing_else(path):
    def program():
        boxes = [[pb.ones(8)], [pb.ones(8)]]
        workers = [threading.Thread(target=box.clear) for box in boxes]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    _, trace = traced(program, path, profile_memory=True, all_threads=True)
    freed = [e for e in entries(trace, "i", "cpu_instant_event") if e["args"]["Bytes"] < 0]
    assert len(freed) == 2
    assert all(change["tid"] not in (0, threading.get_native_id()) for change in freed)


# ---- arrows and the tree -------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_every_node_is_linked_to_the_op_that_made_it(path, program):
    profiled, trace = traced(program, path, all_threads=True)
    found = arrows(trace, "fwdbwd")
    assert len(found) == len(set(found))
    assert set(found) == expected_arrows(profiled.function_events)


def test_node_made_before_the_profile_has_no_arrow(path):
    loss = leaf(3).exp().sum()
    with profile() as profiled:
        (leaf(3) * 2).sum()
        loss.backward()
    assert arrows(export(profiled, path), "fwdbwd") == []


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_tree_can_be_had_back(path, program):
    profiled, trace = traced(
        program, path, all_threads=True, record_shapes=True, with_stack=True, profile_memory=True
    )
    assert tree(rebuilt(trace)) == tree(profiled.function_events)
