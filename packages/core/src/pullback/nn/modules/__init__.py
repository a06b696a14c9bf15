"""Modules by family; ``pullback.nn`` has all of their names."""

import sys

from pullback.nn.modules import (
    activation,
    adaptive,
    attention,
    batchnorm,
    container,
    conv,
    distance,
    dropout,
    linear,
    loss,
    module,
    normalization,
    padding,
    pooling,
    reshape,
    rnn,
    sparse,
    transformer,
)

__all__ = []
for _family in (
    *(module, container, linear, conv, pooling, padding, activation, normalization, batchnorm),
    *(dropout, sparse, distance, loss, reshape, rnn, attention, transformer, adaptive),
):
    __all__ += _family.__all__
    globals().update((name, getattr(_family, name)) for name in _family.__all__)

# torch's modules whose classes are in another one here
for _family, _others in (
    (batchnorm, "instancenorm"),
    (reshape, "channelshuffle flatten fold pixelshuffle upsampling"),
):
    for _other in _others.split():
        sys.modules[f"{__name__}.{_other}"] = globals()[_other] = _family
