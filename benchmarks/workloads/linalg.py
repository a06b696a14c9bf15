"""Matrix products of all kinds, LAPACK, and Fourier transforms."""

from __future__ import annotations

from benchmarks.workloads.registry import PRODUCT_BUDGET, Entry, cast, leaf, pairs, table


def cube(name):
    """Return the work of a square product: two operations for each of n cubed terms."""
    return lambda operands: 2 * operands[name].shape[0] ** 3


def make_squares(m, *edges, dtype=None):
    """Return a random matrix for each edge, called ``g`` and the edge it was declared with."""
    return {f"g{name}": m.randn(k, k, dtype=dtype or m.float32) for name, k in edges}


def squares(m, size):
    """float32."""
    return make_squares(m, *((k, size(k)) for k in (16, 128, 512, 1024, 2048)))


def product(text, name):
    """Give a product that NumPy writes alike, with its work."""
    return Entry(text, text, text, flops=cube(name))


table(
    "linalg/float32",
    squares,
    [
        *(product(f"g{k} @ g{k}", f"g{k}") for k in (128, 512, 1024, 2048)),
        product("g512.T @ g512", "g512"),
        product("g512 @ g512.T", "g512"),
    ],
    budget=PRODUCT_BUDGET,
)
table("linalg/float32, tiny", squares, [product("g16 @ g16", "g16")], alone=True)


def double_squares(m, size):
    """float64."""
    return make_squares(m, (128, size(128)), (512, size(512)), dtype=m.float64)


table(
    "linalg/float64",
    double_squares,
    [product("g128 @ g128", "g128"), product("g512 @ g512", "g512")],
    budget=PRODUCT_BUDGET,
)


def few_rows(m, size):
    """Batches of 4 and 16 rows through linear layers."""
    k = size(1024)
    return {"x4": m.randn(4, k), "x16": m.randn(16, k), "w": m.randn(k, k)}


table(
    "linalg/few rows",
    few_rows,
    [Entry(f"{x} @ w.T", f"{x} @ w.T", f"{x} @ w.T") for x in ("x4", "x16")],
    budget=PRODUCT_BUDGET,
)


def various(m, size):
    """Stacks, vectors, and types that BLAS has no routine for."""
    k, v = size(512), size(1024)
    g, e = m.randn(k, k), m.eye(k)
    return {
        "b3": m.randn(64, 64, 64),
        "b4": m.randn(size(1000), 8, 8),
        "b5": m.randn(size(256), 128, 32),
        "z": m.randn(size(256), size(256), dtype=m.complex64),
        "w": m.randn(v, v),
        "v": m.randn(v),
        "g": g,
        "slim": g[:, :4],
        "short": m.randn(k),
        "q": m.randn(8, 64, 8, 32),
        "ig": m.randint(0, 9, (size(256), size(256))),
        "spd": g @ g.T + k * e,
    }


table(
    "linalg/products",
    various,
    [
        *pairs(
            ("b3 @ b3", "b3 @ b3"),
            ("b4 @ b4", "b4 @ b4"),
            ("b5 @ b5.transpose(1, 2)", "b5 @ np.swapaxes(b5, 1, 2)"),
            ("z @ z", "z @ z"),
            ("z.conj() @ z.T", "z.conj() @ z.T"),
            ("w @ v", "w @ v"),
            ("v @ w", "v @ w"),
            ("w.T @ v", "w.T @ v"),
            ("ig @ ig", "ig @ ig"),
            ("m.einsum('bij,bjk->bik', b3, b3)", "np.matmul(b3, b3)"),
            (
                "m.einsum('bqhd,bkhd->bhqk', q, q)",
                "np.matmul(np.transpose(q, (0, 2, 1, 3)), np.transpose(q, (0, 2, 3, 1)))",
            ),
            ("m.einsum('ij,jk,kl->il', g, g, slim)", "np.linalg.multi_dot([g, g, slim])"),
            ("m.addmm(short, g, g)", "short + g @ g"),
            ("m.outer(v, v)", "np.outer(v, v)"),
            ("v.dot(v)", "v.dot(v)"),
        ),
    ],
    budget=PRODUCT_BUDGET,
)
table(
    "linalg/LAPACK",
    various,
    pairs(
        ("m.linalg.solve(spd, g)", "np.linalg.solve(spd, g)"),
        ("m.linalg.inv(spd)", "np.linalg.inv(spd)"),
        ("m.linalg.svd(b3[0])", "np.linalg.svd(b3[0])"),
        ("m.linalg.svd(b3[:8])", "np.linalg.svd(b3[:8])"),
    ),
    budget=PRODUCT_BUDGET,
)


