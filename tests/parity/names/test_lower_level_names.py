"""torch's lower-level functions: the same calls give the same values and gradients."""

import warnings

import pytest

import pullback as pb

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")


def values(library, *shape, seed=0, grad=True):
    """The same numbers in both libraries."""
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(shape, generator=generator, dtype=torch.float64)
    found = library.tensor(made.tolist(), dtype=library.float64).reshape(shape)
    return found.requires_grad_() if grad else found


def ids(library, *numbers):
    return library.tensor(list(numbers))


def recurrent(library, name, gates, packed):
    state = values(library, 2, 2, 3, seed=1)
    hx = (state, values(library, 2, 2, 3, seed=2)) if name == "lstm" else state
    weights = [
        values(library, *shape, seed=5 + n)
        for n, shape in enumerate([(3 * gates, 2), (3 * gates, 3), (3 * gates,), (3 * gates,)] * 2)
    ]
    options = [True, 1, 0.0, False, True]
    if packed:
        given = values(library, 5, 2), ids(library, 2, 2, 1), hx, weights, *options
    else:
        given = values(library, 3, 2, 2), hx, weights, *options, False
    return getattr(library, name)(*given), [given[0], *weights]


CALLS = {
    "gradient": lambda lib, x: lib.gradient(x),
    "gradient2": lambda lib, x: lib.gradient(
        x, spacing=(lib.tensor([0.0, 1, 3], dtype=lib.float64),), dim=0, edge_order=2
    ),
    "gradient spaced": lambda lib, x: lib.gradient(x, spacing=[2.0, 0.5]),
    "norm_except_dim": lambda lib, x: lib.norm_except_dim(x, 2, 1),
    "segment mean": lambda lib, x: lib.segment_reduce(x, "mean", lengths=ids(lib, 1, 2)),
    "segment max": lambda lib, x: lib.segment_reduce(x, "max", lengths=ids(lib, 1, 2)),
    "segment prod": lambda lib, x: lib.segment_reduce(
        x, "prod", offsets=ids(lib, 0, 1, 1, 3), initial=2.0
    ),
    "native_layer_norm": lambda lib, x: lib.native_layer_norm(x, (4,), None, None, 1e-5)[:1],
    "native_batch_norm": lambda lib, x: lib.native_batch_norm(
        x, None, None, None, None, True, 0.1, 1e-5
    )[:1],
    "native_group_norm": lambda lib, x: lib.native_group_norm(
        x.reshape(1, 4, 3), None, None, 1, 4, 3, 2, 1e-5
    )[:1],
    "native_dropout": lambda lib, x: lib.native_dropout(x, 1.0, True),
    "adaptive_max_pool1d": lambda lib, x: lib.adaptive_max_pool1d(x, 3),
    "embedding_bag": lambda lib, x: lib.embedding_bag(x, ids(lib, 2, 0, 1), ids(lib, 0, 2), mode=2),
    "embedding_bag mean": lambda lib, x: lib.embedding_bag(
        x, ids(lib, 2, 0, 1), ids(lib, 0, 2), False, 1, False, None, False, 0
    ),
    "grid_sampler_2d": lambda lib, x: lib.grid_sampler_2d(
        x.reshape(1, 1, 3, 4), x.detach().reshape(1, 2, 3, 2) / 2, 0, 1, True
    ),
}
NUMBERS = {
    "nonzero_static": lambda lib, x: lib.nonzero_static(x > 0, size=9, fill_value=-3),
    "histogramdd": lambda lib, x: lib.histogramdd(x.reshape(6, 2), [2, 3]),
    "histogramdd edges": lambda lib, x: lib.histogramdd(
        x.reshape(6, 2), [x[0].sort()[0], x[1].sort()[0]], density=True
    ),
    "layer_norm statistics": lambda lib, x: lib.native_layer_norm(x, (4,), None, None, 1e-5),
    "batch_norm statistics": lambda lib, x: lib.native_batch_norm(
        x, None, None, None, None, True, 0.1, 1e-5
    ),
    "range": lambda lib, x: lib.range(0, 1, 0.3),
    "integers": lambda lib, x: lib.gradient(lib.arange(4) ** 2, spacing=2),
}


def flat(found):
    found = found if isinstance(found, (tuple, list)) else (found,)
    return [one for part in found for one in (flat(part) if isinstance(part, tuple) else [part])]


def close(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs):
        assert tuple(one.shape) == tuple(other.shape)
        assert one.dtype.name == str(other.dtype).removeprefix("torch.")
        expected = other.detach().tolist()
        torch.testing.assert_close(
            torch.tensor(one.tolist()), torch.tensor(expected), equal_nan=True, rtol=1e-5, atol=1e-7
        )


def gradients(library, found, inputs):
    kept = [part for part in flat(found) if part.requires_grad]
    total = sum((part * (n + 1)).sum() for n, part in enumerate(kept))
    return library.autograd.grad(total, inputs)


@pytest.mark.parametrize("name", CALLS)
def test_lower_level_functions_and_gradients(name):
    found = []
    for library in (pb, torch):
        x = values(library, 3, 4)
        result = CALLS[name](library, x)
        found.append((flat(result), gradients(library, result, [x])))
    for ours, theirs in zip(*found):
        close(ours, theirs)


@pytest.mark.parametrize("name", NUMBERS)
def test_lower_level_functions_without_gradients(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # range is deprecated
        ours, theirs = (NUMBERS[name](lib, values(lib, 3, 4, grad=False)) for lib in (pb, torch))
    close(flat(ours), flat(theirs))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("name", "gates"), [("lstm", 4), ("gru", 3), ("rnn_tanh", 1)])
def test_recurrent_functions(name, gates, packed):
    found = []
    for library in (pb, torch):
        result, inputs = recurrent(library, name, gates, packed)
        found.append((flat(result), gradients(library, result, inputs)))
    for ours, theirs in zip(*found):
        close(ours, theirs)
