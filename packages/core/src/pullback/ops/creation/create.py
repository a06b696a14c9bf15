"""New tensors, and values written into old ones."""

from functools import cache

from pullback.ops.rules.dims import dtype_named
from pullback.ops.table.primitives_api import beside, run_primitive
from pullback.ops.table.samples import TESTED, UNFILLED, Dtype, T, case
from pullback.ops.table.schema import FLOAT_COMPLEX, FLOATING, INTEGRAL, op, ops


@cache
def _create():
    from pullback._c.ops import create
    return create


def _filled(shape, value, dtype, device, requires_grad):
    create = _create()
    out = create.fill_tensor(create.empty_tensor(shape, dtype, device), value)
    return _requires(out, requires_grad)


def _into(out, made):
    """Give a result to out=, as torch resizes and fills it."""
    return made if out is None else ops.set_result(out, made)


def _dtype(dtype, out):
    """Return the wanted dtype; without one, that of out= counts."""
    if out is None:
        return dtype
    if dtype is not None and dtype != out.dtype:
        raise RuntimeError(f"dtype {dtype} does not match dtype of out parameter ({out.dtype})")
    return out.dtype


_NEW = ("*, dtype: dtype? = None, layout: any = None, device: device? = None, "
        "pin_memory: bool? = False, requires_grad: bool? = False")
_OPTIONS = "*, out: Tensor? = None, " + _NEW.removeprefix("*, ")
_LIKE = _NEW + ", memory_format: memory_format? = None"


def _factory(name, signature, make, doc, **fields):
    op(f"{name}({signature}, {_OPTIONS}) -> Tensor", composite=make, method=False, doc=doc,
       **fields)


_factory("empty", "size: int[]",
         lambda size, out, dtype, layout, device, pin_memory, requires_grad: _into(
             out, _requires(_create().empty_tensor(size, _dtype(dtype, out), device),
                            requires_grad)),
         "Return an uninitialised tensor.", varargs=True, compiled="empty",
         samples=[case((2, 3), dtype=TESTED, skip=UNFILLED),
                  case(2, 0, dtype=TESTED, skip=UNFILLED)])
_factory("zeros", "size: int[]",
         lambda size, out, dtype, layout, device, pin_memory, requires_grad: _into(
             out, _filled(size, 0, _dtype(dtype, out), device, requires_grad)),
         "Return a tensor of zeros.", varargs=True, compiled="zeros",
         samples=[case((2, 3), dtype=TESTED), case((), dtype=TESTED),
                  case((0, 2), dtype=TESTED), case(2, 3, dtype=TESTED),
                  case((2,))],
         ref=lambda np, *size, dtype=None: np.zeros(
             size[0] if isinstance(size[0], tuple) else size))
_factory("ones", "size: int[]",
         lambda size, out, dtype, layout, device, pin_memory, requires_grad: _into(
             out, _filled(size, 1, _dtype(dtype, out), device, requires_grad)),
         "Return a tensor of ones.", varargs=True, compiled="ones",
         samples=[case((2, 3), dtype=TESTED), case((), dtype=TESTED),
                  case((0, 2), dtype=TESTED), case(2, 3, dtype=TESTED),
                  case((2,))],
         ref=lambda np, *size, dtype=None: np.ones(size[0] if isinstance(size[0], tuple) else size))


def _requires(tensor, requires_grad):
    if not requires_grad:
        return tensor
    from pullback._c.python.tensor_methods import require_grad_of_new
    return require_grad_of_new(tensor)


def _full(size, fill_value, out, dtype, layout, device, pin_memory, requires_grad):
    import pullback
    if hasattr(fill_value, "shape"):
        fill_value = fill_value.item()
    dtype = _dtype(dtype, out)
    if dtype is None:
        dtype = (pullback.bool if isinstance(fill_value, bool)
                 else pullback.int64 if isinstance(fill_value, int)
                 else pullback.get_default_dtype().to_complex()
                 if isinstance(fill_value, complex) else None)
    if not isinstance(fill_value, (bool, int, float, complex)):
        raise TypeError(f"full(): argument 'fill_value' (position 2) must be Number, not "
                        f"{type(fill_value).__name__}")
    return _into(out, _filled(size, fill_value, dtype, device, requires_grad))


