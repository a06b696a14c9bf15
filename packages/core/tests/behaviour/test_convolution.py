"""``nn.functional``: convolutions, transposed ones, unfold and fold; a small network is trained."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import pullback as pb

F = pb.nn.functional
gradcheck, gradgradcheck = pb.autograd.gradcheck, pb.autograd.gradgradcheck


def draw(*shape, dtype=pb.float64, grad=False):
    return pb.randn(*shape, dtype=dtype).requires_grad_(grad)


def counted(*shape):
    """0, 1, 2, ... in a shape."""
    return pb.arange(int(np.prod(shape)), dtype=pb.float64).reshape(shape)


# values that are easy to see


def test_conv1d_correlates_without_flipping():
    x = pb.tensor([[[1.0, 2.0, 4.0, 8.0]]])
    weight = pb.tensor([[[1.0, 10.0]]])
    assert F.conv1d(x, weight).tolist() == [[[21.0, 42.0, 84.0]]]
    assert F.conv1d(x, weight, stride=2).tolist() == [[[21.0, 84.0]]]
    assert F.conv1d(x, weight, dilation=2).tolist() == [[[41.0, 82.0]]]
    assert F.conv1d(x, weight, pb.tensor([0.5]), padding=1).tolist() == [
        [[10.5, 21.5, 42.5, 84.5, 8.5]]
    ]


def test_conv_transpose1d_spreads_elements():
    x = pb.tensor([[[1.0, 2.0]]])
    weight = pb.tensor([[[1.0, 10.0, 100.0]]])
    assert F.conv_transpose1d(x, weight).tolist() == [[[1.0, 12.0, 120.0, 200.0]]]
    assert F.conv_transpose1d(x, weight, stride=2, output_padding=1).tolist() == [
        [[1.0, 10.0, 102.0, 20.0, 200.0, 0.0]]
    ]
    assert F.conv_transpose1d(x, weight, padding=1).tolist() == [[[12.0, 120.0]]]


def test_groups_do_not_mix_channels():
    x, weight = counted(1, 4, 3), counted(4, 2, 2)
    whole = F.conv1d(x, weight, groups=2)
    parts = [F.conv1d(x[:, 2 * g : 2 * g + 2], weight[2 * g : 2 * g + 2]) for g in range(2)]
    assert_allclose(whole.numpy(), pb.cat(parts, 1).numpy())


def test_same_padding_puts_the_rest_at_the_end():
    x = pb.tensor([[[1.0, 2.0, 4.0]]])
    even = F.conv1d(x, pb.tensor([[[1.0, 10.0]]]), padding="same")
    assert even.tolist() == [[[21.0, 42.0, 4.0]]]
    odd = F.conv1d(x, pb.tensor([[[1.0, 10.0, 100.0]]]), padding="same")
    assert odd.tolist() == [[[210.0, 421.0, 42.0]]]
    assert F.conv1d(x, pb.ones(1, 1, 2), padding="valid").shape == (1, 1, 2)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_input_without_batch(rank):
    conv = getattr(F, f"conv{rank}d")
    transpose = getattr(F, f"conv_transpose{rank}d")
    x, weight = draw(2, *(4,) * rank), draw(3, 2, *(2,) * rank)
    assert_allclose(conv(x, weight).numpy(), conv(x.unsqueeze(0), weight)[0].numpy())
    other = draw(2, 3, *(2,) * rank)
    assert_allclose(transpose(x, other).numpy(), transpose(x.unsqueeze(0), other)[0].numpy())


def test_integers_stay_integers():
    out = F.conv2d(pb.ones(1, 1, 3, 3, dtype=pb.int64), pb.ones(1, 1, 2, 2, dtype=pb.int64))
    assert out.dtype == pb.int64
    assert out.tolist() == [[[[4, 4], [4, 4]]]]


def test_empty_batch():
    assert F.conv2d(pb.zeros(0, 1, 3, 3), pb.zeros(2, 1, 2, 2)).shape == (0, 2, 2, 2)


@pytest.mark.beyond_torch
def test_no_channels_leave_the_bias():
    out = F.conv2d(pb.zeros(1, 0, 3, 3), pb.zeros(2, 0, 2, 2), pb.tensor([1.0, 2.0]))
    assert out[0, :, 0, 0].tolist() == [1.0, 2.0]


def test_convolution_takes_everything():
    x, weight = draw(1, 2, 5), draw(3, 2, 3)
    expected = F.conv1d(x, weight, stride=2, padding=1)
    out = pb.convolution(x, weight, None, [2], [1], [1], False, [0], 1)
    assert_allclose(out.numpy(), expected.numpy())
    back = pb.convolution(expected, weight, None, [2], [1], [1], True, [0], 1)
    assert back.shape == x.shape


def test_names_in_the_package_too():
    for name in ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d"):
        assert getattr(pb, name) is not None
    assert not hasattr(pb.Tensor, "conv2d")


# gradients


@pytest.mark.parametrize("dtype", [pb.float64, pb.complex128])
@pytest.mark.parametrize(
    ("rank", "options"),
    [
        (1, {"stride": 2, "padding": 1, "dilation": 2}),
        (2, {"stride": (1, 2), "padding": (1, 0), "groups": 2}),
        (3, {"padding": 1, "stride": 2}),
    ],
)
def test_gradients_of_convolutions(rank, options, dtype):
    groups = options.get("groups", 1)
    x = draw(1, 2, *(4, 3, 3)[:rank], dtype=dtype, grad=True)
    weight = draw(2, 2 // groups, *(2,) * rank, dtype=dtype, grad=True)
    bias = draw(2, dtype=dtype, grad=True)
    conv = getattr(F, f"conv{rank}d")
    assert gradcheck(lambda *args: conv(*args, **options), (x, weight, bias))
    assert gradgradcheck(lambda *args: conv(*args, **options), (x, weight, bias))


@pytest.mark.parametrize("dtype", [pb.float64, pb.complex128])
def test_gradients_of_transposed_convolution(dtype):
    x = draw(1, 4, 2, 3, dtype=dtype, grad=True)
    weight = draw(4, 1, 2, 2, dtype=dtype, grad=True)
    bias = draw(2, dtype=dtype, grad=True)

    def run(*args):
        return F.conv_transpose2d(*args, stride=2, padding=1, output_padding=(1, 0), groups=2)

    assert gradcheck(run, (x, weight, bias))
    assert gradgradcheck(run, (x, weight, bias))


def test_node_has_three_inputs():
    x = draw(1, 1, 3, 3, grad=True)
    out = F.conv2d(x, draw(1, 1, 2, 2))
    assert out.grad_fn.name() == "ConvolutionBackward0"
    assert [node is None for node, _ in out.grad_fn.next_functions] == [False, True, True]
    assert F.conv_transpose2d(x, draw(1, 1, 2, 2)).grad_fn.name() == "ConvolutionBackward0"


def test_only_what_is_asked_for_gets_a_gradient():
    x, weight, bias = draw(1, 1, 3), draw(1, 1, 2, grad=True), draw(1)
    F.conv1d(x, weight, bias).sum().backward()
    assert x.grad is None and bias.grad is None
    assert_allclose(weight.grad.numpy(), [[[float(x[0, 0, :2].sum()), float(x[0, 0, 1:].sum())]]])


def test_inputs_that_are_views():
    x = draw(3, 5, 4, 2).permute(0, 3, 2, 1).requires_grad_()
    weight = draw(2, 3, 2, 2).transpose(0, 1)
    out = F.conv2d(x, weight, padding=1)
    expected = F.conv2d(x.detach().contiguous(), weight.contiguous(), padding=1)
    assert_allclose(out.detach().numpy(), expected.numpy())


# many windows are unrolled in parts


@pytest.mark.beyond_torch
@pytest.mark.parametrize("dtype", [pb.float64, pb.float16])
@pytest.mark.parametrize("limit", [1, 150])
def test_parts_of_a_batch_make_no_difference(monkeypatch, limit, dtype):
    from pullback.ops.decompositions import convolution

    x = pb.randn(5, 4, 4, 4, dtype=pb.float64).to(dtype).requires_grad_()
    weight = pb.randn(4, 2, 3, 3, dtype=pb.float64).to(dtype).requires_grad_()

    def run():
        out = F.conv2d(x, weight, padding=1, groups=2)
        return [out.detach(), *pb.autograd.grad(out.sum(), (x, weight))]

    whole = run()
    monkeypatch.setattr(convolution, "_UNROLLED", limit)
    rtol = 1e-12 if dtype == pb.float64 else 5e-3
    for one, other in zip(run(), whole):
        one, other = one.to(pb.float64).numpy(), other.to(pb.float64).numpy()
        assert_allclose(one, other, rtol=rtol, atol=rtol)


@pytest.mark.beyond_torch
def test_meta_device():
    x = pb.zeros(2, 3, 8, 8, device="meta", requires_grad=True)
    weight = pb.zeros(4, 3, 3, 3, device="meta", requires_grad=True)
    out = F.conv2d(x, weight, stride=2, padding=1)
    assert out.device.type == "meta" and out.shape == (2, 4, 4, 4)
    out.sum().backward()
    assert x.grad.shape == x.shape and weight.grad.shape == weight.shape


# what is refused


def zeros(*shape, dtype=None):
    return pb.zeros(shape, dtype=dtype)


REFUSED = {
    "too few dims": (
        lambda: F.conv2d(zeros(3, 3), zeros(1, 1, 2, 2)),
        r"Expected 3D \(unbatched\) or 4D \(batched\) input to conv2d",
    ),
    "too many dims": (
        lambda: F.conv1d(zeros(1, 1, 3, 3), zeros(1, 1, 2)),
        r"Expected 2D \(unbatched\) or 3D \(batched\) input to conv1d",
    ),
    "channels": (
        lambda: F.conv2d(zeros(1, 2, 3, 3), zeros(1, 1, 2, 2)),
        r"expected input\[1, 2, 3, 3\] to have 1 channels, but got 2 channels instead",
    ),
    "groups": (
        lambda: F.conv2d(zeros(1, 4, 3, 3), zeros(3, 2, 2, 2), groups=2),
        "expected weight to be divisible by 2 at dimension 0",
    ),
    "no groups": (
        lambda: F.conv2d(zeros(1, 1, 3, 3), zeros(1, 1, 2, 2), groups=0),
        "non-positive groups is not supported",
    ),
    "bias": (
        lambda: F.conv2d(zeros(1, 1, 3, 3), zeros(1, 1, 2, 2), zeros(2)),
        "expected bias to be 1-dimensional with 1 elements",
    ),
    "kernel": (
        lambda: F.conv2d(zeros(1, 1, 3, 3), zeros(1, 1, 4, 4)),
        "Kernel size can't be greater than actual input size",
    ),
    "dilated kernel": (
        lambda: F.conv2d(zeros(1, 1, 3, 3), zeros(1, 1, 2, 2), dilation=3),
        r"Calculated padded input size per channel: \(3 x 3\). Kernel size: "
        r"\(4 x 4\)",
    ),
    "stride": (
        lambda: F.conv2d(zeros(1, 1, 3, 3), zeros(1, 1, 2, 2), stride=0),
        "non-positive stride is not supported",
    ),
    "padding": (
        lambda: F.conv2d(zeros(1, 1, 3, 3), zeros(1, 1, 2, 2), padding=-1),
        "negative padding is not supported",
    ),
    "dilation": (
        lambda: F.conv2d(zeros(1, 1, 3, 3), zeros(1, 1, 2, 2), dilation=0),
        "dilation should be greater than zero",
    ),
    "many strides": (
        lambda: F.conv2d(zeros(1, 1, 3, 3), zeros(1, 1, 2, 2), stride=(1, 2, 3)),
        "expected stride to be a single integer value or a list of 2 values",
    ),
    "word": (
        lambda: F.conv2d(zeros(1, 1, 3, 3), zeros(1, 1, 2, 2), padding="foo"),
        "Invalid padding string: 'foo'",
    ),
    "same with stride": (
        lambda: F.conv2d(zeros(1, 1, 3, 3), zeros(1, 1, 3, 3), padding="same", stride=2),
        "padding='same' is not supported for strided convolutions",
    ),
    "weight's dtype": (
        lambda: F.conv2d(zeros(1, 1, 3, 3), zeros(1, 1, 2, 2, dtype=pb.float64)),
        "expected scalar type Float but found Double",
    ),
    "bias's dtype": (
        lambda: F.conv2d(zeros(1, 1, 3, 3), zeros(1, 1, 2, 2), zeros(1, dtype=pb.float64)),
        r"Input type \(float.*\) and bias type \((double|float64)\)",
    ),
    "transposed channels": (
        lambda: F.conv_transpose2d(zeros(1, 2, 3, 3), zeros(3, 3, 2, 2)),
        "Given transposed=1, weight of size .* to have 3 channels",
    ),
    "output padding": (
        lambda: F.conv_transpose2d(zeros(1, 2, 3, 3), zeros(2, 3, 2, 2), output_padding=1),
        "output padding must be smaller than either stride or dilation",
    ),
    "negative output padding": (
        lambda: F.conv_transpose2d(zeros(1, 2, 3, 3), zeros(2, 3, 2, 2), output_padding=-1),
        "negative output_padding is not supported",
    ),
    "small output": (
        lambda: F.conv_transpose2d(zeros(1, 2, 3, 3), zeros(2, 3, 2, 2), padding=5),
        "Output size is too small",
    ),
    "transposed bias": (
        lambda: F.conv_transpose2d(zeros(1, 2, 3, 3), zeros(2, 3, 2, 2), zeros(2)),
        "expected bias to be 1-dimensional with 3 elements",
    ),
    "unfold": (
        lambda: F.unfold(zeros(1, 2, 5, 5), 7),
        "calculated shape of the array of sliding blocks as",
    ),
    "unfold stride": (
        lambda: F.unfold(zeros(1, 2, 5, 5), 3, stride=0),
        "stride should be greater than zero",
    ),
    "unfold padding": (
        lambda: F.unfold(zeros(1, 2, 5, 5), 3, padding=-1),
        "padding should be non-negative",
    ),
    "unfold kernel": (
        lambda: F.unfold(zeros(1, 2, 5, 5), (3,)),
        "It is expected kernel_size equals to 2, but got size 1",
    ),
    "fold channels": (
        lambda: F.fold(zeros(1, 17, 9), 5, 3),
        "to be divisible by the product of kernel_size",
    ),
    "fold windows": (
        lambda: F.fold(zeros(1, 18, 8), 5, 3),
        r"sliding blocks 3 \* 3 = 9, but got input.size\(2\)=8",
    ),
    "window": (lambda: zeros(4).unfold(0, 5, 1), "maximum size for tensor at dimension 0 is 4"),
    "step": (lambda: zeros(4).unfold(0, 2, 0), "step is 0 but must be > 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, message = REFUSED[name]
    with pytest.raises(RuntimeError, match=message):
        call()


def test_refused_types():
    x, weight = zeros(1, 1, 3, 3), zeros(1, 1, 2, 2)
    for options in ({"stride": 1.5}, {"stride": None}, {"dilation": "a"}):
        with pytest.raises(TypeError):
            F.conv2d(x, weight, **options)
    with pytest.raises(TypeError):
        F.conv_transpose2d(x, weight, padding="same")
    with pytest.raises(NotImplementedError):
        F.conv2d(x.to(pb.bool), weight.to(pb.bool))
    with pytest.raises(IndexError):
        zeros(2, 3).unfold(2, 1, 1)


# unfold and fold


def test_unfold_lists_windows_column_by_column():
    x = counted(1, 1, 3, 3)
    assert F.unfold(x, 2).tolist() == [[[0, 1, 3, 4], [1, 2, 4, 5], [3, 4, 6, 7], [4, 5, 7, 8]]]
    assert F.unfold(x[0], (1, 3)).tolist() == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_fold_adds_what_overlaps():
    counts = F.fold(F.unfold(pb.ones(1, 1, 3, 3), 2), 3, 2)
    assert counts.tolist() == [[[[1, 2, 1], [2, 4, 2], [1, 2, 1]]]]


def test_convolution_is_a_product_of_columns():
    x, weight = draw(2, 3, 5, 4), draw(4, 3, 2, 3)
    columns = F.unfold(x, (2, 3), padding=1)
    out = (weight.reshape(4, -1) @ columns).reshape(2, 4, 6, 4)
    assert_allclose(out.numpy(), F.conv2d(x, weight, padding=1).numpy(), rtol=1e-12)


def test_unfold_method_is_a_view():
    x = counted(2, 6)
    windows = x.unfold(1, 3, 2)
    assert windows.tolist() == [[[0, 1, 2], [2, 3, 4]], [[6, 7, 8], [8, 9, 10]]]
    assert windows.stride() == (6, 2, 1)
    assert windows.data_ptr() == x.data_ptr()
    assert pb.tensor(5.0).unfold(0, 1, 1).tolist() == [5.0]
    y = draw(6, grad=True)
    y.unfold(0, 3, 1).sum().backward()
    assert y.grad.tolist() == [1, 2, 3, 3, 2, 1]
    assert y.unfold(0, 2, 1).grad_fn.name() == "UnfoldBackward0"


@pytest.mark.parametrize("dtype", [pb.float64, pb.complex128])
def test_gradients_of_columns(dtype):
    x = draw(1, 2, 4, 3, dtype=dtype, grad=True)
    assert gradcheck(lambda t: F.unfold(t, 2, 1, 1, 2), (x,))
    columns = draw(1, 4, 6, dtype=dtype, grad=True)
    assert gradcheck(lambda t: F.fold(t, (3, 4), 2), (columns,))
    assert gradgradcheck(lambda t: F.fold(t, (3, 4), 2), (columns,))
    assert gradgradcheck(lambda t: t.unfold(2, 3, 1), (x,))


# a network


def numpy_loss(images, labels, parameters):
    """conv 3x3 with padding, relu, 2x2 max, linear, cross entropy; in loops."""
    weight, bias, matrix, offset = parameters
    n, _, h, w = images.shape
    padded = np.pad(images, [(0, 0), (0, 0), (1, 1), (1, 1)])
    hidden = np.zeros((n, len(weight), h, w))
    for i, j in np.ndindex(h, w):
        part = padded[:, None, :, i : i + 3, j : j + 3] * weight
        hidden[:, :, i, j] = part.sum((2, 3, 4)) + bias
    hidden = np.maximum(hidden, 0).reshape(n, len(weight), h // 2, 2, w // 2, 2).max((3, 5))
    logits = hidden.reshape(n, -1) @ matrix.T + offset
    logits = logits - logits.max(1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return -logs[np.arange(n), labels].mean()


def test_training_a_small_network():
    rng = np.random.default_rng(3)
    images, labels = rng.normal(size=(4, 2, 4, 4)), np.array([0, 2, 1, 0])
    parameters = [rng.normal(size=s) * 0.5 for s in ((3, 2, 3, 3), (3,), (3, 12), (3,))]
    tensors = [pb.tensor(p, requires_grad=True) for p in parameters]
    losses = []
    for _ in range(4):
        hidden = F.relu(F.conv2d(pb.tensor(images), tensors[0], tensors[1], padding=1))
        pooled = F.max_pool2d(hidden, 2).flatten(1)
        loss = F.cross_entropy(F.linear(pooled, tensors[2], tensors[3]), pb.tensor(labels))
        assert_allclose(loss.item(), numpy_loss(images, labels, parameters), rtol=1e-10)
        losses.append(loss.item())
        gradients = pb.autograd.grad(loss, tensors)
        for parameter, gradient in zip(parameters, gradients):
            check_some(parameters, parameter, gradient.numpy(), images, labels)
        for parameter, gradient in zip(parameters, gradients):
            parameter -= 0.2 * gradient.numpy()
        tensors = [pb.tensor(p, requires_grad=True) for p in parameters]
    assert losses == sorted(losses, reverse=True)


def check_some(parameters, parameter, gradient, images, labels, step=1e-6):
    """Compare two elements of a gradient with finite differences of the NumPy network."""
    for position in (0, parameter.size - 1):
        flat, kept = parameter.reshape(-1), parameter.reshape(-1)[position]
        values = []
        for sign in (1, -1):
            flat[position] = kept + sign * step
            values.append(numpy_loss(images, labels, parameters))
        flat[position] = kept
        difference = (values[0] - values[1]) / (2 * step)
        assert_allclose(gradient.reshape(-1)[position], difference, atol=1e-7)


def test_transposed_convolution_of_no_samples_may_have_no_elements():
    weight = pb.ones(2, 3, 2)
    assert F.conv_transpose1d(pb.ones(0, 2, 1), weight, padding=1).shape == (0, 3, 0)
    with pytest.raises(RuntimeError, match="too small"):
        F.conv_transpose1d(pb.ones(1, 2, 1), weight, padding=1)
