"""Runs a layer of torch and the same one here, and compares what both give."""

import inspect

import numpy as np


def tensors_in(m, kwargs):
    """Return keyword arguments with tensors for arrays."""
    return {k: m.tensor(v) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()}


def inputs_of(m, shapes):
    """Return the same inputs for both: numbers of a seed for shapes, arrays as they are."""
    made = []
    for number, shape in enumerate(shapes):
        if isinstance(shape, np.ndarray):
            made.append(m.tensor(shape))
        else:
            values = np.random.default_rng(number).normal(size=shape)
            made.append(m.tensor(values, requires_grad=True))
    return made


def run(m, layer, shapes):
    """Return the results of two calls in training and one after, and all gradients."""
    inputs = inputs_of(m, shapes)
    # An in-place activation may not write into a leaf.
    through = lambda: [x * 1 if x.requires_grad else x for x in inputs]  # noqa: E731
    results = [layer(*through()), layer(*through())]
    results.append(layer.eval()(*through()))
    layer.train()
    total = sum((r * (r.detach() + 1)).sum() for r in results)
    if total.requires_grad:
        total.backward()
    return results, [x.grad for x in (*inputs, *layer.parameters())]


def close(ours, theirs, tolerance=1e-9):
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), tolerance, 1e-11)


def signature_of(m, name, method):
    """Return arguments with kinds and defaults; a function, which is relu, by its name."""
    signature = inspect.signature(getattr(getattr(m.nn, name), method))
    return [
        (p.name, p.kind, "relu" if "relu" in getattr(p.default, "__name__", "") else p.default)
        for p in signature.parameters.values()
    ]


def numbers(m, *shape, seed=0):
    values = np.random.default_rng(seed).normal(size=shape)
    return m.tensor(values, requires_grad=True)
