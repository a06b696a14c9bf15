"""Gradients in coordinate format (COO): ``sparse_coo_tensor`` and the tensors that it makes.

They hold the rows or elements that a look-up touched. Embeddings with ``sparse=True`` and
``gather`` with ``sparse_grad=True`` make them in a backward pass; ``SGD``, ``Adagrad`` and
``SparseAdam`` take them. `coo.py` has the class, `calls.py` what it
computes; every other operation refuses.
"""

from pullback._help import explain_names as _explain_names
from pullback.sparse import calls as _calls
from pullback.sparse.construct import sparse_coo_tensor
from pullback.sparse.coo import (
    SparseTensor,
    gradient_of_elements,
    gradient_of_rows,
    values_at,
    with_values,
)

__all__ = ["SparseTensor"]


_explain_names(globals())
