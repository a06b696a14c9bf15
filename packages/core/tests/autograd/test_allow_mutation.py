"""Saved tensors that may be overwritten."""

import gc
import threading
import weakref

import pytest

import pullback as pb

grad = pb.autograd.grad
allow = pb.autograd.graph.allow_mutation_on_saved_tensors
OUTSIDE = "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context"


@pytest.fixture
def x():
    return pb.tensor([[0.5, 1.0, 2.0], [3.0, 4.0, 5.0]], dtype=pb.float64, requires_grad=True)


def read(x):
    return x.tolist()


WRITES = {
    "method": lambda t: t.sin_(),
    "operator": lambda t: t.__imul__(3),
    "fill": lambda t: t.zero_(),
    "item": lambda t: t.__setitem__((0, 1), 7),
    "row": lambda t: t.__setitem__(0, t[1].clone()),
    "mask": lambda t: t.__setitem__(t > 1, -1),
    "copy": lambda t: t.copy_(pb.ones(2, 3)),
    "view": lambda t: t[:1].mul_(10),
    "transposed": lambda t: t.t().add_(1),
    "detached": lambda t: t.detach().add_(1),
    "data": lambda t: t.data.add_(1),
    "random": lambda t: t.uniform_(),
    "out": lambda t: pb.sin(pb.ones(2, 3, dtype=pb.float64), out=t.detach()),
    "out-view": lambda t: pb.sin(pb.ones(3, dtype=pb.float64), out=t.detach()[0]),
    "composite": lambda t: t.fill_diagonal_(3),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_backward_sees_what_was_saved(x, write):
    with allow() as ctx:
        y = x.clone()
        z = (y**2).sum()
        write(y)
        assert len(ctx.cloned) == 1
        z.backward()
        assert len(ctx.cloned) == 0
    assert read(x.grad) == read(2 * x)


def test_without_it_backward_refuses(x):
    y = x.clone()
    z = (y**2).sum()
    y.sin_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda y: (y[:] ** 2, y), id="view-base"),
        pytest.param(lambda y: (y[:, 1:] ** 2, y), id="part-base"),
        pytest.param(lambda y: (y**2, y[1]), id="base-part"),
        pytest.param(lambda y: (y[0] ** 2, y[1]), id="part-part"),
        pytest.param(lambda y: (y.view(6) ** 2, y.t()), id="view-view"),
    ],
)
def test_views_and_bases(x, use):
    expected = grad(use(x.clone())[0].sum(), x)[0]
    with allow():
        z, target = use(x.clone())
        target.mul_(2)
        (found,) = grad(z.sum(), x)
    assert read(found) == read(expected)


def test_saved_outputs(x):
    with allow() as ctx:
        y = x.exp()
        z = y + 0
        y.detach().zero_()
        assert len(ctx.cloned) == 1
        (found,) = grad(z.sum(), x)
    assert read(found) == read(x.exp())


def test_outputs_of_in_place_ops(x):
    with allow():
        y = x.clone()
        y.exp_()
        z = y * 1
        y.sin_()
        y.exp_()
        found = grad(z.sum(), x, retain_graph=True)[0], grad(y.sum(), x)[0]
    assert read(found[0]) == read(x.exp())
    assert pb.allclose(found[1], grad(x.exp().sin().exp().sum(), x)[0])


def test_leaves_are_still_connected(x):
    with allow():
        y = x * x
        with pb.no_grad():
            x.add_(1)
        (first,) = grad(y.sum(), x, create_graph=True)
        assert read(first) == read(2 * (x - 1))
        assert read(grad(first.sum(), x)[0]) == [[2.0] * 3] * 2


def test_second_derivatives(x):
    with allow() as ctx:
        y = x.clone()
        z = (y**2).sum()
        y.sin_()
        grad(z, x, create_graph=True)
        (first,) = grad(z, x, create_graph=True)
        (second,) = grad(first.sum(), x)
    assert read(second) == [[2.0] * 3] * 2
    assert len(ctx.cloned) == 0


