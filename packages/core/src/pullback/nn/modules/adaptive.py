"""Softmax over many classes in clusters by frequency."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence

import pullback
from pullback.nn import functional as F
from pullback.nn.modules.container import ModuleList, Sequential
from pullback.nn.modules.linear import Linear
from pullback.nn.modules.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

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
        if target.numel() and not bool(((target >= 0) & (target < self.n_classes)).all()):
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
        if not bool(in_cluster.any()):
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
