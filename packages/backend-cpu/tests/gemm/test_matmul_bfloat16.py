"""Products of bfloat16, which processors with AMX multiply in tile registers."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_calls import BFLOAT16, run_kernel
from layouts import LAYOUTS, error_of_sums, sample, widen

from pullback.testing.kernel_calls import E_MEMORY, KernelError

SIZES = (1, 15, 17, 31, 33, 63, 65, 257)


def transposed_memory(values: np.ndarray) -> np.ndarray:
    """Return equal values of which the columns of each matrix are contiguous."""
    return values.transpose(0, 2, 1).copy().transpose(0, 2, 1)


def check_product(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Sums in float32, rounded once: half a unit of bfloat16, and what float32 loses."""
    if out is None:
        out = np.zeros((len(a), a.shape[1], b.shape[2]), BFLOAT16)
    run_kernel("bmm", out, [a, b])
    wide_a, wide_b = widen(a).astype(np.float64), widen(b).astype(np.float64)
    exact, sizes, k = wide_a @ wide_b, np.abs(wide_a) @ np.abs(wide_b), a.shape[2]
    error = np.abs(widen(out).astype(np.float64) - exact)
    assert (error <= 2.0**-8 * np.abs(exact) + error_of_sums(np.dtype("f4"), k, sizes)).all()
    return out


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("n", SIZES)
def test_sizes_around_those_of_tiles(m, n):
    for k in SIZES:
        check_product(sample("bf16", (1, m, k), seed=m), sample("bf16", (1, k, n), seed=k))


@given(
    *(st.integers(1, 100) for _ in range(3)),
    *(st.sampled_from([*LAYOUTS.values(), transposed_memory]) for _ in range(3)),
)
@settings(max_examples=150, deadline=None)
def test_any_layout(m, k, n, layout_a, layout_b, layout_out):
    a, b = sample("bf16", (2, m, k), seed=1), sample("bf16", (2, k, n), seed=2)
    check_product(layout_a(a), layout_b(b), layout_out(np.zeros((2, m, n), BFLOAT16)))


def test_elements_around_the_result_are_left_alone():
    for m, n in itertools.product((17, 33), (15, 31, 47)):
        room = np.full((1, m + 2, n + 2), 7, BFLOAT16)
        a, b = np.ones((1, m, 40), BFLOAT16), np.ones((1, 40, n), BFLOAT16)
        run_kernel("bmm", room[:, 1:-1, 1:-1], [a, b])
        assert (widen(room[:, 1:-1, 1:-1]) == 40).all()
        room[:, 1:-1, 1:-1] = 7
        assert (widen(room) == 7).all()


def test_many_columns_and_a_long_sum():
    """More than what is multiplied at a time."""
    check_product(sample("bf16", (1, 70, 3000), seed=1), sample("bf16", (1, 3000, 200), seed=2))


def test_a_factor_of_which_no_copy_fits_into_memory():
    size = 2**31 - 1
    one = np.ones((1, 1, 1), BFLOAT16)
    out = np.lib.stride_tricks.as_strided(one.copy(), (1, size, 2), (0, 0, 0))
    with pytest.raises(KernelError) as caught:
        run_kernel(
            "bmm",
            out,
            [np.broadcast_to(one, (1, size, size)), np.broadcast_to(one, (1, size, 2))],
        )
    assert caught.value.code == E_MEMORY


def test_no_terms():
    out = np.full((1, 40, 50), np.nan, BFLOAT16)
    run_kernel("bmm", out, [np.ones((1, 40, 0), BFLOAT16), np.ones((1, 0, 50), BFLOAT16)])
    assert (widen(out) == 0).all()


@pytest.mark.parametrize("size", [20, 33, 80])
def test_nan_and_infinity_stay_in_their_rows_and_columns(size):
    a, b = (np.ones((1, size, size), BFLOAT16) for _ in range(2))
    a[0, 3, 4], a[0, 5, 6], b[0, 7, 2] = np.nan, np.inf, -np.inf
    out = widen(run_into(a, b))
    assert np.isnan(out[0, 3]).all()
    assert np.isnan(out[0, 5, 2])
    assert (np.delete(out[0, 5], 2) == np.inf).all()
    assert (np.delete(out[0, :, 2], [3, 5]) == -np.inf).all()
    rest = np.delete(np.delete(out[0], [3, 5], 0), 2, 1)
    assert (rest == size).all()


def run_into(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the product."""
    out = np.zeros((len(a), a.shape[1], b.shape[2]), BFLOAT16)
    run_kernel("bmm", out, [a, b])
    return out


def test_sums_that_overflow():
    large = np.full((1, 40, 40), 2.0**126, BFLOAT16)
    two = np.full((1, 40, 40), 2, BFLOAT16)
    assert (widen(run_into(large, two)) == np.inf).all()
    assert (widen(run_into(-large, two)) == -np.inf).all()


def test_subnormal_numbers_count_as_they_are_or_as_zero():
    tiny = np.full((1, 40, 32), 2.0**-130, BFLOAT16)
    out = widen(run_into(tiny, np.full((1, 32, 40), 2.0**100, BFLOAT16)))
    assert np.isin(out, [0, 2.0**-25]).all()


def test_threads_do_not_change_the_bits():
    code = """
import sys
import numpy as np
from kernel_calls import BFLOAT16, run_kernel
from pullback_cpu.runtime import threads
rng = np.random.default_rng(0)
a, b = (rng.normal(size=(1, 400, 400)).astype(BFLOAT16) for _ in range(2))
found = []
for count in (1, 3):
    threads.set_num_threads(count)
    out = np.zeros((1, 400, 400), BFLOAT16)
    run_kernel("bmm", out, [a, b])
    found.append(out.tobytes())
assert found[0] == found[1]
"""
    run_python(code)


def test_processors_without_amx_multiply_too():
    """They widen to float32."""
    code = """
import numpy as np
from test_matmul_bfloat16 import check_product, sample
for m, k, n in ((15, 33, 17), (65, 64, 63), (1, 40, 50)):
    check_product(sample("bf16", (2, m, k), seed=1), sample("bf16", (2, k, n), seed=2))
"""
    run_python(code, PULLBACK_CPU_LEVEL="baseline")


def run_python(code: str, **variables: str) -> None:
    """Run code in a fresh interpreter that finds the same packages."""
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
