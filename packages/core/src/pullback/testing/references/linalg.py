"""References of the ops of linear algebra. Each takes the NumPy module first, then the op's
arguments with arrays for tensors.
"""


def addr(np, self, vec1, vec2, beta=1, alpha=1):
    """Sums of bools are bools."""
    product = np.multiply.outer(vec1, vec2)
    if self.dtype == bool:
        return (self & bool(beta)) | (product & bool(alpha))
    return beta * self + alpha * product


def tensordot(np, a, b, dims=2):
    """torch broadcasts a contracted size of 1, and takes the dims as a tensor too."""
    if isinstance(dims, np.ndarray):
        dims = dims.tolist()
    if not isinstance(dims, int):
        first, second = list(dims[0]), list(dims[1])
        for x, y in zip(first, second):
            if a.shape[x] == 1:
                a = np.repeat(a, b.shape[y], x)
            if b.shape[y] == 1:
                b = np.repeat(b, a.shape[x], y)
        dims = first, second
    return np.tensordot(a, b, dims)


def einsum(np, equation, *operands):
    """NumPy takes no operands in a list."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)) and isinstance(equation, str):
        operands = operands[0]
    return np.einsum(equation, *operands)


def linear_solve(np, self, other, left=True):
    """torch decides by the batch whether the right side holds vectors."""
    if not left:
        return np.swapaxes(
            linear_solve(np, np.swapaxes(self, -1, -2), np.swapaxes(other, -1, -2)), -1, -2
        )
    vector = other.ndim == 1 or (self.ndim - 1 == other.ndim and other.shape == self.shape[:-1])
    if not vector:
        return np.linalg.solve(self, other)
    return np.linalg.solve(self, other[..., None])[..., 0]


def vector_norm(np, self, ord=2, dim=None, keepdim=False):
    """The norm of order `ord`, also for orders below 1 and for sizes of 0."""
    dims = tuple(range(self.ndim)) if dim is None else (dim,) if isinstance(dim, int) else dim
    size = np.abs(self)
    if not self.ndim:
        size, dims = size.reshape(1), (0,)
    if ord == float("inf"):
        out = size.max(dims, keepdims=keepdim)
    elif ord == -float("inf"):
        out = size.min(dims, keepdims=keepdim)
    elif ord == 0:
        out = (size != 0).sum(dims, keepdims=keepdim).astype(float)
    else:
        out = (size**ord).sum(dims, keepdims=keepdim) ** (1 / ord)
    return out.reshape(()) if not self.ndim else out


def matrix_norm(np, A, ord="fro", dim=(-2, -1), keepdim=False, dtype=None):
    """The norm by NumPy; that of no elements is 0."""
    if A.size:
        return np.linalg.norm(A, ord, dim, keepdim)
    shape = np.sum(A, dim, keepdims=keepdim).shape
    return np.zeros(shape)


def linalg_norm(np, A, ord=None, dim=None, keepdim=False):
    """The norm by NumPy; without an order, of all elements."""
    if ord is None:
        return vector_norm(np, A, 2, dim, keepdim)
    return np.linalg.norm(A, ord, dim, keepdim)


def distances(np, difference, p):
    """The p-norm of the last dim."""
    if not difference.shape[-1]:
        return np.zeros(difference.shape[:-1])
    return vector_norm(np, difference, p, -1)


def cdist(np, x1, x2, p=2.0, compute_mode=None):
    """The distance of each row of one matrix from each row of another."""
    return distances(np, x1[..., :, None, :] - x2[..., None, :, :], p)


def pdist(np, self, p=2.0):
    """The distances of all pairs of rows, in the order of the upper triangle."""
    first, second = np.triu_indices(self.shape[0], 1)
    return distances(np, self[first] - self[second], p)


def pairwise_distance(np, x1, x2, p=2.0, eps=1e-6, keepdim=False):
    """The distance of each row of one matrix from its partner in another."""
    out = distances(np, x1 - x2 + eps, p)
    return out[..., None] if keepdim else out


def cosine_similarity(np, x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between vectors along a dim."""
    x1, x2 = np.broadcast_arrays(x1, x2)
    sizes = [np.maximum(np.sqrt((x * x).sum(dim)), eps) for x in (x1, x2)]
    return (x1 * x2).sum(dim) / (sizes[0] * sizes[1])


def cross(np, self, other, dim=-1):
    """NumPy moves the vectors to the last axis and back."""
    shape = np.broadcast_shapes(self.shape, other.shape)
    return np.cross(np.broadcast_to(self, shape), np.broadcast_to(other, shape), axis=dim)


def normalize(np, self, p=2.0, dim=1, eps=1e-12):
    """Divide by the norm, kept away from 0."""
    return self / np.maximum(vector_norm(np, self, p, dim, True), eps)


def transposed(np, matrices):
    """The conjugate transpose of the last two dims."""
    return np.conj(np.swapaxes(matrices, -1, -2))


