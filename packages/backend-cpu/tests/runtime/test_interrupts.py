"""Ctrl-C ends a long kernel soon, gives its memory back and leaves everything usable."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import pullback as pb
from pullback.testing.interrupts import CALLS, interrupt, small_result
from pullback_cpu.runtime import threads

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no timer")

DISTINCT = (
    "pow, transposed",
    "sum",
    "sort",
    "scatter_add",
    "matmul",
    "matmul, complex",
    "conv2d",
    "svd",
    "solve",
    "backward",
    "index_put, wide rows",
    "matmul, long sums",
)
ALL = os.environ.get("PULLBACK_TEST_INTERRUPTS") == "all"  # `nox -s interrupts`
SECONDS = 1.2
QUICK = 0.3  # where machines are busy; benchmarks/interrupts.py measures


@pytest.fixture(autouse=True)
def two_threads():
    """Let calls be shared, on machines with one processor too."""
    before = threads.get_num_threads()
    threads.set_num_threads(max(before, 2))
    yield
    threads.set_num_threads(before)


@pytest.fixture(autouse=True)
def interrupting():
    """Let SIGINT raise KeyboardInterrupt; a shell's background jobs begin with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", CALLS if ALL else DISTINCT)
def test_a_signal_ends_a_long_call(name):
    expected = small_result(name)
    gc.collect()
    found = interrupt(name, seconds=SECONDS)
    gc.collect()
    assert found.ended or found.left < QUICK  # a short call may end by itself
    assert found.latency < max(QUICK, found.left / 2)
    assert found.kept <= 0
    assert small_result(name) == expected


def test_a_signal_ends_a_call_of_one_thread():
    threads.set_num_threads(1)
    found = interrupt("argmax of rows", seconds=SECONDS)
    assert found.ended
    assert found.latency < max(QUICK, found.left / 2)


def test_some_call_is_interrupted_in_every_family():
    """The calls that are looked at each time are those that the table has."""
    assert set(DISTINCT) <= set(CALLS)
    assert len(CALLS) >= 25


def test_sigint_raises_keyboard_interrupt_out_of_a_kernel():
    x = pb.ones(1).expand(1 << 40)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        x.amax()
    assert time.perf_counter() - start < 10  # it would take minutes
    timer.join()
    assert pb.ones(1 << 20).sum().item() == 1 << 20


def test_a_handler_that_does_not_raise_lets_the_kernel_go_on():
    x = (pb.arange(3_000_000, dtype=pb.float64) * 0.618).frac()
    expected = x.lgamma().sum().item()
    seen = []

    def handler(number, frame):
        seen.append(pb.ones(200_000).sum().item())  # a kernel, while another one runs

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.02)
        found = {x.lgamma().sum().item() for _ in range(4)}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert found == {expected}
    assert set(seen) == {200_000.0}


def test_kernels_of_other_threads_go_on():
    x = pb.ones(1).expand(1 << 28)
    results = []
    other = threading.Thread(target=lambda: results.append(x.sum().item()))
    other.start()
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        pb.ones(1).expand(1 << 40).amax()
    timer.join()
    other.join()
    assert results == [1 << 28]


def test_an_interrupted_in_place_op_leaves_the_graph_in_order():
    base = pb.ones(3, requires_grad=True)
    target = (base * 2).new_zeros(1 << 20)
    index = pb.zeros(1, dtype=pb.int64).expand(1 << 34)
    version = target._version
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        target.index_put_((index,), pb.ones(1).expand(1 << 34), accumulate=True)
    timer.join()
    assert target._version >= version
    target.zero_()
    target[:3] += base * 3
    target.sum().backward()
    assert base.grad.tolist() == [3, 3, 3]


class Endless(pb.autograd.Function):
    """Its derivative takes minutes, at the end of so many passes inside of each other."""

    @staticmethod
    def forward(ctx, x, passes):
        ctx.passes = passes
        return x * 1

    @staticmethod
    def backward(ctx, g):
        if ctx.passes == 0:
            pb.ones(1).expand(1 << 40).amax()
        with pb.enable_grad():
            y = Endless.apply(pb.ones(3, requires_grad=True), ctx.passes - 1).sum()
        y.backward()
        return g, None


class Stopped(Exception):
    """What a handler of the user raises."""


def stop(number, frame):
    raise Stopped


