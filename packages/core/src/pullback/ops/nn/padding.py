"""Padding of dims: with a constant, reflected, replicated or circular."""

from pullback.ops.rules.arguments import check_sequence, check_str, integers
from pullback.ops.rules.dtypes import accumulate_dtype, require
from pullback.ops.table.primitives_api import new_empty, new_filled, put
from pullback.ops.table.samples import T, case, references_of
from pullback.ops.table.schema import ALL, BOOL, NUMBERS, op, ops

references = references_of("padding")


def _ends(pad):
    """Return the (before, after) of each dim, the last dim first."""
    return list(zip(pad[::2], pad[1::2]))


def _check_pad(self, pad, name):
    check_sequence(pad, name, "pad", 2)
    return integers(pad, name, "pad")


# -- a constant ------------------------------------------------------------------------------------


def _constant_forward(self, pad, value):
    pad = _check_pad(self, pad, "constant_pad_nd")
    if len(pad) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(pad)}")
    if len(pad) > 2 * self.ndim:
        raise RuntimeError(
            f"Length of pad should be no more than twice the number of dimensions "
            f"of the input. Pad length is {len(pad)} while the input has "
            f"{self.ndim} dimensions."
        )
    if isinstance(value, complex) and not self.dtype.is_complex:
        raise RuntimeError("value cannot be converted to type double without overflow")
    shape = list(self.shape)
    moves = []
    for dim, (before, after) in zip(range(self.ndim - 1, -1, -1), _ends(pad)):
        kept = shape[dim] + min(before, 0) + min(after, 0)
        if kept < 0:
            raise RuntimeError(
                f"narrow(): length must be non-negative: padding {before} and "
                f"{after} leaves nothing of dimension {dim} of {list(self.shape)}"
            )
        moves.append((dim, max(before, 0), max(-before, 0), kept))
        shape[dim] += before + after
    out = new_filled(self, shape, value)
    inner = out
    for dim, target, source, length in moves:
        inner = ops.narrow(inner, dim, target, length)
        self = ops.narrow(self, dim, source, length)
    put(inner, self)
    return out


op(
    "constant_pad_nd(self: Tensor, pad: int[], value: Scalar = 0) -> Tensor",
    forward=_constant_forward,
    method=False,
    vjp={"self": lambda g, pad: ops.constant_pad_nd(g, [-size for size in pad], 0)},
    doc="Return the tensor with a constant around it; negative padding removes elements.\n\n"
    "`pad` holds (before, after) of the last dim, then of the one before it, and so on.",
    dtypes=ALL,
    ref=references.constant_pad_nd,
    samples=lambda: [
        case(T(2, 3), (1, 2)),
        case(T(2, 3), (1, 0, 2, 1), 1),
        case(T(2, 3), (-1, 1), 1),
        case(T(2, 3), (0, 0, -1, -1)),
        case(T(3), (-2, -1)),
        case(T(), ()),
        case(T(0, 2), (1, 1, 1, 1), 1),
        case(T(2, 3), (0, 0)),
    ],
)


# -- the tensor's own elements ---------------------------------------------------------------------

# A run is consecutive elements of the result: (target, source, length, step). They come from the
# elements from ``source`` on, from the same in reverse (step -1), or from that one alone (step 0).


def _parts(size, before, after):
    """Yield the bounds of the parts before, in and after a dim padded to before + size + after."""
    for low, high in ((-before, 0), (0, size), (size, size + after)):
        low, high = max(low, -before), min(high, size + after)
        yield low, max(low, high)


def _reflected(size, before, after):
    (a, b), (c, d), (e, f) = _parts(size, before, after)
    last = size - 1
    return (
        (a + before, 1 - b, b - a, -1),
        (c + before, c, d - c, 1),
        (e + before, 2 * last - f + 1, f - e, -1),
    )


def _replicated(size, before, after):
    (a, b), (c, d), (e, f) = _parts(size, before, after)
    return (a + before, 0, b - a, 0), (c + before, c, d - c, 1), (e + before, size - 1, f - e, 0)


