"""Scaled dot product attention."""

import functools
import math

from pullback.ops.rules.attention_backends import check_backends, kernels_allowed
from pullback.ops.rules.dtypes import accumulate_dtype, cast_to, type_name
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.primitives_api import new_empty, put
from pullback.ops.table.samples import T, case, mask, references_of
from pullback.ops.table.schema import FLOATING, op, ops, result_type

references = references_of("normalization")


def _check(query, key, value, attn_mask, is_causal):
    check_backends()
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


# -- the primitives --------------------------------------------------------------------------------


def _composed(query, key, value, mask, is_causal, scale, dropout_p=0.0):
    """Return the result and the scores, of as many heads of keys as of queries."""
    # Queries are scaled where they have fewer elements than the scores.
    before = query.shape[-1] < key.shape[-2]
    scores = ops.matmul(query * scale if before else query, key.transpose(-2, -1))
    if not before:
        scores = scores * scale
    if is_causal:
        rows, columns = (ops.arange_like(query, n) for n in scores.shape[-2:])
        scores = ops.where(rows.unsqueeze(1) >= columns, scores, -math.inf)
    elif mask is not None:
        hides = mask.dtype.name == "bool"
        scores = ops.where(mask, scores, -math.inf) if hides else scores + mask
    weights = getattr(ops, "dropout.top")(_weights(scores, mask is not None), dropout_p, True)
    return ops.matmul(weights, value), scores


def _weights(scores, may_lack_keys):
    """Softmax; a query that may see no key at all gets no weights, not NaN."""
    if not may_lack_keys or not scores.shape[-1]:
        return ops.softmax(scores, -1)
    blind = ops.all(scores == -math.inf, -1, True)
    weights = ops.softmax(ops.where(blind, 0, scores), -1)
    return ops.where(blind, 0, weights)


