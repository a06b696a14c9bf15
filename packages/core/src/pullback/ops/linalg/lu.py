"""LU decompositions with partial pivoting, and systems that are solved by them."""

from pullback.ops.linalg.matrices import (
    SOLVED,
    adjoint,
    new_by_columns,
    new_info,
    run_on_batch,
    warn_deprecated,
)
from pullback.ops.linalg.triangular import solve_left, solve_right
from pullback.ops.rules.dtypes import dtype_named, require, type_name
from pullback.ops.rules.operands import all_hold
from pullback.ops.rules.shapes import broadcast_shape
from pullback.ops.table.kinks import Fixed, kink
from pullback.ops.table.primitives_api import new_empty, whole_batch
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import op, ops, result_type

references = references_of("linalg")

_SQUARE = fixed((4, 1, 0, 1, -3, 1, 2, 0, 5), shape=(3, 3))
_TALL = fixed((1, 2, 4, 1, -2, 3), shape=(3, 2))
_WIDE = fixed((1, 2, 4, 3, -2, 1), shape=(2, 3))
_SAME_ROWS = {
    "expanded": "a matrix with equal rows has a pivot of 0",
    "in_graph": "P has no derivative, as in torch",
}
_SAMPLES = [
    case(_SQUARE, skip=_SAME_ROWS),
    case(_TALL, skip=_SAME_ROWS),
    case(_WIDE, skip=_SAME_ROWS),
    case(fixed((2, 1, 1, 3, -1, 2, 3, 4), shape=(2, 2, 2)), skip=_SAME_ROWS),
    case(T(0, 2, 2), skip=_SAME_ROWS),
    case(T(2, 0, 3), skip=_SAME_ROWS),
]


# -- the primitive ---------------------------------------------------------------------------------


def _forward(self):
    rows, columns = self.shape[-2:]
    batch = self.shape[:-2]
    out = new_by_columns(self, self.shape)
    pivots = new_empty(self, (*batch, min(rows, columns)), dtype_named("int32"))
    info = new_info(self, batch)
    run_on_batch("lu_factor", [(out, 2), (pivots, 1), (info, 0)], [(self, 2)])
    return out, pivots, info


def triangles_of(packed):
    """Return L and U of the matrices that hold both."""
    rows, columns = packed.shape[-2:]
    small = min(rows, columns)
    left = ops.tril(packed.narrow(-1, 0, small), -1)
    return left + ops.eye(rows, small, dtype=left.dtype, device=left.device), ops.triu(
        packed.narrow(-2, 0, small)
    )


def _vjp(gs, out0, out1):
    """Derive the square part, and of longer sides what they take from it."""
    g = gs[0]
    if g is None:
        return None
    rows, columns = out0.shape[-2:]
    small = min(rows, columns)
    square = out0.narrow(-2, 0, small).narrow(-1, 0, small)
    gsquare = g.narrow(-2, 0, small).narrow(-1, 0, small)
    lower, upper = triangles_of(square)
    in_lower = ops.matmul(adjoint(lower), ops.tril(gsquare, -1))
    in_upper = ops.matmul(ops.triu(gsquare), adjoint(upper))
    beside = None
    if rows > columns:
        below, gbelow = out0.narrow(-2, small, rows - small), g.narrow(-2, small, rows - small)
        in_upper = in_upper - ops.matmul(adjoint(below), gbelow)
        beside = solve_right(adjoint(upper), gbelow, False)
    elif columns > rows:
        right = out0.narrow(-1, small, columns - small)
        gright = g.narrow(-1, small, columns - small)
        in_lower = in_lower - ops.matmul(gright, adjoint(right))
        beside = solve_left(adjoint(square), gright, True, True)
    middle = ops.tril(in_lower, -1) + ops.triu(in_upper)
    middle = solve_left(adjoint(square), solve_right(adjoint(upper), middle, False), True, True)
    if beside is not None:
        middle = ops.cat((middle, beside), -2 if rows > columns else -1)
    return _permute(middle, ops.argsort(_order_of(out1, rows)))


def _order_of(pivots, rows):
    """Return which row of the matrix each row of L U is."""
    return ops.permutation_of_swaps(pivots, rows)


def _permute(matrices, order):
    """Return the rows in another order."""
    batch = broadcast_shape(matrices.shape[:-2], order.shape[:-1])
    matrices = matrices.expand((*batch, *matrices.shape[-2:]))
    return ops.gather(matrices, -2, order.unsqueeze(-1).expand(matrices.shape))


