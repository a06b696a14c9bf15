"""compile: programs that depend on a truth of values, as checks of arguments do."""

from functools import partial

import pytest

import pullback as pb
from pullback.nn import functional as F


def replayed(compiled):
    return [entry.runs for entry in compiled.entries]


def test_check_raises_in_a_replay_what_the_function_raises():
    compiled = pb.compile(F.binary_cross_entropy, fullgraph=True)
    good, bad = pb.tensor([0.25, 0.5]), pb.tensor([0.25, 1.5])
    target = pb.tensor([1.0, 0.0])
    expected = compiled(good, target)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
            compiled(bad, target)
        assert compiled(good, target) == expected
    assert replayed(compiled) == [2]


@pytest.mark.parametrize(
    ("function", "good", "bad", "error"),
    [
        (lambda x: F.one_hot(x, 3), pb.tensor([0, 2]), pb.tensor([0, 3]), RuntimeError),
        (pb.linalg.cholesky, pb.eye(2), -pb.eye(2), pb.linalg.LinAlgError),
        (pb.inverse, pb.eye(2), pb.zeros(2, 2), pb.linalg.LinAlgError),
        (pb.bernoulli, pb.full((3,), 0.5), pb.full((3,), 2.0), RuntimeError),
        (lambda x: pb.multinomial(x, 1), pb.ones(3), pb.zeros(3), RuntimeError),
        (lambda x: pb.take(pb.ones(2), x), pb.tensor([1]), pb.tensor([2]), IndexError),
    ],
    ids=["one_hot", "cholesky", "inverse", "bernoulli", "multinomial", "take"],
)
def test_checks_of_ops(function, good, bad, error):
    compiled = pb.compile(function, fullgraph=True)
    compiled(good)
    with pytest.raises(error) as eager:
        function(bad)
    with pytest.raises(error) as replay:
        compiled(bad)
    assert str(replay.value) == str(eager.value)
    pb.manual_seed(3)
    expected = function(good)
    pb.manual_seed(3)
    assert bool((compiled(good) == expected).all()) and sum(replayed(compiled)) == 1


def test_each_branch_has_a_program():
    function = pb.func.grad(pb.prod)  # divides where no element is 0
    compiled = pb.compile(function, fullgraph=True)
    for _ in range(3):
        for values in ([2.0, 3, 4], [2.0, 0, 4]):
            assert compiled(pb.tensor(values)).tolist() == function(pb.tensor(values)).tolist()
    assert replayed(compiled) == [2, 2]


def test_branch_of_the_backward_pass():
    compiled = pb.compile(pb.prod, fullgraph=True)
    for values in ([2.0, 3], [2.0, 0], [4.0, 3]):
        one = pb.tensor(values, requires_grad=True)
        other = pb.tensor(values, requires_grad=True)
        compiled(one).backward()
        pb.prod(other).backward()
        assert one.grad.tolist() == other.grad.tolist()
    assert replayed(compiled) == [2]


def test_failed_check_leaves_the_random_numbers_that_the_function_leaves():
    def function(x, p):
        noise = pb.rand(3)
        return noise + pb.bernoulli(p) + pb.rand(3) * x

    compiled = pb.compile(function, fullgraph=True)
    x, good, bad = pb.ones(3), pb.full((3,), 0.5), pb.full((3,), 2.0)
    compiled(x, good)
    states = []
    for one in (function, compiled):
        pb.manual_seed(7)
        with pytest.raises(RuntimeError, match="p_in"):
            one(x, bad)
        states.append((pb.get_rng_state().tolist(), one(x, good).tolist()))
    assert states[0] == states[1]


def test_another_branch_leaves_random_numbers_alone():
    def function(x):
        return pb.rand(2) + pb.func.grad(pb.prod)(x)

    compiled = pb.compile(function, fullgraph=True)
    for values in ([2.0, 3], [2.0, 0], [2.0, 3], [0.0, 3]):
        pb.manual_seed(1)
        expected = function(pb.tensor(values))
        pb.manual_seed(1)
        assert compiled(pb.tensor(values)).tolist() == expected.tolist()


