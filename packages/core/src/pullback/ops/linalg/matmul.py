"""Products of matrices and vectors, and products that are added."""

from pullback.ops.rules.arguments import check_number
from pullback.ops.rules.dtypes import type_name
from pullback.ops.rules.shapes import broadcast_shape, check_vectors, product
from pullback.ops.table.samples import T, case, references_of
from pullback.ops.table.schema import ALL, COMPLEX, FLOAT_COMPLEX, NUMBERS, op, ops

references = references_of("linalg")

op(
    "mm(self: Tensor, mat2: Tensor) -> Tensor",
    autocast="lower",
    jvp="multilinear",
    forward="mm",
    kernel="bmm",
    dtypes=NUMBERS,
    vjp={
        "self": lambda g, mat2: g.mm(mat2.t().conj()),
        "mat2": lambda g, self: self.t().conj().mm(g),
    },
    out=True,
    batch="mm",
    out_overlap=True,
    out_dtype="exact",
    ref="numpy.matmul",
    doc="Return the product of two matrices.\n\nShape: (m, k) and (k, n) give (m, n).",
    samples=lambda: [
        case(T(2, 3), T(3, 4)),
        case(T(1, 1), T(1, 1)),
        case(T(0, 3), T(3, 2)),
        case(T(2, 0), T(0, 3)),
    ],
)
op(
    "bmm(self: Tensor, mat2: Tensor) -> Tensor",
    autocast="lower",
    jvp="multilinear",
    forward="bmm",
    kernel="bmm",
    dtypes=NUMBERS,
    vjp={
        "self": lambda g, mat2: g.bmm(mat2.transpose(1, 2).conj()),
        "mat2": lambda g, self: self.transpose(1, 2).conj().bmm(g),
    },
    out=True,
    batch="bmm",
    out_overlap=True,
    out_dtype="exact",
    ref="numpy.matmul",
    doc="Return the products of two batches of matrices.\n\nShape: (b, m, k) and (b, k, n) give "
    "(b, m, n).",
    samples=lambda: [
        case(T(2, 2, 3), T(2, 3, 4)),
        case(T(0, 2, 3), T(0, 3, 2)),
        case(T(2, 2, 0), T(2, 0, 3)),
    ],
)


op(
    "addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) "
    "-> Tensor",
    autocast="lower",
    forward="addmm",
    kernel="bmm",
    vjp={
        "self": lambda g, beta: ops.scaled(g, ops.conj(beta)),
        "mat1": lambda g, mat2, alpha: ops.scaled(g.mm(mat2.t().conj()), ops.conj(alpha)),
        "mat2": lambda g, mat1, alpha: ops.scaled(mat1.t().conj().mm(g), ops.conj(alpha)),
    },
    inplace=True,
    out=True,
    batch="addmm",
    out_overlap=True,
    out_dtype="exact",
    doc="Return beta * self + alpha * (mat1 @ mat2).",
    samples=lambda: [
        case(T(2, 4), T(2, 3), T(3, 4)),
        case(T(4), T(2, 3), T(3, 4), beta=2, alpha=3),
        case(T(2, 1), T(2, 3), T(3, 4), beta=0),
        case(T(), T(2, 0), T(0, 3)),
        case(T(2, 4), T(2, 3), T(3, 4), beta=0.5, alpha=-1.5, only=FLOAT_COMPLEX),
        case(T(2, 4), T(2, 3), T(3, 4), beta=1j, alpha=2 - 1j, only=COMPLEX),
    ],
    ref=lambda np, self, mat1, mat2, beta=1, alpha=1: beta * self + alpha * (mat1 @ mat2),
    dtypes=NUMBERS,
)


def _matmul(self, other):
    """NumPy's rules of matmul, by mm and bmm."""
    if self.ndim == 0 or other.ndim == 0:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are "
            f"{self.ndim}D and {other.ndim}D"
        )
    if self.ndim == 2 and other.ndim == 2:
        return ops.mm(self, other)
    if self.ndim == 1 and other.ndim == 1:
        return ops.dot(self, other)
    if self.ndim == 2 and other.ndim == 1:
        return ops.mv(self, other)
    if self.ndim == 1:
        return ops.matmul(self.unsqueeze(0), other).squeeze(-2)
    if other.ndim == 1:
        return ops.matmul(self, other.unsqueeze(1)).squeeze(-1)
    if other.ndim == 2:
        rows = self.reshape(product(self.shape[:-1]), self.shape[-1])
        return ops._unsafe_view(ops.mm(rows, other), (*self.shape[:-1], other.shape[-1]))
    return _batched(self, other)


