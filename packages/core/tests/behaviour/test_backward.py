"""``Tensor.backward`` and ``autograd.backward``: arguments, seeds, results, freeing."""

import pytest

import pullback as pb

backward = pb.autograd.backward
get_gradient_edge = pb.autograd.graph.get_gradient_edge


def leaf(*values, dtype=pb.float64):
    return pb.tensor(list(values), dtype=dtype, requires_grad=True)


# Roots


@pytest.mark.parametrize(
    "as_root",
    [
        pytest.param(lambda y: y, id="tensor"),
        pytest.param(lambda y: [y], id="list"),
        pytest.param(lambda y: (y,), id="tuple"),
        pytest.param(lambda y: [get_gradient_edge(y)], id="edge"),
    ],
)
def test_root_in_every_accepted_form(as_root):
    x = leaf(1.0, 2.0)
    y = x * x
    result = backward(as_root(y), [pb.tensor([1.0, 10.0], dtype=pb.float64)])
    assert result is None
    assert x.grad.tolist() == [2.0, 40.0]


def test_method_equals_function():
    x = leaf(3.0)
    (x * x).sum().backward()
    first = x.grad
    x.grad = None
    backward((x * x).sum())
    assert x.grad.tolist() == first.tolist() == [6.0]


def test_roots_repeated_and_overlapping_sum():
    x = leaf(1.0)
    y = x * 2
    z = y * 3
    backward([y, z, y])
    assert x.grad.tolist() == [2 + 6 + 2]


def test_root_that_is_a_leaf_receives_its_seed():
    x = leaf(1.0, 2.0)
    x.backward(pb.tensor([3.0, 4.0], dtype=pb.float64))
    x.backward(pb.tensor([3.0, 4.0], dtype=pb.float64))
    assert x.grad.tolist() == [6.0, 8.0]


@pytest.mark.parametrize("shape", [(0,), (), (2, 0, 3), (2, 3)])
def test_root_of_any_shape_with_seed(shape):
    x = pb.zeros(shape, requires_grad=True)
    (x * 3).backward(pb.full(shape, 2.0))
    assert x.grad.shape == shape
    assert x.grad.tolist() == pb.full(shape, 6.0).tolist()


def test_root_that_does_not_require_grad_is_refused():
    x = leaf(1.0)
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad"):
        pb.ones(1).backward()
    with pytest.raises(RuntimeError, match="element 1 of tensors does not require grad"):
        backward([x.sum(), x.detach().sum()])
    assert x.grad is None


@pytest.mark.beyond_torch
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(lambda x: pb.ones(()), "leaf", id="leaf"),
        pytest.param(lambda x: x.detach().sum(), "detach", id="detached"),
        pytest.param(lambda x: (x * 2).argmax(), "int64", id="integer"),
    ],
)
def test_error_for_root_without_grad_says_why(make, reason):
    with pytest.raises(RuntimeError, match=reason):
        make(leaf(1.0, 2.0)).backward()


# Seeds


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_seed_may_be_omitted_for_one_element(shape):
    x = pb.ones(shape, requires_grad=True)
    (x * 5).backward()
    assert x.grad.shape == shape
    assert x.grad.item() == 5.0


@pytest.mark.parametrize("shape", [(2,), (0,), (1, 2)])
def test_seed_must_be_given_otherwise(shape):
    x = pb.ones(shape, requires_grad=True)
    with pytest.raises(
        RuntimeError, match="grad can be implicitly created only for scalar outputs"
    ):
        (x * 5).backward()


@pytest.mark.beyond_torch
def test_error_for_missing_seed_shows_shape_and_remedy():
    with pytest.raises(RuntimeError, match=r"(?s)\[2, 3\].*(sum\(\)|gradient=)"):
        (pb.ones(2, 3, requires_grad=True) * 5).backward()


def test_seed_must_be_given_for_complex_scalar():
    z = pb.tensor([1 + 2j], requires_grad=True)
    with pytest.raises(RuntimeError, match="only for real scalar outputs"):
        (z * 1).backward()


