"""Views taken in place (``squeeze_``, ``transpose_``, ...), ``resize_`` and ``set_``."""

import math

import pytest

import pullback as pb

forward_ad = pb.autograd.forward_ad
CHANGES = {
    "squeeze_": (lambda x: x.squeeze_(), "SqueezeBackward3"),
    "squeeze_ of a dim": (lambda x: x.squeeze_(0), "SqueezeBackward4"),
    "squeeze_ of dims": (lambda x: x.squeeze_((0, 1)), "SqueezeBackward5"),
    "unsqueeze_": (lambda x: x.unsqueeze_(-1), "UnsqueezeBackward1"),
    "transpose_": (lambda x: x.transpose_(0, 1), "TransposeBackward1"),
    "swapaxes_": (lambda x: x.swapaxes_(0, 1), "TransposeBackward1"),
    "swapdims_": (lambda x: x.swapdims_(0, 1), "TransposeBackward1"),
    "t_": (lambda x: x.t_(), "TBackward1"),
    "as_strided_": (lambda x: x.as_strided_((3, 1), (1, 3)), "AsStridedBackward1"),
    "as_strided_ function": (lambda x: pb.as_strided_(x, (3,), (1,)), "AsStridedBackward1"),
}


def plain():
    return pb.tensor([[1.0, 2.0, 3.0]], dtype=pb.float64)


def leaf():
    return plain().requires_grad_()


@pytest.fixture(params=list(CHANGES))
def change(request):
    return CHANGES[request.param][0]


@pytest.mark.parametrize("name", list(CHANGES))
def test_the_tensor_itself_changes(name):
    change, node = CHANGES[name]
    x = plain()
    expected = change(x.clone())
    assert change(x) is x
    assert x._version == 1 and not x._is_view()
    assert x.shape == expected.shape != (1, 3) and x.stride() == expected.stride()
    assert change(leaf() * 1).grad_fn.name() == node


def test_gradients_pass_through(change):
    x = leaf()
    y = x * x
    change(y)
    weights = pb.arange(1.0, 1.0 + y.numel(), dtype=pb.float64).reshape(y.shape)
    y.retain_grad()
    (y * weights).sum().backward()
    assert y.grad.tolist() == weights.tolist()
    as_view = leaf()
    out = as_view * as_view
    (out.as_strided(y.shape, y.stride()) * weights).sum().backward()
    assert x.grad.tolist() == as_view.grad.tolist()


def test_second_derivatives(change):
    pb.autograd.gradgradcheck(lambda x: change(x * x), (leaf(),))


def test_forward_mode(change):
    with forward_ad.dual_level():
        x = forward_ad.make_dual(plain(), 10 * plain())
        y = change(x * x)
        tangent = forward_ad.unpack_dual(y).tangent
        expected = 20 * change(plain() * plain())
        assert tangent.tolist() == expected.tolist()
        y.mul_(2)
        assert forward_ad.unpack_dual(y).tangent.tolist() == (2 * expected).tolist()


def test_under_vmap(change):
    rows = pb.stack([plain(), 2 * plain()])
    out = pb.func.vmap(lambda row: change(row.clone()).mul_(3))(rows)
    assert out.tolist() == [(3 * change(row.clone())).tolist() for row in rows]


def test_gradients_under_func(change):
    def loss(x):
        return (change(x * 1) ** 3).sum()

    found = pb.func.vmap(pb.func.grad(loss))(pb.stack([plain(), 2 * plain()]))
    assert found.tolist() == [pb.func.grad(loss)(k * plain()).tolist() for k in (1, 2)]


def test_a_view_of_a_base_with_history(change):
    base = pb.arange(12.0, dtype=pb.float64, requires_grad=True).reshape(4, 3) * 1
    view = base[1:2]
    change(view)
    assert view._base is base and base._version == view._version == 1
    written = view[0].clone()
    view[0].mul_(5)
    assert view[0].tolist() == (5 * written).tolist()
    assert base.grad_fn.name() == "CopySlices" and base[2].tolist() == [6, 7, 8]


