"""Operators that users define: ``pullback.library``."""

import copy
from collections.abc import Sequence

import numpy as np
import pytest

import pullback as pb
from pullback import library

Tensor = pb.Tensor


@pytest.fixture
def sine():
    @library.custom_op("tests::sine", mutates_args=())
    def sine(x: Tensor) -> Tensor:
        return pb.from_numpy(np.sin(x.numpy()))

    sine.register_autograd(
        lambda ctx, grad: grad * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    return sine


def test_custom_op_runs_in_graphs_transforms_and_on_meta(sine):
    x = pb.tensor([0.0, 1.0], dtype=pb.float64, requires_grad=True)
    out = pb.ops.tests.sine(x)
    out.sum().backward()
    assert out.grad_fn.name() == "GeneratedBackwardFor_tests_sine_defaultBackward"
    assert x.grad.tolist() == pytest.approx(np.cos([0.0, 1.0]))
    assert pb.autograd.gradcheck(sine, x) and pb.autograd.gradgradcheck(sine, x)
    assert pb.func.grad(lambda v: sine(v).sum())(x.detach()).tolist() == x.grad.tolist()
    batch = pb.tensor(np.arange(6.0).reshape(3, 2))
    assert pb.vmap(sine)(batch).flatten().tolist() == pytest.approx(np.sin(np.arange(6.0)))
    assert pb.vmap(sine, 1, 1)(batch).shape == (3, 2)
    seen = []

    @sine.register_vmap
    def batched(info, in_dims, x):
        seen.append((info.batch_size, in_dims))
        return sine(x), in_dims[0]

    assert pb.vmap(sine, 1)(batch).shape == (2, 3) and seen == [(2, (0,))]
    with pytest.raises(RuntimeError, match=r"There was no fake impl registered for <CustomOpDef\("):
        sine(pb.ones(2, device="meta"))
    sine.register_fake(pb.empty_like)
    assert sine(pb.ones(2, device="meta")).shape == (2,)
    assert set(library.opcheck(sine, (x,)).values()) == {"SUCCESS"}


def test_profiles_and_modes_have_the_name_of_an_operator(sine):
    pytest.importorskip("pullback_profiler")
    with pb.autograd.profiler.profile() as profile:
        sine(pb.ones(2))
    assert "tests::sine" in {event.name for event in profile.function_events}
    seen = []

    class Log(pb.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Log():
        sine(pb.ones(2))
    assert "tests.sine.default" in seen


def test_names_of_operators_and_overloads(sine):
    packet = pb.ops.tests.sine
    assert repr(sine) == "<CustomOpDef(tests::sine)>"
    assert repr(packet) == "<OpOverloadPacket(op='tests.sine')>" and packet.overloads() == [
        "default"
    ]
    assert repr(packet.default) == "<OpOverload(op='tests.sine', overload='default')>"
    assert packet.default.name() == "tests::sine" and packet.default.__name__ == "sine.default"
    assert str(packet.default._schema) == "tests::sine(Tensor x) -> Tensor"
    with pytest.raises(AttributeError, match="'_OpNamespace' 'tests' object has no attribute 'no'"):
        _ = pb.ops.tests.no
    with pytest.raises(AttributeError, match=r"'tests\.sine' has no overload name 'no'"):
        _ = packet.no
    assert pb.ops.aten.add(pb.ones(1), 2).tolist() == [3.0]
    assert pb.ops.aten.sin.default(pb.zeros(1)).tolist() == [0.0]
    assert pb.ops.aten.add.Tensor is pb.ops.aten.add.Scalar is pb.add
    assert copy.copy(pb.ops.aten.add).Tensor is pb.add
    with pytest.raises(AttributeError, match=r"'aten\.add' has no overload name 'absent'"):
        pb.ops.aten.add.absent


def test_lists_of_tensors_and_several_results():
    @library.custom_op("tests::weighted", mutates_args=())
    def weighted(xs: list[Tensor], y: Tensor, *, by: float = 2.0) -> tuple[Tensor, Tensor]:
        return sum(xs) * by, y * by

    def setup(ctx, inputs, output, keyword_only_inputs):
        ctx.by, ctx.count = keyword_only_inputs["by"], len(inputs[0])

    weighted.register_autograd(
        lambda ctx, a, b: ([a * ctx.by] * ctx.count, b * ctx.by), setup_context=setup
    )
    x, y = pb.ones(2, requires_grad=True), pb.ones(2, requires_grad=True)
    first, second = weighted([x, x.detach(), x], y, by=3.0)
    (first + 2 * second).sum().backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([6.0, 6.0], [6.0, 6.0])
    assert [t.shape for t in pb.vmap(lambda v: weighted([v], v))(pb.ones(4, 3))] == [(4, 3), (4, 3)]
    weighted.register_autograd(lambda ctx, a, b: a)
    with pytest.raises(RuntimeError, match=r"incorrect number of gradients \(expected 2, got 1\)"):
        weighted([x], y)[0].sum().backward()


def test_operators_that_write_their_arguments():
    @library.custom_op("tests::increase", mutates_args={"x"})
    def increase(x: Tensor, by: int = 1) -> None:
        x.add_(by)

    x = pb.zeros(2)
    before = x._version
    assert increase(x, 3) is None and x.tolist() == [3.0, 3.0] and x._version > before
    with pytest.raises(RuntimeError, match="formula for non-functional operator"):
        increase.register_autograd(lambda ctx: None)
    assert library.opcheck(increase, (x,), test_utils="test_schema") == {"test_schema": "SUCCESS"}

    @library.custom_op("tests::lies", mutates_args=())
    def lies(x: Tensor) -> Tensor:
        return x.add_(1).clone()

    with pytest.raises(Exception, match="Argument x is not defined as mutable but was mutated"):
        library.opcheck(lies, (x,), test_utils="test_schema")
    same = library.custom_op(
        "tests::same", lambda x: x, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    with pytest.raises(RuntimeError, match="must not also be an input to this custom operator"):
        same(x)


def test_library_defines_overloads_and_kernels_by_device():
    made = library.Library("tests_store", "DEF")
    assert repr(made) == "Library(kind=DEF, ns=tests_store, dispatch_key=)>"
    assert made.define("add_n(Tensor x, int n=2) -> Tensor") == "add_n"
    with pytest.raises(NotImplementedError, match="Could not run 'tests_store::add_n' with arg"):
        pb.ops.tests_store.add_n(pb.ones(1))
    made.impl("add_n", lambda x, n=2: x + n, pb.ones(1).device.type.upper())
    assert pb.ops.tests_store.add_n(pb.ones(1)).tolist() == [3.0]
    with pytest.raises(NotImplementedError, match="no fake impl or Meta kernel registered"):
        pb.ops.tests_store.add_n(pb.ones(1, device="meta"))
    library.Library("tests_store", "IMPL", "Meta").impl("add_n", lambda x, n=2: pb.empty_like(x))
    assert pb.ops.tests_store.add_n(pb.ones(1, device="meta")).shape == (1,)
    made.define("add_n.text(Tensor x, str n) -> Tensor")
    made.impl("add_n.text", lambda x, n: x + len(n), "CompositeImplicitAutograd")
    x = pb.ones(1, requires_grad=True)
    pb.ops.tests_store.add_n(x, "four").backward()
    assert x.grad.tolist() == [1.0] and pb.ops.tests_store.add_n.overloads() == ["default", "text"]
    with pytest.raises(RuntimeError, match="with the same name and overload name multiple times"):
        made.define("add_n(Tensor x) -> Tensor")
    with pytest.raises(RuntimeError, match="Only a single TORCH_LIBRARY can be used"):
        library.Library("tests_store", "DEF")
    with pytest.raises(ValueError, match="Unsupported kind: X"):
        library.Library("tests_store", "X")
    made._destroy()
    with pytest.raises(AttributeError):
        _ = pb.ops.tests_store.add_n


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda op: op(), "is missing value for argument 'x'. Declaration: tests::typed"),
        (lambda op: op(1, 2), "Expected a value of type 'Tensor' for argument 'x' but instead"),
        (lambda op: op(pb.ones(1), 2.5), "Expected a value of type 'int' for argument 'n'"),
        (lambda op: op(pb.ones(1), 2, w=4), r"Expected a value of type 'Optional\[Tensor\]'"),
        (lambda op: op(pb.ones(1), 2, None, 4), "expected at most 3 argument"),
        (lambda op: op(pb.ones(1), 2, z=4), "Unknown keyword argument 'z' for operator"),
        (
            lambda op: op(pb.ones(1, requires_grad=True), 2).sum().backward(),
            "Trying to backward through tests.typed.default but no autograd formula was registered",
        ),
    ],
)
def test_calls_that_do_not_fit_the_schema(call, text):
    @library.custom_op("tests::typed", mutates_args=())
    def typed(x: Tensor, n: int, w: Tensor | None = None) -> Tensor:
        return x * n

    with pytest.raises(RuntimeError, match=text):
        call(typed)


