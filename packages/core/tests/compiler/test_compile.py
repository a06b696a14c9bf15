"""compile: a replay computes what the function does, and what cannot be replayed is refused."""

import copy
import gc
import io
import threading
import warnings
import weakref

import pytest

import pullback as pb
from pullback import nn


def same(one, other):
    """True if two tensors have the same elements, NaN included."""
    return bool(((one == other) | (one != one) & (other != other)).all())


def replayed(compiled):
    """Return how often programs of a compiled function ran."""
    return sum(entry.runs for entry in compiled.entries)


def test_replay_gives_the_bits_of_the_function():
    def function(x, y):
        return pb.tanh(x) * y + pb.exp(-x * x), x.sum(0)

    compiled = pb.compile(function)
    for _ in range(4):
        x, y = pb.randn(5, 7), pb.randn(7)
        for found, expected in zip(compiled(x, y), function(x, y)):
            assert same(found, expected) and found.stride() == expected.stride()
    assert replayed(compiled) == 3


def test_function_runs_once():
    calls = io.StringIO()  # which is not watched

    @pb.compile
    def function(x):
        calls.write("x")
        return x + 1

    for _ in range(3):
        function(pb.zeros(3))
    assert calls.getvalue() == "x"


def test_results_of_two_calls_share_no_memory():
    compiled = pb.compile(lambda x: (x * 2, pb.ones(3)))
    compiled(pb.zeros(3))
    first, second = compiled(pb.zeros(3)), compiled(pb.ones(3))
    assert first[0].tolist() == [0.0] * 3 and second[0].tolist() == [2.0] * 3
    first[1].zero_()
    assert compiled(pb.zeros(3))[1].tolist() == second[1].tolist() == [1.0] * 3


def test_results_that_share_memory_share_it_in_a_replay():
    compiled = pb.compile(lambda x: ((y := x * 2), y[1:]))
    for _ in range(2):
        whole, part = compiled(pb.ones(3))
        part.zero_()
        assert whole.tolist() == [2.0, 0.0, 0.0]


@pytest.mark.parametrize("number", [2, 2.5, True, 1j])
def test_numbers_of_a_call_are_no_constants(number):
    compiled = pb.compile(lambda x, n: x * n)
    x = pb.ones(2)
    compiled(x, number)
    assert compiled(x, 3).tolist() == [3, 3]
    assert same(compiled(x, number), x * number)
    one = pb.compile(lambda x, n: x * n)
    assert [one(x, pb.tensor(float(n))).tolist() for n in range(3)] == [[n, n] for n in range(3)]


def test_negative_zero_is_another_number():
    compiled = pb.compile(lambda x, n: x / n)
    x = pb.ones(1)
    assert compiled(x, 0.0).item() == -compiled(x, -0.0).item() == float("inf")


def test_number_in_a_closure_is_watched():
    factor = 2.0

    def function(x):
        return x * factor

    compiled = pb.compile(function)
    assert compiled(pb.ones(1)).item() == 2
    factor = 5.0
    assert compiled(pb.ones(1)).item() == 5


FACTOR = 2.0
SETTINGS = {"power": 2}


def scaled(x):
    return x * FACTOR


def test_globals_are_watched_in_functions_that_are_called(monkeypatch):
    compiled = pb.compile(lambda x: scaled(x) ** SETTINGS["power"])
    assert compiled(pb.ones(1)).item() == 4
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert compiled(pb.ones(1)).item() == 9
    monkeypatch.setitem(SETTINGS, "power", 3)
    assert compiled(pb.ones(1)).item() == 27


def test_attribute_of_an_object_is_watched():
    class Scale:
        factor = 1

        def __init__(self):
            self.factor = 2
            self.calls = 0

        def run(self, x):
            return x * self.factor

    scale = Scale()
    compiled = pb.compile(scale.run)
    assert compiled(pb.ones(1)).item() == 2
    scale.factor = 7
    assert compiled(pb.ones(1)).item() == 7
    scale.calls = 3  # which the function does not use
    compiled(pb.ones(1))
    assert len(compiled.entries) == 2


def test_one_tensor_for_two_arguments():
    compiled = pb.compile(lambda x, y: x.mul_(2) + y)
    x = pb.ones(2)
    assert compiled(x, x).tolist() == [4, 4]
    assert compiled(pb.ones(2), pb.ones(2)).tolist() == [3, 3]
    x = pb.ones(2)
    assert compiled(x, x).tolist() == [4, 4] and x.tolist() == [2, 2]
    memory = pb.ones(4)  # overlapping parts of one block
    assert compiled(memory[:2], memory[1:3]).tolist() == [4, 3]