def solve_triangular(np, A, B, *, upper, left=True, unitriangular=False):
    """The triangle that counts, solved as any matrix."""
    A = np.triu(A) if upper else np.tril(A)
    if unitriangular:
        A = A - A * np.eye(A.shape[-1]) + np.eye(A.shape[-1])
    if left:
        return np.linalg.solve(A, B)
    return np.swapaxes(np.linalg.solve(np.swapaxes(A, -1, -2), np.swapaxes(B, -1, -2)), -1, -2)


def triangular_solve(np, self, A, upper=True, transpose=False, unitriangular=False):
    """The solution and a copy of the matrix."""
    turned = np.swapaxes(A, -1, -2) if transpose else A
    found = solve_triangular(
        np, turned, self, upper=upper != transpose, unitriangular=unitriangular
    )
    return found, np.broadcast_to(A, (*found.shape[:-2], *A.shape[-2:]))


def cholesky(np, A, upper=False):
    """NumPy's factor, or its conjugate transpose."""
    lower = np.linalg.cholesky(transposed(np, A) if upper else A)
    return transposed(np, lower) if upper else lower


def product_of_factor(np, factor, upper):
    """The matrix whose Cholesky factor is the named triangle."""
    lower = transposed(np, np.triu(factor)) if upper else np.tril(factor)
    return lower @ transposed(np, lower)


def cholesky_solve(np, self, input2, upper=False):
    """The matrix of the factor, solved as any other."""
    return np.linalg.solve(product_of_factor(np, input2, upper), self)


def cholesky_inverse(np, self, upper=False):
    """The inverse of the matrix of the factor."""
    return np.linalg.inv(product_of_factor(np, self, upper))


def lu_packed(np, A):
    """L and U in one matrix, pivots, and infos, by elimination."""
    rows, columns = A.shape[-2:]
    out = np.array(A)
    pivots = np.zeros((*A.shape[:-2], min(rows, columns)), np.int32)
    for place in np.ndindex(*A.shape[:-2]):
        matrix = out[place]
        for step in range(min(rows, columns)):
            chosen = step + np.argmax(np.abs(matrix[step:, step]))
            pivots[(*place, step)] = chosen + 1
            matrix[[step, chosen]] = matrix[[chosen, step]]
            matrix[step + 1 :, step] /= matrix[step, step]
            product = np.outer(matrix[step + 1 :, step], matrix[step, step + 1 :])
            matrix[step + 1 :, step + 1 :] -= product
    return out, pivots, np.zeros(A.shape[:-2])


def permutation_of_swaps(np, self, rows):
    """Swap one after another."""
    out = np.broadcast_to(np.arange(rows), (*self.shape[:-1], rows)).copy()
    for place in np.ndindex(*self.shape[:-1]):
        for step, other in enumerate(self[place]):
            out[place][[step, other - 1]] = out[place][[other - 1, step]]
    return out


def lu_unpack(np, LU_data, LU_pivots):
    """P, L and U."""
    rows, columns = LU_data.shape[-2:]
    small = min(rows, columns)
    order = permutation_of_swaps(np, LU_pivots, rows)
    lower = np.tril(LU_data[..., :small], -1) + np.eye(rows, small)
    return np.swapaxes(np.eye(rows)[order], -1, -2), lower, np.triu(LU_data[..., :small, :])


def lu(np, A):
    """P, L and U of a matrix."""
    return lu_unpack(np, *lu_packed(np, A)[:2])


def top_lu(np, self, get_infos=False):
    """The infos come where they are asked for."""
    found = lu_packed(np, self)
    return found if get_infos else found[:2]


def lu_solve(np, LU, pivots, B, left=True, adjoint=False):
    """The matrix of the factors, solved as any other."""
    order, lower, upper = lu_unpack(np, LU, pivots)
    matrix = order @ lower @ upper
    if adjoint:
        matrix = transposed(np, matrix)
    return linear_solve(np, matrix, B, left)


def det(np, A):
    """NumPy's determinant."""
    return np.linalg.det(A)


def slogdet(np, A):
    """NumPy's sign and logarithm."""
    return tuple(np.linalg.slogdet(A))


def logdet(np, A):
    """The logarithm of the determinant."""
    sign, size = np.linalg.slogdet(A)
    return np.log(sign) + size


def product_of_reflections(np, vectors, tau):
    """The square matrix 1 - tau v v^H of each column, multiplied."""
    rows = vectors.shape[-2]
    out = np.broadcast_to(np.eye(rows), (*vectors.shape[:-2], rows, rows))
    for column in range(tau.shape[-1]):
        v = np.where(np.arange(rows) > column, vectors[..., column], 0)
        v = (v + np.eye(rows)[column])[..., None]
        out = out @ (np.eye(rows) - tau[..., column, None, None] * v @ transposed(np, v))
    return out


def householder_product(np, input, tau):
    """The first columns of the product."""
    return product_of_reflections(np, input, tau)[..., : input.shape[-1]]


def ormqr(np, self, input2, input3, left=True, transpose=False):
    """The product, multiplied."""
    factor = product_of_reflections(np, self, input2)
    if transpose:
        factor = transposed(np, factor)
    return factor @ input3 if left else input3 @ factor


