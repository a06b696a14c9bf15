"""Pooling: windows of the last dims, and the largest element of each.

It is searched one dim after the other: a window of k x k costs 2 k passes and not k * k.
"""

import math
from collections import namedtuple

from pullback.optable import references_windows as references
from pullback.optable.axes import require
from pullback.optable.below import new_empty, new_filled, put, run_slot
from pullback.optable.cases import KINKS, T, at, case, fixed
from pullback.optable.schema import FLOATING, INTEGRAL, op, ops
from pullback.optable.windows import integers, product

# The windows of one dim: `count` of them, each of `kernel` elements `dilation` apart, the first one
# beginning `pad` before the dim. Windows of other kinds are a tuple of (start, end).
Slide = namedtuple("Slide", "count kernel stride pad dilation")


def window_place(slide, number, size):
    """Return which windows have an element at this place inside the dim, and the first one's."""
    offset = number * slide.dilation - slide.pad
    low = max(-(offset // slide.stride), 0)
    high = min((size - 1 - offset) // slide.stride, slide.count - 1)
    return low, high - low + 1, low * slide.stride + offset


def every(self, dim, start, count, step):
    return ops.slice(self, dim, start, start + (count - 1) * step + 1, step)


# -- the largest element ---------------------------------------------------------------------------

def _better(value, best):
    """The first of equal elements stays, but the last NaN wins."""
    return (value > best) | (value != value) if value.dtype.is_floating_point else value > best


def _lowest(dtype):
    import pullback
    return -math.inf if dtype.is_floating_point else pullback.iinfo(dtype).min


def _select(self, dim, index):
    import pullback
    return ops.index_select(self, dim, pullback.tensor(index, dtype=pullback.int64,
                                                       device=self.device))


def _along(like, dim, shape, numbers, dtype):
    """Return numbers along a dim of a shape, written out: mixed strides would slow comparisons."""
    import pullback
    line = pullback.tensor(numbers, dtype=dtype, device=like.device)
    return put(new_empty(like, shape, dtype),
               line.reshape((-1, *[1] * (len(shape) - dim - 1))).expand(shape))


def _pick(found, state):
    """Take each part of what was found where its first part, the value, is better."""
    if state is None:
        return found
    better = _better(found[0], state[0])
    return [ops.where(better, new, old) for new, old in zip(found, state)]


def _with_ends(parts, dim, slide):
    """Return the parts with places before and after a dim, so that every window lies inside.

    There the values are the lowest. Before the dim the other parts are those of the first element
    that a window beginning there has inside, because they stay if no value is above the lowest.
    """
    size = parts[0].shape[dim]
    last = (slide.count - 1) * slide.stride - slide.pad + (slide.kernel - 1) * slide.dilation
    grown = []
    for part in parts:
        shape = (*part.shape[:dim], slide.pad + max(size, last + 1), *part.shape[dim + 1:])
        wide = new_filled(part, shape, 0 if grown else _lowest(part.dtype))
        put(ops.narrow(wide, dim, slide.pad, size), part)
        for before in range(1, slide.pad + 1 if grown else 1):
            put(ops.narrow(wide, dim, slide.pad - before, 1),
                ops.narrow(part, dim, min(-before % slide.dilation, size - 1), 1))
        grown.append(wide)
    return grown


def _first_inside(slide, size):
    """Return the number, in its window, of the first element inside the dim."""
    starts = [number * slide.stride - slide.pad for number in range(slide.count)]
    firsts = [max(-(start // slide.dilation), 0) for start in starts]
    return [first if start + first * slide.dilation < size else max(
        (size - 1 - start) // slide.dilation, 0) for start, first in zip(starts, firsts)]


def _max_slide(parts, dim, slide, kind):
    """Return the largest values of sliding windows along a dim.

    `parts` are the values and, of each dim done before, the number of the chosen element in its
    window. The result has one part more: the numbers of this dim.
    """
    size, state = parts[0].shape[dim], None
    last = (slide.count - 1) * slide.stride - slide.pad + (slide.kernel - 1) * slide.dilation
    inside = slide.pad == 0 and last < size
    parts = parts if inside else _with_ends(parts, dim, slide)
    for number in range(slide.kernel):
        found = [every(part, dim, number * slide.dilation, slide.count, slide.stride).contiguous()
                 for part in parts]
        shape = found[0].shape
        if number == 0 and not inside:
            found.append(_along(found[0], dim, shape, _first_inside(slide, size), kind))
        else:
            found.append(new_filled(found[0], shape, number, kind))
        state = _pick(found, state)
    return state


def _max_spans(parts, dim, spans, kind):
    """As _max_slide, of windows (start, end); shorter ones see their last element again."""
    state = None
    for number in range(max([end - start for start, end in spans], default=1)):
        numbers = [min(number, end - start - 1) for start, end in spans]
        index = [start + own for (start, _), own in zip(spans, numbers)]
        found = [_select(part, dim, index) for part in parts]
        state = _pick([*found, _along(found[0], dim, found[0].shape, numbers, kind)], state)
    return state


def _places(numbers, windows, sizes, dtype):
    """Turn the numbers of the chosen elements into one index into the plane."""
    import pullback
    index = None
    for dim, (number, window, size) in enumerate(zip(numbers, windows, sizes)):
        slide = isinstance(window, Slide)
        starts = [n * window.stride - window.pad for n in range(window.count)] if slide else [
            start for start, _ in window]
        line = pullback.tensor(starts, dtype=dtype, device=number.device)
        line = line.reshape((-1, *[1] * (len(sizes) - dim - 1)))
        place = number.to(dtype)
        if slide and window.dilation > 1:
            place = place * window.dilation
        place = place + line
        if slide and window.pad and window.dilation > 1:
            place = ops.clamp(place, 0, size - 1)   # a window may have no element inside
        index = place if index is None else index * size + place
    return index


def _length(span):
    return span[1] - span[0]


def _max_forward(self, windows, node):
    import pullback
    rank = len(windows)
    sizes = tuple(self.shape[self.ndim - rank:])
    shape = (*self.shape[:self.ndim - rank],
             *(w.count if isinstance(w, Slide) else len(w) for w in windows))
    values, found = new_empty(self, shape), new_empty(self, shape, pullback.int64)
    if not values.numel():
        return values, found
    longest = max([w.kernel if isinstance(w, Slide) else max(map(_length, w)) for w in windows])
    kind = pullback.uint8 if longest < 256 else pullback.int32
    parts = [self]
    for dim, window in reversed(list(enumerate(windows, self.ndim - rank))):
        run = _max_slide if isinstance(window, Slide) else _max_spans
        parts = run(parts, dim, window, kind)
    best, *numbers = parts
    return put(values, best), put(found, _places(numbers[::-1], windows, sizes, pullback.int64))


def _rows(self, rank):
    """Return the tensor with its last dims as one."""
    return self.reshape((*self.shape[:self.ndim - rank], product(self.shape[self.ndim - rank:])))


def _scatter_forward(self, indices, sizes):
    rank = len(sizes)
    lead = self.shape[:self.ndim - rank]
    out = new_filled(self, (*lead, product(sizes)))
    return ops.scatter_add_(out, -1, _rows(indices, rank), _rows(self, rank)).reshape(
        (*lead, *sizes))


op("max_windows(self: Tensor, windows: any, node: str) -> any", forward=_max_forward,
   method=False, function=False, node=lambda node: node,
   vjp={"self": lambda gs, self_shape, windows, out1: ops.scatter_planes(
       gs[0], out1, self_shape[-len(windows):])},
   doc="Return the largest elements of windows of the last dims, and their places in the plane.",
   dtypes=INTEGRAL | FLOATING, ref=references.max_windows,
   samples=[case(T(2, 5), (Slide(3, 3, 2, 1, 1),), "MaxPool2DWithIndicesBackward0"),
            case(T(2, 4, 5), (Slide(2, 2, 2, 0, 1), ((0, 2), (1, 4), (3, 5))), "Max")])
op("scatter_planes(self: Tensor, indices: Tensor, sizes: int[]) -> Tensor",
   forward=_scatter_forward, method=False, function=False, node="MaxPoolBackward0",
   vjp={"self": lambda g, indices, sizes: ops.gather_planes(g, indices, len(sizes))},
   doc="Return planes of zeros with elements added at indices, which count row by row.",
   samples=[case(T(2, 3), at(2, 3, high=5), (5,)), case(T(2, 2, 2), at(2, 2, 2, high=6), (2, 3))],
   ref=references.scatter_planes)
op("gather_planes(self: Tensor, indices: Tensor, rank: int) -> Tensor",
   forward=lambda self, indices, rank: ops.gather(
       _rows(self, rank), -1, _rows(indices, rank)).reshape(indices.shape),
   method=False, function=False, node="MaxPoolBackwardBackward0",
   vjp={"self": lambda g, indices, self_shape, rank: ops.scatter_planes(
       g, indices, self_shape[-rank:])},
   doc="Return the elements of planes at indices, which count row by row.",
   samples=[case(T(2, 5), at(2, 3, high=5), 1), case(T(2, 2, 3), at(2, 2, 2, high=6), 2)],
   ref=references.gather_planes)


# -- arguments -------------------------------------------------------------------------------------

_COUNTS = {1: "one int", 2: "two ints", 3: "three ints"}
_LETTERS = {1: "W", 2: "HW", 3: "THW"}


def spread(value, rank, name, argument):
    found = integers(value, name, argument)
    if len(found) not in (1, rank):
        if rank == 1:
            raise RuntimeError(f"{name}() argument '{argument}' should contain one int (got "
                               f"{len(found)}): it must be an int, list of ints, or tuple of ints "
                               f"of size 1 but got size {len(found)}")
        either = "either be omitted," if argument == "stride" else "either be"
        raise RuntimeError(f"{name}: {argument} must {either} a single int, or a tuple of "
                           f"{_COUNTS[rank]}")
    return found * rank if len(found) == 1 else found


def _listed(prefix, numbers):
    return " ".join(f"{prefix}{letter}: {number}"
                    for letter, number in zip(_LETTERS[len(numbers)], numbers))


def _check_numbers(name, kernel, stride, padding, dilation):
    one = len(kernel) == 1 and name.startswith("max")   # torch words these otherwise
    for what, prefix, numbers in (("kernel_size" if one else "kernel size", "k", kernel),
                                  ("stride", "d", stride), ("dilation", "dilation", dilation)):
        if what == "stride" and not all(numbers) and not one:
            raise RuntimeError("stride should not be zero")
        if min(numbers) <= 0:
            if one:
                raise RuntimeError(f"{name}() {what} must be greater than zero, but got "
                                   f"{numbers[0]}")
            if what == "kernel size" and not all(stride):
                raise RuntimeError("stride should not be zero")
            raise RuntimeError(f"{what} should be greater than zero, but got "
                               f"{_listed(prefix, numbers)}")
    for pad, size, step in zip(padding, kernel, dilation):
        if pad < 0:
            raise RuntimeError(f"{name}() padding must be non-negative, but got {pad}" if one else
                               f"pad must be non-negative, but got pad: {pad}")
        if pad > (size // 2 if one else ((size - 1) * step + 1) // 2):
            raise RuntimeError(
                f"{name}() padding should be at most half of kernel size, but got padding={pad} "
                f"and kernel_size={size}" if one else
                f"pad should be at most half of effective kernel size, but got pad={pad}, "
                f"kernel_size={size} and dilation={step}")
        if pad > size // 2:
            raise RuntimeError(f"pad should be smaller than or equal to half of kernel size, but "
                               f"got pad={pad} and kernel_size={size}")


def _check_input(self, rank, name):
    shape = list(self.shape)
    if len(shape) not in (rank + 1, rank + 2):
        raise RuntimeError(f"{name}: non-empty {rank + 1}D or {rank + 2}D (batch mode) tensor "
                           f"expected for input: Expected {rank + 1} to {rank + 2} dimensions, but "
                           f"got:{shape}")
    if 0 in shape[-rank - 1:]:
        raise RuntimeError(f"{name}: Expected {rank + 1}D or {rank + 2}D (batch mode) tensor with "
                           f"optional 0 dim batch size for input, but got:{shape}")


def slides_of(self, name, kernel_size, stride, padding, dilation, ceil_mode):
    """Check the arguments of a pooling op; return the windows of each dim."""
    rank = int(name.removesuffix("_with_indices")[-2])
    kernel = spread(kernel_size, rank, name, "kernel_size")
    empty = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    stride = kernel if empty else spread(stride, rank, name, "stride")
    padding = spread(padding, rank, name, "padding")
    dilation = spread(dilation, rank, name, "dilation")
    _check_input(self, rank, name)
    _check_numbers(name, kernel, stride, padding, dilation)
    sizes = self.shape[self.ndim - rank:]
    slides = []
    for size, length, step, pad, reach in zip(sizes, kernel, stride, padding, dilation):
        room = size + 2 * pad - reach * (length - 1) - 1
        count = (room + (step - 1 if ceil_mode else 0)) // step + 1
        if ceil_mode and (count - 1) * step >= size + pad:
            count -= 1                  # the last window would begin after the elements
        slides.append(Slide(count, length, step, pad, reach))
    counts = [slide.count for slide in slides]
    if min(counts) < 1:
        channels = self.shape[self.ndim - rank - 1]
        raise RuntimeError(
            f"Given input size: ({'x'.join(map(str, (channels, *sizes)))}). Calculated output "
            f"size: ({'x'.join(map(str, (channels, *counts)))}). Output size is too small: "
            f"{name}() Invalid computed output size: {min(counts)}")
    return tuple(slides)


# -- max_pool --------------------------------------------------------------------------------------

def _max_pool(name, kinds, node, both):
    def run(self, kernel_size, stride, padding, dilation, ceil_mode, return_indices):
        windows = slides_of(self, name, kernel_size, stride, padding, dilation, ceil_mode)
        require(name, INTEGRAL | FLOATING if both or return_indices else kinds, self)
        values, indices = ops.max_windows(self, windows, node)
        return (values, indices) if both or return_indices else values
    return run


# Of samples: every element costs a call of the gradient checks.
SIZES = {1: (5,), 2: (5, 4), 3: (4, 3, 3)}


def _max_pool_samples(rank):
    size, kernel = SIZES[rank], (3, 2, 2)[:rank]
    lead = (2, 2) if rank < 3 else (1, 2)
    return [case(T(*lead, *size), 2), case(T(2, *size), kernel, (2, 1, 2)[:rank], 1),
            case(T(*lead, *size), 2, 2, 1, 1, True), case(T(1, 1, *size), 2, 1, 0, 2),
            case(T(0, 2, *size), 2), case(T(*lead, *size), 2, 2, 0, 1, True),
            case(T(*lead, *size, step=1, low=-1, high=1), 2, 1, skip=KINKS)]


def _max_pool_ops(rank):
    node = f"MaxPool{max(rank, 2)}DWithIndicesBackward0"
    arguments = ("self: Tensor, kernel_size: int[], stride: int[]? = None, padding: int[] = 0, "
                 "dilation: int[] = 1, ceil_mode: bool = False, return_indices: bool = False")
    doc = ("Return the largest element of each window{}; NaN wins.\n\n"
           "Shape: (n, c, ...), where n may be missing. Padding counts as minus infinity.\n\n"
           "Derivative: to the first of equal elements.")
    for suffix, both in (("", False), ("_with_indices", True)):
        name = f"max_pool{rank}d{suffix}"
        rooted = rank == 1 or not both
        kinds = FLOATING if rank == 1 and not both else INTEGRAL | FLOATING
        op(f"{name}({arguments}) -> any", composite=_max_pool(name, kinds, node, both),
           method=False, namespace=("", "functional") if rooted else "functional", dtypes=kinds,
           doc=doc.format(" and its index in the plane" if both else
                          ", with indices if return_indices"),
           ref=references.max_pool(rank, both), samples=_max_pool_samples(rank))


for _rank in (1, 2, 3):
    _max_pool_ops(_rank)


# -- max_unpool ------------------------------------------------------------------------------------

def _refuse_indices(indices, sizes):
    count = product(sizes)
    wrong = indices[(indices < 0) | (indices >= count)].reshape(-1)[0].item()
    raise RuntimeError(f"Found an invalid max index: {wrong} (output volumes are of size "
                       f"{'x'.join(map(str, sizes))})")


def _unpool_forward(self, indices, sizes):
    rank = len(sizes)
    lead = self.shape[:self.ndim - rank]
    out = new_filled(self, (*lead, product(sizes)))
    if self.numel():
        try:
            run_slot("scatter", (out,), (_rows(indices, rank), _rows(self, rank)), self.ndim - rank)
        except IndexError:
            _refuse_indices(indices, sizes)
    return out.reshape((*lead, *sizes))


op("unpool_planes(self: Tensor, indices: Tensor, sizes: int[]) -> Tensor",
   forward=_unpool_forward, method=False, function=False,
   node=lambda sizes: f"MaxUnpool{max(len(sizes), 2)}DBackward0",
   vjp={"self": lambda g, indices, sizes: ops.gather_planes(g, indices, len(sizes))},
   doc="Return planes of zeros with elements written at indices, which count row by row.",
   samples=[case(T(1, 3), fixed((4, 0, 1), shape=(1, 3), kind="int64"), (5,)),
            case(T(1, 2, 2), fixed((4, 0, 1, 3), shape=(1, 2, 2), kind="int64"), (2, 3))],
   ref=references.unpool_planes)


def _unpooled_sizes(self, rank, kernel, stride, padding, output_size):
    sizes = self.shape[self.ndim - rank:]
    usual = [(size - 1) * step + length - 2 * pad
             for size, step, length, pad in zip(sizes, stride, kernel, padding)]
    if output_size is None:
        return tuple(usual)
    wanted = integers(output_size, f"max_unpool{rank}d", "output_size")
    wanted = wanted[2:] if len(wanted) == rank + 2 else wanted
    if len(wanted) != rank:
        raise ValueError(f"output_size should be a sequence containing {rank} or {rank + 2} "
                         f"elements, but it has a length of '{len(wanted)}'")
    for dim, (size, default, step) in enumerate(zip(wanted, usual, stride)):
        if not default - step < size < default + step:
            raise ValueError(f'invalid output_size "{wanted}" (dim {dim} must be between '
                             f"{default - step} and {default + step})")
    return wanted


def _max_unpool(rank):
    name = f"max_unpool{rank}d"

    def run(self, indices, kernel_size, stride, padding, output_size):
        kernel = spread(kernel_size, rank, name, "kernel_size")
        stride = kernel if stride is None else spread(stride, rank, name, "stride")
        padding = spread(padding, rank, name, "padding")
        if self.ndim not in (rank + 1, rank + 2):
            raise RuntimeError(f"Input to max_unpooling{rank}d should be a {rank + 1}d or "
                               f"{rank + 2}d Tensor, but got a tensor with {self.ndim} dimensions.")
        sizes = _unpooled_sizes(self, rank, kernel, stride, padding, output_size)
        require(name, FLOATING, self)
        if indices.dtype.name != "int64":
            raise RuntimeError(f"elements in indices should be type int64 but got: {indices.dtype}")
        if indices.shape != self.shape:
            raise RuntimeError(f"Expected shape of indices to be same as that of the input tensor "
                               f"({list(self.shape)}) but got indices tensor with shape: "
                               f"{list(indices.shape)}")
        if min(sizes) < 1:
            raise RuntimeError(f"{name}(): the output would have the sizes {list(sizes)}")
        return ops.unpool_planes(self, indices, sizes)
    return run


for _rank in (1, 2, 3):
    _corner = fixed((0, 1) if _rank == 1 else (0, 3), shape=(1, 1, 2, *(1, 1)[:_rank - 1]),
                    kind="int64")
    op(f"max_unpool{_rank}d(self: Tensor, indices: Tensor, kernel_size: int[], "
       "stride: int[]? = None, padding: int[] = 0, output_size: int[]? = None) -> Tensor",
       composite=_max_unpool(_rank), method=False, namespace="functional", dtypes=FLOATING,
       doc=f"Return zeros with elements at the places that max_pool{_rank}d took them from.",
       samples=[case(T(1, 1, 2, *(1, 1)[:_rank - 1]), _corner, 2),
                case(T(1, 2, *(1, 1)[:_rank - 1]), _corner._replace(shape=_corner.shape[1:]), 2,
                     output_size=(5, 3, 3)[:_rank])],
       ref=references.max_unpool(_rank))


# -- adaptive pooling ------------------------------------------------------------------------------

MOST_WINDOWS = 1 << 20  # beyond one for each element


def adaptive_windows(self, name, output_size):
    """Return the windows of each dim that give an output of the asked sizes.

    Window i of m over n elements goes from floor(i n / m) to ceil((i + 1) n / m).
    """
    rank = int(name[-2])
    sizes = self.shape[self.ndim - rank:]
    windows = []
    for size, count in zip(sizes, _output_sizes(self, name, rank, output_size)):
        if count and size % count == 0:
            windows.append(Slide(count, size // count, size // count, 0, 1))
        elif count > size + MOST_WINDOWS:
            raise RuntimeError(f"{name}(): output_size {count} for {size} elements is too large")
        else:
            windows.append(tuple([(number * size // count, -(-(number + 1) * size // count))
                                  for number in range(count)]))
    return tuple(windows)


def _output_sizes(self, name, rank, output_size):
    """Check the argument and the input; None keeps a size."""
    many = isinstance(output_size, (tuple, list))
    given = tuple(output_size) if many else (output_size,) * rank
    if len(given) != rank:
        raise RuntimeError(f"{name}() argument 'output_size' should contain one int (got "
                           f"{len(given)})" if rank == 1 else
                           f"{name}: output_size must be {rank}: internal error: "
                           f"output_size.size() must be {rank}")
    if rank == 1 or not many:
        integers(given, name, "output_size")
    shape = list(self.shape)
    if len(shape) not in (rank + 1, rank + 2):
        raise RuntimeError(f"{name}(): Expected {rank + 1} to {rank + 2} dimensions, but got "
                           f"{len(shape)}-dimensional tensor" if rank == 1 else
                           f"{name}(): Expected {rank + 1}D or {rank + 2}D tensor, but got "
                           f"{shape}")
    for dim in range(len(shape) - rank - (1 if "max" in name else 0), len(shape)):
        if shape[dim] == 0:
            raise RuntimeError(f"{name}(): Expected input to have non-zero size for non-batch "
                               f"dimensions, but input has sizes {shape} with dimension {dim} "
                               f"being empty")
    found = integers(tuple([size if want is None else want for size, want in zip(
        shape[-rank:], given)]), name, "output_size")
    if min(found) < 0:
        listed = ", ".join(map(str, found))
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0 "
                           f"but received {{{listed}}}: trying to create tensor with negative "
                           f"dimension")
    return found


def _adaptive_max_pool(name, node, both):
    def run(self, output_size, return_indices):
        windows = adaptive_windows(self, name, output_size)
        require(name, FLOATING, self)
        values, indices = ops.max_windows(self, windows, node)
        return (values, indices) if both or return_indices else values
    return run


def adaptive_samples(rank):
    """Return sample calls of adaptive pooling."""
    size = SIZES[rank]
    chosen = (3, None, 2)[:rank] if rank > 1 else (3,)
    return [case(T(2, 1, *size), 2), case(T(2, *size), chosen), case(T(1, 1, *size), 1),
            case(T(1, 1, *size), 6), case(T(1, 2, *size), 0), case(T(0, 2, *size), 2)]


for _rank in (1, 2, 3):
    _node = f"AdaptiveMaxPool{max(_rank, 2)}DBackward0"
    for _suffix, _both in (("", False), ("_with_indices", True)):
        _name = f"adaptive_max_pool{_rank}d"
        op(f"{_name}{_suffix}(self: Tensor, output_size: any, return_indices: bool = False) -> any",
           composite=_adaptive_max_pool(_name, _node, _both), method=False,
           namespace="functional", dtypes=FLOATING,
           doc="Return the largest elements of windows that give an output of these sizes"
               f"{', and their indices' if _both else ', with indices if return_indices'}.",
           samples=adaptive_samples(_rank), ref=references.adaptive_max_pool(_rank, _both))