def test_write_to_an_argument_that_is_read_later():
    def function(x):
        y = x * 3
        x.add_(1)
        return y + x

    compiled = pb.compile(function)
    for _ in range(3):
        x = pb.ones(2)
        assert compiled(x).tolist() == [5, 5]
        assert x.tolist() == [2, 2] and x._version == 1


def test_result_that_is_an_argument_or_a_view_of_it():
    compiled = pb.compile(lambda x: (x, x[1:], x.t()))
    for _ in range(2):
        x = pb.randn(3, 2)
        whole, part, turned = compiled(x)
        assert whole is x
        part.zero_()
        assert x[1:].tolist() == turned.t()[1:].tolist() == [[0, 0], [0, 0]]


def test_argument_that_is_a_part_of_other_memory():
    compiled = pb.compile(lambda x: x + 1)
    memory = pb.arange(10.0)
    for start in (0, 3, 5):
        assert compiled(memory[start : start + 2]).tolist() == [start + 1, start + 2]
    assert len(compiled.entries) == 1


def test_other_sizes_strides_dtypes_and_modes_have_programs_of_their_own():
    compiled = pb.compile(lambda x: x * 2)
    x = pb.randn(3, 4)
    for value in (x, x.t(), x.double(), x[:, ::2], x.clone().requires_grad_()):
        assert same(compiled(value), value * 2) and same(compiled(value), value * 2)
    assert len(compiled.entries) == 5
    with pb.no_grad():
        assert not compiled(x.clone().requires_grad_()).requires_grad
    assert len(compiled.entries) == 6


def test_nested_arguments_and_results():
    compiled = pb.compile(
        lambda x, *, more: {"sum": x + more["y"][0], "none": None, "n": [1, (x,)]}
    )
    for _ in range(2):
        x = pb.ones(2)
        found = compiled(x, more={"y": [pb.full((2,), 2.0)]})
        assert found["sum"].tolist() == [3, 3] and found["none"] is None
        assert found["n"][0] == 1 and found["n"][1][0] is x


# ---- outer tensors -------------------------------------------------------------------------------


def test_parameters_may_be_written_and_replaced():
    layer = nn.Linear(2, 2, bias=False)
    compiled = pb.compile(lambda x: layer(x).detach())
    x = pb.ones(1, 2)
    compiled(x)
    with pb.no_grad():
        layer.weight.fill_(1)
    assert compiled(x).tolist() == [[2, 2]] and len(compiled.entries) == 1
    layer.weight = nn.Parameter(pb.full((2, 2), 3.0))
    assert compiled(x).tolist() == [[6, 6]]
    layer.weight.data = pb.full((2, 2), 5.0)
    assert compiled(x).tolist() == [[10, 10]]


def test_training_mode_is_watched():
    layer = nn.Dropout(0.5)
    compiled = pb.compile(layer)
    x = pb.ones(200)
    assert (compiled(x) == 0).any() and (compiled(x) == 0).any()
    layer.eval()
    assert compiled(x).tolist() == [1.0] * 200


def test_objects_among_the_arguments_are_watched():
    class Scale:
        factor = 2.0

    compiled = pb.compile(lambda layer, scale, x: layer(x) * scale["it"].factor)
    layer, scale = nn.Dropout(0.5), Scale()
    scale.factor = 2.0
    x = pb.ones(200)
    assert (compiled(layer, {"it": scale}, x) == 0).any()
    layer.eval()
    assert compiled(layer, {"it": scale}, x).tolist() == [2.0] * 200
    scale.factor = 3.0
    assert compiled(layer, {"it": scale}, x).tolist() == [3.0] * 200


def test_programs_of_what_was_replaced_are_dropped():
    held = [pb.ones(3)]
    compiled = pb.compile(lambda x: x + held[0])
    for number in range(40):
        held[0] = pb.full((3,), float(number))
        assert compiled(pb.zeros(3)).tolist() == [number] * 3
    assert len(compiled.entries) == 1


def test_results_without_memory_are_new():
    compiled = pb.compile(lambda x: x[:0] * 2)
    results = [compiled(pb.ones(2, 3)) for _ in range(3)]
    assert [list(one.shape) for one in results] == [[0, 3]] * 3
    assert results[1] is not results[2]