op(
    "lu_batch(self: Tensor) -> Tensor[]",
    forward=_forward,
    kernel="lu_factor",
    vjp={"self": lambda gs, out0, out1: _vjp(gs, out0, out1)},
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgLuFactorExBackward0",
    doc="Return L and U in one matrix, the rows that were swapped, counted from 1, and per matrix "
    "the number of its first pivot that is 0, or 0.",
    nonderivative_at=references.pivots_are_zero,
    samples=_SAMPLES,
    ref=references.lu_packed,
)


def _permutation_forward(self, rows):
    out = new_empty(self, (*self.shape[:-1], rows), dtype_named("int64"))
    if self.numel():
        run_on_batch("permutation_of_swaps", [(out, 1)], [(self, 1)])
    elif out.numel():
        out.copy_(ops.arange(rows, device=out.device).expand(out.shape))
    return out


op(
    "permutation_of_swaps(self: Tensor, rows: int) -> Tensor",
    forward=_permutation_forward,
    kernel="permutation_of_swaps",
    batch="unary",
    method=False,
    function=False,
    constant=True,
    dtypes=1 << 4,
    doc="Return what swaps, given by rows counted from 1, make of the numbers 0 .. rows - 1.",
    samples=lambda: [
        case(fixed((2, 3, 3), kind="int32"), 3),
        case(fixed((3, 2), shape=(1, 2), kind="int32"), 3),
        case(fixed((), shape=(0,), kind="int32"), 2),
    ],
    ref=references.permutation_of_swaps,
)


# -- factors ---------------------------------------------------------------------------------------

_Factor = result_type("linalg_lu_factor", "LU", "pivots")
_FactorEx = result_type("linalg_lu_factor_ex", "LU", "pivots", "info")
_WithInfo = result_type("_lu_with_info", "LU", "pivots", "info")
_LU = result_type("linalg_lu", "P", "L", "U")
_Unpacked = result_type("lu_unpack", "P", "L", "U")


def _checked_factor(name, A, pivot):
    if A.ndim < 2:
        raise RuntimeError(
            f"{name}: Expected tensor with 2 or more dimensions. Got size: {list(A.shape)} instead"
        )
    require("lu_cpu", SOLVED, A)
    if not pivot:
        raise RuntimeError(
            "linalg.lu_factor: LU without pivoting is not implemented on the "
            f"{A.device.type.upper()}"
        )
    return ops.lu_batch(A)


def _check_pivots(info):
    info = whole_batch(info)
    if all_hold(info == 0, RuntimeError):
        return
    numbers = info.reshape(-1).tolist()
    batch, number = next((b, n) for b, n in enumerate(numbers) if n)
    prefix = f"(Batch element {batch}): " if info.ndim else ""
    raise RuntimeError(
        f"torch.linalg.lu_factor: {prefix}U[{number},{number}] is zero and using it on lu_solve "
        "would result in a division by zero. If you still want to perform the factorization, "
        "consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
    )


def _lu_factor_ex(A, pivot, check_errors):
    found = _checked_factor("torch.lu_factor", A, pivot)
    if check_errors:
        _check_pivots(found[2])
    return _FactorEx(*found)


def _top_lu(self, pivot, get_infos):
    warn_deprecated(
        "lu",
        "pullback.linalg.lu_factor / pullback.linalg.lu_factor_ex",
        "LU, pivots = pullback.lu(A, compute_pivots)\nshould be replaced with\n"
        "LU, pivots = pullback.linalg.lu_factor(A, compute_pivots)",
    )
    found = _checked_factor("torch.lu_factor", self, pivot)
    return _WithInfo(*found) if get_infos else tuple(found[:2])


def _linalg_lu(A, pivot):
    packed, pivots, _ = _checked_factor("linalg.lu", A, pivot)
    return _LU(_permutation(packed, pivots), *triangles_of(packed))


def _permutation(packed, pivots):
    """Return P: its column i is unit vector number order[i]."""
    rows = packed.shape[-2]
    order = _order_of(pivots, rows)
    numbers = ops.arange(rows, device=order.device).unsqueeze(-1)
    return ops.cast(numbers == order.unsqueeze(-2), packed.dtype)


