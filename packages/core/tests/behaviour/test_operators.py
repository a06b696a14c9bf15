"""Operators and Python protocols of tensors: scalars, reflection, in-place, conversion."""

import math
import operator

import numpy as np
import pytest
from numpy.testing import assert_allclose

import pullback as pb

NAN, INF = math.nan, math.inf


def x():
    return pb.tensor([1.0, 2.0, 3.0], dtype=pb.float64)


def same(tensor, values):
    assert_allclose(tensor, values)


# Arithmetic

BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
    operator.eq,
    operator.ne,
]


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("other", [2, 2.5, True, -3], ids=repr)
def test_binary_with_python_scalar_on_both_sides(op, other):
    values = np.array([1.0, 2.0, 3.0])
    if op is operator.sub and other is True:
        other = 1  # Subtracting a bool is refused, see below.
    same(op(x(), other), op(values, other))
    with np.errstate(invalid="ignore"):
        same(op(other, x()), op(other, values))


@pytest.mark.parametrize("op", BINARY)
def test_binary_broadcasts(op):
    a, b = np.array([[1.0], [4.0]]), np.array([2.0, 3.0, 5.0])
    same(op(pb.tensor(a), pb.tensor(b)), op(a, b))


@pytest.mark.parametrize("op", BINARY)
def test_binary_of_integers(op):
    a, b = np.array([7, -7, 0, 5]), np.array([2, 2, 3, 5])
    result = op(pb.tensor(a), pb.tensor(b))
    expected = op(a, b)
    same(result, expected)


@pytest.mark.parametrize("op", BINARY)
def test_binary_of_odd_layouts(op):
    a = np.arange(1.0, 13.0).reshape(3, 4)
    t = pb.tensor(a)
    same(op(t.t(), t[:, :1].t()), op(a.T, a[:, :1].T))
    same(op(t[::2, 1::2], t[0, 0]), op(a[::2, 1::2], a[0, 0]))
    assert op(t[:0], t[0]).shape == (0, 4)


@pytest.mark.parametrize("op", [operator.and_, operator.or_, operator.xor])
def test_bitwise(op):
    a, b = np.array([True, True, False]), np.array([True, False, False])
    assert op(pb.tensor(a), pb.tensor(b)).tolist() == op(a, b).tolist()
    assert op(pb.tensor([6, 5]), pb.tensor([3, 1])).tolist() == [op(6, 3), op(5, 1)]
    assert op(pb.tensor([6, 5]), 3).tolist() == [op(6, 3), op(5, 3)]


def test_unary():
    assert (-x()).tolist() == [-1.0, -2.0, -3.0]
    assert (+x()).tolist() == [1.0, 2.0, 3.0]
    assert abs(-x()).tolist() == [1.0, 2.0, 3.0]
    assert (~pb.tensor([True, False])).tolist() == [False, True]
    assert (~pb.tensor([0, 5])).tolist() == [-1, -6]


def test_alpha_scales_the_second_operand():
    assert pb.add(x(), 1, alpha=2).tolist() == [3.0, 4.0, 5.0]
    assert pb.sub(x(), x(), alpha=3).tolist() == [-2.0, -4.0, -6.0]
    with pytest.raises(RuntimeError, match="alpha"):
        pb.add(pb.tensor([1]), 1, alpha=2.5)


@pytest.mark.parametrize(
    ("base", "exponent", "expected"),
    [
        ([0.0, 2.0], 0, [1.0, 1.0]),
        ([4.0, 9.0], 0.5, [2.0, 3.0]),
        ([2.0, -2.0], 3, [8.0, -8.0]),
        ([2.0, -2.0], -1, [0.5, -0.5]),
        ([-4.0], 0.5, [NAN]),
        ([0.0], -1, [INF]),
        ([NAN], 0, [1.0]),
        ([1.0], NAN, [1.0]),
        ([INF], -2, [0.0]),
    ],
)
def test_powers(base, exponent, expected):
    same(pb.tensor(base) ** exponent, expected)
    same(pb.tensor(base) ** pb.full((len(base),), float(exponent)), expected)
    same(pb.pow(pb.tensor(base), exponent), expected)


