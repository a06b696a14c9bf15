"""Max pooling over windows of the last dims, with indices, and max unpooling."""

import functools

from pullback.ops.rules.arguments import integers
from pullback.ops.rules.dtypes import require
from pullback.ops.rules.shapes import product
from pullback.ops.table.kinks import EACH_WRITTEN, Fixed, kink
from pullback.ops.table.primitives_api import INT64_DTYPE, OWN_DTYPE, new_filled, run_primitive
from pullback.ops.table.samples import KINKS, T, at, case, fixed, references_of
from pullback.ops.table.schema import FLOATING, INTEGRAL, op, ops

references = references_of("pooling")

# -- the primitives --------------------------------------------------------------------------------


def max_pool_spec(shape, window_params):
    """Return the output spec of max_pool; primitives.py says what window_params are."""
    return (shape, shape), (OWN_DTYPE, INT64_DTYPE), (window_params,)


def _rows(self, rank):
    """Return the tensor with its last dims as one."""
    return self.reshape((*self.shape[: self.ndim - rank], product(self.shape[self.ndim - rank :])))


def _scatter_forward(self, indices, sizes):
    rank = len(sizes)
    lead = self.shape[: self.ndim - rank]
    out = new_filled(self, (*lead, product(sizes)))
    return ops.scatter_add_(out, -1, _rows(indices, rank), _rows(self, rank)).reshape(
        (*lead, *sizes)
    )


