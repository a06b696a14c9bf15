"""uint16, uint32, uint64 and complex32: what torch has of them is the same here."""

import numpy as np
import pytest

import pullback as pb

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

UNSIGNED = ["uint16", "uint32", "uint64"]
OTHERS = [dtype.name for dtype in pb._dtypes()]

# Calls of the library, two tensors of one dtype and a mask; torch has all of them.
CALLS = {
    "mul": lambda lib, a, b, c: a * b,
    "mul number": lambda lib, a, b, c: a * -3,
    "mul float": lambda lib, a, b, c: a * 0.5,
    "div": lambda lib, a, b, c: a / b,
    "bits": lambda lib, a, b, c: (a & b) | (a ^ b),
    "eq": lambda lib, a, b, c: (a == b) | (a != 3),
    "isclose": lambda lib, a, b, c: lib.isclose(a, a),
    "sum": lambda lib, a, b, c: a.sum(0),
    "sum as float": lambda lib, a, b, c: a.sum(dtype=lib.float32),
    "prod": lambda lib, a, b, c: a.prod(),
    "any": lambda lib, a, b, c: a.any(0),
    "all": lambda lib, a, b, c: a.all(),
    "cumsum": lambda lib, a, b, c: a.cumsum(1),
    "cumprod": lambda lib, a, b, c: a.cumprod(0),
    "nansum": lambda lib, a, b, c: a.nansum(),
    "sort": lambda lib, a, b, c: a.sort(dim=1, stable=True),
    "argsort": lambda lib, a, b, c: a.argsort(dim=0, stable=True),
    "descending": lambda lib, a, b, c: a.sort(descending=True, stable=True),
    "unique": lambda lib, a, b, c: a.unique(return_inverse=True, return_counts=True),
    "unique_consecutive": lambda lib, a, b, c: a.unique_consecutive(),
    "where": lambda lib, a, b, c: lib.where(c, a, b),
    "where number": lambda lib, a, b, c: lib.where(c, a, 0),
    "cat": lambda lib, a, b, c: lib.cat([a, b], 1),
    "stack": lambda lib, a, b, c: lib.stack([a, b]),
    "index": lambda lib, a, b, c: a[lib.tensor([1, 0, -1])],
    "mask": lambda lib, a, b, c: a[c],
    "roll": lambda lib, a, b, c: a.roll(2, 1),
    "outer": lambda lib, a, b, c: a[0].outer(b[1]),
    "exp": lambda lib, a, b, c: (a[a == 3]).exp(),
    "atan2": lambda lib, a, b, c: lib.atan2(a, b),
    "floor": lambda lib, a, b, c: a.floor() * a.round() * a.trunc(),
    "isnan": lambda lib, a, b, c: a.isnan() | ~a.isfinite(),
    "diag": lambda lib, a, b, c: a.diag(),
    "pad": lambda lib, a, b, c: lib.nn.functional.pad(a, (1, 2), value=7),
    "unfold": lambda lib, a, b, c: a.unfold(1, 2, 1),
    "full": lambda lib, a, b, c: lib.full((2,), 3, dtype=a.dtype) * a.new_ones(2),
    "zeros": lambda lib, a, b, c: lib.zeros_like(a),
    "bytes": lambda lib, a, b, c: a.view(lib.uint8),
    "twin": lambda lib, a, b, c: a.view(getattr(lib, str(a.dtype).partition(".u")[2])),
    "0-d": lambda lib, a, b, c: a * lib.tensor(2),
    "complex": lambda lib, a, b, c: a * 1j,
    "positive": lambda lib, a, b, c: +a,
    "nan_to_num": lambda lib, a, b, c: a.nan_to_num(),
}


def described(value):
    """Return the dtypes and elements of a result of either library."""
    if isinstance(value, tuple):
        return [described(item) for item in value]
    return str(value.dtype).partition(".")[2], value.tolist()


def both(function):
    """Return what a function of the library gives, or the class and text of its exception."""
    found = []
    for lib in (torch, pb):
        try:
            found.append(described(function(lib)))
        except Exception as error:
            found.append((type(error).__name__, str(error).replace("pullback", "torch")))
    return found


def operands(lib, name):
    top = int(np.iinfo(name).max)
    rng = np.random.default_rng(5)
    arrays = [rng.integers(1, top, (4, 5), name, endpoint=True) for _ in range(2)]
    arrays[0][0, :4], arrays[0][1, :2] = (0, 3, top, top // 2 + 1), (3, 3)
    return (*(lib.from_numpy(array) for array in arrays), lib.tensor([True, False, True, True]))


@pytest.mark.parametrize("name", UNSIGNED)
def test_results_in_unsigned_dtypes(name):
    for call, function in CALLS.items():
        shape = (lambda c: c) if call == "mask" else (lambda c: c[:, None])

        def run(lib, function=function, shape=shape):
            a, b, c = operands(lib, name)
            return function(lib, a, b, shape(c))

        theirs, ours = both(run)
        assert theirs[0] not in ("NotImplementedError", "RuntimeError"), (call, theirs)
        if isinstance(theirs, tuple) and ours[0] == theirs[0] and "float" in ours[0]:
            np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6, err_msg=call)
        else:
            assert ours == theirs, call


