"""`nn.utils` and `func` on modules: torch's values, gradients, keys and errors."""

import copy
import importlib
import inspect

import numpy as np
import pytest

import pullback

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

PAIR = (pullback, torch)


def both(call):
    """Return the result of a call in pullback, then in torch, as arrays."""
    return [np.asarray(call(m).detach()) for m in PAIR]


def same(call, tolerance=1e-12):
    ours, theirs = both(call)
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=1e-12)


def numbers(m, *shape, seed=0):
    return m.tensor(np.random.default_rng(seed).normal(size=shape))


def modules(make):
    """Return the same module in both, with our weights in float64."""
    ours, theirs = (make(m.nn).double() for m in PAIR)
    load(ours, theirs)
    return ours, theirs


def load(ours, theirs):
    state = ours.state_dict()
    assert list(state) == list(theirs.state_dict())
    theirs.load_state_dict({key: torch.tensor(value.numpy()) for key, value in state.items()})


def errors(call):
    found = []
    for m in (torch, pullback):
        with pytest.raises(Exception) as error:
            call(m)
        found.append((error.type, str(error.value).replace("torch", "pullback")))
    assert found[0] == found[1]


# ---- gradients and vectors -----------------------------------------------------------------------


def with_gradients(m):
    made = [m.nn.Parameter(numbers(m, *shape)) for shape in ((3,), (2, 4), ())]
    for number, parameter in enumerate(made[:2]):
        parameter.grad = numbers(m, *parameter.shape, seed=number + 1)
    return made


@pytest.mark.parametrize("norm_type", [2, 1.0, float("inf"), "inf", 0, 3])
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clip_grad_norm_is_torch_s(norm_type, max_norm):
    def call(m):
        parameters = with_gradients(m)
        total = m.nn.utils.clip_grad_norm_(iter(parameters), max_norm, norm_type)
        return m.cat([total.reshape(1), *(p.grad.reshape(-1) for p in parameters[:2])])

    same(call)


def test_other_clips_and_vectors_are_torch_s():
    def value(m):
        parameters = with_gradients(m)
        assert m.nn.utils.clip_grad_value_(parameters, 0.3) is None
        m.nn.utils.clip_grads_with_norm_(parameters, 0.1, m.nn.utils.get_total_norm(parameters))
        return m.cat([p.grad.reshape(-1) for p in parameters[:2]])

    def vector(m):
        parameters = with_gradients(m)
        flat = m.nn.utils.parameters_to_vector(parameters)
        m.nn.utils.vector_to_parameters(flat * 2, parameters)
        return m.cat([flat, *(p.reshape(-1) for p in parameters)])

    same(value)
    same(vector)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.nn.utils.clip_grad_norm_([nan_gradient(m)], 1.0, error_if_nonfinite=True),
        lambda m: m.nn.utils.vector_to_parameters([1], [m.ones(1)]),
        lambda m: m.nn.utils.vector_to_parameters(m.ones(2), [m.ones(3)]),
        lambda m: m.nn.utils.parametrizations.spectral_norm(m.nn.ConvTranspose1d(3, 4, 2), "bias"),
        lambda m: m.nn.utils.skip_init(m.nn.ReLU),
        lambda m: m.nn.utils.fuse_conv_bn_eval(m.nn.Conv2d(1, 1, 1), m.nn.BatchNorm2d(1)),
        lambda m: m.nn.utils.fuse_linear_bn_eval(
            m.nn.Linear(1, 3).eval(), m.nn.BatchNorm1d(2).eval()
        ),
        lambda m: m.nn.utils.remove_weight_norm(m.nn.Linear(3, 4)),
        lambda m: m.nn.utils.remove_spectral_norm(m.nn.Linear(3, 4)),
        lambda m: m.nn.utils.spectral_norm(m.nn.Linear(3, 4), n_power_iterations=0),
        lambda m: m.nn.utils.spectral_norm(m.nn.utils.spectral_norm(m.nn.Linear(3, 4))),
    ],
)
def test_error_of_utils_is_torch_s(call):
    errors(call)


def nan_gradient(m):
    made = m.nn.Parameter(m.ones(2))
    made.grad = m.tensor([1.0, float("nan")])
    return made


