"""``nn.functional``: max, average, p-norm and adaptive pooling, and max_unpool."""

import math

import pytest
from numpy.testing import assert_allclose

import pullback as pb

F = pb.nn.functional
gradcheck, gradgradcheck = pb.autograd.gradcheck, pb.autograd.gradgradcheck
NAN, INF = math.nan, math.inf


def draw(*shape, grad=False):
    return pb.randn(*shape, dtype=pb.float64).requires_grad_(grad)


def row(*values, **options):
    return pb.tensor([values], dtype=pb.float64, **options)


# the largest element


def test_max_pool_values_and_indices():
    x = pb.tensor([[[1.0, 5.0, 2.0, 0.0], [3.0, 4.0, 8.0, 7.0]]])
    values, indices = F.max_pool2d(x, 2, return_indices=True)
    assert values.tolist() == [[[5.0, 8.0]]]
    assert indices.tolist() == [[[1, 6]]]
    assert indices.dtype == pb.int64 and not indices.requires_grad


def test_first_of_equal_elements_gets_the_gradient():
    x = pb.ones(1, 1, 4, 4, dtype=pb.float64, requires_grad=True)
    F.max_pool2d(x, 2).sum().backward()
    assert x.grad[0, 0].tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]]


def test_nan_wins_and_the_last_one_is_named():
    x = row(1.0, NAN, 3.0, NAN, 0.0, -INF)
    values, indices = F.max_pool1d(x, 2, return_indices=True)
    assert math.isnan(values[0, 0]) and math.isnan(values[0, 1]) and values[0, 2] == 0
    assert indices.tolist() == [[1, 3, 4]]
    assert F.max_pool1d(x, 4, 1, return_indices=True)[1].tolist() == [[3, 3, 3]]


def test_padding_is_never_chosen():
    x = row(-INF, -INF, -5.0)
    values, indices = F.max_pool1d(x, 2, 2, 1, return_indices=True)
    assert values.tolist() == [[-INF, -5.0]] and indices.tolist() == [[0, 2]]
    integers = pb.tensor([[[-4, -3], [-9, -2]]])
    assert F.max_pool2d(integers, 2, 2, 1).tolist() == [[[-4, -3], [-9, -2]]]


def test_ceil_mode_adds_windows_that_begin_inside():
    x = row(1.0, 2.0, 3.0, 4.0, 5.0)
    assert F.max_pool1d(x, 2, 2).tolist() == [[2, 4]]
    assert F.max_pool1d(x, 2, 2, ceil_mode=True).tolist() == [[2, 4, 5]]
    assert F.max_pool1d(x, 2, 3, 1, ceil_mode=True).tolist() == [[1, 4]]
    assert x.tolist() == [[1, 2, 3, 4, 5]]


def test_dilated_windows():
    x = row(9.0, 1.0, 2.0, 8.0, 3.0)
    assert F.max_pool1d(x, 2, 1, dilation=3).tolist() == [[9, 3]]


def test_stride_is_the_kernel_by_default():
    x = draw(1, 1, 6, 6)
    for stride in (None, (), [], 3):
        assert F.max_pool2d(x, 3, stride).shape == (1, 1, 2, 2)


def test_a_window_of_many_elements():
    x = -pb.arange(1000.0)
    values, indices = F.max_pool1d(x.reshape(1, -1), 600, 1, return_indices=True)
    assert indices[0].tolist() == list(range(401))
    assert values.tolist() == x[:401].reshape(1, -1).tolist()
    rising = pb.arange(1000.0).reshape(1, -1)
    assert F.max_pool1d(rising, 600, 400, return_indices=True)[1].tolist() == [[599, 999]]


def test_names_with_indices():
    x = draw(1, 1, 4, 4)
    values, indices = F.max_pool2d_with_indices(x, 2)
    assert_allclose(values.numpy(), F.max_pool2d(x, 2).numpy())
    assert F.adaptive_max_pool2d_with_indices(x, 2)[1].tolist() == indices.tolist()


def test_node_names():
    x = draw(1, 1, 4, 4, grad=True)
    assert F.max_pool2d(x, 2).grad_fn.name() == "MaxPool2DWithIndicesBackward0"
    assert F.avg_pool2d(x, 2).grad_fn.name() == "AvgPool2DBackward0"
    assert F.adaptive_avg_pool2d(x, 3).grad_fn.name() == "AdaptiveAvgPool2DBackward0"
    assert F.adaptive_max_pool2d(x, 3).grad_fn.name() == "AdaptiveMaxPool2DBackward0"


# the mean


