"""What programs do with parameters: clips, vectors, fusion, norms of weights, parametrizations."""

import copy
import pickle
import warnings

import numpy as np
import pytest

import pullback as pb
from pullback import nn
from pullback.nn.utils import parametrizations, parametrize, prune

RNG = np.random.default_rng(0)


def parameters_with_gradients():
    made = [nn.Parameter(pb.zeros(shape)) for shape in ((2,), (2, 2), (3,))]
    made[0].grad = pb.tensor([3.0, 4.0])
    made[1].grad = pb.tensor([[0.0, -12.0], [0.0, 0.0]])
    return made


class TestClips:
    @pytest.mark.parametrize(("norm_type", "norm"), [(2, 13.0), (1, 19.0), ("inf", 12.0)])
    def test_norm_of_all_gradients_is_limited(self, norm_type, norm):
        made = parameters_with_gradients()
        assert nn.utils.clip_grad_norm_(made, 6.5, norm_type).item() == pytest.approx(norm)
        assert made[0].grad.tolist() == pytest.approx([3 * 6.5 / norm, 4 * 6.5 / norm])
        assert made[2].grad is None

    def test_small_gradients_stay(self):
        made = parameters_with_gradients()
        nn.utils.clip_grad_norm_(iter(made), 100.0)
        assert made[0].grad.tolist() == [3.0, 4.0]

    def test_values_are_limited(self):
        made = parameters_with_gradients()
        nn.utils.clip_grad_value_(made, 3.5)
        assert made[0].grad.tolist() == [3.0, 3.5]
        assert made[1].grad.tolist() == [[0.0, -3.5], [0.0, 0.0]]

    def test_infinite_norm_is_an_error_if_asked_for(self):
        made = parameters_with_gradients()
        made[0].grad[0] = float("inf")
        with pytest.raises(
            RuntimeError, match=r"total norm of order 2\.0 for gradients .* is non-f"
        ):
            nn.utils.clip_grad_norm_(made, 1.0, error_if_nonfinite=True)
        assert nn.utils.clip_grad_norm_(made, 1.0).isinf()

    def test_nothing_to_clip_has_the_norm_zero(self):
        with pytest.warns(UserWarning, match="is an empty generator"):
            assert nn.utils.clip_grad_norm_((p for p in ()), 1.0) == 0
        assert nn.utils.get_total_norm([]) == 0

    def test_older_name_warns(self):
        with pytest.warns(FutureWarning, match="deprecated in favor of .*clip_grad_norm_"):
            assert nn.utils.clip_grad_norm(parameters_with_gradients(), 1.0) == 13

    def test_total_norm_is_differentiable(self):
        x = pb.tensor([3.0, 4.0], requires_grad=True)
        nn.utils.get_total_norm([x]).backward()
        assert x.grad.tolist() == pytest.approx([0.6, 0.8])


class TestVectors:
    def test_vector_of_parameters_and_back(self):
        layer = nn.Linear(3, 2)
        vector = nn.utils.parameters_to_vector(layer.parameters())
        assert vector.tolist() == [*layer.weight.flatten().tolist(), *layer.bias.tolist()]
        vector.sum().backward()
        assert (layer.weight.grad == 1).all()
        kept = layer.weight
        nn.utils.vector_to_parameters(pb.arange(8.0), layer.parameters())
        assert layer.weight is kept and layer.weight.tolist() == [[0, 1, 2], [3, 4, 5]]
        assert layer.bias.tolist() == [6, 7] and layer.bias.requires_grad

    def test_two_devices_are_refused(self):
        pair = [pb.ones(2), pb.ones(3, device="meta")]
        message = "Found two parameters on different devices, this is currently not supported."
        with pytest.raises(TypeError, match=message):
            nn.utils.parameters_to_vector(pair)
        with pytest.raises(TypeError, match=message):
            nn.utils.vector_to_parameters(pb.ones(5), pair)

    def test_vector_must_be_a_tensor_with_enough_elements(self):
        with pytest.raises(TypeError, match=r"expected pullback\.Tensor, but got: list"):
            nn.utils.vector_to_parameters([1.0], [pb.ones(1)])
        with pytest.raises(RuntimeError, match="is invalid for input of size 2"):
            nn.utils.vector_to_parameters(pb.ones(2), [pb.ones(3)])


