"""Pruning: parameters times masks of zeros and ones, computed before each call of the module.

A pruned parameter ``name`` becomes the parameter ``<name>_orig``, the buffer ``<name>_mask`` and
the attribute ``name``, their product.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

import pullback

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]


# ---- methods -------------------------------------------------------------------------------------


class BasePruningMethod(ABC):
    """The base class of pruning methods: a subclass defines ``compute_mask`` and PRUNING_TYPE.

    ``PRUNING_TYPE`` is "unstructured" (single elements), "structured" (along ``dim``) or "global"
    (the whole tensor); it says what a further method sees of a pruned parameter.

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> class EverySecond(prune.BasePruningMethod):
    ...     PRUNING_TYPE = "unstructured"
    ...     def compute_mask(self, t, default_mask):
    ...         mask = default_mask.clone()
    ...         mask.view(-1)[::2] = 0
    ...         return mask
    >>> layer = pullback.nn.Linear(2, 2)
    >>> _ = EverySecond.apply(layer, "weight")
    >>> layer.weight_mask
    tensor([[0., 1.],
            [0., 1.]])
    """

    _tensor_name: str

    def __call__(self, module, inputs):
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t, default_mask):
        """Return the mask of a tensor, times ``default_mask``, which has its shape."""

    def apply_mask(self, module):
        """Return the parameter times its mask."""
        mask = getattr(module, f"{self._tensor_name}_mask")
        original = getattr(module, f"{self._tensor_name}_orig")
        return mask.to(original.dtype) * original

    @classmethod
    def apply(cls, module, name, *args, importance_scores=None, **kwargs):
        """Prune a parameter of a module by ``cls(*args, **kwargs)``; return the method.

        On a parameter that is pruned already the methods follow each other. The mask is that of
        ``importance_scores`` if given, else of the parameter.
        """
        before = _method_of(module, name)
        if before is not None:
            _forget_hook(module, before)
        method = cls(*args, **kwargs)
        method._tensor_name = name
        original = getattr(module, f"{name}_orig" if before is not None else name)
        scores = original if importance_scores is None else importance_scores
        if scores.shape != original.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, "
                f"got {scores.shape!r} vs {original.shape!r}"
            )
        if before is None:
            default = pullback.ones_like(original, requires_grad=False)
            mask = method.compute_mask(scores, default)
            module.register_parameter(f"{name}_orig", original)
            del module._parameters[name]
        else:
            if not isinstance(before, PruningContainer):
                before = PruningContainer(before)
            before.add_pruning_method(method)
            method = before
            default = getattr(module, f"{name}_mask").detach().clone()
            mask = method.compute_mask(scores, default)
        module.register_buffer(f"{name}_mask", mask.detach())
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t, default_mask=None, importance_scores=None):
        """Return a tensor times its mask, without a module.

        >>> import pullback
        >>> from pullback.nn.utils import prune
        >>> prune.L1Unstructured(2).prune(pullback.tensor([1.0, 3.0, 0.5, 2.0]))
        tensor([0., 3., 0., 2.])
        """
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        default = pullback.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default)

    def remove(self, module):
        """Make the product of parameter and mask the parameter again."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        if name in module.__dict__:
            delattr(module, name)
        original = module._parameters.pop(f"{name}_orig")
        original.data = weight.detach()
        del module._buffers[f"{name}_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Methods that prune one parameter one after the other.

    >>> from pullback.nn.utils import prune
    >>> len(prune.PruningContainer())
    0
    """

    def __init__(self, *args):
        self._pruning_methods = ()
        if len(args) == 1 and not isinstance(args[0], Iterable):
            self._tensor_name = args[0]._tensor_name
            self.add_pruning_method(args[0])
        else:
            for method in args:
                self.add_pruning_method(method)

    def add_pruning_method(self, method):
        """Add a method of the same parameter.

        Raises: TypeError for what is no pruning method; ValueError for one of another parameter.
        """
        if method is not None and not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found "
                f"'{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self):
        return len(self._pruning_methods)

    def __iter__(self):
        return iter(self._pruning_methods)

    def __getitem__(self, index):
        return self._pruning_methods[index]

    def compute_mask(self, t, default_mask):
        """Return the mask of the last method, of what the ones before have left."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            place = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim % mask.dim()
            others = [d for d in range(mask.dim()) if d != dim]
            place = (slice(None),) * dim + (mask.sum(others) != 0,)
        elif method.PRUNING_TYPE == "global":
            place = (slice(None),) * mask.dim()
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        made = mask.clone()
        made[place] = method.compute_mask(t[place], mask[place]).to(mask.dtype)
        return made


class Identity(BasePruningMethod):
    """Keep all elements, so that there is a mask.

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> prune.Identity().prune(pullback.ones(2))
    tensor([1., 1.])
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        """Return the default mask."""
        return default_mask

    @classmethod
    def apply(cls, module, name):
        """Prune a parameter; see ``BasePruningMethod.apply``."""
        return super().apply(module, name)


class _Amount(BasePruningMethod):
    """A method that prunes a number of elements or channels, or a share of them."""

    def __init__(self, amount):
        if not isinstance(amount, (int, float)):
            raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
        if amount < 0 or (isinstance(amount, float) and amount > 1.0):
            raise ValueError(
                f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
                "integer"
            )
        self.amount = amount

    def _count(self, size):
        """Return how many of ``size`` go. Raises: ValueError for more than there are."""
        count = self.amount if isinstance(self.amount, int) else round(self.amount * size)
        if count > size:
            raise ValueError(
                f"amount={self.amount} should be smaller than the number of parameters to "
                f"prune={size}"
            )
        return count


class _Unstructured(_Amount):
    PRUNING_TYPE = "unstructured"

    def _scores(self, t):
        """Return a number for each element; the smallest go."""
        raise NotImplementedError

    def compute_mask(self, t, default_mask):
        """Return the mask with zeros at the elements of the smallest scores."""
        count = self._count(t.nelement())
        mask = default_mask.clone()
        if count:
            smallest = pullback.topk(self._scores(t.detach()).reshape(-1), count, largest=False)
            mask.view(-1)[smallest.indices] = 0
        return mask

    @classmethod
    def apply(cls, module, name, amount, importance_scores=None):
        """Prune a parameter; see ``BasePruningMethod.apply``."""
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class RandomUnstructured(_Unstructured):
    """Prune elements that are drawn: a number of them, or a share in [0, 1].

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> prune.RandomUnstructured(3).prune(pullback.ones(5)).sum()
    tensor(2.)
    """

    def _scores(self, t):
        return pullback.rand_like(t)

    @classmethod
    def apply(cls, module, name, amount):
        """Prune a parameter; see ``BasePruningMethod.apply``."""
        return super().apply(module, name, amount)


class L1Unstructured(_Unstructured):
    """Prune the elements of the smallest absolute values: a number of them, or a share in [0, 1].

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> prune.L1Unstructured(0.5).prune(pullback.tensor([4.0, -1.0]))
    tensor([4., -0.])
    """

    def _scores(self, t):
        return t.abs()


class _Structured(_Amount):
    PRUNING_TYPE = "structured"

    def __init__(self, amount, dim=-1):
        super().__init__(amount)
        self.dim = dim

    def _scores(self, t):
        """Return a number for each channel; the smallest go."""
        raise NotImplementedError

    def compute_mask(self, t, default_mask):
        """Return the mask with zeros in the channels of the smallest scores."""
        if t.dim() <= 1:
            raise ValueError(
                "Structured pruning can only be applied to multidimensional tensors. Found tensor "
                f"of shape {t.shape!r} with {t.dim()} dims"
            )
        if not -t.dim() <= self.dim < t.dim():
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape!r}")
        size = t.shape[self.dim]
        count = self._count(size)
        if not count:
            return default_mask
        kept = pullback.topk(self._scores(t.detach()), size - count, largest=True).indices
        shape = [1] * t.dim()
        shape[self.dim] = size
        channels = pullback.zeros(size, dtype=default_mask.dtype, device=default_mask.device)
        channels[kept] = 1
        return channels.reshape(shape) * default_mask


class RandomStructured(_Structured):
    """Prune channels of a dim that are drawn: a number of them, or a share in [0, 1].

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> prune.RandomStructured(1, dim=0).prune(pullback.ones(3, 2)).sum()
    tensor(4.)
    """

    def _scores(self, t):
        return pullback.rand(t.shape[self.dim], device=t.device)

    @classmethod
    def apply(cls, module, name, amount, dim=-1):
        """Prune a parameter; see ``BasePruningMethod.apply``."""
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_Structured):
    """Prune the channels of a dim with the smallest norms: a number of them, or a share in [0, 1].

    ``n`` is the order of the norm, as ``pullback.norm`` takes it.

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> prune.LnStructured(1, n=2, dim=0).prune(pullback.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[0., 0.],
            [3., 4.]])
    """

    def __init__(self, amount, n, dim=-1):
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t):
        others = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        return pullback.norm(t, p=self.n, dim=others)

    @classmethod
    def apply(cls, module, name, amount, n, dim, importance_scores=None):
        """Prune a parameter; see ``BasePruningMethod.apply``."""
        return super().apply(
            module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores
        )


class CustomFromMask(BasePruningMethod):
    """Prune by a mask that is given.

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> prune.CustomFromMask(pullback.tensor([0, 1])).prune(pullback.ones(2))
    tensor([0., 1.])
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask):
        self.mask = mask

    def compute_mask(self, t, default_mask):
        """Return the product of the masks."""
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape!r} must match self.mask shape "
                f"{self.mask.shape!r}"
            )
        return default_mask * self.mask.to(default_mask.dtype)

    @classmethod
    def apply(cls, module, name, mask):
        """Prune a parameter; see ``BasePruningMethod.apply``."""
        return super().apply(module, name, mask=mask)


