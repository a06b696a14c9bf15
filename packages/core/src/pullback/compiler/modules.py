"""What ``compile`` returns for a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.nn import Module

__all__ = ["OptimizedModule"]

_OWN = frozenset(("_compiled", "_orig_mod", "forward"))


class OptimizedModule(Module):
    """A module with a compiled forward pass, which ``compile`` returns for a module.

    The module itself is ``_orig_mod``. Attributes are those of the module, ``training`` too, and
    are set there; so names in the state dict begin with ``_orig_mod.``.

    >>> import pullback
    >>> layer = pullback.compile(pullback.nn.Linear(2, 3))
    >>> layer(pullback.ones(1, 2)).shape, layer.in_features
    (pullback.Size([1, 3]), 2)
    """

    training: bool

    def __init__(self, module: Module, compiled: Callable[..., Any]):
        super().__init__()
        del self.__dict__["training"]
        self.__dict__["_compiled"] = compiled
        self._modules["_orig_mod"] = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's compiled forward pass."""
        return self._compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_orig_mod":
                raise
            return getattr(super().__getattr__("_orig_mod"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN or name in self.__dict__ or "_modules" not in self.__dict__:
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in _OWN or name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})
