"""``requires_grad``, ``is_leaf`` and their rules; what an operation records."""

import pytest

import pullback as pb

NOT_DIFFERENTIABLE = [pb.bool, pb.uint8, pb.int8, pb.int16, pb.int32, pb.int64]
DIFFERENTIABLE = [
    pb.float16,
    pb.bfloat16,
    pb.float32,
    pb.float64,
    pb.complex64,
    pb.complex128,
]
ONLY_FLOAT = "Only Tensors of floating point and complex dtype can require gradients"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda **k: pb.zeros(2, **k), id="zeros"),
        pytest.param(lambda **k: pb.ones((2,), **k), id="ones"),
        pytest.param(lambda **k: pb.full((2,), 1.0, **k), id="full"),
        pytest.param(lambda **k: pb.empty(2, **k), id="empty"),
        pytest.param(lambda **k: pb.rand(2, **k), id="rand"),
        pytest.param(lambda **k: pb.randn(2, **k), id="randn"),
        pytest.param(lambda **k: pb.arange(2.0, **k), id="arange"),
        pytest.param(lambda **k: pb.tensor([1.0], **k), id="tensor"),
        pytest.param(lambda **k: pb.zeros_like(pb.ones(2), **k), id="zeros_like"),
        pytest.param(lambda **k: pb.rand_like(pb.ones(2), **k), id="rand_like"),
    ],
)
def test_factory_makes_leaf(make):
    assert not make().requires_grad
    x = make(requires_grad=True)
    assert x.requires_grad
    assert x.is_leaf
    assert x.grad_fn is None
    assert (x.output_nr, x.grad, x.retains_grad) == (0, None, False)


def test_factory_under_no_grad_still_makes_leaf_with_grad():
    with pb.no_grad():
        x = pb.zeros(2, requires_grad=True)
    assert x.requires_grad
    assert x.is_leaf


def test_like_factory_does_not_inherit():
    x = pb.ones(2, requires_grad=True)
    assert not pb.zeros_like(x).requires_grad
    assert not pb.rand_like(x * 2).requires_grad


@pytest.mark.parametrize("dtype", DIFFERENTIABLE, ids=str)
def test_differentiable_dtypes(dtype):
    x = pb.zeros(2, dtype=dtype)
    assert x.requires_grad_() is x
    assert x.requires_grad
    assert (x * 2).requires_grad


@pytest.mark.parametrize("dtype", NOT_DIFFERENTIABLE, ids=str)
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(RuntimeError, match=ONLY_FLOAT):
        pb.zeros(2, dtype=dtype, requires_grad=True)
    x = pb.zeros(2, dtype=dtype)
    with pytest.raises(RuntimeError, match="only Tensors of floating point"):
        x.requires_grad_()
    with pytest.raises(RuntimeError, match="only Tensors of floating point"):
        x.requires_grad = True
    x.requires_grad = False
    assert x.requires_grad_(False) is x


def test_setter_on_leaf():
    x = pb.zeros(2)
    x.requires_grad = True
    assert (x * 2).requires_grad
    x.requires_grad = False
    assert not (x * 2).requires_grad


def test_setter_on_non_leaf():
    y = pb.zeros(2, requires_grad=True) * 2
    assert y.requires_grad_() is y
    assert y.requires_grad
    with pytest.raises(
        RuntimeError, match="you can only change requires_grad flags of leaf variabl"
    ):
        y.requires_grad = False
    with pytest.raises(
        RuntimeError, match="you can only change requires_grad flags of leaf variabl"
    ):
        y.requires_grad_(False)


@pytest.mark.parametrize("bad", ["yes", None, 3.0, object()])
def test_setter_takes_bool_only(bad):
    x = pb.zeros(2)
    with pytest.raises((TypeError, RuntimeError), match="bool"):
        x.requires_grad = bad
    with pytest.raises(TypeError):
        x.requires_grad_(bad)
    assert not x.requires_grad


@pytest.mark.parametrize("name", ["is_leaf", "grad_fn", "output_nr", "_version", "retains_grad"])
def test_read_only_attributes(name):
    x = pb.zeros(2)
    with pytest.raises(AttributeError):
        setattr(x, name, getattr(x, name))


def test_is_leaf_follows_grad_fn():
    x = pb.zeros(2, requires_grad=True)
    assert pb.zeros(2).is_leaf
    assert (pb.zeros(2) * 2).is_leaf
    y = x * 2
    assert not y.is_leaf
    assert y.detach().is_leaf


# What records


@pytest.mark.parametrize(
    "op",
    [
        lambda x: x.argmax(),
        lambda x: x > 0,
        lambda x: x == x,
        lambda x: x.to(pb.int64),
        lambda x: x.detach(),
        lambda x: x.data,
    ],
)
def test_results_that_never_require_grad(op):
    y = op(pb.ones(3, requires_grad=True))
    assert not y.requires_grad
    assert y.grad_fn is None


