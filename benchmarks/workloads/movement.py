"""Copies, joins, look-ups, scatters, sorting and searching."""

from __future__ import annotations

from benchmarks.workloads.registry import LOOKUP_BUDGET, Entry, leaf, pairs, same, table


def make_matrices(m, k, edge):
    """Return matrices and a stack of them."""
    a = m.randn(k, k)
    return {
        "a": a,
        "t": m.randn(k, k).T,
        "r": m.randn(k),
        "box": m.randn(edge, edge, edge),
        "positive": a > 0,
        "k": k,
    }


def large(m, size):
    """2048 x 2048 elements."""
    return make_matrices(m, size(2048), size(160))


def small(m, size):
    """8 x 8 elements."""
    return make_matrices(m, 8, 4)


COPIES: list[Entry] = [
    *pairs(
        ("a.clone()", "a.copy()"),
        ("t.contiguous()", "t.copy()"),
        ("a.T.clone()", "a.T.copy()"),
        ("box.permute(2, 0, 1).contiguous()", "np.transpose(box, (2, 0, 1)).copy()"),
        ("box.transpose(1, 2).contiguous()", "np.transpose(box, (0, 2, 1)).copy()"),
        ("a[::2, ::2].clone()", "a[::2, ::2].copy()"),
        ("m.cat([a, a], 0)", "np.concatenate([a, a], 0)"),
        ("m.cat([a, a], 1)", "np.concatenate([a, a], 1)"),
        ("m.stack([a, a], -1)", "np.stack([a, a], -1)"),
        ("a.flip(1)", "np.flip(a, 1).copy()"),
        ("a.roll(5, 1)", "np.roll(a, 5, 1)"),
        ("a.repeat(2, 1)", "np.tile(a, (2, 1))"),
        ("r.expand(k, k).contiguous()", "np.broadcast_to(r, (k, k)).copy()"),
        ("F.pad(a, (1, 1, 1, 1))", "np.pad(a, 1)"),
        ("m.tril(a)", "np.tril(a)"),
        ("a.masked_fill(positive, 0.0)", "np.where(positive, np.float32(0), a)"),
    ),
]
table("movement/2048 x 2048", large, COPIES, bandwidth=True)
table("movement/8 x 8", small, [COPIES[i] for i in (0, 1, 6, 8, 15)], alone=True)


def many(m, size):
    """1000 tensors of 8 elements, and all of them in one."""
    rows = m.randn(size(1000), 8)
    return {"rows": rows, "parts": [rows[i] for i in range(len(rows))]}


table(
    "movement/1000 tensors of 8 elements",
    many,
    [
        Entry("m.stack(parts)", "np.stack(parts)"),
        Entry("m.cat(parts)", "np.concatenate(parts)"),
        Entry("rows.unbind(0)", "tuple(rows)"),
    ],
    alone=True,
)


def lookups(m, size):
    """A million look-ups, and 8192 rows of a table of 50,000."""
    n, k, rows = size(1_000_000), size(1024), size(50_000)
    table_of_rows = m.randn(rows, 128)
    values = m.randn(n)
    return {
        "l": values,
        "li": m.randint(0, n, (n,)),
        "lb": values > 0,
        "a": m.randn(k, k),
        "ii": m.randint(0, k, (k, k)),
        "e": table_of_rows,
        "et": m.randint(0, rows, (size(8192),)),
        "some": table_of_rows[: size(8192)],
        "zero": m.zeros(n),
        "zeros": m.zeros(rows, 128),
    }


READS = [
    *pairs(
        ("l[li]", "l[li]"),
        ("l.index_select(0, li)", "np.take(l, li)"),
        ("e.index_select(0, et)", "np.take(e, et, 0)"),
        ("e[et]", "e[et]"),
        ("a.gather(1, ii)", "np.take_along_axis(a, ii, 1)"),
        ("a.gather(0, ii)", "np.take_along_axis(a, ii, 0)"),
        ("m.take(l, li)", "np.take(l, li)"),
    ),
    Entry("F.embedding(et, e)", "e[et]", "e[et]"),
]
WRITES: list[str | Entry] = [
    "a.scatter(1, ii, a)",
    "a.scatter_add(1, ii, a)",
    "a.scatter_reduce(1, ii, a, 'amax')",
    Entry("zeros.index_add(0, et, some)", jax="zeros.at[et].add(some)"),
    Entry("zero.index_put((li,), l)", jax="zero.at[li].set(l)"),
    Entry("zero.index_put((li,), l, accumulate=True)", jax="zero.at[li].add(l)"),
    Entry("l[lb]", "l[lb]"),
    Entry("l.masked_select(lb)", "l[lb]"),
    Entry("lb.nonzero()", "np.argwhere(lb)"),
]
table("movement/1M look-ups", lookups, READS, budget=LOOKUP_BUDGET)
table("movement/1M writes and selections", lookups, WRITES)


