"""Decompositions of convolutions: unrolled windows (im2col) and matrix products."""

from pullback.ops.nn.windows import add_windows, inside, pad_zeros, window_view
from pullback.ops.rules.dtypes import accumulate_dtype
from pullback.ops.rules.shapes import product
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.primitives_api import new_empty, new_filled, put, run_primitive
from pullback.ops.table.schema import ops

_UNROLLED = 1 << 20  # elements of unrolled windows held at a time: they should stay in a cache


def _run_bmm(out, left, right):
    run_primitive("bmm", (out,), (left, right))


def _chunks(batch, counts, each):
    """Yield (start, length, row, rows): parts of a batch, or of the first dim of one image.

    `each` is the number of elements of one image's windows; a part has few enough to be held.
    """
    step = max(1, min(batch, _UNROLLED // each))
    height = counts[0] if each <= _UNROLLED else max(1, _UNROLLED * counts[0] // each)
    for start in range(0, batch, step):
        for row in range(0, counts[0], height):
            yield start, min(step, batch - start), row, min(height, counts[0] - row)


def _rows_of(self, groups, start, row, rows):
    """Return rows of one image (n, groups * c, ...) as the view (groups, c, elements)."""
    size, line = product(self.shape[2:]), product(self.shape[3:])
    each = self.shape[1] // groups
    return ops.as_strided(
        self,
        (groups, each, rows * line),
        (each * size, size, 1),
        self.storage_offset() + start * self.shape[1] * size + row * line,
    )


def _by_group(self, groups, start, length, row, rows):
    """Return part of a contiguous batch as matrices (groups, c, elements of all images)."""
    if length == 1:
        return _rows_of(self, groups, start, row, rows)
    part = ops.narrow(self, 0, start, length)
    part = part.reshape((length, groups, self.shape[1] // groups, product(self.shape[2:])))
    part = part.permute((1, 2, 0, 3))
    return put(new_empty(self, part.shape), part).reshape((*part.shape[:2], -1))


def _columns(windows, groups, start, length, row, rows):
    """Return part of a batch of windows as matrices (groups, c * kernel, n * counts)."""
    rank = (windows.ndim - 2) // 2
    windows = ops.narrow(ops.narrow(windows, 0, start, length), 2 + rank, row, rows)
    channels, *rest = windows.shape[1:]
    steps = windows.stride()
    part = ops.as_strided(
        windows,
        (groups, channels // groups, *rest[:rank], length, *rest[rank:]),
        (
            steps[1] * (channels // groups),
            steps[1],
            *steps[2 : 2 + rank],
            steps[0],
            *steps[2 + rank :],
        ),
        windows.storage_offset(),
    )
    height = channels // groups * product(rest[:rank])
    return put(new_empty(windows, part.shape), part).reshape(
        (groups, height, length * product(rest[rank:]))
    )


def _is_pointwise(kernel, stride, padding, groups):
    return groups == 1 and max((*kernel, *stride), default=1) == 1 and not any(padding)


def _matrix(weight, groups):
    return weight.reshape((groups, weight.shape[0] // groups, product(weight.shape[1:])))


def _add_bias(out, bias):
    return out if bias is None else out.add_(bias.reshape((-1, *[1] * (out.ndim - 2))))


# -- without a kernel: unrolled windows and matrix products ----------------------------------------


@decomposition("conv")
def composed_conv(self, weight, bias, counts, stride, padding, dilation, groups):
    """C: correlate the input with the weight."""
    kernel, channels = weight.shape[2:], weight.shape[0]
    out = new_empty(self, (self.shape[0], channels, *counts))
    matrices = _matrix(weight, groups)
    if not out.numel():
        return out
    if not weight.numel():
        return _add_bias(new_filled(self, out.shape), bias)
    if _is_pointwise(kernel, stride, padding, groups) and self.shape[2:] == out.shape[2:]:
        flat = self.reshape((*self.shape[:2], -1))
        _run_bmm(
            out.reshape((*out.shape[:2], -1)),
            matrices.expand((self.shape[0], *matrices.shape[1:])),
            flat,
        )
        return _add_bias(out, bias)
    windows = window_view(pad_zeros(self, padding), kernel, stride, dilation, counts)
    size = product(counts)
    parts = out.reshape((out.shape[0], groups, channels // groups, size))
    for chunk in _chunks(self.shape[0], counts, product(windows.shape[1:])):
        columns = _columns(windows, groups, *chunk)
        start, length, row, rows = chunk
        if length == 1:
            _run_bmm(_rows_of(out, groups, start, row, rows), matrices, columns)
            continue
        made = new_empty(self, (groups, channels // groups, length * size))
        _run_bmm(made, matrices, columns)
        put(
            ops.narrow(parts, 0, start, length),
            made.reshape((*made.shape[:2], length, size)).permute((2, 0, 1, 3)),
        )
    return _add_bias(out, bias)


@decomposition("conv_backward_input")
def composed_conv_backward_input(self, weight, bias, sizes, stride, padding, dilation, groups):
    """I: spread each element over a window, weighted, and add where windows overlap."""
    kernel, rows = weight.shape[2:], product(weight.shape[1:])
    shape = (self.shape[0], weight.shape[1] * groups, *sizes)
    if not self.numel() or not weight.numel():
        return _add_bias(new_filled(self, shape), bias)
    matrices = _matrix(weight, groups).transpose(1, 2)
    if _is_pointwise(kernel, stride, padding, groups) and self.shape[2:] == tuple(sizes):
        out = new_empty(self, (*shape[:2], product(sizes)))
        _run_bmm(
            out,
            matrices.expand((shape[0], *matrices.shape[1:])),
            self.reshape((*self.shape[:2], -1)),
        )
        return _add_bias(out.reshape(shape), bias)
    padded = new_filled(
        self,
        (*shape[:2], *(n + 2 * p for n, p in zip(sizes, padding))),
        dtype=accumulate_dtype(self.dtype),
    )
    counts, rank, self = self.shape[2:], len(kernel), self.contiguous()
    order = (rank + 1, *range(rank + 1), *range(rank + 2, 2 * rank + 2))
    for chunk in _chunks(shape[0], counts, groups * rows * product(counts)):
        start, length, row, height = chunk
        some = (height, *counts[1:])
        columns = new_empty(self, (groups, rows, length * product(some)))
        _run_bmm(columns, matrices, _by_group(self, groups, *chunk))
        windows = columns.reshape((groups * weight.shape[1], *kernel, length, *some))
        target = ops.narrow(padded, 0, start, length)
        if height < counts[0]:
            target = ops.narrow(
                target,
                2,
                row * stride[0],
                (height - 1) * stride[0] + (kernel[0] - 1) * dilation[0] + 1,
            )
        add_windows(target, windows.permute(order), kernel, stride, dilation, some)
    out = inside(padded, padding, sizes)
    if out is not padded or padded.dtype != self.dtype:
        out = put(new_empty(self, shape), out)
    return _add_bias(out, bias)


@decomposition("conv_backward_weight")
def composed_conv_backward_weight(self, other, kernel, stride, padding, dilation, groups):
    """W: correlate the input with what stands at the outputs."""
    shape = (other.shape[1], self.shape[1] // groups, *kernel)
    if not self.numel() or not other.numel() or not product(shape):
        return new_filled(self, shape)
    windows = window_view(pad_zeros(self, padding), kernel, stride, dilation, other.shape[2:])
    made = new_empty(self, (groups, shape[0] // groups, product(shape[1:])))
    chunks = list(_chunks(self.shape[0], other.shape[2:], product(windows.shape[1:])))
    other = other.contiguous()
    total = made
    if len(chunks) > 1:
        total = new_filled(self, made.shape, dtype=accumulate_dtype(self.dtype))
    for chunk in chunks:
        columns = _columns(windows, groups, *chunk)
        _run_bmm(made, _by_group(other, groups, *chunk), columns.transpose(1, 2))
        if len(chunks) > 1:
            total.add_(made)
    return total.to(self.dtype).reshape(shape)
