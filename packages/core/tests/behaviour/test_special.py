"""``pullback.special``: where its functions come from, edges of those that are its own."""

import math

import pytest

import pullback as pb

S = pb.special
INF, NAN = math.inf, math.nan


def test_names_of_functions_that_stand_elsewhere_too():
    x = pb.tensor([0.25, 0.5])
    assert S.expit is pb.sigmoid and S.psi is pb.digamma and S.gammaln is pb.lgamma
    assert S.multigammaln is pb.mvlgamma and S.softmax is pb.softmax
    assert S.erf(x).tolist() == x.erf().tolist()
    assert S.log_softmax(x, 0, dtype=pb.float64).dtype == pb.float64


def test_bessel_function_of_order_1():
    x = pb.tensor([1.0, -1.0], dtype=pb.float64, requires_grad=True)
    y = S.i1(x)
    assert y.tolist() == pytest.approx([0.5651591, -0.5651591])
    assert y.grad_fn.name() == "SpecialI1Backward0"
    assert pb.autograd.grad(y.sum(), x)[0].tolist() == pytest.approx([0.7009068] * 2)


def test_further_derivatives_of_the_bessel_function_of_order_1_near_0():
    x = pb.tensor([0.0, 1e-8, 0.09, 0.11], dtype=pb.float64, requires_grad=True)
    y = S.i1(x)
    found = []
    for _ in range(3):
        (y,) = pb.autograd.grad(y.sum(), x, create_graph=True)
        found.append(y.tolist())
    # The series x/2 + x^3/16 + x^5/384 + x^7/18432 + ..., term by term.
    terms = [(1, 2), (3, 16), (5, 384), (7, 18432), (9, 1474560), (11, 176947200)]
    for order, numbers in enumerate(found, 1):
        for at, number in zip(x.tolist(), numbers):
            expected = sum(
                math.perm(n, order) * at ** max(n - order, 0) / d for n, d in terms if n >= order
            )
            assert number == pytest.approx(expected, rel=1e-11, abs=1e-13)


def test_logit_is_flat_beyond_its_bounds():
    x = pb.tensor([0.0, 0.1, 1.0], dtype=pb.float64, requires_grad=True)
    (first,) = pb.autograd.grad(pb.logit(x, 0.25).sum(), x, create_graph=True)
    (second,) = pb.autograd.grad(first.sum(), x)
    assert first.tolist() == second.tolist() == [0, 0, 0]


