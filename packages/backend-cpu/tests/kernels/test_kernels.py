"""The table of kernels as a whole."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import DTYPES, KERNELS, run_kernel
from layouts import LAYOUTS, sample

from pullback.testing.kernel_calls import Call


def test_kernels_are_capsules_named_by_their_signature():
    for _, capsule in KERNELS.values():
        assert type(capsule).__name__ == "PyCapsule"
        assert "int (pb_call *)" in repr(capsule)
    assert Call.message.offset > 0


def test_masks_name_known_dtypes():
    for primitive, (mask, _) in KERNELS.items():
        assert 0 < mask < 2 ** len(DTYPES), primitive


def test_complex_infinities_survive_arithmetic():
    """A part that is infinite or NaN says nothing about the other part."""
    for dtype in ("c64", "c128"):
        values = np.array([complex(1, np.inf), complex(-np.inf, 2), complex(np.nan, 3)])
        values = values.astype(DTYPES[dtype])
        out = np.zeros_like(values)
        run_kernel("neg", out, [values])
        np.testing.assert_array_equal(out.real, [-1, np.inf, np.nan])
        np.testing.assert_array_equal(out.imag, [-np.inf, -2, -3])
        run_kernel("conj", out, [values])
        np.testing.assert_array_equal(out.imag, [-np.inf, -2, -3])
        run_kernel("add", out, [values, np.ones_like(values)])
        np.testing.assert_array_equal(out.real, [2, -np.inf, np.nan])
        np.testing.assert_array_equal(out.imag, [np.inf, 2, 3])
        total = np.zeros(1, DTYPES[dtype])
        run_kernel("sum", total, [values[:2]])
        assert (total[0].real, total[0].imag) == (-np.inf, np.inf)
        run_kernel("cumsum", out, [values], 0)
        np.testing.assert_array_equal(out.real, [1, -np.inf, np.nan])
        np.testing.assert_array_equal(out.imag, [np.inf, np.inf, np.inf])


@pytest.mark.parametrize("primitive", ["add", "exp", "copy", "eq"])
def test_elementwise_in_sixty_four_dims(primitive):
    values = sample("f32", (2, 3) + (1,) * 60 + (2, 2))
    for layout in ("contiguous", "reversed", "transposed"):
        operands = [LAYOUTS[layout](values)] * (2 if primitive in ("add", "eq") else 1)
        out = np.zeros(values.shape, bool if primitive == "eq" else np.float32)
        run_kernel(primitive, out, operands)
        flat = np.zeros(values.size, out.dtype)
        run_kernel(primitive, flat, [operand.reshape(-1) for operand in operands])
        np.testing.assert_array_equal(out.reshape(-1), flat)
