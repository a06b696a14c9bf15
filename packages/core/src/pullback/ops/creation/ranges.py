"""New tensors with a pattern: eye, linspace, logspace, vander, indices of triangles."""

import math
import warnings

from pullback.ops.creation.create import (
    NEW,
    factories,
    factory,
    full_tensor,
    put_into,
    result_dtype,
    run_arange,
    with_requires_grad,
)
from pullback.ops.rules.arguments import as_int, sizes_of
from pullback.ops.rules.dtypes import (
    cast_to,
    default_dtype,
    dtype_named,
    type_name,
    unsupported,
    widest,
)
from pullback.ops.shape.rearrange import row_major
from pullback.ops.table.primitives_api import run_primitive, writable
from pullback.ops.table.samples import COUNTED, NO_PART, TESTED, UNFILLED, T, at, case, constant
from pullback.ops.table.schema import COMPLEX, FLOATING, NUMBERS, op, ops


def _count_up(count, dtype, device):
    return run_arange(factories().empty_tensor((count,), dtype, device), 0, 1)


# -- identity --------------------------------------------------------------------------------------


def _eye(n, m, out, dtype, layout, device, pin_memory, requires_grad):
    n = as_int(n, "eye", "n")
    m = n if m is None else as_int(m, "eye", "m")
    for name, size in (("n", n), ("m", m)):
        if size < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {size}")
    made = full_tensor((n, m), 0, result_dtype(dtype, out), device, False)
    ops.fill_(made.diagonal(), 1)
    return put_into(out, with_requires_grad(made, requires_grad))


factory(
    "eye",
    "n: int, m: int? = None",
    _eye,
    "Return a matrix with ones on the diagonal and zeros elsewhere.\n\nRaises: RuntimeError "
    "for a negative size.",
    samples=lambda: [
        case(3, dtype=TESTED),
        case(2, 3, dtype=TESTED),
        case(3, 2),
        case(0),
        case(0, 2),
        case(2, 0),
    ],
    ref=lambda np, n, m=None, dtype=None: np.eye(n, m),
)


# -- sequences -------------------------------------------------------------------------------------


def _end(name, argument, value):
    """Return an end of a sequence as a number."""
    if hasattr(value, "requires_grad"):
        if value.ndim:
            raise RuntimeError(
                f"{name} only supports 0-dimensional start and end tensors, but got "
                f"{argument} with {value.ndim} dimension(s)."
            )
        return value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float, complex)):
        raise TypeError(
            f"{name}(): argument '{argument}' must be Number, not {type(value).__name__}"
        )
    return value


def _ends(name, start, end, steps, out, dtype):
    """Return the checked ends, the number of steps and the dtype of a sequence."""
    start, end = _end(name, "start", start), _end(name, "end", end)
    steps = as_int(steps, name, "steps")
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    dtype = result_dtype(dtype, out)
    if isinstance(start, complex) or isinstance(end, complex):
        dtype = default_dtype().to_complex() if dtype is None else dtype
        if not dtype.is_complex:
            raise RuntimeError(
                f"torch.{name}(): inferred dtype {default_dtype().to_complex()} "
                f"can't be safely cast to passed dtype {type_name(dtype)}"
            )
    dtype = default_dtype() if dtype is None else dtype
    if dtype.kind == "b":
        raise unsupported(name, dtype)
    if dtype.kind in "ui":
        start, end = int(start), int(end)
    return start, end, steps, dtype


def _wide(dtype, device):
    """Return the dtype that a sequence is computed in."""
    narrow = dtype.kind in "ui" or dtype.itemsize == 2
    return widest(device) if narrow else dtype


def _line(start, end, steps, dtype, device):
    """Count from both ends, so that the last number is exact and the sequence symmetric."""
    if not dtype.is_complex:
        return factories().line(factories().empty_tensor((steps,), dtype, device), start, end)
    position = cast_to(_count_up(steps, dtype.to_real(), device), dtype)
    if steps < 2:
        return position * 0 + start
    step = (end - start) / (steps - 1)
    first = _count_up(steps, dtype_named("int64"), device) < steps // 2
    return ops.where(first, start + position * step, end - (steps - 1 - position) * step)


def _linspace(start, end, steps, out, dtype, layout, device, pin_memory, requires_grad):
    start, end, steps, dtype = _ends("linspace", start, end, steps, out, dtype)
    made = cast_to(_line(start, end, steps, _wide(dtype, device), device), dtype)
    return put_into(out, with_requires_grad(made, requires_grad))


