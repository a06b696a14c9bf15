"""What compiled functions depend on beside the elements of their arguments."""

import io
import json
import pickle
import types
import warnings
from collections import deque
from dataclasses import dataclass

import pytest

import pullback as pb


class Settings:
    scale = 1.0

    @property
    def own(self):
        return self._own

    @staticmethod
    def times(x):
        return x * Settings.scale


@dataclass(slots=True)
class Slots:
    scale: float = 1.0


class Scaled(pb.nn.Module):
    scale = 1.0

    def forward(self, x):
        return x * self.scale


@pytest.fixture
def settings():
    yield Settings
    Settings.scale = 1.0


def by_class(x):
    return x * Settings.scale


def by_static_method(x):
    return Settings.times(x)


@pytest.mark.parametrize("function", [by_class, by_static_method])
def test_attributes_of_classes_are_watched(settings, function):
    compiled = pb.compile(function)
    for scale in (1.0, 5.0, 5.0, 2.0):
        settings.scale = scale
        assert compiled(pb.ones(1)).item() == scale


def test_attributes_that_hide_those_of_a_class_are_watched():
    module, other = Scaled(), Settings()
    compiled = pb.compile(module)
    optional = pb.compile(lambda x: x * getattr(other, "absent", 1.0))
    asked = pb.compile(lambda x: x * (5.0 if hasattr(other, "absent") else 1.0))
    for _ in range(2):
        assert [f(pb.ones(1)).item() for f in (compiled, optional, asked)] == [1, 1, 1]
    module.scale = other.absent = 5.0
    for _ in range(2):
        assert [f(pb.ones(1)).item() for f in (compiled, optional, asked)] == [5, 5, 5]


def test_properties_namespaces_and_slots_are_watched():
    own, names, slots = Settings(), types.SimpleNamespace(scale=1.0), Slots()
    own._own = 1.0
    functions = [
        pb.compile(function)
        for function in (
            lambda x: x * own.own,
            lambda x: x * names.scale,
            lambda x: x * slots.scale,
        )
    ]
    for value in (1.0, 1.0, 5.0, 5.0):
        own._own = names.scale = slots.scale = value
        assert [function(pb.ones(1)).item() for function in functions] == [value] * 3
    del slots.scale
    with pytest.raises(AttributeError):
        functions[2](pb.ones(1))
    slots.scale = 2.0
    assert functions[2](pb.ones(1)).item() == 2


def test_items_of_sets_deques_and_arrays_of_bytes_are_watched():
    some, waiting, octets = {1}, deque([1]), bytearray(b"\1")
    functions = [
        pb.compile(function)
        for function in (
            lambda x: x * sum(some),
            lambda x: x * len(waiting),
            lambda x: x * octets[0],
        )
    ]
    for _ in range(2):
        assert [function(pb.ones(1)).item() for function in functions] == [1, 1, 1]
    some.add(4), waiting.append(0), octets.__setitem__(0, 7)
    for _ in range(2):
        assert [function(pb.ones(1)).item() for function in functions] == [5, 2, 7]


def test_tensor_in_a_tuple_is_watched():
    weights = (pb.ones(1),)
    compiled = pb.compile(lambda x: x * weights[0])
    assert not compiled(pb.ones(1)).requires_grad
    weights[0].requires_grad_()
    assert compiled(pb.ones(1)).requires_grad


def test_objects_with_attributes_of_their_own_making():
    class Answers:
        def __init__(self):
            self._found = {"scale": 2.0}

        def __getattr__(self, name):
            return self.__dict__["_found"][name]  # KeyError for any other

    answers = Answers()
    compiled = pb.compile(lambda x: x * answers.scale)
    assert [compiled(pb.ones(1)).item() for _ in range(2)] == [2, 2]


# ---- what calls change ---------------------------------------------------------------------------


def eagerly():
    return pytest.warns(UserWarning, match="runs eagerly")


def test_scheduler_in_a_step_runs():
    net = pb.nn.Linear(2, 1)
    optimizer = pb.optim.SGD(net.parameters(), lr=1.0)
    scheduler = pb.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

    @pb.compile
    def step(x):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
        scheduler.step()

    rates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(6):
            step(pb.ones(1, 2))
            rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [1, 0.5, 0.5, 0.25, 0.25, 0.125]


def test_scale_of_a_scaler_is_watched():
    def weights(wrap):
        w = pb.ones(2).requires_grad_()
        scaler = pb.amp.GradScaler(pb.get_default_device().type, init_scale=4.0, growth_interval=1)
        optimizer = pb.optim.SGD([w], lr=0.1)

        def step(x):
            optimizer.zero_grad()
            scaler.scale((w * x).sum()).backward()

        run = wrap(step)
        for _ in range(5):
            run(pb.ones(2))
            scaler.step(optimizer)
            scaler.update()
        return w

    assert weights(pb.compile).equal(weights(lambda function: function))


