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
