"""Normalizations and dropout: running statistics, checks, what is kept and what is scaled."""

import math

import pytest

import pullback as pb

F = pb.nn.functional


def test_batch_norm_moves_running_statistics_in_training_only():
    x = pb.arange(12, dtype=pb.float32).reshape(3, 2, 2)
    mean, variance = pb.zeros(2), pb.ones(2)
    out = F.batch_norm(x, mean, variance, training=True)
    assert mean.tolist() == pytest.approx([0.45, 0.65])
    assert variance.tolist() == pytest.approx([0.9 + 0.1 * 13.1] * 2, rel=1e-5)
    assert out.mean((0, 2)).abs().max().item() < 1e-6
    before = mean.tolist(), variance.tolist()
    F.batch_norm(x, mean, variance)
    assert (mean.tolist(), variance.tolist()) == before


def test_running_statistics_follow_momentum():
    mean, variance = pb.zeros(1), pb.zeros(1)
    F.batch_norm(pb.tensor([[1.0], [3.0]]), mean, variance, training=True, momentum=1.0)
    assert (mean.item(), variance.item()) == (2.0, 2.0)


def test_instance_norm_averages_statistics_over_samples():
    x = pb.tensor([[[0.0, 2.0]], [[10.0, 14.0]]])
    mean, variance = pb.zeros(1), pb.zeros(1)
    out = F.instance_norm(x, mean, variance, momentum=1.0)
    assert (mean.item(), variance.item()) == (6.5, 5.0)
    assert out.flatten().tolist() == pytest.approx([-1, 1, -1, 1], abs=1e-4)


def test_batch_norm_uses_given_statistics_in_evaluation():
    x = pb.tensor([[1.0, 2.0]], requires_grad=True)
    mean, variance = pb.tensor([1.0, 0.0]), pb.tensor([4.0, 0.25])
    out = F.batch_norm(x, mean, variance, eps=0)
    assert out.tolist() == [[0.0, 4.0]]
    assert pb.autograd.grad(out.sum(), x)[0].tolist() == [[0.5, 2.0]]


def test_sum_of_a_normalized_channel_has_no_gradient():
    x = pb.randn(4, 3, dtype=pb.float64, requires_grad=True)
    (grad,) = pb.autograd.grad(F.batch_norm(x, None, None, training=True).sum(), x)
    assert grad.abs().max().item() < 1e-12


def test_two_forward_passes_before_backward():
    x = pb.randn(4, 3, dtype=pb.float64, requires_grad=True)
    mean, variance = pb.zeros(3, dtype=pb.float64), pb.ones(3, dtype=pb.float64)
    total = sum(F.batch_norm(x * n, mean, variance, training=True).square().sum() for n in (1, 2))
    total.backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: F.batch_norm(x, None, None), RuntimeError, "must be defined in evaluation"),
        (lambda x: F.batch_norm(x, pb.ones(3), None, training=True), ValueError, "either both"),
        (lambda x: F.batch_norm(x[:1], None, None, training=True), ValueError, "more than 1"),
        (lambda x: F.batch_norm(x, pb.ones(2), pb.ones(3)), RuntimeError, "contain 3 elements"),
        (lambda x: F.batch_norm(x, None, None, pb.ones(2), None, True), RuntimeError, "weight"),
        (
            lambda x: F.batch_norm(x, pb.ones(3, requires_grad=True), pb.ones(3)),
            RuntimeError,
            "not differentiable with respect to argument 'running_mean'",
        ),
        (
            lambda x: F.batch_norm(x.to(pb.int64), pb.ones(3), pb.ones(3)),
            NotImplementedError,
            "\"batch_norm\" not implemented for 'Long'",
        ),
        (lambda x: F.batch_norm(x.double(), pb.ones(3), pb.ones(3)), RuntimeError, "mixed dtype"),
        (lambda x: F.instance_norm(x), ValueError, "more than 1 spatial element"),
        (lambda x: F.instance_norm(x[..., None], use_input_stats=False), RuntimeError, "defined"),
        (lambda x: F.layer_norm(x, (2,)), RuntimeError, r"expected input with shape \[\*, 2\]"),
        (lambda x: F.layer_norm(x, ()), RuntimeError, "to be at least 1-dimensional"),
        (lambda x: F.layer_norm(x, 3), TypeError, "must be tuple of ints, not int"),
        (lambda x: F.layer_norm(x, (3,), pb.ones(2)), RuntimeError, "Expected weight to be"),
        (lambda x: F.layer_norm(x.to(pb.int64), (3,)), NotImplementedError, "LayerNorm"),
        (lambda x: F.group_norm(x, 2), RuntimeError, "divisible by num_groups"),
        (lambda x: F.group_norm(x[0], 1), RuntimeError, "Expected at least 2 dimensions"),
        (lambda x: F.group_norm(x[:1], 3), ValueError, "Expected more than 1 value per channel"),
        (lambda x: F.rms_norm(x, (3,), pb.ones(2)), RuntimeError, "Expected weight to be"),
        (lambda x: F.local_response_norm(x, 2), ValueError, "Expected 3D or higher"),
    ],
)
def test_wrong_arguments_of_normalizations(call, error, message):
    with pytest.raises(error, match=message):
        call(pb.randn(4, 3))


