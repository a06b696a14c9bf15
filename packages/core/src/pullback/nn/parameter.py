"""Tensors that a module takes as its own: parameters, buffers, and those without a size yet."""

from __future__ import annotations

from pullback import Tensor
from pullback._c.graph.overrides import _disabled_torch_function_impl, as_leaf

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "UninitializedTensorMixin",
    "is_lazy",
]


def _as_instance(kind, data, requires_grad):
    """Return a leaf of a subclass over the memory of a tensor."""
    if requires_grad and not (data.is_floating_point() or data.is_complex()):
        raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
    return as_leaf(kind, data).requires_grad_(requires_grad)


class _KindByAttribute(type(Tensor)):  # type: ignore[misc]  # Cython classes have an unknown type
    """``isinstance`` is true for tensors that say by an attribute that they are of the class."""

    def __instancecheck__(cls, instance):
        if type.__instancecheck__(cls, instance):
            return True
        mark = cls.__dict__.get("_mark")
        return mark is not None and isinstance(instance, Tensor) and getattr(instance, mark, False)


class Parameter(Tensor, metaclass=_KindByAttribute):
    """A tensor that a module lists among its parameters when it is assigned as an attribute.

    It is a leaf over the memory of ``data``, a tensor of any shape; without one it is empty.
    Results of operations on it are plain tensors. ``requires_grad=False`` freezes it.

    Raises: RuntimeError if it requires grad and its dtype is neither floating-point nor complex.

    >>> import pullback
    >>> pullback.nn.Parameter(pullback.ones(2))
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    """

    _mark = "_is_param"
    __torch_function__ = _disabled_torch_function_impl

    def __new__(cls, data=None, requires_grad=True):
        if data is None:
            data = Tensor(0)
        if type(data) in (Tensor, Parameter) or not isinstance(data, Tensor):
            return _as_instance(cls, data, requires_grad)
        # Another subclass of Tensor stays what it is, and says that it is a parameter.
        made = data.detach().as_subclass(type(data)).requires_grad_(requires_grad)
        made._is_param = True
        return made

    def __init__(self, data=None, requires_grad=True):
        pass

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            made = type(self)(self.detach().clone(), self.requires_grad)
            vars(made).update(vars(self))
            memo[id(self)] = made
        return memo[id(self)]

    def __repr__(self):
        return "Parameter containing:\n" + repr(self.detach().requires_grad_(self.requires_grad))


class Buffer(Tensor, metaclass=_KindByAttribute):
    """A tensor that a module lists among its buffers when it is assigned as an attribute.

    ``data`` is a tensor of any shape, which the buffer shares its memory with. With
    ``persistent=False`` it is no part of the module's state dict.

    >>> import pullback
    >>> module = pullback.nn.Module()
    >>> module.mean = pullback.nn.Buffer(pullback.zeros(2))
    >>> list(module.state_dict())
    ['mean']
    """

    _mark = "_is_buffer"
    __torch_function__ = _disabled_torch_function_impl

    def __new__(cls, data=None, *, persistent=True):
        if data is None:
            data = Tensor(0)
        made = data.detach().requires_grad_(data.requires_grad)
        made.persistent = persistent
        made._is_buffer = True
        return made


# ---- without a size ------------------------------------------------------------------------------


class UninitializedTensorMixin:
    """What parameters and buffers of lazy modules share: no shape until the first input."""

    cls_to_become: type

    def materialize(self, shape, device=None, dtype=None):
        """Become a parameter or buffer of a shape, with uninitialised elements."""
        import pullback

        with pullback.no_grad():
            self.data = pullback.empty(
                shape, device=device or self.device, dtype=dtype or self.dtype
            )
        self.__class__ = self.cls_to_become

    @property
    def shape(self):
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually "
            "happens in `load_state_dict` when trying to load an uninitialized parameter into an "
            "initialized one. Call `forward` to initialize the parameters before accessing their "
            "attributes."
        )

    size = ndim = numel = property(lambda self: self.shape)

    def share_memory_(self):
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to "
            "initialize the parameters before calling `module.share_memory()`."
        )

    def __repr__(self):
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol):
        return type(self), (self.requires_grad, self.device, self.dtype)


def is_lazy(param):
    """True for a parameter or buffer without a size yet.

    >>> import pullback
    >>> pullback.nn.parameter.is_lazy(pullback.nn.UninitializedParameter())
    True
    """
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter without a size, which ``materialize`` gives it.

    >>> import pullback
    >>> weight = pullback.nn.UninitializedParameter()
    >>> weight.materialize((2, 3))
    >>> type(weight).__name__, weight.shape
    ('Parameter', pullback.Size([2, 3]))
    """

    cls_to_become = Parameter

    def __new__(cls, requires_grad=True, device=None, dtype=None):
        import pullback

        data = pullback.empty(0, device=device, dtype=dtype)
        return _as_instance(cls, data, requires_grad)

    def __init__(self, requires_grad=True, device=None, dtype=None):
        pass

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype)
        return memo[id(self)]


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer without a size, which ``materialize`` gives it.

    >>> import pullback
    >>> pullback.nn.UninitializedBuffer()
    <UninitializedBuffer>
    """

    cls_to_become = Buffer
    __torch_function__ = _disabled_torch_function_impl

    def __new__(cls, requires_grad=False, device=None, dtype=None, persistent=True):
        import pullback

        made = _as_instance(cls, pullback.empty(0, device=device, dtype=dtype), requires_grad)
        made.persistent = persistent
        made._is_buffer = True
        return made

    def __init__(self, requires_grad=False, device=None, dtype=None, persistent=True):
        pass
