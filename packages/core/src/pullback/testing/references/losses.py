"""References of losses.

Each takes the NumPy module first, then the op's arguments with arrays for tensors.
"""

import itertools
import math


def reduced(np, loss, reduction):
    """Return the loss as it is, its mean or its sum."""
    return loss if reduction == "none" else getattr(np, reduction)(loss)


def _weighted(np, loss, weight, reduction):
    if weight is None:
        return reduced(np, loss, reduction)
    if reduction == "mean":
        return (loss * weight).sum() / weight.sum()
    return reduced(np, loss * weight, reduction)


def l1_loss(np, self, target, reduction="mean", weight=None):
    """The absolute difference."""
    return _weighted(np, np.abs(self - target), weight, reduction)


def mse_loss(np, self, target, reduction="mean", weight=None):
    """The squared difference."""
    return _weighted(np, (self - target) ** 2, weight, reduction)


def smooth_l1_loss(np, self, target, reduction="mean", beta=1.0):
    """Squared near 0, linear further out."""
    size = np.abs(self - target)
    near = 0.5 * size**2 / beta if beta else size
    return reduced(np, np.where(size < beta, near, size - 0.5 * beta), reduction)


def huber_loss(np, self, target, reduction="mean", delta=1.0, weight=None):
    """Squared near 0, linear further out, with another derivative there than smooth_l1_loss."""
    size = np.abs(self - target)
    loss = np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))
    return reduced(np, loss if weight is None else loss * weight, reduction)


def binary_cross_entropy(np, self, target, weight=None, reduction="mean"):
    """Logarithms are at least -100."""
    yes, no = np.maximum(np.log(self), -100), np.maximum(np.log1p(-self), -100)
    loss = -(target * yes + (1 - target) * no)
    return reduced(np, loss if weight is None else loss * weight, reduction)


def logits_loss(np, self, target, weight, pos_weight, reduction):
    """By logarithms of sums of exponentials."""
    positive = 1 if pos_weight is None else pos_weight
    loss = positive * target * np.logaddexp(0, -self) + (1 - target) * np.logaddexp(0, self)
    return reduced(np, loss if weight is None else loss * weight, reduction)


def with_logits(np, self, target, weight=None, reduction="mean", pos_weight=None):
    """The arguments in the order of nn.functional."""
    return logits_loss(np, self, target, weight, pos_weight, reduction)


def soft_margin_loss(np, self, target, reduction="mean"):
    """log(1 + exp(-target * self))."""
    return reduced(np, np.logaddexp(0, -target * self), reduction)


def kl_div(np, self, target, reduction="mean", log_target=False):
    """0 * log(0) is 0."""
    if log_target:
        loss = np.exp(target) * (target - self)
    else:
        loss = np.where(target == 0, 0, target * np.log(target)) - target * self
    if reduction == "batchmean":
        return loss.sum() / len(self)
    return reduced(np, loss, reduction)


def gaussian_nll_loss(np, self, target, var, full=False, eps=1e-6, reduction="mean"):
    """The variance may lack the last dim."""
    var = np.asarray(var)
    if var.ndim and var.ndim < self.ndim:
        var = var[..., None]
    var = np.maximum(var, eps)
    loss = 0.5 * (np.log(var) + (self - target) ** 2 / var)
    return reduced(np, loss + (0.5 * np.log(2 * np.pi) if full else 0), reduction)


def poisson_nll_loss(np, self, target, log_input=True, full=False, eps=1e-8, reduction="mean"):
    """Stirling's term only for targets above 1."""
    self, target = self * 1.0, target * 1.0
    loss = np.exp(self) - target * self if log_input else self - target * np.log(self + eps)
    if full:
        stirling = target * np.log(target) - target + 0.5 * np.log(2 * np.pi * target)
        loss = loss + np.where(target > 1, stirling, 0)
    return reduced(np, loss, reduction)


def cosine_embedding_loss(np, input1, input2, target, margin=0, reduction="mean"):
    """1 - cosine for equals, the cosine above a margin for others."""
    squares = [(x * x).sum(-1) + 1e-12 for x in (input1, input2)]
    cosine = (input1 * input2).sum(-1) / np.sqrt(squares[0] * squares[1])
    loss = np.where(
        target == 1, 1 - cosine, np.where(target == -1, np.maximum(cosine - margin, 0), 0)
    )
    return reduced(np, loss, reduction)


def margin_ranking_loss(np, input1, input2, target, margin=0, reduction="mean"):
    """By how much two scores miss their order."""
    return reduced(np, np.maximum(-target * (input1 - input2) + margin, 0), reduction)


def hinge_embedding_loss(np, self, target, margin=1.0, reduction="mean"):
    """The distance itself, or what it lacks of the margin; both if the target is neither."""
    loss = np.where(target != 1, np.maximum(margin - self, 0), 0) + np.where(target != -1, self, 0)
    return reduced(np, loss, reduction)


def triplet_margin_loss(
    np, anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, reduction="mean"
):
    """By how much the negative is not further away than the positive."""

    def distance(a, b):
        return (np.abs(a - b + eps) ** p).sum(-1) ** (1 / p)

    away = distance(anchor, negative)
    if swap:
        away = np.minimum(away, distance(positive, negative))
    return reduced(np, np.maximum(margin + distance(anchor, positive) - away, 0), reduction)


