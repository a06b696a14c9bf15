"""References of sorting, sets and counts, where NumPy lacks the function.

Each takes the NumPy module first, then the op's arguments with arrays for tensors.
"""


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
