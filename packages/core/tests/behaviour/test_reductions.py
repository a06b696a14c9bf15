"""Reductions, cumulative ops and statistics: calls, special values, derivatives, errors."""

import math

import pytest

import pullback as pb

NAN, INF = math.nan, math.inf


def double(values):
    return pb.tensor(values, dtype=pb.float64)


def gradient(function, values):
    x = double(values).requires_grad_()
    (g,) = pb.autograd.grad(function(x).sum(), x)
    return g.tolist()


def node_name(result):
    return result.grad_fn.name()


def same(found, expected):
    return len(found) == len(expected) and all(
        a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(found, expected, strict=True)
    )


# variance


MATRIX = [[1.0, 2.0, 6.0], [3.0, 5.0, 7.0]]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: x.var(0), [2.0, 4.5, 0.5]),
        (lambda x: x.var(0, False), [1.0, 2.25, 0.25]),
        (lambda x: x.var(0, unbiased=False), [1.0, 2.25, 0.25]),
        (lambda x: x.var(0, correction=0), [1.0, 2.25, 0.25]),
        (lambda x: x.var(dim=0, correction=0.0, keepdim=True), [[1.0, 2.25, 0.25]]),
        (lambda x: x.std(0, False, True), [[1.0, 1.5, 0.5]]),
        (lambda x: x.var(False) * 18, 84.0),
        (lambda x: x.var((0, 1), correction=0) * 18, 84.0),
        (lambda x: x.var(correction=2) * 12, 84.0),
    ],
)
def test_ways_to_ask_for_a_variance(call, expected):
    assert pb.allclose(call(double(MATRIX)), double(expected), rtol=1e-14)


def test_spread_with_mean_is_a_pair():
    variance, mean = pb.var_mean(double(MATRIX), 1)
    deviation, again = pb.std_mean(double(MATRIX), 1)
    assert variance.tolist() == [7.0, 4.0]
    assert deviation.tolist() == [math.sqrt(7.0), 2.0]
    assert mean.tolist() == again.tolist() == [3.0, 5.0]


def test_variance_survives_a_large_mean():
    x = double([1e9 + 1, 1e9 + 2, 1e9 + 3])
    assert x.var().item() == 1.0
    assert pb.tensor([3e4, 3e4 + 16], dtype=pb.float16).var().item() == 128.0


def test_variance_of_too_few_elements_is_nan_and_warns():
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        assert math.isnan(double([1.0]).var().item())
    with pytest.warns(UserWarning, match="degrees of freedom is <= 0"):
        assert double([1.0, 2.0]).var(correction=3).item() == INF


def test_variance_of_complex_numbers_is_real():
    x = pb.tensor([1 + 1j, -1 - 1j])
    assert x.var().dtype == pb.float32
    assert x.var().item() == 4.0


