"""torch's lower-level functions: errors, and what samples of the op table do not show."""

import pytest

import pullback as pb

X = pb.arange(12.0).reshape(3, 4)
IDS, OFFSETS = pb.tensor([0, 2, 1]), pb.tensor([0, 2])
ONE = pb.tensor([1, 2])
GRID = pb.zeros(1, 1, 1, 2)


def test_range_includes_its_end_and_warns():
    with pytest.warns(UserWarning, match="range is deprecated"):
        assert pb.range(0, 3).tolist() == [0, 1, 2, 3]
    with pytest.warns(UserWarning, match="range is deprecated"):
        made = pb.range(3, 0, -2, dtype=pb.int64)
    assert made.tolist() == [3, 1] and made.dtype == pb.int64


@pytest.mark.filterwarnings("ignore:pullback.range is deprecated")
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pb.range(3, 0), RuntimeError, "upper bound and lower bound inconsistent with"),
        (lambda: pb.range(0, 3, 0), RuntimeError, "step must be nonzero"),
        (lambda: pb.range(0, float("inf")), RuntimeError, "unsupported range: 0 -> inf"),
        (lambda: pb.range(0, 3, dtype=pb.bool), NotImplementedError, "\"range_cpu\" .*'Bool'"),
        (lambda: pb.range(0, "a"), TypeError, r"range\(\): argument 'end' .*must be Number"),
        (lambda: pb.nonzero_static(X, size=-1), RuntimeError, "'size' must be an non-negative"),
        (lambda: pb.nonzero_static(X), TypeError, 'missing 1 required positional.*"size"'),
        (lambda: pb.nonzero_static(X, size="a"), TypeError, "argument 'size' must be int, not str"),
        (lambda: pb.binomial(IDS, X), ValueError, "only supports floating-point dtypes for count"),
        (lambda: pb.binomial(X, X.double()), RuntimeError, "Found dtype Double but expected Float"),
        (lambda: pb.binomial(X.half(), X.half()), NotImplementedError, "binomial_cpu.*Half"),
        (lambda: pb.norm_except_dim(X, 2, 2), IndexError, r"range of \[-2, 1\], but got 2"),
        (lambda: pb.norm_except_dim(X.long()), RuntimeError, "floating point or complex. Got Long"),
        (lambda: pb.native_dropout(X, 1.5, True), RuntimeError, "got p=-0.5"),
        (
            lambda: pb.native_layer_norm(X, (3,), None, None, 1e-5),
            RuntimeError,
            r"=\[3\], expected",
        ),
        (
            lambda: pb.native_group_norm(X, None, None, 2, 4, 3, 2, 1e-5),
            RuntimeError,
            r"N \* C \* HxW",
        ),
        (lambda: pb.embedding_bag(X, IDS, OFFSETS, False, 3), RuntimeError, "`mode` must be sum"),
        (
            lambda: pb.grid_sampler_3d(X[None, None], GRID, 0, 0, False),
            RuntimeError,
            "expected 5D input and grid with same number of dimensions, but got input with sizes "
            r"\[1, 1, 3, 4\] and",
        ),
        (lambda: pb.gradient(X, edge_order=3), RuntimeError, "only supports edge_order=1 and"),
        (lambda: pb.gradient(pb.ones(1)), RuntimeError, "at least edge_order.1"),
        (lambda: pb.gradient(X.to(pb.uint8)), RuntimeError, "does not support uint8 input"),
        (lambda: pb.gradient(X.bool()), RuntimeError, "with two bool tensors is not supported"),
        (lambda: pb.gradient(X, dim=(0, 0)), RuntimeError, "dim 0 appears multiple times"),
        (lambda: pb.gradient(X, spacing=[1.0] * 3), RuntimeError, "got a list of length 3"),
        (lambda: pb.gradient(X, spacing=[1.0], dim=(0, 1)), RuntimeError, "dim argument of length"),
        (lambda: pb.gradient(X, spacing="a"), TypeError, "argument 'spacing' must be Number.*str"),
        (lambda: pb.histogramdd(X[0], 2), RuntimeError, "at least 2 dimensions"),
        (lambda: pb.histogramdd(X, 2, [0.0, 1.0]), RuntimeError, "have 8 elements, but got 2"),
        (lambda: pb.histogramdd(X, [2]), RuntimeError, "size of bins must be equal to the inner"),
        (lambda: pb.histogramdd(X, [ONE] * 2), RuntimeError, "expected 4 sequences of bin edges"),
        (lambda: pb.histogramdd(X, "a"), TypeError, "argument 'bins' .*must be int"),
        (lambda: pb.histogramdd(X.long(), 2), NotImplementedError, "histogramdd.*'Long'"),
        (lambda: pb.segment_reduce(X, "sum"), RuntimeError, "Either lengths or offsets must be"),
        (lambda: pb.segment_reduce(X, "a", lengths=ONE), RuntimeError, "reduce argument must be"),
        (lambda: pb.segment_reduce(X, "sum", lengths=ONE - 1), RuntimeError, "sum to data.size"),
        (lambda: pb.segment_reduce(X, "sum", lengths=ONE * 5 - 6), RuntimeError, "negative value!"),
        (lambda: pb.segment_reduce(X, "sum", lengths=ONE, axis=1), RuntimeError, "axis to be the"),
        (lambda: pb.segment_reduce(X, "sum", indices=ONE), RuntimeError, "not supported yet"),
    ],
)
def test_lower_level_functions_refuse(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(("trials", "chance"), [(5, 0.3), (40, 0.9), (1000, 0.02), (10000, 0.4)])
def test_binomial_has_the_moments_of_its_distribution(trials, chance):
    pb.manual_seed(5)
    draws = 20000
    found = pb.binomial(pb.full((draws,), float(trials)), pb.tensor(chance)).double()
    mean, variance = trials * chance, trials * chance * (1 - chance)
    assert abs(found.mean().item() - mean) < 4 * (variance / draws) ** 0.5
    assert abs(found.var().item() / variance - 1) < 5 * (2 / draws) ** 0.5
    assert found.min().item() >= 0 and found.max().item() <= trials
    assert (found == found.floor()).all()


def test_binomial_at_the_ends():
    count, prob = pb.tensor([3.0, 3.0, 0.0, -1.0, 2.5]), pb.tensor([-0.5, 1.5, 0.5, 0.5, 1.0])
    assert pb.binomial(count, prob).tolist() == [0, 3, 0, 0, 2.5]
    assert pb.binomial(pb.tensor([float("nan"), 2.0]), pb.tensor([0.5, float("nan")])).isnan().all()
    with pytest.raises(NotImplementedError, match="binomial"):
        pb.binomial(pb.ones(1, requires_grad=True), pb.ones(1)).sum().backward()


def test_recurrent_functions_take_keywords_of_both_forms():
    layer = pb.nn.GRU(2, 3, 2, bidirectional=True)
    weights = [part for parts in layer.all_weights for part in parts]
    options = dict(has_biases=True, num_layers=2, dropout=0.0, train=False, bidirectional=True)
    x, h = pb.randn(4, 2, 2), pb.randn(4, 2, 3)
    wanted, last = layer(x, h)
    out, end = pb.gru(input=x, hx=h, params=weights, batch_first=False, **options)
    assert pb.equal(out, wanted) and pb.equal(end, last)
    packed = pb.nn.utils.rnn.pack_padded_sequence(x, [4, 2])
    wanted, last = layer(packed, h)
    for found in (
        pb.gru(data=packed.data, batch_sizes=packed.batch_sizes, hx=h, params=weights, **options),
        pb.gru(packed.data, packed.batch_sizes, h, weights, *options.values()),
    ):
        assert pb.equal(found[0], wanted.data) and pb.equal(found[1], last)


def _lstm(x=None, hx=None, params=None, **changed):
    x = pb.ones(3, 2, 4) if x is None else x
    hx = (pb.zeros(1, 2, 5),) * 2 if hx is None else hx
    given = [pb.ones(20, 4), pb.ones(20, 5), pb.ones(20), pb.ones(20)]
    options = dict(
        has_biases=True,
        num_layers=1,
        dropout=0.0,
        train=False,
        bidirectional=False,
        batch_first=False,
    )
    options.update(changed)
    return pb.lstm(x, hx, given if params is None else params, *options.values())


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"hx": (pb.zeros(1, 2, 5),)}, RuntimeError, "lstm expects two hidden states"),
        (
            {"hx": (pb.zeros(1, 3, 5),) * 2},
            RuntimeError,
            r"shape \(layers \* directions, 2, size\)",
        ),
        ({"params": [pb.ones(20, 4)]}, RuntimeError, "expected 4 weights: weight_ih, weight_hh"),
        ({"num_layers": 2}, RuntimeError, "expected 8 weights"),
        ({"bidirectional": True}, RuntimeError, "expected 8 weights"),
        ({"x": pb.ones(2, 4)}, RuntimeError, "expected input of 3 dims, but got 2"),
        ({"x": pb.ones(3, 2, 4).double()}, RuntimeError, "same dtype, but got Double and Float"),
        ({"x": pb.ones(0, 2, 4)}, RuntimeError, "sequence length to be larger than 0"),
        ({"batch_first": "x"}, TypeError, "argument 'batch_first' .*must be bool, not str"),
        ({"x": 3}, TypeError, "argument 'input' .*must be Tensor, not int"),
    ],
)
def test_recurrent_functions_refuse(given, error, message):
    with pytest.raises(error, match=message):
        _lstm(**given)


def test_sums_of_bags_fill_no_other_result():
    out, bags, sizes, largest = pb.embedding_bag(X, IDS, OFFSETS)
    assert out.tolist() == [[8, 10, 12, 14], [4, 5, 6, 7]]
    assert (bags.tolist(), sizes.tolist(), largest.tolist()) == ([], [0, 0], [0, 0])
    out, bags, sizes, largest = pb.embedding_bag(X, IDS, OFFSETS, mode=2, padding_idx=2)
    assert out.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert (bags.tolist(), sizes.tolist()) == ([0, 0, 1], [1, 1])
    assert largest.tolist() == [[0] * 4, [1] * 4]


def test_native_normalizations_have_differentiable_statistics():
    x = pb.tensor([[1.0, 2.0, 6.0]], requires_grad=True)
    _, mean, scale = pb.native_layer_norm(x, (3,), None, None, 0.0)
    assert mean.tolist() == [[3.0]]
    assert scale.item() == pytest.approx(1 / (14 / 3) ** 0.5)
    mean.sum().backward()
    assert x.grad.tolist() == [[pytest.approx(1 / 3)] * 3]
