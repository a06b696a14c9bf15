"""Steps of optimizers, and a small training step by modules; torch in its fastest mode, fused."""

from __future__ import annotations

from benchmarks.workloads.registry import FULL, workload


def parameters_of(module, count, elements):
    """Return parameters with gradients."""
    module.manual_seed(0)
    parameters = [module.randn(elements, requires_grad=True) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = module.randn(elements)
    return parameters


def steps_of(optimizer, n):
    """Return a function that makes ``n`` steps; the first one, which makes the state, is over."""
    optimizer.step()

    def timed():
        for _ in range(n):
            optimizer.step()

    return timed


@workload(units=400, budget=1 / 5, stretch=1 / 10, group="training")
def adam_small(module, n):
    """Adam, 100 tensors of 64 elements."""
    return steps_of(module.optim.Adam(parameters_of(module, 100, 64), fused=True), n)


@workload(units=400, budget=1 / 5, stretch=1 / 10, group="training")
def sgd_small(module, n):
    """SGD with momentum, 100 tensors of 64 elements."""
    parameters = parameters_of(module, 100, 64)
    return steps_of(module.optim.SGD(parameters, momentum=0.9, fused=True), n)


@workload(units=None, budget=0.8, stretch=0.7, group="training", alone=False)
def adam_large(module, n, size=FULL):
    """Adam, 10 million elements."""
    parameters = parameters_of(module, 1, size(10_000_000))
    return steps_of(module.optim.Adam(parameters, fused=True), n)


def train_modules(module, n, make_optimizer):
    """Return a function that trains a small MLP of modules for ``n`` steps."""
    module.manual_seed(0)
    nn = module.nn
    layers = (nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    model, loss = nn.Sequential(*layers), nn.MSELoss()
    inputs, target = module.randn(4, 2), module.randn(4, 1)
    optimizer = make_optimizer(model.parameters())

    def timed():
        for _ in range(n):
            optimizer.zero_grad()
            loss(model(inputs), target).backward()
            optimizer.step()

    return timed


@workload(units=400, budget=1 / 5, stretch=1 / 10, group="training")
def modules_sgd(module, n):
    """Tiny MLP of modules (2-16-16-1, batch 4), training step with SGD."""
    return train_modules(module, n, lambda given: module.optim.SGD(given, lr=1e-3, fused=True))


@workload(units=400, budget=1 / 5, stretch=1 / 10, group="training")
def modules_adam(module, n):
    """Tiny MLP of modules (2-16-16-1, batch 4), training step with Adam."""
    return train_modules(module, n, lambda given: module.optim.Adam(given, lr=1e-3, fused=True))
