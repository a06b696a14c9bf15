"""Custom ``autograd.Function``: both styles, the context, outputs, errors, double backward."""

import gc
import pickle
import weakref

import pytest

import pullback as pb

Function = pb.autograd.Function
grad = pb.autograd.grad
once_differentiable = pb.autograd.function.once_differentiable


def leaf(*values, dtype=pb.float64):
    return pb.tensor(list(values), dtype=dtype, requires_grad=True)


def make(forward, backward=None, **attributes):
    """Build a Function class from plain functions."""
    members = {name: staticmethod(value) for name, value in attributes.items() if callable(value)}
    members.update({name: value for name, value in attributes.items() if not callable(value)})
    members["forward"] = staticmethod(forward)
    if backward is not None:
        members["backward"] = staticmethod(backward)
    return type("Made", (Function,), members)


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


class SquareInTwo(Function):
    @staticmethod
    def forward(x, scale=1.0):
        return x * x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale = inputs
        ctx.save_for_backward(x)
        ctx.scale = scale

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g * ctx.scale, None


# Both styles


@pytest.mark.parametrize("function", [Square, SquareInTwo])
def test_value_gradient_and_second_gradient(function):
    x = leaf(3.0)
    y = function.apply(x)
    assert y.tolist() == [9.0]
    (g,) = grad(y, x, create_graph=True)
    assert g.tolist() == [6.0]
    assert grad(g, x)[0].tolist() == [2.0]


def test_setup_context_receives_omitted_defaults():
    x = leaf(3.0)
    assert SquareInTwo.apply(x, 10.0).tolist() == [90.0]
    SquareInTwo.apply(x).backward()
    assert x.grad.tolist() == [6.0]


def test_keyword_arguments_are_bound_to_positions():
    x = leaf(3.0)
    assert SquareInTwo.apply(scale=10.0, x=x).tolist() == [90.0]
    y = Square.apply(x=x)
    y.backward()
    assert x.grad.tolist() == [6.0]
    with pytest.raises(TypeError, match="unexpected keyword argument 'unknown'"):
        SquareInTwo.apply(x, unknown=1)


def test_vjp_is_another_name_for_backward():
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    x = leaf(1.0)
    Twice.apply(x).backward()
    assert x.grad.tolist() == [2.0]


def test_backward_and_vjp_together_are_refused():
    both = make(lambda ctx, x: x * 1, lambda ctx, g: g, vjp=lambda ctx, g: g)
    with pytest.raises(RuntimeError, match="Implementing both 'backward' and 'vjp'"):
        both.apply(leaf(1.0)).backward()


def test_forward_runs_without_grad_mode_and_backward_follows_create_graph():
    modes, flags = [], []

    def forward(ctx, x):
        modes.append(pb.is_grad_enabled())
        flags.append(x.requires_grad)
        return x * 2

    def backward(ctx, g):
        modes.append(pb.is_grad_enabled())
        return g * 2

    x = leaf(1.0)
    y = make(forward, backward).apply(x)
    grad(y, x, retain_graph=True)
    grad(y, x, create_graph=True)
    assert modes == [False, False, True]
    assert flags == [True]


def test_context_is_the_node():
    contexts = []

    def forward(ctx, x):
        contexts.append(ctx)
        ctx.note = "kept"
        return x * 2

    y = make(forward, lambda ctx, g: contexts.append(ctx) or g * 2).apply(leaf(1.0))
    assert y.grad_fn is contexts[0]
    assert y.grad_fn.note == "kept"
    assert y.grad_fn.name() == "MadeBackward"
    assert type(y.grad_fn).__name__ == "MadeBackward"
    assert isinstance(y.grad_fn, pb.autograd.graph.Node)
    y.backward()
    assert contexts[1] is contexts[0]


# Inputs and outputs


@pytest.mark.parametrize("mode", ["no_grad", "no input requires grad"])
def test_nothing_is_recorded_without_need(mode):
    x = leaf(1.0)
    if mode == "no_grad":
        with pb.no_grad():
            y = Square.apply(x)
    else:
        y = Square.apply(x.detach())
    assert y.grad_fn is None
    assert not y.requires_grad


def test_outputs_may_mix_tensors_and_anything():
    received = []

    def backward(ctx, *grads):
        received.extend(grads)
        return grads[0]

    mixed = make(lambda ctx, x: (x * 2, "text", None, x * 3), backward)
    x = leaf(1.0)
    first, text, nothing, second = mixed.apply(x)
    assert (text, nothing) == ("text", None)
    assert (first.output_nr, second.output_nr) == (0, 3)
    first.backward()
    assert received[1:3] == [None, None]
    assert received[3].tolist() == [0.0]


