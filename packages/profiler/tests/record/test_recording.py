"""What is recorded: ops, nodes, blocks, shapes, memory, stacks and threads."""

import _thread
import os
import threading
import weakref
from concurrent.futures import Future

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback.backend import begin_range, end_range, thread_number
from pullback.nn import functional as F
from pullback.utils.checkpoint import checkpoint
from pullback_profiler import profile, record_function

FRAME = "autograd::engine::evaluate_function: "


def names(profiled):
    return [event.name for event in profiled.function_events]


def named(profiled, name):
    (event,) = (event for event in profiled.function_events if event.name == name)
    return event


def assert_sums_hold(events):
    """Nothing is counted twice, and no event is partly outside its parent."""
    top = sum(event.cpu_time_total for event in events if event.cpu_parent is None)
    assert sum(event.self_cpu_time_total for event in events) == pytest.approx(top, abs=1e-3)
    assert all(event.self_cpu_time_total >= 0 for event in events)
    for event in events:
        if event.cpu_parent is not None:
            around, span = event.cpu_parent.time_range, event.time_range
            assert around.start <= span.start and span.end <= around.end


def test_forward_and_backward_with_the_engines_frames():
    x = pb.randn(3, 4, requires_grad=True)
    with profile() as p:
        x.exp().sum().backward()
    assert names(p) == [
        *("pullback::exp", "pullback::sum", "pullback::ones_like"),
        *(FRAME + "SumBackward0", "SumBackward0", "pullback::sum_backward"),
        *(FRAME + "ExpBackward0", "ExpBackward0", "pullback::mul"),
        *(FRAME + "pullback::autograd::AccumulateGrad", "pullback::autograd::AccumulateGrad"),
    ]
    node = named(p, "ExpBackward0")
    assert node.cpu_parent.name == FRAME + "ExpBackward0"
    assert [child.name for child in node.cpu_children] == ["pullback::mul"]
    assert (node.scope, node.cpu_parent.scope) == (1, 0)
    assert_sums_hold(p.function_events)


def test_backward_is_linked_to_forward():
    x = pb.randn(3, requires_grad=True)
    with profile() as p:
        pb.ones(2).neg()
        (x * 2).sin().sum().backward()
    forward = {e.name: e for e in p.function_events if e.sequence_nr >= 0 and not e.fwd_thread}
    for op, node in (("mul", "MulBackward0"), ("sin", "SinBackward0"), ("sum", "SumBackward0")):
        event = forward[f"pullback::{op}"]
        assert named(p, node).sequence_nr == event.sequence_nr
        assert named(p, node).fwd_thread == event.thread
    assert named(p, "pullback::neg").sequence_nr == -1


