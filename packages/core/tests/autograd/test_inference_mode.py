"""``inference_mode``: what is made inside, what may be done with it, views across its border."""

import copy
import threading

import pytest

import pullback as pb

SAVE = "Inference tensors cannot be saved for backward"
WRITE = "Inplace update to inference tensor outside InferenceMode is not allowed"


def leaf(*values):
    return pb.tensor(list(values), requires_grad=True)


@pytest.fixture
def inside():
    """A tensor made in the mode."""
    with pb.inference_mode():
        return pb.ones(2)


# ---- the mode ------------------------------------------------------------------------------------


def test_sets_both_modes_and_restores_them():
    with pb.inference_mode():
        assert pb.is_inference_mode_enabled()
        assert not pb.is_grad_enabled()
        with pb.inference_mode(False):
            assert not pb.is_inference_mode_enabled()
            assert pb.is_grad_enabled()
            assert (leaf(1.0) * 2).requires_grad
        assert pb.is_inference_mode_enabled()
    assert not pb.is_inference_mode_enabled()
    assert pb.is_grad_enabled()


def test_is_left_by_exceptions():
    with pytest.raises(KeyError), pb.inference_mode():
        raise KeyError
    assert not pb.is_inference_mode_enabled()


@pytest.mark.parametrize(
    "decorate",
    [pb.inference_mode, pb.inference_mode(), pb.inference_mode(True), pb.inference_mode(mode=True)],
)
def test_decorates(decorate):
    assert decorate(lambda x: x * x)(leaf(2.0)).is_inference()
    assert not pb.is_inference_mode_enabled()


def test_decorator_of_false_records():
    assert pb.inference_mode(False)(lambda x: x * x)(leaf(2.0)).requires_grad


def test_generator_body_only():
    @pb.inference_mode()
    def numbers():
        yield pb.ones(1).is_inference()
        yield pb.is_inference_mode_enabled()

    found = numbers()
    assert next(found)
    assert not pb.is_inference_mode_enabled()
    assert next(found)


def test_other_threads_are_not_in_it():
    seen = []
    with pb.inference_mode():
        thread = threading.Thread(target=lambda: seen.append(pb.is_inference_mode_enabled()))
        thread.start()
        thread.join()
    assert seen == [False]


def test_argument_must_be_bool_or_function():
    with pytest.raises(TypeError, match="argument 'mode' must be bool, not str"):
        pb.inference_mode("yes")


def test_exit_without_enter():
    with pytest.raises(RuntimeError, match="left without having been entered"):
        pb.inference_mode().__exit__(None, None, None)


def test_enable_grad_inside_switches_the_flag_but_nothing_records():
    with pb.inference_mode(), pb.enable_grad():
        assert pb.is_grad_enabled()
        y = leaf(1.0) * 2
    assert not y.requires_grad
    assert y.is_inference()


# ---- what is made inside -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: pb.ones(2),
        lambda: pb.tensor([1.0]),
        lambda: pb.empty(0),
        lambda: leaf(1.0) * 2,
        lambda: leaf(1.0).clone(),
        lambda: pb.ones(2).view(2, 1),
        lambda: pb.ones(2).add_(1),
    ],
)
def test_results_are_inference_tensors(make):
    with pb.inference_mode():
        found = make()
    assert found.is_inference()
    assert not found.requires_grad
    assert found._base is None
    assert not found._is_view()


def test_leaf_made_inside_may_require_grad():
    with pb.inference_mode():
        x = leaf(1.0)
        assert x.add_(1) is x
    assert x.requires_grad
    assert x.is_inference()
    assert not x.view(1).requires_grad
    assert (x + 1).requires_grad


def test_has_no_version(inside):
    with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
        inside._version


def test_requires_grad_only_inside(inside):
    for change in (inside.requires_grad_, lambda: setattr(inside, "requires_grad", True)):
        with pytest.raises(
            RuntimeError,
            match="Setting requires_grad=True on inference tensor outside InferenceMode",
        ):
            change()
    inside.requires_grad = False
    with pb.inference_mode():
        inside.requires_grad = True
    assert inside.requires_grad


def test_is_not_written_outside(inside):
    for write in (
        lambda: inside.add_(1),
        lambda: inside.__setitem__(0, 1),
        lambda: pb.mul(pb.ones(2), 2, out=inside),
    ):
        with pytest.raises(RuntimeError, match=WRITE):
            write()
    assert inside.tolist() == [1.0, 1.0]
    with pb.inference_mode():
        inside[0] = 5
    assert inside.tolist() == [5.0, 1.0]


def test_is_not_saved(inside):
    x = leaf(1.0, 2.0)
    for use in (lambda: x * inside, lambda: inside * x, lambda: (x * 1).mul_(inside)):
        with pytest.raises(RuntimeError, match=SAVE):
            use()
    (x + inside).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_indices_are_not_saved_either():
    with pb.inference_mode():
        index = pb.tensor([0, 1])
    with pytest.raises(RuntimeError, match=SAVE):
        leaf(1.0, 2.0)[index]


def test_is_not_saved_by_a_function(inside):
    class Keep(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x, other):
            ctx.save_for_backward(other)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g, None

    with pytest.raises(RuntimeError, match=SAVE):
        Keep.apply(leaf(1.0, 2.0), inside)


