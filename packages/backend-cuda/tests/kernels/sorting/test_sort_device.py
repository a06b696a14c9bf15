"""Sorts, searches in sorted rows, flips and triangles, against NumPy."""

import ctypes

import numpy as np
import on_fake
import pytest
from primitive_calls import (
    LAYOUTS,
    NAMES,
    REAL,
    STORED,
    begin,
    blank,
    plain,
    reference,
    run_primitive,
    sample,
    strided,
)

from pullback.testing.kernel_calls import E_VALUE, KernelError

SIZES = [1, 2, 31, 33, 200, 256, 257, 1024, 1025, 4096]
INDEX = np.dtype(np.int64)


@pytest.fixture(autouse=True)
def device(request):
    """The fake device, ready."""
    begin(request)


def bits(values):
    """Return the bits of elements, so that NaN and signs of zeros compare."""
    return values.view(f"u{values.itemsize}")


def mixed(name, shape, seed=0):
    """Return elements with repeats, and with every kind of special number."""
    values = sample(name, shape, seed)
    if name in ("f16", "bf16", "f32", "f64"):
        rng = np.random.default_rng(seed)
        special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-7], np.float64)
        chosen = rng.random(shape) < 0.3
        with np.errstate(all="ignore"):
            values[chosen] = rng.choice(special, shape)[chosen].astype(values.dtype)
    elif name != "b":
        ends = np.iinfo(values.dtype)
        values.flat[:: max(values.size // 5, 1)] = ends.min
        values.flat[1 :: max(values.size // 4, 1)] = ends.max
    return values


def check_sort(values, descending, count=None, layout="plain"):
    count = values.shape[-1] if count is None else count
    shape = (*values.shape[:-1], count)
    outs = blank(shape, values.dtype, layout), blank(shape, INDEX, layout)
    run_primitive("sort", outs, [LAYOUTS[layout](values)], int(descending))
    expected = blank(shape, values.dtype), blank(shape, INDEX)
    reference("sort", expected, [values], descending=int(descending))
    np.testing.assert_array_equal(outs[1], expected[1])
    np.testing.assert_array_equal(bits(plain(outs[0])), bits(expected[0]))
    alone = blank(shape, INDEX, layout)
    run_primitive("argsort", alone, [LAYOUTS[layout](values)], int(descending))
    np.testing.assert_array_equal(alone, expected[1])


# ---- sort ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES[:10])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("size", [5, 300])
def test_sort_of_every_dtype(name, descending, size):
    check_sort(mixed(name, (3, size)), descending)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["i16", "f32", "f64"])
def test_sort_of_any_size(size, name):
    rows = max(1, 700 // size)
    check_sort(mixed(name, (rows, size)), False)


@pytest.mark.parametrize("name", ["u8", "f16", "i32", "i64", "f64"])
@pytest.mark.parametrize("shape", [(4097,), (2, 5000)])
@pytest.mark.parametrize("descending", [False, True])
def test_sort_of_long_rows(name, shape, descending):
    check_sort(mixed(name, shape), descending)


def test_sort_of_many_tiles():
    # More tiles than blocks: each block moves several.
    check_sort(np.random.default_rng(0).integers(0, 2**32, 300_000, np.int64), False)


def test_sort_of_equal_elements():
    for size in (100, 3000, 10_000):
        check_sort(np.full((2, size), 7, np.int64), True)
        check_sort(np.zeros((2, size), np.float32), False)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("size", [7, 1000, 4200])
def test_sort_of_any_layout(layout, size):
    check_sort(mixed("f32", (2, 3, size)), False, layout=layout)


@pytest.mark.parametrize("size", [40, 900])
@pytest.mark.parametrize("count", [0, 1, 17])
def test_first_ones_of_short_rows(size, count):
    for descending in (False, True):
        check_sort(mixed("f32", (3, size)), descending, count)


@pytest.mark.parametrize("name", NAMES[:10])
@pytest.mark.parametrize("count", [1, 300, 1500])
@pytest.mark.parametrize("descending", [False, True])
def test_first_ones_of_long_rows(name, count, descending):
    check_sort(mixed(name, (2, 6100)), descending, count)


def test_first_ones_of_many_tiles():
    values = np.random.default_rng(0).integers(-1000, 1000, (2, 50_000)).astype(np.float32)
    check_sort(values, True, 100, layout="strided")
    check_sort(np.zeros((1, 50_000)), False, 3000)


def test_sort_of_odd_shapes():
    for shape in ((0,), (3, 0), (0, 3), (1, 1)):
        check_sort(mixed("f32", shape), False)
    outs = blank((), np.dtype(np.float32)), blank((), INDEX)
    run_primitive("sort", outs, [np.array(3, np.float32)], 0)
    assert (outs[0], outs[1]) == (3, 0)


def test_sort_of_more_dims_than_a_kernel_takes():
    values = sample("i16", (2,) * 14 + (3,))
    turned = values.transpose(*range(0, 14, 2), *range(1, 14, 2), 14)
    outs = blank(turned.shape, values.dtype), blank(values.shape, INDEX)
    run_primitive("sort", outs, [turned], 0)
    np.testing.assert_array_equal(outs[0], np.sort(turned, -1))


class Radix(ctypes.Structure):
    """``radix_arguments`` of radix_sort.h."""

    _fields_ = [
        ("keys", ctypes.c_void_p * 2),
        ("order", ctypes.c_void_p * 2),
        ("counts", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("totals", ctypes.c_void_p),
        ("differ", ctypes.c_void_p),
        ("n", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("chunk", ctypes.c_int64),
        ("blocks", ctypes.c_int64),
        ("digit", ctypes.c_int32),
    ]


def test_positions_of_64_bits():
    """Rows of 2^32 elements are too long for a test; the kernel for them sorts a short one."""
    build = on_fake.emulation()
    kernels = build.Kernels(build.image(build.KERNELS / "sorting" / "radix_sort.cu"))
    rng, n, chunk = np.random.default_rng(1), 9000, 4096
    first = rng.integers(0, 1 << 16, n).astype(np.uint64)
    keys, order = [plain(first), np.zeros(n, np.uint64)], [np.zeros(n, np.uint64) for _ in "ab"]
    counts, starts = np.zeros(3 * 256, np.uint32), np.zeros(3 * 256, np.uint64)
    totals = np.zeros(256, np.uint64)
    for digit in range(2):
        arguments = Radix(
            keys=(ctypes.c_void_p * 2)(*(array.ctypes.data for array in keys)),
            order=(ctypes.c_void_p * 2)(*(array.ctypes.data for array in order)),
            counts=counts.ctypes.data,
            starts=starts.ctypes.data,
            totals=totals.ctypes.data,
            n=n,
            rows=1,
            chunk=chunk,
            blocks=3,
            digit=digit,
        )
        kernels.launch("radix_count_8", 3, 256, 0, arguments)
        kernels.launch("radix_sum", 256, 256, 0, arguments)
        kernels.launch("radix_move_8_8", 3, 256, 0, arguments)
    expected = np.argsort(first, kind="stable")
    np.testing.assert_array_equal(order[0], expected)
    np.testing.assert_array_equal(keys[0], first[expected])


# ---- searchsorted --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("right", [0, 1])
@pytest.mark.parametrize("nan_last", [0, 1])
def test_searchsorted(name, layout, right, nan_last):
    # Rows that are not sorted show where the halving looks.
    for bounds in (np.sort(sample(name, (3, 20)), 1), mixed(name, (3, 37), seed=1)):
        values = mixed(name, (3, 50), seed=2)
        out, expected = blank(values.shape, INDEX, layout), blank(values.shape, INDEX)
        ins = [LAYOUTS[layout](bounds), LAYOUTS[layout](values)]
        run_primitive("searchsorted", out, ins, right, nan_last)
        reference("searchsorted", expected, [bounds, values], right=right, nan_last=nan_last)
        np.testing.assert_array_equal(out, expected)


def test_searchsorted_of_shared_and_empty_rows():
    bounds, values = np.arange(10.0), sample("f64", (4, 300), high=12)
    out = blank(values.shape, INDEX)
    run_primitive("searchsorted", out, [np.broadcast_to(bounds, (4, 10)), values], 0, 0)
    np.testing.assert_array_equal(out, np.searchsorted(bounds, values))
    run_primitive("searchsorted", out, [np.zeros((4, 0)), values], 0, 0)
    assert not out.any()
    run_primitive("searchsorted", out[:, :0], [np.zeros((4, 3)), values[:, :0]], 0, 0)


def test_searchsorted_refuses_what_does_not_fit():
    with pytest.raises(KernelError) as error:
        run_primitive(
            "searchsorted", blank((2, 3), INDEX), [np.zeros((1, 3)), np.zeros((2, 3))], 0, 0
        )
    assert error.value.code == E_VALUE


# ---- moves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dims", [(), (0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_flip(name, dims):
    values = sample(name, (3, 5, 32))
    for layout in LAYOUTS:
        out = blank(values.shape, values.dtype, layout)
        run_primitive("flip", out, [LAYOUTS[layout](values)], dims)
        np.testing.assert_array_equal(out, np.flip(values, dims))


@pytest.mark.parametrize("shape", [(), (1,), (0, 2), (100_003,)])
def test_flip_of_any_size(shape):
    values = sample("i16", shape)
    out = blank(shape, values.dtype)
    run_primitive("flip", out, [values], tuple(range(len(shape))))
    np.testing.assert_array_equal(out, np.flip(values))


def test_moves_of_more_dims_than_a_kernel_takes():
    values = sample("i16", (2,) * 15)
    turned = values.transpose(*range(0, 15, 2), *range(1, 15, 2))
    out = blank(turned.shape, values.dtype)
    run_primitive("flip", out, [turned], (0, 3, 14))
    np.testing.assert_array_equal(out, np.flip(turned, (0, 3, 14)))
    run_primitive("tril", out, [turned], 0)
    np.testing.assert_array_equal(out, np.tril(turned))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("primitive", ["tril", "triu"])
@pytest.mark.parametrize("shape", [(16, 16), (5, 7), (2, 3, 4, 32), (1, 9), (9, 1), (0, 3)])
def test_triangles(name, primitive, shape):
    values = sample(name, shape)
    for layout in LAYOUTS:
        for diagonal in (0, 1, -2, 5, -40, 2**63 - 1, -(2**63)):
            out = blank(shape, values.dtype, layout)
            run_primitive(primitive, out, [LAYOUTS[layout](values)], diagonal)
            near = int(np.clip(diagonal, -100, 100))
            np.testing.assert_array_equal(out, getattr(np, primitive)(values, near))


def test_triangle_of_its_own_input():
    for values in (sample("f32", (40, 64)), strided(sample("f32", (40, 9)))):
        expected = np.triu(values, 3)
        run_primitive("triu", values, [values], 3)
        np.testing.assert_array_equal(values, expected)


def test_triangle_needs_two_dims():
    values = np.zeros(3, STORED["f32"])
    with pytest.raises(KernelError) as error:
        run_primitive("tril", values, [values], 0)
    assert error.value.code == E_VALUE
