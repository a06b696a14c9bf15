"""Losses over many classes: in clusters by frequency, and in chunks of rows."""

from __future__ import annotations

import dataclasses
import math
from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import pullback
from pullback.nn import functional as F
from pullback.nn.modules.container import ModuleList, Sequential
from pullback.nn.modules.linear import Linear
from pullback.nn.modules.module import Module
from pullback.ops.rules.operands import all_hold, any_holds

__all__ = ["AdaptiveLogSoftmaxWithLoss", "LinearCrossEntropyLoss", "LinearCrossEntropyOptions"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


def _are_cutoffs(cutoffs, n_classes):
    return (
        cutoffs == sorted(set(cutoffs))
        and all(int(cutoff) == cutoff for cutoff in cutoffs)
        and min(cutoffs) > 0
        and max(cutoffs) <= n_classes - 1
    )


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log probabilities of targets and their mean loss, over classes sorted by falling frequency.

    The first ``cutoffs[0]`` classes are in the head, which has further outputs for each cluster of
    rarer classes; cluster i maps to in_features / div_value ** (i + 1) numbers first. A call takes
    (n, in_features) and classes (n), or both without n, and returns (output, loss). E. Grave et al.
    (2017), "Efficient softmax approximation for GPUs".

    Raises: ValueError for cutoffs that are not increasing integers from 1 to n_classes - 1;
    RuntimeError in a call for targets outside of the classes, or shapes that do not fit.

    >>> import pullback
    >>> layer = pullback.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5, 10], div_value=2.0)
    >>> output, loss = layer(pullback.ones(3, 8), pullback.tensor([0, 7, 19]))
    >>> output.shape, bool((output.mean() + loss).abs() < 1e-6)
    (pullback.Size([3]), True)
    """

    def __init__(
        self,
        in_features,
        n_classes,
        cutoffs,
        div_value=4.0,
        head_bias=False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if not _are_cutoffs(cutoffs, n_classes):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                "order, where each value is between 1 and n_classes-1"
            )
        made = {"device": device, "dtype": dtype}
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs: Sequence[int] = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = cutoffs[0]
        self.n_clusters = len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, **made)
        self.tail = ModuleList()
        for number, (low, high) in enumerate(self._clusters()):
            size = int(in_features // div_value ** (number + 1))
            self.tail.append(
                Sequential(
                    Linear(in_features, size, bias=False, **made),
                    Linear(size, high - low, bias=False, **made),
                )
            )

    def _clusters(self):
        """Return the first class of each cluster, and the one behind its last."""
        return list(zip(self.cutoffs, self.cutoffs[1:], strict=False))

    def reset_parameters(self):
        """Draw all weights again."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_, target_):
        batched = target_.dim() > 0
        _check_call(input_, target_)
        input, target = (
            (input_, target_) if batched else (input_.unsqueeze(0), target_.unsqueeze(0))
        )
        if target.numel() and not all_hold((target >= 0) & (target < self.n_classes), RuntimeError):
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )
        head = F.log_softmax(self.head(input), dim=1)
        # Of a class in a cluster, the head has the logarithm of the cluster's probability.
        column = target
        output = input.new_zeros(len(target))
        for number, (low, high) in enumerate(self._clusters()):
            inside = (target >= low) & (target < high)
            rows = inside.nonzero().squeeze(1)
            column = column.masked_fill(inside, self.shortlist_size + number)
            if rows.numel():
                logs = F.log_softmax(self.tail[number](input.index_select(0, rows)), dim=1)
                chosen = (target.index_select(0, rows) - low).unsqueeze(1)
                output = output.index_add(0, rows, logs.gather(1, chosen).squeeze(1))
        output = output + head.gather(1, column.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def _get_full_log_prob(self, input, head_output):
        logs = F.log_softmax(head_output, dim=1)
        parts = [logs[:, : self.shortlist_size]]
        for number, cluster in enumerate(self.tail):
            of_cluster = logs[:, self.shortlist_size + number, None]
            parts.append(F.log_softmax(cluster(input), dim=1) + of_cluster)
        return pullback.cat(parts, dim=1)

    def log_prob(self, input):
        """Return the log probabilities of all classes, (n, n_classes) for (n, in_features).

        >>> import pullback
        >>> layer = pullback.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5, 10], div_value=2.0)
        >>> layer.log_prob(pullback.ones(3, 8)).exp().sum(1).detach()
        tensor([1., 1., 1.])
        """
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input):
        """Return the most probable class of each row: ``log_prob(input).argmax(1)``, but faster.

        Clusters are looked at for rows whose most probable output of the head is a cluster.
        """
        head_output = self.head(input)
        output = head_output.argmax(dim=1)
        in_cluster = output >= self.shortlist_size
        if not any_holds(in_cluster):
            return output
        rows = in_cluster.nonzero().squeeze(1)
        logs = self._get_full_log_prob(
            input.index_select(0, rows), head_output.index_select(0, rows)
        )
        return output.index_copy(0, rows, logs.argmax(dim=1))


