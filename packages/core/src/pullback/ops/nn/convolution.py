"""Convolutions: one map that is linear in input and weight, and its two adjoints.

With y = C(x, w), the adjoint in x is x = I(y, w), which is also the transposed convolution, and
the adjoint in w is w = W(x, y). Each derivative of one of the three is one of the other two.
"""

import functools

from pullback.ops.nn.windows import (
    add_windows,
    by_sizes,
    inside,
    integers,
    pad_zeros,
    product,
    window_counts,
    window_view,
)
from pullback.ops.rules.dims import accumulate_dtype, type_name, unsupported
from pullback.ops.table.primitives import decomposition
from pullback.ops.table.primitives_api import new_empty, new_filled, put, run_primitive
from pullback.ops.table.samples import T, case, references_of
from pullback.ops.table.schema import FLOAT_COMPLEX, NUMBERS, op, ops

references = references_of("windows")

_TRANSPOSED = FLOAT_COMPLEX | 0x020     # and of the integers int64 alone, as in torch
_UNROLLED = 1 << 20     # elements of unrolled windows held at a time: they should stay in a cache


def _run_bmm(out, left, right):
    run_primitive("bmm", (out,), (left, right))


def _pieces(batch, counts, each):
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
    return ops.as_strided(self, (groups, each, rows * line), (each * size, size, 1),
                          self.storage_offset() + start * self.shape[1] * size + row * line)


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
        windows, (groups, channels // groups, *rest[:rank], length, *rest[rank:]),
        (steps[1] * (channels // groups), steps[1], *steps[2:2 + rank], steps[0],
         *steps[2 + rank:]), windows.storage_offset())
    height = channels // groups * product(rest[:rank])
    return put(new_empty(windows, part.shape), part).reshape(
        (groups, height, length * product(rest[rank:])))


def _is_pointwise(kernel, stride, padding, groups):
    return groups == 1 and max((*kernel, *stride), default=1) == 1 and not any(padding)


def _matrix(weight, groups):
    return weight.reshape((groups, weight.shape[0] // groups, product(weight.shape[1:])))


def _add_bias(out, bias):
    return out if bias is None else out.add_(bias.reshape((-1, *[1] * (out.ndim - 2))))


# -- without a kernel: unrolled windows and matrix products ----------------------------------------

@decomposition("conv")
def composed_map(self, weight, bias, counts, stride, padding, dilation, groups):
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
        _run_bmm(out.reshape((*out.shape[:2], -1)),
                 matrices.expand((self.shape[0], *matrices.shape[1:])), flat)
        return _add_bias(out, bias)
    windows = window_view(pad_zeros(self, padding), kernel, stride, dilation, counts)
    size = product(counts)
    parts = out.reshape((out.shape[0], groups, channels // groups, size))
    for piece in _pieces(self.shape[0], counts, product(windows.shape[1:])):
        columns = _columns(windows, groups, *piece)
        start, length, row, rows = piece
        if length == 1:
            _run_bmm(_rows_of(out, groups, start, row, rows), matrices, columns)
            continue
        made = new_empty(self, (groups, channels // groups, length * size))
        _run_bmm(made, matrices, columns)
        put(ops.narrow(parts, 0, start, length),
            made.reshape((*made.shape[:2], length, size)).permute((2, 0, 1, 3)))
    return _add_bias(out, bias)


@decomposition("conv_adjoint")
def composed_adjoint(self, weight, bias, sizes, stride, padding, dilation, groups):
    """I: spread each element over a window, weighted, and add where windows overlap."""
    kernel, rows = weight.shape[2:], product(weight.shape[1:])
    shape = (self.shape[0], weight.shape[1] * groups, *sizes)
    if not self.numel() or not weight.numel():
        return _add_bias(new_filled(self, shape), bias)
    matrices = _matrix(weight, groups).transpose(1, 2)
    if _is_pointwise(kernel, stride, padding, groups) and self.shape[2:] == tuple(sizes):
        out = new_empty(self, (*shape[:2], product(sizes)))
        _run_bmm(out, matrices.expand((shape[0], *matrices.shape[1:])),
                 self.reshape((*self.shape[:2], -1)))
        return _add_bias(out.reshape(shape), bias)
    padded = new_filled(self, (*shape[:2], *(n + 2 * p for n, p in zip(sizes, padding))),
                        dtype=accumulate_dtype(self.dtype))
    counts, rank, self = self.shape[2:], len(kernel), self.contiguous()
    order = (rank + 1, *range(rank + 1), *range(rank + 2, 2 * rank + 2))
    for piece in _pieces(shape[0], counts, groups * rows * product(counts)):
        start, length, row, height = piece
        some = (height, *counts[1:])
        columns = new_empty(self, (groups, rows, length * product(some)))
        _run_bmm(columns, matrices, _by_group(self, groups, *piece))
        windows = columns.reshape((groups * weight.shape[1], *kernel, length, *some))
        target = ops.narrow(padded, 0, start, length)
        if height < counts[0]:
            target = ops.narrow(target, 2, row * stride[0],
                                (height - 1) * stride[0] + (kernel[0] - 1) * dilation[0] + 1)
        add_windows(target, windows.permute(order), kernel, stride, dilation, some)
    out = inside(padded, padding, sizes)
    if out is not padded or padded.dtype != self.dtype:
        out = put(new_empty(self, shape), out)
    return _add_bias(out, bias)


@decomposition("conv_weight")
def composed_weight(self, other, kernel, stride, padding, dilation, groups):
    """W: correlate the input with what stands at the outputs."""
    shape = (other.shape[1], self.shape[1] // groups, *kernel)
    if not self.numel() or not other.numel() or not product(shape):
        return new_filled(self, shape)
    windows = window_view(pad_zeros(self, padding), kernel, stride, dilation, other.shape[2:])
    made = new_empty(self, (groups, shape[0] // groups, product(shape[1:])))
    pieces = list(_pieces(self.shape[0], other.shape[2:], product(windows.shape[1:])))
    total, other = None, other.contiguous()
    for piece in pieces:
        columns = _columns(windows, groups, *piece)
        _run_bmm(made, _by_group(other, groups, *piece), columns.transpose(1, 2))
        if len(pieces) == 1:
            return made.reshape(shape)
        if total is None:
            total = new_filled(self, made.shape, dtype=accumulate_dtype(self.dtype))
        total.add_(made)
    return total.to(self.dtype).reshape(shape)


# -- the three maps as ops -------------------------------------------------------------------------

def _bias_vjp(g):
    return g.sum((0, *range(2, g.ndim)))


_SHAPE = "stride: int[], padding: int[], dilation: int[], groups: int"
# Two of: one dim, two dims with everything unlike the default, groups.
_MAPS = (((2, 2, 5), (3, 2, 3), (3,), (1,), (0,), (1,), 1),
         ((2, 4, 5, 6), (6, 2, 2, 3), (3, 4), (2, 1), (1, 0), (2, 1), 2),
         ((2, 2, 3, 4), (3, 2, 1, 1), (3, 4), (1, 1), (0, 0), (1, 1), 1))
op(f"convolution_map(self: Tensor, weight: Tensor, bias: Tensor?, counts: int[], {_SHAPE}) "
   "-> Tensor", forward="convolution", kernel="conv", method=False, function=False,
   node="ConvolutionBackward0", batch="convolution",
   vjp={"self": lambda g, weight, self_shape, stride, padding, dilation, groups:
        ops.convolution_adjoint(g, ops.conj(weight), None, self_shape[2:], stride, padding,
                                dilation, groups),
        "weight": lambda g, self, weight_shape, stride, padding, dilation, groups:
        ops.convolution_weight(ops.conj(self), g, weight_shape[2:], stride, padding, dilation,
                               groups),
        "bias": _bias_vjp},
   doc="Return the correlation of an input with a weight, which has `counts` places per dim.\n\n"
       "Shape: (n, c, ...) and (o, c / groups, ...) give (n, o, *counts).",
   samples=[case(T(*x), T(*w), T(w[0]), *rest) for x, w, *rest in _MAPS],
   dtypes=NUMBERS, ref=references.convolution_map)
op(f"convolution_adjoint(self: Tensor, weight: Tensor, bias: Tensor?, sizes: int[], {_SHAPE}) "
   "-> Tensor", forward="convolution", kernel="conv_adjoint", method=False, function=False,
   node="ConvolutionBackward0",
   vjp={"self": lambda g, weight, self_shape, stride, padding, dilation, groups:
        ops.convolution_map(g, ops.conj(weight), None, self_shape[2:], stride, padding, dilation,
                            groups),
        "weight": lambda g, self, weight_shape, stride, padding, dilation, groups:
        ops.convolution_weight(g, ops.conj(self), weight_shape[2:], stride, padding, dilation,
                               groups),
        "bias": _bias_vjp},
   doc="Return the adjoint of convolution_map in its input: the transposed convolution.\n\n"
       "Shape: (n, o, ...) and (o, c / groups, ...) give (n, c, *sizes).",
   samples=[case(T(x[0], w[0], *counts), T(*w), T(x[1]), x[2:], *rest)
            for x, w, counts, *rest in _MAPS],
   dtypes=NUMBERS, ref=references.convolution_adjoint)
op(f"convolution_weight(self: Tensor, other: Tensor, kernel: int[], {_SHAPE}) -> Tensor",
   forward="convolution", kernel="conv_weight", method=False, function=False,
   node="ConvolutionBackwardBackward0",
   vjp={"self": lambda g, other, self_shape, stride, padding, dilation, groups:
        ops.convolution_adjoint(ops.conj(other), g, None, self_shape[2:], stride, padding,
                                dilation, groups),
        "other": lambda g, self, other_shape, stride, padding, dilation, groups:
        ops.convolution_map(ops.conj(self), g, None, other_shape[2:], stride, padding, dilation,
                            groups)},
   doc="Return the adjoint of convolution_map in its weight.\n\n"
       "Shape: (n, c, ...) and (n, o, ...) give (o, c / groups, *kernel).",
   samples=[case(T(*x), T(x[0], w[0], *counts), w[2:], *rest) for x, w, counts, *rest in _MAPS],
   dtypes=NUMBERS, ref=references.convolution_weight)


# -- arguments -------------------------------------------------------------------------------------

def _spread(value, rank, name, argument):
    found = integers(value, name, argument)
    if len(found) not in (1, rank):
        raise RuntimeError(f"expected {argument} to be a single integer value or a list of {rank} "
                           f"values to match the convolution dimensions, but got "
                           f"{argument}={list(found)}")
    return found * rank if len(found) == 1 else found


def _check_groups(groups, name):
    if isinstance(groups, bool) or not hasattr(groups, "__index__"):
        raise TypeError(f"{name}(): argument 'groups' must be int, not {type(groups).__name__}")
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")


def _check_kinds(self, weight, bias, name):
    """Input, weight and bias need one dtype."""
    if weight.dtype != self.dtype:
        raise RuntimeError(f"{name}(): expected scalar type {type_name(self.dtype)} but found "
                           f"{type_name(weight.dtype)}")
    if bias is not None and bias.dtype != self.dtype:
        raise RuntimeError(f"{name}(): Input type ({self.dtype.name}) and bias type "
                           f"({bias.dtype.name}) should be the same")


def _check_channels(size, weight, bias, groups, transposed):
    lead = "transposed=1" if transposed else f"groups={groups}"
    if weight[0] < groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be at least {groups} at "
                           f"dimension 0, but got weight of size {list(weight)} instead")
    if weight[0] % groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} at "
                           f"dimension 0, but got weight of size [{list(weight)}] instead")
    channels = weight[0] if transposed else weight[1] * groups
    if size[1] != channels:
        raise RuntimeError(f"Given {lead}, weight of size {list(weight)}, expected input"
                           f"{list(size)} to have {channels} channels, but got {size[1]} channels "
                           f"instead")
    made = weight[1] * groups if transposed else weight[0]
    if bias is not None and bias != (made,):
        lead = "transposed=1, " if transposed else ""
        raise RuntimeError(f"Given {lead}weight of size {list(weight)}, expected bias to be "
                           f"1-dimensional with {made} elements, but got bias of size "
                           f"{list(bias)} instead")


def _check_steps(stride, padding, dilation):
    if min(padding) < 0:
        raise RuntimeError("negative padding is not supported")
    if min(stride) <= 0:
        raise RuntimeError("non-positive stride is not supported")
    if min(dilation) <= 0:
        raise RuntimeError(f"dilation should be greater than zero, but got {list(dilation)}")


def _check_kernel(kernel):
    if min(kernel) < 1:
        raise RuntimeError(f"kernel size should be greater than zero, but got {list(kernel)}")


def _counts(size, weight, stride, padding, dilation):
    sizes = [n + 2 * pad for n, pad in zip(size[2:], padding)]
    kernel = weight[2:]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    if any(n < least for n, least in zip(sizes, reach)):
        raise RuntimeError(f"Calculated padded input size per channel: ({by_sizes(sizes)}). Kernel "
                           f"size: ({by_sizes(reach)}). Kernel size can't be greater than actual "
                           f"input size")
    return window_counts(sizes, kernel, stride, dilation)


def _output_sizes(size, weight, stride, padding, dilation, output_padding):
    """Return the sizes of a transposed convolution."""
    if min(output_padding) < 0:
        raise RuntimeError("negative output_padding is not supported")
    if any(extra >= s and extra >= d
           for extra, s, d in zip(output_padding, stride, dilation)):
        raise RuntimeError(f"output padding must be smaller than either stride or dilation, but "
                           f"got output_padding: {list(output_padding)} stride: {list(stride)} "
                           f"dilation: {list(dilation)}")
    sizes = [(n - 1) * s - 2 * p + d * (k - 1) + extra + 1 for n, k, s, p, d, extra in zip(
        size[2:], weight[2:], stride, padding, dilation, output_padding)]
    if min(sizes) < 1 and (size[0] or min(sizes) < 0):      # as in torch, of no samples also none
        raise RuntimeError(f"Given input size per channel: ({by_sizes(size[2:])}). "
                           f"Calculated output size per channel: ({by_sizes(sizes)}). Output size "
                           f"is too small")
    return tuple(sizes)


@functools.lru_cache(maxsize=512, typed=True)
def _geometry(name, dtype, size, weight, bias, stride, padding, dilation, transposed,
              output_padding, groups):
    """Check all but kinds; return the sizes of the result, stride, padding and dilation by dim."""
    rank = len(weight) - 2
    _check_groups(groups, name)
    stride, padding, dilation, extra = (value if isinstance(value, tuple) else (value,) * rank
                                        for value in (stride, padding, dilation, output_padding))
    _check_steps(stride, padding, dilation)
    if len(size) != len(weight):
        wanted = f"{len(weight)}-dimensional"
        raise RuntimeError(f"Expected {wanted} input for {wanted} weight {list(weight)}, but "
                           f"got {len(size)}-dimensional input of size {list(size)} instead")
    _check_channels(size, weight, bias, groups, transposed)
    if not transposed:
        counts = _counts(size, weight, stride, padding, dilation)
    else:
        counts = _output_sizes(size, weight, stride, padding, dilation, extra)
    _check_kernel(weight[2:])
    if 0 in size[2:]:
        raise RuntimeError(f"Only zero batch or zero channel inputs are supported, but got input "
                           f"shape: {list(size)}")
    if not (_TRANSPOSED if transposed else NUMBERS) >> dtype.code & 1:
        raise unsupported(name, dtype)
    return counts, stride, padding, dilation


def _run(self, weight, bias, stride, padding, dilation, transposed, output_padding, groups, name):
    """Check everything and run the map; the input has a batch dim."""
    rank = weight.ndim - 2
    if type(stride) is not int:
        stride = _spread(stride, rank, name, "stride")
    if type(padding) is not int:
        padding = _spread(padding, rank, name, "padding")
    if type(dilation) is not int:
        dilation = _spread(dilation, rank, name, "dilation")
    if type(output_padding) is not int:
        output_padding = _spread(output_padding, rank, name, "output_padding")
    counts, stride, padding, dilation = _geometry(
        name, self.dtype, self.shape, weight.shape, None if bias is None else bias.shape, stride,
        padding, dilation, transposed, output_padding, groups)
    if bias is not None or weight.dtype is not self.dtype or weight.device != self.device:
        _check_kinds(self, weight, bias, name)
    run = ops.convolution_adjoint if transposed else ops.convolution_map
    return run(self, weight, bias, counts, stride, padding, dilation, groups)


def _convolution(self, weight, bias, stride, padding, dilation, transposed, output_padding,
                 groups):
    if weight.ndim < 3:
        raise RuntimeError(f"weight should have at least three dimensions, but got "
                           f"{list(weight.shape)}")
    return _run(self, weight, bias, stride, padding, dilation, bool(transposed),
                output_padding if transposed else 0, groups, "convolution")


op("convolution(self: Tensor, weight: Tensor, bias: Tensor?, stride: int[], padding: int[], "
   "dilation: int[], transposed: bool, output_padding: int[], groups: int) -> Tensor",
   composite=_convolution, method=False, dtypes=NUMBERS, ref=references.convolution,
   doc="Return a convolution or a transposed one, of as many dims as the weight has.",
   samples=[case(T(2, 2, 4), T(3, 2, 3), T(3), (1,), (1,), (1,), False, (0,), 1),
            case(T(1, 4, 3, 2), T(4, 1, 2, 2), None, (2, 1), (0, 0), (1, 1), True, (1, 0), 2,
                 only=_TRANSPOSED)])


def _batched(self, weight, rank, name, run):
    """Give a single image a batch dim for the time being."""
    if self.ndim not in (rank + 1, rank + 2):
        raise RuntimeError(f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to "
                           f"{name}, but got input of size: {list(self.shape)}")
    if weight.ndim != rank + 2:
        raise RuntimeError(f"{name}(): expected weight to have {rank + 2} dimensions, but got "
                           f"weight of size {list(weight.shape)}")
    return run(self) if self.ndim == rank + 2 else run(self.unsqueeze(0)).squeeze(0)


def _named_padding(padding, kernel, stride, dilation):
    """Return (padding before, padding after) of each dim for 'same' and 'valid'."""
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    if max(stride) > 1:
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    totals = [d * (k - 1) for d, k in zip(dilation, kernel)]
    return [(total // 2, total - total // 2) for total in totals]


def _conv(rank):
    name = f"conv{rank}d"

    def named(self, weight, bias, stride, padding, dilation, groups):
        ends = _named_padding(padding, weight.shape[2:], _spread(stride, rank, name, "stride"),
                              _spread(dilation, rank, name, "dilation"))
        extra = [after - before for before, after in ends]
        if any(extra):                  # torch too puts what is left over at the end
            sides = [side for more in reversed(extra) for side in (0, more)]
            self = ops.constant_pad_nd(self, sides, 0)
        return _run(self, weight, bias, stride, tuple(before for before, _ in ends), dilation,
                    False, 0, groups, name)

    def run(self, weight, bias, stride, padding, dilation, groups):
        if self.ndim != rank + 2 or weight.ndim != rank + 2:
            return _batched(self, weight, rank, name, lambda batch: run(
                batch, weight, bias, stride, padding, dilation, groups))
        if isinstance(padding, str):
            return named(self, weight, bias, stride, padding, dilation, groups)
        return _run(self, weight, bias, stride, padding, dilation, False, 0, groups, name)

    return run


def _conv_transpose(rank):
    name = f"conv_transpose{rank}d"
    return lambda self, weight, bias, stride, padding, output_padding, groups, dilation: _batched(
        self, weight, rank, name, lambda batch: _run(
            batch, weight, bias, stride, padding, dilation, True, output_padding, groups, name))


def _conv_samples(rank):
    size, more = (4, 3, 3)[:rank], (3, 2, 3)[:rank]
    kernel = (2, 3, 2)[:rank]
    ones = (1,) * rank
    batch = 2 if rank < 3 else 1        # every element costs a call of the gradient checks
    return [case(T(batch, 2, *size), T(3, 2, *kernel), T(3)), case(T(2, *size), T(2, 2, *kernel)),
            case(T(1, 2, *size), T(2, 1, *kernel), T(2), 2, 1, groups=2),
            case(T(1, 2, *size), T(2, 2, *more), None, (2, 1, 1)[:rank], padding=(1, 2, 0)[:rank],
                 dilation=(1, 2, 1)[:rank]),
            case(T(1, 1, *size), T(1, 1, *kernel), padding="same"),
            case(T(1, 1, *size), T(1, 1, *kernel), padding="valid"),
            case(T(batch, 2, *size), T(3, 2, *ones), T(3)),
            case(T(1, 3, *size), T(3, 1, *ones), None, 2, groups=3),
            case(T(0, 2, *size), T(3, 2, *kernel), T(3))]


def _transposed_samples(rank):
    size, kernel = (3, 2, 2)[:rank], (2, 3, 2)[:rank]
    batch = 2 if rank < 3 else 1
    return [case(T(batch, 2, *size), T(2, 3, *kernel), T(3)), case(T(2, *size), T(2, 1, *kernel)),
            case(T(1, 4, *size), T(4, 1, *kernel), T(2), 2, 1, 1, 2),
            case(T(1, 2, *size), T(2, 1, *kernel), None, 1, padding=(1, 0, 0)[:rank], dilation=2,
                 output_padding=(1, 0, 1)[:rank]),
            case(T(0, 2, *size), T(2, 3, *kernel), T(3))]


for _rank, _what in ((1, "signal"), (2, "image"), (3, "volume")):
    op(f"conv{_rank}d(self: Tensor, weight: Tensor, bias: Tensor? = None, stride: int[] = 1, "
       "padding: any = 0, dilation: int[] = 1, groups: int = 1) -> Tensor",
       composite=_conv(_rank), method=False, namespace=("", "functional"), dtypes=NUMBERS,
       doc=f"Return the convolution (a correlation: the weight is not flipped) of a {_what}.\n\n"
           "Shape: (n, c, ...) and (o, c / groups, ...) give (n, o, ...); n may be missing. "
           "Padding is ints, 'valid' or 'same'.\n\n"
           "Raises: RuntimeError where channels, groups, sizes or dtypes do not fit.",
       samples=_conv_samples(_rank), ref=references.conv)
    op(f"conv_transpose{_rank}d(self: Tensor, weight: Tensor, bias: Tensor? = None, "
       "stride: int[] = 1, padding: int[] = 0, output_padding: int[] = 0, groups: int = 1, "
       "dilation: int[] = 1) -> Tensor", composite=_conv_transpose(_rank), method=False,
       namespace=("", "functional"), dtypes=_TRANSPOSED, ref=references.conv_transpose,
       doc=f"Return the transposed convolution of a {_what}: the adjoint of a convolution.\n\n"
           "Shape: (n, c, ...) and (c, o / groups, ...) give (n, o, ...); n may be missing.\n\n"
           "Raises: RuntimeError where channels, groups, sizes or dtypes do not fit.",
       samples=_transposed_samples(_rank))
