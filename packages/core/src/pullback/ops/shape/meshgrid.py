"""Combinations of several tensors: broadcast_tensors, meshgrid, cartesian_prod, combinations."""

import math
import warnings

from pullback.ops.rules.arguments import check_str
from pullback.ops.rules.dtypes import dtype_named
from pullback.ops.rules.shapes import broadcast_shape
from pullback.ops.shape.join import listed
from pullback.ops.table.samples import NO_PART, T, case, real, references_of
from pullback.ops.table.schema import op, ops

references = references_of("shape")


def _broadcast_tensors(tensors):
    tensors = listed("broadcast_tensors", tensors)
    shape = ()
    for tensor in tensors:
        shape = broadcast_shape(shape, tuple(tensor.shape))
    return tuple([tensor if tensor.shape == shape else tensor.expand(shape) for tensor in tensors])


op(
    "broadcast_tensors(tensors: any = ()) -> any",
    composite=_broadcast_tensors,
    method=False,
    varargs=True,
    doc="Return views of tensors, expanded to the shape that all broadcast to.",
    devices="any",
    samples=lambda: [
        case(T(2, 3), T(3)),
        case(T(2, 1), T(1, 3), T()),
        case(T(2)),
        case(T(0, 1), T(3)),
        case([T(2, 1), real(2)]),
    ],
    ref=references.broadcast_tensors,
)


def _meshgrid(tensors, indexing):
    tensors = listed("meshgrid", tensors)
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for tensor in tensors:
        if tensor.ndim > 1:
            raise RuntimeError(
                f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but "
                f"got: {tuple(tensor.shape)}"
            )
    if any(tensor.dtype != tensors[0].dtype for tensor in tensors):
        raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
    if any(tensor.device != tensors[0].device for tensor in tensors):
        raise RuntimeError("torch.meshgrid expects all tensors to have the same device")
    if indexing is None:
        warnings.warn(
            "torch.meshgrid: in an upcoming release, it will be required to pass the "
            "indexing argument.",
            UserWarning,
            stacklevel=2,
        )
        indexing = "ij"
    check_str(indexing, "meshgrid", "indexing")
    if indexing not in ("ij", "xy"):
        raise RuntimeError(
            f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
        )
    swapped = indexing == "xy" and len(tensors) > 1
    if swapped:
        tensors = (tensors[1], tensors[0], *tensors[2:])
    shape, count = tuple([tensor.numel() for tensor in tensors]), len(tensors)
    grids = [
        tensor.view((1,) * d + (-1,) + (1,) * (count - d - 1)).expand(shape)
        for d, tensor in enumerate(tensors)
    ]
    return (grids[1], grids[0], *grids[2:]) if swapped else tuple(grids)


op(
    "meshgrid(tensors: any = (), *, indexing: str? = None) -> any",
    composite=_meshgrid,
    method=False,
    varargs=True,
    doc="Return one view for each vector: its elements vary along its own dim of the grid only.\n\n"
    'With indexing "ij" dim k belongs to vector k; "xy" exchanges the first two.\n'
    "Raises: RuntimeError for other tensors than vectors and numbers, and for several dtypes.",
    samples=lambda: [
        case(T(2), T(3), indexing="ij"),
        case(T(2), T(3), indexing="xy"),
        case([T(2), T(), T(3)], indexing="xy"),
        case(T(2), indexing="xy"),
        case(T(0), T(2), indexing="ij"),
    ],
    ref=references.meshgrid,
)


def _vectors(tensors):
    for tensor in tensors:
        if tensor.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(tensor.shape)}")
    return tensors


def _cartesian_prod(tensors):
    tensors = _vectors(listed("cartesian_prod", tensors))
    if len(tensors) == 1:
        return tensors[0]
    grids = ops.meshgrid(tensors, indexing="ij")
    return ops.stack([grid.reshape(-1) for grid in grids], 1)


op(
    "cartesian_prod(tensors: any = ()) -> Tensor",
    composite=_cartesian_prod,
    method=False,
    varargs=True,
    doc="Return all choices of one element of each vector, a row each.\n\n"
    "One vector is returned as it is.\nRaises: RuntimeError for other tensors than vectors.",
    samples=lambda: [case(T(2), T(3)), case(T(2), T(1), T(2)), case(T(3)), case(T(0), T(2))],
    ref=references.cartesian_prod,
)


def _choices(like, n, r, again):
    """Return the numbers of r elements out of n, a row each, in lexicographic order.

    Rows of k elements become rows of k + 1 by every element that may follow their last one.
    """
    last = ops.arange_like(like, n)
    rows = last.unsqueeze(1)
    for k in range(2, r + 1):
        total = math.comb(n + k - 1, k) if again else math.comb(n, k)
        following = (n - last) if again else (n - 1 - last)
        parent = ops.repeat_interleave(following, output_size=total)
        begun = ops.cumsum(following, 0) - following
        step = ops.arange_like(like, total) - ops.index_select(begun, 0, parent)
        last = ops.index_select(last, 0, parent) + step + (0 if again else 1)
        rows = ops.cat([ops.index_select(rows, 0, parent), last.unsqueeze(1)], 1)
    return rows


def _large_choices(like, n, r):
    """Return what _choices does for most of n elements: by those that are left out."""
    if n == r:
        return ops.arange_like(like, n).unsqueeze(0)
    rest = _choices(like, n, n - r, False)
    left_out = ops.scatter(ops.new_zeros(rest, (rest.shape[0], n)), 1, rest, 1)
    return ops.flip(ops.sort(left_out, 1, stable=True)[1].narrow(1, 0, r), (0,))


def _check_count(n, r, again):
    """Raise for more rows than memory could hold."""
    total = n + r - 1 if again else n
    rows = math.lgamma(total + 1) - math.lgamma(r + 1) - math.lgamma(total - r + 1)
    if (again and r > 62) or rows > 40 * math.log(2):  # torch refuses n ** r from 2 ** 63 on
        raise RuntimeError("numel: integer multiplication overflow")


def _combinations(self, r, with_replacement):
    if self.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(self.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return ops.new_empty(self, (0,))
    n = self.shape[0]
    if n < (1 if with_replacement else r):
        rows = ops.new_zeros(self, (0, r), dtype=dtype_named("int64"))
    elif n == 1:
        rows = ops.new_zeros(self, (1, r), dtype=dtype_named("int64"))
    else:
        _check_count(n, r, with_replacement)
        rows = (
            _large_choices(self, n, r)
            if r > n // 2 and not with_replacement
            else _choices(self, n, r, with_replacement)
        )
    return ops.index(self, (rows,))


op(
    "combinations(self: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor",
    composite=_combinations,
    method=False,
    doc="Return all choices of r elements of a vector, a row each, in their order.\n\n"
    "With replacement an element may be chosen again.\nRaises: RuntimeError for other tensors "
    "than vectors, and for a negative r.",
    samples=lambda: [
        case(T(4)),
        case(T(4), 3),
        case(T(3), 2, True),
        case(T(3), 1),
        case(T(3), 0, skip=NO_PART),
        case(T(2), 3),
        case(T(2), 3, True),
        case(T(0)),
        case(T(3), 3),
    ],
    ref=references.combinations,
)
