"""The class of COO tensors, and the gradients that formulas make of it."""

from __future__ import annotations

import pullback as pb
from pullback import Tensor
from pullback._c.engine.accumulate import set_sparse_rules

__all__ = ["SparseTensor", "gradient_of_elements", "gradient_of_rows", "make"]

# What a function computes with sparse arguments: `calls.py` fills it.
CALLS: dict = {}
# Functions that ask for sizes and the dtype, or raise as they do for any tensor without history.
METADATA: set = set()


class SparseTensor(Tensor):
    """A tensor in coordinate format: the result of ``sparse_coo_tensor``, and sparse gradients.

    To compiled code it is a tensor without memory on the meta device, which no kernel reads; each
    call with one among its arguments comes to ``__torch_function__``.

    >>> import pullback
    >>> x = pullback.sparse_coo_tensor([[1, 1]], [2.0, 3.0], (4,))
    >>> x.is_sparse, x._nnz(), x.coalesce().values()
    (True, 2, tensor([5.]))
    """

    _coo: tuple[Tensor, Tensor, bool]  # indices, values, whether it is coalesced
    _elements_elsewhere = True
    layout = pb.sparse_coo
    is_sparse = True
    is_cpu = property(lambda self: self.device.type == "cpu")
    is_cuda = property(lambda self: self.device.type == "cuda")
    is_meta = property(lambda self: self.device.type == "meta")
    device = property(lambda self: self._coo[1].device)
    data = property(lambda self: detached(self))
    requires_grad = property(lambda self: False, lambda self, value: self.requires_grad_(value))

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        call = CALLS.get(func)
        if call is not None:
            return call(*args, **(kwargs or {}))
        if func in METADATA:
            with pb.overrides.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        raise refusal(func, args)

    def sparse_dim(self):
        """Return the number of dims that have indices."""
        return self._coo[0].shape[0]

    def dense_dim(self):
        """Return the number of dims of each value."""
        return self._coo[1].ndim - 1

    def _nnz(self):
        return self._coo[1].shape[0]

    def _indices(self):
        return self._coo[0]

    def _values(self):
        return self._coo[1]

    def is_coalesced(self):
        """Return True if the indices are known to be sorted and distinct."""
        return self._coo[2]

    def _coalesced_(self, coalesced):
        self._coo = (*self._coo[:2], bool(coalesced))
        return self

    def indices(self):
        """Return the indices of a coalesced tensor."""
        return self._checked("indices")[0]

    def values(self):
        """Return the values of a coalesced tensor."""
        return self._checked("values")[1]

    def _checked(self, what):
        if not self._coo[2]:
            raise RuntimeError(
                f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first"
            )
        return self._coo

    def coalesce(self):
        """Return the tensor with sorted indices, values at equal ones summed."""
        indices, values, coalesced = self._coo
        if coalesced:
            return self
        size = tuple(self.shape)
        if values.shape[0] < 2:
            return make(indices, values, size, True)
        sparse_dim = indices.shape[0]
        numbers, inverse = pb.unique(flat_indices(self), return_inverse=True)
        total = values.new_zeros((numbers.shape[0], *values.shape[1:]))
        rows = []
        for length in reversed(size[:sparse_dim]):
            rows.append(numbers % length)
            numbers = pb.div(numbers, length, rounding_mode="floor")
        kept = pb.stack(rows[::-1]) if rows else indices[:, : total.shape[0]]
        return make(kept, total.index_add_(0, inverse, values), size, True)

    def to_dense(self, dtype=None, *, masked_grad=None):
        """Return the elements as a dense tensor."""
        if dtype is not None:
            raise RuntimeError("dtype argument is not supported by sparse_to_dense")
        values = self._coo[1]
        return add_to_dense(values.new_zeros(tuple(self.shape)), self, 1)

    def __iter__(self):
        raise refusal(Tensor.unbind, (self,))

    def __reduce_ex__(self, protocol):
        indices, values, coalesced = self._coo
        return rebuild, (pb.sparse_coo, (indices, values, self.shape, coalesced))

    def __deepcopy__(self, memo):
        made = memo[id(self)] = cloned(self)
        return made


def make(indices, values, size, coalesced) -> SparseTensor:
    """Return a COO tensor of the given parts, which it shares."""
    made = pb.empty(size, dtype=values.dtype, device="meta").as_subclass(SparseTensor)
    made._coo = (indices, values, coalesced or indices.shape[1] < 2)
    return made


def rebuild(layout, parts) -> SparseTensor:
    """Return the COO tensor that was pickled."""
    indices, values, size, coalesced = parts
    return make(indices, values, tuple(size), bool(coalesced))


def with_values(self, values) -> SparseTensor:
    """Return a COO tensor of new values at the same indices."""
    indices, _values, coalesced = self._coo
    return make(indices, values, tuple(self.shape), coalesced)


def detached(self) -> SparseTensor:
    return with_values(self, self._coo[1].detach())


def cloned(self) -> SparseTensor:
    indices, values, coalesced = self._coo
    return make(indices.clone(), values.clone(), tuple(self.shape), coalesced)


