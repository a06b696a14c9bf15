"""Losses of ``nn.functional``: reductions, warnings, special values, errors."""

import math

import pytest

import pullback as pb

F = pb.nn.functional
NAN, INF = math.nan, math.inf
ELEMENTWISE = [F.l1_loss, F.mse_loss, F.smooth_l1_loss, F.huber_loss]


def leaf(*values):
    return pb.tensor(values, dtype=pb.float64, requires_grad=True)


def gradient(loss, *inputs):
    return [
        None if g is None else g.tolist()
        for g in pb.autograd.grad(loss.sum(), inputs, allow_unused=True)
    ]


@pytest.mark.parametrize("loss", ELEMENTWISE)
def test_reductions(loss):
    x, y = pb.tensor([1.0, 2.0, 4.0]), pb.tensor([1.0, 0.0, 1.0])
    each = loss(x, y, reduction="none")
    assert loss(x, y, reduction="sum").item() == each.sum().item()
    assert loss(x, y).item() == pytest.approx(each.mean().item())
    with pytest.raises(ValueError, match="most is not a valid value for reduction"):
        loss(x, y, reduction="most")


@pytest.mark.parametrize("loss", ELEMENTWISE)
def test_targets_of_another_size_warn(loss):
    with pytest.warns(UserWarning, match="is different to the input size"):
        assert loss(pb.ones(2), pb.zeros(2, 1), reduction="none").shape == (2, 2)


@pytest.mark.parametrize(
    ("loss", "kernel"),
    [(F.mse_loss, "mse_cpu"), (F.smooth_l1_loss, "smooth_l1_cpu"), (F.huber_loss, "huber_cpu")],
)
@pytest.mark.parametrize("dtype", [pb.int64, pb.bool, pb.complex64])
def test_integers_and_complex_numbers_are_refused(loss, kernel, dtype):
    with pytest.raises(NotImplementedError, match=kernel):
        loss(pb.ones(2, dtype=dtype), pb.ones(2, dtype=dtype))


def test_older_arguments_warn_and_work():
    with pytest.warns(UserWarning, match="please use reduction='sum' instead"):
        assert F.mse_loss(pb.ones(3), pb.zeros(3), False).item() == 3
    with pytest.warns(UserWarning, match="please use reduction='none' instead"):
        assert F.l1_loss(pb.ones(3), pb.zeros(3), reduce=False).shape == (3,)


def test_means_with_weights_are_weighted_but_not_that_of_huber_loss():
    x, y, w = pb.tensor([2.0, 4.0]), pb.zeros(2), pb.tensor([3.0, 1.0])
    assert F.mse_loss(x, y, weight=w).item() == 7
    assert F.l1_loss(x, y, weight=w).item() == 2.5
    assert F.huber_loss(x, y, weight=w).item() == 4
    with pytest.raises(ValueError, match="Weights and input must have the same size"):
        F.mse_loss(x, y, weight=pb.ones(3))


@pytest.mark.parametrize(
    ("loss", "node"),
    [
        (lambda x: F.mse_loss(x, x.detach()), "MseLossBackward0"),
        (lambda x: F.smooth_l1_loss(x, x.detach()), "SmoothL1LossBackward0"),
        (lambda x: F.huber_loss(x, x.detach()), "HuberLossBackward0"),
        (lambda x: F.binary_cross_entropy(x, x.detach()), "BinaryCrossEntropyBackward0"),
        (
            lambda x: F.binary_cross_entropy_with_logits(x, x.detach()),
            "BinaryCrossEntropyWithLogitsBackward0",
        ),
        (lambda x: F.soft_margin_loss(x, x.detach()), "SoftMarginLossBackward0"),
    ],
)
def test_node_names(loss, node):
    assert loss(leaf(0.5, 0.25)).grad_fn.name() == node


def test_derivatives_at_the_kinks():
    x, y = leaf(1.0, 2.0, 0.0), leaf(1.0, 1.0, 1.0)
    assert gradient(F.l1_loss(x, y, reduction="sum"), x) == [[0.0, 1.0, -1.0]]
    assert gradient(F.smooth_l1_loss(x, y, reduction="sum"), x, y) == [[0, 1, -1], [0, -1, 1]]
    assert gradient(F.huber_loss(x, y, reduction="sum"), x, y) == [[0, 1, -1], [0, -1, 1]]


