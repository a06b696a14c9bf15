"""Factories: values, shapes, dtypes, strides, and refused arguments."""

import array
import math

import numpy as np
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

# tensor


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (1, pb.int64, ()),
        (1.5, pb.float32, ()),
        (True, pb.bool, ()),
        (1j, pb.complex64, ()),
        ([], pb.float32, (0,)),
        ([[], []], pb.float32, (2, 0)),
        ([1, 2], pb.int64, (2,)),
        ([1, 2.5], pb.float32, (2,)),
        ([True, 2], pb.int64, (2,)),
        ([1, 2j], pb.complex64, (2,)),
        ([(1, 2), [3, 4]], pb.int64, (2, 2)),
        (range(3), pb.int64, (3,)),
        (np.float64(2), pb.float64, ()),
        (np.arange(3, dtype=np.int16), pb.int16, (3,)),
        ([np.float32(1), np.float64(2)], pb.float64, (2,)),
        ([[[1]]], pb.int64, (1, 1, 1)),
    ],
)
def test_tensor_infers_dtype_and_shape(data, dtype, shape):
    x = pb.tensor(data)
    assert x.dtype == dtype
    assert x.shape == shape
    assert x.tolist() == np.asarray(data).tolist()


@pytest.mark.parametrize(
    ("data", "dtype", "values"),
    [
        ([np.float64(2), 1], pb.float64, [2.0, 1.0]),
        ([np.int8(3)], pb.int8, [3]),
        ([np.float32(1), 2], pb.float32, [1.0, 2.0]),
        ([np.ones(2), [1, 2]], pb.float64, [[1.0, 1.0], [1.0, 2.0]]),
        ([range(2), (5, 6)], pb.int64, [[0, 1], [5, 6]]),
        ([pb.tensor(1, dtype=pb.int16), 2.5], pb.float32, [1.0, 2.5]),
        (bytearray(b"ab"), pb.int64, [97, 98]),
        (array.array("f", [1, 2]), pb.float32, [1.0, 2.0]),
        (np.arange(3)[1:], pb.int64, [1, 2]),
    ],
)
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy")
def test_tensor_reads_mixed_data(data, dtype, values):
    x = pb.tensor(data)
    assert x.dtype == dtype
    assert x.tolist() == values


def test_tensor_of_numbers_of_the_user():
    class Number:
        def __float__(self):
            return 3.5

        def __index__(self):
            return 3

    with pytest.raises(RuntimeError, match="Could not infer dtype of Number"):
        pb.tensor([Number()])
    assert pb.tensor([Number()], dtype=pb.float32).tolist() == [3.5]
    assert pb.tensor([Number()], dtype=pb.int8).tolist() == [3]


@pytest.mark.beyond_torch
def test_tensor_of_a_list_that_changes_while_it_is_read():
    class Growing:
        def __len__(self):
            data.append(1)
            return 1

        def __getitem__(self, i):
            data.append(1)
            if i:
                raise IndexError
            return 1

    data = [Growing(), Growing()]
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        pb.tensor(data)


def test_tensor_of_tensors():
    assert pb.tensor([pb.tensor(1.0), pb.tensor(2)]).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensor_with_dtype(dtype):
    x = pb.tensor([0, 1, 2], dtype=dtype)
    assert x.dtype == dtype
    assert x.tolist() == ([False, True, True] if dtype == pb.bool else [0, 1, 2])


