"""Attention by functions gives torch's results, gradients, lists of blocks and errors."""

import inspect
import math
import warnings

import numpy as np
import pytest

import pullback
from pullback.nn.attention import flex_attention as ours

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")
theirs = pytest.importorskip("torch.nn.attention.flex_attention")

RNG = np.random.default_rng(0)
BIAS, SLOPES = RNG.normal(size=(4, 6, 7)), RNG.normal(size=4)
PAIRS = ((pullback, ours), (torch, theirs))

SCORE_MODS = {
    "none": lambda m, bias, slopes: None,
    "bias": lambda m, bias, slopes: lambda s, b, h, q, kv: s + bias[h, q, kv],
    "slope": lambda m, bias, slopes: lambda s, b, h, q, kv: s + slopes[h] * (kv - q),
    "cap": lambda m, bias, slopes: lambda s, b, h, q, kv: 2 * m.tanh(s / 2),
    "batch": lambda m, bias, slopes: lambda s, b, h, q, kv: s * slopes[b] * (q + 1),
    "causal": lambda m, bias, slopes: lambda s, b, h, q, kv: m.where(q >= kv, s, -math.inf),
    "rows": lambda m, bias, slopes: lambda s, b, h, q, kv: m.where(q != 1, s, -math.inf),
    "vectors": lambda m, bias, slopes: (
        lambda s, b, h, q, kv: s + (bias[h, q] * bias[h, kv % 6]).sum()
    ),
}
MASKS = {
    "none": None,
    "causal": lambda b, h, q, kv: q >= kv,
    "window": lambda b, h, q, kv: (q - kv < 2) & (kv - q < 3),
    "blind": lambda b, h, q, kv: (q != 2) & (kv >= b),
    "heads": lambda b, h, q, kv: (q + kv + h) % 3 == 0,
    "nothing": lambda b, h, q, kv: q < 0,
}
LISTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
LISTS += ("q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices")


