"""Attention by functions of scores and indices, against loops over elements in Python."""

import copy
import functools
import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback import nn
from pullback.nn.attention.flex_attention import (
    AuxOutput,
    AuxRequest,
    BlockMask,
    FlexKernelOptions,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    noop_mask,
    or_masks,
)

RNG = np.random.default_rng(0)
BIAS = RNG.normal(size=(4, 5, 7))
SLOPES = RNG.normal(size=4)


def causal(b, h, q, kv):
    return q >= kv


def window(b, h, q, kv):
    return (q - kv < 2) & (kv - q < 3)


def blind(b, h, q, kv):
    return (q != 1) & (kv >= b)


def by_head(b, h, q, kv):
    return (q + kv + h) % 3 == 0


def loops(query, key, value, score_mod=None, mask=None, scale=None):
    """Return the result and the logarithms of sums, element by element."""
    batch, heads, rows, size = query.shape
    columns = key.shape[2]
    group = heads // key.shape[1]
    scale = size**-0.5 if scale is None else scale
    out = np.zeros((batch, heads, rows, value.shape[3]))
    logarithms = np.full((batch, heads, rows), -np.inf)
    for b, h, i in itertools.product(range(batch), range(heads), range(rows)):
        total = 0.0
        for j in range(columns):
            if mask is not None and not mask(b, h, i, j):
                continue
            score = scale * sum(query[b, h, i, e] * key[b, h // group, j, e] for e in range(size))
            weight = math.exp(score if score_mod is None else score_mod(score, b, h, i, j))
            total += weight
            out[b, h, i] += weight * value[b, h // group, j]
        if total:
            out[b, h, i] /= total
            logarithms[b, h, i] = math.log(total)
    return out, logarithms


def parts(heads=4, kv_heads=4, batch=2, rows=5, columns=7):
    sizes = (batch, heads, rows, 3), (batch, kv_heads, columns, 3), (batch, kv_heads, columns, 2)
    return [RNG.normal(size=size) for size in sizes]


def tensors(arrays, dtype=pb.float64, **options):
    return [pb.tensor(x, dtype=dtype, **options) for x in arrays]


def close(ours, theirs, tolerance=1e-12):
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=tolerance, atol=tolerance)


SCORE_MODS = {
    "none": (None, None),
    "bias": (
        lambda s, b, h, q, kv: s + pb.tensor(BIAS)[h, q, kv],
        lambda s, b, h, q, kv: s + BIAS[h, q, kv],
    ),
    "slope": (
        lambda s, b, h, q, kv: s + pb.tensor(SLOPES)[h] * (q - kv),
        lambda s, b, h, q, kv: s + SLOPES[h] * (q - kv),
    ),
    "cap": (
        lambda s, b, h, q, kv: 2 * pb.tanh(s / 2) * (b + 1),
        lambda s, b, h, q, kv: 2 * math.tanh(s / 2) * (b + 1),
    ),
    "causal": (
        lambda s, b, h, q, kv: pb.where(q >= kv, s, -math.inf),
        lambda s, b, h, q, kv: s if q >= kv else -math.inf,
    ),
    "index": (lambda s, b, h, q, kv: q * kv, lambda s, b, h, q, kv: q * kv),
    "vectors": (
        lambda s, b, h, q, kv: s + pb.dot(pb.tensor(BIAS)[h, q], pb.tensor(BIAS)[h, kv % 5]),
        lambda s, b, h, q, kv: s + BIAS[h, q] @ BIAS[h, kv % 5],
    ),
}
MASKS = {"none": None, "causal": causal, "window": window, "blind": blind, "by head": by_head}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score_mod", SCORE_MODS)
def test_attention_is_a_weighted_mean(score_mod, mask):
    ours, theirs = SCORE_MODS[score_mod]
    mask = MASKS[mask]
    arrays = parts(4, 2)
    blocks = None if mask is None else create_block_mask(mask, 2, 4, 5, 7, BLOCK_SIZE=(2, 3))
    wanted, wanted_lse = loops(*arrays, theirs, mask)
    options = {"score_mod": ours, "block_mask": blocks, "enable_gqa": True}
    close(flex_attention(*tensors(arrays), **options), wanted)
    out, aux = flex_attention(*tensors(arrays), **options, return_aux=AuxRequest(lse=True))
    close(out, wanted)
    close(aux.lse, wanted_lse)
    assert aux.max_scores is None


@pytest.mark.parametrize("device", ["ref", None])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("float16", 3e-3), ("bfloat16", 2e-2)]
)
@pytest.mark.parametrize("score_mod", ["none", "cap"])
def test_other_dtypes_and_devices(dtype, tolerance, score_mod, device):
    ours, theirs = SCORE_MODS[score_mod]
    arrays = [x.round(1) for x in parts()]
    given = tensors(arrays, getattr(pb, dtype), device=device)
    blocks = create_block_mask(causal, None, None, 5, 7, device=given[0].device)
    wanted, wanted_lse = loops(*(x.double().numpy() for x in given), theirs, causal)
    seen = []

    def noted(s, b, h, q, kv):
        seen.extend((s.dtype, b.dtype, h.dtype, q.dtype, kv.dtype, s.shape, kv.shape))
        return ours(s, b, h, q, kv) if ours else s

    close(flex_attention(*given, ours, blocks).double(), wanted, tolerance)
    out, aux = flex_attention(*given, noted, blocks, return_aux=AuxRequest(True, True))
    close(out.double(), wanted, tolerance)
    close(aux.lse.double(), wanted_lse, 1e-5)
    assert (out.dtype, aux.lse.dtype, out.device) == (given[0].dtype, pb.float32, given[0].device)
    assert seen == [pb.float32, *[pb.int64] * 4, pb.Size([]), pb.Size([])]


