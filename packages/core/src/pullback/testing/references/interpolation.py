"""Interpolation of images, by a matrix for each dim."""

from pullback.testing.references.pooling import adaptive_avg_pool
from pullback.testing.references.windows import tuple_of, wide


def interpolate_primitive(np, self, taps_by_dim, node=None):
    """Weighted sums of elements along each dim."""
    out = wide(np, self)
    for dim, taps in enumerate(taps_by_dim, self.ndim - len(taps_by_dim)):
        if taps is not None:
            shape = (-1, *[1] * (self.ndim - dim - 1))
            out = sum(
                np.take(out, indices, dim) * (1 if weights is None else np.reshape(weights, shape))
                for indices, weights in taps
            )
    return out


def interpolate_primitive_backward(np, self, sizes, taps_by_dim, node=None):
    """Transpose the matrix of each dim."""
    out = wide(np, self)
    for dim, taps in enumerate(taps_by_dim, self.ndim - len(taps_by_dim)):
        if taps is not None:
            matrix = interpolate_primitive(np, np.eye(sizes[dim]), (taps,))
            out = np.moveaxis(np.moveaxis(out, dim, -1) @ matrix.T, -1, dim)
    return out


def keys_kernel(x, a=-0.75):
    """Keys' cubic kernel, 1981, eq. 4."""
    x = abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0


def _neighbours(np, size, count, step, mode, align):
    """Return the matrix (count, size) of one dim, from the formulas of torch's page."""
    matrix = np.zeros((count, size))
    for row in range(count):
        position = row * step if align else (row + 0.5) * step - 0.5
        if mode.startswith("nearest"):
            shift = 0.5 if mode == "nearest-exact" else 0.0
            matrix[row, min(int(np.floor((row + shift) * step + 1e-9)), size - 1)] = 1
        elif mode == "bicubic":
            for tap in range(-1, 3):
                w = keys_kernel(position - (np.floor(position) + tap))
                matrix[row, min(max(int(np.floor(position)) + tap, 0), size - 1)] += w
        else:
            position = min(max(position, 0), size - 1)
            low = min(int(position), size - 1)
            matrix[row, low] += 1 - (position - low)
            matrix[row, min(low + 1, size - 1)] += position - low
    return matrix


def _filter(np, size, count, step, mode):
    """Return the matrix of one dim with a filter as wide as a step."""
    grow, a = max(step, 1.0), -0.5
    x = np.abs((np.arange(size)[None] + 0.5 - (np.arange(count)[:, None] + 0.5) * step) / grow)
    if mode == "bilinear":
        matrix = np.maximum(1 - x, 0)
    elif mode == "lanczos":
        matrix = np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)
    else:
        matrix = np.where(
            x < 1,
            (a + 2) * x**3 - (a + 3) * x**2 + 1,
            np.where(x < 2, a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a, 0),
        )
    return matrix / matrix.sum(1, keepdims=True)


def interpolate(
    np,
    self,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
    antialias=False,
):
    """Multiply by a matrix per dim."""
    sizes = self.shape[2:]
    rank = len(sizes)
    scales = tuple_of(scale_factor, rank) if scale_factor is not None else (None,) * rank
    counts = (
        tuple_of(size, rank)
        if size is not None
        else tuple(int(n * s) for n, s in zip(sizes, scales))
    )
    if mode == "area":
        return adaptive_avg_pool(rank)(np, self, counts)
    out = wide(np, self)
    for dim, (n, m, scale) in enumerate(zip(sizes, counts, scales), 2):
        step = n / m if scale is None or recompute_scale_factor else 1 / scale
        if align_corners:
            step = (n - 1) / (m - 1) if m > 1 else 0
        matrix = (
            _filter(np, n, m, step, mode)
            if antialias
            else _neighbours(np, n, m, step, mode, align_corners)
        )
        out = np.moveaxis(np.moveaxis(out, dim, -1) @ matrix.T, -1, dim)
    return out.astype(self.dtype) if self.dtype.kind == "u" else out
