"""One event: its times, memory, representation, and the arguments it rejects."""

import copy
import itertools
import pickle

import pytest

from pullback_profiler.events.event_metadata import EventMetadata
from pullback_profiler.events.function_event import FunctionEvent, Kernel


def event(start=0.0, end=10.0, **options):
    return FunctionEvent(0, "mul", 1, start, end, **options)


def nested(outer, *inner):
    for child in inner:
        outer.append_cpu_child(child)
        child.set_cpu_parent(outer)
    return outer


def test_positional_arguments_have_torch_s_order():
    made = FunctionEvent(
        *(1, "mul", 2, 3.0, 5.0, "out", 4, [[2]], ["a"], 1, "cuda", 10, 20, True, True, 7, 8),
        *("cuda", 1, 9, True, 11, "mul#1", [3], {"k": 1}, True, True, "kernel", "{}", 12, 13, True),
        *(14, 15, {"stream": "7"}, [[2], [[3]]], [[1]], ["float"], 16, 17, 18),
    )
    expected = dict(
        **dict(id=1, name="mul", thread=2, overload_name="out", fwd_thread=4, input_shapes=[[2]]),
        **dict(stack=["a"], scope=1, use_device="cuda", cpu_memory_usage=10, sequence_nr=7),
        **dict(device_memory_usage=20, is_async=True, is_remote=True, node_id=8, flops=11),
        **dict(device_type="cuda", device_index=1, device_resource_id=9, is_legacy=True),
        **dict(
            trace_name="mul#1", concrete_inputs=[3], kwinputs={"k": 1}, flow_id=12, flow_type=13
        ),
        **dict(is_user_annotation=True, is_python_function=True, activity_type="kernel"),
        **dict(flow_start=True, external_id=14, linked_correlation_id=15, python_id=16),
        **dict(structured_input_shapes=[[2], [[3]]], structured_input_strides=[[1]]),
        **dict(input_dtypes=["float"], python_parent_id=17, python_module_id=18, key="mul"),
        **dict(event_metadata=EventMetadata(stream=7), count=1, cpu_parent=None),
        **dict(cpu_children=[], kernels=[]),
    )
    assert {name: getattr(made, name) for name in expected} == expected
    assert (made.time_range.start, made.time_range.end) == (3.0, 5.0)
    with pytest.warns(FutureWarning, match="`metadata_json` is deprecated"):
        assert made.metadata_json == "{}"


def test_defaults():
    made = event()
    assert (made.sequence_nr, made.node_id, made.device_type) == (-1, -1, "cpu")
    assert made.trace_name == "mul"
    assert made.device_resource_id == made.thread == 1
    assert made.flops is made.input_shapes is made.stack is made.event_metadata is None


def test_self_time_is_what_children_leave():
    outer = nested(event(), event(1.0, 3.0), event(4.0, 8.5))
    assert (outer.cpu_time_total, outer.self_cpu_time_total) == (10.0, 3.5)
    assert outer.cpu_children[0].self_cpu_time_total == 2.0


def test_self_time_hides_rounding():
    start, middle, end = 0.001, 0.002, 0.011
    assert (end - start) - (middle - start) - (end - middle) < 0
    outer = nested(event(start, end), event(start, middle), event(middle, end))
    assert outer.self_cpu_time_total == 0


def test_self_memory_is_what_children_leave():
    outer = event(cpu_memory_usage=100, device_memory_usage=7)
    nested(outer, event(1, 2, cpu_memory_usage=130), event(3, 4, device_memory_usage=5))
    assert (outer.self_cpu_memory_usage, outer.self_device_memory_usage) == (-30, 2)


def test_async_event_has_no_self_values():
    made = event(is_async=True, use_device="cuda", cpu_memory_usage=8, device_memory_usage=9)
    made.append_kernel("gemm", 0, 4.0)
    assert made.cpu_time_total == 10.0
    assert made.self_cpu_time_total == made.device_time_total == made.self_device_time_total == 0
    assert made.self_cpu_memory_usage == made.self_device_memory_usage == 0


def test_device_time_counts_kernels_of_children():
    inner = event(1, 2, use_device="cuda")
    outer = nested(event(use_device="cuda"), inner)
    inner.append_kernel("gemm", 0, 12.0)
    outer.append_kernel("fill", 0, 3.0)
    assert outer.kernels == [Kernel("fill", 0, 3.0)]
    assert (outer.device_time_total, outer.self_device_time_total) == (15.0, 3.0)
    assert (inner.device_time_total, inner.self_device_time_total) == (12.0, 12.0)