def test_key_and_value_take_the_dtype_of_scores():
    arrays = parts()
    query, key, value = tensors(arrays)
    close(flex_attention(query, key.float(), value.float()), loops(*arrays)[0], 1e-5)
    assert flex_attention(query.half(), key, value).dtype == pb.float16
    doubled = flex_attention(query.float(), key.float(), value.float(), lambda s, *_: s.double())
    assert doubled.dtype == pb.float32


@pytest.mark.parametrize("scale", [0, 0.3, 2, pb.tensor(0.3)])
def test_scale(scale):
    arrays = parts()
    close(flex_attention(*tensors(arrays), scale=scale), loops(*arrays, scale=float(scale))[0])


def test_largest_scores():
    arrays = parts(2, 2)
    query, key, value = tensors(arrays, requires_grad=True)
    scores = np.einsum("bhie,bhje->bhij", *arrays[:2]) / math.sqrt(3)
    request = AuxRequest(max_scores=True)
    out, aux = flex_attention(query, key, value, return_aux=request)
    close(aux.max_scores, scores.max(-1))
    assert aux.lse is None
    assert out.requires_grad
    assert not aux.max_scores.requires_grad
    hidden = create_block_mask(blind, 2, 2, 5, 7)
    aux = flex_attention(query, key, value, None, hidden, return_aux=request)[1]
    assert (aux.max_scores[:, :, 1] == -math.inf).all()
    scores[1, :, :, 0] = scores[:, :, 1] = -np.inf
    close(aux.max_scores, scores.max(-1))
    assert flex_attention(query, key, value, return_aux=AuxRequest())[1] == AuxOutput()


def test_lse_by_the_old_name_warns():
    arrays = parts()
    with pytest.warns(FutureWarning, match="return_aux=AuxRequest"):
        out, lse = flex_attention(*tensors(arrays), return_lse=True)
    close(out, loops(*arrays)[0])
    close(lse, loops(*arrays)[1])


@pytest.mark.parametrize("score_mod", [None, lambda s, b, h, q, kv: s * 2])
def test_no_key_is_seen(score_mod):
    query, key, value = tensors(parts(2, 2), requires_grad=True)
    nothing = create_block_mask(lambda b, h, q, kv: q < 0, 1, 1, 5, 7)
    out = flex_attention(query, key, value, score_mod, nothing)
    assert (out == 0).all()
    for grad in pb.autograd.grad(out.sum(), (query, key, value)):
        assert (grad == 0).all()
    out, aux = flex_attention(
        query, key[:, :, :0], value[:, :, :0], score_mod, return_aux=AuxRequest(lse=True)
    )
    assert out.shape == (2, 2, 5, 2)
    assert (out == 0).all()
    assert (aux.lse == -math.inf).all()


def test_empty_batch_and_queries():
    query, key, value = tensors(parts())
    assert flex_attention(query[:0], key[:0], value[:0], lambda s, *_: s).shape == (0, 4, 5, 2)
    assert flex_attention(query[:, :, :0], key, value, lambda s, *_: s).shape == (2, 4, 0, 2)


def test_keys_of_one_batch_serve_all():
    arrays = parts(batch=2)
    arrays[1:] = [x[:1] for x in arrays[1:]]
    whole = [arrays[0], *(x.repeat(2, 0) for x in arrays[1:])]
    blocks = create_block_mask(blind, 2, 1, 5, 7, BLOCK_SIZE=2)
    for score_mod in (None, lambda s, *_: s):
        out = flex_attention(*tensors(arrays), score_mod, blocks)
        close(out, loops(*whole, None, blind)[0])


@pytest.mark.parametrize("score_mod", [None, lambda s, b, h, q, kv: s])
def test_result_is_laid_out_as_the_query(score_mod):
    query, key, value = tensors(parts())
    turned = query.transpose(1, 2).contiguous().transpose(1, 2)
    out = flex_attention(turned, key, value, score_mod)
    close(out, flex_attention(query, key, value, score_mod))
    assert out.transpose(1, 2).is_contiguous()
    assert flex_attention(query, key, value, score_mod).is_contiguous()


# -- derivatives and transforms --------------------------------------------------------------------


def with_bias(query, key, value, bias, mask, **options):
    return flex_attention(
        query,
        key,
        value,
        lambda s, b, h, q, kv: pb.tanh(s) * 2 + (q + 1) * bias[h, kv],
        mask,
        enable_gqa=True,
        **options,
    )


def small(seed=0, batch=()):
    rng = np.random.default_rng(seed)
    sizes = (1, 2, 3, 2), (1, 1, 4, 2), (1, 1, 4, 1), (2, 4)
    return [pb.tensor(rng.normal(size=(*batch, *size)), requires_grad=not batch) for size in sizes]


@pytest.mark.parametrize("mask", ["none", "window", "blind"])
def test_derivatives(mask):
    mask = None if mask == "none" else create_block_mask(MASKS[mask], 1, 1, 3, 4, BLOCK_SIZE=2)
    given = small()
    lse = AuxRequest(lse=True)
    functions = [
        lambda *parts: with_bias(*parts, mask),
        lambda query, key, value, bias: flex_attention(
            query, key, value, block_mask=mask, enable_gqa=True
        ),
    ]
    if mask is None or mask.mask_mod is not blind:
        functions.append(lambda *parts: with_bias(*parts, mask, return_aux=lse)[1].lse)
    for function in functions:
        assert pb.autograd.gradcheck(function, given, check_forward_ad=True)
        assert pb.autograd.gradgradcheck(function, given)


