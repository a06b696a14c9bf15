"""Shared memory: forked children, queues, spawned processes, names that are removed."""

import gc
import glob
import os
import subprocess
import sys
import textwrap

import pytest

import pullback as pb
import pullback.multiprocessing as mp
from pullback.multiprocessing import blocks

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="these tests fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def names():
    """Return the names of blocks of this process and its children."""
    return glob.glob(f"/dev/shm/pb_{blocks._tree()}_*")


def in_child(function, *args):
    process = mp.get_context("fork").Process(target=function, args=args)
    process.start()
    process.join(30)
    assert process.exitcode == 0


def test_share_memory_keeps_values_and_aliases():
    x = pb.arange(4.0, requires_grad=True)
    view, alias = x.detach()[1:], x.data
    assert x.share_memory_() is x and x.share_memory_() is x
    assert x.is_shared() and view.is_shared() and alias.is_shared() and not pb.ones(1).is_shared()
    view.fill_(5)
    assert x.tolist() == alias.tolist() == [0, 5, 5, 5] and x.requires_grad
    with pytest.raises(RuntimeError, match="not resizable"):
        x.untyped_storage().resize_(100)
    assert pb.empty(0).share_memory_().is_shared()


def test_share_memory_leaves_lent_memory_valid():
    x = pb.ones(3)
    array = x.numpy()
    x.share_memory_().fill_(2)
    assert array.tolist() == [1, 1, 1] and x.numpy().tolist() == [2, 2, 2]


def test_forked_child_writes_to_shared_memory_alone():
    shared, own = pb.zeros(3).share_memory_(), pb.zeros(3)
    module = pb.nn.Linear(2, 2)
    assert module.share_memory() is module and all(p.is_shared() for p in module.parameters())

    def write():
        with pb.no_grad():
            for tensor in (shared, own, *module.parameters()):
                tensor.fill_(7)

    in_child(write)
    assert shared.tolist() == [7] * 3 and own.tolist() == [0] * 3
    assert all((p == 7).all() for p in module.parameters())


def test_names_are_removed_with_the_tensors():
    before = set(names())
    x = pb.zeros(5).share_memory_()
    assert len(set(names()) - before) == 1
    in_child(lambda: None)  # a child has no reference to what it inherited
    assert len(set(names()) - before) == 1
    del x
    gc.collect()
    assert set(names()) <= before


def send_batches(queue, count):
    for number in range(count):
        base = pb.full((6,), float(number))
        queue.put({"x": base[:3], "y": base[3:], "n": number, "w": pb.nn.Parameter(base)})


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_queue_sends_memory(method):
    before = set(names())
    context = mp.get_context(method)
    queue = context.Queue()
    worker = context.Process(target=send_batches, args=(queue, 3))
    worker.start()
    for number in range(3):
        batch = queue.get(timeout=60)
        assert batch["x"].tolist() == [number] * 3 and batch["n"] == number
        assert batch["x"].untyped_storage() is batch["y"].untyped_storage()
        assert batch["x"].is_shared() and type(batch["w"]) is pb.nn.Parameter
        assert (
            batch["w"].requires_grad
            and batch["w"].untyped_storage() is batch["x"].untyped_storage()
        )
    worker.join(30)
    assert worker.exitcode == 0
    del batch
    gc.collect()
    assert set(names()) <= before


def test_receiver_and_sender_have_one_memory():
    context = mp.get_context("fork")
    mine, theirs = context.Pipe()
    x = pb.zeros(2)
    mine.send(x)

    def receive_and_write():
        received = theirs.recv()
        received.fill_(3)
        theirs.send(received)

    in_child(receive_and_write)
    assert x.tolist() == [3, 3] and x.is_shared()
    back = mine.recv()
    back.fill_(4)
    assert x.tolist() == [4, 4]


def test_child_sends_what_its_parent_has_freed():
    context = mp.get_context("fork")
    x = pb.ones(2).share_memory_()
    mine, theirs = context.Pipe()

    def wait_and_send(x):
        theirs.recv()
        theirs.send(x)
        theirs.recv()

    child = context.Process(target=wait_and_send, args=(x,))
    child.start()
    child._args = ()
    del x
    gc.collect()
    mine.send("freed")
    assert mine.recv().tolist() == [1, 1]
    mine.send("received")
    child.join(30)
    assert child.exitcode == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: pb.arange(4).to(pb.bfloat16)[1:],
        lambda: pb.ones(2, dtype=pb.complex64).conj(),
        lambda: pb.zeros(2, 3).t(),
        lambda: pb.ones(2, device="meta"),
        lambda: pb.ones(2, requires_grad=True),
        lambda: pb.ones(3).untyped_storage(),
    ],
)
def test_pipe_keeps_what_is_sent(make):
    sent = make()
    mine, theirs = mp.Pipe()
    mine.send(sent)
    received = theirs.recv()
    assert type(received) is type(sent) and received.device == sent.device
    if isinstance(sent, pb.Tensor):
        assert received.dtype == sent.dtype and received.stride() == sent.stride()
        assert received.is_conj() == sent.is_conj() and received.requires_grad == sent.requires_grad
    if sent.device.type != "meta":
        assert received.tolist() == sent.tolist()


def test_tensor_with_history_is_not_sent():
    mine, _ = mp.Pipe()
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        mine.send(pb.ones(2, requires_grad=True) * 2)


def test_no_space_is_an_error(monkeypatch):
    def refuse(number, start, length):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    before = names()
    with pytest.raises(RuntimeError, match=r"unable to allocate 4 bytes .*No space left on device"):
        pb.ones(1).share_memory_()
    assert names() == before


SCRIPT = """
import os, pullback as pb, pullback.multiprocessing as mp

def send(queue):
    for _ in range(3):
        queue.put(pb.ones(4))

kept = pb.ones(3).share_memory_()
context = mp.get_context("{method}")
if __name__ == "__main__":
    queue = context.Queue()
    worker = context.Process(target=send, args=(queue,))
    worker.start()
    print(queue.get().tolist(), flush=True)
    worker.join()
    from pullback.multiprocessing.blocks import _tree
    print(_tree(), flush=True)
    {end}
"""


@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), 9)"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_nothing_is_left_behind(tmp_path, method, end):
    """Not after a normal end with messages that nobody received, nor after a kill."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT.format(method=method, end=end)))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    values, tree = done.stdout.split("\n")[:2]
    assert values == "[1.0, 1.0, 1.0, 1.0]"
    assert glob.glob(f"/dev/shm/pb_{tree}_*") == []
    if not end:
        assert (done.returncode, done.stderr) == (0, "")


def fail(number, how):
    if number == 1 and how == "raise":
        raise ValueError("boo")
    if number == 1:
        os._exit(3)


@pytest.mark.parametrize(
    ("how", "error", "text"),
    [
        (
            "raise",
            mp.ProcessRaisedException,
            "(?s)Process 1 terminated with the following error:.*boo",
        ),
        ("exit", mp.ProcessExitedException, "process 1 terminated with exit code 3"),
    ],
)
def test_spawn_raises_what_a_process_raised(how, error, text):
    with pytest.raises(error, match=text) as caught:
        mp.start_processes(fail, (how,), nprocs=2, start_method="fork")
    assert caught.value.error_index == 1 and caught.value.error_pid > 0
    assert mp.start_processes(fail, ("raise",), nprocs=1, start_method="fork") is None


def test_sharing_strategies():
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    mp.set_sharing_strategy("file_system")
    with pytest.raises(AssertionError, match="invalid sharing strategy 'x'"):
        mp.set_sharing_strategy("x")
