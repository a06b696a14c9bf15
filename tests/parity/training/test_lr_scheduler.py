"""Schedules give torch's learning rates and momenta, and averages of models torch's values."""

import importlib
import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

LIBRARIES = ("pullback", "torch")
SCHEDULES = [
    ("LambdaLR", {"lr_lambda": lambda epoch: 0.95**epoch}),
    ("LambdaLR", {"lr_lambda": [lambda epoch: 0.95**epoch, lambda epoch: 1 / (epoch + 1)]}),
    ("MultiplicativeLR", {"lr_lambda": lambda epoch: 1 - 1 / (epoch + 2)}),
    ("StepLR", {"step_size": 7, "gamma": 0.3}),
    ("MultiStepLR", {"milestones": [30, 5, 11, 11], "gamma": 0.4}),
    ("ConstantLR", {"factor": 0.3, "total_iters": 9}),
    ("LinearLR", {"start_factor": 0.2, "end_factor": 0.7, "total_iters": 31}),
    ("ExponentialLR", {"gamma": 0.97}),
    ("CosineAnnealingLR", {"T_max": 9, "eta_min": 1e-3}),
    ("CosineAnnealingLR", {"T_max": 70}),
    ("PolynomialLR", {"total_iters": 40, "power": 1.7}),
    ("CosineAnnealingWarmRestarts", {"T_0": 4}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.01}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.3, "step_size_up": 6}),
    ("CyclicLR", {"base_lr": [0.01, 0.1], "max_lr": [0.3, 0.4], "step_size_up": 4,
                  "step_size_down": 9, "mode": "triangular2", "base_momentum": [0.5, 0.6]}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.3, "step_size_up": 5, "mode": "exp_range",
                  "gamma": 0.98, "max_momentum": 0.97}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.3, "step_size_up": 5, "scale_mode": "iterations",
                  "scale_fn": lambda step: 1 / (1 + step), "cycle_momentum": False}),
    ("OneCycleLR", {"max_lr": 0.3, "total_steps": 60}),
    ("OneCycleLR", {"max_lr": [0.3, 1.0], "epochs": 8, "steps_per_epoch": 9, "pct_start": 0.4,
                    "anneal_strategy": "linear", "three_phase": True, "max_momentum": [0.9, 0.8]}),
    ("OneCycleLR", {"max_lr": 0.3, "total_steps": 61, "three_phase": True, "div_factor": 3.0,
                    "final_div_factor": 10, "cycle_momentum": False}),
]  # fmt: skip
EPOCHS = 60


def module(library, name):
    return importlib.import_module(f"{library}.optim.{name}")


def make(library, kind="SGD", tensor_lr=False):
    """Return an optimizer with two groups."""
    source = importlib.import_module(library)
    groups = [
        {"params": [source.ones(2, requires_grad=True)], "lr": lr, "weight_decay": lr}
        for lr in (0.1, 0.25)
    ]
    if tensor_lr:
        for group in groups:
            group["lr"] = source.tensor(group["lr"], dtype=source.float64)
    options = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(source.optim, kind)(groups, lr=0.1, **options)


def options_of(optimizer):
    """Return the learning rates and momenta of an optimizer."""
    return [
        [float(group["lr"]), group.get("momentum", group.get("betas", (0,))[0])]
        for group in optimizer.param_groups
    ]


def history(optimizer, scheduler, steps=EPOCHS, **arguments):
    found = [options_of(optimizer)]
    for _ in range(steps):
        optimizer.step()
        scheduler.step(**arguments)
        found.append(options_of(optimizer))
        rates = [float(rate) for rate in scheduler.get_last_lr()]
        assert rates == [lr for lr, _ in found[-1]]
    return found


def assert_equal_histories(function):
    ours, theirs = (function(library) for library in LIBRARIES)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name, options", SCHEDULES, ids=lambda value: str(value)[:60])
def test_learning_rates_over_60_epochs(name, options, kind):
    def run(library):
        optimizer = make(library, kind)
        scheduler = getattr(module(library, "lr_scheduler"), name)(optimizer, **options)
        found = history(optimizer, scheduler)
        state = scheduler.state_dict()
        states.append({k: v for k, v in state.items() if not k.startswith("_scale_fn")})
        return found

    states = []
    assert_equal_histories(run)
    for value in states[0].keys() ^ states[1].keys():
        pytest.fail(f"only one state dict has {value}")


