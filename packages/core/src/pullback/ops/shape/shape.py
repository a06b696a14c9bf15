"""Views, copies and joins."""

from pullback.ops.nn.windows import integers
from pullback.ops.rules.dims import wrap_dim
from pullback.ops.table.primitives_api import compiled, new_filled
from pullback.ops.table.samples import (
    DETACHED,
    KINKS,
    MEMORY,
    ROUNDED,
    SHARED,
    Dtype,
    T,
    at,
    case,
    fixed,
    real,
    references_of,
)
from pullback.ops.table.schema import ALL, COMPLEX, op, ops

references = references_of("general")


def _view(signature, vjp, doc, *, forward=None, **fields):
    name = signature.partition("(")[0]
    op(signature, forward=forward or name, view=True, vjp={"self": vjp}, doc=doc, **fields)


def _changing(node, function=False):
    """The fields of a view that has an in-place form, which torch's nodes count by themselves."""
    return {"inplace": True, "inplace_node": node, "inplace_function": function}


# -- order of dims ---------------------------------------------------------------------------------

def _permute_vjp(g, dims):
    dims = dims if isinstance(dims, (tuple, list)) else (dims,)
    order = [0] * len(dims)
    for position, d in enumerate(dims):
        order[d % len(dims)] = position
    return g.permute(tuple(order))


_view("transpose(self: Tensor, dim0: int, dim1: int) -> Tensor",
      lambda g, dim0, dim1: g.transpose(dim0, dim1),
      "Return a view with two dims exchanged.", batch="along", aliases=("swapaxes", "swapdims"),
      **_changing("TransposeBackward1"),
      samples=[case(T(2, 3), 0, 1), case(T(2, 3, 4), -1, 0), case(T(3), 0, 0),
               case(T(), 0, -1), case(T(0, 3), 1, 0)],
      ref=lambda np, self, dim0, dim1: np.swapaxes(self, dim0, dim1) if self.ndim else self)
_view("t(self: Tensor) -> Tensor", lambda g: g.t(),
      "Return the transposed view of a matrix; vectors stay.\n\nRaises: RuntimeError above 2 dims.",
      batch="t", ref="numpy.transpose", **_changing("TBackward1"),
      samples=[case(T(2, 3)), case(T(3)), case(T()), case(T(0, 3))])
_view("permute(self: Tensor, dims: int[]) -> Tensor", _permute_vjp,
      "Return a view with its dims in another order.", varargs=True,
      batch="permute empty_is_none any_rank",
      samples=[case(T(2, 3, 4), (2, 0, 1)), case(T(2, 3, 4), 1, -1, 0), case(T(2, 3), (1, 0)),
               case(T(), ()),
               case(T(0, 3), (1, 0))],
      ref=lambda np, self, *dims: np.transpose(
          self, dims[0] if isinstance(dims[0], tuple) else dims))


def _movedim(self, source, destination):
    if type(source) is type(destination) is int:
        order = list(range(self.ndim or 1))
        order.insert(wrap_dim(destination, self.ndim, "movedim"),
                     order.pop(wrap_dim(source, self.ndim, "movedim")))
        return self.permute(tuple(order)) if self.ndim else self.permute(())
    sources = integers(source, "movedim", "source")
    targets = integers(destination, "movedim", "destination")
    if len(sources) != len(targets):
        raise RuntimeError(f"movedim: Invalid source or destination dims: source ({list(sources)} "
                           f"dims) should contain the same number of dims as destination "
                           f"({list(targets)} dims)")
    places = []
    for name, given in (("source", sources), ("destination", targets)):
        dims = [wrap_dim(d, self.ndim, "movedim") for d in given]
        places.append(dims)
        if len(set(dims)) < len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(given)})")
    moved = dict(zip(places[1], places[0]))
    rest = iter([d for d in range(self.ndim) if d not in places[0]])
    return self.permute(tuple(moved[d] if d in moved else next(rest) for d in range(self.ndim)))


