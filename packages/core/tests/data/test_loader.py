"""DataLoader without workers and with threads: batches, lengths, arguments, worker threads."""

import itertools
import pickle
import threading

import numpy as np
import pytest

import pullback as pb
from pullback.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
    get_worker_info,
)
from pullback.utils.data._utils.fetch import gathered


class Stream(IterableDataset):
    def __init__(self, count, length=None):
        self.count = count
        self.length = length

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.count, step))

    def __len__(self):
        if self.length is None:
            raise TypeError("no length")
        return self.length


class Plain(Dataset):
    """Samples of a function."""

    def __init__(self, function, length=12):
        self.function = function
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.function(index)


def lists(loader):
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [[0], [1], [2], [3], [4]]),
        ({"batch_size": 2}, [[0, 1], [2, 3], [4]]),
        ({"batch_size": 2, "drop_last": True}, [[0, 1], [2, 3]]),
        ({"batch_size": 3, "sampler": [4, 4, 0, 1]}, [[4, 4, 0], [1]]),
        ({"batch_sampler": [[0, 4], [2]]}, [[0, 4], [2]]),
        ({"batch_size": None, "collate_fn": pb.tensor}, [0, 1, 2, 3, 4]),
    ],
)
def test_batches_follow_the_sampler(options, expected, workers):
    if workers:
        options = {**options, "num_workers": workers, "multiprocessing_context": "thread"}
    loader = DataLoader(range(5), **options)
    assert lists(loader) == lists(loader) == expected
    assert len(loader) == len(iter(loader)) == len(expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_stream_ends_in_each_worker(workers):
    options = {"num_workers": workers, "multiprocessing_context": "thread"} if workers else {}
    for count, size, last in itertools.product((0, 1, 7, 8), (1, 3), (False, True)):
        loader = DataLoader(Stream(count), size, drop_last=last, **options)
        got = lists(loader)
        parts = [list(range(i, count, workers or 1)) for i in range(workers or 1)]
        cut = [[part[i : i + size] for i in range(0, len(part), size)] for part in parts]
        cut = [[one for one in part if len(one) == size or not last] for part in cut]
        expected = [one for row in itertools.zip_longest(*cut) for one in row if one is not None]
        assert got == expected, (count, size, last)
    assert list(DataLoader(Stream(5), None, **options)) == [0, 1, 2, 3, 4]


def test_length_of_a_stream_is_what_it_says():
    assert len(DataLoader(Stream(9, 5), 2)) == 3
    assert len(DataLoader(Stream(9, 5), 2, drop_last=True)) == 2
    assert len(DataLoader(Stream(9, 5), None)) == 5
    with pytest.raises(TypeError):
        len(DataLoader(Stream(9), 2))
    loader = DataLoader(Stream(3, 2), None)
    assert list(loader) == [0, 1, 2]  # nobody asked for the length
    len(loader)
    with pytest.warns(UserWarning, match="was reported to be 2.*but 3 samples have been fetched"):
        list(loader)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"num_workers": -1}, ValueError, "num_workers option should be non-negative"),
        ({"timeout": -1}, ValueError, "timeout option should be non-negative"),
        ({"prefetch_factor": 2}, ValueError, "prefetch_factor option could only be specified"),
        ({"num_workers": 1, "prefetch_factor": -1}, ValueError, "should be non-negative"),
        ({"persistent_workers": True}, ValueError, "persistent_workers option needs num_work"),
        ({"shuffle": True, "sampler": [1]}, ValueError, "mutually exclusive with shuffle"),
        ({"batch_sampler": [[1]], "batch_size": 2}, ValueError, "exclusive with batch_size"),
        ({"batch_sampler": [[1]], "shuffle": True}, ValueError, "exclusive with batch_size"),
        ({"batch_sampler": [[1]], "drop_last": True}, ValueError, "exclusive with batch_size"),
        ({"batch_size": None, "drop_last": True}, ValueError, "disables auto-batching"),
        ({"batch_size": 0}, ValueError, "but got batch_size=0"),
        ({"batch_size": 2.5}, ValueError, "but got batch_size=2.5"),
        ({"drop_last": 1}, ValueError, "but got drop_last=1"),
        ({"multiprocessing_context": "fork"}, ValueError, r"with multi-process loading \(num_wo"),
        ({"num_workers": 1, "multiprocessing_context": "x"}, ValueError, "a valid start method"),
        ({"num_workers": 1, "multiprocessing_context": 3}, TypeError, "a valid context object"),
    ],
)
def test_wrong_argument_raises(options, error, text):
    with pytest.raises(error, match=text):
        DataLoader(range(3), **options)


