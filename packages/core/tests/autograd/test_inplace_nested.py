"""In-place writes, whole and through views, under nested forward mode, reverse mode and vmap.

That every in-place form gives what its functional form gives is checked by the conformance suite
(``inplace_nested``); here are the numbers of single cases.
"""

import contextlib

import pytest

import pullback as pb
from pullback.func import grad, hessian, jacfwd, jvp, vmap

X = pb.tensor([1.0, 2.0], dtype=pb.float64)
ONES = pb.ones_like(X)


def assert_equal(found, expected):
    pb.testing.assert_close(found, pb.tensor(expected, dtype=found.dtype))


class TestForwardOverReverse:
    def test_a_copy_of_what_was_overwritten_has_its_tangent(self):
        assert_equal(hessian(lambda a: a.clone().mul_(a).sum())(X), [[2.0, 0.0], [0.0, 2.0]])

    def test_a_kept_result_has_its_tangent(self):
        found = hessian(lambda a: a.clone().exp_().sum())(X)
        assert pb.allclose(found, X.exp().diag())

    def test_kept_by_saved_tensor_hooks(self):
        with pb.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda kept: kept):
            found = jvp(grad(lambda a: (a.clone().exp_().mul_(a)).sum()), (X,), (ONES,))[1]
        assert pb.allclose(found, (2 + X) * X.exp())

    def test_through_views(self):
        def function(a):
            b = pb.stack([a, a])
            b.t()[0].mul_(3.0)
            b[1].exp_()
            return (b * b).sum()

        x, y = X
        expected = pb.stack([18 + 36 * (6 * x).exp(), 2 + 4 * (2 * y).exp()]).diag()
        assert pb.allclose(hessian(function)(X), expected)

    def test_under_vmap(self):
        found = vmap(hessian(lambda a: a.clone().mul_(a).sum()))(pb.stack([X, X]))
        assert_equal(found, [[[2.0, 0.0], [0.0, 2.0]]] * 2)


class TestReverseOverForward:
    def test_a_tangent_that_a_graph_keeps_may_be_overwritten(self):
        def function(b):
            return b.clone().mul_(b).sum()

        assert_equal(grad(lambda a: jvp(function, (a,), (ONES,))[1])(X), [2.0, 2.0])

    def test_of_an_in_place_op_that_keeps_its_result(self):
        def function(b):
            return b.clone().exp_().sum()

        found = grad(lambda a: jvp(function, (a,), (ONES,))[1])(X)
        assert pb.allclose(found, X.exp())


class TestForwardOverForward:
    def test_a_view_of_what_gets_a_tangent_of_an_inner_level_when_it_is_written(self):
        def function(x, c):
            square = x * x
            view = square[:]
            square.mul_(c)
            return view * 1

        def push(x):
            return jvp(lambda c: function(x, c), (X,), (ONES,))[1]

        assert_equal(jvp(push, (X,), (ONES,))[0], [1.0, 4.0])
        assert_equal(jvp(push, (X,), (ONES,))[1], [2.0, 4.0])


