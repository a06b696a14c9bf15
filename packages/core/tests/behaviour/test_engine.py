"""The backward pass itself: order, accumulation, exceptions, reentrance, depth and width."""

import contextvars
import logging
import weakref

import pytest

import pullback as pb

Function = pb.autograd.Function
grad = pb.autograd.grad


def leaf(*values, dtype=pb.float64):
    return pb.tensor(list(values), dtype=dtype, requires_grad=True)


def note_when_run(tensor, log, name):
    tensor.grad_fn.register_prehook(lambda go: log.append(name))


# Order


def test_independent_branches_run_in_reverse_order_of_creation():
    x, log = leaf(1.0), []
    branches = []
    for name in "abcd":
        branches.append(x * 2)
        note_when_run(branches[-1], log, name)
    total = branches[2] + branches[0]
    total = branches[3] + total
    (branches[1] + total).backward()
    assert log == ["d", "c", "b", "a"]


def test_accumulator_runs_right_after_the_node_that_made_it_ready():
    a, e, log = leaf(1.0), leaf(1.0), []
    b = a * 2
    c = b * e
    for name, node in (
        ("b", b.grad_fn),
        ("c", c.grad_fn),
        ("acc a", b.grad_fn.next_functions[0][0]),
        ("acc e", c.grad_fn.next_functions[1][0]),
    ):
        node.register_prehook(lambda go, name=name: log.append(name))
    c.backward()
    assert log == ["c", "acc e", "b", "acc a"]


def test_node_waits_for_all_its_consumers():
    x, log = leaf(1.0), []
    a = x * 2
    note_when_run(a, log, "a")
    c = a * 3
    note_when_run(c, log, "c")
    d = a * 4
    note_when_run(d, log, "d")
    (c * d).backward()
    assert log == ["d", "c", "a"]
    assert x.grad.tolist() == [2 * (3 * 8 + 4 * 6)]


def test_only_nodes_between_roots_and_inputs_run():
    x, y, log = leaf(1.0), leaf(2.0), []
    a, b = x * 2, y * 3
    note_when_run(a, log, "a")
    note_when_run(b, log, "b")
    grad(a * b, x)
    assert log == ["a"]


# Accumulation of gradients inside the graph


def test_fan_in_sums_all_contributions():
    x = leaf(1.0, -2.0)
    total = x * 0
    for i in range(2000):
        total = total + x * i
    total.sum().backward()
    assert x.grad.tolist() == [sum(range(2000))] * 2


def test_two_outputs_of_one_op_get_their_own_gradients():
    x = leaf(1.0, 2.0, 3.0)
    a, _, c = (x * x).unbind()
    (a * 10 + c).backward()
    assert x.grad.tolist() == [20.0, 0.0, 6.0]


