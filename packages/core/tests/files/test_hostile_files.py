"""Files that are broken or hostile: one clear error, no crash, no wrong tensor, no great memory."""

import collections
import io
import os
import pickle
import random
import struct
import time
import zipfile

import numpy as np
import pytest

import pullback as pb
from pullback.serialization.zip_format import ZipWriter

MUTATIONS = 10000 if os.environ.get("PULLBACK_TEST_FILES") == "all" else 3000


class Runs:
    """An object whose pickle runs a function when it is loaded."""

    ran = False

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def touch(*args):
    Runs.ran = True


def archive(data, records=None):
    """Return a file with a pickle and the bytes of storages."""
    file = io.BytesIO()
    writer = ZipWriter(file, "archive")
    writer.record("data.pkl", data)
    for name, content in (records or {"data/0": bytes(16)}).items():
        writer.record(name, content)
    writer.record("version", b"3\n")
    writer.close()
    file.seek(0)
    return file


def load(data):
    """Load a pickle by itself, in both formats."""
    with pytest.raises((pickle.UnpicklingError, RuntimeError)) as caught:
        pb.load(archive(data))
    begin = b"".join(pickle.dumps(v, 2) for v in (0x1950A86A20F9469CFC6C, 1001, {}))
    with pytest.raises((pickle.UnpicklingError, RuntimeError)):
        pb.load(io.BytesIO(begin + data + pickle.dumps([], 2)))
    return str(caught.value)


def tensor_pickle(numel=4, offset=0, size=(2, 2), stride=(2, 1), key="0", kind=b"FloatStorage"):
    """Return the pickle of a tensor with any numbers in it."""
    sizes = pickle.dumps((offset, size, stride, False, collections.OrderedDict()), 2)[2:-1]
    described = pickle.dumps((key, "cpu", numel), 2)[2:-1]
    # The parts are pickled alone and joined: opcodes that make one tuple of them.
    parts = b"(X\x07\x00\x00\x00storagectorch\n" + kind + b"\n"
    for value in (key, "cpu", numel):
        parts += _plain(value)
    assert described and sizes
    arguments = b"(" + parts + b"tQ"
    for value in (offset, size, stride, False):
        arguments += _plain(value)
    arguments += b"ccollections\nOrderedDict\n)Rt"
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R."


def _plain(value):
    """Return the opcodes of a value, without memo."""
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_plain, value)) + b"t"
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, str):
        return b"X" + struct.pack("<I", len(value)) + value.encode()
    data = value.to_bytes(20, "little", signed=True)
    return b"\x8a\x14" + data


