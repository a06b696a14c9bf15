"""Normalizations by given statistics and by those of rows, and their derivative, against NumPy."""

import numpy as np
import pytest
from primitive_calls import assert_close, blank, reference, run_primitive, sample

from pullback.testing.kernel_calls import E_DTYPE, E_VALUE, KernelError

TOLERANCES = {"f32": 2**-18, "f64": 2**-44}
TYPES = ["f32", "f64"]
# Samples, groups, channels of a group, elements of a channel.
SHAPES = [
    (2, 3, 4, 5),
    (1, 1, 1, 1),
    (7, 1, 33, 1),
    (3, 5, 1, 16),
    (64, 40, 1, 1),
    (2, 2, 3, 64),
    (300, 1, 257, 1),
    (1, 2, 3, 9000),
    (2, 1, 30_000, 1),
    (4, 6, 1, 49),
    (5, 3, 2, 4),
    (2000, 3, 2, 1),
    (3, 600, 1, 1),
    (2, 1, 1024, 1),
]


@pytest.fixture(autouse=True)
def device(fake_cuda):
    """The device, ready."""
    import pullback

    pullback.ones(1, device="cuda")
    return fake_cuda


def arguments(name, shape, shared):
    """Return elements, their mean and scale, weight and bias."""
    x = sample(name, shape) + 1
    dims = (0, 2, 3) if shared else (2, 3)
    wide = x.astype(np.float64)
    rows = (1 if shared else shape[0], shape[1])
    mean = wide.mean(dims).reshape(rows)
    scale = 1 / np.sqrt(wide.var(dims).reshape(rows) + 1e-2)
    weight, bias = sample(name, shape[1:3], 1), sample(name, shape[1:3], 2)
    return x, mean.astype(x.dtype), scale.astype(x.dtype), weight, bias


def as_laid(values, kind):
    """Return a weight or bias: one number for all, or in column-major order."""
    if kind == "repeated":
        return np.broadcast_to(values[:1, :1], values.shape)
    return np.asfortranarray(values) if kind == "columns" else values


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", ["plain", "repeated", "columns"])
def test_normalize(name, shape, shared, kind):
    x, mean, scale, weight, bias = arguments(name, shape, shared)
    weight, bias = as_laid(weight, kind), as_laid(bias, kind)
    out, wanted = blank(shape, x.dtype), blank(shape, x.dtype)
    run_primitive("normalize", out, [x, mean, scale, weight, bias])
    reference("normalize", wanted, [x, mean, scale, weight, bias])
    assert_close(out, wanted, TOLERANCES[name])


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", ["plain", "repeated", "columns"])
def test_normalize_backward(name, shape, shared, kind):
    x, mean, scale, weight, _ = arguments(name, shape, shared)
    weight = as_laid(weight, kind)
    grad = sample(name, shape, 5)
    outs = [tuple(blank(n, x.dtype) for n in (shape, shape[1:3], shape[1:3])) for _ in range(2)]
    run_primitive("normalize_backward", outs[0], [grad, x, mean, scale, weight])
    reference("normalize_backward", outs[1], [grad, x, mean, scale, weight])
    for actual, expected in zip(*outs, strict=True):
        assert_close(actual, expected, TOLERANCES[name], np.abs(grad).max(initial=1))
    if not shared:
        alone = blank(shape, x.dtype)
        run_primitive("normalize_backward_input", alone, [grad, x, mean, scale, weight])
        assert_close(alone, outs[1][0], TOLERANCES[name], np.abs(grad).max(initial=1))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("given", range(4))
def test_standardize(name, shape, given):
    x, _, _, weight, bias = arguments(name, shape, False)
    parameters = [weight.copy()] * (given & 1) + [bias.copy()] * (given >> 1)
    outs = [tuple(blank(n, x.dtype) for n in (shape, shape[:2], shape[:2])) for _ in range(2)]
    run_primitive("standardize", outs[0], [x, *parameters], *shape[1:], 1e-5, given)
    reference(
        "standardize",
        outs[1],
        [x, *parameters],
        groups=shape[1],
        channels=shape[2],
        inner=shape[3],
        eps=1e-5,
        given=given,
    )
    for actual, expected in zip(*outs, strict=True):
        assert_close(actual, expected, TOLERANCES[name])


