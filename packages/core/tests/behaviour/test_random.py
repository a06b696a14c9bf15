"""Random numbers: seeding, generator state, ranges, moments; no exact values."""

import copy

import numpy as np
import pytest

import pullback as pb

MAKERS = [
    pytest.param(lambda **k: pb.rand(7, 3, **k), id="rand"),
    pytest.param(lambda **k: pb.randn(7, 3, **k), id="randn"),
    pytest.param(lambda **k: pb.randint(0, 10**6, (7, 3), **k), id="randint"),
    pytest.param(lambda **k: pb.randn(5, dtype=pb.float64, **k), id="randn-double"),
    pytest.param(lambda **k: pb.rand(4, dtype=pb.complex64, **k), id="rand-complex"),
    pytest.param(lambda **k: pb.randperm(20, **k), id="randperm"),
]


@pytest.mark.parametrize("make", MAKERS)
def test_seed_repeats_and_differs(make):
    pb.manual_seed(5)
    first, second = make().tolist(), make().tolist()
    pb.manual_seed(5)
    assert make().tolist() == first
    assert make().tolist() == second
    assert first != second
    pb.manual_seed(6)
    assert make().tolist() != first


@pytest.mark.parametrize("make", MAKERS)
def test_state_of_the_default_generator(make):
    make()
    state = pb.get_rng_state()
    assert state.dtype == pb.uint8
    first, second = make().tolist(), make().tolist()
    pb.set_rng_state(state)
    assert [make().tolist(), make().tolist()] == [first, second]


@pytest.mark.parametrize("make", MAKERS)
def test_own_generator_is_independent(make):
    generator = pb.Generator()
    assert generator.manual_seed(3) is generator
    pb.manual_seed(1)
    plain = make().tolist()
    pb.manual_seed(1)
    own = make(generator=generator).tolist()
    assert make().tolist() == plain
    assert make(generator=pb.Generator().manual_seed(3)).tolist() == own
    state = generator.get_state()
    following = make(generator=generator).tolist()
    generator.set_state(state)
    assert make(generator=generator).tolist() == following


def test_manual_seed_returns_the_generator_and_is_remembered():
    generator = pb.manual_seed(11)
    assert isinstance(generator, pb.Generator)
    assert pb.initial_seed() == generator.initial_seed() == 11
    assert pb.Generator().manual_seed(12).initial_seed() == 12


def test_fresh_seed_differs():
    first = pb.seed()
    a = pb.rand(4).tolist()
    second = pb.seed()
    assert first != second
    assert pb.rand(4).tolist() != a


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63, 2**64 - 1, -1, -(2**63)])
def test_any_64_bit_seed_is_accepted(seed):
    pb.manual_seed(seed)
    first = pb.rand(4).tolist()
    pb.manual_seed(seed)
    assert pb.rand(4).tolist() == first


@pytest.mark.parametrize("seed", ["a", None, 2**64, -(2**63) - 1, [1]])
def test_other_seeds_are_refused(seed):
    with pytest.raises((TypeError, ValueError, RuntimeError, OverflowError)):
        pb.manual_seed(seed)


@pytest.mark.parametrize("state", [3, None, b"abc"])
def test_wrong_state_is_refused(state):
    with pytest.raises(TypeError):
        pb.set_rng_state(state)
    with pytest.raises(TypeError):
        pb.Generator().set_state(state)


@pytest.mark.parametrize("state", [lambda: pb.zeros(3, dtype=pb.uint8), lambda: pb.zeros(3)])
def test_state_of_wrong_form_is_refused(state):
    with pytest.raises((RuntimeError, TypeError)):
        pb.set_rng_state(state())


def test_wrong_generator_is_refused():
    with pytest.raises(TypeError):
        pb.rand(2, generator=3)


def test_generator_can_be_copied():
    generator = pb.Generator().manual_seed(3)
    pb.rand(5, generator=generator)
    twin = copy.deepcopy(generator)
    assert pb.rand(5, generator=twin).tolist() == pb.rand(5, generator=generator).tolist()