def test_avg_pool_counts_padding_or_not():
    x = row(2.0, 4.0, 6.0)
    assert F.avg_pool1d(x, 2, 2, 1).tolist() == [[1.0, 5.0]]
    assert F.avg_pool1d(x, 2, 2, 1, count_include_pad=False).tolist() == [[2.0, 5.0]]
    # the part of the last window outside the padding is not counted
    assert F.avg_pool1d(x, 2, 2, ceil_mode=True).tolist() == [[3.0, 6.0]]


def test_divisor():
    x = pb.ones(1, 4, 4)
    assert F.avg_pool2d(x, 2, divisor_override=8).tolist() == [[[0.5, 0.5], [0.5, 0.5]]]
    with pytest.raises(RuntimeError, match="divisor must be not zero"):
        F.avg_pool2d(x, 2, divisor_override=0)


def test_integers_are_divided_towards_zero():
    x = pb.tensor([[[-3, 0], [7, 0]]])
    assert F.avg_pool2d(x, (1, 2)).tolist() == [[[-1], [3]]]
    assert F.avg_pool2d(x, (1, 2), divisor_override=-2).tolist() == [[[1], [-3]]]


def test_nan_and_infinity_stay_in_their_windows():
    x = row(1.0, INF, 3.0, 5.0, NAN, 1.0)
    found = F.avg_pool1d(x, 2)[0].tolist()
    assert found[0] == INF and found[1] == 4 and math.isnan(found[2])


def test_lp_pool():
    x = row(3.0, 4.0, 6.0, 8.0)
    assert_allclose(F.lp_pool1d(x, 2, 2).numpy(), [[5.0, 10.0]])
    squares = pb.tensor([[[3.0, 4.0], [0.0, 0.0]]])
    assert_allclose(F.lp_pool2d(squares, 2, 2).numpy(), [[[5.0]]])
    assert_allclose(F.lp_pool2d(squares, 1, (1, 2)).numpy(), [[[7.0], [0.0]]])


def test_adaptive_windows_overlap():
    x = row(1.0, 2.0, 3.0, 4.0, 5.0)
    assert F.adaptive_avg_pool1d(x, 3).tolist() == [[1.5, 3.0, 4.5]]
    assert F.adaptive_max_pool1d(x, 3, return_indices=True)[1].tolist() == [[1, 3, 4]]
    assert F.adaptive_avg_pool1d(x, 7).shape == (1, 7)


def test_adaptive_sizes():
    x = draw(2, 3, 4, 6)
    assert F.adaptive_avg_pool2d(x, (None, 3)).shape == (2, 3, 4, 3)
    assert F.adaptive_max_pool2d(x, 5).shape == (2, 3, 5, 5)
    assert F.adaptive_avg_pool2d(x, 0).shape == (2, 3, 0, 0)
    assert_allclose(
        F.adaptive_avg_pool2d(x, 1).numpy(), x.mean((2, 3), keepdim=True).numpy(), atol=1e-15
    )


# back again


def test_max_unpool_undoes_max_pool():
    x = pb.tensor([[[1.0, 5.0, 2.0, 0.0], [3.0, 4.0, 8.0, 7.0]]])
    values, indices = F.max_pool2d(x, 2, return_indices=True)
    back = F.max_unpool2d(values, indices, 2)
    assert back.tolist() == [[[0, 5, 0, 0], [0, 0, 8, 0]]]
    assert F.max_unpool2d(values, indices, 2, output_size=(3, 5)).shape == (1, 3, 5)


def test_max_unpool_refuses():
    x = draw(1, 1, 4, 4)
    values, indices = F.max_pool2d(x, 2, return_indices=True)
    with pytest.raises(ValueError, match=r"dim 0 must be between 2 and 6"):
        F.max_unpool2d(values, indices, 2, output_size=(9, 9))
    with pytest.raises(ValueError, match="output_size should be a sequence containing"):
        F.max_unpool2d(values, indices, 2, output_size=(4,))
    with pytest.raises(RuntimeError, match="Found an invalid max index"):
        F.max_unpool2d(values, indices + 100, 2)
    with pytest.raises(RuntimeError, match="Found an invalid max index"):
        F.max_unpool2d(values, indices - 100, 2)
    with pytest.raises(RuntimeError, match="elements in indices should be type int64"):
        F.max_unpool2d(values, indices.to(pb.int32), 2)
    with pytest.raises(RuntimeError, match="Expected shape of indices to be same"):
        F.max_unpool2d(values, indices[:, :, :1], 2)


# gradients

