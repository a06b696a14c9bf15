"""compile: options of optimizers that change between steps, as schedulers change them."""

import copy
import operator
import warnings

import pytest

import pullback as pb
from pullback import nn
from pullback.optim import lr_scheduler

needs_kernels = pytest.mark.skipif(
    pb.get_default_device().type == "ref",
    reason="without kernels for their steps, optimizers compute them op by op",
)


def trained(steps, optimizer, scheduler, compiled, settings):
    """Return the losses and the parameters of a run, and how many programs it made."""
    pb.manual_seed(0)
    model = nn.Linear(3, 2)
    opt = optimizer(model.parameters(), **settings)
    schedule = scheduler(opt)

    def step(x):
        opt.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        opt.step()
        return loss

    run = pb.compile(step, fullgraph=True) if compiled else step
    losses = []
    for _ in range(steps):
        losses.append(run(pb.randn(4, 3)).item())
        schedule.step()
    return losses, [p.tolist() for p in model.parameters()], len(run.entries) if compiled else 0


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (pb.optim.SGD, {"lr": 0.1, "weight_decay": 0.01}),
        (pb.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        (pb.optim.Adam, {"lr": 0.01}),
        (pb.optim.AdamW, {"lr": 0.01, "amsgrad": True}),
        (pb.optim.RMSprop, {"lr": 0.01, "momentum": 0.5}),
        (pb.optim.Adagrad, {"lr": 0.01, "lr_decay": 0.1}),
        (pb.optim.Adamax, {"lr": 0.01, "maximize": True}),
        (pb.optim.NAdam, {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}),
        (pb.optim.RAdam, {"lr": 0.01, "betas": (0.8, 0.9)}),
        (pb.optim.Adadelta, {"lr": 0.5}),
        (pb.optim.ASGD, {"lr": 0.01, "t0": 5.0}),
        (pb.optim.Adafactor, {"lr": 0.01, "weight_decay": 0.1}),
        (pb.optim.Rprop, {"lr": 0.01}),
    ],
)
def test_learning_rate_that_changes_needs_one_program(optimizer, settings):
    def scheduler(opt):
        return lr_scheduler.ExponentialLR(opt, 0.9)

    expected = trained(25, optimizer, scheduler, False, settings)
    found = trained(25, optimizer, scheduler, True, settings)
    assert found[:2] == expected[:2]
    assert found[2] == 1


@needs_kernels
@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (pb.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (pb.optim.Adam, {"lr": 0.01, "betas": (0.9, 0.99)}),
    ],
)
def test_momentum_that_changes_needs_one_program(optimizer, settings):
    def scheduler(opt):
        return lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=30)

    expected = trained(25, optimizer, scheduler, False, settings)
    found = trained(25, optimizer, scheduler, True, settings)
    assert found[:2] == expected[:2]
    assert found[2] == 1


@needs_kernels
def test_momentum_that_becomes_zero_needs_another_program():
    class Drop:
        def __init__(self, opt):
            self.opt, self.count = opt, 0

        def step(self):
            self.count += 1
            if self.count >= 5:
                self.opt.param_groups[0]["momentum"] = 0.0

    settings = {"lr": 0.1, "momentum": 0.9}
    expected = trained(10, pb.optim.SGD, Drop, False, settings)
    found = trained(10, pb.optim.SGD, Drop, True, settings)
    assert found[:2] == expected[:2]
    assert found[2] == 2


@needs_kernels
def test_groups_have_rates_of_their_own():
    def run(compiled):
        a, b = (pb.ones(2, requires_grad=True) for _ in range(2))
        opt = pb.optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.1}], lr=0.1)

        def step():
            opt.zero_grad()
            (a * b).sum().backward()
            opt.step()

        function = pb.compile(step, fullgraph=True) if compiled else step
        for number in range(6):
            opt.param_groups[number % 2]["lr"] = 0.1 / (number + 1)
            function()
        return a.tolist(), b.tolist(), len(function.entries) if compiled else 1

    assert run(True) == run(False)


