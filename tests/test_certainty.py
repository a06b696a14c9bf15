"""The page about the certainty of derivatives; how many cells are right is what a run found."""

from pullback.testing.certify.derivatives import MODES
from pullback.testing.certify.page import INTRODUCTION, MEANING, conventions, without

PAGE = "docs/reference/certainty.md"


def test_page_says_what_the_code_says(root):
    page = (root / PAGE).read_text()
    hint = "run `python -m nox -s certify`"
    assert "\n".join(conventions()) in page, hint
    assert INTRODUCTION in page, hint
    assert all(f"\n| {mode} |" in page for mode in MODES), hint
    assert all(f"| {kind} | {text} |" in page for kind, text in MEANING.items()), hint
    assert ", ".join(f"`{name}`" for name in without()) in page, hint


def test_page_has_nothing_that_is_wrong(root):
    lines = (root / PAGE).read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines]
    devices = [row for row in rows if row[0] in ("cpu", "ref")]
    assert len(devices) == 2
    for row in devices:
        assert row[-3:] == ["0", "0", "0"], row  # wrong, raised, unstated