_factory("full", "size: int[], fill_value: Scalar", _full, "Return a tensor filled with a number.",
         compiled="full",
         samples=[case((2, 3), 1, dtype=TESTED), case((), 2), case((0, 2), 1.5),
                  case((2,), True), case((2,), 1j)],
         ref=lambda np, size, fill_value, dtype=None: np.full(size, fill_value))


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
    dtype = _dtype(dtype, out)
    if dtype is None:
        dtype = (pullback.int64 if all(isinstance(v, int) for v in values)
                 else pullback.get_default_dtype())
    if all(isinstance(v, int) for v in values):
        count = -(-(end - start) // step)
    else:
        count = math.ceil((end - start) / step)
    made = _create().empty_tensor((count,), dtype, device)
    _run_arange(made, start, step)
    return _into(out, _requires(made, requires_grad))


def _run_arange(out, start, step):
    if out.numel():
        if not (out.dtype.is_floating_point or out.dtype.is_complex):
            start, step = int(start), int(step)
        run_primitive("arange", (out,), (), start, step)
    return out


op(f"arange(start: Scalar, end: Scalar? = None, step: Scalar = 1, {_OPTIONS}) -> Tensor",
   composite=_arange, compiled="arange", kernel="arange", method=False,
   doc="Return start, start + step, ... up to but not including end.",
   samples=[case(1, 5, dtype=TESTED), case(5), case(5, 1, -2), case(0), case(0, 1, 0.25),
            case(0.5, 3)],
   dtypes=INTEGRAL | FLOATING,
   ref=lambda np, *bounds, dtype=None: np.arange(*bounds))


# -- in the shape of another tensor ----------------------------------------------------------------

def _like(self, value, dtype, device, requires_grad, memory_format):
    create = _create()
    dtype = self.dtype if dtype is None else dtype
    device = self.device if device is None else device
    strides = None if memory_format is None else _strides_in(self.shape, memory_format)
    if strides is not None:
        out = create.empty_strided_tensor(self.shape, strides, dtype, device)
    elif self.is_contiguous() or not _dense(self):
        out = create.empty_tensor(self.shape, dtype, device)
    else:
        out = create.empty_strided_tensor(self.shape, self.stride(), dtype, device)
    if value is not None:
        create.fill_tensor(out, value)
    return _requires(out, requires_grad)


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


for _name, _value, _what in (("empty_like", None, "an uninitialised tensor"),
                             ("zeros_like", 0, "zeros"), ("ones_like", 1, "ones")):
    op(f"{_name}(self: Tensor, {_LIKE}) -> Tensor", method=False, compiled=_name, batch="unary",
       forward=lambda self, dtype, layout, device, pin_memory, requires_grad, memory_format,
       _value=_value: _like(self, _value, dtype, device, requires_grad, memory_format),
       doc=f"Return {_what} in the shape, dtype and device of another tensor.",
       samples=[case(draw, skip=UNFILLED if _value is None else {})
                for draw in (T(2, 3), T(), T(0, 3), T(2, 1, 3))],
       ref=None if _value is None else lambda np, self, _value=_value: np.full(self.shape, _value))
op(f"full_like(self: Tensor, fill_value: Scalar, {_LIKE}) -> Tensor", method=False,
   composite=lambda self, fill_value, dtype, layout, device, pin_memory, requires_grad,
   memory_format: _like(self, fill_value, dtype, device, requires_grad, memory_format),
   doc="Return a tensor filled with a number, in the shape, dtype and device of another.",
   samples=[case(T(2, 3), 1), case(T(), 0), case(T(0, 3), 1),
            case(T(2), 2, dtype=Dtype("float64"))],
   ref=lambda np, self, fill_value, dtype=None: np.full(self.shape, fill_value))

for _name, _value in (("new_zeros", 0), ("new_ones", 1), ("new_empty", None)):
    op(f"{_name}(self: Tensor, size: int[], {_NEW}) -> Tensor", function=False, varargs=True,
       composite=lambda self, size, dtype, layout, device, pin_memory, requires_grad,
       _value=_value: _new(self, size, _value, dtype, device, requires_grad),
       doc="Return a new tensor with the dtype and device of this one.",
       samples=[case(T(2), *size, skip=UNFILLED if _value is None else {})
                for size in (((2, 3),), ((),), (0, 3), (4,))],
       ref=None if _value is None else lambda np, self, *size, _value=_value: np.full(
           size[0] if isinstance(size[0], tuple) else size, _value))
op(f"new_full(self: Tensor, size: int[], fill_value: Scalar, {_NEW}) -> Tensor", function=False,
   composite=lambda self, size, fill_value, dtype, layout, device, pin_memory, requires_grad: _new(
       self, size, fill_value, dtype, device, requires_grad),
   doc="Return a filled tensor with the dtype and device of this one.",
   samples=[case(T(2, 3), (2,), 1), case(T(0), (), 0),
            case(T(1), (1, 2), 3, dtype=Dtype("float64"))],
   ref=lambda np, self, size, fill_value, dtype=None: np.full(size, fill_value))


def _new(self, size, value, dtype, device, requires_grad):
    create = _create()
    out = create.empty_tensor(size, self.dtype if dtype is None else dtype,
                              self.device if device is None else device)
    if value is not None:
        create.fill_tensor(out, value)
    return _requires(beside(out, self), requires_grad)


op("new_tensor(self: Tensor, data: any, *, dtype: dtype? = None, device: device? = None, "
   "requires_grad: bool? = False) -> Tensor", function=False,
   composite=lambda self, data, dtype, device, requires_grad: _new_tensor(
       self, data, dtype, device, requires_grad),
   doc="Return a copy of data with the dtype and device of this tensor.",
   samples=[case(T(2, 3), [[1], [0]]), case(T(), 1), case(T(0), [1, 0], dtype=Dtype("float64"))],
   ref=lambda np, self, data, dtype=None: np.array(data))


def _new_tensor(self, data, dtype, device, requires_grad):
    import pullback
    return pullback.tensor(data, dtype=self.dtype if dtype is None else dtype,
                           device=self.device if device is None else device,
                           requires_grad=requires_grad)


op("zeros_of(like: any) -> Tensor", method=False, function=False,
   composite=lambda like: _filled(tuple(like.shape), 0, like.dtype, like.device, False),
   doc="Return zeros in the shape, dtype and device that a formula kept.",
   samples=[case(T(2, 3)), case(T()), case(T(0))], ref=lambda np, like: np.zeros(like.shape))
op("arange_like(self: Tensor, count: int) -> Tensor", method=False, function=False,
   composite=lambda self, count: _run_arange(
       _create().empty_tensor((count,), dtype_named("int64"), self.device), 0, 1),
   doc="Return 0, 1, ... as int64 on the device of a tensor.",
   samples=[case(T(2), 4), case(T(), 0)], ref=lambda np, self, count: np.arange(count))


# -- writes ----------------------------------------------------------------------------------------

def _fill(self, value):
    if hasattr(value, "item") and not hasattr(value, "requires_grad"):
        value = value.item()            # a NumPy number
    if hasattr(value, "shape"):
        if value.ndim:
            raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with "
                               f"{value.ndim} dimensions.")
        return _create().copy_raw(self, value)
    if isinstance(value, complex) and not self.is_complex():
        if value.imag and self.dtype.kind != "b":
            raise RuntimeError(f"value cannot be converted to type {self.dtype} without overflow")
        value = bool(value) if value.imag else value.real
    return _create().fill_tensor(self, value)


