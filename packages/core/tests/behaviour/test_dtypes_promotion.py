"""Type promotion: which dtype results from which operands, and what is refused."""

import itertools

import pytest

import pullback as pb

DTYPES = [
    pb.bool,
    pb.uint8,
    pb.int8,
    pb.int16,
    pb.int32,
    pb.int64,
    pb.float16,
    pb.bfloat16,
    pb.float32,
    pb.float64,
    pb.complex64,
    pb.complex128,
]
KIND = {
    dtype: 0 if i == 0 else 1 if i < 6 else 2 if i < 10 else 3 for i, dtype in enumerate(DTYPES)
}

# Rows and columns in the order of DTYPES; a letter stands for a dtype.
LETTERS = dict(zip("buijklhefdFD", DTYPES, strict=True))
TABLE = """
buijklhefdFD
uujjklhefdFD
ijijklhefdFD
jjjjklhefdFD
kkkkklhefdFD
llllllhefdFD
hhhhhhhffdFD
eeeeeefefdFD
fffffffffdFD
ddddddddddDD
FFFFFFFFFDFD
DDDDDDDDDDDD
""".split()


def expected_dtype(a, b):
    return LETTERS[TABLE[DTYPES.index(a)][DTYPES.index(b)]]


PAIRS = list(itertools.product(DTYPES, DTYPES))


@pytest.mark.parametrize("a", DTYPES, ids=str)
def test_table_for_tensors_of_equal_rank(a):
    for b in DTYPES:
        expected = expected_dtype(a, b)
        assert (pb.ones(2, dtype=a) * pb.ones(2, dtype=b)).dtype == expected, (a, b)
        assert (pb.ones((), dtype=a) * pb.ones((), dtype=b)).dtype == expected, (a, b)
        assert pb.promote_types(a, b) == expected
        assert pb.result_type(pb.ones(2, dtype=a), pb.ones(2, dtype=b)) == expected


@pytest.mark.parametrize("a", DTYPES, ids=str)
def test_zero_dimensional_operand_counts_only_by_kind(a):
    for b in DTYPES:
        if (a, KIND[b]) == (pb.float16, 3):
            continue  # Torch answers with complex32, which we do not have.
        expected = a if KIND[b] <= KIND[a] else b
        if (KIND[a], KIND[b]) == (2, 3):
            # The result becomes complex but keeps the width of the array.
            expected = pb.complex128 if a == pb.float64 else pb.complex64
        assert (pb.ones(2, dtype=a) * pb.ones((), dtype=b)).dtype == expected, (a, b)


@pytest.mark.parametrize(
    ("dtype", "scalar", "expected"),
    [
        (pb.bool, True, pb.bool),
        (pb.bool, 1, pb.int64),
        (pb.bool, 1.0, pb.float32),
        (pb.bool, 1j, pb.complex64),
        (pb.uint8, True, pb.uint8),
        (pb.uint8, 1, pb.uint8),
        (pb.uint8, 1.0, pb.float32),
        (pb.int32, 1, pb.int32),
        (pb.int32, 1.0, pb.float32),
        (pb.int64, 1.0, pb.float32),
        (pb.int64, 1j, pb.complex64),
        (pb.float16, 1, pb.float16),
        (pb.float16, 1.0, pb.float16),
        (pb.bfloat16, 1.0, pb.bfloat16),
        (pb.float32, 1.0, pb.float32),
        (pb.float32, 1j, pb.complex64),
        (pb.float64, 1, pb.float64),
        (pb.float64, 1.0, pb.float64),
        (pb.float64, 1j, pb.complex128),
        (pb.complex64, 1.0, pb.complex64),
        (pb.complex128, 1j, pb.complex128),
    ],
)
@pytest.mark.parametrize("shape", [(2,), ()])
def test_python_scalars_count_only_by_kind(dtype, scalar, expected, shape):
    x = pb.ones(shape, dtype=dtype)
    assert (x * scalar).dtype == expected
    assert (scalar * x).dtype == expected
    assert (x + scalar).dtype == expected
    assert pb.result_type(x, scalar) == expected


def test_zero_dimensional_tensors_beat_python_scalars():
    assert (pb.tensor(1, dtype=pb.int8) * 1).dtype == pb.int8
    assert (pb.tensor(1.0, dtype=pb.float64) * 1.0).dtype == pb.float64
    assert (pb.tensor(1, dtype=pb.int8) * 1.0).dtype == pb.float32


# Result dtypes of single operations