def test_undefined_gradient_is_zero_for_built_in_ops():
    class Stop(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return None

    x, w = leaf(1.0), leaf(2.0)
    y = x * w
    y.retain_grad()
    (Stop.apply(y.exp()) + w).backward()
    assert w.grad.tolist() == [1.0]
    assert x.grad is None


def test_in_place_sums_never_reach_what_the_user_sees():
    x, seen = leaf(1.0), []
    a = x * 1
    a.register_hook(seen.append)
    b = x * 1
    b.register_hook(seen.append)
    seed = pb.tensor([1.0], dtype=pb.float64)
    (a + b + x).backward(seed)
    assert seed.tolist() == [1.0]
    assert [g.tolist() for g in seen] == [[1.0], [1.0]]
    assert x.grad.tolist() == [3.0]


def test_same_graph_gives_the_same_bits():
    def run():
        pb.manual_seed(0)
        x = pb.randn(50, requires_grad=True)
        y = x
        for i in range(20):
            y = (y * x).tanh() + x.sigmoid() * i
        y.sum().backward()
        return x.grad.tolist()

    assert run() == run()


# Exceptions


class Boom(Exception):
    pass


def failing(error):
    class Fail(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise error

    return Fail.apply


def test_exception_arrives_as_the_same_object_with_its_cause():
    cause = ValueError("why")
    error = Boom("what", 1)
    error.__cause__ = cause
    with pytest.raises(Boom) as caught:
        failing(error)(leaf(1.0)).backward()
    assert caught.value is error
    assert caught.value.__cause__ is cause
    assert any(entry.name == "backward" for entry in caught.traceback)


def test_failed_pass_drops_the_rest_of_its_work():
    x, log = leaf(1.0), []
    early = x * 2
    note_when_run(early, log, "early")
    with pytest.raises(Boom):
        (early + failing(Boom("stop"))(x * 3)).backward()
    assert log == []
    assert x.grad is None
    (x * 5).backward()
    assert log == []
    assert x.grad.tolist() == [5.0]


@pytest.mark.beyond_torch
def test_failed_pass_releases_its_buffers_at_once(no_gc):
    x, buffers = leaf(1.0), []
    early = x * 2
    out = early + failing(Boom("stop"))(x * 3)

    def keep_weakly(g):
        replacement = g * 1
        buffers.append(weakref.ref(replacement))
        return replacement

    out.register_hook(keep_weakly)
    try:
        out.backward()
    except Boom as error:
        error.__traceback__ = None
    assert [ref() for ref in buffers] == [None]


def test_engine_is_usable_after_many_failures():
    x = leaf(1.0)
    for _ in range(200):
        with pytest.raises(Boom):
            failing(Boom())(x * 2).backward()
    (x * 5).backward()
    assert x.grad.tolist() == [5.0]
    assert pb.is_grad_enabled()


# Reentrance


def nested(depth, at_bottom):
    class Nest(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            if depth == 0:
                at_bottom()
                return g * 2
            with pb.enable_grad():
                inner = ctx.saved_tensors[0].detach().requires_grad_()
                nested(depth - 1, at_bottom)(inner).backward()
            return inner.grad * g

    return Nest.apply


def test_backward_inside_backward_to_200_levels():
    x, reached = leaf(1.0), []
    nested(200, lambda: reached.append(True))(x).backward()
    assert reached == [True]
    assert x.grad.tolist() == [2.0]


def test_exception_crosses_nested_passes():
    error = Boom("deep")

    def fail():
        raise error

    x = leaf(1.0)
    with pytest.raises(Boom) as caught:
        nested(70, fail)(x).backward()
    assert caught.value is error
    (x * 3).backward()
    assert x.grad.tolist() == [3.0]


def test_nested_pass_over_the_same_leaf_accumulates():
    x = leaf(2.0)
    inner = (x * x).sum()
    y = x * 3
    y.register_hook(lambda g: inner.backward())
    y.backward()
    assert x.grad.tolist() == [7.0]


# Depth


@pytest.mark.parametrize("build", [lambda y: y + 1, lambda y: y * 1.0, lambda y: y.view(1)])
def test_long_chain(build):
    x = leaf(1.0)
    y = x
    for _ in range(20_000):
        y = build(y)
    y.backward()
    assert x.grad.tolist() == [1.0]


def test_long_chain_of_custom_functions():
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf(1.0)
    y = x
    for _ in range(5_000):
        y = Same.apply(y)
    y.backward()
    assert x.grad.tolist() == [1.0]


def test_long_chain_of_in_place_views():
    x = leaf(1.0, 1.0)
    y = x * 1
    for _ in range(1_000):
        y[0].mul_(1.0)
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


# Final callbacks


def test_callback_runs_after_the_outermost_pass():
    x, log = leaf(1.0), []
    engine = pb.autograd.Variable._execution_engine
    y = x * 2
    y.register_hook(lambda g: engine.queue_callback(lambda: log.append(x.grad.item())))
    y.backward()
    assert log == [2.0]


def test_callback_outside_a_pass_is_refused():
    fragment = "Final callbacks can only be installed during backward pass"
    with pytest.raises(RuntimeError, match=fragment):
        pb.autograd.Variable._execution_engine.queue_callback(lambda: None)


# Modes and logging


def test_context_variables_are_those_of_the_caller():
    variable = contextvars.ContextVar("variable", default="unset")
    x, seen = leaf(1.0), []
    x.register_hook(lambda g: seen.append(variable.get()))
    y = x * 2
    variable.set("caller")
    y.backward()
    assert seen == ["caller"]


def test_executed_nodes_are_logged_at_debug_level(caplog):
    x = pb.ones(2, 3, requires_grad=True)
    y = x * 2
    with caplog.at_level(logging.DEBUG, logger=f"{pb.__name__}.autograd.graph"):
        y.sum().backward()
    text = caplog.text
    assert text.index("SumBackward0") < text.index("MulBackward0")
    assert "f32[2, 3]" in text


@pytest.mark.parametrize("enabled", [True, False])
def test_multithreading_flag_nests_and_restores(enabled):
    before = pb.autograd.is_multithreading_enabled()
    with pb.autograd.set_multithreading_enabled(enabled):
        assert pb.autograd.is_multithreading_enabled() is enabled
        x = leaf(3.0)
        (x * x).backward()
        assert x.grad.tolist() == [6.0]
    assert pb.autograd.is_multithreading_enabled() is before


def test_callback_may_queue_another():
    order = []
    queue = pb.autograd.Variable._execution_engine.queue_callback

    def first(grad):
        queue(lambda: order.append("first") or queue(lambda: order.append("second")))

    x = pb.ones(1, requires_grad=True)
    x.register_hook(first)
    x.backward()
    assert order == ["first", "second"]
    with pytest.raises(RuntimeError, match="Final callbacks can only be installed"):
        queue(print)


def test_failed_pass_leaves_nothing_in_multi_grad_hooks():
    x, y = (pb.ones(1, requires_grad=True) for _ in range(2))
    seen = []
    pb.autograd.graph.register_multi_grad_hook((x, y), lambda grads: seen.append(grads))
    z = x * y
    z.register_hook(lambda g: seen.append("failed") or 1 / 0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            (x + z).backward(retain_graph=True)
    (x + y).backward()
    assert seen[:3] == ["failed"] * 3
    assert [[g.item() for g in grads] for grads in seen[3:]] == [[1.0, 1.0]]
