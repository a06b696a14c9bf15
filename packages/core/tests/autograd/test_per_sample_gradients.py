"""What per_sample_gradients accepts, refuses and leaves alone, and its rules for all ops."""

import pytest

import pullback as pb
from pullback.autograd.diagnostics import per_sample
from pullback.autograd.diagnostics.batch_rules import NoRule, SamplesMix
from pullback.autograd.graph import per_sample_gradients
from pullback.ops import ENTRIES
from pullback.testing.samples import accepts, op_of, samples_of
from pullback.utils.checkpoint import checkpoint

functional = pb.nn.functional
BATCH = 5


def leaf(*shape):
    return pb.randn(*shape, dtype=pb.float64).requires_grad_()


def data(*shape):
    return pb.randn(BATCH, *shape, dtype=pb.float64)


def looped(losses, parameters):
    """Return the gradients by one pass for each sample."""
    rows = [
        pb.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True) for loss in losses
    ]
    return [
        pb.stack([pb.zeros_like(p) if row[k] is None else row[k] for row in rows])
        for k, p in enumerate(parameters)
    ]


def assert_equal(found, expected):
    for one, other in zip(found, expected, strict=True):
        pb.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def refused(loss, parameters, match, **options):
    with pytest.raises(RuntimeError, match=match):
        per_sample_gradients(loss, parameters, **options)


@pytest.fixture(params=["rules", "batched"])
def route(request, monkeypatch):
    """Take gradients of a vector by rules, or by a batch of passes."""
    if request.param == "rules":
        monkeypatch.delattr(per_sample, "_batched")
    else:
        monkeypatch.setattr(per_sample._FastPath, "run", no_rule)


def no_rule(path, mean):
    raise NoRule


# ---- parameters ----------------------------------------------------------------------------------


def test_as_vmap_over_grad():
    w, b = leaf(3, 6), leaf(3)
    x = data(6)

    def loss(w, b, x):
        return functional.linear(x, w, b).tanh().sum(-1)

    found = per_sample_gradients(loss(w, b, x), {"w": w, "b": b})
    over_samples = pb.func.vmap(pb.func.grad(loss, (0, 1)), (None, None, 0))
    expected = over_samples(w.detach(), b.detach(), x)
    assert list(found) == ["w", "b"]
    assert_equal(found.values(), expected)


def test_parameters_that_are_made_of_others(route):
    w = leaf(6, 3)
    doubled = w * 2
    bent = doubled.tanh()
    x = data(6)
    losses = (x @ bent).square().sum(1) + (x @ doubled).sin().sum(1) + (x @ w).sum(1)
    expected = dict(zip("wdb", looped(losses, [w, doubled, bent])))
    made = {"w": w, "d": doubled, "b": bent}
    for names in ("w", "wd", "dw", "wb", "bdw", "db", "b", "wdb", "ww"):
        found = per_sample_gradients(losses, [made[name] for name in names])
        assert_equal(found, [expected[name] for name in names])


def test_parts_of_parameters_as_parameters():
    w = leaf(6, 3)
    first, second = w.split(3)
    x = data(3)
    losses = (x @ first).tanh().sum(1) + (x @ second).square().sum(1)
    parameters = [second, w, first]
    assert_equal(per_sample_gradients(losses, parameters), looped(losses, parameters))


def test_activations_and_losses_as_parameters():
    w = leaf(6, 2)
    h = data(6) @ w
    losses = h.square().sum(1)
    parameters = [h, w, losses]
    assert_equal(per_sample_gradients(losses, parameters), looped(losses, parameters))
    refused(losses.sum(), [h], "a parameter reaches the loss without samples")
    numbers = leaf(3)
    assert_equal(per_sample_gradients(numbers, numbers), [pb.eye(3, dtype=pb.float64)])


@pytest.mark.parametrize("batch", [0, 1, 4])
def test_unused_parameters(batch):
    w, other = leaf(6, 2), leaf(3)
    losses = (pb.ones(batch, 6, dtype=pb.float64) @ w).square().sum(1)
    for loss in (losses, losses.sum(), losses.mean()):
        for parameters in ([other], [other, w]):
            found = per_sample_gradients(loss, parameters)
            assert [item.shape for item in found] == [(batch, *p.shape) for p in parameters]
            assert not found[0].any()
    assert per_sample_gradients(losses.sum(), []) == ()


