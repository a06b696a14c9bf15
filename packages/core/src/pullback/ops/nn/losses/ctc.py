"""Connectionist temporal classification: the loss of unaligned sequences of labels.

Source: Graves et al., "Connectionist Temporal Classification: Labelling Unsegmented Sequence Data
with Recurrent Neural Networks", 2006, section 4. The states of a sample are its labels with a blank
before, between and behind them; `forward` variables count the ways to a state, `backward` ones
those from it, both in logarithms and with the state's own probability.
"""

import math

from pullback.ops.nn.losses.util import checked_reduction, numbered_reduction
from pullback.ops.rules.dtypes import cast_to, dtype_named, unsupported
from pullback.ops.rules.elementwise_util import is_tensor, no_derivative
from pullback.ops.table.primitives_api import new_filled
from pullback.ops.table.samples import COUNTED, T, case, fixed, references_of
from pullback.ops.table.schema import FLOATING, HALF, op, ops

references = references_of("losses")

_NONE = -math.inf  # the logarithm of no way at all


# -- states and steps ------------------------------------------------------------------------------


def _labels(targets, target_lengths, blank):
    """Return the labels of each sample, filled up with blanks."""
    if targets.ndim == 1:
        positions = ops.arange_like(target_lengths, int(ops.amax(target_lengths).item()))
        starts = ops.cumsum(target_lengths, 0) - target_lengths
        where = ops.clamp(starts.unsqueeze(1) + positions, max=max(targets.shape[0] - 1, 0))
        found = ops.index_select(targets, 0, where.reshape(-1)).reshape(where.shape)
    else:
        found, positions = targets, ops.arange_like(target_lengths, targets.shape[1])
    return ops.where(positions < target_lengths.unsqueeze(1), found, blank)


def _states(log_probs, targets, target_lengths, blank):
    """Return the label of each state, where the blank before it may be left out, and log_probs."""
    labels = _labels(targets, target_lengths, blank)
    batch, longest = labels.shape
    states = new_filled(labels, (batch, 2 * longest + 1), blank)
    ops.copy_(ops.slice(states, 1, 1, None, 2), labels)
    before = ops.cat([states.narrow(1, 0, 1)] * 2 + [states], 1).narrow(1, 0, states.shape[1])
    along = states.expand((log_probs.shape[0], *states.shape))
    try:
        return along, states != before, ops.gather(log_probs, 2, along)
    except (IndexError, RuntimeError):
        raise RuntimeError(
            f"ctc_loss: Expected targets to be in [0, {log_probs.shape[2]})"
        ) from None


def _step(ways, may_skip, log_probs, onwards):
    """Move the ways to each state on by a time step: from itself and the two before (behind) it."""
    count = ways.shape[1]
    edge = new_filled(ways, (ways.shape[0], 2), _NONE)
    wide = ops.cat([edge, ways] if onwards else [ways, edge], 1)
    far = ops.where(may_skip, wide.narrow(1, 0 if onwards else 2, count), _NONE)
    return ops.logsumexp(ops.stack([ways, wide.narrow(1, 1, count), far]), 0) + log_probs


def _at_end(states, target_lengths):
    """Return which states end a sample: its last label and the blank behind it."""
    positions = ops.arange_like(states, states.shape[-1])
    last = 2 * target_lengths.unsqueeze(1)
    return (positions == last) | (positions == last - 1)


# -- the primitive ---------------------------------------------------------------------------------


def _check(log_probs, targets, input_lengths, target_lengths, blank):
    steps, batch, classes = log_probs.shape
    if not log_probs.numel():
        raise RuntimeError("log_probs tensor must not be empty")
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    for name, lengths in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if tuple(lengths.shape) != (batch,):
            raise RuntimeError(f"{name} must be of size batch_size")
        least = int(ops.amin(lengths).item())
        if least < 0:
            raise RuntimeError(
                f"Expected {name} to have value at least 0, but got value {least} "
                f"(while checking arguments for ctc_loss)"
            )
    longest = int(ops.amax(input_lengths).item())
    if longest > steps:
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, but got value "
            f"{longest} (while checking arguments for ctc_loss)"
        )
    _check_targets(targets, batch, target_lengths)


def _check_targets(targets, batch, target_lengths):
    longest, total = (int(f(target_lengths).item()) for f in (ops.amax, ops.sum))
    if targets.ndim == 1:
        wrong = targets.shape[0] != total and (f"size {total}", 0)
    elif targets.ndim != 2:
        raise RuntimeError(
            f"Expected 1 to 2 dimensions, but got {targets.ndim}-dimensional tensor "
            f"for argument #2 'targets' (while checking arguments for ctc_loss)"
        )
    elif targets.shape[0] != batch:
        wrong = f"size {batch}", 0
    else:
        wrong = targets.shape[1] < longest and (f"size at least {longest}", 1)
    if wrong:
        raise RuntimeError(
            f"Expected tensor to have {wrong[0]} at dimension {wrong[1]}, but got "
            f"size {targets.shape[wrong[1]]} for argument #2 'targets' (while "
            f"checking arguments for ctc_loss)"
        )