def test_forms_outside_nn_take_their_arguments_in_another_order():
    x, weight, bias = pb.randn(4, 3), pb.randn(3), pb.randn(3)
    mean, variance = pb.randn(3), pb.rand(3)
    pb.testing.assert_close(
        pb.batch_norm(x, weight, bias, mean, variance, False, 0.1, 1e-5, False),
        F.batch_norm(x, mean, variance, weight, bias),
    )
    pb.testing.assert_close(
        pb.layer_norm(x, (3,), weight, bias, 1e-5, False), F.layer_norm(x, (3,), weight, bias)
    )


def test_rms_norm_adds_the_epsilon_of_the_dtype():
    assert F.rms_norm(pb.zeros(3), (3,)).tolist() == [0.0] * 3
    tiny = pb.full((3,), 1e-4, dtype=pb.float16)
    assert F.rms_norm(tiny, (3,))[0].item() == pytest.approx(0.2783, abs=1e-3)


def test_half_inputs_may_have_float_parameters():
    x = pb.randn(4, 3).to(pb.float16)
    assert F.layer_norm(x, (3,), pb.ones(3)).dtype == pb.float16
    mean, variance = pb.zeros(3), pb.ones(3)
    assert F.batch_norm(x, mean, variance, training=True).dtype == pb.float16
    assert mean.dtype == pb.float32


# dropout


def test_dropout_of_channels_keeps_or_drops_them_as_wholes():
    x = pb.ones(3, 40, 2, 2)
    channels = F.dropout2d(x, 0.5).reshape(120, 4)
    kinds = {tuple(row) for row in channels.tolist()}
    assert kinds == {(0.0,) * 4, (2.0,) * 4}


@pytest.mark.parametrize(("drop", "shape"), [(F.dropout1d, (8, 3)), (F.dropout3d, (8, 2, 2, 2))])
def test_dropout_without_a_batch(drop, shape):
    for channel in drop(pb.ones(shape), 0.5):
        assert len(set(channel.flatten().tolist())) == 1


def test_dropout_of_unexpected_ranks_warns_or_raises():
    with pytest.warns(UserWarning, match="Received a 2-D input to dropout2d"):
        F.dropout2d(pb.ones(2, 3))
    with pytest.warns(UserWarning, match="channel-wise 1D dropout behavior"):
        F.dropout2d(pb.ones(2, 3, 4))
    with pytest.raises(RuntimeError, match="dropout1d: Expected 2D or 3D input"):
        F.dropout1d(pb.ones(3))
    with pytest.raises(RuntimeError, match="requires at least 2 dimensions"):
        pb.feature_dropout(pb.ones(3), 0.5, True)


def test_alpha_dropout_keeps_mean_and_variance():
    x = pb.randn(20000)
    out = F.alpha_dropout(x, 0.3, training=True)
    assert out.mean().item() == pytest.approx(0, abs=0.05)
    assert (out * out).mean().item() == pytest.approx(1, abs=0.05)
    assert F.alpha_dropout(x) is x
    assert F.alpha_dropout(x, 1.0, training=True).abs().max().item() == 0


def test_dropout_in_place():
    x = pb.ones(100)
    assert F.dropout(x, 0.5, inplace=True) is x
    assert set(x.tolist()) == {0.0, 2.0}
    y = pb.ones(100)
    assert pb.dropout_(y, 0.5, True) is y and set(y.tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_probabilities_are_checked(p):
    for drop in (F.dropout, F.dropout2d, F.alpha_dropout):
        with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1"):
            drop(pb.ones(2, 3, 4, 5), p)
    with pytest.raises(RuntimeError, match="dropout probability has to be between 0 and 1"):
        pb.dropout(pb.ones(2), p, True)


def test_dropout_refuses_integers_and_complex_numbers_in_training_only():
    whole = pb.ones(3, dtype=pb.int64)
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output"):
        F.dropout(whole)
    with pytest.raises(NotImplementedError, match="not implemented for 'ComplexFloat'"):
        F.dropout(pb.ones(3, dtype=pb.complex64))
    assert F.dropout(whole, training=False) is whole


@pytest.mark.parametrize("dtype", [pb.float16, pb.bfloat16, pb.float32])
def test_rows_far_from_zero_are_standardized(dtype):
    x = (pb.arange(64.0).reshape(2, 32) + 100).to(dtype)
    wide = F.layer_norm(x.to(pb.float64), (32,))
    pb.testing.assert_close(F.layer_norm(x, (32,)).to(pb.float64), wide, rtol=1e-2, atol=1e-2)
    grouped = F.group_norm(x.reshape(2, 4, 8), 2).to(pb.float64)
    pb.testing.assert_close(
        grouped, F.group_norm(x.to(pb.float64).reshape(2, 4, 8), 2), rtol=1e-2, atol=1e-2
    )


def test_batch_norm_of_nothing_in_one_dim():
    assert F.batch_norm(pb.ones(0), pb.zeros(0), pb.ones(0)).shape == (0,)
