"""Products of matrices and vectors."""

import warnings

from pullback.ops.rules.dims import refuse_dtype, type_name
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import ALL, COMPLEX, FLOAT_COMPLEX, NUMBERS, op, ops

references = references_of("linalg")

op("mm(self: Tensor, mat2: Tensor) -> Tensor",
   jvp="multilinear", forward="mm", kernel="bmm", dtypes=NUMBERS,
   vjp={"self": lambda g, mat2: g.mm(mat2.t().conj()),
        "mat2": lambda g, self: self.t().conj().mm(g)}, out=True,
   batch="mm", out_overlap=True, out_dtype="exact", ref="numpy.matmul",
   doc="Return the product of two matrices.\n\nShape: (m, k) and (k, n) give (m, n).",
   samples=[case(T(2, 3), T(3, 4)), case(T(1, 1), T(1, 1)), case(T(0, 3), T(3, 2)),
            case(T(2, 0), T(0, 3))])
op("bmm(self: Tensor, mat2: Tensor) -> Tensor",
   jvp="multilinear", forward="bmm", kernel="bmm", dtypes=NUMBERS,
   vjp={"self": lambda g, mat2: g.bmm(mat2.transpose(1, 2).conj()),
        "mat2": lambda g, self: self.transpose(1, 2).conj().bmm(g)}, out=True,
   batch="bmm", out_overlap=True, out_dtype="exact", ref="numpy.matmul",
   doc="Return the products of two batches of matrices.\n\nShape: (b, m, k) and (b, k, n) give "
       "(b, m, n).",
   samples=[case(T(2, 2, 3), T(2, 3, 4)), case(T(0, 2, 3), T(0, 3, 2)),
            case(T(2, 2, 0), T(2, 0, 3))])


op("addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) "
   "-> Tensor", forward="addmm", kernel="bmm",
   vjp={"self": lambda g, beta: ops.scaled(g, ops.conj(beta)),
        "mat1": lambda g, mat2, alpha: ops.scaled(g.mm(mat2.t().conj()), ops.conj(alpha)),
        "mat2": lambda g, mat1, alpha: ops.scaled(mat1.t().conj().mm(g), ops.conj(alpha))},
   inplace=True, out=True, batch="addmm", out_overlap=True, out_dtype="exact",
   doc="Return beta * self + alpha * (mat1 @ mat2).",
   samples=[case(T(2, 4), T(2, 3), T(3, 4)), case(T(4), T(2, 3), T(3, 4), beta=2, alpha=3),
            case(T(2, 1), T(2, 3), T(3, 4), beta=0), case(T(), T(2, 0), T(0, 3)),
            case(T(2, 4), T(2, 3), T(3, 4), beta=0.5, alpha=-1.5, only=FLOAT_COMPLEX),
            case(T(2, 4), T(2, 3), T(3, 4), beta=1j, alpha=2 - 1j, only=COMPLEX)],
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
   out_overlap=True, out_dtype="exact",
   ref="numpy.matmul", doc="Return the matrix product, broadcast over leading dims.",
   samples=[case(T(2, 3), T(3, 4)), case(T(3), T(3)), case(T(3), T(3, 2)), case(T(2, 3), T(3)),
            case(T(2, 2, 3), T(3, 2)), case(T(2, 3), T(4, 3, 2)), case(T(2, 1, 2, 3), T(3, 3, 2)),
            case(T(3), T(2, 3, 2)), case(T(2, 2, 3), T(3)), case(T(0, 3), T(3, 2)),
            case(T(2, 0), T(0))],
   dtypes=NUMBERS)


op("dot(self: Tensor, tensor: Tensor) -> Tensor",
   jvp="multilinear", forward="dot", kernel="bmm",
   vjp={"self": lambda g, tensor: g * ops.conj(tensor),
        "tensor": lambda g, self: g * ops.conj(self)}, out=True,
   batch="dot", out_overlap=True, out_dtype="exact", ref="numpy.dot",
   doc="Return the inner product of two vectors.",
   samples=[case(T(3), T(3)), case(T(1), T(1)), case(T(0), T(0))], dtypes=NUMBERS)
op("mv(self: Tensor, vec: Tensor) -> Tensor",
   jvp="multilinear", forward="mv", kernel="bmm",
   vjp={"self": lambda g, vec: g.unsqueeze(1) * ops.conj(vec),
        "vec": lambda g, self: self.t().conj().mv(g)}, out=True,
   batch="mv", out_overlap=True, out_dtype="exact", ref="numpy.matmul",
   doc="Return the product of a matrix and a vector.",
   samples=[case(T(2, 3), T(3)), case(T(0, 3), T(3)), case(T(2, 0), T(0))], dtypes=NUMBERS)


