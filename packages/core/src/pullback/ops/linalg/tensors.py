"""Inverses and systems of tensors, Vandermonde matrices, and older names of norms."""

import math
import warnings

from pullback.ops.linalg.matrices import SOLVED
from pullback.ops.rules.dims import wrap_dim
from pullback.ops.rules.dtypes import type_name
from pullback.ops.table.kinks import TORCH_NAN, kink
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import ALL, FLOAT_COMPLEX, NUMBERS, op, ops

references = references_of("linalg")

_REGULAR = (4, 1, 0, 1, -3, 1, 2, 0, 5)
_SAME_ROWS = {"expanded": "a matrix with equal rows is singular"}
_LINALG = {
    "out": True,
    "out_overlap": True,
    "out_dtype": "exact",
    "method": False,
    "namespace": "linalg",
    "dtypes": SOLVED,
}


def _tensorinv(self, ind):
    if ind <= 0:
        raise RuntimeError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    first, last = tuple(self.shape[:ind]), tuple(self.shape[ind:])
    rows, columns = math.prod(first), math.prod(last)
    if rows != columns:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got {columns} != {rows}"
        )
    return ops.inverse(self.reshape((rows, columns))).reshape((*last, *first))


op(
    "linalg_tensorinv(self: Tensor, ind: int = 2) -> Tensor",
    autocast=("float32", None),
    composite=_tensorinv,
    function="tensorinv",
    samples=lambda: [
        case(fixed(_REGULAR, shape=(3, 1, 3)), skip=_SAME_ROWS),
        case(fixed(_REGULAR, shape=(3, 3)), 1, skip=_SAME_ROWS),
        case(fixed((2, 1, 1, 3), shape=(2, 1, 2, 1)), skip=_SAME_ROWS),
    ],
    ref=lambda np, self, ind=2: np.linalg.tensorinv(self, ind),
    doc="Return the inverse of a tensor for tensordot: as a matrix whose rows are the first `ind` "
    "dims.\n\nShape: the last dims, then the first `ind` ones.\n\n"
    "Raises: RuntimeError where that matrix is not square, LinAlgError where it is singular.",
    **_LINALG,
)


def _tensorsolve(self, other, dims):
    if dims is not None:
        dims = dims if isinstance(dims, (tuple, list)) else (dims,)
        moved = [wrap_dim(d, self.ndim, "linalg.tensorsolve") for d in dims]
        self = ops.movedim(self, moved, tuple(range(self.ndim - len(moved), self.ndim)))
    last = tuple(self.shape[other.ndim :])
    columns, rows = math.prod(last), math.prod(self.shape[: other.ndim])
    if columns != other.numel():
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {columns} != {other.numel()}"
        )
    found = ops.linalg_solve(self.reshape((rows, columns)), other.reshape(rows))
    return found.reshape(last)


op(
    "linalg_tensorsolve(self: Tensor, other: Tensor, dims: int[]? = None) -> Tensor",
    autocast=("float32", None),
    composite=_tensorsolve,
    function="tensorsolve",
    samples=lambda: [
        case(fixed(_REGULAR, shape=(3, 1, 3)), T(3, 1), skip=_SAME_ROWS),
        case(fixed(_REGULAR, shape=(3, 3)), T(3), skip=_SAME_ROWS),
        case(fixed(_REGULAR, shape=(3, 1, 3)), T(1, 3), dims=(0,), skip=_SAME_ROWS),
    ],
    ref=lambda np, self, other, dims=None: np.linalg.tensorsolve(self, other, dims),
    doc="Return the solution X of tensordot(self, X, X.ndim) = other; `dims` are moved to the end "
    "first.\n\nRaises: RuntimeError for shapes that do not fit, LinAlgError where the tensor is "
    "singular as a matrix.",
    **_LINALG,
)


# -- matrices --------------------------------------------------------------------------------------


