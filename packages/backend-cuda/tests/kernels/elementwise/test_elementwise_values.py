"""What elementwise kernels compute: the device code, run by the emulation, against the reference.

The reference computes in a wider type where there is one, from the numbers that the kernel sees.
"""

import cmath
import ctypes
import itertools
import math

import numpy as np
import on_fake
import primitive_calls
import pytest
from elementwise_launch import (
    CLASSES,
    COMPLEX,
    FLOATING,
    INTEGRAL,
    NAMES,
    REAL,
    STORED,
    VECTOR_SIZES,
    Failure,
    Families,
    Scalar,
    assert_close,
    launch,
    narrow,
    placed,
    random_values,
    run,
    widen,
)

pytestmark = pytest.mark.skipif(on_fake.compiler() is None, reason="needs a C++ compiler")


@pytest.fixture(scope="module")
def kernels():
    return Families()


WIDE = {"f16": "f8", "bf16": "f8", "f32": "f8", "f64": "f8", "c64": "c16", "c128": "c16"}
FUNCTIONS = (
    "acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 log log10 log1p log2 rsqrt "
    "sigmoid sin sinh sqrt tan tanh"
).split()
FLOATING_ONLY = (
    ("erf erfc", "functions"),
    ("digamma entr erfinv i0 i1 lgamma logit ndtr sinc", "special"),
    ("elu gelu gelu_tanh silu softplus", "activations"),
)
# Primitive, family, types, whether the result is bool.
UNARY = [
    *((primitive, "unary", [*REAL, *COMPLEX]) for primitive in ("abs", "neg", "square")),
    *((primitive, "unary", REAL) for primitive in ("relu", "sign")),
    *((primitive, "unary", FLOATING) for primitive in ("ceil", "floor", "round", "trunc")),
    ("reciprocal", "unary", [*FLOATING, *COMPLEX]),
    ("bitwise_not", "unary", INTEGRAL),
    ("conj", "unary", COMPLEX),
    *((primitive, "functions", FLOATING) for primitive in FUNCTIONS),
    *((primitive, "complex_functions", COMPLEX) for primitive in FUNCTIONS),
    *(
        (primitive, family, FLOATING)
        for primitives, family in FLOATING_ONLY
        for primitive in primitives.split()
    ),
]
QUESTIONS = [
    ("logical_not", [*NAMES]),
    ("isnan", [*FLOATING, *COMPLEX]),
    ("isfinite", [*FLOATING, *COMPLEX]),
]
BINARY = [
    *((primitive, "binary", [*REAL, *COMPLEX]) for primitive in ("add", "sub", "mul")),
    *(
        (primitive, "binary", [*FLOATING, *COMPLEX])
        for primitive in ("div", "sigmoid_backward", "tanh_backward")
    ),
    *((primitive, "binary", REAL) for primitive in ("maximum", "minimum")),
    *(
        (primitive, "binary", ["b", *INTEGRAL])
        for primitive in ("bitwise_and", "bitwise_or", "bitwise_xor")
    ),
    *((primitive, "division", REAL) for primitive in ("floor_divide", "fmod", "remainder")),
    *((primitive, "division", INTEGRAL) for primitive in ("gcd", "lshift", "pow", "rshift")),
    *((primitive, "functions", FLOATING) for primitive in ("atan2", "hypot", "pow")),
    ("pow", "complex_functions", COMPLEX),
    ("zeta", "special", FLOATING),
    *(
        (primitive, "activations", FLOATING)
        for primitive in ("gelu_backward", "gelu_tanh_backward", "logaddexp", "silu_backward")
    ),
]
COMPARISONS = [
    (primitive, ["b", *REAL] + COMPLEX * (primitive in ("eq", "ne")))
    for primitive in ("eq", "ne", "lt", "le")
]
# Sizes below which results may have lost digits, to a difference in the kernel or the reference.
FLOORS = {
    "log1p": 1,
    "lgamma": 1,
    "digamma": 1,
    "gelu_tanh": 30,
    "silu": 1e-30,
    "gelu_backward": 1,
    "gelu_tanh_backward": 1,
    "silu_backward": 1,
    "sigmoid_backward": 0.01,
    "tanh_backward": 1,
    "logaddexp": 1,
}
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    20.0,
    21.0,
    64.0,
    -100.0,
    math.inf,
    -math.inf,
    math.nan,
]
SIZE = 531


