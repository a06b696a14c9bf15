"""Singular value decompositions, and norms of matrices made of singular values."""

import math

from pullback.ops.linalg.matrices import (
    SOLVED,
    adjoint,
    fail_first,
    identity_like,
    new_info,
    run_on_batch,
)
from pullback.ops.rules.dims import wrap_dim
from pullback.ops.rules.dtypes import cast_to, check_inexact, type_name, unsupported
from pullback.ops.rules.operands import check_all
from pullback.ops.table.kinks import TORCH_NAN, kink
from pullback.ops.table.primitives_api import new_empty, run_primitive
from pullback.ops.table.samples import KINKS, Dtype, T, case, fixed, references_of
from pullback.ops.table.schema import FLOAT_COMPLEX, FLOATING, op, ops, result_type

references = references_of("linalg")

_SVD = result_type("linalg_svd", "U", "S", "Vh")
_OLD_SVD = result_type("svd", "U", "S", "V")


# -- the primitive ---------------------------------------------------------------------------------


def _forward(self, full_matrices):
    """Decompose a batch of matrices; where they are empty, full factors are identities."""
    import pullback

    batch, (rows, columns) = tuple(self.shape[:-2]), self.shape[-2:]
    count = min(rows, columns)
    left, right = (rows, columns) if full_matrices else (count, count)
    u = new_empty(self, (*batch, rows, left))
    vh = new_empty(self, (*batch, right, columns))
    values = new_empty(self, (*batch, count), self.dtype.to_real())
    info = ops.new_zeros(self, batch, dtype=pullback.int32)
    if not count:
        return identity_like(u), values, identity_like(vh), info
    if self.numel():
        size = math.prod(batch)
        run_primitive(
            "svd",
            (
                u.reshape((size, rows, left)),
                values.reshape((size, count)),
                vh.reshape((size, right, columns)),
                info.reshape(size),
            ),
            (self.reshape((size, rows, columns)),),
        )
    return u, values, vh, info


def _skew(matrices):
    return matrices - adjoint(matrices)


def _diagonal(matrices):
    return matrices.diagonal(0, -2, -1)


def _check_phase(u_part, v_part):
    """Raise where a result depends on the phases of complex singular vectors, which are free."""
    turn = sum(ops.imag(_diagonal(part)) for part in (u_part, v_part) if part is not None)
    error = RuntimeError(
        "svd_backward: The singular vectors in the complex case are specified "
        "up to multiplication by e^{i phi}. The specified loss function depends "
        "on this phase term, making it ill-defined."
    )
    check_all(ops.abs(turn) <= 1e-2, error)


def _vjp(gs, self_shape, out0, out1, out2):
    """The gradient by thin factors.

    Source: Townsend, "Differentiating the Singular Value Decomposition", 2016; for complex numbers
    Wan and Zhang, "Automatic Differentiation for Complex Valued SVD", 2019.
    """
    rows, columns = self_shape[-2:]
    count = min(rows, columns)
    gu, gvalues, gvh = gs[:3]
    u, values, vh = out0.narrow(-1, 0, count), out1, out2.narrow(-2, 0, count)
    if gu is None and gvh is None:
        return None if gvalues is None else ops.matmul(u * gvalues.unsqueeze(-2), vh)
    along, across = values.unsqueeze(-2), values.unsqueeze(-1)
    gaps = along * along - across * across
    gaps = gaps + identity_like(gaps.detach())
    inner, beside = 0 if gvalues is None else ops.diag_embed(gvalues), []
    u_part = v_part = None
    if gu is not None:
        gu = gu.narrow(-1, 0, count)
        u_part = _skew(ops.matmul(adjoint(u), gu))
        inner = inner + u_part * along / gaps
        if rows > count:
            rest = gu / along
            beside.append(ops.matmul(rest - ops.matmul(u, ops.matmul(adjoint(u), rest)), vh))
    if gvh is not None:
        gvh = gvh.narrow(-2, 0, count)
        v_part = _skew(ops.matmul(vh, adjoint(gvh)))
        inner = inner + across * v_part / gaps
        if columns > count:
            rest = gvh / across
            beside.append(ops.matmul(u, rest - ops.matmul(ops.matmul(rest, adjoint(vh)), vh)))
    if u.is_complex():
        _check_phase(u_part, v_part)
        if u_part is not None and v_part is not None:
            inner = inner + ops.diag_embed(_diagonal(u_part) / (2 * values))
    return sum(beside, ops.matmul(ops.matmul(u, inner), vh))