op("fill_(self: Tensor, value: Operand) -> Tensor", forward=_fill, kernel="copy", inplace="only",
   overlap=True, node="FillBackward0",
   vjp={"self": lambda g: ops.zeros_like(g), "value": lambda g: g.sum()},
   batch="fill", out_overlap=True, doc="Set every element to a number; returns self.",
   samples=[case(T(2, 3), 1), case(T(), 0), case(T(0), 1), case(T(2, 3), T())],
   ref=lambda np, self, value: np.full(self.shape, value))
op("zero_(self: Tensor) -> Tensor", forward=lambda self: _create().fill_tensor(self, 0),
   kernel="copy", inplace="only", overlap=True, node="ZeroBackward0",
   vjp={"self": lambda g: ops.zeros_like(g)}, batch="unary",
   doc="Set every element to 0; returns self.",
   samples=[case(T(2, 3)), case(T()), case(T(0))], ref=lambda np, self: np.zeros(self.shape))


def _set_result(out, made):
    if out.dtype != made.dtype and not out.dtype.is_floating_point:
        raise RuntimeError(f"dtype of out ({out.dtype}) does not match the result ({made.dtype})")
    return ops.add(made, 0, out=out) if str(made.dtype) != "pullback.bool" else ops.copy_(out, made)


op("set_result(self: Tensor, made: Tensor) -> Tensor", composite=_set_result, method=False,
   function=False, doc="Put a factory's result into the tensor given as out=.",
   samples="it writes out= of factories, which are tested with out=")

