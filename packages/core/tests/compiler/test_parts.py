"""Parts of compiled programs that a backend runs in its own way."""

import gc
import weakref

import pytest

import pullback as pb
from pullback.backend import hookimpl
from pullback.backend.array_library import ArrayLibrary


class WithExecutors(ArrayLibrary):
    """A device of NumPy whose executors call its kernels; tests say what else they do."""

    def __init__(self):
        super().__init__("numpy")
        self.kernels = {}
        self.offered, self.runs, self.answer = [], [], self.in_order

    def add(self, primitive, mask, kernel):
        """Take a kernel and keep it, as a table of the core."""
        self.kernels.setdefault(primitive, []).append((mask, kernel))
        self.table.add(primitive, mask, kernel)

    def compile(self, device, calls):
        self.offered.append(calls)
        return self.answer(calls)

    def in_order(self, calls):
        return self.run

    def run(self, calls):
        self.runs.append(calls)
        for call in calls:
            out = call.outs[0] if len(call.outs) == 1 else call.outs
            code = getattr(pb, call.ins[0].dtype).code
            for mask, kernel in self.kernels[call.primitive]:
                if mask >> code & 1:
                    kernel(out, *call.ins, **call.params)


@pytest.fixture(scope="session")
def loaded():
    from pullback.backend import registry

    made = WithExecutors()

    class Plugin:
        @hookimpl
        def pullback_backend(self, device):
            return made if device == "parts" else None

        @hookimpl
        def pullback_register_kernels(self, table, device):
            if device == "parts":
                made.table = table
                made.register(made)

    found = registry._find
    registry._find = lambda asked: ("parts", Plugin) if asked == "parts" else found(asked)
    try:
        pb.ones(1, device="parts")
    finally:
        registry._find = found
    return made


@pytest.fixture
def device(loaded):
    loaded.offered, loaded.runs, loaded.answer = [], [], loaded.in_order
    return loaded


def function(x, y):
    product = x * y
    return (product + x).exp(), product.sum()


def arguments(seed):
    pb.manual_seed(seed)
    return pb.randn(3, 4).to("parts"), pb.randn(3, 4).to("parts")


def test_part_is_offered_once_and_run_each_time(device):
    compiled = pb.compile(function)
    for seed in range(4):
        expected = function(*arguments(seed))
        found = compiled(*arguments(seed))
        assert [one.tolist() for one in found] == [one.tolist() for one in expected]
    assert len(device.offered) == 1 and len(device.runs) == 3
    (calls,) = device.offered
    names = [call.primitive for call in calls]
    assert [name for name in names if name != "sum"] == ["mul", "add", "exp"]
    assert repr(calls[0]) == "<KernelCall mul>"
    inner = {call.primitive: call.inner for call in calls}
    assert inner["mul"] == inner["add"] == (True,) and inner["exp"] == (False,)


def test_operands_are_those_of_the_run(device):
    compiled = pb.compile(lambda x: (x + 1) * 2)
    kept = [arguments(seed)[0] for seed in range(3)]
    found = [compiled(x) for x in kept]
    first = [calls[0].ins[0].base for calls in device.runs]
    last = [calls[-1].outs[0].base for calls in device.runs]
    assert len(set(first)) == len(set(last)) == 2
    assert [one.tolist() for one in found] == [((x + 1) * 2).tolist() for x in kept]


def test_backend_may_decline(device):
    device.answer = lambda calls: None
    compiled = pb.compile(function)
    for seed in range(3):
        found, expected = compiled(*arguments(seed)), function(*arguments(seed))
        assert [one.tolist() for one in found] == [one.tolist() for one in expected]
    assert device.runs == []


def test_what_is_no_function_is_refused(device):
    device.answer = lambda calls: 3
    compiled = pb.compile(function)
    compiled(*arguments(0))
    text = r"compile\(\) of a backend's memory must return None or a function, not int"
    with pytest.raises(TypeError, match=text):
        compiled(*arguments(0))


