"""Average pooling and pooling by the p-norm."""

from pullback.ops.nn.pooling import (
    SIZES,
    adaptive_samples,
    adaptive_spec,
    nested,
    sliding_spec,
)
from pullback.ops.rules.dtypes import require
from pullback.ops.rules.shapes import product
from pullback.ops.table.kinks import kink
from pullback.ops.table.primitives_api import OWN_DTYPE
from pullback.ops.table.samples import T, case, references_of
from pullback.ops.table.schema import BOOL, FLOATING, op, ops

references = references_of("pooling")

_AVERAGED = FLOATING | 0x020  # and int64, as in torch

# -- the mean --------------------------------------------------------------------------------------


def avg_pool_spec(shape, window_params, padded, divisor):
    """Return the output spec of avg_pool; primitives.py says what its parameters are."""
    return (shape,), (OWN_DTYPE,), (window_params, padded, divisor)


_MEANS = [
    ((2, 5), avg_pool_spec((2, 3), (3, 2, 1, 1), True, 0)),
    ((1, 4, 5), avg_pool_spec((1, 2, 3), (2, 0, 2, 1, 0, 0, 1, 1), False, 6)),
    ((2, 6), avg_pool_spec((2, 2), (4, 2, 0, 1), False, 0)),
]
op(
    "avg_pool(self: Tensor, spec: any, node: str) -> Tensor",
    forward="structured",
    jvp="linear",
    kernel="avg_pool",
    method=False,
    function=False,
    node=lambda node: node,
    vjp={
        "self": lambda g, self_shape, spec, node: ops.avg_pool_backward(
            g, avg_pool_spec(self_shape, *spec[2]), node
        )
    },
    doc="Return the sums of windows of the last dims, over a divisor or their numbers of elements.",
    dtypes=_AVERAGED,
    ref=references.avg_pool_primitive,
    samples=lambda: [case(T(*shape), spec, "AvgPool2DBackward0") for shape, spec in _MEANS],
)
op(
    "avg_pool_backward(self: Tensor, spec: any, node: str) -> Tensor",
    forward="structured",
    jvp="linear",
    kernel="avg_pool_backward",
    method=False,
    function=False,
    node=lambda node: node.replace("Backward0", "BackwardBackward0"),
    vjp={
        "self": lambda g, self_shape, spec, node: ops.avg_pool(
            g, avg_pool_spec(self_shape, *spec[2]), node
        )
    },
    doc="Return the derivative of avg_pool times self.",
    dtypes=FLOATING,
    ref=references.avg_pool_primitive_backward,
    samples=lambda: [
        case(T(*spec[0][0]), avg_pool_spec(shape, *spec[2]), "AvgPool2DBackward0")
        for shape, spec in _MEANS
    ],
)


# -- avg_pool --------------------------------------------------------------------------------------


def _check_volume(self, kernel):
    """Of volumes, but not of images, torch wants elements for a whole window."""
    sizes = self.shape[self.ndim - 3 :]
    if any(size < length for size, length in zip(sizes, kernel)):
        raise RuntimeError(
            f"input image (T: {sizes[0]} H: {sizes[1]} W: {sizes[2]}) smaller than "
            f"kernel size (kT: {kernel[0]} kH: {kernel[1]} kW: {kernel[2]})"
        )


def _avg_pool(rank):
    name = f"avg_pool{rank}d"
    node = f"AvgPool{max(rank, 2)}DBackward0"

    def run(
        self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override=None
    ):
        spec = sliding_spec(
            self,
            name,
            rank,
            kernel_size,
            stride,
            padding,
            1,
            ceil_mode,
            avg_pool_spec,
            (bool(count_include_pad), divisor_override or 0),
        )
        if rank == 3:
            _check_volume(self, spec[2][0][:3])
        if divisor_override == 0:
            raise RuntimeError("divisor must be not zero")
        require(name, _AVERAGED, self)
        return ops.avg_pool(self, spec, node)

    return run


