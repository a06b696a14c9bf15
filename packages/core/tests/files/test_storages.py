"""Storages: identity, contents, sizes, copies, and tensors that are set to them."""

import copy
import io
import pickle
import warnings

import numpy as np
import pytest

import pullback as pb
from pullback.storage import typed as storages

UntypedStorage = pb.UntypedStorage


@pytest.fixture(autouse=True)
def _without_deprecation(monkeypatch):
    monkeypatch.setattr(storages, "_warned", True)


def test_storage_of_views_and_aliases_is_one_object():
    x = pb.arange(6.0)
    found = x.untyped_storage()
    for other in (x[2:], x.view(2, 3), x.detach(), x.data, x.data.t() if x.ndim == 2 else x.data):
        assert other.untyped_storage() is found
        assert other.untyped_storage().data_ptr() == x.data_ptr()
    assert x.clone().untyped_storage()._cdata != found._cdata
    assert (found.nbytes(), found.size(), len(found), found.device) == (24, 24, 24, x.device)
    typed = x[1:].storage()
    assert (typed.size(), typed.nbytes(), typed.dtype) == (6, 24, pb.float32)
    assert typed.untyped() is found and typed.data_ptr() == found.data_ptr()


def test_storage_is_freed_with_the_last_user():
    import weakref

    x = pb.ones(3)
    reference = weakref.ref(x.untyped_storage())
    assert reference() is None
    kept = x.untyped_storage()
    del x
    assert kept.tolist() == [0, 0, 128, 63] * 3


@pytest.mark.parametrize(
    ("action", "result"),
    [
        (lambda s: s.tolist(), [1, 2, 44]),
        (lambda s: s[0] + s[-1], 45),
        (lambda s: s[1:].tolist(), [2, 44]),
        (lambda s: s.fill_(700).tolist(), [188] * 3),
        (lambda s: s.copy_(UntypedStorage([3, 2, 1])).tolist(), [3, 2, 1]),
        (lambda s: s.clone().tolist(), [1, 2, 44]),
        (lambda s: copy.copy(s).fill_(0) is not s and s.tolist(), [1, 2, 44]),
        (lambda s: copy.deepcopy(s).tolist(), [1, 2, 44]),
        (lambda s: pickle.loads(pickle.dumps(s)).tolist(), [1, 2, 44]),
        (lambda s: s.resize_(2).tolist(), [1, 2]),
        (lambda s: s.resize_(2).resize_(3).tolist(), [1, 2, 44]),
        (lambda s: s.resize_(100).tolist()[:3], [1, 2, 44]),
        (lambda s: s.float().tolist(), [1.0, 2.0, 44.0]),
        (lambda s: s.new().size(), 0),
        (lambda s: s.cpu() is s and s.untyped() is s, True),
        (lambda s: s.to(device="meta").nbytes(), 3),
        (
            lambda s: (s.type(), s.element_size(), s.filename),
            ("pullback.storage.UntypedStorage", 1, None),
        ),
        (lambda s: (s.is_cuda, s.is_sparse, s.is_pinned(), s.is_shared()), (False,) * 4),
        (lambda s: repr(s), " 1\n 2\n 44\n[pullback.storage.UntypedStorage(device=cpu) of size 3]"),
        (lambda s: list(s), [1, 2, 44]),
    ],
)
def test_bytes_of_a_storage(action, result):
    found = action(UntypedStorage([1, 2, 300]))
    if isinstance(found, str):
        found = found.replace("device=ref", "device=cpu")
    assert found == result