def test_integer_powers():
    assert (pb.tensor([2, -3]) ** 3).tolist() == [8, -27]
    assert (2 ** pb.tensor([0, 3])).tolist() == [1, 8]
    assert (pb.tensor([2]) ** 2.0).dtype == pb.float32
    with pytest.raises(RuntimeError, match="Integers to negative integer powers are not allowed"):
        pb.tensor([2]) ** -1


def test_gradients_of_power():
    base, exponent = x().requires_grad_(), x().requires_grad_()
    (base**exponent).sum().backward()
    b = np.array([1.0, 2.0, 3.0])
    same(base.grad, b * b ** (b - 1))
    same(exponent.grad, b**b * np.log(b))


def test_division_by_zero():
    zero = pb.zeros(3, dtype=pb.float64)
    same(pb.tensor([1.0, -1.0, 0.0]) / zero, [INF, -INF, NAN])
    same(pb.tensor([1, 0]) / 0, [INF, NAN])
    same(pb.tensor([1.0]) % 0, [NAN])
    same(pb.tensor([1.0, 0.0]) // 0, [INF, NAN])
    for op in (operator.floordiv, operator.mod):
        with pytest.raises((RuntimeError, ZeroDivisionError), match=r"(?i)zero"):
            op(pb.tensor([1]), 0)
        with pytest.raises((RuntimeError, ZeroDivisionError), match=r"(?i)zero"):
            op(pb.tensor([1, 2]), pb.tensor([1, 0]))


def test_integer_division_that_overflows_does_not_crash():
    smallest = pb.tensor([-(2**63)])
    for op in (operator.floordiv, operator.mod):
        assert op(smallest, pb.tensor([-1])).dtype == pb.int64
    assert (-smallest).tolist() == smallest.tolist()
    assert abs(smallest).tolist() == smallest.tolist()


def test_modulo_takes_the_sign_of_the_divisor():
    a = np.array([7.0, -7.0, 7.0, -7.0])
    b = np.array([3.0, 3.0, -3.0, -3.0])
    same(pb.tensor(a) % pb.tensor(b), a % b)
    assert (pb.tensor(a).to(pb.int64) % pb.tensor(b).to(pb.int64)).tolist() == [1, 2, -2, -1]


@pytest.mark.parametrize(
    ("op", "gx", "gy"),
    [
        (operator.add, [1, 1], [1, 1]),
        (operator.sub, [1, 1], [-1, -1]),
        (operator.mul, [4, -2], [3, 8]),
        (operator.truediv, [0.25, -0.5], [-3 / 16, -2]),
    ],
)
def test_gradients_of_arithmetic(op, gx, gy):
    a = pb.tensor([3.0, 8.0], requires_grad=True)
    b = pb.tensor([4.0, -2.0], requires_grad=True)
    op(a, b).sum().backward()
    same(a.grad, gx)
    same(b.grad, gy)


def test_reflected_gradients():
    a = x().requires_grad_()
    ((10 - a) + (6 / a) + (2**a)).sum().backward()
    v = np.array([1.0, 2.0, 3.0])
    same(a.grad, -1 - 6 / v**2 + 2**v * np.log(2))


# In place


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (operator.iadd, [3.0, 4.0, 5.0]),
        (operator.isub, [-1.0, 0.0, 1.0]),
        (operator.imul, [2.0, 4.0, 6.0]),
        (operator.itruediv, [0.5, 1.0, 1.5]),
        (operator.ifloordiv, [0.0, 1.0, 1.0]),
        (operator.imod, [1.0, 0.0, 1.0]),
        (operator.ipow, [1.0, 4.0, 9.0]),
    ],
)
@pytest.mark.parametrize("other", [2, pb.tensor(2.0), pb.full((3,), 2.0)], ids=["py", "0d", "1d"])
def test_in_place_operators(op, expected, other):
    a = x()
    alias = a[:]
    result = op(a, other)
    assert result is a
    assert alias.tolist() == expected
    assert a._version == 1


