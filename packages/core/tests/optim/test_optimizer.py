"""Optimizers as objects: groups, checks of arguments, state dicts, hooks, copies."""

import copy
import pickle

import pytest

import pullback
from pullback import optim
from pullback.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
    required,
)

NAMES = (
    "ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS Muon NAdam RAdam RMSprop Rprop SGD "
    "SparseAdam"
).split()
STEPPING = [name for name in NAMES if name not in ("LBFGS", "SparseAdam")]


def leaf(*shape, value=1.0):
    return pullback.full(shape or (2,), value, requires_grad=True)


def ready(name="SGD", shape=(2, 2), **options):
    """Return a parameter with a gradient, and its optimizer."""
    param = leaf(*shape)
    param.grad = pullback.full(shape, 0.5)
    return param, getattr(optim, name)([param], **options)


# ---- groups --------------------------------------------------------------------------------------


def test_groups_have_own_options_and_take_the_others_from_defaults():
    a, b, c = leaf(), leaf(), leaf()
    optimizer = optim.SGD([{"params": a}, {"params": (x for x in [b]), "lr": 2.0}], lr=0.5)
    optimizer.add_param_group({"params": [c], "momentum": 0.9, "own": "kept"})
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 2.0, 0.5]
    assert [group["momentum"] for group in optimizer.param_groups] == [0, 0, 0.9]
    assert optimizer.param_groups[2]["own"] == "kept"
    for param in (a, b, c):
        param.grad = pullback.ones(2)
    optimizer.step()
    assert [a[0].item(), b[0].item(), c[0].item()] == [0.5, -1.0, 0.5]
    assert list(optimizer.state) == [c]


def test_repr_lists_the_options_by_name():
    optimizer = optim.Rprop([("w", leaf())], lr=0.5)
    assert repr(optimizer) == (
        "Rprop (\nParameter Group 0\n    capturable: False\n    differentiable: False\n"
        "    etas: (0.5, 1.2)\n    foreach: None\n    lr: 0.5\n    maximize: False\n"
        "    param_names: ['w']\n    step_sizes: (1e-06, 50)\n)"
    )


def test_added_group_gets_its_state_at_its_first_step():
    for name in STEPPING:
        _, optimizer = ready(name)
        optimizer.step()
        late = leaf(2, 2)
        optimizer.add_param_group({"params": [late]})
        late.grad = pullback.ones(2, 2)
        optimizer.step()
        assert late.tolist() != leaf(2, 2).tolist()


P = leaf()
REFUSED = [
    (lambda: optim.SGD([]), ValueError, "optimizer got an empty parameter list"),
    (lambda: optim.SGD(P), TypeError, "should be an iterable of Tensors or dicts, but got"),
    (lambda: optim.SGD([P * 2]), ValueError, "can't optimize a non-leaf Tensor"),
    (lambda: optim.SGD([1.0]), TypeError, "can only optimize Tensors, but one of the params is f"),
    (lambda: optim.SGD([{"params": {P}}]), TypeError, "need to be organized in ordered collection"),
    (lambda: optim.SGD([{"lr": 1}]), KeyError, "params"),
    (lambda: optim.SGD([("a", P), leaf()]), ValueError, "Some param names are missing"),
    (
        lambda: optim.SGD([{"params": [("a", P)]}, {"params": [leaf()]}]),
        ValueError,
        "cannot add param group without names to the optimizer",
    ),
    (
        lambda: optim.SGD([{"params": [leaf()]}, {"params": [("a", P)]}]),
        ValueError,
        "cannot add param group with names to the optimizer",
    ),
    (
        lambda: optim.SGD([{"params": [P]}, {"params": [P]}]),
        ValueError,
        "some parameters appear in more than one parameter group",
    ),
    (lambda: optim.SGD([P]).add_param_group(3), TypeError, "param_group must be a dict, but got"),
    (
        lambda: optim.Optimizer([P], {"lr": required}),
        ValueError,
        "parameter group didn't specify a value of required optimization parameter lr",
    ),
    (lambda: optim.SGD([P], nesterov=True), ValueError, "Nesterov momentum requires a momentum"),
    (lambda: optim.Adam([P], betas=(1.0, 0.9)), ValueError, "Invalid beta parameter at index 0: 1"),
    (lambda: optim.NAdam([P], betas=(0.1, -1)), ValueError, "Invalid beta parameter at index 1: -"),
    (lambda: optim.Adam([P], eps=-1), ValueError, "Invalid epsilon value: -1"),
    (lambda: optim.Adadelta([P], rho=2), ValueError, "Invalid rho value: 2"),
    (lambda: optim.Rprop([P], etas=(2, 3)), ValueError, "Invalid eta values: 2, 3"),
    (lambda: optim.Adam([P], lr=pullback.ones(2)), ValueError, "Tensor lr must be 1-element"),
    (
        lambda: optim.Adam([P], lr=pullback.tensor(1.0), foreach=True),
        ValueError,
        "lr as a Tensor is not supported for capturable=False and foreach=True",
    ),
    (
        lambda: optim.Adam([P], betas=(pullback.tensor(0.9), 0.9)),
        ValueError,
        "betas must be either both floats or both Tensors",
    ),
    (
        lambda: optim.SGD([P], fused=True, foreach=True),
        RuntimeError,
        "`fused` and `foreach` cannot be `True` together.",
    ),
    (
        lambda: optim.Adam([P], fused=True, differentiable=True),
        RuntimeError,
        "`fused` does not support `differentiable`",
    ),
    (lambda: optim.Adafactor([P], d=0.5), ValueError, "Clipping threshold d should be >= 1 but is"),
    (lambda: optim.Adafactor([P], beta2_decay=1), ValueError, "beta2_decay should be <= 0 but is"),
    (lambda: optim.Muon([P]), ValueError, "Muon only supports 2D parameters"),
    (lambda: optim.Muon([P], adjust_lr_fn="x"), ValueError, "Adjust learning rate function x is"),
    (lambda: optim.SparseAdam([P], lr=0), ValueError, "Invalid learning rate: 0"),
    (
        lambda: optim.LBFGS([{"params": [P]}, {"params": [leaf()]}]),
        ValueError,
        "LBFGS doesn't support per-parameter options",
    ),
]


