"""Subclasses of Tensor and ``__torch_function__``: received calls, classes of results."""

import abc
import copy
import operator
import pickle
import threading
import warnings
import weakref
from typing import ClassVar

import numpy as np
import pytest

import pullback as pb
from pullback import overrides

F = pb.nn.functional


class Plain(pb.Tensor):
    """Overrides nothing itself: results keep the class."""


class Logged(pb.Tensor):
    """Writes down the calls it receives."""

    calls: ClassVar[list] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append((func, types, len(args), kwargs))
        return super().__torch_function__(func, types, args, kwargs)


class Refusing(pb.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


class Disabled(pb.Tensor):
    __torch_function__ = overrides._disabled_torch_function_impl


class Foreign:
    """No tensor."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func, types, args, kwargs


@pytest.fixture
def logged():
    Logged.calls.clear()
    return pb.tensor([1.0, 2.0]).as_subclass(Logged)


def names():
    return [
        func.__self__.__name__ + "." + func.__name__
        if func.__name__ in ("__get__", "__set__")
        else func.__name__
        for func, *_ in Logged.calls
    ]


# ---- instances -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.as_subclass(Plain),
        lambda x: pb.Tensor._make_subclass(Plain, x),
        lambda x: Plain(x),
    ],
)
def test_instance_of_a_subclass_shares_memory(make):
    x = pb.zeros(2)
    made = make(x)
    x[0] = 3
    assert type(made) is Plain and made.tolist() == [3, 0]
    assert isinstance(made, pb.Tensor) and made._version == x._version


def test_make_subclass_makes_leaves():
    x = pb.ones(2, requires_grad=True) * 2
    made = pb.Tensor._make_subclass(Plain, x, True)
    assert made.is_leaf and made.requires_grad
    assert not pb.Tensor._make_subclass(Plain, x).requires_grad
    with pytest.raises(TypeError, match="cls must be a type"):
        pb.Tensor._make_subclass(3, x)
    with pytest.raises(TypeError, match="must be Tensor, not list"):
        pb.Tensor._make_subclass(Plain, [1])
    with pytest.raises(NotImplementedError, match="__torch_dispatch__"):
        pb.Tensor._make_wrapper_subclass(Plain, (2,))


def test_as_subclass_keeps_the_history():
    x = pb.ones(2, requires_grad=True)
    made = (x * 2).as_subclass(Plain)
    assert made.grad_fn.name() == "AliasBackward0" and not made.is_leaf
    (made * made).sum().backward()
    assert x.grad.tolist() == [8, 8] and type(x.grad) is pb.Tensor


def test_constructor_of_a_subclass_takes_arguments_of_its_own():
    class Unit(pb.Tensor):
        def __new__(cls, data, unit):
            return pb.as_tensor(data).as_subclass(cls)

        def __init__(self, data, unit):
            self.unit = unit

    made = Unit([1.0], unit="m")
    assert (made.unit, made.tolist(), type(made * 2)) == ("m", [1], Unit)


# ---- which calls are received --------------------------------------------------------------------

CALLS = [
    (lambda x: x + 1, "add"),
    (lambda x: 1 + x, "add"),
    (lambda x: pb.ones(2) + x, "add"),
    (lambda x: 1 - x, "__rsub__"),
    (lambda x: x / 2, "div"),
    (lambda x: 2**x, "__rpow__"),
    (lambda x: x // 2, "__floordiv__"),
    (lambda x: x @ pb.ones(2), "matmul"),
    (lambda x: -x, "neg"),
    (lambda x: x == 1, "__eq__"),
    (lambda x: x < 1, "lt"),
    (lambda x: x[0], "__getitem__"),
    (lambda x: pb.ones(3)[x.long().as_subclass(Logged)], "long"),
    (lambda x: x.sin(), "sin"),
    (lambda x: pb.sin(x), "sin"),
    (lambda x: pb.add(pb.ones(2), pb.ones(2), out=x), "add"),
    (lambda x: pb.cat([pb.ones(2), x]), "cat"),
    (lambda x: pb.stack((x, x)), "stack"),
    (lambda x: pb.einsum("i,i", pb.ones(2), x), "einsum"),
    (lambda x: F.relu(x), "relu"),
    (lambda x: F.linear(pb.ones(2), x), "linear"),
    (lambda x: pb.linalg.norm(x), "linalg_norm"),
    (lambda x: x.shape, "shape.__get__"),
    (lambda x: x.T, "T.__get__"),
    (lambda x: x.grad, "grad.__get__"),
    (lambda x: x.requires_grad, "requires_grad.__get__"),
    (lambda x: x.layout, "layout.__get__"),
    (lambda x: setattr(x, "requires_grad", True), "requires_grad.__set__"),
    (lambda x: x.dim(), "dim"),
    (lambda x: x.size(0), "size"),
    (lambda x: x.numel(), "numel"),
    (lambda x: x.float(), "float"),
    (lambda x: x.cpu(), "cpu"),
    (lambda x: x.numpy(), "numpy"),
    (lambda x: x.tolist(), "tolist"),
    (lambda x: x.requires_grad_(), "requires_grad_"),
    (lambda x: x.is_contiguous(), "is_contiguous"),
    (lambda x: x.data_ptr(), "data_ptr"),
    (lambda x: len(x), "__len__"),
    (lambda x: repr(x), "__repr__"),
    (lambda x: bool(x.sum()), "sum"),
    (lambda x: pb.allclose(x, x), "allclose"),
    (lambda x: pb.is_floating_point(x), "is_floating_point"),
    (lambda x: copy.copy(x), "__copy__"),
    (lambda x: copy.deepcopy(x), "__deepcopy__"),
    (lambda x: x.__reduce_ex__(2), "__reduce_ex__"),
    (lambda x: pb.Tensor.shape.__get__(x), "shape.__get__"),
    (lambda x: pb.Tensor.dim(x), "dim"),
    (lambda x: super(Logged, x).sin(), "sin"),
]


@pytest.mark.parametrize(("call", "name"), CALLS)
def test_call_with_a_subclass_is_received(logged, call, name):
    call(logged)
    assert names()[0] == name
    assert Logged.calls[0][1] == (Logged,)


def test_calls_without_keywords_have_none(logged):
    pb.sum(logged, dim=0)
    logged.sin()
    assert [entry[2:] for entry in Logged.calls] == [(1, {"dim": 0}), (1, None)]


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        (operator.iadd, "add_"),
        (operator.isub, "sub_"),
        (operator.imul, "mul_"),
        (operator.itruediv, "div_"),
        (lambda x, y: x.add_(y), "add_"),
        (lambda x, y: x.fill_(y), "fill_"),
        (lambda x, y: x.zero_(), "zero_"),
    ],
)
def test_inplace_op_returns_the_same_object(logged, statement, name):
    logged.unit = "m"
    assert statement(logged, 2) is logged
    assert names() == [name] and logged.unit == "m"


def test_assignment_to_items_is_received(logged):
    logged[0] = 5
    assert names() == ["__setitem__"]
    x = pb.zeros(2)
    x[0] = logged.sum()
    assert names()[-1] == "__setitem__" and x.tolist() == [7, 0]


def test_function_that_was_received_runs_without_another_call(logged):
    F.gelu(logged, approximate="tanh")
    pb.nn.functional.cross_entropy(logged.reshape(1, 2), pb.tensor([0]))
    assert names() == ["gelu", "reshape", "cross_entropy"]


FOREIGN = [
    lambda y: pb.add(y, 1),
    lambda y: pb.sin(y),
    lambda y: pb.cat([pb.ones(1), y]),
    lambda y: pb.ones(2) + y,
    lambda y: y * pb.ones(2),
    lambda y: pb.ones(2).add(y),
    lambda y: pb.ones(2)[y],
    lambda y: pb.sum(pb.ones(2), dim=y),
    lambda y: pb.add(pb.ones(2), 1, alpha=y),
    lambda y: pb.add(pb.ones(1), pb.ones(1), out=y),
    lambda y: pb.ones(y),
    lambda y: pb.equal(pb.ones(1), y),
    lambda y: pb.numel(y),
    lambda y: F.relu(y),
    lambda y: pb.linalg.norm(y),
    lambda y: pb.einsum("i->i", y),
    lambda y: pb.ones(2).index_put((y,), pb.ones(2)),
]


@pytest.mark.parametrize("call", FOREIGN)
def test_call_with_an_object_that_overrides_is_received(call):
    func, types, _args, kwargs = call(Foreign())
    assert types == (Foreign,) and callable(func)
    assert kwargs is None or isinstance(kwargs, dict)


# ---- order, refusals -----------------------------------------------------------------------------


def test_subclasses_are_asked_before_superclasses_then_left_to_right():
    asked = []

    def kind(name, base):
        def override(cls, func, types, args=(), kwargs=None):
            asked.append((cls.__name__, [t.__name__ for t in types]))
            return NotImplemented

        return type(name, (base,), {"__torch_function__": classmethod(override)})

    a = kind("A", pb.Tensor)
    b, c = kind("B", a), kind("C", pb.Tensor)
    x, y, z = (pb.ones(1).as_subclass(k) for k in (a, c, b))
    with pytest.raises(TypeError, match=r"Multiple dispatch failed for 'pullback\.cat'; all "):
        pb.cat([x, pb.ones(1), y, z, x])
    order = ["B", "A", "C"]
    assert asked == [(name, order) for name in order]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.sin(), "Multiple dispatch failed for 'pullback.sin'; all __torch_function__ "),
        (lambda x: x.shape, "Multiple dispatch failed for 'pullback.Tensor.shape.__get__'; all"),
        (lambda x: F.relu(x), "Multiple dispatch failed for 'pullback.nn.functional.relu'; all"),
        (lambda x: x + 1, r"unsupported operand type\(s\) for \+: 'Refusing' and 'int'"),
    ],
)
def test_call_that_all_refuse_raises(call, message):
    with pytest.raises(TypeError, match=message):
        call(pb.ones(2).as_subclass(Refusing))


def test_default_override_refuses_unrelated_classes():
    a, b = pb.ones(1).as_subclass(Plain), pb.ones(1).as_subclass(Logged)
    with pytest.raises(TypeError, match="handlers returned NotImplemented"):
        pb.add(a, b)


def test_plain_method_as_override_warns():
    class Method(pb.Tensor):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return "received"

    with pytest.warns(DeprecationWarning, match="please define it as a classmethod"):
        assert pb.sin(pb.ones(1).as_subclass(Method)) == "received"


# ---- results -------------------------------------------------------------------------------------


def test_results_keep_the_class():
    x = pb.ones(2, 2).as_subclass(Plain)
    assert type(x + pb.ones(2, 2)) is type(pb.ones(2, 2) + x) is Plain
    assert [type(part) for part in x.unbind()] == [Plain, Plain]
    best = x.max(0)
    assert type(best.values) is type(best.indices) is Plain and hasattr(best, "_fields")
    assert type(x.shape) is pb.Size and type(x.tolist()) is list
    assert type(x.T) is type(x.data) is type(x.real) is Plain


def test_subclass_of_a_subclass_wins():
    class Inner(Plain):
        pass

    result = pb.ones(1).as_subclass(Plain) + pb.ones(1).as_subclass(Inner)
    assert type(result) is Inner


@pytest.mark.parametrize("kind", [Disabled, pb.nn.Parameter])
def test_disabled_override_gives_plain_tensors(kind):
    x = pb.Tensor._make_subclass(kind, pb.ones(2, 2), True)
    assert type(x + 1) is type(x.T) is type(x.detach()) is type(x[0]) is pb.Tensor
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x += 1


def test_gradients_flow_through_a_subclass():
    x = pb.tensor([1.0, 2.0]).as_subclass(Plain).requires_grad_()
    (x**3).sum().backward()
    assert pb.Tensor.tolist(x.grad) == [3, 12] and type(x.grad) is pb.Tensor
    (found,) = pb.autograd.grad((x * x).sum(), [x], create_graph=True)
    assert found.tolist() == [2, 4]
    (second,) = pb.autograd.grad(found.sum(), [x])
    assert second.tolist() == [2, 2]


def test_backward_pass_does_not_call_overrides():
    x = pb.tensor([0.5, 2.0]).as_subclass(Logged).requires_grad_()
    loss = F.layer_norm(x * x, (2,)).exp().sum()
    Logged.calls.clear()
    pb.autograd.backward(loss)
    assert names() == ["backward"] and type(x.grad) is pb.Tensor
    with overrides.DisableTorchFunctionSubclass():
        plain = x.sum()
    plain.register_hook(lambda grad: grad * len(names()))
    Logged.calls.clear()
    plain.backward()
    assert names() == []


def test_functions_of_autograd_are_received():
    x = pb.ones(2).as_subclass(Logged).requires_grad_()
    loss = x.sum()
    Logged.calls.clear()
    (found,) = pb.autograd.grad([loss], [x], retain_graph=True)
    pb.autograd.backward(pb.ones(1, requires_grad=True), inputs=[x])
    assert names() == ["grad", "backward"] and type(found) is Logged


def test_custom_function_receives_the_subclass():
    class Double(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            assert type(x) is Plain
            return g * 2

    x = pb.ones(2).as_subclass(Plain).requires_grad_()
    out = Double.apply(x)
    out.sum().backward()
    assert type(out) is Plain and x.grad.tolist() == [2, 2]


# ---- transforms ----------------------------------------------------------------------------------


def test_transforms_take_subclasses():
    x = pb.tensor([1.0, 2.0]).as_subclass(Plain)
    assert pb.vmap(lambda row: row * 2)(x).tolist() == [2, 4]
    assert pb.func.grad(lambda v: (v * v).sum())(x).tolist() == [2, 4]
    out, tangent = pb.func.jvp(lambda v: v * v, (x,), (pb.ones(2),))
    assert (out.tolist(), tangent.tolist()) == ([1, 4], [2, 4])
    assert pb.func.jacrev(lambda v: v * v)(x).tolist() == [[2, 0], [0, 4]]


# ---- copies --------------------------------------------------------------------------------------


class Labelled(pb.Tensor):
    pass


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_copy_keeps_class_and_attributes(again):
    x = pb.tensor([1.0, 2.0]).as_subclass(Labelled)
    x.label = ["a"]
    made = again(x)
    assert (type(made), made.label, made.tolist()) == (Labelled, ["a"], [1, 2])
    assert (made.label is x.label) == (again is copy.copy)


# ---- __class__ -----------------------------------------------------------------------------------


def test_class_assignment_changes_what_overrides():
    x = pb.ones(2).as_subclass(Disabled)
    assert type(x + 1) is pb.Tensor
    x.__class__ = Plain
    assert type(x + 1) is Plain
    x.__class__ = Disabled
    assert type(x + 1) is pb.Tensor


# ---- turning overrides off -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "context", [overrides.DisableTorchFunctionSubclass, overrides.DisableTorchFunction]
)
def test_disabled_overrides_receive_nothing(logged, context):
    with context():
        assert type(logged + 1) is pb.Tensor and not overrides.has_torch_function([logged])
        with context():
            pass
        assert logged.shape == (2,)
    assert Logged.calls == [] and overrides.has_torch_function([logged])
    with pytest.raises(KeyError), context():
        raise KeyError
    logged.sin()
    assert names() == ["sin"]


def test_names_of_torchs_compiled_module_are_there():
    from pullback._C import DisableTorchFunctionSubclass

    assert DisableTorchFunctionSubclass is overrides.DisableTorchFunctionSubclass
    assert pb._C._disabled_torch_function_impl is overrides._disabled_torch_function_impl


def test_disabling_is_of_one_thread(logged):
    found = []
    with overrides.DisableTorchFunctionSubclass():
        thread = threading.Thread(target=lambda: found.append(type(logged + 1)))
        thread.start()
        thread.join()
    assert found == [Logged]


# ---- modes ---------------------------------------------------------------------------------------


class Recorder(overrides.TorchFunctionMode):
    def __init__(self, log, label):
        self.log, self.label = log, label

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.log.append(f"{self.label}:{func.__name__}")
        return func(*args, **(kwargs or {}))


FOREIGN = [np.full(2, 3.0), np.float64(3), None, "text", [1, 2], 2, object()]


@pytest.mark.parametrize("other", FOREIGN, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "truediv", "pow", "matmul", "lt", "eq", "ne", "iadd"]
)
def test_operators_with_foreign_objects_are_as_without_a_mode(name, other):
    operator_ = getattr(operator, name)

    def outcome(*operands):
        try:
            found = operator_(*operands)
        except TypeError as error:
            return type(error)
        return found.tolist() if isinstance(found, pb.Tensor | np.ndarray) else found

    def outcomes():
        both = [outcome(pb.ones(2, dtype=pb.float64), other)]
        return both if name == "iadd" else [*both, outcome(other, pb.ones(2, dtype=pb.float64))]

    expected = outcomes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's about __array_wrap__
        with Recorder([], "mode"):
            assert outcomes() == expected


def test_mode_receives_all_calls_of_its_thread():
    log = []
    with Recorder(log, "a"):
        x = pb.ones(2)
        x + 1
        x.shape
        pb.tensor([1.0])
        F.relu(x)
        thread = threading.Thread(target=lambda: x + 1)
        thread.start()
        thread.join()
    x + 1
    assert log == ["a:ones", "a:add", "a:__get__", "a:tensor", "a:relu"]


def test_modes_nest_and_come_before_arguments(logged):
    log = []
    with Recorder(log, "outer"), Recorder(log, "inner"):
        logged + 1
    assert log == ["inner:add", "outer:add"] and names() == ["add"]
    with Recorder(log, "x"), overrides.DisableTorchFunction():
        logged + 1
    assert len(log) == 2 and names() == ["add"]


def test_mode_ends_with_an_exception():
    log = []
    with pytest.raises(KeyError), Recorder(log, "a"):
        raise KeyError
    pb.ones(1)
    assert log == []


def test_mode_is_off_in_a_backward_pass():
    log = []
    x = pb.ones(2, requires_grad=True)
    loss = F.layer_norm(x, (2,)).exp().sum()
    with Recorder(log, "a"):
        loss.backward()
    assert log == ["a:backward"]


# ---- pullback.overrides --------------------------------------------------------------------------


def test_handle_torch_function_asks_modes_and_arguments():
    def double(x):
        if overrides.has_torch_function_unary(x):
            return overrides.handle_torch_function(double, (x,), x, factor=2)
        return 2 * x

    foreign = Foreign()
    assert double(foreign) == (double, (Foreign,), (foreign,), {"factor": 2})
    with pytest.raises(TypeError, match=r"no implementation found for '.*double' on types that "):
        double(pb.ones(1).as_subclass(Refusing))
    assert double(pb.ones(1)).tolist() == [2]


def test_lists_of_functions_name_them():
    found = overrides.get_overridable_functions()
    assert pb.add in found[pb] and pb.Tensor.cpu in found[pb.Tensor]
    assert pb.nn.functional.relu in found[pb.nn.functional]
    assert overrides.resolve_name(pb.equal) == "pullback.equal"
    assert overrides.resolve_name(pb.Tensor.cpu) == "pullback.Tensor.cpu"
    assert overrides.resolve_name(print) is None
    assert overrides.is_tensor_method_or_property(pb.Tensor.T.__get__)
    assert not overrides.is_tensor_method_or_property(pb.ones)
    assert pb.ones not in overrides.get_ignored_functions()
    assert overrides.get_testing_overrides()[pb.Tensor.size](1) == -1
    assert overrides.is_tensor_like(Foreign()) and not overrides.is_tensor_like([])


def test_every_overridable_function_of_one_tensor_is_received():
    """Each public function is called with an object in the place of its first argument."""
    missed = []
    for function in overrides.get_overridable_functions()[pb]:
        entry = getattr(function, "entry", None)
        if entry is None or not entry.arguments or not entry.function:
            continue
        first = entry.arguments[0]
        if first.type not in ("Tensor", "Operand", "Tensor[]"):
            continue
        others = [argument for argument in entry.arguments[1:] if argument.required]
        values = [2 for argument in others if not argument.keyword_only]
        named = {argument.name: 2 for argument in others if argument.keyword_only}
        try:
            received = function(Foreign(), *values, **named)[0] is function
        except TypeError:
            received = False
        if not received:
            missed.append(entry.name)
    assert missed == []


# ---- classes -------------------------------------------------------------------------------------


def test_metaclasses_may_stand_before_or_after_that_of_tensor():
    class Abstract(abc.ABCMeta, type(pb.Tensor)):
        pass

    class Own(type(pb.Tensor)):
        def __new__(cls, name, bases, namespace):
            return type.__new__(cls, name, bases, {**namespace, "made_by": cls})

    class First(pb.Tensor, metaclass=Abstract):
        pass

    class Second(pb.Tensor, metaclass=Own):
        pass

    assert Second.made_by is Own and isinstance(pb.ones(2).as_subclass(First), First)
    assert type(type("Third", (pb.Tensor,), {})) is type(pb.Tensor)
    with pytest.raises(TypeError, match="metaclass conflict"):
        abc.ABCMeta("Fourth", (pb.Tensor,), {})


# ---- memory --------------------------------------------------------------------------------------


def test_instances_are_freed():
    made = pb.ones(2).as_subclass(Plain).requires_grad_()
    alive = weakref.ref(made)
    out = weakref.ref((made * 2).sum())
    del made
    assert alive() is None and out() is None


def test_numpy_functions_still_take_subclasses():
    plain, logged = pb.ones(2).as_subclass(Plain), pb.ones(2).as_subclass(Logged)
    assert np.asarray(plain).tolist() == np.asarray(logged).tolist() == [1, 1]
    assert memoryview(plain).tolist() == [1, 1]


def test_an_override_gives_the_array_that_numpy_gets():
    class Doubled(pb.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with overrides.DisableTorchFunctionSubclass():
                if func.__name__ == "__get__":
                    raise AttributeError(func.__self__.__name__)
                return func(2 * args[0], *args[1:])

    doubled = pb.ones(2).as_subclass(Doubled)
    assert np.asarray(doubled).tolist() == np.add(doubled, 0).tolist() == [2, 2]
    with pytest.raises(BufferError, match=r"^Doubled overrides calls: use Tensor.numpy\(\)$"):
        memoryview(doubled)


@pytest.mark.parametrize("name", ["uniform_", "normal_", "constant_", "kaiming_uniform_"])
def test_subclasses_receive_initializers(name):
    function = getattr(pb.nn.init, name)
    received = []

    class Received(pb.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            received.append(func)
            return super().__torch_function__(func, types, args, kwargs)

    x = pb.zeros(3, 3).as_subclass(Received)
    function(x, *[2.0] * (name == "constant_"))
    assert received == [function]
    assert x.as_subclass(pb.Tensor).abs().min().item() > 0


def test_subclasses_receive_attention_of_several_heads():
    class Received(pb.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func, len(args)

    x = pb.ones(3, 1, 4).as_subclass(Received)
    attend = pb.nn.functional.multi_head_attention_forward
    arguments = (4, 2, pb.ones(12, 4), None, None, None, False, 0.0, pb.eye(4), None)
    assert attend(x, x, x, *arguments) == (attend, 13)