def test_schemas_of_annotations():
    def many(
        x: Tensor,
        xs: Sequence[Tensor],
        ys: list[Tensor | None],
        n: int | None = None,
        *,
        text: str = "a",
        kind: pb.dtype = pb.float32,
        sizes: list[int] | None = None,
        number: int | float | bool = 1,
    ) -> tuple[Tensor, list[Tensor]]: ...

    assert library.infer_schema(many, mutates_args={"xs"}, op_name="a::b") == (
        "a::b(Tensor x, Tensor(a1!)[] xs, Tensor?[] ys, SymInt? n=None, *, "
        'str text="a", ScalarType kind=float32, SymInt[]? sizes=None, Scalar number=1) '
        "-> (Tensor, Tensor[])"
    )
    for bad, text in (
        (lambda x: x, "Parameter x must have a type annotation."),
        (annotated(lambda x: x, x=dict), "Parameter x has unsupported type <class 'dict'>"),
        (annotated(lambda x: x, x=int), "No return type annotation was provided"),
        (annotated(lambda x: x, x=int, **{"return": dict}), "Return has unsupported type"),
        (annotated(lambda *x: x, x=int), "We do not support positional-only args, varargs"),
    ):
        with pytest.raises(ValueError, match=text):
            library.infer_schema(bad, mutates_args=())
    with pytest.raises(ValueError, match='of the form "namespace::name", but got plain'):
        library.define("plain", "(Tensor x) -> Tensor")