def test_derivative_of_a_deviation_of_equal_elements_is_0():
    assert gradient(lambda x: x.std(), [1.0, 1.0, 1.0]) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pb.arange(3).var(), RuntimeError, "only support floating point"),
        (lambda: pb.var_mean(pb.arange(3)), RuntimeError, "only support floating point"),
        (lambda: pb.ones(3).std(5), IndexError, "Dimension out of range"),
        (lambda: pb.ones(2, 3).var((0, 0)), RuntimeError, "appears multiple times"),
        (lambda: pb.ones(3).var(0, unbiased=True, correction=0), TypeError, "correction"),
        (lambda: pb.arange(3).median("a"), TypeError, "must be int"),
        (lambda: pb.zeros(0, 3).median(0), IndexError, "non-zero size"),
        (lambda: pb.zeros(0).max(), RuntimeError, "reduction dim to be specified"),
        (lambda: pb.zeros(0, 3).max(0), IndexError, "non-zero size"),
        (lambda: pb.zeros(0).aminmax(), RuntimeError, "no identity"),
        (lambda: pb.zeros(0).mode(), IndexError, "non-zero size"),
        (lambda: pb.ones(2, dtype=pb.bool).median(), NotImplementedError, "Bool"),
        (lambda: pb.ones(2, dtype=pb.complex64).cummax(0), NotImplementedError, "Complex"),
        (lambda: pb.ones(2, dtype=pb.complex64).max(0), RuntimeError, "complex"),
        (lambda: pb.arange(3).logcumsumexp(0), NotImplementedError, "Long"),
        (lambda: pb.arange(3).nanmean(), RuntimeError, "floating point"),
        (lambda: pb.ones(3).cumsum(1), IndexError, "Dimension out of range"),
        (lambda: pb.ones(3).prod((0,)), TypeError, "prod"),
        (lambda: pb.tensor(1.0).diff(), RuntimeError, "at least one-dimensional"),
        (lambda: pb.ones(3).diff(-1), RuntimeError, "non-negative"),
        (lambda: pb.ones(3).diff("a"), TypeError, "must be int"),
        (lambda: pb.ones(3).diff(prepend=pb.ones(1, 1)), RuntimeError, "same dimension"),
        (lambda: pb.trapezoid(pb.ones(3), pb.ones(2)), RuntimeError, "one `x` value for each"),
        (lambda: pb.trapezoid(pb.ones(3, dtype=pb.bool)), RuntimeError, "bool"),
        (lambda: pb.ones(3).quantile(1.5), RuntimeError, r"in the range \[0, 1\]"),
        (lambda: pb.ones(3).quantile(double([0.5])), RuntimeError, "same dtype"),
        (lambda: pb.arange(3).quantile(0.5), RuntimeError, "either float or double"),
        (lambda: pb.zeros(0).quantile(0.5), RuntimeError, "non-empty"),
        (lambda: pb.ones(3).quantile(0.5, interpolation="x"), RuntimeError, "interpolation"),
        (lambda: pb.ones(2, 2, 2).cov(), RuntimeError, "two or fewer dimensions"),
        (lambda: pb.ones(2, 3).cov(fweights=pb.ones(3)), RuntimeError, "integral"),
        (lambda: pb.ones(2, 3).cov(fweights=pb.arange(2)), RuntimeError, "same numel"),
        (lambda: pb.ones(2, 3).cov(aweights=-pb.ones(3)), RuntimeError, "negative"),
        (lambda: pb.arange(3).norm(), RuntimeError, "floating point or complex"),
        (lambda: pb.zeros(0).norm(INF), RuntimeError, "does not have an identity"),
        (lambda: pb.ones(3).norm("abc"), RuntimeError, "abc"),
        (lambda: pb.ones(3).renorm(2, 0, 1.0), RuntimeError, "at least 2 dimensions"),
        (lambda: pb.ones(3, 3).renorm(0, 0, 1.0), RuntimeError, "non-positive-norm"),
        (lambda: pb.ones(3, 3).renorm(2, 0, -1.0), RuntimeError, "maxnorm"),
    ],
)
def test_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


# largest, smallest, middle


def test_results_along_a_dim_are_named():
    x = double(MATRIX)
    for name in ("max", "min", "median", "nanmedian", "mode", "cummax", "cummin", "sort"):
        found = getattr(x, name)(dim=1)
        assert found.values is found[0]
        assert found.indices is found[1]
        assert found.indices.dtype == pb.int64
    assert x.aminmax().min.item() == 1.0
    assert x.aminmax(dim=0).max.tolist() == [3.0, 5.0, 7.0]


