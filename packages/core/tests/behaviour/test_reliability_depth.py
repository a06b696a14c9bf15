"""Graphs that are very deep or very wide."""

import os

import pytest

import pullback as pb

posix_only = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and limits")


def small_stack():
    import resource

    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))


@posix_only
@pytest.mark.parametrize(
    ("build", "length", "use", "where"),
    [
        ("view", 1_000_000, "backward", "main"),
        ("add", 100_000, "backward", "thread"),
        ("mul", 100_000, "drop", "main"),
        ("mul", 50_000, "retain", "main"),
        ("custom", 20_000, "backward", "main"),
        ("custom", 20_000, "drop", "main"),
        ("in_place", 5_000, "backward", "main"),
        pytest.param("clone", 50_000, "walk", "main", marks=pytest.mark.beyond_torch),
    ],
)
def test_deep_graph_with_a_stack_of_one_megabyte(build, length, use, where, run_script):
    assert (
        run_script("deep_graph", build, length, use, where, timeout=300, preexec_fn=small_stack)
        == "done"
    )


def test_fan_in_of_one_hundred_thousand():
    x = pb.ones(1, requires_grad=True)
    y = x * 1
    parts = [y.view(1) for _ in range(100_000)]
    pb.cat(parts).sum().backward()
    assert x.grad.tolist() == [100_000.0]


def test_leaf_used_twenty_thousand_times():
    x = pb.ones(2, dtype=pb.float64, requires_grad=True)
    parts = [x * i for i in range(20_000)]
    pb.stack(parts).sum().backward()
    assert x.grad.tolist() == [sum(range(20_000))] * 2


def test_node_with_many_outputs_of_which_few_are_used():
    x = pb.ones(20_000, requires_grad=True)
    parts = x.unbind()
    (parts[7] + parts[19_999]).backward()
    assert x.grad.sum().item() == 2.0
