"""What the modules of settings share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def restored(module: str, **settings: Any) -> Iterator[None]:
    """Set attributes of a module in a region; None leaves one as it is."""
    here = sys.modules[module]
    given = {name: value for name, value in settings.items() if value is not None}
    before = {name: getattr(here, name) for name in given}
    vars(here).update(given)
    try:
        yield
    finally:
        vars(here).update(before)
