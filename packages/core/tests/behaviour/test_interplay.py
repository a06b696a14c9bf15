"""Features together: views, in-place writes, hooks, custom Functions, repeated passes."""

import pytest

import pullback as pb

grad = pb.autograd.grad
SECOND_TIME = "Trying to backward through the graph a second time"


def leaf(*values, dtype=pb.float64):
    return pb.tensor(list(values), dtype=dtype, requires_grad=True)


class Doubled(pb.autograd.Function):
    """Doubles its input in place."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Same(pb.autograd.Function):
    """Returns its input as it is."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g


# Names of nodes whose last arguments are defaults


def test_names_of_nodes_that_keep_no_default():
    for _ in range(200):  # the bytes behind a node's memory vary
        x = pb.ones(2, 1, requires_grad=True)
        assert x.squeeze().grad_fn.name() == "SqueezeBackward0"
        assert x.prod().grad_fn.name() == "ProdBackward0"


# Results are no views of what an operation made for itself


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.var(),
        lambda x: x.logsumexp(0),
        lambda x: x.max(0)[0],
        lambda x: x[0] @ x,
        lambda x: x.t().reshape(-1),
    ],
)
def test_result_is_no_view_of_a_temporary(operation):
    x = leaf([1.0, 2.0], [3.0, 5.0])
    y = operation(x)
    assert not y._is_view() and y._base is None
    assert y.detach_().is_leaf  # which views refuse


def test_result_can_be_written():
    x = leaf([1.0, 2.0], [3.0, 5.0])
    largest, _ = x.max(0)
    largest.mul_(3)
    assert grad(largest.sum(), x)[0].tolist() == [[0.0, 0.0], [3.0, 3.0]]


def test_result_made_under_no_grad_can_be_written_later():
    with pb.no_grad():
        y = leaf(1.0, 4.0).var()
    w = leaf(2.0).sum()
    y.mul_(w)
    assert grad(y, w)[0].item() == 4.5


# Integer results that a formula keeps


def test_gradient_through_kept_indices_does_not_require_grad():
    x = leaf(1.6, -1.2)
    values, indices = x.sort(0)
    (found,) = grad(values, x, pb.tensor([1.7, -1.4], dtype=pb.float64), create_graph=True)
    assert found.tolist() == [-1.4, 1.7]
    assert not found.requires_grad
    assert not indices.requires_grad


# Exchanged data


def test_data_may_get_another_dtype():
    x = leaf(1.0, 2.0)
    y = (x * 3).sum()
    x.data = x.data.to(pb.float32)
    assert x.dtype is pb.float32 and x.requires_grad
    y.backward()
    assert x.grad.dtype is pb.float32 and x.grad.tolist() == [3.0, 3.0]
    with pytest.raises(RuntimeError, match="must be floating point or complex dtype"):
        x.data = pb.ones(2, dtype=pb.int64)


# A leaf that no longer requires grad


def test_leaf_that_gave_up_requires_grad_accumulates_nothing():
    x, w = leaf(1.0), leaf(2.0)
    y = x * w
    seen = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t))
    x.requires_grad = False
    y.backward()
    assert x.grad is None and w.grad.tolist() == [1.0] and seen == []


# Sums of seeds


def test_sum_of_seeds_follows_create_graph():
    x = leaf(1.0, 2.0)
    y = x * 2
    seed = leaf(3.0, 4.0)
    (plain,) = grad([y, y], [y], [seed, pb.ones(2, dtype=pb.float64)], retain_graph=True)
    assert plain.tolist() == [4.0, 5.0] and not plain.requires_grad
    with pb.no_grad():
        ones = pb.ones(2, dtype=pb.float64)
        (found,) = grad([y, y], [x], [seed, ones], create_graph=True)
    assert grad(found.sum(), seed)[0].tolist() == [2.0, 2.0]


# Gradients that were not requested


def test_gradient_of_an_input_that_was_not_asked_for_is_not_computed():
    x, w = leaf(2.0), leaf(3.0)
    y = x * w
    seen = []
    y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: seen.append(grad_inputs))
    assert grad(y, x, retain_graph=True)[0].tolist() == [3.0]
    assert seen[0][0].tolist() == [3.0] and seen[0][1] is None
    y.backward()
    assert seen[1][1].tolist() == [2.0]


def test_hook_of_a_root_sees_its_gradient_without_a_path_to_the_inputs():
    x, other = leaf(2.0), leaf(3.0)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.item()))
    assert grad(y, other, allow_unused=True) == (None,)
    assert seen == [1.0]


# Post-hooks of nodes get gradients that fit


def test_post_hook_gets_gradients_in_the_dtype_of_the_input():
    class Single(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.to(pb.float32)

        @staticmethod
        def backward(ctx, g):
            return g

    seen = []
    y = Single.apply(leaf(1.0))
    y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: seen.append(grad_inputs[0].dtype))
    y.backward()
    assert seen == [pb.float64]


