"""Primitives that a plugin defines: their derivatives, their definitions, what kernels return."""

import sys

import numpy as np
import pytest
from pullback._c.device.device import install_kernel

import pullback as pb
from pullback.backend import define_primitive, masks, registry

GIVEN = {}  # what a kernel does


def product(xs, y, z):
    first = xs[0] * xs[1] * z
    return first, first + xs[0] if y is None else first * y


def noisy(x, p):
    return x * (pb.rand(x.shape) > p)


@pytest.fixture(scope="session")
def square():
    """A primitive with a kernel of ``ref``, which does what a test gives."""
    made = define_primitive("tests_own::square", "(Tensor x) -> Tensor", lambda x: x * x)
    kernel = registry.KernelTable("ref").add
    kernel("tests_own::square", masks.F32, lambda out, x: GIVEN["result"](x))
    return made


@pytest.fixture(scope="session")
def ends():
    """A primitive with two results, and a kernel of ``ref`` as above."""
    schema = "(Tensor x) -> (Tensor, Tensor)"
    made = define_primitive("tests_own::ends", schema, lambda x: (x.amin(), x.amax()))
    kernel = registry.KernelTable("ref").add
    kernel("tests_own::ends", masks.F32, lambda outs, x: GIVEN["result"](x))
    return made


@pytest.fixture(scope="session")
def products():
    """A primitive of a list and an optional tensor."""
    schema = "(Tensor[] xs, Tensor? y, Tensor z) -> (Tensor, Tensor)"
    return define_primitive("tests_own::products", schema, product)


def doubles(*rows):
    return [pb.tensor(row, dtype=pb.float64, requires_grad=True) for row in rows]


# -- derivatives -----------------------------------------------------------------------------------


@pytest.mark.parametrize("with_optional", [True, False])
def test_lists_of_tensors_have_gradients(products, with_optional):
    a, b, c = doubles([1.0, 2.0], [3.0, -1.0], [0.5, 4.0])

    def call(a, b, c):
        return products([a, b], a if with_optional else None, c)

    assert pb.autograd.gradcheck(call, (a, b, c), check_forward_ad=True, check_batched_grad=True)
    assert pb.autograd.gradgradcheck(call, (a, b, c), check_fwd_over_rev=True)
    call(a, b.detach(), c)[0].sum().backward()
    assert a.grad.tolist() == (b * c).tolist()
    assert b.grad is None


def test_a_list_of_results_has_gradients():
    made = define_primitive("tests_own::both", "(Tensor x) -> Tensor[]", lambda x: [x * 2, x.exp()])
    (x,) = doubles([1.0, 2.0])
    assert isinstance(made(x), list)
    assert pb.autograd.gradcheck(lambda x: tuple(made(x)), (x,), check_forward_ad=True)


def test_derivatives_of_every_order_and_mode():
    made = define_primitive("tests_own::cube", "(Tensor x) -> Tensor", lambda x: x**3)
    x, func = pb.tensor([1.0, 2.0], dtype=pb.float64), pb.func
    expected = [[6.0, 0.0], [0.0, 12.0]]
    assert func.jvp(made, (x,), (x,))[1].tolist() == [3.0, 24.0]

    def total(x):
        return made(x).sum()

    for outer in (func.jacfwd, func.jacrev):
        for inner in (func.jacfwd, func.jacrev):
            assert outer(inner(total))(x).tolist() == expected
    assert func.hessian(total)(x).tolist() == expected
    assert func.vmap(func.grad(made))(x).tolist() == [3.0, 12.0]
    assert func.vmap(func.hessian(made))(x).tolist() == [6.0, 12.0]
    assert func.vmap(lambda x: func.jvp(made, (x,), (x,))[1])(x).tolist() == [3.0, 24.0]