# ---- functions -----------------------------------------------------------------------------------


def _hooks_of(module):
    return [hook for hook in module._forward_pre_hooks.values() if _is_method(hook)]


def _is_method(hook):
    return isinstance(hook, BasePruningMethod)


def _method_of(module, name):
    """Return the method that prunes a parameter, or None."""
    return next((hook for hook in _hooks_of(module) if hook._tensor_name == name), None)


def _forget_hook(module, method):
    for key, hook in list(module._forward_pre_hooks.items()):
        if hook is method:
            del module._forward_pre_hooks[key]


def identity(module, name):
    """Give a parameter a mask of ones; return the module.

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> list(prune.identity(pullback.nn.Linear(2, 1), "weight").state_dict())
    ['bias', 'weight_orig', 'weight_mask']
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module, name, amount):
    """Prune elements of a parameter that are drawn; return the module.

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> prune.random_unstructured(pullback.nn.Linear(4, 2), "weight", 0.25).weight_mask.sum()
    tensor(6.)
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module, name, amount, importance_scores=None):
    """Prune the elements of a parameter of the smallest absolute values; return the module.

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> prune.l1_unstructured(pullback.nn.Linear(4, 2), "weight", 3).weight_mask.sum()
    tensor(5.)
    """
    L1Unstructured.apply(module, name, amount, importance_scores)
    return module


