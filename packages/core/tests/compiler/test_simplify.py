"""Simpler programs, with the same bits: constants, equal kernels, copies that change nothing."""

import pytest

import pullback as pb
from pullback.nn import functional as F

compiled_kernels = pytest.mark.skipif(
    pb.get_default_device().type == "ref", reason="counts kernels, not those of decompositions"
)


def kernels_of(function, *args):
    """Return the kernels of a program by name, after its results were compared with eager ones."""
    compiled = pb.compile(function, fullgraph=True)
    for _ in range(3):
        given = [x.clone() for x in args]
        mine = [x.clone() for x in args]
        found, expected = compiled(*mine), function(*given)
        assert found.tolist() == expected.tolist()
        assert [x.tolist() for x in mine] == [x.tolist() for x in given]
        args = [x * 0.5 for x in args]
    (entry,) = compiled.entries
    assert entry.runs == 2
    return [launch.primitive for launch in entry.program.launches]


def test_kernel_of_the_same_operands_runs_once():
    assert kernels_of(lambda x: x.exp() * x.exp(), pb.randn(5)).count("exp") == 1


def test_kernel_after_a_write_to_its_operand_runs_again():
    def function(x):
        first = x.exp()
        x.add_(1)
        return first * x.exp()

    assert kernels_of(function, pb.randn(5)).count("exp") == 2


def test_other_parameters_and_numbers_are_other_kernels():
    def function(x):
        return (
            (x * 2.0)
            + (x * 3.0)
            + (x * 2.0)
            + x.softmax(0)
            + x.softmax(1)
            + x.clamp(-1, 1)
            + x.clamp(-2, 1)
        )

    names = kernels_of(function, pb.randn(4, 4))
    assert names.count("mul") == 2
    if pb.get_default_device().type != "ref":
        assert names.count("softmax") == 2


def test_random_kernels_are_never_the_same():
    compiled = pb.compile(lambda x: (pb.rand_like(x), pb.rand_like(x)))
    x = pb.ones(5)
    for _ in range(3):
        first, second = compiled(x)
        assert first.tolist() != second.tolist()


def test_results_of_the_same_kernel_have_memory_of_their_own():
    compiled = pb.compile(lambda x: (x.exp(), x.exp()))
    x = pb.randn(3)
    for _ in range(3):
        first, second = compiled(x)
        first.zero_()
        assert second.tolist() == x.exp().tolist()


def test_long_result_is_not_kept_for_an_equal_kernel():
    def function(x):
        y = x.exp().sum()
        for _ in range(3):
            x = (x * y).cos()
        return x.sum() + y

    def twice(x):
        return function(x) + (x.exp() * 2).sum()

    compiled = pb.compile(twice)
    x = pb.randn(200, 300)
    for _ in range(2):
        assert compiled(x).tolist() == twice(x).tolist()
    names = [launch.primitive for launch in compiled.entries[0].program.launches]
    assert names.count("exp") == 2


@compiled_kernels
def test_what_depends_on_constants_alone_is_computed_once():
    def function(x):
        return x * pb.full((3,), 2.0).exp() + pb.arange(3).cos() + pb.tensor([1.0, 2, 3]).neg()

    names = kernels_of(function, pb.randn(3))
    assert not {"exp", "neg", "copy"} & set(names)


def test_constants_are_not_results():
    compiled = pb.compile(lambda x: (pb.full((3,), 2.0).exp(), x * 2))
    x = pb.ones(3)
    expected = compiled(x)[0].tolist()
    for _ in range(3):
        found = compiled(x)[0]
        assert found.tolist() == expected
        found.zero_()


def test_memory_that_is_written_later_is_no_constant():
    def function(x):
        total = pb.zeros(3)
        for _ in range(2):
            total += x
        return total * 2

    compiled = pb.compile(function)
    x = pb.randn(3)
    for _ in range(3):
        assert compiled(x).tolist() == function(x).tolist()


