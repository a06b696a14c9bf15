"""Replays of compiled functions in a profile: one event, with its kernels inside."""

import pullback as pb
from pullback_profiler import profile


def test_replay_is_one_event_with_its_kernels_inside():
    @pb.compile
    def chain(x, w):
        return (pb.exp(x) * w).sum()

    x, w = pb.ones(4), pb.ones(4, requires_grad=True)
    chain(x, w).backward()
    with profile() as found:
        chain(x, w).backward()
    events = {event.name: event for event in found.function_events}
    name = next(one for one in events if "compiled" in one and one.endswith("chain"))
    inside = [one.name.rpartition("::")[2] for one in events[name].cpu_children]
    assert inside == ["exp", "mul", "sum"]
    assert events[name].cpu_parent.name == "CompiledFunction"
    assert any(one.endswith("chain backward") for one in events)


def test_failing_replay_ends_its_events():
    @pb.compile
    def pick(x, index):
        return x.index_select(0, index)

    x = pb.ones(3)
    pick(x, pb.tensor([0]))
    with profile() as found:
        try:
            pick(x, pb.tensor([5]))
        except IndexError:
            pass
        pick(x, pb.tensor([1]))
    names = [event.name for event in found.function_events if "compiled" in event.name]
    assert len(names) == 2
