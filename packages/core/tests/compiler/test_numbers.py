"""Floats that are arguments of compiled functions, and vary from call to call."""

import collections
import copy
import decimal
import math
import pickle

import numpy
import pytest

import pullback as pb
from pullback.compiler.numbers import NumberArgument

NUMBERS = [0.5, 1.5, -2.0, 0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 1e-310, 1e300, 1 / 3]
DTYPES = [pb.float32, pb.float64, pb.float16, pb.bfloat16, pb.int32, pb.uint8, pb.complex64]

ARITHMETIC = {
    "mul": lambda x, s: x * s,
    "rmul": lambda x, s: s * x,
    "add": lambda x, s: x + s,
    "radd": lambda x, s: s + x,
    "sub": lambda x, s: x - s,
    "rsub": lambda x, s: s - x,
    "div": lambda x, s: x / s,
    "rdiv": lambda x, s: s / x,
    "eq": lambda x, s: x == s,
    "function": lambda x, s: pb.mul(x, s),
    "method": lambda x, s: x.mul(s),
    "several": lambda x, s: (x * s + 1 / (x - s)) * s,
    "python": lambda x, s: x * (s * 2 + 1),
    "mixture": lambda x, s: s * x + (1 - s) * x,
    "python's": lambda x, s: (x / (abs(-s) + 1 / 3), x - (+s) * s / 7, 2.5 * s - s + True),
    "result": lambda x, s: (x * s, s),
}
READ = {
    "power": lambda x, s: x**s,
    "branch": lambda x, s: x * 2 if s > 1 else x * 3,
    "math": lambda x, s: x * math.sin(s),
    "text": lambda x, s: x * len(f"{s:.1f}"),
    "tensor": lambda x, s: x + pb.tensor(s),
    "list": lambda x, s: x + pb.tensor([s, 1.0, s]),
    "full": lambda x, s: x + pb.full((3,), s),
    "clamp": lambda x, s: x.clamp(max=s),
    "alpha": lambda x, s: x.add(x, alpha=s),
    "times alpha": lambda x, s: x.add(s, alpha=2),
    "where": lambda x, s: pb.where(x > 1.5, x, s),
    "item": lambda x, s: x[: int(abs(s))],
    "round": lambda x, s: x * round(s),
    "largest": lambda x, s: x * max(s, 1.0),
    "quotient": lambda x, s: x * (1 / s),
    "whole": lambda x, s: x * (s // 2),
    "quantile": lambda x, s: pb.quantile(x, abs(s) / 10),
    "repr": lambda x, s: x * float(repr(s)),
    "key": lambda x, s: x * {s: 2.0}[s],
}
READ["function of numpy"] = lambda x, s: x * float(numpy.exp(s))
READ["of numpy"] = lambda x, s: (
    (float(numpy.float32(0.1) * s), x)[1] * float(numpy.float32(0.1) * s)
)
FLOATS_ALONE = {  # with a number argument they raise TypeError, or compute another result
    "decimal": lambda x, s: x * float(decimal.Decimal(s)),
    "type": lambda x, s: x * (2 if type(s) is float else 3),
}


def bits(tensor):
    return tensor.detach().reshape(-1).view(pb.uint8).tolist()


def same(one, other):
    if isinstance(other, tuple):
        return all(same(*pair) for pair in zip(one, other, strict=True))
    if isinstance(other, pb.Tensor):
        return one.dtype == other.dtype and bits(one) == bits(other)
    return type(one) is type(other) and (one == other or one != one)


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("shape", [(5,), (), (3, 1, 4), (0,)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_program_takes_all_numbers(name, shape, dtype):
    function = ARITHMETIC[name]
    x = pb.arange(1, math.prod(shape) + 1).reshape(shape).to(dtype)
    compiled = pb.compile(function, fullgraph=True)
    for number in NUMBERS:
        assert same(compiled(x, number), function(x, number)), number
    assert len(compiled.entries) == 2  # the first for one number alone


def test_large_arrays_in_groups():
    x = pb.rand(1 << 17) + 1
    for function in ARITHMETIC.values():
        compiled = pb.compile(function)
        for number in NUMBERS[:6]:
            assert same(compiled(x, number), function(x, number)), number


@pytest.mark.parametrize("name", READ)
def test_value_that_is_read_is_that_of_the_program(name):
    function, x = READ[name], pb.tensor([1.25, 1.75, 2.5])
    compiled = pb.compile(function)
    for number in (0.5, 1.5, 2.5, 0.5, 1.5):
        assert same(compiled(x, number), function(x, number)), number
    assert len(compiled.entries) == 3


@pytest.mark.parametrize("name", FLOATS_ALONE)
def test_functions_that_want_floats_get_floats(name):
    function, x = FLOATS_ALONE[name], pb.tensor([1.25, 1.75, 2.5])
    compiled = pb.compile(function)
    for number in (0.5, 1.5, 2.5, 0.5, 1.5):
        assert same(compiled(x, number), function(x, number)), number


def test_error_of_the_function_is_raised_once():
    calls = []

    def function(x, s):
        if not pb.compiler.is_compiling() or s > 1:
            calls.append(s)
            raise ValueError("too large")
        return x * s

    compiled = pb.compile(function)
    compiled(pb.ones(1), 0.5)
    with pytest.raises(ValueError, match="too large"):
        compiled(pb.ones(1), 1.5)
    assert calls == [1.5]


def test_error_after_a_write_is_not_tried_again():
    state, calls = pb.zeros(1), []

    def function(x, s):
        state.add_(1)
        if len(calls) and s > 1:
            raise ValueError("too large")
        return x * s

    compiled = pb.compile(function)
    compiled(pb.ones(1), 0.5)
    calls.append(1)
    with pytest.raises(ValueError, match="too large"):
        compiled(pb.ones(1), 1.5)
    assert state.item() == 2


def test_gradients():
    weight = pb.randn(4, requires_grad=True)

    def function(x, s):
        return (x * s + weight / s).tanh() * (s - x)

    compiled = pb.compile(function)
    for number in (0.5, 1.5, 2.5, -3.0):
        x = (pb.rand(4) + 1).requires_grad_()
        found, wanted = compiled(x, number), function(x, number)
        assert same(found, wanted)
        assert same(
            pb.autograd.grad(found.sum(), [x, weight]), pb.autograd.grad(wanted.sum(), [x, weight])
        )
    assert len(compiled.entries) == 2


def test_zero_dims_keep_the_dtype():
    x = pb.tensor(2.0, requires_grad=True)
    compiled = pb.compile(lambda x, s: x * s / (x + s))
    for number in (0.5, 1.5, 2.5):
        found, wanted = compiled(x, number), compiled.function(x, number)
        assert same(found, wanted)
        assert same(pb.autograd.grad(found, x), pb.autograd.grad(wanted, x))


def test_step_with_a_schedule():
    def train(step):
        pb.manual_seed(0)
        weight = pb.randn(3, requires_grad=True)
        step = step(weight)
        for i in range(8):
            step(pb.arange(3.0) + i, 0.1 / (i + 1))
        return weight.detach()

    def make(weight):
        def step(x, rate):
            loss = (weight * x).square().sum()
            (grad,) = pb.autograd.grad(loss, weight)
            with pb.no_grad():
                weight.sub_(grad * rate)

        return step

    compiled = []
    found = train(lambda weight: compiled.append(pb.compile(make(weight))) or compiled[0])
    assert same(found, train(make))
    assert len(compiled[0].entries) == 2


def test_tuples_and_keywords():
    pair = collections.namedtuple("pair", "scale shift")
    compiled = pb.compile(lambda x, p, *, factor=1.0: (x * p.scale + p.shift) * factor)
    x = pb.ones(2)
    for scale, shift, factor in [
        (1.0, 2.0, 3.0),
        (1.5, 2.5, 3.5),
        (4.0, 5.0, 6.0),
        (7.0, 8.0, 9.0),
    ]:
        found = compiled(x, pair(scale, shift), factor=factor)
        assert same(found, (x * scale + shift) * factor)
    assert len(compiled.entries) == 2
    assert "float" in str(compiled.explain())


def test_other_device_and_shape_have_programs_of_their_own():
    compiled = pb.compile(lambda x, s: x * s)
    for x in (pb.ones(2), pb.ones(3), pb.ones(2, device="ref")):
        for number in (1.0, 2.0, 3.0):
            assert compiled(x, number).tolist() == [number] * len(x)


def test_number_argument_is_like_a_float():
    tensor = pb.ones(())
    for function in (
        abs, int, bool, hash, repr, str, math.floor, math.ceil, math.trunc, round, math.sqrt,
        lambda s: s + 1, lambda s: 1 - s, lambda s: s**2, lambda s: 2**s, lambda s: s // 2,
        lambda s: divmod(7, s), lambda s: s % 2, lambda s: -s, lambda s: s < 3, lambda s: s == 2.5,
        lambda s: s.is_integer(), lambda s: s.real, lambda s: [s, 1.0].index(2.5), copy.deepcopy,
        lambda s: pickle.loads(pickle.dumps(s)), lambda s: f"{s:.3f}",
        lambda s: isinstance(s, float),
    ):  # fmt: skip
        number = NumberArgument(2.5, tensor)
        assert not number.is_read
        found = function(number)
        assert found == function(2.5) and type(found) is type(function(2.5))
    assert (NumberArgument(2.5, tensor) * NumberArgument(2.0, tensor)) == 5


def test_more_numbers_than_programs_warn_and_name_the_number():
    mixture = pb.compile(lambda x, s: x * max(s, 0.0))
    for number in range(16):
        mixture(pb.ones(2), number / 20)
    with pytest.warns(UserWarning, match=r"16 programs; .* args\[1\]: 0.8 instead of 0.75"):
        assert mixture(pb.ones(2), 0.8).tolist() == (pb.ones(2) * 0.8).tolist()


SCALED = {
    "quotient": lambda x, t: x.sum() / t,
    "twice": lambda x, t: x.sum() * t * t,
    "nested": lambda x, t: t * (x.sum() * (t * t)),
    "distillation": lambda x, t: t * x.square().sum() * (t * t) + (1 - t) * x.sum(),
}


@pytest.mark.parametrize("dtype", [pb.float32, pb.bfloat16, pb.float16, pb.complex64])
@pytest.mark.parametrize("name", SCALED)
def test_gradients_of_losses_that_numbers_scale(name, dtype):
    function, compiled = SCALED[name], pb.compile(SCALED[name])
    for k in range(12):
        found = []
        for call in (function, compiled):
            x = pb.ones(3, dtype=dtype, requires_grad=True)
            call(x, 0.5 + 0.013 * k).abs().backward()
            found.append(bits(x.grad))
        assert found[0] == found[1]
    assert len(compiled.entries) == 2


def test_numbers_of_a_function_without_tensor_arguments():
    def run(wrap):
        q, p = pb.ones(3), pb.arange(3.0)

        def move(tau):
            q.mul_(1 - tau)
            q.add_(tau * p)

        move, found = wrap(move), []
        for k in range(8):
            move(0.01 + 0.01 * k)
            found.append(q.tolist())
        return found, move

    (found, move), (expected, _) = run(pb.compile), run(lambda function: function)
    assert found == expected and len(move.entries) == 2
