"""Worker processes: what they send, their seeds, their exceptions and their ends."""

import contextlib
import gc
import multiprocessing
import os
import random
import select
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver, resource_tracker

import numpy as np
import pytest

import pullback as pb
from pullback.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    TensorDataset,
    get_worker_info,
)
from pullback.utils.data._utils import shared

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="tests of forks and descriptors"),
    # Other tests may have started threads.
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]
LONG = 60  # seconds, which no test needs


class Plain(Dataset):
    """Samples of a function."""

    def __init__(self, function, length=12):
        self.function = function
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.function(index)


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id, 7, info.num_workers))


def forked(function, length=12, **options):
    options = {"num_workers": 2, "multiprocessing_context": "fork", **options}
    return DataLoader(Plain(function, length), **options)


def descriptors():
    return len(os.listdir("/proc/self/fd" if os.path.exists("/proc/self/fd") else "/dev/fd"))


def mappings():
    """Return the lines of this process's memory map that are of batches."""
    if not os.path.exists("/proc/self/maps"):
        return []
    with open("/proc/self/maps") as file:
        return [line for line in file if "pullback-data" in line]


def started_since(processes):
    return [child for child in multiprocessing.active_children() if child not in processes]


@pytest.fixture(autouse=True)
def nothing_left(request):
    """Fail the test that leaves processes, descriptors or mapped memory.

    The memory of batches has no name in the file system that could be left.
    """
    resource_tracker.ensure_running()  # servers that stay
    if "spawn" in request.node.name or "forkserver" in request.node.name:
        forkserver.ensure_running()
    gc.collect()  # another module's test may have left a loader in a cycle
    processes, before = multiprocessing.active_children(), descriptors()
    yield
    deadline = time.monotonic() + 5  # threads of queues may close pipes a little later
    while started_since(processes) or descriptors() > before or mappings():
        gc.collect()  # a failed test's traceback may hold a loader
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    assert started_since(processes) == []
    assert descriptors() <= before
    assert mappings() == []


# ---- batches -------------------------------------------------------------------------------------


def samples(index):
    """A sample of many parts, all of which say the index."""
    return {
        "text": str(index),
        "number": index,
        "pair": (pb.full((3, 5), float(index)), np.full(2, index)),
        "large": np.full((2, 4000), index),
    }


def packed(batch):
    """Collate by hand: views, arrays, empty and strided tensors, plain objects."""
    first = batch[0]["number"]
    x = pb.stack([sample["pair"][0] for sample in batch])
    return {
        "x": x,
        "same": x,
        "transposed": x.transpose(0, 2),
        "step": x[:, ::2, 1:],
        "none": pb.zeros(0, 3),
        "scalar": pb.tensor(first),
        "leaf": pb.ones(2, requires_grad=True),
        "half": x.to(pb.bfloat16),
        "conjugate": pb.tensor([1 + 2j]).conj(),
        "array": np.stack([sample["large"] for sample in batch]),
        "words": [sample["text"] for sample in batch],
    }


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_batches_arrive_whole(method):
    workers = 2 if method == "fork" else 1  # the others start slowly
    loader = DataLoader(Plain(samples), 4, num_workers=workers, multiprocessing_context=method)
    batches = list(loader)
    assert [batch["text"] for batch in batches] == [[str(i) for i in r] for r in QUARTERS]
    for batch, indices in zip(batches, QUARTERS, strict=True):
        x, y = batch["pair"]
        assert (x.shape, x.dtype) == ((4, 3, 5), pb.float32)
        assert x[:, 0, 0].tolist() == y[:, 1].tolist() == batch["number"].tolist() == [*indices]
        assert batch["large"].sum(dim=(1, 2)).tolist() == [8000 * i for i in indices]


QUARTERS = [range(4), range(4, 8), range(8, 12)]


