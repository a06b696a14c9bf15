"""New tensors, and values written into old ones."""

from pullback.optable.schema import op, ops


def _create():
    from pullback._c import create
    return create


def _filled(shape, value, dtype, device, requires_grad):
    create = _create()
    out = create.fill_tensor(create.empty_tensor(shape, dtype, device), value)
    return _requires(out, requires_grad)


def _into(out, made):
    """Give a result to out=, as torch resizes and fills it."""
    return made if out is None else ops.set_result(out, made)


_OPTIONS = ("*, out: Tensor? = None, dtype: dtype? = None, layout: any = None, "
            "device: device? = None, pin_memory: bool = False, requires_grad: bool = False")
_LIKE = ("*, dtype: dtype? = None, layout: any = None, device: device? = None, "
         "pin_memory: bool = False, requires_grad: bool = False, memory_format: any = None")


def _factory(name, signature, make, doc, **fields):
    op(f"{name}({signature}, {_OPTIONS}) -> Tensor", composite=make, method=False, doc=doc,
       **fields)


_factory("empty", "size: int[]",
         lambda size, out, dtype, layout, device, pin_memory, requires_grad: _into(
             out, _requires(_create().empty_tensor(size, dtype, device), requires_grad)),
         "Return an uninitialised tensor.", varargs=True)
_factory("zeros", "size: int[]",
         lambda size, out, dtype, layout, device, pin_memory, requires_grad: _into(
             out, _filled(size, 0, dtype, device, requires_grad)),
         "Return a tensor of zeros.", varargs=True, ref="numpy.zeros")
_factory("ones", "size: int[]",
         lambda size, out, dtype, layout, device, pin_memory, requires_grad: _into(
             out, _filled(size, 1, dtype, device, requires_grad)),
         "Return a tensor of ones.", varargs=True, ref="numpy.ones")


def _requires(tensor, requires_grad):
    if not requires_grad:
        return tensor
    from pullback._c.surface import require_grad_of_new
    return require_grad_of_new(tensor)


def _full(size, fill_value, out, dtype, layout, device, pin_memory, requires_grad):
    import pullback
    if hasattr(fill_value, "shape"):
        fill_value = fill_value.item()
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
         ref="numpy.full")


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
    from pullback._c.kernel import run_slot
    if out.numel():
        if not (out.dtype.is_floating_point or out.dtype.is_complex):
            start, step = int(start), int(step)
        run_slot("arange", (out,), (), start, step)
    return out


op(f"arange(start: Scalar, end: Scalar? = None, step: Scalar = 1, {_OPTIONS}) -> Tensor",
   composite=_arange, method=False, ref="numpy.arange",
   doc="Return start, start + step, ... up to but not including end.")


# -- in the shape of another tensor ------------------------------------------------------------------------------

def _like(self, value, dtype, device, requires_grad):
    create = _create()
    dtype = self.dtype if dtype is None else dtype
    device = self.device if device is None else device
    if self.is_contiguous() or not _dense(self):
        out = create.empty_tensor(self.shape, dtype, device)
    else:
        out = create.empty_strided_tensor(self.shape, self.stride(), dtype, device)
    if value is not None:
        create.fill_tensor(out, value)
    return _requires(out, requires_grad)


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
    op(f"{_name}(self: Tensor, {_LIKE}) -> Tensor", method=False,
       forward=lambda self, dtype, layout, device, pin_memory, requires_grad, memory_format,
       _value=_value: _like(self, _value, dtype, device, requires_grad),
       doc=f"Return {_what} in the shape, dtype and device of another tensor.")
op(f"full_like(self: Tensor, fill_value: Scalar, {_LIKE}) -> Tensor", method=False,
   composite=lambda self, fill_value, dtype, layout, device, pin_memory, requires_grad,
   memory_format: _like(self, fill_value, dtype, device, requires_grad),
   doc="Return a tensor filled with a number, in the shape, dtype and device of another.")

for _name, _value in (("new_zeros", 0), ("new_ones", 1), ("new_empty", None)):
    op(f"{_name}(self: Tensor, size: int[], *, dtype: dtype? = None, device: device? = None, "
       f"requires_grad: bool = False) -> Tensor", function=False, varargs=True,
       composite=lambda self, size, dtype, device, requires_grad, _value=_value: _new(
           self, size, _value, dtype, device, requires_grad),
       doc="Return a new tensor with the dtype and device of this one.")
op("new_full(self: Tensor, size: int[], fill_value: Scalar, *, dtype: dtype? = None, "
   "device: device? = None, requires_grad: bool = False) -> Tensor", function=False,
   composite=lambda self, size, fill_value, dtype, device, requires_grad: _new(
       self, size, fill_value, dtype, device, requires_grad),
   doc="Return a filled tensor with the dtype and device of this one.")


def _new(self, size, value, dtype, device, requires_grad):
    create = _create()
    out = create.empty_tensor(size, self.dtype if dtype is None else dtype,
                              self.device if device is None else device)
    if value is not None:
        create.fill_tensor(out, value)
    return _requires(out, requires_grad)


op("new_tensor(self: Tensor, data: any, *, dtype: dtype? = None, device: device? = None, "
   "requires_grad: bool = False) -> Tensor", function=False,
   composite=lambda self, data, dtype, device, requires_grad: _new_tensor(
       self, data, dtype, device, requires_grad),
   doc="Return a copy of data with the dtype and device of this tensor.")


def _new_tensor(self, data, dtype, device, requires_grad):
    import pullback
    return pullback.tensor(data, dtype=self.dtype if dtype is None else dtype,
                           device=self.device if device is None else device,
                           requires_grad=requires_grad)


