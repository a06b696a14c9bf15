"""Gradients that compiled functions read and add to: other tensors in each call."""

import warnings

import pytest

import pullback as pb

OPTIMIZERS = {
    "SGD": {"momentum": 0.9},
    "Adam": {},
    "AdamW": {},
    "Adamax": {},
    "RMSprop": {},
    "Adagrad": {},
    "Adadelta": {},
    "NAdam": {},
}


def results_of(run):
    """Return what a run gives with a function as it is, and compiled; and its programs' runs."""
    runs = []

    def compiled(function):
        made = pb.compile(function)
        runs.append(made.entries)
        return made

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run(lambda function: function), run(compiled), [len(one) for one in runs], runs


def network(size):
    pb.manual_seed(0)
    return pb.nn.Sequential(pb.nn.Linear(size, size), pb.nn.ReLU(), pb.nn.Linear(size, 2))


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_step_of_an_optimizer_takes_the_gradients_that_are_there(name, foreach):
    def run(wrap):
        net, found, kept = network(3), [], []
        options = {**OPTIMIZERS[name], **({} if name == "NAdam" else {"foreach": foreach})}
        optimizer = getattr(pb.optim, name)(net.parameters(), lr=0.1, **options)
        step = wrap(optimizer.step)
        for number in range(6):
            optimizer.zero_grad()
            (net(pb.ones(2, 3)) * number).square().sum().backward()
            kept.append([p.grad for p in net.parameters()])  # no memory is used again
            step()
            found += [p.tolist() for p in net.parameters()]
        return found

    eager, compiled, _, _ = results_of(run)
    assert eager == compiled


@pytest.mark.parametrize("size", [3, 128])  # gradients of large products are added in place
def test_gradients_are_added_to_those_that_are_there(size):
    def run(wrap):
        net, found, kept = network(size), [], []
        optimizer = pb.optim.SGD(net.parameters(), lr=0.01)
        add = wrap(lambda x: net(x).square().mean().backward())
        step = wrap(optimizer.step)
        for number in range(6):
            optimizer.zero_grad()
            for k in range(3):
                add(pb.full((size, size), 0.1 * (number + k)))
            kept.append([p.grad for p in net.parameters()])
            step()
            found += [p.tolist() for p in net.parameters()]
        return found

    eager, compiled, counts, entries = results_of(run)
    assert eager == compiled and counts == [2, 1]
    assert [[one.runs for one in some] for some in entries] == [[5, 11], [5]]