def test_tensor_copies_its_data():
    a = np.ones(3)
    x = pb.tensor(a)
    a[0] = 5
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_tensor_converts_values():
    assert pb.tensor(1.7, dtype=pb.int32).item() == 1
    assert pb.tensor(-1.7, dtype=pb.int32).item() == -1
    assert pb.tensor(1.5, dtype=pb.bool).item() is True
    assert pb.tensor(1e400).item() == math.inf
    assert pb.tensor(1e10, dtype=pb.float16).item() == math.inf
    assert pb.tensor([0.1], dtype=pb.float64).item() == 0.1
    assert pb.tensor([0.1]).item() == np.float32(0.1)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ([[1, 2], [3]], ValueError),
        ([[1], 2], TypeError),
        ([[1, 2], 3], TypeError),
        ("1", TypeError),
        (["a"], ValueError),
        (b"ab", TypeError),
        (None, RuntimeError),
        ([1, None], RuntimeError),
        ({"a": 1}, RuntimeError),
        ({1, 2}, RuntimeError),
        (object, RuntimeError),
        (2**63, (ValueError, RuntimeError, OverflowError)),
        ([2**70], (ValueError, RuntimeError, OverflowError)),
        (np.array(["a"]), TypeError),
        (np.array([object]), TypeError),
        (np.datetime64("2020-01-01"), TypeError),
    ],
    ids=repr,
)
def test_tensor_refuses_other_data(data, error):
    with pytest.raises((error, TypeError, ValueError) if not isinstance(error, tuple) else error):
        pb.tensor(data)


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (300, pb.uint8),
        (2**40, pb.int32),
        ([2**40], pb.int32),
        (math.nan, pb.int64),
        (math.inf, pb.int8),
        (1e30, pb.int64),
        ([127.0, 128.0], pb.int8),
        ([-129], pb.int8),
        ([2**63], pb.int64),
        ([-256], pb.uint8),
    ],
)
def test_tensor_refuses_values_that_do_not_fit(data, dtype):
    with pytest.raises((RuntimeError, OverflowError, ValueError)):
        pb.tensor(data, dtype=dtype)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (300, pb.uint8),
        (math.nan, pb.int8),
        (1j, pb.float32),
        (2**63, pb.int64),
        (1e10, pb.float16),
        (1e40, pb.float32),
    ],
)
def test_filling_refuses_values_that_do_not_fit(value, dtype):
    for call in (
        lambda: pb.full((2,), value, dtype=dtype),
        lambda: pb.zeros(2, dtype=dtype).fill_(value),
    ):
        with pytest.raises((RuntimeError, OverflowError, TypeError)):
            call()


def test_negative_numbers_wrap_around_in_uint8():
    assert pb.tensor([-1, -255], dtype=pb.uint8).tolist() == [255, 1]
    assert pb.full((1,), -1, dtype=pb.uint8).tolist() == [255]


def test_tensor_refuses_complex_for_real_dtype():
    with pytest.raises((TypeError, RuntimeError)):
        pb.tensor(1j, dtype=pb.float32)


def test_tensor_refuses_self_containing_list():
    endless = []
    endless.append(endless)
    with pytest.raises((ValueError, RecursionError, RuntimeError)):
        pb.tensor(endless)


# as_tensor


def test_as_tensor_shares_when_it_can():
    x, a = pb.ones(2), np.ones(2)
    assert pb.as_tensor(x) is x
    assert pb.as_tensor(x, dtype=pb.float64).dtype == pb.float64
    y = pb.as_tensor(a)
    y[0] = 7.0
    assert a.tolist() == [7.0, 1.0]
    assert pb.as_tensor([1, 2]).tolist() == [1, 2]


# Filled tensors


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_zeros_ones_full_empty(dtype, shape):
    for make, value in ((pb.zeros, 0), (pb.ones, 1)):
        x = make(shape, dtype=dtype)
        assert (x.dtype, x.shape) == (dtype, shape)
        assert x.tolist() == np.full(shape, value, bool if dtype == pb.bool else int).tolist()
        assert x.is_contiguous()
    assert pb.full(shape, 1, dtype=dtype).tolist() == pb.ones(shape, dtype=dtype).tolist()
    assert pb.empty(shape, dtype=dtype).shape == shape


def test_size_spellings():
    assert pb.zeros(2, 3).shape == pb.zeros((2, 3)).shape == pb.zeros([2, 3]).shape == (2, 3)
    assert pb.zeros(size=(2,)).shape == (2,)
    assert pb.zeros(np.int64(2), 3).shape == (2, 3)
    assert pb.zeros(pb.ones(4).shape).shape == (4,)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(True, pb.bool), (1, pb.int64), (1.0, pb.float32), (1j, pb.complex64)],
)
def test_full_infers_dtype_from_value(value, dtype):
    x = pb.full((2,), value)
    assert x.dtype == dtype
    assert x.tolist() == [value, value]


