"""Convolutions: a function that is linear in input and weight, and its two derivatives.

With y = C(x, w), the derivative by x is x = I(y, w), which is also the transposed convolution, and
the derivative by w is w = W(x, y). Each derivative of one of the three is one of the other two.
"""

import functools

from pullback.ops.nn.windows import window_counts
from pullback.ops.rules.arguments import as_int, integers
from pullback.ops.rules.dtypes import type_name, unsupported
from pullback.ops.rules.shapes import by_sizes
from pullback.ops.table.samples import T, case, references_of
from pullback.ops.table.schema import FLOAT_COMPLEX, NUMBERS, op, ops

references = references_of("convolution")

_TRANSPOSED = FLOAT_COMPLEX | 0x020  # and of the integers int64 alone, as in torch


# -- the three maps as ops -------------------------------------------------------------------------


def _bias_vjp(g):
    return g.sum((0, *range(2, g.ndim)))


_SHAPE = "stride: int[], padding: int[], dilation: int[], groups: int"
# Two of: one dim, two dims with everything unlike the default, groups.
_MAPS = (
    ((2, 2, 5), (3, 2, 3), (3,), (1,), (0,), (1,), 1),
    ((2, 4, 5, 6), (6, 2, 2, 3), (3, 4), (2, 1), (1, 0), (2, 1), 2),
    ((2, 2, 3, 4), (3, 2, 1, 1), (3, 4), (1, 1), (0, 0), (1, 1), 1),
)
op(
    f"_convolution(self: Tensor, weight: Tensor, bias: Tensor?, counts: int[], {_SHAPE}) -> Tensor",
    autocast=(None, "lower"),
    forward="convolution",
    kernel="conv",
    method=False,
    function=False,
    node="ConvolutionBackward0",
    batch="convolution",
    vjp={
        "self": lambda g, weight, self_shape, stride, padding, dilation, groups: (
            ops.convolution_backward_input(
                g, ops.conj(weight), None, self_shape[2:], stride, padding, dilation, groups
            )
        ),
        "weight": lambda g, self, weight_shape, stride, padding, dilation, groups: (
            ops.convolution_backward_weight(
                ops.conj(self), g, weight_shape[2:], stride, padding, dilation, groups
            )
        ),
        "bias": _bias_vjp,
    },
    doc="Return the correlation of an input with a weight, which has `counts` positions per "
    "dim.\n\nShape: (n, c, ...) and (o, c / groups, ...) give (n, o, *counts).",
    samples=lambda: [case(T(*x), T(*w), T(w[0]), *rest) for x, w, *rest in _MAPS],
    dtypes=NUMBERS,
    ref=references.convolution_forward,
)
op(
    f"convolution_backward_input(self: Tensor, weight: Tensor, bias: Tensor?, sizes: int[], "
    f"{_SHAPE}) "
    "-> Tensor",
    forward="convolution",
    kernel="conv_backward_input",
    method=False,
    function=False,
    node="ConvolutionBackward0",
    vjp={
        "self": lambda g, weight, self_shape, stride, padding, dilation, groups: ops._convolution(
            g, ops.conj(weight), None, self_shape[2:], stride, padding, dilation, groups
        ),
        "weight": lambda g, self, weight_shape, stride, padding, dilation, groups: (
            ops.convolution_backward_weight(
                g, ops.conj(self), weight_shape[2:], stride, padding, dilation, groups
            )
        ),
        "bias": _bias_vjp,
    },
    doc="Return the derivative of _convolution by its input: the transposed convolution.\n\n"
    "Shape: (n, o, ...) and (o, c / groups, ...) give (n, c, *sizes).",
    samples=lambda: [
        case(T(x[0], w[0], *counts), T(*w), T(x[1]), x[2:], *rest) for x, w, counts, *rest in _MAPS
    ],
    dtypes=NUMBERS,
    ref=references.convolution_backward_input,
)
op(
    f"convolution_backward_weight(self: Tensor, other: Tensor, kernel: int[], {_SHAPE}) -> Tensor",
    forward="convolution",
    kernel="conv_backward_weight",
    method=False,
    function=False,
    node="ConvolutionBackwardBackward0",
    vjp={
        "self": lambda g, other, self_shape, stride, padding, dilation, groups: (
            ops.convolution_backward_input(
                ops.conj(other), g, None, self_shape[2:], stride, padding, dilation, groups
            )
        ),
        "other": lambda g, self, other_shape, stride, padding, dilation, groups: ops._convolution(
            ops.conj(self), g, None, other_shape[2:], stride, padding, dilation, groups
        ),
    },
    doc="Return the derivative of _convolution by its weight.\n\n"
    "Shape: (n, c, ...) and (n, o, ...) give (o, c / groups, *kernel).",
    samples=lambda: [
        case(T(*x), T(x[0], w[0], *counts), w[2:], *rest) for x, w, counts, *rest in _MAPS
    ],
    dtypes=NUMBERS,
    ref=references.convolution_backward_weight,
)


