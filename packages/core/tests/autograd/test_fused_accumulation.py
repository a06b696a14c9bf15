"""Products that the backward pass adds to an input buffer, or to ``.grad``, in one call."""

import threading

import numpy as np
import pytest

import pullback as pb

N = 5000  # elements: enough for the pass to look where gradients go


def leaf(seed, *shape, dtype=pb.float64):
    values = np.random.default_rng(seed).normal(size=shape or N)
    return pb.tensor(values, dtype=dtype).requires_grad_()


def constant(seed, *shape, dtype=pb.float64):
    return leaf(seed, *shape, dtype=dtype).detach()


def test_gradients_of_several_uses_add_up():
    x, y, z = leaf(0), constant(1), constant(2)
    (x * y + x * z + x * x + 3 * x).sum().backward()
    expected = y.numpy() + z.numpy() + 2 * x.detach().numpy() + 3
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    "dtype", [pb.float32, pb.float64, pb.float16, pb.complex128], ids=lambda dtype: dtype.name
)
def test_a_second_pass_adds_to_the_same_memory(dtype):
    x, y = leaf(0, dtype=dtype), constant(1, dtype=dtype)
    (x * y).sum().abs().backward()
    first, address, version = x.grad.clone(), x.grad.data_ptr(), x.grad._version
    (x * y).sum().abs().backward()
    assert x.grad.data_ptr() == address
    assert x.grad._version == version + 1
    np.testing.assert_allclose(x.grad.numpy(), 2 * first.numpy(), rtol=1e-3)


def test_hooks_see_the_gradient_of_the_pass_alone():
    x, y, seen, after = leaf(0), constant(1), [], []
    x.register_hook(lambda g: seen.append(g.clone()))
    for _ in range(2):
        (x * y).sum().backward()
    assert all(pb.equal(g, y) for g in seen)
    assert len(seen) == 2
    w = leaf(2)
    w.register_post_accumulate_grad_hook(lambda w: after.append(w.grad.clone()))
    for _ in range(2):
        (w * y).sum().backward()
    assert pb.equal(after[1], 2 * y)


def test_grad_returns_the_gradient_of_the_pass_alone():
    x, y = leaf(0), constant(1)
    (x * y).sum().backward()
    (found,) = pb.autograd.grad((x * y).sum(), x)
    assert pb.equal(found, y)
    assert pb.equal(x.grad, y)


def test_a_gradient_that_somebody_holds_is_not_written():
    x, y, z = leaf(0), constant(1), constant(2)
    u = x * 2
    kept = []
    u.register_hook(lambda g: kept.append(g))
    (u * y + u * z + u).sum().backward()
    np.testing.assert_allclose(kept[0].numpy(), y.numpy() + z.numpy() + 1, rtol=1e-13, atol=1e-13)
    held = x.grad
    x.grad = None
    (x * y).sum().backward()
    np.testing.assert_allclose(held.numpy(), 2 * kept[0].numpy(), rtol=1e-13, atol=1e-13)


def test_a_factor_that_shares_memory_with_grad():
    x = leaf(0)
    x.grad = constant(1)
    before = x.grad.clone()
    (x * x.grad).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * before.numpy(), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("shape", [(1, 50), (50,), (100, 1), (1,)], ids=str)
def test_factors_of_other_shapes(shape):
    x, y = leaf(0, 100, 50), leaf(1, *shape)
    for _ in range(2):
        (x * y + y * x).sum().backward()
    expected = np.broadcast_to(4 * y.detach().numpy(), (100, 50))
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(
        y.grad.numpy(), 4 * x.detach().sum_to_size(shape).numpy(), rtol=1e-10
    )


def test_grad_in_another_layout():
    x, y = leaf(0, 80, 70), constant(1, 80, 70)
    x.grad = pb.zeros(70, 80, dtype=pb.float64).T
    (x * y).sum().backward()
    assert x.grad.stride() == (1, 80)
    assert pb.equal(x.grad, y)


def test_a_recorded_pass_makes_new_gradients():
    x, y = leaf(0), constant(1)
    (x * x * y).sum().backward()
    before = x.grad
    (x * x * y).sum().backward(create_graph=True)
    assert x.grad is not before
    (second,) = pb.autograd.grad(x.grad.sum(), x)
    np.testing.assert_allclose(second.numpy(), 2 * y.numpy(), rtol=1e-13, atol=1e-13)


def test_passes_of_several_threads_lose_nothing():
    x, y = leaf(0, 1 << 16), constant(1, 1 << 16)
    x.grad = pb.zeros(1 << 16, dtype=pb.float64)

    def work():
        for _ in range(20):
            (x * y).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(x.grad.numpy(), 80 * y.numpy(), rtol=1e-12)
