"""Compiled functions beside eager ones: ``python -m benchmarks.compiled`` prints a table.

Each row is one workload, in microseconds, the best of interleaved rounds in one process: pullback
eager and compiled, torch eager and JAX jit where they are installed, ``torch.compile`` with
``--torch-compile``. ``--only NAME`` measures some rows, ``--threads N`` sets the threads of all.
``--capture`` prints what the first call costs instead.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
from collections.abc import Callable
from typing import Any

import pullback as pb
from benchmarks.workloads.registry import FULL
from benchmarks.workloads.training import MODELS

ROUNDS = 7
SECONDS = 0.2  # of one measurement
Call = Callable[[], Any]


def best_times(calls: dict[str, Call], rounds: int = ROUNDS) -> dict[str, float]:
    """Return the best seconds of each call, measured in turn."""
    best = dict.fromkeys(calls, float("inf"))
    counts = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        start = time.perf_counter()
        call()
        counts[name] = max(1, int(SECONDS / rounds / max(time.perf_counter() - start, 1e-7)))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                call()
            best[name] = min(best[name], (time.perf_counter() - start) / counts[name])
    return best


# ---- workloads: of a module with torch's names, a call; `wrap` compiles a function ---------------


def chain(module: Any, wrap: Any, dtype: str = "float32", size: int = 1 << 23) -> Call:
    """tanh(x) * y + exp(-x * x) on 8 M elements."""
    x = module.randn(size, dtype=getattr(module, dtype))
    y = module.randn(size, dtype=getattr(module, dtype))
    function = wrap(lambda x, y: module.tanh(x) * y + module.exp(-x * x))
    return lambda: function(x, y)


def chain_float64(module: Any, wrap: Any) -> Call:
    """The same in float64."""
    return chain(module, wrap, "float64")


def multiply_add(module: Any, wrap: Any) -> Call:
    """Forward and backward of x * y + x on 16 M elements."""
    x, y = module.randn(1 << 24), module.randn(1 << 24)
    seed = module.ones(1 << 24)

    def both(x: Any, y: Any, seed: Any) -> Any:
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        return module.autograd.grad(x * y + x, (x, y), seed)

    function = wrap(both)
    return lambda: function(x, y, seed)


def norm_gelu(module: Any, wrap: Any) -> Call:
    """Forward and backward of dropout(gelu(layer_norm(x + residual))) on 4096 x 1024."""
    x, residual = module.randn(4096, 1024), module.randn(4096, 1024)
    functional = importlib.import_module(f"{module.__name__}.nn.functional")

    def both(x: Any, residual: Any) -> Any:
        x = x.detach().requires_grad_()
        y = functional.layer_norm(x + residual, (1024,))
        y = functional.dropout(functional.gelu(y), 0.1)
        return module.autograd.grad(y.sum(), x)

    function = wrap(both)
    return lambda: function(x, residual)


def small_step(module: Any, wrap: Any) -> Call:
    """A step of training of an MLP 2-16-16-1 on 4 samples, with SGD."""
    nn = module.nn
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = module.optim.SGD(net.parameters(), lr=0.01)
    x, y = module.randn(4, 2), module.randn(4, 1)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    function = wrap(step)
    return lambda: function(x, y)


def long_chain(module: Any, wrap: Any) -> Call:
    """Forward and backward of 1,000 products of 8 elements."""
    x = module.full((8,), 1.0001)

    def both(x: Any) -> Any:
        x = x.detach().requires_grad_()
        y = x
        for _ in range(1000):
            y = y * x
        return module.autograd.grad(y.sum(), x)

    function = wrap(both)
    return lambda: function(x)


def fixed(module: Any, wrap: Any) -> Call:
    """One addition of 8 elements: the fixed cost of a call."""
    x = module.ones(8)
    function = wrap(lambda x: x + 1)
    return lambda: function(x)


def hessian(module: Any, wrap: Any) -> Call:
    """The hessian of a function of 64 variables."""
    functions = importlib.import_module(f"{module.__name__}.func")
    x, weight = module.randn(64), module.randn(64, 64)
    function = wrap(functions.hessian(lambda x: module.tanh(weight @ x).pow(2).sum()))
    return lambda: function(x)


def hessian_product(module: Any, wrap: Any) -> Call:
    """The product of the hessian of Rosenbrock's function of 1,000 variables and a vector."""
    functions = importlib.import_module(f"{module.__name__}.func")
    x, vector = module.linspace(-1, 1, 1000), module.ones(1000)
    function = wrap(lambda x, v: functions.jvp(functions.grad(rosenbrock), (x,), (v,))[1])
    return lambda: function(x, vector)


