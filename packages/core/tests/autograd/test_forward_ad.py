"""Forward mode: levels, duals, what ops do to tangents, and both modes together."""

import gc
import threading
import weakref

import pytest

import pullback as pb
from pullback._c.graph import levels
from pullback._c.transforms import tangents
from pullback.autograd import forward_ad, gradcheck
from pullback.autograd.forward_ad import dual_level, make_dual, unpack_dual

ONES = pb.ones(2)


def tangent(x):
    return unpack_dual(x).tangent


@pytest.fixture
def level():
    with dual_level() as number:
        yield number


@pytest.fixture
def dual(level):
    return make_dual(pb.tensor([1.0, 2.0]), pb.tensor([1.0, 0.5]))


class TestLevels:
    def test_number(self):
        with dual_level() as number:
            assert number == 0

    def test_number_under_the_name_of_torch(self):
        assert forward_ad._current_level == -1
        with dual_level():
            assert forward_ad._current_level == 0
        with pytest.raises(AttributeError, match="no attribute '_other'"):
            forward_ad._other

    def test_outside(self):
        x = pb.ones(2)
        assert unpack_dual(x) == (x, None)
        assert isinstance(unpack_dual(x), forward_ad.UnpackedDualTensor)

    def test_leaving_drops_tangents(self):
        with dual_level():
            x = make_dual(pb.ones(2), pb.ones(2))
            y = x * 2
        assert unpack_dual(y).tangent is None
        assert "tangent" not in repr(y)
        with dual_level():
            assert tangent(y) is None
            assert tangent(y * 3) is None

    def test_leaving_frees_tangents(self):
        with dual_level():
            x = make_dual(pb.ones(2, requires_grad=True), pb.ones(2))
            y = x.exp()  # saves its output, and with it the output's tangent
            alive = weakref.ref(tangent(y))
            assert alive() is not None
        assert alive() is None
        assert y.requires_grad

    def test_an_exception_closes_the_level(self):
        with pytest.raises(KeyError), dual_level():
            raise KeyError
        with dual_level():
            pass

    def test_as_decorator(self):
        @dual_level()
        def derivative(x):
            return tangent(make_dual(x, pb.ones_like(x)).sin())

        x = pb.tensor([0.5])
        assert pb.equal(derivative(x), x.cos())
        assert levels.level_count() == 0

    def test_threads_have_their_own(self, dual):
        seen = []

        def look():
            seen.append(unpack_dual(dual).tangent)
            with dual_level():
                seen.append(unpack_dual(dual * 2).tangent)

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert seen == [None, None]
        assert pb.equal(tangent(dual), pb.tensor([1.0, 0.5]))

    def test_levels_nest(self):
        x = pb.tensor(2.0)
        outer = levels.enter_level()
        a = tangents.make_dual(x, pb.tensor(1.0), outer)
        inner = levels.enter_level()
        b = tangents.make_dual(a, pb.tensor(1.0), inner)
        first = tangents.unpack_dual(b**3, inner)[1]
        levels.exit_level(inner)
        value, second = tangents.unpack_dual(first, outer)
        levels.exit_level(outer)
        assert (value.item(), second.item()) == (12.0, 12.0)

    def test_levels_do_not_mix(self):
        # d/dx (x * d/dy (x + y)) = 1: the inner derivative must not see the outer tangent
        x = pb.tensor(3.0)
        outer = levels.enter_level()
        a = tangents.make_dual(x, pb.tensor(1.0), outer)
        inner = levels.enter_level()
        b = tangents.make_dual(pb.tensor(1.0), pb.tensor(1.0), inner)
        derivative = tangents.unpack_dual(a + b, inner)[1]
        levels.exit_level(inner)
        result = tangents.unpack_dual(a * derivative, outer)[1]
        levels.exit_level(outer)
        assert result.item() == 1.0

    def test_closing_an_outer_level_closes_inner_ones(self):
        outer = levels.enter_level()
        levels.enter_level()
        levels.exit_level(outer)
        assert levels.level_count() == 0

    def test_too_many(self):
        first = levels.enter_level()
        try:
            with pytest.raises(RuntimeError, match="more than 63 levels"):
                for _ in range(100):
                    levels.enter_level()
        finally:
            levels.exit_level(first)


