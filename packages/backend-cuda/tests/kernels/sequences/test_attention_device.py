"""Attention and its derivatives on a device, against the kernels of the CPU backend."""

import numpy as np
import pytest
from primitive_calls import FLOATING, assert_close, begin, reference, run_primitive, sample

TOLERANCES = {"f16": 2**-8, "bf16": 2**-5, "f32": 2**-17, "f64": 2**-40}
# Leading dims of queries and keys; queries, keys, size of a key, size of a value.
SIZES = [
    ((), (), (3, 5, 4, 2)),
    ((2,), (2,), (17, 33, 20, 70)),
    ((1, 2, 4), (1, 2, 2), (20, 18, 66, 3)),
]


@pytest.fixture(autouse=True)
def device(request):
    """The device, ready."""
    begin(request)


@pytest.mark.parametrize("name", FLOATING)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("hidden", ["nothing", "later", "some", "added"])
def test_result_and_derivatives(name, sizes, hidden):
    heads, key_heads, (rows, columns, size, out_size) = sizes
    shapes = (*heads, rows, size), (*key_heads, columns, size), (*key_heads, columns, out_size)
    ins = [sample(name, shape, number, -1, 1) for number, shape in enumerate(shapes)]
    grad = sample(name, (*heads, rows, out_size), 3, -1, 1)
    wide = "f64" if name == "f64" else "f32"
    seen = np.random.default_rng(4).random((*heads, rows, columns)) < 0.6
    seen[..., 1, :] = False
    added = np.where(seen, sample(wide, seen.shape, 5), -np.inf).astype(sample(wide, ()).dtype)
    masks = {"some": [seen], "added": [added]}.get(hidden, [])
    params = {"is_causal": int(hidden == "later"), "scale": 0.4}
    outs, wanted = ([np.zeros_like(grad), np.zeros(grad.shape[:-1], added.dtype)] for _ in range(2))
    run_primitive("attention", outs, [*ins, *masks], *params.values())
    reference("attention", wanted, [*ins, *masks], **params)
    for one, other in zip(outs, wanted, strict=True):
        assert_close(one, other, TOLERANCES[name])
    found, derivatives = ([np.zeros_like(part) for part in ins] for _ in range(2))
    given = [grad, *ins, *wanted, *masks]
    run_primitive("attention_backward", found, given, *params.values())
    reference("attention_backward", derivatives, given, **params)
    for one, other in zip(found, derivatives, strict=True):
        assert_close(one, other, TOLERANCES[name])
