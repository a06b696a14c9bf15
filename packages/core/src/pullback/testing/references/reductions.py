"""References of reductions, statistics, scans, sorting and histograms.

Each takes the NumPy module first, then the op's arguments with arrays for tensors.
"""


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


def logsumexp(np, self, dim, keepdim=False):
    """Shifted by the largest element, where that is finite."""
    dim, self = dim if self.ndim else None, self * 1.0
    peak = np.max(self.real, axis=dim, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0)
    total = np.log(np.exp(self - peak).sum(axis=dim, keepdims=True)) + peak
    return total if keepdim or not self.ndim else np.squeeze(total, dim)


def running(name):
    """cumsum and cumprod: NumPy has no dims of 0-d arrays."""

    def reference(np, self, dim, dtype=None):
        if self.dtype.kind in "biu":
            self = self.astype(np.int64)
        return getattr(np, name)(self, axis=dim) if self.ndim else self

    return reference


def running_extreme(largest):
    """cummax and cummin: step by step, NaN first, the last of equals."""

    def reference(np, self, dim):
        if not self.ndim:
            return self, np.zeros((), np.int64)
        rows = np.moveaxis(self, dim, -1)
        values, indices = rows.copy(), np.zeros(rows.shape, np.int64)
        better = (lambda a, b: a >= b) if largest else (lambda a, b: a <= b)
        for position in np.ndindex(rows.shape[:-1]):
            best = 0
            for k in range(rows.shape[-1]):
                one, other = rows[position][k], rows[position][best]
                if one != one or (other == other and better(one, other)):
                    best = k
                values[position][k], indices[position][k] = rows[position][best], best
        return np.moveaxis(values, -1, dim), np.moveaxis(indices, -1, dim)

    return reference


def logcumsumexp(np, self, dim):
    """Shifted by the largest element so far."""
    if not self.ndim or not self.size:
        return self
    rows = np.moveaxis(self, dim, -1)
    out = np.empty_like(rows)
    with np.errstate(all="ignore"):
        for k in range(rows.shape[-1]):
            part = rows[..., : k + 1]
            peak = part.real.max(axis=-1, keepdims=True)
            peak = np.where(np.isfinite(peak), peak, 0)
            out[..., k] = np.log(np.exp(part - peak).sum(axis=-1)) + peak[..., 0]
    return np.moveaxis(out, -1, dim)


def diff(np, self, n=1, dim=-1, prepend=None, append=None):
    """NumPy has another default for missing arguments."""
    given = {"prepend": prepend, "append": append}
    given = {name: array for name, array in given.items() if array is not None and n}
    return np.diff(
        self, min(n, self.shape[dim] + sum(a.shape[dim] for a in given.values())), dim, **given
    )


def trapezoid(np, y, x=None, dx=1, dim=-1):
    """NumPy computes integers as floats too."""
    y = y * 1.0
    return np.trapezoid(y, _points(np, y, x, dim), dx, dim)


def _points(np, y, x, dim):
    if x is None or x.ndim == 1:
        return x
    return np.broadcast_to(x, y.shape)


def cumulative_trapezoid(np, y, x=None, dx=1, dim=-1):
    """Add up the trapezoids one by one."""
    y = np.moveaxis(y * 1.0, dim, -1)
    if x is None:
        widths = dx
    elif x.ndim == 1:
        widths = np.diff(x)
    else:
        x = np.reshape(x, (1,) * (y.ndim - x.ndim) + x.shape)
        widths = np.diff(np.moveaxis(x, dim, -1))
    areas = (y[..., 1:] + y[..., :-1]) * widths / 2
    return np.moveaxis(np.cumsum(areas, axis=-1), -1, dim)


def aminmax(np, self, dim=None, keepdim=False):
    """The smallest and the largest element."""
    options = {"axis": dim, "keepdims": keepdim} if self.ndim else {}
    return np.amin(self, **options), np.amax(self, **options)


# -- statistics ------------------------------------------------------------------------------------