def refusal(func, args):
    """Return the exception for a function that sparse tensors do not have."""
    name = func.__name__
    if name in ("__get__", "__set__", "__delete__"):
        name = func.__self__.__name__
    on_cuda = any(isinstance(arg, SparseTensor) and arg.is_cuda for arg in args)
    backend = "CUDA" if on_cuda else "CPU"
    return NotImplementedError(
        f"Could not run 'pullback::{name.strip('_') if name.startswith('__') else name}' with "
        f"arguments from the 'Sparse{backend}' backend. Sparse tensors are gradients only: "
        f"call .to_dense() first."
    )


# ---- positions -----------------------------------------------------------------------------------


def flat_indices(self):
    """Return the row-major number of each index over the sparse dims."""
    indices = self._coo[0]
    numbers = indices.new_zeros((indices.shape[1],))
    for row, length in zip(indices.unbind(0), self.shape):
        numbers = numbers * length + row
    return numbers


def add_to_dense(dense, self, alpha):
    """Add a multiple of a COO tensor to a dense one, in place; returns it."""
    values = self._coo[1]
    if alpha != 1:
        values = values * alpha
    if values.dtype != dense.dtype:
        values = values.to(dense.dtype)
    indices = self._coo[0]
    if not indices.shape[0]:
        return dense.add_(values.sum(0))
    if indices.shape[0] == 1:
        return dense.index_add_(0, indices[0], values)
    return dense.index_put_(tuple(indices.unbind(0)), values, accumulate=True)


def values_at(dense, self):
    """Return a copy of the elements of a dense tensor where a COO tensor has its elements."""
    indices = self._coo[0]
    if not indices.shape[0]:
        return dense.expand((indices.shape[1],)).clone()
    if indices.shape[0] == 1:
        return dense.index_select(0, indices[0])
    return dense[tuple(indices.unbind(0))]


def sum_of(a, b, alpha=1):
    """Return a COO tensor plus a multiple of another one, with the elements of both."""
    if tuple(a.shape) != tuple(b.shape):
        raise RuntimeError(
            f"add: expected sizes of 'self' and 'other' to match, but "
            f"{', '.join(map(str, a.shape))} != {', '.join(map(str, b.shape))}"
        )
    if a.sparse_dim() != b.sparse_dim():
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same density, but 'self' has "
            f"{a.sparse_dim()} sparse dimensions while 'other' has {b.sparse_dim()} sparse "
            f"dimensions"
        )
    second = b._coo[1] if alpha == 1 else b._coo[1] * alpha
    if _same_indices(a._coo[0], b._coo[0]):
        return with_values(a, a._coo[1] + second)
    indices = pb.cat((a._coo[0], b._coo[0]), 1)
    dtype = pb.result_type(a._coo[1], second)
    values = pb.cat((a._coo[1].to(dtype), second.to(dtype)))
    total = make(indices, values, tuple(a.shape), False)
    return total.coalesce() if total._nnz() > total.numel() else total


def _same_indices(a, b):
    if a is b:
        return True
    return a.shape == b.shape and a.device.type != "cuda" and pb.equal(a, b)


# ---- gradients -----------------------------------------------------------------------------------


def gradient_of_rows(g, size, numbers) -> SparseTensor:
    """Return the gradient of a matrix of which rows were taken: ``g[k]`` at row ``numbers[k]``."""
    return make(numbers.unsqueeze(0), g, tuple(size), False)


def gradient_of_elements(g, size, dim, index) -> SparseTensor:
    """Return the gradient of a tensor of which ``gather`` took elements along a dim."""
    count = index.numel()
    if not size:
        return make(index.new_empty((0, count)), g.reshape(-1), (), False)
    rows = [
        pb.arange(length, device=index.device)
        .reshape((-1,) + (1,) * (index.ndim - 1 - d))
        .expand(index.shape)
        .reshape(-1)
        for d, length in enumerate(index.shape)
    ]
    rows[dim] = index.reshape(-1)
    return make(pb.stack(rows), g.reshape(-1), tuple(size), False)


class Rules:
    """What the engine does with sparse gradients, without asking overrides."""

    kind = SparseTensor
    clone = staticmethod(cloned)

    @staticmethod
    def cast(grad, dtype, device):
        """Return a gradient in the dtype of its input; raise for another device."""
        return with_values(grad, grad._coo[1].to(dtype))

    @staticmethod
    def total(first, second):
        """Return the sum of two gradients, of which one is sparse."""
        if isinstance(first, SparseTensor):
            if isinstance(second, SparseTensor):
                return sum_of(first, second)
            first, second = second, first
        return add_to_dense(first.clone(), second, 1)

    @staticmethod
    def accumulate(current, grad):
        """Add to the gradient of a leaf, in place where that is possible; returns what it is."""
        if isinstance(current, SparseTensor) and isinstance(grad, SparseTensor):
            current._coo = sum_of(current, grad)._coo
            return current
        if isinstance(current, SparseTensor) or current.requires_grad:
            return Rules.total(current, grad)
        return add_to_dense(current, grad, 1)

    @staticmethod
    def is_owned(grad):
        """Return True if nothing else has the memory of the values."""
        return grad._coo[1]._base is None


set_sparse_rules(Rules)