def test_dtypes_are_those_of_the_parameters(route):
    real, wide = pb.rand(6, requires_grad=True), pb.rand(6, dtype=pb.complex128, requires_grad=True)
    losses = (data(6).to(pb.complex128) * wide + real).abs().square().sum(1)
    found = per_sample_gradients(losses, [real, wide])
    assert [item.dtype for item in found] == [pb.float32, pb.complex128]
    for one, other in zip(found, looped(losses, [real, wide])):
        pb.testing.assert_close(one, other)


# ---- losses of one number ------------------------------------------------------------------------


def test_losses_that_reduce():
    w, x, target = leaf(3, 6), data(6), pb.arange(BATCH) % 3
    vector = functional.cross_entropy(functional.linear(x, w), target, reduction="none")
    number = functional.cross_entropy(functional.linear(x, w), target) * 2
    expected = [item * 2 for item in per_sample_gradients(vector, w)]
    assert_equal(per_sample_gradients(number, w, reduction="mean"), expected)
    number = functional.mse_loss(functional.linear(x, w), pb.zeros(BATCH, 3, dtype=pb.float64))
    found = per_sample_gradients(number, [w], reduction="mean")
    assert_equal(found, looped(functional.linear(x, w).square().mean(1), [w]))


def test_what_may_follow_the_reduction():
    w, factor = leaf(6), pb.tensor(0.3, dtype=pb.float64)
    losses = (data(6) * w).square().sum(1)
    plain = looped(losses, [w])[0]
    for follow, scale in [
        (lambda total: -total, -1),
        (lambda total: 2 * total + 3, 2),
        (lambda total: 1 - total / 4, -0.25),
        (lambda total: total.view(()).clone().sum().mean() * factor, 0.3),
        (lambda total: total.sub(1, alpha=3).mul_(factor), 0.3),
        (lambda total: total + losses.mean() * BATCH, 2),
    ]:
        assert_equal(per_sample_gradients(follow(losses.sum()), w), [plain * scale])


def test_numbers_that_are_no_sums_of_losses():
    w, v, x = leaf(6, 2), leaf(6), data(6)
    h = x @ w
    losses, others = h.square().sum(1), (x * v).exp().sum(1)
    for number, name in [
        (losses.sum() ** 2, "Pow"),
        (losses.mean().sqrt(), "Sqrt"),
        (losses.mean().log() * 2, "Log"),
        (losses.sum() * others.sum(), "Mul"),
        (losses.sum() / h.sum(), "Div"),
        (1 / losses.sum(), "Reciprocal|Mul|Div"),
        (pb.maximum(losses.sum(), others.sum()), "Maximum"),
        (losses.sum() * v.sum(), "Mul"),
    ]:
        refused(number, [w], rf"samples mix in ({name})Backward\d #\d+; pass the vector")
    refused(h.norm(), w, r"there is no rule for LinalgVectorNormBackward0 #\d+; pass the vector")


def test_samples_in_another_dim_of_what_is_reduced():
    w, x = leaf(6), data(6)
    loss = (x * w).t().square().sum()
    expected = looped((x * w).square().sum(1), [w])
    assert_equal(per_sample_gradients(loss, w, batch_dim=1), expected)
    assert_equal(per_sample_gradients(loss, w, batch_dim=-1), expected)
    for dim in (7, 2, -3):
        with pytest.raises(IndexError) as error:
            per_sample_gradients(loss, w, batch_dim=dim)
        assert str(error.value) == (
            f"batch_dim: Dimension out of range (expected to be in range of [-2, 1], but got {dim})"
        )


def test_terms_of_parameters_alone_beside_a_reduced_loss():
    w, b, s, x = leaf(6, 8), leaf(BATCH), leaf(1).sum(), data(6)
    total = (x @ w).sum(1).mean()
    apart = "term of parameters alone, such as one that regularizes, has none: add its gradient ap"
    for term in ((w * w).sum(), w.norm(), b.square().sum(), s):
        refused(total + term, [w, b, s], apart, reduction="mean")


def test_reductions_over_other_numbers_of_samples():
    w = leaf(6)
    loss = (data(6) * w).sum() + (pb.ones(3, 6, dtype=pb.float64) * w).sum()
    refused(loss, w, "reductions over 3 and 5 samples|reductions over 5 and 3 samples")


def test_means_by_another_number():
    w, x = leaf(6, 3), data(6)
    weight = pb.tensor([0.1, 0.2, 0.7], dtype=pb.float64)
    ignoring = pb.tensor([0, 1, -100, 2, 0])
    for target, weights in [(ignoring, None), (ignoring.clamp(0), weight)]:
        mean = functional.cross_entropy(x @ w, target, weights)
        refused(mean, w, "weighted or ignored .* pass the vector .*none", reduction="mean")
        losses = functional.cross_entropy(x @ w, target, weights, reduction="none")
        total = functional.cross_entropy(x @ w, target, weights, reduction="sum")
        assert_equal(per_sample_gradients(total, w), looped(losses, [w]))
    kept = functional.cross_entropy(x @ w, ignoring.clamp(0), ignore_index=7)
    losses = functional.cross_entropy(x @ w, ignoring.clamp(0), reduction="none")
    assert_equal(per_sample_gradients(kept, w, reduction="mean"), looped(losses, [w]))


