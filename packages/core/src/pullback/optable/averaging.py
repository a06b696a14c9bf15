"""Pooling: the mean of windows, and the p-norm.

Sums are taken one dim after the other: a window of k x k costs 2 k passes and not k * k.
"""

from pullback.optable import references_windows as references
from pullback.optable.axes import accumulate_dtype, require
from pullback.optable.below import new_empty, new_filled, put
from pullback.optable.cases import T, case
from pullback.optable.pooling import (
    SIZES,
    Slide,
    adaptive_samples,
    adaptive_windows,
    every,
    slides_of,
    window_place,
)
from pullback.optable.schema import BOOL, FLOATING, op, ops
from pullback.optable.windows import product

_AVERAGED = FLOATING | 0x020    # and int64, as in torch

# -- the mean --------------------------------------------------------------------------------------

def _clipped(window, size):
    """Return windows as (start, end) inside the dim."""
    if not isinstance(window, Slide):
        return window
    starts = [number * window.stride - window.pad for number in range(window.count)]
    return [(max(start, 0), min(start + window.kernel, size)) for start in starts]


def _sum_along(self, dim, window):
    """Add the elements of each window: place by place, or window by window if those are fewer."""
    size = self.shape[dim]
    if isinstance(window, Slide) and window.kernel <= window.count:
        out = new_filled(self, (*self.shape[:dim], window.count, *self.shape[dim + 1:]))
        for number in range(window.kernel):
            low, count, start = window_place(window, number, size)
            if count > 0:
                ops.narrow(out, dim, low, count).add_(
                    every(self, dim, start, count, window.stride))
        return out
    spans = _clipped(window, size)
    out = new_empty(self, (*self.shape[:dim], len(spans), *self.shape[dim + 1:]))
    for number, (start, end) in enumerate(spans):
        put(ops.narrow(out, dim, number, 1),
            ops.sum(ops.narrow(self, dim, start, end - start), dim, True))
    return out


def _spread_along(self, dim, window, size):
    """Add each element to all of its window: the adjoint of _sum_along."""
    out = new_filled(self, (*self.shape[:dim], size, *self.shape[dim + 1:]))
    if isinstance(window, Slide) and window.kernel <= window.count:
        for number in range(window.kernel):
            low, count, start = window_place(window, number, size)
            if count > 0:
                every(out, dim, start, count, window.stride).add_(
                    ops.narrow(self, dim, low, count))
        return out
    for number, (start, end) in enumerate(_clipped(window, size)):
        ops.narrow(out, dim, start, end - start).add_(ops.narrow(self, dim, number, 1))
    return out


def _divided(self, divisor):
    """Divide by one number, or by the product of one number per place of each dim."""
    import pullback
    if not isinstance(divisor, tuple):
        return _quotient(self, divisor)
    rank = len(divisor)
    if all(len(set(sizes)) < 2 for sizes in divisor):
        return _quotient(self, product([sizes[0] for sizes in divisor if sizes]))
    area = 1
    for dim, sizes in enumerate(divisor):
        shape = [1] * rank
        shape[dim] = len(sizes)
        area = pullback.tensor(sizes, dtype=self.dtype, device=self.device).reshape(shape) * area
    return _quotient(self, area)


def _quotient(self, divisor):
    """Integers are divided as C does it, towards 0."""
    if self.dtype.is_floating_point:
        return self / divisor
    negative = (self < 0) ^ (divisor < 0) if hasattr(divisor, "shape") or divisor >= 0 else (
        self >= 0)
    size = ops.floor_divide(ops.abs(self), abs(divisor))
    return ops.where(negative, -size, size)


def _mean_forward(self, windows, divisor, node):
    out = self.to(accumulate_dtype(self.dtype))
    for dim, window in reversed(list(enumerate(windows, self.ndim - len(windows)))):
        out = _sum_along(out, dim, window)
    return _divided(out, divisor).to(self.dtype)


def _mean_backward(self, sizes, windows, divisor, node):
    out = _divided(self.to(accumulate_dtype(self.dtype)), divisor)
    for dim, window in enumerate(windows, self.ndim - len(windows)):
        out = _spread_along(out, dim, window, sizes[dim])
    return out.to(self.dtype)


_MEANS = [((2, 5), (Slide(3, 3, 2, 1, 1),), ((2, 3, 2),), (2, 3)),
          ((1, 4, 5), (Slide(2, 2, 2, 0, 1), ((0, 2), (1, 4), (3, 5))), 6, (1, 2, 3)),
          ((2, 6), (Slide(2, 4, 2, 0, 1),), ((4, 4),), (2, 2))]
op("mean_windows(self: Tensor, windows: any, divisor: any, node: str) -> Tensor",
   jvp="linear",
   forward=_mean_forward, method=False, function=False, node=lambda node: node,
   vjp={"self": lambda g, self_shape, windows, divisor, node: ops.mean_windows_backward(
       g, self_shape, windows, divisor, node)},
   doc="Return the sums of windows of the last dims, divided by given numbers.",
   dtypes=_AVERAGED, ref=references.mean_windows,
   samples=[case(T(*shape), windows, divisor, "AvgPool2DBackward0")
            for shape, windows, divisor, _ in _MEANS])
op("mean_windows_backward(self: Tensor, sizes: int[], windows: any, divisor: any, node: str) "
   "-> Tensor",
   jvp="linear", forward=_mean_backward, method=False, function=False,
   node=lambda node: node.replace("Backward0", "BackwardBackward0"),
   vjp={"self": lambda g, windows, divisor, node: ops.mean_windows(g, windows, divisor, node)},
   doc="Return the adjoint of mean_windows.", dtypes=FLOATING,
   ref=references.mean_windows_backward,
   samples=[case(T(*made), shape, windows, divisor, "AvgPool2DBackward0")
            for shape, windows, divisor, made in _MEANS])


