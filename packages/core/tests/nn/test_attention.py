"""Attention of several heads and transformers, against sums over heads in NumPy."""

import numpy as np
import pytest

import pullback as pb
from pullback import nn

RNG = np.random.default_rng(0)
HIDDEN = np.array([[False, False, True], [False, False, False]])


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def expected(layer, query, key, value, mask=0.0, hidden=None):
    """Compute element of the batch by element, head by head; inputs are (n, length, size)."""
    state = {name: tensor.numpy() for name, tensor in layer.state_dict().items()}
    size = layer.head_dim
    if "in_proj_weight" in state:
        weights = np.split(state["in_proj_weight"], 3)
    else:
        weights = [state[f"{letter}_proj_weight"] for letter in "qkv"]
    biases = np.split(state["in_proj_bias"], 3) if "in_proj_bias" in state else (0.0, 0.0, 0.0)
    out, shown = [], []
    for n in range(len(query)):
        q, k, v = (
            x[n] @ w.T + b for x, w, b in zip((query, key, value), weights, biases, strict=True)
        )
        scores_of, joined = [], []
        for head in range(layer.num_heads):
            part = slice(head * size, (head + 1) * size)
            scores = q[:, part] @ k[:, part].T / np.sqrt(size) + mask
            if hidden is not None:
                scores = np.where(hidden[n], -np.inf, scores)
            keys_and_values = v[:, part]
            if layer.bias_k is not None:
                more = q[:, part] @ state["bias_k"][0, :, part].T / np.sqrt(size)
                scores = np.concatenate((scores, more), -1)
                keys_and_values = np.concatenate((v[:, part], state["bias_v"][0, :, part]))
            scores_of.append(softmax(scores))
            joined.append(scores_of[-1] @ keys_and_values)
        joined = np.concatenate(joined, -1) @ state["out_proj.weight"].T
        out.append(joined + state.get("out_proj.bias", 0.0))
        shown.append(scores_of)
    return np.array(out), np.array(shown)


def close(ours, theirs):
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"kdim": 6, "vdim": 5}, {"add_bias_kv": True}]
)
def test_attention_is_a_sum_over_heads(options, need_weights):
    layer = nn.MultiheadAttention(8, 2, batch_first=True, dtype=pb.float64, **options)
    query = RNG.normal(size=(2, 4, 8))
    key, value = (RNG.normal(size=(2, 3, options.get(name, 8))) for name in ("kdim", "vdim"))
    mask = RNG.normal(size=(4, 3))
    tensors = [pb.tensor(x) for x in (query, key, value)]
    out, weights = layer(
        *tensors,
        key_padding_mask=pb.tensor(np.where(HIDDEN, -np.inf, 0.0)),
        attn_mask=pb.tensor(mask),
        need_weights=need_weights,
        average_attn_weights=False,
    )
    wanted, wanted_weights = expected(layer, query, key, value, mask, HIDDEN)
    close(out, wanted)
    if need_weights:
        close(weights, wanted_weights)
    else:
        assert weights is None


def test_one_sequence_is_a_batch_of_one():
    layer = nn.MultiheadAttention(8, 4, dtype=pb.float64)
    x = pb.tensor(RNG.normal(size=(5, 8)))
    out, weights = layer(x, x, x)
    wanted, wanted_weights = expected(layer, x.numpy()[None], x.numpy()[None], x.numpy()[None])
    close(out, wanted[0])
    close(weights, wanted_weights[0].mean(0))


