"""Checkpoints: what goes wrong, with other features, and what is left of them."""

import gc
import sys
import threading
import weakref

import pytest
from rerun import Changing, Counted, gradient, same, two, wave

import pullback as pb
from pullback.utils import checkpoint as module
from pullback.utils.checkpoint import (
    CheckpointError,
    checkpoint,
    noop_context_fn,
    set_checkpoint_debug_enabled,
)

grad = pb.autograd.grad


@pytest.fixture
def x():
    return pb.tensor([0.5, 1.0, 2.0], dtype=pb.float64, requires_grad=True)


@pytest.fixture
def w():
    return pb.tensor([2.0, 3.0, 4.0], dtype=pb.float64, requires_grad=True)


# errors


class Twice(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx, g):
        _, result = ctx.saved_tensors
        with pytest.raises(CheckpointError, match="a tensor that was already unpacked once"):
            ctx.saved_tensors
        return g * result


def test_custom_function_may_read_what_it_saved_once(x):
    checkpoint(Twice.apply, x).sum().backward()
    assert same(x.grad, x.exp())


def test_fewer_tensors_saved_again(x):
    y = checkpoint(Changing(wave, two), x)
    with pytest.raises(CheckpointError, match="A different number of tensors was saved") as caught:
        y.sum().backward()
    assert "during forward: 3\n" in str(caught.value)
    assert "during recomputation: 2." in str(caught.value)
    assert "Tip: To see a more detailed error, either pass `debug=True` to" in str(caught.value)


def test_more_tensors_saved_again(x):
    y = checkpoint(Changing(two, wave), x, early_stop=False)
    with pytest.raises(CheckpointError, match="trying to save more tensors during recomputation"):
        y.sum().backward()


def test_more_tensors_do_no_harm_with_early_stop(x):
    checkpoint(Changing(two, wave), x).sum().backward()
    assert same(x.grad, gradient(two, x))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda x: x.sin() * pb.ones(2, 1, dtype=pb.float64), "'shape': pullback.Size([2, 1])"),
        (lambda x: x.sin() * pb.ones(3), "'dtype': pullback.float32"),
    ],
    ids=["shape", "dtype"],
)
def test_other_metadata_are_shown(x, other, words):
    y = checkpoint(Changing(two, other), x)
    expected = "Recomputed values for the following tensors have different metadata"
    with pytest.raises(CheckpointError, match=expected) as caught:
        y.sum().backward()
    text = str(caught.value)
    assert "tensor at position 1:\nsaved metadata: {'shape': pullback.Size([3])" in text
    assert f"recomputed metadata: {{{words}" in text.replace("'shape': pullback.Size([3]), ", "")


def test_metadata_are_not_compared_if_so_wanted(x):
    other = Changing(two, lambda x: x.sin() * pb.ones(3))
    y = checkpoint(other, x, determinism_check="none")
    with pytest.raises(RuntimeError, match="unpack hook of ExpBackward0 returned a tensor"):
        y.sum().backward()  # the graph itself notices


def test_a_value_that_differs_is_not_seen(x):
    checkpoint(Changing(two, lambda x: x.sin() * pb.zeros(3, dtype=pb.float64)), x).sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("reentrant", [True, False])
def test_an_argument_changed_in_place_since(x, reentrant):
    y = x * 1
    z = checkpoint(wave, y, use_reentrant=reentrant)
    y.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_debug_shows_the_ops_of_both_runs(x):
    y = checkpoint(Changing(two, lambda x: x.sin() * pb.ones(3)), x, debug=True)
    with pytest.raises(CheckpointError, match="because you passed `debug=True` to") as caught:
        y.sum().backward()
    text = str(caught.value)
    assert "sin(self=float64[3]) -> float64[3]   (1 of 2 in original)" in text
    assert "\nmul(self=float64[3], other=float32[3]) -> float64[3]\n" in text
    assert f"{__file__}:" in text
    assert "different metadata" in str(caught.value.__cause__)
    original = text[text.index("Log of operators in the original forward") :]
    assert original.index("exp(self=") < original.index("Log of operators in recomputation")