# -- arguments -------------------------------------------------------------------------------------


def _spread(value, rank, name, argument):
    found = integers(value, name, argument)
    if len(found) not in (1, rank):
        raise RuntimeError(
            f"expected {argument} to be a single integer value or a list of {rank} "
            f"values to match the convolution dimensions, but got "
            f"{argument}={list(found)}"
        )
    return found * rank if len(found) == 1 else found


def _check_groups(groups, name):
    if as_int(groups, name, "groups") <= 0:
        raise RuntimeError("non-positive groups is not supported")


def _check_kinds(self, weight, bias, name):
    """Input, weight and bias need one dtype."""
    if weight.dtype != self.dtype:
        raise RuntimeError(
            f"{name}(): expected scalar type {type_name(self.dtype)} but found "
            f"{type_name(weight.dtype)}"
        )
    if bias is not None and bias.dtype != self.dtype:
        raise RuntimeError(
            f"{name}(): Input type ({self.dtype.name}) and bias type "
            f"({bias.dtype.name}) should be the same"
        )


def _check_channels(size, weight, bias, groups, transposed):
    lead = "transposed=1" if transposed else f"groups={groups}"
    if weight[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at "
            f"dimension 0, but got weight of size {list(weight)} instead"
        )
    if weight[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at "
            f"dimension 0, but got weight of size [{list(weight)}] instead"
        )
    channels = weight[0] if transposed else weight[1] * groups
    if size[1] != channels:
        raise RuntimeError(
            f"Given {lead}, weight of size {list(weight)}, expected input"
            f"{list(size)} to have {channels} channels, but got {size[1]} channels "
            f"instead"
        )
    made = weight[1] * groups if transposed else weight[0]
    if bias is not None and bias != (made,):
        lead = "transposed=1, " if transposed else ""
        raise RuntimeError(
            f"Given {lead}weight of size {list(weight)}, expected bias to be "
            f"1-dimensional with {made} elements, but got bias of size "
            f"{list(bias)} instead"
        )


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
        raise RuntimeError(
            f"Calculated padded input size per channel: ({by_sizes(sizes)}). Kernel "
            f"size: ({by_sizes(reach)}). Kernel size can't be greater than actual "
            f"input size"
        )
    return window_counts(sizes, kernel, stride, dilation)


