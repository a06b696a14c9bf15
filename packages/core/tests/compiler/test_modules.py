"""Compiled modules: ``compile(module)`` and ``module.compile()``."""

import copy
import warnings

import pytest

import pullback as pb
from pullback import nn
from pullback._dynamo.eval_frame import OptimizedModule

X = pb.tensor([[1.0, -2.0]])


def network():
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


def test_attributes_are_those_of_the_module():
    module = network()
    compiled = pb.compile(module)
    assert isinstance(compiled, OptimizedModule) and len(compiled) == 3 and compiled
    compiled.note = "mine"
    assert module.note == "mine" and "note" in dir(compiled)
    del compiled.note
    assert not hasattr(module, "note")
    compiled.training = False
    assert not module.training
    assert compiled.train() is compiled
    assert module.training and module[0].training
    plain = pb.compile(nn.Linear(2, 2))
    assert plain
    with pytest.raises(TypeError, match=r"object of type 'Linear' has no len\(\)"):
        len(plain)


def test_set_members_are_parameters_of_the_module():
    compiled = pb.compile(nn.Linear(2, 1, bias=False))
    compiled.weight = nn.Parameter(pb.ones(1, 2))
    assert list(dict(compiled.named_parameters())) == ["_orig_mod.weight"]
    assert compiled(X).item() == -1


def test_compile_in_place():
    module = network()
    module.compile()
    for _ in range(3):
        assert pb.equal(module(X), module._call_impl(X))
    assert module._compiled_call_impl.entries
    assert list(module.state_dict()) == list(network().state_dict())
    removed = module.register_forward_hook(lambda module, args, output: output * 2)
    assert pb.equal(module(X), 2 * module[2](module[1](module[0](X))))
    removed.remove()
    other = copy.deepcopy(module)
    with pb.no_grad():
        module[0].weight.mul_(2)
    assert pb.equal(module(X), module._call_impl(X))
    assert pb.equal(other(X), other._call_impl(X)) and not pb.equal(other(X), module(X))


def test_unknown_mode_is_refused():
    with pytest.raises(RuntimeError, match=r"Unrecognized mode=fast, should be one of: default"):
        pb.compile(network(), mode="fast")
    with pytest.raises(RuntimeError, match=r"Unrecognized mode=fast"):
        network().compile(mode="fast")


def test_modes_that_functions_set():
    def run(wrap):
        pb.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
        optimizer = pb.optim.SGD(net.parameters(), lr=0.1)

        def train(x):
            net.train()
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.item()

        def evaluate(x):
            net.eval()
            with pb.no_grad():
                return net(x).sum().item()

        train, evaluate, found = wrap(train), wrap(evaluate), []
        for number in range(20):
            found.append(train(pb.randn(6, 4)))
            found.append([one.training for one in net.modules()])
            if number % 3:
                found.append(evaluate(pb.randn(6, 4)))
                found.append([one.training for one in net.modules()])
        return found, train, evaluate

    (found, train, evaluate), (expected, _, _) = run(pb.compile), run(lambda function: function)
    assert found == expected
    assert sum(one.runs for one in train.entries) >= 14 and len(train.entries) <= 4
    assert sum(one.runs for one in evaluate.entries) >= 8 and len(evaluate.entries) <= 3


def test_function_that_counts_and_sets_modes_runs_eagerly():
    net, calls = nn.Linear(2, 2), []

    def function(x):
        calls.append(1)
        net.train(len(calls) % 2 == 0)
        return net(x)

    compiled = pb.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        modes = [(compiled(pb.ones(1, 2)), net.training)[1] for _ in range(6)]
    assert modes == [False, True] * 3 and len(calls) == 6
