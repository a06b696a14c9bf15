"""References of reductions, running results and statistics, where NumPy lacks the function.

Each takes the NumPy module first, then the op's arguments with arrays for tensors.
"""


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
    """NumPy marks what is not given in its own way."""
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
    """The two extremes at once."""
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