op("movedim(self: Tensor, source: int[], destination: int[]) -> Tensor", composite=_movedim,
   aliases=("moveaxis",), ref="numpy.moveaxis", doc="Return a view with some dims moved.",
   samples=[case(T(2, 3, 4), 0, 2), case(T(2, 3, 4), (0, 1), (-1, 0)), case(T(2, 3), 1, 0)])


# -- number and size of dims -----------------------------------------------------------------------

_view("unsqueeze(self: Tensor, dim: int) -> Tensor", lambda g, self_shape: g.reshape(self_shape),
      "Return a view with a dim of one element inserted.",
      batch="along new_dim",
      ref=lambda np, self, dim: np.expand_dims(self, dim), **_changing("UnsqueezeBackward1"),
      samples=[case(T(2, 3), 0), case(T(2, 3), -1), case(T(2, 3), 1), case(T(), 0), case(T(0), 1)])
_view("squeeze(self: Tensor, dim: int[]? = None) -> Tensor",
      lambda g, self_shape: g.reshape(self_shape),
      "Return a view without dims of one element: all of them, or those named.",
      node=lambda dim: f"SqueezeBackward{0 if dim is None else 1 if isinstance(dim, int) else 2}",
      **_changing(lambda dim: (
          f"SqueezeBackward{3 if dim is None else 4 if isinstance(dim, int) else 5}")),
      batch="squeeze empty_is_none any_rank",
      samples=[case(T(2, 1, 3)), case(T(1, 2, 1), 0), case(T(1, 2, 1), -1),
               case(T(1, 2, 1), (0, 2)), case(T(2, 1), 0),
               case(T()), case(T(0, 1)), case(T(1, 1))],
      ref=references.squeeze)
_view("expand(self: Tensor, size: int[], *, implicit: bool = False) -> Tensor", lambda g: g,
      "Return a view with dims of one element repeated without copying; -1 keeps a size.",
      batch="expand any_rank", function=False,
      varargs=True,
      samples=[case(T(3), (2, 3)), case(T(2, 1), 2, 3), case(T(2, 1), (4, -1, 3)),
               case(T(), (2,)), case(T(1), 0),
               case(T(), ()), case(T(2, 1, 3), -1, -1, -1)],
      ref=references.expand)
op("expand_as(self: Tensor, other: Tensor) -> Tensor", function=False,
   composite=lambda self, other: self.expand(other.shape),
   doc="Return self expanded to the shape of another tensor.",
   samples=[case(T(3), T(2, 3)), case(T(), T(2)), case(T(1), T(0))],
   ref=lambda np, self, other: np.broadcast_to(self, other.shape))
op("broadcast_to(self: Tensor, size: int[]) -> Tensor",
   composite=lambda self, size: self.expand(size), ref="numpy.broadcast_to",
   doc="Return self expanded to a shape.",
   samples=[case(T(3), (2, 3)), case(T(2, 1), (2, 3)), case(T(), (2,)), case(T(1), (0,))])


op("sum_to_size(self: Tensor, size: int[]) -> Tensor", composite="sum_to_size", varargs=True,
   function=False, doc="Return self summed to a shape that broadcasts to it.",
   samples=[case(T(2, 3), (3,)), case(T(2, 3), 2, 1), case(T(2, 3), (1,)),
            case(T(2, 3), (2, 3)), case(T(0, 3), (1, 3)),
            case(T(4, 2, 3), (2, 1))],
   ref=references.sum_to_size)

_view("view(self: Tensor, size: any) -> Tensor", lambda g, self_shape: g.reshape(self_shape),
      "Return a view of another shape over the same memory; one size may be -1.\n\n"
      "Raises: RuntimeError when the memory cannot be seen in this shape.", varargs=True,
      batch="view any_rank", function=False,
      samples=[*(case(T(2, 3), *size, skip=MEMORY) for size in (((3, 2),), (-1,), (1, 6))),
               case(T(), (1, 1)),
               case(T(0, 3), (3, 0)), case(T(1), ())],
      ref=lambda np, self, *size: np.reshape(self, size[0] if isinstance(size[0], tuple) else size))


