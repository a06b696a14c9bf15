"""Pooling, window by window."""

from pullback.testing.references.windows import tuple_of, wide


def _members(size, count, kernel, stride, pad, dilation):
    """Return the positions of each window of a dim that are inside it."""
    if not kernel:
        return [list(range(i * size // count, -(-(i + 1) * size // count))) for i in range(count)]
    return [
        [
            position
            for position in range(first, first + kernel * dilation, dilation)
            if 0 <= position < size
        ]
        for first in range(-pad, count * stride - pad, stride)
    ]


def _by_dim(counts, window_params):
    rank = len(counts)
    return [(counts[d], *window_params[d::rank]) for d in range(rank)]


def _windows(np, self, counts, window_params):
    """Yield each window's position, and its elements by rows, with their positions in the plane."""
    rank = len(counts)
    sizes = self.shape[self.ndim - rank :]
    plane = np.arange(int(np.prod(sizes))).reshape(sizes)
    members = [_members(size, *of) for size, of in zip(sizes, _by_dim(counts, window_params))]
    for spot in np.ndindex(*counts):
        key = np.ix_(*(of[number] for of, number in zip(members, spot)))
        part = self[(..., *key)]
        positions = plane[key].reshape(-1)
        yield spot, part.reshape(*part.shape[: part.ndim - rank], len(positions)), positions


def max_pool_primitive(np, self, spec, node):
    """Take the output spec apart."""
    (shape, _), _, (window_params,) = spec
    return max_of_windows(np, self, shape[self.ndim - len(window_params) // 4 :], window_params)


def max_of_windows(np, self, counts, window_params):
    """argmax of every window."""
    shape = (*self.shape[: self.ndim - len(counts)], *counts)
    values, indices = np.zeros(shape, self.dtype), np.zeros(shape, np.int64)
    for spot, part, plane in _windows(np, self, counts, window_params):
        chosen = np.argmax(part, -1)
        values[(..., *spot)] = np.take_along_axis(part, chosen[..., None], -1)[..., 0]
        indices[(..., *spot)] = plane[chosen]
    return values, indices


def max_pool_backward(np, self, indices, sizes, add=True):
    """Add, or write, element by element."""
    rank = len(sizes)
    lead = self.shape[: self.ndim - rank]
    out = np.zeros((*lead, int(np.prod(sizes))), self.dtype)
    for position in np.ndindex(*self.shape):
        target = (*position[: len(lead)], indices[position])
        out[target] = self[position] + (out[target] if add else 0)
    return out.reshape(*lead, *sizes)


def max_unpool_primitive(np, self, indices, sizes):
    """Write at the indices."""
    return max_pool_backward(np, self, indices, sizes, add=False)


def max_pool_double_backward(np, self, indices, rank):
    """Take along the joined dims."""
    lead = self.shape[: self.ndim - rank]
    flat = indices.reshape(*lead, -1)
    return np.take_along_axis(self.reshape(*lead, -1), flat, -1).reshape(indices.shape)


def avg_pool_primitive(np, self, spec, node):
    """Take the output spec apart."""
    (shape,), _, (window_params, *how) = spec
    return mean_of_windows(
        np, self, shape[self.ndim - len(window_params) // 4 :], window_params, *how
    )


def mean_of_windows(np, self, counts, window_params, padded, divisor):
    """Sum every window, then divide."""
    self = wide(np, self)
    rank = len(counts)
    out = np.zeros((*self.shape[: self.ndim - rank], *counts), self.dtype)
    areas = []
    for size, (count, kernel, stride, pad, _) in zip(
        self.shape[self.ndim - rank :], _by_dim(counts, window_params)
    ):
        more = pad if padded else 0
        areas.append(
            [len(of) for of in _members(size + 2 * more, count, kernel, stride, pad - more, 1)]
        )
    for spot, part, _ in _windows(np, self, counts, window_params):
        area = divisor or int(np.prod([of[number] for of, number in zip(areas, spot)]))
        total = part.sum(-1)
        out[(..., *spot)] = total / area if self.dtype.kind == "f" else np.trunc(total / area)
    return out


def avg_pool_primitive_backward(np, self, spec, node):
    """Transpose the matrix of the mean, column by column."""
    (shape,), _, (window_params, *how) = spec
    lead, sizes = self.shape[: -(len(window_params) // 4)], shape[-(len(window_params) // 4) :]
    planes = np.eye(int(np.prod(sizes))).reshape(-1, *sizes)
    matrix = mean_of_windows(np, planes, self.shape[len(lead) :], window_params, *how)
    matrix = matrix.reshape(len(planes), -1)
    flat = self.reshape(-1, matrix.shape[1]).astype(np.float64)
    return (flat @ matrix.T).reshape(*lead, *sizes)


def slides(np, self, rank, kernel, stride, padding, dilation, ceil_mode):
    """Return the windows of each dim, counted one by one: counts and window_params."""
    kernel, padding, dilation = (tuple_of(n, rank) for n in (kernel, padding, dilation))
    stride = tuple_of(stride, rank) if stride else kernel
    counts = []
    for size, k, s, p, d in zip(self.shape[self.ndim - rank :], kernel, stride, padding, dilation):
        count = 0
        while count * s - p + d * (k - 1) < size + p:
            count += 1  # whole windows
        rest = (count - 1) * s - p + d * (k - 1) + 1 < size + p
        if ceil_mode and rest and count * s - p < size:
            count += 1  # one that begins inside
        counts.append(count)
    return tuple(counts), (*kernel, *stride, *padding, *dilation)


def max_pool(rank, both):
    """The largest elements, with indices if asked for."""

    def reference(
        np,
        self,
        kernel_size,
        stride=None,
        padding=0,
        dilation=1,
        ceil_mode=False,
        return_indices=False,
    ):
        found = max_of_windows(
            np, self, *slides(np, self, rank, kernel_size, stride, padding, dilation, ceil_mode)
        )
        return found if both or return_indices else found[0]

    return reference


def max_unpool(rank):
    """Write at the indices, in planes of the usual size or the given one."""

    def reference(np, self, indices, kernel_size, output_size=None):
        usual = [n * kernel_size for n in self.shape[self.ndim - rank :]]
        return max_unpool_primitive(np, self, indices, output_size or usual)

    return reference


def avg_pool(rank):
    """The sum of the elements inside, over the given number."""

    def reference(
        np,
        self,
        kernel_size,
        stride=None,
        padding=0,
        ceil_mode=False,
        count_include_pad=True,
        divisor_override=None,
    ):
        windows = slides(np, self, rank, kernel_size, stride, padding, 1, ceil_mode)
        return mean_of_windows(np, self, *windows, count_include_pad, divisor_override)

    return reference


def adapting(self, output_size, rank):
    """Return the counts and the window_params of adaptive pooling."""
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * rank
    sizes = self.shape[self.ndim - rank :]
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
        _, window_params = slides(np, self, rank, kernel_size, stride, 0, 1, ceil_mode)
        self = self.astype(np.int64) if self.dtype == bool else wide(np, self)
        mean = avg_pool(rank)(np, self**norm_type, kernel_size, stride, 0, ceil_mode)
        return (mean * int(np.prod(window_params[:rank]))) ** (1 / norm_type)

    return reference


def fractional_max_pool_primitive(np, self, indices, rank):
    """Take along the joined dims."""
    return max_pool_double_backward(np, self, indices, rank)


def fractional_max_pool(rank, both):
    """Draw nothing: window i of m begins at floor((i + u) a) - floor(u a), the last at the end."""

    def reference(np, self, kernel_size, output_size=None, output_ratio=None, _random_samples=None):
        sizes = self.shape[self.ndim - rank :]
        if output_size is None:
            output_size = tuple(int(size * r) for size, r in zip(sizes, output_ratio))
        kernel, counts = tuple_of(kernel_size, rank), tuple_of(output_size, rank)
        planes = self.reshape((-1, *self.shape[self.ndim - rank - 1 :]))
        numbers = _random_samples.astype(np.float64)
        if rank == 2:
            numbers = numbers[..., ::-1]
        out = np.zeros((*planes.shape[:2], *counts), self.dtype)
        indices = np.zeros(out.shape, np.int64)
        where = np.arange(int(np.prod(sizes))).reshape(sizes)
        for n, c, *spot in np.ndindex(*out.shape):
            window = []
            for d, i in enumerate(spot):
                last, u = sizes[d] - kernel[d], numbers[n, c, d]
                a = last / max(counts[d] - 1, 1)
                first = last if i == counts[d] - 1 else int((i + u) * a) - int(u * a)
                window.append(slice(first, first + kernel[d]))
            part = planes[(n, c, *window)]
            best = np.argmax(part)
            out[(n, c, *spot)] = part.reshape(-1)[best]
            indices[(n, c, *spot)] = where[tuple(window)].reshape(-1)[best]
        shape = (*self.shape[: self.ndim - rank], *counts)
        found = out.reshape(shape), indices.reshape(shape)
        return found if both else found[0]

    return reference
