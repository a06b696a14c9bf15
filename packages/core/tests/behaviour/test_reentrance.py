"""Backward passes inside of each other, too deep for one stack: they go on in other threads."""

import contextvars
import os
import signal
import threading
import time
import warnings

import pytest

import pullback as pb
from pullback.autograd import Function, forward_ad
from pullback.autograd.graph import allow_mutation_on_saved_tensors, saved_tensors_hooks

posix_only = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals and limits")


class Descend(Function):
    """Its backward runs another pass through itself until ``levels`` is 0, then ``at_bottom``."""

    @staticmethod
    def forward(ctx, x, levels, at_bottom):
        ctx.levels, ctx.at_bottom = levels, at_bottom
        return x * 2

    @staticmethod
    def backward(ctx, g):
        if ctx.levels == 0:
            ctx.at_bottom()
            return g * 2, None, None
        with pb.enable_grad():
            inner = pb.ones((), requires_grad=True)
            Descend.apply(inner, ctx.levels - 1, ctx.at_bottom).backward()
        return inner.grad * g, None, None


def descend(levels, at_bottom=lambda: None):
    x = pb.ones((), requires_grad=True)
    Descend.apply(x, levels, at_bottom).backward()
    return x.grad.item()


def test_ten_thousand_passes_inside_of_each_other():
    assert descend(10_000) == 2.0


@posix_only
def test_nested_passes_with_a_stack_of_one_megabyte(run_script):
    import resource

    def small_stack():
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))

    assert run_script("nested_passes", preexec_fn=small_stack) == "done"


def test_other_threads_end_with_the_pass():
    before = threading.active_count()
    seen = []
    descend(200, lambda: seen.append(threading.get_ident()))
    assert seen[0] != threading.get_ident()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


class Boom(Exception):
    pass


def test_exception_comes_back_from_another_thread():
    error = Boom("deep")

    def fail():
        raise error

    with pb.inference_mode(False), pytest.raises(Boom) as caught:
        descend(1000, fail)
    assert caught.value is error
    assert pb.is_grad_enabled()
    assert descend(3) == 2.0


def test_modes_go_along_and_come_back():
    label = contextvars.ContextVar("label", default="")
    seen = {}

    def look():
        seen.update(
            grad=pb.is_grad_enabled(),
            anomaly=pb.is_anomaly_enabled(),
            thread=pb.backend.thread_number(),
            multithreading=pb.autograd.is_multithreading_enabled(),
            label=label.get(),
        )
        with pytest.raises(RuntimeError, match="Nested forward mode"):
            forward_ad.enter_dual_level()
        with (
            pytest.raises(RuntimeError, match="cannot be nested"),
            allow_mutation_on_saved_tensors(),
        ):
            pass
        packed.clear()
        with pb.enable_grad():
            (pb.full((), 7.0, requires_grad=True) ** 2).backward()
        seen["packed"] = len(packed)

    packed = []
    label.set("here")
    with (
        pb.autograd.set_multithreading_enabled(False),
        forward_ad.dual_level(),
        allow_mutation_on_saved_tensors(),
        saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t),
    ):
        descend(200, look)
        assert not pb.autograd.is_multithreading_enabled()
        packed.clear()
        _ = pb.ones((), requires_grad=True) ** 2
        assert packed
    assert seen == {
        "grad": False,
        "anomaly": False,
        "thread": pb.backend.thread_number(),
        "multithreading": False,
        "label": "here",
        "packed": 1,
    }
    forward_ad.enter_dual_level()
    forward_ad.exit_dual_level()


def test_tangents_go_along():
    found = []

    def look():
        dual = forward_ad.make_dual(pb.tensor(3.0), pb.tensor(1.0))
        found.append(forward_ad.unpack_dual(dual * dual).tangent.item())

    with forward_ad.dual_level():
        outside = forward_ad.make_dual(pb.tensor(2.0), pb.tensor(1.0))
        descend(130, look)
        assert forward_ad.unpack_dual(outside * outside).tangent.item() == 4.0
    assert found == [6.0]


def test_callbacks_run_after_the_outermost_pass():
    from pullback._c.engine.engine import queue_callback

    order = []
    descend(130, lambda: (queue_callback(lambda: order.append("callback")), order.append("node")))
    assert order == ["node", "callback"]


def test_anomaly_mode_names_the_operation_across_threads():
    def fail():
        raise Boom("deep")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(Boom), pb.autograd.detect_anomaly():
            descend(70, fail)
    named = [w for w in caught if "Error detected in DescendBackward" in str(w.message)]
    assert len(named) == 71


def test_saved_values_are_freed_across_threads():
    freed = []

    class Note:
        def __del__(self):
            freed.append(True)

    note = Note()
    descend(130, lambda note=note: None)
    del note
    assert freed == [True]


def test_passes_without_end_are_a_recursion_error():
    with pytest.raises(RecursionError, match="backward passes run inside of each other"):
        descend(10**9)
    assert descend(3) == 2.0


@posix_only
@pytest.mark.parametrize("wait", ["python", "c"])
def test_interrupt_reaches_the_thread_that_works(wait):
    """The main thread waits meanwhile: it must neither give up the pass nor wait for its end."""
    began, ended = threading.Event(), []
    thrown = Boom("from a signal")

    def throw(number, frame):
        raise thrown

    def spin():  # CPython 3.13.0 leaves out a `finally` in the function that has the loop
        while wait == "python":
            pass

    def work():
        began.set()
        try:
            spin()
            for _ in range(10_000):
                time.sleep(0.001)
        finally:
            ended.append(threading.get_ident())

    def interrupt():
        began.wait()
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, throw)
    try:
        threading.Thread(target=interrupt).start()
        start = time.monotonic()
        with pytest.raises(Boom) as caught:
            descend(200, work)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert caught.value is thrown
    assert ended
    assert ended[0] != threading.get_ident()
    assert time.monotonic() - start < 8
    assert descend(3) == 2.0


@posix_only
def test_handler_of_a_signal_may_compute_while_the_thread_waits():
    found = []

    def compute(number, frame):
        x = pb.full((), 3.0, requires_grad=True)
        (x * x).backward()
        found.append((x.grad.item(), pb.is_grad_enabled()))

    def work():
        os.kill(os.getpid(), signal.SIGUSR1)
        deadline = time.monotonic() + 10
        while not found and time.monotonic() < deadline:
            time.sleep(0.01)

    before = signal.signal(signal.SIGUSR1, compute)
    try:
        with pb.no_grad(), pb.enable_grad():
            assert descend(200, work) == 2.0
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found == [(6.0, True)]


def test_without_another_thread_passes_go_on_in_this_one(monkeypatch):
    import _thread

    def refuse(*args):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    seen = []
    assert descend(130, lambda: seen.append(threading.get_ident())) == 2.0
    assert seen == [threading.get_ident()]
