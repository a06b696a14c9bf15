"""Attention and its derivatives, across blocks of queries and keys."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from kernel_calls import DTYPES, FLOATING, run_kernel
from layouts import LAYOUTS, round_to

from pullback.testing.references import normalization as references

TOLERANCES = {"f16": 2e-3, "bf16": 2e-2, "f32": 5e-6, "f64": 1e-13}
# Queries, keys, size of a key, size of a value; heads of queries and of keys.
SIZES = [
    ((), (), (3, 5, 4, 2)),
    ((2, 3), (2, 3), (33, 130, 20, 24)),
    ((2, 4), (2, 2), (130, 90, 16, 64)),
    ((1,), (1,), (300, 1100, 8, 5)),
    ((1, 2), (1, 2), (1, 200, 64, 64)),
    ((2,), (2,), (40, 0, 3, 3)),
    ((0,), (0,), (4, 4, 2, 2)),
]
HIDDEN = ("nothing", "later", "some", "added", "same")


def operands(name, heads, key_heads, sizes, hidden):
    """Return query, key, value and a mask; with "same" each query misses the same keys."""
    rng = np.random.default_rng(len(hidden))
    rows, columns, size, out_size = sizes
    shapes = (*heads, rows, size), (*key_heads, columns, size), (*key_heads, columns, out_size)
    parts = [rng.standard_normal(shape).astype(DTYPES[name]) for shape in shapes]
    seen = rng.random((*heads, rows, columns)) < 0.6
    seen[..., rows // 2, :] = False
    if hidden == "same":
        seen = np.broadcast_to(rng.random(columns) < 0.6, seen.shape)
    wide = np.float64 if name == "f64" else np.float32
    added = np.where(seen, rng.standard_normal(seen.shape), -np.inf).astype(wide)
    return parts, {"some": seen, "same": seen, "added": added}.get(hidden)


def wide(array):
    return array.astype(np.float64) if array.dtype.kind == "f" or array.dtype == BF16 else array


BF16 = np.dtype(ml_dtypes.bfloat16)


def expected_of(parts, mask, hidden, grad):
    """Return the result, the logarithms and the derivatives."""
    query, key, value = map(wide, parts)
    mask = None if mask is None else wide(mask)
    arguments = (query, key, value, mask, hidden == "later", 0.3)
    with np.errstate(divide="ignore", invalid="ignore"):
        if key.shape[-2] == 0:
            out = np.zeros((*query.shape[:-1], value.shape[-1]))
            sums = np.full(query.shape[:-1], -np.inf)
        else:
            out, sums = references.attention_primitive(np, *arguments)
        shift = np.where(np.isneginf(sums), 0, sums)
        found = references.attention_backward(
            np, wide(grad), query, key, value, mask, out, shift, *arguments[4:]
        )
    return out, sums, found


def check(actual, expected, tolerance):
    finite = np.abs(expected[np.isfinite(expected)])
    np.testing.assert_allclose(
        actual.astype(np.float64),
        expected,
        rtol=tolerance,
        atol=tolerance * max(1, finite.max(initial=0)),
    )


@pytest.mark.parametrize(
    ("name", "layout"),
    [*((name, "contiguous") for name in FLOATING), *(("f32", layout) for layout in LAYOUTS)],
)
@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_result_and_derivatives(name, layout, hidden, sizes):
    parts, mask = operands(name, *sizes, hidden)
    query, _, value = parts
    rng = np.random.default_rng(0)
    grad = rng.standard_normal((*query.shape[:-1], value.shape[-1])).astype(query.dtype)
    wanted, logarithms, derivatives = expected_of(parts, mask, hidden, grad)
    ins = [LAYOUTS[layout](part) for part in parts]
    masks = [] if mask is None else [LAYOUTS[layout](mask)]
    dtype = np.float64 if name == "f64" else np.float32
    out, sums = np.full(grad.shape, 7, query.dtype), np.full(grad.shape[:-1], 7, dtype)
    params = (int(hidden == "later"), 0.3)
    run_kernel("attention", [out, sums], [*ins, *masks], *params)
    check(out, wanted, TOLERANCES[name])
    check(sums, logarithms, TOLERANCES["f64" if name == "f64" else "f32"])
    found = [np.full_like(part, 7) for part in parts]
    given = [LAYOUTS[layout](grad), *ins, round_to(wanted, query.dtype), sums, *masks]
    run_kernel("attention_backward", found, given, *params)
    for one, other in zip(found, derivatives, strict=True):
        check(one, other, 4 * TOLERANCES[name])


def test_a_score_that_is_no_number_spoils_its_query_alone():
    query, key, value = (np.ones((40, 4), np.float32) for _ in range(3))
    query[3, 0], key[5, 1] = np.nan, -np.inf
    query[4, 1] = -1
    out, sums = np.zeros_like(query), np.zeros(40, np.float32)
    run_kernel("attention", [out, sums], [query, key, value], 0, 1.0)
    bad = np.isnan(out).all(1)
    assert bad[3] and bad[4] and bad.sum() == 2
    np.testing.assert_array_equal(out[~bad], 1)
