"""Systems of linear equations whose matrices are triangular."""

from pullback.ops.linalg.matrices import (
    SOLVED,
    adjoint,
    check_matrices,
    check_square,
    new_by_columns,
    run_on_batch,
    warn_deprecated,
)
from pullback.ops.rules.dtypes import require, type_name
from pullback.ops.rules.shapes import broadcast_shape
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import op, ops, result_type

references = references_of("linalg")

TRIANGLE = fixed((4, 1, 2, 1, -3, 1, 2, 1, 5), shape=(3, 3))
TRIANGLES = fixed((2, 1, 1, 3, -1, 2, 3, 4), shape=(2, 2, 2))


def solve_left(self, other, upper, unit=False):
    """Return the solution of self X = other; batch dims broadcast."""
    batch = broadcast_shape(self.shape[:-2], other.shape[:-2])
    return ops.triangular_batch(
        self.expand((*batch, *self.shape[-2:])),
        other.expand((*batch, *other.shape[-2:])),
        upper,
        unit,
    )


def solve_right(self, other, upper, unit=False):
    """Return the solution of X self = other."""
    found = solve_left(self.transpose(-2, -1), other.transpose(-2, -1), not upper, unit)
    return found.transpose(-2, -1)


def _forward(self, other, upper, unit):
    out = new_by_columns(other, other.shape)
    if other.numel():
        run_on_batch("triangular", [(out, 2)], [(self, 2), (other, 2)], int(upper), int(unit))
    return out


def _vjp(g, self, out, upper, unit):
    right = ops.triangular_batch(adjoint(self), g, not upper, unit)
    product = -ops.matmul(right, adjoint(out))
    keep = ops.triu if upper else ops.tril
    return keep(product, (1 if upper else -1) if unit else 0), right


op(
    "triangular_batch(self: Tensor, other: Tensor, upper: bool, unit: bool) -> Tensor",
    forward=_forward,
    kernel="triangular",
    vjp={("self", "other"): _vjp},
    method=False,
    function=False,
    dtypes=SOLVED,
    batch="matrices",
    node="LinalgSolveTriangularBackward0",
    doc="Return the solutions X of self @ X = other, where the upper or lower triangle of self "
    "counts; with `unit` its diagonal counts as ones.",
    samples=lambda: [
        case(TRIANGLE, T(3, 2), True, False),
        case(TRIANGLE, T(3, 2), False, True),
        case(TRIANGLES, T(2, 2, 3), False, False),
        case(T(0, 2, 2), T(0, 2, 1), True, False),
        case(T(0, 0), T(0, 2), True, False),
    ],
    ref=lambda np, self, other, upper, unit: references.solve_triangular(
        np, self, other, upper=upper, unitriangular=unit
    ),
)


def _solve_triangular(A, B, upper, left, unitriangular):
    name = "linalg.solve_triangular"
    check_square(name, A)
    check_matrices(name, B, "B")
    size, there = A.shape[-1], B.shape[-2 if left else -1]
    if size != there:
        equation = "AX = B" if left else "XA = B"
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {equation} "
            f"({size}x{size} and {B.shape[-2]}x{B.shape[-1]})"
        )
    require("triangular_solve_cpu", SOLVED, A)
    if A.dtype != B.dtype:
        raise RuntimeError(
            f"{name}: Expected A and B to have the same dtype, but found A of type "
            f"{type_name(A.dtype)} and B of type {type_name(B.dtype)} instead"
        )
    return (solve_left if left else solve_right)(A, B, upper, unitriangular)


op(
    "linalg_solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, "
    "unitriangular: bool = False) -> Tensor",
    composite=_solve_triangular,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="solve_triangular",
    dtypes=SOLVED,
    samples=lambda: [
        case(TRIANGLE, T(3, 2), upper=True),
        case(TRIANGLES, T(2, 3), upper=False),
        case(TRIANGLES, T(3, 1, 3, 2), upper=True, left=False),
        case(TRIANGLE, T(2, 3, 2), upper=False, unitriangular=True),
        case(T(0, 0), T(0, 2), upper=True),
        case(TRIANGLE, T(3, 0), upper=True),
    ],
    ref=references.solve_triangular,
    doc="Return the solution X of A X = B for triangular A, or of X A = B with left=False.\n\n"
    "Only the triangle that `upper` names is read; with `unitriangular` its diagonal counts as "
    "ones. A diagonal element of 0 gives infinities and NaN.\n\n"
    "Shape: A (..., n, n), B (..., n, k); batch dims broadcast.\n\n"
    "Raises: RuntimeError for shapes that do not fit.",
)


def check_pair(name, b, A, what=("b", "A")):
    """Make the checks that torch's older solvers share, in their order and words."""
    for letter, tensor in zip(what, (b, A)):
        if tensor.ndim < 2:
            text = {
                "torch.triangular_solve": f"{name}: Expected {letter} to have at least 2 "
                f"dimensions, but it has {tensor.ndim} dimensions instead"
            }.get(
                name,
                f"{letter} should have at least 2 dimensions, but has {tensor.ndim} "
                "dimensions instead",
            )
            raise RuntimeError(text)
    check_same_system(name.removeprefix("torch."), b, A)


def check_same_system(name, b, A):
    """Raise RuntimeError where the dtypes or sizes of a system differ."""
    if A.dtype != b.dtype:
        raise RuntimeError(
            f"Expected b and A to have the same dtype, but found b of type {type_name(b.dtype)} "
            f"and A of type {type_name(A.dtype)} instead."
        )
    rows, columns = A.shape[-2:]
    if rows != columns:
        raise RuntimeError(
            f"A must be batches of square matrices, but they are {rows} by {columns} matrices"
        )
    if rows != b.shape[-2]:
        raise RuntimeError(
            f"Incompatible matrix sizes for {name}: each A matrix is {rows} by {rows} but each b "
            f"matrix is {b.shape[-2]} by {b.shape[-1]}"
        )


_Solved = result_type("triangular_solve", "solution", "cloned_coefficient")


def _triangular_solve(self, A, upper, transpose, unitriangular):
    warn_deprecated(
        "triangular_solve",
        "pullback.linalg.solve_triangular",
        "pullback.linalg.solve_triangular has its arguments reversed and does not return a copy of "
        "one of the inputs.\n"
        "X = pullback.triangular_solve(B, A).solution\nshould be replaced with\n"
        "X = pullback.linalg.solve_triangular(A, B).",
    )
    check_pair("torch.triangular_solve", self, A)
    require("triangular_solve_cpu", SOLVED, A)
    turned = A.transpose(-2, -1) if transpose else A
    found = solve_left(turned, self, upper != transpose, unitriangular)
    return _Solved(found, A.expand((*found.shape[:-2], *A.shape[-2:])).clone())


op(
    "triangular_solve(self: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, "
    "unitriangular: bool = False) -> Tensor[]",
    autocast=("float32", None),
    composite=_triangular_solve,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    dtypes=SOLVED,
    samples=lambda: [
        case(T(3, 2), TRIANGLE),
        case(T(2, 3), TRIANGLES, False, True),
        case(T(3, 2), TRIANGLE, unitriangular=True),
    ],
    ref=references.triangular_solve,
    doc="Return the solution X of A X = self for triangular A, or of A^T X = self with "
    "`transpose`, and a copy of A: see linalg.solve_triangular.",
)
