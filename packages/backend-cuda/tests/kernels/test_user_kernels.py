"""Ops that users write as a line of CUDA: values, derivatives, batches, and what is refused."""

import numpy as np
import pytest

import pullback as pb
from pullback.autograd import gradcheck, gradgradcheck

pytestmark = pytest.mark.usefixtures("cuda", "compile_for_the_cpu")


@pytest.fixture
def swish():
    from pullback_cuda import elementwise_kernel

    derivative = "(1 + exp(-x) * (1 + x)) / ((1 + exp(-x)) * (1 + exp(-x)))"
    return elementwise_kernel("swish(x)", "x / (1 + exp(-x))", {"x": derivative})


@pytest.fixture
def product():
    """x * x * y, whose derivatives are ops again."""
    from pullback_cuda import elementwise_kernel

    return elementwise_kernel(
        "product(x, y)", "x * x * y", {"x": lambda x, y: 2 * x * y, "y": lambda x, y: x * x}
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_values_of_every_floating_dtype(swish, dtype):
    x = pb.linspace(-3, 3, 1001).to(getattr(pb, dtype))
    expected = pb.nn.functional.silu(x.double())
    found = swish(x.cuda())
    assert found.dtype == x.dtype
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-12}[dtype]
    assert (found.cpu().double() - expected).abs().max().item() < tolerance


def test_conjugates_and_negatives(product):
    """A kernel reads memory as it is: it gets lazy conjugates and negatives computed."""
    z = pb.tensor([1 + 2j, 3 - 1j], dtype=pb.complex128, device="cuda")
    views = (z.conj(), z._neg_view(), z.conj()._neg_view(), z.conj().imag, z._neg_view().real)
    for view in views:
        assert view.is_conj() or view.is_neg()
        plain = pb.tensor(view.tolist(), dtype=view.dtype, device="cuda")
        assert product(view, view).tolist() == product(plain, plain).tolist()


def test_integers_and_complex_numbers(product):
    x = pb.arange(-5, 5, device="cuda")
    assert product(x, 3).tolist() == [3 * i * i for i in range(-5, 5)]
    assert product(x.to(pb.int32), x.to(pb.int32)).dtype == pb.int32
    z = pb.tensor([1 + 2j, -1j], device="cuda")
    assert np.allclose(product(z, z).cpu().numpy(), np.array([1 + 2j, -1j]) ** 3)


def test_operands_are_broadcast_and_promoted(product):
    x = pb.rand(4, 1, 6, device="cuda")[:, :, ::2]
    y = pb.rand(5, 1, device="cuda", dtype=pb.float64)
    found = product(x, y)
    assert found.shape == (4, 5, 3) and found.dtype == pb.float64
    assert pb.allclose(found, x.double() ** 2 * y)
    assert product(x, 2.0).dtype == pb.float32
    assert product(3, x.to(pb.int64)).dtype == pb.int64
    assert product(x[:0], y).shape == (0, 5, 3)


def test_derivatives_by_an_expression(swish):
    x = pb.rand(7, dtype=pb.float64, device="cuda", requires_grad=True)
    assert gradcheck(swish, (x,), check_forward_ad=True, check_batched_grad=True)
    with pytest.raises(RuntimeError, match="derivative by 'x' was not given"):
        (grad,) = pb.autograd.grad(swish(x).sum(), x, create_graph=True)
        grad.sum().backward()


def test_second_derivatives_of_ops(product):
    x = pb.rand(3, 1, dtype=pb.float64, device="cuda", requires_grad=True)
    y = pb.rand(4, dtype=pb.float64, device="cuda", requires_grad=True)
    assert gradcheck(product, (x, y), check_forward_ad=True)
    assert gradgradcheck(product, (x, y))


def test_complex_derivatives():
    from pullback_cuda import elementwise_kernel

    square = elementwise_kernel("square_of(z)", "z * z", {"z": lambda z: 2 * z})
    z = pb.tensor([1 + 2j, 3 - 1j], dtype=pb.complex128, device="cuda", requires_grad=True)
    assert gradcheck(square, (z,))


def test_batches(product):
    x = pb.rand(3, 4, device="cuda")
    y = pb.rand(4, 3, device="cuda")
    found = pb.vmap(product, in_dims=(0, 1))(x, y)
    assert pb.allclose(found, x**2 * y.T)
    assert pb.allclose(pb.vmap(product, in_dims=(0, None))(x, y[:, 0]), x**2 * y[:, 0])


