"""Schedules against their closed forms; their order with steps, state dicts and errors."""

import copy
import math
import pickle

import numpy as np
import pytest

import pullback
from pullback import optim
from pullback.optim import lr_scheduler as schedules

EPOCHS = 55
BASE = (0.5, 2.0)


def make(kind=optim.SGD, count=2, **options):
    groups = [{"params": [pullback.ones(1, requires_grad=True)], "lr": lr} for lr in BASE[:count]]
    return kind(groups, lr=1.0, **({"momentum": 0.9} if kind is optim.SGD else {}), **options)


def rates(optimizer, scheduler, count=EPOCHS, *given):
    """Return the learning rates of all epochs, one row each."""
    found = [[group["lr"] for group in optimizer.param_groups]]
    for _ in range(count):
        optimizer.step()
        scheduler.step(*given)
        found.append(scheduler.get_last_lr())
    return np.array(found, dtype=float)


def triangle(epoch, up, down):
    place = epoch % (up + down)
    return place / up if place <= up else (up + down - place) / down


def restarted(epoch, length, factor):
    """Return the place in its period, from 0 to 1."""
    while epoch >= length:
        epoch, length = epoch - length, length * factor
    return epoch / length


def one_cycle(epoch, total=56, share=0.25):
    top, first, last = 1.0, 1.0 / 25, 1.0 / 25e4
    turn = share * total - 1
    if epoch <= turn:
        return first + (top - first) * epoch / turn
    return top + (last - top) * (epoch - turn) / (total - 1 - turn)


def cosine(place):
    return (1 + math.cos(math.pi * place)) / 2


# name, options, learning rate of an epoch from the initial one
CLOSED_FORMS = [
    ("LambdaLR", {"lr_lambda": lambda e: 0.9**e}, lambda e, b: b * 0.9**e),
    ("MultiplicativeLR", {"lr_lambda": lambda e: e / (e + 1)}, lambda e, b: b / (e + 1)),
    ("StepLR", {"step_size": 4, "gamma": 0.5}, lambda e, b: b * 0.5 ** (e // 4)),
    (
        "MultiStepLR",
        {"milestones": (7, 3, 7), "gamma": 0.5},
        lambda e, b: b * 0.5 ** ((e >= 3) + 2 * (e >= 7)),
    ),
    ("ConstantLR", {"factor": 0.25, "total_iters": 6}, lambda e, b: b / 4 if e < 6 else b),
    (
        "LinearLR",
        {"start_factor": 0.25, "end_factor": 0.75, "total_iters": 8},
        lambda e, b: b * (0.25 + 0.5 * min(e, 8) / 8),
    ),
    ("ExponentialLR", {"gamma": 0.95}, lambda e, b: b * 0.95**e),
    (
        "PolynomialLR",
        {"total_iters": 20, "power": 2.0},
        lambda e, b: b * (1 - min(e, 20) / 20) ** 2,
    ),
    (
        "CosineAnnealingLR",
        {"T_max": 9, "eta_min": 0.1},
        lambda e, b: 0.1 + (b - 0.1) * cosine(e / 9),
    ),
    (
        "CosineAnnealingWarmRestarts",
        {"T_0": 3, "T_mult": 2, "eta_min": 0.1},
        lambda e, b: 0.1 + (b - 0.1) * cosine(restarted(e, 3, 2)),
    ),
    (
        "CosineAnnealingWarmRestarts",
        {"T_0": 5},
        lambda e, b: b * cosine(restarted(e, 5, 1)),
    ),
    (
        "CyclicLR",
        {"base_lr": 0.1, "max_lr": 0.7, "step_size_up": 4, "step_size_down": 6},
        lambda e, b: 0.1 + 0.6 * triangle(e, 4, 6),
    ),
    (
        "CyclicLR",
        {"base_lr": list(BASE), "max_lr": 3.0, "step_size_up": 5, "mode": "triangular2"},
        lambda e, b: b + (3 - b) * triangle(e, 5, 5) / 2 ** (e // 10),
    ),
    (
        "CyclicLR",
        {"base_lr": 0.0, "max_lr": 1.0, "step_size_up": 5, "mode": "exp_range", "gamma": 0.9},
        lambda e, b: triangle(e, 5, 5) * 0.9**e,
    ),
    (
        "OneCycleLR",
        {"max_lr": 1.0, "total_steps": 56, "pct_start": 0.25, "anneal_strategy": "linear"},
        lambda e, b: one_cycle(e),
    ),
]
ids = lambda value: value if isinstance(value, str) else ""  # noqa: E731


@pytest.mark.parametrize("name, options, formula", CLOSED_FORMS, ids=ids)
def test_learning_rates_follow_the_closed_form(name, options, formula):
    optimizer = make()
    got = rates(optimizer, getattr(schedules, name)(optimizer, **options))
    wanted = [[formula(epoch, base) for base in BASE] for epoch in range(EPOCHS + 1)]
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-14)


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize(
    "name, options, formula",
    [case for case in CLOSED_FORMS if case[0] != "MultiplicativeLR"],  # it has no closed form
    ids=ids,
)
def test_learning_rates_of_a_given_epoch(name, options, formula):
    optimizer = make()
    scheduler = getattr(schedules, name)(optimizer, **options)
    optimizer.step()
    for epoch in (20, 3, 41):
        scheduler.step(epoch)
        wanted = [formula(epoch, base) for base in BASE]
        assert scheduler.get_last_lr() == pytest.approx(wanted, rel=1e-10)
        assert scheduler.last_epoch == epoch


@pytest.mark.parametrize("name, options, formula", CLOSED_FORMS, ids=ids)
def test_state_dict_continues(name, options, formula):
    optimizer = make()
    scheduler = getattr(schedules, name)(optimizer, **options)
    rates(optimizer, scheduler, 17)
    other = make()
    resumed = getattr(schedules, name)(other, **options)
    other.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(copy.deepcopy(scheduler.state_dict()))
    assert "optimizer" not in scheduler.state_dict()
    wanted = [[formula(17 + epoch, base) for base in BASE] for epoch in range(20)]
    np.testing.assert_allclose(rates(other, resumed, 19), wanted, rtol=1e-10)


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam])
def test_momentum_cycles_the_other_way_round(kind):
    def momentum():
        group = optimizer.param_groups[1]
        return group["momentum"] if kind is optim.SGD else group["betas"][0]

    optimizer = make(kind)
    scheduler = schedules.CyclicLR(
        optimizer, 0.1, 1.0, 4, base_momentum=[0.5, 0.6], max_momentum=0.8
    )
    for epoch in range(20):
        assert momentum() == pytest.approx(0.8 - 0.2 * triangle(epoch, 4, 4))
        optimizer.step()
        scheduler.step()
    optimizer = make(kind)
    scheduler = schedules.OneCycleLR(
        optimizer, 1.0, total_steps=21, pct_start=1 / 3, anneal_strategy="cos", three_phase=True
    )
    found = []
    for _ in range(20):
        found.append((momentum(), optimizer.param_groups[1]["lr"]))
        optimizer.step()
        scheduler.step()
    (first, *_), (top, *_) = (found[0], found[6])
    assert (first, top, found[12][0], found[-1][0]) == pytest.approx((0.95, 0.85, 0.95, 0.95))
    assert [found[i][1] for i in (0, 6, 12)] == pytest.approx([0.04, 1, 0.04])
    assert found[3][0] == pytest.approx(0.9) and found[3][1] == pytest.approx(0.52)


