"""Sums, extremes, cumulative sums and normalizations, along every axis and layout."""

from __future__ import annotations

from benchmarks.workloads.registry import LAYOUT_BUDGET, SAME, Entry, leaf, pairs, same, table


def make_operands(m, k, n, batch, edge):
    """Return a vector, a matrix, its transpose and a stack of matrices."""
    a = m.randn(k, k)
    return {
        "l": m.randn(n),
        "a": a,
        "t": m.randn(k, k).T,
        "box": m.randn(batch, edge, edge),
        "positive": a > 0,
        "i": m.randint(0, 1000, (n,)),
        "k": k,
    }


def large(m, size):
    """4 million elements."""
    return make_operands(m, size(2048), size(4_000_000), size(64), size(256))


def medium(m, size):
    """65,536 elements."""
    return make_operands(m, size(256), size(65_536), 16, size(64))


def small(m, size):
    """64 elements."""
    return make_operands(m, 8, 64, 4, 4)


BRIEF = [
    *same("l.sum()", "l.max()", "i.sum()"),
    *pairs(
        ("a.sum(0)", "a.sum(0)"),
        ("a.sum(1)", "a.sum(1)"),
        ("t.sum(0)", "t.sum(0)"),
        ("a.amax(1)", "a.max(1)"),
        ("a.mean(1)", "a.mean(1)"),
        ("l.var()", "l.var(ddof=1)"),
        ("l.argmax()", "l.argmax()"),
        ("a.softmax(1)", "special.softmax(a, axis=1)"),
        ("m.cumsum(a, 1)", "np.cumsum(a, 1)"),
    ),
]
ALL = [
    *same("l.sum()", "l.mean()", "l.max()", "l.prod()", "l.argmax()", "i.sum()", "i.max()"),
    *same("a.sum(0)", "a.sum(1)", "a.mean(1)", "t.sum(0)", "t.sum(1)", "t.sum()", "box.sum(1)"),
    *same("box.sum((0, 2))", "a.argmax(1)", "a.argmax(0)", "positive.sum()", "positive.any()"),
    *same("m.count_nonzero(a)"),
    *pairs(
        ("a[:, ::2].sum(1)", "a[:, ::2].sum(1)"),
        ("a.amax(1)", "a.max(1)"),
        ("a.amax(0)", "a.max(0)"),
        ("l.var()", "l.var(ddof=1)"),
        ("a.var(0)", "a.var(0, ddof=1)"),
        ("a.var(1)", "a.var(1, ddof=1)"),
        ("a.std(1)", "a.std(1, ddof=1)"),
        ("l.norm()", "np.linalg.norm(l)"),
        ("a.norm(dim=1)", "np.linalg.norm(a, axis=1)"),
        ("a.logsumexp(1)", "special.logsumexp(a, axis=1)"),
        ("a.logsumexp(0)", "special.logsumexp(a, axis=0)"),
        ("l.nansum()", "np.nansum(l)"),
        ("m.all(positive)", "np.all(positive)"),
    ),
    Entry("a.max(1)"),
    Entry("a.max(0)"),
    Entry("a.median(1)"),
]
NORMALISED = [
    *pairs(
        ("a.softmax(1)", "special.softmax(a, axis=1)"),
        ("a.softmax(0)", "special.softmax(a, axis=0)"),
        ("box.softmax(1)", "special.softmax(box, axis=1)"),
        ("a.log_softmax(1)", "special.log_softmax(a, axis=1)"),
    ),
    Entry(
        "F.layer_norm(a, (k,))",
        jax="(a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5)",
    ),
    Entry("F.rms_norm(a, (k,))", jax="a / np.sqrt((a * a).mean(1, keepdims=True) + 1e-7)"),
    *pairs(
        ("m.cumsum(a, 1)", "np.cumsum(a, 1)"),
        ("m.cumsum(a, 0)", "np.cumsum(a, 0)"),
        ("m.cumsum(l, 0)", "np.cumsum(l)"),
        ("m.cumprod(a, 1)", "np.cumprod(a, 1)"),
    ),
    Entry("m.cummax(a, 1)"),
    Entry("m.logcumsumexp(a, 1)", "np.logaddexp.accumulate(a, 1)"),
]

table("reductions/64 elements", small, BRIEF, alone=True)
table("reductions/65k elements", medium, BRIEF, alone=True)
table("reductions/4M elements", large, ALL, budget=LAYOUT_BUDGET, bandwidth=True)
table("reductions/4M elements, normalised or running", large, NORMALISED, bandwidth=True)


def half_vector(m, size):
    """4 million half-precision elements."""
    x = m.randn(size(4_000_000))
    return {"h": x.to(m.float16), "q": x.to(m.bfloat16)}


table(
    "reductions/4M float16 or bfloat16",
    half_vector,
    ["h.sum()", "q.sum()", "q.mean()", "h.amax()"],
    budget=LAYOUT_BUDGET,
    bandwidth=True,
)


def leaves(m, size):
    """A matrix and vectors that require a gradient."""
    k = size(1024)
    return {
        "a": leaf(m.randn(k, k)),
        "r": leaf(m.randn(k)),
        "x": leaf(m.randn(size(1_000_000))),
        "k": k,
    }


table(
    "reductions/1M elements, forward and backward",
    leaves,
    [
        Entry("a.logsumexp(1).sum()", jax="special.logsumexp(a, axis=1).sum()"),
        Entry("x.var()", jax="x.var(ddof=1)"),
        Entry("a.std(1).sum()", jax="a.std(1, ddof=1).sum()"),
        Entry("x.norm()", jax="np.linalg.norm(x)"),
        Entry("a.amax(1).sum()", jax="a.max(1).sum()"),
        "a.max(1)[0].sum()",
        Entry("m.prod(r)", SAME, SAME),
    ],
    budget=LAYOUT_BUDGET,
    backward=True,
)
table(
    "reductions/1M elements, normalised, forward and backward",
    leaves,
    [
        Entry("a.softmax(1).square().sum()", jax="(jax.nn.softmax(a, 1) ** 2).sum()"),
        Entry("a.log_softmax(1).square().sum()", jax="(jax.nn.log_softmax(a, 1) ** 2).sum()"),
        "F.layer_norm(a, (k,)).square().sum()",
        "F.layer_norm(a, (k,), r, r).square().sum()",
        Entry("a.cumsum(1).square().sum()", jax="(np.cumsum(a, 1) ** 2).sum()"),
    ],
    backward=True,
)
