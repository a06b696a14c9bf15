"""Outer, inner, Kronecker and cross products, and contractions."""

import warnings

from pullback.ops.rules.dims import check_dim
from pullback.ops.rules.dtypes import check_dtype, check_inexact, type_name
from pullback.ops.rules.shapes import broadcast_shape, check_vectors, product
from pullback.ops.table.samples import T, case, fixed, references_of
from pullback.ops.table.schema import FLOAT_COMPLEX, NUMBERS, op, ops

references = references_of("linalg")


# -- outer products and contractions ---------------------------------------------------------------


def _outer(self, vec2):
    check_vectors("outer", self=self, vec2=vec2)
    return self.unsqueeze(1) * vec2


op(
    "outer(self: Tensor, vec2: Tensor) -> Tensor",
    composite=_outer,
    aliases=("ger",),
    out=True,
    ref="numpy.outer",
    doc="Return the products of each element of one vector with each of another.",
    samples=lambda: [case(T(2), T(3)), case(T(1), T(1)), case(T(0), T(3))],
)


def _kron(self, other):
    """Interleave the dims, multiply, and join each pair of dims."""
    ndim = max(self.ndim, other.ndim)
    left = (1,) * (ndim - self.ndim) + tuple(self.shape)
    right = (1,) * (ndim - other.ndim) + tuple(other.shape)
    spread = [size for n in left for size in (n, 1)]
    product = self.reshape(spread) * other.reshape([size for n in right for size in (1, n)])
    return ops._unsafe_view(product.contiguous(), tuple(m * n for m, n in zip(left, right)))


op(
    "kron(self: Tensor, other: Tensor) -> Tensor",
    composite=_kron,
    out=True,
    ref="numpy.kron",
    doc="Return the Kronecker product; dims that one operand lacks count as 1.",
    samples=lambda: [
        case(T(2, 3), T(3, 2)),
        case(T(2), T(2, 2)),
        case(T(), T(2, 2)),
        case(T(), T()),
        case(T(0, 3), T(2, 2)),
        case(T(2, 1, 2), T(3)),
    ],
)


def _axes(name, dims, position):
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    if not isinstance(dims, (tuple, list)):
        raise TypeError(
            f"tensordot(): argument '{name}' (position {position}) must be tuple of "
            f"ints, not {type(dims).__name__}"
        )
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
            check_dim(d, tensor.ndim)
    return [d % a.ndim for d in first], [d % b.ndim for d in second]


def _tensordot(a, b, dims):
    if a.dtype != b.dtype:
        raise RuntimeError("both inputs should have same dtype")
    first, second = _contracted(a, b, dims)
    for x, y in zip(first, second):
        m, n = a.shape[x], b.shape[y]
        if m != n and m != 1 and n != 1:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {m} in "
                f"dim {x} and second has size {n} in dim {y}"
            )
    for axes in (first, second):
        if len(set(axes)) < len(axes):
            raise RuntimeError("tensordot(): a dim appears twice in the list of dims")
    for x, y in zip(first, second):  # a size of 1 is broadcast: the other operand is summed
        if a.shape[x] == 1:
            b = ops.sum(b, y, True, dtype=b.dtype)
        elif b.shape[y] == 1:
            a = ops.sum(a, x, True, dtype=a.dtype)
    rows = [d for d in range(a.ndim) if d not in first]
    columns = [d for d in range(b.ndim) if d not in second]
    inner = product([a.shape[d] for d in first])
    shape = [a.shape[d] for d in rows] + [b.shape[d] for d in columns]
    left = a.permute(tuple(rows + first)).reshape((product([a.shape[d] for d in rows]), inner))
    right = b.permute(tuple(second + columns)).reshape(
        (inner, product([b.shape[d] for d in columns]))
    )
    if not shape:
        return ops.dot(left.reshape(inner), right.reshape(inner))
    return ops.mm(left, right).reshape(tuple(shape))


op(
    "tensordot(a: Tensor, b: Tensor, dims: any = 2) -> Tensor",
    autocast=(None, "promote"),
    composite=_tensordot,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    out=True,
    dtypes=NUMBERS,
    ref=references.tensordot,
    doc="Return the product of two tensors summed over dims: the last of a and the first of b, or "
    "lists of both.\n\nShape: the dims of a that stay, then those of b.",
    samples=lambda: [
        case(T(2, 3), T(2, 3)),
        case(T(2, 3), T(3, 2), 1),
        case(T(2), T(3), 0),
        case(T(2, 3, 4), T(4, 3), ([2, 1], [0, 1])),
        case(T(2, 3), T(2, 3), ([-1], [-1])),
        case(T(2, 3), T(3, 1), ([0], [1])),
        case(T(), T(), 0),
        case(T(0, 3), T(3, 2), 1),
        case(T(2, 0), T(0, 2), 1),
        case(
            T(2, 3),
            T(2, 4),
            fixed((0, 0), shape=(2, 1), kind="int64"),
            skip={"meta": "the dims are the elements of a tensor"},
        ),
    ],
)


def _inner(self, other):
    if not (self.ndim and other.ndim):
        return self * other
    if self.shape[-1] != other.shape[-1]:
        raise RuntimeError(
            f"inner() the last dimension must match on both input tensors but got "
            f"shapes {list(self.shape)} and {list(other.shape)}"
        )
    return _tensordot(self, other, ([-1], [-1]))


