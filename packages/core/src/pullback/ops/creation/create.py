"""New tensors, and values written into old ones."""

from functools import cache

from pullback.ops.rules.dtypes import dtype_named, type_name
from pullback.ops.table.primitives_api import beside, run_primitive
from pullback.ops.table.samples import TESTED, UNFILLED, Dtype, T, case
from pullback.ops.table.schema import FLOATING, INTEGRAL, op, ops


@cache
def factories():
    from pullback._c.ops import create

    return create


def full_tensor(shape, value, dtype, device, requires_grad):
    create = factories()
    out = create.fill_tensor(create.empty_tensor(shape, dtype, device), value)
    return with_requires_grad(out, requires_grad)


def put_into(out, made):
    """Give a result to out=, as torch resizes and fills it."""
    return made if out is None else ops.set_result(out, made)


def result_dtype(dtype, out):
    """Return the wanted dtype; without one, that of out= counts."""
    if out is None:
        return dtype
    if dtype is not None and dtype != out.dtype:
        raise RuntimeError(
            f"dtype {type_name(dtype)} does not match dtype of out parameter "
            f"({type_name(out.dtype)})"
        )
    return out.dtype


NEW = (
    "*, dtype: dtype? = None, layout: layout? = None, device: device? = None, "
    "pin_memory: bool? = False, requires_grad: bool? = False"
)
OPTIONS = "*, out: Tensor? = None, " + NEW.removeprefix("*, ")
LIKE = NEW + ", memory_format: memory_format? = None"


def factory(name, signature, make, doc, **fields):
    op(f"{name}({signature}, {OPTIONS}) -> Tensor", composite=make, method=False, doc=doc, **fields)


factory(
    "empty",
    "size: int[]",
    lambda size, out, dtype, layout, device, pin_memory, requires_grad: put_into(
        out,
        with_requires_grad(
            factories().uninitialized(
                factories().empty_tensor(size, result_dtype(dtype, out), device)
            ),
            requires_grad,
        ),
    ),
    "Return an uninitialised tensor.",
    varargs=True,
    compiled="empty",
    samples=lambda: [
        case((2, 3), dtype=TESTED, skip=UNFILLED),
        case(2, 0, dtype=TESTED, skip=UNFILLED),
    ],
)
factory(
    "zeros",
    "size: int[]",
    lambda size, out, dtype, layout, device, pin_memory, requires_grad: put_into(
        out, full_tensor(size, 0, result_dtype(dtype, out), device, requires_grad)
    ),
    "Return a tensor of zeros.",
    varargs=True,
    compiled="zeros",
    samples=lambda: [
        case((2, 3), dtype=TESTED),
        case((), dtype=TESTED),
        case((0, 2), dtype=TESTED),
        case(2, 3, dtype=TESTED),
        case((2,)),
    ],
    ref=lambda np, *size, dtype=None: np.zeros(size[0] if isinstance(size[0], tuple) else size),
)
factory(
    "ones",
    "size: int[]",
    lambda size, out, dtype, layout, device, pin_memory, requires_grad: put_into(
        out, full_tensor(size, 1, result_dtype(dtype, out), device, requires_grad)
    ),
    "Return a tensor of ones.",
    varargs=True,
    compiled="ones",
    samples=lambda: [
        case((2, 3), dtype=TESTED),
        case((), dtype=TESTED),
        case((0, 2), dtype=TESTED),
        case(2, 3, dtype=TESTED),
        case((2,)),
    ],
    ref=lambda np, *size, dtype=None: np.ones(size[0] if isinstance(size[0], tuple) else size),
)


def with_requires_grad(tensor, requires_grad):
    if not requires_grad:
        return tensor
    from pullback._c.python.tensor_methods import require_grad_of_new

    return require_grad_of_new(tensor)


def _full(size, fill_value, out, dtype, layout, device, pin_memory, requires_grad):
    import pullback

    if hasattr(fill_value, "shape"):
        fill_value = fill_value.item()
    dtype = result_dtype(dtype, out)
    if dtype is None:
        dtype = (
            pullback.bool
            if isinstance(fill_value, bool)
            else pullback.int64
            if isinstance(fill_value, int)
            else pullback.get_default_dtype().to_complex()
            if isinstance(fill_value, complex)
            else None
        )
    if not isinstance(fill_value, (bool, int, float, complex)):
        raise TypeError(
            f"full(): argument 'fill_value' (position 2) must be Number, not "
            f"{type(fill_value).__name__}"
        )
    return put_into(out, full_tensor(size, fill_value, dtype, device, requires_grad))


factory(
    "full",
    "size: int[], fill_value: Scalar",
    _full,
    "Return a tensor filled with a number.",
    compiled="full",
    samples=lambda: [
        case((2, 3), 1, dtype=TESTED),
        case((), 2),
        case((0, 2), 1.5),
        case((2,), True),
        case((2,), 1j),
    ],
    ref=lambda np, size, fill_value, dtype=None: np.full(size, fill_value),
)


