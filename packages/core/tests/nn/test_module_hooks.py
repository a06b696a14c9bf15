"""Hooks around the forward and backward passes of modules."""

import pytest

import pullback as pb
from pullback import nn
from pullback.nn.modules import module as of_all


def doubled():
    layer = nn.Linear(2, 2, bias=False)
    nn.init.constant_(layer.weight, 2.0)
    return layer


def test_forward_hooks_replace_arguments_and_results():
    layer, seen = doubled(), []
    layer.register_forward_pre_hook(lambda m, args: args[0] + 1)
    layer.register_forward_hook(lambda m, args, result: seen.append(args[0].tolist()))
    handle = layer.register_forward_hook(lambda m, args, result: result * 10)
    assert layer(pb.zeros(1, 2)).tolist() == [[40, 40]]
    handle.remove()
    assert layer(pb.zeros(1, 2)).tolist() == [[4, 4]]
    assert seen == [[[1, 1]], [[1, 1]]]


def test_hooks_with_keywords_and_in_front():
    class Shifted(nn.Module):
        def forward(self, x, *, by):
            return x + by

    module, order = Shifted(), []
    module.register_forward_pre_hook(lambda m, args: order.append("second"))
    module.register_forward_pre_hook(lambda m, args: order.append("first"), prepend=True)
    module.register_forward_pre_hook(lambda m, args, kw: (args, {"by": 5}), with_kwargs=True)
    module.register_forward_hook(lambda m, args, kw, out: order.append(kw), with_kwargs=True)
    assert module(pb.zeros(1), by=1).tolist() == [5]
    assert order == ["first", "second", {"by": 5}]
    module.register_forward_pre_hook(lambda m, args, kw: args, with_kwargs=True)
    with pytest.raises(RuntimeError, match="must return None or a tuple of"):
        module(pb.zeros(1), by=1)


def test_always_call_runs_once_though_forward_raises():
    class Fails(nn.Module):
        def forward(self):
            raise KeyError("x")

    module, seen = Fails(), []
    module.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    module.register_forward_hook(lambda m, args, out: seen.append("never"))
    with pytest.raises(KeyError):
        module()
    assert seen == [None]


def test_backward_hooks_see_and_replace_gradients():
    layer, seen = doubled(), []
    layer.register_full_backward_pre_hook(lambda m, outs: (outs[0] * 3,))
    layer.register_full_backward_hook(lambda m, ins, outs: seen.append((ins, outs)))
    handle = layer.register_full_backward_hook(lambda m, ins, outs: (ins[0] + 1,))
    x = pb.ones(1, 2, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.tolist() == [[13, 13]]
    assert seen[0][0][0].tolist() == [[12, 12]] and seen[0][1][0].tolist() == [[3, 3]]
    assert layer.weight.grad.tolist() == [[3, 3], [3, 3]]
    handle.remove()
    x.grad = None
    layer(x).sum().backward()
    assert x.grad.tolist() == [[12, 12]]


def test_backward_hooks_where_no_input_requires_grad():
    layer, seen = doubled(), []
    layer.register_full_backward_hook(lambda m, ins, outs: seen.append(ins))
    with pytest.warns(UserWarning, match="no inputs require gradients"):
        layer(pb.ones(1, 2)).sum().backward()
    assert seen == [(None,)]
    layer.register_full_backward_hook(lambda m, ins, outs: outs)
    with (
        pytest.warns(UserWarning, match="no inputs require gradients"),
        pytest.raises(RuntimeError, match="should always return None"),
    ):
        layer(pb.ones(1, 2)).sum().backward()


def test_kinds_of_backward_hooks_do_not_mix():
    layer = doubled()
    handle = layer.register_full_backward_hook(print)
    with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full"):
        layer.register_backward_hook(print)
    handle.remove()


def test_hooks_of_all_modules():
    seen = []
    with of_all.register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__)):
        nn.Sequential(nn.ReLU(), nn.Identity())(pb.ones(1))
    nn.ReLU()(pb.ones(1))
    assert seen == ["ReLU", "Identity", "Sequential"]
    with of_all.register_module_parameter_registration_hook(
        lambda m, name, p: nn.Parameter(p.detach() * 0) if p is not None else None
    ):
        layer = nn.Linear(2, 2)
    assert layer.bias is not None
    x = pb.ones(1, 2, requires_grad=True)
    with of_all.register_module_full_backward_hook(lambda m, ins, outs: seen.append(outs[0].shape)):
        doubled()(x).sum().backward()
    assert seen[-1] == (1, 2)


def test_hooks_do_not_keep_a_module_alive(no_gc):
    import weakref

    layer = doubled()
    gone = weakref.ref(layer)
    layer.register_forward_hook(lambda m, args, out: None)
    layer(pb.ones(1, 2))
    del layer
    assert gone() is None
