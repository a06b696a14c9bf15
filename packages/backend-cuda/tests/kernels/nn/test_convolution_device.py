"""Convolutions, forward and backward, against NumPy."""

import numpy as np
import pytest
from primitive_calls import assert_close, begin, blank, reference, run_primitive, sample

from pullback.testing.kernel_calls import E_VALUE, KernelError

TOLERANCES = {"f32": 2**-17, "f64": 2**-46}


@pytest.fixture(autouse=True)
def device(request):
    """The fake device, ready."""
    begin(request)


# (images, groups, channels of a group in and out, sizes, kernel, stride, padding, dilation)
CASES = {
    "line": (2, 1, 3, 5, (17,), (3,), (1,), (1,), (1,)),
    "plane": (2, 1, 3, 4, (9, 8), (3, 3), (1, 1), (1, 1), (1, 1)),
    "volume": (1, 1, 2, 3, (5, 6, 4), (2, 3, 2), (1, 2, 1), (1, 0, 1), (1, 1, 2)),
    "stride": (2, 1, 9, 8, (11, 10), (3, 3), (2, 2), (1, 1), (1, 1)),
    "stride 3, dilation 2": (2, 1, 8, 9, (13, 14), (3, 2), (3, 3), (2, 1), (2, 2)),
    "stride 4, dilation 6": (2, 1, 8, 8, (30,), (4,), (4,), (5,), (6,)),
    "stride 6, dilation 4": (1, 1, 8, 8, (40,), (5,), (6,), (3,), (4,)),
    "stride beyond the size": (2, 1, 8, 8, (3, 12), (2, 3), (5, 4), (1, 1), (1, 1)),
    "dilation": (2, 1, 8, 16, (12, 12), (3, 3), (1, 1), (2, 2), (2, 2)),
    "one window": (20, 1, 30, 40, (4, 4), (4, 4), (1, 1), (0, 0), (1, 1)),
    "kernel positions": (3, 1, 40, 70, (9, 9), (1, 1), (1, 1), (0, 0), (1, 1)),
    "channels": (2, 1, 20, 66, (12, 12), (3, 3), (1, 1), (1, 1), (1, 1)),
    "large tiles": (3, 1, 130, 128, (7, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    "depthwise": (2, 6, 1, 1, (9, 9), (3, 3), (1, 1), (1, 1), (1, 1)),
    "depthwise, stride": (2, 6, 1, 2, (9, 9), (5, 3), (2, 2), (2, 1), (1, 1)),
    "groups": (2, 3, 4, 10, (10, 9), (3, 3), (1, 2), (1, 1), (1, 1)),
    "padding beyond the kernel": (2, 1, 8, 8, (5, 5), (2, 2), (1, 1), (4, 4), (1, 1)),
    "many images": (70, 1, 3, 4, (9, 8), (3, 3), (1, 1), (1, 1), (1, 1)),
}


class Case:
    """The operands of a case, and what the primitives should make of them."""

    def __init__(self, key, name):
        images, groups, c, o, sizes, kernel, stride, padding, dilation = CASES[key]
        counts = tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True)
        )
        self.parameters = (*stride, *padding, *dilation, groups)
        self.image = sample(name, (images, groups * c, *sizes))
        self.weight = sample(name, (groups * o, c, *kernel), seed=1)
        self.windows = sample(name, (images, groups * o, *counts), seed=2)

    def run(self, primitive, *bias):
        """Return what a primitive makes of the operands, and what the reference makes."""
        out, ins = {
            "conv": (self.windows, [self.image, self.weight]),
            "conv_backward_input": (self.image, [self.windows, self.weight]),
            "conv_backward_weight": (self.weight, [self.image, self.windows]),
        }[primitive]
        results = blank(out.shape, out.dtype), blank(out.shape, out.dtype)
        run_primitive(primitive, results[0], [*ins, *bias], self.parameters)
        reference(primitive, results[1], [*ins, *bias], conv_params=self.parameters)
        return results


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("key", CASES)
@pytest.mark.parametrize("primitive", ["conv", "conv_backward_input", "conv_backward_weight"])
def test_convolution(name, key, primitive):
    case = Case(key, name)
    actual, expected = case.run(primitive)
    assert_close(actual, expected, TOLERANCES[name])


@pytest.mark.parametrize("key", ["line", "channels", "groups", "one window", "stride"])
@pytest.mark.parametrize("primitive", ["conv", "conv_backward_input"])
def test_bias(key, primitive):
    case = Case(key, "f32")
    channels = (case.windows if primitive == "conv" else case.image).shape[1]
    actual, expected = case.run(primitive, sample("f32", (channels,), seed=3))
    assert_close(actual, expected, TOLERANCES["f32"])


@pytest.mark.parametrize("key", ["plane", "channels", "stride", "one window", "groups"])
@pytest.mark.parametrize("primitive", ["conv", "conv_backward_input", "conv_backward_weight"])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_numbers_that_are_not_finite(key, primitive, value):
    """Padding is multiplied as zeros are; of windows that are not there nothing is."""
    case = Case(key, "f32")
    case.weight[1, 0].flat[0] = value
    case.weight[0, 1].flat[-1] = -value
    case.windows[0, 0].flat[0] = value
    actual, expected = case.run(primitive)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    np.testing.assert_array_equal(np.isposinf(actual), np.isposinf(expected))


@pytest.mark.parametrize("count, c, o", [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_sums_of_nothing(count, c, o):
    bias, parameters = np.arange(1, 5, dtype=np.float32), (1, 1, 1, 1, 1, 1, 1)
    shapes = (count, c, 9, 8), (o, c, 3, 3), (count, o, 9, 8)
    image, weight, windows = (np.ones(shape, np.float32) for shape in shapes)
    run_primitive("conv", windows, [image, weight, bias[:o]], parameters)
    np.testing.assert_array_equal(windows, np.broadcast_to(bias[:o, None, None], windows.shape))
    run_primitive("conv_backward_input", image, [windows, weight, bias[:c]], parameters)
    np.testing.assert_array_equal(image, np.broadcast_to(bias[:c, None, None], image.shape))
    run_primitive("conv_backward_weight", weight, [image, windows], parameters)
    assert not weight.any()


def test_sums_are_the_same_every_time():
    case = Case("one window", "f32")
    for primitive in ("conv", "conv_backward_input", "conv_backward_weight"):
        first, second = case.run(primitive)[0], case.run(primitive)[0]
        np.testing.assert_array_equal(first, second)


def test_operands_that_do_not_fit_together_raise():
    image, weight = np.zeros((2, 4, 9), np.float32), np.zeros((6, 4, 3), np.float32)
    out = blank((2, 6, 7), image.dtype)
    for parameters in (
        (1, 0, 1),
        (1, 0, 1, 0),
        (0, 0, 1, 1),
        (1, 0, 0, 1),
        (1, -1, 1, 1),
        (1, 0, 1, 2),
        (1, 0, 1, 4),
    ):
        with pytest.raises(KernelError) as error:
            run_primitive("conv", out, [image, weight], parameters)
        assert error.value.code == E_VALUE