def _vdot(self, other):
    return ops.dot(ops.conj(self), other)


op("vdot(self: Tensor, other: Tensor) -> Tensor",
   jvp="multilinear", forward=_vdot, kernel="bmm",
   vjp={"self": lambda g, other: ops.conj(g) * other, "other": lambda g, self: g * self},
   out=True, batch="vdot", out_overlap=True, out_dtype="exact", ref="numpy.vdot", dtypes=NUMBERS,
   doc="Return the inner product of two vectors, the first one conjugated.",
   samples=[case(T(3), T(3)), case(T(1), T(1)), case(T(0), T(0))])


# -- products that are added -----------------------------------------------------------------------

def _factor(name, value, dtype, of):
    """Read alpha or beta as a number of a dtype; integers cut it."""
    if not isinstance(value, (bool, int, float, complex)):
        raise TypeError(f"{of}(): argument '{name}' must be Number, not {type(value).__name__}")
    if isinstance(value, complex) and not dtype.is_complex:
        raise RuntimeError(f"value cannot be converted to type {type_name(dtype)} without overflow")
    return value if dtype.is_floating_point or dtype.is_complex else int(value)


def _add_product(self, product, beta, alpha, name):
    """beta * self + alpha * product; with beta = 0, self is not even read."""
    alpha = _factor("alpha", alpha, product.dtype, name)
    beta = _factor("beta", beta, product.dtype, name)
    self = self.expand(product.shape)
    out = ops.scaled(product, alpha)
    return out if beta == 0 else out + ops.scaled(self, beta)


def _same_dtypes(text, *tensors):
    if any(tensor.dtype != tensors[0].dtype for tensor in tensors[1:]):
        raise RuntimeError(text.format(*(type_name(tensor.dtype) for tensor in tensors)))


def _addmv(self, mat, vec, beta, alpha):
    if mat.ndim != 2 or vec.ndim != 1 or self.ndim > 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got {self.ndim}, {mat.ndim}, "
                           f"{vec.ndim}")
    rows, columns = mat.shape
    if columns != vec.shape[0] or self.numel() not in (1, rows):
        raise RuntimeError(f"size mismatch, got input ({self.numel()}), mat ({rows}x{columns}), "
                           f"vec ({vec.shape[0]})")
    _same_dtypes("addmv input tensors must have the same dtype, but got {}, {}, and {}",
                 self, mat, vec)
    return _add_product(self, ops.mv(mat, vec), beta, alpha, "addmv")


op("addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) "
   "-> Tensor", forward=_addmv, kernel="bmm", inplace=True, out=True, dtypes=NUMBERS,
   vjp={"self": lambda g, beta: ops.scaled(g, ops.conj(beta)),
        "mat": lambda g, vec, alpha: ops.scaled(g.unsqueeze(1) * ops.conj(vec), ops.conj(alpha)),
        "vec": lambda g, mat, alpha: ops.scaled(mat.t().conj().mv(g), ops.conj(alpha))},
   out_overlap=True, out_dtype="exact",
   doc="Return beta * self + alpha * (mat @ vec).\n\nWith beta = 0, self is not read: NaN in it "
       "does not matter.",
   samples=[case(T(2), T(2, 3), T(3)), case(T(), T(2, 3), T(3), beta=2, alpha=3),
            case(T(1), T(2, 3), T(3), beta=0), case(T(0), T(0, 3), T(3)),
            case(T(2), T(2, 0), T(0)),
            case(T(2), T(2, 3), T(3), beta=0.5, alpha=-1.5, only=FLOAT_COMPLEX),
            case(T(2), T(2, 3), T(3), beta=1j, alpha=2 - 1j, only=COMPLEX)],
   ref=lambda np, self, mat, vec, beta=1, alpha=1: beta * self + alpha * (mat @ vec),
   inplace_function=True)