@pytest.mark.parametrize("dtype", DTYPES[:6], ids=str)
def test_true_division_and_functions_of_integers_give_floats(dtype):
    x = pb.ones(2, dtype=dtype)
    assert (x / x).dtype == pb.float32
    assert (1 / x).dtype == pb.float32
    for function in ("exp", "log", "tanh", "sigmoid", "sqrt"):
        assert getattr(x, function)().dtype == pb.float32


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_comparisons_give_bool(dtype):
    x = pb.ones(2, dtype=dtype)
    assert (x == x).dtype == (x != 1).dtype == pb.bool
    if KIND[dtype] < 3:
        assert (x < 2).dtype == (x >= x).dtype == pb.bool


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sum_of_integers_is_int64(dtype):
    expected = dtype if KIND[dtype] >= 2 else pb.int64
    assert pb.ones(2, dtype=dtype).sum().dtype == expected
    assert pb.ones(2, dtype=dtype).sum(0).dtype == expected
    assert pb.ones(2, dtype=dtype).sum(dtype=pb.complex128).dtype == pb.complex128


def test_sum_does_not_overflow_small_integers():
    assert pb.full((10,), 100, dtype=pb.int8).sum().item() == 1000
    assert pb.full((10,), 2**30, dtype=pb.int32).sum().item() == 10 * 2**30


def test_mean_needs_floats():
    for dtype in (pb.int64, pb.bool):
        with pytest.raises(RuntimeError, match="mean"):
            pb.ones(2, dtype=dtype).mean()
    assert pb.ones(2, dtype=pb.int64).mean(dtype=pb.float64).dtype == pb.float64
    assert pb.ones(2, dtype=pb.float16).mean().dtype == pb.float16


def test_integer_floor_division_and_remainder_stay_integers():
    x = pb.tensor([7, -7])
    assert (x // 2).tolist() == [3, -4]
    assert (x % 3).tolist() == [1, 2]
    assert (x // 2).dtype == (x % 3).dtype == pb.int64
    assert (pb.tensor([7.0, -7.0]) // 2).tolist() == [3.0, -4.0]
    assert (pb.tensor([7.0, -7.0]) % 3).tolist() == [1.0, 2.0]


def test_abs_of_complex_is_real():
    assert pb.tensor([3 + 4j]).abs().dtype == pb.float32
    assert pb.tensor([3 + 4j]).abs().tolist() == [5.0]
    assert pb.tensor([3 + 4j], dtype=pb.complex128).abs().dtype == pb.float64


def test_unsigned_arithmetic_wraps():
    x = pb.tensor([255, 0], dtype=pb.uint8)
    assert (x + 1).tolist() == [0, 1]
    assert (x - 1).tolist() == [254, 255]
    assert (-x).tolist() == [1, 0]


def test_where_and_cat_promote():
    a, b = pb.ones(2, dtype=pb.int64), pb.ones(2, dtype=pb.float64)
    assert pb.where(a > 0, a, b).dtype == pb.float64
    assert pb.where(a > 0, b, 1).dtype == pb.float64
    assert pb.cat([a, b]).dtype == pb.float64
    assert pb.stack([a, b]).dtype == pb.float64


def test_matmul_refuses_mixed_dtypes():
    with pytest.raises(RuntimeError, match="dtype"):
        pb.ones(2, 2) @ pb.ones(2, 2, dtype=pb.float64)


# In-place results


@pytest.mark.parametrize(("target", "value"), PAIRS, ids=lambda d: str(d).split(".")[-1])
def test_in_place_result_must_fit_the_kind(target, value):
    x, v = pb.ones(2, dtype=target), pb.ones(2, dtype=value)
    if KIND[expected_dtype(target, value)] <= KIND[target]:
        assert x.mul_(v).dtype == target
    else:
        with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
            x.mul_(v)
        assert x.tolist() == pb.ones(2, dtype=target).tolist()


def test_in_place_true_division_of_integers_is_refused():
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        pb.ones(2, dtype=pb.int64).div_(2)


def test_in_place_with_python_scalars():
    x = pb.ones(2, dtype=pb.int64)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.mul_(2.5)
    assert x.tolist() == [2, 2]
    assert pb.ones(2, dtype=pb.float16).mul_(2.5).dtype == pb.float16


def test_out_must_fit_the_kind():
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        pb.add(pb.ones(2), pb.ones(2), out=pb.ones(2, dtype=pb.int64))
    out = pb.zeros(2, dtype=pb.float64)
    assert pb.add(pb.ones(2), pb.ones(2), out=out) is out
    assert out.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda d: str(d).split(".")[-1])
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_copy_and_to_convert_between_all_dtypes(source, target):
    x = pb.tensor([0, 1, 3], dtype=source)
    expected = [0, 1, 1] if pb.bool in (source, target) else [0, 1, 3]
    assert [int(abs(v)) for v in x.to(target).tolist()] == expected
    assert x.to(target).dtype == target
    y = pb.zeros(3, dtype=target)
    assert y.copy_(x) is y
    assert [int(abs(v)) for v in y.tolist()] == expected


def test_float_to_integer_truncates():
    assert pb.tensor([1.9, -1.9]).to(pb.int64).tolist() == [1, -1]
    assert pb.tensor([300.0]).to(pb.int64).to(pb.uint8).tolist() == [44]


# Dtype objects


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtype_object(dtype):
    assert dtype.is_floating_point is (KIND[dtype] == 2)
    assert dtype.is_complex is (KIND[dtype] == 3)
    assert pb.ones(1, dtype=dtype).element_size() == dtype.itemsize
    assert dtype == pb.ones(1, dtype=dtype).dtype
    assert {dtype: 1}[dtype] == 1
    assert getattr(pb, str(dtype).split(".")[-1]) is dtype


def test_dtype_aliases():
    assert pb.float is pb.float32
    assert pb.double is pb.float64
    assert pb.half is pb.float16
    assert pb.int is pb.int32
    assert pb.long is pb.int64
    assert pb.short is pb.int16


def test_default_dtype():
    assert pb.get_default_dtype() == pb.float32
    try:
        pb.set_default_dtype(pb.float64)
        assert pb.ones(1).dtype == pb.tensor(1.0).dtype == pb.float64
        assert (pb.ones(1, dtype=pb.int64) / 2).dtype == pb.float64
        assert pb.tensor(1j).dtype == pb.complex128
    finally:
        pb.set_default_dtype(pb.float32)
    with pytest.raises(TypeError):
        pb.set_default_dtype(pb.int64)


LONG = "Expected out tensor to have dtype long int, but got float instead"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, out: pb.sort(x, out=out), LONG),
        (lambda x, out: pb.max(x, 0, out=out), LONG),
        (lambda x, out: pb.min(x, 0, out=out), LONG),
        (lambda x, out: pb.topk(x, 1, out=out), LONG),
        (lambda x, out: pb.median(x, 0, out=out), "Long|long int"),
        (lambda x, out: pb.mode(x, 0, out=out), "Long|long int"),
        (lambda x, out: pb.kthvalue(x, 1, 0, out=out), "Long|long int"),
        (lambda x, out: pb.cummax(x, 0, out=out), "Long|long int"),
        (lambda x, out: pb.argmax(x, 0, out=out[0]), LONG),
        (lambda x, out: pb.frexp(x, out=out), "expects exponent to have int dtype but got float"),
    ],
)
def test_indices_are_written_as_integers_only(call, message):
    with pytest.raises(RuntimeError, match=message):
        call(pb.ones(3), (pb.empty(0), pb.empty(0)))


