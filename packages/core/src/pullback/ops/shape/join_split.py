"""Joins and splits along given dims, and grids of several tensors."""

import math
import warnings

from pullback.ops.rules.dims import dtype_named, is_meta, wrap_dim
from pullback.ops.shape.rearrange import whole
from pullback.ops.shape.shape import chunk_size, split_parts
from pullback.ops.table.samples import COUNTED, NO_PART, SHARED, T, case, fixed, real, references_of
from pullback.ops.table.schema import op, ops

references_shape = references_of("general")
references = references_of("rearrange")


def _listed(name, tensors):
    """Return tensors that were given as one sequence or one by one."""
    found = tuple(tensors) if isinstance(tensors, (tuple, list)) else (tensors,)
    for position, tensor in enumerate(found):
        if not hasattr(tensor, "requires_grad"):
            raise TypeError(f"{name}(): expected Tensor as element {position} in argument 0, but "
                            f"got {type(tensor).__name__}")
    return found


# -- at least so many dims -------------------------------------------------------------------------

def _raised_1d(tensor):
    return tensor if tensor.ndim else tensor.reshape(1)


def _raised_2d(tensor):
    if not tensor.ndim:
        return tensor.reshape(1, 1)
    return tensor.unsqueeze(0) if tensor.ndim == 1 else tensor


def _raised_3d(tensor):
    if not tensor.ndim:
        return tensor.reshape(1, 1, 1)
    if tensor.ndim == 1:
        return tensor.unsqueeze(0).unsqueeze(-1)
    return tensor.unsqueeze(-1) if tensor.ndim == 2 else tensor


def _at_least(name, raised):
    def composite(tensors):
        if hasattr(tensors, "requires_grad"):
            return raised(tensors)
        return tuple([raised(tensor) for tensor in _listed(name, tensors)])
    return composite


for _count, _raised in ((1, _raised_1d), (2, _raised_2d), (3, _raised_3d)):
    _name = f"atleast_{_count}d"
    op(f"{_name}(tensors: any = ()) -> any", composite=_at_least(_name, _raised), method=False,
       varargs=True, doc=f"Return a view of {_count} dims of each tensor that has fewer.\n\n"
       "One tensor gives one view, several of them or a sequence give a tuple.",
       samples=[*(case(T(*shape)) for shape in ((), (2,), (2, 3), (2, 3, 2), (0,))),
                case(T(), T(2)), case([T(2, 3), T()])],
       ref=references.at_least.of(_name))


# -- joins -----------------------------------------------------------------------------------------

def _join(name, prepare, dim_of):
    def composite(tensors):
        if not tensors:
            raise RuntimeError(f"{name} expects a non-empty TensorList")
        tensors = [prepare(tensor) for tensor in tensors]
        return ops.cat(tensors, dim_of(tensors[0]))
    return composite


def _column(tensor):
    return tensor if tensor.ndim > 1 else tensor.reshape(tensor.numel(), 1)


op("hstack(tensors: Tensor[]) -> Tensor", method=False, out=True, ref="numpy.hstack",
   composite=_join("hstack", _raised_1d, lambda first: 0 if first.ndim == 1 else 1),
   doc="Return tensors joined along the second dim, vectors and numbers along the first.",
   samples=[case([T(2), T(3)]), case([T(2, 3), T(2, 1)]), case((T(), T())), case([T(0), T(2)]),
            case([T(2), real(2)])])
op("vstack(tensors: Tensor[]) -> Tensor", method=False, out=True, ref="numpy.vstack",
   composite=_join("vstack", _raised_2d, lambda first: 0), aliases=("row_stack",),
   doc="Return tensors joined along the first dim; vectors and numbers are rows.",
   samples=[case([T(3), T(3)]), case([T(2, 3), T(3)]), case((T(), T())), case([T(0, 3), T(2, 3)]),
            case([T(2), real(2)])])
op("dstack(tensors: Tensor[]) -> Tensor", method=False, out=True, ref="numpy.dstack",
   composite=_join("dstack", _raised_3d, lambda first: 2),
   doc="Return tensors joined along the third dim, which they get if they have fewer.",
   samples=[case([T(3), T(3)]), case([T(2, 3), T(2, 3)]), case((T(), T())),
            case([T(2, 3, 1), T(2, 3, 2)]), case([T(2), real(2)])])
op("column_stack(tensors: Tensor[]) -> Tensor", method=False, out=True, ref="numpy.column_stack",
   composite=_join("column_stack", _column, lambda first: 1),
   doc="Return tensors joined along the second dim; vectors and numbers are columns.",
   samples=[case([T(3), T(3)]), case([T(2, 3), T(2)]), case((T(), T())), case([T(2, 0), T(2)]),
            case([T(2), real(2)])])


