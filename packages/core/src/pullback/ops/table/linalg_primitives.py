"""The primitives of linear algebra: name, family, inputs, what each computes, parameters.

All but those in ``COMPOSED`` are required. Matrices are 3-d, (batch, rows, columns), vectors 2-d.
"""

from __future__ import annotations

COMPOSED = ("svdvals",)

OF_LINALG: list[tuple[str, str, str, str, tuple[str, ...]]] = [
    (
        "solve",
        "solve",
        "self other",
        "out[b] solves self[b] @ out[b] = other[b] for 3-d operands (B, N, N) and (B, N, K), by "
        "elimination with partial pivoting. info[b] (int32) is 0, or the number of the first "
        "pivot that is exactly 0, counted from 1; then out[b] is NaN.",
        (),
    ),
    (
        "svd",
        "svd",
        "self",
        "Outputs u, s, vh and info: self[b] = u[b] @ diag(s[b]) @ vh[b] for 3-d operands (B, M, "
        "N), with orthonormal columns of u and rows of vh, and s in descending order. u and vh "
        "have min(M, N) of them, or all. info[b] (int32) is 0, or not if there is no result; then"
        " the outputs are NaN.",
        (),
    ),
    (
        "cholesky_factor",
        "decompose",
        "self",
        "Outputs out and info: for a 3-d operand (B, N, N), of which the lower triangle is read, "
        "the lower triangular out[b] with self[b] = out[b] @ out[b]^H. info[b] (int32) is 0, or "
        "the order of the first leading minor that is not positive.",
        (),
    ),
    (
        "triangular",
        "solve",
        "self other",
        "out[b] solves self[b] @ out[b] = other[b] for operands (B, N, N) and (B, N, K), where "
        "only the upper or the lower triangle of self counts; with unit its diagonal counts as "
        "ones.",
        ("upper:int", "unit:int"),
    ),
    (
        "lu_factor",
        "decompose",
        "self",
        "Outputs out, pivots and info by elimination with partial pivoting of (B, M, N): L below "
        "the diagonal of out, without its diagonal of ones, and U. Row i was swapped with row "
        "pivots[b, i] (int32, counted from 1) in turn. info[b] (int32) is 0, or the number of the"
        " first pivot that is 0.",
        (),
    ),
    (
        "permutation_of_swaps",
        "index",
        "swaps",
        "out[b] (int64) is what the swaps of the lu_factor primitive make of the numbers 0, 1, 2,"
        " ...",
        (),
    ),
    (
        "qr_factor",
        "decompose",
        "self",
        "Outputs out and tau: (B, M, N) as a product of reflections 1 - tau v v^H and an upper "
        "triangular matrix R with a real diagonal. out[b] has R and below it the elements of each"
        " v behind a 1; tau is (B, min(M, N)).",
        (),
    ),
    (
        "reflections",
        "decompose",
        "self tau",
        "The first columns out (B, M, N), N <= M, of the product of the reflections that self (B,"
        " M, K) and tau (B, K) hold as qr_factor makes them; K <= N.",
        (),
    ),
    (
        "svdvals",
        "decompose",
        "self",
        "Outputs values and info: the singular values (B, K) of the svd primitive without vectors.",
        (),
    ),
    (
        "eigh",
        "decompose",
        "self",
        "Outputs values, vectors and info of Hermitian matrices (B, N, N), of which the lower "
        "triangle is read: eigenvalues in ascending order and orthonormal eigenvectors, unless "
        "vectors is (B, 0, 0). info[b] (int32) is not 0 if there are none; then the outputs are "
        "NaN.",
        (),
    ),
    (
        "eig",
        "decompose",
        "self",
        "Outputs values, vectors and info of matrices (B, N, N): complex eigenvalues and "
        "eigenvectors of length 1, unless vectors is (B, 0, 0). info[b] (int32) is not 0 if there"
        " are none.",
        (),
    ),
    (
        "ldl_factor",
        "decompose",
        "self",
        "Outputs out, pivots and info of symmetric or Hermitian matrices (B, N, N), of which the "
        "lower triangle is read: as sytrf and hetrf of LAPACK.",
        ("hermitian:int",),
    ),
    (
        "ldl_solve",
        "solve",
        "self pivots other",
        "out[b] solves A @ out[b] = other[b] (B, N, K), given what ldl_factor makes of A.",
        ("hermitian:int",),
    ),
]
