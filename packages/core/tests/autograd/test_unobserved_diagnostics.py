"""Diagnostics call nothing of the user's ``__torch_function__``, in classes and in modes."""

import pytest

import pullback as pb
from pullback.autograd import graph
from pullback.overrides import TorchFunctionMode

seen = []


class Watched(pb.Tensor):
    """Notes each call while the test watches."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen.append(func)
        return func(*args, **(kwargs or {}))


DIAGNOSTICS = {
    "explain_grad": lambda x, losses: graph.explain_grad(x, losses),
    "explain_grad_alone": lambda x, losses: graph.explain_grad(x),
    "memory": lambda x, losses: graph.memory(losses),
    "per_sample_gradients": lambda x, losses: graph.per_sample_gradients(losses, [x]),
    "predict_peak": lambda x, losses: graph.predict_peak(losses),
    "who_holds": lambda x, losses: graph.who_holds(x),
    "to_dot": lambda x, losses: graph.to_dot(losses, names={"x": x}),
}


@pytest.mark.parametrize("name", DIAGNOSTICS)
def test_nothing_is_observed(name):
    x = pb.ones(3, 2).as_subclass(Watched).requires_grad_()
    losses = (pb.ones(4, 3) @ x).square().sum(1)
    if name == "explain_grad":
        losses = losses.sum()
    call = DIAGNOSTICS[name]
    with pb.overrides.DisableTorchFunctionSubclass():
        expected = str(call(x, losses))
    seen.clear()
    with Mode():
        seen.clear()
        found = call(x, losses)
        assert seen == []
    assert str(found).partition(" is held by")[0] == expected.partition(" is held by")[0]
    assert type(losses) is Watched