@pytest.mark.parametrize("name, options", SCHEDULES, ids=lambda value: str(value)[:60])
def test_learning_rates_go_on_from_a_state_dict(name, options):
    def run(library):
        schedules = module(library, "lr_scheduler")
        optimizer = make(library)
        scheduler = getattr(schedules, name)(optimizer, **options)
        history(optimizer, scheduler, 23)
        kept = optimizer.state_dict(), scheduler.state_dict()
        optimizer = make(library)
        scheduler = getattr(schedules, name)(optimizer, **options)
        optimizer.load_state_dict(kept[0])
        scheduler.load_state_dict(kept[1])
        found = history(optimizer, scheduler, 20)
        optimizer.param_groups[0]["initial_lr"] = 0.5
        again = getattr(schedules, name)(optimizer, **options, last_epoch=4)  # another way
        return found + history(optimizer, again, 10)

    assert_equal_histories(run)


@pytest.mark.parametrize("name, options", SCHEDULES, ids=lambda value: str(value)[:60])
@pytest.mark.filterwarnings("ignore:The epoch parameter")
def test_learning_rates_at_given_epochs(name, options):
    def run(library):
        optimizer = make(library)
        scheduler = getattr(module(library, "lr_scheduler"), name)(optimizer, **options)
        epochs = (3, 17, 5, 40, 2)
        if name == "CosineAnnealingWarmRestarts":
            epochs += (2.75, 33.5)
        return [history(optimizer, scheduler, 1, epoch=epoch) for epoch in epochs]

    assert_equal_histories(run)


@pytest.mark.parametrize("name, options", SCHEDULES, ids=lambda value: str(value)[:60])
def test_learning_rates_that_are_tensors(name, options):
    def run(library):
        optimizer = make(library, tensor_lr=True)
        before = [group["lr"] for group in optimizer.param_groups]
        scheduler = getattr(module(library, "lr_scheduler"), name)(optimizer, **options)
        found = history(optimizer, scheduler, 30)
        assert [group["lr"] is kept for group, kept in zip(optimizer.param_groups, before)]
        return found

    assert_equal_histories(run)


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 2},
        {"patience": 1, "mode": "max", "cooldown": 3, "factor": 0.5},
        {"patience": 0, "threshold": 0.05, "threshold_mode": "abs", "min_lr": [0.01, 0.02]},
        {"patience": 0, "mode": "max", "threshold": 0.1, "threshold_mode": "abs", "eps": 0.01},
    ],
    ids=str,
)
def test_plateaus_of_a_metric(options):
    metrics = np.random.default_rng(5).normal(size=EPOCHS).cumsum() * 0.2

    def run(library):
        optimizer = make(library)
        scheduler = module(library, "lr_scheduler").ReduceLROnPlateau(optimizer, **options)
        found = [history(optimizer, scheduler, 1, metrics=metric) for metric in metrics]
        states.append(scheduler.state_dict())
        return found

    states = []
    assert_equal_histories(run)
    assert states[0] == states[1]


def sequential(schedules, optimizer):
    parts = [
        schedules.LinearLR(optimizer, 0.1, total_iters=5),
        schedules.CosineAnnealingLR(optimizer, 20),
        schedules.ExponentialLR(optimizer, 0.9),
    ]
    return schedules.SequentialLR(optimizer, parts, [5, 30])


def chained(schedules, optimizer):
    parts = [
        schedules.ConstantLR(optimizer, 0.1, 5),
        schedules.StepLR(optimizer, 4, 0.8),
        schedules.CosineAnnealingLR(optimizer, 15),
    ]
    return schedules.ChainedScheduler(parts)


def nested(schedules, optimizer):
    parts = [sequential(schedules, optimizer), schedules.ExponentialLR(optimizer, 0.8)]
    parts = [schedules.SequentialLR(optimizer, parts, [40]), schedules.StepLR(optimizer, 3)]
    return schedules.ChainedScheduler(parts)


def warm_up(schedules, optimizer):
    parts = [
        schedules.LinearLR(optimizer, 0.1, total_iters=5),
        schedules.CosineAnnealingWarmRestarts(optimizer, 4, 2),
        schedules.OneCycleLR(optimizer, 0.3, total_steps=40),
    ]
    return schedules.SequentialLR(optimizer, parts, [5, 31])


