"""Systems of linear equations, inverses and powers of matrices, chains of products."""

import itertools
import warnings

from pullback.ops.linalg.matrices import (
    SOLVED,
    adjoint,
    check_solvable,
    check_square,
    fail_first,
    identity_like,
)
from pullback.ops.rules.dtypes import type_name
from pullback.ops.rules.shapes import broadcast_shape
from pullback.ops.table.primitives_api import new_empty, run_primitive
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import NUMBERS, op, ops, result_type

references = references_of("linalg")

# Rows that are far from being combinations of each other.
_REGULAR = fixed((4, 1, 0, 1, -3, 1, 2, 0, 5), shape=(3, 3))
_TWO = fixed((2, 1, 1, 3, -1, 2, 3, 4), shape=(2, 2, 2))
_SAME_ROWS = {"expanded": "a matrix with equal rows is singular"}


def _regular(*args, **kwargs):
    return case(_REGULAR, *args, skip=_SAME_ROWS, **kwargs)


def _two(*args, **kwargs):
    return case(_TWO, *args, skip=_SAME_ROWS, **kwargs)


# -- the primitive ---------------------------------------------------------------------------------


def _solve_forward(self, other):
    """Solve a batch of systems; one matrix of coefficients and one right side for each."""
    import pullback

    batch = tuple(self.shape[:-2])
    out = new_empty(other, other.shape)
    info = ops.new_zeros(self, batch, dtype=pullback.int32)
    if self.numel():
        count = info.numel()
        run_primitive(
            "solve",
            (out.reshape((count, *other.shape[-2:])), info.reshape(count)),
            (self.reshape((count, *self.shape[-2:])), other.reshape((count, *other.shape[-2:]))),
        )
    return out, info


def _solve_vjp(gs, self, other):
    """The gradient of B solves the adjoint system; that of A is an outer product."""
    g = gs[0]
    if g is None:
        return None, None
    right, _ = ops.solve_batch(adjoint(self), g)
    solution, _ = ops.solve_batch(self, other)
    return -ops.matmul(right, adjoint(solution)), right


op(
    "solve_batch(self: Tensor, other: Tensor) -> Tensor[]",
    forward=_solve_forward,
    kernel="solve",
    vjp={("self", "other"): _solve_vjp},
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgSolveExBackward0",
    doc="Return the solutions X of self @ X = other, and per matrix the number of its first pivot "
    "that is 0, counted from 1, or 0.",
    samples=lambda: [
        _regular(T(3, 2)),
        _two(T(2, 2, 3)),
        case(T(0, 2, 2), T(0, 2, 1)),
        case(T(0, 0), T(0, 2)),
        _two(T(2, 2, 0)),
    ],
    ref=lambda np, self, other: (np.linalg.solve(self, other), np.zeros(self.shape[:-2])),
)


_InvEx = result_type("linalg_inv_ex", "inverse", "info")
_SolveEx = result_type("linalg_solve_ex", "result", "info")


def _inverse_forward(self):
    return _solve_forward(self, identity_like(self))


def _inverse_vjp(gs, out0):
    if gs[0] is None:
        return None
    return -ops.matmul(adjoint(out0), ops.matmul(gs[0], adjoint(out0)))


op(
    "inverse_batch(self: Tensor) -> Tensor[]",
    forward=_inverse_forward,
    kernel="solve",
    vjp={"self": _inverse_vjp},
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgInvExBackward0",
    doc="Return the inverses of matrices, and per matrix the number of its first pivot that is 0.",
    samples=lambda: [_regular(), _two(), case(T(0, 2, 2)), case(T(0, 0))],
    ref=lambda np, self: (np.linalg.inv(self), np.zeros(self.shape[:-2])),
)


def _inverse(self):
    found, info = _inv_ex(self, False)
    fail_first(
        "linalg.inv: {prefix}The diagonal element {number} is zero, the inversion could "
        "not be completed because the input matrix is singular.",
        info,
    )
    return found


def _inv_ex(self, check_errors):
    check_square("linalg.inv", self)
    check_solvable("linalg.inv", self)
    if check_errors:
        _inverse(self)
    return _InvEx(*ops.inverse_batch(self))


_INVERTED = [_regular(), _two(), case(T(0, 2, 2)), case(T(0, 0)), case(fixed((2,), shape=(1, 1)))]
op(
    "inverse(self: Tensor) -> Tensor",
    autocast=("float32", None),
    composite=_inverse,
    out=True,
    dtypes=SOLVED,
    out_overlap=True,
    out_dtype="exact",
    ref="numpy.linalg.inv",
    samples=_INVERTED,
    doc="Return the inverses of square matrices; leading dims are batches.\n\n"
    "Raises: LinAlgError for a singular matrix.",
)
op(
    "linalg_inv(A: Tensor) -> Tensor",
    autocast=("float32", None),
    composite=_inverse,
    out=True,
    dtypes=SOLVED,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="inv",
    ref="numpy.linalg.inv",
    samples=_INVERTED,
    doc="Return the inverses of square matrices; leading dims are batches.\n\n"
    "Raises: LinAlgError for a singular matrix.",
)
op(
    "linalg_inv_ex(A: Tensor, *, check_errors: bool = False) -> Tensor[]",
    autocast=("float32", None),
    composite=_inv_ex,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="inv_ex",
    dtypes=SOLVED,
    samples=_INVERTED[:3],
    ref=lambda np, A: (np.linalg.inv(A), np.zeros(A.shape[:-2])),
    doc="Return the inverses of square matrices, and per matrix 0 or the number of the pivot that "
    "was 0.",
)


