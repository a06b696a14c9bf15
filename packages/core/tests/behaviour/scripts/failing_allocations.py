"""Let the k-th allocation of Python fail, for one k after the other, in one scenario.

    python failing_allocations.py SCENARIO [--first K] [--last K] [--step K] [--burst N] [--runs N]

Each failure must show as a MemoryError or not at all. Afterwards modes are as they were, compiled
code holds no argument that it should not, and the scenario gives the same numbers again. What goes
wrong is printed; the exit code is then 1. A crash ends the process: its k is the last that was
printed. ``--burst`` lets N allocations in a row fail. (If all failed from the k-th on, CPython 3.11
would never leave a ``with`` block.) ``--runs`` limits how many failures are tried: the step is
then as large as the scenario's number of allocations asks for.
"""

import argparse
import copy
import faulthandler
import gc
import pickle
import sys
import threading
import traceback
import warnings
from functools import partial

import numpy as np
from pullback.testing._allocations import Spared, begin_failing, end_failing

import pullback as pb
from pullback.autograd import forward_ad
from pullback.nn import functional as F
from pullback.refbackend import plugin
from pullback.utils.checkpoint import checkpoint

warnings.simplefilter("ignore")
faulthandler.enable()
SCENARIOS = {}
# The reference backend computes with NumPy's ufuncs, which do not survive it themselves.
for primitive, (mask, kernel) in plugin.KERNELS.items():
    plugin.KERNELS[primitive] = mask, Spared(kernel)
# Nor does the context around them survive two failures in a row.
enter, leave = Spared(np.errstate.__enter__), Spared(np.errstate.__exit__)
np.errstate.__enter__ = lambda self: enter(self)
np.errstate.__exit__ = lambda self, *error: leave(self, *error)
# Nor does the standard library, which finds the plugins.
try:
    PROFILE = partial(pb.profiler.profile, activities=[pb.profiler.ProfilerActivity.CPU])
except ImportError:
    PROFILE = pb.no_grad


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def leaf(*shape, start=0.1):
    values = np.linspace(start, start + 1.0, int(np.prod(shape))).reshape(shape)
    return pb.tensor(values, requires_grad=True)


X, W, V = leaf(3, 4), leaf(4, 3, start=0.3), leaf(3, start=0.7)
IMAGE, KERNEL, BIAS = leaf(1, 2, 5, 5), leaf(3, 2, 3, 3), leaf(3)
INDEX, MASK = pb.tensor([2, 0, 2]), pb.tensor([True, False, True])
SPARE = pb.tensor(np.linspace(1.0, 2.0, 12).reshape(3, 4))
ARGUMENTS = (X, W, V, IMAGE, KERNEL, BIAS, INDEX, MASK, SPARE)
ARRAY = np.linspace(0.0, 1.0, 6).reshape(2, 3)


@scenario
def backward():
    ((X @ W).tanh() * V).sum().backward()
    return X.grad, W.grad, V.grad


@scenario
def accumulated():
    (X * X).sum().backward()
    (X.exp() * X).mean(0).sum().backward()
    return X.grad


@scenario
def create_graph():
    (first,) = pb.autograd.grad((X.exp() * X).sum(), X, create_graph=True)
    (second,) = pb.autograd.grad((first * first).sum(), X, retain_graph=True)
    return first, second


@scenario
def saved_tensors_hooks():
    hooks = pb.autograd.graph.saved_tensors_hooks
    with hooks(lambda t: t.detach().clone(), lambda t: t), hooks(lambda t: t, lambda t: t):
        y = (X * X).exp().sum() + pb.stack([X, X]).prod(0).sum()
    return pb.autograd.grad(y, X)


@scenario
def vmapped_grad():
    def loss(x, w):
        return (x @ w).sin().sum()

    gradient = pb.func.grad(loss)
    return pb.func.vmap(gradient, in_dims=(0, None))(X, W)


@scenario
def jacobians():
    def f(x):
        return (x * x.sin()).cumsum(0)

    return pb.func.jacrev(f)(V), pb.func.jacfwd(f)(V), pb.func.hessian(lambda x: f(x).sum())(V)


