"""Function transforms: values against formulas, nesting, structures, what they refuse."""

import math
from typing import NamedTuple

import pytest

import pullback as pb
from pullback import func
from pullback.func import (
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
    vmap,
)

A = pb.tensor([1.0, 2.0], dtype=pb.float64)
I = pb.arange(2)  # noqa: E741
X = pb.tensor([[1.0, 2.0], [0.5, 3.0], [2.0, -1.0]], dtype=pb.float64)


def scalar(a):
    return (a.sin() * a.exp()).sum() * a.prod()


def expected_gradient(a):
    s, p = (a.sin() * a.exp()).sum(), a.prod()
    return (a.sin() + a.cos()) * a.exp() * p + s * p / a


class Pair(NamedTuple):
    first: object
    second: object


class TestGrad:
    def test_value(self):
        pb.testing.assert_close(grad(scalar)(A), expected_gradient(A))
        found, value = grad_and_value(scalar)(A)
        pb.testing.assert_close(found, expected_gradient(A))
        pb.testing.assert_close(value, scalar(A))

    def test_results_have_no_history_of_their_own(self):
        found, value = grad_and_value(scalar)(A)
        assert not found.requires_grad
        assert not value.requires_grad

    def test_history_of_the_caller(self):
        w = A.clone().requires_grad_()
        found = grad(lambda a: (a * a * w).sum())(A)
        (again,) = pb.autograd.grad(found.sum(), w)
        assert pb.equal(again, 2 * A)
        with pb.no_grad():
            assert not grad(lambda a: (a * a * w).sum())(A).requires_grad

    def test_history_of_the_caller_in_nested_transforms(self):
        w = pb.tensor(3.0, requires_grad=True)
        found = grad(lambda e: grad(lambda a: (a * a * e * w).sum())(A).sum())(pb.tensor(2.0))
        assert pb.autograd.grad(found, w)[0].item() == 2 * A.sum()

    def test_no_grad_inside(self):
        def function(a):
            with pb.no_grad():
                constant = a * 2
            return (a * constant).sum()

        assert pb.equal(grad(function)(A), 2 * A)

    def test_argnums(self):
        def function(a, b):
            return (a * b).sum()

        assert pb.equal(grad(function, 1)(A, 2 * A), A)
        found = grad(function, (-1, 0))(A, 2 * A)
        assert pb.equal(found[0], A)
        assert pb.equal(found[1], 2 * A)

    def test_structures(self):
        tree = {"a": A, "b": [Pair(A, 2 * A)]}
        found = grad(lambda t: (t["a"] * t["b"][0].second).sum())(tree)
        assert pb.equal(found["a"], 2 * A)
        assert isinstance(found["b"][0], Pair)
        assert pb.equal(found["b"][0].first, pb.zeros(2, dtype=pb.float64))

    def test_aux(self):
        found, (value, aux) = grad_and_value(lambda a: (a.sum(), {"k": a * 2}), has_aux=True)(A)
        assert pb.equal(found, pb.ones_like(A))
        assert value.item() == 3
        assert not aux["k"].requires_grad

    def test_nested(self):
        # d/da sum(d/db sum(a b^3) at b = a) = d/da 3 a^3
        found = grad(lambda a: grad(lambda b: (a * b**3).sum())(a).sum())(A)
        pb.testing.assert_close(found, 9 * A**2)

    def test_per_sample(self):
        w = pb.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=pb.float64)
        found = vmap(grad(lambda v, a: (a @ v).tanh().sum()), in_dims=(None, 0))(w, X)
        expected = pb.stack([pb.outer(a, 1 - (a @ w).tanh() ** 2) for a in X])
        pb.testing.assert_close(found, expected)


