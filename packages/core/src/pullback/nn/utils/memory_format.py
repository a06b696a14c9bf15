"""Memory layouts of the weights of convolutions."""

from __future__ import annotations

import pullback

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module, memory_format, kinds):
    for each in module.modules():
        if isinstance(each, kinds):
            each.weight.data = each.weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module, memory_format):
    """Store the weights of all Conv2d and ConvTranspose2d in a memory format; return the module.

    >>> import pullback
    >>> conv = pullback.nn.Conv2d(2, 3, 2)
    >>> _ = pullback.nn.utils.convert_conv2d_weight_memory_format(conv, pullback.channels_last)
    >>> conv.weight.is_contiguous(memory_format=pullback.channels_last)
    True
    """
    nn = pullback.nn
    return _convert(module, memory_format, (nn.Conv2d, nn.ConvTranspose2d))


def convert_conv3d_weight_memory_format(module, memory_format):
    """Store the weights of all Conv3d and ConvTranspose3d in a memory format; return the module.

    >>> import pullback
    >>> conv = pullback.nn.Conv3d(2, 3, 2)
    >>> _ = pullback.nn.utils.convert_conv3d_weight_memory_format(conv, pullback.channels_last_3d)
    >>> conv.weight.is_contiguous(memory_format=pullback.channels_last_3d)
    True
    """
    nn = pullback.nn
    return _convert(module, memory_format, (nn.Conv3d, nn.ConvTranspose3d))
