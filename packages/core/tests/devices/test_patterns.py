"""Defined primitives in compiled programs: found by the kernels of their decomposition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from library_device import load

import pullback as pb
from pullback.backend import define_primitive, masks
from pullback.backend.array_library import ArrayLibrary

LIBRARY = ArrayLibrary("numpy")
CALLS = []  # of each call of a kernel: its name, shapes and numbers


def normed(x, weight, eps):
    return x * weight * (x.square().mean(-1, True) + eps).rsqrt()


def capped(x, cap):
    return (x / cap).tanh() * cap


def shared(x, y):
    return (x + y) * x


def drawn(x):
    return x * pb.rand_like(x)


SCHEMAS = {
    normed: ("(Tensor x, Tensor weight, float eps) -> Tensor", (pb.ones(3, 5), pb.ones(5), 0.125)),
    capped: ("(Tensor x, float cap) -> Tensor", (pb.ones(3, 5), 7.5)),
    shared: ("(Tensor x, Tensor y) -> Tensor", (pb.ones(3, 5), pb.ones(3, 5))),
    drawn: ("(Tensor x) -> Tensor", (pb.ones(3, 5),)),
}


def compute_norm(x, weight, eps):
    return x * weight / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def compute_cap(x, cap):
    return np.tanh(x / cap) * cap


COMPUTED = {
    normed: compute_norm,
    capped: compute_cap,
    shared: lambda x, y: (x + y) * x,
    drawn: lambda x: x,
}


def kernel_of(decomposition):
    def kernel(out, *operands, **numbers):
        arrays = [LIBRARY.view(one) for one in operands]
        shapes = tuple(one.shape for one in arrays)
        CALLS.append((decomposition.__name__, shapes, *numbers.values()))
        found = COMPUTED[decomposition](*arrays, **numbers)
        LIBRARY.view(out)[...] = found.reshape(out.shape)

    return kernel


@pytest.fixture(scope="session")
def patterned():
    """A device of NumPy with a kernel for each of the primitives."""
    for decomposition, (schema, example) in SCHEMAS.items():
        name = f"tests_patterns::{decomposition.__name__}"
        define_primitive(name, schema, decomposition, example=example)

    def register(table):
        LIBRARY.register(table)
        for one in SCHEMAS:
            mask = masks.F32 if one is shared else masks.F32 | masks.F64
            table.add(f"tests_patterns::{one.__name__}", mask, kernel_of(one))

    return load("patterned", LIBRARY, register)


@pytest.fixture(autouse=True)
def _forget(patterned):
    CALLS.clear()


def draw(*shape, dtype=pb.float32):
    return pb.randn(*shape, dtype=dtype).to("patterned")


def replayed(function, *arguments):
    """Return the kernels that a replay calls, after its results were compared with eager ones."""
    compiled = pb.compile(function, fullgraph=True)
    for _ in range(2):
        given = [one.clone() for one in arguments]
        mine = [one.clone() for one in arguments]
        expected, found = function(*given), compiled(*mine)
        for one, other in zip(
            pb.utils._pytree.tree_leaves([found, mine]),
            pb.utils._pytree.tree_leaves([expected, given]),
        ):
            pb.testing.assert_close(one, other)
    calls = list(CALLS)
    CALLS.clear()
    return calls


def test_kernel_takes_the_place_of_its_decomposition():
    weight = draw(4)

    def function(x):
        y = x.sin()
        return 2 * (y * weight * (y.square().mean(-1, True) + 1e-5).rsqrt())

    assert replayed(function, draw(3, 4)) == [("normed", ((3, 4), (4,)), 1e-5)]
    compiled = pb.compile(function)
    compiled(draw(6, 4))
    assert "= tests_patterns::normed(" in str(compiled.explain())


def test_leading_dims_are_one():
    weight = draw(4)
    calls = replayed(lambda x: normed(x, weight, 1e-3).exp(), draw(2, 3, 4))
    assert calls == [("normed", ((6, 4), (4,)), 1e-3)]


def test_pattern_without_a_reduction_takes_any_shape():
    assert replayed(lambda x: capped(x.exp(), 30.0), draw(2, 3, 4)) == [("capped", ((24,),), 30.0)]


def test_each_place_in_a_program_is_found():
    first, second = draw(5), draw(5)

    def function(x):
        return normed(capped(normed(x, first, 1e-5), 2.0) + x, second, 1e-6)

    assert [name for name, *_ in replayed(function, draw(3, 5))] == ["normed", "capped", "normed"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: w * x * (x.square().mean(-1, True) + 1e-5).rsqrt(),  # another order
        lambda x, w: x * w * (x.square().mean(0, True) + 1e-5).rsqrt(),
        lambda x, w: x * w * (w.square().mean(-1, True) + 1e-5).rsqrt(),
        lambda x, w: x * w * (x.square().sum(-1, True) / 3 + 1e-5).rsqrt(),
        lambda x, w: x * w * ((x * x).mean(-1, True) + 1e-5).rsqrt(),
        lambda x, w: x * w * (x.square().mean(-1, True) - 1e-5).rsqrt(),
        lambda x, w: (y := x.square(), x * w * (y.mean(-1, True) + 1e-5).rsqrt())[1] + y,
        lambda x, w: [y := x * w, y * (x.square().mean(-1, True) + 1e-5).rsqrt()],
        lambda x, w: (x * 0.5).tanh() * 2.0,
        lambda x, w: (x / 3.0).tanh() * 2.0,
    ],
)
def test_what_is_another_function_stays(function):
    assert replayed(function, draw(4, 4), draw(4)) == []


def test_an_argument_that_changes_on_the_way():
    def function(x, weight):
        scaled = x * weight
        x.add_(1)
        return scaled * (x.square().mean(-1, True) + 1e-5).rsqrt()

    def later(x, weight):
        found = normed(x, weight, 1e-5)
        x.add_(1)
        return found + x

    assert replayed(function, draw(3, 4), draw(4)) == []
    assert [name for name, *_ in replayed(later, draw(3, 4), draw(4))] == ["normed"]


def test_a_result_that_is_changed_or_written_over():
    def function(x, weight):
        found = normed(x, weight, 1e-5)
        found.mul_(2)
        return found

    def inside(x, weight):
        x.copy_(normed(x, weight, 1e-5))
        return x * 2

    assert [name for name, *_ in replayed(function, draw(3, 4), draw(4))] == ["normed"]
    replayed(inside, draw(3, 4), draw(4))


def test_other_dtypes_and_devices_keep_the_decomposition():
    y = draw(3, 4, dtype=pb.float64)
    assert replayed(lambda x: shared(x, y).exp(), draw(3, 4, dtype=pb.float64)) == []
    other = pb.randn(4)
    assert replayed(lambda x: normed(x, other, 1e-5), pb.randn(3, 4)) == []


def test_the_dtype_is_that_of_the_program():
    weight = draw(4, dtype=pb.float64)
    calls = replayed(lambda x: normed(x, weight, 1e-9).exp(), draw(3, 4, dtype=pb.float64))
    assert calls == [("normed", ((3, 4), (4,)), 1e-9)]


LAYOUTS = {
    "plain": lambda x: x,
    "columns": lambda x: x.t().contiguous().t(),
    "part": lambda x: pb.cat([x, x, x], 1)[:, x.shape[1] : 2 * x.shape[1]],
    "steps": lambda x: x.repeat_interleave(2, 0)[::2],
    "expanded": lambda x: x[:1].expand(x.shape),
}


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    layout=st.sampled_from(sorted(LAYOUTS)),
    stepped=st.booleans(),
    which=st.sampled_from(["normed", "capped", "shared", "same"]),
)
def test_layouts_of_arguments(patterned, sizes, layout, stepped, which):
    """Whether or not a kernel is found: it gets what the decomposition would have read."""
    base = draw(*sizes)
    weight = draw(2 * sizes[1])[::2] if stepped else draw(sizes[1])
    functions = {
        "normed": lambda x: normed(LAYOUTS[layout](x), weight, 0.5),
        "capped": lambda x: capped(LAYOUTS[layout](x), 3.0),
        "shared": lambda x: shared(LAYOUTS[layout](x), x),
        "same": lambda x: shared(LAYOUTS[layout](x), LAYOUTS[layout](x)),
    }
    replayed(functions[which], base)


@pytest.mark.parametrize("dynamic", [False, True])
def test_training_has_the_gradients_of_the_decomposition(dynamic):
    weight = draw(4).requires_grad_()

    def function(x):
        return normed(x, weight, 1e-5).square().sum()

    compiled = pb.compile(function, dynamic=dynamic)
    for size in (2, 8, 5, 3, 6):
        x = draw(size, 4)
        grads = []
        for one in (function, compiled):
            weight.grad = None
            one(x).backward()
            grads.append(weight.grad.clone())
        pb.testing.assert_close(*grads)


def test_sizes_that_vary():
    weight = draw(4)
    compiled = pb.compile(lambda x: normed(x, weight, 1e-5) + 1, dynamic=True)
    for size in (2, 8, 5, 3, 6, 4):
        x = draw(size, 4)
        pb.testing.assert_close(compiled(x), normed(x, weight, 1e-5) + 1)
    assert CALLS[-1] == ("normed", ((4, 4), (4,)), 1e-5)


def test_search_draws_no_random_numbers():
    pb.manual_seed(3)
    state = pb.get_rng_state()
    pb.compile(lambda x: x * 2)(draw(2))
    drawn_by_draw = pb.get_rng_state()
    pb.manual_seed(3)
    assert pb.equal(pb.get_rng_state(), state)
    draw(2)
    assert pb.equal(pb.get_rng_state(), drawn_by_draw)
    assert replayed(lambda x: x * pb.rand_like(x) * 0, draw(3, 4)) == []


X = pb.ones(3, 5)


@pytest.mark.parametrize(
    ("schema", "example", "kind", "message"),
    [
        ("(Tensor x) -> Tensor", [X], TypeError, "must be a tuple, not list"),
        ("(Tensor x) -> Tensor", (X, X), ValueError, "must have 1 arguments"),
        ("(Tensor x) -> (Tensor, Tensor)", (X,), ValueError, "one result"),
        ("(Tensor x, float p) -> Tensor", (X, X), ValueError, "argument 'p' of type float"),
        ("(Tensor[] x) -> Tensor", ([X],), ValueError, "neither lists nor left out"),
        ("(Tensor? x) -> Tensor", (None,), ValueError, "neither lists nor left out"),
        ("(Tensor x) -> Tensor", (pb.ones(1, 5),), ValueError, "sizes above 1"),
        ("(float p) -> Tensor", (1.0,), ValueError, "sizes above 1"),
    ],
)
def test_examples_that_are_refused(schema, example, kind, message):
    with pytest.raises(kind, match=message):
        define_primitive("tests_patterns::refused", schema, abs, example=example)
    assert not hasattr(pb.ops.tests_patterns, "refused")


def test_a_decomposition_that_does_not_take_its_example(patterned):
    """It is no pattern; programs are as before."""
    from pullback.backend import registry

    define_primitive(
        "tests_patterns::broken", "(Tensor x) -> Tensor", lambda x: x @ x, example=(X,)
    )
    registry.KernelTable("patterned").add("tests_patterns::broken", masks.F32, kernel_of(capped))
    assert replayed(lambda x: capped(x, 2.0), draw(3)) == [("capped", ((3,),), 2.0)]


def test_a_decomposition_that_raises_anything_is_no_pattern(patterned):
    from pullback.backend import registry

    def fail(x):
        return {}[x.shape]

    define_primitive("tests_patterns::failing", "(Tensor x) -> Tensor", fail, example=(X,))
    registry.KernelTable("patterned").add("tests_patterns::failing", masks.F32, kernel_of(capped))
    assert replayed(lambda x: x.exp() + 1, draw(3)) == []


def test_overlapping_arguments(patterned):
    def function(x):
        windows, rows = x.as_strided((2, 2), (1, 1)), x.expand(4, 3)
        return capped(windows, 2.0), normed(rows, x, 0.25), shared(windows, windows)

    replayed(function, draw(3))


def test_a_refused_definition_leaves_the_example(patterned):
    with pytest.raises(RuntimeError, match="multiple times"):
        define_primitive(
            "tests_patterns::capped", "(Tensor x) -> Tensor", abs, example=(pb.ones(2, 7),)
        )
    assert replayed(lambda x: capped(x, 2.0), draw(3)) == [("capped", ((3,),), 2.0)]


def test_more_operands_than_a_launch_has(patterned):
    from pullback.backend import registry

    count = 70
    names = ", ".join(f"Tensor x{n}" for n in range(count))
    define_primitive(
        "tests_patterns::added",
        f"({names}) -> Tensor",
        lambda *xs: sum(xs).cos(),
        example=(X,) * count,
    )
    registry.KernelTable("patterned").add("tests_patterns::added", masks.F32, kernel_of(shared))
    given = [draw(2, 3) for _ in range(count)]
    assert replayed(lambda *xs: sum(xs).cos() * 2, *given) == []