class TestVjp:
    def test_many_times(self):
        output, back = vjp(lambda a: a.sin(), A)
        pb.testing.assert_close(output, A.sin())
        assert not output.requires_grad
        for scale in (1, 2):
            pb.testing.assert_close(back(scale * A)[0], scale * A * A.cos())

    def test_structures(self):
        _, back = vjp(lambda a, b: (a * b, {"k": a.sum()}), A, 2 * A)
        found = back((A, {"k": pb.tensor(3.0, dtype=pb.float64)}))
        pb.testing.assert_close(found[0], 2 * A * A + 3)
        pb.testing.assert_close(found[1], A * A)

    def test_aux(self):
        output, back, aux = vjp(lambda a: (a * 2, a + 1), A, has_aux=True)
        assert pb.equal(output, 2 * A)
        assert pb.equal(aux, A + 1)
        assert pb.equal(back(A)[0], 2 * A)

    def test_differentiable(self):
        found = grad(lambda v: vjp(lambda a: a * a * a, A)[1](v)[0].sum())(A)
        pb.testing.assert_close(found, 3 * A * A)


class TestJvp:
    def test_value(self):
        output, tangent = jvp(lambda a: (a.sin(), {"k": a.sum()}), (A,), (2 * A,))
        pb.testing.assert_close(tangent[0], 2 * A * A.cos())
        assert tangent[1]["k"].item() == 6
        pb.testing.assert_close(output[0], A.sin())

    def test_independent_output(self):
        assert pb.equal(jvp(lambda a: pb.ones(2), (A,), (A,))[1], pb.zeros(2))

    def test_arguments_by_name(self):
        output, tangent = jvp(func=pb.exp, primals=(A,), tangents=(pb.ones_like(A),))
        assert pb.equal(output, tangent)

    def test_aux(self):
        _, tangent, aux = jvp(lambda a: (a * 2, a + 1), (A,), (A,), has_aux=True)
        assert pb.equal(tangent, 2 * A)
        assert pb.autograd.forward_ad.unpack_dual(aux).tangent is None

    def test_nested(self):
        def first(a):
            return jvp(lambda b: b**4, (a,), (pb.ones_like(a),))[1]

        pb.testing.assert_close(jvp(first, (A,), (pb.ones_like(A),))[1], 12 * A**2)


class TestJacobians:
    @pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
    def test_value(self, jacobian):
        found = jacobian(lambda a: pb.outer(a, a))(A)
        expected = pb.einsum("ik,j->ijk", pb.eye(2, dtype=pb.float64), A)
        pb.testing.assert_close(found, expected + expected.transpose(0, 1))

    @pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
    def test_structures(self, jacobian):
        found = jacobian(lambda p, b: (p["a"] * b, {"k": b.sum()}), (0, 1))({"a": A}, 2 * A)
        pb.testing.assert_close(found[0][0]["a"], pb.diag(2 * A))
        pb.testing.assert_close(found[0][1], pb.diag(A))
        assert pb.equal(found[1]["k"][0]["a"], pb.zeros(2, dtype=pb.float64))
        assert pb.equal(found[1]["k"][1], pb.ones(2, dtype=pb.float64))

    @pytest.mark.parametrize("jacobian", [jacrev, jacfwd])
    def test_aux(self, jacobian):
        found, aux = jacobian(lambda a: (a * a, a + 1), has_aux=True)(A)
        pb.testing.assert_close(found, pb.diag(2 * A))
        assert pb.equal(aux, A + 1)

    def test_chunks(self):
        pb.testing.assert_close(jacrev(pb.sin, chunk_size=1)(A), jacrev(pb.sin)(A))

    @pytest.mark.parametrize(
        "twice",
        [
            hessian,
            lambda f: jacrev(jacrev(f)),
            lambda f: jacfwd(jacfwd(f)),
            lambda f: jacrev(jacfwd(f)),
            lambda f: jacfwd(jacrev(f)),
            lambda f: jacfwd(grad(f)),
            lambda f: jacrev(grad(f)),
        ],
    )
    def test_hessians_agree(self, twice):
        rows = []
        step = 1e-5
        for i in range(2):
            e = pb.zeros(2, dtype=pb.float64)
            e[i] = step
            rows.append((expected_gradient(A + e) - expected_gradient(A - e)) / (2 * step))
        pb.testing.assert_close(twice(scalar)(A), pb.stack(rows), rtol=1e-6, atol=1e-6)
        pb.testing.assert_close(vmap(twice(scalar))(X), pb.stack([twice(scalar)(a) for a in X]))

    def test_hessian_of_several_arguments(self):
        found = hessian(lambda a, b: (a * b * b).sum(), (0, 1))(A, 3 * A)
        pb.testing.assert_close(found[0][1], pb.diag(6 * A))
        pb.testing.assert_close(found[1][1], pb.diag(2 * A))
        assert pb.equal(found[0][0], pb.zeros(2, 2, dtype=pb.float64))

    def test_in_place_and_views(self):
        def function(a):
            made = a.new_zeros(2)
            made[0] = a[1]
            made[1:].copy_(a[:1] * 2)
            return (made**3).sum()

        pb.testing.assert_close(hessian(function)(A), pb.diag(pb.stack([48 * A[0], 6 * A[1]])))
        found = vmap(hessian(function))(X)
        pb.testing.assert_close(found, pb.stack([hessian(function)(a) for a in X]))

    def test_hessian_of_what_depends_on_others_only(self):
        w = A.clone().requires_grad_()
        assert pb.equal(hessian(lambda a: (w * 2).sum())(A), pb.zeros(2, 2, dtype=pb.float64))
        found = hessian(lambda a: (a**3).sum() + w.sum())(A)
        pb.testing.assert_close(found, pb.diag(6 * A))

    def test_library_functions(self):
        functional = pb.nn.functional

        def function(a):
            h = functional.layer_norm(functional.linear(a, X, X[:, 0]), (3,))
            return functional.cross_entropy(h.unsqueeze(0), pb.tensor([2]))

        pb.testing.assert_close(hessian(function)(A), jacrev(jacrev(function))(A))


