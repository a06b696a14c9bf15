"""Groups of kernels that run tile by tile: the same bits, less memory, errors as they are."""

import random

import pytest

import pullback as pb
from pullback.nn import functional as F

compiled_kernels = pytest.mark.skipif(
    pb.get_default_device().type == "ref", reason="kernels in Python run one by one"
)
SHAPES = [(120, 96), (40, 6, 64), (11_111,), (9, 7), (30, 64)]  # in groups, and too small for them
UNARY = [pb.tanh, pb.exp, pb.neg, pb.sigmoid, pb.abs, pb.sin, lambda x: x * 0.5, lambda x: 1 - x]
BINARY = [pb.add, pb.mul, pb.maximum, pb.atan2, lambda x, y: pb.where(x > y, x, y)]


def groups_of(compiled):
    return [group for entry in compiled.entries for group in entry.program.groups]


def by_rows(x, name):
    """Return something of the size of x, made by a kernel that is not elementwise."""
    return {
        "softmax": lambda: x.softmax(-1),
        "log_softmax": lambda: x.log_softmax(-1),
        "mean": lambda: x - x.mean(-1, True),
        "amax": lambda: (x - x.amax(-1, True)).exp(),
        "sum": lambda: x * x.sum(-1, keepdim=True).tanh(),
        "first": lambda: x + x.sum(0, keepdim=True),
        "norm": lambda: F.layer_norm(x, x.shape[-1:]),
        "rand": lambda: x * pb.rand_like(x),
        "randn": lambda: x + pb.randn_like(x),
        "dropout": lambda: F.dropout(x, 0.25),
        "cumsum": lambda: x.cumsum(-1),
        "argmax": lambda: x * x.argmax(-1, True),
    }[name]()


ROWS = "softmax log_softmax mean amax sum first norm rand randn dropout cumsum argmax".split()


def program_of(seed, names=()):
    """Return a function of three tensors and a row: elementwise ops, also in place, and others."""

    def function(x, y, z, row):
        draw = random.Random(seed)
        values = [x, y, z, row, x[..., :1], y.transpose(0, -1).transpose(0, -1)]
        for _ in range(12):
            kind = draw.random()
            one, other = draw.choice(values), draw.choice(values)
            if names and draw.random() < 0.3:
                values.append(by_rows(one * 1, draw.choice(names)))
            elif kind < 0.4:
                values.append(draw.choice(UNARY)(one))
            elif kind < 0.7:
                values.append(draw.choice(BINARY)(one, other))
            elif kind < 0.8:
                values.append(one.double().float())
            elif kind < 0.9:
                values.append((one * 2 + x).add_(other, alpha=0.25))
            else:
                z.mul_(0.5).sub_(x)
        return values[-1], values[-2], sum(v.sum() for v in values[6:9])

    return function


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("names", [(), ROWS], ids=["elementwise", "rows"])
def test_random_programs_have_the_bits_of_eager_ones(shape, seed, names):
    function = program_of(seed, names)
    compiled = pb.compile(function)
    for number in range(3):
        given = [pb.randn(shape) for _ in range(3)] + [pb.randn(shape[-1])]
        mine = [x.clone() for x in given]
        pb.manual_seed(number)
        results = compiled(*mine)
        pb.manual_seed(number)
        for found, expected in zip(results, function(*given)):
            assert found.numpy().tobytes() == expected.numpy().tobytes()
        assert all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in zip(mine, given))
    assert sum(entry.runs for entry in compiled.entries) == 2


@compiled_kernels
@pytest.mark.parametrize("threads", [1, 2])
def test_norm_activation_and_dropout_are_one_group(threads):
    def function(x, residual, weight, bias):
        y = F.layer_norm(x + residual, (96,), weight, bias)
        return F.dropout(F.gelu(y), 0.1)

    compiled = pb.compile(function)
    before = pb.get_num_threads()
    pb.set_num_threads(threads)
    try:
        for number in range(3):
            given = [pb.randn(130, 96), pb.randn(130, 96), pb.randn(96), pb.randn(96)]
            pb.manual_seed(number)
            found = compiled(*given)
            pb.manual_seed(number)
            assert found.tolist() == function(*given).tolist()
    finally:
        pb.set_num_threads(before)
    (group,) = groups_of(compiled)
    (entry,) = compiled.entries
    assert (group.rows, group.count) == (130, len(entry.program.launches))
    assert entry.program.arena == 0


