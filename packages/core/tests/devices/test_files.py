"""Storages and files of a device whose memory is not the host's."""

import io

import pytest

import pullback as pb
import pullback.multiprocessing as mp

NAME = "async"
HOST = pb.get_default_device().type

FORMATS = [{}, {"_use_new_zipfile_serialization": False}]


def test_storage_of_a_device():
    x = pb.arange(6.0, device=NAME)
    storage = x.untyped_storage()
    assert storage is x[2:].untyped_storage() and storage.device == x.device
    assert storage.nbytes() == 24 and not storage.is_shared()
    assert storage.cpu().tolist() == pb.arange(6.0).untyped_storage().tolist() == storage.tolist()
    storage.resize_(1000)
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    x[2:].untyped_storage().fill_(0)
    assert x.tolist() == [0] * 6
    with pytest.raises(RuntimeError, match="share_memory_: only available on CPU"):
        x.share_memory_()
    assert storage.to(device=HOST).device.type == HOST


@pytest.mark.parametrize("options", FORMATS, ids=["zip", "legacy"])
def test_file_with_tensors_of_a_device(options):
    x = pb.arange(6.0, device=NAME)
    file = io.BytesIO()
    pb.save([x, x[2:], pb.ones(2)], file, **options)

    def load(where=None):
        file.seek(0)
        return pb.load(file, map_location=where)

    whole, part, host = load()
    assert whole.device == x.device and host.device.type == HOST
    assert whole.untyped_storage() is part.untyped_storage()
    assert whole.tolist() == [0, 1, 2, 3, 4, 5] and part.tolist() == [2, 3, 4, 5]
    assert {t.device.type for t in load("cpu")} == {HOST}
    for where in (NAME, f"{NAME}:1", pb.device(NAME, 1), {"cpu": NAME}):
        found = load(where)
        assert {t.device.type for t in found} == {NAME}
        assert found[0].tolist() == [0, 1, 2, 3, 4, 5] and found[2].tolist() == [1, 1]
    assert load(f"{NAME}:1")[2].device == pb.device(NAME, 1)


def test_pipe_copies_tensors_of_a_device():
    sender, receiver = mp.Pipe()
    sender.send(pb.arange(3.0, device=NAME))
    assert receiver.recv().tolist() == [0, 1, 2]
