"""Second derivatives, Jacobians and the check of gradients."""

from __future__ import annotations

from benchmarks.workloads.registry import DERIVATIVE_BUDGET, FULL, workload


def derivative(prepare):
    """Register a row of this class."""
    return workload(None, *DERIVATIVE_BUDGET, group="derivatives")(prepare)


def rosenbrock(x):
    """Return Rosenbrock's function, whose Hessian is tridiagonal and not constant."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def repeated(call, n):
    """Return a function that calls ``n`` times."""

    def timed():
        for _ in range(n):
            call()

    return timed


@derivative
def hessian(module, n, size=FULL):
    """`autograd.functional.hessian`, n = 64."""
    x = module.linspace(-1, 1, size(64))
    return repeated(lambda: module.autograd.functional.hessian(rosenbrock, x), n)


@derivative
def func_hessian(module, n, size=FULL):
    """`func.hessian`, n = 64."""
    x = module.linspace(-1, 1, size(64))
    compute = module.func.hessian(rosenbrock)
    return repeated(lambda: compute(x), n)


@derivative
def hvp(module, n, size=FULL):
    """`autograd.functional.hvp`, n = 1000."""
    k = size(1000)
    x, v = module.linspace(-1, 1, k), module.ones(k)
    return repeated(lambda: module.autograd.functional.hvp(rosenbrock, x, v), n)


@derivative
def jacobian(module, n, size=FULL):
    """`autograd.functional.jacobian`, 256 x 256, vectorized."""
    k = size(256)
    w, x = module.randn(k, k), module.randn(k)
    compute = module.autograd.functional.jacobian
    return repeated(lambda: compute(lambda y: (w @ y).tanh(), x, vectorize=True), n)


@derivative
def jacobian_rows(module, n, size=FULL):
    """`autograd.functional.jacobian`, 64 x 64, row by row."""
    k = size(64)
    w, x = module.randn(k, k), module.randn(k)
    compute = module.autograd.functional.jacobian
    return repeated(lambda: compute(lambda y: (w @ y).tanh(), x), n)


@derivative
def per_sample_gradients(module, n, size=FULL):
    """`func.vmap(func.grad(f))`, 64 samples."""
    w, xs = module.randn(32), module.randn(size(64), 32)
    compute = module.func.vmap(module.func.grad(lambda w, x: (w * x).sum().tanh()), (None, 0))
    return repeated(lambda: compute(w, xs), n)


@derivative
def gradcheck(module, n, size=FULL):
    """`gradcheck` of a function of 16 float64 numbers."""
    x = module.linspace(-1, 1, 16, dtype=module.float64).requires_grad_()
    return repeated(lambda: module.autograd.gradcheck(lambda y: (y.tanh() * y).sum(), (x,)), n)