# -- A X = B ---------------------------------------------------------------------------------------


def _solve_ex(name, self, other, left):
    """Return the solution and the infos, after torch's checks."""
    check_square(name, self)
    check_solvable(name, self)
    if self.dtype != other.dtype:
        raise RuntimeError(
            f"{name}: Expected A and B to have the same dtype, but found A of type "
            f"{type_name(self.dtype)} and B of type {type_name(other.dtype)} "
            f"instead"
        )
    vector = other.ndim == 1 or (
        self.ndim - 1 == other.ndim and tuple(other.shape) == tuple(self.shape[:-1])
    )
    if vector:
        if not left:
            raise RuntimeError(
                f"{name}: Vector broadcasting of the left hand side is not "
                f"supported for left=False. In this case linalg.solve is equivalent "
                f"to B / A.squeeze(-1)"
            )
        other = other.unsqueeze(-1)
    if other.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor B must have at least 2 dimensions.")
    size, there = self.shape[-1], other.shape[-2 if left else -1]
    if size != there:
        equation = "AX = B" if left else "XA = B"
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {equation} "
            f"({size}x{size} and {other.shape[-2]}x{other.shape[-1]})"
        )
    batch = broadcast_shape(self.shape[:-2], other.shape[:-2])
    self = self.expand((*batch, size, size))
    other = other.expand((*batch, *other.shape[-2:]))
    if left:
        out, info = ops.solve_batch(self, other)
    else:
        out, info = ops.solve_batch(self.transpose(-2, -1), other.transpose(-2, -1))
        out = out.transpose(-2, -1)
    return _SolveEx(out.squeeze(-1) if vector else out, info)


def _solve(self, other, left):
    out, info = _solve_ex("linalg.solve", self, other, left)
    fail_first(
        "torch.linalg.solve: {prefix}The solver failed because the input matrix is singular.",
        info,
    )
    return out


def _checked_solve_ex(self, other, left, check_errors):
    if check_errors:
        _solve(self, other, left)
    return _solve_ex("linalg.solve", self, other, left)


_SYSTEMS = [
    _regular(T(3)),
    _regular(T(3, 2)),
    _two(T(2, 2)),
    _two(T(2, 2, 3)),
    _two(T(2, 3)),
    _two(T(2)),
    _regular(T(2, 3), left=False),
    _two(T(2, 3, 2), left=False),
    case(T(0, 2, 2), T(0, 2)),
    case(T(0, 0), T(0, 2)),
]
op(
    "linalg_solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor",
    autocast=("float32", None),
    composite=_solve,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="solve",
    out=True,
    dtypes=SOLVED,
    samples=_SYSTEMS,
    ref=references.linear_solve,
    doc="Return the solution X of A X = B, or of X A = B with left=False; leading dims are "
    "batches.\n\nShape: B holds matrices, or vectors where it has the shape of A without its "
    "last dim.\n\nRaises: LinAlgError for a singular matrix.",
)
op(
    "linalg_solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) "
    "-> Tensor[]",
    composite=_checked_solve_ex,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="solve_ex",
    dtypes=SOLVED,
    samples=_SYSTEMS[:4],
    ref=lambda np, A, B: (references.linear_solve(np, A, B), np.zeros(A.shape[:-2])),
    doc="Return the solution X of A X = B, and per matrix 0 or the number of the pivot that was 0.",
)


# -- powers and chains -----------------------------------------------------------------------------


def _matrix_power(self, n):
    """By squaring."""
    check_square("linalg.matrix_power", self)
    if n == 0:
        return ops.copy_(self.clone(), identity_like(self))  # its derivative is 0
    if n == 1:
        return self.clone()
    if n < 0:
        self, n = _inverse(self), -n
    out = None
    while n:
        if n & 1:
            out = self if out is None else ops.matmul(out, self)
        n >>= 1
        if n:
            self = ops.matmul(self, self)
    return out


