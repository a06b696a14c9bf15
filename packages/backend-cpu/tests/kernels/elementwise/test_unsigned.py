"""Kernels of uint16, uint32 and uint64: what those of signed dtypes do not give."""

import numpy as np
import pytest
from layouts import LAYOUTS, empty_like

from pullback.testing.kernel_calls import KernelError, Scalar, call_kernel
from pullback_cpu.kernels import OPTIONAL

NAMES = ["uint16", "uint32", "uint64"]
FUNCTIONS = {
    "floor_divide": np.floor_divide,
    "fmod": np.fmod,
    "remainder": np.remainder,
    "gcd": np.gcd,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "pow": np.power,
    "rshift": lambda x, y: np.where(y < 8 * y.itemsize, x >> (y % (8 * y.itemsize)), 0),
}


def numbers(name, shape, seed):
    top = int(np.iinfo(name).max)
    drawn = np.random.default_rng(seed).integers(1, top, shape, name, endpoint=True)
    drawn.flat[::3] %= drawn.dtype.type(70)
    return np.maximum(drawn, 1).astype(name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("primitive", FUNCTIONS)
def test_binary_kernels_of_unsigned_numbers(primitive, name):
    for shape in ((3, 4, 5), (70000,)):
        a, b = numbers(name, shape, 0), numbers(name, shape, 1)
        wanted = FUNCTIONS[primitive](a, b)
        for lay_out in LAYOUTS.values():
            out = empty_like(a, wanted.dtype)
            call_kernel(OPTIONAL[primitive][1], out, [lay_out(a), b])
            np.testing.assert_array_equal(out, wanted)
    out = np.empty(4, wanted.dtype)
    call_kernel(OPTIONAL[primitive][1], out, [a[:4], Scalar(b[3])])
    np.testing.assert_array_equal(out, FUNCTIONS[primitive](a[:4], b[3:4]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("primitive", ["floor_divide", "fmod", "remainder"])
def test_unsigned_division_by_zero_fails(primitive, name):
    with pytest.raises(KernelError, match="ZeroDivisionError"):
        call_kernel(
            OPTIONAL[primitive][1], np.empty(2, name), [np.ones(2, name), np.zeros(2, name)]
        )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("other", ["bool", *"bhilBHILefdFD"])
def test_copies_of_unsigned_numbers(name, other):
    other = np.dtype(other)
    with np.errstate(all="ignore"):
        for shape in ((3, 4, 5), (70000,)):
            values = numbers(name, shape, 2)
            for lay_out in LAYOUTS.values():
                out = empty_like(values, other)
                call_kernel(OPTIONAL["copy"][1], out, [lay_out(values)])
                np.testing.assert_array_equal(out, values.astype(other))
        back = np.arange(300).astype(other)[::2]
        out = np.empty(150, name)
        call_kernel(OPTIONAL["copy"][1], out, [back])
        np.testing.assert_array_equal(out, back.real.astype(name))


@pytest.mark.parametrize("name", NAMES)
def test_casts_of_floats_beyond_signed_numbers(name):
    top = int(np.iinfo(name).max)
    given = np.array([-1.0, -2.5, top // 2 + 1, 0.9], "f8")
    out = np.empty(4, name)
    call_kernel(OPTIONAL["copy"][1], out, [given])
    assert out.tolist() == [top, top - 1, top // 2 + 1, 0]
