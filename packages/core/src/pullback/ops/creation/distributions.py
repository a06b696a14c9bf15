"""Samples of distributions, drawn from a generator's uniform and normal numbers.

As in torch, a sample has the derivative 0 by the parameters of its distribution.
"""

import math

from pullback.ops.creation.create import factories, put_into, result_dtype, with_requires_grad
from pullback.ops.creation.random import (
    RANDOM,
    draw_integers,
    draw_normal,
    draw_permutation,
    draw_uniform,
)
from pullback.ops.rules.arguments import as_int, check_float
from pullback.ops.rules.dtypes import (
    accumulate_dtype,
    cast_to,
    check_dtype,
    dtype_named,
    type_name,
    unsupported,
    widest,
)
from pullback.ops.rules.operands import all_hold, check_all, is_meta
from pullback.ops.rules.shapes import broadcast_shape
from pullback.ops.table.kinks import kink
from pullback.ops.table.primitives_api import new_empty
from pullback.ops.table.samples import TESTED, Dtype, T, case, fixed
from pullback.ops.table.schema import BOOL, FLOAT_COMPLEX, FLOATING, INTEGRAL, op, ops

_UNIT = {"low": 0, "high": 1}
_NO_SLOPE = dict.fromkeys(("grad", "gradgrad"), "the derivative of samples is 0 by definition")


def _zeros(g):
    return ops.zeros_like(g)


def _uniform_numbers(self, generator, dtype=None):
    """Return numbers in [0, 1) in the shape of a tensor, of at least 24 bits."""
    dtype = accumulate_dtype(self.dtype) if dtype is None else dtype
    return draw_uniform(new_empty(self, self.shape, dtype), generator)


def _normal_numbers(shape, dtype, device, generator):
    return draw_normal(factories().empty_tensor(shape, accumulate_dtype(dtype), device), generator)


def _write(self, values):
    return factories().copy_raw(self, values)


# -- coins -----------------------------------------------------------------------------------------


def _coins(self, p, generator):
    """Return where p is above uniform numbers in the shape of self."""
    if hasattr(p, "requires_grad"):
        check_dtype("bernoulli", p, "f")
        p = p.expand(self.shape)
        error = RuntimeError(
            "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  "
            "(a probability lies outside of [0, 1])"
        )
        check_all((p >= 0) & (p <= 1), error)
        return _uniform_numbers(self, generator, accumulate_dtype(p.dtype)) < p
    check_float(p, "bernoulli", "p")
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    check_dtype("bernoulli", self, "biuf")
    precise = dtype_named("float64" if self.dtype.name == "float64" else "float32")
    return _uniform_numbers(self, generator, precise) < p


def _bernoulli(self, p, generator):
    made = new_empty(self, self.shape)
    return _write(made, _coins(self, self if p is None else p, generator))


def _bernoulli_vjp(g, by_number):
    if by_number:
        raise RuntimeError("derivative for aten::bernoulli is not implemented")
    return ops.zeros_like(g)


op(
    "bernoulli(self: Tensor, p: float? = None, *, generator: any = None) -> Tensor",
    forward=_bernoulli,
    vjp={"self": _bernoulli_vjp},
    out=True,
    dtypes=BOOL | INTEGRAL | FLOATING,
    save={"by_number": lambda self, p, generator: p is not None},
    node=lambda by_number: "NotImplemented" if by_number else "BernoulliBackward0",
    doc="Return 1 with the probability that each element is, else 0.\n\nWith p, the tensor gives "
    "shape and dtype only; such a sample has no derivative.\nRaises: RuntimeError for "
    "probabilities outside of [0, 1].",
    kinks=[kink([1.0], to=[0.0], outside="the derivative of a sample is 0 by definition")],
    samples=lambda: [
        case(T(2, 3, **_UNIT), 0.5, skip=_NO_SLOPE | {"compiled": "it has no derivative"}),
        case(T(2, 3, **_UNIT), only=FLOATING),
        case(T(**_UNIT), only=FLOATING),
        case(T(0, 3), only=FLOATING),
    ],
)
op(
    "bernoulli_(self: Tensor, p: Operand = 0.5, *, generator: any = None) -> Tensor",
    forward=lambda self, p, generator: _write(self, _coins(self, p, generator)),
    inplace="only",
    function=False,
    vjp={"self": _zeros, "p": _zeros},
    save={"by_tensor": lambda self, p, generator: hasattr(p, "requires_grad")},
    node=lambda by_tensor: f"BernoulliBackward{1 if by_tensor else 2}",
    dtypes=BOOL | INTEGRAL | FLOATING,
    doc="Set each element to 1 with a probability, else to 0; returns self.\n\nRaises: "
    "RuntimeError for probabilities outside of [0, 1].",
    samples=lambda: [
        case(T(2, 3)),
        case(T(), 0.2),
        case(T(0, 3), 1),
        case(T(2, 3), T(3, **_UNIT), only=FLOATING),
    ],
)