# -- avg_pool --------------------------------------------------------------------------------------

def _areas(windows, sizes, include):
    """Return how many places each window counts: those inside, or in the padding too."""
    areas = []
    for window, size in zip(windows, sizes):
        more = window.pad if include else 0
        areas.append(tuple([end - start for start, end in _clipped(
            window._replace(pad=window.pad - more), size + 2 * more)]))
    return tuple(areas)


def _check_volume(self, windows):
    """Of volumes, but not of images, torch wants elements for a whole window."""
    sizes = self.shape[self.ndim - len(windows):]
    if len(windows) == 3 and any(size < w.kernel for size, w in zip(sizes, windows)):
        raise RuntimeError(f"input image (T: {sizes[0]} H: {sizes[1]} W: {sizes[2]}) smaller than "
                           f"kernel size (kT: {windows[0].kernel} kH: {windows[1].kernel} kW: "
                           f"{windows[2].kernel})")


def _avg_pool(rank):
    name = f"avg_pool{rank}d"
    node = f"AvgPool{max(rank, 2)}DBackward0"

    def run(self, kernel_size, stride, padding, ceil_mode, count_include_pad,
            divisor_override=None):
        windows = slides_of(self, name, kernel_size, stride, padding, 1, ceil_mode)
        _check_volume(self, windows)
        if divisor_override == 0:
            raise RuntimeError("divisor must be not zero")
        require(name, _AVERAGED, self)
        divisor = divisor_override or _areas(windows, self.shape[-rank:], count_include_pad)
        return ops.mean_windows(self, windows, divisor, node)
    return run


def _average_samples(rank):
    size, kernel = SIZES[rank], (3, 2, 2)[:rank]
    made = [case(T(2, 1, *size), 2), case(T(2, *size), kernel, (2, 1, 2)[:rank], 1),
            case(T(1, 2, *size), 2, 2, 1, True), case(T(1, 1, *size), 3, 2, 1, True, False),
            case(T(1, 2, *size), min(size), 1), case(T(0, 2, *size), 2)]
    return made + ([case(T(1, 1, *size), 2, divisor_override=3)] if rank > 1 else [])


for _rank in (1, 2, 3):
    op(f"avg_pool{_rank}d(self: Tensor, kernel_size: int[], stride: int[]? = None, "
       "padding: int[] = 0, ceil_mode: bool = False, count_include_pad: bool = True"
       f"{', divisor_override: int? = None' if _rank > 1 else ''}) -> Tensor",
       composite=_avg_pool(_rank), method=False, dtypes=_AVERAGED,
       namespace=("", "functional") if _rank == 1 else "functional",
       doc="Return the mean of each window.\n\nShape: (n, c, ...), where n may be missing. Padding "
           "counts as zeros, or not at all without count_include_pad.",
       samples=_average_samples(_rank), ref=references.avg_pool(_rank))


# -- adaptive pooling ------------------------------------------------------------------------------

def _adaptive_avg_pool(rank):
    name = f"adaptive_avg_pool{rank}d"
    node = f"AdaptiveAvgPool{max(rank, 2)}DBackward0"

    def run(self, output_size):
        windows = adaptive_windows(self, name, output_size)
        require(name, FLOATING, self)
        areas = [[end - start for start, end in _clipped(window, size)]
                 for window, size in zip(windows, self.shape[-rank:])]
        return ops.mean_windows(self, windows, tuple(map(tuple, areas)), node)
    return run


for _rank in (1, 2, 3):
    op(f"adaptive_avg_pool{_rank}d(self: Tensor, output_size: any) -> Tensor",
       composite=_adaptive_avg_pool(_rank), method=False, dtypes=FLOATING,
       namespace=("", "functional") if _rank == 1 else "functional",
       doc="Return the means of windows that give an output of these sizes; None keeps a size.",
       samples=adaptive_samples(_rank), ref=references.adaptive_avg_pool(_rank))


# -- lp_pool ---------------------------------------------------------------------------------------

def _lp_pool(rank):
    name = f"avg_pool{rank}d"

    def run(self, norm_type, kernel_size, stride, ceil_mode):
        mean = getattr(ops, name)(self ** norm_type, kernel_size, stride, 0, ceil_mode)
        many = isinstance(kernel_size, (tuple, list))
        count = product(kernel_size if many else (kernel_size,))
        if len(kernel_size if many else ()) < 2:
            count **= rank
        return (ops.sign(mean) * ops.relu(ops.abs(mean)) * count) ** (1.0 / norm_type)
    return run


for _rank in (1, 2, 3):
    _size = SIZES[_rank]
    op(f"lp_pool{_rank}d(self: Tensor, norm_type: float, kernel_size: int[], "
       "stride: int[]? = None, ceil_mode: bool = False) -> Tensor", composite=_lp_pool(_rank),
       method=False, namespace="functional", dtypes=BOOL | _AVERAGED,
       doc="Return the p-norm of each window: (sum of x ** p) ** (1 / p).",
       samples=[case(T(2, 1, *_size, low=0.5, high=2), 2, 2),
                case(T(2, *_size, low=0.5, high=2), 3.0, (3, 2, 2)[:_rank], 1),
                case(T(1, 1, *_size, low=0.5, high=2), 1, 2, 2, True)],
       ref=references.lp_pool(_rank))
