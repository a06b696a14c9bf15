"""Fused steps of optimizers: values against NumPy, what they write, and what they refuse."""

import importlib
import threading

import numpy as np
import pytest

import pullback as pb
from pullback.testing.references import optim as references

SHAPES = [(3,), (2, 5), (), (0, 4), (70, 11)]
ADAM = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-3}
STEPS = {
    "sgd": {
        "weight_decay": 0.25,
        "momentum": 0.5,
        "lr": 0.1,
        "dampening": 0.25,
        "nesterov": False,
        "maximize": True,
        "is_first_step": False,
    },
    "adam": {**ADAM, "amsgrad": True, "maximize": False},
    "adamw": {**ADAM, "weight_decay": 0.5, "amsgrad": False, "maximize": True},
    "rmsprop": {
        "lr": 0.1,
        "alpha": 0.5,
        "eps": 0.5,
        "weight_decay": 0.25,
        "momentum": 0.5,
        "centered": True,
        "maximize": False,
    },
    "adagrad": {
        "lr": 0.1,
        "lr_decay": 0.5,
        "weight_decay": 0.25,
        "eps": 1e-3,
        "maximize": False,
    },
    "adadelta": {"lr": 0.5, "rho": 0.75, "eps": 1e-2, "weight_decay": 0.25, "maximize": True},
    "adamax": {**ADAM, "weight_decay": 0.25, "maximize": True},
    "nadam": {
        **ADAM,
        "weight_decay": 0.25,
        "momentum_decay": 0.5,
        "decoupled_weight_decay": False,
        "maximize": True,
    },
    "radam": {
        **ADAM,
        "beta2": 0.9375,
        "weight_decay": 0.25,
        "decoupled_weight_decay": True,
        "maximize": False,
    },
    "asgd": {
        "lr": 0.1,
        "lambd": 0.25,
        "alpha": 0.75,
        "t0": 2.0,
        "weight_decay": 0.25,
        "maximize": True,
    },
}
# Of steps, the lowest numbers in the states, and of states that are one number for each parameter.
STATES = {
    "adagrad": ((0,), ()),
    "adadelta": ((0, 0), ()),
    "adamax": ((-2, 0.5), ()),
    "nadam": ((-2, 0), (0.5,)),
    "radam": ((-2, 0), ()),
    "asgd": ((-2,), (0.5, 0.125)),
}
UNCOUNTED = ("sgd", "rmsprop", "adadelta")  # take no step numbers
TOLERANCE = {pb.float16: 2e-2, pb.bfloat16: 1e-1, pb.float32: 1e-5, pb.float64: 1e-12}


def drawn(rng, low, dtype, shapes=SHAPES, high=2):
    return [pb.tensor(rng.uniform(low, high, shape)).to(dtype) for shape in shapes]


def numbers(*values, shapes, dtype=pb.float32):
    """Return a tensor of one number for each shape."""
    return [pb.tensor(values[n % len(values)], dtype=dtype) for n in range(len(shapes))]


def arguments(name, dtype=pb.float32, shapes=SHAPES, seed=0, **changes):
    """Return the op, its lists, and its settings."""
    rng = np.random.default_rng(seed)
    settings = {**STEPS[name], **changes}
    lists = [drawn(rng, -2, dtype, shapes), drawn(rng, -2, dtype, shapes)]
    steps = numbers(*[float(n % 4 + 1) for n in range(len(shapes))], shapes=shapes)
    if name == "sgd":
        lists += [drawn(rng, -2, dtype, shapes) if settings["momentum"] else []]
    elif name == "rmsprop":
        lists += [drawn(rng, 6, dtype, shapes, 8)]
        lists += [drawn(rng, -1, dtype, shapes, 1) if settings["centered"] else []]
        lists += [drawn(rng, -2, dtype, shapes) if settings["momentum"] else []]
    elif name in STATES:
        lows, firsts = STATES[name]
        lists += [drawn(rng, low, dtype, shapes) for low in lows]
        wide = pb.promote_types(dtype, pb.float32)
        lists += [numbers(first, first / 2, 1.0, shapes=shapes, dtype=wide) for first in firsts]
        lists += [] if name in UNCOUNTED else [steps]
    else:
        lists += [drawn(rng, -2, dtype, shapes), drawn(rng, 0, dtype, shapes)]
        lists += [drawn(rng, 0, dtype, shapes) if settings["amsgrad"] else [], steps]
    return getattr(pb, f"_fused_{name}_"), lists, settings


def written(name, lists):
    """Return the lists that an op writes, one after the other."""
    kept = [lists[0], *lists[2:]]
    return [t for tensors in (kept if name in UNCOUNTED else kept[:-1]) for t in tensors]


