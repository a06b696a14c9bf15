"""The array API namespace and the operators of tensors do what the standard's own text says.

array_api_text reads the text from the package array-api: names, signatures, special cases, dtypes.
PULLBACK_TEST_NAMESPACE=array_api_strict runs the same tests on another namespace.
"""

import functools
import inspect
import itertools
import math
import operator
import os
import re
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

import numpy as np
import pytest
from standard import array_api_text

pytest.importorskip("array_api")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*degrees of freedom"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of NumPy, for array_api_strict
]

NAMESPACE = os.environ.get("PULLBACK_TEST_NAMESPACE", "pullback.array_api")
xp = import_module(NAMESPACE)
STANDARD = array_api_text.read_standard()
MAIN, ARRAY, LINALG = (STANDARD[name] for name in ("ArrayNamespace", "Array", "LinalgNamespace"))
OWNERS = {
    "main": (xp, MAIN),
    "linalg": (xp.linalg, LINALG),
    "fft": (xp.fft, STANDARD["FftNamespace"]),
    "info": (xp.__array_namespace_info__(), STANDARD["Info"]),
    "array": (xp.ones((2, 3)), ARRAY),
}
OPERATORS = [name for name in ARRAY if hasattr(operator, f"__i{name[2:]}")]

# Patterns of ids, and why they fail. The text contradicts itself or C, whose functions it follows:
MISTAKES = {
    r"special-(not_equal|__ne__)-float\d+-In the remaining cases": "1 != infinity is true",
    r"special-sqrt-\w+-If a -infinity and b is a positive.*": "C gives +0 + infinity j",
    r"special-sqrt-\w+-If a is \+infinity and b is a positive.*": "C gives +infinity + 0j",
    r"special-sqrt-\w+-If a is NaN and b is any value": "not conj(sqrt(NaN + infinity j))",
    r"special-tanh-\w+-If a is \+infinity and b is a positive.*": "C has the sign of sin(2b)",
}
# Operators of tensors are torch's: docs/reference/array-api.md.
BINARY = "add|and|floordiv|[lr]shift|mod|mul|or|pow|sub|truediv|xor"
DEVIATIONS = {
    "names-array-size": "x.size() is a method",
    r"special-__[ir]?mod__-\w+-If x1_i is (-0 and x2_i is gr|\+0 and x2_i is l).*": "sign of x1",
    r"special-__[ir]?mod__-\w+-In the remaining cases": "zeros have the sign of x1",
    rf"dtypes-__r?({BINARY})__-(0-d, 1-d|1-d, 0-d)": "the dtype of the other operand",
    r"special-(__i?pow__|pow)-float\d+-If x1_i is (-infinity|-0), .* not an odd integer value": (
        "the power 0.5, a number, is a square root"
    ),
    r"special-__rtruediv__-float\d+-In the remaining cases": "the reciprocal times the number",
    r"special-__complex__-float\d+-If self is NaN": "complex(nan), as Python and NumPy",
}
if NAMESPACE != "pullback.array_api":
    DEVIATIONS = {}
EXPECTED = {**MISTAKES, **DEVIATIONS}
MET = set()  # patterns that ids match


def parametrize(names, rows):
    """Return pytest's decorator for rows of an id and arguments; those EXPECTED to fail must."""
    found = []
    for name, *arguments in rows:
        patterns = [pattern for pattern in EXPECTED if re.fullmatch(pattern, name)]
        MET.update(patterns)
        marks = [pytest.mark.xfail(reason=EXPECTED[one], strict=True) for one in patterns]
        found.append(pytest.param(*arguments, id=name, marks=marks))
    return pytest.mark.parametrize(names, found)


def check(wrong, count, text=""):
    """Fail with the first of the operands that are wrong; ``count``: of how many."""
    assert count
    assert not wrong, "\n".join([text, f"{len(wrong)} of {count}:", *wrong[:20]])


# ---- names and signatures ------------------------------------------------------------------------

ENTRIES = [
    (f"{key}-{name}", owner, name, entry.signature)
    for key, (owner, entries) in OWNERS.items()
    for name, entry in entries.items()
]
for one in OPERATORS:
    for kind in "r" if one == "__matmul__" else "ir":  # "may be implemented via __imatmul__"
        name = f"__{kind}{one[2:]}"
        ENTRIES.append((f"array-{name}", OWNERS["array"][0], name, ARRAY[one].signature))


