"""The tree of events, against a search through all pairs."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pullback_profiler.events.event_list import EventList
from pullback_profiler.events.function_event import FunctionEvent

# (thread, node, start, length), and whether it is asynchronous or work on a device
SPANS = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.integers(-1, 0),
        st.integers(0, 12),
        st.integers(0, 8),
        st.sampled_from(["sync"] * 8 + ["async", "device"]),
    ),
    max_size=25,
)


def events_of(spans):
    return EventList(
        FunctionEvent(
            *(number, f"op{number}", thread, start, start + length),
            node_id=node,
            is_async=kind == "async",
            device_type="cuda" if kind == "device" else "cpu",
        )
        for number, (thread, node, start, length, kind) in enumerate(spans)
    )


def plain_parents(events):
    """Return the parent of each event, by the definition: the last in order that covers it."""
    taking_part = [event for event in events if not event.is_async and event.device_type == "cpu"]
    order = sorted(taking_part, key=lambda e: (e.time_range.start, -e.time_range.end))
    parents = {}
    for index, inner in enumerate(order):
        covering = [
            outer
            for outer in order[:index]
            if (outer.thread, outer.node_id) == (inner.thread, inner.node_id)
            and outer.time_range.start <= inner.time_range.start < outer.time_range.end
            and inner.time_range.end <= outer.time_range.end
        ]
        if covering:
            parents[inner.id] = covering[-1].id
    return parents


def linked_parents(events):
    return {event.id: event.cpu_parent.id for event in events if event.cpu_parent is not None}


@settings(deadline=None)
@given(SPANS)
@example([(1, -1, 0, 8, "sync"), (1, -1, 1, 4, "sync"), (1, -1, 3, 4, "sync")])
def test_tree_is_the_one_of_a_search_through_all_pairs(spans):
    events = events_of(spans)
    events.build_tree()
    assert linked_parents(events) == plain_parents(events)
    children = {event.id: [child.id for child in event.cpu_children] for event in events}
    for parent, inner in children.items():
        assert inner == [
            event.id
            for event in sorted(events, key=lambda e: (e.time_range.start, -e.time_range.end))
            if event.cpu_parent is not None and event.cpu_parent.id == parent
        ]


@settings(deadline=None)
@given(SPANS)
def test_self_times_sum_to_the_top_level(spans):
    events = events_of(spans)
    events.build_tree()
    top = [event for event in events if event.cpu_parent is None and not event.is_async]
    assert events.self_cpu_time_total == sum(event.cpu_time_total for event in top)


@st.composite
def proper_nestings(draw):
    """Return events of one thread, properly nested, at whole nanoseconds given in microseconds."""
    moves = draw(st.lists(st.tuples(st.booleans(), st.integers(0, 3000)), max_size=40))
    now, opened, closed = 0, [], []

    def close():
        number, start = opened.pop()
        closed.append(FunctionEvent(number, f"op{number}", 1, start / 1000, now / 1000))

    for number, (opens, step) in enumerate(moves):
        now += step
        if opens:
            opened.append((number, now))
        elif opened:
            close()
    while opened:
        now += 1
        close()
    return EventList(closed)


@settings(deadline=None)
@given(proper_nestings())
def test_properly_nested_self_times_are_not_negative_and_add_up(events):
    events.build_tree()
    assert all(event.self_cpu_time_total >= 0 for event in events)
    top = sum(event.cpu_time_total for event in events if event.cpu_parent is None)
    assert abs(events.self_cpu_time_total - top) <= 1e-9 * max(top, 1)


def named(number, name, start, end, thread=1, **options):
    return FunctionEvent(number, name, thread, start, end, **options)


def test_touching_events_are_not_related():
    events = EventList([named(0, "a", 0, 5), named(1, "b", 5, 9), named(2, "c", 9, 9)])
    events.build_tree()
    assert linked_parents(events) == {}


def test_event_without_length_lies_inside():
    events = EventList([named(0, "a", 0, 5), named(1, "[memory]", 0, 0), named(2, "b", 0, 5)])
    events.build_tree()
    assert linked_parents(events) == {1: 2, 2: 0}


def test_only_children_of_the_same_name_are_merged():
    events = EventList(
        [
            named(0, "mm", 0, 20, use_device="cuda"),
            named(1, "mm", 1, 19, use_device="cuda"),
            named(2, "mm", 2, 18, use_device="cuda"),
            named(3, "copy", 3, 4),
            named(4, "mm", 5, 6),
        ]
    )
    events[0].append_kernel("first", 0, 1.0)
    events[2].append_kernel("second", 0, 2.0)
    events.build_tree()
    assert [event.id for event in events] == [0, 3, 4]
    assert linked_parents(events) == {3: 0, 4: 0}
    assert [child.id for child in events[0].cpu_children] == [3, 4]
    assert [kernel.name for kernel in events[0].kernels] == ["first", "second"]


def test_merging_does_not_depend_on_the_list_s_order():
    events = EventList([named(2, "mm", 2, 3), named(1, "mm", 1, 4), named(0, "mm", 0, 5)])
    events.build_tree()
    assert [event.id for event in events] == [0]
    assert events[0].cpu_children == []


def test_tree_can_be_built_again_after_adding_events():
    events = EventList([named(0, "a", 0, 10), named(1, "c", 2, 3)])
    events.build_tree()
    events.append(named(2, "b", 1, 4))
    events.build_tree()
    assert linked_parents(events) == {1: 2, 2: 0}
    assert [child.id for child in events[0].cpu_children] == [2]


def test_tree_of_blocks_nested_deeply():
    events = EventList(named(i, f"block{i}", i, 20_000 - i) for i in range(5000))
    events.build_tree()
    assert linked_parents(events) == {i: i - 1 for i in range(1, 5000)}
    assert events.self_cpu_time_total == 20_000


def test_backward_events_inherit_the_stack_of_the_forward():
    forward, other = ["net.py(3): forward"], ["net.py(9): other"]
    events = EventList(
        [
            named(0, "matmul", 0, 5, stack=forward, sequence_nr=4),
            named(1, "mm", 1, 4, stack=["inner"], sequence_nr=4),
            named(2, "matmul", 0, 5, thread=2, stack=other, sequence_nr=4),
            named(3, "none", 6, 7, stack=["unrecorded"]),
            named(4, "evaluate", 10, 20, stack=["train.py(1): step"], sequence_nr=4),
            named(5, "MmBackward0", 11, 19, scope=1, sequence_nr=4, fwd_thread=1, stack=["x"]),
            named(6, "mm", 12, 13, stack=["y"]),
            named(7, "MmBackward0", 30, 31, scope=1, sequence_nr=4, fwd_thread=2),
            named(8, "MmBackward0", 40, 41, scope=1, sequence_nr=99, fwd_thread=1, stack=["z"]),
            named(9, "CustomBackward", 50, 51, scope=1, fwd_thread=1, stack=["z"]),
        ]
    )
    events.build_tree()
    stacks = [event.stack for event in events[4:]]
    assert stacks == [["train.py(1): step"], forward, forward, other, [], []]
