"""Convolutions, by loops over windows."""

from pullback.testing.references.windows import (
    counts_of,
    pad_ends,
    tuple_of,
    wide,
    window_positions,
)


def convolution_forward(np, self, weight, bias, counts, stride, padding, dilation, groups):
    """Sum over channels and positions, element by element of the result's dims."""
    self, weight = wide(np, self), wide(np, weight)
    padded = pad_ends(np, self, padding)
    n, o, c = self.shape[0], weight.shape[0], weight.shape[1]
    out = np.zeros((n, o, *counts), np.result_type(self, weight))
    for spot, k, at in window_positions(np, counts, weight.shape[2:], stride, dilation):
        for g in range(groups):
            rows = slice(g * (o // groups), (g + 1) * (o // groups))
            part = padded[(slice(None), slice(g * c, (g + 1) * c), *at)]
            out[(slice(None), rows, *spot)] += part @ weight[(rows, slice(None), *k)].T
    return out if bias is None else out + bias.reshape(-1, *[1] * len(counts))


def convolution_backward_input(np, self, weight, bias, sizes, stride, padding, dilation, groups):
    """Add every element, times the weight, to the positions it would be made of."""
    self, weight = wide(np, self), wide(np, weight)
    n, o, c = self.shape[0], weight.shape[0], weight.shape[1]
    padded = np.zeros(
        (n, c * groups, *(s + 2 * p for s, p in zip(sizes, padding))), np.result_type(self, weight)
    )
    for spot, k, at in window_positions(np, self.shape[2:], weight.shape[2:], stride, dilation):
        for g in range(groups):
            rows = slice(g * (o // groups), (g + 1) * (o // groups))
            padded[(slice(None), slice(g * c, (g + 1) * c), *at)] += (
                self[(slice(None), rows, *spot)] @ weight[(rows, slice(None), *k)]
            )
    out = padded[(..., *(slice(p, p + s) for p, s in zip(padding, sizes)))]
    return out if bias is None else out + bias.reshape(-1, *[1] * len(sizes))


def convolution_backward_weight(np, self, other, kernel, stride, padding, dilation, groups):
    """Sum over the batch and the positions of the second array."""
    self, other = wide(np, self), wide(np, other)
    padded = pad_ends(np, self, padding)
    o, c = other.shape[1], self.shape[1] // groups
    out = np.zeros((o, c, *kernel), np.result_type(self, other))
    for spot, k, at in window_positions(np, other.shape[2:], kernel, stride, dilation):
        for g in range(groups):
            rows = slice(g * (o // groups), (g + 1) * (o // groups))
            out[(rows, slice(None), *k)] += (
                other[(slice(None), rows, *spot)].T
                @ padded[(slice(None), slice(g * c, (g + 1) * c), *at)]
            )
    return out


def convolution(
    np, self, weight, bias, stride, padding, dilation, transposed, output_padding, groups
):
    """Either of the two, by its sizes."""
    if transposed:
        return conv_transpose(
            np, self, weight, bias, stride, padding, output_padding, groups, dilation
        )
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
    return convolution_forward(np, self, weight, bias, counts, stride, padding, dilation, groups)


def conv_transpose(
    np, self, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1
):
    """The derivative of conv by its input, with sizes of its own."""
    rank = weight.ndim - 2
    if self.ndim == rank + 1:
        return conv_transpose(
            np, self[None], weight, bias, stride, padding, output_padding, groups, dilation
        )[0]
    stride, padding, extra, dilation = (
        tuple_of(v, rank) for v in (stride, padding, output_padding, dilation)
    )
    sizes = [
        (n - 1) * s - 2 * p + d * (k - 1) + e + 1
        for n, k, s, p, d, e in zip(
            self.shape[2:], weight.shape[2:], stride, padding, dilation, extra
        )
    ]
    return convolution_backward_input(
        np, self, weight, bias, sizes, stride, padding, dilation, groups
    )


def conv_tbc(np, self, weight, bias, pad=0):
    """Step by step: all products of a window of inputs with the weight."""
    self = np.pad(self, ((pad, pad), (0, 0), (0, 0))) if pad >= 0 else self[-pad:pad]
    count = self.shape[0] - weight.shape[0] + 1
    return np.stack(
        [
            np.einsum("kbi,kio->bo", self[step : step + weight.shape[0]], weight) + bias
            for step in range(count)
        ]
    )
