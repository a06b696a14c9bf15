"""Hooks on tensors, nodes and accumulators: order, replacement, handles, errors."""

import pickle
import weakref

import pytest

import pullback as pb

grad = pb.autograd.grad
register_multi_grad_hook = pb.autograd.graph.register_multi_grad_hook


def leaf(*values, dtype=pb.float64):
    return pb.tensor(list(values), dtype=dtype, requires_grad=True)


def accumulator(x):
    return pb.autograd.graph.get_gradient_edge(x).node


def module_level_hook(g):
    return g * 2


# Order


def test_order_around_a_non_leaf():
    x, seen = leaf(1.0), []
    b = x * 2
    b.retain_grad()
    b.grad_fn.register_hook(lambda gi, go: seen.append(("post", go[0].item())))
    b.grad_fn.register_prehook(lambda go: seen.append(("pre", go[0].item())))
    b.register_hook(lambda g: seen.append(("first", g.item())) or g * 10)
    b.register_hook(lambda g: seen.append(("second", g.item())) or g + 1)
    (b * 3).backward()
    assert seen == [("first", 3.0), ("second", 30.0), ("pre", 31.0), ("post", 31.0)]
    assert b.grad.tolist() == [31.0]
    assert x.grad.tolist() == [62.0]


def test_order_around_a_leaf():
    a, seen = leaf(1.0), []
    acc = accumulator(a)
    acc.register_hook(lambda gi, go: seen.append(("acc post", gi, a.grad.item())))
    a.register_post_accumulate_grad_hook(lambda p: seen.append(("accumulated 1", p.grad.item())))
    a.register_post_accumulate_grad_hook(lambda p: seen.append(("accumulated 2", p is a)))
    acc.register_prehook(lambda go: seen.append(("acc pre", go[0].item(), a.grad)))
    a.register_hook(lambda g: seen.append(("tensor", g.item())) or g * 10)
    (a * 2).backward()
    assert seen == [
        ("tensor", 2.0),
        ("acc pre", 20.0, None),
        ("accumulated 1", 20.0),
        ("accumulated 2", True),
        ("acc post", (), 20.0),
    ]


def test_tensor_hook_sees_the_sum_of_all_uses_once():
    x, seen = leaf(1.0), []
    x.register_hook(lambda g: seen.append(g.item()))
    (x * 2 + x * 3).backward()
    assert seen == [5.0]


# When hooks fire


def test_tensor_hooks_fire_for_grad_too():
    x, seen = leaf(2.0), []
    y = x * 3
    x.register_hook(lambda g: seen.append(("x", g.item())))
    y.register_hook(lambda g: seen.append(("y", g.item())) or g * 2)
    (g,) = grad((y * 5).sum(), x)
    assert seen == [("y", 5.0), ("x", 30.0)]
    assert g.tolist() == [30.0]


def test_tensor_hook_of_an_input_changes_the_result():
    x = leaf(2.0)
    y = x * 3
    y.register_hook(lambda g: g * 100)
    assert grad((y * 5).sum(), y)[0].tolist() == [500.0]


def test_node_hook_of_an_input_does_not_fire_for_grad():
    x, seen = leaf(2.0), []
    y = x * 3
    y.grad_fn.register_prehook(lambda go: seen.append("pre"))
    y.grad_fn.register_hook(lambda gi, go: seen.append("post"))
    z = (y * 5).sum()
    grad(z, y, retain_graph=True)
    assert seen == []
    grad(z, x)
    assert seen == ["pre", "post"]


def test_post_accumulate_hook_fires_only_when_accumulating():
    x, seen = leaf(2.0), []
    x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.item()))
    grad((x * 3).sum(), x)
    assert seen == []
    (x * 3).backward()
    (x * 3).backward()
    assert seen == [3.0, 6.0]


def test_post_accumulate_hook_may_step_and_clear():
    x = leaf(2.0)

    def step(p):
        with pb.no_grad():
            p.sub_(p.grad)
        p.grad = None

    x.register_post_accumulate_grad_hook(step)
    (x * 3).backward()
    assert x.grad is None
    assert x.tolist() == [-1.0]


