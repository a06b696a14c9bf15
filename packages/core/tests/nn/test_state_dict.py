"""State dicts: what they hold, what loading checks and reports, hooks on both ways."""

from collections import OrderedDict

import pytest

import pullback as pb
from pullback import nn


def model():
    return nn.Sequential(OrderedDict(a=nn.Linear(2, 3), b=nn.BatchNorm1d(3)))


def test_it_has_parameters_and_persistent_buffers_that_share_memory():
    one = model()
    one.register_buffer("temporary", pb.ones(1), persistent=False)
    state = one.state_dict(prefix="m.")
    assert list(state) == [
        *("m.a.weight", "m.a.bias", "m.b.weight", "m.b.bias"),
        *("m.b.running_mean", "m.b.running_var", "m.b.num_batches_tracked"),
    ]
    assert not state["m.a.weight"].requires_grad
    state["m.a.weight"].zero_()
    assert (one.a.weight == 0).all()
    assert one.state_dict(keep_vars=True)["a.weight"] is one.a.weight
    assert state._metadata == {"m": {"version": 1}, "m.a": {"version": 1}, "m.b": {"version": 2}}


def test_loading_copies_and_assigning_takes():
    one, other = model(), model()
    weight = one.a.weight
    assert repr(one.load_state_dict(other.state_dict())) == "<All keys matched successfully>"
    assert one.a.weight is weight and pb.equal(weight, other.a.weight)
    source = {key: value.double() for key, value in other.state_dict().items()}
    one.load_state_dict(source, assign=True)
    assert one.a.weight.dtype == pb.float64 and isinstance(one.a.weight, nn.Parameter)
    assert one.a.weight.data_ptr() == source["a.weight"].data_ptr()
    assert one.a.weight.requires_grad


def test_every_problem_is_listed_at_once():
    state = model().state_dict()
    del state["a.bias"], state["b.running_mean"]
    state["a.weight"] = pb.ones(5, 2)
    state["c.weight"] = pb.ones(1)
    state["b.extra"] = pb.ones(1)
    state["b.bias"] = 3
    with pytest.raises(RuntimeError) as error:
        model().load_state_dict(state)
    assert str(error.value).split("\n\t") == [
        "Error(s) in loading state_dict for Sequential:",
        'Missing key(s) in state_dict: "a.bias", "b.running_mean". ',
        'Unexpected key(s) in state_dict: "c.weight", "b.extra". ',
        "size mismatch for a.weight: copying a param with shape pullback.Size([5, 2]) from "
        "checkpoint, the shape in current model is pullback.Size([3, 2]).",
        'While copying the parameter named "b.bias", expected pullback.Tensor or Tensor-like '
        "object from checkpoint but received <class 'int'>",
    ]


def test_not_strict_returns_what_did_not_match():
    state = model().state_dict()
    del state["a.bias"]
    state["c"] = pb.ones(1)
    found = model().load_state_dict(state, strict=False)
    assert found.missing_keys == ["a.bias"] and found.unexpected_keys == ["c"]
    with pytest.raises(TypeError, match="Expected state_dict to be dict-like"):
        model().load_state_dict([1])


def test_a_failed_load_leaves_other_tensors_loaded_and_names_the_error():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("x", pb.ones(2)[:1].expand(3))

    with pytest.raises(RuntimeError, match='named "x", whose dimensions in the model are'):
        Odd().load_state_dict({"x": pb.zeros(3)})


def test_extra_state():
    class Counting(nn.Module):
        count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    one, other = nn.Sequential(Counting()), nn.Sequential(Counting())
    one[0].count = 7
    assert one.state_dict() == {"0._extra_state": {"count": 7}}
    other.load_state_dict(one.state_dict())
    assert other[0].count == 7
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "0._extra_state"'):
        other.load_state_dict({})
    with pytest.raises(RuntimeError, match="Unexpected key"):
        nn.Sequential(nn.ReLU()).load_state_dict(one.state_dict())


def test_hooks():
    one, seen = model(), []
    one.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append("before"))
    one.register_state_dict_post_hook(lambda m, state, prefix, local: state.update(x=pb.ones(1)))
    one.register_load_state_dict_pre_hook(
        lambda m, state, prefix, local, strict, missing, unexpected, errors: state.pop("x")
    )
    one.register_load_state_dict_post_hook(lambda m, keys: seen.append(list(keys)))
    one.load_state_dict(one.state_dict())
    assert seen == ["before", [[], []]]
    one.a.register_load_state_dict_post_hook(lambda m, keys: 3)
    with pytest.raises(RuntimeError, match="are not expected to return new values"):
        one.load_state_dict(one.state_dict())


def test_batch_norm_without_a_count_is_of_version_1():
    layer = nn.BatchNorm1d(2)
    state = OrderedDict((k, v) for k, v in layer.state_dict().items() if "num_batches" not in k)
    layer.load_state_dict(state)
    assert layer.num_batches_tracked == 0
