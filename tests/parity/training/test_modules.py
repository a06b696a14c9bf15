"""Layers with the same weights give torch's results, gradients, state dict keys and repr."""

import numpy as np
import pytest
from same_layers import close, inputs_of, numbers, run, signature_of, tensors_in

import pullback

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

X1, X2, X3 = (2, 4, 12), (2, 4, 6, 8), (2, 4, 4, 6, 4)
# name, arguments of the constructor, keyword arguments, shapes of the inputs
LAYERS = [
    ("Identity", (), {}, [X1]),
    ("Linear", (12, 5), {}, [X1]),
    ("Linear", (12, 5), {"bias": False}, [(12,)]),
    ("Bilinear", (3, 4, 5), {}, [(2, 3), (2, 4)]),
    ("Bilinear", (3, 4, 5), {"bias": False}, [(2, 6, 3), (2, 6, 4)]),
    ("Conv1d", (4, 6, 3), {}, [X1]),
    ("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}, [X1]),
    ("Conv1d", (4, 6, 4), {"padding": "same", "padding_mode": "circular"}, [X1]),
    ("Conv2d", (4, 6, (3, 2)), {"padding": "same", "bias": False}, [X2]),
    ("Conv2d", (4, 6, 3), {"padding": (1, 2), "padding_mode": "reflect"}, [X2]),
    ("Conv2d", (4, 6, 3), {"padding": 2, "padding_mode": "replicate", "stride": 2}, [X2]),
    ("Conv3d", (4, 2, 3), {"padding": "valid"}, [X3]),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "output_padding": 1}, [X1]),
    ("ConvTranspose2d", (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, [X2]),
    ("ConvTranspose3d", (4, 2, 2), {"stride": 2}, [X3]),
    *((f"MaxPool{n}d", (2,), {}, [x]) for n, x in enumerate((X1, X2, X3), 1)),
    ("MaxPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}, [X2]),
    *((f"AvgPool{n}d", (2,), {}, [x]) for n, x in enumerate((X1, X2, X3), 1)),
    ("AvgPool2d", (3, 2, 1), {"count_include_pad": False}, [X2]),
    *((f"LPPool{n}d", (3, 2), {}, [x]) for n, x in enumerate((X1, X2, X3), 1)),
    *((f"AdaptiveAvgPool{n}d", (3,), {}, [x]) for n, x in enumerate((X1, X2, X3), 1)),
    *((f"AdaptiveMaxPool{n}d", (3,), {}, [x]) for n, x in enumerate((X1, X2, X3), 1)),
    ("AdaptiveAvgPool2d", ((None, 2),), {}, [X2]),
    *(
        (f"{kind}Pad{n}d", (1,), {}, [x])
        for kind in ("Reflection", "Replication", "Circular", "Zero")
        for n, x in enumerate((X1, X2, X3), 1)
    ),
    *((f"ConstantPad{n}d", (1, 2.5), {}, [x]) for n, x in enumerate((X1, X2, X3), 1)),
    ("ReflectionPad2d", ((1, 2, 0, 3),), {}, [X2]),
    *(
        (name, (), {}, [X1])
        for name in (
            "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish "
            "PReLU ReLU ReLU6 SELU SiLU Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink"
        ).split()
    ),
    *((name, (), {"inplace": True}, [X1]) for name in "CELU ELU Hardtanh ReLU SELU SiLU".split()),
    *((name, (-1,), {}, [X1]) for name in "Softmax Softmin LogSoftmax".split()),
    ("Softmax2d", (), {}, [X2]),
    ("Threshold", (0.1, 20.0), {}, [X1]),
    ("PReLU", (4,), {}, [X2]),
    ("GELU", ("tanh",), {}, [X1]),
    ("BatchNorm1d", (4,), {}, [X1]),
    ("BatchNorm1d", (12,), {"momentum": None}, [(3, 12)]),
    ("BatchNorm2d", (4,), {"affine": False}, [X2]),
    ("BatchNorm2d", (4,), {"track_running_stats": False}, [X2]),
    ("BatchNorm3d", (4,), {"bias": False}, [X3]),
    ("InstanceNorm1d", (4,), {}, [X1]),
    ("InstanceNorm2d", (4,), {"affine": True, "track_running_stats": True}, [X2]),
    ("InstanceNorm3d", (4,), {}, [X3[1:]]),
    ("LayerNorm", (12,), {}, [X1]),
    ("LayerNorm", ((4, 12),), {"bias": False}, [X1]),
    ("LayerNorm", (12,), {"elementwise_affine": False}, [X1]),
    ("RMSNorm", (12,), {}, [X1]),
    ("GroupNorm", (2, 4), {}, [X2]),
    ("GroupNorm", (2, 4), {"affine": False}, [X1]),
    ("LocalResponseNorm", (3,), {}, [X2]),
    ("PixelShuffle", (2,), {}, [X2]),
    ("PixelUnshuffle", (2,), {}, [X2]),
    ("ChannelShuffle", (2,), {}, [X2]),
    ("Flatten", (), {}, [X2]),
    ("Unflatten", (1, (2, 2)), {}, [X2]),
    ("Unfold", (2,), {"stride": 2}, [X2]),
    ("Fold", ((6, 8), 2), {"stride": 2}, [(2, 16, 12)]),
    ("Upsample", (), {"scale_factor": 2}, [X2]),
    ("Upsample", ((5, 7),), {"mode": "bicubic", "align_corners": True}, [X2]),
    ("UpsamplingBilinear2d", (), {"scale_factor": 2}, [X2]),
    ("UpsamplingNearest2d", ((3, 9),), {}, [X2]),
    ("CosineSimilarity", (), {}, [X1, X1]),
    ("PairwiseDistance", (), {"keepdim": True}, [X1, X1]),
    *((name, (), {}, [X1, X1]) for name in "L1Loss MSELoss SmoothL1Loss HuberLoss".split()),
    ("MSELoss", (), {"reduction": "sum"}, [X1, X1]),
    ("MarginRankingLoss", (), {"margin": 0.5}, [(5,), (5,), (5,)]),
    ("TripletMarginLoss", (), {"swap": True}, [(5, 3), (5, 3), (5, 3)]),
    ("TripletMarginWithDistanceLoss", (), {}, [(5, 3), (5, 3), (5, 3)]),
    ("PoissonNLLLoss", (), {"full": True}, [(3, 5), np.eye(3, 5) + 0.5]),
    ("SoftMarginLoss", (), {"reduction": "none"}, [(3, 5), 2 * np.eye(3, 5) - 1]),
    ("Embedding", (7, 3), {"padding_idx": 2}, [np.array([[1, 2], [6, 1]])]),
    ("Embedding", (7, 3), {"max_norm": 1.0}, [np.array([[1, 2], [6, 1]])]),
    ("EmbeddingBag", (7, 3), {"mode": "sum"}, [np.array([1, 2, 6, 1]), np.array([0, 3])]),
    ("EmbeddingBag", (7, 3), {"mode": "max"}, [np.array([[1, 2], [6, 1]])]),
    ("CrossEntropyLoss", (), {"label_smoothing": 0.1}, [(3, 5), np.array([0, 4, 2])]),
    ("NLLLoss", (), {"ignore_index": 4}, [(3, 5), np.array([0, 4, 2])]),
    ("MultiMarginLoss", (), {"p": 2}, [(3, 5), np.array([0, 4, 2])]),
    ("MultiLabelMarginLoss", (), {}, [(1, 4), np.array([[3, 0, -1, 1]])]),
    ("BCEWithLogitsLoss", (), {}, [(3, 5), np.eye(3, 5)]),
    ("MultiLabelSoftMarginLoss", (), {}, [(3, 5), np.eye(3, 5)]),
    ("HingeEmbeddingLoss", (), {}, [(3, 5), 2 * np.eye(3, 5) - 1]),
    ("KLDivLoss", (), {"reduction": "batchmean"}, [(3, 5), np.eye(3, 5)]),
    ("LinearCrossEntropyLoss", (3, 5), {"bias": True}, [(2, 3), np.array([4, 0])]),
    ("LinearCrossEntropyLoss", (3, 5), {"ignore_index": 1}, [(3, 3), np.array([4, 0, 1])]),
    (
        *("LinearCrossEntropyLoss", (3, 5), {"out_features": (2,), "label_smoothing": 0.1}),
        [(3, 3), np.array([[4, 0], [1, 1], [2, 3]])],
    ),
]
DRAWN = np.random.default_rng(7).random(size=(2, 4, 3))
LAYERS += [
    (f"FractionalMaxPool{n}d", (2,), {**size, "_random_samples": DRAWN[..., :n]}, [x])
    for n, x in ((2, X2), (3, (2, 4, 6, 8, 9)))
    for size in ({"output_size": 3}, {"output_ratio": (0.5, 0.6, 0.5)[:n]})
]
LAYERS += [("Dropout", (0.5,), {}, [X1]), ("AlphaDropout", (0.5,), {}, [X1])]
RANDOM = {"Dropout", "AlphaDropout"}
ROUGH = {"Hardsigmoid": 1e-7}  # torch multiplies float64 by 1 / 6 in float32


def layer_id(layer):
    name, args, kwargs, _ = layer
    shown = (f"{k}={v}" for k, v in kwargs.items() if not isinstance(v, np.ndarray))
    return "-".join(map(str, (name, *args, *shown)))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("layer", LAYERS, ids=map(layer_id, LAYERS))
def test_layer_is_torch_s(layer):
    name, args, kwargs, shapes = layer
    ours, theirs = (
        getattr(m.nn, name)(*args, **tensors_in(m, kwargs)).double() for m in (pullback, torch)
    )
    assert repr(ours) == repr(theirs)
    state = ours.state_dict()
    assert list(state) == list(theirs.state_dict())
    assert state._metadata == theirs.state_dict()._metadata
    theirs.load_state_dict({key: torch.tensor(value.numpy()) for key, value in state.items()})
    if name in RANDOM:
        ours.eval(), theirs.eval()
        x = inputs_of(pullback, shapes)
        assert (ours(*x) == x[0]).all()
        return
    for one, other in zip(run(pullback, ours, shapes), run(torch, theirs, shapes), strict=True):
        close(one, other, ROUGH.get(name, 1e-9))
    close(ours.state_dict().values(), theirs.state_dict().values())


@pytest.mark.parametrize("name", sorted({layer[0] for layer in LAYERS}))
def test_signature_is_torch_s(name):
    assert signature_of(pullback, name, "__init__") == signature_of(torch, name, "__init__")


@pytest.mark.parametrize(
    "call",
    [
        lambda nn: nn.Conv2d(3, 4, 3, groups=2),
        lambda nn: nn.Conv2d(4, 3, 3, groups=2),
        lambda nn: nn.Conv2d(4, 4, 3, groups=0),
        lambda nn: nn.Conv2d(4, 4, 3, padding="same", stride=2),
        lambda nn: nn.ConvTranspose2d(4, 4, 3, padding_mode="circular"),
        lambda nn: nn.GroupNorm(3, 4),
        lambda nn: nn.Dropout(2),
        lambda nn: nn.Embedding(3, 4, padding_idx=3),
        lambda nn: nn.EmbeddingBag(3, 4, padding_idx=3),
        lambda nn: nn.Hardtanh(3, 1),
        lambda nn: nn.TripletMarginLoss(margin=-1),
        lambda nn: nn.MultiMarginLoss(p=3),
        lambda nn: nn.Unflatten(1, 3),
        lambda nn: nn.Unflatten(1, (2.0, 3)),
        lambda nn: nn.Bilinear(0, 1, 1),
        lambda nn: nn.Module(3),
        lambda nn: nn.Module(a=3),
        lambda nn: nn.Linear(2, 2).train(1),
        lambda nn: nn.Linear(2, 2).load_state_dict(3),
        lambda nn: nn.Linear(2, 2).get_submodule("a"),
        lambda nn: nn.Linear(2, 2).get_parameter("a"),
        lambda nn: nn.Linear(2, 2).get_buffer("weight"),
        lambda nn: nn.Linear(2, 2).add_module("weight", nn.Linear(1, 1)),
        lambda nn: nn.Linear(2, 2).register_buffer("a.b", None),
        lambda nn: nn.ModuleList([3]),
        lambda nn: nn.ModuleDict(3),
        lambda nn: nn.Sequential(3),
        lambda nn: nn.Sequential()[0],
        lambda nn: nn.ParameterList()(),
        lambda nn: nn.init.xavier_normal_(nn.Parameter()),
        lambda nn: nn.init.calculate_gain("cube"),
        lambda nn: nn.init.dirac_(nn.Parameter()),
    ],
)
def test_error_is_torch_s(call):
    found = []
    for m in (torch, pullback):
        with pytest.raises(Exception) as error:
            call(m.nn)
        found.append((error.type, str(error.value).replace("torch", "pullback")))
    assert found[0] == found[1]


def test_modes_are_listed_in_any_order():
    for m in (torch, pullback):
        with pytest.raises(ValueError, match=r"padding_mode must be one of {.*}, but"):
            m.nn.Conv2d(4, 4, 3, padding_mode="full")


# ---- recurrent layers ----------------------------------------------------------------------------

RECURRENT = [
    ("RNN", {}),
    ("RNN", {"nonlinearity": "relu", "bias": False}),
    ("GRU", {}),
    ("GRU", {"num_layers": 2, "bidirectional": True}),
    ("LSTM", {"batch_first": True, "bidirectional": True}),
    ("LSTM", {"num_layers": 3, "proj_size": 2}),
]


def run_recurrent(m, layer, form):
    """Return outputs, states and gradients of one call."""
    x = m.tensor(np.random.default_rng(0).normal(size=(5, 3, 3)), requires_grad=True)
    rnn, rows = m.nn.utils.rnn, 5 if layer.batch_first else 3
    given = x[:, 0] if form == "unbatched" else x
    if form == "packed":
        lengths = [2, 3, 1, 3, 2][:rows] if layer.batch_first else [4, 5, 1]
        given = rnn.pack_padded_sequence(x, lengths, layer.batch_first, enforce_sorted=False)
    state = ()
    if form != "unbatched":
        directions = 2 if layer.bidirectional else 1
        shape = (layer.num_layers * directions, rows, layer.proj_size or 4)
        first = m.tensor(np.linspace(-1, 1, int(np.prod(shape))).reshape(shape))
        cell = m.tensor(np.ones((*shape[:2], 4)))
        state = ((first, cell) if layer.mode == "LSTM" else first,)
    out, last = layer(given, *state)
    results = [out.data if form == "packed" else out]
    results += last if isinstance(last, tuple) else [last]
    sum((r * (r.detach() + 1)).sum() for r in results).backward()
    if form == "packed":
        results += rnn.pad_packed_sequence(out, layer.batch_first, -1.0, 6)
        results += rnn.unpack_sequence(out)
    return results, [x.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize("form", ["batch", "unbatched", "packed"])
@pytest.mark.parametrize(("name", "options"), RECURRENT)
def test_recurrent_layer_is_torch_s(name, options, form):
    ours = getattr(pullback.nn, name)(3, 4, **options).double()
    theirs = getattr(torch.nn, name)(3, 4, **options).double()
    assert repr(ours) == repr(theirs)
    state = ours.state_dict()
    assert list(state) == list(theirs.state_dict())
    theirs.load_state_dict({key: torch.tensor(value.numpy()) for key, value in state.items()})
    pairs = zip(run_recurrent(pullback, ours, form), run_recurrent(torch, theirs, form))
    for one, other in pairs:
        close(one, other)


@pytest.mark.parametrize("name", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("shape", [(2, 3), (3,)])
def test_cell_is_torch_s(name, shape):
    ours, theirs = (getattr(m.nn, name)(3, 4).double() for m in (pullback, torch))
    assert repr(ours) == repr(theirs)
    state = ours.state_dict()
    theirs.load_state_dict({key: torch.tensor(value.numpy()) for key, value in state.items()})
    found = [
        layer(m.tensor(np.linspace(-1, 1, int(np.prod(shape))).reshape(shape)))
        for m, layer in ((pullback, ours), (torch, theirs))
    ]
    if name != "LSTMCell":
        found = [(state,) for state in found]
    close(*found)


def ones(m, *shape):
    return m.ones(*shape)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.nn.LSTM(3, 0),
        lambda m: m.nn.LSTM(3, 4, 0),
        lambda m: m.nn.LSTM(3, 4, dropout=2),
        lambda m: m.nn.LSTM(3, 4, proj_size=4),
        lambda m: m.nn.LSTM(3, 4, proj_size=-1),
        lambda m: m.nn.GRU(3, 4, proj_size=1),
        lambda m: m.nn.RNN(3, 4, nonlinearity="sine"),
        lambda m: m.nn.RNNBase("X", 3, 4),
        lambda m: m.nn.LSTM(3, "a"),
        lambda m: m.nn.LSTM(3, 4)(ones(m, 3)),
        lambda m: m.nn.LSTM(3, 4)(ones(m, 5, 2, 4)),
        lambda m: m.nn.LSTM(3, 4)(ones(m, 5, 2, 3), (ones(m, 1, 3, 4), ones(m, 1, 2, 4))),
        lambda m: m.nn.LSTM(3, 4)(ones(m, 5, 2, 3), (ones(m, 1, 2, 4), ones(m, 1, 2, 5))),
        lambda m: m.nn.LSTM(3, 4)(ones(m, 5, 2, 3), (ones(m, 2, 4), ones(m, 2, 4))),
        lambda m: m.nn.LSTM(3, 4)(ones(m, 5, 3), (ones(m, 1, 2, 4), ones(m, 1, 2, 4))),
        lambda m: m.nn.LSTM(3, 4)(ones(m, 5, 2, 3).double()),
        lambda m: m.nn.GRU(3, 4)(ones(m, 5, 2, 3), ones(m, 1, 3, 4)),
        lambda m: m.nn.GRU(3, 4)(ones(m, 5, 2, 3), ones(m, 2, 4)),
        lambda m: m.nn.GRU(3, 4)(ones(m, 5, 3), ones(m, 1, 2, 4)),
        lambda m: m.nn.LSTMCell(3, 4)(ones(m, 2, 2, 3)),
        lambda m: m.nn.LSTMCell(3, 4)(ones(m, 2, 3), (ones(m, 1, 2, 4), ones(m, 1, 2, 4))),
        lambda m: m.nn.GRUCell(3, 4)(ones(m, 2, 3), ones(m, 1, 2, 4)),
        lambda m: m.nn.GRUCell(3, 4)(ones(m, 2, 3), ones(m, 3, 4)),
        lambda m: m.nn.RNNCell(3, 4)(ones(m, 2, 4)),
        lambda m: m.nn.utils.rnn.pack_padded_sequence(ones(m, 5, 2, 3), [3, 5]),
        lambda m: m.nn.utils.rnn.pack_padded_sequence(ones(m, 5, 2, 3), [5, 0]),
        lambda m: m.nn.utils.rnn.pack_padded_sequence(ones(m, 5, 2, 3), [5]),
        lambda m: m.nn.utils.rnn.pad_sequence([]),
        lambda m: m.nn.utils.rnn.pad_sequence(3),
    ],
)
def test_error_of_recurrent_layers_is_torch_s(call):
    found = []
    for m in (torch, pullback):
        with pytest.raises(Exception) as error:
            call(m)
        found.append((error.type, str(error.value).replace("torch", "pullback")))
    assert found[0] == found[1]


# ---- functions of layers -------------------------------------------------------------------------

IMAGE, VOLUME = (2, 1, 5, 6), (1, 1, 6, 5, 6)


def pool(m, shape, *args, dtype="float32", **kwargs):
    dims = len(shape) - 2 if len(shape) in (4, 5) else 2
    function = getattr(m.nn.functional, f"fractional_max_pool{dims}d")
    return function(m.ones(*shape).to(getattr(m, dtype)), *args, **tensors_in(m, kwargs))


def entropy(m, x, weight, target, **kwargs):
    function = m.nn.functional.linear_cross_entropy
    target = m.tensor(target) if isinstance(target, (int, list)) else m.ones(*target)
    return function(m.ones(*x), m.ones(*weight), target, **tensors_in(m, kwargs))


def float32(*shape):
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.conv_tbc(m.ones(3, 2), m.ones(2, 2, 3), m.ones(3)),
        lambda m: m.conv_tbc(m.ones(3, 2, 2), m.ones(2, 2), m.ones(3)),
        lambda m: m.conv_tbc(m.ones(3, 2, 2), m.ones(2, 2, 3), m.ones(3, 1)),
        lambda m: m.conv_tbc(m.ones(3, 2, 2), m.ones(2, 3, 3), m.ones(3)),
        lambda m: m.conv_tbc(m.ones(3, 2, 2), m.ones(2, 2, 3), m.ones(4)),
        lambda m: m.conv_tbc(m.ones(3, 2, 2), m.ones(5, 2, 3), m.ones(3)),
        lambda m: m.conv_tbc(m.ones(3, 2, 2), m.ones(2, 2, 3), None),
        lambda m: pool(m, IMAGE, 2),
        lambda m: pool(m, VOLUME, 2),
        lambda m: pool(m, IMAGE, 3, (4, 4)),
        lambda m: pool(m, IMAGE, 3, (3, 5)),
        lambda m: pool(m, VOLUME, 3, (4, 2, 2)),
        lambda m: pool(m, (5, 6), 2, 3, _random_samples=float32(1, 1, 2)),
        lambda m: pool(m, IMAGE, (2, 2, 2), 3),
        lambda m: pool(m, VOLUME, (2, 2), 3),
        lambda m: pool(m, IMAGE, 2, (3, 4, 5)),
        lambda m: pool(m, IMAGE, 2, 3, _random_samples=float32(1, 1, 2)),
        lambda m: pool(m, IMAGE, 2, 3, _random_samples=float32(2, 2)),
        lambda m: pool(m, IMAGE, 2, 3, _random_samples=float32(2, 1, 1)),
        lambda m: pool(m, IMAGE, 2, 3, _random_samples=float32(2, 2, 2)),
        lambda m: pool(m, IMAGE, 2, 3, _random_samples=np.zeros((2, 1, 2))),
        lambda m: pool(m, (2, 0, 5, 6), 2, 3),
        lambda m: m.nn.FractionalMaxPool2d(2),
        lambda m: m.nn.FractionalMaxPool3d(2, 2, 0.5),
        lambda m: m.nn.FractionalMaxPool2d(2, output_ratio=1.5),
        lambda m: entropy(m, (6, 4), (5, 4), [0] * 6, reduction="other"),
        lambda m: entropy(m, (6, 4), (5, 4), [0] * 6, label_smoothing=2.0),
        lambda m: entropy(m, (1, 6, 4), (5, 4), [0] * 6),
        lambda m: entropy(m, (6, 4), (5,), [0] * 6),
        lambda m: entropy(m, (6, 3), (5, 4), [0] * 6),
        lambda m: entropy(m, (6, 4), (5, 4), [0] * 3),
        lambda m: entropy(m, (6, 4), (5, 4), (6,)),
        lambda m: entropy(m, (6, 4), (5, 4), [7] * 6),
        lambda m: entropy(m, (6, 4), (5, 4), [0] * 6, linear_bias=float32(4)),
        lambda m: entropy(m, (6, 4), (5, 4), [0] * 6, weight=float32(4)),
        lambda m: entropy(m, (6, 4), (5, 4), (6, 5), ignore_index=2),
        lambda m: entropy(m, (4,), (5, 2, 4), [0, 0]),
        lambda m: entropy(m, (6, 4), (5, 2, 4), [[0, 0]] * 6, linear_bias=float32(5)),
        lambda m: m.nn.LinearCrossEntropyLoss(4, 5, label_smoothing=3),
        lambda m: m.nn.LinearCrossEntropyLoss(4, 5, weight=m.ones(3)),
        *(
            lambda m, o=options: m.nn.LinearCrossEntropyOptions(**o)
            for options in (
                {"batch_chunk_size": 2.5},
                {"chunking_method": "other"},
                {"acc_policy": "other"},
                {"acc_dtype": "other"},
            )
        ),
    ],
)
def test_error_of_function_is_torch_s(call):
    found = []
    for m in (torch, pullback):
        with pytest.raises(Exception) as error:
            call(m)
        found.append((error.type, str(error.value).replace("torch", "pullback")))
    assert found[0] == found[1]


def test_indices_of_fractional_pooling_are_torch_s():
    for shape, counts in (
        ((2, 4, 7, 9), (4, 5)),
        ((2, 4, 7, 8, 9), (3, 4, 5)),
        ((4, 7, 9), (1, 6)),
    ):
        dims = len(counts)
        found = []
        for m in (pullback, torch):
            function = getattr(m.nn.functional, f"fractional_max_pool{dims}d_with_indices")
            x = m.tensor(np.random.default_rng(1).normal(size=shape))
            samples = m.tensor(DRAWN[: shape[0] if len(shape) > dims + 1 else 1, :, :dims])
            out = function(x, 2, counts, _random_samples=samples)
            found.append([part.numpy() for part in out])
        for one, other in zip(*found):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("pad", [0, 2, -1])
def test_convolution_with_time_first_is_torch_s(pad):
    found = []
    for m in (pullback, torch):
        operands = [numbers(m, *shape) for shape in ((7, 2, 3), (3, 3, 4), (4,))]
        out = m.conv_tbc(*operands, pad)
        (out**2).sum().backward()
        found.append([out, *(x.grad for x in operands)])
    close(*found)
