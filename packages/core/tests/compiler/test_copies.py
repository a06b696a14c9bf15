"""Copies and pickles of what holds compiled state."""

import copy
import pickle

import pytest

import pullback as pb


def double(x):
    return x * 2


def test_copy_of_a_compiled_function_begins_without_programs():
    compiled = pb.compile(double, fullgraph=True)
    compiled(pb.ones(2))
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert other.entries == []
        assert other.fullgraph
        assert other(pb.ones(2)).tolist() == [2.0, 2.0]


def test_copied_module_computes_with_its_own_parameters():
    compiled = pb.compile(pb.nn.Linear(1, 1, bias=False))
    compiled(pb.ones(1, 1))
    other = copy.deepcopy(compiled)
    with pb.no_grad():
        compiled.weight.fill_(2)
        other.weight.fill_(3)
    assert compiled(pb.ones(1, 1)).item() == 2
    assert other(pb.ones(1, 1)).item() == 3


@pytest.mark.parametrize("mode", [pb.no_grad, pb.enable_grad, pb.inference_mode, pb.Generator])
@pytest.mark.parametrize("copied", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
def test_modes_and_generators_can_be_copied(mode, copied):
    made = mode()
    assert type(copied(made)) is type(made)


def test_nodes_cannot_be_copied():
    node = pb.ones(1, requires_grad=True).exp().grad_fn
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot pickle 'ExpBackward0' object"):
            copied(node)
