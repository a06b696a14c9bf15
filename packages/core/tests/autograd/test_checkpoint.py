"""Checkpoints: values, how often functions run, contexts, the reentrant way, sequences."""

import warnings

import pytest
from rerun import Counted, gradient, same, wave

import pullback as pb
from pullback.utils.checkpoint import (
    CheckpointError,
    CheckpointFunction,
    DefaultDeviceType,
    GraphExecGroup,
    check_backward_validity,
    checkpoint,
    checkpoint_sequential,
    detach_variable,
    get_device_states,
    set_checkpoint_early_stop,
    set_device_states,
)

grad = pb.autograd.grad
dropout = pb.nn.functional.dropout
ENDS = {True: 1, False: 2}  # how often a function comes to its end, by early_stop


@pytest.fixture
def x():
    return pb.tensor([0.5, 1.0, 2.0], dtype=pb.float64, requires_grad=True)


@pytest.fixture
def w():
    return pb.tensor([2.0, 3.0, 4.0], dtype=pb.float64, requires_grad=True)


# values


@pytest.mark.parametrize("reentrant", [True, False, None])
def test_gradient_is_that_of_the_function(x, reentrant):
    function = Counted(wave)
    y = checkpoint(function, x, use_reentrant=reentrant)
    assert y.tolist() == wave(x).tolist()
    y.sum().backward()
    assert same(x.grad, gradient(wave, x))
    assert function.begun == 2