def test_plateau_waits_reduces_and_cools_down():
    optimizer = make()
    scheduler = schedules.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=1, cooldown=2, min_lr=[0.0, 0.9], threshold=0.1
    )
    # two bad epochs reduce; two do not count; an improvement below a tenth is none
    metrics = [1.0, 0.95, 0.92, 5.0, 5.0, 5.0, 0.5, 0.48, 0.5]
    bad = [0, 1, 0, 0, 0, 1, 0, 1, 0]
    halved = [0, 0, 1, 1, 1, 1, 1, 1, 2]
    for metric, count, power in zip(metrics, bad, halved, strict=True):
        scheduler.step(pullback.tensor(metric))
        assert scheduler.num_bad_epochs == count
        assert scheduler.get_last_lr() == [0.5 * 0.5**power, max(2.0 * 0.5**power, 0.9)]
    assert scheduler.best == 0.5 and scheduler.in_cooldown and scheduler.last_epoch == 9
    for mode, threshold_mode, better in (
        ("min", "abs", -0.2),
        ("max", "abs", 0.2),
        ("max", "rel", 0.2),
    ):
        options = {"mode": mode, "threshold_mode": threshold_mode, "threshold": 0.1}
        scheduler = schedules.ReduceLROnPlateau(make(), **options)
        for metric, best in ((1.0, 1.0), (1.0 + better / 4, 1.0), (1.0 + better, 1.0 + better)):
            scheduler.step(metric)
            assert scheduler.best == best


def test_plateau_of_more_groups_than_at_first():
    for min_lr in (0, [0, 0]):
        optimizer = make()
        scheduler = schedules.ReduceLROnPlateau(optimizer, patience=0, min_lr=min_lr)
        optimizer.add_param_group({"params": [pullback.ones(1, requires_grad=True)]})
        scheduler.step(1.0)
        if min_lr == 0:
            scheduler.step(1.0)
            assert scheduler.get_last_lr() == pytest.approx([0.05, 0.2, 0.1])
        else:
            with pytest.raises(RuntimeError, match=r"number of param groups .* \(3\) differs"):
                scheduler.step(1.0)