def test_no_tensor_output_is_a_plain_call():
    assert make(lambda ctx, x: "text").apply(leaf(1.0)) == "text"
    assert make(lambda ctx, x: (1, 2)).apply(leaf(1.0)) == (1, 2)


def test_non_tensor_inputs_need_none():
    def backward(ctx, g):
        assert ctx.needs_input_grad == (False, True, False, False)
        return None, g * 3, None, None

    x = leaf(1.0)
    made = make(lambda ctx, a, b, c, d: b * 3, backward)
    y = made.apply("a", x, {"d": 1}, pb.ones(1))
    y.backward()
    assert x.grad.tolist() == [3.0]


def test_tensors_inside_containers_do_not_take_part():
    x = leaf(1.0)
    y = make(lambda ctx, many: many[0] * 2, lambda ctx, g: None).apply([x])
    assert not y.requires_grad


def test_integer_output_does_not_require_grad():
    made = make(lambda ctx, x: (x * 2, x.argmax()), lambda ctx, g, h: g * 2)
    y, position = made.apply(leaf(1.0, 2.0))
    assert y.requires_grad
    assert not position.requires_grad


@pytest.mark.parametrize(
    "forward",
    [
        pytest.param(lambda ctx, x: x, id="input"),
        pytest.param(lambda ctx, x: x.view(1), id="view-of-input"),
    ],
)
def test_returning_an_input_gives_a_new_view_of_it(forward):
    x = leaf(1.0) * 1
    y = make(forward, lambda ctx, g: g * 7).apply(x)
    assert y is not x
    assert y._is_view()
    assert y.data_ptr() == x.data_ptr()
    assert y.grad_fn.name() == "MadeBackward"
    assert grad(y, x)[0].tolist() == [7.0]
    with pytest.raises(RuntimeError, match="was created inside a custom Function"):
        make(forward, lambda ctx, g: g * 7).apply(leaf(1.0) * 1).add_(1)


# Gradients returned by backward


@pytest.mark.parametrize(
    ("returned", "error", "fragment"),
    [
        (
            lambda g: (g, g),
            RuntimeError,
            r"returned an incorrect number of gradients \(expected 1, got 2\)",
        ),
        (lambda g: (), RuntimeError, r"incorrect number of gradients \(expected 1, got 0\)"),
        (
            lambda g: pb.ones(5),
            RuntimeError,
            r"returned an invalid gradient at index 0 - got \[5\] but expected shape compatible",
        ),
        (lambda g: g[:1], RuntimeError, r"at index 0 - got \[1\] but expected shape compatible"),
        (lambda g: 3, RuntimeError, r"expected Variable or None \(got int\)"),
        (lambda g: "a", RuntimeError, r"expected Variable or None \(got str\)"),
        (lambda g: g * 1j, RuntimeError, None),
    ],
)
def test_wrong_gradient_is_refused(returned, error, fragment):
    x = leaf(1.0, 2.0, 3.0)
    y = make(lambda ctx, x: x * 1, lambda ctx, g: returned(g)).apply(x)
    with pytest.raises(error, match=fragment):
        y.sum().backward()
    assert x.grad is None


def test_trailing_none_is_tolerated():
    x = leaf(1.0)
    make(lambda ctx, x: x * 1, lambda ctx, g: (g, None, None)).apply(x).backward()
    assert x.grad.tolist() == [1.0]


def test_gradient_is_reduced_and_cast_to_the_input():
    x = pb.ones(3, dtype=pb.float32, requires_grad=True)
    made = make(lambda ctx, x: x * 1, lambda ctx, g: pb.ones(2, 3, dtype=pb.float64))
    made.apply(x).sum().backward()
    assert x.grad.dtype == pb.float32
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


def test_gradient_for_input_that_needs_none_is_ignored():
    x, c = leaf(1.0), pb.ones(1, dtype=pb.float64)
    make(lambda ctx, x, c: x * c, lambda ctx, g: (g, g)).apply(x, c).backward()
    assert x.grad.tolist() == [1.0]
    assert c.grad is None


def test_gradient_of_one_class_for_two_inputs_is_not_shared():
    x, y = leaf(1.0), leaf(1.0)
    made = make(lambda ctx, a, b: a + b, lambda ctx, g: (g, g))
    made.apply(x, y).backward()
    x.grad.add_(5)
    assert y.grad.tolist() == [1.0]


# ctx methods