def _output_sizes(size, weight, stride, padding, dilation, output_padding):
    """Return the sizes of a transposed convolution."""
    if min(output_padding) < 0:
        raise RuntimeError("negative output_padding is not supported")
    if any(extra >= s and extra >= d for extra, s, d in zip(output_padding, stride, dilation)):
        raise RuntimeError(
            f"output padding must be smaller than either stride or dilation, but "
            f"got output_padding: {list(output_padding)} stride: {list(stride)} "
            f"dilation: {list(dilation)}"
        )
    sizes = [
        (n - 1) * s - 2 * p + d * (k - 1) + extra + 1
        for n, k, s, p, d, extra in zip(
            size[2:], weight[2:], stride, padding, dilation, output_padding
        )
    ]
    if min(sizes) < 1 and (size[0] or min(sizes) < 0):  # as in torch, of no samples also none
        raise RuntimeError(
            f"Given input size per channel: ({by_sizes(size[2:])}). "
            f"Calculated output size per channel: ({by_sizes(sizes)}). Output size "
            f"is too small"
        )
    return tuple(sizes)


@functools.lru_cache(maxsize=512, typed=True)
def _convolution_params(
    name, dtype, size, weight, bias, stride, padding, dilation, transposed, output_padding, groups
):
    """Check all but kinds; return the sizes of the result, stride, padding and dilation by dim."""
    rank = len(weight) - 2
    _check_groups(groups, name)
    stride, padding, dilation, extra = (
        value if isinstance(value, tuple) else (value,) * rank
        for value in (stride, padding, dilation, output_padding)
    )
    _check_steps(stride, padding, dilation)
    if len(size) != len(weight):
        wanted = f"{len(weight)}-dimensional"
        raise RuntimeError(
            f"Expected {wanted} input for {wanted} weight {list(weight)}, but "
            f"got {len(size)}-dimensional input of size {list(size)} instead"
        )
    _check_channels(size, weight, bias, groups, transposed)
    if not transposed:
        counts = _counts(size, weight, stride, padding, dilation)
    else:
        counts = _output_sizes(size, weight, stride, padding, dilation, extra)
    _check_kernel(weight[2:])
    if 0 in size[2:]:
        raise RuntimeError(
            f"Only zero batch or zero channel inputs are supported, but got input "
            f"shape: {list(size)}"
        )
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
    counts, stride, padding, dilation = _convolution_params(
        name,
        self.dtype,
        self.shape,
        weight.shape,
        None if bias is None else bias.shape,
        stride,
        padding,
        dilation,
        transposed,
        output_padding,
        groups,
    )
    if bias is not None or weight.dtype is not self.dtype or weight.device != self.device:
        _check_kinds(self, weight, bias, name)
    run = ops.convolution_backward_input if transposed else ops._convolution
    return run(self, weight, bias, counts, stride, padding, dilation, groups)