op("_unsafe_view(self: Tensor, size: int[]) -> Tensor",
   jvp="linear", forward="_unsafe_view", batch="view any_rank", method=False,
   function=False, vjp={"self": lambda g, self_shape: g.reshape(self_shape)},
   doc="Return the memory of a tensor that nothing else uses in another shape; it is no view.",
   samples=[case(T(2, 3), (3, 2), skip=MEMORY | SHARED),
            case(T(2, 3), (6,), skip=MEMORY | SHARED), case(T(), (1,), skip=SHARED)],
   ref="numpy.reshape")
op("reshape(self: Tensor, shape: int[]) -> Tensor", composite="reshape", varargs=True,
   doc="Return the elements in another shape: a view where possible.",
   samples=[case(T(2, 3), (3, 2)), case(T(2, 3), -1), case(T(2, 3, 2), 4, 3),
            case(T(), (1, 1)), case(T(0, 3), (3, 0)),
            case(T(1), ())],
   ref=lambda np, self, *shape: np.reshape(
       self, shape[0] if isinstance(shape[0], tuple) else shape))
op("reshape_as(self: Tensor, other: Tensor) -> Tensor", function=False,
   composite=lambda self, other: self.reshape(other.shape),
   doc="Return the elements in the shape of another tensor.",
   samples=[case(T(2, 3), T(6)), case(T(), T(1, 1))],
   ref=lambda np, self, other: np.reshape(self, other.shape))
op("view_as(self: Tensor, other: Tensor) -> Tensor", function=False,
   composite=lambda self, other: self.view(other.shape),
   doc="Return a view in the shape of another tensor.",
   samples=[case(T(2, 3), T(6), skip=MEMORY), case(T(), T(1, 1))],
   ref=lambda np, self, other: np.reshape(self, other.shape))


def _flatten(self, start_dim, end_dim):
    ndim = max(self.ndim, 1)
    for d in (start_dim, end_dim):
        if not -ndim <= d < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, "
                             f"{ndim - 1}], but got {d})")
    start, end = start_dim % ndim, end_dim % ndim
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not self.ndim:
        return self.reshape(1)
    if start == end:
        return self
    count = 1
    for size in self.shape[start:end + 1]:
        count *= size
    return self.reshape((*self.shape[:start], count, *self.shape[end + 1:]))


op("flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor", composite=_flatten,
   doc="Return the dims from start_dim to end_dim joined into one.",
   samples=[case(T(2, 3, 4)), case(T(2, 3, 4), 1), case(T(2, 3, 4), 0, 1), case(T()),
            case(T(3)), case(T(2, 0), 0),
            case(T(2, 3, 4), -2, -1)],
   ref=references.flatten)
op("ravel(self: Tensor) -> Tensor", composite=lambda self: self.reshape(-1), ref="numpy.ravel",
   doc="Return all elements in one dim.",
   samples=[case(T(2, 3)), case(T()), case(T(0, 3))])

# -- parts -----------------------------------------------------------------------------------------

_view("select(self: Tensor, dim: int, index: int) -> Tensor",
      lambda g, self_shape, dim, index: ops.select_backward(g, self_shape, dim, index),
      "Return the view at one index of a dim.",
      batch="along",
      samples=[case(T(2, 3), 0, 1), case(T(2, 3), -1, -1), case(T(3), 0, 0), case(T(2, 0), 0, 1)],
      ref=lambda np, self, dim, index: np.take(self, index, dim))