def _wrapped(size, before, after):
    """torch cuts off first and repeats what is left."""
    start, kept = max(-before, 0), size + min(before, 0) + min(after, 0)
    before, end = max(before, 0), kept + max(after, 0)
    low = -before
    while low < end:
        first = low % kept
        length = min(kept - first, end - low)
        yield low + before, start + first, length, 1
        low += length


_SOURCES = {"reflect": _reflected, "replicate": _replicated, "circular": _wrapped}


def _runs(shape, pad, mode):
    """Return each padded dim, its new size, and the runs that it consists of."""
    return [
        (
            dim,
            shape[dim] + before + after,
            [run for run in _SOURCES[mode](shape[dim], before, after) if run[2]],
        )
        for dim, (before, after) in zip(range(len(shape) - 1, -1, -1), _ends(pad))
        if before or after
    ]


def _mirror_forward(self, pad, mode):
    out = self
    for dim, size, runs in _runs(self.shape, pad, mode):
        grown = new_empty(self, (*out.shape[:dim], size, *out.shape[dim + 1 :]))
        for target, source, length, step in runs:
            target_part = ops.narrow(grown, dim, target, length)
            part = ops.narrow(out, dim, source, length if step else 1)
            if step <= 0:
                part = (
                    ops.flip(part, (dim,)) if step else ops.expand(part, tuple(target_part.shape))
                )
            put(target_part, part)
        out = grown
    return put(new_empty(self, self.shape), self) if out is self else out


def _mirror_backward(self, sizes, pad, mode):
    """Add every element to where it came from."""
    out = self.to(accumulate_dtype(self.dtype))
    for dim, _, runs in reversed(_runs(sizes, pad, mode)):
        shrunk = new_filled(out, (*out.shape[:dim], sizes[dim], *out.shape[dim + 1 :]))
        for target, source, length, step in runs:
            part = ops.narrow(out, dim, target, length)
            if step <= 0:
                part = ops.flip(part, (dim,)) if step else ops.sum(part, dim, keepdim=True)
            ops.narrow(shrunk, dim, source, length if step else 1).add_(part)
        out = shrunk
    return out.to(self.dtype) if out is not self else put(new_empty(self, self.shape), self)


_NODES = {"reflect": "ReflectionPad", "replicate": "ReplicationPad", "circular": "CircularPad"}
# Shape, padding, shape of the result.
_MIRRORS = [
    ((2, 4), (1, 2), (2, 7)),
    ((1, 3, 4), (1, 2, 2, 0), (1, 5, 7)),
    ((2, 3), (-1, 1), (2, 3)),
    ((1, 4, 4), (-1, -1, 1, -1), (1, 4, 2)),
]
op(
    "pad_mirrored(self: Tensor, pad: int[], mode: str) -> Tensor",
    jvp="linear",
    forward=_mirror_forward,
    method=False,
    function=False,
    node=lambda pad, mode: f"{_NODES[mode]}{len(pad) // 2}DBackward0",
    vjp={
        "self": lambda g, self_shape, pad, mode: ops.pad_mirrored_backward(g, self_shape, pad, mode)
    },
    doc="Return nn.functional.pad of checked arguments, with the tensor's own elements.",
    samples=lambda: [case(T(*shape), pad, mode) for mode in _SOURCES for shape, pad, _ in _MIRRORS],
    ref=references.pad_mirrored,
)
op(
    "pad_mirrored_backward(self: Tensor, sizes: int[], pad: int[], mode: str) -> Tensor",
    jvp="linear",
    forward=_mirror_backward,
    method=False,
    function=False,
    dtypes=NUMBERS,
    node=lambda pad, mode: f"{_NODES[mode]}{len(pad) // 2}DBackwardBackward0",
    vjp={"self": lambda g, pad, mode: ops.pad_mirrored(g, pad, mode)},
    doc="Return the derivative of pad_mirrored times self.",
    ref=references.pad_mirrored_backward,
    samples=lambda: [
        case(T(*made), shape, pad, mode) for mode in _SOURCES for shape, pad, made in _MIRRORS
    ],
)