def test_save_for_backward_takes_tensors_and_none_only():
    def forward(ctx, x):
        ctx.save_for_backward(x, None, x * 2)
        return x * 1

    def backward(ctx, g):
        original, nothing, double = ctx.saved_tensors
        assert original is x
        assert nothing is None
        return g * double

    x = leaf(3.0)
    make(forward, backward).apply(x).backward()
    assert x.grad.tolist() == [6.0]
    with pytest.raises(TypeError, match="save_for_backward can only save variables"):
        make(lambda ctx, x: ctx.save_for_backward(3) or x * 1).apply(x)


def test_last_save_for_backward_wins():
    def forward(ctx, x):
        ctx.save_for_backward(x, x)
        ctx.save_for_backward(x)
        return x * 1

    x = leaf(3.0)
    make(forward, lambda ctx, g: g * len(ctx.saved_tensors)).apply(x).backward()
    assert x.grad.tolist() == [1.0]


def test_saved_tensors_are_checked_and_freed():
    x = leaf(3.0)
    base = x * 1
    y = Square.apply(base)
    base.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    y = Square.apply(x)
    y.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        _ = y.grad_fn.saved_tensors


def test_saved_input_is_the_tensor_itself_and_output_keeps_history():
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[1]

    x = leaf(0.0)
    y = Exp.apply(x)
    saved_x, saved_y = y.grad_fn.saved_tensors
    assert saved_x is x
    assert saved_y.grad_fn is y.grad_fn
    (g,) = grad(y, x, create_graph=True)
    (g2,) = grad(g, x, create_graph=True)
    assert (g.tolist(), g2.tolist()) == ([1.0], [1.0])


def square_of_inner(x):
    """Square a tensor that only the graph holds; return the result and a second view."""
    inner = x * 1
    return Square.apply(inner), inner.detach()


def test_saved_tensors_that_only_the_graph_holds_are_no_objects_of_the_collector():
    def tensors_of_the_collector():
        gc.collect()
        return sum(isinstance(item, pb.Tensor) for item in gc.get_objects())

    before = tensors_of_the_collector()
    y = leaf(1.0, 0.5)
    for _ in range(40):
        y = Square.apply(y)
    node, found = y.grad_fn, 0
    while isinstance(node, pb.autograd.function.FunctionCtx):
        found += 1
        node = node.next_functions[0][0]
    assert found == 40
    assert tensors_of_the_collector() < before + 20
    y.sum().backward()


def test_saved_tensors_are_the_same_before_and_after_collections():
    x = leaf(3.0)
    held = x * 1
    node = Square.apply(held).grad_fn
    gc.collect()
    assert node.saved_tensors[0] is held
    y, _ = square_of_inner(x)
    gc.collect()
    (inner,) = y.grad_fn.saved_tensors
    assert y.grad_fn.saved_tensors[0] is inner
    assert inner.grad_fn is y.grad_fn.next_functions[0][0]
    (g,) = grad(y, x, create_graph=True)
    assert (g.tolist(), grad(g, x)[0].tolist()) == ([6.0], [2.0])
    gc.collect()
    assert y.grad_fn.saved_tensors[0] is inner


def test_saved_tensors_keep_attributes_and_weak_references_across_collections():
    x = leaf(3.0)
    with_note, with_reference = x * 1, x * 2
    with_note.note = "kept"
    reference = weakref.ref(with_reference)
    nodes = [Square.apply(t).grad_fn for t in (with_note, with_reference)]
    del with_note, with_reference
    gc.collect()
    assert nodes[0].saved_tensors[0].note == "kept"
    assert nodes[1].saved_tensors[0] is reference()


def test_writes_to_saved_tensors_are_found_after_a_collection():
    y, again = square_of_inner(leaf(3.0))
    gc.collect()
    again.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_materialize_grads():
    seen = []

    def run(materialize):
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return x * 1, x * 2

        def backward(ctx, g, h):
            seen.append(h)
            return g

        make(forward, backward).apply(leaf(1.0, 2.0))[0].sum().backward()

    run(True)
    run(False)
    assert seen[0].tolist() == [0.0, 0.0]
    assert seen[1] is None


def test_mark_non_differentiable():
    seen = []

    def forward(ctx, x):
        y, z = x * 2, x * 3
        ctx.mark_non_differentiable(z)
        return y, z

    def backward(ctx, g, h):
        seen.append(h.tolist())
        return g * 2

    x = leaf(1.0)
    y, z = make(forward, backward).apply(x)
    assert y.requires_grad
    assert not z.requires_grad
    y.backward()
    assert seen == [[0.0]]