def leaves(m, size):
    """Tables and matrices that require a gradient."""
    k, rows = size(1024), size(50_000)
    return {
        "a": leaf(m.randn(k, k)),
        "ii": m.randint(0, k, (k, k)),
        "e": leaf(m.randn(rows, 64)),
        "et": m.randint(0, rows, (size(8192),)),
    }


table(
    "movement/look-ups, forward and backward",
    leaves,
    [
        Entry("a.gather(1, ii).sum()", jax="np.take_along_axis(a, ii, 1).sum()"),
        Entry("e[et].square().sum()", jax="(e[et] ** 2).sum()"),
        "e.index_select(0, et).square().sum()",
        "F.embedding(et, e).square().sum()",
    ],
    budget=LOOKUP_BUDGET,
    backward=True,
)
table(
    "movement/1024 x 1024, forward and backward",
    leaves,
    [
        Entry("m.cat([a, a]).square().sum()", jax="(np.concatenate([a, a]) ** 2).sum()"),
        "a.sort(1)[0].square().sum()",
        "a.scatter_add(1, ii, a).square().sum()",
    ],
    backward=True,
)


def to_sort(m, size):
    """A million floats and integers, and a matrix."""
    n, k = size(1_000_000), size(1024)
    return {
        "l": m.randn(n),
        "a": m.randn(k, k),
        "li": m.randint(0, n, (n,)),
        "bins": m.randint(0, 1000, (n,)),
        "edges": m.linspace(-3, 3, 100),
        "few": m.randint(0, 1000, (50,)),
        "kth": size(500),
    }


table(
    "movement/1M elements, sorting and searching",
    to_sort,
    [
        Entry("l.sort()", "np.sort(l)", "(np.sort(l), np.argsort(l))"),
        Entry("a.sort(1)", "np.sort(a, 1)", "(np.sort(a, 1), np.argsort(a, 1))"),
        Entry("a.sort(0)", "np.sort(a, 0)", "(np.sort(a, 0), np.argsort(a, 0))"),
        Entry("li.sort()", "np.sort(li)", "(np.sort(li), np.argsort(li))"),
        *pairs(("l.argsort()", "np.argsort(l)")),
        Entry("l.topk(10)", "np.partition(l, -10)[-10:]", "jax.lax.top_k(l, 10)"),
        Entry("a.topk(10, 1)", "np.partition(a, -10, 1)[:, -10:]", "jax.lax.top_k(a, 10)"),
        Entry("l.kthvalue(kth)", "np.partition(l, kth - 1)[kth - 1]"),
        Entry("m.unique(li)", "np.unique(li)"),
        Entry("m.unique(bins)", "np.unique(bins)"),
        Entry("m.bincount(bins)", "np.bincount(bins)"),
        *same("m.searchsorted(edges, l)"),
        Entry("m.bucketize(l, edges)", "np.digitize(l, edges, right=True)"),
        Entry("m.histc(l, 100)", "np.histogram(l, 100)[0]"),
        *same("m.isin(bins, few)"),
    ],
)


def few_to_sort(m, size):
    """100 elements to sort, rank and look up."""
    return {"l": m.randn(100), "li": m.randint(0, 100, (100,))}


table(
    "movement/100 elements",
    few_to_sort,
    [
        Entry("l.sort()", "np.sort(l)"),
        Entry("l.topk(10)", "np.partition(l, -10)[-10:]"),
        Entry("l[li]", "l[li]"),
        Entry("m.unique(li)", "np.unique(li)"),
        Entry("l.gather(0, li)", "np.take_along_axis(l, li, 0)"),
    ],
    alone=True,
)