@compiled_kernels
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("groups", [1, 3])
def test_norm_without_a_weight_and_its_gradient_are_one_group(threads, groups):
    def function(x, grad):
        x = x.detach().requires_grad_()
        y = F.group_norm(x, groups) if groups > 1 else F.layer_norm(x, (96, 2))
        return pb.autograd.grad(y.sin(), x, grad)[0] * 2

    compiled = pb.compile(function)
    before = pb.get_num_threads()
    pb.set_num_threads(threads)
    try:
        for _ in range(3):
            given = pb.randn(130, 96, 2), pb.randn(130, 96, 2)
            assert compiled(*given).tolist() == function(*given).tolist()
    finally:
        pb.set_num_threads(before)
    found = groups_of(compiled)
    (entry,) = compiled.entries
    names = [one.primitive for one in entry.program.launches]
    last = found[-1].first + found[-1].count
    assert "normalize_backward_input" in names[found[-1].first : last]
    if groups == 1:
        assert [(one.rows, one.count) for one in found] == [(130, len(names))]


@compiled_kernels
@pytest.mark.parametrize("dtype", [pb.float16, pb.bfloat16, pb.float32, pb.float64], ids=str)
@pytest.mark.parametrize("shape", [(9_001,), (137, 61), (50, 3, 64)], ids=str)
def test_random_numbers_of_groups_are_those_of_eager_calls(dtype, shape):
    def function(x):
        return pb.rand_like(x) * x + pb.randn_like(x)

    compiled = pb.compile(function)
    x = pb.ones(shape, dtype=dtype)
    for number in range(3):
        pb.manual_seed(number)
        found = compiled(x), pb.rand(1)
        pb.manual_seed(number)
        expected = function(x), pb.rand(1)
        assert [one.tolist() for one in found] == [one.tolist() for one in expected]
    assert sum(group.count for group in groups_of(compiled)) >= 2


@compiled_kernels
def test_what_every_row_reads_is_not_written_in_its_group():
    def function(x, weight):
        weight = weight * 2 + 1
        return F.layer_norm(x, (9000,), weight) * weight

    compiled = pb.compile(function)
    for _ in range(3):
        x, weight = pb.randn(3, 9000), pb.randn(9000)
        assert compiled(x, weight).tolist() == function(x, weight).tolist()


@compiled_kernels
def test_kernels_that_share_nothing_are_in_no_group():
    compiled = pb.compile(lambda x, y: (x.sum(1), y.sum(1)))
    compiled(pb.ones(100, 100), pb.ones(100, 100))
    assert not groups_of(compiled)


@compiled_kernels
def test_chain_is_one_group_whose_temporaries_have_no_memory():
    compiled = pb.compile(lambda x, y: pb.tanh(x) * y + pb.exp(-x * x))
    x, y = pb.randn(200, 100), pb.randn(200, 100)
    compiled(x, y)
    (entry,) = compiled.entries
    (group,) = groups_of(compiled)
    assert (group.first, group.count, len(group.inner)) == (0, 6, 5)
    assert entry.program.arena == 0 and entry.program.temporaries == 5 * 80_000


@compiled_kernels
def test_row_is_added_in_a_group():
    compiled = pb.compile(lambda x, row: ((x + row).tanh() * x).relu())
    x, row = pb.randn(200, 100), pb.randn(100)
    compiled(x, row)
    (group,) = groups_of(compiled)
    assert group.rows == 200 and group.count == 4


def test_result_that_others_read_in_another_order_ends_a_group():
    def function(x):
        y = x.exp()
        return y.neg() + y.t().neg()

    compiled = pb.compile(function)
    for _ in range(2):
        x = pb.randn(128, 128)
        assert compiled(x).tolist() == function(x).tolist()


@compiled_kernels
def test_small_arrays_are_in_no_group():
    compiled = pb.compile(lambda x: x.exp().neg().tanh())
    compiled(pb.ones(100))
    assert not groups_of(compiled)
    assert "fewer than 8192 elements" in str(compiled.explain())


def test_kernel_that_fails_in_a_group_raises_its_error():
    compiled = pb.compile(lambda x, y: (x + 1) // y + 1)
    x = pb.ones(200, 100, dtype=pb.int64)
    compiled(x, x)
    zeros = x.clone()
    zeros[150, 7] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x, zeros)
    assert compiled(x, x).unique().tolist() == [3]


@compiled_kernels
def test_gradients_run_in_groups():
    def function(x, y):
        return (pb.tanh(x) * y + x).sigmoid()

    compiled = pb.compile(function)
    for _ in range(3):
        x, y = (pb.randn(200, 100, requires_grad=True) for _ in range(2))
        seed = pb.randn(200, 100)
        found = pb.autograd.grad(compiled(x, y), (x, y), seed)
        expected = pb.autograd.grad(function(x, y), (x, y), seed)
        assert all(a.tolist() == b.tolist() for a, b in zip(found, expected))
    (entry,) = compiled.entries
    assert entry.program.groups and entry.backward.program.groups


@compiled_kernels
def test_drawing_and_explanation_name_groups():
    compiled = pb.compile(lambda x: x.exp().neg())
    compiled(pb.ones(10_000))
    assert "group: 2 kernels on 10000 rows" in str(compiled.explain())
    assert "subgraph cluster_p0_0" in compiled.to_dot()