def test_max_takes_a_dim_another_tensor_or_nothing():
    x = double(MATRIX)
    assert pb.max(x).item() == 7.0
    assert pb.max(x, 1, keepdim=True).indices.tolist() == [[2], [2]]
    assert pb.max(x, double([4.0, 4.0, 4.0])).tolist() == [[4.0, 4.0, 6.0], [4.0, 5.0, 7.0]]
    values, indices = pb.empty(0, dtype=pb.float64), pb.empty(0, dtype=pb.int64)
    pb.max(x, 0, out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([3.0, 5.0, 7.0], [1, 1, 1])


@pytest.mark.parametrize(
    ("function", "values", "expected"),
    [
        (lambda x: x.max(), [1.0, 3.0, 3.0], [0.0, 0.5, 0.5]),
        (lambda x: x.min(), [1.0, NAN, NAN], [0.0, 0.5, 0.5]),
        (lambda x: x.max(0)[0], [1.0, 3.0, 3.0], [0.0, 1.0, 0.0]),
        (lambda x: x.max(0)[0], [1.0, NAN, 3.0], [0.0, 1.0, 0.0]),
        (lambda x: x.amax(), [1.0, 3.0, 3.0], [0.0, 0.5, 0.5]),
        (lambda x: x.aminmax()[1], [1.0, 3.0, 3.0], [0.0, 0.5, 0.5]),
        (lambda x: x.median(), [1.0, 2.0, 2.0, 3.0], [0.0, 0.5, 0.5, 0.0]),
        (lambda x: x.median(), [1.0, NAN, 2.0, NAN], [0.0, 0.5, 0.0, 0.5]),
        (lambda x: x.nanmedian(), [1.0, NAN, 2.0, 5.0], [0.0, 0.0, 1.0, 0.0]),
        (lambda x: x.cummax(0)[0], [1.0, 3.0, 3.0, 2.0], [1.0, 1.0, 2.0, 0.0]),
        (lambda x: x.nansum(), [1.0, NAN], [1.0, 0.0]),
    ],
)
def test_derivative_at_ties_and_nan(function, values, expected):
    assert gradient(function, values) == expected


def test_median_is_the_lower_middle_and_nan_wins():
    assert double([4.0, 1.0, 3.0, 2.0]).median().item() == 2.0
    assert math.isnan(double([4.0, NAN, 3.0]).median().item())
    values, indices = double([[4.0, NAN, 3.0, NAN], [4.0, 1.0, 3.0, 2.0]]).median(1)
    assert math.isnan(values[0].item())
    assert values[1].item() == 2.0
    assert indices.tolist() == [1, 3]
    assert double([4.0, NAN, 3.0]).nanmedian().item() == 3.0
    assert math.isnan(pb.zeros(0).median().item())


def test_mode_is_the_smallest_of_the_most_frequent_and_its_last_index():
    values, indices = pb.tensor([[3, 1, 3, 1, 2], [2, 2, 5, 5, 5]]).mode(1)
    assert values.tolist() == [1, 5]
    assert indices.tolist() == [3, 4]


def test_running_extremes_take_the_last_of_equals_and_keep_nan():
    values, indices = double([1.0, 3.0, 3.0, 2.0, NAN, 5.0, NAN]).cummax(0)
    assert same(values.tolist(), [1.0, 3.0, 3.0, 3.0, NAN, NAN, NAN])
    assert indices.tolist() == [0, 1, 2, 2, 4, 4, 6]
    values, indices = pb.tensor([True, False, True]).cummin(0)
    assert values.tolist() == [True, False, False]
    assert indices.tolist() == [0, 1, 1]


# products and sums


@pytest.mark.parametrize("dtype", [pb.bool, pb.uint8, pb.int32])
def test_sums_and_products_of_integers_are_int64(dtype):
    x = pb.ones(3, dtype=dtype)
    for result in (x.prod(), x.cumsum(0), x.cumprod(0)):
        assert result.dtype == pb.int64
    assert x.cumsum(0, dtype=pb.float32).dtype == pb.float32
    assert x.prod(dtype=pb.int16).dtype == pb.int16


def test_in_place_running_sum_keeps_the_dtype():
    x = pb.tensor([1, 2], dtype=pb.int8)
    assert x.cumsum_(0) is x
    assert x.dtype == pb.int8
    assert x.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2.0, 3.0, 4.0], [12.0, 8.0, 6.0]),
        ([0.0, 3.0, 4.0], [12.0, 0.0, 0.0]),
        ([0.0, 3.0, 0.0], [0.0, 0.0, 0.0]),
    ],
)
def test_derivative_of_a_product_with_zeros(values, expected):
    assert gradient(lambda x: x.prod(), values) == expected
    assert gradient(lambda x: x.prod(0), values) == expected
    assert gradient(lambda x: x.cumprod(0)[2], values) == expected


