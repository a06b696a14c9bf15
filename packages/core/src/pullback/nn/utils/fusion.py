"""Layers followed by batch normalization, in evaluation, as one layer."""

from __future__ import annotations

import copy

import pullback
from pullback.nn.parameter import Parameter

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
]


def _check_fusable(layer, bn):
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("bn.running_mean and bn.running_var must not be None")


def _fused(weight, bias, mean, variance, eps, scale, shift, shape):
    """Scale weight and bias as the normalization scales the layer's results."""
    factor = pullback.rsqrt(variance + eps)
    if scale is not None:
        factor = factor * scale
    made = weight * factor.reshape(shape).to(weight.dtype)
    moved = (-mean if bias is None else bias - mean) * factor
    if shift is not None:
        moved = moved + shift
    return (
        Parameter(made, weight.requires_grad),
        Parameter(moved.to(weight.dtype), bias is not None and bias.requires_grad),
    )


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False):
    """Return weight and bias of a convolution that normalizes its results, as two parameters.

    ``conv_b``, ``bn_w`` and ``bn_b`` may be None. ``transpose`` is for transposed convolutions,
    whose weights have output channels in dim 1.

    >>> import pullback
    >>> one = pullback.ones(2)
    >>> weight, bias = pullback.nn.utils.fuse_conv_bn_weights(
    ...     pullback.ones(2, 1, 1), one, one, 4 * one, 0.0, 6 * one, None)
    >>> weight.flatten(), bias.tolist()
    (tensor([3., 3.]), [0.0, 0.0])
    """
    shape = [1] * conv_w.dim()
    shape[1 if transpose else 0] = -1
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_conv_bn_eval(conv, bn, transpose=False):
    """Return a copy of a convolution that gives what the batch normalization makes of its results.

    Raises: AssertionError if one of them is in training mode, or there are no running statistics.

    >>> import pullback
    >>> from pullback import nn
    >>> conv, norm = nn.Conv1d(2, 3, 2).eval(), nn.BatchNorm1d(3).eval()
    >>> fused = nn.utils.fuse_conv_bn_eval(conv, norm)
    >>> x = pullback.randn(4, 2, 5)
    >>> bool((fused(x) - norm(conv(x))).abs().max() < 1e-5)
    True
    """
    _check_fusable(conv, bn)
    made = copy.deepcopy(conv)
    made.weight, made.bias = fuse_conv_bn_weights(
        *(conv.weight, conv.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias),
        transpose,
    )
    return made


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    """Return weight and bias of a linear map that normalizes its results, as two parameters.

    >>> import pullback
    >>> one = pullback.ones(1)
    >>> weight, bias = pullback.nn.utils.fuse_linear_bn_weights(
    ...     pullback.ones(1, 2), None, one, 4 * one, 0.0, 6 * one, one)
    >>> weight.tolist(), bias.tolist()
    ([[3.0, 3.0]], [-2.0])
    """
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, (-1, 1))


def fuse_linear_bn_eval(linear, bn):
    """Return a copy of a Linear that gives what the batch normalization makes of its results.

    Raises: AssertionError if one of them is in training mode, or numbers of features differ.

    >>> import pullback
    >>> from pullback import nn
    >>> linear, norm = nn.Linear(2, 3).eval(), nn.BatchNorm1d(3).eval()
    >>> fused = nn.utils.fuse_linear_bn_eval(linear, norm)
    >>> x = pullback.randn(4, 2)
    >>> bool((fused(x) - norm(linear(x))).abs().max() < 1e-5)
    True
    """
    _check_fusable(linear, bn)
    if bn.num_features not in (linear.out_features, 1):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    made = copy.deepcopy(linear)
    made.weight, made.bias = fuse_linear_bn_weights(
        linear.weight, linear.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return made