def _forward(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
    _check(log_probs, targets, input_lengths, target_lengths, blank)
    if log_probs.dtype.name not in ("float32", "float64"):
        raise unsupported("ctc_loss_cpu", log_probs.dtype)
    states, may_skip, log_probs = _states(log_probs, targets, target_lengths, blank)
    start = ops.arange_like(states, states.shape[-1]) < 2
    ways = [ops.where(start, log_probs[0], _NONE)]
    for step in range(1, log_probs.shape[0]):
        ways.append(_step(ways[-1], may_skip, log_probs[step], True))
    ways = ops.stack(ways)
    last = ops.clamp(input_lengths - 1, min=0).reshape((1, -1, 1)).expand((1, *ways.shape[1:]))
    ends = ops.where(_at_end(states, target_lengths), ops.gather(ways, 0, last)[0], _NONE)
    loss = -ops.logsumexp(ends, 1)
    none = ops.where(target_lengths == 0, 0.0, math.inf)
    return ops.where(input_lengths == 0, none, loss), ways


def _ctc_backward(
    log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, loss, ways
):
    """The derivative by what log_softmax made log_probs from: expected minus seen probabilities."""
    states, may_skip, chosen = _states(log_probs, targets, target_lengths, blank)
    may_skip = ops.cat([may_skip, new_filled(may_skip, (may_skip.shape[0], 2))], 1).narrow(
        1, 2, may_skip.shape[1]
    )
    ends = _at_end(states, target_lengths)
    last = (input_lengths - 1).unsqueeze(1)
    onwards = new_filled(chosen, chosen.shape[1:], _NONE)
    found = []
    for step in range(log_probs.shape[0] - 1, -1, -1):
        onwards = ops.where(
            last == step,
            ops.where(ends, chosen[step], _NONE),
            _step(onwards, may_skip, chosen[step], False),
        )
        found.append(onwards)
    both = ways + ops.stack(found[::-1])
    seen = ops.where(both == _NONE, 0, ops.exp(both - chosen + loss.unsqueeze(1)))
    seen = ops.scatter_add(ops.zeros_like(log_probs), 2, states, seen)
    hopeless = (loss == math.inf).unsqueeze(1)
    derivative = ops.where(hopeless, 0 if zero_infinity else math.nan, ops.exp(log_probs) - seen)
    steps = ops.arange_like(states, log_probs.shape[0]).reshape((-1, 1, 1))
    return ops.where(steps < input_lengths.unsqueeze(1), derivative, 0)


def _vjp(gs, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, out0, out1):
    if gs[0] is None:
        return None
    return gs[0].unsqueeze(1) * ops._ctc_loss_backward(
        log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, out0, out1
    )


_ARGUMENTS = (
    "log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, "
    "blank: int, zero_infinity: bool"
)
_LOGITS = dict.fromkeys(
    ("grad", "gradgrad", "compiled"),
    "its derivative is that by what log_softmax made log_probs from",
)
_CASE = {"skip": COUNTED | _LOGITS, "only": FLOATING & ~HALF}


def _whole(*values, shape=None):
    return fixed(values, shape=shape, kind="int64")


_LENGTHS = _whole(6, 5), _whole(3, 2)
_LABELS = _whole(1, 2, 2, 3, 1, 0, shape=(2, 3))
op(
    f"_ctc_loss({_ARGUMENTS}) -> Tensor[]",
    forward=_forward,
    node="CtcLossBackward0",
    vjp={"log_probs": _vjp},
    method=False,
    function=False,
    dtypes=FLOATING & ~HALF,
    doc="Return the loss of each sample, and the logarithm of the ways to each state.",
    samples="the ways are half of a sum; the tests of ctc_loss cover it",
)
op(
    f"_ctc_loss_backward({_ARGUMENTS}, loss: Tensor, ways: Tensor) -> Tensor",
    forward=_ctc_backward,
    vjp={"log_probs": no_derivative("ctc_loss_backward", "log_probs")},
    node="NotImplemented",
    method=False,
    function=False,
    dtypes=FLOATING & ~HALF,
    doc="Return the derivative of _ctc_loss by what log_softmax made log_probs from.",
    samples="it takes results of _ctc_loss; the tests of ctc_loss cover it",
)


# -- the function ----------------------------------------------------------------------------------


def _checked_lengths(name, lengths, like):
    """Return lengths as a vector of integers."""
    if not is_tensor(lengths):
        return ops.new_tensor(like, lengths, dtype=dtype_named("int64"))
    if lengths.dtype.kind not in "iu":
        raise RuntimeError(f"{name} must be integral")
    return cast_to(lengths.reshape(-1), dtype_named("int64")).to(like.device)


def _ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity):
    lengths = input_lengths, target_lengths
    numbers = [
        isinstance(given, (tuple, list)) and all(hasattr(n, "__index__") for n in given)
        for given in lengths
    ]
    if not (all(numbers) or all(map(is_tensor, lengths))):
        raise TypeError(
            f"ctc_loss(): input_lengths and target_lengths must both be Tensors or "
            f"both be tuples of ints, not {type(input_lengths).__name__} and "
            f"{type(target_lengths).__name__}"
        )
    input_lengths, target_lengths = (
        _checked_lengths(name, given, log_probs)
        for name, given in zip(("input_lengths", "target_lengths"), lengths)
    )
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
    if log_probs.ndim != 3:
        raise RuntimeError(
            f"Expected 3-dimensional tensor, but got {log_probs.ndim}-dimensional "
            f"tensor for argument #1 'log_probs' (while checking arguments for "
            f"ctc_loss)"
        )
    targets = cast_to(targets.detach(), dtype_named("int64"))
    loss, _ = ops._ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    if zero_infinity:
        loss = ops.where(loss == math.inf, 0, loss)
    if reduction == "mean":
        return (loss / cast_to(ops.clamp(target_lengths, min=1), loss.dtype)).mean()
    return loss.sum() if reduction == "sum" else loss.squeeze(0) if single else loss