def test_logarithms_of_nothing_have_no_derivative():
    query, key, value, bias = small()
    mask = create_block_mask(blind, 1, 1, 3, 4)
    lse = with_bias(query, key, value, bias, mask, return_aux=AuxRequest(lse=True))[1].lse
    assert (lse[:, :, 1] == -math.inf).all()
    for grad in pb.autograd.grad(lse[:, :, 1].sum(), (query, key, bias)):
        assert (grad == 0).all()


def test_gradient_reaches_what_a_module_closes_over():
    class Biased(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(pb.zeros(2, 4, 4))
            self.inner = nn.Linear(6, 18)

        def forward(self, x):
            query, key, value = self.inner(x).unflatten(-1, (3, 2, 3)).permute(2, 0, 3, 1, 4)
            out = flex_attention(query, key, value, lambda s, b, h, i, j: s + self.bias[h, i, j])
            return out.transpose(1, 2).flatten(2)

    layer, x = Biased(), pb.randn(3, 4, 6)
    layer(x).square().sum().backward()
    assert layer.bias.grad.abs().max() > 0
    # Adding a number to all scores of a query changes nothing.
    close(layer.bias.grad.sum(-1), np.zeros((2, 4)), 1e-6)
    assert (pb.compile(layer)(x) - layer(x)).abs().max() < 1e-6


@pytest.mark.parametrize("mask", [None, "window", "blind"])
def test_transforms(mask):
    mask = mask and create_block_mask(MASKS[mask], 1, 1, 3, 4, BLOCK_SIZE=2)
    batches = small(1, (3,))
    bias = small()[3].detach()
    for function in (
        lambda query, key, value: with_bias(query, key, value, bias, mask),
        lambda query, key, value: flex_attention(query, key, value, None, mask, enable_gqa=True),
    ):
        one_by_one = pb.stack([function(*one) for one in zip(*batches[:3])])
        close(pb.vmap(function)(*batches[:3]), one_by_one.numpy())
        one = [part[0] for part in batches[:3]]
        shared = pb.vmap(function, (None, 0, None))(one[0], batches[1], one[2])
        wanted = [function(one[0], key, one[2]) for key in batches[1]]
        close(shared, pb.stack(wanted).numpy())
        total = lambda *parts, run=function: run(*parts).square().sum()  # noqa: E731
        leaves = [part.clone().requires_grad_() for part in one]
        wanted = pb.autograd.grad(total(*leaves), leaves)
        for ours, theirs in zip(pb.func.grad(total, (0, 1, 2))(*one), wanted):
            close(ours, theirs.numpy())
        forward, backward = (jac(function)(*one) for jac in (pb.func.jacfwd, pb.func.jacrev))
        close(forward, backward.numpy())
        with pb.no_grad():
            assert not function(*leaves).requires_grad


def test_compiled_attention():
    query, key, value, bias = small()
    mask = create_block_mask(window, 1, 1, 3, 4, BLOCK_SIZE=2)
    compiled = pb.compile(flex_attention)
    for factor in (1.0, 2.0, 1.0):

        def score_mod(s, b, h, q, kv, factor=factor):
            return s * factor + bias[h, kv]

        wanted = flex_attention(query, key, value, score_mod, mask, enable_gqa=True)
        ours = compiled(query, key, value, score_mod, mask, enable_gqa=True)
        close(ours, wanted.detach().numpy())
        for one, other in zip(
            pb.autograd.grad(ours.sum(), (query, bias)),
            pb.autograd.grad(wanted.sum(), (query, bias)),
        ):
            close(one, other.numpy())
    make = pb.compile(create_block_mask)
    made, again = [make(window, 1, 1, 3, 4, BLOCK_SIZE=2) for _ in range(2)]
    assert str(made) == str(mask) and made is not again


def test_autocast_lowers_what_it_gets():
    given = tensors(parts(), pb.float32)
    kind = given[0].device.type
    with pb.autocast(kind, dtype=pb.bfloat16):
        for score_mod in (None, lambda s, *_: s * 1):
            out, aux = flex_attention(*given, score_mod, return_aux=AuxRequest(lse=True))
            assert (out.dtype, aux.lse.dtype) == (pb.bfloat16, pb.float32)
            assert flex_attention(*given, score_mod).dtype == pb.bfloat16
            doubles = [part.double() for part in given]
            assert flex_attention(*doubles, score_mod).dtype == pb.float64


def test_sizes_without_data():
    query, key, value = (part.to("meta") for part in tensors(parts()))
    mask = create_block_mask(causal, 1, 1, 5, 7, device="meta", BLOCK_SIZE=2)
    assert flex_attention(query, key, value, lambda s, *_: s, mask).shape == (2, 4, 5, 2)
    assert flex_attention(query, key, value).shape == (2, 4, 5, 2)


def test_other_settings_of_attention_have_no_effect():
    from pullback.nn.attention import SDPBackend, sdpa_kernel

    given = tensors(parts())
    wanted = flex_attention(*given)
    for backend in (SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION):
        with sdpa_kernel(backend):
            close(flex_attention(*given), wanted.numpy())
    options = FlexKernelOptions(BLOCK_M=16, BACKEND="FLASH")
    close(flex_attention(*given, kernel_options=options), wanted.numpy())


# -- masks -----------------------------------------------------------------------------------------


def test_mask_of_a_function():
    mask = create_mask(lambda b, h, q, kv: kv <= q + b, 2, None, 2, 3)
    wanted = [[[[j <= i + b for j in range(3)] for i in range(2)]] for b in range(2)]
    assert mask.dtype == pb.bool
    assert mask.tolist() == wanted


def test_mask_of_a_score_mod():
    mod = lambda s, b, h, q, kv: pb.where(q >= kv, s + 1, -math.inf)  # noqa: E731
    assert create_mask(mod, 1, 1, 2, 3).tolist() == create_mask(causal, 1, 1, 2, 3).tolist()


def test_functions_of_every_kind_make_masks():
    class Least:
        def __call__(self, b, h, q, kv):
            return q >= kv

        def method(self, b, h, q, kv):
            return q >= kv

    def with_default(b, h, q, kv, least=0, *, most=9):
        return (q - kv >= least) & (q - kv < most)

    kinds = (Least(), Least().method, with_default)
    kinds += (functools.partial(lambda n, b, h, q, kv: q >= kv + n, 0),)
    kinds += (functools.partial(lambda b, h, q, kv, n: q >= kv + n, n=0),)
    for kind in kinds:
        assert create_mask(kind, 1, 1, 2, 2).flatten().tolist() == [True, False, True, True]


def test_masks_are_combined():
    near = lambda b, h, q, kv: q - kv < 2  # noqa: E731
    first = lambda b, h, q, kv: kv == 0  # noqa: E731
    both, any_ = and_masks(causal, near), or_masks(and_masks(causal, near), first)
    wanted = [[j <= i < j + 2 for j in range(4)] for i in range(4)]
    assert create_mask(both, 1, 1, 4, 4)[0, 0].tolist() == wanted
    wanted = [[True, *row[1:]] for row in wanted]
    assert create_mask(any_, 1, 1, 4, 4)[0, 0].tolist() == wanted
    assert create_mask(and_masks(), 1, 1, 1, 2).tolist() == [[[[True, True]]]]
    assert create_mask(or_masks(), 1, 1, 1, 2).tolist() == [[[[False, False]]]]
    for combine, name in ((and_masks, "and_mask"), (or_masks, "or_mask")):
        assert combine(causal).__name__ == name
        with pytest.raises(RuntimeError, match="All inputs should be callable mask_mods: "):
            combine(causal, 1)


def test_block_mask_by_hand():
    """Queries 0 to 9 in blocks of 3, keys 0 to 8 in blocks of 2; padding is not seen."""
    mask = create_block_mask(causal, 1, 1, 10, 9, BLOCK_SIZE=(3, 2))
    assert mask.kv_num_blocks.tolist() == [[[2, 1, 2, 5]]]
    assert mask.kv_indices.tolist() == [
        [[[0, 1, 2, 3, 4], [2, 0, 1, 3, 4], [3, 4, 0, 1, 2], [0, 1, 2, 3, 4]]]
    ]
    assert mask.full_kv_num_blocks.tolist() == [[[0, 2, 3, 0]]]
    assert mask.full_kv_indices.tolist() == [[[[0, 1, 2, 3, 4]] * 4]]
    assert mask.q_num_blocks.tolist() == [[[2, 2, 2, 2, 2]]]
    assert mask.q_indices.tolist() == [
        [[[0, 3, 1, 2], [0, 3, 1, 2], [1, 3, 0, 2], [2, 3, 0, 1], [2, 3, 0, 1]]]
    ]
    assert mask.full_q_num_blocks.tolist() == [[[2, 2, 1, 0, 0]]]
    assert mask.full_q_indices.tolist() == [
        [[[1, 2, 0, 3], [1, 2, 0, 3], [2, 0, 1, 3], [0, 1, 2, 3], [0, 1, 2, 3]]]
    ]
    assert {part.dtype for part in mask.as_tuple()[2:10]} == {pb.int32}
    assert (mask.shape, mask.seq_lengths, mask.BLOCK_SIZE) == ((1, 1, 10, 9), (10, 9), (3, 2))
    assert (mask.numel(), mask.mask_mod) == (90, causal)
    assert mask.sparsity() == 100 * (1 - 15 * 6 / 90)


def test_blocks_are_not_told_apart():
    mask = create_block_mask(causal, 1, 1, 4, 4, BLOCK_SIZE=2, separate_full_blocks=False)
    assert mask.kv_num_blocks.tolist() == [[[1, 2]]]
    assert mask.full_kv_num_blocks is mask.full_kv_indices is mask.full_q_indices is None
    assert mask.to_dense().tolist() == [[[[1, 0], [1, 1]]]]
    assert mask[0].full_kv_indices is mask._adjust(2, 2).full_kv_indices is None


def test_parts_in_order():
    mask = create_block_mask(causal, 2, 1, 4, 6, BLOCK_SIZE=(2, 3))
    flat, nested = mask.as_tuple(), mask.as_tuple(flatten=False)
    assert (len(flat), len(nested)) == (17, 15)
    assert flat[:2] == (4, 6)
    assert flat[-3:] == (2, 3, causal)
    assert (nested[0], *nested[-2:]) == ((4, 6), (2, 3), causal)
    names = "kv_num_blocks kv_indices full_kv_num_blocks full_kv_indices q_num_blocks q_indices"
    names += " full_q_num_blocks full_q_indices"
    for position, name in enumerate(names.split()):
        assert flat[2 + position] is nested[1 + position] is getattr(mask, name)
    assert flat[10:14] == (None,) * 4


def test_lists_of_blocks_say_what_is_seen():
    """Full blocks without the mask_mod, others with it, and none that is not listed."""
    number = pb.tensor([[[1, 1]]], dtype=pb.int32)
    partial = pb.tensor([[[[0, 1], [1, 0]]]], dtype=pb.int32)
    full = pb.tensor([[[[2, 0, 1], [0, 1, 2]]]], dtype=pb.int32)
    wide = pb.tensor([[[[0, 1, 2], [1, 0, 2]]]], dtype=pb.int32)
    arrays = parts(2, 2, rows=4, columns=6)
    mask = BlockMask.from_kv_blocks(number, wide, number, full, (2, 2), causal)
    assert mask.to_dense().tolist() == [[[[1, 0, 1], [1, 1, 0]]]]
    listed = {(0, 0): "part", (0, 2): "full", (1, 1): "part", (1, 0): "full"}

    def seen(b, h, i, j):
        kind = listed.get((i // 2, j // 2))
        return kind == "full" or (kind == "part" and i >= j)

    for score_mod in (None, lambda s, *_: s):
        close(flex_attention(*tensors(arrays), score_mod, mask), loops(*arrays, None, seen)[0])
    mask = BlockMask.from_kv_blocks(number, partial, BLOCK_SIZE=(2, 3))
    assert mask.mask_mod is noop_mask
    assert (mask.shape, mask.sparsity(), mask.full_q_indices) == ((1, 1, 4, 6), 50.0, None)
    wanted = loops(*arrays, None, lambda b, h, i, j: i // 2 == j // 3)[0]
    close(flex_attention(*tensors(arrays), None, mask), wanted)
    close(
        flex_attention(*tensors(arrays), None, BlockMask(*mask.as_tuple(False)[:9], (2, 3))), wanted
    )
    flat = BlockMask.from_kv_blocks(number[0, 0], partial[0, 0], BLOCK_SIZE=(2, 3))
    assert flat.shape == (4, 6)
    close(flex_attention(*tensors(arrays), None, flat), wanted)


def test_lists_of_a_short_batch_begin_again():
    number = pb.tensor([[[1]], [[2]]], dtype=pb.int32)
    indices = pb.tensor([[[[1, 0]]], [[[0, 1]]]], dtype=pb.int32)
    arrays = parts(1, 1, batch=4, rows=2, columns=4)
    mask = BlockMask.from_kv_blocks(number, indices, BLOCK_SIZE=2)
    wanted = loops(*arrays, None, lambda b, h, i, j: b % 2 == 1 or j >= 2)[0]
    close(flex_attention(*tensors(arrays), None, mask), wanted)


def test_queries_lists_are_left_out():
    mask = create_block_mask(causal, 1, 1, 4, 4, BLOCK_SIZE=2)
    lists = mask.as_tuple()[2:6]
    part = BlockMask.from_kv_blocks(*lists, 2, causal, compute_q_blocks=False)
    assert part.q_indices is part.q_num_blocks is part.full_q_indices is None
    assert part[0].q_indices is part._adjust(2, 2).q_indices is None
    assert part.to_dense().tolist() == mask.to_dense().tolist()


def test_parts_of_a_mask():
    mask = create_block_mask(by_head, 2, 3, 10, 9, BLOCK_SIZE=(3, 2))
    dense = mask.to_dense().numpy()
    every = slice(None)
    for index, taken in [
        (1, np.s_[1:2]),
        (-1, np.s_[1:2]),
        (slice(0, 1), np.s_[:1]),
        ((0, -1), np.s_[:1, 2:]),
        ((every, 1), np.s_[:, 1:2]),
        ((every, every, 2), np.s_[:, :, 2:3]),
        ((0, 0, slice(1, 3)), np.s_[:1, :1, 1:3]),
        ((..., 0), np.s_[:, :, :1]),
        ((1, ...), np.s_[1:]),
        (pb.tensor([1, 0]), np.s_[::-1]),
        ((0, pb.tensor([2])), np.s_[:1, 2:]),
        ((0, 0, 0, 0), np.s_[:1, :1, :1]),
    ]:
        part = mask[index]
        assert (part.to_dense().numpy() == dense[taken]).all(), index
        by_keys = part.q_num_blocks + part.full_q_num_blocks
        assert (by_keys.numpy() == dense[taken].sum(-2)).all()
        assert (part.seq_lengths, part.BLOCK_SIZE) == (mask.seq_lengths, mask.BLOCK_SIZE)
        with pytest.raises(RuntimeError, match="Cannot use mask_mod from a sliced BlockMask"):
            part.mask_mod(0, 0, 0, 0)
    assert mask[0, 0, 7].kv_indices.shape == (1, 1, 0, 5)
    assert mask[0, 0, 7].to_string() == "(0, 0)\n"


def test_part_of_a_mask_attends_with_its_own_function():
    arrays = parts(2, 2, rows=6, columns=6)
    mask = create_block_mask(causal, 1, 1, 6, 6, BLOCK_SIZE=2)
    wanted = loops(*arrays, None, causal)[0]
    query, key, value = tensors(arrays)
    for block in range(3):
        part = mask[:, :, block]
        start = 2 * block
        part.mask_mod = lambda b, h, q, kv, start=start: q + start >= kv
        part.seq_lengths = (2, 6)
        rows = query[:, :, start : start + 2]
        close(flex_attention(rows, key, value, None, part), wanted[:, :, start : start + 2])


def test_mask_is_cropped():
    mask = create_block_mask(causal, 1, 1, 10, 9, BLOCK_SIZE=(3, 2))
    dense = mask.to_dense()
    arrays = parts(1, 1, rows=10, columns=9)
    for rows, columns in [(10, 9), (9, 9), (8, 7), (7, 4), (3, 2), (2, 1), (10, 3)]:
        part = mask._adjust(rows, columns)
        assert part.shape == (1, 1, rows, columns)
        cut = dense[:, :, : -(-rows // 3), : -(-columns // 2)]
        assert part.to_dense().tolist() == cut.tolist()
        short = [arrays[0][:, :, :rows], *(x[:, :, :columns] for x in arrays[1:])]
        wanted = loops(*short, None, causal)[0]
        close(flex_attention(*tensors(short), None, part), wanted)
    longer = mask._adjust(12, 10)
    assert longer.shape == (1, 1, 12, 10)
    assert longer.to_dense().tolist() == dense.tolist()
    arrays = parts(1, 1, rows=15, columns=12)
    out = flex_attention(*tensors(arrays), None, mask._adjust(15, 12))
    close(out, loops(*arrays, None, lambda b, h, i, j: i < 12 and j < 10 and i >= j)[0])


def test_mask_moves():
    mask = create_block_mask(causal, 1, 1, 4, 4, BLOCK_SIZE=2)
    for device in ("ref", "meta"):
        moved = mask.to(device)
        assert {part.device.type for part in moved.as_tuple()[2:10]} == {device}
        assert (moved.shape, moved.mask_mod) == (mask.shape, causal)
    copied = copy.deepcopy(mask)
    assert str(copied) == str(mask)
    assert copied.kv_indices is not mask.kv_indices


def test_order_of_writing_is_kept():
    options = {"BLOCK_SIZE": (3, 2), "compute_dq_write_order": True}
    mask = create_block_mask(causal, 1, 1, 10, 9, **options)
    assert mask.dq_write_order[0, 0].tolist() == [
        [1, 4, 2, 4],
        [0, 3, 1, 3],
        [0, 2, -1, 2],
        [1, 1, -1, -1],
        [0, 0, -1, -1],
    ]
    assert mask.dq_write_order_full[0, 0, 0].tolist() == [2, 4, 1, 4]
    assert (mask.dq_kv_order, mask.dq_kv_order_spt) == (None, True)
    other = create_block_mask(causal, 1, 1, 10, 9, dq_kv_order=False, **options)
    assert other.dq_write_order[0, 0].tolist() == [
        [0, 0, 0, 0],
        [1, 1, 1, 1],
        [2, 2, 2, 2],
        [3, 3, 2, 3],
        [4, 4, 2, 3],
    ]
    assert mask[:, :, 1].dq_write_order.shape == mask[:, :, 1].q_indices.shape
    assert mask._adjust(5, 4).to("ref").dq_write_order.device.type == "ref"
    lists = mask.as_tuple()[2:6]
    order = pb.zeros(1, 1, 5, dtype=pb.int32)
    kept = BlockMask.from_kv_blocks(*lists, dq_write_order=order, dq_kv_order=order)
    assert kept.as_tuple()[10:14] == (order, None, order, None)
    assert kept[:, 0].dq_kv_order.shape == (1, 1, 5)
    plain = create_block_mask(causal, 1, 1, 10, 9, dq_kv_order=False)
    assert plain.as_tuple()[10:14] == (None,) * 4


# -- text ------------------------------------------------------------------------------------------


def test_mask_as_text():
    mask = create_block_mask(causal, 2, 1, 300, 260, BLOCK_SIZE=(64, 32))
    assert repr(mask) == (
        "BlockMask(\n"
        "    kv_num_blocks=pullback.Size([2, 1, 5]),\n"
        "    kv_indices=pullback.Size([2, 1, 5, 9]),\n"
        "    full_kv_num_blocks=pullback.Size([2, 1, 5]),\n"
        "    full_kv_indices=pullback.Size([2, 1, 5, 9]),\n"
        "    q_num_blocks=pullback.Size([2, 1, 9]),\n"
        "    q_indices=pullback.Size([2, 1, 9, 5]),\n"
        "    full_q_num_blocks=pullback.Size([2, 1, 9]),\n"
        "    full_q_indices=pullback.Size([2, 1, 9, 5]),\n"
        "    BLOCK_SIZE=(64, 32),\n"
        "    shape=(2, 1, 300, 260),\n"
        "    sparsity=23.86%,\n"
        "    mask_mod=causal\n"
        ")"
    )
    picture = "████\n████████\n████████████\n████████████████\n██████████████████\n"
    picture = "".join(line.ljust(18) + "\n" for line in picture.split())
    text = str(mask)
    assert text.startswith("BlockMask(shape=(2, 1, 300, 260), sparsity=23.86%, \n(0, 0)\n████  ")
    assert text.endswith("██████████████████\n)")
    assert mask.to_string() == f"(0, 0)\n{picture}\n(1, 0)\n{picture}"
    assert mask.to_string((3, 5), limit=1) == (
        "(0, 0)\n██░░      \n██████░░  \n██████████\n\n"
        "...\nTo print out more, set BlockMask.to_string(limit=N)\n"
        "You can also index (BlockMask[batch, head]) to choose a specific batch or head"
    )
    assert mask[0].to_string((1, -1)) == "(0, 0)\n████░░░░░░░░░░░░░░\n"
    empty = create_block_mask(lambda b, h, q, kv: q < 0, 1, 1, 4, 4, BLOCK_SIZE=2)
    assert str(empty) == "BlockMask(shape=(1, 1, 4, 4), sparsity=100.00%, \n(0, 0)\n)"
    assert "full_kv_indices=None" in repr(BlockMask.from_kv_blocks(*mask.as_tuple()[2:4]))


# -- properties ------------------------------------------------------------------------------------


@settings(deadline=None, derandomize=True)
@given(
    st.integers(1, 7),
    st.integers(1, 7),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 2),
    st.integers(1, 2),
    st.floats(0, 1),
    st.integers(0, 2**32 - 1),
)
def test_block_mask_of_a_random_mask(rows, columns, tall, wide, batch, heads, share, seed):
    rng = np.random.default_rng(seed)
    table = rng.random((batch, heads, rows, columns)) < share
    held = pb.tensor(table)
    mask = create_block_mask(
        lambda b, h, q, kv: held[b, h, q, kv], batch, heads, rows, columns, BLOCK_SIZE=(tall, wide)
    )
    dense, full = mask.to_dense().numpy(), np.zeros(mask.to_dense().shape, int)
    for place in np.ndindex(*full.shape):
        *front, i, j = place
        block = table[tuple(front)][i * tall : (i + 1) * tall, j * wide : (j + 1) * wide]
        assert dense[place] == block.any()
        full[place] = block.all() and block.size == tall * wide
    assert (mask.full_kv_num_blocks.numpy() == full.sum(-1)).all()
    assert (mask.full_q_num_blocks.numpy() == full.sum(-2)).all()
    assert mask.sparsity() == pytest.approx(100 * (1 - dense.sum() * tall * wide / table.size))
    query, key, value = (
        pb.tensor(rng.normal(size=(batch, heads, length, 2))) for length in (rows, columns, columns)
    )
    ours = flex_attention(query, key, value, block_mask=mask)
    hidden = flex_attention(
        query, key, value, lambda s, b, h, q, kv: pb.where(held[b, h, q, kv], s, -math.inf)
    )
    close(ours, hidden.numpy())
    assert (ours.numpy()[~table.any(-1)] == 0).all()


# -- errors ----------------------------------------------------------------------------------------


def zeros(*sizes):
    return [pb.zeros(size) for size in sizes]


Q, K = (1, 2, 4, 8), (1, 2, 6, 8)
MASK = create_block_mask(causal, 1, 2, 4, 6)
GROUPED = {"enable_gqa": True}


@pytest.mark.parametrize(
    ("sizes", "options", "error", "text"),
    [
        ((Q[1:], K, K), {}, NotImplementedError, "NYI: query, key, and value must be 4D tensors"),
        ((Q, K, K[1:]), {}, NotImplementedError, "NYI: query, key, and value must be 4D tensors"),
        (
            ((1, 2, 4, 7), K, K),
            {},
            ValueError,
            "Expect query and key/value to have the same embedding dimension but got E=7 and E=8.",
        ),
        (
            ((1, 4, 4, 8), K, K),
            {},
            ValueError,
            "Expect query and key/value to have the same number of heads but got Hq=4 and Hkv=2. "
            "Try setting enable_gqa=True for GQA.",
        ),
        (
            ((1, 3, 4, 8), K, K),
            GROUPED,
            ValueError,
            "Expect number of query heads to be a multiple of kv heads for GQA but got Hq=3 and "
            "Hkv=2.",
        ),
        (
            ((2, 2, 4, 8), K, K),
            {},
            ValueError,
            "Expect query and key/value to have the same batch size, or non-none block_mask, but "
            "got block_mask=None, Bq=2, and Bkv=1.",
        ),
        (
            ((2, 2, 4, 8), K, K),
            {"block_mask": MASK},
            ValueError,
            "Expect query and key/value to have the same batch size, or block_mask and query to "
            "have the same batch size, but got Bq=2, Bkv=1, B_block_mask=1.",
        ),
        (
            (Q, (2, 2, 6, 8), (2, 2, 6, 8)),
            {"block_mask": MASK},
            RuntimeError,
            "Bq and Bkv must broadcast. Got Bq=1 and Bkv=2",
        ),
        (
            ((1, 2, 5, 8), K, K),
            {"block_mask": MASK},
            ValueError,
            "block_mask was created for block_mask.shape=(1, 2, 4, 6) but got q_len=5 and "
            "kv_len=6. As the block mask was created for a smaller length than you're using it "
            "for, you likely need to create a new block mask.",
        ),
        (
            ((1, 2, 3, 8), K, K),
            {"block_mask": MASK},
            ValueError,
            "block_mask was created for block_mask.shape=(1, 2, 4, 6) but got q_len=3 and "
            "kv_len=6. As the block mask was created for a larger length than you're using it for, "
            "you can either 1. create a new block mask with the correct length, or 2. 'adjust' the "
            "existing block mask to the correct length by calling block_mask._adjust(q_len, "
            "kv_len). This essentially 'crops' the block mask to the upper left corner, which does "
            "not work for all mask_mods!",
        ),
        (
            (Q, K, K),
            {"block_mask": MASK[0]},
            RuntimeError,
            "Cannot use mask_mod from a sliced BlockMask",
        ),
        (
            (Q, K, K),
            {"return_lse": True, "return_aux": AuxRequest()},
            ValueError,
            "Cannot specify both return_lse and return_aux. return_lse is deprecated, please use "
            "return_aux=AuxRequest(lse=True) instead.",
        ),
        (
            (Q, K, K),
            {"kernel_options": {"BACKEND": "fast"}},
            ValueError,
            "Invalid BACKEND value 'fast'. Must be one of ('AUTO', 'TRITON', 'FLASH', "
            "'TRITON_DECODE')",
        ),
        (
            (Q, K, K),
            {"kernel_options": {"BACKEND": "AUTO", "FORCE_USE_FLEX_ATTENTION": True}},
            RuntimeError,
            "BACKEND cannot be combined with legacy FORCE_USE_FLEX_ATTENTION. BACKEND supersedes "
            "the legacy knob; please drop FORCE_USE_FLEX_ATTENTION and only specify the desired "
            "BACKEND.",
        ),
        (
            (Q, K, K),
            {"kernel_options": {"OUTPUT_MAX": True}},
            AssertionError,
            "OUTPUT_MAX must not be in kernel_options",
        ),
        (
            (Q, K, (1, 2, 5, 8)),
            {},
            RuntimeError,
            "Expected size for first two dimensions of batch2 tensor to be: [2, 6] but got: [2, "
            "5].",
        ),
        (
            ((1, 4, 4, 8), (1, 4, 6, 8), K),
            {},
            RuntimeError,
            "The size of tensor a (4) must match the size of tensor b (2) at non-singleton "
            "dimension 1",
        ),
        ((Q[:3] + (0,), K[:3] + (0,), K), {}, ZeroDivisionError, "float division by zero"),
        (
            (Q, K, K),
            {"score_mod": lambda s, *_: pb.stack((s, s))},
            RuntimeError,
            "score_mod must return a tensor without dims, got one of (2,)",
        ),
        (
            (Q, K, K),
            {"score_mod": lambda s, *_: (s, s)},
            TypeError,
            "score_mod must return a tensor, got tuple",
        ),
        (
            (Q, K, K),
            {"score_mod": lambda s, *_: s * 1j},
            RuntimeError,
            "score_mod must return a real number, got pullback.complex64",
        ),
        (
            (Q, K, K),
            {"score_mod": lambda s, *_: 1.0},
            ValueError,
            "vmap(<lambda>, ...): `<lambda>` must only return Tensors, got type <class 'float'>. "
            "Did you mean to set out_dims= to None for output?",
        ),
    ],
)
def test_attention_refuses(sizes, options, error, text):
    with pytest.raises(error) as caught:
        flex_attention(*zeros(*sizes), **options)
    assert str(caught.value) == text
    assert type(caught.value) is error


def test_attention_refuses_other_devices():
    query, key, value = zeros(Q, K, K)
    text = "Expected query, key, and value to have the same device type, but got query.device: meta"
    with pytest.raises(ValueError, match=text):
        flex_attention(query.to("meta"), key, value)
    text = f"Expect q/k/v and block_mask to be on the same device but got {query.device} and meta."
    with pytest.raises(RuntimeError, match=re.escape(text)):
        flex_attention(query, key, value, None, MASK.to("meta"))
    with pytest.raises(RuntimeError, match="nowhere"):
        MASK.to("nowhere")


def test_attention_refuses_a_mask_that_is_not_bool():
    mask = copy.copy(MASK)
    mask.mask_mod = lambda b, h, q, kv: q - kv
    text = "where expected condition to be a boolean tensor, but got a tensor with dtype Long"
    for score_mod in (None, lambda s, *_: s):
        with pytest.raises(RuntimeError, match=text):
            flex_attention(*zeros(Q, K, K), score_mod, mask)


def test_score_mod_reads_no_values():
    for score_mod in (lambda s, b, h, q, kv: s if q > kv else -s, lambda s, *_: s * s.item()):
        with pytest.raises(RuntimeError, match="vmap: It looks like you're"):
            flex_attention(*zeros(Q, K, K), score_mod)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: create_mask(lambda a, b, c: a, 1, 1, 2, 2),
            AssertionError,
            "Expected 4 or 5 positional args, got 3",
        ),
        (
            lambda: create_block_mask(lambda *a: a, 1, 1, 2, 2),
            AssertionError,
            "Expected 4 or 5 positional args, got 0",
        ),
        (lambda: create_mask("a", 1, 1, 2, 2), TypeError, "'a' is not a callable object"),
        (
            lambda: create_block_mask(lambda b, h, q, kv: q - kv, 1, 1, 2, 2),
            AssertionError,
            "mask.dtype must be pullback.bool, got pullback.int64",
        ),
        (
            lambda: create_block_mask(causal, 1, 1, 2, 2, dq_kv_order=1),
            ValueError,
            "dq_kv_order must be a bool when using create_block_mask",
        ),
        (
            lambda: BlockMask.from_kv_blocks(*lists(), dq_kv_order=1),
            ValueError,
            "dq_kv_order must be a bool, Tensor, or None",
        ),
        (
            lambda: BlockMask.from_kv_blocks(*lists(), dq_write_order_full=lists()[1]),
            ValueError,
            "dq_write_order_full requires dq_write_order",
        ),
        (
            lambda: BlockMask.from_kv_blocks(lists()[0][0, 0, 0], lists()[1][0, 0, 0]),
            RuntimeError,
            "BlockMask must have at least 2 dimensions",
        ),
        (
            lambda: BlockMask((4, 4), lists()[0], lists()[1][0, 0, 0], *(None,) * 6),
            RuntimeError,
            "BlockMask must have at least 2 dimensions",
        ),
        (
            lambda: BlockMask.from_kv_blocks(*lists(), lists()[0]),
            AssertionError,
            "full_kv_num_blocks and full_kv_indices must be both provided or omitted",
        ),
        (
            lambda: BlockMask((4, 4), *lists(), *(None,) * 4, lists()[0], None),
            AssertionError,
            "full_q_num_blocks and full_q_indices must be both provided or omitted",
        ),
        (
            lambda: BlockMask((4, 4), None, lists()[1], *(None,) * 6),
            AssertionError,
            "kv_num_blocks must be provided",
        ),
    ],
)
def test_masks_refuse(make, error, text):
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == text
    assert type(caught.value) is error


def lists():
    number = pb.tensor([[[1, 1]]], dtype=pb.int32)
    return number, pb.tensor([[[[0, 1], [1, 0]]]], dtype=pb.int32)


def test_create_block_mask_names_a_score_mod():
    mod = lambda s, b, h, q, kv: s  # noqa: E731
    with pytest.raises(AssertionError) as caught:
        create_block_mask(mod, 1, 1, 2, 2)
    assert str(caught.value) == f"create-block_mask requires a mask_mod function! Got {mod}"


def test_module_is_found_by_attribute():
    assert pb.nn.attention.flex_attention.flex_attention is flex_attention
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pb.nn.attention.nothing


def test_compiled_attention_sees_another_mask():
    query, key, value, _ = small()
    mask, shift = create_block_mask(causal, 1, 1, 3, 4, BLOCK_SIZE=(3, 4)), [0]
    compiled = pb.compile(flex_attention)

    def same():
        wanted = flex_attention(query, key, value, None, mask, enable_gqa=True)
        ours = compiled(query, key, value, None, mask, enable_gqa=True)
        return pb.equal(ours, wanted)

    assert same()
    mask.mask_mod = lambda b, h, q, kv: q <= kv + shift[0]
    assert same()
    shift[0] = 1
    assert same()
