"""The batching rules of vmap: how ops run on batches.

A rule receives an op, its arguments in order, which of them are batched (their first dim is the
batch dim), and the batch size, and returns results whose first dim is the batch dim. An op's entry
names its rule as ``batch``, followed by options: ``batch="along new_dim"``. Batched tensors
themselves are in `_c/transforms/batching.pyx`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import pullback
from pullback._bind import RANKS
from pullback._c.graph.tensor import Tensor
from pullback._c.transforms.batching import apply_op
from pullback._c.transforms.tangents import share_memory
from pullback.ops import ops

_CONDITIONS = ("condition", "mask")  # do not count in type promotion
_DIMS = ("dim", "dims", "dim0", "dim1", "dim2", "dimension")
_SIZES = {"size": True, "sizes": True, "shape": True, "repeats": False}
_SIZES_OF_DIMS = ("sizes", "shape", "size")


def run(op: Any, values: list, mapped: list, size: int) -> Any:
    """Run an op on a batch."""
    if op.is_inplace and mapped[0] is not True:
        what = "inplace arithmetic" if op.entry.batch in ("pointwise", "copy") else op.name
        raise RuntimeError(
            f"vmap: {what}(self, *extra_args) is not possible because there exists a Tensor "
            f"`other` in extra_args that has more elements than `self`. This happened due to "
            f"`other` being vmapped over but `self` not being vmapped over in a vmap. Please try "
            f"to use out-of-place operators instead of {what}, or make `self` from a batched "
            f"tensor, for example with new_zeros(). {op.name}() writes a tensor that is the same "
            f"for the whole batch."
        )
    return _rule_of(op)(op, values, mapped, size)


@functools.cache
def _rule_of(op: Any) -> Any:
    return _RULES[op.entry.batch.split()[0]]


@functools.cache
def _options_of(op: Any) -> frozenset[str]:
    return frozenset(op.entry.batch.split()[1:])


def run_random(op: Any, values: list, mapped: list, size: int, randomness: str) -> Any:
    """Run an op that draws random numbers: once for the batch, or once per element."""
    if "out" in op.arg_names and values[op.arg_names.index("out")] is not None:
        raise RuntimeError(
            "vmap: We do not support calling out variants of random operations inside of vmap. "
            "Please use non-out variants as a workaround"
        )
    if randomness == "error":
        raise RuntimeError(
            "vmap: called random operation while in randomness error mode. Please either use the "
            "'same' or 'different' randomness flags on vmap or perform the randomness operation "
            "out of vmap"
        )
    is_mapped = any(on is True for on in mapped)
    if randomness == "same" and not is_mapped:
        return apply_op(op, values)
    if randomness == "same" and op.entry.composite is not None:  # only the shape matters
        take = functools.partial(_element, i=0) if size else _zeros
        return apply_op(op, list(map(take, values, mapped)))
    if randomness == "same" and True in (mapped[1:] if op.is_inplace else mapped):
        raise RuntimeError(
            f"Vmap does not currently support same randomness with a batched tensor input, by "
            f"whose elements {op.name}() draws. Use randomness='different'"
        )
    if op.is_inplace and not mapped[0]:
        raise RuntimeError(
            f"vmap: Cannot ask for different inplace randomness on an unbatched tensor. This will "
            f"appear like same randomness. {op.name}() writes a tensor that is the same for the "
            f"whole batch."
        )
    if randomness == "different":
        return _one_by_one(op, values, mapped, size)
    generator = pullback.default_generator
    position = generator.position()

    def again(function):
        generator.go_back(*position)
        return function()

    return _one_by_one(op, values, mapped, size, again)


# ---- rules by kind -------------------------------------------------------------------------------


def _matrices(op, values, mapped, size):
    """Rule of ops whose tensors have the same batch dims in front of matrices or vectors."""
    values = [
        value.expand((size, *value.shape)) if isinstance(value, Tensor) and not on else value
        for value, on in zip(values, mapped)
    ]
    return apply_op(op, values)


def _unary(op, values, mapped, size):
    return apply_op(op, values)


def _rank(value, is_mapped):
    return value.dim() - is_mapped if isinstance(value, Tensor) else 0


def _pointwise(op, values, mapped, size):
    """Align the dims after the batch dim from the right, as broadcasting does."""
    rank = max(map(_rank, values, mapped))
    if (
        rank
        and not op.is_inplace
        and all(
            on and value.dim() > rank
            for value, on in zip(values, mapped)
            if isinstance(value, Tensor)
        )
    ):
        return apply_op(op, values)  # aligned already
    if op.is_inplace and rank > _rank(values[0], True):
        return _one_by_one(op, values, mapped, size)  # raises the op's error
    wide = [
        value.dtype
        for name, value, on in zip(op.arg_names, values, mapped)
        if isinstance(value, Tensor) and _rank(value, on) and name not in _CONDITIONS
    ]
    if rank == 0:  # a batched 0-d tensor has a dim; others get one, to count alike in promotion
        values = [
            value
            if on or name in _CONDITIONS or not isinstance(value, Tensor)
            else value.unsqueeze(0)
            for name, value, on in zip(op.arg_names, values, mapped)
        ]
    return apply_op(
        op,
        [
            _aligned(value, rank, [] if name in _CONDITIONS else wide) if on else value
            for name, value, on in zip(op.arg_names, values, mapped)
        ],
    )


def _fill(op, values, mapped, size):
    target, value = values
    if not mapped[1]:
        return apply_op(op, values)
    return ops.copy_(target, _aligned(value.to(target.dtype), _rank(target, mapped[0]), []))


def _masked_fill(op, values, mapped, size):
    """Rule of ops with a value, a 0-d tensor that may be batched."""
    if not mapped[2]:
        return _pointwise(op, values, mapped, size)
    target, mask, value = values
    rank = max(map(_rank, values[:2], mapped))
    value = _aligned(value.to(target.dtype), rank, [])
    mask, row = (
        _aligned(part, rank, []) if on else part
        for part, on in zip((mask, target), (mapped[1], mapped[0]))
    )
    filled = ops.where(mask, value, row)
    return ops.copy_(target, filled) if op.is_inplace else filled


def _aligned(value, rank, wide):
    """Insert dims after the batch dim, so that 0-d elements keep their rank in promotion."""
    if value.dim() == 1 and wide and _category(value.dtype) <= max(map(_category, wide)):
        value = value.to(_promoted(wide))
    missing = rank - (value.dim() - 1)
    if missing == 0:
        return value
    return value.view(value.shape[:1] + (1,) * missing + value.shape[1:])


def _category(dtype):
    return RANKS[dtype.kind]


def _promoted(dtypes):
    first, *rest = dtypes
    for dtype in rest:
        first = pullback.promote_types(first, dtype)
    return first


def _expanded(value, size):
    return value.unsqueeze(0).expand((size, *value.shape))


def _along(op, values, mapped, size, finish=apply_op, resolve=False):
    """Batch every tensor argument and shift dims by the batch dim.

    Dims and sizes name the dims of every tensor argument. Options:

    - ``new_dim``: dims refer to a rank of one more than the tensors'.
    - ``any_rank``: batches of 0-d tensors need no special case.
    - ``mixed_ranks``: dims refer to the first tensor's rank.
    - ``restores``: dims refer to the rank of the sizes, not of the tensors.
    - ``empty_is_none``: an empty ``dim`` means no dims; for other ops it means all.
    - ``length``: ``size`` is a length, not a shape.

    ``finish`` runs the op on the arguments. With ``resolve``, one of the sizes may be -1.
    """
    options = _options_of(op)
    named = dict(zip(op.arg_names, values))
    ranks = {
        _rank(v, o)
        for value, on in zip(values, mapped)
        for v, o in (zip(value, on) if isinstance(on, list) else [(value, on)])
        if isinstance(v, Tensor)
    }
    sizes = next((named[name] for name in _SIZES_OF_DIMS if name in named), None)
    if sizes is not None and "restores" in options:
        rank = len(sizes)
        if rank == 0:
            return _one_by_one(op, values, mapped, size)
    elif len(ranks) > 1 and "mixed_ranks" not in options:
        return _one_by_one(op, values, mapped, size)
    else:
        rank = _rank(values[0], mapped[0]) if isinstance(values[0], Tensor) else ranks.pop()
        if rank == 0 and not options & {"new_dim", "any_rank"}:
            return _one_by_one(op, values, mapped, size)
    if named.get("dim", 0) is None and not _takes_dims(op):
        return _over_all(op, values, mapped, size)
    placed = []
    for name, value, on in zip(op.arg_names, values, mapped):
        if isinstance(value, Tensor):
            placed.append(value if on else _expanded(value, size))
        elif isinstance(on, list):
            placed.append(tuple([v if o else _expanded(v, size) for v, o in zip(value, on)]))
        elif name in _DIMS:
            placed.append(_shifted(options, value, rank))
        elif name in _SIZES and not (name == "size" and "length" in options):
            sizes = _as_sizes(value)
            if not size and -1 in sizes and resolve:
                sizes = _resolved(sizes, values[0].shape[1:])
            placed.append((size if _SIZES[name] else 1, *sizes))
        else:
            placed.append(value)
    return finish(op, placed)


def _permute(op, values, mapped, size):
    return _along(
        op, values, mapped, size, lambda op, placed: apply_op(op, [placed[0], (0, *placed[1])])
    )


def _expand(op, values, mapped, size):
    return _along(
        op,
        values,
        mapped,
        size,
        lambda op, placed: apply_op(op, [_aligned(placed[0], len(placed[1]) - 1, []), *placed[1:]]),
    )


def _view(op, values, mapped, size):
    """Rule of contiguous: an element may be contiguous where its batch is not."""
    return _along(
        op,
        values,
        mapped,
        size,
        lambda op, placed: (
            apply_op(op, placed) if placed[0].is_contiguous() else ops.reshape(*placed)
        ),
        True,
    )


def _squeeze(op, values, mapped, size):
    if _rank(values[0], mapped[0]) == 0:
        return ops.squeeze(values[0], ())
    return _along(op, values, mapped, size)


def _as_sizes(sizes):
    return tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)


def _resolved(sizes, shape):
    """Return the sizes of an element with a -1 resolved, also for an empty batch."""
    known = math.prod(size for size in sizes if size != -1)
    rest = math.prod(shape) // known if known else 0
    return tuple([rest if size == -1 else size for size in sizes])


def _over_all(op, values, mapped, size):
    """Reduce over all dims of each element, as rows of a matrix."""
    if "keepdim" in op.arg_names and values[op.arg_names.index("keepdim")]:
        return _one_by_one(op, values, mapped, size)
    value = values[0]
    count = value.numel() // size if size else 1
    placed = [value.reshape((size, count)), *values[1:]]
    placed[op.arg_names.index("dim")] = 1
    return apply_op(op, placed)


def _shifted(options, dim, rank):
    """Return dims of an element as dims of the batch."""
    if dim is None or (dim in ((), []) and "empty_is_none" not in options):
        return tuple(range(1, rank + 1))
    if isinstance(dim, (tuple, list)):
        return tuple([_shifted(options, d, rank) for d in dim])
    count = max(rank + ("new_dim" in options), 1)
    if not -count <= dim < count:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-count}, "
            f"{count - 1}], but got {dim})"
        )
    return dim % count + 1


@functools.cache
def _takes_dims(op):
    return next((a.type for a in op.entry.arguments if a.name == "dim"), "").startswith("int[]")


def _one_by_one(op, values, mapped, size, around=lambda function: function()):
    """Run the op once per element and stack the results.

    An in-place op with a derivative writes to copies: the write of one element must not count as a
    write to tensors that another one has saved. A view becomes a view of the batch.
    """
    if size == 0:
        return _of_no_elements(op, values, mapped)
    results = []
    for i in range(size):
        element = [_element(value, on, i) for value, on in zip(values, mapped)]
        if op.is_inplace and op.differentiable:
            element[0] = element[0].clone()
        results.append(around(functools.partial(apply_op, op, element)))
        if op.entry.view and not any(mapped[1:]) and _is_part(results[0], values[0]):
            return _part_of_batch(values[0], results[0])
    if not op.is_inplace:
        return _stacked(op, results)
    if op.differentiable:
        ops.copy_(values[0], ops.stack(results))
    return None


def _is_part(part, whole):
    return isinstance(part, Tensor) and part.dtype is whole.dtype and share_memory(part, whole)


def _part_of_batch(batch, part):
    """Return a view of a batch, of each element as a given view is of the first element."""
    return batch.as_strided(
        (len(batch), *part.shape), (batch.stride(0), *part.stride()), part.storage_offset()
    )


def _element(value, on, i):
    if isinstance(on, list):
        return tuple([_element(v, o, i) for v, o in zip(value, on)])
    return value.select(0, i) if on else value


def _of_no_elements(op, values, mapped):
    """Return results of an empty batch, with the shapes that one element of zeros gives."""
    if op.is_inplace:
        return None
    return _stacked(op, [apply_op(op, list(map(_zeros, values, mapped)))], 0)


def _zeros(value, on):
    """Return an element for an empty batch, which requires grad if the batch does."""
    if isinstance(on, list):
        return tuple([_zeros(v, o) for v, o in zip(value, on)])
    if not on:
        return value
    return value.sum(0) if value.requires_grad else value.new_zeros(value.shape[1:])


def _stacked(op, results, count=None):
    first = results[0]
    if isinstance(first, Tensor):
        if any(result.shape != first.shape for result in results):
            raise RuntimeError(
                f"vmap: We do not support batching operators that can output dynamic shape: the "
                f"results of {op.name}() differ in shape along the batch."
            )
        return ops.stack(results)[:count]
    if isinstance(first, (tuple, list)):
        parts = [_stacked(op, list(part), count) for part in zip(*results)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    raise RuntimeError(f"vmap: {op.name}() gives {type(first).__name__}, which cannot be batched")


# ---- rules of single ops -------------------------------------------------------------------------


def _batch(value, on, size):
    return value if on else _expanded(value, size)


def _t(op, values, mapped, size):
    (value,) = values
    if value.dim() > 3:
        raise RuntimeError(
            f"t() expects a tensor with <= 2 dimensions, but self is {value.dim() - 1}D"
        )
    return value if value.dim() < 3 else value.transpose(1, 2)


def _mm(op, values, mapped, size):
    left, right = values
    if _rank(left, mapped[0]) != 2 or _rank(right, mapped[1]) != 2:
        return _one_by_one(op, values, mapped, size)  # raises the op's error
    if left.shape[-1] != right.shape[-2]:
        return _one_by_one(op, values, mapped, size)
    if not mapped[1]:  # one product, with the batch as more rows
        return ops.mm(left.reshape((size * left.shape[1], left.shape[2])), right).view(
            (size, left.shape[1], right.shape[1])
        )
    return ops.bmm(_batch(left, mapped[0], size), right)


def _mv(op, values, mapped, size):
    matrix, vector = values
    if _rank(matrix, mapped[0]) != 2 or _rank(vector, mapped[1]) != 1:
        return _one_by_one(op, values, mapped, size)
    if matrix.shape[-1] != vector.shape[-1]:
        return _one_by_one(op, values, mapped, size)
    if not mapped[0]:
        return ops.mm(vector, matrix.t())
    if not mapped[1]:
        rows = matrix.reshape((size * matrix.shape[1], matrix.shape[2]))
        return ops.mv(rows, vector).view(matrix.shape[:2])
    return ops.bmm(matrix, vector.unsqueeze(2)).squeeze(2)


def _dot(op, values, mapped, size, conjugate=False):
    left, right = values
    if _rank(left, mapped[0]) != 1 or _rank(right, mapped[1]) != 1:
        return _one_by_one(op, values, mapped, size)
    if left.shape[-1] != right.shape[-1] or left.dtype != right.dtype:
        return _one_by_one(op, values, mapped, size)
    if conjugate:
        left = left.conj()
    left, right = _batch(left, mapped[0], size), _batch(right, mapped[1], size)
    return ops.bmm(left.unsqueeze(1), right.unsqueeze(2)).reshape((size,))


def _bmm(op, values, mapped, size):
    left, right = (_batch(value, on, size) for value, on in zip(values, mapped))
    if left.dim() != 4 or right.dim() != 4 or left.shape[1] != right.shape[1]:
        return _one_by_one(op, values, mapped, size)
    batch = size * left.shape[1]
    result = ops.bmm(
        left.reshape((batch, *left.shape[2:])), right.reshape((batch, *right.shape[2:]))
    )
    return result.view((size, left.shape[1], *result.shape[1:]))


def _addmm(op, values, mapped, size):
    if op.is_inplace or _rank(values[1], mapped[1]) != 2 or _rank(values[2], mapped[2]) != 2:
        return _one_by_one(op, values, mapped, size)
    total, left, right, beta, alpha = values
    if not (mapped[1] or mapped[2]) or left.shape[-1] != right.shape[-2]:
        return _one_by_one(op, values, mapped, size)
    product = _mm(ops.mm, [left, right], mapped[1:3], size)
    if mapped[0]:
        total = _aligned(total, 2, [])
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return product + (total if beta == 1 else total * beta)


def _clone_beside(op, values, mapped, size):
    return ops.clone_beside(_batch(values[0], mapped[0], size), values[1])  # levels outside


def _where(op, values, mapped, size):
    """Rule of where; with a condition alone the number of results differs along the batch."""
    if values[1] is None and values[2] is None:
        return _one_by_one(op, values, mapped, size)
    return _pointwise(op, values, mapped, size)


def _index_select(op, values, mapped, size):
    source, dim, index = values
    if mapped[2] or source.dim() < 2:
        return _one_by_one(op, values, mapped, size)
    return ops.index_select(source, dim if dim < 0 else dim + 1, index)


def _embedding(op, values, mapped, size):
    if mapped[0]:
        return _one_by_one(op, values, mapped, size)
    return apply_op(op, values)


def _attention(op, values, mapped, size):
    """Rule of attention and its derivative: the batch is one more leading dim of all operands."""
    return apply_op(
        op,
        [
            value if on or not isinstance(value, Tensor) else _expanded(value, size)
            for value, on in zip(values, mapped)
        ],
    )


def _as_strided_scatter(op, values, mapped, size):
    """Rule of as_strided: the offset is that of the first element, others follow it."""
    source, src, sizes, strides, offset = values
    if not mapped[0] or not size:
        return _one_by_one(op, values, mapped, size)
    start = source.storage_offset() if offset is None else offset
    return ops.stack(
        [
            ops.as_strided_scatter(
                source.select(0, i),
                _element(src, mapped[1], i),
                sizes,
                strides,
                start + i * source.stride(0),
            )
            for i in range(size)
        ]
    )


def _as_strided(op, values, mapped, size):
    source, sizes, strides, offset = values
    return source.as_strided(
        (size, *sizes),
        (source.stride(0), *strides),
        source.storage_offset() if offset is None else offset,
    )


def _flattened(dims):
    """Return the rule of an op whose first tensor takes batch dims before its last `dims` dims."""

    def rule(op, values, mapped, size):
        if not mapped[0] or any(mapped[1:]) or values[0].dim() != dims(values) + 2:
            return _one_by_one(op, values, mapped, size)
        whole = values[0]
        result = apply_op(op, [whole.reshape((-1, *whole.shape[2:])), *values[1:]])
        return (
            result.view((size, whole.shape[1], *result.shape[1:]))
            if size
            else (result.new_empty((0, whole.shape[1], *result.shape[1:])))
        )

    return rule


def _vdot(op, values, mapped, size):
    return _dot(op, values, mapped, size, conjugate=True)


_convolution = _flattened(lambda values: values[1].dim() - 1)
# By the first word of an entry's ``batch``: rules of many ops, and those that one op has.
_RULES: dict[str, Any] = {
    "each": _one_by_one,
    "unary": _unary,  # one tensor, elementwise or with batch dims first
    "pointwise": _pointwise,
    "along": _along,
    "convolution": _convolution,
    **{
        rule.__name__.removeprefix("_"): rule
        for rule in (
            *(_permute, _expand, _view, _squeeze, _fill, _masked_fill, _where, _t),
            *(_mm, _mv, _dot, _vdot, _bmm, _addmm, _clone_beside, _index_select),
            *(_matrices, _attention, _embedding, _as_strided, _as_strided_scatter),
        )
    },
}