class Saves(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y * x


def test_custom_functions(x):
    with allow() as ctx:
        y = x.clone()
        z = Saves.apply(y)
        w = z + 0
        y.zero_()
        z.detach().zero_()
        assert len(ctx.cloned) == 2
        (found,) = grad(w.sum(), x)
    assert read(found) == read(x.exp() * x)


def test_complex_views():
    with allow():
        x = pb.tensor([1 + 1j], requires_grad=True)
        for target in ("base", "view"):
            y = x.clone()
            view = y.conj()
            z = (view**2).sum()
            (y if target == "base" else view).sin_()
            (found,) = grad(z.abs(), x)
            assert pb.allclose(found, grad((x.conj() ** 2).sum().abs(), x)[0])


def test_gradients_that_are_added_to(x):
    (x * 2).sum().backward()
    w = pb.ones(2, 3, dtype=pb.float64, requires_grad=True)
    with allow() as ctx:
        y = (x.grad * w).sum()
        (x * 3).sum().backward()
        assert len(ctx.cloned) == 1
        (found,) = grad(y, w)
    assert read(found) == [[2.0] * 3] * 2
    assert read(x.grad) == [[5.0] * 3] * 2


def test_checkpoints_inside(x):
    def function(y):
        return (y.sin() * y).exp()

    with allow():
        y = x * 1
        z = pb.utils.checkpoint.checkpoint(function, y)
        y.zero_()
        (found,) = grad(z.sum(), x)
    assert pb.allclose(found, grad(function(x).sum(), x)[0])


# what is kept


def test_nothing_is_copied_that_is_no_longer_saved(x):
    with allow() as ctx:
        y = x.clone()
        z = (y**2).sum()
        assert len(ctx.tid_to_weakhandle) == 1
        assert len(ctx.cloned) == 0
        z.backward()
        y.sin_()
        assert len(ctx.cloned) == 0
        z = (y**2).sum()
        y.sin_()
        assert len(ctx.cloned) == 1
        del z
        assert len(ctx.cloned) == 0


def test_a_tensor_saved_many_times_is_copied_once(x):
    with allow() as ctx:
        y = x.clone()
        first, second = y**2, y**2
        y.sin_()
        assert len(ctx.cloned) == 1
        del first
        assert len(ctx.cloned) == 1
        del second
        assert len(ctx.cloned) == 0


def test_each_version_is_copied(x):
    with allow() as ctx:
        y = x.clone()
        first = y**2
        y.sin_()
        second = y**2
        y.sin_()
        assert len(ctx.cloned) == 2
        found = grad(first.sum(), x, retain_graph=True)[0], grad(second.sum(), x)[0]
        assert read(found[0]) == read(2 * x)
        assert pb.allclose(found[1], 2 * x.sin() * x.cos())
        del first
        assert len(ctx.cloned) == 0


def test_only_what_was_saved_is_copied(x):
    with allow() as ctx:
        a, b = pb.ones(2, 3), pb.ones(2, 3)
        z = (x * a).sum()
        assert len(ctx.tid_to_weakhandle) == 1
        b.zero_()
        assert len(ctx.cloned) == 0
        a.zero_()
        assert len(ctx.cloned) == 1
        z.backward()
    assert read(x.grad) == [[1.0] * 3] * 2


def test_memory_of_another_tensor_at_the_same_address(x):
    with allow():
        graphs = []
        for number in range(5):
            a = pb.full((2, 3), float(number), dtype=pb.float64)
            graphs.append((number, (x * a).sum()))
            a.zero_()
            del a  # its memory may be the next one's
        for number, z in graphs:
            assert read(grad(z, x)[0]) == [[float(number)] * 3] * 2


def test_dropped_graphs_leave_nothing(x):
    gc.disable()
    try:
        with allow() as ctx:
            before = pb.memory_stats()["allocated_bytes.all.current"]
            y = x.clone()
            z = (y.exp() * y).sum()
            y.zero_()
            del y, z
            assert not len(ctx.cloned)
            assert not len(ctx.original)
            assert not len(ctx.tid_to_weakhandle)
            assert pb.memory_stats()["allocated_bytes.all.current"] == before
        reference = weakref.ref(ctx)
        del ctx
        assert reference() is None
    finally:
        gc.enable()


def test_a_write_that_nobody_sees_is_refused(x):
    with allow():
        y = x.clone()
        z = (y**2).sum()
        pb.autograd.graph.increment_version(y)
        with pytest.raises(RuntimeError, match="that allow_mutation_on_saved_tensors could not"):
            z.backward()


# limits


def test_backward_after_leaving(x):
    with allow():
        z = (x**2).sum()
    with pytest.raises(AssertionError, match=OUTSIDE):
        z.backward()
    with allow(), pytest.raises(AssertionError, match=OUTSIDE):
        z.backward()


def test_backward_after_clear(x):
    with allow() as ctx:
        z = (x**2).sum()
        ctx.clear()
        with pytest.raises(AssertionError, match=OUTSIDE):
            z.backward()


def test_nesting_is_refused(x):
    with allow():
        with pytest.raises(RuntimeError, match="contexts cannot be nested"), allow():
            pass
        z = (x**2).sum()
        z.backward()
    with allow():
        pass


def test_contexts_of_other_threads_are_their_own(x):
    def run():
        with allow() as ctx:
            y = x.detach().clone().requires_grad_().clone()
            z = (y**2).sum()
            y.zero_()
            found.append(len(ctx.cloned))
            z.backward()

    found = []
    with allow() as ctx:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert len(ctx.cloned) == 0
    assert found == [1]


def test_an_exception_ends_it(x):
    with pytest.raises(ZeroDivisionError), allow():
        raise ZeroDivisionError
    y = x.clone()
    z = (y**2).sum()
    y.sin_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()