@pytest.mark.parametrize(
    ("schema", "kind", "text"),
    [
        ("Tensor x -> Tensor", ValueError, "expected schema to look like"),
        ("(Foo x) -> Tensor", RuntimeError, "unknown type specifier 'Foo'"),
        ("(Tensor x) -> Foo", RuntimeError, "unknown type specifier 'Foo'"),
        ("(Tensor x=3) -> Tensor", RuntimeError, "the default 3 is no Tensor"),
        ("(int n=1.5) -> Tensor", RuntimeError, "the default 1.5 is no int"),
        ("(int[] n=1) -> Tensor", RuntimeError, r"the default 1 is no List\[int\]"),
        ("(int x=1, int y) -> Tensor", RuntimeError, "Non-default positional argument follows"),
        ("(str s='a) -> Tensor", RuntimeError, "a ' is missing"),
    ],
)
def test_schemas_that_are_refused(schema, kind, text):
    with pytest.raises(kind, match=text):
        library.define("tests::refused", schema)
    assert not hasattr(pb.ops.tests, "refused")


def test_a_name_that_torch_refuses_is_refused_and_leaves_the_old_operator(sine):
    with pytest.raises(RuntimeError, match="'a-b' is no name of a namespace"):
        library.define("a-b::c", "(Tensor x) -> Tensor")
    with pytest.raises(RuntimeError, match="unknown type specifier"):
        library.custom_op("tests::sine", abs, mutates_args=(), schema="(Foo x) -> Tensor")
    assert pb.ops.tests.sine(pb.zeros(1)).tolist() == [0.0]


