"""Norms of vectors; dist and renorm."""

import math

from pullback.ops.rules.arguments import check_number
from pullback.ops.rules.dims import wrap_dim, wrap_dims
from pullback.ops.rules.dtypes import accumulate_dtype, cast_to, check_inexact, type_name
from pullback.ops.table.kinks import INFINITY, TORCH_NAN, kink
from pullback.ops.table.samples import KINKS, SPECIAL, Dtype, T, case, fixed, references_of
from pullback.ops.table.schema import FLOAT_COMPLEX, FLOATING, HALF, op, ops

references = references_of("reductions")


def _check_norm(self, order, dim, dtype):
    """Check that the operand has a vector norm."""
    check_inexact("linalg.vector_norm", self)
    if dtype is not None:
        if dtype.kind not in "fc" or dtype.is_complex != self.is_complex():
            raise RuntimeError(
                f"linalg.vector_norm: dtype should be floating point for real and "
                f"complex for complex inputs, but got {type_name(dtype)}"
            )
        if dtype.itemsize < self.dtype.itemsize:
            raise RuntimeError(
                f"linalg.vector_norm: the dtype of the input "
                f"({type_name(self.dtype)}) should be convertible without narrowing "
                f"to the specified dtype ({type_name(dtype)})"
            )
    if order < 0 or order == math.inf:
        for d in wrap_dims(dim, self.ndim, "norm"):
            if self.shape[d]:
                continue
            where = (
                f"the dimension {d} because this dimension is empty"
                if dim is not None
                else "an empty tensor because"
            )
            raise RuntimeError(
                f"linalg.vector_norm cannot compute the {order:g} norm on {where} "
                f"and the operation does not have an identity"
                if dim is not None
                else f"linalg.vector_norm cannot compute the {order:g} norm on "
                f"{where} the operation does not have an identity"
            )


op(
    "sum_squares(self: Tensor, dim: int[]?, keepdim: bool, dtype: dtype? = None) -> Tensor",
    forward="sum",
    kernel="sum_squares",
    vjp={
        "self": lambda g, self, self_shape, dim, keepdim: (
            ops.sum_backward(g, self_shape, dim, keepdim) * self * 2
        )
    },
    method=False,
    function=False,
    dtypes=FLOATING & ~HALF,
    doc="Return the sum of the squares.",
    ref=lambda np, self, dim, keepdim: np.sum(self * self, dim, keepdims=keepdim),
    samples=lambda: [
        case(T(2, 3), None, False),
        case(T(2, 3), 0, True),
        case(T(2, 3), (0, 1), False),
        case(T(), None, False),
        case(T(0, 3), 0, False),
        case(T(3, 40), 1, False),
    ],
)


def _vector_norm(self, order, dim, keepdim):
    real = self.dtype.to_real() if self.is_complex() else self.dtype
    size = cast_to(self, accumulate_dtype(self.dtype))
    if order != 2 or self.is_complex():
        size = ops.abs(size)
    if order == math.inf or order == -math.inf:
        out = (ops.amax if order > 0 else ops.amin)(size, () if dim is None else dim, keepdim)
    elif order == 0:
        out = ops.sum(size != 0, dim, keepdim)
    elif order == 1:
        out = ops.sum(size, dim, keepdim)
    elif order == 2:
        out = ops.sqrt(ops.sum_squares(size, dim, keepdim))
    else:
        out = ops.pow(ops.sum(ops.pow(size, order), dim, keepdim), 1.0 / order)
    return cast_to(out, real)


def _vector_norm_vjp(g, self, out, order, dim, keepdim):
    """The subgradients that torch takes: 0 at 0, and even shares among equally large elements."""
    if order == 0:
        return None
    if order != 1 and not math.isinf(order):  # where all elements are 0, the derivative is 0
        g, out = ops.where(out == 0, 0, g), ops.where(out == 0, 1, out)
    g = ops.sum_backward(g, self.shape, dim, keepdim)
    if order == 1:
        return g * ops.sgn(self)
    norm = ops.sum_backward(out, self.shape, dim, keepdim)
    if order == 2:
        return g * (self / norm)
    size = ops.abs(self)
    if math.isinf(order):
        chosen = (size == norm) | ((size != size) & (norm != norm))
        count = ops.sum(chosen, () if dim is None else dim, True)
        return g * ops.sgn(self) * chosen / count
    if order < 1:
        size = ops.where(self == 0, 1, size)
        return g * ops.sgn(self) * ops.pow(size, order - 1) * ops.pow(norm, 1 - order)
    scale = g / ops.pow(norm, order - 1)
    if order < 2:
        return ops.sgn(self) * ops.pow(size, order - 1) * scale
    return self * ops.pow(size, order - 2) * scale