op(
    "svd_batch(self: Tensor, full_matrices: bool) -> Tensor[]",
    forward=_forward,
    kernel="svd",
    vjp={"self": lambda gs, self_shape, out0, out1, out2: _vjp(gs, self_shape, out0, out1, out2)},
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgSvdBackward0",
    doc="Return U, S and V^H of self = U diag(S) V^H, and per matrix 0 if they were found.",
    samples="singular vectors may have any sign; their own tests cover it",
)


def _values_forward(self):
    """Return the singular values alone; without a kernel for them, of the whole decomposition."""
    *batch, rows, columns = self.shape
    values = new_empty(self, (*batch, min(rows, columns)), self.dtype.to_real())
    info = new_info(self, batch)
    run_on_batch("svdvals", [(values, 1), (info, 0)], [(self, 2)])
    return values, info


def _values_vjp(gs, self):
    if gs[0] is None:
        return None
    u, _, vh = ops.svd_batch(self, False)[:3]
    return ops.matmul(u * gs[0].unsqueeze(-2), vh)


op(
    "svdvals_batch(self: Tensor) -> Tensor[]",
    forward=_values_forward,
    kernel="svdvals",
    vjp={"self": lambda gs, self: _values_vjp(gs, self)},
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgSvdBackward0",
    doc="Return singular values in descending order, and per matrix 0 if they were found.",
    samples="they are those of linalg.svdvals",
)


# -- decompositions --------------------------------------------------------------------------------


def _checked(name, self):
    """Check that the operand is a floating matrix or a batch of them."""
    if self.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions.")
    check_inexact(name, self)
    return self


def _decompose(self, full_matrices):
    if _checked("linalg.svd", self).dtype.itemsize == 2:
        raise unsupported("linalg_svd_cpu", self.dtype)
    *found, info = ops.svd_batch(self, full_matrices)
    _check_found(info)
    return found


def _values_of(self):
    """Return the singular values alone."""
    if _checked("linalg.svd", self).dtype.itemsize == 2:
        raise unsupported("linalg_svd_cpu", self.dtype)
    values, info = ops.svdvals_batch(self)
    _check_found(info)
    return values


def _check_found(info):
    fail_first(
        "linalg.svd: {prefix}The algorithm failed to converge because the input matrix "
        "contained non-finite values.",
        info,
    )


def _check_driver(driver):
    if driver is not None:
        raise RuntimeError(
            "linalg.svd: keyword argument `driver=` is only supported on CUDA "
            "inputs with cuSOLVER backend."
        )


def _svd(A, full_matrices, driver):
    _check_driver(driver)
    return _SVD(*_decompose(A, full_matrices))


def _svdvals(A, driver):
    _check_driver(driver)
    return _values_of(A)


def _old_svd(self, some, compute_uv):
    if not compute_uv:
        values = _values_of(self)
        rows, columns = self.shape[-2:]
        zeros = [ops.new_zeros(self, (*self.shape[:-2], size, size)) for size in (rows, columns)]
        return _OLD_SVD(zeros[0], values, zeros[1])
    u, values, vh = _decompose(self, not some)
    return _OLD_SVD(u, values, adjoint(vh))


