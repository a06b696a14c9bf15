"""Sliding windows of dims: their sizes, views of them, unrolled copies and derivatives."""

import itertools

from pullback.ops.rules.arguments import integers
from pullback.ops.rules.dims import check_dim
from pullback.ops.rules.dtypes import accumulate_dtype, require
from pullback.ops.rules.shapes import product
from pullback.ops.table.primitives_api import new_empty, new_filled, put
from pullback.ops.table.samples import T, case, references_of
from pullback.ops.table.schema import BOOL, FLOAT_COMPLEX, op, ops

references = references_of("windows")


# -- arguments and sizes ---------------------------------------------------------------------------


def window_counts(sizes, kernel, stride, dilation):
    """Return how many windows fit into each dim."""
    return tuple(
        [
            (size - reach * (length - 1) - 1) // step + 1
            for size, length, step, reach in zip(sizes, kernel, stride, dilation)
        ]
    )


# -- views and sums of windows ---------------------------------------------------------------------


def pad_zeros(self, padding):
    """Return a copy with zeros at both ends of the last dims; the tensor itself without any."""
    if not any(padding):
        return self
    lead = self.ndim - len(padding)
    shape = self.shape
    padded = new_filled(
        self, (*shape[:lead], *(size + 2 * pad for size, pad in zip(shape[lead:], padding)))
    )
    put(inside(padded, padding, shape[lead:]), self)
    return padded


def inside(padded, padding, sizes):
    """Return the view of a padded tensor without the padding."""
    lead = padded.ndim - len(padding)
    for dim, (pad, size) in enumerate(zip(padding, sizes), lead):
        if size != padded.shape[dim]:
            padded = ops.narrow(padded, dim, pad, size)
    return padded


def window_view(self, kernel, stride, dilation, counts):
    """Return the view (*lead, *kernel, *counts) of the windows of the last dims."""
    lead = self.ndim - len(kernel)
    steps = self.stride()
    return ops.as_strided(
        self,
        (*self.shape[:lead], *kernel, *counts),
        (
            *steps[:lead],
            *(s * d for s, d in zip(steps[lead:], dilation)),
            *(s * t for s, t in zip(steps[lead:], stride)),
        ),
        self.storage_offset(),
    )


def add_windows(target, windows, kernel, stride, dilation, counts):
    """Add windows (*lead, *kernel, *counts) to where window_view would show them."""
    if not windows.numel():
        return target
    view = window_view(target, kernel, stride, dilation, counts)
    rank = len(kernel)
    for position in itertools.product(*map(range, kernel)):
        at_position(view, position, rank).add_(at_position(windows, position, rank))
    return target


def at_position(windows, position, rank):
    """Return the elements (*lead, *counts) at one position of every window."""
    lead = windows.ndim - 2 * rank
    steps, shape = windows.stride(), windows.shape
    offset = windows.storage_offset()
    for index, step in zip(position, steps[lead:]):
        offset += index * step
    return ops.as_strided(
        windows,
        (*shape[:lead], *shape[lead + rank :]),
        (*steps[:lead], *steps[lead + rank :]),
        offset,
    )


# -- Tensor.unfold ---------------------------------------------------------------------------------


def _unfold_dim(self, dimension, size, step):
    dimension, size, step = integers((dimension, size, step), "unfold", "dimension, size and step")
    dim = check_dim(dimension, max(self.ndim, 1))
    length = self.shape[dim] if self.ndim else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > length:
        raise RuntimeError(
            f"maximum size for tensor at dimension {dim} is {length} but size is {size}"
        )
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    shape, strides = list(self.shape) or [1], list(self.stride()) or [1]
    shape.append(size)
    strides.append(strides[dim])
    shape[dim] = (length - size) // step + 1
    strides[dim] *= step
    if not self.ndim:
        shape, strides = shape[1:], strides[1:]
    return ops.as_strided(self, shape, strides, self.storage_offset())


def _unfold_backward(self, sizes, dimension, size, step):
    out = new_filled(self, sizes, dtype=accumulate_dtype(self.dtype))
    if not out.ndim:
        return self.sum().reshape(()) if size else out.to(self.dtype)
    dim = dimension % out.ndim
    count = self.shape[dim]
    if count < size:
        for k in range(count):
            ops.narrow(out, dim, k * step, size).add_(self.select(dim, k).movedim(-1, dim))
    else:
        for k in range(size):
            part = ops.slice(out, dim, k, k + (count - 1) * step + 1, step)
            part.add_(self.select(-1, k))
    return out.to(self.dtype)