def _batched(self, other):
    batch = broadcast_shape(self.shape[:-2], other.shape[:-2])
    count = product(batch)
    if self.shape[-1] != other.shape[-2]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: "
            f"[{count}, {self.shape[-1]}] but got: [{count}, {other.shape[-2]}]."
        )
    left = self.expand((*batch, *self.shape[-2:])).reshape(count, *self.shape[-2:])
    right = other.expand((*batch, *other.shape[-2:])).reshape(count, *other.shape[-2:])
    return ops._unsafe_view(ops.bmm(left, right), (*batch, self.shape[-2], other.shape[-1]))


op(
    "matmul(self: Tensor, other: Tensor) -> Tensor",
    autocast="lower",
    composite=_matmul,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    ref="numpy.matmul",
    doc="Return the matrix product, broadcast over leading dims.",
    operators=("__matmul__",),
    samples=lambda: [
        case(T(2, 3), T(3, 4)),
        case(T(3), T(3)),
        case(T(3), T(3, 2)),
        case(T(2, 3), T(3)),
        case(T(2, 2, 3), T(3, 2)),
        case(T(2, 3), T(4, 3, 2)),
        case(T(2, 1, 2, 3), T(3, 3, 2)),
        case(T(3), T(2, 3, 2)),
        case(T(2, 2, 3), T(3)),
        case(T(0, 3), T(3, 2)),
        case(T(2, 0), T(0)),
    ],
    dtypes=NUMBERS,
)


op(
    "dot(self: Tensor, tensor: Tensor) -> Tensor",
    autocast=(None, "promote"),
    jvp="multilinear",
    forward="dot",
    kernel="bmm",
    vjp={
        "self": lambda g, tensor: g * ops.conj(tensor),
        "tensor": lambda g, self: g * ops.conj(self),
    },
    out=True,
    batch="dot",
    out_overlap=True,
    out_dtype="exact",
    ref="numpy.dot",
    doc="Return the inner product of two vectors.",
    samples=lambda: [case(T(3), T(3)), case(T(1), T(1)), case(T(0), T(0))],
    dtypes=NUMBERS,
)
op(
    "mv(self: Tensor, vec: Tensor) -> Tensor",
    autocast=(None, "lower"),
    jvp="multilinear",
    forward="mv",
    kernel="bmm",
    vjp={
        "self": lambda g, vec: g.unsqueeze(1) * ops.conj(vec),
        "vec": lambda g, self: self.t().conj().mv(g),
    },
    out=True,
    batch="mv",
    out_overlap=True,
    out_dtype="exact",
    ref="numpy.matmul",
    doc="Return the product of a matrix and a vector.",
    samples=lambda: [case(T(2, 3), T(3)), case(T(0, 3), T(3)), case(T(2, 0), T(0))],
    dtypes=NUMBERS,
)


def _vdot(self, other):
    return ops.dot(ops.conj(self), other)


op(
    "vdot(self: Tensor, other: Tensor) -> Tensor",
    autocast=(None, "promote"),
    jvp="multilinear",
    forward=_vdot,
    kernel="bmm",
    vjp={"self": lambda g, other: ops.conj(g) * other, "other": lambda g, self: g * self},
    out=True,
    batch="vdot",
    out_overlap=True,
    out_dtype="exact",
    ref="numpy.vdot",
    dtypes=NUMBERS,
    doc="Return the inner product of two vectors, the first one conjugated.",
    samples=lambda: [case(T(3), T(3)), case(T(1), T(1)), case(T(0), T(0))],
)


# -- products that are added -----------------------------------------------------------------------


def _factor(name, value, dtype, of):
    """Read alpha or beta as a number of a dtype; integers cut it."""
    check_number(value, of, name)
    if isinstance(value, complex) and not dtype.is_complex:
        raise RuntimeError(f"value cannot be converted to type {type_name(dtype)} without overflow")
    return value if dtype.is_floating_point or dtype.is_complex else int(value)


def _add_product(self, product, beta, alpha, name):
    """beta * self + alpha * product; with beta = 0, self is not even read."""
    alpha = _factor("alpha", alpha, product.dtype, name)
    beta = _factor("beta", beta, product.dtype, name)
    self = self.expand(product.shape)
    out = ops.scaled(product, alpha)
    return out if beta == 0 else out + ops.scaled(self, beta)


def _same_dtypes(text, *tensors):
    if any(tensor.dtype != tensors[0].dtype for tensor in tensors[1:]):
        raise RuntimeError(text.format(*(type_name(tensor.dtype) for tensor in tensors)))


