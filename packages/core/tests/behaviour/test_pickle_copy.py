"""Pickles and copies of tensors, dtypes and sizes."""

import copy
import pickle

import pytest

import pullback as pb


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_round_trip(protocol):
    for x in (
        pb.arange(6.0).reshape(2, 3).t(),
        pb.tensor(3),
        pb.zeros(0, 3, dtype=pb.complex128),
        pb.ones(2, dtype=pb.bfloat16),
        pb.tensor([True, False]),
    ):
        y = pickle.loads(pickle.dumps(x, protocol))
        assert (y.dtype, y.shape, y.stride()) == (x.dtype, x.shape, x.stride())
        assert y.tolist() == x.tolist()
        assert y.device == x.device


def test_pickle_keeps_the_role_of_a_leaf_but_not_the_graph():
    x = pb.ones(2, requires_grad=True)
    x.grad = pb.ones(2)
    for tensor in (x, x * 2):
        y = pickle.loads(pickle.dumps(tensor))
        assert y.requires_grad
        assert y.is_leaf
        assert y.grad is None
        assert y.tolist() == tensor.tolist()


def test_pickle_warns_about_hooks():
    x = pb.ones(2, requires_grad=True)
    x.register_hook(lambda g: None)
    with pytest.warns(UserWarning, match="will not be serialized"):
        pickle.dumps(x)


def test_dtypes_and_sizes_pickle():
    for value in (pb.float32, pb.complex128, pb.ones(2, 3).shape, pb.ones(1).device):
        again = pickle.loads(pickle.dumps(value))
        assert again == value
        assert type(again) is type(value)
    assert pickle.loads(pickle.dumps(pb.bool)) is pb.bool


def test_deepcopy_of_a_leaf():
    x = pb.ones(2, requires_grad=True)
    x.grad = pb.full((2,), 3.0)
    x.note = ["kept"]
    y = copy.deepcopy(x)
    assert y is not x
    assert y.requires_grad
    assert y.grad.tolist() == [3.0, 3.0]
    assert y.grad is not x.grad
    assert y.note == ["kept"]
    with pb.no_grad():
        x.zero_()
    assert y.tolist() == [1.0, 1.0]


def test_deepcopy_keeps_aliasing_within_one_copy():
    x = pb.arange(4.0)
    copied, view, again = copy.deepcopy([x, x[1:], x])
    assert copied is again
    copied.zero_()
    assert view.tolist() == [0.0, 0.0, 0.0]
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_copy_shares_memory():
    x = pb.ones(2, requires_grad=True)
    x.note = ["kept"]
    for tensor in (x, x * 1):
        y = copy.copy(tensor)
        assert y is not tensor
        assert y.is_leaf
        assert y.requires_grad
        assert y.data_ptr() == tensor.data_ptr()
    assert copy.copy(x).note is x.note


class Named(pb.Tensor):
    pass


@pytest.mark.beyond_torch
def test_copies_and_pickles_keep_the_class():
    x = pb.ones(2).as_subclass(Named)
    x.note = 1
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(y) is Named
        assert y.note == 1
        assert y.tolist() == [1.0, 1.0]


def test_tensors_without_data_pickle():
    x = pb.empty(2, 3, device="meta", dtype=pb.float64).t()
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert (y.device, y.dtype, y.shape, y.stride()) == (x.device, x.dtype, (3, 2), (1, 3))


def test_deepcopy_of_a_result_is_refused():
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(pb.ones(2, requires_grad=True) * 2)


def test_clone_is_differentiable_and_apart():
    x = pb.ones(2, requires_grad=True)
    y = x.clone()
    (y * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert y.data_ptr() != x.data_ptr()


def test_copy_broadcasts_and_converts():
    x = pb.zeros(2, 3, dtype=pb.float64)
    assert x.copy_(pb.tensor([1, 2, 3])) is x
    assert x.tolist() == [[1.0, 2.0, 3.0]] * 2
    x.copy_(pb.ones(3, 2).t())
    assert x.sum().item() == 6.0
    with pytest.raises(RuntimeError):
        x.copy_(pb.ones(4))
    with pytest.raises(TypeError):
        x.copy_("a")
