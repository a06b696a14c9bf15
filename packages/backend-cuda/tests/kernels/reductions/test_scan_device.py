"""Cumulative ops along a dim, against NumPy."""

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
)

from pullback.testing.kernel_calls import E_DTYPE, KernelError

TOLERANCES = {"f16": 2**-10, "bf16": 2**-7, "f32": 2**-21, "c64": 2**-20}
TAKEN = {
    "cumsum": NAMES[1:],
    "cumprod": NAMES[1:],
    "logcumsumexp": FLOATING,
    "cummax": NAMES[:10],
    "cummin": NAMES[:10],
}
CASES = [(primitive, name) for primitive, names in TAKEN.items() for name in names]
SOME = [
    ("cumsum", "u8"),
    ("cumsum", "f16"),
    ("cumsum", "f32"),
    ("cumsum", "f64"),
    ("cumsum", "c128"),
    ("cumprod", "f32"),
    ("cumprod", "i64"),
    ("logcumsumexp", "f32"),
    ("cummax", "i8"),
    ("cummin", "f32"),
]
LENGTHS = [1, 2, 7, 8, 9, 31, 32, 33, 255, 256, 257, 2047, 2048, 5000]


@pytest.fixture(autouse=True)
def device(fake_cuda):
    """The device, ready."""
    import pullback

    pullback.ones(1, device="cuda")
    return fake_cuda


def outputs(primitive, values, layout="plain"):
    out = blank(values.shape, values.dtype, layout)
    if primitive in ("cummax", "cummin"):
        return out, blank(values.shape, np.dtype(np.int64), layout)
    return (out,)


def check(primitive, name, values, dim, layout="plain", tolerance=None):
    """Run a primitive, and compare with the reference."""
    outs, wanted = outputs(primitive, values, layout), outputs(primitive, values)
    run_primitive(primitive, outs, [values], dim)
    if values.size:
        with np.errstate(all="ignore"):
            reference(primitive, wanted, [values], dim=dim)
        for actual, expected in zip(outs, wanted, strict=True):
            if actual.dtype.kind in "biu":
                np.testing.assert_array_equal(actual, expected)
            else:
                assert_close(actual, expected, tolerance or TOLERANCES.get(name, 2**-44))
    return outs


def values_for(primitive, name, shape, seed=0):
    if primitive == "cumprod" and name in (*FLOATING, "c64", "c128"):
        values = sample(name, shape, seed, 0, 1)
        return np.asarray(values / 8 + 0.95, values.dtype)  # products stay of size
    return sample(name, shape, seed)


# ---- dims and layouts ----------------------------------------------------------------------------


@pytest.mark.parametrize(("primitive", "name"), CASES)
def test_any_dim_of_any_layout(primitive, name):
    for shape in ((3, 4, 16), (1, 5), (5, 1), (1,)):
        values = values_for(primitive, name, shape)
        for dim, (layout, lay) in itertools.product(range(len(shape)), LAYOUTS.items()):
            check(primitive, name, lay(values), dim, layout)
    check(primitive, name, values_for(primitive, name, ()), 0)


@pytest.mark.parametrize(("primitive", "name"), SOME)
@pytest.mark.parametrize("length", LENGTHS)
def test_lengths(primitive, name, length):
    for other in (1, 3, 40):
        check(primitive, name, values_for(primitive, name, (other, length)), 1)
        check(primitive, name, values_for(primitive, name, (length, other)), 0)


@pytest.mark.parametrize(("primitive", "name"), SOME)
def test_few_long_and_many_short(primitive, name):
    for shape, dim in (
        ((90_003,), 0),
        ((2, 40_000), 1),
        ((9000, 5), 0),
        ((5, 9000), 0),
        ((9000, 5), 1),
        ((300, 257), 0),
        ((2, 3000, 3), 1),
    ):
        # Numbers near 1, so that products of so many neither vanish nor overflow.
        values = values_for(primitive, name, shape)
        if primitive == "cumprod" and name == "f32":
            values = (1 + (values - 1) / 2000).astype(values.dtype)
        check(primitive, name, values, dim)


