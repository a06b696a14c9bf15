"""Distances between vectors, and the angle between them."""

import math

from pullback.ops.reductions.norms import reads_norm
from pullback.ops.rules.dtypes import dtype_named, type_name, unsupported
from pullback.ops.rules.shapes import broadcast_shape
from pullback.ops.table.kinks import INFINITY, TORCH_NAN, kink
from pullback.ops.table.samples import KINKS, T, case, fixed, references_of
from pullback.ops.table.schema import FLOAT_COMPLEX, FLOATING, HALF, NUMBERS, op, ops

references = references_of("linalg")

_WIDE = FLOATING & ~HALF
_ORDERS = (0, 0.5, 1, 1.5, 2, 3, math.inf)


def _length(difference, p):
    """Return the p-norm of the last dim."""
    if not difference.shape[-1]:
        return ops.sum(difference, -1)
    return ops._vector_norm(difference, p, -1, False)


def _norm_backward(g, difference, distance, p):
    """The gradient of the p-norm of the last dim, as torch takes it for distances.

    It is 0 where the distance is 0, and the maximum norm gives all of it to each of equal elements.
    """
    g = g.unsqueeze(-1)
    if p == 0:
        return ops.zeros_like(difference)
    if p == 1:
        return g * ops.sgn(difference)
    size, distance = ops.abs(difference), distance.unsqueeze(-1)
    if p == math.inf:
        return g * ops.sgn(difference) * (size == distance)
    g, far = ops.where(distance == 0, 0, g), ops.where(distance == 0, 1, distance)
    if p == 2:
        return g * difference / far
    still = (distance == 0) | (difference == 0) if p < 2 else distance == 0
    safe = ops.where(still, 1, size)
    return g * ops.sgn(difference) * safe ** (p - 1) / far ** (p - 1)


# -- each row with each other ----------------------------------------------------------------------


def _gaps(x1, x2):
    return x1.unsqueeze(-2) - x2.unsqueeze(-3)


def _cdist_vjp(g, x1, x2, out, p):
    derivative = _norm_backward(g, _gaps(x1, x2), out, p)
    return derivative.sum(-2), -derivative.sum(-3)


op(
    "_cdist_forward(x1: Tensor, x2: Tensor, p: float) -> Tensor",
    method=False,
    function=False,
    forward=lambda x1, x2, p: _length(_gaps(x1, x2), p),
    node="CdistBackward0",
    reads_out=lambda x1, x2, p: reads_norm(p),
    vjp={("x1", "x2"): _cdist_vjp},
    dtypes=_WIDE,
    ref=references.cdist,
    doc="Return the distances of the rows of two matrices, of one batch shape.",
    samples=lambda: [
        *(case(T(2, 3), T(4, 3), p) for p in _ORDERS),
        case(T(2, 2, 3), T(2, 1, 3), 2),
        case(T(2, 0), T(3, 0), 2),
        case(T(0, 3), T(2, 3), 1),
    ],
)


def _euclidean(x1, x2):
    squares = ops.sum(x1 * x1, -1, True) + ops.sum(x2 * x2, -1).unsqueeze(-2)
    square = squares - 2 * ops.matmul(x1, x2.transpose(-2, -1))
    return ops.sqrt(ops.where(square < 0, 0, square))


def _euclidean_vjp(g, x1, x2, out):
    ratio = ops.where(out == 0, 0, g) / ops.where(out == 0, 1, out)
    back = ratio.transpose(-2, -1)
    return (
        x1 * ratio.sum(-1, True) - ops.matmul(ratio, x2),
        x2 * back.sum(-1, True) - ops.matmul(back, x1),
    )


op(
    "euclidean_dist(x1: Tensor, x2: Tensor) -> Tensor",
    forward=_euclidean,
    method=False,
    function=False,
    vjp={("x1", "x2"): _euclidean_vjp},
    dtypes=_WIDE,
    ref=references.cdist,
    doc="Return Euclidean distances of rows by one matrix product: fast, but small ones are rough.",
    samples=lambda: [case(T(2, 3), T(4, 3)), case(T(2, 2, 3), T(2, 4, 3))],
)

_MODES = {
    "use_mm_for_euclid_dist_if_necessary": None,
    "use_mm_for_euclid_dist": True,
    "donot_use_mm_for_euclid_dist": False,
}


