"""What functions, methods and attributes compute where an argument is a COO tensor."""

from __future__ import annotations

import pullback as pb
from pullback import Tensor
from pullback._printing import format_sparse
from pullback.sparse.coo import (
    CALLS,
    METADATA,
    SparseTensor,
    add_to_dense,
    cloned,
    detached,
    make,
    refusal,
    sum_of,
    with_values,
)

__all__: list[str] = []


def _handles(*members):
    """Register a handler for members of Tensor."""

    def register(handler):
        for member in members:
            CALLS[member.__get__ if not callable(member) else member] = handler
        return handler

    return register


METADATA.update(
    getattr(Tensor, name)
    for name in (
        *("dim", "numel", "size", "nelement", "ndimension", "element_size", "__len__"),
        *("is_floating_point", "is_complex", "is_signed", "is_inference", "is_same_size"),
        *("is_conj", "is_neg", "backward", "register_hook", "retain_grad", "_is_view"),
    )
)
METADATA.update(
    getattr(Tensor, name).__get__
    for name in (
        *("shape", "dtype", "ndim", "itemsize", "grad", "grad_fn", "is_leaf", "_version", "names"),
        *("retains_grad", "output_nr", "_backward_hooks", "is_quantized", "is_sparse_csr"),
        *("is_nested", "is_mkldnn", "is_mps", "is_xpu", "_base", "name"),
    )
    if hasattr(getattr(Tensor, name, None), "__get__")
)

# ---- arithmetic ----------------------------------------------------------------------------------


def _plus(self, other, alpha, writes):
    if not isinstance(self, SparseTensor):
        if not isinstance(self, Tensor):
            self, other = other, self
        elif tuple(self.shape) != tuple(other.shape):
            raise RuntimeError(
                f"add: expected 'self' and 'other' to have same size, but self has size "
                f"{list(self.shape)} while other has size {list(other.shape)} (FYI: dense-sparse "
                f"addition does not currently support broadcasting)"
            )
        else:
            dtype = pb.result_type(self, other._coo[1])
            return add_to_dense(self if writes else self.to(dtype, copy=True), other, alpha)
    if not isinstance(other, SparseTensor):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    total = sum_of(self, other, alpha)
    if not writes:
        return total
    if total.dtype != self.dtype:
        total = with_values(total, total._coo[1].to(self.dtype))
    self._coo = total._coo
    return self


@_handles(Tensor.add, Tensor.__add__, Tensor.__radd__)
def _add(self, other, *, alpha=1, out=None):
    _no_out(Tensor.add, out)
    return _plus(self, other, alpha, False)


@_handles(Tensor.add_, Tensor.__iadd__)
def _add_(self, other, *, alpha=1):
    return _plus(self, other, alpha, True)


@_handles(Tensor.sub, Tensor.__sub__)
def _sub(self, other, *, alpha=1, out=None):
    _no_out(Tensor.sub, out)
    return _plus(self, other, -alpha, False)


@_handles(Tensor.sub_, Tensor.__isub__)
def _sub_(self, other, *, alpha=1):
    return _plus(self, other, -alpha, True)


def _number(member, self, other):
    """Return a sparse operand and the number beside it."""
    if not isinstance(self, SparseTensor):
        self, other = other, self
    if isinstance(other, SparseTensor) or (isinstance(other, Tensor) and other.ndim):
        raise refusal(member, (self,))
    return self, other


