"""rand, randn, randint and their like, uniform_ and normal_: numbers from a generator."""

from functools import cache

from pullback.ops.creation.create import (
    LIKE,
    OPTIONS,
    factories,
    make_like,
    put_into,
    result_dtype,
    with_requires_grad,
)
from pullback.ops.rules.dtypes import dtype_named
from pullback.ops.table.samples import TESTED, T, case
from pullback.ops.table.schema import FLOAT_COMPLEX, FLOATING, INTEGRAL, op, ops


@cache
def _draw():
    from pullback.random import draw

    return draw


def _random(kind, integers=False):
    return lambda out, generator, *params: _draw()(kind, out, generator, *params, integers=integers)


draw_uniform, draw_normal = _random("uniform"), _random("normal")
draw_randint = _random("randint", integers=True)
draw_permutation = _random("permutation", integers=True)
RANDOM = "*, generator: any = None, " + OPTIONS.removeprefix("*, ")


def _rand(fill):
    def make(size, generator, out, dtype, layout, device, pin_memory, requires_grad):
        made = factories().empty_tensor(size, result_dtype(dtype, out), device)
        return put_into(out, with_requires_grad(fill(_continuous(made), generator), requires_grad))

    return make


def _continuous(tensor):
    """Return the tensor if its dtype has a continuous distribution."""
    if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        raise NotImplementedError(f"random numbers are not implemented for '{tensor.dtype}'")
    return tensor


op(
    f"rand(size: int[], {RANDOM}) -> Tensor",
    composite=_rand(draw_uniform),
    kernel="uniform",
    method=False,
    varargs=True,
    doc="Return uniform random numbers in [0, 1).",
    samples=lambda: [
        case((2, 3), dtype=TESTED),
        case((), dtype=TESTED),
        case(0, 2, dtype=TESTED),
        case((3,)),
    ],
    dtypes=FLOAT_COMPLEX,
)
op(
    f"randn(size: int[], {RANDOM}) -> Tensor",
    composite=_rand(draw_normal),
    kernel="normal",
    method=False,
    varargs=True,
    doc="Return random numbers of the standard normal distribution.",
    samples=lambda: [
        case((2, 3), dtype=TESTED),
        case((), dtype=TESTED),
        case(0, 2, dtype=TESTED),
        case((3,)),
    ],
    dtypes=FLOAT_COMPLEX,
)


