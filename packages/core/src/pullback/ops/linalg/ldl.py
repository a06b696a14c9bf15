"""LDL decompositions of symmetric and Hermitian matrices, which may be indefinite."""

from pullback.ops.linalg.matrices import (
    SOLVED,
    check_matrices,
    check_square,
    fail_first,
    new_by_columns,
    new_info,
    run_on_batch,
)
from pullback.ops.linalg.triangular import check_same_system
from pullback.ops.rules.dims import wrap_dim
from pullback.ops.rules.dtypes import check_inexact, dtype_named, require, type_name
from pullback.ops.rules.shapes import broadcast_shape
from pullback.ops.table.primitives_api import new_empty
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import op, ops, result_type

references = references_of("linalg")


def _forward(self, hermitian):
    out = new_by_columns(self, self.shape)
    pivots = new_empty(self, self.shape[:-1], dtype_named("int32"))
    info = new_info(self, self.shape[:-2])
    run_on_batch("ldl_factor", [(out, 2), (pivots, 1), (info, 0)], [(self, 2)], int(hermitian))
    return out, pivots, info


def _raise_factor(*_):
    raise RuntimeError("derivative for aten::linalg_ldl_factor_ex is not implemented")


_FREE = "pivots may be chosen otherwise; its own tests multiply the factors"
op(
    "ldl_batch(self: Tensor, hermitian: bool) -> Tensor[]",
    forward=_forward,
    kernel="ldl_factor",
    vjp={"self": lambda gs, self_shape: _raise_factor(gs)},
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="NotImplemented",
    doc="Return L and D in one matrix, pivots, and per matrix the number of the first block of D "
    "that is 0, or 0.",
    samples=_FREE,
)

_Factor = result_type("linalg_ldl_factor", "LD", "pivots")
_FactorEx = result_type("linalg_ldl_factor_ex", "LD", "pivots", "info")


def _ldl_factor_ex(self, hermitian, check_errors):
    name = "torch.linalg.ldl_factor_ex"
    check_square(name, self)
    check_inexact(name, self)
    found = ops.ldl_batch(require("ldl_factor_kernel_cpu", SOLVED, self), hermitian)
    if check_errors:
        fail_first(
            "torch.linalg.ldl_factor_ex: {prefix}The diagonal block {number} of D is zero: the "
            "input matrix is singular.",
            found[2],
        )
    return _FactorEx(*found)


_KEYWORDS = {
    "out": True,
    "out_overlap": True,
    "out_dtype": "exact",
    "method": False,
    "namespace": "linalg",
    "dtypes": SOLVED,
}
_ABOUT = (
    "A = L D L^T, or L D L^H with `hermitian`: D has blocks of 1 x 1 and 2 x 2.\n\nBy "
    "Bunch-Kaufman pivoting, as sytrf and hetrf of LAPACK; the lower triangle of A is read. "
    "Shape: (..., n, n); pivots are (..., n), int32.\n\nDerivative: none, as in torch."
)
op(
    "linalg_ldl_factor(self: Tensor, *, hermitian: bool = False) -> Tensor[]",
    composite=lambda self, hermitian: _Factor(*_ldl_factor_ex(self, hermitian, True)[:2]),
    function="ldl_factor",
    samples=_FREE,
    doc=f"Return L and D in one matrix, and the pivots, of {_ABOUT}\n\nRaises: LinAlgError where a "
    "block of D is 0.",
    **_KEYWORDS,
)
op(
    "linalg_ldl_factor_ex(self: Tensor, *, hermitian: bool = False, check_errors: bool = False) "
    "-> Tensor[]",
    composite=_ldl_factor_ex,
    function="ldl_factor_ex",
    samples=_FREE,
    doc="Return L and D in one matrix, the pivots, and per matrix 0 or the number of the first "
    f"block of D that is 0, of {_ABOUT}",
    **_KEYWORDS,
)


def _solve_forward(self, pivots, other, hermitian):
    out = new_by_columns(other, other.shape)
    if other.numel():
        run_on_batch("ldl_solve", [(out, 2)], [(self, 2), (pivots, 1), (other, 2)], int(hermitian))
    return out


def _solve_vjp(g, self, pivots, hermitian):
    """By the right side; a Hermitian matrix is its own adjoint, a symmetric one its conjugate's."""
    if self.requires_grad:
        raise RuntimeError("derivative for aten::linalg_ldl_solve is not implemented")
    if hermitian or not self.is_complex():
        return None, ops.ldl_solve_batch(self, pivots, g, hermitian)
    return None, ops.conj(ops.ldl_solve_batch(self, pivots, ops.conj(g), False))


_FACTOR = fixed((4, 0, 0, 1, -3, 0, 2, 0, 5), shape=(3, 3))
_ONE_SIDED = {
    "expanded": "pivots are numbers of rows",
    **dict.fromkeys(
        (
            *("grad", "gradgrad", "forward", "batch_grad", "lazy_grad", "in_graph", "compiled"),
            *("masked", "kept"),
        ),
        "only the right side has a derivative",
    ),
}
op(
    "ldl_solve_batch(self: Tensor, pivots: Tensor, other: Tensor, hermitian: bool) -> Tensor",
    forward=_solve_forward,
    kernel="ldl_solve",
    vjp={("self", "other"): _solve_vjp},
    batch="matrices",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="NotImplemented",
    doc="Return the solutions X of A @ X = other, given what linalg.ldl_factor makes of A.",
    samples="linalg.ldl_solve has samples; only the right side has a derivative",
)


def _ldl_solve(LD, pivots, B, hermitian):
    name = "torch.linalg.ldl_solve"
    check_matrices(name, LD)
    check_square(name, LD)
    wrap_dim(-2, B.ndim, name)
    if tuple(pivots.shape) != tuple(LD.shape[:-1]):
        raise RuntimeError(
            f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with "
            f"shape {list(pivots.shape)} instead"
        )
    if pivots.dtype.kind not in "iu":
        raise RuntimeError(f"{name}: Expected pivots to be integers. Got {type_name(pivots.dtype)}")
    check_same_system("torch.linalg.ldl_solve", B, LD)
    require("ldl_solve_kernel_cpu", SOLVED, LD)
    batch = broadcast_shape(LD.shape[:-2], B.shape[:-2])
    return ops.ldl_solve_batch(
        LD.expand((*batch, *LD.shape[-2:])),
        pivots.to(dtype_named("int32")).expand((*batch, pivots.shape[-1])),
        B.expand((*batch, *B.shape[-2:])),
        hermitian,
    )


op(
    "linalg_ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor",
    composite=_ldl_solve,
    function="ldl_solve",
    samples=lambda: [
        case(_FACTOR, fixed((2, 3, 3), kind="int32"), T(3, 2), skip=_ONE_SIDED),
        case(_FACTOR, fixed((-2, -2, 3), kind="int32"), T(2, 3, 1), skip=_ONE_SIDED),
        case(_FACTOR, fixed((-3, -3, 3), kind="int32"), T(3, 1), hermitian=True, skip=_ONE_SIDED),
    ],
    ref=references.ldl_solve,
    doc="Return the solution X of A X = B, given what linalg.ldl_factor makes of A.\n\n"
    "Shape: B is (..., n, k); batch dims broadcast.\n\n"
    "Derivative: by B.\n\nRaises: RuntimeError for shapes or dtypes that do not fit.",
    **_KEYWORDS,
)
