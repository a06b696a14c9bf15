"""Embeddings: rows of a table by their indices, also reduced by bags."""

import warnings

from pullback.ops.rules.dtypes import cast_to, check_dtype, dtype_named, type_name
from pullback.ops.rules.operands import check_all
from pullback.ops.table.kinks import Fixed, kink
from pullback.ops.table.primitives_api import is_plain, whole_batch
from pullback.ops.table.samples import COUNTED, T, at, case, fixed, references_of
from pullback.ops.table.schema import FLOAT_COMPLEX, FLOATING, op, ops

references = references_of("normalization")

# -- single rows -----------------------------------------------------------------------------------


def _check_indices(name, indices):
    if indices.dtype.name not in ("int64", "int32"):
        raise RuntimeError(
            f"Expected tensor for argument #1 'indices' to have one of the "
            f"following scalar types: Long, Int; but got "
            f"pullback.{type_name(indices.dtype)}Tensor instead (while checking arguments "
            f"for {name})"
        )


def _embedding_forward(weight, indices, padding_idx, scale_grad_by_freq, sparse):
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    _check_indices("embedding", indices)
    try:
        rows = ops.index_select(weight, 0, indices.reshape(-1))
    except IndexError:
        raise IndexError("index out of range in self") from None
    return rows.reshape((*indices.shape, weight.shape[1]))


def _counts(like, numbers, size):
    """Return how often each number in [0, size) occurs; 16 bits would soon count no further."""
    narrow = like.dtype.name in ("float16", "bfloat16")
    ones = ops.new_ones(
        like, tuple(numbers.shape), dtype=dtype_named("float32") if narrow else like.dtype
    )
    return ops.index_backward(ones, (size,), (numbers,))


def _embedding_vjp(g, weight_shape, indices, padding_idx, scale_grad_by_freq, sparse):
    numbers = cast_to(indices.reshape(-1), dtype_named("int64"))
    g = g.reshape((numbers.shape[0], weight_shape[1]))
    if sparse and scale_grad_by_freq:
        raise RuntimeError(
            "embedding_backward: scale_grad_by_freq not supported with sparse gradients"
        )
    if sparse and is_plain(g):
        import pullback

        if padding_idx >= 0:
            kept = ops.nonzero(numbers != padding_idx).reshape(-1)
            g, numbers = g.index_select(0, kept), numbers.index_select(0, kept)
        return pullback.sparse.gradient_of_rows(g, weight_shape, numbers)
    if padding_idx >= 0:
        g = ops.where((numbers == padding_idx).unsqueeze(1), 0, g)
    if scale_grad_by_freq:
        often = _counts(g.detach(), numbers, weight_shape[0])
        scaled = g / ops.index_select(often, 0, numbers).unsqueeze(1)  # of 16 bits in float32
        return cast_to(ops.index_backward(scaled, tuple(weight_shape), (numbers,)), g.dtype)
    return ops.index_backward(g, tuple(weight_shape), (numbers,))


_SCALED = dict.fromkeys(("grad", "gradgrad"), "the gradient is not the derivative, on purpose")
op(
    "_embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, "
    "scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor",
    batch="embedding",
    method=False,
    function="embedding",
    forward=_embedding_forward,
    node="EmbeddingBackward0",
    vjp={"weight": _embedding_vjp},
    ref=lambda np, weight, indices, *rest: weight[indices],
    doc="Return the rows of a matrix at indices.\n\nDerivative: none for the row `padding_idx`; "
    "with `scale_grad_by_freq` that of each row is divided by how often it was taken.",
    samples=lambda: [
        case(T(4, 3), at(2, 2, high=4)),
        case(T(4, 3), at(high=4)),
        case(T(4, 3), at(0, high=4)),
        case(T(4, 3), at(5, high=4), 2, skip=_SCALED),
        case(T(4, 3), fixed((1, 1, 2), kind="int64"), -1, True, skip=_SCALED),
    ],
)


def _renorm(self, indices, max_norm, norm_type):
    """Scale down the rows that indices name and whose norm is too large."""
    _check_indices("embedding_renorm_", indices)
    if self.ndim != 2:
        raise RuntimeError("'self' must be 2-D")
    numbers = cast_to(indices.reshape(-1), dtype_named("int64"))
    error = IndexError("index out of range in self")
    check_all((numbers >= 0) & (numbers < self.shape[0]), error)
    size = ops._vector_norm(self, norm_type, 1, True)
    named = _counts(size.reshape(-1), numbers, self.shape[0]).unsqueeze(1) > 0
    return ops.mul_(self, ops.where(named & (size > max_norm), max_norm / (size + 1e-7), 1))