# -- normal numbers --------------------------------------------------------------------------------


def _check_std(std):
    if not hasattr(std, "requires_grad"):
        if not std >= 0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
        return
    if std.dtype.is_complex:
        raise RuntimeError("normal expects standard deviation to be non-complex")
    if std.numel():
        check_all(std >= 0, RuntimeError("normal expects all elements of std >= 0.0"))


def _normal_of(mean, std, generator):
    _check_std(std)
    tensors = [value for value in (mean, std) if hasattr(value, "requires_grad")]
    dtype, shape = tensors[0].dtype, tuple(tensors[0].shape)
    if dtype.kind not in "fc":
        raise unsupported("normal", dtype)
    if len(tensors) == 2:
        shape = broadcast_shape(shape, tuple(std.shape))
    numbers = _normal_numbers(shape, dtype, tensors[0].device, generator)
    return cast_to(numbers * std + mean, dtype)


op(
    "_normal(mean: Operand, std: Operand, *, generator: any = None) -> Tensor",
    forward=_normal_of,
    vjp={"mean": _zeros, "std": _zeros},
    method=False,
    function=False,
    save={
        "kind": lambda mean, std, generator: (
            3
            if all(hasattr(value, "requires_grad") for value in (mean, std))
            else 2
            if hasattr(std, "requires_grad")
            else 1
        )
    },
    node=lambda kind: f"NormalBackward{kind}",
    dtypes=FLOAT_COMPLEX,
    doc="Return normal random numbers with a mean and a standard deviation for each element.",
    samples=lambda: [
        case(T(2, 3), 2.0, skip=_NO_SLOPE),
        case(T(), 0, skip=_NO_SLOPE),
        case(0.5, T(3, **_UNIT), skip=_NO_SLOPE, only=FLOATING),
        case(T(2, 1), T(3, **_UNIT), skip=_NO_SLOPE, only=FLOATING),
        case(T(0), 1, skip=_NO_SLOPE),
    ],
)


def _make_normal(mean, std, size, generator, out, dtype, layout, device, pin_memory, requires_grad):
    by_tensor = any(hasattr(value, "requires_grad") for value in (mean, std))
    if by_tensor == (size is not None):
        raise TypeError(
            "normal(): expected a tensor of means or standard deviations, or two numbers and a size"
        )
    if by_tensor:
        return put_into(out, ops._normal(mean, std, generator=generator))
    _check_std(std)
    dtype = result_dtype(dtype, out)
    size = size if isinstance(size, (tuple, list)) else (size,)
    made = factories().empty_tensor(size, dtype, device)
    check_dtype("normal", made, "fc")
    numbers = _normal_numbers(made.shape, made.dtype, made.device, generator)
    return put_into(out, with_requires_grad(_write(made, numbers * std + mean), requires_grad))


op(
    f"normal(mean: Operand, std: Operand = 1, size: int[]? = None, {RANDOM}) -> Tensor",
    composite=_make_normal,
    method=False,
    dtypes=FLOAT_COMPLEX,
    doc="Return normal random numbers.\n\nTensors of means or standard deviations give one number "
    "for each of their elements; two numbers need a size.\nRaises: RuntimeError for a negative "
    "standard deviation.",
    samples=lambda: [
        case(1.5, 2.0, (2, 3), dtype=TESTED),
        case(0, 1, (), dtype=TESTED),
        case(0.0, 1.0, (0, 2)),
        case(T(2, 3), 2.0, skip=_NO_SLOPE),
        case(T(2, 1), T(3, **_UNIT), skip=_NO_SLOPE, only=FLOATING),
        case(0.5, T(3, **_UNIT), skip=_NO_SLOPE, only=FLOATING),
        case(T(3), skip=_NO_SLOPE),
    ],
)


# -- counts ----------------------------------------------------------------------------------------


