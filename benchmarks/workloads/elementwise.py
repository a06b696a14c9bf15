"""Functions and arithmetic on every element: contiguous, in awkward layouts, in every dtype."""

from __future__ import annotations

from benchmarks.workloads.registry import (
    BANDWIDTH_BUDGET,
    LAYOUT_BUDGET,
    OVERHEAD_BUDGET,
    Entry,
    cast,
    leaf,
    pairs,
    same,
    table,
)


def make_vectors(m, n):
    """Return vectors of each range that a function may need."""
    x, y = m.randn(n), m.randn(n)
    return {"x": x, "y": y, "p": m.abs(x) + 0.1, "c": m.tanh(x), "b": x > 0}


def small(m, size):
    """8 elements, as every small op; not scaled down."""
    return make_vectors(m, 8)


def medium(m, size):
    """100,000 elements: they fit in a core's cache."""
    return make_vectors(m, size(100_000))


def large(m, size):
    """4 million elements."""
    return make_vectors(m, size(4_000_000))


FUNCTIONS = [
    *same(
        *(f"m.{name}(x)" for name in ("exp", "tanh", "sin", "cos", "tan", "expm1", "exp2")),
        *(f"m.{name}(x)" for name in ("sinh", "cosh", "abs", "floor", "sign", "isnan")),
        *(f"m.{name}(p)" for name in ("log", "log1p", "log2", "log10", "sqrt")),
    ),
    *pairs(
        ("m.neg(x)", "np.negative(x)"),
        ("m.atan(x)", "np.arctan(x)"),
        ("m.asin(c)", "np.arcsin(c)"),
        ("m.acos(c)", "np.arccos(c)"),
        ("m.asinh(x)", "np.arcsinh(x)"),
        ("m.round(x)", "np.rint(x)"),
        ("m.rsqrt(p)", "1 / np.sqrt(p)"),
        ("m.reciprocal(x)", "np.reciprocal(x)"),
        ("m.relu(x)", "np.maximum(x, 0)"),
        ("m.sigmoid(x)", "special.expit(x)"),
        ("m.erf(x)", "special.erf(x)"),
        ("m.erfc(x)", "special.erfc(x)"),
        ("m.lgamma(p)", "special.gammaln(p)"),
    ),
    Entry("F.gelu(x)", jax="jax.nn.gelu(x, approximate=False)"),
    Entry("F.gelu(x, approximate='tanh')", jax="jax.nn.gelu(x)"),
    Entry("F.silu(x)", jax="jax.nn.silu(x)"),
    Entry("F.softplus(x)", jax="jax.nn.softplus(x)"),
    Entry("F.elu(x)", jax="jax.nn.elu(x)"),
]
ARITHMETIC = [
    *same("x + y", "x - y", "x * y", "x / p", "x * 2.0", "x + 1", "x > y"),
    *same("m.maximum(x, y)", "m.where(b, x, y)", "p**2.5", "p**y"),
    *pairs(
        ("m.atan2(x, y)", "np.arctan2(x, y)"),
        ("m.hypot(x, y)", "np.hypot(x, y)"),
        ("m.fmod(x, p)", "np.fmod(x, p)"),
        ("m.logaddexp(x, y)", "np.logaddexp(x, y)"),
        ("m.clamp(x, -1, 1)", "np.clip(x, -1, 1)"),
        ("m.lerp(x, y, 0.3)", "x + np.float32(0.3) * (y - x)"),
        ("m.addcmul(x, y, p)", "x + y * p"),
    ),
]
CHAINS = list(same("m.tanh(x) * y + m.exp(-x * x)", "x * y + x", "(x - y) / (1 + m.abs(p))"))
BRIEF = [
    *same("x + y", "x * 2.0", "m.exp(x)", "m.tanh(x)", "m.sqrt(p)", "x > y", "m.where(b, x, y)"),
    Entry("m.sigmoid(x)", "special.expit(x)", "special.expit(x)"),
    Entry("m.maximum(x, y)", "np.maximum(x, y)", "np.maximum(x, y)"),
]
IN_PLACE = [
    Entry("x.add_(y)", "np.add(x, y, out=x)"),
    Entry("x.mul_(-1.0)", "np.multiply(x, np.float32(-1), out=x)"),
    Entry("m.add(x, y, out=p)", "np.add(x, y, out=p)"),
]

table("elementwise/8 elements", small, BRIEF, budget=OVERHEAD_BUDGET, alone=True)
table("elementwise/100k elements", medium, [*BRIEF, *CHAINS], alone=True)
table(
    "elementwise/4M elements",
    large,
    [*FUNCTIONS, *ARITHMETIC, *CHAINS],
    budget=BANDWIDTH_BUDGET,
    bandwidth=True,
)
table("elementwise/4M elements, in place", large, IN_PLACE, bandwidth=True)


def doubles(m, size):
    """2 million float64 elements."""
    d = m.randn(size(2_000_000), dtype=m.float64)
    return {"d": d, "p": m.abs(d) + 0.1}