def each(table):
    """Return the rows of a table, one for every type."""
    return [
        pytest.param(*row[:-1], name, id=f"{row[0]}-{name}") for row in table for name in row[-1]
    ]


def reference(primitive, name, inputs, to=None):
    """Return what the reference makes of the numbers, in a type without rounding errors."""
    wide = [np.array(widen(x, name)).astype(WIDE.get(name, STORED[name])) for x in inputs]
    wide = [np.array(x) for x in np.broadcast_arrays(*wide)]
    result = {"b": "?"}.get(to) or WIDE.get(to or name, STORED[to or name])
    out = np.zeros(wide[0].shape, result)
    with np.errstate(all="ignore"):
        primitive_calls.reference(primitive, out, wide)
    return out


def values(rng, name, n=SIZE):
    """Return numbers of all sizes, and special ones."""
    array = random_values(rng, name, n)
    if name in FLOATING:
        array[: len(SPECIAL)] = narrow(SPECIAL, name)
        array[-100:] = narrow(rng.uniform(-1.2, 1.2, 100), name)
    if name in INTEGRAL:
        limits = np.iinfo(STORED[name])
        array[:4] = limits.min, limits.max, 0, 1
    return array


@pytest.mark.parametrize(("primitive", "family", "name"), each(UNARY))
def test_unary(kernels, primitive, family, name):
    x = values(np.random.default_rng(1), name)
    to = {"c64": "f32", "c128": "f64"}.get(name, name) if primitive == "abs" else name
    if primitive == "erfinv":
        # Next to 1 the logarithm's digits are lost on both sides.
        x = narrow(np.clip(widen(x, name), -0.99, 0.99), name)
    found = run(kernels, family, primitive, name, [placed(x)], to=to)
    ulps = (
        16
        if primitive in ("lgamma", "digamma", "erfinv", "exp2", "gelu", "i0", "i1")
        or name in COMPLEX
        else 4
    )
    assert_close(found, reference(primitive, name, [x], to), to, ulps, FLOORS.get(primitive, 0))


@pytest.mark.parametrize(("primitive", "name"), each(QUESTIONS))
def test_questions(kernels, primitive, name):
    x = values(np.random.default_rng(2), name)
    if name in COMPLEX:
        x[:16].real, x[8:24].imag = SPECIAL, SPECIAL
    found = run(kernels, "unary", primitive, name, [placed(x)], to="b")
    np.testing.assert_array_equal(found, reference(primitive, name, [x], "b"))


def pairs(rng, primitive, name):
    """Return two arrays of numbers that a primitive is defined for."""
    x, y = values(rng, name), values(rng, name)
    if name in FLOATING:
        n = len(SPECIAL)
        x[: n * n] = narrow(np.repeat(SPECIAL, n), name)
        y[: n * n] = narrow(np.tile(SPECIAL, n), name)
    elif primitive in ("floor_divide", "fmod", "remainder"):
        y[y == 0] = 1
    elif primitive in ("lshift", "rshift"):
        y = rng.integers(-2, 70, SIZE).astype(y.dtype)
    if primitive == "zeta":
        y = np.where(np.isfinite(widen(y, name)), y, narrow(3.0, name))
        y = np.where(np.abs(widen(y, name)) > 1000, narrow(-7.25, name), y)
    if primitive == "pow" and name in COMPLEX:
        x, y = x / (1 + abs(x)) * 2, y / (1 + abs(y)) * 4
        x, y = x.astype(STORED[name]), y.astype(STORED[name])
    return x, y