def test_classes_are_no_samples():
    w = leaf(6, 3)
    loss = functional.cross_entropy(data(6)[0] @ w, pb.tensor(1))
    refused(loss, w, "there is no rule for NllLoss")


def test_one_sample_has_the_whole_loss():
    w, x = leaf(6, 2), data(6)[:1]
    h = x @ w
    for number in (h.sum() ** 2, h.exp().sum().log(), h.norm(), h.sum() / h.prod()):
        expected = pb.autograd.grad(number, w, retain_graph=True)[0]
        for reduction in ("sum", "mean"):
            found = per_sample_gradients(number, [w], reduction=reduction)
            assert_equal(found, [expected.unsqueeze(0)])


# ---- samples that mix ----------------------------------------------------------------------------


def test_samples_that_mix():
    w, x = leaf(6, 4), data(6)
    h = x @ w
    for mixed, name in [
        (h - h.mean(0), "samples mix in Mm"),
        (h.softmax(0), "samples mix in Softmax"),
        (h.cumsum(0), "samples mix in Cumsum"),
        (h.flip(0) * h, "there is no rule for Flip"),
        (h.roll(1, 0), "there is no rule for Roll"),
        (h[[1, 2, 3, 4, 0]], "there is no rule for Index"),
        (pb.cat([h[1:], h[:1]]), "there is no rule for Cat"),
        (h * h[0], "there is no rule for Select|samples mix in Mm"),
    ]:
        losses = mixed.square().sum(1)
        assert_equal(per_sample_gradients(losses, w), looped(losses, [w]))
        refused(losses.sum(), w, f"({name})Backward")


def test_batch_norm_in_training_is_refused(route):
    w, g, x = leaf(6, 4), leaf(4), data(6)
    h = functional.batch_norm(x @ w, None, None, g, None, training=True)
    for losses in (
        h.square().sum(1),
        h.flip(1).square().sum(1),
        h.index_select(1, pb.arange(2))[:, 0],
    ):
        for loss in (losses, losses.sum()):
            refused(loss, [w, g], r"samples mix in NativeBatchNormBackward0 #\d+")


def test_batch_norm_of_one_sample():
    g = leaf(4)
    h = functional.batch_norm(data(4, 3)[:1] * g[:, None], None, None, training=True)
    losses = h.pow(3).sum((1, 2))
    assert_equal(per_sample_gradients(losses, g), looped(losses, [g]))


def test_batch_norm_beside_the_way_to_the_parameters():
    w, v, x = leaf(6, 4), leaf(4), data(6)
    h = functional.batch_norm(x @ w, None, None, training=True)
    losses = (h * v).sin().sum(1)
    assert_equal(per_sample_gradients(losses.sum(), v), looped(losses, [v]))


# ---- hooks ---------------------------------------------------------------------------------------


def clipped(grad):
    return grad / (1 + grad.norm())


def counted(grad):
    return grad * (2 if float(grad.abs().sum()) > 3 else 5)


@pytest.mark.parametrize("hook", [clipped, counted, lambda grad: None])
def test_hooks_of_parameters_receive_gradients_of_samples(hook, route):
    w, b, x = leaf(6, 2), leaf(2), data(6)
    doubled = w * 2
    for tensor in (w, b, doubled):
        tensor.register_hook(hook)
    losses = (x @ doubled + b).square().sum(1) + (x @ w).sin().sum(1)
    parameters = [w, b, doubled]
    for names in ([w], [b, w], parameters):
        assert_equal(per_sample_gradients(losses, names), looped(losses, names))


def test_hooks_of_parameters_under_one_number():
    w, x = leaf(6, 2), data(6)
    w.register_hook(clipped)
    losses = (x @ w).square().sum(1)
    expected = looped(losses, [w])
    assert_equal(per_sample_gradients(losses.sum(), w), expected)


def test_hooks_that_treat_each_sample_apart(route):
    w, x = leaf(6, 2), data(6)
    h = x @ w
    h.register_hook(lambda grad: grad * grad.abs().sum(1, keepdim=True))
    losses = h.square().sum(1)
    losses.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 3,))
    assert_equal(per_sample_gradients(losses, w), looped(losses, [w]))