@pytest.mark.parametrize("kind", ["flat", "same", "argument", "view kept", "array"])
def test_gradients_that_share_memory(kind):
    def run(wrap):
        ps, found = [pb.nn.Parameter(pb.ones(2)), pb.nn.Parameter(pb.ones(2))], []
        optimizer, kept = pb.optim.SGD(ps, lr=0.1), []

        def function(x):
            for p in ps:
                p.grad.add_(x)
            optimizer.step()
            return x + 0

        step = wrap(function)
        for number in range(8):
            flat = pb.full((4,), float(number))
            x = pb.ones(2)
            ps[0].grad, ps[1].grad = pb.full((2,), 1.0 + number), pb.full((2,), 2.0 + number)
            if kind == "flat" or (kind == "same" and number % 2):
                ps[0].grad, ps[1].grad = flat[:2], flat[2:] if kind == "flat" else ps[0].grad
            elif kind == "argument" and number % 2:
                x = ps[number % 4 // 2].grad
            elif kind == "view kept":
                kept.append(ps[0].grad[:1])
            elif kind == "array":
                memory = pb.ones(2).numpy()
                ps[0].grad, ps[1].grad = pb.from_numpy(memory), pb.from_numpy(memory)
            kept.append([p.grad for p in ps])
            found += [step(x).tolist(), *(p.tolist() for p in ps), *(p.grad.tolist() for p in ps)]
        return found

    eager, compiled, _, _ = results_of(run)
    assert eager == compiled


def test_results_with_parameters_and_arguments_behind_them():
    """An argument's number is never compared with a parameter, whose value may be that number."""

    def run(wrap):
        pb.manual_seed(0)
        body, one, other = pb.nn.Linear(4, 8), pb.nn.Linear(8, 3), pb.nn.Linear(8, 1)
        zero = pb.nn.Parameter(pb.zeros(()))
        heads = wrap(lambda h: (one(h), other(h), h * 2, zero * 3))
        found = []
        for number in range(6):
            h = pb.tanh(body(pb.randn(5, 4)))
            h.retain_grad()
            results = heads(h)
            sum(part.sum() for k, part in enumerate(results) if k != number % 5).backward()
            found.append([None if p.grad is None else p.grad.tolist() for p in (h, zero)])
        leaf = pb.ones(2, requires_grad=True)
        reach = wrap(lambda x: (x * 2, zero * 3))
        for _ in range(3):
            reach(leaf)[1].backward()
        return [*found, leaf.grad, zero.grad.tolist(), [p.grad.tolist() for p in body.parameters()]]

    eager, compiled, counts, _ = results_of(run)
    assert eager == compiled and counts == [1, 1]


CLEARED = {
    "module": lambda net: net.zero_grad(),
    "loop": lambda net: [setattr(p, "grad", None) for p in net.parameters() if p.grad is not None],
    "assignment": lambda net: [setattr(p, "grad", None) for p in net.parameters()],
}


@pytest.mark.parametrize("way", CLEARED)
def test_gradients_that_are_cleared_in_the_step(way):
    def run(wrap):
        net = network(4)
        optimizer = pb.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def function(x):
            CLEARED[way](net)
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = wrap(function)
        return [step(pb.randn(3, 4)).tolist() for _ in range(12)]

    eager, compiled, counts, _ = results_of(run)
    assert eager == compiled and counts[0] <= 2


LEAVES = {
    "clone": lambda x: x.clone().requires_grad_(),
    "detach": lambda x: x.detach().requires_grad_(),
    "flag": lambda x: (lambda y: (setattr(y, "requires_grad", True), y)[1])(x.detach()),
    "new": lambda x: pb.zeros(3, 4, requires_grad=True) + x.detach(),
    "parameter": lambda x: pb.nn.Parameter(x + 1),
}


@pytest.mark.parametrize("way", LEAVES)
def test_leaves_that_the_function_makes(way):
    def run(wrap):
        net = network(4)
        optimizer = pb.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

        def function(x):
            x = LEAVES[way](x)
            out = net(x)
            (slope,) = pb.autograd.grad(out.sum(), x, create_graph=True)
            loss = ((slope - 0.5) ** 2).mean() + out.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(function)
        return [step(pb.randn(3, 4)).tolist() for _ in range(12)]

    eager, compiled, counts, entries = results_of(run)
    assert eager == compiled and counts == [1] and entries[0][0].runs >= 9


def test_module_that_is_frozen_during_a_step():
    def run(wrap):
        pb.manual_seed(0)
        critic, actor = pb.nn.Linear(2, 1), pb.nn.Linear(2, 2)
        optimizer = pb.optim.SGD(actor.parameters(), 0.1)

        def function(z):
            critic.requires_grad_(False)
            optimizer.zero_grad()
            loss = critic(actor(z)).mean()
            loss.backward()
            optimizer.step()
            critic.requires_grad_(True)
            return loss.detach()

        step, found = wrap(function), []
        for _ in range(6):
            found.append(step(pb.randn(3, 2)).tolist())
            found.append([p.requires_grad for p in critic.parameters()])
        return [*found, [p.grad for p in critic.parameters()]]

    eager, compiled, counts, entries = results_of(run)
    assert eager == compiled and counts[0] == 1 and entries[0][0].runs == 5


def test_requires_grad_that_stays_changed_is_no_program():
    w = pb.ones(2)
    compiled = pb.compile(lambda x: w.requires_grad_(not w.requires_grad) * x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert [compiled(pb.ones(2)).requires_grad for _ in range(6)] == [True, False] * 3
