"""``save`` and ``load``: what comes back, where it goes, and how files are written."""

import collections
import io
import os
import pathlib
import pickle
import stat
import struct
import subprocess
import sys
import textwrap
import zipfile
import zlib

import numpy as np
import pytest
from pullback._c.interop.checksum import crc32

import pullback as pb
from pullback import serialization
from pullback.storage import typed as typed_storages


def saved(value, **arguments):
    file = io.BytesIO()
    pb.save(value, file, **arguments)
    file.seek(0)
    return file


def again(value, load=None, **arguments):
    return pb.load(saved(value, **arguments), **(load or {}))


FORMATS = [{}, {"_use_new_zipfile_serialization": False}]
FORMATS += [{**options, "pickle_protocol": 4} for options in FORMATS]


@pytest.mark.parametrize("options", FORMATS, ids=["zip", "legacy", "zip-4", "legacy-4"])
@pytest.mark.parametrize("dtype", pb._dtypes(), ids=str)
def test_tensor_of_each_dtype_comes_back(dtype, options):
    x = pb.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    for sent in (x, x.t(), x[1:], x[:, 1], pb.empty(0, 3, dtype=dtype), x[0, 1], x.expand(2, 2, 3)):
        got = again(sent, **options)
        assert type(got) is pb.Tensor and got.dtype == dtype and got.tolist() == sent.tolist()
        assert got.stride() == sent.stride() and got.storage_offset() == sent.storage_offset()
        assert got.untyped_storage().nbytes() == sent.untyped_storage().nbytes()


@pytest.mark.parametrize("options", FORMATS[:2], ids=["zip", "legacy"])
def test_objects_come_back(options):
    layer = pb.nn.Linear(2, 3)
    layer.weight.label = "kept"
    value = collections.OrderedDict(
        parameter=layer.weight,
        state=layer.state_dict(),
        module_buffer=pb.nn.Buffer(pb.ones(1)),
        conj=pb.tensor([1 + 2j]).conj(),
        imag=pb.tensor([1 + 2j]).conj().imag,
        grad=pb.ones(2, requires_grad=True),
        meta=pb.ones(2, 3, device="meta"),
        dtypes=[pb.float16, pb.bool],
        device=pb.device("cpu"),
        size=pb.Size([1, 2]),
        plain=[
            None,
            True,
            3,
            -(10**30),
            2.5,
            1j,
            "text",
            b"bytes",
            bytearray(b"x"),
            (1,),
            {2},
            {3: 4},
        ],
        counted=collections.Counter("aab"),
    )
    got = again(value, **options)
    assert type(got) is collections.OrderedDict and list(got) == list(value)
    assert type(got["parameter"]) is pb.nn.Parameter and got["parameter"].label == "kept"
    assert got["parameter"].requires_grad and pb.equal(got["parameter"], layer.weight)
    assert got["parameter"].untyped_storage() is got["state"]["weight"].untyped_storage()
    assert got["state"]._metadata == layer.state_dict()._metadata
    assert got["module_buffer"]._is_buffer and got["module_buffer"].persistent
    assert got["conj"].is_conj() and got["conj"].tolist() == [1 - 2j]
    assert got["imag"].is_neg() and got["imag"].tolist() == [-2]
    assert got["grad"].requires_grad and got["grad"].is_leaf
    assert got["meta"].is_meta and got["meta"].shape == (2, 3)
    for name in ("dtypes", "device", "size", "plain", "counted"):
        assert got[name] == value[name] and type(got[name]) is type(value[name])


@pytest.mark.parametrize("options", FORMATS[:2], ids=["zip", "legacy"])
def test_views_share_memory_again(options, monkeypatch):
    monkeypatch.setattr(typed_storages, "_warned", True)
    base = pb.arange(6.0)
    whole, part, storage, typed = again(
        [base, base[2:4].t(), base[:1].data, base.view(2, 3)], **options
    )
    part.fill_(9)
    assert whole.tolist() == [0, 1, 9, 9, 4, 5] == typed.flatten().tolist()
    assert storage.untyped_storage() is whole.untyped_storage()
    got = again({"bytes": base.clone().untyped_storage(), "typed": pb.ones(2).storage()}, **options)
    assert bytes(got["bytes"].tolist()) == np.arange(6, dtype="f4").tobytes()
    assert got["typed"].tolist() == [1, 1] and got["typed"].dtype == pb.float32


def test_one_memory_of_two_dtypes_is_not_saved():
    x = pb.ones(2)
    with pytest.raises(RuntimeError, match="view the same data as different types"):
        saved([x, x.view(pb.int32)])