def test_kernels_without_a_place_in_a_part_split_it(device):
    """A primitive that runs on the host in place of a kernel stands between two parts."""

    def split(x):
        x = (x + 1) * 2
        x = x.sort(0)[0]
        return (x - 1) * 3

    compiled = pb.compile(split)
    with pytest.warns(RuntimeWarning, match="'sort' has no kernel"):
        expected = split(arguments(0)[0])
    for _ in range(2):
        assert compiled(arguments(0)[0]).tolist() == expected.tolist()
    assert [[call.primitive for call in calls] for calls in device.offered] == [
        ["add", "mul"],
        ["sub", "mul"],
    ]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_executor_that_raises(device, kind):
    """What the executor raises is raised where the function has written; nothing is lost."""

    def fail(calls):
        raise kind("not today")

    state = pb.zeros(3).to("parts")

    def write(x):
        state.add_(x).mul_(2)
        return state + 1

    compiled = pb.compile(write)
    x = pb.ones(3).to("parts")
    compiled(x)
    device.answer = lambda calls: fail
    expected = RuntimeError if kind is ValueError else kind
    with pytest.raises(expected, match="not today"):
        compiled(x)
    assert state.tolist() == [2, 2, 2]
    assert write(x).tolist() == [7, 7, 7]


def test_executor_that_fails_before_a_write_leaves_it_to_the_function(device):
    def fail(calls):
        raise ValueError("not today")

    compiled = pb.compile(function)
    compiled(*arguments(0))
    device.answer = lambda calls: fail
    found, expected = compiled(*arguments(1)), function(*arguments(1))
    assert [one.tolist() for one in found] == [one.tolist() for one in expected]


def test_executor_goes_with_the_compiled_function(device):
    class Executor:
        def __call__(self, calls):
            device.run(calls)

    kept = []

    def make(calls):
        made = Executor()
        kept.append(weakref.ref(made))
        return made

    device.answer = make
    compiled = pb.compile(function)
    for seed in range(3):
        compiled(*arguments(seed))
    assert len(kept) == 1 and kept[0]() is not None
    del compiled
    gc.collect()
    assert kept[0]() is None


# ---- the cpu backend's ---------------------------------------------------------------------------


def test_program_of_many_small_kernels():
    """Loops of all kinds in a row: numbers, broadcasts, casts, choices; other kernels between."""

    def long(x, y, flags):
        for number in range(30):
            x = pb.where(flags, x * 0.5 - y, y.tanh() + number)
            y = (x.double().neg().float() / (y * y + 1)).clamp(-2, 2)
            if number % 7 == 0:
                x = (x @ x.T).sin() @ y / 8
        return x, y, x > y

    pb.manual_seed(0)
    compiled = pb.compile(long)
    for _ in range(4):
        x, y = pb.randn(5, 5), pb.randn(5, 5)
        flags = pb.rand(5) > 0.5
        for found, expected in zip(compiled(x, y, flags), long(x, y, flags), strict=True):
            assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("place", [0, 3, 17])
def test_division_by_zero_within_a_part(place):
    """The error of the call that fails is raised, and what is before it has been written."""
    state = pb.zeros(4, dtype=pb.int64)
    written = pb.zeros(20, 4, dtype=pb.int64)

    def divide(x):
        for number in range(20):
            state.add_(1)
            written[number].copy_(100 // x[number])
        return state + 0

    compiled = pb.compile(divide)
    x = pb.arange(1, 81).reshape(20, 4)
    compiled(x), compiled(x)
    state.zero_(), written.zero_()
    x[place, 2] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x)
    assert state.tolist() == [place + 1] * 4
    assert written[:place].tolist() == (100 // x[:place]).tolist()
    assert written[place + 1 :].count_nonzero().item() == 0


def test_replays_on_several_threads_at_once():
    from concurrent.futures import ThreadPoolExecutor

    def chain(x):
        for _ in range(200):
            x = x * x - 0.75
        return x

    compiled = pb.compile(chain)
    starts = [pb.full((8,), 0.01 * k) for k in range(16)]
    expected = [chain(x).tolist() for x in starts]
    compiled(starts[0])
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = list(pool.map(lambda x: compiled(x).tolist(), starts))
            assert found == expected


@pytest.mark.skipif(pb.get_default_device().type == "ref", reason="it has no executors")
def test_explanation_counts_what_executors_run():
    compiled = pb.compile(lambda x: (x + 1) * 2 - x)
    x = pb.ones(3)
    compiled(x)
    assert compiled.explain().programs[0]["parts"] == []
    compiled(x)
    assert compiled.explain().programs[0]["parts"] == [(0, 3)]
    assert "3 kernels are run by their backend's executor, in 1 parts" in str(compiled.explain())
