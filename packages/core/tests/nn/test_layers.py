"""Layers: every one is made, called, copied; those with state by formulas of their own."""

import inspect

import numpy as np
import pytest

import pullback as pb
from pullback import nn

X = {1: (2, 4, 8), 2: (2, 4, 6, 6), 3: (2, 4, 4, 4, 4)}
ARGUMENTS = {
    "Linear": ((8, 3), {}),
    "Embedding": ((9, 3), {}),
    "PixelShuffle": ((2,), {}),
    "PixelUnshuffle": ((2,), {}),
    "ChannelShuffle": ((2,), {}),
    "GroupNorm": ((2, 4), {}),
    "LayerNorm": ((8,), {}),
    "RMSNorm": ((8,), {}),
    "Threshold": ((0.1, 2.0), {}),
    "Softmax": ((1,), {}),
    "Softmin": ((1,), {}),
    "LogSoftmax": ((1,), {}),
    "LocalResponseNorm": ((2,), {}),
    "CrossMapLRN2d": ((2,), {}),
    "Unflatten": ((1, (2, 2)), {}),
    "Unfold": ((2,), {}),
    "Upsample": ((), {"scale_factor": 2}),
    "UpsamplingBilinear2d": ((), {"scale_factor": 2}),
    "UpsamplingNearest2d": ((3,), {}),
    "SyncBatchNorm": ((4,), {}),
    "LazyLinear": ((3,), {}),
}
IMAGES = "Pixel CrossMap Unfold Upsample Softmax2d".split()
# Modules of several inputs or of no input; test_module.py and the parity tests call them.
OTHERS = (
    "Module Container Sequential ModuleList ModuleDict ParameterList ParameterDict Bilinear Fold "
    "EmbeddingBag CosineSimilarity PairwiseDistance RNN RNNBase RNNCell RNNCellBase LSTM LSTMCell "
    "GRU GRUCell AdaptiveLogSoftmaxWithLoss DataParallel MultiheadAttention Transformer "
    "TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer"
).split()


def layers():
    """Return every layer of one input, with arguments and the shape of an input."""
    found = []
    for name in sorted(dir(nn)):
        kind = getattr(nn, name)
        if not (inspect.isclass(kind) and issubclass(kind, nn.Module)) or name in OTHERS:
            continue
        if name.endswith(("Loss", "Loss2d")) or name.startswith("MaxUnpool"):
            continue
        dims = int(name[-2]) if name[-1] == "d" and name[-2].isdigit() else 1
        dims = 2 if name.startswith(tuple(IMAGES)) else dims
        if name in ARGUMENTS:
            args, kwargs = ARGUMENTS[name]
        elif "Conv" in name:
            args, kwargs = ((2, 3) if "Lazy" in name else (4, 2, 3)), {}
        elif "LPPool" in name or "Fractional" in name:
            args, kwargs = (2, 2), {}
        elif "ConstantPad" in name:
            args, kwargs = (1, 2.0), {}
        elif "Pool" in name or "Pad" in name:
            args, kwargs = (2 if "Pool" in name else 1,), {}
        elif "Norm" in name:
            args, kwargs = (() if "Lazy" in name else (4,)), {}
        else:
            args, kwargs = (), {}
        found.append((name, args, kwargs, X[dims]))
    return found


LAYERS = layers()


@pytest.mark.parametrize("layer", LAYERS, ids=[layer[0] for layer in LAYERS])
def test_every_layer_is_called_trained_and_saved(layer):
    name, args, kwargs, shape = layer
    module = getattr(nn, name)(*args, **kwargs)
    x = pb.randn(shape) if name != "Embedding" else pb.tensor([[1, 2]])
    out = module(x)
    assert all(size > 0 for size in out.shape) and out.dtype == pb.float32
    if any(p.requires_grad for p in module.parameters()):
        out.sum().backward()
        assert all(p.grad is not None and p.grad.shape == p.shape for p in module.parameters())
    assert module.load_state_dict(module.state_dict()) == ([], [])
    assert repr(module).startswith(type(module).__name__ + "(")


def test_the_list_of_layers_is_long():
    assert len(LAYERS) > 100


class TestBatchNorm:
    def test_training_normalizes_and_tracks(self):
        layer = nn.BatchNorm2d(3, momentum=0.25, dtype=pb.float64)
        x = np.random.default_rng(0).normal(2.0, 3.0, (4, 3, 5, 5))
        out = layer(pb.tensor(x)).detach().numpy()
        np.testing.assert_allclose(out.mean((0, 2, 3)), 0, atol=1e-12)
        np.testing.assert_allclose(out.var((0, 2, 3)), 1, atol=1e-5)
        np.testing.assert_allclose(layer.running_mean.numpy(), 0.25 * x.mean((0, 2, 3)))
        unbiased = x.var((0, 2, 3), ddof=1)
        np.testing.assert_allclose(layer.running_var.numpy(), 0.75 + 0.25 * unbiased)
        assert layer.num_batches_tracked == 1

    def test_no_momentum_is_the_mean_of_all_batches(self):
        layer = nn.BatchNorm1d(1, momentum=None)
        for value in (1.0, 3.0, 8.0):
            layer(pb.tensor([[value], [value + 2]]))
        assert float(layer.running_mean) == pytest.approx(5.0)

    def test_evaluation_takes_running_statistics(self):
        layer = nn.BatchNorm1d(1, eps=0.0).eval()
        layer.running_mean.fill_(2.0)
        layer.running_var.fill_(4.0)
        assert layer(pb.tensor([[6.0]])).item() == 2.0
        assert layer.num_batches_tracked == 0

    @pytest.mark.parametrize("name", ["BatchNorm1d", "BatchNorm2d", "InstanceNorm2d"])
    def test_numbers_of_dims_are_checked(self, name):
        with pytest.raises(ValueError, match=r"expected .*D input \(got 5D input\)"):
            getattr(nn, name)(3)(pb.ones(1, 3, 2, 2, 2))