def test_sequence_and_chain_of_schedules():
    optimizer = make()
    parts = [
        schedules.LinearLR(optimizer, 0.2, total_iters=4),
        schedules.ExponentialLR(optimizer, 0.5),
        schedules.StepLR(optimizer, 2, 0.1),
    ]
    scheduler = schedules.SequentialLR(optimizer, parts, [4, 6])
    factors = [0.2, 0.4, 0.6, 0.8, 1, 0.5, 1, 1, 0.1, 0.1, 0.01]
    got = rates(optimizer, scheduler, 10)
    np.testing.assert_allclose(got, np.outer(factors, BASE), rtol=1e-10)
    assert scheduler.state_dict()["_schedulers"][2]["last_epoch"] == 4
    optimizer = make()
    parts = [
        schedules.ConstantLR(optimizer, 0.5, 3),
        schedules.ExponentialLR(optimizer, 0.9),
    ]
    scheduler = schedules.ChainedScheduler(parts)
    got = rates(optimizer, scheduler, 6)
    factors = [(0.5 if epoch < 3 else 1) * 0.9**epoch for epoch in range(7)]
    np.testing.assert_allclose(got, np.outer(factors, BASE), rtol=1e-10)
    other = make()
    resumed = schedules.ChainedScheduler(
        [schedules.ConstantLR(other, 0.5, 3), schedules.ExponentialLR(other, 0.9)]
    )
    other.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(scheduler.state_dict())
    assert rates(other, resumed, 1)[-1] == pytest.approx([base * 0.9**7 for base in BASE])


def test_functions_in_state_dicts_and_attributes_of_callables():
    class Power:
        def __init__(self, base):
            self.base = base

        def __call__(self, epoch):
            return self.base**epoch

    optimizer = make()
    scheduler = schedules.LambdaLR(optimizer, [Power(0.5), lambda epoch: 1.0])
    found = scheduler.state_dict()
    assert found["lr_lambdas"] == [{"base": 0.5}, None]
    other = schedules.LambdaLR(make(), [Power(0.9), lambda epoch: 2.0])
    other.load_state_dict(found)
    assert other.lr_lambdas[0].base == 0.5 and found["lr_lambdas"][0] == {"base": 0.5}
    cyclic = schedules.CyclicLR(make(), 0.1, 1.0, scale_fn=Power(0.5))
    assert cyclic.state_dict()["_scale_fn_custom"] == {"base": 0.5}
    again = schedules.CyclicLR(make(), 0.1, 1.0, scale_fn=Power(0.9))
    again.load_state_dict(cyclic.state_dict())
    assert again.scale_fn(2) == 0.25


def test_learning_rate_in_a_tensor_is_written_in_place():
    lr = pullback.tensor(0.5)
    optimizer = optim.SGD([pullback.ones(1, requires_grad=True)], lr=lr)
    scheduler = schedules.StepLR(optimizer, 1, 0.5)
    kept = scheduler.get_last_lr()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] is lr and lr.item() == 0.25
    assert kept[0].item() == 0.5 and scheduler.base_lrs[0].item() == 0.5


