"""Fractional max pooling: windows of one size at steps that are drawn.

Source: B. Graham, "Fractional Max-Pooling", 2014, section 2; the steps as torch draws them.
"""

from typing import Any

from pullback.ops.rules.arguments import integers
from pullback.ops.rules.dtypes import require
from pullback.ops.rules.shapes import product
from pullback.ops.table.kinks import kink
from pullback.ops.table.primitives_api import new_empty
from pullback.ops.table.samples import T, at, case, fixed, references_of
from pullback.ops.table.schema import FLOATING, op, ops

references = references_of("pooling")


def _rows(self, rank):
    return self.reshape((*self.shape[: self.ndim - rank], product(self.shape[self.ndim - rank :])))


op(
    "fractional_max_pool(self: Tensor, indices: Tensor, rank: int) -> Tensor",
    forward=lambda self, indices, rank: ops.max_pool_double_backward(self, indices, rank),
    method=False,
    function=False,
    node=lambda rank: f"FractionalMaxPool{rank}DBackward0",
    jvp="linear",
    vjp={
        "self": lambda g, indices, self_shape, rank: ops.max_pool_backward(
            g, indices, self_shape[-rank:]
        )
    },
    doc="Return the elements of planes at the indices of the largest ones.",
    dtypes=FLOATING,
    samples=lambda: [
        case(T(2, 5, 4), at(2, 2, 3, high=20), 2),
        case(T(1, 2, 3, 2), at(1, 2, 1, 2, high=12), 3),
    ],
    ref=references.fractional_max_pool_primitive,
)


def _sizes(value, rank, name, argument):
    found = integers(value, name, argument)
    if len(found) not in (1, rank):
        of = "Ints" if rank == 2 else "three Ints"
        raise RuntimeError(f"{name}: {argument} must either be a single Int or tuple of {of}")
    return found * rank if len(found) == 1 else found


_DIMS = {2: ("height", "width"), 3: ("time", "height", "width")}


def _output_size(self, rank, output_size, output_ratio, name):
    if output_size is None:
        if output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
        ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * rank
        output_size = [int(size * r) for size, r in zip(self.shape[-rank:], ratios)]
    return _sizes(output_size, rank, name, "output_size")


def _check(self, rank, kernel, counts, name):
    shape = list(self.shape)
    if len(shape) not in (rank + 1, rank + 2):
        raise RuntimeError(
            f"{name}(): Expected {rank + 1}D or {rank + 2}D tensor, but got: {shape}"
        )
    for dim in range(len(shape) - rank - 1, len(shape)):
        if not shape[dim]:
            raise RuntimeError(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but got"
                f"{shape} with dimension {dim} being empty."
            )
    place = f"{name}_out" if rank == 3 else name
    for word, size, length, count in zip(_DIMS[rank], shape[-rank:], kernel, counts):
        # As in torch, volumes need one more.
        if count + length - 1 > size - (rank == 3):
            raise RuntimeError(
                f"{place}(): pool {word} {length} too large relative to input {word} {size}"
            )


def _check_samples(self, samples, batch, channels, rank):
    if samples.dtype != self.dtype:
        raise RuntimeError("Expect _random_samples to have the same dtype as input")
    if samples.ndim != 3:
        raise RuntimeError(f"Expect _random_samples to have 3 dimensions, got {samples.ndim}")
    if samples.shape[0] < batch:
        raise RuntimeError("Expect _random_samples.size(0) no less then input batch size.")
    if samples.shape[1] != channels:
        raise RuntimeError("Expect _random_samples.size(1) equals to input channel size.")
    if samples.shape[2] != rank:
        raise RuntimeError(
            f"Expect _random_samples.size(2) equals to {rank}; got {samples.shape[2]}."
        )


def _starts(sample, size, length, count):
    """Return where the windows of a dim begin, (n, c, count), for numbers (n, c) in [0, 1)."""
    last = size - length
    if count == 1:
        return ops.full_like(sample, last, dtype=ops.arange_like(sample, 0).dtype).unsqueeze(-1)
    alpha = last / (count - 1)
    numbers = ops.arange_like(sample, count)
    sample = sample.unsqueeze(-1)
    steps = ((numbers + sample) * alpha).to(numbers.dtype) - (sample * alpha).to(numbers.dtype)
    return ops.where(numbers == count - 1, last, steps)