def test_full_takes_a_tensor_value():
    assert pb.full((2,), pb.tensor(3.0)).tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    "like",
    [lambda x, **k: pb.zeros_like(x, **k), lambda x, **k: pb.ones_like(x, **k)],
)
def test_like_factories_keep_shape_dtype_and_dense_strides(like):
    transposed = pb.zeros(2, 3, dtype=pb.float16).t()
    x = like(transposed)
    assert (x.shape, x.dtype, x.stride()) == ((3, 2), pb.float16, (1, 3))
    assert like(pb.zeros(2, 6)[:, ::2]).stride() == (3, 1)
    assert like(pb.zeros(3).expand(2, 3)).stride() == (3, 1)
    assert like(transposed, dtype=pb.int8).dtype == pb.int8
    assert pb.full_like(transposed, 4).tolist() == [[4.0] * 2] * 3
    assert pb.empty_like(transposed).stride() == (1, 3)


@pytest.mark.parametrize("make", [pb.zeros, pb.ones, pb.empty, pb.rand, pb.randn])
@pytest.mark.parametrize(
    ("size", "error"),
    [
        ((-1,), RuntimeError),
        ((2, -3), RuntimeError),
        ((2**62,), (RuntimeError, MemoryError)),
        ((2**40, 2**40), (RuntimeError, MemoryError)),
        ((2**63 - 1, 2), (RuntimeError, MemoryError)),
        ((2**70,), (TypeError, RuntimeError, OverflowError)),
        (("a",), TypeError),
        ((2.5,), TypeError),
        ((None,), TypeError),
        (([2, "a"],), TypeError),
    ],
)
def test_impossible_sizes_are_refused(make, size, error):
    with pytest.raises(error):
        make(*size)


@pytest.mark.parametrize(
    "options",
    [{"dtype": 3}, {"dtype": "float32"}, {"device": 3.5}, {"device": "no-such"}, {"unknown": 1}],
    ids=str,
)
def test_wrong_options_are_refused(options):
    with pytest.raises((TypeError, RuntimeError)):
        pb.zeros(2, **options)


def test_out_argument_receives_the_result():
    out = pb.ones(3)
    assert pb.zeros(3, out=out) is out
    assert out.tolist() == [0.0, 0.0, 0.0]


# arange


@pytest.mark.parametrize(
    ("arguments", "expected", "dtype"),
    [
        ((5,), [0, 1, 2, 3, 4], pb.int64),
        ((2, 5), [2, 3, 4], pb.int64),
        ((5, 0, -2), [5, 3, 1], pb.int64),
        ((3, 3), [], pb.int64),
        ((2.5,), [0.0, 1.0, 2.0], pb.float32),
        ((1, 2.0), [1.0], pb.float32),
        ((0, 1, 0.25), [0.0, 0.25, 0.5, 0.75], pb.float32),
        ((-1.0, -2.0, -0.5), [-1.0, -1.5], pb.float32),
    ],
)
def test_arange(arguments, expected, dtype):
    x = pb.arange(*arguments)
    assert x.tolist() == expected
    assert x.dtype == dtype


@pytest.mark.parametrize(
    "dtype", [pb.uint8, pb.int32, pb.float16, pb.bfloat16, pb.float64], ids=str
)
def test_arange_with_dtype(dtype):
    x = pb.arange(4, dtype=dtype)
    assert (x.dtype, x.tolist()) == (dtype, [0, 1, 2, 3])


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        ((0, 5, 0), "step must be nonzero"),
        ((0, 5, -1), "upper bound and lower bound inconsistent with step sign"),
        ((3, 1), "upper bound and lower bound inconsistent with step sign"),
        ((math.nan,), "unsupported range"),
        ((math.inf,), "unsupported range"),
        ((1e30,), None),
        ((0, 2**62), None),
    ],
)
def test_arange_refuses_impossible_ranges(arguments, fragment):
    with pytest.raises((RuntimeError, MemoryError), match=fragment):
        pb.arange(*arguments)