# Distributions; the sample is large enough that a correct generator fails once in a million


@pytest.mark.parametrize("dtype", [pb.float16, pb.bfloat16, pb.float32, pb.float64], ids=str)
def test_rand_is_uniform(dtype):
    values = pb.rand(50_000, dtype=dtype).to(pb.float64).numpy()
    assert values.min() >= 0
    assert values.max() < 1
    assert abs(values.mean() - 0.5) < 0.008
    assert abs(values.var() - 1 / 12) < 0.003
    counts, _ = np.histogram(values, bins=8, range=(0, 1))
    assert abs(counts / 50_000 - 1 / 8).max() < 0.01


@pytest.mark.parametrize("dtype", [pb.float16, pb.float32, pb.float64], ids=str)
def test_randn_is_normal(dtype):
    values = pb.randn(50_000, dtype=dtype).to(pb.float64).numpy()
    assert abs(values.mean()) < 0.025
    assert abs(values.var() - 1) < 0.035
    assert abs((values**3).mean()) < 0.06
    assert abs((values**4).mean() - 3) < 0.25
    assert abs((np.abs(values) < 1).mean() - 0.6827) < 0.012
    assert np.isfinite(values).all()


def test_neighbours_are_not_correlated():
    for make in (pb.rand, pb.randn):
        values = make(50_000, dtype=pb.float64).numpy()
        for lag in (1, 2, 3, 4):
            assert abs(np.corrcoef(values[:-lag], values[lag:])[0, 1]) < 0.025


def test_complex_normal_has_unit_variance():
    values = pb.randn(50_000, dtype=pb.complex128).numpy()
    assert abs(np.mean(np.abs(values) ** 2) - 1) < 0.03
    assert abs(values.real.var() - 0.5) < 0.02


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 6, pb.int64),
        (-3, 3, pb.int8),
        (250, 256, pb.uint8),
        (0, 2, pb.bool),
        (0, 6, pb.float32),
        (2**40, 2**40 + 6, pb.int64),
    ],
)
def test_randint_covers_its_range_evenly(low, high, dtype):
    x = pb.randint(low, high, (12_000,), dtype=dtype)
    assert x.dtype == dtype
    values, counts = np.unique(np.array(x.tolist()), return_counts=True)
    assert [int(v) for v in values] == list(range(low, high))
    assert abs(counts / 12_000 - 1 / (high - low)).max() < 0.025


def test_randint_spellings():
    assert pb.randint(5, (2, 3)).shape == pb.randint(0, 5, (2, 3)).shape == (2, 3)
    assert pb.randint(5, (3,)).dtype == pb.int64
    assert pb.randint(high=5, size=(3,)).shape == (3,)
    assert pb.randint(pb.tensor(5), (np.int64(3),)).shape == (3,)
    assert pb.randint(3, 4, (5,)).tolist() == [3] * 5
    assert pb.randint(2**62, (100,)).to(pb.float64).mean().item() > 2**60


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: pb.randint(5, 5, (3,)), RuntimeError),
        (lambda: pb.randint(5, 2, (3,)), RuntimeError),
        (lambda: pb.randint(0, 300, (3,), dtype=pb.uint8), RuntimeError),
        (lambda: pb.randint(0, 5, 2), TypeError),
        (lambda: pb.randint(3), TypeError),
        (lambda: pb.randint("a", (3,)), TypeError),
        (lambda: pb.randint(0, 2.5, (3,)), TypeError),
        (lambda: pb.randint(-1, 3, (3,), dtype=pb.uint8), RuntimeError),
        (lambda: pb.randint(0, 3, (3,), dtype=pb.bool), RuntimeError),
        (lambda: pb.randint(0, 2**20, (3,), dtype=pb.float16), RuntimeError),
        (lambda: pb.randint(0, 3, (3,), dtype=pb.complex64), RuntimeError),
        (lambda: pb.randint(0, 2**64, (3,)), (ValueError, OverflowError, RuntimeError)),
        (lambda: pb.randint_like(3, 5), TypeError),
        (lambda: pb.randint_like(pb.ones(2)), TypeError),
        (lambda: pb.zeros(2).uniform_(3, 1), RuntimeError),
        (lambda: pb.zeros(2).normal_(0, -1), RuntimeError),
        (lambda: pb.zeros(2, dtype=pb.int64).normal_(), (NotImplementedError, RuntimeError)),
        (lambda: pb.randn(2, dtype=pb.int64), (NotImplementedError, RuntimeError)),
        (lambda: pb.rand(2, dtype=pb.int64), (NotImplementedError, RuntimeError)),
        (lambda: pb.rand_like(pb.tensor([1])), (NotImplementedError, RuntimeError)),
        (lambda: pb.rand_like(3), TypeError),
    ],
)
def test_refused_calls(call, error):
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("bounds", [{"high": 2}, {"low": 0, "high": 2}])
def test_randint_like_takes_bounds_by_name(bounds):
    x = pb.randint_like(pb.zeros(100), **bounds)
    assert set(x.tolist()) == {0, 1}