@pytest.mark.parametrize("bias", [True, False])
def test_fused_layers_normalize(bias):
    pb.manual_seed(0)
    pairs = [
        (nn.Conv2d(2, 3, 2, bias=bias), nn.BatchNorm2d(3), (4, 2, 5, 5), ()),
        (nn.ConvTranspose1d(2, 3, 2, bias=bias), nn.BatchNorm1d(3), (4, 2, 5), (True,)),
        (nn.Linear(2, 3, bias=bias), nn.BatchNorm1d(3), (4, 2), None),
    ]
    for layer, norm, shape, more in pairs:
        norm(layer(pb.randn(shape) + 2))
        with pytest.raises(AssertionError, match="Fusion only for eval!"):
            nn.utils.fuse_conv_bn_eval(layer, norm)
        layer.eval(), norm.eval()
        if more is None:
            fused = nn.utils.fuse_linear_bn_eval(layer, norm)
        else:
            fused = nn.utils.fuse_conv_bn_eval(layer, norm, *more)
        x = pb.randn(shape)
        assert (fused(x) - norm(layer(x))).abs().max() < 1e-5
        assert (layer.bias is not None) == bias


def test_skipped_initial_values_leave_shapes():
    layer = nn.utils.skip_init(nn.Linear, 5, 3, dtype=pb.float64)
    assert layer.weight.shape == (3, 5) and layer.weight.dtype == pb.float64
    assert layer.weight.device == pb.empty(0).device
    with pytest.raises(RuntimeError, match="must support a 'device' arg"):
        nn.utils.skip_init(nn.ReLU)


def test_memory_format_of_convolutions_is_changed_below():
    model = nn.Sequential(nn.Sequential(nn.Conv2d(2, 3, 2)), nn.Conv3d(2, 3, 2))
    x = pb.randn(1, 2, 4, 4)
    before = model[0](x)
    assert nn.utils.convert_conv2d_weight_memory_format(model, pb.channels_last) is model
    assert model[0][0].weight.stride() == (8, 1, 4, 2)
    assert model[1].weight.is_contiguous()
    assert (model[0](x) - before).abs().max() < 1e-6


# ---- norms of weights ----------------------------------------------------------------------------


def test_weight_norm_by_hook_follows_its_parameters():
    layer = nn.Linear(3, 2, dtype=pb.float64)
    weight = layer.weight.detach().numpy().copy()
    with pytest.warns(FutureWarning, match="deprecated in favor of .*parametrizations.weight_norm"):
        nn.utils.weight_norm(layer)
    assert list(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    np.testing.assert_allclose(
        layer.weight_g.detach().numpy().ravel(), np.linalg.norm(weight, axis=1)
    )
    with pb.no_grad():
        layer.weight_g *= 2
    x = pb.ones(1, 3, dtype=pb.float64)
    wanted = 2 * weight.sum(1) + layer.bias.detach().numpy()
    np.testing.assert_allclose(layer(x).detach().numpy()[0], wanted)
    layer(x).sum().backward()
    # The derivative by the direction is orthogonal to it.
    assert (layer.weight_v.grad * layer.weight_v).sum(1).abs().max() < 1e-12
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with pytest.raises(RuntimeError, match="Cannot register two weight_norm hooks"):
            nn.utils.weight_norm(layer)
    nn.utils.remove_weight_norm(layer)
    np.testing.assert_allclose(layer.weight.detach().numpy(), 2 * weight)
    with pytest.raises(ValueError, match="weight_norm of 'weight' not found in Linear"):
        nn.utils.remove_weight_norm(layer)


@pytest.mark.parametrize("wrap", [nn.utils.spectral_norm, parametrizations.spectral_norm])
@pytest.mark.parametrize("make", [lambda: nn.Linear(4, 3), lambda: nn.ConvTranspose1d(3, 4, 2)])
def test_spectral_norm_divides_by_the_largest_singular_value(wrap, make):
    layer = make().double()
    weight = layer.weight.detach().numpy().copy()
    wrap(layer, n_power_iterations=100)
    layer(pb.ones(1, 4 if isinstance(layer, nn.Linear) else 3, *[5] * (weight.ndim - 2)).double())
    matrix = weight if weight.ndim == 2 else np.moveaxis(weight, 1, 0).reshape(4, -1)
    largest = np.linalg.svd(matrix)[1][0]
    np.testing.assert_allclose(layer.weight.detach().numpy(), weight / largest, rtol=1e-6)
    layer.eval()
    state = layer.state_dict()
    assert layer.load_state_dict(state) == ([], [])
    kept = [tensor.clone() for tensor in state.values()]
    layer.weight.sum()
    for before, after in zip(kept, layer.state_dict().values(), strict=True):
        assert (before == after).all()


def test_weight_norm_loads_state_of_the_hook():
    old = {
        "bias": pb.zeros(2),
        "weight_g": pb.full((2, 1), 5.0),
        "weight_v": pb.tensor([[3.0, 4], [0, 1]]),
    }
    layer = parametrizations.weight_norm(nn.Linear(2, 2))
    layer.load_state_dict(old)
    assert layer.weight.tolist() == [[3, 4], [0, 5]]


# ---- orthogonal ----------------------------------------------------------------------------------


@pytest.mark.parametrize("orthogonal_map", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3)])
@pytest.mark.parametrize("use_trivialization", [True, False])
def test_orthogonal_weight_stays_orthogonal(orthogonal_map, shape, use_trivialization):
    pb.manual_seed(0)
    layer = nn.Linear(*shape, bias=False, dtype=pb.float64)
    parametrizations.orthogonal(
        layer, orthogonal_map=orthogonal_map, use_trivialization=use_trivialization
    )
    target = pb.randn(2, shape[1], dtype=pb.float64)
    losses = []
    for _ in range(20):
        loss = ((layer(pb.ones(2, shape[0], dtype=pb.float64)) - target) ** 2).sum()
        loss.backward()
        losses.append(loss.item())
        with pb.no_grad():
            original = layer.parametrizations.weight.original
            original -= 0.02 * original.grad
            original.grad = None
        weight = layer.weight.detach().numpy()
        gram = weight @ weight.T if shape[1] < shape[0] else weight.T @ weight
        np.testing.assert_allclose(gram, np.eye(min(shape)), atol=1e-12)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("dtype", [pb.float64, pb.complex128])