def test_counter_of_an_optimizer_is_watched():
    class Slowing(pb.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})
            self.count = 0

        def step(self):
            self.count += 1
            with pb.no_grad():
                for group in self.param_groups:
                    for parameter in group["params"]:
                        parameter.sub_(parameter.grad / self.count)

    w = pb.zeros(1).requires_grad_()
    optimizer = Slowing([w])

    @pb.compile
    def step():
        optimizer.zero_grad()
        w.sum().backward()
        optimizer.step()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(4):
            step()
    assert w.item() == pytest.approx(-(1 + 1 / 2 + 1 / 3 + 1 / 4))


def test_state_that_a_call_keeps_is_that_of_the_last_call():
    class Keeping(pb.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = pb.nn.Linear(2, 2)

        def forward(self, x):
            self.hidden = self.layer(x)
            return self.hidden.sum()

    module = Keeping()
    compiled = pb.compile(module)
    kept = {"h": None}
    noting = pb.compile(lambda x, notes: notes.update(h=x * 2) or x.sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(5):
            x = pb.ones(2) * i
            compiled(x)
            noting(x, kept)
            assert module.hidden.equal(module.layer(x)) and kept["h"].equal(x * 2)


def test_modes_that_a_call_leaves_run_eagerly():
    def leave(x):
        pb.set_grad_enabled(False)
        return x * 2

    compiled = pb.compile(leave)
    with eagerly():
        compiled(pb.ones(2))
    pb.set_grad_enabled(True)
    for _ in range(3):
        compiled(pb.ones(2))
        assert not pb.is_grad_enabled()
        pb.set_grad_enabled(True)


def test_iterators_and_loaders_run_eagerly():
    source = iter([pb.ones(1) * i for i in range(5)])
    loader = pb.utils.data.DataLoader(pb.utils.data.TensorDataset(pb.arange(6.0)), shuffle=True)
    step, first = (
        pb.compile(lambda: next(source) * 1),
        pb.compile(lambda: next(iter(loader))[0] * 1),
    )
    with eagerly():
        assert [step().item() for _ in range(4)] == [0, 1, 2, 3]
    with eagerly():
        assert len({first().item() for _ in range(250)}) == 6


def test_results_that_are_run_later_or_hold_tensors_run_eagerly():
    def counting(x):
        yield x
        yield x * 2

    each = pb.compile(counting)
    holding = pb.compile(lambda x: (x.sum(), types.SimpleNamespace(h=x * 2), lambda: x * 3))
    with eagerly():
        assert [len(list(each(pb.ones(1)))) for _ in range(3)] == [2, 2, 2]
    with eagerly():
        for i in range(3):
            _, names, later = holding(pb.ones(1) * i)
            assert (names.h.item(), later().item()) == (2 * i, 3 * i)


# ---- arguments -----------------------------------------------------------------------------------


def test_arguments_that_are_one_tensor():
    which = pb.compile(lambda x, y: x * 2 if x is y else x * 3)
    a, b = pb.ones(1), pb.ones(1)
    assert [which(a, b).item(), which(a, a).item(), which(a, b).item()] == [3, 2, 3]

    step = pb.compile(lambda x, y: (x * y).sum().backward())
    for count in range(1, 5):
        a, b = pb.ones(2).requires_grad_(), pb.ones(2).requires_grad_()
        step(a, b)
        step(a, a)
        assert a.grad.tolist() == [3, 3] and b.grad.tolist() == [1, 1], count


def test_dtype_of_autocast_is_watched():
    product = pb.compile(lambda a, b: a @ b)
    for dtype in (pb.bfloat16, pb.float16, pb.bfloat16):
        for _ in range(2):
            with pb.autocast(pb.get_default_device().type, dtype=dtype):
                assert product(pb.ones(2, 2), pb.ones(2, 2)).dtype == dtype


def test_inference_tensors_have_programs_of_their_own():
    write = pb.compile(lambda x: x.add_(1))
    with pb.inference_mode():
        inside = pb.ones(2)
    for _ in range(3):
        write(pb.ones(2))
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            write(inside)


def test_number_that_the_backward_pass_reads():
    class Scale(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.factor, None

    def hooked(x, factor):
        y = x * 1
        y.register_hook(lambda grad: grad * factor)
        return y * 2

    scale, hook = pb.compile(Scale.apply), pb.compile(hooked)
    for factor in (1.0, 2.0, 3.0, 4.0):
        x, y = pb.ones(2).requires_grad_(), pb.ones(2).requires_grad_()
        scale(x, factor).sum().backward()
        hook(y, factor).sum().backward()
        assert x.grad.tolist() == [factor] * 2 and y.grad.tolist() == [2 * factor] * 2


# ---- backward passes -----------------------------------------------------------------------------


def test_gradients_that_are_conjugates():
    weight = pb.tensor([1j, 2 + 1j])

    def gradient(wrap):
        square = wrap(lambda z: z * z)
        found = []
        for _ in range(3):
            z = pb.tensor([1 + 2j, 3 - 1j]).requires_grad_()
            (square(z).conj() * weight).real.sum().backward()
            found.append(z.grad.tolist())
        return found

    assert gradient(pb.compile) == gradient(lambda function: function)


def test_results_without_a_gradient_add_nothing():
    both = pb.compile(lambda x: (x.sqrt(), x * 2))
    a, b = pb.ones(2).requires_grad_(), pb.ones(2).requires_grad_()
    apart = pb.compile(lambda x: (x * a, x * b))
    for _ in range(4):
        x = pb.tensor([0.0, 1.0]).requires_grad_()
        both(x)[1].sum().backward()
        assert x.grad.tolist() == [2, 2]
        a.grad = b.grad = None
        apart(pb.ones(2))[0].sum().backward()
        assert a.grad.tolist() == [1, 1] and b.grad is None
        second = apart(pb.ones(2))[1].sum()
        assert pb.autograd.grad(second, [a, b], allow_unused=True)[0] is None


def test_sparse_gradients():
    table = pb.nn.Embedding(4, 2, sparse=True)
    compiled = pb.compile(table)
    with eagerly():
        for _ in range(3):
            table.zero_grad()
            compiled(pb.tensor([1])).sum().backward()
            assert table.weight.grad.is_sparse


def test_hooks_that_are_set_later():
    w = pb.ones(1).requires_grad_()
    optimizer = pb.optim.SGD([w], lr=0.0)

    @pb.compile
    def step(x):
        w.grad = None
        (w * x).sum().backward()
        optimizer.step()

    for _ in range(3):
        step(pb.ones(1))
    calls = []
    handles = [
        w.register_hook(lambda grad: grad * 10),
        optimizer.register_step_post_hook(lambda *_: calls.append(1)),
    ]
    step(pb.ones(1))
    assert w.grad.tolist() == [10] and calls == [1]
    for handle in handles:
        handle.remove()
    for _ in range(2):
        step(pb.ones(1))
    assert w.grad.tolist() == [1]


def test_second_derivatives_are_those_of_the_call():
    product = pb.compile(lambda a, b: a @ b)
    b, found = pb.rand(2, 2), []
    for _ in range(2):
        a = pb.ones(1, 2).requires_grad_()
        with pb.autocast(pb.get_default_device().type, dtype=pb.bfloat16):
            y = product(a, b)
        found.append(pb.autograd.grad(y.float().sum(), a, create_graph=True)[0].tolist())
    assert found[0] == found[1]
    module = pb.nn.Sequential(pb.nn.Linear(2, 2), pb.nn.Dropout(0.5))
    compiled = pb.compile(module)
    for _ in range(2):
        module.train()
        x = pb.ones(2).requires_grad_()
        y = compiled(x).sum()
    module.eval()
    with pytest.raises(RuntimeError, match="was changed since its call"):
        pb.autograd.grad(y, x, create_graph=True)


def test_results_that_share_memory_are_not_written_in_place():
    def two(x):
        y = x * 2
        return y, y.view(1, 2)

    both, first = pb.compile(two), pb.compile(lambda x: x[0])
    apart = pb.compile(lambda x: (x * 2, x * 3))
    for call in range(3):
        x, y = pb.ones(2).requires_grad_(), pb.ones(2, 2).requires_grad_()
        results, row = both(x), first(y * 1)
        for one in (*results, row) if call else ():
            with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
                one.mul_(3)
        sum(one.sum() for one in (*results, row)).backward()
        assert x.grad.tolist() == [4, 4] and y.grad.tolist() == [[1, 1], [0, 0]]
        z = pb.ones(2).requires_grad_()
        one, other = apart(z)
        (one.mul_(3) + other).sum().backward()
        assert z.grad.tolist() == [9, 9]


# ---- pickles -------------------------------------------------------------------------------------


@pb.compile
def doubled(x):
    return x * 2


def test_function_of_a_module_pickles_by_name():
    assert pickle.loads(pickle.dumps(doubled)) is doubled


def test_learning_rate_that_is_an_argument_stays_a_float():
    w = pb.ones(1).requires_grad_()
    optimizer = pb.optim.SGD([w], lr=0.1)

    @pb.compile
    def step(x, rate):
        for group in optimizer.param_groups:
            group["lr"] = rate
        (w * x).sum().backward()
        optimizer.step()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rate in (0.1, 0.2, 0.3):
            step(pb.ones(1), rate)
    kept = optimizer.param_groups[0]["lr"]
    assert type(kept) is float and kept == 0.3 and json.dumps(kept) == "0.3"
    pb.save(optimizer.state_dict(), io.BytesIO())