def test_needs_input_grad_is_per_input():
    seen = []

    def backward(ctx, g):
        seen.append(ctx.needs_input_grad)
        return g, g

    x, y = leaf(1.0), leaf(2.0)
    made = make(lambda ctx, a, b: a + b, backward)
    made.apply(x, y.detach()).backward()
    made.apply(x, y).backward()
    assert seen == [(True, False), (True, True)]


# In-place functions


def scale_in_place(ctx, x):
    x.mul_(3)
    ctx.mark_dirty(x)
    return x


def test_mark_dirty_returns_the_same_object_with_new_history():
    x = leaf(2.0)
    y = x * 1
    before, version = y.grad_fn, y._version
    z = make(scale_in_place, lambda ctx, g: g * 3).apply(y)
    assert z is y
    assert y.grad_fn is not before
    assert y.grad_fn.next_functions[0][0] is before
    assert y._version > version
    z.backward()
    assert x.grad.tolist() == [3.0]


def test_mark_dirty_on_a_view_rebases_the_base():
    x = leaf(1.0, 2.0)
    base = x * 1
    make(scale_in_place, lambda ctx, g: g * 3).apply(base[:1])
    assert base.tolist() == [3.0, 2.0]
    base.sum().backward()
    assert x.grad.tolist() == [3.0, 1.0]


def test_mark_dirty_is_refused_for_leaves():
    with pytest.raises(
        RuntimeError, match="a leaf Variable that requires grad has been used in an"
    ):
        make(scale_in_place, lambda ctx, g: g).apply(leaf(1.0))


def test_dirty_tensor_must_be_returned():
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x * 2

    with pytest.raises(RuntimeError, match="Some elements marked as dirty"):
        make(forward, lambda ctx, g: g).apply(leaf(1.0) * 1)


@pytest.mark.beyond_torch
def test_marking_a_non_input_dirty_is_refused():
    def forward(ctx, x):
        y = x * 2
        ctx.mark_dirty(y)
        return y

    with pytest.raises(RuntimeError, match="dirty"):
        make(forward, lambda ctx, g: g).apply(leaf(1.0))


# once_differentiable


def test_once_differentiable_refuses_the_second_derivative():
    modes = []

    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            modes.append(pb.is_grad_enabled())
            return 2 * ctx.saved_tensors[0] * g

    x = leaf(3.0)
    (g,) = grad(Once.apply(x), x)
    assert (g.tolist(), g.requires_grad) == ([6.0], False)
    (g,) = grad(Once.apply(x) * x, x, create_graph=True)
    assert g.requires_grad
    with pytest.raises(
        RuntimeError, match="trying to differentiate twice a function that was mark"
    ):
        g.backward()
    assert modes == [False, False]


# Missing or misused parts


def test_missing_backward_is_found_in_backward():
    y = make(lambda ctx, x: x * 2).apply(leaf(1.0))
    with pytest.raises(NotImplementedError, match="You must implement either the backward or vjp"):
        y.backward()


def test_missing_forward_is_refused():
    class Empty(Function):
        pass

    with pytest.raises(NotImplementedError):
        Empty.apply(leaf(1.0))


def test_instances_are_not_for_use():
    with pytest.warns(DeprecationWarning):
        instance = Square()
    with pytest.raises(RuntimeError):
        instance(leaf(1.0))


def test_exception_in_forward_and_backward_arrive_unchanged():
    class MyError(Exception):
        pass

    error = MyError("first", 2)

    def fail(ctx, x):
        raise error

    x = leaf(1.0)
    with pytest.raises(MyError) as caught:
        make(fail).apply(x)
    assert caught.value is error
    with pytest.raises(MyError) as caught:
        make(lambda ctx, x: x * 1, fail).apply(x).backward()
    assert caught.value is error
    assert pb.is_grad_enabled()


def test_class_is_picklable_by_reference():
    assert pickle.loads(pickle.dumps(Square)) is Square