def expected(name, lists, settings):
    wide = [[tensor.double().numpy() for tensor in tensors] for tensors in lists]
    settings = {
        key: value.double().numpy() if isinstance(value, pb.Tensor) else value
        for key, value in settings.items()
    }
    return getattr(references, name)(np, *wide, **settings)


def check(name, lists, settings, op):
    wanted = expected(name, lists, settings)
    assert op(*lists, **settings) is None
    for tensor, value in zip(written(name, lists), wanted, strict=True):
        np.testing.assert_allclose(
            tensor.double().numpy(),
            value,
            rtol=TOLERANCE[tensor.dtype],
            atol=TOLERANCE[tensor.dtype],
        )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("name", STEPS)
def test_values_are_those_of_the_papers(name, dtype):
    op, lists, settings = arguments(name, dtype)
    check(name, lists, settings, op)


@pytest.mark.parametrize("name", STEPS)
def test_many_tensors_of_several_dtypes_and_steps(name):
    """More than one call of the kernel takes, and dtypes in turn."""
    parts = [arguments(name, dtype, SHAPES * 5, seed) for seed, dtype in enumerate(TOLERANCE)]
    op, _, settings = parts[0]
    lists = [
        [tensor for group in zip(*tensors) for tensor in group]
        for tensors in zip(*(part[1] for part in parts))
    ]
    check(name, lists, settings, op)


def odd_layouts(tensor):
    """Return tensors with these elements in other layouts."""
    wide = pb.zeros((*tensor.shape, 2), dtype=tensor.dtype)
    yield wide[..., 1].copy_(tensor)
    if tensor.ndim == 2:
        yield tensor.t().contiguous().t()
    yield (-tensor)._neg_view()


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("position", range(3))
def test_strided_transposed_and_negated_tensors(name, position):
    op, lists, settings = arguments(name, shapes=[(3, 4), (3, 4), (3, 4)])
    for layout in range(3):
        other = [[t.clone() for t in tensors] for tensors in lists]
        if other[position]:
            other[position][1] = list(odd_layouts(other[position][1]))[layout]
        check(name, other, settings, op)


@pytest.mark.parametrize("name", STEPS)
def test_scaled_gradients_and_steps_that_are_left_out(name):
    op, lists, settings = arguments(name)
    settings["grad_scale"] = pb.tensor(4.0)
    settings["found_inf"] = pb.tensor(0.0)
    grads = [grad / 4 for grad in lists[1]]
    check(name, lists, settings, op)
    for grad, wanted in zip(lists[1], grads):
        assert grad.equal(wanted)
    before = [tensor.clone() for tensors in lists for tensor in tensors]
    op(*lists, **{**settings, "found_inf": pb.tensor(1.0)})
    for tensor, kept in zip([t for tensors in lists for t in tensors], before, strict=True):
        assert tensor.equal(kept)


def test_infinite_parameters_stay_without_weight_decay():
    op, lists, settings = arguments("adam", shapes=[(4,)], weight_decay=0.0)
    lists[0][0].fill_(np.inf)
    op(*lists, **settings)
    assert lists[0][0].isposinf().all()


def test_buffers_are_not_read_in_the_first_step():
    op, lists, settings = arguments("sgd", is_first_step=True, maximize=False, weight_decay=0.0)
    for buffer in lists[2]:
        buffer.fill_(np.nan)
    op(*lists, **settings)
    for buffer, grad in zip(lists[2], lists[1], strict=True):
        assert buffer.equal(grad)


def test_unused_lists_may_be_empty_or_full():
    op, lists, settings = arguments("sgd", momentum=0.0)
    full = [*lists[:2], [pb.zeros(1) for _ in SHAPES]]
    check("sgd", lists, settings, op)
    op(*full, **settings)
    assert all(buffer.item() == 0 for buffer in full[2])


@pytest.mark.parametrize("name", STEPS)
def test_nothing_to_do(name):
    op, lists, settings = arguments(name, shapes=[])
    assert op(*lists, **settings) is None


@pytest.mark.parametrize("name", STEPS)
def test_versions_move_and_observers_see_one_op(name):
    pytest.importorskip("pullback_profiler")
    op, lists, settings = arguments(name)
    read = [t for tensors in lists for t in tensors]
    read = [t for t in read if not any(t is w for w in written(name, lists))]
    before = [t._version for t in read], [t._version for t in written(name, lists)]
    with pb.autograd.profiler.profile() as profile:
        op(*lists, **settings)
    assert [t._version for t in read] == before[0]
    assert [t._version for t in written(name, lists)] == [v + 1 for v in before[1]]
    assert ops_of(profile) == [f"pullback::_fused_{name}_"]