def test_hooks_fire_on_every_pass():
    x, seen = leaf(2.0), []
    y = x * 3
    y.register_hook(lambda g: seen.append(g.item()))
    y.backward(retain_graph=True)
    y.backward()
    assert seen == [1.0, 1.0]


def test_hook_fires_only_for_its_own_output():
    x, seen = leaf(1.0, 2.0), []
    first, second = (x * 1).unbind()
    first.register_hook(lambda g: seen.append(g))
    second.register_hook(lambda g: seen.append(g))
    (second * 2).backward()
    assert [g if g is None else g.item() for g in seen] == [None, 2.0]


@pytest.mark.parametrize("kind", ["tensor", "node"])
def test_hook_may_not_replace_a_missing_gradient(kind):
    x = leaf(1.0, 2.0)
    first, second = (x * 1).unbind()
    one = pb.ones((), dtype=pb.float64)
    if kind == "tensor":
        first.register_hook(lambda g: one)
    else:
        first.grad_fn.register_prehook(lambda go: (one, go[1]))
    with pytest.raises(RuntimeError, match="can't replace a None gradient with a non-None value"):
        second.backward()


# Replacement


def test_node_prehook_replaces_grad_outputs():
    x = leaf(2.0)
    y = x * 3
    y.grad_fn.register_prehook(lambda go: (go[0] * 7,))
    y.backward()
    assert x.grad.tolist() == [21.0]


def test_node_posthook_replaces_grad_inputs():
    x, w = leaf(2.0), leaf(5.0)
    y = x * w
    y.grad_fn.register_hook(lambda gi, go: (gi[0] * 10, gi[1]))
    y.backward()
    assert x.grad.tolist() == [50.0]
    assert w.grad.tolist() == [2.0]


def test_posthook_sees_none_where_no_gradient_flows():
    x, seen = leaf(2.0), []
    y = x * pb.tensor([3.0], dtype=pb.float64)
    y.grad_fn.register_hook(lambda gi, go: seen.append(gi))
    y.backward()
    assert seen[0][0].tolist() == [3.0]
    assert seen[0][1] is None


def test_hooks_chain():
    x = leaf(1.0)
    x.register_hook(lambda g: g + 1)
    x.register_hook(lambda g: None)
    x.register_hook(lambda g: g * 10)
    x.sum().backward()
    assert x.grad.tolist() == [20.0]


def test_replaced_gradient_is_recorded_with_create_graph():
    x = leaf(2.0)
    y = x * 3
    y.register_hook(lambda g: g * x)
    (g,) = grad(y, x, create_graph=True)
    assert g.tolist() == [6.0]
    assert grad(g, x)[0].tolist() == [3.0]


def test_retain_grad_accumulates_over_passes():
    x = leaf(2.0)
    y = x * 3
    y.retain_grad()
    y.retain_grad()
    assert y.retains_grad
    assert not x.retains_grad
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    grad(y, x)
    assert y.grad.tolist() == [3.0]


def test_retain_grad_stores_for_grad_calls():
    x = leaf(2.0)
    y = x * 3
    y.retain_grad()
    grad((y * 5).sum(), x)
    assert y.grad.tolist() == [5.0]


@pytest.mark.beyond_torch
def test_mutating_hook_does_not_reach_a_sibling():
    x, y = leaf(1.0), leaf(1.0)

    def mutate(g):
        g.mul_(10)

    x.register_hook(mutate)
    try:
        (x + y).backward()
    except RuntimeError:
        return
    assert y.grad.tolist() == [1.0]


@pytest.mark.beyond_torch
def test_mutating_hook_does_not_reach_the_seed():
    x, seed = leaf(1.0), pb.tensor([1.0], dtype=pb.float64)
    y = x + 1
    y.register_hook(lambda g: g.mul_(10) and None)
    try:
        y.backward(seed)
    except RuntimeError:
        pass
    assert seed.tolist() == [1.0]