@pytest.mark.parametrize("kind", ["pre", "post"])
def test_hooks_of_nodes_that_use_parameters(kind):
    w, x = leaf(6, 2), data(6)
    h = x @ w
    losses = h.square().sum(1)
    if kind == "pre":
        h.grad_fn.register_prehook(lambda outputs: (clipped(outputs[0]),))
    else:
        h.grad_fn.register_hook(
            lambda inputs, outputs: tuple(None if one is None else clipped(one) for one in inputs)
        )
    assert_equal(per_sample_gradients(losses, w), looped(losses, [w]))
    refused(losses.sum(), w, r"hooks of MmBackward0 #\d+ would receive the whole batch")


def test_hooks_of_leaves_run_once_and_with_samples_only(route):
    w, x, seen = leaf(6, 2), data(6), []
    w.register_hook(lambda grad: seen.append(tuple(grad.shape)))
    per_sample_gradients((x @ w).square().sum(1), w)
    assert seen == [(6, 2)]


# ---- what stays ----------------------------------------------------------------------------------


def test_graph_and_grads_stay(route):
    w, kept, x = leaf(6, 2), leaf(6, 2), data(6)
    kept.grad = pb.ones(6, 2, dtype=pb.float64)
    made = w * kept
    h = x @ made
    new, old = h.tanh(), h.sin()
    for tensor in (made, h, new, old):
        tensor.retain_grad()
    old.grad = pb.ones_like(old)
    losses = (new * old).sum(1)
    expected = looped(losses, [w, kept])
    for tensor in (made, h, new):
        tensor.grad = None
    old.grad = before = pb.ones_like(old)
    for loss in (losses, losses.sum()):
        if loss.dim():
            assert_equal(per_sample_gradients(loss, [w, kept]), expected)
        assert w.grad is made.grad is h.grad is new.grad is None
        assert old.grad is before
        assert (before == 1).all()
        assert (kept.grad == 1).all()
    losses.sum().backward()  # the graph was kept
    assert_equal([w.grad], [expected[0].sum(0)])
    assert h.grad is not None


def test_retained_grads_stay_without_samples_or_on_errors():
    w = leaf(6, 2)
    h = data(6)[:1] @ w
    h.retain_grad()
    per_sample_gradients(h.square().sum(1), w)
    per_sample_gradients(h.square().sum(), w)
    refused(h.square().repeat(2, 1).sum().sqrt() + 0, w, "samples mix")
    assert h.grad is None


# ---- functions and checkpoints -------------------------------------------------------------------


