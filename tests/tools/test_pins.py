"""Linters, tools of the documentation and actions have one exact version each."""

import re

import pytest


def linters(root):
    """The versions in tools/lint-requirements.txt by name."""
    lines = (root / "tools/lint-requirements.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_hooks_have_the_linters_of_the_requirements(root):
    text = (root / ".pre-commit-config.yaml").read_text()
    lists = re.findall(r"^ +additional_dependencies: \[(.+)\]$", text, re.M)
    assert len(lists) == text.count("language: python")
    named = {name for listed in lists for name in listed.split(", ")} - {"numpy"}
    assert named == {f"{name}=={version}" for name, version in linters(root).items()}


def test_lint_runs_every_linter(root):
    session = re.search(
        r"^def lint\(.+?(?=^def |^@)", (root / "noxfile.py").read_text(), re.M | re.S
    )
    ran = set(re.findall(r'session\.run\(\s*"([a-z-]+)"', session.group()))
    assert ran == set(linters(root))


def test_actions_have_a_full_version(root):
    files = sorted((root / ".github/workflows").glob("*.yml"))
    used = [name for file in files for name in re.findall(r"uses: *(\S+)", file.read_text())]
    assert used
    for name in used:
        assert re.fullmatch(r"[\w./-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})", name), name


@pytest.mark.parametrize("name", ["clang-format", "cython-lint", "mypy", "ruff"])
def test_linter_has_one_exact_version(root, name):
    assert re.fullmatch(r"\d+(\.\d+)+", linters(root)[name])


def test_tools_of_the_documentation_have_one_exact_version(root):
    text = (root / "noxfile.py").read_text()
    [listed] = re.findall(r"^DOCS_TOOLS = \((.+?)^\)", text, re.M | re.S)
    tools = re.findall(r'"(.+?)"', listed)
    assert {"sphinx", "furo", "myst-parser"} <= {tool.partition("==")[0] for tool in tools}
    assert [tool for tool in tools if not re.fullmatch(r"[\w-]+==\d+(\.\d+)+", tool)] == []