def test_smooth_l1_loss_with_beta_zero_is_l1_loss():
    x, y = leaf(1.0, -3.0), leaf(0.0, 1.0)
    assert F.smooth_l1_loss(x, y, beta=0).item() == F.l1_loss(x, y).item()
    with pytest.raises(RuntimeError, match="does not support negative values for beta"):
        F.smooth_l1_loss(x, y, beta=-1)
    with pytest.raises(RuntimeError, match="does not support non-positive values for delta"):
        F.huber_loss(x, y, delta=0)


def test_binary_cross_entropy_limits_logarithms():
    x, y = leaf(0.0, 1.0, 0.0, 1.0), leaf(0.0, 1.0, 1.0, 0.0)
    loss = F.binary_cross_entropy(x, y, reduction="none")
    assert loss.tolist() == [0.0, 0.0, 100.0, 100.0]
    of_x, of_y = gradient(loss, x, y)
    assert of_x == [0.0, 0.0, -1e12, 1e12]
    assert of_y == [INF, -INF, INF, -INF]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((pb.full((2,), 2.0), pb.ones(2)), RuntimeError, "all elements of input should be between"),
        ((pb.full((2,), NAN), pb.ones(2)), RuntimeError, "all elements of input should be between"),
        ((pb.ones(2), pb.full((2,), 2.0)), RuntimeError, "all elements of target should be betw"),
        ((pb.ones(2), pb.ones(3)), ValueError, "Please ensure they have the same size"),
        ((pb.ones(2), pb.ones(2, dtype=pb.int64)), RuntimeError, "Found dtype Long but expected F"),
        ((pb.ones(2), pb.ones(2), pb.ones(2, requires_grad=True)), RuntimeError, "not differentia"),
    ],
)
def test_wrong_arguments_of_binary_cross_entropy(arguments, error, message):
    with pytest.raises(error, match=message):
        F.binary_cross_entropy(*arguments)


def test_logits_never_overflow():
    x, y = leaf(-1000.0, 1000.0, 1000.0), pb.tensor([0.0, 1.0, 0.0], dtype=pb.float64)
    loss = F.binary_cross_entropy_with_logits(x, y, reduction="none")
    assert loss.tolist() == [0.0, 0.0, 1000.0]
    assert gradient(loss, x) == [[0.0, 0.0, 1.0]]
    with pytest.raises(ValueError, match="must be the same as input size"):
        F.binary_cross_entropy_with_logits(pb.ones(2), pb.ones(2, 1))


def test_logits_are_cross_entropies_of_probabilities():
    x, y = pb.randn(3, 4, dtype=pb.float64), pb.rand(3, 4, dtype=pb.float64)
    positive = pb.tensor([1.0, 2.0, 3.0, 4.0], dtype=pb.float64)
    pb.testing.assert_close(
        F.binary_cross_entropy_with_logits(x, y), F.binary_cross_entropy(x.sigmoid(), y)
    )
    by_hand = -(positive * y * x.sigmoid().log() + (1 - y) * (1 - x.sigmoid()).log())
    found = F.binary_cross_entropy_with_logits(x, y, pos_weight=positive, reduction="none")
    pb.testing.assert_close(found, by_hand)


def test_kl_div():
    x, y = pb.zeros(2, 2), pb.tensor([[1.0, 0.0], [0.5, 0.5]])
    expected = [[0.0, 0.0], [0.5 * math.log(0.5)] * 2]
    assert F.kl_div(x, y, reduction="none").tolist() == [pytest.approx(row) for row in expected]
    assert F.kl_div(x, y, reduction="batchmean").item() == pytest.approx(math.log(0.5) / 2)
    with pytest.warns(UserWarning, match="'batchmean' divides only by the batch size"):
        assert F.kl_div(x, y).item() == pytest.approx(math.log(0.5) / 4)
    with pytest.raises(RuntimeError, match="kl_div: Integral inputs not supported"):
        F.kl_div(pb.ones(2, dtype=pb.int64), pb.ones(2), reduction="sum")