def test_function_inside_a_function():
    class Outer(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return Square.apply(x) * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * Square.apply(x) * g

    x = leaf(2.0)
    (g,) = grad(Outer.apply(x), x, create_graph=True)
    assert g.tolist() == [12.0]
    assert grad(g, x)[0].tolist() == [12.0]


# Options


def test_clear_saved_tensors_on_access():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with pytest.raises(RuntimeError, match="saved_tensors can only be accessed once"):
            _ = ctx.saved_tensors
        return 2 * x * g

    x = leaf(3.0)
    made = make(forward, backward, clear_saved_tensors_on_access=True)
    made.apply(x).backward()
    assert x.grad.tolist() == [6.0]


def test_boxed_grads_call_hands_over_one_list():
    seen = []

    def backward(ctx, grads):
        seen.append(type(grads))
        g, h = grads
        grads.clear()
        return g * 2 + h * 3

    x = leaf(1.0)
    made = make(lambda ctx, x: (x * 2, x * 3), backward, boxed_grads_call=True)
    y, z = made.apply(x)
    (y + z).backward()
    assert seen == [list]
    assert x.grad.tolist() == [5.0]


# ---- the ctx before it is a node -----------------------------------------------------------------


def test_ctx_in_forward_answers_as_a_node_without_a_graph():
    class Ask(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            assert ctx.name() == "AskBackward"
            assert ctx.next_functions == ()
            assert ctx._input_metadata == []
            assert not hasattr(ctx, "metadata")
            assert not hasattr(ctx, "variable")
            for use in (
                ctx._sequence_nr,
                lambda: ctx.register_hook(print),
                lambda: ctx.register_prehook(print),
                lambda: pb.autograd.backward(pb.autograd.graph.GradientEdge(ctx, 0)),
            ):
                with pytest.raises(RuntimeError, match="AskBackward is no node of a graph"):
                    use()
            with pytest.raises(TypeError, match="expected 0 arguments"):
                ctx(x)
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return g

    x = pb.ones(1, requires_grad=True)
    Ask.apply(x).backward()
    with pb.no_grad():
        Ask.apply(x)


@pytest.mark.parametrize("name", ["mark_dirty", "mark_non_differentiable"])
def test_marking_what_is_no_tensor(name):
    class Mark(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            getattr(ctx, name)(3)
            return x.clone()

    with pytest.raises(RuntimeError, match=f"{name} .*accept.* variable.*, but .*int"):
        Mark.apply(pb.ones(1, requires_grad=True))


def test_marking_an_input_dirty_and_not_differentiable_gives_an_alias():
    class Double(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            ctx.mark_non_differentiable(x)
            return x.mul_(2)

    x = pb.ones(1, requires_grad=True) * 1
    y = Double.apply(x)
    assert y is not x
    assert not y.requires_grad
    assert (y.item(), x.item(), x._version) == (2.0, 2.0, 2)
    assert x.grad_fn.name() == "MulBackward0"


@pytest.mark.parametrize("after", ["hide", "restore", "turning off"])
def test_an_interrupt_around_forward_leaves_grad_mode_on(monkeypatch, after):
    class Same(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

    def interrupted(function):
        def call(*args):
            function(*args)
            if args != (True,):  # turning it on again
                raise KeyboardInterrupt

        return call

    module, name = {
        "hide": ("levels", "disable_all_levels"),
        "restore": ("levels", "restore_levels"),
        "turning off": ("state", "swap_grad_enabled"),
    }[after]
    owner = getattr(pb.autograd.function, module)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted(getattr(owner, name)))
        with pytest.raises(KeyboardInterrupt), pb.autograd.forward_ad.dual_level():
            Same.apply(pb.ones(1, requires_grad=True))
    assert pb.is_grad_enabled()


def test_stale_views_are_refused_before_forward_runs():
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            ran.append(x)
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    ran = []
    base = pb.ones(2, 2, requires_grad=True) * 1
    first, second = base.unbind(0)
    base.mul_(3)
    with pytest.raises(RuntimeError, match="Output 0 of Unbind is a view"):
        Double.apply(first)
    assert not ran
    assert second.detach().tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[::2],
        lambda x: x.view(20, 100)[:, 3:7],
        lambda x: x[:3].unsqueeze(1).expand(3, 5),
        lambda x: x.view(20, 100).t(),
    ],
    ids=["step", "columns", "expanded", "turned"],
)
def test_zeros_for_missing_gradients_have_all_their_memory(view):
    """They once had the strides of the output, and only as much memory as it has elements."""
    seen = []

    class Two(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, view(pb.ones(2000) * x.sum())

        @staticmethod
        def backward(ctx, first, second):
            seen.append(second)
            return first * 2

    x = pb.ones(4, requires_grad=True)
    first, other = Two.apply(x)
    first.sum().backward()
    (zeros,) = seen
    assert zeros.shape == other.shape and not zeros.any()
    assert zeros.untyped_storage().nbytes() == 4 * zeros.numel()
    assert zeros.add_(1).sum().item() == zeros.numel()  # no element is there twice
