"""``pullback.safetensors``: files of tensors that are mapped, and modules in them."""

import os
import struct
import sys

import numpy as np
import pytest

import pullback as pb

library = pytest.importorskip("safetensors")
st = pb.safetensors

DTYPES = [dtype for dtype in pb._dtypes() if dtype not in (pb.complex128, pb.complex32)]


def test_missing_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"pip install 'pullback\[safetensors\]'"):
        st.save({"x": pb.ones(1)})


def test_tensors_come_back_over_the_mapped_file(tmp_path):
    path = tmp_path / "x.safetensors"
    sent = {str(d): pb.tensor([[0, 1, 1], [1, 0, 1]]).to(d) for d in DTYPES}
    sent.update(empty=pb.empty(0, 2), scalar=pb.tensor(2.5), conj=pb.tensor([1 + 2j]).conj())
    st.save_file(sent, path, {"made": "here"})
    got = st.load_file(path)
    assert got.keys() == sent.keys()
    for name, tensor in sent.items():
        assert got[name].dtype == tensor.dtype and got[name].shape == tensor.shape
        assert got[name].tolist() == tensor.tolist() and not got[name].is_conj()
    mapped = [t for t in got.values() if t.untyped_storage().filename == str(path)]
    assert len(mapped) == len(got)
    assert len({t.untyped_storage()._cdata for t in mapped}) == 1
    before = path.read_bytes()
    got["scalar"].fill_(7)
    assert path.read_bytes() == before == st.save(sent, {"made": "here"})
    assert all(st.load(before)[name].tolist() == t.tolist() for name, t in sent.items())


def test_file_is_that_of_the_format(tmp_path):
    """Worked out by hand: the length of the header, the header in JSON, the bytes."""
    header = b'{"x":{"dtype":"I16","shape":[3],"data_offsets":[0,6]}}'
    header += b" " * (-len(header) % 8)
    data = struct.pack("<Q", len(header)) + header + struct.pack("<3h", 1, 2, 300)
    assert st.save({"x": pb.tensor([1, 2, 300], dtype=pb.int16)}) == data
    path = tmp_path / "x.safetensors"
    odd = header.replace(b'"I16","shape":[3]', b'"U8","shape":[1]').replace(b"[0,6]", b"[0,1]")
    odd = odd.rstrip()[:-1] + b',"y":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}}'
    path.write_bytes(struct.pack("<Q", len(odd)) + odd + b"\7" + struct.pack("<2f", 1.5, -2))
    got = st.load_file(path)
    assert got["x"].tolist() == [7] and got["y"].tolist() == [1.5, -2]  # copied: it is not aligned


def test_safe_open_reads_what_is_asked_for(tmp_path):
    path = tmp_path / "x.safetensors"
    st.save_file({"a": pb.arange(12.0).view(3, 4), "b": pb.ones(2)}, path)
    with st.safe_open(path, framework="pt", device="cpu") as file:
        assert file.keys() == ["a", "b"] and sorted(file.offset_keys()) == ["a", "b"]
        assert file.metadata() is None
        part = file.get_slice("a")
        assert part.get_shape() == [3, 4] and part.get_dtype() == "F32"
        assert part[1:, 2].tolist() == [6, 10] and file.get_tensor("b").tolist() == [1, 1]
        for ask in (file.get_tensor, file.get_slice):
            with pytest.raises(library.SafetensorError, match="does not contain tensor c"):
                ask("c")
    assert st.load_file(path, device="meta")["a"].is_meta