def test_check_after_a_write_raises_and_keeps_the_write():
    total = pb.zeros(2)

    def function(x):
        total.add_(1)
        return F.binary_cross_entropy(x, pb.ones(2))

    compiled = pb.compile(function, fullgraph=True)
    compiled(pb.full((2,), 0.5))
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        compiled(pb.full((2,), 5.0))
    assert total.tolist() == [2, 2]


@pytest.mark.parametrize("way", ["read", "read in place", "an alias", "was read"])
def test_branch_that_depends_on_a_write_is_refused(way):
    total = pb.zeros(2)
    alias = total[:]

    def function(x):
        before = x * 2
        total.add_(before)
        y = {
            "read": lambda: x * total,
            "read in place": lambda: x.clone().add_(total),
            "an alias": lambda: alias,
            "was read": lambda: before.sub_(1),  # as it is now, the write would read it
        }[way]()
        return pb.func.grad(pb.prod)(y)

    compiled = pb.compile(function, fullgraph=True)
    with pytest.raises(RuntimeError, match="a choice by values after a write"):
        compiled(pb.ones(2))


@pytest.mark.parametrize("way", ["argument", "computed", "twice"])
def test_branch_after_a_write_on_which_it_does_not_depend_comes_first(way):
    def run(wrap):
        total = pb.zeros(2)

        def function(x):
            before, y = x * 2, x
            total.add_(y)
            if way == "computed":
                y = (x - 1) * 3
            elif way == "twice":
                y = pb.func.grad(pb.prod)(x) * x
                total.mul_(2)
            return pb.func.grad(pb.prod)(y), before.sum(), total * 1

        function, found = wrap(function), []
        for values in ([2.0, 3], [2.0, 4], [0.0, 3], [2.0, 3], [0.0, 0], [1.0, 5], [0.0, 2]):
            found += [one.tolist() for one in function(pb.tensor(values))]
            found.append(total.tolist())
        return found, function

    (expected, _), (found, function) = run(lambda f: f), run(partial(pb.compile, fullgraph=True))
    assert found == expected and sum(one.runs for one in function.entries) >= 3


def test_averages_of_a_model_in_its_step():
    def run(wrap):
        pb.manual_seed(0)
        net = pb.nn.Linear(4, 2)
        optimizer = pb.optim.SGD(net.parameters(), lr=0.1)
        averaged = pb.optim.swa_utils.AveragedModel(
            net, multi_avg_fn=pb.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )

        def step(x):
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
            averaged.update_parameters(net)

        step = wrap(step)
        for _ in range(8):
            step(pb.randn(3, 4))
        return [p.tolist() for p in averaged.parameters()], averaged.n_averaged.item(), step

    (*expected, _), (*found, step) = run(lambda f: f), run(partial(pb.compile, fullgraph=True))
    assert found == expected and step.entries[-1].runs >= 5


def test_masks_of_transformers_are_looked_at_in_each_run():
    layer = pb.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    net = pb.nn.TransformerEncoder(layer, 2).eval()
    causal = pb.nn.Transformer.generate_square_subsequent_mask(5)
    other = causal.clone()
    other[0, 3] = 0.0
    compiled = pb.compile(lambda x, mask: net(x, mask=mask), fullgraph=True)
    for mask in (causal, other, causal, other, causal.clone(), other):
        x = pb.randn(2, 5, 8)
        pb.testing.assert_close(compiled(x, mask), net(x, mask=mask), rtol=0, atol=0)
    assert len(compiled.entries) == 2


def test_explanation_names_decisions():
    compiled = pb.compile(F.binary_cross_entropy)
    compiled(pb.full((2,), 0.5), pb.ones(2))
    assert "decide(" in str(compiled.explain()) and 'label="decide"' in compiled.to_dot()


