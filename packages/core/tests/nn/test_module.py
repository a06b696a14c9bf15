"""Members, modes, devices and dtypes, copies and representation of modules."""

import copy
import pickle

import numpy as np
import pytest

import pullback as pb
from pullback import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 3)
        self.scale = nn.Parameter(pb.ones(3))
        self.register_buffer("mean", pb.zeros(3))
        self.register_buffer("cache", pb.zeros(1), persistent=False)

    def forward(self, x, shift=0.0):
        return self.inner(x) * self.scale + shift


class TestMembers:
    def test_names_come_in_the_order_of_assignment_own_ones_first(self):
        block = Block()
        assert [n for n, _ in block.named_parameters()] == ["scale", "inner.weight", "inner.bias"]
        assert [n for n, _ in block.named_buffers()] == ["mean", "cache"]
        assert [n for n, _ in block.named_modules()] == ["", "inner"]
        assert [n for n, _ in block.named_parameters(recurse=False)] == ["scale"]
        assert next(n for n, _ in block.named_parameters(prefix="a")) == "a.scale"
        assert list(block.children()) == [block.inner]

    def test_shared_members_are_named_once(self):
        layer = nn.Linear(2, 2)
        model = nn.Sequential(layer, layer)
        assert [n for n, _ in model.named_parameters()] == ["0.weight", "0.bias"]
        assert len(list(model.named_parameters(remove_duplicate=False))) == 4
        assert [n for n, _ in model.named_modules()] == ["", "0"]
        assert [n for n, _ in model.named_children()] == ["0"]

    def test_members_are_no_attributes_of_the_instance(self):
        block = Block()
        assert not {"inner", "scale", "mean"} & set(vars(block))
        assert {"inner", "scale", "mean"} <= set(dir(block))

    def test_object_s_functions_set_plain_attributes(self):
        block = Block()
        other = nn.Linear(1, 1)
        object.__setattr__(block, "other", other)
        assert vars(block)["other"] is other
        assert [n for n, _ in block.named_children()] == ["inner"]
        object.__delattr__(block, "other")
        with pytest.raises(AttributeError):
            object.__delattr__(block, "inner")
        nn.Module.__setattr__(block, "inner", other)
        assert block.inner is other and not vars(block).get("inner")

    def test_assignment_moves_a_name_between_the_kinds(self):
        module = nn.Module()
        module.x = pb.ones(1)
        assert "x" in vars(module) and not list(module.parameters())
        module.x = nn.Parameter(pb.ones(1))
        assert "x" not in vars(module) and len(list(module.parameters())) == 1
        with pytest.raises(TypeError, match="as parameter 'x'"):
            module.x = nn.Linear(1, 1)
        del module.x
        module.x = nn.Linear(1, 1)
        assert [n for n, _ in module.named_children()] == ["x"]
        assert [n for n, _ in module.named_parameters()] == ["x.weight", "x.bias"]
        del module.x
        assert not hasattr(module, "x")
        with pytest.raises(AttributeError, match="x"):
            del module.x

    def test_none_keeps_the_name(self):
        block = Block()
        block.scale = block.mean = block.inner = None
        assert block.scale is None and not list(block.parameters())
        assert "scale" in block._parameters and "inner" in block._modules
        block.scale = nn.Parameter(pb.zeros(2))
        assert [n for n, _ in block.named_parameters()] == ["scale"]

    def test_members_keep_their_kind(self):
        block = Block()
        with pytest.raises(TypeError, match=r"as parameter 'scale' \(pullback.nn.Parameter or N"):
            block.scale = pb.ones(3)
        with pytest.raises(TypeError, match="'int' as child module 'inner'"):
            block.inner = 3
        with pytest.raises(TypeError, match="'int' as buffer 'mean'"):
            block.mean = 3
        block.mean = pb.ones(3)
        assert block.state_dict()["mean"].tolist() == [1, 1, 1]

    def test_nothing_can_be_assigned_before_init(self):
        class Early(nn.Module):
            def __init__(self, value):
                self.value = value

        for value, kind in ((nn.Parameter(), "parameters"), (nn.Identity(), "module")):
            with pytest.raises(
                AttributeError, match=f"cannot assign {kind} before Module.__init__"
            ):
                Early(value)
        with pytest.raises(AttributeError, match="has no attribute '_backward_hooks'"):
            Early(3)(1)

    def test_a_parameter_with_a_history_is_refused(self):
        grown = nn.Parameter(pb.ones(1))
        grown.__dict__["_is_param"] = True
        made = grown * 1
        made._is_param = True
        with pytest.raises(ValueError, match="Cannot assign non-leaf Tensor to parameter 'x'"):
            nn.Module().register_parameter("x", made)

    def test_getattr_of_a_subclass_may_ask_the_base(self):
        class Wrapped(nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module

            def __getattr__(self, name):
                try:
                    return super().__getattr__(name)
                except AttributeError:
                    return getattr(self.module, name)

        wrapped = Wrapped(nn.Linear(2, 3))
        assert wrapped.out_features == 3 and wrapped.weight.shape == (3, 2)
        with pytest.raises(AttributeError, match="'Linear' object has no attribute 'nothing'"):
            wrapped.nothing

    def test_properties_come_before_members(self):
        class Named(nn.Module):
            @property
            def title(self):
                return "t"

            @title.setter
            def title(self, value):
                raise ValueError(value)

        assert Named().title == "t"
        with pytest.raises(ValueError, match="new"):
            Named().title = "new"

    def test_paths(self):
        model = nn.Sequential(Block(), nn.Sequential(nn.Linear(3, 1)))
        assert model.get_submodule("1.0") is model[1][0]
        assert model.get_submodule("") is model
        assert model.get_parameter("0.inner.bias") is model[0].inner.bias
        assert model.get_buffer("0.mean") is model[0].mean
        model.set_submodule("1.0", nn.Identity())
        assert isinstance(model[1][0], nn.Identity)
        with pytest.raises(AttributeError, match="Block has no attribute `nothing`"):
            model.get_submodule("0.nothing")
        with pytest.raises(AttributeError, match=r"`scale` is not an nn.Module"):
            model.get_submodule("0.scale")


class TestModes:
    def test_train_and_eval_reach_all_modules(self):
        model = nn.Sequential(Block())
        assert model.eval() is model and not model[0].inner.training
        assert model.train()[0].inner.training
        with pytest.raises(ValueError, match="expected to be boolean"):
            model.train("yes")

    def test_requires_grad_and_zero_grad(self):
        block = Block()
        block(pb.ones(1, 2)).sum().backward()
        assert all(p.grad is not None for p in block.parameters())
        block.zero_grad(set_to_none=False)
        assert all((p.grad == 0).all() for p in block.parameters())
        block.zero_grad()
        assert all(p.grad is None for p in block.parameters())
        assert not any(p.requires_grad for p in block.requires_grad_(False).parameters())

    def test_apply_goes_from_the_inside_out(self):
        seen = []
        nn.Sequential(nn.Sequential(nn.ReLU())).apply(lambda m: seen.append(type(m).__name__))
        assert seen == ["ReLU", "Sequential", "Sequential"]


class TestMoves:
    def test_parameters_stay_the_same_objects(self):
        block = Block()
        before = list(block.parameters())
        block(pb.ones(1, 2)).sum().backward()
        block.double()
        assert all(a is b for a, b in zip(before, block.parameters()))
        assert block.scale.dtype == block.scale.grad.dtype == block.mean.dtype == pb.float64
        assert block(pb.ones(1, 2, dtype=pb.float64)).dtype == pb.float64

    def test_integers_are_not_cast(self):
        layer = nn.BatchNorm1d(2).half()
        assert layer.num_batches_tracked.dtype == pb.int64 and layer.weight.dtype == pb.float16
        assert nn.BatchNorm1d(2).to(pb.ones(1, dtype=pb.float64)).running_var.dtype == pb.float64
        with pytest.raises(TypeError, match="only accepts floating point or complex dtypes"):
            layer.to(pb.int32)

    def test_meta_and_to_empty(self):
        layer = nn.Linear(2, 3, device="meta")
        assert layer.weight.is_meta
        layer.to_empty(device="ref").reset_parameters()
        assert layer.weight.device.type == "ref" and bool((layer.weight.abs() < 1).all())

    def test_memory_format(self):
        layer = nn.Conv2d(2, 3, 3).to(memory_format=pb.channels_last)
        assert layer.weight.is_contiguous(memory_format=pb.channels_last)


class TestCopies:
    @pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
    def test_copies_are_equal_and_share_nothing(self, copied):
        block = nn.Sequential(Block(), nn.BatchNorm1d(3), nn.Dropout())
        block[0].inner.weight.requires_grad_(False)
        made = copied(block)
        for (name, one), (other_name, other) in zip(
            block.state_dict().items(), made.state_dict().items(), strict=True
        ):
            assert name == other_name and pb.equal(one, other)
            assert one.data_ptr() != other.data_ptr()
        assert type(made[0].scale) is nn.Parameter
        assert [p.requires_grad for p in made.parameters()] == [
            p.requires_grad for p in block.parameters()
        ]
        assert repr(made) == repr(block)


class TestRepr:
    def test_nested(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Sequential(nn.Linear(1, 1), nn.ReLU())

            def extra_repr(self):
                return "one\ntwo"

        assert repr(Two()) == (
            "Two(\n  one\n  two\n  (a): Sequential(\n    (0): Linear(in_features=1, out_features=1,"
            " bias=True)\n    (1): ReLU()\n  )\n)"
        )
        assert repr(nn.Module()) == "Module()"


class TestContainers:
    def test_sequential_is_a_sequence(self):
        a, b, c = nn.ReLU(), nn.Tanh(), nn.Sigmoid()
        model = nn.Sequential(a, b)
        model.append(c).insert(0, c)
        assert list(model) == [c, a, b, c] and model[-1] is c and len(model) == 4
        del model[0]
        assert list(model._modules) == ["0", "1", "2"] and model.pop(1) is b
        assert list(model[:1]) == [a] and type(model[:1]) is nn.Sequential
        assert list(model + nn.Sequential(b)) == [a, c, b] and list(model * 2) == [a, c, a, c]
        model[0] = b
        assert model[0] is b
        with pytest.raises(IndexError, match="index 5 is out of range"):
            model[5]

    def test_names_of_an_ordered_dict_are_kept(self):
        from collections import OrderedDict

        model = nn.Sequential(OrderedDict(first=nn.Linear(1, 2), second=nn.Linear(2, 1)))
        assert model.first.out_features == 2 and model(pb.ones(1, 1)).shape == (1, 1)
        assert next(iter(model.state_dict())) == "first.weight"
        assert list(model[1:]._modules) == ["second"]

    def test_module_list_and_dict(self):
        layers = nn.ModuleList(nn.Linear(1, 1) for _ in range(3))
        layers.extend([nn.ReLU()])
        layers.insert(1, nn.Tanh())
        assert len(layers) == 5 and isinstance(layers[1], nn.Tanh)
        assert len(list(layers.parameters())) == 6
        named = nn.ModuleDict({"a": layers[0]})
        named.update([("b", layers[1])])
        assert "a" in named and list(named.keys()) == ["a", "b"] and named.pop("a") is layers[0]
        with pytest.raises(NotImplementedError, match="forward"):
            layers(1)

    def test_parameter_containers(self):
        weights = nn.ParameterList([pb.ones(2), nn.Parameter(pb.zeros(1))])
        weights.append(pb.ones(3))
        assert [w.shape[0] for w in weights] == [2, 1, 3]
        assert all(isinstance(w, nn.Parameter) for w in weights)
        named = nn.ParameterDict({"a": pb.ones(2)}) | {"b": pb.ones(3)}
        assert list(named.state_dict()) == ["a", "b"]
        assert named.popitem()[0] == "b" and len(named) == 1 and named.get("z") is None


class TestLazy:
    def test_the_first_call_decides_the_sizes(self):
        model = nn.Sequential(
            nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2)
        )
        assert model[0].has_uninitialized_params()
        assert model(pb.ones(2, 3, 5, 5)).shape == (2, 2)
        assert [type(m) for m in model] == [nn.Conv2d, nn.BatchNorm2d, nn.Flatten, nn.Linear]
        assert model[3].in_features == 36
        assert all(type(p) is nn.Parameter for p in model.parameters())
        assert model[0].weight.abs().max() <= 27**-0.5

    def test_a_state_dict_decides_them_too(self):
        layer = nn.LazyLinear(2)
        layer.load_state_dict(nn.Linear(3, 2).state_dict())
        assert layer.weight.shape == (2, 3)
        assert layer(pb.ones(1, 3)).shape == (1, 2) and type(layer) is nn.Linear

    def test_an_uninitialized_parameter_has_no_shape(self):
        weight = nn.UninitializedParameter()
        with pytest.raises(RuntimeError, match="uninitialized parameter"):
            weight.shape
        weight.materialize((2,))
        assert type(weight) is nn.Parameter and weight.requires_grad


class TestParameter:
    def test_it_shares_memory_and_gives_plain_results(self):
        data = pb.ones(2)
        parameter = nn.Parameter(data)
        data.zero_()
        assert parameter.tolist() == [0, 0] and parameter.requires_grad and parameter.is_leaf
        assert type(parameter + 1) is pb.Tensor and isinstance(parameter, pb.Tensor)
        assert not isinstance(data, nn.Parameter)
        assert not nn.Parameter(data, requires_grad=False).requires_grad
        with pytest.raises(RuntimeError, match="Only Tensors of floating point and complex dtype"):
            nn.Parameter(pb.tensor([1]))

    def test_buffers(self):
        module = nn.Module()
        module.a = nn.Buffer(pb.ones(1))
        module.b = nn.Buffer(pb.ones(1), persistent=False)
        assert list(module.state_dict()) == ["a"] and len(list(module.buffers())) == 2
        assert isinstance(module.a, nn.Buffer) and not isinstance(pb.ones(1), nn.Buffer)


class TestInit:
    """Distributions, by moments of many numbers."""

    @pytest.mark.parametrize(
        ("name", "bound", "normal"),
        [
            ("xavier_uniform_", (6 / 500) ** 0.5, False),
            ("xavier_normal_", (2 / 500) ** 0.5, True),
            ("kaiming_uniform_", (6 / 300) ** 0.5, False),
            ("kaiming_normal_", (2 / 300) ** 0.5, True),
        ],
    )
    def test_variance_follows_the_fans(self, name, bound, normal):
        values = getattr(nn.init, name)(pb.empty(200, 300)).numpy()
        if not normal:
            assert np.abs(values).max() <= bound
        std = bound if normal else bound / 3**0.5
        assert values.std() == pytest.approx(std, rel=0.02)
        assert abs(values.mean()) < 0.02 * std * 3

    def test_orthogonal(self):
        weight = nn.init.orthogonal_(pb.empty(4, 2, 3, dtype=pb.float64), gain=2.0).flatten(1)
        np.testing.assert_allclose((weight @ weight.T).numpy(), 4 * np.eye(4), atol=1e-12)
        tall = nn.init.orthogonal_(pb.empty(6, 4, dtype=pb.float64)).numpy()
        np.testing.assert_allclose(tall.T @ tall, np.eye(4), atol=1e-12)

    def test_trunc_normal_is_a_normal_one_between_the_bounds(self):
        scipy_stats = pytest.importorskip("scipy.stats")
        values = nn.init.trunc_normal_(pb.empty(20000), 1.0, 2.0, -1.0, 2.0).numpy()
        wanted = scipy_stats.truncnorm(-1, 0.5, 1, 2)
        assert scipy_stats.kstest(values, wanted.cdf).pvalue > 1e-4

    def test_layers_begin_as_they_should(self):
        layer = nn.Linear(25, 200)
        assert float(layer.weight.abs().max()) <= 0.2 and float(layer.bias.abs().max()) <= 0.2
        assert float(layer.weight.std()) == pytest.approx(0.2 / 3**0.5, rel=0.05)
        kernel = nn.Conv2d(4, 64, 3, groups=2)
        assert float(kernel.weight.abs().max()) <= 18**-0.5
        table = nn.Embedding(100, 40, padding_idx=-1).weight
        assert float(table[:-1].std()) == pytest.approx(1, rel=0.05)
        assert (table[99] == 0).all()


def test_modules_are_listed_once_or_as_often_as_they_are_there():
    layer = nn.Identity()
    model = nn.Sequential(layer, layer)
    assert list(model.modules()) == [model, layer]
    assert list(model.modules(remove_duplicate=False)) == [model, layer, layer]


class Tagged(pb.Tensor):
    pass


def context():
    kept = []

    class Double(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            kept.append(ctx)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    Double.apply(pb.ones(1, requires_grad=True))
    return kept[0]


@pytest.mark.parametrize(
    "made",
    [
        lambda: nn.Linear(2, 1),
        lambda: pb.ones(1),
        lambda: pb.ones(1).as_subclass(Tagged),
        context,
        lambda: nn.Parameter(pb.ones(1)),
    ],
)
def test_dict_of_an_object_can_be_assigned(made):
    original = made()
    original.note = "mine"
    other = made()
    other.__dict__ = original.__dict__.copy()
    assert other.note == "mine"
    other.note = "other"
    assert original.note == "mine"
    with pytest.raises(TypeError, match="__dict__ must be set to a dictionary, not a 'int'"):
        original.__dict__ = 3
    assert original.note == "mine"


def test_module_is_copied_by_its_dict():
    layer = nn.Linear(2, 1)
    clone = layer.__new__(type(layer))
    clone.__dict__ = layer.__dict__.copy()
    clone._parameters = dict(layer._parameters)
    clone._parameters["weight"] = layer.weight * 2
    x = pb.ones(3, 2)
    (clone(x) - layer.bias).sum().backward()
    assert layer.weight.grad.tolist() == [[6.0, 6.0]] and clone.bias is layer.bias


def test_getattr_of_a_subclass_receives_the_names_of_members():
    asked = []

    class Watched(nn.Linear):
        def __getattr__(self, name):
            asked.append(name)
            return super().__getattr__(name)

    class Further(Watched):
        pass

    layer = Further(2, 1)
    asked.clear()
    layer.register_buffer("scale", pb.ones(1))
    layer.inner = nn.Identity()
    asked.clear()
    assert layer.weight is layer._parameters["weight"]
    assert layer.scale is layer._buffers["scale"] and layer.inner is layer._modules["inner"]
    assert asked == ["weight", "scale", "inner"]
    layer.in_features, layer.training, layer.forward
    assert asked == ["weight", "scale", "inner"]
    with pytest.raises(AttributeError, match="'Further' object has no attribute 'nothing'"):
        layer.nothing
    asked.clear()
    layer(pb.ones(1, 2))
    assert asked == ["weight", "bias"]


def test_getattr_of_a_subclass_may_replace_members():
    class Halved(nn.Linear):
        def __getattr__(self, name):
            found = super().__getattr__(name)
            return found / 2 if name == "weight" else found

    layer = Halved(2, 1, bias=False)
    x = pb.ones(1, 2)
    layer(x).sum().backward()
    assert pb.equal(layer(x), x @ layer._parameters["weight"].T / 2)
    assert layer._parameters["weight"].grad.tolist() == [[0.5, 0.5]]


def test_call_impl_of_a_subclass_runs():
    class Doubled(nn.Linear):
        def _call_impl(self, *args, **kwargs):
            return 2 * super()._call_impl(*args, **kwargs)

    layer, x = Doubled(2, 1), pb.ones(1, 2)
    assert pb.equal(layer(x), 2 * layer.forward(x))
    assert pb.equal(nn.Sequential(layer)(x), layer(x))
