"""Eight models, trained from the same weights on the same data by both, have the same losses."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

import pullback  # noqa: E402

STEPS = 50


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def classes(seed, count, *shape):
    return np.random.default_rng(seed).integers(0, count, shape)


# ---- models: (module, inputs, targets) by library ------------------------------------------------


def mlp(m):
    nn = m.nn
    model = nn.Sequential(
        *(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 5))
    )
    return model, normal(1, 64, 20), classes(2, 5, 64)


def conv_net(m):
    nn = m.nn
    model = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.SiLU(), nn.AdaptiveAvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(64, 5)),
    )
    return model, normal(1, 16, 3, 12, 12), classes(2, 5, 16)


def resnet(m):
    nn = m.nn

    class Block(nn.Module):
        def __init__(self, before, after, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(after)
            self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(after)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

        def forward(self, x):
            out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            out += self.downsample(x)
            return self.relu(out)

    model = nn.Sequential(
        *(Block(3, 8, 1), Block(8, 16, 2), Block(16, 16, 1)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)),
    )
    return model, normal(1, 8, 3, 12, 12), classes(2, 5, 8)


def recurrent(kind, **options):
    def build(m):
        nn = m.nn

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = getattr(nn, kind)(6, 12, batch_first=True, **options)
                self.head = nn.Linear(12 * (1 + self.rnn.bidirectional), 5)

            def forward(self, x):
                return self.head(self.rnn(x)[0][:, -1])

        return Model(), normal(1, 16, 9, 6), classes(2, 5, 16)

    return build


def transformer_encoder(m):
    nn = m.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(
                *(16, 4, 32), dropout=0.0, batch_first=True, activation="gelu"
            )
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 5)

        def forward(self, x):
            return self.head(self.encoder(x).mean(1))

    return Model(), normal(1, 16, 7, 16), classes(2, 5, 16)


def attention_decoder(m):
    nn = m.nn

    class Model(nn.Module):
        """Two causal self-attention blocks over tokens; each position predicts the next token."""

        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(11, 16)
            self.places = nn.Parameter(m.zeros(8, 16))
            self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(4))
            self.attentions = nn.ModuleList(
                nn.MultiheadAttention(16, 2, batch_first=True) for _ in range(2)
            )
            self.mlps = nn.ModuleList(
                nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(2)
            )
            self.head = nn.Linear(16, 11, bias=False)
            mask = m.triu(m.ones(8, 8, dtype=m.bool), 1)
            self.register_buffer("mask", mask, persistent=False)

        def forward(self, x):
            x = self.tokens(x) + self.places
            for i, (attention, mlp) in enumerate(zip(self.attentions, self.mlps)):
                y = self.norms[2 * i](x)
                x = x + attention(y, y, y, attn_mask=self.mask, need_weights=False)[0]
                x = x + mlp(self.norms[2 * i + 1](x))
            return self.head(x).flatten(0, 1)

    tokens = classes(1, 11, 6, 9)
    return Model(), tokens[:, :-1].copy(), tokens[:, 1:].reshape(-1)


def embedding_bag(m):
    nn = m.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag = nn.EmbeddingBag(50, 12, mode="mean", padding_idx=0)
            self.head = nn.Linear(12, 5)

        def forward(self, x):
            return self.head(self.bag(x).relu())

    return Model(), classes(1, 50, 32, 6), classes(2, 5, 32)


MODELS = {
    "MLP": (mlp, "SGD", {"lr": 0.1, "momentum": 0.9}),
    "conv net with batch norm": (conv_net, "Adam", {"lr": 1e-3}),
    "ResNet blocks": (resnet, "SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True}),
    "LSTM": (recurrent("LSTM", num_layers=2), "Adam", {"lr": 5e-3}),
    "GRU": (recurrent("GRU", bidirectional=True), "RMSprop", {"lr": 1e-3}),
    "transformer encoder": (transformer_encoder, "AdamW", {"lr": 1e-3}),
    "attention decoder": (attention_decoder, "AdamW", {"lr": 1e-3, "weight_decay": 0.1}),
    "embedding bag": (embedding_bag, "Adagrad", {"lr": 0.1}),
}


def train(m, built, optimizer, options):
    """Return the loss of each step, and all gradients of the first by name."""
    model, x, y = built
    x, y = m.tensor(x), m.tensor(y)
    optimizer = getattr(m.optim, optimizer)(model.parameters(), **options)
    losses, first = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = m.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if step == 0:
            first = {name: p.grad.numpy().copy() for name, p in model.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    return losses, first


@pytest.mark.parametrize("name", MODELS)
def test_training_is_torch_s(name):
    build, optimizer, options = MODELS[name]
    torch.manual_seed(0)
    theirs, ours = build(torch), build(pullback)
    state = {key: pullback.tensor(value.numpy()) for key, value in theirs[0].state_dict().items()}
    ours[0].load_state_dict(state)
    expected, expected_grads = train(torch, theirs, optimizer, options)
    losses, grads = train(pullback, ours, optimizer, options)
    assert list(grads) == list(expected_grads)
    # The gradient of a bias before batch norm is zero but for rounding.
    largest = max(np.abs(grad).max() for grad in expected_grads.values())
    for key, grad in grads.items():
        scale = max(np.abs(expected_grads[key]).max(), 0.1 * largest)
        np.testing.assert_allclose(grad, expected_grads[key], 1e-5, 1e-5 * scale, err_msg=key)
    np.testing.assert_allclose(losses, expected, 1e-4)
    assert losses[-1] < 0.9 * losses[0]  # or the curves would say little