@pytest.mark.parametrize("name", ["shuffle", "sampler", "batch_sampler"])
def test_stream_has_no_order(name):
    value = True if name == "shuffle" else [[1]]
    with pytest.raises(ValueError, match=f"expected unspecified {name} option, but got {name}="):
        DataLoader(Stream(3), **{name: value})


def test_attributes_are_fixed_after_construction():
    loader = DataLoader(range(3))
    for name in ("batch_size", "sampler", "batch_sampler", "drop_last", "dataset"):
        with pytest.raises(ValueError, match=f"{name} attribute should not be set after"):
            setattr(loader, name, 1)
    loader.collate_fn = max
    assert list(loader) == [0, 1, 2]
    with pytest.raises(NotImplementedError):
        pickle.dumps(iter(loader))


def test_more_workers_than_processors_warn():
    with pytest.warns(UserWarning, match="This DataLoader will create 1000 worker processes"):
        DataLoader(range(3), num_workers=1000)
    with pytest.raises(AssertionError, match="prefetch_factor must be greater than 0"):
        iter(DataLoader(range(3), num_workers=1, prefetch_factor=0))


def test_pin_memory_without_an_accelerator_warns():
    if pb.cuda.is_available():
        pytest.skip("there is an accelerator")
    loader = DataLoader(range(2), pin_memory=True)
    with pytest.warns(UserWarning, match="'pin_memory' argument is set as true but no accelera"):
        assert lists(loader) == [[0], [1]]


def test_shuffled_epochs_are_reproducible():
    generator = pb.Generator().manual_seed(3)
    loader = DataLoader(range(50), 10, shuffle=True, generator=generator)
    first, second = lists(loader), lists(loader)
    assert sorted(itertools.chain(*first)) == sorted(itertools.chain(*second)) == list(range(50))
    assert first != second
    generator.manual_seed(3)
    assert [lists(loader), lists(loader)] == [first, second]
    pb.manual_seed(1)
    third = lists(DataLoader(range(50), 10, shuffle=True))
    pb.manual_seed(1)
    assert lists(DataLoader(range(50), 10, shuffle=True)) == third


class Pinned(list):
    """A batch that notes in which thread it was pinned."""

    def pin_memory(self):
        return Pinned([*self, threading.current_thread().name.split("_")[0]])


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_pinned_where_there_is_an_accelerator(monkeypatch, workers):
    monkeypatch.setattr(pb.cuda, "is_available", lambda: True)
    loader = DataLoader(range(9), 3, num_workers=workers, collate_fn=Pinned, pin_memory=True)
    thread = "pin memory" if workers else "MainThread"
    assert list(loader) == [[*range(i, i + 3), thread] for i in (0, 3, 6)]
    broken = DataLoader(
        [1], num_workers=workers, collate_fn=lambda batch: Broken(), pin_memory=True
    )
    with pytest.raises(ValueError, match="cannot pin"):
        list(broken)


class Broken:
    def pin_memory(self):
        raise ValueError("cannot pin")


# ---- the short way of TensorDataset --------------------------------------------------------------


@pytest.mark.parametrize(
    "tensors",
    [
        (pb.randn(9, 2, 3), pb.arange(9)),
        (pb.randn(3, 9).t(), pb.arange(9) > 4),
        (pb.ones(1, 3).expand(9, 3), pb.randn(9, 2).to(pb.complex64)),
        (pb.zeros(9, 0).to(pb.float16),),
    ],
)
@pytest.mark.parametrize("wrap", [lambda d: d, lambda d: Subset(Subset(d, range(8)), [7, 2, 2, 0])])
def test_gathered_batch_is_what_samples_give(tensors, wrap):
    dataset = wrap(TensorDataset(*tensors))
    indices = [3, 0, 1, 3]
    found = gathered(dataset, indices)
    expected = default_collate([dataset[i] for i in indices])
    assert type(found) is list
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert ours.is_contiguous()
        assert pb.equal(ours, theirs)
    assert [x.tolist() for x in next(iter(DataLoader(dataset, 4, sampler=indices)))] == [
        x.tolist() for x in expected
    ]