@pytest.mark.parametrize(("primitive", "name"), SOME)
def test_begins_anywhere(primitive, name):
    values = values_for(primitive, name, (9 * 64 + 3,))
    for first in range(4):
        part = values[first : first + 9 * 64]
        check(primitive, name, part, 0)
        check(primitive, name, part.reshape(9, 64), 1)
        check(primitive, name, part.reshape(3, 3, 64)[:, 1:], 2)


@pytest.mark.parametrize(("primitive", "name"), [("cumsum", "f32"), ("cummax", "i8")])
def test_more_dims_than_a_kernel_has(primitive, name):
    values = values_for(primitive, name, (2,) * 14)
    order = [*range(0, 14, 2), *range(1, 14, 2)][::-1]
    for dim in (0, 13):
        check(primitive, name, values.transpose(order), dim)


@pytest.mark.parametrize(("primitive", "name"), CASES)
def test_nothing(primitive, name):
    for shape, dim in (((0,), 0), ((3, 0), 0), ((3, 0), 1)):
        check(primitive, name, np.zeros(shape, STORED[name]), dim)


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOATING)
@pytest.mark.parametrize("primitive", ["cumsum", "logcumsumexp", "cummax", "cummin"])
@pytest.mark.parametrize("length", [7, 300, 40_000])
def test_nan_and_infinities(primitive, name, length):
    rng = np.random.default_rng(length)
    specials = [[np.nan, np.inf, -np.inf], [np.nan], [np.inf], [-np.inf]]
    for special in specials if length < 1000 else specials[:1]:
        values = sample(name, (2, length), length)
        chosen = rng.random(values.shape) < 2 / length
        values[chosen] = rng.choice(special, values.shape)[chosen].astype(values.dtype)
        values[0, 0] = special[0]
        check(primitive, name, values, 1)
        check(primitive, name, plain(values.T), 0)
    check(primitive, name, np.full((1, length), -np.inf, STORED[name]), 1)


@pytest.mark.parametrize("name", NAMES[:10])
@pytest.mark.parametrize("primitive", ["cummax", "cummin"])
def test_last_of_equals(primitive, name):
    values = np.round(sample(name, (3, 3000), low=0, high=2).astype(np.float64))
    values = values.astype(STORED[name])
    check(primitive, name, values, 1)
    check(primitive, name, values, 0)
    if name in NAMES[1:6]:
        ends = np.iinfo(STORED[name])
        values[:, 5], values[:, 7], values[:, 9] = ends.min, ends.max, ends.min
        check(primitive, name, values, 1)


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("length", [40, 3000, 30_000])
def test_products_stay_zero(name, length):
    """What comes after a zero may be beyond all bounds, but not infinite by itself."""
    values = np.full(length, 1e30, STORED[name])
    values[0] = 0
    (out,) = outputs("cumprod", values)
    run_primitive("cumprod", out, [values], 0)
    assert (out == 0).all()
    values[0] = 1
    values[-3:] = [2, -1, 0]
    (out,) = outputs("cumprod", values)
    run_primitive("cumprod", out, [values], 0)
    assert out[-4:-1].tolist() == [np.inf, np.inf, -np.inf] and np.isnan(out[-1])


@pytest.mark.parametrize("name", ["f64", "c128"])
@pytest.mark.parametrize("position", [0, 1, 2, 3, 7, 2047, 2046, 9000])
def test_sums_overflow_only_where_a_cumulative_sum_does(name, position):
    values = np.zeros(20_000, STORED[name])
    values[position : position + 3] = -1.5e308, 1e308, 1e308
    values[-9:] = 1e290
    (out,) = outputs("cumsum", values)
    run_primitive("cumsum", out, [values], 0)
    np.testing.assert_allclose(out, np.cumsum(values), rtol=1e-14)


def test_wide_exponentials():
    values = np.linspace(-1000, 1000, 50_000).astype(np.float32)
    for part in (values, values[::-1]):
        check("logcumsumexp", "f32", part, 0)


def test_other_dtypes_are_refused():
    for primitive, name in (("cumsum", "b"), ("logcumsumexp", "i32"), ("cummax", "c64")):
        values = sample(name, (4,))
        with pytest.raises(KernelError) as caught:
            run_primitive(primitive, outputs(primitive, values), [values], 0)
        assert caught.value.code == E_DTYPE