def test_second_derivative_of_a_product_with_two_zeros():
    x = double([0.0, 3.0, 0.0]).requires_grad_()
    for function in (lambda x: x.prod(), lambda x: x.cumprod(0)[2]):
        (g,) = pb.autograd.grad(function(x), x, create_graph=True)
        (second,) = pb.autograd.grad(g[0], x)
        assert second.tolist() == [0.0, 0.0, 3.0]


def test_log_of_running_sum_takes_large_and_infinite_elements():
    x = double([-INF, 800.0, 800.0, INF])
    expected = [-INF, 800.0, 800.0 + math.log(2.0), INF]
    assert pb.allclose(x.logcumsumexp(0), double(expected), rtol=1e-15)
    assert gradient(lambda x: x.logcumsumexp(0)[2], [800.0, 800.0, 800.0]) == pytest.approx(
        [1 / 3] * 3
    )


def test_logsumexp_of_nothing_and_of_infinities():
    assert pb.zeros(0, 2).logsumexp(0).tolist() == [-INF, -INF]
    assert pb.tensor([INF, -INF]).logsumexp(0).item() == INF
    assert pb.tensor([0, 0]).logsumexp(0).dtype == pb.float32


def test_any_and_all_of_no_dims_reduce_nothing():
    x = pb.tensor([[0, 1], [1, 1]])
    assert x.all(()).tolist() == [[False, True], [True, True]]
    assert x.any(()).dtype == pb.bool
    assert not x.all().item()


def test_count_nonzero_counts_nan():
    x = double([[0.0, NAN], [-0.0, 2.0]])
    assert x.count_nonzero().item() == 2
    assert x.count_nonzero(0).tolist() == [0, 2]


# neighbours


def test_differences_of_bools_tell_where_they_differ():
    assert pb.tensor([True, False, False]).diff().tolist() == [True, False]
    assert pb.tensor([1, 5, 3], dtype=pb.uint8).diff().tolist() == [4, 254]


def test_diff_with_ends_and_of_higher_order():
    x = pb.tensor([1, 4, 9])
    assert x.diff(prepend=pb.tensor([0]), append=pb.tensor([16])).tolist() == [1, 3, 5, 7]
    assert x.diff(2).tolist() == [2]
    assert x.diff(9).shape == (0,)
    assert x.diff(0).tolist() == x.tolist()


def test_trapezoids():
    y = pb.tensor([1.0, 3.0, 5.0])
    assert pb.trapezoid(y).item() == 6.0
    assert pb.trapz(y, dx=0.5).item() == 3.0
    assert pb.trapezoid(y, pb.tensor([0.0, 1.0, 4.0])).item() == 14.0
    assert pb.cumulative_trapezoid(y).tolist() == [2.0, 6.0]
    assert pb.trapezoid(pb.tensor([1, 2])).dtype == pb.float32


# quantiles, covariances, norms


@pytest.mark.parametrize(
    ("interpolation", "expected"),
    [("linear", 1.9), ("lower", 1.0), ("higher", 2.0), ("midpoint", 1.5), ("nearest", 2.0)],
)
def test_interpolations_of_quantiles(interpolation, expected):
    x = double([4.0, 2.0, 1.0, 3.0])
    assert x.quantile(0.3, interpolation=interpolation).item() == pytest.approx(expected)


def test_shapes_of_quantiles():
    x, q = pb.ones(2, 3, 4), pb.tensor([0.1, 0.5])
    assert x.quantile(0.5).shape == ()
    assert x.quantile(q).shape == (2,)
    assert x.quantile(q, keepdim=True).shape == (2, 1, 1, 1)
    assert x.quantile(q, 1).shape == (2, 2, 4)
    assert x.quantile(q, -2, True).shape == (2, 2, 1, 4)