def _integer(op_name, value, name):
    """Read an integer argument of 64 bits."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{op_name}(): argument '{name}' must be int, not {type(value).__name__}")
    value = value.__index__()
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"Overflow when unpacking long long: '{name}' is {value}")
    return value


def draw_integers(op_name, out, generator, low, high):
    """Fill a tensor with integers in [low, high), which its dtype must be able to hold."""
    import pullback

    low, high = _integer(op_name, low, "low"), _integer(op_name, high, "high")
    if low >= high:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )
    if out.dtype.is_complex:
        raise RuntimeError(
            "check_random_bounds handles only integral, floating-point and boolean types"
        )
    if out.dtype == pullback.bool:
        least, most = 0, 1
    else:
        limits = (pullback.finfo if out.dtype.is_floating_point else pullback.iinfo)(out.dtype)
        least, most = limits.min, limits.max
    for name, value in (("from", low), ("to - 1", high - 1)):
        if not least <= value <= most:
            raise RuntimeError(f"{name} is out of bounds for {out.dtype}: {value}")
    return draw_randint(out, generator, low, high)


def _make_randint(
    low, high, size, generator, out, dtype, layout, device, pin_memory, requires_grad
):
    if size is None:  # randint(high, size)
        low, high, size = 0, low, high
    elif low is None or high is None:  # randint(high=..., size=...) or randint(high, size=...)
        low, high = 0, high if low is None else low
    if not isinstance(size, (tuple, list)):
        raise TypeError(
            f"randint(): argument 'size' must be tuple of ints, not {type(size).__name__}"
        )
    dtype = result_dtype(dtype, out)
    made = factories().empty_tensor(size, dtype_named("int64") if dtype is None else dtype, device)
    return put_into(
        out, with_requires_grad(draw_integers("randint", made, generator, low, high), requires_grad)
    )


op(
    f"randint(low: any = None, high: any = None, size: int[]? = None, {RANDOM}) -> Tensor",
    composite=_make_randint,
    kernel="randint",
    method=False,
    doc="Return random integers in [low, high); randint(high, size) begins at 0.",
    samples=lambda: [
        case(5, (2, 3), dtype=TESTED),
        case(2, 7, (3,), dtype=TESTED),
        case(4, ()),
        case(4, (0, 2)),
    ],
    dtypes=INTEGRAL | FLOATING,
)

_RANDOM_LIKE = "*, generator: any = None, " + LIKE.removeprefix("*, ")


def _rand_like(fill):
    def composite(self, generator, dtype, layout, device, pin_memory, requires_grad, memory_format):
        made = _continuous(make_like(self, None, dtype, device, False, memory_format))
        return with_requires_grad(fill(made, generator), requires_grad)

    return composite


for _name, _kernel, _fill_with in (
    ("rand_like", "uniform", draw_uniform),
    ("randn_like", "normal", draw_normal),
):
    op(
        f"{_name}(self: Tensor, {_RANDOM_LIKE}) -> Tensor",
        kernel=_kernel,
        method=False,
        composite=_rand_like(_fill_with),
        doc="Return random numbers in the shape, dtype and device of another tensor.",
        constant=True,
        samples=lambda: [case(T(2, 3)), case(T()), case(T(0, 3))],
        dtypes=FLOAT_COMPLEX,
    )


def _randint_like(
    self, low, high, generator, dtype, layout, device, pin_memory, requires_grad, memory_format
):
    if low is None or high is None:  # randint_like(self, high) or randint_like(self, high=...)
        low, high = 0, high if low is None else low
    made = make_like(self, None, dtype, device, False, memory_format)
    made = draw_integers("randint_like", made, generator, low, high)
    return with_requires_grad(made, requires_grad)


op(
    f"randint_like(self: Tensor, low: any = None, high: any = None, {_RANDOM_LIKE}) -> Tensor",
    composite=_randint_like,
    kernel="randint",
    method=False,
    doc="Return random integers in [low, high), or [0, low), in the shape of another tensor.",
    constant=True,
    samples=lambda: [case(T(2, 3), 5), case(T(), 2, 7), case(T(0, 3), 3)],
    dtypes=INTEGRAL | FLOATING,
)


def _uniform_(self, from_, to, generator):
    import pullback

    _continuous(self)
    limit = pullback.finfo(self.dtype).max
    for name, value in (("from", from_), ("to", to)):
        if not abs(value) <= limit:
            raise RuntimeError(f"{name} is out of bounds for {self.dtype}: {value}")
    if from_ > to:
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={from_} > to={to}"
        )
    if to - from_ > limit:
        raise RuntimeError(
            f"uniform_ expects to-from <= finfo({self.dtype}).max, but found "
            f"to={to} and from={from_} which result in to-from to exceed the limit"
        )
    if (from_, to) == (0, 1):
        return draw_uniform(self, generator)
    numbers = draw_uniform(factories().empty_tensor(self.shape, self.dtype, self.device), generator)
    start = complex(from_, from_) if self.is_complex() else from_
    return factories().copy_raw(self, numbers * (to - from_) + start)


op(
    "uniform_(self: Tensor, from_: float = 0, to: float = 1, *, generator: any = None) -> Tensor",
    forward=_uniform_,
    kernel="uniform",
    inplace="only",
    function=False,
    vjp={"self": lambda g: ops.zeros_like(g)},
    doc="Fill with uniform random numbers in [from_, to).",
    samples=lambda: [case(T(2, 3)), case(T(), 1, 3), case(T(0, 3), -1, 1)],
    dtypes=FLOAT_COMPLEX,
)


def _normal_(self, mean, std, generator):
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    _continuous(self)
    if (mean, std) == (0, 1):
        return draw_normal(self, generator)
    numbers = draw_normal(factories().empty_tensor(self.shape, self.dtype, self.device), generator)
    return factories().copy_raw(self, numbers * std + mean)


op(
    "normal_(self: Tensor, mean: float = 0, std: float = 1, *, generator: any = None) -> Tensor",
    forward=_normal_,
    kernel="normal",
    inplace="only",
    function=False,
    vjp={"self": lambda g: ops.zeros_like(g)},
    doc="Fill with normal random numbers.",
    samples=lambda: [case(T(2, 3)), case(T(), 1, 3), case(T(0, 3), -1, 1)],
    dtypes=FLOAT_COMPLEX,
)
