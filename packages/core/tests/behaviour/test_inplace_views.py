"""Version counters, in-place operations, and the history of views after a write."""

import pytest

import pullback as pb

grad = pb.autograd.grad
MODIFIED = "one of the variables needed for gradient computation has been modified by an inplace"


def leaf(*values, dtype=pb.float64):
    return pb.tensor(list(values), dtype=dtype, requires_grad=True)


# Version counter


def test_version_counts_every_write_through_every_alias():
    x = pb.zeros(4)
    view, alias = x[:2], x.detach()
    seen = [x._version]
    for write in (
        lambda: x.add_(1),
        lambda: x.__setitem__(0, 5.0),
        lambda: alias.add_(1),
        lambda: view.mul_(2),
        lambda: pb.autograd.graph.increment_version(x),
        lambda: pb.add(x, 1, out=x),
        lambda: x.zero_(),
        lambda: x.copy_(pb.ones(4)),
    ):
        write()
        seen.append(x._version)
    assert seen == list(range(9))
    assert view._version == alias._version == x._version
    assert x.data._version == 0


def test_version_is_bumped_under_no_grad():
    x = leaf(1.0)
    with pb.no_grad():
        x.add_(1)
        x[0] = 3.0
    assert x._version == 2


def test_version_stays_when_writing_through_data():
    x = leaf(1.0)
    x.data.add_(1)
    assert x._version == 0
    assert x.tolist() == [2.0]


def test_increment_version_takes_a_tensor_or_many():
    x, y = pb.zeros(1), pb.zeros(1)
    pb.autograd.graph.increment_version(x)
    pb.autograd.graph.increment_version([x, y])
    assert (x._version, y._version) == (2, 1)


def test_reading_does_not_bump():
    x = pb.zeros(3)
    x + 1, x[0], x.tolist(), x.numpy(), x.sum()
    assert x._version == 0


# A saved value that was overwritten


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda t: t.add_(1), id="op"),
        pytest.param(lambda t: t.__setitem__(0, 1.0), id="setitem"),
        pytest.param(lambda t: t[:1].mul_(2), id="view"),
        pytest.param(lambda t: t.detach().zero_(), id="detached"),
        pytest.param(lambda t: t.copy_(pb.zeros(2)), id="copy"),
        pytest.param(lambda t: pb.autograd.graph.increment_version(t), id="increment"),
    ],
)
def test_overwriting_a_saved_input_is_found_in_backward(write):
    x = leaf(1.0, 2.0)
    y = x * 1
    z = (y * y).sum()
    write(y)
    with pytest.raises(RuntimeError, match=MODIFIED):
        z.backward()


def test_overwriting_a_saved_result_is_found_in_backward():
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match=MODIFIED):
        y.sum().backward()


def test_message_says_what_was_overwritten():
    x = pb.ones(2, 3, requires_grad=True)
    y = x.tanh()
    z = y * y
    y.detach().add_(1)
    y.detach().add_(1)
    with pytest.raises(RuntimeError) as caught:
        z.sum().backward()
    message = str(caught.value)
    assert "is at version 2; expected version 0 instead" in message
    assert "[2, 3]" in message
    assert "output 0 of Tanh" in message


@pytest.mark.beyond_torch
def test_message_names_saver_and_writer():
    x = pb.ones(2, requires_grad=True)
    y = x.exp()
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match=r"(?s)MulBackward0.*add_"):
        z.sum().backward()


def test_check_is_exact():
    x = leaf(1.0, 2.0)
    a = x + 1
    b = a * 3
    a.mul_(2)
    (b.sum() + a.sum()).backward()
    assert x.grad.tolist() == [5.0, 5.0]


def test_overwriting_a_leaf_between_forward_and_backward_is_found():
    x, w = leaf(1.0), leaf(2.0)
    y = x * w
    with pb.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match=MODIFIED):
        y.backward()


