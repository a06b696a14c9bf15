"""softmax and its relatives along any dim, against NumPy."""

import itertools

import numpy as np
import pytest
from primitive_calls import (
    FLOATING,
    LAYOUTS,
    STORED,
    assert_close,
    blank,
    plain,
    reference,
    run_primitive,
    sample,
)

from pullback.testing.kernel_calls import E_DTYPE, KernelError

TOLERANCES = {"f16": 2**-10, "bf16": 2**-7, "f32": 2**-20, "f64": 2**-44}
FORWARD = ["softmax", "log_softmax", "logsumexp"]
BACKWARD = ["softmax_backward", "log_softmax_backward"]
CASES = [(primitive, name) for primitive in FORWARD + BACKWARD for name in FLOATING]
SOME = [(primitive, name) for primitive in FORWARD + BACKWARD for name in ("f16", "f32", "f64")]
LENGTHS = [1, 2, 7, 8, 10, 31, 32, 33, 64, 255, 257, 512, 1000, 4096, 5000]


@pytest.fixture(autouse=True)
def device(fake_cuda):
    """The device, ready."""
    import pullback

    pullback.ones(1, device="cuda")
    return fake_cuda


def inputs(primitive, name, shape, dim, seed=0):
    """Return the inputs of a primitive; backward passes get a result and a gradient."""
    values = sample(name, shape, seed)
    if primitive in FORWARD:
        return [values]
    result = np.zeros(shape, values.dtype)
    if values.size:
        reference(primitive.removesuffix("_backward"), result, [values], dim=dim)
    return [sample(name, shape, seed + 1), result]


def output(primitive, values, dim, layout="plain"):
    shape = list(values.shape)
    if primitive == "logsumexp" and shape:
        shape[dim] = 1
    return blank(shape, values.dtype, layout)


def check(primitive, name, ins, dim, layout="plain"):
    out, wanted = output(primitive, ins[0], dim, layout), output(primitive, ins[0], dim)
    run_primitive(primitive, out, ins, dim)
    with np.errstate(all="ignore"):
        reference(primitive, wanted, ins, dim=dim)
    assert_close(out, wanted, TOLERANCES[name])
    return out


@pytest.mark.parametrize(("primitive", "name"), CASES)
def test_any_dim_of_any_layout(primitive, name):
    for shape in ((3, 4, 16), (1, 5), (5, 1), (1,), ()):
        for dim in range(max(len(shape), 1)):
            ins = inputs(primitive, name, shape, dim)
            for layout, lay in LAYOUTS.items():
                check(primitive, name, [lay(part) for part in ins], dim, layout)
            mixed = [lay(part) for part, lay in zip(ins, LAYOUTS.values(), strict=False)]
            check(primitive, name, mixed, dim)


@pytest.mark.parametrize(("primitive", "name"), SOME)
@pytest.mark.parametrize("length", LENGTHS)
def test_lengths(primitive, name, length):
    for other in (1, 3, 40):
        check(primitive, name, inputs(primitive, name, (other, length), 1), 1)
        check(primitive, name, inputs(primitive, name, (length, other), 0), 0)


@pytest.mark.parametrize(("primitive", "name"), SOME)
def test_few_long_and_many_short(primitive, name):
    for shape, dim in (
        ((100_003,), 0),
        ((2, 50_000), 1),
        ((20_000, 5), 0),
        ((5, 20_000), 0),
        ((20_000, 5), 1),
        ((300, 257), 0),
        ((2, 3000, 3), 1),
    ):
        check(primitive, name, inputs(primitive, name, shape, dim), dim)


@pytest.mark.parametrize(("primitive", "name"), SOME)
def test_begins_anywhere(primitive, name):
    ins = inputs(primitive, name, (9 * 64 + 3,), 0)
    for first in range(4):
        parts = [part[first : first + 9 * 64] for part in ins]
        check(primitive, name, parts, 0)
        check(primitive, name, [part.reshape(9, 64) for part in parts], 1)
        check(primitive, name, [part.reshape(3, 3, 64)[:, 1:] for part in parts], 2)


def test_more_dims_than_a_kernel_has():
    order = [*range(0, 14, 2), *range(1, 14, 2)][::-1]
    for primitive, dim in itertools.product(FORWARD + BACKWARD, (0, 13)):
        ins = inputs(primitive, "f32", (2,) * 14, dim)
        check(primitive, "f32", [ins[0].transpose(order), *ins[1:]], dim)


@pytest.mark.parametrize("primitive", FORWARD)
@pytest.mark.parametrize("name", FLOATING)
@pytest.mark.parametrize("length", [5, 100, 20_000])
def test_nan_and_infinities(primitive, name, length):
    rows = sample(name, (8, length))
    rows[1, 3], rows[2, 1], rows[3, length - 1] = np.nan, np.inf, -np.inf
    rows[4], rows[5] = -np.inf, np.inf
    rows[6, :2], rows[7, 1:3] = (np.nan, np.inf), (-np.inf, np.nan)
    check(primitive, name, [rows], 1)
    check(primitive, name, [plain(rows.T)], 0)


def test_nothing():
    for primitive, name in CASES:
        for shape, dim in (((0,), 0), ((3, 0), 0), ((3, 0), 1)):
            ins = [np.zeros(shape, STORED[name])] * (1 if primitive in FORWARD else 2)
            out = output(primitive, ins[0], dim)
            run_primitive(primitive, out, ins, dim)
            assert (out == -np.inf).all()  # the logarithm of an empty sum, if anything


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_large_numbers_do_not_overflow(name):
    values = sample(name, (4, 300)) * 1000
    for primitive in FORWARD:
        check(primitive, name, [values], 1)
        check(primitive, name, [values + 5000], 0)


def test_logarithms_near_zero_keep_digits():
    values = np.full((3, 40), -14.0, np.float32)
    values[:, 5] = 0
    out = np.zeros_like(values)
    run_primitive("log_softmax", out, [values], 1)
    np.testing.assert_allclose(out[:, 5], -np.log1p(39 * np.exp(-14.0)), rtol=2**-21)


def test_other_dtypes_are_refused():
    values = sample("i32", (4,))
    for primitive in FORWARD + BACKWARD:
        with pytest.raises(KernelError) as caught:
            run_primitive(primitive, output(primitive, values, 0), [values] * 2, 0)
        assert caught.value.code == E_DTYPE