def reads_norm(order):
    """Return whether the gradient of a norm of this order depends on the norm itself."""
    return order != 0 and order != 1


op(
    "_vector_norm(self: Tensor, order: Scalar, dim: int[]?, keepdim: bool) -> Tensor",
    reads_out=lambda self, order, dim, keepdim: reads_norm(order),
    forward=_vector_norm,
    batch="along",
    method=False,
    function=False,
    dtypes=FLOAT_COMPLEX,
    node="LinalgVectorNormBackward0",
    vjp={
        "self": lambda g, self, out, order, dim, keepdim: _vector_norm_vjp(
            g, self, out, order, dim, keepdim
        )
    },
    doc="Return the vector norm over checked dims.",
    ref=references.vector_norm,
    samples=lambda: [
        case(T(2, 3), 2, None, False),
        case(T(2, 3), 1, 0, False),
        case(T(2, 3), math.inf, -1, True),
        case(T(2, 3), -math.inf, None, False),
        case(T(2, 3), 3, (0, 1), True),
        case(T(2, 3), 1.5, 1, False),
        case(T(2, 3), 0.5, 1, False),
        case(T(2, 3), -1, 1, False),
        case(T(3), 0, None, False, skip=KINKS),
        case(T(), 2, None, False),
        case(T(0), 2, None, False),
        case(T(0, 3), 3, 0, False),
        case(
            fixed((0, 3, -4)),
            2.5,
            0,
            False,
            skip={"gradgrad": "the second derivative at 0 is infinite"},
        ),
    ],
)


def _norm(self, p, dim, keepdim, dtype):
    if isinstance(p, str):
        if p != "fro":
            dim = tuple(range(self.ndim)) if dim is None else dim
            return ops.linalg_matrix_norm(self, p, dim, keepdim, dtype=dtype)
        if isinstance(dim, (tuple, list)) and len(dim) > 2:
            raise RuntimeError(
                f"linalg.matrix_norm: dim must be a 2-tuple. Got {' '.join(map(str, dim))}"
            )
        p = 2
    p = 2 if p is None else p
    check_number(p, "norm", "p")
    _check_norm(self, p, dim, dtype)
    if dtype is not None:
        self = cast_to(self, dtype)
    return ops._vector_norm(self, p, dim, keepdim)


op(
    "norm(self: Tensor, p: any = 'fro', dim: int[]? = None, keepdim: bool = False, "
    "dtype: dtype? = None) -> Tensor",
    autocast=(None, "dtype"),
    composite=_norm,
    out=True,
    dtypes=FLOAT_COMPLEX,
    out_overlap=True,
    out_dtype="exact",
    ref=references.norm,
    doc="Return a norm over some dims, or all.\n\n`p` is the order of a vector norm, 'fro' for the "
    "Frobenius norm, which is that of order 2, or 'nuc' for the sum of the singular values of a "
    "matrix.\n\nRaises: RuntimeError for integers, bools "
    "and other names.",
    kinks=[
        kink([0.0, 0.0], to=[0.0, 0.0], differs=TORCH_NAN),
        kink([0.0, 1.0], 1, to=[0.0, 1.0]),
        kink([1.0, -1.0], INFINITY, to=[0.5, -0.5]),
    ],
    samples=lambda: [
        case(T(2, 3)),
        case(T(2, 3), 2, 0),
        case(T(2, 3), 1, -1, True),
        case(T(2, 3), "fro"),
        case(T(2, 3, 2), "fro", (0, 2)),
        case(T(2, 3), math.inf),
        case(T(2, 3), -math.inf, 1),
        case(T(2, 3), 3, (0, 1)),
        case(T()),
        case(T(0)),
        case(T(0, 3), dim=0),
        case(T(2, 3), 2, 1, dtype=Dtype("float64"), only=FLOATING),
        case(T(2, 3), 0, 1, skip=KINKS),
        case(T(2, 3), p=None, dim=0),
        *(
            case(
                T(2, 3, 2),
                "nuc",
                (0, 2),
                keepdim,
                only=FLOAT_COMPLEX & ~HALF,
                skip={"expanded": "a singular value of 0 is a kink"},
            )
            for keepdim in (False, True)
        ),
        case(fixed(SPECIAL), skip=KINKS, only=FLOATING),
    ],
)


def _check_norm_dtype(self):
    if self.dtype.kind not in "fc":
        raise RuntimeError(
            f"norm(): input dtype should be either floating point or complex. Got "
            f"{type_name(self.dtype)} instead."
        )