def _check_rows(x1, x2, p):
    for name, x in (("X1", x1), ("X2", x2)):
        if not x.is_floating_point():
            raise RuntimeError(
                f"cdist only supports floating-point dtypes, {name} got: {type_name(x.dtype)}"
            )
    for name, x in (("X1", x1), ("X2", x2)):
        if x.ndim < 2:
            raise RuntimeError(f"cdist only supports at least 2D tensors, {name} got: {x.ndim}D")
    if x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(
            f"X1 and X2 must have the same number of columns. X1: {x1.shape[-1]} X2: {x2.shape[-1]}"
        )
    if not p >= 0:
        raise RuntimeError("cdist only supports non-negative p values")
    if x1.dtype != x2.dtype:
        raise RuntimeError(
            f"cdist: expected scalar type {type_name(x1.dtype)} but found {type_name(x2.dtype)}"
        )
    if x1.dtype.itemsize == 2:
        raise unsupported("cdist", x1.dtype)


def _cdist(x1, x2, p, compute_mode):
    if compute_mode not in _MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    _check_rows(x1, x2, p)
    batch = broadcast_shape(x1.shape[:-2], x2.shape[:-2])
    x1, x2 = x1.expand((*batch, *x1.shape[-2:])), x2.expand((*batch, *x2.shape[-2:]))
    by_product = _MODES[compute_mode]
    if by_product is None:  # torch's threshold
        by_product = x1.shape[-2] > 25 or x2.shape[-2] > 25
    if p == 2 and by_product and x1.shape[-1]:
        return ops.euclidean_dist(x1, x2)
    return ops._cdist_forward(x1, x2, float(p))


op(
    "cdist(x1: Tensor, x2: Tensor, p: float = 2.0, "
    "compute_mode: str = 'use_mm_for_euclid_dist_if_necessary') -> Tensor",
    autocast="float32",
    composite=_cdist,
    method=False,
    dtypes=_WIDE,
    ref=references.cdist,
    doc="Return the p-norm distance of each row of x1 from each row of x2.\n\nShape: (..., p, m) "
    "and (..., r, m) give (..., p, r).\n\nDerivative: 0 where a distance is 0.\n\nEuclidean "
    "distances of more than 25 rows come from a matrix product, unless `compute_mode` says "
    "otherwise.",
    kinks=[
        kink([[1.0, 1.0]], [[1.0, 1.0]], to=([[0.0, 0.0]], [[0.0, 0.0]]), second=None),
        kink([[1.0, 1.0]], [[1.0, 1.0]], 1.0, to=([[0.0, 0.0]], [[0.0, 0.0]])),
    ],
    samples=lambda: [
        *(case(T(2, 3), T(4, 3), p=p) for p in _ORDERS),
        case(T(2, 1, 2, 3), T(3, 4, 3)),
        case(T(2, 3), T(4, 3), compute_mode="use_mm_for_euclid_dist"),
        case(T(2, 3), T(4, 3), compute_mode="donot_use_mm_for_euclid_dist"),
        case(T(2, 0), T(4, 0)),
        case(T(0, 3), T(2, 3)),
        case(T(26, 2), T(2, 2)),
    ],
)


# -- each pair of rows -----------------------------------------------------------------------------


