"""The page on error messages: each text is in the sources, and its example raises it."""

import re

import pytest

import pullback as pb
from pullback import func, nn

PAGE = "docs/reference/errors.md"
ENTRY = re.compile(
    r"^### `([^`\n]+)`\n\n```python\n(.+?)\n```\n\n(.+?)\n\n\*Remedy:\* ", re.M | re.S
)


@pytest.fixture(scope="module")
def entries(root):
    """Text, example and cause of each error of the page."""
    return ENTRY.findall((root / PAGE).read_text())


def joined(source):
    """Return source text with string literals that follow each other as one."""
    return re.sub(r"""(["'])\s*\n\s*[fr]?\1""", "", source.replace('\\"', '"'))


def test_every_heading_is_a_whole_entry(root, entries):
    headings = re.findall(r"^### (.+)$", (root / PAGE).read_text(), re.M)
    assert headings == [f"`{text}`" for text, _, _ in entries]
    assert len(headings) >= 40
    assert len(set(headings)) == len(headings)


def test_texts_are_in_the_sources(root, entries):
    kinds = {".py", ".pyx", ".pxd"}
    files = (p for p in (root / "packages/core/src").rglob("*") if p.suffix in kinds)
    sources = joined("\n".join(path.read_text() for path in files))
    # A number or a name may stand in the middle of a message.
    assert [text for text, _, _ in entries if text not in sources] == []


def test_examples_raise_what_the_heading_says(entries):
    for text, code, _ in entries:
        with pytest.raises(Exception) as caught:
            exec(code, {"pb": pb, "nn": nn, "func": func})
        assert text in str(caught.value), code