def _window_indices(starts, kernel, sizes):
    """Return the index in its plane of each element of each window: (n, c, windows, elements)."""
    rank = len(sizes)
    total: Any = None
    for dim, (start, length, size) in enumerate(zip(starts, kernel, sizes)):
        offsets = ops.arange_like(start, length)
        lead, count = start.shape[:2], start.shape[2]
        along = (start.unsqueeze(-1) + offsets).reshape(
            (*lead, *_alone(dim, rank, count), *_alone(dim, rank, length))
        )
        total = along if total is None else total * size + along
    counts, elements = total.shape[2 : 2 + rank], total.shape[2 + rank :]
    return total.reshape((*total.shape[:2], product(counts), product(elements)))


def _alone(dim, rank, size):
    return [size if dim == other else 1 for other in range(rank)]


def _fractional(rank, both):
    name = f"fractional_max_pool{rank}d"

    def run(self, kernel_size, output_size, output_ratio, return_indices, _random_samples):
        counts = _output_size(self, rank, output_size, output_ratio, name)
        kernel = _sizes(kernel_size, rank, name, "kernel_size")
        _check(self, rank, kernel, counts, name)
        require(name, FLOATING, self)
        batched = self.ndim == rank + 2
        planes = self if batched else self.unsqueeze(0)
        batch, channels, *sizes = planes.shape
        if _random_samples is None:
            samples = ops.uniform_(new_empty(planes.detach(), (batch, channels, rank)), 0, 1)
        else:
            _check_samples(self, _random_samples, batch, channels, rank)
            samples = ops.narrow(_random_samples.detach(), 0, 0, batch)
        # In images the first number is that of the width.
        order = range(rank) if rank == 3 else (1, 0)
        starts = [
            _starts(ops.select(samples, 2, number), size, length, count)
            for number, size, length, count in zip(order, sizes, kernel, counts)
        ]
        windows = _window_indices(starts, kernel, sizes)
        flat = windows.reshape((batch, channels, windows.shape[2] * windows.shape[3]))
        found = ops.gather(_rows(planes.detach(), rank), -1, flat).reshape(windows.shape)
        best = ops.argmax(found, -1, True) if found.numel() else ops.narrow(windows, -1, 0, 1)
        indices = ops.gather(windows, -1, best).reshape((batch, channels, *counts))
        out = ops.fractional_max_pool(planes, indices, rank)
        if not batched:
            out, indices = out.squeeze(0), indices.squeeze(0)
        return (out, indices) if both or return_indices else out

    return run


_SIZES = {2: (5, 6), 3: (5, 4, 6)}
_DRAWN = {2: (0.3, 0.7, 0.1, 0.45), 3: (0.3, 0.7, 0.1, 0.45, 0.6, 0.2)}


def _samples(rank):
    drawn = fixed(_DRAWN[rank], shape=(1, 2, rank))._replace(constant=True)
    size = _SIZES[rank]
    return [
        case(T(1, 2, *size), 2, (3, 4) if rank == 2 else (3, 2, 4), _random_samples=drawn),
        case(T(2, *size), (1, 2, 3)[:rank], 2, None, _random_samples=drawn),
        case(T(1, 2, *size), 2, None, (0.5,) * rank, _random_samples=drawn),
    ]


# The last window of each dim ends with it.
_LAST = [[1.0, 2.0, 2.0]]
_BELOW = [[0.0, 0.0, 0.0], [1.0, 2.0, 2.0]]
_KINKS = {
    2: kink([_LAST], (1, 2), 1, to=[[[0.0, 1.0, 0.0]]]),
    3: kink(
        [[_BELOW, _BELOW]],
        (1, 1, 2),
        1,
        to=[[[[0.0] * 3] * 2, [[0.0] * 3, [0.0, 1.0, 0.0]]]],
    ),
}
for _rank in (2, 3):
    for _suffix, _both in (("", False), ("_with_indices", True)):
        op(
            f"fractional_max_pool{_rank}d{_suffix}(self: Tensor, kernel_size: int[], "
            "output_size: any = None, output_ratio: any = None, return_indices: bool = False, "
            "_random_samples: Tensor? = None) -> any",
            composite=_fractional(_rank, _both),
            autocast=("float32", None),
            method=False,
            namespace="functional",
            dtypes=FLOATING,
            doc="Return the largest elements of windows at steps that are drawn"
            f"{', and their indices' if _both else ', with indices if return_indices'}.\n\n"
            "Shape: (n, c, ...), where n may be missing. The size of the output is `output_size`, "
            "or `output_ratio` in (0, 1) of the input's. `_random_samples` (n, c, dims) in [0, 1) "
            "takes the place of what is drawn.\n\nDerivative: to the first of equal elements.",
            ref=references.fractional_max_pool.of(_rank, _both),
            samples=_samples(_rank),
            kinks=[_KINKS[_rank]],
        )
