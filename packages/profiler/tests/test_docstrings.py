"""The examples in docstrings, of every module."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import pullback_profiler

SOURCE = Path(__file__).parents[1] / "src"
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if path.stem != "__init__"
)
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert doctest.testmod(import_module(name), optionflags=FLAGS).failed == 0


@pytest.mark.parametrize("name", pullback_profiler.__all__)
def test_public_names_have_an_example(name):
    made = getattr(pullback_profiler, name)
    if not isinstance(made, str):
        assert any(found.examples for found in doctest.DocTestFinder().find(made, name))
