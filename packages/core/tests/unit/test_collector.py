"""Cycles through the graph are reclaimed, and nothing that is still needed is. See note: gc."""

import gc
import weakref

import pytest

import pullback as pb


class Probe:
    """An object that a weak reference can refer to."""


def build_own_hook(x, probe):
    y = x * 2
    y.register_hook(lambda g: (y, probe) and None)


def build_downstream_hook(x, probe):
    y = x * 2
    z = (y * 3).exp()
    y.register_hook(lambda g: (z, probe) and None)


def build_diamond_hook(x, probe):
    y = x * 2
    left, right = y * 3, y * 4
    z = left * right
    y.register_hook(lambda g: (left, right, z, probe) and None)


def build_leaf_hook(x, probe):
    leaf = pb.ones(2, requires_grad=True)
    leaf.register_hook(lambda g: (leaf, probe) and None)
    (leaf * x).sum().backward()


def build_node_hook(x, probe):
    y = (x * 2).exp()
    node = y.grad_fn
    node.register_hook(lambda a, b: (node, probe) and None)


def build_metadata(x, probe):
    y = x * 2
    y.grad_fn.metadata["self"] = (y, probe)


def build_attribute(x, probe):
    y = (x * 2).exp()
    y.note = (y, probe)


def build_context(x, probe):
    class Keeps(pb.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            out = a * 2
            ctx.out = out
            ctx.probe = probe
            return out

        @staticmethod
        def backward(ctx, g):
            return g * 2

    y = Keeps.apply(x)
    y.grad_fn.again = y * 3


class Plain(pb.autograd.Function):
    """Its ctx holds no attribute: only the graph knows it."""

    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * 2

    @staticmethod
    def backward(ctx, g):
        (a,) = ctx.saved_tensors
        return g * 2 + (a - a)


def build_hook_of_function(x, probe):
    y = Plain.apply(x * 1)
    z = Plain.apply(Plain.apply(y)).exp()
    y.register_hook(lambda g: (z, probe) and None)


def build_node_hook_of_function(x, probe):
    node = Plain.apply(Plain.apply(x)).grad_fn
    node.register_hook(lambda a, b: (node, probe) and None)


def build_context_seen_in_backward(x, probe):
    class Keeps(Plain):
        @staticmethod
        def backward(ctx, g):
            ctx.me = ctx, probe
            return g * 2

    y = Keeps.apply(x)
    y.sum().backward(retain_graph=True)


def build_context_kept_in_forward(x, probe):
    class Keeps(Plain):
        @staticmethod
        def forward(ctx, a):
            kept.append(ctx)
            return a * 2

    kept = [probe]
    y = Keeps.apply(x)
    y.register_hook(lambda g: kept and None)


def build_attributes_without_references(x, probe):
    class Keeps(Plain):
        @staticmethod
        def forward(ctx, a):
            ctx.number = 3
            return a * 2

    y = Keeps.apply(x)
    y.grad_fn.me = y, probe


def build_grad_with_history_through_function(x, probe):
    leaf = pb.ones(2, requires_grad=True)
    leaf.probe = probe
    (Plain.apply(leaf) * leaf).sum().backward(create_graph=True)


def build_grad_with_history(x, probe):
    leaf = pb.ones(2, requires_grad=True)
    leaf.probe = probe
    ((leaf * leaf * leaf) + leaf.exp() * leaf).sum().backward(create_graph=True)


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize(
    "build",
    [
        build_own_hook,
        build_downstream_hook,
        build_diamond_hook,
        build_leaf_hook,
        build_node_hook,
        build_metadata,
        build_attribute,
        build_context,
        build_grad_with_history,
        build_hook_of_function,
        build_node_hook_of_function,
        build_context_seen_in_backward,
        build_context_kept_in_forward,
        build_attributes_without_references,
        build_grad_with_history_through_function,
    ],
)
def test_cycle_is_collected(build):
    x = pb.ones(2, requires_grad=True)
    probe = Probe()
    reference = weakref.ref(probe)
    build(x, probe)
    del probe
    gc.collect()
    assert reference() is None


def test_cycle_that_is_held_from_outside_survives():
    x = pb.ones(2, requires_grad=True)
    calls = []

    def build():
        y = x * 2
        left, right = y * 3, y * 4
        y.register_hook(lambda g: calls.append((left, right)))
        return (left * right).sum()

    total = build()
    for _ in range(3):
        gc.collect()
    total.backward()
    assert len(calls) == 1
    assert x.grad.tolist() == [96.0, 96.0]


def test_functions_in_the_graph_of_a_held_tensor_survive():
    x = pb.ones(2, requires_grad=True)
    y = Plain.apply(Plain.apply(x * 1))
    z = Plain.apply(y) * y
    for generation in (0, 1, 2, 2):
        gc.collect(generation)
    z.sum().backward()
    assert x.grad.tolist() == [64.0, 64.0]


def test_collections_do_not_visit_functions_that_only_the_graph_holds():
    y = x = pb.ones(2, requires_grad=True)
    for _ in range(100):
        y = Plain.apply(y)
    nodes = [o for o in gc.get_objects() if type(o).__name__ == "PlainBackward"]
    assert nodes == []
    assert y.grad_fn in gc.get_objects()  # user code may put it into a cycle
    y.sum().backward()
    assert x.grad.tolist() == [2.0**100] * 2


def test_cycle_held_by_one_arm_of_a_diamond_survives():
    x = pb.ones(2, requires_grad=True)
    seen = []

    def build():
        y = x * 2
        left, right = y * 3, y.exp()
        y.register_hook(lambda g: seen.append(right))
        return left

    left = build()
    gc.collect()
    left.sum().backward()
    assert len(seen) == 1


@pytest.mark.parametrize("generation", [0, 1])
def test_young_collections_leave_graphs_alone(generation):
    x = pb.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g * (y.detach() * 0 + 5))
    z = y.sum()
    gc.collect(generation)
    gc.collect(generation)
    z.backward()
    assert x.grad.tolist() == [10.0, 10.0]


def test_collection_during_backward():
    def collect(gradient):
        gc.collect()

    x = pb.ones(2, requires_grad=True)
    y = x * 2
    y.register_hook(collect)
    z = (y.exp() * y).sum()
    del y
    z.backward()
    expected = pb.ones(2, requires_grad=True)
    w = expected * 2
    (w.exp() * w).sum().backward()
    assert x.grad.tolist() == expected.grad.tolist()


def test_plain_tensors_are_not_tracked():
    assert not gc.is_tracked(pb.ones(3) * 2)
    assert gc.is_tracked(pb.ones(3, requires_grad=True) * 2)


def test_get_referents_of_a_tensor_does_not_confuse_the_next_collection():
    x = pb.ones(2, requires_grad=True)
    probe = Probe()
    reference = weakref.ref(probe)
    y = x * 2
    y.register_hook(lambda g, held=(y, probe): None)
    gc.get_referents(y)
    gc.get_referrers(probe)
    del y, probe
    gc.collect()
    assert reference() is None


def test_attributes_of_subclasses_with_several_bases_are_seen_and_freed():
    class Named:
        label = "default"

    class Both(Named, pb.Tensor):
        pass

    class Again(pb.Tensor, Named):
        pass

    for kind in (Both, Again):
        tensor = pb.ones(2).as_subclass(kind)
        assert tensor.label == "default"
        tensor.label, tensor.itself = "own", tensor  # a cycle
        assert tensor.__dict__ == {"label": "own", "itself": tensor}
        reference = weakref.ref(tensor)
        del tensor
        gc.collect()
        assert reference() is None
