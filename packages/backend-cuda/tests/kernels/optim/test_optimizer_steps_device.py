"""Steps of optimizers over lists of tensors, against the kernels of the CPU backend."""

import numpy as np
import pytest
from primitive_calls import (
    FLOATING,
    STORED,
    assert_close,
    begin,
    reference,
    run_primitive,
    sample,
)

from pullback.testing.kernel_calls import E_VALUE, KernelError, Scalar

TOLERANCES = {"f16": 2**-9, "bf16": 2**-6, "f32": 2**-20, "f64": 2**-43}
SIZES = (3, 0, 64, 5000, 4096, 9001)
ADAM = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.25, "eps": 1e-3}
SGD = {"weight_decay": 0.25, "momentum": 0.5, "lr": 0.1, "dampening": 0.25}
RMSPROP = {"lr": 0.1, "alpha": 0.5, "eps": 0.01, "weight_decay": 0.25, "momentum": 0.5}
ADAGRAD = {"lr": 0.1, "lr_decay": 0.5, "weight_decay": 0.25, "eps": 1e-3}
# Primitive, bounds of the states, whether it counts steps, parameters.
CASES = [
    ("sgd_step", [], 0, {**SGD, "momentum": 0.0, "nesterov": 0, "maximize": 1, "is_first_step": 0}),
    ("sgd_step", [(-4, 4)], 0, {**SGD, "nesterov": 1, "maximize": 0, "is_first_step": 0}),
    ("sgd_step", [(-4, 4)], 0, {**SGD, "nesterov": 0, "maximize": 0, "is_first_step": 1}),
    ("adam_step", [(-4, 4), (0, 4)], 1, {**ADAM, "amsgrad": 0, "maximize": 1}),
    ("adam_step", [(-4, 4), (0, 4), (0, 4)], 1, {**ADAM, "amsgrad": 1, "maximize": 0}),
    ("adamw_step", [(-4, 4), (0, 4)], 1, {**ADAM, "amsgrad": 0, "maximize": 0}),
    ("rmsprop_step", [(20, 24)], 0, {**RMSPROP, "momentum": 0.0, "centered": 0, "maximize": 1}),
    ("rmsprop_step", [(20, 24), (-4, 4)], 0, {**RMSPROP, "centered": 0, "maximize": 0}),
    ("rmsprop_step", [(20, 24), (-1, 1), (-4, 4)], 0, {**RMSPROP, "centered": 1, "maximize": 0}),
    ("adagrad_step", [(0, 4)], 1, {**ADAGRAD, "maximize": 1}),
]


@pytest.fixture(autouse=True)
def device(request):
    begin(request)


def operands(name, states, steps, sizes=SIZES):
    """Return what is written, list by list, and the gradients with the step numbers."""
    outs = [
        sample(name, (n,), seed, *bounds)
        for seed, bounds in enumerate([(-2, 2), *states])
        for n in sizes
    ]
    grads = [sample(name, (n,), 9 + k) for k, n in enumerate(sizes)]
    numbers = [np.asarray([k % 3 + 1], np.float32) for k in range(len(sizes))] if steps else []
    return outs, [*grads, *numbers]


def run(primitive, outs, ins, count, params, host=False):
    """Run a primitive; with ``host`` the step numbers are on the host's side."""
    if host:
        ins = [*ins[:count], *(Scalar(number[0]) for number in ins[count:])]
    run_primitive(primitive, outs, ins, count, *params.values())


@pytest.mark.parametrize("name", FLOATING)
@pytest.mark.parametrize(("primitive", "states", "steps", "params"), CASES)
@pytest.mark.parametrize("host", [False, True])
def test_steps(name, primitive, states, steps, params, host):
    outs, ins = operands(name, states, steps)
    wanted = [array.copy() for array in outs]
    reference(primitive, wanted, ins, count=len(SIZES), **params)
    run(primitive, outs, ins, len(SIZES), params, host and steps)
    for array, value in zip(outs, wanted, strict=True):
        assert_close(array, value, TOLERANCES[name])