REFUSED = {
    "no level": (lambda: make_dual(ONES, ONES), RuntimeError, "no level exists"),
    "exit without enter": (forward_ad.exit_dual_level, RuntimeError, "must be a positive number"),
}
REFUSED_INSIDE = {
    "nested": (forward_ad.enter_dual_level, RuntimeError, "Nested forward mode AD"),
    "out of order": (lambda: forward_ad.exit_dual_level(level=3), RuntimeError, "not the last one"),
    "shape": (lambda: make_dual(ONES, pb.ones(3)), RuntimeError, "different size"),
    "integer tangent": (
        lambda: make_dual(ONES, pb.ones(2, dtype=pb.int64)),
        ValueError,
        "tangent to be floating",
    ),
    "integer primal": (
        lambda: make_dual(pb.ones(2, dtype=pb.int64), ONES),
        ValueError,
        "primal to be floating",
    ),
    "dual already": (
        lambda: make_dual(make_dual(ONES, ONES), ONES),
        RuntimeError,
        "already has a forward",
    ),
    "make_dual level": (lambda: make_dual(ONES, ONES, level=2), RuntimeError, "Invalid level"),
    "unpack_dual level": (lambda: unpack_dual(ONES, level=2), RuntimeError, "Invalid level"),
    "no primal": (lambda: make_dual(3.0, ONES), TypeError, "'tensor' .* must be Tensor, not float"),
    "no tangent": (lambda: make_dual(ONES, [1.0]), TypeError, "'tangent' .* must be Tensor"),
    "no dual": (lambda: unpack_dual(None), TypeError, "must be Tensor, not NoneType"),
    "out": (
        lambda: pb.add(make_dual(ONES, ONES), 1, out=pb.empty(2)),
        NotImplementedError,
        "forward AD or vmap with add_out",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("name", REFUSED_INSIDE)
def test_refused_inside(name, level):
    call, error, message = REFUSED_INSIDE[name]
    with pytest.raises(error, match=message):
        call()


class TestDuals:
    def test_shares_memory(self, level):
        x, t = pb.ones(2), pb.ones(2)
        d = make_dual(x, t)
        assert d._base is x
        assert tangent(d) is t
        assert tangent(x) is None

    def test_tangent_in_other_strides_is_copied(self, level):
        x = pb.ones(2, 3)
        t = pb.arange(6.0).reshape(3, 2).t()
        found = tangent(make_dual(x, t))
        assert found is not t
        assert found.stride() == (3, 1)
        assert pb.equal(found, t)

    def test_tangent_of_other_dtype_is_cast(self, level):
        found = tangent(make_dual(pb.ones(2, dtype=pb.float64), pb.ones(2)))
        assert found.dtype == pb.float64

    def test_primal_has_no_tangent(self, dual):
        primal = unpack_dual(dual).primal
        assert tangent(primal) is None
        assert tangent(primal * 2) is None
        assert pb.equal(primal, dual.detach())

    def test_detach_and_data(self, dual):
        assert tangent(dual.detach()) is None
        assert tangent(dual.data) is None

    def test_no_tangent_without_derivative(self, dual):
        assert tangent(dual.argmax()) is None
        assert tangent(dual > 1) is None
        assert tangent(dual.long()) is None

    def test_zero_derivative(self, dual):
        assert pb.equal(tangent(dual.floor()), pb.zeros(2))

    def test_under_no_grad(self, dual):
        with pb.no_grad():
            assert pb.equal(tangent(dual * 3), pb.tensor([3.0, 1.5]))

    def test_needs_no_recording(self, dual):
        y = dual.exp().sum()
        assert not y.requires_grad
        assert not tangent(y).requires_grad


class TestInPlace:
    def test_with_itself(self, dual):
        y = dual.clone()
        y.mul_(y)
        assert pb.equal(tangent(y), pb.tensor([2.0, 2.0]))
        assert pb.equal(tangent(dual), pb.tensor([1.0, 0.5]))

    def test_results_do_not_share_tangents(self, dual):
        y = dual + 1
        y.mul_(10)
        assert pb.equal(tangent(dual), pb.tensor([1.0, 0.5]))

    def test_plain_target_becomes_dual(self, dual):
        y = pb.ones(2)
        y.mul_(dual)
        assert pb.equal(tangent(y), pb.tensor([1.0, 0.5]))

    def test_part_of_a_plain_tensor(self, dual):
        y = pb.zeros(2, 2)
        view = y[1]
        y[0] = dual
        assert pb.equal(tangent(y), pb.tensor([[1.0, 0.5], [0.0, 0.0]]))
        assert pb.equal(tangent(view), pb.zeros(2))

    def test_base_written_after_view(self, dual):
        y = pb.zeros(2, 2)
        view = y[:, 1]
        y.copy_(pb.stack([dual, 2 * dual]))
        assert pb.equal(tangent(view), pb.tensor([0.5, 1.0]))
        assert pb.equal(tangent(view * 2), pb.tensor([1.0, 2.0]))

    def test_view_written_after_base(self, dual):
        y = dual.clone()
        y[0] = 7.0
        assert pb.equal(tangent(y), pb.tensor([0.0, 0.5]))

    def test_view_of_a_tangent_is_a_view(self, dual):
        y = dual.clone()
        assert tangent(y[1:])._base is tangent(y)

    def test_real_parts_of_complex_numbers(self, dual):
        z = pb.zeros(2, dtype=pb.complex64)
        z.real.copy_(dual)
        z.imag.copy_(2 * dual)
        assert pb.equal(tangent(z), pb.tensor([1.0 + 2.0j, 0.5 + 1.0j]))
        assert pb.equal(tangent(z.imag), pb.tensor([2.0, 1.0]))

    def test_overwritten(self, dual):
        assert pb.equal(tangent(dual.clone().zero_()), pb.zeros(2))
        assert pb.equal(tangent(dual.clone().fill_(3)), pb.zeros(2))
        assert pb.equal(tangent(dual.clone().copy_(pb.ones(2))), pb.zeros(2))

    def test_indexed(self, dual):
        y = pb.zeros(3)
        y[pb.tensor([2, 0])] = dual
        assert pb.equal(tangent(y), pb.tensor([0.5, 0.0, 1.0]))


def hessian_vector_product(x, v):
    x = x.detach()
    return (2 + x) * x.exp() * v  # of sum(x * exp(x))


class TestBothModes:
    X = pb.tensor([1.0, 2.0])
    V = pb.tensor([1.0, 0.5])

    def test_forward_over_reverse(self, level):
        x = self.X.clone().requires_grad_()
        dual = make_dual(x, self.V)
        (grad,) = pb.autograd.grad((dual * dual.exp()).sum(), dual)
        pb.testing.assert_close(tangent(grad), hessian_vector_product(x, self.V))

    def test_forward_over_accumulated_gradients(self, level):
        x = make_dual(self.X, self.V).requires_grad_()
        ((x * x.exp()).sum() / 2).backward()
        ((x * x.exp()).sum() / 2).backward()
        pb.testing.assert_close(tangent(x.grad), hessian_vector_product(x, self.V))

    def test_reverse_over_forward(self, level):
        x = self.X.clone().requires_grad_()
        v = self.V.clone().requires_grad_()
        dual = make_dual(x, v)
        product = tangent((dual * dual.exp()).sum())
        by_x, by_v = pb.autograd.grad(product, [x, v])
        pb.testing.assert_close(unpack_dual(by_x).primal, hessian_vector_product(x, self.V))
        pb.testing.assert_close(unpack_dual(by_v).primal, ((1 + x) * x.exp()).detach())

    def test_saved_tensor_hooks_see_only_what_backward_saves(self, dual):
        packed = []
        x = pb.ones(2, requires_grad=True)
        with pb.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
            pb.linalg.solve(pb.eye(2) * dual, x)
        plain = []
        with pb.autograd.graph.saved_tensors_hooks(lambda t: plain.append(t) or t, lambda t: t):
            pb.linalg.solve(pb.eye(2) * dual.detach(), x)
        assert len(packed) == len(plain)

    @pytest.mark.parametrize(
        "function",
        [
            lambda x, y: (x * y).sin().sum(0),
            lambda x, y: pb.cat([x, y * y])[1:3] @ y.t(),
            lambda x, y: x.softmax(-1).cumsum(1).max(1).values,
            lambda x, y: pb.where(x > y, x * y, y).sort(dim=0).values,
            lambda x, y: pb.nn.functional.layer_norm(x, (3,)) * y.std(0),
            lambda x, y: pb.einsum("ij,kj->ik", x, y).relu().logsumexp(0),
            lambda x, y: x.clone().index_add_(0, pb.tensor([1, 1]), y) ** 3,
            lambda x, y: pb.complex(x, y).abs(),
        ],
    )
    def test_gradcheck(self, function):
        generator = pb.Generator().manual_seed(5)
        inputs = [
            pb.randn(2, 3, dtype=pb.float64, generator=generator).requires_grad_() for _ in range(2)
        ]
        assert gradcheck(function, inputs, check_forward_ad=True)


class Product(pb.autograd.Function):
    """x * y, its first factor as a view and a number; counts nothing twice."""

    @staticmethod
    def forward(ctx, x, y, number):
        assert unpack_dual(x).tangent is None  # forward does not see tangents
        ctx.save_for_forward(x, y)
        return x * y, y.argmax(), x.view(-1), number

    @staticmethod
    def jvp(ctx, x_t, y_t, number_t):
        assert number_t is None
        x, y = ctx.saved_tensors
        return x_t * y + x * y_t, None, x_t.view(-1), None


def function_of(forward, jvp):
    return type(
        "Custom",
        (pb.autograd.Function,),
        {"forward": staticmethod(forward), "jvp": staticmethod(jvp)},
    )


def changed_in_place(ctx, x):
    ctx.mark_dirty(x)
    return x.mul_(2)


def not_differentiable(ctx, x):
    y = x * 2
    ctx.mark_non_differentiable(y)
    return y


class TestFunction:
    def test_tangents(self, dual):
        product, written, view, number = Product.apply(dual, pb.tensor([3.0, 4.0]), 5)
        assert pb.equal(tangent(product), pb.tensor([3.0, 2.0]))
        assert tangent(written) is None
        assert pb.equal(tangent(view), pb.tensor([1.0, 0.5]))
        assert number == 5

    def test_not_called_without_tangents(self, level):
        custom = function_of(lambda ctx, x: x * 2, lambda ctx, t: 1 / 0)
        assert pb.equal(custom.apply(ONES), pb.tensor([2.0, 2.0]))

    def test_without_materialized_tangents(self, dual):
        def forward(ctx, x, y):
            ctx.set_materialize_grads(False)
            return x + y

        given = []
        custom = function_of(forward, lambda ctx, *found: given.extend(found) or found[1])
        custom.apply(ONES, dual)
        assert given[0] is None
        assert given[1] is tangent(dual)

    def test_nested_levels(self):
        class Cube(pb.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_forward(x)
                return x**3

            @staticmethod
            def jvp(ctx, t):
                (x,) = ctx.saved_tensors
                return 3 * x * x * t

        outer = levels.enter_level()
        a = tangents.make_dual(pb.tensor(2.0), pb.tensor(1.0), outer)
        inner = levels.enter_level()
        b = tangents.make_dual(a, pb.tensor(1.0), inner)
        first = tangents.unpack_dual(Cube.apply(b), inner)[1]
        levels.exit_level(inner)
        second = tangents.unpack_dual(first, outer)[1]
        levels.exit_level(outer)
        assert second.item() == 12.0

    def test_in_place(self, dual):
        custom = function_of(changed_in_place, lambda ctx, t: t.mul_(2))
        x = dual.clone()
        assert custom.apply(x) is x
        assert pb.equal(tangent(x), pb.tensor([2.0, 1.0]))

    @pytest.mark.parametrize(
        ("forward", "jvp", "message"),
        [
            (lambda ctx, x: x * 2, lambda ctx, t: (t, t), "expected 1 but got 2"),
            (lambda ctx, x: x * 2, lambda ctx, t: pb.ones(3), "different size"),
            (lambda ctx, x: x * 2, lambda ctx, t: 3, "expected Variable or None"),
            (lambda ctx, x: x.view(-1), lambda ctx, t: t * 2, "jvp is not returning a view"),
            (changed_in_place, lambda ctx, t: t * 2, "modify the corresponding gradient inplace"),
            (not_differentiable, lambda ctx, t: t, "is not a differentiable Tensor"),
        ],
    )
    def test_refused(self, dual, forward, jvp, message):
        with pytest.raises(RuntimeError, match=message):
            function_of(forward, jvp).apply(dual.clone())

    def test_no_jvp(self, dual):
        class Custom(pb.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

        with pytest.raises(NotImplementedError, match="must implement the jvp function"):
            Custom.apply(dual)


@pytest.mark.parametrize("function", [lambda x: x * x * x, lambda x: (x * x).exp()])
def test_saved_tensor_hooks_keep_tangents(function):
    x = pb.tensor([2.0, 3.0], dtype=pb.float64, requires_grad=True)
    (first,) = pb.autograd.grad(function(x).sum(), x, create_graph=True)
    (second,) = pb.autograd.grad(first.sum(), x)
    with dual_level():
        dual = make_dual(x, pb.ones(2, dtype=pb.float64))
        with pb.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            y = function(dual)
        (gradient,) = pb.autograd.grad(y.sum(), x)
        primal, tangent = unpack_dual(gradient)
        assert primal.tolist() == first.tolist()
        assert pb.allclose(tangent, second)


def test_reshape_of_a_view_whose_tangent_is_no_such_view():
    # The strides (0, 0, 3, 1) join, those of the tangent, (0, 6, 3, 1), do not.
    x, t = pb.arange(6.0).reshape(1, 2, 3).expand(2, 2, 3), pb.arange(12.0).reshape(2, 2, 3)
    y = pb.ones(3, 3, 4)

    def function(a):
        return a.unsqueeze(1).expand(2, 3, 2, 3).reshape(6, 2, 3) * 2

    assert pb.equal(pb.func.jvp(function, (x,), (t,))[1], function(t))
    product = pb.func.jvp(lambda a: a.unsqueeze(1) @ y, (x,), (t,))[1]
    assert pb.equal(product, t.unsqueeze(1) @ y)


def test_views_of_what_overlaps_itself_keep_their_tangents():
    """Elements that share memory have different tangents, which one memory cannot hold."""
    x, t = pb.arange(6.0).reshape(1, 2, 3).expand(2, 2, 3), pb.arange(12.0).reshape(2, 2, 3)
    for view in (lambda a: a.diagonal(0, 0, 1), lambda a: a[:, 0], lambda a: a.transpose(0, 1)[1]):

        def value(a, view=view):
            return pb.func.vjp(lambda b: view(b) * 1.0, a)[0]

        assert pb.equal(pb.func.jvp(value, (x,), (t,))[1], view(t))


def test_no_growth():
    def run():
        with dual_level():
            x = make_dual(pb.ones(100, requires_grad=True), pb.ones(100))
            y = (x.exp() * x).cumsum(0)
            y[3:].mul_(2)
            pb.autograd.grad(y.sum(), x)

    run()
    gc.collect()
    before = pb.memory_stats()["allocated_bytes.all.current"], len(gc.get_objects())
    for _ in range(50):
        run()
    gc.collect()
    after = pb.memory_stats()["allocated_bytes.all.current"], len(gc.get_objects())
    assert after[0] == before[0]
    assert after[1] < before[1] + 20


def test_tangent_with_a_tangent_at_the_same_level_is_refused():
    with dual_level():
        dual = make_dual(pb.ones(2), pb.ones(2))
        with pytest.raises(RuntimeError, match="itself has a forward gradient at the same level"):
            make_dual(pb.ones(2), dual)


@pytest.mark.parametrize(
    "write",
    [
        lambda x, i, s: x.scatter(0, i, s),
        lambda x, i, s: x.clone().scatter_(0, i, s),
        lambda x, i, s: x.put(i, s),
        lambda x, i, s: x.index_copy(0, i, s),
        lambda x, i, s: x.index_put((i,), s),
        lambda x, i, s: x.clone().index_copy_(0, i, s),
    ],
)
@pytest.mark.parametrize("moved", [(0,), (1,), (0, 1)])
def test_the_last_write_to_a_place_brings_its_tangent(write, moved):
    """Tangents are written as values are; batched ones, too, and to targets that have none."""
    values = [pb.tensor([5.0, 6.0]), pb.tensor([1.0, 2.0, 3.0])]
    tangents = [pb.tensor([50.0, 60.0]), pb.tensor([10.0, 20.0, 30.0])]
    index = pb.tensor([0, 1, 0])

    def of_moved(*given):
        operands = list(values)
        for position, one in zip(moved, given):
            operands[position] = one
        return write(operands[0], index, operands[1])

    def push(*given):
        return pb.func.jvp(of_moved, tuple(values[k] for k in moved), given)[1]

    expected = [30.0, 20.0] if 1 in moved else [0.0, 0.0]
    given = [tangents[k] for k in moved]
    assert push(*given).tolist() == expected
    batch = pb.func.vmap(push)(*[pb.stack([t, 2 * t]) for t in given])
    assert batch.tolist() == [expected, [2 * e for e in expected]]
