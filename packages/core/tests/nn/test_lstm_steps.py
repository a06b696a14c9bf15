"""LSTM layers whose steps are one op, against a loop over cells."""

import pytest

import pullback as pb
from pullback.autograd import gradcheck, gradgradcheck
from pullback.ops import ops
from pullback.ops.nn.recurrent import lstm_backward_spec, lstm_spec

SIZES = {"input_size": 3, "hidden_size": 5}


def by_cells(layer, x, state):
    """Run the first layer of an LSTM step by step, each way."""
    outputs, ends = [], []
    for way in range(2 if layer.bidirectional else 1):
        suffix = "_l0" + "_reverse" * way
        cell = pb.nn.LSTMCell(layer.input_size, layer.hidden_size, layer.bias, dtype=x.dtype)
        for name, _ in list(cell.named_parameters()):
            setattr(cell, name, getattr(layer, name + suffix))
        h, c = state[0][way], state[1][way]
        found = [None] * len(x)
        for step in reversed(range(len(x))) if way else range(len(x)):
            h, c = cell(x[step], (h, c))
            found[step] = h
        outputs.append(pb.stack(found))
        ends.append((h, c))
    return pb.cat(outputs, -1), tuple(map(pb.stack, zip(*ends, strict=True)))


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"bias": False}], ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (6, 4), (3, 40)])
def test_results_and_gradients_are_those_of_cells(options, shape):
    layer = pb.nn.LSTM(**SIZES, **options, dtype=pb.float64)
    ways = 2 if layer.bidirectional else 1
    x = pb.randn(*shape, 3, dtype=pb.float64, requires_grad=True)
    state = [pb.randn(ways, shape[1], 5, dtype=pb.float64, requires_grad=True) for _ in range(2)]
    inputs = [x, *state, *layer.parameters()]
    found = []
    for output, (h, c) in (layer(x, tuple(state)), by_cells(layer, x, state)):
        loss = output.square().sum() + (h * 0.3).sum() + (c * c * 0.7).sum()
        found.append([output, h, c, *pb.autograd.grad(loss, inputs)])
    for one, other in zip(*found, strict=True):
        pb.testing.assert_close(one.detach(), other.detach(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
def test_derivatives_of_first_and_second_order(reverse):
    spec = lstm_spec((3, 2, 8), reverse)
    shapes = (3, 2, 8), (8, 2), (2, 2), (2, 2)
    inputs = [pb.randn(shape, dtype=pb.float64, requires_grad=True) for shape in shapes]

    def run(*operands):
        return ops.lstm_steps(*operands, spec)[:2]

    assert gradcheck(run, inputs, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(run, inputs)


@pytest.mark.parametrize("dtype", [pb.float32, pb.float64])
def test_bits_do_not_depend_on_threads(dtype):
    shapes = (20, 70, 192), (192, 48), (70, 48), (70, 48)
    inputs = [pb.randn(shape, dtype=dtype) for shape in shapes]
    grad, before, found = pb.randn(20, 70, 48, dtype=dtype), pb.get_num_threads(), []
    spec, backward_spec = lstm_spec(shapes[0], False), lstm_backward_spec((20, 70, 48), 0)
    try:
        for count in (1, 2, 3):
            pb.set_num_threads(count)
            out, cell, gates = ops.lstm_steps(*inputs, spec)
            grads = ops.lstm_steps_backward(grad, cell, *inputs[1::2], gates, backward_spec)
            found.append([out, cell, gates, *grads])
    finally:
        pb.set_num_threads(before)
    for others in found[1:]:
        assert all(pb.equal(one, other) for one, other in zip(found[0], others, strict=True))