def test_optimizer_like_state_comes_back():
    state = {0: {"step": pb.tensor(3.0), "exp_avg": pb.ones(2)}, 1: {"step": 4}}
    groups = [{"lr": 1e-3, "betas": (0.9, 0.999), "params": [0, 1], "foreach": None}]
    got = again({"state": state, "param_groups": groups})
    assert got["param_groups"] == groups and got["state"][0]["exp_avg"].tolist() == [1, 1]


def test_subclass_comes_back_where_it_is_allowed():
    sent = pb.ones(2).as_subclass(Labelled)
    sent.label = [1]
    with pytest.raises(
        pickle.UnpicklingError, match=r"GLOBAL .*Labelled was not an allowed global"
    ):
        again(sent)
    with serialization.safe_globals([Labelled]):
        got = again(sent)
    assert type(got) is Labelled and got.label == [1] and got.tolist() == [1, 1]
    assert serialization.get_safe_globals() == []


class Labelled(pb.Tensor):
    pass


def test_module_comes_back_without_weights_only():
    model = pb.nn.Sequential(pb.nn.Linear(2, 3), pb.nn.ReLU())
    file = saved(model)
    assert serialization.get_unsafe_globals_in_checkpoint(file)[0].startswith("torch.nn.modules.")
    file.seek(0)
    with pytest.raises(
        pickle.UnpicklingError, match=r"(?s)Weights only load failed.*weights_only=False"
    ):
        pb.load(file)
    file.seek(0)
    got = pb.load(file, weights_only=False)
    x = pb.randn(4, 2)
    assert pb.equal(got(x), model(x)) and type(got[0]) is pb.nn.Linear


def test_numpy_values_are_loaded_where_they_are_allowed():
    sent = [np.float64(3), np.arange(3)]
    with pytest.raises(pickle.UnpicklingError, match="numpy"):
        again(sent)
    core = np._core.multiarray
    kinds = [np.ndarray, np.dtype, type(np.dtype("f8")), type(np.dtype("i8"))]
    with serialization.safe_globals([*kinds, core.scalar, core._reconstruct]):
        got = again(sent)
    assert got[0] == 3 and got[1].tolist() == [0, 1, 2]
    got = again(sent, load={"weights_only": False})
    assert got[0] == 3 and got[1].tolist() == [0, 1, 2]


# ---- archives ------------------------------------------------------------------------------------


def test_archive_is_a_zip_of_torchs_form(tmp_path):
    path = tmp_path / "model.v1.pt"
    sent = {"x": pb.arange(5, dtype=pb.int16), "y": pb.ones(100)}
    pb.save(sent, path)
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = [name.removeprefix("model.v1/") for name in archive.namelist()]
        assert names == [
            *("data.pkl", ".format_version", ".storage_alignment", "byteorder", "data/0", "data/1"),
            *("version", ".data/serialization_id"),
        ]
        assert archive.read("model.v1/version") == b"3\n"
        assert archive.read("model.v1/byteorder").decode() == sys.byteorder
        assert archive.read("model.v1/data/0") == np.arange(5, dtype="i2").tobytes()
        assert len(archive.read("model.v1/.data/serialization_id")) == 40
        for entry in archive.infolist():
            name, extra = struct.unpack_from("<2H", data, entry.header_offset + 26)
            assert (entry.header_offset + 30 + name + extra) % 64 == 0
            assert zlib.crc32(archive.read(entry)) == entry.CRC