# Wrong replacements


def register(kind, x, y, hook):
    if kind == "tensor":
        y.register_hook(hook)
    elif kind == "leaf":
        x.register_hook(hook)
    elif kind == "prehook":
        y.grad_fn.register_prehook(lambda go: hook(go[0]))
    elif kind == "posthook":
        y.grad_fn.register_hook(lambda gi, go: hook(gi[0]))


@pytest.mark.parametrize(
    ("kind", "hook", "error", "fragment"),
    [
        ("tensor", lambda g: g[:1], RuntimeError, "has changed the size of value"),
        ("tensor", lambda g: g.to(pb.float32), RuntimeError, "has changed the type of value"),
        ("tensor", lambda g: 3, TypeError, "expected Variable, but hook returned"),
        ("leaf", lambda g: g[:1], RuntimeError, "has changed the size of value"),
        ("leaf", lambda g: (g,), TypeError, "expected Variable, but hook returned"),
        ("prehook", lambda g: (g, g), RuntimeError, "has returned an incorrect number of values"),
        ("prehook", lambda g: g, TypeError, "expected tuple"),
        ("prehook", lambda g: [g], TypeError, "expected tuple"),
        ("prehook", lambda g: (3,), TypeError, "expected Variable, but hook returned"),
        ("prehook", lambda g: (g[:1],), RuntimeError, "has changed the size of value"),
        ("posthook", lambda g: (g,), RuntimeError, "has returned an incorrect number of values"),
        ("posthook", lambda g: g, TypeError, "expected tuple"),
        ("posthook", lambda g: ("a", None), TypeError, "expected Variable, but hook returned"),
        ("posthook", lambda g: (g[:1], None), RuntimeError, "has changed the size of value"),
    ],
)
def test_wrong_replacement_is_refused(kind, hook, error, fragment):
    x = leaf(1.0, 2.0)
    y = x * 2
    register(kind, x, y, hook)
    with pytest.raises(error, match=fragment):
        y.backward(pb.ones(2))
    assert x.grad is None


def test_error_names_the_hook():
    def shrinking_hook(g):
        return g[:1]

    x = leaf(1.0, 2.0)
    x.register_hook(shrinking_hook)
    with pytest.raises(RuntimeError, match="shrinking_hook"):
        x.sum().backward()


def test_post_accumulate_hook_must_return_none():
    x = leaf(1.0)
    x.register_post_accumulate_grad_hook(lambda p: 3)
    with pytest.raises((TypeError, RuntimeError)):
        x.sum().backward()


# Registration


def test_registration_needs_a_fitting_tensor():
    fragment = "cannot register a hook on a tensor that doesn't require gradient"
    with pytest.raises(RuntimeError, match=fragment):
        pb.ones(1).register_hook(print)
    with pytest.raises(RuntimeError, match=fragment):
        pb.ones(1).register_post_accumulate_grad_hook(print)
    with pytest.raises(
        RuntimeError, match="post accumulate grad hooks cannot be registered on non"
    ):
        (leaf(1.0) * 2).register_post_accumulate_grad_hook(print)
    with pytest.raises(
        RuntimeError, match="can't retain_grad on Tensor that has requires_grad=Fal"
    ):
        pb.ones(1).retain_grad()


# Handles


@pytest.mark.parametrize(
    "add",
    [
        pytest.param(lambda x, y, f: x.register_hook(f), id="leaf"),
        pytest.param(lambda x, y, f: y.register_hook(f), id="tensor"),
        pytest.param(lambda x, y, f: y.grad_fn.register_hook(f), id="posthook"),
        pytest.param(lambda x, y, f: y.grad_fn.register_prehook(f), id="prehook"),
        pytest.param(lambda x, y, f: x.register_post_accumulate_grad_hook(f), id="accumulate"),
        pytest.param(lambda x, y, f: register_multi_grad_hook([x], f), id="multi"),
    ],
)
def test_handle_removes_its_hook(add):
    x, seen = leaf(1.0), []
    y = x * 2

    def hook(*args):
        seen.append("called")

    handle = add(x, y, hook)
    y.backward(retain_graph=True)
    assert seen == ["called"]
    handle.remove()
    handle.remove()
    y.backward(retain_graph=True)
    assert seen == ["called"]
    with add(x, y, hook):
        y.backward(retain_graph=True)
    y.backward()
    assert seen == ["called", "called"]