_FREE = "singular vectors may have any sign; their own tests cover it"
op(
    "linalg_svd(A: Tensor, full_matrices: bool = True, *, driver: any = None) -> Tensor[]",
    autocast=("float32", None),
    composite=_svd,
    out_overlap=True,
    method=False,
    namespace="linalg",
    function="svd",
    out=True,
    dtypes=SOLVED,
    samples=_FREE,
    doc="Return U, S and V^H of A = U diag(S) V^H, singular values in descending order.\n\n"
    "Shape: (..., m, n) gives (..., m, m), (..., k) and (..., n, n), where k = min(m, n); "
    "without `full_matrices` (..., m, k), (..., k) and (..., k, n).\n\n"
    "Derivative: by U and V^H it exists where singular values differ, and columns beyond k have "
    "none.\n\nRaises: LinAlgError for NaN.",
)
_MATRICES = [
    case(T(3, 2)),
    case(T(2, 3)),
    case(T(2, 3, 3)),
    case(T(0, 2, 2)),
    case(T(0, 3)),
    case(T(2, 0)),
    case(T(1, 1)),
    case(fixed((3, 0, 0, -4, 0, 0), shape=(3, 2))),
]
_MATRICES = [
    made._replace(
        skip={
            "expanded": "equal rows have a singular value of 0",
            "gradgrad": "it is checked by the norms",
            "kept": "u and vh are kept, and the result with them",
        }
    )
    for made in _MATRICES
]
op(
    "linalg_svdvals(A: Tensor, *, driver: any = None) -> Tensor",
    autocast=("float32", None),
    composite=_svdvals,
    out_overlap=True,
    method=False,
    namespace="linalg",
    function="svdvals",
    out=True,
    dtypes=SOLVED,
    kinks=[kink([[1.0, 0.0], [0.0, 1.0]], to=[[1.0, 0.0], [0.0, 1.0]], second=None)],
    samples=_MATRICES,
    ref=lambda np, A: np.linalg.svd(A, compute_uv=False),
    doc="Return the singular values of matrices, in descending order.\n\n"
    "Shape: (..., m, n) gives (..., min(m, n)).\n\nRaises: LinAlgError for NaN.",
)
op(
    "svd(self: Tensor, some: bool = True, compute_uv: bool = True) -> Tensor[]",
    autocast=("float32", None),
    composite=_old_svd,
    out=True,
    dtypes=SOLVED,
    out_overlap=True,
    samples=_FREE,
    doc="Return U, S and V of self = U diag(S) V^H: see `linalg.svd`, which gives V^H.\n\n"
    "`some=False` gives full U and V; without `compute_uv` they are zeros.",
)


# -- norms of matrices -----------------------------------------------------------------------------


def _pair_of(dim, ndim):
    """Return two different dims counted from the front."""
    dims = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    if len(dims) != 2:
        raise RuntimeError(
            f"linalg.matrix_norm: dim must be a 2-tuple. Got {' '.join(map(str, dims))}"
        )
    first, second = (wrap_dim(d, ndim, "linalg.matrix_norm") for d in dims)
    if first == second:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({first}, {second})")
    return first, second


def _matrix_norm(A, ord, dim, keepdim, dtype):
    named = isinstance(ord, str)
    if not named and (isinstance(ord, bool) or not isinstance(ord, (int, float))):
        raise TypeError(
            f"linalg_matrix_norm(): argument 'ord' must be Number or str, not {type(ord).__name__}"
        )
    if ord not in ("fro", "nuc") if named else abs(ord) not in (1, 2, math.inf):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    _checked("linalg.matrix_norm", A)
    first, second = _pair_of(dim, A.ndim)
    if ord == "fro":
        return ops.linalg_vector_norm(A, 2, (first, second), keepdim, dtype=dtype)
    if dtype is not None:
        A = cast_to(A, dtype)
    if ord == "nuc" or abs(ord) == 2:
        return _norm_of_values(A, ord, first, second, keepdim)
    if abs(ord) == math.inf:
        first, second = second, first
    sums = ops.linalg_vector_norm(A, 1, first, keepdim)
    if not keepdim and second > first:
        second -= 1
    return (ops.amax if ord > 0 else ops.amin)(_or_zero(sums, ord, second), second, keepdim)


def _or_zero(values, ord, dim):
    """The largest of no elements is 0 here."""
    if ord < 0 or values.shape[dim]:
        return values
    return ops.sum(values, dim, True)


def _norm_of_values(A, ord, first, second, keepdim):
    if A.dtype.itemsize == 2:
        raise RuntimeError(
            f"linalg.matrix_norm: Low precision dtypes not supported. Got {type_name(A.dtype)}"
        )
    values = _values_of(ops.movedim(A, (first, second), (-2, -1)))
    if ord == "nuc":
        out = ops.sum(values, -1)
    else:
        out = (ops.amax if ord > 0 else ops.amin)(_or_zero(values, ord, -1), -1)
    if keepdim:
        for d in sorted((first, second)):
            out = out.unsqueeze(d)
    return out