def _arange(start, end, step, out, dtype, layout, device, pin_memory, requires_grad):
    import math

    import pullback

    if end is None:
        start, end = 0, start
    values = [v.item() if hasattr(v, "item") else v for v in (start, end, step)]
    if any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in values):
        raise TypeError("arange(): arguments 'start', 'end' and 'step' must be Numbers")
    start, end, step = values
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    dtype = result_dtype(dtype, out)
    if dtype is None:
        dtype = (
            pullback.int64
            if all(isinstance(v, int) for v in values)
            else pullback.get_default_dtype()
        )
    if all(isinstance(v, int) for v in values):
        count = -(-(end - start) // step)
    else:
        count = math.ceil((end - start) / step)
    made = factories().empty_tensor((count,), dtype, device)
    run_arange(made, start, step)
    return put_into(out, with_requires_grad(made, requires_grad))


def run_arange(out, start, step):
    if out.numel():
        if not (out.dtype.is_floating_point or out.dtype.is_complex):
            start, step = int(start), int(step)
        run_primitive("arange", (out,), (), start, step)
    return out


op(
    f"arange(start: Scalar, end: Scalar? = None, step: Scalar = 1, {OPTIONS}) -> Tensor",
    composite=_arange,
    compiled="arange",
    kernel="arange",
    method=False,
    doc="Return start, start + step, ... up to but not including end.",
    samples=lambda: [
        case(1, 5, dtype=TESTED),
        case(5),
        case(5, 1, -2),
        case(0),
        case(0, 1, 0.25),
        case(0.5, 3),
    ],
    dtypes=INTEGRAL | FLOATING,
    ref=lambda np, *bounds, dtype=None: np.arange(*bounds),
)


# -- in the shape of another tensor ----------------------------------------------------------------


def make_like(self, value, dtype, device, requires_grad, memory_format):
    create = factories()
    dtype = self.dtype if dtype is None else dtype
    device = self.device if device is None else device
    strides = None if memory_format is None else _strides_in(self.shape, memory_format)
    if strides is not None:
        out = create.empty_strided_tensor(self.shape, strides, dtype, device)
    elif self.is_contiguous() or not _dense(self):
        out = create.empty_tensor(self.shape, dtype, device)
    else:
        out = create.empty_strided_tensor(self.shape, self.stride(), dtype, device)
    create.uninitialized(out) if value is None else create.fill_tensor(out, value)
    return with_requires_grad(out, requires_grad)


def _strides_in(shape, memory_format):
    from pullback._c.ops.clone import format_strides

    return format_strides(tuple(shape), memory_format)


def _dense(tensor):
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _filled_like(value):
    def forward(self, dtype, layout, device, pin_memory, requires_grad, memory_format):
        return make_like(self, value, dtype, device, requires_grad, memory_format)

    return forward


for _name, _value, _what in (
    ("empty_like", None, "an uninitialised tensor"),
    ("zeros_like", 0, "zeros"),
    ("ones_like", 1, "ones"),
):
    op(
        f"{_name}(self: Tensor, {LIKE}) -> Tensor",
        method=False,
        compiled=_name,
        batch="unary",
        forward=_filled_like(_value),
        doc=f"Return {_what} in the shape, dtype and device of another tensor.",
        constant=True,
        samples=[
            case(draw, skip=UNFILLED if _value is None else {})
            for draw in (T(2, 3), T(), T(0, 3), T(2, 1, 3))
        ],
        ref=None if _value is None else lambda np, self, _value=_value: np.full(self.shape, _value),
    )


def _full_like(self, fill_value, dtype, layout, device, pin_memory, requires_grad, memory_format):
    return make_like(self, fill_value, dtype, device, requires_grad, memory_format)


op(
    f"full_like(self: Tensor, fill_value: Scalar, {LIKE}) -> Tensor",
    method=False,
    composite=_full_like,
    doc="Return a tensor filled with a number, in the shape, dtype and device of another.",
    constant=True,
    samples=lambda: [
        case(T(2, 3), 1),
        case(T(), 0),
        case(T(0, 3), 1),
        case(T(2), 2, dtype=Dtype("float64")),
    ],
    ref=lambda np, self, fill_value, dtype=None: np.full(self.shape, fill_value),
)


def _new_filled(value):
    def composite(self, size, dtype, layout, device, pin_memory, requires_grad):
        return _new(self, size, value, dtype, device, requires_grad)

    return composite


for _name, _value in (("new_zeros", 0), ("new_ones", 1), ("new_empty", None)):
    op(
        f"{_name}(self: Tensor, size: int[], {NEW}) -> Tensor",
        function=False,
        varargs=True,
        composite=_new_filled(_value),
        doc="Return a new tensor with the dtype and device of this one.",
        constant=True,
        samples=[
            case(T(2), *size, skip=UNFILLED if _value is None else {})
            for size in (((2, 3),), ((),), (0, 3), (4,))
        ],
        ref=None
        if _value is None
        else lambda np, self, *size, _value=_value: np.full(
            size[0] if isinstance(size[0], tuple) else size, _value
        ),
    )
op(
    f"new_full(self: Tensor, size: int[], fill_value: Scalar, {NEW}) -> Tensor",
    function=False,
    composite=lambda self, size, fill_value, dtype, layout, device, pin_memory, requires_grad: _new(
        self, size, fill_value, dtype, device, requires_grad
    ),
    doc="Return a filled tensor with the dtype and device of this one.",
    constant=True,
    samples=lambda: [
        case(T(2, 3), (2,), 1),
        case(T(0), (), 0),
        case(T(1), (1, 2), 3, dtype=Dtype("float64")),
    ],
    ref=lambda np, self, size, fill_value, dtype=None: np.full(size, fill_value),
)


def _new(self, size, value, dtype, device, requires_grad):
    create = factories()
    out = create.empty_tensor(
        size, self.dtype if dtype is None else dtype, self.device if device is None else device
    )
    create.uninitialized(out) if value is None else create.fill_tensor(out, value)
    return with_requires_grad(beside(out, self), requires_grad)


op(
    "new_tensor(self: Tensor, data: any, *, dtype: dtype? = None, device: device? = None, "
    "requires_grad: bool? = False) -> Tensor",
    function=False,
    composite=lambda self, data, dtype, device, requires_grad: _new_tensor(
        self, data, dtype, device, requires_grad
    ),
    doc="Return a copy of data with the dtype and device of this tensor.",
    constant=True,
    samples=lambda: [
        case(T(2, 3), [[1], [0]]),
        case(T(), 1),
        case(T(0), [1, 0], dtype=Dtype("float64")),
    ],
    ref=lambda np, self, data, dtype=None: np.array(data),
)


def _new_tensor(self, data, dtype, device, requires_grad):
    import pullback

    return pullback.tensor(
        data,
        dtype=self.dtype if dtype is None else dtype,
        device=self.device if device is None else device,
        requires_grad=requires_grad,
    )


op(
    "_zeros_like(like: any) -> Tensor",
    method=False,
    function=False,
    composite=lambda like: full_tensor(tuple(like.shape), 0, like.dtype, like.device, False),
    doc="Return zeros in the shape, dtype and device that a formula kept.",
    samples=lambda: [case(T(2, 3)), case(T()), case(T(0))],
    ref=lambda np, like: np.zeros(like.shape),
)
op(
    "arange_like(self: Tensor, count: int) -> Tensor",
    method=False,
    function=False,
    composite=lambda self, count: run_arange(
        factories().empty_tensor((count,), dtype_named("int64"), self.device), 0, 1
    ),
    doc="Return 0, 1, ... as int64 on the device of a tensor.",
    samples=lambda: [case(T(2), 4), case(T(), 0)],
    ref=lambda np, self, count: np.arange(count),
)


# -- writes ----------------------------------------------------------------------------------------


def _fill(self, value):
    if hasattr(value, "item") and not hasattr(value, "requires_grad"):
        value = value.item()  # a NumPy number
    if hasattr(value, "shape"):
        if value.ndim:
            raise RuntimeError(
                f"fill_ only supports 0-dimension value tensor but got tensor with "
                f"{value.ndim} dimensions."
            )
        return factories().copy_raw(self, value)
    if isinstance(value, complex) and not self.is_complex():
        if value.imag and self.dtype.kind != "b":
            raise RuntimeError(f"value cannot be converted to type {self.dtype} without overflow")
        value = bool(value) if value.imag else value.real
    return factories().fill_tensor(self, value)


op(
    "fill_(self: Tensor, value: Operand) -> Tensor",
    forward=_fill,
    kernel="copy",
    inplace="only",
    overlap=True,
    node="FillBackward0",
    vjp={"self": lambda g: ops.zeros_like(g), "value": lambda g: g.sum()},
    batch="fill",
    out_overlap=True,
    doc="Set every element to a number; returns self.",
    samples=lambda: [case(T(2, 3), 1), case(T(), 0), case(T(0), 1), case(T(2, 3), T())],
    ref=lambda np, self, value: np.full(self.shape, value),
)
op(
    "zero_(self: Tensor) -> Tensor",
    forward=lambda self: factories().fill_tensor(self, 0),
    kernel="copy",
    inplace="only",
    overlap=True,
    node="ZeroBackward0",
    vjp={"self": lambda g: ops.zeros_like(g)},
    batch="unary",
    doc="Set every element to 0; returns self.",
    samples=lambda: [case(T(2, 3)), case(T()), case(T(0))],
    ref=lambda np, self: np.zeros(self.shape),
)


def _set_result(out, made):
    if out.dtype != made.dtype and not out.dtype.is_floating_point:
        raise RuntimeError(f"dtype of out ({out.dtype}) does not match the result ({made.dtype})")
    return ops.add(made, 0, out=out) if str(made.dtype) != "pullback.bool" else ops.copy_(out, made)


op(
    "set_result(self: Tensor, made: Tensor) -> Tensor",
    composite=_set_result,
    method=False,
    function=False,
    doc="Put a factory's result into the tensor given as out=.",
    samples="it writes out= of factories, which are tested with out=",
)