def qr(np, A, mode="reduced"):
    """NumPy's decomposition, which is LAPACK's; in the mode "r" Q is empty."""
    if mode == "r":
        return np.zeros(0), np.linalg.qr(A, mode)
    return tuple(np.linalg.qr(A, mode))


def geqrf(np, self):
    """NumPy's raw decomposition, which is LAPACK's, transposed."""
    found, tau = np.linalg.qr(self, "raw")
    return np.swapaxes(found, -1, -2), tau


def matrix_exp(np, A):
    """The Taylor series of A / 2^s, squared s times."""
    A = np.asarray(A, complex if A.dtype.kind == "c" else float)
    squarings = 12
    scaled = A / 2.0**squarings
    out = term = np.broadcast_to(np.eye(A.shape[-1]), A.shape)
    for k in range(1, 20):
        term = term @ scaled / k
        out = out + term
    for _ in range(squarings):
        out = out @ out
    return out


def pinv(np, A, rcond=None, hermitian=False, atol=0.0, rtol=None):
    """NumPy's pseudoinverse with the tolerance that applies."""
    if not A.size:
        return np.zeros((*A.shape[:-2], A.shape[-1], A.shape[-2]))
    if rtol is None:
        return np.linalg.pinv(A, hermitian=hermitian)
    largest = np.linalg.svd(A, compute_uv=False).max()
    return np.linalg.pinv(A, rcond=max(rtol, atol / largest), hermitian=hermitian)


def matrix_rank(np, A, tol=None, hermitian=False):
    """NumPy's rank; it takes no empty matrices."""
    return np.linalg.matrix_rank(A, tol, hermitian) if A.size else np.zeros(A.shape[:-2], int)


def cond(np, A, p=None):
    """NumPy's condition number; it takes no empty batches."""
    return np.linalg.cond(A, p) if A.size else np.zeros(A.shape[:-2])


def lstsq(np, self, b, driver="gelsy"):
    """The pseudoinverse, applied."""
    vector = self.ndim != b.ndim
    other = b[..., None] if vector else b
    solution = np.linalg.pinv(self) @ other
    rows, columns = self.shape[-2:]
    residuals = np.zeros(0)
    if rows > columns and driver != "gelsy":
        residuals = (np.abs(other - self @ solution) ** 2).sum(-2)
    rank = np.linalg.matrix_rank(self) if driver != "gels" else np.zeros(0)
    values = np.linalg.svd(self, compute_uv=False) if driver == "gelsd" else np.zeros(0)
    return solution[..., 0] if vector else solution, residuals, np.asarray(rank), values


def linalg_vander(np, x, N=None):
    """The powers, one after another; integers in 64 bits."""
    columns = x.shape[-1] if N is None else N
    x = x.astype(np.int64) if x.dtype.kind in "iu" else x
    return np.stack([x**k for k in range(columns)], -1)


def nuclear_norm(np, self, dim=None, keepdim=False):
    """NumPy's norm."""
    return np.linalg.norm(self, "nuc", (-2, -1) if dim is None else dim, keepdim)


def vector_norm_of_dims(np, self, dim, keepdim=False):
    """The 2-norm over the dims."""
    return vector_norm(np, self, 2, dim, keepdim)


def columns_of_reflections(np, self, tau, columns):
    """The first columns of the product."""
    return product_of_reflections(np, self, tau)[..., :columns]


def ldl_solve(np, LD, pivots, B, hermitian=False):
    """The matrix of the factors, solved as any other."""
    count = LD.shape[-1]
    turned = np.conj if hermitian else np.asarray
    blocks, factor, step = np.zeros(LD.shape, LD.dtype), np.eye(count), 0
    while step < count:
        last = step if pivots[step] > 0 else step + 1
        swap = np.eye(count)
        swap[[last, abs(pivots[step]) - 1]] = swap[[abs(pivots[step]) - 1, last]]
        column = np.eye(count, dtype=LD.dtype)
        column[last + 1 :, step : last + 1] = LD[last + 1 :, step : last + 1]
        factor = factor @ swap @ column
        blocks[step, step] = LD[step, step]
        if last > step:
            blocks[last, last], blocks[last, step] = LD[last, last], LD[last, step]
            blocks[step, last] = turned(LD[last, step])
        step = last + 1
    return np.linalg.solve(factor @ blocks @ turned(factor).T, B)


def rank_is_not_full(matrices, *_):
    """Whether a matrix, or its first square part, is nearly of a smaller rank."""
    import numpy as np

    small = min(matrices.shape[-2:])
    parts = (matrices, matrices[..., :small]) if small else ()
    values = [np.linalg.svd(part, compute_uv=False) for part in parts]
    return any((value[..., -1] <= 1e-3 * value[..., 0]).any() for value in values)


def pivots_are_zero(matrices, *_):
    """Whether elimination divides by 0."""
    import numpy as np

    small = min(matrices.shape[-2:])
    square = matrices[..., :small, :small] if small else np.ones((1, 1))
    return bool((np.abs(np.linalg.det(square)) < 1e-12).any())
