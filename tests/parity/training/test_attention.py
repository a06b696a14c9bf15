"""Attention, transformers and adaptive softmax give torch's results, gradients and errors."""

import inspect

import numpy as np
import pytest
from same_layers import close, numbers, signature_of

import pullback

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

HIDDEN = np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 1, 1, 1, 1]], bool)
CAUSAL = np.triu(np.full((5, 5), -np.inf), 1)


def same_state(ours, theirs):
    """Give torch's module our weights; names, order and representation must agree."""
    assert repr(ours) == repr(theirs)
    state = ours.state_dict()
    assert list(state) == list(theirs.state_dict())
    theirs.load_state_dict({key: torch.tensor(value.numpy()) for key, value in state.items()})


def outcome(m, module, inputs, call):
    """Return the results of a call and all gradients."""
    results = [r for r in call(m, module, *inputs) if r is not None]
    sum((r * (r.detach() + 1)).sum() for r in results).backward()
    return [*results, *(x.grad for x in (*inputs, *module.parameters()))]


def compare(ours, theirs, shapes, call):
    same_state(ours, theirs)
    close(
        *(
            outcome(m, module, [numbers(m, *s, seed=i) for i, s in enumerate(shapes)], call)
            for m, module in ((pullback, ours), (torch, theirs))
        )
    )


ATTENTION = [
    ({}, {}),
    ({}, {"average_attn_weights": False}),
    ({}, {"need_weights": False}),
    ({"bias": False}, {"attn_mask": CAUSAL}),
    ({"batch_first": True}, {"attn_mask": CAUSAL, "is_causal": True, "need_weights": False}),
    ({"batch_first": True}, {"key_padding_mask": HIDDEN}),
    ({}, {"key_padding_mask": HIDDEN, "attn_mask": CAUSAL < 0, "need_weights": False}),
    ({"add_bias_kv": True}, {"key_padding_mask": HIDDEN, "need_weights": False}),
    ({"add_zero_attn": True, "add_bias_kv": True}, {"attn_mask": np.zeros((12, 5, 5))}),
]


@pytest.mark.parametrize("form", ["self", "cross", "unbatched", "sizes"])
@pytest.mark.parametrize(("options", "how"), ATTENTION)
def test_attention_is_torch_s(options, how, form):
    if form == "sizes":
        options = {**options, "kdim": 6, "vdim": 3}
    ours, theirs = (m.nn.MultiheadAttention(8, 4, **options).double() for m in (pullback, torch))
    lead = (3, 5) if options.get("batch_first") else (5, 3)
    if form == "unbatched":
        lead = (5,)
        how = {key: value for key, value in how.items() if "key_padding" not in key}
        if how.get("attn_mask") is not None and how["attn_mask"].ndim == 3:
            how = {"attn_mask": how["attn_mask"][:4]}

    def call(m, module, query, key=None, value=None):
        masks = {k: m.tensor(v) if isinstance(v, np.ndarray) else v for k, v in how.items()}
        return module(
            query, query if key is None else key, query if key is None else value, **masks
        )

    sizes = {"cross": (8, 8), "sizes": (6, 3)}.get(form, ())
    compare(ours, theirs, [(*lead, 8), *((*lead, size) for size in sizes)], call)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_transformer_is_torch_s(batch_first, norm_first):
    ours, theirs = (
        m.nn.Transformer(
            *(8, 2, 2, 1, 16, 0.0, "gelu"), batch_first=batch_first, norm_first=norm_first
        ).double()
        for m in (pullback, torch)
    )

    def call(m, module, src, tgt):
        causal, hidden = m.tensor(CAUSAL), m.tensor(HIDDEN)
        yield module(src, tgt, tgt_mask=causal, src_key_padding_mask=hidden)
        yield module(src, tgt, causal, memory_mask=causal == 0.0, memory_key_padding_mask=hidden)

    lead = (3, 5) if batch_first else (5, 3)
    compare(ours, theirs, [(*lead, 8), (*lead, 8)], call)


