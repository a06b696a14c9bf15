"""Ctrl-C ends a long kernel soon, gives its memory back and leaves everything usable."""

from __future__ import annotations

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
from pullback_cpu import threads

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no timer")

DISTINCT = ("pow, transposed", "sum", "sort", "scatter_add", "matmul", "matmul, complex", "conv2d",
            "svd", "solve", "backward")  # fmt: skip
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


@pytest.mark.parametrize("name", CALLS if ALL else DISTINCT)
def test_a_signal_ends_a_long_call(name):
    expected = small_result(name)
    gc.collect()
    found = interrupt(name, seconds=SECONDS)
    gc.collect()
    assert found.ended
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
    assert time.perf_counter() - start < 10      # it would take minutes
    timer.join()
    assert pb.ones(1 << 20).sum().item() == 1 << 20


def test_a_handler_that_does_not_raise_lets_the_kernel_go_on():
    x = (pb.arange(3_000_000, dtype=pb.float64) * 0.618).frac()
    expected = x.lgamma().sum().item()
    seen = []

    def handler(number, frame):
        seen.append(pb.ones(200_000).sum().item())      # a kernel, while another one runs

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


@pytest.mark.parametrize("call", ["pb.linalg.svd(x)", "pb.linalg.solve(x + 0j, x + 0j)"])
def test_a_process_may_end_while_lapack_runs_on(call):
    code = f"""
import signal, sys
import pullback as pb
x = (pb.arange(1200 * 1200, dtype=pb.float64) * 0.618).frac().reshape(1200, 1200)
pb.linalg.svd(x[:300, :300])
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    {call}
except KeyboardInterrupt:
    y = pb.ones(300, 300, dtype=pb.complex128)
    assert (y @ y)[0, 0] == 300
    print("ended", flush=True)
    sys.exit(3)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True,
                          text=True, timeout=120)  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "ended\n"), done.stderr
