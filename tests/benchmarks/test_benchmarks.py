"""The benchmarks run on this build: every row, every process, the whole command."""

import sys

import pytest

import pullback as pb
from benchmarks import figures, floors, measure, probes, run, startup
from benchmarks.subjects import ROOT, MeasurementFailed, RowFailed, Subject, Worker, run_once
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.registry import Size, table

OURS = Subject("ours", "pullback")
SMALLER = 256  # what operands are divided by


@pytest.fixture(scope="module")
def worker():
    worker = Worker(OURS, divisor=SMALLER)
    yield worker
    worker.close()


@pytest.fixture
def one_thread():
    """Measuring in this process limits the threads; give them back."""
    threads = pb.get_num_threads()
    yield
    pb.set_num_threads(threads)


@pytest.mark.parametrize("key", WORKLOADS)
def test_workload_runs(worker, key):
    units = 20 if WORKLOADS[key].units else 1
    assert 0 < worker.measure(key, units)["seconds"] < 1


def test_units_are_chosen_where_none_are_given(worker):
    figures = worker.measure("elementwise/4M elements/exp(x)", None)
    assert 0 < figures["seconds"] < 1
    assert figures["bytes"] == 2 * 4 * (4_000_000 // SMALLER)


def test_work_of_a_product_is_counted(worker):
    figures = worker.measure("linalg/float32/g2048 @ g2048", 1)
    assert figures["flops"] == 2 * 16**3


def test_row_that_fails_leaves_its_process_alive(worker):
    with pytest.raises(RowFailed, match="KeyError"):
        worker.measure("no such row", 1)
    assert worker.measure("overhead/recorded_op", 1)["seconds"] > 0


def test_worker_that_dies_is_reported():
    with pytest.raises(MeasurementFailed, match="ours: exit code 1"):
        Worker(Subject("ours", "a_module_that_is_not_there"))


def test_process_that_dies_in_a_row_is_started_again():
    class Dying:
        subject = OURS
        starts = 0

        def measure(self, key, units):
            raise MeasurementFailed("ours: exit code -11")

        def start(self):
            self.starts += 1

    found, dying, row = measure.Rounds(), Dying(), WORKLOADS["overhead/recorded_op"]
    for _ in range(2):
        found.ask(dying, row, measure.Plan(1, 1), counts=True)
    assert dying.starts == 1  # a row that failed is not asked again
    assert measure.make_row(row, found, None).errors == {"ours": "ours: exit code -11"}


def test_sizes_are_divided_but_stay_usable():
    size = Size(100)
    assert [size(n) for n in (4_000_000, 2048, 64, 8)] == [40_000, 20, 16, 8]
    assert Size()(12345) == 12345


def test_two_rows_of_one_name_are_refused():
    with pytest.raises(ValueError, match="two rows"):
        table("linalg/float32", lambda m, size: {}, ["g128 @ g128"])


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("mlp_step", ["overhead/mlp_step"]),
        ("linalg/LAPACK", [key for key in WORKLOADS if key.startswith("linalg/LAPACK/")]),
        ("training", [key for key in WORKLOADS if key.startswith("training/")]),
        (
            "elementwise/4M elements/log1*",
            [f"elementwise/4M elements/log1{x}(p)" for x in ("p", "0")],
        ),
    ],
)
def test_rows_are_selected(pattern, expected):
    assert run.select([pattern], list(WORKLOADS)) == expected


def test_unknown_row_is_refused(capsys):
    with pytest.raises(SystemExit):
        run.main(["--only", "nonsense"])
    assert "no row is called 'nonsense'" in capsys.readouterr().err


def test_command_measures_and_judges(tmp_path, capsys):
    output = tmp_path / "out.md"
    arguments = ["--quick", "--threads", "1", "2", "--torch", "pullback", "--output", str(output)]
    rows = ["--only", "elementwise/8 elements/x + y", "linalg/products/b3 @ b3"]
    assert run.main([*arguments, *rows]) == 0
    text = output.read_text()
    assert "| `x + y`, 8 elements |" in text
    assert "| `b3 @ b3`, products |" in text
    assert "2 threads: torch" in text
    assert (
        run.main([*arguments, *rows[:2], "--check"]) == 1
    )  # no module is 6 times as fast as itself
    assert "over budget" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="a process's memory is not measured there")
def test_chain_runs_on_a_small_stack():
    figures = run_once(OURS, "-m", "benchmarks.probes", "chain", "pullback", "20000")
    assert all(figures[phase] > 0 for phase in ("build", "backward", "free"))


def test_startup_figures_are_plausible():
    assert 0 < startup.import_seconds(OURS) < 10
    assert startup.installed_bytes(OURS) > 100_000
    assert isinstance(startup.wheel_bytes(ROOT / "dist"), dict)


def test_floors_are_measured(one_thread):
    found = floors.bandwidth(threads=2, divisor=500)
    assert found.keys() == {"near", "far"}
    assert all(rate > 1e6 for rates in found.values() for rate in rates.values())
    assert floors.product_rate("pullback", 1, 64) > 1e6


def test_fraction_of_the_floor():
    speeds = measure.Floors({"copy": 8e9, "add": 10e9}, {}, {"NumPy": 50e9, "torch": 100e9})
    assert speeds.fraction({"bytes": 1e9}, 0.2) == pytest.approx(0.5)
    assert speeds.fraction({"flops": 1e9}, 0.02) == pytest.approx(0.5)
    assert speeds.fraction({}, 1.0) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux reports a process's peak")
def test_peak_memory_of_a_training_step_is_measured():
    peak = run_once(OURS, "-m", "benchmarks.probes", "memory", "pullback", "mlp", "1")
    parameters = 4 * (784 * 512 + 512 * 512)
    # Most of the gradients at least: some are in memory that the setup has freed.
    assert parameters / 2 < peak < 100 * parameters


def test_figure_that_cannot_be_measured_is_reported(monkeypatch):
    def fail(subjects, amount):
        raise MeasurementFailed("ours: exit code 1")

    monkeypatch.setitem(figures.MEASURES, "memory", fail)
    facts = {}
    assert figures.measure_figures(["memory"], [OURS], figures.Amount(1), facts) == ([], [])
    assert facts == {"memory, not measured": "ours: exit code 1"}


def test_profiler_is_measured_where_there_is_one(monkeypatch):
    def profiles(*answers):
        left = list(answers)
        monkeypatch.setattr(figures, "run_once", lambda *arguments: left.pop(0))

    ours = {"none": 0.1, "idle": 0.101, "recording": 0.5, "memory": 0.6, "shapes": 1, "stacks": 2}
    theirs = {"none": 1.0, "idle": 1.0, "recording": 3.0, "memory": 4, "shapes": 5, "stacks": 6}
    profiles(ours, theirs)
    _, (idle, recording, *_, stacks) = figures.measure_profiler([OURS, OURS], figures.Amount(1))
    assert (idle.ours, recording.ours, stacks.ours) == pytest.approx((1.01, 0.4, 1.9))
    assert (recording.torch, stacks.torch) == pytest.approx((2.0, 5.0))
    profiles(None, None)
    with pytest.raises(MeasurementFailed, match="not installed"):
        figures.measure_profiler([OURS, OURS], figures.Amount(1))


def test_errors_of_functions_are_measured(one_thread):
    found = probes.errors(pb)
    assert 0.49 < found["sqrt"] < 0.6  # rounded from a float64 root: half a unit in the last place
    assert {"exp", "sin", "tanh"} <= found.keys()
