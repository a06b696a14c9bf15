"""Floating-point operations: formulas beside counts made by other means."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pullback as pb
from pullback.nn import functional as F
from pullback_profiler import profile
from pullback_profiler.record.flops import flops_of

SIZES = st.integers(1, 9)


def counted(function, name):
    with profile(with_flops=True) as p:
        function()
    return sum(e.flops or 0 for e in p.function_events if e.name == f"pullback::{name}")


@given(st.lists(SIZES, max_size=2), SIZES, SIZES, SIZES)
def test_products(batch, m, k, n):
    left, right = [*batch, m, k], [*batch, k, n]
    assert flops_of("matmul", [left, right], []) == 2 * math.prod(batch) * m * k * n
    assert flops_of("addmm", [(n,), (m, k), (k, n)], []) == 2 * m * k * n
    assert flops_of("mv", [(m, k), (k,)], []) == 2 * m * k
    assert flops_of("dot", [(k,), (k,)], []) == 2 * k


@pytest.mark.parametrize("padding", [0, 2, "same", "valid"])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (1, 2), (2, 1)])
def test_convolutions_count_the_weights_that_meet_their_results(padding, stride, dilation):
    if padding == "same" and stride != 1:
        stride = 1
    x, w = pb.ones(2, 4, 9, 7, requires_grad=True), pb.ones(6, 2, 3, 3, requires_grad=True)
    options = {"padding": padding, "stride": stride, "dilation": dilation, "groups": 2}
    out = F.conv2d(x, w, **options)
    expected = 2 * out.numel() * 2 * 9
    assert counted(lambda: F.conv2d(x, w, **options), "conv2d") == expected
    with profile(with_flops=True) as p:
        out.backward(pb.ones_like(out))
    found = {e.name: e.flops for e in p.function_events if e.flops}
    assert found["pullback::convolution_backward_input"] == expected
    assert found["pullback::convolution_backward_weight"] == expected


def test_convolutions_of_one_and_three_dims():
    x1, w1 = pb.ones(2, 3, 9), pb.ones(5, 3, 4)
    out = F.conv1d(x1, w1)
    assert counted(lambda: F.conv1d(x1, w1), "conv1d") == 2 * out.numel() * 12
    x3, w3 = pb.ones(2, 4, 4, 4), pb.ones(3, 2, 2, 2, 2)
    out = F.conv3d(x3, w3)
    assert counted(lambda: F.conv3d(x3, w3), "conv3d") == 2 * out.numel() * 16


def test_transposed_convolution():
    x, w = pb.ones(2, 3, 4, 4), pb.ones(3, 5, 2, 2)
    found = counted(lambda: F.conv_transpose2d(x, w), "conv_transpose2d")
    assert found == 2 * x.numel() * 5 * 4


def test_only_the_outermost_op_counts():
    x = pb.ones(4, 6)
    w = pb.ones(3, 6)
    with profile(with_flops=True) as p:
        F.linear(x, w, pb.ones(3))
        pb.einsum("ij,kj->ik", x, w)
    found = [(e.name, e.flops) for e in p.function_events if e.flops]
    assert found == [("pullback::linear", 2 * 4 * 6 * 3), ("pullback::bmm", 2 * 4 * 6 * 3)]


def test_in_place_and_numbers():
    assert flops_of("add_", [(3, 4), (4,)], [None, None]) == 12
    assert flops_of("mul", [(3, 4), None], [None, 2.0]) == 12
    assert flops_of("mul", [(0, 4), (1, 4)], [None, None]) == 0


def test_unknown_ops_and_arguments():
    assert flops_of("sort", [(3,)], [None]) is None
    assert flops_of("mm", [], []) is None
    assert flops_of("conv2d", [(3,), (3,)], [None, None]) is None
