"""Products of matrices and vectors."""

from pullback.optable.schema import NUMBERS, op, ops

op("mm(self: Tensor, mat2: Tensor) -> Tensor", forward="mm", kernel="bmm", dtypes=NUMBERS,
   vjp={"self": lambda g, mat2: g.mm(mat2.t().conj()),
        "mat2": lambda g, self: self.t().conj().mm(g)}, out=True, ref="numpy.matmul",
   doc="Return the product of two matrices.\n\nShape: (m, k) and (k, n) give (m, n).")
op("bmm(self: Tensor, mat2: Tensor) -> Tensor", forward="bmm", kernel="bmm", dtypes=NUMBERS,
   vjp={"self": lambda g, mat2: g.bmm(mat2.transpose(1, 2).conj()),
        "mat2": lambda g, self: self.transpose(1, 2).conj().bmm(g)}, out=True, ref="numpy.matmul",
   doc="Return the products of two batches of matrices.\n\nShape: (b, m, k) and (b, k, n) give "
       "(b, m, n).")


def _addmm(self, mat1, mat2, beta, alpha):
    product = ops.mm(mat1, mat2)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product if product.shape == self.expand(product.shape).shape else product
    return ops.add(product, self if beta == 1 else self * beta)


op("addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) "
   "-> Tensor", forward=_addmm,
   vjp={"self": lambda g, beta: g.scaled(beta),
        "mat1": lambda g, mat2, alpha: g.mm(mat2.t().conj()).scaled(alpha),
        "mat2": lambda g, mat1, alpha: mat1.t().conj().mm(g).scaled(alpha)},
   inplace=True, out=True, doc="Return beta * self + alpha * (mat1 @ mat2).")


def _matmul(self, other):
    """The rules of NumPy's matmul, by mm and bmm."""
    if self.ndim == 0 or other.ndim == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are "
                           f"{self.ndim}D and {other.ndim}D")
    if self.ndim == 2 and other.ndim == 2:
        return ops.mm(self, other)
    if self.ndim == 1 and other.ndim == 1:
        return ops.dot(self, other)
    if self.ndim == 1:
        return ops.matmul(self.unsqueeze(0), other).squeeze(-2)
    if other.ndim == 1:
        return ops.matmul(self, other.unsqueeze(1)).squeeze(-1)
    if other.ndim == 2:
        rows = self.reshape(-1, self.shape[-1]) if self.numel() or self.shape[-1] else (
            self.reshape(_product(self.shape[:-1]), self.shape[-1]))
        return ops.mm(rows, other).reshape((*self.shape[:-1], other.shape[-1]))
    return _batched(self, other)


def _product(sizes):
    count = 1
    for size in sizes:
        count *= size
    return count


def _batched(self, other):
    batch = _broadcast(self.shape[:-2], other.shape[:-2])
    count = _product(batch)
    if self.shape[-1] != other.shape[-2]:
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: "
                           f"[{count}, {self.shape[-1]}] but got: [{count}, {other.shape[-2]}].")
    left = self.expand((*batch, *self.shape[-2:])).reshape(count, *self.shape[-2:])
    right = other.expand((*batch, *other.shape[-2:])).reshape(count, *other.shape[-2:])
    return ops.bmm(left, right).reshape((*batch, self.shape[-2], other.shape[-1]))


def _broadcast(a, b):
    length = max(len(a), len(b))
    a = (1,) * (length - len(a)) + tuple(a)
    b = (1,) * (length - len(b)) + tuple(b)
    for d, (x, y) in enumerate(zip(a, b)):
        if x != y and x != 1 and y != 1:
            raise RuntimeError(f"The size of tensor a ({x}) must match the size of tensor b ({y}) "
                               f"at non-singleton dimension {d}")
    return tuple(y if x == 1 else x for x, y in zip(a, b))


op("matmul(self: Tensor, other: Tensor) -> Tensor", composite=_matmul, out=True,
   ref="numpy.matmul", doc="Return the matrix product, broadcast over leading dims.")


def _dot(self, tensor):
    if self.ndim != 1 or tensor.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {self.ndim}D and {tensor.ndim}D tensors")
    if self.shape != tensor.shape:
        raise RuntimeError(f"inconsistent tensor size, expected tensor {list(self.shape)} and src "
                           f"{list(tensor.shape)} to have the same number of elements, but got "
                           f"{self.numel()} and {tensor.numel()} elements respectively")
    return ops.mm(self.unsqueeze(0), tensor.unsqueeze(1)).reshape(())


op("dot(self: Tensor, tensor: Tensor) -> Tensor", composite=_dot, out=True, ref="numpy.dot",
   doc="Return the inner product of two vectors.")


def _mv(self, vec):
    if self.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {self.ndim}, {vec.ndim}")
    if self.shape[1] != vec.shape[0]:
        raise RuntimeError(f"size mismatch, got input ({self.shape[0]}), mat "
                           f"({self.shape[0]}x{self.shape[1]}), vec ({vec.shape[0]})")
    return ops.mm(self, vec.unsqueeze(1)).squeeze(1)


op("mv(self: Tensor, vec: Tensor) -> Tensor", composite=_mv, out=True, ref="numpy.matmul",
   doc="Return the product of a matrix and a vector.")