def _poisson_by_inversion(rate, generator):
    """Walk up the distribution function until it passes a uniform number; for small rates."""
    u = _uniform_numbers(rate, generator)
    count, mass = ops.zeros_like(rate), ops.exp(-rate)
    reached = mass
    for k in range(1, 100):  # at rates below 10 nothing is beyond
        beyond = u >= reached
        if not ops.any(beyond).item():
            break
        count = count + beyond
        mass = mass * rate / k
        reached = reached + mass
    return count


def _poisson_by_rejection(rate, generator):
    """Draw until every element has been accepted; for rates of 10 and more.

    Source: Hoermann, "The transformed rejection method for generating Poisson random variables",
    Insurance: Mathematics and Economics 12, 1993, algorithm PTRS.
    """
    b = 0.931 + 2.53 * ops.sqrt(rate)
    a = 0.02483 * b - 0.059
    quick = 0.9277 - 3.6224 / (b - 2)
    scale = ops.log(1.1239 + 1.1328 / (b - 3.4))
    log_rate = ops.log(rate)
    count, missing = ops.zeros_like(rate), ops.ones_like(rate, dtype=dtype_named("bool"))
    while ops.any(missing).item():
        u = _uniform_numbers(rate, generator) - 0.5
        v = _uniform_numbers(rate, generator)
        us = 0.5 - ops.abs(u)
        k = ops.floor((2 * a / us + b) * u + rate + 0.43)
        exact = ops.log(v) + scale - ops.log(a / (us * us) + b) <= k * log_rate - rate - ops.lgamma(
            k + 1
        )
        sure = (us >= 0.07) & (v <= quick)
        possible = (k >= 0) & ((us >= 0.013) | (v <= us))
        accepted = missing & (sure | (possible & exact))
        count = ops.where(accepted, k, count)
        missing = missing & ~accepted
    return count


def _poisson(self, generator):
    check_dtype("poisson", self, "f")
    error = RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    check_all(self >= 0, error)
    out = new_empty(self, self.shape)
    if not self.numel() or is_meta(self):
        return out
    rate = cast_to(self, widest(self.device))
    small, endless = rate < 10, rate == math.inf
    count = ops.zeros_like(rate)
    if ops.any(small).item():
        count = _poisson_by_inversion(ops.where(small, rate, 0.0), generator)
    if not ops.all(small | endless).item():
        large = _poisson_by_rejection(ops.where(small | endless, 10.0, rate), generator)
        count = ops.where(small, count, large)
    return _write(out, ops.where(endless, math.inf, count))


op(
    "poisson(self: Tensor, generator: any = None) -> Tensor",
    forward=_poisson,
    method=False,
    vjp={"self": _zeros},
    dtypes=FLOATING,
    doc="Return counts of the Poisson distribution whose rate each element is.\n\nRaises: "
    "RuntimeError for negative rates.",
    kinks=[kink([0.0], to=[0.0], outside="the derivative of a sample is 0 by definition")],
    samples=lambda: [
        case(T(2, 3, low=0, high=5)),
        case(T(4, low=8, high=60)),
        case(T(low=0, high=2)),
        case(T(0, 3)),
        case(fixed((0, 1, 200)), skip=_NO_SLOPE),
    ],
)


# -- choices ---------------------------------------------------------------------------------------

_LARGEST_CHOICE = 1 << 24


def _check_weights(weights, several):
    """Check that weights are a distribution; ``several``: draws that may repeat."""
    if several:
        text = "invalid multinomial distribution (encountering probability entry "
        check_all(weights >= 0, RuntimeError(f"{text}< 0)"))
        check_all(weights < math.inf, RuntimeError(f"{text}= infinity or NaN)"))
    else:
        text = "probability tensor contains either `inf`, `nan` or element < 0"
        check_all((weights >= 0) & (weights < math.inf), RuntimeError(text))
    text = "invalid multinomial distribution (sum of probabilities <= 0)"
    check_all(ops.sum(weights, -1) > 0, RuntimeError(text))


def _within_range(weights):
    """Return float64 weights whose sum is neither infinite nor too small to be cut into parts."""
    largest = ops.amax(weights, -1, True)
    if all_hold((largest > 1e-250) & (largest < 1e300)):
        return weights  # there are at most 2^24 of them
    return weights / largest