_view("narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor",
      lambda g, self_shape, dim, start, length: ops.narrow_backward(
          g, self_shape, dim, start, length),
      "Return the view of a range of a dim.", node="SliceBackward0",
      batch="along",
      samples=[case(T(2, 3), 1, 1, 2), case(T(2, 3), 0, 0, 0), case(T(2, 3), -1, -2, 1)],
      ref=lambda np, self, dim, start, length: np.take(
          self, np.arange(start % self.shape[dim], start % self.shape[dim] + length), dim))
_view("slice(self: Tensor, dim: int = 0, start: int? = None, end: int? = None, step: int = 1) "
      "-> Tensor",
      lambda g, self_shape, dim, start, end, step: ops.slice_backward(
          g, self_shape, dim, start, end, step),
      "Return the view of every step-th index of a range of a dim.", batch="along",
      function=False, method=False,
      samples=[case(T(5), 0, 1, 4, 2), case(T(2, 5), 1, None, -1), case(T(2, 5), -1, -3),
               case(T(3), 0, 2, 1), case(T(0))],
      ref=lambda np, self, dim=0, start=None, end=None, step=1: np.moveaxis(
          np.moveaxis(self, dim, 0)[start:end:step], 0, dim))
_view("diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor",
      lambda g, self_shape, offset, dim1, dim2: ops.diagonal_backward(
          g, self_shape, offset, dim1, dim2),
      "Return the view of a diagonal of two dims; it is the last dim.", batch="along",
      ref="numpy.diagonal",
      samples=[case(T(3, 3)), case(T(2, 3), 1), case(T(2, 3), -1), case(T(2, 3, 4), 0, 0, 2),
               case(T(2, 3), 5),
               case(T(2, 3, 4), 1, -1, 1)])


# The adjoint of a view: zeros of the whole with the gradient in its part.
_adjoints = {
    "select": ([case(T(3), (2, 3), 0, 1), case(T(2), (2, 3), -1, 0)],
               lambda np, self, size, dim, index: references.embed(
                   np, self, size, references.at(dim % len(size), index))),
    "narrow": ([case(T(2, 2), (2, 3), 1, 1, 2), case(T(0, 3), (2, 3), 0, 1, 0)],
               lambda np, self, size, dim, start, length: references.embed(
                   np, self, size, references.at(dim, slice(start, start + length)))),
    "slice": ([case(T(2), (5,), 0, 1, 4, 2), case(T(2, 3), (2, 5), 1, None, 3, 1)],
              lambda np, self, size, dim, start, end, step: references.embed(
                  np, self, size, references.at(dim, slice(start, end, step)))),
    "diagonal": ([case(T(2), (2, 3), 1, 0, 1), case(T(3, 2), (2, 3, 4), 0, 0, 2),
                  case(T(1), (3, 2), -2, 0, 1)], references.embed_diagonal)}
for _name, _arguments in {
        "select": "dim: int, index: int", "narrow": "dim: int, start: int, length: int",
        "slice": "dim: int, start: int?, end: int?, step: int",
        "diagonal": "offset: int, dim1: int, dim2: int"}.items():
    _names = [part.partition(":")[0].strip() for part in _arguments.split(",")]
    op(f"{_name}_backward(self: Tensor, size: int[], {_arguments}) -> Tensor", jvp="linear",
       forward="embed", batch="along restores", method=False, function=False,
       vjp={"self": eval(f"lambda g, {', '.join(_names)}: ops.{_name}(g, {', '.join(_names)})")},
       doc=f"Return zeros of `size` with self in the place that {_name} would return.",
       samples=_adjoints[_name][0], ref=_adjoints[_name][1])

_view("unbind(self: Tensor, dim: int = 0) -> Tensor[]", lambda gs, self_like, dim: _stack_parts(
    gs, self_like, dim), "Return the views at every index of a dim, as a tuple.",
      batch="along", samples=[case(T(2, 3)), case(T(2, 3), 1), case(T(3)), case(T(2, 0), -1)],
      ref=lambda np, self, dim=0: list(np.moveaxis(self, dim, 0)))