def _logspace(start, end, steps, base, out, dtype, layout, device, pin_memory, requires_grad):
    start, end, steps, dtype = _ends("logspace", start, end, steps, out, dtype)
    made = cast_to(ops.pow(base, _line(start, end, steps, _wide(dtype, device), device)), dtype)
    return put_into(out, with_requires_grad(made, requires_grad))


def _range(start, end, step, out, dtype, layout, device, pin_memory, requires_grad):
    warnings.warn(
        "pullback.range is deprecated and will be removed in a future release because its behavior "
        "is inconsistent with Python's range builtin. Instead, use pullback.arange, which produces "
        "values in [start, end).",
        UserWarning,
        stacklevel=2,
    )
    start, end, step = (
        _end("range", name, value)
        for name, value in (("start", start), ("end", end), ("step", step))
    )
    if any(isinstance(value, complex) for value in (start, end, step)):
        raise RuntimeError("value cannot be converted to type double without overflow")
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start:g} -> {end:g}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    dtype = result_dtype(dtype, out) or default_dtype()
    if dtype.kind not in "uif":
        raise unsupported("range_cpu", dtype)
    count = math.floor((end - start) / step) + 1
    made = factories().empty_tensor((count,), dtype, device)
    return put_into(out, with_requires_grad(run_arange(made, start, step), requires_grad))


factory(
    "range",
    "start: any, end: any, step: Scalar = 1",
    _range,
    "Return start, start + step, ... up to and including end; deprecated, use ``arange``.\n\n"
    "Raises: RuntimeError for a step of 0 or of the wrong sign.",
    kernel="arange",
    samples="it warns that it is deprecated; the behaviour tests call it",
)
factory(
    "linspace",
    "start: any, end: any, steps: int",
    _linspace,
    "Return numbers at equal distances from start to end, both included.\n\nIntegers are cut "
    "towards 0.\nRaises: RuntimeError for a negative number of them.",
    kernel="linspace",
    samples=lambda: [
        case(5, 0, 6, dtype=TESTED),
        case(0, 1, 5, dtype=TESTED, only=FLOATING | COMPLEX),
        case(-3, 9, 5),
        case(2, 2, 3),
        case(1, 5, 1),
        case(0, 1, 0),
        case(1j, 1, 3),
        case(constant(), constant(), 4, only=FLOATING, skip=COUNTED),
    ],
    ref=lambda np, start, end, steps, dtype=None: np.linspace(start, end, steps),
    dtypes=NUMBERS,
)
factory(
    "logspace",
    "start: any, end: any, steps: int, base: float = 10.0",
    _logspace,
    "Return powers of a base with evenly spaced exponents.",
    samples=lambda: [
        case(0, 3, 4, 2, dtype=TESTED),
        case(-1, 1, 5),
        case(0, 1, 0),
        case(1, 2, 1),
        case(0, 2, 3, dtype=TESTED, only=FLOATING | COMPLEX),
        case(0, 1j, 3),
    ],
    ref=lambda np, start, end, steps, base=10.0, dtype=None: np.logspace(
        start, end, steps, base=base
    ),
    dtypes=NUMBERS,
)


def _vander(x, N, increasing):
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    count = x.shape[0] if N is None else as_int(N, "vander", "N")
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    x = x if x.dtype.kind in "fc" else cast_to(x, dtype_named("int64"))
    ones = ops.new_ones(x, (x.shape[0], min(count, 1)))
    if count > 1:
        powers = ops.cumprod(x.unsqueeze(1).expand((x.shape[0], count - 1)), 1)
        ones = ops.cat([ones, powers], 1)
    return ones if increasing else ops.flip(ones, (1,))


op(
    "vander(x: Tensor, N: int? = None, increasing: bool = False) -> Tensor",
    autocast=(None, "off"),
    composite=_vander,
    method=False,
    doc="Return a matrix whose columns are powers of a vector, the highest first.\n\n"
    "Raises: RuntimeError for other tensors than vectors.",
    samples=lambda: [
        case(T(3)),
        case(T(3), 2),
        case(T(3), 4, True),
        case(T(3), 0, skip=NO_PART),
        case(T(3), 1, skip=NO_PART),
        case(T(0), skip=NO_PART),
        case(T(2), increasing=True),
    ],
    ref=lambda np, x, N=None, increasing=False: np.vander(x, N, increasing),
)


