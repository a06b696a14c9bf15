"""Lines of stacks, as programs that draw flame graphs read them."""

import gzip

import pytest

from pullback_profiler.events.event_list import EventList
from pullback_profiler.events.function_event import FunctionEvent

STACK = ["net.py(3): my layer", "train;1.py(9):\tstep\n"]
LINE = "train_1.py(9):_step_;net.py(3):_my_layer"
METRICS = [
    "self_cpu_time_total",
    "self_cuda_time_total",
    "self_xpu_time_total",
    "self_privateuse1_time_total",
]


def events():
    made = EventList(
        [
            FunctionEvent(0, "mul", 1, 0.0, 12.9, stack=STACK, use_device="cuda"),
            FunctionEvent(1, "short", 1, 20.0, 20.9, stack=STACK, use_device="cuda"),
            FunctionEvent(2, "bare", 1, 30.0, 40.0, stack=[], use_device="cuda"),
            FunctionEvent(3, "none", 1, 50.0, 60.0, use_device="cuda"),
        ]
    )
    made[1].append_kernel("gemm", 0, 7.5)
    made.build_tree()
    return made


def test_supported_metrics():
    assert EventList().supported_export_stacks_metrics() == METRICS


@pytest.mark.parametrize(("metric", "value"), list(zip(METRICS, [12, 7, 7, 7])))
def test_a_line_for_each_event_with_time_and_a_stack(tmp_path, metric, value):
    events().export_stacks(tmp_path / "stacks.txt", metric)
    assert (tmp_path / "stacks.txt").read_text() == f"{LINE} {value}\n"


def test_averages_have_stacks_too(tmp_path):
    averages = events().key_averages(group_by_stack_n=1)
    averages.export_stacks(str(tmp_path / "a.gz"), METRICS[0])
    with gzip.open(tmp_path / "a.gz", "rt") as file:
        assert file.read() == "net.py(3):_my_layer 12\n"


@pytest.mark.parametrize("metric", ["cpu_time_total", "self_cpu_memory_usage", ""])
def test_other_metrics_are_refused_before_the_file_is_made(tmp_path, metric):
    with pytest.raises(ValueError, match=r"metric should be one of: self_cpu_time_total, .*got"):
        events().export_stacks(tmp_path / "stacks.txt", metric)
    assert list(tmp_path.iterdir()) == []


def test_names_of_files_that_utf8_cannot_hold(tmp_path):
    event = FunctionEvent(0, "mul", 1, 0.0, 4.0, stack=["caf\udce9.py(1): f"])
    EventList([event]).export_stacks(tmp_path / "stacks.txt", METRICS[0])
    assert (tmp_path / "stacks.txt").read_text("utf-8") == "caf\ufffd.py(1):_f 4\n"


def test_lines_that_cannot_be_made_leave_no_file(tmp_path):
    broken = EventList([FunctionEvent(0, "mul", 1, 0.0, 4.0, stack=[3])])
    with pytest.raises(AttributeError):
        broken.export_stacks(tmp_path / "stacks.txt", METRICS[0])
    assert list(tmp_path.iterdir()) == []