def test_rate_that_other_code_reads_is_watched():
    x = pb.ones(2, requires_grad=True)
    opt = pb.optim.SGD([x], lr=0.5)

    @pb.compile
    def step():
        opt.zero_grad()
        (x * x).sum().backward()
        opt.step()
        return x.detach() * opt.param_groups[0]["lr"]

    for rate in (0.5, 0.25, 0.125):
        opt.param_groups[0]["lr"] = rate
        before = x.detach().clone()
        assert step().tolist() == (before * (1 - 2 * rate) * rate).tolist()


def test_rate_of_a_group_in_a_closure_is_watched():
    x = pb.ones(2, requires_grad=True)
    opt = pb.optim.SGD([x], lr=0.5)
    group = opt.param_groups[0]

    @pb.compile
    def step():
        opt.zero_grad()
        (x * x).sum().backward()
        opt.step()
        return sum(v for v in group.values() if type(v) is float)

    for rate in (0.5, 0.25, 0.25, 0.125):
        opt.param_groups[0]["lr"] = rate
        assert step() == sum(v for v in group.values() if type(v) is float)


def test_rate_of_an_optimizer_without_a_fused_step_is_watched():
    class Signs(pb.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def _step_group(self, group):
            for p, grad in zip(*self._gather(group)):
                p.sub_(grad.sign(), alpha=group["lr"])

    x = pb.ones(2, requires_grad=True)
    opt = Signs([x], 0.5)

    @pb.compile
    def step():
        opt.zero_grad()
        (x * x).sum().backward()
        opt.step()

    for rate in (0.5, 0.25, 0.125, 0.0625):
        before = copy.copy(x.detach().tolist())
        opt.param_groups[0]["lr"] = rate
        step()
        assert x.tolist() == [one - rate for one in before]


def test_scheduler_inside_is_not_replayed_without_its_step():
    x = pb.ones(2, requires_grad=True)
    opt = pb.optim.SGD([x], lr=0.5)
    schedule = lr_scheduler.ExponentialLR(opt, 0.5)

    @pb.compile
    def step():
        opt.zero_grad()
        x.sum().backward()
        opt.step()
        schedule.step()

    for _ in range(3):
        step()
    with pytest.warns(UserWarning, match="changes what it refers to"):
        step()
    for _ in range(2):
        step()
    assert opt.param_groups[0]["lr"] == 0.5 * 0.5**6
    assert x.tolist() == [1 - (1 - 0.5**6)] * 2


def rate_of(group):
    return group["lr"]


# Code beside a step: what it returns, and whether it depends on the learning rate.
BESIDE = {
    "state of a module": (lambda net, opt, sched: sorted(net.state_dict()), False),
    "parameters of groups": (
        lambda net, opt, sched: [
            float(len(pb.nn.utils.clip_grad_norm_(group["params"], 9.0).shape))
            for group in opt.param_groups
        ],
        False,
    ),
    "first group": (lambda net, opt, sched: len(opt.param_groups[0]["params"]), False),
    "name of a metric": (lambda net, opt, sched: {"lr": 1.0, "momentum": len("lr ")}, False),
    "name of an argument": (lambda net, opt, sched: dict(lr=1.0, x=2), False),
    "item": (lambda net, opt, sched: opt.param_groups[0]["lr"], True),
    "items": (lambda net, opt, sched: [group["lr"] for group in opt.param_groups], True),
    "metric": (lambda net, opt, sched: {"lr": opt.param_groups[0]["lr"]}, True),
    "get": (lambda net, opt, sched: opt.param_groups[0].get("lr"), True),
    "key": (lambda net, opt, sched: [opt.param_groups[0][key] for key in ("lr",)], True),
    "copy": (lambda net, opt, sched: {**opt.param_groups[0]}["lr"], True),
    "all items": (
        lambda net, opt, sched: [v for k, v in opt.param_groups[0].items() if k[0] == "l"],
        True,
    ),
    "helper": (lambda net, opt, sched: rate_of(opt.param_groups[0]), True),
    "helper for each": (lambda net, opt, sched: [rate_of(g) for g in opt.param_groups], True),
    "last rates": (lambda net, opt, sched: sched.get_last_lr()[0], True),
    "state": (lambda net, opt, sched: opt.state_dict()["param_groups"][0]["lr"], True),
    "state of the schedule": (lambda net, opt, sched: sched.state_dict()["_last_lr"][0], True),
    "text": (lambda net, opt, sched: repr(opt), True),
    "by name": (lambda net, opt, sched: getattr(opt, "param_groups")[0]["lr"], True),  # noqa: B009
}


def loop(net, opt, sched):
    for group in opt.param_groups:
        pb.nn.utils.clip_grad_value_(group["params"], 5.0)


GROUPS, RATE = "param_groups", "lr"
BESIDE["loop"] = (loop, False)
BESIDE["name in a global"] = (lambda net, opt, sched: getattr(opt, GROUPS)[0][RATE], True)
BESIDE["attributes"] = (lambda net, opt, sched: vars(opt)[GROUPS][0][RATE], True)
BESIDE["format"] = (lambda net, opt, sched: f"{opt.param_groups[0]['lr']}", True)
BESIDE["getter"] = (lambda net, opt, sched: operator.attrgetter(GROUPS)(opt)[0][RATE], True)


@needs_kernels
@pytest.mark.parametrize("name", BESIDE)
def test_code_beside_a_step_depends_on_a_rate_only_if_it_reads_it(name):
    function, reads = BESIDE[name]

    def run(compile_it):
        pb.manual_seed(0)
        net = pb.nn.Linear(3, 2)
        opt = pb.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        sched = pb.optim.lr_scheduler.CosineAnnealingLR(opt, 20)

        def step(x):
            opt.zero_grad()
            net(x).square().sum().backward()
            opt.step()
            return function(net, opt, schedule)

        schedule = sched if reads else None  # which has a state that changes
        step = pb.compile(step) if compile_it else step
        found = []
        for _ in range(7):
            found += [step(pb.randn(4, 3)), net.weight.tolist()]
            sched.step()
        return found, step

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (found, step), (expected, _) = run(True), run(False)
    assert found == expected
    if not reads:
        assert len(step.entries) <= 2 and step.entries[-1].runs >= 4


def test_closure_of_a_search_does_not_depend_on_the_state_of_the_search():
    def run(wrap):
        pb.manual_seed(0)
        net = pb.nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        x, y = pb.randn(16, 4), pb.randn(16, 1)
        opt = pb.optim.LBFGS(net.parameters(), lr=0.1, max_iter=5)

        def closure():
            opt.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            return loss

        closure = wrap(closure)
        return [opt.step(closure).item() for _ in range(8)], closure

    (found, closure), (expected, _) = run(pb.compile), run(lambda function: function)
    assert found == expected and sum(one.runs for one in closure.entries) >= 35


def test_step_that_is_compiled_itself_depends_on_its_state():
    def run(wrap):
        w = pb.ones(3, requires_grad=True)
        opt = pb.optim.SGD([w], lr=0.1, momentum=0.9)
        step, found = wrap(opt.step), []
        for number in range(8):
            w.grad = pb.full((3,), float(number))
            if number == 4:
                opt.state.clear()
            step()
            found.append(w.tolist())
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(pb.compile) == run(lambda function: function)


def test_parameters_that_are_frozen_in_turn_have_a_program_each():
    def run(wrap):
        pb.manual_seed(0)
        net = pb.nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        opt = pb.optim.SGD(net.parameters(), lr=0.1)

        def step(x):
            opt.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            opt.step()
            return loss.item()

        step, found = wrap(step), []
        for number in range(20):
            net[0].requires_grad_(number % 2 == 0)
            net[2].requires_grad_(number % 2 == 1)
            found.append(step(pb.randn(3, 4)))
        return found, [p.tolist() for p in net.parameters()], step

    (*found, step), (*expected, _) = run(pb.compile), run(lambda function: function)
    assert found == expected and sum(one.runs for one in step.entries) >= 15


def test_rates_of_optimizers_that_make_no_step_do_not_matter():
    """As where gradients are accumulated over several calls before a step."""
    x = pb.ones(3, requires_grad=True)
    opt = pb.optim.SGD([x], lr=0.5, weight_decay=0.25)

    @pb.compile(fullgraph=True)
    def accumulate(scale, last):
        loss = (x * scale).sum() * 0.75
        loss.backward()
        if last:
            opt.step()
            opt.zero_grad()
        return loss

    y = pb.ones(3, requires_grad=True)
    plain = pb.optim.SGD([y], lr=0.5, weight_decay=0.25)
    for number in range(40):
        last = number % 4 == 3
        found = accumulate(pb.full((3,), number % 5 + 1.0), last)
        expected = (y * pb.full((3,), number % 5 + 1.0)).sum() * 0.75
        expected.backward()
        if last:
            plain.step()
            plain.zero_grad()
        assert found.item() == expected.item()
        for one in (opt, plain):
            one.param_groups[0]["lr"] *= 0.9
    assert x.tolist() == y.tolist()
    assert len(accumulate.entries) <= 4


@pytest.mark.parametrize("name", ["Adafactor", "Rprop", "Adam"])
def test_sizes_and_rates_that_change(name):
    weight = pb.ones(4, 2, requires_grad=True)
    other = pb.ones(4, 2, requires_grad=True)

    def make(parameter):
        optimizer = getattr(pb.optim, name)([parameter], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = (x @ parameter).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        return step, optimizer

    (step, one), (plain, two) = make(weight), make(other)
    compiled = pb.compile(step, dynamic=True)
    for number in range(30):
        x = pb.full((number % 11 + 2, 4), 0.5)
        assert compiled(x).item() == plain(x).item()
        for optimizer in (one, two):
            optimizer.param_groups[0]["lr"] *= 0.95
    assert weight.tolist() == other.tolist()
    assert len(compiled.entries) < 16


@pytest.mark.parametrize(
    "name", ["SGD", "AdamW", "NAdam", "ASGD", "Rprop", "Adafactor", "Muon", "RMSprop"]
)
def test_a_rate_that_is_a_tensor(name):
    """Its number is that of each run, whoever writes it."""

    def train(compiled):
        pb.manual_seed(2)
        weight = pb.rand(3, 2, requires_grad=True)
        rate = pb.tensor(0.1)
        optimizer = getattr(pb.optim, name)([weight], lr=rate)
        schedule = lr_scheduler.ExponentialLR(optimizer, 0.9)

        def step(x):
            optimizer.zero_grad()
            loss = (x @ weight).square().sum()
            loss.backward()
            optimizer.step()
            return loss

        run = pb.compile(step, fullgraph=True) if compiled else step
        losses = []
        for number in range(12):
            losses.append(run(pb.rand(4, 3)).item())
            schedule.step()
            if number == 6:
                optimizer.param_groups[0]["lr"].mul_(2)
        return losses, weight.tolist(), len(run.entries) if compiled else 1

    assert train(True) == train(False)


def test_a_rate_that_the_function_writes():
    weight, rate = pb.ones(3, requires_grad=True), pb.tensor(0.1)
    optimizer = pb.optim.SGD([weight], lr=rate)

    @pb.compile
    def step():
        rate.mul_(0.5)
        optimizer.zero_grad()
        weight.square().sum().backward()
        optimizer.step()

    with pytest.warns(UserWarning, match="the number of a learning rate that is a tensor"):
        step()
    step()
    step()
    pb.testing.assert_close(weight.detach(), pb.full((3,), 0.9 * 0.95 * 0.975))