def test_samples_are_read_one_by_one_where_gathering_differs():
    class Doubled(TensorDataset):
        def __getitem__(self, index):
            return (2 * self.tensors[0][index],)

    x = pb.arange(4)
    assert gathered(Doubled(x), [1]) is None
    assert next(iter(DataLoader(Doubled(x), 4)))[0].tolist() == [0, 2, 4, 6]
    assert gathered(TensorDataset(x), [-1]) is None
    assert next(iter(DataLoader(TensorDataset(x), 2, sampler=[-1, 0])))[0].tolist() == [3, 0]
    with pytest.raises(IndexError, match="index 4 is out of bounds for dimension 0 with size 4"):
        list(DataLoader(TensorDataset(x), 2, sampler=[1, 4]))
    weights = pb.ones(4, requires_grad=True)
    (batch,) = next(iter(DataLoader(TensorDataset(weights), 2)))
    batch.sum().backward()
    assert weights.grad.tolist() == [1, 1, 0, 0]


def test_batched_reading_is_used_where_a_dataset_has_it():
    class Columns(Plain):
        def __getitems__(self, indices):
            return [10 * i for i in indices]

    assert lists(DataLoader(Columns(None, 3), 2)) == [[0, 10], [20]]


# ---- threads -------------------------------------------------------------------------------------


def threads(function, **options):
    return DataLoader(Plain(function), num_workers=2, multiprocessing_context="thread", **options)


def test_threads_know_their_worker():
    def sample(index):
        info = get_worker_info()
        return info.id, info.num_workers, info.seed - info.id, threading.get_ident()

    loader = threads(sample, batch_size=2, collate_fn=list)
    rows = [*itertools.chain(*loader)]
    assert [row[0] for row in rows] == [0, 0, 1, 1] * 3
    assert {row[1] for row in rows} == {2}
    assert len({row[2] for row in rows}) == 1
    assert len({row[3] for row in rows} - {threading.get_ident()}) == 2
    assert get_worker_info() is None


def test_threads_share_the_dataset_and_need_no_pickles():
    lock = threading.Lock()
    marks = [object() for _ in range(12)]

    def sample(index):
        with lock:
            return marks[index], lambda: index

    batches = list(threads(sample, collate_fn=list))
    assert all(batch[0][0] is mark for batch, mark in zip(batches, marks, strict=True))


def test_threads_raise_what_a_sample_raises():
    class Odd(Exception):
        def __init__(self, first, second):
            super().__init__(first, second)

    def sample(index):
        if index == 3:
            raise KeyError("three")
        if index == 5:
            raise Odd(1, 2)
        if index == 6:
            raise SystemExit(4)
        return index

    found = iter(threads(sample))
    assert [next(found).item() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="Caught KeyError in DataLoader worker thread 1") as caught:
        next(found)
    assert "\nOriginal Traceback" in str(caught.value)
    assert next(found).item() == 4
    with pytest.raises(RuntimeError, match="Caught Odd in DataLoader worker thread 1"):
        next(found)
    with pytest.raises(RuntimeError, match="Caught SystemExit in DataLoader worker thread 0"):
        next(found)
    assert [batch.item() for batch in found] == [7, 8, 9, 10, 11]


def test_threads_out_of_order_do_not_wait():
    release = threading.Event()

    def sample(index):
        if index == 0:
            release.wait(60)
        return index

    found = iter(threads(sample, in_order=False))
    first = [next(found).item() for _ in range(4)]
    release.set()
    assert 0 not in first
    assert sorted(first + [batch.item() for batch in found]) == list(range(12))


def test_threads_time_out():
    release = threading.Event()
    found = iter(threads(lambda index: release.wait(60), timeout=0.05))
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.05 seconds"):
        next(found)
    release.set()
    for thread in threading.enumerate():
        if thread.name.startswith("DataLoader worker"):
            thread.join()


def test_threads_end_with_a_half_read_iterator():
    def running():
        return [t for t in threading.enumerate() if t.name.startswith("DataLoader worker")]

    before = running()
    found = iter(threads(lambda index: index))
    next(found)
    assert len(running()) == len(before) + 2
    del found
    assert running() == before
    loader = threads(lambda index: get_worker_info().seed, persistent_workers=True)
    assert iter(loader) is iter(loader)
    assert lists(loader) == lists(loader)  # the workers, and their seeds, are the same
    del loader
    assert running() == before


def test_threads_gather_tensors():
    x = pb.randn(100, 5)
    loader = DataLoader(TensorDataset(x), 7, num_workers=3, multiprocessing_context="thread")
    assert pb.equal(pb.cat([batch for (batch,) in loader]), x)
    assert np.array_equal(x.numpy(), np.concatenate([b.numpy() for (b,) in loader]))