class NumPySquare(pb.autograd.Function):
    """Its backward needs memory, which a tensor of vmap does not have."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return pb.from_numpy(2 * x.detach().numpy() * grad.numpy())


def test_functions_that_vmap_cannot_run():
    w, x = leaf(6, 2), data(6)
    losses = NumPySquare.apply(x @ w).sum(1)
    assert_equal(per_sample_gradients(losses, w), looped(losses, [w]))
    losses = (x @ NumPySquare.apply(w)).square().sum(1)
    expected = looped(losses, [w])
    assert_equal(per_sample_gradients(losses, w), expected)
    assert_equal(per_sample_gradients(losses.sum(), w), expected)


def test_errors_of_passes_are_those_of_one_pass():
    w = leaf(6, 2)
    losses = (data(6) @ w).flip(0).square().sum(1)
    losses.sum().backward()
    with pytest.raises(RuntimeError, match="a second time") as error:
        per_sample_gradients(losses, w)
    assert error.value.__context__ is None


def test_sparse_gradients_become_dense():
    for batch in (1, 3):
        table = leaf(7, 3)
        h = functional.embedding(pb.randint(0, 7, (batch, 2)), table, sparse=True).sin()
        (found,) = per_sample_gradients(h.sum((1, 2)), table)
        (flipped,) = per_sample_gradients(h.flip(1).sum((1, 2)), table)
        assert found.shape == (batch, 7, 3)
        assert_equal([found], [flipped])


def test_checkpoints():
    w, x = leaf(6, 2), data(6).requires_grad_()
    plain = (x @ w).tanh().sum(1)

    def part(x):
        return (x @ w).tanh()

    losses = checkpoint(part, x, use_reentrant=False).sum(1)
    assert_equal(per_sample_gradients(losses, w), looped(plain, [w]))
    assert_equal(per_sample_gradients(losses.sum(), w), looped(plain, [w]))
    losses = checkpoint(part, x, use_reentrant=True).sum(1)
    for loss in (losses, losses.sum()):
        refused(loss, w, r"CheckpointFunctionBackward #\d+ .* pass use_reentrant=False")


# ---- arguments -----------------------------------------------------------------------------------


def test_no_samples_and_parameters_given_twice():
    w = leaf(6)
    for reduced in ("sum", "mean"):
        for loss in ((pb.ones(0, 6, dtype=pb.float64) * w).sum(1),):
            (found,) = per_sample_gradients(loss, [w])
            assert found.shape == (0, 6)
            (found,) = per_sample_gradients(getattr(loss, reduced)(), [w], reduction=reduced)
            assert found.shape == (0, 6)
    losses = (data(6) * w).sum(1)
    first, second = per_sample_gradients(losses, [w, w])
    assert_equal([first, second], looped(losses, [w]) * 2)


def test_wrong_arguments():
    w, x = leaf(6), data(6)
    losses = (x * w).sum(1)
    with pytest.raises(TypeError, match="expected Tensors, not int"):
        per_sample_gradients(3, w)
    with pytest.raises(TypeError, match="expected Tensors, not str"):
        per_sample_gradients(losses, ["w"])
    with pytest.raises(TypeError, match="'batch_dim' must be int, not str"):
        per_sample_gradients(losses, w, batch_dim="0")
    with pytest.raises(ValueError, match="must be 'sum' or 'mean', not 'max'"):
        per_sample_gradients(losses, w, reduction="max")
    refused(losses, x, "a parameter does not require grad")
    refused(x.sum(1), w, "the loss does not require grad")
    refused(x * w, w, r"not of shape \[5, 6\]")


# ---- all ops -------------------------------------------------------------------------------------


def differentiable(tensor):
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def sample_programs(sample):
    """Yield a sample's arguments made of parameters in several ways, and these parameters.

    Each argument is data, a parameter, or data times a parameter of one number ("scaled").
    """
    count = sum(differentiable(tensor) for tensor in sample.tensors())
    roles = {("scaled",) * count}
    for k in range(count):
        for own in ("parameter", "scaled"):
            roles.add(("data",) * k + (own,) + ("data",) * (count - k - 1))
    for role in sorted(roles):
        parameters, left = [], list(role)

        def make(tensor, left=left, parameters=parameters):
            if not differentiable(tensor):
                return tensor
            tensor, kind = pb.where(tensor.isfinite(), tensor, 0.5), left.pop(0)
            if kind == "data":
                return tensor
            if kind == "scaled":
                parameters.append(pb.ones((), dtype=tensor.dtype).requires_grad_())
                return tensor * parameters[-1]
            parameters.append(tensor.clone().requires_grad_())
            return parameters[-1]

        yield sample.mapped(make), parameters


def losses_of(out):
    """Yield vectors of losses: each dim of an output is once that of the samples."""
    for dim in range(out.dim()):
        if 2 <= out.shape[dim] <= 6 and out.numel():
            rows = out.movedim(dim, 0).reshape(out.shape[dim], -1)
            yield (rows.abs() if rows.dtype.is_complex else rows * 1.3 + rows.square()).sum(1)


def check_op(entry, dtype):
    """Compare what rules give for the samples of an op; return how often they applied."""
    applied = 0
    for sample in samples_of(entry, dtype):
        for call, parameters in sample_programs(sample):
            try:
                outs = op_of(entry)(*call.args, **call.kwargs)
            except RuntimeError:  # it takes no such arguments in a graph
                continue
            for out in outs if isinstance(outs, (tuple, list)) else [outs]:
                if not isinstance(out, pb.Tensor) or not out.requires_grad:
                    continue
                for losses in losses_of(out):
                    try:
                        with pb.no_grad():
                            per_sample._FastPath(losses, parameters).run(False)
                    except (NoRule, SamplesMix, NotImplementedError):
                        continue
                    applied += 1
                    expected = looped(losses, parameters)
                    found = per_sample_gradients(losses, parameters)
                    for one, other in zip(found, expected, strict=True):
                        known = other.isfinite()  # a loop has 0 * inf of other samples
                        assert one.dtype == other.dtype, str(sample)
                        assert pb.allclose(one[known], other[known], 1e-9, 1e-9), str(sample)
    return applied


SHARES = 8


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("share", range(SHARES))
def test_rules_hold_for_all_ops(share):
    applied = 0
    for name in list(ENTRIES)[share::SHARES]:
        for dtype in (pb.float64, pb.complex128):
            if accepts(ENTRIES[name], dtype):
                applied += check_op(ENTRIES[name], dtype)
    assert applied > 100