def test_quantiles_and_nan():
    x = double([[1.0, NAN, 3.0], [4.0, 5.0, 6.0]])
    assert same(x.quantile(0.5, 1).tolist(), [NAN, 5.0])
    assert x.nanquantile(0.5, 1).tolist() == [2.0, 5.0]
    assert math.isnan(double([NAN]).nanquantile(0.5).item())
    assert gradient(lambda x: x.quantile(0.5, 1), [[1.0, NAN, 3.0]]) == [[0.0, 1.0, 0.0]]


def test_covariance_with_weights_counts_observations_as_often():
    x = double([[1.0, 2.0, 4.0], [3.0, 1.0, 0.0]])
    repeated = double([[1.0, 2.0, 2.0, 4.0], [3.0, 1.0, 1.0, 0.0]])
    found = x.cov(fweights=pb.tensor([1, 2, 1]))
    assert pb.allclose(found, repeated.cov(), rtol=1e-14)
    assert pb.allclose(x.cov(aweights=double([1.0, 1.0, 1.0])), x.cov(), rtol=1e-14)
    assert x[0].cov().shape == ()
    assert pb.allclose(x.corrcoef().diagonal(), double([1.0, 1.0]))


@pytest.mark.parametrize(
    ("p", "values", "expected"),
    [
        (2, [0.0, 0.0], [0.0, 0.0]),
        (2, [3.0, 4.0], [0.6, 0.8]),
        (1, [0.0, -1.0, 2.0], [0.0, -1.0, 1.0]),
        (INF, [0.0, -2.0, 2.0], [0.0, -0.5, 0.5]),
        (-INF, [1.0, -2.0, 1.0], [0.5, 0.0, 0.5]),
        (1.5, [0.0, 0.0], [0.0, 0.0]),
        (3, [0.0, 2.0], [0.0, 1.0]),
    ],
)
def test_derivative_of_norms(p, values, expected):
    assert gradient(lambda x: x.norm(p), values) == pytest.approx(expected)


def test_norms_of_matrices_and_dtypes():
    x = double([[3.0, 0.0], [4.0, 0.0]])
    assert x.norm().item() == x.norm("fro").item() == x.norm(p=None).item() == 5.0
    assert x.norm(0).item() == 2.0
    assert x.norm(1, dim=0, keepdim=True).tolist() == [[7.0, 0.0]]
    assert x.float().norm(dtype=pb.float64).dtype == pb.float64
    assert pb.tensor([3 + 4j]).norm().dtype == pb.float32
    assert pb.full((1000,), 300.0, dtype=pb.float16).norm().item() == pytest.approx(9488, rel=1e-3)


def test_renorm_scales_only_what_is_too_long():
    x = double([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    expected = double([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]])
    assert pb.allclose(x.renorm(2, 0, 1.0), expected, rtol=1e-6)


# names of nodes


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: x.max(), "MaxBackward1"),
        (lambda x: x.min(0)[0], "MinBackward0"),
        (lambda x: x.median(), "MedianBackward0"),
        (lambda x: x.median(0)[0], "MedianBackward1"),
        (lambda x: x.mode()[0], "ModeBackward0"),
        (lambda x: x.aminmax()[0], "AminmaxBackward0"),
        (lambda x: x.logsumexp(0), "LogsumexpBackward0"),
        (lambda x: x.prod(), "ProdBackward0"),
        (lambda x: x.prod(0), "ProdBackward1"),
        (lambda x: x.cumsum(0), "CumsumBackward0"),
        (lambda x: x.cumprod(0), "CumprodBackward0"),
        (lambda x: x.cummin(0)[0], "CumminBackward0"),
        (lambda x: x.logcumsumexp(0), "LogcumsumexpBackward0"),
        (lambda x: x.var(), "VarBackward0"),
        (lambda x: x.std(0), "StdBackward0"),
        (lambda x: pb.var_mean(x)[1], "VarMeanBackward0"),
        (lambda x: pb.std_mean(x)[0], "StdMeanBackward0"),
        (lambda x: x.norm(), "LinalgVectorNormBackward0"),
        (lambda x: x.dist(x + 1), "DistBackward0"),
        (lambda x: x.nansum(), "NansumBackward0"),
    ],
)
def test_node_names(function, name):
    assert node_name(function(double([1.0, 2.0, 3.0]).requires_grad_())) == name


