"""Eigenvalues and eigenvectors."""

from pullback.ops.linalg.matrices import (
    SOLVED,
    adjoint,
    check_square,
    check_word,
    diagonal_of,
    fail_first,
    identity_like,
    new_by_columns,
    new_info,
    run_on_batch,
)
from pullback.ops.rules.dtypes import dtype_named, require, type_name
from pullback.ops.rules.operands import check_all
from pullback.ops.table.primitives_api import new_empty
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import op, ops, result_type

references = references_of("linalg")

_FREE = "eigenvectors may have any sign; their own tests cover it"
_HERMITIAN = {
    **dict.fromkeys(
        ("grad", "gradgrad"),
        "the derivative is that among Hermitian matrices; it has its own tests",
    ),
    "expanded": "a matrix with equal rows is not Hermitian",
}
_SYMMETRIC = [
    case(fixed((4, 1, 0, 1, -3, 1, 0, 1, 5), shape=(3, 3)), skip=_HERMITIAN),
    case(fixed((2, 1, 1, 3, -1, 2, 2, 4), shape=(2, 2, 2)), skip=_HERMITIAN),
    case(T(0, 2, 2)),
    case(T(2, 0, 0)),
]


def _check_phase(name, inner):
    """Raise where a result depends on the phases of eigenvectors, which are free."""
    turn, size = ops.imag(diagonal_of(inner)), 1e-2
    error = RuntimeError(
        f"{name}: The eigenvectors in the complex case are specified up to multiplication by "
        "e^{i phi}. The specified loss function depends on this quantity, so it is ill-defined."
    )
    check_all(ops.abs(turn) <= size, error)


def _gaps(values):
    """Return the differences of eigenvalues, column - row, with a diagonal of ones."""
    gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
    return gaps + identity_like(gaps.detach())


# -- of Hermitian matrices -------------------------------------------------------------------------


def _hermitian_forward(self, has_vectors):
    *batch, size, _ = self.shape
    values = new_empty(self, (*batch, size), self.dtype.to_real())
    vectors = new_by_columns(self, (*batch, *((size, size) if has_vectors else (0, 0))))
    info = new_info(self, batch)
    run_on_batch("eigh", [(values, 1), (vectors, 2), (info, 0)], [(self, 2)])
    return values, vectors, info


def _turned_back(vectors, inner):
    return ops.matmul(ops.matmul(vectors, inner), adjoint(vectors))


def _values_back(vectors, gvalues):
    return ops.matmul(vectors * gvalues.unsqueeze(-2), adjoint(vectors))


def _eigh_vjp(gs, out0, out1):
    """The gradient among Hermitian matrices.

    Source: M. Giles, "An extended collection of matrix derivative results", 2008, section 3.1.
    """
    gvalues, gvectors = gs[:2]
    if gvectors is None:
        return None if gvalues is None else _values_back(out1, gvalues)
    inner = ops.matmul(adjoint(out1), gvectors)
    if inner.is_complex():
        _check_phase("linalg_eigh_backward", inner)
    skew = (inner - adjoint(inner)) * 0.5
    gaps = _gaps(out0)
    found = (skew - ops.diag_embed(diagonal_of(skew))) / gaps
    return _turned_back(out1, found if gvalues is None else found + ops.diag_embed(gvalues))


op(
    "eigh_batch(self: Tensor) -> Tensor[]",
    forward=lambda self: _hermitian_forward(self, True),
    kernel="eigh",
    vjp={"self": lambda gs, out0, out1: _eigh_vjp(gs, out0, out1)},
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgEighBackward0",
    doc="Return eigenvalues in ascending order and eigenvectors of Hermitian matrices, and per "
    "matrix 0 if they were found; the lower triangle of self is read.",
    samples=_FREE,
)


def _eigvalsh_forward(self):
    values, _, info = _hermitian_forward(self, False)
    return values, info


def _eigvalsh_vjp(gs, self):
    if gs[0] is None:
        return None
    return _values_back(ops.eigh_batch(self)[1], gs[0])


