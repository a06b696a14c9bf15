"""References of counts and of positions among sorted bounds.

Each takes the NumPy module first, then the op's arguments with arrays for tensors.
"""


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