@pytest.mark.parametrize(("primitive", "family", "name"), each(BINARY))
def test_binary(kernels, primitive, family, name):
    x, y = pairs(np.random.default_rng(3), primitive, name)
    failure = Failure()
    found = run(
        kernels,
        family,
        primitive,
        name,
        [placed(x), placed(y)],
        failure=failure,
        option=8 * x.itemsize,
    )
    assert failure.code == 0
    wanted = reference(primitive, name, [x, y])
    if primitive in ("floor_divide", "fmod", "remainder") and name in FLOATING:
        # The numbers that the kernel divides: the reference does not see float32's rest as one.
        wide = {"f64": "f8"}.get(name, "f4")
        wanted = np.zeros(x.shape, wide)
        with np.errstate(all="ignore"):
            operands = [widen(a, name).astype(wide) for a in (x, y)]
            primitive_calls.reference(primitive, wanted, operands)
    ulps = 64 if primitive in ("pow", "zeta", "logaddexp") else 16
    floor = FLOORS.get(primitive, 0)
    if "backward" in primitive:  # times the gradient
        floor = floor * np.abs(np.nan_to_num(widen(x, name).astype(complex), posinf=0, neginf=0))
    assert_close(found, wanted, name, ulps, floor)


@pytest.mark.parametrize(("primitive", "name"), each(COMPARISONS))
def test_comparisons(kernels, primitive, name):
    x, y = pairs(np.random.default_rng(4), primitive, name)
    y[::3] = x[::3]
    found = run(kernels, "compare", primitive, name, [placed(x), placed(y)], to="b")
    np.testing.assert_array_equal(found, reference(primitive, name, [x, y], "b"))


@pytest.mark.parametrize("name", INTEGRAL)
@pytest.mark.parametrize("primitive", ["floor_divide", "fmod", "remainder"])
@pytest.mark.parametrize("position", [0, 7, 4098])
def test_division_by_zero(kernels, primitive, name, position):
    x, y = np.full(4099, 7, STORED[name]), np.full(4099, 2, STORED[name])
    for inputs in ([x, y], [x, np.broadcast_to(y[:1], x.shape)]):
        failure = Failure()
        run(kernels, "division", primitive, name, inputs, failure=failure)
        assert (failure.code, failure.claimed) == (0, 0)
    y[position] = 0
    run(kernels, "division", primitive, name, [x, y], failure=failure)
    assert (failure.code, failure.claimed) == (1, 1)
    found = run(kernels, "division", primitive, name, [x, y])  # nothing is reported
    wanted = reference(primitive, name, [x, np.where(y == 0, 2, y).astype(y.dtype)])
    np.testing.assert_array_equal(np.delete(found, position), np.delete(wanted, position))


# ---- three inputs and more -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [*REAL, *COMPLEX])
@pytest.mark.parametrize("primitive", ["addcmul", "addcdiv"])
def test_scaled_terms(kernels, primitive, name):
    if primitive == "addcdiv" and name in INTEGRAL:
        return
    rng = np.random.default_rng(5)
    x, y, z = (random_values(rng, name, (9, 64)) for _ in range(3))
    value = 3 if name in INTEGRAL else -0.75
    found = run(
        kernels,
        "ternary",
        primitive,
        name,
        [placed(x), placed(y), placed(z[:1]), Scalar(value, name)],
    )
    wanted = reference(primitive, name, [x, y, z[:1], narrow(np.array(value), name)])
    size = np.abs(np.nan_to_num(wanted.astype(complex))) + np.abs(widen(x, name))
    assert_close(found, wanted, name, 4, size)


@pytest.mark.parametrize("name", REAL)
def test_clamp(kernels, name):
    rng = np.random.default_rng(6)
    x, low, high = (values(rng, name) for _ in range(3))
    low, high = rng.permutation(low), rng.permutation(high)
    found = run(kernels, "ternary", "clamp", name, [placed(a) for a in (x, low, high)])
    np.testing.assert_array_equal(found, reference("clamp", name, [x, low, high]))
    found = run(kernels, "ternary", "clamp", name, [placed(x), Scalar(2, name), Scalar(7, name)])
    two, seven = (narrow(np.array([number]), name) for number in (2, 7))
    np.testing.assert_array_equal(found, reference("clamp", name, [x, two, seven]))


