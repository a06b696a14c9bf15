"""What holds for the kernels of all families."""

import subprocess
import sys

import numpy as np
import pytest

from pullback.ops.table.primitives import PRIMITIVES
from pullback.refbackend import masks, plugin

DTYPES = [
    np.bool_,
    np.uint8,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.float16,
    None,  # bfloat16
    np.float32,
    np.float64,
    np.complex64,
    np.complex128,
]
BOOL_RESULT = {name for name, primitive in PRIMITIVES.items() if "bool output" in primitive.doc}
ELEMENTWISE = [name for name in plugin.KERNELS if PRIMITIVES[name].family in ("unary", "binary")]


def dtypes_of(name, bfloat16):
    mask = plugin.KERNELS[name][0]
    return [dtype or bfloat16 for bit, dtype in enumerate(DTYPES) if mask >> bit & 1]


def result_dtype(name, dtype):
    if name in BOOL_RESULT:
        return np.bool_
    return dtype


def make_operands(dtype, count, number):
    """Return arrays of small positive values, in (0, 1) for inexact dtypes."""
    scale = 1 if np.dtype(dtype).kind in "biu" else 8
    return [((np.arange(1, count + 1) + i) / scale).astype(dtype) for i in range(number)]


def test_kernels_are_those_that_a_decomposition_cannot_replace():
    """The required primitives, and what is made of numbers alone."""
    wanted = {name for name, one in PRIMITIVES.items() if one.required or not one.inputs}
    assert set(plugin.KERNELS) == wanted


def test_plugin_registers_for_its_own_device_only():
    class Table:
        def __init__(self):
            self.added = {}

        def add(self, primitive, mask, kernel):
            self.added[primitive] = (mask, kernel)

    table = Table()
    plugin.pullback_register_kernels(table, "cpu")
    assert table.added == {}
    plugin.pullback_register_kernels(table, "ref")
    assert table.added == plugin.KERNELS


def test_masks_agree_with_each_other():
    assert masks.ALL == masks.BOOL | masks.INTEGRAL | masks.FLOATING | masks.COMPLEX
    assert masks.INTEGRAL & masks.INT64


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_takes_every_layout(name, bfloat16):
    kernel, nin = plugin.KERNELS[name][1], len(PRIMITIVES[name].inputs.split())
    for dtype in dtypes_of(name, bfloat16):
        operands = [values.reshape(2, 3) for values in make_operands(dtype, 6, nin)]
        plain = np.empty((2, 3), result_dtype(name, dtype))
        kernel(plain, *operands)
        strided = np.empty((3, 4), plain.dtype)[::-1, ::2].T
        kernel(strided, *(np.asfortranarray(operand) for operand in operands))
        np.testing.assert_array_equal(strided, plain)
        scalar = np.empty((), plain.dtype)
        kernel(scalar, *(operand[0, 1] for operand in operands))
        np.testing.assert_array_equal(scalar, plain[0, 1])
        empty = np.empty((0, 3), plain.dtype)
        kernel(empty, *(operand[:0] for operand in operands))


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_output_may_be_an_input(name, bfloat16):
    kernel, nin = plugin.KERNELS[name][1], len(PRIMITIVES[name].inputs.split())
    for dtype in dtypes_of(name, bfloat16):
        if result_dtype(name, dtype) != dtype:
            continue
        operands = make_operands(dtype, 4, nin)
        apart = np.empty(4, dtype)
        kernel(apart, *operands)
        kernel(operands[0], *operands)
        np.testing.assert_array_equal(operands[0], apart)


def test_importing_the_kernels_does_not_import_ml_dtypes():
    code = (
        "import sys, numpy as np\n"
        "from pullback.refbackend.plugin import KERNELS\n"
        "out = np.empty(2, np.float16)\n"
        "KERNELS['exp'][1](out, out)\n"
        "print('ml_dtypes' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