@pytest.mark.parametrize(
    ("tensors", "error", "text"),
    [
        (lambda x: {"a": x, "b": x}, RuntimeError, "Some tensors share memory"),
        (lambda x: {"a": x, "b": x[1:]}, RuntimeError, "Some tensors share memory"),
        (lambda x: {"a": x.view(2, 2).t()}, ValueError, "non contiguous tensor: `a`"),
        (lambda x: [x], ValueError, r"Expected a dict of \[str, pullback.Tensor\]"),
        (lambda x: {"a": 1}, ValueError, "Key `a` is invalid, expected pullback.Tensor"),
        (lambda x: {1: x}, TypeError, "str"),
        (lambda x: {"a": x.to("meta")}, NotImplementedError, "meta tensor"),
        (lambda x: {"a": x.to(pb.complex128)}, Exception, "complex128"),
    ],
)
def test_what_cannot_be_saved(tensors, error, text):
    with pytest.raises(error, match=text):
        st.save(tensors(pb.arange(4.0)))


def test_parts_of_one_memory_that_do_not_overlap_are_saved():
    x = pb.arange(4.0)
    assert st.load(st.save({"a": x[:2], "b": x[2:], "c": x[:0]}))["b"].tolist() == [2, 3]


def test_broken_files(tmp_path):
    path = tmp_path / "x.safetensors"
    with pytest.raises(FileNotFoundError):
        st.load_file(path)
    st.save_file({"x": pb.ones(3)}, path)
    data = path.read_bytes()
    for broken in (b"", b"abc", data[:20], data[:-1], data + b"x", b"\xff" * 8 + data[8:]):
        path.write_bytes(broken)
        with pytest.raises(library.SafetensorError):
            st.load_file(path)
        with pytest.raises(library.SafetensorError):
            st.load(broken)


def tied():
    model = pb.nn.Sequential(pb.nn.Linear(2, 2), pb.nn.Linear(2, 2))
    model[1].weight = model[0].weight
    return model


def test_module_with_tied_weights_comes_back(tmp_path):
    path = tmp_path / "x.safetensors"
    model, other = tied(), tied()
    st.save_model(model, path)
    with st.safe_open(path) as file:
        assert file.keys() == ["0.bias", "0.weight", "1.bias"]
        assert file.metadata() == {"1.weight": "0.weight"}
    assert st.load_model(other, path) == (set(), [])
    x = pb.randn(3, 2)
    assert pb.equal(model(x), other(x)) and other[1].weight is other[0].weight


def test_module_and_file_that_do_not_fit(tmp_path):
    path = tmp_path / "x.safetensors"
    st.save_file({"weight": pb.ones(2, 2), "extra": pb.ones(1), "more": pb.ones(1)}, path)
    model = pb.nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match=r'(?s)Missing .*"bias".*Unexpected .*"extra", "more"'):
        st.load_model(model, path)
    assert st.load_model(model, path, strict=False) == ({"bias"}, ["extra", "more"])
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        st.load_model(pb.nn.Linear(3, 2), path)
    model.weight = pb.nn.Parameter(pb.arange(4.0).view(2, 2).t())
    with pytest.raises(ValueError, match="force_contiguous=True"):
        st.save_model(model, path, force_contiguous=False)
    st.save_model(model, path)
    assert st.load_file(path)["weight"].tolist() == [[0, 2], [1, 3]]
    base = pb.ones(4)
    model.weight, model.bias = (pb.nn.Parameter(base[begin : begin + 2]) for begin in (0, 1))
    with pytest.raises(RuntimeError, match="None is covering the entire storage"):
        st.save_model(model, path)


def test_failed_save_keeps_the_old_file(tmp_path):
    path = tmp_path / "x.safetensors"
    st.save_file({"x": pb.ones(3)}, path)
    with pytest.raises(TypeError):
        st.save_file({"x": pb.zeros(3)}, path, {"a": 1})
    assert st.load_file(path)["x"].tolist() == [1, 1, 1] and os.listdir(tmp_path) == [path.name]


def test_numpy_of_a_mapped_tensor_keeps_the_file_mapped(tmp_path):
    path = tmp_path / "x.safetensors"
    st.save_file({"x": pb.arange(1000)}, path)
    array = st.load_file(path)["x"].numpy()
    assert np.array_equal(array, np.arange(1000))