def test_pickle_of_a_tensor_by_hand_loads():
    assert pb.load(archive(tensor_pickle())).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    "value",
    [
        Runs(touch, 1),
        Runs(os.system, "true"),
        Runs(eval, "1"),
        Runs(getattr, "a", "upper"),
        Runs(io.open, os.devnull),
        Runs(type, "X", (), {}),
        Runs(pickle.loads, b"N."),
        Runs(np.load, os.devnull),
        Runs(collections.namedtuple, "x", "a"),
        Runs(pb.Tensor, 10**12),
        Runs(bytearray, 10**12),
        Runs(pb.ones, 2),
        [{"deep": (Runs(touch),)}],
    ],
    ids=lambda v: str(v.call[0].__name__) if isinstance(v, Runs) else "nested",
)
def test_code_in_a_file_does_not_run(value, protocol):
    data = pickle.dumps(value, protocol)
    assert "Weights only load failed" in load(data)
    assert not Runs.ran


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"cposix\nsystem\n.", "posix.system whose module posix is blocked"),
        (b"cbuiltins\neval\n.", r"Unsupported global: GLOBAL builtins.eval was not an allowed"),
        (b"ctorch\nFloatStorage\n(K\x05tR.", "unrecognized function"),
        (b"ctorch\nTensor\n(\x8a\x06\x00\x00\x00\x00\x00\x01tR.", "unrecognized function"),
        (b"ctorch\nTensor\n)\x81.", "unrecognized class"),
        (b"c__builtin__\nbytearray\n(J\xff\xff\xff\x7ftR.", "a bytearray is not what files"),
        (b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00utf-8tR.", "an encoding"),
        (b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x04\x00\x00\x00zlibtR.", "an encoding"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb.", "Can only build"),
        (b"]}(K\x01K\x02ub.", "Can only build"),
        (b"K\x01}b.", "Can only build"),
        (b"K\x01K\x02K\x03s.", "Can only set items of dicts"),
        (b"K\x01K\x02a.", "Can only append to lists"),
        (b"K\x01(K\x02\x90.", "Can only add to sets"),
        (b"}]K\x01s.", "unhashable"),
        (b"r\xff\xff\xff\x7f.", "IndexError"),
        (b"j\xff\xff\xff\x7f.", "KeyError"),
        (b"Nr\xff\xff\xff\x7f0", "IndexError"),
        (b"X\xff\xff\xff\x7fabc.", "truncated"),
        (b"\x8b\xff\xff\xff\xffabc.", "truncated"),
        (b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.", "truncated"),
        (b"\x96\xff\xff\xff\xff\xff\xff\xff\xffabc.", "truncated"),
        (b"\x95\xff\xff\xff\xff\xff\xff\xff\xffabc.", "truncated"),
        (b"cno newline", "truncated"),
        (b"\x80\x09N.", "protocol"),
        (b"t.", "IndexError"),
        (b"\x87.", "the stack is empty"),
        (b".", "IndexError"),
        (b"", "IndexError"),
        (b"\xffabc", "Unsupported operand 255"),
        (b"(i__main__\nX\n.", "Unsupported operand 105"),
        (b"K\x01\x93.", "IndexError"),
        (b"K\x01K\x02\x93.", "a global has no name"),
        (b"K\x01Q.", "Unknown saved id"),
        (b")" + b"\x85" * 1000000 + b".", "tuples are nested deeper than 200"),
        (b"})" + b"\x85" * 300 + b"K\x01s.", "tuples are nested deeper than 200"),
        (b"\x8f(" + b"(" * 10 + b")" + b"\x85\x91" * 300 + b".", "Error"),
    ],
    ids=range(37),
)
def test_broken_pickle(data, text):
    assert text in load(b"\x80\x02" + data).replace("\n", " ") or text == "Error"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"offset": 1}, "out of bounds for storage of size 16"),
        ({"offset": -1}, "invalid storage offset -1"),
        ({"offset": 2**70}, "too large|OverflowError|out of bounds"),
        ({"size": (2, 3)}, "out of bounds"),
        ({"size": (-2, -2)}, "negative dimension"),
        ({"size": (2**62, 2**62), "stride": (0, 0)}, "cannot have"),
        ({"size": (2**70, 1)}, "does not fit in 64 bits"),
        ({"size": (1,) * 100, "stride": (1,) * 100}, "more than 64 entries"),
        ({"stride": (2,)}, "unequal size length"),
        ({"stride": (-2, 1)}, "Negative strides"),
        ({"numel": 2**60}, "16 bytes instead of"),
        ({"numel": -4}, "16 bytes instead of"),
        ({"numel": 3}, "16 bytes instead of 12"),
        ({"key": "../data"}, "there is no record"),
        ({"key": "7"}, "there is no record"),
        ({"kind": b"Tensor"}, "expected a class of storages, not pullback."),
        ({"kind": b"float32"}, "expected a class of storages"),
        ({"kind": b"device"}, "expected a class of storages"),
        ({"kind": b"UntypedStorage"}, "torch.UntypedStorage was not an allowed global"),
    ],
)
def test_tensor_that_does_not_fit_its_storage(arguments, text):
    with pytest.raises((RuntimeError, pickle.UnpicklingError), match=text):
        pb.load(archive(tensor_pickle(**arguments)))


def test_endless_text_of_a_value_is_not_made():
    doubled = b"]q\x00" + b"(h\x00h\x00lq\x00" * 60
    for end in (b"Q.", b")R.", b")\x81.", b"(X\x01\x00\x00\x00ah\x00h\x00h\x00h\x00tQ."):
        assert len(load(b"\x80\x02" + doubled + end)) < 1000