@pytest.mark.parametrize("name", ["abs", "ceil", "floor", "frac", "neg", "round", "sign", "trunc"])
def test_functions_that_keep_the_dtype_write_to_it_only(name):
    x = pb.ones(2, dtype=pb.float64)
    for dtype, called in ((pb.float32, "Float"), (pb.complex128, "ComplexDouble")):
        with pytest.raises(RuntimeError, match=f"Found dtype {called} but expected Double"):
            getattr(pb, name)(x, out=pb.empty(2, dtype=dtype))
    assert pb.exp(x, out=pb.empty(2)).dtype == pb.float32
    assert pb.abs(pb.tensor([3 + 4j]), out=pb.empty(1, dtype=pb.float64)).tolist() == [5.0]


def test_matrices_and_truths_are_written_to_their_dtype_only():
    x = pb.ones(2, 2)
    with pytest.raises(RuntimeError, match="to have dtype float, but got double instead"):
        pb.mm(x, x, out=pb.empty(2, 2, dtype=pb.float64))
    for name in ("isposinf", "isneginf", "signbit"):
        with pytest.raises(RuntimeError, match=f"{name} does not support non-boolean outputs"):
            getattr(pb, name)(x, out=pb.empty(2, 2))
    for name in ("any", "all"):
        with pytest.raises(RuntimeError, match=f"{name} only supports bool tensor for result"):
            getattr(pb, name)(x, 0, out=pb.empty(2))
        assert getattr(pb, name)(x, 0, out=pb.empty(2, dtype=pb.uint8)).tolist() == [1, 1]
    assert pb.eq(x, x, out=pb.empty(2, 2)).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert pb.sum(x, 0, out=pb.empty(2, dtype=pb.float64)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", ["heaviside", "float_power"])
def test_binary_functions_that_write_to_one_dtype_only(name):
    x = pb.ones(2, dtype=pb.float64)
    with pytest.raises(RuntimeError):
        getattr(pb, name)(x, x, out=pb.empty(2))


def test_a_0_dim_bound_of_clamp_does_not_widen():
    low = pb.tensor(1.0, dtype=pb.float64)
    assert pb.clamp(pb.tensor([True]), low, pb.tensor([1.0])).dtype == pb.float32
    with pytest.raises(NotImplementedError, match="clamp"):
        pb.clamp(pb.tensor([True]), False, True)