def test_like_variants_keep_shape_and_dtype():
    template = pb.zeros(3, 4, dtype=pb.float64)
    for make in (pb.rand_like, pb.randn_like, lambda t: pb.randint_like(t, 0, 5)):
        x = make(template)
        assert (x.shape, x.dtype) == (template.shape, template.dtype)
        assert x.tolist() != template.tolist()


def test_out_receives_numbers_of_its_dtype():
    for make in (pb.rand, pb.randn):
        out = pb.zeros(3, dtype=pb.float64)
        assert make(3, out=out) is out
        assert out.tolist() != [0.0, 0.0, 0.0]
        with pytest.raises(RuntimeError, match="out"):
            make(3, out=out, dtype=pb.float32)


def test_in_place_distributions():
    x = pb.zeros(1000, dtype=pb.float64)
    assert x.uniform_(2, to=4) is x
    assert 2 <= x.numpy().min() < 2.1 < 3.9 < x.numpy().max() < 4
    assert abs(x.normal_(5, 0.01).numpy().mean() - 5) < 0.01


def test_empty_requests_are_allowed():
    assert pb.rand(0, 3).shape == (0, 3)
    assert pb.randn(0).shape == pb.randint(5, (0,)).shape == (0,)


@pytest.mark.parametrize(
    ("dtype", "bounds", "message"),
    [
        (pb.float32, (-1e308, 1e308), "from is out of bounds for pullback.float32"),
        (pb.float32, (0.0, float("nan")), "to is out of bounds"),
        (pb.float16, (0.0, 70000.0), "to is out of bounds"),
        (pb.float64, (-1e308, 1e308), "which result in to-from to exceed the limit"),
        (pb.complex64, (-3e38, 3e38), "which result in to-from to exceed the limit"),
        (pb.float32, (2.0, 1.0), "from=2.0 > to=1.0"),
    ],
)
def test_uniform_bounds_beyond_the_dtype(dtype, bounds, message):
    with pytest.raises(RuntimeError, match=message):
        pb.empty(3, dtype=dtype).uniform_(*bounds)


def test_interrupts_leave_a_generator_usable(interrupted):
    generator = pb.Generator()
    interrupted(lambda: generator.take(1), 1000, 0.0001, 1e-7)
    position = generator.get_offset()
    assert generator.take(3)[1] == position
    assert generator.get_offset() == position + 3


def test_seeds_are_integers():
    assert pb.manual_seed(2.5).initial_seed() == pb.manual_seed("2").initial_seed() == 2
    with pytest.raises(ValueError, match="invalid literal for int"):
        pb.manual_seed("a")
    with pytest.raises(RuntimeError, match="manual_seed expected a long, but got str"):
        pb.Generator().manual_seed("2")
