"""Every function of the array API namespace gives what array-api-strict gives, on drawn arguments.

Where the package lacks an unsigned dtype of the standard, sums of unsigned integers are signed.
"""

import inspect
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import pullback
import pullback.array_api as xp

strict = pytest.importorskip("array_api_strict")

EXAMPLES = 20
DTYPES = [name for name in xp.__all__ if isinstance(getattr(xp, name), pullback.dtype)]
KINDS = {
    "b": ["bool"],
    # The standard has no dtype for uint64 and a signed one together.
    "i": [name for name in DTYPES if "int" in name and name != "uint64"],
    "f": ["float32", "float64"],
    "c": ["complex64", "complex128"],
}
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
FULL = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=3)
# Either zero may be the result: of equal operands, and of sorts.
EITHER_ZERO = ("maximum", "minimum", "max", "min", "clip", "sort", "searchsorted", "cumulative_sum")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.5, 3.0, np.inf, -np.inf, np.nan]


def elements(dtype, low=-3, high=3, special=True):
    """Return a strategy of a dtype's elements: small numbers and, of floats, special values."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return st.booleans()
    if kind in "iu":
        return st.integers(max(low, 0) if kind == "u" else low, high)
    real = st.floats(low, high, width=16)
    if kind == "f":
        return st.sampled_from(SPECIAL) | real if special else real
    # No zeros: which side of a branch cut a signed zero is on, and infinite logarithms, have tests
    # of their own.
    some = real.map(lambda number: number or 0.5)
    return st.builds(complex, some, some)


@st.composite
def dtypes(draw, kinds):
    return draw(st.sampled_from([name for kind in kinds for name in KINDS[kind]]))


@st.composite
def arrays(draw, kinds, shapes=SHAPES, dtype=None, **limits):
    name = dtype or draw(dtypes(kinds))
    shape = draw(shapes) if hasattr(shapes, "example") else shapes
    return draw(hnp.arrays(name, shape, elements=elements(name, **limits), fill=st.nothing()))


@st.composite
def pairs(draw, kinds, **limits):
    """Draw two arrays whose shapes broadcast, of dtypes of one kind, or an array and a number."""
    kind = draw(st.sampled_from(kinds))
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3))
    first, second = (draw(arrays(kind, shape, **limits)) for shape in shapes.input_shapes)
    choice = draw(st.integers(0, 5))
    if choice > 1:
        return first, second
    number = draw(
        elements("bool" if kind == "b" else "uint8" if kind == "i" else "float64", **limits)
    )
    return (first, number) if choice else (number, second)


def convert(value, module):
    """Return NumPy arrays, also in tuples, as arrays of a namespace, and dtypes by name as its."""
    if isinstance(value, np.ndarray):
        return module.asarray(value.copy())
    if isinstance(value, np.dtype):
        return getattr(module, value.name)
    if isinstance(value, (tuple, list)):
        return type(value)(convert(one, module) for one in value)
    if isinstance(value, dict):
        return {name: convert(one, module) for name, one in value.items()}
    return value


def outcome(name, module, args, kwargs):
    function = module
    for part in name.split("."):
        function = getattr(function, part)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return function(*convert(args, module), **convert(kwargs, module))


def assert_same(found, expected, scale, signs=True):
    """Compare shapes, dtypes and values, in tuples too; relative to ``scale`` roundings."""
    if isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_same(one, other, scale, signs)
        return
    array = np.asarray(expected)
    name = array.dtype.name
    assert tuple(found.shape) == array.shape
    assert found.dtype.name == (name if name in DTYPES else name.removeprefix("u"))
    result = found.numpy()
    if array.dtype.kind not in "fc":
        np.testing.assert_array_equal(result, array)
        return
    tolerance = scale * np.finfo(array.dtype).eps
    np.testing.assert_allclose(result, array, rtol=tolerance, atol=tolerance)
    if array.dtype.kind == "f" and signs:
        zeros = (array == 0) & (result == 0)
        np.testing.assert_array_equal(np.signbit(result[zeros]), np.signbit(array[zeros]))


def agrees(name, *args, scale=8, **kwargs):
    try:
        expected = outcome(name, strict, args, kwargs)
    except (ValueError, TypeError, IndexError):
        return  # not of the standard's domain
    assert_same(outcome(name, xp, args, kwargs), expected, scale, name not in EITHER_ZERO)


def check(name, strategy):
    """Return a test that draws the arguments of a function: positional ones, and keywords."""

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(drawn):
        args, kwargs = drawn if isinstance(drawn, list) else (drawn, {})
        agrees(name, *args, **kwargs)

    run()


UNARY = {
    **dict.fromkeys("abs negative positive square".split(), "ifc"),
    **dict.fromkeys("ceil floor trunc".split(), "if"),
    **dict.fromkeys("round sign".split(), "ifc"),
    **dict.fromkeys("isfinite isinf isnan".split(), "ifc"),
    **dict.fromkeys(
        "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal sin "
        "sinh sqrt tan tanh".split(),
        "fc",
    ),
    **dict.fromkeys("imag".split(), "c"),
    **dict.fromkeys("conj real".split(), "c"),
    "signbit": "f",
    "bitwise_invert": "bi",
    "logical_not": "b",
}
BINARY = {
    **dict.fromkeys("add multiply subtract equal not_equal".split(), "ifc"),
    **dict.fromkeys("atan2 copysign hypot logaddexp nextafter".split(), "f"),
    **dict.fromkeys("bitwise_and bitwise_or bitwise_xor".split(), "bi"),
    **dict.fromkeys("greater greater_equal less less_equal maximum minimum".split(), "if"),
    **dict.fromkeys("logical_and logical_or logical_xor".split(), "b"),
    "divide": "fc",
    "remainder": "f",
}


@pytest.mark.parametrize("name", UNARY)
def test_unary_function_as_strict(name):
    limits = {"special": False} if name in ("log10", "log2", "log1p", "expm1") else {}
    check(name, st.tuples(arrays(UNARY[name], **limits)))


@pytest.mark.parametrize("name", BINARY)
def test_binary_function_as_strict(name):
    check(name, pairs(BINARY[name]))


@pytest.mark.parametrize(
    "name, kinds, low",
    [
        ("bitwise_left_shift", "i", 0),
        ("bitwise_right_shift", "i", 0),
        ("floor_divide", "i", 1),
        ("remainder", "i", 1),
        ("pow", "i", 0),
        ("floor_divide", "f", -3),
        ("pow", "fc", 1),
    ],
)
def test_binary_function_of_numbers_that_it_takes(name, kinds, low):
    check(name, pairs(kinds, low=low, special=False))


@st.composite
def over_axes(draw, kinds, several=True, dtype=False, shapes=SHAPES, **limits):
    array = draw(arrays(kinds, shapes, **limits))
    options = [st.none()]
    if array.ndim:
        axis = st.integers(-array.ndim, array.ndim - 1)
        options += [axis, axis]
        if several:
            options.append(
                st.lists(axis, max_size=2, unique_by=lambda a: a % array.ndim).map(tuple)
            )
    keywords = {"axis": draw(st.one_of(options))}
    if draw(st.booleans()):
        keywords["keepdims"] = draw(st.booleans())
    if dtype and draw(st.booleans()):
        wide = {"b": "int64", "u": "int64", "i": "int64", "f": "float64", "c": "complex128"}
        keywords["dtype"] = np.dtype(wide[array.dtype.kind])
    return [(array,), keywords]


@pytest.mark.parametrize(
    "name, strategy",
    [
        ("all", over_axes("bifc")),
        ("any", over_axes("bifc")),
        ("argmax", over_axes("if", several=False, shapes=FULL)),
        ("argmin", over_axes("if", several=False, shapes=FULL)),
        ("count_nonzero", over_axes("bifc")),
        ("max", over_axes("if", shapes=FULL)),
        ("min", over_axes("if", shapes=FULL)),
        ("mean", over_axes("f", shapes=FULL)),
        ("prod", over_axes("ifc", dtype=True)),
        ("sum", over_axes("ifc", dtype=True)),
        ("linalg.vector_norm", over_axes("f", special=False)),
    ],
)
def test_reduction_as_strict(name, strategy):
    check(name, strategy)


@st.composite
def with_keywords(draw, array, **keywords):
    """Draw an array and keywords, from strategies or functions that make them of the array."""
    args = draw(array)
    args = args if isinstance(args, tuple) else (args,)
    found = {}
    for key, value in keywords.items():
        value = value(args[0]) if callable(value) else value
        found[key] = draw(value) if hasattr(value, "example") else value
    return [args, found]


def any_axis(array):
    return st.integers(-array.ndim, array.ndim - 1)


def axis_or_none(array):
    return st.none() | any_axis(array)


def of_size(name):
    return FULL.map(lambda shape: (np.arange(np.prod(shape), dtype=name).reshape(shape),))


ROWS = arrays("if", FULL)
NUMBERS = arrays("ifc", FULL)
MATRICES = arrays("f", hnp.array_shapes(min_dims=2, max_dims=3, min_side=1), special=False)


CORRECTIONS = st.sampled_from([0.0, 0.5])
COPIES = st.sampled_from([None, True])


@st.composite
def several(draw, kinds="if", count=3, same=True):
    kind = draw(st.sampled_from(kinds))
    shape = draw(FULL)
    return [draw(arrays(kind, shape)) for _ in range(draw(st.integers(1, count)))]


@st.composite
def joins(draw, none):
    parts = draw(several())
    axis = any_axis(parts[0])
    return [(parts,), {"axis": draw(st.none() | axis if none else axis)}]


@st.composite
def indexed(draw, along):
    array = draw(NUMBERS)
    axis = draw(any_axis(array))
    length = array.shape[axis]
    shape = list(array.shape) if along else [draw(st.integers(1, 3))]
    if along:
        shape[axis] = draw(st.integers(1, 3))
    name = draw(st.sampled_from(["int32", "int64", "int8"]))
    indices = draw(hnp.arrays(name, tuple(shape), elements=st.integers(-length, length - 1)))
    return [(array, indices), {"axis": axis}]


@st.composite
def sorted_and_values(draw):
    name, other = draw(dtypes("f")), draw(dtypes("f"))
    row = np.sort(draw(arrays("f", hnp.array_shapes(max_dims=1), dtype=name, special=False)))
    values = draw(arrays("f", SHAPES, dtype=other, special=False))
    keywords = {"side": draw(st.sampled_from(["left", "right"]))}
    if draw(st.booleans()):
        order = np.arange(len(row))[::-1].astype(draw(st.sampled_from(["int32", "int64"])))
        row, keywords["sorter"] = row[::-1].copy(), order
    return [(row, values), keywords]


@st.composite
def bounded(draw):
    kind = draw(st.sampled_from("if"))
    array = draw(arrays(kind, FULL))
    bound = st.none() | elements("uint8" if kind == "i" else "float64", special=False)
    bound |= arrays(kind, array.shape, dtype=array.dtype.name, special=False)
    return array, draw(bound), draw(bound)


@st.composite
def chosen(draw):
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, max_side=3))
    kind = draw(st.sampled_from("bifc"))
    first, second, third = shapes.input_shapes
    one, other = draw(arrays(kind, second)), draw(arrays(kind, third))
    if draw(st.booleans()):
        other = draw(elements(one.dtype))
    return draw(arrays("b", first)), one, other


@st.composite
def products(draw, kinds="ifc", vectors=True):
    rows, inner, columns = (draw(st.integers(1, 3)) for _ in range(3))
    shapes = [(rows, inner), (inner, columns)]
    if vectors and draw(st.booleans()):
        shapes[draw(st.integers(0, 1))] = (inner,)
    elif draw(st.booleans()):
        shapes[0] = (2, *shapes[0])
    kind = draw(st.sampled_from(kinds))
    return tuple(draw(arrays(kind, shape, special=False)) for shape in shapes)


@st.composite
def same_vectors(draw, kinds="ifc", size=None, dims=2):
    kind = draw(st.sampled_from(kinds))
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=dims, max_side=3))
    shape = (*shape[:-1], size or shape[-1])
    one, other = (draw(arrays(kind, shape, special=False)) for _ in range(2))
    return [(one, other), {"axis": -1}]


@pytest.mark.parametrize(
    "name, strategy",
    [
        ("argsort", with_keywords(ROWS, axis=any_axis, stable=True, descending=False)),
        ("sort", with_keywords(ROWS, axis=any_axis, descending=st.booleans())),
        ("searchsorted", sorted_and_values()),
        ("nonzero", st.tuples(NUMBERS)),
        ("where", chosen()),
        ("take", indexed(along=False)),
        ("take_along_axis", indexed(along=True)),
        ("clip", bounded()),
        (
            "cumulative_sum",
            with_keywords(NUMBERS, axis=any_axis, include_initial=st.booleans()),
        ),
        (
            "cumulative_prod",
            with_keywords(NUMBERS, axis=any_axis, include_initial=st.booleans()),
        ),
        ("diff", with_keywords(NUMBERS, axis=any_axis, n=st.integers(0, 2))),
        ("std", with_keywords(arrays("f", FULL), axis=axis_or_none, correction=CORRECTIONS)),
        ("var", with_keywords(arrays("f", FULL), axis=axis_or_none, keepdims=st.booleans())),
        ("broadcast_arrays", pairs("if").filter(lambda pair: all(map(np.ndim, pair)))),
        ("concat", joins(none=True)),
        ("stack", joins(none=False)),
        ("expand_dims", with_keywords(NUMBERS, axis=any_axis)),
        ("flip", with_keywords(NUMBERS, axis=axis_or_none)),
        ("permute_dims", NUMBERS.map(lambda x: (x, tuple(range(x.ndim))[::-1]))),
        ("moveaxis", NUMBERS.map(lambda x: (x, 0, -1))),
        ("repeat", with_keywords(st.tuples(NUMBERS, st.integers(0, 3)), axis=axis_or_none)),
        ("reshape", with_keywords(NUMBERS.map(lambda x: (x, (-1,))), copy=COPIES)),
        ("roll", with_keywords(st.tuples(NUMBERS, st.integers(-4, 4)), axis=axis_or_none)),
        ("squeeze", NUMBERS.map(lambda x: (x[:1], 0))),
        ("tile", NUMBERS.map(lambda x: (x, (2, 1, 2)))),
        ("unstack", with_keywords(NUMBERS, axis=any_axis)),
        ("matrix_transpose", st.tuples(MATRICES)),
        ("matmul", products()),
        ("tensordot", with_keywords(products(vectors=False), axes=1)),
        ("vecdot", same_vectors()),
        ("tril", with_keywords(MATRICES, k=st.integers(-3, 3))),
        ("triu", with_keywords(MATRICES, k=st.integers(-3, 3))),
        ("linalg.cross", same_vectors(size=3)),
        ("linalg.diagonal", with_keywords(MATRICES, offset=st.integers(-2, 2))),
        ("linalg.trace", with_keywords(MATRICES, offset=st.integers(-1, 1))),
        ("linalg.matrix_norm", with_keywords(MATRICES, keepdims=st.booleans())),
        ("empty_like", st.just(())),
        ("zeros_like", st.tuples(NUMBERS)),
        ("ones_like", with_keywords(NUMBERS, dtype=np.dtype("int8"))),
        ("full_like", st.tuples(NUMBERS, st.integers(0, 3))),
        ("meshgrid", with_keywords(
            st.tuples(*[arrays("f", hnp.array_shapes(max_dims=1), dtype="float32")] * 3),
            indexing=st.sampled_from(["xy", "ij"]))),
    ],
)  # fmt: skip
def test_function_as_strict(name, strategy):
    check(name, strategy)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("name", ["all", "counts", "inverse", "values"])
def test_unique_as_strict(name, copies):
    """The order of values is not the standard's: they are compared in ascending order."""
    row = np.array([3.0, 1.0, np.nan, 3.0, -0.0, 0.0, np.nan], "float32")
    array = np.stack([row] * copies)
    found = getattr(xp, f"unique_{name}")(xp.asarray(array))
    expected = getattr(strict, f"unique_{name}")(strict.asarray(array))
    if name == "values":
        assert_same(found, expected, 1, signs=False)
        return
    assert type(found).__name__ == type(expected).__name__
    assert found._fields == expected._fields
    for field in found._fields:
        if field == "inverse_indices":  # which of the NaNs is meant does not matter
            back = found.values[found.inverse_indices].numpy()
            np.testing.assert_array_equal(back[array == array], array[array == array])
            np.testing.assert_array_equal(
                np.unique(found.inverse_indices), range(len(found.values))
            )
            continue
        assert_same(getattr(found, field), getattr(expected, field), 1, signs=False)