@pytest.fixture(autouse=True)
def torch_runs_as_it_is_written(monkeypatch):
    """Without its compiler, and with gradients on a CPU, which torch refuses beforehand."""
    monkeypatch.setattr(theirs, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr(theirs, "_validate_device", lambda query, key, value: None)
    monkeypatch.setattr(theirs, "_WARNINGS_SHOWN", {"deprecated_return_lse", "return_lse"})


def run(m, module, arrays, dtype, score_mod, mask, options):
    """Return results and gradients; here torch has none for what a score_mod closes over."""
    dtype = getattr(m, dtype)
    query, key, value = (m.tensor(x).to(dtype).requires_grad_() for x in arrays)
    wide = m.float64 if dtype == m.float64 else m.float32
    held = [m.tensor(x).to(wide) for x in (BIAS, SLOPES)]
    if mask is not None:
        mask = module.create_block_mask(mask, 2, 4, 6, 7, device="cpu", BLOCK_SIZE=(2, 3))
    out, aux = module.flex_attention(
        query,
        key,
        value,
        SCORE_MODS[score_mod](m, *held),
        mask,
        enable_gqa=key.shape[1] != query.shape[1],
        return_aux=module.AuxRequest(lse=True),
        **options,
    )
    finite = m.where(m.isfinite(aux.lse), aux.lse, 0.0)
    (out.to(wide) * (out.detach().to(wide) + 1)).sum().add(finite.square().sum()).backward()
    return out, aux.lse, *(part.grad for part in (query, key, value))


@pytest.fixture(autouse=True)
def same_numbers_in_any_order_of_tests():
    RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score_mod", SCORE_MODS)
def test_results_and_gradients_are_torch_s(score_mod, mask):
    tolerances = {"float64": 1e-12, "float32": 2e-5, "float16": 1e-2, "bfloat16": 8e-2}
    for number, (dtype, tolerance) in enumerate(tolerances.items()):
        kv_heads = (4, 2)[number % 2]
        sizes = ((2, 4, 6, 3), (2, kv_heads, 7, 3), (2, kv_heads, 7, 2))
        arrays = [RNG.normal(size=size) for size in sizes]
        options = {"scale": 0.4} if kv_heads == 2 else {}
        results = [run(*pair, arrays, dtype, score_mod, MASKS[mask], options) for pair in PAIRS]
        for one, other in zip(*results, strict=True):
            assert str(one.dtype).split(".")[1] == str(other.dtype).split(".")[1]
            one, other = (x.detach().double().numpy() for x in (one, other))
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("score_mod", ["bias", "slope", "batch", "vectors"])
def test_gradients_of_what_is_closed_over_are_torch_s(score_mod):
    """Torch's are those of the formula on whole tensors."""
    arrays = [RNG.normal(size=size) for size in ((2, 4, 6, 3), (2, 4, 7, 3), (2, 4, 7, 2))]
    found = []
    for m, module in PAIRS:
        query, key, value = (m.tensor(x) for x in arrays)
        held = [m.tensor(x, requires_grad=True) for x in (BIAS, SLOPES)]
        mod = SCORE_MODS[score_mod](m, *held)
        if m is pullback:
            mask = module.create_block_mask(MASKS["window"], 1, 1, 6, 7, BLOCK_SIZE=2)
            out = module.flex_attention(query, key, value, mod, mask)
        else:
            changed = query @ key.mT / 3**0.5
            indices = [m.arange(size) for size in changed.shape]
            for place in (3, 2, 1, 0):
                dims = [0 if place == other else None for other in range(4)]
                mod = m.vmap(mod, (0, *dims))
            changed = mod(changed, *indices)
            seen = MASKS["window"](0, 0, indices[2][:, None], indices[3])
            out = changed.masked_fill(~seen, -math.inf).softmax(-1).nan_to_num() @ value
        grads = m.autograd.grad(out.square().sum(), held, allow_unused=True)
        found.append([None if grad is None else grad.numpy() for grad in grads])
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


# -- masks -----------------------------------------------------------------------------------------


def members(mask):
    """Return lists, sizes and texts of a mask."""
    named = {name: getattr(mask, name) for name in LISTS}
    found = {
        name: part if part is None else (part.tolist(), str(part.dtype).split(".")[1])
        for name, part in named.items()
    }
    text = repr(mask).replace("pullback.", "torch.")
    sizes = (mask.shape, mask.seq_lengths, mask.BLOCK_SIZE, mask.numel(), mask.sparsity())
    dense = mask.to_dense()
    return found, text, str(mask), sizes, (dense.tolist(), str(dense.dtype).split(".")[1])


@pytest.mark.parametrize("mask", [name for name in MASKS if name != "none"])
@pytest.mark.parametrize("block", [1, 2, (3, 2), (2, 5), 128])
def test_block_masks_are_torch_s(mask, block):
    every = slice(None)
    indices = (1, -1, (0, -1), (every, 1), (every, every, 1), (0, 0, slice(0, 2)), (0, 1, 0))
    for separate in (True, False):
        made = [
            module.create_block_mask(
                MASKS[mask],
                *(2, 3, 10, 9),
                device="cpu",
                BLOCK_SIZE=block,
                separate_full_blocks=separate,
                compute_dq_write_order=True,
            )
            for _, module in PAIRS
        ]
        assert members(made[0]) == members(made[1])
        for name in ("dq_write_order", "dq_write_order_full"):
            one, other = (getattr(part, name) for part in made)
            assert one is other is None or one.tolist() == other.tolist()
        for grid in (1, 3, (2, 4), (-1, 2), -1):
            assert made[0].to_string(grid, limit=5) == made[1].to_string(grid, limit=5)
        for index in indices:
            if block == 128 and index == (every, every, 1):
                continue  # there is one block only
            assert members(made[0][index]) == members(made[1][index])
        lists = [
            module.BlockMask.from_kv_blocks(*part.as_tuple()[2:6], block, seq_lengths=(10, 9))
            for part, (_, module) in zip(made, PAIRS)
        ]
        assert members(lists[0]) == members(lists[1])
        types = [[type(x).__name__ for x in part.as_tuple()] for part in made]
        assert types[0] == types[1]


@pytest.mark.parametrize("sizes", [(10, 9), (9, 9), (5, 9), (3, 2), (1, 1), (12, 9)])
def test_cropped_masks_are_torch_s(sizes):
    """Where a row's blocks begin the row; torch keeps some blocks past the end otherwise."""
    made = [
        module.create_block_mask(
            MASKS["causal"],
            *(1, 1, 10, 9),
            device="cpu",
            BLOCK_SIZE=(3, 2),
            separate_full_blocks=False,
        )._adjust(*sizes)
        for _, module in PAIRS
    ]
    assert made[0].kv_num_blocks.tolist() == made[1].kv_num_blocks.tolist()
    assert made[0].to_dense().tolist() == made[1].to_dense().tolist()
    assert made[0].shape == made[1].shape


# -- names and errors ------------------------------------------------------------------------------


def test_names_and_arguments_are_torch_s():
    assert sorted(ours.__all__) == sorted(theirs.__all__)
    for name in ours.__all__:
        one, other = getattr(ours, name), getattr(theirs, name)
        if name == "FlexKernelOptions":
            assert set(one.__annotations__) == set(other.__annotations__)
        elif isinstance(one, type) and issubclass(one, tuple):
            assert (one._fields, one._field_defaults) == (other._fields, other._field_defaults)
        elif not isinstance(one, type):
            assert arguments(one) == arguments(other)
    for name in ("__init__", "from_kv_blocks", "as_tuple", "to_string", "to", "_adjust"):
        pair = [getattr(module.BlockMask, name) for _, module in PAIRS]
        assert arguments(pair[0]) == arguments(pair[1])


def arguments(function):
    return [
        (p.name, p.kind, getattr(p.default, "__name__", p.default))
        for p in inspect.signature(function).parameters.values()
    ]


CALLS = {
    "dims": lambda m, f, z: f.flex_attention(z(2, 4, 8), z(1, 2, 6, 8), z(1, 2, 6, 8)),
    "embedding": lambda m, f, z: f.flex_attention(z(1, 2, 4, 7), z(1, 2, 6, 8), z(1, 2, 6, 8)),
    "heads": lambda m, f, z: f.flex_attention(z(1, 4, 4, 8), z(1, 2, 6, 8), z(1, 2, 6, 8)),
    "groups": lambda m, f, z: f.flex_attention(
        z(1, 3, 4, 8), z(1, 2, 6, 8), z(1, 2, 6, 8), enable_gqa=True
    ),
    "batch": lambda m, f, z: f.flex_attention(z(2, 2, 4, 8), z(3, 2, 6, 8), z(3, 2, 6, 8)),
    "lengths": lambda m, f, z: f.flex_attention(z(1, 2, 4, 8), z(1, 2, 6, 8), z(1, 2, 5, 8)),
    "value heads": lambda m, f, z: f.flex_attention(z(1, 4, 4, 8), z(1, 4, 6, 8), z(1, 2, 6, 8)),
    "batch of a mask": lambda m, f, z: f.flex_attention(
        z(2, 2, 4, 8), z(1, 2, 6, 8), z(1, 2, 6, 8), None, mask_of(f, 4, 6)
    ),
    "batch of keys": lambda m, f, z: f.flex_attention(
        z(1, 2, 4, 8), z(2, 2, 6, 8), z(2, 2, 6, 8), None, mask_of(f, 4, 6)
    ),
    "short mask": lambda m, f, z: f.flex_attention(
        z(1, 2, 4, 8), z(1, 2, 6, 8), z(1, 2, 6, 8), None, mask_of(f, 4, 5)
    ),
    "long mask": lambda m, f, z: f.flex_attention(
        z(1, 2, 4, 8), z(1, 2, 6, 8), z(1, 2, 6, 8), None, mask_of(f, 5, 6)
    ),
    "part": lambda m, f, z: f.flex_attention(
        z(1, 2, 4, 8), z(1, 2, 6, 8), z(1, 2, 6, 8), None, mask_of(f, 4, 6)[0]
    ),
    "device of a mask": lambda m, f, z: f.flex_attention(
        z(1, 2, 4, 8), z(1, 2, 6, 8), z(1, 2, 6, 8), None, mask_of(f, 4, 6).to("meta")
    ),
    "both": lambda m, f, z: f.flex_attention(
        *[z(1, 2, 4, 8)] * 3, return_lse=True, return_aux=f.AuxRequest()
    ),
    "backend": lambda m, f, z: f.flex_attention(
        *[z(1, 2, 4, 8)] * 3, kernel_options={"BACKEND": 1}
    ),
    "two options": lambda m, f, z: f.flex_attention(
        *[z(1, 2, 4, 8)] * 3,
        kernel_options={"BACKEND": "AUTO", "FORCE_USE_FLEX_ATTENTION": True},
    ),
    "inner option": lambda m, f, z: f.flex_attention(
        *[z(1, 2, 4, 8)] * 3, kernel_options={"OUTPUT_LOGSUMEXP": True}
    ),
    "aux": lambda m, f, z: f.flex_attention(*[z(1, 2, 4, 8)] * 3, return_aux=True),
    "no embedding": lambda m, f, z: f.flex_attention(*[z(1, 2, 4, 0)] * 3),
    "float": lambda m, f, z: f.flex_attention(*[z(1, 2, 4, 8)] * 3, lambda s, *_: 1.0),
    "arguments": lambda m, f, z: f.create_mask(lambda a, b, c: a, 1, 1, 2, 2),
    "no function": lambda m, f, z: f.create_mask(None, 1, 1, 2, 2),
    "order": lambda m, f, z: f.create_block_mask(MASKS["causal"], 1, 1, 2, 2, dq_kv_order=1),
    "no mask_mods": lambda m, f, z: f.and_masks(1, 2),
    "or no mask_mods": lambda m, f, z: f.or_masks(None),
    "no rows": lambda m, f, z: f.BlockMask.from_kv_blocks(z(), z(2)),
    "one of two": lambda m, f, z: f.BlockMask.from_kv_blocks(z(2), z(2, 2), z(2)),
    "no lists": lambda m, f, z: f.BlockMask((1, 1), None, z(2, 2), *(None,) * 6),
    "one of two for queries": lambda m, f, z: f.BlockMask(
        (1, 1), z(2), z(2, 2), *(None,) * 4, z(2), None
    ),
    "full order": lambda m, f, z: f.BlockMask.from_kv_blocks(
        z(2), z(2, 2).int(), dq_write_order_full=z(2)
    ),
    "kind of order": lambda m, f, z: f.BlockMask.from_kv_blocks(
        z(2), z(2, 2).int(), dq_kv_order="a"
    ),
}


def mask_of(module, rows, columns):
    return module.create_block_mask(MASKS["causal"], 1, 1, rows, columns, device="cpu")


@pytest.mark.parametrize("call", CALLS)
def test_errors_are_torch_s(call):
    raised = []
    for m, module in PAIRS:
        with warnings.catch_warnings(), pytest.raises(Exception) as caught:
            warnings.simplefilter("ignore")
            CALLS[call](m, module, lambda *sizes, m=m: m.zeros(sizes, device="cpu"))
        raised.append((type(caught.value).__name__, str(caught.value)))
    assert raised[0] == raised[1]