op(
    "embedding_renorm_(self: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor",
    forward=_renorm,
    inplace="only",
    method=False,
    dtypes=FLOAT_COMPLEX,
    ref=references.embedding_renorm,
    doc="Scale the rows at indices whose norm is above `max_norm` down to it; returns self.",
    samples=lambda: [
        case(T(4, 3), at(2, 2, high=4), 1.0, 2.0),
        case(T(4, 3), at(0, high=4), 1.0, 2.0),
        case(T(4, 3), at(3, high=4), 2.0, 1.0),
    ],
)


def _renormalize(weight, indices, max_norm, norm_type):
    if max_norm is not None:
        ops.embedding_renorm_(weight.detach(), indices, max_norm, norm_type)


def _embedding(self, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse):
    rows = weight.shape[0] if weight.ndim else 0
    if padding_idx is not None:
        if not -rows <= padding_idx < rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        padding_idx %= rows
    _renormalize(weight, self, max_norm, norm_type)
    return ops._embedding(
        weight, self, -1 if padding_idx is None else padding_idx, scale_grad_by_freq, sparse
    )


op(
    "embedding(self: Tensor, weight: Tensor, padding_idx: int? = None, max_norm: float? = None, "
    "norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor",
    composite=_embedding,
    method=False,
    namespace="functional",
    ref=lambda np, self, weight, *rest, **options: weight[self],
    doc="Return the rows of `weight` at the indices in self.\n\nWith `max_norm`, rows that are "
    "taken and longer are scaled down in place before.\n\nDerivative: none for the row "
    "`padding_idx`; "
    "with `scale_grad_by_freq` that of each row is divided by how often it was taken.\n\n"
    "With `sparse` the gradient is a sparse tensor of the rows that were taken.\n\n"
    "Raises: IndexError out of range.",
    samples=lambda: [
        case(at(2, 2, high=4), T(4, 3)),
        case(at(high=4), T(4, 3)),
        case(at(0, high=4), T(4, 3)),
        case(at(5, high=4), T(4, 3), -1, skip=_SCALED),
    ],
)


# -- bags ------------------------------------------------------------------------------------------


def _check_bags(self, weight, offsets, mode, scale_grad_by_freq, sparse, per_sample_weights):
    if per_sample_weights is not None and per_sample_weights.shape != self.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is "
            f"not None, then it must have the same shape as the input ({self.shape})"
        )
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    check_dtype("embedding_bag", weight, "f")
    if self.ndim == 2 and offsets is not None:
        raise ValueError(
            f"if input is 2D, then offsets has to be None, as input is treated is a "
            f"mini-batch of fixed length sequences. However, found offsets of type "
            f"{type(offsets)}"
        )
    if self.ndim not in (1, 2):
        raise ValueError(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {self.ndim}"
        )
    if self.ndim == 1 and (offsets is None or offsets.ndim != 1):
        raise ValueError(
            "offsets has to be a 1D Tensor" + (" but got None" if offsets is None else "")
        )
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            f"embedding_bag: per_sample_weights was not None. "
            f"per_sample_weights is only supported for mode='sum' (got "
            f"mode='{mode}')."
        )
    for indices in (self, offsets):
        if indices is not None:
            _check_indices("embedding_bag", indices)
    if per_sample_weights is not None and per_sample_weights.dtype != weight.dtype:
        raise RuntimeError(
            f"Expected tensor for argument #1 'weight' to have the same type as "
            f"tensor for argument #1 'per_sample_weights'; but type "
            f"{type_name(weight.dtype)} does not equal "
            f"{type_name(per_sample_weights.dtype)} (while checking arguments for "
            f"embedding_bag)"
        )


def _check_offsets(offsets, length):
    if offsets.device.type == "meta" or not offsets.numel():
        return
    first, last = (int(ops.amax(whole_batch(offsets[k])).item()) for k in (0, -1))
    if first:
        raise RuntimeError(
            f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch "
            f"has to start from position 0. However, got {first}"
        )
    if last > length:
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {length} but got "
            f"offsets[-1] of {last}"
        )
    error = RuntimeError("embedding_bag: expected offsets that do not decrease")
    check_all(offsets[1:] >= offsets[:-1], error)


def _bags_of(self, offsets, include_last_offset):
    """Return the bag of each index, and how many bags there are; those at the end have none."""
    if self.ndim == 2:
        count, length = self.shape
        numbers = ops.arange_like(self, count).unsqueeze(1)
        return numbers.expand((count, length)).reshape(-1), count
    length = self.shape[0]
    _check_offsets(offsets, length)
    offsets = cast_to(offsets, dtype_named("int64"))
    starts = _counts(offsets, offsets, length + 1)
    bags = ops.cumsum(starts.narrow(0, 0, length), 0) - 1
    return bags, max(offsets.shape[0] - bool(include_last_offset), 0)


