"""Memory formats: the order of dims of copies, and when a copy is made at all."""

import copy
import pickle

import pytest

import pullback as pb


def images():
    return pb.arange(120.0).reshape(2, 3, 4, 5)


def test_formats_are_single_objects():
    for name in ("contiguous_format", "preserve_format", "channels_last"):
        order = getattr(pb, name)
        assert isinstance(order, pb.memory_format)
        assert repr(order) == f"{pb.__name__}.{name}"
        assert pickle.loads(pickle.dumps(order)) is copy.deepcopy(order) is order


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.clone(memory_format=pb.channels_last),
        lambda x: x.contiguous(memory_format=pb.channels_last),
        lambda x: x.to(memory_format=pb.channels_last),
    ],
)
def test_channels_last_has_channels_side_by_side(make):
    y = make(images())
    assert y.stride() == (60, 1, 15, 3)
    assert y.tolist() == images().tolist()
    assert y.is_contiguous(memory_format=pb.channels_last)
    assert not y.is_contiguous()
    assert y.contiguous(memory_format=pb.channels_last) is y
    assert y.to(memory_format=pb.channels_last) is y


def test_clone_preserves_or_straightens():
    y = images().transpose(1, 2)
    assert y.clone().stride() == y.clone(memory_format=pb.preserve_format).stride() == y.stride()
    assert y.clone(memory_format=pb.contiguous_format).stride() == (60, 15, 5, 1)


def test_dims_of_one_element_fit_any_format():
    y = pb.ones(2, 1, 4, 5)
    assert y.is_contiguous(memory_format=pb.channels_last)
    assert y.contiguous(memory_format=pb.channels_last) is y


def test_new_tensors_lie_as_asked():
    x = images()
    for make in (pb.empty_like, pb.zeros_like, pb.ones_like, pb.rand_like):
        assert make(x, memory_format=pb.channels_last).stride() == (60, 1, 15, 3)
        y = make(x.transpose(1, 2), memory_format=pb.contiguous_format)
        assert y.stride() == (60, 15, 5, 1)
    assert x.double(memory_format=pb.channels_last).stride() == (60, 1, 15, 3)


def test_gradient_passes_a_change_of_format():
    x = images().requires_grad_()
    (x.clone(memory_format=pb.channels_last) * images()).sum().backward()
    assert x.grad.tolist() == images().tolist()


@pytest.mark.parametrize(
    ("op", "error", "fragment"),
    [
        (lambda x: x[0].clone(memory_format=pb.channels_last), RuntimeError, "required rank 4"),
        (
            lambda x: x[0].contiguous(memory_format=pb.channels_last),
            RuntimeError,
            "required rank 4",
        ),
        (lambda x: x.clone(memory_format=3), TypeError, "memory_format"),
        (lambda x: x.clone(memory_format="contiguous_format"), TypeError, "memory_format"),
        (lambda x: x.is_contiguous(memory_format=3), TypeError, "memory_format"),
    ],
)
def test_refused_formats(op, error, fragment):
    with pytest.raises(error, match=fragment):
        op(images())
