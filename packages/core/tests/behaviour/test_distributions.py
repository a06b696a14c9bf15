"""Samples of distributions: frequencies, seeds, generators, dtypes, gradients and errors.

The frequencies belong to fixed seeds; the bounds are four standard deviations away or more.
"""

import math

import pytest

import pullback as pb

COUNT = 20000


def zeros(dtype=pb.float32):
    return pb.zeros(COUNT, dtype=dtype)


DRAWS = {
    "bernoulli": lambda **g: pb.bernoulli(pb.full((40,), 0.5), **g),
    "bernoulli p": lambda **g: pb.zeros(40).bernoulli(0.5, **g),
    "bernoulli_": lambda **g: pb.zeros(40).bernoulli_(**g),
    "normal": lambda **g: pb.normal(pb.zeros(5), 1.0, **g),
    "normal size": lambda **g: pb.normal(0.0, 1.0, (5,), **g),
    "poisson": lambda **g: pb.poisson(pb.full((40,), 20.0), **g),
    "multinomial": lambda **g: pb.multinomial(pb.ones(50), 20, **g),
    "multinomial again": lambda **g: pb.multinomial(pb.ones(50), 20, True, **g),
    "randperm": lambda **g: pb.randperm(30, **g),
    "exponential_": lambda **g: pb.zeros(5).exponential_(**g),
    "geometric_": lambda **g: pb.zeros(40).geometric_(0.2, **g),
    "cauchy_": lambda **g: pb.zeros(5).cauchy_(**g),
    "log_normal_": lambda **g: pb.zeros(5).log_normal_(**g),
    "random_": lambda **g: pb.zeros(5).random_(**g),
    "uniform_": lambda **g: pb.zeros(5).uniform_(-1, 1, **g),
    "normal_": lambda **g: pb.zeros(5).normal_(3, 2, **g),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=list(DRAWS))
def test_seed_repeats_and_generator_is_independent(draw):
    pb.manual_seed(5)
    first, second = draw().tolist(), draw().tolist()
    assert first != second
    pb.manual_seed(5)
    assert draw(generator=pb.Generator().manual_seed(5)).tolist() == first
    assert [draw().tolist(), draw().tolist()] == [first, second]
    with pytest.raises(TypeError, match="Generator"):
        draw(generator=5)