class TestDoubleBackwardThroughAView:
    def test_of_a_transpose(self):
        x = pb.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=pb.float64, requires_grad=True)
        y = x * 1
        y.t().exp_()
        (g,) = pb.autograd.grad(y.sum(), x, create_graph=True)
        weights = pb.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=pb.float64)
        (second,) = pb.autograd.grad((g * weights).sum(), x, retain_graph=True)
        assert pb.allclose(second, weights * x.exp())

    def test_of_a_slice_without_retaining(self):
        x = pb.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = x * 1
        y[::2].relu_()
        (g,) = pb.autograd.grad((y * y).sum(), x, create_graph=True)
        (g * g).sum().backward()
        assert_equal(x.grad, [8.0, 16.0, 24.0])

    def test_with_saved_tensor_hooks(self):
        x = pb.tensor([[0.1, 0.2], [0.3, 0.4]], dtype=pb.float64, requires_grad=True)
        with pb.autograd.graph.saved_tensors_hooks(lambda t: t.contiguous(), lambda kept: kept):
            y = x * 1
            y.t()[1].exp_()
            (g,) = pb.autograd.grad(y.sum(), x, create_graph=True)
            (second,) = pb.autograd.grad((g * g).sum(), x)
        expected = 2 * (2 * x.detach()).exp()
        expected[:, 0] = 0
        assert pb.allclose(second, expected)

    def test_of_the_imaginary_part(self):
        x = pb.tensor([0.1 + 0.2j], dtype=pb.complex128, requires_grad=True)
        y = x * 1
        y.imag.exp_()
        (g,) = pb.autograd.grad(y.imag.sum(), x, create_graph=True)
        (second,) = pb.autograd.grad(g.imag.sum(), x)
        assert pb.allclose(second.imag, x.detach().imag.exp())

    def test_of_many_writes_to_one_base(self):
        def written(x):
            base = x * x
            base[0].mul_(base[1].clone())
            base[1].cos_()
            between = base.clone().square()
            base[2].add_(base[0])
            base.t()[0].mul_(base[2].clone())
            base[:, 1].sin_()
            base.mul_(2)
            base[1, 1:].zero_()
            base[::2].sigmoid_()
            return base * between

        def pure(x):
            a, b, c = (x * x).unbind()
            a, b = a * b, b.cos()
            between = pb.stack([a, b, c]).square()
            p, q, r = pb.stack([a, b, c + a]).t().unbind()
            a, b, c = (2 * pb.stack([p * (c + a), q.sin(), r]).t()).unbind()
            b = pb.cat([b[:1], pb.zeros(2, dtype=b.dtype)])
            return pb.stack([a.sigmoid(), b, c.sigmoid()]) * between

        weights = pb.arange(9, dtype=pb.float64).view(3, 3).cos()
        x = pb.linspace(-1, 0.9, 9, dtype=pb.float64).view(3, 3).requires_grad_()
        found, expected = written(x), pure(x)
        for _ in range(4):
            assert pb.allclose(found, expected, rtol=1e-9)
            found, expected = (
                pb.autograd.grad((value * weights).sum(), x, create_graph=True)[0]
                for value in (found, expected)
            )

    def test_of_a_gradient_that_a_hook_kept(self):
        kept = []
        x = pb.ones(2, 3, dtype=pb.float64, requires_grad=True)
        base = x * 2
        base[0].mul_(3)
        base.register_hook(kept.append)
        base[1].mul_(5)
        (g,) = pb.autograd.grad((base * base).sum(), x, create_graph=True)
        assert_equal(kept[0], [[12.0] * 3, [100.0] * 3])
        assert_equal(g, [[72.0] * 3, [200.0] * 3])

    def test_of_writes_to_rows_copies_the_gradient_once(self):
        def count(rows):
            x = pb.ones(rows, 3, requires_grad=True)
            base = x * 1
            for i in range(rows):
                base[i].mul_(2)
            (g,) = pb.autograd.grad((base * base).sum(), x, create_graph=True)
            nodes, waiting = set(), [g.grad_fn]
            while waiting:
                node = waiting.pop()
                if node is not None and node not in nodes:
                    nodes.add(node)
                    waiting += [edge[0] for edge in node.next_functions]
            return sum(node.name() == "CopySlices" for node in nodes)

        assert count(8) - count(2) == 2 * 6  # a write in forward, and one in backward


COMPARISONS = ("eq_", "ne_", "lt_", "le_", "gt_", "ge_", "less_", "greater_equal_")


class TestOpsWithoutADerivative:
    @pytest.mark.parametrize("name", COMPARISONS)
    @pytest.mark.parametrize("other", [2.0, pb.tensor([2.0, 1.0])])
    def test_a_comparison_in_place_cuts_the_history(self, name, other):
        x = pb.tensor([2.7, 1.0], requires_grad=True)
        y = x * 1
        getattr(y, name)(other)
        values = y.detach().clone()
        (y * x).sum().backward()
        assert x.grad.tolist() == values.tolist()

    def test_on_a_view(self):
        x = pb.tensor([2.7, 1.0], requires_grad=True)
        y = x * 3
        y[:1].gt_(2.0)
        y.sum().backward()
        assert x.grad.tolist() == [0.0, 3.0]

    def test_the_node_is_named_as_in_torch(self):
        y = pb.ones(2, requires_grad=True) * 1
        assert y.gt_(0.5).grad_fn.name() == "GtBackward0"

    def test_the_other_operand_gets_zeros(self):
        x = pb.ones(2, requires_grad=True)
        pb.zeros(2).lt_(x).sum().backward()
        assert x.grad.tolist() == [0.0, 0.0]

    def test_the_tangent_is_cut(self):
        found = jvp(lambda a: (a * 1).eq_(a) + a, (X,), (ONES,))[1]
        assert_equal(found, [1.0, 1.0])

    def test_comparing_itself_records_nothing(self):
        assert not (pb.ones(2, requires_grad=True) > 0).requires_grad


