"""The op library: one entry per op, a module for each family. Importing it declares them all."""

from pullback.ops.creation import create, random_numbers, ranges
from pullback.ops.elementwise import (
    activations,
    binary,
    binary_composite,
    complex_numbers,
    float_bits,
    special,
    ternary,
    unary,
    unary_composite,
)
from pullback.ops.indexing import index_update, indexing, scatter
from pullback.ops.linalg import distances, einsum, inverse, linalg, svd
from pullback.ops.nn import (
    activations_shaped,
    attention,
    avg_pool,
    convolution,
    cross_entropy,
    dropout,
    embedding,
    grid_sample,
    interpolation,
    loss_util,
    losses,
    losses_ctc,
    losses_margin,
    normalization,
    padding,
    pixel_shuffle,
    pooling,
    softmax_linear,
    windows,
)
from pullback.ops.reductions import histogram, norms, reduce, scan, sorting, statistics
from pullback.ops.shape import diagonal, inplace_metadata, join_split, rearrange, shape
from pullback.ops.table.schema import ENTRIES, Entry, ops

__all__ = ["ENTRIES", "Entry", "ops"]
