"""Lazy conjugates and negatives: views that are computed where memory is read or written.

What each op makes of them is the conformance suite's (checks ``lazy`` and ``lazy_grad``).
"""

import copy
import pickle

import numpy as np
import pytest

import pullback as pb

grad = pb.autograd.grad


def numbers(**options):
    return pb.tensor([[1 + 2j, 3 - 4j], [5j, 6 + 1j]], dtype=pb.complex128, **options)


def recorded():
    """Return a leaf, and a tensor with a history that is equal to it."""
    leaf = numbers(requires_grad=True)
    return leaf, leaf * 1


# What is a view, and of what


def test_conj_is_a_view_of_complex_memory_and_real_tensors_themselves():
    c, real = numbers(), pb.ones(2)
    view = c.conj()
    assert view.is_conj() and view._is_view() and view._base is c
    assert view.data_ptr() == c.data_ptr() and pb.is_conj(view) and not pb.is_neg(view)
    assert not view.conj().is_conj() and view.conj()._base is c
    assert real.conj() is real is real.conj_physical() is real.resolve_conj() is real.resolve_neg()
    assert pb.equal(view, c.conj_physical()) and not c.conj_physical().is_conj()


def test_writes_go_through_in_both_directions():
    c = pb.tensor([1 + 2j])
    c.conj().mul_(1j)
    assert c.tolist() == [2 - 1j]
    d = pb.tensor([1 + 2j])
    e = d.conj()
    d.mul_(2)
    assert e.tolist() == [2 - 4j] and e._version == d._version == 1


@pytest.mark.parametrize(
    "turn",
    [
        lambda x: x.H,
        lambda x: x.mH,
        lambda x: x.adjoint(),
        pb.adjoint,
    ],
)
def test_adjoints_are_views(turn):
    c = numbers()
    turned = turn(c)
    assert turned.is_conj() and turned.stride() == (1, 2)
    assert turned.tolist() == c.conj_physical().t().tolist()
    turned[0, 1] = 7j
    assert c[1, 0].item() == -7j


def test_imag_of_a_conjugate_is_the_negative_of_real_memory():
    c = numbers()
    real, imag = c.conj().real, c.conj().imag
    assert not real.is_neg() and imag.is_neg() and not imag.is_conj()
    assert imag.data_ptr() == c.data_ptr() + 8
    assert imag.tolist() == (-c.imag).tolist()
    imag.fill_(9.0)
    assert c.imag.tolist() == [[-9.0, -9.0], [-9.0, -9.0]]
    again = c.conj()._neg_view()
    assert again.is_conj() and again.is_neg() and again.tolist() == (-c.conj()).tolist()
    assert again.real.is_neg() and not again.imag.is_neg()
    assert again.imag.tolist() == c.imag.tolist()


@pytest.mark.parametrize(
    "part",
    [
        lambda x: x.t(),
        lambda x: x[0],
        lambda x: x.reshape(-1),
        lambda x: x.expand(2, 2, 2),
        lambda x: x.unbind()[1],
        lambda x: x.diagonal(),
        lambda x: x.view(4),
        lambda x: x[None],
        lambda x: x.detach(),
        lambda x: x.data,
        copy.copy,
        lambda x: x.contiguous(),
        lambda x: x.as_strided((2,), (2,), 1),
        lambda x: x.to(pb.complex128),
        lambda x: x.chunk(2)[0],
    ],
)
def test_views_stay_lazy(part):
    c = numbers()
    assert part(c.conj()).is_conj()
    assert part(c.conj()).tolist() == part(c.conj_physical()).tolist()
    assert part(c._neg_view()).is_neg()
    assert part(c._neg_view()).tolist() == part(-c).tolist()


@pytest.mark.parametrize(
    "copied",
    [
        lambda x: x.clone(),
        lambda x: x.resolve_conj(),
        pb.resolve_conj,
        lambda x: x.to(pb.complex64),
        lambda x: x.t().contiguous(),
        lambda x: x.clone(memory_format=pb.contiguous_format),
        lambda x: x + 0,
        lambda x: pb.cat([x, x])[:2],
        lambda x: x.to(x.dtype, copy=True),
        lambda x: pb.tensor(x.tolist()),
        lambda x: pickle.loads(pickle.dumps(x)),
        lambda x: x.conj_physical().conj_physical(),
        pb.zeros_like,
        pb.empty_like,
    ],
)
def test_copies_are_not_lazy(copied):
    view = numbers().conj()
    found = copied(view)
    assert not found.is_conj() and found.data_ptr() != view.data_ptr()
    if copied not in (pb.zeros_like, pb.empty_like):
        assert found.tolist() in (view.tolist(), view.t().tolist())