@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"bias": False}, {"nhead": 1}])
@pytest.mark.parametrize(
    "how",
    [
        {"src_key_padding_mask": HIDDEN},
        {"src_key_padding_mask": HIDDEN[:, ::-1].copy()},
        {"mask": CAUSAL},
        {"mask": CAUSAL, "src_key_padding_mask": np.where(HIDDEN, -np.inf, 0.0)},
    ],
)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_encoder_in_evaluation_is_torch_s(options, how):
    """Without gradients torch computes all layers in one function of its own."""
    options = {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "batch_first": True, **options}
    ours, theirs = (
        m.nn.TransformerEncoder(m.nn.TransformerEncoderLayer(**options), 2).double().eval()
        for m in (pullback, torch)
    )
    same_state(ours, theirs)
    found = []
    for m, module in ((pullback, ours), (torch, theirs)):
        masks = {name: m.tensor(mask) for name, mask in how.items()}
        x = numbers(m, 3, 5, 8)
        with m.no_grad():
            found.append([module(x.detach(), **masks), module.layers[0](x[0].detach())])
        found[-1].append(module(x, **masks))
    close(*found)


def test_adaptive_softmax_is_torch_s():
    ours, theirs = (
        m.nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], 2.0, head_bias=True).double()
        for m in (pullback, torch)
    )

    def call(m, module, x):
        target = m.tensor([0, 2, 3, 11, 7])
        yield from module(x, target)
        yield from module(x[1], target[3])
        yield module.log_prob(x)
        assert (module.predict(x) == module.log_prob(x).argmax(1)).all()

    compare(ours, theirs, [(5, 8)], call)


def attend(m, *shapes, embed_dim=8, num_heads=2, **options):
    masks = {name: options.pop(name) for name in list(options) if name not in MADE_WITH}
    made = m.nn.MultiheadAttention(embed_dim, num_heads, **options)
    return made(*(m.ones(*shape) for shape in shapes), **masks)


MADE_WITH = {"bias", "kdim", "vdim", "batch_first", "add_bias_kv"}
Q = (4, 2, 8)