_KEYWORDS = {
    "out": True,
    "out_overlap": True,
    "out_dtype": "exact",
    "dtypes": SOLVED,
    "method": False,
    "namespace": "linalg",
}
_UNDERIVED = dict.fromkeys(("grad", "gradgrad"), "linalg.lu_factor checks the derivative")
_PLAIN = [made._replace(skip={**made.skip, **_UNDERIVED}) for made in _SAMPLES[:2]]
# Two candidates for a pivot are equal: the first one is taken.
_TIE = [kink([[1.0, 0.0], [1.0, 1.0]], to=[[0.0, 0.0], [1.0, 1.0]], second=None)]
_ABOUT = (
    "P A = L U with partial pivoting: L has ones on its diagonal.\n\nShape: (..., m, n); pivots "
    "are (..., min(m, n)), int32: row i was swapped with row pivots[i], counted from 1.\n\n"
    "Raises: RuntimeError for pivot=False, which no CPU routine has."
)
op(
    "linalg_lu_factor(A: Tensor, *, pivot: bool = True) -> Tensor[]",
    composite=lambda A, pivot: _Factor(*_lu_factor_ex(A, pivot, True)[:2]),
    function="lu_factor",
    kinks=_TIE,
    nonderivative_at=references.pivots_are_zero,
    samples=lambda: [_SAMPLES[0], _SAMPLES[3], _SAMPLES[4]],
    ref=lambda np, A: references.lu_packed(np, A)[:2],
    doc=f"Return L and U in one matrix and the pivots of {_ABOUT} For a pivot of 0 too.",
    **_KEYWORDS,
)
op(
    "linalg_lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Tensor[]",
    composite=_lu_factor_ex,
    function="lu_factor_ex",
    kinks=_TIE,
    nonderivative_at=references.pivots_are_zero,
    samples=_SAMPLES[:3],
    ref=references.lu_packed,
    doc="Return L and U in one matrix, the pivots, and per matrix 0 or the number of the first "
    f"pivot that is 0, of {_ABOUT}",
    **_KEYWORDS,
)
op(
    "linalg_lu(A: Tensor, *, pivot: bool = True) -> Tensor[]",
    composite=_linalg_lu,
    function="lu",
    kinks=_TIE,
    nonderivative_at=references.pivots_are_zero,
    samples=lambda: [*_PLAIN, *_SAMPLES[2:]],
    ref=references.lu,
    doc="Return P, L and U with A = P L U, where P is a permutation matrix, by partial pivoting."
    "\n\nShape: (..., m, n) gives (..., m, m), (..., m, k) and (..., k, n), where k = min(m, n)."
    "\n\nRaises: RuntimeError for pivot=False, which no CPU routine has.",
    **_KEYWORDS,
)
op(
    "lu(self: Tensor, pivot: bool = True, get_infos: bool = False) -> Tensor[]",
    composite=_top_lu,
    kinks=_TIE,
    nonderivative_at=references.pivots_are_zero,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    dtypes=SOLVED,
    samples=lambda: [*_PLAIN, _SAMPLES[0]._replace(kwargs={"get_infos": True})],
    ref=references.top_lu,
    doc="Return L and U in one matrix and the pivots, with `get_infos` the infos too: see "
    "linalg.lu_factor and linalg.lu_factor_ex.",
)


def _lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots):
    if LU_data.ndim < 2:
        raise RuntimeError(
            "torch.lu_unpack: Expected tensor with 2 or more dimensions. Got size: "
            f"{list(LU_data.shape)} instead"
        )
    require("lu_unpack", SOLVED, LU_data)
    if LU_data.device != LU_pivots.device:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{LU_data.device} and {LU_pivots.device}! (when checking argument for argument "
            "LU_pivots in method lu_unpack)"
        )
    none = ops.new_empty(LU_data, (0,))
    found = none
    if unpack_pivots:
        if LU_pivots.ndim < 1:
            raise RuntimeError("torch.lu_unpack: Expected LU_pivots to have at least 1 dimension")
        if LU_pivots.dtype.name != "int32":
            raise RuntimeError(
                "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of "
                "torch.int32 dtype."
            )
        if not _are_rows(LU_pivots, LU_data.shape[-2]):
            raise RuntimeError(
                "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
                "Did you properly pass the result of lu_factor?"
            )
        found = _permutation(LU_data, LU_pivots)
    return _Unpacked(found, *(triangles_of(LU_data) if unpack_data else (none, none)))


def _are_rows(pivots, rows):
    return all_hold((pivots >= 1) & (pivots <= rows))


_SWAPS = {
    "expanded": "pivots are numbers of rows",
    "in_graph": "P has no derivative, as in torch",
}
_PACKED = (_SQUARE, fixed((2, 3, 3), kind="int32"))
op(
    "lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, "
    "unpack_pivots: bool = True) -> Tensor[]",
    composite=_lu_unpack,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    dtypes=SOLVED,
    samples=lambda: [
        case(*_PACKED, skip=_SWAPS),
        case(_TALL, fixed((3, 2), kind="int32"), skip=_SWAPS),
        case(_WIDE, fixed((2, 2), kind="int32"), skip=_SWAPS),
    ],
    ref=references.lu_unpack,
    doc="Return P, L and U of what linalg.lu_factor gives; what is not unpacked is empty.\n\n"
    "Raises: RuntimeError for pivots that are no rows.",
)


