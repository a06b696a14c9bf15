"""``compile(dynamic=True)``: sizes between those of recorded calls."""

import copy
import fractions
import math
import operator
import random
import threading
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pullback._c.dispatch.call import swap_tracer

import pullback as pb
import pullback.nn.functional as F
from pullback import nn

REFERENCE = pb.get_default_device().type == "ref"  # it merges dims, and checks values in Python
SIZES = [4, 40, 21, *range(5, 40)]


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(pb.uint8).tolist()


def same(one, other):
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and one.stride() == other.stride()
        and bits(one) == bits(other)
    )


def leaf(*shape):
    return pb.randn(*shape, requires_grad=True)


def grads(result, leaves, seed):
    found = pb.autograd.grad(result, leaves, seed, allow_unused=True)
    return [one for one in found if one is not None]


def check(function, make, sizes=SIZES, parameters=()):
    """Compare a compiled function with itself, values and gradients; return the compiled one."""
    compiled = pb.compile(function, dynamic=True, fullgraph=True, recompile_limit=1000)
    for size in sizes:
        given_ = make(size)
        leaves = [one for one in (*given_, *parameters) if one.requires_grad]
        expected, found = function(*given_), compiled(*given_)
        assert same(found, expected), size
        if leaves:
            seed = pb.randn(expected.shape).as_strided(expected.shape, expected.stride())
            seed = seed if seed.stride() == expected.stride() else seed.contiguous()
            for one, other in zip(grads(found, leaves, seed), grads(expected, leaves, seed)):
                assert same(one, other), size
    return compiled


def recorded(compiled):
    return len(compiled.entries) - len(compiled._between)


LINEAR = nn.Linear(3, 5)
MLP = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
CONVOLUTIONS = nn.Sequential(
    *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(64, 3)),
)
ATTENTION = nn.MultiheadAttention(8, 2, batch_first=True)
ENCODER = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
LSTM = nn.LSTM(4, 6, batch_first=True)
GRU = nn.GRU(4, 6)
EMBEDDING = nn.Embedding(11, 4)