def test_only_the_operand_that_is_needed_is_saved():
    x, c = leaf(1.0), pb.tensor([3.0], dtype=pb.float64)
    y = x * 1
    z = y * c
    y.add_(10)
    z.backward()
    assert x.grad.tolist() == [3.0]


# History of plain tensors


def test_inplace_op_keeps_identity_and_extends_history():
    x = leaf(3.0)
    y = x * 1
    before = y.grad_fn
    result = y.mul_(y.detach().clone())
    assert result is y
    assert y.grad_fn.name() == "MulBackward0"
    assert y.grad_fn.next_functions[0][0] is before
    y.backward()
    assert x.grad.tolist() == [3.0]


def test_adding_a_tensor_to_itself_in_place():
    x = leaf(1.0)
    b = x * 3
    b.add_(b)
    b.backward()
    assert x.grad.tolist() == [6.0]


def test_plain_leaf_becomes_non_leaf():
    a, w = pb.zeros(2, dtype=pb.float64), leaf(1.0, 2.0)
    a.add_(w)
    assert a.requires_grad
    assert not a.is_leaf
    (a * a).sum().backward()
    assert w.grad.tolist() == [2.0, 4.0]


def test_integer_target_does_not_take_part():
    w = leaf(1.0)
    a = pb.zeros(1, dtype=pb.int64)
    a[0] = 4
    assert not a.requires_grad
    with pytest.raises(RuntimeError, match="can't be cast"):
        a.add_(w)


def test_zero_and_fill_cut_the_gradient():
    x = leaf(1.0, 2.0)
    y = x * 2
    y[0].zero_()
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 2.0]
    z = x * 2
    z.fill_(7.0)
    assert grad(z.sum(), x)[0].tolist() == [0.0, 0.0]


def test_copy_moves_the_gradient_to_the_source():
    x, y = leaf(1.0, 2.0), pb.tensor([3.0], dtype=pb.float32, requires_grad=True)
    z = x * 2
    z.copy_(y)
    gx, gy = grad(z.sum(), [x, y])
    assert gx.tolist() == [0.0, 0.0]
    assert (gy.dtype, gy.tolist()) == (pb.float32, [2.0])


@pytest.mark.parametrize(
    ("write", "gx", "gv"),
    [
        pytest.param(lambda y, v: y.add_(v), 2, 1, id="add_"),
        pytest.param(lambda y, v: y.add_(v, alpha=3), 2, 3, id="add_alpha"),
        pytest.param(lambda y, v: y.sub_(v), 2, -1, id="sub_"),
        pytest.param(lambda y, v: y.mul_(v), 8, 6, id="mul_"),
        pytest.param(lambda y, v: y.div_(v), 0.5, -6 / 16, id="div_"),
    ],
)
def test_gradients_of_inplace_arithmetic(write, gx, gv):
    x, v = leaf(3.0), leaf(4.0)
    y = x * 2
    write(y, v)
    y.backward()
    assert x.grad.tolist() == [gx]
    assert v.grad.tolist() == [gv]


def test_masked_fill_cuts_masked_elements():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 2
    y.masked_fill_(pb.tensor([True, False, True]), -1.0)
    y.sum().backward()
    assert y.tolist() == [-1.0, 4.0, -1.0]
    assert x.grad.tolist() == [0.0, 2.0, 0.0]


# Assignment through indices


@pytest.mark.parametrize(
    "index",
    [0, -1, slice(0, 2), (slice(None, None, 2),), ..., None, [0, 2], pb.tensor([0, 2])],
    ids=str,
)
def test_setitem_routes_gradients_to_value_and_rest(index):
    x = leaf(1.0, 2.0, 3.0)
    v = leaf(10.0)
    y = x * 2
    y[index] = v if index is None or index is ... or not isinstance(index, int) else v[0]
    y.sum().backward()
    written = [i == 10.0 for i in y.tolist()]
    assert any(written)
    assert x.grad.tolist() == [0.0 if w else 2.0 for w in written]
    assert v.grad.tolist() == [float(sum(written))]