# -- systems ---------------------------------------------------------------------------------------


def _lu_solve(LU, pivots, B, left, adjoint_):
    name = "linalg.lu_solve"
    if LU.ndim < 2:
        raise RuntimeError(f"torch.{name}: The input tensor A must have at least 2 dimensions.")
    rows, columns = LU.shape[-2:]
    if rows != columns:
        raise RuntimeError(
            f"torch.{name}: A must be batches of square matrices, but they are {rows} by "
            f"{columns} matrices"
        )
    require("linalg.lu_solve_cpu", SOLVED, LU)
    if LU.dtype != B.dtype:
        raise RuntimeError(
            f"{name}: Expected LU and B to have the same dtype, but found LU of type "
            f"{type_name(LU.dtype)} and B of type {type_name(B.dtype)} instead"
        )
    if pivots.dtype.name != "int32":
        raise RuntimeError(f"{name}: pivots should be a Tensor of scalar type torch.int32")
    if B.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor B must have at least 2 dimensions.")
    if rows != B.shape[-2 if left else -1]:
        equation = "AX = B" if left else "XA = B"
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {equation} "
            f"({rows}x{rows} and {B.shape[-2]}x{B.shape[-1]})"
        )
    if pivots.ndim < 1 or pivots.shape[-1] != rows:
        raise RuntimeError(
            f"{name}: Number of pivots per batch should be same as the dimension of the matrix"
        )
    if tuple(pivots.shape[:-1]) != tuple(LU.shape[:-2]):
        raise RuntimeError(f"{name}: Batch shape of pivots and LU should be the same")
    if not _are_rows(pivots, rows):
        raise RuntimeError(
            "Pivots given to lu_solve must all be smaller or equal to LU.size(-2). Did you "
            "properly pass the result of lu_factor?"
        )
    if not left:
        return adjoint(_solve_packed(LU, pivots, adjoint(B), not adjoint_))
    return _solve_packed(LU, pivots, B, adjoint_)


def _solve_packed(packed, pivots, right, turned):
    order = _order_of(pivots, packed.shape[-1])
    if not turned:
        half = solve_left(packed, _permute(right, order), False, True)
        return solve_left(packed, half, True)
    flipped = adjoint(packed)
    half = solve_left(flipped, right, False)
    return _permute(solve_left(flipped, half, True, True), ops.argsort(order))


_NO_POLE = "it exists but where U has a 0 or a denormal number on its diagonal"
_SYSTEMS = [
    case(*_PACKED, T(3, 2), skip=_SWAPS),
    case(*_PACKED, T(2, 3, 1), adjoint=True, skip=_SWAPS),
    case(*_PACKED, T(2, 3), left=False, skip=_SWAPS),
]
op(
    "linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, "
    "adjoint: bool = False) -> Tensor",
    composite=_lu_solve,
    function="lu_solve",
    kinks=[
        kink(
            [[1.0]],
            Fixed([1], "int32"),
            [[0.0]],
            to=([[0.0]], [[1.0]]),
            second=None,
            outside=_NO_POLE,
        )
    ],
    samples=_SYSTEMS,
    ref=references.lu_solve,
    doc="Return the solution X of A X = B, given what linalg.lu_factor makes of A.\n\nOf A^H X = B "
    "with `adjoint`, and of X A = B with left=False. Batch dims broadcast.\n\n"
    "Raises: RuntimeError for shapes that do not fit.",
    **_KEYWORDS,
)


def _top_lu_solve(self, LU_data, LU_pivots):
    warn_deprecated(
        "lu_solve",
        "pullback.linalg.lu_solve",
        "Note that pullback.linalg.lu_solve has its arguments reversed.\n"
        "X = pullback.lu_solve(B, LU, pivots)\nshould be replaced with\n"
        "X = pullback.linalg.lu_solve(LU, pivots, B)",
    )
    return _lu_solve(LU_data, LU_pivots, self, True, False)


op(
    "lu_solve(self: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor",
    autocast=("float32", None),
    composite=_top_lu_solve,
    kinks=[
        kink(
            [[0.0]],
            [[1.0]],
            Fixed([1], "int32"),
            to=([[1.0]], [[0.0]]),
            second=None,
            outside=_NO_POLE,
        )
    ],
    out=True,
    out_overlap=True,
    out_dtype="exact",
    dtypes=SOLVED,
    samples=lambda: [case(T(3, 2), *_PACKED, skip=_SWAPS)],
    ref=lambda np, self, LU_data, LU_pivots: references.lu_solve(np, LU_data, LU_pivots, self),
    doc="Return the solution X of A X = self, given what linalg.lu_factor makes of A.",
)