_UNFOLDED = [
    case(T(7), 0, 3, 2),
    case(T(2, 5), -1, 2, 1),
    case(T(5, 2), 0, 3, 1),
    case(T(4, 3), 0, 3, 3),
    case(T(5), 0, 5, 1),
    case(T(3), 0, 0, 1),
    case(T(), 0, 1, 1),
    case(T(0, 3), 1, 2, 1),
]
op(
    "unfold_dim(self: Tensor, dimension: int, size: int, step: int) -> Tensor",
    forward=_unfold_dim,
    view=True,
    batch="along length",
    method="unfold",
    function=False,
    node="UnfoldBackward0",
    vjp={
        "self": lambda g, self_shape, dimension, size, step: ops.unfold_dim_backward(
            g, self_shape, dimension, size, step
        )
    },
    doc="Return a view of the windows of a dim; the last dim counts the elements of a window.\n\n"
    "Raises: RuntimeError when a window is longer than the dim.",
    samples=_UNFOLDED,
    ref=references.unfold_dim,
)
op(
    "unfold_dim_backward(self: Tensor, sizes: int[], dimension: int, size: int, step: int) "
    "-> Tensor",
    forward=_unfold_backward,
    node="UnfoldBackwardBackward0",
    batch="along length restores",
    method=False,
    function=False,
    vjp={"self": lambda g, dimension, size, step: ops.unfold_dim(g, dimension, size, step)},
    doc="Return zeros of `sizes` with windows added where Tensor.unfold shows them.",
    samples=lambda: [
        case(T(3, 3), (7,), 0, 3, 2),
        case(T(2, 4, 2), (2, 5), -1, 2, 1),
        case(T(2, 3, 5), (6, 3), 0, 5, 1),
        case(T(1), (), 0, 1, 1),
    ],
    dtypes=FLOAT_COMPLEX,
    ref=references.unfold_dim_backward,
)


# -- columns: im2col and col2im --------------------------------------------------------------------

_WORDS = {"kernel_size": ("kernel size", "kernel"), "padding": ("padding", "pad")}


def _pairs(name, **given):
    """Return arguments as pairs of ints; all but output_size have a least value."""
    made = []
    for argument, value in given.items():
        pair = integers(value, name, argument)
        if len(pair) != 2 and isinstance(value, (tuple, list)):
            raise RuntimeError(f"It is expected {argument} equals to 2, but got size {len(pair)}")
        height, width = pair if len(pair) == 2 else pair * 2
        least, rule = (0, "non-negative") if argument == "padding" else (1, "greater than zero")
        if min(height, width) < least and argument != "output_size":
            words, short = _WORDS.get(argument, (argument, argument))
            raise RuntimeError(
                f"{words} should be {rule}, but got {short}_height: {height} {short}_width: {width}"
            )
        made.append((height, width))
    return made


def _im2col_forward(self, kernel, dilation, padding, stride):
    counts = _counts_in(self.shape[2:], kernel, dilation, padding, stride)
    windows = window_view(pad_zeros(self, padding), kernel, stride, dilation, counts)
    shape = (self.shape[0], self.shape[1] * product(kernel), product(counts))
    return put(new_empty(self, windows.shape), windows).reshape(shape)


def _counts_in(sizes, kernel, dilation, padding, stride):
    return window_counts(
        [size + 2 * pad for size, pad in zip(sizes, padding)], kernel, stride, dilation
    )


def _col2im_forward(self, output_size, kernel, dilation, padding, stride):
    counts = _counts_in(output_size, kernel, dilation, padding, stride)
    batch, channels = self.shape[0], self.shape[1] // product(kernel)
    padded = new_filled(
        self,
        (batch, channels, *(size + 2 * pad for size, pad in zip(output_size, padding))),
        dtype=accumulate_dtype(self.dtype),
    )
    windows = self.reshape((batch, channels, *kernel, *counts))
    add_windows(padded, windows, kernel, stride, dilation, counts)
    return put(
        new_empty(self, (batch, channels, *output_size)), inside(padded, padding, output_size)
    )


_CONV_PARAMS = "kernel_size: int[], dilation: int[], padding: int[], stride: int[]"
op(
    f"im2col(self: Tensor, {_CONV_PARAMS}) -> Tensor",
    jvp="linear",
    forward=_im2col_forward,
    method=False,
    function=False,
    node="Im2ColBackward0",
    dtypes=FLOAT_COMPLEX,
    vjp={
        "self": lambda g, self_shape, kernel_size, dilation, padding, stride: ops.col2im(
            g, self_shape[2:], kernel_size, dilation, padding, stride
        )
    },
    doc="Return nn.functional.unfold of checked arguments.",
    ref=references.im2col,
    samples=lambda: [
        case(T(2, 3, 4, 5), (2, 3), (1, 1), (0, 0), (1, 1)),
        case(T(1, 2, 5, 4), (2, 2), (2, 1), (1, 2), (2, 3)),
    ],
)
op(
    f"col2im(self: Tensor, output_size: int[], {_CONV_PARAMS}) -> Tensor",
    jvp="linear",
    forward=_col2im_forward,
    method=False,
    function=False,
    node="Col2ImBackward0",
    dtypes=FLOAT_COMPLEX,
    vjp={
        "self": lambda g, kernel_size, dilation, padding, stride: ops.im2col(
            g, kernel_size, dilation, padding, stride
        )
    },
    doc="Return nn.functional.fold of checked arguments.",
    ref=references.col2im,
    samples=lambda: [
        case(T(2, 18, 9), (4, 5), (2, 3), (1, 1), (0, 0), (1, 1)),
        case(T(1, 8, 9), (5, 4), (2, 2), (2, 1), (1, 2), (2, 3)),
    ],
)