def test_setitem_with_mask():
    x, v = leaf(1.0, 2.0, 3.0), leaf(8.0, 9.0)
    y = x * 2
    y[pb.tensor([True, False, True])] = v
    assert y.tolist() == [8.0, 4.0, 9.0]
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 2.0, 0.0]
    assert v.grad.tolist() == [1.0, 1.0]


def test_setitem_with_repeated_indices():
    base, v = leaf(1.0, 2.0), leaf(5.0, 6.0)
    b = base * 1
    b[pb.tensor([0, 0])] = v
    b.sum().backward()
    assert v.grad.tolist() == [1.0, 1.0]
    assert base.grad.tolist() == [0.0, 1.0]


def test_index_put_accumulates():
    x, v = leaf(1.0, 2.0), leaf(5.0, 6.0)
    y = (x * 1).index_put((pb.tensor([0, 0]),), v, accumulate=True)
    assert y.tolist() == [12.0, 2.0]
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    assert v.grad.tolist() == [1.0, 1.0]


# Views


def test_write_on_view_rebases_the_base():
    x = leaf(1.0, 2.0, 3.0)
    base = x * 2
    before = base.grad_fn
    view = base[:2]
    view.mul_(10)
    assert base.grad_fn is not before
    assert base.grad_fn.name().endswith("CopySlices")
    assert base.grad_fn.next_functions[0][0] is before
    base.sum().backward()
    assert x.grad.tolist() == [20.0, 20.0, 2.0]


def test_view_gradient_is_regenerated():
    x = leaf(1.0, 2.0, 3.0)
    base = x * 2
    view = base[:2]
    old = view.grad_fn
    view.mul_(10)
    assert view.grad_fn is not old
    view.sum().backward()
    assert x.grad.tolist() == [20.0, 20.0, 0.0]


def test_other_views_see_the_write():
    x = leaf(1.0, 2.0, 3.0)
    base = x * 2
    first, second = base[:2], base[1:]
    first.mul_(10)
    second.sum().backward()
    assert x.grad.tolist() == [0.0, 20.0, 2.0]


def test_write_on_base_reaches_its_views():
    x = leaf(1.0, 2.0, 3.0)
    base = x * 2
    view = base[1:]
    base.mul_(5)
    assert view.tolist() == [20.0, 30.0]
    view.sum().backward()
    assert x.grad.tolist() == [0.0, 10.0, 10.0]


@pytest.mark.parametrize(
    "make_view",
    [
        pytest.param(lambda b: b.t()[1], id="transpose-select"),
        pytest.param(lambda b: b.reshape(6)[::2], id="reshape-slice"),
        pytest.param(lambda b: b.permute(1, 0).unsqueeze(0)[0, 1:], id="permute-unsqueeze"),
        pytest.param(lambda b: b.narrow(1, 1, 2).squeeze(), id="narrow-squeeze"),
        pytest.param(lambda b: b[..., None, 0], id="ellipsis-none"),
        pytest.param(lambda b: b.view(3, 2)[1], id="view-select"),
    ],
)
def test_write_through_a_chain_of_views(make_view):
    x = pb.arange(6, dtype=pb.float64).reshape(2, 3).requires_grad_()
    w = leaf(3.0)
    base = x * 1
    make_view(base).mul_(w)
    written = pb.zeros(2, 3, dtype=pb.float64)
    make_view(written).fill_(1.0)
    gx, gw = grad(base.sum(), [x, w])
    assert gx.tolist() == (1 + 2 * written).tolist()
    assert gw.tolist() == [(x.detach() * written).sum().item()]


def test_two_writes_on_overlapping_views():
    x = leaf(1.0, 2.0, 3.0)
    base = x * 1
    base[:2].mul_(2)
    base[1:].mul_(5)
    assert base.tolist() == [2.0, 20.0, 15.0]
    base.sum().backward()
    assert x.grad.tolist() == [2.0, 10.0, 5.0]


