"""Wrong arguments, interruption and odd moments crash nothing and leave everything usable."""

import gc
import os
import signal
import sys
import time
import weakref

import numpy as np
import pytest

import pullback as pb

posix_only = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and limits")


# Wrong arguments


@pytest.mark.parametrize(
    ("what", "part"),
    [
        ("functions", 0),
        ("functions", 1),
        ("methods", 0),
        ("methods", 1),
        ("attributes", 0),
        pytest.param("attributes", 1, marks=pytest.mark.beyond_torch),
    ],
)
def test_wrong_arguments_raise_ordinary_exceptions(what, part, run_script, tmp_path):
    run_script("wrong_arguments", what, part, cwd=tmp_path, timeout=120)


@pytest.mark.beyond_torch
def test_every_public_callable_survives_wrong_arguments(run_script, tmp_path):
    run_script("every_callable", cwd=tmp_path)


def test_too_many_dimensions_are_handled():
    for make in (lambda: pb.ones([1] * 200), lambda: pb.ones(1).expand([1] * 200)):
        try:
            assert make().sum().item() == 1.0
        except (RuntimeError, ValueError):
            pass


def test_impossible_allocation_leaves_everything_usable():
    x = pb.ones(2, requires_grad=True)
    y = x * 2
    with pytest.raises((MemoryError, RuntimeError)):
        pb.empty(2**48, dtype=pb.float64)
    with pytest.raises((MemoryError, RuntimeError)):
        y[:1].expand(2**48) + 1
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


@pytest.mark.beyond_torch
def test_impossible_allocation_is_a_memory_error():
    with pytest.raises(MemoryError):
        pb.empty(2**48, dtype=pb.float64)


def test_bytes_that_are_no_bools_do_no_harm():
    odd = pb.from_numpy(np.array([2, 255, 0], np.uint8).view(np.bool_))
    x = pb.arange(3.0)
    for use in (
        lambda: odd.sum(),
        lambda: x[odd],
        lambda: pb.where(odd, x, x),
        lambda: x.masked_fill(odd, 0.0),
        lambda: odd == odd,
    ):
        assert use() is not None


# Interruption


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
def test_any_exception_in_a_hook_leaves_the_engine_usable(error):
    x = pb.ones(2, requires_grad=True)

    def fail(*args):
        raise error

    for add in (
        lambda y: y.register_hook(fail),
        lambda y: y.grad_fn.register_hook(fail),
        lambda y: y.grad_fn.register_prehook(fail),
    ):
        y = x * 2
        add(y)
        with pytest.raises(error):
            y.sum().backward()
        assert pb.is_grad_enabled()
    handle = x.register_post_accumulate_grad_hook(fail)
    with pytest.raises(error):
        (x * 2).sum().backward()
    handle.remove()
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["forward", "backward", "setup_context"])
def test_any_exception_in_a_function_leaves_modes_alone(error, where):
    def fail_at(name):
        if name == where:
            raise error

    class Fail(pb.autograd.Function):
        @staticmethod
        def forward(x):
            fail_at("forward")
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            fail_at("setup_context")

        @staticmethod
        def backward(ctx, g):
            fail_at("backward")
            return g

    x = pb.ones(2, requires_grad=True)
    with pytest.raises(error):
        Fail.apply(x).sum().backward()
    assert pb.is_grad_enabled()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("backward", "KeyError"),
        ("hook", "KeyError"),
        ("result", "RuntimeError"),
    ],
)
def test_the_first_exception_survives_the_end_of_its_graph(where, error, run_script):
    assert run_script("first_exception", where).strip() == error


@posix_only
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_signals_at_random_moments_leave_everything_consistent():
    class Stop(Exception):
        pass

    def stop(*args):
        raise Stop

    def compute_until(end):  # CPython 3.13.0 forgets handlers in the function that has the loop
        while time.monotonic() < end:
            z = (x * y).exp() + x[:2].sum()
            z[0].mul_(2)
            pb.autograd.grad(z.sum(), [x, y])
            with pb.no_grad():
                x.add_(0)

    x = pb.ones(4, requires_grad=True)
    y = pb.ones(4, requires_grad=True)
    before = signal.signal(signal.SIGALRM, stop)
    stopped = 0
    try:
        for i in range(100):
            # An exception in a finalizer is dropped, so the loop must also end without one.
            end = time.monotonic() + 0.1
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + 0.00003 * i)
                compute_until(end)
            except Stop:
                stopped += 1
            pb.set_grad_enabled(True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped > 80
    (x * y).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([1.0] * 4, [1.0] * 4)


# Odd moments


def test_hook_that_drops_every_reference_to_the_graph():
    x = pb.ones(2, requires_grad=True)
    holder = {"y": x * 2}
    holder["z"] = holder["y"] * 3
    holder["z"].register_hook(lambda g: holder.clear())
    dead = weakref.ref(holder["y"])
    holder["z"].sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]
    assert holder == {}
    assert dead() is None


def test_finalizer_that_runs_backward_while_the_graph_dies():
    x, log = pb.ones(2, requires_grad=True), []

    class Final:
        def __del__(self):
            (x * 2).sum().backward()
            log.append(1)

    y = x
    for _ in range(50):
        y = y * 1.0
        y.grad_fn.metadata["final"] = Final()
    del y
    gc.collect()
    assert len(log) == 50
    assert x.grad.tolist() == [100.0, 100.0]


def test_collector_running_inside_hooks():
    x = pb.ones(2, requires_grad=True)
    y = x
    for _ in range(20):
        y = (y * 1.0).exp().log()
        y.register_hook(lambda g: print(gc.collect(), end=""))
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx([1.0, 1.0], rel=1e-4)


def test_collector_at_every_allocation():
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        x = pb.ones(3, requires_grad=True)
        for _ in range(30):
            y = (x * x).tanh()[:2]
            y.register_hook(lambda g: g * 1)
            pb.autograd.grad(y.sum(), x, create_graph=True)[0].sum().backward()
    finally:
        gc.set_threshold(*threshold)
    assert x.grad is not None


@pytest.mark.parametrize("kind", ["graph", pytest.param("daemon", marks=pytest.mark.beyond_torch)])
def test_interpreter_shutdown_with_live_graphs(kind, run_script):
    assert run_script("shutdown", kind) == "done"


@posix_only
def test_backward_in_a_forked_child(run_script):
    run_script("fork")


@pytest.mark.beyond_torch
def test_endless_reentrance_is_a_recursion_error(run_script):
    assert run_script("endless_reentrance") == "refused"


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of address space")
def test_huge_numbers_end_every_call_soon(run_script):
    assert run_script("huge_numbers") == "done"