@pytest.mark.parametrize("dtype", [pb.float32, pb.float16, pb.int64, pb.bool])
def test_seed_of_another_real_dtype_is_cast(dtype):
    x = leaf(3.0, 4.0)
    (x * x).backward(pb.ones(2, dtype=dtype))
    assert x.grad.dtype == pb.float64
    assert x.grad.tolist() == [6.0, 8.0]


@pytest.mark.parametrize("shape", [(), (1,), (2, 1), (3,)])
def test_seed_shape_is_not_broadcast(shape):
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match=r"Mismatch in shape: grad_output\[0\] has a shape of"):
        (x * 2).backward(pb.ones(shape))


@pytest.mark.parametrize(("root", "seed"), [(pb.float32, pb.complex64), (pb.complex64, pb.float32)])
def test_seed_must_agree_in_complexness(root, seed):
    x = pb.ones(1, dtype=root, requires_grad=True)
    with pytest.raises(RuntimeError, match="For complex Tensors, both grad_output and output"):
        (x * 2).backward(pb.ones(1, dtype=seed))


def test_seed_list_may_hold_none_for_scalars():
    x = leaf(1.0)
    backward([x * 2, x * 3], [None, pb.tensor([10.0])])
    assert x.grad.tolist() == [32.0]


def test_seed_count_must_equal_root_count():
    x = leaf(1.0)
    with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
        backward([x * 2, x * 3], [pb.ones(1)])


@pytest.mark.parametrize("seed", [3.0, "a", object()])
def test_seed_that_is_no_tensor_is_refused(seed):
    x = leaf(1.0)
    with pytest.raises(TypeError, match="gradients can be either Tensors or None"):
        backward([x * 2], [seed])
    with pytest.raises(TypeError):
        backward(x * 2, 3.0)
    with pytest.raises(TypeError):
        (x * 2).backward(3.0)


@pytest.mark.beyond_torch
def test_error_for_bare_seed_says_what_is_accepted():
    with pytest.raises(TypeError, match=r"(?s)(grad_tensors|gradient).*float"):
        (leaf(1.0) * 2).backward(3.0)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(lambda: pb.ones(3, 2).t(), id="transposed"),
        pytest.param(lambda: pb.ones(()).expand(2, 3), id="expanded"),
        pytest.param(lambda: pb.ones(2, 6)[:, ::2], id="strided"),
    ],
)
def test_seed_of_any_layout(seed):
    x = pb.arange(6, dtype=pb.float64).reshape(2, 3).requires_grad_()
    (x * x).backward(seed())
    assert x.grad.tolist() == [[0, 2, 4], [6, 8, 10]]


def test_seed_that_requires_grad_stays_outside_the_result():
    x, seed = leaf(2.0), leaf(1.0)
    (x * x).backward(seed)
    assert not x.grad.requires_grad
    assert seed.grad is None


def test_grad_variables_is_a_deprecated_alias():
    x = leaf(1.0, 2.0)
    with pytest.warns(FutureWarning, match="grad_variables"):
        backward(x * 2, grad_variables=[pb.tensor([1.0, 3.0])])
    assert x.grad.tolist() == [2.0, 6.0]
    with pytest.warns(FutureWarning), pytest.raises(RuntimeError, match="arguments both passed"):
        backward(x * 2, [pb.ones(2)], grad_variables=[pb.ones(2)])


# Accumulation into leaves


def test_grad_is_added_to_what_is_there():
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    (x * 10).sum().backward()
    assert x.grad.tolist() == [12.0, 14.0]