def test_orthogonal_weight_is_assigned(dtype):
    layer = parametrizations.orthogonal(nn.Linear(4, 4, dtype=dtype))
    noise = RNG.normal(size=(4, 4)) + (1j * RNG.normal(size=(4, 4)) if dtype.is_complex else 0)
    q = np.linalg.qr(noise)[0]
    layer.weight = pb.tensor(q)
    np.testing.assert_allclose(layer.weight.detach().numpy(), q, atol=1e-13)
    layer.weight = pb.tensor(noise)  # the factor of it that is orthogonal
    gram = layer.weight.detach().numpy()
    np.testing.assert_allclose(gram.conj().T @ gram, np.eye(4), atol=1e-13)
    upper = gram.conj().T @ noise
    np.testing.assert_allclose(np.tril(upper, -1), 0, atol=1e-12)
    assert (np.diag(upper).real > 0).all()


def test_matrix_exponential_is_that_of_scipy():
    linalg = pytest.importorskip("scipy.linalg")
    for scale in (0.0, 1e-3, 1.0, 30.0):
        a = scale * RNG.normal(size=(5, 5))
        a = a - a.T
        found = pb.linalg.matrix_exp(pb.tensor(a)).numpy()
        np.testing.assert_allclose(found, linalg.expm(a), atol=1e-12)


# ---- parametrizations of one's own ---------------------------------------------------------------


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T

    def right_inverse(self, x):
        return x.triu()


class Scaled(nn.Module):
    calls = 0

    def forward(self, x):
        Scaled.calls += 1
        return 2 * x

    def right_inverse(self, x):
        return x / 2


def test_parametrized_weight_is_computed_and_assigned():
    layer = nn.Linear(3, 3)
    parameter = layer.weight
    parametrize.register_parametrization(layer, "weight", Symmetric())
    parametrize.register_parametrization(layer, "weight", Scaled())
    assert layer.parametrizations.weight.original is parameter
    assert (layer.weight == layer.weight.T).all()
    layer(pb.ones(1, 3)).sum().backward()
    assert parameter.grad.tolist() == [[2, 4, 4], [0, 2, 4], [0, 0, 2]]
    wanted = pb.tensor([[1.0, 2, 3], [2, 4, 5], [3, 5, 6]])
    layer.weight = wanted
    assert (layer.weight == wanted).all() and (parameter == wanted.triu() / 2).all()
    assert "weight" not in dict(layer.named_parameters())
    copied = copy.deepcopy(layer)
    assert type(copied) is type(layer) and (copied.weight == wanted).all()
    assert copied.parametrizations.weight.original is not parameter
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(layer)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and layer.weight is parameter
    assert (layer.weight == wanted).all()


def test_cached_weight_is_computed_once():
    layer = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Scaled())
    before = Scaled.calls
    with parametrize.cached():
        with parametrize.cached():
            layer(pb.ones(2)), layer(pb.ones(2))
        assert layer.weight is layer.weight
    assert Scaled.calls == before + 1
    assert layer.weight is not layer.weight