def _pairs(self):
    """Return the numbers of the first and the second row of each pair, in row-major order.

    Row i begins at pair i * (2 n - i - 1) / 2; solving for i may be off by one, which is mended.
    """
    n = self.shape[0]
    position = ops.arange_like(self, n * (n - 1) // 2)
    root = ops.sqrt((2 * n - 1) ** 2 - 8 * ops.cast(position, dtype_named("float64")))
    first = ops.cast(((2 * n - 1) - root) / 2, dtype_named("int64"))

    def start(row):
        return ops.bitwise_right_shift(row * (2 * n - 1 - row), 1)

    first = ops.where(start(first) > position, first - 1, first)
    first = ops.where(start(first + 1) <= position, first + 1, first)
    return first, position - start(first) + first + 1


def _pair_gaps(self):
    first, second = _pairs(self)
    return ops.index_select(self, 0, first) - ops.index_select(self, 0, second)


def _pdist_vjp(g, self, out, p):
    derivative = _norm_backward(g, _pair_gaps(self), out, p)
    first, second = _pairs(self)
    shape = tuple(self.shape)
    return ops.index_backward(derivative, shape, (first,)) - ops.index_backward(
        derivative, shape, (second,)
    )


op(
    "_pdist_forward(self: Tensor, p: float) -> Tensor",
    method=False,
    function=False,
    forward=lambda self, p: _length(_pair_gaps(self), p),
    vjp={"self": _pdist_vjp},
    reads_out=lambda self, p: reads_norm(p),
    node="PdistBackward0",
    dtypes=_WIDE,
    ref=references.pdist,
    doc="Return the distances of all pairs of rows of a matrix.",
    samples=lambda: [*(case(T(4, 3), p) for p in _ORDERS), case(T(1, 3), 2), case(T(3, 0), 2)],
)


def _pdist(self, p):
    if self.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {self.ndim}D")
    if not self.is_floating_point():
        raise RuntimeError("pdist only supports floating-point dtypes")
    if not p >= 0:
        raise RuntimeError("pdist only supports non-negative p values")
    if self.dtype.itemsize == 2:
        raise unsupported("pdist", self.dtype)
    return ops._pdist_forward(self, float(p))


op(
    "pdist(self: Tensor, p: float = 2) -> Tensor",
    autocast=(None, "float32"),
    composite=_pdist,
    method=False,
    namespace=("", "functional"),
    dtypes=_WIDE,
    ref=references.pdist,
    doc="Return the p-norm distances of all pairs of rows: the upper triangle of cdist, row by "
    "row.\n\nDerivative: 0 where a distance is 0.",
    kinks=[kink([[1.0, 1.0], [1.0, 1.0]], to=[[0.0, 0.0], [0.0, 0.0]], second=None)],
    samples=lambda: [
        *(case(T(4, 3), p=p) for p in _ORDERS),
        case(T(5, 2)),
        case(T(1, 3)),
        case(T(0, 3)),
        case(T(3, 0)),
        case(T(2, 1)),
    ],
)


# -- row by row ------------------------------------------------------------------------------------


def _pairwise_distance(x1, x2, p, eps, keepdim):
    gap = x1 - x2 + eps
    if not gap.ndim:
        return ops.norm(gap, p)
    return ops.norm(gap, p, gap.ndim - 1, keepdim)


op(
    "pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2, eps: float = 1e-06, "
    "keepdim: bool = False) -> Tensor",
    composite=_pairwise_distance,
    method=False,
    namespace=("", "functional"),
    dtypes=NUMBERS,
    ref=references.pairwise_distance,
    doc="Return the p-norm of x1 - x2 + eps along the last dim.",
    kinks=[
        kink(
            [[1.0, 1.0]], [[1.0, 1.0]], 2.0, 0.0, to=([[0.0, 0.0]], [[0.0, 0.0]]), differs=TORCH_NAN
        )
    ],
    samples=lambda: [
        *(case(T(2, 3), T(2, 3), p, skip=KINKS if p == 0 else {}) for p in (*_ORDERS, -1)),
        case(T(2, 3), T(3), keepdim=True),
        case(T(3), T(3), 2, 0.1),
        case(T(2, 0), T(2, 0)),
        case(T(2, 1, 3), T(4, 3)),
    ],
)
op(
    "at_least(self: Tensor, low: Scalar) -> Tensor",
    jvp="pointwise",
    batch="unary",
    method=False,
    function=False,
    forward=lambda self, low: ops.where(self < low, low, self),
    vjp={"self": lambda g: g},
    dtypes=FLOATING,
    doc="Return the larger of self and a number; derivative 1 everywhere.",
    kinks=[kink([0.0, 2.0], 1.0, to=[1.0, 1.0], outside="it is clamp_min with the derivative 1")],
    nonderivative_at=lambda *arrays: True,
    samples=lambda: [case(T(2, 3, low=0.5, high=2), 0.1), case(fixed((0, 1, 2)), 1.5, skip=KINKS)],
    ref=lambda np, self, low: np.maximum(self, low),
)


def _cosine_similarity(x1, x2, dim, eps):
    import pullback

    common = pullback.promote_types(x1.dtype, x2.dtype)
    if not common.is_floating_point:
        raise RuntimeError(
            f"expected common dtype to be floating point, yet common dtype is {type_name(common)}"
        )
    shape = broadcast_shape(x1.shape, x2.shape)
    x1, x2 = (x.to(common).expand(shape) for x in (x1, x2))
    sizes = [ops.clamp_min(ops.norm(x, 2, dim, True), eps) for x in (x1, x2)]
    return ops.sum((x1 / sizes[0]) * (x2 / sizes[1]), dim)


op(
    "cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-08) -> Tensor",
    autocast=(None, "float32"),
    composite=_cosine_similarity,
    method=False,
    namespace=("", "functional"),
    dtypes=FLOATING,
    ref=references.cosine_similarity,
    doc="Return the cosine of the angle between vectors along a dim; norms count as at least eps.",
    kinks=[
        kink(
            [0.0, 0.0],
            [1.0, 2.0],
            dim=0,
            to=([2e8 / math.sqrt(20), 4e8 / math.sqrt(20)], [0.0, 0.0]),
            second=None,
            outside="it turns 1e-8 away from there",
        )
    ],
    samples=lambda: [
        case(T(2, 3), T(2, 3)),
        case(T(2, 3), T(3), -1),
        case(T(3), T(3), 0),
        case(T(2, 3), T(4, 2, 3), dim=2),
        case(T(2, 1), T(1, 3), 0),
        case(T(2, 0), T(2, 0)),
        case(T(2, 3), T(2, 3), eps=10, skip=KINKS),
    ],
)


def _normalize(self, p, dim, eps):
    size = ops.clamp(ops.norm(self, p, dim, True), min=eps)
    return self / size


op(
    "normalize(self: Tensor, p: float = 2.0, dim: int[] = 1, eps: float = 1e-12) -> Tensor",
    composite=_normalize,
    method=False,
    namespace="functional",
    out=True,
    dtypes=FLOAT_COMPLEX,
    ref=references.normalize,
    doc="Return self divided by its p-norm along some dims, which counts as at least eps.",
    kinks=[
        kink(
            [0.0, 0.0],
            dim=0,
            to=[1e12, 1e12],
            differs=TORCH_NAN,
            outside="it turns 1e-12 away from there",
        )
    ],
    samples=lambda: [
        case(T(2, 3)),
        case(T(2, 3), 1.0, 0),
        case(T(3), dim=0),
        case(T(2, 3), 3, -1),
        case(T(2, 3, 2), dim=(1, 2)),
        case(T(2, 3), math.inf),
        case(T(0, 3)),
        case(T(2, 3), eps=100.0),
        case(fixed((0, 0, 3, 4), shape=(2, 2)), skip=KINKS, only=_WIDE),
    ],
)


def _linalg_vector_norm(self, ord, dim, keepdim, dtype):
    if isinstance(ord, bool) or not isinstance(ord, (int, float)):
        raise TypeError(
            f"linalg_vector_norm(): argument 'ord' must be Number, not {type(ord).__name__}"
        )
    return ops.norm(self, ord, dim, keepdim, dtype)


op(
    "linalg_vector_norm(self: Tensor, ord: Scalar = 2, dim: int[]? = None, keepdim: bool = False, "
    "*, dtype: dtype? = None) -> Tensor",
    autocast=(None, "dtype"),
    composite=_linalg_vector_norm,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="vector_norm",
    out=True,
    dtypes=FLOAT_COMPLEX,
    ref=references.vector_norm,
    doc="Return the vector norm of order `ord` over some dims, or all.\n\nRaises: RuntimeError for "
    "integers.",
    kinks=[
        kink([0.0, 0.0], to=[0.0, 0.0], differs=TORCH_NAN),
        kink([0.0, 1.0], 1, to=[0.0, 1.0]),
        kink([1.0, -1.0], INFINITY, to=[0.5, -0.5]),
        kink([1.0, -1.0], -INFINITY, to=[0.5, -0.5]),
        kink([0.0, 0.0], 3, to=[0.0, 0.0]),
    ],
    samples=lambda: [
        case(T(2, 3)),
        case(T(2, 3), 1, 0),
        case(T(2, 3), math.inf, -1, True),
        case(T(2, 3), 3, (0, 1)),
        case(T(2, 3), 0.5, 1),
        case(T(2, 0), 2),
        case(T()),
    ],
)