def test_copies_made_outside_are_normal(inside):
    for normal in (inside.clone(), copy.deepcopy(inside), inside + 1):
        assert not normal.is_inference()
        (normal.requires_grad_() ** 2).sum().backward()
    assert inside.detach().is_inference()
    assert inside.data.is_inference()
    assert inside.view(2, 1).is_inference()


def test_memory_of_another_library():
    array = pb.ones(2).numpy()
    with pb.inference_mode():
        assert pb.from_numpy(array).is_inference()
    assert not pb.from_numpy(array).is_inference()


def test_gradient_of_inference_kind_is_replaced_not_written(inside):
    x = leaf(1.0, 2.0)
    x.grad = inside
    (x * 2).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert inside.tolist() == [1.0, 1.0]


def test_seed_of_inference_kind(inside):
    x = leaf(1.0, 2.0)
    (x * x).backward(inside)
    assert x.grad.tolist() == [2.0, 4.0]
    assert not x.grad.is_inference()


def test_backward_inside_gives_normal_gradients():
    x = leaf(3.0)
    y = x * x
    with pb.inference_mode():
        y.backward()
    assert x.grad.tolist() == [6.0]
    assert not x.grad.is_inference()


# ---- normal tensors inside -----------------------------------------------------------------------


def test_normal_tensor_written_inside_counts_versions():
    x = leaf(1.0, 2.0)
    y = x * 1
    z = y * y
    with pb.inference_mode():
        y.add_(2)
    assert y._version == 1
    assert not y.is_inference()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


@pytest.mark.parametrize("requires_grad", [True, False])
def test_view_of_a_normal_tensor_made_inside(requires_grad):
    base = pb.ones(2, 2, requires_grad=requires_grad) * 1
    with pb.inference_mode():
        view = base[0]
    assert not view.is_inference()
    assert view._is_view()
    assert view._base is base
    assert view.requires_grad is requires_grad
    assert view.is_leaf


def test_such_a_view_is_not_written_outside():
    base = leaf(1.0, 2.0) * 1
    with pb.inference_mode():
        view = base[0]
        view.add_(1)
    with pytest.raises(
        RuntimeError,
        match="A view was created in inference mode and is being modified inplace in normal mode",
    ):
        view.add_(1)


def test_such_a_view_has_no_history_once_its_base_was_written():
    base = leaf(1.0, 2.0) * 1
    with pb.inference_mode():
        view = base[0]
    base.add_(1)
    assert view.requires_grad
    with pytest.raises(
        RuntimeError,
        match="A view was created in inference mode and its base or "
        "another view of its base has been modified inplace",
    ):
        view.grad_fn


def test_such_a_view_of_what_needs_no_gradient_is_written():
    base = pb.ones(2)
    with pb.inference_mode():
        view = base[0]
    view.add_(1)
    assert base.tolist() == [2.0, 1.0]


def test_forward_mode_ends_inside():
    with pb.autograd.forward_ad.dual_level():
        dual = pb.autograd.forward_ad.make_dual(pb.ones(1), pb.ones(1))
        with pb.inference_mode():
            assert pb.autograd.forward_ad.unpack_dual(dual * 2).tangent is None


# ---- transforms ----------------------------------------------------------------------------------

TRANSFORMS = {
    "grad": (lambda x, c: pb.func.grad(lambda a: (a * a * c).sum())(x), [2.0, 4.0]),
    "vjp": (lambda x, c: pb.func.vjp(lambda a: a * a * c, x)[1](c)[0], [2.0, 4.0]),
    "jvp": (lambda x, c: pb.func.jvp(lambda a: a * a * c, (x,), (c,))[1], [2.0, 4.0]),
    "linearize": (lambda x, c: pb.func.linearize(lambda a: a * a * c, x)[1](c), [2.0, 4.0]),
    "jacrev": (lambda x, c: pb.func.jacrev(lambda a: a * a * c)(x).diagonal(), [2.0, 4.0]),
    "jacfwd": (lambda x, c: pb.func.jacfwd(lambda a: a * a * c)(x).diagonal(), [2.0, 4.0]),
    "hessian": (
        lambda x, c: pb.func.hessian(lambda a: (a**3 * c).sum())(x).diagonal(),
        [6.0, 12.0],
    ),
}


@pytest.mark.parametrize(("transform", "expected"), TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("made_inside", [True, False])
def test_transforms_differentiate_inside(transform, expected, made_inside):
    x, c = pb.tensor([1.0, 2.0]), pb.ones(2)
    with pb.inference_mode():
        if made_inside:
            x, c = x + 0, c + 0
        found = transform(x, c)
        assert pb.is_inference_mode_enabled()
    assert found.tolist() == expected
    assert not found.is_inference()
    assert transform(x, c).tolist() == expected


def test_vmap_inside_gives_inference_tensors():
    with pb.inference_mode():
        assert pb.func.vmap(pb.sin)(pb.zeros(2)).is_inference()


def test_the_mode_inside_a_transformed_function_is_honoured():
    def constant(x):
        with pb.inference_mode():
            return (x * x).sum()

    assert pb.func.grad(constant)(pb.ones(2)).tolist() == [0.0, 0.0]


def test_parameter_is_resized_in_inference_mode():
    x = pb.ones(2, requires_grad=True)
    with pb.inference_mode():
        assert x.resize_(3).shape == (3,)
    with pb.no_grad(), pytest.raises(RuntimeError, match="cannot resize variables that require"):
        x.resize_(4)
