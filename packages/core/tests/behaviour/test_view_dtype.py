"""view(dtype): the same bytes as another dtype, with the last dim longer or shorter."""

import numpy as np
import pytest

import pullback as pb

X = pb.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("dtype", ["int32", "int16", "uint8", "float64", "int64", "complex64"])
@pytest.mark.parametrize(
    "part",
    [
        lambda x: x,
        lambda x: x[::2],
        lambda x: x[:, 2:],
        lambda x: x[:0],
    ],
)
def test_agrees_with_numpy(dtype, part):
    found = part(X).view(getattr(pb, dtype))
    expected = part(X.numpy()).view(dtype)
    assert found.shape == expected.shape
    assert found.numpy().tobytes() == expected.tobytes()


def test_shares_memory():
    x = pb.zeros(2)
    x.view(pb.int32).fill_(0x3F800000)
    assert pb.equal(x, pb.ones(2))
    assert x._version == 1


def test_has_no_history():
    assert not X.clone().requires_grad_().view(pb.float64).requires_grad


def test_zero_dims():
    assert pb.tensor(1.0).view(pb.int32).item() == 0x3F800000
    assert np.float32(1.0).view("int32") == 0x3F800000


@pytest.mark.parametrize(
    ("x", "dtype", "message"),
    [
        (X[:, :3], pb.float64, r"self\.size\(-1\) must be divisible by 2 to view Float as Double"),
        (X.t(), pb.int16, r"self\.stride\(-1\) must be 1 to view Float as Short"),
        (X[:, 1:3], pb.float64, r"self\.storage_offset\(\) must be divisible by 2"),
        (pb.zeros(3, 0), pb.float64, r"self\.stride\(0\) must be divisible by 2"),
        (pb.tensor(1.0), pb.int16, r"self\.dim\(\) cannot be 0"),
    ],
)
def test_refused(x, dtype, message):
    with pytest.raises(RuntimeError, match=message):
        x.view(dtype)
