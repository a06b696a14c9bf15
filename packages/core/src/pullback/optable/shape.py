"""Views, copies and joins."""

from pullback.optable.schema import op, ops


def _view(signature, vjp, doc, *, forward=None, **fields):
    name = signature.partition("(")[0]
    op(signature, forward=forward or name, view=True, vjp={"self": vjp}, doc=doc, **fields)


# -- order of dims ------------------------------------------------------------------------------------

def _permute_vjp(g, dims):
    order = [0] * len(dims)
    for position, d in enumerate(dims):
        order[d % len(dims)] = position
    return g.permute(tuple(order))


_view("transpose(self: Tensor, dim0: int, dim1: int) -> Tensor",
      lambda g, dim0, dim1: g.transpose(dim0, dim1),
      "Return a view with two dims exchanged.", aliases=("swapaxes", "swapdims"),
      ref="numpy.swapaxes")
_view("t(self: Tensor) -> Tensor", lambda g: g.t(),
      "Return the transposed view of a matrix; vectors stay.\n\nRaises: RuntimeError above 2 dims.",
      ref="numpy.transpose")
_view("permute(self: Tensor, dims: int[]) -> Tensor", _permute_vjp,
      "Return a view with its dims in another order.", varargs=True, ref="numpy.transpose")


def _movedim(self, source, destination):
    sources = (source,) if isinstance(source, int) else tuple(source)
    targets = (destination,) if isinstance(destination, int) else tuple(destination)
    if len(sources) != len(targets):
        raise RuntimeError(f"movedim: Invalid source or destination dims: source ({sources} dims) "
                           f"should contain the same number of dims as destination ({targets} "
                           f"dims)")
    ndim = self.ndim
    for d in (*sources, *targets):
        if not -ndim <= d < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, "
                             f"{ndim - 1}], but got {d})")
    sources = [d % ndim for d in sources]
    targets = [d % ndim for d in targets]
    if len(set(sources)) < len(sources) or len(set(targets)) < len(targets):
        raise RuntimeError("movedim: repeated dim in source or destination")
    rest = iter([d for d in range(ndim) if d not in sources])
    moved = dict(zip(targets, sources))
    return self.permute(tuple(moved[d] if d in moved else next(rest) for d in range(ndim)))


op("movedim(self: Tensor, source: int[], destination: int[]) -> Tensor", composite=_movedim,
   aliases=("moveaxis",), ref="numpy.moveaxis", doc="Return a view with some dims moved.")


# -- number and size of dims ----------------------------------------------------------------------------

def _squeeze_vjp(g, self_shape):
    return g.reshape(self_shape)


_view("unsqueeze(self: Tensor, dim: int) -> Tensor", lambda g, self_shape: g.reshape(self_shape),
      "Return a view with a dim of one element inserted.", ref="numpy.expand_dims")
_view("squeeze(self: Tensor, dim: int[]? = None) -> Tensor",
      lambda g, self_shape: g.reshape(self_shape),
      "Return a view without dims of one element: all of them, or those named.",
      ref="numpy.squeeze")
_view("expand(self: Tensor, size: int[], *, implicit: bool = False) -> Tensor", lambda g: g,
      "Return a view with dims of one element repeated without copying; -1 keeps a size.",
      varargs=True, ref="numpy.broadcast_to")
op("expand_as(self: Tensor, other: Tensor) -> Tensor", function=False,
   composite=lambda self, other: self.expand(other.shape),
   doc="Return self expanded to the shape of another tensor.")
op("broadcast_to(self: Tensor, size: int[]) -> Tensor",
   composite=lambda self, size: self.expand(size), ref="numpy.broadcast_to",
   doc="Return self expanded to a shape.")


def _sum_to_size(self, size):
    """Sum the dims that broadcasting to self's shape would repeat."""
    size = (size,) if isinstance(size, int) else tuple(size)
    lead = self.ndim - len(size)
    shape = self.shape
    if lead < 0 or any(want not in (1, have) for want, have in zip(size, shape[lead:])):
        raise RuntimeError(f"size {list(size)} is not expandable to size {list(shape)}.")
    dims = tuple(range(lead)) + tuple(
        d + lead for d, want in enumerate(size) if want == 1 and shape[d + lead] != 1)
    if not dims:
        return self
    out = ops.sum(self, dims, True)
    return out.reshape(size) if lead else out


op("sum_to_size(self: Tensor, size: int[]) -> Tensor", composite=_sum_to_size, varargs=True,
   function=False, doc="Return self summed to a shape that broadcasts to it.")

_view("view(self: Tensor, size: any) -> Tensor", lambda g, self_shape: g.reshape(self_shape),
      "Return a view of another shape over the same memory; one size may be -1.\n\n"
      "Raises: RuntimeError when the memory cannot be seen in this shape.", varargs=True,
      function=False, ref="numpy.reshape")