def decomposed(m, size):
    """A matrix of a middling size, and many small ones."""
    k, n = size(512), size(10_000)
    g, b = m.randn(k, k), m.randn(n, 8, 8)
    one, unit = m.eye(k), m.eye(8)
    return {
        "g": g,
        "sym": g + g.T,
        "spd": g @ g.T / k + one,
        "low": m.tril(g) * 0.1 + one,
        "b": b,
        "bsym": b + b.transpose(1, 2),
        "bspd": b @ b.transpose(1, 2) + unit,
        "blow": m.tril(b) * 0.1 + unit,
    }


def on_both(text):
    """Give the row of a matrix and that of many small ones."""
    return [text.format("", "g"), text.format("b", "b")]


table(
    "linalg/decompositions",
    decomposed,
    [
        row
        for text in (
            "m.linalg.cholesky({0}spd)",
            "m.linalg.solve_triangular({0}low, {1}, upper=False)",
            "m.linalg.det({1})",
            "m.linalg.lu_factor({1})",
            "m.linalg.qr({1})",
            "m.linalg.eigh({0}sym)",
            "m.linalg.eigvalsh({0}sym)",
            "m.linalg.eig({1})",
            "m.linalg.svdvals({1})",
            "m.linalg.pinv({1})",
            "m.linalg.lstsq({1}, {1})[0]",
            "m.linalg.matrix_exp(0.01 * {1})",
        )
        for row in on_both(text)
    ],
    budget=PRODUCT_BUDGET,
)


def half_squares(m, size):
    """Half precision, which BLAS does not have."""
    k = size(256)
    return {"h": cast(m.randn(k, k), m.float16), "q": cast(m.randn(k, k), m.bfloat16)}


table("linalg/half precision", half_squares, ["h @ h", "q @ q"], budget=PRODUCT_BUDGET)


def leaves(m, size):
    """Matrices that require a gradient."""
    g = leaf(m.randn(size(512), size(512)))
    return {"g": g, "s": leaf(m.randn(size(128), size(128)))}


table(
    "linalg/512 x 512, forward and backward",
    leaves,
    [
        *(Entry(f"({text}).sum()", jax=f"({text}).sum()") for text in ("g @ g", "g @ g.T")),
        Entry("m.linalg.inv(g).sum()", jax="np.linalg.inv(g).sum()"),
        "m.linalg.svd(s)[1].sum()",
    ],
    budget=PRODUCT_BUDGET,
    backward=True,
)


def signals(m, size):
    """One long signal, and many short ones."""
    one, count = size(1 << 20), size(4096)
    return {
        "c1": m.randn(one, dtype=m.complex64),
        "z1": m.randn(one, dtype=m.complex128),
        "c": m.randn(count, 256, dtype=m.complex64),
        "z": m.randn(count, 256, dtype=m.complex128),
        "x": m.randn(count, 256),
        "d": m.randn(count, 256, dtype=m.float64),
        "xf": m.randn(count, 129, dtype=m.complex64),
        "i": m.randn(size(512), 512, dtype=m.complex64),
    }


table(
    "linalg/Fourier transforms",
    signals,
    pairs(
        ("m.fft.fft(c1)", "np.fft.fft(c1)"),
        ("m.fft.fft(z1)", "np.fft.fft(z1)"),
        ("m.fft.fft(c)", "np.fft.fft(c)"),
        ("m.fft.fft(z)", "np.fft.fft(z)"),
        ("m.fft.rfft(x)", "np.fft.rfft(x)"),
        ("m.fft.rfft(d)", "np.fft.rfft(d)"),
        ("m.fft.irfft(xf)", "np.fft.irfft(xf)"),
        ("m.fft.fft2(i)", "np.fft.fft2(i)"),
    ),
    budget=PRODUCT_BUDGET,
)