@pytest.mark.filterwarnings("ignore:Detected call")  # as in torch, of a nested schedule
@pytest.mark.parametrize("build", [sequential, chained, nested, warm_up])
def test_combined_schedules(build):
    def run(library):
        optimizer = make(library)
        scheduler = build(module(library, "lr_scheduler"), optimizer)
        found = history(optimizer, scheduler, 13)
        kept = optimizer.state_dict(), scheduler.state_dict()
        optimizer = make(library)
        scheduler = build(module(library, "lr_scheduler"), optimizer)
        optimizer.load_state_dict(kept[0])
        scheduler.load_state_dict(kept[1])
        return found + history(optimizer, scheduler, 50)

    assert_equal_histories(run)


@pytest.mark.parametrize("options", [{}, {"anneal_strategy": "linear", "anneal_epochs": 4},
                                     {"anneal_epochs": 0}], ids=str)  # fmt: skip
def test_swa_learning_rates_beside_another_schedule(options):
    def run(library):
        optimizer = make(library)
        before = module(library, "lr_scheduler").ExponentialLR(optimizer, 0.9)
        found = history(optimizer, before, 7)
        scheduler = module(library, "swa_utils").SWALR(optimizer, [0.03, 0.04], **options)
        return found + history(optimizer, scheduler, 20)

    assert_equal_histories(run)


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("kind", ["default", "swa", "swa_multi", "ema", "ema_multi"])
def test_averages_of_models(kind, use_buffers):
    if kind == "swa_multi" and use_buffers:
        pytest.skip("torch refuses the integer buffer")
    tolerance = 1e-6 if kind == "swa_multi" else 1e-12  # torch divides by a float32 tensor

    def run(library):
        source = importlib.import_module(library)
        tools = module(library, "swa_utils")
        drawn = np.random.default_rng(3)
        model = source.nn.Sequential(source.nn.Linear(3, 2), source.nn.BatchNorm1d(2)).double()
        options = {
            "swa": lambda: {"avg_fn": tools.get_swa_avg_fn()},
            "swa_multi": lambda: {"multi_avg_fn": tools.get_swa_multi_avg_fn()},
            "ema": lambda: {"avg_fn": tools.get_ema_avg_fn(0.7)},
            "ema_multi": lambda: {"multi_avg_fn": tools.get_ema_multi_avg_fn(0.7)},
        }.get(kind, dict)()
        averaged = tools.AveragedModel(model, use_buffers=use_buffers, **options)
        batches = [source.tensor(drawn.normal(size=(8, 3)).tolist()).double() for _ in range(5)]
        for batch in batches:
            with source.no_grad():
                for param in model.parameters():
                    param.copy_(source.tensor(drawn.normal(size=tuple(param.shape)).tolist()))
            model(batch)
            averaged.update_parameters(model)
        states = [{k: v.numpy().copy() for k, v in averaged.state_dict().items()}]
        tools.update_bn([(batch, 0) for batch in batches], averaged)
        states.append({k: v.numpy().copy() for k, v in averaged.state_dict().items()})
        return states

    for ours, theirs in zip(*(run(library) for library in LIBRARIES)):
        assert list(ours) == list(theirs)
        for key, value in theirs.items():
            assert ours[key].dtype == value.dtype
            np.testing.assert_allclose(ours[key], value, rtol=tolerance, err_msg=key)


def signature(function):
    return [
        (name, part.kind, repr(part.default))
        for name, part in inspect.signature(function).parameters.items()
    ]


@pytest.mark.parametrize("name", ["lr_scheduler", "swa_utils"])
def test_signatures(name):
    ours, theirs = (module(library, name) for library in LIBRARIES)
    assert set(ours.__all__) == set(theirs.__all__)
    for public in theirs.__all__:
        own, other = getattr(ours, public), getattr(theirs, public)
        assert signature(own) == signature(other), public
        if inspect.isclass(other):
            for member in ("step", "get_lr", "get_last_lr", "state_dict", "load_state_dict"):
                if hasattr(other, member) and public != "AveragedModel":
                    assert signature(getattr(own, member)) == signature(getattr(other, member))