@pytest.mark.parametrize("make, kind, text", REFUSED, ids=[case[2][:40] for case in REFUSED])
def test_constructors_refuse(make, kind, text):
    with pytest.raises(kind) as caught:
        make()
    assert text in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_negative_learning_rates_are_refused(name):
    with pytest.raises(ValueError, match=r"(?i)learning rate.*-1"):
        ready(name, lr=-1)


def test_duplicate_parameters_warn():
    with pytest.warns(UserWarning, match="parameter group with duplicate parameters"):
        optimizer = optim.SGD([P, P])
    assert optimizer.state_dict()["param_groups"][0]["params"] == [0, 0]


STEP_ERRORS = [
    ("SparseAdam", {}, RuntimeError, "SparseAdam does not support dense gradients"),
    ("Adam", {"foreach": True, "differentiable": True}, AssertionError, "don't support autograd"),
    ("SGD", {"differentiable": True}, RuntimeError, "a leaf Variable that requires grad"),
    ("RAdam", {"capturable": True}, AssertionError, "If capturable=True, params and state_steps"),
    ("Muon", {"ns_steps": 100}, ValueError, "Number of steps must be less than 100"),
    ("Muon", {"ns_coefficients": (1, 2)}, ValueError, "Coefficients must be a tuple of exactly 3"),
]


@pytest.mark.parametrize("name, options, kind, text", STEP_ERRORS)
def test_steps_refuse(name, options, kind, text):
    _, optimizer = ready(name, **options)
    with pytest.raises(kind, match=text):
        optimizer.step()
    assert pullback.is_grad_enabled()


def test_steps_refuse_complex_parameters_where_there_is_no_formula():
    param = pullback.ones(2, 2, dtype=pullback.complex64, requires_grad=True)
    param.grad = pullback.ones(2, 2, dtype=pullback.complex64)
    for kind in (optim.Adafactor, optim.Muon):
        with pytest.raises(RuntimeError, match="does not support complex parameters"):
            kind([param]).step()
    with pytest.raises(RuntimeError, match="requires all the params to be floating point"):
        optim.Adam([param], fused=True).step()


# ---- closures and gradients ----------------------------------------------------------------------


@pytest.mark.parametrize("name", STEPPING)
def test_closure_is_called_once_with_gradients_enabled(name):
    param, optimizer = ready(name, lr=0.1)
    calls = []

    def closure():
        calls.append(pullback.is_grad_enabled())
        optimizer.zero_grad()
        loss = (param * param).sum()
        loss.backward()
        return loss

    with pullback.no_grad():
        assert optimizer.step(closure).item() == 4.0
        assert not pullback.is_grad_enabled()
    assert calls == [True]
    assert (param != 1).all()
    assert optimizer.step() is None


def test_closure_that_returns_nothing():
    assert ready("SGD")[1].step(lambda: None) is None
    with pytest.raises(TypeError, match="float\\(\\) argument must be a string or a real number"):
        ready("LBFGS")[1].step(lambda: None)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'closure'"):
        ready("LBFGS")[1].step()