def test_views_of_the_tensor_keep_their_shape(change):
    x = leaf()
    base = x * 2
    view = base[0]
    change(base)
    assert view.tolist() == [2, 4, 6] and view._version == 1
    (view * pb.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad.tolist() == [[2, 20, 200]]


def test_what_was_saved_before_is_stale(change):
    x = leaf()
    y = x * 1
    z = y * y
    change(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_refused(change):
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used"):
        change(leaf())
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        change(pb.ones(2, 3, requires_grad=True)[:1])
    with pytest.raises(RuntimeError, match="function that returns multiple views"):
        change((pb.ones(2, 1, 3, requires_grad=True) * 1).unbind(0)[0])


def test_a_leaf_changes_without_recording(change):
    x = leaf()
    with pb.no_grad():
        change(x)
    assert x.is_leaf and x.requires_grad
    (x * 2).sum().backward()
    assert x.grad.shape == x.shape


def test_wrong_dims():
    with pytest.raises(IndexError, match=r"\[-3, 2\], but got 5"):
        plain().unsqueeze_(5)
    with pytest.raises(RuntimeError, match="<= 2 dimensions, but self is 3D"):
        pb.ones(2, 2, 2).t_()
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        plain().as_strided_((3, 2), (1, 3))


def test_a_leaf_that_is_a_view_refuses_writes_through_its_views():
    x = pb.arange(4.0).reshape(2, 2).requires_grad_()
    for call in (lambda: x[0].mul_(2), lambda: x[0].unsqueeze_(0), lambda: x.mul_(2)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad is being used"):
            call()
    part = pb.zeros(2, 2)[0]
    part.mul_(pb.ones(2, requires_grad=True))  # no leaf requires grad here
    assert part.grad_fn is not None


# resize_


def test_resize_keeps_the_first_elements():
    x = plain()
    assert x.resize_(2) is x and x.tolist() == [1, 2] and x._version == 1
    assert x.resize_((3, 1)).tolist() == [[1], [2], [3]]
    assert x.resize_(5).tolist()[:3] == [1, 2, 3] and x._version == 3
    assert x.resize_(0, 4).shape == (0, 4)
    assert x.resize_(()).item() == 1


def test_resize_to_its_own_shape_changes_nothing():
    x = plain().t()
    x.resize_(3, 1)
    assert x._version == 0
    image = pb.zeros(1, 2, 3, 4).resize_(1, 2, 4, 3, memory_format=pb.channels_last)
    assert image.stride() == (24, 1, 6, 2)
    assert pb.zeros(3).resize_as_(image).shape == (1, 2, 4, 3)
    same = pb.zeros(1).resize_as_(image, memory_format=pb.preserve_format)
    assert same.stride() == image.stride()


def test_resize_of_a_part_reads_on():
    x = pb.arange(6.0)
    part = x[2:4]
    assert part.resize_(3).tolist() == [2, 3, 4]
    part.resize_(10)
    assert part[:4].tolist() == [2, 3, 4, 5]
    part.zero_()
    assert x.tolist() == [0, 1, 2, 3, 4, 5]  # what grows gets memory of its own


def test_resize_under_vmap():
    rows = pb.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert pb.func.vmap(lambda x: x.clone().resize_(2, 1))(rows).tolist() == [
        [[1], [2]],
        [[4], [5]],
    ]
    assert pb.func.vmap(lambda x: x.clone().resize_(4)[:3])(rows).tolist() == rows.tolist()


def test_resize_refuses():
    for x in (leaf(), leaf() * 1, leaf()[0]):
        with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
            x.resize_(2)
    with pytest.raises(RuntimeError, match="negative dimension -1"):
        plain().resize_(-1, 3)
    with pytest.raises(TypeError, match="missing"):
        plain().resize_()
    with pytest.raises(TypeError, match="memory_format"):
        plain().resize_(3, memory_format=3)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="has a forward grad"):
        forward_ad.make_dual(plain(), plain()).resize_(2)
    numpy = pytest.importorskip("numpy")
    with pytest.raises(RuntimeError, match="storage that is not resizable"):
        pb.from_numpy(numpy.zeros(3)).resize_(4)
    with pytest.raises((RuntimeError, MemoryError)):
        plain().resize_(2**40, 2**40)


# set_


def test_set_lies_in_the_memory_of_another():
    x, y = plain(), pb.arange(4.0, dtype=pb.float64)
    assert x.set_(y) is x and x.tolist() == [0, 1, 2, 3]
    x[0] = 7
    assert y[0].item() == 7
    assert x.set_(y, 1, (2,), (2,)).tolist() == [1, 3]
    assert x.set_(y, 2, 2).tolist() == [2, 3]
    assert x.set_().shape == (0,)


def test_set_has_no_derivative():
    x = leaf()
    y = x * 1
    y.set_(pb.ones(2, dtype=pb.float64))
    with pytest.raises(RuntimeError, match="derivative for set_ is not implemented"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        leaf().set_(plain())
    saved = leaf() * 1
    square = saved * saved
    saved.set_(plain())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        square.sum().backward()
    with pb.no_grad():
        assert leaf().set_(plain()).requires_grad
    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="set_"):
        forward_ad.make_dual(plain(), plain()).set_(plain())


def test_set_wants_the_same_dtype_and_memory_that_is_there():
    with pytest.raises(RuntimeError, match="type Float to a tensor of type Double"):
        plain().set_(pb.ones(2))
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        plain().set_(plain(), 1, (3,))
    assert math.isclose(plain().set_(plain(), 2, (1,)).item(), 3)
