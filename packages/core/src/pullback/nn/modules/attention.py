"""Attention of several heads."""

from __future__ import annotations

import pullback
from pullback.nn import functional as F
from pullback.nn import init
from pullback.nn.modules.linear import NonDynamicallyQuantizableLinear
from pullback.nn.modules.module import Module
from pullback.nn.parameter import Parameter

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of ``num_heads`` heads, each over embed_dim / num_heads numbers of an element.

    A call takes query (rows, n, embed_dim), key (columns, n, kdim) and value (columns, n, vdim),
    with n first if ``batch_first``, or without n. It returns (rows, n, embed_dim), and the weights
    (n, rows, columns), or (n, num_heads, rows, columns) without ``average_attn_weights``, or None
    without ``need_weights``, which is faster. ``key_padding_mask`` (n, columns) and ``attn_mask``,
    (rows, columns) or (n num_heads, rows, columns), are True where nothing is seen, or numbers to
    add. ``is_causal`` says that ``attn_mask`` is the causal mask. ``dropout`` is the probability
    that a weight is zero in training; ``add_bias_kv`` adds a learned key and value, and
    ``add_zero_attn`` ones of zeros. Vaswani et al. (2017).

    Weights begin as ``init.xavier_uniform_`` makes them, biases as zeros.

    Raises: AssertionError if num_heads does not divide embed_dim, and in a call for shapes that do
    not fit.

    >>> import pullback
    >>> layer = pullback.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = pullback.ones(5, 3, 8)
    >>> out, weights = layer(x, x, x)
    >>> out.shape, weights[0, 0].detach()
    (pullback.Size([5, 3, 8]), tensor([0.3333, 0.3333, 0.3333]))
    """

    __constants__ = ("batch_first",)
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim,
        num_heads,
        dropout=0.0,
        bias=True,
        add_bias_kv=False,
        add_zero_attn=False,
        kdim=None,
        vdim=None,
        batch_first=False,
        device=None,
        dtype=None,
    ):
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and "
                f"num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def add(name, wanted, *shape):
            made = Parameter(pullback.empty(shape, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, made)

        separate = not self._qkv_same_embed_dim
        if separate:
            for name, size in zip("qkv", (embed_dim, self.kdim, self.vdim), strict=True):
                add(f"{name}_proj_weight", True, embed_dim, size)
            add("in_proj_weight", False)
        else:
            add("in_proj_weight", True, 3 * embed_dim, embed_dim)
            for name in "qkv":
                add(f"{name}_proj_weight", False)
        add("in_proj_bias", bias, 3 * embed_dim)
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
        if add_bias_kv:
            add("bias_k", True, 1, 1, embed_dim)
            add("bias_v", True, 1, 1, embed_dim)
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self):
        for name in ("in", "q", "k", "v"):
            weight = self._parameters[f"{name}_proj_weight"]
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def __setstate__(self, state):
        state.setdefault("_qkv_same_embed_dim", True)
        super().__setstate__(state)

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        swapped = self.batch_first and query.dim() == 3
        if swapped:
            # One tensor stays one: its projections are one product.
            one = query.transpose(1, 0)
            other = one if key is query else key.transpose(1, 0)
            value = other if value is key else value.transpose(1, 0)
            query, key = one, other
        out, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            self.training,
            key_padding_mask,
            need_weights,
            attn_mask,
            not self._qkv_same_embed_dim,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (out.transpose(1, 0) if swapped else out), weights

    def merge_masks(self, attn_mask, key_padding_mask, query):
        """Return one mask (n, num_heads, rows, columns) of both, and its kind.

        The kind is None without masks, 0 for ``attn_mask`` alone, which is returned as it is, 1
        for ``key_padding_mask`` alone, also as it is, and 2 for both.
        """
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, length, _ = query.shape
        if attn_mask.dim() == 3:
            merged = attn_mask.view(batch, -1, length, length)
        else:
            merged = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.view(batch, 1, 1, length)
        return merged, 2