@pytest.mark.parametrize("name", [*FLOATING, *COMPLEX])
def test_lerp(kernels, name):
    rng = np.random.default_rng(7)
    x, y = (narrow(1 + rng.random((9, 64)), name) for _ in range(2))
    weight = rng.random((9, 1))
    weight = narrow(weight * (1 + 1j) if name in COMPLEX else weight, name)
    weight[:2, 0] = narrow(np.array([0.0, 1.0]), name)
    found = run(kernels, "ternary", "lerp", name, [placed(a) for a in (x, y, weight)])
    assert_close(found, reference("lerp", name, [x, y, weight]), name, 4)
    np.testing.assert_array_equal(found[0], widen(x[0], name))
    np.testing.assert_array_equal(found[1], widen(y[1], name))


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_where(kernels, size):
    name = {1: "u8", 2: "i16", 4: "i32", 8: "i64", 16: "c128"}[size]
    rng = np.random.default_rng(8)
    vector_size = {1: 4, 2: 4, 4: 4, 8: 2, 16: 1}[size]
    for shape, other in (((4099,), (4099,)), ((9, 64), (64,)), ((9, 63), (9, 1))):
        x, y = random_values(rng, name, shape), random_values(rng, name, other)
        condition = placed(rng.integers(0, 2, shape).astype(bool))
        out = placed(np.zeros(shape, x.dtype))
        launch(
            kernels("ternary"),
            f"where_{size}",
            out,
            [condition, placed(x), np.broadcast_to(placed(y), shape)],
            (name, name),
            vector_size,
        )
        np.testing.assert_array_equal(out, np.where(condition, x, y))
        number = Scalar(3, name, x.dtype)
        launch(
            kernels("ternary"),
            f"where_{size}",
            out,
            [condition, number, placed(x)],
            (name, name),
            vector_size,
        )
        np.testing.assert_array_equal(out, np.where(condition, x.dtype.type(3), x))


# ---- copies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_copies(kernels, name, to):
    rng = np.random.default_rng(9)
    x = values(rng, name, 517)
    if to in INTEGRAL and name not in ("b", *INTEGRAL):
        numbers = rng.uniform(-120, 120, 517) + (1j if name in COMPLEX else 0)
        x = narrow(np.abs(numbers) if to == "u8" else numbers, name)
    plain = name == to and name != "b"
    kernel = f"copy_{x.itemsize}" if plain else f"copy_{CLASSES[name]}_{CLASSES[to]}"
    vector_size = min(VECTOR_SIZES[CLASSES[name]], VECTOR_SIZES[CLASSES[to]])
    vector_size = {1: 4, 2: 4, 4: 4, 8: 2, 16: 1}[x.itemsize] if plain else vector_size
    for misaligned in (0, 1):
        out = placed(np.zeros(517, STORED[to]), misaligned)
        launch(kernels("copy"), kernel, out, [placed(x)], (name, to), vector_size)
        number = widen(x, name)
        if to == "b":
            wanted = number != 0
        else:
            if name in COMPLEX and to not in COMPLEX:
                number = number.real
            if to in ("f16", "bf16"):
                number = number.astype("f4")
            with np.errstate(all="ignore"):
                wanted = widen(narrow(number, to), to)
        np.testing.assert_array_equal(widen(out, to), wanted)


def test_casts_of_what_does_not_fit(kernels):
    x = np.array([300, -1, 3e9, -3e9, 1e30, -math.inf, math.nan, 2.0**31, -(2.0**31) - 0.5])
    least = np.iinfo("i4").min
    wanted = {
        "u8": [44, 255, 3000000000 % 256, -3000000000 % 256, 0, 0, 0, 0, 0],
        "i8": [44, -1, 0, 0, 0, 0, 0, 0, 0],
        "i32": [300, -1, least, least, least, least, least, least, least],
        "b": [True] * 9,
    }
    for to, numbers in wanted.items():
        out = np.zeros(9, STORED[to])
        launch(kernels("copy"), "copy_double_int", out, [x], ("f64", to), 2)
        assert out.tolist() == numbers
    out = np.zeros(9, np.int64)
    launch(kernels("copy"), "copy_double_long", out, [x], ("f64", "i64"), 2)
    least = np.iinfo("i8").min
    assert out.tolist() == [300, -1, 3000000000, -3000000000, least, least, least, 2**31, -(2**31)]


