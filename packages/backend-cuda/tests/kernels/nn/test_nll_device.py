"""The negative log likelihood of classes, forward and backward, against NumPy."""

import itertools

import numpy as np
import pytest
from primitive_calls import assert_close, blank, reference, run_primitive, sample

from pullback.testing.kernel_calls import E_DTYPE, E_INDEX, E_VALUE, KernelError

TOLERANCES = {"f32": 2**-21, "f64": 2**-43}
IGNORED = -100
NONE, MEAN, SUM = range(3)
SHAPES = [
    (5,),
    (1, 1),
    (7, 3),
    (3, 4, 5),
    (2, 9, 3, 2),
    (400, 10),
    (3, 8, 700),
    (6000, 2),
    (2, 4, 1, 8),
]


@pytest.fixture(autouse=True)
def device(fake_cuda):
    """The device, ready."""
    import pullback

    pullback.ones(1, device="cuda")
    return fake_cuda


def target_shape(shape):
    return (shape[0], *shape[2:]) if len(shape) > 1 else ()


def case(name, shape, seed=0):
    """Return elements, targets of which some are ignored, and weights."""
    rng = np.random.default_rng(seed)
    classes = shape[min(1, len(shape) - 1)]
    target = np.asarray(rng.integers(0, classes, target_shape(shape)))
    target = np.where(rng.random(target.shape) < 0.2, IGNORED, target)
    return sample(name, shape, seed), target, np.abs(sample(name, (classes,), seed + 1)) + 1


def check(primitive, name, out, wanted, ins, ignored, reduction):
    run_primitive(primitive, out, ins, ignored, reduction)
    reference(primitive, wanted, ins, ignored=ignored, reduction=reduction)
    assert_close(out, wanted, TOLERANCES[name])


@pytest.mark.parametrize("name", TOLERANCES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses(name, shape, reduction, weighted):
    x, target, weight = case(name, shape)
    shape = () if reduction else target.shape
    ins = [x, target, weight][: 3 if weighted else 2]
    for ignored in (IGNORED, 0) if (target >= 0).all() else (IGNORED,):
        out, wanted = blank(shape, x.dtype), blank(shape, x.dtype)
        check("nll_loss", name, out, wanted, ins, ignored, reduction)


@pytest.mark.parametrize("name", TOLERANCES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
@pytest.mark.parametrize("weighted", [False, True])
def test_backward(name, shape, reduction, weighted):
    x, target, weight = case(name, shape)
    grad = sample(name, () if reduction else target.shape, 7)
    ins = [grad, target, weight][: 3 if weighted else 2]
    out, wanted = blank(shape, x.dtype), blank(shape, x.dtype)
    check("nll_loss_backward", name, out, wanted, ins, IGNORED, reduction)


def test_elements_may_begin_anywhere():
    x, target, _ = case("f32", (8, 4))
    grad = sample("f32", target.shape)
    for first in range(4):
        room = blank((35,), x.dtype)
        out = room[first : first + 32].reshape(8, 4)
        check(
            "nll_loss_backward", "f32", out, blank((8, 4), x.dtype), [grad, target], IGNORED, NONE
        )
        assert (room[:first] == 77).all() and (room[first + 32 :] == 77).all()


def test_all_are_ignored():
    x = sample("f32", (4, 3))
    target = np.full(4, IGNORED)
    for reduction, expected in ((MEAN, np.nan), (SUM, 0)):
        out = blank((), x.dtype)
        run_primitive("nll_loss", out, [x, target], IGNORED, reduction)
        np.testing.assert_equal(out, np.float32(expected))
        grads = blank(x.shape, x.dtype)
        run_primitive("nll_loss_backward", grads, [out, target], IGNORED, reduction)
        assert (grads == 0).all()


def test_a_class_may_be_ignored():
    x, _, weight = case("f64", (50, 4))
    target = np.arange(50) % 4
    for reduction, ignored in itertools.product((NONE, MEAN, SUM), (0, 2)):
        shape = () if reduction else target.shape
        out, wanted = blank(shape, x.dtype), blank(shape, x.dtype)
        check("nll_loss", "f64", out, wanted, [x, target, weight], ignored, reduction)
        grads = blank(x.shape, x.dtype), blank(x.shape, x.dtype)
        check("nll_loss_backward", "f64", *grads, [out, target, weight], ignored, reduction)


def test_no_targets():
    x, target = np.zeros((0, 3), np.float32), np.zeros(0, np.int64)
    for reduction, expected in ((MEAN, np.nan), (SUM, 0)):
        out = blank((), x.dtype)
        run_primitive("nll_loss", out, [x, target], IGNORED, reduction)
        np.testing.assert_equal(out, np.float32(expected))
        run_primitive("nll_loss_backward", x, [out, target], IGNORED, reduction)
    run_primitive("nll_loss", np.zeros(0, np.float32), [x, target], IGNORED, NONE)


@pytest.mark.parametrize("wrong", [3, -1, 2**62, -(2**63)])
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
@pytest.mark.parametrize("classes", [3, 0])
def test_no_class(wrong, reduction, classes):
    x = sample("f32", (5, classes))
    target = np.full(5, IGNORED)
    target[4] = wrong
    out = blank(() if reduction else (5,), x.dtype)
    for primitive, outs, source in (("nll_loss", out, x), ("nll_loss_backward", x.copy(), out)):
        with pytest.raises(KernelError) as caught:
            run_primitive(primitive, outs, [source, target], IGNORED, reduction)
        assert caught.value.code == E_INDEX
        assert caught.value.message == f"Target {wrong} is out of bounds."


def test_bad_calls_are_refused():
    x, target, out = sample("f32", (5, 3)), np.zeros(4, np.int64), np.zeros(5, np.float32)
    with pytest.raises(KernelError) as caught:
        run_primitive("nll_loss", out, [x, target], IGNORED, NONE)
    assert caught.value.code == E_VALUE
    with pytest.raises(KernelError) as caught:
        run_primitive(
            "nll_loss", out, [x, np.zeros(5, np.int64), np.ones(2, np.float32)], IGNORED, NONE
        )
    assert caught.value.code == E_VALUE
    half = x.astype(np.float16)
    with pytest.raises(KernelError) as caught:
        run_primitive("nll_loss", half[:, 0].copy(), [half, np.zeros(5, np.int64)], IGNORED, NONE)
    assert caught.value.code == E_DTYPE