class Double(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def assert_every_node_has_its_forward(p):
    made = {(e.thread, e.sequence_nr) for e in p.function_events if not e.fwd_thread}
    nodes = [e for e in p.function_events if e.scope == 1 and e.sequence_nr >= 0]
    assert nodes
    assert {(e.fwd_thread, e.sequence_nr) for e in nodes} <= made


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints_and_functions_are_linked_too(use_reentrant):
    x = pb.randn(5, requires_grad=True)
    with profile() as p:
        y = checkpoint(lambda t: (t * t).exp(), x, use_reentrant=use_reentrant)
        Double.apply(y).sum().backward()
    assert names(p).count("pullback::exp") == 2  # again during backward
    assert named(p, "Double").sequence_nr == named(p, "DoubleBackward").sequence_nr
    assert "DoubleBackward" in names(p)
    assert_sums_hold(p.function_events)
    assert_every_node_has_its_forward(p)


def test_second_derivatives_and_vmap():
    x = pb.randn(5, requires_grad=True)
    with profile() as p:
        (g,) = pb.autograd.grad((x**3).sum(), x, create_graph=True)
        g.sum().backward()
        pb.func.vmap(lambda t: t.sin() * 2)(x.reshape(1, 5)).sum().backward()
    assert names(p).count("PowBackward0") == 2
    assert named(p, "pullback::sin").sequence_nr == named(p, "SinBackward0").sequence_nr >= 0
    assert "pullback::sin" in names(p)
    assert_sums_hold(p.function_events)
    assert_every_node_has_its_forward(p)


def test_in_place_and_out():
    x, out = pb.ones(3), pb.empty(3)
    with profile() as p:
        x.mul_(2)
        pb.add(x, x, out=out)
    assert names(p) == ["pullback::mul_", "pullback::add"]


def test_blocks():
    @record_function("step")
    def step(depth):
        if depth:
            step(depth - 1)

    with profile() as p:
        with record_function("epoch", "first"):
            step(2)
            with pytest.raises(ZeroDivisionError), record_function("bad"):
                1 / 0
        with record_function("ProfilerStep#7"):
            pb.ones(1)
    epoch, bad = named(p, "epoch"), named(p, "bad")
    assert (epoch.scope, epoch.is_user_annotation, epoch.kwinputs) == (7, True, {"args": "first"})
    assert bad.cpu_parent is epoch
    steps = [e for e in p.function_events if e.name == "step"]
    assert len(steps) == 1  # an only child of the same name is merged into its parent
    assert named(p, "ProfilerStep*").trace_name == "ProfilerStep#7"
    assert step.__name__ == "step"


def test_one_block_entered_twice_at_once():
    block = record_function("again")
    with profile() as p, block:
        pb.ones(1)
        with block:
            pb.zeros(1)
    assert names(p) == ["again", "pullback::ones", "again", "pullback::zeros"]


def test_name_that_no_file_can_hold():
    with profile() as p, record_function("half \ud800"):
        pass
    assert names(p) == ["half ?"]


def test_block_checks_its_arguments():
    with pytest.raises(TypeError, match="'name' must be str, not int"):
        record_function(3)
    with pytest.raises(TypeError, match="'args' must be str, not int"):
        record_function("a", 3)
    with record_function("not recorded"):
        pass


def test_block_that_ends_with_a_future():
    future = Future()
    block = record_function("later")
    with profile() as p:
        with block:
            assert block._call_end_callbacks_on_future(future) is future
            pb.ones(1)
        with pytest.raises(RuntimeError, match="can only be called once"):
            block._call_end_callbacks_on_future(Future())
        pb.zeros(1)
        future.set_result(None)
    assert named(p, "pullback::zeros").cpu_parent is named(p, "later")
    with pytest.raises(RuntimeError, match="has not begun"):
        record_function("outside")._call_end_callbacks_on_future(Future())


def test_block_that_ends_on_another_thread_is_asynchronous():
    future = Future()
    with profile() as p:
        with record_function("away") as block:
            block._call_end_callbacks_on_future(future)
        pb.ones(1)
        thread = threading.Thread(target=future.set_result, args=(None,))
        thread.start()
        thread.join()
    away = named(p, "away")
    assert away.is_async and away.self_cpu_time_total == 0
    assert named(p, "pullback::ones").cpu_parent is None


def test_shapes():
    x, y = pb.ones(2, 3), pb.ones(3, dtype=pb.float64)
    with profile(record_shapes=True) as p:
        pb.cat([x, x.t().contiguous().t()], dim=1)
        y.mul(2)
    cat, mul = named(p, "pullback::cat"), named(p, "pullback::mul")
    assert cat.structured_input_shapes == [[[2, 3], [2, 3]], []]
    assert cat.structured_input_strides == [[[3, 1], [1, 2]], []]
    assert (cat.input_dtypes, cat.concrete_inputs) == (["TensorList", "Scalar"], [None, 1])
    assert (mul.input_shapes, mul.input_dtypes) == ([[3], []], ["float64", "Scalar"])
    assert mul.concrete_inputs == [None, 2]
    with profile() as p:
        x.exp()
    assert named(p, "pullback::exp").input_shapes == []


def test_inputs_are_not_kept_alive():
    x, y = pb.ones(2, 3), pb.ones(2, 3)
    reference = weakref.ref(x)
    with profile(record_shapes=True) as p:
        pb.cat([x, y])
    del x
    assert reference() is None
    assert named(p, "pullback::cat").structured_input_shapes[0] == [[2, 3], [2, 3]]


def test_flops():
    x, w = pb.ones(2, 3, 8, 8), pb.ones(4, 3, 3, 3)
    with profile(with_flops=True) as p:
        pb.ones(8, 16) @ pb.ones(16, 4)
        pb.ones(5, 8, 16) @ pb.ones(5, 16, 4)
        F.linear(pb.ones(7, 6), pb.ones(2, 6))
        F.conv2d(x, w, stride=2, padding=1)
        pb.ones(3, 1) + pb.ones(1, 4)
        pb.ones(3).sort()
    flops = {e.name: e.flops for e in p.function_events if e.flops}
    assert flops == {
        "pullback::mm": 2 * 8 * 16 * 4,
        "pullback::matmul": 5 * 2 * 8 * 16 * 4,
        "pullback::linear": 2 * 7 * 6 * 2,
        "pullback::conv2d": 2 * 2 * 4 * 4 * 4 * 27,
        "pullback::add": 12,
    }
    assert p.function_events[0].input_shapes


def test_memory_goes_to_every_event_around_it():
    with profile(profile_memory=True) as p:
        with record_function("outer"), record_function("inner"):
            x = pb.empty(250)
        del x
    assert [(e.name, e.cpu_memory_usage, e.self_cpu_memory_usage) for e in p.function_events] == [
        ("outer", 1000, 0),
        ("inner", 1000, 0),
        ("pullback::empty", 1000, 1000),
        ("[memory]", -1000, -1000),
    ]
    assert p.function_events[-1].cpu_time_total == 0


def test_memory_that_cannot_be_had():
    with profile(profile_memory=True) as p, pytest.raises(MemoryError):
        pb.empty(1 << 58, dtype=pb.uint8)
    assert "[OutOfMemory]" in names(p)
    assert sum(e.self_cpu_memory_usage for e in p.function_events) == 0


def test_stacks():
    x = pb.ones(2, requires_grad=True)

    def inner():
        return x.exp()

    with profile(with_stack=True) as p:
        y = inner().sum()
        y.backward()
    exp, node = named(p, "pullback::exp"), named(p, "ExpBackward0")
    assert exp.stack[0].startswith(f"{__file__}(") and exp.stack[0].endswith("): inner")
    assert exp.stack[1].endswith("): test_stacks")
    assert node.stack == exp.stack
    assert not any("pullback/autograd" in frame for e in p.function_events for frame in e.stack)


def test_other_threads_only_on_demand():
    def work():
        with record_function("inside"):
            pb.ones(3).exp()

    def run(**options):
        with profile(**options) as p:
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            pb.zeros(1)
        return p

    assert names(run()) == ["pullback::zeros"]
    p = run(all_threads=True)
    assert sorted(names(p)) == sorted(
        ["pullback::zeros", *["inside", "pullback::ones", "pullback::exp"] * 3]
    )
    assert len({e.thread for e in p.function_events}) == 4
    for event in p.function_events:
        if event.name == "pullback::exp":
            assert event.cpu_parent.name == "inside"
            assert event.cpu_parent.thread == event.thread
    assert_sums_hold(p.function_events)


def test_memory_of_threads_that_only_free():
    tensors = [pb.empty(100)]
    with profile(profile_memory=True, all_threads=True) as p:
        thread = threading.Thread(target=tensors.clear)
        thread.start()
        thread.join()
    assert [(e.name, e.cpu_memory_usage) for e in p.function_events] == [("[memory]", -400)]


def test_the_body_may_raise():
    p = profile()
    with pytest.raises(RuntimeError, match="mat1 and mat2"), p, record_function("block"):
        pb.ones(2, 3) @ pb.ones(2, 3)
    assert named(p, "block").cpu_time_total > 0


def test_begun_and_ended_in_the_middle_of_things():
    p = profile()
    x = pb.ones(2, requires_grad=True)
    y = x.exp()
    y.register_hook(lambda grad: p.__enter__() and None)
    x.register_hook(lambda grad: p.__exit__(None, None, None))
    y.sum().backward()
    assert names(p) == ["ExpBackward0", "pullback::mul", names(p)[-1]]
    assert names(p)[-1].startswith(FRAME)
    assert_sums_hold(p.function_events)


def test_a_hundred_thousand_events_none_lost():
    with profile() as p:
        for _ in range(50_000):
            record_function("block").__enter__().__exit__()
            pb.ones(1)
    assert len(p.function_events) == 100_000
    assert {e.count for e in p.key_averages()} == {50_000}


@settings(max_examples=30, deadline=None)
@given(st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=4), max_leaves=15))
def test_the_tree_is_the_programs(shape):
    def run(nodes, path):
        for number, inner in enumerate(nodes):
            name = f"{path}{number}"
            with record_function(name):
                run(inner, name + ".")

    def expect(nodes, path, parent, found):
        for number, inner in enumerate(nodes):
            found[f"{path}{number}"] = parent
            expect(inner, f"{path}{number}.", f"{path}{number}", found)
        return found

    with profile() as p:
        run(shape, "")
    parents = {e.name: e.cpu_parent and e.cpu_parent.name for e in p.function_events}
    assert parents == expect(shape, "", None, {})
    assert_sums_hold(p.function_events)


