"""Optimizers take torch's steps, and have its arguments, state and state dicts."""

import importlib
import inspect

import numpy as np
import pytest

import pullback

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

NAMES = (
    "ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS Muon NAdam RAdam RMSprop Rprop SGD "
    "SparseAdam"
).split()
LIBRARIES = {"pullback": pullback, "torch": torch}
SHAPES = [(3,), (2, 3), (4, 1, 2), ()]
TOLERANCE = {"float32": 1e-6, "float64": 1e-12, "complex64": 2e-6, "complex128": 1e-12}
OPTIONS = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.05}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "maximize": True}),
    ("SGD", {"momentum": 0.9, "weight_decay": 0.05, "nesterov": True, "fused": True}),
    ("SGD", {"momentum": 0.9, "foreach": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-5, "weight_decay": 0.05}),
    ("Adam", {"amsgrad": True, "maximize": True}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adam", {"weight_decay": 0.1, "fused": True}),
    ("Adam", {"amsgrad": True, "foreach": True}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.2, "amsgrad": True, "fused": True}),
    ("RMSprop", {}),
    ("RMSprop", {"alpha": 0.9, "momentum": 0.8, "centered": True, "weight_decay": 0.05}),
    ("RMSprop", {"centered": True, "maximize": True}),
    ("RMSprop", {"momentum": 0.8, "foreach": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr_decay": 0.02, "weight_decay": 0.05, "initial_accumulator_value": 0.3}),
    ("Adagrad", {"maximize": True, "fused": True}),
    ("SGD", {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.05, "foreach": False}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.05, "foreach": False}),
    ("AdamW", {"maximize": True, "foreach": False}),
    ("RMSprop", {"momentum": 0.8, "centered": True, "weight_decay": 0.05, "foreach": False}),
    ("Adagrad", {"lr_decay": 0.02, "weight_decay": 0.05, "foreach": False}),
    ("ASGD", {}),
    ("ASGD", {"lambd": 0.01, "alpha": 0.6, "t0": 20, "weight_decay": 0.05, "maximize": True}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.7, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.05, "maximize": True}),
    ("Adafactor", {}),
    ("Adafactor", {"beta2_decay": -0.6, "eps": (1e-20, 0.1), "d": 1.5, "weight_decay": 0.1}),
    ("Adafactor", {"maximize": True, "foreach": True}),
    ("Adamax", {}),
    ("Adamax", {"betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.05, "maximize": True}),
    ("Muon", {}),
    ("Muon", {"nesterov": False, "momentum": 0.8, "adjust_lr_fn": "match_rms_adamw"}),
    ("NAdam", {}),
    ("NAdam", {"momentum_decay": 0.1, "weight_decay": 0.05, "maximize": True}),
    ("NAdam", {"weight_decay": 0.05, "decoupled_weight_decay": True, "foreach": True}),
    ("RAdam", {}),
    ("RAdam", {"betas": (0.8, 0.9), "weight_decay": 0.05, "maximize": True}),
    ("RAdam", {"weight_decay": 0.05, "decoupled_weight_decay": True, "foreach": True}),
    ("Rprop", {}),
    ("Rprop", {"etas": (0.4, 1.3), "step_sizes": (1e-3, 0.05), "maximize": True}),
]


def make(library, name, options, dtype, **more):
    """Return an optimizer of a library with parameters of every shape, the same in all."""
    drawn = np.random.default_rng(7)
    params = []
    for shape in SHAPES:
        if name == "Muon" and len(shape) != 2:
            continue
        value = np.asarray(drawn.normal(size=shape) + 1j * drawn.normal(size=shape))
        value = (value if dtype.startswith("complex") else value.real).astype(dtype)
        params.append(library.tensor(value.tolist(), dtype=getattr(library, dtype)))
        params[-1].requires_grad_(True)
    return params, getattr(library.optim, name)(params, **options, **more)


def numbers(tensor):
    return tensor.detach().resolve_conj().numpy().copy()


def train(library, params, optimizer, steps, seed=0):
    """Make steps with gradients that depend on the parameters and on a number."""
    drawn = np.random.default_rng(seed)
    for step in range(steps):
        for param in params:
            if step and drawn.random() < 0.1:  # a parameter that the loss of a step does not use
                param.grad = None
                continue
            noise = drawn.normal(size=tuple(param.shape))
            value = 0.3 * numbers(param) + noise.astype(numbers(param).dtype)
            param.grad = library.tensor(value.tolist(), dtype=param.dtype)
        optimizer.step()


def assert_near(got, wanted, tolerance):
    scale = max(np.abs(wanted).max(initial=0), 1e-3)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * scale)