def random_structured(module, name, amount, dim):
    """Prune channels of a parameter that are drawn; return the module.

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> prune.random_structured(pullback.nn.Linear(4, 2), "weight", 1, dim=0).weight_mask.sum()
    tensor(4.)
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module, name, amount, n, dim, importance_scores=None):
    """Prune the channels of a parameter of the smallest norms; return the module.

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> prune.ln_structured(pullback.nn.Linear(4, 2), "weight", 0.5, 2, dim=1).weight_mask.sum()
    tensor(4.)
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores)
    return module


def custom_from_mask(module, name, mask):
    """Prune a parameter by a mask; return the module.

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> layer = prune.custom_from_mask(pullback.nn.Linear(2, 1), "bias", pullback.zeros(1))
    >>> layer.bias.item() == 0
    True
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters, pruning_method, importance_scores=None, **kwargs):
    """Prune elements of several parameters together, as if they were one vector.

    ``parameters`` are pairs (module, name); ``importance_scores`` is a dict with scores for some of
    them; keyword arguments are those of the method, such as ``amount``.

    Raises: TypeError for scores that are no dict, and a method that is not unstructured.

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> layer = pullback.nn.Linear(3, 2)
    >>> prune.global_unstructured(
    ...     [(layer, "weight"), (layer, "bias")], prune.L1Unstructured, amount=0.5)
    >>> layer.weight_mask.sum() + layer.bias_mask.sum()
    tensor(4.)
    """
    parameters = list(parameters)
    if not parameters:
        raise TypeError("global_unstructured(): parameters must be a list of (module, name)")
    parameters = [(module, name) for module, name in parameters]
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    method = PruningContainer()
    method._tensor_name = "temp"
    added = pruning_method(**kwargs)
    added._tensor_name = "temp"
    if added.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {added.PRUNING_TYPE}"
        )
    method.add_pruning_method(added)
    values = [scores.get((module, name), getattr(module, name)) for module, name in parameters]
    masks = [
        getattr(module, f"{name}_mask", pullback.ones_like(getattr(module, name).detach()))
        for module, name in parameters
    ]
    flat = pullback.cat([value.detach().reshape(-1) for value in values])
    mask = method.compute_mask(flat, pullback.cat([mask.reshape(-1) for mask in masks]))
    sizes = [getattr(module, name).numel() for module, name in parameters]
    for (module, name), part in zip(parameters, mask.split(sizes), strict=True):
        custom_from_mask(module, name, part.reshape(getattr(module, name).shape))


def remove(module, name):
    """Make a pruned parameter a parameter again, with its zeros; return the module.

    Raises: ValueError if it is not pruned.

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> layer = prune.identity(pullback.nn.Linear(2, 1), "weight")
    >>> list(prune.remove(layer, "weight").state_dict())
    ['bias', 'weight']
    """
    method = _method_of(module, name)
    if method is None:
        raise ValueError(
            f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
        )
    method.remove(module)
    _forget_hook(module, method)
    return module


def is_pruned(module):
    """Return whether a module or one in it has a pruned parameter.

    >>> import pullback
    >>> from pullback.nn.utils import prune
    >>> prune.is_pruned(pullback.nn.Linear(2, 1))
    False
    """
    return any(_hooks_of(each) for each in module.modules())
