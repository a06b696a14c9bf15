"""Checkpoints: written by all ranks, read with tensors cut in other ways; errors on every rank."""

import math
import os
import shutil
import tempfile

import pullback as pb
import pullback_distributed as dist
from pullback_distributed import checkpoint as dcp
from pullback_distributed.checkpoint import folders, saving

DTYPES = (
    *(pb.bool, pb.uint8, pb.int8, pb.int16, pb.int32, pb.int64, pb.uint16, pb.uint32, pb.uint64),
    *(pb.float16, pb.bfloat16, pb.float32, pb.float64, pb.complex32, pb.complex64, pb.complex128),
)


def whole(shape, dtype, first=0):
    count = math.prod(shape)
    found = (pb.arange(count) + first) % (2 if dtype == pb.bool else 100)
    found = found.to(dtype)
    return (found + 1j * found if dtype.is_complex else found).to(dtype).view(shape)


def same(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape, (found, expected)
    assert found.tolist() == expected.tolist(), (found, expected)


def bounds(length, parts, k):
    """Return where part k of a dim begins and ends: uneven, empty where there are more parts."""
    step = math.ceil(length / parts)
    return min(k * step, length), min((k + 1) * step, length)


def cut(tensor, dim, rank, size):
    start, stop = bounds(tensor.shape[dim], size, rank)
    local = tensor.narrow(dim, start, stop - start).clone()
    return dcp.Shard.along(local, tensor.shape, dim, start)


def refuses(kind, *texts, of):
    """Check that a call raises on this rank, and that the error says what it should."""
    try:
        of()
    except kind as error:
        for text in texts:
            assert text in str(error), (text, error)
    else:
        raise AssertionError(f"not refused: {texts}")


def check_cuts(folder, rank, size):
    state, tensors = {}, {}
    for dtype in DTYPES:
        for shape in ((5, 3), (2, 7), (1,), (3, 2, 4)):
            name = f"{dtype}{shape}"
            tensors[name] = whole(shape, dtype)
            state[name] = cut(tensors[name], 0, rank, size)
        tensors[f"{dtype} all"] = state[f"{dtype} all"] = whole((3, 2), dtype, 7).t()
        tensors[f"{dtype} number"] = state[f"{dtype} number"] = whole((), dtype, 3)
        tensors[f"{dtype} empty"] = state[f"{dtype} empty"] = whole((0, 4), dtype)
    dcp.save(state, checkpoint_id=folder)
    assert dcp.is_complete(folder)
    for dim in (0, -1):
        found = {
            name: cut(pb.zeros_like(t), dim, size - 1 - rank, size) if t.dim() else pb.zeros_like(t)
            for name, t in tensors.items()
        }
        dcp.load(found, checkpoint_id=folder)
        for name, t in tensors.items():
            if t.dim():
                same(found[name].tensor, cut(t, dim, size - 1 - rank, size).tensor)
            else:
                same(found[name], t)
    found = {name: pb.zeros_like(t) for name, t in tensors.items()}
    dcp.load(found, checkpoint_id=folder)
    for name, t in tensors.items():
        same(found[name], t)
    middle = pb.zeros(7, 9)[2:5:2, ::4]  # neither whole nor contiguous
    tile = dcp.Shard(middle[:, :2], (5, 3), (2, 1))
    dcp.load({f"{pb.float32}(5, 3)": tile}, checkpoint_id=folder)
    same(tile.tensor, whole((5, 3), pb.float32)[2:4, 1:3])
    everything = {}
    dcp.load(everything, checkpoint_id=folder)
    assert list(everything) == list(tensors)
    for name, t in tensors.items():
        same(everything[name], t)


def trained():
    pb.manual_seed(3)
    model = pb.nn.Sequential(pb.nn.Linear(4, 8), pb.nn.BatchNorm1d(8), pb.nn.Linear(8, 2))
    model[0].extra = model[0].weight  # tied
    optimizer = pb.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        model(pb.randn(6, 4)).square().sum().backward()
        optimizer.step()
    return model, optimizer


def check_training(folder, rank):
    model, optimizer = trained()
    values = {"step": 12, "name": "über", "none": None, "far": -math.inf, "pair": (1, [2.5, True])}
    values |= {"z": 1 - 2j, "raw": b"\0\xff", "dtype": pb.bfloat16, "nothing": {}, "list": []}
    state = {
        "model": model.state_dict(),
        "optim": optimizer.state_dict(),
        "values": values,
        "each": [{"x": pb.ones(1)}, pb.zeros(2), 5],
    }
    dcp.save(state, checkpoint_id=folder)
    pb.manual_seed(100 + rank)
    other = pb.nn.Sequential(pb.nn.Linear(4, 8), pb.nn.BatchNorm1d(8), pb.nn.Linear(8, 2))
    other[0].extra = other[0].weight
    fresh = pb.optim.Adam(other.parameters(), lr=1.0)
    found = {
        "model": other,
        "optim": fresh,
        "values": dict.fromkeys(values, 0) | {"nothing": None},
        "each": [{"x": pb.zeros(1)}, pb.ones(2), 0],
    }
    dcp.load(found, checkpoint_id=folder)
    assert found["model"] is other and found["values"] == values, found["values"]
    assert [type(v) for v in found["values"].values()] == [type(v) for v in values.values()]
    for name, t in model.state_dict().items():
        same(other.state_dict()[name], t)
    wanted = optimizer.state_dict()
    assert fresh.state_dict()["param_groups"] == wanted["param_groups"]
    for number, each in wanted["state"].items():
        for name, t in each.items():
            same(fresh.state_dict()["state"][number][name], t)
    assert found["each"][0]["x"] == 1 and not found["each"][1].any() and found["each"][2] == 5


def check_share(folder, rank, size):
    """All ranks write about the same, also of one large tensor."""
    state = {"large": whole((1024, 1024), pb.float32), "b": pb.ones(200_000), "c": pb.ones(3)}
    dcp.save(state, checkpoint_id=folder)
    sizes = [p.stat().st_size for p in os.scandir(folder) if p.name.endswith(".safetensors")]
    total = sum(t.nbytes for t in state.values())
    assert len(sizes) == size and max(sizes) < 1.3 * total / size, sizes
    found = {"large": dcp.Shard.along(pb.zeros(10, 1024), (1024, 1024), 0, 1000)}
    dcp.load(found, checkpoint_id=folder)
    same(found["large"].tensor, state["large"][1000:1010])


def check_refusals(folder, rank, size):
    """What one rank gets wrong is raised on all, before anything is changed."""
    state = {"w": whole((4, 6), pb.float32), "n": 1}
    dcp.save({"w": cut(state["w"], 0, rank, size), "n": 1}, checkpoint_id=folder)
    last = rank == size - 1

    def loads(other):
        mine = {"w": pb.zeros(4, 6), "n": 0}
        try:
            dcp.load({**mine, **other} if last else mine, checkpoint_id=folder)
        finally:
            assert not mine["w"].any() and mine["n"] == 0

    def saves(other):
        dcp.save({"a": other if last else 0}, checkpoint_id=folder)

    double = pb.zeros(4, 6, dtype=pb.float64)
    refuses(RuntimeError, "Missing key", "'x'", folder, of=lambda: loads({"x": pb.ones(1)}))
    refuses(ValueError, "(4, 6)", "(6, 4)", "'w'", of=lambda: loads({"w": pb.zeros(6, 4)}))
    refuses(ValueError, "float32", "float64", "'w'", of=lambda: loads({"w": double}))
    refuses(ValueError, "'w'", "is a tensor", of=lambda: loads({"w": 3}))
    refuses(ValueError, "'n'", "type int", of=lambda: loads({"n": pb.zeros(1)}))
    refuses(ValueError, "'n'", "but a dict", of=lambda: loads({"n": {}}))
    refuses(TypeError, "'a'", "set", of=lambda: saves(set()))
    refuses(TypeError, "'a'", "tuple", of=lambda: saves((pb.ones(1), 2)))
    refuses(TypeError, "'a'", "1.5", of=lambda: saves({1.5: 2}))
    refuses(ValueError, "'a'", "meta", of=lambda: saves(pb.ones(1, device="meta")))
    refuses(ValueError, "'a.b.c'", of=lambda: saves({"b.c": 1, "b": {"c": 2}}))
    refuses(ValueError, "'a'", "tensor", "plain value", of=lambda: saves(pb.ones(1)))
    path = 5 if last else folder
    refuses(TypeError, "checkpoint_id", of=lambda: dcp.load({}, checkpoint_id=path))
    given = [] if last else {}
    refuses(TypeError, "state_dict", of=lambda: dcp.load(given, checkpoint_id=folder))
    refuses(
        ValueError, "'lr'", "on one rank", of=lambda: dcp.save({"lr": rank}, checkpoint_id=folder)
    )
    refuses(
        ValueError,
        "'w'",
        "not a whole tensor",
        of=lambda: dcp.save({"w": cut(pb.ones(20), 0, rank, size + 1)}, checkpoint_id=folder),
    )
    refuses(
        ValueError,
        "'w'",
        "overlap",
        of=lambda: dcp.save({"w": dcp.Shard(pb.ones(2), (9,), (rank,))}, checkpoint_id=folder),
    )
    refuses(
        FileNotFoundError,
        "nowhere",
        of=lambda: dcp.load({"n": 0}, checkpoint_id=os.path.join(folder, "nowhere")),
    )


def check_failed_write(folder, rank, size):
    """A rank that cannot write: all raise, the old checkpoint stays, nothing is left behind."""
    dcp.save({"w": cut(pb.ones(8), 0, rank, size)}, checkpoint_id=folder)
    write = saving.write_file

    def full(*arguments):
        write(*arguments)
        raise OSError(28, "No space left on device", arguments[1])

    if rank == size - 1:
        saving.write_file = full
    refuses(
        OSError,
        "No space left on device",
        of=lambda: dcp.save({"w": cut(pb.zeros(8), 0, rank, size)}, checkpoint_id=folder),
    )
    saving.write_file = write
    publish = folders.publish
    folders.publish = lambda made, target: publish(made + "x", target)
    refuses(
        FileNotFoundError,
        ".new-",
        of=lambda: dcp.save({"w": cut(pb.zeros(8), 0, rank, size)}, checkpoint_id=folder),
    )
    folders.publish = publish
    dist.barrier()  # rank 0 cleans up
    parent, name = os.path.split(folder)
    assert not [each for each in os.listdir(parent) if each.startswith(f".{name}.")]
    found = {"w": pb.zeros(8)}
    dcp.load(found, checkpoint_id=folder)
    same(found["w"], pb.ones(8))


def check_damage(folder, rank, size):
    dcp.save({"w": cut(pb.ones(8), 0, rank, size)}, checkpoint_id=folder)
    path = os.path.join(folder, "rank-00001.safetensors")
    with open(path, "rb") as file:
        data = file.read()
    dist.barrier()

    def damage(content):
        dist.barrier()
        if rank == 0:
            with open(path, "wb") as file:
                file.write(content)
        dist.barrier()

    def loads():
        dcp.load({"w": pb.zeros(8)}, checkpoint_id=folder)

    for content in (data[:-3], b"", b"\xff" * len(data), data.replace(b".new-", b".old-")):
        damage(content)
        refuses(RuntimeError, path, "damaged", "'w'", of=loads)
    damage(data)
    loads()
    dist.barrier()
    if rank == 0:
        os.remove(path)
    dist.barrier()
    assert not dcp.is_complete(folder)
    refuses(FileNotFoundError, path, "'w'", of=loads)
    if size == 2:
        dcp.load({"w": cut(pb.zeros(8), 0, 0, size)}, checkpoint_id=folder)  # needs the other file
    index = os.path.join(folder, "index.json")
    with open(index) as file:
        text = file.read()
    for wrong in (text[:-9], text.replace('"sizes":[', '"sizes":[1'), "[]", '{"format":1}'):
        dist.barrier()
        if rank == 0:
            with open(index, "w") as file:
                file.write(wrong)
        dist.barrier()
        refuses(RuntimeError, index, "damaged or incomplete", of=loads)
    dist.barrier()


def check_group(folder, rank, size):
    """Only the members of a group take part; each rank alone has a checkpoint of its own."""
    even = dist.new_group(range(0, size, 2))
    if rank % 2 == 0:
        members = (size + 1) // 2
        state = {"w": cut(whole((6,), pb.int64), 0, rank // 2, members)}
        dcp.save(state, checkpoint_id=folder, process_group=even)
    dist.barrier()
    found = {"w": pb.zeros(6, dtype=pb.int64)}
    dcp.load(found, checkpoint_id=folder)
    same(found["w"], whole((6,), pb.int64))
    own = {f"rank{rank}": {"w": pb.full((2,), float(rank))}, "all": pb.ones(2)}  # as in a pipeline
    dcp.save(own, checkpoint_id=folder)
    found = {f"rank{(rank + 1) % size}": None}
    dcp.load(found, checkpoint_id=folder)
    same(found[f"rank{(rank + 1) % size}"]["w"], pb.full((2,), float((rank + 1) % size)))


def main():
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    shared = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(shared, 0)
    parent = os.path.realpath(shared[0])

    def folder(name):
        return os.path.join(parent, name)

    check_cuts(folder("cuts"), rank, size)
    check_training(folder("training"), rank)
    check_share(folder("share"), rank, size)
    check_refusals(folder("refusals"), rank, size)
    check_failed_write(folder("failed"), rank, size)
    check_damage(folder("damage"), rank, size)
    check_group(folder("group"), rank, size)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(parent)
    dist.destroy_process_group()


main()
