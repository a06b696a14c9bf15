"""Embeddings: rows of a table, and sums of rows."""

from __future__ import annotations

import pullback
from pullback.nn import functional as F
from pullback.nn import init
from pullback.nn.modules.module import Module
from pullback.nn.parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """A weight (num_embeddings, embedding_dim), normal at first, with a row of zeros if asked."""

    def _make_weight(self, padding_idx, weight, frozen, device, dtype):
        rows, size = self.num_embeddings, self.embedding_dim
        if padding_idx is not None:
            if not -rows <= padding_idx < rows:
                raise AssertionError(
                    "Padding_idx must be within num_embeddings"
                    if isinstance(self, Embedding)
                    else "padding_idx must be within num_embeddings"
                )
            padding_idx %= rows
        self.padding_idx = padding_idx
        if weight is None:
            weight = pullback.empty((rows, size), device=device, dtype=dtype)
            self.weight = Parameter(weight, requires_grad=not frozen)
            self.reset_parameters()
        else:
            if list(weight.shape) != [rows, size]:
                raise AssertionError(
                    "Shape of weight does not match num_embeddings and embedding_dim"
                )
            self.weight = Parameter(weight, requires_grad=not frozen)

    def reset_parameters(self):
        """Draw the weight again."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with pullback.no_grad():
                self.weight[self.padding_idx].fill_(0)

    @classmethod
    def _of_weight(cls, weight, freeze, **options):
        if weight.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, size = weight.shape
        made = cls(rows, size, _weight=weight, **options)
        made.weight.requires_grad_(not freeze)
        return made


class Embedding(_Table):
    """Rows of a table by index: int64 or int32 inputs of any shape give (..., embedding_dim).

    ``weight`` is (num_embeddings, embedding_dim), drawn from the normal distribution. The row of
    ``padding_idx`` begins as zeros and gets no gradient. Rows longer than ``max_norm`` in the norm
    of ``norm_type`` are scaled to it when they are used. ``scale_grad_by_freq`` divides gradients
    by how often an index occurs in the batch.

    Raises: AssertionError for a padding_idx out of range.

    >>> import pullback
    >>> table = pullback.nn.Embedding(10, 3, padding_idx=0)
    >>> table(pullback.tensor([[0, 2], [4, 0]])).shape
    pullback.Size([2, 2, 3])
    """

    __constants__ = (
        *("num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type"),
        *("scale_grad_by_freq", "sparse"),
    )

    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        padding_idx=None,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        sparse=False,
        _weight=None,
        _freeze=False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        self._make_weight(padding_idx, _weight, _freeze, device, dtype)

    @classmethod
    def from_pretrained(
        cls,
        embeddings,
        freeze=True,
        padding_idx=None,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        sparse=False,
    ):
        """Return an embedding over a table (rows, size); ``freeze`` keeps it from training.

        Raises: AssertionError unless the table has two dims.

        >>> import pullback
        >>> table = pullback.nn.Embedding.from_pretrained(pullback.eye(3))
        >>> table(pullback.tensor(1))
        tensor([0., 1., 0.])
        """
        return cls._of_weight(
            embeddings,
            freeze,
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
        )

    def forward(self, input):
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self):
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        defaults = {
            "padding_idx": None,
            "max_norm": None,
            "norm_type": 2,
            "scale_grad_by_freq": False,
            "sparse": False,
        }
        for name, default in defaults.items():
            value = getattr(self, name)
            if value != default:
                parts.append(f"{name}={value}" if name != "sparse" else "sparse=True")
        return ", ".join(parts)


class EmbeddingBag(_Table):
    """Sums, means or maxima of rows of a table, a bag of indices at a time.

    Bags are the rows of an input (bags, length), or begin at ``offsets`` in an input (indices).
    ``mode`` is "sum", "mean" or "max"; "sum" takes ``per_sample_weights``. See Embedding.

    >>> import pullback
    >>> bag = pullback.nn.EmbeddingBag(10, 3, mode="sum")
    >>> bag(pullback.tensor([1, 2, 4]), pullback.tensor([0, 1])).shape
    pullback.Size([2, 3])
    """

    __constants__ = (
        *("num_embeddings", "embedding_dim", "max_norm", "norm_type", "scale_grad_by_freq"),
        *("mode", "sparse", "include_last_offset", "padding_idx"),
    )

    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        mode="mean",
        sparse=False,
        _weight=None,
        include_last_offset=False,
        padding_idx=None,
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self._make_weight(padding_idx, _weight, False, device, dtype)

    @classmethod
    def from_pretrained(
        cls,
        embeddings,
        freeze=True,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        mode="mean",
        sparse=False,
        include_last_offset=False,
        padding_idx=None,
    ):
        """Return a bag over a table (rows, size); ``freeze`` keeps it from training."""
        return cls._of_weight(
            embeddings,
            freeze,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            mode=mode,
            sparse=sparse,
            include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )

    def forward(self, input, offsets=None, per_sample_weights=None):
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self):
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq:
            parts.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        parts.append(f"mode={self.mode!r}")
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        return ", ".join(parts)