def _check_reflected(self, dim, before, after):
    if max(before, after) >= self.shape[dim]:
        number = 4 + 2 * (self.ndim - 1 - dim)
        raise RuntimeError(
            f"Argument #{number}: Padding size should be less than the "
            f"corresponding input dimension, but got: padding ({before}, {after}) "
            f"at dimension {dim} of input {list(self.shape)}"
        )


def _check_mirrored(self, pad, mode):
    """The rules of the three modes; they differ a little."""
    rank, shape = len(pad) // 2, self.shape
    if rank < 1 or self.ndim not in (rank + 1, rank + 2):
        raise NotImplementedError(
            f"Padding size {len(pad)} is not supported for {self.ndim}D input tensor."
        )
    if mode != "circular" and 0 in shape[-rank - 1 :]:
        raise RuntimeError(
            f"Expected {rank + 1}D or {rank + 2}D (batch mode) tensor with possibly "
            f"0 batch size and other non-zero dimensions for input, but got: "
            f"{list(shape)}"
        )
    for dim, (before, after) in zip(range(self.ndim - 1, -1, -1), _ends(pad)):
        total, kept = shape[dim] + before + after, shape[dim] + min(before, 0) + min(after, 0)
        if mode == "circular" and (max(before, after) > shape[dim] or kept <= 0 < total):
            raise RuntimeError("Padding value causes wrapping around more than once.")
        if total < 0:
            raise RuntimeError(
                f"Negative padding value is resulting in an empty dimension: padding"
                f" ({before}, {after}) at dimension {dim} of input {list(shape)}"
            )
        if mode == "reflect":
            _check_reflected(self, dim, before, after)
    if mode != "circular":
        what = {"reflect": "reflection", "replicate": "replication"}[mode]
        require(f"{what}_pad{rank}d", NUMBERS, self)


def _pad(self, pad, mode, value):
    pad = _check_pad(self, pad, "pad")
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(pad) > 2 * self.ndim:
        raise RuntimeError(
            f"Padding length should be less than or equal to two times the input "
            f"dimension but got padding length {len(pad)} and input of dimension "
            f"{self.ndim}"
        )
    if value is not None and not isinstance(value, (int, float)):
        raise TypeError(
            f"pad(): argument 'value' (position 4) must be float, not {type(value).__name__}"
        )
    if mode == "constant":
        return ops.constant_pad_nd(self, pad, 0 if value is None else value)
    check_str(mode, "pad", "mode")
    if mode not in _SOURCES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    _check_mirrored(self, pad, mode)
    return ops.pad_mirrored(self, pad, mode)


def _float32_of_mirrored(self, pad, mode, value):
    """Return the policy of autocast, as in torch."""
    return "float32" if mode == "replicate" or (mode == "reflect" and len(pad) < 6) else None


op(
    "pad(self: Tensor, pad: int[], mode: str = 'constant', value: float? = None) -> Tensor",
    autocast=(_float32_of_mirrored, None),
    composite=_pad,
    method=False,
    namespace="functional",
    doc="Return the tensor with elements around it: a constant, or its own in mode 'reflect', "
    "'replicate' or 'circular'.\n\n`pad` holds (before, after) of the last dim, then of the one "
    "before it; negative sizes remove elements. The other modes pad the last 1 to 3 dims.",
    dtypes=ALL,
    ref=references.pad,
    samples=lambda: [
        case(T(2, 3), (1, 2)),
        case(T(2, 3), (1, 0, 2, -1), "constant", 2.0),
        case(T(2, 4), (2, 1), "reflect", only=NUMBERS),
        case(T(1, 2, 3, 3), (2, 1, 0, 1), "replicate", only=NUMBERS),
        case(T(2, 3), (3, 1), "circular", only=BOOL | NUMBERS),
        case(T(1, 2, 2, 3, 2), (1, 1, 1, 0, 0, 1), "reflect", only=NUMBERS),
        case(T(0, 2, 3), (1, 1), "reflect", only=NUMBERS),
    ],
)
