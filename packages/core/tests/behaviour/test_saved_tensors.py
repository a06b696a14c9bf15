"""What nodes save, when it is released, and hooks that pack and unpack it."""

import weakref

import pytest

import pullback as pb

grad = pb.autograd.grad
saved_tensors_hooks = pb.autograd.graph.saved_tensors_hooks
disable_saved_tensors_hooks = pb.autograd.graph.disable_saved_tensors_hooks
SECOND_TIME = "Trying to backward through the graph a second time"


def leaf(*values, dtype=pb.float64):
    return pb.tensor(list(values), dtype=dtype, requires_grad=True)


class Square(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g


# Introspection


@pytest.mark.parametrize(
    ("op", "name", "value"),
    [
        pytest.param(lambda x: x * x, "self", [2.0, 4.0], id="mul-self"),
        pytest.param(lambda x: x * x, "other", [2.0, 4.0], id="mul-other"),
        pytest.param(lambda x: x.exp(), "result", None, id="exp"),
        pytest.param(lambda x: x.tanh(), "result", None, id="tanh"),
        pytest.param(lambda x: x.sigmoid(), "result", None, id="sigmoid"),
        pytest.param(lambda x: x.sqrt(), "result", None, id="sqrt"),
        pytest.param(lambda x: x.log(), "self", [2.0, 4.0], id="log"),
        pytest.param(lambda x: x.abs(), "self", [2.0, 4.0], id="abs"),
        pytest.param(lambda x: x**3, "self", [2.0, 4.0], id="pow"),
        pytest.param(lambda x: x.softmax(0), "result", None, id="softmax"),
    ],
)
def test_saved_value_is_readable_by_name(op, name, value):
    x = leaf(2.0, 4.0)
    y = op(x)
    saved = getattr(y.grad_fn, f"_saved_{name}")
    assert saved.tolist() == (y.tolist() if value is None else value)
    y.sum().backward()
    with pytest.raises(RuntimeError, match=SECOND_TIME):
        getattr(y.grad_fn, f"_saved_{name}")


def test_saved_leaf_is_still_connected():
    x = leaf(2.0)
    saved = (x * x).grad_fn._saved_self
    assert saved.requires_grad
    assert saved.is_leaf
    saved.sum().backward()
    assert x.grad.tolist() == [1.0]


def test_saved_result_has_its_history():
    x = leaf(0.0)
    y = x.exp()
    assert y.grad_fn._saved_result.grad_fn is y.grad_fn
    del y
    (g,) = grad(x.exp(), x, create_graph=True)
    assert grad(g, x)[0].tolist() == [1.0]


def test_reading_a_saved_value_checks_its_version():
    x = leaf(2.0)
    y = x * 1
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _ = z.grad_fn._saved_self


def test_only_what_the_formula_needs_is_saved():
    x, c = leaf(2.0), pb.tensor([3.0], dtype=pb.float64)
    node = (x * c).grad_fn
    assert node._saved_self is None
    assert node._saved_other.tolist() == [3.0]


def test_linear_ops_keep_no_operand_alive(no_gc):
    x = leaf(2.0)
    y = x * 1
    dead = weakref.ref(y)
    z = (y + 1).reshape(1, 1).sum()
    del y
    assert dead() is None
    z.backward()
    assert x.grad.tolist() == [1.0]


# saved_tensors_hooks


@pytest.mark.parametrize("op", [lambda x: x * x, Square.apply], ids=["builtin", "custom"])
def test_pack_runs_at_save_time_and_unpack_at_each_access(op):
    packed, unpacked = [], []

    def pack(t):
        packed.append(t)
        return len(packed) - 1

    def unpack(i):
        unpacked.append(i)
        return packed[i]

    x = leaf(3.0)
    with saved_tensors_hooks(pack, unpack):
        y = op(x)
    saves = len(packed)
    assert saves >= 1
    assert unpacked == []
    y.backward(retain_graph=True)
    assert sorted(unpacked) == list(range(saves))
    y.backward()
    assert len(unpacked) == 2 * saves
    assert x.grad.tolist() == [12.0]


def test_packed_value_may_be_anything():
    with saved_tensors_hooks(lambda t: {"values": t.tolist()}, lambda d: pb.tensor(d["values"])):
        x = pb.tensor([3.0], requires_grad=True)
        y = x * x
    y.backward()
    assert x.grad.tolist() == [6.0]


def test_unpacked_value_is_what_the_formula_uses():
    x = leaf(3.0)
    with saved_tensors_hooks(lambda t: t, lambda t: t * 10):
        y = x * x
    assert y.grad_fn._saved_self.tolist() == [30.0]
    y.backward()
    assert x.grad.tolist() == [60.0]


def test_context_ends_and_nests_with_the_innermost_pair_only():
    seen = []

    def logged(name):
        return saved_tensors_hooks(lambda t: seen.append(name) or t, lambda t: t)

    x = leaf(3.0)
    with logged("outer"):
        with logged("inner"):
            x.exp()
        x.exp()
    x.exp()
    assert seen == ["inner", "outer"]


def test_double_backward_through_packed_values():
    x = leaf(3.0)
    with saved_tensors_hooks(lambda t: t, lambda t: t):
        y = x * x * x
    (g,) = grad(y, x, create_graph=True)
    (g2,) = grad(g, x)
    assert (g.tolist(), g2.tolist()) == ([27.0], [18.0])


def test_python_scalars_are_not_packed():
    seen = []
    with saved_tensors_hooks(lambda t: seen.append(t) or t, lambda t: t):
        leaf(3.0) * 2
        leaf(3.0) + 1
        leaf(3.0).sum()
    assert seen == []


def test_packed_value_is_released_after_the_pass(no_gc):
    class Box:
        def __init__(self, value):
            self.value = value

    boxes = []

    def pack(t):
        box = Box(t.detach().clone())
        boxes.append(weakref.ref(box))
        return box

    x = leaf(3.0)
    with saved_tensors_hooks(pack, lambda box: box.value):
        y = x.exp().log()
    assert all(ref() is not None for ref in boxes)
    y.backward()
    assert [ref() for ref in boxes] == [None] * len(boxes)
    assert len(boxes) >= 2


@pytest.mark.parametrize("returned", [3, None, "a", (1,)])
def test_unpack_must_return_a_tensor(returned):
    x = leaf(3.0)
    with saved_tensors_hooks(lambda t: 0, lambda _: returned):
        y = x * x
    with pytest.raises(
        TypeError, match="Output of saved tensor unpack_hook expected to be a Tensor"
    ):
        y.backward()


def test_pack_must_not_write_its_argument():
    def pack(t):
        t.mul_(2)
        return t

    x = leaf(3.0) * 1
    with (
        saved_tensors_hooks(pack, lambda t: t),
        pytest.raises(
            RuntimeError, match="A saved tensor pack hook is modifying its input in place"
        ),
    ):
        x * x


@pytest.mark.beyond_torch
@pytest.mark.parametrize("wrong", [lambda t: t[:1], lambda t: t.to(pb.float32)])
def test_unpack_must_keep_shape_and_dtype(wrong):
    x = leaf(3.0, 4.0)
    with saved_tensors_hooks(lambda t: t, wrong):
        y = x * x
    with pytest.raises(RuntimeError, match="unpack"):
        y.sum().backward()


@pytest.mark.parametrize("where", ["pack", "unpack"])
def test_exception_in_a_hook_arrives_unchanged(where):
    error = LookupError("from the hook")

    def fail(t):
        raise error

    def same(t):
        return t

    x = leaf(3.0)
    with pytest.raises(LookupError) as caught:
        with saved_tensors_hooks(fail if where == "pack" else same, fail):
            y = x * x
        y.backward()
    assert caught.value is error
    assert grad(x * x, x)[0].tolist() == [6.0]


def test_unpack_runs_once_for_all_derivatives_of_a_node():
    x, y = leaf(3.0), leaf(4.0)
    unpacked = []

    def unpack(t):
        unpacked.append(t.tolist())
        return t

    with saved_tensors_hooks(lambda t: t, unpack):
        z = pb.hypot(x, y)
    for count in (1, 2):
        assert [g.item() for g in grad(z, (x, y), retain_graph=True)] == pytest.approx([0.6, 0.8])
        assert sorted(unpacked) == sorted([[3.0], [4.0], [5.0]] * count)


def test_hooks_go_with_the_saved_tensors():
    class Unpack:
        def __call__(self, t):
            return t

    hook = Unpack()
    reference = weakref.ref(hook)
    x = leaf(3.0)
    with saved_tensors_hooks(lambda t: t, hook):
        y = x * x
    del hook
    assert reference() is not None
    y.backward()
    assert reference() is None


# Disabling


def test_disabled_hooks_refuse_with_the_given_message():
    with (
        disable_saved_tensors_hooks("not here"),
        pytest.raises(RuntimeError, match="not here"),
        saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        pass
    with saved_tensors_hooks(lambda t: t, lambda t: t):
        pass


def test_disabling_nests_and_restores_the_message():
    with disable_saved_tensors_hooks("outer"):
        with (
            disable_saved_tensors_hooks("inner"),
            pytest.raises(RuntimeError, match="inner"),
            saved_tensors_hooks(lambda t: t, lambda t: t),
        ):
            pass
        with (
            pytest.raises(RuntimeError, match="outer"),
            saved_tensors_hooks(lambda t: t, lambda t: t),
        ):
            pass


# Hooks of one saved value


def test_a_raw_saved_value_takes_its_own_hooks():
    x, seen = leaf(3.0), []
    y = x * x
    saved = y.grad_fn._raw_saved_self
    saved.register_hooks(
        lambda t: seen.append("pack") or t, lambda t: seen.append("unpack") or t * 2
    )
    assert seen == ["pack"]
    assert y.grad_fn._saved_self.tolist() == [6.0]
    assert seen == ["pack", "unpack"]
    with pytest.raises(RuntimeError, match="hooks have already been set"):
        saved.register_hooks(lambda t: t, lambda t: t)
    y.backward()
    assert x.grad.tolist() == [9.0]
    with pytest.raises(RuntimeError):
        saved.register_hooks(lambda t: t, lambda t: t)


def test_raw_saved_tensors_of_a_function_take_their_own_hooks():
    class Product(pb.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g * b, g * a

    x, z = leaf(3.0), leaf(5.0)
    y = Product.apply(x, z)
    first, second = y.grad_fn._raw_saved_tensors
    second.register_hooks(lambda t: t.detach(), lambda t: t * 10)
    assert [first.data.tolist(), second.data.tolist()] == [[3.0], [50.0]]
    y.backward()
    assert [x.grad.tolist(), z.grad.tolist()] == [[50.0], [3.0]]
    with pytest.raises(RuntimeError, match="second time"):
        _ = y.grad_fn._raw_saved_tensors


# save_on_cpu and mutation of saved values


def test_save_on_cpu_gives_the_same_gradient():
    x = leaf(3.0)
    with pb.autograd.graph.save_on_cpu():
        y = x.exp() * x
    y.backward()
    with_hooks, x.grad = x.grad, None
    (x.exp() * x).backward()
    assert with_hooks.tolist() == x.grad.tolist()


def test_saved_tensor_is_not_made_from_python():
    raw = (pb.ones(1, requires_grad=True).exp()).grad_fn._raw_saved_result
    with pytest.raises(RuntimeError, match="create a SavedTensor object from Python is forbidden"):
        type(raw)()