# -- memory without values -------------------------------------------------------------------------


def _empty_strided(size, stride, out, dtype, layout, device, pin_memory, requires_grad):
    size, stride = (
        sizes_of(size, "empty_strided", "size"),
        sizes_of(stride, "empty_strided", "stride"),
    )
    if len(size) != len(stride):
        raise RuntimeError(
            f"dimensionality of sizes ({len(size)}) must match dimensionality of "
            f"strides ({len(stride)})"
        )
    made = factories().empty_strided_tensor(size, stride, result_dtype(dtype, out), device)
    return with_requires_grad(factories().uninitialized(made), requires_grad)


factory(
    "empty_strided",
    "size: int[], stride: int[]",
    _empty_strided,
    "Return an uninitialised tensor with these strides.",
    samples=lambda: [
        case(size, stride, dtype=TESTED, skip=UNFILLED)
        for size, stride in (((2, 3), (1, 2)), ((), ()), ((0, 2), (2, 1)), ((2, 3), (0, 1)))
    ],
)


def _empty_permuted(size, physical_layout, out, dtype, layout, device, pin_memory, requires_grad):
    order, ndim = tuple(physical_layout), len(size)
    if len(order) != ndim:
        raise RuntimeError(
            f"Number of dimensions in size does not match the length of the "
            f"physical_layout; i.e. len(size) = {ndim} is not equal to "
            f"len(physical_layout) = {len(order)}"
        )
    stride, step, seen = [0] * ndim, 1, set()
    for position, d in enumerate(order):
        if not 0 <= d < ndim:
            raise RuntimeError(
                f"Dimension out of range (expected to be between 0 and {ndim - 1}, "
                f"but got {d} at index {position})"
            )
        if d in seen:
            raise RuntimeError("Duplicate dim not allowed")
        seen.add(d)
    for d in reversed(order):
        stride[d] = step
        step *= max(size[d], 1)
    made = factories().empty_strided_tensor(size, tuple(stride), result_dtype(dtype, out), device)
    return with_requires_grad(factories().uninitialized(made), requires_grad)


factory(
    "empty_permuted",
    "size: int[], physical_layout: int[]",
    _empty_permuted,
    "Return an uninitialised tensor with the dims in the given order in memory.",
    samples=lambda: [
        case((2, 3, 4), (2, 0, 1), dtype=TESTED, skip=UNFILLED),
        case((), (), skip=UNFILLED),
        case((0, 2), (1, 0), skip=UNFILLED),
    ],
)
op(
    f"new_empty_strided(self: Tensor, size: int[], stride: int[], {NEW}) -> Tensor",
    function=False,
    composite=lambda self, size, stride, dtype, layout, device, pin_memory, requires_grad: (
        ops.empty_strided(
            size,
            stride,
            dtype=self.dtype if dtype is None else dtype,
            device=self.device if device is None else device,
            requires_grad=requires_grad,
        )
    ),
    doc="Return a new tensor with the dtype and device of this one and the given strides.",
    constant=True,
    samples=lambda: [case(T(2), (2, 3), (1, 2), skip=UNFILLED), case(T(), (), (), skip=UNFILLED)],
)
op(
    "fill(self: Tensor, value: Operand) -> Tensor",
    method=False,
    composite=lambda self, value: ops.fill_(writable(self, value), value),
    doc="Return a tensor of the same shape and dtype with every element set to a number.",
    samples=lambda: [case(T(2, 3), 1), case(T(), 0), case(T(0), 1), case(T(2, 3), T())],
    ref=lambda np, self, value: np.full(self.shape, value),
)


# -- indices ---------------------------------------------------------------------------------------


def _count_lower(rows, columns, offset):
    """Return how many elements are on or below a diagonal: a triangle, then full rows."""
    first = min(max(-offset, 0), rows)
    full = min(max(columns - offset - 1, first), rows)
    return (full - first) * (first + full + 1 + 2 * offset) // 2 + (rows - full) * columns


