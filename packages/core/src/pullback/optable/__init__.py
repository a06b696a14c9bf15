"""The op table: one entry per op, in one module per family. Importing it declares them all."""

from pullback.optable import (
    binary,
    create,
    indexing,
    linalg,
    nn,
    reduce,
    shape,
    unary,
)
from pullback.optable.schema import ENTRIES, Entry, ops

__all__ = ["ENTRIES", "Entry", "ops"]