def _addmv(self, mat, vec, beta, alpha):
    if mat.ndim != 2 or vec.ndim != 1 or self.ndim > 1:
        raise RuntimeError(
            f"vector + matrix @ vector expected, got {self.ndim}, {mat.ndim}, {vec.ndim}"
        )
    rows, columns = mat.shape
    if columns != vec.shape[0] or self.numel() not in (1, rows):
        raise RuntimeError(
            f"size mismatch, got input ({self.numel()}), mat ({rows}x{columns}), "
            f"vec ({vec.shape[0]})"
        )
    _same_dtypes(
        "addmv input tensors must have the same dtype, but got {}, {}, and {}", self, mat, vec
    )
    return _add_product(self, ops.mv(mat, vec), beta, alpha, "addmv")


op(
    "addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) "
    "-> Tensor",
    autocast=(None, "lower"),
    forward=_addmv,
    kernel="bmm",
    inplace=True,
    out=True,
    dtypes=NUMBERS,
    vjp={
        "self": lambda g, beta: ops.scaled(g, ops.conj(beta)),
        "mat": lambda g, vec, alpha: ops.scaled(g.unsqueeze(1) * ops.conj(vec), ops.conj(alpha)),
        "vec": lambda g, mat, alpha: ops.scaled(mat.t().conj().mv(g), ops.conj(alpha)),
    },
    out_overlap=True,
    out_dtype="exact",
    doc="Return beta * self + alpha * (mat @ vec).\n\nWith beta = 0, self is not read: NaN in it "
    "does not matter.",
    samples=lambda: [
        case(T(2), T(2, 3), T(3)),
        case(T(), T(2, 3), T(3), beta=2, alpha=3),
        case(T(1), T(2, 3), T(3), beta=0),
        case(T(0), T(0, 3), T(3)),
        case(T(2), T(2, 0), T(0)),
        case(T(2), T(2, 3), T(3), beta=0.5, alpha=-1.5, only=FLOAT_COMPLEX),
        case(T(2), T(2, 3), T(3), beta=1j, alpha=2 - 1j, only=COMPLEX),
    ],
    ref=lambda np, self, mat, vec, beta=1, alpha=1: beta * self + alpha * (mat @ vec),
    inplace_function=True,
)


def _addr(self, vec1, vec2, beta, alpha):
    check_vectors("addr", vec1=vec1, vec2=vec2)
    product = vec1.unsqueeze(1) * vec2
    self = self.expand(product.shape)
    whole = not any(t.is_floating_point() or t.is_complex() for t in (self, product))
    for name, value in (("beta", beta), ("alpha", alpha)):
        if whole and not isinstance(value, (bool, int)):
            raise RuntimeError(
                f"For integral input tensors, argument {name} must not be a floating point number."
            )
    if str(product.dtype) == str(self.dtype) == "pullback.bool":
        alpha, beta = bool(alpha), bool(beta)
    out = product if alpha == 1 else product * alpha
    return out + (self if beta == 1 else self * beta if beta != 0 else ops.zeros_like(self))


op(
    "addr(self: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) "
    "-> Tensor",
    autocast=(None, "lower"),
    forward=_addr,
    inplace=True,
    out=True,
    dtypes=ALL,
    vjp={
        "self": lambda g, beta: ops.scaled(g, ops.conj(beta)),
        "vec1": lambda g, vec2, alpha: ops.scaled((g * ops.conj(vec2)).sum(1), ops.conj(alpha)),
        "vec2": lambda g, vec1, alpha: ops.scaled(
            (g * ops.conj(vec1.unsqueeze(1))).sum(0), ops.conj(alpha)
        ),
    },
    doc="Return beta * self + alpha * outer(vec1, vec2).\n\nWith beta = 0, NaN in self does not "
    "matter. Operands of several dtypes are promoted.",
    samples=lambda: [
        case(T(2, 3), T(2), T(3)),
        case(T(3), T(2), T(3), beta=2, alpha=3),
        case(T(), T(2), T(3), beta=0),
        case(T(2, 0), T(2), T(0)),
        case(T(2, 3), T(2), T(3), beta=0.5, alpha=-1.5, only=FLOAT_COMPLEX),
        case(T(2, 3), T(2), T(3), beta=1j, alpha=2 - 1j, only=COMPLEX),
    ],
    ref=references.addr,
)


def _batches(name, batch1, batch2):
    for argument, batch in (("batch1", batch1), ("batch2", batch2)):
        if batch.ndim != 3:
            raise RuntimeError(f"{name}(): {argument} must be a 3D tensor, got {batch.ndim}D")


def _baddbmm(self, batch1, batch2, beta, alpha):
    _batches("baddbmm", batch1, batch2)
    _same_dtypes(
        "Input dtypes must be the same, got: input {}, batch1: {}, batch2: {}", self, batch1, batch2
    )
    return _add_product(self, ops.bmm(batch1, batch2), beta, alpha, "baddbmm")


