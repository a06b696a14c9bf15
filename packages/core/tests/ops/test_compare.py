"""pullback.testing.assert_close and make_tensor."""

import math

import numpy as np
import pytest

import pullback as pb
from pullback.testing import assert_close, make_tensor
from pullback.testing.compare import default_tolerances


def test_close_tensors_pass():
    assert_close(pb.tensor([1.0, 2.0]), pb.tensor([1.0, 2.0 + 1e-6]))
    assert_close(pb.tensor([], dtype=pb.int64), pb.tensor([], dtype=pb.int64))
    assert_close(pb.tensor(1 + 1j), pb.tensor(1 + 1j))


@pytest.mark.parametrize(
    ("dtype", "error", "close"),
    [
        (pb.float64, 1e-8, True),
        (pb.float64, 1e-6, False),
        (pb.float32, 1e-6, True),
        (pb.float32, 1e-4, False),
        (pb.float16, 1e-3, True),
        (pb.float16, 1e-2, False),
        (pb.bfloat16, 1e-2, True),
        (pb.bfloat16, 1e-1, False),
        (pb.complex64, 1e-6, True),
        (pb.complex128, 1e-6, False),
    ],
)
def test_tolerance_follows_from_the_dtype(dtype, error, close):
    actual, expected = pb.tensor([1 + error]).to(dtype), pb.tensor([1.0]).to(dtype)
    if dtype in (pb.float64, pb.complex128):
        actual = pb.tensor([1 + error], dtype=dtype)
    if close:
        assert_close(actual, expected)
    else:
        with pytest.raises(AssertionError, match="not close"):
            assert_close(actual, expected)


def test_the_looser_dtype_sets_the_tolerance():
    assert default_tolerances(pb.float64, pb.bfloat16) == (1.6e-2, 1e-5)
    assert default_tolerances(pb.int64, pb.bool) == (0.0, 0.0)


def test_integers_are_compared_exactly():
    big = 2**63 - 1
    assert_close(pb.tensor([big]), pb.tensor([big]))
    with pytest.raises(AssertionError, match="not equal"):
        assert_close(pb.tensor([big]), pb.tensor([big - 1]))
    assert_close(pb.tensor([5]), pb.tensor([6]), rtol=0, atol=1)


def test_given_tolerances_replace_the_default():
    assert_close(pb.tensor([1.0]), pb.tensor([1.5]), rtol=0, atol=0.5)
    with pytest.raises(AssertionError):
        assert_close(pb.tensor([1.0]), pb.tensor([1.5]), rtol=0.1, atol=0.1)
    with pytest.raises(ValueError, match="both"):
        assert_close(pb.tensor([1.0]), pb.tensor([1.0]), rtol=0.1)


def test_nan_and_infinities():
    nan, inf = pb.tensor([math.nan]), pb.tensor([math.inf])
    with pytest.raises(AssertionError):
        assert_close(nan, nan)
    assert_close(nan, nan, equal_nan=True)
    assert_close(inf, inf)
    with pytest.raises(AssertionError):
        assert_close(inf, -inf)
    with pytest.raises(AssertionError):
        assert_close(inf, pb.tensor([1e30]), rtol=1.0, atol=1.0)


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        (pb.ones(2), pb.ones(3), "shape"),
        (pb.ones(2), pb.ones(2, dtype=pb.float64), "dtype"),
        (pb.ones(2), pb.ones(2, device="meta"), "device"),
        ([pb.ones(1)], [pb.ones(1), pb.ones(1)], "length"),
        ({"a": 1}, {"b": 1}, "keys"),
        ([1.0, 2.0], [1.0, 3.0], r"item \[1\]"),
        ({"a": [1]}, {"a": [2]}, r"item \['a'\]\[0\]"),
    ],
)
def test_what_differs_is_named(actual, expected, message):
    with pytest.raises(AssertionError, match=message):
        assert_close(actual, expected)


def test_attributes_can_be_left_out():
    assert_close(pb.ones(2), pb.ones(2, dtype=pb.float64), check_dtype=False)
    square = pb.ones(2, 2)
    wide = pb.ones(2, 3)[:, :2]
    assert_close(square, wide)
    with pytest.raises(AssertionError, match="stride"):
        assert_close(square, wide, check_stride=True)


def test_message_counts_and_places_the_differences():
    with pytest.raises(AssertionError) as caught:
        assert_close(pb.tensor([[1.0, 2.0], [3.0, 8.0]]), pb.tensor([[1.0, 2.5], [3.0, 4.0]]))
    text = str(caught.value)
    assert "Mismatched elements: 2 / 4 (50.0%)" in text
    assert "Greatest absolute difference: 4.0 at index (1, 1)" in text
    assert "Greatest relative difference: 1.0 at index (1, 1)" in text


def test_message_can_be_replaced():
    with pytest.raises(AssertionError, match=r"^mine$"):
        assert_close(1.0, 2.0, msg="mine")
    with pytest.raises(AssertionError, match=r"(?s)^so: .*Expected 2.0 but got 1.0"):
        assert_close(1.0, 2.0, msg=lambda text: "so: " + text)


def test_numbers_and_arrays():
    assert_close(1, 1)
    assert_close(None, None)
    assert_close(np.ones(3), pb.ones(3, dtype=pb.float64))
    with pytest.raises(AssertionError, match="Scalars"):
        assert_close(1, 2)
    with pytest.raises(TypeError, match="cannot compare"):
        assert_close("a", "a")


@pytest.mark.parametrize("noncontiguous", [False, True])
def test_made_tensor_has_what_was_asked(noncontiguous):
    made = make_tensor(
        (3, 4), dtype=pb.float32, low=1, high=2, requires_grad=True, noncontiguous=noncontiguous
    )
    assert made.shape == (3, 4)
    assert made.is_leaf
    assert made.requires_grad
    assert made.is_contiguous() != noncontiguous
    assert 1 <= made.min() <= made.max() < 2


def test_made_tensors_follow_the_seed():
    pb.manual_seed(3)
    first = make_tensor(5, dtype=pb.float64)
    assert not pb.equal(first, make_tensor(5, dtype=pb.float64))
    pb.manual_seed(3)
    assert pb.equal(first, make_tensor(5, dtype=pb.float64))


def test_made_integers_suit_the_dtype():
    assert make_tensor(100, dtype=pb.uint8).max() <= 9
    assert (make_tensor(100, dtype=pb.int8, low=-1, high=2, exclude_zero=True) != 0).all()
    assert make_tensor(100, dtype=pb.bool).dtype == pb.bool


def test_assert_allclose_is_deprecated_and_looser():
    with pytest.warns(FutureWarning, match=r"assert_allclose\(\)` is deprecated"):
        pb.testing.assert_allclose([1.0, float("nan")], pb.tensor([1.0 + 2e-5, float("nan")]))
    with pytest.warns(FutureWarning), pytest.raises(AssertionError, match="not close"):
        pb.testing.assert_allclose(pb.ones(2), pb.ones(2) + 0.01)