op(
    "inner(self: Tensor, other: Tensor) -> Tensor",
    autocast=(None, "promote"),
    composite=_inner,
    out=True,
    dtypes=NUMBERS,
    ref="numpy.inner",
    doc="Return the sums of products along the last dims, for each pair of their other elements.",
    samples=lambda: [
        case(T(2, 3), T(4, 3)),
        case(T(3), T(3)),
        case(T(2, 3), T()),
        case(T(), T(3)),
        case(T(2, 2, 3), T(3)),
        case(T(2, 0), T(3, 0)),
    ],
)


def _trace(self):
    if self.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {self.ndim}")
    check_dtype("trace", self, "iufc")
    return self.diagonal().sum()


def _trace_vjp(g, self_shape):
    return ops.diagonal_backward(g.expand((min(self_shape),)), self_shape, 0, 0, 1)


op(
    "trace(self: Tensor) -> Tensor",
    autocast=("float32", None),
    jvp="linear",
    forward=_trace,
    vjp={"self": _trace_vjp},
    ref="numpy.trace",
    doc="Return the sum of the main diagonal of a matrix.\n\nDtype: integers give int64.",
    dtypes=NUMBERS,
    samples=lambda: [case(T(3, 3)), case(T(2, 3)), case(T(3, 2)), case(T(0, 3))],
)


# -- the cross product -----------------------------------------------------------------------------


def _turned(self, dim, steps):
    """Return the three parts along a dim in cyclic order, from the one numbered `steps` on."""
    return ops.cat([self.narrow(dim, steps, 3 - steps), self.narrow(dim, 0, steps)], dim)


def _check_cross(self, other, dim):
    if self.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    check_dim(dim, self.ndim)
    m, n = self.shape[dim], other.shape[dim]
    if m != 3 or n != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {m} and {n}"
        )
    if self.dtype != other.dtype:
        raise RuntimeError(
            f"linalg.cross: expected scalar type {type_name(self.dtype)} but found "
            f"{type_name(other.dtype)}"
        )
    check_dtype("cross", self, "iufc")


def _linalg_cross(self, other, dim):
    _check_cross(self, other, dim)
    shape = broadcast_shape(self.shape, other.shape)
    self, other = self.expand(shape), other.expand(shape)
    return _turned(self, dim, 1) * _turned(other, dim, 2) - _turned(self, dim, 2) * _turned(
        other, dim, 1
    )


def _cross(self, other, dim):
    if dim is None:
        if self.ndim != other.ndim:
            raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
        dim = next((d for d, size in enumerate(self.shape) if size == 3), None)
        if dim is None:
            raise RuntimeError("no dimension of size 3 in input")
        warnings.warn(
            "Using torch.cross without specifying the dim arg is deprecated.\nPlease "
            "either pass the dim explicitly or simply use torch.linalg.cross.\nThe "
            "default value of dim will change to agree with that of linalg.cross in a "
            "future release.",
            UserWarning,
            stacklevel=2,
        )
    return ops.linalg_cross(self, other, dim=dim)


_TRIPLES = [
    case(T(3), T(3), dim=0),
    case(T(2, 3), T(2, 3), dim=1),
    case(T(3, 2), T(3, 1), dim=-2),
    case(T(1, 3), T(2, 3), dim=-1),
    case(T(0, 3), T(0, 3), dim=1),
]
op(
    "linalg_cross(self: Tensor, other: Tensor, *, dim: int = -1) -> Tensor",
    jvp="multilinear",
    forward=_linalg_cross,
    vjp={
        "self": lambda g, other, dim: ops.linalg_cross(ops.conj(other), g, dim=dim),
        "other": lambda g, self, dim: ops.linalg_cross(g, ops.conj(self), dim=dim),
    },
    batch="along",
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="cross",
    out=True,
    dtypes=NUMBERS,
    ref=references.cross,
    samples=_TRIPLES,
    doc="Return the cross product of vectors of three elements along a dim; the others broadcast.",
)
op(
    "cross(self: Tensor, other: Tensor, dim: int? = None) -> Tensor",
    autocast=(None, "promote"),
    composite=_cross,
    out=True,
    out_dtype="exact",
    ref=references.cross,
    dtypes=NUMBERS,
    samples=_TRIPLES,
    doc="Return the cross product of vectors of three elements along a dim.\n\nWithout a dim, "
    "which is deprecated: along the first one of three elements.",
)


def _vecdot(x, y, dim):
    check_inexact("linalg.vecdot", x)
    if x.dtype != y.dtype:
        raise RuntimeError(
            f"linalg.vecdot: Expected x and y to have the same dtype, but found x "
            f"of type {type_name(x.dtype)} and y of type {type_name(y.dtype)} "
            f"instead"
        )
    return ops.sum(ops.conj(x) * y, dim)


op(
    "linalg_vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor",
    autocast="lower",
    composite=_vecdot,
    out=True,
    out_overlap=True,
    out_dtype="exact",
    method=False,
    namespace="linalg",
    function="vecdot",
    dtypes=FLOAT_COMPLEX,
    doc="Return the inner products of vectors along a dim, the first ones conjugated.",
    samples=lambda: [
        case(T(2, 3), T(3)),
        case(T(2, 3), T(2, 3), dim=0),
        case(T(3), T(3)),
        case(T(2, 1, 0), T(2, 0)),
    ],
    ref=lambda np, x, y, dim=-1: (np.conj(x) * y).sum(dim),
)
