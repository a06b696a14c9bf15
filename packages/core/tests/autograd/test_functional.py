"""autograd.functional: products with Jacobians and Hessians, whole ones, and what is refused."""

import functools

import pytest

import pullback as pb
from pullback.autograd import functional, gradcheck, gradgradcheck
from pullback.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp

F64 = pb.float64
A = pb.tensor([0.5, 1.0, 2.0], dtype=F64)
B = pb.tensor([1.5, -0.5], dtype=F64)
ALL = [vjp, jvp, vhp, hvp, jacobian, hessian]
PRODUCTS = [vjp, jvp, vhp, hvp]
SECOND = [vhp, hvp, hessian]
by_name = functools.partial(pytest.mark.parametrize, ids=lambda f: f.__name__)

WAYS = {
    "rows": {},
    "batch": {"vectorize": True},
    "columns": {"strategy": "forward-mode"},
    "columns at once": {"strategy": "forward-mode", "vectorize": True},
}
each_way = pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=pytest.mark.beyond_torch if name == "columns" else (), id=name)
        for name, way in WAYS.items()
    ],
)
vectorized = pytest.mark.parametrize("vectorize", [False, True], ids=["one by one", "batch"])


def outer(way):
    """Return the arguments of hessian for a way to a Jacobian."""
    return {"outer_jacobian_strategy" if key == "strategy" else key: way[key] for key in way}


def leaf(*values, dtype=F64):
    return pb.tensor(list(values), dtype=dtype, requires_grad=True)


def close(found, expected):
    pb.testing.assert_close(found, pb.as_tensor(expected, dtype=found.dtype))


W = leaf(1.0, 2.0)


def second_of(result):
    """Return the derivative, of functions that return the output as well."""
    return result[1] if isinstance(result, tuple) else result


def call(function, func, x, **options):
    """Call one of the six; as v ones of the shape of x, also for outputs of that shape."""
    if function in PRODUCTS:
        return function(func, x, pb.ones_like(x.detach()), **options)
    return function(func, x, **options)


def derivative_of(function, func, single):
    """Return func, or its sum where the function needs a scalar."""
    return single if function in SECOND else func


class TestNames:
    def test_public_names(self):
        assert set(functional.__all__) == {f.__name__ for f in ALL}
        assert pb.autograd.functional is functional

    def test_basis_under_the_name_of_torch(self):
        parts = functional._construct_standard_basis_for((A, pb.ones(())), (3, 1))
        assert [part.dtype for part in parts] == [F64, pb.float32]
        assert pb.cat([part.to(F64) for part in parts], 1).tolist() == pb.eye(4).tolist()