def test_small_integers_wrap_around_when_negated():
    x = pb.tensor([-128, 5], dtype=pb.int8)._neg_view()
    assert x.tolist() == [-128, -5] and x[0].item() == -128
    assert pb.tensor([1], dtype=pb.uint8)._neg_view().item() == 255
    with pytest.raises(NotImplementedError, match="bools have no negatives"):
        pb.ones(2, dtype=pb.bool)._neg_view()


def test_a_lazy_number_of_the_host_is_read_as_what_it_is():
    assert complex(pb.tensor(1 + 2j).conj()) == 1 - 2j
    assert (pb.ones(2) * pb.tensor(3.0)._neg_view()).tolist() == [-3.0, -3.0]
    assert repr(pb.tensor([1 + 2j]).conj()) == "tensor([1.-2.j])"


# Who gets the memory


def test_numpy_refuses_what_it_would_read_wrongly():
    c = numbers()
    for lazy, name in ((c.conj(), "conjugate"), (c.conj().imag, "negative")):
        with pytest.raises(RuntimeError, match=f"{name} bit set. Use tensor.resolve_"):
            lazy.numpy()
        with pytest.raises(RuntimeError, match=f"{name} bit set"):
            np.asarray(lazy)
        with pytest.raises(BufferError, match=f"{name} bit set"):
            memoryview(lazy)
        with pytest.raises(BufferError, match=f"{name} bit set"):
            lazy.__dlpack__()
        with pytest.raises(BufferError, match=f"{name} bit set"):
            np.from_dlpack(lazy)
        assert not hasattr(lazy, "__array_interface__")
        assert lazy.numpy(force=True).tolist() == lazy.tolist()


def test_memory_is_not_read_as_other_numbers():
    c = numbers()
    with pytest.raises(RuntimeError, match="view_as_real doesn't work on unresolved conjugated"):
        pb.view_as_real(c.conj())
    with pytest.raises(RuntimeError, match="not supported for conjugate view tensors"):
        c.conj().view(pb.float64)
    with pytest.raises(RuntimeError, match="not supported for tensors with negative bit set"):
        c.conj().imag.view(pb.int64)
    assert pb.view_as_real(c._neg_view()).is_neg()
    assert pb.view_as_complex(pb.view_as_real(c)._neg_view()).tolist() == (-c).tolist()


def test_copies_of_objects_keep_what_they_share():
    c = numbers()
    both = copy.deepcopy([c, c.conj()])
    assert both[1].tolist() == c.conj().tolist()
    both[0].mul_(2)
    assert both[1].tolist() == (2 * c).conj().tolist()


def test_meta_tensors_know_what_they_are():
    c = numbers().to("meta").conj()
    assert c.is_conj() and c.imag.is_neg() and not (c + 1).is_conj()


def test_memory_that_is_exchanged_takes_its_kind_along():
    c = numbers()
    x = c.clone()
    x.data = c.conj()
    assert x.is_conj() and x.tolist() == c.conj().tolist()
    y = pb.empty(0, dtype=pb.complex128)
    y.set_(c.conj())
    assert y.tolist() == c.conj().tolist()
    y.set_(c)
    assert y.tolist() == c.tolist()
    z = c.conj()
    z.t_()
    assert z.tolist() == c.mH.tolist()


# Parts that are set


def test_real_and_imag_can_be_set():
    c = numbers()
    c.real = pb.tensor([[9.0, 8.0], [7.0, 6.0]])
    assert c.tolist() == [[9 + 2j, 8 - 4j], [7 + 5j, 6 + 1j]]
    c.imag = 5
    assert c.imag.tolist() == [[5.0, 5.0], [5.0, 5.0]]
    c.conj().imag = pb.tensor([1.0, 2.0])
    assert c.imag.tolist() == [[-1.0, -2.0], [-1.0, -2.0]]
    real = pb.ones(2)
    real.real = 3
    assert real.tolist() == [3.0, 3.0]
    with pytest.raises(RuntimeError, match="imag is not implemented for tensors with non-complex"):
        real.imag = 3


def test_a_part_that_is_set_is_recorded():
    leaf, c = recorded()
    value = pb.ones(2, 2, dtype=pb.float64, requires_grad=True)
    c.real = value * 3
    (c * c.conj()).real.sum().backward()
    assert value.grad.tolist() == [[18.0, 18.0], [18.0, 18.0]]
    assert leaf.grad.tolist() == (2j * leaf.imag).tolist()
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        leaf.imag = 1


# Derivatives