def test_buffer_stays_a_buffer():
    norm = parametrize.register_parametrization(nn.BatchNorm1d(2), "running_mean", Scaled())
    assert list(dict(norm.named_buffers()))[-1] == "parametrizations.running_mean.original"
    parametrize.remove_parametrizations(norm, "running_mean", leave_parametrized=False)
    assert "running_mean" in norm._buffers


def test_unsafe_parametrization_may_change_the_shape():
    class Doubled(nn.Module):
        def forward(self, x):
            return pb.cat((x, x))

    layer = nn.Linear(2, 2, bias=False)
    with pytest.raises(ValueError, match="may not change the shape of the tensor, unless `unsafe`"):
        parametrize.register_parametrization(layer, "weight", Doubled())
    parametrize.register_parametrization(layer, "weight", Doubled(), unsafe=True)
    assert layer(pb.ones(2)).shape == (4,)
    with pytest.raises(ValueError, match="does not have a parameter, a buffer, or a parametrized"):
        parametrize.register_parametrization(layer, "other", Doubled())


# ---- pruning -------------------------------------------------------------------------------------


def pruned_layer():
    layer = nn.Linear(3, 2)
    layer.weight.data = pb.tensor([[1.0, -5.0, 2.0], [-3.0, 4.0, 0.5]])
    return layer


class TestPruning:
    def test_smallest_elements_are_zero_and_get_no_gradient(self):
        layer = pruned_layer()
        parameter = layer.weight
        assert prune.l1_unstructured(layer, "weight", 0.5) is layer
        mask = [[0, 1, 0], [1, 1, 0]]
        assert layer.weight_mask.tolist() == mask and layer.weight_orig is parameter
        layer(pb.ones(1, 3)).sum().backward()
        assert parameter.grad.tolist() == mask
        with pb.no_grad():
            parameter.fill_(7.0)
        layer(pb.ones(1, 3))
        assert layer.weight.tolist() == [[0, 7, 0], [7, 7, 0]]
        prune.remove(layer, "weight")
        assert layer.weight is parameter and not prune.is_pruned(layer)
        assert parameter.tolist() == [[0, 7, 0], [7, 7, 0]]

    def test_methods_follow_each_other_on_what_is_left(self):
        layer = pruned_layer()
        prune.l1_unstructured(layer, "weight", 2)
        prune.l1_unstructured(layer, "weight", 0.5)  # of the four that are left
        assert layer.weight_mask.tolist() == [[0, 1, 0], [0, 1, 0]]
        prune.ln_structured(layer, "weight", 1, n=2, dim=0)
        assert layer.weight_mask.tolist() == [[0, 1, 0], [0, 0, 0]]
        (container,) = layer._forward_pre_hooks.values()
        assert [type(m).__name__ for m in container] == [
            *("L1Unstructured", "L1Unstructured", "LnStructured")
        ]

    def test_scores_may_be_others_than_the_elements(self):
        layer = pruned_layer()
        prune.l1_unstructured(layer, "weight", 1, importance_scores=-layer.weight + 10)
        assert layer.weight_mask.tolist() == [[1, 1, 1], [1, 0, 1]]

    def test_several_parameters_are_pruned_together(self):
        first, second = pruned_layer(), pruned_layer()
        second.weight.data *= 10
        prune.global_unstructured(
            [(first, "weight"), (second, "weight")], prune.L1Unstructured, amount=5
        )
        assert first.weight_mask.tolist() == [[0, 1, 0], [0, 0, 0]]
        assert second.weight_mask.all()

    def test_random_methods_prune_how_many_were_asked_for(self):
        layer = nn.Conv2d(4, 6, 3)
        prune.random_unstructured(layer, "weight", 50)
        assert layer.weight_mask.sum() == 4 * 6 * 9 - 50
        other = prune.random_structured(nn.Conv2d(4, 6, 3), "weight", 0.5, dim=1)
        assert sorted(other.weight_mask.sum((0, 2, 3)).tolist()) == [0, 0, 54, 54]

    @pytest.mark.parametrize(
        ("call", "error", "message"),
        [
            (lambda p: p("weight", "a"), TypeError, "Invalid type for amount: a"),
            (lambda p: p("weight", -1), ValueError, "amount=-1 should either be a float in the"),
            (lambda p: p("weight", 7), ValueError, "amount=7 should be smaller than the number"),
            (lambda p: p("other", 1), AttributeError, "has no attribute 'other'"),
        ],
    )
    def test_arguments_are_checked_before_anything_changes(self, call, error, message):
        layer = pruned_layer()
        with pytest.raises(error, match=message):
            call(lambda name, amount: prune.l1_unstructured(layer, name, amount))
        assert list(layer.state_dict()) == ["weight", "bias"] and not prune.is_pruned(layer)