class TestValues:
    """f(a) = (a0 a1, exp(a2)), whose derivatives are written down here."""

    def f(self, a):
        return pb.stack([a[0] * a[1], a[2].exp()])

    J = pb.tensor([[1.0, 0.5, 0.0], [0.0, 0.0, pb.tensor(2.0, dtype=F64).exp().item()]], dtype=F64)

    def g(self, a):
        return (a**3).sum() + a[0] * a[1]

    H = pb.tensor([[3.0, 1.0, 0.0], [1.0, 6.0, 0.0], [0.0, 0.0, 12.0]], dtype=F64)

    def test_vjp(self):
        value, found = vjp(self.f, A, B)
        close(value, self.f(A))
        close(found, B @ self.J)

    def test_jvp(self):
        value, found = jvp(self.f, A, A + 1)
        close(value, self.f(A))
        close(found, self.J @ (A + 1))

    @by_name("function", [vhp, hvp])
    def test_hessian_products(self, function):
        value, found = function(self.g, A, A + 1)
        close(value, self.g(A))
        close(found, self.H @ (A + 1))

    @each_way
    def test_jacobian(self, way):
        close(jacobian(self.f, A, **way), self.J)

    @each_way
    def test_hessian(self, way):
        close(hessian(self.g, A, **outer(way)), self.H)

    def test_products_of_functions_with_a_backward_only(self):
        class Cube(pb.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**3

            @staticmethod
            def backward(ctx, g):
                return 3 * ctx.saved_tensors[0] ** 2 * g

        close(jvp(Cube.apply, A, A)[1], 3 * A**3)
        close(hvp(lambda x: Cube.apply(x).sum(), A, A)[1], 6 * A**2)

    @each_way
    def test_functions_that_look_at_values(self, way):
        close(jacobian(lambda a: a * 2 if a.sum().item() > 0 else a, A, **way), 2 * pb.eye(3))

    @each_way
    def test_calls_of_the_function(self, way):
        seen = []
        jacobian(lambda a: seen.append(1) or a * 2, A, **way)
        assert len(seen) == (3 if way == WAYS["columns"] else 1)

    def test_one_backward_pass_for_a_batch(self):
        shapes = []

        def f(a):
            made = a * 2
            made.register_hook(lambda g: shapes.append(tuple(g.shape)))
            return made.sin()

        jacobian(f, A, vectorize=True)
        assert len(shapes) == 1
        jacobian(f, A)
        assert len(shapes) == 4


class TestStructure:
    @each_way
    @pytest.mark.parametrize("many_in", [False, True])
    @pytest.mark.parametrize("many_out", [False, True])
    def test_jacobian(self, way, many_in, many_out):
        def f(a, b=B):
            first = a.sum() * b
            return (first, a.reshape(3, 1) * b) if many_out else first

        found = jacobian(f, (A, B) if many_in else A, **way)
        shapes_in = [(3,), (2,)][: 1 + many_in]
        shapes_out = [(2,), (3, 2)][: 1 + many_out]
        rows = found if many_out else (found,)
        assert type(rows) is tuple
        assert len(rows) == len(shapes_out)
        for row, out in zip(rows, shapes_out):
            blocks = row if many_in else (row,)
            assert type(blocks) is tuple
            assert [tuple(block.shape) for block in blocks] == [out + x for x in shapes_in]

    @each_way
    def test_hessian(self, way):
        found = hessian(lambda a, b: a.prod() * b.prod(), (A, B), **outer(way))
        assert [[tuple(x.shape) for x in row] for row in found] == [
            [(3, 3), (3, 2)],
            [(2, 3), (2, 2)],
        ]
        close(found[0][1], found[1][0].t())
        close(found[1][1], [[0.0, 1.0], [1.0, 0.0]])

    @each_way
    def test_tuples_of_one_stay_tuples(self, way):
        ((found,),) = jacobian(lambda a: (a * 2,), (A,), **way)
        close(found, 2 * pb.eye(3))
        ((found,),) = hessian(lambda a: (a * a).sum(), (A,), **outer(way))
        close(found, 2 * pb.eye(3))

    @each_way
    @pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
    def test_one_element(self, way, shape):
        x = pb.full(shape, 2.0, dtype=F64)
        assert jacobian(lambda x: x**3, x, **way).shape == shape + shape
        found = hessian(lambda x: x**3, x, **outer(way))
        assert found.shape == shape + shape
        assert found.item() == 12

    def test_products(self):
        outputs, found = vjp(lambda a, b: (a * 2, b.sum()), (A, B), (A, pb.ones((), dtype=F64)))
        assert (type(outputs), type(found)) == (tuple, tuple)
        close(found[0], 2 * A)
        close(found[1], [1.0, 1.0])
        outputs, found = jvp(lambda a, b: (a * 2, b.sum()), (A, B), (A, B))
        assert (type(outputs), type(found)) == (tuple, tuple)
        close(found[1], B.sum())
        for function in (vhp, hvp):
            output, found = function(lambda a, b: a.prod() * b.sum(), (A, B), (A, B))
            assert output.shape == ()
            assert [x.shape for x in found] == [A.shape, B.shape]

    @pytest.mark.beyond_torch
    @each_way
    def test_nothing_in_or_out(self, way):
        assert jacobian(lambda a: a[:0], A, **way).shape == (0, 3)
        assert jacobian(lambda a: a * 2, A[:0], **way).shape == (0, 0)
        assert jacobian(lambda a: a.sum(), A[:0], **way).shape == (0,)
        if way.get("strategy") == "forward-mode":
            with pytest.raises(RuntimeError, match="non-empty output"):
                jacobian(lambda a: (), A, **way)
        else:
            assert jacobian(lambda a: (), A, **way) == ()
        assert hessian(lambda a: (a * a).sum(), A[:0], **outer(way)).shape == (0, 0)

    @pytest.mark.beyond_torch
    def test_no_outputs(self):
        assert jvp(lambda a: (), A, A) == ((), ())


class TestDtypes:
    @pytest.mark.parametrize("vectorize", [False, True])
    def test_that_of_the_input_in_reverse_mode(self, vectorize):
        x = pb.tensor([1.0, 2.0])
        found = jacobian(lambda x: (x.double() * 3, x.long()), x, vectorize=vectorize)
        assert [y.dtype for y in found] == [pb.float32, pb.float32]
        assert found[1].tolist() == [[0, 0], [0, 0]]

    @pytest.mark.parametrize("vectorize", [False, True])
    def test_that_of_the_output_in_forward_mode(self, vectorize):
        x = pb.tensor([1.0, 2.0])
        found = jacobian(
            lambda x: (x.double() * 3, x.long()), x, vectorize=vectorize, strategy="forward-mode"
        )
        assert [y.dtype for y in found] == [F64, pb.int64]

    def test_inputs_of_two_dtypes(self):
        b = B.to(pb.float32)
        (_, mixed), row = hessian(lambda a, b: a.prod() * b.prod(), (A, b))
        assert mixed.dtype == pb.float32
        assert [x.dtype for x in row] == [F64, pb.float32]

    def test_v_is_cast(self):
        assert vjp(lambda a: a * 2, A, pb.tensor([1, 2, 3]))[1].dtype == F64
        assert hvp(lambda a: (a**3).sum(), A, A.to(pb.float32))[1].dtype == F64

    @by_name("function", ALL)
    def test_integers_are_refused(self, function):
        with pytest.raises(RuntimeError, match="only Tensors of floating point dtype can require"):
            call(function, lambda x: x.sum(), pb.arange(3))

    @pytest.mark.parametrize("vectorize", [False, True])
    def test_integers_are_refused_in_forward_mode(self, vectorize):
        with pytest.raises(ValueError, match="Expected primal to be floating point or complex"):
            jacobian(lambda x: x * 2.0, pb.arange(3), vectorize=vectorize, strategy="forward-mode")

    @pytest.mark.beyond_torch
    def test_integer_output_of_jvp(self):
        _, found = jvp(lambda a: (a.long(), a * 2), A, A)
        assert found[0].tolist() == [0, 0, 0]
        close(found[1], 2 * A)


class TestComplex:
    Z = pb.tensor([1 + 2j, 3 - 1j], dtype=pb.complex128)

    def test_products(self):
        close(vjp(lambda z: z * z, self.Z, pb.ones_like(self.Z))[1], 2 * self.Z.conj())
        close(jvp(lambda z: z * z, self.Z, pb.full_like(self.Z, 1j))[1], 2j * self.Z)
        v = pb.full_like(self.Z, 1 + 1j)
        for function in (vhp, hvp):
            close(function(lambda z: (z * z.conj()).real.sum(), self.Z, v)[1], 2 * v)

    def test_real_output(self):
        for vectorize in (False, True):
            found = jacobian(lambda z: z.real * z.imag, self.Z, vectorize=vectorize)
            close(found, [[2 + 1j, 0], [0, -1 + 3j]])

    def test_complex_output(self):
        with pytest.raises(RuntimeError, match="implicitly created only for real scalar outputs"):
            jacobian(lambda z: z * z, self.Z)
        close(jacobian(lambda z: z * z, self.Z, vectorize=True), (2 * self.Z.conj()).diag())
        forward = jacobian(lambda z: z * z, self.Z, vectorize=True, strategy="forward-mode")
        close(forward, (2 * self.Z).diag())

    @each_way
    def test_hessian_of_a_complex_output(self, way):
        with pytest.raises(RuntimeError, match="implicitly created only for real scalar outputs"):
            hessian(lambda z: (z * z).sum(), self.Z, **outer(way))

    def test_real_v_of_a_complex_output(self):
        with pytest.raises(RuntimeError, match="For complex Tensors, both grad_output and output"):
            vjp(lambda z: z * z, self.Z, pb.ones(2, dtype=F64))


class TestHistory:
    @by_name("function", ALL)
    @pytest.mark.parametrize("mode", [True, False], ids=["recording", "no_grad"])
    def test_none_without_create_graph(self, function, mode):
        x = leaf(0.5, 1.0)
        with pb.set_grad_enabled(mode):
            found = call(function, derivative_of(function, pb.exp, lambda a: a.exp().sum()), x)
        for part in found if isinstance(found, tuple) else (found,):
            assert not part.requires_grad
        assert second_of(found).sum().item() > 0
        assert x.grad is None

    @pytest.mark.beyond_torch
    def test_none_in_forward_mode(self):
        x = leaf(0.5, 1.0)
        assert not jacobian(lambda a: a * x, x, strategy="forward-mode").requires_grad
        assert not jacobian(lambda a: (a * x, a), x, strategy="forward-mode")[0].requires_grad

    @by_name("function", ALL)
    @pytest.mark.parametrize("mode", [True, False], ids=["recording", "no_grad"])
    def test_create_graph(self, function, mode):
        x = leaf(0.5, 1.0)
        func = derivative_of(function, lambda a: a**3, lambda a: (a**4).sum())
        with pb.set_grad_enabled(mode):
            found = second_of(call(function, func, x, create_graph=True))
        (again,) = pb.autograd.grad(found.sum(), x)
        close(again, 24 * x.detach() if function in SECOND else 6 * x.detach())

    @by_name("function", PRODUCTS)
    def test_create_graph_by_v(self, function):
        v = leaf(1.0, 1.0)
        func = derivative_of(function, lambda a: a**3, lambda a: (a**4).sum())
        _, found = function(func, B, v, create_graph=True)
        (again,) = pb.autograd.grad(found.sum(), v)
        close(again, 12 * B**2 if function in SECOND else 3 * B**2)

    @by_name("function", ALL)
    def test_recording_inside(self, function):
        seen = []

        def func(a):
            seen.append((pb.is_grad_enabled(), a.requires_grad, a.is_leaf))
            return a * 2

        x = leaf(2.0)
        plain = x.detach()
        with pb.no_grad():
            call(function, func, plain, create_graph=True)
            call(function, func, x)
            call(function, func, x, create_graph=True)
        is_leaf = function is not hessian  # which differentiates a gradient
        assert seen == [(True, True, is_leaf), (True, True, is_leaf), (True, True, False)]
        assert not plain.requires_grad

    @each_way
    def test_tensor_that_the_function_holds_is_a_constant(self, way):
        x = leaf(0.5, 1.0)
        close(jacobian(lambda a: a * x, x, **way), x.detach().diag())

    def test_tensor_that_the_function_holds_is_in_the_history(self):
        x = leaf(0.5, 1.0)
        found = jacobian(lambda a: a * x, x, create_graph=True)
        close(pb.autograd.grad(found.sum(), x)[0], [1.0, 1.0])

    def test_history_of_non_leaf_inputs(self):
        w = leaf(0.5, 1.0)
        _, found = vjp(lambda x: x**3, w * 2, pb.ones(2, dtype=F64), create_graph=True)
        close(pb.autograd.grad(found.sum(), w)[0], 24 * w.detach())

    def test_nothing_is_accumulated(self):
        w = leaf(0.5, 1.0)
        vhp(lambda x: (x * x * w).sum(), B, B)
        jacobian(lambda x: x * w, B)
        assert w.grad is None

    def test_jacobian_of_a_jacobian(self):
        inner = functools.partial(jacobian, lambda x: x**3, create_graph=True)
        expected = pb.zeros(2, 2, 2, dtype=F64)
        expected[0, 0, 0], expected[1, 1, 1] = 6 * B
        close(jacobian(inner, B), expected)
        inner = functools.partial(jacobian, lambda x: x**3)
        close(jacobian(inner, B), pb.zeros(2, 2, 2))

    @vectorized
    def test_jacobian_is_differentiable(self, vectorize):
        def f(x, y):
            return 2 * x.exp() * y, x.sum() * y

        def of_inputs(*inputs):
            x, y = inputs
            found = jacobian(f, (x.cos(), y), create_graph=True, vectorize=vectorize)
            return tuple(block for row in found for block in row)

        inputs = (leaf(0.5, 1.0), leaf(0.3, 0.7))
        assert gradcheck(of_inputs, inputs)
        assert gradgradcheck(of_inputs, inputs)

    @vectorized
    def test_hessian_is_differentiable(self, vectorize):
        def of_inputs(*inputs):
            found = hessian(
                lambda x, y: (x**3 * y.sin()).sum(), inputs, create_graph=True, vectorize=vectorize
            )
            return tuple(block for row in found for block in row)

        assert gradcheck(of_inputs, (leaf(0.5, 1.0), leaf(0.3, 0.7)))
        assert gradgradcheck(of_inputs, (leaf(0.5, 1.0), leaf(0.3, 0.7)), fast_mode=True)

    @by_name("function", PRODUCTS)
    def test_product_is_differentiable(self, function):
        f = derivative_of(function, lambda x, y: x.exp() * y, lambda x, y: (x.exp() * y**3).sum())

        def of_all(x, y, *v):
            v = v[0] if function is vjp else v
            value, found = function(f, (x, y), v, create_graph=True)
            return (value, *(found if isinstance(found, tuple) else (found,)))

        vectors = (leaf(0.2, 0.4),) * 1 if function is vjp else (leaf(0.2, 0.4), leaf(0.1, 0.6))
        inputs = (leaf(0.5, 1.0), leaf(0.3, 0.7), *vectors)
        assert gradcheck(of_all, inputs)
        assert gradgradcheck(of_all, inputs)


def detached(a):
    return a.detach()


def unconnected(a):
    return W * 2


def total(func):
    return lambda a: func(a).sum()


class TestIndependentOutputs:
    @by_name("function", ALL)
    @by_name("func", [detached, unconnected])
    def test_zeros(self, function, func):
        found = second_of(call(function, derivative_of(function, func, total(func)), B))
        assert found.shape == ((2, 2) if function in (jacobian, hessian) else (2,))
        assert not found.any()

    @each_way
    @by_name("func", [detached, unconnected])
    def test_zeros_of_every_way(self, way, func):
        close(jacobian(func, B, **way), pb.zeros(2, 2))
        close(hessian(total(func), B, **outer(way)), pb.zeros(2, 2))

    @each_way
    def test_some(self, way):
        (by_a, by_b), constant = jacobian(lambda a, b: (a * 2, pb.ones(2)), (A, B), **way)
        close(by_a, 2 * pb.eye(3))
        assert not by_b.any()
        assert [tuple(x.shape) for x in constant] == [(2, 3), (2, 2)]

    def test_some_of_jvp(self):
        _, found = jvp(lambda a, b: (a * 2, pb.ones(2)), (A, B), (A, B))
        close(found[0], 2 * A)
        assert found[1].tolist() == [0, 0]

    @by_name("function", ALL)
    def test_strict_output_without_history(self, function):
        func = derivative_of(function, detached, total(detached))
        with pytest.raises(RuntimeError, match="Output 0 of the user-provided function does not"):
            call(function, func, B, strict=True)

    @by_name("function", ALL)
    def test_strict_output_that_is_unconnected(self, function):
        func = derivative_of(function, unconnected, total(unconnected))
        text = {
            jacobian: "Output 0 of the user-provided function is independent of input 0",
            hessian: "found that the jacobian of the user-provided function with respect to input "
            "0 is independent of the input",
        }.get(function, "The output of the user-provided function is independent of input 0")
        with pytest.raises(RuntimeError, match=text):
            call(function, func, B, strict=True)

    @by_name("function", SECOND)
    def test_strict_linear_function(self, function):
        text = "found that the jacobian of the user-provided function with respect to input 0 is"
        with pytest.raises(RuntimeError, match=text):
            call(function, lambda a: (3 * a).sum(), B, strict=True)

    @by_name("function", [vjp, jvp, jacobian])
    def test_strict_linear_function_with_create_graph(self, function):
        text = r"The jacobian of the user-provided function is independent of input 0\."
        x = leaf(1.0, 2.0)
        with pytest.raises(RuntimeError, match=text):
            call(function, lambda a: a.clone(), x, create_graph=True, strict=True)
        close(second_of(call(function, lambda a: a.clone(), x, strict=True)).sum(), 2.0)

    def test_strict_names_output_and_input(self):
        w = leaf(1.0, 2.0)
        with pytest.raises(RuntimeError, match=r"Output 1 of .* is independent of input 0"):
            jacobian(lambda a, b: (a * b.sum(), b * w), (A, B), strict=True)
        with pytest.raises(RuntimeError, match="independent of entry 1 in the grad_outputs"):
            jvp(lambda b: (b * w, w * 2), B, B, strict=True)

    def test_strict_second_derivatives_name_the_input(self):
        w = leaf(1.0, 2.0)
        f = lambda a, b: (a**3).sum() + (b * w).sum()  # noqa: E731
        with pytest.raises(RuntimeError, match=r"jacobian of .* is independent of input 1"):
            vhp(f, (A, B), (A, B), strict=True)
        with pytest.raises(RuntimeError, match=r"hessian of .* independent of entry 1 in the"):
            hvp(f, (A, B), (A, B), strict=True)

    @by_name("function", ALL)
    def test_strict_accepts_what_depends(self, function):
        x = leaf(1.0, 2.0)
        func = derivative_of(function, lambda a: a**3, lambda a: (a**3).sum())
        found = second_of(call(function, func, x, strict=True, create_graph=True))
        assert found.requires_grad
        pb.testing.assert_close(found, second_of(call(function, func, x, create_graph=True)))


class TestRefused:
    @by_name("function", ALL)
    @pytest.mark.parametrize("inputs", [[A], 2.0, None, (A, 2.0), ((A,),)])
    def test_inputs(self, function, inputs):
        text = f"The inputs given to {function.__name__} must be either a Tensor or a tuple of Tens"
        with pytest.raises(TypeError, match=text):
            function(lambda *xs: xs[0].sum(), inputs)

    @pytest.mark.beyond_torch
    @by_name("function", ALL)
    def test_no_inputs(self, function):
        with pytest.raises(RuntimeError, match=rf"{function.__name__}\(\): expected at least one"):
            function(lambda: A.sum(), ())

    @by_name("function", ALL)
    @pytest.mark.parametrize("output", [[A], 2.0, None, (A, 2.0)])
    def test_outputs(self, function, output):
        text = f"The outputs of the user-provided function given to {function.__name__} must be ei"
        with pytest.raises(TypeError, match=text):
            call(function, lambda x: output, B)

    @each_way
    def test_outputs_of_every_way(self, way):
        with pytest.raises(TypeError, match="given to jacobian must be either a Tensor or a tuple"):
            jacobian(lambda x: [x], B, **way)

    def test_missing_v(self):
        assert vjp(lambda a: a.sum().reshape(1, 1), A)[1].tolist() == [1, 1, 1]
        assert jvp(lambda x: x * A, pb.ones(1, dtype=F64))[1].tolist() == A.tolist()
        assert hvp(lambda x: x**3, pb.ones((), dtype=F64))[1].item() == 6
        text = "The vector v can only be None if the user-provided function returns"
        for func in (lambda a: a * 2, lambda a: (a.sum(), a.sum())):
            with pytest.raises(RuntimeError, match=text):
                vjp(func, A)
        text = "The vector v can only be None if the input to the user-provided function"
        for function in (jvp, vhp, hvp):
            with pytest.raises(RuntimeError, match=text):
                function(lambda a: a.sum(), A)

    @by_name("function", PRODUCTS)
    def test_v_that_does_not_fit(self, function):
        func = derivative_of(function, lambda a: a * 2, lambda a: (a * a).sum())
        for v, text in (
            ((A, A), "The given v should contain a single Tensor"),
            (pb.ones(2), r"v has invalid size: should be .*Size\(\[3\]\) but got .*Size\(\[2\]\)"),
            (pb.ones(3, 1), "v has invalid size"),
        ):
            with pytest.raises(RuntimeError, match=text):
                function(func, A, v)
        for v in ([A], 1.0, (1.0,)):
            text = f"The v given to {function.__name__} must be either a Tensor or a tuple of Tens"
            with pytest.raises(TypeError, match=text):
                function(func, A, v)
        pb.testing.assert_close(function(func, A, (A,)), function(func, A, A))

    @by_name("function", PRODUCTS)
    def test_tuple_v_that_does_not_fit(self, function):
        f = derivative_of(function, lambda a, b: (a, b), lambda a, b: a.sum() * b.sum())
        for v, text in (
            ((A,), "v is a tuple of invalid length: should be 2 but got 1"),
            (A, "v is a tuple of invalid length"),
            ((A, A), "Entry 1 in v has invalid size"),
        ):
            with pytest.raises(RuntimeError, match=text):
                function(f, (A, B), v)

    @by_name("function", SECOND)
    def test_outputs_that_are_no_scalar(self, function):
        text = f"The function given to {function.__name__} should return a single Tensor"
        for output in ((A.sum(),), (A.sum(), A.sum()), ()):
            with pytest.raises(RuntimeError, match=text):
                call(function, lambda x, y=output: y, B)
        text = f"the function given to {function.__name__} should contain a single element"
        for output in (A, A[:0]):
            with pytest.raises(RuntimeError, match=text):
                call(function, lambda x, y=output: y, B)

    @pytest.mark.parametrize(
        ("function", "name"), [(jacobian, "strategy"), (hessian, "outer_jacobian_strategy")]
    )
    def test_strategies(self, function, name):
        f = lambda a: (a**3).sum()  # noqa: E731
        for strategy in ("sideways", None):
            with pytest.raises(AssertionError, match='either "forward-mode" or "reverse-mode"'):
                function(f, A, **{name: strategy})
        forward = {name: "forward-mode", "vectorize": True}
        with pytest.raises(NotImplementedError, match=r"`create_graph=True` and .* not supported"):
            function(f, A, create_graph=True, **forward)
        with pytest.raises(RuntimeError, match=r"`strict=True` and .* not supported together"):
            function(f, A, strict=True, **forward)
        text = "`strict=True` and `vectorized=True` are not supported together"
        with pytest.raises(RuntimeError, match=text):
            function(f, A, strict=True, vectorize=True)

    def test_writing_into_an_input(self):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used"):
            jacobian(lambda a: a.mul_(2), A)
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
            jacobian(lambda a: a.mul_(2), leaf(1.0), create_graph=True)
        assert A.tolist() == [0.5, 1.0, 2.0]

    @each_way
    def test_errors_of_the_function_pass_through(self, way):
        with pytest.raises(ZeroDivisionError):
            jacobian(lambda a: 1 / 0, A, **way)
        assert pb.autograd.forward_ad._current_level == -1
