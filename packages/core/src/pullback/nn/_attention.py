"""Multi-head attention: projections, heads and masks around scaled dot product attention."""

from __future__ import annotations

import math
import warnings

import pullback

__all__ = ["multi_head_attention_forward"]


def _linear(input, weight, bias):
    return pullback.nn.functional.linear(input, weight, bias)


# -- checks ----------------------------------------------------------------------------------------


def _check_dims(query, key, value, key_padding_mask, attn_mask, num_heads):
    """Check numbers of dims; return whether there is a batch."""
    dims = query.ndim
    if dims not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {dims}-D query tensor"
        )
    form = ("batched (3-D)" if dims == 3 else "unbatched (2-D)") + " `query`, expected"
    if not key.ndim == value.ndim == dims:
        raise AssertionError(
            f"For {form} `key` and `value` to be {dims}-D but found {key.ndim}-D and "
            f"{value.ndim}-D tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.ndim != dims - 1:
        raise AssertionError(
            f"For {form} `key_padding_mask` to be `None` or {dims - 1}-D but found "
            f"{key_padding_mask.ndim}-D tensor instead"
        )
    if attn_mask is None:
        return dims == 3
    if attn_mask.ndim not in (2, 3):
        raise AssertionError(
            f"For {form} `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.ndim}-D tensor "
            "instead"
        )
    if dims == 2 and attn_mask.ndim == 3:
        wanted = (num_heads, query.shape[0], key.shape[0])
        if tuple(attn_mask.shape) != wanted:
            raise AssertionError(
                f"Expected `attn_mask` shape to be {wanted} but got {attn_mask.shape!r}"
            )
    return dims == 3


def added_mask(mask, name, other, other_name, dtype):
    """Return a mask as numbers to add to scores: a bool one is True where nothing is seen.

    ``other`` is the mask that is used beside it, or None.
    """
    if mask is None:
        return None
    is_bool = mask.dtype == pullback.bool
    if not (is_bool or mask.is_floating_point()):
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if other is not None and other.dtype != mask.dtype:
        warnings.warn(
            f"Support for mismatched {name} and {other_name} is deprecated. Use same type for both "
            "instead.",
            stacklevel=3,
        )
    if not is_bool:
        return mask
    return pullback.zeros_like(mask, dtype=dtype).masked_fill_(mask, -math.inf)


def _check_embedding(query, key, value, embed_dim, num_heads, separate):
    size = query.shape[-1]
    if size != embed_dim:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim}, but got {size}")
    if size % num_heads:
        raise AssertionError(f"embed_dim {size} not divisible by num_heads {num_heads}")
    if separate:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(
                f"key's sequence and batch dims {key.shape[:2]!r} do not match value's "
                f"{value.shape[:2]!r}"
            )
    elif key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape!r} does not match value shape {value.shape!r}")


# -- projections, heads, masks ---------------------------------------------------------------------


def _packed_projection(query, key, value, weight, bias):
    """Project with one weight of three parts: in one product where the inputs are one tensor."""
    size = query.shape[-1]
    if key is value and query is key:
        together = _linear(query, weight, bias)
        return [pullback.narrow(together, -1, part * size, size) for part in range(3)]
    parts = pullback.split(weight, size, 0)
    biases = (None,) * 3 if bias is None else pullback.split(bias, size, 0)
    if key is value:
        first = _linear(query, parts[0], biases[0])
        rest = _linear(
            key,
            pullback.narrow(weight, 0, size, 2 * size),
            None if bias is None else pullback.narrow(bias, 0, size, 2 * size),
        )
        return [first, *(pullback.narrow(rest, -1, part * size, size) for part in range(2))]
    return [_linear(x, w, b) for x, w, b in zip((query, key, value), parts, biases)]


