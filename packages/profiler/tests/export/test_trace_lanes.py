"""Lanes of a Chrome trace: one for each thread and device, with bars that nest."""

from hypothesis import given
from hypothesis import strategies as st

from pullback_profiler.events.function_event import FunctionEvent
from pullback_profiler.export.trace_lanes import Lanes, device_blocks, drawable
from pullback_profiler.record.recording import Thread

PID = 70
LANES = Lanes(PID, [Thread(1, "main", PID, []), Thread(2, "other", 71, [])])


def on_device(number, start, end, launcher=0, **options):
    return FunctionEvent(
        number,
        f"kernel{number}",
        0,
        start,
        end,
        device_type="cuda",
        linked_correlation_id=launcher,
        **options,
    )


def test_threads_stand_under_their_numbers_in_the_system():
    assert LANES.tids == {1: 70, 2: 71}
    assert LANES.names == {1: "main", 2: "other"}
    assert LANES.of_event(FunctionEvent(0, "op", 2, 0, 1)) == (PID, 71)


def test_unknown_and_repeated_numbers_get_free_ones():
    threads = [
        Thread(0, None, 0, []),
        Thread(1, "main", 5, []),
        Thread(2, "ended", 8, []),
        Thread(3, "later", 8, []),
        Thread(0, None, 0, []),
    ]
    lanes = Lanes(5, threads)
    assert lanes.tids == {0: 9, 1: 5, 2: 8, 3: 10}
    assert lanes.names[0] == "python"


def test_device_with_the_number_of_the_process_has_another():
    lanes = Lanes(1, [])
    assert lanes.of_event(on_device(0, 0, 1)) == (0, 0)
    assert lanes.of_event(on_device(0, 0, 1, device_index=1)) == (5_000_001, 0)


def test_asynchronous_events_are_no_bars():
    event = FunctionEvent(0, "block", 1, 0, 5, is_async=True)
    assert drawable([event], LANES) == ({}, {id(event)})


def test_block_that_ends_inside_the_next_is_no_bar():
    first = FunctionEvent(0, "first", 1, 0, 5, is_user_annotation=True)
    second = FunctionEvent(1, "second", 1, 3, 8, is_user_annotation=True)
    assert drawable([first, second], LANES) == ({id(second): 8}, {id(first)})


def test_block_that_crosses_an_op_gives_way():
    op = FunctionEvent(0, "op", 1, 0, 5)
    block = FunctionEvent(1, "block", 1, 3, 8, is_user_annotation=True)
    inner = FunctionEvent(2, "inner", 1, 4, 5)
    assert drawable([op, block, inner], LANES) == ({id(op): 5, id(inner): 5}, {id(block)})


def test_events_of_different_threads_may_cross():
    one, other = FunctionEvent(0, "one", 1, 0, 5), FunctionEvent(1, "other", 2, 3, 8)
    assert drawable([one, other], LANES) == ({id(one): 5, id(other): 8}, set())


def test_kernels_that_touch_by_rounding_follow_each_other():
    first, second = on_device(0, 0.0, 5.5), on_device(1, 5.0, 8.0)
    assert drawable([first, second], LANES) == ({id(first): 5.0, id(second): 8.0}, set())


def test_kernels_at_the_same_time_are_no_bars_both():
    first, second = on_device(0, 0.0, 5.5), on_device(1, 2.0, 8.0)
    assert drawable([first, second], LANES) == ({id(second): 8.0}, {id(first)})


times = st.integers(0, 30)


@given(st.lists(st.tuples(st.integers(1, 2), times, times, st.booleans(), st.booleans())))
def test_bars_nest_whatever_happened(spans):
    events = [
        FunctionEvent(i, f"op{i}", thread, start, start + length, is_user_annotation=block)
        if host
        else on_device(i, start / 4, (start + length) / 4, is_user_annotation=block)
        for i, (thread, start, length, block, host) in enumerate(spans)
    ]
    events.sort(key=lambda event: (event.time_range.start, -event.time_range.end))
    ends, apart = drawable(events, LANES)
    assert ends.keys() | apart == {id(event) for event in events}
    assert not ends.keys() & apart
    around = {}
    for event in events:
        if id(event) in apart:
            continue
        start, end = event.time_range.start, ends[id(event)]
        assert start <= end <= event.time_range.end
        stack = around.setdefault(LANES.of_event(event), [])
        while stack and stack[-1] <= start:
            stack.pop()
        assert not stack or end <= stack[-1]
        stack.append(end)


def test_blocks_on_devices_come_by_start_the_outer_first():
    outer = FunctionEvent(1, "outer", 1, 0, 9, is_user_annotation=True)
    inner = FunctionEvent(2, "inner", 1, 1, 5, is_user_annotation=True)
    op = FunctionEvent(3, "op", 1, 2, 4)
    inner.cpu_parent, op.cpu_parent = outer, inner
    kernels = [on_device(4, 10, 12, launcher=3), on_device(5, 12, 13, launcher=3)]
    blocks = [
        (block.name, block.time_range.start, block.time_range.end, block.linked_correlation_id)
        for block in device_blocks([outer, inner, op, *kernels])
    ]
    assert blocks == [("outer", 10, 13, 1), ("inner", 10, 13, 2)]
    assert list(device_blocks([outer, inner, op])) == []