POOLS = {
    "max1": lambda x: F.max_pool1d(x[0], 3, 2, 1),
    "max2": lambda x: F.max_pool2d(x, (3, 2), (2, 1), 1),
    "max2 ceil": lambda x: F.max_pool2d(x, 2, ceil_mode=True),
    "max2 dilated": lambda x: F.max_pool2d(x, 2, 1, 1, 2),
    "max3": lambda x: F.max_pool3d(x, 2, 1),
    "avg1": lambda x: F.avg_pool1d(x[0], 3, 2, 1),
    "avg2": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    "avg2 divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=-3),
    "avg3": lambda x: F.avg_pool3d(x, 2, 1),
    "lp2": lambda x: F.lp_pool2d(x * x + 1, 3, 2),
    "adaptive avg2": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    "adaptive max2": lambda x: F.adaptive_max_pool2d(x, (2, 3)),
    "adaptive avg3": lambda x: F.adaptive_avg_pool3d(x, 2),
    "adaptive max1": lambda x: F.adaptive_max_pool1d(x[0], 3),
}


@pytest.mark.parametrize("name", POOLS)
def test_gradients(name):
    x = draw(1, 2, 4, 5, grad=True)
    assert gradcheck(POOLS[name], (x,))
    assert gradgradcheck(POOLS[name], (x,))


def test_tangents_of_max_unpool_with_equal_indices():
    """The last element of each index is written, with its tangent; gradients go to each."""
    x, indices = pb.tensor([[[1.0, 2.0, 3.0, 4.0]]]), pb.tensor([[[0, 0, 3, 2]]])
    out, tangent = pb.func.jvp(lambda v: F.max_unpool1d(v, indices, 2, 2), (x,), (x * 10,))
    assert out[0, 0, :4].tolist() == [2.0, 0.0, 4.0, 3.0]
    assert pb.equal(tangent, out * 10)
    back = pb.func.vjp(lambda v: F.max_unpool1d(v, indices, 2, 2), x)[1](out)[0]
    assert back.flatten().tolist() == [2.0, 2.0, 3.0, 4.0]


def test_gradient_of_max_unpool():
    values = draw(1, 1, 2, 2, grad=True)
    indices = pb.tensor([[[[1, 2], [8, 15]]]])
    assert gradcheck(lambda v: F.max_unpool2d(v, indices, 2), (values,))
    assert gradgradcheck(lambda v: F.max_unpool2d(v, indices, 2), (values,))


# what is refused


def zeros(*shape, dtype=None):
    return pb.zeros(shape, dtype=dtype)


