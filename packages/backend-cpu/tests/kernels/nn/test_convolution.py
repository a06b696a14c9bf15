"""Convolutions and their derivatives."""

from __future__ import annotations

import copy
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import DTYPES, run_kernel
from layouts import error_of_sums, sample
from pullback_cpu.runtime.threads import get_num_threads, set_num_threads

from pullback.testing.kernel_calls import E_MEMORY, KernelError

REAL = ("f32", "f64")


class Case:
    """Operands of one convolution, and what it gives by the definition."""

    def __init__(
        self, dtype, images, groups, channels, made, kernel, stride, padding, dilation, size
    ):
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.groups, self.kernel, self.size = groups, kernel, size
        self.counts = tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
        )
        self.parameters = (*stride, *padding, *dilation, groups)
        self.image = sample(dtype, (images, groups * channels, *size), seed=1)
        self.weight = sample(dtype, (groups * made, channels, *kernel), seed=2)
        self.windows = sample(dtype, (images, groups * made, *self.counts), seed=3)

    def absolute(self) -> Case:
        """Return the same with operands that are not negative."""
        made = copy.copy(self)
        for name in ("image", "weight", "windows"):
            setattr(made, name, np.abs(getattr(self, name)))
        return made

    def pad(self, image: np.ndarray) -> np.ndarray:
        return np.pad(image, [(0, 0), (0, 0), *((p, p) for p in self.padding)])

    def split(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(len(array), self.groups, -1, *array.shape[2:])

    def positions(self, padded: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """Yield positions in the kernel and views of the elements under each."""
        for position in itertools.product(*map(range, self.kernel)):
            spots = [
                slice(k * d, k * d + (n - 1) * s + 1, s)
                for k, d, n, s in zip(
                    position, self.dilation, self.counts, self.stride, strict=True
                )
            ]
            yield position, self.split(padded)[(..., *spots)]

    def weight_at(self, position: tuple[int, ...]) -> np.ndarray:
        weight = self.weight.astype(float)
        return weight.reshape(self.groups, -1, *weight.shape[1:])[(..., *position)]

    def map(self) -> np.ndarray:
        total = np.zeros(self.split(self.windows).shape)
        for position, part in self.positions(self.pad(self.image.astype(float))):
            total += np.einsum("ngc...,goc->ngo...", part, self.weight_at(position))
        return total.reshape(self.windows.shape)

    def backward_input(self) -> np.ndarray:
        padded = self.pad(np.zeros(self.image.shape))
        for position, part in self.positions(padded):
            part += np.einsum(
                "ngo...,goc->ngc...", self.split(self.windows), self.weight_at(position)
            )
        inside = [slice(p, p + n) for p, n in zip(self.padding, self.image.shape[2:], strict=True)]
        return padded[(..., *inside)]

    def weights(self) -> np.ndarray:
        total = np.zeros((self.groups, len(self.weight) // self.groups, *self.weight.shape[1:]))
        given = self.split(self.windows.astype(float))
        given = given.reshape(*given.shape[:3], -1)
        for position, part in self.positions(self.pad(self.image.astype(float))):
            part = part.reshape(*part.shape[:3], -1)
            total[(..., *position)] = np.einsum("ngcw,ngow->goc", part, given)
        return total.reshape(self.weight.shape)


def assert_near(found: np.ndarray, expected: np.ndarray, terms: int, sizes: np.ndarray) -> None:
    assert (np.abs(found - expected) <= error_of_sums(found.dtype, terms, sizes)).all()


def check(case: Case) -> None:
    sizes, taps = case.absolute(), math.prod(case.kernel)
    for primitive, like, first, second, definition, terms in (
        ("conv", case.windows, case.image, case.weight, Case.map, taps * case.weight.shape[1]),
        (
            "conv_backward_input",
            case.image,
            case.windows,
            case.weight,
            Case.backward_input,
            taps * (len(case.weight) // case.groups),
        ),
        (
            "conv_backward_weight",
            case.weight,
            case.image,
            case.windows,
            Case.weights,
            len(case.image) * math.prod(case.counts),
        ),
    ):
        out = np.full_like(like, np.nan)
        run_kernel(primitive, out, [first, second], case.parameters)
        expected, room = definition(case), definition(sizes)
        assert_near(out, expected, terms, room)
        if primitive != "conv_backward_weight":
            bias = sample(found_name(out), out.shape[1:2], seed=4)
            run_kernel(primitive, out, [first, second, bias], case.parameters)
            bias = bias.reshape(-1, *[1] * (out.ndim - 2))
            assert_near(out, expected + bias, terms + 1, room + np.abs(bias))


def found_name(array: np.ndarray) -> str:
    return next(name for name, dtype in DTYPES.items() if dtype == array.dtype)


CASES = {
    "plain": (2, 1, 3, 5, (3, 3), (1, 1), (0, 0), (1, 1), (9, 11)),
    "padded": (3, 1, 16, 31, (3, 3), (1, 1), (1, 1), (1, 1), (8, 35)),
    "strided": (2, 1, 17, 15, (3, 2), (2, 3), (1, 2), (1, 1), (9, 20)),
    "every second": (2, 1, 6, 15, (3, 3), (2, 2), (1, 2), (1, 1), (19, 95)),
    "dilated": (1, 2, 4, 3, (3, 3), (1, 2), (2, 0), (2, 3), (12, 16)),
    "pointwise": (2, 1, 33, 20, (1, 1), (1, 1), (0, 0), (1, 1), (7, 9)),
    "sparse": (2, 1, 5, 6, (1, 1), (3, 4), (1, 0), (1, 1), (7, 9)),
    "depthwise": (2, 6, 1, 1, (5, 3), (1, 1), (2, 1), (1, 1), (8, 37)),
    "wide stride": (1, 1, 2, 2, (2, 2), (5, 7), (0, 0), (1, 1), (20, 30)),
    "much padding": (1, 1, 3, 4, (2, 2), (2, 1), (4, 5), (1, 1), (3, 4)),
    "one window": (2, 1, 2, 3, (3, 2), (1 << 62, 1 << 40), (1, 0), (1, 1), (4, 5)),
    "line": (3, 1, 16, 32, (5,), (1,), (2,), (1,), (300,)),
    "volume": (2, 2, 3, 4, (2, 3, 2), (1, 2, 1), (1, 0, 1), (1, 1, 2), (5, 6, 7)),
    "windows of one channel": (5, 1, 1, 9, (3, 3), (1, 1), (1, 1), (1, 1), (12, 13)),
    "many positions": (1, 1, 1, 8, (7, 7), (1, 1), (3, 3), (1, 1), (28, 28)),
}


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("name", CASES)
def test_cases(dtype, name):
    check(Case(dtype, *CASES[name]))


@pytest.mark.parametrize("name", ["padded", "strided", "depthwise", "line", "many positions"])
def test_threads_make_no_difference(name):
    case = Case("f32", *CASES[name])
    before = get_num_threads()
    try:
        found = []
        for count in (1, 3):
            set_num_threads(count)
            out = np.zeros_like(case.windows)
            run_kernel("conv", out, [case.image, case.weight], case.parameters)
            weight = np.zeros_like(case.weight)
            run_kernel("conv_backward_weight", weight, [case.image, case.windows], case.parameters)
            found.append([out, weight])
            check(case)
    finally:
        set_num_threads(before)
    for one, other in zip(*found):
        np.testing.assert_array_equal(one, other)


@st.composite
def parameter_sets(draw):
    rank = draw(st.integers(1, 3))
    sizes = st.integers(1, 3)
    kernel, stride, dilation = (
        tuple(draw(st.lists(sizes, min_size=rank, max_size=rank))) for _ in range(3)
    )
    padding = tuple(draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank)))
    size = tuple(
        draw(st.integers(max(1, d * (k - 1) + 1 - 2 * p), d * (k - 1) + 12))
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    )
    numbers = [draw(st.integers(1, 3)) for _ in range(2)]
    channels = [draw(st.sampled_from([1, 2, 8, 17])) for _ in range(2)]
    return (*numbers, *channels, kernel, stride, padding, dilation, size)


@given(st.sampled_from(REAL), parameter_sets())
@settings(max_examples=60, deadline=None)
def test_any_parameters(dtype, parameters):
    check(Case(dtype, *parameters))


def test_infinities_stay_where_they_belong():
    case = Case("f32", 1, 1, 2, 3, (3, 3), (1, 1), (0, 0), (1, 1), (8, 9))
    case.image[0, 0, 0, 8] = np.inf
    out = np.zeros_like(case.windows)
    run_kernel("conv", out, [case.image, case.weight], case.parameters)
    assert not np.isfinite(out[..., 0, 6]).any()
    assert np.isfinite(out[..., 1:, :]).all()
    assert np.isfinite(out[..., :6]).all()
    sums = np.zeros_like(case.weight)
    run_kernel("conv_backward_weight", sums, [case.image, case.windows], case.parameters)
    assert not np.isfinite(sums[:, 0, 0, 2]).any()
    assert np.isfinite(sums[:, 1]).all()
    assert np.isfinite(sums[:, 0, 1:]).all()
    assert np.isfinite(sums[:, 0, 0, :2]).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("name", CASES)
def test_weights_that_are_not_finite_meet_no_padding(name, value):
    case = Case("f64", *CASES[name])
    case.weight[0, 0, 0] = case.weight[-1, -1, -1] = value
    bias = sample("f64", case.image.shape[1:2], seed=4)
    out = np.zeros_like(case.image)
    run_kernel("conv_backward_input", out, [case.windows, case.weight, bias], case.parameters)
    with np.errstate(invalid="ignore"):
        expected = definition_of_backward_input(case) + bias.reshape(-1, *[1] * (out.ndim - 2))
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-10)


def definition_of_backward_input(case: Case) -> np.ndarray:
    """Add product by product: einsum may multiply zeros that it has filled up with."""
    padded = case.pad(np.zeros(case.image.shape))
    windows = case.split(case.windows)
    for position, part in case.positions(padded):
        weight = case.weight_at(position)
        for o, c in np.ndindex(weight.shape[1:]):
            factor = weight[:, o, c].reshape(1, -1, *[1] * len(case.size))
            part[:, :, c] += windows[:, :, o] * factor
    inside = [slice(p, p + n) for p, n in zip(case.padding, case.size, strict=True)]
    return padded[(..., *inside)]


@pytest.mark.parametrize(
    ("stride", "padding", "dilation"),
    [(1 << 62, 1 << 61, 1), (1, 1 << 61, 1 << 62), (1 << 40, 1 << 40, 1)],
)
@pytest.mark.parametrize("primitive", ["conv", "conv_backward_input", "conv_backward_weight"])
def test_paddings_beyond_any_memory(primitive, stride, padding, dilation):
    size, taps = 5, 2
    count = (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1
    image, weight = sample("f32", (1, 1, size)), sample("f32", (1, 1, taps))
    windows = sample("f32", (1, 1, count))
    operands = {
        "conv": (windows, image, weight),
        "conv_backward_input": (image, windows, weight),
        "conv_backward_weight": (weight, image, windows),
    }
    out, *ins = operands[primitive]
    with pytest.raises(KernelError) as caught:
        run_kernel(primitive, out, ins, (stride, padding, dilation, 1))
    assert caught.value.code == E_MEMORY


IMAGES_OF_PADDING = """
import resource
import numpy as np
from kernel_calls import run_kernel
from pullback_cpu.runtime.threads import set_num_threads
set_num_threads(1)
run_kernel("conv_backward_weight", np.zeros((1, 8, 1, 1), np.float32),
           [np.zeros((1, 8, 1, 1), np.float32), np.zeros((1, 1, 1, 1), np.float32)],
           (1, 1, 0, 0, 1, 1, 1))
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
image, windows = np.ones((2048, 8, 1, 1), np.float32), np.ones((2048, 1, 3, 3), np.float32)
out = np.zeros((1, 8, 1, 1), np.float32)
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29),) * 2)
run_kernel("conv_backward_weight", out, [image, windows], (80, 80, 80, 80, 1, 1, 1))
assert (out == 2048).all()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_not_all_images_of_a_batch_are_padded_at_the_same_time():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", IMAGES_OF_PADDING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_nothing_to_sum():
    out = np.full((2, 3, 4), np.nan, np.float32)
    image, windows = np.zeros((0, 3, 8), np.float32), np.zeros((0, 2, 5), np.float32)
    run_kernel("conv_backward_weight", out, [image, windows], (1, 0, 1, 1))
    assert (out == 0).all()