@_handles(Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
def _mul(self, other, *, out=None):
    _no_out(Tensor.mul, out)
    self, number = _number(Tensor.mul, self, other)
    return with_values(self, self._coo[1] * number)


@_handles(Tensor.mul_, Tensor.__imul__)
def _mul_(self, other):
    if not isinstance(self, SparseTensor):
        raise refusal(Tensor.mul_, (other,))
    self._coo[1].mul_(_number(Tensor.mul_, self, other)[1])
    return self


@_handles(Tensor.div, Tensor.__truediv__)
def _div(self, other, *, rounding_mode=None, out=None):
    _no_out(Tensor.div, out)
    if not isinstance(self, SparseTensor):
        raise refusal(Tensor.div, (other,))
    number = _number(Tensor.div, self, other)[1]
    if rounding_mode is not None:
        self = self.coalesce()
    return with_values(self, pb.div(self._coo[1], number, rounding_mode=rounding_mode))


@_handles(Tensor.div_, Tensor.__itruediv__)
def _div_(self, other, *, rounding_mode=None):
    if not isinstance(self, SparseTensor):
        raise refusal(Tensor.div_, (other,))
    number = _number(Tensor.div_, self, other)[1]
    if rounding_mode is not None:
        self._coo = self.coalesce()._coo
    self._coo[1].div_(number, rounding_mode=rounding_mode)
    return self


@_handles(Tensor.neg, Tensor.__neg__)
def _neg(self, *, out=None):
    _no_out(Tensor.neg, out)
    return with_values(self, -self._coo[1])


@_handles(Tensor.neg_)
def _neg_(self):
    self._coo[1].neg_()
    return self


@_handles(Tensor.isnan)
def _isnan(self):
    self = self.coalesce()
    return with_values(self, self._coo[1].isnan())


@_handles(Tensor.norm)
def _norm(self, p="fro", dim=None, keepdim=False, dtype=None):
    if dim is not None or keepdim:
        raise refusal(Tensor.norm, (self,))
    return self.coalesce()._coo[1].norm(p, dtype=dtype)


@_handles(Tensor.sum)
def _sum(self, dim=None, keepdim=False, *, dtype=None):
    if dim is not None:
        raise refusal(Tensor.sum, (self,))
    return self._coo[1].sum(dtype=dtype)


def _no_out(member, out):
    if out is not None:
        raise refusal(member, (out,))


# ---- copies --------------------------------------------------------------------------------------


@_handles(Tensor.clone)
def _clone(self, *, memory_format=None):
    return cloned(self)


@_handles(Tensor.detach)
def _detach(self):
    return detached(self)


@_handles(Tensor.detach_)
def _detach_(self):
    return self


@_handles(Tensor.requires_grad_)
def _requires_grad_(self, requires_grad=True):
    if requires_grad:
        raise RuntimeError("sparse tensors are gradients only, and cannot require grad")
    return self


@_handles(Tensor.zero_)
def _zero_(self):
    indices, values, _coalesced = self._coo
    self._coo = indices.new_empty((indices.shape[0], 0)), values[:0].clone(), True
    return self


def _zeros_like(self, **options):
    indices, values, _coalesced = self._coo
    return make(indices[:, :0].clone(), values[:0].clone(), tuple(self.shape), False)


CALLS[pb.zeros_like] = CALLS[pb.empty_like] = _zeros_like


@_handles(Tensor.copy_)
def _copy_(self, src, non_blocking=False):
    if not (isinstance(self, SparseTensor) and isinstance(src, SparseTensor)):
        raise RuntimeError(
            f"copy_() between dense and sparse Tensors is not implemented! Found self type = "
            f"{_type_name(self)} and src type = {_type_name(src)}"
        )
    self._coo = cloned(with_values(src, src._coo[1].to(self.dtype)))._coo
    return self


def _converted(member):
    """Return a handler of a method that changes the dtype or the device."""

    def convert(self, *args, **kwargs):
        indices, values, coalesced = self._coo
        changed = member(values, *args, **kwargs)
        if changed is values:
            return self
        return make(indices.to(changed.device), changed, tuple(self.shape), coalesced)

    return convert


for _name in (
    *("to", "cpu", "cuda", "double", "float", "half", "bfloat16", "int", "long", "type_as"),
    *("cfloat", "cdouble"),
):
    if hasattr(Tensor, _name):
        CALLS[getattr(Tensor, _name)] = _converted(getattr(Tensor, _name))


def _type_name(self):
    if isinstance(self, SparseTensor):
        return self._coo[1].type().replace("pullback.", "pullback.sparse.", 1)
    return self.type()


@_handles(Tensor.type)
def _type(self, dtype=None, non_blocking=False, **options):
    return _type_name(self) if dtype is None else self.to(dtype)


# ---- what a tensor without one block of memory answers -------------------------------------------


@_handles(Tensor.sparse_mask)
def _sparse_mask(self, mask):
    if isinstance(self, SparseTensor) or not isinstance(mask, SparseTensor):
        raise refusal(Tensor.sparse_mask, (self, mask))
    if self.shape != mask.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} "
            f"but mask has size {list(mask.shape)}"
        )
    indices, _values, coalesced = mask._coo
    return make(indices, self[tuple(indices)], tuple(self.shape), coalesced)


@_handles(Tensor.stride)
def _stride(self, dim=None):
    strides = (0,) * len(self.shape)
    return strides if dim is None else strides[dim]


@_handles(Tensor.is_contiguous)
def _is_contiguous(self, memory_format=None):
    return False


@_handles(Tensor.get_device)
def _get_device(self):
    return self._coo[1].get_device()


@_handles(Tensor.storage, Tensor.untyped_storage)
def _storage(self):
    raise NotImplementedError("Cannot access storage of SparseTensorImpl")


@_handles(Tensor.data_ptr, Tensor.tolist)
def _data_ptr(self):
    raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")


@_handles(Tensor.nbytes)
def _nbytes(self):
    raise RuntimeError(
        "nbytes is not defined for sparse tensors.  If you want the size of the constituent "
        "tensors, add the nbytes of the indices and values.  If you want the size of the  "
        "equivalent dense tensor, multiply numel() by element_size()"
    )


@_handles(Tensor.numpy, Tensor.__array__)
def _numpy(self, *args, **options):
    raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")


@_handles(Tensor.reshape)
def _reshape(self, *shape):
    raise RuntimeError("reshape is not implemented for sparse tensors")


@_handles(Tensor.__repr__)
def _repr(self):
    return format_sparse(self, *self._coo[:2])


@_handles(Tensor.__format__)
def _format(self, spec):
    return object.__format__(self, spec)