class TestLinearize:
    def test_value(self):
        output, push = linearize(lambda a: (a.sin(), a.sum()), A)
        pb.testing.assert_close(output[0], A.sin())
        for scale in (1, 2):
            found = push(scale * A)
            pb.testing.assert_close(found[0], scale * A * A.cos())
            assert found[1].item() == scale * 3

    def test_inside_vmap(self):
        found = vmap(lambda a: linearize(lambda b: b * b, a)[1](a))(X)
        pb.testing.assert_close(found, 2 * X * X)


def test_against_differences():
    step = math.sqrt(pb.finfo(pb.float64).eps)
    v = pb.tensor([0.3, -0.7], dtype=pb.float64)
    difference = (scalar(A + step * v) - scalar(A - step * v)) / (2 * step)
    pb.testing.assert_close(jvp(scalar, (A,), (v,))[1], difference, rtol=1e-6, atol=1e-6)


REFUSED = {
    "vector": (lambda: grad(lambda a: a)(A), RuntimeError, "scalar Tensor, got tensor with 1 dims"),
    "number": (lambda: grad(lambda a: 3)(A), RuntimeError, "return a Tensor, got <class 'int'>"),
    "argnum": (lambda: grad(scalar, 5)(A), RuntimeError, "Got argnum=5, but only 1"),
    "argnums": (lambda: grad(scalar, "x")(A), RuntimeError, "argnums must be int"),
    "twice": (lambda: grad(scalar, (0, 0))(A), RuntimeError, "must be unique"),
    "empty": (lambda: grad(scalar, ())(A), RuntimeError, "non-empty"),
    "input": (lambda: grad(lambda a: a)(3.0), ValueError, "must be Tensor, got <class 'float'>"),
    "aux": (lambda: grad(scalar, has_aux=True)(A), RuntimeError, "should be a tuple"),
    "aux number": (
        lambda: grad(lambda a: (a.sum(), 3), has_aux=True)(A),
        RuntimeError,
        "unsupported type",
    ),
    "vjp output": (lambda: vjp(lambda a: 3, A), RuntimeError, "to return only tensors"),
    "cotangent shape": (
        lambda: vjp(pb.sin, A)[1](pb.ones(3)),
        RuntimeError,
        "Mismatch in shape: grad_output",
    ),
    "cotangents": (lambda: vjp(lambda a: (a, a), A)[1](A), RuntimeError, "structure of cotangents"),
    "primals": (lambda: jvp(pb.sin, A, A), RuntimeError, "Expected primals to be a tuple"),
    "tangents": (lambda: jvp(pb.sin, (A,), (A, A)), RuntimeError, "same python structure"),
    "tangent shape": (lambda: jvp(pb.sin, (A,), (pb.ones(3),)), RuntimeError, "different size"),
    "primal": (lambda: jvp(pb.sin, (3.0,), (A,)), RuntimeError, "primals to only contain Tensors"),
    "no primal": (lambda: jvp(pb.sin, (), ()), RuntimeError, "at least one Tensor"),
    "strict": (
        lambda: jvp(lambda a: pb.ones(2), (A,), (A,), strict=True),
        RuntimeError,
        "independent of the inputs",
    ),
    "integer": (lambda: grad(lambda a: a.sum() * 2.0)(I), RuntimeError, "only Tensors of floating"),
    "integer of vjp": (lambda: vjp(lambda a: a * 2.0, I), RuntimeError, "only Tensors of floating"),
    "integer of jvp": (lambda: jvp(lambda a: a * 2.0, (I,), (I,)), ValueError, "Expected primal"),
    "integer tangent": (lambda: jvp(pb.sin, (A,), (I,)), ValueError, "Expected tangent to be"),
    "complex of grad": (lambda: grad(lambda a: a.sum() * 1j)(A), RuntimeError, "real scalar outp"),
    "complex of grad inside": (
        lambda: jacfwd(grad(lambda a: a.sum() ** 2 * 1j))(A),
        RuntimeError,
        "real scalar outputs",
    ),
    "chunk_size": (lambda: jacrev(pb.sin, chunk_size=0), ValueError, "greater than 0"),
    "linear shape": (
        lambda: linearize(pb.sin, A)[1](pb.ones(3)),
        RuntimeError,
        "doesn't match the shape",
    ),
    "linear structure": (lambda: linearize(pb.sin, A)[1](A, A), RuntimeError, "argspec"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call()
    assert pb._c.graph.levels.level_count() == 0


# ---- what transforms refuse ----------------------------------------------------------------------


def backward_inside(x):
    y = x * x
    y.backward()
    return y


@pytest.mark.parametrize(
    "transform",
    [
        func.grad(backward_inside),
        lambda x: func.vjp(backward_inside, x),
        func.jacrev(backward_inside),
        func.hessian(backward_inside),
        lambda x: func.jvp(backward_inside, (x,), (x,)),
        lambda x: func.vmap(backward_inside)(x.expand(2)),
    ],
)
def test_backward_inside_a_transform(transform):
    with pytest.raises(RuntimeError, match=r"backward\(\) called inside a functorch transform"):
        transform(pb.tensor(2.0))
    backward_inside(pb.ones(1, requires_grad=True))


def test_autograd_grad_inside_a_transform():
    def derivative(x):
        return pb.autograd.grad(x**3, x, create_graph=True)[0]

    assert func.grad(derivative)(pb.tensor(2.0)).item() == 12.0


@pytest.mark.parametrize(
    ("jacobian", "function", "x", "what"),
    [
        (func.jacrev, lambda x: x * 2, pb.ones(2, dtype=pb.complex64), "inputs"),
        (func.jacfwd, lambda x: x * 2, pb.ones(2, dtype=pb.complex64), "inputs"),
        (func.jacrev, lambda x: x * 1j, pb.ones(2), "outputs"),
        (func.jacfwd, lambda x: (x, x * 1j), pb.ones(2), "outputs"),
        (func.hessian, lambda x: x.abs().sum(), pb.ones(2, dtype=pb.complex64), "inputs"),
    ],
)
def test_jacobian_of_complex_numbers(jacobian, function, x, what):
    with pytest.raises(RuntimeError, match=f"Expected all {what} to be real but received complex"):
        jacobian(function)(x)


@pytest.mark.parametrize(
    "run",
    [
        lambda f, x: func.vjp(f, x),
        lambda f, x: func.jvp(f, (x,), (x,)),
        lambda f, x: func.jacrev(f)(x),
        lambda f, x: func.jacfwd(f)(x),
    ],
)
def test_function_without_output(run):
    with pytest.raises(RuntimeError, match=r"non-empty output \(got output = \(\)\)"):
        run(lambda x: (), pb.ones(2))


def test_vjp_gives_an_argument_that_is_the_result_itself():
    x = pb.ones(2)
    y, back = pb.func.vjp(lambda a: a, x)
    assert y is x
    assert back(pb.tensor([1.0, 2.0]))[0].tolist() == [1.0, 2.0]


DERIVATIVES = {
    "grad": lambda f, x: grad(f)(x),
    "jacrev": lambda f, x: jacrev(f)(x),
    "jacfwd": lambda f, x: jacfwd(f)(x),
    "vjp": lambda f, x: vjp(f, x)[1](pb.ones_like(x[0]))[0],
    "jvp": lambda f, x: jvp(f, (x,), (pb.ones_like(x),))[1],
    "linearize": lambda f, x: linearize(f, x)[1](pb.ones_like(x)),
    "hessian": lambda f, x: hessian(f)(x),
    "vmap of grad": lambda f, x: vmap(grad(f))(x.expand(3, 2)),
}


@pytest.mark.parametrize("inner", DERIVATIVES)
@pytest.mark.parametrize("outer", DERIVATIVES)
def test_results_have_no_history_of_a_finished_transform(outer, inner):
    """The inner one differentiates by a constant; the outer one by what the inner one captures."""

    def of_captured(e):
        return DERIVATIVES[inner](lambda a: (a * a * e.sum()).sin().sum(), A).sum()

    found = DERIVATIVES[outer](of_captured, pb.tensor([0.5, 0.7], dtype=pb.float64))
    assert not found.requires_grad
    found.numpy()


@pytest.mark.parametrize("run", ["grad", "jacrev", "vjp", "linearize"])
@pytest.mark.parametrize("part", [lambda b: b, lambda b: b[:1], lambda b: b.view(2)])
def test_a_captured_tensor_takes_no_history(run, part):
    """Unless it is written with constants, which torch refuses as well."""
    captured, counter = pb.zeros(2, dtype=pb.float64), pb.zeros(())

    def function(a):
        counter.add_(1)
        own = pb.zeros(2, dtype=pb.float64)
        part(own).add_(a[0])
        part(captured).add_(own[0])
        return own.sum()

    with pytest.raises(RuntimeError, match="into a tensor that it captured"):
        DERIVATIVES[run](function, A)
    assert captured.tolist() == [0.0, 0.0]
    assert not captured.requires_grad
    assert counter.item() >= 1


def test_a_tensor_of_the_outer_function_is_captured_by_the_inner_one():
    def outer(x, write):
        kept = x * 1

        def inner(a):
            made = grad(lambda c: (c * c).sum())(a)
            made.mul_(a)  # made after the inner transform began
            return (kept.mul_(a) if write else kept * made).sum()

        return grad(inner)(x).sum()

    assert pb.equal(grad(lambda x: outer(x, False))(A), 8 * A)
    with pytest.raises(RuntimeError, match="into a tensor that it captured"):
        grad(lambda x: outer(x, True))(A)


def test_no_history_is_asked_for_where_the_caller_does_not_record():
    class FirstRow(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x * 1)[0]

        @staticmethod
        def backward(ctx, g):
            return pb.stack([g, g])

    row = FirstRow.apply(pb.ones(2, 3, requires_grad=True))
    with pb.no_grad():
        row.pow_(2)  # since then its history is out of date
        value, pull = pb.func.vjp(lambda a: a.exp().sum(), row)
        assert pb.allclose(pull(pb.tensor(1.0))[0], row.exp())
        assert pb.allclose(pb.func.grad(lambda a: a.exp().sum())(row), row.exp())
        assert pb.func.linearize(lambda a: a * 2, row)[1](pb.ones(3)).tolist() == [2.0, 2.0, 2.0]
    assert not value.requires_grad
    with pytest.raises(RuntimeError, match="has been modified inplace"):
        pb.func.vjp(lambda a: a.exp(), row)


@pytest.mark.parametrize("transform", [func.jacfwd, func.hessian])
def test_inputs_that_overlap_themselves_count_as_elements_of_their_own(transform):
    x = pb.tensor([1.4, -0.6, -0.5, -1.9], dtype=pb.float64).unfold(0, 2, 1)

    def f(a):
        y = (a.clone().mul_(a) * a.sin()).cumsum(0)
        return y if transform is func.jacfwd else y.prod()

    assert x.stride() == (1, 1)
    found = transform(f)(x)
    assert pb.allclose(found, transform(f)(x.contiguous()))
    reverse = func.jacrev(f) if transform is func.jacfwd else func.jacrev(func.grad(f))
    assert pb.allclose(found, reverse(x.contiguous()))