def _vander(x, N):
    if x.dtype.kind == "b":
        raise RuntimeError(
            "linalg.vander supports floating point, complex, and integer tensors, but got "
            f"{type_name(x.dtype)}"
        )
    columns = (x.shape[-1] if x.ndim else 1) if N is None else N
    if columns <= 1:
        raise RuntimeError("N must be greater than 1.")
    x = x.unsqueeze(-1)
    powers = ops.cumprod(x.expand((*x.shape[:-1], columns - 1)), -1)
    return ops.cat((ops.ones_like(powers.narrow(-1, 0, 1)), powers), -1)


op(
    "linalg_vander(x: Tensor, *, N: int? = None) -> Tensor",
    composite=_vander,
    method=False,
    function=False,
    elsewhere=("linalg.vander",),
    dtypes=NUMBERS,
    samples=lambda: [case(T(3)), case(T(2, 2), N=4), case(T(0), N=2)],
    ref=references.linalg_vander,
    doc="Return Vandermonde matrices: the powers 0, 1, .., N - 1 of each number.\n\n"
    "Shape: (..., n) gives (..., n, N); N is n by default. Integers give int64.\n\n"
    "Raises: RuntimeError for N below 2 and for bools.",
)
op(
    "linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor",
    composite=lambda A, offset, dim1, dim2: ops.diagonal(A, offset, dim1, dim2),
    method=False,
    namespace="linalg",
    function="diagonal",
    dtypes=ALL,
    view=True,
    samples=lambda: [case(T(3, 3)), case(T(2, 3, 4), offset=1), case(T(2, 3, 4), dim1=0, dim2=1)],
    ref=lambda np, A, offset=0, dim1=-2, dim2=-1: np.diagonal(A, offset, dim1, dim2),
    doc="Return the view of a diagonal of two dims, by default the last; it is the last dim.",
)


# -- norms -----------------------------------------------------------------------------------------


def _warn_of_norm(name, better):
    warnings.warn(
        f"at::{name} is deprecated and it is just left for JIT compatibility. It will be removed "
        f"in a future PyTorch release. Please use `{better}` instead",
        UserWarning,
        stacklevel=3,
    )


def _nuclear_norm(self, dim, keepdim):
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    _warn_of_norm("nuclear_norm", "linalg.matrix_norm(A, 'nuc', dim, keepdim)")
    return ops.linalg_matrix_norm(self, "nuc", (-2, -1) if dim is None else dim, keepdim)


_EQUAL_ROWS = {"expanded": "a singular value of 0 is a kink"}
op(
    "nuclear_norm(self: Tensor, dim: any = None, keepdim: bool = False) -> Tensor",
    autocast=(None, "float32"),
    composite=_nuclear_norm,
    method=False,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    dtypes=SOLVED,
    samples=lambda: [
        case(fixed((1, 2, 4, 1, -2, 3), shape=(3, 2)), skip=_EQUAL_ROWS),
        case(T(2, 3, 2), (0, 2), True, skip=_EQUAL_ROWS),
    ],
    kinks=[kink([[1.0, 0.0], [0.0, 1.0]], to=[[1.0, 0.0], [0.0, 1.0]], second=None)],
    ref=references.nuclear_norm,
    doc="Return the sum of the singular values: linalg.matrix_norm of order 'nuc'.",
)


def _frobenius_norm(self, dim, keepdim):
    dims = dim if isinstance(dim, (tuple, list)) else (dim,)
    if len(dims) > 2:
        raise RuntimeError(
            f"Expected at most 2 dimensions, but got {len(dims)} dimensions instead."
        )
    _warn_of_norm("frobenius_norm", "linalg.vector_norm(A, 2., dim, keepdim)")
    return ops.linalg_vector_norm(self, 2, tuple(dims), keepdim)


op(
    "frobenius_norm(self: Tensor, dim: int[], keepdim: bool = False) -> Tensor",
    autocast=(None, "float32"),
    composite=_frobenius_norm,
    method=False,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    dtypes=FLOAT_COMPLEX,
    samples=lambda: [case(T(2, 3), (0, 1)), case(T(2, 3), 1, True)],
    kinks=[kink([0.0, 0.0], (0,), to=[0.0, 0.0], differs=TORCH_NAN)],
    ref=references.vector_norm_of_dims,
    doc="Return the root of the sum of squares over at most two dims.\n\n"
    "Deprecated as in torch: linalg.vector_norm does the same.",
)