def _norm_except_dim(v, pow, dim):
    _check_norm_dtype(v)
    if dim == -1:
        return ops._vector_norm(v, pow, None, False)
    if not v.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    dim = wrap_dim(dim, v.ndim, "norm_except_dim")
    if v.ndim == 1:
        return v.abs()
    return ops._vector_norm(v, pow, tuple([d for d in range(v.ndim) if d != dim]), True)


op(
    "norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor",
    autocast=(None, "float32"),
    composite=_norm_except_dim,
    method=False,
    dtypes=FLOAT_COMPLEX,
    ref=references.norm_except_dim,
    doc="Return the norm of order `pow` over all dims but one, which keep the size 1.\n\nWith "
    "dim=-1 over all dims, as a number. It is what weight normalization divides by.\n\n"
    "Raises: RuntimeError for integers and bools.\n\n"
    ">>> import pullback\n"
    ">>> pullback.norm_except_dim(pullback.tensor([[3., 4.], [0., 2.]]))\n"
    "tensor([[5.],\n        [2.]])",
    kinks=[kink([[0.0, 0.0]], to=[[0.0, 0.0]], differs=TORCH_NAN)],
    samples=lambda: [
        case(T(2, 3)),
        case(T(2, 3), 1, 1),
        case(T(2, 3, 2), 2, 1),
        case(T(2, 3), 2, -1),
        case(T(3)),
        case(T(0, 3)),
    ],
)


def _dist(self, other, p):
    check_number(p, "dist", "p")
    gap = self - other
    _check_norm_dtype(gap)
    return _vector_norm(gap, p, None, False)


op(
    "dist(self: Tensor, other: Tensor, p: Scalar = 2) -> Tensor",
    autocast=(None, "float32"),
    forward=_dist,
    reads_out=lambda self, other, p: reads_norm(p),
    dtypes=FLOAT_COMPLEX,
    ref=references.dist,
    vjp={
        "self": lambda g, self, other, out, p: _vector_norm_vjp(
            g, self - other, out, p, None, False
        ),
        "other": lambda g, self, other, out, p: _vector_norm_vjp(
            g, other - self, out, p, None, False
        ),
    },
    doc="Return the norm of the difference of two tensors, which are broadcast.",
    kinks=[
        kink([1.0, 1.0], [1.0, 1.0], to=([0.0, 0.0], [0.0, 0.0]), differs=TORCH_NAN),
        kink([1.0, 2.0], [1.0, 1.0], 1, to=([0.0, 1.0], [0.0, -1.0])),
    ],
    samples=lambda: [
        case(T(2, 3), T(2, 3)),
        case(T(2, 3), T(3), 1),
        case(T(3), T(2, 1), math.inf),
        case(T(), T(), 3),
        case(T(0), T(0)),
        case(T(2, 3), T(2, 3), 0, skip=KINKS),
    ],
)


def _renorm(self, p, dim, maxnorm):
    check_number(p, "renorm", "p")
    check_number(maxnorm, "renorm", "maxnorm")
    if isinstance(p, complex) or p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")
    if self.ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {self.ndim} dimensions")
    dim = wrap_dim(dim, self.ndim, "renorm")
    _check_norm(self, p, tuple(d for d in range(self.ndim) if d != dim), None)
    others = tuple(d for d in range(self.ndim) if d != dim)
    norm = ops._vector_norm(self, p, others, True)
    scale = ops.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1)
    return self * scale


op(
    "renorm(self: Tensor, p: Scalar, dim: int, maxnorm: Scalar) -> Tensor",
    autocast=(None, "float32"),
    composite=_renorm,
    inplace=True,
    out=True,
    dtypes=FLOAT_COMPLEX,
    out_dtype="exact",
    ref=references.renorm,
    doc="Return self with each slice along a dim whose p-norm is above `maxnorm` scaled to it.\n\n"
    "Raises: RuntimeError for a p that is not positive, and below 2 dims.",
    kinks=[kink([[3.0, 4.0]], 2.0, 0, 5.0, to=[[1.0, 1.0]])],
    samples=lambda: [
        case(T(3, 4), 2, 0, 1.0),
        case(T(3, 4), 1, 1, 2),
        case(T(2, 3, 2), 3, -1, 2.5),
        case(T(2, 3), math.inf, 0, 1),
        case(T(3, 4), 2, 0, 100),
        case(T(0, 3), 2, 0, 1),
        case(fixed((0, 0, 3, 4), shape=(2, 2)), 2, 0, 1, skip=KINKS),
    ],
    inplace_function=False,
)
