"""``autograd.grad``: arguments, structure of the result, unused inputs, batched seeds."""

import collections
import types

import pytest

import pullback as pb

grad = pb.autograd.grad
get_gradient_edge = pb.autograd.graph.get_gradient_edge


def leaf(*values, dtype=pb.float64):
    return pb.tensor(list(values), dtype=dtype, requires_grad=True)


# Results


@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: [t], lambda t: (t,)])
def test_result_is_a_tuple_whatever_the_arguments_are(wrap):
    x = leaf(3.0)
    result = grad(wrap((x * x).sum()), wrap(x))
    assert isinstance(result, tuple)
    assert [g.tolist() for g in result] == [[6.0]]
    assert x.grad is None


def test_result_follows_order_and_repetition_of_inputs():
    x, y = leaf(2.0), leaf(5.0)
    result = grad(x * y, [y, x, y])
    assert [g.tolist() for g in result] == [[2.0], [5.0], [2.0]]


def test_result_for_dict_has_the_same_keys():
    x, y = leaf(2.0), leaf(5.0)
    result = grad(x * y, {"b": y, "a": x})
    assert type(result) is dict
    assert list(result) == ["b", "a"]
    assert result["a"].tolist() == [5.0]
    assert result["b"].tolist() == [2.0]


@pytest.mark.parametrize(
    "mapping",
    [collections.OrderedDict, collections.UserDict, lambda **d: types.MappingProxyType(d)],
)
def test_other_mappings_are_refused(mapping):
    x = leaf(2.0)
    with pytest.raises(TypeError, match="must be a dict"):
        grad(x * 2, mapping(x=x))


def test_root_that_is_an_input_gives_the_seed():
    x = leaf(2.0)
    y = x * 3
    gy, gx = grad(y, [y, x], pb.tensor([7.0]))
    assert gy.tolist() == [7.0]
    assert gx.tolist() == [21.0]
    assert grad(x, x, pb.tensor([4.0]))[0].tolist() == [4.0]


def test_intermediate_input_stops_the_pass():
    x = leaf(2.0)
    y = x * 3
    (gy,) = grad((y * y).sum(), y, retain_graph=True)
    assert gy.tolist() == [12.0]
    assert x.grad is None


def test_input_behind_another_input_gets_its_full_gradient():
    x = leaf(2.0)
    y = x * 3
    z = y * y
    gy, gx = grad(z, [y, x])
    assert gy.tolist() == [12.0]
    assert gx.tolist() == [36.0]


def test_several_outputs_sum_with_their_seeds():
    x = leaf(1.0, 2.0)
    seeds = [pb.tensor([1.0, 10.0]), None]
    (g,) = grad([x * 3, (x * x).sum()], x, seeds)
    assert g.tolist() == [3 + 2, 30 + 4]


def test_edges_stand_for_tensors():
    x = leaf(2.0)
    y = x * 3
    edge_in, edge_out = get_gradient_edge(x), get_gradient_edge(y)
    del y
    (g,) = grad(edge_out, edge_in, pb.tensor([1.0]))
    assert g.tolist() == [3.0]


def test_edge_to_one_output_of_many():
    x = leaf(1.0, 2.0, 3.0)
    _, second, _ = (x * x).unbind()
    edge = get_gradient_edge(second)
    assert edge.output_nr == 1
    (g,) = grad(edge, x, pb.tensor(1.0))
    assert g.tolist() == [0.0, 4.0, 0.0]


@pytest.mark.parametrize("create_graph", [False, True])
def test_result_requires_grad_only_with_create_graph(create_graph):
    x = leaf(2.0)
    (g,) = grad(x * x, x, create_graph=create_graph)
    assert g.requires_grad is create_graph


def test_gradient_of_linear_function_does_not_require_grad():
    x = leaf(2.0)
    (g,) = grad(x * 3 + 1, x, create_graph=True)
    assert not g.requires_grad