def test_post_hook_is_not_called_for_a_gradient_that_does_not_fit():
    class Long(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return pb.ones(7, dtype=g.dtype)

    seen = []
    y = Long.apply(leaf(1.0, 2.0))
    y.grad_fn.register_hook(lambda grad_inputs, grad_outputs: seen.append(grad_inputs))
    with pytest.raises(RuntimeError, match="returned an invalid gradient at index 0"):
        y.sum().backward()
    assert seen == []


# Custom Functions that write, on views and elsewhere


def test_dirty_output_of_a_multi_view_operation_is_refused():
    parts = (leaf(1.0, 2.0) * 1).unbind(0)
    with pytest.raises(RuntimeError, match="This view is the output of a function that returns"):
        Doubled.apply(parts[1])


def test_refused_dirty_inputs_count_as_written():
    x = leaf(1.0)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad has been used in"):
        Doubled.apply(x)
    assert x._version == 2  # by mul_, and by mark_dirty


def test_retained_gradient_moves_to_the_output_of_a_dirty_function():
    x = leaf(1.0)
    y = x * 3
    y.retain_grad()
    assert Doubled.apply(y) is y
    (y * 5).backward()
    assert y.grad.tolist() == [5.0] and x.grad.tolist() == [30.0]


def test_input_returned_as_it_is_without_recording():
    base = pb.ones(2)
    same = Same.apply(base)
    with pytest.raises(RuntimeError, match="This view was created inside a custom Function"):
        same.mul_(pb.ones(2, requires_grad=True))
    y = leaf(1.0, 2.0) * 1
    with pb.no_grad():
        plain = Same.apply(y)
    assert not plain._is_view() and not plain.requires_grad
    plain.mul_(leaf(3.0, 4.0))
    assert plain.requires_grad


# Writes to views


def test_write_to_a_view_of_a_leaf_view_is_refused():
    v = pb.ones(2, 2).t().requires_grad_()
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being"):
        v[0].mul_(2)


def test_refusal_of_a_leaf_comes_before_that_of_overlapping_memory():
    x = leaf(1.0).expand(3)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is being"):
        x.mul_(2)


def test_write_to_a_view_is_freed_like_any_node():
    w = leaf(2.0)
    y = pb.ones(3, dtype=pb.float64)
    y[1:2] *= w
    y.sum().backward()
    with pytest.raises(RuntimeError, match=SECOND_TIME):
        y.sum().backward()
    assert w.grad.tolist() == [1.0]


def test_view_of_a_base_that_was_detached_and_written_has_no_history():
    x = leaf(1.0, 2.0)
    base = x * 2
    view = base.view(2)
    base.detach_()
    assert view.requires_grad
    base.zero_()
    assert view.tolist() == [0.0, 0.0] and not view.requires_grad


def test_complex_view_of_flat_real_memory_follows_its_base():
    x = leaf([1.0], [2.0], [3.0], [4.0])
    y = x * 1
    z = pb.view_as_complex(y.view(-1).view(2, 2))
    y.mul_(3)
    assert z.tolist() == [3 + 6j, 9 + 12j]
    (found,) = grad(z, x, pb.tensor([1 + 2j, 3 - 1j], dtype=pb.complex128))
    assert found.tolist() == [[3.0], [6.0], [9.0], [-3.0]]


def test_write_to_a_complex_view_of_flat_real_memory():
    x = leaf([1.0], [2.0], [3.0], [4.0])
    y = x * 1
    pb.view_as_complex(y.view(-1).view(2, 2))[1].mul_(1j)
    assert y.tolist() == [[1.0], [2.0], [-4.0], [3.0]]
    seed = pb.tensor([[1.0], [1.0], [5.0], [7.0]], dtype=pb.float64)
    assert grad(y, x, seed)[0].tolist() == [[1.0], [1.0], [7.0], [-5.0]]


def test_stride_of_a_single_row_is_no_obstacle_to_a_complex_view():
    x = leaf([-1.0], [2.0]).permute(1, 0)
    assert pb.view_as_complex(x).tolist() == [-1 + 2j]


# What formulas keep, and may therefore not be written


def test_quotient_may_be_written():
    x, y = leaf(6.0), leaf(2.0)
    z = x / y
    z.add_(1)
    assert [g.tolist() for g in grad(z, [x, y])] == [[0.5], [-1.5]]


# Saved-tensor hooks


def test_pack_hook_gets_the_very_input():
    x = leaf(1.0) * 2
    seen = []

    def pack(tensor):
        seen.append(tensor)
        return tensor

    with pb.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed):
        x * x
    assert seen[0] is x and seen[0].requires_grad


# .grad


@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")  # once per process
def test_recorded_first_gradient_has_the_strides_of_its_leaf():
    w = leaf([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    x = leaf([1.0, 0.5])
    ((w.t() @ x.t()) ** 2).sum().backward(create_graph=True)
    assert w.grad.requires_grad and w.grad.stride() == w.stride()
    w.grad = x.grad = None


def test_gradient_of_a_batch_is_not_retained():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    (found,) = grad(y, x, pb.ones(3, 2, dtype=pb.float64), is_grads_batched=True, retain_graph=True)
    assert found.tolist() == [[2.0, 2.0]] * 3
    assert y.grad is None
    y.backward(pb.ones(2, dtype=pb.float64))
    assert y.grad.tolist() == [1.0, 1.0]


# Messages


def test_two_ways_to_require_grad_of_integers():
    x = pb.ones(2, dtype=pb.int64)
    with pytest.raises(RuntimeError, match="of floating point and complex dtype can require"):
        x.requires_grad = True
    with pytest.raises(RuntimeError, match="only Tensors of floating point dtype can require"):
        x.requires_grad_()


def test_root_whose_base_was_detached_and_written_says_what_is_wrong():
    base = leaf(1.0, 2.0) * 2
    view = base.view(2)
    base.detach_()
    base.zero_()
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad"):
        pb.autograd.backward([view], [pb.ones(2, dtype=pb.float64)])


def test_leaf_that_became_the_result_of_an_operation_accumulates_nothing():
    x = leaf(1.0, 2.0)
    y = x.sum()
    x.detach_()
    x.mul_(y)
    with pytest.raises(RuntimeError, match="leaf variable has been moved into the graph interior"):
        y.backward()
