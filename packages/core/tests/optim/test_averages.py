"""Averages of models: equal and exponential ones, batch normalization, learning rates."""

import numpy as np
import pytest

import pullback
from pullback import nn, optim
from pullback.optim import swa_utils

VALUES = [1.0, 4.0, 2.0, 7.0]


def averaged(use_buffers=False, **options):
    """Return the averages of a parameter and a buffer that take ``VALUES`` in turn."""
    model = nn.Linear(2, 1, bias=False).double()
    model.register_buffer("seen", pullback.zeros(1))
    found = swa_utils.AveragedModel(model, use_buffers=use_buffers, **options)
    assert found.module is not model
    for value in VALUES:
        model.weight.data.fill_(value)
        model.seen.fill_(10 * value)
        found.update_parameters(model)
    assert found.n_averaged.item() == len(VALUES)
    assert found.module.weight.requires_grad and found.module.weight.grad_fn is None
    return found


def exponential(decay):
    average = VALUES[0]
    for value in VALUES[1:]:
        average = decay * average + (1 - decay) * value
    return average


@pytest.mark.parametrize(
    "options, wanted",
    [
        ({}, np.mean(VALUES)),
        ({"avg_fn": swa_utils.get_swa_avg_fn()}, np.mean(VALUES)),
        ({"multi_avg_fn": swa_utils.get_swa_multi_avg_fn()}, np.mean(VALUES)),
        ({"avg_fn": swa_utils.get_ema_avg_fn(0.7)}, exponential(0.7)),
        ({"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.7)}, exponential(0.7)),
        ({"avg_fn": lambda average, value, count: value - count}, VALUES[-1] - 3),
    ],
    ids=["default", "swa", "swa_multi", "ema", "ema_multi", "own"],
)
def test_averages_of_parameters_and_buffers(options, wanted):
    model = averaged(**options)
    assert model.module.weight[0].tolist() == pytest.approx([wanted] * 2)
    assert model.module.seen.item() == 10 * VALUES[-1]  # copied
    scale = 1 if "avg_fn" in options and wanted == VALUES[-1] - 3 else 10
    model = averaged(use_buffers=True, **options)
    wanted = 10 * VALUES[-1] - 3 if scale == 1 else 10 * wanted
    assert model.module.seen.item() == pytest.approx(wanted, rel=1e-6)


def test_integer_buffers_are_averaged_too():
    model = nn.Linear(1, 1)
    model.register_buffer("count", pullback.tensor(0))
    for options in ({}, {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.5)}):
        found = swa_utils.AveragedModel(model, use_buffers=True, **options)
        for value in (2, 8):
            model.count.fill_(value)
            found.update_parameters(model)
        assert found.module.count.item() == 5


def test_averaged_model_is_a_module_with_torch_keys():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    found = swa_utils.AveragedModel(model)
    assert list(found.state_dict())[:2] == ["n_averaged", "module.0.weight"]
    x = pullback.ones(3, 2)
    assert pullback.equal(found.eval()(x), model.eval()(x))
    other = swa_utils.AveragedModel(model)
    found.update_parameters(model)
    other.load_state_dict(found.state_dict())
    assert other.n_averaged.item() == 1
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn should be"):
        swa_utils.AveragedModel(model, avg_fn=max, multi_avg_fn=max)
    for make in (swa_utils.get_ema_avg_fn, swa_utils.get_ema_multi_avg_fn):
        with pytest.raises(ValueError, match="Invalid decay value 2 provided"):
            make(2)


def test_batch_statistics_are_those_of_all_batches():
    drawn = np.random.default_rng(0)
    data = drawn.normal(2, 3, size=(5, 8, 3))
    model = nn.Sequential(nn.BatchNorm1d(3, momentum=0.3), nn.Dropout(0.5)).double().eval()
    batches = [pullback.tensor(batch.tolist(), dtype=pullback.float64) for batch in data]
    swa_utils.update_bn([(batch, "label") for batch in batches], model, device=batches[0].device)
    layer = model[0]
    np.testing.assert_allclose(layer.running_mean.numpy(), data.mean((0, 1)))
    np.testing.assert_allclose(layer.running_var.numpy(), data.var(1, ddof=1).mean(0))
    assert layer.momentum == 0.3 and not model.training and layer.num_batches_tracked == 5
    swa_utils.update_bn([], nn.Linear(1, 1))  # without batch normalization there is nothing to do


@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_learning_rates_anneal_to_the_rate_of_averaging(strategy):
    groups = [{"params": [pullback.ones(1, requires_grad=True)], "lr": lr} for lr in (1.0, 0.5)]
    optimizer = optim.SGD(groups)
    scheduler = swa_utils.SWALR(optimizer, [0.2, 0.8], 4, strategy)
    for epoch in range(1, 8):
        optimizer.step()
        scheduler.step()
        share = min(epoch / 4, 1)
        share = share if strategy == "linear" else (1 - np.cos(np.pi * share)) / 2
        wanted = [1.0 + (0.2 - 1.0) * share, 0.5 + (0.8 - 0.5) * share]
        assert scheduler.get_last_lr() == pytest.approx(wanted)


@pytest.mark.parametrize(
    "arguments, text",
    [
        (([0.1, 0.2],), "swa_lr must have the same length as optimizer.param_groups"),
        ((0.1, -1), "anneal_epochs must be equal or greater than 0, got -1"),
        ((0.1, 2, "x"), "anneal_strategy must be one of 'cos' or 'linear', instead got x"),
    ],
)
def test_rates_of_averaging_refuse(arguments, text):
    optimizer = optim.SGD([pullback.ones(1, requires_grad=True)])
    with pytest.raises(ValueError, match=text):
        swa_utils.SWALR(optimizer, *arguments)
