"""Per-sample gradients of many programs, beside a backward pass for each sample."""

import pytest

import pullback as pb
from pullback.autograd.diagnostics import per_sample
from pullback.autograd.graph import per_sample_gradients

functional = pb.nn.functional
RULED, OTHERS = {}, {}  # whether or not there are rules for all nodes of a program


class Data:
    """Makes inputs of a program: ``data(*shape)`` has a row for each sample."""

    def __init__(self, batch):
        self.batch = batch

    def __call__(self, *shape, dtype=pb.float64):
        return pb.randn(self.batch, *shape, dtype=dtype)

    def below(self, high, *shape):
        return pb.randint(0, high, (self.batch, *shape))


def program(*shapes, ruled=True, dtype=pb.float64):
    """Register a function of data and of parameters of these shapes."""

    def register(function):
        def make(batch):
            pb.manual_seed(0)
            made = [pb.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]
            return function(Data(batch), *made), made

        (RULED if ruled else OTHERS)[function.__name__] = make
        return function

    return register


def module_program(made, ruled=True):
    """Register a function of data and of a module."""

    def register(function):
        def make(batch):
            pb.manual_seed(0)
            module = made()
            return function(Data(batch), module), list(module.parameters())

        (RULED if ruled else OTHERS)[function.__name__] = make
        return function

    return register


# ---- programs with rules -------------------------------------------------------------------------


@program((8, 6), (8,), (3, 8), (3,))
def mlp(data, w1, b1, w2, b2):
    h = functional.linear(functional.relu(functional.linear(data(6), w1, b1)), w2, b2)
    return functional.cross_entropy(h, data.below(3), reduction="none")


@program((8, 6), (8,))
def regression(data, w, b):
    out = functional.linear(data(6), w, b)
    return functional.mse_loss(out, data(8), reduction="none").mean(1)


@program((3,))
def regression_of_targets(data, w):
    return functional.mse_loss(data(3), w.expand(data.batch, 3), reduction="none").sum(1)


@program((4, 3, 3, 3), (4,), (6, 2, 3, 3))
def convolutions(data, w1, b, w2):
    h = functional.conv2d(data(3, 8, 8), w1, b, padding=1).tanh()
    h = functional.max_pool2d(functional.conv2d(h, w2, groups=2, stride=2), 2)
    return h.flatten(1).logsumexp(1)


@program((6, 2, 3), (6,))
def convolution_of_sequences(data, w, b):
    h = functional.conv1d(data(4, 9), w, b, stride=2, padding=1, dilation=2, groups=2)
    return h.square().sum((1, 2))


@program((2, 2, 2, 2, 2), (2,))
def convolution_of_volumes(data, w, b):
    return functional.conv3d(data(2, 2, 5, 5), w, b, stride=(1, 2, 2)).sin().sum((1, 2, 3, 4))


@program((8, 1, 3, 3), (8,))
def depthwise_convolution(data, w, b):
    h = functional.conv2d(data(4, 6, 6), w, b, padding=1, groups=4).tanh()
    return functional.avg_pool2d(h, 3).flatten(1).square().sum(1)


@program((3, 9, 2))
def convolution_of_transposed(data, w):
    return functional.conv1d(data(4, 9).transpose(1, 2), w).tanh().transpose(1, 2).sum((1, 2))


@program((10, 6), (6,), (6,), (6, 6))
def embeddings(data, table, g, b, w):
    h = functional.embedding(data.below(10, 4), table, padding_idx=2)
    return (functional.layer_norm(h, (6,), g, b) @ w).relu().sum((1, 2))


@program((10, 6))
def tied_embeddings(data, table):
    h = functional.embedding(data.below(10, 4), table)
    return (h @ table.t()).exp().mean((1, 2))


@program((6, 6), (6, 6), (6, 6), (6, 6))
def attention(data, q, k, v, out):
    x = data(4, 6)
    scores = (x @ q) @ (x @ k).transpose(1, 2)
    return (x + pb.softmax(scores / 2, -1) @ (x @ v) @ out).square().mean((1, 2))


@program((6, 4), (6, 4), (6, 4))
def attention_of_heads(data, *weights):
    x = data(3, 6)
    q, k, v = ((x @ w).view(data.batch, 3, 2, 2).transpose(1, 2) for w in weights)
    h = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return h.transpose(1, 2).reshape(data.batch, 3, 4).square().sum((1, 2))


@module_program(lambda: pb.nn.MultiheadAttention(4, 2, batch_first=True, dtype=pb.float64))
def multihead_attention(data, module):
    x = data(3, 4)
    return module(x, x, x)[0].square().sum((1, 2))


