"""The cross entropy of a linear map, in chunks of rows: all logits are never there at once."""

from pullback.ops.nn.losses.util import REDUCTIONS
from pullback.ops.rules.dtypes import accumulate_dtype, cast_to
from pullback.ops.rules.shapes import product
from pullback.ops.table.samples import T, case, constant, fixed, references_of
from pullback.ops.table.schema import FLOATING, op, ops

references = references_of("losses")


def _logits(rows, weight, bias):
    """Return logits (n, classes, ...) for a weight (classes, ..., in_features)."""
    features = weight.shape[-1]
    count = product(weight.shape[:-1])
    flat = None if bias is None else bias.reshape((count,))
    out = ops.linear(rows, weight.reshape((count, features)), flat)
    return out.reshape((*rows.shape[:-1], *weight.shape[:-1])) if weight.ndim > 2 else out


def _chunks(count, rows):
    """Yield the first row of each chunk, and how many it has."""
    for first in range(0, count, rows):
        yield first, min(rows, count - first)


def _chunked(self, weight, bias, target, class_weight, rows, ignore_index, label_smoothing):
    parts = [
        ops.cross_entropy(
            _logits(ops.narrow(self, 0, first, count), weight, bias),
            ops.narrow(target, 0, first, count),
            class_weight,
            None,
            ignore_index,
            None,
            "none",
            label_smoothing,
        )
        for first, count in _chunks(self.shape[0], rows)
    ]
    return ops.cat(parts)


def _coefficients(logits, target, class_weight, ignore_index, label_smoothing):
    """Return by how much each log probability counts in the loss, negated: (n, classes, ...)."""
    classes = logits.shape[1]
    shape = [1, classes, *(1,) * (logits.ndim - 2)]
    if target.dtype.is_floating_point:
        made = target * (1 - label_smoothing) + label_smoothing / classes
        return made if class_weight is None else made * class_weight.reshape(shape)
    kept = target != ignore_index
    safe = ops.where(kept, target, 0).unsqueeze(1)
    made = ops.full_like(logits.detach(), label_smoothing / classes)
    made = ops.scatter_add(
        made, 1, safe, ops.full_like(safe, 1 - label_smoothing, dtype=logits.dtype)
    )
    if class_weight is not None:
        made = made * class_weight.reshape(shape)
    return ops.where(kept.unsqueeze(1), made, 0)


def _chunked_vjp(g, self, weight, bias, target, class_weight, rows, ignore_index, label_smoothing):
    """The gradients of rows, weight and bias: each chunk computes its logits again."""
    count_all, features = product(weight.shape[:-1]), weight.shape[-1]
    matrix = weight.reshape((count_all, features))
    of_rows, of_weight, of_bias = [], None, None
    wide = accumulate_dtype(weight.dtype)
    for first, count in _chunks(self.shape[0], rows):
        chunk = ops.narrow(self, 0, first, count)
        logits = _logits(chunk, weight, bias)
        part = ops.narrow(target, 0, first, count)
        made = _coefficients(logits, part, class_weight, ignore_index, label_smoothing)
        slope = getattr(ops, "softmax.top")(logits, 1) * made.sum(1, True) - made
        slope = slope * ops.narrow(g, 0, first, count).unsqueeze(1)
        slope = slope.reshape((count, count_all))
        of_rows.append(ops.matmul(slope, matrix))
        by_weight = cast_to(ops.matmul(slope.t(), chunk), wide)
        of_weight = by_weight if of_weight is None else ops.add_(of_weight, by_weight)
        if bias is not None:
            by_bias = cast_to(slope.sum(0), wide)
            of_bias = by_bias if of_bias is None else of_bias + by_bias
    return (
        ops.cat(of_rows),
        cast_to(of_weight, weight.dtype).reshape(weight.shape),
        None if bias is None else cast_to(of_bias, weight.dtype).reshape(bias.shape),
    )


_ROWS = [
    ((T(5, 3), T(4, 3), T(4)), fixed((0, 3, 1, 2, 0), kind="int64"), None, 2, -100, 0.0),
    (
        *((T(5, 3), T(4, 3), None), fixed((0, 3, 1, 2, 0), kind="int64")),
        *(constant(4, low=0.5, high=2), 3, 2, 0.2),
    ),
    (
        (T(3, 2), T(4, 2), None),
        T(3, 4, low=0.1, high=1)._replace(constant=True),
        None,
        2,
        -100,
        0.1,
    ),
    (
        *((T(2, 3), T(3, 2, 3), T(3, 2)), fixed((0, 2, 1, 1), shape=(2, 2), kind="int64")),
        *(None, 1, -100, 0.0),
    ),
]
op(
    "linear_cross_entropy_chunked(self: Tensor, weight: Tensor, bias: Tensor?, target: Tensor, "
    "class_weight: Tensor?, rows: int, ignore_index: int, label_smoothing: float) -> Tensor",
    forward=_chunked,
    method=False,
    function=False,
    node="LinearCrossEntropyBackward0",
    vjp={("self", "weight", "bias"): _chunked_vjp},
    dtypes=FLOATING,
    doc="Return the loss of each row, computed for a number of rows at a time.",
    samples=lambda: [case(*operands, *rest) for operands, *rest in _ROWS],
    ref=references.linear_cross_entropy_chunked,
)