def test_defaults_and_results_of_schemas():
    seen = []
    library.define(
        "tests::kept", "(Tensor x, int[2] n=1, *, str s='a,b (c', float[] y=[1, 2]) -> ()"
    )
    library.impl("tests::kept", "default", lambda x, n, s, y: seen.append((n, s, y)))
    pb.ops.tests.kept(pb.ones(1))
    pb.ops.tests.kept(pb.ones(1), 3, s="d")
    assert seen == [([1, 1], "a,b (c", [1.0, 2.0]), ([3, 3], "d", [1.0, 2.0])]

    def nothing(x: Tensor) -> tuple[()]: ...
    def single(x: Tensor) -> tuple[Tensor]:
        return (x * 2,)

    assert library.infer_schema(nothing, mutates_args=()) == "(Tensor x) -> ()"
    made = library.custom_op("tests::single", single, mutates_args=())
    assert made._opoverload._schema.text == "tests::single(Tensor x) -> ((Tensor))"
    assert [t.tolist() for t in made(pb.ones(1))] == [[2.0]]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("int", np.int64(3), 3),
        ("int", True, 1),
        ("int", pb.tensor(3), 3),
        ("int", 2.5, None),
        ("int", np.float64(2.0), None),
        ("int", pb.tensor([1, 2]), None),
        ("float", np.float32(0.5), 0.5),
        ("float", pb.tensor(2.0), 2.0),
        ("float", False, 0.0),
        ("float", 1j, None),
        ("bool", np.bool_(True), True),
        ("bool", "yes", None),
        ("int[]", [np.int64(1), True, pb.tensor(2)], [1, 1, 2]),
        ("int[]", np.array([1, 2]), [1, 2]),
        ("int[]", [1.5], None),
        ("Device", "cpu", pb.device("cpu")),
        ("Scalar", pb.tensor(2.0), None),
    ],
)
def test_numbers_of_other_libraries(kind, value, expected):
    seen = []
    scope = library.Library("tests_numbers", "FRAGMENT")
    scope.define(f"kept(Tensor x, {kind} v) -> ()")
    scope.impl("kept", lambda x, v: seen.append(v), "CompositeExplicitAutograd")
    try:
        if expected is None:
            with pytest.raises(RuntimeError, match="tests_numbers::kept"):
                pb.ops.tests_numbers.kept(pb.ones(1), value)
        else:
            pb.ops.tests_numbers.kept(pb.ones(1), value)
            assert seen == [expected] and type(seen[0]) is type(expected)
    finally:
        scope._destroy()


@pytest.mark.parametrize(
    ("returns", "result", "text"),
    [
        ("Tensor", lambda x: (x * 1, x * 2), "returned tuple of Tensor, Tensor, expected Tensor"),
        ("Tensor", lambda x: None, "returned NoneType, expected Tensor"),
        ("Tensor", lambda x: x.numpy(), "returned ndarray, expected Tensor"),
        ("float", lambda x: "text", "returned str, expected float"),
        ("(Tensor, Tensor)", lambda x: x * 1, "returned Tensor, expected Tensor, Tensor"),
        ("(Tensor, int)", lambda x: (x * 1, "a"), "returned tuple of Tensor, str, expected Tenso"),
        ("Tensor[]", lambda x: x * 1, r"returned Tensor, expected List\[Tensor\]"),
        ("()", lambda x: x * 1, "returned Tensor, expected None"),
    ],
)
def test_results_of_another_type_name_the_operator(returns, result, text):
    made = library.custom_op(
        "tests::wrong", result, mutates_args=(), schema=f"(Tensor x) -> {returns}"
    )
    with pytest.raises(RuntimeError, match=f"tests::wrong: the kernel {text}"):
        made(pb.ones(2))


