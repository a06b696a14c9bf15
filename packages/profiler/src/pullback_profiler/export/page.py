"""HTML pages that stand alone: data, style and scripts in one file."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from importlib import resources
from string import Template
from typing import Any

# JSON may write these as escapes, so that no text ends the element that holds the data.
_ESCAPES = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&"})


def page_text(name: str, scripts: Iterable[str], data: dict[str, Any]) -> str:
    """Return the page of a name, which its scripts fill from ``data`` when it is opened.

    ``data["title"]`` is shown at the top and in the browser.
    Raises: TypeError or ValueError for data that JSON cannot hold.

    >>> text = page_text("timeline", ["format", "memory", "timeline"], {"title": "a < b"})
    >>> "<title>a &lt; b</title>" in text, "a \\\\u003c b" in text
    (True, True)
    """
    parts = {
        "title": html.escape(data["title"]).encode("utf-8", "xmlcharrefreplace").decode("utf-8"),
        "style": _file("style.css"),
        "body": _file(f"{name}.html"),
        "data": json.dumps(data, allow_nan=False, separators=(",", ":")).translate(_ESCAPES),
        "script": "\n".join(_file(f"{script}.js") for script in scripts),
    }
    return Template(_file("page.html")).substitute(parts)


def _file(name: str) -> str:
    folder = resources.files("pullback_profiler.export") / "pages"
    return (folder / name).read_text(encoding="utf-8")