def test_collated_objects_keep_layout_and_class():
    for first, batch in zip((0, 4, 8), forked(samples, batch_size=4, collate_fn=packed)):
        x = batch["x"]
        assert batch["same"] is x
        assert pb.equal(batch["transposed"], x.transpose(0, 2))
        assert pb.equal(batch["step"], x[:, ::2, 1:])
        assert batch["none"].shape == (0, 3)
        assert batch["scalar"].item() == first
        assert batch["leaf"].requires_grad
        assert batch["leaf"].is_leaf
        assert pb.equal(batch["half"].float(), x)
        assert batch["conjugate"].resolve_conj().tolist() == [1 - 2j]
        assert batch["array"][:, 1, -1].tolist() == [*range(first, first + 4)]
        batch["array"] += 1  # it is ours
        assert batch["words"][0] == str(first)
        x += 1
        assert x[0, 0, 0].item() == first + 1


@pytest.mark.parametrize("width", [50, 1500])
def test_memory_is_used_again_when_a_batch_is_freed(width):
    x = pb.arange(400.0 * width).reshape(400, width)
    loader = DataLoader(
        TensorDataset(x), 10, num_workers=2, multiprocessing_context="fork", persistent_workers=True
    )
    for _ in range(3):
        for number, (batch,) in enumerate(loader):
            assert pb.equal(batch, x[10 * number : 10 * number + 10])
            del batch
    readers = loader._iterator._pool.readers
    assert all(max(reader.blocks) <= 8 for reader in readers)  # of 60 batches
    kept = [batch for (batch,) in loader]
    again = [batch.numpy() for (batch,) in loader]  # arrays hold the memory, too
    assert pb.equal(pb.cat(kept), x)
    assert np.array_equal(np.concatenate(again), x.numpy())
    del loader, readers
    assert pb.equal(pb.cat(kept), x)  # batches outlive their loader


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="shows Linux's memory map")
def test_memory_of_batches_has_no_name():
    names = set(os.listdir("/dev/shm"))
    batches = list(forked(lambda i: pb.ones(1000), persistent_workers=True))
    places = [
        [int(address, 16) for address in line.split()[0].split("-")]
        for line in mappings()
        if line.rstrip().endswith("/memfd:pullback-data (deleted)")
    ]
    for batch in batches:
        assert any(first <= batch.data_ptr() < last for first, last in places)
    assert not any("data" in name for name in set(os.listdir("/dev/shm")) - names)


@pytest.mark.parametrize("lacking", ["memfd_create", "shared memory"])
def test_batches_arrive_where_the_system_lacks_something(monkeypatch, lacking):
    if lacking == "memfd_create":
        monkeypatch.delattr(os, lacking, raising=False)
    else:
        monkeypatch.setattr(shared, "is_available", lambda: False)
    for number, (batch,) in enumerate(forked(lambda i: (pb.full((3000,), i),))):
        assert mappings() == []
        assert batch.sum().item() == 3000 * number


def test_batches_of_many_and_growing_tensors_arrive():
    def collate(batch):
        return [pb.full((5000 + i,), i) for i in range(300)] + [pb.full((9000 * batch[0],), 1)]

    for number, batch in enumerate(forked(lambda i: i, collate_fn=collate)):
        assert [int(x[-1]) for x in batch[:-1]] == [*range(300)]
        assert [x.numel() for x in batch[:-1]] == [*range(5000, 5300)]
        assert batch[-1].sum().item() == 9000 * number


def test_memory_that_a_fork_has_seen_is_not_used_again():
    loader = forked(lambda i: pb.full((100,), i), length=40, persistent_workers=True)
    found = iter(loader)
    batch = next(found)
    ask_r, ask_w = os.pipe()
    tell_r, tell_w = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ask_r, 1)
        os.write(tell_w, b"y" if batch.tolist() == [[0] * 100] else b"n")
        os._exit(0)
    del batch
    rest = [int(other[0, 0]) for other in found]
    assert rest == [*range(1, 40)]
    os.write(ask_w, b"x")
    assert os.read(tell_r, 1) == b"y"
    assert os.waitpid(child, 0)[1] == 0
    for descriptor in (ask_r, ask_w, tell_r, tell_w):
        os.close(descriptor)
    assert [int(other[0, 0]) for other in loader] == [*range(40)]