_POWERS = [
    case(T(2, 2), n, skip=skip)
    for n, skip in (
        (2, {}),
        (3, {}),
        (5, {}),
        (1, {}),
        (0, {"gradgrad": "its derivative does not depend on it"}),
    )
]
_POWERS += [
    case(T(2, 2, 2), 3),
    case(T(0, 0), 2),
    case(T(0, 2, 2), 3),
    _regular(-1, only=SOLVED),
    _two(-3, only=SOLVED),
]
op(
    "matrix_power(self: Tensor, n: int) -> Tensor",
    composite=_matrix_power,
    out=True,
    out_overlap=True,
    ref="numpy.linalg.matrix_power",
    dtypes=NUMBERS,
    samples=_POWERS,
    doc="Return the n-th power of square matrices; a negative one of the inverse.",
)
op(
    "linalg_matrix_power(A: Tensor, n: int) -> Tensor",
    composite=_matrix_power,
    out=True,
    out_overlap=True,
    method=False,
    namespace="linalg",
    function="matrix_power",
    ref="numpy.linalg.matrix_power",
    dtypes=NUMBERS,
    samples=_POWERS,
    doc="Return the n-th power of square matrices; a negative one of the inverse.",
)


def _chain_order(sizes):
    """Return where to split each part of a chain; matrix i has sizes[i] rows.

    Source: Cormen et al., Introduction to Algorithms, section "Matrix-chain multiplication".
    """
    count = len(sizes) - 1
    cost = [[0] * count for _ in range(count)]
    split = [[0] * count for _ in range(count)]
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i][j], split[i][j] = min(
                (cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    return split


def _chain(name, matrices):
    """Multiply matrices in the order that needs the fewest multiplications."""
    for number, (a, b) in enumerate(itertools.pairwise(matrices)):
        if a.dtype != b.dtype:
            raise RuntimeError(
                f"{name}(): all tensors must have the same dtype, but tensor 0 is "
                f"{type_name(a.dtype)} and tensor {number + 1} {type_name(b.dtype)}"
            )
        if a.shape[1] != b.shape[0]:
            raise RuntimeError(
                f"multi_dot(): tensors {number} and {number + 1} with shapes "
                f"{list(a.shape)} and {list(b.shape)} cannot be multiplied"
            )
    split = _chain_order([m.shape[0] for m in matrices] + [matrices[-1].shape[1]])
    return _multiply(matrices, split, 0, len(matrices) - 1)


def _multiply(matrices, split, i, j):
    if i == j:
        return matrices[i]
    k = split[i][j]
    return ops.mm(_multiply(matrices, split, i, k), _multiply(matrices, split, k + 1, j))


def _chain_matmul(matrices):
    matrices = list(matrices) if isinstance(matrices, (tuple, list)) else [matrices]
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    for matrix in matrices:
        if not hasattr(matrix, "data_ptr"):
            raise TypeError(
                f"chain_matmul(): argument 'matrices' must be tuple of Tensors, not "
                f"{type(matrix).__name__}"
            )
        if matrix.ndim != 2:
            raise RuntimeError(f"Tensor dimension is {matrix.ndim}, expected 2 instead.")
    warnings.warn(
        "pullback.chain_matmul is deprecated and will be removed in a future "
        "release. Use pullback.linalg.multi_dot instead, which accepts a list of two or "
        "more tensors rather than multiple parameters.",
        UserWarning,
        stacklevel=2,
    )
    return matrices[0] if len(matrices) == 1 else _chain("chain_matmul", matrices)


def _multi_dot(tensors):
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    tensors = list(tensors)
    ends = tensors[0].ndim == 1, tensors[-1].ndim == 1
    if ends[0]:
        tensors[0] = tensors[0].unsqueeze(0)
    if ends[1]:
        tensors[-1] = tensors[-1].unsqueeze(-1)
    for number, tensor in enumerate(tensors):
        if tensor.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {number} must be 2D but got {tensor.ndim}D")
    out = _chain("multi_dot", tensors)
    if ends[0]:
        out = out.squeeze(0)
    return out.squeeze(-1) if ends[1] else out


_CHAINS = [
    [T(2, 3), T(3, 2)],
    [T(2, 3), T(3, 4), T(4, 2)],
    [T(4, 2), T(2, 5), T(5, 1), T(1, 3)],
    [T(2, 0), T(0, 3)],
]


def _one_by_one(np, matrices):
    out = matrices[0]
    for matrix in matrices[1:]:
        out = out @ matrix
    return out


op(
    "chain_matmul(matrices: any = ()) -> Tensor",
    autocast=(None, "lower"),
    composite=_chain_matmul,
    varargs=True,
    out_overlap=True,
    method=False,
    out=True,
    dtypes=NUMBERS,
    samples=lambda: [case(*chain) for chain in _CHAINS],
    ref=lambda np, *matrices: _one_by_one(np, matrices),
    doc="Return the product of matrices, in the order that needs the fewest multiplications.\n\n"
    "Deprecated as in torch: linalg.multi_dot does the same.",
)
op(
    "linalg_multi_dot(tensors: Tensor[]) -> Tensor",
    autocast=(None, "lower"),
    composite=_multi_dot,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    out=True,
    namespace="linalg",
    function="multi_dot",
    dtypes=NUMBERS,
    ref=_one_by_one,
    samples=lambda: [*(case(chain) for chain in _CHAINS), case([T(3), T(3, 2), T(2)])],
    doc="Return the product of two or more matrices, in the order that needs the fewest "
    "multiplications; the first and the last may be vectors.",
)