def _unfold(self, kernel_size, dilation, padding, stride):
    kernel, dilation, padding, stride = _pairs(
        "unfold", kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride
    )
    shape = list(self.shape)
    if len(shape) not in (3, 4) or 0 in shape[-3:]:
        raise RuntimeError(
            f"Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and "
            f"other non-zero dimensions for input, but got: {shape}"
        )
    counts = _counts_in(shape[-2:], kernel, dilation, padding, stride)
    if min(counts) < 1:
        raise RuntimeError(
            f"Given input with spatial size {tuple(shape[-2:])}, kernel_size={kernel}, "
            f"dilation={dilation}, padding={padding}, stride={stride}, calculated shape of the "
            f"array of sliding blocks as {counts}, but its components must be at least one."
        )
    require("im2col_out_cpu", BOOL | FLOAT_COMPLEX, self)
    if len(shape) == 4:
        return ops.im2col(self, kernel, dilation, padding, stride)
    return ops.im2col(self.unsqueeze(0), kernel, dilation, padding, stride).squeeze(0)


op(
    "unfold(self: Tensor, kernel_size: int[], dilation: int[] = 1, padding: int[] = 0, "
    "stride: int[] = 1) -> Tensor",
    composite=_unfold,
    method=False,
    namespace="functional",
    doc="Return the elements of every sliding window as a column.\n\n"
    "Shape: (n, c, h, w) gives (n, c * kernel elements, windows); n may be missing.",
    dtypes=BOOL | FLOAT_COMPLEX,
    ref=references.unfold,
    samples=lambda: [
        case(T(2, 3, 4, 5), (2, 3)),
        case(T(2, 4, 5), 2, 1, 1, 2),
        case(T(1, 2, 5, 5), 2, dilation=2, padding=(1, 0), stride=(2, 1)),
        case(T(0, 1, 3, 3), 2),
    ],
)


def _fold(self, output_size, kernel_size, dilation, padding, stride):
    size, kernel, dilation, padding, stride = _pairs(
        "fold",
        output_size=output_size,
        kernel_size=kernel_size,
        dilation=dilation,
        padding=padding,
        stride=stride,
    )
    shape = list(self.shape)
    if len(shape) not in (2, 3) or 0 in shape[-2:]:
        raise RuntimeError(
            f"Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch "
            f"size and non-zero dimensions for input, but got: {shape}"
        )
    if shape[-2] % product(kernel):
        raise RuntimeError(
            f"Expected size of input's dimension 1 to be divisible by the product of kernel_size, "
            f"but got input.size(1)={shape[-2]} and kernel_size={kernel}."
        )
    counts = _counts_in(size, kernel, dilation, padding, stride)
    if shape[-1] != product(counts) or min(counts) < 1:
        raise RuntimeError(
            f"Given output_size={size}, kernel_size={kernel}, dilation={dilation}, "
            f"padding={padding}, stride={stride}, expected size of input's dimension 2 to match "
            f"the calculated number of sliding blocks {counts[0]} * {counts[1]} = "
            f"{product(counts)}, but got input.size(2)={shape[-1]}."
        )
    require("col2im_out_cpu", BOOL | FLOAT_COMPLEX, self)
    if len(shape) == 3:
        return ops.col2im(self, size, kernel, dilation, padding, stride)
    return ops.col2im(self.unsqueeze(0), size, kernel, dilation, padding, stride).squeeze(0)


op(
    "fold(self: Tensor, output_size: int[], kernel_size: int[], dilation: int[] = 1, "
    "padding: int[] = 0, stride: int[] = 1) -> Tensor",
    composite=_fold,
    method=False,
    namespace="functional",
    doc="Return images that columns of window elements are added into, where unfold takes them.\n\n"
    "Shape: (n, c * kernel elements, windows) gives (n, c, *output_size); n may be missing.",
    dtypes=BOOL | FLOAT_COMPLEX,
    ref=references.fold,
    samples=lambda: [
        case(T(2, 18, 9), (4, 5), (2, 3)),
        case(T(8, 9), (4, 5), 2, 1, 1, 2),
        case(T(1, 8, 6), 5, 2, dilation=2, padding=(1, 0), stride=(2, 2)),
        case(T(0, 4, 4), 3, 2),
    ],
)
