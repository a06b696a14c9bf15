"""Modules as functions of their parameters: replacement, per-sample gradients, ensembles."""

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.func import (
    functional_call,
    grad,
    jacrev,
    replace_all_batch_norm_modules_,
    stack_module_state,
    vmap,
)
from pullback.utils.checkpoint import checkpoint_sequential


def mlp():
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 2)).double()


def close(a, b):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-10, atol=1e-13)


class TestReplacement:
    def test_given_tensors_are_used_and_gone_after(self):
        layer = nn.Linear(2, 1)
        own = layer.weight
        x = pb.ones(2)
        given = pb.tensor([[2.0, 3.0]], requires_grad=True)
        out = functional_call(layer, {"weight": given, "bias": pb.zeros(1)}, (x,))
        assert out.item() == 5 and layer.weight is own
        out.backward()
        assert given.grad.tolist() == [[1, 1]] and own.grad is None
        assert functional_call(layer, {"weight": given}, x, {}).item() == 5 + layer.bias.item()
        assert functional_call(layer, {}, kwargs={"input": x}) == layer(x)

    def test_module_is_as_before_after_an_error(self):
        layer = nn.Linear(2, 1)
        own = layer.weight
        with pytest.raises(RuntimeError):
            functional_call(layer, {"weight": pb.ones(1, 3)}, pb.ones(2))
        for name, error in (("0", TypeError), ("", KeyError)):
            with pytest.raises(error, match=f"attribute `{name}`: Linear|be empty string"):
                functional_call(nn.Sequential(nn.Linear(2, 1)), {name: pb.ones(1, 2)}, pb.ones(2))
        with pytest.raises(TypeError, match=r"3 is not an instance of pullback\.Tensor"):
            functional_call(layer, {"weight": pb.ones(1, 3), "bias": 3}, pb.ones(2))
        assert layer.weight is own and not hasattr(layer, "other")

    def test_buffers_that_were_given_are_written(self):
        norm = nn.BatchNorm1d(2, momentum=1.0)
        buffers = {name: buffer.clone() for name, buffer in norm.named_buffers()}
        functional_call(norm, buffers, pb.tensor([[1.0, 2.0], [3.0, 6.0]]))
        assert buffers["running_mean"].tolist() == [2, 4]
        assert norm.running_mean.tolist() == [0, 0]

    def test_several_dicts_are_joined(self):
        layer = nn.Linear(2, 1)
        weight, bias = {"weight": pb.ones(1, 2)}, {"bias": pb.ones(1)}
        assert functional_call(layer, (weight, bias), pb.ones(2)) == 3
        with pytest.raises(ValueError, match=r"\['weight'\] appeared in multiple dictionaries"):
            functional_call(layer, (weight, weight), pb.ones(2))
        with pytest.raises(ValueError, match="Expected parameter_and_buffer_dicts to be a dict"):
            functional_call(layer, 3, pb.ones(2))

    def test_strict_names_all_keys(self):
        with pytest.raises(RuntimeError) as error:
            functional_call(nn.Linear(2, 1), {"b": pb.ones(1), "a": pb.ones(1)}, 1, strict=True)
        assert str(error.value) == (
            "Error(s) in reparametrizing for Linear:\n\tUnexpected key(s): 'a', 'b'.\n"
            "\tMissing key(s): 'bias', 'weight'."
        )

    def test_tied_weights_are_replaced_together(self):
        model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
        model[1].weight = model[0].weight
        given = {"0.weight": pb.tensor([[3.0]])}
        assert functional_call(model, given, pb.ones(1)) == 9
        own = model[0].weight.item()
        out = functional_call(model, given, pb.ones(1), tie_weights=False)
        assert out.item() == pytest.approx(3 * own)


def convolution():
    return nn.Sequential(
        nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)
    ).double()


def attention():
    layer = nn.TransformerEncoderLayer(3, 1, 4, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (1, 3)), layer, nn.Flatten(), nn.Linear(3, 2)).double()


@pytest.mark.parametrize("make", [mlp, convolution, attention])
def test_per_sample_gradients_are_those_of_a_loop(make):
    model = make()
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x, y = (pb.randn(6, size, dtype=pb.float64) for size in (3, 2))

    def loss(parameters, x, y):
        return ((functional_call(model, parameters, x[None]) - y) ** 2).sum()

    found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    for number in range(6):
        model.zero_grad()
        ((model(x[number : number + 1]) - y[number]) ** 2).sum().backward()
        for name, parameter in model.named_parameters():
            close(found[name][number], parameter.grad)


def test_ensemble_is_a_loop_over_models():
    models = [mlp() for _ in range(4)]
    parameters, buffers = stack_module_state(models)
    x = pb.randn(6, 3, dtype=pb.float64)

    def call(parameters, buffers, x):
        return functional_call(models[0], (parameters, buffers), (x,))

    together = vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)
    assert together.shape == (4, 6, 2)
    (together**2).sum().backward()
    for number, model in enumerate(models):
        out = model(x)
        close(together[number], out)
        (out**2).sum().backward()
        for name, parameter in model.named_parameters():
            assert parameters[name].is_leaf and parameters[name].requires_grad
            close(parameters[name].grad[number], parameter.grad)


def test_each_model_of_an_ensemble_has_its_own_batch():
    models = [nn.Linear(3, 2).double() for _ in range(4)]
    parameters, _ = stack_module_state(models)
    x = pb.randn(4, 5, 3, dtype=pb.float64)
    together = vmap(lambda p, x: functional_call(models[0], p, x))(parameters, x)
    for number, model in enumerate(models):
        close(together[number], model(x[number]))


def test_jacobian_by_parameters_is_that_of_the_formula():
    layer = nn.Linear(2, 3).double()
    x = pb.tensor([2.0, 5.0], dtype=pb.float64)
    jacobian = jacrev(lambda p: functional_call(layer, p, x))(dict(layer.named_parameters()))
    wanted = np.einsum("ij,k->ijk", np.eye(3), x.numpy())
    np.testing.assert_array_equal(jacobian["weight"].detach().numpy(), wanted)


def test_batch_norm_without_statistics_runs_under_vmap():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double()
    assert replace_all_batch_norm_modules_(model) is model
    assert model[1].running_mean is None and not model[1].track_running_stats
    x = pb.randn(2, 5, 3, dtype=pb.float64)
    together = vmap(lambda x: functional_call(model, {}, x))(x)
    for number in range(2):
        close(together[number], model(x[number]))


def test_stacked_models_must_be_alike():
    for models, message in (
        ([], "Expected at least one model, got 0"),
        ([nn.Linear(2, 2), nn.Linear(2, 2).eval()], "to have the same training/eval mode"),
        ([nn.Linear(2, 2), nn.Identity()], "to be of the same class"),
        (
            [nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2)],
            "Expected weight from each model to have the same .requires_grad",
        ),
    ):
        with pytest.raises(RuntimeError, match=message):
            stack_module_state(models)


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("segments", [1, 2, 5])
def test_checkpoint_of_sequential_has_the_same_gradients(segments, use_reentrant):
    model = nn.Sequential(*(nn.Linear(3, 3).double() for _ in range(4)), nn.Dropout(0.5))
    x = pb.randn(2, 3, dtype=pb.float64, requires_grad=True)
    found = []
    for call in (model, lambda x: checkpoint_sequential(model, segments, x, use_reentrant)):
        model.zero_grad()
        x.grad = None
        pb.manual_seed(0)
        (call(x) ** 2).sum().backward()
        found.append([x.grad, *(p.grad for p in model.parameters())])
    for one, other in zip(*found, strict=True):
        close(one, other)