@scenario
def forward_over_reverse():
    def gradient(x):
        return pb.func.grad(lambda a: (a.exp() * a).sum())(x)

    value, tangent = pb.func.jvp(gradient, (V,), (pb.ones_like(V),))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(SPARE, SPARE * 2)
        primal, other = forward_ad.unpack_dual((dual * dual).sigmoid().sum(1))
    return value, tangent, primal, other


@scenario
def conv2d():
    y = F.conv2d(IMAGE, KERNEL, BIAS, stride=2, padding=1)
    return (y, *pb.autograd.grad((F.max_pool2d(y.relu(), 2) ** 2).sum(), (IMAGE, KERNEL, BIAS)))


class Cube(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x, power):
        y = x**power
        ctx.save_for_backward(x, y)
        ctx.power = power
        return y, y.sum()

    @staticmethod
    def backward(ctx, g, unused):
        x, _ = ctx.saved_tensors
        return g * ctx.power * x ** (ctx.power - 1), None


@scenario
def custom_function():
    y, total = Cube.apply(X, 3)
    return y, total, *pb.autograd.grad(Cube.apply(y, 2)[0].sum(), X, create_graph=True)


@scenario
def checkpoints():
    def part(x, w):
        return (x @ w).tanh()

    y = checkpoint(part, X, W, use_reentrant=False) + checkpoint(part, X, W, use_reentrant=True)
    return pb.autograd.grad(y.sum(), (X, W)) if y.grad_fn is None else run_backward(y.sum())


def run_backward(total):
    total.backward()
    return X.grad, W.grad


HANDLES = []


@scenario
def hooks():
    seen = []
    HANDLES.append(X.register_hook(lambda g: g * 2))
    HANDLES.append(X.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.sum().item())))
    y = (X * 2).exp()
    y.register_hook(lambda g: g + 1)
    y.retain_grad()
    y.grad_fn.register_hook(lambda grads, outputs: None)
    y.grad_fn.register_prehook(lambda outputs: None)
    multi = pb.autograd.graph.register_multi_grad_hook
    HANDLES.append(multi((X, y), lambda gs: seen.append(len(gs))))
    y.sum().backward()
    return X.grad, y.grad, pb.tensor(seen)


@scenario
def in_place_on_views():
    y = X * 1
    view = y[1:].t()
    view.mul_(2).add_(V[1:])
    y[:, 1] = V
    y[0].tanh_()
    (y * y).sum().backward()
    return y, X.grad, V.grad


@scenario
def indexing():
    y = X * 1
    y[INDEX[:2]] = SPARE[:2]
    y[MASK, 1:] *= 2
    picked = y[INDEX, 1:3].sum() + X[MASK].sum() + X.gather(1, INDEX[:, None]).sum()
    y = y.index_put((INDEX[:2], INDEX[:2]), V[:2], accumulate=True)
    return (y, *pb.autograd.grad(picked + y.scatter_add(0, INDEX[None], SPARE).sum(), X))


@scenario
def linear_algebra():
    square = X @ X.t() + pb.eye(3, dtype=pb.float64) * 3
    y = pb.einsum("ij,jk,k->i", X, W, V) + pb.linalg.solve(square, V)
    z = pb.linalg.inv(square).sum() + pb.linalg.svdvals(square).logsumexp(0)
    return (y, z, *pb.autograd.grad(y.sum() + z, (X, V)))


class Worker:
    """A thread that is there before memory runs out, and takes one function after the other."""

    def __init__(self):
        self.given, self.done = threading.Lock(), threading.Lock()
        self.given.acquire()
        self.done.acquire()
        self.function = self.found = self.error = None
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        while True:
            self.given.acquire()
            try:
                self.found = self.function()
            except MemoryError as error:
                self.error = error
            self.done.release()

    def run(self, function):
        self.function = function
        self.given.release()
        self.done.acquire()
        found, error = self.found, self.error
        self.function = self.found = self.error = None
        if error is not None:
            raise MemoryError
        return found


WORKERS = Worker(), Worker()