@pytest.mark.parametrize(
    ("action", "error", "text"),
    [
        (lambda s: UntypedStorage("a"), RuntimeError, "one of the items was of type str instead"),
        (
            lambda s: UntypedStorage(1, 2),
            TypeError,
            "invalid combination of arguments - got .int, int",
        ),
        (lambda s: UntypedStorage(-1), RuntimeError, "-1 bytes"),
        (lambda s: s[3], IndexError, "index 3 out of range for storage of size 3"),
        (lambda s: s[::2], RuntimeError, "Trying to slice with a step of 2"),
        (lambda s: s["a"], TypeError, "can't index a pullback.UntypedStorage with str"),
        (lambda s: s.__setitem__(-1, 1), RuntimeError, "out of bounds"),
        (lambda s: s.__setitem__(0, 1.5), RuntimeError, "can only set storage content with a int"),
        (lambda s: s.fill_(1.5), RuntimeError, "fill_ expects int, but got float"),
        (lambda s: s.copy_(UntypedStorage(2)), RuntimeError, "self was 3 bytes but src was 2"),
        (lambda s: s.copy_([1, 2, 3]), TypeError, "must be pullback.Storage, not list"),
        (lambda s: s.resize_(-1), RuntimeError, "not resizable"),
        (lambda s: s.byteswap(pb.int16), RuntimeError, "not a multiple of 2"),
        (lambda s: UntypedStorage(3, device="meta").tolist(), NotImplementedError, "'meta' device"),
        (
            lambda s: UntypedStorage(3, device="meta").share_memory_(),
            RuntimeError,
            "only available",
        ),
        (
            lambda s: UntypedStorage.from_buffer(b"abc", "native", dtype=pb.int16),
            ValueError,
            "multiple",
        ),
        (
            lambda s: UntypedStorage.from_buffer(b"abc", "x", dtype=pb.int16),
            ValueError,
            "byte_order 'x'",
        ),
        (
            lambda s: UntypedStorage.from_buffer(b"a", "native", -1, 2, dtype=pb.uint8),
            ValueError,
            "offset",
        ),
        (lambda s: UntypedStorage.from_buffer(b"abc"), RuntimeError, "'dtype' cannot be None"),
        (
            lambda s: UntypedStorage.from_file("/none/x", False, 3),
            RuntimeError,
            "unable to open file",
        ),
        (lambda s: pb.FloatStorage(1, 2), RuntimeError, "Too many positional arguments"),
        (lambda s: pb.FloatStorage(dtype=pb.int32), RuntimeError, "'dtype' cannot be specified"),
        (lambda s: pb.FloatStorage("ab"), TypeError, "invalid data type 'str'"),
        (lambda s: pb.FloatStorage([1])[:], RuntimeError, "slices are only supported in"),
    ],
)
def test_wrong_use_of_a_storage(action, error, text):
    with pytest.raises(error, match=text):
        action(UntypedStorage([1, 2, 3]))


def test_slice_of_a_storage_shares_its_memory():
    whole = UntypedStorage([1, 2, 3, 4])
    part = whole[1:3]
    part.fill_(9)
    assert whole.tolist() == [1, 9, 9, 4]
    with pytest.raises(RuntimeError, match="not resizable"):
        whole.resize_(100)
    del whole
    assert part.tolist() == [9, 9]


def test_resized_storage_is_seen_by_views_and_aliases():
    x = pb.arange(4.0)
    views = [x[1:], x.data, x.view(2, 2).data]
    x.untyped_storage().resize_(64)
    x.fill_(5)
    assert all((view == 5).all() for view in views)
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0 and x.shape == (4,)
    x.sum()  # reads memory that is still there
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 0"):
        x.as_strided((2,), (1,))


def test_aliases_in_any_order_follow_their_storage():
    rng = np.random.default_rng(0)
    x = pb.zeros(8)
    aliases = [x.data for _ in range(200)]
    for round_number in range(1, 20):
        for index in sorted(rng.choice(len(aliases), 10, replace=False), reverse=True):
            del aliases[index]
        aliases.append(aliases[0].data)
        x.untyped_storage().resize_(32 * (1 + round_number % 5))
        x.fill_(round_number)
        assert all(a.data_ptr() == x.data_ptr() and a[7] == round_number for a in aliases)
    kept = aliases[-1]
    del x, aliases
    assert kept.tolist() == [19] * 8


def test_storage_of_foreign_or_lent_memory_keeps_its_size():
    with pytest.raises(RuntimeError, match="not resizable"):
        pb.from_numpy(np.zeros(3)).untyped_storage().resize_(0)
    x = pb.ones(3)
    array = x.numpy()
    assert not x.untyped_storage().resizable()
    with pytest.raises(RuntimeError, match="not resizable"):
        x.untyped_storage().resize_(1000)
    del array
    assert x.untyped_storage().resize_(1000).nbytes() == 1000


def test_write_through_a_storage_counts_as_a_write():
    x = pb.ones(2, requires_grad=True)
    y = (x * 1).exp()
    y.untyped_storage().fill_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("dtype", pb._dtypes()[:12], ids=str)
def test_typed_storage_of_each_dtype(dtype):
    x = pb.tensor([0, 1, 1]).to(dtype)
    kind = x.storage_type()
    typed = x.storage()
    assert (
        isinstance(typed, kind)
        and kind.dtype == dtype
        and typed.type() == f"pullback.{kind.__name__}"
    )
    assert typed.tolist() == x.tolist() and kind([0, 1, 1]).tolist() == x.tolist()
    assert copy.deepcopy(typed).tolist() == pickle.loads(pickle.dumps(typed)).tolist() == x.tolist()
    assert typed.fill_(1)[2] == 1 and x.tolist() == pb.ones(3).to(dtype).tolist()
    raw = UntypedStorage.from_buffer(
        bytes(memoryview(typed.untyped()._bytes())), "big", dtype=dtype
    )
    size = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
    raw.byteswap(dtype)
    assert raw.tolist() == typed.untyped().tolist() and size


