"""Samples of the binomial distribution."""

from pullback.ops.creation.create import factories
from pullback.ops.creation.random import draw_uniform
from pullback.ops.rules.dtypes import cast_to, dtype_named, type_name, unsupported, widest
from pullback.ops.rules.elementwise_util import UNDERIVED, no_derivative
from pullback.ops.rules.operands import is_meta
from pullback.ops.rules.shapes import broadcast_shape
from pullback.ops.table.primitives_api import new_empty
from pullback.ops.table.samples import T, case, fixed
from pullback.ops.table.schema import FLOATING, HALF, op, ops


def _uniform(like, generator):
    return draw_uniform(new_empty(like, like.shape), generator)


def _any(condition):
    return bool(ops.any(condition).item())


def _by_inversion(count, p, generator):
    """Walk up the distribution function until it passes a uniform number; for few successes."""
    u = _uniform(p, generator)
    found, mass = ops.zeros_like(p), ops.pow(1 - p, count)
    reached, odds = mass, p / (1 - p)
    for k in range(1, 110):  # with less than 10 successes expected nothing is beyond
        beyond = u >= reached
        if not _any(beyond):
            break
        found = found + beyond
        mass = mass * odds * (count - (k - 1)) / k
        reached = reached + ops.clamp(mass, min=0)
    return ops.minimum(found, count)


def _by_rejection(count, p, generator):
    """Draw until every element has been accepted; for 10 expected successes and more.

    Source: Hoermann, "The generation of binomial random variates", Journal of Statistical
    Computation and Simulation 46, 1993, algorithm BTRS.
    """
    spread = ops.sqrt(count * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    quick = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * spread
    mode = ops.floor((count + 1) * p)
    log_odds = ops.log(p / (1 - p))
    height = ops.lgamma(mode + 1) + ops.lgamma(count - mode + 1)
    found, missing = ops.zeros_like(p), ops.ones_like(p, dtype=dtype_named("bool"))
    while _any(missing):
        u = _uniform(p, generator) - 0.5
        v = _uniform(p, generator)
        us = 0.5 - ops.abs(u)
        k = ops.floor((2 * a / us + b) * u + count * p + 0.5)
        possible = (k >= 0) & (k <= count)
        inside = ops.where(possible, k, 0)
        bound = height - ops.lgamma(inside + 1) - ops.lgamma(count - inside + 1)
        exact = ops.log(v * alpha / (a / (us * us) + b)) <= bound + (inside - mode) * log_odds
        accepted = missing & possible & (((us >= 0.07) & (v <= quick)) | exact)
        found = ops.where(accepted, k, found)
        missing = missing & ~accepted
    return found


def _binomial(count, prob, generator):
    if count.dtype.kind != "f":
        raise ValueError(
            f"binomial only supports floating-point dtypes for count, got: {type_name(count.dtype)}"
        )
    if prob.dtype != count.dtype:
        raise RuntimeError(
            f"Found dtype {type_name(prob.dtype)} but expected {type_name(count.dtype)}"
        )
    if count.dtype.itemsize == 2:
        raise unsupported("binomial_cpu", count.dtype)
    out = new_empty(count, broadcast_shape(count.shape, prob.shape))
    if is_meta(out) or not out.numel():
        return out
    wide = widest(count.device)
    count, prob = (cast_to(part, wide).expand(out.shape) for part in (count, prob))
    found = ops.where(prob >= 1, count, 0)  # also where nothing is drawn, as in torch
    drawn = (count > 0) & (prob > 0) & (prob < 1) & (count < ops.full_like(count, float("inf")))
    mirrored = prob > 0.5
    p = ops.where(drawn, ops.where(mirrored, 1 - prob, prob), 0.5)
    whole = ops.where(drawn, ops.floor(count), 0)
    few = whole * p < 10
    successes = ops.zeros_like(p)
    if _any(drawn & few):
        successes = _by_inversion(ops.where(few, whole, 0), ops.where(few, p, 0.5), generator)
    if _any(drawn & ~few):
        many = _by_rejection(ops.where(few, 100.0, whole), ops.where(few, 0.5, p), generator)
        successes = ops.where(few, successes, many)
    found = ops.where(drawn, ops.where(mirrored, whole - successes, successes), found)
    found = ops.where((count != count) | (prob != prob), float("nan"), found)
    return factories().copy_raw(out, found)


op(
    "binomial(count: Tensor, prob: Tensor, generator: any = None) -> Tensor",
    forward=_binomial,
    method=False,
    node="NotImplemented",
    vjp={name: no_derivative("binomial", name) for name in ("count", "prob")},
    dtypes=FLOATING & ~HALF,
    doc="Return how many of `count` independent trials succeed, each with the probability `prob`."
    "\n\nShape: count and prob are broadcast. Without trials or without a chance it is 0.\n\n"
    "Source: Hoermann, 1993, for many successes.\n\nRaises: ValueError for counts that are no "
    "floating-point numbers; RuntimeError for two dtypes.\n\n"
    ">>> import pullback\n"
    ">>> pullback.binomial(pullback.tensor([4., 5.]), pullback.tensor([0., 1.]))\n"
    "tensor([0., 5.])",
    samples=lambda: [
        made._replace(skip=UNDERIVED)
        for made in (
            case(fixed((1, 5, 300)), T(3, low=0.1, high=0.9)),
            case(fixed((40, 80), shape=(2, 1)), T(3, low=0, high=1)),
            case(fixed((0, 3, -1)), fixed((0.5, 1, 0.5))),
            case(T(0), T(0)),
        )
    ],
)
