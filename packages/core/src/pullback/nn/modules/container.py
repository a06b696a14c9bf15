"""Containers of modules and of parameters."""

from __future__ import annotations

import collections.abc
import itertools
import operator
from collections import OrderedDict

from pullback import Tensor
from pullback.nn.modules.module import Module
from pullback.nn.parameter import Parameter

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


def _position(index, count):
    """Return the position of an index, counted from the end if it is negative."""
    index = operator.index(index)
    if not -count <= index < count:
        raise IndexError(f"index {index} is out of range")
    return index % count


class Container(Module):
    """A module with the given submodules; Sequential, ModuleList and ModuleDict replace it."""

    def __init__(self, **kwargs):
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)


class _ModuleSequence(Module):
    """What Sequential and ModuleList share: submodules by position, under names "0", "1", ..."""

    def _name_at(self, index):
        return next(itertools.islice(self._modules, _position(index, len(self)), None))

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self._of_items(list(self._modules.items())[index])
        return self._modules[self._name_at(index)]

    def __setitem__(self, index, module):
        setattr(self, self._name_at(index), module)

    def __delitem__(self, index):
        names = list(self._modules)
        numbered = names == [str(i) for i in range(len(names))]
        for name in names[index] if isinstance(index, slice) else [self._name_at(index)]:
            delattr(self, name)
        if numbered:
            self._replace_all(list(self._modules.values()))

    def _replace_all(self, modules):
        """Number the modules again."""
        members = self.__dict__["_modules"]
        members.clear()
        members.update((str(i), module) for i, module in enumerate(modules))

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def append(self, module):
        """Add a module at the end; return the container."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index, module):
        """Add a module before a position."""
        modules = list(self._modules.values())
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        if not -len(modules) <= index <= len(modules):
            raise IndexError(f"Index out of range: {index}")
        modules.insert(index, module)
        self._replace_all(modules)
        return self

    def pop(self, key):
        """Remove the module, or modules, at a position or slice, and return them."""
        found = self[key]
        del self[key]
        return found


class Sequential(_ModuleSequence):
    """Modules that each take the result of the one before. Made of modules, or of an OrderedDict.

    >>> import pullback
    >>> from pullback import nn
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> model(pullback.ones(4, 2)).shape
    pullback.Size([4, 3])
    >>> model
    Sequential(
      (0): Linear(in_features=2, out_features=3, bias=True)
      (1): ReLU()
    )
    """

    def __init__(self, *args):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            items = args[0].items()
        else:
            items = ((str(i), module) for i, module in enumerate(args))
        for name, module in items:
            self.add_module(name, module)

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input

    def _of_items(self, items):
        return type(self)(OrderedDict(items))

    def extend(self, sequential):
        """Add all modules of an iterable at the end; return the container."""
        for module in sequential:
            self.append(module)
        return self

    def _check_other(self, other):
        if not isinstance(other, Sequential):
            raise ValueError(
                "add operator supports only objects of Sequential class, but "
                f"{type(other)} is given."
            )

    def __add__(self, other):
        self._check_other(other)
        return Sequential(*self, *other)

    def __iadd__(self, other):
        self._check_other(other)
        return self.extend(list(other))

    def _check_times(self, times):
        if not isinstance(times, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(times)}")
        if times <= 0:
            raise ValueError(f"Non-positive multiplication factor {times} for {type(self)}")

    def __mul__(self, times):
        self._check_times(times)
        return Sequential(*(module for _ in range(times) for module in self))

    __rmul__ = __mul__

    def __imul__(self, times):
        self._check_times(times)
        return self.extend(list(self) * (times - 1))


class ModuleList(_ModuleSequence):
    """A list of modules, whose parameters are those of the module that has it.

    >>> import pullback
    >>> from pullback import nn
    >>> layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
    >>> layers
    ModuleList(
      (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)
    )
    >>> len(layers[1:])
    2
    """

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _of_items(self, items):
        return type(self)(module for _, module in items)

    def extend(self, modules):
        """Add all modules of an iterable at the end; return the list."""
        if not isinstance(modules, collections.abc.Iterable):
            raise TypeError(
                "ModuleList.extend should be called with an iterable, but got "
                + type(modules).__name__
            )
        for module in modules:
            self.append(module)
        return self

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        return ModuleList(itertools.chain(self, other))

    def __repr__(self):
        lines = []
        runs = itertools.groupby(enumerate(self), lambda item: repr(item[1]))
        for text, run in runs:
            places = [place for place, _ in run]
            label = f"({places[0]})" if len(places) == 1 else f"({places[0]}-{places[-1]})"
            many = f"{len(places)} x " if len(places) > 1 else ""
            lines.append(f"{label}: {many}{text}".replace("\n", "\n  "))
        if not lines:
            return f"{self._get_name()}()"
        return self._get_name() + "(\n  " + "\n  ".join(lines) + "\n)"


def _pairs(given, kind):
    """Iterate over the (key, value) pairs of a mapping or of an iterable of pairs."""
    if not isinstance(given, collections.abc.Iterable):
        raise TypeError(
            f"{kind}.update should be called with an iterable of key/value pairs, but got "
            + type(given).__name__
        )
    if hasattr(given, "items"):
        yield from given.items()
        return
    for number, pair in enumerate(given):
        if not isinstance(pair, collections.abc.Iterable):
            raise TypeError(
                f"{kind} update sequence element #{number} should be Iterable; is"
                + type(pair).__name__
            )
        pair = tuple(pair)
        if len(pair) != 2:
            raise ValueError(
                f"{kind} update sequence element #{number} has length {len(pair)}; 2 is required"
            )
        yield pair


class ModuleDict(Module):
    """A dict of modules, whose parameters are those of the module that has it.

    >>> from pullback import nn
    >>> choices = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})
    >>> list(choices)
    ['relu', 'tanh']
    """

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key):
        return self._modules[key]

    def __setitem__(self, key, module):
        self.add_module(key, module)

    def __delitem__(self, key):
        del self._modules[key]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def clear(self):
        """Remove all modules."""
        self._modules.clear()

    def pop(self, key):
        """Remove the module of a key and return it. Raises: KeyError if there is none."""
        return self._modules.pop(key)

    def keys(self):
        """Return the keys."""
        return self._modules.keys()

    def items(self):
        """Return (key, module) pairs."""
        return self._modules.items()

    def values(self):
        """Return the modules."""
        return self._modules.values()

    def update(self, modules):
        """Add the modules of a mapping or of an iterable of (key, module) pairs."""
        for key, module in _pairs(modules, "ModuleDict"):
            self[key] = module


# ---- parameters ----------------------------------------------------------------------------------


def _as_parameter(value):
    """Return a parameter over a tensor; other values stay what they are."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