@contextlib.contextmanager
def stopped_soon():
    """Expect what the handler raises, and everything as it was before."""
    before = signal.signal(signal.SIGALRM, stop)
    modes = pb.is_grad_enabled(), pb.is_inference_mode_enabled(), pb.is_anomaly_enabled()
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    start = time.perf_counter()
    try:
        with pytest.raises(Stopped):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.perf_counter() - start < 10  # it would take minutes
    assert modes == (pb.is_grad_enabled(), pb.is_inference_mode_enabled(), pb.is_anomaly_enabled())
    x = pb.ones(300, 300, requires_grad=True)
    (x @ x).sum().backward()
    assert x.grad[0, 0] == 600
    assert pb.func.vmap(lambda row: row * 2)(pb.ones(3, 2)).tolist() == [[2, 2]] * 3


@pytest.mark.parametrize("passes", [0, 70, 130])
def test_a_signal_ends_a_pass_inside_of_others(passes):
    """Those beyond the 60th run in another thread, which runs no handlers."""
    y = Endless.apply(pb.ones(3, requires_grad=True), passes).sum()
    with stopped_soon():
        y.backward()


@pytest.mark.filterwarnings("ignore")
def test_a_signal_ends_a_pass_in_anomaly_mode():
    with stopped_soon(), pb.autograd.detect_anomaly():
        Endless.apply(pb.ones(3, requires_grad=True), 0).sum().backward()


def test_a_signal_ends_transforms_and_modes():
    x = pb.ones(3)
    forever = pb.ones(1).expand(1 << 40)
    with stopped_soon():
        pb.func.hessian(lambda t: (t**3 * forever.amax()).sum())(x)
    with stopped_soon():
        pb.func.vmap(lambda t: t.expand(1 << 38).amax())(x)
    with stopped_soon(), pb.inference_mode():
        forever.amax()


def test_a_graph_is_whole_after_a_signal_in_its_pass():
    x = pb.ones(1 << 18, dtype=pb.float64, requires_grad=True)
    y = x
    for _ in range(400):
        y = (y * 0.5 + 1).lgamma()
    loss = y.sum()
    with stopped_soon():
        while True:
            loss.backward(retain_graph=True)
    (first,) = pb.autograd.grad(loss, x, retain_graph=True)
    (again,) = pb.autograd.grad(loss, x)
    assert first[0] != 0
    assert pb.equal(first, again)


def test_a_blocked_signal_waits_for_the_end_of_the_kernel():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    assert pb.ones(1).expand(1 << 28).amax() == 1
    with pytest.raises(KeyboardInterrupt):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@pytest.mark.parametrize("call", ["pb.linalg.svd(x)", "pb.linalg.solve(x + 0j, x + 0j)"])
def test_a_process_may_end_while_lapack_runs_on(call):
    code = f"""
import signal, sys
import pullback as pb
x = (pb.arange(1200 * 1200, dtype=pb.float64) * 0.618).frac().reshape(1200, 1200)
pb.linalg.svd(x[:300, :300])
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.03)
try:
    {call}
except KeyboardInterrupt:
    y = pb.ones(300, 300, dtype=pb.complex128)
    assert (y @ y)[0, 0] == 300
    print("ended", flush=True)
    sys.exit(3)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (3, "ended\n"), done.stderr


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads cannot be counted")
def test_few_calls_of_lapack_are_left_behind():
    """The call that would be one too many waits, and a signal ends that wait."""
    code = """
import os, signal, time
import pullback as pb
x = (pb.arange(1200 * 1200, dtype=pb.float64) * 0.618).frac().reshape(1200, 1200)
pb.linalg.svd(x[:300, :300])
before = len(os.listdir("/proc/self/task"))
signal.signal(signal.SIGALRM, signal.default_int_handler)
for _ in range(5):
    signal.setitimer(signal.ITIMER_REAL, 0.03)
    start = time.perf_counter()
    try:
        pb.linalg.svd(x)
    except KeyboardInterrupt:
        print(time.perf_counter() - start < 0.5, len(os.listdir("/proc/self/task")) - before < 3)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "True True\n" * 5), done.stderr


@pytest.mark.parametrize("delay", [0.002, 0.02, 0.06])
def test_a_signal_while_blas_is_loaded_leaves_it_loadable(delay):
    code = f"""
import signal
import pullback as pb
x = pb.ones(300, 300, dtype=pb.complex128)
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, {delay})
try:
    for _ in range(100):
        x @ x
except KeyboardInterrupt:
    pass
assert (x @ x)[0, 0] == 300
pb.ones(3).numpy()
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