def _largest_rows(rows, bags, sizes):
    """Return which row of each bag is the largest, element by element: the first of equal ones.

    Rows are sorted by value, then by bag, both stably: each bag begins with its largest element.
    """
    columns = rows.detach().t()
    order = ops.sort(columns, -1, True, stable=True)[1]
    sorted_bags = ops.gather(bags.expand(columns.shape), 1, order)
    by_bag = ops.sort(sorted_bags, -1, False, stable=True)[1]
    order = ops.gather(order, 1, by_bag)
    starts = ops.cumsum(sizes, 0) - sizes
    starts = ops.where(sizes > 0, starts, 0)
    return ops.index_select(order, 1, starts).t()


def _largest(rows, bags, sizes):
    chosen = _largest_rows(rows, bags, sizes)
    return ops.where((sizes > 0).unsqueeze(1), ops.gather(rows, 0, chosen), 0)


def _take(weight, numbers, padding_idx, scale_grad_by_freq, sparse):
    try:
        return ops._embedding(weight, numbers, padding_idx, scale_grad_by_freq, sparse)
    except IndexError:
        rows = weight.shape[0]
        values = numbers.tolist()
        position = next(n for n, value in enumerate(values) if not 0 <= value < rows)
        raise RuntimeError(
            f"Index {position} of input takes value {values[position]} which is not in "
            f"the valid range [0, {rows})"
        ) from None


def _embedding_bag(
    self,
    weight,
    offsets,
    max_norm,
    norm_type,
    scale_grad_by_freq,
    mode,
    sparse,
    per_sample_weights,
    include_last_offset,
    padding_idx,
):
    if weight.dtype.name in ("int64", "int32") and (self.is_floating_point() or self.is_complex()):
        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage "
            "`embedding_bag(weight, input, ...)` is deprecated, and should now be "
            "`embedding_bag(input, weight, ...)`.",
            UserWarning,
            stacklevel=2,
        )
        self, weight = weight, self
    _check_bags(self, weight, offsets, mode, scale_grad_by_freq, sparse, per_sample_weights)
    rows = weight.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise RuntimeError(
            f"padding_idx must be within the number of embeddings, {-rows} through "
            f"{rows - 1}, but got {padding_idx}"
        )
    padding_idx = -1 if padding_idx is None else padding_idx % rows
    _renormalize(weight, self, max_norm, norm_type)
    bags, count = _bags_of(self, offsets, include_last_offset)
    numbers = cast_to(self.reshape(-1), dtype_named("int64"))
    taken = _take(weight, numbers, padding_idx, scale_grad_by_freq, sparse)
    if padding_idx >= 0:  # padding belongs to no bag
        bags = ops.where(numbers == padding_idx, count, bags)
    sizes = _counts(bags, bags, count + 1).narrow(0, 0, count)
    if mode == "max":
        if not numbers.numel():  # zeros, which are in the graph as torch's are
            return ops.index_backward(taken, (count, weight.shape[1]), (bags,))
        return _largest(taken, bags, sizes)
    if per_sample_weights is not None:
        taken = taken * per_sample_weights.reshape(-1).unsqueeze(1)
    total = ops.index_backward(taken, (count + 1, weight.shape[1]), (bags,)).narrow(0, 0, count)
    if mode == "mean":
        total = total / ops.where(sizes > 0, sizes, 1).unsqueeze(1)
    return total if count else total.clone()


_OFFSETS = fixed((0, 2, 2), kind="int64")
_NUMBERS = at(5, high=4)
op(
    "embedding_bag(self: Tensor, weight: Tensor, offsets: Tensor? = None, max_norm: float? = None, "
    "norm_type: float = 2, scale_grad_by_freq: bool = False, mode: str = 'mean', "
    "sparse: bool = False, per_sample_weights: Tensor? = None, include_last_offset: bool = False, "
    "padding_idx: int? = None) -> Tensor",
    composite=_embedding_bag,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    ref=references.embedding_bag,
    doc="Return rows of `weight` at the indices in self, summed, averaged or maximized by bag.\n\n"
    "A bag is a row of a matrix of indices, or the part between two `offsets` of a vector of "
    "them. An empty bag gives 0; `padding_idx` counts for nothing.\n\nWith `sparse` "
    "the gradient is a sparse tensor of the rows that were taken.\n\n"
    "Raises: RuntimeError out of range.",
    kinks=[kink(Fixed([0, 1]), [[1.0], [1.0]], Fixed([0]), mode="max", to=[[1.0], [0.0]])],
    samples=lambda: [
        *(case(_NUMBERS, T(4, 3), _OFFSETS, mode=mode) for mode in ("sum", "mean", "max")),
        *(case(at(2, 3, high=4), T(4, 3), mode=mode) for mode in ("sum", "mean", "max")),
        *(
            case(
                fixed((1, 2, 2, 3, 2), kind="int64"),
                T(4, 3),
                _OFFSETS,
                mode=mode,
                padding_idx=2,
                skip=_SCALED if mode != "max" else {},
            )
            for mode in ("sum", "mean", "max")
        ),
        case(
            _NUMBERS, T(4, 3), fixed((0, 2, 4), kind="int64"), mode="sum", include_last_offset=True
        ),
        case(_NUMBERS, T(4, 3), _OFFSETS, mode="sum", per_sample_weights=T(5)),
        case(
            at(0, high=4),
            T(4, 3),
            fixed((0,), kind="int64"),
            mode="max",
            skip=dict.fromkeys(("grad", "gradgrad"), "nothing is taken from the table"),
        ),
    ],
)