# ---- fusion and norms ----------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_fusion_is_torch_s(bias, affine):
    def conv(nn):
        return nn.Sequential(nn.Conv2d(2, 3, 2, bias=bias), nn.BatchNorm2d(3, affine=affine))

    def back(nn):
        return nn.Sequential(nn.ConvTranspose2d(2, 3, 2, bias=bias), nn.BatchNorm2d(3))

    def linear(nn):
        return nn.Sequential(nn.Linear(2, 3, bias=bias), nn.BatchNorm1d(3))

    for make, shape, more in (
        (conv, (4, 2, 5, 5), ()),
        (back, (4, 2, 5, 5), (True,)),
        (linear, (4, 2), ()),
    ):
        found = []
        for m, (layer, norm) in zip(PAIR, modules(make)):
            norm(layer(numbers(m, *shape)))
            layer.eval(), norm.eval()
            fuse = (
                m.nn.utils.fuse_linear_bn_eval if make is linear else m.nn.utils.fuse_conv_bn_eval
            )
            fused = fuse(layer, norm, *more)
            x = numbers(m, *shape, seed=3)
            found.append(fused(x).detach().numpy())
            assert [p.requires_grad for p in fused.parameters()] == [True, bias]
            np.testing.assert_allclose(found[-1], norm(layer(x)).detach().numpy(), atol=1e-12)
        np.testing.assert_allclose(*found, atol=1e-12)


def trained(m, layer, x):
    """Return results of three calls and one in evaluation, and all gradients."""
    out = [layer(x), layer(x), layer(x)]
    layer.eval()
    out.append(layer(x))
    sum((o * (o.detach() + 1)).sum() for o in out).backward()
    found = [*out, *(p.grad for p in layer.parameters()), *layer.state_dict().values()]
    return [part.detach().numpy() for part in found]


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize(
    "wrap",
    [
        lambda nn, layer: nn.utils.weight_norm(layer),
        lambda nn, layer: nn.utils.weight_norm(layer, dim=None),
        lambda nn, layer: nn.utils.weight_norm(layer, dim=1),
        lambda nn, layer: nn.utils.spectral_norm(layer),
        lambda nn, layer: nn.utils.spectral_norm(layer, n_power_iterations=3, dim=1),
        lambda nn, layer: nn.utils.parametrizations.weight_norm(layer),
        lambda nn, layer: nn.utils.parametrizations.weight_norm(layer, dim=None),
        lambda nn, layer: nn.utils.parametrizations.spectral_norm(layer),
        lambda nn, layer: nn.utils.parametrizations.spectral_norm(layer, "bias", dim=0),
    ],
)
@pytest.mark.parametrize("kind", ["Linear", "Conv2d", "ConvTranspose2d"])
def test_norm_of_weights_is_torch_s(wrap, kind):
    size = () if kind == "Linear" else (2,)
    ours, theirs = modules(lambda nn: wrap(nn, getattr(nn, kind)(3, 4, *size)))
    assert repr(ours) == repr(theirs)
    assert ours.state_dict()._metadata == theirs.state_dict()._metadata
    shape = (5, 3) if kind == "Linear" else (5, 3, 4, 4)
    found = [trained(m, layer, numbers(m, *shape)) for m, layer in zip(PAIR, (ours, theirs))]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
def test_removed_norms_leave_the_weight():
    for name in ("weight_norm", "spectral_norm"):
        for m in PAIR:
            layer = m.nn.Linear(3, 4)
            getattr(m.nn.utils, name)(layer)
            layer.eval()(m.ones(2, 3))
            before = layer.weight.detach().clone()
            assert getattr(m.nn.utils, f"remove_{name}")(layer) is layer
            assert (layer.weight - before).abs().max() < 1e-6
            assert sorted(layer.state_dict()) == ["bias", "weight"]
            assert not layer._forward_pre_hooks and not layer._state_dict_hooks