def assert_same_state(ours, theirs, tolerance):
    ours, theirs = ours.state_dict(), theirs.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    assert ours["state"].keys() == theirs["state"].keys()
    for number, state in theirs["state"].items():
        assert list(ours["state"][number]) == list(state)
        for key, value in state.items():
            got = ours["state"][number][key]
            assert type(got).__name__ == type(value).__name__, key
            if isinstance(value, torch.Tensor):
                assert str(got.dtype).partition(".")[2] == str(value.dtype).partition(".")[2]
                assert_near(numbers(got), numbers(value), tolerance)
            else:
                assert got == value


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name, options", OPTIONS, ids=str)
def test_parameters_and_state_after_100_steps(name, options, dtype):
    if dtype.startswith("complex") and (options.get("fused") or name in ("Muon", "Adafactor")):
        pytest.skip("torch refuses complex parameters")
    found = []
    for library in LIBRARIES.values():
        params, optimizer = make(library, name, options, dtype)
        train(library, params, optimizer, 100)
        found.append((params, optimizer))
    (ours, ours_optimizer), (theirs, theirs_optimizer) = found
    for ours_param, theirs_param in zip(ours, theirs):
        assert_near(numbers(ours_param), numbers(theirs_param), TOLERANCE[dtype])
    assert_same_state(ours_optimizer, theirs_optimizer, 10 * TOLERANCE[dtype])


def converted(value, library):
    """Return state of one library with tensors of the other."""
    if isinstance(value, dict):
        return {key: converted(part, library) for key, part in value.items()}
    if isinstance(value, list):
        return [converted(part, library) for part in value]
    if isinstance(value, (torch.Tensor, pullback.Tensor)):
        dtype = getattr(library, str(value.dtype).partition(".")[2])
        return library.tensor(numbers(value).tolist(), dtype=dtype)
    return value


@pytest.mark.parametrize("source", LIBRARIES)
@pytest.mark.parametrize("name, options", OPTIONS, ids=str)
def test_state_dict_goes_on_in_both_libraries(name, options, source):
    params, optimizer = make(LIBRARIES[source], name, options, "float64")
    train(LIBRARIES[source], params, optimizer, 5)
    found = []
    for library in LIBRARIES.values():
        others, other = make(library, name, options, "float64")
        for param, value in zip(others, params):
            param.data.copy_(library.tensor(numbers(value).tolist(), dtype=library.float64))
        other.load_state_dict(converted(optimizer.state_dict(), library))
        train(library, others, other, 20, seed=1)
        found.append(others)
    for ours, theirs in zip(*found):
        assert_near(numbers(ours), numbers(theirs), 1e-12)


def signature(function):
    return [
        (name, part.kind, repr(part.default))
        for name, part in inspect.signature(function).parameters.items()
    ]


FUNCTIONS = (
    "sgd adam adamw rmsprop adagrad asgd adadelta adafactor adamax nadam radam rprop".split()
)


@pytest.mark.parametrize("name", [*NAMES, "Optimizer"])
def test_signatures_of_classes(name):
    ours, theirs = getattr(pullback.optim, name), getattr(torch.optim, name)
    members = [
        member
        for member, value in inspect.getmembers(theirs, inspect.isroutine)
        if (not member.startswith("_") or member == "__init__")
    ]
    for member in members:
        if member not in ("OptimizerPreHook", "OptimizerPostHook"):
            wanted = signature(getattr(theirs, member))
            assert signature(getattr(ours, member)) == wanted, member
    if name != "Optimizer":
        ours, theirs = (make(library, name, {}, "float32")[1] for library in LIBRARIES.values())
        assert list(ours.defaults) == list(theirs.defaults)
        assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_of_functions(name):
    module = {"adafactor": "_adafactor"}.get(name, name)
    ours, theirs = (
        getattr(importlib.import_module(f"{library}.optim.{module}"), name) for library in LIBRARIES
    )
    assert signature(ours) == signature(theirs)


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.5, "max_iter": 30},
        {"lr": 0.1, "max_iter": 10, "history_size": 3},
        {"max_iter": 40, "line_search_fn": "strong_wolfe"},
        {"max_iter": 25, "history_size": 2, "max_eval": 17, "line_search_fn": "strong_wolfe"},
        {"lr": 3.0, "line_search_fn": "strong_wolfe", "tolerance_grad": 1e-3},
        {"lr": 1e-3, "line_search_fn": "strong_wolfe", "tolerance_change": 1e-4},
    ],
    ids=str,
)
@pytest.mark.parametrize("start", [(-1.2, 1.0, 0.7), (0.3, -2.0), (2.0, 2.0, -1.0, 0.5, 3.0)])
def test_lbfgs_iterates(start, options):
    for ours, theirs in zip(*(lbfgs(library, start, options) for library in LIBRARIES.values())):
        if isinstance(theirs, set):
            assert ours == theirs
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-12)