def _stack_parts(gs, like, dim):
    shape = list(like.shape)
    del shape[dim]
    return ops.stack([new_filled(like, shape) if part is None else part for part in gs], dim)


def split_parts(gs, self_like, split_size, dim):
    """Return the gradients side by side; a part that nothing used has zeros."""
    whole = self_like.shape[dim]
    sizes = [min(split_size, whole - start) for start in range(0, whole, split_size)] if (
        isinstance(split_size, int) and whole) else (0,) if not whole else split_size
    parts = []
    for part, size in zip(gs, sizes):
        if part is None:
            shape = list(self_like.shape)
            shape[dim] = size
            part = new_filled(self_like, shape)
        parts.append(part)
    return ops.cat(parts, dim)


_view("split(self: Tensor, split_size: any, dim: int = 0) -> Tensor[]", split_parts,
      "Return views of equal parts of a dim (the last may be smaller), or of the given sizes.",
      node=lambda split_size: ("SplitBackward0" if isinstance(split_size, int)
                               else "SplitWithSizesBackward0"),
      batch="along",
      samples=[case(T(5), 2), case(T(2, 4), 2, 1), case(T(5), [2, 0, 3]), case(T(0, 2), 1),
               case(T(3), 5)],
      ref=references.split)
op("split_with_sizes(self: Tensor, split_sizes: int[], dim: int = 0) -> Tensor[]",
   composite=lambda self, split_sizes, dim: ops.split(self, tuple(split_sizes), dim),
   doc="Return views of consecutive ranges of a dim, as a tuple.",
   samples=[case(T(5), (2, 3)), case(T(2, 4), (1, 0, 3), -1), case(T(0), (0,))],
   ref=references.split)


