"""Traces of several processes become one."""

import gzip
import json
import subprocess
import sys

import pytest

from pullback_profiler.export.merged_trace import merge_traces


def trace(path, began, rank=None, name="dist::all_reduce"):
    head = {"baseTimeNanoseconds": began}
    if rank is not None:
        head["distributedInfo"] = {"rank": rank}
    span = {"ph": "X", "pid": 7, "tid": 1, "dur": 10.0}
    head["traceEvents"] = [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 0.0, "args": {"name": "CPU"}},
        {**span, "name": name, "ts": 5.0, "args": {"args": "bytes=40000"}},
        {**span, "name": "other", "ts": 6.0},
        {"ph": "s", "id": 3, "name": "arrow", "pid": 7, "tid": 1, "ts": 6.0},
        {"ph": "f", "id": 3, "name": "arrow", "pid": "Spans", "tid": 1, "ts": 7.0},
    ]
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt") as file:
        json.dump(head, file)
    return path


def test_traces_share_one_time_axis(tmp_path):
    late = trace(tmp_path / "a.json", 3_000_000, rank=1)
    early = trace(tmp_path / "b.json.gz", 1_000_000, rank=0)
    merged = merge_traces([late, early])
    assert merged["baseTimeNanoseconds"] == 1_000_000
    spans = [event for event in merged["traceEvents"] if event["name"] == "other"]
    assert [event["ts"] for event in spans] == [6.0, 2006.0]
    names = [e["args"]["name"] for e in merged["traceEvents"] if e["name"] == "process_name"]
    assert names == ["rank 0: CPU", "rank 1: CPU"]
    assert len({event["pid"] for event in merged["traceEvents"]}) == 4
    starts, ends = ([e["id"] for e in merged["traceEvents"] if e["ph"] == kind] for kind in "sf")
    assert starts == ends and len(set(starts)) == 2


def test_collectives_get_their_bandwidth(tmp_path):
    events = merge_traces([trace(tmp_path / "a.json", 0)])["traceEvents"]
    (found,) = [event for event in events if event["name"].startswith("dist::")]
    assert found["args"]["bandwidth (GB/s)"] == 4.0  # 40 kB in 10 us
    assert "args" not in next(event for event in events if event["name"] == "other")


@pytest.mark.parametrize("text", ["{", "[]", '{"traceEvents": 3}'])
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "no.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="is no trace"):
        merge_traces([path])


def test_the_command_writes_a_file(tmp_path):
    sources = [trace(tmp_path / f"{k}.json", 1000 * k) for k in range(3)]
    target = tmp_path / "all.json.gz"
    command = [sys.executable, "-m", "pullback.profiler", "merge", target, *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == f"wrote {target}\n", done.stderr
    with gzip.open(target, "rt") as file:
        assert len(json.load(file)["traceEvents"]) == 15
    command[-1] = tmp_path / "missing.json"
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "cannot open" in done.stderr
    assert len(done.stderr.splitlines()) == 1