# -- random ----------------------------------------------------------------------------------------


@cache
def _draw():
    from pullback.random import draw
    return draw


def _random(kind):
    return lambda out, generator, *params: _draw()(kind, out, generator, *params)


_uniform, _normal, _randint = _random("uniform"), _random("normal"), _random("randint")
_permutation = _random("permutation")
_RANDOM = "*, generator: any = None, " + _OPTIONS.removeprefix("*, ")


def _rand(fill):
    def make(size, generator, out, dtype, layout, device, pin_memory, requires_grad):
        made = _create().empty_tensor(size, _dtype(dtype, out), device)
        return _into(out, _requires(fill(_continuous(made), generator), requires_grad))
    return make


def _continuous(tensor):
    """Return the tensor if its dtype has a continuous distribution."""
    if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        raise NotImplementedError(f"random numbers are not implemented for '{tensor.dtype}'")
    return tensor


op(f"rand(size: int[], {_RANDOM}) -> Tensor", composite=_rand(_uniform), kernel="uniform",
   method=False, varargs=True, doc="Return uniform random numbers in [0, 1).",
   samples=[case((2, 3), dtype=TESTED), case((), dtype=TESTED), case(0, 2, dtype=TESTED),
            case((3,))],
   dtypes=FLOAT_COMPLEX)
op(f"randn(size: int[], {_RANDOM}) -> Tensor", composite=_rand(_normal), kernel="normal",
   method=False, varargs=True,
   doc="Return random numbers of the standard normal distribution.",
   samples=[case((2, 3), dtype=TESTED), case((), dtype=TESTED), case(0, 2, dtype=TESTED),
            case((3,))],
   dtypes=FLOAT_COMPLEX)