def test_in_place_on_a_strided_view():
    a = pb.zeros(3, 4)
    a.t()[1:3] += pb.arange(3.0)
    assert a.tolist() == [[0, 0, 0, 0], [0, 1, 1, 0], [0, 2, 2, 0]]


def test_in_place_with_itself_and_with_overlap():
    a = x()
    a += a
    assert a.tolist() == [2.0, 4.0, 6.0]
    a[:2].mul_(a[:2])
    assert a.tolist() == [4.0, 16.0, 6.0]
    for source in (a[0], a[1:]):
        with pytest.raises(
            RuntimeError, match="input tensor and the written-to tensor refer to a si"
        ):
            a[:2].mul_(source)
    assert a.tolist() == [4.0, 16.0, 6.0]


def test_copies_between_overlapping_views_are_refused():
    x = pb.arange(5.0)
    for write in (lambda: x[1:].copy_(x[:-1]), lambda: x.__setitem__(slice(1, None), x[:-1])):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            write()
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    x.copy_(x)
    assert x._version == 1


def test_in_place_does_not_broadcast_its_target():
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        pb.ones(1).add_(pb.ones(3))


def test_in_place_bitwise():
    a = pb.tensor([True, False])
    a |= pb.tensor([False, True])
    assert a.tolist() == [True, True]
    a &= False
    assert a.tolist() == [False, False]


# Comparison


def test_comparison_with_nan():
    a = pb.tensor([NAN, 1.0])
    assert (a == a).tolist() == [False, True]
    assert (a != a).tolist() == [True, False]
    assert (a < 2).tolist() == [False, True]


def test_comparison_with_something_else():
    a = x()
    assert (a == "a") is False
    assert (a != None) is True  # noqa: E711
    for op in (operator.lt, operator.ge):
        with pytest.raises(TypeError):
            op(a, "a")


def test_tensors_are_hashable_by_identity():
    a, b = x(), x()
    assert len({a, b, a}) == 2
    assert {a: 1}[a] == 1


# Wrong operands


@pytest.mark.parametrize("op", BINARY[:7] + [operator.matmul])
@pytest.mark.parametrize("other", ["a", None, [1.0], {}, object], ids=repr)
def test_foreign_operands_are_refused(op, other):
    with pytest.raises(TypeError):
        op(x(), other)
    with pytest.raises(TypeError):
        op(other, x()) if other != "a" else other + x()


def test_foreign_operand_may_answer_itself():
    class Other:
        def __radd__(self, tensor):
            return "answered"

        __rmul__ = __rsub__ = __rtruediv__ = __rmatmul__ = __rpow__ = __radd__

    for op in (operator.add, operator.mul, operator.sub, operator.truediv, operator.matmul):
        assert op(x(), Other()) == "answered"


def test_shapes_that_do_not_broadcast():
    with pytest.raises(
        RuntimeError, match=r"The size of tensor a \(3\) must match the size of tenso"
    ):
        pb.ones(2, 3) + pb.ones(2)


def test_numpy_scalars_are_scalars():
    a = pb.ones(2)
    assert (a * np.float64(2)).dtype == pb.float32
    assert (a * np.int64(2)).tolist() == [2.0, 2.0]
    assert isinstance(np.float32(2) * a, pb.Tensor)
    assert (np.float64(2) * a).tolist() == [2.0, 2.0]