op(
    "eigvalsh_batch(self: Tensor) -> Tensor[]",
    forward=_eigvalsh_forward,
    kernel="eigh",
    vjp={"self": lambda gs, self: _eigvalsh_vjp(gs, self)},
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgEighBackward0",
    doc="Return eigenvalues of Hermitian matrices in ascending order, and per matrix 0 if they "
    "were found.",
    samples=_SYMMETRIC,
    ref=lambda np, self: (np.linalg.eigvalsh(self), np.zeros(self.shape[:-2])),
)


def _checked_hermitian(A, UPLO, name="linalg_eigh"):
    check_square("linalg.eigh", A)
    require("linalg_eigh_cpu", SOLVED, A)
    check_word(name, "UPLO", UPLO)
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return adjoint(A) if UPLO.upper() == "U" else A


def _found(results):
    *results, info = results
    fail_first(
        "linalg.eigh: {prefix}The algorithm failed to converge because the input matrix is "
        "ill-conditioned or has too many repeated eigenvalues (error code: {number}).",
        info,
    )
    return results


_Eigh = result_type("linalg_eigh", "eigenvalues", "eigenvectors")
_Eig = result_type("linalg_eig", "eigenvalues", "eigenvectors")
_KEYWORDS = {
    "out": True,
    "out_overlap": True,
    "method": False,
    "namespace": "linalg",
    "dtypes": SOLVED,
}
_REPEATED = (
    "Of eigenvalues alone it exists and is finite where they are repeated; of eigenvectors, and of "
    "eigenvalues from the second order on, it is NaN or infinite there."
)
op(
    "linalg_eigh(A: Tensor, UPLO: str = 'L') -> Tensor[]",
    autocast=("float32", None),
    composite=lambda A, UPLO: _Eigh(*_found(ops.eigh_batch(_checked_hermitian(A, UPLO)))),
    function="eigh",
    samples=_FREE,
    doc="Return the eigenvalues, in ascending order, and eigenvectors of Hermitian matrices.\n\n"
    "Only the triangle of A that UPLO names is read, 'L' or 'U'.\n\nShape: (..., n, n) gives "
    "(..., n), which are real, and (..., n, n) with a vector in each column.\n\n"
    "Derivative: that among Hermitian matrices. A complex eigenvector may be turned by any phase: "
    f"RuntimeError for a loss that depends on it. {_REPEATED}\n\nRaises: RuntimeError for another "
    "UPLO; LinAlgError where LAPACK does not converge.",
    **_KEYWORDS,
)
op(
    "linalg_eigvalsh(A: Tensor, UPLO: str = 'L') -> Tensor",
    autocast=("float32", None),
    composite=lambda A, UPLO: _found(
        ops.eigvalsh_batch(_checked_hermitian(A, UPLO, "linalg_eigvalsh"))
    )[0],
    function="eigvalsh",
    samples=lambda: [*_SYMMETRIC, _SYMMETRIC[0]._replace(kwargs={"UPLO": "u"})],
    ref=lambda np, A, UPLO="L": np.linalg.eigvalsh(A, UPLO.upper()),
    doc="Return the eigenvalues of Hermitian matrices, in ascending order: see linalg.eigh.\n\n"
    f"Shape: (..., n, n) gives (..., n), which are real.\n\nDerivative: that among Hermitian "
    f"matrices. {_REPEATED}",
    **_KEYWORDS,
)


# -- of any matrices -------------------------------------------------------------------------------


def _general_forward(self, has_vectors):
    *batch, size, _ = self.shape
    dtype = self.dtype if self.is_complex() else _complex_of(self.dtype)
    values = new_empty(self, (*batch, size), dtype)
    vectors = new_by_columns(self, (*batch, *((size, size) if has_vectors else (0, 0))), dtype)
    info = new_info(self, batch)
    run_on_batch("eig", [(values, 1), (vectors, 2), (info, 0)], [(self, 2)])
    return values, vectors, info


def _complex_of(dtype):
    return dtype_named({4: "complex64", 8: "complex128"}[dtype.itemsize])


