"""Every name that torch has and we lack raises AttributeError with the reason."""

import importlib
import warnings

import pytest

import pullback as pb
from pullback._help.left_out_members import MEMBERS
from pullback._help.names import left_out

NAMES = left_out()


def owner_of(path):
    """Return our module or class for one of torch."""
    name = path.replace("torch", "pullback", 1)
    try:
        return importlib.import_module(name)
    except ImportError:  # a class, or a module that has no file of its own
        outer, _, last = name.rpartition(".")
        return getattr(importlib.import_module(outer), last)


@pytest.mark.parametrize("path", NAMES)
def test_a_left_out_name_gives_its_reason(path):
    owner = owner_of(path)
    if path == "torch.nn.Module":  # its instances look names up themselves
        owner = pb.nn.Linear(1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, reason in NAMES[path].items():
            with pytest.raises(AttributeError) as caught:
                getattr(owner, name)
            assert f"{path}.{name} is left out ({reason})" in str(caught.value)
            assert caught.value.name == name
            assert not hasattr(owner, name)


def test_members_are_those_of_the_reasons():
    for path, names in MEMBERS.items():
        assert list(names) == list(NAMES[path])


def test_other_names_give_no_reason():
    for owner in (pb, pb.linalg, pb.nn, pb.optim, pb.Tensor, pb.ones(1), pb.nn.Linear(1, 1)):
        with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
            owner.nonsense


def test_a_tensor_may_have_an_attribute_of_a_left_out_name():
    class Named(pb.Tensor):
        name = "of the class"

    x, y = pb.ones(2), pb.ones(2).as_subclass(Named)
    x.name = "of the object"
    assert (x.name, y.name, hasattr(pb.ones(2), "name")) == ("of the object", "of the class", False)


@pytest.mark.parametrize("kind", [pb.Tensor, pb.dtype, pb.device, pb.layout, pb.memory_format])
def test_classes_have_their_public_names(kind):
    assert repr(kind) == f"<class 'pullback.{kind.__name__}'>"
    assert getattr(pb, kind.__name__) is kind
    with pytest.raises(AttributeError, match=f"object '(pullback.)?{kind.__name__}' has no"):
        kind.nonsense