REFUSED = {
    "bernoulli above": (lambda: pb.bernoulli(pb.ones(2) * 2), RuntimeError, "p_in >= 0 && p_in"),
    "bernoulli nan": (lambda: pb.bernoulli(pb.ones(2) * math.nan), RuntimeError, "p_in >= 0"),
    "bernoulli int": (
        lambda: pb.bernoulli(pb.ones(2, dtype=pb.int64)),
        NotImplementedError,
        "'Long'",
    ),
    "bernoulli p": (lambda: pb.ones(2).bernoulli(2), RuntimeError, r"\[0, 1\], but got p=2"),
    "bernoulli_": (lambda: pb.ones(2).bernoulli_(pb.tensor([1.0, 2.0])), RuntimeError, "p_in"),
    "bernoulli_ shape": (lambda: pb.ones(2).bernoulli_(pb.ones(3)), RuntimeError, "must match"),
    "bernoulli_ complex": (
        lambda: pb.ones(2, dtype=pb.complex64).bernoulli_(0.5),
        NotImplementedError,
        "ComplexFloat",
    ),
    "normal std": (lambda: pb.normal(0.0, -1.0, (2,)), RuntimeError, "expects std >= 0.0"),
    "normal stds": (lambda: pb.normal(pb.ones(2), -pb.ones(2)), RuntimeError, "all elements of"),
    "normal nan": (lambda: pb.normal(0.0, pb.tensor(math.nan)), RuntimeError, "all elements of"),
    "normal shapes": (lambda: pb.normal(pb.ones(2), pb.ones(3)), RuntimeError, "must match"),
    "normal int": (lambda: pb.normal(pb.ones(2, dtype=pb.int64), 1.0), NotImplementedError, "Long"),
    "normal complex std": (
        lambda: pb.normal(0.0, pb.ones(1, dtype=pb.complex64)),
        RuntimeError,
        "non-complex",
    ),
    "normal no size": (lambda: pb.normal(0.0, 1.0), TypeError, "size"),
    "normal both": (lambda: pb.normal(pb.ones(2), 1.0, (2,)), TypeError, "size"),
    "normal no mean": (lambda: pb.normal(std=pb.ones(2)), TypeError, "mean"),
    "poisson": (lambda: pb.poisson(-pb.ones(2)), RuntimeError, "rate to be non-negative"),
    "poisson nan": (lambda: pb.poisson(pb.tensor([math.nan])), RuntimeError, "non-negative"),
    "poisson int": (lambda: pb.poisson(pb.ones(1, dtype=pb.int64)), NotImplementedError, "Long"),
    "multinomial dims": (lambda: pb.multinomial(pb.ones(1, 1, 1), 1), RuntimeError, "1 or 2 dim"),
    "multinomial int": (
        lambda: pb.multinomial(pb.ones(2, dtype=pb.int64), 1),
        RuntimeError,
        "only supports floating-point dtypes for input, got: Long",
    ),
    "multinomial none": (lambda: pb.multinomial(pb.ones(2), 0), RuntimeError, "n_sample <= 0"),
    "multinomial many": (
        lambda: pb.multinomial(pb.ones(2), 3),
        RuntimeError,
        "without replacement",
    ),
    "multinomial negative": (
        lambda: pb.multinomial(-pb.ones(2), 1),
        RuntimeError,
        "either `inf`, `nan` or element < 0",
    ),
    "multinomial nan": (
        lambda: pb.multinomial(pb.tensor([1, math.nan]), 5, True),
        RuntimeError,
        "entry < 0",
    ),
    "multinomial inf": (
        lambda: pb.multinomial(pb.tensor([1, math.inf]), 5, True),
        RuntimeError,
        "infinity or NaN",
    ),
    "multinomial zero": (
        lambda: pb.multinomial(pb.tensor([[1.0, 0], [0, 0]]), 1),
        RuntimeError,
        "sum of probabilities <= 0",
    ),
    "multinomial float": (lambda: pb.multinomial(pb.ones(2), 1.5), TypeError, "must be int"),
    "randperm": (lambda: pb.randperm(-1), RuntimeError, "negative dimension -1"),
    "randperm large": (lambda: pb.randperm(300, dtype=pb.uint8), RuntimeError, "without overflow"),
    "randperm half": (
        lambda: pb.randperm(4000, dtype=pb.float16),
        RuntimeError,
        "n cannot be greater than 2049 for Half",
    ),
    "randperm bool": (lambda: pb.randperm(2, dtype=pb.bool), NotImplementedError, "'Bool'"),
    "exponential_": (lambda: pb.ones(2).exponential_(0), RuntimeError, "lambda > 0.0"),
    "exponential_ int": (
        lambda: pb.ones(2, dtype=pb.int64).exponential_(),
        RuntimeError,
        "continuous probability distribution",
    ),
    "geometric_": (lambda: pb.ones(2).geometric_(1.0), RuntimeError, r"in \(0, 1\)"),
    "geometric_ no p": (lambda: pb.ones(2).geometric_(), TypeError, "missing 1 required"),
    "geometric_ bool": (
        lambda: pb.ones(2, dtype=pb.bool).geometric_(0.5),
        NotImplementedError,
        "Bool",
    ),
    "cauchy_": (lambda: pb.ones(2).cauchy_(0, 0), RuntimeError, "sigma > 0.0"),
    "cauchy_ tensor": (
        lambda: pb.ones(3).cauchy_(pb.zeros(0, 1)),
        TypeError,
        r"argument 'median' \(position 1\) must be float, not Tensor",
    ),
    "cauchy_ word": (
        lambda: pb.ones(3).cauchy_(0, "a"),
        TypeError,
        r"argument 'sigma' \(position 2\) must be float, not str",
    ),
    "log_normal_": (lambda: pb.ones(2).log_normal_(0, 0), RuntimeError, "std > 0.0"),
    "log_normal_ tensor": (
        lambda: pb.ones(2).log_normal_(0, pb.ones(2)),
        TypeError,
        r"argument 'std' \(position 2\) must be float, not Tensor",
    ),
    "normal_ tensor": (lambda: pb.ones(2).normal_(pb.ones(2)), TypeError, "must be float"),
    "uniform_ word": (lambda: pb.ones(2).uniform_("a"), TypeError, "argument 'from' "),
    "random_ empty": (lambda: pb.ones(2).random_(3, 2), RuntimeError, "from=3 >= to=2"),
    "random_ zero": (lambda: pb.ones(2).random_(0), RuntimeError, "from=0 >= to=0"),
    "random_ large": (
        lambda: pb.ones(2, dtype=pb.uint8).random_(300),
        RuntimeError,
        "to - 1 is out of bounds",
    ),
    "random_ complex": (
        lambda: pb.ones(2, dtype=pb.complex64).random_(),
        NotImplementedError,
        "ComplexFloat",
    ),
    "leaf": (lambda: pb.ones(2, requires_grad=True).exponential_(), RuntimeError, "leaf"),
    "overlap": (lambda: pb.ones(1).expand(3).exponential_(), RuntimeError, "single memory"),
}