def test_without_a_word_it_is_not_reentrant(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = grad(checkpoint(wave, x).sum(), x)
    assert same(found, gradient(wave, x))


def test_arguments_of_any_kind(x, w):
    def function(pair, x, scale, *, named, more):
        return {"first": pair[0] * x * scale, "second": [named["w"].exp() * x, more]}

    result = checkpoint(function, (w, 3), x, 2, named={"w": w}, more="more")
    assert result["second"][1] == "more"
    found = grad(result["first"].sum() + result["second"][0].sum(), (x, w))
    assert same(found[0], 2 * w + w.exp())
    assert same(found[1], 2 * x + w.exp() * x)


def test_the_function_s_own_keyword_arguments(x):
    y = checkpoint(lambda x, power: x**power, x, power=3)
    assert same(grad(y.sum(), x)[0], 3 * x * x)


def test_backward_with_inputs(x, w):
    checkpoint(lambda x: x.sin() * w, x).sum().backward(inputs=[w])
    assert x.grad is None
    assert same(w.grad, x.sin())


def test_second_derivatives(x, w):
    function = Counted(lambda x: (x * w).sin().exp())
    (first,) = grad(checkpoint(function, x).sum(), x, create_graph=True)
    found = grad(first.sum(), (x, w))
    (first,) = grad((x * w).sin().exp().sum(), x, create_graph=True)
    expected = grad(first.sum(), (x, w))
    assert all(map(same, found, expected))
    assert function.begun == 3


def test_gradcheck_of_checkpoints_in_checkpoints(x, w):
    def function(x, w):
        return checkpoint(lambda x: checkpoint(wave, x * w) * x, x)

    assert pb.autograd.gradcheck(function, (x, w))
    assert pb.autograd.gradgradcheck(function, (x, w))


def test_inputs_that_are_no_leaves(x):
    y = x * 2
    checkpoint(wave, y).sum().backward()
    assert same(x.grad, 2 * gradient(wave, (x * 2).detach().requires_grad_()))


def test_in_place_ops_inside(x):
    def function(x):
        y = x.sin()
        y.mul_(x)
        y[0] = 3
        return y.exp()

    assert same(gradient(lambda x: checkpoint(function, x), x), gradient(function, x))


def test_under_no_grad_the_function_runs_once(x):
    function = Counted(wave)
    with pb.no_grad():
        assert not checkpoint(function, x).requires_grad
    assert function.begun == 1


def test_grad_mode_inside_is_replayed(x):
    def function(x):
        with pb.no_grad():
            scale = x.exp()
        return x.sin() * scale

    assert same(gradient(lambda x: checkpoint(function, x), x), x.cos() * x.exp())


def test_default_device_is_replayed(x):
    seen = []

    def function(x):
        seen.append(str(pb.get_default_device()))
        return x.sin().exp()

    with pb.device("meta"):
        y = checkpoint(function, x)
    y.sum().backward()
    assert seen == ["meta", "meta"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_random_numbers_are_replayed(x, reentrant):
    def function(x):
        return dropout(x.exp(), 0.5) * pb.rand(3, dtype=pb.float64)

    pb.manual_seed(5)
    expected = gradient(function, x)
    pb.manual_seed(5)
    y = checkpoint(function, x, use_reentrant=reentrant)
    pb.rand(7)
    before = pb.random.get_rng_state()
    y.sum().backward()
    assert x.grad.tolist() == expected.tolist()
    assert pb.random.get_rng_state().tolist() == before.tolist()


@pytest.mark.parametrize("reentrant", [True, False])
def test_random_numbers_are_left_alone_if_so_wanted(x, reentrant):
    drawn = []

    def function(x):
        drawn.append(pb.rand(1).item())
        return x.exp()

    y = checkpoint(function, x, use_reentrant=reentrant, preserve_rng_state=False)
    before = pb.random.get_rng_state()
    y.sum().backward()
    assert drawn[0] != drawn[1]
    assert pb.random.get_rng_state().tolist() != before.tolist()


def test_batches_of_gradients_through_random_numbers(x):
    y = checkpoint(lambda x: dropout(x.exp(), 0.5) * x, x)
    rows = pb.eye(3, dtype=pb.float64)
    (jacobian,) = grad(y, x, rows, is_grads_batched=True, retain_graph=True)
    (total,) = grad(y.sum(), x)
    assert same(jacobian.sum(0), total)


# how often it runs


@pytest.mark.parametrize("early", [True, False])
def test_function_runs_again_once_for_each_pass(x, early):
    function = Counted(wave)
    y = checkpoint(function, x, early_stop=early)
    for count in range(2, 5):
        grad(y.sum(), x, retain_graph=True)
        assert function.begun == count
    assert function.ended == (1 if early else 4)


def test_early_stop_is_set_for_all_inside(x):
    for setting, given in ((True, False), (False, True)):
        function = Counted(wave)
        with set_checkpoint_early_stop(setting):
            y = checkpoint(function, x, early_stop=given)
        y.sum().backward()
        assert function.ended == ENDS[setting]


def test_python_behind_the_last_op_that_saves_does_not_run_again(x):
    seen = []

    def function(x):
        y = x.exp()
        seen.append("saved")
        y = y + 1
        seen.append("end")
        return y

    checkpoint(function, x).sum().backward()
    assert seen == ["saved", "end"]  # stopped in exp, which saves its result


def test_except_exception_does_not_stop_the_early_stop(x):
    def function(x):
        try:
            return x.exp()
        except Exception:
            return pytest.fail("the function saw how it is left")

    checkpoint(function, x).sum().backward()
    assert same(x.grad, x.exp())


@pytest.mark.parametrize("early", [True, False])
def test_innermost_of_nested_checkpoints_runs_once_for_each_level(x, early):
    inner = Counted(wave)
    middle = Counted(lambda x: checkpoint(inner, x).exp())
    outer = Counted(lambda x: checkpoint(middle, x).sin())
    with set_checkpoint_early_stop(early):
        y = checkpoint(outer, x)
        y.sum().backward()
    assert (inner.begun, middle.begun, outer.begun) == (4, 3, 2)
    assert same(x.grad, gradient(lambda x: wave(x).exp().sin(), x))


def test_two_levels(x):
    inner = Counted(wave)
    checkpoint(lambda x: checkpoint(inner, x) * x, x).sum().backward()
    assert inner.begun == 3


def test_nested_checkpoint_at_the_end_is_not_run_for_its_arguments(x):
    inner = Counted(wave)
    checkpoint(lambda x: checkpoint(inner, x.exp()), x).sum().backward()
    assert inner.begun == 2


@pytest.mark.parametrize("early", [True, False])
def test_backward_inside_of_the_function(x, w, early):
    def function(x):
        with pb.enable_grad():
            (gradient,) = grad((x * x).sin().sum(), x, create_graph=True)
        return gradient * w

    with set_checkpoint_early_stop(early):
        y = checkpoint(function, x)
        found = grad(y.sum(), (x, w))
    expected = grad(function(x).sum(), (x, w))
    assert all(map(same, found, expected))


def test_backward_through_a_checkpoint_inside_of_another(x, w):
    def function(x):
        (gradient,) = grad(checkpoint(wave, x).sum(), x, create_graph=True)
        return gradient * w

    found = grad(checkpoint(function, x).sum(), (x, w))
    expected = grad(function(x).sum(), (x, w))
    assert all(map(same, found, expected))


def test_reading_a_saved_value_runs_it_each_time(x):
    function = Counted(lambda x: x.exp())
    y = checkpoint(function, x)
    for count in (2, 3):
        assert y.grad_fn._saved_result.tolist() == y.tolist()
        assert function.begun == count
    y.sum().backward()
    with pytest.raises(RuntimeError, match="after they have already been freed"):
        y.grad_fn._saved_result


def test_group_of_passes_shares_what_is_computed_again(x):
    function = Counted(lambda x: (x.sin(), x.exp()))
    first, second = checkpoint(function, x)
    with GraphExecGroup() as group:
        one = grad(first.sum(), x, retain_graph=True)[0]
        two = grad(second.sum(), x, retain_graph=True)[0]
        assert function.begun == 2
        with pytest.raises(CheckpointError, match="that overlap"):
            grad(second.sum(), x)
        with pytest.raises(RuntimeError, match="cannot be nested"), GraphExecGroup():
            pass
    assert same(one, x.cos())
    assert same(two, x.exp())
    assert isinstance(group, GraphExecGroup)


# contexts


class Noting:
    def __init__(self, name, notes, suppresses=False):
        self.name, self.notes, self.suppresses = name, notes, suppresses

    def __enter__(self):
        self.notes.append(self.name)

    def __exit__(self, kind, value, traceback):
        self.notes.append(f"{self.name} ends")
        return self.suppresses


def test_contexts_surround_the_runs(x):
    notes = []
    y = checkpoint(wave, x, context_fn=lambda: (Noting("first", notes), Noting("again", notes)))
    assert notes == ["first", "first ends"]
    grad(y.sum(), x, retain_graph=True)
    grad(y.sum(), x)
    assert notes[2:] == ["again", "again ends"] * 2


def test_a_context_that_swallows_an_exception(x):
    def contexts():
        return Noting("first", [], suppresses=True), Noting("again", [])

    with pytest.raises(RuntimeError, match="suppressed an exception"):
        checkpoint(lambda x: 1 / 0, x, context_fn=contexts)


# the reentrant way


@pytest.mark.parametrize("options", [{}, {"create_graph": True}])
def test_reentrant_refuses_grad(x, options):
    y = checkpoint(wave, x, use_reentrant=True)
    with pytest.raises(RuntimeError, match=r"checkpoint is incompatible with \.grad\(\)"):
        grad(y.sum(), x, **options)
    checkpoint(wave, x, use_reentrant=True).sum().backward()
    assert same(x.grad, gradient(wave, x))


def test_reentrant_refuses_inputs(x):
    y = checkpoint(wave, x, use_reentrant=True)
    with pytest.raises(RuntimeError, match="passing an `inputs` parameter"):
        y.sum().backward(inputs=[x])


def test_reentrant_reaches_tensors_that_are_no_arguments(x, w):
    def function(x, number):
        return x.sin(), x * w * number

    first, second = checkpoint(function, x, 3, use_reentrant=True)
    (first + second).sum().backward()
    assert same(x.grad, x.cos() + 3 * w)
    assert same(w.grad, 3 * x)


def test_reentrant_warns_without_gradients(x):
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        y = checkpoint(lambda t: t * x, pb.ones(3), use_reentrant=True)
    assert not y.requires_grad
    check_backward_validity([1, x])


def test_reentrant_needs_an_output_with_gradient(x):
    y = checkpoint(lambda x: x.detach().sin(), x, use_reentrant=True)
    with pytest.raises(RuntimeError, match="none of output has requires_grad=True"):
        y.sum().backward()


def test_checkpoint_function_is_the_reentrant_way(x):
    CheckpointFunction.apply(wave, True, x).sum().backward()
    assert same(x.grad, gradient(wave, x))


def test_detach_variable(x):
    copy, other, number = detach_variable((x, x.detach(), 3))
    assert copy.is_leaf
    assert copy is not x
    assert (copy.requires_grad, other.requires_grad, number) == (True, False, 3)
    with pytest.raises(RuntimeError, match="Only tuple of tensors is supported"):
        detach_variable([x])


# sequences


class Layers:
    def __init__(self, *layers):
        self.layers = layers

    def children(self):
        return iter(self.layers)


@pytest.mark.parametrize("reentrant", [True, False, None])
@pytest.mark.parametrize(("segments", "again"), [(1, 0), (2, 2), (3, 2), (5, 4)])
def test_sequence_in_segments(x, reentrant, segments, again):
    layers = [Counted(f) for f in (pb.sin, pb.exp, pb.sin, pb.exp, pb.cos)]
    y = checkpoint_sequential(Layers(*layers), segments, x, use_reentrant=reentrant)
    expected = gradient(lambda x: checkpoint_sequential(layers, 1, x), x)
    begun = sum(layer.begun for layer in layers)
    y.sum().backward()
    assert same(x.grad, expected)
    assert sum(layer.begun for layer in layers) - begun == again


def test_sequence_options(x):
    with pytest.raises(ValueError, match="Unexpected keyword arguments: more"):
        checkpoint_sequential([pb.sin], 1, x, more=1)
    for segments in (0, 3):
        with pytest.raises(ValueError, match="expected 1 to 2 segments"):
            checkpoint_sequential([pb.sin, pb.exp], segments, x)
    with pytest.raises(TypeError):
        checkpoint_sequential([pb.sin], 1, x, x, x, x)


# devices


def test_host_tensors_have_no_device_states(x):
    assert get_device_states(x, [x, {"x": pb.ones(1, device="meta")}], 3) == ([], [])


def test_device_states_are_those_of_the_generator():
    before = pb.random.get_rng_state()
    drawn = pb.rand(1).item()
    set_device_states([0], [before], device_type="meta")
    assert pb.rand(1).item() != drawn
    set_device_states([0], [before])
    assert pb.rand(1).item() == drawn


def test_default_device_type(monkeypatch):
    monkeypatch.setattr(DefaultDeviceType, "_name", None)
    assert DefaultDeviceType.get_device_type() == pb.get_default_device().type
    DefaultDeviceType.set_device_type("meta")
    assert DefaultDeviceType.get_device_type() == "meta"