def rosenbrock(x: Any) -> Any:
    """Return Rosenbrock's function, whose hessian is tridiagonal and not constant."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def jacobian(module: Any, wrap: Any) -> Call:
    """The jacobian of 256 functions of 256 variables."""
    functions = importlib.import_module(f"{module.__name__}.func")
    weight, x = module.randn(256, 256), module.randn(256)
    function = wrap(functions.jacrev(lambda x: module.tanh(weight @ x)))
    return lambda: function(x)


def sample_gradients(module: Any, wrap: Any) -> Call:
    """The gradients of 64 samples, one by one."""
    functions = importlib.import_module(f"{module.__name__}.func")
    weight, samples = module.randn(32), module.randn(64, 32)
    gradient = functions.grad(lambda w, x: module.tanh((w * x).sum()))
    function = wrap(functions.vmap(gradient, (None, 0)))
    return lambda: function(weight, samples)


def training(name: str) -> Callable[[Any, Any], Call]:
    """Return the workload of a step of training of a model of the suite."""

    def build(module: Any, wrap: Any) -> Call:
        module.manual_seed(0)
        run = MODELS[name](module, FULL)
        return wrap(lambda: run(1))

    return build


WORKLOADS = {
    "fixed": fixed,
    "small step": small_step,
    "long chain": long_chain,
    "hessian": hessian,
    "hessian product": hessian_product,
    "jacobian": jacobian,
    "sample gradients": sample_gradients,
    "chain": chain,
    "chain float64": chain_float64,
    "multiply add": multiply_add,
    "norm gelu": norm_gelu,
    **{name.replace("_", " "): training(name) for name in ("mlp", "lstm", "transformer")},
    "conv net": training("conv_net"),
}


# ---- the same in JAX -----------------------------------------------------------------------------


def jax_calls(jax: Any) -> dict[str, Call]:
    """Return the workloads that JAX has too, compiled."""
    numpy = jax.numpy

    def draw(*shape: int) -> Any:
        return jax.random.normal(jax.random.key(0), shape, numpy.float32)

    def ready(function: Any, *given: Any) -> Call:
        compiled = jax.jit(function)
        return lambda: jax.block_until_ready(compiled(*given))

    def powers(x: Any) -> Any:
        y = x
        for _ in range(1000):
            y = y * x
        return y.sum()

    def product_rule(x: Any, y: Any, seed: Any) -> Any:
        return jax.vjp(lambda x, y: x * y + x, x, y)[1](seed)

    def norm(x: Any, residual: Any) -> Any:
        y = x + residual
        y = (y - y.mean(-1, keepdims=True)) * (y.var(-1, keepdims=True) + 1e-5) ** -0.5
        kept = jax.random.bernoulli(jax.random.key(0), 0.9, y.shape)
        return numpy.where(kept, jax.nn.gelu(y, approximate=False) / 0.9, 0).sum()

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        for weight, bias in parameters[:-1]:
            x = numpy.tanh(x @ weight + bias)
        weight, bias = parameters[-1]
        return ((x @ weight + bias - y) ** 2).mean()

    def step(parameters: Any, x: Any, y: Any) -> Any:
        found, gradient = jax.value_and_grad(loss)(parameters, x, y)
        return found, jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradient)

    sizes = [(2, 16), (16, 16), (16, 1)]
    weight, long = draw(256, 256), draw(1 << 24)
    return {
        "fixed": ready(lambda x: x + 1, draw(8)),
        "small step": ready(
            step, [(draw(*one), draw(one[1])) for one in sizes], draw(4, 2), draw(4, 1)
        ),
        "long chain": ready(jax.grad(powers), numpy.full(8, 1.0001)),
        "hessian": ready(
            jax.hessian(lambda x: (numpy.tanh(weight[:64, :64] @ x) ** 2).sum()), draw(64)
        ),
        "hessian product": ready(
            lambda x, v: jax.jvp(jax.grad(rosenbrock), (x,), (v,))[1],
            numpy.linspace(-1, 1, 1000),
            numpy.ones(1000),
        ),
        "jacobian": ready(jax.jacrev(lambda x: numpy.tanh(weight @ x)), draw(256)),
        "sample gradients": ready(
            jax.vmap(jax.grad(lambda w, x: numpy.tanh((w * x).sum())), (None, 0)),
            draw(32),
            draw(64, 32),
        ),
        "chain": ready(
            lambda x, y: numpy.tanh(x) * y + numpy.exp(-x * x), long[: 1 << 23], long[1 << 23 :]
        ),
        "multiply add": ready(product_rule, long, long, long),
        "norm gelu": ready(jax.grad(norm), draw(4096, 1024), draw(4096, 1024)),
    }


# ---- what the first call costs -------------------------------------------------------------------


def print_captures(names: list[str]) -> None:
    """Print the time of a first call beside that of eager calls, and of 1 us for each kernel."""
    print(f"{'workload':17}{'eager':>12}{'first call':>12}{'kernels':>9}   us; first call / budget")
    for name in names:
        made: list[Any] = []

        def wrap(function: Any, made: list[Any] = made) -> Any:
            made.append(pb.compile(function))
            return made[-1]

        eager = best_times({"eager": WORKLOADS[name](pb, lambda f: f)}, 3)["eager"]
        first = float("inf")
        for _ in range(3):
            call = WORKLOADS[name](pb, wrap)
            start = time.perf_counter()
            call()
            first = min(first, time.perf_counter() - start)
        kernels = sum(len(program["launches"]) for program in made[-1].explain().programs)
        budget = 3 * eager + kernels * 1e-6
        print(
            f"{name:17}{eager * 1e6:12.1f}{first * 1e6:12.1f}{kernels:9}   {first / budget:.2f}",
            flush=True,
        )


def installed(name: str) -> Any:
    """Return a module, or None if it is not there."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--torch-compile", action="store_true")
    parser.add_argument("--capture", action="store_true", help="the cost of the first call")
    given = parser.parse_args()
    names = given.only or list(WORKLOADS)
    pb.set_num_threads(given.threads)
    if given.capture:
        print_captures(names)
        return
    one = "" if given.threads > 1 else "--xla_cpu_multi_thread_eigen=false"
    os.environ.setdefault("XLA_FLAGS", f"{one} intra_op_parallelism_threads={given.threads}")
    torch, jax = installed("torch"), installed("jax")
    of_jax = jax_calls(jax) if jax is not None else {}
    columns = ["eager", "compiled"] + ["torch"] * (torch is not None)
    columns += ["torch.compile"] * (given.torch_compile and torch is not None)
    columns += ["JAX jit"] * bool(of_jax)
    print(f"{'workload':17}{''.join(f'{name:>14}' for name in columns)}   us; compiled / eager")
    for name in names:
        build = WORKLOADS[name]
        calls = {"eager": build(pb, lambda f: f), "compiled": build(pb, pb.compile)}
        if torch is not None:
            torch.set_num_threads(given.threads)
            calls["torch"] = build(torch, lambda f: f)
            if given.torch_compile:
                calls["torch.compile"] = build(torch, torch.compile)
        if name in of_jax:
            calls["JAX jit"] = of_jax[name]
        found = best_times(calls)
        shown = "".join(
            f"{found[key] * 1e6:14.2f}" if key in found else " " * 14 for key in columns
        )
        print(f"{name:17}{shown}   {found['compiled'] / found['eager']:.2f}", flush=True)


if __name__ == "__main__":
    main()
