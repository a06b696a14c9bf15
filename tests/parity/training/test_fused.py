"""Fused steps of optimizers write what torch's write."""

import itertools

import numpy as np
import pytest

import pullback

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

SHAPES = [(3,), (2, 5), (), (0, 4), (130, 7)]
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-14}
MOMENTS = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-3}
# Settings of each step, the lists of states with their bounds, whether it counts steps.
STEPS = {
    "sgd": ({"lr": 0.1, "momentum": 0.5, "dampening": 0.25}, [(-2, 2)], False),
    "adam": (MOMENTS, [(-2, 2), (0, 2), (0, 2)], True),
    "adamw": (MOMENTS, [(-2, 2), (0, 2), (0, 2)], True),
    "adagrad": ({"lr": 0.1, "lr_decay": 0.25, "eps": 1e-3}, [(0, 2)], True),
}
FLAGS = {"sgd": ("nesterov", "is_first_step"), "adam": ("amsgrad",), "adamw": ("amsgrad",)}
CHOICES = [
    (name, {"weight_decay": decay, "maximize": maximize, **dict(zip(FLAGS.get(name, ()), on))})
    for name in STEPS
    for decay, maximize in ((0.0, False), (0.25, True))
    for on in itertools.product((False, True), repeat=len(FLAGS.get(name, ())))
]


def results(library, name, choice, dtype, scale):
    settings, bounds, counts = STEPS[name]
    rng = np.random.default_rng(5)
    kind = getattr(library, dtype)

    def drawn(low, high):
        return [library.tensor(rng.uniform(low, high, shape)).to(kind) for shape in SHAPES]

    lists = [drawn(-2, 2), drawn(-2, 2), *(drawn(*each) for each in bounds)]
    if choice.get("amsgrad") is False:
        lists[-1] = []
    if counts:
        lists.append([library.tensor(float(n + 1)) for n in range(len(SHAPES))])
    scaling = {}
    if scale is not None:
        scaling = {"grad_scale": library.tensor(4.0), "found_inf": library.tensor(scale)}
    assert getattr(library, f"_fused_{name}_")(*lists, **settings, **choice, **scaling) is None
    return [tensor.double().numpy() for tensors in lists for tensor in tensors]


# Whole vectors of 16-bit buffers are wrong in torch 2.13's kernel of SGD.
CALLS = [
    (name, choice, dtype)
    for (name, choice), dtype in itertools.product(CHOICES, TOLERANCE)
    if name != "sgd" or dtype in ("float32", "float64")
]


@pytest.mark.parametrize(("name", "choice", "dtype"), CALLS)
def test_parameters_gradients_and_states_after_a_step(name, choice, dtype):
    found = results(pullback, name, choice, dtype, None)
    wanted = results(torch, name, choice, dtype, None)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("found_inf", [0.0, 1.0])
@pytest.mark.parametrize("name", STEPS)
def test_scaled_gradients(name, found_inf):
    choice = next(choice for given, choice in CHOICES if given == name)
    found = results(pullback, name, choice, "float32", found_inf)
    wanted = results(torch, name, choice, "float32", found_inf)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", STEPS)
def test_arguments(name):
    """Names, order and defaults; torch has a second signature with lr as a tensor."""
    schema = torch._C._jit_get_schemas_for_operator(f"aten::_fused_{name}_")[0]
    entry = pullback.ops.ENTRIES[f"_fused_{name}_"]
    assert [(a.name, a.kwarg_only) for a in schema.arguments] == [
        (a.name, a.keyword_only) for a in entry.arguments
    ]
    assert [a.has_default_value() for a in schema.arguments] == [
        not a.required for a in entry.arguments
    ]