@pytest.mark.parametrize("size", [*range(70), 127, 128, 129, 1000, 65537])
def test_checksum_is_that_of_zlib(size):
    data = np.random.default_rng(size).bytes(size)
    for before in (0, 1, 2**32 - 1, 0xDEADBEEF):
        assert crc32(data, before) == zlib.crc32(data, before)
    assert crc32(memoryview(data)[size // 3 :]) == zlib.crc32(data[size // 3 :])


def test_compressed_and_prefixed_archives_are_read(tmp_path):
    data = saved({"x": pb.arange(1000)}).getvalue()
    squeezed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(squeezed, "w", 8) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    path = tmp_path / "x.pt"
    path.write_bytes(squeezed.getvalue())
    for arguments in ({}, {"mmap": True}):
        assert pb.load(path, **arguments)["x"].sum() == 499500
    file = io.BytesIO(b"before" + data)
    file.seek(6)
    assert pb.load(file)["x"].sum() == 499500


@pytest.mark.parametrize("order", ["big", "little"])
def test_byte_order_of_a_file(order):
    values = np.array([1, 2, 300], dtype=">i4" if order == "big" else "<i4")
    file = io.BytesIO()
    old = saved(pb.tensor([1, 2, 300], dtype=pb.int32))
    with zipfile.ZipFile(old) as source, zipfile.ZipFile(file, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            data = order.encode() if name.endswith("byteorder") else data
            target.writestr(name, values.tobytes() if name.endswith("data/0") else data)
    file.seek(0)
    assert pb.load(file).tolist() == [1, 2, 300]


def test_byte_order_that_a_file_does_not_state():
    file = saved(pb.tensor([1], dtype=pb.int16), _disable_byteorder_record=True)
    try:
        serialization.set_default_load_endianness(serialization.LoadEndianness.BIG)
        assert pb.load(file).tolist() == [256 if sys.byteorder == "little" else 1]
    finally:
        serialization.set_default_load_endianness(None)
    with pytest.raises(TypeError, match="Invalid argument type"):
        serialization.set_default_load_endianness("big")


def test_mapped_file_is_a_private_copy(tmp_path):
    path = tmp_path / "x.pt"
    pb.save({"x": pb.arange(6.0), "n": 1}, path)
    got = pb.load(path, mmap=True)["x"]
    assert got.untyped_storage().filename == str(path)
    got.fill_(5)
    assert pb.load(path)["x"].tolist() == [0, 1, 2, 3, 4, 5]
    model = pb.nn.Linear(2, 3, device="meta")
    pb.save(pb.nn.Linear(2, 3).state_dict(), path)
    model.load_state_dict(pb.load(path, mmap=True), assign=True)
    assert model.weight.untyped_storage().filename == str(path)
    model(pb.ones(1, 2)).sum().backward()
    with pytest.raises(
        ValueError, match=r"f must be a string or os.PathLike object when mmap=True"
    ):
        pb.load(io.BytesIO(path.read_bytes()), mmap=True)
    pb.save(1, path, _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap can only be used with files saved with"):
        pb.load(path, mmap=True)


def test_mapped_file_that_is_shared(tmp_path):
    import mmap

    path = tmp_path / "x.pt"
    pb.save(pb.zeros(3), path)
    with serialization.set_default_mmap_options(mmap.MAP_SHARED):
        pb.load(path, mmap=True).fill_(2)
    assert serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    assert pb.load(path, mmap=True).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="wrong checksum"):  # it was written past the archive
        pb.load(path)


def test_skipped_data_is_not_read(tmp_path):
    with serialization.skip_data():
        file = saved(pb.ones(1000))
    assert pb.load(file).tolist() == [0] * 1000
    path = tmp_path / "x.pt"
    pb.save(pb.ones(4), path)
    with serialization.skip_data():
        assert pb.load(path).shape == (4,)


def test_checksums_may_be_left_out():
    serialization.set_crc32_options(False)
    try:
        file = saved(pb.ones(3))
    finally:
        serialization.set_crc32_options(True)
    with zipfile.ZipFile(file) as archive:
        assert {entry.CRC for entry in archive.infolist()} == {0}
    file.seek(0)
    assert pb.load(file).tolist() == [1, 1, 1]


# ---- where storages go ---------------------------------------------------------------------------


def test_map_location():
    for options in FORMATS[:2]:
        file = saved([pb.arange(3.0)], **options)

        def load(where, file=file):
            file.seek(0)
            return pb.load(file, map_location=where)[0]

        for where in (
            None,
            "cpu",
            pb.device("cpu"),
            {"cpu": "cpu"},
            {},
            b"cpu",
            lambda s, name: None,
        ):
            assert load(where).tolist() == [0, 1, 2]
        for where in ("meta", {"cpu": "meta"}, pb.device("meta")):
            assert load(where).is_meta and load(where).shape == (3,)
        seen = []

        def watch(storage, name, seen=seen):
            seen.append((storage.nbytes(), name))
            return storage

        assert load(watch).tolist() == [0, 1, 2]
        assert seen == [(12, "cpu")]
        with pytest.raises(
            RuntimeError, match=r"don't know how to restore .* .tagged with nosuch."
        ):
            load("nosuch")
        with pytest.raises(TypeError, match="'int' object is not callable"):
            load(5)
        with pytest.raises(TypeError, match="map_location returned int, not a storage"):
            load(lambda s, name: 5)
        assert load("ref").device.type == "ref" and load("ref").tolist() == [0, 1, 2]
        with pytest.raises(
            RuntimeError, match=r"the memory|requiring a storage size|bytes instead of"
        ):
            load(lambda s, name: pb.UntypedStorage(4))


def test_registered_package_names_locations():
    seen = []

    def tag(storage):
        return "tape" if storage.nbytes() == 12 else None

    def restore(storage, location):
        if location == "tape":
            seen.append(location)
            return storage
        return None

    serialization.register_package(1, tag, restore)
    try:
        assert again([pb.ones(3), pb.ones(4)])[0].tolist() == [1, 1, 1] and seen == ["tape"]
    finally:
        from pullback.serialization import locations

        locations._packages[:] = [p for p in locations._packages if p[2] is not tag]


# ---- files ---------------------------------------------------------------------------------------


def test_paths_and_file_objects(tmp_path):
    for path in (tmp_path / "a.pt", str(tmp_path / "b.pt"), pathlib.Path(tmp_path, "ü.pt")):
        pb.save([1], path)
        assert pb.load(path) == [1]
    with open(tmp_path / "c.pt", "wb+") as file:
        pb.save(2, file)
        file.seek(0)
        assert pb.load(file) == 2

    class OnlyWrites:
        def __init__(self):
            self.parts = []

        def write(self, data):
            self.parts.append(bytes(data))

    file = OnlyWrites()
    pb.save(pb.ones(2), file)
    assert pb.load(io.BytesIO(b"".join(file.parts))).tolist() == [1, 1]
    for wrong, text in ((5, "'int' object has no attribute 'seek'"), (OnlyWrites(), "seek")):
        with pytest.raises(AttributeError, match=text):
            pb.load(wrong)
    with pytest.raises(
        AttributeError, match="expected 'f' to be string, path, or a file-like object"
    ):
        pb.save(1, 5)
    with pytest.raises(RuntimeError, match=r"Parent directory .*none does not exist"):
        pb.save(1, tmp_path / "none" / "x.pt")
    with pytest.raises(FileNotFoundError):
        pb.load(tmp_path / "none")
    with pytest.raises(EOFError):
        pb.load(io.BytesIO())
    with pytest.raises(TypeError, match="unexpected keyword argument 'foo'"):
        pb.load(tmp_path / "a.pt", foo=1)
    with pytest.raises(
        RuntimeError, match="Can not safely load weights when explicit pickle_module"
    ):
        pb.load(tmp_path / "a.pt", pickle_module=pickle)


def test_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.pt"
    pb.save("old", path)
    os.chmod(path, 0o640)
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
        pb.save([pb.ones(3), lambda: None], path)

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        pb.save("new", path)
    monkeypatch.undo()
    assert pb.load(path) == "old" and os.listdir(tmp_path) == ["x.pt"]
    link = tmp_path / "link.pt"
    link.symlink_to(path)
    pb.save("new", link)
    assert link.is_symlink() and pb.load(path) == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


KILLED = """
import os, sys, pullback as pb
from pullback.serialization import zip_format
path = sys.argv[1]
class Killing(zip_format.ZipWriter):
    def record(self, name, data):
        super().record(name, data)
        if name == "data/0":
            self.file.flush()
            os.kill(os.getpid(), 9)
import pullback.serialization.saving as saving
saving.ZipWriter = Killing
pb.save(pb.zeros(100000), path)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it kills itself")
def test_killed_save_keeps_the_old_file(tmp_path):
    path = tmp_path / "x.pt"
    pb.save(pb.ones(3), path)
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(path)], timeout=120)
    assert done.returncode == -9
    assert pb.load(path).tolist() == [1, 1, 1]


def test_pickle_module_is_used():
    class Module:
        Unpickler = pickle.Unpickler

        class Pickler(pickle._Pickler):
            pass

    file = saved(pb.ones(2), pickle_module=Module)
    assert pb.load(file, weights_only=False, pickle_module=pickle).tolist() == [1, 1]


def test_chain_of_attributes_is_freed():
    x = pb.ones(1)
    for _ in range(100000):
        y = pb.ones(1)
        y.inner = x
        x = y
    del x, y


def test_version_of_a_module():
    check = serialization.check_module_version_greater_or_equal
    assert check(np, (2, 0)) and not check(np, (1000, 0))

    class Odd:
        __name__, __version__ = "odd", "a.b"

    with pytest.raises(RuntimeError, match=r"'Odd' module version string is malformed 'a.b'"):
        check(Odd, (1, 0))
    with pytest.warns(UserWarning, match="continuing assuming"):
        assert check(Odd, (1, 0), error_if_malformed=False)
