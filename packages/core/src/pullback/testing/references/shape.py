"""References of shapes, views, joins and diagonals.

Each takes the NumPy module first, then the op's arguments with arrays for tensors.
"""


def squeeze(np, self, dim=None):
    """torch ignores dims of more than one element; NumPy refuses them."""
    dims = range(self.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    dims = {d % self.ndim for d in dims if self.ndim}
    return np.squeeze(self, tuple(d for d in dims if self.shape[d] == 1))


def expand(np, self, *size):
    """-1 keeps a size."""
    size = size[0] if isinstance(size[0], tuple) else size
    lead = len(size) - self.ndim
    return np.broadcast_to(
        self, [self.shape[d - lead] if n == -1 else n for d, n in enumerate(size)]
    )


def sum_to_size(np, self, *size):
    """Sum over every dim that broadcasting adds or stretches."""
    size = size[0] if isinstance(size[0], tuple) else size
    lead = self.ndim - len(size)
    stretched = [d for d in range(self.ndim) if d < lead or size[d - lead] != self.shape[d]]
    return self.sum(tuple(stretched)).reshape(size)


def flatten(np, self, start_dim=0, end_dim=-1):
    """Join consecutive dims."""
    if not self.ndim:
        return self.reshape(1)
    start, end = start_dim % self.ndim, end_dim % self.ndim
    joined = int(np.prod(self.shape[start : end + 1]))
    return self.reshape(*self.shape[:start], joined, *self.shape[end + 1 :])


def split(np, self, split_size, dim=0):
    """NumPy wants the positions of the cuts."""
    total = self.shape[dim]
    if isinstance(split_size, int):
        cuts = list(range(split_size, total, split_size))
    else:
        cuts = list(np.cumsum(split_size)[:-1])
    return np.split(self, cuts, dim)


def chunk(np, self, chunks, dim=0):
    """Parts of equal size, the last one smaller; all empty if there is nothing."""
    total = self.shape[dim]
    return split(np, self, -(-total // chunks), dim) if total else [self] * chunks


def as_strided(np, self, size, stride, storage_offset=0):
    """Read the elements of a row-major array one by one."""
    out = np.empty(size, self.dtype)
    for position in np.ndindex(*size):
        out[position] = self.reshape(-1)[
            storage_offset + sum(i * s for i, s in zip(position, stride))
        ]
    return out


def embed(np, self, size, key):
    """Return zeros with the array at a key."""
    out = np.zeros(size, self.dtype)
    out[key] = self
    return out


def at(dim, what):
    """Return a key that takes ``what`` of one dim and everything of the others."""
    return (slice(None),) * dim + (what,)


def embed_diagonal(np, self, size, offset, dim1, dim2):
    """Return zeros with the array on a diagonal."""
    out = np.zeros(size, self.dtype)
    ends = np.moveaxis(out, (dim1, dim2), (-2, -1))
    count = self.shape[-1]
    row, column = max(-offset, 0), max(offset, 0)
    ends[..., range(row, row + count), range(column, column + count)] = self
    return out


def cat(np, tensors, dim=0):
    """torch lets empty vectors join anything."""
    kept = [t for t in tensors if t.shape != (0,)]
    return np.concatenate(kept or tensors, dim)


def repeat_interleave(np, self, repeats=None, dim=None, output_size=None):
    """NumPy counts each element of the dim too, but has no other forms."""
    if repeats is None:
        return np.repeat(np.arange(len(self)), self)
    return np.repeat(self, repeats, dim)


def at_least(name):
    """One array gives one, several give a list."""

    def reference(np, *tensors):
        many = tensors[0] if isinstance(tensors[0], list) else tensors
        found = [_raise(np, name, array) for array in many]
        return found[0] if len(tensors) == 1 and tensors[0] is not many else found

    return reference


def _raise(np, name, array):
    return getattr(np, name)(array)


def block_diag(np, *tensors):
    """Write each block into zeros."""
    blocks = [np.atleast_2d(array) for array in tensors]
    out = np.zeros(np.sum([block.shape for block in blocks], axis=0), np.result_type(*tensors))
    row = column = 0
    for block in blocks:
        out[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return out


def tensor_split(np, self, sections=None, dim=0, indices=None):
    """As numpy.array_split, with the positions of the cuts by two names."""
    return np.array_split(self, sections if indices is None else indices, dim)


def broadcast_tensors(np, *tensors):
    """The tensors may come as one list."""
    return np.broadcast_arrays(*(tensors[0] if isinstance(tensors[0], list) else tensors))


def meshgrid(np, *tensors, indexing):
    """The tensors may come as one list."""
    return np.meshgrid(
        *(tensors[0] if isinstance(tensors[0], list) else tensors), indexing=indexing
    )


def cartesian_prod(np, *tensors):
    """One vector stays a vector."""
    import itertools

    if len(tensors) == 1:
        return tensors[0]
    rows = list(itertools.product(*tensors))
    return np.array(rows, dtype=tensors[0].dtype).reshape(len(rows), len(tensors))


def combinations(np, self, r=2, with_replacement=False):
    """Python's own, as rows."""
    import itertools

    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(self, r)) if r else []
    return np.array(rows, dtype=self.dtype).reshape((len(rows), r) if r else (0,))


# -- diagonals and parts ---------------------------------------------------------------------------


def diag_embed(np, self, offset=0, dim1=-2, dim2=-1):
    """Write the last dim on a diagonal of zeros."""
    count = self.shape[-1]
    size = count + abs(offset)
    out = np.zeros((*self.shape[:-1], size, size), self.dtype)
    row, column = max(-offset, 0), max(offset, 0)
    out[..., range(row, row + count), range(column, column + count)] = self
    return np.moveaxis(out, (-2, -1), (dim1, dim2))


def fill_diagonal(np, self, fill_value, wrap=False):
    """NumPy's writes in place."""
    out = self.copy()
    if out.size:
        np.fill_diagonal(out, fill_value, wrap)
    return out


def select_scatter(np, self, src, dim, index):
    """Write one index of a dim."""
    out = self.copy()
    np.moveaxis(out, dim, 0)[index] = src
    return out


def slice_scatter(np, self, src, dim=0, start=None, end=None, step=1):
    """Write a range of a dim."""
    out = self.copy()
    if src.size:
        np.moveaxis(out, dim, 0)[start:end:step] = np.moveaxis(src, dim, 0)
    return out


def diagonal_scatter(np, self, src, offset=0, dim1=0, dim2=1):
    """Write the elements of a diagonal one after the other."""
    out = self.copy()
    ends = np.moveaxis(out, (dim1, dim2), (-2, -1))
    row, column = max(-offset, 0), max(offset, 0)
    for position in range(src.shape[-1]):
        ends[..., row + position, column + position] = src[..., position]
    return out


def as_strided_scatter(np, self, src, size, stride, storage_offset=0):
    """Write the elements of a row-major array one by one."""
    out = self.copy()
    for position in np.ndindex(*size):
        out.reshape(-1)[storage_offset + sum(i * s for i, s in zip(position, stride))] = src[
            position
        ]
    return out