# function, sizes of its argument, parameters
SYMBOLIC = {
    "elementwise": (lambda x: (x * 2 + 1).tanh(), ("n", 3), ()),
    "rows and columns": (lambda x: x / x.sum(0) - x.mean(1, keepdim=True), ("n", 3), ()),
    "mean": (lambda x: (x * x).mean(), ("n", 3), ()),
    "sum by the size": (lambda x: x.sum() / x.shape[0], ("n", 3), ()),
    "variance": (lambda x: x.var(0), ("n", 3), ()),
    "standardized": (lambda x: (x - x.mean(0)) / x.std(0), ("n", 3), ()),
    "norm": (lambda x: x / x.norm(dim=0), ("n", 3), ()),
    "log_softmax": (lambda x: F.log_softmax(x, 0).sum(-1), ("n", 3), ()),
    "view": (lambda x: x.view(x.size(0), -1) * 2, ("n", 2, 3), ()),
    "flatten": (lambda x: x.flatten(), ("n", 2, 3), ()),
    "unpacked shape": (
        lambda x: x.view(*[x.shape[0], x.shape[1] * x.shape[2]]).relu(),
        ("n", 2, 3),
        (),
    ),
    "more rows": (lambda x: pb.cat([x, pb.zeros(x.shape[0] + 2, 3)]), ("n", 3), ()),
    "fewer rows": (lambda x: x[1 : x.shape[0] - 1] * 2, ("n", 3), ()),
    "arange": (lambda x: x * pb.arange(x.shape[0]).unsqueeze(1), ("n", 3), ()),
    "reversed": (lambda x: x[pb.arange(x.shape[0] - 1, -1, -1)], ("n", 3), ()),
    "products": (lambda x: (x @ x.mT).softmax(-1), ("n", 3), ()),
    "square": (lambda x: (x @ x.mT).flatten().exp() * 2, ("n", 3), ()),
    "causal": (lambda x: (x @ x.mT).tril().softmax(-1) @ x, (2, "n", 3), ()),
    "scaled attention": (
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
        (2, 2, "n", 4),
        (),
    ),
    "einsum": (lambda x: pb.einsum("bi,bj->ij", x, x), ("n", 3), ()),
    "cumsum": (lambda x: x.cumsum(0), ("n", 3), ()),
    "sorted": (lambda x: x.sort(0)[0], ("n", 3), ()),
    "topk": (lambda x: x.topk(2, 0)[0], ("n", 3), ()),
    "diff": (lambda x: x.diff(dim=0), ("n", 3), ()),
    "unfold": (lambda x: x.unfold(0, 2, 1).sum(-1), ("n", 3), ()),
    "group_norm": (lambda x: F.group_norm(x, 2), ("n", 4, 3), ()),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2.0), ("n", 2, 3, 3), ()),
    "pooled": (lambda x: F.adaptive_avg_pool2d(x, 2), ("n", 2, 5, 5), ()),
    "index_add": (
        lambda x: pb.zeros(5, 3).index_add(0, pb.arange(x.shape[0]) % 5, x),
        ("n", 3),
        (),
    ),
    "solve": (lambda x: pb.linalg.solve(x @ x.mT + pb.eye(3), x), ("n", 3, 3), ()),
    "linear": (lambda x: LINEAR(x).relu(), ("n", 3), LINEAR.parameters()),
    "mlp": (lambda x: MLP(x), ("n", 8), MLP.parameters()),
    "attention, batch": (
        lambda x: ATTENTION(x, x, x, need_weights=False)[0],
        ("n", 5, 8),
        ATTENTION.parameters(),
    ),
    "encoder, batch": (lambda x: ENCODER(x), ("n", 5, 8), ENCODER.parameters()),
    "encoder, length": (lambda x: ENCODER(x), (3, "n", 8), ENCODER.parameters()),
    "lstm, batch": (lambda x: LSTM(x)[0], ("n", 5, 4), LSTM.parameters()),
    "gru, batch": (lambda x: GRU(x)[0], (5, "n", 4), GRU.parameters()),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_sizes_between_recorded_ones_need_no_recording(name):
    function, shape, parameters = SYMBOLIC[name]
    pb.manual_seed(0)
    compiled = check(
        function,
        lambda n: [leaf(*[n if one == "n" else one for one in shape])],
        parameters=list(parameters),
    )
    assert compiled._between
    if not REFERENCE:
        assert recorded(compiled) == 2
        assert [family.pair.sizes for family in compiled.families] == [(4, 40)]