def _multinomial(self, num_samples, replacement, generator):
    count = as_int(num_samples, "multinomial", "num_samples")
    if self.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not self.dtype.is_floating_point:
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: "
            f"{type_name(self.dtype)}"
        )
    if count <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and count > self.shape[-1]:
        raise RuntimeError(
            "cannot sample n_sample > prob_dist.size(-1) samples without replacement"
        )
    if self.shape[-1] > _LARGEST_CHOICE:
        raise RuntimeError("number of categories cannot exceed 2^24")
    shape = (*self.shape[:-1], count)
    if is_meta(self) or not self.numel():
        if 0 in shape or is_meta(self):
            return new_empty(self, shape, dtype_named("int64"))
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    weights = cast_to(self, widest(self.device))
    _check_weights(weights, replacement and count > 1)
    if self.dtype == weights.dtype:
        weights = _within_range(weights)
    if replacement:
        reached = ops.cumsum(weights, -1)
        positions = draw_uniform(new_empty(self, shape, weights.dtype), generator)
        positions = positions * reached.narrow(-1, self.shape[-1] - 1, 1)
        return factories().data_alias(ops.searchsorted(reached, positions, right=True))
    # The first of exponential times with these rates is each category with its probability, and
    # so on with the others.  Source: Efraimidis and Spirakis, "Weighted random sampling with a
    # reservoir", Information Processing Letters 97, 2006.
    return ops.topk(weights / _exponential_numbers(weights, generator), count)[1]


op(
    "multinomial(self: Tensor, num_samples: int, replacement: bool = False, *, "
    "generator: any = None) -> Tensor",
    forward=_multinomial,
    out=True,
    dtypes=FLOATING,
    out_dtype="exact",
    doc="Return indices of the last dim, drawn with the probabilities that its weights give.\n\n"
    "Without replacement no index is drawn twice; those of weight 0 come last.\nRaises: "
    "RuntimeError for other than 1 or 2 dims, for negative, infinite or NaN weights, and when "
    "all are 0.",
    samples=lambda: [
        case(T(4, low=0.1, high=2), 3),
        case(T(2, 4, low=0.1, high=2), 2),
        case(T(2, 3, low=0.1, high=2), 7, True),
        case(T(3, low=0.1, high=2), 1),
        case(T(0, 3), 2),
        case(fixed((0, 1, 0)), 5, True, skip={"expanded": "all its weights are 0"}),
    ],
)


def _check_largest(n, dtype):
    """Raise RuntimeError if a dtype cannot hold all of 0 .. n - 1."""
    if dtype.kind not in "uif":
        raise unsupported("randperm", dtype)
    if dtype.is_floating_point:
        bits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[dtype.name]
        if n > (1 << bits) + 1:
            raise RuntimeError(
                f"n cannot be greater than {(1 << bits) + 1} for {type_name(dtype)} type."
            )
        return
    import pullback

    if n > pullback.iinfo(dtype).max:
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")


def _randperm(n, generator, out, dtype, layout, device, pin_memory, requires_grad):
    n = as_int(n, "randperm", "n")
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    dtype = result_dtype(dtype, out)
    dtype = dtype_named("int64") if dtype is None else dtype
    _check_largest(n, dtype)
    made = draw_permutation(factories().empty_tensor((n,), dtype_named("int64"), device), generator)
    return put_into(out, with_requires_grad(cast_to(made, dtype), requires_grad))


op(
    f"randperm(n: int, {RANDOM}) -> Tensor",
    composite=_randperm,
    kernel="permutation",
    method=False,
    doc="Return the numbers 0 .. n - 1 in random order.\n\nRaises: RuntimeError for a negative n, "
    "or one that the dtype cannot hold.",
    samples=lambda: [case(5, dtype=TESTED), case(0), case(1), case(4, dtype=Dtype("float32"))],
    dtypes=INTEGRAL | FLOATING,
)


# -- in place --------------------------------------------------------------------------------------


def _in_place(signature, forward, doc, **fields):
    op(
        signature,
        forward=forward,
        inplace="only",
        function=False,
        vjp={"self": _zeros},
        doc=doc,
        **fields,
    )


def _continuous(name, self):
    if not self.dtype.is_floating_point:
        raise RuntimeError(
            f"{name} distribution is a continuous probability distribution. dtype "
            f"must be a floating point but you specified {type_name(self.dtype)}"
        )


def _exponential_numbers(like, generator):
    """Return numbers of the exponential distribution with rate 1; none of them is 0."""
    u = _uniform_numbers(like, generator)
    least = 2.0**-54 if u.dtype.name == "float64" else 2.0**-25
    return ops.clamp(-ops.log1p(-u), least)


