"""uint16, uint32, uint64 and complex32 on the device: kernels of other dtypes compute them."""

import numpy as np
import pytest

import pullback as pb

CALLS = {
    "add": (lambda x, y: x + y, lambda a, b: a + b),
    "lt": (lambda x, y: x < y, np.less),
    "maximum": (pb.maximum, np.maximum),
    "clamp": (lambda x, y: x.clamp(5, 60000), lambda a, b: np.clip(a, 5, 60000)),
    "sign": (lambda x, y: x.sign(), lambda a, b: np.sign(a)),
    "sort": (lambda x, y: x.sort(1).values, lambda a, b: np.sort(a, 1)),
    "amax": (lambda x, y: x.amax(), lambda a, b: a.max()),
    "sum": (lambda x, y: x.sum(), lambda a, b: a.astype("i8").sum()),
    "index": (lambda x, y: x[pb.tensor([1, 0], device="cuda")], lambda a, b: a[[1, 0]]),
    "floor_divide": (lambda x, y: x // y, lambda a, b: a // b),
    "remainder": (lambda x, y: x % y, lambda a, b: a % b),
    "shift": (lambda x, y: x >> 3, lambda a, b: a >> 3),
    "gcd": (pb.gcd, np.gcd),
    "expanded": (
        lambda x, y: x[:, :1].expand(5, 6).to(pb.int64),
        lambda a, b: (a[:, :1] + 0 * a).astype("i8"),
    ),
    "int64": (lambda x, y: x.mT.to(pb.int64), lambda a, b: a.T.astype("i8")),
    "float64": (lambda x, y: x.double(), lambda a, b: a.astype("f8")),
    "uint32": (lambda x, y: x.to(pb.uint32), lambda a, b: a.astype("u4")),
    "from float": (lambda x, y: y.sin().abs().to(x.dtype), lambda a, b: 0 * a),
}


@pytest.mark.filterwarnings("ignore:.* no kernel for 'uint64'")  # of divisions and casts
@pytest.mark.parametrize("name", ["uint16", "uint32", "uint64"])
def test_unsigned_numbers_on_the_device(cuda, name):
    rng, top = np.random.default_rng(0), np.iinfo(name).max
    a, b = (rng.integers(1, top, (5, 6), name, endpoint=True) for _ in range(2))
    a[0, :3] = top, top // 2, top // 2 + 1
    x, y = pb.tensor(a, device="cuda"), pb.tensor(b, device="cuda")
    for call, (run, wanted) in CALLS.items():
        assert run(x, y).tolist() == np.asarray(wanted(a, b)).tolist(), call


def test_complex32_on_the_device(cuda):
    z = pb.tensor([1 + 2j, 3 - 4j], device="cuda").chalf()
    assert (z * z).tolist() == [-3 + 4j, -7 - 24j] and z.abs().tolist() == [2.236328125, 5.0]
    assert z.to(pb.complex128).tolist() == z.tolist() == [1 + 2j, 3 - 4j]
    assert z.flip(0).conj().tolist() == [3 + 4j, 1 - 2j] and (z @ z).item() == -10 - 20j
