"""Checkpoints that keep the results of some ops, and dispatch modes."""

import functools
import gc
import threading
import weakref

import pytest

import pullback as pb
from pullback._c.graph import levels
from pullback.utils.checkpoint import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    create_selective_checkpoint_contexts,
)

grad = pb.autograd.grad
F = pb.nn.functional


@pytest.fixture
def x():
    return pb.randn(4, 4, dtype=pb.float64, requires_grad=True)


@pytest.fixture
def w():
    return pb.randn(4, 4, dtype=pb.float64, requires_grad=True)


def product(x, w):
    return ((x @ w) @ w).sigmoid() * w


def keeping(policy, **options):
    return functools.partial(create_selective_checkpoint_contexts, policy, **options)


class Recorder:
    """Notes the names of the ops that run inside, and what they write."""

    def __init__(self):
        self.names, self.written = [], []

    def __enter__(self):
        self.level = levels.enter_dispatch_mode(self.see, self.write)
        return self

    def __exit__(self, kind, value, traceback):
        levels.exit_level(self.level)

    def see(self, op, args, run):
        self.names.append(op.name)
        return run()

    def write(self, op, targets):
        self.written.append((op.name, targets))


def same(left, right):
    return all(one.tolist() == other.tolist() for one, other in zip(left, right))


# policies


@pytest.mark.parametrize(
    "policy",
    [
        [],
        [pb.mm],
        [pb.sigmoid, pb.mul],
        lambda ctx, op, *args: True,
        lambda ctx, op, *args: False,
        lambda ctx, op, *args: op is pb.mm,
        *(lambda ctx, op, *args, value=value: value for value in CheckpointPolicy),
    ],
)
def test_gradients_are_the_same_whatever_is_kept(x, w, policy):
    expected = grad(product(x, w).sum(), (x, w))
    y = checkpoint(product, x, w, context_fn=keeping(policy))
    assert same(grad(y.sum(), (x, w)), expected)


def test_what_is_kept_does_not_run_again(x, w):
    runs = []

    def count(op, args, run):
        runs.append(op.name)
        return run()

    def again(policy):
        y = checkpoint(product, x, w, context_fn=keeping(policy))
        level = levels.enter_dispatch_mode(count)
        try:
            runs.clear()
            y.grad_fn._saved_self  # computes again
            return list(runs)
        finally:
            levels.exit_level(level)

    assert again([]) == ["mm", "mm", "sigmoid", "mul"]
    assert again([pb.mm]) == ["sigmoid", "mul"]
    assert again([pb.sigmoid, pb.mul]) == ["mm", "mm"]


def test_policy_is_told_of_each_op_once(x, w):
    seen = []

    def policy(ctx, op, *args, **kwargs):
        assert isinstance(ctx, SelectiveCheckpointContext)
        assert not kwargs
        assert not pb.is_grad_enabled()
        seen.append((op.name, [tuple(arg.shape) for arg in args], ctx.is_recompute))
        assert ctx.op_output.shape == (4, 4)
        return CheckpointPolicy.PREFER_RECOMPUTE

    y = checkpoint(product, x, w, context_fn=keeping(policy))
    y.sum().backward()
    assert [name for name, _, _ in seen] == ["mm", "mm", "sigmoid", "mul"]
    assert seen[0][1:] == ([(4, 4), (4, 4)], False)


def test_policy_may_keep_only_some_calls_of_an_op(x, w):
    expected = grad(product(x, w).sum(), (x, w))
    calls = []

    def policy(ctx, op, *args):
        calls.append(op)
        return calls.count(op) == 2  # the second product

    y = checkpoint(product, x, w, context_fn=keeping(policy))
    assert same(grad(y.sum(), (x, w)), expected)


def test_op_of_a_wrapped_kernel_is_the_public_one(x):
    seen = []

    def policy(ctx, op, *args):
        seen.append(op)
        return op is pb.softmax

    y = checkpoint(lambda x: x.softmax(0).exp(), x, context_fn=keeping(policy))
    y.sum().backward()
    assert seen == [pb.softmax, pb.exp]