def test_whole_numbers_have_no_derivative():
    made = define_primitive(
        "tests_own::taken", "(Tensor x, Tensor i) -> (Tensor, Tensor)", lambda x, i: (x[i] * 1, i)
    )
    (x,) = doubles([1.0, 2.0])
    i = pb.tensor([1, 1])
    made(x, i)[0].sum().backward()
    assert x.grad.tolist() == [0.0, 2.0]
    found = pb.func.jvp(lambda x: made(x, i)[0], (x.detach(),), (x.detach(),))
    assert found[1].tolist() == [2.0, 2.0]


def test_derivatives_draw_the_numbers_of_the_call():
    made = define_primitive("tests_own::noisy", "(Tensor x, float p) -> Tensor", noisy)
    x = pb.ones(500, requires_grad=True)
    y = made(x, 0.5)
    pb.rand(7)
    state = pb.get_rng_state()
    y.sum().backward()
    assert pb.equal(x.grad, y.detach())
    assert 0 < y.sum().item() < 500
    assert pb.equal(pb.get_rng_state(), state)
    value, tangent = pb.func.jvp(lambda x: made(x, 0.5), (pb.ones(500),), (pb.ones(500),))
    assert pb.equal(value, tangent)


def test_derivatives_run_under_the_autocast_of_the_call():
    pytest.importorskip("pullback_cpu", reason="autocast is of the CPU")
    seen = []

    def matmul(x):
        seen.append((x @ x).dtype)
        return x @ x

    made = define_primitive("tests_own::matmul", "(Tensor x) -> Tensor", matmul)
    x = pb.ones(2, 2, device="cpu", requires_grad=True)
    with pb.autocast("cpu", dtype=pb.bfloat16):
        y = made(x)
    y.sum().backward()
    assert seen == [pb.bfloat16] * 2
    assert x.grad.tolist() == [[4.0, 4.0], [4.0, 4.0]]


# -- definitions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "decomposition", "kind", "message"),
    [
        ("(Tensor(a!) x) -> ()", abs, ValueError, "has arguments that are written"),
        ("(Tensor x, Tensor x) -> Tensor", abs, ValueError, "has two arguments of one name"),
        ("(Tensor x, *, int n) -> Tensor", abs, ValueError, r"has arguments behind '\*'"),
        ("(Tensor x) -> float", abs, ValueError, "has results other than tensors"),
        ("(Tensor x) -> ()", abs, ValueError, "has results other than tensors"),
        ("(Foo x) -> Tensor", abs, RuntimeError, "unknown type specifier 'Foo'"),
        ("(Tensor x) -> Tensor", 3, TypeError, "must be callable, got int"),
    ],
)
def test_a_definition_that_is_refused_leaves_the_name_free(schema, decomposition, kind, message):
    with pytest.raises(kind, match=message):
        define_primitive("tests_own::again", schema, decomposition)
    assert not hasattr(pb.ops.tests_own, "again")


# -- kernels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: x[:1], r"it returned shape \(1,\) for an output of shape \(3,\)"),
        (lambda x: x + 1j, "it returned complex64 for an output of float32"),
        (lambda x: x.tolist(), r"it returned list for an output of shape \(3,\)"),
        (lambda x: (x,), r"it returned tuple for an output of shape \(3,\)"),
        (lambda x: 1.0, r"it returned float for an output of shape \(3,\)"),
        (lambda x: "text", r"it returned str for an output of shape \(3,\)"),
        (lambda x: {}["key"], "KeyError: 'key'"),
        (lambda x: next(iter(())), "StopIteration: "),
    ],
)
def test_a_wrong_result_names_primitive_and_device(square, result, message):
    GIVEN["result"] = result
    with pytest.raises(
        RuntimeError,
        match=f"the kernel 'tests_own::square' of the backend 'ref' failed: .*{message}",
    ):
        square(pb.ones(3, device="ref"))


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: x.max(), "a kernel with 2 outputs fills them"),
        (lambda x: (x.max(),), "it returned tuple of 1: a kernel with 2 outputs fills them"),
        (lambda x: (x.min(), x.max(), x[0]), "it returned tuple of 3: a kernel with 2 outputs"),
        (lambda x: (None, x.max()), r"it returned NoneType for an output of shape \(\)"),
    ],
)
def test_a_wrong_number_of_results_is_named(ends, result, message):
    GIVEN["result"] = result
    with pytest.raises(RuntimeError, match=f"'tests_own::ends' of the backend 'ref'.*{message}"):
        ends(pb.ones(3, device="ref"))