def test_debug_is_set_for_all_inside(x):
    with set_checkpoint_debug_enabled(True):
        y = checkpoint(Changing(wave, two), x)
    with pytest.raises(CheckpointError, match="dumping logs of latest computation"):
        y.sum().backward()
    with set_checkpoint_debug_enabled(False):
        y = checkpoint(Changing(wave, two), x, debug=True)
    with pytest.raises(CheckpointError, match="A different number"):
        y.sum().backward()


def test_exceptions_of_the_function_arrive(x):
    with pytest.raises(ZeroDivisionError):
        checkpoint(lambda x: 1 / 0, x)
    y = checkpoint(Changing(wave, lambda x: 1 / 0, wave), x)
    with pytest.raises(ZeroDivisionError):
        y.sum().backward(retain_graph=True)
    assert pb.is_grad_enabled()
    assert same(y.grad_fn._saved_self, x.sin().exp())  # now it runs through


def test_options_that_do_not_go_together(x):
    with pytest.raises(ValueError, match="Unexpected keyword arguments: foo"):
        checkpoint(wave, x, use_reentrant=True, foo=1)
    with pytest.raises(ValueError, match="only supported when use_reentrant=False"):
        checkpoint(wave, x, use_reentrant=True, debug=True)
    with pytest.raises(ValueError, match="only supported when use_reentrant=False"):
        checkpoint(wave, x, use_reentrant=True, context_fn=lambda: noop_context_fn())
    with pytest.raises(ValueError, match="incompatible with non-default context_fn"):
        checkpoint(wave, x, debug=True, context_fn=lambda: noop_context_fn())
    with pytest.raises(ValueError, match="determinism_check should be one of"):
        checkpoint(wave, x, determinism_check="strict")


# function transforms


@pytest.mark.parametrize("transform", ["grad", "jacrev", "jacfwd", "hessian"])
def test_function_transforms(x, transform):
    def function(x):
        return (x.sin() * x).exp().sum()

    transform = getattr(pb.func, transform)
    found = transform(lambda x: checkpoint(function, x))(x.detach())
    assert same(found, transform(function)(x.detach()))


def test_gradients_inside_of_vmap(w):
    rows = pb.stack([w, w + 1]).detach()
    found = pb.func.vmap(pb.func.grad(lambda x: checkpoint(wave, x).sum()))(rows)
    assert same(found, gradient(wave, rows.requires_grad_()))


def test_vmap_inside_of_a_checkpoint(w):
    rows = pb.stack([w, w + 1]).detach().requires_grad_()
    y = checkpoint(lambda rows: pb.func.vmap(wave)(rows), rows)
    assert same(grad(y.sum(), rows)[0], gradient(wave, rows))


def test_backward_after_vmap_has_ended_says_so(w):
    rows = pb.stack([w, w])
    y = pb.func.vmap(lambda x: checkpoint(wave, x))(rows)
    with pytest.raises(RuntimeError, match="an element of a batch of vmap, which has ended"):
        y.sum().backward()


def test_backward_after_forward_mode_has_ended_says_so(x):
    forward_ad = pb.autograd.forward_ad
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, pb.ones(3, dtype=pb.float64))
        y = checkpoint(wave, dual)
        (gradient,) = grad(y.sum(), x, retain_graph=True)
        tangent = forward_ad.unpack_dual(gradient).tangent
    with pytest.raises(CheckpointError, match="Forward mode was on during the original forward"):
        y.sum().backward()
    (first,) = grad(wave(x).sum(), x, create_graph=True)
    assert same(gradient, first)
    assert same(tangent, grad(first.sum(), x)[0])


# hooks