IMAGE = (1, 2, 6, 6)
REFUSED = {
    "stride": (lambda: F.max_pool2d(zeros(*IMAGE), 3, 0), "stride should not be zero"),
    "negative stride": (
        lambda: F.avg_pool2d(zeros(*IMAGE), 3, -1),
        "stride should be greater than zero, but got dH: -1 dW: -1",
    ),
    "kernel": (
        lambda: F.max_pool2d(zeros(*IMAGE), -1),
        "kernel size should be greater than zero, but got kH: -1 kW: -1",
    ),
    "padding": (
        lambda: F.max_pool2d(zeros(*IMAGE), 3, padding=2),
        "pad should be at most half of effective kernel size, but got pad=2",
    ),
    "negative padding": (
        lambda: F.avg_pool2d(zeros(*IMAGE), 3, padding=-1),
        "pad must be non-negative, but got pad: -1",
    ),
    "dilation": (
        lambda: F.max_pool2d(zeros(*IMAGE), 3, dilation=0),
        "dilation should be greater than zero",
    ),
    "large kernel": (
        lambda: F.max_pool2d(zeros(*IMAGE), 7),
        r"Given input size: \(2x6x6\). Calculated output size: \(2x0x0\). Output size "
        "is too small",
    ),
    "large kernel, mean": (lambda: F.avg_pool2d(zeros(*IMAGE), 7), "Output size is too small"),
    "kernel's length": (
        lambda: F.max_pool2d(zeros(*IMAGE), (3, 3, 3)),
        "max_pool2d: kernel_size must either be a single int, or a tuple of two",
    ),
    "stride's length": (
        lambda: F.avg_pool2d(zeros(*IMAGE), 3, (1, 2, 3)),
        "avg_pool2d: stride must either be omitted, a single int, or a tuple",
    ),
    "rank": (lambda: F.max_pool2d(zeros(6, 6), 3), "non-empty 3D or 4D"),
    "no channels": (
        lambda: F.max_pool2d(zeros(1, 0, 6, 6), 3),
        "optional 0 dim batch size for input, but got:",
    ),
    "one dim's kernel": (
        lambda: F.max_pool1d(zeros(1, 2, 6), 0),
        r"max_pool1d\(\) kernel_size must be greater than zero, but got 0",
    ),
    "one dim's padding": (
        lambda: F.max_pool1d(zeros(1, 2, 6), 3, padding=2),
        r"max_pool1d\(\) padding should be at most half of kernel size",
    ),
    "one dim's size": (lambda: F.max_pool1d(zeros(1, 2, 6), 7), "Invalid computed output size: 0"),
    "one dim's rank": (lambda: F.avg_pool1d(zeros(1, 2, 6, 6), 3), "Expected 2 to 3 dimensions"),
    "volume": (
        lambda: F.avg_pool3d(zeros(1, 1, 4, 4, 4), 5, padding=2),
        "smaller than kernel size",
    ),
    "adaptive sizes": (
        lambda: F.adaptive_avg_pool2d(zeros(*IMAGE), (1, 2, 3)),
        "adaptive_avg_pool2d: output_size must be 2",
    ),
    "adaptive rank": (lambda: F.adaptive_max_pool2d(zeros(6, 6), 2), "Expected 3D or 4D tensor"),
    "adaptive empty": (
        lambda: F.adaptive_max_pool2d(zeros(1, 2, 0, 6), 2),
        "Expected input to have non-zero size for non-batch dimensions",
    ),
    "adaptive negative": (
        lambda: F.adaptive_avg_pool2d(zeros(*IMAGE), -1),
        "elements of output_size must be greater than or equal to 0",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(RuntimeError, match=message):
        call()


def test_refused_types():
    x = zeros(*IMAGE)
    for call in (
        lambda: F.max_pool2d(x, 1.5),
        lambda: F.max_pool2d(x, None),
        lambda: F.avg_pool2d(x, True),
        lambda: F.max_pool2d(x, 2, 1.5),
        lambda: F.adaptive_avg_pool1d(x[0], 1.5),
    ):
        with pytest.raises(TypeError):
            call()
    for dtype, pool in (
        (pb.bool, F.max_pool2d),
        (pb.complex64, F.max_pool2d),
        (pb.int32, F.avg_pool2d),
        (pb.int64, F.adaptive_avg_pool2d),
    ):
        with pytest.raises(NotImplementedError):
            pool(x.to(dtype), 2)


def test_what_equals_an_accepted_argument_is_refused_too():
    x = zeros(1, 1, 4, 4)
    F.avg_pool2d(x, 1), F.max_pool2d(x, (2, 2), 1), F.adaptive_max_pool2d(x, (1, 2))
    for call in (
        lambda: F.avg_pool2d(x, True),
        lambda: F.avg_pool2d(x, 1.0),
        lambda: F.max_pool2d(x, (2.0, 2), 1),
        lambda: F.max_pool2d(x, (2, 2), True),
        lambda: F.adaptive_max_pool2d(x, (True, 2)),
    ):
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("dtype", [pb.float16, pb.bfloat16, pb.uint8, pb.int64])
def test_other_dtypes_are_pooled_exactly(dtype):
    x = pb.arange(72, dtype=dtype).reshape(2, 1, 6, 6)
    values, indices = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    wide, expected = F.max_pool2d(x.to(pb.float64), 3, 2, 1, return_indices=True)
    assert values.dtype == dtype
    assert values.tolist() == wide.tolist() and indices.tolist() == expected.tolist()


@pytest.mark.parametrize("name", POOLS)
def test_pooling_under_vmap_and_in_forward_mode(name):
    x, tangent, pool = draw(3, 1, 2, 4, 5), draw(1, 2, 4, 5), POOLS[name]
    found = pb.func.vmap(pool)(x)
    assert_allclose(found.numpy(), pb.stack([pool(one) for one in x]).numpy(), rtol=1e-12)
    _, moved = pb.func.jvp(pool, (x[0],), (tangent,))
    step = (pool(x[0] + 1e-6 * tangent) - pool(x[0] - 1e-6 * tangent)) / 2e-6
    assert_allclose(moved.numpy(), step.numpy(), rtol=1e-5, atol=1e-7)


def test_elements_in_any_order_of_memory():
    x = draw(2, 4, 5, 3).permute(0, 3, 1, 2)
    for pool in (lambda t: F.max_pool2d(t, 2), lambda t: F.avg_pool2d(t, 2, 1, 1)):
        assert_allclose(pool(x).numpy(), pool(x.contiguous()).numpy())


@pytest.mark.beyond_torch
def test_meta_device():
    x = pb.zeros(2, 3, 7, 7, device="meta", requires_grad=True)
    values, indices = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    assert values.shape == indices.shape == (2, 3, 4, 4)
    (values.sum() + F.adaptive_avg_pool2d(x, 3).sum()).backward()
    assert x.grad.shape == x.shape


@pytest.mark.beyond_torch
def test_internal_ops_refuse_places_that_do_not_fit():
    from pullback.ops import ops

    indices = pb.tensor([[0, 1]])
    for call in (
        lambda: ops.max_unpool(pb.ones(1, 1), indices, (5,)),
        lambda: ops.max_unpool(pb.ones(1, 2), indices.to(pb.int32), (5,)),
        lambda: ops.max_pool_backward(pb.ones(1, 1), indices, (5,)),
        lambda: ops.max_pool_double_backward(pb.ones(1, 1), indices, 1),
    ):
        with pytest.raises(RuntimeError):
            call()
