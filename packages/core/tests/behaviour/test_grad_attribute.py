"""The ``.grad`` attribute: reading, assigning, deleting, warnings."""

import warnings

import pytest

import pullback as pb


def test_grad_starts_as_none():
    assert pb.ones(2).grad is None
    assert pb.ones(2, requires_grad=True).grad is None


def test_reading_grad_of_non_leaf_warns():
    y = pb.ones(2, requires_grad=True) * 2
    with pytest.warns(
        UserWarning, match="The .grad attribute of a Tensor that is not a leaf Tensor"
    ):
        assert y.grad is None


def test_reading_grad_does_not_warn_otherwise():
    x = pb.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert x.grad is None
        assert y.grad is None
        assert pb.ones(2).grad is None
        with pb.no_grad():
            assert (x * 2).grad is None


def test_assigned_grad_is_the_object_itself():
    x, g = pb.ones(2, requires_grad=True), pb.ones(2)
    x.grad = g
    assert x.grad is g
    (x * 3).sum().backward()
    assert x.grad is g
    assert g.tolist() == [4.0, 4.0]


def test_grad_may_be_assigned_without_requires_grad():
    x = pb.ones(2)
    x.grad = pb.zeros(2)
    assert x.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "clear", [lambda x: delattr(x, "grad"), lambda x: setattr(x, "grad", None)]
)
def test_clearing(clear):
    x = pb.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    clear(x)
    assert x.grad is None
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("value", "error", "fragment"),
    [
        (3, TypeError, "assigned grad expected to be a Tensor or None"),
        ([1.0, 1.0], TypeError, "assigned grad expected to be a Tensor or None"),
        (pb.ones(3), RuntimeError, "attempting to assign a gradient of size"),
        (pb.ones(2, 1), RuntimeError, "attempting to assign a gradient of size"),
        (pb.ones(()), RuntimeError, "attempting to assign a gradient of size"),
        (pb.ones(2, dtype=pb.float64), RuntimeError, "attempting to assign a gradient with dtype"),
        (pb.ones(2, dtype=pb.int64), RuntimeError, "attempting to assign a gradient with dtype"),
    ],
)
def test_wrong_value_is_refused(value, error, fragment):
    x, old = pb.ones(2, requires_grad=True), pb.zeros(2)
    x.grad = old
    with pytest.raises(error, match=fragment):
        x.grad = value
    assert x.grad is old


def test_tensor_is_not_its_own_grad():
    x = pb.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="can't assign Variable as its own grad"):
        x.grad = x


def test_detach_drops_grad_but_in_place_detach_keeps_it():
    x = pb.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    assert x.detach().grad is None
    assert x.detach_().grad.tolist() == [3.0, 3.0]


def test_grad_of_retained_non_leaf_can_be_cleared():
    y = pb.ones(2, requires_grad=True) * 2
    y.retain_grad()
    (y * 3).sum().backward(retain_graph=True)
    y.grad = None
    (y * 4).sum().backward()
    assert y.grad.tolist() == [4.0, 4.0]