def multilabel_soft_margin_loss(np, self, target, weight=None, reduction="mean"):
    """The mean over the classes of binary cross entropies."""
    loss = target * np.logaddexp(0, -self) + (1 - target) * np.logaddexp(0, self)
    if weight is not None:
        loss = loss * weight
    return reduced(np, loss.mean(-1), reduction)


def multi_margin_loss(np, self, target, p=1, margin=1.0, weight=None, reduction="mean"):
    """Class by class."""
    scores, labels = np.atleast_2d(self), np.atleast_1d(target)
    loss = np.zeros(len(scores))
    for n, (row, label) in enumerate(zip(scores, labels)):
        gaps = np.maximum(margin - row[label] + row, 0) ** p
        gaps[label] = 0
        loss[n] = gaps.sum() / len(row) * (1 if weight is None else weight[label])
    return reduced(np, loss if self.ndim == 2 else loss.reshape(()), reduction)


def multilabel_margin_loss(np, self, target, reduction="mean"):
    """Pair by pair of a wanted and an unwanted class; the first -1 ends the wanted ones."""
    scores, labels = np.atleast_2d(self), np.atleast_2d(target)
    loss = np.zeros(len(scores))
    for n, (row, wanted) in enumerate(zip(scores, labels)):
        wanted = list(wanted)
        wanted = wanted[: wanted.index(-1)] if -1 in wanted else wanted
        for label in wanted:
            others = [j for j in range(len(row)) if j not in wanted]
            loss[n] += sum(max(0, 1 - row[label] + row[j]) for j in others) / len(row)
    return reduced(np, loss if self.ndim == 2 else loss.reshape(()), reduction)


def ctc_loss(
    np,
    log_probs,
    targets,
    input_lengths,
    target_lengths,
    blank=0,
    reduction="mean",
    zero_infinity=False,
):
    """By the probabilities of all paths that read as the target."""
    many = log_probs if log_probs.ndim == 3 else log_probs[:, None]
    steps, lengths = (np.ravel(given).astype(int) for given in (input_lengths, target_lengths))
    starts = np.cumsum(lengths) - lengths
    loss = np.zeros(len(lengths))
    for n, (count, length, start) in enumerate(zip(steps, lengths, starts)):
        wanted = targets[n] if targets.ndim == 2 else targets[start:]
        paths = itertools.product(range(many.shape[2]), repeat=count)
        total = sum(
            math.exp(sum(many[t, n, label] for t, label in enumerate(path)))
            for path in paths
            if _read(path, blank) == list(wanted[:length])
        )
        loss[n] = -math.log(total) if total else 0 if zero_infinity else math.inf
    if reduction == "mean":
        return (loss / np.maximum(lengths, 1)).mean()
    return loss.sum() if reduction == "sum" else loss if log_probs.ndim == 3 else loss[0]


def _read(path, blank):
    """Return the labels of a path: runs count once, blanks not at all."""
    return [label for label, _ in itertools.groupby(path) if label != blank]


def nll_loss(
    np,
    self,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
):
    """Go through the targets one by one."""
    dim = 1 if self.ndim > 1 else 0
    scores = np.moveaxis(self, dim, -1)
    weight = np.ones(scores.shape[-1]) if weight is None else weight
    loss, used = np.zeros(target.shape, self.dtype), np.zeros(target.shape, self.dtype)
    for position in np.ndindex(*target.shape):
        wanted = target[position]
        if wanted != ignore_index:
            used[position] = weight[wanted]
            loss[position] = -scores[position][wanted] * weight[wanted]
    if reduction == "mean":
        with np.errstate(invalid="ignore"):
            return loss.sum() / used.sum()
    return loss.sum() if reduction == "sum" else loss


def nll_loss_primitive(np, self, target, weight, spec):
    """Take the output spec apart."""
    _, _, (ignore_index, reduction) = spec
    return nll_loss(
        np,
        self,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=("none", "mean", "sum")[reduction],
    )


def cross_entropy(
    np, self, target, weight=None, reduction="mean", label_smoothing=0.0, ignore_index=-100
):
    """Turn targets into probabilities, as torch's page of CrossEntropyLoss defines it."""
    dim = 1 if self.ndim > 1 else 0
    logs = np.moveaxis(self, dim, -1)
    logs = logs - np.log(np.exp(logs).sum(-1, keepdims=True))
    classes = logs.shape[-1]
    weight = np.ones(classes) if weight is None else weight
    if target.dtype.kind == "f":
        wanted, kept = np.moveaxis(target, dim, -1), np.ones(logs.shape[:-1])
        total = kept.size
    else:
        kept = target != ignore_index
        safe = np.where(kept, target, 0)
        wanted = np.eye(classes)[safe]
        total = (weight[safe] * kept).sum()
    wanted = wanted * (1 - label_smoothing) + label_smoothing / classes
    loss = -(wanted * logs * weight).sum(-1) * kept
    return loss.sum() / total if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _linear(np, self, weight, bias):
    logits = np.tensordot(self, weight, ((-1,), (-1,)))
    return logits if bias is None else logits + bias


def linear_cross_entropy(np, self, linear_weight, target, linear_bias=None, **options):
    """The cross entropy of all logits at once."""
    return cross_entropy(np, _linear(np, self, linear_weight, linear_bias), target, **options)


def linear_cross_entropy_chunked(
    np, self, weight, bias, target, class_weight, rows, ignore_index, label_smoothing
):
    """The loss of each row, of all logits at once."""
    logits = _linear(np, self, weight, bias)
    return cross_entropy(np, logits, target, class_weight, "none", label_smoothing, ignore_index)