def test_results_are_the_same_while_profiled():
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)

    def gradient():
        t = pb.tensor(x, requires_grad=True)
        F.softmax(t @ t.t(), dim=-1).log().sum().backward()
        return t.grad.numpy()

    plain = gradient()
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True):
        assert np.array_equal(gradient(), plain)


class Through(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x, *others):
        return x * 2

    @staticmethod
    def backward(ctx, grad, *others):
        return grad, *[None] * len(others)


class Runs:
    """Runs an op when it is shown."""

    def __repr__(self):
        return str(pb.ones(2) + 1)


class Liar(list):
    """Says that it is longer than it is."""

    def __len__(self):
        return 7


def test_odd_inputs_of_functions_are_named_by_their_type():
    endless = [1]
    endless.append(endless)
    long = list(range(5000))
    with profile(record_shapes=True) as p:
        Through.apply(pb.ones(3), Runs(), {"a": 1}, Liar([1, 2]), endless, long, pb.float32)
    inputs = named(p, "Through").concrete_inputs
    assert inputs[1:3] == ["<Runs>", "<dict>"]
    assert inputs[3] == [1, 2]
    assert inputs[4][0] == 1 and inputs[4][1][0] == 1
    assert inputs[5] == long[:1000]
    assert inputs[6] is pb.float32
    assert named(p, "pullback::mul").input_shapes == [[3], []]


