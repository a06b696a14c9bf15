"""Makes the navigation of the pages on ops once: they stand in one folder, and in no toctree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sphinx.application import Sphinx

FOLDER = "reference/ops/"
BEFORE_THE_THEME = 400  # whose handler has 500


def share_navigation(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Replace the function that makes the tree of a page on an op by one that remembers it."""
    if pagename.startswith(FOLDER) and "toctree" in context:
        context["toctree"] = remembered(app, context["toctree"])


def remembered(app: Sphinx, make: Callable[..., str]) -> Callable[..., str]:
    """Return a function that makes the tree for the first page, and returns that to all others."""
    made: dict[str, str] = app.__dict__.setdefault("navigation_of_ops", {})

    def toctree(**options: Any) -> str:
        key = repr(sorted(options.items()))
        if key not in made:
            made[key] = make(**options)
        return made[key]

    return toctree


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("html-page-context", share_navigation, priority=BEFORE_THE_THEME)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