op(
    "baddbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, "
    "alpha: Scalar = 1) -> Tensor",
    autocast="lower",
    forward=_baddbmm,
    kernel="bmm",
    inplace=True,
    out=True,
    vjp={
        "self": lambda g, beta: ops.scaled(g, ops.conj(beta)),
        "batch1": lambda g, batch2, alpha: ops.scaled(
            g.bmm(batch2.transpose(1, 2).conj()), ops.conj(alpha)
        ),
        "batch2": lambda g, batch1, alpha: ops.scaled(
            batch1.transpose(1, 2).conj().bmm(g), ops.conj(alpha)
        ),
    },
    out_overlap=True,
    out_dtype="exact",
    doc="Return beta * self + alpha * (batch1 @ batch2), batch by batch.\n\nWith beta = 0, self is "
    "not read: NaN in it does not matter.",
    samples=lambda: [
        case(T(2, 2, 4), T(2, 2, 3), T(2, 3, 4)),
        case(T(4), T(2, 2, 3), T(2, 3, 4), beta=2, alpha=3),
        case(T(2, 1, 1), T(2, 2, 3), T(2, 3, 4), beta=0),
        case(T(), T(2, 2, 0), T(2, 0, 3)),
        case(T(0, 2, 3), T(0, 2, 3), T(0, 3, 3)),
        case(T(4), T(2, 2, 3), T(2, 3, 4), beta=0.5, alpha=-1.5, only=FLOAT_COMPLEX),
        case(T(4), T(2, 2, 3), T(2, 3, 4), beta=1j, alpha=2 - 1j, only=COMPLEX),
    ],
    ref=lambda np, self, batch1, batch2, beta=1, alpha=1: beta * self + alpha * (batch1 @ batch2),
    dtypes=NUMBERS,
)


def _addbmm(self, batch1, batch2, beta, alpha):
    """One product of matrices: the batches are joined in the dim that is summed."""
    _batches("addbmm", batch1, batch2)
    (count, rows, inner), (other, have, columns) = batch1.shape, batch2.shape
    if count != other:
        raise RuntimeError(
            f"batch1 and batch2 must have same number of batches, got {count} and {other}"
        )
    if inner != have:
        raise RuntimeError(
            f"Incompatible matrix sizes for bmm ({rows}x{inner} and {have}x{columns})"
        )
    _same_dtypes("mat1 and mat2 must have the same dtype, but got {} and {}", batch1, batch2)
    _same_dtypes("self and mat2 must have the same dtype, but got {} and {}", self, batch2)
    left = batch1.permute((1, 0, 2)).reshape((rows, count * inner))
    product = ops.mm(left, batch2.reshape((count * inner, columns)))
    return _add_product(self, product, beta, alpha, "addbmm")


op(
    "addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) "
    "-> Tensor",
    autocast="lower",
    forward=_addbmm,
    kernel="bmm",
    inplace=True,
    out=True,
    dtypes=NUMBERS,
    vjp={
        "self": lambda g, beta: ops.scaled(g, ops.conj(beta)),
        "batch1": lambda g, batch1_shape, batch2, alpha: ops.scaled(
            ops.matmul(g, batch2.transpose(1, 2).conj()), ops.conj(alpha)
        ),
        "batch2": lambda g, batch1, batch2_shape, alpha: ops.scaled(
            ops.matmul(batch1.transpose(1, 2).conj(), g), ops.conj(alpha)
        ),
    },
    out_overlap=True,
    out_dtype="exact",
    doc="Return beta * self + alpha * (the sum of the products of two batches of matrices).\n\n"
    "With beta = 0, self is not read: NaN in it does not matter.",
    samples=lambda: [
        case(T(2, 4), T(2, 2, 3), T(2, 3, 4)),
        case(T(4), T(2, 2, 3), T(2, 3, 4), beta=2, alpha=3),
        case(T(2, 1), T(2, 2, 3), T(2, 3, 4), beta=0),
        case(T(2, 3), T(0, 2, 2), T(0, 2, 3)),
        case(T(4), T(2, 2, 3), T(2, 3, 4), beta=0.5, alpha=-1.5, only=FLOAT_COMPLEX),
        case(T(4), T(2, 2, 3), T(2, 3, 4), beta=1j, alpha=2 - 1j, only=COMPLEX),
    ],
    ref=lambda np, self, batch1, batch2, beta=1, alpha=1: (
        beta * self + alpha * (batch1 @ batch2).sum(0)
    ),
)


# -- the cross product -----------------------------------------------------------------------------

op(
    "linalg_matmul(self: Tensor, other: Tensor) -> Tensor",
    autocast="lower",
    composite=_matmul,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="matmul",
    ref="numpy.matmul",
    dtypes=NUMBERS,
    doc="Return the matrix product, broadcast over leading dims.",
    samples=lambda: [case(T(2, 3), T(3, 4)), case(T(3), T(3)), case(T(2, 2, 3), T(3, 2))],
)
