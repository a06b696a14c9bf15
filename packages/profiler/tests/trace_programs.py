"""Small programs to profile: each way in which nodes are made and run."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pullback as pb
from pullback.utils.checkpoint import checkpoint
from pullback_profiler import record_function


def leaf(*shape):
    return pb.ones(*shape, requires_grad=True)


class Square(pb.autograd.Function):
    """Differentiable as often as wanted."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 * x


def training_step():
    x, target = pb.ones(4, 3), pb.zeros(4, 2)
    weight, bias = leaf(3, 2), leaf(2)
    with record_function("forward", "batch 0"):
        loss = ((x @ weight + bias).tanh() - target).pow(2).mean()
    with record_function("backward"):
        loss.backward()
    with record_function("update"), pb.no_grad():
        for parameter in (weight, bias):
            parameter -= 0.1 * parameter.grad


def custom_function():
    Square.apply(leaf(3)).sum().backward()


def checkpointed():
    checkpoint(lambda a: (a * a).exp(), leaf(3) * 2, use_reentrant=False).sum().backward()


def checkpointed_reentrant():
    checkpoint(lambda a: (a * a).exp(), leaf(3) * 2, use_reentrant=True).sum().backward()


def third_derivative():
    x = leaf(3)
    y = (x**3).sum() + Square.apply(x).sum()
    for _ in range(3):
        (y,) = pb.autograd.grad(y.sum(), x, create_graph=True)


def backward_twice():
    y = (leaf(3) * 2).sum()
    y.backward(retain_graph=True)
    y.backward()


def in_place_on_views():
    y = leaf(4, 4) * 1
    y[0].mul_(3)
    y.t().add_(1)
    y[:, 0] = y[:, 1] * 2
    y.sum().backward()


def several_outputs():
    a, b, c = leaf(6).split(2)
    (pb.stack([a, b]) * c).sum().backward()


def threads():
    def work(number):
        with record_function(f"thread {number}"):
            (leaf(3) * number).sum().backward()

    run_each(*[lambda number=number: work(number) for number in range(4)])


def backward_elsewhere():
    loss = (leaf(3) * 2).sum()
    run_each(loss.backward)


def blocks_that_cross():
    first, second = Future(), Future()
    with record_function("ends inside the next") as block:
        pb.ones(2) + 1
        block._call_end_callbacks_on_future(first)
    with record_function("next"):
        pb.ones(2) + 2
        first.set_result(None)
        pb.ones(2) + 3
    with record_function("ends on another thread") as block:
        block._call_end_callbacks_on_future(second)
    run_each(lambda: second.set_result(None))


def step_on_device(device):
    with record_function("forward"):
        x = pb.ones(3, device=device, requires_grad=True)
        with record_function("loss"):
            loss = (x * x).exp().sum()
    with record_function("backward"):
        loss.backward()


def run_each(*functions):
    """Run functions in threads, all alive at the same time."""
    barrier = threading.Barrier(len(functions))

    def run(function):
        barrier.wait(60)
        function()
        barrier.wait(60)

    started = [threading.Thread(target=run, args=[function]) for function in functions]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


PROGRAMS = (
    training_step,
    custom_function,
    checkpointed,
    checkpointed_reentrant,
    third_derivative,
    backward_twice,
    in_place_on_views,
    several_outputs,
    threads,
    backward_elsewhere,
    blocks_that_cross,
)
