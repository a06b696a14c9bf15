"""``sparse_coo_tensor``: a COO tensor from indices and values, with checks."""

from __future__ import annotations

import pullback as pb
from pullback.sparse.coo import SparseTensor, make

__all__ = ["sparse_coo_tensor"]


def sparse_coo_tensor(
    indices,
    values=None,
    size=None,
    *,
    dtype=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    check_invariants=None,
    is_coalesced=None,
) -> SparseTensor:
    """Return a COO tensor: ``values[k]`` at ``indices[:, k]``, and zero elsewhere.

    ``indices`` is a matrix with a row for each sparse dim; ``values`` has one more leading dim than
    the dense dims. Values at equal indices are summed. Without ``size``, each sparse dim ends after
    its largest index. A size alone gives a tensor without elements. Indices are always checked,
    unless ``check_invariants`` is False.

    Raises: RuntimeError when indices, values and size do not fit, or for ``requires_grad=True``.

    >>> import pullback
    >>> pullback.sparse_coo_tensor([[0, 2]], [3.0, 4.0], (3,)).to_dense()
    tensor([3., 0., 4.])
    """
    if requires_grad:
        raise RuntimeError(
            "sparse_coo_tensor: sparse tensors are gradients only, and cannot require grad"
        )
    if values is None:  # a size alone
        size, indices = tuple(indices if size is None else size), None
        values = pb.zeros((0,), dtype=dtype, device=device)
        return make(pb.zeros((len(size), 0), dtype=pb.int64, device=device), values, size, False)
    values = _tensor(values, dtype, device)
    indices = _tensor(indices, pb.int64, values.device)
    if pin_memory:
        values = values.pin_memory()
    if values.ndim == 0:
        values = values.unsqueeze(0)
    if indices.ndim != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    if indices.shape[1] != values.shape[0]:
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: "
            f"{indices.shape[1]}, nnz from values: {values.shape[0]}"
        )
    size = _infer_size(indices, values) if size is None else tuple(size)
    _check_size(indices, values, size, check_invariants is not False)
    made = make(indices, values, size, False)
    if is_coalesced:
        if made.coalesce()._nnz() != made._nnz() or not pb.equal(
            made.coalesce()._indices(), indices
        ):
            raise RuntimeError(
                "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor"
            )
        made._coalesced_(True)
    return made


def _tensor(value, dtype, device):
    """Return data as a tensor without a history, which shares the memory of a given tensor."""
    if isinstance(value, pb.Tensor):
        return value.detach().to(
            device=value.device if device is None else device,
            dtype=value.dtype if dtype is None else dtype,
        )
    made = pb.tensor(value, device=device)
    return made if dtype is None else made.to(dtype)


def _infer_size(indices, values):
    if indices.shape[1] == 0:
        return (0,) * indices.shape[0] + tuple(values.shape[1:])
    for dim, least in enumerate(indices.amin(1).tolist()):
        if least < 0:
            raise RuntimeError(f"found negative index {least} for dim {dim}")
    return (*(most + 1 for most in indices.amax(1).tolist()), *values.shape[1:])


def _check_size(indices, values, size, check_indices):
    sparse_dim, dense_dim = indices.shape[0], values.ndim - 1
    if len(size) != sparse_dim + dense_dim:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, "
            f"sparse_dim = {sparse_dim}, dense_dim = {dense_dim}"
        )
    if any(length < 0 for length in size):
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(size)}: {size}")
    expected = [values.shape[0], *size[sparse_dim:]]
    if expected != list(values.shape):
        raise RuntimeError(
            f"values has incorrect size, expected {expected}, got {list(values.shape)}"
        )
    if check_indices and indices.numel() and indices.device.type != "meta":
        bounds = zip(indices.amin(1).tolist(), indices.amax(1).tolist())
        for dim, (least, most) in enumerate(bounds):
            if least < 0:
                raise RuntimeError(f"found negative index {least} for dim {dim}")
            if most >= size[dim]:
                raise RuntimeError(
                    f"size is inconsistent with indices: for dim {dim}, size is {size[dim]} but "
                    f"found index {most}"
                )