def _block_diag(tensors):
    tensors = _listed("block_diag", tensors)
    for position, tensor in enumerate(tensors):
        if tensor.ndim > 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. "
                               f"Input {position} has {tensor.ndim} dimensions")
    if not tensors:
        return ops.zeros((1, 0))
    blocks = [_raised_2d(tensor) for tensor in tensors]
    width, start, rows = sum(block.shape[1] for block in blocks), 0, []
    for block in blocks:
        height, own = block.shape
        after = width - start - own
        rows.append(ops.cat([ops.new_zeros(block, (height, start)), block,
                             ops.new_zeros(block, (height, after))], 1))
        start += own
    return ops.cat(rows, 0)


op("block_diag(tensors: any = ()) -> Tensor", composite=_block_diag, method=False, varargs=True,
   doc="Return a matrix with the given ones on its diagonal; the rest is 0.\n\nNumbers count as "
       "matrices of one element, vectors as rows.\nRaises: RuntimeError above 2 dims.",
   samples=[case(T(2, 3), T(2), T()), case(T(2, 2)), case(T(2, 0), T(1, 2)), case(T(0), T(2)),
            case(T(1), real(2, 2))],
   ref=references.block_diag)


# -- splits ----------------------------------------------------------------------------------------

MOST_PARTS = 1 << 20    # beyond those with elements


def _cuts(name, self, sections, indices, dim):
    """Return where the parts of a dim begin and end; a number asks for so many parts."""
    size = self.shape[dim]
    if hasattr(sections, "numel"):
        sections, indices = _read_sections(sections)
    if indices is None and not isinstance(sections, (tuple, list)):
        count = whole(sections, name, "sections")
        if count <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {count}")
        if count > size + MOST_PARTS:
            raise RuntimeError(f"{name}(): {count} sections of {size} elements are more than the "
                               f"{MOST_PARTS} empty ones that this may give")
        from pullback._c.ops.views import room_for_views
        room_for_views(count, name)
        cuts = [size // count * part + min(part, size % count) for part in range(1, count)]
    else:
        cuts = [whole(cut, name, "indices") for cut in (sections if indices is None else indices)]
    return list(zip([0, *cuts], [*cuts, size]))


def _read_sections(tensor):
    if is_meta(tensor):
        raise NotImplementedError("tensor_split(): the parts depend on the elements of a meta "
                                  "tensor")
    if tensor.dtype.name != "int64":
        raise RuntimeError(f"tensor_split expected tensor_indices_or_sections to have dtype of "
                           f"long, but got {tensor.dtype}")
    if tensor.ndim > 1:
        raise RuntimeError(f"tensor_split expected tensor_indices_or_sections to be a "
                           f"zero-dimensional or one-dimensional tensor, but got a tensor with "
                           f"{tensor.ndim} dims")
    return (tensor.item(), None) if not tensor.ndim else (None, tensor.tolist())


def _parts(name, self, sections, indices, dim):
    return tuple([ops.slice(self, dim, start, end)
                  for start, end in _cuts(name, self, sections, indices, dim)])


def _one_of(name, sections, *others):
    given = [value for value in (sections, *others) if value is not None]
    if len(given) != 1:
        raise TypeError(f"{name}(): expected one of 'sections' and 'indices', got {len(given)}")


def _tensor_split(self, sections, dim, indices, tensor_indices_or_sections):
    _one_of("tensor_split", sections, indices, tensor_indices_or_sections)
    if not self.ndim:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a "
                           "tensor with 0 dims")
    dim = wrap_dim(dim, self.ndim, "tensor_split")
    if sections is None and indices is None:
        sections = tensor_indices_or_sections
    return _parts("tensor_split", self, sections, indices, dim)


op("tensor_split(self: Tensor, sections: any = None, dim: int = 0, *, indices: int[]? = None, "
   "tensor_indices_or_sections: Tensor? = None) -> Tensor[]", composite=_tensor_split,
   doc="Return views of a dim cut into a number of parts, or at the given indices.\n\n"
       "The first parts are larger by one if the size cannot be divided.\n"
       "Raises: RuntimeError for 0-d tensors and for no parts.",
   samples=[case(T(5), 3), case(T(2, 5), 2, 1), case(T(5), (1, 3)), case(T(2, 5), (2,), -1),
            case(T(2), 4), case(T(0, 2), 2), case(T(5), (-2, 9)), case(T(5), (4, 1)),
            case(T(5), indices=(2,)), case(T(5), ()),
            case(T(5), fixed((1, 3), kind="int64"), skip=COUNTED)],
   ref=references.tensor_split)


