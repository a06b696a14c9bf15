"""Products of matrices and vectors."""

from pullback.optable.cases import T, case
from pullback.optable.schema import FLOAT_COMPLEX, NUMBERS, op, ops

op("mm(self: Tensor, mat2: Tensor) -> Tensor", forward="mm", kernel="bmm", dtypes=NUMBERS,
   vjp={"self": lambda g, mat2: g.mm(mat2.t().conj()),
        "mat2": lambda g, self: self.t().conj().mm(g)}, out=True, ref="numpy.matmul",
   doc="Return the product of two matrices.\n\nShape: (m, k) and (k, n) give (m, n).",
   samples=[case(T(2, 3), T(3, 4)), case(T(1, 1), T(1, 1)), case(T(0, 3), T(3, 2)),
            case(T(2, 0), T(0, 3))])
op("bmm(self: Tensor, mat2: Tensor) -> Tensor", forward="bmm", kernel="bmm", dtypes=NUMBERS,
   vjp={"self": lambda g, mat2: g.bmm(mat2.transpose(1, 2).conj()),
        "mat2": lambda g, self: self.transpose(1, 2).conj().bmm(g)}, out=True, ref="numpy.matmul",
   doc="Return the products of two batches of matrices.\n\nShape: (b, m, k) and (b, k, n) give "
       "(b, m, n).",
   samples=[case(T(2, 2, 3), T(2, 3, 4)), case(T(0, 2, 3), T(0, 3, 2)),
            case(T(2, 2, 0), T(2, 0, 3))])


op("addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) "
   "-> Tensor", forward="addmm", kernel="bmm",
   vjp={"self": lambda g, beta: ops.scaled(g, beta),
        "mat1": lambda g, mat2, alpha: ops.scaled(g.mm(mat2.t().conj()), alpha),
        "mat2": lambda g, mat1, alpha: ops.scaled(mat1.t().conj().mm(g), alpha)},
   inplace=True, out=True, doc="Return beta * self + alpha * (mat1 @ mat2).",
   samples=[case(T(2, 4), T(2, 3), T(3, 4)), case(T(4), T(2, 3), T(3, 4), beta=2, alpha=3),
            case(T(2, 1), T(2, 3), T(3, 4), beta=0), case(T(), T(2, 0), T(0, 3)),
            case(T(2, 4), T(2, 3), T(3, 4), beta=0.5, alpha=-1.5, only=FLOAT_COMPLEX)],
   ref=lambda np, self, mat1, mat2, beta=1, alpha=1: beta * self + alpha * (mat1 @ mat2),
   dtypes=NUMBERS)


def _matmul(self, other):
    """The rules of NumPy's matmul, by mm and bmm."""
    if self.ndim == 0 or other.ndim == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are "
                           f"{self.ndim}D and {other.ndim}D")
    if self.ndim == 2 and other.ndim == 2:
        return ops.mm(self, other)
    if self.ndim == 1 and other.ndim == 1:
        return ops.dot(self, other)
    if self.ndim == 2 and other.ndim == 1:
        return ops.mv(self, other)
    if self.ndim == 1:
        return ops.matmul(self.unsqueeze(0), other).squeeze(-2)
    if other.ndim == 1:
        return ops.matmul(self, other.unsqueeze(1)).squeeze(-1)
    if other.ndim == 2:
        rows = self.reshape(_product(self.shape[:-1]), self.shape[-1])
        return ops._unsafe_view(ops.mm(rows, other), (*self.shape[:-1], other.shape[-1]))
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
    return ops._unsafe_view(ops.bmm(left, right), (*batch, self.shape[-2], other.shape[-1]))


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
   ref="numpy.matmul", doc="Return the matrix product, broadcast over leading dims.",
   samples=[case(T(2, 3), T(3, 4)), case(T(3), T(3)), case(T(3), T(3, 2)), case(T(2, 3), T(3)),
            case(T(2, 2, 3), T(3, 2)), case(T(2, 3), T(4, 3, 2)), case(T(2, 1, 2, 3), T(3, 3, 2)),
            case(T(3), T(2, 3, 2)), case(T(2, 2, 3), T(3)), case(T(0, 3), T(3, 2)),
            case(T(2, 0), T(0))],
   dtypes=NUMBERS)


op("dot(self: Tensor, tensor: Tensor) -> Tensor", forward="dot", kernel="bmm",
   vjp={"self": lambda g, tensor: g * ops.conj(tensor),
        "tensor": lambda g, self: g * ops.conj(self)}, out=True, ref="numpy.dot",
   doc="Return the inner product of two vectors.",
   samples=[case(T(3), T(3)), case(T(1), T(1)), case(T(0), T(0))], dtypes=NUMBERS)
op("mv(self: Tensor, vec: Tensor) -> Tensor", forward="mv", kernel="bmm",
   vjp={"self": lambda g, vec: g.unsqueeze(1) * ops.conj(vec),
        "vec": lambda g, self: self.t().conj().mv(g)}, out=True, ref="numpy.matmul",
   doc="Return the product of a matrix and a vector.",
   samples=[case(T(2, 3), T(3)), case(T(0, 3), T(3)), case(T(2, 0), T(0))], dtypes=NUMBERS)