@pytest.mark.parametrize("name", TYPES)
def test_elements_may_begin_anywhere(name):
    for first in range(4):
        x = sample(name, (6 * 64 + 3,))[first : first + 6 * 64].reshape(6, 1, 64, 1)
        weight = sample(name, (67,), 1)[first : first + 64]
        outs = [tuple(blank(n, x.dtype) for n in (x.shape, (6,), (6,))) for _ in range(2)]
        run_primitive("standardize", outs[0], [x, weight], 1, 64, 1, 1e-5, 1)
        reference(
            "standardize", outs[1], [x, weight], groups=1, channels=64, inner=1, eps=1e-5, given=1
        )
        for actual, expected in zip(*outs, strict=True):
            assert_close(actual, expected, TOLERANCES[name])


@pytest.mark.parametrize("length", [64, 20_000])
def test_numbers_far_from_zero(length):
    x = (sample("f32", (3, 1, length, 1)) + 4096).astype(np.float32)
    out, mean, variance = (blank(n, x.dtype) for n in (x.shape, (3,), (3,)))
    run_primitive("standardize", (out, mean, variance), [x], 1, length, 1, 0.0, 0)
    wide = x.astype(np.float64).reshape(3, length)
    np.testing.assert_allclose(variance, wide.var(1), rtol=2**-20)
    np.testing.assert_allclose(mean, wide.mean(1), rtol=2**-23)


def test_equal_elements_have_no_variance():
    for value in (0.1, -3e7, 1e-30):
        x = np.full((2, 1, 3000, 1), value, np.float32)
        outs = blank(x.shape, x.dtype), blank((2,), x.dtype), blank((2,), x.dtype)
        run_primitive("standardize", outs, [x], 1, 3000, 1, 1e-5, 0)
        assert (outs[0] == 0).all() and (outs[1] == x[0, 0, 0, 0]).all() and (outs[2] == 0).all()


def test_infinities_are_not_standardized():
    x = np.ones((2, 1, 40, 1), np.float32)
    x[0, 0, 3] = np.inf
    outs = blank(x.shape, x.dtype), blank((2,), x.dtype), blank((2,), x.dtype)
    run_primitive("standardize", outs, [x], 1, 40, 1, 1e-5, 0)
    assert np.isnan(outs[0][0]).all() and (outs[0][1] == 0).all() and np.isnan(outs[2][0])


def test_nothing():
    for shape in ((0, 2, 3, 4), (2, 3, 4, 0)):
        x, weight = np.zeros(shape, np.float32), sample("f32", shape[1:3])
        statistics = np.ones(shape[:2], np.float32)
        outs = tuple(blank(n, x.dtype) for n in (shape, shape[1:3], shape[1:3]))
        run_primitive("normalize_backward", outs, [x, x, statistics, statistics, weight])
        assert (outs[1] == 0).all() and (outs[2] == 0).all()
        run_primitive("normalize", outs[0], [x, statistics, statistics, weight, weight])
        found = outs[0], blank((0,), x.dtype), blank((0,), x.dtype)
        run_primitive("standardize", found, [x], *shape[1:], 1e-5, 0)


def test_bad_calls_are_refused():
    x, found = np.ones(10, np.float32), np.ones(3, np.float32)
    for groups, channels, inner in ((1, 3, 1), (1, 5, 1), (0, 5, 1), (1, 0, 1), (1, -5, -1)):
        with pytest.raises(KernelError) as caught:
            run_primitive(
                "standardize", (x.copy(), found, found), [x], groups, channels, inner, 0.0, 0
            )
        assert caught.value.code == E_VALUE
    half = np.ones(10, np.float16)
    with pytest.raises(KernelError) as caught:
        run_primitive("standardize", (half.copy(), half, half), [half], 1, 10, 1, 0.0, 0)
    assert caught.value.code == E_DTYPE