def test_order_of_steps_and_deprecated_calls_warn():
    scheduler = schedules.StepLR(make(), 2)
    with pytest.warns(UserWarning, match=r"`lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        scheduler.step()
    scheduler.step()  # only the first one warns
    optimizer = make()
    scheduler = schedules.StepLR(optimizer, 2)
    optimizer.step = lambda: None
    with pytest.warns(UserWarning, match="has been overridden after learning rate scheduler"):
        scheduler.step()
    with pytest.warns(UserWarning, match="The epoch parameter in `scheduler.step"):
        scheduler.step(3)
    with pytest.warns(UserWarning, match="please use `get_last_lr"):
        scheduler.get_lr()
    optimizer = make()
    scheduler = schedules.StepLR(optimizer, 2)
    schedules.StepLR(optimizer, 3)  # steps are tracked once
    optimizer.step()
    scheduler.step()


def test_copies_have_an_optimizer_of_their_own():
    optimizer = make()
    scheduler = schedules.CosineAnnealingLR(optimizer, 5)
    for duplicate in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        made = duplicate(scheduler)
        assert made.optimizer is not optimizer
        made._step_count = 2  # the copy of an optimizer does not track its steps
        made.step()
        assert made.get_last_lr() != scheduler.get_last_lr()
    assert optimizer.param_groups[0]["lr"] == BASE[0]


def sequence(parts, milestones=(1,), optimizer=None):
    return lambda: schedules.SequentialLR(optimizer or OPTIMIZER, parts(), list(milestones))


OPTIMIZER = make()
PLATEAU = schedules.ReduceLROnPlateau(OPTIMIZER)
STEP = schedules.StepLR(OPTIMIZER, 2)
REFUSED = [
    (lambda: schedules.StepLR(3, 2), TypeError, "int is not an Optimizer"),
    (lambda: PLATEAU.__class__(3), TypeError, "int is not an Optimizer"),
    (
        lambda: schedules.StepLR(make(), 2, last_epoch=3),
        KeyError,
        "param 'initial_lr' is not specified in param_groups[0] when resuming scheduler",
    ),
    (lambda: schedules.LambdaLR(make(), [abs]), ValueError, "Expected 2 lr_lambdas, but got 1"),
    (lambda: schedules.ConstantLR(make(), 2), ValueError, "factor expected to be between 0 and 1"),
    (lambda: schedules.LinearLR(make(), 0), ValueError, "expected to be greater than 0 and less"),
    (lambda: schedules.LinearLR(make(), 1, 2), ValueError, "Ending multiplicative factor expected"),
    (
        lambda: schedules.CosineAnnealingWarmRestarts(make(), 1.5),
        ValueError,
        "Expected positive integer T_0, but got 1.5",
    ),
    (
        lambda: schedules.CosineAnnealingWarmRestarts(make(), 1, 0),
        ValueError,
        "Expected integer T_mult >= 1, but got 0",
    ),
    (
        lambda: schedules.CosineAnnealingWarmRestarts(make(), 1).step(-1),
        ValueError,
        "Expected non-negative epoch, but got -1",
    ),
    (
        lambda: schedules.CyclicLR(make(), 0.1, 1, mode="x"),
        ValueError,
        "mode is invalid and scale_fn is None",
    ),
    (
        lambda: schedules.CyclicLR(make(), [0.1], 1),
        ValueError,
        "base_lr must have the same length as optimizer.param_groups. base_lr has 1 values",
    ),
    (
        lambda: schedules.CyclicLR(make(optim.Adagrad), 0.1, 1),
        ValueError,
        "optimizer must support momentum or beta1 with `cycle_momentum` option enabled",
    ),
    (
        lambda: schedules.OneCycleLR(make(), 1.0, epochs=3),
        ValueError,
        "You must define either total_steps OR (epochs AND steps_per_epoch)",
    ),
    (
        lambda: schedules.OneCycleLR(make(), 1.0, epochs=3, steps_per_epoch=0),
        ValueError,
        "Expected positive integer steps_per_epoch, but got 0",
    ),
    (
        lambda: schedules.OneCycleLR(make(), 1.0, 5, pct_start=1),
        ValueError,
        "Expected float between 0 and 1 pct_start, but got 1",
    ),
    (
        lambda: schedules.OneCycleLR(make(), 1.0, 5, anneal_strategy="x"),
        ValueError,
        "anneal_strategy must be one of 'cos' or 'linear', instead got x",
    ),
    (lambda: PLATEAU.__class__(make(), factor=1.0), ValueError, "Factor should be < 1.0."),
    (lambda: PLATEAU.__class__(make(), mode="x"), ValueError, "mode x is unknown!"),
    (
        lambda: PLATEAU.__class__(make(), threshold_mode="x"),
        ValueError,
        "threshold mode x is unknown!",
    ),
    (lambda: PLATEAU.__class__(make(), min_lr=[0]), ValueError, "expected 2 min_lrs, got 1"),
    (sequence(list), ValueError, "expects at least one scheduler, but got no scheduler"),
    (sequence(lambda: [STEP, STEP], (1, 2)), ValueError, "schedulers 2 and the number of milesto"),
    (sequence(lambda: [STEP, 3]), TypeError, "at index 1 should have `optimizer` as its attribute"),
    (sequence(lambda: [STEP, PLATEAU]), ValueError, "does not support `ReduceLROnPlateau` schedul"),
    (
        lambda: schedules.ChainedScheduler([STEP, schedules.StepLR(make(), 1)]),
        ValueError,
        "expects all schedulers to belong to the same optimizer, but got scheduler StepLR at index",
    ),
    (lambda: schedules.ChainedScheduler([]), ValueError, "at least one scheduler to be chained"),
]


@pytest.mark.parametrize("make, kind, text", REFUSED, ids=[case[2][:40] for case in REFUSED])
def test_schedules_refuse(make, kind, text):
    with pytest.raises(kind) as caught:
        make()
    assert text in str(caught.value)


def test_one_cycle_ends():
    optimizer = make()
    scheduler = schedules.OneCycleLR(optimizer, 1.0, total_steps=3)
    rates(optimizer, scheduler, 3)
    with pytest.raises(ValueError, match="Tried to step 4 times"):
        scheduler.step()