def test_handles_have_distinct_ids_and_pickle():
    x = leaf(1.0)
    first, second = x.register_hook(module_level_hook), x.register_hook(module_level_hook)
    assert first.id != second.id
    assert isinstance(first, pb.utils.hooks.RemovableHandle)
    assert pickle.loads(pickle.dumps(first)).id == first.id


def test_handle_outlives_its_tensor():
    x = leaf(1.0)
    handle = x.register_hook(module_level_hook)
    del x
    handle.remove()


# Hooks that act on the running pass


def test_hook_may_remove_itself_and_others():
    x, seen = leaf(1.0), []
    y = x * 2

    def once(g):
        seen.append("once")
        first.remove()
        second.remove()

    first = y.register_hook(once)
    second = x.register_hook(lambda g: seen.append("other"))
    y.backward(retain_graph=True)
    y.backward()
    assert seen == ["once"]


def test_hook_may_add_a_hook_further_down():
    x, seen = leaf(1.0), []
    y = x * 2
    y.register_hook(lambda g: x.register_hook(lambda g: seen.append(g.item())) and None)
    y.backward()
    assert seen == [2.0]


def test_hook_may_run_backward():
    x, w = leaf(2.0), leaf(3.0)
    y, z = x * 2, w * w
    y.register_hook(lambda g: z.backward())
    y.backward()
    assert x.grad.tolist() == [2.0]
    assert w.grad.tolist() == [6.0]


def test_hook_may_drop_the_last_reference_to_the_graph():
    x, held = leaf(2.0), []
    held.append(x * 2)
    held[0].register_hook(lambda g: held.clear())
    (held[0] * 3).backward()
    assert held == []
    assert x.grad.tolist() == [6.0]


def test_raising_hook_leaves_everything_usable():
    x, calls = leaf(2.0), []

    def fail(g):
        calls.append(g)
        raise KeyError("from hook")

    y = x * 2
    handle = y.register_hook(fail)
    with pytest.raises(KeyError, match="from hook"):
        y.backward()
    handle.remove()
    (x * 2).backward()
    assert x.grad.tolist() == [2.0]
    assert len(calls) == 1


# Multi-grad hooks


def test_multi_grad_hook_waits_for_all_gradients_of_the_pass():
    x, y, z, seen = leaf(1.0), leaf(2.0), leaf(3.0), []
    handle = register_multi_grad_hook([x, y, z], seen.append)
    (x * 2 + y * 3).backward()
    assert [None if g is None else g.tolist() for g in seen[0]] == [[2.0], [3.0], None]
    (x * z).backward()
    assert len(seen) == 2
    assert seen[1][1] is None
    handle.remove()
    (x * y).backward()
    assert len(seen) == 2


@pytest.mark.beyond_torch
def test_multi_grad_hook_fires_with_partial_passes():
    x, y, seen = leaf(1.0), leaf(2.0), []
    register_multi_grad_hook([x, y], seen.append)
    grad(x * y, x)
    assert [g is None for g in seen[0]] == [False, True]


@pytest.mark.beyond_torch
def test_multi_grad_hook_fires_once_with_a_root_among_its_tensors():
    x, seen = leaf(1.0), []
    y = x * 2
    z = y * 3
    register_multi_grad_hook([y, z], seen.append)
    z.backward()
    assert [g.tolist() for g in seen[0]] == [[3.0], [1.0]]
    assert len(seen) == 1