_TYPES = (
    "log_probs: Tensor, targets: Tensor, input_lengths: any, target_lengths: any, blank: int = 0"
)
_DOC = (
    "Return -log of the probability of each target sequence, however it is aligned, divided by "
    "its length and averaged, or summed, or as it is.\n\n"
    "Shape: log_probs (T, N, C) or (T, C), made by log_softmax; targets (N, S) or one after "
    "the other (sum of target_lengths); lengths (N), as tensors or tuples of ints.\n\n"
    "`blank` is the class of no label. A target that is longer than its input allows has an "
    "infinite loss; with `zero_infinity` 0 and no gradient.\n\n"
    "Derivative: that by what log_softmax made log_probs from; there is no second one.\n\n"
    "Raises: RuntimeError for lengths that do not fit."
)
_SAMPLES = [
    case(T(6, 2, 4), _LABELS, *_LENGTHS, **_CASE),
    case(T(6, 2, 4), _LABELS, (6, 5), (3, 2), reduction="none", **_CASE),
    case(T(6, 2, 4), _whole(1, 2, 2, 3, 1), [6, 5], [3, 2], reduction="sum", **_CASE),
    case(T(6, 4), _whole(1, 2), _whole(6, shape=()), _whole(2, shape=()), blank=3, **_CASE),
    case(T(5, 4), _whole(1, 2), (5,), (2,), reduction="none", **_CASE),
    case(T(3, 2, 4), _LABELS, (3, 3), (3, 2), 0, "none", True, **_CASE),
    case(T(3, 2, 4), _LABELS, (3, 0), (0, 2), reduction="none", **_CASE),
]


def _functional(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity):
    return _ctc_loss(
        log_probs,
        targets,
        input_lengths,
        target_lengths,
        blank,
        checked_reduction(None, None, reduction),
        zero_infinity,
    )


op(
    f"ctc_loss({_TYPES}, reduction: str = 'mean', zero_infinity: bool = False) -> Tensor",
    autocast=("float32", None),
    composite=_functional,
    method=False,
    namespace="functional",
    dtypes=FLOATING & ~HALF,
    doc=_DOC,
    ref=references.ctc_loss,
    samples=_SAMPLES,
)
op(
    f"ctc_loss.top({_TYPES}, reduction: int = 0, zero_infinity: bool = False) -> Tensor",
    autocast=("float32", None),
    method=False,
    function="ctc_loss",
    dtypes=FLOATING & ~HALF,
    composite=lambda log_probs, targets, inputs, lengths, blank, reduction, zero_infinity: (
        _ctc_loss(
            log_probs,
            targets,
            inputs,
            lengths,
            blank,
            numbered_reduction("ctc_loss", reduction),
            zero_infinity,
        )
    ),
    doc="Return what the function of nn.functional does; the reduction is 0 (none), 1 (mean) or 2 "
    "(sum).",
    samples=lambda: [case(T(6, 2, 4), _LABELS, *_LENGTHS, 0, n, **_CASE) for n in (0, 1, 2)],
    ref=lambda np, log_probs, targets, inputs, lengths, blank, reduction: references.ctc_loss(
        np, log_probs, targets, inputs, lengths, blank, ("none", "mean", "sum")[reduction]
    ),
)