def test_failing_kernel_raises_the_message_of_the_function():
    compiled = pb.compile(F.cross_entropy)  # some backends read the class for the message
    scores = pb.zeros(2, 3)
    compiled(scores, pb.tensor([0, 2]))
    with pytest.raises(IndexError) as eager:
        F.cross_entropy(scores, pb.tensor([0, 7]))
    with pytest.raises(IndexError) as replay:
        compiled(scores, pb.tensor([0, 7]))
    assert str(replay.value) == str(eager.value)
    compiled(scores, pb.tensor([1, 1]))
    assert replayed(compiled) == [1]


def test_failing_kernel_after_a_write_fails_once():
    total = pb.zeros(2)

    def function(x, index):
        total.add_(1)
        return x.index_select(0, index)

    compiled = pb.compile(function, fullgraph=True)
    compiled(pb.ones(2), pb.tensor([1]))
    with pytest.raises(IndexError):
        compiled(pb.ones(2), pb.tensor([5]))
    assert total.tolist() == [2, 2]


MASKED = {
    "whole": lambda x: x.__setitem__(x < 0, 0.0),
    "rows": lambda x: x.__setitem__(x[:, 0] < 0, -1.0),
    "columns": lambda x: x.__setitem__((slice(None), x[0] < 0), 2.0),
    "inner": lambda x: x[:, 1:].__setitem__(x[:, 1:] > 0, 5),
    "tensor": lambda x: x.__setitem__(x < 0, pb.tensor(3.0)),
    "after a slice": lambda x: x.__setitem__((slice(0, 2), x[0] < 0), 7.0),
    "row and mask": lambda x: x.__setitem__((1, x[1] < 0), 7.0),
}


@pytest.mark.parametrize("dtype", [pb.float32, pb.float64, pb.int32])
@pytest.mark.parametrize("name", MASKED)
def test_numbers_that_masks_place(name, dtype):
    def function(x):
        y = x * 1
        MASKED[name](y)
        return y * 2

    compiled = pb.compile(function, fullgraph=True)
    for _ in range(4):
        values = (pb.randn(4, 5) * 4).to(dtype)
        found = []
        for call in (compiled, function):
            x = values.clone().requires_grad_(dtype.is_floating_point)
            y = call(x)
            if x.requires_grad:
                y.square().sum().backward()
            found.append([y.detach().tolist(), None if x.grad is None else x.grad.tolist()])
        assert found[0] == found[1]
    assert [one.runs for one in compiled.entries] == [3]


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("fused", [None, True])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_scaled_steps_look_for_infinities_in_each_run(name, fused, clips):
    if pb.get_default_device().type == "ref" and name != "SGD":
        pytest.skip("without kernels for their steps, optimizers compute them op by op")

    def run(wrap):
        pb.manual_seed(0)
        net = pb.nn.Sequential(pb.nn.Linear(4, 4), pb.nn.ReLU(), pb.nn.Linear(4, 2))
        optimizer = getattr(pb.optim, name)(net.parameters(), lr=0.01, fused=fused)
        scaler = pb.amp.GradScaler("cpu", growth_interval=3)

        def step(x):
            optimizer.zero_grad()
            with pb.autocast("cpu", dtype=pb.bfloat16):
                loss = net(x).square().mean()
            scaler.scale(loss).backward()
            if clips:
                scaler.unscale_(optimizer)
                pb.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        step, found = wrap(step), []
        for number in range(14):
            found.append(step(pb.randn(3, 4) * (1e30 if number in (6, 9) else 1)).tolist())
            found += [scaler.get_scale(), *(p.tolist() for p in net.parameters())]
        return found, step

    (expected, _), (found, step) = run(lambda f: f), run(partial(pb.compile, fullgraph=True))
    assert found == expected
    assert len(step.entries) <= 3 and sum(one.runs for one in step.entries) >= 9