def test_zeta():
    x = pb.tensor([1.0, 2.0], dtype=pb.float64, requires_grad=True)
    y = S.zeta(2.0, x)
    assert y.tolist() == pytest.approx([math.pi**2 / 6, math.pi**2 / 6 - 1])
    assert y.grad_fn.name() == "SpecialZetaBackward1"
    assert pb.autograd.grad(S.zeta(pb.tensor([2.0, 2.0]), x).sum(), x)[0].tolist() == (
        pb.autograd.grad(y.sum(), x)[0].tolist()
    )
    order = pb.tensor([2.0, 3.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="derivative for special_zeta is not implemented"):
        S.zeta(order, 1.0).sum().backward()


def test_entropy_at_the_edges():
    x = pb.tensor([0.0, -1.0, NAN, 1.0, INF], requires_grad=True)
    y = S.entr(x)
    assert str(y.tolist()) == str([0.0, -INF, NAN, -0.0, -INF])
    (grad,) = pb.autograd.grad(y.sum(), x)
    assert str(grad.tolist()) == str([INF, NAN, NAN, -1.0, -INF])
    assert S.entr(pb.tensor([1, 0, -2])).tolist() == [0.0, 0.0, -INF]
    with pytest.raises(NotImplementedError, match="ComplexFloat"):
        S.entr(pb.tensor([1j]))


def test_xlog1py_at_the_edges():
    x = pb.tensor([0.0, 0.0, 1.0, NAN, 0.0, 2.0], requires_grad=True)
    y = pb.tensor([-1.0, -2.0, -1.0, 1.0, NAN, 3.0])
    out = S.xlog1py(x, y)
    assert str(out[:5].tolist()) == str([0.0, 0.0, -INF, NAN, NAN])
    assert out[5].item() == pytest.approx(2 * math.log(4))
    (grad,) = pb.autograd.grad(out[:2].sum(), x)
    assert grad[:2].tolist() == [0.0, 0.0]
    names = [S.xlog1py(a, b).grad_fn.name() for a, b in ((x, y), (x, 2), (2, x))]
    assert names == [f"SpecialXlog1PyBackward{k}" for k in (0, 2, 1)]
    assert S.xlog1py(x, -2)[1].item() == 0 and S.xlog1py(pb.ones(1), -1).item() == -INF


def test_normal_distribution_far_out():
    assert S.ndtr(pb.tensor([-10.0], dtype=pb.float64)).item() == pytest.approx(7.6198530241605e-24)
    assert S.ndtr(pb.tensor([0.0, 40.0])).tolist() == [0.5, 1.0]


def test_small_things_beside_it():
    x = pb.ones(2)
    assert x.is_conj() is x.is_neg() is False
    assert x.resolve_conj() is x.resolve_neg() is x
    assert x.is_same_size(pb.zeros(2)) and not x.is_same_size(pb.zeros(3))
    assert pb.empty(1, device="meta").is_meta and not (x.is_meta or x.is_cuda)
    assert x.is_cpu is (x.device.type == "cpu")
    assert (pb.pi, pb.e, pb.inf) == (math.pi, math.e, INF) and math.isnan(pb.nan)
    assert x[pb.newaxis].shape == (1, 2)
    assert pb.fill_(x, 3) is x and pb.zero_(x) is x and x.tolist() == [0, 0]
    assert pb.index_put_(x, (pb.tensor([1]),), pb.tensor(5.0)).tolist() == [0, 5]


def test_inner():
    x, y = pb.arange(6.0).reshape(2, 3), pb.arange(3.0)
    assert pb.inner(x, y).tolist() == [5.0, 14.0] and x.inner(x).shape == (2, 2)
    assert pb.inner(x, pb.tensor(2.0)).tolist() == (2 * x).tolist()
    with pytest.raises(RuntimeError, match="the last dimension must match"):
        pb.inner(x, x.t())
    with pytest.raises(RuntimeError, match="same dtype"):
        pb.inner(x, y.double())


def test_round_to_decimals():
    x = pb.tensor([1.2345, 2.5, -1.55])
    assert x.round(decimals=2).tolist() == pytest.approx([1.23, 2.5, -1.55])
    assert pb.round(x * 1000, decimals=-2).tolist() == [1200.0, 2500.0, -1600.0]
    assert pb.round(x, decimals=1, out=pb.empty(0)).tolist() == pytest.approx([1.2, 2.5, -1.6])
    assert x.round_(decimals=0) is x
    assert x.tolist() == [1.0, 2.0, -2.0]
    with pytest.raises(NotImplementedError, match="round"):
        pb.arange(3).round(decimals=1)


def test_shifted_polynomials_take_integers_without_wrapping_around():
    x = pb.tensor([0, 3], dtype=pb.uint8)
    assert S.shifted_chebyshev_polynomial_t(x, 3).tolist() == [-1.0, 485.0]


def test_polynomials_of_negative_fractional_and_enormous_degree():
    x = pb.tensor([0.5], dtype=pb.float64)
    assert S.legendre_polynomial_p(x, -1).tolist() == [0.0]
    assert S.hermite_polynomial_h(x, 2.7).tolist() == pytest.approx([-1.0])
    assert math.isnan(S.chebyshev_polynomial_t(x, 2**25).item())
    y = x.clone().requires_grad_()
    with pytest.raises(NotImplementedError, match="degrees up to 4096, got 5000"):
        S.legendre_polynomial_p(y, 5000).backward()


def test_third_derivative_of_a_legendre_polynomial():
    x = pb.tensor([0.5, 1.0], dtype=pb.float64, requires_grad=True)
    y = S.legendre_polynomial_p(x, 3)  # (5 x^3 - 3 x) / 2
    for expected in ([0.375, 6.0], [7.5, 15.0], [15.0, 15.0]):
        (y,) = pb.autograd.grad(y.sum(), x, create_graph=True)
        assert y.tolist() == pytest.approx(expected)


def test_bessel_functions_keep_the_phase_of_large_numbers():
    x = pb.tensor([1e10], dtype=pb.float64)
    assert S.bessel_j0(x).item() == pytest.approx(2.1755917502468918e-06, rel=1e-9)
    assert S.airy_ai(pb.tensor([200.0])).item() == 0


def test_spherical_bessel_function_and_its_derivatives():
    values = [0.0, -0.0, 1e-30, 0.3, 0.49, 0.51, -2.0, INF, -INF]
    x = pb.tensor(values, dtype=pb.float64, requires_grad=True)
    y = S.spherical_bessel_j0(x)
    assert y.tolist() == pytest.approx(
        [0 if abs(v) == INF else math.sin(v) / v if v else 1 for v in values], rel=1e-15
    )
    assert math.isnan(S.spherical_bessel_j0(pb.tensor([NAN])).item())
    for order in (1, 2):
        (y,) = pb.autograd.grad(y.sum(), x, create_graph=True)
        # The series of sin(x) / x, term by term.
        expected = [
            sum(
                (-1) ** (n // 2) * math.perm(n, order) * v ** (n - order) / math.factorial(n + 1)
                for n in range(2, 40, 2)
            )
            for v in values[:7]
        ]
        assert y.tolist()[:7] == pytest.approx(expected, rel=1e-12, abs=1e-15)
        assert y.tolist()[7:] == [0, 0]
