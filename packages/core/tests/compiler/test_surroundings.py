"""What compiled functions draw, restore and run ahead: random numbers, checkpoints, modes."""

import datetime
import os
import random
import secrets
import threading
import time
import uuid
import warnings
from functools import partial
from time import perf_counter

import numpy
import pytest

import pullback as pb
from pullback.utils.checkpoint import checkpoint, checkpoint_sequential


def both(run):
    """Return what a run gives with a function as it is, and compiled; and the compiled function."""
    made = []

    def compiled(function):
        made.append(pb.compile(function))
        return made[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run(lambda function: function), run(compiled), made[0]


# ---- checkpoints ---------------------------------------------------------------------------------

BLOCKS = {
    "dropout": lambda: pb.nn.Sequential(pb.nn.Linear(4, 4), pb.nn.Dropout(0.5)),
    "noise": lambda: lambda x: x * pb.rand(4) + pb.randn(3, 4),
    "no numbers": lambda: pb.nn.Linear(4, 4),
    "statistics": lambda: pb.nn.Sequential(pb.nn.Linear(4, 4), pb.nn.BatchNorm1d(4)),
    "all": lambda: pb.nn.Sequential(pb.nn.Linear(4, 4), pb.nn.BatchNorm1d(4), pb.nn.Dropout(0.2)),
}
WAYS = {
    "default": lambda block, x: checkpoint(block, x, use_reentrant=False),
    "without numbers": lambda block, x: checkpoint(
        block, x, use_reentrant=False, preserve_rng_state=False
    ),
    "two": lambda block, x: checkpoint(block, pb.rand(3, 4) + checkpoint(block, x)),
    "segments": lambda block, x: checkpoint_sequential([block, pb.tanh, block, pb.nn.ReLU()], 2, x),
}


def state_of(block):
    return (
        [one.tolist() for one in block.state_dict().values()]
        if hasattr(block, "state_dict")
        else []
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BLOCKS)
def test_checkpoints_in_a_forward_pass(name, way):
    def run(wrap):
        pb.manual_seed(0)
        block = BLOCKS[name]()
        w = pb.ones(4, requires_grad=True)
        function = wrap(lambda x: WAYS[way](block, x * w) * 2)
        found = []
        for number in range(5):
            y = function(pb.randn(3, 4))
            found += [y.tolist(), state_of(block)]
            if number != 1:
                y.square().sum().backward()
                found.append(w.grad.tolist())
            found += [state_of(block), pb.rand(2).tolist()]
        return found

    eager, compiled, _ = both(run)
    assert eager == compiled


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BLOCKS)
def test_checkpoints_in_a_step(name, way):
    def run(wrap):
        pb.manual_seed(0)
        block = BLOCKS[name]()
        w = pb.ones(4, requires_grad=True)
        optimizer = pb.optim.SGD([w], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = WAYS[way](block, x * w).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step, found = wrap(step), []
        for _ in range(6):
            found += [step(pb.randn(3, 4)).tolist(), w.tolist(), state_of(block)]
            found.append(pb.rand(2).tolist())
        return found

    eager, compiled, step = both(run)
    assert eager == compiled
    assert step.entries[-1].runs >= 4


def test_checkpoints_that_keep_results():
    contexts = partial(pb.utils.checkpoint.create_selective_checkpoint_contexts, [pb.mm])

    def run(wrap):
        pb.manual_seed(0)
        w = pb.rand(3, 3).requires_grad_()
        function = wrap(
            lambda x: checkpoint(lambda x: (x @ w).sin() @ w, x, context_fn=contexts).sum()
        )
        found = []
        for _ in range(4):
            function(pb.rand(3, 3)).backward()
            found.append(w.grad.tolist())
        return found

    eager, compiled, _ = both(run)
    assert eager == compiled


def test_part_of_the_results_of_a_checkpoint_with_statistics():
    def run(wrap):
        pb.manual_seed(0)
        net = pb.nn.Sequential(pb.nn.Linear(3, 3), pb.nn.BatchNorm1d(3))

        def function(x):
            h = net(x)
            return h, checkpoint(net, h)

        function, found = wrap(function), []
        for _ in range(4):
            one, other = function(pb.rand(4, 3))
            one.sum().backward(retain_graph=True)
            other.sum().backward()
            found += [*state_of(net), net[0].weight.grad.tolist()]
        return found

    eager, compiled, _ = both(run)
    assert eager == compiled


def test_numbers_that_are_drawn_again_in_a_fork():
    def run(wrap):
        pb.manual_seed(3)

        def function(x):
            with pb.random.fork_rng():
                first = pb.rand(4)
                more = pb.rand(4)
            return x + first, more, pb.rand(4)

        function = wrap(function)
        return [[one.tolist() for one in function(pb.rand(4))] for _ in range(4)]

    eager, compiled, function = both(run)
    assert eager == compiled and [one.runs for one in function.entries] == [3]


def test_numbers_of_parts_of_a_batch():
    def run(wrap):
        pb.manual_seed(3)
        function = wrap(
            pb.vmap(lambda x: x * pb.rand(2), randomness="same", chunk_size=2, in_dims=0)
        )
        return [function(pb.rand(6, 2)).tolist() for _ in range(4)]

    eager, compiled, function = both(run)
    assert eager == compiled and [one.runs for one in function.entries] == [3]


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("way", ["seed", "state", "generator", "own"])
def test_states_from_outside_run_eagerly(way, needs_grad):
    def run(wrap):
        pb.manual_seed(3)
        w = pb.ones(2, requires_grad=needs_grad)
        state, generator = pb.get_rng_state(), pb.Generator().manual_seed(1)

        def function(x):
            if way == "seed":
                pb.manual_seed(5)
            elif way == "state":
                pb.set_rng_state(state)
            elif way == "generator":
                generator.set_state(state)
            own = pb.Generator().manual_seed(7) if way == "own" else generator
            return x + w * pb.rand(2, generator=own)

        function = wrap(function)
        return [function(pb.rand(2)).tolist() for _ in range(4)] + [
            pb.rand(1, generator=generator).item()
        ]

    eager, compiled, function = both(run)
    assert eager == compiled and not any(one.runs for one in function.entries)


# ---- numbers that are not this package's ---------------------------------------------------------

own, theirs = random.Random(0), numpy.random.default_rng(0)
draw = random.random


class Holder:
    def __init__(self):
        self.own, self.theirs = random.Random(1), numpy.random.RandomState(1)

    def method(self, x):
        return x * self.own.random() + float(self.theirs.rand())


def local_import(x):
    import random as numbers

    return x * numbers.random()


def alias(x):
    numbers = numpy.random
    return x * float(numbers.rand())


def from_import(x):
    from random import choice

    return x * choice([1.0, 2.0, 3.0])


OTHERS = {
    "local import": local_import,
    "alias": alias,
    "from import": from_import,
    "by name": lambda x: x * getattr(random, "uniform")(0, 1),  # noqa: B009
    "attributes": lambda x: x * vars(random)["random"](),
    "in a list": lambda x: x * [random][0].random(),
    "default": lambda x, rng=random: x * rng.random(),
    "module": lambda x: x if random.random() < 0.5 else -x,
    "choice": lambda x: x * random.choice([1.0, 2.0, 3.0]),
    "numpy": lambda x: x * float(numpy.random.rand()),
    "generator": lambda x: x * own.random(),
    "numpy's generator": lambda x: x * float(theirs.normal()),
    "function": lambda x: x * draw(),
    "method": Holder().method,
    "partial": partial(lambda rng, x: x * rng.random(), random.Random(5)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_generators_run_eagerly_with_a_warning(name):
    compiled = pb.compile(OTHERS[name])
    with pytest.warns(UserWarning, match="numbers of another generator"):
        compiled(pb.ones(2))
    values = {tuple(compiled(pb.ones(2)).tolist()) for _ in range(30)}
    assert len(values) > 1
    with pytest.raises(RuntimeError, match="numbers of another generator"):
        pb.compile(OTHERS[name], fullgraph=True)(pb.ones(2))


def test_generators_that_are_made_in_the_function_and_other_names_are_replayed():
    def function(x):
        rng = random.Random(7)
        return x * rng.random() + numpy.pi + rng.choice([1, 2])

    compiled = pb.compile(function, fullgraph=True)
    assert [compiled(pb.ones(2)).equal(function(pb.ones(2))) for _ in range(3)] == [True] * 3


# ---- modes and hooks -----------------------------------------------------------------------------


@pytest.mark.parametrize("hook", ["forward", "before"])
def test_hooks_of_all_modules_run(hook):
    net = pb.nn.Sequential(pb.nn.Linear(2, 2), pb.nn.Tanh())
    compiled, other = pb.compile(net), pb.compile(lambda x: net(x) * 2)
    x = pb.randn(3, 2)
    for _ in range(3):
        compiled(x), other(x)
    register = (
        pb.nn.modules.module.register_module_forward_hook
        if hook == "forward"
        else pb.nn.modules.module.register_module_forward_pre_hook
    )
    tanh = net[1]
    handle = register(
        (lambda module, args, y: y + 1 if module is tanh else None)
        if hook == "forward"
        else (lambda module, args: args[0] + 1 if module is tanh else None)
    )
    try:
        assert compiled(x).equal(net(x)) and other(x).equal(net(x) * 2)
    finally:
        handle.remove()
    runs = other.entries[0].runs
    assert compiled(x).equal(net(x)) and other(x).equal(net(x) * 2)
    assert other.entries[0].runs == runs + 1


def test_recording_that_a_function_turns_on():
    w = pb.ones(2, requires_grad=True)

    @pb.compile
    def function(x):
        with pb.enable_grad():
            return x * w

    for _ in range(4):
        with pb.no_grad():
            y = function(pb.full((2,), 3.0))
        assert y.requires_grad
        (grad,) = pb.autograd.grad(y.sum(), w)
        assert grad.tolist() == [3.0, 3.0]


def test_results_of_inference_mode():
    function = pb.compile(pb.inference_mode()(lambda x: x * 2))
    with pytest.warns(UserWarning, match="inference mode"):
        function(pb.ones(2))
    assert function(pb.ones(2)).is_inference()
    plain = pb.compile(lambda x: x * 2, fullgraph=True)
    with pb.inference_mode():
        assert all(plain(pb.ones(2)).is_inference() for _ in range(3))


def test_results_that_lead_to_leaves_of_the_function_require_grad():
    def function(x):
        return x * pb.nn.Parameter(pb.ones(3))

    compiled = pb.compile(function)
    for _ in range(4):
        y = compiled(pb.ones(3))
        assert y.requires_grad and y.grad_fn is not None
        y.sum().backward()


def test_view_that_is_made_without_recording_requires_grad_as_its_base():
    def function(x):
        with pb.no_grad():
            return x.unsqueeze(0)

    compiled = pb.compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            x = pb.ones(3, requires_grad=True) * 2
            assert compiled(x).requires_grad == function(x).requires_grad


def test_memory_of_a_view_that_is_written_after_it_was_read():
    def function(v, d):
        y = v.log_softmax(0)
        d.add_(1)
        return y

    compiled = pb.compile(function)
    for _ in range(3):
        found = []
        for call in (function, compiled):
            leaf = pb.arange(4.0, requires_grad=True)
            x = leaf * 1
            call(x[1:], x.detach())[0].backward()
            found.append(leaf.grad.tolist())
        assert found[0] == found[1]


def test_first_calls_in_many_threads():
    function = pb.compile(lambda x, y: (x * y).sum())
    errors, start = [], threading.Barrier(8)

    def call():
        x = pb.ones(3, requires_grad=True)
        start.wait()
        try:
            function(x, pb.ones(3)).backward()
            assert x.grad.tolist() == [1.0] * 3
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not errors


# ---- the system ----------------------------------------------------------------------------------


def ask_by_local_import(x):
    import time as clock

    return x * clock.monotonic()


def ask_by_imported_name(x):
    from time import time_ns

    return x, time_ns()


class Timer:
    clock = time.perf_counter

    def __call__(self, x):
        return x * type(self).clock()


ASKING = {
    "time": lambda x: x * time.time(),
    "name": lambda x: x * perf_counter(),
    "datetime": lambda x: (x, datetime.datetime.now()),
    "today": lambda x: (x, datetime.date.today()),
    "uuid": lambda x: (x, uuid.uuid4()),
    "bytes": lambda x: (x, os.urandom(4)),
    "token": lambda x: (x, secrets.token_hex(4)),
    "random numbers": lambda x: x * random.SystemRandom().random(),
    "choices": lambda x: (x, secrets.SystemRandom().choice([1, 2, 3])),
    "local import": ask_by_local_import,
    "imported name": ask_by_imported_name,
    "object": Timer(),
}


@pytest.mark.parametrize("name", ASKING)
def test_functions_that_ask_the_system_run_eagerly(name):
    compiled = pb.compile(ASKING[name])
    with pytest.warns(UserWarning, match="asks the system for the time or for random bytes"):
        compiled(pb.ones(2))
    assert len(compiled.entries) == 0
    with pytest.raises(RuntimeError, match="asks the system"):
        pb.compile(ASKING[name], fullgraph=True)(pb.ones(2))


def test_other_functions_of_these_modules_are_replayed():
    def function(x):
        import math as numbers

        span = datetime.timedelta(seconds=3)
        return x * numbers.sqrt(4.0) * span.total_seconds(), os.path.join("a", "b")

    compiled = pb.compile(function, fullgraph=True)
    for _ in range(3):
        y, text = compiled(pb.ones(2))
        assert y.tolist() == [6.0, 6.0]
        assert text == os.path.join("a", "b")
    assert len(compiled.entries) == 1