def test_gradient_takes_shape_and_dtype_of_each_operand():
    x = pb.ones(2, 1, dtype=pb.float32, requires_grad=True)
    y = pb.ones(3, dtype=pb.float64, requires_grad=True)
    (x * y).sum().backward()
    assert (x.grad.dtype, tuple(x.grad.shape)) == (pb.float32, (2, 1))
    assert (y.grad.dtype, tuple(y.grad.shape)) == (pb.float64, (3,))
    assert x.grad.tolist() == [[3.0], [3.0]]
    assert y.grad.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "op",
    [
        pytest.param(lambda x: x, id="leaf-root"),
        pytest.param(lambda x: x + 1, id="add"),
        pytest.param(lambda x: x.reshape(2), id="view", marks=pytest.mark.beyond_torch),
        pytest.param(lambda x: x.clone(), id="clone"),
    ],
)
def test_grad_never_aliases_the_seed(op):
    x, seed = leaf(1.0, 2.0), pb.tensor([3.0, 4.0], dtype=pb.float64)
    op(x).backward(seed)
    seed.zero_()
    assert x.grad.tolist() == [3.0, 4.0]
    x.grad.zero_()
    op(x).backward(pb.ones(2, dtype=pb.float64))
    assert seed.tolist() == [0.0, 0.0]


def test_grads_of_two_leaves_never_alias():
    x, y = leaf(1.0), leaf(2.0)
    (x + y).sum().backward()
    x.grad.add_(5)
    assert y.grad.tolist() == [1.0]


def test_no_grad_around_backward_changes_nothing():
    x = leaf(3.0)
    y = (x * x).sum()
    with pb.no_grad():
        y.backward()
    assert x.grad.tolist() == [6.0]


# inputs=


def test_inputs_leaves_everything_else_alone():
    x, y, calls = leaf(1.0), leaf(2.0), []
    y.register_post_accumulate_grad_hook(lambda p: calls.append("y"))
    z = x * y
    z.retain_grad()
    z.sum().backward(inputs=[x])
    assert x.grad.tolist() == [2.0]
    assert y.grad is None
    assert calls == []


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: (x,)])
def test_inputs_in_every_accepted_form(wrap):
    x = leaf(3.0)
    (x * x).sum().backward(inputs=wrap(x))
    assert x.grad.tolist() == [6.0]


def test_inputs_may_name_a_non_leaf():
    x = leaf(2.0)
    y = x * 3
    backward((y * y).sum(), inputs=[y], retain_graph=True)
    assert x.grad is None
    assert y.grad.tolist() == [12.0]


def test_inputs_may_be_an_edge():
    x = leaf(2.0)
    y = x * 3
    backward((y * 5).sum(), inputs=[get_gradient_edge(x)], retain_graph=True)
    assert x.grad.tolist() == [15.0]
    x.grad = None
    backward((y * 5).sum(), inputs=[get_gradient_edge(y)])
    assert x.grad is None


def test_inputs_must_not_be_empty():
    with pytest.raises(RuntimeError, match=r"`inputs` argument to `backward\(\)` cannot be empty"):
        leaf(1.0).sum().backward(inputs=[])


def test_inputs_must_require_grad():
    with pytest.raises(RuntimeError, match="require"):
        leaf(1.0).sum().backward(inputs=[pb.ones(1)])


@pytest.mark.parametrize("bad", [3, [3], "ab", [None]])
def test_inputs_of_wrong_type_are_refused(bad):
    with pytest.raises((TypeError, RuntimeError)):
        leaf(1.0).sum().backward(inputs=bad)


def test_node_left_out_by_inputs_keeps_its_saved_tensors():
    x = leaf(2.0)
    y = x * x
    z = y * y
    (z * z).backward(inputs=[z])
    assert y.grad_fn._saved_self.tolist() == [2.0]
    y.backward()
    assert x.grad.tolist() == [4.0]


# retain_graph and create_graph


def test_second_pass_through_freed_graph_is_refused():
    x = leaf(3.0)
    y = x * x
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        _ = y.grad_fn._saved_self
    assert x.grad.tolist() == [6.0]


def test_retain_graph_allows_more_passes():
    x = leaf(3.0)
    y = x * x
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [18.0]


def test_graph_without_saved_tensors_needs_no_retaining():
    x = leaf(3.0)
    y = x.reshape(1, 1) + 1
    y.backward()
    y.backward()
    assert x.grad.tolist() == [2.0]


