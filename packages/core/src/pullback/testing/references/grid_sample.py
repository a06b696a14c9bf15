"""Images sampled at points."""

from pullback.testing.references.interpolation import keys_kernel
from pullback.testing.references.windows import wide


def _fold_in(np, x, size, padding, align):
    """Move one coordinate into the dim, as torch's page of grid_sample says."""
    if padding == "reflection":
        low, high = (0, size - 1) if align else (-0.5, size - 0.5)
        while high > low and not low <= x <= high:
            x = 2 * low - x if x < low else 2 * high - x
        x = low if high == low else x
    return x if padding == "zeros" else min(max(x, 0), size - 1)


def _point(np, x, size, mode, padding, align):
    """Return (position, weight) of the elements that one coordinate takes."""
    x = (x + 1) / 2 * (size - 1) if align else ((x + 1) * size - 1) / 2
    if mode == "bicubic":
        positions = [np.floor(x) + tap for tap in range(-1, 3)]
        return [
            (_fold_in(np, position, size, padding, align), keys_kernel(x - position))
            for position in positions
        ]
    x = _fold_in(np, x, size, padding, align)
    if mode == "nearest":
        return [(np.round(x), 1.0)]
    return [(np.floor(x), 1 - (x - np.floor(x))), (np.floor(x) + 1, x - np.floor(x))]


def grid_sample(np, self, grid, mode="bilinear", padding_mode="zeros", align_corners=None):
    """Point by point."""
    self, grid = wide(np, self), wide(np, grid)
    sizes = self.shape[2:]
    out = np.zeros((*self.shape[:2], *grid.shape[1:-1]), self.dtype)
    for spot in np.ndindex(*grid.shape[:-1]):
        taps = [
            _point(np, x, size, mode, padding_mode, align_corners)
            for x, size in zip(grid[spot][::-1], sizes)
        ]
        for chosen in np.ndindex(*map(len, taps)):
            positions, weights = zip(*(of[number] for of, number in zip(taps, chosen)))
            if all(0 <= position < size for position, size in zip(positions, sizes)):
                key = (spot[0], slice(None), *(int(position) for position in positions))
                out[(spot[0], slice(None), *spot[1:])] += self[key] * np.prod(weights)
    return out


def grid_sampler(np, self, grid, mode, padding, align_corners):
    """grid_sample, by numbers."""
    return grid_sample(
        np,
        self,
        grid,
        ("bilinear", "nearest", "bicubic")[mode],
        ("zeros", "border", "reflection")[padding],
        align_corners,
    )


def affine_grid(np, theta, size, align_corners=None):
    """Multiply every point of the image by its matrix."""
    theta = wide(np, theta)
    out = np.zeros((*size[:1], *size[2:], len(size) - 2), theta.dtype)
    for spot in np.ndindex(*size[2:]):
        if align_corners:
            point = [2 * i / (n - 1) - 1 if n > 1 else 0 for i, n in zip(spot, size[2:])]
        else:
            point = [(2 * i + 1) / n - 1 for i, n in zip(spot, size[2:])]
        out[(slice(None), *spot)] = theta @ np.array([*point[::-1], 1.0])
    return out