def test_functions_outside_nn_number_their_reductions():
    x, y = pb.ones(2), pb.ones(2)
    assert pb.kl_div(x, y, 2).item() == -2 and pb.kl_div(x, y, 1).item() == -1
    assert pb.kl_div(x, y).shape == (2,)
    assert pb.hinge_embedding_loss(x, y, 1.0, 2).item() == 2
    assert pb.margin_ranking_loss(x, y, x, 1.0, 1).item() == 1
    with pytest.raises(TypeError, match=r"'reduction' \(position 3\) must be int, not str"):
        pb.kl_div(x, y, "mean")


def test_embedding_losses():
    x, y = pb.tensor([[1.0, 0.0], [1.0, 0.0]]), pb.tensor([[0.0, 1.0], [1.0, 0.0]])
    found = F.cosine_embedding_loss(x, y, pb.tensor([1, -1]), reduction="none")
    assert found.tolist() == pytest.approx([1.0, 1.0])
    with pytest.raises(RuntimeError, match="1D target tensor expects 2D input tensors"):
        F.cosine_embedding_loss(x[0], y[0], pb.tensor([1]))
    assert F.hinge_embedding_loss(
        pb.tensor([0.25, 0.25]), pb.tensor([1, -1]), reduction="none"
    ).tolist() == [0.25, 0.75]
    with pytest.raises(RuntimeError, match="All input tensors should have same dimension"):
        F.margin_ranking_loss(pb.ones(2, 1), pb.ones(2), pb.ones(2))


def test_triplets():
    a, p, n = pb.zeros(1, 2), pb.tensor([[3.0, 4.0]]), pb.tensor([[3.0, 4.5]])
    by_hand = 1 + 5 - math.hypot(3, 4.5)
    assert F.triplet_margin_loss(a, p, n).item() == pytest.approx(by_hand, abs=1e-5)
    assert F.triplet_margin_loss(a, p, n, swap=True).item() == pytest.approx(5.5, abs=1e-5)
    found = F.triplet_margin_with_distance_loss(
        a, p, n, distance_function=lambda x, y: (x - y).abs().sum(-1), margin=2.0
    )
    assert found.item() == 1.5
    with pytest.raises(ValueError, match="margin must be greater than 0, got -1"):
        F.triplet_margin_loss(a, p, n, margin=-1)
    with pytest.raises(RuntimeError, match="anchor 2D, positive 2D, and negative 1D"):
        F.triplet_margin_loss(a, p, n[0])


def test_margins_between_classes():
    x = pb.tensor([[0.1, 0.2, 0.4, 0.8]])
    found = F.multilabel_margin_loss(x, pb.tensor([[3, 0, -1, 1]]))
    assert found.item() == pytest.approx(0.85)
    assert F.multi_margin_loss(x, pb.tensor([3])).item() == pytest.approx((0.3 + 0.4 + 0.6) / 4)
    for loss, target in ((F.multi_margin_loss, [4]), (F.multilabel_margin_loss, [[4, 0, 0, 0]])):
        with pytest.raises(RuntimeError, match="out of range"):
            loss(x, pb.tensor(target))
    with pytest.raises(ValueError, match="only p == 1 and p == 2 supported"):
        F.multi_margin_loss(x, pb.tensor([3]), p=3)


def test_gaussian_nll_loss_limits_variances_but_not_their_gradient():
    x, v = leaf(1.0, 2.0), leaf(0.0, 1.0)
    loss = F.gaussian_nll_loss(x, pb.zeros(2, dtype=pb.float64), v, eps=0.5, reduction="none")
    assert loss.tolist() == pytest.approx([0.5 * (math.log(0.5) + 2), 2.0])
    assert gradient(loss, v) == [pytest.approx([0.5 * (2 - 4), 0.5 * (1 - 4)])]
    for variance, message in (
        (pb.tensor([-1.0, 1.0]), "var has negative entry/entries"),
        (-1.0, "var has negative entry/entries"),
        (pb.ones(3), "var is of incorrect size"),
    ):
        with pytest.raises(ValueError, match=message):
            F.gaussian_nll_loss(pb.ones(2), pb.ones(2), variance)


def test_target_of_poisson_nll_loss_has_a_derivative_at_0():
    y = pb.tensor([0.0, 1.0, 2.0], requires_grad=True)
    loss = F.poisson_nll_loss(pb.full((3,), 0.5), y, full=True, reduction="none")
    (g,) = pb.autograd.grad(loss.sum(), y)
    assert g.tolist() == pytest.approx([-0.5, -0.5, -0.5 + math.log(2) + 0.25])