op(
    "max_pool(self: Tensor, spec: any, node: str) -> any",
    forward="structured",
    kernel="max_pool",
    method=False,
    function=False,
    node=lambda node: node,
    vjp={
        "self": lambda gs, self_shape, spec, out1: ops.max_pool_backward(
            gs[0], out1, self_shape[-(len(spec[2][0]) // 4) :]
        )
    },
    doc="Return the largest elements of windows of the last dims, and their positions in the "
    "plane.",
    dtypes=INTEGRAL | FLOATING,
    ref=references.max_pool_primitive,
    samples=lambda: [
        case(T(2, 5), max_pool_spec((2, 3), (3, 2, 1, 1)), "MaxPool2DWithIndicesBackward0"),
        case(T(2, 4, 5), max_pool_spec((2, 2, 3), (2, 0, 2, 1, 0, 0, 1, 1)), "Max"),
    ],
)
op(
    "max_pool_backward(self: Tensor, indices: Tensor, sizes: int[]) -> Tensor",
    forward=_scatter_forward,
    method=False,
    function=False,
    node=lambda sizes: f"MaxPool{len(sizes)}DWithIndicesBackwardBackward0",
    vjp={"self": lambda g, indices, sizes: ops.max_pool_double_backward(g, indices, len(sizes))},
    doc="Return planes of zeros with elements added at indices, which count row by row.",
    overwrites=True,
    samples=lambda: [
        case(T(2, 3), at(2, 3, high=5), (5,)),
        case(T(2, 2, 2), at(2, 2, 2, high=6), (2, 3)),
    ],
    ref=references.max_pool_backward,
)
op(
    "max_pool_double_backward(self: Tensor, indices: Tensor, rank: int) -> Tensor",
    forward=lambda self, indices, rank: ops.gather(
        _rows(self, rank), -1, _rows(indices, rank)
    ).reshape(indices.shape),
    method=False,
    function=False,
    node="GatherBackward0",
    vjp={
        "self": lambda g, indices, self_shape, rank: ops.max_pool_backward(
            g, indices, self_shape[-rank:]
        )
    },
    doc="Return the elements of planes at indices, which count row by row.",
    samples=lambda: [case(T(2, 5), at(2, 3, high=5), 1), case(T(2, 2, 3), at(2, 2, 2, high=6), 2)],
    ref=references.max_pool_double_backward,
)


# -- arguments -------------------------------------------------------------------------------------

_COUNTS = {1: "one int", 2: "two ints", 3: "three ints"}
_LETTERS = {1: "W", 2: "HW", 3: "THW"}


def spread(value, rank, name, argument):
    found = integers(value, name, argument)
    if len(found) not in (1, rank):
        if rank == 1:
            raise RuntimeError(
                f"{name}() argument '{argument}' should contain one int (got "
                f"{len(found)}): it must be an int, list of ints, or tuple of ints "
                f"of size 1 but got size {len(found)}"
            )
        either = "either be omitted," if argument == "stride" else "either be"
        raise RuntimeError(
            f"{name}: {argument} must {either} a single int, or a tuple of {_COUNTS[rank]}"
        )
    return found * rank if len(found) == 1 else found


def _listed(prefix, numbers):
    return " ".join(
        f"{prefix}{letter}: {number}" for letter, number in zip(_LETTERS[len(numbers)], numbers)
    )


def _check_numbers(name, kernel, stride, padding, dilation):
    one = len(kernel) == 1 and name.startswith("max")  # torch words these otherwise
    for what, prefix, numbers in (
        ("kernel_size" if one else "kernel size", "k", kernel),
        ("stride", "d", stride),
        ("dilation", "dilation", dilation),
    ):
        if what == "stride" and not all(numbers) and not one:
            raise RuntimeError("stride should not be zero")
        if min(numbers) <= 0:
            if one:
                raise RuntimeError(
                    f"{name}() {what} must be greater than zero, but got {numbers[0]}"
                )
            if what == "kernel size" and not all(stride):
                raise RuntimeError("stride should not be zero")
            raise RuntimeError(
                f"{what} should be greater than zero, but got {_listed(prefix, numbers)}"
            )
    for pad, size, step in zip(padding, kernel, dilation):
        if pad < 0:
            raise RuntimeError(
                f"{name}() padding must be non-negative, but got {pad}"
                if one
                else f"pad must be non-negative, but got pad: {pad}"
            )
        if pad > (size // 2 if one else ((size - 1) * step + 1) // 2):
            raise RuntimeError(
                f"{name}() padding should be at most half of kernel size, but got padding={pad} "
                f"and kernel_size={size}"
                if one
                else f"pad should be at most half of effective kernel size, but got pad={pad}, "
                f"kernel_size={size} and dilation={step}"
            )
        if pad > size // 2:
            raise RuntimeError(
                f"pad should be smaller than or equal to half of kernel size, but "
                f"got pad={pad} and kernel_size={size}"
            )


def _check_input(shape, rank, name):
    shape = list(shape)
    if len(shape) not in (rank + 1, rank + 2):
        raise RuntimeError(
            f"{name}: non-empty {rank + 1}D or {rank + 2}D (batch mode) tensor "
            f"expected for input: Expected {rank + 1} to {rank + 2} dimensions, but "
            f"got:{shape}"
        )
    if 0 in shape[-rank - 1 :]:
        raise RuntimeError(
            f"{name}: Expected {rank + 1}D or {rank + 2}D (batch mode) tensor with "
            f"optional 0 dim batch size for input, but got:{shape}"
        )


@functools.lru_cache(maxsize=512, typed=True)
def _sliding(name, shape, kernel_size, stride, padding, dilation, ceil_mode, make, how):
    rank = int(name.removesuffix("_with_indices")[-2])
    kernel, padding, dilation = (
        value if isinstance(value, tuple) else (value,) * rank
        for value in (kernel_size, padding, dilation)
    )
    stride = kernel if stride is None else stride if isinstance(stride, tuple) else (stride,) * rank
    _check_input(shape, rank, name)
    _check_numbers(name, kernel, stride, padding, dilation)
    sizes, counts = shape[len(shape) - rank :], []
    for size, length, step, pad, reach in zip(sizes, kernel, stride, padding, dilation):
        room = size + 2 * pad - reach * (length - 1) - 1
        count = (room + (step - 1 if ceil_mode else 0)) // step + 1
        if ceil_mode and (count - 1) * step >= size + pad:
            count -= 1  # the last window would begin after the elements
        counts.append(count)
    if min(counts) < 1:
        channels = shape[len(shape) - rank - 1]
        raise RuntimeError(
            f"Given input size: ({'x'.join(map(str, (channels, *sizes)))}). Calculated output "
            f"size: ({'x'.join(map(str, (channels, *counts)))}). Output size is too small: "
            f"{name}() Invalid computed output size: {min(counts)}"
        )
    window_params = (*kernel, *stride, *padding, *dilation)
    return make((*shape[: len(shape) - rank], *counts), window_params, *how)


def sliding_spec(self, name, rank, kernel_size, stride, padding, dilation, ceil_mode, make, how=()):
    """Check the arguments of a pooling op; return make(shape, window_params, *how), its spec."""
    if type(kernel_size) is not int:
        kernel_size = spread(kernel_size, rank, name, "kernel_size")
    if isinstance(stride, (tuple, list)) and not stride:
        stride = None
    elif stride is not None and type(stride) is not int:
        stride = spread(stride, rank, name, "stride")
    if type(padding) is not int:
        padding = spread(padding, rank, name, "padding")
    if type(dilation) is not int:
        dilation = spread(dilation, rank, name, "dilation")
    return _sliding(
        name, self.shape, kernel_size, stride, padding, dilation, bool(ceil_mode), make, how
    )


# -- max_pool --------------------------------------------------------------------------------------


def _max_pool(name, rank, kinds, node, both):
    def run(self, kernel_size, stride, padding, dilation, ceil_mode, return_indices):
        spec = sliding_spec(
            self, name, rank, kernel_size, stride, padding, dilation, ceil_mode, max_pool_spec
        )
        require(name, INTEGRAL | FLOATING if both or return_indices else kinds, self)
        found = ops.max_pool(self, spec, node)
        return found if both or return_indices else found[0]

    return run


# Of samples: every element costs a call of the gradient checks.
SIZES = {1: (5,), 2: (5, 4), 3: (4, 3, 3)}


def _max_pool_samples(rank):
    size, kernel = SIZES[rank], (3, 2, 2)[:rank]
    lead = (2, 2) if rank < 3 else (1, 2)
    return [
        case(T(*lead, *size), 2),
        case(T(2, *size), kernel, (2, 1, 2)[:rank], 1),
        case(T(*lead, *size), 2, 2, 1, 1, True),
        case(T(1, 1, *size), 2, 1, 0, 2),
        case(T(0, 2, *size), 2),
        case(T(*lead, *size), 2, 2, 0, 1, True),
        case(T(*lead, *size, step=1, low=-1, high=1), 2, 1, skip=KINKS),
    ]


def nested(row, depth):
    """Return a list in as many lists."""
    return [nested(row, depth - 1)] if depth else row


def _float32_without_indices(*arguments):
    """Return the policy of autocast of pooling in three dims, as in torch: indices are last."""
    return None if arguments[-1] else "float32"


_without_indices = (_float32_without_indices, None)


def _max_pool_ops(rank):
    node = f"MaxPool{max(rank, 2)}DWithIndicesBackward0"
    arguments = (
        "self: Tensor, kernel_size: int[], stride: int[]? = None, padding: int[] = 0, "
        "dilation: int[] = 1, ceil_mode: bool = False, return_indices: bool = False"
    )
    doc = (
        "Return the largest element of each window{}; NaN wins.\n\n"
        "Shape: (n, c, ...), where n may be missing. Padding counts as minus infinity.\n\n"
        "Derivative: to the first of equal elements."
    )
    for suffix, both in (("", False), ("_with_indices", True)):
        name = f"max_pool{rank}d{suffix}"
        rooted = rank == 1 or not both
        kinds = FLOATING if rank == 1 and not both else INTEGRAL | FLOATING
        op(
            f"{name}({arguments}) -> any",
            composite=_max_pool(name, rank, kinds, node, both),
            autocast=_without_indices if rank == 3 and not both else None,
            method=False,
            namespace=("", "functional") if rooted else "functional",
            dtypes=kinds,
            doc=doc.format(
                " and its index in the plane" if both else ", with indices if return_indices"
            ),
            ref=references.max_pool.of(rank, both),
            kinks=[
                kink(
                    nested([2.0, 2.0], rank),
                    (2, (1, 2), (1, 1, 2))[rank - 1],
                    to=nested([1.0, 0.0], rank),
                )
            ],
            samples=lambda: _max_pool_samples(rank),
        )


for _rank in (1, 2, 3):
    _max_pool_ops(_rank)


# -- max_unpool ------------------------------------------------------------------------------------


def _raise_invalid_index(indices, sizes):
    count = product(sizes)
    wrong = indices[(indices < 0) | (indices >= count)].reshape(-1)[0].item()
    raise RuntimeError(
        f"Found an invalid max index: {wrong} (output volumes are of size "
        f"{'x'.join(map(str, sizes))})"
    )


def _unpool_forward(self, indices, sizes):
    rank = len(sizes)
    lead = self.shape[: self.ndim - rank]
    out = new_filled(self, (*lead, product(sizes)))
    if self.numel():
        try:
            run_primitive(
                "scatter", (out,), (_rows(indices, rank), _rows(self, rank)), self.ndim - rank
            )
        except IndexError:
            _raise_invalid_index(indices, sizes)
    return out.reshape((*lead, *sizes))


op(
    "max_unpool(self: Tensor, indices: Tensor, sizes: int[]) -> Tensor",
    forward=_unpool_forward,
    method=False,
    function=False,
    node=lambda sizes: f"MaxUnpool{max(len(sizes), 2)}DBackward0",
    jvp="linear",
    vjp={"self": lambda g, indices, sizes: ops.max_pool_double_backward(g, indices, len(sizes))},
    doc="Return planes of zeros with elements written at indices, which count row by row.\n\n"
    "Where an index is there twice the last element is written; each has its gradient.",
    overwrites=True,
    samples=lambda: [
        case(T(1, 3), fixed((4, 0, 1), shape=(1, 3), kind="int64"), (5,)),
        case(T(1, 2, 2), fixed((4, 0, 1, 3), shape=(1, 2, 2), kind="int64"), (2, 3)),
    ],
    ref=references.max_unpool_primitive,
)


def _unpooled_sizes(self, rank, kernel, stride, padding, output_size):
    sizes = self.shape[self.ndim - rank :]
    usual = [
        (size - 1) * step + length - 2 * pad
        for size, step, length, pad in zip(sizes, stride, kernel, padding)
    ]
    if output_size is None:
        return tuple(usual)
    wanted = integers(output_size, f"max_unpool{rank}d", "output_size")
    wanted = wanted[2:] if len(wanted) == rank + 2 else wanted
    if len(wanted) != rank:
        raise ValueError(
            f"output_size should be a sequence containing {rank} or {rank + 2} "
            f"elements, but it has a length of '{len(wanted)}'"
        )
    for dim, (size, default, step) in enumerate(zip(wanted, usual, stride)):
        if not default - step < size < default + step:
            raise ValueError(
                f'invalid output_size "{wanted}" (dim {dim} must be between '
                f"{default - step} and {default + step})"
            )
    return wanted


def _max_unpool(rank):
    name = f"max_unpool{rank}d"

    def run(self, indices, kernel_size, stride, padding, output_size):
        kernel = spread(kernel_size, rank, name, "kernel_size")
        stride = kernel if stride is None else spread(stride, rank, name, "stride")
        padding = spread(padding, rank, name, "padding")
        if self.ndim not in (rank + 1, rank + 2):
            raise RuntimeError(
                f"Input to max_unpooling{rank}d should be a {rank + 1}d or "
                f"{rank + 2}d Tensor, but got a tensor with {self.ndim} dimensions."
            )
        sizes = _unpooled_sizes(self, rank, kernel, stride, padding, output_size)
        require(name, FLOATING, self)
        if indices.dtype.name != "int64":
            raise RuntimeError(f"elements in indices should be type int64 but got: {indices.dtype}")
        if indices.shape != self.shape:
            raise RuntimeError(
                f"Expected shape of indices to be same as that of the input tensor "
                f"({list(self.shape)}) but got indices tensor with shape: "
                f"{list(indices.shape)}"
            )
        if min(sizes) < 1:
            raise RuntimeError(f"{name}(): the output would have the sizes {list(sizes)}")
        return ops.max_unpool(self, indices, sizes)

    return run


_UNPOOLED = [
    kink(
        [[1.0, 2.0]],
        Fixed([[0, 0]]),
        1,
        to=[[1.0, 1.0]],
        tangents=([[0.0, 1.0]],),
        outside=EACH_WRITTEN,
    )
]
for _rank in (1, 2, 3):
    _corner = fixed(
        (0, 1) if _rank == 1 else (0, 3), shape=(1, 1, 2, *(1, 1)[: _rank - 1]), kind="int64"
    )
    op(
        f"max_unpool{_rank}d(self: Tensor, indices: Tensor, kernel_size: int[], "
        "stride: int[]? = None, padding: int[] = 0, output_size: int[]? = None) -> Tensor",
        composite=_max_unpool(_rank),
        autocast=("float32", None),
        method=False,
        namespace="functional",
        dtypes=FLOATING,
        doc=f"Return zeros with elements at the positions that max_pool{_rank}d took them from.",
        overwrites=True,
        kinks=_UNPOOLED if _rank == 1 else (),
        samples=[
            case(T(1, 1, 2, *(1, 1)[: _rank - 1]), _corner, 2),
            case(
                T(1, 2, *(1, 1)[: _rank - 1]),
                _corner._replace(shape=_corner.shape[1:]),
                2,
                output_size=(5, 3, 3)[:_rank],
            ),
        ],
        ref=references.max_unpool.of(_rank),
    )


# -- adaptive pooling ------------------------------------------------------------------------------

MOST_WINDOWS = 1 << 20  # beyond one for each element


def adaptive_spec(self, name, output_size, make, *how):
    """Check the arguments of adaptive pooling; return make(shape, window_params, *how), its spec.

    Window i of m over n elements goes from floor(i n / m) to ceil((i + 1) n / m).
    """
    find = _adapting if type(output_size) is int else _adapting.__wrapped__
    return find(name, self.shape, output_size, make, how)


@functools.lru_cache(maxsize=512)
def _adapting(name, shape, output_size, make, how):
    rank = int(name[-2])
    counts, kernel = _output_sizes(shape, name, rank, output_size), []
    for size, count in zip(shape[len(shape) - rank :], counts):
        if count > size + MOST_WINDOWS:
            raise RuntimeError(f"{name}(): output_size {count} for {size} elements is too large")
        kernel.append(size // count if count and size % count == 0 else 0)
    step = tuple([length or 1 for length in kernel])
    window_params = (*kernel, *step, *(0,) * rank, *(1,) * rank)
    return make((*shape[: len(shape) - rank], *counts), window_params, *how)


def _output_sizes(shape, name, rank, output_size):
    """Check the argument and the input; None keeps a size."""
    many = isinstance(output_size, (tuple, list))
    given = tuple(output_size) if many else (output_size,) * rank
    if len(given) != rank:
        raise RuntimeError(
            f"{name}() argument 'output_size' should contain one int (got {len(given)})"
            if rank == 1
            else f"{name}: output_size must be {rank}: internal error: "
            f"output_size.size() must be {rank}"
        )
    if rank == 1 or not many:
        integers(given, name, "output_size")
    shape = list(shape)
    if len(shape) not in (rank + 1, rank + 2):
        raise RuntimeError(
            f"{name}(): Expected {rank + 1} to {rank + 2} dimensions, but got "
            f"{len(shape)}-dimensional tensor"
            if rank == 1
            else f"{name}(): Expected {rank + 1}D or {rank + 2}D tensor, but got {shape}"
        )
    for dim in range(len(shape) - rank - (1 if "max" in name else 0), len(shape)):
        if shape[dim] == 0:
            raise RuntimeError(
                f"{name}(): Expected input to have non-zero size for non-batch "
                f"dimensions, but input has sizes {shape} with dimension {dim} "
                f"being empty"
            )
    found = integers(
        tuple([size if want is None else want for size, want in zip(shape[-rank:], given)]),
        name,
        "output_size",
    )
    if min(found) < 0:
        listed = ", ".join(map(str, found))
        raise RuntimeError(
            f"{name}: elements of output_size must be greater than or equal to 0 "
            f"but received {{{listed}}}: trying to create tensor with negative "
            f"dimension"
        )
    return found


def _adaptive_max_pool(name, node, both):
    def run(self, output_size, return_indices):
        spec = adaptive_spec(self, name, output_size, max_pool_spec)
        require(name, FLOATING, self)
        found = ops.max_pool(self, spec, node)
        return found if both or return_indices else found[0]

    return run


def adaptive_samples(rank):
    """Return sample calls of adaptive pooling."""
    size = SIZES[rank]
    chosen = (3, None, 2)[:rank] if rank > 1 else (3,)
    return [
        case(T(2, 1, *size), 2),
        case(T(2, *size), chosen),
        case(T(1, 1, *size), 1),
        case(T(1, 1, *size), 6),
        case(T(1, 2, *size), 0),
        case(T(0, 2, *size), 2),
    ]


for _rank in (1, 2, 3):
    _node = f"AdaptiveMaxPool{max(_rank, 2)}DBackward0"
    for _suffix, _both in (("", False), ("_with_indices", True)):
        _name = f"adaptive_max_pool{_rank}d"
        op(
            f"{_name}{_suffix}(self: Tensor, output_size: any, return_indices: bool = False) -> "
            f"any",
            composite=_adaptive_max_pool(_name, _node, _both),
            autocast=("float32", None) if _rank == 3 else None,
            method=False,
            namespace="functional",
            dtypes=FLOATING,
            doc="Return the largest elements of windows that give an output of these sizes"
            f"{', and their indices' if _both else ', with indices if return_indices'}.",
            samples=adaptive_samples(_rank),
            ref=references.adaptive_max_pool.of(_rank, _both),
            kinks=[kink(nested([2.0, 2.0], _rank), 1, to=nested([1.0, 0.0], _rank))],
        )
