"""The predicted peak, on any device; packages/backend-cpu/tests compares it with a real one."""

import pytest

import pullback as pb
from pullback.autograd.graph import get_gradient_edge, predict_peak, saved_tensors_hooks


def test_gradients_of_a_chain():
    x = pb.ones(1000, requires_grad=True)
    # One gradient at a time: the 1 of the root, then 4000 bytes for each exp, as one is freed.
    assert predict_peak(x.exp().sum()) == 4 + 4000
    assert predict_peak([x.exp().sum()]) == 4004
    assert predict_peak(get_gradient_edge(x.exp().sum())) == 4004


def test_nothing_of_the_graph_changes():
    calls = []
    x = pb.ones(1000, requires_grad=True)
    with saved_tensors_hooks(lambda t: t, lambda t: calls.append(1) or t):
        y = x.exp().sin().sum()
    assert predict_peak(y) == predict_peak(y)
    assert calls == []
    assert x.grad is None
    y.backward()
    assert x.grad is not None


def test_a_given_grad_needs_no_memory():
    x = pb.ones(1000, requires_grad=True)
    assert predict_peak(x.exp()) == 4000
    x.grad = pb.zeros(1000)
    assert predict_peak(x.sum()) == 4  # added in place
    assert predict_peak(pb.ones(1000, requires_grad=True).sum()) == 4004


def test_inputs_that_the_root_does_not_reach():
    x, other = (pb.ones(1000, requires_grad=True) for _ in range(2))
    assert predict_peak(x.exp().sum(), [other]) == 4


def test_long_chains_do_not_recurse():
    h = pb.ones(2, requires_grad=True)
    for _ in range(5000):
        h = h.sin()
    assert predict_peak(h.sum()) > 0


def test_freed_graphs_and_wrong_roots():
    x = pb.ones(3, requires_grad=True)
    y = x.exp().sum()
    y.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        predict_peak(y)
    with pytest.raises(TypeError, match=r"predict_peak\(\): expected a Tensor"):
        predict_peak(3)
    with pytest.raises(RuntimeError, match="does not require grad"):
        predict_peak(pb.ones(1))