def test_results_of_the_same_kind_are_cast(square):
    GIVEN["result"] = lambda x: x.astype(np.float64) * 3
    assert square(pb.ones(2, device="ref")).tolist() == [3.0, 3.0]


def test_an_error_of_a_kernel_has_a_note(square):
    def refuse(x):
        raise ValueError("too small")

    GIVEN["result"] = refuse
    with pytest.raises(ValueError, match="too small") as caught:
        square(pb.ones(2, device="ref"))
    place = "in the kernel 'tests_own::square' of the backend 'ref', for float32"
    shown = caught.value.__notes__ if sys.version_info >= (3, 11) else [str(caught.value)]
    assert place in shown[0]


def test_kernels_get_lists_and_what_is_left_out_in_order(products):
    seen = []

    def kernel(outs, xs, y, z):
        seen.append((len(xs), y is None, z.shape))
        first = xs[0] * xs[1] * z
        return first, first + xs[0] if y is None else first * y

    registry.KernelTable("ref").add("tests_own::products", masks.F32, kernel)
    x = pb.tensor([1.0, 2.0], device="ref", requires_grad=True)
    for y in (None, x):
        found = products([x, x], y, x)
        assert [t.tolist() for t in found] == [t.tolist() for t in product([x, x], y, x)]
    found[0].sum().backward()
    assert x.grad.tolist() == [3.0, 12.0]
    assert seen == [(2, True, (2,)), (2, False, (2,))]


def test_several_kernels_serve_a_primitive_each_for_some_dtypes():
    made = define_primitive("tests_own::mark", "(Tensor x) -> Tensor", lambda x: x * 1)
    table = registry.KernelTable("ref")
    table.add("tests_own::mark", masks.F32, lambda out, x: x + 1)
    table.add("tests_own::mark", masks.F64, lambda out, x: x + 2)
    for dtype, expected in ((pb.float32, 1.0), (pb.float64, 2.0), (pb.float16, 0.0)):
        assert made(pb.zeros(1, dtype=dtype, device="ref")).item() == expected
    shown = pb.backend.explain("tests_own::mark", "ref")
    assert shown.endswith("on ref: kernel for float32, float64; its decomposition for others")
    assert pb.backend.explain("tests_own::mark", "meta").endswith("on meta: its decomposition")
    with pytest.raises(AttributeError, match="no op named 'tests_own::other'"):
        pb.backend.explain("tests_own::other", "ref")


def test_tensors_of_two_devices_are_refused_by_name(products):
    pytest.importorskip("pullback_cpu", reason="a second device")
    x = pb.ones(2, device="ref")
    with pytest.raises(RuntimeError, match="two devices"):
        products([x, x], None, pb.ones(2, device="cpu"))


# -- compiled programs -----------------------------------------------------------------------------


def shifted(xs, y, n, scale, sizes, mode, flag):
    first = sum(xs) * scale + n + sum(sizes)
    return (first if flag else -first), (first if y is None else y * first)


@pytest.fixture(scope="session")
def mixed():
    """A primitive with arguments of all kinds, and a kernel that notes what it gets."""
    made = define_primitive(
        "tests_own::mixed",
        "(Tensor[] xs, Tensor? y, int n, float scale, int[] sizes, str mode, bool flag)"
        " -> (Tensor, Tensor)",
        shifted,
    )

    def kernel(outs, xs, y, **others):
        GIVEN.setdefault("seen", []).append((len(xs), y is None, others))
        for out, one in zip(outs, shifted(xs, y, **others)):
            out[...] = one

    table = registry.KernelTable(pb.get_default_device().type)
    table.add("tests_own::mixed", masks.F32, kernel)
    return made