def written_half(x):
    y = x.clone()
    y.narrow(0, (x.shape[0] + 1) // 2, 1).mul_(3.0)
    return y


# Sizes that decide in the function's own code: what may be interpolated has the same decisions.
DECIDING = {
    "branch": lambda x: x * 2 if x.shape[0] > 20 else x * 3,
    "one size": lambda x: x * 2 if x.shape[0] == 10 else x * 3,
    "one shape": lambda x: x * 2 if x.shape == (10, 3) else x * 3,
    "a member": lambda x: x * 2 if x.shape[0] in (10, 33) else x * 3,
    "parity": lambda x: x * 2 if x.shape[0] % 2 else x * 3,
    "a bit": lambda x: x * 2 if x.shape[0] & 4 else x * 3,
    "reciprocal": lambda x: x.sum() * (1.0 / x.shape[0]),
    "half": lambda x: x[: x.shape[0] // 2] * 2,
    "padded": lambda x: F.pad(x, (0, 0, 0, -x.shape[0] % 8)),
    "rounded up": lambda x: pb.cat([x, pb.zeros(-(-x.shape[0] // 8) * 8 - x.shape[0], 3)]),
    "power": lambda x: x * (x.shape[0] ** 2),
    "shift": lambda x: x * (x.shape[0] >> 1),
    "table": lambda x: x * {10: 5.0, 11: 6.0}.get(x.shape[0], 1.0),
    "text": lambda x: x * (2 if str(x.shape[0]).endswith("0") else 3),
    "float": lambda x: x * (2 if float(x.shape[0]) == 10.0 else 3),
    "int": lambda x: x * (2 if int(x.shape[0]) == 10 else 3),
    "round": lambda x: x * round(x.shape[0], -1),
    "len": lambda x: x * (2 if len(x) == 10 else 3),
    "numel": lambda x: x * 2 if x.numel() == 30 else x * 3,
    "number of a size": lambda x: x * 2 if x.shape.numel() == 30 else x * 3,
    "stride": lambda x: x.mT.contiguous() * (2 if x.mT.contiguous().stride(0) == 10 else 3),
    "offset": lambda x: x * (2 if x[x.shape[0] - 1 :].storage_offset() == 27 else 3),
    "loop": lambda x: sum(x[i] for i in range(x.shape[0])),
    "item of a list": lambda x: x * [1.0, 2.0, 4.0, 5.0][x.shape[0] % 4],
    "divmod": lambda x: x * divmod(x.shape[0], 4)[1],
    "least": lambda x: x[: min(x.shape[0], 20)] * 2,
    "product of two sizes": lambda x: (x @ x[1:].mT).flatten() * 2,
    "chunks": lambda x: pb.cat([one * 2 for one in x.chunk(3)]),
    "strided": lambda x: F.conv1d(x.mT.unsqueeze(0), pb.ones(2, 3, 3), stride=2),
    "transform": lambda x: pb.fft.rfft(x, dim=0).abs(),
    "median": lambda x: x.median(0)[0],
    "distances": lambda x: pb.cdist(x, x).sum(),
    "second half": lambda x: x.chunk(2)[1][0] * 2,
    "first half": lambda x: (x.chunk(2)[0] * 2).flatten(),
    "two halves": lambda x: x.chunk(2)[0][0] + x.chunk(2)[1][0],
    "quarters": lambda x: x.tensor_split(4)[1].exp().flatten(),
    "written half": written_half,
    "patches": lambda x: x.unfold(0, 2, 2).flatten() * 2,
    "shifted": lambda x: pb.fft.fftshift(x, dim=0).flatten()[:3] * 2,
    "rotated": lambda x: pb.rot90(pb.eye(2) * pb.tensor([1.0, 2.0]), x.shape[0]) * x[0, 0],
    "rolled": lambda x: pb.arange(4.0).roll(x.shape[0]) * x[0, 0],
    "exponent": lambda x: x.abs() ** (x.shape[0] - 10),
    "pieces": lambda x: x.split(8)[len(x.split(8)) // 2] * 2,
    "rows": lambda x: x * (2 if len(x.unbind()) % 2 else 3),
    "iterated": lambda x: x * ([i for i, _ in enumerate(x)][-1] % 3),
    "product with a float": lambda x: x * 2 if x.shape[0] * 1.0 == 10 else x * 3,
    "equal to a float": lambda x: x * 2 if operator.eq(10.0, x.shape[0]) else x * 3,
    "half of a float": lambda x: x[: round(0.5 * x.shape[0])] * 2,
    "next power of two": lambda x: F.pad(x, (0, 0, 0, (1 << (x.shape[0] - 1).bit_length()) - 2)),
    "logarithm": lambda x: x * 2 ** math.ceil(math.log2(x.shape[0])),
    "divisor": lambda x: x * math.gcd(x.shape[0], 12),
    "item": lambda x: x * ([5.0, 1.0, 2.0, 3.0] * 20)[x.shape[0]],
    "item of an array": lambda x: x * float(np.arange(60)[x.shape[0]] % 5),
    "range": lambda x: x * range(0, x.shape[0], 2)[-1],
    "array": lambda x: x * (np.zeros(x.shape[0]).size % 5),
    "with an array": lambda x: x * float((np.arange(3) * x.shape[0])[1] % 5),
    "format": lambda x: x * int(format(x.shape[0], "d")[-1]),
    "repeated": lambda x: x * (len("ab" * x.shape[0]) % 3),
    "bytes of the storage": lambda x: x * (x.untyped_storage().nbytes() % 5),
    "copied": lambda x: x * (copy.deepcopy(x.shape[0]) % 5),
    "fraction": lambda x: x * float(fractions.Fraction(x.shape[0], 4)),
    "linspace": lambda x: x * pb.linspace(0, 1, x.shape[0]).unsqueeze(1),
}


# Ends and a third size that have much in common, then all between.
ORDERS = {
    "ends first": SIZES,
    "even": [4, 40, 20, *range(5, 40)],
    "eights": [8, 40, 24, *range(9, 40)],
    "by twelve": [3, 39, 27, *range(4, 39)],
    "powers of two": [5, 33, 17, 9, *range(6, 33)],
    "any": random.Random(3).sample(range(3, 60), 40),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", DECIDING)
def test_decisions_by_sizes_are_those_of_the_function(name, order):
    pb.manual_seed(0)
    check(DECIDING[name], lambda n: [leaf(n, 3)], ORDERS[order])


def test_what_python_does_with_sizes_is_noted():
    compiled = pb.compile(DECIDING["table"], dynamic=True)
    for size in (4, 40, 21, 12):
        compiled(pb.ones(size, 3))
    assert not compiled._between
    assert "what the function does with it (hash)" in str(compiled.explain())


def test_dependences_that_are_not_seen_end_the_search(monkeypatch):
    """As if the function were the package's own code: its sizes are plain ints."""
    monkeypatch.setattr("pullback.compiler.sizes.is_own", lambda depth: True)
    monkeypatch.setattr("pullback.compiler.compiled._MISMATCHES", 1)
    table = [1.0] * 50
    table[21] = 2.0
    compiled = pb.compile(lambda x: x * table[x.shape[0]], dynamic=True)
    for size in (4, 40, 21, 30, 22):
        assert compiled(pb.ones(size)).tolist() == [table[size]] * size
    assert not compiled.dynamic
    assert not compiled._between


def test_code_of_the_package_gets_plain_sizes():
    seen = []

    @pb.compile(dynamic=True)
    def function(x):
        for size in (x.shape[0], x.size(0) + 1, x[: x.shape[0]].shape[0]):
            seen.append(hasattr(size, "size_log"))
        return F.layer_norm(x, x.shape[1:]), x.shape[0]

    value, size = function(pb.ones(4, 3))
    assert seen == [True] * 3
    assert type(size) is int
    assert type(value.shape[0]) is int
    kept = pb.compile(lambda x: x.shape, dynamic=True)(pb.ones(2, 3))
    assert kept == (2, 3)
    assert [type(one) for one in kept] == [int, int]


def test_sizes_are_ints_when_the_call_is_over():
    kept = []
    pb.compile(lambda x: (kept.append(x.shape[0]), x * 2)[1], dynamic=True)(pb.ones(5))
    (size,) = kept
    assert size == 5
    assert isinstance(size, int)
    assert {5: "a"}[size] == "a"
    assert f"{size:3d} {size} {size!r}" == "  5 5 5"
    assert type(copy.deepcopy(size)) is int
    assert (size / 2, size // 2, size % 2, divmod(size, 2), -size) == (2.5, 2, 1, (2, 1), -5)
    assert pb.ones(size).shape == (5,)


def test_sizes_that_are_kept_become_ints():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen, self.shapes = 0, [()]

        def forward(self, x):
            self.seen = x.shape[0]
            self.shapes[0] = x.shape
            return x * 2

    model = Model()
    pb.compile(model, dynamic=True)(pb.ones(5, 3))
    assert type(model.seen) is int
    assert [type(one) for one in model.shapes[0]] == [int, int]


def test_results_that_are_no_tensors():
    """What is compared are objects, not their values: those may have no truth."""
    array, table = np.arange(3), [pb.full((3,), float(i)) for i in range(60)]
    compiled = pb.compile(lambda x: (x * 2, x[:0] * 3, array, table[2]), dynamic=True)
    for size in (4, 40, 20, 12, 30):
        x = pb.ones(size, 3, requires_grad=True)
        doubled, empty, kept, item = compiled(x)
        assert pb.equal(doubled, x * 2)
        assert empty.shape == (0, 3)
        assert kept is array
        assert item is table[2]


def test_threads_that_call_one_function():
    compiled = pb.compile(lambda x: (x * 2).tanh().sum(0), dynamic=True)
    wrong = []

    def call(seed):
        numbers = random.Random(seed)
        for _ in range(150):
            x = pb.ones(numbers.randrange(2, 60), 3)
            if not same(compiled(x), (x * 2).tanh().sum(0)):
                wrong.append(x.shape)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(compiled.entries) <= 32


def test_ops_of_other_threads_are_not_noted():
    stop, started = threading.Event(), threading.Event()

    def split():
        while not stop.is_set():
            pb.ones(6).split(2)
            started.set()

    thread = threading.Thread(target=split)
    thread.start()
    started.wait()
    try:
        compiled = check(lambda x: x.tanh().split(x.shape[0])[0], lambda n: [leaf(n, 3)])
    finally:
        stop.set()
        thread.join()
    samples = [sample for family in compiled.families for sample in family.samples]
    assert [row for sample in samples for row in sample.log.rows if row[1] == (3,)] == []
    before = swap_tracer(None)
    swap_tracer(before)
    pb.ones(2) + 1
    assert getattr(before, "__name__", None) != "take"


def test_forgotten_programs_begin_anew():
    compiled = pb.compile(lambda x: x * 2, dynamic=True)
    compiled.dynamic = False  # as after calls that were not what was expected
    compiled.forget()
    assert compiled.dynamic
    compiled.dynamic = False
    assert copy.copy(compiled).dynamic


def test_no_program_at_all():
    compiled = pb.compile(lambda x: x * 2, dynamic=True, recompile_limit=0)
    with pytest.warns(UserWarning, match="it has 0 programs"):
        assert same(compiled(pb.ones(2)), pb.ones(2) * 2)


def test_results_that_are_sizes():
    compiled = pb.compile(lambda x: (x * 2, x.shape[0]), dynamic=True)
    for size in (4, 40, 21, 12, 30):
        value, found = compiled(pb.ones(size))
        assert (len(value), found) == (size, size)


@pytest.mark.skipif(REFERENCE, reason="it checks values in Python")
def test_training_steps_of_varying_batches():
    """A whole step with its optimizer, the last batch of an epoch smaller."""

    def train(compiled):
        pb.manual_seed(1)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 3))
        optimizer = pb.optim.AdamW(model.parameters(), lr=0.01)
        schedule = pb.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        if compiled:
            step = pb.compile(step, dynamic=True, fullgraph=True)
        losses = []
        for size in (16, 16, 16, 32, 24, 20, 18, 31, 24, 16, 17):
            x, y = pb.randn(size, 6), pb.randint(0, 3, (size,))
            losses.append(step(x, y).item())
            schedule.step()
        return losses, [bits(one) for one in model.parameters()], step

    losses, parameters, step = train(True)
    expected, wanted, _ = train(False)
    assert losses == expected
    assert parameters == wanted
    assert step._between


def test_arguments_that_begin_anywhere():
    data = pb.randn(200, 3)
    compiled = pb.compile(lambda x: x.tanh() @ x.mT, dynamic=True, fullgraph=True)
    for begin, size in ((0, 4), (40, 40), (7, 21), (100, 30), (3, 12), (150, 33)):
        x = data[begin : begin + size]
        assert same(compiled(x), x.tanh() @ x.mT)
    assert recorded(compiled) == 2


def test_strided_arguments_and_views_of_them_as_results():
    data = pb.randn(80, 6)
    compiled = pb.compile(lambda x: (x[:, 1], x[2:].mT, x * 2), dynamic=True, fullgraph=True)
    for size in (4, 40, 21, 30, 12):
        x = data[: 2 * size : 2, ::2]
        for one, other in zip(compiled(x), (x[:, 1], x[2:].mT, x * 2), strict=True):
            assert same(one, other)
        assert compiled(x)[0].data_ptr() == x[:, 1].data_ptr()
    assert recorded(compiled) == 2


def test_arguments_of_two_sizes_that_go_together():
    def attend(query, key):
        return (query @ key.mT).softmax(-1) @ key

    compiled = check(attend, lambda n: [leaf(n, 3), leaf(2 * n + 1, 3)])
    assert recorded(compiled) == 2 or REFERENCE
    # other pairs of sizes are calls of another kind
    for n, m in ((10, 30), (12, 7), (39, 5)):
        x, y = leaf(n, 3), leaf(m, 3)
        assert same(compiled(x, y), attend(x, y))


def test_the_same_memory_twice():
    compiled = pb.compile(lambda x, y: x * 2 + y, dynamic=True, fullgraph=True)
    for size in (4, 40, 21, 30, 12):
        x = pb.randn(size)
        assert same(compiled(x, x), x * 3) or pb.equal(compiled(x, x), x * 2 + x)
        y = pb.randn(size)
        assert same(compiled(x, y), x * 2 + y)


def test_writes_to_arguments():
    compiled = pb.compile(lambda x: x.mul_(2).add_(1), dynamic=True, fullgraph=True)
    for size in (4, 40, 21, 30, 12):
        x = pb.ones(size)
        found = compiled(x)
        assert found is x
        assert x.tolist() == [3.0] * size
        assert x._version == 2


def test_random_numbers_are_those_of_eager_calls():
    def noisy(x):
        return F.dropout(x, 0.4) + pb.randn(x.shape[0], 3) * pb.rand_like(x)

    compiled = pb.compile(noisy, dynamic=True, fullgraph=True)
    for size in SIZES:
        x = pb.randn(size, 3)
        pb.manual_seed(size)
        expected = noisy(x), pb.rand(3)
        pb.manual_seed(size)
        found = compiled(x), pb.rand(3)
        for one, other in zip(found, expected, strict=True):
            assert same(one, other), size
    assert compiled._between


def test_convolutions_with_statistics():
    compiled = check(
        lambda x: CONVOLUTIONS(x),
        lambda n: [leaf(n, 1, 8, 8)],
        parameters=list(CONVOLUTIONS.parameters()),
    )
    assert compiled._between  # another convolution is chosen for large batches


@pytest.mark.skipif(REFERENCE, reason="it checks values in Python")
def test_errors_by_values():
    compiled = pb.compile(lambda x, y: F.cross_entropy(x, y), dynamic=True, fullgraph=True)
    for size in (4, 40, 21, 30, 12):
        x, y = pb.randn(size, 3), pb.randint(0, 3, (size,))
        assert same(compiled(x, y), F.cross_entropy(x, y))
    y[7] = 3
    with pytest.raises(IndexError, match="Target 3 is out of bounds"):
        compiled(x, y)
    y[7] = 2
    assert same(compiled(x, y), F.cross_entropy(x, y))


def test_other_outcomes_of_checks_are_calls_of_another_kind():
    compiled = pb.compile(pb.linalg.cholesky, dynamic=True)
    for size in (4, 20, 11, 8):
        assert pb.equal(compiled(pb.eye(size)), pb.eye(size))
    with pytest.raises(pb.linalg.LinAlgError):
        compiled(-pb.eye(9))
    for size in (7, 13):
        assert pb.equal(compiled(pb.eye(size)), pb.eye(size))
    assert compiled.dynamic


def test_code_that_asks_for_types_gets_ints():
    def function(x):
        return x * (2 if type(x.shape[0]) is int else 3)

    compiled = check(function, lambda n: [leaf(n, 3)])
    assert recorded(compiled) > 2


def test_a_number_from_outside_that_varies_with_the_size():
    options = {"scale": 1.0}
    compiled = pb.compile(lambda x: x * options["scale"], dynamic=True, recompile_limit=99)
    for size in SIZES:
        options["scale"] = float(size)
        assert same(compiled(pb.ones(size)), pb.ones(size) * size)
    for size in SIZES:
        options["scale"] = float(100 - size)
        assert same(compiled(pb.ones(size)), pb.ones(size) * (100 - size))


def test_second_gradients():
    compiled = pb.compile(lambda x: x.pow(3).sum(1), dynamic=True, fullgraph=True)
    for size in (4, 40, 21, 30, 12):
        x = leaf(size, 3)
        (first,) = pb.autograd.grad(compiled(x).sum(), x, create_graph=True)
        (second,) = pb.autograd.grad(first.sum(), x)
        assert pb.allclose(second, 6 * x)


def test_gradients_are_added_to():
    weight = nn.Parameter(pb.ones(3))
    compiled = pb.compile(lambda x: (x * weight).sum().backward(), dynamic=True)
    expected = pb.zeros(3)
    for size in (4, 40, 21, 30, 12, 8):
        x = pb.randn(size, 3)
        compiled(x)
        expected += x.sum(0)
        assert pb.allclose(weight.grad, expected, atol=1e-4)


def test_sizes_of_one_element_are_apart():
    compiled = check(lambda x: x - x.mean(0, keepdim=True), lambda n: [leaf(n, 3)], [1, 8, 4, 2, 6])
    assert [family.pair and family.pair.sizes for family in compiled.families][-1] == (2, 8)


def test_sizes_outside_are_recorded():
    compiled = check(lambda x: x.tanh(), lambda n: [leaf(n, 3)], [10, 20, 15])
    assert compiled.families[0].pair.sizes == (10, 20)
    x = leaf(21, 3)
    compiled(x)  # a little more, for the first time
    assert recorded(compiled) == 2
    assert compiled.families[0].pair.sizes == (10, 20)
    compiled(x)
    assert compiled.families[0].pair.sizes == (10, 21)
    compiled(leaf(200, 3))
    compiled(leaf(3, 3))
    assert compiled.families[0].pair.sizes == (3, 200)
    assert recorded(compiled) == 2


def test_growing_sizes_record_few_calls():
    compiled = check(lambda x: x.tanh(), lambda n: [leaf(n, 3)], range(2, 120))
    assert len(compiled.entries) < 40


def test_many_sizes_keep_few_programs():
    compiled = pb.compile(lambda x: x.tanh(), dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (2, 1000, 500, *range(3, 900, 7)):
            compiled(pb.ones(size))
    assert recorded(compiled) == 2
    assert len(compiled.entries) == 18


def test_without_dynamic_each_size_is_recorded():
    compiled = pb.compile(lambda x: x.tanh())
    for size in (4, 40, 21, 30, 12):
        compiled(pb.ones(size))
    assert recorded(compiled) == 5
    assert not compiled.families


def test_what_the_function_refers_to_may_change():
    options = {"scale": 2.0}
    compiled = pb.compile(lambda x: x * options["scale"], dynamic=True)
    for scale in (2.0, 3.0, 2.0):
        options["scale"] = scale
        for size in (4, 40, 21, 30, 12):
            assert same(compiled(pb.ones(size)), pb.ones(size) * scale)


def test_parameters_may_be_replaced():
    model = nn.Linear(3, 2)
    compiled = pb.compile(lambda x: model(x), dynamic=True)
    for _ in range(3):
        for size in (4, 40, 21, 30, 12):
            x = pb.randn(size, 3)
            assert same(compiled(x), model(x))
        model.weight = nn.Parameter(pb.randn(2, 3))
        model.bias.data = pb.randn(2)


def test_modes_and_other_arguments_are_kinds_of_calls():
    compiled = pb.compile(lambda x, flag=False: x * (2 if flag else 3), dynamic=True)
    for size in (4, 40, 21, 30, 12):
        x = leaf(size)
        assert compiled(x).requires_grad
        with pb.no_grad():
            assert not compiled(x).requires_grad
        assert same(compiled(x, flag=True), x * 2)
        assert same(compiled(x.double()), x.double() * 3)


def test_modules_and_decorators_take_dynamic():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    module = pb.compile(model, dynamic=True)
    for size in (4, 40, 21, 30):
        x = pb.randn(size, 3)
        assert same(module(x), model(x))
    model.compile(dynamic=True)
    copied = copy.deepcopy(pb.compile(lambda x: x, dynamic=True))
    assert copied.dynamic
    assert pb.compile(dynamic=True)(lambda x: x).dynamic
    assert not pb.compile(dynamic=None)(lambda x: x).dynamic


def test_explain_names_the_sizes():
    compiled = pb.compile(lambda x: x * 2, dynamic=True)
    compiled(pb.ones(4))
    assert "not compared yet, 1 recorded" in str(compiled.explain())
    for size in (40, 21):
        compiled(pb.ones(size))
    text = "sizes from 4 to 40 in (float32[4]): made from two recorded programs"
    assert text in str(compiled.explain())
    assert text in compiled.explain()._repr_html_()
    loops = pb.compile(DECIDING["loop"], dynamic=True)
    for size in (4, 12, 8, 6, 10):
        loops(pb.ones(size, 3))
    assert "what the function does with it (index)" in str(loops.explain())


def test_limit_counts_recorded_programs():
    compiled = pb.compile(DECIDING["loop"], dynamic=True, recompile_limit=4)
    for size in range(2, 6):
        compiled(pb.ones(size, 3))
    with pytest.warns(UserWarning, match="it has 4 programs; in this call differs args"):
        compiled(pb.ones(7, 3))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_programs_and_sizes(data):
    """Chains of operations, with sizes in them, over random sizes: as the function itself."""
    steps = {
        "tanh": lambda x: x.tanh(),
        "sum": lambda x: x - x.sum(0, keepdim=True) / x.shape[0],
        "products": lambda x: ((x @ x.mT) @ x / x.shape[0]).tanh(),  # several would overflow
        "rows": lambda x: x[1:] * 2 + x[:-1],
        "twice": lambda x: pb.cat([x, x.relu()]),
        "half": lambda x: x[: (x.shape[0] + 1) // 2],
        "flat": lambda x: x.reshape(-1).reshape(x.shape[0], 3),
        "pad": lambda x: F.pad(x, (0, 0, 1, x.shape[0] % 3)),
        "branch": lambda x: x * 2 if x.shape[0] > 25 else x - 1,
        "zeros": lambda x: x + pb.zeros(x.shape[0], 1),
        "softmax": lambda x: x.softmax(0),
        "view": lambda x: x.mT.contiguous().mT * 3,
        "positions": lambda x: x + pb.arange(x.shape[0]).unsqueeze(1) / 7,
        "norm": lambda x: F.layer_norm(x, (3,)),
        "pool": lambda x: F.max_pool1d(x.mT.unsqueeze(0), 2, padding=1)[0].mT,
    }
    names = data.draw(st.lists(st.sampled_from(sorted(steps)), min_size=1, max_size=5))
    sizes = data.draw(st.lists(st.integers(2, 50), min_size=6, max_size=14))

    def function(x):
        for name in names:
            x = steps[name](x)
        return x

    compiled = pb.compile(function, dynamic=True, recompile_limit=1000)
    for size in sizes:
        x = leaf(size, 3)
        expected, found = function(x), compiled(x)
        assert same(found, expected)
        seed = pb.randn(expected.shape)
        (one,), (other,) = grads(found, [x], seed), grads(expected, [x], seed)
        assert pb.allclose(one, other, atol=1e-4, rtol=1e-4)


LAYOUTS = {
    "transposed": (lambda: pb.rand(8, 3), lambda: pb.rand(3, 8).t()),
    "slice": (lambda: pb.rand(8, 4), lambda: pb.rand(8, 8)[:, ::2]),
    "expanded": (lambda: pb.rand(8, 4), lambda: pb.rand(1, 4).expand(8, 4)),
    "rows": (lambda: pb.rand(8, 4), lambda: pb.rand(8, 9)[:, 2:6]),
    "channels last": (
        lambda: pb.rand(2, 3, 4, 4),
        lambda: pb.rand(2, 3, 4, 4).to(memory_format=pb.channels_last),
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_other_strides_of_the_same_sizes_are_another_program(name):
    """Once, the span between such calls was 0, by which numbers were divided."""
    compiled = pb.compile(lambda x: (x * 2).sum(0), dynamic=True)
    for _ in range(2):
        for make in (*LAYOUTS[name], *reversed(LAYOUTS[name])):
            x = make()
            assert compiled(x).equal((x * 2).sum(0))
    assert len(compiled.entries) == 2
