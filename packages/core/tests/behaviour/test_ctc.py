"""``ctc_loss``: forms of its arguments, gradients by scores, infinite losses, errors."""

import math

import pytest

import pullback as pb

F = pb.nn.functional
INF = math.inf
TARGETS = [[1, 2, 2], [3, 1, 0]]
LENGTHS = (6, 5), (3, 2)


def scores(*shape, seed=0):
    pb.manual_seed(seed)
    return pb.randn(shape, dtype=pb.float64, requires_grad=True)


def loss_of(x, targets=TARGETS, lengths=LENGTHS, **options):
    return F.ctc_loss(x.log_softmax(-1), pb.tensor(targets), *lengths, **options)


def test_one_step_is_the_probability_of_its_label():
    logs = pb.tensor([[[0.5, 0.3, 0.2]]], dtype=pb.float64).log()
    assert F.ctc_loss(logs, pb.tensor([[1]]), (1,), (1,)).item() == pytest.approx(-math.log(0.3))
    assert F.ctc_loss(logs, pb.tensor([[1]]), (1,), (0,)).item() == pytest.approx(-math.log(0.5))
    assert F.ctc_loss(logs, pb.tensor([[1]]), (1,), (1,), blank=2).item() == pytest.approx(
        -math.log(0.3)
    )


def test_two_steps_add_up_their_alignments():
    first, second = [0.5, 0.3, 0.2], [0.1, 0.6, 0.3]
    logs = pb.tensor([[first], [second]], dtype=pb.float64).log()
    expected = 0.5 * 0.6 + 0.3 * 0.1 + 0.3 * 0.6  # "-a", "a-" and "aa"
    assert F.ctc_loss(logs, pb.tensor([[1]]), (2,), (1,)).item() == pytest.approx(
        -math.log(expected)
    )
    repeated = F.ctc_loss(logs, pb.tensor([[1, 1]]), (2,), (2,), reduction="none")
    assert repeated.tolist() == [INF]  # needs a blank between


def test_lengths_and_targets_in_every_form():
    x = scores(6, 2, 4)
    expected = loss_of(x).item()
    tensors = tuple(pb.tensor(length) for length in LENGTHS)
    for lengths in (tensors, tuple(n.int() for n in tensors), tuple(map(list, LENGTHS))):
        assert loss_of(x, lengths=lengths).item() == expected
    assert loss_of(x, [1, 2, 2, 3, 1]).item() == expected
    assert (
        F.ctc_loss(x.log_softmax(2), pb.tensor(TARGETS, dtype=pb.int32), *tensors).item()
        == expected
    )


def test_reductions():
    x = scores(6, 2, 4)
    each = loss_of(x, reduction="none")
    assert each.shape == (2,) and each.grad_fn.name() == "CtcLossBackward0"
    assert loss_of(x, reduction="sum").item() == pytest.approx(each.sum().item())
    assert loss_of(x).item() == pytest.approx((each[0] / 3 + each[1] / 2).item() / 2)
    logs, targets = x.log_softmax(2), pb.tensor(TARGETS)
    assert pb.ctc_loss(logs, targets, *LENGTHS).tolist() == each.tolist()
    assert pb.ctc_loss(logs, targets, *LENGTHS, 0, 1).item() == loss_of(x).item()
    assert pb.ctc_loss(logs, targets, *LENGTHS, reduction=2).item() == each.sum().item()


def test_one_sample_needs_no_batch():
    x = scores(6, 2, 4)
    each = loss_of(x, reduction="none")
    alone = loss_of(x[:, 0], TARGETS[0], (pb.tensor(6), pb.tensor(3)), reduction="none")
    assert alone.shape == () and alone.item() == each[0].item()
    assert loss_of(x[:, 0], TARGETS[0], ((6,), (3,))).item() == pytest.approx(each[0].item() / 3)


@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}, {"blank": 3}])
@pytest.mark.parametrize("lengths", [LENGTHS, ((4, 3), (2, 0)), ((5, 6), (0, 1))])
def test_gradient_by_scores_is_the_derivative(options, lengths):
    targets = [[1, 2, 2], [2, 1, 0]]
    pb.autograd.gradcheck(lambda x: loss_of(x, targets, lengths, **options), (scores(6, 2, 4),))


def test_gradient_by_log_probabilities_assumes_log_softmax():
    logs = scores(6, 2, 4).log_softmax(2).detach().requires_grad_()
    (grad,) = pb.autograd.grad(
        F.ctc_loss(logs, pb.tensor(TARGETS), *LENGTHS, reduction="sum"), logs
    )
    assert grad.sum(2).abs().max().item() < 1e-12
    assert not grad[5, 1].any()  # beyond the input's length


def test_a_label_of_probability_0_has_a_finite_gradient():
    x = scores(5, 1, 4).detach()
    x[2, 0, 1] = -INF
    x.requires_grad_()
    (grad,) = pb.autograd.grad(loss_of(x, [[1, 2]], ((5,), (2,))), x)
    assert grad.isfinite().all()