def test_preamble_and_four_arguments():
    from pullback_cuda import elementwise_kernel

    mix = elementwise_kernel(
        "mix(a, b, c, d)",
        "twice(a) + b * c - d",
        preamble="template <class T> DEVICE T twice(T value) { return value + value; }",
    )
    a, b, c, d = (pb.rand(33, device="cuda") for _ in range(4))
    assert pb.allclose(mix(a, b, c, d), 2 * a + b * c - d)
    with pytest.raises(RuntimeError, match=r"derivative by 'a'"):
        mix(a.requires_grad_(), b, c, d).sum().backward()


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (("swish", "x"), ValueError, "must look like"),
        (("swish()", "x"), ValueError, "must look like"),
        (("f(x, x)", "x"), ValueError, "different arguments"),
        (("f(a, b, c, d, e)", "a"), ValueError, "1 to 4"),
        (("f(x)", "x", {"y": "1"}), ValueError, "no argument 'y'"),
        (("f(x)", "x", {"x": 1}), TypeError, "must be str or a function, not int"),
        (("f(x)", "x", {1: "1", "y": "1"}), ValueError, "no argument 1"),
        (("f(x)", "x\0"), ValueError, "'expression' is no text"),
        (("f(x)", "x + '\ud800'"), ValueError, "'expression' is no text"),
    ],
)
def test_wrong_definitions_are_refused(arguments, kind, words):
    from pullback_cuda import elementwise_kernel

    with pytest.raises(kind, match=words):
        elementwise_kernel(*arguments)


def test_wrong_calls_are_refused(product):
    x = pb.rand(3, device="cuda")
    with pytest.raises(TypeError, match="takes 2 arguments, got 1"):
        product(x)
    with pytest.raises(TypeError, match="at least one argument must be a Tensor"):
        product(1, 2)
    with pytest.raises(RuntimeError, match="argument 'y' is on"):
        product(x, x.cpu())
    with pytest.raises(RuntimeError, match="must be on a cuda device, not on"):
        product(x.cpu(), 1)
    with pytest.raises(TypeError, match="not for bool"):
        product(x > 1, x > 2)
    with pytest.raises(RuntimeError, match=r"size of tensor|broadcast"):
        product(x, pb.rand(4, device="cuda"))


def test_tensors_of_one_element_may_lie_in_the_host_s_memory(product):
    x = pb.rand(3, device="cuda", requires_grad=True)
    y = pb.tensor(2.0, dtype=pb.float64, requires_grad=True)
    assert not y.is_cuda
    for z in (product(x, y), product(y, x)):
        assert z.is_cuda and z.dtype == pb.float32
        z.sum().backward()
    assert pb.allclose(x.grad, 4 * x.detach() + 4)
    assert y.grad.device == y.device and y.grad.dtype == pb.float64
    with pytest.raises(RuntimeError, match="argument 'y' is on"):
        product(x, y.detach().reshape(1))


DTYPES = [pb.uint8, pb.int32, pb.int64, pb.float16, pb.float32, pb.float64, pb.complex64]


def test_dtypes_are_promoted_as_those_of_ops():
    from pullback_cuda.user_kernels import _common_dtype

    operands = [pb.ones(shape, dtype=dtype) for dtype in DTYPES for shape in ((2,), ())]
    operands += [1, 2.5, 1j]
    for a in operands:
        for b in operands:
            if isinstance(a, pb.Tensor) or isinstance(b, pb.Tensor):
                assert _common_dtype([a, b]) == (a * b).dtype, (a, b)
    wide = pb.ones((), dtype=pb.float64)
    assert _common_dtype([pb.ones(2), pb.ones(2), wide]) == pb.float32
    assert _common_dtype([wide, pb.ones(2, dtype=pb.float16), 3.5]) == pb.float16
    assert _common_dtype([pb.ones(2, dtype=pb.int32), 1, 2.5]) == pb.float32
    assert _common_dtype([pb.ones((), dtype=pb.int64), pb.ones(2, dtype=pb.int8)]) == pb.int8


def test_derivatives_may_be_numbers():
    from pullback_cuda import elementwise_kernel

    for dtype in (pb.float16, pb.float64):
        x = pb.rand(4, device="cuda", dtype=dtype, requires_grad=True)
        triple = elementwise_kernel("triple(x)", "3 * x", {"x": lambda x: 3})
        triple(x).sum().backward()
        assert x.grad.tolist() == [3.0] * 4 and x.grad.dtype == dtype
        assert gradcheck(triple, x.detach().double().requires_grad_())
    nothing = elementwise_kernel("nothing(x)", "3 * x", {"x": lambda x: None})
    with pytest.raises(TypeError, match="derivative by 'x' must return a Tensor or a number"):
        nothing(x).sum().backward()


def test_names_may_be_long():
    from pullback_cuda import elementwise_kernel

    named = elementwise_kernel(f"{'name' * 60}(x)", "x + 1")
    assert named(pb.ones(2, device="cuda")).tolist() == [2, 2]


def test_compiler_is_heard():
    from pullback_cuda import elementwise_kernel
    from pullback_cuda.runtime.nvrtc import CompileError

    broken = elementwise_kernel("broken(x)", "x +")
    with pytest.raises(CompileError, match=r"broken.*does not compile"):
        broken(pb.rand(3, device="cuda"))


def test_interrupt_of_the_compiler_is_one(monkeypatch):
    from pullback_cuda import elementwise_kernel
    from pullback_cuda.runtime import nvrtc

    def interrupted(*_):
        raise KeyboardInterrupt

    kernel = elementwise_kernel("interrupted(x)", "x * 5")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(nvrtc, "compile_text", interrupted)
        kernel(pb.ones(3, device="cuda"))
    assert kernel(pb.ones(3, device="cuda")).tolist() == [5, 5, 5]