def test_bool_tensors_refuse_subtraction_and_negation():
    b = pb.tensor([True, False])
    with pytest.raises(RuntimeError, match="not supported"):
        x() - True
    for op in (lambda: b - b, lambda: b - 1, lambda: 1 - b, lambda: -b):
        with pytest.raises(RuntimeError, match="not supported"):
            op()
    assert (b + b).tolist() == [True, False]
    with pytest.raises(TypeError):
        ~x()


# Matrix products


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((2,), (2, 3)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (6, 3, 4)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)),
        ((0, 3), (3, 4)),
        ((2, 0), (0, 4)),
        ((0, 2, 3), (0, 3, 4)),
    ],
)
def test_matmul_values_and_gradients(a, b):
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=a), rng.normal(size=b)
    p = pb.tensor(left, requires_grad=True)
    q = pb.tensor(right, requires_grad=True)
    y = p @ q
    assert y.shape == np.matmul(left, right).shape
    assert_allclose(y.detach(), np.matmul(left, right), rtol=1e-12)
    assert_allclose(pb.matmul(p, q).detach(), y.detach())
    seed = rng.normal(size=y.shape)
    y.backward(pb.tensor(seed))
    # d(seed . (left @ right)): the product is linear in each factor.
    assert_allclose((p.grad * p.detach()).sum().item(), (seed * (left @ right)).sum(), atol=1e-10)
    assert_allclose((q.grad * q.detach()).sum().item(), (seed * (left @ right)).sum(), atol=1e-10)
    direction = rng.normal(size=a)
    assert_allclose(
        (p.grad * pb.tensor(direction)).sum().item(), (seed * (direction @ right)).sum(), atol=1e-10
    )


def test_matmul_of_any_layout():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(4, 6)), rng.normal(size=(6, 8))
    p, q = pb.tensor(a), pb.tensor(b)
    assert_allclose(p.t().mm(p), a.T @ a, rtol=1e-12)
    assert_allclose(p[:, ::2] @ q[::2, ::3], a[:, ::2] @ b[::2, ::3], rtol=1e-12)
    assert_allclose(p[:1].expand(5, 6) @ q, np.broadcast_to(a[:1], (5, 6)) @ b, rtol=1e-12)


def test_matmul_of_integers_and_complex():
    a = pb.tensor([[1, 2], [3, 4]])
    assert (a @ a).tolist() == [[7, 10], [15, 22]]
    z = pb.tensor([[1j, 2], [0, 1 + 1j]])
    assert (z @ z).tolist() == [[-1, 2 + 4j], [0, 2j]]


def test_addmm():
    a, b = pb.tensor([[1.0, 2.0]]), pb.tensor([[3.0], [4.0]])
    c = pb.tensor([5.0], requires_grad=True)
    assert pb.addmm(c, a, b).tolist() == [[16.0]]
    y = pb.addmm(c, a, b, beta=0.5, alpha=2)
    assert y.tolist() == [[24.5]]
    y.backward()
    assert c.grad.tolist() == [0.5]
    nan = pb.tensor([NAN])
    assert pb.addmm(nan, a, b, beta=0).tolist() == [[11.0]]


@pytest.mark.parametrize(
    ("op", "error", "fragment"),
    [
        (lambda m, v: m @ m, RuntimeError, r"cannot be multiplied \(2x3 and 2x3\)"),
        (lambda m, v: m.mm(v), RuntimeError, "must be a matrix"),
        (lambda m, v: m.bmm(m), RuntimeError, "must be a 3D tensor"),
        (lambda m, v: pb.bmm(m[None], m[None]), RuntimeError, None),
        (lambda m, v: pb.bmm(m.expand(2, 2, 3), m.t().expand(3, 3, 2)), RuntimeError, None),
        (lambda m, v: pb.tensor(1.0) @ m, RuntimeError, "at least 1D"),
        (lambda m, v: m @ v[:2], RuntimeError, None),
        (lambda m, v: pb.addmm(pb.ones(3), m, m.t()), RuntimeError, "expanded size"),
        (lambda m, v: m @ 2, TypeError, None),
        (lambda m, v: pb.mm(m, 2), TypeError, None),
    ],
)
def test_refused_products(op, error, fragment):
    with pytest.raises(error, match=fragment):
        op(pb.ones(2, 3), pb.ones(3))


