"""Sums of events."""

import pickle

import pytest

from pullback_profiler.events.average import FunctionEventAvg
from pullback_profiler.events.function_event import FunctionEvent


def event(start, end, name="mul", **options):
    return FunctionEvent(0, name, 1, start, end, **options)


def test_add_sums_numbers_and_keeps_the_rest_of_the_first():
    first = event(0, 10, stack=["a"], input_shapes=[[2]], flops=6, use_device="cuda", node_id=3)
    first.append_cpu_child(event(2, 6))
    first.append_kernel("gemm", 0, 8.0)
    second = event(0, 5, stack=["b"], cpu_memory_usage=7, device_memory_usage=3, flops=None)
    average = FunctionEventAvg().add(first).add(second)
    assert (average.count, average.cpu_time_total, average.self_cpu_time_total) == (2, 15, 11)
    assert (average.cpu_time, average.device_time) == (7.5, 4.0)
    assert average.device_time_total == average.self_device_time_total == 8.0
    assert (average.cpu_memory_usage, average.self_cpu_memory_usage) == (7, 7)
    assert (average.device_memory_usage, average.self_device_memory_usage) == (3, 3)
    assert (average.flops, average.stack, average.input_shapes) == (6, ["a"], [[2]])
    assert (average.node_id, average.use_device) == (3, "cuda")


def test_averages_add_up():
    average = FunctionEventAvg().add(event(0, 4))
    average += FunctionEventAvg().add(event(0, 1)).add(event(0, 2))
    assert (average.count, average.cpu_time_total) == (3, 7)


def test_average_of_nothing_has_no_time():
    assert FunctionEventAvg().cpu_time == FunctionEventAvg().device_time == 0.0


def test_add_refuses_another_key():
    with pytest.raises(AssertionError, match="expected the key 'mul', got 'add'"):
        FunctionEventAvg().add(event(0, 1)).add(event(0, 1, "add"))


def test_add_refuses_what_is_no_event():
    with pytest.raises(AssertionError, match="FunctionEvent or FunctionEventAvg, got int"):
        FunctionEventAvg().add(3)


def test_representation():
    average = FunctionEventAvg().add(
        event(0, 10, use_device="xpu", input_shapes=[[2]], cpu_memory_usage=4)
    )
    assert repr(average) == (
        "<FunctionEventAvg key='mul' count=1 self_cpu_time=10.000us cpu_time=10.000us "
        "self_xpu_time=0.000us xpu_time=0.000us input_shapes=[[2]] cpu_memory_usage=4>"
    )


def test_average_can_be_pickled():
    average = FunctionEventAvg().add(event(0, 10))
    assert vars(pickle.loads(pickle.dumps(average))) == {**vars(average)}
