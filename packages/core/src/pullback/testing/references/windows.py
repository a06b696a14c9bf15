"""References of unfold and fold: loops over positions, as the definitions read.

Each takes the NumPy module first, then the op's arguments with arrays for tensors.
"""


def tuple_of(value, count):
    """Return an int repeated, or a tuple of one or `count` ints."""
    value = value if isinstance(value, (tuple, list)) else (value,)
    return tuple(value) * count if len(value) == 1 else tuple(value)


def wide(np, array):
    """Return 16-bit floats as 64-bit ones."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def pad_ends(np, self, padding, value=0):
    """Return the array with a constant around its last dims."""
    lead = self.ndim - len(padding)
    return np.pad(self, [(0, 0)] * lead + [(p, p) for p in padding], constant_values=value)


def counts_of(sizes, kernel, stride, dilation):
    """Return how many windows fit into each dim."""
    return [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(sizes, kernel, stride, dilation)]


def window_positions(np, out, kernel, stride, dilation):
    """Yield (position of a window, position in the window, position of the element)."""
    for o in np.ndindex(*out):
        for k in np.ndindex(*kernel):
            yield o, k, tuple(a * s + b * d for a, s, b, d in zip(o, stride, k, dilation))


def unfold_dim(np, self, dimension, size, step):
    """Windows of a dim, whose elements come last."""
    if not self.ndim:
        return self.reshape(1)[:size]
    moved = np.moveaxis(self, dimension, -1)
    starts = range(0, moved.shape[-1] - size + 1, step)
    made = np.stack([moved[..., s : s + size] for s in starts], -2)
    return np.moveaxis(made, -2, dimension if dimension >= 0 else dimension - 1)


def unfold_dim_backward(np, self, sizes, dimension, size, step):
    """Add each window where it came from."""
    if not sizes:
        return self.sum()
    out = np.zeros(sizes, self.dtype)
    dim = dimension % len(sizes)
    moved, windows = np.moveaxis(out, dim, -1), np.moveaxis(self, dim, -2)
    for number in range(windows.shape[-2]):
        moved[..., number * step : number * step + size] += windows[..., number, :]
    return out


def im2col(np, self, kernel_size, dilation, padding, stride):
    """One column per window."""
    padded = pad_ends(np, self, padding)
    counts = counts_of(padded.shape[2:], kernel_size, stride, dilation)
    out = np.zeros((*self.shape[:2], *kernel_size, *counts), self.dtype)
    for o, k, at in window_positions(np, counts, kernel_size, stride, dilation):
        out[(slice(None), slice(None), *k, *o)] = padded[(slice(None), slice(None), *at)]
    return out.reshape(
        self.shape[0], self.shape[1] * int(np.prod(kernel_size)), int(np.prod(counts))
    )


def col2im(np, self, output_size, kernel_size, dilation, padding, stride):
    """Add every column to the window it stands for."""
    channels = self.shape[1] // int(np.prod(kernel_size))
    sizes = [n + 2 * p for n, p in zip(output_size, padding)]
    counts = counts_of(sizes, kernel_size, stride, dilation)
    padded = np.zeros((self.shape[0], channels, *sizes), self.dtype)
    windows = self.reshape(self.shape[0], channels, *kernel_size, *counts)
    for o, k, at in window_positions(np, counts, kernel_size, stride, dilation):
        padded[(slice(None), slice(None), *at)] += windows[(slice(None), slice(None), *k, *o)]
    return padded[(..., *(slice(p, p + n) for p, n in zip(padding, output_size)))]


def unfold(np, self, kernel_size, dilation=1, padding=0, stride=1):
    """im2col, of one image or many."""
    pairs = [tuple_of(v, 2) for v in (kernel_size, dilation, padding, stride)]
    return im2col(np, self, *pairs) if self.ndim == 4 else im2col(np, self[None], *pairs)[0]


def fold(np, self, output_size, kernel_size, dilation=1, padding=0, stride=1):
    """col2im, of one image or many."""
    pairs = [tuple_of(v, 2) for v in (output_size, kernel_size, dilation, padding, stride)]
    return col2im(np, self, *pairs) if self.ndim == 3 else col2im(np, self[None], *pairs)[0]