def test_results_that_are_several_tensors(x):
    def function(x):
        values, indices = x.sort(1)
        found = x.topk(2)
        return values.exp() + indices, found.values.sin().sum()

    def total(pair):
        return pair[0].sum() + pair[1]

    expected = grad(total(function(x)), x)
    for policy in ([pb.sort, pb.topk], lambda ctx, op, *args: True):
        found = checkpoint(function, x, context_fn=keeping(policy))
        assert same(grad(total(found), x), expected)


def test_views_and_in_place_ops_run_again(x):
    def function(x):
        y = x.sin()
        z = y.exp()
        y[0].mul_(3)
        y.t()[1] = 2
        return z * y

    expected = grad(function(x).sum(), x)
    policy = [pb.exp, pb.t, pb.select, pb.Tensor.mul_, pb.Tensor.fill_]
    y = checkpoint(function, x, context_fn=keeping(policy))
    assert same(grad(y.sum(), x), expected)


@pytest.mark.parametrize("policy", [[pb.bernoulli], lambda ctx, op, *args: True])
def test_random_numbers_behind_a_kept_op_are_the_same(x, policy):
    def function(x):
        return (x * pb.bernoulli(x.sigmoid())).exp() * pb.rand(4, 4, dtype=pb.float64)

    pb.manual_seed(3)
    expected = grad(function(x).sum(), x)
    pb.manual_seed(3)
    y = checkpoint(function, x, context_fn=keeping(policy))
    pb.rand(5)
    assert same(grad(y.sum(), x), expected)


def test_nested_checkpoints(x, w):
    def function(x, w):
        return checkpoint(product, x, w, context_fn=keeping([pb.mm])).exp()

    expected = grad(product(x, w).exp().sum(), (x, w))
    y = checkpoint(function, x, w, context_fn=keeping([pb.exp]))
    assert same(grad(y.sum(), (x, w)), expected)


def test_without_early_stop(x, w):
    expected = grad(product(x, w).sum(), (x, w))
    y = checkpoint(product, x, w, context_fn=keeping([pb.mul]), early_stop=False)
    assert same(grad(y.sum(), (x, w)), expected)


# errors


def test_a_region_is_gone_through_once(x, w):
    y = checkpoint(product, x, w, context_fn=keeping([pb.mm]))
    grad(y.sum(), x, retain_graph=True)
    with pytest.raises(RuntimeError, match="Trying to backward an extra time"):
        grad(y.sum(), x)
    y = checkpoint(product, x, w, context_fn=keeping([]))
    grad(y.sum(), x, retain_graph=True)
    grad(y.sum(), x)  # nothing was kept


@pytest.mark.parametrize("allowed", [False, True])
def test_kept_tensor_that_was_changed(x, allowed):
    kept = []

    def function(x):
        y = x.exp()
        kept.append(y)
        return y.sin()

    contexts = keeping([pb.exp], allow_cache_entry_mutation=allowed)
    y = checkpoint(function, x, context_fn=contexts)
    kept[0].detach().zero_()
    if allowed:
        assert grad(y.sum(), x)[0].tolist() == pb.zeros(4, 4).tolist()
        return
    with pytest.raises(RuntimeError, match="during selective activation checkpoint has been mut"):
        y.sum().backward()


def test_an_op_that_did_not_run_before(x):
    functions = [pb.sin, lambda x: x.cos().exp().sin()]
    y = checkpoint(lambda x: functions.pop(0)(x), x, context_fn=keeping([pb.sin]))
    with pytest.raises(RuntimeError, match="cos, call number 1, encountered during backward but"):
        y.sum().backward()


def test_what_is_no_policy():
    with pytest.raises(TypeError, match="must be either a function or a list of ops"):
        create_selective_checkpoint_contexts(3)
    with pytest.raises(ValueError, match="Expected op in `op_list` to be an op of pullback"):
        create_selective_checkpoint_contexts(["mm"])
    with pytest.raises(ValueError, match="matmul is made of other ops"):
        create_selective_checkpoint_contexts([pb.mm, pb.matmul])
    create_selective_checkpoint_contexts([pb.softmax, F.gelu, pb.sum])