def _exponential(self, lambd, generator):
    _continuous("Exponential", self)
    if not lambd > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
    return _write(self, _exponential_numbers(self, generator) / lambd)


_in_place(
    "exponential_(self: Tensor, lambd: float = 1, *, generator: any = None) -> Tensor",
    _exponential,
    "Fill with numbers of the exponential distribution; returns self.\n\n"
    "Raises: RuntimeError unless the rate lambd is positive.",
    dtypes=FLOATING,
    samples=lambda: [case(T(2, 3)), case(T(), 2.5), case(T(0, 3))],
)


def _geometric(self, p, generator):
    check_dtype("geometric", self, "uif")
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
    u = _uniform_numbers(self, generator, widest(self.device))
    return _write(self, ops.clamp(ops.ceil(ops.log1p(-u) / math.log1p(-p)), 1))


_in_place(
    "geometric_(self: Tensor, p: float, *, generator: any = None) -> Tensor",
    _geometric,
    "Fill with counts of trials up to the first success, which has the probability p; "
    "returns self.\n\nRaises: RuntimeError unless p is in (0, 1).",
    dtypes=INTEGRAL | FLOATING,
    samples=lambda: [case(T(2, 3), 0.5), case(T(), 0.3), case(T(0, 3), 0.9)],
)


def _cauchy(self, median, sigma, generator):
    _continuous("Cauchy", self)
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
    return _write(
        self, median + sigma * ops.tan(math.pi * (_uniform_numbers(self, generator) - 0.5))
    )


_in_place(
    "cauchy_(self: Tensor, median: float = 0, sigma: float = 1, *, generator: any = None) "
    "-> Tensor",
    _cauchy,
    "Fill with numbers of the Cauchy distribution; returns self.\n\n"
    "Raises: RuntimeError unless sigma is positive.",
    dtypes=FLOATING,
    samples=lambda: [case(T(2, 3)), case(T(), 2, 0.5), case(T(0, 3))],
)


def _log_normal(self, mean, std, generator):
    check_dtype("log_normal", self, "f")
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
    numbers = _normal_numbers(self.shape, self.dtype, self.device, generator)
    return _write(self, ops.exp(mean + std * numbers))


_in_place(
    "log_normal_(self: Tensor, mean: float = 1, std: float = 2, *, generator: any = None) "
    "-> Tensor",
    _log_normal,
    "Fill with exponentials of normal numbers; returns self.\n\n"
    "Raises: RuntimeError unless std, that of the logarithm, is positive.",
    dtypes=FLOATING,
    samples=lambda: [case(T(2, 3)), case(T(), 0, 0.5), case(T(0, 3))],
)


def _largest(dtype):
    """Return the largest of the whole numbers up to which a dtype has them all."""
    import pullback

    if dtype.kind == "b":
        return 1
    if dtype.is_floating_point:
        return {"float16": 1 << 11, "bfloat16": 1 << 8, "float32": 1 << 24, "float64": 1 << 53}[
            dtype.name
        ]
    return pullback.iinfo(dtype).max


def _random_range(from_, to):
    """Return (low, high) of random_'s spellings; high None stands for the largest number."""
    if to is False:  # random_() or random_(to)
        return 0, from_
    return (0 if from_ is None else from_), to


def _random(self, from_, to, generator):
    low, high = _random_range(from_, to)
    if self.dtype.is_complex and high is None:
        raise unsupported("random", self.dtype)
    if high is None:
        high = min(_largest(self.dtype) + 1, (1 << 63) - 1)
    return draw_integers("random_", self, generator, low, high)


# False stands for an argument that is not given: None means "up to the largest number".
_in_place(
    "random_(self: Tensor, from_: any = None, to: any = False, *, generator: any = None) -> Tensor",
    _random,
    "Fill with whole numbers in [from_, to), or [0, to); returns self."
    "\n\nWithout a bound they reach up to the largest that the dtype holds exactly.\n"
    "Raises: RuntimeError for an empty range, or one beyond the dtype.",
    kernel="randint",
    dtypes=BOOL | INTEGRAL | FLOATING,
    save={
        "kind": lambda self, from_, to, generator: (
            0 if to is not False else 2 if from_ is None else 1
        )
    },
    node=lambda kind: f"RandomBackward{kind}",
    samples=lambda: [case(T(2, 3)), case(T(), 2), case(T(0, 3)), case(T(3), 1, 2)],
)