def test_zero_grad_forgets_gradients_or_fills_them_with_zeros():
    param, optimizer = ready()
    grad = param.grad
    optimizer.zero_grad(set_to_none=False)
    assert param.grad is grad and not grad.any()
    (param * param * param).sum().backward(create_graph=True)
    with_history = param.grad
    optimizer.zero_grad(set_to_none=False)
    assert param.grad is with_history and with_history.grad_fn is None
    assert not with_history.requires_grad and not with_history.any()
    optimizer.zero_grad()
    assert param.grad is None
    optimizer.zero_grad(set_to_none=False)


# ---- state dicts and copies ----------------------------------------------------------------------


def steps(param, optimizer, count):
    for number in range(count):
        param.grad = pullback.full(param.shape, 0.1 * number - 0.2)
        optimizer.step()


@pytest.mark.parametrize("name", STEPPING)
def test_state_dict_continues_as_if_nothing_happened(name):
    param, optimizer = ready(name)
    steps(param, optimizer, 3)
    other, resumed = ready(name, lr=0.7)
    other.data.copy_(param)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert resumed.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    steps(param, optimizer, 3)
    steps(other, resumed, 3)
    assert pullback.equal(param, other)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("name", [*STEPPING, "LBFGS"])
def test_copies_are_independent_and_go_on(name, duplicate):
    param, optimizer = ready(name)
    if name == "LBFGS":
        optimizer.step(lambda: pullback.ones(()))
        made = duplicate(optimizer)
        assert made._params is made.param_groups[0]["params"]
        return
    steps(param, optimizer, 2)
    made = duplicate(optimizer)
    (own,) = made.param_groups[0]["params"]
    assert own is not param and pullback.equal(own, param)
    steps(param, optimizer, 2)
    steps(own, made, 2)
    assert pullback.equal(own, param)


def test_state_dict_counts_parameters_over_all_groups():
    a, b, c = leaf(), leaf(), leaf()
    optimizer = optim.SGD([{"params": [a, b]}, {"params": [c], "lr": 7}], momentum=0.5)
    for param in (a, c):
        param.grad = pullback.ones(2)
    optimizer.step()
    optimizer.state["note"] = 5
    found = optimizer.state_dict()
    assert [group["params"] for group in found["param_groups"]] == [[0, 1], [2]]
    assert found["state"].keys() == {0, 2, "note"}
    assert found["state"][0]["momentum_buffer"] is optimizer.state[a]["momentum_buffer"]


def test_loaded_state_has_the_dtype_of_its_parameter():
    param, optimizer = ready("Adam")
    state = {
        "step": pullback.tensor(3.0, dtype=pullback.float64),
        "exp_avg": pullback.ones(2, 2, dtype=pullback.float64),
        "nested": {"a": [pullback.ones(1, dtype=pullback.int64), "text", (2.5,)]},
    }
    packed = {
        "state": {0: state, "note": 5},
        "param_groups": optimizer.state_dict()["param_groups"],
    }
    optimizer.load_state_dict(packed)
    own = optimizer.state[param]
    assert own["step"] is state["step"]
    assert own["exp_avg"].dtype == pullback.float32
    assert own["nested"]["a"][0].dtype == pullback.float32
    assert own["nested"]["a"][1:] == ["text", (2.5,)]
    assert optimizer.state["note"] == 5
    packed["param_groups"][0]["fused"] = True
    optimizer.load_state_dict(packed)
    assert optimizer.state[param]["step"].dtype == pullback.float32


def test_state_dicts_of_older_versions_load():
    """Steps were numbers, and groups lacked options."""
    param, optimizer = ready("Adam")
    zeros = pullback.zeros(2, 2)
    group = {"lr": 0.5, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0, "params": [0]}
    state = {"step": 4, "exp_avg": zeros, "exp_avg_sq": zeros.clone()}
    optimizer.load_state_dict({"state": {0: state}, "param_groups": [group]})
    optimizer.step()
    assert optimizer.state[param]["step"].item() == 5
    assert optimizer.param_groups[0]["amsgrad"] is False
    for name, values in (("NAdam", {"mu_product": 0.5}), ("ASGD", {"mu": 1, "eta": 0.25})):
        _, other = ready(name)
        found = other.state_dict()
        other.load_state_dict({**found, "state": {0: {"step": 4, **values}}})
        state = other.state_dict()["state"][0]
        assert {key: value.item() for key, value in state.items()} == {"step": 4, **values}
    decoupled = ready("AdamW")[1]
    decoupled.load_state_dict({"state": {}, "param_groups": [dict(group)]})
    assert decoupled.param_groups[0]["decoupled_weight_decay"] is True


