"""Steps of optimizers through their capsules, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import DTYPES, FLOATING, run_kernel
from layouts import sample

from pullback.testing.kernel_calls import E_VALUE, KernelError
from pullback.testing.references import optim as references

ROOM = {"f16": 4e-3, "bf16": 3e-2, "f32": 1e-5, "f64": 1e-13}
SIZES = (1, 7, 0, 64, 300, 5000)
ADAM = (0.1, 0.9, 0.99, 0.25, 1e-3)  # lr, beta1, beta2, weight_decay, eps
# Primitive, reference, lists of states with their bounds, steps, parameters in order.
CASES = [
    ("sgd_step", "sgd", [], False, (0.25, 0.0, 0.1, 0.0, 0, 1, 0)),
    ("sgd_step", "sgd", [(-4, 4)], False, (0.0, 0.5, 0.1, 0.25, 0, 0, 0)),
    ("sgd_step", "sgd", [(-4, 4)], False, (0.25, 0.5, 0.1, 0.0, 1, 1, 0)),
    ("sgd_step", "sgd", [(-4, 4)], False, (0.25, 0.5, 0.1, 0.25, 0, 0, 1)),
    ("adam_step", "adam", [(-4, 4), (0, 4)], True, (*ADAM, 0, 0)),
    ("adam_step", "adam", [(-4, 4), (0, 4), (0, 4)], True, (*ADAM, 1, 1)),
    ("adamw_step", "adamw", [(-4, 4), (0, 4)], True, (*ADAM, 0, 1)),
    ("adamw_step", "adamw", [(-4, 4), (0, 4), (0, 4)], True, (*ADAM, 1, 0)),
    ("rmsprop_step", "rmsprop", [(20, 24)], False, (0.1, 0.5, 0.01, 0.25, 0.0, 0, 1)),
    ("rmsprop_step", "rmsprop", [(20, 24), (-4, 4)], False, (0.1, 0.5, 0.01, 0.25, 0.5, 0, 0)),
    ("rmsprop_step", "rmsprop", [(20, 24), (-1, 1)], False, (0.1, 0.5, 0.01, 0.0, 0.0, 1, 0)),
    ("rmsprop_step", "rmsprop", [(20, 24), (-1, 1), (-4, 4)], False,
     (0.1, 0.5, 0.01, 0.25, 0.5, 1, 0)),
    ("adagrad_step", "adagrad", [(0, 4)], True, (0.1, 0.5, 0.25, 1e-3, 0)),
    ("adagrad_step", "adagrad", [(0, 4)], True, (0.1, 0.0, 0.0, 1e-3, 1)),
    ("adadelta_step", "adadelta", [(0, 4), (0, 4)], False, (0.5, 0.75, 0.01, 0.25, 1)),
    ("adamax_step", "adamax", [(-4, 4), (1, 4)], True, (0.1, 0.9, 0.99, 0.25, 1e-3, 1)),
    ("nadam_step", "nadam", [(-4, 4), (0, 4)], True, (*ADAM, 0.5, 0, 1)),
    ("nadam_step", "nadam", [(-4, 4), (0, 4)], True, (*ADAM, 0.5, 1, 0)),
    ("radam_step", "radam", [(-4, 4), (0, 4)], True, (0.1, 0.9, 0.6, 0.25, 1e-3, 0, 1)),
    ("radam_step", "radam", [(-4, 4), (0, 4)], True, (*ADAM, 1, 0)),
    ("asgd_step", "asgd", [(-4, 4)], True, (0.1, 0.25, 0.75, 2.0, 0.25, 1)),
]  # fmt: skip
NAMES = {
    "sgd": "weight_decay momentum lr dampening nesterov maximize is_first_step",
    "adam": "lr beta1 beta2 weight_decay eps amsgrad maximize",
    "adamw": "lr beta1 beta2 weight_decay eps amsgrad maximize",
    "rmsprop": "lr alpha eps weight_decay momentum centered maximize",
    "adagrad": "lr lr_decay weight_decay eps maximize",
    "adadelta": "lr rho eps weight_decay maximize",
    "adamax": "lr beta1 beta2 weight_decay eps maximize",
    "nadam": "lr beta1 beta2 weight_decay eps momentum_decay decoupled_weight_decay maximize",
    "radam": "lr beta1 beta2 weight_decay eps decoupled_weight_decay maximize",
    "asgd": "lr lambd alpha t0 weight_decay maximize",
}
# Of steps with states that are one number for each parameter: these.
NUMBERS = {"nadam_step": (0.5,), "asgd_step": (1.0, 0.125)}


def drawn(dtype, bounds, seed, sizes):
    rng = np.random.default_rng(seed)
    return [rng.uniform(*bounds, n).astype(DTYPES[dtype]) for n in sizes]


def operands(dtype, states, steps, sizes=SIZES, states_of_one=()):
    """Return the lists that are written, the gradients and the step numbers."""
    outs = [drawn(dtype, bounds, k, sizes) for k, bounds in enumerate([(-2, 2), *states])]
    outs += [
        [np.asarray(one / (k % 2 + 1), np.float32) for k in range(len(sizes))]
        for one in states_of_one
    ]
    grads = [sample(dtype, (n,), seed=9 + k) for k, n in enumerate(sizes)]
    numbers = [np.asarray([k % 3 + 1], np.float32) for k in range(len(sizes))] if steps else []
    return outs, grads, numbers


def expected(reference, outs, grads, numbers, params):
    wide = [[array.astype(np.float64) for array in arrays] for arrays in [*outs, grads]]
    settings = dict(zip(NAMES[reference].split(), params, strict=True))
    lists, grads = wide[:-1], wide[-1]
    states = lists[1:]
    if reference in ("sgd", "adam", "adamw"):
        states += [[]] * ((1 if reference == "sgd" else 3) - len(states))
    elif reference == "rmsprop":
        averages = [states[1] if settings["centered"] else []]
        states = [states[0], *averages, states[-1] if settings["momentum"] else []]
    rest = [[number[0] for number in numbers]] if numbers else []
    return getattr(references, reference)(np, lists[0], grads, *states, *rest, **settings)


def run(primitive, outs, grads, numbers, params, flag=()):
    flat = [array for arrays in outs for array in arrays]
    run_kernel(primitive, flat, [*grads, *numbers, *flag], len(grads), *params)
    return flat


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize(("primitive", "reference", "states", "steps", "params"), CASES)
def test_steps(dtype, primitive, reference, states, steps, params):
    outs, grads, numbers = operands(dtype, states, steps, states_of_one=NUMBERS.get(primitive, ()))
    wanted = expected(reference, outs, grads, numbers, params)
    kept = [grad.copy() for grad in grads]
    for array, value in zip(run(primitive, outs, grads, numbers, params), wanted, strict=True):
        room = max(ROOM[dtype], 1e-6 if primitive in NUMBERS else 0)  # these are float32
        np.testing.assert_allclose(array.astype(float), value, rtol=room, atol=8 * room)
    for grad, before in zip(grads, kept, strict=True):
        np.testing.assert_array_equal(grad, before)


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_an_element_has_the_same_bits_wherever_it_stands(dtype):
    """Threads, blocks, the ends of vectors: none changes a result."""
    _, _, states, steps, params = CASES[4]
    outs, grads, numbers = operands(dtype, states, steps, (70_003,))
    whole = [array.copy() for array in run("adam_step", [[o[0].copy()] for o in outs], grads,
                                           numbers, params)]  # fmt: skip
    for first, last in ((0, 1), (5, 38), (69_000, 70_003), (1, 70_000)):
        parts = [[out[0][first:last].copy()] for out in outs]
        found = run("adam_step", parts, [grads[0][first:last].copy()], numbers, params)
        for array, full in zip(found, whole, strict=True):
            assert array.tobytes() == full[first:last].tobytes()


def test_flag_leaves_everything_as_it_is():
    _, _, states, steps, params = CASES[4]
    for value in (1, 0):
        outs, grads, numbers = operands("f32", states, steps)
        before = [array.copy() for arrays in outs for array in arrays]
        found = run("adam_step", outs, grads, numbers, params, [np.asarray([value], np.float32)])
        same = all(np.array_equal(x, y) for x, y in zip(found, before, strict=True))
        assert same == bool(value)


def test_nan_wins_in_amsgrad():
    _, _, states, steps, params = CASES[5]
    outs, grads, numbers = operands("f32", states, steps, (4,))
    grads[0][1] = np.nan
    outs[3][0][2] = np.nan
    run("adam_step", outs, grads, numbers, params)
    np.testing.assert_array_equal(np.isnan(outs[3][0]), [False, True, True, False])


def test_lists_of_other_lengths_are_refused():
    outs, grads, numbers = operands("f32", [(-1, 1), (0, 1)], True)
    for wrong in ([outs[:2], grads, numbers], [outs, grads, numbers[:2]]):
        with pytest.raises(KernelError) as caught:
            run("adam_step", *wrong, (*ADAM, 0, 0))
        assert caught.value.code == E_VALUE
