"""Tensors from nothing: constants, ranges and random numbers."""

from __future__ import annotations

from benchmarks.workloads.registry import Entry, table


def sizes(m, size):
    """4 million elements."""
    return {"n": size(4_000_000), "k": size(2048)}


def few(m, size):
    """8 elements."""
    return {"n": 8, "k": 8}


CONSTANT = [
    Entry("m.zeros(k, k)", "np.zeros((k, k), np.float32)"),
    Entry("m.ones(n)", "np.ones(n, np.float32)"),
    Entry("m.full((k, k), 2.0)", "np.full((k, k), 2.0, np.float32)"),
    Entry("m.arange(n)", "np.arange(n)"),
    Entry("m.linspace(0, 1, n)", "np.linspace(0, 1, n, dtype=np.float32)"),
    Entry("m.eye(k)", "np.eye(k, dtype=np.float32)"),
]
RANDOM = [
    Entry("m.randn(n)", "generator.standard_normal(n, np.float32)"),
    Entry("m.rand(n)", "generator.random(n, np.float32)"),
    Entry("m.randint(0, 10, (n,))", "generator.integers(0, 10, n)"),
    Entry("m.randperm(n)", "generator.permutation(n)"),
]


def million(m, size):
    """A million random numbers."""
    generator = getattr(m, "generator", None)  # NumPy's; the others have one behind the scenes
    n = size(1_000_000)
    probabilities = m.abs(m.randn(size(1024), size(1024)))
    return {"n": n, "generator": generator, "weights": probabilities, "half": m.ones(n) * 0.5}


table("creation/4M elements", sizes, CONSTANT)
table("creation/8 elements", few, CONSTANT[:4], alone=True)
table(
    "creation/1M random numbers",
    million,
    [
        *RANDOM,
        Entry("m.bernoulli(half)", "generator.random(n, np.float32) < half"),
        "m.multinomial(weights, 5)",
        "F.dropout(half, 0.5)",
    ],
)
