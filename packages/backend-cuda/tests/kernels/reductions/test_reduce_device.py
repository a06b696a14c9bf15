"""Reductions over any dims, against NumPy."""

import itertools

import numpy as np
import pytest
from primitive_calls import (
    FLOATING,
    LAYOUTS,
    NAMES,
    STORED,
    assert_close,
    blank,
    plain,
    reference,
    run_primitive,
    sample,
    transposed,
)

from pullback.testing.kernel_calls import E_DTYPE, E_VALUE, KernelError

TOLERANCES = {"f16": 2**-10, "bf16": 2**-7, "f32": 2**-21, "c64": 2**-20}
SUMMED = ["i64", *FLOATING, "c64", "c128"]
ORDERED = NAMES[:10]
TAKEN = {
    **dict.fromkeys(("sum", "prod"), SUMMED),
    **dict.fromkeys(("amax", "amin", "argmax", "argmin"), ORDERED),
    **dict.fromkeys(("any", "all", "count_nonzero"), NAMES),
    **dict.fromkeys(("sum_squares", "moments"), ("f32", "f64")),
    "nansum": FLOATING,
}
CASES = [(primitive, name) for primitive, names in TAKEN.items() for name in names]
# A primitive for each way to accumulate.
SOME = [
    ("sum", "f16"),
    ("sum", "f32"),
    ("sum", "c128"),
    ("prod", "i64"),
    ("amax", "u8"),
    ("amin", "f32"),
    ("argmax", "bf16"),
    ("argmin", "i64"),
    ("all", "c64"),
    ("count_nonzero", "u8"),
    ("moments", "f32"),
]
LENGTHS = [1, 2, 3, 4, 31, 32, 33, 255, 256, 257, 5000]


@pytest.fixture(autouse=True)
def device(fake_cuda):
    """The device, ready."""
    import pullback

    pullback.ones(1, device="cuda")
    return fake_cuda


def result_dtype(primitive, dtype):
    if primitive.startswith("arg") or primitive == "count_nonzero":
        return np.dtype(np.int64)
    return np.dtype(bool) if primitive in ("any", "all") else dtype


def outputs(primitive, values, dims, layout="plain"):
    shape = [1 if d in dims else n for d, n in enumerate(values.shape)]
    out = blank(shape, result_dtype(primitive, values.dtype), layout)
    return (out, blank(shape, out.dtype, layout)) if primitive == "moments" else (out,)


def check(primitive, name, values, dims, layout="plain", tolerance=None):
    """Run a primitive, and compare with the reference."""
    outs, wanted = outputs(primitive, values, dims, layout), outputs(primitive, values, dims)
    run_primitive(primitive, outs, [values])
    with np.errstate(all="ignore"):
        reference(primitive, wanted, [values])
    for actual, expected in zip(outs, wanted, strict=True):
        if actual.dtype.kind in "bi" or actual.dtype.kind == "u":
            np.testing.assert_array_equal(actual, expected)
        else:
            assert_close(actual, expected, tolerance or TOLERANCES.get(name, 2**-46))
    return outs


def values_for(primitive, name, shape, seed=0):
    if primitive == "prod" and name != "i64":
        values = sample(name, shape, seed, 0, 1)
        return (values / 2 + 0.75).astype(values.dtype)  # the product stays of size
    values = sample(name, shape, seed)
    if primitive in ("any", "all", "count_nonzero"):
        values[np.random.default_rng(seed).random(shape) < 0.5] = 0
    return values


# ---- dims and layouts ----------------------------------------------------------------------------


@pytest.mark.parametrize(("primitive", "name"), CASES)
def test_any_dims_of_any_layout(primitive, name):
    values = values_for(primitive, name, (3, 4, 16))
    one_dim = [(), (0,), (1,), (2,), (0, 1, 2)]
    all_dims = [dims for n in range(4) for dims in itertools.combinations(range(3), n)]
    for dims in one_dim if primitive.startswith("arg") else all_dims:
        for layout, lay in LAYOUTS.items():
            check(primitive, name, lay(values), dims, layout)