def test_result_requires_grad_if_any_operand_does():
    x, c = pb.ones(2, requires_grad=True), pb.ones(2)
    assert (c + x).requires_grad
    assert not (c + c).requires_grad
    assert pb.cat([c, x]).requires_grad
    assert pb.where(c > 0, c, x).requires_grad
    assert c.index_put((pb.tensor([0]),), x[0]).requires_grad


def test_results_under_no_grad_are_plain_leaves():
    x = pb.ones(2, requires_grad=True)
    with pb.no_grad():
        y = x * 2
    assert y.is_leaf
    assert not y.requires_grad
    assert not (y * 2).requires_grad


def test_casts_are_differentiable():
    x = pb.ones(2, dtype=pb.float32, requires_grad=True)
    (x.to(pb.float64).to(pb.float16) * 3).sum().backward()
    assert x.grad.dtype == pb.float32
    assert x.grad.tolist() == [3.0, 3.0]


def test_cast_to_own_dtype_is_the_tensor_itself():
    x = pb.ones(2, requires_grad=True)
    assert x.to(pb.float32) is x
    assert x.contiguous() is x


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1), (2, 3), (1, 1)])
def test_gradient_of_broadcast_operand_has_its_shape(shape):
    x = pb.ones(shape, requires_grad=True)
    (x * pb.full((2, 3), 2.0)).sum().backward()
    assert x.grad.shape == shape
    assert x.grad.sum().item() == 12.0


def test_repeated_index_adds():
    x = pb.zeros(3, requires_grad=True)
    x[pb.tensor([0, 0, 2])].sum().backward()
    assert x.grad.tolist() == [2.0, 0.0, 1.0]


def test_repr_shows_the_role():
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1., 2.], requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 4.], grad_fn=<MulBackward0>)"
    assert repr(x.detach()) == "tensor([1., 2.])"


# Complex numbers


def test_complex_gradient_is_the_conjugate_derivative():
    z = pb.tensor([1 + 2j], requires_grad=True)
    (z.abs() ** 2).sum().backward()
    assert z.grad.tolist() == [pytest.approx(2 + 4j)]
    z.grad = None
    (z * z).backward(pb.tensor([1 + 0j]))
    assert z.grad.tolist() == [2 - 4j]


def test_real_operand_gets_the_real_part():
    x = pb.tensor([2.0], requires_grad=True)
    (x * pb.tensor([1 + 3j])).abs().sum().backward()
    assert x.grad.dtype == pb.float32
    assert x.grad.tolist() == [pytest.approx(10**0.5)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("data", "Deleting tensor data is not allowed"),
        ("requires_grad", "requires_grad must be a bool"),
        ("_grad_fn", "Deletion of _grad_fn not allowed"),
        ("_backward_hooks", "Deletion of _backward_hooks not allowed"),
        ("_post_accumulate_grad_hooks", "Deletion of _post_accumulate_grad_hooks not allowed"),
    ],
)
def test_attributes_that_are_not_deleted(name, message):
    x = pb.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match=message):
        delattr(x, name)


def test_data_of_another_dtype():
    x = pb.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="must be floating point or complex dtype, got int64"):
        x.data = pb.ones(2, dtype=pb.int64)
    x.data = pb.ones(3, dtype=pb.float64)
    (x * 2).sum().backward()
    assert x.grad.dtype is pb.float64


def test_hooks_are_seen():
    x = pb.ones(1, requires_grad=True)
    y = x * 2
    assert (x._backward_hooks, y._backward_hooks, x._post_accumulate_grad_hooks) == (None,) * 3
    hooks = [lambda g: None, lambda g: None, lambda p: None]
    x.register_hook(hooks[0])
    y.register_hook(hooks[1])
    x.register_post_accumulate_grad_hook(hooks[2])
    found = [x._backward_hooks, y._backward_hooks, x._post_accumulate_grad_hooks]
    assert [list(table.values()) for table in found] == [[hook] for hook in hooks]


def test_attribute_of_a_non_leaf_is_not_set():
    y = pb.ones(1, requires_grad=True) * 2
    for value in (True, False):
        with pytest.raises(RuntimeError, match="you can only change requires_grad flags of leaf"):
            y.requires_grad = value
    assert y.requires_grad_() is y


def test_flag_must_be_bool():
    x = pb.ones(1)
    with pytest.raises(RuntimeError, match="requires_grad must be a bool, not int"):
        x.requires_grad = 1
    with pytest.raises(TypeError, match="argument 'requires_grad' must be bool, not int"):
        x.requires_grad_(1)
