"""Attention whose scores a function changes and whose mask another one gives."""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, NamedTuple, TypedDict

import pullback
from pullback import Tensor
from pullback._help import explain_names as _explain_names
from pullback.nn.attention._block_mask import BlockMask, _sliced_mask_mod_error, noop_mask
from pullback.nn.attention._masks import (
    ScoreMod,
    and_masks,
    create_block_mask,
    create_mask,
    indices_of,
    or_masks,
    over_indices,
    seen_of,
)
from pullback.ops.rules.attention_backends import kernels_allowed

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "FlexKernelOptions",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

_BACKENDS = ("AUTO", "TRITON", "FLASH", "TRITON_DECODE")


class AuxRequest(NamedTuple):
    """What ``flex_attention`` returns beside its result.

    >>> from pullback.nn.attention.flex_attention import AuxRequest
    >>> AuxRequest(lse=True)
    AuxRequest(lse=True, max_scores=False)
    """

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for by ``AuxRequest``, or None; (batch, heads, queries) each.

    ``lse`` is log(sum(exp(scores))) over keys, with derivatives; ``max_scores`` the largest score,
    without.

    >>> from pullback.nn.attention.flex_attention import AuxOutput
    >>> AuxOutput()
    AuxOutput(lse=None, max_scores=None)
    """

    lse: Tensor | None = None
    max_scores: Tensor | None = None


FlexKernelOptions = TypedDict(
    "FlexKernelOptions",
    {
        **dict.fromkeys(("num_warps", "num_stages", "BLOCK_M", "BLOCK_N"), int),
        **dict.fromkeys(("BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2"), int),
        **dict.fromkeys(("PRESCALE_QK", "ROWS_GUARANTEED_SAFE", "BLOCKS_ARE_CONTIGUOUS"), bool),
        **dict.fromkeys(("WRITE_DQ", "FORCE_USE_FLEX_ATTENTION", "USE_TMA"), bool),
        **dict.fromkeys(("kpack", "matrix_instr_nonkdim", "waves_per_eu"), int),
        "BACKEND": Literal["AUTO", "TRITON", "FLASH", "TRITON_DECODE"],
    },
    total=False,
)
FlexKernelOptions.__doc__ = """Options of torch's kernels, without effect here.