def _turned(vectors, inner, self):
    """Return V^-H inner V^H, in the dtype of the matrix."""
    found = ops.solve_batch(adjoint(vectors), ops.matmul(inner, adjoint(vectors)))[0]
    return found if self.is_complex() else ops.real(found)


def _eig_vjp(gs, self, out0, out1):
    """The gradient for eigenvectors of length 1.

    Source: C. Boeddeker et al., "On the computation of complex-valued gradients with application
    to statistically optimum beamforming", 2017, section 4.
    """
    gvalues, gvectors = gs[:2]
    if gvectors is None:
        return None if gvalues is None else _turned(out1, ops.diag_embed(gvalues), self)
    inner = ops.matmul(adjoint(out1), gvectors)
    _check_phase("linalg_eig_backward", inner)
    lengths = ops.real(diagonal_of(inner)).unsqueeze(-2)
    inner = inner - ops.matmul(adjoint(out1), out1) * lengths
    inner = inner - ops.diag_embed(diagonal_of(inner))
    found = inner / ops.conj(_gaps(out0))
    return _turned(out1, found if gvalues is None else found + ops.diag_embed(gvalues), self)


op(
    "eig_batch(self: Tensor) -> Tensor[]",
    forward=lambda self: _general_forward(self, True),
    kernel="eig",
    vjp={"self": lambda gs, self, out0, out1: _eig_vjp(gs, self, out0, out1)},
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgEigBackward0",
    doc="Return complex eigenvalues and eigenvectors of length 1, and per matrix 0 if they were "
    "found.",
    samples=_FREE,
)


def _eigvals_vjp(gs, self):
    if gs[0] is None:
        return None
    return _turned(ops.eig_batch(self)[1], ops.diag_embed(gs[0]), self)


def _eigvals_forward(self):
    values, _, info = _general_forward(self, False)
    return values, info


op(
    "eigvals_batch(self: Tensor) -> Tensor[]",
    forward=_eigvals_forward,
    kernel="eig",
    vjp={"self": lambda gs, self: _eigvals_vjp(gs, self)},
    batch="unary",
    method=False,
    function=False,
    dtypes=SOLVED,
    node="LinalgEigBackward0",
    doc="Return complex eigenvalues, and per matrix 0 if they were found.",
    samples=_FREE,
)


def _checked(name, A, run):
    check_square(name, A)
    if A.dtype.kind not in "fc":
        raise RuntimeError(f"Unknown Complex ScalarType for {type_name(A.dtype)}")
    *found, info = run(require("linalg_eig_out_cpu", SOLVED, A))
    error = RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    check_all(info >= 0, error)
    fail_first(
        "linalg.eig: {prefix}The algorithm failed to converge because the input matrix is "
        "ill-conditioned or has too many repeated eigenvalues (error code: {number}).",
        info,
    )
    return found


op(
    "linalg_eig(A: Tensor) -> Tensor[]",
    autocast=("float32", None),
    composite=lambda A: _Eig(*_checked("linalg.eig", A, ops.eig_batch)),
    function="eig",
    samples=_FREE,
    doc="Return the eigenvalues and eigenvectors of square matrices, which are complex.\n\n"
    "Shape: (..., n, n) gives (..., n), in no order, and (..., n, n) with a vector of length 1 in "
    "each column.\n\nDerivative: where the matrix has different eigenvalues. An eigenvector may be "
    "turned by any phase: RuntimeError for a loss that depends on it.\n\n"
    "Raises: RuntimeError for elements that are not finite; LinAlgError where LAPACK does not "
    "converge.",
    **_KEYWORDS,
)
op(
    "linalg_eigvals(A: Tensor) -> Tensor",
    autocast=("float32", None),
    composite=lambda A: _checked("linalg.eigvals", A, ops.eigvals_batch)[0],
    function="eigvals",
    samples=_FREE,
    doc="Return the eigenvalues of square matrices, which are complex and in no order.\n\n"
    "Shape: (..., n, n) gives (..., n).\n\nDerivative: where there are n linearly independent "
    "eigenvectors.\n\nRaises: RuntimeError for elements that are not finite.",
    **_KEYWORDS,
)