def _addr(self, vec1, vec2, beta, alpha):
    for name, vector in (("vec1", vec1), ("vec2", vec2)):
        if vector.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {vector.ndim}-D")
    product = vec1.unsqueeze(1) * vec2
    self = self.expand(product.shape)
    whole = not any(t.is_floating_point() or t.is_complex() for t in (self, product))
    for name, value in (("beta", beta), ("alpha", alpha)):
        if whole and not isinstance(value, (bool, int)):
            raise RuntimeError(f"For integral input tensors, argument {name} must not be a "
                               f"floating point number.")
    if str(product.dtype) == str(self.dtype) == "pullback.bool":
        alpha, beta = bool(alpha), bool(beta)
    out = product if alpha == 1 else product * alpha
    return out + (self if beta == 1 else self * beta if beta != 0 else ops.zeros_like(self))


op("addr(self: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) "
   "-> Tensor", forward=_addr, inplace=True, out=True, dtypes=ALL,
   vjp={"self": lambda g, beta: ops.scaled(g, ops.conj(beta)),
        "vec1": lambda g, vec2, alpha: ops.scaled((g * ops.conj(vec2)).sum(1), ops.conj(alpha)),
        "vec2": lambda g, vec1, alpha: ops.scaled(
            (g * ops.conj(vec1.unsqueeze(1))).sum(0), ops.conj(alpha))},
   doc="Return beta * self + alpha * outer(vec1, vec2).\n\nWith beta = 0, NaN in self does not "
       "matter. Operands of several dtypes are promoted.",
   samples=[case(T(2, 3), T(2), T(3)), case(T(3), T(2), T(3), beta=2, alpha=3),
            case(T(), T(2), T(3), beta=0), case(T(2, 0), T(2), T(0)),
            case(T(2, 3), T(2), T(3), beta=0.5, alpha=-1.5, only=FLOAT_COMPLEX),
            case(T(2, 3), T(2), T(3), beta=1j, alpha=2 - 1j, only=COMPLEX)],
   ref=references.addr)


def _batches(name, batch1, batch2):
    for argument, batch in (("batch1", batch1), ("batch2", batch2)):
        if batch.ndim != 3:
            raise RuntimeError(f"{name}(): {argument} must be a 3D tensor, got {batch.ndim}D")


def _baddbmm(self, batch1, batch2, beta, alpha):
    _batches("baddbmm", batch1, batch2)
    _same_dtypes("Input dtypes must be the same, got: input {}, batch1: {}, batch2: {}",
                 self, batch1, batch2)
    return _add_product(self, ops.bmm(batch1, batch2), beta, alpha, "baddbmm")


op("baddbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, "
   "alpha: Scalar = 1) -> Tensor", forward=_baddbmm, kernel="bmm", inplace=True, out=True,
   vjp={"self": lambda g, beta: ops.scaled(g, ops.conj(beta)),
        "batch1": lambda g, batch2, alpha: ops.scaled(
            g.bmm(batch2.transpose(1, 2).conj()), ops.conj(alpha)),
        "batch2": lambda g, batch1, alpha: ops.scaled(
            batch1.transpose(1, 2).conj().bmm(g), ops.conj(alpha))},
   out_overlap=True, out_dtype="exact",
   doc="Return beta * self + alpha * (batch1 @ batch2), batch by batch.\n\nWith beta = 0, self is "
       "not read: NaN in it does not matter.",
   samples=[case(T(2, 2, 4), T(2, 2, 3), T(2, 3, 4)),
            case(T(4), T(2, 2, 3), T(2, 3, 4), beta=2, alpha=3),
            case(T(2, 1, 1), T(2, 2, 3), T(2, 3, 4), beta=0), case(T(), T(2, 2, 0), T(2, 0, 3)),
            case(T(0, 2, 3), T(0, 2, 3), T(0, 3, 3)),
            case(T(4), T(2, 2, 3), T(2, 3, 4), beta=0.5, alpha=-1.5, only=FLOAT_COMPLEX),
            case(T(4), T(2, 2, 3), T(2, 3, 4), beta=1j, alpha=2 - 1j, only=COMPLEX)],
   ref=lambda np, self, batch1, batch2, beta=1, alpha=1: beta * self + alpha * (batch1 @ batch2),
   dtypes=NUMBERS)


def _addbmm(self, batch1, batch2, beta, alpha):
    """One product of matrices: the batches lie side by side in the dim that is summed."""
    _batches("addbmm", batch1, batch2)
    (count, rows, inner), (other, have, columns) = batch1.shape, batch2.shape
    if count != other:
        raise RuntimeError(f"batch1 and batch2 must have same number of batches, got {count} and "
                           f"{other}")
    if inner != have:
        raise RuntimeError(f"Incompatible matrix sizes for bmm ({rows}x{inner} and "
                           f"{have}x{columns})")
    _same_dtypes("mat1 and mat2 must have the same dtype, but got {} and {}", batch1, batch2)
    _same_dtypes("self and mat2 must have the same dtype, but got {} and {}", self, batch2)
    left = batch1.permute((1, 0, 2)).reshape((rows, count * inner))
    product = ops.mm(left, batch2.reshape((count * inner, columns)))
    return _add_product(self, product, beta, alpha, "addbmm")


