"""Recurrent layers against loops in NumPy; sequences padded and packed."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pullback as pb
from pullback import nn
from pullback.nn.utils import rnn


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def numpy_step(kind, x, state, w):
    """Return the next state, from the formulas of the papers."""
    given = [x @ part.T for part in np.split(w["weight_ih"], len(w["weight_ih"]) // 4)]
    hidden = [state[0] @ part.T for part in np.split(w["weight_hh"], len(w["weight_hh"]) // 4)]
    b_i, b_h = (np.split(w[name], len(w[name]) // 4) for name in ("bias_ih", "bias_hh"))
    gate = lambda k: given[k] + b_i[k] + hidden[k] + b_h[k]  # noqa: E731
    if kind == "RNN":
        return (np.tanh(gate(0)),)
    if kind == "LSTM":
        cell = sigmoid(gate(1)) * state[1] + sigmoid(gate(0)) * np.tanh(gate(2))
        return sigmoid(gate(3)) * np.tanh(cell), cell
    r, z = sigmoid(gate(0)), sigmoid(gate(1))
    n = np.tanh(given[2] + b_i[2] + r * (hidden[2] + b_h[2]))
    return ((1 - z) * n + z * state[0],)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_layer_is_a_loop(kind, backwards):
    layer = getattr(nn, kind)(3, 4, bidirectional=backwards).double()
    x = np.random.default_rng(1).normal(size=(5, 2, 3))
    suffix = "_l0_reverse" if backwards else "_l0"
    w = {
        name.removesuffix(suffix): value.numpy()
        for name, value in layer.state_dict().items()
        if name.endswith(suffix)
    }
    state = (np.zeros((2, 4)),) * (2 if kind == "LSTM" else 1)
    outputs = []
    for step in x[::-1] if backwards else x:
        state = numpy_step(kind, step, state, w)
        outputs.append(state[0])
    found, last = layer(pb.tensor(x))
    wanted = np.array(outputs[::-1] if backwards else outputs)
    np.testing.assert_allclose(found.detach().numpy()[..., -4:], wanted, rtol=1e-12)
    for part, other in zip(last if kind == "LSTM" else [last], state):
        np.testing.assert_allclose(part[-1].detach().numpy(), other, rtol=1e-12)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_a_packed_batch_gives_what_its_sequences_give_alone(kind):
    layer = getattr(nn, kind)(3, 4, num_layers=2, bidirectional=True).double()
    sequences = [pb.randn(n, 3, dtype=pb.float64) for n in (2, 5, 3, 5, 1)]
    out, last = layer(rnn.pack_sequence(sequences, enforce_sorted=False))
    last = last[0] if kind == "LSTM" else last
    for number, (one, sequence) in enumerate(zip(rnn.unpack_sequence(out), sequences)):
        alone, end = layer(sequence)
        end = end[0] if kind == "LSTM" else end
        np.testing.assert_allclose(one.detach().numpy(), alone.detach().numpy(), rtol=1e-12)
        np.testing.assert_allclose(last[:, number].detach(), end.detach(), rtol=1e-12)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.booleans())
def test_packing_is_undone(lengths, batch_first):
    sequences = [pb.arange(n) + 10 * i for i, n in enumerate(lengths)]
    packed = rnn.pack_sequence(sequences, enforce_sorted=False)
    assert packed.batch_sizes.sum() == sum(lengths)
    assert [s.tolist() for s in rnn.unpack_sequence(packed)] == [s.tolist() for s in sequences]
    padded, found = rnn.pad_packed_sequence(packed, batch_first, padding_value=-1)
    assert found.tolist() == lengths
    again = rnn.pad_sequence(sequences, batch_first, padding_value=-1)
    assert pb.equal(padded, again)


def test_gradients_reach_all_weights_through_a_packed_batch():
    layer = nn.GRU(2, 3, num_layers=2).double()
    x = pb.randn(4, 2, 2, dtype=pb.float64, requires_grad=True)

    def run(x):
        packed = rnn.pack_padded_sequence(x, [4, 2])
        return layer(packed)[0].data

    assert pb.autograd.gradcheck(run, (x,))
    run(x).sum().backward()
    assert all((p.grad != 0).any() for p in layer.parameters())
    assert (x.grad[2:, 1] == 0).all()


def test_dropout_is_between_layers_in_training_alone():
    with pytest.warns(UserWarning, match="non-zero dropout expects num_layers greater than 1"):
        nn.LSTM(2, 3, dropout=0.5)
    layer = nn.LSTM(2, 3, num_layers=2, dropout=1.0)
    x = pb.randn(4, 1, 2)
    assert not pb.equal(layer(x)[0], layer.eval()(x)[0])
    assert pb.equal(layer(x)[0], layer(x)[0])


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_flat_weights_that_are_assigned_are_used(kind):
    layer = getattr(nn, kind)(2, 3, num_layers=2)
    doubled = copy.deepcopy(layer)
    with pb.no_grad():
        for weight in doubled.parameters():
            weight.mul_(2)
    x = pb.ones(4, 1, 2)
    given = [weight * 2 for weight in layer._flat_weights]
    layer._flat_weights = given
    assert all(a is b for a, b in zip(layer._flat_weights, given, strict=True))
    assert layer(x)[0].tolist() == doubled(x)[0].tolist()
    with pytest.raises(ValueError, match="shorter"):
        layer._flat_weights = given[:1]


def test_cells_make_one_step_of_the_layers():
    for kind in ("RNN", "LSTM", "GRU"):
        layer, cell = getattr(nn, kind)(3, 4), getattr(nn, f"{kind}Cell")(3, 4)
        cell.load_state_dict({k.removesuffix("_l0"): v for k, v in layer.state_dict().items()})
        x = pb.randn(1, 2, 3)
        found = cell(x[0])
        found = found[0] if kind == "LSTM" else found
        np.testing.assert_allclose(found.detach(), layer(x)[0][0].detach(), rtol=1e-5, atol=1e-7)