table(
    "elementwise/2M float64",
    doubles,
    same("m.exp(d)", "m.tanh(d)", "m.sin(d)", "m.log(p)", "m.sqrt(p)", "d * p + d"),
    budget=BANDWIDTH_BUDGET,
    bandwidth=True,
)


def halves(m, size):
    """4 million elements of the half types; NumPy has float16."""
    x = m.randn(size(4_000_000))
    operands = {"h": cast(x, m.float16)}
    if hasattr(m, "bfloat16"):
        operands["q"] = cast(x, m.bfloat16)
    return operands


table(
    "elementwise/4M float16 or bfloat16",
    halves,
    [
        *same("h + h", "h * h", "m.exp(h)"),
        *(Entry(text, jax=text.replace("m.", "np.")) for text in ("q + q", "q * q", "m.tanh(q)")),
    ],
    bandwidth=True,
)


def complexes(m, size):
    """A million complex64 elements."""
    n = size(1_000_000)
    return {"z": m.randn(n, dtype=m.complex64), "w": m.randn(n, dtype=m.complex64)}


table(
    "elementwise/1M complex64",
    complexes,
    [*same("z + w", "z * w", "z / w", "m.exp(z)", "m.abs(z)"), Entry("m.angle(z)", "np.angle(z)")],
    bandwidth=True,
)


def integers(m, size):
    """4 million integers of several widths."""
    shape = (size(4_000_000),)
    i, j = m.randint(0, 1000, shape), m.randint(1, 1000, shape)
    return {
        "i": i,
        "j": j,
        "i32": cast(i, m.int32),
        "j32": cast(j, m.int32),
        "u": cast(i, m.uint8),
    }


table(
    "elementwise/4M integers",
    integers,
    same(
        *("i + j", "i * j", "i // j", "i % j", "i == j", "i & j"),
        *("i32 + j32", "i32 * j32", "i32 // j32", "u + u"),
    ),
    bandwidth=True,
)


def casts(m, size):
    """4 million float32 elements to convert."""
    x = m.randn(size(4_000_000))
    return {"x": x, "i": m.randint(0, 100, (size(4_000_000),))}


table(
    "elementwise/4M elements, casts",
    casts,
    [
        *pairs(
            ("x.double()", "x.astype(np.float64)"),
            ("x.half()", "x.astype(np.float16)"),
            ("x.int()", "x.astype(np.int32)"),
            ("i.float()", "i.astype(np.float32)"),
            ("i.to(m.uint8)", "i.astype(np.uint8)"),
            ("x > 0", "x > 0"),
        ),
        Entry("x.to(m.bfloat16)", jax="x.astype(np.bfloat16)"),
    ],
    bandwidth=True,
)


def matrices(m, size):
    """Matrices of 2048 x 2048 to broadcast, transpose and step over."""
    k = size(2048)
    a = m.randn(k, k)
    return {
        "a": a,
        "r": m.randn(k),
        "k": m.randn(k, 1),
        "t": m.randn(k, k).T,
        "positive": a > 0,
        "box": m.randn(64, size(256), 256),
        "plane": m.randn(size(256), 1),
    }


table(
    "elementwise/2048 x 2048, awkward layouts",
    matrices,
    [
        *same("a + r", "a + k", "r + k", "a * t", "a.T + t", "m.maximum(a, t)"),
        *same("m.where(positive, a, t)", "m.exp(t)", "a[::2, ::2] + 1", "m.exp(a[:, 3:-3])"),
        *same("a[:, ::2] * r[::2]", "box * plane", "a[1:, 1:] - a[:-1, :-1]"),
    ],
    budget=LAYOUT_BUDGET,
    bandwidth=True,
)


def leaves(m, size):
    """A million elements that require a gradient, and matrices to broadcast."""
    n, k = size(1_000_000), size(1024)
    x, y = m.randn(n), m.randn(n)
    return {
        "x": leaf(x),
        "y": leaf(y),
        "a": leaf(m.randn(k, k)),
        "r": leaf(m.randn(k)),
    }


table(
    "elementwise/1M elements, forward and backward",
    leaves,
    [
        *same("(m.tanh(x) * y + m.exp(-x * x)).sum()", "(x * y + x).sum()", "m.exp(x).sum()"),
        Entry("m.sigmoid(x).sum()", jax="jax.nn.sigmoid(x).sum()"),
        Entry("F.gelu(x).sum()", jax="jax.nn.gelu(x, approximate=False).sum()"),
        *same("m.where(x > 0, x, y).sum()", "m.maximum(x, y).sum()"),
        Entry("x.clamp(-1, 1).sum()", jax="np.clip(x, -1, 1).sum()"),
    ],
    budget=BANDWIDTH_BUDGET,
    backward=True,
)
table(
    "elementwise/1024 x 1024, forward and backward",
    leaves,
    same("(a + r).sum()", "(a * r).sum()", "(a.T * a).sum()", "(a[:, ::2] ** 2).sum()"),
    budget=LAYOUT_BUDGET,
    backward=True,
)