def test_hooks_around_see_the_arguments_only(x):
    packed = []

    def pack(tensor):
        packed.append(tensor)
        return tensor

    with pb.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = checkpoint(wave, x)
    y.sum().backward()
    assert len(packed) == 1
    assert same(x.grad, gradient(wave, x))


def test_threads_have_their_own_passes(x):
    function = Counted(wave)
    y = checkpoint(function, x)
    found = []

    def run():
        found.append(grad(y.sum(), x, retain_graph=True)[0])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = gradient(wave, x)
    assert len(found) == 4
    assert all(same(one, expected) for one in found)
    assert function.begun == 5


# lifetime


@pytest.mark.parametrize(
    "use",
    [
        lambda y, x: None,
        lambda y, x: grad(y.sum(), x, retain_graph=True),
        lambda y, x: grad(grad(y.sum(), x, create_graph=True)[0].sum(), x, retain_graph=True),
        lambda y, x: y.grad_fn._saved_self,
    ],
    ids=["unused", "pass", "second", "read"],
)
@pytest.mark.parametrize("options", [{}, {"early_stop": False}, {"debug": True}])
def test_nothing_is_left_of_a_dropped_graph(x, use, options):
    def function(x):
        return checkpoint(wave, x.exp()) * x

    reference = weakref.ref(function)
    gc.collect()
    gc.disable()
    try:
        y = checkpoint(function, x, **options).sin()
        use(y, x)
        del function
        assert reference() is not None
        del y
        assert reference() is None
    finally:
        gc.enable()


def test_backward_frees_the_function(x):
    def function(x):
        return wave(x)

    reference = weakref.ref(function)
    y = checkpoint(function, x)
    del function
    y.sum().backward()
    assert reference() is None
    assert y.grad_fn is not None


def test_what_a_pass_does_not_need_is_dropped_at_its_end(x):
    first, second = checkpoint(lambda x: (x.sin(), x.exp().sin()), x)
    grad(first.sum(), x, retain_graph=True)
    before = pb.memory_stats()["allocated_bytes.all.current"]
    for _ in range(3):
        grad(first.sum(), x, retain_graph=True)
    assert pb.memory_stats()["allocated_bytes.all.current"] == before
    assert second.requires_grad


def test_saved_values_take_no_memory():
    x = pb.ones(10_000, requires_grad=True)

    def function(x):
        for _ in range(10):
            x = x.sin()
        return x

    begin = pb.memory_stats()["allocated_bytes.all.current"]
    y = checkpoint(function, x)
    assert pb.memory_stats()["allocated_bytes.all.current"] - begin < 2 * 4 * 10_000
    y.sum().backward()


@pytest.mark.parametrize("early_stop", [True, False])
def test_what_a_function_saves_and_overwrites_is_refused_as_without_a_checkpoint(early_stop):
    def power(x):
        y = x * 1
        return y.mul_(y).mul_(y)

    x = pb.tensor([0.5, 2.0], requires_grad=True)
    for function in (power, lambda x: checkpoint(power, x, early_stop=early_stop)):
        with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
            grad(function(x).sum(), x)


@pytest.mark.parametrize("early_stop", [True, False])
def test_writes_that_no_saved_tensor_sees(early_stop):
    def function(x, factor):
        y = x * 1
        y[0].mul_(factor).sin_()
        y.sigmoid_()
        z = y.clone().pow_(2).tanh_()
        return pb.func.vmap(lambda row: row.clone().mul_(factor).sin_())(z)

    x = pb.arange(6.0).reshape(3, 2).requires_grad_()
    factor = pb.tensor(0.5, requires_grad=True)
    found = checkpoint(function, x, factor, early_stop=early_stop)
    for one, other in zip(
        grad(found.sum(), [x, factor]), grad(function(x, factor).sum(), [x, factor])
    ):
        assert one.tolist() == other.tolist()


def test_every_name_of_the_module_exists():
    assert all(hasattr(module, name) for name in module.__all__)
    assert pb.utils.checkpoint is sys.modules["pullback.utils.checkpoint"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pb.utils.nothing