op("zeros_of(like: any) -> Tensor", method=False, function=False,
   composite=lambda like: _filled(tuple(like.shape), 0, like.dtype, like.device, False),
   doc="Return zeros in the shape, dtype and device that a formula kept.")
op("arange_like(self: Tensor, count: int) -> Tensor", method=False, function=False,
   composite=lambda self, count: _run_arange(
       _create().empty_tensor((count,), _int64(), self.device), 0, 1),
   doc="Return 0, 1, ... as int64 on the device of a tensor.")


def _int64():
    import pullback
    return pullback.int64


# -- writes ----------------------------------------------------------------------------------------------------------

def _fill(self, value):
    if hasattr(value, "shape"):
        if value.ndim:
            raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with "
                               f"{value.ndim} dimensions.")
        return _create().copy_raw(self, value)
    if isinstance(value, complex) and not self.is_complex():
        raise RuntimeError(f"value cannot be converted to type {self.dtype} without overflow")
    return _create().fill_tensor(self, value)


op("fill_(self: Tensor, value: Operand) -> Tensor", forward=_fill, inplace="only", overlap=True, function=False,
   node="FillBackward0", vjp={"self": lambda g: ops.zeros_like(g), "value": lambda g: g.sum()},
   doc="Set every element to a number; returns self.")
op("zero_(self: Tensor) -> Tensor", forward=lambda self: _create().fill_tensor(self, 0),
   inplace="only", overlap=True, function=False, node="ZeroBackward0",
   vjp={"self": lambda g: ops.zeros_like(g)}, doc="Set every element to 0; returns self.")


def _set_result(out, made):
    if out.dtype != made.dtype and not out.dtype.is_floating_point:
        raise RuntimeError(f"dtype of out ({out.dtype}) does not match the result ({made.dtype})")
    return ops.add(made, 0, out=out) if str(made.dtype) != "pullback.bool" else ops.copy_(out, made)


op("set_result(self: Tensor, made: Tensor) -> Tensor", composite=_set_result, method=False,
   function=False, doc="Put a factory's result into the tensor given as out=.")

# -- random ------------------------------------------------------------------------------------------------------------


def _random(kind):
    def fill(out, generator, *params):
        from pullback.random import draw
        return draw(kind, out, generator, *params)
    return fill


_uniform, _normal, _randint = _random("uniform"), _random("normal"), _random("randint")
_RANDOM = "*, generator: any = None, " + _OPTIONS.removeprefix("*, ")


def _rand(fill):
    def make(size, generator, out, dtype, layout, device, pin_memory, requires_grad):
        made = _create().empty_tensor(size, dtype, device)
        if not (made.dtype.is_floating_point or made.dtype.is_complex):
            raise NotImplementedError(f"random numbers are not implemented for '{made.dtype}'")
        return _into(out, _requires(fill(made, generator), requires_grad))
    return make


op(f"rand(size: int[], {_RANDOM}) -> Tensor", composite=_rand(_uniform), method=False,
   varargs=True, doc="Return uniform random numbers in [0, 1).")
op(f"randn(size: int[], {_RANDOM}) -> Tensor", composite=_rand(_normal), method=False,
   varargs=True, doc="Return random numbers of the standard normal distribution.")


def _make_randint(low, high, size, generator, out, dtype, layout, device, pin_memory,
                  requires_grad):
    if size is None:                    # randint(high, size)
        if high is None or isinstance(high, int):
            raise TypeError("randint(): argument 'size' must be tuple of ints")
        low, high, size = 0, low, high
    for name, value in (("low", low), ("high", high)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"randint(): argument '{name}' must be int, not "
                            f"{type(value).__name__}")
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= "
                           f"to={high}")
    made = _create().empty_tensor(size, _int64() if dtype is None else dtype, device)
    return _into(out, _requires(_randint(made, generator, low, high), requires_grad))


op(f"randint(low: int, high: any = None, size: int[]? = None, {_RANDOM}) -> Tensor",
   composite=_make_randint, method=False,
   doc="Return random integers in [low, high); randint(high, size) begins at 0.")

for _name, _fill_with in (("rand_like", _uniform), ("randn_like", _normal)):
    op(f"{_name}(self: Tensor, {_LIKE}) -> Tensor", method=False,
       composite=lambda self, dtype, layout, device, pin_memory, requires_grad, memory_format,
       _fill_with=_fill_with: _requires(_fill_with(
           _like(self, None, dtype, device, False), None), requires_grad),
       doc="Return random numbers in the shape, dtype and device of another tensor.")


def _in_place(fill):
    def run(self, *params):
        *params, generator = params
        return fill(self, generator, *params)
    return run


op("random_fill_(self: Tensor, *, generator: any = None) -> Tensor", forward=_in_place(_uniform),
   inplace="only", function=False, method=False, vjp={"self": lambda g: ops.zeros_like(g)},
   doc="Fill with uniform random numbers in [0, 1); returns self.")


def _uniform_(self, low, high, generator):
    return ops.random_fill_(self, generator=generator).mul_(high - low).add_(low)


op("uniform_(self: Tensor, low: float = 0, high: float = 1, *, generator: any = None) -> Tensor",
   composite=_uniform_, function=False, doc="Fill with uniform random numbers in [low, high).")
op("standard_normal_(self: Tensor, *, generator: any = None) -> Tensor",
   forward=_in_place(_normal), inplace="only", function=False, method=False,
   vjp={"self": lambda g: ops.zeros_like(g)},
   doc="Fill with standard normal random numbers; returns self.")
op("normal_(self: Tensor, mean: float = 0, std: float = 1, *, generator: any = None) -> Tensor",
   composite=lambda self, mean, std, generator: ops.standard_normal_(
       self, generator=generator).mul_(std).add_(mean), function=False,
   doc="Fill with normal random numbers.")
