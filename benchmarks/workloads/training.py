"""Training steps of whole models: forward, backward and an update of every parameter."""

from __future__ import annotations

from benchmarks.workloads.registry import (
    DEFAULT_BUDGET,
    FULL,
    FUSED_BUDGET,
    PRODUCT_BUDGET,
    workload,
)

RATE = -1e-4


def step_of(module, parameters, loss):
    """Return a function that runs ``n`` steps; ``loss`` returns the scalar to make smaller."""

    def run(n):
        for _ in range(n):
            loss().backward()
            with module.no_grad():
                for parameter in parameters:
                    parameter.add_(parameter.grad, alpha=RATE)
                    parameter.grad = None

    return run


def make_leaves(module, *shapes):
    """Return parameters of these shapes, small enough for activations to stay near 1."""
    leaves = []
    for shape in shapes:
        scale = (shape[0] if len(shape) == 2 else 9 * shape[1] if len(shape) == 4 else 1) ** -0.5
        values = module.randn(*shape) * scale if len(shape) > 1 else module.zeros(*shape)
        leaves.append(values.requires_grad_())
    return leaves


def mlp(module, size):
    """MLP 784-512-512-10, batch 128."""
    width, batch = size(512), size(128)
    leaves = make_leaves(
        module, (784, width), (width,), (width, width), (width,), (width, 10), (10,)
    )
    w1, b1, w2, b2, w3, b3 = leaves
    images, labels = module.randn(batch, 784), module.randint(0, 10, (batch,))
    functional = module.nn.functional

    def loss():
        hidden = (images @ w1 + b1).relu()
        hidden = (hidden @ w2 + b2).relu()
        return functional.cross_entropy(hidden @ w3 + b3, labels)

    return step_of(module, leaves, loss)


def rnn(module, size):
    """RNN of 64 steps, width 64, batch 32."""
    steps, width = size(64), 64
    leaves = make_leaves(module, (width, width), (width, width), (width,))
    w_in, w_state, b = leaves
    inputs = module.randn(steps, 32, width)

    def loss():
        state = module.zeros(32, width)
        for i in range(steps):
            state = (inputs[i] @ w_in + state @ w_state + b).tanh()
        return state.square().mean()

    return step_of(module, leaves, loss)


def lstm(module, size):
    """LSTM of 32 steps, width 128, batch 32."""
    steps, width = size(32), size(128)
    leaves = make_leaves(module, (width, 4 * width), (width, 4 * width), (4 * width,))
    w_in, w_state, b = leaves
    inputs = module.randn(steps, 32, width)

    def loss():
        state, cell = module.zeros(32, width), module.zeros(32, width)
        for i in range(steps):
            gates = inputs[i] @ w_in + state @ w_state + b
            enter, forget, new, leave = gates.chunk(4, 1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            state = leave.sigmoid() * cell.tanh()
        return state.square().mean()

    return step_of(module, leaves, loss)


def _lstm_layer(module, rows, steps, inputs, units):
    layer, data = module.nn.LSTM(inputs, units), module.randn(steps, rows, inputs)
    return step_of(module, list(layer.parameters()), lambda: layer(data)[0].square().mean())


def lstm_layer(module, size):
    """nn.LSTM with 128 units, 50 steps, 64 inputs, batch 32."""
    return _lstm_layer(module, 32, size(50), 64, size(128))


def lstm_layer_small(module, size):
    """nn.LSTM with 16 units, 10 steps, 8 inputs, batch 4."""
    return _lstm_layer(module, 4, 10, 8, 16)


def transformer(module, size):
    """Transformer block, width 256, 8 heads, 128 tokens, batch 8."""
    width, tokens, batch, heads = 256, size(128), 8, 8
    leaves = make_leaves(
        module,
        *((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)),
        *((3 * width,), (width,), (4 * width,), (width,)),
    )
    w_qkv, w_out, w_up, w_down, b_qkv, b_out, b_up, b_down = leaves
    inputs = module.randn(batch, tokens, width)
    functional = module.nn.functional

    def loss():
        normal = functional.layer_norm(inputs, (width,))
        qkv = (normal @ w_qkv + b_qkv).reshape(batch, tokens, 3, heads, width // heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        mixed = mixed.transpose(1, 2).reshape(batch, tokens, width)
        x = inputs + mixed @ w_out + b_out
        normal = functional.layer_norm(x, (width,))
        x = x + functional.gelu(normal @ w_up + b_up) @ w_down + b_down
        return x.square().mean()

    return step_of(module, leaves, loss)


def conv_net(module, size):
    """Conv net on 32 images of 28 x 28: 16 and 32 filters, two poolings, a linear layer."""
    batch = size(32)
    leaves = make_leaves(
        module, (16, 1, 3, 3), (16,), (32, 16, 3, 3), (32,), (32 * 7 * 7, 10), (10,)
    )
    k1, b1, k2, b2, w, b = leaves
    images, labels = module.randn(batch, 1, 28, 28), module.randint(0, 10, (batch,))
    functional = module.nn.functional

    def loss():
        x = functional.max_pool2d(functional.conv2d(images, k1, b1, padding=1).relu(), 2)
        x = functional.max_pool2d(functional.conv2d(x, k2, b2, padding=1).relu(), 2)
        return functional.cross_entropy(x.flatten(1) @ w + b, labels)

    return step_of(module, leaves, loss)


def embedding_softmax(module, size):
    """Embedding and softmax: vocabulary 10,000, width 64, 1024 words."""
    words, count = size(10_000), size(1024)
    leaves = make_leaves(module, (words, 64), (64, words))
    rows, w = leaves
    context, target = module.randint(0, words, (count,)), module.randint(0, words, (count,))
    functional = module.nn.functional

    def loss():
        return functional.cross_entropy(functional.embedding(context, rows) @ w, target)

    return step_of(module, leaves, loss)


MODELS = {
    make.__name__: make
    for make in (
        *(mlp, rnn, lstm, lstm_layer, lstm_layer_small, transformer, conv_net),
        embedding_softmax,
    )
}


def register(make, budget):
    """Register a training step as a row."""

    def prepare(module, n, size=FULL):
        module.manual_seed(0)
        run = make(module, size)
        return lambda: run(n)

    prepare.__name__, prepare.__doc__ = make.__name__, f"Training step, {make.__doc__}"
    workload(None, budget[0], budget[1], group="training", alone=False)(prepare)


for name, budget in {
    "mlp": PRODUCT_BUDGET,
    "rnn": DEFAULT_BUDGET,
    "lstm": DEFAULT_BUDGET,
    "lstm_layer": FUSED_BUDGET,
    "lstm_layer_small": FUSED_BUDGET,
    "transformer": PRODUCT_BUDGET,
    "conv_net": DEFAULT_BUDGET,
    "embedding_softmax": DEFAULT_BUDGET,
}.items():
    register(MODELS[name], budget)