# Reductions


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1, (0, 2), (2, 0, 1), [1]], ids=repr)
def test_reductions(dim, keepdim):
    a = np.random.default_rng(0).normal(size=(2, 3, 4))
    t, axis = pb.tensor(a), tuple(dim) if isinstance(dim, list) else dim
    assert_allclose(t.sum(dim, keepdim), a.sum(axis, keepdims=keepdim), rtol=1e-12)
    assert_allclose(t.mean(dim, keepdim=keepdim), a.mean(axis, keepdims=keepdim), rtol=1e-12)
    assert_allclose(t.amax(dim, keepdim), a.max(axis, keepdims=keepdim))
    if isinstance(dim, int):
        assert t.argmax(dim, keepdim).tolist() == a.argmax(dim, keepdims=keepdim).tolist()


def test_full_reductions():
    a = pb.tensor([[1.0, 4.0], [2.0, 3.0]])
    assert (a.sum().item(), a.mean().item(), a.amax().item(), a.argmax().item()) == (10, 2.5, 4, 1)
    assert a.sum(()).item() == a.sum(dim=None).item() == 10.0
    assert a.sum().shape == a.argmax().shape == ()


def test_reductions_of_nothing():
    empty = pb.zeros(0, 3)
    assert empty.sum().item() == 0.0
    assert empty.sum(0).tolist() == [0.0] * 3
    assert all(math.isnan(v) for v in empty.mean(0).tolist())
    assert empty.amax(1).shape == (0,)
    for op in (lambda: empty.amax(0), lambda: empty.argmax(0), lambda: empty.argmax()):
        with pytest.raises(IndexError):
            op()
    with pytest.raises(RuntimeError):
        empty.amax()


def test_reductions_with_nan():
    a = pb.tensor([1.0, NAN, 3.0])
    assert math.isnan(a.amax().item())
    assert math.isnan(a.sum().item())
    assert a.argmax().item() == 1


@pytest.mark.parametrize(
    ("op", "error"),
    [
        (lambda t: t.sum(2), IndexError),
        (lambda t: t.sum((0, 0)), RuntimeError),
        (lambda t: t.sum("a"), TypeError),
        (lambda t: t.mean(-3), IndexError),
        (lambda t: t.amax(2), IndexError),
        (lambda t: t.argmax(2), IndexError),
        (lambda t: t.argmax((0, 1)), TypeError),
    ],
)
def test_refused_reductions(op, error):
    with pytest.raises(error):
        op(pb.ones(2, 3))


# Functions of one argument


@pytest.mark.parametrize(
    ("name", "function", "derivative"),
    [
        ("exp", np.exp, np.exp),
        ("log", np.log, lambda v: 1 / v),
        ("tanh", np.tanh, lambda v: 1 / np.cosh(v) ** 2),
        ("sigmoid", lambda v: 1 / (1 + np.exp(-v)), None),
        ("sqrt", np.sqrt, lambda v: 0.5 / np.sqrt(v)),
        ("abs", np.abs, np.sign),
        ("neg", np.negative, lambda v: -np.ones_like(v)),
        ("relu", lambda v: np.maximum(v, 0), lambda v: (v > 0) * 1.0),
    ],
)
def test_unary_functions(name, function, derivative):
    v = np.array([0.1, 0.5, 1.0, 2.0, 10.0])
    t = pb.tensor(v, requires_grad=True)
    y = getattr(t, name)()
    assert_allclose(y.detach(), function(v), rtol=1e-14)
    assert_allclose(getattr(pb, name)(t).detach(), function(v), rtol=1e-14)
    y.sum().backward()
    if derivative is None:
        derivative = lambda u: function(u) * (1 - function(u))  # noqa: E731
    # Near saturation 1 - tanh(v)**2 loses digits.
    assert_allclose(t.grad, derivative(v), rtol=1e-12, atol=1e-16)
    out = pb.empty(5, dtype=pb.float64)
    assert getattr(pb, name)(t.detach(), out=out) is out if name != "relu" else True
    single = getattr(pb.tensor(v).to(pb.float32), name)()
    assert_allclose(single, function(v.astype(np.float32)), rtol=1e-6)


