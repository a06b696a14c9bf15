"""Exponentials of matrices."""

import math

from pullback.ops.linalg.matrices import adjoint, check_square, identity_like
from pullback.ops.rules.dtypes import accumulate_dtype, cast_to, check_inexact
from pullback.ops.table.primitives_api import new_empty
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import FLOAT_COMPLEX, op, ops

references = references_of("linalg")

# Norms up to which Pade approximants are as exact as rounding, by the size of a real number, each
# with its degree. Source: N. Higham, "The scaling and squaring method for the matrix exponential
# revisited", 2005, table 2.3.
_BOUNDS = {
    4: ((4.25873e-1, 3), (1.880153, 5), (3.925724, 7)),
    8: (
        (1.495585217958292e-2, 3),
        (2.53939833006323e-1, 5),
        (9.504178996162932e-1, 7),
        (2.097847961257068, 9),
        (5.371920351148152, 13),
    ),
}


def _coefficients(degree):
    """Return the coefficients of the numerator, scaled so that the last is 1."""
    total = math.factorial(2 * degree)
    numbers = [
        math.factorial(2 * degree - k)
        * math.factorial(degree)
        / (total * math.factorial(k) * math.factorial(degree - k))
        for k in range(degree + 1)
    ]
    return [number / numbers[-1] for number in numbers]


def _approximant(matrices, degree):
    """Return the Pade approximant of a degree, as p(-A)^-1 p(A)."""
    numbers = _coefficients(degree)
    one = identity_like(matrices)
    square = ops.matmul(matrices, matrices)
    powers = [one, square]
    while len(powers) < min(degree // 2 + 1, 4):
        powers.append(ops.matmul(powers[-1], square))

    def polynomial(numbers):
        """Return the sum of numbers[i] A^(2 i); beyond A^6 in two parts."""
        low = sum(x * power for x, power in zip(numbers[1:4], powers[1:4])) + numbers[0] * one
        if len(numbers) <= 4:
            return low
        high = sum(x * power for x, power in zip(numbers[4:], powers[1:]))
        return low + ops.matmul(powers[3], high)

    odd = ops.matmul(matrices, polynomial(numbers[1::2]))
    even = polynomial(numbers[0::2])
    return ops.solve_batch(even - odd, even + odd)[0]


def _exp_forward(self):
    """Scale each matrix by a power of two, approximate, and square as often."""
    if not self.numel() or self.device.type == "meta":
        return new_empty(self, self.shape)
    matrices = cast_to(self, accumulate_dtype(self.dtype))
    norms = ops.amax(ops.sum(ops.abs(matrices), -2), -1)
    largest = float(ops.amax(norms).item())
    bounds = _BOUNDS[norms.dtype.itemsize]
    if not math.isfinite(largest):
        finite = ops.isfinite(norms)[..., None, None]
        if not bool(ops.any(finite).item()):
            return ops.full_like(self, math.nan)
        found = _exp_forward(ops.where(finite, matrices, ops.zeros_like(matrices)))
        return cast_to(ops.where(finite, found, math.nan), self.dtype)
    degree = next((degree for bound, degree in bounds if largest <= bound), None)
    if degree is not None:
        return cast_to(_approximant(matrices, degree), self.dtype)
    bound, degree = bounds[-1]
    count = math.ceil(math.log2(largest / bound))
    steps = ops.clamp(ops.ceil(ops.log2(norms / bound)), 0, count)[..., None, None]
    found = _approximant(matrices * ops.exp2(-steps), degree)
    is_same = bool(ops.all(steps == count).item())
    for step in range(count):
        squared = ops.matmul(found, found)
        found = squared if is_same else ops.where(steps > step, squared, found)
    return cast_to(found, self.dtype)


def _exp_vjp(g, self):
    """The derivative is a block of the exponential of a larger matrix.

    Source: C. Van Loan, "Computing integrals involving the matrix exponential", 1978.
    """
    turned, size = adjoint(self), self.shape[-1]
    scale = _scale_beside(g.detach(), self.detach())
    upper = ops.cat((turned, g * scale), -1)
    lower = ops.cat((ops.zeros_like(turned), turned), -1)
    found = ops.matrix_exp_batch(ops.cat((upper, lower), -2))
    return found.narrow(-2, 0, size).narrow(-1, size, size) / scale


def _scale_beside(g, matrices):
    """Return powers of two that bring gradients to the size of the matrices, which is best."""
    if not g.numel():
        return 1.0

    def size(matrices):
        return ops.amax(ops.abs(matrices), (-2, -1), True)

    found = ops.clamp(size(matrices), 1e-3) / size(g)
    is_usable = (found > 0) & (found < math.inf)
    found = ops.where(is_usable, found, ops.ones_like(found))
    return ops.exp2(ops.floor(ops.log2(found)))


_SAMPLES = [
    case(T(2, 2)),
    case(T(2, 2, 2)),
    case(fixed((0.01, 0.02, -0.01, 0.03), shape=(2, 2))),
    case(fixed((3, 1, 0, 1, 2, 1, 2, 0, 1), shape=(3, 3))),
    case(T(0, 2, 2)),
    case(T(0, 0)),
]
op(
    "matrix_exp_batch(self: Tensor) -> Tensor",
    forward=_exp_forward,
    vjp={"self": _exp_vjp},
    batch="unary",
    method=False,
    function=False,
    dtypes=FLOAT_COMPLEX,
    node="LinalgMatrixExpBackward0",
    doc="Return the exponentials of square matrices.",
    samples=_SAMPLES,
    ref=references.matrix_exp,
)


def _matrix_exp(self):
    check_square("linalg.matrix_exp", self)
    check_inexact("linalg.matrix_exp", self)
    return ops.matrix_exp_batch(self)


_ABOUT = (
    "Return the exponentials of square matrices, the sums of their powers A^k / k!.\n\n"
    "By scaling, Pade approximants and squaring. Shape: (..., n, n) gives (..., n, n)."
)
op(
    "matrix_exp(self: Tensor) -> Tensor",
    composite=_matrix_exp,
    dtypes=FLOAT_COMPLEX,
    samples=_SAMPLES,
    ref=references.matrix_exp,
    doc=_ABOUT,
)
op(
    "linalg_matrix_exp(A: Tensor) -> Tensor",
    composite=lambda A: _matrix_exp(A),
    method=False,
    namespace="linalg",
    function="matrix_exp",
    dtypes=FLOAT_COMPLEX,
    samples=_SAMPLES[:2],
    ref=references.matrix_exp,
    doc=_ABOUT,
)
