"""Views of some elements of a dim, one or several of them, and their derivatives."""

from pullback.ops.shape.views import view_op
from pullback.ops.table.primitives_api import new_filled
from pullback.ops.table.samples import (
    T,
    case,
    references_of,
)
from pullback.ops.table.schema import op, ops

references = references_of("shape")


view_op(
    "select(self: Tensor, dim: int, index: int) -> Tensor",
    lambda g, self_shape, dim, index: ops.select_backward(g, self_shape, dim, index),
    "Return the view at one index of a dim.",
    batch="along",
    samples=lambda: [
        case(T(2, 3), 0, 1),
        case(T(2, 3), -1, -1),
        case(T(3), 0, 0),
        case(T(2, 0), 0, 1),
    ],
    ref=lambda np, self, dim, index: np.take(self, index, dim),
)
view_op(
    "narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor",
    lambda g, self_shape, dim, start, length: ops.narrow_backward(
        g, self_shape, dim, start, length
    ),
    "Return the view of a range of a dim.",
    node="SliceBackward0",
    batch="along",
    samples=lambda: [case(T(2, 3), 1, 1, 2), case(T(2, 3), 0, 0, 0), case(T(2, 3), -1, -2, 1)],
    ref=lambda np, self, dim, start, length: np.take(
        self, np.arange(start % self.shape[dim], start % self.shape[dim] + length), dim
    ),
)
view_op(
    "slice(self: Tensor, dim: int = 0, start: int? = None, end: int? = None, step: int = 1) "
    "-> Tensor",
    lambda g, self_shape, dim, start, end, step: ops.slice_backward(
        g, self_shape, dim, start, end, step
    ),
    "Return the view of every step-th index of a range of a dim.",
    batch="along",
    function=False,
    method=False,
    samples=lambda: [
        case(T(5), 0, 1, 4, 2),
        case(T(2, 5), 1, None, -1),
        case(T(2, 5), -1, -3),
        case(T(3), 0, 2, 1),
        case(T(0)),
    ],
    ref=lambda np, self, dim=0, start=None, end=None, step=1: np.moveaxis(
        np.moveaxis(self, dim, 0)[start:end:step], 0, dim
    ),
)
view_op(
    "diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor",
    lambda g, self_shape, offset, dim1, dim2: ops.diagonal_backward(
        g, self_shape, offset, dim1, dim2
    ),
    "Return the view of a diagonal of two dims; it is the last dim.",
    batch="along",
    ref="numpy.diagonal",
    samples=lambda: [
        case(T(3, 3)),
        case(T(2, 3), 1),
        case(T(2, 3), -1),
        case(T(2, 3, 4), 0, 0, 2),
        case(T(2, 3), 5),
        case(T(2, 3, 4), 1, -1, 1),
    ],
)


# The derivative of a view: zeros in the shape of the whole, with the gradient in its part.
_BACKWARD = {
    "select": (
        [case(T(3), (2, 3), 0, 1), case(T(2), (2, 3), -1, 0)],
        lambda np, self, size, dim, index: references.embed(
            np, self, size, references.at(dim % len(size), index)
        ),
    ),
    "narrow": (
        [case(T(2, 2), (2, 3), 1, 1, 2), case(T(0, 3), (2, 3), 0, 1, 0)],
        lambda np, self, size, dim, start, length: references.embed(
            np, self, size, references.at(dim, slice(start, start + length))
        ),
    ),
    "slice": (
        [case(T(2), (5,), 0, 1, 4, 2), case(T(2, 3), (2, 5), 1, None, 3, 1)],
        lambda np, self, size, dim, start, end, step: references.embed(
            np, self, size, references.at(dim, slice(start, end, step))
        ),
    ),
    "diagonal": (
        [
            case(T(2), (2, 3), 1, 0, 1),
            case(T(3, 2), (2, 3, 4), 0, 0, 2),
            case(T(1), (3, 2), -2, 0, 1),
        ],
        references.embed_diagonal,
    ),
}
for _name, _arguments in {
    "select": "dim: int, index: int",
    "narrow": "dim: int, start: int, length: int",
    "slice": "dim: int, start: int?, end: int?, step: int",
    "diagonal": "offset: int, dim1: int, dim2: int",
}.items():
    _names = [part.partition(":")[0].strip() for part in _arguments.split(",")]
    op(
        f"{_name}_backward(self: Tensor, size: int[], {_arguments}) -> Tensor",
        jvp="linear",
        forward="embed",
        node="SliceBackwardBackward0" if _name == "narrow" else None,
        batch="along restores",
        method=False,
        function=False,
        vjp={"self": eval(f"lambda g, {', '.join(_names)}: ops.{_name}(g, {', '.join(_names)})")},
        doc=f"Return zeros of `size` with self in the position that {_name} would return.",
        samples=_BACKWARD[_name][0],
        ref=_BACKWARD[_name][1],
    )

view_op(
    "unbind(self: Tensor, dim: int = 0) -> Tensor[]",
    lambda gs, self_like, dim: _stack_parts(gs, self_like, dim),
    "Return the views at every index of a dim, as a tuple.",
    batch="along",
    samples=lambda: [case(T(2, 3)), case(T(2, 3), 1), case(T(3)), case(T(2, 0), -1)],
    ref=lambda np, self, dim=0: list(np.moveaxis(self, dim, 0)),
)


def _stack_parts(gs, like, dim):
    shape = list(like.shape)
    del shape[dim]
    return ops.stack([new_filled(like, shape) if part is None else part for part in gs], dim)