# empty dims, and the order of checks


@pytest.mark.parametrize("name", ["var", "std"])
def test_deviation_of_nothing_is_nan(name):
    function = getattr(pb, name)
    for correction in (-1, -2.5):
        assert math.isnan(function(pb.zeros(0), correction=correction).item())
        found = function(pb.zeros(2, 0), 1, correction=correction)
        assert [math.isnan(value) for value in found.tolist()] == [True, True]
    assert function(pb.zeros(2), correction=-1).item() == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: pb.tensor([1, 2]).logcumsumexp(5),
        lambda: pb.tensor([1j]).max(5),
        lambda: pb.tensor([1j]).min(5),
        lambda: pb.tensor([1j]).median(5),
        lambda: pb.tensor([True]).nanmedian(5),
        lambda: pb.tensor([1j]).mode(5),
        lambda: pb.tensor([1j]).cummax(5),
        lambda: pb.aminmax(pb.tensor([1j]), dim=5),
        lambda: pb.nn.functional.glu(pb.tensor([1, 2]), 5),
    ],
)
def test_dims_are_checked_before_dtypes(call):
    with pytest.raises(IndexError, match="Dimension out of range"):
        call()


def test_types_are_checked_before_dtypes():
    for name in ("std", "var", "std_mean", "var_mean"):
        with pytest.raises(TypeError):
            getattr(pb, name)(pb.tensor([1, 2]), dim="x")
    for name in ("argmax", "argmin"):
        with pytest.raises(RuntimeError, match="does not support complex input"):
            getattr(pb, name)(pb.tensor([1j]))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2.0, -3.0, 4.0], [-12.0, 8.0, -6.0]),
        ([2.0, 0.0, 5.0], [0.0, 10.0, 0.0]),
        ([0.0, 0.0, 5.0], [0.0, 0.0, 0.0]),
        ([1e200, 1e200, 1e-200], [1.0, 1.0, INF]),  # products that leave the range half-way
        ([1e-200, 1e-200, 1e200], [1.0, 1.0, 0.0]),
        ([1e-155, 1e-160, 3.0], [3e-160, 3e-155, 1e-315]),  # and one that loses digits
        ([INF, 2.0, 3.0], [6.0, INF, INF]),
    ],
)
def test_gradient_of_prod_is_the_product_of_the_others(values, expected):
    assert gradient(pb.prod, values) == pytest.approx(expected, rel=1e-12)
    columns = gradient(lambda x: x.prod(0), [[v, 1.0] for v in values])
    assert [column[0] for column in columns] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("values", [[2.0, 0.0, 5.0], [2.0, 3.0, 5.0]])
def test_second_derivative_of_prod(values):
    assert pb.autograd.gradgradcheck(pb.prod, (double(values).requires_grad_(),))


def test_logs_of_complex_sums_of_nothing_have_no_angle():
    inf = math.inf
    x = pb.tensor([complex(-inf, 1), complex(-inf, -inf), 1 + 1j])
    assert x.logcumsumexp(0).tolist() == [-inf, -inf, pytest.approx(1 + 1j)]
    assert pb.logsumexp(pb.tensor(1 + 4j), 0).item() == pytest.approx(1 + (4 - 2 * math.pi) * 1j)


def test_histc_of_half_counts_as_of_single():
    x = pb.tensor([1.0, 2.0, 3.0, 4.0])
    for dtype in (pb.float16, pb.bfloat16):
        found = pb.histc(x.to(dtype), 4, 0, 4)
        assert found.dtype == dtype
        assert found.tolist() == [0.0, 1.0, 1.0, 2.0]
