"""Normalizations of many elements: the fused backward pass against the recorded formula."""

import numpy as np
import pytest

import pullback as pb

F = pb.nn.functional
CASES = {
    "layer": ((70, 64), 64, lambda x, w, b: F.layer_norm(x, (64,), w, b)),
    "layer of two dims": ((70, 8, 9), (8, 9), lambda x, w, b: F.layer_norm(x, (8, 9), w, b)),
    "group": ((5, 6, 200), 6, lambda x, w, b: F.group_norm(x, 3, w, b)),
    "batch": ((9, 6, 100), 6, lambda x, w, b: F.batch_norm(x, None, None, w, b, True)),
    "batch of vectors": ((700, 7), 7, lambda x, w, b: F.batch_norm(x, None, None, w, b, True)),
    "instance": ((9, 6, 100), 6, lambda x, w, b: F.instance_norm(x, None, None, w, b)),
}


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_gradients_agree(name, affine, transposed):
    shape, channels, function = CASES[name]
    pb.manual_seed(3)
    x = pb.randn(*shape, dtype=pb.float64) + 5
    if transposed:
        x = x.transpose(0, -1).contiguous().transpose(0, -1)
    x.requires_grad_()
    parameters = [None, None]
    if affine:
        size = channels if isinstance(channels, tuple) else (channels,)
        parameters = [pb.rand(*size, dtype=pb.float64).add_(0.5).requires_grad_() for _ in range(2)]
    inputs = [one for one in (x, *parameters) if one is not None]
    out = function(x, *parameters)
    grad = pb.randn(*shape, dtype=pb.float64)
    fused = pb.autograd.grad(out, inputs, grad, retain_graph=True)
    recorded = pb.autograd.grad(out, inputs, grad, create_graph=True)
    for one, other in zip(fused, recorded):
        assert not one.requires_grad
        np.testing.assert_allclose(one.numpy(), other.detach().numpy(), rtol=1e-9, atol=1e-11)


def test_values_of_half_precision_inputs():
    pb.manual_seed(3)
    x = pb.randn(70, 64) * 3 + 1
    wide = F.layer_norm(x.half().float(), (64,))
    for dtype, room in ((pb.float16, 2e-3), (pb.bfloat16, 2e-2)):
        found = F.layer_norm(x.half().to(dtype), (64,))
        assert found.dtype == dtype
        if dtype == pb.float16:
            np.testing.assert_allclose(found.float().numpy(), wide.numpy(), atol=room)
        half = x.to(dtype).requires_grad_()
        F.layer_norm(half, (64,)).square().sum().backward()
        assert half.grad.dtype == dtype
