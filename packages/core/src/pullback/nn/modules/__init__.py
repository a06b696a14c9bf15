"""Modules by family; ``pullback.nn`` has all of their names."""

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
