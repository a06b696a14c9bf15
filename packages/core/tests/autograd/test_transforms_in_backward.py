"""Transforms that a backward formula or a hook calls, while vmap and grad run it."""

import pytest

import pullback as pb
from pullback.func import grad, jacfwd, jacrev, jvp, vjp, vmap


def cube(x):
    return x * x * x


FORMULAS = {  # ways to multiply a gradient by the derivative of cube
    "vjp": lambda x, g: vjp(cube, x)[1](g)[0],
    "grad": lambda x, g: g * grad(lambda x: cube(x).sum())(x),
    "jvp": lambda x, g: g * jvp(cube, (x,), (pb.ones_like(x),))[1],
    "jacrev": lambda x, g: g @ jacrev(cube)(x) if x.dim() else g * jacrev(cube)(x),
    "jacfwd": lambda x, g: g @ jacfwd(cube)(x) if x.dim() else g * jacfwd(cube)(x),
}


def made_with(formula):
    class Cube(pb.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return cube(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[0])

        @staticmethod
        def backward(ctx, g):
            return formula(*ctx.saved_tensors, g)

    return Cube.apply


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas_of_custom_functions(name):
    call = made_with(FORMULAS[name])
    x = pb.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=pb.float64)
    expected = 3 * x * x

    def total(row):
        return call(row).sum()

    for found in (
        vmap(grad(total))(x),
        vmap(vmap(grad(call)))(x),
        pb.stack([grad(total)(row) for row in x]),
        vmap(jacrev(call))(x).diagonal(dim1=1, dim2=2),
        grad(lambda x: vmap(total)(x).sum())(x),
    ):
        pb.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["vjp", "grad"])
def test_formulas_are_differentiated_again(name):
    call = made_with(FORMULAS[name])
    x = pb.tensor([1.0, 2.0], dtype=pb.float64)
    pb.testing.assert_close(vmap(grad(grad(call)))(x), 6 * x)
    leaf = x.clone().requires_grad_()
    (first,) = pb.autograd.grad(call(leaf).sum(), leaf, create_graph=True)
    (second,) = pb.autograd.grad(first.sum(), leaf)
    pb.testing.assert_close(second, 6 * x)


@pytest.mark.parametrize("at", ["input", "between"])
def test_hooks_are_called_for_elements(at):
    shapes = []

    def program(x):
        y = x * x
        (x if at == "input" else y).register_hook(lambda g: (shapes.append(g.shape), g * 2)[1])
        return (y * 3).sum()

    x = pb.arange(12, dtype=pb.float64).view(2, 3, 2)
    expected = 12 * x
    pb.testing.assert_close(vmap(vmap(grad(program)))(x), expected)
    pb.testing.assert_close(vmap(grad(program))(x), expected)
    pb.testing.assert_close(grad(program)(x), expected)
    assert shapes == [(2,), (3, 2), (2, 3, 2)]


def test_hook_that_gives_all_elements_the_same():
    def program(x):
        y = x * x
        y.register_hook(lambda g: pb.ones(2))
        return y.sum()

    x = pb.arange(6.0).view(3, 2)
    pb.testing.assert_close(vmap(grad(program))(x), 2 * x)


def test_hook_that_calls_a_transform():
    def program(x):
        y = x * x
        y.register_hook(lambda g: g * grad(lambda v: (v * 2).sum())(g))
        return y * 3

    x = pb.tensor([1.0, 2.0], dtype=pb.float64)
    pb.testing.assert_close(vmap(grad(program))(x), 12 * x)


def test_hook_that_runs_when_vmap_has_ended():
    def program(x):
        y = x * x
        y.register_hook(lambda g: g * 2)
        return y

    x = pb.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a hook of a tensor of vmap ran when that had ended"):
        vmap(program)(x).sum().backward()


def test_removed_hook_is_not_called():
    def program(x):
        y = x * x
        y.register_hook(lambda g: g * 2).remove()
        return y.sum()

    x = pb.arange(6.0).view(3, 2)
    pb.testing.assert_close(vmap(grad(program))(x), 2 * x)


def test_hooks_of_nodes():
    def program(x):
        y = x * x
        y.grad_fn.register_prehook(lambda grads: (vjp(lambda v: 2 * v, grads[0])[1](grads[0])[0],))
        return (y * 3).sum()

    x = pb.tensor([1.0, 2.0], dtype=pb.float64)
    pb.testing.assert_close(grad(program)(x), 12 * x)


def test_gradient_that_is_batched_already_is_an_error():
    outside = []

    class Leaky(pb.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return g * outside[0]

    def program(x):
        outside.append(x)
        return grad(Leaky.apply)(x * 1)

    with pytest.raises(RuntimeError, match="vmap"):
        vmap(program)(pb.ones(3))