def _average_samples(rank):
    size, kernel = SIZES[rank], (3, 2, 2)[:rank]
    made = [
        case(T(2, 1, *size), 2),
        case(T(2, *size), kernel, (2, 1, 2)[:rank], 1),
        case(T(1, 2, *size), 2, 2, 1, True),
        case(T(1, 1, *size), 3, 2, 1, True, False),
        case(T(1, 2, *size), min(size), 1),
        case(T(0, 2, *size), 2),
    ]
    return made + ([case(T(1, 1, *size), 2, divisor_override=3)] if rank > 1 else [])


for _rank in (1, 2, 3):
    op(
        f"avg_pool{_rank}d(self: Tensor, kernel_size: int[], stride: int[]? = None, "
        "padding: int[] = 0, ceil_mode: bool = False, count_include_pad: bool = True"
        f"{', divisor_override: int? = None' if _rank > 1 else ''}) -> Tensor",
        composite=_avg_pool(_rank),
        autocast=("float32", None) if _rank == 3 else None,
        method=False,
        dtypes=_AVERAGED,
        out=_rank > 1,
        out_dtype="exact",
        out_overlap=True,
        namespace=("", "functional") if _rank == 1 else "functional",
        doc="Return the mean of each window.\n\nShape: (n, c, ...), where n may be missing. "
        "Padding counts as zeros, or not at all without count_include_pad.",
        samples=_average_samples(_rank),
        ref=references.avg_pool.of(_rank),
    )


# -- adaptive pooling ------------------------------------------------------------------------------


def _adaptive_avg_pool(rank):
    name = f"adaptive_avg_pool{rank}d"
    node = f"AdaptiveAvgPool{max(rank, 2)}DBackward0"

    def run(self, output_size):
        spec = adaptive_spec(self, name, output_size, avg_pool_spec, False, 0)
        require(name, FLOATING, self)
        if rank > 1 and spec[0][0][-rank:] == (1,) * rank:
            return ops.mean(self, tuple(range(-rank, 0)), True)  # as in torch
        return ops.avg_pool(self, spec, node)

    return run


for _rank in (1, 2, 3):
    op(
        f"adaptive_avg_pool{_rank}d(self: Tensor, output_size: any) -> Tensor",
        composite=_adaptive_avg_pool(_rank),
        autocast=("float32", None) if _rank == 3 else None,
        method=False,
        dtypes=FLOATING,
        namespace=("", "functional") if _rank == 1 else "functional",
        doc="Return the means of windows that give an output of these sizes; None keeps a size.",
        samples=adaptive_samples(_rank),
        ref=references.adaptive_avg_pool.of(_rank),
    )


# -- lp_pool ---------------------------------------------------------------------------------------


def _lp_pool(rank):
    name = f"avg_pool{rank}d"

    def run(self, norm_type, kernel_size, stride, ceil_mode):
        mean = getattr(ops, name)(self**norm_type, kernel_size, stride, 0, ceil_mode)
        many = isinstance(kernel_size, (tuple, list))
        count = product(kernel_size if many else (kernel_size,))
        if len(kernel_size if many else ()) < 2:
            count **= rank
        if norm_type == 1:  # without the kink that the general formula has at 0
            return mean * count
        # As in torch, the derivative where the sum is 0 is 0; of the root it would be infinite.
        empty = mean == 0
        return ops.where(empty, 0, ops.where(empty, 1, mean * count) ** (1.0 / norm_type))

    return run


for _rank in (1, 2, 3):
    _size = SIZES[_rank]
    op(
        f"lp_pool{_rank}d(self: Tensor, norm_type: float, kernel_size: int[], "
        "stride: int[]? = None, ceil_mode: bool = False) -> Tensor",
        composite=_lp_pool(_rank),
        method=False,
        namespace="functional",
        dtypes=BOOL | _AVERAGED,
        doc="Return the p-norm of each window: (sum of x ** p) ** (1 / p).",
        samples=[
            case(T(2, 1, *_size, low=0.5, high=2), 2, 2),
            case(T(2, *_size, low=0.5, high=2), 3.0, (3, 2, 2)[:_rank], 1),
            case(T(1, 1, *_size, low=0.5, high=2), 1, 2, 2, True),
        ],
        kinks=[
            kink(
                nested([0.0, 0.0], _rank),
                2.0,
                (2, (1, 2), (1, 1, 2))[_rank - 1],
                to=nested([0.0, 0.0], _rank),
            )
        ],
        ref=references.lp_pool.of(_rank),
    )