def test_causal_hint_hides_what_comes_later():
    layer = nn.MultiheadAttention(8, 2, batch_first=True, dtype=pb.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(5, dtype=pb.float64)
    x = pb.tensor(RNG.normal(size=(2, 5, 8)))
    out, _ = layer(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)
    changed = x.clone()
    changed[:, 3:] += 1.0
    other, _ = layer(changed, changed, changed, attn_mask=mask, is_causal=True, need_weights=False)
    close(out[:, :3], other[:, :3].detach().numpy())
    assert (out[:, 3:] - other[:, 3:]).abs().min() > 0
    close(out, expected(layer, *[x.numpy()] * 3, mask.numpy())[0])


def test_weights_begin_as_xavier_uniform_draws_them():
    layer = nn.MultiheadAttention(64, 4)
    bound = np.sqrt(6 / (4 * 64))
    assert 0.9 * bound < layer.in_proj_weight.abs().max().item() <= bound
    assert not layer.in_proj_bias.any() and not layer.out_proj.bias.any()


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize("norm_first", [True, False])
def test_layers_add_what_they_compute(norm_first):
    pb.manual_seed(0)
    options = {"norm_first": norm_first, "batch_first": True, "dtype": pb.float64, "dropout": 0.0}
    encoder = nn.TransformerEncoderLayer(8, 2, 16, **options)
    decoder = nn.TransformerDecoderLayer(8, 2, 16, **options)
    x, memory = RNG.normal(size=(2, 4, 8)), RNG.normal(size=(2, 3, 8))

    def feed_forward(layer):
        state = {name: tensor.numpy() for name, tensor in layer.state_dict().items()}

        def compute(x):
            hidden = np.maximum(x @ state["linear1.weight"].T + state["linear1.bias"], 0)
            return hidden @ state["linear2.weight"].T + state["linear2.bias"]

        return compute

    def through(x, *parts):
        for part in parts:
            x = x + part(norm(x)) if norm_first else norm(x + part(x))
        return x

    def attend(layer, memory=None):
        return lambda x: expected(layer, x, *[x if memory is None else memory] * 2)[0]

    close(encoder(pb.tensor(x)), through(x, attend(encoder.self_attn), feed_forward(encoder)))
    parts = (attend(decoder.self_attn), attend(decoder.multihead_attn, memory))
    close(decoder(pb.tensor(x), pb.tensor(memory)), through(x, *parts, feed_forward(decoder)))


def test_encoder_leaves_padding_out_where_torch_does():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x, hidden = pb.ones(2, 3, 8), pb.tensor(HIDDEN)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    with pb.no_grad():
        assert not encoder(x, src_key_padding_mask=hidden)[hidden].any()
        assert encoder(x, src_key_padding_mask=hidden.flip(1))[hidden.flip(1)].all()
        plain = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
        assert plain(x, src_key_padding_mask=hidden)[hidden].all()
    assert encoder(x, src_key_padding_mask=hidden)[hidden].all()


def test_transformer_learns_to_reverse():
    pb.manual_seed(0)
    model = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
    embed, head = nn.Embedding(6, 16), nn.Linear(16, 5)
    x = pb.randint(0, 5, (32, 4))
    y = x.flip(1)
    shifted = pb.cat((pb.full((32, 1), 5), y[:, :-1]), 1)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    places = nn.Parameter(pb.randn(4, 16))
    parameters = [*model.parameters(), *embed.parameters(), *head.parameters(), places]
    losses = []
    for _ in range(60):
        out = head(model(embed(x) + places, embed(shifted) + places, tgt_mask=mask))
        loss = nn.functional.cross_entropy(out.flatten(0, 1), y.flatten())
        losses.append(loss.item())
        loss.backward()
        with pb.no_grad():
            for parameter in parameters:
                parameter -= 0.2 * parameter.grad
                parameter.grad = None
    assert losses[-1] < 0.5 * losses[0]


class TestAdaptiveLogSoftmaxWithLoss:
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], 2.0, dtype=pb.float64)
    x = pb.tensor(RNG.normal(size=(5, 8)))

    def test_probabilities_are_products_of_cluster_and_class(self):
        head = np.log(softmax(self.layer.head(self.x).detach().numpy()))
        parts = [head[:, :3]]
        for number, tail in enumerate(self.layer.tail):
            inside = np.log(softmax(tail(self.x).detach().numpy()))
            parts.append(head[:, 3 + number, None] + inside)
        wanted = np.concatenate(parts, 1)
        close(self.layer.log_prob(self.x), wanted)
        target = np.array([0, 2, 3, 11, 7])
        output, loss = self.layer(self.x, pb.tensor(target))
        close(output, wanted[np.arange(5), target])
        assert loss.item() == pytest.approx(-wanted[np.arange(5), target].mean())
        assert self.layer.predict(self.x).tolist() == wanted.argmax(1).tolist()

    def test_sizes_of_clusters_shrink(self):
        assert [tail[0].out_features for tail in self.layer.tail] == [4, 2]
