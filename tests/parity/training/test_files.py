"""Files in both directions between torch and here: archives, the older format, safetensors."""

import collections
import io

import numpy as np
import pytest

import pullback as pb

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

FORMATS = [{}, {"_use_new_zipfile_serialization": False}]
DTYPES = [dtype.name for dtype in pb._dtypes()]


def content(lib):
    """Return objects of one library that both have."""
    lib.manual_seed(3)
    base = lib.arange(12.0)
    layer = lib.nn.Sequential(lib.nn.Linear(3, 2), lib.nn.BatchNorm1d(2))
    parameter = lib.nn.Parameter(lib.ones(2))
    parameter.label = "kept"
    tensors = {name: lib.tensor([[0, 1, 1], [1, 0, 1]]).to(getattr(lib, name)) for name in DTYPES}
    return collections.OrderedDict(
        tensors=tensors,
        views=[base, base[3:7], base.view(3, 4).t(), base.view(3, 4)[:, 1], base[:1].expand(5)],
        empty=[lib.empty(0), lib.empty(3, 0, 2), lib.tensor(2.5)],
        lazy=[lib.tensor([1 + 2j]).conj(), lib.tensor([1 + 2j]).conj().imag],
        grads=[lib.ones(1, requires_grad=True), parameter, lib.nn.Parameter(lib.ones(1), False)],
        buffer=lib.nn.Buffer(lib.ones(2)),
        meta=lib.ones(2, 3, device="meta"),
        state=layer.state_dict(),
        types=[lib.float16, lib.bool, lib.device("cpu"), lib.Size([1, 2])],
        plain=[None, True, 2**70, 1.5, 1j, "ü", b"x", bytearray(b"y"), (1, (2,)), {1, 2}, {3: [4]}],
    )


def described(value):
    """Return a value of either library in a form that both have."""
    kind = type(value).__name__
    if kind in ("Tensor", "Parameter", "Buffer"):
        numbers = None
        if value.device.type != "meta":
            numbers = value.detach().resolve_conj().resolve_neg().to(_wide(value)).tolist()
        flags = value.requires_grad, value.is_conj(), value.is_neg(), getattr(value, "label", None)
        where = value.stride(), value.storage_offset(), value.device.type
        return kind, str(value.dtype).split(".")[1], tuple(value.shape), where, flags, numbers
    if isinstance(value, (dict, collections.OrderedDict)):
        items = [(key, described(item)) for key, item in value.items()]
        return kind, items, described(getattr(value, "_metadata", None))
    if isinstance(value, (list, tuple)):
        return kind, [described(item) for item in value]
    if kind in ("dtype", "device"):
        return kind, str(value).rsplit(".", 1)[-1]
    return kind, value


def _wide(value):
    return (
        value.dtype
        if str(value.dtype).split(".")[1] != "bfloat16"
        else type(value).float(value).dtype
    )


def memory(views):
    """Return which of several tensors share a storage, by the first that does."""
    places = [view.untyped_storage().data_ptr() for view in views]
    return [places.index(place) for place in places]


@pytest.mark.parametrize("mmap", [None, True])
@pytest.mark.parametrize("options", FORMATS, ids=["zip", "legacy"])
@pytest.mark.parametrize(("writer", "reader"), [(pb, torch), (torch, pb)], ids=["ours", "torchs"])
def test_file_of_one_loads_in_the_other(writer, reader, options, mmap, tmp_path):
    if mmap and options:
        pytest.skip("only archives are mapped")
    sent = content(writer)
    path = tmp_path / "model.pt"
    writer.save(sent, path, **options)
    got = reader.load(path, mmap=mmap, weights_only=True)
    assert described(got) == described(sent)
    assert memory(got["views"]) == memory(sent["views"])
    assert memory(got["state"].values()) == memory(sent["state"].values())
    back = io.BytesIO()
    reader.save(got, back, **options)
    back.seek(0)
    assert described(writer.load(back)) == described(sent)


