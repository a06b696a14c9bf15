"""Boolean arguments: a value of another type raises a TypeError that names the argument."""

import pytest

import pullback as pb


@pytest.fixture
def x():
    return pb.ones(2, requires_grad=True)


CALLS = {
    "retain_graph of backward()": lambda x, flag: x.sum().backward(retain_graph=flag),
    "create_graph of backward()": lambda x, flag: x.sum().backward(create_graph=flag),
    "retain_graph of grad()": lambda x, flag: pb.autograd.grad(x.sum(), x, retain_graph=flag),
    "create_graph of grad()": lambda x, flag: pb.autograd.grad(x.sum(), x, create_graph=flag),
    "allow_unused of grad()": lambda x, flag: pb.autograd.grad(x.sum(), x, allow_unused=flag),
    "is_grads_batched of grad()": lambda x, flag: pb.autograd.grad(
        x.sum(), x, pb.ones(1), is_grads_batched=flag
    ),
    "materialize_grads of grad()": lambda x, flag: pb.autograd.grad(
        x.sum(), x, materialize_grads=flag
    ),
    "requires_grad of tensor()": lambda x, flag: pb.tensor([1.0], requires_grad=flag),
    "pin_memory of tensor()": lambda x, flag: pb.tensor([1.0], pin_memory=flag),
    "requires_grad of zeros()": lambda x, flag: pb.zeros(2, requires_grad=flag),
    "pin_memory of zeros()": lambda x, flag: pb.zeros(2, pin_memory=flag),
    "copy of asarray()": lambda x, flag: pb.asarray([1.0], copy=flag),
    "requires_grad of asarray()": lambda x, flag: pb.asarray([1.0], requires_grad=flag),
    "equal_nan of isclose()": lambda x, flag: pb.isclose(x, x, equal_nan=flag),
    "equal_nan of allclose()": lambda x, flag: pb.allclose(x, x, equal_nan=flag),
    "force of numpy()": lambda x, flag: x.detach().numpy(force=flag),
    "non_blocking of to()": lambda x, flag: x.to("cpu", non_blocking=flag),
    "copy of to()": lambda x, flag: x.to(pb.float64, copy=flag),
    "non_blocking of cuda()": lambda x, flag: x.cuda(non_blocking=flag),
    "non_blocking of type()": lambda x, flag: x.type(pb.float64, non_blocking=flag),
    "keepdim of sum()": lambda x, flag: x.sum(0, keepdim=flag),
    "mode of set_grad_enabled()": lambda x, flag: pb.set_grad_enabled(flag),
    "mode of inference_mode()": lambda x, flag: pb.inference_mode(flag),
    "mode of set_detect_anomaly()": lambda x, flag: pb.autograd.set_detect_anomaly(flag),
    "check_nan of detect_anomaly()": lambda x, flag: pb.autograd.detect_anomaly(check_nan=flag),
    "mode of use_deterministic_algorithms()": lambda x, flag: pb.use_deterministic_algorithms(flag),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("flag", ["yes", 0.5, [True]])
def test_flag_of_another_type(x, call, flag):
    argument, function = call.removesuffix("()").split(" of ")
    text = rf"{function}\(\).*'{argument}'.* must be bool, not {type(flag).__name__}"
    with pytest.raises(TypeError, match=text):
        CALLS[call](x, flag)
    assert x.grad is None and not pb.is_anomaly_enabled()


def test_numbers_are_flags_of_backward_passes(x):
    """As in torch, which takes them there."""
    loss = (x * x).sum()
    loss.backward(retain_graph=1)
    pb.autograd.grad(loss, x, retain_graph=1, create_graph=0)
    loss.backward(retain_graph=0)
    assert x.grad.tolist() == [4, 4]
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()