@pytest.mark.parametrize("start, stop, step", [(5, None, 1), (2, 9, 3), (5, 1, -2), (1, 5, -1)])
@pytest.mark.parametrize("scale", [1, 0.5])
def test_arange_and_linspace_as_strict(start, stop, step, scale):
    stop_scaled = stop if stop is None else stop * scale
    agrees("arange", start * scale, stop_scaled, step * scale, dtype=np.dtype("float64"))
    for endpoint in (True, False):
        agrees("linspace", float(start), 2.0, 7, dtype=np.dtype("float64"), endpoint=endpoint)
        agrees("linspace", 0.0, 1.0, 0, dtype=np.dtype("float32"), endpoint=endpoint)


@pytest.mark.parametrize("first", DTYPES)
def test_promotion_and_casts_as_strict(first):
    for second in DTYPES:
        a, b = getattr(strict, first), getattr(strict, second)
        ours = getattr(xp, first), getattr(xp, second)
        try:
            expected = strict.result_type(a, b)
        except TypeError:
            pass
        else:
            assert xp.result_type(*ours).name == expected._np_dtype.name
        assert xp.can_cast(*ours) == strict.can_cast(a, b)
        assert xp.isdtype(*ours) == strict.isdtype(a, b)
    for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating"):
        assert xp.isdtype(getattr(xp, first), kind) == strict.isdtype(getattr(strict, first), kind)


