"""Legacy types and arguments of wrong types: values and classes of errors are torch's."""

import re
import warnings

import numpy as np
import pytest

import pullback as pb

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

CALLS = """
lib.FloatTensor(2, 3).shape
lib.LongTensor([1.5, 2]).tolist()
lib.DoubleTensor(np.ones(2)).tolist()
lib.FloatTensor(lib.ones(2)).tolist()
lib.FloatTensor(lib.ones(2, dtype=lib.float64))
lib.FloatTensor(1.5)
lib.FloatTensor("a")
lib.FloatTensor(None)
lib.FloatTensor({1: 2})
lib.FloatTensor(-1)
lib.FloatTensor(2, 1.5)
lib.FloatTensor(2, device="meta")
lib.Tensor(lib.ones(1, dtype=lib.int64)).tolist()
lib.Tensor(2, "a")
isinstance(lib.ones(2), lib.FloatTensor)
isinstance(lib.ones(2).double(), lib.FloatTensor)
isinstance(lib.ones(2), lib.cuda.FloatTensor)
issubclass(lib.Tensor, lib.FloatTensor)
lib.ones(2).type().split(".")[1:]
lib.ones(2, device="meta").type().split(".")[1:]
lib.ones(2).type(f"{lib.__name__}.DoubleTensor").type().split(".")[1:]
lib.ones(2).type(lib.LongTensor).tolist()
lib.ones(2).type("foo")
lib.ones(2).type(3)
lib.ones(2).type(int)
lib.ones(2).type(lib.float64, non_blocking="x")
lib.ones(2).new([1, 2]).tolist()
lib.ones(2).new("a")
lib.ones(2).new(lib.ones(2).double())
lib.set_default_tensor_type(lib.LongTensor)
lib.set_default_tensor_type(lib.float32)
lib.Stream("cpu").query()
lib.Event("cpu").record()
lib.Stream(3.5)
lib.roll(lib.ones(2), ["x"])
lib.zeros([2, 1.5])
lib.zeros(2, device=1.5)
lib.zeros_like(lib.ones(2), memory_format="x")
lib.ones(2).to("cpu", non_blocking="x")
lib.ones(2).copy_(lib.ones(2), non_blocking="x")
lib.eq(lib.ones(2), "x")
lib.fmod(lib.ones(2), "x")
lib.maximum(lib.ones(2), "x")
lib.ones(2).sum(0, keepdim="x")
lib.nn.functional.pad(lib.ones(2), (1, 1), mode=["x"])
lib.segment_reduce(lib.ones(2), 1, lengths=lib.tensor([2]))
lib.where(lib.ones(2), lib.ones(2), lib.ones(2))
lib.ones(2).gather(0, lib.ones(2))
lib.ones(2).index_select(0, lib.ones(2))
lib.set_flush_denormal("x")
""".strip().splitlines()


def outcome(library, call):
    """The value of a call, or the class and the text of its error, without the library's name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = eval(call, {"lib": library, "np": np})
        except Exception as error:
            text = str(error).replace(f"{library.__name__}.", "")
            return type(error), re.sub(r" \(position \d\)", "", text)  # methods count differently
    return list(found) if isinstance(found, tuple) else found


@pytest.mark.parametrize("call", CALLS)
def test_legacy_types_and_wrong_types(call):
    ours, theirs = outcome(pb, call), outcome(torch, call)
    if not isinstance(theirs, tuple):
        assert ours == theirs
        return
    assert ours[0] is theirs[0]
    long = ("TensorOptions", "invalid combination")  # where torch lists all forms of a call
    if not any(words in theirs[1] for words in long):
        assert ours[1].replace("Tensor or number", "Tensor") == theirs[1]  # we take numbers too