@pytest.mark.parametrize("call, error, message", REFUSED.values(), ids=list(REFUSED))
def test_refused_calls(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("size", [5e-324, 1e-300, 1.7e308])
@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial_of_weights_near_the_limits_of_double(size, replacement):
    weights = pb.tensor([[0, size, size, 0], [size, 0, 0, size]], dtype=pb.float64)
    drawn = pb.multinomial(weights, 40 if replacement else 2, replacement)
    assert set(drawn[0].tolist()) == {1, 2}
    assert set(drawn[1].tolist()) == {0, 3}


# name: samples, their mean, their variance
MOMENTS = {
    "bernoulli": (lambda: pb.bernoulli(zeros() + 0.3), 0.3, 0.21),
    "bernoulli double": (lambda: pb.bernoulli(zeros(pb.float64) + 0.3), 0.3, 0.21),
    "bernoulli half": (lambda: pb.bernoulli(zeros(pb.float16) + 0.25), 0.25, 0.1875),
    "bernoulli p": (lambda: zeros(pb.int64).bernoulli(0.3), 0.3, 0.21),
    "bernoulli_": (lambda: zeros(pb.bool).bernoulli_(0.3), 0.3, 0.21),
    "normal": (lambda: pb.normal(zeros() + 2, 3.0), 2, 9),
    "normal std": (lambda: pb.normal(2, zeros(pb.float64) + 3), 2, 9),
    "normal size": (lambda: pb.normal(-1.0, 0.5, (COUNT,)), -1, 0.25),
    "poisson small": (lambda: pb.poisson(zeros() + 0.5), 0.5, 0.5),
    "poisson": (lambda: pb.poisson(zeros() + 9.5), 9.5, 9.5),
    "poisson large": (lambda: pb.poisson(zeros(pb.float64) + 40), 40, 40),
    "poisson huge": (lambda: pb.poisson(zeros(pb.float64) + 1e8) - 1e8, 0, 1e8),
    "exponential_": (lambda: zeros().exponential_(2), 0.5, 0.25),
    "geometric_": (lambda: zeros(pb.int32).geometric_(0.25), 4, 12),
    "log_normal_": (
        lambda: zeros().log_normal_(0, 0.5),
        math.exp(0.125),
        (math.exp(0.25) - 1) * math.exp(0.25),
    ),
    "random_": (lambda: zeros(pb.int64).random_(-2, 4), 0.5, 35 / 12),
    "uniform_": (lambda: zeros().uniform_(-1, 2), 0.5, 0.75),
    "normal_": (lambda: zeros().normal_(2, 3), 2, 9),
}


@pytest.mark.parametrize("draw, mean, variance", MOMENTS.values(), ids=list(MOMENTS))
def test_moments(draw, mean, variance):
    found = draw().to(pb.float64)
    assert abs(found.mean().item() - mean) < 4 * math.sqrt(variance / COUNT)
    spread = ((found - mean) ** 2).mean().item()
    assert spread == pytest.approx(variance, rel=0.1)


def test_cauchy_quartiles():
    found = zeros(pb.float64).cauchy_(1, 2)
    for bound, share in ((-1, 0.25), (1, 0.5), (3, 0.75)):
        below = (found < bound).to(pb.float64).mean().item()
        assert abs(below - share) < 4 * math.sqrt(share * (1 - share) / COUNT)


def test_certain_results():
    assert pb.bernoulli(pb.tensor([0.0, 1.0])).tolist() == [0, 1]
    assert zeros().bernoulli(1).sum() == COUNT
    assert zeros().bernoulli_(0).sum() == 0
    assert pb.normal(pb.tensor([1.0, 2.0]), 0).tolist() == [1, 2]
    assert pb.poisson(pb.tensor([0.0, math.inf])).tolist() == [0, math.inf]
    assert pb.multinomial(pb.tensor([[0.0, 3, 0], [0, 0, 1]]), 2, True).tolist() == [[1, 1], [2, 2]]
    assert pb.multinomial(pb.tensor([0.0, 3, 0]), 3)[0] == 1
    assert pb.ones(3).random_(3, 4).tolist() == [3, 3, 3]
    assert zeros().exponential_(1e-30).min() > 0
    assert zeros().geometric_(0.999).min() >= 1


def test_multinomial_frequencies():
    weights = pb.tensor([1.0, 0.0, 3.0, 6.0])
    for found in (
        pb.multinomial(weights, COUNT, True),
        pb.multinomial(weights.expand(COUNT, 4), 1),
    ):
        for index, share in enumerate((0.1, 0, 0.3, 0.6)):
            seen = (found == index).to(pb.float64).mean().item()
            assert abs(seen - share) <= 4 * math.sqrt(share * (1 - share) / COUNT)


def test_multinomial_without_replacement_draws_in_turn():
    found = pb.multinomial(pb.tensor([1.0, 3.0, 6.0]).expand(COUNT, 3), 2)
    assert (found[:, 0] != found[:, 1]).all()
    both = ((found[:, 0] == 2) & (found[:, 1] == 1)).to(pb.float64).mean().item()
    assert abs(both - 0.6 * 3 / 4) < 4 * math.sqrt(0.45 * 0.55 / COUNT)


def test_randperm_is_a_permutation():
    assert sorted(pb.randperm(100).tolist()) == list(range(100))
    assert pb.randperm(5, dtype=pb.float32).dtype == pb.float32
    assert pb.randperm(0).shape == (0,)
    firsts = pb.stack([pb.randperm(3) for _ in range(600)])[:, 0]
    for index in range(3):
        assert abs((firsts == index).sum().item() - 200) < 50


def test_range_of_random_numbers():
    for dtype, largest in ((pb.bool, 1), (pb.uint8, 255), (pb.int8, 127), (pb.float16, 2048)):
        found = zeros(dtype).random_().to(pb.float64)
        assert found.min() == 0
        assert found.max() == largest
    assert pb.zeros(500, dtype=pb.int8).random_(126, None).unique().tolist() == [126, 127]
    assert pb.zeros(500).random_(3).unique().tolist() == [0, 1, 2]
    assert pb.zeros(500).random_(**{"from": 5, "to": 7}).unique().tolist() == [5, 6]


def test_dtype_and_layout_of_results():
    assert pb.normal(pb.ones(2), pb.ones(2, dtype=pb.float64)).dtype == pb.float32
    assert pb.normal(0.0, pb.ones(2, dtype=pb.float64)).dtype == pb.float64
    assert pb.normal(pb.ones(2, 1), pb.ones(3)).shape == (2, 3)
    assert pb.normal(pb.ones(2, dtype=pb.complex64), 1.0).is_complex()
    found = pb.multinomial(pb.ones(2, 3, dtype=pb.float16), 2)
    assert (found.dtype, found._base, found.is_contiguous()) == (pb.int64, None, True)
    turned = pb.zeros(2, 3).t()
    assert turned.exponential_().stride() == (1, 3)
    assert turned.bernoulli().stride() == (2, 1)


def test_out_and_empty():
    out = pb.zeros(2, dtype=pb.float64)
    assert pb.normal(2.0, 0.0, (2,), out=out) is out
    assert out.tolist() == [2, 2]
    assert pb.bernoulli(pb.ones(2), out=out).tolist() == [1, 1]
    assert sorted(pb.randperm(2, out=pb.zeros(2, dtype=pb.int64)).tolist()) == [0, 1]
    assert pb.multinomial(pb.ones(0, 3), 2).shape == (0, 2)
    for draw in (pb.bernoulli, pb.poisson, pb.normal):
        assert draw(pb.zeros(0, 3)).shape == (0, 3)


WITHOUT_DERIVATIVE = {
    "BernoulliBackward0": lambda x, y: x.bernoulli(),
    "BernoulliBackward1": lambda x, y: (x * 1).bernoulli_(y),
    "BernoulliBackward2": lambda x, y: (x * 1).bernoulli_(0.5),
    "NormalBackward0": lambda x, y: (x * 1).normal_(1, 2),
    "NormalBackward1": lambda x, y: pb.normal(x, 1.0),
    "NormalBackward2": lambda x, y: pb.normal(1.0, x),
    "NormalBackward3": lambda x, y: pb.normal(x, y),
    "PoissonBackward0": lambda x, y: pb.poisson(x),
    "ExponentialBackward0": lambda x, y: (x * 1).exponential_(),
    "GeometricBackward0": lambda x, y: (x * 1).geometric_(0.5),
    "CauchyBackward0": lambda x, y: (x * 1).cauchy_(),
    "LogNormalBackward0": lambda x, y: (x * 1).log_normal_(),
    "UniformBackward0": lambda x, y: (x * 1).uniform_(1, 2),
    "RandomBackward0": lambda x, y: (x * 1).random_(0, 3),
    "RandomBackward1": lambda x, y: (x * 1).random_(3),
    "RandomBackward2": lambda x, y: (x * 1).random_(),
}


@pytest.mark.parametrize("name", WITHOUT_DERIVATIVE)
def test_samples_have_zero_gradients(name):
    x, y = (pb.full(shape, 0.5, requires_grad=True) for shape in ((2, 3), (3,)))
    result = WITHOUT_DERIVATIVE[name](x, y)
    assert result.grad_fn.name() == name
    result.sum().backward()
    assert x.grad.tolist() == [[0, 0, 0], [0, 0, 0]]
    assert (y.grad is None) == (name not in ("BernoulliBackward1", "NormalBackward3"))
    assert y.grad is None or y.grad.tolist() == [0, 0, 0]


def test_bernoulli_with_p_has_no_derivative():
    result = pb.full((2,), 0.5, requires_grad=True).bernoulli(0.5)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="derivative for aten::bernoulli is not implemented"):
            result.sum().backward(retain_graph=True)


def test_samples_on_the_meta_device():
    x = pb.full((2, 3), 0.5, device="meta")
    for result in (
        x.bernoulli(),
        pb.poisson(x),
        pb.normal(x, x),
        x.multinomial(2),
        x.exponential_(),
    ):
        assert result.device.type == "meta"


def test_parameters_may_be_tensors_without_dims():
    pb.manual_seed(0)
    expected = pb.ones(3).cauchy_(2.0, 0.5).tolist()
    pb.manual_seed(0)
    assert pb.ones(3).cauchy_(pb.tensor(2), pb.tensor(0.5)).tolist() == expected


@pytest.mark.beyond_torch
def test_raw_copies_check_shapes():
    from pullback._c.ops.create import copy_raw

    assert copy_raw(pb.zeros(2, 3), pb.ones(3)).tolist() == [[1.0] * 3] * 2
    for source in (pb.zeros(0, 1), pb.zeros(2), pb.zeros(2, 3)):
        with pytest.raises(RuntimeError, match=r"size of tensor|broadcast shape"):
            copy_raw(pb.zeros(3), source)
