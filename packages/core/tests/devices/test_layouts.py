"""Layouts that a backend prefers: kernels get them, results have them, values stay the same."""

import numpy as np
import pytest
from library_device import load

import pullback as pb
from pullback.backend import masks
from pullback.backend.array_library import ArrayLibrary
from pullback.nn import functional as F
from pullback.ops import ENTRIES
from pullback.testing.runner import run_check

LIBRARY = ArrayLibrary("numpy")
FLOATS = masks.F32 | masks.F64
SEEN = []  # of each call of a kernel: its name and its arrays

LAST = dict.fromkeys(("conv", "conv_backward_input", "conv_backward_weight"), "channels_last")


def convolve(x, weight, stride, padding, dilation, groups):
    """A convolution, written out."""
    x = np.pad(x, ((0, 0), (0, 0), *((one, one) for one in padding)))
    size = [(n - 1) * step + 1 for n, step in zip(weight.shape[2:], dilation)]
    windows = np.lib.stride_tricks.sliding_window_view(x, size, tuple(range(2, x.ndim)))
    windows = windows[(..., *(slice(None, None, step) for step in dilation))]
    windows = windows[(slice(None), slice(None), *(slice(None, None, step) for step in stride))]
    windows = windows.reshape(len(x), groups, -1, *windows.shape[2:])
    weight = weight.reshape(groups, -1, *weight.shape[1:])
    out, inner = "xyz"[: len(size)], "uvw"[: len(size)]
    found = np.einsum(f"ngc{out}{inner},goc{inner}->ngo{out}", windows, weight)
    return found.reshape(len(x), -1, *found.shape[3:])


def convolution(out, x, weight, bias=None, *, conv_params):
    arrays = [LIBRARY.view(one) for one in (out, x, weight)]
    SEEN.append(("conv", arrays))
    dims = len(conv_params) // 3
    parts = (conv_params[i * dims : (i + 1) * dims] for i in range(3))
    found = convolve(*arrays[1:], *parts, conv_params[-1])
    arrays[0][...] = found[tuple(map(slice, arrays[0].shape))]
    if bias is not None:
        arrays[0][...] += LIBRARY.view(bias).reshape(-1, *[1] * dims)


def multiplication(out, a, b):
    arrays = [LIBRARY.view(one) for one in (out, a, b)]
    SEEN.append(("bmm", arrays))
    np.matmul(arrays[1], arrays[2], out=arrays[0])


def register(table):
    table.add("conv", FLOATS, convolution)
    table.add("bmm", FLOATS, multiplication)


@pytest.fixture(scope="session")
def device():
    """A device that prefers other layouts, with kernels of two primitives."""
    return load("ordered", LIBRARY, register, {**LAST, "bmm": "column_major"})


@pytest.fixture(autouse=True)
def _forget():
    SEEN.clear()


def is_channels_last(array):
    return np.moveaxis(array, 1, -1).flags.c_contiguous


pytestmark = pytest.mark.filterwarnings("ignore:.*has no kernel")


@pytest.mark.parametrize("dtype", [pb.float32, pb.float64, pb.float16], ids=str)
@pytest.mark.parametrize("options", [{}, {"stride": 2, "padding": 1}, {"groups": 2, "dilation": 2}])
def test_convolutions_have_channels_last(device, dtype, options):
    x = pb.randn(2, 4, 7, 6).to(dtype)
    weight = pb.randn(6, 4 // options.get("groups", 1), 3, 2).to(dtype)
    found = F.conv2d(x.to(device), weight.to(device), **options)
    ((_, arrays),) = SEEN
    assert all(map(is_channels_last, arrays))
    assert found.is_contiguous(memory_format=pb.channels_last)
    pb.testing.assert_close(found.cpu(), F.conv2d(x, weight, **options))


def test_layout_stays_through_a_network(device):
    """Elementwise ops keep it, so that the next convolution does not copy its input."""
    first, second = pb.randn(4, 3, 3, 3, device=device), pb.randn(5, 4, 3, 3, device=device)
    hidden = F.relu(F.conv2d(pb.randn(2, 3, 8, 8, device=device), first))
    assert hidden.is_contiguous(memory_format=pb.channels_last)
    F.conv2d(hidden, second)
    hidden.fill_(7.0)
    assert (SEEN[1][1][1] == 7).all()  # it is hidden's memory


def test_gradients_of_convolutions(device):
    given = [pb.randn(2, 4, 6, 5), pb.randn(6, 2, 3, 3), pb.randn(6)]
    results = []
    for where in ("cpu" if pb.get_default_device().type == "cpu" else "ref", device):
        x, weight, bias = (one.to(where).detach().requires_grad_() for one in given)
        out = F.conv2d(x, weight, bias, padding=1, groups=2).sin()
        grads = pb.autograd.grad(out.sum(), (x, weight, bias), create_graph=True)
        second = pb.autograd.grad(sum((one**2).sum() for one in grads), (x, weight))
        results.append([one.cpu() for one in (out, *grads, *second)])
    for expected, found in zip(*results):
        pb.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "sizes", [((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((1, 4), (4, 1)), ((0, 4), (4, 5))]
)
def test_products_have_columns_in_one_piece(device, sizes):
    a, b = (pb.randn(*size) for size in sizes)
    found = a.to(device) @ b.to(device)
    assert found.mT.is_contiguous()
    assert found.shape == (*sizes[0][:-1], sizes[1][-1])
    pb.testing.assert_close(found.cpu(), a @ b)
    added = pb.baddbmm if a.ndim == 3 else pb.addmm
    pb.testing.assert_close(
        added(pb.ones((), device=device), a.to(device), b.to(device), beta=2, alpha=3).cpu(),
        2 + 3 * (a @ b),
    )


@pytest.mark.parametrize(
    "sizes", [((4,), (4,)), ((3, 4), (4,)), ((2, 5, 3, 4), (4, 6)), ((5, 1, 3, 4), (2, 4, 6))]
)
def test_other_products_are_right(device, sizes):
    a, b = (pb.randn(*size, dtype=pb.float64) for size in sizes)
    pb.testing.assert_close((a.to(device) @ b.to(device)).cpu(), a @ b)
    assert SEEN


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose1d", "bmm"])
@pytest.mark.parametrize("check", ["value", "grad", "gradgrad", "batch", "compiled"])
def test_conformance(device, name, check):
    found = run_check(check, ENTRIES[name], device)
    assert found.failures == []
    assert found.samples


@pytest.mark.parametrize(
    "layouts", [{"conv": "column_major"}, {"add": "channels_last"}, {"bmm": 1}, {"nosuch": "x"}]
)
def test_layouts_that_there_are_not(layouts):
    with pytest.raises(RuntimeError, match=r"ValueError: backend .*pullback_layouts\(\) returned"):
        load("disordered", LIBRARY, register, layouts)
