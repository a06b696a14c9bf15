"""One version everywhere, and the licence in every package."""

import importlib
import importlib.metadata
import os
import re

import pytest

VERSION = "0.1.0"
PACKAGES = {
    "packages/core": "pullback",
    "packages/backend-cpu": "pullback_cpu",
    "packages/backend-cuda": "pullback_cuda",
    "packages/profiler": "pullback_profiler",
    "packages/distributed": "pullback_distributed",
}


@pytest.mark.parametrize(("folder", "name"), PACKAGES.items())
def test_version_is_the_same_everywhere(root, folder, name):
    text = (root / folder / "pyproject.toml").read_text()
    assert re.search(r'^version = "(.+)"$', text, re.M).group(1) == VERSION
    assert set(re.findall(r'"pullback[a-z-]*==([^"]+)"', text)) <= {VERSION}
    build = root / folder / "meson.build"
    if build.exists():
        assert re.search(r"^  version: '(.+)',$", build.read_text(), re.M).group(1) == VERSION
    assert importlib.import_module(name).__version__ == VERSION
    assert importlib.metadata.version(name.replace("_", "-")) == VERSION


def test_installed_modules_are_not_the_source_tree(root):
    """Otherwise these tests would say nothing about the wheels."""
    if "PULLBACK_TEST_DIST" not in os.environ:
        pytest.skip("tox and nox test wheels; here the packages may be editable")
    for name in PACKAGES.values():
        path = importlib.import_module(name).__file__
        assert not path.startswith(str(root / "packages")), f"{name} was imported from {path}"


@pytest.mark.parametrize("folder", PACKAGES)
def test_package_has_licence_and_readme(root, folder):
    assert (root / folder / "LICENSE").read_text() == (root / "LICENSE").read_text()
    assert (root / folder / "README.md").read_text().startswith("# pullback")