def _describe(key, value):
    if not isinstance(value, Tensor):
        return f"({key}): Object of type: {type(value).__name__}"
    size = "x".join(map(str, value.shape))
    device = "" if value.device.type in ("cpu", "ref") else f" ({value.device})"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    return f"({key}): {kind} containing: [{value.dtype} of size {size}{device}]"


class _ParameterContainer(Module):
    """What ParameterList and ParameterDict share: values are attributes, tensors are parameters."""

    def extra_repr(self):
        return "\n".join("  " + _describe(key, value) for key, value in self._pairs())

    def __call__(self, *args, **kwargs):
        raise RuntimeError(f"{type(self).__name__} should not be called.")


class ParameterList(_ParameterContainer):
    """A list of parameters; tensors become parameters, other values stay what they are.

    >>> import pullback
    >>> weights = pullback.nn.ParameterList([pullback.ones(2), pullback.ones(3)])
    >>> [weight.numel() for weight in weights]
    [2, 3]
    """

    def __init__(self, values=None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _pairs(self):
        return enumerate(self)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self)[index])
        return getattr(self, str(_position(index, len(self))))

    def __setitem__(self, index, param):
        setattr(self, str(_position(index, len(self))), _as_parameter(param))

    def __len__(self):
        return self._size

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])

    def __iadd__(self, parameters):
        return self.extend(parameters)

    def append(self, value):
        """Add a value at the end; return the list."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values):
        """Add all values of an iterable at the end; return the list."""
        if not isinstance(values, collections.abc.Iterable) or isinstance(values, Tensor):
            raise TypeError(
                "ParameterList.extend should be called with an iterable, but got "
                + type(values).__name__
            )
        for value in values:
            self.append(value)
        return self


class ParameterDict(_ParameterContainer):
    """A dict of parameters; tensors become parameters, other values stay what they are.

    Keys are strings; they keep the order in which they were added.

    >>> import pullback
    >>> weights = pullback.nn.ParameterDict({"left": pullback.ones(2)})
    >>> weights["right"] = pullback.zeros(2)
    >>> list(weights)
    ['left', 'right']
    """

    def __init__(self, parameters=None):
        super().__init__()
        self._keys = {}
        if parameters is not None:
            self.update(parameters)

    def _pairs(self):
        return self.items()

    def _attribute_of(self, key):
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string "
                f"(type is '{type(key).__name__}'). Open an issue on github if you need non-string "
                "keys."
            )
        return key

    def __getitem__(self, key):
        return getattr(self, self._attribute_of(key))

    def __setitem__(self, key, value):
        attribute = self._attribute_of(key)
        self._keys[key] = None
        setattr(self, attribute, _as_parameter(value))

    def __delitem__(self, key):
        del self._keys[key]
        delattr(self, self._attribute_of(key))

    def __len__(self):
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __reversed__(self):
        return reversed(list(self._keys))

    def __contains__(self, key):
        return key in self._keys

    def copy(self):
        """Return a dict with the same parameters."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key, default=None):
        """Return the value of a key; without one, put ``default`` there first."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def clear(self):
        """Remove all values."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key):
        """Remove the value of a key and return it."""
        value = self[key]
        del self[key]
        return value

    def popitem(self):
        """Remove the last (key, value) pair and return it."""
        key = next(reversed(list(self._keys)))
        return key, self.pop(key)

    def get(self, key, default=None):
        """Return the value of a key, or ``default``."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys, default=None):
        """Return a dict with one value for all keys."""
        return ParameterDict((key, default) for key in keys)

    def keys(self):
        """Return the keys."""
        return self._keys.keys()

    def items(self):
        """Iterate over (key, value) pairs."""
        return ((key, self[key]) for key in self._keys)

    def values(self):
        """Iterate over the values."""
        return (self[key] for key in self._keys)

    def update(self, parameters):
        """Add the values of a mapping or of an iterable of (key, value) pairs."""
        for key, value in _pairs(parameters, "ParametersDict"):
            self[key] = value

    def __or__(self, other):
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other):
        made = ParameterDict(other)
        made.update(self)
        return made

    def __ior__(self, other):
        self.update(other)
        return self