def test_a_saved_parameter_is_known_to_be_overwritten():
    x, w = pb.ones(3, requires_grad=True), pb.ones(3)
    y = x * w
    op, lists, settings = arguments("sgd", shapes=[(3,)])
    op([w], lists[1], lists[2], **settings)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("name", STEPS)
def test_writes_that_autograd_forbids(name):
    op, lists, settings = arguments(name, shapes=[(3,), (2,)])
    lists[0][1].requires_grad_()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used"):
        op(*lists, **settings)
    with pb.no_grad():
        check(name, lists, settings, op)
    lists[0][1] = lists[0][1] * 2
    with pytest.raises(RuntimeError, match="the derivative is not implemented"):
        op(*lists, **settings)
    lists[0][1] = lists[0][1].detach()
    lists[1][0] = lists[1][0].requires_grad_() * 1
    with pytest.raises(RuntimeError, match="the derivative is not implemented"):
        op(*lists, **settings)
    lists[1][0] = lists[1][0].detach()
    lists[0][1] = pb.zeros(1).expand(2)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        op(*lists, **settings)


def test_inside_transforms():
    op, lists, settings = arguments("adam", shapes=[(3,)])

    def run(grad):
        op(lists[0], [grad], *lists[2:], **settings)
        return grad

    with pytest.raises(NotImplementedError, match="vmap with _fused_adam_"):
        pb.func.vmap(run)(pb.ones(2, 3))
    with pytest.raises(NotImplementedError, match="forward AD with _fused_adam_"):
        pb.func.jvp(run, (pb.ones(3),), (pb.ones(3),))


def test_meta_tensors_are_checked_only():
    op, lists, settings = arguments("adam", amsgrad=False)
    meta = [[tensor.to("meta") for tensor in tensors] for tensors in lists]
    versions = [tensor._version for tensor in meta[0]]
    assert op(*meta, **settings) is None
    assert [tensor._version for tensor in meta[0]] == [v + 1 for v in versions]
    meta[1][0] = pb.zeros(9, device="meta")
    with pytest.raises(RuntimeError, match=r"expected shape \[3\] for grads\[0\]"):
        op(*meta, **settings)


def replace(lists, position, number, value):
    return [
        [value if (i, k) == (position, number) else t for k, t in enumerate(tensors)]
        for i, tensors in enumerate(lists)
    ]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (
            lambda ls: [ls[0], ls[1][:1], *ls[2:]],
            RuntimeError,
            r"expected 2 tensors in grads, .* 1",
        ),
        (lambda ls: [*ls[:4], [], ls[5]], RuntimeError, "expected 2 tensors in max_exp_avg_sqs"),
        (lambda ls: [*ls[:5], ls[5] * 2], RuntimeError, "expected 2 tensors in state_steps, .* 4"),
        (lambda ls: replace(ls, 2, 1, pb.ones(5)), RuntimeError, r"\[2\] for exp_avgs\[1\].*\[5\]"),
        (
            lambda ls: replace(ls, 3, 0, pb.ones(3).double()),
            RuntimeError,
            r"expected scalar type float32 for exp_avg_sqs\[0\], .* but found float64",
        ),
        (
            lambda ls: replace(ls, 5, 0, pb.ones(2)),
            RuntimeError,
            r"expected one float32 or float64 number in state_steps\[0\]",
        ),
        (lambda ls: replace(ls, 5, 0, pb.tensor(1)), RuntimeError, r"a int64 tensor of shape \[\]"),
        (lambda ls: replace(ls, 1, 1, 2.0), TypeError, "as element 1 in argument 1, but got float"),
        (lambda ls: [pb.ones(3), *ls[1:]], TypeError, "must be tuple of Tensors, not Tensor"),
        (lambda ls: replace(ls, 1, 0, pb.ones(3, device="meta")), RuntimeError, "same device"),
        (
            lambda ls: [[t.long() for t in tensors] for tensors in ls[:5]] + ls[5:],
            NotImplementedError,
            "not implemented for 'Long'",
        ),
        (
            lambda ls: [[t.cfloat() for t in tensors] for tensors in ls[:5]] + ls[5:],
            NotImplementedError,
            "not implemented for 'ComplexFloat'",
        ),
    ],
)
def test_calls_that_are_refused(change, error, text):
    op, lists, settings = arguments("adam", shapes=[(3,), (2,)])
    before = [tensor.clone() for tensors in lists for tensor in tensors]
    versions = [tensor._version for tensors in lists for tensor in tensors]
    with pytest.raises(error, match=text):
        op(*change(lists), **settings)
    for tensor, kept in zip([t for tensors in lists for t in tensors], before, strict=True):
        assert tensor.equal(kept)
    assert [tensor._version for tensors in lists for tensor in tensors] == versions