def test_nodes_have_torchs_names():
    _, c = recorded()
    assert c.conj().grad_fn.name() == "ConjBackward0"
    assert c.mH.grad_fn.name() == "ConjBackward0"
    assert c._neg_view().grad_fn.name() == "NegViewBackward0"
    assert c.conj_physical().grad_fn.name() == "ConjPhysicalBackward0"
    assert c.conj().resolve_conj().grad_fn.name() == "CloneBackward0"
    assert c.conj().imag.grad_fn.name() == c.imag.grad_fn.name() == "SelectBackward0"
    assert c.clone().conj_physical_().grad_fn.name() == "ConjPhysicalBackward1"


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.conj(),
        lambda x: x.mH,
        lambda x: x.imag,
        lambda x: x.conj().imag,
        lambda x: x.conj()[0],
        lambda x: x.conj()._neg_view(),
        lambda x: x.conj()._neg_view().real,
        lambda x: x._neg_view()[:, 1],
    ],
)
def test_in_place_writes_to_views_are_differentiated(view):
    def function(x, y):
        base = x * 1
        part = view(base)
        part.mul_(y if part.is_complex() else y.real)
        base.mul_(base.clone())  # the view follows
        return base, part * 1

    leaf = numbers(requires_grad=True)
    factor = pb.tensor(2 + 3j, dtype=pb.complex128, requires_grad=True)
    assert pb.autograd.gradcheck(function, (leaf, factor), check_forward_ad=True)
    assert pb.autograd.gradgradcheck(function, (leaf, factor))


@pytest.mark.parametrize("view", [lambda x: x.conj(), lambda x: x.imag, lambda x: x.conj().imag])
def test_a_base_may_be_lazy_itself(view):
    def function(x):
        base = x.conj_physical().conj().detach() * 0 + x  # plain
        base = base.conj_physical().conj()
        own = base.view_as(base)
        part = view(own)
        part.mul_(part.clone())
        return own * 1, base * 1

    leaf = numbers(requires_grad=True)
    assert pb.autograd.gradcheck(function, (leaf,), check_forward_ad=True)


def test_a_leaf_that_is_lazy_gets_its_gradient():
    leaf = numbers().conj().detach().requires_grad_()
    assert leaf.is_conj() and leaf.is_leaf
    (leaf * leaf).sum().abs().backward()
    plain = numbers().conj_physical().requires_grad_()
    (plain * plain).sum().abs().backward()
    assert pb.allclose(leaf.grad, plain.grad)
    work = numbers().conj().detach().requires_grad_() * 1
    assert not work.is_conj()


def test_tangents_of_lazy_primals_and_their_views():
    primal, tangent = numbers().conj().detach(), numbers() * 2j
    with pb.autograd.forward_ad.dual_level():
        dual = pb.autograd.forward_ad.make_dual(primal, tangent)
        for view in (
            lambda x: x,
            lambda x: x.conj(),
            lambda x: x.imag,
            lambda x: x.conj().real,
            lambda x: pb.view_as_real(x.conj()),
            lambda x: x.mH[0],
        ):
            found = pb.autograd.forward_ad.unpack_dual(view(dual)).tangent
            assert found.tolist() == view(tangent.conj().clone().conj()).tolist()
        work = dual.clone()
        work.conj().imag.mul_(3)
        found = pb.autograd.forward_ad.unpack_dual(work).tangent
        assert found.imag.tolist() == (3 * tangent.imag).tolist()
        assert found.real.tolist() == tangent.real.tolist()


def test_views_of_leaves_and_of_other_modes_refuse_writes():
    leaf, c = recorded()
    for view in (leaf.conj(), leaf.mH, leaf.conj().imag, leaf._neg_view()):
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
            view.mul_(2)
    with pb.no_grad():
        view = c.conj()
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        view.mul_(2)


def test_what_is_saved_keeps_its_kind_and_notices_writes():
    leaf, c = recorded()
    view = c.conj()
    out = view * view
    assert out.grad_fn._saved_self.is_conj()
    assert out.grad_fn._saved_self.tolist() == view.tolist()
    with pb.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        packed = (view * view).sum()
    assert grad(packed, leaf, pb.tensor(1 + 0j, dtype=pb.complex128))[0].tolist() == (
        (2 * leaf.conj()).tolist()
    )
    out = view * view
    c.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward(pb.tensor(1 + 0j, dtype=pb.complex128))


def test_a_tensor_and_its_conjugate_are_kept_apart_before_a_write():
    """They share memory, sizes, strides and version."""
    leaf = numbers(requires_grad=True)
    one = pb.tensor(1 + 0j, dtype=pb.complex128)

    def total(y):
        return (y * y.conj() * y).sum() + (y._neg_view() * y.conj()).sum()

    expected = grad(total(leaf * 1), leaf, one)[0]
    with pb.autograd.graph.allow_mutation_on_saved_tensors():
        y = leaf * 1
        out = total(y)
        y.zero_()
        found = grad(out, leaf, one)[0]
    assert found.tolist() == expected.tolist()