@pytest.mark.parametrize("kind", ["Linear", "ConvTranspose2d"])
def test_state_of_spectral_norm_without_v_loads_as_in_torch(kind):
    size = () if kind == "Linear" else (2,)
    ours, theirs = modules(lambda nn: nn.utils.spectral_norm(getattr(nn, kind)(3, 4, *size)))
    found = []
    for m, layer in zip(PAIR, (ours, theirs)):
        state = dict(layer.state_dict())
        del state["weight_v"]
        state["weight"] = state["weight_orig"] / 1.5
        layer.load_state_dict(state)
        found.append(layer.weight_v.numpy())
        with pytest.raises(RuntimeError, match=r"Missing key.*weight_u"):
            layer.load_state_dict({"bias": state["bias"]})
        m.nn.utils.remove_spectral_norm(layer)
    assert not ours._load_state_dict_pre_hooks
    np.testing.assert_allclose(*found, rtol=1e-9)


# ---- parametrizations ----------------------------------------------------------------------------


@pytest.mark.parametrize("orthogonal_map", [None, "matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("use_trivialization", [True, False])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
def test_orthogonal_is_torch_s(shape, orthogonal_map, use_trivialization):
    def make(nn):
        return nn.utils.parametrizations.orthogonal(
            nn.Linear(*shape), orthogonal_map=orthogonal_map, use_trivialization=use_trivialization
        )

    ours, theirs = modules(make)
    if use_trivialization:
        base = ours.parametrizations.weight[0].base
        theirs.parametrizations.weight[0].base = torch.tensor(base.numpy())
    x = np.random.default_rng(0).normal(size=(2, shape[0]))
    found = []
    for m, layer in zip(PAIR, (ours, theirs)):
        original = layer.parametrizations.weight.original
        with m.no_grad():
            noise = 0.3 * numbers(m, *original.shape)
            original += noise - noise.diagonal().diag_embed() if shape[0] == shape[1] else 0 * noise
        (layer(m.tensor(x)) ** 3).sum().backward()
        found.append([layer.weight.detach().numpy(), original.grad.numpy()])
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("use_trivialization", [True, False])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
def test_assigned_orthogonal_matrix_comes_back(shape, use_trivialization):
    for m in PAIR:
        layer = m.nn.utils.parametrizations.orthogonal(
            m.nn.Linear(*shape).double(),
            orthogonal_map="householder",
            use_trivialization=use_trivialization,
        )
        q = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0][: shape[1], : shape[0]]
        q = np.linalg.qr(q)[0] if shape[1] > shape[0] else np.linalg.qr(q.T)[0].T
        layer.weight = m.tensor(q)
        np.testing.assert_allclose(layer.weight.detach().numpy(), q, atol=1e-12)


class Functions:
    """A parametrization of two functions, in either library."""

    def __new__(cls, m, forward, right_inverse=None):
        class Made(m.nn.Module):
            def forward(self, *x):
                return forward(*x)

        Made.__name__ = "Made"
        if right_inverse is not None:
            Made.right_inverse = lambda self, y: right_inverse(y)
        return Made()


def register(m, *functions, name="weight", onto=None, **options):
    layer = m.nn.Linear(3, 3) if onto is None else onto
    made = Functions(m, *functions)
    return m.nn.utils.parametrize.register_parametrization(layer, name, made, **options)


def twice(m, *functions):
    return register(m, *functions, onto=register(m, lambda x: x * 2))


def assign(layer, value):
    layer.weight = value


SAME = staticmethod(lambda x: x).__func__


@pytest.mark.parametrize(
    "call",
    [
        lambda m: register(m, SAME, name="other"),
        lambda m: register(m, lambda x: 3),
        lambda m: register(m, lambda x: x.double()),
        lambda m: register(m, lambda x: x[0]),
        lambda m: register(m, SAME, lambda y: 3),
        lambda m: register(m, SAME, lambda y: y.double()),
        lambda m: register(m, lambda x, y: x + y, lambda y: (y, 3)),
        lambda m: register(m, lambda x, y: x + y, lambda y: (y, y.double())),
        lambda m: twice(m, lambda x: 3),
        lambda m: twice(m, lambda x: x.double()),
        lambda m: twice(m, lambda x: x[0]),
        lambda m: twice(m, SAME, lambda y: 3),
        lambda m: twice(m, SAME, lambda y: y.double()),
        lambda m: twice(m, SAME, lambda y: y[0]),
        lambda m: assign(register(m, SAME), m.ones(3, 3)),
        lambda m: assign(register(m, SAME, SAME), m.ones(3, 3).double()),
        lambda m: assign(register(m, SAME, SAME), 3),
        lambda m: m.nn.utils.parametrize.remove_parametrizations(m.nn.Linear(3, 3), "weight"),
        lambda m: m.nn.utils.parametrize.remove_parametrizations(
            register(m, lambda x, y: x + y, lambda y: (y, y)), "weight", leave_parametrized=False
        ),
        lambda m: m.nn.utils.parametrize.ParametrizationList([], m.ones(3)),
        lambda m: m.nn.utils.parametrizations.orthogonal(m.nn.Linear(3, 4), orthogonal_map="x"),
        lambda m: m.nn.utils.parametrizations.orthogonal(m.nn.Linear(3, 4), "other"),
        lambda m: m.nn.utils.parametrizations.orthogonal(m.nn.Linear(3, 4), "bias"),
        lambda m: assign(m.nn.utils.parametrizations.orthogonal(m.nn.Linear(3, 4)), m.ones(2, 2)),
        lambda m: assign(
            m.nn.utils.parametrizations.orthogonal(
                m.nn.Linear(3, 3), orthogonal_map="cayley", use_trivialization=False
            ),
            m.ones(3, 3),
        ),
        lambda m: m.nn.utils.parametrizations.spectral_norm(m.nn.Linear(3, 4), "other"),
        lambda m: m.nn.utils.parametrizations.spectral_norm(m.nn.Linear(3, 4), dim=2),
        lambda m: m.nn.utils.parametrizations.spectral_norm(
            m.nn.Linear(3, 4), n_power_iterations=0
        ),
    ],
)
def test_error_of_parametrization_is_torch_s(call):
    errors(call)


def test_parametrized_module_is_torch_s():
    found = []
    for m in PAIR:
        P = m.nn.utils.parametrize
        layer = register(m, lambda x, y: x + y, lambda y: (y / 2, y / 2))
        register(m, lambda x: x * 3, lambda y: y / 3, onto=layer)
        with m.no_grad():
            layer.weight = m.ones(3, 3)
        lines = [repr(layer), list(layer.state_dict()), layer.weight.tolist(), type(layer).__name__]
        lines += [P.is_parametrized(layer), P.is_parametrized(layer, "bias"), layer(m.ones(1, 3))]
        lines[-1] = lines[-1].shape == (1, 3)
        copied = copy.deepcopy(layer)
        lines += [type(copied).__name__, copied.weight.tolist(), list(dict(copied.named_modules()))]
        with P.cached():
            lines.append(layer.weight is layer.weight)
        lines.append(layer.weight is layer.weight)
        other = P.transfer_parametrizations_and_params(layer, m.nn.Linear(3, 3))
        lines += [other.weight.tolist(), list(other.state_dict())]
        lines.append(P.type_before_parametrizations(other) is m.nn.Linear)
        P.remove_parametrizations(layer, "weight")
        lines += [type(layer) is m.nn.Linear, layer.weight.tolist(), list(layer.state_dict())]
        norm = register(m, lambda x: x + 1, onto=m.nn.BatchNorm1d(3), name="running_mean")
        lines += [list(norm.state_dict()), list(dict(norm.named_buffers()))]
        found.append(lines)
    assert found[0] == found[1]


def test_pickle_of_parametrized_module_is_refused():
    import pickle

    for m in PAIR:
        with pytest.raises(RuntimeError, match="only supported through state_dict"):
            pickle.dumps(m.nn.utils.parametrizations.weight_norm(m.nn.Linear(2, 2)))


UTILS = {
    "": "clip_grad_norm clip_grad_norm_ clip_grad_value_ clip_grads_with_norm_ get_total_norm "
    "convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format fuse_conv_bn_eval "
    "fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights parameters_to_vector "
    "remove_spectral_norm remove_weight_norm skip_init spectral_norm vector_to_parameters "
    "weight_norm",
    "parametrizations": "orthogonal spectral_norm weight_norm",
    "parametrize": "ParametrizationList cached is_parametrized register_parametrization "
    "remove_parametrizations transfer_parametrizations_and_params type_before_parametrizations",
    "stateless": "functional_call",
    "prune": "custom_from_mask global_unstructured identity is_pruned l1_unstructured "
    "ln_structured random_structured random_unstructured remove",
}


@pytest.mark.parametrize(
    ("folder", "name"),
    [(folder, name) for folder, names in UTILS.items() for name in names.split()],
)
def test_signature_of_utils_is_torch_s(folder, name):
    def parameters(m):
        owner = importlib.import_module(f"{m.__name__}.nn.utils.{folder}".rstrip("."))
        signature = inspect.signature(getattr(owner, name))
        return [(p.name, p.kind, p.default) for p in signature.parameters.values()]

    assert parameters(pullback) == parameters(torch)


# ---- func ----------------------------------------------------------------------------------------


class Tied:
    def __new__(cls, m):
        class Tied(m.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = m.nn.Linear(2, 2)
                self.b = self.a
                self.c = m.nn.Linear(2, 2)
                self.c.weight = self.a.weight

            def forward(self, x):
                return self.b(self.a(x)) + self.c(x)

        return Tied()


TIED = ["a.weight", "b.weight", "c.weight"]


@pytest.mark.parametrize(
    ("paths", "tie_weights"), [(TIED[:1], True), (TIED[2:], True), (TIED[:1], False), (TIED, False)]
)
def test_tied_weights_are_replaced_as_in_torch(paths, tie_weights):
    ours, theirs = (Tied(m).double() for m in PAIR)
    load(ours, theirs)
    found = []
    for m, model in zip(PAIR, (ours, theirs)):
        given = {path: numbers(m, 2, 2, seed=i) for i, path in enumerate(paths)}
        out = m.func.functional_call(model, given, numbers(m, 3, 2), tie_weights=tie_weights)
        found.append(out.detach().numpy())
    np.testing.assert_allclose(*found, rtol=1e-12)


def per_sample_gradients(m, model):
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    buffers = dict(model.named_buffers())

    def loss(parameters, x, y):
        out = m.func.functional_call(model, (parameters, buffers), (x[None],))
        return ((out - y) ** 2).sum()

    x, y = numbers(m, 6, 3, seed=1), numbers(m, 6, 2, seed=2)
    gradients = m.func.vmap(m.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    return {name: g.detach().numpy() for name, g in gradients.items()}


def test_per_sample_gradients_are_torch_s():
    ours, theirs = modules(
        lambda nn: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 2))
    )
    found = [per_sample_gradients(m, model) for m, model in zip(PAIR, (ours, theirs))]
    for name, ours in found[0].items():
        np.testing.assert_allclose(ours, found[1][name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.func.functional_call(model(m), {"0.weight": m.ones(2, 2)}, X(m), strict=True),
        lambda m: m.func.functional_call(model(m), state(m, zz=1), X(m), strict=True),
        lambda m: m.func.functional_call(model(m), {"zz": m.ones(1)}, X(m), strict=True),
        lambda m: m.func.functional_call(model(m), {"7.weight": m.ones(1)}, X(m)),
        lambda m: m.func.functional_call(model(m), 3, X(m)),
        lambda m: m.func.functional_call(model(m), (3,), X(m)),
        lambda m: m.func.functional_call(model(m), {"0.weight": 3}, X(m)),
        lambda m: m.func.functional_call(model(m), ({"0.bias": m.ones(2)},) * 2, X(m)),
        lambda m: m.func.functional_call(model(m), {"0.bias": m.ones(2)}),
        lambda m: m.func.functional_call(3, {}),
        lambda m: m.func.functional_call(Tied(m), {path: m.ones(2, 2) for path in TIED}, X(m)),
        lambda m: m.func.stack_module_state([]),
        lambda m: m.func.stack_module_state([m.nn.Linear(2, 2), m.nn.Linear(2, 2).eval()]),
        lambda m: m.func.stack_module_state([m.nn.Linear(2, 2), m.nn.ReLU()]),
        lambda m: m.func.stack_module_state([m.nn.Linear(2, 2), m.nn.Linear(3, 2)]),
    ],
)
def test_error_of_functional_call_is_torch_s(call):
    errors(call)


def model(m):
    return m.nn.Sequential(m.nn.Linear(2, 2), m.nn.BatchNorm1d(2))


def state(m, **more):
    made = model(m)
    return {
        **dict(made.named_parameters()),
        **dict(made.named_buffers()),
        **{k: m.ones(1) for k in more},
    }


def X(m):
    return (m.ones(3, 2),)


def test_stacked_state_is_torch_s():
    found = []
    for m in PAIR:
        stacked = m.func.stack_module_state([m.nn.BatchNorm1d(2) for _ in range(3)])
        found.append(
            [(k, tuple(v.shape), v.requires_grad, v.is_leaf) for d in stacked for k, v in d.items()]
        )
        norm = m.func.replace_all_batch_norm_modules_(model(m))[1]
        found[-1].append([norm.running_mean, norm.num_batches_tracked, norm.track_running_stats])
    assert found[0] == found[1]


# ---- pruning -------------------------------------------------------------------------------------


def pruned(m):
    return importlib.import_module(f"{m.__name__}.nn.utils.prune")


PRUNINGS = [
    lambda P, layer: P.l1_unstructured(layer, "weight", 0.4),
    lambda P, layer: P.l1_unstructured(P.l1_unstructured(layer, "weight", 7), "weight", 0.3),
    lambda P, layer: P.ln_structured(layer, "weight", 2, 1, 0),
    lambda P, layer: P.ln_structured(layer, "weight", 0.5, 2, -1),
    lambda P, layer: P.ln_structured(P.l1_unstructured(layer, "weight", 9), "weight", 1, 2, 1),
    lambda P, layer: P.ln_structured(P.ln_structured(layer, "weight", 1, 2, 0), "weight", 1, 2, 0),
    lambda P, layer: P.identity(P.identity(layer, "bias"), "weight"),
    lambda P, layer: P.custom_from_mask(layer, "bias", layer.bias.detach() > 0),
    lambda P, layer: P.global_unstructured(
        [(layer, "weight"), (layer, "bias")], P.L1Unstructured, amount=0.5
    ),
    lambda P, layer: P.remove(P.l1_unstructured(layer, "weight", 7), "weight"),
]


@pytest.mark.parametrize("prune", PRUNINGS)
def test_pruning_is_torch_s(prune):
    ours, theirs = modules(lambda nn: nn.Conv2d(3, 4, 2))
    found = []
    for m, layer in zip(PAIR, (ours, theirs)):
        prune(pruned(m), layer)
        (layer(numbers(m, 2, 3, 4, 4)) ** 2).sum().backward()
        parts = [*layer.state_dict().values(), *(p.grad for p in layer.parameters())]
        found.append((list(layer.state_dict()), [part.detach().numpy() for part in parts]))
    assert found[0][0] == found[1][0]
    for one, other in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda P, m: P.l1_unstructured(m.nn.Linear(3, 4), "weight", "a"),
        lambda P, m: P.l1_unstructured(m.nn.Linear(3, 4), "weight", -1),
        lambda P, m: P.l1_unstructured(m.nn.Linear(3, 4), "weight", 1.5),
        lambda P, m: P.l1_unstructured(m.nn.Linear(3, 4), "weight", 100),
        lambda P, m: P.random_structured(m.nn.Linear(3, 4), "bias", 1, 0),
        lambda P, m: P.random_structured(m.nn.Linear(3, 4), "weight", 1, 5),
        lambda P, m: P.identity(m.nn.Linear(3, 4), "other"),
        lambda P, m: P.custom_from_mask(m.nn.Linear(3, 4), "weight", m.ones(2, 2)),
        lambda P, m: P.l1_unstructured(m.nn.Linear(3, 4), "weight", 1, m.ones(2)),
        lambda P, m: P.remove(m.nn.Linear(3, 4), "weight"),
        lambda P, m: P.global_unstructured(
            [(m.nn.Linear(3, 4), "weight")], P.LnStructured, amount=0.4, n=2
        ),
        lambda P, m: P.global_unstructured(
            [(m.nn.Linear(3, 4), "weight")], P.L1Unstructured, 3, amount=0.4
        ),
        lambda P, m: P.PruningContainer(3),
        lambda P, m: P.PruningContainer().add_pruning_method(3),
    ],
)
def test_error_of_pruning_is_torch_s(call):
    errors(lambda m: call(pruned(m), m))
