"""References of convolutions, pooling and padding: loops over places, as the definitions read.

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


def places(np, out, kernel, stride, dilation):
    """Yield (place of a window, place in the window, place of the element)."""
    for o in np.ndindex(*out):
        for k in np.ndindex(*kernel):
            yield o, k, tuple(a * s + b * d for a, s, b, d in zip(o, stride, k, dilation))


def unfold_dim(np, self, dimension, size, step):
    """Windows of a dim, whose elements come last."""
    if not self.ndim:
        return self.reshape(1)[:size]
    moved = np.moveaxis(self, dimension, -1)
    starts = range(0, moved.shape[-1] - size + 1, step)
    made = np.stack([moved[..., s:s + size] for s in starts], -2)
    return np.moveaxis(made, -2, dimension if dimension >= 0 else dimension - 1)


def unfold_dim_backward(np, self, sizes, dimension, size, step):
    """Add each window where it came from."""
    if not sizes:
        return self.sum()
    out = np.zeros(sizes, self.dtype)
    dim = dimension % len(sizes)
    moved, windows = np.moveaxis(out, dim, -1), np.moveaxis(self, dim, -2)
    for number in range(windows.shape[-2]):
        moved[..., number * step:number * step + size] += windows[..., number, :]
    return out


def im2col(np, self, kernel_size, dilation, padding, stride):
    """One column per window."""
    padded = pad_ends(np, self, padding)
    counts = counts_of(padded.shape[2:], kernel_size, stride, dilation)
    out = np.zeros((*self.shape[:2], *kernel_size, *counts), self.dtype)
    for o, k, at in places(np, counts, kernel_size, stride, dilation):
        out[(slice(None), slice(None), *k, *o)] = padded[(slice(None), slice(None), *at)]
    return out.reshape(self.shape[0], self.shape[1] * int(np.prod(kernel_size)),
                       int(np.prod(counts)))


def col2im(np, self, output_size, kernel_size, dilation, padding, stride):
    """Add every column to the window it stands for."""
    channels = self.shape[1] // int(np.prod(kernel_size))
    sizes = [n + 2 * p for n, p in zip(output_size, padding)]
    counts = counts_of(sizes, kernel_size, stride, dilation)
    padded = np.zeros((self.shape[0], channels, *sizes), self.dtype)
    windows = self.reshape(self.shape[0], channels, *kernel_size, *counts)
    for o, k, at in places(np, counts, kernel_size, stride, dilation):
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


# -- convolutions ----------------------------------------------------------------------------------

def convolution_map(np, self, weight, bias, counts, stride, padding, dilation, groups):
    """Sum over channels and places, element by element of the result's dims."""
    self, weight = wide(np, self), wide(np, weight)
    padded = pad_ends(np, self, padding)
    n, o, c = self.shape[0], weight.shape[0], weight.shape[1]
    out = np.zeros((n, o, *counts), np.result_type(self, weight))
    for spot, k, at in places(np, counts, weight.shape[2:], stride, dilation):
        for g in range(groups):
            rows = slice(g * (o // groups), (g + 1) * (o // groups))
            part = padded[(slice(None), slice(g * c, (g + 1) * c), *at)]
            out[(slice(None), rows, *spot)] += part @ weight[(rows, slice(None), *k)].T
    return out if bias is None else out + bias.reshape(-1, *[1] * len(counts))


def convolution_adjoint(np, self, weight, bias, sizes, stride, padding, dilation, groups):
    """Add every element, times the weight, to the places it would be made of."""
    self, weight = wide(np, self), wide(np, weight)
    n, o, c = self.shape[0], weight.shape[0], weight.shape[1]
    padded = np.zeros((n, c * groups, *(s + 2 * p for s, p in zip(sizes, padding))),
                      np.result_type(self, weight))
    for spot, k, at in places(np, self.shape[2:], weight.shape[2:], stride, dilation):
        for g in range(groups):
            rows = slice(g * (o // groups), (g + 1) * (o // groups))
            padded[(slice(None), slice(g * c, (g + 1) * c), *at)] += (
                self[(slice(None), rows, *spot)] @ weight[(rows, slice(None), *k)])
    out = padded[(..., *(slice(p, p + s) for p, s in zip(padding, sizes)))]
    return out if bias is None else out + bias.reshape(-1, *[1] * len(sizes))


def convolution_weight(np, self, other, kernel, stride, padding, dilation, groups):
    """Sum over the batch and the places of the second array."""
    self, other = wide(np, self), wide(np, other)
    padded = pad_ends(np, self, padding)
    o, c = other.shape[1], self.shape[1] // groups
    out = np.zeros((o, c, *kernel), np.result_type(self, other))
    for spot, k, at in places(np, other.shape[2:], kernel, stride, dilation):
        for g in range(groups):
            rows = slice(g * (o // groups), (g + 1) * (o // groups))
            out[(rows, slice(None), *k)] += (
                other[(slice(None), rows, *spot)].T
                @ padded[(slice(None), slice(g * c, (g + 1) * c), *at)])
    return out


def convolution(np, self, weight, bias, stride, padding, dilation, transposed, output_padding,
                groups):
    """Either of the two, by its sizes."""
    if transposed:
        return conv_transpose(np, self, weight, bias, stride, padding, output_padding, groups,
                              dilation)
    return conv(np, self, weight, bias, stride, padding, dilation, groups)


def conv(np, self, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """A convolution of any rank; even kernels with 'same' are padded more at the end."""
    rank = weight.ndim - 2
    if self.ndim == rank + 1:
        return conv(np, self[None], weight, bias, stride, padding, dilation, groups)[0]
    stride, dilation = tuple_of(stride, rank), tuple_of(dilation, rank)
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:])]
        self = np.pad(self, [(0, 0), (0, 0), *((t // 2, t - t // 2) for t in totals)])
    padding = (0,) * rank if isinstance(padding, str) else tuple_of(padding, rank)
    sizes = [n + 2 * p for n, p in zip(self.shape[2:], padding)]
    counts = counts_of(sizes, weight.shape[2:], stride, dilation)
    return convolution_map(np, self, weight, bias, counts, stride, padding, dilation, groups)


def conv_transpose(np, self, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1,
                   dilation=1):
    """The adjoint of conv, with sizes of its own."""
    rank = weight.ndim - 2
    if self.ndim == rank + 1:
        return conv_transpose(np, self[None], weight, bias, stride, padding, output_padding, groups,
                              dilation)[0]
    stride, padding, extra, dilation = (
        tuple_of(v, rank) for v in (stride, padding, output_padding, dilation))
    sizes = [(n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, d, e in zip(
        self.shape[2:], weight.shape[2:], stride, padding, dilation, extra)]
    return convolution_adjoint(np, self, weight, bias, sizes, stride, padding, dilation, groups)


# -- padding ---------------------------------------------------------------------------------------

def _widths(ndim, pad):
    """Return NumPy's list of (before, after), first dim first."""
    ends = list(zip(pad[::2], pad[1::2]))
    return [(0, 0)] * (ndim - len(ends)) + ends[::-1]


def _cut(self, widths):
    """Remove what negative padding removes; return the rest and the padding left to do."""
    key = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(self.shape, widths))
    return self[key], [(max(a, 0), max(b, 0)) for a, b in widths]


def constant_pad_nd(np, self, pad, value=0):
    """NumPy's pad, after cutting."""
    cut, widths = _cut(self, _widths(self.ndim, pad))
    return np.pad(cut, widths, constant_values=value) if self.ndim else self


def pad_mirrored(np, self, pad, mode):
    """NumPy's pad; mirrors see what is cut off, wrapping does not."""
    widths = _widths(self.ndim, pad)
    if mode == "circular":
        cut, widths = _cut(self, widths)
        return np.pad(cut, widths, mode="wrap")
    grown = np.pad(self, [(max(a, 0), max(b, 0)) for a, b in widths],
                   mode={"reflect": "reflect", "replicate": "edge"}[mode])
    return _cut(grown, [(min(a, 0), min(b, 0)) for a, b in widths])[0]


def pad_mirrored_backward(np, self, sizes, pad, mode):
    """Follow the number of every element."""
    numbers = pad_mirrored(np, np.arange(int(np.prod(sizes))).reshape(sizes), pad, mode)
    out = np.zeros(int(np.prod(sizes)), self.dtype)
    np.add.at(out, numbers.reshape(-1), self.reshape(-1))
    return out.reshape(sizes)


def pad(np, self, pad, mode="constant", value=None):
    """One of the two."""
    if mode == "constant":
        return constant_pad_nd(np, self, pad, value or 0)
    return pad_mirrored(np, self, pad, mode)


# -- pooling ---------------------------------------------------------------------------------------

def _members(size, count, kernel, stride, pad, dilation):
    """Return the places of each window of a dim that lie inside it."""
    if not kernel:
        return [list(range(i * size // count, -(-(i + 1) * size // count))) for i in range(count)]
    return [[place for place in range(first, first + kernel * dilation, dilation)
             if 0 <= place < size]
            for first in range(-pad, count * stride - pad, stride)]


def _by_dim(counts, geometry):
    rank = len(counts)
    return [(counts[d], *geometry[d::rank]) for d in range(rank)]


def _windows(np, self, counts, geometry):
    """Yield each window's place, and its elements by rows, with their places in the plane."""
    rank = len(counts)
    sizes = self.shape[self.ndim - rank:]
    plane = np.arange(int(np.prod(sizes))).reshape(sizes)
    members = [_members(size, *of) for size, of in zip(sizes, _by_dim(counts, geometry))]
    for spot in np.ndindex(*counts):
        key = np.ix_(*(of[number] for of, number in zip(members, spot)))
        part = self[(..., *key)]
        places = plane[key].reshape(-1)
        yield spot, part.reshape(*part.shape[:part.ndim - rank], len(places)), places


def max_windows(np, self, plan, node):
    """Take the plan apart."""
    (shape, _), _, (geometry,) = plan
    return max_of_windows(np, self, shape[self.ndim - len(geometry) // 4:], geometry)


def max_of_windows(np, self, counts, geometry):
    """argmax of every window."""
    shape = (*self.shape[:self.ndim - len(counts)], *counts)
    values, indices = np.zeros(shape, self.dtype), np.zeros(shape, np.int64)
    for spot, part, plane in _windows(np, self, counts, geometry):
        chosen = np.argmax(part, -1)
        values[(..., *spot)] = np.take_along_axis(part, chosen[..., None], -1)[..., 0]
        indices[(..., *spot)] = plane[chosen]
    return values, indices


def scatter_planes(np, self, indices, sizes, add=True):
    """Add, or write, element by element."""
    rank = len(sizes)
    lead = self.shape[:self.ndim - rank]
    out = np.zeros((*lead, int(np.prod(sizes))), self.dtype)
    for place in np.ndindex(*self.shape):
        target = (*place[:len(lead)], indices[place])
        out[target] = self[place] + (out[target] if add else 0)
    return out.reshape(*lead, *sizes)


def unpool_planes(np, self, indices, sizes):
    """Write at the indices."""
    return scatter_planes(np, self, indices, sizes, add=False)


def gather_planes(np, self, indices, rank):
    """Take along the joined dims."""
    lead = self.shape[:self.ndim - rank]
    flat = indices.reshape(*lead, -1)
    return np.take_along_axis(self.reshape(*lead, -1), flat, -1).reshape(indices.shape)


def mean_windows(np, self, plan, node):
    """Take the plan apart."""
    (shape,), _, (geometry, *how) = plan
    return mean_of_windows(np, self, shape[self.ndim - len(geometry) // 4:], geometry, *how)


def mean_of_windows(np, self, counts, geometry, padded, divisor):
    """Sum every window, then divide."""
    self = wide(np, self)
    rank = len(counts)
    out = np.zeros((*self.shape[:self.ndim - rank], *counts), self.dtype)
    areas = []
    for size, (count, kernel, stride, pad, _) in zip(self.shape[self.ndim - rank:],
                                                     _by_dim(counts, geometry)):
        more = pad if padded else 0
        areas.append([len(of) for of in _members(size + 2 * more, count, kernel, stride,
                                                 pad - more, 1)])
    for spot, part, _ in _windows(np, self, counts, geometry):
        area = divisor or int(np.prod([of[number] for of, number in zip(areas, spot)]))
        total = part.sum(-1)
        out[(..., *spot)] = total / area if self.dtype.kind == "f" else np.trunc(total / area)
    return out


def mean_windows_backward(np, self, plan, node):
    """Transpose the matrix of the mean, column by column."""
    (shape,), _, (geometry, *how) = plan
    lead, sizes = self.shape[:-(len(geometry) // 4)], shape[-(len(geometry) // 4):]
    planes = np.eye(int(np.prod(sizes))).reshape(-1, *sizes)
    matrix = mean_of_windows(np, planes, self.shape[len(lead):], geometry, *how)
    matrix = matrix.reshape(len(planes), -1)
    flat = self.reshape(-1, matrix.shape[1]).astype(np.float64)
    return (flat @ matrix.T).reshape(*lead, *sizes)


def slides(np, self, rank, kernel, stride, padding, dilation, ceil_mode):
    """Return the windows of each dim, counted one by one: counts and geometry."""
    kernel, padding, dilation = (tuple_of(n, rank) for n in (kernel, padding, dilation))
    stride = tuple_of(stride, rank) if stride else kernel
    counts = []
    for size, k, s, p, d in zip(self.shape[self.ndim - rank:], kernel, stride, padding, dilation):
        count = 0
        while count * s - p + d * (k - 1) < size + p:
            count += 1                  # whole windows
        rest = (count - 1) * s - p + d * (k - 1) + 1 < size + p
        if ceil_mode and rest and count * s - p < size:
            count += 1                  # one that begins inside
        counts.append(count)
    return tuple(counts), (*kernel, *stride, *padding, *dilation)


def max_pool(rank, both):
    """The largest elements, with indices if asked for."""
    def reference(np, self, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False,
                  return_indices=False):
        found = max_of_windows(np, self, *slides(np, self, rank, kernel_size, stride, padding,
                                                 dilation, ceil_mode))
        return found if both or return_indices else found[0]
    return reference


def max_unpool(rank):
    """Write at the indices, in planes of the usual size or the given one."""
    def reference(np, self, indices, kernel_size, output_size=None):
        usual = [n * kernel_size for n in self.shape[self.ndim - rank:]]
        return unpool_planes(np, self, indices, output_size or usual)
    return reference


def avg_pool(rank):
    """The sum of what lies inside, over the number asked for."""
    def reference(np, self, kernel_size, stride=None, padding=0, ceil_mode=False,
                  count_include_pad=True, divisor_override=None):
        windows = slides(np, self, rank, kernel_size, stride, padding, 1, ceil_mode)
        return mean_of_windows(np, self, *windows, count_include_pad, divisor_override)
    return reference


def adapting(self, output_size, rank):
    """Return the counts and the geometry of adaptive pooling."""
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * rank
    sizes = self.shape[self.ndim - rank:]
    return tuple(n if m is None else m for n, m in zip(sizes, given)), (0,) * 4 * rank


def adaptive_avg_pool(rank):
    """The mean of each window."""
    def reference(np, self, output_size):
        return mean_of_windows(np, self, *adapting(self, output_size, rank), False, None)
    return reference


def adaptive_max_pool(rank, both):
    """The largest element of each window."""
    def reference(np, self, output_size, return_indices=False):
        found = max_of_windows(np, self, *adapting(self, output_size, rank))
        return found if both or return_indices else found[0]
    return reference


def lp_pool(rank):
    """The p-norm of each window, of elements that are not negative."""
    def reference(np, self, norm_type, kernel_size, stride=None, ceil_mode=False):
        _, geometry = slides(np, self, rank, kernel_size, stride, 0, 1, ceil_mode)
        self = self.astype(np.int64) if self.dtype == bool else wide(np, self)
        mean = avg_pool(rank)(np, self ** norm_type, kernel_size, stride, 0, ceil_mode)
        return (mean * int(np.prod(geometry[:rank]))) ** (1 / norm_type)
    return reference


# -- sizes of images -------------------------------------------------------------------------------

def resample(np, self, plan, node=None):
    """Weighted sums of elements along each dim."""
    out = wide(np, self)
    for dim, taps in enumerate(plan, self.ndim - len(plan)):
        if taps is not None:
            shape = (-1, *[1] * (self.ndim - dim - 1))
            out = sum(np.take(out, indices, dim) * (1 if weights is None else
                                                    np.reshape(weights, shape))
                      for indices, weights in taps)
    return out


def resample_backward(np, self, sizes, plan, node=None):
    """Transpose the matrix of each dim."""
    out = wide(np, self)
    for dim, taps in enumerate(plan, self.ndim - len(plan)):
        if taps is not None:
            matrix = resample(np, np.eye(sizes[dim]), (taps,))
            out = np.moveaxis(np.moveaxis(out, dim, -1) @ matrix.T, -1, dim)
    return out


def _keys(x, a=-0.75):
    """Keys' cubic kernel, 1981, eq. 4."""
    x = abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0


def _neighbours(np, size, count, step, mode, align):
    """Return the matrix (count, size) of one dim, from the formulas of torch's page."""
    matrix = np.zeros((count, size))
    for row in range(count):
        place = row * step if align else (row + 0.5) * step - 0.5
        if mode.startswith("nearest"):
            shift = 0.5 if mode == "nearest-exact" else 0.0
            matrix[row, min(int(np.floor((row + shift) * step + 1e-9)), size - 1)] = 1
        elif mode == "bicubic":
            for tap in range(-1, 3):
                w = _keys(place - (np.floor(place) + tap))
                matrix[row, min(max(int(np.floor(place)) + tap, 0), size - 1)] += w
        else:
            place = min(max(place, 0), size - 1)
            low = min(int(place), size - 1)
            matrix[row, low] += 1 - (place - low)
            matrix[row, min(low + 1, size - 1)] += place - low
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
        matrix = np.where(x < 1, (a + 2) * x**3 - (a + 3) * x**2 + 1, np.where(
            x < 2, a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a, 0))
    return matrix / matrix.sum(1, keepdims=True)


def interpolate(np, self, size=None, scale_factor=None, mode="nearest", align_corners=None,
                recompute_scale_factor=None, antialias=False):
    """Multiply by a matrix per dim."""
    sizes = self.shape[2:]
    rank = len(sizes)
    scales = tuple_of(scale_factor, rank) if scale_factor is not None else (None,) * rank
    counts = tuple_of(size, rank) if size is not None else tuple(
        int(n * s) for n, s in zip(sizes, scales))
    if mode == "area":
        return adaptive_avg_pool(rank)(np, self, counts)
    out = wide(np, self)
    for dim, (n, m, scale) in enumerate(zip(sizes, counts, scales), 2):
        step = n / m if scale is None or recompute_scale_factor else 1 / scale
        if align_corners:
            step = (n - 1) / (m - 1) if m > 1 else 0
        matrix = _filter(np, n, m, step, mode) if antialias else _neighbours(
            np, n, m, step, mode, align_corners)
        out = np.moveaxis(np.moveaxis(out, dim, -1) @ matrix.T, -1, dim)
    return out.astype(self.dtype) if self.dtype.kind == "u" else out


def pixel_shuffle(np, self, factor):
    """Strided writes, block by block."""
    *lead, c, h, w = self.shape
    r = factor
    out = np.zeros((*lead, c // (r * r), h * r, w * r), self.dtype)
    for i in range(r):
        for j in range(r):
            out[..., i::r, j::r] = self[..., i * r + j::r * r, :, :]
    return out


def pixel_unshuffle(np, self, factor):
    """Strided reads, block by block."""
    *lead, c, h, w = self.shape
    r = factor
    out = np.zeros((*lead, c * r * r, h // r, w // r), self.dtype)
    for i in range(r):
        for j in range(r):
            out[..., i * r + j::r * r, :, :] = self[..., i::r, j::r]
    return out


def channel_shuffle(np, self, groups):
    """Channel by channel."""
    each = self.shape[1] // groups
    return self[:, [g * each + k for k in range(each) for g in range(groups)]]


def _fold_in(np, x, size, padding, align):
    """Move one coordinate into the dim, as torch's page of grid_sample says."""
    if padding == "reflection":
        low, high = (0, size - 1) if align else (-0.5, size - 0.5)
        while high > low and not low <= x <= high:
            x = 2 * low - x if x < low else 2 * high - x
        x = low if high == low else x
    return x if padding == "zeros" else min(max(x, 0), size - 1)


def _point(np, x, size, mode, padding, align):
    """Return (place, weight) of the elements that one coordinate takes."""
    x = (x + 1) / 2 * (size - 1) if align else ((x + 1) * size - 1) / 2
    if mode == "bicubic":
        places = [np.floor(x) + tap for tap in range(-1, 3)]
        return [(_fold_in(np, place, size, padding, align), _keys(x - place)) for place in places]
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
        taps = [_point(np, x, size, mode, padding_mode, align_corners)
                for x, size in zip(grid[spot][::-1], sizes)]
        for chosen in np.ndindex(*map(len, taps)):
            places, weights = zip(*(of[number] for of, number in zip(taps, chosen)))
            if all(0 <= place < size for place, size in zip(places, sizes)):
                key = (spot[0], slice(None), *(int(place) for place in places))
                out[(spot[0], slice(None), *spot[1:])] += self[key] * np.prod(weights)
    return out


def grid_sampler(np, self, grid, mode, padding, align_corners):
    """grid_sample, by numbers."""
    return grid_sample(np, self, grid, ("bilinear", "nearest", "bicubic")[mode],
                       ("zeros", "border", "reflection")[padding], align_corners)


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