@parametrize("owner, name, signature", [("names-" + row[0], *row[1:]) for row in ENTRIES])
def test_name_is_there(owner, name, signature):
    found = getattr(owner, name)
    assert owner is xp or callable(found) == (signature is not None)


@parametrize(
    "owner, name, expected",
    [("signatures-" + row[0], *row[1:]) for row in ENTRIES if row[3] is not None],
)
def test_signature_takes_the_calls_of_the_standard(owner, name, expected):
    """Others may have other names where the standard has none, and more optional arguments."""
    ours = list(inspect.signature(getattr(owner, name)).parameters.values())
    by_name = {one.name: one for one in ours}
    by_place = [one for one in ours if one.kind <= one.POSITIONAL_OR_KEYWORD]
    by_place += [one for one in ours if one.kind is one.VAR_POSITIONAL] * len(expected.parameters)
    matched = []
    for place, one in enumerate(expected.parameters.values()):
        named = one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)
        found = by_name[one.name] if named else by_place[place]
        matched.append(found)
        assert not named or found.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)
        assert one.kind is one.KEYWORD_ONLY or found is by_place[place]
        assert one.kind is not one.VAR_POSITIONAL or found.kind is one.kind
        assert one.default in (one.empty, found.default)
    for one in ours:
        assert one in matched or one.default is not one.empty or one.kind is one.VAR_KEYWORD


# ---- calls ---------------------------------------------------------------------------------------


class Call(NamedTuple):
    """A function or operator by element; ``source``: the function whose special cases it has.

    ``types``: for each operand, the standard's annotation.
    """

    function: Callable
    entry: array_api_text.Entry
    source: str
    types: list[str]


def reflected(name):
    """Return a function of (x1, x2) that calls the reflected operator of x2."""
    forward, method = getattr(operator, name), f"__r{name[2:]}"
    return lambda x1, x2: getattr(x2, method)(x1) if hasattr(x1, "dtype") else forward(x1, x2)


def calls_by_name():
    found, names = {}, list(MAIN)
    for name in names[names.index("abs") : names.index("trunc") + 1]:
        types = [one.annotation for one in MAIN[name].signature.parameters.values()]
        found[name] = Call(getattr(xp, name), MAIN[name], name, types)
    for name, entry in ARRAY.items():
        source = re.search(r"element-wise function :func:`~array_api\.(\w+)`", entry.text)
        if source:
            types = ["", *(one.annotation for one in entry.signature.parameters.values())]
            found[name] = Call(getattr(operator, name), entry, source[1], types)
        if source and name in OPERATORS:
            inplace = f"__i{name[2:]}"
            found[inplace] = found[name]._replace(function=getattr(operator, inplace))
            found[f"__r{name[2:]}"] = Call(reflected(name), entry, source[1], types[::-1])
    return found


CALLS = calls_by_name()
CONVERSIONS = {"__bool__": bool, "__complex__": complex, "__float__": float, "__int__": int}
DTYPES = {
    "b": ["bool"],
    "i": ["int8", "int16", "int32", "int64"],
    "u": ["uint8", "uint16", "uint32", "uint64"],
    "f": ["float32", "float64"],
    "c": ["complex64", "complex128"],
}
TYPES = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}  # Python's
FEW = (0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan)
MANY = (*FEW, 1.0, -1.0, 0.5, -0.5, 2.5, 3.0, -3.0, 4.0, -4.0, 5.0, -5.0, -math.nan)


def array(values):
    """Return a new array of the namespace."""
    return xp.asarray(np.array(values))


def plain(found):
    """Return an array of the namespace as NumPy's; anything else as it is."""
    return np.from_dlpack(found) if hasattr(found, "__dlpack__") else found


def on_numpy(function):
    """Return a function of the namespace for NumPy's arrays and for numbers."""
    return lambda *given: plain(
        function(*(array(one) if isinstance(one, np.ndarray) else one for one in given))
    )


@functools.cache
def parts_of_operands(dtype, count):
    """Return rows of all combinations of special values, of complex operands of their parts."""
    kind = np.dtype(dtype).kind
    if kind in "bi":
        return np.array([*itertools.product((0, 1, -1, 5), repeat=count)]).astype(dtype)
    limits, parts = np.finfo(dtype), count * (1 + (kind == "c"))
    many = (*MANY, limits.max, limits.min, limits.tiny, -limits.tiny)
    rows = itertools.product(many if parts < 3 else FEW, repeat=parts)
    if count == 3:  # clip, where "min > max" is not specified
        rows = (row for row in rows if not row[1] > row[2])
    return np.array(list(rows), limits.dtype)