def test_a_block_that_a_hook_opens_and_another_closes():
    block = record_function("block")
    x = pb.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda grad: block.__enter__() and None)
    x.register_hook(lambda grad: block.__exit__())
    with profile() as p:
        y.sum().backward()
        pb.zeros(1)
    assert named(p, "pullback::zeros").cpu_parent is None
    assert named(p, FRAME + "MulBackward0").cpu_time_total < named(p, "block").time_range.end
    assert all(e.time_range.end >= e.time_range.start > 0 for e in p.function_events)


def test_deep_stacks_keep_the_innermost_frames():
    def dive(depth):
        return dive(depth - 1) if depth else pb.ones(1)

    with profile(with_stack=True) as p:
        dive(300)
    (event,) = p.function_events
    assert len(event.stack) == 200
    assert all(frame.endswith("): dive") for frame in event.stack)


def test_threads_of_others_are_not_made_known_to_python():
    done = threading.Semaphore(0)

    def work():
        pb.ones(1)
        done.release()

    before = threading.active_count()
    with profile(all_threads=True) as p:
        for _ in range(3):
            _thread.start_new_thread(work, ())
        for _ in range(3):
            done.acquire()
    assert names(p).count("pullback::ones") == 3
    assert threading.active_count() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_is_not_recorded_and_can_record():
    with profile() as p:
        child = os.fork()
        if child == 0:  # pragma: no cover
            code = 1
            try:
                with profile() as inner:
                    pb.ones(1)
                code = 0 if [e.name for e in inner.function_events] == ["pullback::ones"] else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        pb.zeros(1)
    assert os.waitstatus_to_exitcode(status) == 0
    assert names(p) == ["pullback::zeros"]


def test_one_block_in_two_threads_at_once():
    """The thread that came first leaves first."""
    block, inside, left = record_function("shared"), threading.Event(), threading.Event()

    def work():
        with block:
            inside.set()
            left.wait()
            pb.zeros(1)

    other = threading.Thread(target=work)
    with profile(all_threads=True) as p:
        with block:
            other.start()
            inside.wait()
        left.set()
        other.join()
        pb.ones(1)
    assert named(p, "pullback::ones").cpu_parent is None
    assert named(p, "pullback::zeros").cpu_parent.name == "shared"
    assert not any(e.is_async for e in p.function_events)


def test_a_block_ends_once_in_another_thread_than_it_began():
    block = record_function("handed over")
    with profile(all_threads=True) as p:
        block.__enter__()
        other = threading.Thread(target=block.__exit__)
        other.start()
        other.join()
        block.__exit__()
        pb.ones(1)
    around = named(p, "handed over")
    assert around.is_async
    assert named(p, "pullback::ones").time_range.start >= around.time_range.end


def test_a_block_that_ends_out_of_turn_gets_no_later_memory():
    blocks = [record_function(name) for name in ("outer", "middle", "inner")]
    with profile(profile_memory=True) as p:
        for block in blocks:
            block.__enter__()
        kept = [pb.ones(256)]
        blocks[1].__exit__()
        kept.append(pb.ones(512))
        blocks[0].__exit__()
        kept.append(pb.ones(1024))
        blocks[2].__exit__()
    found = [named(p, block.name).cpu_memory_usage for block in blocks]
    assert found == [4 * 768, 4 * 256, 4 * 1792]
    assert len(kept) == 3


def test_memory_of_a_block_that_outlives_the_recording():
    block = record_function("open")
    with profile(profile_memory=True) as p:
        block.__enter__()
        kept = pb.ones(256)
    block.__exit__()
    assert named(p, "open").cpu_memory_usage == 4 * kept.numel()


def test_ranges_of_a_thread_that_works_for_the_recorded_one():
    def work(asked_by):
        number = begin_range(f"for {asked_by}", None, asked_by)
        pb.ones(2) + 1  # not of this recording
        end_range(number)

    me = thread_number()
    with profile() as profiled:
        for asked_by in (0, me, me + 1000):
            thread = threading.Thread(target=work, args=[asked_by])
            thread.start()
            thread.join()
    assert names(profiled) == [f"for {me}"]
    assert named(profiled, f"for {me}").thread != me
