"""Two profiles are compared by name: calls, time, memory."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback.profiler import diff_traces
from pullback_profiler import command, profile

COMMAND = [sys.executable, "-m", "pullback.profiler", "diff"]


def bar(name, ts, dur, **more):
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "dur": dur,
    } | more


@pytest.fixture
def write(tmp_path):
    """Write a trace of these entries and return its path."""

    def made(name, *entries, plain=False):
        path = tmp_path / name
        path.write_text(json.dumps(list(entries) if plain else {"traceEvents": entries}))
        return path

    return made


@pytest.fixture
def pair(write):
    """Return two traces: a mul inside a step takes longer, and a kernel and memory are new."""
    memory = {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 3.0}
    before = write("a.json", bar("step", 0.0, 10.0, cat="user_annotation"), bar("mul", 2.0, 4.0))
    after = write(
        "b.json",
        bar("step", 0.0, 20.0, cat="user_annotation"),
        bar("mul", 2.0, 6.0),
        bar("mul", 9.0, 6.0),
        {**memory, "args": {"Bytes": 64}},
        {**memory, "args": {"Bytes": -64}},
        bar("mul", 5.0, 7.0, cat="kernel", pid=9),
    )
    return before, after


def test_nested_time_is_counted_once(pair):
    rows = {(row.name, row.on_device): (*row.before, *row.after) for row in diff_traces(*pair)}
    assert rows == {
        ("mul", False): (1, 4.0, None, 2, 12.0, 64),
        ("step", False): (1, 6.0, None, 1, 8.0, 0),
        ("mul", True): (0, 0.0, None, 1, 7.0, 0),
    }
    found = diff_traces(*pair)
    assert (found.total(False), found.total(True)) == ((10.0, 20.0), (0, 7.0))
    assert "mul (kernel)" in str(found)


def test_memory_that_was_not_recorded_is_blank(pair):
    step, *_ = (row for row in diff_traces(*pair) if row.name == "step")
    assert (step.before.memory, step.of("memory")) == (None, 0)
    lines = diff_traces(*pair).table().splitlines()
    at = lines[1].index("Memory") + len("Memory")
    cells = [line[at - 10 : at].strip() for line in lines[3:]]
    assert cells[:3] == ["", "", ""] and set(cells[3]) == {"-"}  # of the rows, and the line below
    assert "64 B" in " ".join(lines)


def test_rows_are_sorted_by_absolute_change(write):
    before = write("a.json", bar("a", 0, 9), bar("b", 10, 3), bar("b", 20, 3), bar("b", 30, 3))
    after = write("b.json", bar("a", 0, 1), bar("b", 10, 13))
    rows = [line.split()[0] for line in diff_traces(before, after).table("time").splitlines()[3:5]]
    assert rows == ["a", "b"]
    rows = diff_traces(before, after).table("calls", 1).splitlines()
    assert [line.split()[:3] for line in rows[3:4]] == [["b", "3", "1"]]
    with pytest.raises(ValueError, match="sort_by should be one of time, calls, memory"):
        diff_traces(before, after).table("name")


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), max_size=8))
def test_self_times_add_up_to_the_time_covered(tmp_path_factory, pieces):
    """Events that do not cross, of one thread: their self times are the length of their union."""
    kept = []
    for start, length in pieces:
        end = start + length
        crosses = any(s < start < e < end or start < s < end < e for s, e in kept)
        if not crosses:
            kept.append((start, end))
    path = tmp_path_factory.mktemp("traces") / "a.json"
    entries = [bar("op", 0, 0), *(bar(f"op {s} {e}", s, e - s) for s, e in kept)]
    path.write_text(json.dumps({"traceEvents": entries}))
    covered = set().union(*(range(s, e) for s, e in kept)) if kept else set()
    assert diff_traces(path, path).total(False) == (len(covered), len(covered))


def test_profiles_of_programs(tmp_path):
    x = pb.ones(8, 8)
    paths = []
    for plain in (False, True):
        with profile(profile_memory=True) as recorded:
            for _ in range(2 + plain):
                x.softmax(-1)
        paths.append(tmp_path / f"{plain}.json")
        recorded.export_chrome_trace(paths[-1], use_python_export=plain)
    changes = {change.name: change for change in diff_traces(*paths)}
    softmax = changes["pullback::softmax"]
    assert (softmax.before.calls, softmax.after.calls) == (2, 3)
    average = {event.key: event.self_cpu_time_total for event in recorded.key_averages()}
    assert softmax.after.self_time == pytest.approx(average["pullback::softmax"], abs=0.01)
    assert sum(change.before.memory for change in changes.values()) >= 2 * 256


# ---- the command ---------------------------------------------------------------------------------


def test_the_command_prints_a_table(pair):
    done = subprocess.run([*COMMAND, *pair, "--limit", "1"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[3].split()[:3] == ["mul", "1", "2"]
    assert lines[5:] == [
        "Self CPU time total: 10.000us -> 20.000us (+100.00%)",
        "Self device time total: 0.000us -> 7.000us (+inf%)",
    ]


@pytest.mark.parametrize(("limit", "code"), [("10%", 1), ("200", 0)])
def test_the_command_fails_above_a_growth(write, capsys, limit, code):
    paths = [str(write(name, bar("mul", 0, time))) for name, time in (("a", 10.0), ("b", 12.0))]
    arguments = [*paths, "--fail-above", limit]
    if code:
        with pytest.raises(SystemExit) as ending:
            command.diff(arguments)
        assert ending.value.code == 1
        assert "time grew by 20.00%, more than 10%" in capsys.readouterr().out
    else:
        command.diff(arguments)
    command.diff([*reversed(paths), "--fail-above", "0%"])


@pytest.mark.parametrize(
    "text", ["{", "[1, 2]", "[]", '{"traceEvents": []}', '[[1], [2], ["a"]]', "\0", '{"a": 1}']
)
def test_other_files_are_refused_in_one_line(write, tmp_path, capsys, text):
    good, bad = write("a.json", bar("mul", 0, 1)), tmp_path / "bad.json"
    bad.write_text(text)
    with pytest.raises(SystemExit) as ending:
        command.diff([str(good), str(bad)])
    assert ending.value.code == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and "bad.json" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.json", "missing.json"], "cannot open"),
        (["a.json"], "required: after"),
        (["a.json", "a.json", "--sort", "name"], "invalid choice: 'name'"),
        (["a.json", "a.json", "--fail-above", "much"], "expected percent such as 10%"),
        (["a.json", "a.json", "--fail-above", "nan"], "expected percent such as 10%"),
    ],
)
def test_wrong_arguments_give_one_line(write, monkeypatch, tmp_path, capsys, arguments, message):
    write("a.json", bar("mul", 0, 1))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ending:
        command.diff(arguments)
    assert ending.value.code == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and message in error


def test_events_without_a_time_are_an_error(write):
    path = write("a.json", {"ph": "X", "name": "mul"})
    with pytest.raises(ValueError, match="is no profile: an event has no name or time"):
        diff_traces(path, path)
