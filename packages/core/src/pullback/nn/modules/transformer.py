"""Encoders and decoders of attention layers: Vaswani et al., "Attention is all you need", 2017.

Sequences are (length, n, d_model), or (n, length, d_model) with ``batch_first``, or without n. A
mask is True where nothing is seen, or numbers to add: ``..._mask`` (rows, columns) or
(n heads, rows, columns), ``..._key_padding_mask`` (n, columns). ``..._is_causal`` says that the
mask is the causal one.
"""

from __future__ import annotations

import copy
import math

import pullback
from pullback.nn import functional as F
from pullback.nn import init
from pullback.nn._attention import added_mask
from pullback.nn.modules.attention import MultiheadAttention
from pullback.nn.modules.container import ModuleList
from pullback.nn.modules.dropout import Dropout
from pullback.nn.modules.linear import Linear
from pullback.nn.modules.module import Module
from pullback.nn.modules.normalization import LayerNorm
from pullback.ops.rules.operands import all_hold

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]


def _activation(given):
    if not isinstance(given, str):
        return given
    if given not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {given}")
    return getattr(F, given)


def _copies(module, count):
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


def _causal_mask(size, device=None, dtype=None):
    return pullback.triu(pullback.full((size, size), -math.inf, dtype=dtype, device=device), 1)


def _is_causal(mask, given, size):
    """Return whether a mask is the causal one: what was given, or found by comparing."""
    if given is not None or mask is None:
        return bool(given)
    if tuple(mask.shape[-2:]) != (size, size):
        return False
    return all_hold(mask == _causal_mask(size, mask.device, mask.dtype))


def _steps(src, batch_first):
    return src.shape[1 if batch_first and src.dim() == 3 else 0]