@compiled_kernels
def test_copy_of_what_nobody_changes_is_not_made():
    assert kernels_of(lambda x: x.clone() * 2, pb.randn(3, 4)) == ["mul"]
    assert kernels_of(lambda x: (x * 3).clone()[1:] * 2, pb.randn(3, 4)) == ["mul", "mul"]


@compiled_kernels
def test_product_with_a_constant_of_ones_is_its_other_operand():
    def function(x, factor=1.0):
        ones = pb.tensor(factor, dtype=x.dtype).expand(x.shape)
        return (x.exp() * ones).sin() - ones * x.abs()

    x = pb.tensor([-0.0, float("nan"), float("inf"), -2.5])
    assert sorted(kernels_of(function, pb.randn(3, 4))) == ["abs", "exp", "sin", "sub"]
    assert "mul" in kernels_of(lambda x: function(x, -1.0), pb.randn(3, 4))
    assert "mul" in kernels_of(lambda x: pb.tensor([[1.0], [2.0]]) * x.exp() + x, pb.randn(2, 3))
    compiled = pb.compile(lambda x: (-x * pb.tensor(1.0)).abs())
    for _ in range(3):
        assert compiled(x).numpy().tobytes() == (-x).abs().numpy().tobytes()


def test_product_with_one_of_what_is_changed_later_is_made():
    def function(x):
        y = x * pb.tensor(1.0)
        x.add_(1)
        return y * x

    assert kernels_of(function, pb.randn(3, 4)).count("mul") == 2


def test_copy_of_what_is_changed_later_is_made():
    def function(x):
        y = x.clone()
        x.add_(1)
        return y * x

    assert "copy" in kernels_of(function, pb.randn(3, 4))


def test_copy_that_is_changed_is_made():
    assert "copy" in kernels_of(lambda x: x.clone().add_(1) * x, pb.randn(3, 4))


def test_copy_is_made_where_arguments_may_share_memory():
    def function(x, y):
        kept = x.clone()
        y.add_(1)
        return kept * 2

    compiled = pb.compile(function)
    base = pb.arange(6.0)
    compiled(base[:3].clone(), base[3:].clone())
    for _ in range(2):
        x, y = base[:3], base[1:4]
        expected = x * 2
        assert compiled(x, y).tolist() == expected.tolist()


@compiled_kernels
def test_equal_decisions_are_one():
    def function(x, y):
        return F.binary_cross_entropy(x, y) + F.binary_cross_entropy(x, y, reduction="sum")

    compiled = pb.compile(function)
    x, y = pb.full((4,), 0.25), pb.ones(4)
    for _ in range(2):
        assert compiled(x, y).item() == function(x, y).item()
    launches = compiled.entries[0].program.launches
    assert sum(launch.expected is not None for launch in launches) in (1, 2)
    once = pb.compile(F.binary_cross_entropy)
    once(x, y)
    few = once.entries[0].program.launches
    assert [one.primitive for one in launches].count("decide") == [
        one.primitive for one in few
    ].count("decide")
    with pytest.raises(RuntimeError):
        compiled(x * 8, y)


@compiled_kernels
def test_results_take_the_place_of_operands_that_nobody_needs():
    def function(x):
        for _ in range(5):
            x = (x + 1).exp().neg().tanh()
        return x * 2

    compiled = pb.compile(function)
    x = pb.randn(1000)
    for _ in range(2):
        assert compiled(x).tolist() == function(x).tolist()
    assert compiled.entries[0].program.arena == 4032  # one array


@compiled_kernels
def test_places_of_operands_with_another_layout_are_left_alone():
    def function(x):
        y = x + 1
        z = y.t() * 2
        return z.exp() + (x * 3).t()[:, ::1].contiguous()

    compiled = pb.compile(function)
    for _ in range(3):
        x = pb.randn(30, 30)
        assert compiled(x).tolist() == function(x).tolist()