def test_kernels_of_defined_primitives_are_replayed(mixed):
    compiled = pb.compile(
        lambda x, y: mixed([x, x.sin(), y], y, 3, 0.5, [1, 2], "fast", True)[1].exp(),
        fullgraph=True,
    )
    GIVEN["seen"] = []
    for _ in range(4):
        x, y = pb.randn(3), pb.randn(3)
        expected = shifted([x, x.sin(), y], y, 3, 0.5, [1, 2], "fast", True)[1].exp()
        pb.testing.assert_close(compiled(x, y), expected)
    options = {"n": 3, "scale": 0.5, "sizes": [1, 2], "mode": "fast", "flag": True}
    assert GIVEN["seen"] == [(3, False, options)] * 4
    assert "= tests_own::mixed(" in str(compiled.explain())
    assert sum(entry.runs for entry in compiled.entries) == 3


def test_calls_that_differ_in_any_argument_are_different(mixed):
    x = pb.ones(2)
    GIVEN["seen"] = []
    calls = [
        ([x], None, 1, 1.0, [], "a", True),
        ([x], x, 1, 1.0, [], "a", True),
        ([x, x], None, 1, 1.0, [], "a", True),
        ([x], None, 2**63, 1.0, [2], "a", False),
        ([x], None, 1, 2.5, [2, 3, 4], "b", False),
    ]
    for call in calls:
        found = mixed(*call)
        for one, expected in zip(found, shifted(*call)):
            pb.testing.assert_close(one, expected)
    names = ("n", "scale", "sizes", "mode", "flag")
    assert GIVEN["seen"] == [
        (len(xs), y is None, dict(zip(names, others))) for xs, y, *others in calls
    ]


def test_derivatives_of_defined_primitives_are_programs(mixed):
    def function(x, y):
        x = x.detach().requires_grad_()
        return pb.autograd.grad(mixed([x], y, 1, 2.0, [1], "", False)[1].exp().sum(), x)[0]

    compiled = pb.compile(function, fullgraph=True)
    for _ in range(3):
        given = pb.randn(3), pb.randn(3)
        pb.testing.assert_close(compiled(*given), function(*given))


def test_more_operands_than_a_kernel_can_have(mixed):
    GIVEN["seen"] = []
    x = [pb.ones(1)] * 80
    assert mixed(x, None, 0, 1.0, [], "", True)[0].tolist() == [80.0]
    assert GIVEN["seen"] == []


def test_a_kernel_that_fails_in_a_replay(square):
    compiled = pb.compile(lambda x: square(x) * 2)
    x = pb.ones(3, device="ref")
    GIVEN["result"] = lambda x: x * x
    for _ in range(2):
        assert compiled(x).tolist() == [2.0] * 3
    GIVEN["result"] = lambda x: x[:1]
    with pytest.raises(RuntimeError, match=r"kernel 'tests_own::square'.*shape \(1,\)"):
        compiled(x)
    GIVEN["result"] = lambda x: x * 3
    assert compiled(x).tolist() == [6.0] * 3


def test_a_number_that_no_table_has():
    with pytest.raises(RuntimeError, match="at most 512 primitives"):
        install_kernel("ref", 512, masks.F32, abs)


def test_a_decomposition_that_writes_an_argument_is_refused():
    def first(x, others):
        return others[-1].add_(x) if x.sum() > 0 else x * 2

    made = define_primitive("tests_own::writing", "(Tensor x, Tensor[] others) -> Tensor", first)
    assert made(-pb.ones(2), [pb.ones(2)]).tolist() == [-2, -2]
    for mode in (pb.enable_grad, pb.no_grad):
        with (
            mode(),
            pytest.raises(RuntimeError, match="tests_own::writing: the decomposition wrote"),
        ):
            made(pb.ones(2), [pb.ones(2), pb.ones(2)])
    x = pb.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="tests_own::writing: the decomposition wrote"):
        made(x, [pb.ones(2)])
