"""Several named results: their classes, texts, and that they survive what data goes through."""

import copy
import pickle

import pytest

import pullback as pb

MATRIX = pb.tensor([[2.0, 1.0], [1.0, 3.0]])
CALLS = {
    "sort": lambda: MATRIX.sort(),
    "max": lambda: MATRIX.max(0),
    "median": lambda: pb.median(MATRIX, 0),
    "aminmax": lambda: MATRIX.aminmax(),
    "frexp": lambda: pb.frexp(MATRIX),
    "linalg_svd": lambda: pb.linalg.svd(MATRIX),
    "linalg_slogdet": lambda: pb.linalg.slogdet(MATRIX),
    "histogramdd": lambda: pb.histogramdd(MATRIX, 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_are_of_the_class_named_after_the_function(name):
    result = CALLS[name]()
    assert type(result) is getattr(pb.return_types, name)
    assert isinstance(result, tuple)
    assert name in dir(pb.return_types)


@pytest.mark.parametrize("copied", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
@pytest.mark.parametrize("name", CALLS)
def test_results_survive_copies_and_pickles(name, copied):
    result = CALLS[name]()
    other = copied(result)
    assert type(other) is type(result)
    assert repr(other) == repr(result)


def test_every_class_can_be_pickled():
    for name in dir(pb.return_types):
        kind = getattr(pb.return_types, name)
        assert pickle.loads(pickle.dumps(kind)) is kind


def test_text_has_a_result_a_line():
    assert repr(pb.tensor([1.0, 3.0]).max(0)) == (
        "pullback.return_types.max(\nvalues=tensor(3.),\nindices=tensor(1))"
    )


def test_class_is_kept_by_vmap():
    assert type(pb.vmap(lambda x: x.max(0))(MATRIX)) is pb.return_types.max


def test_absent_class_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"pullback\.return_types.*absent"):
        pb.return_types.absent