def operands(dtype, count):
    """Return an array for each operand."""
    return np.ascontiguousarray(parts_of_operands(dtype, count).view(dtype).T)


def outcome(function, *given):
    """Return a number, or the error that converting to it raises."""
    try:
        found = plain(function(*given))
    except (OverflowError, ValueError) as error:
        return error
    return found[()] if isinstance(found, np.ndarray) else found


@functools.cache
def results(name, dtype):
    """Return, for each way to call a function, its results of all operands."""
    if name in CONVERSIONS:
        return {"0-d": [outcome(CONVERSIONS[name], array(x)) for x in operands(dtype, 1)[0]]}
    call = CALLS[name]
    given = operands(dtype, len(call.types))
    found = {
        "arrays": on_numpy(call.function)(*given),
        "0-d": [outcome(call.function, *map(array, row)) for row in zip(*given)],
    }
    for place, types in enumerate(call.types):
        if len(given) != 2 or not re.search(rf"\b{TYPES[np.dtype(dtype).kind]}\b", types):
            continue
        found[f"x{place + 1} a number"] = out = [None] * len(given[0])
        rows_of = {}
        for row, one in enumerate(given[place]):
            rows_of.setdefault(one.tobytes(), []).append(row)
        for rows in rows_of.values():
            arguments = [column[rows] for column in given]
            arguments[place] = given[place][rows[0]].item()
            for row, value in zip(rows, on_numpy(call.function)(*arguments)):
                out[row] = value
    return found


# ---- special cases -------------------------------------------------------------------------------


@functools.cache
def compiled(expression):
    return compile(expression, expression, "eval")


def is_true(expression, environment):
    with np.errstate(all="ignore"):
        return bool(eval(compiled(expression), array_api_text.FUNCTIONS, environment))


@functools.cache
def rows_for_which(applies, dtype, count, subtracted):
    """Return places of operands, and what the standard's sentences call them.

    ``subtracted``: the second one is negative there.
    """
    names = (
        "abcd" if dtype[0] == "c" else ["", "x_i", "x1_i x2_i", "x_i min_i max_i"][count].split()
    )
    found = []
    for place, row in enumerate(parts_of_operands(dtype, count)):
        half = len(row) // 2
        row = [*row[:half], *(-row[half:] if subtracted else row[half:])]
        environment = dict(zip(names, row))
        if count == 1:
            environment["self"] = row[0]
        environment["eps"] = np.finfo(dtype).eps if dtype[0] in "fc" else 0
        if is_true(applies, environment):
            found.append((place, environment))
    return found


def sentences(name, entry, kinds="bifc"):
    """Return rows of an id, a name, a dtype and a case of an entry."""
    dtypes = {**DTYPES, "i": ["int32"]}
    for case in array_api_text.cases(entry):
        text = re.sub(r" \(.*?\)|`", "", re.split(", (?:the|raise|where|when) ", case.text)[0])
        for dtype in itertools.chain(*(dtypes[kind] for kind in case.kinds if kind in kinds)):
            yield f"special-{name}-{dtype}-{text}", name, dtype, case


def special_cases():
    assert "must be the same as ``x1_i + (-x2_i)``" in MAIN["subtract"].text
    for name, call in CALLS.items():
        source = "add" if call.source == "subtract" else call.source
        yield from sentences(name, MAIN[source], "fc" if len(call.types) > 1 else "ifc")
    for name in CONVERSIONS:
        yield from sentences(name, ARRAY[name])


@parametrize("name, dtype, case", special_cases())
def test_special_case(name, dtype, case):
    assert case.applies and case.holds, f"not understood: {case.text}"
    call = CALLS.get(name)
    count, subtracted = (len(call.types), call.source == "subtract") if call else (1, False)
    rows = rows_for_which(case.applies, dtype, count, subtracted)
    wrong = [
        f"{form}: {row} gives {found[place]!r}"
        for form, found in results(name, dtype).items()
        for place, row in rows
        if not is_true(case.holds, {**row, "found": found[place]})
    ]
    check(wrong, len(rows), case.text)