def test_typed_storage_warns_once(monkeypatch):
    monkeypatch.setattr(storages, "_warned", False)
    with pytest.warns(UserWarning, match="TypedStorage is deprecated"):
        pb.ones(1).storage()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pb.ones(1).storage()


def test_tensor_set_to_a_storage():
    source = pb.arange(6.0)
    x = pb.empty(0)
    assert x.set_(source.untyped_storage()).tolist() == source.tolist()
    assert x.set_(source.storage(), 1, (2, 2), (2, 1)).tolist() == [[1, 2], [3, 4]]
    assert x.set_(source.untyped_storage(), storage_offset=2, size=(3,)).tolist() == [2, 3, 4]
    x.fill_(7)
    assert source.tolist() == [0, 1, 7, 7, 7, 5]
    assert x.set_(UntypedStorage([0, 0, 128, 63, 1])).tolist() == [1.0]
    assert x.set_().shape == (0,)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            (4, (2, 2), (2, 1)),
            "requiring a storage size of 32 are out of bounds for storage of size 24",
        ),
        ((-1, (2,), (1,)), "invalid storage offset -1"),
        ((0, (2,), (1, 2)), "unequal size length .1. and stride length .2."),
        ((0, (-2,), (1,)), "negative dimension -2"),
        ((0, (2,), (-1,)), "Negative strides are not supported"),
        ((0, (2**62, 2**62), (2**62, 2**62)), "out of bounds"),
        ((0, (2**40, 2**40), (0, 0)), "cannot have"),
        ((2**62, (1,), (1,)), "out of bounds"),
    ],
)
def test_tensor_set_beyond_a_storage(arguments, text):
    with pytest.raises(RuntimeError, match=text):
        pb.empty(0).set_(pb.zeros(6).untyped_storage(), *arguments)


def test_tensor_set_to_another_dtype():
    with pytest.raises(RuntimeError, match="Expected a Storage of type Float or an UntypedStorage"):
        pb.empty(0).set_(pb.zeros(6, dtype=pb.int64).storage())
    with pytest.raises(TypeError, match="must be Tensor or Storage, not list"):
        pb.empty(0).set_([1])
    assert pb.is_storage(pb.ones(1).storage()) and not pb.is_storage(pb.ones(1))


def test_deepcopy_keeps_tensors_and_storages_together():
    x = pb.arange(3.0)
    copied, storage, view = copy.deepcopy([x, x.untyped_storage(), x[1:]])
    storage.fill_(0)
    assert copied.tolist() == [0] * 3 and view.tolist() == [0] * 2 and x.tolist() == [0, 1, 2]


@pytest.mark.parametrize("shared", [False, True])
def test_storage_of_a_file(tmp_path, shared):
    path = tmp_path / "numbers"
    np.arange(4, dtype="f4").tofile(path)
    x = pb.empty(0).set_(UntypedStorage.from_file(str(path), shared, 16))
    assert x.tolist() == [0, 1, 2, 3] and x.untyped_storage().filename == str(path)
    x.fill_(9)
    assert np.fromfile(path, "f4").tolist() == ([9] * 4 if shared else [0, 1, 2, 3])
    assert x.is_shared() == shared
    with pytest.raises(RuntimeError, match="not resizable"):
        x.untyped_storage().resize_(99)
    if not shared:
        with pytest.raises(RuntimeError, match="unable to mmap 17 bytes"):
            UntypedStorage.from_file(str(path), False, 17)


@pytest.mark.parametrize("dtype", pb._dtypes()[12:], ids=str)
def test_dtypes_without_a_class_of_typed_storages(dtype):
    x = pb.tensor([0, 1, 1]).to(dtype)
    typed = x.storage()
    assert x.storage_type() is None and typed.dtype == dtype and typed.tolist() == x.tolist()
    assert typed.type() == "pullback.storage.TypedStorage"
    assert copy.deepcopy(typed).tolist() == x.tolist() and typed.half().dtype == pb.float16
    assert pb.zeros(0, dtype=dtype).set_(typed).equal(x)
    with pytest.raises(RuntimeError, match="Expected a Storage of type Float"):
        pb.zeros(0).set_(typed)
    with pytest.raises(KeyError, match="is not recognized"):
        pb.save(typed, io.BytesIO())