@pytest.mark.parametrize("name", STEPS)
def test_bits_do_not_depend_on_threads(name):
    shapes, results = [(300, 301), (77,), (200_000,)], []
    before = pb.get_num_threads()
    try:
        for count in (1, 2, 3):
            pb.set_num_threads(count)
            op, lists, settings = arguments(name, shapes=shapes)
            op(*lists, **settings)
            results.append([t.numpy().tobytes() for t in written(name, lists)])
    finally:
        pb.set_num_threads(before)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("name", STEPS)
def test_primitives_have_the_names_of_the_settings(name):
    """Kernels in Python get the parameters by name, and core passes them in order."""
    primitives = importlib.import_module("pullback.ops.table.primitives").PRIMITIVES
    entry = pb.ops.ENTRIES[f"_fused_{name}_"]
    params = [param.partition(":")[0] for param in primitives[entry.kernel].params]
    settings = [a.name for a in entry.arguments if a.type in ("float", "bool")]
    assert params == ["count", *settings]


def ops_of(profile):
    names = [event.name for event in profile.function_events]
    return [name for name in names if not name.startswith("Optimizer.")]


def group_of(shapes, dtype=pb.float32):
    rng = np.random.default_rng(3)
    params = [pb.tensor(rng.normal(size=s)).to(dtype).requires_grad_() for s in shapes]
    for param in params:
        param.grad = pb.tensor(rng.normal(size=param.shape)).to(dtype)
    return params


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"momentum": 0.9, "weight_decay": 0.1, "nesterov": True}),
        ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
        ("AdamW", {"maximize": True}),
        ("RMSprop", {"centered": True, "momentum": 0.5}),
        ("Adagrad", {"lr_decay": 0.1}),
        ("Adadelta", {"weight_decay": 0.1}),
        ("Adamax", {"maximize": True}),
        ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
        ("RAdam", {"betas": (0.8, 0.9)}),
        ("ASGD", {"t0": 1.0, "weight_decay": 0.1}),
    ],
)
def test_optimizers_take_one_fused_step_for_a_group(name, options):
    """The loop over parameters, with ``foreach=False``, gives the same parameters and state."""
    pytest.importorskip("pullback_profiler")
    fused, plain = group_of(SHAPES, pb.float64), group_of(SHAPES, pb.float64)
    one = getattr(pb.optim, name)(fused, **options)
    other = getattr(pb.optim, name)(plain, foreach=False, **options)
    for _ in range(9):
        one.step()
        other.step()
    for x, y in zip(fused, plain, strict=True):
        np.testing.assert_allclose(x.detach(), y.detach(), rtol=1e-12, atol=1e-12)
        for key, value in one.state[x].items():
            np.testing.assert_allclose(value, other.state[y][key], rtol=1e-12, atol=1e-12)
    fused[1].grad = None
    before = fused[1].detach().clone()
    with pb.autograd.profiler.profile() as profile:
        one.step()
    assert ops_of(profile) == [f"pullback::_fused_{name.lower()}_"]
    assert fused[1].equal(before)


def test_complex_parameters_take_the_loop():
    params = group_of([(3,)], pb.complex64) + group_of([(2,)])
    optimizer = pb.optim.Adam(params)
    optimizer.step()
    assert [optimizer.state[p]["step"].item() for p in params] == [1, 1]


def test_zero_grad_drops_or_fills_gradients():
    params = group_of([(3,), (2,)])
    optimizer = pb.optim.SGD(params)
    grads = [p.grad for p in params]
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad is g and not g.any() for p, g in zip(params, grads, strict=True))
    optimizer.zero_grad()
    assert [p.grad for p in params] == [None, None]


def test_lists_that_another_thread_changes():
    """A step keeps to the tensors that it was called with."""
    op, lists, settings = arguments("adam", shapes=[(50_000,)] * 40)
    wanted = expected("adam", lists, settings)
    kept = [list(tensors) for tensors in lists]
    before, started = pb.get_num_threads(), threading.Event()

    def clear():
        started.wait()
        for tensors in lists:
            tensors.clear()

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        pb.set_num_threads(1)
        started.set()
        try:
            op(*lists, **settings)
        except RuntimeError:  # it came before the call
            assert not lists[0]
            return
    finally:
        pb.set_num_threads(before)
        thread.join()
    for tensor, value in zip(written("adam", kept), wanted, strict=True):
        np.testing.assert_allclose(tensor, value, rtol=1e-5, atol=1e-5)