def test_gradients_in_grad_are_plain_memory():
    leaf = numbers(requires_grad=True)
    seed = numbers()
    leaf.conj().backward(seed)
    leaf.conj().backward(seed.conj())
    assert not leaf.grad.is_conj()
    assert leaf.grad.tolist() == (seed + seed.conj()).tolist()


def test_second_derivatives_go_through_conjugates():
    assert pb.autograd.gradgradcheck(
        lambda x: (x.conj() * x.mH).imag, (numbers(requires_grad=True),)
    )


def test_transforms_keep_what_is_lazy():
    c = numbers()
    vmap, jvp = pb.func.vmap, pb.func.jvp
    assert vmap(lambda x: x.conj())(c).is_conj()
    assert vmap(lambda x: x.conj().imag)(c).tolist() == (-c.imag).tolist()
    assert vmap(lambda x: pb.tensor(x.is_conj()))(c.conj()).tolist() == [True, True]

    def write(x):
        y = x.clone()
        y.conj().mul_(1j)
        return y

    assert vmap(write)(c).tolist() == write(c).tolist()
    assert jvp(write, (c,), (c * 2,))[1].tolist() == (-1j * c * 2).tolist()
    assert pb.func.grad(lambda x: x.conj().imag.sum())(c).tolist() == [[-1j, -1j], [-1j, -1j]]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.conj(),
        lambda x: x.mH,
        lambda x: x.conj().imag,
        lambda x: x._neg_view()[1],
    ],
)
def test_writes_to_views_in_batches_and_with_tangents_are_those_of_one(view):
    def write(x):
        y = x * 1
        view(y).mul_(view(y).clone()).add_(2)
        return y * 1, view(y) * 1

    batch, tangents = pb.stack([numbers(), numbers() * 2j]), pb.stack([numbers().T, numbers()])
    pairs = list(zip(batch.unbind(), tangents.unbind()))

    def push(x, tangent):
        return pb.func.jvp(write, (x,), (tangent,))[1]

    for found, wanted in zip(pb.func.vmap(write)(batch), zip(*[write(x) for x, _ in pairs])):
        assert found.tolist() == [x.tolist() for x in wanted]
    for found, wanted in zip(
        pb.func.vmap(push)(batch, tangents), zip(*[push(x, t) for x, t in pairs])
    ):
        assert found.tolist() == [x.tolist() for x in wanted]


def test_inference_tensors_have_lazy_views():
    with pb.inference_mode():
        c = numbers()
        c.conj().mul_(1j)
        assert c.tolist() == (numbers() * -1j).tolist()
        assert c.conj().is_conj()


def test_copy_between_lazy_tensors_of_one_memory():
    c = numbers()
    expected = c.conj_physical().tolist()
    c.copy_(c.conj())
    assert c.tolist() == expected
    view = c.conj()
    view.copy_(view)
    assert c.tolist() == expected
    view.copy_(c)
    assert c.tolist() == numbers().tolist()


# Products of matrices


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("dtype", [pb.complex64, pb.complex128])
def test_products_take_conjugates(n, dtype):
    pb.manual_seed(0)
    a, b = (pb.randn(2, n, n + 1, dtype=dtype) for _ in range(2))
    v = pb.randn(n, dtype=dtype)
    kinds = {
        "plain": lambda x: x,
        "conj": lambda x: x.conj(),
        "neg": lambda x: x._neg_view(),
        "both": lambda x: x.conj()._neg_view(),
    }

    def agrees(function, *operands):
        found = function(*operands)
        plain = function(*(x.resolve_conj().resolve_neg() for x in operands))
        assert not found.is_conj()
        assert pb.allclose(found, plain, rtol=1e-4, atol=1e-4)

    for one in kinds.values():
        for other in kinds.values():
            agrees(pb.mm, one(a[0]).t(), other(b[0]))
            agrees(pb.mm, one(a[0]), other(b[0]).t())
            agrees(pb.bmm, one(a).mT, other(b))
            agrees(pb.bmm, one(a)[:, ::2, 1:], other(b).mT[:, 1:])
            agrees(pb.mv, one(a[0]).t(), other(v))
            agrees(pb.mv, one(a[0, :, :n]), other(v))
            agrees(pb.dot, one(v), other(v))
            agrees(pb.vdot, one(v), other(v))
            agrees(pb.addmm, one(a[0, :, :n]), other(a[0, :, :n]), one(b[0, :, :n]).t())
            agrees(pb.matmul, one(v), other(a))
