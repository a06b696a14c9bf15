"""Decompositions of softmax, normalization and their derivatives."""

from __future__ import annotations

from pullback.ops.table.primitives import decomposition
from pullback.ops.table.schema import ops


@decomposition("normalize")
def normalize(self, mean, scale, weight, bias):
    mean, scale = (part.unsqueeze(2).unsqueeze(3) for part in (mean, scale))
    return (self - mean) * scale * weight.unsqueeze(2) + bias.unsqueeze(2)


@decomposition("normalize_backward")
def normalize_backward(self, source, mean, scale, weight):
    derivative, unit = _normalized_input(self, source, mean, scale, weight)
    return derivative, (self * unit).sum((0, 3)), self.sum((0, 3))


@decomposition("normalize_backward_input")
def normalize_backward_input(self, source, mean, scale, weight):
    return _normalized_input(self, source, mean, scale, weight)[0]


def _normalized_input(self, source, mean, scale, weight):
    """Return the gradient of normalize's first operand, and that operand without mean and scale."""
    dims = (2, 3) if mean.shape[0] == source.shape[0] else (0, 2, 3)
    mean, scale = (part.unsqueeze(2).unsqueeze(3) for part in (mean, scale))
    unit = (source - mean) * scale
    inner = self * weight.unsqueeze(2)
    derivative = scale * (inner - inner.mean(dims, True) - unit * (inner * unit).mean(dims, True))
    return derivative.contiguous(), unit


@decomposition("softmax")
def softmax(self, dim):
    powers = ops.exp(_shifted(self, dim))
    return powers / powers.sum(dim, True)


@decomposition("log_softmax")
def log_softmax(self, dim):
    shifted = _shifted(self, dim)
    return shifted - shifted.exp().sum(dim, True).log()


def _shifted(self, dim):
    """Subtract the largest element, so that no power overflows."""
    return self - ops.amax(self, dim, True) if self.numel() else self


@decomposition("softmax_backward")
def softmax_backward(self, output, dim):
    return output * (self - (self * output).sum(dim, True))


@decomposition("log_softmax_backward")
def log_softmax_backward(self, output, dim):
    return self - output.exp() * self.sum(dim, True)