def test_base_without_grad_starts_to_require_it():
    w = leaf(1.0, 2.0)
    base = pb.zeros(4, dtype=pb.float64)
    view = base[:2]
    view.copy_(w)
    assert base.requires_grad
    assert not base.is_leaf
    assert base[2:].requires_grad
    (base * pb.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert w.grad.tolist() == [1.0, 2.0]


def test_value_written_is_differentiable_twice():
    x, w = leaf(1.0, 2.0), leaf(3.0)
    base = x * 1
    base[:1].mul_(w)
    (g,) = grad((base * base).sum(), x, create_graph=True)
    assert g.tolist() == [18.0, 4.0]
    (gw,) = grad(g.sum(), w)
    assert gw.tolist() == [12.0]


def test_leaf_view_that_requires_grad_stays_a_leaf():
    base = pb.zeros(3)
    view = base[:2]
    view.requires_grad_()
    base.add_(1)
    assert view.is_leaf
    assert view.grad_fn is None
    (view * 3).sum().backward()
    assert view.grad.tolist() == [3.0, 3.0]


def test_gradient_read_before_the_write_belongs_to_the_old_value():
    x = leaf(1.0, 2.0)
    base = x * 1
    early = base[0] * 1
    base[0].mul_(10)
    gx = grad([early, base.sum()], x)[0]
    assert gx.tolist() == [11.0, 1.0]


def test_output_view_of_custom_function_is_not_written():
    class Half(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x[:1]

        @staticmethod
        def backward(ctx, g):
            return pb.cat([g, pb.zeros(1, dtype=g.dtype)])

    view = Half.apply(leaf(1.0, 2.0) * 1)
    with pytest.raises(RuntimeError, match="was created inside a custom Function"):
        view.add_(1)


# detach


def test_detach_shares_memory_and_version_but_no_history():
    x = leaf(1.0, 2.0)
    y = x * 2
    d = y.detach()
    d.add_(1)
    assert y.tolist() == [3.0, 5.0]
    assert y._version == 1
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_detach_in_place_cuts_history():
    x = leaf(1.0)
    y = x * 2
    assert y.detach_() is y
    assert y.is_leaf
    assert not y.requires_grad
    x.detach_()
    assert not x.requires_grad


def test_detach_in_place_is_refused_for_views():
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        (leaf(1.0, 2.0) * 1)[:1].detach_()


# Hooks and writes


def test_hooks_follow_the_value_they_were_registered_on():
    x, seen = leaf(1.0), []
    y = x * 2
    y.register_hook(lambda g: seen.append(("before", g.item())))
    y.mul_(10)
    y.register_hook(lambda g: seen.append(("after", g.item())))
    y.backward()
    assert seen == [("after", 1.0), ("before", 10.0)]


def test_retain_grad_moves_to_the_latest_value():
    x = leaf(1.0)
    y = x * 2
    y.retain_grad()
    y.mul_(10)
    (y * 3).backward()
    assert y.grad.tolist() == [3.0]


# Assigning .data


def test_assigning_data_keeps_identity_and_version():
    x = leaf(1.0, 2.0)
    replacement = pb.ones(3, dtype=pb.float64)
    x.data = replacement
    assert x.shape == (3,)
    assert x.requires_grad
    assert x._version == 0
    replacement.add_(1)
    assert x.tolist() == [2.0, 2.0, 2.0]


def test_write_through_data_is_invisible_to_the_check():
    x = leaf(3.0)
    y = x * x
    x.data.fill_(5.0)
    y.backward()
    assert x.grad.tolist() == [10.0]


# ---- views whose history cannot follow -----------------------------------------------------------


def no_grad_view(base):
    with pb.no_grad():
        return base[0]


UNFOLLOWED = {
    "no_grad": (no_grad_view, "A view was created in no_grad mode and {} with grad mode enabled"),
    "multi": (
        lambda base: base.unbind()[0],
        "Output 0 of Unbind is a view and {}. This view is "
        "the output of a function that returns multiple",
    ),
    "multi of no_grad": (
        lambda base: no_grad_view(base.view(1, -1)).unbind()[0],
        "Output 0 of Unbind is a view and {}. This view is the output of a "
        "function that returns multiple views",
    ),
    "view of no_grad": (
        lambda base: no_grad_view(base).view(1),
        "Output 0 of View is a view of a view which was created in no_grad mode "
        "and {} with grad mode enabled",
    ),
}


@pytest.mark.parametrize(("view", "message"), UNFOLLOWED.values(), ids=UNFOLLOWED)
def test_view_that_is_not_written(view, message):
    base = leaf(1.0, 2.0) * 1
    with pytest.raises(RuntimeError, match=message.format("is being modified inplace")):
        view(base).add_(1)


@pytest.mark.parametrize(("view", "message"), UNFOLLOWED.values(), ids=UNFOLLOWED)
def test_view_whose_base_was_written(view, message):
    base = leaf(1.0, 2.0) * 1
    found = view(base)
    base.add_(1)
    assert found.requires_grad
    assert found.output_nr == 0
    written = "its base or another view of its base has been modified inplace"
    for use in (lambda: found.grad_fn, lambda: found * 2, lambda: found.is_leaf):
        with pytest.raises(RuntimeError, match=message.format(written)):
            use()


@pytest.mark.parametrize(
    "base",
    [pb.ones(2, requires_grad=True), pb.ones(2, requires_grad=True) * 1],
    ids=["leaf", "non-leaf"],
)
def test_view_under_no_grad_requires_grad_as_its_base_does(base):
    view = no_grad_view(base)
    assert view.requires_grad
    assert view.is_leaf
    assert (view * 2).grad_fn.next_functions[0][0] is None


def test_view_requires_grad_once_its_base_does():
    base = pb.zeros(3)
    view = base[0]
    assert not view.requires_grad
    base.requires_grad_()
    assert view.requires_grad
    assert not base.view(pb.int32).requires_grad


def test_leaf_view_joins_the_history_of_a_base_that_gets_one():
    base = pb.ones(3)
    view = base[:2].requires_grad_()
    w = leaf(2.0)
    base.mul_(w)
    assert not view.is_leaf
    view.sum().backward()
    assert w.grad.tolist() == [2.0]


def test_gradient_asked_for_a_view_without_history():
    x = leaf(1.0, 2.0)
    view = no_grad_view(x)
    assert grad(x.sum(), [view], allow_unused=True) == (None,)
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        grad(x.sum(), [view])


def test_part_of_a_base_that_was_detached_and_written():
    base = leaf(1.0, 2.0)
    part = base.unbind()[0]
    base.detach_()
    base.mul_(2)
    with pytest.raises(RuntimeError, match="its base or another view of its base has been"):
        part * 2


def test_view_keeps_its_history_when_its_base_gets_other_memory():
    x = leaf(1.0, 2.0)
    view = x.view(2)
    x.data = pb.zeros(2)
    with pb.no_grad():
        view.mul_(3)
    (g,) = grad((view * 2).sum(), x)
    assert g.tolist() == [2.0, 2.0]


class TestGradientsThatOthersSee:
    """A pass goes on in the gradient of a base; where somebody else sees that, in a copy."""

    def written(self):
        x = leaf(1.0, 2.0, 3.0)
        base = x * 1
        base[0].mul_(5)
        base[1:].mul_(7)
        return x, base

    def test_the_seed(self):
        x, base = self.written()
        seed = pb.ones(3)
        base.backward(seed)
        assert seed.tolist() == [1.0, 1.0, 1.0]
        assert x.grad.tolist() == [5.0, 7.0, 7.0]

    def test_a_gradient_asked_for(self):
        x = leaf(1.0, 2.0, 3.0)
        first = x * 1
        base = first.view(3) * 1
        base[0].mul_(5)
        middle = base.view_as(base)
        node = base.grad_fn
        base[1:].mul_(7)
        y = base * 1
        found = grad(y.sum(), [y, pb.autograd.graph.GradientEdge(node, 0), first, x])
        assert [g.tolist() for g in found] == [
            [1.0, 1.0, 1.0],
            [1.0, 7.0, 7.0],
            [5.0, 7.0, 7.0],
            [5.0, 7.0, 7.0],
        ]
        assert middle.grad_fn is not node

    def test_what_hooks_keep_and_what_retain_grad_keeps(self):
        kept = []
        x = leaf(1.0, 2.0, 3.0)
        base = x * 1
        base[0].mul_(5)
        base.register_hook(kept.append)
        base.grad_fn.register_hook(lambda *grads: kept.extend([grads[0][0], grads[1][0]]))
        base.retain_grad()
        base[1:].mul_(7)
        base[1:].mul_(1)
        base.register_hook(kept.append)
        (base * 1).sum().backward()
        assert x.grad.tolist() == [5.0, 7.0, 7.0]
        assert base.grad.tolist() == [1.0, 1.0, 1.0]
        assert [g.tolist() for g in kept] == [
            [1.0, 1.0, 1.0],
            [1.0, 7.0, 7.0],
            [5.0, 7.0, 7.0],
            [1.0, 7.0, 7.0],
        ]

    def test_two_users_of_one_gradient(self):
        x = leaf(1.0, 2.0)
        first, second = x * 1, x * 1
        first[0].mul_(5)
        second[1:].mul_(7)
        (first + second).sum().backward()
        assert x.grad.tolist() == [6.0, 8.0]

    def test_a_graph_that_is_kept(self):
        x, base = self.written()
        y = (base * base).sum()
        again = [grad(y, x, retain_graph=True)[0].tolist() for _ in range(2)]
        assert again == [[50.0, 196.0, 294.0]] * 2

    def test_a_gradient_in_another_layout_than_the_base(self):
        x = pb.arange(6.0).reshape(2, 3).requires_grad_()
        base = (x * 1).t().clone(memory_format=pb.preserve_format)
        base[1].mul_(5)
        base[:, 0].mul_(3)
        base.backward(pb.arange(6.0).reshape(3, 2))
        assert x.grad.tolist() == [[0.0, 30.0, 12.0], [1.0, 15.0, 5.0]]

    def test_gaps_of_a_base_have_no_gradient(self):
        memory = pb.full((5,), 2.0)
        base = pb.empty_strided((3,), (2,))
        base.as_strided((5,), (1,), 0).copy_(memory)
        w = pb.ones(5, requires_grad=True)
        base.as_strided((5,), (1,), 0).mul_(w)
        base[1:].mul_(3)
        base.sum().backward()
        assert w.grad.tolist() == [2.0, 0.0, 6.0, 0.0, 6.0]


def test_pairs_of_a_written_complex_tensor_are_made_anew_as_they_were():
    x = pb.ones(2, dtype=pb.complex64, requires_grad=True) * 1
    pairs = pb.view_as_real(x)
    pairs.mul_(2)
    assert pairs.grad_fn.name() == "ViewAsRealBackward0"
    assert pairs.grad_fn.next_functions[0][0].name() == "CopySlices"
    part = x.imag
    part.mul_(2)
    assert part.grad_fn.name() == "AsStridedBackward0"


@pytest.mark.parametrize(
    ("view", "name"),
    [
        (lambda x: x.squeeze(), "Squeeze"),
        (lambda x: x.squeeze(0), "Squeeze1"),
        (lambda x: x.squeeze((0,)), "Squeeze2"),
        (lambda x: x[0:1], "Slice"),
    ],
)
def test_a_refused_view_is_named_with_the_number_of_its_overload(view, name):
    part = pb.ones(2, 3, requires_grad=True).sigmoid().split(1)[0]
    with pytest.raises(RuntimeError, match=rf"^Output 0 of {name} is a view and is being modified"):
        view(part).mul_(2)