def _projected(inputs, use_separate_proj_weight, in_proj_weight, in_proj_bias, weights):
    if not use_separate_proj_weight:
        if in_proj_weight is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
        return _packed_projection(*inputs, in_proj_weight, in_proj_bias)
    for letter, weight in zip("qkv", weights):
        if weight is None:
            raise AssertionError(
                f"use_separate_proj_weight is True but {letter}_proj_weight is None"
            )
    biases = (None,) * 3
    if in_proj_bias is not None:
        biases = pullback.split(in_proj_bias, in_proj_bias.shape[0] // 3, 0)
    return [_linear(x, w, b) for x, w, b in zip(inputs, weights, biases)]


def _shaped_mask(attn_mask, batch, num_heads, rows, columns):
    """Check the shape of a mask; return it as (1 or batch, 1 or heads, rows, columns)."""
    if attn_mask is None:
        return None
    dims = attn_mask.ndim
    wanted = (rows, columns) if dims == 2 else (batch * num_heads, rows, columns)
    if tuple(attn_mask.shape) != wanted:
        raise RuntimeError(
            f"The shape of the {dims}D attn_mask is {attn_mask.shape!r}, but should be {wanted}."
        )
    if dims == 2:
        return attn_mask.unsqueeze(0).unsqueeze(0)
    return attn_mask.reshape((batch, num_heads, rows, columns))


def _heads(projected, batch, num_heads, head_dim):
    """(length, n, embed) as (n, heads, length, head_dim), a view."""
    split = projected.reshape((projected.shape[0], batch, num_heads, head_dim))
    return split.permute((1, 2, 0, 3))


def _given_heads(static, name, batch, num_heads, head_dim):
    """Check keys or values that are given as (n * heads, length, head_dim)."""
    for dim, wanted in ((0, batch * num_heads), (2, head_dim)):
        if static.shape[dim] != wanted:
            raise AssertionError(
                f"expecting {name}.size({dim}) of {wanted}, but got {static.shape[dim]}"
            )
    return static.reshape((batch, num_heads, -1, head_dim))


def _pad(mask, count):
    """Let a mask show further keys at the end."""
    return pullback.cat((mask, mask.new_zeros((*mask.shape[:-1], count))), -1)


def multi_head_attention_forward(
    query,
    key,
    value,
    embed_dim_to_check,
    num_heads,
    in_proj_weight,
    in_proj_bias,
    bias_k,
    bias_v,
    add_zero_attn,
    dropout_p,
    out_proj_weight,
    out_proj_bias,
    training=True,
    key_padding_mask=None,
    need_weights=True,
    attn_mask=None,
    use_separate_proj_weight=False,
    q_proj_weight=None,
    k_proj_weight=None,
    v_proj_weight=None,
    static_k=None,
    static_v=None,
    average_attn_weights=True,
    is_causal=False,
):
    """Return attention of several heads, and its weights or None.

    Shape: query (rows, n, embed), key and value (columns, n, embed), all possibly without n; the
    weights are (n, rows, columns), or (n, heads, rows, columns) without ``average_attn_weights``.

    The inputs are projected by the three parts of ``in_proj_weight`` (3 embed, embed), or by
    ``q_proj_weight``, ``k_proj_weight`` and ``v_proj_weight``, and split into heads; the result is
    projected by ``out_proj_weight``. A bool mask is True where nothing is seen, a float one is
    added: ``attn_mask`` (rows, columns) or (n heads, rows, columns), ``key_padding_mask``
    (n, columns). ``is_causal`` says that ``attn_mask`` is the causal mask. ``bias_k`` and
    ``bias_v`` (1, 1, embed) are a further key and value, ``add_zero_attn`` adds one of zeros.
    ``static_k`` and ``static_v`` (n heads, columns, embed / heads) replace projected ones.

    Source: Vaswani et al., "Attention is all you need", 2017, section 3.2.2.

    Raises: AssertionError or RuntimeError for shapes and dtypes that do not fit.

    >>> import pullback
    >>> x = pullback.ones(3, 1, 4)
    >>> weight, last = pullback.ones(12, 4), pullback.eye(4)
    >>> out, weights = pullback.nn.functional.multi_head_attention_forward(
    ...     x, x, x, 4, 2, weight, None, None, None, False, 0.0, last, None)
    >>> out[0], weights[0, 0]
    (tensor([[4., 4., 4., 4.]]), tensor([0.3333, 0.3333, 0.3333]))
    """
    batched = _check_dims(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = _with_batch(query, key, value)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    attn_mask, key_padding_mask = (
        added_mask(attn_mask, "attn_mask", None, "", query.dtype),
        added_mask(key_padding_mask, "key_padding_mask", attn_mask, "attn_mask", query.dtype),
    )
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module "
            "method `generate_square_subsequent_mask` to create this mask."
        )
    _check_embedding(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    rows, batch, _ = query.shape
    attn_mask = _shaped_mask(attn_mask, batch, num_heads, rows, key.shape[0])
    projected = _projected(
        (query, key, value),
        use_separate_proj_weight,
        in_proj_weight,
        in_proj_bias,
        (q_proj_weight, k_proj_weight, v_proj_weight),
    )
    q, k, v, further = _in_heads(
        projected, num_heads, (bias_k, bias_v), (static_k, static_v), add_zero_attn
    )
    # The hint says that the mask is the causal one; beside another mask, this one is used.
    if is_causal and key_padding_mask is None and not need_weights and not further:
        attn_mask = None
    else:
        is_causal = False
        attn_mask = _merged(attn_mask, key_padding_mask, batch, k.shape[2], further)
    dropout_p = dropout_p if training else 0.0
    if need_weights:
        out, weights = _with_weights(q, k, v, attn_mask, dropout_p)
        if average_attn_weights:
            weights = weights.mean(1)
    else:
        out = pullback.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask, dropout_p, is_causal
        )
        weights = None
    out = out.permute((2, 0, 1, 3)).reshape((rows, batch, embed_dim_to_check))
    out = _linear(out, out_proj_weight, out_proj_bias)
    if not batched:
        out, weights = out.squeeze(1), None if weights is None else weights.squeeze(0)
    return out, weights


def _with_batch(query, key, value):
    """Add a dim for the batch; equal inputs stay one tensor."""
    one = query.unsqueeze(1)
    other = one if key is query else key.unsqueeze(1)
    return one, other, other if value is key else value.unsqueeze(1)


def _in_heads(projected, num_heads, biases, statics, add_zero_attn):
    """Return q, k and v as (n, heads, length, head_dim), and how many keys have been added."""
    q, *keys_and_values = projected
    _, batch, size = q.shape
    head_dim = size // num_heads
    if biases[0] is not None and biases[1] is not None:
        for static, what in zip(statics, ("key", "value")):
            if static is not None:
                raise AssertionError(f"bias cannot be added to static {what}.")
        keys_and_values = [
            pullback.cat((part, bias.expand((1, batch, size))))
            for part, bias in zip(keys_and_values, biases)
        ]
    else:
        for bias, letter, other in zip(biases, "kv", "vk"):
            if bias is not None:
                raise AssertionError(f"bias_{letter} is set but bias_{other} is None")
    q = _heads(q, batch, num_heads, head_dim)
    k, v = (
        _heads(part, batch, num_heads, head_dim)
        if static is None
        else _given_heads(static, name, batch, num_heads, head_dim)
        for part, static, name in zip(keys_and_values, statics, ("static_k", "static_v"))
    )
    if add_zero_attn:
        shape = (batch, num_heads, 1, head_dim)
        k, v = (pullback.cat((part, part.new_zeros(shape)), 2) for part in (k, v))
    return q, k, v, (biases[0] is not None) + bool(add_zero_attn)


def _merged(attn_mask, key_padding_mask, batch, columns, further):
    """Return one mask of both, which shows all further keys."""
    if further and attn_mask is not None:
        attn_mask = _pad(attn_mask, further)
    if key_padding_mask is None:
        return attn_mask
    if further:
        key_padding_mask = _pad(key_padding_mask, further)
    for dim, wanted in enumerate((batch, columns)):
        found = key_padding_mask.shape[dim]
        if found != wanted:
            raise AssertionError(
                f"Expected key_padded_mask.shape[{dim}] to be {wanted}, but got {found}"
            )
    key_padding_mask = key_padding_mask.reshape((batch, 1, 1, columns))
    return key_padding_mask if attn_mask is None else attn_mask + key_padding_mask


def _with_weights(q, k, v, attn_mask, dropout_p):
    """Return attention and its weights."""
    scores = pullback.matmul(q * math.sqrt(1.0 / q.shape[-1]), k.transpose(-2, -1))
    if attn_mask is not None:
        scores = scores + attn_mask
    weights = pullback.softmax(scores, -1)
    if dropout_p > 0:
        weights = pullback.nn.functional.dropout(weights, dropout_p)
    return pullback.matmul(weights, v), weights
