"""Memory: what reference counts free immediately, and what the cyclic collector reclaims."""

import gc
import weakref

import pytest

import pullback as pb


class Square(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * x
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, _ = ctx.saved_tensors
        return 2 * x * g


class Canary:
    """Something that can be referred to weakly."""


def reference_to(tensor):
    """Attach a canary to a tensor; it dies with the tensor."""
    tensor.canary = Canary()
    return weakref.ref(tensor.canary)


OPS = [
    pytest.param(lambda x: x * x, id="mul"),
    pytest.param(lambda x: x.exp(), id="exp"),
    pytest.param(lambda x: x.tanh() @ x.sigmoid(), id="matmul"),
    pytest.param(lambda x: x.softmax(0), id="softmax"),
    pytest.param(lambda x: x[:1] * x[1:], id="views"),
    pytest.param(lambda x: x.amax(), id="amax"),
    pytest.param(Square.apply, id="custom"),
]


@pytest.mark.parametrize("op", OPS)
def test_recording_makes_no_cycle(op, no_gc):
    x = pb.ones(3, requires_grad=True)
    dead = []
    y = op(x * 1)
    dead.append(reference_to(y))
    z = y.sum()
    dead.append(reference_to(z))
    del y
    assert [ref() is None for ref in dead] == [True, False]
    del z
    assert [ref() is None for ref in dead] == [True, True]
    leaf = reference_to(x)
    del x
    assert leaf() is None


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("retain_graph", [False, True])
def test_backward_makes_no_cycle(op, retain_graph, no_gc):
    x = pb.ones(3, requires_grad=True)
    y = op(x * 1).sum()
    y.backward(retain_graph=retain_graph)
    dead = [reference_to(t) for t in (y, x.grad, x)]
    del y, x
    assert [ref() for ref in dead] == [None] * 3


@pytest.mark.parametrize("op", OPS)
def test_double_backward_makes_no_cycle(op, no_gc):
    x = pb.ones(3, requires_grad=True)
    y = op(x * 1).sum()
    (g,) = pb.autograd.grad(y, x, create_graph=True)
    dead = [reference_to(t) for t in (y, g, x)]
    if g.requires_grad:
        pb.autograd.grad(g.sum(), x, allow_unused=True)
    del y, g, x
    assert [ref() for ref in dead] == [None] * 3


def test_reading_the_graph_makes_no_cycle(no_gc):
    x = pb.ones(3, requires_grad=True)
    y = (x * 1).exp()
    node = y.grad_fn
    node.metadata["canary"] = Canary()
    dead = [reference_to(y), weakref.ref(node.metadata["canary"])]
    assert node._saved_result.tolist() == y.tolist()
    assert node.next_functions[0][0].next_functions[0][0].variable is x
    del y, node
    assert [ref() for ref in dead] == [None] * 2


def test_view_and_base_make_no_cycle(no_gc):
    base = pb.ones(3, requires_grad=True) * 1
    view = base[:2]
    view.mul_(2)
    assert view.grad_fn is not None
    assert view._base is base
    dead = [reference_to(base), reference_to(view)]
    del base, view
    assert [ref() for ref in dead] == [None] * 2


def test_in_place_op_keeps_no_old_history(no_gc):
    x = pb.ones(3, requires_grad=True)
    held = pb.ones(3)
    dead = reference_to(held)
    y = x * held
    del held
    with pb.no_grad():
        y.add_(1)
    y.detach_()
    assert dead() is None


def test_saved_value_is_released_when_its_node_has_run(no_gc):
    x = pb.ones(3, requires_grad=True)
    held = pb.ones(3)
    dead = reference_to(held)
    y = (x * held).sum()
    del held
    y.backward(retain_graph=True)
    y.backward()
    assert dead() is None


def test_raising_hook_leaves_nothing_behind(no_gc):
    x = pb.ones(3, requires_grad=True)

    def run():
        y = (x * 1).exp()
        held = reference_to(y)

        def fail(g):
            raise ValueError

        handle = y.register_hook(fail)
        try:
            y.sum().backward()
        except ValueError:
            pass
        handle.remove()
        return held

    dead = run()
    assert dead() is None


def test_reentrant_pass_leaves_nothing_behind(no_gc):
    class Inner(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            with pb.enable_grad():
                inner = ctx.saved_tensors[0].detach().requires_grad_()
                (inner * 2).sum().backward()
            return inner.grad * g

    x = pb.ones(3, requires_grad=True)
    y = Inner.apply(x).sum()
    y.backward()
    dead = [reference_to(y), reference_to(x), reference_to(x.grad)]
    del y, x
    assert [ref() for ref in dead] == [None] * 3


def test_multi_grad_hook_dies_with_its_tensors(no_gc):
    x = pb.ones(1, requires_grad=True)
    canary = Canary()
    dead = weakref.ref(canary)

    def hook(grads, canary=canary):
        pass

    handle = pb.autograd.graph.register_multi_grad_hook([x], hook)
    handle.remove()
    del hook, canary, handle, x
    gc.collect()
    assert dead() is None


# Cycles made by the user. Each is made in a function of its own: deleting a variable would
# also empty the cell through which a closure sees it.


def hook_on_result():
    y = pb.ones(3, requires_grad=True) * 2
    y.register_hook(lambda g: g * y.sum().item())
    return y


def hook_on_result_after_backward():
    y = pb.ones(3, requires_grad=True) * 2
    y.register_hook(lambda g: g * y.detach())
    y.sum().backward()
    return y


def hooks_on_leaf():
    x = pb.ones(3, requires_grad=True)
    x.register_hook(lambda g: g * x)
    x.register_post_accumulate_grad_hook(lambda p: x.sum() and None)
    (x * x).sum().backward()
    return x


def hooks_on_node():
    y = pb.ones(3, requires_grad=True) * 2
    y.grad_fn.register_hook(lambda gi, go: y.sum() and None)
    y.grad_fn.register_prehook(lambda go: y.sum() and None)
    return y


def metadata_of_node():
    y = pb.ones(3, requires_grad=True) * 2
    y.grad_fn.metadata["self"] = y
    return y


def node_kept_by_its_own_metadata():
    y, note = pb.ones(3, requires_grad=True) * 2, pb.ones(1)
    y.grad_fn.metadata["self"] = [y.grad_fn, note]
    return note


def attribute_of_tensor():
    y = pb.ones(3, requires_grad=True) * 2
    y.self = [y]
    return y


def grad_with_history():
    x = pb.ones(3, requires_grad=True)
    (x * x * x).sum().backward(create_graph=True)
    assert x.grad.requires_grad
    return x


def output_on_ctx():
    class Keep(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = x * 2
            return ctx.kept

        @staticmethod
        def backward(ctx, g):
            return g * 2

    y = Keep.apply(pb.ones(3, requires_grad=True))
    y.grad_fn.result = y
    return y


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(hook_on_result, marks=pytest.mark.beyond_torch),
        pytest.param(hook_on_result_after_backward, marks=pytest.mark.beyond_torch),
        pytest.param(hooks_on_leaf, marks=pytest.mark.beyond_torch),
        pytest.param(hooks_on_node, marks=pytest.mark.beyond_torch),
        pytest.param(metadata_of_node, marks=pytest.mark.beyond_torch),
        pytest.param(node_kept_by_its_own_metadata, marks=pytest.mark.beyond_torch),
        pytest.param(grad_with_history, marks=pytest.mark.beyond_torch),
        output_on_ctx,
        attribute_of_tensor,
    ],
)
def test_collector_frees_cycles(make):
    dead = reference_to(make())
    gc.collect()
    assert dead() is None


def test_collector_leaves_reachable_graphs_alone():
    x = pb.ones(3, requires_grad=True)
    y = x * x
    y.register_hook(lambda g: g * 2)
    y.grad_fn.metadata["note"] = "kept"
    edge = pb.autograd.graph.get_gradient_edge(y)
    del y
    gc.collect()
    assert edge.node.metadata["note"] == "kept"
    (g,) = pb.autograd.grad(edge, x, pb.ones(3))
    assert g.tolist() == [4.0, 4.0, 4.0]


# The Python object of a tensor


def test_python_attributes_survive_while_the_graph_holds_the_tensor():
    x = pb.ones(3, requires_grad=True)
    x.note = "kept"
    y = x * 2
    name = id(x)
    del x
    gc.collect()
    again = y.grad_fn.next_functions[0][0].variable
    assert again.note == "kept"
    assert id(again) == name


def test_weak_reference_to_a_tensor():
    x = pb.ones(3)
    ref = weakref.ref(x)
    assert ref() is x
    del x
    assert ref() is None