# -- batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "function", "size", "text"),
    [
        ("(Tensor x) -> Tensor", lambda x: x * 2, 0, "does not support vmap over dims of size 0"),
        ("(Tensor x) -> int", lambda x: 3, 2, "could not generate a fallback"),
        ("(Tensor(a!) x) -> ()", lambda x: x.add_(1), 2, "doesn't work on out= or view ops"),
    ],
)
def test_batches_that_need_a_rule_say_so(schema, function, size, text):
    made = library.custom_op("tests::ruleless", function, mutates_args=(), schema=schema)
    with pytest.raises(RuntimeError, match=f"not implemented for tests::ruleless; .*{text}"):
        pb.vmap(made, out_dims=None)(pb.ones(size, 3))


@pytest.mark.parametrize("found", [lambda x: x, lambda x: (x, x), lambda x: (x, 0, 0)])
def test_a_rule_without_dims_is_named(sine, found):
    sine.register_vmap(lambda info, in_dims, x: found(x))
    with pytest.raises(
        RuntimeError, match=r"tests.sine.default: Expected the vmap staticmethod to"
    ):
        pb.vmap(sine)(pb.ones(2, 3))


def test_an_operator_that_writes_runs_by_its_rule():
    def grow(x: Tensor) -> None:
        x.add_(1)

    made = library.custom_op("tests::grow", grow, mutates_args={"x"})
    made.register_vmap(lambda info, in_dims, x: (made(x), None))
    x = pb.zeros(2, 3)
    pb.vmap(lambda row: (made(row), row)[1])(x)
    assert x.tolist() == [[1.0] * 3] * 2


# -- opcheck ---------------------------------------------------------------------------------------


def test_opcheck_sees_writes_beside_a_nan():
    def lies(x: Tensor) -> Tensor:
        x[0] = 5
        return x.clone()

    x = pb.tensor([1.0, float("nan")])
    made = library.custom_op("tests::lies_of_nan", lies, mutates_args=())
    found = library.opcheck(made, (x,), test_utils="test_schema", raise_exception=False)
    assert "x is not defined as mutable" in str(found["test_schema"])
    honest = library.custom_op(
        "tests::honest", lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    assert library.opcheck(honest, (x,), test_utils="test_schema") == {"test_schema": "SUCCESS"}
    with pytest.raises(ValueError, match="invalid test_utils"):
        library.opcheck(honest, (x,), test_utils="test_nothing")


def test_opcheck_of_operators_without_tensors_as_results():
    def increase(x: Tensor) -> None:
        x.add_(1)

    def size(x: Tensor) -> int:
        return x.shape[0]

    made = library.custom_op("tests::increases", increase, mutates_args={"x"})
    assert set(library.opcheck(made, (pb.ones(2),)).values()) == {"SUCCESS"}
    assert made(pb.ones(2, device="meta")) is None
    counted = library.custom_op("tests::counted", size, mutates_args=())
    counted.register_fake(size)
    assert counted(pb.ones(2)) == 2
    assert set(library.opcheck(counted, (pb.ones(2),)).values()) == {"SUCCESS"}


def annotated(function, **annotations):
    function.__annotations__ = annotations
    return function


def test_copies_of_operators_are_the_operators():
    @pb.library.custom_op("tests_copies::twice", mutates_args=())
    def twice(x: pb.Tensor) -> pb.Tensor:
        return x * 2

    @twice.register_fake
    def _(x):
        return pb.empty_like(x)

    class Holding(pb.nn.Module):
        def __init__(self):
            super().__init__()
            self.ops = [twice, pb.ops.tests_copies.twice, pb.ops.tests_copies.twice.default]

    held = Holding()
    for one, other in zip(held.ops, copy.deepcopy(held).ops):
        assert one is other
