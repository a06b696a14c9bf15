"""Lists of events: averages, totals, copies and pickles."""

import copy
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pullback_profiler.events.event_list import EventList
from pullback_profiler.events.function_event import FunctionEvent
from pullback_profiler.events.util import Interval

SUMS = (
    *("count", "cpu_time_total", "self_cpu_time_total", "device_time_total"),
    *("self_device_time_total", "cpu_memory_usage", "self_cpu_memory_usage"),
    *("device_memory_usage", "self_device_memory_usage"),
)


@st.composite
def event_lists(draw):
    events = EventList(use_device="cuda")
    for number in range(draw(st.integers(0, 15))):
        start = draw(st.integers(0, 20))
        event = FunctionEvent(
            *(number, draw(st.sampled_from("ab")), draw(st.integers(1, 2))),
            *(start, start + draw(st.integers(0, 9))),
            overload_name=draw(st.sampled_from([None, "", "out"])),
            input_shapes=draw(st.sampled_from([None, [], [[2]]])),
            stack=draw(st.sampled_from([None, [], ["f"], ["f", "g"], ["h", "g"]])),
            use_device="cuda",
            cpu_memory_usage=draw(st.integers(-9, 9)),
            device_memory_usage=draw(st.integers(-9, 9)),
            is_async=draw(st.booleans()),
            flops=draw(st.sampled_from([None, 3])),
            is_user_annotation=draw(st.booleans()),
        )
        for duration in draw(st.lists(st.integers(1, 9), max_size=2)):
            event.append_kernel("gemm", 0, duration)
        events.append(event)
    events.build_tree()
    return events


@settings(deadline=None)
@given(event_lists(), st.booleans(), st.integers(0, 2), st.booleans())
def test_averages_sum_to_the_events(events, by_shape, by_stack, by_overload):
    averages = events.key_averages(by_shape, by_stack, by_overload)
    total = events.total_average()
    for name in (*SUMS, "flops"):
        expected = sum(getattr(event, name) or 0 for event in events)
        assert sum(getattr(average, name) for average in averages) == expected
        assert getattr(total, name) == expected
    assert total.key == "Total"
    assert total.self_cpu_time_total == events.self_cpu_time_total


@settings(deadline=None)
@given(event_lists(), st.booleans(), st.integers(0, 2), st.booleans())
def test_averages_group_what_they_say(events, by_shape, by_stack, by_overload):
    def key(event):
        return (
            *(event.name, event.is_user_annotation, event.overload_name if by_overload else ""),
            *(str(event.input_shapes) if by_shape else "", (event.stack or [])[:by_stack]),
        )

    keys = []
    for event in events:
        if key(event) not in keys:
            keys.append(key(event))
    averages = events.key_averages(by_shape, by_stack, by_overload)
    assert [
        (
            *(average.key, average.is_user_annotation, average.overload_name),
            *(str(average.input_shapes) if by_shape else "", average.stack),
        )
        for average in averages
    ] == keys
    assert all(by_shape or average.input_shapes == "" for average in averages)


def test_averages_tell_nodes_and_devices_apart():
    options = [{}, {"node_id": 1}, {"device_type": "cuda"}, {"is_legacy": True}, {}]
    events = EventList(FunctionEvent(i, "a", 1, i, i + 1, **o) for i, o in enumerate(options))
    events.build_tree()
    assert [average.count for average in events.key_averages()] == [2, 1, 1, 1]


def test_averages_keep_the_list_s_options():
    events = EventList(use_device="xpu", profile_memory=True, with_flops=True)
    events.append(FunctionEvent(0, "mul", 1, 0, 1, flops=5, cpu_memory_usage=2))
    events.build_tree()
    text = events.key_averages().table()
    assert "Total FLOPs" in text
    assert "Self CPU Mem" in text
    assert events.total_average().use_device == "xpu"


def test_averages_need_the_tree():
    with pytest.raises(AssertionError, match=r"call build_tree\(\) first"):
        EventList([FunctionEvent(0, "mul", 1, 0, 1)]).key_averages()


def test_total_of_nothing():
    total = EventList().total_average()
    assert (total.key, total.count, total.cpu_time_total, total.cpu_time) == ("Total", 0, 0, 0)


def test_options_are_keywords():
    with pytest.raises(TypeError, match="use_gpu"):
        EventList([], use_gpu=True)


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, *(lambda e, p=p: pickle.loads(pickle.dumps(e, p)) for p in (2, 5))]
)
@pytest.mark.parametrize("averaged", [False, True])
def test_pickled_list_has_the_same_table_and_tree(duplicate, averaged):
    events = EventList(use_device="cuda", profile_memory=True, with_flops=True)
    for number, (start, end) in enumerate([(0, 9), (1, 5), (2, 3), (6, 8)]):
        events.append(FunctionEvent(number, f"op{number}", 1, start, end, use_device="cuda"))
    events[2].append_kernel("gemm", 0, 4.0)
    events.build_tree()
    events = events.key_averages() if averaged else events
    again = duplicate(events)
    assert type(again) is EventList
    assert again.table() == events.table()
    assert [repr(event) for event in again] == [repr(event) for event in events]
    assert again[0].cpu_children[0].cpu_children[0].name == "op2"
    assert again[1].cpu_parent is (again[2].cpu_parent.cpu_parent if averaged else again[0])
    assert again[0] is not events[0]
    assert averaged or again.key_averages().table() == events.key_averages().table()


def test_pickled_part_of_a_list_keeps_what_it_is_linked_to():
    events = EventList([FunctionEvent(0, "a", 1, 0, 9), FunctionEvent(1, "b", 1, 1, 2)])
    events.build_tree()
    part = pickle.loads(pickle.dumps(EventList(events[1:])))
    assert [event.name for event in part] == ["b"]
    assert part[0].cpu_parent.name == "a"
    assert part[0].cpu_parent.cpu_children == [part[0]]


def test_deep_nesting_can_be_pickled():
    events = EventList(FunctionEvent(i, f"block{i}", 1, i, 9000 - i) for i in range(3000))
    events.build_tree()
    for again in (pickle.loads(pickle.dumps(events)), copy.deepcopy(events)):
        assert len(again) == 3000
        assert again[-1].cpu_parent is again[-2]


def test_shallow_copy_has_the_same_events_and_options():
    events = EventList([FunctionEvent(0, "a", 1, 0, 9)], use_device="xpu")
    events.build_tree()
    again = copy.copy(events)
    assert type(again) is EventList
    assert again[0] is events[0]
    again.clear()
    assert len(events) == 1
    assert copy.copy(events).key_averages().total_average().use_device == "xpu"


def test_interval_of_an_event_can_be_replaced():
    event = FunctionEvent(0, "a", 1, 0, 9)
    event.time_range = Interval(2, 4)
    assert event.cpu_time_total == 2