def test_a_network_learns_xor():
    pb.manual_seed(3)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    x = pb.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    y = pb.tensor([[0.0], [1.0], [1.0], [0.0]])
    loss = nn.BCEWithLogitsLoss()
    for _ in range(300):
        model.zero_grad()
        loss(model(x), y).backward()
        with pb.no_grad():
            for parameter in model.parameters():
                parameter -= 1.0 * parameter.grad
    assert (model(x).sigmoid().round() == y).all()


class TestLinearCrossEntropyLoss:
    OPTIONS = (
        nn.LinearCrossEntropyOptions(batch_chunk_size=2),
        nn.LinearCrossEntropyOptions(chunking_method="aspect_ratio:3"),
        nn.LinearCrossEntropyOptions(chunking_method=None),
    )

    @pytest.mark.parametrize("options", OPTIONS)
    @pytest.mark.parametrize(
        "arguments",
        [
            {},
            {"bias": True, "weight": pb.tensor([1.0, 0.5, 2.0, 0.0]), "ignore_index": 1},
            {"reduction": "sum", "label_smoothing": 0.2},
            {"reduction": "none", "out_features": (3,), "bias": True},
        ],
    )
    @pytest.mark.parametrize("probabilities", [True, False])
    def test_chunks_give_the_loss_of_all_logits(self, arguments, probabilities, options):
        if probabilities:
            arguments = {key: value for key, value in arguments.items() if key != "ignore_index"}
        whole = nn.LinearCrossEntropyLoss(5, 4, **arguments).double()
        parts = nn.LinearCrossEntropyLoss(5, 4, **arguments, options=options).double()
        parts.load_state_dict(whole.state_dict())
        more = arguments.get("out_features", ())
        target = pb.randint(0, 4, (7, *more))
        if probabilities:
            target = pb.rand(7, 4, *more, dtype=pb.float64)
        found = []
        for loss in (whole, parts):
            x = pb.arange(35.0, dtype=pb.float64).reshape(7, 5).sin().requires_grad_()
            out = loss(x, target)
            inputs = (x, *loss.parameters())
            first = pb.autograd.grad((out**2).sum(), inputs, create_graph=True)
            second = pb.autograd.grad(sum((g**2).sum() for g in first), inputs)
            found.append([out, *first, *second])
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), 1e-9, 1e-12)

    def test_logits_take_the_memory_of_a_chunk(self):
        if not pb.memory_stats()["allocation.all.allocated"]:
            pytest.skip("this device does not count its memory")
        rows, classes, features = 512, 2000, 8
        target = pb.randint(0, classes, (rows,))
        peaks = []
        for options in (None, nn.LinearCrossEntropyOptions(batch_chunk_size=16)):
            loss = nn.LinearCrossEntropyLoss(features, classes, options=options)
            x = pb.randn(rows, features, requires_grad=True)
            pb.reset_peak_memory_stats()
            before = pb.memory_stats()["allocated_bytes.all.current"]
            loss(x, target).backward()
            peaks.append(pb.memory_stats()["allocated_bytes.all.peak"] - before)
        logits = rows * classes * 4
        assert peaks[0] >= logits
        assert peaks[1] < logits / 4

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"batch_chunk_size": 0}, "batch_chunk_size must be positive int or None, got 0"),
            ({"chunking_method": "aspect_ratio:0"}, "invalid chunking_method: 'aspect_ratio:0'"),
            ({"acc_policy": "none"}, "invalid acc_policy: 'none'"),
            ({"acc_dtype": pb.int32}, "acc_dtype must be one of"),
        ],
    )
    def test_options_are_checked(self, options, message):
        with pytest.raises(ValueError, match=message):
            nn.LinearCrossEntropyOptions(**options)


def test_data_parallel_calls_the_module():
    layer = nn.Linear(3, 2)
    model = nn.DataParallel(layer)
    x = pb.ones(5, 3)
    if not pb.cuda.is_available():
        assert (model(x) == layer(x)).all() and model.device_ids == []
        assert nn.parallel.data_parallel(layer, (x,)).shape == (5, 2)
    assert list(model.state_dict()) == ["module.weight", "module.bias"]


def test_attention_runs_by_what_is_allowed():
    from pullback.nn.attention import SDPBackend, sdpa_kernel

    x = pb.randn(1, 2, 3)
    attend = nn.functional.scaled_dot_product_attention
    wanted = attend(x, x, x)
    for allowed in (SDPBackend.MATH, [SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION]):
        with sdpa_kernel(allowed):
            assert (attend(x, x, x) - wanted).abs().max() < 1e-6
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        with pytest.raises(RuntimeError, match="No viable backend for scaled_dot_product_atten"):
            attend(x, x, x)
        with sdpa_kernel([SDPBackend.MATH], set_priority=True):
            attend(x, x, x)
    attend(x, x, x)
    with pytest.raises(AssertionError, match="Backend must be an instance of SDPBackend or"):
        sdpa_kernel(3).__enter__()
    off = {"enable_flash": False, "enable_math": False, "enable_mem_efficient": False}
    with pytest.warns(FutureWarning, match="sdp_kernel"), pb.backends.cuda.sdp_kernel(**off):
        with pytest.raises(RuntimeError, match="No viable backend"):
            attend(x, x, x)
    attend(x, x, x)