def chunk_size(self, chunks, dim):
    """Return what split needs to give at most so many parts: their size, or sizes of 0."""
    if self.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = self.size(dim)
    if size == 0:
        return (0,) * chunks
    return -(-size // chunks)


op("chunk(self: Tensor, chunks: int, dim: int = 0) -> Tensor[]",
   composite=lambda self, chunks, dim: ops.split(self, chunk_size(self, chunks, dim), dim),
   doc="Return views of at most `chunks` parts of a dim.",
   samples=[case(T(5), 2), case(T(2, 4), 3, 1), case(T(2), 5), case(T(0), 2)],
   ref=references.chunk)


# -- any geometry ----------------------------------------------------------------------------------

def _as_strided_vjp(g, self_geometry, size, stride, out_offset):
    return ops.as_strided_backward(g, self_geometry, size, stride, out_offset)


_view("as_strided(self: Tensor, size: int[], stride: int[], storage_offset: int? = None) -> Tensor",
      _as_strided_vjp, "Return the view of these sizes and strides over the storage.\n\n"
      "Raises: RuntimeError when it would leave the storage.",
      **_changing("AsStridedBackward1", function=True),
      save={"self_geometry": lambda self, *rest: (tuple(self.shape), self.stride(),
                                                  self.storage_offset()),
            "out_offset": lambda self, size, stride, storage_offset: (
                self.storage_offset() if storage_offset is None else storage_offset)},
      batch="as_strided", samples=[case(fixed(range(6)), *geometry, skip=MEMORY) for geometry in (
          ((2, 2), (3, 1)), ((2, 3), (1, 1), 1), ((2, 2), (0, 1)), ((), (), 2), ((0, 2), (1, 1)))],
      ref=references.as_strided)


def _high(size, stride, offset):
    return offset + sum((n - 1) * s for n, s in zip(size, stride)) if 0 not in size else offset


def _as_strided_backward(self, geometry, size, stride, offset):
    """Scatter the gradient into a flat image of the storage, then read the input's elements."""
    shape, strides, start = geometry
    low = min(start, offset)
    length = max(_high(shape, strides, start), _high(size, stride, offset)) - low + 1
    flat = ops.new_zeros(self, (length,))
    positions = ops.arange_like(self, length).as_strided(size, stride, offset - low)
    flat = ops.index_put_(flat, (positions.reshape(-1),), self.reshape(-1), True)
    counts = ops.index_put_(
        ops.new_zeros(self, (length,)),
        (ops.arange_like(self, length).as_strided(shape, strides, start - low).reshape(-1),),
        ops.new_ones(self, (1,)), True)
    if self.is_floating_point() or self.is_complex():   # others have no derivative to share
        flat = flat / ops.where(counts == 0, 1, counts)
    return flat.as_strided(shape, strides, start - low).clone()


def _shared(size, stride):
    """Tell whether elements of a geometry may share memory."""
    reach = 0
    for step, count in sorted((step, count) for step, count in zip(stride, size) if count > 1):
        if step <= reach:
            return 0 not in size
        reach += step * (count - 1)
    return False


def _as_strided_backward_vjp(g, geometry, size, stride, offset):
    shape, strides, start = geometry
    if not _shared(shape, strides) and not _shared(size, stride):
        return ops.as_strided_backward(g, (size, stride, offset), *geometry)
    low = min(start, offset)
    length = max(_high(shape, strides, start), _high(size, stride, offset)) - low + 1
    where = ops.arange_like(g, length).as_strided(shape, strides, start - low).reshape(-1)
    ones = ops.new_ones(g, (1,))
    counts = ops.index_put_(ops.new_zeros(g, (length,)), (where,), ones, True)
    image = ops.index_put(ops.new_zeros(g, (length,)), (where,), g.reshape(-1), True)
    image = image / ops.where(counts == 0, 1, counts)
    positions = ops.arange_like(g, length).as_strided(size, stride, offset - low)
    return image[positions]


op("as_strided_backward(self: Tensor, geometry: any, size: int[], stride: int[], offset: int) "
   "-> Tensor", forward=_as_strided_backward, compiled="as_strided_backward",
   vjp={"self": _as_strided_backward_vjp}, method=False, function=False,
   doc="Return the adjoint of as_strided; elements that share memory share evenly.",
   samples=[case(T(2, 2), ((6,), (1,), 0), (2, 2), (3, 1), 0),
            case(T(2, 3), ((6,), (1,), 0), (2, 3), (1, 1), 1),
            case(T(2), ((2, 2), (0, 1), 0), (2,), (1,), 0),
            case(T(3), ((3,), (2,), 1), (3,), (1,), 2)])

_view("alias(self: Tensor) -> Tensor", lambda g: g, "Return a view of the whole tensor.",
      batch="unary", method=False, function=False,
      samples=[case(T(2, 3)), case(T()), case(T(0))], ref="numpy.copy")
op("detach(self: Tensor) -> Tensor", forward="detach",
   batch="unary", doc="Return the same memory without history; writes are seen by both.",
   samples=[case(T(*shape), skip=DETACHED | SHARED) for shape in ((2, 3), (), (0,))],
   ref="numpy.copy")


# -- copies ----------------------------------------------------------------------------------------

def _raw(name):
    return lambda *args: compiled("ops.create", name)(*args)


_to_device, _join_raw = _raw("to_device"), _raw("join_raw")


op("clone(self: Tensor, *, memory_format: memory_format? = None) -> Tensor", forward="clone",
   kernel="copy", vjp={"self": lambda g: g}, batch="unary", ref="numpy.copy",
   doc="Return a copy, part of the graph.",
   samples=[case(T(2, 3)), case(T()), case(T(0))])
op("same_memory(self: Tensor) -> Tensor", forward="detach", vjp={"self": lambda g: g},
   jvp="linear", batch="unary", method=False, function=False, ref="numpy.copy",
   doc="Return the same memory as a tensor that is no view; under no_grad without history.",
   samples=[case(T(*shape), skip=SHARED) for shape in ((2, 3), (), (0,))])
op("clone_beside(self: Tensor, other: Tensor) -> Tensor",
   forward=lambda self, other: ops.clone(self), vjp={"self": lambda g: g}, jvp="linear",
   batch="clone_beside", method=False, function=False, ref=lambda np, self, other: self,
   doc="Return a copy, under vmap a batched one where other is: other can be written into it.",
   samples=[case(T(2, 3), T(3)), case(T(), T(2))])
op("contiguous(self: Tensor, memory_format: memory_format? = None) -> Tensor",
   composite="contiguous", function=False,
   doc="Return the tensor itself if its rows lie without gaps, else such a copy.",
   samples=[case(T(2, 3)), case(T()), case(T(0))], ref="numpy.copy")
op("copy_(self: Tensor, src: Operand, non_blocking: bool = False) -> Tensor", forward="copy",
   kernel="copy", inplace="only", function=False,
   vjp={"self": lambda g: ops.zeros_like(g), "src": lambda g: g},
   node="CopyBackwards", doc="Copy the elements of src here, cast and broadcast; returns self.",
   samples=[case(T(2, 3), T(2, 3)), case(T(2, 3), T(3)), case(T(), T()), case(T(0, 3), T(3)),
            case(T(2, 3), T()),
            case(T(3), real(3)), case(T(3), at(3, high=5))],
   ref=lambda np, self, src: np.broadcast_to(src, self.shape))
op("cast(self: Tensor, dtype: dtype) -> Tensor", forward="cast", kernel="copy",
   vjp={"self": lambda g: g}, batch="unary", method=False, function=False, node="ToCopyBackward0",
   doc="Return a copy in another dtype.",
   samples=[case(T(2, 3), Dtype("float64"), only=ALL & ~COMPLEX), case(T(), Dtype("complex128")),
            case(T(2, 3), Dtype("int64"), only=ALL & ~COMPLEX, skip=KINKS),
            case(T(3), Dtype("bool"), skip=KINKS),
            case(T(2, 3), Dtype("float32"), only=ALL & ~COMPLEX, skip=ROUNDED)],
   ref=lambda np, self, *target, **options: self)
op("move(self: Tensor, device: device, non_blocking: bool = False) -> Tensor",
   jvp="linear", batch="unary", method=False, function=False, node="ToCopyBackward0",
   forward=lambda self, device, non_blocking: _to_device(self, device, non_blocking),
   vjp={"self": lambda g, self_like: g.to(self_like.device)},
   doc="Return a copy on another device; one that is not waited for goes from pinned memory.",
   samples="it needs two devices; the tests of devices cover it")
op("pin(self: Tensor, device: device? = None) -> Tensor",
   jvp="linear", method=False, function=False, node="PinMemoryBackward0",
   forward=lambda self, device: compiled("interop.pinned_tensors", "pinned_copy")(self, device),
   vjp={"self": lambda g: g}, doc="Return a copy in pinned memory.",
   samples="it needs a device with pinned memory; the tests of streams cover it")
op("pin_memory(self: Tensor, device: device? = None) -> Tensor", function=False,
   composite=lambda self, device: (
       self if compiled("interop.pinned_tensors", "is_pinned")(self, device)
       else ops.pin(self, device)),
   doc="Return a copy in host memory that a device reaches by itself; or itself if it is there.",
   samples="it needs a device with pinned memory; the tests of streams cover it")


op("to(self: Tensor, target: any = None, other: any = None, non_blocking: bool = False, "
   "copy: bool = False, *, dtype: dtype? = None, device: device? = None, "
   "memory_format: memory_format? = None) -> Tensor", function=False,
   composite="to",
   doc="Return the tensor in another dtype or on another device; itself if nothing changes.",
   samples=[case(T(2, 3), Dtype("float64"), only=ALL & ~COMPLEX),
            case(T(), dtype=Dtype("complex128")), case(T(2, 3)),
            case(T(2, 3), T(1)), case(T(3), copy=True),
            case(T(2, 3), Dtype("float32"), only=ALL & ~COMPLEX, skip=ROUNDED)],
   ref=lambda np, self, *target, **options: self)

# -- joins -----------------------------------------------------------------------------------------


def _common(tensors):
    """Return tensors in the dtype that they promote to."""
    import pullback
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = pullback.promote_types(dtype, tensor.dtype)
    return [t if t.dtype == dtype else ops.cast(t, dtype) for t in tensors]


def _cat_forward(tensors, dim):
    if not tensors:
        raise ValueError("cat(): expected a non-empty list of Tensors")
    joined = _join_raw(list(tensors), dim, False)
    if joined is not None:
        return joined
    tensors = _common(tensors)    # empty ones have a say in the dtype
    some = [t for t in tensors if tuple(t.shape) != (0,)]
    if not some:
        return _join_raw(tensors[:1], 0, False)
    tensors, shape = some, list(some[0].shape)
    if not shape:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    if not -len(shape) <= dim < len(shape):
        raise IndexError(f"Dimension out of range (expected to be in range of [{-len(shape)}, "
                         f"{len(shape) - 1}], but got {dim})")
    dim %= len(shape)
    for number, tensor in enumerate(tensors[1:], 1):
        if tensor.ndim != len(shape):
            raise RuntimeError(f"Tensors must have same number of dimensions: got {len(shape)} and "
                               f"{tensor.ndim}")
        for d, (have, want) in enumerate(zip(tensor.shape, shape)):
            if d != dim and have != want:
                raise RuntimeError(f"Sizes of tensors must match except in dimension {dim}. "
                                   f"Expected size {want} but got size {have} for tensor number "
                                   f"{number} in the list.")
    return _join_raw(tensors, dim, False)


def _cat_vjp(g, sizes, dim):
    parts, start = [], 0
    for size in sizes:
        if size is None:                # torch's legacy: an empty 1-d tensor fits anywhere
            parts.append(ops.new_zeros(g, (0,)))
            continue
        parts.append(g.narrow(dim, start, size))
        start += size
    return parts


op("cat(tensors: Tensor[], dim: int = 0) -> Tensor",
   jvp="linear", forward=_cat_forward, compiled="cat", batch="along", method=False, out=True,
   vjp={"tensors": _cat_vjp}, aliases=("concat", "concatenate"),
   save={"sizes": lambda tensors, dim: [None if t.ndim == 1 and not t.numel() else t.size(dim)
                                        for t in tensors]},
   doc="Return tensors joined along a dim.",
   samples=[case([T(2, 3), T(1, 3)]), case([T(2, 3), T(2, 2)], -1), case([T(3)], 0),
            case((T(0), T(2, 3)), 1),
            case([T(2, 0), T(2, 3)], 1), case([T(2), real(2)])],
   ref=references.cat)


def _stack(tensors, dim):
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    joined = _join_raw(list(tensors), dim, True)
    if joined is not None:
        return joined
    shape = tensors[0].shape
    for number, tensor in enumerate(tensors):
        if tensor.shape != shape:
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(shape)} "
                               f"at entry 0 and {list(tensor.shape)} at entry {number}")
    rank = len(shape) + 1
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, "
                         f"{rank - 1}], but got {dim})")
    return _join_raw(_common(tensors), dim, True)


op("stack(tensors: Tensor[], dim: int = 0) -> Tensor",
   jvp="linear", forward=_stack, compiled="stack", batch="along new_dim", method=False, out=True,
   vjp={"tensors": lambda g, dim: list(g.unbind(dim))}, ref="numpy.stack",
   doc="Return tensors of one shape joined along a new dim.",
   samples=[case([T(2, 3), T(2, 3)]), case([T(2, 3), T(2, 3)], 1), case((T(), T(), T()), -1),
            case([T(0)], 0)])
