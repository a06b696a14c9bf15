"""NumPy's functions of tensors give what they give for torch's, where torch defines a result."""

import numpy as np
import pytest

import pullback as pb

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

CALLS = {
    "sin": lambda x, m: np.sin(x),
    "add": lambda x, m: np.add(x, np.ones(3)),
    "power": lambda x, m: np.power(x, 2),
    "reduce": lambda x, m: np.add.reduce(x),
    "outer": lambda x, m: np.multiply.outer(x, x),
    "argmax": lambda x, m: np.argmax(x),
    "cumsum": lambda x, m: np.cumsum(x, 0),
    "argsort": lambda x, m: np.argsort(x),
    "sort": lambda x, m: np.sort(x),
    "concatenate": lambda x, m: np.concatenate([x, x]),
    "reshape": lambda x, m: np.reshape(x, (3, 1)),
    "transpose": lambda x, m: np.transpose(m),
    "clip": lambda x, m: np.clip(x, 0, 1),
    "matmul": lambda x, m: np.matmul(m, m),
    "dot": lambda x, m: np.dot(x, x),
    "repeat": lambda x, m: np.repeat(x, 2),
    "take": lambda x, m: np.take(x, [0, 2]),
    "nonzero": lambda x, m: np.nonzero(x),
    "searchsorted": lambda x, m: np.searchsorted(x, 0.5),
    "percentile": lambda x, m: np.percentile(x, 50),
    "number": lambda x, m: np.float32(2.5) + x,
    "std": lambda x, m: np.std(m, axis=0),
    "flip": lambda x, m: np.flip(x),
}


def outcome(library, call):
    x, m = library.tensor([0.5, -1.0, 2.0]), library.tensor([[1.0, 2.0], [3.0, 4.0]])
    try:
        found = call(x, m)
    except (TypeError, ValueError) as error:
        return type(error)
    kind = "tensor" if isinstance(found, (torch.Tensor, pb.Tensor)) else type(found)
    return kind, np.asarray(found).dtype, np.asarray(found).tolist()


@pytest.mark.filterwarnings("ignore:__array:DeprecationWarning")  # of torch
@pytest.mark.parametrize("name", CALLS)
def test_numpy_function_as_of_torch_tensors(name):
    assert outcome(pb, CALLS[name]) == outcome(torch, CALLS[name])


@pytest.mark.parametrize("value", [np.float64(2.5), np.int8(3), np.complex64(1j), np.bool_(True)])
def test_asarray_of_numpy_numbers(value):
    found, expected = pb.asarray(value), torch.asarray(value)
    assert found.dtype.name == str(expected.dtype).removeprefix("torch.")
    assert found.item() == expected.item()
    assert tuple(found.shape) == tuple(expected.shape)