def test_a_target_that_is_too_long():
    x = scores(6, 2, 4)
    lengths = (2, 5), (3, 2)
    each = loss_of(x, lengths=lengths, reduction="none")
    assert each[0].item() == INF and each[1].isfinite()
    (grad,) = pb.autograd.grad(each.sum(), x)
    assert grad[:2, 0].isnan().all() and not grad[2:, 0].any() and grad[:, 1].isfinite().all()
    cut = loss_of(x, lengths=lengths, reduction="none", zero_infinity=True)
    assert cut.tolist() == [0.0, each[1].item()]
    (grad,) = pb.autograd.grad(cut.sum(), x)
    assert not grad[:, 0].any() and grad[:5, 1].any()


def test_no_steps_fit_no_labels_only():
    each = loss_of(scores(6, 2, 4), lengths=((0, 0), (0, 1)), reduction="none")
    assert each.tolist() == [0.0, INF]


def test_there_is_no_second_derivative():
    x = scores(6, 2, 4)
    (grad,) = pb.autograd.grad(loss_of(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="derivative for ctc_loss_backward is not implemented"):
        grad.sum().backward()


def test_forward_mode_agrees():
    x, direction = scores(6, 2, 4), scores(6, 2, 4, seed=1).detach()
    (grad,) = pb.autograd.grad(loss_of(x), x)
    with pb.autograd.forward_ad.dual_level():
        out = loss_of(pb.autograd.forward_ad.make_dual(x.detach(), direction))
        tangent = pb.autograd.forward_ad.unpack_dual(out).tangent
    assert tangent.item() == pytest.approx((grad * direction).sum().item())


def test_under_vmap():
    x = pb.stack([scores(6, 2, 4), scores(6, 2, 4, seed=1)]).detach()
    expected = [loss_of(one).item() for one in x]
    assert pb.func.vmap(loss_of)(x).tolist() == expected
    lengths = pb.tensor([[3, 2], [1, 2]])

    def shorter(one, target_lengths):
        return loss_of(one, lengths=(pb.tensor([6, 5]), target_lengths))

    expected = [shorter(one, n).item() for one, n in zip(x, lengths)]
    assert pb.func.vmap(shorter)(x, lengths).tolist() == pytest.approx(expected)


def ctc(lengths=LENGTHS, targets=TARGETS, shape=(6, 2, 4), dtype=pb.float64, **options):
    return F.ctc_loss(pb.zeros(shape, dtype=dtype), pb.tensor(targets), *lengths, **options)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ctc(blank=4), RuntimeError, "blank must be in label range"),
        (lambda: ctc(blank=-1), RuntimeError, "blank must be in label range"),
        (lambda: ctc(((7, 5), (3, 2))), RuntimeError, "at most 6, but got value 7"),
        (lambda: ctc(((-1, 5), (3, 2))), RuntimeError, "input_lengths to have value at least 0"),
        (lambda: ctc(((6, 5), (-1, 2))), RuntimeError, "target_lengths to have value at least 0"),
        (lambda: ctc(((6, 5), (4, 2))), RuntimeError, "at least 4 at dimension 1, but got size 3"),
        (lambda: ctc(targets=[1, 2]), RuntimeError, "size 5 at dimension 0, but got size 2"),
        (lambda: ctc(targets=[[1, 2, 2]]), RuntimeError, "size 2 at dimension 0, but got size 1"),
        (lambda: ctc(targets=[TARGETS]), RuntimeError, "1 to 2 dimensions, but got 3-dim"),
        (lambda: ctc(targets=[[1, 2, 4], [1, 1, 1]]), RuntimeError, r"targets to be in \[0, 4\)"),
        (lambda: ctc(((6,), (3, 2))), RuntimeError, "input_lengths must be of size batch_size"),
        (lambda: ctc(((6, 5), (3,))), RuntimeError, "target_lengths must be of size batch_size"),
        (
            lambda: ctc((pb.tensor([6.0, 5.0]), pb.tensor([3, 2]))),
            RuntimeError,
            "input_lengths must be integral",
        ),
        (lambda: ctc(((6, 5), pb.tensor([3, 2]))), TypeError, "both be Tensors or both be tuples"),
        (lambda: ctc((6, 5)), TypeError, "both be Tensors or both be tuples"),
        (lambda: ctc(shape=(0, 2, 4)), RuntimeError, "log_probs tensor must not be empty"),
        (lambda: ctc(shape=(1, 6, 2, 4)), RuntimeError, "Expected 3-dimensional tensor"),
        (lambda: ctc(dtype=pb.float16), NotImplementedError, "not implemented for 'Half'"),
        (lambda: ctc(dtype=pb.int64), NotImplementedError, "not implemented for 'Long'"),
        (lambda: ctc(reduction="max"), ValueError, "max is not a valid value for reduction"),
    ],
)
def test_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
