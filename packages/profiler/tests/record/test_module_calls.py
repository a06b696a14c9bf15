"""Calls of modules in profiles: names, nesting, times of operations inside, traces."""

import json

import pytest

import pullback as pb
from pullback import nn
from pullback_profiler import profile
from pullback_profiler.record.module_calls import module_number


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x).relu()


def modules_of(p):
    """Return (name, names of the modules around it) of all calls."""
    found = []
    for event in p.function_events:
        if event.is_python_function:
            around, parents = event.cpu_parent, []
            while around is not None:
                parents.append(around.name)
                around = around.cpu_parent
            found.append((event.name, parents))
    return found


def test_calls_are_named_and_nested():
    model = nn.Sequential(Block(), Block())
    with profile(with_modules=True) as p:
        model(pb.ones(2, 3))
        model[1](pb.ones(2, 3))
    first, second = "nn.Module: Block_0", "nn.Module: Block_1"
    assert modules_of(p) == [
        ("nn.Module: Sequential_0", []),
        (first, ["nn.Module: Sequential_0"]),
        ("nn.Module: Linear_0", [first, "nn.Module: Sequential_0"]),
        (second, ["nn.Module: Sequential_0"]),
        ("nn.Module: Linear_1", [second, "nn.Module: Sequential_0"]),
        (second, []),
        ("nn.Module: Linear_1", [second]),
    ]
    inside = {e.cpu_parent.name for e in p.function_events if e.name == "pullback::relu"}
    assert inside == {first, second}


def test_modules_are_recorded_only_if_asked_for_and_only_inside():
    model = Block()
    with profile() as p:
        model(pb.ones(2, 3))
    assert modules_of(p) == []
    with profile(with_modules=True) as p:
        pass
    model(pb.ones(2, 3))
    assert modules_of(p) == []


def test_hooks_and_errors_are_inside_of_the_call():
    model = Block()
    model.register_forward_hook(lambda *_: pb.zeros(7).cos())
    with profile(with_modules=True) as p:
        model(pb.ones(2, 3))
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            model(pb.ones(2, 4))
        model(pb.ones(2, 3))
    names = [name for name, _ in modules_of(p)]
    assert names == ["nn.Module: Block_0", "nn.Module: Linear_0"] * 3
    assert {e.cpu_parent.name for e in p.function_events if e.name == "pullback::cos"} == {
        "nn.Module: Block_0"
    }


def test_trace_has_python_functions(tmp_path):
    with profile(with_modules=True) as p:
        Block()(pb.ones(2, 3))
    p.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    found = {e["name"]: e for e in events if e.get("cat") == "python_function"}
    assert found.keys() == {"nn.Module: Block_0", "nn.Module: Linear_0"}
    assert found["nn.Module: Block_0"]["args"]["Python module id"] == 0


def test_schedule_numbers_modules_of_each_cycle():
    model = Block()
    schedule = pb.profiler.schedule(wait=1, warmup=0, active=1, repeat=2)
    seen = []
    with pb.profiler.profile(
        schedule=schedule,
        with_modules=True,
        on_trace_ready=lambda p: seen.append([e.name for e in p.events() if e.is_python_function]),
    ) as p:
        for _ in range(4):
            model(pb.ones(2, 3))
            p.step()
    assert seen == [["nn.Module: Block_0", "nn.Module: Linear_0"]] * 2


@pytest.mark.parametrize(
    ("name", "number"), [("nn.Module: A_b_12", 12), ("nn.Module: x", -1), ("A_1", -1)]
)
def test_number_is_read_from_a_name(name, number):
    assert module_number(name) == number
