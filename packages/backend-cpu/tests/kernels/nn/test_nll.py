"""The negative log likelihood of classes, and its backward pass."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import run_kernel
from layouts import sample

from pullback.testing.kernel_calls import E_INDEX, E_VALUE, KernelError

NONE, MEAN, SUM = 0, 1, 2
IGNORED = -100


def losses(source, target, weights):
    """Return each target's loss and weight."""
    rows = np.moveaxis(source.astype(float), min(1, source.ndim - 1), -1)
    made, used = np.zeros(target.shape), np.zeros(target.shape)
    for position in np.ndindex(*target.shape):
        wanted = target[position]
        if wanted != IGNORED:
            used[position] = 1 if weights is None else weights[wanted]
            made[position] = -rows[position][wanted] * used[position]
    return made, used


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("shape", [(5,), (7, 5), (3, 5, 4), (2, 5, 3, 2)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_loss_and_its_backward(dtype, shape, weighted, reduction):
    source = sample(dtype, shape, seed=1)
    target = np.random.default_rng(2).integers(0, 5, (*shape[:1], *shape[2:]) if shape[1:] else ())
    target = np.asarray(target)
    if target.size > 2:
        target.flat[1] = IGNORED
    weights = np.abs(sample(dtype, (5,), seed=3)) + 1 if weighted else None
    rest = [target] if weights is None else [target, weights]
    made, used = losses(source, target, weights)
    expected = {NONE: made, SUM: made.sum(), MEAN: made.sum() / used.sum()}[reduction]
    out = np.full(np.shape(expected), np.nan, source.dtype)
    run_kernel("nll_loss", out, [source, *rest], IGNORED, reduction)
    room = 1e-5 if dtype == "f32" else 1e-13
    np.testing.assert_allclose(out, expected, rtol=room, atol=room)
    # The loss is linear, so its backward pass has the same inner products.
    grad, back = sample(dtype, out.shape, seed=4), np.full(shape, np.nan, source.dtype)
    run_kernel("nll_loss_backward", back, [grad, *rest], IGNORED, reduction)
    np.testing.assert_allclose(
        (back.astype(float) * source).sum(), (grad * expected).sum(), rtol=10 * room, atol=10 * room
    )
    assert np.count_nonzero(back) == (target != IGNORED).sum()


def test_mean_of_nothing_is_nan():
    out, source = np.zeros(()), np.ones((2, 3))
    ignored = np.full((2,), IGNORED)
    run_kernel("nll_loss", out, [source, ignored], IGNORED, MEAN)
    assert np.isnan(out)
    run_kernel("nll_loss", out, [source, ignored], IGNORED, SUM)
    assert out == 0
    run_kernel("nll_loss", out, [np.ones((0, 3)), np.ones((0,), np.int64)], IGNORED, MEAN)
    assert np.isnan(out)


@pytest.mark.parametrize("target", [-1, 3, 2**62])
def test_no_class(target):
    for primitive, out, source in (
        ("nll_loss", np.zeros(()), np.ones((1, 3))),
        ("nll_loss_backward", np.ones((1, 3)), np.zeros(())),
    ):
        with pytest.raises(KernelError) as found:
            run_kernel(primitive, out, [source, np.array([target])], IGNORED, SUM)
        assert found.value.code == E_INDEX
        assert found.value.message == f"Target {target} is out of bounds."


def test_operands_that_do_not_fit():
    for rest in ([np.zeros((2,), np.int64)], [np.zeros((1,), np.int64), np.ones((2,))]):
        with pytest.raises(KernelError) as found:
            run_kernel("nll_loss", np.zeros(()), [np.ones((1, 3)), *rest], IGNORED, SUM)
        assert found.value.code == E_VALUE