@parametrize("dtype, law", [
    (f"laws-{name}-{dtype}-{law.text}", dtype, law)
    for name in CALLS if name in MAIN
    for law in array_api_text.laws(name, MAIN[name])
    for kind in law.kinds for dtype in DTYPES[kind]
])  # fmt: skip
def test_law(dtype, law):
    """Beside a NaN, and in complex products, the sign of a part or zero is of no matter."""
    given = operands(dtype, 2 if "x1" in law.left else 1)
    names = {name: on_numpy(call.function) for name, call in CALLS.items()}
    names.update(
        {"x": given[0], "x1": given[0], "x2": given[-1]},
        turn=lambda x, k: np.stack([-k * x.imag, k * x.real], -1).view(dtype)[..., 0],
        scale=lambda x, k: np.stack([k * x.real, k * x.imag], -1).view(dtype)[..., 0],
    )
    wrong, eps = [], 8 * np.finfo(dtype).eps
    with np.errstate(all="ignore"):
        left, right = eval(law.left, names), eval(law.right, names)
        for row, found, expected in zip(given.T, left, right, strict=True):
            implemented = law.right.startswith(("multiply", "divide")) and dtype[0] == "c"
            if implemented and not np.isfinite(expected):
                continue  # products and quotients that are "implementation-dependent"
            signed = not (implemented or np.isnan(expected))
            parts = (found.real, expected.real), (found.imag, expected.imag)
            if not all(
                array_api_text.same(one, other, signed, eps)
                or abs(one - other) < eps * abs(expected)
                for one, other in parts
            ):
                wrong.append(f"{row}: {found}, not {expected}")
    check(wrong, len(left))


# ---- special cases of reductions -----------------------------------------------------------------

REDUCTIONS = {
    **{name: entry for name, entry in MAIN.items() if name not in CALLS},
    "linalg.trace": LINALG["trace"],
}


@functools.cache
def vectors(dtype):
    """Return vectors of special values: of no to three elements, and long ones."""
    found = [np.array([one], dtype) for one in itertools.product(FEW, repeat=3)]
    found = [vector[0, :count] for vector in found for count in range(4)]
    found += [np.array([1.0] * 17 + [one] + [2.0] * 50, dtype) for one in FEW]
    if dtype[0] == "c":
        for z in operands(dtype, 1)[0]:
            found += [np.array([z]), np.array([1, z, -1j], dtype)]
    return found


def reduced(name, vector, **keywords):
    if name == "linalg.trace":
        return plain(xp.linalg.trace(array(np.diag(vector))))
    return plain(getattr(xp, name)(array(vector), **keywords))


@parametrize("name, dtype, case", itertools.chain(
    *(sentences(name, entry, "fc") for name, entry in REDUCTIONS.items())
))  # fmt: skip
def test_special_case_of_a_reduction(name, dtype, case):
    assert case.applies and case.holds, f"not understood: {case.text}"
    wrong, count = [], 0
    for vector in vectors(dtype):
        if len(vector) == 0 and name in ("max", "min"):
            continue
        for correction in (0, 1, 2, 70) if name in ("std", "var") else (0,):
            found = reduced(name, vector, **({"correction": correction} if correction else {}))
            parts = {"x_i": vector, "a": vector.real, "b": vector.imag}
            known = {n: math.nan if np.isnan(part).any() else 1.0 for n, part in parts.items()}
            known.update(N=len(vector), correction=correction)
            if is_true(case.applies, known):
                count += 1
                if not is_true(case.holds, {**known, "found": found[()]}):
                    wrong.append(f"{vector}, correction {correction} gives {found!r}")
    check(wrong, count, case.text)


@parametrize("name, step, dtype", [
    (f"special-{name}-{dtype}-successive steps", name, step[1], dtype)
    for name, entry in REDUCTIONS.items()
    if (step := re.search(r"successive application of :func:`~array_api\.(\w+)`", entry.text))
    for dtype in DTYPES["f"] + DTYPES["c"]
])  # fmt: skip
def test_reduction_is_of_successive_steps(name, step, dtype):
    """An initial 0 or 1 may change signs of sums, and complex products that are not finite."""
    real, product = dtype[0] == "f", step == "multiply"
    wrong, count, eps = [], 0, 4 * np.finfo(dtype).eps
    for vector in vectors(dtype):
        if not 0 < len(vector) < 4 or not (real or not product or np.isfinite(vector).all()):
            continue
        expected = [*map(plain, itertools.accumulate(map(array, vector), CALLS[step].function))]
        expected = expected if name.startswith("cumulative") else expected[-1:]
        for one, other in zip(np.atleast_1d(reduced(name, vector)), expected, strict=True):
            count += 1
            parts = (one.real, other.real), (one.imag, other.imag)
            if not all(array_api_text.same(*pair, real and product, eps) for pair in parts):
                wrong.append(f"{vector} gives {one!r}, not {other!r}")
    check(wrong, count)