_EQUAL_ROWS = {"expanded": "a singular value of 0 is a kink"}


def _kinds(order):
    """Return the dtypes of a norm; singular values need 32 bits."""
    return SOLVED if order in ("nuc", 2, -2) else FLOAT_COMPLEX


_ORDERS = ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)
op(
    "linalg_matrix_norm(A: Tensor, ord: any = 'fro', dim: int[] = (-2, -1), keepdim: bool = False, "
    "*, dtype: dtype? = None) -> Tensor",
    autocast=(None, "dtype"),
    composite=_matrix_norm,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="matrix_norm",
    out=True,
    dtypes=FLOAT_COMPLEX,
    ref=references.matrix_norm,
    doc="Return a norm of matrices: 'fro' (Frobenius), 'nuc' (the sum of singular values), 2 and "
    "-2 (the largest and smallest of them), 1 and -1 (of the sums of columns), inf and -inf (of "
    "rows).\n\nRaises: RuntimeError for other orders.",
    kinks=[
        kink([[0.0, 0.0], [0.0, 0.0]], "fro", to=[[0.0, 0.0], [0.0, 0.0]], differs=TORCH_NAN),
        kink([[1.0, 0.0], [0.0, 1.0]], 2, to=[[0.5, 0.0], [0.0, 0.5]], second=None),
        kink([[1.0, 0.0], [0.0, 1.0]], "nuc", to=[[1.0, 0.0], [0.0, 1.0]], second=None),
    ],
    samples=lambda: [
        *(
            case(T(*shape), order, skip=_EQUAL_ROWS, only=_kinds(order))
            for shape in ((2, 3), (2, 3, 2))
            for order in _ORDERS
        ),
        *(
            case(T(2, 3, 2), order, dim, True, skip=_EQUAL_ROWS, only=_kinds(order))
            for order, dim in (("nuc", (0, 2)), (1, (2, 0)), (-2, (1, 0)), (math.inf, (0, 1)))
        ),
        case(T(0, 3)),
        case(T(2, 3), 1, dtype=Dtype("float64"), only=FLOATING),
        *(case(T(0, 3), order, skip=KINKS, only=_kinds(order)) for order in (1, 2, "nuc")),
    ],
)


def _linalg_norm(A, ord, dim, keepdim, dtype):
    if dim is not None:
        dims = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
        if len(dims) not in (1, 2):
            raise RuntimeError(
                f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}"
            )
    elif ord is not None and A.ndim not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D "
            f"or 2D. Got {A.ndim}D."
        )
    else:
        dims = tuple(range(A.ndim))
    if ord is None:
        return ops.linalg_vector_norm(A, 2, dims, keepdim, dtype=dtype)
    if len(dims) == 1 and not isinstance(ord, str):
        return ops.linalg_vector_norm(A, ord, dims, keepdim, dtype=dtype)
    return _matrix_norm(A, ord, dims, keepdim, dtype)


op(
    "linalg_norm(A: Tensor, ord: any = None, dim: int[]? = None, keepdim: bool = False, *, "
    "dtype: dtype? = None) -> Tensor",
    composite=_linalg_norm,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="norm",
    out=True,
    dtypes=FLOAT_COMPLEX,
    ref=references.linalg_norm,
    doc="Return the norm of vectors (one dim) or of matrices (two): see `linalg.vector_norm` and "
    "`linalg.matrix_norm`. Without an order, the square root of the sum of squares.",
    kinks=[kink([0.0, 0.0], to=[0.0, 0.0], differs=TORCH_NAN)],
    samples=lambda: [
        case(T(2, 3)),
        case(T(3), 3),
        case(T(2, 3), 1),
        case(T(2, 3, 2)),
        case(T()),
        case(T(2, 3, 2), 2, 1),
        case(T(2, 3, 2), "fro", (0, 2), True),
        case(T(2, 3), "nuc", skip=_EQUAL_ROWS, only=SOLVED),
        case(T(2, 3, 2), 2, (1, 2), skip=_EQUAL_ROWS, only=SOLVED),
    ],
)
