"""uint16, uint32, uint64 and complex32: kernels of other dtypes compute them on most devices."""

import io
import pickle

import numpy as np
import pytest

import pullback as pb

UNSIGNED = [pb.uint16, pb.uint32, pb.uint64]
NAMES = {dtype: dtype.name for dtype in UNSIGNED}
DEVICES = sorted({pb.get_default_device().type, "ref"})


def values(dtype, seed=0, size=(6, 7)):
    """Numbers of the whole range, with equal ones and both ends among them."""
    top = int(np.iinfo(NAMES[dtype]).max)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, top, size, dtype=NAMES[dtype], endpoint=True)
    drawn[0, :5] = [0, 1, top, top // 2, top // 2 + 1]
    drawn[1, :3] = drawn[2, :3]
    return drawn


def sure(x, y):
    return np.where(y == 0, y + 1, y)


BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "gcd": np.gcd,
}
DIVISIONS = {"floor_divide": np.floor_divide, "remainder": np.remainder, "fmod": np.fmod}
UNARY = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "bitwise_not": np.invert,
    "square": np.square,
    "floor": lambda x: x,
    "relu": lambda x: x,
    "logical_not": np.logical_not,
    "sum": lambda x: x.astype("int64").sum(),
    "prod": lambda x: x.astype("int64").prod(),
    "amax": np.max,
    "amin": np.min,
    "argmax": np.argmax,
    "argmin": np.argmin,
    "any": np.any,
    "all": np.all,
    "count_nonzero": np.count_nonzero,
    "unique": np.unique,
    "isnan": np.isnan,
}
CALLS = {
    "cumsum": (lambda x: x.cumsum(0), lambda a: a.astype("int64").cumsum(0)),
    "cummax": (lambda x: x.cummax(1).values, lambda a: np.maximum.accumulate(a, 1)),
    "sort": (lambda x: x.sort(0).values, lambda a: np.sort(a, 0)),
    "argsort": (
        lambda x: x.argsort(1, stable=True),
        lambda a: np.argsort(a, 1, kind="stable"),
    ),
    "descending": (lambda x: x.sort(1, True).values, lambda a: -np.sort(-a.astype(object), 1)),
    "topk": (lambda x: x.topk(2).values, lambda a: -np.sort(-a.astype(object), 1)[:, :2]),
    "median": (lambda x: x.median(), lambda a: np.sort(a.ravel())[(a.size - 1) // 2]),
    "clamp": (lambda x: x.clamp(5, 60000), lambda a: np.clip(a, 5, 60000)),
    "shift": (lambda x: x >> 3, lambda a: a >> 3),
    "shift left": (lambda x: x << 3, lambda a: a << 3),
    "too far": (lambda x: x >> 64, lambda a: 0 * a),
    "power": (lambda x: x**3, lambda a: a**3),
    "flip": (lambda x: x.flip(1), lambda a: a[:, ::-1]),
    "tril": (lambda x: x.tril(), np.tril),
    "index": (lambda x: x[pb.tensor([2, 0])], lambda a: a[[2, 0]]),
    "mask": (lambda x: x[x > 9], lambda a: a[a > 9]),
    "product": (lambda x: x @ x.mT, lambda a: a @ a.T),
    "where": (lambda x: pb.where(x > 7, x, 1), lambda a: np.where(a > 7, a, a * 0 + 1)),
    "cat": (lambda x: pb.cat([x, x]), lambda a: np.concatenate([a, a])),
    "nonzero": (lambda x: x.nonzero(), lambda a: np.argwhere(a)),
    "transposed": (lambda x: (x.mT + x.mT).mT > x, lambda a: a + a > a),
    "largest so far": (
        lambda x: x.scatter_reduce(1, pb.zeros_like(x[:, :2], dtype=pb.int64), x[:, 5:], "amax"),
        lambda a: np.c_[np.maximum(a[:, 0], np.maximum(a[:, 5], a[:, 6])), a[:, 1:]],
    ),
    "searchsorted": (
        lambda x: pb.searchsorted(x.flatten().sort().values, x),
        lambda a: np.searchsorted(np.sort(a.ravel()), a),
    ),
    "added by index": (
        lambda x: x.clone().index_put_((pb.tensor([0, 0]),), x[:2], accumulate=True),
        lambda a: np.r_[a[:1] + a[:1] + a[1:2], a[1:]],
    ),
}


def same(found, wanted):
    wanted = np.asarray(wanted)
    assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
def test_unsigned_results_are_numpys(dtype, device):
    a, b = values(dtype), values(dtype, 1)
    x, y = (pb.tensor(array, device=device) for array in (a, b))
    with np.errstate(all="ignore"):
        for name, function in BINARY.items():
            same(getattr(pb, name)(x, y), function(a, b))
            if name != "gcd":
                same(getattr(pb, name)(x, 3), function(a, a.dtype.type(3)))
        for name, function in DIVISIONS.items():
            c = sure(a, b)
            same(getattr(pb, name)(x, pb.tensor(c, device=device)), function(a, c))
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                getattr(pb, name)(x, 0)
        for name, function in UNARY.items():
            found = getattr(pb, name)(x)
            same(found, function(a))
        with pb.device(device):
            for run, wanted in CALLS.values():
                same(run(x), wanted(a))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
def test_casts_of_unsigned_numbers(dtype, device):
    array, top = values(dtype), int(np.iinfo(NAMES[dtype]).max)
    x = pb.tensor(array, device=device)
    for other in (*pb._dtypes()[:12], *UNSIGNED):
        name = other.name
        if name == "bfloat16":
            wanted = pb.tensor(array.astype("float64")).to(other).double().numpy()
            same(x.to(other).double(), wanted)
        else:
            with np.errstate(all="ignore"):
                wanted = array.astype(name)
            same(x.to(other), wanted)
            same(x.mT.to(other), wanted.T)
            if other.kind in "biu":
                same(x.to(other).to(dtype), wanted.astype(array.dtype))
    floats = np.array([0.0, 1.75, 1000.5, top // 2, top // 2 + 1])
    for name in ("float32", "float64", "complex64", "complex128"):
        given = floats.astype(name)
        same(pb.tensor(given, device=device).to(dtype), given.real.astype(array.dtype))
    assert pb.tensor([-1.0, -300.5], device=device).to(dtype).tolist() == [top, top - 299]
    same(x.to(pb.complex32).to(pb.complex64), pb.tensor(array.astype("f8")).half().numpy() + 0j)


@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
def test_unsigned_tensors_are_made_and_exchanged(dtype):
    array, name, top = values(dtype), NAMES[dtype], int(np.iinfo(NAMES[dtype]).max)
    x = pb.from_numpy(array)
    assert x.dtype == dtype and not dtype.is_signed and not x.is_signed() and dtype.kind == "u"
    assert x.numpy().dtype == name and x.numpy().ctypes.data == array.ctypes.data
    assert np.from_dlpack(x).dtype == name and pb.from_dlpack(array).dtype == dtype
    assert memoryview(x).format == memoryview(array).format
    assert pickle.loads(pickle.dumps(x)).equal(x) and pickle.loads(pickle.dumps(dtype)) is dtype
    file = io.BytesIO()
    pb.save({"x": x, "part": x[1:]}, file)
    loaded = pb.load(io.BytesIO(file.getvalue()))
    assert loaded["x"].equal(x) and loaded["part"].dtype == dtype
    assert loaded["part"].data_ptr() == loaded["x"].data_ptr() + 7 * dtype.itemsize
    assert pb.full((2,), top, dtype=dtype).tolist() == [top, top]
    assert pb.tensor([top], dtype=dtype).item() == top == pb.iinfo(dtype).max
    assert pb.iinfo(dtype).min == 0 and pb.iinfo(dtype).bits == 8 * dtype.itemsize
    assert pb.arange(2, 9, 3, dtype=dtype).tolist() == [2, 5, 8]
    assert pb.zeros(2, dtype=dtype).fill_(-1).tolist() == [top, top]
    assert pb.frombuffer(bytearray(b"\xff" * 8), dtype=dtype)[0] == top
    drawn = pb.randint(0, 7, (50,), dtype=dtype)
    assert drawn.dtype == dtype and set(drawn.tolist()) <= set(range(7))
    assert repr(pb.tensor([top, 1], dtype=dtype)) == (
        f"tensor([{top}, {' ' * (len(str(top)) - 1)}1], dtype=pullback.{name})"
    )
    assert x.storage_type() is None and x.untyped_storage().nbytes() == array.nbytes
    assert [0, 1, 2][pb.tensor(2, dtype=dtype)] == 2
    with pytest.raises(RuntimeError, match="only Tensors of floating point dtype can require"):
        pb.zeros(1, dtype=dtype).requires_grad_()
    with pytest.raises(IndexError, match="must be long, int, byte or bool"):
        pb.arange(3)[pb.zeros(1, dtype=dtype)]
    with pytest.raises((RuntimeError, OverflowError)):
        pb.tensor([top + 1], dtype=dtype)


@pytest.mark.parametrize(
    ("number", "error", "words"),
    [
        (2**64, OverflowError, "int too big to convert"),
        (-1, OverflowError, "can't convert negative int to unsigned"),
        (1.5, TypeError, "an integer is required"),
    ],
)
def test_numbers_that_uint64_refuses(number, error, words):
    with pytest.raises(error, match=words):
        pb.tensor([number], dtype=pb.uint64)


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ("uint16", "uint32", "uint32"),
        ("uint8", "uint64", "uint64"),
        ("uint16", "int8", "int32"),
        ("uint16", "int16", "int32"),
        ("uint16", "int64", "int64"),
        ("uint32", "int32", "int64"),
        ("uint8", "int8", "int16"),
        ("bool", "uint64", "uint64"),
        ("uint64", "float16", "float16"),
        ("uint64", "complex64", "complex64"),
        ("complex32", "uint16", "complex32"),
        ("complex32", "float16", "complex32"),
        ("complex32", "bfloat16", "complex64"),
        ("complex32", "float32", "complex64"),
        ("complex32", "float64", "complex128"),
        ("complex32", "complex128", "complex128"),
    ],
)
def test_promotion_of_optional_dtypes(one, other, wanted):
    a, b, wanted = (getattr(pb, name) for name in (one, other, wanted))
    assert pb.promote_types(a, b) == pb.promote_types(b, a) == wanted
    assert (pb.ones(2, dtype=a) + pb.ones(2, dtype=b)).dtype == wanted


@pytest.mark.parametrize("signed", ["int8", "int16", "int32", "int64"])
def test_uint64_has_no_dtype_in_common_with_signed_ones(signed):
    shown = {"int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long"}[signed]
    words = f"Promotion for .* is not supported, attempted to promote UInt64 and {shown}"
    signed, wide = pb.ones(2, dtype=getattr(pb, signed)), pb.ones(2, dtype=pb.uint64)
    for call in (lambda: wide * signed, lambda: pb.cat([wide, signed])):
        with pytest.raises(RuntimeError, match=words):
            call()
    assert (wide * signed[0]).dtype == pb.uint64 and (wide * 2).dtype == pb.uint64


# -- complex32 -------------------------------------------------------------------------------------

Z = np.array([[1 + 2j, -0.5 - 3j, 2j], [4, 0.25 + 0.5j, -1 - 1j]])


@pytest.mark.parametrize("device", DEVICES)
def test_complex32_computes_in_complex64(device):
    z = pb.tensor(Z, device=device).to(pb.chalf)
    assert z.dtype == pb.complex32 == pb.chalf and z.element_size() == 4
    same(z.to(pb.complex128), Z)
    same(z.mT.to(pb.complex64), Z.T)
    for found, wanted in (
        (z + z, Z + Z),
        (z * z, Z * Z),
        (z - 1j, Z - 1j),
        (z / z, Z / Z),
        (z.conj() * 2, Z.conj() * 2),
        (z.sum(0), Z.sum(0)),
        (z.mean(1), Z.mean(1)),
        (z @ z.mT, Z @ Z.T),
        (z.exp(), np.exp(Z)),
        (z[:, 1:].flip(0), Z[::-1, 1:]),
        (z.index_put((pb.tensor([0], device=device),), z[1]), Z[[1, 1]]),
        (z.abs(), np.abs(Z)),
        (z.real, Z.real),
        (z.imag, Z.imag),
        (z.angle(), np.angle(Z)),
        (pb.view_as_real(z), np.stack([Z.real, Z.imag], -1)),
        (z.float(), Z.real),
    ):
        assert found.dtype in (pb.complex32, pb.float16, pb.float32)
        np.testing.assert_allclose(
            found.to(pb.complex128).numpy(force=True), wanted, rtol=2e-3, atol=2e-3
        )
    assert (z == z).all() and z.bool().all() and z.isfinite().all()


def test_complex32_is_stored_and_shown():
    z = pb.tensor([1 + 2j, 3e-3 - 4j, 1e6 + 0j], dtype=pb.complex32)
    assert repr(z[:2]) == "tensor([1.0000+2.j, 0.0030-4.j], dtype=pullback.complex32)"
    assert z[0].item() == 1 + 2j and z.tolist()[2] == complex(np.inf, 0)
    assert z.view(pb.float16).tolist()[:2] == [1.0, 2.0]
    assert pb.view_as_complex(pb.ones(2, 2, dtype=pb.half)).dtype == pb.complex32
    assert pb.complex(pb.ones(1).half(), pb.ones(1).half()).item() == 1 + 1j
    assert (pb.ones(1).half() * 1j).dtype == pb.complex32 == pb.float16.to_complex()
    assert pb.finfo(pb.complex32).max == 65504.0 and pb.complex32.to_real() == pb.float16
    assert pickle.loads(pickle.dumps(z)).equal(z)
    file = io.BytesIO()
    pb.save(z, file)
    assert pb.load(io.BytesIO(file.getvalue())).equal(z)
    assert pb.from_dlpack(z).equal(z)
    drawn = pb.rand(200, dtype=pb.complex32)
    assert 0.3 < drawn.real.float().mean() < 0.7 and len(set(drawn.tolist())) > 190
    with pytest.raises(TypeError, match="Got unsupported ScalarType ComplexHalf"):
        z.numpy()
    assert not hasattr(z, "__array_interface__")


def test_gradients_through_complex32():
    a = pb.tensor([1 + 2j, 3 - 4j], dtype=pb.complex32, requires_grad=True)
    (a * a).real.sum().backward()
    assert a.grad.dtype == pb.complex32 and a.grad.tolist() == [2 - 4j, 6 + 8j]
    x = pb.ones(2, requires_grad=True)
    pb.view_as_real(x.chalf()).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0] and x.grad.dtype == pb.float32
