"""In-place writes that are refused because a gradient would be lost or wrong."""

import pytest

import pullback as pb


def leaf(*values, dtype=pb.float64):
    return pb.tensor(list(values), dtype=dtype, requires_grad=True)


def set_first(t):
    t[0] = 1.0


LEAF = "a leaf Variable that requires grad is being used in an in-place operation"
LEAF_VIEW = "a view of a leaf Variable that requires grad is being used in an in-place operation"
MULTI = "This view is the output of a function that returns multiple views"
NO_GRAD = "created in no_grad mode and is being modified inplace with grad mode enabled"
OVERLAP = "more than one element of the written-to tensor refers to a single memory location"


def view_made_under_no_grad(base):
    with pb.no_grad():
        return base[:1]


@pytest.mark.parametrize(
    ("make", "fragment"),
    [
        pytest.param(lambda: leaf(1.0, 2.0), LEAF, id="leaf"),
        pytest.param(lambda: leaf(1.0, 2.0)[:1], LEAF_VIEW, id="view-of-leaf"),
        pytest.param(lambda: leaf(1.0, 2.0).reshape(2, 1)[0], LEAF_VIEW, id="view-of-view-of-leaf"),
        pytest.param(lambda: (leaf(1.0, 2.0) * 1).reshape(2, 1).unbind()[0], MULTI, id="unbind"),
        pytest.param(lambda: (leaf(1.0, 2.0) * 1).split(1)[0], MULTI, id="split"),
        pytest.param(lambda: (leaf(1.0, 2.0) * 1).chunk(2)[1], MULTI, id="chunk"),
        pytest.param(lambda: next(iter((leaf(1.0, 2.0) * 1).reshape(2, 1))), MULTI, id="iteration"),
        pytest.param(lambda: view_made_under_no_grad(leaf(1.0) * 1), NO_GRAD, id="no-grad-view"),
    ],
)
@pytest.mark.parametrize(
    "write",
    [lambda t: t.add_(1), lambda t: t.zero_(), set_first],
    ids=["add_", "zero_", "setitem"],
)
def test_write_is_refused(make, fragment, write):
    target = make()
    before = target.tolist()
    with pytest.raises(RuntimeError, match=fragment):
        write(target)
    assert target.tolist() == before


@pytest.mark.parametrize("make", [lambda: pb.zeros(1), lambda: leaf(1.0) * 1])
@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.add_(1),
        lambda t: t.mul_(pb.ones(3)),
        lambda t: t.copy_(pb.ones(3)),
        lambda t: t.__setitem__(slice(None), pb.ones(3)),
    ],
    ids=["add_", "mul_", "copy_", "setitem"],
)
def test_write_to_overlapping_memory_is_refused(make, write):
    target = make().expand(3)
    before = target.tolist()
    with pytest.raises(RuntimeError, match=OVERLAP):
        write(target)
    assert target.tolist() == before


def test_writing_one_value_to_overlapping_memory_is_allowed():
    target = pb.ones(1).expand(3)
    assert target.zero_().tolist() == [0.0, 0.0, 0.0]
    target[1] = 4.0
    assert target.tolist() == [4.0, 4.0, 4.0]


def test_view_of_a_leaf_that_is_a_view_itself_is_refused():
    x = pb.ones(2, 1).view(2).requires_grad_()
    for view in (x.view_as(x), x[:1], x):
        with pytest.raises(RuntimeError, match=LEAF_VIEW):
            view.mul_(2)
    assert x.tolist() == [1.0, 1.0]


def test_setitem_on_leaf_is_refused():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x[0] = 5.0
    assert x.tolist() == [1.0, 2.0]


def test_operator_on_leaf_is_refused():
    x = leaf(1.0)
    with pytest.raises(RuntimeError, match=LEAF):
        x += 1