def _composed_backward(g, query, key, value, mask, is_causal, scale, out=None, logsumexp=None):
    """Return the derivatives of the result, in ops that are differentiable themselves.

    With the results of the forward pass they are used; without, they are part of the derivative.
    """
    dtype = query.dtype
    g, query, key, value = (
        cast_to(part, accumulate_dtype(dtype)) for part in (g, query, key, value)
    )
    heads, groups = key.shape, None
    if query.ndim > 2 and query.shape[-3] != key.shape[-3]:
        groups = (*heads[:-2], query.shape[-3] // heads[-3], *heads[-2:])
        key, value = _shared_heads(query, key), _shared_heads(query, value)
    scores = _composed(query, key, value, mask, is_causal, scale)[1]
    by_weights = ops.matmul(g, value.transpose(-2, -1))
    if out is None:
        weights = _weights(scores, True)
        means = (by_weights * weights).sum(-1, True)
    else:
        blind = logsumexp == -math.inf
        weights = ops.exp(scores - ops.where(blind, 0, logsumexp).unsqueeze(-1))
        means = (g * out).sum(-1, True)
    by_scores = weights * (by_weights - means)
    found = (
        ops.matmul(by_scores, key) * scale,
        ops.matmul(by_scores.transpose(-2, -1), query) * scale,
        ops.matmul(weights.transpose(-2, -1), g),
    )
    if groups:
        found = (
            found[0],
            *(part.reshape((*groups[:-1], part.shape[-1])).sum(-3) for part in found[1:]),
        )
    return tuple(cast_to(part, dtype) for part in found)


@decomposition("attention", wide=(1,))
def composed_attention(query, key, value, attn_mask, is_causal, scale):
    if query.ndim > 2 and query.shape[-3] != key.shape[-3]:
        key, value = _shared_heads(query, key), _shared_heads(query, value)
    out, scores = _composed(query, key, value, attn_mask, is_causal, scale)
    return put(_laid_out_as(query, value.shape[-1]), out), ops.logsumexp(scores, -1)


@decomposition("attention_backward")
def composed_attention_backward(
    self, query, key, value, attn_mask, out, logsumexp, is_causal, scale
):
    operands = query, key, value
    found = _composed_backward(self, *operands, attn_mask, is_causal, scale, out, logsumexp)
    return tuple(
        put(_laid_out_as(part, part.shape[-1]), grad)
        for part, grad in zip(operands, found, strict=True)
    )


def _laid_out_as(query, size):
    """Return a new tensor with the order of a query's dims in memory."""
    shape = (*query.shape[:-1], size)
    if query.ndim == 4 and query.stride(1) < query.stride(2):
        batch, heads, rows, size = shape
        return new_empty(query, (batch, rows, heads, size)).transpose(1, 2)
    return new_empty(query, shape)


_Gradients = result_type("_attention_gradients", "query", "key", "value")


def _attention_vjp(gs, query, key, value, attn_mask, out0, out1, is_causal, scale):
    from pullback._c.base.state import is_grad_enabled

    if gs[0] is None:
        return None, None, None
    if is_grad_enabled():
        return _composed_backward(gs[0], query, key, value, attn_mask, is_causal, scale)
    return tuple(
        ops.attention_backward(gs[0], query, key, value, attn_mask, out0, out1, is_causal, scale)
    )


_PARTS = dict.fromkeys(
    ("grad", "gradgrad", "compiled"),
    "the logarithms are for the derivative, and have none",
)
# Sizes of query, key and value; mask, is_causal and scale.
_PRIMITIVE = [
    (((2, 3, 4), (2, 5, 4), (2, 5, 2)), None, False, 0.5),
    (((3, 4), (5, 4), (5, 2)), None, True, 0.3),
    (((2, 3, 4), (2, 5, 4), (2, 5, 2)), mask(2, 3, 5), False, -0.5),
    (((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 2)), T(1, 2, 3, 5, low=-1, high=1), False, 0.5),
    (((1, 4, 3, 3), (1, 2, 5, 3), (1, 2, 5, 2)), None, True, 0.5),
]
op(
    "attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor?, is_causal: bool, "
    "scale: float) -> Tensor[]",
    forward="attention",
    kernel="attention",
    method=False,
    function=False,
    node="ScaledDotProductFlashAttentionForCpuBackward0",
    batch="attention",
    vjp={("query", "key", "value"): _attention_vjp},
    dtypes=FLOATING,
    ref=references.attention_primitive,
    doc="Return the result of attention, and the logarithms of the sums of exp(scores).\n\n"
    'Arguments are those of the primitive.\n\nSource: Dao et al., "FlashAttention", 2022, '
    "algorithm 1.",
    samples=lambda: [
        case(*[T(*size) for size in sizes], *rest, skip=_PARTS) for sizes, *rest in _PRIMITIVE
    ],
)
op(
    "attention_backward(self: Tensor, query: Tensor, key: Tensor, value: Tensor, "
    "attn_mask: Tensor?, out: Tensor, logsumexp: Tensor, is_causal: bool, scale: float) -> any",
    forward="attention_backward",
    kernel="attention_backward",
    results=_Gradients.type,
    method=False,
    function=False,
    batch="attention",
    dtypes=FLOATING,
    doc="Return the derivatives of attention by query, key and value, times self.\n\n"
    'Source: Dao et al., "FlashAttention", 2022, algorithm 4.',
    ref=references.attention_backward,
    samples=lambda: [
        case(
            *(T(*size, low=-1, high=1) for size in ((*q[:-1], v[-1]), q, k, v)),
            hides,
            T(*q[:-1], v[-1], low=-1, high=1),
            T(*q[:-1], low=2, high=3),
            *rest,
        )
        for (q, k, v), hides, *rest in _PRIMITIVE
    ],
)


# -- the function ----------------------------------------------------------------------------------


_MOST_DIMS = 6  # of the kernels' operands


def _is_recorded(mask):
    """Return whether a mask takes part in recording, forward mode or vmap."""
    from pullback._c.base.state import is_grad_enabled
    from pullback._c.graph.levels import level_count

    return level_count() or (is_grad_enabled() and mask.requires_grad)


@functools.lru_cache(maxsize=512)
def _fit(size, key_size, value_size, enable_gqa):
    """Return whether the kernels take operands of these sizes."""
    count = len(size)
    return (
        2 <= count <= _MOST_DIMS
        and count == len(key_size)
        and size[-1] == key_size[-1]
        and key_size[:-1] == value_size[:-1]
        and (
            size[:-2] == key_size[:-2]
            or (
                enable_gqa
                and count > 2
                and size[:-3] == key_size[:-3]
                and key_size[-3] > 0
                and size[-3] % key_size[-3] == 0
            )
        )
    )


def _masked(query, key, mask):
    """Return a mask as the kernels take it, or None where they do not."""
    hides = mask.dtype.name == "bool"
    if mask.device != query.device or (not hides and _is_recorded(mask)):
        return None
    if not hides and mask.dtype != query.dtype:
        mask = cast_to(mask, accumulate_dtype(query.dtype))
    shape = (*query.shape[:-1], key.shape[-2])
    return mask if mask.shape == shape else ops.expand(mask, shape)


def _attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    dtype, size = query.dtype, query.shape
    fits = (
        not dropout_p
        and kernels_allowed()
        and key.dtype is dtype
        and value.dtype is dtype
        and _fit(size, key.shape, value.shape, bool(enable_gqa))
    )
    if not fits or attn_mask is not None or not FLOATING >> dtype.code & 1:
        _check(query, key, value, attn_mask, is_causal)
    if scale is None:
        scale = (size[-1] or 1) ** -0.5
    if fits:
        seen = None if attn_mask is None else _masked(query, key, attn_mask)
        if attn_mask is None or seen is not None:
            return ops.attention(query, key, value, seen, is_causal, scale)[0]
    query, key, value = (cast_to(part, accumulate_dtype(dtype)) for part in (query, key, value))
    if enable_gqa:
        key, value = _shared_heads(query, key), _shared_heads(query, value)
    return cast_to(_composed(query, key, value, attn_mask, is_causal, scale, dropout_p)[0], dtype)


_Q, _K, _V = T(2, 3, 4), T(2, 5, 4), T(2, 5, 2)
op(
    "scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, "
    "attn_mask: Tensor? = None, dropout_p: float = 0.0, is_causal: bool = False, "
    "scale: float? = None, enable_gqa: bool = False) -> Tensor",
    autocast="lower",
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
    samples=lambda: [
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