def test_state_dicts_of_other_groups_are_refused():
    _, optimizer = ready()
    found = optimizer.state_dict()
    with pytest.raises(ValueError, match="has a different number of parameter groups"):
        optimizer.load_state_dict({"state": {}, "param_groups": found["param_groups"] * 2})
    other = dict(found["param_groups"][0], params=[0, 1])
    with pytest.raises(ValueError, match="doesn't match the size of optimizer's group"):
        optimizer.load_state_dict({"state": {}, "param_groups": [other]})


def test_names_of_parameters_are_in_the_state_dict_and_stay():
    module = pullback.nn.Linear(2, 1)
    optimizer = optim.SGD(module.named_parameters(), momentum=0.5)
    found = optimizer.state_dict()
    assert found["param_groups"][0]["param_names"] == ["weight", "bias"]
    del found["param_groups"][0]["param_names"]
    optimizer.load_state_dict(found)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert optimizer.param_groups[0]["params"][0] is module.weight


def test_swapped_parameters_and_state_are_there_only_inside():
    param, optimizer = ready("Adam")
    with pytest.raises(RuntimeError, match="requires initialized optimizer state"):
        optim.swap_in_optimizer_params_and_state(optimizer, {}, {}).__enter__()
    optimizer.step()
    before, groups, state = param.tolist(), optimizer.param_groups, optimizer.state
    other = leaf(2, 2)
    other.grad = pullback.ones(2, 2)
    given = copy.deepcopy(optimizer.state_dict())
    with optim.swap_in_optimizer_params_and_state(optimizer, {"w": other}, given):
        assert optimizer.param_groups[0]["params"] == [other]
        optimizer.step()
    assert optimizer.param_groups is groups and optimizer.state is state
    assert param.tolist() == before and state[param]["step"] == 1
    assert given["state"][0]["step"] == 2 and (other != 1).all()
    with pytest.raises(RuntimeError, match="requires the explicit parameter state"):
        optim.swap_in_optimizer_params_and_state(optimizer, {}, given).__enter__()


# ---- hooks ---------------------------------------------------------------------------------------


def test_hooks_of_steps_run_in_order_and_change_arguments():
    _, optimizer = ready()
    order = []

    def note(name, result=None):
        def hook(own, args, kwargs):
            assert own is optimizer
            order.append((name, len(args), kwargs))
            return result

        return hook

    handles = [
        register_optimizer_step_pre_hook(note("global before")),
        register_optimizer_step_post_hook(note("global after")),
        optimizer.register_step_pre_hook(note("before", ((optimizer,), {"closure": lambda: 3.0}))),
        optimizer.register_step_post_hook(note("after")),
    ]
    assert optimizer.step() == 3.0
    assert [name for name, *_ in order] == ["global before", "before", "after", "global after"]
    assert order[0][1:] == (1, {}) and list(order[2][2]) == ["closure"]
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert len(order) == 4
    with optimizer.register_step_pre_hook(lambda *given: 3):
        with pytest.raises(RuntimeError, match="must return None or a tuple of"):
            optimizer.step()


def test_hooks_of_state_dicts_run_in_order_and_replace_them():
    _, optimizer = ready()
    order = []
    for name in ("second", "first"):
        optimizer.register_state_dict_pre_hook(
            lambda own, name=name: order.append(name), prepend=True
        )
        optimizer.register_load_state_dict_post_hook(lambda own, name=name: order.append(name))
    optimizer.register_state_dict_post_hook(lambda own, found: {**found, "extra": 1})
    optimizer.register_load_state_dict_pre_hook(lambda own, found: found["inner"])
    found = optimizer.state_dict()
    assert found["extra"] == 1 and order == ["first", "second"]
    optimizer.load_state_dict({"inner": found})
    assert order == ["first", "second", "second", "first"]


def test_subclass_with_its_own_step_has_hooks():
    class Signs(optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 1.0})

        @pullback.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for param in group["params"]:
                    param.sub_(param.grad.sign(), alpha=group["lr"])

    param = leaf()
    param.grad = pullback.ones(2)
    optimizer = Signs([param])
    seen = []
    optimizer.register_step_post_hook(lambda *given: seen.append(param.tolist()))
    optimizer.step()
    assert seen == [[0.0, 0.0]]
    with pytest.raises(NotImplementedError):
        optim.Optimizer([param], {}).step()