def test_batches_that_a_worker_keeps_stay_as_they_are():
    cache = {}

    def collate(batch):
        made = cache.setdefault("first", pb.utils.data.default_collate(batch))
        return made.clone(), pb.utils.data.default_collate(batch)

    loader = forked(lambda i: pb.full((1000,), i), length=40, num_workers=1, collate_fn=collate)
    for number, (first, own) in enumerate(loader):
        assert first[0].unique().tolist() == [0]
        assert own[0].unique().tolist() == [number]


def test_large_requests_and_batches_do_not_block():
    numbers = range(200_000)
    loader = DataLoader(numbers, 50_000, num_workers=2, prefetch_factor=3)
    assert [batch.sum().item() for batch in loader] == [
        sum(numbers[i : i + 50_000]) for i in range(0, 200_000, 50_000)
    ]
    texts = forked(lambda i: "x" * 1_000_000, length=20, prefetch_factor=10)
    assert sum(len(text) for (text,) in texts) == 20_000_000


def test_stream_is_divided_among_workers():
    loader = DataLoader(Stream(), 2, num_workers=2, multiprocessing_context="fork")
    assert [batch.tolist() for batch in loader] == [[0, 2], [1, 3], [4, 6], [5]]
    assert [batch.tolist() for batch in loader] == [[0, 2], [1, 3], [4, 6], [5]]


def test_order_is_left_where_it_is_not_wanted():
    receive, send = multiprocessing.Pipe(duplex=False)

    def sample(index):
        if index == 0:
            assert receive.poll(LONG)
        return index

    found = iter(forked(sample, in_order=False))
    first = [next(found).item() for _ in range(4)]
    send.send(None)
    assert 0 not in first
    assert sorted(first + [batch.item() for batch in found]) == list(range(12))
    receive.close()
    send.close()


# ---- workers -------------------------------------------------------------------------------------


def test_seeds_are_the_base_seed_plus_the_id():
    def sample(index):
        info = get_worker_info()
        numbers = random.random(), np.random.random(), pb.rand(1).item()
        return info.id, info.seed, pb.initial_seed(), pb.get_num_threads(), numbers

    def run():
        return [batch[0] for batch in forked(sample, length=4, collate_fn=list)]

    pb.manual_seed(4)
    first, second = run(), run()
    pb.manual_seed(4)
    assert run() == first
    assert first != second
    assert [row[0] for row in first] == [0, 1, 0, 1]
    assert first[1][1] == first[0][1] + 1
    assert all(row[1] == row[2] and row[3] == 1 for row in first)
    assert len({row[4] for row in first}) == 4


def test_init_function_and_dataset_are_the_workers_own():
    def init(number):
        get_worker_info().dataset.function = lambda index: (number, index)

    loader = forked(None, length=4, worker_init_fn=init, collate_fn=list)
    assert [batch[0] for batch in loader] == [(0, 0), (1, 1), (0, 2), (1, 3)]
    assert loader.dataset.function is None


def test_persistent_workers_begin_each_epoch_anew():
    loader = forked(lambda i: (os.getpid(), i), persistent_workers=True, collate_fn=list)
    first = [batch[0] for batch in loader]
    half = iter(loader)
    assert next(half)[0] == first[0]
    assert [batch[0] for batch in loader] == first  # nothing of the half-read epoch
    assert len({pid for pid, _ in first}) == 2
    other = forked(lambda i: os.getpid(), length=2)
    assert next(iter(other)).item() != next(iter(other)).item()


class Odd(Exception):
    def __init__(self, first, second):
        super().__init__(first, second)


class Told(Exception):
    message = "class attribute"

    def __init__(self, message):
        super().__init__(message)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("why"), ValueError),
        (KeyError("why"), KeyError),
        (FileNotFoundError(2, "why"), FileNotFoundError),
        (Told("why"), Told),
        (Odd("why", 2), RuntimeError),
        (type("Local", (Exception,), {})("why"), RuntimeError),
    ],
)
def test_exception_is_raised_with_class_and_traceback(error, kind):
    def sample(index):
        if index == 1:
            raise error
        return index

    found = iter(forked(sample))
    assert next(found).item() == 0
    with pytest.raises(kind) as caught:
        next(found)
    text = str(caught.value)
    assert text.startswith(f"Caught {type(error).__name__} in DataLoader worker process 1.\nOrig")
    assert "in sample\n    raise error\n" in text
    assert "why" in text.splitlines()[-1]
    assert [batch.item() for batch in found] == [*range(2, 12)]