def _reshape(self, shape):
    from pullback._c.views import full_shape, viewable
    found = viewable(self, shape)
    if found is not None:
        return ops.view(self, found)
    return ops.view(ops.contiguous(self), full_shape(self, shape))


op("reshape(self: Tensor, shape: int[]) -> Tensor", composite=_reshape, varargs=True,
   ref="numpy.reshape", doc="Return the elements in another shape: a view where possible.")
op("reshape_as(self: Tensor, other: Tensor) -> Tensor", function=False,
   composite=lambda self, other: self.reshape(other.shape),
   doc="Return the elements in the shape of another tensor.")
op("view_as(self: Tensor, other: Tensor) -> Tensor", function=False,
   composite=lambda self, other: self.view(other.shape),
   doc="Return a view in the shape of another tensor.")


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
   doc="Return the dims from start_dim to end_dim joined into one.")
op("ravel(self: Tensor) -> Tensor", composite=lambda self: self.reshape(-1), ref="numpy.ravel",
   doc="Return all elements in one dim.")

# -- parts ------------------------------------------------------------------------------------------------

_view("select(self: Tensor, dim: int, index: int) -> Tensor",
      lambda g, self_shape, dim, index: g.select_backward(self_shape, dim, index),
      "Return the view at one index of a dim.", ref="numpy.take")
_view("narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor",
      lambda g, self_shape, dim, start, length: g.narrow_backward(self_shape, dim, start, length),
      "Return the view of a range of a dim.", node="SliceBackward0")
_view("slice(self: Tensor, dim: int = 0, start: int? = None, end: int? = None, step: int = 1) "
      "-> Tensor",
      lambda g, self_shape, dim, start, end, step: g.slice_backward(
          self_shape, dim, start, end, step),
      "Return the view of every step-th index of a range of a dim.", function=False, method=False)
_view("diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor",
      lambda g, self_shape, offset, dim1, dim2: g.diagonal_backward(
          self_shape, offset, dim1, dim2),
      "Return the view of a diagonal of two dims; it is the last dim.", ref="numpy.diagonal")


def _embedding(name, part):
    """Declare the adjoint of a view: zeros of the whole with the gradient in its part."""
    def embed(self, size, *where):
        whole = ops.new_zeros(self, size)
        ops.copy_(getattr(ops, part)(whole, *where), self)
        return whole
    return embed


for _name, _arguments in {
        "select": "dim: int, index: int", "narrow": "dim: int, start: int, length: int",
        "slice": "dim: int, start: int?, end: int?, step: int",
        "diagonal": "offset: int, dim1: int, dim2: int"}.items():
    _names = [part.partition(":")[0].strip() for part in _arguments.split(",")]
    op(f"{_name}_backward(self: Tensor, size: int[], {_arguments}) -> Tensor",
       forward=_embedding(_name, _name), method=False, function=False,
       vjp={"self": eval(f"lambda g, {', '.join(_names)}: g.{_name}({', '.join(_names)})")},
       doc=f"Return zeros of `size` with self in the place that {_name} would return.")

_view("unbind(self: Tensor, dim: int = 0) -> Tensor[]", lambda gs, self_like, dim: _stack_parts(
    gs, self_like, dim), "Return the views at every index of a dim, as a tuple.")


def _stack_parts(gs, like, dim):
    shape = list(like.shape)
    del shape[dim]
    return ops.stack([_zeros(shape, like) if part is None else part for part in gs], dim)


def _zeros(shape, like):
    from pullback._c.create import empty_tensor, fill_tensor
    return fill_tensor(empty_tensor(tuple(shape), like.dtype, like.device), 0)


def _split_parts(gs, self_like, sizes, dim):
    parts = []
    for part, size in zip(gs, sizes):
        if part is None:
            shape = list(self_like.shape)
            shape[dim] = size
            part = _zeros(shape, self_like)
        parts.append(part)
    return ops.cat(parts, dim)


_view("split_with_sizes(self: Tensor, sizes: int[], dim: int = 0) -> Tensor[]", _split_parts,
      "Return views of consecutive ranges of a dim, as a tuple.", forward="split")


def _split(self, split_size, dim):
    if not isinstance(split_size, int):
        return ops.split_with_sizes(self, tuple(split_size), dim)
    if self.ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    size = self.size(dim)
    if split_size < 0 or (split_size == 0 and size != 0):
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size="
                           f"{split_size}")
    if size == 0:
        return ops.split_with_sizes(self, (0,), dim)
    full, rest = divmod(size, split_size)
    return ops.split_with_sizes(self, (split_size,) * full + ((rest,) if rest else ()), dim)