op("addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) "
   "-> Tensor", forward=_addbmm, kernel="bmm", inplace=True, out=True, dtypes=NUMBERS,
   vjp={"self": lambda g, beta: ops.scaled(g, ops.conj(beta)),
        "batch1": lambda g, batch1_shape, batch2, alpha: ops.scaled(
            ops.matmul(g, batch2.transpose(1, 2).conj()), ops.conj(alpha)),
        "batch2": lambda g, batch1, batch2_shape, alpha: ops.scaled(
            ops.matmul(batch1.transpose(1, 2).conj(), g), ops.conj(alpha))},
   out_overlap=True, out_dtype="exact",
   doc="Return beta * self + alpha * (the sum of the products of two batches of matrices).\n\n"
       "With beta = 0, self is not read: NaN in it does not matter.",
   samples=[case(T(2, 4), T(2, 2, 3), T(2, 3, 4)),
            case(T(4), T(2, 2, 3), T(2, 3, 4), beta=2, alpha=3),
            case(T(2, 1), T(2, 2, 3), T(2, 3, 4), beta=0), case(T(2, 3), T(0, 2, 2), T(0, 2, 3)),
            case(T(4), T(2, 2, 3), T(2, 3, 4), beta=0.5, alpha=-1.5, only=FLOAT_COMPLEX),
            case(T(4), T(2, 2, 3), T(2, 3, 4), beta=1j, alpha=2 - 1j, only=COMPLEX)],
   ref=lambda np, self, batch1, batch2, beta=1, alpha=1: beta * self + alpha * (
       batch1 @ batch2).sum(0))


# -- outer products and contractions ---------------------------------------------------------------

def _outer(self, vec2):
    for name, vector in (("self", self), ("vec2", vec2)):
        if vector.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {vector.ndim}-D")
    return self.unsqueeze(1) * vec2


op("outer(self: Tensor, vec2: Tensor) -> Tensor", composite=_outer, aliases=("ger",), out=True,
   ref="numpy.outer", doc="Return the products of each element of one vector with each of another.",
   samples=[case(T(2), T(3)), case(T(1), T(1)), case(T(0), T(3))])


def _kron(self, other):
    """Interleave the dims, multiply, and join each pair of dims."""
    ndim = max(self.ndim, other.ndim)
    left = (1,) * (ndim - self.ndim) + tuple(self.shape)
    right = (1,) * (ndim - other.ndim) + tuple(other.shape)
    spread = [size for n in left for size in (n, 1)]
    product = self.reshape(spread) * other.reshape([size for n in right for size in (1, n)])
    return ops._unsafe_view(product.contiguous(), tuple(m * n for m, n in zip(left, right)))


op("kron(self: Tensor, other: Tensor) -> Tensor", composite=_kron, out=True, ref="numpy.kron",
   doc="Return the Kronecker product; dims that one operand lacks count as 1.",
   samples=[case(T(2, 3), T(3, 2)), case(T(2), T(2, 2)), case(T(), T(2, 2)), case(T(), T()),
            case(T(0, 3), T(2, 2)), case(T(2, 1, 2), T(3))])


def _axes(name, dims, position):
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    if not isinstance(dims, (tuple, list)):
        raise TypeError(f"tensordot(): argument '{name}' (position {position}) must be tuple of "
                        f"ints, not {type(dims).__name__}")
    return list(dims)


def _contracted(a, b, dims):
    """Return the dims of a and of b that tensordot sums, counted from the front."""
    if hasattr(dims, "numel"):
        dims = int(dims.item()) if dims.numel() == 1 else tuple(dims.tolist())
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        return list(range(a.ndim - dims, a.ndim)), list(range(dims))
    first, second = _axes("dims_self", dims[0], 3), _axes("dims_other", dims[1], 4)
    if len(first) != len(second):
        raise RuntimeError("both dimension lists should have same length")
    for tensor, axes in ((a, first), (b, second)):
        for d in axes:
            if not -tensor.ndim <= d < tensor.ndim:
                raise IndexError(f"Dimension out of range (expected to be in range of "
                                 f"[{-tensor.ndim}, {tensor.ndim - 1}], but got {d})")
    return [d % a.ndim for d in first], [d % b.ndim for d in second]