@pytest.mark.parametrize(("primitive", "name"), SOME)
@pytest.mark.parametrize("length", LENGTHS)
def test_lengths(primitive, name, length):
    for other in (1, 3, 8):
        check(primitive, name, values_for(primitive, name, (other, length)), (1,))
        check(primitive, name, values_for(primitive, name, (length, other)), (0,))
    check(primitive, name, values_for(primitive, name, (2, length, 3)), (1,))


@pytest.mark.parametrize(("primitive", "name"), SOME)
def test_few_long_and_many_short(primitive, name):
    tolerance = 2**-6 if primitive == "prod" else None
    check(primitive, name, values_for(primitive, name, (200_003,)), (0,), tolerance=tolerance)
    check(primitive, name, values_for(primitive, name, (2, 100_000)), (1,), tolerance=tolerance)
    check(primitive, name, values_for(primitive, name, (20_000, 5)), (0,), tolerance=tolerance)
    check(primitive, name, values_for(primitive, name, (5, 20_000)), (0,))
    check(primitive, name, values_for(primitive, name, (20_000, 5)), (1,))
    check(primitive, name, values_for(primitive, name, (300, 257)), (0,))


@pytest.mark.parametrize(("primitive", "name"), SOME)
def test_begins_anywhere(primitive, name):
    values = values_for(primitive, name, (9 * 64 + 3,))
    for first in range(4):
        part = values[first : first + 9 * 64]
        check(primitive, name, part, (0,))
        check(primitive, name, part.reshape(9, 64), (1,))
        check(primitive, name, part.reshape(9, 64), (0,))
        check(primitive, name, part.reshape(3, 3, 64)[:, 1:], (2,))


@pytest.mark.parametrize(("primitive", "name"), [case for case in SOME if "arg" not in case[0]])
def test_more_dims_than_a_kernel_has(primitive, name):
    values = values_for(primitive, name, (2,) * 20)
    tolerance = 2**-6 if primitive == "prod" else None
    check(primitive, name, values[:1, :1], range(0, 20, 2), tolerance=tolerance)
    check(primitive, name, values[:, :1, :1, :1], range(1, 20, 2), tolerance=tolerance)
    wide = plain(values).reshape((1,) * 44 + (2,) * 20)
    check(
        primitive, name, wide[(0,) * 44].reshape(values.shape)[0, 0], range(18), tolerance=tolerance
    )
    check(primitive, name, wide, range(0, 64, 2), tolerance=tolerance)


@pytest.mark.parametrize("primitive", ["argmax", "argmin"])
def test_indices_count_in_the_order_of_dims(primitive):
    for n in (3, 12):
        values = np.random.default_rng(0).permutation(2**n).reshape((2,) * n).astype(np.int32)
        check(primitive, "i32", transposed(values), range(n))
    values = sample("f32", (6, 5, 7), 0)
    for order in itertools.permutations(range(3)):
        check(primitive, "f32", values.transpose(order), range(3))


def test_repeated_elements():
    values = sample("f32", (1, 40, 1))
    for shape, dims in (((3, 40, 1), (0,)), ((3, 40, 5), (2,)), ((3, 40, 5), (0, 1, 2))):
        check("sum", "f32", np.broadcast_to(values, shape), dims)
        check("amax", "f32", np.broadcast_to(values, shape), dims)


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("primitive", "name"), CASES)
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 5), (0, 0)])
def test_nothing(primitive, name, shape):
    values = np.zeros(shape, STORED[name])
    for dims in [range(len(shape)), *((d,) for d in range(len(shape)))]:
        outs = outputs(primitive, values, dims)
        empty = any(shape[d] == 0 for d in dims)
        if primitive.startswith("arg") and outs[0].size and empty:
            with pytest.raises(KernelError) as caught:
                run_primitive(primitive, outs, [values])
            assert caught.value.code == E_VALUE
        else:
            check(primitive, name, values, dims)