def test_exceptions_before_the_first_sample_are_raised():
    def init(number):
        raise ValueError("no start")

    class Broken(IterableDataset):
        def __iter__(self):
            raise ValueError("no stream")

    with pytest.raises(ValueError, match=r"(?s)Caught ValueError in DataLoader worker.*no start"):
        list(forked(None, worker_init_fn=init))
    with pytest.raises(ValueError, match="no stream"):
        list(DataLoader(Broken(), num_workers=1))


def test_batch_that_cannot_be_pickled_is_an_error():
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        list(forked(lambda i: lambda: i, collate_fn=list))
    grown = forked(lambda i: pb.ones(2, requires_grad=True) * 2, collate_fn=list)
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        next(iter(grown))


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "is killed by signal: Killed"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "is killed by signal: Terminated"),
        (lambda: os._exit(3), "exited unexpectedly with exit code 3"),
        (lambda: exec("raise SystemExit(5)"), "exited unexpectedly with exit code 5"),
    ],
)
def test_dead_worker_raises_at_once(end, text):
    def sample(index):
        if index == 7:
            end()
        return pb.ones(20_000)

    start = time.monotonic()
    with pytest.raises(
        RuntimeError, match=r"worker \(pid\(s\) \d+\) exited unexpectedly"
    ) as caught:
        list(forked(sample, length=40))
    assert text in str(caught.value.__cause__)
    assert time.monotonic() - start < LONG


def test_worker_killed_from_outside_raises():
    loader = forked(lambda i: pb.ones(1000), length=1000, persistent_workers=True)
    found = iter(loader)
    next(found)
    os.kill(found._pool.processes[0].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        list(found)
    with pytest.raises(RuntimeError):
        next(found)
    assert len(list(loader)) == 1000  # with new workers


def test_timeout_ends_the_workers():
    receive, send = multiprocessing.Pipe(duplex=False)
    found = iter(forked(lambda i: receive.recv(), timeout=0.1))
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.1 seconds"):
        next(found)
    assert multiprocessing.active_children() == []
    send.close()
    receive.close()


def test_half_read_iterator_ends_its_workers():
    found = iter(forked(lambda i: pb.ones(100_000), length=1000, prefetch_factor=5))
    next(found)
    workers = [process.pid for process in found._pool.processes]
    del found
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_workers_belong_to_the_process_that_started_them():
    found = iter(forked(lambda i: i))
    assert next(found).item() == 0
    child = os.fork()
    if child == 0:
        code = 1
        try:
            next(found)
        except RuntimeError as error:
            code = 0 if "belong to the process that started them" in str(error) else 2
        del found
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert [batch.item() for batch in found] == [*range(1, 12)]


@pytest.mark.parametrize(
    ("how", "code", "printed"),
    [
        ("exit", 0, "read\n"),
        ("interrupt", 0, "interrupted\nno children\n"),
        ("kill", -signal.SIGKILL, ""),
    ],
)
def test_workers_end_with_the_program(request, how, code, printed):
    """All processes of the program hold a pipe; its end is the end of the last of them."""
    receive, send = os.pipe()
    script = request.path.parent / "scripts" / "ends.py"
    program = subprocess.Popen(
        [sys.executable, script, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[send],
        start_new_session=True,
    )
    os.close(send)
    try:
        ended, _, _ = select.select([receive], [], [], LONG)
        assert ended
        assert os.read(receive, 1) == b""
        out, err = program.communicate(timeout=LONG)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)  # workers that are left hold its pipes, too
        program.communicate()
        os.close(receive)
    assert (program.returncode, out, err) == (code, printed, "")