def _convolution(self, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    if weight.ndim < 3:
        raise RuntimeError(
            f"weight should have at least three dimensions, but got {list(weight.shape)}"
        )
    return _run(
        self,
        weight,
        bias,
        stride,
        padding,
        dilation,
        bool(transposed),
        output_padding if transposed else 0,
        groups,
        "convolution",
    )


op(
    "convolution(self: Tensor, weight: Tensor, bias: Tensor?, stride: int[], padding: int[], "
    "dilation: int[], transposed: bool, output_padding: int[], groups: int) -> Tensor",
    autocast=(None, "lower"),
    composite=_convolution,
    method=False,
    dtypes=NUMBERS,
    ref=references.convolution,
    doc="Return a convolution or a transposed one, of as many dims as the weight has.",
    samples=lambda: [
        case(T(2, 2, 4), T(3, 2, 3), T(3), (1,), (1,), (1,), False, (0,), 1),
        case(
            T(1, 4, 3, 2),
            T(4, 1, 2, 2),
            None,
            (2, 1),
            (0, 0),
            (1, 1),
            True,
            (1, 0),
            2,
            only=_TRANSPOSED,
        ),
    ],
)


def _batched(self, weight, rank, name, run):
    """Give a single image a batch dim for the time being."""
    if self.ndim not in (rank + 1, rank + 2):
        raise RuntimeError(
            f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to "
            f"{name}, but got input of size: {list(self.shape)}"
        )
    if weight.ndim != rank + 2:
        raise RuntimeError(
            f"{name}(): expected weight to have {rank + 2} dimensions, but got "
            f"weight of size {list(weight.shape)}"
        )
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
        ends = _named_padding(
            padding,
            weight.shape[2:],
            _spread(stride, rank, name, "stride"),
            _spread(dilation, rank, name, "dilation"),
        )
        extra = [after - before for before, after in ends]
        if any(extra):  # torch too puts what is left over at the end
            sides = [side for more in reversed(extra) for side in (0, more)]
            self = ops.constant_pad_nd(self, sides, 0)
        return _run(
            self,
            weight,
            bias,
            stride,
            tuple(before for before, _ in ends),
            dilation,
            False,
            0,
            groups,
            name,
        )

    def run(self, weight, bias, stride, padding, dilation, groups):
        if self.ndim != rank + 2 or weight.ndim != rank + 2:
            return _batched(
                self,
                weight,
                rank,
                name,
                lambda batch: run(batch, weight, bias, stride, padding, dilation, groups),
            )
        if isinstance(padding, str):
            return named(self, weight, bias, stride, padding, dilation, groups)
        return _run(self, weight, bias, stride, padding, dilation, False, 0, groups, name)

    return run


def _conv_transpose(rank):
    name = f"conv_transpose{rank}d"
    return lambda self, weight, bias, stride, padding, output_padding, groups, dilation: _batched(
        self,
        weight,
        rank,
        name,
        lambda batch: _run(
            batch, weight, bias, stride, padding, dilation, True, output_padding, groups, name
        ),
    )


def _conv_samples(rank):
    size, more = (4, 3, 3)[:rank], (3, 2, 3)[:rank]
    kernel = (2, 3, 2)[:rank]
    ones = (1,) * rank
    batch = 2 if rank < 3 else 1  # every element costs a call of the gradient checks
    return [
        case(T(batch, 2, *size), T(3, 2, *kernel), T(3)),
        case(T(2, *size), T(2, 2, *kernel)),
        case(T(1, 2, *size), T(2, 1, *kernel), T(2), 2, 1, groups=2),
        case(
            T(1, 2, *size),
            T(2, 2, *more),
            None,
            (2, 1, 1)[:rank],
            padding=(1, 2, 0)[:rank],
            dilation=(1, 2, 1)[:rank],
        ),
        case(T(1, 1, *size), T(1, 1, *kernel), padding="same"),
        case(T(1, 1, *size), T(1, 1, *kernel), padding="valid"),
        case(T(batch, 2, *size), T(3, 2, *ones), T(3)),
        case(T(1, 3, *size), T(3, 1, *ones), None, 2, groups=3),
        case(T(0, 2, *size), T(3, 2, *kernel), T(3)),
    ]


def _transposed_samples(rank):
    size, kernel = (3, 2, 2)[:rank], (2, 3, 2)[:rank]
    batch = 2 if rank < 3 else 1
    return [
        case(T(batch, 2, *size), T(2, 3, *kernel), T(3)),
        case(T(2, *size), T(2, 1, *kernel)),
        case(T(1, 4, *size), T(4, 1, *kernel), T(2), 2, 1, 1, 2),
        case(
            T(1, 2, *size),
            T(2, 1, *kernel),
            None,
            1,
            padding=(1, 0, 0)[:rank],
            dilation=2,
            output_padding=(1, 0, 1)[:rank],
        ),
        case(T(0, 2, *size), T(2, 3, *kernel), T(3)),
    ]


for _rank, _what in ((1, "a signal"), (2, "an image"), (3, "a volume")):
    op(
        f"conv{_rank}d(self: Tensor, weight: Tensor, bias: Tensor? = None, stride: int[] = 1, "
        "padding: any = 0, dilation: int[] = 1, groups: int = 1) -> Tensor",
        composite=_conv(_rank),
        autocast="lower",
        method=False,
        namespace=("", "functional"),
        dtypes=NUMBERS,
        doc=f"Return the convolution (a correlation: the weight is not flipped) of {_what}.\n\n"
        "Shape: (n, c, ...) and (o, c / groups, ...) give (n, o, ...); n may be missing. "
        "Padding is ints, 'valid' or 'same'.\n\n"
        "Raises: RuntimeError where channels, groups, sizes or dtypes do not fit.",
        samples=_conv_samples(_rank),
        ref=references.conv,
    )
    op(
        f"conv_transpose{_rank}d(self: Tensor, weight: Tensor, bias: Tensor? = None, "
        "stride: int[] = 1, padding: int[] = 0, output_padding: int[] = 0, groups: int = 1, "
        "dilation: int[] = 1) -> Tensor",
        composite=_conv_transpose(_rank),
        autocast="lower",
        method=False,
        namespace=("", "functional"),
        dtypes=_TRANSPOSED,
        ref=references.conv_transpose,
        doc=f"Return the transposed convolution of {_what}: the derivative of a convolution by "
        f"its input.\n\n"
        "Shape: (n, c, ...) and (c, o / groups, ...) give (n, o, ...); n may be missing.\n\n"
        "Raises: RuntimeError where channels, groups, sizes or dtypes do not fit.",
        samples=_transposed_samples(_rank),
    )


# -- time first ------------------------------------------------------------------------------------


def _check_tbc(self, weight, bias):
    for part, name, dims in (
        (self, "Input", "time, batch, in_channel"),
        (weight, "Weight tensor", "kernel_width, in_channels, out_channels."),
    ):
        if part.ndim != 3:
            raise RuntimeError(f"{name} must have 3 dims: {dims}")
    if bias.ndim != 1:
        raise RuntimeError("Bias must be 1-D")
    if self.shape[2] != weight.shape[1]:
        raise RuntimeError("Input dim 2 (input channels) is not == dim 1 in the weight tensor")
    if weight.shape[2] != bias.shape[0]:
        raise RuntimeError("Bias size must equal dim 2 in the weight tensor (output channels).")


def _conv_tbc(self, weight, bias, pad):
    _check_tbc(self, weight, bias)
    count = self.shape[0] + 2 * pad - weight.shape[0] + 1
    if count < 0:
        shape = [count, self.shape[1], weight.shape[2]]
        raise RuntimeError(f"Trying to create tensor with negative dimension {count}: {shape}")
    batch, channels = self.shape[1:]
    if pad > 0:
        edge = self.new_zeros((pad, batch, channels))
        self = ops.cat((edge, self, edge))
    elif pad < 0:
        self = ops.narrow(self, 0, -pad, self.shape[0] + 2 * pad)
    out = bias.expand((count * batch, bias.shape[0]))
    for step in range(weight.shape[0]):
        rows = ops.narrow(self, 0, step, count).reshape((count * batch, channels))
        out = out + ops.mm(rows, ops.select(weight, 0, step))
    out = out if weight.shape[0] else out.clone()
    return out.reshape((count, batch, bias.shape[0]))


op(
    "conv_tbc(self: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor",
    autocast="lower",
    composite=_conv_tbc,
    method=False,
    namespace=("", "functional"),
    dtypes=NUMBERS,
    ref=references.conv_tbc,
    doc="Return the convolution over time of inputs with time first.\n\n"
    "Shape: (time, n, c), (width, c, out) and (out) give (time + 2 pad - width + 1, n, out).\n\n"
    "Raises: RuntimeError where sizes or dtypes do not fit.",
    samples=lambda: [
        case(T(5, 2, 3), T(2, 3, 4), T(4)),
        case(T(3, 2, 2), T(3, 2, 1), T(1), 2),
        case(T(2, 0, 2), T(2, 2, 1), T(1)),
        case(T(4, 1, 2), T(2, 2, 1), T(1), -1),
        case(T(2, 1, 2), T(0, 2, 1), T(1)),
    ],
)