def _triangle_indices(name, below):
    def composite(row, col, offset, dtype, device, layout, pin_memory):
        row, col = as_int(row, name, "row"), as_int(col, name, "col")
        offset = as_int(offset, name, "offset")
        for argument, size in (("row", row), ("col", col)):
            if size < 0:
                raise RuntimeError(f"{argument} must be non-negative, got{size}")
        dtype = dtype_named("int64") if dtype is None else dtype
        if dtype.kind not in "ui" or dtype.itemsize == 1:
            raise unsupported(name, dtype)
        offset = min(max(offset, -row), col)  # beyond, nothing changes
        # Of the rows and columns that the triangle reaches, it takes up half at least.
        top, bottom, left, right = (
            (max(-offset, 0), row, 0, min(col, row + offset))
            if below
            else (0, min(row, col - offset), max(offset, 0), col)
        )
        count = (
            _count_lower(row, col, offset)
            if below
            else (row * col - _count_lower(row, col, offset - 1))
        )
        positions = factories().empty_tensor((count, 2), dtype_named("int64"), device)
        if count:
            rows = _count_up(bottom - top, positions.dtype, device).unsqueeze(1)
            columns = _count_up(right - left, positions.dtype, device)
            border = rows + (top + offset - left)
            kept = columns <= border if below else columns >= border
            run_primitive("nonzero", (positions,), (kept,))
        found = row_major(positions.t())
        for line, shift in ((0, top), (1, left)):
            if shift:
                found[line].add_(shift)
        return cast_to(found, dtype)

    return composite


for _name, _side in (("tril_indices", "lower"), ("triu_indices", "upper")):
    op(
        f"{_name}(row: int, col: int, offset: int = 0, *, dtype: dtype? = None, "
        f"device: device? = None, layout: layout? = None, pin_memory: bool = False) -> Tensor",
        method=False,
        composite=_triangle_indices(_name, _side == "lower"),
        doc=f"Return the rows and the columns of the {_side} triangle of a matrix, as two rows.",
        samples=[
            case(*call)
            for call in (
                (3, 3),
                (3, 4, 1),
                (4, 3, -1),
                (2, 5, -1),
                (5, 2, 2),
                (3, 3, -5),
                (3, 3, 7),
                (0, 3),
                (3, 0),
                (1, 1),
            )
        ],
        ref=lambda np, row, col, offset=0, _name=_name: np.stack(
            getattr(np, _name)(row, offset, col)
        ),
    )


op(
    "argwhere(self: Tensor) -> Tensor",
    composite=lambda self: ops._nonzero(self),
    ref="numpy.argwhere",
    doc="Return the coordinates of the elements that are not 0, row by row.",
    samples=lambda: [
        case(T(*shape, low=-1, high=1, step=1), skip=COUNTED)
        for shape in ((4,), (3, 4), (0, 2), ())
    ],
)


def _unravel_index(indices, shape):
    if not hasattr(indices, "requires_grad"):
        raise TypeError(
            f"unravel_index(): argument 'indices' must be Tensor, not {type(indices).__name__}"
        )
    if indices.dtype.kind not in "ui":
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    sizes = (shape,) if hasattr(shape, "__index__") and not hasattr(shape, "dtype") else shape
    if not isinstance(sizes, (tuple, list)):
        raise TypeError(f"expected 'shape' to be int or sequence of ints, but got {type(shape)}")
    for size in sizes:
        if not hasattr(size, "__index__"):
            raise TypeError(f"expected 'shape' sequence to only contain ints, but got {type(size)}")
        if size < 0:
            raise ValueError(f"'shape' cannot have negative values, but got {tuple(sizes)}")
    found, step, indices = [], 1, cast_to(indices, dtype_named("int64"))
    for size in reversed(sizes):
        found.append(ops.remainder(ops.floor_divide(indices, step), size))
        step *= size
    return tuple(ops.stack(found[::-1], -1).unbind(-1)) if found else ()


op(
    "unravel_index(indices: any, shape: any) -> any",
    composite=_unravel_index,
    method=False,
    doc="Return the coordinates of elements from their positions in a flat tensor of a shape.\n\n"
    "Raises: TypeError for indices other than integers, ValueError for negative sizes.",
    samples=lambda: [
        case(at(3, high=6), (2, 3)),
        case(at(high=6), (2, 3)),
        case(at(2, 2, high=6), 6),
        case(at(0, high=6), (3, 2)),
        case(at(2, high=24), (2, 3, 4)),
    ],
    ref=lambda np, indices, shape: np.unravel_index(indices, shape),
)