def test_derivatives_to_fourth_order():
    x = leaf(2.0)
    y = x**5
    values = []
    for _ in range(4):
        (y,) = grad(y, x, create_graph=True)
        values.append(y.item())
    assert values == [80.0, 160.0, 240.0, 240.0]


def test_gradient_flows_to_seed_with_create_graph():
    x, v = leaf(2.0, 3.0), leaf(1.0, 1.0)
    (g,) = grad(x * x, x, v, create_graph=True)
    (gv,) = grad(g, v, pb.tensor([1.0, 10.0]))
    assert gv.tolist() == [4.0, 60.0]


def test_result_can_be_written_without_harm():
    x, y = leaf(2.0), leaf(3.0)
    gx, gy = grad(x * 2 + y * 3, [x, y])
    gx.add_(5)
    assert (gx.tolist(), gy.tolist()) == ([7.0], [3.0])


def test_inputs_and_outputs_of_every_layout():
    base = pb.arange(12, dtype=pb.float64).reshape(3, 4).requires_grad_()
    for view in (base.t(), base[:, ::2], base[1], base[1, 2], base.expand(2, 3, 4), base[3:]):
        (g,) = grad((view * 2).sum(), view)
        assert g.shape == view.shape
        assert g.sum().item() == 2 * view.numel()


# Freeing


def test_graph_is_freed_unless_retained():
    x = leaf(2.0)
    y = x * x
    grad(y, x, retain_graph=True)
    grad(y, x)
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        grad(y, x)


def test_explicit_false_frees_even_with_create_graph():
    x = leaf(2.0)
    y = x * x
    (g,) = grad(y, x, retain_graph=False, create_graph=True)
    with pytest.raises(RuntimeError, match="a second time"):
        grad(y, x)
    assert grad(g, x)[0].tolist() == [2.0]


# Unused inputs


def test_unused_input_is_an_error():
    x, y = leaf(1.0), leaf(2.0)
    message = "The differentiated Tensor at index 1 appears to not have been used in the graph"
    with pytest.raises(RuntimeError, match=message):
        grad(x * 2, [x, y])


@pytest.mark.beyond_torch
def test_error_for_unused_input_names_the_key():
    x, y = leaf(1.0), leaf(2.0)
    with pytest.raises(RuntimeError, match="weight"):
        grad(x * 2, {"x": x, "weight": y})


def test_allow_unused_gives_none():
    x, y = leaf(1.0), leaf(2.0)
    gx, gy = grad(x * 2, [x, y], allow_unused=True)
    assert gx.tolist() == [2.0]
    assert gy is None
    assert grad(x * 2, {"y": y}, allow_unused=True) == {"y": None}


@pytest.mark.parametrize("create_graph", [False, True])
def test_materialize_grads_gives_zeros(create_graph):
    x, y = leaf(1.0), pb.ones(2, 3, dtype=pb.float32, requires_grad=True)
    _, gy = grad(x * 2, [x, y], materialize_grads=True, create_graph=create_graph)
    assert gy.tolist() == [[0.0] * 3] * 2
    assert gy.dtype == pb.float32
    assert gy.requires_grad is create_graph


def test_materialize_grads_contradicts_allow_unused_false():
    x = leaf(1.0)
    with pytest.raises(ValueError, match="Expected allow_unused to be True or not passed"):
        grad(x * 2, x, allow_unused=False, materialize_grads=True)


def test_materialize_grads_contradicts_edges():
    x, other = leaf(1.0), leaf(1.0)
    with pytest.raises(RuntimeError, match="GradientEdge"):
        grad(x * 2, get_gradient_edge(other * 2), materialize_grads=True)


