"""Scaled dot product attention."""

import math

from pullback.ops.rules.dtypes import accumulate_dtype, cast_to, type_name
from pullback.ops.table.primitives_api import new_empty, run_primitive
from pullback.ops.table.samples import T, case, mask, references_of
from pullback.ops.table.schema import FLOATING, op, ops

references = references_of("normalization")


def _check(query, key, value, attn_mask, is_causal):
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise RuntimeError(
            f"Expected query, key, and value to all be  at least 2 dimensional, but "
            f"got query.dim: {query.ndim} key.dim: {key.ndim} and value.dim: "
            f"{value.ndim} instead."
        )
    if not query.dtype == key.dtype == value.dtype:
        raise RuntimeError(
            f"Expected query, key, and value to have the same dtype, but got "
            f"query.dtype: {query.dtype.name} key.dtype: {key.dtype.name} and "
            f"value.dtype: {value.dtype.name} instead."
        )
    if not query.is_floating_point():
        error = NotImplementedError if query.is_complex() else RuntimeError
        raise error(
            f"scaled_dot_product_attention: expected a floating-point dtype, got "
            f"{type_name(query.dtype)}"
        )
    if attn_mask is None:
        return
    if is_causal:
        raise RuntimeError(
            "_scaled_dot_product_attention: Explicit attn_mask should not be set "
            "when is_causal=True"
        )
    if attn_mask.dtype != query.dtype and attn_mask.dtype.name not in ("bool", "float32"):
        raise RuntimeError(
            f"Expected attn_mask dtype to be bool or float or to match query dtype, "
            f"but got attn_mask.dtype: {attn_mask.dtype.name} and  query.dtype: "
            f"{query.dtype.name} instead."
        )


def _shared_heads(query, part):
    """Repeat the heads of keys or values, each for a group of the query's."""
    if query.ndim < 3 or part.ndim < 3:
        raise IndexError("Dimension out of range (expected to be in range of [-2, 1], but got -3)")
    wanted, heads = query.shape[-3], part.shape[-3]
    if heads == 0 or wanted % heads:
        raise RuntimeError(
            "Number of heads in key and value must divide the number of heads in query"
        )
    spread = part.unsqueeze(-3).expand((*part.shape[:-2], wanted // heads, *part.shape[-2:]))
    return spread.reshape((*part.shape[:-3], wanted, *part.shape[-2:]))


def _attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    _check(query, key, value, attn_mask, is_causal)
    dtype = query.dtype
    query, key, value = (cast_to(part, accumulate_dtype(dtype)) for part in (query, key, value))
    if enable_gqa:
        key, value = _shared_heads(query, key), _shared_heads(query, value)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1] or 1)
    if (
        attn_mask is None
        and not is_causal
        and dropout_p == 0
        and query.ndim > 2
        and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
        and query.shape[-1] == key.shape[-1]
        and key.shape[-2] == value.shape[-2]
    ):
        return cast_to(_of_all_keys(query, key, value, scale), dtype)
    # Queries are scaled where they have fewer elements than the scores.
    before = query.shape[-1] < key.shape[-2]
    scores = ops.matmul(query * scale if before else query, key.transpose(-2, -1))
    if not before:
        scores = scores * scale
    if is_causal:
        rows, columns = (ops.arange_like(query, n) for n in scores.shape[-2:])
        attn_mask = rows.unsqueeze(1) >= columns
    if attn_mask is not None:
        if attn_mask.dtype.name == "bool":
            scores = ops.where(attn_mask, scores, -math.inf)
        else:
            scores = scores + attn_mask
    weights = _weights(scores, attn_mask is not None and not is_causal)
    weights = getattr(ops, "dropout.top")(weights, dropout_p, True)
    return cast_to(ops.matmul(weights, value), dtype)


_SCORES = 1 << 17  # held at a time: they should stay in a cache


def _is_recorded(*parts):
    from pullback._c.base.state import is_grad_enabled
    from pullback._c.graph.levels import level_count

    return level_count() or (is_grad_enabled() and any(part.requires_grad for part in parts))


def _of_all_keys(query, key, value, scale):
    """Attention without a mask: where nothing is recorded, few scores at a time."""
    lead = query.shape[:-2]
    if len(lead) > 1:
        query, key, value = (
            ops.reshape(part, (-1, *part.shape[-2:])) if part.numel() else part.flatten(0, -3)
            for part in (query, key, value)
        )
    (heads, rows), columns = query.shape[:2], key.shape[1]
    key = key.transpose(1, 2)
    if (
        heads * rows * columns <= _SCORES
        or _is_recorded(query, key, value)
        or query.device != value.device
    ):  # the product refuses it
        out = ops.bmm(ops.softmax(ops.bmm(query * scale, key), -1), value)
    else:
        out = _in_parts(query, key, value, scale)
    return out if len(lead) == 1 else ops._unsafe_view(out, (*lead, *out.shape[1:]))


def _in_parts(query, key, value, scale):
    (heads, rows), columns = query.shape[:2], key.shape[2]
    out = new_empty(query, (heads, rows, value.shape[2]))
    height = min(rows, max(1, _SCORES // columns))
    count = max(1, _SCORES // (height * columns))
    for head in range(0, heads, count):
        some = min(count, heads - head)
        keys, values = (ops.narrow(part, 0, head, some) for part in (key, value))
        for row in range(0, rows, height):
            queries, made = (
                ops.narrow(ops.narrow(part, 0, head, some), 1, row, min(height, rows - row))
                for part in (query, out)
            )
            weights = ops.softmax(ops.bmm(queries * scale, keys), -1)
            if made.numel():
                run_primitive("bmm", (made,), (weights, values))
    return out


def _weights(scores, may_lack_keys):
    """Softmax; a query that may see no key at all gets no weights, not NaN."""
    if not may_lack_keys or not scores.shape[-1]:
        return ops.softmax(scores, -1)
    blind = ops.all(scores == -math.inf, -1, True)
    weights = ops.softmax(ops.where(blind, 0, scores), -1)
    return ops.where(blind, 0, weights)


_Q, _K, _V = T(2, 3, 4), T(2, 5, 4), T(2, 5, 2)
op(
    "scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, "
    "attn_mask: Tensor? = None, dropout_p: float = 0.0, is_causal: bool = False, "
    "scale: float? = None, enable_gqa: bool = False) -> Tensor",
    composite=_attention,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.attention,
    doc="Return softmax(query @ key.T * scale + mask) @ value, over the last two dims.\n\nA bool "
    "mask is True where a query sees a key; a float one is added. `is_causal` shows query i the "
    "keys up to i. The default scale is 1 / sqrt(the last size). With `enable_gqa` keys and "
    'values may have fewer heads (dim -3).\n\nSource: Vaswani et al., "Attention is all you '
    'need", 2017, equation 1.',
    samples=[
        case(_Q, _K, _V),
        case(T(3, 4), T(5, 4), T(5, 2)),
        case(_Q, _K, _V, mask(3, 5)),
        case(_Q, _K, _V, T(3, 5)),
        case(_Q, _K, _V, is_causal=True),
        case(_Q, _K, _V, scale=0.3),
        case(T(1, 2, 3, 4), T(1, 2, 5, 4), T(1, 2, 5, 2), T(5)),
        case(T(1, 4, 2, 3), T(1, 2, 3, 3), T(1, 2, 3, 2), enable_gqa=True),
        case(T(0, 3, 4), T(0, 5, 4), T(0, 5, 2)),
        case(T(2, 3, 4), T(2, 0, 4), T(2, 0, 2), skip={"value": "NumPy has no maximum of nothing"}),
    ],
)
