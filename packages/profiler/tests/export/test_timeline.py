"""Memory over time: the line of each device, and the files that hold it."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_tools import assert_stands_alone, made_profile, read_page, run_in_browser

import pullback as pb
from pullback import profiler
from pullback_profiler import profile
from pullback_profiler.events.function_event import FunctionEvent
from pullback_profiler.export.timeline import Series, extremes, for_page, memory_series

# Two threads: what is inside an op of one is not inside an op of the other.
EVENTS = [
    FunctionEvent(1, "pullback::mm", 1, 10.0, 50.0),
    FunctionEvent(2, "pullback::copy", 1, 20.0, 30.0),
    FunctionEvent(3, "pullback::exp", 2, 60.0, 80.0),
    FunctionEvent(4, "later", 1, 0.0, 90.0, is_async=True),
]
CHANGES = [
    (5.0, 1, 100, "cpu"),
    (12.0, 1, 200, "cpu"),
    (25.0, 1, 4096, "cuda:1"),
    (26.0, 1, 50, "cpu"),
    (30.0, 1, -200, "cpu"),
    (65.0, 2, 1 << 40, "cpu", 0),  # an attempt that failed: no address
    (70.0, 2, 20, "cpu"),
    (70.0, 1, -250, "cpu"),
    (75.0, 1, 1024, "cuda:0"),
]
CPU = Series(
    "cpu",
    [5.0, 12.0, 26.0, 30.0, 70.0, 70.0],
    [100, 300, 350, 150, 170, -80],
    ["[memory]", "pullback::mm", "pullback::copy", "pullback::mm", "pullback::exp", "[memory]"],
)


def recorded(changes=CHANGES):
    return made_profile(EVENTS, changes, threads={1: "MainThread", 2: None}, profile_memory=True)


def test_series_of_devices_by_peak():
    found = memory_series(recorded())
    assert [series.device for series in found] == ["cuda:1", "cuda:0", "cpu"]
    assert found[0] == Series("cuda:1", [25.0], [4096], ["pullback::copy"])
    assert found[2] == CPU
    assert [series.peak for series in found] == [4096, 1024, 350]


def test_a_device_that_only_gives_back_has_no_peak():
    (series,) = memory_series(recorded([(5.0, 1, -100, "cpu")]))
    assert (series.nbytes, series.peak) == ([-100], 0)


@pytest.mark.parametrize(
    ("device", "expected"),
    [(None, [4096]), ("cuda:1", [4096]), ("cuda", [1024]), ("cpu", CPU.nbytes)],
)
def test_json_has_three_lists_of_the_device(tmp_path, device, expected):
    path = tmp_path / "memory.json"
    recorded().export_memory_timeline(path, device)
    times, nbytes, events = json.loads(path.read_text())
    assert nbytes == expected
    assert len(times) == len(events) == len(expected)


def test_times_and_events_stand_beside_bytes(tmp_path):
    recorded().export_memory_timeline(str(tmp_path / "memory.json"), device="cpu")
    assert json.loads((tmp_path / "memory.json").read_text()) == list(map(list, CPU[1:]))


def test_a_device_object_names_itself(tmp_path):
    with profile(profile_memory=True) as profiled:
        held = pb.ones(256)
    path = tmp_path / "memory.json"
    profiled.export_memory_timeline(path, device=held.device)
    times, nbytes, events = json.loads(path.read_text())
    assert (nbytes, events) == ([1024], ["pullback::ones"])
    (op,) = profiled.function_events
    assert op.time_range.start <= times[0] <= op.time_range.end


@pytest.mark.parametrize("suffix", ["json", "html"])
def test_gz_compresses_either(tmp_path, suffix):
    profiled = recorded()
    profiled.export_memory_timeline(tmp_path / f"memory.{suffix}")
    profiled.export_memory_timeline(tmp_path / f"memory.{suffix}.gz")
    with gzip.open(tmp_path / f"memory.{suffix}.gz", "rt", encoding="utf-8") as file:
        assert file.read() == (tmp_path / f"memory.{suffix}").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["memory", "memory.txt", "memory.gz", "memory.json.zip", ".json"])
def test_other_ends_are_refused_before_a_file_is_made(tmp_path, name):
    with pytest.raises(ValueError, match=r"a path that ends in \.json, \.html, \.json\.gz or"):
        recorded().export_memory_timeline(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_device_without_records_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"device 'meta'; recorded: cuda:1, cuda:0, cpu$"):
        recorded().export_memory_timeline(tmp_path / "memory.json", device="meta")
    with pytest.raises(ValueError, match=r"device 'cpu'; recorded: none$"):
        recorded([]).export_memory_timeline(tmp_path / "memory.json", device="cpu")
    assert list(tmp_path.iterdir()) == []


def test_without_memory_there_is_no_timeline(tmp_path):
    with profile() as profiled:
        pb.ones(2)
    with pytest.raises(RuntimeError, match=r"requires profile_memory=True"):
        profiled.export_memory_timeline(tmp_path / "memory.json")


def test_nothing_taken_gives_empty_lists(tmp_path):
    recorded([]).export_memory_timeline(tmp_path / "memory.json")
    assert json.loads((tmp_path / "memory.json").read_text()) == [[], [], []]


def test_steps_have_the_timeline_of_the_last_cycle(tmp_path):
    profiled = profiler.profile(profile_memory=True)
    with pytest.raises(RuntimeError, match="nothing has been recorded"):
        profiled.export_memory_timeline(tmp_path / "memory.json")
    with profiled:
        held = pb.ones(64)
    profiled.export_memory_timeline(tmp_path / "memory.json", held.device)
    assert json.loads((tmp_path / "memory.json").read_text())[1] == [256]


def test_the_last_line_of_a_real_profile_is_what_is_held(tmp_path):
    with profile(profile_memory=True) as profiled:
        held = [pb.ones(n) for n in (1024, 2048)]
        del held[0]
    (series,) = memory_series(profiled)
    assert series.nbytes[-1] == 8192
    assert series.peak == 12288


@given(st.lists(st.integers(-100, 100), max_size=200), st.integers(3, 60))
def test_a_thinned_line_keeps_its_extremes(values, limit):
    shown = list(extremes(values, limit))
    assert shown == sorted(set(shown))
    assert len(shown) <= limit
    kept = [values[at] for at in shown]
    if values:
        assert (max(kept), min(kept), kept[-1]) == (max(values), min(values), values[-1])


def test_a_page_has_the_extremes_and_the_number_of_changes():
    times = range(20_000)
    many = Series("cpu", [float(i) for i in times], [i % 777 for i in times], ["x"] * 20_000)
    shown = for_page(many)
    assert (shown["changes"], shown["peak"]) == (20_000, 776)
    assert len(shown["times"]) == len(shown["bytes"]) == len(shown["events"]) <= 8_000
    assert max(shown["bytes"]) == 776


def test_the_page_stands_alone_and_draws_the_line(tmp_path):
    path = tmp_path / "memory.html"
    recorded().export_memory_timeline(path, device="cpu")
    page = read_page(path)
    assert_stands_alone(page)
    assert page.data["memory"][0]["bytes"] == CPU.nbytes
    given, errors = run_in_browser(
        path,
        """const line = document.querySelector("#memory .steps").getAttribute("d");
           return [byId("title").textContent,
                   document.querySelector("#memory .chart div").textContent,
                   document.querySelectorAll("#memory path").length,
                   line.match(/V/g).length]""",
    )
    assert errors == []
    assert given == ["Memory of tensors on cpu", "cpu peak 350 B at 26.00 µs, 6 changes", 2, 6]