def test_none_from_custom_function_counts_as_unused():
    class Drop(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g, None

    x, y = leaf(1.0), leaf(2.0)
    z = Drop.apply(x, y)
    with pytest.raises(RuntimeError, match="index 1 appears to not have been used"):
        grad(z, [x, y], retain_graph=True)
    assert grad(z, [x, y], allow_unused=True)[1] is None


# Errors


def test_empty_inputs_are_refused():
    for empty in ([], (), {}):
        with pytest.raises(RuntimeError, match=r"`inputs` argument to `grad\(\)` cannot be empty"):
            grad(leaf(1.0).sum(), empty)


def test_input_without_grad_is_refused():
    x = leaf(1.0)
    with pytest.raises(
        RuntimeError, match="One of the differentiated Tensors does not require grad"
    ):
        grad(x * 2, [x, pb.ones(1)])


def test_output_without_grad_is_refused():
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad"):
        grad(pb.ones(1), leaf(1.0))


@pytest.mark.parametrize("bad", [3, [3], "ab", None, {"a": 3}])
def test_input_of_wrong_type_is_refused(bad):
    with pytest.raises((TypeError, RuntimeError)):
        grad(leaf(1.0).sum(), bad)


def test_seed_rules_are_those_of_backward():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar"):
        grad(x * 2, x)
    with pytest.raises(RuntimeError, match=r"Mismatch in shape: grad_output\[0\] has a shape of"):
        grad([x * 2, x * 3], x, [pb.ones(1), pb.ones(2)])
    with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
        grad([x * 2, x * 3], x, [pb.ones(2)])
    with pytest.raises(TypeError):
        grad(x * 2, x, 1.0)


@pytest.mark.beyond_torch
def test_error_for_seed_shape_names_the_right_index():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match=r"Mismatch in shape: grad_output\[1\] has a shape of"):
        grad([x * 2, x * 3], x, [pb.ones(2), pb.ones(1)])


@pytest.mark.beyond_torch
def test_more_seeds_than_outputs_are_refused():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="got 1 tensors and 2 gradients"):
        grad(x * 2, x, [pb.ones(2), pb.ones(2)])


def test_only_inputs_is_deprecated_and_ignored():
    x, y = leaf(1.0), leaf(2.0)
    with pytest.warns(FutureWarning, match="only_inputs"):
        (g,) = grad(x * y, x, only_inputs=False)
    assert g.tolist() == [2.0]
    assert y.grad is None


# Batched seeds


def test_batched_seeds_equal_a_loop():
    x = leaf(1.0, 2.0, 3.0)
    w = leaf(0.5, -1.0, 2.0)
    seeds = pb.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 1.0]], dtype=pb.float64)
    y = (x * w).exp() * x
    gx, gw = grad(y, [x, w], seeds, is_grads_batched=True, retain_graph=True)
    assert gx.shape == gw.shape == (2, 3)
    for i in range(2):
        ex, ew = grad(y, [x, w], seeds[i], retain_graph=True)
        assert gx[i].tolist() == pytest.approx(ex.tolist())
        assert gw[i].tolist() == pytest.approx(ew.tolist())


def test_batched_seeds_through_matmul_and_reduction():
    a = pb.arange(6, dtype=pb.float64).reshape(2, 3).requires_grad_()
    b = pb.arange(3, dtype=pb.float64).reshape(3, 1).requires_grad_()
    y = (a @ b).tanh().sum(1)
    seeds = pb.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=pb.float64)
    (rows,) = grad(y, b, seeds, is_grads_batched=True, retain_graph=True)
    assert rows.shape == (3, 3, 1)
    for i in range(3):
        (row,) = grad(y, b, seeds[i], retain_graph=True)
        assert rows[i].reshape(3).tolist() == pytest.approx(row.reshape(3).tolist())


def test_batched_seeds_must_have_one_more_dimension():
    x = leaf(1.0, 2.0)
    for seed in (pb.ones(2), pb.ones(3, 3)):
        with pytest.raises(RuntimeError, match="If `is_grads_batched=True`"):
            grad(x * 2, x, seed, is_grads_batched=True)
