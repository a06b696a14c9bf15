"""Signatures, descriptions of arguments, and examples of ops, for ``help`` and ``inspect``.

And the errors for names that torch has and this package leaves out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


def explain_names(
    namespace: dict[str, Any], find: Callable[[str], Any] = lambda name: None
) -> None:
    """Give a module the ``__getattr__`` that says why a name of torch is left out.

    `namespace` is the module's ``globals()``; ``find(name)`` returns what the module makes when it
    is asked for, or None. Type checkers do not see this function, so they report absent names.
    """
    module = namespace["__name__"]

    def __getattr__(name: str) -> Any:
        found = find(name)
        if found is not None:
            return found
        from pullback._help.names import missing

        raise missing(module, name)

    namespace["__getattr__"] = __getattr__


class LeftOut:
    """A member of a class of torch that ours lacks: to look it up raises the reason.

    Instances and subclasses may have an attribute of this name. ``__getattr__`` of the class would
    do as well, but cost each call of a method.
    """

    __slots__ = ("name", "path")

    def __init__(self, path: str, name: str) -> None:
        self.path = path
        self.name = name

    def __get__(self, instance: Any, owner: type) -> NoReturn:
        from pullback._help.names import missing_member

        raise missing_member(self.path, self.name, instance, owner)


def explain_members(bind: Callable[[str, LeftOut], Any], path: str) -> None:
    """Bind to a class, by ``bind(name, member)``, what torch's class at a path has beside."""
    from pullback._help.left_out_members import MEMBERS

    for name in MEMBERS[path]:
        bind(name, LeftOut(path, name))