@scenario
def threads():
    y = (X * X).tanh()
    first = WORKERS[0].run(lambda: pb.autograd.grad(y.sum(), X))
    second = WORKERS[1].run(lambda: pb.autograd.grad((X * X).tanh().sum(), X))
    return first, second


@scenario
def exchange():
    copied = pickle.loads(pickle.dumps(SPARE))
    shared = pb.from_dlpack(SPARE)
    array = np.from_dlpack(SPARE) + SPARE.numpy()
    again = pb.from_numpy(ARRAY), pb.as_tensor(ARRAY), pb.tensor([[1.0, 2.0], [3.0, 4.0]])
    return copied, shared, pb.from_dlpack(array), *again, copy.deepcopy(X)


@scenario
def joins_and_reductions():
    y = pb.cat([X, SPARE], 0).reshape(2, 3, 4).permute(2, 0, 1)
    parts = [part.softmax(-1) for part in y.chunk(2)]
    values, indices = pb.stack(parts).sort(-1)
    y = pb.where(values > 0.3, values, indices.to(values.dtype)).var(dim=(0, 1))
    mean, top = pb.std_mean(X, 1), X.topk(2, 1)
    return (y, *mean, *top, *pb.autograd.grad(y.sum() + mean[0].sum() + top[0].sum(), X))


@scenario
def losses():
    target = INDEX[:3]
    y = F.layer_norm(X, (4,)).log_softmax(1)
    y = F.nll_loss(y, target) + F.smooth_l1_loss(X, SPARE) + F.cross_entropy(X, target)
    y = y + F.embedding(INDEX, W).sum() + F.gelu(X).sum() + F.pad(X, (1, 1)).sum()
    return (y, *pb.autograd.grad(y, (X, W)))


@scenario
def profiler_idle():
    """No observer is attached but a profiler that was there before."""
    with PROFILE():
        y = (X * X).sum()
    (X * X).sum().backward()
    return y, X.grad


@scenario
def anomaly():
    with pb.autograd.detect_anomaly(check_nan=True):
        y = (X * X).exp()
        y.sum().backward()
    with pb.inference_mode(), pb.no_grad():
        z = X * 2
    return X.grad, z.clone()


@scenario
def functional():
    f = pb.autograd.functional
    jacobian = f.jacobian(lambda x: x.exp().cumsum(0), V, vectorize=True)
    hessian = f.hessian(lambda x: (x * x * x).sum(), V)
    return jacobian, hessian, f.vjp(lambda x: x * x, V, pb.ones_like(V))[1]


@scenario
def random_numbers():
    pb.manual_seed(3)
    y = pb.rand(3, 4, dtype=pb.float64) + pb.randn(4) + F.dropout(X, 0.5)
    return y, pb.randperm(5), pb.multinomial(V.detach(), 2), *pb.autograd.grad(y.sum(), X)


def compiled_step(x, w):
    noise = pb.rand(3, 3, dtype=pb.float64)
    loss = (pb.tanh(x @ w) * noise + pb.linalg.cholesky(pb.eye(3, dtype=pb.float64))).sum()
    return loss, pb.autograd.grad(loss, (x, w))


@scenario
def captures():
    pb.manual_seed(3)
    return pb.compile(compiled_step)(X, W)


REPLAYED = pb.compile(compiled_step)
FORWARD = pb.compile(lambda x, w: (pb.tanh(x @ w), x * 2))


@scenario
def replays():
    pb.manual_seed(3)
    found = REPLAYED(X, W)
    y, z = FORWARD(X, W)
    return found, y, pb.autograd.grad(y.sum() + z.sum(), (X, W))


# ---- what is compared ----------------------------------------------------------------------------


def plain(value):
    """Return the numbers of nested results; this takes no part in the injection."""
    if isinstance(value, pb.Tensor):
        return value.detach().tolist()
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return value


def clear():
    for handle in HANDLES:
        handle.remove()
    HANDLES.clear()
    for tensor in ARGUMENTS:
        tensor.grad = None