def test_out_argument_is_refused_for_tensors_with_grad():
    x = leaf(1.0)
    with pytest.raises(RuntimeError, match="out="):
        pb.add(x, 1, out=pb.zeros(1, dtype=pb.float64))
    with pytest.raises(RuntimeError, match="out="):
        pb.add(pb.zeros(1), 1, out=pb.zeros(1, requires_grad=True))


SHARED = "some elements of the input tensor and the written-to tensor refer to a single memory"


@pytest.mark.parametrize(
    "write",
    [
        lambda target, x: target.copysign_(x),
        lambda target, x: target.xlogy_(x),
        lambda target, x: target.logical_xor_(x),
        lambda target, x: target.add_(x),
        lambda target, x: target.addcmul_(x, target),
        lambda target, x: target.lerp_(x, 0.5),
        lambda target, x: target.clamp_(x),
        lambda target, x: target.heaviside_(x),
        lambda target, x: target.copysign_(x[0]),
        lambda target, x: pb.exp(x, out=target),
        lambda target, x: pb.add(x, 1, out=target),
        lambda target, x: pb.pow(2, x, out=target),
        lambda target, x: pb.nan_to_num(x, out=target),
        lambda target, x: pb.logical_and(x, x, out=target),
        lambda target, x: pb.cat([x[:2], x[2:]], out=target),
        lambda target, x: pb.cumsum(x, 0, out=target),
        lambda target, x: pb.gather(x, 0, pb.tensor([0, 1, 2]), out=target),
        lambda target, x: pb.sort(x, out=(target, pb.zeros(3, dtype=pb.int64))),
    ],
)
def test_operands_that_share_part_of_the_target_are_refused(write):
    memory = pb.tensor([0.5, 1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match=SHARED):
        write(memory[:3], memory[1:])
    assert memory.tolist() == [0.5, 1.0, 2.0, 3.0]
    write(memory[:3], memory[1:].clone())


def test_the_same_elements_in_another_order_are_refused():
    x = pb.ones(2, 2)
    for write in (
        lambda: x.copysign_(x.t()),
        lambda: pb.exp(x.t(), out=x),
        lambda: pb.exp(x.reshape(4), out=x),
    ):
        with pytest.raises(RuntimeError, match=SHARED):
            write()


def test_the_very_operand_may_be_written():
    x = pb.tensor([-1.0, 4.0])
    assert pb.abs(x, out=x).tolist() == [1.0, 4.0]
    assert pb.sqrt(x, out=x.view(2)).tolist() == [1.0, 2.0]
    assert x.copysign_(x).tolist() == [1.0, 2.0]
    assert x.logical_and_(x[:]).tolist() == [1.0, 1.0]
    assert pb.sort(x, out=(x, pb.zeros(2, dtype=pb.int64)))[0] is x
    square = pb.ones(2, 2)
    assert pb.mm(square, square, out=square).tolist() == [[2.0, 2.0], [2.0, 2.0]]


@pytest.mark.beyond_torch
def test_reductions_may_write_over_their_operand():
    x = pb.ones(4)
    assert pb.sum(x.reshape(2, 2), 0, out=x[:2]).tolist() == [2.0, 2.0]


def test_no_grad_allows_writing_leaves_and_their_views():
    x = leaf(1.0, 2.0)
    with pb.no_grad():
        x.mul_(10)
        x[0] = 5.0
        x[1:].add_(1)
    assert x.tolist() == [5.0, 21.0]
    assert x.is_leaf
    assert x.requires_grad
    assert x._version == 3


def test_view_made_under_no_grad_is_written_under_no_grad():
    base = leaf(1.0, 2.0) * 1
    view = view_made_under_no_grad(base)
    with pb.no_grad():
        view.zero_()
    assert base.tolist() == [0.0, 2.0]


def test_multi_view_may_be_written_under_no_grad():
    base = leaf(1.0, 2.0) * 1
    with pb.no_grad():
        base.split(1)[0].zero_()
    assert base.tolist() == [0.0, 2.0]