def _spread(np, name, self, dim, correction, keepdim):
    axes = None if dim is None or dim == () or not self.ndim else dim
    wide = self.astype(np.result_type(self, np.float64))
    with np.errstate(all="ignore"):
        mean = wide.mean(axis=axes, keepdims=True)
        total = (np.abs(wide - mean) ** 2).sum(axis=axes, keepdims=keepdim)
        count = wide.size if axes is None else np.prod([wide.shape[a] for a in np.atleast_1d(axes)])
        out = total / max(count - correction, 0)
        out = np.sqrt(out) if "std" in name else out
        return (out, wide.mean(axis=axes, keepdims=keepdim)) if "mean" in name else out


def spread_of(name):
    """var, std and the pairs with the mean, of checked arguments."""
    return lambda np, self, dim, correction, keepdim: _spread(
        np, name, self, dim, correction, keepdim
    )


def spread(name):
    """var, std and the pairs with the mean, in every spelling."""

    def reference(np, self, dim=None, unbiased=True, keepdim=False, correction=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        correction = int(unbiased) if correction is None else correction
        return _spread(np, name, self, dim, correction, keepdim)

    return reference


def cov(np, self, correction=1, fweights=None, aweights=None):
    """NumPy's, in which ddof is the correction."""
    return np.cov(self, ddof=correction, fweights=fweights, aweights=aweights)


def corrcoef(np, self):
    """NumPy's; of one variable a number."""
    return np.corrcoef(self.astype(np.result_type(self, np.float64)))


def nansum(np, self, dim=None, keepdim=False, dtype=None):
    """Sum of what is not NaN."""
    options = {"axis": dim, "keepdims": keepdim} if self.ndim else {}
    return np.nansum(self, **options)


def nanmean(np, self, dim=None, keepdim=False, dtype=None):
    """Mean of what is not NaN."""
    options = {"axis": dim, "keepdims": keepdim} if self.ndim else {}
    with np.errstate(all="ignore"):
        return np.nansum(self, **options) / np.sum(~np.isnan(self), **options)


def median(ignores_nan):
    """The lower one of the middle elements, and where it is."""

    def reference(np, self, dim=None, keepdim=False):
        if dim is None:
            if not self.size:
                return np.array(np.nan)
            return _middle(np, self.reshape(1, -1), ignores_nan)[0].reshape(())
        return _chosen(np, self, dim, keepdim, lambda rows: _middle(np, rows, ignores_nan))

    return reference


def _chosen(np, self, dim, keepdim, choose):
    """Apply a choice among rows along a dim."""
    if not self.ndim:
        return self, np.zeros((), np.int64)
    rows = np.moveaxis(self, dim, -1)
    values, indices = choose(rows.reshape(-1, rows.shape[-1]))
    found = (part.reshape(rows.shape[:-1]) for part in (values, indices))
    return tuple(np.expand_dims(part, dim) if keepdim else part for part in found)


def _middle(np, rows, ignores_nan):
    values, indices = np.empty(len(rows), rows.dtype), np.empty(len(rows), np.int64)
    for k, row in enumerate(rows):
        order = np.argsort(row, kind="stable")
        holes = int((row != row).sum())
        count = len(row)
        if ignores_nan:
            position = max((count - holes - 1) // 2, 0)
        else:
            position = count - holes if holes else (count - 1) // 2
        values[k], indices[k] = row[order[position]], order[position]
    return values, indices


def mode(np, self, dim=-1, keepdim=False):
    """Count the elements of every row."""

    def choose(rows):
        values, indices = np.empty(len(rows), rows.dtype), np.empty(len(rows), np.int64)
        for k, row in enumerate(rows):
            found, counts = np.unique(row, return_counts=True)
            values[k] = found[np.argmax(counts)]
            indices[k] = np.nonzero(row == values[k])[0][-1]
        return values, indices

    return _chosen(np, self, dim, keepdim, choose)


def quantile(name):
    """NumPy's; a vector q adds a first dim."""

    def reference(np, self, q, dim=None, keepdim=False, interpolation="linear"):
        out = getattr(np, name)(
            self, q, axis=dim if self.ndim else None, method=interpolation, keepdims=keepdim
        )
        return np.asarray(out, self.dtype)

    return reference


# -- norms -----------------------------------------------------------------------------------------


def vector_norm(np, self, order, dim=None, keepdim=False):
    """By the definition."""
    axes = dim if self.ndim and dim != () else None
    size = np.abs(self.astype(np.result_type(self, np.float64)))
    options = {"axis": axes, "keepdims": keepdim} if self.ndim else {}
    with np.errstate(all="ignore"):
        if order == np.inf:
            return size.max(**options)
        if order == -np.inf:
            return size.min(**options)
        if order == 0:
            return (size != 0).sum(**options) * 1.0
        return (size**order).sum(**options) ** (1 / order)


def norm(np, self, p="fro", dim=None, keepdim=False, dtype=None):
    """The Frobenius norm is the vector norm of order 2."""
    if p == "nuc":
        return np.linalg.norm(self, p, dim, keepdim)
    return vector_norm(np, self, 2 if p in ("fro", None) else p, dim, keepdim)


def dist(np, self, other, p=2):
    """The norm of the difference."""
    return vector_norm(np, self - other, p)


def renorm(np, self, p, dim, maxnorm):
    """Scale slice by slice."""
    others = tuple(d for d in range(self.ndim) if d != dim % self.ndim)
    found = vector_norm(np, self, p, others, True)
    return np.where(found > maxnorm, self * (maxnorm / (found + 1e-7)), self)


def sort(np, self, dim=-1, descending=False, stable=None):
    """Stable, NaN is the largest."""
    if not self.ndim:
        return self, np.zeros((), np.int64)
    rows = np.moveaxis(self, dim, -1)
    if descending:
        count = rows.shape[-1]
        order = count - 1 - np.argsort(rows[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(rows, axis=-1, kind="stable")
    values = np.take_along_axis(rows, order, -1)
    return np.moveaxis(values, -1, dim), np.moveaxis(order, -1, dim)


def topk(np, self, k, dim=-1, largest=True, sorted=True):
    """The first of the order."""
    found = sort(np, self, dim, largest)
    return tuple(np.take(part, range(k), dim) if self.ndim else part for part in found)


def kthvalue(np, self, k, dim=-1, keepdim=False):
    """One position of the order."""
    if not self.ndim:
        return sort(np, self)
    return tuple(np.take(part, [k - 1] if keepdim else k - 1, dim) for part in sort(np, self, dim))


def _parts(found, return_inverse, return_counts):
    values, inverse, counts = found
    result = [values] + [inverse] * return_inverse + [counts] * return_counts
    return tuple(result) if len(result) > 1 else values


def unique(np, self, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """NumPy's; every NaN differs from the others."""
    values, first, inverse, counts = np.unique(
        self, return_index=True, return_inverse=True, return_counts=True, axis=dim, equal_nan=False
    )
    values = np.take(self.reshape(-1) if dim is None else self, first, dim or 0)
    return _parts(
        (values, inverse.reshape(self.shape if dim is None else -1), counts),
        return_inverse,
        return_counts,
    )


def unique_consecutive(np, self, return_inverse=False, return_counts=False, dim=None):
    """Compare every slice with the one before."""
    rows = self.reshape(-1, 1) if dim is None else np.moveaxis(self, dim, 0)
    fresh = [k == 0 or bool((rows[k] != rows[k - 1]).any()) for k in range(len(rows))]
    starts = np.nonzero(fresh)[0]
    values = rows[starts]
    values = values.reshape(-1) if dim is None else np.moveaxis(values, 0, dim)
    inverse = np.cumsum(fresh, dtype=np.int64) - 1
    counts = np.diff(np.append(starts, len(rows)))
    return _parts(
        (values, inverse.reshape(self.shape if dim is None else -1), counts),
        return_inverse,
        return_counts,
    )


def isin(np, elements, test_elements, assume_unique=False, invert=False):
    """NumPy's, without its promise about uniqueness."""
    return np.isin(elements, test_elements, invert=invert)


def searchsorted(np, sorted_sequence, self, out_int32=False, right=False, side=None, sorter=None):
    """NumPy's, row by row."""
    side = side or ("right" if right else "left")
    if sorted_sequence.ndim == 1:
        return np.searchsorted(sorted_sequence, self, side=side, sorter=sorter)
    out = np.empty(self.shape, np.int64)
    for position in np.ndindex(self.shape[:-1]):
        out[position] = np.searchsorted(sorted_sequence[position], self[position], side=side)
    return out


def bincount(np, self, weights=None, minlength=0):
    """NumPy wants signed numbers."""
    return np.bincount(self.astype(np.int64), weights, minlength)


def histc(np, self, bins=100, min=0, max=0):
    """NumPy's histogram over the range that torch takes."""
    if not self.size:
        return np.zeros(bins)
    if min == max:
        min, max = self.min(), self.max()
    if min == max:
        min, max = min - 1, max + 1
    kept = self[~np.isnan(self)]
    return np.histogram(kept, bins, (min, max))[0]


def histogram(np, self, bins, range=None, weight=None, density=False):
    """NumPy's."""
    weight = None if weight is None else weight.reshape(-1)
    return np.histogram(self.reshape(-1), bins, range, density, weight)


def segment_reduce(
    np, data, reduce, lengths=None, offsets=None, axis=0, unsafe=False, initial=None
):
    """Loop over rows and segments."""
    if offsets is None:
        zero = np.zeros((*lengths.shape[:-1], 1), lengths.dtype)
        offsets = np.concatenate([zero, np.cumsum(lengths, -1)], -1)
    count = offsets.shape[-1] - 1
    found = np.empty((*data.shape[:axis], count, *data.shape[axis + 1 :]), data.dtype)
    empty = {"sum": 0, "prod": 1, "mean": np.nan, "max": -np.inf, "min": np.inf}[reduce]
    for row in np.ndindex(data.shape[:axis]):
        for number in range(count):
            part = data[row][offsets[row][number] : offsets[row][number + 1]]
            if not len(part):
                found[(*row, number)] = empty if initial is None else initial
                continue
            if initial is not None:
                part = np.concatenate([part, np.full_like(part[:1], initial)])
            if reduce == "mean":
                found[(*row, number)] = part.sum(0) / (len(part) - (initial is not None))
            else:
                found[(*row, number)] = getattr(np, reduce)(part, 0)
    return found


def histogramdd(np, self, bins, range=None, weight=None, density=False):
    """Return histogram and edges by NumPy's function."""
    dims = self.shape[-1]
    limits = None if range is None else np.reshape(range, (dims, 2))
    weights = None if weight is None else weight.reshape(-1)
    points = self.reshape(-1, dims)
    if not isinstance(bins, int):
        bins = [count if isinstance(count, int) else np.asarray(count) for count in bins]
    hist, edges = np.histogramdd(points, bins, limits, density, weights)
    return hist.astype(self.dtype), *(edge.astype(self.dtype) for edge in edges)


def gradient(np, self, *, spacing=None, dim=None, edge_order=1):
    """Return NumPy's gradient, of which there is always a tuple here."""
    axes = tuple(np.arange(self.ndim)) if dim is None else np.atleast_1d(dim)
    given = (
        (1.0,) if spacing is None else spacing if isinstance(spacing, (list, tuple)) else (spacing,)
    )
    if len(given) == 1:
        given = given * len(axes)
    found = np.gradient(self, *given, axis=tuple(axes), edge_order=edge_order)
    return list(found) if len(axes) > 1 else [found] if isinstance(found, np.ndarray) else found


def norm_except_dim(np, v, pow=2, dim=0):
    """Return (sum |v|^pow)^(1/pow) over all dims but one."""
    axes = None if dim == -1 else tuple(d for d in range(v.ndim) if d != dim)
    return np.sum(np.abs(v) ** pow, axis=axes, keepdims=dim != -1) ** (1 / pow)