def test_deep_containers_are_loaded_and_freed():
    found = pb.load(archive(b"\x80\x02" + b"]" * 200000 + b"a" * 199999 + b"."))
    assert type(found) is list and len(found) == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d[:100], "failed reading zip archive"),
        (lambda d: d[: len(d) // 2], "failed reading zip archive"),
        (lambda d: d[:-1], "failed reading zip archive"),
        (lambda d: d[: d.index(b"PK\x01\x02")], "failed reading zip archive"),
        (
            lambda d: d.replace(b"\x00\x00\x80?", b"\x00\x00\x80\xbf"),
            "data/0' has a wrong checksum",
        ),
        (lambda d: d.replace(b"OrderedDict", b"OrderedDicT"), "data.pkl' has a wrong checksum"),
        (lambda d: d.replace(b"archive/data/0", b"archive/data/1"), "there is no record 'data/0'"),
        (lambda d: d.replace(b"PK\x03\x04", b"PK\x03\x05"), "Invalid magic number|broken|no file"),
    ],
)
def test_broken_archive(change, text):
    file = io.BytesIO()
    pb.save(pb.ones(3), file)
    with pytest.raises((RuntimeError, pickle.UnpicklingError), match=text):
        pb.load(io.BytesIO(change(file.getvalue())))


def test_archive_that_states_too_much():
    """A deflated record cannot have more than 1032 bytes for each of its own."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("archive/data.pkl", tensor_pickle(numel=2**40))
        target.writestr("archive/data/0", bytes(16))
    data = file.getvalue()
    at = data.rindex(b"archive/data/0") - 46
    data = data[: at + 24] + struct.pack("<I", 2**31) + data[at + 28 :]
    with pytest.raises(RuntimeError, match="states a size that it cannot have"):
        pb.load(io.BytesIO(data))


# ---- mutations -----------------------------------------------------------------------------------


def original():
    base = pb.arange(40.0)
    return {
        "weight": base.view(8, 5),
        "part": base[3:9],
        "half": pb.arange(7).to(pb.bfloat16),
        "parameter": pb.nn.Parameter(pb.ones(2, 2)),
        "steps": [1, 2.5, "text", (3, 4), None],
        "empty": pb.empty(0),
    }


def mutated(data, rng):
    """Return the bytes with one to three changes."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(data) or 1)
        kind = rng.randrange(8)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            data[at : at + rng.randrange(1, 40)] = b""
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.randrange(1, 20))
        elif kind == 3:
            data[at : at + 4] = rng.choice([b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", bytes(4)])
        elif kind == 4:
            other = rng.randrange(len(data) or 1)
            data[at : at + 16] = data[other : other + 16]
        elif data:
            data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
    return bytes(data)


def same(a, b):
    if isinstance(a, pb.Tensor):
        return type(a) is type(b) and a.dtype == b.dtype and pb.equal(a, b)
    return type(a) is type(b) and a == b


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.parametrize("kind", ["zip", "mapped", "legacy", "safetensors"])
def test_mutated_file_raises_or_is_right(kind, tmp_path):
    """A share of the mutations; ``PULLBACK_TEST_FILES=all`` makes 10,000."""
    value = original()
    path = tmp_path / "x.pt"
    if kind == "safetensors":
        pytest.importorskip("safetensors")
        value = {name: t.clone() for name, t in value.items() if isinstance(t, pb.Tensor)}
        pb.safetensors.save_file(value, path)
    else:
        pb.save(value, path, _use_new_zipfile_serialization=kind != "legacy")
    data = path.read_bytes()
    share = {"zip": 0.5, "mapped": 0.1, "legacy": 0.25, "safetensors": 0.15}[kind]
    outcomes = collections.Counter()
    start = resident() if os.path.exists("/proc/self/statm") else None
    for seed in range(int(MUTATIONS * share)):
        changed = mutated(data, random.Random(f"{kind} {seed}"))
        began = time.monotonic()
        try:
            if kind == "zip":
                found = pb.load(io.BytesIO(changed))
            else:
                path.write_bytes(changed)
                if kind == "safetensors":
                    found = pb.safetensors.load_file(path)
                else:
                    found = pb.load(path, mmap=kind == "mapped" or None)
        except (RuntimeError, pickle.UnpicklingError) as error:
            assert str(error), seed
            outcomes["refused"] += 1
        except (EOFError, ValueError) as error:
            assert not changed or kind == "mapped", (seed, error)
            outcomes["refused"] += 1
        except Exception as error:
            assert type(error).__name__ == "SafetensorError", (seed, error)
            outcomes["refused"] += 1
        else:
            if kind == "zip":
                assert list(found) == list(value), seed
                assert all(same(found[name], value[name]) for name in value), seed
            outcomes["loaded"] += 1
        assert time.monotonic() - began < 5, seed
    assert outcomes["refused"] > 10 and outcomes["loaded"] > 0
    if start is not None:
        assert resident() - start < 300e6
