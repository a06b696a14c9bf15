"""What the error says of a name that is not here, but in torch."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

PAGE = "docs/reference/torch-compat.md"


@functools.cache
def left_out() -> dict[str, dict[str, str]]:
    """Return why names of torch are left out, by module and class; tools/compatgen.py writes it."""
    return json.loads(Path(__file__).with_name("left_out.json").read_text("utf-8"))


def reason(path: str, name: str) -> str:
    """Return the end of an error's text for a name of torch's module or class at a path, or "".

    >>> reason("torch", "futures")
    ": torch.futures is left out (TorchScript and torch's compilers); see \
docs/reference/torch-compat.md"
    """
    found = None if name.startswith("__") else left_out().get(path, {}).get(name)
    return "" if found is None else f": {path}.{name} is left out ({found}); see {PAGE}"


def missing(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module lacks, with the reason where torch has it."""
    text = f"module {module!r} has no attribute {name!r}"
    text += reason(module.replace("pullback", "torch", 1), name)
    return AttributeError(text, name=name, obj=sys.modules.get(module))


def missing_member(path: str, name: str, instance: Any, owner: type) -> AttributeError:
    """Return the error for a member that a class lacks, with the reason where torch's has it.

    `instance` is None where the class was asked.
    """
    label = f"type object {owner.__name__!r}" if instance is None else f"{owner.__name__!r} object"
    text = f"{label} has no attribute {name!r}{reason(path, name)}"
    return AttributeError(text, name=name, obj=owner if instance is None else instance)
