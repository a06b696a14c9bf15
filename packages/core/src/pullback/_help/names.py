"""What the error says of a name that a module does not have, but the module of torch has."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

PAGE = "docs/reference/torch-compat.md"


@functools.cache
def left_out() -> dict[str, dict[str, str]]:
    """Return why names of torch are left out, by module; tools/compatgen.py writes the file."""
    return json.loads(Path(__file__).with_name("left_out.json").read_text("utf-8"))


def missing(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module lacks, with the reason where torch has it.

    >>> str(missing("pullback", "jit"))
    "module 'pullback' has no attribute 'jit': torch.jit is left out (TorchScript and torch's \
compilers); see docs/reference/torch-compat.md"
    """
    text = f"module {module!r} has no attribute {name!r}"
    if not name.startswith("__"):
        path = module.replace("pullback", "torch", 1)
        reason = left_out().get(path, {}).get(name)
        if reason is not None:
            text += f": {path}.{name} is left out ({reason}); see {PAGE}"
    return AttributeError(text, name=name, obj=sys.modules.get(module))