def test_empty_results_with_a_history_are_new():
    w = pb.ones(3, requires_grad=True)
    compiled = pb.compile(lambda x: (x[:, :0] * w[:0], (x * w).sum()))
    kept = []
    for _ in range(4):
        empty, total = compiled(pb.ones(2, 3))
        assert empty.shape == (2, 0) and not any(empty is one for one in kept)
        kept.append(empty)
        w.grad = None
        (empty.sum() + total).backward()
        assert w.grad.tolist() == [2, 2, 2]
    assert kept[-1].grad_fn.name() == total.grad_fn.name() == "CompiledFunctionBackward"


def test_outer_memory_that_was_freed_is_not_used():
    held = [pb.ones(3)]
    compiled = pb.compile(lambda x: x + held[0])
    compiled(pb.zeros(3))
    held[0] = pb.full((3,), 4.0)
    assert compiled(pb.zeros(3)).tolist() == [4, 4, 4]


def test_random_numbers_are_those_of_the_function():
    def function(x):
        return x + pb.rand(3), pb.nn.functional.dropout(x, 0.5)

    compiled = pb.compile(function)
    pb.manual_seed(3)
    expected = [function(pb.ones(3)) for _ in range(3)]
    position = pb.get_rng_state().tolist()
    pb.manual_seed(3)
    found = [compiled(pb.ones(3)) for _ in range(3)]
    assert replayed(compiled) == 2 and pb.get_rng_state().tolist() == position
    for one, other in zip(found, expected):
        assert same(one[0], other[0]) and same(one[1], other[1])


# ---- gradients -----------------------------------------------------------------------------------


def test_gradients_of_results():
    layer = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    compiled = pb.compile(layer)
    for _ in range(3):
        x = pb.randn(5, 3, requires_grad=True)
        expected = pb.autograd.grad(layer(x).pow(2).sum(), [x, *layer.parameters()])
        found = pb.autograd.grad(compiled(x).pow(2).sum(), [x, *layer.parameters()])
        assert all(map(same, found, expected))
    assert replayed(compiled._compiled) == 2


def test_gradient_of_a_gradient():
    compiled = pb.compile(lambda x: (x**3).sum())
    for _ in range(3):
        x = pb.tensor([1.0, 2.0], requires_grad=True)
        (slope,) = pb.autograd.grad(compiled(x), x, create_graph=True)
        (curvature,) = pb.autograd.grad(slope.sum(), x)
        assert slope.tolist() == [3, 12] and curvature.tolist() == [6, 12]