def _tensordot(a, b, dims):
    if a.dtype != b.dtype:
        raise RuntimeError("both inputs should have same dtype")
    first, second = _contracted(a, b, dims)
    for x, y in zip(first, second):
        m, n = a.shape[x], b.shape[y]
        if m != n and m != 1 and n != 1:
            raise RuntimeError(f"contracted dimensions need to match, but first has size {m} in "
                               f"dim {x} and second has size {n} in dim {y}")
    for axes in (first, second):
        if len(set(axes)) < len(axes):
            raise RuntimeError("tensordot(): a dim appears twice in the list of dims")
    for x, y in zip(first, second):     # a size of 1 is broadcast: the other operand is summed
        if a.shape[x] == 1:
            b = ops.sum(b, y, True, dtype=b.dtype)
        elif b.shape[y] == 1:
            a = ops.sum(a, x, True, dtype=a.dtype)
    rows = [d for d in range(a.ndim) if d not in first]
    columns = [d for d in range(b.ndim) if d not in second]
    inner = _product([a.shape[d] for d in first])
    shape = [a.shape[d] for d in rows] + [b.shape[d] for d in columns]
    left = a.permute(tuple(rows + first)).reshape((_product([a.shape[d] for d in rows]), inner))
    right = b.permute(tuple(second + columns)).reshape(
        (inner, _product([b.shape[d] for d in columns])))
    return ops.mm(left, right).reshape(tuple(shape))


op("tensordot(a: Tensor, b: Tensor, dims: any = 2) -> Tensor", composite=_tensordot,
   out_overlap=True, out_dtype="exact", method=False,
   out=True, dtypes=NUMBERS, ref=references.tensordot,
   doc="Return the product of two tensors summed over dims: the last of a and the first of b, or "
       "lists of both.\n\nShape: the dims of a that stay, then those of b.",
   samples=[case(T(2, 3), T(2, 3)), case(T(2, 3), T(3, 2), 1), case(T(2), T(3), 0),
            case(T(2, 3, 4), T(4, 3), ([2, 1], [0, 1])), case(T(2, 3), T(2, 3), ([-1], [-1])),
            case(T(2, 3), T(3, 1), ([0], [1])), case(T(), T(), 0), case(T(0, 3), T(3, 2), 1),
            case(T(2, 0), T(0, 2), 1),
            case(T(2, 3), T(2, 4), fixed((0, 0), shape=(2, 1), kind="int64"),
                 skip={"meta": "the dims are the elements of a tensor"})])


def _inner(self, other):
    if not (self.ndim and other.ndim):
        return self * other
    if self.shape[-1] != other.shape[-1]:
        raise RuntimeError(f"inner() the last dimension must match on both input tensors but got "
                           f"shapes {list(self.shape)} and {list(other.shape)}")
    return _tensordot(self, other, ([-1], [-1]))


op("inner(self: Tensor, other: Tensor) -> Tensor", composite=_inner, out=True, dtypes=NUMBERS,
   ref="numpy.inner",
   doc="Return the sums of products along the last dims, for each pair of their other elements.",
   samples=[case(T(2, 3), T(4, 3)), case(T(3), T(3)), case(T(2, 3), T()), case(T(), T(3)),
            case(T(2, 2, 3), T(3)), case(T(2, 0), T(3, 0))])


def _trace(self):
    if self.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {self.ndim}")
    refuse_dtype("trace", self, "iufc")
    return self.diagonal().sum()


def _trace_vjp(g, self_shape):
    return ops.diagonal_backward(g.expand((min(self_shape),)), self_shape, 0, 0, 1)


op("trace(self: Tensor) -> Tensor",
   jvp="linear", forward=_trace, vjp={"self": _trace_vjp}, ref="numpy.trace",
   doc="Return the sum of the main diagonal of a matrix.\n\nDtype: integers give int64.",
   dtypes=NUMBERS, samples=[case(T(3, 3)), case(T(2, 3)), case(T(3, 2)), case(T(0, 3))])


# -- the cross product -----------------------------------------------------------------------------

def _turned(self, dim, steps):
    """Return the three parts along a dim in cyclic order, from the one numbered `steps` on."""
    return ops.cat([self.narrow(dim, steps, 3 - steps), self.narrow(dim, 0, steps)], dim)


