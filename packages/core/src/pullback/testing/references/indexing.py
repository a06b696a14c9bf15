"""References of indexing, gathering and scattering.

Each takes the NumPy module first, then the op's arguments with arrays for tensors.
"""


def index(np, self, indices):
    """None stands for a whole dim."""
    return self[tuple(slice(None) if i is None else i for i in indices)]


def index_put(np, self, indices, values, accumulate=False):
    """Write or add at indices that may repeat."""
    out = self.copy()
    key = tuple(slice(None) if i is None else i for i in indices)
    if accumulate:
        np.add.at(out, key, values)
    else:
        out[key] = values
    return out


def gather(np, self, dim, index, sparse_grad=False):
    """The index may be smaller than the array in the other dims."""
    if not self.ndim:
        return self.reshape(1)[index]
    dim %= self.ndim
    part = self[tuple(slice(None) if d == dim else slice(n) for d, n in enumerate(index.shape))]
    return np.take_along_axis(part, index, dim)


def gather_backward(np, self, dim, index, shape):
    """What is gathered, in the corner of zeros."""
    found = gather(np, self, dim, index)
    whole = np.zeros(shape, found.dtype)
    whole[tuple(map(slice, found.shape))] = found
    return whole


def scatter_add(np, self, dim, index, src):
    """Add element by element, in order."""
    out = np.atleast_1d(self).copy()
    index, src = np.atleast_1d(index), np.atleast_1d(src)
    for position in np.ndindex(*index.shape):
        target = list(position)
        target[dim] = index[position]
        out[tuple(target)] += src[position]
    return out.reshape(self.shape)


def _targets(np, index, dim):
    """Yield the position of each index element, and the position that it names."""
    index = np.atleast_1d(index)
    for position in np.ndindex(index.shape):
        target = list(position)
        target[dim] = int(index[position])
        yield position, tuple(target)


def scatter(np, self, dim, index, src=None, reduce=None, value=None):
    """Write, add or multiply in order."""
    out = np.atleast_1d(self).copy()
    src = value if src is None else src
    src = np.broadcast_to(src, np.atleast_1d(index).shape) if np.ndim(src) == 0 else src
    for position, target in _targets(np, index, dim):
        if reduce is None:
            out[target] = src[position]
        elif reduce == "add":
            out[target] = out[target] + src[position]
        else:
            out[target] = out[target] * src[position]
    return out.reshape(self.shape)


def scatter_reduce(np, self, dim, index, src, reduce, include_self=True):
    """Collect the elements of every position, then reduce them."""
    out = np.atleast_1d(self).copy()
    found = {}
    for position, target in _targets(np, index, dim):
        found.setdefault(target, []).append(np.atleast_1d(src)[position])
    for target, values in found.items():
        if include_self:
            values = [out[target], *values]
        out[target] = _reduce(np, reduce, np.array(values))
    return out.reshape(self.shape)


def _reduce(np, reduce, values):
    name = {"add": "sum", "multiply": "prod"}.get(reduce, reduce)
    if name == "mean" and values.dtype.kind in "iu":
        return np.add.reduce(values) // len(values)
    if values.dtype.kind == "b" and name in ("sum", "prod"):
        return values.any() if name == "sum" else values.all()
    return getattr(np, name)(values)


def _slices(np, self, dim, index, source):
    """Yield (position, slice) of every index."""
    for k, position in enumerate(np.atleast_1d(index)):
        part = np.moveaxis(source, dim, 0)[k] if source.ndim else source
        yield int(position), part


def index_add(np, self, dim, index, source, alpha=1):
    """Add slice by slice."""
    out = np.atleast_1d(self).copy()
    for position, part in _slices(np, self, dim, index, source):
        rows = np.moveaxis(out, dim, 0)
        rows[position] = rows[position] + (part if alpha == 1 else part * alpha)
    return out.reshape(self.shape)


def index_copy(np, self, dim, index, source):
    """Write slice by slice."""
    out = np.atleast_1d(self).copy()
    for position, part in _slices(np, self, dim, index, source):
        np.moveaxis(out, dim, 0)[position] = part
    return out.reshape(self.shape)


def index_fill(np, self, dim, index, value):
    """Write one number to slices."""
    out = np.atleast_1d(self).copy()
    np.moveaxis(out, dim, 0)[np.atleast_1d(index)] = value
    return out.reshape(self.shape)


def index_reduce(np, self, dim, index, source, reduce, include_self=True):
    """A scatter_reduce whose index is the same in all slices."""
    shape = np.atleast_1d(source).shape
    lead = (-1,) + (1,) * (len(shape) - dim % len(shape) - 1)
    spread = np.broadcast_to(np.atleast_1d(index).reshape(lead), shape)
    return scatter_reduce(np, self, dim, spread, source, reduce, include_self)


def masked_select(np, self, mask):
    """Broadcast, then index."""
    self, mask = np.broadcast_arrays(self, mask)
    return self[mask]


def masked_scatter(np, self, mask, source):
    """Write the first elements of the source."""
    self, mask = np.broadcast_arrays(self, mask)
    out = self.copy()
    out[mask] = source.reshape(-1)[: int(mask.sum())]
    return out


def take(np, self, index):
    """NumPy's, which wants an element."""
    return np.take(self, index) if self.size else np.empty(index.shape, self.dtype)


def put(np, self, index, source, accumulate=False):
    """Go through the positions one by one."""
    out = self.reshape(-1).copy()
    for position, value in zip(np.atleast_1d(index), source.reshape(-1)):
        out[position] = out[position] + value if accumulate else value
    return out.reshape(self.shape)


def take_along_dim(np, self, indices, dim=None):
    """NumPy's, with the other dims broadcast."""
    if dim is None:
        return self.reshape(-1)[indices.reshape(-1)]
    mine, other = list(self.shape), list(indices.shape)
    mine[dim] = other[dim] = 1
    shape = list(np.broadcast_shapes(mine, other))
    wide = list(shape)
    shape[dim], wide[dim] = self.shape[dim], indices.shape[dim]
    return np.take_along_axis(np.broadcast_to(self, shape), np.broadcast_to(indices, wide), dim)


def nonzero_static(np, self, size, fill_value=-1):
    """Fill the first rows with the coordinates."""
    found = np.full((size, self.ndim), fill_value, np.int64)
    where = np.argwhere(self)[:size]
    found[: len(where)] = where
    return found
