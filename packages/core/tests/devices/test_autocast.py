"""Autocast on a device that is none of the host: float16, and the list of ops of such devices."""

import pytest

import pullback as pb
from pullback.nn import functional as F

LOW, FULL, WIDE = pb.float16, pb.float32, pb.float64


def on(*shape, dtype=LOW):
    return pb.ones(*shape, dtype=dtype, device="async")


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (pb.mm, ((2, 2, FULL), (2, 2, FULL)), LOW),
        (pb.mv, ((2, 2, FULL), (2, FULL)), LOW),
        (lambda a: pb.einsum("ij->ji", a), ((2, 2, FULL),), LOW),
        (pb.exp, ((2, LOW),), FULL),
        (lambda a: 2**a, ((2, LOW),), FULL),
        (pb.square, ((2, LOW),), FULL),
        (pb.exp, ((2, WIDE),), WIDE),
        (pb.sin, ((2, LOW),), LOW),
        (pb.sum, ((2, LOW),), FULL),
        (lambda a: pb.sum(a, 0, dtype=LOW), ((2, LOW),), LOW),
        (lambda a: F.softmax(a, 0), ((2, LOW),), FULL),
        (pb.linalg.norm, ((2, LOW),), FULL),
        (lambda a: F.layer_norm(a, (2,)), ((2, LOW),), FULL),
        (pb.addcmul, ((2, LOW), (2, FULL), (2, LOW)), FULL),
        (pb.addcmul, ((2, LOW), (2, LOW), (2, LOW)), LOW),
        (pb.dot, ((2, LOW), (2, FULL)), FULL),
        (pb.cat, (None,), LOW),
        (lambda a: F.interpolate(a, 4), ((1, 1, 2, LOW),), FULL),
        (lambda a: F.interpolate(a, 4, mode="area"), ((1, 1, 2, LOW),), LOW),
    ],
)
def test_result_dtype_away_from_the_host(function, args, expected):
    args = [[on(1), on(1)] if shape is None else on(*shape[:-1], dtype=shape[-1]) for shape in args]
    with pb.autocast("async"):
        assert function(*args).dtype == expected
        assert (pb.ones(2, 2) @ pb.ones(2, 2)).dtype == FULL  # on the host, which has no region


def test_loss_that_is_refused():
    x = on(2, dtype=FULL) / 2
    with pb.autocast("async"), pytest.raises(RuntimeError, match="BCELoss are unsafe to autocast"):
        F.binary_cross_entropy(x, x)


@pytest.mark.parametrize("kind", [pb.nn.LSTM, pb.nn.GRU, pb.nn.RNN])
def test_recurrent_layers_run_in_16_bits(kind):
    module = kind(2, 3, device="async")
    with pb.autocast("async"):
        output, state = module(on(4, 1, 2, dtype=FULL))
    assert {output.dtype, *(part.dtype for part in state)} == {LOW}