@parametrize("dtype", [(f"special-slogdet-{d}", d) for d in DTYPES["f"] + DTYPES["c"]])
def test_slogdet_of_a_singular_matrix(dtype):
    said = "the ``sign`` should be ``0`` and ``logabsdet`` should be ``-infinity``"
    assert said in LINALG["slogdet"].text
    sign, logabsdet = map(plain, xp.linalg.slogdet(array(np.zeros((3, 3), dtype))))
    assert sign == 0 and logabsdet == -math.inf


# ---- dtypes --------------------------------------------------------------------------------------

KINDS = {
    "a numeric": "iufc",
    "a real-valued": "iuf",
    "a floating-point": "fc",
    "a real-valued floating-point": "f",
    "a complex floating-point": "c",
    "an integer": "iu",
    "an integer or boolean": "iub",
    "a boolean": "b",
    "any": "biufc",
}
KIND_OF = {name: kind for kind, names in DTYPES.items() for name in names}
FORMS = ("arrays", "0-d, 1-d", "1-d, 0-d", "x1 a number", "x2 a number")


def promoted(*dtypes):
    """Return the dtype that the standard's promotion gives, None where it leaves that open."""
    kinds = {KIND_OF[dtype] for dtype in dtypes}
    if len(kinds) == 1 or kinds == {"f", "c"} or (kinds == {"i", "u"} and "uint64" not in dtypes):
        return np.result_type(*dtypes).name
    return None


def dtype_of_result(call, common):
    """Return the dtype that the standard's text gives the result of operands of a dtype."""
    text = call.entry.text.partition("Returns\n")[2]
    if re.search("data type of `+bool`", text):
        return "bool"
    return np.finfo(common).dtype.name if "precision" in text and common[0] == "c" else common


def combinations(name, form):
    """Return rows of operands, arrays and numbers, and of the dtype to which they promote."""
    call = CALLS[name]
    kinds = KINDS[re.search(r"(?:Should|Must|May) have ([\w -]+) data type", call.entry.text)[1]]
    kinds = "fc" if call.source == "divide" else kinds  # of integers "implementation-dependent"
    dtypes = [dtype for dtype, kind in KIND_OF.items() if kind in kinds]
    if len(call.types) != 2:
        return [([np.ones(2, dtype)], dtype) for dtype in dtypes]
    if "number" not in form:
        shapes = {"arrays": (2, 2), "0-d, 1-d": ((), 2), "1-d, 0-d": (2, ())}[form]
        pairs = [(*pair, promoted(*pair)) for pair in itertools.product(dtypes, repeat=2)]
        found = [
            ([np.ones(shapes[0], one), np.ones(shapes[1], other)], common)
            for one, other, common in pairs if common
        ]  # fmt: skip
    else:
        found = []
        for number, taking in ((True, "b"), (1, "iufc"), (1.0, "fc"), (1j, "fc")):
            if re.search(rf"\b{type(number).__name__}\b", call.types[int(form[1]) - 1]):
                for dtype in (dtype for dtype in dtypes if KIND_OF[dtype] in taking):
                    row = [np.ones(2, dtype), number]
                    row = row if form[1] == "2" else row[::-1]
                    found.append((row, np.result_type(dtype, number).name))
    if name[:3] == "__i" and name != "__invert__":
        found = [row for row in found if row[1] == row[0][0].dtype.name]
    return found


def forms(name, call):
    """Return the ways to call a function."""
    if len(call.types) != 2:
        return FORMS[:1]
    inplace = name[:3] == "__i"
    numbers = [bool(re.search("bool|int", types)) for types in call.types]
    return [form for form, has in zip(FORMS, (True, not inplace, True, *numbers)) if has]


@parametrize("name, form", [
    (f"dtypes-{name}-{form}", name, form)
    for name, call in CALLS.items() for form in forms(name, call)
])  # fmt: skip
def test_dtype_of_result(name, form):
    wrong, rows = [], combinations(name, form)
    for row, common in rows:
        said = [one.dtype.name if isinstance(one, np.ndarray) else one for one in row]
        try:
            found = on_numpy(CALLS[name].function)(*row)
        except (TypeError, RuntimeError, ValueError) as error:
            wrong.append(f"{said}: {error!r}")
            continue
        expected = dtype_of_result(CALLS[name], common)
        if found.dtype != expected:
            wrong.append(f"{said}: {found.dtype}, not {expected}")
    check(wrong, len(rows))


def test_every_expected_failure_is_of_a_test():
    assert set(EXPECTED) == MET