# ---- complex numbers at infinities, NaN and zeros ------------------------------------------------

ENDS = (0.0, -0.0, 1.0, -1.0, 0.5, math.inf, -math.inf, math.nan)


@pytest.mark.parametrize(
    "primitive", "acos acosh asin asinh atan atanh cos cosh exp log sin sinh sqrt tan tanh".split()
)
def test_complex_ends(kernels, primitive):
    points = [complex(x, y) for x, y in itertools.product(ENDS, ENDS)]
    found = run(kernels, "complex_functions", primitive, "c128", [placed(np.array(points))])
    for z, w in zip(points, found.tolist(), strict=True):
        if cmath.isnan(z) and 0 in (z.real, z.imag):
            continue  # versions of the C standard differ
        try:
            wanted = getattr(cmath, primitive)(z)
        except (ValueError, OverflowError):
            continue  # a pole, of which cmath only says that it is one
        for a, b in ((w.real, wanted.real), (w.imag, wanted.imag)):
            both = f"{primitive}({z!r}) is {wanted!r}, not {w!r}"
            assert math.isnan(a) == math.isnan(b), both
            if not math.isnan(b):
                assert abs(a) == pytest.approx(abs(b), rel=1e-14, abs=1e-300), both
            if math.isfinite(z.real) and math.isfinite(z.imag):
                assert math.copysign(1, a) == math.copysign(1, b), both  # the side of the cut


@pytest.mark.parametrize("primitive", FUNCTIONS)
def test_complex_sizes(kernels, primitive):
    # From tiny to huge numbers, and next to the points where functions branch.
    rng = np.random.default_rng(10)
    n = 2000
    if primitive in (
        "cos",
        "cosh",
        "exp",
        "exp2",
        "expm1",
        "sigmoid",
        "sin",
        "sinh",
        "tan",
        "tanh",
    ):
        exponents = rng.uniform(-40, 2, (2, n))
    else:
        exponents = rng.uniform(-300, 300, (2, n))
    parts = rng.choice([-1, 1], (2, n)) * 10.0**exponents
    near = rng.choice([-1, 0, 1], (2, n)) + rng.choice([-1, 1], (2, n)) * 10.0 ** rng.uniform(
        -18, 0, (2, n)
    )
    z = np.concatenate([parts[0] + 1j * parts[1], near[0] + 1j * near[1]])
    found = run(kernels, "complex_functions", primitive, "c128", [placed(z)])
    mpmath = pytest.importorskip("mpmath")
    mpmath.mp.dps = 640  # more than the parts' exponents differ
    functions = {
        "rsqrt": lambda z: 1 / mpmath.sqrt(z),
        "exp2": lambda z: mpmath.power(2, z),
        "sigmoid": lambda z: 1 / (1 + mpmath.exp(-z)),
        "log2": lambda z: mpmath.log(z) / mpmath.log(2),
        "log10": mpmath.log10,
    }
    function = functions.get(primitive) or getattr(mpmath, primitive)
    wanted = np.array([complex(function(mpmath.mpc(x))) for x in z[::40].tolist()])
    error = np.abs(found[::40] - wanted) / np.abs(wanted)
    worst = np.argmax(error)
    assert error[worst] < 1e-14, (z[::40][worst], found[::40][worst], wanted[worst])


def test_arguments_are_as_long_as_in_c(kernels):
    from elementwise_launch import Arguments

    sizes = {record.argument_size for record in kernels("unary").records.values()}
    assert sizes == {ctypes.sizeof(Arguments)}