@module_program(lambda: pb.nn.MultiheadAttention(4, 2, dtype=pb.float64))
def multihead_attention_by_time(data, module):
    x = data(3, 4).transpose(0, 1)
    return module(x, x, x, need_weights=False)[0].square().sum((0, 2))


@module_program(
    lambda: pb.nn.TransformerEncoderLayer(8, 2, 16, 0.3, batch_first=True, dtype=pb.float64)
)
def transformer_with_dropout(data, module):
    return module(data(4, 8)).square().mean((1, 2))


@module_program(lambda: pb.nn.RNN(5, 4, dtype=pb.float64))
def recurrent_layer_by_time(data, module):
    return module(data(3, 5).transpose(0, 1))[0].square().sum((0, 2))


@module_program(lambda: pb.nn.GRUCell(3, 4, dtype=pb.float64))
def recurrent_cell(data, module):
    return module(data(3), module(data(3), data(4))).sin().sum(1)


@program((20, 5), (20, 5), (20,))
def recurrence_of_gates(data, w, u, b):
    h, c = data(5), data(5)
    for _ in range(3):
        i, f, o, g = (data(5) @ w.t() + h @ u.t() + b).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return h.square().sum(1)


@program((4, 3, 3, 3), (4,), (4,))
def group_norm(data, w, g, b):
    h = functional.group_norm(functional.conv2d(data(3, 6, 6), w), 2, g, b)
    return h.square().sum((1, 2, 3))


@program((4, 3, 3, 3), (4,), (4,))
def instance_norm(data, w, g, b):
    h = functional.instance_norm(functional.conv2d(data(3, 6, 6), w), weight=g, bias=b)
    return h.sin().sum((1, 2, 3))


@program((4, 3, 3, 3), (4,), (4,))
def running_norm(data, w, g, b):
    mean, variance = pb.randn(4, dtype=pb.float64), pb.rand(4, dtype=pb.float64) + 1
    h = functional.batch_norm(functional.conv2d(data(3, 6, 6), w), mean, variance, g, b)
    return h.sin().sum((1, 2, 3))


@program((5, 5), (3, 5), (3, 5))
def layer_norm_of_two_dims(data, w, g, b):
    return functional.layer_norm(data(3, 5) @ w, (3, 5), g, b).pow(3).sum((1, 2))


@program((5, 5), (5,), (5,))
def layer_norm_of_rows(data, w, g, b):
    return functional.layer_norm(data(5) @ w, (5,), g, b).pow(3).sum(1)


@program((5, 5), (5,))
def rms_norm(data, w, g):
    return functional.rms_norm(data(3, 5) @ w, (5,), g).pow(3).sum((1, 2))


@program((8, 1), (8, 6), (8,))
def weight_norm(data, scale, w, b):
    weight = scale * w / w.norm(dim=1, keepdim=True)
    return functional.linear(data(6), weight, b).sin().sum(1)


@program((5, 2))
def normed_and_plain_weight(data, w):
    unit, x = w / w.norm(), data(5)
    return (x @ unit).tanh().sum(1) * (x @ w).sum(1) + unit.sum()


@program((6, 6))
def several_uses(data, w):
    x = data(6)
    h = functional.linear(functional.linear(x, w).tanh(), w).sum(1)
    return h + functional.linear(x, w.t())[:, 0]


@program((5, 5))
def uses_in_several_shapes(data, w):
    h = functional.linear(data(3, 5), w)
    return (functional.linear(h.mean(1), w) * h[:, 0]).sum(1)


@program((6, 5))
def parts_of_a_weight(data, w):
    a, b = w.chunk(2, 0)
    x = data(5)
    return ((x @ a.t()) * (x @ b.t()).tanh()).sum(1)


@program((8, 6), (6,))
def joins_and_views(data, w, g):
    x = data(6)
    h = pb.cat([functional.linear(x, w), x * g], 1).permute(1, 0).unsqueeze(0).squeeze(0).t()
    a, b = h.chunk(2, 1)
    return (a * b.sigmoid()).square().sum(1)


@program((2, 5), (2,))
def samples_merged_with_another_dim(data, w, b):
    h = functional.linear(data(3, 5).reshape(data.batch * 3, 5), w, b).tanh()
    return h.reshape(data.batch, 6).square().sum(1)


@program((2, 5), (2,))
def samples_merged_as_inner_dim(data, w, b):
    h = functional.linear(data(3, 5).permute(1, 0, 2), w, b).tanh().reshape(3 * data.batch, 2)
    return h.view(3, data.batch, 2).transpose(0, 1).flatten(1).exp().sum(1)