>>> from pullback.nn.attention.flex_attention import FlexKernelOptions
>>> FlexKernelOptions(BLOCK_M=64)
{'BLOCK_M': 64}
"""


# -- attention -------------------------------------------------------------------------------------


def _check(query: Tensor, key: Tensor, value: Tensor, mask: BlockMask | None, gqa: bool) -> None:
    if not query.device.type == key.device.type == value.device.type:
        raise ValueError(
            "Expected query, key, and value to have the same device type, but got query.device: "
            f"{query.device}, key.device: {key.device}, and value.device: {value.device} instead."
        )
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            "Expect query and key/value to have the same embedding dimension but got "
            f"E={query.shape[-1]} and E={key.shape[-1]}."
        )
    if not query.dim() == key.dim() == value.dim() == 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    (batch, heads, rows, _), (kv_batch, kv_heads, columns, _) = query.shape, key.shape
    if not gqa and heads != kv_heads:
        raise ValueError(
            "Expect query and key/value to have the same number of heads but got "
            f"Hq={heads} and Hkv={kv_heads}. Try setting enable_gqa=True for GQA."
        )
    if gqa and (kv_heads == 0 or heads % kv_heads):
        raise ValueError(
            "Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={heads} and Hkv={kv_heads}."
        )
    if batch != kv_batch and mask is None:
        raise ValueError(
            "Expect query and key/value to have the same batch size, or non-none block_mask, but "
            f"got block_mask=None, Bq={batch}, and Bkv={kv_batch}."
        )
    if batch != kv_batch and mask.kv_num_blocks.shape[0] != batch:
        raise ValueError(
            "Expect query and key/value to have the same batch size, or block_mask and query to "
            f"have the same batch size, but got Bq={batch}, Bkv={kv_batch}, "
            f"B_block_mask={mask.kv_num_blocks.shape[0]}."
        )
    if mask is not None:
        _check_mask(query, mask, rows, columns)
    if kv_batch not in (1, batch):
        raise RuntimeError(f"Bq and Bkv must broadcast. Got Bq={batch} and Bkv={kv_batch}")


def _check_mask(query: Tensor, mask: BlockMask, rows: int, columns: int) -> None:
    if mask.mask_mod is _sliced_mask_mod_error:
        raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")
    wanted_rows, wanted_columns = mask.shape[-2:]
    if (rows, columns) != (wanted_rows, wanted_columns):
        text = (
            f"block_mask was created for block_mask.shape={mask.shape} but got q_len={rows} and "
            f"kv_len={columns}. As the block mask was created for a "
        )
        if rows > wanted_rows or columns > wanted_columns:
            raise ValueError(
                f"{text}smaller length than you're using it for, you likely need to create a new "
                "block mask."
            )
        raise ValueError(
            f"{text}larger length than you're using it for, you can either 1. create a new block "
            "mask with the correct length, or 2. 'adjust' the existing block mask to the correct "
            "length by calling block_mask._adjust(q_len, kv_len). This essentially 'crops' the "
            "block mask to the upper left corner, which does not work for all mask_mods!"
        )
    if mask.kv_num_blocks.device != query.device:
        raise RuntimeError(
            "Expect q/k/v and block_mask to be on the same device but got "
            f"{query.device} and {mask.kv_num_blocks.device}."
        )


def _check_options(options: Any) -> None:
    """Raise for options that torch refuses; what they say has no effect."""
    options = dict(options or {})
    if "BACKEND" in options:
        if options.get("FORCE_USE_FLEX_ATTENTION"):
            raise RuntimeError(
                "BACKEND cannot be combined with legacy FORCE_USE_FLEX_ATTENTION. BACKEND "
                "supersedes the legacy knob; please drop FORCE_USE_FLEX_ATTENTION and only specify "
                "the desired BACKEND."
            )
        if options["BACKEND"] not in _BACKENDS:
            raise ValueError(
                f"Invalid BACKEND value '{options['BACKEND']}'. Must be one of {_BACKENDS}"
            )
    for name in ("OUTPUT_LOGSUMEXP", "OUTPUT_MAX"):
        if name in options:
            raise AssertionError(f"{name} must not be in kernel_options")


def _scores(query: Tensor, key: Tensor, score_mod: ScoreMod | None, scale: float) -> Tensor:
    """Return the scores of each query, (batch, heads, queries, keys)."""
    heads, size = query.shape[1:3]
    scores = _grouped(query, key.shape[1]) @ key.transpose(-2, -1) * scale
    scores = scores.reshape((scores.shape[0], heads, size, key.shape[2]))
    if score_mod is None:
        return scores
    indices = indices_of(scores.shape, scores.device)
    changed = over_indices(score_mod, True)(scores, *indices)
    if not isinstance(changed, Tensor):
        raise TypeError(f"score_mod must return a tensor, got {type(changed).__name__}")
    if changed.shape != scores.shape:
        raise RuntimeError(
            f"score_mod must return a tensor without dims, got one of {tuple(changed.shape[4:])}"
        )
    if changed.is_complex():
        raise RuntimeError(f"score_mod must return a real number, got {changed.dtype}")
    return changed if changed.is_floating_point() else changed.to(scores.dtype)


def _grouped(parts: Tensor, heads: int) -> Tensor:
    """Return (batch, heads * n, rows, size) as (batch, heads, n * rows, size)."""
    if parts.shape[1] == heads:
        return parts
    return parts.unflatten(1, (heads, -1)).flatten(2, 3)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None,
    mask: BlockMask | None,
    scale: Any,
    request: AuxRequest,
) -> tuple[Tensor, AuxOutput]:
    sizes = (*query.shape[:3], key.shape[2])
    seen = None if mask is None else seen_of(mask, sizes, query.device)
    is_one_type = query.dtype == key.dtype == value.dtype and query.is_floating_point()
    is_plain = score_mod is None and not any(request) and isinstance(scale, (float, int))
    if is_plain and is_one_type and kernels_allowed() and key.shape[:3] == value.shape[:3]:
        if key.shape[0] != sizes[0]:
            key, value = (part.expand((sizes[0], *part.shape[1:])) for part in (key, value))
        shared = sizes[1] != key.shape[1]
        attend = pullback.nn.functional.scaled_dot_product_attention
        return attend(query, key, value, seen, 0.0, False, scale, shared), AuxOutput()
    # What is narrower is computed in float32, as in torch.
    working = pullback.float64 if query.dtype == pullback.float64 else pullback.float32
    scores = _scores(query.to(working), key.to(working), score_mod, scale)
    if seen is not None:
        scores = pullback.where(seen, scores, -math.inf)
    blind = (scores == -math.inf).all(-1, True)
    safe = pullback.where(blind, 0.0, scores)
    weights = pullback.where(blind, 0.0, pullback.softmax(safe, -1))
    out = _grouped(weights, key.shape[1]) @ value.to(weights.dtype)
    out = _laid_out_as(query, out.reshape((*sizes[:3], value.shape[-1]))).to(query.dtype)
    lse = largest = None
    if request.lse:
        lse = pullback.where(blind.squeeze(-1), -math.inf, pullback.logsumexp(safe, -1))
    if request.max_scores:
        largest = scores.detach().amax(-1)
    return out, AuxOutput(lse, largest)


def _laid_out_as(query: Tensor, out: Tensor) -> Tensor:
    """Return a result with the order of a query's dims in memory, but the last dim together."""
    order = [*sorted(range(3), key=query.stride, reverse=True), 3]
    if order == [0, 1, 2, 3]:
        return out
    return out.permute(order).contiguous().permute([order.index(dim) for dim in range(4)])


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: FlexKernelOptions | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """Return softmax(score_mod(query @ key.T * scale)) @ value, where a mask shows keys to queries.

    Shape: query (B, Hq, L, E), key (B, Hkv, S, E), value (B, Hkv, S, Ev), the result (B, Hq, L,
    Ev). With ``enable_gqa`` Hq is a multiple of Hkv, and heads of queries share keys and values in
    groups. Keys and values may have a batch of 1 where ``block_mask`` has that of the queries.
    Dtype: that of the query; scores are float64 for float64, otherwise float32.

    ``score_mod(score, b, h, q_idx, kv_idx)`` gets tensors without dims, and runs once under
    ``vmap``; indices are int64, and tensors that it closes over have gradients. ``block_mask``
    shows the blocks that it lists as full, and in other blocks that it lists what its ``mask_mod``
    shows. A query that sees no key gives 0. The default scale is 1 / sqrt(E).

    With ``return_aux`` the result is a pair with ``AuxOutput``; ``return_lse`` is the deprecated
    form, a pair with log(sum(exp(scores))). ``kernel_options`` have no effect.

    Source: Dong et al., "Flex Attention: a programming model for generating optimized attention
    kernels", 2024.

    Raises: NotImplementedError for other than 4 dims; ValueError for sizes, devices and masks that
    do not fit, or both forms of further results; RuntimeError for a mask on another device or one
    that was sliced, and for a score_mod whose result has dims.

    >>> import pullback
    >>> from pullback.nn.attention.flex_attention import create_block_mask, flex_attention
    >>> x = pullback.arange(3.).reshape(1, 1, 3, 1)
    >>> causal = create_block_mask(lambda b, h, q, kv: q >= kv, 1, 1, 3, 3)
    >>> flex_attention(x, x, x, lambda score, b, h, q, kv: score * 0, causal).flatten()
    tensor([0.0000, 0.5000, 1.0000])
    """
    _check(query, key, value, block_mask, enable_gqa)
    if return_lse:
        if return_aux is not None:
            raise ValueError(
                "Cannot specify both return_lse and return_aux. return_lse is deprecated, please "
                "use return_aux=AuxRequest(lse=True) instead."
            )
        warnings.warn(
            "return_lse is deprecated: use return_aux=AuxRequest(lse=True)",
            FutureWarning,
            stacklevel=2,
        )
    _check_options(kernel_options)
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1])
    request = AuxRequest(lse=return_lse)
    if return_aux is not None:
        request = AuxRequest(return_aux.lse, return_aux.max_scores)
    rest = (score_mod, block_mask, scale, request)
    kind = query.device.type
    if pullback.amp.is_autocast_available(kind) and pullback.is_autocast_enabled(kind):
        parts = [_lower(part, pullback.get_autocast_dtype(kind)) for part in (query, key, value)]
        with pullback.autocast(kind, enabled=False):
            out, aux = _attend(*parts, *rest)
    else:
        out, aux = _attend(query, key, value, *rest)
    if return_aux is not None:
        return out, aux
    return (out, aux.lse) if return_lse else out


def _lower(part: Tensor, dtype: Any) -> Tensor:
    """Return what autocast makes of an argument."""
    is_cast = part.is_floating_point() and part.dtype != pullback.float64
    return part.to(dtype) if is_cast else part


_explain_names(globals())