def attend_with(m, in_weight=(24, 8), heads=2, **options):
    x = m.ones(*Q)
    weight = None if in_weight is None else m.ones(*in_weight)
    arrays = {k: m.ones(*v) if isinstance(v, tuple) else v for k, v in options.items()}
    bias_k, bias_v = arrays.pop("bias_k", None), arrays.pop("bias_v", None)
    return m.nn.functional.multi_head_attention_forward(
        *(x, x, x, 8, heads, weight, None, bias_k, bias_v, False, 0.0, m.ones(8, 8), None), **arrays
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.nn.MultiheadAttention(8, 3),
        lambda m: m.nn.MultiheadAttention(0, 3),
        lambda m: m.nn.MultiheadAttention(8, 0),
        lambda m: attend(m, Q, (4, 8), (4, 8)),
        lambda m: attend(m, (4, 8), Q, Q),
        lambda m: attend(m, (8,), (8,), (8,)),
        lambda m: attend(m, (4, 2, 7), Q, Q),
        lambda m: attend(m, Q, Q, (5, 2, 8)),
        lambda m: attend(m, Q, (4, 2, 3), (5, 2, 8), kdim=3),
        lambda m: attend(m, Q, (4, 2, 9), (4, 2, 9)),
        lambda m: attend(m, Q, Q, Q, key_padding_mask=m.ones(4)),
        lambda m: attend(m, Q, Q, Q, key_padding_mask=m.ones(3, 4)),
        lambda m: attend(m, Q, Q, Q, key_padding_mask=m.ones(2, 5)),
        lambda m: attend(m, Q, Q, Q, key_padding_mask=m.ones(2, 4).int()),
        lambda m: attend(m, Q, Q, Q, attn_mask=m.ones(4)),
        lambda m: attend(m, Q, Q, Q, attn_mask=m.ones(3, 4)),
        lambda m: attend(m, Q, Q, Q, attn_mask=m.ones(3, 4, 4)),
        lambda m: attend(m, Q, Q, Q, attn_mask=m.ones(4, 4).int()),
        lambda m: attend(m, Q, Q, Q, is_causal=True),
        lambda m: attend(m, (4, 8), (4, 8), (4, 8), key_padding_mask=m.ones(4, 2)),
        lambda m: attend(m, (4, 8), (4, 8), (4, 8), attn_mask=m.ones(1, 4, 4)),
        lambda m: attend_with(m, heads=3),
        lambda m: attend_with(m, None),
        lambda m: attend_with(m, None, use_separate_proj_weight=True),
        lambda m: attend_with(m, bias_k=(1, 1, 8)),
        lambda m: attend_with(m, bias_v=(1, 1, 8)),
        lambda m: attend_with(m, bias_k=(1, 1, 8), bias_v=(1, 1, 8), static_k=(4, 4, 4)),
        lambda m: attend_with(m, bias_k=(1, 1, 8), bias_v=(1, 1, 8), static_v=(4, 4, 4)),
        lambda m: attend_with(m, static_k=(3, 4, 4)),
        lambda m: attend_with(m, static_v=(4, 4, 3)),
        lambda m: m.nn.TransformerEncoderLayer(8, 2, activation="tanh"),
        lambda m: m.nn.TransformerEncoder(m.nn.TransformerEncoderLayer(8, 2, batch_first=True), 1)(
            m.ones(4, 8), src_key_padding_mask=m.ones(4).int()
        ),
        lambda m: m.nn.TransformerDecoderLayer(8, 2)(m.ones(*Q), m.ones(*Q), m.ones(3, 4)),
        lambda m: m.nn.Transformer(8, 2, 1, 1, batch_first=True)(m.ones(*Q), m.ones(3, 2, 8)),
        lambda m: m.nn.Transformer(8, 2, 1, 1, batch_first=True)(m.ones(*Q), m.ones(4, 2, 7)),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(16, 5, []),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(16, 5, [1, 6]),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(16, 5, [2, 1]),
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(16, 5, [1.5]),
        lambda m: adaptive(m, (3, 16), [0, 0]),
        lambda m: adaptive(m, (3, 16), [[0, 0]] * 3),
        lambda m: adaptive(m, (3, 2, 16), [0, 0, 0]),
        lambda m: adaptive(m, (3, 16), 0),
        lambda m: adaptive(m, (3, 16), [0, 7, 1]),
        lambda m: adaptive(m, (3, 16), [0, -7, 1]),
    ],
)
def test_attention_error_is_torch_s(call):
    found = []
    for m in (torch, pullback):
        with pytest.raises(Exception) as error:
            call(m)
        found.append((error.type, str(error.value).replace("torch", "pullback")))
    assert found[0] == found[1]


def adaptive(m, shape, target):
    return m.nn.AdaptiveLogSoftmaxWithLoss(16, 5, [2])(m.ones(*shape), m.tensor(target))


@pytest.mark.parametrize(
    "name",
    "MultiheadAttention Transformer TransformerEncoder TransformerEncoderLayer TransformerDecoder "
    "TransformerDecoderLayer AdaptiveLogSoftmaxWithLoss".split(),
)
def test_signature_of_attention_is_torch_s(name):
    for method in ("__init__", "forward"):
        assert signature_of(pullback, name, method) == signature_of(torch, name, method)


def test_data_parallel_without_gpus_is_torch_s():
    assert signature_of(pullback, "DataParallel", "__init__") == signature_of(
        torch, "DataParallel", "__init__"
    )
    if pullback.cuda.is_available() or torch.cuda.is_available():
        pytest.skip("the module moves to a GPU")
    ours, theirs = (m.nn.DataParallel(m.nn.Linear(3, 2).double()) for m in (pullback, torch))
    compare(ours, theirs, [(5, 3)], lambda m, module, x: [module(x)])


def test_implementations_of_attention_have_torch_s_numbers():
    from pullback.nn.attention import SDPBackend, sdpa_kernel

    theirs = torch.nn.attention
    names = [name for name in dir(theirs.SDPBackend) if name.isupper()]
    assert "MATH" in names
    for name in names:
        one, other = getattr(SDPBackend, name), getattr(theirs.SDPBackend, name)
        assert (int(one), str(one), repr(one)) == (int(other), str(other), repr(other))
    ours = inspect.signature(sdpa_kernel).parameters.values()
    wanted = inspect.signature(theirs.sdpa_kernel).parameters.values()
    assert [(p.name, p.default) for p in ours] == [(p.name, p.default) for p in wanted]