@program((5, 2))
def samples_in_the_middle(data, w):
    x = data(3, 2, 5).transpose(0, 1)
    h = (x.reshape(-1, 5) @ w).view(3, data.batch, 2, 2).permute(1, 0, 2, 3)
    return h.reshape(data.batch, 12).tanh().sum(1)


@program((6,), (6, 6))
def samples_in_the_second_dim(data, g, w):
    return ((data(4, 6).transpose(0, 1) * g) @ w).tanh().sum((0, 2))


@program((2, 5), (2, 1))
def samples_in_the_last_dim(data, w, b):
    return (w @ data(5).t() + b).tanh().sum(0)


@program((6,))
def along_dims(data, w):
    h = (data(4, 6) * w).cumprod(1).sort(2)[0].unbind(1)
    h = pb.stack([h[0], h[2]], 2).gather(1, data.below(6, 3, 2))
    return h.unsqueeze(1).select(2, 1).narrow(2, 0, 1).amax((1, 2))


@program((5, 5))
def reductions(data, w):
    h = data(5) @ w
    found = h.max(1)[0] * h.logsumexp(1) + h.var(1) + h.std(1) + h.prod(1)
    return found + h.norm(dim=1) + h.amax(1) + h.median(1)[0]


@program((5, 5))
def flips_within_samples(data, w):
    h = (data(5) @ w).cumsum(1).sin()
    return (h * h.log_softmax(1)).sum(1)


@program((6, 6))
def einsum(data, w):
    return pb.einsum("bti,io->bto", data(4, 6), w).exp().sum((1, 2))


@program((2, 5, 4))
def einsum_of_heads(data, w):
    return pb.einsum("btd,hde->bthe", data(3, 5), w).square().sum((1, 2, 3))


@program((5, 2, 5))
def einsum_of_three(data, w):
    x = data(5)
    return pb.einsum("bi,ikj,bj->bk", x, w, x).square().sum(1)


@program((2, 5, 5), (2,))
def bilinear(data, w, b):
    return functional.bilinear(data(5), data(5), w, b).square().sum(1)


@program((3, 5, 2))
def batches_of_products(data, w):
    return pb.bmm(data(3, 5).transpose(0, 1), w).square().sum((0, 2))


@program((5, 2), (2,))
def scaled_product(data, w, b):
    return pb.addmm(b, data(5), w, beta=0.3, alpha=1.7).square().sum(1)


@program((2, 5), (2, 1))
def scaled_product_from_the_left(data, w, b):
    return pb.addmm(b, w, data(5).t(), beta=0.3, alpha=1.7).square().sum(0)


@program((8, 6))
def regularized(data, w):
    return functional.linear(data(6), w).sum(1) + (w * w).sum()


@program((6,), (2,))
def unused(data, w, other):
    return (data(6) * w).sum(1)


@program((), (5,), (1, 5), (3, 1))
def broadcast_factors(data, s, g, h, k):
    return ((data(3, 5) * g + h) * k / (s.exp() + 1)).sin().sum((1, 2))


@program((5,), (5,))
def pointwise_ops(data, g, h):
    x = data(5)
    found = pb.atan2(x, g) + pb.maximum(x, h) + pb.lerp(g, x, 0.3) + pb.lerp(x, h, 0.2)
    return (found + pb.addcmul(g, x, h, value=2)).square().sum(1)


@program((1, 1, 5), (3, 5), (5, 5))
def tokens_and_positions(data, token, position, w):
    x = pb.cat([token.expand(data.batch, 1, 5), data(3, 5) + position], 1)
    return (x @ w).tanh().sum((1, 2))


@program((5, 5))
def expanded_samples(data, w):
    return ((data(5) @ w)[:, None].expand(data.batch, 3, 5) * data(3, 5)).sin().sum((1, 2))


@program((5,))
def repeated_weight(data, w):
    return (w.repeat(data.batch, 1) * data(5)).sin().sum(1)


@program((5, 5))
def written_in_place(data, w):
    return (data(5) @ w).mul_(2).sub_(1).sin_().sum(1)


@program((5, 4))
def activations(data, w):
    h = data(5) @ w
    return functional.glu(h, 1).square().sum(1) + functional.gelu(h).sum(1)


@program((5,), (5, 2), (2,), dtype=pb.complex128)
def complex_numbers(data, g, w, b):
    x = data(5, dtype=pb.complex128) * g
    return pb.addmm(b, x, w, beta=0.3 + 0.5j, alpha=1 - 2j).abs().square().sum(1)


@program((5,), (5,))
def real_parameters_of_complex_numbers(data, g, b):
    return (data(5, dtype=pb.complex128) * g + b).abs().square().sum(1)


@program((5,), (5,), dtype=pb.float32)
def narrow_parameters(data, g, b):
    return (data(5) * g + b).sin().sum(1)