_MODES = ("sum", "mean", "max")


def _bags_and_indices(
    weight,
    indices,
    offsets,
    scale_grad_by_freq,
    mode,
    sparse,
    per_sample_weights,
    include_last_offset,
    padding_idx,
):
    if mode not in (0, 1, 2):
        raise RuntimeError("`mode` must be sum, mean, or max.")
    if indices.ndim != 1:
        raise RuntimeError(f"embedding_bag(): expected indices of 1 dim, but got {indices.ndim}")
    _check_indices("embedding_bag", offsets)
    out = ops.embedding_bag(
        indices,
        weight,
        offsets,
        None,
        2.0,
        scale_grad_by_freq,
        _MODES[mode],
        sparse,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )
    bags, count = _bags_of(indices, offsets, include_last_offset)
    none = ops.new_zeros(bags, (count,))
    if mode == 0:
        return out, bags if padding_idx is not None else ops.new_zeros(bags, (0,)), none, none
    numbers = cast_to(indices, dtype_named("int64"))
    kept = bags
    if padding_idx is not None:
        kept = ops.where(numbers == padding_idx % max(weight.shape[0], 1), count, bags)
    sizes = _counts(kept, kept, count + 1).narrow(0, 0, count)
    if mode == 1:
        return out, bags, sizes, sizes
    if not numbers.numel():
        return out, bags, sizes, ops.new_zeros(bags, (count, weight.shape[1]))
    rows = ops.index_select(weight.detach(), 0, numbers)
    chosen = _largest_rows(rows, kept, sizes)
    found = ops.index_select(numbers, 0, chosen.reshape(-1)).reshape(chosen.shape)
    return out, bags, sizes, ops.where((sizes > 0).unsqueeze(1), found, 0)


op(
    "embedding_bag.top(weight: Tensor, indices: Tensor, offsets: Tensor, "
    "scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False, "
    "per_sample_weights: Tensor? = None, include_last_offset: bool = False, "
    "padding_idx: int? = None) -> Tensor[]",
    composite=_bags_and_indices,
    method=False,
    function="embedding_bag",
    dtypes=FLOATING,
    ref=references.embedding_bag_top,
    doc="Return (bags, bag of each index, indices in each bag, index of the largest element).\n\n"
    "`mode` is 0 for sums, 1 for means, 2 for the largest elements. As in torch, sums fill none of "
    "the other results, except the second with a padding index.\n\nRaises: RuntimeError out of "
    "range.",
    kinks=[kink([[1.0], [1.0]], Fixed([0, 1]), Fixed([0]), False, 2, to=[[1.0], [0.0]])],
    samples=lambda: [
        *(case(T(4, 3), at(5, high=4), _OFFSETS, False, mode) for mode in (0, 1, 2)),
        case(T(4, 3), at(5, high=4), _OFFSETS, per_sample_weights=T(5)),
        case(T(4, 3), at(5, high=4), fixed((0, 2, 4), kind="int64"), include_last_offset=True),
    ],
)


# -- one of many -----------------------------------------------------------------------------------


def _one_hot(self, num_classes):
    if self.dtype != dtype_named("int64"):
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if not self.numel() and num_classes <= 0:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    check_all(self >= 0, RuntimeError("Class values must be non-negative."))
    if num_classes == -1:
        num_classes = int(ops.amax(whole_batch(self)).item()) + 1
    else:
        error = RuntimeError("Class values must be smaller than num_classes.")
        check_all(self < num_classes, error)
    return cast_to(self.unsqueeze(-1) == ops.arange_like(self, num_classes), self.dtype)


op(
    "one_hot(self: Tensor, num_classes: int = -1) -> Tensor",
    composite=_one_hot,
    method=False,
    namespace="functional",
    ref=lambda np, self, num_classes=-1: np.eye(
        num_classes if num_classes > 0 else self.max() + 1, dtype=int
    )[self],
    doc="Return 0 everywhere but 1 at the given class, along a new last dim; as many classes as "
    "occur, or `num_classes`.",
    samples=lambda: [
        case(at(4, high=3), 5),
        case(at(2, 3, high=4), 4),
        case(at(0, high=3), 3),
        case(at(high=3), 3),
        case(at(4, high=3), skip=COUNTED),
    ],
)