@pytest.mark.parametrize("name", UNSIGNED)
@pytest.mark.parametrize("other", OTHERS)
def test_casts_and_promotion_of_unsigned_dtypes(name, other):
    def cast(lib):
        return operands(lib, name)[0].to(getattr(lib, other))

    theirs, ours = both(cast)
    assert ours == theirs
    theirs, ours = both(lambda lib: lib.tensor([0, 1, 5, 60000]).to(getattr(lib, other)))
    assert ours == theirs
    pair = [[getattr(lib, one) for one in (name, other)] for lib in (torch, pb)]
    try:
        wanted = torch.promote_types(*pair[0])
    except RuntimeError as error:  # torch promotes them to nothing, the array API to the next
        if name == "uint64" and other.startswith("int"):
            with pytest.raises(RuntimeError) as found:
                pb.promote_types(*pair[1])
            assert str(found.value) == str(error)
    else:
        assert str(pb.promote_types(*pair[1])).partition(".")[2] == str(wanted).partition(".")[2]
    assert pb.can_cast(*pair[1]) == torch.can_cast(*pair[0])
    assert pb.can_cast(*pair[1][::-1]) == torch.can_cast(*pair[0][::-1])


MADE = {
    "wrap": lambda lib, d: lib.tensor([-1, 5], dtype=d),
    "too large": lambda lib, d: lib.tensor([2**64], dtype=d),
    "fraction": lambda lib, d: lib.tensor([2, 3], dtype=d),
    "fill": lambda lib, d: lib.zeros(2, dtype=d).fill_(-1),
    "empty": lambda lib, d: lib.tensor([], dtype=d),
    "array": lambda lib, d: lib.tensor(np.array([1, 7], str(d).partition(".")[2])),
    "frombuffer": lambda lib, d: lib.frombuffer(bytearray(range(200, 216)), dtype=d),
    "shown": lambda lib, d: lib.tensor(list(repr(lib.tensor([3, 60000], dtype=d)).encode())[:22]),
    "random": lambda lib, d: lib.randint(3, 4, (2,), dtype=d),
}


@pytest.mark.parametrize("name", UNSIGNED)
@pytest.mark.parametrize("call", MADE)
def test_unsigned_tensors_are_made(name, call):
    theirs, ours = both(lambda lib: MADE[call](lib, getattr(lib, name)))
    if call == "too large":
        assert ours[0] == theirs[0]
    else:
        assert ours == theirs


COMPLEX = {
    "add": lambda lib, z: z + z,
    "sub": lambda lib, z: z - z.flip(0) if lib is pb else z - lib.stack([z[1], z[0]]),
    "mul": lambda lib, z: z * z,
    "neg": lambda lib, z: -z,
    "abs": lambda lib, z: z.abs(),
    "conj": lambda lib, z: z.conj().resolve_conj(),
    "real": lambda lib, z: z.real * z.imag,
    "eq": lambda lib, z: (z == z) & z.isfinite(),
    "view_as_real": lambda lib, z: lib.view_as_real(z),
    "view_as_complex": lambda lib, z: lib.view_as_complex(lib.ones(2, 2).half()),
    "complex": lambda lib, z: lib.complex(z.real.contiguous(), z.imag.contiguous()),
    "polar": lambda lib, z: lib.polar(z.real.contiguous(), z.imag.contiguous()),
    "where": lambda lib, z: lib.where(z == 3 - 4j, z, 0),
    "cat": lambda lib, z: lib.cat([z, z]),
    "index": lambda lib, z: z[[1, 0]],
    "half": lambda lib, z: lib.ones(2).half() * 1j,
    "float": lambda lib, z: z * lib.ones(2),
    "number": lambda lib, z: z * 2.5,
    "to half": lambda lib, z: z.real.half().chalf(),
    "view": lambda lib, z: z.view(lib.int32),
    "full": lambda lib, z: lib.full((2,), 2j, dtype=lib.chalf),
    "overflow": lambda lib, z: lib.tensor([1e6 + 1j, 1e-9], dtype=lib.complex32),
    "nonzero": lambda lib, z: z.nonzero(),
    "bool": lambda lib, z: z.bool() & z.any(),
    "tril": lambda lib, z: z.view(2, 1).tril(),
    "wide": lambda lib, z: z.to(lib.complex128),
    "sgn": lambda lib, z: z.sgn(),
    "addcmul": lambda lib, z: lib.addcmul(z, z, z),
    "dlpack": lambda lib, z: lib.from_dlpack(z),
    "numpy": lambda lib, z: z.numpy(),
    "shown": lambda lib, z: lib.tensor(list(repr(z).encode())[:22]),
}


@pytest.mark.parametrize("call", COMPLEX)
def test_results_in_complex32(call):
    theirs, ours = both(lambda lib: COMPLEX[call](lib, lib.tensor([1 + 2j, 3 - 4j]).chalf()))
    assert ours == theirs


@pytest.mark.parametrize("other", OTHERS)
def test_casts_and_promotion_of_complex32(other):
    def cast(lib):
        return lib.tensor([1 + 2j, 3 - 4j]).chalf().real.to(getattr(lib, other)).to(lib.complex32)

    theirs, ours = both(cast)
    assert ours == theirs
    pair = [[getattr(lib, one) for one in ("complex32", other)] for lib in (torch, pb)]
    if other not in UNSIGNED:
        wanted = torch.promote_types(*pair[0])
        assert str(pb.promote_types(*pair[1])).partition(".")[2] == str(wanted).partition(".")[2]