def test_archives_are_laid_out_alike(tmp_path):
    import zipfile

    value = {"a": [1.0, "b"], "t": np.arange(5, dtype="i2")}
    found = []
    for lib in (pb, torch):
        path = tmp_path / "x.pt"
        lib.save({"a": value["a"], "t": lib.from_numpy(value["t"])}, path)
        with zipfile.ZipFile(path) as archive:
            found.append(
                {n: archive.read(n) for n in archive.namelist() if "serialization_id" not in n}
            )
    assert found[0] == found[1]


@pytest.mark.parametrize("options", FORMATS, ids=["zip", "legacy"])
def test_optimizer_state_of_torch_loads(options):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file, **options)
    file.seek(0)
    got = pb.load(file)
    assert described(got) == described(optimizer.state_dict())


@pytest.mark.parametrize("where", ["cpu", "meta", "device", "dict", "function"])
def test_map_location_is_that_of_torch(where):
    found = []
    for lib in (pb, torch):
        seen = []
        places = {
            "device": lib.device("meta"),
            "dict": {"cpu": "meta"},
            "function": lambda s, name, seen=seen: seen.append((s.nbytes(), name)) or s,
        }
        file = io.BytesIO()
        lib.save([lib.ones(3), lib.ones(2, dtype=lib.int64)], file)
        file.seek(0)
        got = lib.load(file, map_location=places.get(where, where))
        found.append((described(got), seen))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "action",
    [
        lambda lib, path: lib.load(path.parent / "none"),
        lambda lib, path: lib.load(5),
        lambda lib, path: lib.save(1, 5),
        lambda lib, path: lib.save(1, path.parent / "none" / "x"),
        lambda lib, path: lib.load(path, map_location="nosuch"),
        lambda lib, path: lib.load(path, map_location="cuda"),
        lambda lib, path: lib.load(path, pickle_module=__import__("pickle"), weights_only=True),
        lambda lib, path: lib.load(io.BytesIO(path.read_bytes()), mmap=True),
        lambda lib, path: lib.load(io.BytesIO(path.read_bytes()[:100])),
        lambda lib, path: lib.load(io.BytesIO(b"")),
        lambda lib, path: lib.save([x := lib.ones(2), x.view(lib.int32)], io.BytesIO()),
        lambda lib, path: lib.save([x := lib.ones(2), x.untyped_storage()], io.BytesIO()),
        lambda lib, path: lib.serialization.set_default_load_endianness("x"),
    ],
)
def test_errors_are_of_torchs_class(action, tmp_path):
    errors = []
    for lib in (pb, torch):
        path = tmp_path / "x.pt"
        lib.save(lib.ones(3), path)
        with pytest.raises(Exception) as caught:
            action(lib, path)
        errors.append(type(caught.value))
    assert errors[0] is errors[1]


@pytest.mark.parametrize(("writer", "reader"), [(pb, torch), (torch, pb)], ids=["ours", "torchs"])
def test_safetensors_file_of_one_loads_in_the_other(writer, reader, tmp_path):
    library = pytest.importorskip("safetensors.torch")
    modules = {pb: pb.safetensors, torch: library}
    sent = {name: t.contiguous() for name, t in content(writer)["tensors"].items()}
    del sent["complex128"], sent["complex32"]  # the format has none
    sent["empty"], sent["scalar"] = writer.empty(0, 2), writer.tensor(1.5)
    path = tmp_path / "x.safetensors"
    modules[writer].save_file(sent, path, metadata={"a": "b"})
    for got in (modules[reader].load_file(path), modules[reader].load(path.read_bytes())):
        assert {k: described(v)[1:3] + described(v)[5:] for k, v in got.items()} == {
            k: described(v)[1:3] + described(v)[5:] for k, v in sent.items()
        }
    assert modules[writer].save(sent, {"a": "b"}) == path.read_bytes()


def test_storages_have_torchs_names():
    left_out = {"hpu", "mps", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"}
    for kind in ("UntypedStorage", "TypedStorage"):
        theirs = {name for name in dir(getattr(torch, kind)) if not name.startswith("_")}
        assert theirs - left_out - set(dir(getattr(pb, kind))) == set()