class _Layer(Module):
    """What layers of encoders and decoders share: attention to itself, and two linear maps."""

    __constants__ = ("norm_first",)

    def __init__(
        self,
        norms,
        d_model,
        nhead,
        dim_feedforward,
        dropout,
        activation,
        layer_norm_eps,
        batch_first,
        norm_first,
        bias,
        device,
        dtype,
    ):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        for name in ("self_attn", "multihead_attn")[: norms - 1]:
            attention = MultiheadAttention(
                d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **made
            )
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **made)
        self.norm_first = norm_first
        for number in range(1, norms + 1):
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)
            setattr(self, f"norm{number}", norm)
        for number in range(1, norms + 1):
            setattr(self, f"dropout{number}", Dropout(dropout))
        self.activation = _activation(activation)

    def __setstate__(self, state):
        state.setdefault("activation", F.relu)
        super().__setstate__(state)

    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        x, _ = self.self_attn(
            x,
            x,
            x,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            need_weights=False,
        )
        return self.dropout1(x)

    def _feed_forward(self, x):
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Attention to the sequence itself, then two linear maps with an activation between them.

    Each is added to its input and normalized by LayerNorm: after the sum, or before with
    ``norm_first``. ``activation`` is "relu", "gelu" or a function of a tensor.

    >>> import pullback
    >>> layer = pullback.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> layer(pullback.ones(5, 3, 8)).shape
    pullback.Size([5, 3, 8])
    """

    def __init__(
        self,
        d_model,
        nhead,
        dim_feedforward=2048,
        dropout=0.1,
        activation=F.relu,
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__(
            *(2, d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps),
            *(batch_first, norm_first, bias, device, dtype),
        )

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        padding = added_mask(
            src_key_padding_mask, "src_key_padding_mask", src_mask, "src_mask", src.dtype
        )
        mask = added_mask(src_mask, "src_mask", None, "", src.dtype)
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), mask, padding, is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, mask, padding, is_causal))
        return self.norm2(x + self._ff_block(x))

    def _ff_block(self, x):
        return self.dropout2(self._feed_forward(x))


class TransformerDecoderLayer(_Layer):
    """An encoder layer that, after the attention to its own sequence, attends to ``memory``.

    >>> import pullback
    >>> layer = pullback.nn.TransformerDecoderLayer(8, nhead=2, batch_first=True)
    >>> layer(pullback.ones(5, 3, 8), pullback.ones(5, 7, 8)).shape
    pullback.Size([5, 3, 8])
    """

    def __init__(
        self,
        d_model,
        nhead,
        dim_feedforward=2048,
        dropout=0.1,
        activation=F.relu,
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__(
            *(3, d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps),
            *(batch_first, norm_first, bias, device, dtype),
        )

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=False,
        memory_is_causal=False,
    ):
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, *other))
        return self.norm3(x + self._ff_block(x))

    def _mha_block(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
        x, _ = self.multihead_attn(
            x,
            mem,
            mem,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            need_weights=False,
        )
        return self.dropout2(x)

    def _ff_block(self, x):
        return self.dropout3(self._feed_forward(x))


class TransformerEncoder(Module):
    """``num_layers`` copies of an encoder layer, one after another, then ``norm`` if there is one.

    As in torch, elements that ``src_key_padding_mask`` hides at the ends of sequences are zeros
    behind the last layer, where nothing requires grad, in evaluation, without ``mask``, if layers
    are ``batch_first`` with relu or gelu, an even number of heads, and norms behind the sums.
    ``enable_nested_tensor=False`` keeps what the layers make of them, ``mask_check=False`` does not
    look where they are.

    >>> import pullback
    >>> layer = pullback.nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
    >>> encoder = pullback.nn.TransformerEncoder(layer, num_layers=2)
    >>> encoder(pullback.ones(5, 3, 8)).shape
    pullback.Size([5, 3, 8])
    """

    __constants__ = ("norm",)

    def __init__(
        self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True
    ):
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check
        self.use_nested_tensor = enable_nested_tensor and _can_leave_padding_out(encoder_layer)

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        padding = added_mask(src_key_padding_mask, "src_key_padding_mask", mask, "mask", src.dtype)
        mask = added_mask(mask, "mask", None, "", src.dtype)
        batch_first = self.layers[0].self_attn.batch_first if len(self.layers) else False
        causal = _is_causal(mask, is_causal, _steps(src, batch_first))
        out = src
        for layer in self.layers:
            out = layer(out, src_mask=mask, is_causal=causal, src_key_padding_mask=padding)
        if padding is not None and mask is None and self._leaves_padding_out(src, padding):
            out = out.masked_fill((padding == -math.inf).unsqueeze(-1), 0.0)
        return out if self.norm is None else self.norm(out)

    def _leaves_padding_out(self, src, padding):
        if self.training or not self.use_nested_tensor or src.dim() != 3:
            return False
        if pullback.is_grad_enabled() and (
            src.requires_grad or any(p.requires_grad for p in self.layers.parameters())
        ):
            return False
        hidden = padding == -math.inf
        # Hidden elements come last: none is followed by one that is seen.
        return not self.mask_check or all_hold(hidden[:, 1:] >= hidden[:, :-1])


def _can_leave_padding_out(layer):
    if not isinstance(layer, TransformerEncoderLayer) or layer.norm_first:
        return False
    attention = layer.self_attn
    return (
        attention.batch_first
        and attention._qkv_same_embed_dim
        and attention.in_proj_bias is not None
        and attention.num_heads % 2 == 0
        and layer.norm1.eps == layer.norm2.eps
        and (
            layer.activation in (F.relu, F.gelu)
            or type(layer.activation) in (pullback.nn.ReLU, pullback.nn.GELU)
        )
    )


class TransformerDecoder(Module):
    """``num_layers`` copies of a decoder layer, one after another, then ``norm`` if there is one.

    >>> import pullback
    >>> layer = pullback.nn.TransformerDecoderLayer(8, nhead=2, batch_first=True)
    >>> decoder = pullback.nn.TransformerDecoder(layer, num_layers=2)
    >>> decoder(pullback.ones(5, 3, 8), pullback.ones(5, 7, 8)).shape
    pullback.Size([5, 3, 8])
    """

    __constants__ = ("norm",)

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=None,
        memory_is_causal=False,
    ):
        batch_first = self.layers[0].self_attn.batch_first if len(self.layers) else False
        causal = _is_causal(tgt_mask, tgt_is_causal, _steps(tgt, batch_first))
        out = tgt
        for layer in self.layers:
            out = layer(
                out,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return out if self.norm is None else self.norm(out)


class Transformer(Module):
    """An encoder of ``src`` and a decoder of ``tgt`` that attends to what the encoder returns.

    ``custom_encoder`` and ``custom_decoder`` are modules to use instead. Weights begin as
    ``init.xavier_uniform_`` makes them.

    Raises: RuntimeError in a call if batch sizes differ, or the last sizes are not ``d_model``.

    >>> import pullback
    >>> model = pullback.nn.Transformer(8, 2, num_encoder_layers=1, num_decoder_layers=1)
    >>> model(pullback.ones(7, 5, 8), pullback.ones(3, 5, 8)).shape
    pullback.Size([3, 5, 8])
    """

    def __init__(
        self,
        d_model=512,
        nhead=8,
        num_encoder_layers=6,
        num_decoder_layers=6,
        dim_feedforward=2048,
        dropout=0.1,
        activation=F.relu,
        custom_encoder=None,
        custom_decoder=None,
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        of_layers = (
            *(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps),
            *(batch_first, norm_first, bias),
        )

        def norm():
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)

        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            layer = TransformerEncoderLayer(*of_layers, **made)
            self.encoder = TransformerEncoder(layer, num_encoder_layers, norm())
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            layer = TransformerDecoderLayer(*of_layers, **made)
            self.decoder = TransformerDecoder(layer, num_decoder_layers, norm())
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def _reset_parameters(self):
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src,
        tgt,
        src_mask=None,
        tgt_mask=None,
        memory_mask=None,
        src_key_padding_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        src_is_causal=None,
        tgt_is_causal=None,
        memory_is_causal=False,
    ):
        batch = 0 if self.batch_first else 1
        if src.dim() == 3 and src.size(batch) != tgt.size(batch):
            raise RuntimeError("the batch number of src and tgt must be equal")
        if not src.size(-1) == tgt.size(-1) == self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz, device=None, dtype=None):
        """Return the causal mask (sz, sz): zeros, and minus infinity above the diagonal.

        >>> import pullback
        >>> pullback.nn.Transformer.generate_square_subsequent_mask(2)
        tensor([[0., -inf],
                [0., 0.]])
        """
        return _causal_mask(sz, device, dtype)