def _integer(value, name):
    """Read an integer argument of 64 bits."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"randint(): argument '{name}' must be int, not {type(value).__name__}")
    value = value.__index__()
    if not -2**63 <= value < 2**63:
        raise ValueError(f"Overflow when unpacking long long: '{name}' is {value}")
    return value


def _draw_integers(out, generator, low, high):
    """Fill a tensor with integers in [low, high), which its dtype must be able to hold."""
    import pullback
    low, high = _integer(low, "low"), _integer(high, "high")
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= "
                           f"to={high}")
    if out.dtype.is_complex:
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean "
                           "types")
    if out.dtype == pullback.bool:
        least, most = 0, 1
    else:
        limits = (pullback.finfo if out.dtype.is_floating_point else pullback.iinfo)(out.dtype)
        least, most = limits.min, limits.max
    for name, value in (("from", low), ("to - 1", high - 1)):
        if not least <= value <= most:
            raise RuntimeError(f"{name} is out of bounds for {out.dtype}: {value}")
    return _randint(out, generator, low, high)


def _make_randint(low, high, size, generator, out, dtype, layout, device, pin_memory,
                  requires_grad):
    if size is None:                    # randint(high, size)
        low, high, size = 0, low, high
    elif low is None or high is None:   # randint(high=..., size=...) or randint(high, size=...)
        low, high = 0, high if low is None else low
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"randint(): argument 'size' must be tuple of ints, not "
                        f"{type(size).__name__}")
    dtype = _dtype(dtype, out)
    made = _create().empty_tensor(size, dtype_named("int64") if dtype is None else dtype, device)
    return _into(out, _requires(_draw_integers(made, generator, low, high), requires_grad))


op(f"randint(low: any = None, high: any = None, size: int[]? = None, {_RANDOM}) -> Tensor",
   composite=_make_randint, kernel="randint", method=False,
   doc="Return random integers in [low, high); randint(high, size) begins at 0.",
   samples=[case(5, (2, 3), dtype=TESTED), case(2, 7, (3,), dtype=TESTED), case(4, ()),
            case(4, (0, 2))],
   dtypes=INTEGRAL | FLOATING)

_RANDOM_LIKE = "*, generator: any = None, " + _LIKE.removeprefix("*, ")

for _name, _kernel, _fill_with in (("rand_like", "uniform", _uniform),
                                   ("randn_like", "normal", _normal)):
    op(f"{_name}(self: Tensor, {_RANDOM_LIKE}) -> Tensor", kernel=_kernel, method=False,
       composite=lambda self, generator, dtype, layout, device, pin_memory, requires_grad,
       memory_format, _fill_with=_fill_with: _requires(_fill_with(_continuous(
           _like(self, None, dtype, device, False, memory_format)), generator), requires_grad),
       doc="Return random numbers in the shape, dtype and device of another tensor.",
       samples=[case(T(2, 3)), case(T()), case(T(0, 3))], dtypes=FLOAT_COMPLEX)


def _randint_like(self, low, high, generator, dtype, layout, device, pin_memory, requires_grad,
                  memory_format):
    low, high = (0, low) if high is None else (low, high)
    made = _like(self, None, dtype, device, False, memory_format)
    return _requires(_draw_integers(made, generator, low, high), requires_grad)


op(f"randint_like(self: Tensor, low: any, high: any = None, {_RANDOM_LIKE}) -> Tensor",
   composite=_randint_like, kernel="randint", method=False,
   doc="Return random integers in [low, high), or [0, low), in the shape of another tensor.",
   samples=[case(T(2, 3), 5), case(T(), 2, 7), case(T(0, 3), 3)], dtypes=INTEGRAL | FLOATING)


def _uniform_(self, from_, to, generator):
    import pullback
    _continuous(self)
    limit = pullback.finfo(self.dtype).max
    for name, value in (("from", from_), ("to", to)):
        if not abs(value) <= limit:
            raise RuntimeError(f"{name} is out of bounds for {self.dtype}: {value}")
    if from_ > to:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found "
                           f"from={from_} > to={to}")
    if to - from_ > limit:
        raise RuntimeError(f"uniform_ expects to-from <= finfo({self.dtype}).max, but found "
                           f"to={to} and from={from_} which result in to-from to exceed the limit")
    if (from_, to) == (0, 1):
        return _uniform(self, generator)
    numbers = _uniform(_create().empty_tensor(self.shape, self.dtype, self.device), generator)
    start = complex(from_, from_) if self.is_complex() else from_
    return _create().copy_raw(self, numbers * (to - from_) + start)


op("uniform_(self: Tensor, from_: float = 0, to: float = 1, *, generator: any = None) -> Tensor",
   forward=_uniform_, kernel="uniform", inplace="only", function=False,
   vjp={"self": lambda g: ops.zeros_like(g)},
   doc="Fill with uniform random numbers in [from_, to).",
   samples=[case(T(2, 3)), case(T(), 1, 3), case(T(0, 3), -1, 1)], dtypes=FLOAT_COMPLEX)


def _normal_(self, mean, std, generator):
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    _continuous(self)
    if (mean, std) == (0, 1):
        return _normal(self, generator)
    numbers = _normal(_create().empty_tensor(self.shape, self.dtype, self.device), generator)
    return _create().copy_raw(self, numbers * std + mean)


op("normal_(self: Tensor, mean: float = 0, std: float = 1, *, generator: any = None) -> Tensor",
   forward=_normal_, kernel="normal", inplace="only", function=False,
   vjp={"self": lambda g: ops.zeros_like(g)},
   doc="Fill with normal random numbers.",
   samples=[case(T(2, 3)), case(T(), 1, 3), case(T(0, 3), -1, 1)], dtypes=FLOAT_COMPLEX)
