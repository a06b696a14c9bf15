"""The arrows of a Chrome trace, for events made by hand."""

from pullback_profiler.events.function_event import FunctionEvent
from pullback_profiler.export.trace_links import Link, links_of


def op(number, start, end, sequence, thread=1, **options):
    return FunctionEvent(number, f"op{number}", thread, start, end, sequence_nr=sequence, **options)


def node(number, start, sequence, thread=1, fwd_thread=1, name="OpBackward0"):
    return FunctionEvent(
        number, name, thread, start, start + 1, sequence_nr=sequence, scope=1, fwd_thread=fwd_thread
    )


def pairs(events, apart=frozenset()):
    """Return the numbers of the events at both ends of each arrow."""
    ends = {}
    for event in events:
        for link in links_of(events, apart).get(id(event), ()):
            ends.setdefault((link.category, link.number), {})[link.begins] = event.id
    return [(category, found[True], found[False]) for (category, _), found in ends.items()]


def test_innermost_op_is_the_maker():
    events = [op(1, 0, 9, 6), op(2, 1, 5, 6), node(3, 20, 6)]
    assert pairs(events) == [("fwdbwd", 2, 3)]


def test_op_of_another_thread_is_not_the_maker():
    events = [op(1, 0, 2, 6), op(2, 0, 2, 6, thread=2), node(3, 20, 6, thread=1, fwd_thread=2)]
    assert pairs(events) == [("fwdbwd", 2, 3)]


def test_evaluations_are_no_makers():
    evaluation = op(2, 18, 30, 6, fwd_thread=1)
    assert pairs([op(1, 0, 2, 6), evaluation, node(3, 20, 6)]) == [("fwdbwd", 1, 3)]


def test_each_run_of_a_node_has_an_arrow():
    events = [op(1, 0, 2, 6), node(2, 20, 6), node(3, 30, 6)]
    assert pairs(events) == [("fwdbwd", 1, 2), ("fwdbwd", 1, 3)]


def test_node_around_that_of_an_op_in_place_has_the_same_maker():
    events = [op(1, 0, 2, 6), node(2, 20, 7, name="CopySlices"), node(3, 22, 7)]
    assert pairs(events) == [("fwdbwd", 1, 2)]


def test_accumulators_have_no_arrow():
    assert pairs([op(1, 0, 2, -1), node(2, 20, -1, fwd_thread=0)]) == []


def test_events_that_are_no_bars_have_no_arrow():
    events = [op(1, 0, 2, 6), node(2, 20, 6)]
    assert pairs(events, {id(events[0])}) == pairs(events, {id(events[1])}) == []


def test_no_arrow_goes_back_in_time():
    launcher = op(1, 5, 9, -1)
    kernels = [
        FunctionEvent(2 + i, "kernel", 0, start, 9, device_type="cuda", linked_correlation_id=1)
        for i, start in enumerate((4, 5))
    ]
    assert pairs([kernels[0], launcher, kernels[1]]) == [("ac2g", 1, 3)]


def test_one_op_may_begin_several_arrows():
    events = [op(1, 0, 2, 6), node(2, 20, 6), node(3, 30, 6)]
    assert links_of(events, set())[id(events[0])] == [
        Link("fwdbwd", 1, begins=True),
        Link("fwdbwd", 2, begins=True),
    ]