# Printing


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: pb.tensor([1, 2, 3]), "tensor([1, 2, 3])"),
        (lambda: pb.tensor([1.0, 2.5]), "tensor([1.0000, 2.5000])"),
        (lambda: pb.tensor([1.0, 2.0]), "tensor([1., 2.])"),
        (lambda: pb.tensor(3.5), "tensor(3.5000)"),
        (lambda: pb.tensor(3), "tensor(3)"),
        (lambda: pb.tensor([True, False]), "tensor([ True, False])"),
        (lambda: pb.tensor([]), "tensor([])"),
        (lambda: pb.zeros(0, 3), "tensor([], size=(0, 3))"),
        (lambda: pb.zeros(2, dtype=pb.float64), "tensor([0., 0.], dtype=torch.float64)"),
        (lambda: pb.zeros(2, dtype=pb.int8), "tensor([0, 0], dtype=torch.int8)"),
        (lambda: pb.tensor([1 + 2j]), "tensor([1.+2.j])"),
        (lambda: pb.tensor([math.nan, math.inf, -1]), "tensor([nan, inf, -1.])"),
        (lambda: pb.tensor([1e10, 1.0]), "tensor([1.0000e+10, 1.0000e+00])"),
        (lambda: pb.tensor([[1, 2], [3, 4]]), "tensor([[1, 2],\n        [3, 4]])"),
    ],
)
def test_repr(make, expected):
    assert repr(make()) == expected.replace("torch.", f"{pb.__name__}.")


def test_repr_of_many_elements_is_summarised():
    text = repr(pb.arange(2000))
    assert text == "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"


def test_print_options():
    try:
        pb.set_printoptions(precision=2)
        assert repr(pb.tensor([1.23456])) == "tensor([1.23])"
    finally:
        pb.set_printoptions(profile="default")
    assert repr(pb.tensor([1.23456])) == "tensor([1.2346])"


class Items:
    """A sequence that says `length`, and yields `item` as often as `count` says (None: forever)."""

    def __init__(self, length, count, item=1.0):
        self.length, self.count, self.item = length, count, item

    def __len__(self):
        return self.length() if callable(self.length) else self.length

    def __getitem__(self, i):
        if self.count is not None and i >= self.count:
            raise IndexError
        return self if self.item is None else self.item


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (Items(3, None), ValueError, "more items than its length, 3"),
        (Items(2, None, item=None), ValueError, "too many dimensions|more items"),
        (Items(1, 1, item=None), ValueError, "too many dimensions 'Items'"),
        (Items(5, 3), ValueError, "of length 5 has only 3 items"),
        (Items(iter(range(1, 10**9)).__next__, None), ValueError, "more items than its length"),
        (Items(2**62, None), MemoryError, None),
        (Items(-1, None), ValueError, None),
    ],
)
def test_sequence_that_lies_about_its_length(data, error, message):
    for read in (pb.tensor, pb.as_tensor, lambda data: pb.tensor(data, dtype=pb.float64)):
        with pytest.raises(error, match=message):
            read(data)


def test_list_that_grows_while_it_is_read():
    class Number(float):
        def __getattr__(self, name):
            numbers.append(self)
            raise AttributeError(name)

    numbers = [1.0, Number(2.0)]
    with pytest.raises(RuntimeError, match="changed its length while it was read"):
        pb.tensor(numbers)


def test_endless_size():
    with pytest.raises((TypeError, RuntimeError)):
        pb.zeros(Items(2, None, item=1))


def test_copy_and_fill_of_numbers():
    assert pb.zeros(2).copy_(2).tolist() == [2.0, 2.0]
    assert pb.zeros(1, dtype=pb.int64).copy_(2.7).tolist() == [2]
    assert pb.zeros(1).copy_(2j).tolist() == [0.0]
    assert pb.zeros(1, dtype=pb.bool).fill_(1j).tolist() == [True]
    assert pb.zeros(1).fill_(3 + 0j).tolist() == [3.0]
    mask = pb.tensor([True])
    assert pb.tensor([False]).masked_fill_(mask, 1j).tolist() == [True]
    x = pb.ones(2, requires_grad=True)
    (x * 1).copy_(3).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]
    with pytest.raises(RuntimeError, match="cannot be converted"):
        pb.zeros(1).fill_(1j)


@pytest.mark.parametrize("data", [[1, "a"], [[1], "a"], [[1.0, 2.0], [3.0, "a"]]])
def test_text_after_a_number_is_a_type_error(data):
    with pytest.raises(TypeError, match="new\\(\\): invalid data type 'str'"):
        pb.tensor(data)