def test_policies_are_those_of_torch():
    names = [
        "MUST_SAVE",
        "PREFER_SAVE",
        "MUST_RECOMPUTE",
        "PREFER_RECOMPUTE",
        "MUST_CPU_OFFLOAD",
        "PREFER_CPU_OFFLOAD",
    ]
    assert [policy.name for policy in CheckpointPolicy] == names
    assert pb.Tensor.detach in SAC_IGNORED_OPS


def test_nothing_is_left_of_a_dropped_graph(x, w):
    def function(x, w):
        return product(x, w)

    reference = weakref.ref(function)
    gc.disable()
    try:
        y = checkpoint(function, x, w, context_fn=keeping([pb.mm, pb.sigmoid]))
        del function, y
        assert reference() is None
    finally:
        gc.enable()


# dispatch modes


def test_dispatch_modes_receive_parts_of_composites_and_not_what_kernels_call(x):
    with Recorder() as recorder:
        F.linear(x, x, x[0]).softmax(0)
        pb.einsum("ij,jk->ik", x, x)
    assert recorder.names[:4] == ["select", "t", "addmm", "_softmax"]
    assert "linear" not in recorder.names
    assert "einsum" not in recorder.names


def test_dispatch_modes_are_notified_of_all_writes(x):
    y = x.detach().clone()
    out = pb.empty(4, 4, dtype=pb.float64)
    with Recorder() as recorder:
        y.add_(1)
        y[0] = 2
        y[1] = y[2]
        y[pb.tensor([0, 1])] = 3
        y.zero_()
        y += y
        pb.sin(y, out=out)
        y.sort(0, out=(out, pb.empty(4, 4, dtype=pb.int64)))
        y.uniform_()
        pb.exp(y)
    names = [name for name, _ in recorder.written]
    assert names == ["add_", "fill_", "copy_", names[3], "zero_", "add_", "sin", "sort", "uniform_"]
    assert recorder.written[0][1] == (y,)
    assert recorder.written[6][1][0] is out
    assert len(recorder.written[7][1]) == 2


def test_dispatch_modes_receive_what_vmap_and_forward_mode_run(x):
    with Recorder() as recorder:
        pb.func.vmap(pb.sin)(x)
    assert recorder.names == ["sin"]
    with Recorder() as recorder, pb.autograd.forward_ad.dual_level():
        dual = pb.autograd.forward_ad.make_dual(x.detach(), pb.ones(4, 4, dtype=pb.float64))
        recorder.names.clear()
        y = dual.sin()
    assert recorder.names[0] == "sin"
    assert y.tolist() == x.sin().tolist()


def test_inner_dispatch_modes_come_first_and_outer_ones_receive_what_they_run(x):
    order = []

    def outer(op, args, run):
        order.append(("outer", op.name))
        return run()

    def inner(op, args, run):
        order.append(("inner", op.name))
        return run() if op is not pb.sin else args[0].detach().cos()

    first = levels.enter_dispatch_mode(outer)
    try:
        second = levels.enter_dispatch_mode(inner)
        y = x.sin()
        levels.exit_level(second)
    finally:
        levels.exit_level(first)
    assert order == [("inner", "sin"), ("outer", "detach"), ("outer", "cos")]
    assert y.tolist() == x.cos().tolist()
    assert y.grad_fn.name() == "SinBackward0"
    assert same(grad(y.sum(), x), [x.cos()])


def test_dispatch_modes_act_on_their_thread(x):
    with Recorder() as recorder:
        thread = threading.Thread(target=lambda: x.sin())
        thread.start()
        thread.join()
    assert recorder.names == []


def test_an_exception_of_a_dispatch_mode_is_raised(x):
    level = levels.enter_dispatch_mode(lambda op, args, run: 1 / 0)
    try:
        for call in (lambda: x.sin(), lambda: x.detach().add_(1)):
            with pytest.raises(ZeroDivisionError):
                call()
    finally:
        levels.exit_level(level)
    assert x.sin().requires_grad


def test_gradients_added_in_place_are_seen(x):
    x.sin().sum().backward()
    kept = x.grad
    with Recorder() as recorder:
        x.cos().sum().backward()
    assert x.grad is kept
    assert any(target is kept for _, targets in recorder.written for target in targets)
    assert x.grad.tolist() == (x.cos() - x.sin()).tolist()
