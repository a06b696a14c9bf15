"""float16 and bfloat16: computed in float32, and rounded once."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import DTYPES, run_kernel
from layouts import LAYOUTS, contiguous, empty_like, reversed_all, round_to, sample, strided

ONE = ["abs", "neg", "relu", "sign", "square", "isnan", "isfinite", "logical_not", "round"]
ONE += ["exp", "tanh", "silu", "erfinv", "digamma", "airy_ai_prime", "i0e"]
TWO = ["add", "maximum", "sub", "sigmoid_backward", "lt", "eq", "pow", "floor_divide", "remainder"]
TWO += ["logaddexp", "silu_backward", "zeta", "igamma", "hermite_polynomial_h"]
THREE = ["clamp", "lerp"]
PRIMITIVES = [(name, n) for n, names in enumerate((ONE, TWO, THREE), 1) for name in names]
TRUTHS = ("isnan", "isfinite", "logical_not", "lt", "eq")
SIZES = [1, 3, 15, 16, 255, 256, 257, 700]  # around blocks of 256 elements


def operands_of(name: str, dtype: str, n: int, inputs: int) -> list[np.ndarray]:
    low, high = (0.5, 4) if name in ("zeta", "igamma") else (-0.9, 0.9)
    values = [sample(dtype, (n,), seed, low, high) for seed in range(inputs)]
    if name not in ("zeta", "igamma", "hermite_polynomial_h") and n > 8:
        values[0][:6] = [0, -0.0, np.inf, -np.inf, np.nan, -np.nan]
    if name == "floor_divide" or name == "remainder":
        values[1] = np.abs(values[1]) + values[1].dtype.type(0.25)
    if name == "hermite_polynomial_h":
        values[1] = np.full_like(values[1], 3)
    return values


def rounded(name: str, ins: list[np.ndarray]) -> np.ndarray:
    """Return the result in float32, as a kernel for float32 gives it, in the operands' type."""
    wide = [np.ascontiguousarray(x).astype(np.float32) for x in ins]
    out = np.zeros(wide[0].shape, bool if name in TRUTHS else np.float32)
    run_kernel(name, out, wide)
    return out if name in TRUTHS else round_to(out, ins[0].dtype)


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(actual[known], expected[known])
    np.testing.assert_array_equal(np.signbit(actual[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("name", "inputs"), PRIMITIVES)
def test_results_are_those_of_float32(name, inputs, dtype, n):
    ins = operands_of(name, dtype, n, inputs)
    expected = rounded(name, ins)
    out_dtype = bool if name in TRUTHS else DTYPES[dtype]
    for layout in (contiguous, strided, reversed_all):
        for out_layout in ("contiguous", "strided", "reversed"):
            out = empty_like(ins[0], out_dtype, out_layout)
            run_kernel(name, out, [layout(x) for x in ins])
            assert_same_bits(out, expected)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(("name", "inputs"), [entry for entry in PRIMITIVES if entry[1] > 1])
def test_one_number_for_all(name, inputs, dtype, n):
    for which in range(inputs):
        ins = operands_of(name, dtype, n, inputs)
        ins[which] = np.broadcast_to(ins[which][-1:], (n,))
        out = empty_like(ins[0], bool if name in TRUTHS else DTYPES[dtype])
        run_kernel(name, out, ins)
        assert_same_bits(out, rounded(name, ins))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("name", "inputs"), [entry for entry in PRIMITIVES if entry[0] not in TRUTHS]
)
def test_result_may_overwrite_any_operand(name, inputs, dtype):
    for which in range(inputs):
        for layout in LAYOUTS.values():
            ins = [layout(x) for x in operands_of(name, dtype, 700, inputs)]
            expected = rounded(name, ins)
            run_kernel(name, ins[which], ins)
            assert_same_bits(ins[which], expected)