def test_create_graph_implies_retain_graph_unless_refused():
    x = leaf(3.0)
    y = x * x
    backward(y, create_graph=True)
    y.backward()
    assert x.grad.tolist() == [12.0]
    x.grad = None
    y = x * x
    backward(y, retain_graph=False, create_graph=True)
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()
    x.grad = None


def test_create_graph_records_only_what_depends_on_inputs():
    x = leaf(3.0)
    backward(x * 2, create_graph=True)
    assert not x.grad.requires_grad
    x.grad = None
    backward(x * x * x, create_graph=True)
    first, x.grad = x.grad, None
    assert first.requires_grad
    first.backward()
    assert first.tolist() == [27.0]
    assert x.grad.tolist() == [18.0]


@pytest.mark.parametrize("create_graph", [False, True])
def test_grad_mode_of_the_pass_is_create_graph(create_graph):
    x, seen = leaf(3.0), []
    y = x * x
    y.register_hook(lambda g: seen.append(pb.is_grad_enabled()))
    with pb.set_grad_enabled(not create_graph):
        pb.autograd.grad(y, x, create_graph=create_graph)
        assert pb.is_grad_enabled() is not create_graph
    assert seen == [create_graph]


def test_create_graph_warns_once_per_process(run_script):
    run_script("create_graph_warning")


# Failure


def test_failed_pass_frees_what_ran_and_keeps_what_accumulated():
    x, w = leaf(2.0), leaf(5.0)

    def fail(g):
        raise ValueError("stop here")

    y = x * x
    y.register_hook(fail)
    z = w * y
    with pytest.raises(ValueError, match="stop here"):
        z.backward()
    assert w.grad.tolist() == [4.0]
    assert x.grad is None
    with pytest.raises(RuntimeError, match="a second time"):
        z.backward()
    (x * w).backward()
    assert x.grad.tolist() == [5.0]


@pytest.mark.parametrize("bad", [3, None, "abc", [3], [None]])
def test_root_of_wrong_type_is_refused(bad):
    with pytest.raises((TypeError, RuntimeError, AssertionError, AttributeError)):
        backward(bad)


def test_unknown_argument_is_refused():
    with pytest.raises(TypeError, match="foo"):
        leaf(1.0).sum().backward(foo=1)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(lambda: pb.tensor([2.0, 3.0], dtype=pb.float64), id="plain"),
        pytest.param(lambda: pb.tensor([2.0, 3.0]), id="other dtype"),
        pytest.param(lambda: pb.tensor(2.0, dtype=pb.float64).expand(2), id="expanded"),
        pytest.param(lambda: leaf(2.0, 3.0) * 1, id="with history"),
        pytest.param(lambda: pb.tensor([2.0, 3.0, 4.0]), id="other shape"),
        pytest.param(lambda: pb.tensor([[2.0, 3.0]]), id="more dims"),
        pytest.param(lambda: pb.tensor([2j, 3j]), id="complex"),
        pytest.param(lambda: pb.ones(2, dtype=pb.float64, device="meta"), id="other device"),
    ],
)
def test_method_with_a_gradient_equals_function(seed):
    """The method passes plain gradients directly to the engine."""

    def outcome(run):
        x = leaf(1.0, 4.0)
        y = x * x
        try:
            run(y, seed())
            first = x.grad.tolist()
            y.backward(pb.ones(2, dtype=pb.float64))
        except Exception as error:
            return type(error), str(error).replace("autograd.", "").split("backward")[-1][:40]
        return first

    assert outcome(lambda y, g: y.backward(g)) == outcome(lambda y, g: backward(y, g))
    kept = outcome(lambda y, g: y.backward(g, retain_graph=True))
    assert kept == outcome(lambda y, g: backward(y, g, retain_graph=True))


def test_an_input_that_is_named_twice_gets_its_gradient_once():
    x = pb.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 1
    (y * y).sum().backward(inputs=[y, x, y.contiguous(), x])
    assert y.grad.tolist() == x.grad.tolist() == [2.0, 4.0, 6.0]