def _check_call(input, target):
    if target.dim() == 1:
        if input.shape[0] != target.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if input.dim() != 2:
            raise RuntimeError(
                f"1D target tensor expects 2D input tensors, but found inputs with size "
                f"{input.size()!r}"
            )
    elif target.dim() == 0:
        if input.dim() != 1:
            raise RuntimeError(
                f"0D target tensor expects 1D input tensors, but found inputs with size "
                f"{input.size()!r}"
            )
    else:
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")


# ---- a linear map and its cross entropy ----------------------------------------------------------

_ACC_POLICIES = ("accurate", "balanced", "compact", "auto")


def _is_method(method):
    if method is None or method == "auto":
        return True
    kind, _, ratio = str(method).partition(":")
    return kind == "aspect_ratio" and ratio.isdecimal() and int(ratio) > 0


@dataclasses.dataclass(frozen=True, slots=True)
class LinearCrossEntropyOptions:
    """How ``nn.functional.linear_cross_entropy`` computes logits for some rows at a time.

    A chunk has ``batch_chunk_size`` rows. Without one ``chunking_method`` decides: "aspect_ratio:r"
    takes in_features / r rows and at least 64, "auto" is "aspect_ratio:2", and None takes all rows.
    ``acc_policy`` and ``acc_dtype`` are accepted: gradients of 16-bit weights add up in float32,
    others in their own dtype. So is ``allow_retain_graph``: a graph that is kept may run again, and
    has derivatives of its own.

    Raises: ValueError for values that are none of these.

    >>> import pullback
    >>> pullback.nn.LinearCrossEntropyOptions(batch_chunk_size=128).batch_chunk_size
    128
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None

    def __post_init__(self):
        size = self.batch_chunk_size
        if size is not None and (not isinstance(size, int) or size <= 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size}")
        if not _is_method(self.chunking_method):
            raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        if self.acc_policy not in _ACC_POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        dtypes = (None, pullback.float16, pullback.bfloat16, pullback.float32, pullback.float64)
        if not any(self.acc_dtype is dtype for dtype in dtypes):
            names = ", ".join(map(str, dtypes))
            raise ValueError(
                f"acc_dtype must be one of {{{names}}}, got {self.acc_dtype!r}. Pass "
                "acc_dtype=None to let the op pick automatically."
            )


class LinearCrossEntropyLoss(Module):
    """The cross entropy of a linear map of inputs (n, in_features) to ``num_classes`` logits.

    ``target`` has classes (n) as int64, or probabilities (n, num_classes). With ``out_features``
    there are as many losses for each row: targets are ``(n, *out_features)``. With ``options``
    logits are computed for some rows at a time, and take the memory of these.

    Raises: RuntimeError for a label_smoothing outside of [0, 1], or a ``weight`` of another shape
    than (num_classes,).

    >>> import pullback
    >>> from pullback import nn
    >>> loss = nn.LinearCrossEntropyLoss(8, 1000, options=nn.LinearCrossEntropyOptions())
    >>> loss(pullback.ones(5, 8), pullback.tensor([0, 7, 1, 999, 3])).shape
    pullback.Size([])
    """

    __constants__ = (
        *("num_classes", "out_features", "reduction", "ignore_index"),
        "label_smoothing",
    )

    def __init__(
        self,
        in_features,
        num_classes,
        *,
        out_features=(),
        bias=False,
        device=None,
        dtype=None,
        reduction="mean",
        weight=None,
        ignore_index=None,
        label_smoothing=0.0,
        options=None,
    ):
        super().__init__()
        out_features = tuple(out_features)
        if not 0.0 <= label_smoothing <= 1.0:
            raise RuntimeError(
                f"expected label_smoothing to be in range [0, 1], got {label_smoothing}"
            )
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(
                f"expected weight shape to be ({num_classes},), got {tuple(weight.shape)}"
            )
        self.register_buffer("weight", weight)
        self.reduction = reduction
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.options = options
        self.linear = Linear(
            in_features, num_classes * math.prod(out_features), bias, device, dtype
        )

    def forward(self, input, target):
        weight, bias = self.linear.weight, self.linear.bias
        if self.out_features:
            shape = (self.num_classes, *self.out_features)
            weight = weight.reshape((*shape, weight.shape[-1]))
            bias = None if bias is None else bias.reshape(shape)
        return F.linear_cross_entropy(
            input,
            weight,
            target,
            linear_bias=bias,
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self):
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