def _split_at(name, needed, dim_of):
    def composite(self, sections, indices):
        _one_of(name, sections, indices)
        if self.ndim < needed:
            raise RuntimeError(f"torch.{name} requires a tensor with at least {needed} dimension, "
                               f"but got a tensor with {self.ndim} dimensions!")
        dim = dim_of(self)
        if indices is None and not isinstance(sections, (tuple, list)):
            count = whole(sections, name, "sections")
            if count == 0 or self.shape[dim] % count:
                raise RuntimeError(f"torch.{name} attempted to split along dimension {dim}, but "
                                   f"the size of the dimension {self.shape[dim]} is not divisible "
                                   f"by the split_size {count}!")
        return _parts(name, self, sections, indices, dim)
    return composite


op("hsplit(self: Tensor, sections: any = None, *, indices: int[]? = None) -> Tensor[]",
   composite=_split_at("hsplit", 1, lambda self: 0 if self.ndim == 1 else 1), ref="numpy.hsplit",
   doc="Return views of the second dim (of vectors, the first) in equal parts or cut at indices.",
   samples=[case(T(4), 2), case(T(2, 4), 2), case(T(2, 4), (1, 3)), case(T(3), (1,)),
            case(T(0), 2), case(T(2, 3, 2), 3)])
op("vsplit(self: Tensor, sections: any = None, *, indices: int[]? = None) -> Tensor[]",
   composite=_split_at("vsplit", 2, lambda self: 0), ref="numpy.vsplit",
   doc="Return views of the first dim in equal parts or cut at indices.",
   samples=[case(T(4, 2), 2), case(T(3, 2), (1,)), case(T(0, 2), 2), case(T(2, 3, 2), 2)])
op("dsplit(self: Tensor, sections: any = None, *, indices: int[]? = None) -> Tensor[]",
   composite=_split_at("dsplit", 3, lambda self: 2), ref="numpy.dsplit",
   doc="Return views of the third dim in equal parts or cut at indices.",
   samples=[case(T(1, 2, 4), 2), case(T(2, 1, 3), (1,)), case(T(2, 1, 0), 2)])


def _unsafe_split(self, split_size, dim):
    from pullback._c.ops.create import data_alias
    return tuple([data_alias(part) for part in ops.split(self, split_size, dim)])


op("unsafe_split(self: Tensor, split_size: int, dim: int = 0) -> Tensor[]",
   forward=lambda self, split_size, dim: _unsafe_split(
       self, whole(split_size, "unsafe_split", "split_size"), dim),
   vjp={"self": split_parts},
   batch="along",
   doc="Return parts of a dim that share the memory without being views: writes are not tracked.",
   samples=[case(*call, skip=SHARED) for call in (
       (T(5), 2), (T(2, 4), 2, 1), (T(0, 2), 1), (T(3), 5))],
   ref=references_shape.split)
op("unsafe_split_with_sizes(self: Tensor, split_sizes: int[], dim: int = 0) -> Tensor[]",
   forward=_unsafe_split, vjp={"self": lambda gs, self_like, split_sizes, dim: split_parts(
       gs, self_like, split_sizes, dim)},
   batch="along",
   doc="Return consecutive ranges of a dim that share the memory without being views.",
   samples=[case(*call, skip=SHARED) for call in (
       (T(5), (2, 3)), (T(2, 4), (1, 0, 3), -1), (T(0), (0,)))],
   ref=references_shape.split)


def _unsafe_chunk(self, chunks, dim):
    size = chunk_size(self, chunks, dim)
    split = ops.unsafe_split_with_sizes if isinstance(size, tuple) else ops.unsafe_split
    return split(self, size, dim)


op("unsafe_chunk(self: Tensor, chunks: int, dim: int = 0) -> Tensor[]", composite=_unsafe_chunk,
   doc="Return at most `chunks` parts of a dim that share the memory without being views.",
   samples=[case(*call, skip=SHARED) for call in (
       (T(5), 2), (T(2, 4), 3, 1), (T(2), 5), (T(0), 2))],
   ref=references_shape.chunk)


# -- several tensors at once -----------------------------------------------------------------------

def _broadcast_tensors(tensors):
    tensors = _listed("broadcast_tensors", tensors)
    shape = ()
    for tensor in tensors:
        shape = _pair_shape(shape, tuple(tensor.shape))
    return tuple([tensor if tensor.shape == shape else tensor.expand(shape) for tensor in tensors])