def lbfgs(library, start, options):
    """Return losses, results and state of three steps on Rosenbrock's function."""
    x = library.tensor(start[1:], dtype=library.float64, requires_grad=True)
    y = library.tensor([start[0]], dtype=library.float64, requires_grad=True)
    unused = library.ones(2, dtype=library.float64, requires_grad=True)
    optimizer = library.optim.LBFGS([y, unused, x], **options)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = rosenbrock(library.cat([y, x]))
        if library.isfinite(loss.detach()):
            loss.backward()
        losses.append(loss.item())
        return loss.detach()

    steps = [optimizer.step(closure).item() for _ in range(3)]
    state = optimizer.state_dict()["state"][0]
    return losses[:40], steps[:2], numbers(x) if len(losses) < 40 else 0, set(state)


INVALID = {
    "SGD": [{"lr": -1}, {"momentum": -1}, {"weight_decay": -1}, {"nesterov": True},
            {"fused": True, "foreach": True}, {"fused": True, "differentiable": True}],
    "Adam": [{"lr": -1}, {"betas": (1.0, 0.9)}, {"betas": (0.9, -1)}, {"eps": -1},
             {"weight_decay": -1}, {"fused": True, "foreach": True}],
    "AdamW": [{"lr": -1}, {"betas": (0.9, 1.0)}, {"fused": True, "differentiable": True}],
    "RMSprop": [{"lr": -1}, {"eps": -1}, {"momentum": -1}, {"weight_decay": -1}, {"alpha": -1}],
    "Adagrad": [{"lr": -1}, {"lr_decay": -1}, {"weight_decay": -1}, {"eps": -1},
                {"initial_accumulator_value": -1}],
    "ASGD": [{"lr": -1}, {"weight_decay": -1}],
    "Adadelta": [{"lr": -1}, {"rho": -1}, {"rho": 2}, {"eps": -1}, {"weight_decay": -1}],
    "Adafactor": [{"lr": -1}, {"beta2_decay": 1}, {"eps": (-1, 1)}, {"eps": (None, -1)},
                  {"d": 0.5}, {"weight_decay": -1}],
    "Adamax": [{"lr": -1}, {"betas": (2, 0.1)}, {"betas": (0.1, 2)}, {"eps": -1}],
    "LBFGS": [{"lr": -1}],
    "Muon": [{}, {"lr": -1}, {"momentum": -1}, {"weight_decay": -1}, {"adjust_lr_fn": "x"}],
    "NAdam": [{"lr": -1}, {"betas": (2, 0.1)}, {"eps": -1}, {"momentum_decay": -1}],
    "RAdam": [{"lr": -1}, {"betas": (0.1, 2)}, {"eps": -1}, {"weight_decay": -1}],
    "Rprop": [{"lr": -1}, {"etas": (2, 0.1)}, {"etas": (0.5, 0.9)}],
    "SparseAdam": [{"lr": 0}, {"betas": (2, 0.1)}, {"eps": 0}],
}  # fmt: skip
GROUPS = [
    lambda library, p: [],
    lambda library, p: [p * 2],
    lambda library, p: [1.0],
    lambda library, p: [{"params": [1.0]}],
    lambda library, p: [{"params": {p}}],
    lambda library, p: [{"lr": 3}],
    lambda library, p: [("a", p), p],
    lambda library, p: [p, ("a", p)],
    lambda library, p: [{"params": [("a", p)]}, {"params": [library.ones(1)]}],
    lambda library, p: [{"params": [library.ones(1)]}, {"params": [("a", p)]}],
    lambda library, p: [{"params": [p]}, {"params": [p]}],
    lambda library, p: 3,
]


def error_of(function):
    try:
        function()
    except Exception as error:
        return type(error), str(error).replace("torch", "pullback")
    pytest.fail("nothing is refused")


@pytest.mark.parametrize("name", NAMES)
def test_invalid_options_have_the_same_errors(name):
    for options in (*INVALID[name], {"lr": (1.0, 2.0)}):
        errors = []
        for library in LIBRARIES.values():
            lr = options.get("lr")
            given = {**options, "lr": library.tensor(lr)} if isinstance(lr, tuple) else options
            params = [library.ones(2, requires_grad=True)]
            kind = getattr(library.optim, name)
            errors.append(error_of(lambda: kind(params, **given)))  # noqa: B023
        assert errors[0] == errors[1]


@pytest.mark.parametrize("number", range(len(GROUPS)))
def test_invalid_groups_have_the_same_errors(number):
    errors = []
    for library in LIBRARIES.values():
        param = library.ones(2, requires_grad=True)
        errors.append(error_of(lambda: library.optim.SGD(GROUPS[number](library, param))))  # noqa: B023
    assert errors[0] == errors[1]