def test_multi_grad_hook_any_fires_once_with_the_first():
    x, y, seen = leaf(1.0), leaf(2.0), []
    register_multi_grad_hook([x, y], lambda g: seen.append(g.item()), mode="any")
    z = x * 2
    (y * 3 + z).backward()
    assert seen == [3.0]


def test_multi_grad_hook_refuses_unknown_mode():
    with pytest.raises(ValueError, match="Expects mode to be one of"):
        register_multi_grad_hook([leaf(1.0)], print, mode="some")


@pytest.mark.beyond_torch
def test_multi_grad_hook_names_the_tensor_without_grad():
    with pytest.raises(RuntimeError, match="1"):
        register_multi_grad_hook([leaf(1.0), pb.ones(1)], print)


# Serialisation helpers


def test_unserializable_hook_silences_the_warning():
    x = leaf(1.0)
    x.register_hook(module_level_hook)
    with pytest.warns(UserWarning, match="hook"):
        pb.utils.hooks.warn_if_has_hooks(x)
    y = leaf(1.0)
    y.register_hook(pb.utils.hooks.unserializable_hook(lambda g: None))
    pb.utils.hooks.warn_if_has_hooks(y)


def test_node_post_hook_that_writes_changes_one_gradient_only():
    x, y = (pb.ones(1, requires_grad=True) for _ in range(2))
    z = x + y
    seed = pb.ones(1)
    z.grad_fn.register_hook(lambda inputs, outputs: [inputs[0].mul_(10)].clear())
    z.backward(seed)
    assert (x.grad.item(), y.grad.item(), seed.item()) == (10.0, 1.0, 1.0)
    z = x + y
    z.grad_fn.register_hook(lambda inputs, outputs: [outputs[0].zero_()].clear())
    x.grad = y.grad = None
    z.backward(seed)
    assert (x.grad.item(), y.grad.item(), seed.item()) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("mode", ["all", "any"])
def test_multi_grad_hook_keeps_no_tensor_alive(mode, no_gc):
    x, other = (pb.ones(1, requires_grad=True) for _ in range(2))
    y = other * 2
    gone = [weakref.ref(x), weakref.ref(y)]
    handle = register_multi_grad_hook([x, other, y], print, mode=mode)
    del x, y
    assert [ref() for ref in gone] == [None, None]
    handle.remove()


def test_multi_grad_hook_counts_tensors_that_are_gone_as_not_reached():
    seen = []
    x, other = (pb.ones(1, requires_grad=True) for _ in range(2))
    register_multi_grad_hook([x, other], seen.append)
    del other
    (x * 3).backward()
    assert [seen[0][0].tolist(), seen[0][1]] == [[3.0], None]


@pytest.mark.parametrize(
    "op", ["max", "sort", "topk", "kthvalue", "mode", "median", "cummax", "frexp", "svd"]
)
def test_node_hooks_are_given_no_gradients_of_trailing_indices(op):
    x = pb.tensor([[1.4, -0.8, 0.3]], requires_grad=True)
    results = (
        pb.linalg.svd(x, full_matrices=False)
        if op == "svd"
        else getattr(pb, op)(x, *{"topk": [2], "kthvalue": [1], "frexp": []}.get(op, [1]))
    )
    differentiable = sum(result.dtype.is_floating_point for result in results)
    assert all(result.requires_grad for result in results[:differentiable])
    values, node, seen = results[0], results[0].grad_fn, []
    node.register_prehook(lambda grads: seen.append(len(grads)))
    node.register_hook(lambda grads, outer: seen.append(len(outer)))
    values.sum().backward()
    assert seen == [differentiable] * 2


def test_a_node_is_called_without_gradients_of_indices():
    x = pb.tensor([3.0, 1.0], requires_grad=True)
    node = x.sort()[0].grad_fn
    assert node(pb.tensor([5.0, 7.0])).tolist() == [7.0, 5.0]
    with pytest.raises(TypeError, match="SortBackward0: expected 1 arguments, got 2 instead"):
        node(pb.ones(2), None)
