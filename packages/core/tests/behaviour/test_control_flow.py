"""cond and while_loop, which run eagerly; what they and compile refuse."""

import pytest

import pullback as pb

X = pb.tensor(2.0)


@pytest.mark.parametrize("pred", [True, 1, pb.tensor(True), pb.tensor([3.0])])
def test_cond_runs_one_branch(pred):
    x = pb.tensor([2.0], requires_grad=True)
    calls = []

    def other(x):
        calls.append(x)
        return {"y": x}

    found = pb.cond(pred, lambda x: {"y": x * x}, other, (x,))
    found["y"].sum().backward()
    assert x.grad.tolist() == [4.0] and not calls
    assert pb.cond(pb.tensor(False), lambda: 1, lambda: 2) == 2


def test_cond_of_a_batch_chooses_for_each_element():
    def run(pred, x):
        return pb.cond(pred > 0, lambda x: x * x, lambda x: -x, (x,))

    preds, xs = pb.tensor([1.0, -1.0]), pb.tensor([3.0, 5.0])
    assert pb.vmap(run)(preds, xs).tolist() == [9.0, -5.0]
    slopes = pb.vmap(pb.func.grad(lambda x, pred: run(pred, x)))(xs, preds)
    assert slopes.tolist() == [6.0, -1.0]


def test_while_loop_carries_values_and_gradients():
    x = pb.tensor(2.0, requires_grad=True)
    count, last = pb.while_loop(lambda n, y: n < 3, lambda n, y: (n + 1, y * x), (pb.tensor(0), x))
    last.backward()
    assert (count.item(), last.item(), x.grad.item()) == (3, 16.0, 32.0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: pb.cond("x", abs, abs, (X,)),
            RuntimeError,
            "pred to be bool or tensor, but got x",
        ),
        (lambda: pb.cond(pb.ones(2), abs, abs, (X,)), RuntimeError, "single-element tensor"),
        (lambda: pb.cond(True, 1, abs, (X,)), RuntimeError, "both branches to be callable"),
        (lambda: pb.cond(True, abs, abs, (1,)), RuntimeError, "only consists of tensor leaves"),
        (lambda: pb.while_loop(1, abs, (X,)), RuntimeError, "cond_fn and body_fn to be callable"),
        (lambda: pb.while_loop(abs, abs, (3,)), RuntimeError, "only consists of tensor leaves"),
        (
            lambda: pb.while_loop(lambda x: "a", abs, (X,)),
            RuntimeError,
            "bool or tensor, but got a",
        ),
        (lambda: pb.while_loop(abs, lambda x: (x, x), (X,)), RuntimeError, "return 1 values"),
        (lambda: pb.compile(3), TypeError, "argument 'model' must be callable, not int"),
        (lambda: pb.compile(abs, mode="a", options={}), RuntimeError, "Either mode or options can"),
    ],
)
def test_control_flow_refuses(call, error, message):
    with pytest.raises(error, match=message):
        call()
