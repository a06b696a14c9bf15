"""References of ops for which NumPy has no function of the same arguments.

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


def sum_backward(np, self, shape, dim, keepdim):
    """Undo the shape of a reduction."""
    if not keepdim and shape:
        dims = range(len(shape)) if dim in (None, ()) else (dim,) if isinstance(dim, int) else dim
        self = np.expand_dims(self, tuple(d % len(shape) for d in dims))
    return np.broadcast_to(self, shape)


def extreme(reduce, find, pair):
    """max and min: of everything, along a dim with the indices, or of two arrays."""

    def reference(np, self, dim=None, keepdim=False):
        if dim is None:
            return getattr(np, reduce)(self)
        if not isinstance(dim, int):
            return getattr(np, pair)(self, dim)
        options = {"axis": dim, "keepdims": keepdim} if self.ndim else {}
        return getattr(np, reduce)(self, **options), getattr(np, find)(self, **options)

    return reference


def softmax_backward(np, self, output, dim):
    """The product with the Jacobian of softmax."""
    return (
        output * (self - (self * output).sum(dim, keepdims=True))
        if self.ndim
        else (output * (self - self * output))
    )


def log_softmax_backward(np, self, output, dim):
    """The product with the Jacobian of log_softmax."""
    total = self.sum(dim, keepdims=True) if self.ndim else self
    return self - np.exp(output) * total


def nll_loss(
    np,
    self,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
):
    """Go through the targets one by one."""
    dim = 1 if self.ndim > 1 else 0
    scores = np.moveaxis(self, dim, -1)
    weight = np.ones(scores.shape[-1]) if weight is None else weight
    loss, used = np.zeros(target.shape, self.dtype), np.zeros(target.shape, self.dtype)
    for position in np.ndindex(*target.shape):
        wanted = target[position]
        if wanted != ignore_index:
            used[position] = weight[wanted]
            loss[position] = -scores[position][wanted] * weight[wanted]
    if reduction == "mean":
        with np.errstate(invalid="ignore"):
            return loss.sum() / used.sum()
    return loss.sum() if reduction == "sum" else loss


def nll_loss_primitive(np, self, target, weight, spec):
    """Take the output spec apart."""
    _, _, (ignore_index, reduction) = spec
    return nll_loss(
        np,
        self,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=("none", "mean", "sum")[reduction],
    )


def cross_entropy(
    np, self, target, weight=None, reduction="mean", label_smoothing=0.0, ignore_index=-100
):
    """Turn targets into probabilities, as torch's page of CrossEntropyLoss defines it."""
    dim = 1 if self.ndim > 1 else 0
    logs = np.moveaxis(self, dim, -1)
    logs = logs - np.log(np.exp(logs).sum(-1, keepdims=True))
    classes = logs.shape[-1]
    weight = np.ones(classes) if weight is None else weight
    if target.dtype.kind == "f":
        wanted, kept = np.moveaxis(target, dim, -1), np.ones(logs.shape[:-1])
        total = kept.size
    else:
        kept = target != ignore_index
        safe = np.where(kept, target, 0)
        wanted = np.eye(classes)[safe]
        total = (weight[safe] * kept).sum()
    wanted = wanted * (1 - label_smoothing) + label_smoothing / classes
    loss = -(wanted * logs * weight).sum(-1) * kept
    return loss.sum() / total if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def sign(np, self):
    """NumPy has no sign of bools, and keeps NaN where torch gives 0."""
    if self.dtype == bool:
        return self
    return np.where(np.isnan(self), 0, np.sign(self)).astype(self.dtype)


def logsumexp(np, self, dim, keepdim=False):
    """Shifted by the largest element, where that is finite."""
    dim, self = dim if self.ndim else None, self * 1.0
    peak = np.max(self.real, axis=dim, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0)
    total = np.log(np.exp(self - peak).sum(axis=dim, keepdims=True)) + peak
    return total if keepdim or not self.ndim else np.squeeze(total, dim)