def modes():
    return (
        pb.is_grad_enabled(),
        pb.is_inference_mode_enabled(),
        pb.is_anomaly_enabled(),
        str(pb.get_default_device()),
        str(pb.get_default_dtype()),
    )


EXPLAINED = [0] * (len(ARGUMENTS) + 1)


def counts():
    # Tensors, what hangs on them, and what every call shares
    return [sys.getrefcount(tensor) for tensor in (*ARGUMENTS, ARRAY)]


def unexplained(before):
    """Return which arguments have counts more that no container explains.

    CPython itself leaks the sequence if ``list(sequence)`` finds no memory, and what a function's
    closure holds. The collector sees the first, but not a count that compiled code has forgotten.
    """
    found = []
    for number, (tensor, count) in enumerate(zip((*ARGUMENTS, ARRAY), before)):
        more = sys.getrefcount(tensor) - 2 - count  # those of the loop
        seen = sum(
            part is tensor
            for holder in gc.get_referrers(tensor)
            for part in gc.get_referents(holder)
        )
        if more > seen - EXPLAINED[number]:
            found.append(f"argument {number} has {more} references more, {seen} are seen")
        EXPLAINED[number] = seen
    return found


def attempt(function, k, burst):
    """Let the k-th allocation fail; return whether there was one, the error, and where it arose."""
    error, compiled = "", False
    gc.collect()  # empties the interpreter's lists of free objects
    begin_failing(k, k + burst - 1)
    try:
        function()
    except BaseException as failure:
        count = end_failing()
        error = describe(failure)
        frames = traceback.extract_tb(failure.__traceback__)
        # After a burst the last frame need not be the one that leaked.
        compiled = burst == 1 and bool(frames) and frames[-1].filename.endswith(".pyx")
    else:
        count = end_failing()
    return count >= k, error, compiled


def count_allocations(function):
    begin_failing(sys.maxsize, sys.maxsize)
    try:
        function()
    finally:
        count = end_failing()
        clear()
    return count


def describe(error):
    """Return a text for an exception that is not a MemoryError."""
    if isinstance(error, MemoryError):
        return "MemoryError"
    if isinstance(error, pickle.PicklingError):
        return "MemoryError"  # what pickle makes of any failed look-up
    if str(error) == "multi-dimensional sub-views are not implemented":
        return "MemoryError"  # what NumPy makes of a buffer that it did not get, on Python 3.10
    return "".join(traceback.format_exception(error))[-1500:]


def examine(function, expected, before, error, compiled):
    """Return what is wrong after a failure."""
    found = [] if error in ("", "MemoryError") else [f"raised {error}"]
    clear()
    if counts() != before:
        gc.collect()
        more = unexplained(before)
        found += more if compiled else []  # else it is the interpreter's own
        before[:] = counts()
    if modes() != MODES:
        found.append(f"modes {modes()}, were {MODES}")
    try:
        again = plain(function())
    except BaseException as failure:
        found.append(f"does not work afterwards: {describe(failure)}")
    else:
        if again != expected:
            found.append(f"gives {again} afterwards, gave {expected}")
    clear()
    return found


MODES = modes()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=list(SCENARIOS))
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--last", type=int, default=100_000)
    parser.add_argument("--burst", type=int, default=1)
    parser.add_argument("--runs", type=int)
    given = parser.parse_args()
    function = SCENARIOS[given.scenario]
    for _ in range(3):
        expected = plain(function())
        clear()
    if given.runs:
        given.step = -(-count_allocations(function) // given.runs)
    gc.collect()
    gc.freeze()
    gc.disable()
    threading.excepthook = lambda args: None
    sys.unraisablehook = lambda args: None
    before, bad, runs, raised = counts(), 0, 0, 0
    k = given.first
    while k <= given.last:
        print(f"k={k}", end="\r", flush=True)
        reached, error, compiled = attempt(function, k, given.burst)
        if not reached:
            break
        runs += 1
        raised += error != ""
        for wrong in examine(function, expected, before, error, compiled):
            bad += 1
            print(f"{given.scenario} k={k}: {wrong}")
        k += given.step
    print(f"{given.scenario}: {runs} runs, {raised} raised, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