def _pair_shape(a, b):
    length = max(len(a), len(b))
    a, b = (1,) * (length - len(a)) + a, (1,) * (length - len(b)) + b
    for d, (x, y) in enumerate(zip(a, b)):
        if x != y and x != 1 and y != 1:
            raise RuntimeError(f"The size of tensor a ({x}) must match the size of tensor b ({y}) "
                               f"at non-singleton dimension {d}")
    return tuple(y if x == 1 else x for x, y in zip(a, b))


op("broadcast_tensors(tensors: any = ()) -> any", composite=_broadcast_tensors, method=False,
   varargs=True, doc="Return views of tensors, expanded to the shape that all broadcast to.",
   samples=[case(T(2, 3), T(3)), case(T(2, 1), T(1, 3), T()), case(T(2)), case(T(0, 1), T(3)),
            case([T(2, 1), real(2)])],
   ref=references.broadcast_tensors)


def _meshgrid(tensors, indexing):
    tensors = _listed("meshgrid", tensors)
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for tensor in tensors:
        if tensor.ndim > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but "
                               f"got: {tuple(tensor.shape)}")
    if any(tensor.dtype != tensors[0].dtype for tensor in tensors):
        raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
    if any(tensor.device != tensors[0].device for tensor in tensors):
        raise RuntimeError("torch.meshgrid expects all tensors to have the same device")
    if indexing is None:
        warnings.warn("torch.meshgrid: in an upcoming release, it will be required to pass the "
                      "indexing argument.", UserWarning, stacklevel=2)
        indexing = "ij"
    if not isinstance(indexing, str):
        raise TypeError(f"meshgrid(): argument 'indexing' must be str, not "
                        f"{type(indexing).__name__}")
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f"torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but "
                           f"received: {indexing}")
    swapped = indexing == "xy" and len(tensors) > 1
    if swapped:
        tensors = (tensors[1], tensors[0], *tensors[2:])
    shape, count = tuple([tensor.numel() for tensor in tensors]), len(tensors)
    grids = [tensor.view((1,) * d + (-1,) + (1,) * (count - d - 1)).expand(shape)
             for d, tensor in enumerate(tensors)]
    return (grids[1], grids[0], *grids[2:]) if swapped else tuple(grids)


op("meshgrid(tensors: any = (), *, indexing: str? = None) -> any", composite=_meshgrid,
   method=False, varargs=True,
   doc="Return one view for each vector: its elements vary along its own dim of the grid only.\n\n"
       "With indexing \"ij\" dim k belongs to vector k; \"xy\" exchanges the first two.\n"
       "Raises: RuntimeError for other tensors than vectors and numbers, and for several dtypes.",
   samples=[case(T(2), T(3), indexing="ij"), case(T(2), T(3), indexing="xy"),
            case([T(2), T(), T(3)], indexing="xy"), case(T(2), indexing="xy"),
            case(T(0), T(2), indexing="ij")],
   ref=references.meshgrid)


def _vectors(tensors):
    for tensor in tensors:
        if tensor.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(tensor.shape)}")
    return tensors


def _cartesian_prod(tensors):
    tensors = _vectors(_listed("cartesian_prod", tensors))
    if len(tensors) == 1:
        return tensors[0]
    grids = ops.meshgrid(tensors, indexing="ij")
    return ops.stack([grid.reshape(-1) for grid in grids], 1)


op("cartesian_prod(tensors: any = ()) -> Tensor", composite=_cartesian_prod, method=False,
   varargs=True, doc="Return all choices of one element of each vector, a row each.\n\n"
   "One vector is returned as it is.\nRaises: RuntimeError for other tensors than vectors.",
   samples=[case(T(2), T(3)), case(T(2), T(1), T(2)), case(T(3)), case(T(0), T(2))],
   ref=references.cartesian_prod)


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
    if (again and r > 62) or rows > 40 * math.log(2):   # torch refuses n ** r from 2 ** 63 on
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
        rows = (_large_choices(self, n, r) if r > n // 2 and not with_replacement
                else _choices(self, n, r, with_replacement))
    return ops.index(self, (rows,))


op("combinations(self: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor",
   composite=_combinations, method=False,
   doc="Return all choices of r elements of a vector, a row each, in their order.\n\n"
       "With replacement an element may be chosen again.\nRaises: RuntimeError for other tensors "
       "than vectors, and for a negative r.",
   samples=[case(T(4)), case(T(4), 3), case(T(3), 2, True), case(T(3), 1),
            case(T(3), 0, skip=NO_PART), case(T(2), 3), case(T(2), 3, True), case(T(0)),
            case(T(3), 3)],
   ref=references.combinations)