def test_elements_may_begin_anywhere():
    primitive, states, steps, params = CASES[3]
    for first in range(4):
        outs, ins = operands("f32", states, steps, (37,))
        rooms = [np.zeros(41, np.float32) for _ in outs]
        shifted = [room[first : first + 37] for room in rooms]
        for view, array in zip(shifted, outs, strict=True):
            view[...] = array
        reference(primitive, outs, ins, count=1, **params)
        run(primitive, shifted, ins, 1, params)
        for room, view, value in zip(rooms, shifted, outs, strict=True):
            assert_close(view, value, TOLERANCES["f32"])
            assert not room[:first].any() and not room[first + 37 :].any()


def test_flag_leaves_everything_as_it_is():
    primitive, states, steps, params = CASES[3]
    for flag in (1, 0):
        outs, ins = operands("f64", states, steps)
        before = [array.copy() for array in outs]
        run(primitive, outs, [*ins, np.asarray([flag], np.float32)], len(SIZES), params)
        same = all(np.array_equal(x, y) for x, y in zip(outs, before, strict=True))
        assert same == bool(flag)


def test_steps_may_be_float64():
    primitive, states, steps, params = CASES[9]
    outs, ins = operands("f32", states, steps)
    ins[len(SIZES) :] = [number.astype(STORED["f64"]) for number in ins[len(SIZES) :]]
    wanted = [array.copy() for array in outs]
    reference(primitive, wanted, ins, count=len(SIZES), **params)
    run(primitive, outs, ins, len(SIZES), params)
    for array, value in zip(outs, wanted, strict=True):
        assert_close(array, value, TOLERANCES["f32"])


def test_lists_of_other_lengths_are_refused():
    primitive, states, steps, params = CASES[3]
    outs, ins = operands("f32", states, steps)
    for wrong in ((outs[:-1], ins), (outs, ins[:-2])):
        with pytest.raises(KernelError) as caught:
            run_primitive(primitive, *wrong, len(SIZES), *params.values())
        assert caught.value.code == E_VALUE


@pytest.mark.parametrize("fused", [None, True])
def test_counters_are_on_the_host_or_on_the_device(fused):
    import pullback as pb

    results = []
    for place in ("cpu", "cuda"):
        params = [
            pb.tensor(sample("f32", shape, 3), device=place).requires_grad_()
            for shape in ((3,), (40, 7))
        ]
        optimizer = pb.optim.Adam(params, lr=0.1, amsgrad=True, fused=fused)
        for seed in range(3):
            for param in params:
                param.grad = pb.tensor(sample("f32", tuple(param.shape), seed), device=place)
            optimizer.step()
        steps = [optimizer.state[param]["step"] for param in params]
        assert [step.item() for step in steps] == [3, 3]
        assert {step.device.type for step in steps} == {place if fused else "cpu"}
        results.append([param.detach().cpu().numpy() for param in params])
    for one, other in zip(*results, strict=True):
        assert_close(one, other, TOLERANCES["f32"])


@pytest.mark.parametrize("flag", [0.0, 1.0])
def test_flag_on_the_device_keeps_scaled_gradients_too(flag):
    import pullback as pb

    lists = [[pb.tensor(sample("f32", (9,), seed), device="cuda")] for seed in range(2)]
    before = [tensors[0].cpu() for tensors in lists]
    scaling = {
        "grad_scale": pb.tensor(4.0, device="cuda"),
        "found_inf": pb.tensor(flag, device="cuda"),
    }
    params = {**SGD, "momentum": 0.0, "nesterov": False, "maximize": False, "is_first_step": False}
    pb._fused_sgd_(*lists, [], **params, **scaling)
    scaled = before[1] if flag else before[1] / 4
    step = 0 if flag else 0.1 * (scaled + 0.25 * before[0])
    for tensors, wanted in zip(lists, (before[0] - step, scaled), strict=True):
        np.testing.assert_allclose(tensors[0].cpu().numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5)
