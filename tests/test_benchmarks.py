"""The benchmarks run on this build, and their report says what was measured."""

import sys

import pytest

from benchmarks import report, startup, workloads
from benchmarks.subjects import ROOT, MeasurementFailed, Subject, Worker, run_once

OURS = Subject("ours", "pullback")


@pytest.fixture(scope="module")
def worker():
    worker = Worker(OURS)
    yield worker
    worker.close()


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_workload_runs(worker, name):
    seconds = worker.seconds(name, 20)
    assert 0 < seconds < 1


def test_worker_that_dies_is_reported():
    with pytest.raises(MeasurementFailed, match="ours: exit code 1"):
        Worker(Subject("ours", "a_module_that_is_not_there"))


@pytest.mark.skipif(sys.platform == "win32", reason="a process's memory is not measured there")
def test_chain_runs_on_a_small_stack():
    figures = run_once(OURS, "-m", "benchmarks.chain", "pullback", "20000")
    assert all(figures[phase] > 0 for phase in ("build", "backward", "free"))


def test_startup_figures_are_plausible():
    assert 0 < startup.import_seconds(OURS) < 10
    assert startup.installed_bytes(OURS) > 100_000
    assert isinstance(startup.wheel_bytes(ROOT / "dist"), dict)


ROW = report.Row(
    "A row",
    ours=[1.0, 2.0, 4.0],
    torch=[10.0, 10.0, 10.0],
    noise=[10.0, 11.0, 12.0],
    budget=1 / 4,
    stretch=1 / 8,
)


def test_ratio_is_the_median_over_the_rounds():
    assert ROW.ratio == 0.2
    line = report.ratio_table([ROW])[-1]
    assert line == "| A row | 10 s | 1 s | 1/5 | 1/10 .. 1/2.5 | 1.10 | 1/4 | 1/8 | within |"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, "**over**"), (0.2, "within"), (0.1, "stretch"), (0.125, "stretch")],
)
def test_verdict_compares_with_the_budget(value, expected):
    assert report.verdict(value, 1 / 4, 1 / 8) == expected
    assert report.verdict(value, None, None) == ""


def test_over_budget_names_the_rows():
    slow = ROW._replace(title="A slow row", ours=[9.0, 9.0, 9.0])
    big = report.Limit("A big one", 7.0, None, "MB", 6, 3)
    small = report.Limit("A small one", 2.0, None, "MB", 6, 3)
    assert report.over_budget([ROW, slow], [big, small]) == ["A slow row", "A big one"]
    text = report.render([ROW, slow], [big, small], {"Python": "3"})
    assert "| A big one |  | 7 MB | 6 MB | 3 MB | **over** |" in text
    assert "- Python: 3" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(2, "2 s"), (0.0123, "12.3 ms"), (4.5e-6, "4.5 us"), (2.34e-7, "234 ns")]
)
def test_seconds_get_a_fitting_unit(seconds, text):
    assert report.format_seconds(seconds) == text