class TestIntegers:
    @pytest.mark.parametrize(
        "write",
        [
            lambda w, x: w.copy_(x),
            lambda w, x: w.__setitem__(slice(0, 2), x),
            lambda w, x: w[1:].copy_(x[1:]),
            lambda w, x: w.__setitem__(0, x[1]),
            lambda w, x: w.masked_fill_(w == 0, x[0].detach()),
        ],
    )
    @pytest.mark.parametrize("dtype", [pb.int64, pb.bool])
    def test_values_that_require_grad_do_not_make_them_require_it(self, write, dtype):
        w, x = pb.zeros(2, dtype=dtype), pb.tensor([4.0, 5.0], requires_grad=True)
        write(w, x)
        assert not w.requires_grad
        (w.float() * 3 + x).sum().backward()
        assert x.grad.tolist() == [1.0, 1.0]


class TestOut:
    @pytest.mark.parametrize(
        ("function", "dtype"),
        [
            (lambda x, out: pb.lt(x, 2, out=out), pb.bool),
            (lambda x, out: pb.logical_not(x, out=out), pb.bool),
            (lambda x, out: pb.isposinf(x, out=out), pb.bool),
            (lambda x, out: pb.signbit(x, out=out), pb.bool),
            (lambda x, out: pb.any(x, 0, out=out), pb.bool),
            (lambda x, out: pb.argmax(x, 0, out=out), pb.int64),
            (lambda x, out: pb.bucketize(x, pb.ones(2), out=out), pb.int64),
        ],
    )
    def test_takes_results_without_a_derivative(self, function, dtype):
        x = pb.ones(2, requires_grad=True)
        out = pb.zeros(0, dtype=dtype)
        assert function(x, out) is out
        assert out.tolist() == function(x.detach(), pb.zeros(0, dtype=dtype)).tolist()
        assert not out.requires_grad

    @pytest.mark.parametrize(
        "function",
        [
            lambda x, out: pb.add(x, 2, out=out),
            lambda x, out: pb.cat([x, x], out=out),
            lambda x, out: pb.hstack([x, x], out=out),
            lambda x, out: pb.lt(x.detach(), 2, out=out.requires_grad_()),
        ],
    )
    def test_refuses_what_requires_grad(self, function):
        with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
            function(pb.ones(2, requires_grad=True), pb.zeros(4))