def test_kernel_of_a_legacy_event_covers_its_children():
    inner = event(1, 2, use_device="cuda", is_legacy=True)
    outer = nested(event(use_device="cuda", is_legacy=True), inner)
    inner.append_kernel("inner", 0, 12.0)
    outer.append_kernel("outer", 0, 20.0)
    assert (outer.device_time_total, outer.self_device_time_total) == (20.0, 8.0)


def test_device_time_is_zero_without_a_device():
    made = event()
    made.append_kernel("gemm", 0, 4.0)
    assert made.device_time_total == made.self_device_time_total == 0


def test_device_time_of_blocks_nested_deeply():
    events = [event(i, 20_000 - i, use_device="cuda") for i in range(5000)]
    for outer, inner in itertools.pairwise(events):
        nested(outer, inner)
    events[-1].append_kernel("gemm", 0, 4.0)
    assert events[0].device_time_total == 4.0


def test_work_on_a_device_has_only_device_time():
    made = event(device_type="cuda", use_device="cuda", cpu_memory_usage=5)
    assert made.cpu_time_total == made.self_cpu_time_total == made.self_cpu_memory_usage == 0
    assert made.device_time_total == made.self_device_time_total == 10.0


def test_times_as_text():
    made = event(0.0, 1500.0, use_device="cuda")
    made.append_kernel("gemm", 0, 2e6)
    names = ("cpu_time", "cpu_time_total", "self_cpu_time_total")
    assert [getattr(made, f"{name}_str") for name in names] == ["1.500ms"] * 3
    names = ("device_time", "device_time_total", "self_device_time_total")
    assert [getattr(made, f"{name}_str") for name in names] == ["2.000s"] * 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cuda_time", 4.0),
        ("cuda_time_total", 4.0),
        ("self_cuda_time_total", 4.0),
        ("cuda_memory_usage", 6),
        ("self_cuda_memory_usage", 6),
    ],
)
def test_names_with_cuda_are_deprecated(name, expected):
    made = event(use_device="cuda", device_memory_usage=6)
    made.append_kernel("gemm", 0, 4.0)
    new = name.replace("cuda", "device")
    with pytest.warns(FutureWarning, match=f"`{name}` is deprecated, use `{new}`") as seen:
        assert getattr(made, name) == expected
    assert seen[0].filename == __file__


@pytest.mark.parametrize(
    "call",
    [
        lambda device, host: device.append_kernel("gemm", 0, 1.0),
        lambda device, host: device.append_cpu_child(host),
        lambda device, host: host.append_cpu_child(device),
        lambda device, host: device.set_cpu_parent(host),
        lambda device, host: host.set_cpu_parent(device),
    ],
)
def test_links_refuse_work_on_a_device(call):
    with pytest.raises(AssertionError, match="expected device_type to be 'cpu', got 'cuda'"):
        call(event(device_type="cuda"), event())


def test_links_refuse_what_is_no_event():
    with pytest.raises(AssertionError, match="expected a FunctionEvent, got str"):
        event().append_cpu_child("mul")
    with pytest.raises(AssertionError, match="expected a FunctionEvent, got str"):
        event().set_cpu_parent("mul")


def test_representation_shows_what_was_recorded():
    assert repr(event()) == (
        "<FunctionEvent id=0 name='mul' thread=1 start_us=0.0 end_us=10.0 cpu_time=10.000us>"
    )
    full = event(use_device="cuda", input_shapes=[[2]], cpu_memory_usage=4, sequence_nr=3)
    nested(full, FunctionEvent(5, "inner", 1, 1.0, 2.0))
    assert repr(full) == (
        "<FunctionEvent id=0 name='mul' thread=1 start_us=0.0 end_us=10.0 cpu_time=10.000us "
        "cuda_time=0.000us cpu_children=[5] input_shapes=[[2]] cpu_memory_usage=4 sequence_nr=3>"
    )


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_event_is_pickled_with_what_it_is_linked_to(duplicate):
    outer = nested(event(input_shapes=[[2]], extra_meta={"stream": 1}), event(1.0, 2.0))
    outer.append_kernel("gemm", 0, 4.0)
    again = duplicate(outer)
    assert repr(again) == repr(outer)
    assert again.kernels == outer.kernels
    assert again.event_metadata == outer.event_metadata
    assert again.cpu_children[0] is not outer.cpu_children[0]
    assert again.cpu_children[0].cpu_parent is again


def test_shallow_copy_shares_children():
    outer = nested(event(), event(1.0, 2.0))
    again = copy.copy(outer)
    assert again.cpu_children[0] is outer.cpu_children[0]
    again.name = "other"
    assert outer.name == "mul"