@pytest.mark.parametrize("name", FLOATING)
@pytest.mark.parametrize("primitive", ["amax", "amin", "argmax", "argmin", "sum", "nansum", "prod"])
@pytest.mark.parametrize("length", [1, 7, 64, 1000])
def test_nan_and_infinities(primitive, name, length):
    rng = np.random.default_rng(length)
    for special in ([np.nan], [np.inf], [-np.inf], [np.nan, np.inf, -np.inf]):
        values = sample(name, (6, length), length)
        chosen = rng.random(values.shape) < 0.2
        values[chosen] = rng.choice(special, values.shape)[chosen].astype(values.dtype)
        values[0] = special[0]
        check(primitive, name, values, (1,))
        check(primitive, name, plain(values.T), (0,))


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("primitive", ["argmax", "argmin"])
def test_first_of_equals(primitive, name):
    values = sample(name, (4, 3000), low=0, high=2)
    values = values if name == "b" else np.round(values.astype(np.float64)).astype(STORED[name])
    for shape in ((4, 3000), (12000,), (3000, 4)):
        check(primitive, name, values.reshape(shape), (0,))
        check(primitive, name, values.reshape(shape), (len(shape) - 1,))
    if name in FLOATING:
        zeros = np.array([0.0, -0.0, 0.0], STORED[name])
        check(primitive, name, zeros, (0,))
        check(primitive, name, -zeros, (0,))
        check(primitive, name, np.full(9, -np.inf, STORED[name]), (0,))
        check(primitive, name, np.full(9, np.inf, STORED[name]), (0,))


@pytest.mark.parametrize("name", ORDERED[1:6])
def test_ends_of_integers(name):
    ends = np.iinfo(STORED[name])
    values = np.array([[ends.min, 0, ends.max], [ends.min] * 3, [ends.max] * 3], STORED[name])
    for primitive in ("amax", "amin", "argmax", "argmin"):
        check(primitive, name, values, (1,))
        check(primitive, name, values, (0,))


def test_integers_wrap_around():
    values = np.array([2**62, 2**62, 2**62, 7], np.int64)
    check("sum", "i64", values, (0,))
    check("prod", "i64", values + 1, (0,))


@pytest.mark.parametrize("name", [*FLOATING, "c64", "c128"])
def test_zeros_of_both_signs_are_zero(name):
    values = np.zeros((2, 40), STORED[name])
    values[0] = -values[0]
    for primitive in ("any", "all", "count_nonzero"):
        check(primitive, name, values, (1,))
    values[1, 17] = np.nan
    for primitive in ("any", "all", "count_nonzero"):
        check(primitive, name, values, (1,))
    if name in ("c64", "c128"):
        values.imag[0, 3] = 1
        check("count_nonzero", name, values, (1,))


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_moments_of_numbers_far_from_zero(name):
    values = (sample(name, (3, 20_000)) * 0.5 + 1000).astype(STORED[name])
    check("moments", name, values, (1,), tolerance=2**-18 if name == "f32" else 2**-36)
    check("moments", name, plain(values.T), (0,), tolerance=2**-18 if name == "f32" else 2**-36)
    values[:, 0] = 1e6  # the first one is no measure for the others
    check("moments", name, values, (1,), tolerance=2**-18 if name == "f32" else 2**-36)


def test_infinite_mean():
    values = np.ones((2, 300), np.float32)
    values[0, 5] = np.inf
    mean, squares = check("moments", "f32", values, (1,))
    assert mean.ravel().tolist() == [np.inf, 1] and squares[1] == 0


def test_long_sums_keep_digits():
    values = np.random.default_rng(0).uniform(0, 1, 1_000_001).astype(np.float32)
    exact = values.sum(dtype=np.float64)
    for shape, dims in (((1_000_001,), (0,)), ((1_000_001, 1), (0,))):
        (out,) = outputs("sum", values.reshape(shape), dims)
        run_primitive("sum", out, [values.reshape(shape)])
        np.testing.assert_allclose(out.ravel(), exact, rtol=2**-23)


def test_same_bits_every_time(device):
    values = sample("f32", (3, 70_001))
    found = []
    for _ in range(2):
        (out,) = outputs("sum", values, (1,))
        run_primitive("sum", out, [values])
        found.append(out.tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("primitive", "name"), [("sum", "u8"), ("amax", "c64"), ("moments", "f16")]
)
def test_other_dtypes_are_refused(primitive, name):
    values = sample(name, (4,))
    with pytest.raises(KernelError) as caught:
        run_primitive(primitive, outputs(primitive, values, (0,)), [values])
    assert caught.value.code == E_DTYPE