def test_domain_errors_give_nan():
    same(pb.tensor([-1.0, 0.0]).sqrt(), [NAN, 0.0])
    same(pb.tensor([-1.0, 0.0]).log(), [NAN, -INF])


# Conversion


def test_truth_value():
    assert bool(pb.tensor([1]))
    assert not pb.tensor(0.0)
    assert pb.tensor([[NAN]])
    with pytest.raises(
        RuntimeError, match="Boolean value of Tensor with more than one value is ambig"
    ):
        bool(pb.ones(2))
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with no values is ambiguous"):
        bool(pb.ones(0))


def test_python_numbers():
    assert int(pb.tensor([2.7])) == 2
    assert float(pb.tensor(2)) == 2.0
    assert complex(pb.tensor(1.0)) == 1 + 0j
    assert pb.tensor(3).item() == 3
    assert isinstance(pb.tensor(3).item(), int)
    assert isinstance(pb.tensor(True).item(), bool)
    assert isinstance(pb.tensor(3.0).item(), float)
    assert isinstance(pb.tensor(3j).item(), complex)
    for convert in (int, float, complex, pb.Tensor.item):
        with pytest.raises((ValueError, RuntimeError)):
            convert(pb.ones(2))
        with pytest.raises((ValueError, RuntimeError)):
            convert(pb.ones(0))
    for bad in (NAN, INF):
        with pytest.raises((ValueError, OverflowError)):
            int(pb.tensor(bad))


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")
def test_python_numbers_of_tensors_that_require_grad():
    t = pb.tensor(2.0, requires_grad=True)
    assert (float(t), int(t), t.item(), t.tolist()) == (2.0, 2, 2.0, 2.0)
    assert (t * 2).item() == 4.0


def test_index_protocol():
    assert [10, 20][pb.tensor(1)] == 20
    assert list(range(pb.tensor(2))) == [0, 1]
    assert operator.index(pb.tensor([3])) == 3
    for bad in (pb.tensor(1.0), pb.tensor([1, 2])):
        with pytest.raises(TypeError):
            operator.index(bad)


def test_length_and_iteration():
    a = pb.tensor([[1, 2], [3, 4]])
    assert len(a) == 2
    assert [row.tolist() for row in a] == [[1, 2], [3, 4]]
    first, second = a
    assert (first.tolist(), second.tolist()) == ([1, 2], [3, 4])
    assert list(pb.zeros(0, 2)) == []
    with pytest.raises(TypeError, match=r"len\(\) of a 0-d tensor"):
        len(pb.tensor(1))
    with pytest.raises(TypeError, match="iteration over a 0-d tensor"):
        iter(pb.tensor(1))


def test_contains():
    a = pb.tensor([1, 2])
    assert 2 in a
    assert 5 not in a
    assert pb.tensor(1) in a
    with pytest.raises((RuntimeError, TypeError)):
        "a" in a  # noqa: B015


def test_gradient_flows_through_iteration():
    a = pb.ones(3, requires_grad=True)
    total = 0
    for i, element in enumerate(a):
        total = total + element * i
    total.backward()
    assert a.grad.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("convert", [int, float, complex])
@pytest.mark.parametrize("count", [0, 2])
def test_numbers_of_several_elements_are_value_errors(convert, count):
    with pytest.raises(ValueError, match="only one element tensors can be converted to Python"):
        convert(pb.ones(count))
