"""The op table: one entry per op, in one module per family. Importing it declares them all."""

from pullback.optable.schema import ENTRIES, Entry, ops
from pullback.optable import (  # noqa: F401  (each module declares its family)
    binary, create, indexing, linalg, nn, reduce, shape, unary,
)

__all__ = ["ENTRIES", "Entry", "ops"]