def _check(self, weight, target, bias, ignore_index):
    if self.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {self.ndim}")
    if weight.ndim < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {weight.ndim}"
        )
    if self.shape[-1] != weight.shape[-1]:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{self.shape[-1]} and {weight.shape[-1]}, respectively"
        )
    if weight.ndim > 2 and self.ndim == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(weight.shape)} requires "
            f"batched input, (N, {weight.shape[-1]}), got unbatched input with shape "
            f"{tuple(self.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:-1]:
        raise RuntimeError(
            f"expected linear_bias shape {tuple(weight.shape[:-1])}, got {tuple(bias.shape)}"
        )
    if ignore_index is not None and _has_probabilities(self, weight, target):
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")


def _has_probabilities(self, weight, target):
    return tuple(target.shape) == (*self.shape[:-1], *weight.shape[:-1])


def _rows_of(options, count, features):
    """Return how many rows a chunk has; at least 64 where nobody has asked for a number."""
    rows = options.batch_chunk_size
    if rows is None:
        method = options.chunking_method
        if method is None:
            return max(count, 1)
        ratio = 2 if method == "auto" else int(method.partition(":")[2])
        rows = max(64, -(-features // ratio))
    return max(min(rows, count), 1)


def _linear_cross_entropy(
    self,
    linear_weight,
    target,
    linear_bias,
    weight,
    reduction,
    ignore_index,
    label_smoothing,
    options,
):
    _check(self, linear_weight, target, linear_bias, ignore_index)
    index = -100 if ignore_index is None else ignore_index
    plain = options is None or reduction not in REDUCTIONS or not 0 <= label_smoothing <= 1
    probabilities = _has_probabilities(self, linear_weight, target)
    rows = None if plain else _rows_of(options, len(self) if self.ndim > 1 else 1, self.shape[-1])
    # Derivatives by the target, and errors, are those of the plain way.
    if plain or self.ndim == 1 or not len(self) or len(target) != len(self) or target.requires_grad:
        logits = _logits(self, linear_weight, linear_bias)
        return ops.cross_entropy(
            logits, target, weight, None, index, None, reduction, label_smoothing
        )
    loss = ops.linear_cross_entropy_chunked(
        self, linear_weight, linear_bias, target, weight, rows, index, label_smoothing
    )
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if probabilities:
        return loss.sum() / loss.numel()
    kept = target != index
    if weight is None:
        return loss.sum() / kept.sum().to(loss.dtype)
    safe = ops.where(kept, target, 0)
    picked = ops.index_select(weight, 0, safe.reshape(-1)).reshape(safe.shape)
    return loss.sum() / (picked * kept.to(loss.dtype)).sum()


op(
    "linear_cross_entropy(self: Tensor, linear_weight: Tensor, target: Tensor, *, "
    "linear_bias: Tensor? = None, weight: Tensor? = None, reduction: str = 'mean', "
    "ignore_index: int? = None, label_smoothing: float = 0.0, options: any = None) -> Tensor",
    composite=_linear_cross_entropy,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    doc="Return cross_entropy(linear(self, linear_weight, linear_bias), target).\n\n"
    "Shape: (n, in), (classes, in), (n), (classes) give a number, or (n) unless reduced; n may be "
    "missing. A weight (classes, ..., in) gives logits (n, classes, ...).\n\nWith `options`, an "
    "`nn.LinearCrossEntropyOptions`, logits are computed for a chunk of rows at a time, and again "
    "in a backward pass, so that they take the memory of a chunk. Derivatives of any order are "
    "there. `weight` has a number for each class; targets of `ignore_index` count nothing.",
    ref=references.linear_cross_entropy,
    samples=lambda: [
        case(T(5, 3), T(4, 3), fixed((0, 3, 1, 2, 0), kind="int64")),
        case(
            *(T(5, 3), T(4, 3), fixed((0, 3, 1, 2, 0), kind="int64")),
            linear_bias=T(4),
            weight=constant(4, low=0.5, high=2),
            ignore_index=2,
            label_smoothing=0.1,
            reduction="sum",
        ),
        case(T(3), T(4, 3), fixed((2,), shape=(), kind="int64"), reduction="none"),
        case(T(3, 2), T(4, 2), T(3, 4, low=0.1, high=1)._replace(constant=True)),
        case(
            *(T(2, 3), T(3, 2, 3), fixed((0, 2, 1, 1), shape=(2, 2), kind="int64")),
            linear_bias=T(3, 2),
        ),
    ],
)