class TestTangentsThatLieAsTheirPrimals:
    """So that a write to a tensor writes the tangents of its views, and the reverse."""

    def test_vmap_over_other_dims_of_primal_and_tangent(self):
        def function(a, b):
            view = a[0, ::2]
            a.copy_(b)
            return a, view

        def run(a, at, b, bt):
            return jvp(function, (a, b), (at, bt))

        x = pb.arange(24.0).reshape(2, 2, 6)
        xt = pb.arange(24.0).reshape(2, 6, 2) + 100
        found = vmap(run, in_dims=(1, 2, 1, 1))(x, xt, -x, x + 500)[1][1]
        assert_equal(found, [[500.0, 502.0, 504.0], [506.0, 508.0, 510.0]])

    def test_of_a_tensor_that_becomes_batched(self):
        def run(t):
            x = pb.tensor([[1.0, 2.0], [3.0, 4.0]])

            def function(a, b):
                view = a.t()[1]
                a.mul_(b)
                return view * 1

            return jvp(function, (x.clone(), pb.ones(2)), (pb.ones(2, 2), t))[1]

        found = vmap(run)(pb.tensor([[0.0, 0.0], [1.0, 10.0]]))
        assert_equal(found, [[1.0, 1.0], [21.0, 41.0]])

    def test_of_a_sum_is_no_part_of_its_operand_s(self):
        def function(b):
            total = pb.ones(2) + b
            total.mul_(b)
            return total.mul_(b.sum())

        found = jacfwd(function)(pb.tensor([1.0, 2.0]))
        assert_equal(found, [[11.0, 2.0], [6.0, 21.0]])

    def test_of_an_operand_that_shares_memory_with_what_is_written(self):
        def function(a):
            product = a * 1
            product.mul_(product[:])
            return product

        found = vmap(lambda x, t: jvp(function, (x,), (t,))[1])(pb.stack([X, X + 2]), pb.eye(2))
        assert_equal(found, [[2.0, 0.0], [0.0, 8.0]])

    def test_as_strided_of_a_tensor_with_gaps(self):
        x = pb.arange(12.0).reshape(3, 4)[:, ::2]
        t = pb.arange(1.0, 7.0).reshape(3, 2)
        found = jvp(lambda a: a.as_strided((2, 2), (1, 2), 0), (x,), (t,))[1]
        assert_equal(found, [[1.0, 2.0], [0.0, 0.0]])

    @pytest.mark.parametrize("offset", [0, 3, 4, 7])
    def test_as_strided_away_from_the_beginning_of_the_storage(self, offset):
        x = pb.arange(12.0, dtype=pb.float64)[4:8]

        def function(a):
            return a.as_strided((2, 2), (2, 1), offset)

        found = jvp(function, (x,), (pb.tensor([1.0, 2.0, 3.0, 4.0], dtype=pb.float64),))[1]
        memory = pb.zeros(12, dtype=pb.float64)
        memory[4:8] = pb.tensor([1.0, 2.0, 3.0, 4.0], dtype=pb.float64)
        assert_equal(found, memory.as_strided((2, 2), (2, 1), offset).tolist())

    def test_write_to_a_view_of_a_dual_with_gaps(self):
        x = pb.arange(12.0).reshape(3, 4)[:, ::2]

        def function(a):
            a.t()[0].mul_(2.0)
            return a * 1

        found = jvp(function, (x.detach(),), (pb.ones(3, 2),))[1]
        assert_equal(found, [[2.0, 1.0]] * 3)

    @pytest.mark.parametrize("mode", [contextlib.nullcontext, pb.no_grad, pb.inference_mode])
    def test_of_a_view_that_is_first_read_where_nothing_is_recorded(self, mode):
        x = pb.tensor([[0.5, 1.0], [2.0, 3.0]], dtype=pb.float64)

        def function(a, b):
            product = a * 1
            view = product.t()[1]
            product.mul_(b)
            with mode():
                assert view.shape == (view > 0).shape
            return view * view

        def total(a):
            def push(t):
                return jvp(lambda b: function(a, b), (a[0],), (t,))[1]

            return vmap(push)(pb.eye(2, dtype=pb.float64)).sum()

        # total: 2 b (a[0, 1] ** 2 + a[1, 1] ** 2), where b is a[0, 1]
        assert_equal(grad(total)(x), [[0.0, 24.0], [0.0, 12.0]])


class TestAsStridedUnderVmap:
    def test_the_offset_given_counts_from_the_beginning_of_the_storage(self):
        x = pb.arange(24.0).reshape(3, 2, 4)[1]
        offset = x.storage_offset()
        found = vmap(lambda t: t.as_strided((2,), (1,), offset))(x)
        assert_equal(found, [[8.0, 9.0], [12.0, 13.0]])
        found = vmap(lambda t: t.as_strided((2,), (1,), t.storage_offset() + 1))(x)
        assert_equal(found, [[9.0, 10.0], [13.0, 14.0]])
        found = vmap(lambda t: t.as_strided((2,), (2,)))(x)
        assert_equal(found, [[8.0, 10.0], [12.0, 14.0]])

    def test_scatter(self):
        x = pb.arange(24.0).reshape(3, 2, 4)[1]
        new = -pb.ones(2, 2)
        found = vmap(lambda t, n: t.as_strided_scatter(n, (2,), (2,), x.storage_offset()))(x, new)
        assert_equal(found, [[-1.0, 9.0, -1.0, 11.0], [-1.0, 13.0, -1.0, 15.0]])


class TestViewsMadeAgain:
    """Their derivative, as_strided_backward, for every relation of two layouts."""

    @pytest.mark.parametrize("dtype", [pb.float64, pb.complex128])
    @pytest.mark.parametrize(
        "view",
        [
            lambda b: b.view(-1),
            lambda b: b.t(),
            lambda b: b[1:, ::2],
            lambda b: b.t()[1:],
            lambda b: b.diagonal(),
            lambda b: b[:0],
            lambda b: b[1, 2],
        ],
    )
    def test_first_and_second_derivatives(self, view, dtype):
        def function(x):
            base = x * 1
            part = view(base)
            part.mul_(x.sum())
            return part * part, base * x

        x = pb.randn((3, 4), dtype=dtype).requires_grad_()
        assert pb.autograd.gradcheck(function, (x,))
        assert pb.autograd.gradgradcheck(function, (x,))