def test_saved_memory_that_is_written_raises():
    compiled = pb.compile(lambda x: x.exp())
    for _ in range(2):
        y = compiled(pb.ones(2, requires_grad=True))
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def test_second_backward_pass_raises():
    compiled = pb.compile(lambda x: x.exp())
    compiled(pb.ones(2, requires_grad=True))
    x = pb.ones(2, requires_grad=True)
    y = compiled(x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


def training(optimizer, **settings):
    """Return a module and a whole step of training, with a module of buffers."""
    pb.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    stepper = optimizer(net.parameters(), **settings)

    def step(x, y):
        stepper.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        stepper.step()
        return loss

    return net, stepper, step


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (pb.optim.SGD, {"lr": 0.1}),
        (pb.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (pb.optim.Adam, {"lr": 0.01}),
        (pb.optim.AdamW, {"lr": 0.01, "foreach": True}),
        (pb.optim.RMSprop, {"lr": 0.01}),
        (pb.optim.Adagrad, {"lr": 0.01}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_step_of_training_is_one_program(optimizer, settings):
    if pb.get_default_device().type == "ref" and optimizer is not pb.optim.SGD:
        pytest.skip("without kernels for their steps, these optimizers read their counters")
    batches = [(pb.randn(6, 4), pb.randint(0, 2, (6,))) for _ in range(8)]
    net, _, step = training(optimizer, **settings)
    expected = [step(x, y).item() for x, y in batches]
    twin, _, twin_step = training(optimizer, **settings)
    compiled = pb.compile(twin_step)
    found = [compiled(x, y).item() for x, y in batches]
    assert found == expected and replayed(compiled) >= 5
    for (name, one), other in zip(net.state_dict().items(), twin.state_dict().values()):
        assert same(one, other), name
    grads = zip(net.parameters(), twin.parameters())
    assert all(same(one.grad, other.grad) for one, other in grads)


def test_gradients_accumulate_where_nothing_clears_them():
    layer = nn.Linear(2, 1)
    compiled = pb.compile(lambda x: layer(x).sum().backward())
    for count in range(1, 5):
        compiled(pb.ones(1, 2))
        assert layer.weight.grad.tolist() == [[count, count]]


def test_gradient_that_a_user_keeps_is_not_written():
    layer = nn.Linear(2, 1)

    @pb.compile
    def step(x):
        layer.zero_grad()
        layer(x).sum().backward()

    step(pb.ones(1, 2))
    step(pb.full((1, 2), 2.0))
    kept = layer.weight.grad
    step(pb.full((1, 2), 3.0))
    assert kept.tolist() == [[2, 2]] and layer.weight.grad.tolist() == [[3, 3]]


def test_transforms_leave_no_memory_behind():
    weight = pb.randn(4, 4)
    compiled = pb.compile(pb.func.hessian(lambda x: pb.tanh(weight @ x).pow(2).sum()))
    for _ in range(3):
        compiled(pb.randn(4))
    assert replayed(compiled) == 2


def test_transforms_and_custom_functions_inside():
    class Cube(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return 3 * grad * x * x

    def function(x):
        hessian = pb.func.hessian(lambda x: (x**3).sum())(x)
        slopes = pb.vmap(pb.func.grad(lambda x: x.sin()))(x)
        leaf = x.clone().requires_grad_()
        return hessian, slopes, pb.autograd.grad(Cube.apply(leaf).sum(), leaf)[0]

    compiled = pb.compile(function, fullgraph=True)
    for _ in range(3):
        x = pb.randn(4)
        assert all(map(same, compiled(x), function(x)))


# ---- what cannot be replayed ---------------------------------------------------------------------

REFUSED = {
    "item": (lambda x: x ** x.sum().item(), r"item\(\)"),
    "bool": (lambda x: x if x.sum() > 0 else -x, r"bool\(tensor\)"),
    "tolist": (lambda x: pb.tensor(x.tolist()), r"tolist\(\)"),
    "numpy": (lambda x: x + float(x.numpy()[0]), "shared with another library"),
    "nonzero": (lambda x: x.nonzero(), r"nonzero\(\)"),
    "data_ptr": (lambda x: x if x.data_ptr() else -x, r"data_ptr\(\)"),
    "resize_": (lambda x: x.clone().untyped_storage().resize_(400) and x, "replaced or resized"),
    "seed": (lambda x: pb.manual_seed(0) and x + pb.rand(3), "generator of random numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_depends_on_values_runs_eagerly_with_one_warning(name):
    function, message = REFUSED[name]
    compiled = pb.compile(function)
    values = pb.ones(3), -pb.ones(3), pb.full((3,), 2.0)
    with pytest.warns(UserWarning, match=message) as found:
        first = compiled(values[0])
    assert len(found) == 1 and same(first, function(values[0]))
    assert all(same(compiled(x), function(x)) for x in values)
    with pytest.raises(RuntimeError, match=f"cannot capture.*{message}"):
        pb.compile(function, fullgraph=True)(values[0])


def test_refusal_names_the_line():
    def function(x):
        return x ** x.sum().item()

    with pytest.raises(RuntimeError, match=r"item\(\) \(line \d+ of .*test_compile.py\)"):
        pb.compile(function, fullgraph=True)(pb.ones(2))


def test_more_signatures_than_the_limit_warn_and_name_what_varies():
    compiled = pb.compile(lambda x: x + 1)
    for size in range(16):
        compiled(pb.ones(size + 1))
    with pytest.warns(UserWarning, match=r"16 programs.*args\[0\]: float32\[40\] instead of"):
        compiled(pb.ones(40))
    assert compiled(pb.ones(41)).tolist() == [2.0] * 41 and len(compiled.entries) == 16


def test_function_that_keeps_what_it_makes_runs_eagerly():
    kept = []

    @pb.compile
    def function(x):
        kept.append(x * 2)
        return x + 1

    def run():
        for number in range(6):
            function(pb.full((1,), float(number)))

    with pytest.warns(UserWarning, match="keeps tensors besides its results"):
        run()
    assert [x.item() for x in kept] == [0, 2, 4, 6, 8, 10]


def test_anomaly_mode_and_transforms_around_run_eagerly():
    calls = io.StringIO()  # which is not watched

    @pb.compile
    def function(x):
        calls.write("x")
        return x.sin()

    function(pb.ones(2))
    with pb.autograd.set_detect_anomaly(True):
        function(pb.ones(2))
    pb.vmap(function)(pb.ones(3, 2))
    with pb.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        function(pb.ones(2))
    assert calls.getvalue() == "xxxx"


def test_exception_leaves_everything_usable():
    class Stop(Exception):
        pass

    def function(x, stop):
        y = x + 1
        if stop:
            raise Stop
        return y

    compiled = pb.compile(function)
    with pytest.raises(Stop):
        compiled(pb.ones(2), True)
    assert compiled(pb.ones(2), False).tolist() == compiled(pb.ones(2), False).tolist() == [2, 2]


# ---- lifetime, threads ---------------------------------------------------------------------------


def test_closures_leak_nothing(no_gc):
    alive = []
    for _ in range(20):
        weight = pb.ones(3)
        compiled = pb.compile(lambda x, weight=weight: x * weight)
        compiled(pb.ones(3))
        compiled(pb.ones(3))
        alive.append(weakref.ref(compiled))
        del compiled
    gc.collect()
    assert not any(one() is not None for one in alive)


def test_program_keeps_neither_arguments_nor_results():
    compiled = pb.compile(lambda x: x * 2)
    x = pb.ones(3)
    y = compiled(x)
    references = weakref.ref(x), weakref.ref(y)
    del x, y
    gc.collect()
    assert references[0]() is None and references[1]() is None


def test_threads_run_one_function_at_once():
    weight = pb.randn(64, 64)

    @pb.compile
    def function(x):
        y = x @ weight
        return pb.tanh(y) @ weight + y

    function(pb.randn(64, 64))
    errors = []

    def run(seed):
        x = pb.full((64, 64), float(seed))
        expected = pb.tanh(x @ weight) @ weight + x @ weight
        errors.extend(1 for _ in range(50) if not same(function(x), expected))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_modules_and_methods():
    layer = nn.Linear(2, 3)
    compiled = pb.compile(layer)
    assert compiled._orig_mod is layer and compiled.in_features == 2
    assert list(compiled.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    assert same(compiled(pb.ones(1, 2)), layer(pb.ones(1, 2)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        @pb.compile
        def forward(self, x):
            return self.layer(x) * 2

    net, other = Net(), Net()
    for module in (net, other, net, other):
        x = pb.randn(3, 2)
        assert same(module(x), module.layer(x) * 2)
    copied = copy.deepcopy(net)
    assert same(copied(pb.ones(1, 2)), net(pb.ones(1, 2)))


def test_disable_and_decorators():
    def function(x):
        return x

    assert pb.compile(function, disable=True) is function
    assert pb.compile(mode="max-autotune")(function)(X) is X
    compiled = pb.compile(function)
    assert pb.compile(compiled) is compiled and compiled.__name__ == "function"


X = pb.ones(2)


def test_stances_and_reset():
    compiled = pb.compile(lambda x: x * 2)
    set_stance = pb.compiler.set_stance
    with set_stance("force_eager"):
        assert compiled(pb.ones(1)).item() == 2 and not compiled.entries
    with set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="no program for this"):
        compiled(pb.ones(1))
    with set_stance("eager_on_recompile"):
        assert compiled(pb.ones(1)).item() == 2 and not compiled.entries
    compiled(pb.ones(1))
    assert len(compiled.entries) == 1
    pb.compiler.reset()
    assert not compiled.entries and compiled(pb.ones(1)).item() == 2
    with pytest.raises(RuntimeError, match="expected one of"):
        set_stance("other")


def test_disabled_function_inside_runs_eagerly():
    @pb.compiler.disable(reason="it prints")
    def inner(x):
        return x * 2

    with pytest.raises(RuntimeError, match="a function that is disabled: it prints"):
        pb.compile(inner, fullgraph=True)(pb.ones(1))
    assert pb.compile(lambda x: pb.compiler.is_compiling())(pb.ones(1)) is True


def test_warnings_are_those_of_this_module():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        pb.compile(lambda x: x.tolist())(pb.ones(1))
    assert [one.filename for one in found] == [__file__]


def test_gradients_that_the_function_makes_and_drops_are_its_own():
    weight = pb.randn(3, 2, requires_grad=True)
    x = pb.randn(4, 3)

    def step():
        for _ in range(2):
            (x @ weight).square().mean().backward()
            with pb.no_grad():
                weight.add_(weight.grad, alpha=-0.1)
            weight.grad = None

    compiled = pb.compile(step, fullgraph=True)
    twin = weight.detach().clone()
    for _ in range(4):
        compiled()
        for _ in range(2):
            leaf = twin.clone().requires_grad_()
            (x @ leaf).square().mean().backward()
            twin = twin.add(leaf.grad, alpha=-0.1)
        assert weight.tolist() == twin.tolist()
        assert weight.grad is None
    assert replayed(compiled) == 3