op("split(self: Tensor, split_size: any, dim: int = 0) -> Tensor[]", composite=_split,
   doc="Return views of equal parts of a dim (the last may be smaller), or of the given sizes.")


def _chunk(self, chunks, dim):
    if self.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = self.size(dim)
    if size == 0:
        return ops.split_with_sizes(self, (0,) * chunks, dim)
    return ops.split(self, -(-size // chunks), dim)


op("chunk(self: Tensor, chunks: int, dim: int = 0) -> Tensor[]", composite=_chunk,
   doc="Return views of at most `chunks` parts of a dim.")


# -- any geometry -------------------------------------------------------------------------------------------

def _as_strided_vjp(g, self_geometry, size, stride, out_offset):
    return ops.as_strided_backward(g, self_geometry, size, stride, out_offset)


_view("as_strided(self: Tensor, size: int[], stride: int[], storage_offset: int? = None) -> Tensor",
      _as_strided_vjp, "Return the view of these sizes and strides over the storage.\n\n"
      "Raises: RuntimeError when it would leave the storage.",
      save={"self_geometry": lambda self, *rest: (tuple(self.shape), self.stride(),
                                                  self.storage_offset()),
            "out_offset": lambda self, size, stride, storage_offset: (
                self.storage_offset() if storage_offset is None else storage_offset)})


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
    flat = flat / ops.where(counts == 0, 1, counts)
    return flat.as_strided(shape, strides, start - low).clone()


def _as_strided_backward_vjp(g, geometry, size, stride, offset):
    shape, strides, start = geometry
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
   "-> Tensor", forward=_as_strided_backward, vjp={"self": _as_strided_backward_vjp}, method=False,
   function=False, doc="Return the adjoint of as_strided; elements that share memory share evenly.")

_view("alias(self: Tensor) -> Tensor", lambda g: g, "Return a view of the whole tensor.",
      method=False, function=False)
op("detach(self: Tensor) -> Tensor", forward="detach",
   doc="Return the same memory without history; writes are seen by both.")
_view("view_as_real(self: Tensor) -> Tensor", lambda g: g.contiguous().view_as_complex(),
      "Return the real and imaginary parts as a last dim of 2, over the same memory.")
_view("view_as_complex(self: Tensor) -> Tensor", lambda g: ops.resolve(g).view_as_real(),
      "Return a last dim of 2 as complex numbers, over the same memory.")
op("resolve(self: Tensor) -> Tensor", composite=lambda self: self, method=False, function=False,
   doc="Return the tensor itself: conjugation is never delayed here.")
op("real(self: Tensor) -> Tensor", doc="Return the real part: a view, or a real tensor itself.",
   composite=lambda self: ops.select(ops.view_as_real(self), -1, 0) if self.is_complex() else self)


def _imag(self):
    if not self.is_complex():
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return ops.select(ops.view_as_real(self), -1, 1)


op("imag(self: Tensor) -> Tensor", composite=_imag, doc="Return a view of the imaginary part.")


# -- copies -----------------------------------------------------------------------------------------------------

def _raw(name):
    def call(*args):
        from pullback._c import create
        return getattr(create, name)(*args)
    return call


_clone_raw, _cast_raw, _copy_raw, _to_device = (
    _raw(name) for name in ("clone_raw", "cast_raw", "copy_raw", "to_device"))


def _memory_format(value):
    if value is not None and str(value) not in ("contiguous_format", "preserve_format"):
        raise RuntimeError(f"unsupported memory format {value!r}")


op("clone(self: Tensor, *, memory_format: any = None) -> Tensor",
   forward=lambda self, memory_format: (_memory_format(memory_format), _clone_raw(
       self, str(memory_format) == "contiguous_format"))[1],
   vjp={"self": lambda g: g}, ref="numpy.copy", doc="Return a copy, part of the graph.")
op("contiguous(self: Tensor, memory_format: any = None) -> Tensor", function=False,
   composite=lambda self, memory_format: self if self.is_contiguous() else ops.row_major(self),
   doc="Return the tensor itself if its rows lie without gaps, else such a copy.")
op("row_major(self: Tensor) -> Tensor", forward=lambda self: _clone_raw(self, True),
   vjp={"self": lambda g: g}, method=False, function=False, node="CloneBackward0",
   doc="Return a row-major copy.")
op("copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor",
   forward=lambda self, src, non_blocking: _checked_copy(self, src), inplace="only",
   function=False, vjp={"self": lambda g: ops.zeros_like(g), "src": lambda g: g},
   node="CopyBackwards", doc="Copy the elements of src here, cast and broadcast; returns self.")


def _checked_copy(self, src):
    try:
        fits = src.expand(self.shape).shape == self.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise RuntimeError(f"output with shape {list(self.shape)} doesn't match the broadcast "
                           f"shape of {list(src.shape)}")
    if src._is_view() or self._is_view() or src.data_ptr() == self.data_ptr():
        src = _clone_raw(src)           # the two may overlap
    return _copy_raw(self, src)


op("cast(self: Tensor, dtype: dtype) -> Tensor", forward=lambda self, dtype: _cast_raw(self, dtype),
   vjp={"self": lambda g: g}, method=False, function=False, node="ToCopyBackward0",
   doc="Return a copy in another dtype.")
op("move(self: Tensor, device: device) -> Tensor", method=False, function=False,
   node="ToCopyBackward0", forward=lambda self, device: _to_device(self, device),
   vjp={"self": lambda g, self_like: g.to(self_like.device)},
   doc="Return a copy on another device.")


def _to(self, *args, dtype=None, device=None, copy=False):
    for value in args:
        if hasattr(value, "dtype") and hasattr(value, "device"):
            dtype, device = value.dtype, value.device
        elif isinstance(value, bool):
            copy = value
        elif isinstance(value, (str, int)) or hasattr(value, "index"):
            device = value
        elif value is not None:
            dtype = value
    return _convert(self, dtype, device, copy)


def _convert(self, dtype, device, copy):
    import pullback
    out = self
    if device is not None:
        device = pullback.device(device)
        if device.index is None and device.type == self.device.type:
            device = self.device
        if device != self.device:
            out = ops.move(out, device)
    if dtype is not None and dtype != out.dtype:
        out = ops.cast(out, dtype)
    return ops.clone(out) if copy and out is self else out


op("to(self: Tensor, target: any, other: any = None, non_blocking: bool = False, "
   "copy: bool = False, *, dtype: dtype? = None, device: device? = None, "
   "memory_format: any = None) -> Tensor", function=False,
   composite=lambda self, target, other, non_blocking, copy, dtype, device, memory_format: _to(
       self, target, other, dtype=dtype, device=device, copy=copy),
   doc="Return the tensor in another dtype or on another device; itself if nothing changes.")

# -- joins --------------------------------------------------------------------------------------------------------


def _common(tensors, name):
    import pullback
    if not tensors:
        raise RuntimeError(f"{name}(): expected a non-empty list of Tensors")
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = pullback.promote_types(dtype, tensor.dtype)
    return [t if t.dtype == dtype else ops.cast(t, dtype) for t in tensors]


def _cat_forward(tensors, dim):
    from pullback._c.create import empty_tensor
    tensors = [t for t in tensors if tuple(t.shape) != (0,)] or list(tensors)[:1]
    shape = list(tensors[0].shape)
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
    tensors = _common(tensors, "cat")
    shape[dim] = sum(tensor.shape[dim] for tensor in tensors)
    out = empty_tensor(tuple(shape), tensors[0].dtype, tensors[0].device)
    start = 0
    for tensor in tensors:
        length = tensor.shape[dim]
        if tensor.numel():
            _copy_raw(ops.narrow(out, dim, start, length), tensor)
        start += length
    return out


def _cat_vjp(g, sizes, dim):
    parts, start = [], 0
    for size in sizes:
        if size is None:                # torch's legacy: an empty 1-d tensor fits anywhere
            parts.append(ops.new_zeros(g, (0,)))
            continue
        parts.append(g.narrow(dim, start, size))
        start += size
    return parts


op("cat(tensors: Tensor[], dim: int = 0) -> Tensor", forward=_cat_forward, method=False, out=True,
   vjp={"tensors": _cat_vjp}, aliases=("concat", "concatenate"), ref="numpy.concatenate",
   save={"sizes": lambda tensors, dim: [None if tuple(t.shape) == (0,) else t.shape[dim]
                                        for t in tensors]},
   doc="Return tensors joined along a dim.")


def _stack(tensors, dim):
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    shape = tensors[0].shape
    for number, tensor in enumerate(tensors):
        if tensor.shape != shape:
            raise RuntimeError(f"stack expects each tensor to be equal size, but got {list(shape)} "
                               f"at entry 0 and {list(tensor.shape)} at entry {number}")
    rank = len(shape) + 1
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, "
                         f"{rank - 1}], but got {dim})")
    return _cat_forward([t.unsqueeze(dim % rank) for t in tensors], dim % rank)


op("stack(tensors: Tensor[], dim: int = 0) -> Tensor", forward=_stack, method=False, out=True,
   vjp={"tensors": lambda g, dim: list(g.unbind(dim))}, ref="numpy.stack",
   doc="Return tensors of one shape joined along a new dim.")
