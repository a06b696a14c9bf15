"""Names that old code still uses."""

import pytest

import pullback as pb


def test_variable_makes_and_recognises_tensors():
    x = pb.autograd.Variable(pb.ones(2), requires_grad=True)
    assert isinstance(x, pb.Tensor)
    assert x.requires_grad
    assert isinstance(pb.ones(2), pb.autograd.Variable)
    assert not isinstance(3, pb.autograd.Variable)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_variable_function_is_refused():
    with pytest.raises(RuntimeError):
        pb.autograd.variable(pb.ones(2))


def test_legacy_function_classes_exist():
    function = pb.autograd.function
    assert issubclass(function.InplaceFunction, function.Function)
    assert issubclass(function.NestedIOFunction, function.Function)


def test_mark_shared_storage_is_a_deprecated_no_op():
    class Old(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.mark_shared_storage((x, y))
            return y

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = pb.ones(2, requires_grad=True)
    with pytest.warns(FutureWarning):
        y = Old.apply(x)
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", ["add", "sub", "addcmul", "addcdiv"])
@pytest.mark.parametrize("ending", ["", "_"])
def test_factor_before_the_operands_is_deprecated(name, ending):
    factor = "value" if name.startswith("addc") else "alpha"
    others = [pb.tensor([2.0, 4.0]), pb.tensor([5.0, 8.0])][: 1 + (factor == "value")]
    call = f"{name}{ending}"
    wanted = getattr(pb.ones(2), call)(*others, **{factor: 3})
    with pytest.warns(UserWarning, match=rf"overload of {call} is deprecated:\n\t{call}\(Number "):
        result = getattr(pb.ones(2), call)(3, *others)
    assert result.tolist() == wanted.tolist()
    with pytest.raises(TypeError, match=rf"{call}\(\) takes \d positional arguments but"):
        getattr(pb.ones(2), call)(3, *others, others[0])
    with pytest.raises(TypeError, match=r"mul_\(\) takes 2 positional arguments but"):
        pb.ones(2).mul_(3, *others)