def test_poisson_nll_loss_adds_stirlings_term_above_one():
    y = pb.tensor([0.0, 1.0, 2.0])
    plain = F.poisson_nll_loss(pb.zeros(3), y, reduction="none")
    full = F.poisson_nll_loss(pb.zeros(3), y, full=True, reduction="none")
    term = 2 * math.log(2) - 2 + 0.5 * math.log(4 * math.pi)
    assert (full - plain).tolist() == pytest.approx([0.0, 0.0, term])


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((pb.ones(2, 3), pb.ones(2, 3)), {"ignore_index": 1}, RuntimeError, "not supported for fl"),
        ((pb.ones(2, 3), pb.ones(2, 3)), {"weight": pb.ones(4)}, RuntimeError, "for all 3 classes"),
        ((pb.ones(2, 3), pb.ones(2, 3, dtype=pb.int64)), {}, RuntimeError, "class probabilities"),
        ((pb.ones(2, 3), pb.ones(2)), {}, RuntimeError, "to be Long or Byte, but got Float"),
        ((pb.ones(2, 3), pb.ones(2, 3)), {"label_smoothing": 2}, RuntimeError, "between 0.0 and"),
        ((pb.ones(2, 3), pb.full((2,), 5)), {}, IndexError, "Target 5 is out of bounds"),
        ((pb.ones(2, 3), pb.zeros(3, dtype=pb.int64)), {}, ValueError, "to match target batch_siz"),
    ],
)
def test_wrong_arguments_of_cross_entropy(arguments, options, error, message):
    with pytest.raises(error, match=message):
        F.cross_entropy(*arguments, **options)


# classes


def test_nll_loss_weighs_and_ignores():
    x = pb.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    target, weight = pb.tensor([1, -100, 0]), pb.tensor([1.0, 3.0])
    assert F.nll_loss(x, target, weight, reduction="none").tolist() == [-6.0, 0.0, -5.0]
    assert F.nll_loss(x, target, weight, reduction="sum").item() == -11.0
    loss = F.nll_loss(x, target, weight)
    assert loss.item() == -2.75
    loss.backward()
    assert x.grad.tolist() == [[0.0, -0.75], [0.0, 0.0], [-0.25, 0.0]]
    assert F.nll_loss(
        x.detach(), pb.tensor([1, 0, 1], dtype=pb.uint8), ignore_index=0, reduction="none"
    ).tolist() == [-2.0, 0.0, -6.0]
    assert math.isnan(F.nll_loss(x, pb.full((3,), -100)).item())


@pytest.mark.parametrize("wrong", [-1, 2, 2**40])
def test_targets_that_are_no_classes_are_refused(wrong):
    with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
        F.nll_loss(pb.ones(3, 2), pb.tensor([1, wrong, 0]))
    with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
        F.cross_entropy(pb.ones(1, 2), pb.tensor([wrong]))


@pytest.mark.beyond_torch
def test_targets_on_another_device_are_refused():
    with pytest.raises(RuntimeError, match="same device"):
        F.nll_loss(pb.ones(1, 2), pb.zeros(1, dtype=pb.int64, device="meta"))


def test_margins_of_one_score_without_dims():
    score, label = pb.tensor(1.5), pb.tensor(0)
    assert F.multi_margin_loss(score, label).item() == 0.0
    assert F.multilabel_margin_loss(score, label, reduction="none").shape == ()


@pytest.mark.parametrize("loss", [pb.nn.functional.cross_entropy, pb.nn.functional.nll_loss])
def test_targets_of_one_row_of_scores(loss):
    scores = pb.tensor([0.1, 0.2, 0.3])
    assert loss(scores, pb.tensor([1])).item() == loss(scores, pb.tensor(1)).item()
    with pytest.raises(ValueError, match="1D target must have size 1, but got target size: 2"):
        loss(scores, pb.tensor([0, 1]))


@pytest.mark.parametrize("dtype", [pb.int64, pb.float32])
def test_several_targets_for_a_sample_are_refused(dtype):
    with pytest.raises(RuntimeError, match="0D or 1D target tensor expected, multi-target not su"):
        F.nll_loss(pb.ones(2, 3), pb.ones(2, 2, dtype=dtype))