def signature_of(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


# Strict has its own objects as defaults, or those of a later version of the standard.
LENIENT = ("diff", "where")  # they also take calls that scikit-learn makes
OTHER_DEFAULTS = ("expand_dims", "from_dlpack", "astype")


@pytest.mark.parametrize("module", ["", "linalg", "fft"])
def test_signatures_as_strict(module):
    """Ops have no signature for Python: their arguments are the standard's in number and order."""
    if not hasattr(xp, module or "linalg"):
        pytest.skip(f"pullback has no {module}")
    ours, theirs = (getattr(m, module) if module else m for m in (xp, strict))
    compared = 0
    for name in ours.__all__:
        function = getattr(ours, name)
        if (
            not callable(function)
            or not hasattr(theirs, name)
            or isinstance(function, pullback.dtype)
        ):
            continue
        if isinstance(function, type(pullback.sin)):
            positional = [
                p for p in inspect.signature(getattr(theirs, name)).parameters.values()
                if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
            ]  # fmt: skip
            assert len(positional) <= len(function.arg_names)
        elif name not in LENIENT:
            expected = signature_of(getattr(theirs, name))
            found = signature_of(function)
            names = [
                [p[0] for p in of if p[1] is not p[1].POSITIONAL_ONLY] for of in (found, expected)
            ]
            assert names[0] == names[1], name
            assert [p[1] for p in found] == [p[1] for p in expected], name
            if name not in OTHER_DEFAULTS:
                assert [p[2] for p in found] == [p[2] for p in expected], name
        compared += 1
    assert compared >= {"": 120, "linalg": 15, "fft": 14}[module]


RANDOM = np.random.default_rng(0)
SQUARE = RANDOM.standard_normal((2, 3, 3))
POSITIVE = SQUARE @ SQUARE.transpose(0, 2, 1) + np.eye(3)
WAVE = RANDOM.standard_normal((2, 6)) + 1j * RANDOM.standard_normal((2, 6))
EXTENSIONS = [
    *((f"linalg.{name}", (POSITIVE,), {}) for name in ("cholesky", "det", "inv", "slogdet")),
    *((f"linalg.{name}", (POSITIVE,), {}) for name in ("eigvalsh", "svdvals", "matrix_rank")),
    *((f"linalg.{name}", (POSITIVE,), {}) for name in ("eigh", "pinv", "qr", "svd")),
    ("linalg.cholesky", (POSITIVE,), {"upper": True}),
    ("linalg.qr", (SQUARE[:, :, :2],), {"mode": "complete"}),
    ("linalg.pinv", (POSITIVE,), {"rtol": 0.1}),
    ("linalg.solve", (POSITIVE, SQUARE), {}),
    ("linalg.solve", (POSITIVE, np.ones(3)), {}),
    ("linalg.solve", (POSITIVE[0], SQUARE), {}),
    ("linalg.matrix_power", (POSITIVE, -2), {}),
    *((f"fft.{name}", (WAVE,), keywords) for name in ("fft", "ifft", "irfft", "hfft")
      for keywords in ({}, {"n": 5}, {"axis": 0, "norm": "ortho", "n": 4})),
    *((f"fft.{name}", (WAVE.real,), keywords) for name in ("rfft", "ihfft")
      for keywords in ({}, {"n": 5}, {"norm": "forward"})),
    *((f"fft.{name}", (WAVE,), {"axes": (0,), "s": (3,)}) for name in ("fftn", "ifftn", "irfftn")),
    *((f"fft.{name}", (WAVE.real,), {}) for name in ("rfftn", "fftshift", "ifftshift")),
    *((f"fft.{name}", (5,), {"dtype": np.dtype("float32")}) for name in ("fftfreq", "rfftfreq")),
]  # fmt: skip


@pytest.mark.parametrize("name, args, kwargs", EXTENSIONS)
def test_extension_as_strict(name, args, kwargs):
    module, _, function = name.partition(".")
    if not hasattr(getattr(xp, module, None), function):
        pytest.skip(f"pullback has no {name}")
    found, expected = outcome(name, xp, args, kwargs), outcome(name, strict, args, kwargs)
    if name in ("linalg.eigh", "linalg.qr", "linalg.svd"):  # vectors have either sign
        assert found._fields == expected._fields
        found = [abs(part) for part in found]
        expected = [np.abs(np.asarray(part)) for part in expected]
    assert_same(found, expected, 1e4, signs=False)