@program((5, 5))
def mapped(data, w):
    return pb.func.vmap(lambda x: (x @ w).tanh().sum())(data(5))


# ---- other programs ------------------------------------------------------------------------------


@module_program(lambda: pb.nn.LSTM(8, 3, batch_first=True, dtype=pb.float64), ruled=False)
def lstm(data, module):
    return module(data(4, 8))[0].sum((1, 2))


@program((4,), ruled=False)
def determinants(data, w):
    return pb.linalg.det((data(4) * w).reshape(data.batch, 2, 2))


@program((6,), ruled=False)
def flipped(data, w):
    return ((data(6) * w).flip(0) * data(6)).sum(1)


@program((5, 5), ruled=False)
def centred(data, w):
    h = data(5) @ w
    return (h - h.mean(0)).square().sum(1)


@program((5, 5), ruled=False)
def attention_over_the_batch(data, w):
    h = data(5) @ w
    return (h @ h.t()).softmax(1).diagonal()


@program((6, 5), ruled=False)
def samples_in_either_dim(data, w):
    h = data(6) @ (w @ pb.randn(5, data.batch, dtype=pb.float64))
    return (h + h.t()).square().sum(1)


@program((5, 5), ruled=False)
def summed_along_the_batch(data, w):
    return (data(5) @ w).cumsum(0).square().sum(1)


@program((5, 5), ruled=False)
def distances(data, w):
    h = data(5) @ w
    return (pb.cdist(h, h) * pb.randn(data.batch, data.batch, dtype=pb.float64)).sum(1)


@program((5, 5), (5, 2), ruled=False)
def repeated_samples(data, v, w):
    return ((data(5) @ v).repeat(2, 1) @ w).square().reshape(2, data.batch, 2).sum((0, 2))


@program((5,), ruled=False)
def tiled_weight(data, w):
    return (w.repeat(data.batch, 2) * data(10)).sin().sum(1)


@program((5, 5), ruled=False)
def taken_rows(data, w):
    h = pb.cat([data(5), data(5)]) @ w
    return h.gather(1, data.below(5, 3)).square().sum(1)


@program((5, 5), ruled=False)
def indexed_rows(data, w):
    return (data(5) @ w)[:, [0, 2, 2]].square().sum(1)


@program((7, 5), ruled=False)
def indexed_table(data, table):
    return table[data.below(7, 3)].square().sum((1, 2))


@program((5, 5), ruled=False)
def written_in_part(data, w):
    h = data(5) @ w
    h[:, 1:3].mul_(3)
    return h.sin().sum(1)


@program((5, 2), ruled=False)
def another_loss(data, w):
    return functional.binary_cross_entropy_with_logits(
        data(5) @ w, data.below(2, 2).double(), reduction="none"
    ).sum(1)


@program((5, 5), ruled=False)
def solved(data, w):
    return pb.linalg.solve(w, data(5).t()).square().sum(0)


def looped(losses, parameters):
    """Return the gradients by one pass for each sample."""
    rows = [
        pb.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True) for loss in losses
    ]
    return [
        pb.stack([pb.zeros_like(p) if row[k] is None else row[k] for row in rows])
        for k, p in enumerate(parameters)
    ]


def assert_equal(found, expected, tolerance=1e-9):
    for one, other in zip(found, expected, strict=True):
        single = one.dtype in (pb.float32, pb.complex64)
        limit = 1e-5 if single else tolerance
        pb.testing.assert_close(one, other, rtol=limit, atol=limit)


BATCHES = pytest.mark.parametrize("batch", [1, 2, 3, 5])


@BATCHES
@pytest.mark.parametrize("name", RULED)
def test_as_a_pass_for_each_sample(name, batch, monkeypatch):
    if batch > 1:
        monkeypatch.delattr(per_sample, "_batched")  # there are rules for all of it
    losses, parameters = RULED[name](batch)
    expected = looped(losses, parameters)
    assert_equal(per_sample_gradients(losses, parameters), expected)
    assert_equal(per_sample_gradients(losses.sum(), parameters), expected)
    found = per_sample_gradients(losses.mean(), parameters, reduction="mean")
    assert_equal(found, expected)


@BATCHES
@pytest.mark.parametrize("name", OTHERS)
def test_without_rules(name, batch):
    losses, parameters = OTHERS[name](batch)
    expected = looped(losses, parameters)
    assert_equal(per_sample_gradients(losses, parameters), expected)
    if batch == 1:
        assert_equal(per_sample_gradients(losses.sum(), parameters), expected)
        return
    with pytest.raises(RuntimeError, match="pass the vector of the samples' losses"):
        per_sample_gradients(losses.sum(), parameters)
