"""The benchmarks beside torch and CuPy: every row runs, and the table says what it found."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def benchmarks():
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module("benchmarks.gpu")
    finally:
        sys.path.remove(str(ROOT))


def test_every_row_runs(cuda, benchmarks, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(benchmarks, "LIBRARIES", ("pullback",))
    monkeypatch.setattr(benchmarks, "LONG_ENOUGH", 0.0)
    figures = tmp_path / "figures.json"
    benchmarks.main(["--quick", "--json", str(figures)])
    seconds = json.loads(figures.read_text())["seconds"]
    assert list(seconds) == [row.name for row in benchmarks.ROWS]
    assert all(found["pullback"] > 0 for found in seconds.values())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(benchmarks.ROWS)
    assert {line.count("|") for line in lines} == {8}


def test_table_tells_what_is_reached(benchmarks):
    second, bytes_of_copy = 1e-3, 2 * 4 * 64 * 2**20
    results = {
        "elementwise/copy": {"pullback": second, "torch": second, "factor": 1.0},
        "elementwise/add": {"pullback": 2 * second, "torch": second, "factor": 1.0},
        "reductions/sum": {"pullback": second, "torch": 2 * second, "factor": 1.0},
        "rows/softmax 1024": {"pullback": second, "torch": second, "factor": 1.0},
        "chains/forward": {"pullback": 0.4 * second, "torch": second, "factor": 1.0},
        "training/mlp": {"pullback": second, "factor": 1.0},
    }
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in benchmarks.table(results, ["pullback", "torch"]).splitlines()[2:]
    }
    speed = f"{bytes_of_copy / second / 1e9:.4g}"
    aim = "1, 85% of the copy"
    assert rows == {
        "elementwise/copy": [speed, speed, "GB/s", "100%", "1.00", aim, "yes"],
        "elementwise/add": ["402.7", "805.3", "GB/s", "75%", "2.00", aim, "no"],
        "reductions/sum": ["268.4", "134.2", "GB/s", "50%", "0.50", aim, "no"],
        "rows/softmax 1024": ["536.9", "536.9", "GB/s", "100%", "1.00", "1", "yes"],
        "chains/forward": ["4", "10", "us/op", "", "0.40", "0.5", "yes"],
        "training/mlp": ["1000", "", "us/op", "", "", "1", ""],
    }
