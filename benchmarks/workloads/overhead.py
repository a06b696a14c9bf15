"""What an operation costs beside its work: tiny tensors, long graphs, a small training step."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from benchmarks.workloads.registry import OVERHEAD_BUDGET, table, workload


def grow_chain(module: ModuleType, n: int):
    """Return a leaf of 8 elements and the end of a chain of ``n`` products."""
    x = module.ones(8, requires_grad=True)
    y = x
    for _ in range(n):
        y = y * x
    return x, y


@workload(units=20_000, budget=1 / 6, stretch=1 / 10)
def recorded_op(module, n):
    """One recorded op on 8 float32 elements, growing graph, collector on."""
    return lambda: grow_chain(module, n)


@workload(units=20_000, budget=1 / 6, stretch=1 / 10)
def recorded_op_scalar(module, n):
    """One recorded op with a Python number."""
    x = module.ones(8, requires_grad=True)

    def timed():
        y = x
        for _ in range(n):
            y = y * 1.0
        return y

    return timed


@workload(units=20_000, budget=1 / 6, stretch=1 / 10)
def unrecorded_op(module, n):
    """One unrecorded op (`no_grad`)."""
    x = module.ones(8, requires_grad=True)

    def timed():
        with module.no_grad():
            for _ in range(n):
                y = x * x
        return y

    return timed


@workload(units=20_000, budget=1 / 12, stretch=1 / 25)
def backward_node(module, n):
    """Backward, per node, same graph."""
    _, y = grow_chain(module, n)
    seed = module.ones(8)
    return lambda: y.backward(seed)


@workload(units=2_000, budget=1 / 10, stretch=1 / 25)
def sum_backward(module, n):
    """Fixed cost of `x.sum().backward()`."""
    x = module.ones(8, requires_grad=True)

    def timed():
        for _ in range(n):
            x.sum().backward()

    return timed


@workload(units=2_000, budget=1 / 10, stretch=1 / 25)
def product_grad(module, n):
    """Fixed cost of `grad((x * y).sum(), [x, y])`."""
    x = module.ones(8, requires_grad=True)
    y = module.ones(8, requires_grad=True)
    grad = module.autograd.grad

    def timed():
        for _ in range(n):
            grad((x * y).sum(), [x, y])

    return timed


@workload(units=400, budget=1 / 5, stretch=1 / 10)
def mlp_step(module, n):
    """Tiny MLP training step (2-16-16-1, batch 4)."""
    module.manual_seed(0)
    parameters = []
    for inputs, outputs in ((2, 16), (16, 16), (16, 1)):
        parameters.append(module.randn(inputs, outputs, requires_grad=True))
        parameters.append(module.zeros(outputs, requires_grad=True))
    w1, b1, w2, b2, w3, b3 = parameters
    inputs, target = module.randn(4, 2), module.randn(4, 1)

    def timed():
        for _ in range(n):
            hidden = (inputs @ w1 + b1).tanh()
            hidden = (hidden @ w2 + b2).tanh()
            error = hidden @ w3 + b3 - target
            (error * error).mean().backward()
            with module.no_grad():
                for parameter in parameters:
                    parameter.add_(parameter.grad, alpha=-1e-4)
                    parameter.grad = None

    return timed


def multiply_chain(module: ModuleType, n: int):
    """Return the end of a chain of ``n`` products with one 16 x 16 matrix of norm 1."""
    w = (module.ones(16, 16) / 16).requires_grad_()
    y = w
    for _ in range(n):
        y = y @ w
    return y


@workload(units=2_000, budget=1 / 5, stretch=1 / 10)
def matmul_forward(module, n):
    """Loop of 16 x 16 matmuls, forward."""
    return lambda: multiply_chain(module, n)


@workload(units=2_000, budget=1 / 5, stretch=1 / 10)
def matmul_backward(module, n):
    """Loop of 16 x 16 matmuls, backward."""
    y = multiply_chain(module, n)
    seed = module.ones(16, 16)
    return lambda: y.backward(seed)


@workload(units=1_000, budget=1 / 6, stretch=1 / 10)
def rows_written(module, n):
    """Backward of an in-place op on each row of one base, rows of 64, per row."""
    base, factor = module.ones(n, 64, requires_grad=True) * 1, module.ones(64)
    for i in range(n):
        base[i].mul_(factor)
    y = base.sum()
    return lambda: y.backward()


@workload(units=1_000, budget=1 / 12, stretch=1 / 25)
def views_written(module, n):
    """Backward of `y = (y * s).view(8); y.add_(1)`, per step."""
    s, seed = module.ones(8), module.ones(8)
    y = module.ones(8, requires_grad=True)
    for _ in range(n):
        y = (y * s).view(8)
        y.add_(1)
    return lambda: y.backward(seed)


def recorded(m, size):
    """8 elements that require a gradient."""
    return {"x": m.randn(8).requires_grad_(), "a": m.randn(4, 4).requires_grad_()}


table(
    "overhead/8 elements, recorded",
    recorded,
    ["x.exp()", "x + 1", "x[2:6]", "x.reshape(2, 4)", "x.sum()", "a @ a", "a.t()", "a.softmax(1)"],
    budget=OVERHEAD_BUDGET,
    alone=True,
)


@workload(units=2_000, budget=1 / 6, stretch=1 / 10)
def custom_function(module, n):
    """A custom `Function`, forward and backward, 8 elements."""
    base: Any = module.autograd.Function

    class Cube(base):
        """The third power."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 3 * x * x

    x = module.ones(8, requires_grad=True)
    seed = module.ones(8)

    def timed():
        for _ in range(n):
            Cube.apply(x).backward(seed)
        x.grad = None

    return timed