def _check_cross(self, other, dim):
    if self.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    if not -self.ndim <= dim < self.ndim:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-self.ndim}, "
                         f"{self.ndim - 1}], but got {dim})")
    m, n = self.shape[dim], other.shape[dim]
    if m != 3 or n != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {m} and "
                           f"{n}")
    if self.dtype != other.dtype:
        raise RuntimeError(f"linalg.cross: expected scalar type {type_name(self.dtype)} but found "
                           f"{type_name(other.dtype)}")
    refuse_dtype("cross", self, "iufc")


def _linalg_cross(self, other, dim):
    _check_cross(self, other, dim)
    shape = _broadcast(self.shape, other.shape)
    self, other = self.expand(shape), other.expand(shape)
    return (_turned(self, dim, 1) * _turned(other, dim, 2)
            - _turned(self, dim, 2) * _turned(other, dim, 1))


def _cross(self, other, dim):
    if dim is None:
        if self.ndim != other.ndim:
            raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
        dim = next((d for d, size in enumerate(self.shape) if size == 3), None)
        if dim is None:
            raise RuntimeError("no dimension of size 3 in input")
        warnings.warn("Using torch.cross without specifying the dim arg is deprecated.\nPlease "
                      "either pass the dim explicitly or simply use torch.linalg.cross.\nThe "
                      "default value of dim will change to agree with that of linalg.cross in a "
                      "future release.", UserWarning, stacklevel=2)
    return ops.linalg_cross(self, other, dim=dim)


_TRIPLES = [case(T(3), T(3), dim=0), case(T(2, 3), T(2, 3), dim=1),
            case(T(3, 2), T(3, 1), dim=-2), case(T(1, 3), T(2, 3), dim=-1),
            case(T(0, 3), T(0, 3), dim=1)]
op("linalg_cross(self: Tensor, other: Tensor, *, dim: int = -1) -> Tensor",
   jvp="multilinear", forward=_linalg_cross,
   vjp={"self": lambda g, other, dim: ops.linalg_cross(ops.conj(other), g, dim=dim),
        "other": lambda g, self, dim: ops.linalg_cross(g, ops.conj(self), dim=dim)},
   batch="along", out_dtype="exact",
   method=False, namespace="linalg", function="cross", out=True, dtypes=NUMBERS,
   ref=references.cross, samples=_TRIPLES,
   doc="Return the cross product of vectors of three elements along a dim; the others broadcast.")
op("cross(self: Tensor, other: Tensor, dim: int? = None) -> Tensor", composite=_cross, out=True,
   out_dtype="exact", ref=references.cross, dtypes=NUMBERS, samples=_TRIPLES,
   doc="Return the cross product of vectors of three elements along a dim.\n\nWithout a dim, "
       "which is deprecated: along the first one of three elements.")


def _vecdot(x, y, dim):
    if not (x.is_floating_point() or x.is_complex()):
        raise RuntimeError(f"linalg.vecdot: Expected a floating point or complex tensor as input. "
                           f"Got {type_name(x.dtype)}")
    if x.dtype != y.dtype:
        raise RuntimeError(f"linalg.vecdot: Expected x and y to have the same dtype, but found x "
                           f"of type {type_name(x.dtype)} and y of type {type_name(y.dtype)} "
                           f"instead")
    return ops.sum(ops.conj(x) * y, dim)


op("linalg_vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor", composite=_vecdot, out=True,
   out_overlap=True, out_dtype="exact",
   method=False, namespace="linalg", function="vecdot", dtypes=FLOAT_COMPLEX,
   doc="Return the inner products of vectors along a dim, the first ones conjugated.",
   samples=[case(T(2, 3), T(3)), case(T(2, 3), T(2, 3), dim=0), case(T(3), T(3)),
            case(T(2, 1, 0), T(2, 0))],
   ref=lambda np, x, y, dim=-1: (np.conj(x) * y).sum(dim))
op("linalg_matmul(self: Tensor, other: Tensor) -> Tensor", composite=_matmul, out=True,
   out_overlap=True, out_dtype="exact",
   method=False, namespace="linalg", function="matmul", ref="numpy.matmul", dtypes=NUMBERS,
   doc="Return the matrix product, broadcast over leading dims.",
   samples=[case(T(2, 3), T(3, 4)), case(T(3), T(3)), case(T(2, 2, 3), T(3, 2))])
